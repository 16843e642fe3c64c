//! Reads on which nodes the pods of Services run, for load balancers on which nodes with pods are preferred. Nothing is
//! read unless the last plan of a Service asked for it: more nodes were wanted than fit.
//!
//! All times are measured from the first read by this process that shows the cause. So a restart can only delay an
//! exchange of targets.

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

/// When EndpointSlices are read again after the API server has refused the read for lack of rights.
const WITHOUT_RIGHTS: Duration = Duration::from_secs(600);

/// A target can be exchanged when its node has run no pods for this time. The limit of exchanges is counted for the same
/// time.
const MINUTE: Duration = Duration::from_secs(60);

/// What this process knows of the pods of Services, and which targets it has exchanged because of them.
#[derive(Default)]
pub(super) struct Pods {
    /// The Services whose pods the last plan of each Service asked for, by the creation time and the UID of the Service.
    asked: BTreeMap<(Option<Timestamp>, String), Vec<ServiceName>>,
    /// The last answer, with the marks that depend on time.
    known: Arc<PodNodes>,
    /// The hash of the last answer, and the Services and nodes for which it is valid.
    print: Print,
    print_of: u64,
    /// When EndpointSlices were last read, and when they are read again.
    read: Option<Instant>,
    next: Option<Instant>,
    /// Since when the EndpointSlices of each Service were read without a failure.
    since: HashMap<ServiceName, Instant>,
    /// The nodes on which the last serving pod of a Service has ended, with the time of the read that showed it.
    ended: HashMap<(ServiceName, String), Instant>,
    /// The exchanges of targets within the last minute, and those that are being made.
    exchanges: Vec<Exchanged>,
}

/// The removal of a target whose place a node with pods takes.
struct Exchanged {
    /// The ID of the load balancer.
    balancer: u64,
    node: String,
    at: Instant,
    /// Whether the removal was made. Otherwise it was only begun, together with other changes of its Service.
    is_made: bool,
}

impl Pods {
    /// Forgets what was asked for Services that do not exist any more, and reads EndpointSlices when that is due.
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

    /// Whether EndpointSlices are to be read now.
    pub(super) fn is_due(&self) -> bool {
        !self.asked.is_empty() && self.next.is_none_or(|next| next <= clock::now())
    }

    /// Notes which pods these plans ask for. Reads EndpointSlices when a plan asks for pods and they were not read since
    /// `since`, or not at all. Returns whether they were read, so that the plans must be made again.
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

    /// Returns what is known of the pods.
    pub(super) fn known(&self) -> Arc<PodNodes> {
        Arc::clone(&self.known)
    }

    /// Returns a hash that changes when the pods of the Services change for which the last plan of this Service asked.
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

    /// Returns how many targets of each load balancer were exchanged within the last minute.
    pub(super) fn exchanged(&self) -> HashMap<u64, usize> {
        let mut counts = HashMap::new();
        for exchange in self.exchanges.iter().filter(|exchange| exchange.counts()) {
            *counts.entry(exchange.balancer).or_default() += 1;
        }
        counts
    }

    /// Whether the exchanges of this plan are within the limit for all load balancers. If so, they are counted.
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

    /// Notes which of the admitted exchanges on a load balancer were made. Others do not count any more, unless it is not
    /// known whether they were made.
    pub(super) fn made(&mut self, balancer: u64, nodes: &[&str], is_known: bool) {
        self.exchanges.retain_mut(|exchange| {
            if exchange.balancer == balancer && !exchange.is_made {
                exchange.is_made = !is_known || nodes.contains(&exchange.node.as_str());
            }
            exchange.balancer != balancer || exchange.is_made
        });
    }

    /// Returns the Services whose EndpointSlices are read, sorted, and those for which there is no room. Those for which
    /// the oldest Services ask come first.
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
            Ok(None) => (*self.known).clone(),
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

    /// Sets the marks that depend on time. `pods` is the newest answer, and `self.known` the one before.
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
        self.since.retain(|service, _| pods.services.contains(service));
        for service in &pods.services {
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
        "ccm reads the EndpointSlices of at most {SERVICES_WITH_PODS} Services, and those that older Services need come \
         first. Let fewer Services prefer nodes with pods"
    )
}

fn without_node((namespace, name): &ServiceName) -> String {
    format!(
        "the EndpointSlices of Service {namespace}/{name} have an endpoint without nodeName: add nodeName to this \
         endpoint"
    )
}
