//! Finds, counts and reports load balancers of this cluster whose Service does not exist. Deletes them only when a
//! person or a setting asks for it.
//!
//! Old or incomplete data must never lead to a deletion. All Services are read after the load balancers and never from
//! a cache, so that no new Service is missed. Everything is read again before the first deletion. Before each deletion,
//! the Service of the load balancer is read by its name. Then the provider reads the load balancer itself.

use super::observe::{self, NAME, ServiceSettings};
use super::plan::{ServiceChange, ServiceFacts, ServicePlan, Want, want};
use crate::cache::{Apis, CacheError, ReadFrom};
use crate::controllers::Progress;
use crate::controllers::executor::Executor;
use crate::controllers::report::{Outage, Report, publish};
use crate::controllers::share::Payer;
use crate::kube::{AnyService, KubeService, ObjectReference};
use crate::metrics::LOAD_BALANCERS;
use crate::provider::{
    Balancer, BalancerUse, Cluster, ErrorKind, Finding, KeptObject, Orphan, Reason, Service,
    ServiceInput, Snapshot, Urgency, clock,
};
use crate::text;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KIND: &str = "load-balancer";

/// Returns the load balancers of this cluster whose Service does not exist, for the command `ccm doctor`. `begun` is
/// the time at which the command began. Data that were read after this time are new enough.
pub fn known_orphans(apis: &Apis, begun: Instant) -> Result<Vec<Orphan>, CacheError> {
    find(apis, begun, Duration::MAX, Urgency::Needed)
}

/// Returns the cluster, and the load balancers that remain because their Services, which do not exist any more, asked
/// to keep them. Cached data of any age are used.
pub fn kept(apis: &Apis) -> Result<(Cluster, Vec<KeptObject>), CacheError> {
    let snapshot = apis.load_balancers(&[], Duration::MAX, Urgency::Needed)?;
    let all = observe::all_services(apis, Duration::MAX)?;
    let cluster = observe::known_cluster(apis, &all.value, &[])?;
    let kept = snapshot.value.kept(&cluster);
    Ok((cluster, kept))
}

/// Returns the orphans (load balancers whose Service does not exist). The first search may use cached data that are
/// at most `age` old, or that were read after the moment `begun`. Orphans that are found in old data may not be
/// orphans any more. So the load balancers and then the Services are read again and searched a second time, unless
/// the first search already used load balancers that were read after `begun`, and Services that were read after the
/// load balancers.
pub(super) fn find(
    apis: &Apis,
    begun: Instant,
    age: Duration,
    urgency: Urgency,
) -> Result<Vec<Orphan>, CacheError> {
    if apis.provider.load_balancers().is_none() {
        return Ok(Vec::new());
    }
    let mut seen = apis.nodes.last();
    let mut age = age.max(clock::since(begun));
    loop {
        let snapshot = apis.load_balancers(&[], age, urgency)?;
        let all = observe::all_services(apis, age)?;
        let wanting = apis.load_balancer_services(age, ReadFrom::Latest)?;
        let nodes = seen.as_ref().map_or(&[][..], |seen| seen.value.as_slice());
        let cluster = observe::known_cluster(apis, &all.value, nodes)?;
        let orphans = orphans(&**snapshot.value, cluster, &all.value, &wanting.value);
        let is_certain = snapshot.asked >= begun
            && all.asked.min(wanting.asked) >= snapshot.answered
            && seen.is_some();
        if orphans.is_empty() || is_certain {
            return Ok(orphans);
        }
        let snapshot = apis.load_balancers(&[], clock::since(begun), urgency)?;
        apis.any_services(clock::since(snapshot.answered))?;
        apis.load_balancer_services(clock::since(snapshot.answered), ReadFrom::Latest)?;
        // When the cluster has no Services, this process may not have read the nodes yet. The nodes are needed now to
        // find out which targets of a load balancer are servers of this cluster.
        if seen.is_none() {
            seen = Some(apis.nodes.whole(Duration::MAX, ReadFrom::Cache)?);
        }
        age = clock::since(begun);
    }
}

