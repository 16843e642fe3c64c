//! Load balancers of Hetzner Cloud: makes a plan from a Service and its annotations, and makes the changes of the plan
//! one at a time.
//!
//! This table lists the modules. A module uses only modules that are below it in the table.
//!
//! | module | its job |
//! |---|---|
//! | `snapshot` | the questions that the controller can ask about a list of load balancers |
//! | `plan` | makes the plan for one Service, in several stages |
//! | `replace` | plans the replacement of a load balancer by a new one, while both serve |
//! | `settle` | finds the Service's load balancer and its ports there, or the load balancer on which the Service must stay for now |
//! | `leave` | takes a Service off a load balancer, which is then deleted, released, or kept by other Services |
//! | `type_choice` | decides which type a load balancer should have |
//! | `checks` | reports too many ports or certificates for the type of the load balancer, and targets which are nodes that this program does not manage |
//! | `causes` | finds out why a health check fails, and what to do about it |
//! | `observe` | reads load balancers and related objects |
//! | `diff/` | compares a load balancer with its desired state; the result is the ordered changes |
//! | `diff/create` | creates a load balancer with one request |
//! | `diff/targets`, `diff/subnets`, `diff/primary_ips` | the changes of targets; where in the Network the load balancer is attached; its Primary IPs |
//! | `diff/status` | the status of the Service, and the data of a load balancer that users see |
//! | `desired/` | the desired state of a load balancer |
//! | `desired/ports` | the desired state of each port and its health check |
//! | `desired/certificates`, `desired/uploads`, `desired/permitted` | managed certificates; certificates from Secrets; which certificates a Service is allowed to use |
//! | `change` | one write to the API: its kind, the request, and what the answer means |
//! | `ownership/` | who owns a load balancer |
//! | `ownership/labels` | reads and writes the labels about the owner; no other module names the keys of these labels |
//! | `ownership/guard` | checks just before a write of labels or a deletion whether the object has changed |
//! | `ownership/judge` | the rules: how a load balancer belongs to a Service, and what the Service's plan is allowed to do with it |
//! | `ownership/facts` | the facts on which the rules of `judge` are based |
//! | `ownership/index` | finds load balancers by ID, name, label, UID or address |
//! | `ownership/share` | the names of groups and of external load balancers, and the Services that ask for them |
//! | `ownership/group` | the Services that use one load balancer together, and the owner of each port |
//! | `ownership/find` | finds the load balancer of a Service |
//! | `ownership/replacement` | how far a replacement is, and its next step |
//! | `ownership/removal` | the labels after a Service has left a load balancer |
//! | `ownership/certificates` | who owns a certificate |
//! | `ownership/names` | the names of load balancers and certificates, and the form of label values |
//! | `ownership/context` | the settings and the objects from which plans are made |
//! | `sizes` | chooses a type from a list of types and from what the load balancer must have room for |
//! | `annotations/` | the table of annotations, which the parser, `ccm explain` and `ccm help annotations` use |
//! | `annotations/parser`, `annotations/values` | parses the annotations of one Service, and reports all mistakes in them |
//! | `model/` | load balancers in the form of the API's JSON; `listener` has a table of the fields of a port |
//!
//! Only `change`, `observe`, `diff/subnets` and `ownership/certificates` call the API. All other modules do no I/O.

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
mod replace;
mod settle;
mod sizes;
mod snapshot;
mod type_choice;

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
    ADOPT, ADOPTED, CLUSTER, CLUSTER_UID, CREATED, EXTERNAL, GROUP, KEEP, OVERLAP, PORT, RELEASED,
    REPLACE, REPLACES, SECRET, SERVICE, SERVICE_UID, TARGETS_BEFORE,
};

pub(super) use causes::cause;
pub(super) use desired::asked_delay;
pub(super) use desired::certificates::left;
pub(super) use desired::uploads::{can_name_secrets, secrets, unused};
pub(super) use observe::{EarlierPolls, observe, usage};
pub(super) use ownership::certificates::read as certificates_of;
pub(super) use ownership::share::key as group;
