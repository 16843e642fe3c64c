//! Takes a Service off a load balancer that it does not use any more. When no other Service uses the load balancer, it
//! is deleted, or it is released, which means that it stays without an owner. Otherwise it stays for the other
//! Services.
//!
//! # What may delete a load balancer
//!
//! The functions [`removal`] and [`end_replaced`] return the write that deletes a load balancer. They have these callers:
//!
//! | caller | when it deletes the load balancer | what prevents the deletion, besides the conditions below |
//! |---|---|---|
//! | `BalancerSnapshot::plan_end` | the Service is deleted, or gets another type | two load balancers have the Service's UID in a label; the management of this load balancer has ended |
//! | [`leave_others`] | the Service moves to another load balancer | the plan has a problem; the new load balancer can't serve the Service yet; the status does not name the new load balancer yet |
//! | [`leave_unused`] | the Service can't have what it asks for, and has another load balancer that serves nothing | the status does not say which load balancer serves the Service; the Service asks for this one |
//! | `BalancerSnapshot::with_replacement` | it is one of the two load balancers of a replacement, and only the other one is needed from now on (`ownership/replacement.rs`) | the status of a Service has one of its addresses; the time for which both serve is not over; the other load balancer can't take over, which is checked again just before the write |
//! | `BalancerSnapshot::orphans`, which `controllers/service/orphans.rs` deletes | the load balancer belongs to no Service, and an operator or `--delete-orphaned-load-balancers` asks for it | a Service takes the load balancer over; something could not be read |
//!
//! For all callers, each of these conditions must be true:
//!
//! - The load balancer belongs to the Service or to nobody, and nothing requires that it stays (`ownership/judge.rs`).
//! - The load balancer is not protected.
//! - The UID of the cluster is known.
//! - Just before the write, the load balancer is read again. It has the same labels and no new port or target
//!   (`ownership/guard.rs`).
//! - The gate allows the write: the daemon still holds the Lease, and this is not a dry run.

use super::annotations::parser::AnnotationParser;
use super::change::{BalancerAction, BalancerChange, Purpose, boxed};
use super::checks::serves_foreign_node;
use super::desired::Desired;
use super::diff::status;
use super::model::balancer::TargetId;
use super::model::listener::Listener;
use super::ownership::context::{PlanContext, Project};
use super::ownership::facts::{
    foreign_targets, is_kept, is_of, is_released_by_another, is_served_by, is_used_by_others,
    target_of_others, tcp,
};
use super::ownership::group::{is_same_or_partner, was_before};
use super::ownership::guard::Guard;
use super::ownership::judge::{Stake, owned, stake, why_it_stays, why_whole_stays};
use super::ownership::labels::Labelled;
use super::ownership::removal::{after_management, without_service};
use super::ownership::replacement::{Pair, Side, Successor};
use crate::provider::{
    self, Claim, Cluster, Description, Finding, LoadBalancerPlan, PlanOutcome, Reason, Service,
    Then, WriteVerb,
};
use crate::text::shell_command;
use serde_json::{Value, json};

#[derive(Default)]
pub(super) struct Leaving {
    pub(super) changes: Vec<Box<dyn provider::Change>>,
    pub(super) claims: Vec<Claim>,
    /// Whether there is a load balancer that the Service must leave because it moves to another one. The Service owns
    /// the load balancer that it leaves, or some ports of it.
    pub(super) is_any: bool,
}

/// Returns the changes that take the Service off all its load balancers except `there`, the load balancer to which the
/// Service moves. `there` is `None` when this load balancer is not created yet.
pub(super) fn leave_others(
    context: &PlanContext,
    there: Option<Labelled>,
    parser: &mut AnnotationParser,
) -> Leaving {
    let is_used = |balancer| there.is_some_and(|there| is_same_or_partner(there, balancer));
    let all = owned(context.balancers, context.service, context.cluster);
    let mut leaving = Leaving::default();
    for balancer in all.filter(|balancer| !is_used(*balancer)) {
        let (changes, finding) = leave(context, balancer);
        leaving.claims.push(Claim::Id(balancer.id));
        finding.into_iter().for_each(|finding| parser.finding(finding));
        if let Stake::Copy(_) = stake(balancer, context.service, context.cluster) {
            continue;
        }
        leaving.changes.extend(changes);
        leaving.is_any = true;
        let moves = format!(
            "the Service moves from load balancer {} to {}, so the addresses of the Service change. The old load \
             balancer serves the Service until the status of the Service has the new addresses. Change the DNS records \
             as soon as the status has the new addresses",
            balancer.shown(),
            there.map_or("a new one".to_owned(), |balancer| balancer.shown())
        );
        parser.warning(Reason::LoadBalancerChanges, moves);
    }
    leaving
}

