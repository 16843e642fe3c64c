//! Chooses the targets of a load balancer out of the nodes that the Services want as targets.
//!
//! | rule | nodes | effect |
//! |---|---|---|
//! | to be deleted | nodes that the cluster autoscaler is about to delete | Such a node does not become a target, unless the load balancer would have no target otherwise. A node that is already a target stays a target. |
//! | departing | with `departing-delay`, nodes that will stop soon | Such a node does not become a target. A node that is already a target is removed after the delay. At most half of the targets are left out. |
//! | limit | all nodes, when the type of the load balancer allows fewer targets | Present targets stay. The free places go first to nodes with ready pods, then to other nodes, and then to nodes that will stop soon. Equal nodes are taken in the order of their names. |
//! | exchange | with `prefer-nodes-with-pods`, nodes with ready pods that the limit leaves out | Such a node takes the place of a target that has run no pods for a minute. The minute is not required when the node has a ready pod of a Service of which no target has a ready pod. |

use crate::hetzner::load_balancers::model::balancer::TargetId;
use crate::provider::order;
use crate::provider::{Departure, LeftOutNode, LeftOutState, PodsOnNode, WhyKept};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node that the Services want as a target.
pub(crate) struct TargetCandidate {
    pub(crate) target: TargetId,
    pub(crate) name: String,
    /// Whether the node is a target of the load balancer now.
    pub(crate) is_present: bool,
    pub(crate) departure: Departure,
    /// Which Services have pods on the node. Only those Services are considered that ask for nodes with their pods as
    /// preferred targets.
    pub(crate) pods: PodsOnNode,
}

/// The limits and settings by which targets are chosen from the nodes that the Services want as targets.
pub(crate) struct ChoiceRules<'a> {
    /// The highest number of nodes that can be chosen. It is the limit of the load balancer's type minus the number of
    /// targets that are not chosen here, e.g. servers that somebody else has added.
    pub(crate) room: usize,
    /// How long a node that will stop soon stays a target. `None` when it stays a target like any other node.
    pub(crate) delay: Option<Duration>,
    /// Whether all targets of the load balancer are nodes that the Services want as targets. `false` means that it has
    /// other targets, too, e.g. a server that somebody else has added.
    pub(crate) is_alone: bool,
    /// The Services whose pods decide which nodes are preferred as targets, as a mask: each bit stands for a Service in
    /// [`PodNodes::services`](crate::provider::PodNodes::services). Zero when no Service has asked to prefer nodes with
    /// pods, or when it is not known where the pods run.
    pub(crate) services: u64,
    /// How many targets can be exchanged now. In an exchange, a target without pods is removed, and a node with pods
    /// becomes a target instead. An exchange that gives a Service its first target with a ready pod of this Service is
    /// not limited by this number.
    pub(crate) exchanges: usize,
    /// Returns the reason why a target must stay, or `None` when it can be removed. The arguments are the node of the
    /// target, the other targets that are removed at the same time, and whether the removal must wait while few calls
    /// are left under the API's rate limit.
    pub(crate) why_kept: &'a WhyKeptFn<'a>,
}

pub(crate) type WhyKeptFn<'a> =
    dyn Fn(&TargetCandidate, &BTreeSet<TargetId>, CanWait) -> Option<WhyKept> + 'a;

/// Whether the removal of a target can wait while few calls remain under the API's rate limit of the project. `No`
/// means that the removal makes room for a node with a ready pod of a Service, and that no present target has a ready
/// pod of this Service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CanWait {
    Yes,
    No,
}

/// The chosen targets, and what happens to the other nodes.
pub(crate) struct TargetChoice {
    /// The targets that the load balancer should have.
    pub(crate) targets: Vec<TargetId>,
    /// The machines that are not chosen as targets only because their nodes will stop soon.
    pub(crate) departed: BTreeSet<TargetId>,
    /// The targets that are removed because a node with pods needs their place on the load balancer. The value says
    /// whether the removal counts towards the greatest number of such removals in a minute.
    pub(crate) exchanged: BTreeMap<TargetId, bool>,
    pub(crate) left_out: Vec<LeftOutNode>,
}

impl TargetChoice {
    /// Returns the names of the nodes in the list `left_out` that have this state. The list has the nodes that are not
    /// targets, and the targets that this plan or a later one may remove. The state of each node says why.
    pub(crate) fn names(&self, state: LeftOutState) -> Vec<&str> {
        let such = self.left_out.iter().filter(|node| node.state == state);
        such.map(|node| node.node.as_str()).collect()
    }
}

