//! Reads from EndpointSlices on which nodes the pods of Services run. A plan needs this when its load balancer can't
//! have all wanted nodes as targets, and the Service asks that nodes with pods become targets first. While no plan
//! needs this, nothing is read.
//!
//! In an exchange, a target without pods is removed, and a node with pods becomes a target instead. The node of the
//! removed target must have run no pods for a minute. Only an exchange that gives a Service its first target with a
//! ready pod does not wait for this minute. The minute begins with the read at which this process found no pods on the
//! node any more. So a restart can only delay an exchange.

use super::plan::ServicePlan;
use crate::cache::Apis;
use crate::kube::{KubeNode, KubeService, Print, SERVICES_WITH_PODS, without_endpoint_rights};
use crate::provider::{EXCHANGES_AT_MOST, PodNodes, ServiceName, clock};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often EndpointSlices are read while a plan depends on them.
const POLL_PERIOD: Duration = Duration::from_secs(15);

/// For how long EndpointSlices are not read after the API server has refused a read, because this program lacks the
/// right.
const WITHOUT_RIGHTS: Duration = Duration::from_secs(600);

/// For how long a node must have run no pods before a node with pods can take its place as a target. The limits for
/// such exchanges of targets say how many can be made within this time.
const MINUTE: Duration = Duration::from_secs(60);

/// What this process knows about the nodes on which the pods of Services run, and about the latest exchanges of targets
/// (a node with pods takes the place of a target without pods).
#[derive(Default)]
pub(super) struct Pods {
    /// The Services whose EndpointSlices this process reads, to learn on which nodes their pods run. There is one entry
    /// for each Service whose last plan prefers nodes with pods as targets. The key is the creation time and the UID of
    /// this Service, so the oldest Service comes first. The value lists all Services whose pods the plan must know.
    /// These are several when Services share a load balancer.
    asked: BTreeMap<(Option<Timestamp>, String), Vec<ServiceName>>,
    /// The nodes on which pods run, from the last read of EndpointSlices. Two fields come from a comparison with
    /// earlier reads: `new` (Services that were first read within the last minute) and `recent` (pods that have ended
    /// within the last minute).
    known: Arc<PodNodes>,
    /// `print` is a hash of the API server's last answer. When the next answer has the same hash, nothing has changed,
    /// and the answer need not be evaluated. `print_of` is a hash of the Services and nodes about which the API server
    /// was asked. When the next request is about other Services or nodes, `print` is dropped, so that the whole answer
    /// is evaluated.
    print: Print,
    print_of: u64,
    /// When EndpointSlices were last read, or `None` before the first read. The field `next` says when they are read
    /// again.
    read: Option<Instant>,
    next: Option<Instant>,
    /// For each Service, the time since which every read of its EndpointSlices has given a usable answer: the read has
    /// succeeded, and every endpoint has named its node. A Service whose last read gave no usable answer has no entry.
    since: HashMap<ServiceName, Instant>,
    /// For each Service and each node on which the last serving pod of the Service has ended, the time of the read that
    /// showed this.
    ended: HashMap<(ServiceName, String), Instant>,
    /// The exchanges of targets (a node with pods takes the place of a target without pods) that are being made, or
    /// were made within the last minute.
    exchanges: Vec<Exchanged>,
}

/// An exchange: a target without pods is removed, and a node with pods takes its place.
struct Exchanged {
    /// The ID of the load balancer.
    balancer: u64,
    node: String,
    /// The time at which the exchange (a node with pods takes the place of a target) was begun. When the exchange has
    /// ended, this becomes the time at which this process saw its end. The limit of exchanges in a minute counts an
    /// exchange until a minute after its end. A minute from the beginning would be too short, because several exchanges
    /// are made one after the other.
    at: Instant,
    /// Whether the target without pods was already removed, i.e. whether the node with pods has taken its place.
    /// `false` means that the changes of the Service, which include this removal, have only begun.
    is_made: bool,
}

impl Pods {
    /// Forgets Services that do not exist any more. Reads EndpointSlices when a plan depends on them and the time of
    /// the next read has come.
    pub(super) fn saw(
        &mut self,
        apis: &Apis,
        services: &[Arc<KubeService>],
        nodes: &[Arc<KubeNode>],
    ) {
        let exist: HashSet<&str> = services.iter().map(|service| &*service.metadata.uid).collect();
        self.asked.retain(|(_, uid), _| exist.contains(uid.as_str()));
        if self.asked.is_empty() {
            let exchanges = std::mem::take(&mut self.exchanges);
            *self = Pods { exchanges, ..Pods::default() };
        } else if self.is_due() {
            self.read(apis, nodes);
        }
    }

    /// Whether a plan depends on EndpointSlices, and the time of their next read has come.
    pub(super) fn is_due(&self) -> bool {
        !self.asked.is_empty() && self.next.is_none_or(|next| next <= clock::now())
    }

