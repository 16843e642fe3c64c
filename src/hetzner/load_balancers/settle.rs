//! The first stages of a plan: what the Service asks for, which load balancer is its own, and which ports it has there.
//!
//! A Service that can't have what it asks for stays on the load balancer whose address is in its status. These stages
//! are then repeated for this load balancer, whose labels state how the Service uses it.

use super::annotations::parser::AnnotationParser;
use super::checks::serves_other_profile;
use super::desired::ports::leave_out_taken;
use super::desired::{Desired, desired};
use super::diff::targets::need_servers;
use super::observe::covers;
use super::ownership::context::{BalancerSnapshot, PlanContext};
use super::ownership::facts::{is_allowed, is_in_status};
use super::ownership::find::{
    FoundBalancer, Unfound, find, rests_on_owners, rests_on_services, why_asked_too_late,
};
use super::ownership::group::group;
use super::ownership::judge::{Stake, owned, stake};
use super::ownership::labels::Labelled;
use crate::provider::{Cluster, Finding, Needs, OfferedNode, Reason, Service};

/// The result of the first stages: what a Service wants.
pub(super) struct Settled<'a> {
    pub(super) parser: AnnotationParser<'a>,
    pub(super) context: PlanContext<'a>,
    /// What the Service wants, except the ports that other Services or owners have.
    pub(super) desired: Desired,
    pub(super) needs: Needs,
    /// Whether the Service stays on a load balancer other than the one that it asks for.
    pub(super) stays: bool,
}

/// Why the load balancer can't be compared with what the Service wants.
pub(super) enum Unsettled<'a> {
    /// Something that the plan depends on was not read.
    Unread,
    Unfound(Unfound),
    /// The Service stays on a load balancer other than the one that it asks for.
    Stays(Stays<'a>),
}

/// A Service that stays on its present load balancer, because it can't have what it asks for.
pub(super) struct Stays<'a> {
    pub(super) on: Labelled<'a>,
    why: Vec<Finding>,
    /// The load balancer that the Service asks for, when it was found.
    pub(super) asked: Option<Labelled<'a>>,
}

/// The Service that a plan is for, and the nodes and the cluster on which the plan depends.
#[derive(Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) service: &'a Service,
    pub(super) nodes: &'a [OfferedNode],
    pub(super) cluster: &'a Cluster,
}

impl BalancerSnapshot {
    /// Reads what the Service asks for, and finds its load balancer and its ports there. `stays` is given when the
    /// Service can't have the load balancer that it asks for. It holds the load balancer on which the Service stays,
    /// and the reason. The second value is the load balancer that was found.
    pub(super) fn settle<'a>(
        &'a self,
        of: For<'a>,
        stays: Option<&Stays<'a>>,
    ) -> (Settled<'a>, Result<FoundBalancer<'a>, Unsettled<'a>>) {
        let mut parser = AnnotationParser::new(of.service);
        let on = stays.map(|stays| stays.on);
        let context = self.context(&mut parser, of, on);
        let meanwhile = stays_meanwhile(&context).filter(|_| stays.is_none());
        if let (Some(why), None) = (&context.group.refused, &meanwhile) {
            parser.problem(why.clone());
        }
        let mut desired = desired(&mut parser, &context);
        let mut needs = Needs::default();
        let found = if !context.group.members.iter().all(|member| covers(self, member)) {
            Err(Unsettled::Unread)
        } else if let Some(meanwhile) = meanwhile {
            // Other Services decide whether the Service may use the load balancer that it asks for, so the list of
            // Services is read again.
            needs.services = true;
            Err(Unsettled::Stays(meanwhile))
        } else {
            let found = find(&context, desired.name());
            needs = self::needs(&context, &desired, &found, &parser);
            found
                .map_err(Unsettled::Unfound)
                .and_then(|found| settle_ports(&mut parser, &context, &mut desired, found, stays))
        };
        (Settled { parser, context, desired, needs, stays: stays.is_some() }, found)
    }

    pub(super) fn context<'a>(
        &'a self,
        parser: &mut AnnotationParser<'a>,
        of: For<'a>,
        stays_on: Option<Labelled<'a>>,
    ) -> PlanContext<'a> {
        let balancers = self.balancers();
        let known = (!self.observed.is_for_manifests).then_some(balancers);
        PlanContext {
            project: &self.project,
            observed: &self.observed,
            balancers,
            service: of.service,
            nodes: of.nodes,
            cluster: of.cluster,
            certificates: self.observed.certificates.as_deref().unwrap_or_default(),
            group: group(parser, of.service, known, of.cluster, stays_on),
        }
    }
}

