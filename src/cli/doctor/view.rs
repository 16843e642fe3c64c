//! The data that was read from both APIs. The checks decide on this data alone.

use super::outcome::Seen;
use crate::cache::Refresh;
use crate::controllers::node::NodePlan;
use crate::controllers::route;
use crate::controllers::service::ServicePlan;
use crate::kube::{Involved, KubeService, LeaseSpec, PastEvent, Version, Workload};
use crate::provider::{self, Balancer, Checkup, Instance, KeptObject, Orphan, TargetCounts};
use crate::settings::Settings;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The results of all reads. A field that could not be read holds the reason.
pub(in crate::cli) struct DoctorView<'a> {
    pub(in crate::cli) settings: &'a Settings,
    /// The problems of the settings other than the token.
    pub(in crate::cli) problems: Vec<String>,
    /// The number of characters of the token.
    pub(in crate::cli) token: Seen<usize>,
    pub(in crate::cli) cluster: Seen<ClusterView>,
    /// `None` means that nobody holds the Lease.
    pub(in crate::cli) lease: Seen<Option<LeaseSpec>>,
    /// The workloads in the namespace of the Lease.
    pub(in crate::cli) workloads: Seen<Vec<Workload>>,
    pub(in crate::cli) cloud: CloudView,
    /// The plans of the nodes. When the servers were not read, a plan holds only what Kubernetes alone shows
    /// of its node.
    pub(in crate::cli) nodes: Seen<Vec<NodePlan>>,
    pub(in crate::cli) routes: Seen<route::RoutePlan>,
    pub(in crate::cli) services: ServicesView,
    /// The lists that were read, and how often the daemon refreshes each of them.
    pub(in crate::cli) refreshes: Vec<Refresh>,
}

/// The data of a cluster whose API server answers.
pub(in crate::cli) struct ClusterView {
    /// The address of the API server, and the source of this address.
    pub(in crate::cli) at: String,
    pub(in crate::cli) version: Version,
    /// The verbs that the daemon needs and the current user may not use.
    pub(in crate::cli) missing: Seen<Vec<Need>>,
}

/// The answers of the cloud APIs.
#[derive(Clone)]
pub(in crate::cli) struct CloudView {
    pub(in crate::cli) asked: Instant,
    /// All servers of the project.
    pub(in crate::cli) servers: Seen<Arc<Vec<Instance>>>,
    /// `None` means that no login of Robot is set.
    pub(super) dedicated: Option<Result<Arc<Vec<Instance>>, provider::ProviderError>>,
    /// The facts that the answers of the API contain besides the objects, e.g. the rate limit. Answers to failed calls
    /// contain some of these facts, too.
    pub(in crate::cli) checkup: Checkup,
    /// The load balancers of the project that were made for this or any other cluster. These load balancers are read
    /// only when Kubernetes does not answer.
    pub(in crate::cli) balancers: Seen<Vec<(String, TargetCounts)>>,
}

/// The Services of type LoadBalancer, and their load balancers.
pub(in crate::cli) struct ServicesView {
    pub(in crate::cli) plans: Seen<Vec<ServicePlan>>,
    /// Load balancers of other owners that Services may use. Empty when the Services were not planned.
    pub(in crate::cli) external: Vec<Balancer>,
    /// The Services that the Kubernetes API lists, without any data of the cloud.
    pub(in crate::cli) listed: Seen<Arc<Vec<Arc<KubeService>>>>,
    /// The events of failed tries, by the Service that each event is about.
    pub(in crate::cli) failed_tries: Seen<HashMap<Involved, Arc<PastEvent>>>,
    pub(in crate::cli) orphans: Seen<Vec<Orphan>>,
    /// The load balancers that are kept although no Service wants them any more.
    pub(in crate::cli) kept: Seen<Vec<KeptObject>>,
}

/// A verb, and the resource that the daemon uses the verb on. A subresource follows the resource behind a slash. A role
/// must allow each need, and a test compares the needs with `manifests/`.
pub(in crate::cli) type Need = (&'static str, &'static str);
