//! Plans and makes the change of the zone labels of initialised nodes, for the command `ccm node relabel`. The daemon
//! never makes this change.
//!
//! After the change, a PersistentVolume could be unusable on its node: the volume's node affinity can require the
//! previous label, and this affinity can't be changed. So nothing is written while such a volume exists, or while it is
//! not known whether one exists.

use super::plan::{NodePlan, ServerMatch, describe};
use super::zone::ZONE_KEYS;
use crate::cache::Apis;
use crate::controllers::node_writes::{AppliedPlan, Values, apply};
use crate::controllers::parallel::in_parallel;
use crate::controllers::{NodeChange, Progress, Report};
use crate::kube::{KubeClient, KubeNode, NAMES_AT_MOST, PlacedKind, PlacedObject};
use crate::provider::{Finding, Reason, TopologyLabel};
use crate::text;

/// The plans of `ccm node relabel`, and the objects that depend on the labels that the plans change.
pub struct Relabelling {
    pub plans: Vec<NodePlan>,
    pub dependents: Vec<Dependent>,
}

/// An object that the change of zone labels affects. Its rules, e.g. a node affinity, allow one of the nodes now, but
/// do not allow this node any more after the change.
pub struct Dependent {
    /// The object, e.g. `pod/shop/db-0`. When the entry stands for all objects of a kind, because there are too many to
    /// list or because they could not be read, this is the kind, e.g. `pods`.
    pub object: String,
    /// What the planned change of the node's labels means for this object, as text for users.
    pub why: String,
    /// Whether the plans must not be carried out because of this object.
    pub is_obstacle: bool,
}

impl Relabelling {
    /// Whether the zone label of at least one node must be changed, and nothing forbids the change. It is forbidden
    /// when a PersistentVolume depends on the present label, when the objects that may depend on it could not be read,
    /// or when the API did not say on which server a node runs.
    pub fn may_be_written(&self) -> bool {
        let is_unclear = |plan: &NodePlan| plan.server == ServerMatch::Unclear;
        self.plans.iter().any(NodePlan::has_writes)
            && !self.plans.iter().any(is_unclear)
            && !self.dependents.iter().any(|dependent| dependent.is_obstacle)
    }

    /// Turns the plans of a sync into the plans of `ccm node relabel`, and reads which objects depend on the
    /// present labels.
    pub fn of(kube: &KubeClient, plans: Vec<NodePlan>) -> Relabelling {
        let plans: Vec<NodePlan> = plans.into_iter().map(relabelled).collect();
        let dependents = dependents(kube, &plans);
        Relabelling { plans, dependents }
    }

    /// Writes the zone labels that the plans contain, for several nodes at a time. Writes nothing unless
    /// [`Relabelling::may_be_written`] is true. After the first failure, no write to a further node is begun. Returns
    /// the plans of the nodes for which the writes were begun.
    pub fn apply(&self, apis: &Apis, controller: &'static str) -> (Report, Vec<NodePlan>) {
        let plans = if self.may_be_written() { &self.plans[..] } else { &[] };
        let write = |plan: &NodePlan| {
            apply(apis, controller, plan.clone(), false, |node| with_version_of(plan, node))
        };
        let is_failed = |applied: &AppliedPlan<_>| !applied.is_made();
        let begun = in_parallel(plans, apis.concurrent_nodes, write, is_failed);
        let mut report = Report::default();
        for plan in &plans[begun.len()..] {
            report.note(plan.name(), Progress::Unreached);
        }
        let note = |(applied, plan): (AppliedPlan<_>, &NodePlan)| {
            applied.note_in(&mut report, plan.name(), None);
            applied.plan
        };
        let plans = begun.into_iter().zip(plans).filter_map(note).collect();
        (report, plans)
    }
}

/// Turns the plan of a sync into the plan of `ccm node relabel`, which changes only the zone labels. When the sync's
/// plan does not know which zone labels the node should have, its messages are kept, because they say why. Otherwise
/// the only message in the result is about the zone labels.
fn relabelled(mut plan: NodePlan) -> NodePlan {
    plan.changes.clear();
    plan.address_fields.clear();
    plan.other_fields.clear();
    let obstacle = plan.obstacle.take();
    let Some(zone) = plan.zone.clone() else {
        plan.findings.extend(obstacle);
        return plan;
    };
    let is_to_change = zone.is_to_change();
    let stays = zone.stays.map(|why| Finding::warning(Reason::ZoneLabelDiffers, why));
    plan.findings = stays.into_iter().collect();
    if is_to_change {
        let wanted = zone.fields.iter().map(|field| field.want.clone());
        plan.changes.push(NodeChange::Update {
            labels: ZONE_KEYS.map(str::to_owned).into_iter().zip(wanted).collect(),
            annotations: Values::new(),
            provider_id: None,
            taints: None,
            description: describe(&zone.fields),
        });
        plan.other_fields = zone.fields.into();
    }
    plan
}

