//! Decides which node a server belongs to. Every controller and command uses these decisions. The cloud's lists of
//! servers are trusted, and so is the name of a node. Provider IDs, addresses and annotations are written by kubelets,
//! so they are claims that other claims can contradict.
//!
//! | the node | the server that it gets | unless |
//! |---|---|---|
//! | has a provider ID of this cloud | the server with this ID | an older initialised node has the same provider ID ([`keeper`]) |
//! | is new, without a provider ID | the only server with the node's name | the provider ID of an initialised node names this server |
//! | is new, and no server has its name | the only server with an address that the node reports | another node reports an address of this server, too |
//! | is of another provider, or has neither a provider ID nor the taint `uninitialized` | none. With `HCLOUD_LOAD_BALANCERS_FOREIGN_NODES=match`, it can be a target on the only server with its name, if it reports an address of this server ([`ForeignMatch`]). | the provider ID of another node names this server, or the node reports an address of a second server |
//!
//! When the provider IDs of several new nodes name one server, the node with the server's name gets the server. When
//! the row for a node gives no certain answer, the node gets no server.

use crate::kube::KubeNode;
use crate::provider::{
    Finding, INTERNAL_IP, Instance, InstanceId, Instances, NodeAddress, PROVIDED_NODE_IP, Provider,
    ProviderError, ProviderId, Reason, Servers, one_ip_or_two,
};
use crate::text;
use ipnet::IpNet;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// The taint that a kubelet with `--cloud-provider=external` sets on its new node. Pods are scheduled to the node only
/// after this taint was removed.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

pub fn is_uninitialized(node: &KubeNode) -> bool {
    node.taint(UNINITIALIZED).is_some()
}

/// The advice for a node when no server has its name. The next constant is the advice when several servers have
/// its name.
const NAME_A_SERVER: &str = "rename the server of this node to the node's name, or set a token of the project that has \
                             the server";
const NAME_ONE_SERVER: &str =
    "give this name only to the server of this node; hcloud server list shows the servers";

/// Whether the node counts as a node of another provider. This includes a node without a provider ID, unless it has the
/// taint `uninitialized`. A node with this taint is new and still waits for its provider ID.
pub(super) fn is_foreign(node: &KubeNode, provider: &dyn Provider) -> bool {
    let id = &node.spec.provider_id;
    if id.is_empty() {
        return !is_uninitialized(node);
    }
    provider.parse_provider_id(id) == ProviderId::Foreign
}

/// Returns the server that a node's provider ID names, or `None` when it names no server of this cloud. Another node
/// can name the same server, and the server can belong to that node, see [`Claims::server_of`].
pub(super) fn server_of(node: &KubeNode, provider: &dyn Provider) -> Option<InstanceId> {
    provider.parse_provider_id(&node.spec.provider_id).ours()
}

/// Returns the node that keeps a server, or an address, which all these nodes name. Returns `None` when it can't be
/// decided. A kubelet itself writes the provider ID and the addresses of its node, so these prove nothing.
///
/// The oldest initialised node is chosen, because a kubelet can't change the creation time. Between nodes that were
/// created in the same second, the UID decides, because nobody can choose a UID. When no node is initialised, a single
/// node in the list is chosen, and of several nodes the one with this `name`, which is the name of the server.
fn keeper<'a>(nodes: &[&'a KubeNode], name: Option<&str>) -> Option<&'a KubeNode> {
    fn age(node: &KubeNode) -> impl Ord {
        let created = node.metadata.creation_timestamp;
        (created.is_none(), created, &node.metadata.uid)
    }
    let initialised = nodes.iter().copied().filter(|node| !is_uninitialized(node));
    let oldest = initialised.min_by(|one, other| age(one).cmp(&age(other)));
    oldest.or(match nodes {
        [alone] => Some(*alone),
        _ => nodes.iter().copied().find(|node| Some(node.name()) == name),
    })
}

/// The servers that the provider IDs of nodes name, each with the nodes that name it.
pub(super) struct Claims<'a> {
    provider: &'a dyn Provider,
    /// For each server, the nodes whose provider ID names it.
    nodes: HashMap<InstanceId, Vec<&'a KubeNode>>,
}

