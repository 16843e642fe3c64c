//! The API's JSON for load balancers and Primary IPs, with only the fields that this program uses.

use super::listener::Listener;
use crate::hetzner::api::{Location, Reference};
pub use crate::provider::Algorithm;
use crate::provider::{Cluster, InstanceId, Interned};
use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A load balancer of the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct LoadBalancer {
    pub id: u64,
    pub name: String,
    /// The time at which the load balancer was created. `None` means that the API gave no valid time.
    #[serde(default, deserialize_with = "or_none")]
    pub created: Option<Timestamp>,
    /// The labels of the load balancer. An answer of the API without `labels`, `protection`, `services` or `targets` is
    /// an error. Otherwise a load balancer with missing data would look as if it had no owner, or as if nobody used it.
    pub labels: BTreeMap<String, String>,
    pub load_balancer_type: BalancerType,
    pub location: Location,
    pub algorithm: AlgorithmOf,
    pub protection: Protection,
    pub public_net: BalancerPublicNet,
    #[serde(default)]
    pub private_net: Vec<BalancerPrivateNet>,
    pub services: Vec<Listener>,
    #[serde(deserialize_with = "sharing_health")]
    pub targets: Vec<ApiTarget>,
    /// The outgoing traffic of the current month, in bytes. `None` when the API does not give it.
    pub outgoing_traffic: Option<u64>,
    pub ingoing_traffic: Option<u64>,
    pub included_traffic: Option<u64>,
}

