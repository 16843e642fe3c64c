//! The options of a provider: the plain types that settings are parsed into.

use super::source::Sourced;
use crate::text::selector::Selector;
use crate::text::{is_label_key, is_label_value, is_subdomain, named, quoted};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

named! {
    /// `--cloud-provider`: which program's provider IDs, labels and names are written.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    Profile {
        /// Our own provider IDs, labels and names.
        #[default]
        CcmFromScratch = "ccm-from-scratch",
        /// The provider IDs, labels and names of hcloud-cloud-controller-manager, which we replace.
        Hcloud = "hcloud",
    }
}

named! {
    /// `HCLOUD_INSTANCES_ADDRESS_FAMILY`: which public addresses become `ExternalIP`.
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

/// `HCLOUD_INSTANCES_INTERNAL_IP_FROM`: which private address becomes `InternalIP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InternalIpFrom {
    /// The address in the private Network, and no other.
    #[default]
    Network,
    /// The address of the kubelet's `--node-ip`, even when the cloud does not know this address.
    Kubelet,
}

/// `HCLOUD_INSTANCES_LABEL_PREFIXES`: the labels of servers that become labels of their nodes. `DOMAIN/` means all
/// labels of a domain, and `DOMAIN/NAME` means one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPrefixes(pub Vec<String>);

/// Whether the label is in a domain whose labels have a meaning to Kubernetes.
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

/// `HCLOUD_NETWORK`: digits are the ID of a network, anything else is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSelector {
    Id(u64),
    Name(String),
}

named! {
    /// `HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE`: which target gets the next connection.
    #[derive(Default, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    Algorithm {
        #[default]
        RoundRobin = "round_robin",
        LeastConnections = "least_connections",
        /// A value that the API did not have when this program was written.
        #[serde(other)]
        Unknown = "unknown",
    }
}

