//! Load balancers of Hetzner Cloud: from a Service's annotations to a plan, and one change at a time.
//!
//! | file | its one job |
//! |---|---|
//! | `annotations` | the table: feeds parser, `inspect` and `ccm help annotations` |
//! | `values` | a text becomes a type, once |
//! | `parser` | one Service's annotations, and all that is wrong with them |
//! | `limits` | what no load balancer can serve |
//! | `defaults` | what the environment says for all Services |
//! | `desired`, `ports`, `check` | what a Service wants: the whole, each port, each health check |
//! | `without_effect` | annotations that ask for what no port has |
//! | `names` | names and labels |
//! | `balancer`, `listener` | what the API says, and how fields compare |
//! | `find` | which load balancer is a Service's |
//! | `ownership` | whose one is by its targets and labels, and whether it is deleted or released |
//! | `seen` | what a write rests on, to be compared just before it |
//! | `subnets` | where in the Network one can be attached |
//! | `reach` | which servers can be targets, by what the cloud says of them |
//! | `plan`, `difference`, `targets`, `create` | what to do, in which order |
//! | `managed` | managed certificates: found, taken over, made |
//! | `public_net` | which Primary IPs a new one gets, and what is said of those of the others |
//! | `hold_back` | from a shell: what only a default asks for that the daemon may not have |
//! | `status` | what the Service's status says, and a load balancer for people |
//! | `change` | one write, as data |
//! | `observe`, `apply`, `refused` | the calls |
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
pub use change::{Change, Create, LabelEdit, NewCertificate, Seen, ServerTarget, Write};
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

/// What plans rest on besides the answers of both APIs.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    pub profile: Profile,
    pub defaults: &'a Defaults,
    /// ID of the private Network, with `HCLOUD_NETWORK`.
    pub network: Option<u64>,
}

impl Planner<'_> {
    /// Upstream leaves as they are some fields that nobody set; people have set them by hand, and
    /// a take-over must not reset them.
    fn preserves_unset(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// The source of the default of a field that nobody set; none: it stays as it is found.
    fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        let stays = self.preserves_unset() || self.holds_back_default_of(annotation);
        (!stays).then(|| default_source(annotation))
    }
}

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
pub(super) fn default_source(annotation: &Annotation) -> Source {
    match annotation.variable {
        Some(variable) => Source::Default(variable.to_owned()),
        None => Source::Rule("the default of the API"),
    }
}