/// A type of load balancer, with its limits and its prices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct BalancerType {
    pub id: u64,
    pub name: String,
    pub max_targets: usize,
    pub max_services: usize,
    pub max_assigned_certificates: usize,
    #[serde(default)]
    pub deprecation: Option<Deprecation>,
    /// The price in each location in which the type exists. The list is empty when the API's answer has no prices.
    #[serde(default)]
    pub prices: Vec<PriceOf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct PriceOf {
    pub location: Interned,
    #[serde(default)]
    pub price_monthly: Monthly,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Monthly {
    /// The price without taxes, as a decimal number.
    pub net: Interned,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Deprecation {
    /// The time after which no load balancer of this type can be created, in RFC 3339.
    pub unavailable_after: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AlgorithmOf {
    #[serde(rename = "type")]
    pub kind: Algorithm,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Protection {
    pub delete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct BalancerPublicNet {
    pub enabled: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub ipv4: BalancerPublicIp,
    #[serde(default, deserialize_with = "or_default")]
    pub ipv6: BalancerPublicIp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct BalancerPublicIp {
    /// The ID of the Primary IP. `None` when the API does not give one.
    #[serde(default)]
    pub id: Option<u64>,
    #[serde(default)]
    pub ip: Option<IpAddr>,
    #[serde(default)]
    pub dns_ptr: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct BalancerPrivateNet {
    pub network: u64,
    #[serde(default)]
    pub ip: Option<Ipv4Addr>,
}

/// A target of a load balancer, as the API describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "TargetFields")]
pub enum ApiTarget {
    Server {
        server: Reference,
        use_private_ip: bool,
        health_status: Arc<[HealthStatus]>,
    },
    Ip {
        ip: IpRef,
        health_status: Arc<[HealthStatus]>,
    },
    /// A label selector, which a person added as a target by hand. All servers that the selector matches are
    /// then targets.
    LabelSelector {
        label_selector: SelectorRef,
        /// The servers that the selector matches now. Each of them counts towards the limit of targets that the load
        /// balancer's type has. `None` means that the API did not list the servers.
        targets: Option<Vec<SelectedServer>>,
    },
    /// A target of a type that this version of the program does not support.
    Unknown,
}

/// The fields of targets of all types. They are read in one step, because a list of load balancers can have thousands of
/// targets. An enum with a tag would first be stored as fields of any form, and then be read from there.
#[derive(Deserialize)]
struct TargetFields {
    #[serde(rename = "type")]
    kind: Interned,
    server: Option<Reference>,
    use_private_ip: Option<bool>,
    ip: Option<IpRef>,
    health_status: Option<Vec<HealthStatus>>,
    label_selector: Option<SelectorRef>,
    targets: Option<Vec<SelectedServer>>,
}

impl TryFrom<TargetFields> for ApiTarget {
    type Error = String;

    fn try_from(fields: TargetFields) -> Result<ApiTarget, String> {
        let health_status = fields.health_status.unwrap_or_default().into();
        let without = |field: &str| format!("a target of type {field} has no field `{field}`");
        Ok(match &*fields.kind {
            "server" => ApiTarget::Server {
                server: fields.server.ok_or_else(|| without("server"))?,
                use_private_ip: fields.use_private_ip.unwrap_or_default(),
                health_status,
            },
            "ip" => ApiTarget::Ip { ip: fields.ip.ok_or_else(|| without("ip"))?, health_status },
            "label_selector" => ApiTarget::LabelSelector {
                label_selector: fields.label_selector.ok_or_else(|| without("label_selector"))?,
                targets: fields.targets,
            },
            _ => ApiTarget::Unknown,
        })
    }
}

impl ApiTarget {
    /// Returns the servers or IP addresses that this target stands for, each with the results of its health checks. A
    /// label selector stands for every server that has the labels. An entry has `None` when it is not known which
    /// servers these are.
    pub(crate) fn machines(&self) -> Vec<(Option<TargetId>, &[HealthStatus])> {
        match self {
            ApiTarget::Server { server, health_status, .. } => {
                vec![(Some(TargetId::Server(server.id)), health_status)]
            }
            ApiTarget::Ip { ip, health_status } => {
                vec![(Some(TargetId::Address(ip.ip)), health_status)]
            }
            ApiTarget::LabelSelector { targets: Some(selected), .. } => selected
                .iter()
                .map(|server| (Some(TargetId::Server(server.server.id)), &server.health_status[..]))
                .collect(),
            ApiTarget::LabelSelector { .. } | ApiTarget::Unknown => vec![(None, &[])],
        }
    }
}

/// The identity of a target that is a single machine, and not a label selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetId {
    /// The ID of a cloud server.
    Server(u64),
    /// A target that is known by its IP address, because it is a dedicated server.
    Address(IpAddr),
}

impl TargetId {
    pub fn is_private_address(self) -> bool {
        matches!(self, TargetId::Address(IpAddr::V4(ip)) if ip.is_private())
    }

    /// Returns the name of the node that runs on this target (a cloud server or the address of a dedicated server).
    /// `None` means that no node of this cluster runs there.
    pub(crate) fn node(self, cluster: &Cluster) -> Option<&String> {
        match self {
            TargetId::Server(id) => cluster.servers.get(&InstanceId::Cloud(id)),
            TargetId::Address(ip) => cluster.dedicated.get(&ip),
        }
    }

    /// Whether the target is the server or the address of a node of this cluster that has a provider ID of Hetzner. The
    /// result is `false` for a node with the provider ID of another provider, e.g. `k3s://`, because such an ID does
    /// not name the server.
    pub(crate) fn is_claimed(self, cluster: &Cluster) -> bool {
        self.node(cluster).is_some_and(|node| !cluster.target_only.contains(node))
    }

    /// Whether data from Hetzner prove that the target is a node of this cluster. An address that only a kubelet
    /// reports is no proof, because a kubelet can report any address.
    pub(crate) fn is_proven(self, cluster: &Cluster) -> bool {
        match self {
            TargetId::Server(_) => self.node(cluster).is_some(),
            TargetId::Address(ip) => cluster.proven.contains(&ip),
        }
    }

    /// Returns the target as text for messages: the name of its node, or else its ID or address.
    pub(crate) fn shown(self, cluster: &Cluster) -> String {
        match (self.node(cluster), self) {
            (Some(name), TargetId::Server(_)) => name.clone(),
            (Some(name), TargetId::Address(ip)) => format!("{name} ({ip})"),
            (None, TargetId::Server(id)) => format!("server {id}"),
            (None, TargetId::Address(ip)) => ip.to_string(),
        }
    }

    /// Returns the target in the form of an API request. `use_private_ip` becomes part of the request only for a cloud
    /// server.
    pub fn in_request(self, use_private_ip: Option<bool>) -> TargetInRequest {
        match self {
            TargetId::Server(id) => {
                TargetInRequest::Server { server: Reference { id }, use_private_ip }
            }
            TargetId::Address(ip) => TargetInRequest::Ip { ip: IpRef { ip } },
        }
    }
}

/// A target in the form of an API request. This type takes 24 bytes of memory, whereas a JSON value with the same data
/// takes 1.3 kB. Plans can contain thousands of targets at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TargetInRequest {
    Server {
        server: Reference,
        #[serde(skip_serializing_if = "Option::is_none")]
        use_private_ip: Option<bool>,
    },
    Ip {
        ip: IpRef,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SelectedServer {
    pub server: Reference,
    #[serde(default)]
    pub health_status: Vec<HealthStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct IpRef {
    pub ip: IpAddr,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SelectorRef {
    pub selector: String,
}

/// The result of one port's health check for one target. Equal texts are stored in memory only once, because thousands
/// of results have the same texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HealthStatus {
    pub listen_port: u16,
    pub status: Interned,
    #[serde(default)]
    pub detail: Option<Interned>,
    #[serde(default)]
    pub http_status_code: Option<u16>,
}

/// A public address that the project owns, and that a server or a load balancer can use. It can stay in the project
/// when the server or load balancer is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct PrimaryIp {
    pub id: u64,
    pub name: String,
    /// An IPv4 address, or an IPv6 network with the prefix length 64.
    pub ip: String,
    /// The address family, `ipv4` or `ipv6`.
    #[serde(rename = "type")]
    pub kind: String,
    pub location: Location,
    /// The labels of the Primary IP. An answer of the API without them is an error, because the settings can allow
    /// Services to use only addresses with certain labels.
    pub labels: BTreeMap<String, String>,
    /// The ID of the server or load balancer that uses the address. `None` means that the address is free.
    #[serde(default)]
    pub assignee_id: Option<u64>,
    #[serde(default)]
    pub assignee_type: String,
    /// Whether Hetzner deletes the address together with the server or load balancer that uses it.
    #[serde(default)]
    pub auto_delete: bool,
    #[serde(default)]
    pub blocked: bool,
}

impl PrimaryIp {
    /// Returns `"name" (id, address)` as text for messages. The name is quoted, because a name such as `free` would
    /// look like a word of the message.
    pub fn shown(&self) -> String {
        format!("{:?} ({}, {})", self.name, self.id, self.ip)
    }

    /// Returns the Primary IP whose ID is `text`, or else the one whose name is `text`, or else the one with the
    /// address `text`.
    pub(crate) fn named<'a>(
        all: impl Iterator<Item = &'a PrimaryIp> + Clone,
        text: &str,
    ) -> Option<&'a PrimaryIp> {
        let by = |is_it: &dyn Fn(&&PrimaryIp) -> bool| all.clone().find(is_it);
        by(&|primary_ip| primary_ip.id.to_string() == text)
            .or_else(|| by(&|primary_ip| primary_ip.name == text))
            .or_else(|| by(&|primary_ip| covers(&primary_ip.ip, text)))
    }
}

/// Whether the network or single address `range` contains `address`.
pub(crate) fn covers(range: &str, address: &str) -> bool {
    let net = |text: &str| {
        text.parse::<IpAddr>().map(IpNet::from).or_else(|_| text.parse::<IpNet>()).ok()
    };
    let both = net(range).zip(net(address));
    both.is_some_and(|(range, address)| range.contains(&address.addr()))
}

impl BalancerType {
    /// Returns the limits of the type: targets, ports and certificates. A type with higher limits is a larger type.
    pub fn size(&self) -> (usize, usize, usize) {
        (self.max_targets, self.max_services, self.max_assigned_certificates)
    }
}

impl LoadBalancer {
    /// Returns `"name" (id)` as text for messages. The name is quoted, because a name such as `old` would look like a
    /// word of the message.
    pub fn shown(&self) -> String {
        format!("{:?} ({})", self.name, self.id)
    }

    /// Returns the load balancer's attachment to this private Network. `None` means that it is not attached
    /// to this Network.
    pub fn attached(&self, network: u64) -> Option<&BalancerPrivateNet> {
        self.private_net.iter().find(|net| net.network == network)
    }

    /// Returns the port of the load balancer that listens on this port number.
    pub fn listener(&self, listen_port: u16) -> Option<&Listener> {
        self.services.iter().find(|listener| listener.listen_port == listen_port)
    }

    /// Returns the public and the private addresses of the load balancer.
    pub fn all_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let public = [&self.public_net.ipv4, &self.public_net.ipv6];
        let private = self.private_net.iter().filter_map(|net| net.ip);
        public.into_iter().filter_map(|public_ip| public_ip.ip).chain(private.map(IpAddr::from))
    }

    /// Returns the monthly price of the load balancer without taxes. `None` when the API gives no price for its
    /// location.
    pub fn monthly_price(&self) -> Option<f64> {
        let prices = &self.load_balancer_type.prices;
        let price = prices.iter().find(|price| *price.location == *self.location.name)?;
        price.price_monthly.net.parse().ok()
    }

    /// Returns the number of targets that this program never changes, because they are not single servers or IPs. They
    /// are, for example, the servers of a label selector that a person added. They count towards the limit of targets
    /// that the load balancer's type has.
    pub fn other_targets(&self) -> usize {
        let count = |target: &ApiTarget| match target {
            ApiTarget::Server { .. } | ApiTarget::Ip { .. } => 0,
            ApiTarget::LabelSelector { targets, .. } => targets.as_ref().map_or(0, Vec::len),
            ApiTarget::Unknown => 1,
        };
        self.targets.iter().map(count).sum()
    }

    /// Returns the servers that are single targets, and not only part of a label selector. Each ID comes with `true`
    /// when the load balancer reaches the server by its private IP.
    pub fn server_targets(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let targets = self.single_targets();
        targets.filter_map(|(target, by_private)| match target {
            TargetId::Server(id) => Some((id, by_private)),
            TargetId::Address(_) => None,
        })
    }

    /// Returns the servers and IPs that are single targets, and not only part of a label selector. Each target comes
    /// with `true` when the load balancer reaches it by a private IP.
    pub fn single_targets(&self) -> impl Iterator<Item = (TargetId, bool)> + '_ {
        self.targets.iter().filter_map(|target| match target {
            ApiTarget::Server { server, use_private_ip, .. } => {
                Some((TargetId::Server(server.id), *use_private_ip))
            }
            ApiTarget::Ip { ip, .. } => {
                let id = TargetId::Address(ip.ip);
                Some((id, id.is_private_address()))
            }
            ApiTarget::LabelSelector { .. } | ApiTarget::Unknown => None,
        })
    }
}

/// Reads the targets of a load balancer. Targets with the same results of their health checks share these in memory,
/// because the results of all targets are mostly the same.
fn sharing_health<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ApiTarget>, D::Error> {
    let mut targets = Vec::<ApiTarget>::deserialize(deserializer)?;
    targets.shrink_to_fit();
    let mut last: Arc<[HealthStatus]> = Arc::default();
    for target in &mut targets {
        if let ApiTarget::Server { health_status, .. } | ApiTarget::Ip { health_status, .. } =
            target
        {
            if *health_status == last {
                *health_status = Arc::clone(&last);
            } else {
                last = Arc::clone(health_status);
            }
        }
    }
    Ok(targets)
}

/// Reads an optional time. When the text is not a valid time, the result is `None`.
fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Reads a value from JSON. For `null`, the default of the type is returned.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(target: Value) -> Result<ApiTarget, String> {
        serde_json::from_value(target).map_err(|error| error.to_string())
    }

    #[test]
    fn targets_with_the_same_health_share_it_in_memory() {
        let target = |id: u64, status: &str| {
            let health = [json!({"listen_port": 80, "status": status})];
            json!({"type": "server", "server": {"id": id}, "health_status": health})
        };
        let targets = [(1, "healthy"), (2, "healthy"), (3, "unhealthy"), (4, "unhealthy")];
        let sent = targets.map(|(id, status)| target(id, status));
        let targets = sharing_health(json!(sent)).unwrap();
        let health: Vec<_> = targets
            .iter()
            .map(|target| match target {
                ApiTarget::Server { health_status, .. } => health_status,
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(health[1][0].status, "healthy");
        assert_eq!(health[3][0].status, "unhealthy");
        for (one, other, is_shared) in [(0, 1, true), (1, 2, false), (2, 3, true)] {
            assert_eq!(Arc::ptr_eq(health[one], health[other]), is_shared, "{one} {other}");
        }
    }

    #[test]
    fn a_target_is_read_by_its_type() {
        let server = |use_private_ip| ApiTarget::Server {
            server: Reference { id: 7 },
            use_private_ip,
            health_status: Arc::default(),
        };
        let ip = ApiTarget::Ip {
            ip: IpRef { ip: "192.0.2.1".parse().unwrap() },
            health_status: Arc::default(),
        };
        let selector = ApiTarget::LabelSelector {
            label_selector: SelectorRef { selector: "a=b".into() },
            targets: None,
        };
        for (sent, expected) in [
            (json!({"type": "server", "server": {"id": 7}, "use_private_ip": true}), server(true)),
            (json!({"type": "server", "server": {"id": 7}, "ip": null}), server(false)),
            // The API sends the fields in any order.
            (json!({"ip": {"ip": "192.0.2.1"}, "health_status": [], "type": "ip"}), ip),
            (json!({"type": "label_selector", "label_selector": {"selector": "a=b"}}), selector),
            (json!({"type": "vswitch", "vswitch": {"id": 7}}), ApiTarget::Unknown),
        ] {
            assert_eq!(read(sent.clone()), Ok(expected), "{sent}");
        }
        for kind in ["server", "ip", "label_selector"] {
            let error = read(json!({ "type": kind })).unwrap_err();
            assert_eq!(error, format!("a target of type {kind} has no field `{kind}`"));
        }
    }
}
