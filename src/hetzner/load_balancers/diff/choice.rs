//! Chooses the targets of a load balancer out of the nodes that the Services want as targets.
//!
//! | rule | nodes | effect |
//! |---|---|---|
//! | to be deleted | nodes that the cluster autoscaler is about to delete | such a node does not become a target; where it is a target, it stays one. Exception: the load balancer would have no target at all. |
//! | departing | with `departing-delay`, nodes that will stop soon | such a node does not become a target; where it is a target, it is removed after the delay. At most half of the targets are left out. |
//! | limit | all nodes, when the type of the load balancer allows fewer targets | present targets come first, then names decide; departing nodes come last |

use crate::hetzner::load_balancers::model::balancer::TargetId;
use crate::provider::{Departure, LeftOutNode, LeftOutState, WhyKept};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// A node that the Services want as a target.
pub(crate) struct TargetCandidate {
    pub(crate) target: TargetId,
    pub(crate) name: String,
    /// Whether the load balancer has the target now.
    pub(crate) is_present: bool,
    pub(crate) departure: Departure,
    /// A reason why the target must stay although its node departs, e.g. that too few other targets are healthy. `None`
    /// when there is no such reason. The rule that at most half of the targets are left out is checked later.
    pub(crate) kept: Option<WhyKept>,
}

/// The chosen targets, and what happens to the other nodes.
pub(crate) struct TargetChoice {
    /// The targets that the load balancer should have.
    pub(crate) targets: Vec<TargetId>,
    /// The targets that are left out only because their nodes depart.
    pub(crate) departed: BTreeSet<TargetId>,
    pub(crate) left_out: Vec<LeftOutNode>,
}

impl TargetChoice {
    /// Returns the names of the nodes in `left_out` that have this state.
    pub(crate) fn names(&self, state: LeftOutState) -> Vec<&str> {
        let such = self.left_out.iter().filter(|node| node.state == state);
        such.map(|node| node.node.as_str()).collect()
    }
}

/// Chooses at most `room` targets. `delay` is how long a departing node stays a target, or `None` when departing
/// nodes stay. The candidates are sorted by name. `is_alone` means that the load balancer has no other targets.
pub(crate) fn choose(
    mut candidates: Vec<TargetCandidate>,
    room: usize,
    delay: Option<Duration>,
    is_alone: bool,
) -> TargetChoice {
    let mut left_out = Vec::new();
    let is_refused = |node: &TargetCandidate| !node.is_present && node.departure.is_to_be_deleted;
    if !(is_alone && candidates.iter().all(is_refused)) {
        let refused = candidates.extract_if(.., |node| is_refused(node));
        left_out.extend(refused.map(|node| of(node.name, LeftOutState::ToBeDeleted)));
    }
    let at_most = candidates.len().min(room) / 2;
    let (departed, states) = departing(&candidates, delay, at_most);
    left_out.extend(states);
    let is_departing =
        |node: &TargetCandidate| delay.is_some() && node.departure.departed.is_some();
    candidates.retain(|node| !departed.contains(&node.target));
    candidates.sort_by_key(|node| (!node.is_present, !node.is_present && is_departing(node)));
    let beyond = candidates.split_off(room.min(candidates.len()));
    left_out.extend(beyond.into_iter().map(|node| of(node.name, LeftOutState::Limit)));
    let targets = candidates.into_iter().map(|node| node.target).collect();
    TargetChoice { targets, departed, left_out }
}

/// Returns the targets that are left out because their nodes depart, and the state of each departing node. At most
/// `at_most` targets are left out: first the nodes that are not targets yet, and then the nodes that have been
/// departing longest.
fn departing(
    candidates: &[TargetCandidate],
    delay: Option<Duration>,
    at_most: usize,
) -> (BTreeSet<TargetId>, Vec<LeftOutNode>) {
    let (mut departed, mut states) = (BTreeSet::new(), Vec::new());
    let Some(delay) = delay else {
        return (departed, states);
    };
    let mut all: Vec<(Duration, &TargetCandidate)> =
        candidates.iter().filter_map(|node| Some((node.departure.departed?, node))).collect();
    all.sort_by_key(|(since, node)| (node.is_present, Reverse(*since), &node.name));
    for (since, node) in all {
        let waits = delay.checked_sub(since).filter(|left| node.is_present && !left.is_zero());
        let state = match (waits, node.kept.filter(|_| node.is_present)) {
            (Some(left), _) => LeftOutState::Waits { seconds: left.as_secs_f64().ceil() as u64 },
            (None, Some(why)) => LeftOutState::Kept(why),
            (None, None) if departed.len() < at_most => {
                departed.insert(node.target);
                LeftOutState::Departing
            }
            (None, None) if node.is_present => LeftOutState::Kept(WhyKept::Half),
            // At most half of the targets are left out, and so many are left out already. This node therefore becomes a
            // target, although it departs.
            (None, None) => continue,
        };
        states.push(of(node.name.clone(), state));
    }
    (departed, states)
}

fn of(node: String, state: LeftOutState) -> LeftOutNode {
    LeftOutNode { node, state }
}
