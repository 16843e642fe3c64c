//! Makes the plan for the load balancer of one Service. The first stage finds the load balancer and decides which ports
//! the Service gets there. The second stage compares the load balancer with what the Service asks for. The last stage
//! decides what is changed, what happens after the changes, and what is reported to users.

use super::annotations as a;
use super::annotations::parser::AnnotationParser;
use super::change::{BalancerAction, BalancerChange, boxed};
use super::checks::{check_services, keep_unattached, report_unknown};
use super::desired::uploads::shown;
use super::diff::{Diff, Differences, primary_ips, status, subnets};
use super::leave::{
    Leaving, NO_PORT_THERE, end_management, leave, leave_others, leave_unused,
    leave_unwanted_ports, left_to_its_cluster, take_off,
};
use super::ownership::context::{BalancerSnapshot, PlanContext};
use super::ownership::find::{FoundBalancer, Unfound, assign, by_label, rests_on_owners};
use super::ownership::guard::Guard;
use super::ownership::judge::{Stake, owned, stake};
use super::ownership::labels::Labelled;
use super::ownership::removal::why_not_released;
use super::settle::{Settled, Unsettled};
use super::sizes::TypeChoice;
use super::type_choice::type_choice;
use crate::provider::{
    self, Balancer, Claim, Cluster, Finding, LoadBalancerPlan, PlanOutcome, Reason, Service,
    ServiceInput, Then,
};
use crate::text::shell_command;
use serde_json::Value;

impl BalancerSnapshot {
    /// Returns the plan that creates the load balancer of the Service, or changes it until it is as the Service and its
    /// annotations ask. When the Service can't have the load balancer that it asks for, the plan is about its present
    /// one.
    pub(super) fn plan_service(&self, of: ServiceInput) -> LoadBalancerPlan {
        if let Some(balancer) = self.balancers().released(&of.service.uid).first() {
            return released(*balancer, of);
        }
        let (asked, found) = self.settle(of, None);
        let Err(Unsettled::Stays(stays)) = &found else {
            let replacing = asked.context.replacing;
            return self.with_replacement(asked.bring_in_order(found), replacing, of);
        };
        let (settled, found_meanwhile) = self.settle(of, Some(stays));
        let mut plan = settled.bring_in_order(found_meanwhile);
        // The first attempt to make a plan, `asked`, has shown that the Service can't have the load balancer or ports
        // that it asks for, because of other Services. This plan for the present load balancer depends on that result.
        // So when `asked` needs the list of Services to be read again, this plan needs it, too.
        plan.needs.services |= asked.needs.services;
        let plan = leave_unwanted_ports(plan, &asked.context, stays.asked);
        leave_unused(plan, &asked.context, &asked.desired, stays.asked)
    }