named! {
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK`: the program that health checks ask whether a node takes traffic.
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    HealthCheck {
        /// kube-proxy, or a program that replaces it, answers for the node. Used with `externalTrafficPolicy: Cluster`.
        KubeProxy = "kube-proxy",
    }
}

/// `HCLOUD_LOAD_BALANCERS_LABELS`: the labels that users choose for load balancers. No decision is
/// based on these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

impl Labels {
    /// How many labels are accepted. A tenant may write the labels, and every list of load balancers contains them.
    const AT_MOST: usize = 32;

    /// The prefixes of labels that name the owner of a load balancer. The last prefix is the cloud's own.
    const RESERVED: [&str; 3] = ["ccm-from-scratch/", "hcloud-ccm/", "hetzner.cloud/"];

    /// Parses labels like `team=web,cost=42`, by the rules of the Cloud API. The error says what is
    /// wrong with the text.
    pub fn parse(text: &str) -> Result<Labels, String> {
        let mut labels = BTreeMap::new();
        let items = text.split(',').map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            let wrong = |why: &str| Err(format!("{}: {why}", quoted(item)));
            let Some((key, value)) = item.split_once('=') else {
                return wrong("write KEY=VALUE");
            };
            if Labels::RESERVED.iter().any(|reserved| key.starts_with(reserved)) {
                return wrong(
                    "labels of ccm-from-scratch/, hcloud-ccm/ and hetzner.cloud/ are reserved",
                );
            }
            if !is_label_key(key) || !is_label_value(value) {
                return wrong(
                    "it is not a label; key and value have at most 63 letters, digits, -, _ or ., e.g. team=web",
                );
            }
            if labels.insert(key.to_owned(), value.to_owned()).is_some() {
                return wrong("the key occurs twice");
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

/// The domains for which Services may have managed certificates. Each domain covers its subdomains. An empty list means
/// that no domain is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateDomains(pub Vec<String>);

impl CertificateDomains {
    /// Parses `example.com,example.org` or `none`. The error says what is wrong with the text.
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
                "{} is no domain; use the word none, or domains, e.g. example.com,example.org, which include their \
                 subdomains",
                quoted(wrong.map_or(text, String::as_str))
            )),
        }
    }

    /// Whether a certificate for this domain is allowed. The first part of `domain` may be `*`.
    pub fn covers(&self, domain: &str) -> bool {
        let name = domain.strip_prefix("*.").unwrap_or(domain).to_ascii_lowercase();
        self.0.iter().any(|allowed| {
            let parent = name.strip_suffix(allowed.as_str());
            parent.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }
}

/// The settings `HCLOUD_LOAD_BALANCERS_*`: the defaults for Services without the corresponding annotation, and the
/// limits of what Services may ask for. `None` means that the setting is unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerDefaults {
    /// `…_TYPE`.
    pub kind: Option<Sourced<String>>,
    /// `…_LOCATION`. Excludes `network_zone`.
    pub location: Option<Sourced<String>>,
    /// `…_NETWORK_ZONE`.
    pub network_zone: Option<Sourced<String>>,
    /// `…_ALGORITHM_TYPE`.
    pub algorithm: Option<Sourced<Algorithm>>,
    pub network: NetworkDefaults,
    /// `…_USES_PROXYPROTOCOL`.
    pub uses_proxyprotocol: Option<Sourced<bool>>,
    pub health_check: HealthCheckDefaults,
    /// `…_LABELS`: the labels of all load balancers. A label with the same key in a Service's annotation wins.
    pub labels: Option<Sourced<Labels>>,
    pub permitted: PermittedUse,
}

/// The addresses by which load balancers are reached, and by which they reach the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkDefaults {
    /// `…_DISABLE_PUBLIC_NETWORK`.
    pub disable_public_network: Option<Sourced<bool>>,
    /// `…_DISABLE_PRIVATE_INGRESS`.
    pub disable_private_ingress: Option<Sourced<bool>>,
    /// `…_USE_PRIVATE_IP`.
    pub use_private_ip: Option<Sourced<bool>>,
    /// `…_PRIVATE_SUBNET_IP_RANGE`.
    pub private_subnet: Option<Sourced<Ipv4Net>>,
    /// `…_DISABLE_IPV6`.
    pub disable_ipv6: Option<Sourced<bool>>,
}

/// The settings of the health checks of targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheckDefaults {
    /// `…_HEALTH_CHECK`.
    pub kind: Option<Sourced<HealthCheck>>,
    /// `…_HEALTH_CHECK_INTERVAL`, in seconds.
    pub interval_s: Option<Sourced<u32>>,
    /// `…_HEALTH_CHECK_TIMEOUT`, in seconds.
    pub timeout_s: Option<Sourced<u32>>,
    /// `…_HEALTH_CHECK_RETRIES`.
    pub retries: Option<Sourced<u32>>,
    /// `…_HEALTH_CHECK_NODE_PORT`: profile `hcloud` checks `externalTrafficPolicy: Local` at the
    /// health check node port only when this is true.
    pub node_port: Option<Sourced<bool>>,
}

/// The objects of the project that Services may use. `None` means that Services may use all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermittedUse {
    /// `…_PRIVATE_IPV4_RANGES`: the private addresses that Services may ask for.
    pub private_ipv4_ranges: Option<Sourced<Vec<Ipv4Net>>>,
    /// `…_PRIMARY_IP_SELECTOR`: the labels of the Primary IPs that Services may claim.
    pub primary_ip_selector: Option<Sourced<Selector>>,
    /// `…_CERTIFICATE_SELECTOR`: the labels of the certificates that Services may name. A Service may always name
    /// the certificates of its own namespace. `None` means that a Service may name every certificate except those
    /// of other namespaces.
    pub certificate_selector: Option<Sourced<Selector>>,
    /// `…_CERTIFICATE_DOMAINS`: the domains for which Services may have managed certificates.
    pub certificate_domains: Option<Sourced<CertificateDomains>>,
}

impl PermittedUse {
    /// Whether Services may ask for this address of the private Network.
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
