//! Load balancers of this cluster whose Service does not exist: found, counted, reported; deleted on
//! request only.
//!
//! Nothing here may rest on an old or partial view. Services are read after the load balancers,
//! all of them and never from a cache, so that one that came meanwhile is seen; just before the
//! first deletion again; then each one's own Service by its name; and last the load balancer
//! itself, by the provider.

use super::observe;
use super::plan::{ServicePlan, Want, want};
use super::{NAME, Settings};
use crate::cache::{Apis, Error, ReadFrom};
use crate::controllers::executor::Executor;
use crate::controllers::report::{Failure, Report, publish};
use crate::kube::{Node, ObjectReference, Service};
use crate::metrics::LOAD_BALANCERS;
use crate::provider::{
    Cluster, ErrorKind, Finding, LoadBalancerPlan, LoadBalancers, Orphan, Reason, Urgency,
};
use crate::text;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KIND: &str = "load-balancer";

/// Those that are to be deleted.
#[derive(Clone, Copy)]
pub(super) enum Chosen<'a> {
    All,
    /// By number: what a person was shown and said yes to.
    These(&'a HashSet<u64>),
}

/// For `doctor`, which plans nothing: load balancers of this cluster whose Service does not exist. What a tick has read already is
/// used; what looks like one is only believed when all Services were read after it was seen.
pub fn known_orphans(apis: &Apis, nodes: &[Arc<Node>]) -> Result<Vec<Orphan>, Error> {
    if apis.provider.load_balancers().is_none() {
        return Ok(Vec::new());
    }
    let snapshot = apis.load_balancers(&[], Duration::MAX, Urgency::Needed)?;
    let mut all = apis.any_services(Duration::MAX)?;
    loop {
        let cluster = observe::cluster(apis, "", &all.value, nodes)?;
        let orphans = snapshot.value.orphans(&cluster);
        if orphans.is_empty() || all.asked >= snapshot.answered {
            return Ok(orphans);
        }
        all = apis.any_services(Duration::ZERO)?;
    }
}

/// What both APIs say, not older than `begun` where it says that there are any. Whatever was read
/// before then must be no older than `age`.
pub(super) fn find(
    apis: &Apis,
    name: &str,
    begun: Instant,
    age: Duration,
    urgency: Urgency,
) -> Result<Vec<Orphan>, Error> {
    let mut seen = apis.nodes_seen();
    let mut age = age.max(begun.elapsed());
    loop {
        let snapshot = apis.load_balancers(&[], age, urgency)?;
        let all = apis.any_services(age)?;
        let nodes = seen.as_ref().map_or(&[][..], |seen| seen.value.as_slice());
        let cluster = observe::cluster(apis, name, &all.value, nodes)?;
        let orphans = snapshot.value.orphans(&cluster);
        let is_certain =
            snapshot.asked >= begun && all.asked >= snapshot.answered && seen.is_some();
        if orphans.is_empty() || is_certain {
            return Ok(orphans);
        }
        let snapshot = apis.load_balancers(&[], begun.elapsed(), urgency)?;
        apis.any_services(snapshot.answered.elapsed())?;
        // Without Services the nodes may not have been read yet, and only their servers' targets are ours.
        if seen.is_none() {
            seen = Some(apis.nodes(Duration::MAX, ReadFrom::Cache)?);
        }
        age = begun.elapsed();
    }
}

/// Deletes them; what there was, each with what was made.
pub(super) fn delete(
    apis: &Apis,
    provider: &dyn LoadBalancers,
    settings: &Settings,
    chosen: Chosen,
) -> (Report, Vec<ServicePlan>) {
    let mut deletion = Deletion {
        apis,
        provider,
        settings,
        report: Report::default(),
        done: Vec::new(),
    };
    if let Err(error) = deletion.run(chosen) {
        deletion.report.outage = Report::outage(error, String::new()).outage;
    }
    (deletion.report, deletion.done)
}

