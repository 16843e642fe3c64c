//! Decides when a plan for a Service is made, and for which reason. The reason decides how old the list of load
//! balancers may be, and how urgent the API calls are.
//!
//! [`Agenda`] is told which objects were seen, which plans were made, and what was written. [`Agenda::next`] returns
//! the Services for which plans are made next.

use super::observe::{self, FullName, SeenObjects, candidates, full_name};
use super::plan::{Want, want};
use super::pods::Pods;
use crate::cache::Apis;
use crate::controllers::controller::Selection;
use crate::controllers::schedule::{Reads, Schedule, Why};
use crate::kube::{KubeNode, KubeService};
use crate::provider::{InstanceId, Urgency, clock};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often load balancers are listed only to find orphans (load balancers whose Service does not exist), while this
/// controller has no Services to manage and no orphans are known. As soon as there is a Service to manage, orphans are
/// searched at the usual intervals again.
const QUIET_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// How often a Service is planned again while its load balancer keeps a target that should be removed. Such a target
/// should be removed because its node will stop soon or runs no pods. After the time `KEPT_AT_MOST`, the Service waits
/// for the regular comparison of all Services with their load balancers.
const KEPT_PERIOD: Duration = Duration::from_secs(60);
const KEPT_AT_MOST: Duration = Duration::from_secs(600);

/// How often a Service is planned again while the replacement of its load balancer waits, e.g. for healthy targets.
/// This is done for the time `AWAITED_AT_MOST`. After this time, an event says what is missing.
const AWAITED_PERIOD: Duration = Duration::from_secs(15);
const AWAITED_AT_MOST: Duration = Duration::from_secs(600);

/// A list of load balancers that was requested longer ago than this is too old for a write. The age is measured in real
/// time, even in a test whose simulated clock runs faster, because reads and plans take real time in such a test.
const LIST_MAX_AGE: Duration = Duration::from_secs(5);

/// Decides when plans for Services are made, and when to search for orphans (load balancers whose Service does not
/// exist).
#[derive(Default)]
pub(super) struct Agenda {
    /// When all Services were last compared with their load balancers, when load balancers were last written, and when
    /// each failed Service is tried again.
    pub(super) schedule: Schedule,
    /// What is remembered about the last plan of each Service, by the UID of the Service.
    planned: HashMap<String, PlannedFacts>,
    /// The name and the resource version that each Service had in the last list, by UID.
    seen: HashMap<String, (FullName, String)>,
    pub(super) dependencies: Dependencies,
    /// Whether any Service wants a load balancer from this controller, or still has one.
    has_services: bool,
    /// The lists of Services and nodes that were read when no Service needed a plan and none was being worked on. While
    /// a read returns the same lists, nothing has to be done.
    settled: Lists,
    /// The UIDs of Services that this controller must not manage, and whose finalizer it has removed. When such a
    /// Service has the finalizer again, another process of this program with another `--load-balancer-class` or
    /// `--service-selector` manages the Service now. This controller then leaves the finalizer alone.
    released: HashSet<String>,
    /// A search for orphans (load balancers whose Service does not exist) follows each comparison of all Services with
    /// their load balancers. While such a search is due, this is the time at which its comparison began. `None` when no
    /// search is due, e.g. because it was already made.
    orphans_due: Option<Instant>,
    /// The Services whose load balancers have a target that should be removed but stays for now, e.g. because too few
    /// other targets are healthy. The target should be removed because its node will stop soon or runs no pods. The key
    /// is the UID of the Service.
    kept: HashMap<String, KeptSince>,
    /// The Services whose load balancers are being replaced while the replacement waits for something. The key is the
    /// UID of the Service. The text says for what it waits.
    awaited: HashMap<String, (String, KeptSince)>,
    /// The start of the last search for orphans (load balancers whose Service does not exist), if it found none, and if
    /// no Service wanted or had a load balancer of this controller. Otherwise `None`.
    quiet_since: Option<Instant>,
}

/// The first and the last time at which a plan of a Service left something for later. Either a target stays that should
/// be removed, e.g. because too few other targets are healthy, or the replacement of the load balancer waits.
struct KeptSince {
    first: Instant,
    last: Instant,
}

impl KeptSince {
    /// Whether it is time for a new plan of the Service. Its last plan kept a target that should be removed, e.g.
    /// because too few other targets were healthy, and this may have changed.
    fn is_due(&self, now: Instant) -> bool {
        self.is_due_after(KEPT_PERIOD, KEPT_AT_MOST, now)
    }

    fn is_due_after(&self, period: Duration, at_most: Duration, now: Instant) -> bool {
        now.duration_since(self.last) >= period && now.duration_since(self.first) < at_most
    }
}

