//! Load balancers of Hetzner Cloud: from a Service's annotations to a plan, and one change at a time.
//!
//! | file | its one job |
//! |---|---|
//! | `annotations` | the table: feeds parser, `inspect` and `ccm help annotations` |
//! | `values` | a text becomes a type, once |
//! | `reading` | one Service's annotations, and all that is wrong with them |
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
mod change;
mod check;
mod create;
mod defaults;
mod desired;
mod difference;
mod find;
mod hold_back;
mod limits;
mod listener;
mod managed;
mod names;
mod observe;
mod ownership;
mod plan;
mod ports;
mod public_net;
mod reach;
mod reading;
mod refused;
mod seen;
mod status;
mod subnets;
mod targets;
mod values;
mod without_effect;

pub use super::certificates::{Certificate, CertificateError, CertificateStatus};
pub use super::networks::Subnet;
pub use super::primary_ips::PrimaryIp;
pub use crate::text::selector::Selector;
pub use balancer::{
    Algorithm, AlgorithmOf, BalancerType, Deprecation, HealthStatus, IpRef, LoadBalancer, Location,
    PrivateNet, Protection, PublicIp, PublicNet, SelectedServer, SelectorRef, ServerRef, Target,
};
pub use change::{Change, Create, LabelEdit, NewCertificate, ServerTarget, Write};
pub use defaults::Defaults;
pub use listener::{HealthCheck, Http, HttpCheck, Listener, ListenerProtocol, PortField};
pub use names::{ADOPT, ADOPTED, CLUSTER, CLUSTER_UID, CREATED, SERVICE, SERVICE_UID};
pub use observe::State;
pub use seen::Seen;

pub(super) use apply::apply;
pub(super) use managed::left;
pub(super) use observe::{Known, Types, covers, observe};
pub(super) use subnets::Subnets;

use super::Profile;
use crate::provider::Source;
use annotations::Annotation;

/// What plans rest on besides the answers of both APIs.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub profile: Profile,
    pub defaults: &'a Defaults,
    /// ID of the private Network, with `HCLOUD_NETWORK`.
    pub network: Option<u64>,
}

impl Rules<'_> {
    /// Upstream leaves as they are some fields that nobody set; people have set them by hand, and
    /// a take-over must not reset them.
    fn leaves_as_found(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// The source of the default of a field that nobody set; none: it stays as it is found.
    fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        let stays = self.leaves_as_found() || self.holds_back_default_of(annotation);
        (!stays).then(|| defaults::nobody_set(annotation))
    }
}
