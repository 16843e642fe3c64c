//! The service controller: a Service of type LoadBalancer gets a load balancer, kept right, and taken away.
//!
//! What a load balancer should look like is the provider's business; here is what Kubernetes
//! asks: finalizer before anything is created, status after, nothing on an old view, one
//! Service's trouble never the others'.

mod due;
mod failed;
mod observe;
mod offered;
mod orphans;
mod pass;
mod plan;
mod project;
mod rounds;
mod survey;
mod tell;
mod write;

pub use failed::{FailedTry, failed_tries};
pub use observe::Observed;
pub use offered::{Servers, offered};
pub use plan::{ServicePlan, View, Want, plan, want};
pub use survey::orphans;

use super::report::Report;
use super::{Controller, Proposal, Selection};
use crate::cloud::{Gate, Kept, LoadBalancers, Urgency};
use crate::kube::{Node, Service};
use crate::metrics::LOAD_BALANCERS;
use crate::world::{Error, Poll, ReadFrom, World};
use due::{Due, Fingerprints};
use observe::Freshness;
use pass::{Done, Pass};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "service-lb-controller";

/// As upstream's events are signed.
pub const EVENT_COMPONENT: &str = "service-controller";

/// How late a label that changes which nodes are targets may be seen.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// How often load balancers are listed for orphans alone, where there are neither Services of ours nor orphans:
/// what could become one is seen before.
const QUIET_LOOK_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// What the service controller is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--service-sync-interval`: how often Services are looked at.
    pub sync_interval: Duration,
    /// `--load-balancer-resync-period`: how often load balancers that nobody changed are compared.
    pub resync_period: Duration,
    /// `--concurrent-service-syncs`: requests in flight.
    pub concurrency: usize,
    /// `--cluster-name`: for people.
    pub cluster_name: String,
    /// `--delete-orphaned-load-balancers`: at the resync.
    pub delete_orphans: bool,
    /// Multiplies waits; 1 outside of tests.
    pub time_scale: f64,
}

pub struct ServiceController {
    settings: Settings,
    due: Due,
    /// Names of the Services of type LoadBalancer that were listed last: one that is missing
    /// from a later list has changed its type, or is gone.
    listed: BTreeSet<(String, String)>,
    /// Names of Services that may carry our finalizer although they are of another type.
    suspects: BTreeSet<(String, String)>,
    /// Before that, what was read of load balancers is older than what was written to them.
    last_write: Option<Instant>,
    /// When orphans were looked for last, where there were neither any nor Services of ours.
    all_quiet: Option<Instant>,
}

/// What is looked at in one pass.
struct Look {
    nodes: Arc<Vec<Arc<Node>>>,
    /// Every Service that we may have to do with.
    services: Vec<Arc<Service>>,
    prints: Fingerprints,
    is_resync: bool,
}

impl ServiceController {
    pub fn new(settings: Settings) -> ServiceController {
        ServiceController {
            due: Due::new(settings.time_scale),
            settings,
            listed: BTreeSet::new(),
            suspects: BTreeSet::new(),
            last_write: None,
            all_quiet: None,
        }
    }

    /// What both APIs say and what would be done, for the Services that are asked for.
    pub fn evaluate(
        &self,
        world: &World,
        selection: &Selection,
    ) -> Result<(Option<Observed>, Vec<ServicePlan>), Error> {
        let Some(provider) = world.provider.load_balancers() else {
            return Ok((None, Vec::new()));
        };
        let begun = Instant::now();
        let look = self.look(world, selection, begun)?;
        let (mut observed, mut plans) =
            self.propose_for(world, provider, selection, &look, true)?;
        if let Some(observed) = &mut observed {
            if plans.iter().any(|plan| plan.cloud.rests_on_servers) {
                observed.ask_for_servers(world, &look.nodes, begun, Urgency::Asked)?;
                plans = plan(&observed.view(true), provider);
            }
            project::doubt(world, &observed.cluster, &mut plans);
        }
        plan::share_out(&mut plans);
        Ok((observed, plans))
    }