/// The Services for which plans are made next, how old the data from the cloud may be for these plans, and how urgent
/// the API calls for new data are.
pub(super) struct NextServices {
    pub(super) services: Vec<(Arc<KubeService>, Why)>,
    pub(super) reads: Reads,
}

/// How a Service in a list differs from the version for which its last plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// No plan was made for the Service yet.
    New,
    Changed,
    /// The Service has not changed since its last plan, at least not in the parts on which the plan depends.
    Same,
    /// The list of Services, as the API server answered it, shows an older version of the Service than the one for
    /// which the last plan was made. The API server's cache can be behind, so the next lists can show the older
    /// version, too.
    Old,
}

/// Says which Services a sync pass is allowed to plan.
pub(super) struct PassScope<'a> {
    pub(super) selection: &'a Selection,
    /// Whether Services that this controller must not manage are planned as well, so that a person can see them.
    pub(super) shows_all: bool,
    /// UIDs of Services that must not be planned now. Either they are being changed, or their changes wait because
    /// their namespace has used up its share of API calls (the calls that ccm allows each namespace).
    pub(super) barred: HashSet<&'a str>,
    /// The time between two comparisons of all Services with their load balancers.
    pub(super) period: Duration,
}

/// References to a list of Services and to a list of nodes. A read that finds no change returns the same memory as the
/// read before, so the lists are equal when their memory addresses are equal.
type Lists = (Weak<Vec<Arc<KubeService>>>, Weak<Vec<Arc<KubeNode>>>);

/// What is remembered about the last plan of a Service: hashes of the objects from which the plan was made, and whether
/// it was carried out completely.
struct PlannedFacts {
    service: u64,
    dependencies: u64,
    /// The resource version that the last list showed for this Service when a newer version was planned or written. A
    /// later list that still shows this resource version is older than the plan, and gives no reason for a new plan.
    /// `None` when the list showed the version that was planned or written, or lacked the Service.
    superseded: Option<String>,
    /// Whether the last plan was not carried out completely. A new plan is then due at once, even when the Service did
    /// not change.
    is_missed: bool,
}

/// Hashes of the objects on which the plans of Services depend: nodes, Secrets, pods and other Services.
#[derive(Clone, Debug, Default)]
pub(super) struct Dependencies {
    nodes: u64,
    /// For each Service, a hash of the Secrets that it names, of the Services that share its load balancer, and of what
    /// is known about its pods. The key is the UID of the Service. A Service without such objects has no entry.
    others: HashMap<String, u64>,
    /// Whether any Services share a load balancer.
    pub(super) has_groups: bool,
}

impl Agenda {
    /// Returns the Services in `seen` that need a plan now, each with the reason. Also returns how old the data from
    /// the cloud may be for these plans, and how urgent the API calls for new data are.
    pub(super) fn next(&self, seen: &SeenObjects, scope: &PassScope) -> NextServices {
        let now = clock::now();
        let may_be_planned = |service: &&Arc<KubeService>| {
            let is_shown = scope.shows_all && service.left_alone.is_some();
            (is_shown || want(service) != Want::Nothing)
                && !scope.barred.contains(service.metadata.uid.as_str())
                && scope.selection.names(&service.full_name())
        };
        let is_asked = scope.selection.is_explicit();
        let why = |service: &KubeService| {
            let asked = is_asked.then_some(Why::Asked);
            asked.or_else(|| self.why(service, seen.is_comparison, now))
        };
        let services = seen.services.iter().filter(may_be_planned);
        let services = services.filter_map(|service| Some((Arc::clone(service), why(service)?)));
        let services: Vec<_> = services.collect();
        // The reasons for plans decide how new the data of the cloud must be. The regular comparison of all Services
        // with their load balancers needs newer data than plans for changed Services. So a sync pass that makes this
        // comparison always has the reason `Compared` in its list, even when each Service is planned for another
        // reason.
        let compared = seen.is_comparison.then_some(Why::Compared);
        let whys = services.iter().map(|(_, why)| *why).chain(compared);
        let reads = self.schedule.reads(whys, scope.period);
        NextServices { services, reads }
    }

    /// Returns how old the list of load balancers may be for plans that are carried out, and how urgent the request for
    /// a newer list is. Until `since`, this program was still changing the load balancers of these Services. So the
    /// list must have been requested after `since`. `for_people` means that a person has asked for the plans.
    pub(super) fn reads_for_writes(since: Instant, for_people: bool) -> Reads {
        let max_age = clock::since(since).min(clock::from_machine(LIST_MAX_AGE));
        let urgency = if for_people { Urgency::Needed } else { Urgency::Changed };
        Reads { max_age, urgency }
    }

