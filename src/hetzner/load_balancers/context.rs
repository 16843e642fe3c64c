//! What a plan rests on: the project, what was read, and what is unknown in a shell.

use super::annotations::Annotation;
use super::balancer::{BalancerType, LoadBalancer, PrimaryIp};
use super::group::Group;
use super::index::{Balancers, Index};
use super::names::{self, ADOPTED, CREATED, KEEP, SERVICE, SERVICE_UID, YES};
use crate::hetzner::api::Api;
use crate::hetzner::certificates::{self, Certificate, Certificates};
use crate::hetzner::networks::Subnet;
pub use crate::provider::LoadBalancerDefaults as Defaults;
use crate::provider::{Cluster, OfferedNode, Profile, Service, Source};
use std::collections::BTreeMap;
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
    pub(super) project: Project,
    pub(super) observed: Observed,
    index: Index,
    certificates: certificates::Index,
}

/// The flag whose default names the cluster on a label.
pub(super) const CLUSTER_NAME: &str = "--cluster-name";
pub(super) const NETWORK: &str = "HCLOUD_NETWORK";
/// It has no annotation.
pub(super) const NODE_PORT: &str = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT";

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

    pub(super) fn balancers(&self) -> Balancers<'_> {
        self.index.of(&self.observed.balancers)
    }

    pub(super) fn certificates(&self) -> Certificates<'_> {
        let all = self.observed.certificates.as_deref().unwrap_or_default();
        Certificates::new(all, &self.certificates)
    }
}

impl Project {
    /// Upstream leaves some unset fields unchanged; people have set them by hand, and a take-over must not reset them.
    pub(super) fn preserves_unset(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// The source of the default of an unset field; none: it is left unchanged.
    pub(super) fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        (!self.preserves_unset()).then(|| default_source(annotation))
    }

    /// In a shell: only the default of a setting asks for it, and the setting may be set for the daemon. What exists is
    /// then left unchanged, and the difference is reported.
    pub(super) fn holds_back(&self, source: &Source) -> bool {
        source
            .setting()
            .is_some_and(|setting| self.is_unknown(setting))
    }

    pub(in crate::hetzner) fn may_have_network(&self) -> bool {
        self.is_unknown(NETWORK)
    }

    /// The setting may be set for the daemon.
    pub(super) fn is_unknown(&self, setting: &str) -> bool {
        self.defaults.unknown.iter().any(|one| one == setting)
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
pub(super) struct Context<'a> {
    pub(super) project: &'a Project,
    pub(super) observed: &'a Observed,
    pub(super) balancers: Balancers<'a>,
    pub(super) service: &'a Service,
    pub(super) nodes: &'a [OfferedNode],
    pub(super) cluster: &'a Cluster,
    pub(super) certificates: Certificates<'a>,
    pub(super) group: Group<'a>,
}

impl Context<'_> {
    /// Ours, as they should be; none: to be removed. No `balancer`: those of a new one. `ports`: those that the Service
    /// gets. `is_kept`: it outlasts its Services.
    pub(super) fn labels(
        &self,
        balancer: Option<&LoadBalancer>,
        adopts: bool,
        ports: &[u16],
        is_kept: bool,
    ) -> BTreeMap<String, Option<String>> {
        let mut labels = BTreeMap::new();
        if !self.group.is_external() {
            let own = names::labels(self.service, self.cluster).into_iter();
            labels.extend(own.map(|(label, value)| (label, Some(value))));
            let more = match balancer {
                None => Some(CREATED),
                Some(one) => Some(ADOPTED).filter(|_| adopts && !one.labels.contains_key(CREATED)),
            };
            labels.extend(more.map(|label| (label.to_owned(), Some(YES.to_owned()))));
            labels.insert(KEEP.to_owned(), is_kept.then(|| self.group.made_for()));
        }
        labels.extend(self.group.labels(balancer, ports));
        let own = balancer.map(|one| one.id);
        let mut with_uid = self.balancers.labelled(SERVICE_UID, &self.service.uid);
        // Of two with the UID it would not be known which one is the Service's.
        if !self.group.is_own() && with_uid.any(|one| Some(one.id) != own) {
            labels.extend([SERVICE_UID, SERVICE].map(|one| (one.to_owned(), None)));
        }
        labels.retain(|label, value| {
            value.is_some() || balancer.is_some_and(|one| one.labels.contains_key(label))
        });
        labels
    }
}

/// The source of an unset value: its setting, where there is one.
pub(super) fn default_source(annotation: &Annotation) -> Source {
    match annotation.variable {
        Some(variable) => Source::Default(variable.to_owned()),
        None => Source::Rule("the default of the API"),
    }
}
