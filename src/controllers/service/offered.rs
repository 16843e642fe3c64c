//! Which nodes a load balancer may send traffic to.
//!
//! Ready is not asked for: the load balancer has health checks of its own, and nodes that flap
//! must not churn targets.

use crate::kube::Node;
use crate::provider::{
    Instance, InstanceId, NodeAddress, OfferedNode, Provider, ProviderId, Reach,
};
use std::collections::HashMap;
use std::sync::Arc;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The cluster autoscaler is about to remove the node.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// A complete list of servers.
#[derive(Clone, Copy)]
pub struct Servers<'a> {
    pub list: &'a [Instance],
    /// It was requested after this pass began.
    pub is_certain: bool,
}

/// The nodes that a plan may use, and what is known of their servers; `servers`: none were read.
pub fn offered(
    nodes: &[Arc<Node>],
    provider: &dyn Provider,
    servers: Option<Servers>,
) -> Vec<OfferedNode> {
    let list = servers.map_or(&[][..], |servers| servers.list);
    let by_id: HashMap<InstanceId, &Instance> =
        list.iter().map(|server| (server.id, server)).collect();
    let reach = |id: &ProviderId| match (id, servers) {
        (ProviderId::Ours(id), Some(servers)) => by_id.get(id).map_or(
            Reach::Missing {
                is_certain: servers.is_certain,
            },
            |server| reach(server),
        ),
        (ProviderId::Ours(_), None) | (ProviderId::Foreign | ProviderId::Unknown(_), _) => {
            Reach::Unknown
        }
    };
    candidates(nodes, provider)
        .filter(|(node, _)| node.taint(TO_BE_DELETED).is_none())
        .map(|(node, provider_id)| OfferedNode {
            name: node.name().to_owned(),
            reach: reach(&provider_id),
            provider_id,
            labels: node
                .metadata
                .labels
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            addresses: node.status.addresses.iter().map(address).collect(),
        })
        .collect()
}

/// The nodes that a change of starts a sync for: one that gains the autoscaler's taint goes on
/// serving the connections it has, and leaves with the next sync.
pub(super) fn candidates<'a>(
    nodes: &'a [Arc<Node>],
    provider: &'a dyn Provider,
) -> impl Iterator<Item = (&'a Node, ProviderId)> {
    nodes.iter().filter_map(|node| {
        let id = provider.parse_provider_id(&node.spec.provider_id);
        let is_offered = node.metadata.deletion_timestamp.is_none()
            && !is_excluded(node)
            && matches!(id, ProviderId::Ours(_));
        is_offered.then_some((&**node, id))
    })
}

fn reach(server: &Instance) -> Reach {
    let networks = server.private.iter().map(|private| private.network);
    Reach::By {
        has_public_ipv4: server.public_ipv4.is_some(),
        networks: networks.collect(),
    }
}

/// The label counts when it is there, unless its value is a Go boolean that is false.
fn is_excluded(node: &Node) -> bool {
    let value = node.metadata.labels.get(EXCLUDED);
    value.is_some_and(|value| !["0", "f", "F", "false", "FALSE", "False"].contains(&value))
}

fn address(address: &crate::kube::NodeAddress) -> NodeAddress {
    NodeAddress::new(address.kind.as_str().into(), &address.address)
}
