//! Load balancers of Hetzner Cloud: from a Service's annotations to a plan, and one change at a time.
//!
//! | file | its one job |
//! |---|---|
//! | `annotations` | the table: feeds parser, `inspect` and `ccm help annotations` |
//! | `values` | a text becomes a type, once |
//! | `parser` | one Service's annotations, and all that is wrong with them |
//! | `desired`, `ports`, `health_check` | what a Service wants: the whole, each port, each health check |
//! | `certificates` | managed certificates: found, taken over, ordered |
//! | `primary_ips` | the Primary IPs of a new one, and what is reported about those of the others |
//! | `names` | names and labels |
//! | `balancer`, `listener` | the API's types, and how fields compare |
//! | `find` | which load balancer is a Service's |
//! | `ownership` | who owns one, by its targets and labels, and whether it is deleted or released |
//! | `subnets` | where in the Network one can be attached |
//! | `plan`, `create`, `diff`, `targets` | what to do, in which order |
//! | `hold_back` | in a shell: what only a default asks for that the daemon may not have |
//! | `status` | what the Service's status says, and a load balancer for people |
//! | `change` | one write, as data, and what it depends on |
//! | `observe`, `apply` | the calls |
//!
//! Everything but the last line is pure.

pub mod annotations;
mod apply;
mod balancer;
mod certificates;
mod change;
mod create;
mod desired;
mod diff;
mod find;
mod health_check;
mod hold_back;
mod listener;
mod names;
mod observe;
mod ownership;
mod parser;
mod plan;
mod ports;
mod primary_ips;
mod status;
mod subnets;
mod targets;
mod values;

pub use super::certificates::{Certificate, CertificateError, CertificateStatus};
pub use super::networks::Subnet;
pub use super::primary_ips::PrimaryIp;
pub use crate::text::selector::Selector;
pub use balancer::{
    Algorithm, AlgorithmOf, BalancerType, Deprecation, HealthStatus, IpRef, LoadBalancer, Location,
    PrivateNet, Protection, PublicIp, PublicNet, SelectedServer, SelectorRef, ServerRef, Target,
};
pub use change::{Change, Create, LabelEdit, NewCertificate, Plan, Seen, ServerTarget, Write};
pub use listener::{HealthCheck, Http, HttpCheck, Listener, ListenerProtocol, PortField};
pub use names::{ADOPT, ADOPTED, CLUSTER, CLUSTER_UID, CREATED, SERVICE, SERVICE_UID};
pub use observe::Observed;

pub(super) use apply::apply;
pub(super) use certificates::left;
pub(super) use observe::{Known, Types, covers, observe};
pub(super) use subnets::Subnets;

use super::Profile;
use crate::provider::{Source, Sourced};
use annotations::Annotation;
use ipnet::Ipv4Net;

/// Plans; with the settings that plans depend on.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    pub profile: Profile,
    pub defaults: &'a Defaults,
    /// ID of the private Network, with `HCLOUD_NETWORK`.
    pub network: Option<u64>,
}

impl Planner<'_> {
    /// Upstream leaves some unset fields unchanged; people have set them by hand, and a take-over must not reset them.
    fn preserves_unset(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// The source of the default of an unset field; none: it is left unchanged.
    fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        let stays = self.preserves_unset() || self.holds_back_default_of(annotation);
        (!stays).then(|| default_source(annotation))
    }
}

/// Defaults for Services without the annotation: `HCLOUD_LOAD_BALANCERS_*`. None: unset.
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
    /// Variables, and flags with their dashes, that are unset here and may be set for the daemon: see `hold_back`.
    /// Always empty in the daemon.
    pub unknown: Vec<String>,
}

/// The source of an unset value: its setting, where there is one.
pub(super) fn default_source(annotation: &Annotation) -> Source {
    match annotation.variable {
        Some(variable) => Source::Default(variable.to_owned()),
        None => Source::Rule("the default of the API"),
    }
}
