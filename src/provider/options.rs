//! The options of a provider, as plain types into which settings are parsed.

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
    /// `--cloud-provider`: the program whose forms of provider IDs, labels and names are used.
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
    /// The address from the kubelet's `--node-ip`, even when the cloud does not list this address.
    Kubelet,
}

/// `HCLOUD_INSTANCES_LABEL_PREFIXES`: the labels of servers that are copied to their nodes. `DOMAIN/` stands for all
/// labels in a domain, and `DOMAIN/NAME` for one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPrefixes(pub Vec<String>);

/// Whether the domain of the label is `kubernetes.io`, `k8s.io` or one of their subdomains, which belong to Kubernetes.
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

/// `HCLOUD_NETWORK`: a text of digits is the ID of a network, any other text is the name of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSelector {
    Id(u64),
    Name(String),
}

named! {
    /// `HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE`: the algorithm that chooses the target of a new connection.
    #[derive(Default, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    Algorithm {
        #[default]
        RoundRobin = "round_robin",
        LeastConnections = "least_connections",
        /// A value that the API may have added after this program was written.
        #[serde(other)]
        Unknown = "unknown",
    }
}

named! {
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK`: the program that answers a health check for a node.
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    HealthCheck {
        /// kube-proxy, or a program that replaces it, answers health checks. Only Services with
        /// `externalTrafficPolicy: Cluster` use this.
        KubeProxy = "kube-proxy",
    }
}

/// `HCLOUD_LOAD_BALANCERS_LABELS`: labels that users want on load balancers. This program makes no
/// decision by these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

impl Labels {
    /// The highest number of labels in one setting or annotation. There is a limit because a tenant may write them, and
    /// every list of load balancers contains them.
    const AT_MOST: usize = 32;

    /// The prefixes of labels that users may not set. The labels of this program and of hcloud-cloud-controller-manager
    /// name the owner of a load balancer. The last prefix belongs to Hetzner.
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

/// The domains for which Services may request managed certificates. Each domain includes its subdomains. An empty
/// list allows no domain.
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
                "{} is no domain; use the word none, or domains, e.g. example.com,example.org, which include their \
                 subdomains",
                quoted(wrong.map_or(text, String::as_str))
            )),
        }
    }

    /// Whether a certificate for this domain is allowed. `domain` may begin with `*.`.
    pub fn covers(&self, domain: &str) -> bool {
        let name = domain.strip_prefix("*.").unwrap_or(domain).to_ascii_lowercase();
        self.0.iter().any(|allowed| {
            let parent = name.strip_suffix(allowed.as_str());
            parent.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }
}

/// The settings `HCLOUD_LOAD_BALANCERS_*`. Some are defaults for Services that do not have the corresponding
/// annotation. Others limit what Services may ask for. `None` means that the setting is unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerDefaults {
    /// `HCLOUD_LOAD_BALANCERS_TYPE`: the load balancer type, e.g. `lb11`.
    pub kind: Option<Sourced<String>>,
    /// `HCLOUD_LOAD_BALANCERS_LOCATION`: the location of new load balancers. It can't be
    /// set together with `network_zone`.
    pub location: Option<Sourced<String>>,
    /// `HCLOUD_LOAD_BALANCERS_NETWORK_ZONE`: the network zone of new load balancers.
    pub network_zone: Option<Sourced<String>>,
    /// `HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE`.
    pub algorithm: Option<Sourced<Algorithm>>,
    pub network: NetworkDefaults,
    /// `HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL`: whether load balancers send the PROXY protocol to the targets.
    pub uses_proxyprotocol: Option<Sourced<bool>>,
    pub health_check: HealthCheckDefaults,
    /// `HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY`: how long departing nodes stay targets.
    pub departing_delay: Option<Sourced<Duration>>,
    /// `HCLOUD_LOAD_BALANCERS_LABELS`: labels for all load balancers. When a Service's annotation has a label with the
    /// same key, the label of the annotation is used.
    pub labels: Option<Sourced<Labels>>,
    pub permitted: PermittedUse,
}

/// The settings of the addresses at which load balancers can be reached, and of those by which they reach the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkDefaults {
    /// `HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK`: whether load balancers have no public interface.
    pub disable_public_network: Option<Sourced<bool>>,
    /// `HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS`: whether the status of Services contains no private address.
    pub disable_private_ingress: Option<Sourced<bool>>,
    /// `HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP`: whether load balancers reach targets by their private IP.
    pub use_private_ip: Option<Sourced<bool>>,
    /// `HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE`: the subnet to which load balancers are attached.
    pub private_subnet: Option<Sourced<Ipv4Net>>,
    /// `HCLOUD_LOAD_BALANCERS_DISABLE_IPV6`: whether the status of Services contains no IPv6 address.
    pub disable_ipv6: Option<Sourced<bool>>,
}

/// The settings of the health checks of targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheckDefaults {
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK`: what answers the health checks.
    pub kind: Option<Sourced<HealthCheck>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL`, in seconds.
    pub interval_s: Option<Sourced<u32>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT`, in seconds.
    pub timeout_s: Option<Sourced<u32>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES`.
    pub retries: Option<Sourced<u32>>,
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT`: whether profile `hcloud` uses the health check node port for
    /// Services with `externalTrafficPolicy: Local`.
    pub node_port: Option<Sourced<bool>>,
}

/// The objects of the project that Services may use. A field that is `None` allows all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermittedUse {
    /// `HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES`: the private addresses that Services may ask for.
    pub private_ipv4_ranges: Option<Sourced<Vec<Ipv4Net>>>,
    /// `HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR`: the labels of the Primary IPs that Services may use.
    pub primary_ip_selector: Option<Sourced<Selector>>,
    /// `HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR`: the labels of the certificates that Services may name. A Service
    /// may name the certificates of its own namespace in any case. Without this setting a Service may name every
    /// certificate that does not belong to another namespace.
    pub certificate_selector: Option<Sourced<Selector>>,
    /// `HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS`: the domains for which Services may request managed certificates.
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