impl<'a> Claims<'a> {
    pub(super) fn new<N: Borrow<KubeNode>>(
        provider: &'a dyn Provider,
        nodes: &'a [N],
    ) -> Claims<'a> {
        let mut claims: HashMap<InstanceId, Vec<&KubeNode>> = HashMap::new();
        for node in nodes.iter().map(Borrow::borrow) {
            if let Some(id) = server_of(node, provider) {
                claims.entry(id).or_default().push(node);
            }
        }
        Claims { provider, nodes: claims }
    }

    /// Returns all nodes whose provider ID names this server.
    fn of(&self, id: InstanceId) -> &[&'a KubeNode] {
        self.nodes.get(&id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns a node other than `node` whose provider ID names this server.
    fn other(&self, id: InstanceId, node: &KubeNode) -> Option<&'a KubeNode> {
        self.of(id).iter().copied().find(|other| other.name() != node.name())
    }

    /// Returns the node to which this server belongs, chosen from the nodes whose provider ID names the server. Returns
    /// `None` when there is no such node, or when there are several and none of them is initialised. In the latter
    /// case, the node controller decides which of them gets the server.
    pub(super) fn keeper(&self, id: InstanceId) -> Option<&'a KubeNode> {
        keeper(self.of(id), None)
    }

    /// Returns the server that the node's provider ID names. Returns `None` when that server belongs to another node,
    /// or when it is not decided yet to which node it belongs.
    pub(super) fn server_of(&self, node: &KubeNode) -> Option<InstanceId> {
        let id = server_of(node, self.provider)?;
        let is_keeper = |keeper: &KubeNode| keeper.name() == node.name();
        self.keeper(id).is_some_and(is_keeper).then_some(id)
    }

    /// Whether the node's provider ID names a server that this node does not get, because the server belongs to another
    /// node, or because it is not decided yet to which node the server belongs.
    pub(super) fn is_second(&self, node: &KubeNode) -> bool {
        server_of(node, self.provider).is_some() && self.server_of(node).is_none()
    }
}

/// An index of nodes and servers, to find the server of each node quickly.
pub struct MatchIndex<'a> {
    pub(super) provider: &'a dyn Provider,
    servers: Servers<'a>,
    by_id: HashMap<InstanceId, &'a Instance>,
    /// The servers by their names. Several servers can have the same name.
    by_name: HashMap<&'a str, Vec<&'a Instance>>,
    /// The nodes that have neither a provider ID of a server of this cloud nor the name of a server. Each is listed
    /// with the addresses in its status.
    unmatched: Vec<(&'a KubeNode, Vec<IpAddr>)>,
    by_node_name: HashMap<&'a str, &'a KubeNode>,
    claims: Claims<'a>,
    /// The keys are the addresses that kubelets ask for: by `--node-ip`, by the annotation `internal-ip` of the node,
    /// or, for a new node, by the addresses in its status. The value lists all nodes that have the address in their
    /// status or in the annotation `internal-ip`. Two nodes must not get the same address.
    asked_for: HashMap<IpAddr, Vec<&'a KubeNode>>,
}