/// In the daemon, after all Services were compared: counted, reported, and deleted where a
/// setting asks for it.
pub(super) fn look_after(
    apis: &Apis,
    provider: &dyn LoadBalancers,
    settings: &Settings,
    begun: Instant,
    report: &mut Report,
) {
    let (name, age) = (&settings.cluster_name, settings.resync_period / 2);
    let mut left: Vec<ServicePlan> = match find(apis, name, begun, age, Urgency::CanWait) {
        Ok(orphans) => orphans.into_iter().map(plan).collect(),
        // Nothing waits for it.
        Err(error) => return log::debug!("orphaned load balancers: {error}"),
    };
    if settings.delete_orphans && left.iter().any(ServicePlan::has_writes) {
        let (deleted, plans) = delete(apis, provider, settings, Chosen::All);
        report.changes.extend(deleted.changes);
        report.failures.extend(deleted.failures);
        report.changed += deleted.changed;
        report.unreached += deleted.unreached;
        if deleted.outage.is_some() {
            report.outage = deleted.outage;
            return;
        }
        left = plans;
        left.retain(|plan| plan.made.is_empty());
    }
    report.orphans = Some(left.len());
    LOAD_BALANCERS.set(&["orphaned"], left.len() as f64);
    for mut plan in left {
        if plan.has_writes() {
            for finding in &mut plan.cloud.findings {
                finding.message += "; ccm lb sync --delete-orphans deletes it";
            }
        }
        publish(apis, NAME, &plan.object, plan.all_findings());
    }
}

/// As the plan of a Service that is not there, so that it is shown and worked off in the same way.
pub(super) fn plan(orphan: Orphan) -> ServicePlan {
    let service = orphan.service.replacen('.', "/", 1);
    let addresses = orphan.balancer.addresses.iter();
    let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
    let stays = match &orphan.stays {
        None => String::new(),
        Some(why) => format!("; {why}, so only you can delete it"),
    };
    let message = format!(
        "load balancer {} ({}), {}, was made for Service {service}, which does not exist, and costs money{stays}",
        orphan.balancer.name,
        orphan.balancer.id,
        text::some_of(&addresses)
    );
    let (namespace, name) = service.split_once('/').unwrap_or(("", &service));
    let mut of = Service::default();
    of.metadata.namespace = namespace.to_owned();
    of.metadata.name = name.to_owned();
    of.metadata.uid = orphan.service_uid;
    ServicePlan {
        object: ObjectReference {
            kind: KIND,
            name: orphan.balancer.name.clone(),
            namespace: String::new(),
            uid: orphan.balancer.id.to_string(),
        },
        service: Arc::new(of),
        want: Want::Nothing,
        cloud: LoadBalancerPlan {
            found: Some(orphan.balancer),
            changes: orphan.removal.into_iter().collect(),
            findings: vec![Finding::warning(Reason::OrphanedLoadBalancer, message)],
            ..LoadBalancerPlan::default()
        },
        add_finalizer: false,
        status: None,
        findings: Vec::new(),
        made: Vec::new(),
    }
}

impl ServicePlan {
    /// It is a load balancer that no Service wants: `service` is what its labels say.
    pub fn is_orphan(&self) -> bool {
        self.object.kind == KIND
    }
}

struct Deletion<'a> {
    apis: &'a Apis,
    provider: &'a dyn LoadBalancers,
    settings: &'a Settings,
    report: Report,
    done: Vec<ServicePlan>,
}

