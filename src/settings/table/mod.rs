//! The table of settings. Its rows stand in a file for each theme; `resolve` says how each value is read.
//!
//! | file | a new row belongs there when it is about |
//! |---|---|
//! | `hetzner` | the project's API, and what nodes take over from its servers |
//! | `load_balancers` | what load balancers are when their Service does not say |
//! | `cluster` | reaching the Kubernetes API |
//! | `controllers` | which controllers run, and in what manner |
//! | `nodes` | the node and the node lifecycle controller |
//! | `services` | the service controller |
//! | `routes` | the route controller |
//! | `leader_election` | the Lease |
//! | `output` | what is printed, logged and answered to probes |

mod cluster;
mod controllers;
mod hetzner;
mod leader_election;
mod load_balancers;
mod nodes;
mod output;
mod routes;
mod services;

use super::setting::{Command, Setting};

pub(super) use cluster::*;
pub(super) use controllers::*;
pub(super) use hetzner::*;
pub(super) use leader_election::*;
pub(super) use load_balancers::*;
pub(super) use nodes::*;
pub(super) use output::*;
pub(super) use routes::*;
pub(super) use services::*;

/// Every setting, in the order in which people read about them.
pub static TABLE: &[&Setting] = &[
    &TOKEN,
    &ENDPOINT,
    &ALLOW_INSECURE_ENDPOINT,
    &NETWORK,
    &NETWORK_ROUTES_ENABLED,
    &NETWORK_DISABLE_ATTACHED_CHECK,
    &METADATA_ENDPOINT,
    &ADDRESS_FAMILY,
    &ZONE_LABEL_ENABLED,
    &SERVER_CACHE_MAX_AGE,
    &ROBOT_ENABLED,
    &LB_ENABLED,
    &LB_TYPE,
    &LB_LOCATION,
    &LB_NETWORK_ZONE,
    &LB_ALGORITHM_TYPE,
    &LB_DISABLE_PUBLIC_NETWORK,
    &LB_DISABLE_PRIVATE_INGRESS,
    &LB_USE_PRIVATE_IP,
    &LB_PRIVATE_SUBNET_IP_RANGE,
    &LB_DISABLE_IPV6,
    &LB_USES_PROXYPROTOCOL,
    &LB_HEALTH_CHECK_INTERVAL,
    &LB_HEALTH_CHECK_TIMEOUT,
    &LB_HEALTH_CHECK_RETRIES,
    &LB_HEALTH_CHECK_NODE_PORT,
    &LB_PRIMARY_IP_SELECTOR,
    &KUBECONFIG,
    &CONTEXT,
    &MASTER,
    &SETTINGS_FROM,
    &CLOUD_PROVIDER,
    &CONTROLLERS,
    &NODE_SYNC_INTERVAL,
    &NODE_STATUS_UPDATE_FREQUENCY,
    &NODE_MONITOR_PERIOD,
    &NODE_DELETION_GUARD,
    &SERVICE_SYNC_INTERVAL,
    &LOAD_BALANCER_RESYNC_PERIOD,
    &CONCURRENT_SERVICE_SYNCS,
    &CLUSTER_NAME,
    &CLUSTER_CIDR,
    &CONFIGURE_CLOUD_ROUTES,
    &ROUTE_RECONCILIATION_PERIOD,
    &DELETE_ORPHANED_LOAD_BALANCERS,
    &DELETE_ORPHANS,
    &YES,
    &LEADER_ELECT,
    &LEASE_DURATION,
    &RENEW_DEADLINE,
    &RETRY_PERIOD,
    &LEASE_NAME,
    &LEASE_NAMESPACE,
    &ONCE,
    &DRY_RUN,
    &DETAILED_EXITCODE,
    &NAMESPACE,
    &OUTPUT,
    &LOG_FORMAT,
    &VERBOSITY,
    &DEBUG,
    &METRICS_ENABLED,
    &METRICS_ADDRESS,
    &TEST_TIME_SCALE,
];

const DAEMON: &[Command] = &[Command::Run];

/// What the daemon does at its start, and `doctor` looks at.
const DAEMON_AND_DOCTOR: &[Command] = &[Command::Run, Command::Doctor];

/// All but the daemon.
const CLIENTS: &[Command] = &[
    Command::Config,
    Command::NodeList,
    Command::NodeInspect,
    Command::NodeSync,
    Command::LbList,
    Command::LbInspect,
    Command::LbSync,
    Command::RouteList,
    Command::RouteSync,
    Command::Doctor,
];

/// Those that may take the daemon's settings from the cluster: `config` calls no API.
const TAKE_SETTINGS: &[Command] = CLIENTS.split_at(1).1;

const SYNCS: &[Command] = &[Command::NodeSync, Command::LbSync, Command::RouteSync];

/// Those that plan load balancers.
const WITH_LOAD_BALANCERS: &[Command] = &[
    Command::Run,
    Command::LbList,
    Command::LbInspect,
    Command::LbSync,
    Command::Doctor,
];

/// Those that plan routes.
const WITH_ROUTES: &[Command] = &[Command::Run, Command::RouteList, Command::RouteSync];

const LOAD_BALANCERS: &[Command] = &[Command::LbList, Command::LbInspect, Command::LbSync];

/// The setting of a long flag, written without dashes.
pub(super) fn by_flag(name: &str) -> Option<&'static Setting> {
    TABLE
        .iter()
        .find(|setting| setting.flags.contains(&name))
        .copied()
}

pub(super) fn by_short(letter: char) -> Option<&'static Setting> {
    TABLE
        .iter()
        .find(|setting| setting.short == Some(letter))
        .copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;
    use crate::settings::setting::Kind;

    /// Everything a row may be found by is there once, and help reads as sentences.
    #[test]
    fn rows_are_distinct_and_whole() {
        let mut seen = BTreeSet::new();
        for setting in TABLE {
            let variables = setting.variables.iter().map(|variable| variable.name());
            for key in setting.flags.iter().copied().chain(variables) {
                assert!(seen.insert(key), "{key} is there twice");
            }
            assert!(seen.insert(setting.name) || setting.flags.contains(&setting.name));
            assert!(setting.help.ends_with('.'), "{}", setting.name);
            assert!(!setting.commands.is_empty(), "{}", setting.name);
            assert!(!setting.flags.is_empty() || !setting.variables.is_empty());
            let boolean = setting.kind == Kind::Boolean;
            assert!(!boolean || setting.default.is_some(), "{}", setting.name);
        }
    }
}
