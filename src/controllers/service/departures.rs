//! Takes note of departing nodes: since when a node departs, and how often a target was removed for that.
//!
//! A departing node will stop soon. It is cordoned or not ready, and it has a mark: a taint of the cluster autoscaler, or
//! a condition that says that its pods are ended. All times are measured from the first read by this process that shows
//! the cause. So a restart can only delay a removal.

use crate::kube::{KubeNode, KubeService};
use crate::metrics::TARGETS_LEFT_OUT;
use crate::provider::{Departure, LeftOutState, LoadBalancerPlan, Provider, clock};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The taint that the cluster autoscaler sets before it drains and deletes a node.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The conditions that say that the pods of a node are ended, or have ended. Only the status `True` counts.
const ENDING: [&str; 3] = ["DrainInProgress", "Drained", "GracefulNodeShutdownInProgress"];

/// How often a target may be removed from one load balancer within `REMOVALS_KEPT`, because its node departs.
const REMOVALS_AT_MOST: usize = 6;
const REMOVALS_KEPT: Duration = Duration::from_secs(3600);

/// The departing nodes that this process has seen.
#[derive(Default)]
pub(super) struct Departures {
    /// Whether a cordon alone makes a node depart. This is `HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED`.
    cordon_is_enough: bool,
    /// The delays that Services ask for. While there is none, departing nodes are not looked for.
    delays: BTreeSet<Duration>,
    /// The moment since which each departing node departs, by the UID of the node.
    since: HashMap<String, Instant>,
    /// Whether a departing node was seen last for which the delay of a Service was not over.
    is_pending: bool,
    /// The removals of targets whose nodes departed, each with the ID of the load balancer and the name of the node.
    removals: Vec<(u64, String, Instant)>,
    /// How many nodes the last plan of each Service leaves out of the targets, by the UID of the Service: the ID of the
    /// load balancer, the departing nodes, and the nodes beyond the limit of the type.
    left_out: HashMap<String, (u64, usize, usize)>,
}

impl Departures {
    pub(super) fn new(cordon_is_enough: bool) -> Departures {
        Departures { cordon_is_enough, ..Departures::default() }
    }

    /// Notes which delays the Services ask for, and which nodes depart.
    pub(super) fn saw(
        &mut self,
        provider: &dyn Provider,
        services: &[Arc<KubeService>],
        nodes: &[Arc<KubeNode>],
    ) {
        self.delays = delays(provider, services);
        let exists = |uid: &String| services.iter().any(|service| service.metadata.uid == *uid);
        self.left_out.retain(|uid, _| exists(uid));
        self.saw_nodes(nodes);
        let longest = self.delays.last().copied().unwrap_or_default();
        self.is_pending = self.since.values().any(|at| clock::since(*at) < longest);
    }

    /// Notes which of these nodes depart, if any Service asks for a delay. Other nodes are forgotten.
    pub(super) fn saw_nodes(&mut self, nodes: &[Arc<KubeNode>]) {
        let nodes = if self.delays.is_empty() { &[] } else { nodes };
        let departing = nodes.iter().filter(|node| departs(node, self.cordon_is_enough));
        let since = departing.map(|node| {
            let uid = &node.metadata.uid;
            (uid.clone(), self.since.get(uid).copied().unwrap_or_else(clock::now))
        });
        self.since = since.collect();
    }

    /// Returns what is known of the end of this node.
    pub(super) fn of(&self, node: &KubeNode) -> Departure {
        let since = self.since.get(&node.metadata.uid).copied();
        let departs = departs(node, self.cordon_is_enough);
        Departure {
            departed: departs.then(|| since.map(clock::since).unwrap_or_default()),
            is_to_be_deleted: is_to_be_deleted(node),
        }
    }

    /// Notes how many nodes these plans leave out, and sets the metric. A load balancer of several Services counts once.
    /// Each plan comes with the UID of its Service.
    pub(super) fn planned<'a>(
        &mut self,
        plans: impl Iterator<Item = (&'a String, &'a LoadBalancerPlan)>,
    ) {
        for (uid, plan) in plans {
            let states = plan.left_out.iter().map(|left| left.state);
            let count = |state| states.clone().filter(|other| *other == state).count();
            let counts = (count(LeftOutState::Departing), count(LeftOutState::Limit));
            let id = plan.found.as_ref().map(|found| found.id);
            match id.filter(|_| counts != (0, 0)) {
                Some(id) => {
                    self.left_out.insert(uid.clone(), (id, counts.0, counts.1));
                }
                None => drop(self.left_out.remove(uid)),
            }
        }
        let all = self.left_out.values();
        let all: HashMap<u64, (usize, usize)> =
            all.map(|(id, departing, limit)| (*id, (*departing, *limit))).collect();
        let sum = |of: fn(&(usize, usize)) -> usize| all.values().map(of).sum::<usize>() as f64;
        TARGETS_LEFT_OUT.set(&["departing"], sum(|counts| counts.0));
        TARGETS_LEFT_OUT.set(&["limit"], sum(|counts| counts.1));
    }

    /// Whether time alone can change a plan, because the delay of a departing node will be over.
    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Returns a hash that changes when a node begins or ceases to depart, and when the delay of a Service is over.
    pub(super) fn print(&self, nodes: &[Arc<KubeNode>]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for node in nodes {
            let Departure { departed, is_to_be_deleted } = self.of(node);
            let over = departed.map(|since| self.delays.range(..=since).count());
            let over = over.filter(|_| !self.delays.is_empty());
            if over.is_some() || is_to_be_deleted {
                (&node.metadata.uid, over, is_to_be_deleted).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Notes that a target was removed because its node departs.
    pub(super) fn removed(&mut self, balancer: u64, node: &str) {
        self.removals.retain(|(.., at)| clock::since(*at) < REMOVALS_KEPT);
        self.removals.push((balancer, node.to_owned(), clock::now()));
    }

    /// Returns the targets that were removed as often as is allowed. They stay until an hour after the first of these
    /// removals.
    pub(super) fn removed_often(&self) -> HashSet<(u64, String)> {
        let mut counts: HashMap<(u64, &str), usize> = HashMap::new();
        for (balancer, node, at) in &self.removals {
            if clock::since(*at) < REMOVALS_KEPT {
                *counts.entry((*balancer, node)).or_default() += 1;
            }
        }
        let often = counts.into_iter().filter(|(_, count)| *count >= REMOVALS_AT_MOST);
        often.map(|((balancer, node), _)| (balancer, node.to_owned())).collect()
    }
}

/// Whether the node will stop soon. `cordon_is_enough` is `HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED`.
pub fn departs(node: &KubeNode, cordon_is_enough: bool) -> bool {
    let is_cordoned = node.spec.unschedulable;
    let is_ending = || ENDING.iter().any(|kind| node.condition(kind) == Some("True"));
    let has_mark = is_to_be_deleted(node) || is_ending() || cordon_is_enough && is_cordoned;
    has_mark && (is_cordoned || !node.is_ready())
}

fn is_to_be_deleted(node: &KubeNode) -> bool {
    node.taint(TO_BE_DELETED).is_some()
}

/// Returns the delays that Services ask for.
pub(super) fn delays(provider: &dyn Provider, services: &[Arc<KubeService>]) -> BTreeSet<Duration> {
    let Some(balancers) = provider.load_balancers() else {
        return BTreeSet::new();
    };
    let wanting = services.iter().filter(|service| service.wants_load_balancer());
    wanting
        .filter_map(|service| balancers.departing_delay(&mut service.metadata.annotations.iter()))
        .collect()
}