    /// Returns the plan for a Service that was deleted or has another type now. The plan deletes its load balancer, or
    /// takes the Service off it.
    pub(super) fn plan_end(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan {
        let balancers = self.balancers();
        let (mut plan, context) = self.end(service, cluster);
        if let Err(why) = by_label(balancers, service, cluster) {
            plan.needs.services = true;
            return plan.refuse(Finding::warning(Reason::DeleteLoadBalancerFailed, why));
        }
        let mut all = Vec::new();
        let uid = Some(&service.uid);
        let is_managed = |balancer: &Labelled| balancer.ownership.released.as_ref() != uid;
        let mut leaves: Vec<_> = owned(balancers, service, cluster).filter(is_managed).collect();
        // A Service that leaves during a replacement has two load balancers. The new one is removed first, and then the
        // old one that it was to replace.
        leaves.sort_by_key(|balancer| balancer.ownership.replacement.replaces.is_none());
        for balancer in leaves {
            include(&mut plan, balancer, cluster);
            let ownership = balancer.ownership;
            // The Service leaves an external load balancer (one that somebody else made). When a label of the load
            // balancer has the Service's UID, the plan also empties the status of the Service. Without such a label,
            // this program recognises the Service's ports only by the load balancer's address in the status. The
            // address then stays in the status, so that the removal of the ports can be tried again after a failure.
            if ownership.external.is_some() && ownership.carries(service) {
                plan.status = Some(Vec::new());
            }
            let (changes, finding) = leave(&context, balancer);
            all.extend(changes);
            plan.findings.extend(finding);
        }
        plan.outcome = PlanOutcome::of(all);
        plan
    }

    /// Returns the plan that ends the management of the Service's load balancer, because a person asked for this by a
    /// command. After the plan was carried out, the load balancer still exists, but this program does not change it any
    /// more.
    pub(super) fn plan_end_of_management(
        &self,
        service: &Service,
        cluster: &Cluster,
    ) -> LoadBalancerPlan {
        let (mut plan, _) = self.end(service, cluster);
        let mut all = Vec::new();
        for balancer in owned(self.balancers(), service, cluster) {
            include(&mut plan, balancer, cluster);
            let why = why_not_released(balancer, service);
            if let Some(why) = why.or_else(|| self.why_replaced(balancer, cluster)) {
                return plan.refuse(Finding::warning(Reason::SyncLoadBalancerFailed, why));
            }
            match stake(balancer, service, cluster) {
                Stake::Copy(uid) => plan.findings.push(left_to_its_cluster(balancer, uid)),
                _ => all.push(end_management(&self.project, balancer, service, cluster)),
            }
        }
        plan.outcome = PlanOutcome::of(all);
        plan
    }

    /// Begins the plan that takes a Service off its load balancers, or that ends their management by this program (`ccm
    /// lb release`). Returns a plan without changes, and the data from which the caller plans the changes. These
    /// changes need no nodes, so the data include no nodes.
    fn end<'a>(
        &'a self,
        service: &'a Service,
        cluster: &'a Cluster,
    ) -> (LoadBalancerPlan, PlanContext<'a>) {
        let mut parser = AnnotationParser::new(service);
        let context =
            self.context(&mut parser, ServiceInput { service, nodes: &[], cluster }, None);
        let mut plan = LoadBalancerPlan::default();
        plan.needs.services = rests_on_owners(&context);
        (plan, context)
    }

    /// Returns the plan that makes the Service the owner of the load balancer with the ID `id`, and gives the load
    /// balancer its desired state.
    pub(super) fn plan_given(&self, id: u64, of: ServiceInput) -> LoadBalancerPlan {
        let refuse = |why| {
            let why = Finding::warning(Reason::LoadBalancerNotAdopted, why);
            LoadBalancerPlan::default().refuse(why)
        };
        let Some(balancer) = self.balancers().with_id(id) else {
            return refuse(format!(
                "the command names load balancer {id}, but the project of the API token has no load balancer with this \
                 ID. Correct the ID (hcloud load-balancer list shows all IDs), or set a token of the project that has \
                 the load balancer"
            ));
        };
        if let Some(why) = self.why_replaced(balancer, of.cluster) {
            return refuse(why);
        }
        let (to, assigns) = assign(balancer, of.service, of.cluster);
        let guard = Guard::to(Some(balancer), &to);
        let mut observed = self.observed.clone();
        let given = observed.balancers.iter_mut().filter(|balancer| balancer.id == id);
        given.for_each(|balancer| balancer.labels = guard.labels());
        let given = BalancerSnapshot::new(self.project.clone(), observed);
        // `given` is a copy of the project's data. In this copy, the load balancer `id` already has the labels that it
        // would get if the Service adopted it. The Service can still ask for another load balancer by its annotations.
        // When it is not allowed to adopt that other load balancer, the plan is refused.
        if let (_, Err(Unsettled::Unfound(Unfound::NotAdopted(why)))) = given.settle(of, None) {
            return LoadBalancerPlan::default().refuse(why);
        }
        let mut plan = given.plan_service(of);
        match (&mut plan.outcome, &plan.found, assigns) {
            (PlanOutcome::Refused { .. }, ..) => {}
            (_, None, _) => {
                return refuse(format!(
                    "load balancer {id} can't be adopted, because the Service does not ask for it by an annotation. If \
                     other Services share it, set annotation {} of the Service first. If it is external (ccm does not \
                     own it), set annotation {}",
                    a::SHARE.key(),
                    a::EXTERNAL.key()
                ));
            }
            (_, Some(other), _) if other.id != id => {
                return refuse(format!(
                    "load balancer {id} can't be adopted for the Service, because the Service already uses load \
                     balancer {:?} ({id_now}). If annotation {} or {} of the Service asks for load balancer {id_now}, \
                     remove the annotation. Otherwise delete load balancer {id_now} first, which interrupts the \
                     traffic and loses its addresses",
                    other.name,
                    a::SHARE.key(),
                    a::EXTERNAL.key(),
                    id_now = other.id
                ));
            }
            (PlanOutcome::Change { changes, .. }, _, Some(said)) => {
                let edit = BalancerAction::Edit;
                let change = BalancerChange::new(&self.project, edit, Some(id), Value::Null, said);
                changes.insert(0, Box::new(change.guarded(guard)));
            }
            _ => {}
        }
        plan
    }
}