/// Returns the load balancers whose Service does not exist. Also returns those whose Service exists, but has another
/// type and no finalizer, e.g. after the restore of a backup. The load balancer of an existing Service is only reported
/// and never deleted, because the Service may want it again.
fn orphans(
    snapshot: &dyn Snapshot,
    mut cluster: Cluster,
    all: &[Arc<AnyService>],
    wanting: &[Arc<KubeService>],
) -> Vec<Orphan> {
    let without_service = snapshot.orphans(&cluster);
    let without_service: HashSet<u64> =
        without_service.iter().map(|orphan| orphan.balancer.id).collect();
    let finalized = all.iter().filter(|service| service.metadata.has_our_finalizer);
    let finalized = finalized.map(|service| &service.metadata.uid);
    let cared_for = wanting.iter().map(|service| &service.metadata.uid).chain(finalized);
    cluster.service_uids = cared_for.cloned().collect();
    let mut orphans = snapshot.orphans(&cluster);
    for orphan in &mut orphans {
        if !without_service.contains(&orphan.balancer.id) {
            orphan.service_exists = true;
            let whose = match orphan.balancer.use_of {
                BalancerUse::Shared => "one of these Services",
                _ => "the Service",
            };
            orphan.removal = Err(format!("{whose} exists"));
        }
    }
    orphans
}

/// Finds, counts and reports the orphans (load balancers whose Service does not exist) after the daemon has compared
/// all Services with their load balancers. Deletes the orphans when a setting asks for that.
pub(super) fn look_after(
    apis: &Apis,
    settings: &ServiceSettings,
    begun: Instant,
    report: &mut Report,
) {
    let age = apis.resync_period(settings.resync_period) / 2;
    let mut left: Vec<ServicePlan> = match find(apis, begun, age, Urgency::CanWait) {
        Ok(orphans) => orphans.into_iter().map(plan).collect(),
        // The error is only logged. The search for orphans (load balancers whose Service does not exist) is repeated
        // after the next regular comparison of all Services with their load balancers.
        Err(error) => return log::debug!("orphaned load balancers: {error}"),
    };
    if settings.delete_orphans && left.iter().any(|plan| plan.has_writes()) {
        left = delete(apis, settings, |_| true, report);
        if report.outage.is_some() {
            return;
        }
        left.retain(|plan| plan.made.is_empty());
    }
    report.orphans = Some(left.len());
    LOAD_BALANCERS.set(&["orphaned"], left.len() as f64);
    for plan in left {
        publish(apis, plan.object.seen_by(NAME), plan.all_findings());
    }
}

pub(super) fn plan(orphan: Orphan) -> ServicePlan {
    let balancer = &orphan.balancer;
    let addresses = balancer.addresses.iter().map(ToString::to_string);
    let (stays, fix) = match &orphan.removal {
        Err(why) => (
            format!(". ccm does not delete the load balancer, because {why}"),
            format!(
                "if the load balancer is not needed, delete it yourself: {} (if it is protected, first run {})",
                text::shell_command("hcloud load-balancer delete", &[&balancer.id]),
                text::shell_command(
                    "hcloud load-balancer disable-protection",
                    &[&balancer.id, &"delete"]
                )
            ),
        ),
        Ok(_) => (
            String::new(),
            "ccm lb sync --delete-orphans shows all such load balancers, asks, and deletes them"
                .to_owned(),
        ),
    };
    let message = format!(
        "load balancer {:?} ({}), with the addresses {}, costs money, but was made for {}{stays}",
        balancer.name,
        balancer.id,
        text::some_of(&addresses.collect::<Vec<_>>()),
        orphan.made_for()
    );
    let mut plan = plan_alone(&orphan.service, orphan.balancer);
    plan.findings.push(Finding::warning(Reason::OrphanedLoadBalancer, message).with_fix(fix));
    plan.changes.extend(orphan.removal.map(ServiceChange::Cloud));
    plan
}

/// Returns a plan for a load balancer whose Service does not exist. Commands can then display and delete this load
/// balancer like any other. `service` is the name of the Service in the labels of the load balancer.
pub(super) fn plan_alone(service: &str, balancer: Balancer) -> ServicePlan {
    let mut of = KubeService::default();
    let (namespace, name) = service.split_once('.').unwrap_or(("", service));
    of.metadata.namespace = namespace.to_owned();
    of.metadata.name = name.to_owned();
    let object = ObjectReference::without_namespace(KIND, &balancer.name, balancer.id);
    let facts = ServiceFacts { service: Arc::new(of), ..ServiceFacts::default() };
    let mut plan = ServicePlan::new(object, "", facts);
    plan.cloud.found = Some(balancer);
    plan
}

impl ServicePlan {
    /// Whether the plan is about a load balancer that no Service wants. There is no Service object then, and the field
    /// `service` contains only a namespace and a name, from the labels of the load balancer.
    pub fn is_orphan(&self) -> bool {
        self.object.kind == KIND
    }
}

