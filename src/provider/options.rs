//! The options of a provider (the code for one cloud). The settings are parsed into these plain types.

use super::source::Sourced;
use crate::text::selector::Selector;
use crate::text::{is_label_key, is_label_value, is_subdomain, named, quoted};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

named! {
    /// The value of `--cloud-provider`. It decides which provider IDs, labels and names of load balancers this program
    /// writes: its own or those of hcloud-cloud-controller-manager.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    Profile {
        /// This program writes provider IDs, labels and names of load balancers in its own form, and not in that of
        /// hcloud-cloud-controller-manager.
        #[default]
        CcmFromScratch = "ccm-from-scratch",
        /// This program writes provider IDs, labels and names of load balancers in the form of
        /// hcloud-cloud-controller-manager, so that it can replace that program.
        Hcloud = "hcloud",
    }
}

named! {
    /// The value of `HCLOUD_INSTANCES_ADDRESS_FAMILY`. It decides which public addresses of a server become an
    /// `ExternalIP` of the node.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    AddressFamily {
        #[default]
        Ipv4 = "ipv4",
        Ipv6 = "ipv6",
        Dualstack = "dualstack",
        /// No public address becomes an `ExternalIP`.
        None = "none",
    }
}

named! {
    /// The value of `HCLOUD_INSTANCES_ZONE_LABEL`. It decides whether the zone label of a node names the data center or
    /// the location of its server.
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    ZoneLabel {
        /// The zone label names the data center of the server, e.g. `nbg1-dc3`. For a cloud server this is the data
        /// center's old name, which hcloud-cloud-controller-manager writes, too.
        Datacenter = "datacenter",
        /// The zone label names the location of the server, e.g. `nbg1`.
        Location = "location",
    }
}

/// The settings of the zone label that a node gets when it is initialised.
#[derive(Clone, Copy, Debug)]
pub struct ZoneSettings {
    /// Whether nodes get a zone label (`HCLOUD_INSTANCES_ZONE_LABEL_ENABLED`).
    pub is_enabled: bool,
    /// The value of `HCLOUD_INSTANCES_ZONE_LABEL`. When it is unset, this is `None`, and the value of
    /// `--cloud-provider` decides which zone label a node gets.
    pub label: Option<ZoneLabel>,
}

/// The value of `HCLOUD_INSTANCES_INTERNAL_IP_FROM`. It decides which address becomes the `InternalIP` of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InternalIpFrom {
    /// The server's address in the private Network becomes the `InternalIP`, and no other address.
    #[default]
    Network,
    /// The address in the kubelet's `--node-ip` becomes the `InternalIP`, even when the cloud's API does not list this
    /// address.
    Kubelet,
}

/// The value of `HCLOUD_LOAD_BALANCERS_FOREIGN_NODES`. It decides whether nodes of other providers can be targets of
/// load balancers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignNodes {
    /// A node with the provider ID of another provider is no target.
    #[default]
    Ignore,
    /// A node of another provider is a target when exactly one server has its name, and the node reports an address of
    /// this server.
    Match,
}

/// The value of `HCLOUD_INSTANCES_LABEL_PREFIXES`. It lists the labels of servers that are copied to their nodes:
/// `DOMAIN/` for all labels of a domain, or `DOMAIN/NAME` for one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPrefixes(pub Vec<String>);

/// Whether the label belongs to Kubernetes, because its domain is `kubernetes.io`, `k8s.io` or a subdomain of these.
pub fn is_kubernetes_label(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    let is_in =
        |of: &str| domain.strip_suffix(of).is_some_and(|it| it.is_empty() || it.ends_with('.'));
    is_in("kubernetes.io") || is_in("k8s.io")
}

impl LabelPrefixes {
    pub fn allow(&self, key: &str) -> bool {
        let allows = |prefix: &String| {
            if prefix.ends_with('/') { key.starts_with(prefix) } else { key == prefix }
        };
        self.0.iter().any(allows)
    }
}

/// The value of `HCLOUD_NETWORK`, which names the private Network. A text of digits is an ID, and any other text is a
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSelector {
    Id(u64),
    Name(String),
}

named! {
    /// The value of `HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE`. The algorithm chooses the target of a new connection.
    #[derive(Default, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    Algorithm {
        #[default]
        RoundRobin = "round_robin",
        LeastConnections = "least_connections",
        /// An algorithm which the API has, and which this version of the program does not know.
        #[serde(other)]
        Unknown = "unknown",
    }
}