/// Leaves out the ports that other Services or owners have on the load balancer that was found.
fn settle_ports<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &mut Desired,
    found: FoundBalancer<'a>,
    stays: Option<&Stays<'a>>,
) -> Result<FoundBalancer<'a>, Unsettled<'a>> {
    let there = found.balancer();
    if let Some(stays) = stays {
        let is_there = there.is_some_and(|there| there.id == stays.on.id);
        for why in stays.why.iter().cloned() {
            if is_there { parser.stays(why) } else { parser.blocked(why) }
        }
    }
    if let Some(why) = there.and_then(|balancer| serves_other_profile(context, balancer)) {
        parser.problem(why);
    }
    if let Some(own) = there
        && let Some(why) = why_asked_too_late(context.balancers, context.service, own)
    {
        parser.warning(Reason::LoadBalancerNotAdopted, why);
    }
    let wanted = desired.ports.len();
    let blocked = leave_out_taken(parser, context, &mut desired.ports, there);
    // Without mode `Proxy` kube-proxy would send the cluster's own traffic for a refused port to this Service. With
    // this mode the traffic goes to the load balancer.
    desired.in_status.is_by_proxy |= desired.ports.len() < wanted;
    match blocked.filter(|_| stays.is_none()) {
        None => Ok(found),
        Some((on, why)) => Err(Unsettled::Stays(Stays { on, why, asked: there })),
    }
}

/// Returns what must be read again before the plan is applied. A load balancer that may not be adopted according to the
/// last read may be adopted after the next read. It then gets targets, so the servers are read again, too.
fn needs(
    context: &PlanContext,
    desired: &Desired,
    found: &Result<FoundBalancer, Unfound>,
    parser: &AnnotationParser,
) -> Needs {
    let services = desired.certificates.rests_on_services
        || rests_on_services(found, context)
        || rests_on_owners(context);
    let needs_servers = |found: &FoundBalancer| {
        parser.problems.is_empty() && need_servers(context, desired, found.balancer())
    };
    let servers = services || found.as_ref().is_ok_and(needs_servers);
    Needs { servers, services, project: false }
}

/// The load balancer on which the Service stays when it may not use the one that it asks for. The Service's status has
/// the address of this load balancer. The labels of the load balancer state whether the Service has it alone, in a
/// group, or as an external one.
fn stays_meanwhile<'a>(context: &PlanContext<'a>) -> Option<Stays<'a>> {
    let why = context.group.refused.as_ref()?;
    let mut owned = owned(context.balancers, context.service, context.cluster);
    let may_stay = |balancer: &Labelled| {
        let ownership = balancer.ownership;
        let has_role = match (&ownership.external, &ownership.group) {
            (Some(_), _) => is_allowed(*balancer, context.service),
            (None, Some(_)) => true,
            (None, None) => ownership.service_uid.as_ref() == Some(&context.service.uid),
        };
        let stake = stake(*balancer, context.service, context.cluster);
        has_role && matches!(stake, Stake::Whole | Stake::Part)
    };
    let serving =
        owned.find(|balancer| may_stay(balancer) && is_in_status(context.service, *balancer))?;
    let why = format!("{why}; the Service stays on {}", serving.shown());
    let finding = Finding::warning(Reason::SyncLoadBalancerFailed, why);
    Some(Stays { on: serving, why: vec![finding], asked: None })
}