/// The parts of the planning that follow when the Service's load balancer and its ports there are known.
impl<'a> Settled<'a> {
    pub(super) fn bring_in_order(
        mut self,
        found: Result<FoundBalancer<'a>, Unsettled>,
    ) -> LoadBalancerPlan {
        let mut plan = LoadBalancerPlan { needs: self.needs, ..LoadBalancerPlan::default() };
        let there = found.as_ref().ok().and_then(FoundBalancer::balancer);
        let reason = match found {
            Ok(found) => {
                self.complete(&found, &mut plan);
                Reason::SyncLoadBalancerFailed
            }
            Err(Unsettled::Unfound(Unfound::NotAdopted(why))) => {
                self.parser.problem(why.message);
                why.reason
            }
            Err(Unsettled::Unfound(Unfound::Several(why))) => {
                self.parser.problem(why);
                return refused(plan, self.parser, Reason::SyncLoadBalancerFailed);
            }
            Err(Unsettled::Unread | Unsettled::Stays(_)) => {
                let why =
                    "ccm has not yet read everything that the plan depends on. ccm reads again";
                return plan.refuse(Finding::warning(Reason::SyncLoadBalancerFailed, why));
            }
        };
        let Settled { parser, context, desired, stays, .. } = self;
        if parser.problems.is_empty() {
            (_, plan.findings) = parser.end();
            return plan;
        }
        // The Service can't have what it asks for. So users are shown the load balancer that serves the Service now, if
        // there is one.
        let serving = || owned(context.balancers, context.service, context.cluster).next();
        let shown = || serving().map(|balancer| status::for_people(balancer, context.cluster));
        plan.found = plan.found.or_else(shown);
        plan = refused(plan, parser, reason);
        // When other Services or other people also have ports on the load balancer, the addresses in this Service's
        // status must have the IP mode `Proxy`. With the mode `VIP`, kube-proxy would send the cluster's own traffic
        // for the ports in this Service's spec to this Service, even if somebody else owns these ports of the load
        // balancer. Any user can get a plan refused by an invalid annotation. So the mode is set even when the plan is
        // refused.
        if desired.in_status.is_by_proxy {
            plan.status = status::by_proxy(context.service, context.balancers, context.cluster);
        }
        if stays { plan } else { leave_unused(plan, &context, &desired, there) }
    }

    /// Compares the load balancer with what the Service asks for, and writes the result into `plan`. Problems with what
    /// the Service asks for are added to `self.parser`, which collects them for messages.
    fn complete(&mut self, found: &FoundBalancer<'a>, plan: &mut LoadBalancerPlan) {
        let (context, there) = (&self.context, found.balancer());
        plan.found = there.map(|balancer| Balancer {
            certificates: shown(&balancer, context.observed.certificates.as_deref()),
            ..status::for_people(balancer, context.cluster)
        });
        let whole = self.desired.whole.as_mut();
        if let Some(attach) = whole.and_then(|whole| whole.attach.as_mut()) {
            subnets::leave_out_refused(&mut self.parser, context, attach, there);
        }
        if let Some((whole, there)) = self.desired.whole.as_mut().zip(there) {
            keep_unattached(context, whole, there);
        }
        report_unknown(&mut self.parser, context, there);
        let choice = type_choice(&mut self.parser, context, &self.desired, there);
        let kind = choice.as_ref().map(|choice| choice.kind);
        check_services(&mut self.parser, context, &self.desired, kind, there);
        self.parser.end_whole(there.is_some());
        plan.needs.types = choice.as_ref().is_some_and(|choice| choice.needs_list);
        plan.outcome = match choice.as_ref().filter(|_| self.parser.problems.is_empty()) {
            Some(choice) => self.outcome(found, choice, plan),
            None => PlanOutcome::Waiting,
        };
        plan.sizing = choice.and_then(|choice| choice.sizing);
        if let Some(whole) = &self.desired.whole {
            primary_ips::report(&mut self.parser, &self.context, whole, there);
        }
    }

