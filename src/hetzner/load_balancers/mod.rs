//! Load balancers of Hetzner Cloud: from a Service's annotations to a plan, and one change at a time.
//!
//! A room is a folder, or a file beside this one. It may use the rooms below it, and no room above it. From the top:
//!
//! | room | its one job |
//! |---|---|
//! | `snapshot` | what the controller may ask of a list of load balancers |
//! | `plan` | the stages of a plan: settle, compare, say what is done |
//! | `settle` | the Service's load balancer and its ports there, or the other load balancer on which the Service stays |
//! | `leave` | what takes a Service off a load balancer: deleted, released, or kept by others |
//! | `checks` | what the API would refuse one by one |
//! | `causes` | why a health check fails, and what to do about it |
//! | `observe` | what is read |
//! | `diff/` | the differences, as changes in their order |
//! | `diff/choice` | which of the wanted nodes become targets |
//! | `diff/create` | the differences of a load balancer that does not exist yet, as one request |
//! | `diff/targets`, `diff/subnets`, `diff/primary_ips` | the differences of targets; where in the Network the load balancer is attached; its Primary IPs |
//! | `diff/status` | what the Service's status says, and the form in which users see a load balancer |
//! | `desired/` | what a Service wants of the whole load balancer |
//! | `desired/ports` | what a Service wants of each port and its health check |
//! | `desired/certificates`, `desired/uploads`, `desired/permitted` | managed certificates; certificates from Secrets; which certificates a Service may use |
//! | `change` | one write: the table of actions, the request, the call, its answer |
//! | `ownership/` | who owns a load balancer |
//! | `ownership/labels` | what labels say; no other file names their keys |
//! | `ownership/guard` | the condition of a write of labels, or of a deletion |
//! | `ownership/judge` | the tables: what a load balancer is to a Service, and what may be done with it |
//! | `ownership/facts` | the facts by which the judge decides |
//! | `ownership/index` | load balancers by ID, name, label, UID, address: made once for each list |
//! | `ownership/share` | the names of groups and of external load balancers, and who asks for them |
//! | `ownership/group` | Services that use one load balancer together: which Services they are, and who owns each port |
//! | `ownership/find` | which load balancer is a Service's |
//! | `ownership/removal` | what labels say after a Service left |
//! | `ownership/certificates` | who owns a certificate |
//! | `ownership/names` | names, and values of labels |
//! | `ownership/context` | what a plan depends on: settings, and what was read |
//! | `annotations/` | the table of annotations, which the parser, `inspect` and `ccm help annotations` use |
//! | `annotations/parser`, `annotations/values` | one Service's annotations, and all that is wrong with them; each text becomes a type once |
//! | `model/` | load balancers as the API writes them; `listener` has the one table of a port's fields |
//!
//! Everything is pure except `change`, `observe`, and the reading in `diff/subnets` and `ownership/certificates`.

pub mod annotations;
mod causes;
mod change;
mod checks;
mod desired;
mod diff;
mod leave;
mod model;
mod observe;
mod ownership;
mod plan;
mod settle;
mod snapshot;

pub use super::api::{Location, Reference};
pub use super::certificates::{Certificate, CertificateError, CertificateStatus};
pub use super::networks::Subnet;
pub use crate::text::selector::Selector;
pub use model::balancer::{
    Algorithm, AlgorithmOf, ApiTarget, BalancerPrivateNet, BalancerPublicIp, BalancerPublicNet,
    BalancerType, Deprecation, HealthStatus, IpRef, LoadBalancer, PriceOf, PrimaryIp, Protection,
    SelectedServer, SelectorRef,
};
pub use model::listener::{Listener, PortField};
pub use ownership::context::{BalancerSnapshot, Defaults, ObservedBalancers, Project};
pub use ownership::labels::{
    ADOPT, ADOPTED, CLUSTER, CLUSTER_UID, CREATED, EXTERNAL, GROUP, KEEP, PORT, RELEASED, SECRET,
    SERVICE, SERVICE_UID, TARGETS_BEFORE,
};

pub(super) use causes::cause;
pub(super) use desired::asked_delay;
pub(super) use desired::certificates::left;
pub(super) use desired::uploads::{secrets, unused};
pub(super) use observe::{EarlierPolls, observe, usage};
pub(super) use ownership::certificates::read as certificates_of;
pub(super) use ownership::share::key as group;