/// The answer to the question on which server a node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchOutcome<'a> {
    /// The node runs on this server.
    Matched(&'a Instance, MatchedBy),
    /// The provider ID names a server of this cloud, but the list of servers does not contain that server.
    Gone(InstanceId),
    /// The API that must be asked about this server did not answer, so it is not known whether the server exists.
    Unclear(&'a ProviderError),
    /// The provider ID is that of another cloud, so this program does not change the node.
    Foreign,
    /// The node is of another provider, but can be a target of load balancers. This program does not change the node.
    TargetOnly(ForeignMatch),
    /// The provider ID has the prefix of this cloud, but the server that it names can't be looked up. The text says
    /// why.
    Unknown(String),
    /// The node has no provider ID, and no server could be assigned to it with certainty. The finding (a message for
    /// the operator) says why.
    Unmatched(Finding),
}

/// What is known about the server of a node of another provider. The node runs on a server of this cloud when exactly
/// one server has its name, and the node reports an address of this server. The address alone proves nothing, because
/// the node itself reports its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignMatch {
    /// The servers that have the node's name.
    pub named: Vec<Instance>,
    /// The address that connects the node with its server: the node reports it, and the server has it. `None` when
    /// there is no such address. It is always `None` when no server or more than one server is in `named`.
    pub address: Option<IpAddr>,
    /// The reason why the node does not become a target of a load balancer. `None` means that it can become one,
    /// because it surely runs on the only server in `named`. If a server in `named` is a target already, it stays a
    /// target in spite of the reason.
    pub obstacle: Option<Finding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedBy {
    ProviderId,
    Name,
    Address(IpAddr),
}

impl<'a> MatchIndex<'a> {
    pub fn new<N: Borrow<KubeNode>>(
        provider: &'a dyn Provider,
        nodes: &'a [N],
        servers: Servers<'a>,
    ) -> MatchIndex<'a> {
        let claims = Claims::new(provider, nodes);
        let nodes = || nodes.iter().map(Borrow::borrow);
        let mut by_name: HashMap<&str, Vec<&Instance>> = HashMap::new();
        for instance in servers.iter() {
            by_name.entry(&instance.name).or_default().push(instance);
        }
        let unmatched = nodes()
            .filter(|node: &&KubeNode| server_of(node, provider).is_none())
            .filter(|node| !by_name.contains_key(node.name()))
            .map(|node| (node, reported_ips(node)))
            .collect();
        let mut asked_for: HashMap<IpAddr, Vec<&KubeNode>> = HashMap::new();
        for node in nodes() {
            for ip in asked_ips(node) {
                asked_for.entry(ip).or_default();
            }
        }
        for node in nodes() {
            for ip in annotated_ips(node, INTERNAL_IP).chain(reported_ips(node)) {
                asked_for.entry(ip).and_modify(|nodes| nodes.push(node));
            }
        }
        MatchIndex {
            provider,
            asked_for,
            servers,
            by_id: servers.iter().map(|instance| (instance.id, instance)).collect(),
            by_name,
            unmatched,
            by_node_name: nodes().map(|node| (node.name(), node)).collect(),
            claims,
        }
    }

    pub fn find(&self, node: &KubeNode) -> MatchOutcome<'a> {
        if self.provider.matches_foreign_nodes() && is_foreign(node, self.provider) {
            return MatchOutcome::TargetOnly(self.foreign(node));
        }
        if !node.spec.provider_id.is_empty() {
            return match self.provider.parse_provider_id(&node.spec.provider_id) {
                ProviderId::Foreign => MatchOutcome::Foreign,
                ProviderId::Unknown(why) | ProviderId::Disabled(why) => MatchOutcome::Unknown(why),
                ProviderId::Ours(id) => match (self.by_id.get(&id), self.servers.unknown(id)) {
                    (Some(instance), _) => MatchOutcome::Matched(instance, MatchedBy::ProviderId),
                    (None, Some(error)) => MatchOutcome::Unclear(error),
                    (None, None) if id.cloud().is_none() && self.provider.dedicated().is_none() => {
                        MatchOutcome::Unknown(format!(
                            "ccm can't look up dedicated server {id} without the Robot login"
                        ))
                    }
                    (None, None) => MatchOutcome::Gone(id),
                },
            };
        }
        match (self.named(node.name()), self.servers.error()) {
            ([instance], _) => MatchOutcome::Matched(instance, MatchedBy::Name),
            ([], Some(error)) => MatchOutcome::Unclear(error),
            ([], None) => self.by_address(node),
            _ => {
                let message = format!(
                    "several servers are named {:?}, so ccm does not know on which of them the node runs, and waits",
                    node.name()
                );
                let finding = Finding::warning(Reason::InstanceLookupFailed, message);
                MatchOutcome::Unmatched(finding.with_fix(NAME_ONE_SERVER))
            }
        }
    }

    /// Returns all servers with this name.
    fn named(&self, name: &str) -> &[&'a Instance] {
        self.by_name.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Matches a node of another provider with the server that has its name.
    pub(super) fn foreign(&self, node: &KubeNode) -> ForeignMatch {
        let (named, reported) = (self.named(node.name()), reported_ips(node));
        let address = match named {
            [server] => self.address_of(server, &reported),
            _ => None,
        };
        let obstacle = self.foreign_obstacle(node, named, address, &reported);
        ForeignMatch { named: named.iter().copied().cloned().collect(), address, obstacle }
    }

    /// Returns the reason why a node of another provider does not become a target. `None` means that it becomes one.
    fn foreign_obstacle(
        &self,
        node: &KubeNode,
        named: &[&Instance],
        address: Option<IpAddr>,
        reported: &[IpAddr],
    ) -> Option<Finding> {
        if let Some(error) = self.servers.error() {
            let message = format!(
                "ccm can't find the server with the node's name, because the servers can't be read: {error}"
            );
            return Some(Finding::warning(Reason::InstanceLookupFailed, message));
        }
        let [server] = *named else {
            return Some(not_one(node, named));
        };
        let (reason, why, fix) = if let Some(other) = self.claims.other(server.id, node) {
            let why = format!("the provider ID of node {:?} names this server, too", other.name());
            let fix = "delete the node that does not run on the server".to_owned();
            (Reason::ServerClaimedTwice, why, fix)
        } else if address.is_none() {
            let why =
                "the node reports no address of this server, so the server may belong to another cluster"
                    .to_owned();
            let addresses = self.addresses_shown(server);
            let fix = format!(
                "if the node runs on this server, let its kubelet report one of the addresses {addresses}, e.g. with \
                 the option node-external-ip of k3s"
            );
            (Reason::ForeignNodeNotMatched, why, fix)
        } else {
            let mut others = self.servers.iter().filter(|other| other.id != server.id);
            let second = others.find_map(|other| Some((other, self.address_of(other, reported)?)));
            let (other, ip) = second?;
            let (name, id) = (&other.name, other.id);
            let why = format!("the node also reports {ip}, an address of server {name} ({id})");
            let fix = "correct the addresses that the node's kubelet reports".to_owned();
            (Reason::InstanceLookupFailed, why, fix)
        };
        let (name, id) = (&server.name, server.id);
        let message = format!(
            "server {name} ({id}) has the node's name, but {why}. So node {:?} does not become a target of load \
             balancers. If it already is a target, it stays a target",
            node.name()
        );
        Some(Finding::warning(reason, message).with_fix(fix))
    }

    /// Returns one of the `reported` addresses that belongs to this server according to the cloud's API.
    fn address_of(&self, server: &Instance, reported: &[IpAddr]) -> Option<IpAddr> {
        let nets = self.provider.instances()?.stated_addresses(server);
        reported.iter().copied().find(|ip| nets.iter().any(|net| net.contains(ip)))
    }

    /// Returns the addresses of a server for a message.
    fn addresses_shown(&self, server: &Instance) -> String {
        let nets = self.provider.instances().map(|instances| instances.stated_addresses(server));
        let is_one = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
        let shown =
            |net: &IpNet| if is_one(net) { net.addr().to_string() } else { net.to_string() };
        nets.unwrap_or_default().iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Returns the server that has the same name as this node. Returns `None` when several servers have that name, or
    /// when the provider ID of another node names the server.
    pub fn named_as(&self, node: &KubeNode) -> Option<&'a Instance> {
        let [named] = self.named(node.name()) else {
            return None;
        };
        self.claims.other(named.id, node).is_none().then_some(*named)
    }

    pub(super) fn node(&self, name: &str) -> Option<&'a KubeNode> {
        self.by_node_name.get(name).copied()
    }

    /// Returns the server whose addresses are proven to be those of this node. The proof is that the node's provider ID
    /// names a server of this cloud, that no other node has this provider ID, and that the server has exactly the
    /// node's name. So a node can't get the addresses of another server by using the provider ID of that server. The
    /// error says why no server is proven, and whether this can change by itself.
    pub(super) fn proven_server_of(&self, node: &KubeNode) -> Result<&'a Instance, (bool, String)> {
        let id = &node.spec.provider_id;
        if node.metadata.deletion_timestamp.is_some() {
            return Err((true, "the node is being deleted".to_owned()));
        }
        if id.is_empty() && is_uninitialized(node) {
            return Err((true, "the node is not initialised yet".to_owned()));
        }
        let Some(server) = server_of(node, self.provider) else {
            return Err((
                false,
                format!("the node's provider ID {id:?} does not name a server that ccm looks up"),
            ));
        };
        match (
            self.claims.other(server, node),
            self.servers.unknown(server),
            self.by_id.get(&server),
        ) {
            (Some(other), ..) => {
                Err((false, format!("node {:?} has the same provider ID {id:?}", other.name())))
            }
            (_, Some(error), _) => {
                Err((true, format!("the node's server could not be read: {error}")))
            }
            (_, _, None) => Err((false, format!("server {server} of the node does not exist"))),
            (_, _, Some(found)) if found.name != node.name() => Err((
                false,
                format!(
                    "server {server} of the node is named {:?}, and not like the node",
                    found.name
                ),
            )),
            (_, _, Some(found)) => Ok(found),
        }
    }

    /// Whether the list of servers contains a server that the provider ID of some node names. Such a server proves that
    /// the token belongs to the right project.
    pub fn any_claim_exists(&self) -> bool {
        self.claims.nodes.keys().any(|id| self.by_id.contains_key(id))
    }

    /// Returns a finding (a message for the operator) when `instance` was found for this node, but the node must not
    /// get this server, because another node names the server as well. Most nodes name a server by their provider ID.
    /// Nodes of two kinds name the server that has their own name: new nodes without a provider ID, and nodes of
    /// another provider if a setting allows them as targets of load balancers.
    pub fn claimed_twice(&self, instance: &Instance, node: &KubeNode) -> Option<Finding> {
        let namesake = self.by_node_name.get(instance.name.as_str()).copied();
        let is_new = |node: &KubeNode| node.spec.provider_id.is_empty() && is_uninitialized(node);
        let is_target = |node: &KubeNode| {
            self.provider.matches_foreign_nodes() && is_foreign(node, self.provider)
        };
        let is_unique = self.named(&instance.name) == [instance];
        let namesake =
            namesake.filter(|node| is_new(node) || is_target(node)).filter(|_| is_unique);
        let others = self.claims.of(instance.id).iter().copied().chain(namesake);
        let rival = rival(others, node, Some(&instance.name))?;
        let (name, id, other) = (&instance.name, instance.id, rival.node.name());
        let message = if rival.is_keeper {
            format!(
                "the provider ID or the name of this node names server {name} ({id}), which belongs to node {other:?}. \
                 So ccm sets nothing on this node. Find out which of the two nodes runs on the server, and delete the \
                 other node"
            )
        } else {
            format!(
                "several new nodes, e.g. this node and {other:?}, name server {name} ({id}) in their provider IDs, and \
                 none of these nodes has the server's name. So ccm initialises none of them. Delete the nodes that do \
                 not run on the server"
            )
        };
        Some(Finding::warning(Reason::ServerClaimedTwice, message))
    }

    /// Returns an address among `ips` that this node is not allowed to get, or `None` when there is no such address. A
    /// node is not allowed to get an address that an initialised node has in its status or names in the annotation
    /// `internal-ip`. If this node is new and names the address in its own annotation `internal-ip`, it does not get
    /// the address either when another new node has it or names it.
    ///
    /// An initialised node keeps an address that it already has, even if another node has this address, too. This
    /// address is returned with `is_kept`, and only when `ips` contains no address that the node must not get.
    pub fn shared_address(
        &self,
        node: &KubeNode,
        ips: impl Iterator<Item = IpAddr>,
    ) -> Option<SharedAddress<'a>> {
        let is_new = is_uninitialized(node);
        let shared = ips.filter_map(|ip| {
            let others = self.asked_for.get(&ip)?.iter();
            let mut others = others.filter(|other| other.name() != node.name());
            let is_named = annotated_ips(node, INTERNAL_IP).any(|named| named == ip);
            let counts = |other: &&&KubeNode| !is_uninitialized(other) || (is_new && is_named);
            let is_kept = !is_new && reported_ips(node).contains(&ip);
            let other = others.find(counts)?.name();
            Some(SharedAddress { ip, other, is_kept })
        });
        shared.min_by_key(|shared| shared.is_kept)
    }

    fn by_address(&self, node: &KubeNode) -> MatchOutcome<'a> {
        let reported = reported_ips(node);
        let instances = self.provider.instances();
        let candidates = instances.map(|instances| self.recognised(instances, &reported));
        let candidates = candidates.unwrap_or_default();
        match candidates.as_slice() {
            [(instance, ip)] => match self.rival_by_address(instance, node) {
                None => MatchOutcome::Matched(instance, MatchedBy::Address(*ip)),
                Some(rival) => {
                    let (node, name, id) = (node.name(), &instance.name, instance.id);
                    let message = format!(
                        "no server is named {node:?}. Server {name} ({id}) has the address {ip} of this node, but also \
                         an address of node {rival:?}. So ccm does not know which of the two nodes runs on the server, \
                         and waits. Give the server the name of its node"
                    );
                    MatchOutcome::Unmatched(Finding::warning(Reason::InstanceLookupFailed, message))
                }
            },
            [] => MatchOutcome::Unmatched(self.not_found(node, &reported)),
            several => MatchOutcome::Unmatched(ambiguous(node, several)),
        }
    }

    /// Several nodes can report an address of this server, but only one node can get the server. Returns the name of
    /// the other node because of which `node` does not get it, or `None` when there is no such node.
    fn rival_by_address(&self, instance: &Instance, node: &KubeNode) -> Option<&'a str> {
        let nets = self.provider.instances()?.recognised_by(instance);
        let has_one = |ips: &[IpAddr]| ips.iter().any(|ip| nets.iter().any(|net| net.contains(ip)));
        let all = self.unmatched.iter().filter(|(_, ips)| has_one(ips));
        Some(rival(all.map(|(node, _)| *node), node, None)?.node.name())
    }

    /// Returns the servers that have one of the `reported` addresses, which are the addresses in a node's status. Each
    /// server comes with the reported address that it has. A server is left out when the provider ID of any node names
    /// it, or when any node has its name.
    fn recognised(
        &self,
        instances: &dyn Instances,
        reported: &[IpAddr],
    ) -> Vec<(&'a Instance, IpAddr)> {
        if reported.is_empty() {
            return Vec::new();
        }
        let free = |instance: &&Instance| {
            self.claims.of(instance.id).is_empty()
                && !self.by_node_name.contains_key(instance.name.as_str())
        };
        self.servers
            .iter()
            .filter(free)
            .filter_map(|instance| {
                let nets = instances.recognised_by(instance);
                let ip = reported.iter().find(|ip| nets.iter().any(|net| net.contains(*ip)))?;
                Some((instance, *ip))
            })
            .collect()
    }

    fn not_found(&self, node: &KubeNode, reported: &[IpAddr]) -> Finding {
        let addresses = match reported {
            [] => "the node reports no address by which its server could be found".to_owned(),
            some => format!(
                "none of the servers without a node has an address that the node reports ({})",
                text::some_of(&some.iter().map(IpAddr::to_string).collect::<Vec<_>>())
            ),
        };
        let looked_through = match self.servers.iter().next() {
            None => {
                "; the project has no servers at all, so the token may belong to another project"
            }
            // The message mentions the servers of the project only when there are none. The number of servers would
            // change with each new server, and each changed message would be a new event.
            _ => "",
        };
        let name = node.name();
        let message = format!("no server is named {name:?}, and {addresses}{looked_through}");
        Finding::warning(Reason::ServerNotFound, message).with_fix(NAME_A_SERVER)
    }
}