    /// Returns the changes of the plan, and what is done after them, e.g. that the Service leaves another load
    /// balancer. Also writes the status of the Service, the compared fields and other data into `plan`.
    fn outcome(
        &mut self,
        found: &FoundBalancer<'a>,
        choice: &TypeChoice<'a>,
        plan: &mut LoadBalancerPlan,
    ) -> PlanOutcome {
        let (context, there) = (&self.context, found.balancer());
        let waits = self.waits(there);
        let carries_uid = |balancer: Labelled| balancer.ownership.carries(context.service);
        let is_ours = |balancer| !context.group.is_external() || carries_uid(balancer);
        plan.carries_uid = matches!(found, FoundBalancer::Own(balancer) if is_ours(*balancer));
        let certificates = std::mem::take(&mut self.desired.certificates);
        plan.claims = certificates.claims;
        let so_far = Differences {
            changes: certificates.changes,
            fields: certificates.fields,
            ..Differences::default()
        };
        let (differences, left) = self.differences(found, choice, so_far);
        plan.fields = differences.fields;
        plan.left_out = differences.left_out;
        plan.pods_of = differences.pods_of;
        plan.with_pods = differences.with_pods;
        let context = &self.context;
        let others = if self.parser.problems.is_empty() && !self.stays {
            leave_others(context, there, &mut self.parser)
        } else {
            Leaving::default()
        };
        plan.claims.extend(others.claims);
        plan.carries_uid |= others.is_any;
        let moves = !others.changes.is_empty();
        // While the Service moves to a new load balancer that can't serve it yet, the old load balancer still serves
        // it. So the status keeps the addresses of the old one.
        if let Some(there) = there.filter(|_| !(moves && waits)) {
            plan.status = Some(status::wanted(&there, &self.desired, context));
        }
        let changes = boxed(differences.changes);
        if there.is_none() && changes.is_empty() {
            return PlanOutcome::Waiting;
        }
        let is_unfinished =
            self.stays || waits || differences.is_unfinished || choice.is_unfinished;
        // Some nodes may never become targets. So the Service does not wait for all of them. It leaves its old load
        // balancers as soon as the new one has a target.
        let has_targets = there.is_some_and(|there| !there.targets.is_empty());
        let is_made = !waits && (!is_unfinished || has_targets);
        let mut leaves = if is_made { others.changes } else { Vec::new() };
        leaves.extend(left);
        let is_left = there.is_some_and(|there| context.group.is_being_left(there));
        let then = make_before_break(moves, leaves, is_unfinished || is_left);
        PlanOutcome::Change { changes, then }
    }

    /// Whether a port of the Service can't be added or changed yet, because a certificate for it is missing. The
    /// certificate is not issued or uploaded yet, or the Service is not allowed to use it. `there` is the Service's
    /// load balancer, if it exists.
    fn waits(&self, there: Option<Labelled>) -> bool {
        self.desired.ports.iter().any(|port| {
            let found = there.and_then(|there| there.balancer.listener(port.listener.listen_port));
            port.waits || port.is_put_off(found)
        })
    }