/// Adds changes to the plan of a Service that can't have the load balancer or ports that it asks for. The changes
/// remove the Service from each of its load balancers that it does not use.
///
/// A load balancer is used when the Service asks for it, or when the Service's status has an address of it. So when the
/// status is empty, only the load balancers that the Service asks for are used. When the status has only a host name,
/// it is not known which load balancer serves the Service, so none is treated as unused.
///
/// `there` is the load balancer that the Service asks for. If `plan` was refused, i.e. has no changes because of a
/// problem, and changes are added here, it becomes a plan with only these changes. The problem is still reported to the
/// user, as one of the findings of the plan.
pub(super) fn leave_unused(
    mut plan: LoadBalancerPlan,
    context: &PlanContext,
    desired: &Desired,
    there: Option<Labelled>,
) -> LoadBalancerPlan {
    if plan.found.is_none() {
        return plan;
    }
    let mut leaves = Vec::new();
    for balancer in unused(context, desired, there) {
        let (changes, finding) = leave(context, balancer);
        plan.claims.push(Claim::Id(balancer.id));
        plan.findings.extend(finding);
        leaves.extend(changes);
    }
    with_leaves(plan, leaves)
}

/// Removes ports from the load balancer `asked`. The Service asks for this load balancer and has begun to move there,
/// but it can't have it now and stays on its present load balancer. If the Service has ports on `asked` that it does
/// not ask for any more, changes that remove these ports are added to its plan, because their node ports may belong to
/// other Services by now. Its other ports on `asked` stay, so that the move can continue.
///
/// When `asked` is external (made by somebody else), and none of the Service's ports would stay there, the Service is
/// taken off `asked`. Otherwise the nodes of this cluster would stay targets there, only for the traffic of other
/// people's ports.
pub(super) fn leave_unwanted_ports(
    mut plan: LoadBalancerPlan,
    context: &PlanContext,
    asked: Option<Labelled>,
) -> LoadBalancerPlan {
    let (service, cluster) = (context.service, context.cluster);
    let is_leavable = |balancer: &Labelled| {
        balancer.ownership.carries(service)
            && !is_served_by(service, *balancer)
            && !matches!(stake(*balancer, service, cluster), Stake::Copy(_))
    };
    let Some(asked) = asked.filter(|asked| plan.found.is_some() && is_leavable(asked)) else {
        return plan;
    };
    let labels = asked.ownership.ports.iter().filter(|(_, uid)| **uid == service.uid);
    let is_wanted = |number: u16| tcp(service).any(|(own, _)| own == number);
    let (wanted, unwanted): (Vec<u16>, Vec<u16>) =
        labels.map(|(number, _)| *number).partition(|number| is_wanted(*number));
    let leaves = if wanted.is_empty() && asked.ownership.external.is_some() {
        take_off(context, asked, NO_PORT_THERE)
    } else {
        let taken_off = TakenOff {
            context,
            balancer: asked,
            is_last: false,
            is_replaced: false,
            is_kept: false,
        };
        let ports = asked.balancer.services.iter();
        let parts = ports.filter(|port| unwanted.contains(&port.listen_port));
        boxed(parts.map(|port| taken_off.port(port)).collect())
    };
    plan.claims.extend((!leaves.is_empty()).then_some(Claim::Id(asked.id)));
    with_leaves(plan, leaves)
}

/// The text that says why a Service leaves an external load balancer on which it can have no port, and why ccm does not
/// delete this load balancer.
pub(super) const NO_PORT_THERE: &str = "it is external. The Service leaves this load balancer, because none of its ports can be used there";

/// Adds `leaves` to a plan, the changes by which the Service leaves other load balancers. They are made after all other
/// changes of the plan. A plan that was refused because of a problem has no other changes.
fn with_leaves(
    mut plan: LoadBalancerPlan,
    leaves: Vec<Box<dyn provider::Change>>,
) -> LoadBalancerPlan {
    if leaves.is_empty() {
        return plan;
    }
    plan.carries_uid = true;
    plan.outcome = match plan.outcome {
        PlanOutcome::Refused { why, .. } => {
            plan.findings.push(why);
            PlanOutcome::Change { changes: Vec::new(), then: Then::Leave(leaves) }
        }
        PlanOutcome::Change { changes, then } => {
            PlanOutcome::Change { changes, then: then.and_leave(leaves) }
        }
        other => other,
    };
    plan
}