    /// What is kept in the cloud of Services that do not exist any more.
    pub fn kept(&self, world: &World) -> Result<Vec<Kept>, Error> {
        let Some(provider) = world.provider.load_balancers() else {
            return Ok(Vec::new());
        };
        let all = world.any_services(Duration::MAX)?;
        let name = &self.settings.cluster_name;
        let cluster = observe::cluster(world, name, &all.value, &[])?;
        provider.kept(&cluster).map_err(Error::Cloud)
    }

    /// One pass, with the plans that it ended with, for a person.
    pub fn sync(
        &mut self,
        world: &World,
        gate: &dyn Gate,
        selection: &Selection,
    ) -> (Report, Vec<ServicePlan>) {
        self.pass(world, gate, selection, true)
    }

    fn pass(
        &mut self,
        world: &World,
        gate: &dyn Gate,
        selection: &Selection,
        for_people: bool,
    ) -> (Report, Vec<ServicePlan>) {
        let Some(provider) = world.provider.load_balancers() else {
            return (Report::default(), Vec::new());
        };
        let begun = Instant::now();
        let look = match self.look(world, selection, begun) {
            Ok(look) => look,
            Err(error) => return (Report::outage(error, String::new()), Vec::new()),
        };
        let proposed = self.propose_for(world, provider, selection, &look, for_people);
        let proposals = match proposed {
            Ok((_, proposals)) => proposals,
            Err(error) => return (Report::outage(error, waiting(&look)), Vec::new()),
        };
        self.remember(&look);
        measure(&look);
        // What stands in a Service's way may be gone by now, and what it waits for may have come.
        let (to_do, right): (Vec<_>, Vec<_>) = proposals.into_iter().partition(|plan| {
            plan.has_writes() || plan.cloud.obstacle.is_some() || plan.cloud.is_unfinished
        });
        let planned = to_do.iter().map(ServicePlan::writes).sum();
        let uids = to_do.iter().map(|plan| plan.object.uid.clone());
        let mut missed: HashSet<String> = uids.collect();
        let mut has_written = false;
        let mut pass = Pass::new(world, gate, provider, &self.settings, for_people);
        pass.report.planned = planned;
        let outcome = match to_do.is_empty() {
            true => Ok(()),
            false => {
                let services = to_do.into_iter().map(|plan| plan.service);
                let outcome = pass.run(services.collect(), begun);
                has_written = pass.has_begun_changes();
                if has_written {
                    self.last_write = Some(Instant::now());
                }
                outcome
            }
        };
        let (mut report, mut done) = (pass.report, pass.done);
        match outcome {
            Err(error) => report.outage = Report::outage(error, waiting(&look)).outage,
            // What the pass did not come to would else wait for the next one.
            Ok(()) if look.is_resync && report.unreached == 0 => self.due.resynced(begun),
            Ok(()) => {}
        }
        for plan in right {
            pass::settle(world, plan, &mut report, &mut done);
        }
        for done in &done {
            missed.remove(&done.plan.object.uid);
            self.note(done, &look);
        }
        // Else what was found by the last comparison of all would wait for the next one.
        missed.iter().for_each(|uid| self.due.missed(uid));
        let is_whole = look.is_resync && report.outage.is_none() && report.unreached == 0;
        // What was read of load balancers is mostly what there is still: then no call for orphans alone.
        let is_read = !has_written || self.settings.delete_orphans;
        let is_quiet = look.services.iter().all(|one| want(one) == Want::Nothing);
        if !is_quiet {
            self.all_quiet = None;
        }
        if is_whole && is_read && !self.was_quiet() {
            orphans::look_after(world, gate, provider, &self.settings, begun, &mut report);
            let is_quiet = is_quiet && report.orphans == Some(0);
            self.all_quiet = is_quiet.then_some(begun);
        }
        (report, done.into_iter().map(|done| done.plan).collect())
    }

