//! Defaults of load balancers: none of them set is none of them wanted.

use super::choice::Choice;
use super::problem::Problem;
use super::reader::{Reader, Sourced};
use super::table;
use super::text;
use crate::text::duration::whole_seconds;
use crate::text::selector::Selector;
use ipnet::Ipv4Net;

/// What holds for all Services that do not say otherwise. None: nobody set it.
#[derive(Debug, Clone)]
pub struct LoadBalancers {
    pub enabled: Sourced<bool>,
    pub kind: Sourced<Option<String>>,
    /// Not together with `network_zone`.
    pub location: Sourced<Option<String>>,
    pub network_zone: Sourced<Option<String>>,
    pub algorithm: Sourced<Option<Algorithm>>,
    pub disable_public_network: Sourced<Option<bool>>,
    pub disable_private_ingress: Sourced<Option<bool>>,
    pub use_private_ip: Sourced<Option<bool>>,
    pub private_subnet: Sourced<Option<Ipv4Net>>,
    pub disable_ipv6: Sourced<Option<bool>>,
    pub uses_proxyprotocol: Sourced<Option<bool>>,
    pub health_check_interval_s: Sourced<Option<u32>>,
    pub health_check_timeout_s: Sourced<Option<u32>>,
    pub health_check_retries: Sourced<Option<u32>>,
    pub health_check_node_port: Sourced<Option<bool>>,
    pub primary_ip_selector: Sourced<Option<Selector>>,
}

/// Which target gets the next connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    RoundRobin,
    LeastConnections,
}

impl Choice for Algorithm {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("round_robin", Algorithm::RoundRobin),
        ("least_connections", Algorithm::LeastConnections),
    ];
}

pub(super) fn load_balancers(read: &mut Reader) -> LoadBalancers {
    LoadBalancers {
        enabled: read.setting(&table::LB_ENABLED, text::boolean),
        kind: read.setting(&table::LB_TYPE, text::name),
        location: read.setting(&table::LB_LOCATION, text::name),
        network_zone: read.setting(&table::LB_NETWORK_ZONE, text::name),
        algorithm: read.setting(&table::LB_ALGORITHM_TYPE, |text| {
            super::choice::choice(&text.to_ascii_lowercase()).map(Some)
        }),
        disable_public_network: read.setting(&table::LB_DISABLE_PUBLIC_NETWORK, boolean),
        disable_private_ingress: read.setting(&table::LB_DISABLE_PRIVATE_INGRESS, boolean),
        use_private_ip: read.setting(&table::LB_USE_PRIVATE_IP, boolean),
        private_subnet: read.setting(&table::LB_PRIVATE_SUBNET_IP_RANGE, ip_range),
        disable_ipv6: read.setting(&table::LB_DISABLE_IPV6, boolean),
        uses_proxyprotocol: read.setting(&table::LB_USES_PROXYPROTOCOL, boolean),
        health_check_interval_s: read.setting(&table::LB_HEALTH_CHECK_INTERVAL, seconds),
        health_check_timeout_s: read.setting(&table::LB_HEALTH_CHECK_TIMEOUT, seconds),
        health_check_retries: read.setting(&table::LB_HEALTH_CHECK_RETRIES, count),
        health_check_node_port: read.setting(&table::LB_HEALTH_CHECK_NODE_PORT, boolean),
        primary_ip_selector: read.setting(&table::LB_PRIMARY_IP_SELECTOR, selector),
    }
}

/// Both a location and a zone can't be meant for every Service.
pub(super) fn problems(settings: &LoadBalancers) -> Vec<Problem> {
    match (&settings.location.value, &settings.network_zone.value) {
        (Some(location), Some(zone)) => {
            let message = format!(
                "set only one of it and HCLOUD_LOAD_BALANCERS_NETWORK_ZONE (which is {zone:?})"
            );
            let problem = Problem::environment("HCLOUD_LOAD_BALANCERS_LOCATION", message);
            vec![problem.with_value(location.as_str())]
        }
        _ => Vec::new(),
    }
}

fn boolean(text: &str) -> Result<Option<bool>, String> {
    text::boolean(text).map(Some)
}

fn seconds(text: &str) -> Result<Option<u32>, String> {
    whole_seconds(text).map(Some)
}

fn count(text: &str) -> Result<Option<u32>, String> {
    crate::text::count(text).map(Some)
}

fn selector(text: &str) -> Result<Option<Selector>, String> {
    Selector::parse(text).map(Some)
}

fn ip_range(text: &str) -> Result<Option<Ipv4Net>, String> {
    crate::text::ip_range(text).map(Some)
}