fn unused<'a>(
    context: &PlanContext<'a>,
    desired: &Desired,
    there: Option<Labelled>,
) -> Vec<Labelled<'a>> {
    let (service, balancers) = (context.service, context.balancers);
    let all = || owned(balancers, service, context.cluster);
    let serves_foreign = |balancer| serves_foreign_node(context, balancer).is_some();
    let is_named = all().any(|balancer| is_served_by(service, balancer));
    if !(is_named || service.addresses.is_empty()) || all().any(serves_foreign) {
        return Vec::new();
    }
    // Whether the Service's status would have an address of this load balancer if the load balancer served the Service.
    // Annotations can leave all its addresses out of the status. A status without addresses then does not show that the
    // load balancer is unused.
    let would_be_named = |balancer: Labelled| !status::ingress(&balancer, desired).is_empty();
    let is_unused = |balancer: &Labelled| {
        Some(balancer.id) != there.map(|there| there.id)
            && !is_served_by(service, *balancer)
            && (is_named || would_be_named(*balancer))
            && !context.group.may_be_asked_for(*balancer)
    };
    all().filter(is_unused).collect()
}

/// Returns the changes that delete a load balancer. When the load balancer must stay, returns the changes that take the
/// Service off the load balancer instead. The ports of other Services stay. A finding without changes is returned in
/// two cases: the load balancer would be deleted but has delete protection, or its label names another cluster.
pub(super) fn leave(
    context: &PlanContext,
    balancer: Labelled,
) -> (Vec<Box<dyn provider::Change>>, Option<Finding>) {
    if let Stake::Copy(uid) = stake(balancer, context.service, context.cluster) {
        return (Vec::new(), Some(left_to_its_cluster(balancer, uid)));
    }
    match why_it_stays(balancer, context.service, context.cluster) {
        None if balancer.protection.delete => {
            let why = format!(
                "load balancer {} is not needed any more, but it has delete protection, so ccm does not delete it. The \
                 load balancer costs money until it is deleted",
                balancer.shown()
            );
            let command = "hcloud load-balancer disable-protection";
            let fix = shell_command(command, &[&balancer.id, &"delete"]);
            let fix = format!("to have the load balancer deleted, remove its protection: {fix}");
            let finding = Finding::warning(Reason::LoadBalancerProtected, why).with_fix(fix);
            (Vec::new(), Some(finding.by_provider()))
        }
        None => (vec![removal(context.project, balancer, Purpose::Usual)], None),
        Some(why) => (take_off(context, balancer, &why), None),
    }
}

/// Returns the change that deletes the load balancer. Just before this write, the load balancer is read again. It is
/// deleted only when it is not protected, has no new port or target, and has the same labels as when the plan was made.
pub(super) fn removal(
    project: &Project,
    balancer: Labelled,
    purpose: Purpose,
) -> Box<dyn provider::Change> {
    Box::new(deletion(project, balancer, purpose))
}

fn deletion(project: &Project, balancer: Labelled, purpose: Purpose) -> BalancerChange {
    let name = format!("load balancer {}", balancer.shown());
    let deleted = Description::new(WriteVerb::DELETE, name, "");
    let id = Some(balancer.id);
    let mut change = BalancerChange::new(project, BalancerAction::Delete, id, Value::Null, deleted);
    change.purpose = purpose;
    change.guarded(Guard::of(balancer.balancer))
}

/// Returns the changes that take the Service off a load balancer that stays. The Service's ports and targets are
/// removed first, and its labels last. So after a crash in between, the labels still show what must be removed. Targets
/// that are not nodes of this cluster stay, and so do the ports, IPs and label selectors that others added.
pub(super) fn take_off(
    context: &PlanContext,
    balancer: Labelled,
    why: &str,
) -> Vec<Box<dyn provider::Change>> {
    let (service, cluster) = (context.service, context.cluster);
    let is_last = !is_used_by_others(balancer, &service.uid, cluster)
        && !is_released_by_another(balancer, &service.uid);
    let is_external = balancer.ownership.external.is_some();
    let taken_off = TakenOff {
        context,
        balancer,
        is_last,
        is_replaced: false,
        is_kept: is_last && !is_external && is_kept(balancer, service),
    };
    boxed(taken_off.parts(why))
}