    /// Load balancers of this cluster whose Service does not exist, as they are since `begun`.
    pub fn orphans(&self, world: &World, begun: Instant) -> Result<Vec<ServicePlan>, Error> {
        let Some(provider) = world.provider.load_balancers() else {
            return Ok(Vec::new());
        };
        let name = &self.settings.cluster_name;
        let found = orphans::find(
            world,
            provider,
            name,
            begun,
            Duration::ZERO,
            Urgency::Needed,
        )?;
        Ok(found.into_iter().map(orphans::plan).collect())
    }

    /// Deletes those of these numbers that still are orphans, each with what was made.
    pub fn delete_orphans(
        &self,
        world: &World,
        gate: &dyn Gate,
        ids: &HashSet<u64>,
    ) -> (Report, Vec<ServicePlan>) {
        let Some(provider) = world.provider.load_balancers() else {
            return (Report::default(), Vec::new());
        };
        let chosen = orphans::Chosen::These(ids);
        orphans::delete(world, gate, provider, &self.settings, chosen)
    }

    /// Services and nodes: read from Kubernetes alone.
    fn look(&self, world: &World, selection: &Selection, now: Instant) -> Result<Look, Error> {
        let is_resync = self.due.is_resync_due(self.settings.resync_period, now);
        let (age, from) = match selection.is_explicit() {
            true => (self.settings.sync_interval / 2, ReadFrom::Latest),
            false => (self.settings.sync_interval / 2, ReadFrom::Cache),
        };
        let listed = world.load_balancer_services(age, from)?;
        let mut suspects = self.suspects.clone();
        suspects.extend(self.listed.iter().cloned());
        if is_resync || selection.is_explicit() {
            let all = world.any_services(self.settings.resync_period / 2)?;
            let ours = all
                .value
                .iter()
                .filter(|service| service.has_our_finalizer());
            suspects.extend(ours.map(|service| {
                let metadata = &service.metadata;
                (metadata.namespace.clone(), metadata.name.clone())
            }));
        }
        let mut services = listed.value.as_ref().clone();
        services.extend(observe::leftovers(world, &services, suspects)?);
        services.sort_by_cached_key(|service| service.full_name());
        let nodes = match (selection.is_explicit(), services.is_empty()) {
            (true, _) => world.nodes(age, from)?.value,
            // Nobody asks which nodes there are.
            (false, true) => Arc::default(),
            (false, false) => {
                world
                    .poll_nodes(Poll {
                        look_max_age: age,
                        // The node controller reads them whole more often, where it runs.
                        whole_max_age: self.settings.resync_period * 2,
                        metadata_max_age: Some(METADATA_MAX_AGE.mul_f64(self.settings.time_scale)),
                    })?
                    .value
            }
        };
        Ok(Look {
            prints: Fingerprints::new(&nodes, &*world.provider),
            nodes,
            services,
            is_resync,
        })
    }

