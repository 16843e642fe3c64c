//! What a user chooses of a provider: the plain types that settings are parsed into.

use super::source::Sourced;
use crate::text::selector::Selector;
use crate::text::{is_label_key, is_label_value, is_subdomain, named, quoted};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

named! {
    /// `--cloud-provider`: whose provider IDs, labels and names are written.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    Profile {
        /// Our own names.
        #[default]
        CcmFromScratch = "ccm-from-scratch",
        /// Those of hcloud-cloud-controller-manager, which we replace.
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
        /// None of them.
        None = "none",
    }
}

/// `HCLOUD_INSTANCES_INTERNAL_IP_FROM`: which private address becomes `InternalIP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InternalIpFrom {
    /// That in the private Network alone.
    #[default]
    Network,
    /// That of the kubelet's `--node-ip`, also where the cloud does not know it.
    Kubelet,
}

/// `HCLOUD_INSTANCES_LABEL_PREFIXES`: the labels of servers that become labels of their nodes. `DOMAIN/` are all of a
/// domain, `DOMAIN/NAME` is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelPrefixes(pub Vec<String>);

/// Is it in a domain whose labels have a meaning to Kubernetes?
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

/// `HCLOUD_NETWORK`: digits are an ID, anything else is a name.
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
        /// A word that the API did not have when this was written.
        #[serde(other)]
        Unknown = "unknown",
    }
}

named! {
    /// `HCLOUD_LOAD_BALANCERS_HEALTH_CHECK`: what is asked whether a node takes traffic.
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    HealthCheck {
        /// kube-proxy, or what replaces it, about the node; with `externalTrafficPolicy: Cluster`.
        KubeProxy = "kube-proxy",
    }
}

/// `HCLOUD_LOAD_BALANCERS_LABELS`: what users say of load balancers; never labels that decide anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

impl Labels {
    /// A tenant writes them, and each list of load balancers repeats them.
    const AT_MOST: usize = 32;

    /// Of labels that say whose a load balancer is; the last is the cloud's own.
    const RESERVED: [&str; 3] = ["ccm-from-scratch/", "hcloud-ccm/", "hetzner.cloud/"];

    /// `team=web,cost=42`, by the rules of the Cloud API. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Labels, String> {
        let mut labels = BTreeMap::new();
        let items = text.split(',').map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            let wrong = |why: &str| Err(format!("{}: {why}", quoted(item)));
            let Some((key, value)) = item.split_once('=') else {
                return wrong("write KEY=VALUE");
            };
            if Labels::RESERVED.iter().any(|one| key.starts_with(one)) {
                return wrong(
                    "labels of ccm-from-scratch/, hcloud-ccm/ and hetzner.cloud/ are reserved",
                );
            }
            if !is_label_key(key) || !is_label_value(value) {
                return wrong(
                    "no label; key and value have at most 63 letters, digits, -, _ or ., e.g. team=web",
                );
            }
            if labels.insert(key.to_owned(), value.to_owned()).is_some() {
                return wrong("the key is there twice");
            }
        }
        match labels.len() {
            0..=Labels::AT_MOST => Ok(Labels(labels)),
            count => {
                Err(format!("it has {count} labels, and {} at most are taken", Labels::AT_MOST))
            }
        }
    }
}

/// The domains for which Services may have managed certificates; each covers its subdomains. Empty: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateDomains(pub Vec<String>);

impl CertificateDomains {
    /// `example.com,example.org`, or `none`. The error says what is wrong with it.
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
                "{} is no domain; use none, or e.g. example.com,example.org, which cover their subdomains",
                quoted(wrong.map_or(text, String::as_str))
            )),
        }
    }

    /// `domain`: also one with `*` as its first part.
    pub fn covers(&self, domain: &str) -> bool {
        let name = domain.strip_prefix("*.").unwrap_or(domain).to_ascii_lowercase();
        self.0.iter().any(|allowed| {
            let parent = name.strip_suffix(allowed.as_str());
            parent.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }
}

/// Defaults for Services without the annotation: `HCLOUD_LOAD_BALANCERS_*`; and what Services may ask for. `None` means
/// that the setting is unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerDefaults {
    /// `…_TYPE`.
    pub kind: Option<Sourced<String>>,
    /// `…_LOCATION`. Not together with `network_zone`.
    pub location: Option<Sourced<String>>,
    /// `…_NETWORK_ZONE`.
    pub network_zone: Option<Sourced<String>>,
    /// `…_ALGORITHM_TYPE`.
    pub algorithm: Option<Sourced<Algorithm>>,
    pub network: NetworkDefaults,
    /// `…_USES_PROXYPROTOCOL`.
    pub uses_proxyprotocol: Option<Sourced<bool>>,
    pub health_check: HealthCheckDefaults,
    /// `…_LABELS`: of all load balancers; of one key the annotation wins.
    pub labels: Option<Sourced<Labels>>,
    pub permitted: PermittedUse,
}

/// By which addresses load balancers are reached, and reach the nodes.
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

/// How the targets of load balancers are checked.
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

/// Which things of the project Services may use. `None` means all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermittedUse {
    /// `…_PRIVATE_IPV4_RANGES`: private addresses that Services may ask for.
    pub private_ipv4_ranges: Option<Sourced<Vec<Ipv4Net>>>,
    /// `…_PRIMARY_IP_SELECTOR`: labels of the Primary IPs that Services may claim.
    pub primary_ip_selector: Option<Sourced<Selector>>,
    /// `…_CERTIFICATE_SELECTOR`: labels of the certificates that Services may name, besides those of their own namespace.
    /// `None` means all that are not another namespace's.
    pub certificate_selector: Option<Sourced<Selector>>,
    /// `…_CERTIFICATE_DOMAINS`: domains for which Services may have managed certificates.
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