/// Returns the reason why this load balancer, one of the two of a replacement, is not deleted at the end of the
/// replacement, but only released. `None` when it is deleted.
pub(super) fn why_replaced_stays(
    balancer: Labelled,
    side: Side,
    service: &Service,
    cluster: &Cluster,
) -> Option<String> {
    let stays = match side {
        Side::Old => why_whole_stays(balancer, service, cluster),
        Side::New => target_of_others(balancer, cluster),
    };
    let protected = || balancer.protection.delete.then(|| "it has delete protection".to_owned());
    stays.or_else(protected)
}

/// Returns the changes that delete one of the two load balancers of a replacement, because all Services use the other
/// load balancer. When it must not be deleted, returns the changes that remove all its ports, its targets and the
/// labels of this program.
pub(super) fn end_replaced(
    context: &PlanContext,
    pair: &Pair,
    side: Side,
) -> Vec<Box<dyn provider::Change>> {
    let (service, balancer) = (context.service, pair.get(side));
    let mut changes = match why_replaced_stays(balancer, side, service, context.cluster) {
        None => vec![deletion(context.project, balancer, Purpose::Usual)],
        Some(why) => {
            let is_kept = side == Side::Old && is_kept(balancer, service);
            TakenOff { context, balancer, is_last: true, is_replaced: true, is_kept }.parts(&why)
        }
    };
    for change in &mut changes {
        change.successor = Some(Box::new(Successor::of(pair, side)));
    }
    boxed(changes)
}

/// A load balancer that a Service does not use any more, but that is not deleted. The ports and labels of the Service
/// are removed from it. When no other Service uses it, the nodes of this cluster are removed from its targets, too.
struct TakenOff<'a> {
    context: &'a PlanContext<'a>,
    balancer: Labelled<'a>,
    /// Whether no other Service uses the load balancer. A Service whose management was ended (`ccm lb release`) still
    /// uses the load balancer, because its ports stay.
    is_last: bool,
    /// Whether the load balancer is one of the two of a replacement, and only the other one is used from now on. All
    /// its ports are then removed.
    is_replaced: bool,
    /// Whether the load balancer stays in the project without ports, so that a later Service can use it. This is so
    /// when the annotation `keep` of the Service asks for it.
    is_kept: bool,
}