    /// Plans on what was read last, or, where somebody asks, on what is true now.
    fn propose_for(
        &self,
        world: &World,
        provider: &dyn LoadBalancers,
        selection: &Selection,
        look: &Look,
        for_people: bool,
    ) -> Result<(Option<Observed>, Vec<ServicePlan>), Error> {
        let now = Instant::now();
        let explicit = selection.is_explicit();
        // One that failed has times of its own.
        let is_compared =
            |service: &Arc<Service>| look.is_resync && !self.due.is_waiting(service, now);
        let is_due = |service: &&Arc<Service>| {
            let is_ours = want(service) != Want::Nothing;
            is_ours
                && selection.names(&service.full_name())
                && (explicit || is_compared(service) || self.due.is_due(service, &look.prints, now))
        };
        let due: Vec<Arc<Service>> = look.services.iter().filter(is_due).cloned().collect();
        if due.is_empty() {
            return Ok((None, Vec::new()));
        }
        let since_write = self.last_write.map_or(Duration::MAX, |at| at.elapsed());
        let age = match (explicit, look.is_resync) {
            (true, _) => Duration::ZERO,
            (false, true) => self.settings.resync_period / 2,
            (false, false) => Duration::MAX,
        };
        // What only is compared again can wait; a Service that changed can't.
        let changed = |service: &Arc<Service>| self.due.is_due(service, &look.prints, now);
        let urgency = match explicit {
            true => Urgency::Asked,
            false if due.iter().any(changed) => Urgency::Needed,
            false => Urgency::CanWait,
        };
        let observed = observe::observe(
            world,
            &self.settings.cluster_name,
            due,
            &look.nodes,
            Freshness::Proposes(age.min(since_write)),
            urgency,
        )?;
        let plans = plan(&observed.view(for_people), provider);
        Ok((Some(observed), plans))
    }

    /// A while ago there was nothing at all in the cloud that is ours.
    fn was_quiet(&self) -> bool {
        let period = QUIET_LOOK_PERIOD.mul_f64(self.settings.time_scale);
        self.all_quiet.is_some_and(|at| at.elapsed() < period)
    }

    fn remember(&mut self, look: &Look) {
        let name = |service: &Arc<Service>| {
            let metadata = &service.metadata;
            (metadata.namespace.clone(), metadata.name.clone())
        };
        let of_type = |is: bool| {
            let services = look.services.iter();
            services
                .filter(|service| service.is_of_type_load_balancer() == is)
                .map(name)
                .collect()
        };
        self.listed = of_type(true);
        self.suspects = of_type(false);
        let uids: HashSet<&str> = look
            .services
            .iter()
            .map(|service| service.metadata.uid.as_str())
            .collect();
        self.due.keep(&uids);
    }

    fn note(&mut self, done: &Done, look: &Look) {
        let uid = &done.plan.object.uid;
        match done.again {
            true => self.due.backoff.failed(uid, Instant::now()),
            false => self.due.backoff.succeeded(uid),
        }
        if let Some(service) = &done.service {
            let mut listed = look.services.iter();
            let listed = listed.find(|listed| listed.metadata.uid == *uid);
            self.due
                .tried(service, &look.prints, listed.map(|one| &**one));
        }
    }
}

/// For the metrics.
fn measure(look: &Look) {
    let (mut managed, mut pending, mut leaving) = (0, 0, 0);
    for service in &look.services {
        match want(service) {
            Want::Nothing => {}
            Want::Remove => leaving += 1,
            Want::Ensure if service.status.load_balancer.ingress.is_empty() => pending += 1,
            Want::Ensure => managed += 1,
        }
    }
    for (state, count) in [
        ("managed", managed),
        ("pending", pending),
        ("leaving", leaving),
    ] {
        LOAD_BALANCERS.set(&[state], f64::from(count));
    }
}

fn waiting(look: &Look) -> String {
    let count = look
        .services
        .iter()
        .filter(|service| want(service) != Want::Nothing)
        .count();
    match count {
        0 => String::new(),
        1 => "1 Service waits".into(),
        count => format!("{count} Services wait"),
    }
}

impl Controller for ServiceController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.settings.sync_interval
    }

    fn tick(&mut self, world: &World, gate: &dyn Gate, selection: &Selection) -> Report {
        self.pass(world, gate, selection, false).0
    }

    fn propose(&self, world: &World, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let begun = Instant::now();
        let (_, mut plans) = self.evaluate(world, selection)?;
        if self.settings.delete_orphans {
            let mut orphans = self.orphans(world, begun)?;
            orphans.retain(ServicePlan::has_writes);
            plans.extend(orphans);
        }
        Ok(plans.iter().map(ServicePlan::proposal).collect())
    }
}
