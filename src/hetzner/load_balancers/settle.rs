//! The first stages of a plan: what the Service asks for, which load balancer is its own, and which ports it has there.
//!
//! A Service that can't have what it asks for stays where its status says that it is. Then the Service is settled once
//! more, in the role that the labels of that load balancer give it.

use super::annotations::parser::AnnotationParser;
use super::checks::serves_other_profile;
use super::desired::ports::leave_out_taken;
use super::desired::{Desired, desired};
use super::diff::targets::need_servers;
use super::observe::covers;
use super::ownership::context::{Context, Snapshot};
use super::ownership::facts::{is_allowed, is_in_status};
use super::ownership::find::{
    Found, Unfound, find, rests_on_owners, rests_on_services, why_asked_too_late,
};
use super::ownership::group::group;
use super::ownership::judge::{Stake, owned, stake};
use super::ownership::labels::Labelled;
use crate::provider::{Cluster, Finding, Needs, OfferedNode, Reason, Service};

/// Everything that is known of a Service before its load balancer is compared.
pub(super) struct Settled<'a> {
    pub(super) parser: AnnotationParser<'a>,
    pub(super) context: Context<'a>,
    /// The wishes of the Service, without the ports that others have.
    pub(super) desired: Desired,
    pub(super) found: Result<Found<'a>, Unsettled<'a>>,
    pub(super) needs: Needs,
    /// Whether the Service stays on another load balancer than it asks for.
    pub(super) stays: bool,
}

/// Why a load balancer is not compared with what is wanted.
pub(super) enum Unsettled<'a> {
    /// Something that the plan depends on was not read.
    Unread,
    /// Several load balancers could be the Service's, and none of them is changed.
    Several(Finding),
    /// The load balancer that the Service asks for is not adopted.
    NotAdopted(Finding),
    /// The Service stays on another load balancer than it asks for.
    Stays(Stays<'a>),
}

/// A Service that stays where it is.
pub(super) struct Stays<'a> {
    pub(super) on: Labelled<'a>,
    why: Vec<Finding>,
    /// The load balancer that the Service asks for.
    pub(super) asked: Option<Labelled<'a>>,
}

/// The Service that a plan is for, and the nodes and the cluster on which the plan depends.
#[derive(Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) service: &'a Service,
    pub(super) nodes: &'a [OfferedNode],
    pub(super) cluster: &'a Cluster,
}

impl<'a> For<'a> {
    pub(super) fn new(
        service: &'a Service,
        nodes: &'a [OfferedNode],
        cluster: &'a Cluster,
    ) -> For<'a> {
        For { service, nodes, cluster }
    }
}

impl Snapshot {
    /// Reads what the Service asks for, and finds its load balancer and its ports there. `stays` has the load balancer
    /// that the Service keeps, and the reason why it can't have the one that it asks for.
    pub(super) fn settle<'a>(&'a self, of: For<'a>, stays: Option<&Stays<'a>>) -> Settled<'a> {
        let mut parser = AnnotationParser::new(of.service);
        let on = stays.map(|stays| stays.on);
        let context = self.context(&mut parser, of, on);
        let meanwhile = stays_meanwhile(&context).filter(|_| stays.is_none());
        if let (Some(why), None) = (&context.group.refused, &meanwhile) {
            parser.problem(why.clone());
        }
        let mut desired = desired(&mut parser, &context);
        let mut members = context.group.members.iter();
        let mut needs = Needs::default();
        let found = if !members.all(|one| covers(self, one)) {
            Err(Unsettled::Unread)
        } else if let Some(meanwhile) = meanwhile {
            // Other Services decide who may use the load balancer that is asked for.
            needs.services = true;
            Err(Unsettled::Stays(meanwhile))
        } else {
            let found = find(&context, desired.name());
            needs = self::needs(&context, &desired, &found, &parser);
            match found {
                Err(Unfound::Several(why)) => Err(Unsettled::Several(why)),
                Err(Unfound::NotAdopted(why)) => Err(Unsettled::NotAdopted(why)),
                Ok(found) => settle_ports(&mut parser, &context, &mut desired, found, stays),
            }
        };
        Settled { parser, context, desired, found, needs, stays: stays.is_some() }
    }

    pub(super) fn context<'a>(
        &'a self,
        parser: &mut AnnotationParser<'a>,
        of: For<'a>,
        stays_on: Option<Labelled<'a>>,
    ) -> Context<'a> {
        let balancers = self.balancers();
        let known = (!self.observed.is_for_manifests).then_some(balancers);
        Context {
            project: &self.project,
            observed: &self.observed,
            balancers,
            service: of.service,
            nodes: of.nodes,
            cluster: of.cluster,
            certificates: self.certificates(),
            group: group(parser, of.service, known, of.cluster, stays_on),
        }
    }
}

