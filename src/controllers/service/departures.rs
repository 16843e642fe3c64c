//! Stores which nodes depart (will stop soon), since when each of them departs, and how often a target was removed
//! although its Services still want it.
//!
//! A departing node is cordoned or not ready, and a taint or a condition says why: a taint of the cluster autoscaler,
//! or a condition that says that the pods of the node are being ended. A node departs since the first time at which
//! this process has read it in such a state. After a restart, this time is later, so a restart can only delay the
//! removal of a target.

use crate::kube::{KubeNode, KubeService};
use crate::metrics::TARGETS_LEFT_OUT;
use crate::provider::{
    Departure, LeftOutState, LoadBalancerPlan, NamespaceDefaults, Provider, clock,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The taint that the cluster autoscaler sets before it drains and deletes a node.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The conditions of a node that say that its pods are being ended, or that all of them have ended. Only the status
/// `True` counts.
const ENDING: [&str; 3] = ["DrainInProgress", "Drained", "GracefulNodeShutdownInProgress"];

/// A target is sometimes removed from a load balancer although its Services still want it: its node will stop
/// soon, or a node with pods takes its place. This is how often the same target may be removed in this way within
/// an hour (`REMOVALS_KEPT`).
const REMOVALS_AT_MOST: usize = 6;
const REMOVALS_KEPT: Duration = Duration::from_secs(3600);

/// The departing nodes (nodes that will stop soon) that this process has seen. Also the targets that it has removed
/// because their nodes departed, or because nodes with pods took their places.
#[derive(Default)]
pub(super) struct Departures {
    /// Whether a node counts as departing (about to stop) only because it is cordoned. This is the setting
    /// `HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED`.
    cordon_is_enough: bool,
    /// The different times for which Services keep a departing node (one that will stop soon) as a target. They come
    /// from the annotation `departing-delay` of a Service or its Namespace, or from
    /// `HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY`. While the set is empty, the controller does not look for departing
    /// nodes.
    delays: BTreeSet<Duration>,
    /// The moment at which this process first saw that a node departs (will stop soon), by the UID of the node.
    since: HashMap<String, Instant>,
    /// Whether plans can become different without any change of a Service or node, only because time passes. This is so
    /// while at least one node will stop soon, and the longest time in `delays`, for which Services keep such a node as
    /// a target, is not over yet. The value was computed when Services and nodes were last read.
    is_pending: bool,
    /// The targets that were removed although their Services still wanted them. Such a target is removed because its
    /// node will stop soon, or because a node with pods takes its place. Each entry has the ID of the load balancer,
    /// the name of the node, and the moment of the removal.
    removals: Vec<(u64, String, Instant)>,
    /// The number of nodes that do not become targets according to the last plan of a Service, by the UID of the
    /// Service. The value has the ID of the load balancer, the number of nodes that are left out because they will stop
    /// soon, and the number of nodes that are left out because the type of the load balancer allows no more targets. A
    /// Service has no entry when its plan leaves out no node.
    left_out: HashMap<String, (u64, usize, usize)>,
}

impl Departures {
    pub(super) fn new(cordon_is_enough: bool) -> Departures {
        Departures { cordon_is_enough, ..Departures::default() }
    }

    /// Stores which nodes depart (will stop soon), and for how long the Services keep such a node as a target.
    pub(super) fn saw(
        &mut self,
        delays: BTreeSet<Duration>,
        services: &[Arc<KubeService>],
        nodes: &[Arc<KubeNode>],
    ) {
        self.delays = delays;
        let exists = |uid: &String| services.iter().any(|service| service.metadata.uid == *uid);
        self.left_out.retain(|uid, _| exists(uid));
        self.saw_nodes(nodes);
        let longest = self.delays.last().copied().unwrap_or_default();
        self.is_pending = self.since.values().any(|at| clock::since(*at) < longest);
    }

    /// Stores which of these nodes depart (will stop soon). Forgets all nodes that are not in `nodes` or do not depart.
    /// When no Service keeps a departing node as a target for some time (`delays` is empty), all nodes are forgotten.
    pub(super) fn saw_nodes(&mut self, nodes: &[Arc<KubeNode>]) {
        let nodes = if self.delays.is_empty() { &[] } else { nodes };
        let departing = nodes.iter().filter(|node| departs(node, self.cordon_is_enough));
        let since = departing.map(|node| {
            let uid = &node.metadata.uid;
            (uid.clone(), self.since.get(uid).copied().unwrap_or_else(clock::now))
        });
        self.since = since.collect();
    }

    /// Returns whether this node departs (will stop soon), and for how long it has been departing. Also returns whether
    /// the cluster autoscaler is about to delete it.
    pub(super) fn of(&self, node: &KubeNode) -> Departure {
        let since = self.since.get(&node.metadata.uid).copied();
        let departs = departs(node, self.cordon_is_enough);
        Departure {
            departed: departs.then(|| since.map(clock::since).unwrap_or_default()),
            is_to_be_deleted: is_to_be_deleted(node),
        }
    }

    /// Stores, for each of the given plans, how many nodes do not become targets because they will stop soon, or
    /// because the load balancer's type allows no more targets. Each plan comes with the UID of its Service. When
    /// several Services share a load balancer, its nodes are counted only once. Then sets the metric
    /// `ccm_targets_left_out`.
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

    /// Whether a plan can change although no object changes. This is so when a node will stop soon, and the longest
    /// time for which a Service keeps such a node as a target is not over yet.
    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Returns a hash of the nodes that will stop soon, or that the cluster autoscaler is about to delete. Services
    /// keep a node that will stop soon as a target for the time in their annotation `departing-delay`. The hash changes
    /// when a node is added to these nodes or taken away from them, and when one of these times is over for a node.
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

    /// Stores that a target was removed although its Services still want it: its node will stop soon, or a node with
    /// pods takes its place. `balancer` is the ID of the load balancer.
    pub(super) fn removed(&mut self, balancer: u64, node: &str) {
        self.removals.retain(|(.., at)| clock::since(*at) < REMOVALS_KEPT);
        self.removals.push((balancer, node.to_owned(), clock::now()));
    }

    /// Returns the targets that were removed as often as is allowed within an hour, each as the ID of the load balancer
    /// and the name of the node. Such a target is not removed again before the first of these removals is an hour old.
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

/// Whether the node will stop soon. This is so when the node is cordoned or not ready, and in addition the cluster
/// autoscaler or a condition of the node says that the node is about to end. With `cordon_is_enough`, i.e. with the
/// setting `HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED`, every cordoned node counts as a node that will stop soon.
pub fn departs(node: &KubeNode, cordon_is_enough: bool) -> bool {
    let is_cordoned = node.spec.unschedulable;
    let is_ending = || ENDING.iter().any(|kind| node.condition(kind) == Some("True"));
    let has_mark = is_to_be_deleted(node) || is_ending() || cordon_is_enough && is_cordoned;
    has_mark && (is_cordoned || !node.is_ready())
}

fn is_to_be_deleted(node: &KubeNode) -> bool {
    node.taint(TO_BE_DELETED).is_some()
}

/// Returns for how long Services keep a departing node (one that will stop soon) as a target: all different values of
/// the annotation `departing-delay`. Services without it have the default of their Namespace, or else the setting
/// `HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY`.
pub(super) fn delays(
    provider: &dyn Provider,
    services: &[Arc<KubeService>],
    namespaces: &NamespaceDefaults,
) -> BTreeSet<Duration> {
    let Some(balancers) = provider.load_balancers() else {
        return BTreeSet::new();
    };
    let wanting = services.iter().filter(|service| service.wants_load_balancer());
    let delay = |service: &Arc<KubeService>| {
        let of_namespace = namespaces.of(&service.metadata.namespace);
        balancers.departing_delay(&mut service.metadata.annotations.iter(), &of_namespace)
    };
    wanting.filter_map(delay).collect()
}