    /// Stores, for each plan, the Services whose pods decide which nodes become targets (the field `pods_of` of the
    /// plan). Then reads EndpointSlices if the last read was before `since` or did not include all of these Services.
    /// After a failed read, the next one is made only after a pause. Returns `true` when EndpointSlices were read. The
    /// plans are then out of date, and the caller must make them again.
    pub(super) fn read_for(
        &mut self,
        apis: &Apis,
        plans: &[ServicePlan],
        nodes: &[Arc<KubeNode>],
        since: Option<Instant>,
    ) -> bool {
        for plan in plans {
            let meta = &plan.service.metadata;
            let key = (meta.creation_timestamp, plan.object.uid.clone());
            if plan.cloud.pods_of.is_empty() {
                self.asked.remove(&key);
            } else {
                self.asked.insert(key, plan.cloud.pods_of.clone());
            }
        }
        let mut asked = plans.iter().flat_map(|plan| &plan.cloud.pods_of).peekable();
        if asked.peek().is_none() {
            return false;
        }
        let is_known = |name: &ServiceName| {
            self.known.services.contains(name) || self.known.unread.contains_key(name)
        };
        let is_new = self.read.is_some_and(|read| since.is_none_or(|since| read >= since));
        let is_refused = self.known.services.is_empty() && !self.is_due();
        if is_new && asked.all(is_known) || is_refused && self.read.is_some() {
            return false;
        }
        self.read(apis, nodes);
        true
    }

    /// Returns on which nodes pods run, according to the last read of EndpointSlices.
    pub(super) fn known(&self) -> Arc<PodNodes> {
        Arc::clone(&self.known)
    }

    /// Returns a hash of what is known about the pods on which the last plan of this Service depends, e.g. on which
    /// nodes they run. When the hash changes, the Service needs a new plan.
    pub(super) fn print(&self, service: &KubeService) -> u64 {
        let meta = &service.metadata;
        let Some(asked) = self.asked.get(&(meta.creation_timestamp, meta.uid.clone())) else {
            return 0;
        };
        let mut hasher = DefaultHasher::new();
        for name in asked {
            self.known.unread.get(name).hash(&mut hasher);
        }
        match self.known.mask(asked) {
            None => hasher.write_u8(0),
            Some(mask) => {
                (mask, self.known.new & mask).hash(&mut hasher);
                for (node, pods) in &self.known.nodes {
                    let pods = [pods.ready & mask, pods.serving & mask, pods.recent & mask];
                    if pods != [0; 3] {
                        (node, pods).hash(&mut hasher);
                    }
                }
            }
        }
        hasher.finish()
    }

    /// Returns how many exchanges of targets (a target without pods loses its place to a node with pods) each load
    /// balancer had within the last minute, by the ID of the load balancer. Exchanges that are still being made are
    /// included. The number of exchanges in a minute is limited.
    pub(super) fn exchanged(&self) -> HashMap<u64, usize> {
        let mut counts = HashMap::new();
        for exchange in self.exchanges.iter().filter(|exchange| exchange.counts()) {
            *counts.entry(exchange.balancer).or_default() += 1;
        }
        counts
    }

    /// Whether the plan can be carried out now. The number of exchanges of targets (a node with pods takes the place of
    /// a target) in a minute is limited for all load balancers together. When the plan does not exceed this limit, it
    /// can be carried out, and its exchanges are counted.
    pub(super) fn admit(&mut self, plan: &ServicePlan) -> bool {
        let removals = plan.changes_now().filter_map(|change| change.soft_removal());
        let exchanges = removals.filter(|removal| removal.is_exchange);
        let new = exchanges.map(|removal| Exchanged {
            balancer: removal.balancer,
            node: removal.node.to_owned(),
            at: clock::now(),
            is_made: false,
        });
        let new: Vec<Exchanged> = new.collect();
        if new.is_empty() {
            return true;
        }
        self.exchanges.retain(Exchanged::counts);
        let is_within = self.exchanges.len() + new.len() <= EXCHANGES_AT_MOST;
        if is_within {
            self.exchanges.extend(new);
        }
        is_within
    }

    /// Records how the exchanges of targets that [`Pods::admit`] has counted for a load balancer have ended. In an
    /// exchange, a target without pods is removed, and a node with pods takes its place. `nodes` are the nodes whose
    /// targets were removed. Their exchanges were made, and count for another minute. The other exchanges were not
    /// made, and no longer count. When `is_known` is `false`, it is not known which exchanges were made, and all of
    /// them count as made.
    pub(super) fn made(&mut self, balancer: u64, nodes: &[&str], is_known: bool) {
        self.exchanges.retain_mut(|exchange| {
            if exchange.balancer == balancer && !exchange.is_made {
                exchange.is_made = !is_known || nodes.contains(&exchange.node.as_str());
                exchange.at = clock::now();
            }
            exchange.balancer != balancer || exchange.is_made
        });
    }