/// A conflict about an address that the kubelet of one node asks for, e.g. by `--node-ip`. Another node already has the
/// address, or the kubelet of another node asks for it as well.
pub struct SharedAddress<'a> {
    pub ip: IpAddr,
    /// The name of another node that has the address in its status, or whose kubelet also asks for the address.
    pub other: &'a str,
    /// Whether the node already has the address in its status. The node then keeps the address. Otherwise the node does
    /// not get it.
    pub is_kept: bool,
}

/// The rival of a node, i.e. another node that names the same server or address. Because of the rival, the node does
/// not get the server or address.
struct Rival<'a> {
    node: &'a KubeNode,
    /// Whether the rival (the other node) gets the server or address that both nodes name. Otherwise all nodes that
    /// name the server or address are new, and none of them gets it.
    is_keeper: bool,
}

/// Returns the rival of `node`, i.e. the node that gets a server or address instead of `node`. All nodes in `all` name
/// this server or address, and [`keeper`] decides which of them gets it. When [`keeper`] can't decide, none of the
/// nodes gets the server or address, and the rival is any other node in `all`. Returns `None` when `node` has no rival.
fn rival<'a>(
    all: impl Iterator<Item = &'a KubeNode>,
    node: &KubeNode,
    name: Option<&str>,
) -> Option<Rival<'a>> {
    let others: Vec<&KubeNode> = all.filter(|other| other.name() != node.name()).collect();
    let first = others.first()?;
    let claimants: Vec<&KubeNode> = others.iter().copied().chain([node]).collect();
    let Some(keeper) = keeper(&claimants, name) else {
        return Some(Rival { node: first, is_keeper: false });
    };
    let keeper = others.iter().find(|other| other.name() == keeper.name())?;
    Some(Rival { node: keeper, is_keeper: true })
}