    /// Returns the differences between the load balancer and its desired state. Also returns the changes that take the
    /// Service off the load balancer. There are such changes only when the load balancer is external (made by somebody
    /// else), and the Service can have none of its ports there.
    fn differences(
        &mut self,
        found: &FoundBalancer<'a>,
        choice: &TypeChoice<'a>,
        so_far: Differences,
    ) -> (Differences, Vec<Box<dyn provider::Change>>) {
        let diff = Diff {
            parser: &mut self.parser,
            context: &self.context,
            desired: &self.desired,
            kind: choice.kind,
            choice,
            balancer: found.balancer(),
            found: so_far,
        };
        match (found, &self.desired.whole) {
            (FoundBalancer::Nothing(name), Some(whole)) => {
                (diff.create(whole, name.clone()), Vec::new())
            }
            (FoundBalancer::Own(balancer) | FoundBalancer::Adopted(balancer), None)
                if self.desired.ports.is_empty() =>
            {
                // The Service has no port on this external load balancer (one that somebody else made). If the
                // Service's nodes were targets there, they would get only the traffic of other people's ports. So the
                // Service is taken off the load balancer.
                (diff.found, take_off(&self.context, *balancer, NO_PORT_THERE))
            }
            (FoundBalancer::Adopted(balancer), _) => {
                (diff.bring_in_order(Some(adopted(*balancer))), Vec::new())
            }
            (FoundBalancer::Own(_), _) => (diff.bring_in_order(None), Vec::new()),
            (FoundBalancer::Nothing(_), None) => (diff.found, Vec::new()),
        }
    }
}

/// Returns what is done after the changes of the plan. `moves` means that the Service moves to a new load balancer. The
/// changes `leaves` take the Service off other load balancers. They are made last, so that the new load balancer serves
/// the Service before it leaves its old one. Without a move and without `leaves`, nothing more is done, except that the
/// Service is planned again soon when `is_unfinished` is true.
fn make_before_break(
    moves: bool,
    leaves: Vec<Box<dyn provider::Change>>,
    is_unfinished: bool,
) -> Then {
    match (moves, leaves.is_empty()) {
        (true, _) => Then::Move(leaves),
        (false, false) => Then::Leave(leaves),
        (false, true) if is_unfinished => Then::Again,
        (false, true) => Then::Done,
    }
}

/// Returns the plan for a Service after an operator has ended the management of its load balancer by `ccm lb release`.
/// The plan changes nothing. It only tells the user that the load balancer is not managed, and how to have it managed
/// again.
fn released(balancer: Labelled, of: ServiceInput) -> LoadBalancerPlan {
    let message = format!(
        "ccm does not manage the Service's load balancer {} any more, because ccm lb release ended the management. The \
         load balancer stays unchanged. To have it managed again, run: {}",
        balancer.shown(),
        shell_command("ccm lb adopt", &[&balancer.id, &of.service.full_name()])
    );
    LoadBalancerPlan {
        outcome: PlanOutcome::Released,
        found: Some(status::for_people(balancer, of.cluster)),
        carries_uid: true,
        findings: vec![Finding::info(Reason::LoadBalancerReleased, message)],
        ..LoadBalancerPlan::default()
    }
}

fn adopted(balancer: Labelled) -> Finding {
    let how = if balancer.ownership.created.is_some() {
        "it is deleted when the Service is deleted"
    } else {
        "it stays when the Service is deleted"
    };
    let message = format!("Adopted load balancer {}: {how}", balancer.shown());
    Finding::info(Reason::LoadBalancerAdopted, message).by_provider()
}

/// Returns a plan that changes nothing. It contains the problems because of which the load balancer is not changed. If
/// the present state of the load balancer was already compared with the desired state, the plan still shows the
/// differences to users.
fn refused(
    plan: LoadBalancerPlan,
    mut parser: AnnotationParser,
    reason: Reason,
) -> LoadBalancerPlan {
    let fix = parser.fix.take();
    let (problems, findings) = parser.end();
    let is_compared = plan.status.is_some();
    let why = Finding::warning(reason, problems.join("; "));
    LoadBalancerPlan {
        outcome: PlanOutcome::Refused { why: Finding { fix, ..why }, problems },
        findings,
        fields: plan.fields.into_iter().filter(|_| is_compared).collect(),
        found: plan.found,
        needs: plan.needs,
        ..LoadBalancerPlan::default()
    }
}

/// Adds to the plan a load balancer that belongs to the Service. Users then see it in the plan, and no other plan
/// changes it at the same time.
fn include(plan: &mut LoadBalancerPlan, balancer: Labelled, cluster: &Cluster) {
    plan.found = Some(status::for_people(balancer, cluster));
    plan.carries_uid = true;
    plan.claims.push(Claim::Id(balancer.id));
}
