//! Load balancers of Hetzner Cloud: from a Service's annotations to a plan, and one change at a time.
//!
//! The way from a Service to a write: `plan` (the contract's [`Snapshot`](crate::provider::Snapshot)), which finds the
//! Service's load balancer with `find` → `desired` → `ports` → `diff` (with `targets`) → `change`, which makes the
//! call. For a new load balancer `create` folds the changes of `diff` into one.
//!
//! | file | its one job |
//! |---|---|
//! | `annotations` | the table: feeds parser, `inspect` and `ccm help annotations` |
//! | `values` | a text becomes a type, once |
//! | `parser` | one Service's annotations, and all that is wrong with them |
//! | `context` | what a plan rests on: settings, what was read, what is held back in a shell |
//! | `desired`, `ports` | what a Service wants: the whole; each port with its health check |
//! | `certificates` | managed certificates: found, taken over, ordered |
//! | `permitted` | which certificates a Service may use, and which managed ones it may have |
//! | `uploads` | certificates from Secrets: uploaded, chosen, deleted when unused |
//! | `primary_ips` | the Primary IPs of a new one, and what is reported about those of the others |
//! | `names` | names and labels |
//! | `balancer` | the API's types |
//! | `listener` | a port, and the one table of its fields: read, compared, shown and written by it |
//! | `find` | which load balancer is a Service's |
//! | `group` | Services that use one together: which ones, and whose each port is |
//! | `index` | load balancers by ID, name, label, UID, address: made once for each list |
//! | `ownership` | who owns one, by its targets and labels, and whether it is deleted or released |
//! | `subnets` | where in the Network one can be attached |
//! | `plan` | what must have been read before, and what to do |
//! | `diff`, `targets` | the differences, as changes in their order; what is held back |
//! | `create` | the differences of one that does not exist yet, as one request |
//! | `status` | what the Service's status says, and a load balancer for people |
//! | `change` | one write: the table of actions, the request, the call, its answer |
//! | `observe` | what is read |
//!
//! All but `change`, `observe` and the reading in `subnets` is pure.

pub mod annotations;
mod balancer;
mod certificates;
mod change;
mod context;
mod create;
mod desired;
mod diff;
mod find;
mod group;
mod index;
mod listener;
mod names;
mod observe;
mod ownership;
mod parser;
mod permitted;
mod plan;
mod ports;
mod primary_ips;
mod status;
mod subnets;
mod targets;
mod uploads;
mod values;

pub use super::api::{Location, Reference};
pub use super::certificates::{Certificate, CertificateError, CertificateStatus};
pub use super::networks::Subnet;
pub use crate::text::selector::Selector;
pub use balancer::{
    Algorithm, AlgorithmOf, BalancerType, Deprecation, HealthStatus, IpRef, LoadBalancer, PriceOf,
    PrimaryIp, PrivateNet, Protection, PublicIp, PublicNet, SelectedServer, SelectorRef, Target,
};
pub use context::{Defaults, Observed, Project, Snapshot};
pub use listener::{Listener, PortField};
pub use names::{
    ADOPT, ADOPTED, CLUSTER, CLUSTER_UID, CREATED, EXTERNAL, GROUP, KEEP, PORT, RELEASED, SECRET,
    SERVICE, SERVICE_UID, TARGETS_BEFORE,
};

pub(super) use certificates::left;
pub(super) use group::key as group;
pub(super) use observe::{Known, Types, observe, usage};
pub(super) use subnets::Subnets;
pub(super) use uploads::{secrets, unused};