    /// Returns two lists of Services: first the Services whose EndpointSlices are read, and then the Services whose
    /// EndpointSlices are not read. At most [`SERVICES_WITH_PODS`] Services are read. When there are more, the Services
    /// are read that matter for the plans of the oldest Services. Both lists are sorted by name.
    fn wanted(&self) -> (Vec<ServiceName>, Vec<ServiceName>) {
        let (mut wanted, mut rest) = (BTreeSet::new(), BTreeSet::new());
        for name in self.asked.values().flatten() {
            if wanted.len() < SERVICES_WITH_PODS || wanted.contains(name) {
                wanted.insert(name.clone());
            } else {
                rest.insert(name.clone());
            }
        }
        (wanted.into_iter().collect(), rest.into_iter().collect())
    }

    fn read(&mut self, apis: &Apis, nodes: &[Arc<KubeNode>]) {
        let (services, rest) = self.wanted();
        let names: HashSet<&str> = nodes.iter().map(|node| node.name()).collect();
        let mut hasher = DefaultHasher::new();
        (&services, names.iter().copied().collect::<BTreeSet<&str>>()).hash(&mut hasher);
        let print_of = hasher.finish();
        if print_of != self.print_of {
            (self.print, self.print_of) = (Print::default(), print_of);
        }
        let now = clock::now();
        (self.read, self.next) = (Some(now), Some(now + POLL_PERIOD));
        let mut pods = match apis.kube.endpoints(&services, &names, &mut self.print) {
            Ok(Some(found)) => found,
            Ok(None) => PodNodes { unread: BTreeMap::new(), ..(*self.known).clone() },
            Err(error) => {
                let mut why = error.to_string();
                if error.is_forbidden() {
                    self.next = Some(now + WITHOUT_RIGHTS);
                    why = without_endpoint_rights(&error);
                }
                self.since.clear();
                self.ended.clear();
                let unread = services.into_iter().map(|service| (service, why.clone())).collect();
                PodNodes { unread, ..PodNodes::default() }
            }
        };
        self.mark(&mut pods, now);
        let is_above = |service| (service, too_many());
        pods.unread.extend(rest.into_iter().map(is_above));
        self.known = Arc::new(pods);
    }

    /// Compares `pods`, the result of the newest read, with `self.known`, the result of the read before. Then sets two
    /// fields of `pods`. `new` gets the Services whose pods were first read within the last minute. `recent` gets, for
    /// each node, the Services whose last pod on this node has ended within the last minute.
    fn mark(&mut self, pods: &mut PodNodes, now: Instant) {
        let before = Arc::clone(&self.known);
        for (place, service) in before.services.iter().enumerate() {
            let Some(mask) = pods.mask(std::slice::from_ref(service)) else {
                continue;
            };
            let had = before.nodes.iter().filter(|(_, on_node)| on_node.serving >> place & 1 == 1);
            for (node, _) in had.filter(|(node, _)| pods.on(node, mask).serving == 0) {
                self.ended.entry((service.clone(), node.clone())).or_insert(now);
            }
        }
        // `is_known` says whether the last read has shown on which nodes all pods of the Service run. This is not so
        // while an endpoint of the Service names no node, because the pod behind this endpoint may run on any node. The
        // map `since` has, for each Service, the time since which this is known. A Service loses its entry when this is
        // not known any more.
        let is_known = |service: &ServiceName| pods.mask(std::slice::from_ref(service)).is_some();
        self.since.retain(|service, _| is_known(service));
        for service in pods.services.iter().filter(|service| is_known(service)) {
            self.since.entry(service.clone()).or_insert(now);
        }
        let is_recent = |at: &Instant| now.duration_since(*at) < MINUTE;
        let new = pods.services.iter().enumerate();
        let new = new.filter(|(_, service)| self.since.get(*service).is_some_and(is_recent));
        pods.new = new.map(|(place, _)| 1 << place).sum();
        pods.nodes.values_mut().for_each(|on_node| on_node.recent = 0);
        self.ended.retain(|(service, node), at| {
            let mask = pods.mask(std::slice::from_ref(service));
            mask.is_some_and(|mask| pods.on(node, mask).serving == 0) && is_recent(at)
        });
        for (service, node) in self.ended.keys() {
            if let Some(mask) = pods.mask(std::slice::from_ref(service)) {
                pods.nodes.entry(node.clone()).or_default().recent |= mask;
            }
        }
        pods.nodes.retain(|_, on_node| on_node.serving | on_node.recent != 0);
        let unplaced = pods.services.iter().enumerate();
        let unplaced = unplaced.filter(|(place, _)| pods.unplaced >> place & 1 == 1);
        pods.unread.extend(unplaced.map(|(_, service)| (service.clone(), without_node(service))));
    }
}

impl Exchanged {
    fn counts(&self) -> bool {
        !self.is_made || clock::since(self.at) < MINUTE
    }
}

fn too_many() -> String {
    format!(
        "ccm reads the EndpointSlices of at most {SERVICES_WITH_PODS} Services, and older Services come first. Let \
         fewer Services prefer nodes with pods"
    )
}

fn without_node((namespace, name): &ServiceName) -> String {
    format!(
        "the EndpointSlices of Service {namespace}/{name} have an endpoint without nodeName. Add nodeName to this \
         endpoint"
    )
}