    /// Returns the reason why the Service needs a plan now, or `None` when it needs no plan. The caller handles the
    /// request of a person, which is not considered here.
    fn why(&self, service: &KubeService, is_comparison: bool, now: Instant) -> Option<Why> {
        let uid = &service.metadata.uid;
        if self.released.contains(uid) {
            return None;
        }
        self.outdated(service).or_else(|| {
            if self.schedule.backoff.is_retry_due(uid, now) {
                return Some(Why::Retried);
            }
            if self.kept.get(uid).is_some_and(|kept| kept.is_due(now)) {
                return Some(Why::Kept);
            }
            if self.is_awaited(uid, now) && !self.schedule.backoff.is_waiting(uid, now) {
                return Some(Why::Awaited);
            }
            // A Service that failed and waits for its next try is left out of the regular comparison of all Services
            // with their load balancers.
            let is_compared = is_comparison && !self.schedule.backoff.is_waiting(uid, now);
            is_compared.then_some(Why::Compared)
        })
    }

    /// Returns the reason why the last plan of the Service is out of date. `None` when the plan is still valid.
    pub(super) fn outdated(&self, service: &KubeService) -> Option<Why> {
        if matches!(self.news(service), News::New | News::Changed) {
            return Some(Why::Changed);
        }
        let planned = self.planned.get(&service.metadata.uid)?;
        let is_overtaken =
            planned.is_missed || planned.dependencies != self.dependencies.of(service);
        is_overtaken.then_some(Why::Overtaken)
    }

    /// Returns how the Service differs from the version for which its last plan was made.
    pub(super) fn news(&self, service: &KubeService) -> News {
        let version = Some(&service.metadata.resource_version);
        match self.planned.get(&service.metadata.uid) {
            None => News::New,
            Some(planned) if planned.superseded.as_ref() == version => News::Old,
            Some(planned) if planned.service == fingerprint(service) => News::Same,
            Some(_) => News::Changed,
        }
    }

    /// Whether nothing has to be done now. This is so when the lists of Services and nodes are the same as at a time
    /// when no Service needed a plan. In addition, nothing of the following may be due: a retry, the regular comparison
    /// of all Services with their load balancers, a new check of a target that should be removed but was kept, and a
    /// new check of a load balancer that is being replaced.
    ///
    /// The lists do not show Secrets, and they lack Services that have another type now but still have our finalizer.
    /// When a Service names a Secret, or when there is such a Service of another type, the answer is therefore `false`.
    pub(super) fn is_settled(&self, seen: &SeenObjects, now: Instant) -> bool {
        let is_retry_due = |service: &Arc<KubeService>| {
            self.schedule.backoff.is_retry_due(&service.metadata.uid, now)
        };
        let (services, nodes) = lists(seen);
        self.settled.0.ptr_eq(&services)
            && self.settled.1.ptr_eq(&nodes)
            && !seen.is_comparison
            && seen.tls_secrets.is_empty()
            && seen.services.len() == seen.list.len()
            && !seen.services.iter().any(is_retry_due)
            && !self.kept.values().any(|kept| kept.is_due(now))
            && !self.awaited.keys().any(|uid| self.is_awaited(uid, now))
    }

    /// Whether a new plan of the Service is due, because the replacement of its load balancer may go on now.
    fn is_awaited(&self, uid: &str, now: Instant) -> bool {
        let due = |since: &KeptSince| since.is_due_after(AWAITED_PERIOD, AWAITED_AT_MOST, now);
        self.awaited.get(uid).is_some_and(|(_, since)| due(since))
    }

    /// Whether the replacement of the Service's load balancer has waited for the same thing for so long that an event
    /// says so.
    pub(super) fn has_waited_long(&self, uid: &str) -> bool {
        let awaited = self.awaited.get(uid);
        awaited.is_some_and(|(_, since)| clock::since(since.first) >= AWAITED_AT_MOST)
    }

    /// Notes for what the replacement of the Service's load balancer waits, according to the last plan. `None` when it
    /// waits for nothing.
    pub(super) fn awaits(&mut self, uid: &str, what: Option<&str>) {
        let (now, known) = (clock::now(), self.awaited.remove(uid));
        if let Some(what) = what {
            let first =
                known.filter(|(text, _)| text == what).map_or(now, |(_, since)| since.first);
            let since = KeptSince { first, last: now };
            self.awaited.insert(uid.to_owned(), (what.to_owned(), since));
        }
    }

