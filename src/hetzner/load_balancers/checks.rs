//! Checks before a load balancer is changed. They report when a Service needs more ports or certificates than the type
//! of the load balancer allows. They also report when a target is a node that this program does not manage. The cause
//! can be a wrong value of `--cloud-provider` (`ccm-from-scratch` or `hcloud`), or that this program was installed in
//! place of another cloud-controller-manager.

use super::annotations::parser::AnnotationParser;
use super::annotations::{self, Annotation, AnnotationScope};
use super::desired::{Desired, Whole};
use super::model::balancer::BalancerType;
use super::model::listener::Listener;
use super::ownership::context::PlanContext;
use super::ownership::group::Group;
use super::ownership::labels::Labelled;
use crate::provider::variables::HCLOUD_LOAD_BALANCERS_FOREIGN_NODES;
use crate::provider::{InstanceId, ProviderId, Reason};
use std::collections::BTreeSet;

/// Returns why the load balancer must not be changed. The reason is that one of its targets is the server of a node
/// that this program does not manage. This program would remove the target, and the node would get no more traffic.
///
/// Such a node has a provider ID of another program, e.g. `hetzner://42`, or a provider ID that this program gives with
/// the other value of `--cloud-provider` (`ccm-from-scratch` or `hcloud`). The number at the end of the provider ID is
/// the target's server.
///
/// A target whose server also belongs to a node of this program is no reason. Otherwise anybody who may create a Node
/// could stop all changes, with a Node whose provider ID has the number of another node's server. `None` when there is
/// no reason.
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
            "load balancer {:?} sends traffic to node {node}, whose provider ID {id:?} is not from ccm. \
             ccm would remove the node from the targets, so ccm does not change the load balancer. Set \
             {HCLOUD_LOAD_BALANCERS_FOREIGN_NODES}=match to keep such nodes as targets, or let these nodes join the \
             cluster again one by one (ccm help migrate)",
            balancer.name
        ));
    }
    Some(format!(
        "load balancer {:?} sends traffic to node {node}, whose provider ID {id:?} belongs to --cloud-provider={}. \
         This ccm runs with --cloud-provider={} and would remove the node from the targets, so ccm does not change the \
         load balancer. Run ccm with --cloud-provider={}",
        balancer.name,
        other.name(),
        own.name(),
        other.name()
    ))
}

/// Reports each annotation for which the Service has no value of its own, and whose default is unknown because the
/// annotations of its Namespace are invalid or could not be read. While there is such an annotation, no load balancer
/// is created for the Service. On an existing load balancer, what the annotation would set stays unchanged.
pub(super) fn report_unknown(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    there: Option<Labelled>,
) {
    let group = &context.group;
    let is_used = |annotation: &Annotation| match annotation.scope {
        AnnotationScope::Whole if group.is_external() => annotation.is_of_targets(),
        AnnotationScope::Whole => !group.has_no_decider(),
        AnnotationScope::Service | AnnotationScope::Port => true,
    };
    let counts = |annotation: &&'static Annotation| is_used(annotation) && !parser.sets(annotation);
    let whys = annotations::TABLE.iter().copied().filter(counts);
    let whys: BTreeSet<&str> = whys.filter_map(|annotation| context.unknown(annotation)).collect();
    for why in whys {
        if there.is_some() || group.is_external() {
            let why = format!(
                "{why}. Until this is corrected, ccm leaves all settings unchanged that depend on the defaults of \
                 namespace {}",
                context.service.namespace
            );
            parser.warning(Reason::SyncLoadBalancerFailed, why);
        } else {
            let instead = "ccm creates no load balancer until this is corrected, or until annotations of the Service \
                           replace the namespace's default";
            parser.problem(format!("{why}. {instead}"));
        }
    }
}

/// Prevents this program from attaching an existing load balancer to the private Network while the default for its
/// subnet is unknown, e.g. because an annotation of the Namespace is invalid. The subnet of an attached load balancer
/// could not be changed later. The attachment is removed from the desired settings, unless the Service asks for a
/// private IP or a subnet.
pub(super) fn keep_unattached(context: &PlanContext, whole: &mut Whole, there: Labelled) {
    let is_subnet_unknown = context.is_unknown(&annotations::PRIVATE_SUBNET_IP_RANGE);
    whole.attach.take_if(|attach| {
        let asks = attach.range.is_some() || attach.ip.is_some();
        is_subnet_unknown && !asks && there.attached(attach.network).is_none()
    });
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
    let larger = format!("Choose a larger type in annotation {}", annotations::TYPE.key());
    let mut others =
        if context.group.is_own() { BTreeSet::new() } else { context.group.other_ports(there) };
    others.retain(|number| desired.ports.iter().all(|port| port.listener.listen_port != *number));
    let (own, most) = (desired.ports.len(), kind.max_services);
    if own > 0 && own + others.len() > most {
        let whose = match others.len() {
            0 => format!("the Service has {own} TCP ports"),
            others => format!(
                "the Service has {own} TCP ports, and other owners have {others} ports on the load balancer"
            ),
        };
        parser.problem(format!(
            "{whose}, but a load balancer of type {name} takes at most {most} ports. {larger}, or remove ports from \
             the Service"
        ));
    }
    let (certificates, most) = (certificates(desired, there, None), kind.max_assigned_certificates);
    if certificates > most {
        parser.problem(format!(
            "the ports need {certificates} certificates, but a load balancer of type {name} takes at most {most}. \
             {larger}, or name fewer certificates in annotation {}",
            annotations::HTTP_CERTIFICATES.key()
        ));
    }
}

/// Returns how many different certificates all HTTPS ports of the Service use together, including certificates that
/// existing ports keep. When `others` is given, the certificates of all other ports that stay on the load balancer are
/// counted as well.
pub(super) fn certificates(
    desired: &Desired,
    there: Option<Labelled>,
    others: Option<&Group>,
) -> usize {
    let mut ids = BTreeSet::new();
    for port in &desired.ports {
        let found = there.and_then(|there| there.balancer.listener(port.listener.listen_port));
        let listener = port.merged(found);
        if listener.is_https() {
            ids.extend(listener.certificates());
        }
    }
    for (balancer, group) in there.into_iter().zip(others) {
        let is_own = |number| desired.ports.iter().any(|own| own.listener.listen_port == number);
        let stays = |port: &&Listener| {
            port.is_https() && !is_own(port.listen_port) && !group.is_unwanted(balancer, port)
        };
        ids.extend(balancer.services.iter().filter(stays).flat_map(Listener::certificates));
    }
    ids.len()
}
