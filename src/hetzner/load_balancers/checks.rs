//! Checks before a load balancer is changed. They report when a Service needs more ports or certificates than the type
//! of the load balancer allows. They also report when a target is a node that this program does not manage. Then this
//! program seems to run with the wrong value of `--cloud-provider` (`ccm-from-scratch` or `hcloud`), or it has replaced
//! another cloud-controller-manager.

use super::annotations::parser::AnnotationParser;
use super::annotations::{self, Annotation, AnnotationScope};
use super::desired::{Desired, Whole};
use super::diff::USUAL_TYPE;
use super::model::balancer::BalancerType;
use super::ownership::context::PlanContext;
use super::ownership::labels::Labelled;
use crate::provider::variables::HCLOUD_LOAD_BALANCERS_FOREIGN_NODES;
use crate::provider::{Finding, InstanceId, ProviderId, Reason, Source, Sourced};
use std::collections::BTreeSet;

/// Returns why the load balancer must not be changed: one of its targets is a node that this program does not manage.
/// The provider ID of the node is one of the other profile, i.e. of the other value of `--cloud-provider`
/// (`ccm-from-scratch` or `hcloud`), or one of another program, e.g. `hetzner://42`. This program would remove the
/// target, which would stop the traffic. The sign is that the provider ID ends in the number of the target's server. A
/// server that also has a node of this program does not count, so that a Node which claims the server of another node
/// stops no change. `None` when there is no such target.
pub(super) fn serves_foreign_node(context: &PlanContext, balancer: Labelled) -> Option<String> {
    let own = context.project.profile;
    let other = own.other();
    let has_node = |server| {
        let mut offered = context.nodes.iter();
        context.cluster.servers.contains_key(&server)
            || offered.any(|node| node.provider_id == ProviderId::Ours(server))
    };
    let is_target = |id: &str| {
        let server = id.rsplit('/').next().and_then(|number| number.parse::<u64>().ok());
        server.is_some_and(|server| {
            balancer.server_targets().any(|(target, _)| target == server)
                && !has_node(InstanceId::Cloud(server))
        })
    };
    let (node, id) = context.cluster.foreign_nodes.iter().find(|(_, id)| is_target(id))?;
    if other.parse_provider_id(id).ours().is_none() {
        return Some(format!(
            "load balancer {:?} sends traffic to node {node}, whose provider ID {id:?} is not one of ccm's, so the \
             node is no target for ccm. ccm would remove it, and therefore changes nothing. Set \
             {HCLOUD_LOAD_BALANCERS_FOREIGN_NODES}=match, with which such nodes stay targets, or let them join again, \
             one after the other: ccm help migrate",
            balancer.name
        ));
    }
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

/// Reports each default of a Namespace that is unknown and that the Service does not set itself. While there is one, no
/// load balancer is created. On an existing load balancer, such fields stay as they are.
pub(super) fn report_unknown(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    there: Option<Labelled>,
) {
    let has_settings = !context.group.is_external() && !context.group.has_no_decider();
    let counts = |annotation: &&'static Annotation| {
        (has_settings || annotation.scope != AnnotationScope::Whole) && !parser.sets(annotation)
    };
    let whys = annotations::TABLE.iter().copied().filter(counts);
    let whys: BTreeSet<&str> = whys.filter_map(|annotation| context.unknown(annotation)).collect();
    for why in whys {
        if there.is_some() || context.group.is_external() {
            let stays = "what the Service does not set itself stays as it is";
            let why = format!("{why}; until this is corrected, {stays}");
            parser.warning(Reason::SyncLoadBalancerFailed, why);
        } else {
            let instead = "no load balancer is created until this is corrected, or until the Service sets it itself";
            parser.problem(format!("{why}; {instead}"));
        }
    }
}

/// Removes from the settings of an existing load balancer those with which it could not stay as it is while a default of
/// the Namespace is unknown. A type that does not exist is unknown, too.
pub(super) fn keep_unknown(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    whole: &mut Whole,
    there: Option<Labelled>,
) {
    let types = context.observed.types.as_deref();
    let is_wrong = |kind: &mut Sourced<String>| {
        matches!(kind.source, Source::Namespace(_))
            && there.is_none_or(|there| there.load_balancer_type.name != kind.value)
            && types.is_some_and(|types| types.iter().all(|other| other.name != kind.value))
    };
    if let Some(wrong) = whole.kind.take_if(is_wrong) {
        let why = format!(
            "{}: there is no type {}; until this is corrected, the load balancer keeps its type",
            wrong.source,
            crate::text::quoted(&wrong.value)
        );
        parser.warning(Reason::SyncLoadBalancerFailed, why);
    }
    let is_subnet_unknown = context.is_unknown(&annotations::PRIVATE_SUBNET_IP_RANGE);
    whole.attach.take_if(|attach| {
        let is_attached = there.is_some_and(|there| there.attached(attach.network).is_some());
        let asks = attach.range.is_some() || attach.ip.is_some();
        is_subnet_unknown && !asks && !is_attached
    });
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
