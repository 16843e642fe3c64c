//! The first stages of a plan. They find out what the Service asks for, which load balancer belongs to the Service, and
//! which ports the Service gets there.
//!
//! When a Service can't have the load balancer that it asks for, it stays on its present one, whose address is in the
//! Service's status. The stages are then repeated for the present load balancer. The annotations ask for another load
//! balancer, so the labels of the present one decide whether the Service owns it alone, shares it, or uses one that
//! somebody else made.

use super::annotations::parser::AnnotationParser;
use super::checks::serves_foreign_node;
use super::desired::ports::leave_out_taken;
use super::desired::{Desired, desired};
use super::diff::targets::need_servers;
use super::observe::covers;
use super::ownership::context::{BalancerSnapshot, PlanContext};
use super::ownership::defaults::ServiceDefaults;
use super::ownership::facts::{is_allowed, is_in_status};
use super::ownership::find::{
    FoundBalancer, Unfound, default_name, find, rests_on_owners, rests_on_services,
    why_asked_too_late,
};
use super::ownership::group::{GroupUse, group};
use super::ownership::judge::{Replacing, Stake, owned, replacement, stake};
use super::ownership::labels::Labelled;
use super::ownership::names::with_hash;
use crate::provider::{Finding, Needs, Reason, ServiceInput, Source, Sourced};

/// What is known about a Service before its load balancer is compared with what the Service asks for: its settings, its
/// desired state, and which data must be read from the APIs again before the plan is applied.
pub(super) struct Settled<'a> {
    pub(super) parser: AnnotationParser<'a>,
    pub(super) context: PlanContext<'a>,
    /// The state of the load balancer that the Service asks for. Ports that the Service can't have, because other
    /// Services or somebody else have them, are left out.
    pub(super) desired: Desired,
    pub(super) needs: Needs,
    /// Whether this plan leaves the Service on all its other load balancers. This is so when the Service stays on its
    /// present load balancer, because it can't have the one that it asks for. It is also so in the plan for the second
    /// load balancer of a replacement.
    pub(super) stays: bool,
}

/// The reason why the plan can't continue with a load balancer: data are missing, no load balancer can be used, or the
/// Service must stay on its present one.
pub(super) enum Unsettled<'a> {
    /// The list of certificates, Primary IPs or types was not read from the API, although this plan needs it.
    Unread,
    Unfound(Unfound),
    /// The Service can't have the load balancer that it asks for, and stays on its present one. The caller must call
    /// `settle` again, with this value, so that the plan is made for the present load balancer.
    Stays(Stays<'a>),
}

/// The load balancer on which a Service stays for now, because the Service can't have the load balancer or ports that
/// it asks for.
pub(super) struct Stays<'a> {
    pub(super) on: Labelled<'a>,
    why: Vec<Finding>,
    /// The load balancer that the Service asks for by its annotations, but whose ports it can't have. `None` when this
    /// load balancer does not exist yet, or when the Service is not allowed to use it at all.
    pub(super) asked: Option<Labelled<'a>>,
}

impl BalancerSnapshot {
    /// Finds out what the Service asks for, which load balancer it gets, and which ports it gets there.
    ///
    /// The caller first passes `None` as `stays`. If the Service can't have the load balancer that it asks for and must
    /// stay on its present one, this call returns `Unsettled::Stays` with the present load balancer. The caller then
    /// passes this value as `stays` to a second call, which does the same work for the present load balancer.
    pub(super) fn settle<'a>(
        &'a self,
        of: ServiceInput<'a>,
        stays: Option<&Stays<'a>>,
    ) -> (Settled<'a>, Result<FoundBalancer<'a>, Unsettled<'a>>) {
        let mut parser = AnnotationParser::new(of.service);
        let on = stays.map(|stays| stays.on);
        let mut context = self.context(&mut parser, of, on);
        let meanwhile = stays_meanwhile(&context).filter(|_| stays.is_none());
        if let (Some(why), None) = (&context.group.refused, &meanwhile) {
            parser.problem(why.clone());
        }
        let mut desired = desired(&mut parser, &context);
        let mut needs = Needs::default();
        let found = if !context.group.members.iter().all(|member| covers(self, member)) {
            Err(Unsettled::Unread)
        } else if let Some(meanwhile) = meanwhile {
            // Whether the Service is allowed to use the load balancer that it asks for depends on other Services. So
            // the list of Services must be read again before the plan is applied.
            needs.services = true;
            Err(Unsettled::Stays(meanwhile))
        } else {
            let found = find(&context, desired.name());
            if let Some(there) = found.as_ref().ok().and_then(FoundBalancer::balancer) {
                context.replacing = replacement(there, context.balancers, context.cluster);
                desired.limit_to_replacement(&context, Some(there));
            }
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
        of: ServiceInput<'a>,
        stays_on: Option<Labelled<'a>>,
    ) -> PlanContext<'a> {
        let balancers = self.balancers();
        let known = (!self.observed.is_for_manifests).then_some(balancers);
        let group = group(parser, of.service, known, of.cluster, stays_on);
        let settings = &self.project.defaults;
        let own_defaults = ServiceDefaults::of(settings, of.service);
        let defaults = match group.of {
            GroupUse::Shared(share) => {
                let of_group = of.cluster.namespaces.of(share.namespace);
                ServiceDefaults::in_namespace(settings, share.namespace, &of_group)
            }
            GroupUse::Own | GroupUse::External(_) => own_defaults.clone(),
        };
        PlanContext {
            defaults,
            own_defaults,
            project: &self.project,
            observed: &self.observed,
            balancers,
            service: of.service,
            nodes: of.nodes,
            cluster: of.cluster,
            certificates: self.observed.certificates.as_deref().unwrap_or_default(),
            group,
            replacing: Replacing::No,
        }
    }

    /// Does the work of [`settle`](BalancerSnapshot::settle) for a second load balancer during a replacement. `serving`
    /// is the load balancer that serves the Service now. On the second one, the Service gets only ports that it also
    /// has on `serving`.
    pub(super) fn settle_beside<'a>(
        &'a self,
        of: ServiceInput<'a>,
        replacing: Replacing<'a>,
        serving: Labelled<'a>,
    ) -> (Settled<'a>, Result<FoundBalancer<'a>, Unsettled<'a>>) {
        let mut parser = AnnotationParser::new(of.service);
        let mut context = self.context(&mut parser, of, None);
        context.replacing = replacing;
        let mut desired = desired(&mut parser, &context);
        let mut ignored = AnnotationParser::new(of.service);
        leave_out_taken(&mut ignored, &context, &mut desired.ports, Some(serving));
        // The certificates are created and uploaded by the plan for `serving`, the load balancer that serves the
        // Service now.
        desired.certificates.changes.clear();
        if let Some(ip) = desired.attach().and_then(|attach| attach.ip.as_ref())
            && matches!(replacing, Replacing::Asked(_))
            && serving.private_net.iter().any(|net| net.ip == Some(ip.value))
        {
            let why = "is the private IP of the load balancer that is being replaced. Choose another address";
            parser.problem(format!("{}: {} {why}", ip.source, ip.value));
        }
        let found = match replacing {
            Replacing::Both(pair) if pair.old.id == serving.id => FoundBalancer::Own(pair.new),
            Replacing::Both(pair) => FoundBalancer::Own(pair.old),
            _ => FoundBalancer::Nothing(name_beside(&context, &desired, serving)),
        };
        desired.limit_to_replacement(&context, found.balancer());
        let found = Ok(found);
        let needs = needs(&context, &desired, &found, &parser);
        let found = match found {
            _ if !context.group.members.iter().all(|member| covers(self, member)) => {
                Err(Unsettled::Unread)
            }
            Ok(found) => settle_ports(&mut parser, &context, &mut desired, found, None),
            Err(unfound) => Err(Unsettled::Unfound(unfound)),
        };
        // `stays` is true, because this plan does not take the Service off any load balancer. The plan for `serving`,
        // the load balancer that serves the Service now, does this.
        (Settled { parser, context, desired, needs, stays: true }, found)
    }
}