    /// Returns the names of the Services that had type LoadBalancer or our finalizer at the last read.
    pub(super) fn names(&self) -> BTreeSet<FullName> {
        self.seen.values().map(|(name, _)| name.clone()).collect()
    }

    /// Stores the names and versions of the Services in `seen`, and `dependencies`, the hashes of the objects on which
    /// their plans depend. Forgets Services that do not exist any more.
    pub(super) fn saw(&mut self, seen: &SeenObjects, dependencies: Dependencies) {
        let listed = seen.services.iter().map(|service| {
            let metadata = &service.metadata;
            let version = metadata.resource_version.clone();
            (metadata.uid.clone(), (full_name(service), version))
        });
        self.seen = listed.collect();
        self.dependencies = dependencies;
        self.settled = Lists::default();
        self.planned.retain(|uid, _| self.seen.contains_key(uid));
        self.kept.retain(|uid, _| self.seen.contains_key(uid));
        self.awaited.retain(|uid, _| self.seen.contains_key(uid));
        self.schedule.backoff.keep(|uid| self.seen.contains_key(uid));
        let left_alone = seen.services.iter().filter(|service| service.left_alone.is_some());
        let uids = left_alone.map(|service| &service.metadata.uid);
        self.released = uids.filter_map(|uid| self.released.take(uid)).collect();
        self.has_services = seen.services.iter().any(|service| want(service) != Want::Nothing);
        self.quiet_since = self.quiet_since.filter(|_| !self.has_services);
    }

    /// Remembers these lists of Services and nodes, because with them no Service needs a plan and no plan is being
    /// carried out. As long as Kubernetes shows the same lists, nothing has to be done until a retry or the next
    /// regular comparison is due.
    pub(super) fn settle(&mut self, seen: &SeenObjects) {
        self.settled = lists(seen);
    }

    /// Records that a plan was made for this version of the Service. The plan was made from the nodes in the last list,
    /// or from nodes that were read later.
    pub(super) fn planned(&mut self, service: &KubeService) {
        let planned = PlannedFacts {
            service: fingerprint(service),
            dependencies: self.dependencies.of(service),
            superseded: self.superseded(service),
            is_missed: false,
        };
        self.planned.insert(service.metadata.uid.clone(), planned);
    }

    /// Records that this controller has written to the Service. `service` is the Service after the write.
    pub(super) fn written(&mut self, service: &KubeService) {
        let superseded = self.superseded(service);
        if let Some(planned) = self.planned.get_mut(&service.metadata.uid) {
            planned.service = fingerprint(service);
            planned.superseded = superseded;
        }
        if service.left_alone.is_some() {
            self.released.insert(service.metadata.uid.clone());
        }
    }

    /// Returns the resource version that the last list shows for this Service, if it is another one than that of
    /// `service`. `service` was read or written after the list, so the version in the list is then the older one.
    /// Returns `None` when both are the same version, or when the list lacks the Service.
    fn superseded(&self, service: &KubeService) -> Option<String> {
        let (_, listed) = self.seen.get(&service.metadata.uid)?;
        let is_newer = *listed != service.metadata.resource_version;
        is_newer.then(|| listed.clone())
    }

    /// Notes whether the plan of the Service leaves a target in place that should be removed. The node of the target
    /// will stop soon or runs no pods, but the target stays for now, e.g. because too few other targets are healthy.
    pub(super) fn keeps_targets(&mut self, uid: &str, is_kept: bool) {
        let now = clock::now();
        if !is_kept {
            self.kept.remove(uid);
        } else if let Some(kept) = self.kept.get_mut(uid) {
            kept.last = now;
        } else {
            self.kept.insert(uid.to_owned(), KeptSince { first: now, last: now });
        }
    }

    /// Records that the plan of the Service was not carried out completely, so that a new plan is due at once.
    pub(super) fn missed(&mut self, uid: &str) {
        if let Some(planned) = self.planned.get_mut(uid) {
            planned.is_missed = true;
        }
    }

    /// Records that the work on the Service was stopped, because its namespace has used up its share of API calls (the
    /// calls that ccm allows each namespace). `has_begun` means that a part of the plan was carried out. Otherwise the
    /// next plan is made for the Service as it was before its change.
    pub(super) fn stopped(&mut self, uid: &str, has_begun: bool) {
        if has_begun {
            self.missed(uid);
        } else {
            self.planned.remove(uid);
        }
    }

