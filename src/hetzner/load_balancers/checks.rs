//! Checks before a load balancer is changed. They report when a Service needs more ports or certificates than the type
//! of the load balancer allows. They also report when this program seems to run with the wrong profile, i.e. with the
//! wrong value of `--cloud-provider` (`ccm-from-scratch` or `hcloud`). A target whose node has a provider ID of the
//! other profile is a sign of this.

use super::annotations;
use super::annotations::parser::AnnotationParser;
use super::desired::Desired;
use super::diff::USUAL_TYPE;
use super::model::balancer::BalancerType;
use super::ownership::context::PlanContext;
use super::ownership::labels::Labelled;
use crate::provider::{Finding, InstanceId, Reason};
use std::collections::BTreeSet;

/// Returns why the load balancer must not be changed: this program seems to run with the wrong profile, i.e. with the
/// wrong value of `--cloud-provider` (`ccm-from-scratch` or `hcloud`). The sign is a target whose node has a provider
/// ID of the other profile. This program would remove the target, because it manages only nodes with provider IDs of
/// its own profile. This would stop the traffic. `None` when there is no such target.
pub(super) fn serves_other_profile(context: &PlanContext, balancer: Labelled) -> Option<String> {
    let own = context.project.profile;
    let other = own.other();
    let is_target = |id: &str| {
        let server = other.parse_provider_id(id).ours().and_then(InstanceId::cloud);
        server.is_some_and(|server| balancer.server_targets().any(|(target, _)| target == server))
    };
    let (node, id) = context.cluster.foreign_nodes.iter().find(|(_, id)| is_target(id))?;
    Some(format!(
        "load balancer {:?} sends traffic to node {node}, whose provider ID {id:?} belongs to profile {}. This ccm \
         runs with profile {}, in which the node is no target, so ccm changes nothing. Run ccm with \
         --cloud-provider={}",
        balancer.name,
        other.name(),
        own.name(),
        other.name()
    ))
}

/// Returns the type that the load balancer should have. The annotation `type` sets it, or else the environment variable
/// with the default for this annotation. When neither does, it is the present type, or `lb11` for a new load balancer.
/// A type that does not exist is reported.
pub(super) fn kind<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &Desired,
    there: Option<Labelled<'a>>,
) -> Option<&'a BalancerType> {
    let has = there.map(|labelled| &labelled.balancer.load_balancer_type);
    let wanted = match (desired.kind(), has) {
        (Some(wanted), _) => wanted.value.as_str(),
        (None, Some(has)) => has.name.as_str(),
        // No load balancer was found, and none will be created, so no type is needed. There are two cases. The Service
        // asks for an external load balancer (one that somebody else made). Or the Service shares a load balancer, but
        // no Service is allowed to decide about its settings.
        (None, None) if context.group.is_external() || context.group.has_no_decider() => {
            return None;
        }
        (None, None) => {
            let message = format!(
                "no load balancer type is set, so an {USUAL_TYPE} is created; annotation {} sets another type",
                annotations::TYPE.key()
            );
            parser.finding(Finding::info(Reason::LoadBalancerTypeUnconfigured, message));
            USUAL_TYPE
        }
    };
    // The list of types is `None` when annotations are checked without the API, for example by `ccm lint` without an
    // API token.
    let types = context.observed.types.as_deref();
    let is_it = |kind: &&BalancerType| kind.name == wanted;
    let found = || types?.iter().find(is_it);
    let Some(kind) = has.filter(is_it).or_else(found) else {
        let names: Vec<&str> = types?.iter().map(|kind| kind.name.as_str()).collect();
        let source = desired.kind().map(|kind| kind.source.to_string());
        parser.whole_problem(format!(
            "{}: there is no type {}; use {}",
            source.unwrap_or_else(|| "type".to_owned()),
            crate::text::quoted(wanted),
            crate::text::one_of(&names)
        ));
        return has;
    };
    if let Some(deprecation) = &kind.deprecation {
        let why = format!(
            "type {} of the load balancer is deprecated and ends after {}: choose another in annotation {}",
            kind.name,
            deprecation.unavailable_after,
            annotations::TYPE.key()
        );
        parser.warning(Reason::LoadBalancerTypeDeprecated, why);
    }
    Some(kind)
}

/// Reports a problem when the Service needs more ports or certificates than the type of the load balancer allows. The
/// API would refuse the ports beyond the limit.
pub(super) fn check_services(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    desired: &Desired,
    kind: Option<&BalancerType>,
    there: Option<Labelled>,
) {
    let Some(kind) = kind else { return };
    let name = &kind.name;
    let larger = format!("choose a larger type in annotation {}", annotations::TYPE.key());
    let mut others =
        if context.group.is_own() { BTreeSet::new() } else { context.group.other_ports(there) };
    others.retain(|number| desired.ports.iter().all(|port| port.listener.listen_port != *number));
    let (own, most) = (desired.ports.len(), kind.max_services);
    if own > 0 && own + others.len() > most {
        let whose = match others.len() {
            0 => format!("the Service has {own} TCP ports"),
            others => format!(
                "the Service has {own} TCP ports, and other owners have {others} on the load balancer"
            ),
        };
        parser.problem(format!(
            "{whose}, but a load balancer of type {name} takes at most {most}: {larger}, or remove ports"
        ));
    }
    let (certificates, most) = (certificates(desired, there), kind.max_assigned_certificates);
    if certificates > most {
        parser.problem(format!(
            "the ports need {certificates} certificates, but a load balancer of type {name} takes at most {most}: \
             {larger}, or name fewer in {}",
            annotations::HTTP_CERTIFICATES.key()
        ));
    }
}

/// Returns how many different certificates all HTTPS ports of the Service use together, including certificates that
/// existing ports keep.
fn certificates(desired: &Desired, there: Option<Labelled>) -> usize {
    let mut ids = BTreeSet::new();
    for port in &desired.ports {
        let found = there.and_then(|there| there.balancer.listener(port.listener.listen_port));
        let listener = port.merged(found);
        if listener.is_https() {
            ids.extend(listener.certificates());
        }
    }
    ids.len()
}