/// Returns the plan for the version of the node that exists now, after another program has changed the node. Returns an
/// error when a label of the node has changed: the search for pods and volumes that depend on the node's labels used
/// the previous labels, so its result may be wrong. Also returns an error when the node is being deleted.
fn with_version_of(plan: &NodePlan, node: &KubeNode) -> Result<NodePlan, &'static str> {
    let (before, now) = (&plan.node.metadata, &node.metadata);
    let is_same = before.labels == now.labels && now.deletion_timestamp.is_none();
    let plan = || NodePlan { version: now.resource_version.clone(), ..plan.clone() };
    is_same.then(plan).ok_or("the node was changed after the plan was made; repeat the command")
}

/// The kinds of objects that can depend on the zone labels of nodes, and are read before `ccm node relabel` changes
/// these labels. Each row has the kind, the word for an object of this kind, whether such an object forbids the change,
/// the rules in such an object that can name a label, and what the change means for the object.
#[rustfmt::skip] // A row has the kind, the word and the answer, and then two texts in a line each.
const READ: [(PlacedKind, &str, bool, &str, &str); 3] = [
    (PlacedKind::VOLUMES, "persistentvolume", true,
        "The node affinity or zone label of the volume",
        "After the change, no pod on a relabelled node could use the volume, so this command relabels no \
         node. To relabel only the nodes without such a volume, name these nodes in the command"),
    (PlacedKind::DAEMON_SETS, "daemonset", false,
        "The node selector or node affinity of the DaemonSet",
        "After the change, its pods on relabelled nodes are deleted at once. To keep them, change the DaemonSet first"),
    (PlacedKind::PODS, "pod", false,
        "The node selector or node affinity of the pod",
        "After the change, a running pod continues to run, but it can't be scheduled to a relabelled node again. To \
         keep this possible, change the object that creates the pod first"),
];

/// The end of the message about a kind of objects (volumes, DaemonSets or pods) that could not be read. It says that
/// nothing is written, and what the user can do.
const UNREAD: &str = "ccm changes no zone label. Use an account that may list all persistentvolumes, daemonsets and \
                      pods";

fn dependents(kube: &KubeClient, plans: &[NodePlan]) -> Vec<Dependent> {
    let planned: Vec<&NodePlan> = plans.iter().filter(|plan| plan.has_writes()).collect();
    let mut all = Vec::new();
    for (kind, word, is_obstacle, rules, effect) in READ.iter().filter(|_| !planned.is_empty()) {
        let affected = |object: &PlacedObject| {
            let affected = planned.iter().filter(|plan| depends_on(object, plan));
            let affected: Vec<String> = affected.map(|plan| zone_change(plan)).collect();
            (!affected.is_empty()).then(|| text::some_of(&affected))
        };
        let mut add = |object: String, why: String, is_obstacle| {
            all.push(Dependent { object, why, is_obstacle });
        };
        match kube.placed(*kind, affected) {
            Ok((found, count)) => {
                for (name, nodes) in found {
                    let why = format!(
                        "this command would change the zone label ({}) of {nodes}. {rules} requires the present \
                         value of this label. {effect}",
                        TopologyLabel::Zone.stable_key()
                    );
                    add(format!("{word}/{name}"), why, *is_obstacle);
                }
                if count > NAMES_AT_MOST {
                    let why = format!(
                        "{count} objects of this kind depend on the present zone labels, and {NAMES_AT_MOST} of them \
                         are listed"
                    );
                    add(format!("{word}s"), why, *is_obstacle);
                }
            }
            Err(error) => add(format!("{word}s"), format!("{error}. {UNREAD}"), true),
        }
    }
    all
}

/// Returns the name of the plan's node, and the values of its zone label before and after the change, for messages.
fn zone_change(plan: &NodePlan) -> String {
    let name = plan.node.name();
    let changed = plan.other_fields.iter().find(|field| field.have != field.want);
    let value =
        |value: Option<&String>| value.map_or("none".to_owned(), |value| format!("{value:?}"));
    let (have, want) = changed.map_or((None, None), |it| (it.have.as_ref(), it.want.as_ref()));
    format!("{name} from {} to {}", value(have), value(want))
}

/// Whether the object's rules, e.g. a node affinity, allow the node with its present labels, and would not allow it
/// with the zone labels that the plan gives it.
fn depends_on(object: &PlacedObject, plan: &NodePlan) -> bool {
    let now = |key: &str| plan.node.metadata.labels.get(key);
    let wanted = plan.other_fields.first().and_then(|field| field.want.as_deref());
    let then = |key: &str| if ZONE_KEYS.contains(&key) { wanted } else { now(key) };
    let name = plan.node.name();
    object.allows(name, now) && !object.allows(name, then)
}