/// Chooses which of the nodes in `candidates` are targets of the load balancer. The caller has sorted the nodes by
/// name.
pub(crate) fn choose(mut candidates: Vec<TargetCandidate>, rules: &ChoiceRules) -> TargetChoice {
    let mut left_out = Vec::new();
    let is_refused = |node: &TargetCandidate| !node.is_present && node.departure.is_to_be_deleted;
    if !(rules.is_alone && candidates.iter().all(is_refused)) {
        let refused = candidates.extract_if(.., |node| is_refused(node));
        left_out.extend(refused.map(|node| of(node.name, LeftOutState::ToBeDeleted)));
    }
    let is_departing =
        |node: &TargetCandidate| rules.delay.is_some() && node.departure.departed.is_some();
    let leaving: BTreeSet<TargetId> =
        candidates.iter().filter(|node| is_departing(node)).map(|node| node.target).collect();
    let (departed, states) = departing(&candidates, rules, &leaving);
    left_out.extend(states);
    candidates.retain(|node| !departed.contains(&node.target));
    order::sort_by_key(&mut candidates, |node| {
        let is_new = !node.is_present;
        (is_new, is_new && is_departing(node), is_new && node.pods.ready == 0)
    });
    let beyond = candidates.split_off(rules.room.min(candidates.len()));
    let mut exchange = Exchange {
        rules,
        leaving,
        chosen: candidates,
        beyond,
        is_departing: &is_departing,
        gone: Vec::new(),
    };
    exchange.make();
    let Exchange { chosen, beyond, gone, .. } = exchange;
    left_out.extend(beyond.into_iter().map(|node| of(node.name, LeftOutState::Limit)));
    let mut exchanged = BTreeMap::new();
    for (node, state, counts) in gone {
        if state == LeftOutState::Exchanged {
            exchanged.insert(node.0, counts);
        }
        left_out.push(of(node.1, state));
    }
    let targets = chosen.into_iter().map(|node| node.target).collect();
    TargetChoice { targets, departed, exchanged, left_out }
}

/// Returns the targets that are left out because their nodes will stop soon. Also returns, for each node that will stop
/// soon, whether its target is left out or why it stays. At most half of the targets are left out. Nodes that are not
/// targets yet are left out first, and then present targets, beginning with the node that was noticed first.
fn departing(
    candidates: &[TargetCandidate],
    rules: &ChoiceRules,
    leaving: &BTreeSet<TargetId>,
) -> (BTreeSet<TargetId>, Vec<LeftOutNode>) {
    let (mut departed, mut states) = (BTreeSet::new(), Vec::new());
    let Some(delay) = rules.delay else {
        return (departed, states);
    };
    let at_most = candidates.len().min(rules.room) / 2;
    let mut all: Vec<(Duration, &TargetCandidate)> =
        candidates.iter().filter_map(|node| Some((node.departure.departed?, node))).collect();
    order::sort_by_key(&mut all, |(since, node)| (node.is_present, Reverse(*since), &node.name));
    for (since, node) in all {
        let waits = delay.checked_sub(since).filter(|left| node.is_present && !left.is_zero());
        let kept = || (rules.why_kept)(node, leaving, CanWait::Yes).filter(|_| node.is_present);
        let state = match (waits, kept()) {
            (Some(_), _) if delay == Duration::MAX => LeftOutState::Kept(WhyKept::Unknown),
            (Some(left), _) => LeftOutState::Waits { seconds: left.as_secs_f64().ceil() as u64 },
            (None, Some(why)) => LeftOutState::Kept(why),
            (None, None) if departed.len() < at_most => {
                departed.insert(node.target);
                LeftOutState::Departing
            }
            (None, None) if node.is_present => LeftOutState::Kept(WhyKept::Half),
            // This node becomes a target although it will stop soon. At most half of the targets may be left out for
            // this reason, and that number is reached already.
            (None, None) => continue,
        };
        states.push(of(node.name.clone(), state));
    }
    (departed, states)
}