    /// Returns `Some` when a search for orphans (load balancers whose Service does not exist) is due. The data for the
    /// search must have been requested after the returned time.
    ///
    /// The regular comparison of all Services with their load balancers makes one search due. The search is made as
    /// soon as no changes are being made (`is_free`), and the returned time is the beginning of the comparison.
    /// `compared` is the beginning of the comparison that this sync pass has made, or `None` when it has made none.
    pub(super) fn next_orphan_search(
        &mut self,
        compared: Option<Instant>,
        is_free: bool,
    ) -> Option<Instant> {
        let is_quiet = |at| clock::since(at) < QUIET_PERIOD;
        if !self.quiet_since.is_some_and(is_quiet) {
            self.orphans_due = compared.or(self.orphans_due);
        }
        self.orphans_due.take_if(|_| is_free)
    }

    /// Records that a search for orphans (load balancers whose Service does not exist) began at `begun`. `found` is the
    /// number of orphans, or `None` when the search failed.
    pub(super) fn searched_orphans(&mut self, begun: Instant, found: Option<usize>) {
        let is_quiet = !self.has_services && found == Some(0);
        self.quiet_since = is_quiet.then_some(begun);
    }
}

impl Dependencies {
    /// Computes hashes of the objects in Kubernetes on which the plans of Services depend: nodes, Secrets, pods and
    /// other Services. `departures` is the hash of the nodes that will stop soon.
    pub(super) fn new(
        apis: &Apis,
        seen: &SeenObjects,
        departures: u64,
        pods: &Pods,
    ) -> Dependencies {
        let provider = &*apis.provider;
        let mut of_nodes = DefaultHasher::new();
        departures.hash(&mut of_nodes);
        let mut add = |node: &KubeNode, found: (Vec<InstanceId>, bool, bool)| {
            // The hash contains the UID of the node, because a node that was deleted and registered again is another
            // node, even when its name and content are the same.
            (node.name(), &node.metadata.uid, &node.spec.provider_id, found).hash(&mut of_nodes);
            for label in node.metadata.labels.iter() {
                label.hash(&mut of_nodes);
            }
        };
        for (node, _) in candidates(&seen.nodes, provider) {
            add(node, Default::default());
        }
        let servers = apis.instances_last();
        let servers = servers.as_deref().map(Vec::as_slice);
        for (node, found) in observe::foreign_matches(apis, &seen.nodes, servers) {
            let named = found.named.iter().map(|server| server.id).collect();
            add(node, (named, found.obstacle.is_some(), observe::is_offered(node)));
        }
        let mut others = of_groups(&seen.services, observe::known_group(apis));
        let has_groups = !others.is_empty();
        let with_secrets = seen.services.iter().filter(|_| !seen.tls_secrets.is_empty());
        for service in with_secrets {
            let names = observe::tls_secret_names(provider, [service]);
            if names.is_empty() {
                continue;
            }
            let mut of_secrets = DefaultHasher::new();
            for held in names.iter().map(|name| seen.tls_secrets.get(name)) {
                held.map(|held| held.as_ref().map(|pair| &pair.digest)).hash(&mut of_secrets);
            }
            *others.entry(service.metadata.uid.clone()).or_default() ^= of_secrets.finish();
        }
        for service in &seen.services {
            match pods.print(service) {
                0 => {}
                print => *others.entry(service.metadata.uid.clone()).or_default() ^= print,
            }
        }
        Dependencies { nodes: of_nodes.finish(), others, has_groups }
    }

    fn of(&self, service: &KubeService) -> u64 {
        self.nodes ^ self.others.get(&service.metadata.uid).copied().unwrap_or_default()
    }
}

fn lists(seen: &SeenObjects) -> Lists {
    (Arc::downgrade(&seen.list), Arc::downgrade(&seen.nodes))
}

/// Returns a hash for each Service that shares a load balancer with other Services. All Services of such a group have
/// the same hash, which is made from all of them. The keys are the UIDs of the Services. `key` returns the group of a
/// Service.
fn of_groups(
    services: &[Arc<KubeService>],
    key: impl Fn(&KubeService) -> Option<String>,
) -> HashMap<String, u64> {
    let mut groups: HashMap<String, (DefaultHasher, Vec<String>)> = HashMap::new();
    for service in services.iter().filter(|service| service.wants_load_balancer()) {
        let Some(key) = key(service) else {
            continue;
        };
        let (hasher, uids) = groups.entry(key).or_default();
        let mut service = service.for_cloud();
        service.addresses.clear();
        service.hash(hasher);
        uids.push(service.uid);
    }
    let members = groups.into_values().flat_map(|(hasher, uids)| {
        let number = hasher.finish();
        uids.into_iter().map(move |uid| (uid, number))
    });
    members.collect()
}

