//! The data that was read from Kubernetes and the cloud. The checks of `ccm doctor` use this data and make no calls.

use super::outcome::Seen;
use crate::cache::Refresh;
use crate::controllers::kubelet_certificates::PlannedRequests;
use crate::controllers::node::NodePlan;
use crate::controllers::route;
use crate::controllers::service::ServicePlan;
use crate::kube::{Involved, KubeService, LeaseSpec, PastEvent, Version, Workload};
use crate::provider::{
    self, Balancer, Checkup, Instance, KeptObject, NamespaceDefaults, Orphan, TargetCounts,
};
use crate::settings::{Notice, Settings};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The results of all reads. A field of the type `Seen` holds either the data, or the reason why the data was not read.
pub(in crate::cli) struct DoctorView<'a> {
    pub(in crate::cli) settings: &'a Settings,
    /// The problems of the settings. Problems of the API token are left out, because the check `token` reports them.
    pub(in crate::cli) problems: Vec<String>,
    /// Messages about environment variables that only forks of hcloud-cloud-controller-manager know, and that have no
    /// effect in ccm.
    pub(in crate::cli) of_forks: &'a [Notice],
    /// The length of the API token in characters. The token itself is not stored here.
    pub(in crate::cli) token: Seen<usize>,
    pub(in crate::cli) cluster: Seen<ClusterView>,
    /// The Lease by which one of several daemons becomes the leader. `None` means that nobody holds the Lease.
    pub(in crate::cli) lease: Seen<Option<LeaseSpec>>,
    /// The Deployments and DaemonSets in the namespace of the Lease.
    pub(in crate::cli) workloads: Seen<Vec<Workload>>,
    pub(in crate::cli) cloud: CloudView,
    /// The plans of the nodes. A plan says what a sync would change on the node, and which problems there are. When the
    /// servers could not be read, a plan contains only the problems that can be found without them.
    pub(in crate::cli) nodes: Seen<Vec<NodePlan>>,
    pub(in crate::cli) certificates: Seen<PlannedRequests>,
    pub(in crate::cli) routes: Seen<route::RoutePlan>,
    pub(in crate::cli) services: ServicesView,
    /// The lists of servers and load balancers that were read. Each has the interval at which the daemon reads
    /// it again.
    pub(in crate::cli) refreshes: Vec<Refresh>,
}

/// What was read from the API server, if it answers.
pub(in crate::cli) struct ClusterView {
    /// The address of the API server, and the configuration that contains it, e.g. a kubeconfig and its context.
    pub(in crate::cli) at: String,
    pub(in crate::cli) version: Version,
    /// The rights that the daemon needs and that the current user lacks.
    pub(in crate::cli) missing: Seen<Vec<Need>>,
}

/// What was read from the Cloud API and from the Robot web service.
#[derive(Clone)]
pub(in crate::cli) struct CloudView {
    pub(in crate::cli) asked: Instant,
    /// All servers of the project.
    pub(in crate::cli) servers: Seen<Arc<Vec<Instance>>>,
    /// The dedicated servers that the Robot web service listed. `None` means that the settings contain no login for
    /// Robot.
    pub(super) dedicated: Option<Result<Arc<Vec<Instance>>, provider::ProviderError>>,
    /// Facts about the Cloud API and the token, e.g. the rate limit, and whether the token is allowed to write. Some of
    /// these facts are known even when a call has failed.
    pub(in crate::cli) checkup: Checkup,
    /// The load balancers of the project that belong to a Service of any cluster, as their labels show. Each has
    /// its name and the numbers of its targets and of its healthy targets. They are read only when Kubernetes does
    /// not answer.
    pub(in crate::cli) balancers: Seen<Vec<(String, TargetCounts)>>,
}

/// The Services of type LoadBalancer, and their load balancers.
pub(in crate::cli) struct ServicesView {
    pub(in crate::cli) plans: Seen<Vec<ServicePlan>>,
    /// The external load balancers. Somebody other than ccm created such a load balancer, and its label `external`
    /// allows Services to use it. The list is empty when no plans for the Services were made, e.g. because load
    /// balancers are turned off.
    pub(in crate::cli) external: Vec<Balancer>,
    /// The annotations of Namespaces that are defaults for their Services, and a list of annotations of Namespaces that
    /// have no effect.
    pub(in crate::cli) namespaces: Arc<NamespaceDefaults>,
    /// The Services as Kubernetes lists them, without data from the cloud.
    pub(in crate::cli) listed: Seen<Arc<Vec<Arc<KubeService>>>>,
    /// The event about the failed sync, for each Service whose last sync failed.
    pub(in crate::cli) failed_tries: Seen<HashMap<Involved, Arc<PastEvent>>>,
    pub(in crate::cli) orphans: Seen<Vec<Orphan>>,
    /// The load balancers and certificates whose Service does not exist any more, and which stay in the cloud because
    /// an annotation of that Service asked to keep them.
    pub(in crate::cli) kept: Seen<Vec<KeptObject>>,
}

/// A right that the daemon needs: a verb, and the resource on which the daemon uses this verb. A subresource is written
/// as `RESOURCE/SUBRESOURCE`. A test checks that the roles in `manifests/` give exactly these rights.
pub(in crate::cli) type Need = (&'static str, &'static str);
