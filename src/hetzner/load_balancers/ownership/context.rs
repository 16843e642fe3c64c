//! The data on which a plan depends: the project, and what was read.

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

/// The project whose load balancers are planned: its API, and the settings that plans depend on.
#[derive(Clone)]
pub struct Project {
    pub profile: Profile,
    pub defaults: Arc<Defaults>,
    /// The ID of the private Network, when `HCLOUD_NETWORK` is set.
    pub network: Option<u64>,
    pub(in crate::hetzner) api: Arc<Api>,
}

/// The load balancers of a project as they were read, with an index.
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
    /// Whether unset fields are left unchanged. hcloud-cloud-controller-manager leaves some unset fields unchanged, so
    /// users have set them by hand, and a take-over must not reset them.
    pub(crate) fn preserves_unset(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// When fields that no annotation sets get a default value, returns the source of that value. `None` means that
    /// such a field is left unchanged.
    pub(crate) fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        (!self.preserves_unset()).then(|| default_source(annotation))
    }
}

/// The data that was read for plans.
#[derive(Clone, Debug, Default)]
pub struct ObservedBalancers {
    /// All load balancers of the project.
    pub balancers: Vec<LoadBalancer>,
    /// The load balancer types. `None` when no Service needed them.
    pub types: Option<Arc<Vec<BalancerType>>>,
    /// The certificates of the project. `None` when they were not read, because no Service named a certificate.
    pub certificates: Option<Vec<Certificate>>,
    /// The Primary IPs. `None` when no Service that is to get a load balancer asks for a Primary IP.
    pub primary_ips: Option<Vec<PrimaryIp>>,
    /// The subnets of the private Network. `None` when there is no Network, or when the subnets were not read.
    pub subnets: Option<Arc<Vec<Subnet>>>,
    /// Whether only manifests are checked. Then there is no cluster and no load balancer, and what was not read is
    /// assumed to exist; see `Hetzner::for_manifests`.
    pub is_for_manifests: bool,
}

/// The data on which the plan of one Service depends.
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

/// The source of a value that only the API chooses.
pub(crate) const BY_API: Source = Source::Rule("the default of the API");

/// The source of the value of an unset field. This is the setting that belongs to the annotation, or the default of the
/// API when there is no such setting.
pub(crate) fn default_source(annotation: &Annotation) -> Source {
    annotation.variable.map_or(BY_API, |variable| Source::Default(variable.to_string()))
}
