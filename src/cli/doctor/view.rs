//! What was read for the checks.

use super::outcome::Seen;
use crate::cache::Refresh;
use crate::controllers::node::NodePlan;
use crate::controllers::route;
use crate::controllers::service::ServicePlan;
use crate::kube::{Involved, LeaseSpec, PastEvent, Service, Version, Workload};
use crate::provider::{self, Balancer, Checkup, Instance, Kept, Orphan, TargetCounts};
use crate::settings::Settings;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// What was read for the checks, or why it was not.
pub(in crate::cli) struct View<'a> {
    pub(in crate::cli) settings: &'a Settings,
    /// What is wrong with the settings, the token's aside.
    pub(in crate::cli) problems: Vec<String>,
    /// How many characters the token has.
    pub(in crate::cli) token: Seen<usize>,
    pub(in crate::cli) cluster: Seen<Cluster>,
    /// `None` means that there is no Lease.
    pub(in crate::cli) lease: Seen<Option<LeaseSpec>>,
    /// The workloads in the namespace of the Lease.
    pub(in crate::cli) workloads: Seen<Vec<Workload>>,
    pub(in crate::cli) cloud: Cloud,
    /// Where the servers were not read, a plan holds only what Kubernetes alone shows of its node.
    pub(in crate::cli) nodes: Seen<Vec<NodePlan>>,
    pub(in crate::cli) routes: Seen<route::Plan>,
    pub(in crate::cli) services: ServicesView,
    /// The refreshes of the lists that were read.
    pub(in crate::cli) refreshes: Vec<Refresh>,
}

/// An API server that answers.
pub(in crate::cli) struct Cluster {
    /// Its address, and what named it.
    pub(in crate::cli) at: String,
    pub(in crate::cli) version: Version,
    /// What the user that we log in as may not do.
    pub(in crate::cli) missing: Seen<Vec<Need>>,
}

/// What the APIs of the cloud answered.
#[derive(Clone)]
pub(in crate::cli) struct Cloud {
    pub(in crate::cli) asked: Instant,
    /// All servers of the project.
    pub(in crate::cli) servers: Seen<Arc<Vec<Instance>>>,
    /// `None` means that no login of Robot is set.
    pub(super) dedicated: Option<Result<Arc<Vec<Instance>>, provider::Error>>,
    /// What the API said of itself; what it says of a call that failed counts as well.
    pub(in crate::cli) checkup: Checkup,
    /// Read only where there is no cluster: load balancers of the project, of any cluster.
    pub(in crate::cli) balancers: Seen<Vec<(String, TargetCounts)>>,
}

/// The Services of type LoadBalancer, and their load balancers.
pub(in crate::cli) struct ServicesView {
    pub(in crate::cli) plans: Seen<Vec<ServicePlan>>,
    /// Load balancers of other owners that Services may use. Empty where Services were not planned.
    pub(in crate::cli) external: Vec<Balancer>,
    /// What Kubernetes alone says.
    pub(in crate::cli) listed: Seen<Arc<Vec<Arc<Service>>>>,
    /// By UID of the Service.
    pub(in crate::cli) failed_tries: Seen<HashMap<Involved, Arc<PastEvent>>>,
    pub(in crate::cli) orphans: Seen<Vec<Orphan>>,
    /// Load balancers that are kept without a Service.
    pub(in crate::cli) kept: Seen<Vec<Kept>>,
}

/// A verb, and the resource that the daemon uses it on, with its subresource behind a slash: a role must allow it. A
/// test compares them with `manifests/`.
pub(in crate::cli) type Need = (&'static str, &'static str);