/// Returns a hash of everything in a Service on which a plan depends.
pub(super) fn fingerprint(service: &KubeService) -> u64 {
    let mut hasher = DefaultHasher::new();
    service.for_cloud().hash(&mut hasher);
    want(service).hash(&mut hasher);
    service.has_our_finalizer().hash(&mut hasher);
    service.status.load_balancer.ingress.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::clock::SimulationGuard;
    use crate::provider::clock::for_tests::simulated;

    const PERIOD: Duration = Duration::from_secs(300);

    fn service(uid: &str, version: u32, ip: &str) -> KubeService {
        let mut service = KubeService::default();
        service.metadata.uid = uid.into();
        service.metadata.name = uid.into();
        service.metadata.resource_version = version.to_string();
        service.spec.kind = "LoadBalancer".into();
        service.spec.load_balancer_ip = ip.into();
        service
    }

    /// The state of a test: the agenda, which decides what is planned next, and the simulated objects in Kubernetes.
    struct World {
        _clock: SimulationGuard,
        agenda: Agenda,
        seen: SeenObjects,
        nodes: u64,
        selection: Selection,
        at_work: HashSet<&'static str>,
    }

    impl World {
        /// Creates a state with which tests begin. The Services `a` and `b` were both planned in their first version
        /// and need no changes. All Services were compared with their load balancers just now.
        fn in_order() -> World {
            let mut world = World {
                _clock: simulated(),
                agenda: Agenda::default(),
                seen: SeenObjects::default(),
                nodes: 1,
                selection: Selection::Due,
                at_work: HashSet::new(),
            };
            world.lists(&[service("a", 1, "old"), service("b", 1, "old")]);
            world.plans("a", 1, "old");
            world.plans("b", 1, "old");
            world.agenda.schedule.compared = Some(clock::now());
            world
        }

        fn lists(&mut self, services: &[KubeService]) {
            self.seen.services = services.iter().cloned().map(Arc::new).collect();
            self.seen.list = Arc::new(self.seen.services.clone());
            self.sees();
        }

        /// Sets the version and the IP of Service `a` in the next list. Service `b` stays as it is.
        fn shows(&mut self, version: u32, ip: &str) {
            self.lists(&[service("a", version, ip), service("b", 1, "old")]);
        }

        fn sees(&mut self) {
            let dependencies = Dependencies { nodes: self.nodes, ..Dependencies::default() };
            self.agenda.saw(&self.seen, dependencies);
        }

        fn plans(&mut self, uid: &str, version: u32, ip: &str) {
            self.agenda.planned(&service(uid, version, ip));
            self.agenda.schedule.backoff.ended(uid, false);
        }

        fn fails(&mut self, times: u32) {
            (0..times).for_each(|_| self.agenda.schedule.backoff.ended("a", true));
        }

        fn passes(&self, seconds: u64) {
            clock::sleep(Duration::from_secs(seconds));
        }

        /// Returns, as text, the Services that are planned next with the reasons, how old the list of load balancers
        /// may be, and how urgent its request is.
        fn next(&mut self) -> String {
            let now = clock::now();
            self.seen.is_comparison = self.agenda.schedule.is_comparison_due(PERIOD, now);
            let next = self.agenda.next(
                &self.seen,
                &PassScope {
                    selection: &self.selection,
                    shows_all: false,
                    barred: self.at_work.clone(),
                    period: PERIOD,
                },
            );
            let services = next.services.iter();
            let services = services.map(|(one, why)| format!("{} {why:?}", one.metadata.uid));
            let services: Vec<String> = services.collect();
            if services.is_empty() {
                return String::new();
            }
            let Reads { max_age, urgency } = next.reads;
            let age = match max_age {
                Duration::MAX => "any age".to_owned(),
                age => format!("{} s", age.as_secs()),
            };
            format!("{}: {age}, {urgency:?}", services.join(", "))
        }
    }

    type Story = fn(&mut World);

    /// Each case has a name, what happens in it, and the Services that must be planned next. For each of these Services
    /// the reason of the plan is given, and for all of them the allowed age of the data and the urgency of the API
    /// calls.
    #[rustfmt::skip] // A case is a line.
    const CASES: &[(&str, Story, &str)] = &[
        ("nothing happens", |_| {}, ""),
        ("the period is over", |it| it.passes(300), "a Compared, b Compared: 150 s, CanWait"),
        ("a person asks", |it| it.selection = Selection::All, "a Asked, b Asked: 0 s, Asked"),
        ("a person asks for one", |it| it.selection = Selection::Names(["/a".to_owned()].into()), "a Asked: 0 s, Asked"),
        ("a Service changes", |it| it.shows(2, "new"), "a Changed: any age, Changed"),
        ("nothing that counts changes", |it| it.shows(2, "old"), ""),
        ("a Service changes when all are compared", |it| { it.passes(300); it.shows(2, "new"); }, "a Changed, b Compared: 150 s, Changed"),
        ("a Service comes", |it| it.lists(&[service("a", 1, "old"), service("c", 1, "old")]), "c Changed: any age, Changed"),
        ("a Service was away", |it| { it.lists(&[]); it.agenda.written(&service("a", 2, "old")); it.shows(2, "old"); }, "a Changed, b Changed: any age, Changed"),
        ("a node comes", |it| { it.nodes = 2; it.sees(); }, "a Overtaken, b Overtaken: any age, Changed"),
        ("a Service is neither ours nor ever was", |it| it.lists(&[KubeService::default()]), ""),
        // The process was restarted, so it does not remember any earlier plan.
        ("a new process begins", |it| it.agenda = Agenda::default(), "a Changed, b Changed: 150 s, Changed"),
        // A Service changes many times, and a plan is made after each change. At the end, no other plan is needed.
        ("each of many changes was planned", |it| (2..99).for_each(|version| { it.shows(version, &version.to_string()); assert_eq!(it.next(), "a Changed: any age, Changed"); it.plans("a", version, &version.to_string()); }), ""),
        ("many changes come during work", |it| { it.at_work.insert("a"); (2..99).for_each(|version| it.shows(version, "new")); assert_eq!(it.next(), ""); it.at_work.clear(); }, "a Changed: any age, Changed"),
        // In the next three cases, the Service or a node changes while the changes of the Service are being made. A new
        // plan is needed, except when the controller's own last write was made to the changed Service.
        ("work ended, and its Service changed meanwhile", |it| { it.shows(2, "new"); it.agenda.written(&service("a", 3, "new")); }, ""),
        ("work ended, and its Service was changed to something else", |it| { it.agenda.written(&service("a", 2, "old")); it.shows(3, "new"); }, "a Changed: any age, Changed"),
        ("a node comes during work, and a write of the plan does not make up for it", |it| { it.nodes = 2; it.sees(); it.agenda.written(&service("a", 2, "old")); it.plans("b", 1, "old"); }, "a Overtaken: any age, Changed"),
        ("a node comes before a plan", |it| { it.nodes = 2; it.sees(); it.plans("a", 1, "old"); it.plans("b", 1, "old"); }, ""),
        ("a plan was not begun", |it| it.agenda.missed("a"), "a Overtaken: any age, Changed"),
        ("a plan that was not begun is made again", |it| { it.agenda.missed("a"); it.plans("a", 1, "old"); }, ""),
        ("nothing of a plan may count", |it| it.agenda.stopped("a", false), "a Changed: any age, Changed"),
        // The last plan was made from version 2 of the Service, but the list of Services still shows version 1. This is
        // no reason for a new plan.
        ("the list is older than the plan", |it| it.plans("a", 2, "new"), ""),
        ("the list is older than the plan, and a node comes", |it| { it.plans("a", 2, "new"); it.nodes = 2; it.sees(); it.plans("b", 1, "old"); }, "a Overtaken: any age, Changed"),
        ("the list is older than a write", |it| it.agenda.written(&service("a", 2, "new")), ""),
        ("the list catches up", |it| { it.plans("a", 2, "new"); it.shows(2, "new"); }, ""),
        ("the list catches up, and nothing that counts changed since", |it| { it.plans("a", 2, "new"); it.shows(3, "new"); }, ""),
        ("the Service is changed back", |it| { it.plans("a", 2, "new"); it.shows(3, "old"); }, "a Changed: any age, Changed"),
        ("after 410 the list is older than the one before", |it| { it.shows(2, "new"); it.plans("a", 2, "new"); it.shows(1, "old"); }, "a Changed: any age, Changed"),
        ("that list was read again, and is no news any more", |it| { it.shows(2, "new"); it.plans("a", 2, "new"); it.shows(1, "old"); it.plans("a", 2, "new"); }, ""),
        ("the load balancers were written to since they were listed", |it| { it.agenda.schedule.last_write = Some(clock::now()); it.passes(10); it.shows(2, "new"); }, "a Changed: 10 s, Changed"),
        // The Service failed, and waits before its next try.
        ("a try failed", |it| { it.fails(1); it.passes(4); }, ""),
        ("the wait is over", |it| { it.fails(1); it.passes(8); }, "a Retried: any age, Changed"),
        ("a Service changes during the wait", |it| { it.fails(1); it.shows(2, "new"); }, "a Changed: any age, Changed"),
        ("a Service that waits is not compared", |it| { it.passes(300); it.fails(1); }, "b Compared: 150 s, CanWait"),
        ("the wait grows with each failure", |it| { it.fails(5); it.passes(79); }, ""),
        ("the next try is in order", |it| { it.fails(5); it.passes(150); it.plans("a", 1, "old"); }, ""),
        ("a Service is let go", |it| { let left = |version| KubeService { left_alone: Some("it is"), ..service("a", version, "old") }; it.lists(&[left(1)]); it.agenda.written(&left(2)); it.passes(300); }, ""),
    ];

    #[test]
    fn what_is_planned_next() {
        for (what, story, expected) in CASES {
            let mut world = World::in_order();
            story(&mut world);
            assert_eq!(world.next(), *expected, "{what}");
        }
    }

    #[test]
    fn the_same_lists_are_looked_at_once() {
        let is_settled = |world: &World| world.agenda.is_settled(&world.seen, clock::now());
        let mut world = World::in_order();
        assert!(!is_settled(&world));
        world.agenda.settle(&world.seen);
        assert!(is_settled(&world));
        world.fails(1);
        assert!(is_settled(&world), "its wait is not over");
        world.passes(8);
        assert!(!is_settled(&world), "it is tried again");
        world.plans("a", 1, "old");
        assert!(is_settled(&world));
        world.shows(1, "old");
        assert!(!is_settled(&world), "another list");
    }

    /// Orphans (load balancers whose Service does not exist) are searched each time after all Services were compared
    /// with their load balancers. While there are no Services and no orphans, one search a day is enough.
    #[test]
    fn orphans_are_searched_after_a_comparison_and_once_a_day_where_there_is_nothing() {
        let mut world = World::in_order();
        let first = clock::now();
        let search = |world: &mut World, is_free| {
            world.agenda.next_orphan_search(Some(clock::now()), is_free)
        };
        assert_eq!(search(&mut world, false), None, "changes are being made");
        world.passes(10);
        assert_eq!(world.agenda.next_orphan_search(None, true), Some(first));
        assert_eq!(world.agenda.next_orphan_search(None, true), None);
        world.agenda.searched_orphans(first, Some(0));
        assert!(search(&mut world, true).is_some(), "there are Services");
        world.lists(&[]);
        for (found, is_quiet) in [(None, false), (Some(1), false), (Some(0), true)] {
            world.agenda.searched_orphans(clock::now(), found);
            assert_eq!(search(&mut world, true).is_none(), is_quiet, "{found:?}");
        }
        world.passes(24 * 3600);
        assert!(search(&mut world, true).is_some(), "a day later");
        world.agenda.searched_orphans(clock::now(), Some(0));
        world.shows(1, "old");
        assert!(search(&mut world, true).is_some(), "Services came");
    }

    type Edit = fn(&mut Vec<KubeService>);

    /// In this test, the Services of a namespace share one load balancer. A change of one of them must be a reason for
    /// new plans of these Services, and of no others.
    #[test]
    fn a_change_of_a_group_is_news_for_its_members_alone() {
        let service = |(uid, group): (&str, &str)| {
            let mut service = service(uid, 1, "");
            service.metadata.namespace = group.into();
            service
        };
        let all = [("a", "one"), ("b", "one"), ("c", "two"), ("d", "")].map(service);
        let numbers = |all: &[KubeService]| {
            let all: Vec<Arc<KubeService>> = all.iter().cloned().map(Arc::new).collect();
            of_groups(&all, |one| {
                Some(one.metadata.namespace.clone()).filter(|group| !group.is_empty())
            })
        };
        let before = numbers(&all);
        // Each case has a name, a change of the Services, and the UIDs of the Services that need a new plan because of
        // the change.
        let cases: [(&str, Edit, &[&str]); 5] = [
            ("nothing", |_| {}, &[]),
            ("a member", |all| all[0].spec.load_balancer_ip = "1".into(), &["a", "b"]),
            ("a member goes", |all| drop(all.remove(0)), &["b"]),
            ("a member moves", |all| all[0].metadata.namespace = "two".into(), &["a", "b", "c"]),
            ("one without a group", |all| all[3].spec.load_balancer_ip = "1".into(), &[]),
        ];
        for (what, change, news) in cases {
            let mut all = all.to_vec();
            change(&mut all);
            let after = numbers(&all);
            let uids = all.iter().map(|one| one.metadata.uid.as_str());
            let is_new = |uid: &&str| before.get(*uid) != after.get(*uid);
            let new: Vec<&str> = uids.filter(is_new).collect();
            assert_eq!(new, news, "{what}");
        }
    }
}
