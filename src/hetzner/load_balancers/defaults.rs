//! What the environment says about load balancers whose Service says nothing: `HCLOUD_LOAD_BALANCERS_*`.

use super::annotations::Annotation;
use super::balancer::Algorithm;
use crate::provider::{Source, Sourced};
use crate::text::selector::Selector;
use ipnet::Ipv4Net;

/// The defaults; none: nobody set it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// `…_TYPE`.
    pub kind: Option<Sourced<String>>,
    /// `…_LOCATION`. Not together with `network_zone`.
    pub location: Option<Sourced<String>>,
    /// `…_NETWORK_ZONE`.
    pub network_zone: Option<Sourced<String>>,
    /// `…_ALGORITHM_TYPE`.
    pub algorithm: Option<Sourced<Algorithm>>,
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
    /// `…_USES_PROXYPROTOCOL`.
    pub uses_proxyprotocol: Option<Sourced<bool>>,
    /// `…_HEALTH_CHECK_INTERVAL`, in seconds.
    pub health_check_interval_s: Option<Sourced<u32>>,
    /// `…_HEALTH_CHECK_TIMEOUT`, in seconds.
    pub health_check_timeout_s: Option<Sourced<u32>>,
    /// `…_HEALTH_CHECK_RETRIES`.
    pub health_check_retries: Option<Sourced<u32>>,
    /// `…_HEALTH_CHECK_NODE_PORT`: profile `hcloud` checks `externalTrafficPolicy: Local` at the
    /// health check node port only when this is true.
    pub health_check_node_port: Option<Sourced<bool>>,
    /// `…_PRIMARY_IP_SELECTOR`: labels of the Primary IPs that Services may claim. None: they may claim all.
    pub primary_ip_selector: Option<Sourced<Selector>>,
    /// Variables, and flags with their dashes, that nobody set here and the daemon may have been
    /// told: see `hold_back`. Always empty in the daemon.
    pub unknown: Vec<String>,
}

/// The source of a value that nobody set: the setting that would, where there is one.
pub(super) fn nobody_set(annotation: &Annotation) -> Source {
    match annotation.variable {
        Some(variable) => Source::Default(variable.to_owned()),
        None => Source::Rule("the default of the API"),
    }
}
