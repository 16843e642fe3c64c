//! The settings and the objects of the API from which plans are made.

use super::group::Group;
use super::index::{BalancerIndex, Balancers};
use crate::hetzner::api::Api;
use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::annotations::Annotation;
use crate::hetzner::load_balancers::model::balancer::{BalancerType, LoadBalancer, PrimaryIp};
use crate::hetzner::networks::Subnet;
pub use crate::provider::LoadBalancerDefaults as Defaults;
use crate::provider::{Cluster, OfferedNode, Profile, Service, Source};
use std::sync::Arc;

/// The Hetzner Cloud project whose load balancers are planned: its API, and the settings on which plans depend.
#[derive(Clone)]
pub struct Project {
    pub profile: Profile,
    pub defaults: Arc<Defaults>,
    /// The ID of the private Network, when `HCLOUD_NETWORK` is set.
    pub network: Option<u64>,
    pub(in crate::hetzner) api: Arc<Api>,
}

/// The load balancers of a project and their related objects as they were read from the API, with an index of
/// the load balancers.
pub struct BalancerSnapshot {
    pub(crate) project: Project,
    pub(crate) observed: ObservedBalancers,
    index: BalancerIndex,
}

impl BalancerSnapshot {
    pub fn new(project: Project, observed: ObservedBalancers) -> BalancerSnapshot {
        BalancerSnapshot { index: BalancerIndex::new(&observed.balancers), project, observed }
    }

    pub(crate) fn balancers(&self) -> Balancers<'_> {
        self.index.of(&self.observed.balancers)
    }
}

impl Project {
    /// Whether fields that no annotation and no setting sets are left unchanged. hcloud-cloud-controller-manager leaves
    /// some of these fields unchanged. Users may have set such fields by hand, and a take-over from that controller
    /// must not reset them.
    pub(crate) fn preserves_unset(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// Returns the source of the default value that a field gets when no annotation sets the field. `None` means that
    /// such a field is left unchanged.
    pub(crate) fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        (!self.preserves_unset()).then(|| default_source(annotation))
    }
}

/// The objects that were read from the API to make plans.
#[derive(Clone, Debug, Default)]
pub struct ObservedBalancers {
    /// All load balancers of the project.
    pub balancers: Vec<LoadBalancer>,
    /// The load balancer types. `None` means that they were not read, because no Service needs them.
    pub types: Option<Arc<Vec<BalancerType>>>,
    /// The certificates of the project. `None` means that they were not read, because no Service needs a certificate.
    pub certificates: Option<Vec<Certificate>>,
    /// The Primary IPs of the project. `None` means that they were not read, because no new load balancer needs one.
    pub primary_ips: Option<Vec<PrimaryIp>>,
    /// The subnets of the private Network. `None` when there is no Network, or when the subnets were not read.
    pub subnets: Option<Arc<Vec<Subnet>>>,
    /// Whether only manifests are checked, without a cluster and without load balancers. An object that was not read is
    /// then assumed to exist; see `Hetzner::for_manifests`.
    pub is_for_manifests: bool,
}

/// The data from which the plan of one Service is made.
pub(crate) struct PlanContext<'a> {
    pub(crate) project: &'a Project,
    pub(crate) observed: &'a ObservedBalancers,
    pub(crate) balancers: Balancers<'a>,
    pub(crate) service: &'a Service,
    pub(crate) nodes: &'a [OfferedNode],
    pub(crate) cluster: &'a Cluster,
    pub(crate) certificates: &'a [Certificate],
    pub(crate) group: Group<'a>,
}

/// The source of a value that is the default of Hetzner's API.
pub(crate) const BY_API: Source = Source::Rule("the default of the API");

/// Returns the source of the value that a field gets when its annotation is unset. This is the environment variable
/// that sets the annotation's default, or the default of the API when there is no such variable.
pub(crate) fn default_source(annotation: &Annotation) -> Source {
    annotation.variable.map_or(BY_API, |variable| Source::Default(variable.to_string()))
}