/// Returns the name of the new load balancer that will replace `old`. Both exist at the same time, so the names must
/// differ. The name ends with a hash of the ID of `old`. A second new load balancer for `old` would have the same name,
/// so it can't be created by mistake.
fn name_beside(context: &PlanContext, desired: &Desired, old: Labelled) -> Sourced<String> {
    let name = desired.name().map_or_else(|| default_name(context), |name| name.value.clone());
    let name = with_hash(&name, &old.id.to_string());
    Sourced::new(name, Source::Rule("the name must differ from the name of the old load balancer"))
}

/// Removes from `desired` the ports that the Service can't have on the load balancer in `found`, because other Services
/// or somebody else have them. When the Service must therefore stay on its present load balancer, returns
/// `Unsettled::Stays`.
fn settle_ports<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &mut Desired,
    found: FoundBalancer<'a>,
    stays: Option<&Stays<'a>>,
) -> Result<FoundBalancer<'a>, Unsettled<'a>> {
    let there = found.balancer();
    if let Some(stays) = stays {
        let on = there.filter(|there| there.id == stays.on.id);
        for why in stays.why.iter().cloned() {
            match on {
                Some(on) => parser.stays(why, context.group.others_decide(on, context.service)),
                None => parser.blocked(why),
            }
        }
    }
    if let Some(why) = there.and_then(|balancer| serves_foreign_node(context, balancer)) {
        parser.problem(why);
    }
    if let Some(own) = there
        && let Some(why) = why_asked_too_late(context.balancers, context.service, own)
    {
        parser.warning(Reason::LoadBalancerNotAdopted, why);
    }
    let wanted = desired.ports.len();
    let blocked = leave_out_taken(parser, context, &mut desired.ports, there);
    // A port of the Service was refused, because the port belongs to somebody else on the same load balancer. Without
    // the IP mode `Proxy`, kube-proxy would still send the cluster's own traffic for this port to the Service, and not
    // to the owner of the port.
    desired.in_status.is_by_proxy |= desired.ports.len() < wanted;
    match blocked.filter(|_| stays.is_none()) {
        None => Ok(found),
        Some((on, why)) => Err(Unsettled::Stays(Stays { on, why, asked: there })),
    }
}

/// Returns which lists must be read again just before the plan is applied, because the plan depends on them. A new list
/// of Services also requires a new list of servers: the plan may then adopt a load balancer, and an adopted load
/// balancer gets servers as targets.
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
    // When no load balancer exists yet and its location is `auto`, the list of servers is needed. The new load balancer
    // is created at the location of most servers that become targets.
    let is_placed = |found: &FoundBalancer| found.balancer().is_none() && desired.is_place_auto();
    let servers =
        services || found.as_ref().is_ok_and(|found| needs_servers(found) || is_placed(found));
    Needs { servers, services, ..Needs::default() }
}

/// Returns the load balancer on which the Service stays because it is not allowed to use the one that it asks for. The
/// status of the Service has an address of this load balancer. Its labels say that the Service uses it alone, shares
/// it, or uses it as an external load balancer (one that somebody else made).
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
    let why = format!(
        "the Service stays on load balancer {}, because it can't use the load balancer that its annotations ask for: \
         {why}",
        serving.shown()
    );
    let finding = Finding::warning(Reason::SyncLoadBalancerFailed, why);
    Some(Stays { on: serving, why: vec![finding], asked: None })
}