/// Deletes the chosen orphans (load balancers whose Service does not exist), one after the other. Returns a plan for
/// each, which also says what was deleted.
pub(super) fn delete(
    apis: &Apis,
    settings: &ServiceSettings,
    is_chosen: impl Fn(u64) -> bool,
    report: &mut Report,
) -> Vec<ServicePlan> {
    let mut done = Vec::new();
    let Some(provider) = apis.provider.load_balancers() else {
        return done;
    };
    let mut delete_all = || -> Result<(), CacheError> {
        let begun = clock::now();
        let name = &settings.cluster_name;
        let is_chosen = |orphan: &Orphan| is_chosen(orphan.balancer.id);
        let (cluster, orphans) = make_certain(apis, name, begun)?;
        let mut to_delete: Vec<Orphan> = orphans.into_iter().filter(is_chosen).collect();
        for orphan in to_delete.extract_if(.., |orphan| orphan.removal.is_err()) {
            let plan = plan(orphan);
            report.note(plan.name(), Progress::Unchanged);
            done.push(plan);
        }
        let mut is_refused = false;
        for orphan in to_delete {
            if is_refused || !provider.may_wait() {
                report.note(plan(orphan).name(), Progress::Unreached);
                continue;
            }
            let came_up = came_up(apis, &orphan, &cluster)?;
            let mut plan = plan(orphan);
            if came_up {
                let name = plan.name();
                log::info!(
                    "{name}: the Service of this load balancer exists again, so ccm does not delete the load balancer"
                );
                report.note(name, Progress::Unreached);
                continue;
            }
            let failed = carry_out(apis, &mut plan, None, report);
            is_refused |= failed == Some(ErrorKind::Refused);
            done.push(plan);
        }
        Ok(())
    };
    if let Err(error) = delete_all() {
        report.outage = Some(Outage::from(error));
    }
    done
}

/// Makes the changes of a plan whose object is not a Service, e.g. the deletion of a load balancer without a Service.
/// When a change has failed, returns the kind of the error.
pub(super) fn carry_out(
    apis: &Apis,
    plan: &mut ServicePlan,
    payer: Option<Payer>,
    report: &mut Report,
) -> Option<ErrorKind> {
    let mut executor = Executor::new(NAME);
    executor.begin(plan.name(), plan.take_changes(), (), None).payer = payer;
    let over = executor.run(apis.provider.load_balancers()?, 1).pop()?;
    plan.made = over.result.made.iter().map(|change| change.json()).collect();
    let failed = over.error().map(|error| error.kind.clone());
    over.note_in(report);
    failed
}

/// Reads everything again from the APIs, and returns the cluster and its orphans (load balancers whose Service does not
/// exist). A load balancer that a Service is about to take over by its name is not an orphan. Operators take over load
/// balancers in this way to keep an address.
fn make_certain(
    apis: &Apis,
    name: &str,
    begun: Instant,
) -> Result<(Cluster, Vec<Orphan>), CacheError> {
    let nodes = apis.nodes.whole(clock::since(begun), ReadFrom::Latest)?;
    let services = apis.load_balancer_services(Duration::ZERO, ReadFrom::Latest)?.value;
    let wanting = services.iter().filter(|service| want(service) == Want::Ensure);
    let wanting: Vec<_> = wanting.map(|service| service.for_cloud()).collect();
    let of: Vec<_> = wanting.iter().collect();
    let snapshot = apis.load_balancers(&of, clock::since(begun), Urgency::Needed)?;
    let all = observe::all_services(apis, Duration::ZERO)?;
    if observe::identity_in(&all.value).is_none() {
        return Err(observe::not_known(
            "the Service default/kubernetes does not exist. Other Services may be missing, too, so ccm deletes no load \
             balancer",
        ));
    }
    let mut cluster = observe::known_cluster(apis, &all.value, &nodes.value)?;
    name.clone_into(&mut cluster.name);
    let members = services.iter().map(|service| &**service);
    cluster.groups = observe::groups(&*apis.provider, &cluster.namespaces, members);
    let plan = |service: &&Service| {
        snapshot.value.plan(ServiceInput { service, nodes: &[], cluster: &cluster })
    };
    let plans = of.iter().map(plan);
    let taken: HashSet<u64> = plans.filter_map(|plan| Some(plan.found?.id)).collect();
    let mut orphans = snapshot.value.orphans(&cluster);
    orphans.retain(|orphan| !taken.contains(&orphan.balancer.id));
    Ok((cluster, orphans))
}

/// Reads the Service of this load balancer by its name, and returns whether it exists after all. This is also true when
/// a new Service with the same name was created after `cluster` was read.
fn came_up(apis: &Apis, orphan: &Orphan, cluster: &Cluster) -> Result<bool, CacheError> {
    let Some((namespace, name)) = orphan.service.split_once('.') else {
        return Ok(false);
    };
    let service = apis.kube.service(namespace, name)?;
    Ok(service.is_some_and(|service| {
        let uid = &service.metadata.uid;
        *uid == orphan.service_uid || !cluster.service_uids.contains(uid)
    }))
}
