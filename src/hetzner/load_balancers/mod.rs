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
pub use crate::provider::LoadBalancerDefaults as Defaults;
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
use crate::provider::Source;
use annotations::Annotation;

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

/// The source of an unset value: its setting, where there is one.
pub(super) fn default_source(annotation: &Annotation) -> Source {
    match annotation.variable {
        Some(variable) => Source::Default(variable.to_owned()),
        None => Source::Rule("the default of the API"),
    }
}