named! {
    /// The value of `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK`. It names the program on the nodes that answers health checks
    /// of load balancers.
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    HealthCheck {
        /// Health checks ask kube-proxy, or a program that replaces it. This applies only to Services with
        /// `externalTrafficPolicy: Cluster`.
        KubeProxy = "kube-proxy",
    }
}

/// Labels that users want on load balancers, e.g. from `HCLOUD_LOAD_BALANCERS_LABELS`. They have no meaning for this
/// program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

impl Labels {
    /// The highest number of labels in one setting or annotation. The Cloud API returns all labels with each list of
    /// load balancers. Without a limit, one user who writes many labels into an annotation would make these lists
    /// large.
    const AT_MOST: usize = 32;

    /// The prefixes of labels that users are not allowed to set. Labels with the first two prefixes say to which
    /// Service a load balancer belongs. The last prefix belongs to Hetzner.
    const RESERVED: [&str; 3] = ["ccm-from-scratch/", "hcloud-ccm/", "hetzner.cloud/"];

    /// Parses labels like `team=web,cost=42`, by the rules of the Cloud API. The error says what is
    /// wrong with the text.
    pub fn parse(text: &str) -> Result<Labels, String> {
        let mut labels = BTreeMap::new();
        let items = text.split(',').map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            let wrong = |why: &str| Err(format!("{} {why}", quoted(item)));
            let Some((key, value)) = item.split_once('=') else {
                return wrong("is not of the form KEY=VALUE");
            };
            if Labels::RESERVED.iter().any(|reserved| key.starts_with(reserved)) {
                return wrong(
                    "can't be set, because keys that begin with ccm-from-scratch/, hcloud-ccm/ or hetzner.cloud/ are \
                     reserved",
                );
            }
            if !is_label_key(key) || !is_label_value(value) {
                return wrong(
                    "is not a label; key and value have at most 63 letters, digits, -, _ or ., e.g. team=web",
                );
            }
            if labels.insert(key.to_owned(), value.to_owned()).is_some() {
                return wrong("has a key that occurs twice");
            }
        }
        match labels.len() {
            0..=Labels::AT_MOST => Ok(Labels(labels)),
            count => {
                Err(format!("it has {count} labels, but at most {} are allowed", Labels::AT_MOST))
            }
        }
    }
}

/// The domains for which Services can have managed certificates. Each domain includes its subdomains. When the list is
/// empty, managed certificates are turned off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateDomains(pub Vec<String>);

impl CertificateDomains {
    /// Parses a list of domains such as `example.com,example.org`, or the word `none`. The error says what is
    /// wrong with the text.
    pub fn parse(text: &str) -> Result<CertificateDomains, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(CertificateDomains::default());
        }
        let items = text.split(',').map(|item| item.trim().to_ascii_lowercase());
        let domains: Vec<String> = items.filter(|item| !item.is_empty()).collect();
        let is_domain = |domain: &String| domain.contains('.') && is_subdomain(domain);
        match domains.iter().find(|domain| !is_domain(domain)) {
            None if !domains.is_empty() => Ok(CertificateDomains(domains)),
            wrong => Err(format!(
                "{} is no domain; use domains, e.g. example.com,example.org (each includes its subdomains), or the \
                 word none",
                quoted(wrong.map_or(text, String::as_str))
            )),
        }
    }

    /// Whether Services can have a managed certificate for this domain. `domain` can begin with `*.`.
    pub fn covers(&self, domain: &str) -> bool {
        let name = domain.strip_prefix("*.").unwrap_or(domain).to_ascii_lowercase();
        self.0.iter().any(|allowed| {
            let parent = name.strip_suffix(allowed.as_str());
            parent.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }
}

/// The settings `HCLOUD_LOAD_BALANCERS_*`. Some of them are defaults for Services without the corresponding annotation.
/// The settings in `permitted` limit what Services can ask for. A field is `None` when its setting is unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerDefaults {
    /// `HCLOUD_LOAD_BALANCERS_TYPE`: the load balancer type, e.g. `lb11`. With the word `auto`, this program chooses
    /// the type.
    pub kind: Option<Sourced<String>>,
    /// `HCLOUD_LOAD_BALANCERS_LOCATION`: the location of new load balancers. It can't be
    /// set together with `network_zone`.
    pub location: Option<Sourced<String>>,
    /// `HCLOUD_LOAD_BALANCERS_NETWORK_ZONE`: the network zone of new load balancers. `None` when it is not set.
    pub network_zone: Option<Sourced<String>>,
    /// `HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE`: the algorithm that chooses the target of a new connection.
    pub algorithm: Option<Sourced<Algorithm>>,
    pub network: NetworkDefaults,
    /// `HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL`: whether load balancers send the PROXY protocol to the targets.
    pub uses_proxyprotocol: Option<Sourced<bool>>,
    pub health_check: HealthCheckDefaults,
    /// `HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY`: how long a node stays a target after this program has noticed that the
    /// node will stop soon, e.g. because it is drained.
    pub departing_delay: Option<Sourced<Duration>>,
    /// `HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS`: whether nodes with pods become targets first when the load
    /// balancer can't have all nodes as targets.
    pub prefer_nodes_with_pods: Option<Sourced<bool>>,
    /// `HCLOUD_LOAD_BALANCERS_LABELS`: labels for all load balancers. A label with the same key in the Service's
    /// annotation wins.
    pub labels: Option<Sourced<Labels>>,
    pub permitted: PermittedUse,
}