/// Leaves out the ports that others have on the load balancer that was found.
fn settle_ports<'a>(
    parser: &mut AnnotationParser,
    context: &Context<'a>,
    desired: &mut Desired,
    found: Found<'a>,
    stays: Option<&Stays<'a>>,
) -> Result<Found<'a>, Unsettled<'a>> {
    let there = found.balancer();
    if let Some(stays) = stays {
        let is_there = there.is_some_and(|there| there.id == stays.on.id);
        for why in stays.why.iter().cloned() {
            if is_there { parser.stays(why) } else { parser.blocked(why) }
        }
    }
    if let Some(why) = there.and_then(|one| serves_other_profile(context, one)) {
        parser.problem(why);
    }
    if let Some(own) = there
        && let Some(why) = why_asked_too_late(context.balancers, context.service, own)
    {
        parser.warning(Reason::LoadBalancerNotAdopted, why);
    }
    let wanted = desired.ports.len();
    let blocked = leave_out_taken(parser, context, &mut desired.ports, there);
    // kube-proxy must not send the cluster's traffic for a refused port to this Service.
    desired.in_status.is_by_proxy |= desired.ports.len() < wanted;
    match blocked.filter(|_| stays.is_none()) {
        None => Ok(found),
        Some((on, why)) => Err(Unsettled::Stays(Stays { on, why, asked: there })),
    }
}

/// Returns what must be read again before the plan is applied. A load balancer that is refused by what was read last
/// may be adopted by what is read again, and get targets.
fn needs(
    context: &Context,
    desired: &Desired,
    found: &Result<Found, Unfound>,
    parser: &AnnotationParser,
) -> Needs {
    let services = desired.certificates.rests_on_services
        || rests_on_services(found, context)
        || rests_on_owners(context);
    let needs_servers = |found: &Found| {
        parser.problems.is_empty() && need_servers(context, desired, found.balancer())
    };
    let servers = services || found.as_ref().is_ok_and(needs_servers);
    Needs { servers, services, project: false }
}

/// The load balancer on which the Service stays, because it may not use the one that it asks for. The address of
/// that load balancer is in the status, and its labels say in which role the Service has it: alone, in a group, or
/// as an external one.
fn stays_meanwhile<'a>(context: &Context<'a>) -> Option<Stays<'a>> {
    let why = context.group.refused.as_ref()?;
    let mut owned = owned(context.balancers, context.service, context.cluster);
    let may_stay = |one: &Labelled| {
        let ownership = one.ownership;
        let has_role = match (&ownership.external, &ownership.group) {
            (Some(_), _) => is_allowed(*one, context.service),
            (None, Some(_)) => true,
            (None, None) => ownership.service_uid.as_ref() == Some(&context.service.uid),
        };
        let stake = stake(*one, context.service, context.cluster);
        has_role && matches!(stake, Stake::Whole | Stake::Part)
    };
    let serving = owned.find(|one| may_stay(one) && is_in_status(context.service, *one))?;
    let why = format!("{why}; the Service stays on {}", serving.shown());
    let finding = Finding::warning(Reason::SyncLoadBalancerFailed, why);
    Some(Stays { on: serving, why: vec![finding], asked: None })
}