/// Returns the addresses that a kubelet wants for its node. They come from the annotation for internal IPs and from the
/// annotation `provided-node-ip`. For a new node, the addresses in its status are added, because the kubelet has
/// written them. For an initialised node, an address in `provided-node-ip` that is already in the status is left out.
fn asked_ips(node: &KubeNode) -> impl Iterator<Item = IpAddr> {
    let reported = reported_ips(node);
    let (known, asked) =
        if is_uninitialized(node) { (Vec::new(), reported) } else { (reported, Vec::new()) };
    let provided = annotated_ips(node, PROVIDED_NODE_IP).filter(move |ip| !known.contains(ip));
    annotated_ips(node, INTERNAL_IP).chain(provided).chain(asked)
}

/// Returns the IP addresses in an annotation of the node. The value of the annotation must be one IP address, or two
/// addresses joined by a comma.
fn annotated_ips(node: &KubeNode, annotation: &str) -> impl Iterator<Item = IpAddr> {
    node.metadata.annotations.get(annotation).and_then(one_ip_or_two).into_iter().flatten()
}

fn reported_ips(node: &KubeNode) -> Vec<IpAddr> {
    node.status.addresses.iter().filter_map(NodeAddress::ip).collect()
}

/// Returns a finding (a message for the operator) about a node of another provider whose name no server has, or several
/// servers have.
fn not_one(node: &KubeNode, named: &[&Instance]) -> Finding {
    let name = node.name();
    if named.is_empty() {
        let message =
            format!("no server is named {name:?}, so the node is not a target of load balancers");
        return Finding::warning(Reason::ForeignNodeNotMatched, message).with_fix(NAME_A_SERVER);
    }
    let message = format!(
        "several servers are named {name:?}, so the node does not become a target of load balancers. If it already is \
         a target, it stays a target"
    );
    Finding::warning(Reason::InstanceLookupFailed, message).with_fix(NAME_ONE_SERVER)
}

fn ambiguous(node: &KubeNode, candidates: &[(&Instance, IpAddr)]) -> Finding {
    let list: Vec<String> = candidates
        .iter()
        .map(|(instance, ip)| format!("{} ({}) has {ip}", instance.name, instance.id))
        .collect();
    let (name, list) = (node.name(), text::some_of(&list));
    let message = format!(
        "no server is named {name:?}, and the node's addresses match several servers: {list}. Rename the server of \
         this node to the node's name"
    );
    Finding::warning(Reason::InstanceLookupFailed, message)
}

impl MatchedBy {
    /// Returns the word for JSON output that says how the server of a node was found, e.g. `providerID`.
    pub fn word(&self) -> &'static str {
        match self {
            MatchedBy::ProviderId => "providerID",
            MatchedBy::Name => "name",
            MatchedBy::Address(_) => "address",
        }
    }
}

impl fmt::Display for MatchedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchedBy::ProviderId => f.write_str("provider ID"),
            MatchedBy::Name => f.write_str("name"),
            MatchedBy::Address(ip) => write!(f, "address {ip}"),
        }
    }
}
