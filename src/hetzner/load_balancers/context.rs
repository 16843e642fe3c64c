//! What a plan rests on: settings, what was read, and what is unknown in a shell.

use super::annotations::Annotation;
use super::balancer::{BalancerType, LoadBalancer, PrimaryIp};
use super::names::{self, ADOPTED, CREATED, YES};
use crate::hetzner::api::Api;
use crate::hetzner::certificates::{Certificate, Certificates};
use crate::hetzner::networks::Subnet;
pub use crate::provider::LoadBalancerDefaults as Defaults;
use crate::provider::{
    Cluster, InstanceId, OfferedNode, Profile, Protocol, ProviderId, Service, Source,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The settings that plans depend on, and the project in which their changes are made.
#[derive(Clone)]
pub struct Planner {
    pub profile: Profile,
    pub defaults: Arc<Defaults>,
    /// ID of the private Network, with `HCLOUD_NETWORK`.
    pub network: Option<u64>,
    pub(in crate::hetzner) api: Arc<Api>,
}

/// What was read of load balancers, and how it is planned by.
pub struct Snapshot {
    pub planner: Planner,
    pub observed: Observed,
}

/// The flag whose default names the cluster on a label.
pub(super) const CLUSTER_NAME: &str = "--cluster-name";
pub(super) const NETWORK: &str = "HCLOUD_NETWORK";
/// It has no annotation.
pub(super) const NODE_PORT: &str = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT";

impl Planner {
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
        matches!(source, Source::Default(setting) if self.is_unknown(setting))
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
    pub(super) planner: &'a Planner,
    pub(super) observed: &'a Observed,
    pub(super) service: &'a Service,
    pub(super) nodes: &'a [OfferedNode],
    pub(super) cluster: &'a Cluster,
    pub(super) certificates: Certificates<'a>,
    pub(super) limits: Limits,
}

impl<'a> Context<'a> {
    /// Ours, as they should be. `balancer`: none: a new one.
    pub(super) fn labels(
        &self,
        balancer: Option<&LoadBalancer>,
        adopts: bool,
    ) -> BTreeMap<&'static str, String> {
        let mut labels = names::labels(self.service, self.cluster);
        let is_ours = |one: &LoadBalancer| one.labels.contains_key(CREATED);
        match balancer {
            None => drop(labels.insert(CREATED, YES.to_owned())),
            Some(one) if adopts && !is_ours(one) => drop(labels.insert(ADOPTED, YES.to_owned())),
            Some(_) => {}
        }
        labels
    }

    pub(super) fn names(&self) -> Names<'a> {
        Names {
            offered: self.nodes,
            cluster: Some(self.cluster),
        }
    }
}

/// Servers by the names of their nodes.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) offered: &'a [OfferedNode],
    /// Where they are known, also of nodes that get no traffic.
    pub(super) cluster: Option<&'a Cluster>,
}

impl Names<'_> {
    /// The node on a server, else the server's number.
    pub(super) fn of(self, server: u64) -> String {
        let known = self
            .cluster
            .and_then(|one| one.servers.get(&InstanceId(server)));
        let is_on = |node: &&OfferedNode| matches!(node.provider_id, ProviderId::Ours(id) if id.0 == server);
        let offered = || Some(&self.offered.iter().find(is_on)?.name);
        match known.or_else(offered) {
            Some(name) => name.clone(),
            None => format!("server {server}"),
        }
    }
}

/// How many ports and certificates a Service may have at all: what the largest type of load balancer takes. Checked
/// before anything is computed for each port. The type of the Service may take less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    services: usize,
    pub(super) certificates: usize,
}

/// Of an `lb31`, the largest type of 2026. The types are not read for a Service whose load balancer is to keep its own.
const LARGEST: Limits = Limits {
    services: 30,
    certificates: 50,
};

impl Limits {
    /// No less than those of any type that was read.
    pub(super) fn of(observed: &Observed) -> Limits {
        let types = observed.types.iter().flat_map(|types| types.iter());
        let own = observed.balancers.iter().map(|one| &one.load_balancer_type);
        types.chain(own).fold(LARGEST, |largest, kind| Limits {
            services: largest.services.max(kind.max_services),
            certificates: largest.certificates.max(kind.max_assigned_certificates),
        })
    }

    /// Why no load balancer can serve this Service.
    pub(super) fn exceeded_by(self, service: &Service) -> Option<String> {
        let ports = service.ports.iter();
        let ports = ports.filter(|port| port.protocol == Protocol::Tcp).count();
        (ports > self.services).then(|| {
            format!(
                "the Service has {ports} TCP ports, and the largest type of load balancer takes {}: remove ports, or give \
                 them to several Services",
                self.services
            )
        })
    }
}

/// The source of an unset value: its setting, where there is one.
pub(super) fn default_source(annotation: &Annotation) -> Source {
    match annotation.variable {
        Some(variable) => Source::Default(variable.to_owned()),
        None => Source::Rule("the default of the API"),
    }
}
