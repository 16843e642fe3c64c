//! What a plan rests on: the project, and what was read.

use super::group::Group;
use super::index::{Balancers, Index};
use crate::hetzner::api::Api;
use crate::hetzner::certificates::{self, Certificate, Certificates};
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
    /// ID of the private Network, with `HCLOUD_NETWORK`.
    pub network: Option<u64>,
    pub(in crate::hetzner) api: Arc<Api>,
}

/// What was read of a project's load balancers, indexed.
pub struct Snapshot {
    pub(crate) project: Project,
    pub(crate) observed: Observed,
    index: Index,
    certificates: certificates::Index,
}

impl Snapshot {
    pub fn new(project: Project, observed: Observed) -> Snapshot {
        let certificates = observed.certificates.as_deref().unwrap_or_default();
        Snapshot {
            index: Index::new(&observed.balancers),
            certificates: certificates::Index::new(certificates),
            project,
            observed,
        }
    }

    pub(crate) fn balancers(&self) -> Balancers<'_> {
        self.index.of(&self.observed.balancers)
    }

    pub(in crate::hetzner) fn certificates(&self) -> Certificates<'_> {
        let all = self.observed.certificates.as_deref().unwrap_or_default();
        Certificates::new(all, &self.certificates)
    }
}

impl Project {
    /// Upstream leaves some unset fields unchanged; people have set them by hand, and a take-over must not reset them.
    pub(crate) fn preserves_unset(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// The source of the default of an unset field; none: it is left unchanged.
    pub(crate) fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        (!self.preserves_unset()).then(|| default_source(annotation))
    }
}

/// What plans rest on.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// All of the project.
    pub balancers: Vec<LoadBalancer>,
    /// None: no Service needed them.
    pub types: Option<Arc<Vec<BalancerType>>>,
    /// None: no Service named one.
    pub certificates: Option<Vec<Certificate>>,
    /// None: no Service that is to get a load balancer asks for one.
    pub primary_ips: Option<Vec<PrimaryIp>>,
    /// Of the private Network; none: there is none, or they were not read.
    pub subnets: Option<Arc<Vec<Subnet>>>,
    /// There is no cluster and no load balancer; what was not read counts as there: see `Hetzner::for_manifests`.
    pub is_for_manifests: bool,
}

/// What the plan of one Service rests on.
pub(crate) struct Context<'a> {
    pub(crate) project: &'a Project,
    pub(crate) observed: &'a Observed,
    pub(crate) balancers: Balancers<'a>,
    pub(crate) service: &'a Service,
    pub(crate) nodes: &'a [OfferedNode],
    pub(crate) cluster: &'a Cluster,
    pub(crate) certificates: Certificates<'a>,
    pub(crate) group: Group<'a>,
}

/// The source of an unset value: its setting, where there is one.
pub(crate) fn default_source(annotation: &Annotation) -> Source {
    match annotation.variable {
        Some(variable) => Source::Default(variable.to_string()),
        None => Source::Rule("the default of the API"),
    }
}