/// The settings for the networks of load balancers. They decide by which addresses clients reach a load balancer, and
/// by which addresses a load balancer reaches the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkDefaults {
    /// `HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK`: whether the public interface of load balancers is turned off.
    pub disable_public_network: Option<Sourced<bool>>,
    /// `HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS`: whether the load balancer's private IP is left out of the
    /// Service's status. `None` when it is not set.
    pub disable_private_ingress: Option<Sourced<bool>>,
    /// `HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP`: whether load balancers reach targets by their private IP.
    pub use_private_ip: Option<Sourced<bool>>,
    /// `HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE`: the subnet to which load balancers are attached.
    pub private_subnet: Option<Sourced<Ipv4Net>>,
    /// `HCLOUD_LOAD_BALANCERS_DISABLE_IPV6`: whether the load balancer's IPv6 address is left out of the Service's
    /// status. `None` when the variable is not set.
    pub disable_ipv6: Option<Sourced<bool>>,
}

/// The settings of the health checks by which load balancers check their targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheckDefaults {
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK`: the program on the nodes that answers health checks. `None` means that the
    /// node port is checked.
    pub kind: Option<Sourced<HealthCheck>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL`: the time between two health checks, in seconds.
    pub interval_s: Option<Sourced<u32>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT`: the longest time for an answer to a health check, in seconds.
    pub timeout_s: Option<Sourced<u32>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES`: how many health checks in a row change the health of a target.
    pub retries: Option<Sourced<u32>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT`: whether the health checks for Services with
    /// `externalTrafficPolicy: Local` use the health check node port.
    pub node_port: Option<Sourced<bool>>,
}

/// The settings that limit what Services can use in the Hetzner Cloud project: private addresses, Primary IPs and
/// certificates. A field is `None` when its setting is unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermittedUse {
    /// `HCLOUD_LOAD_BALANCERS_TYPE_MAX`: the largest type that load balancers can get.
    pub largest_type: Option<Sourced<String>>,
    /// `HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES`: the ranges of the private addresses that Services can ask for.
    pub private_ipv4_ranges: Option<Sourced<Vec<Ipv4Net>>>,
    /// `HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR`: the label selector for the Primary IPs that Services can use.
    pub primary_ip_selector: Option<Sourced<Selector>>,
    /// `HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR`: the label selector for the certificates that Services can use,
    /// besides the certificates of their own namespace. Without this setting a Service can use every certificate that
    /// does not belong to another namespace or cluster.
    pub certificate_selector: Option<Sourced<Selector>>,
    /// `HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS`: the domains for which Services can have managed certificates.
    pub certificate_domains: Option<Sourced<CertificateDomains>>,
}

impl PermittedUse {
    /// Whether Services can ask for this address in the private Network.
    pub fn allows_private_ipv4(&self, ip: Ipv4Addr) -> bool {
        let ranges = self.private_ipv4_ranges.as_ref();
        ranges.is_none_or(|ranges| ranges.value.iter().any(|range| range.contains(&ip)))
    }
}

impl fmt::Display for NetworkSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkSelector::Id(id) => id.fmt(out),
            NetworkSelector::Name(name) => name.fmt(out),
        }
    }
}