impl TakenOff<'_> {
    fn parts(&self, why: &str) -> Vec<BalancerChange> {
        let mut parts = self.ports();
        parts.extend(self.targets());
        parts.extend(self.labels(why));
        parts
    }

    fn part(
        &self,
        action: BalancerAction,
        body: Value,
        description: Description,
    ) -> BalancerChange {
        let (project, id) = (self.context.project, Some(self.balancer.id));
        let mut part = BalancerChange::new(project, action, id, body, description);
        part.purpose = Purpose::Release;
        part
    }

    /// Returns the changes that remove the ports of the Service. All ports of the load balancer are removed at the end
    /// of a replacement. They are also removed when the load balancer is kept for a later Service and this program
    /// created it, because a remaining port would prevent the later Service from taking it over.
    fn ports(&self) -> Vec<BalancerChange> {
        let (service, ownership) = (self.context.service, self.balancer.ownership);
        let takes_all = self.is_replaced || self.is_kept && ownership.created.is_some();
        let is_alone = ownership.service_uid.as_ref() == Some(&service.uid);
        let is_own = |port: &&Listener| {
            let number = port.listen_port;
            let has_label = ownership.ports.contains_key(&number);
            let has_port = || tcp(service).any(|(own, _)| own == number);
            takes_all
                || is_of(service, self.balancer, port, self.context.cluster)
                || (is_alone && !has_label && has_port())
        };
        let removed = self.balancer.balancer.services.iter().filter(is_own);
        removed.map(|port| self.port(port)).collect()
    }

    /// Returns the change that removes this port.
    fn port(&self, port: &Listener) -> BalancerChange {
        let name = format!("port {}", port.listen_port);
        let removed = Description::new(WriteVerb::REMOVE, name, "");
        let body = json!({ "listen_port": port.listen_port });
        self.part(BalancerAction::DeleteService, body, removed)
    }

    /// Returns the changes that remove the nodes of this cluster from the targets of the load balancer that the Service
    /// leaves. The list is empty while another Service uses the load balancer.
    fn targets(&self) -> Vec<BalancerChange> {
        let (balancer, cluster) = (self.balancer, self.context.cluster);
        let is_external = balancer.ownership.external.is_some();
        let stays = |target| is_external && was_before(balancer, target, cluster);
        let targets = balancer.single_targets().map(|(target, _)| target);
        let removed =
            targets.filter(|target| self.is_last && target.is_proven(cluster) && !stays(*target));
        let removal = |target: TargetId| {
            let name = format!("target {}", target.shown(cluster));
            let removed = Description::new(WriteVerb::REMOVE, name, "");
            let mut removal = self.part(BalancerAction::RemoveTarget, Value::Null, removed);
            removal.request.target = Some(target.in_request(None));
            removal
        };
        removed.map(removal).collect()
    }

    /// Returns the change that removes the Service from the labels of the load balancer. `None` when no label must
    /// change.
    fn labels(&self, why: &str) -> Option<BalancerChange> {
        let (balancer, cluster) = (self.balancer, self.context.cluster);
        let mut to = without_service(balancer, self.context.service, cluster, self.is_last);
        if self.is_kept {
            to.keep = Some(self.context.group.made_for());
            to.cluster_uid = Some(cluster.uid.clone());
        }
        let shown = balancer.shown();
        let (verb, detail, event) = if self.is_last && balancer.ownership.external.is_none() {
            let event = format!(
                "Released load balancer {shown}: ccm removed the ports, targets and labels of this Service, but did \
                 not delete the load balancer, because {why}. The load balancer costs money until you delete it"
            );
            (
                WriteVerb::RELEASE,
                format!("; ccm does not delete the load balancer, because {why}"),
                event,
            )
        } else {
            let event = format!(
                "The Service does not use load balancer {shown} any more. ccm removed the ports of the Service there, \
                 but keeps the load balancer, because {why}"
            );
            (WriteVerb::LEAVE, format!("; the load balancer stays, because {why}"), event)
        };
        let foreign = foreign_targets(balancer, cluster);
        let guard = Guard::to(Some(balancer), &to).because_of(foreign);
        let has_labels = self.is_kept || guard.changes_labels();
        let release = Description::new(verb, format!("load balancer {shown}"), detail);
        let mut last = self.part(BalancerAction::Edit, Value::Null, release).guarded(guard);
        last.event = Some(Finding::info(Reason::LoadBalancerReleased, event).by_provider());
        has_labels.then_some(last)
    }
}

/// Returns the change after which this program does not manage the load balancer for the Service any more. A label
/// records this. The ports, targets and addresses stay as they are.
pub(super) fn end_management(
    project: &Project,
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
) -> Box<dyn provider::Change> {
    let to = after_management(balancer, service, cluster);
    let shown = balancer.shown();
    let name = format!("load balancer {shown}");
    let stays = "; ccm does not manage the load balancer for this Service any more. The load balancer keeps its ports, \
                 targets and addresses, and costs money until it is deleted";
    let ends = Description::new(WriteVerb::RELEASE, name, stays);
    let id = Some(balancer.id);
    let mut change = BalancerChange::new(project, BalancerAction::Edit, id, Value::Null, ends);
    change.purpose = Purpose::Release;
    let event = format!(
        "Management of load balancer {shown} ended: its ports, targets and addresses stay unchanged"
    );
    change.event = Some(Finding::info(Reason::LoadBalancerReleased, event).by_provider());
    Box::new(change.guarded(Guard::to(Some(balancer), &to)))
}

/// Returns a finding which says that the load balancer is not changed, because its label names another cluster. A
/// Service of that cluster has the same UID as a Service of this cluster, because one of the two clusters is a copy of
/// the other.
pub(super) fn left_to_its_cluster(balancer: Labelled, uid: &str) -> Finding {
    let message = format!(
        "load balancer {} has this Service's UID in a label, but another label names another cluster ({uid}). The \
         targets do not show that the load balancer belongs to this cluster, so ccm does not change it. If no cluster \
         needs the load balancer, delete it yourself",
        balancer.shown()
    );
    Finding::warning(Reason::LoadBalancerNotAdopted, message).by_provider()
}