impl Deletion<'_> {
    fn run(&mut self, chosen: Chosen) -> Result<(), Error> {
        let begun = Instant::now();
        let name = &self.settings.cluster_name;
        let found = find(self.apis, name, begun, Duration::ZERO, Urgency::Needed)?;
        let is_chosen = |orphan: &Orphan| match chosen {
            Chosen::All => true,
            Chosen::These(ids) => ids.contains(&orphan.balancer.id),
        };
        if !found.iter().any(is_chosen) {
            return Ok(());
        }
        let (cluster, orphans) = self.make_certain(begun)?;
        let chosen = orphans.into_iter().filter(is_chosen);
        let (to_go, to_stay): (Vec<Orphan>, Vec<Orphan>) =
            chosen.partition(|orphan| orphan.removal.is_some());
        self.report.unchanged += to_stay.len();
        self.done.extend(to_stay.into_iter().map(plan));
        let mut to_go = to_go.into_iter();
        while to_go.len() > 0 {
            if !self.provider.may_wait() {
                self.report.unreached += to_go.len();
                break;
            }
            let some = to_go.by_ref().take(self.settings.concurrency.max(1));
            if !self.delete_some(some.collect(), &cluster)? {
                self.report.unreached += to_go.len();
                break;
            }
        }
        Ok(())
    }

    /// Everything again, from the APIs themselves. One that a Service is about to take over by its
    /// name is that Service's: so operators keep an address.
    fn make_certain(&self, begun: Instant) -> Result<(Cluster, Vec<Orphan>), Error> {
        let apis = self.apis;
        let nodes = apis.nodes(begun.elapsed(), ReadFrom::Latest)?;
        let services = apis.load_balancer_services(Duration::ZERO, ReadFrom::Latest)?;
        let wanting = services.value.iter();
        let wanting = wanting.filter(|service| want(service) == Want::Ensure);
        let wanting: Vec<_> = wanting.map(|service| service.for_cloud()).collect();
        let of: Vec<_> = wanting.iter().collect();
        let snapshot = apis.load_balancers(&of, begun.elapsed(), Urgency::Needed)?;
        let all = apis.any_services(Duration::ZERO)?;
        let name = &self.settings.cluster_name;
        let cluster = observe::cluster(apis, name, &all.value, &nodes.value)?;
        let snapshot = &snapshot.value;
        let taken = wanting.iter().filter_map(|service| {
            let plan = snapshot.plan(service, &[], &cluster);
            plan.found.map(|balancer| balancer.id)
        });
        let taken: HashSet<u64> = taken.collect();
        let mut orphans = snapshot.orphans(&cluster);
        orphans.retain(|orphan| !taken.contains(&orphan.balancer.id));
        Ok((cluster, orphans))
    }

    /// False: nothing more may be written.
    fn delete_some(&mut self, orphans: Vec<Orphan>, cluster: &Cluster) -> Result<bool, Error> {
        let mut executor = Executor::new(NAME, self.settings.time_scale);
        for orphan in orphans {
            if self.came_up(&orphan, cluster)? {
                let name = &orphan.balancer.name;
                log::info!("{KIND}/{name}: a Service of the same name came up: left alone");
                self.report.unreached += 1;
                continue;
            }
            let mut plan = plan(orphan);
            executor.begin(plan.name(), plan.take_changes(), plan, false);
        }
        let concurrency = self.settings.concurrency;
        let mut goes_on = true;
        for work in executor.run(self.provider, concurrency) {
            let mut plan = work.subject;
            plan.made = work.made.iter().map(|change| change.json()).collect();
            let name = plan.name();
            let lines = work.lines.into_iter().map(|line| (name.clone(), line));
            self.report.changes.extend(lines);
            match work.error {
                None => self.report.changed += 1,
                Some(error) => {
                    goes_on &= error.kind != ErrorKind::Refused;
                    self.report.failures.push(Failure {
                        object: name,
                        why: error.to_string(),
                        finding: None,
                    });
                }
            }
            self.done.push(plan);
        }
        Ok(goes_on)
    }

    /// Is its own Service there after all, or a new one of that name that was not planned for yet?
    fn came_up(&self, orphan: &Orphan, cluster: &Cluster) -> Result<bool, Error> {
        let Some((namespace, name)) = orphan.service.split_once('.') else {
            return Ok(false);
        };
        let service = self.apis.service(namespace, name)?;
        Ok(service.is_some_and(|service| {
            let uid = &service.metadata.uid;
            *uid == orphan.service_uid || !cluster.service_uids.contains(uid)
        }))
    }
}