/// Decides which targets are removed because their nodes run no pods, and which nodes with ready pods become targets
/// instead. Only pods of Services that ask for this by the annotation or setting `prefer-nodes-with-pods` are
/// considered.
struct Exchange<'a> {
    rules: &'a ChoiceRules<'a>,
    /// The targets that this plan or a later plan removes. Either their nodes will stop soon, or their nodes run no
    /// pods and nodes with pods become targets instead.
    leaving: BTreeSet<TargetId>,
    chosen: Vec<TargetCandidate>,
    /// The nodes that are left out, because the load balancer can't have more targets.
    beyond: Vec<TargetCandidate>,
    is_departing: &'a dyn Fn(&TargetCandidate) -> bool,
    /// The present targets that run no pods although a node with pods needs a place. The state says that the target is
    /// removed, or why it stays. The last value is `true` when the target is removed and this counts towards the
    /// highest number of such removals in a minute.
    gone: Vec<((TargetId, String), LeftOutState, bool)>,
}

impl Exchange<'_> {
    fn make(&mut self) {
        let services = (0..u64::BITS).map(|place| 1 << place);
        for service in services.filter(|service| self.rules.services & service != 0) {
            if !self.chosen.iter().any(|node| node.pods.ready & service != 0) {
                self.exchange(service, CanWait::No);
            }
        }
        let mut exchanges = 0;
        while exchanges < self.rules.exchanges && self.exchange(self.rules.services, CanWait::Yes) {
            exchanges += 1;
        }
        self.note_rest();
    }

    /// Exchanges one target: a target that runs no pods is removed, and a node with a ready pod of one of the Services
    /// in `services` becomes a target instead. `services` is a mask, in which each bit stands for a Service. With
    /// [`CanWait::Yes`], only a target that has run no pods for at least a minute is removed. Returns `false` when no
    /// target can be removed, or no node can take its place.
    fn exchange(&mut self, services: u64, can_wait: CanWait) -> bool {
        let Some(come) = self.with_ready_pod(services).next() else {
            return false;
        };
        let may_go = |place: &usize| {
            let node = &self.chosen[*place];
            (can_wait == CanWait::No || node.pods.recent == 0)
                && (self.rules.why_kept)(node, &self.leaving, can_wait).is_none()
        };
        let Some(go) = self.without_pods().into_iter().find(may_go) else {
            return false;
        };
        let come = self.beyond.remove(come);
        let go = self.chosen.remove(go);
        self.chosen.push(come);
        self.leaving.insert(go.target);
        self.gone.push(((go.target, go.name), LeftOutState::Exchanged, can_wait == CanWait::Yes));
        true
    }

    /// Returns the positions in `beyond` of the nodes that run a ready pod of one of the Services in `services`, and
    /// that will not stop soon. `services` is a mask, in which each bit stands for a Service. `beyond` has the nodes
    /// that are left out because the load balancer can't have more targets.
    fn with_ready_pod(&self, services: u64) -> impl Iterator<Item = usize> {
        let is_ready = move |node: &TargetCandidate| node.pods.ready & services != 0;
        let all = self.beyond.iter().enumerate();
        all.filter(move |(_, node)| is_ready(node) && !(self.is_departing)(node))
            .map(|(place, _)| place)
    }

    /// Returns the positions in `chosen` of the present targets that run no pods, in the order in which they lose their
    /// places: first nodes that will stop soon, then nodes that have run no pods for a minute, then the others. Among
    /// equal nodes, the last by name comes first.
    fn without_pods(&self) -> Vec<usize> {
        let is_empty = |node: &TargetCandidate| node.is_present && node.pods.serving == 0;
        let all = self.chosen.iter().enumerate().filter(|(_, node)| is_empty(node));
        let mut places: Vec<usize> = all.map(|(place, _)| place).collect();
        order::sort_by_key(&mut places, |place| {
            let node = &self.chosen[*place];
            (!(self.is_departing)(node), node.pods.recent != 0, Reverse(*place))
        });
        places
    }

    /// Notes why a target keeps its place although it runs no pods and a node with a ready pod could have the place.
    /// This is noted for as many targets as there are such nodes.
    fn note_rest(&mut self) {
        let count = self.with_ready_pod(self.rules.services).count();
        for place in self.without_pods().into_iter().take(count) {
            let node = &self.chosen[place];
            let kept = (self.rules.why_kept)(node, &self.leaving, CanWait::Yes);
            let recent = (node.pods.recent != 0).then_some(WhyKept::Recent);
            let why = recent.or(kept).unwrap_or(WhyKept::Pace);
            let stays = ((node.target, node.name.clone()), LeftOutState::Stays(why), false);
            self.gone.push(stays);
        }
    }
}

fn of(node: String, state: LeftOutState) -> LeftOutNode {
    LeftOutNode { node, state }
}
