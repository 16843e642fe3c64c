//! The settings and the objects of the API from which plans are made.

use super::defaults::ServiceDefaults;
use super::group::Group;
use super::index::{BalancerIndex, Balancers};
use super::judge::Replacing;
use crate::hetzner::api::{Api, CachedList};
use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::annotations::{Annotation, AnnotationScope};
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
    /// The list of load balancer types, as it was read last.
    pub(in crate::hetzner) types: Arc<CachedList<BalancerType>>,
}

/// All load balancers of a project and the objects related to them, as they were read from the API at one time. An
/// index over the list finds a load balancer quickly, e.g. by its ID or a label.
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
    /// Whether a field is left unchanged when neither an annotation nor a setting sets it. This is so in profile
    /// `hcloud`: hcloud-cloud-controller-manager leaves such fields unchanged, so users may have set them by hand. A
    /// take-over from that controller must not reset them.
    pub(crate) fn preserves_unset(&self) -> bool {
        self.profile == Profile::Hcloud
    }

    /// Returns the source of an annotation's default, for display, e.g. an environment variable. An existing port or
    /// load balancer gets this default when the annotation is missing. The result is `None` with
    /// `--cloud-provider=hcloud`, because the present value is then left unchanged.
    pub(crate) fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        (!self.preserves_unset()).then(|| default_source(annotation))
    }
}

/// The objects that were read from the Hetzner Cloud API to make plans, e.g. load balancers and certificates.
#[derive(Clone, Debug, Default)]
pub struct ObservedBalancers {
    /// All load balancers of the project.
    pub balancers: Vec<LoadBalancer>,
    /// All load balancer types. `None` means that they were not read, because no Service needs them, or that they could
    /// not be read (see `types_error`).
    pub types: Option<Arc<Vec<BalancerType>>>,
    /// Whether the list of types is so old that it must be read again before a plan writes a type that was chosen from
    /// it.
    pub are_types_old: bool,
    /// Why the list of types could not be read. `types` is `None` then.
    pub types_error: Option<String>,
    /// All certificates of the project. `None` means that no Service needs a certificate, so that they were not read.
    pub certificates: Option<Vec<Certificate>>,
    /// All Primary IPs of the project. `None` means that no new load balancer needs one, so that they were not read.
    pub primary_ips: Option<Vec<PrimaryIp>>,
    /// The subnets of the private Network. `None` when no Network is set, or when the subnets were not read.
    pub subnets: Option<Arc<Vec<Subnet>>>,
    /// Whether so few calls of the API's rate limit remain that work which can wait is done later.
    pub is_budget_low: bool,
    /// The time of the API in UNIX seconds, when it answered with the load balancers. `None` when the answer contained
    /// no time.
    pub now: Option<i64>,
    /// Whether only manifest files are checked, without a cluster and without reading load balancers. Every object that
    /// a manifest names is then assumed to exist; see `Hetzner::for_manifests`.
    pub is_for_manifests: bool,
}

/// The data that the plan of one Service needs, e.g. the Service, the cluster and the load balancers.
pub(crate) struct PlanContext<'a> {
    pub(crate) project: &'a Project,
    pub(crate) observed: &'a ObservedBalancers,
    pub(crate) balancers: Balancers<'a>,
    pub(crate) service: &'a Service,
    pub(crate) nodes: &'a [OfferedNode],
    pub(crate) cluster: &'a Cluster,
    pub(crate) certificates: &'a [Certificate],
    pub(crate) group: Group<'a>,
    /// The default values of the annotations that are about the whole load balancer, and not about a port or a single
    /// Service. They come from the annotations of a Namespace and from the settings. When Services share the load
    /// balancer under the name `NAMESPACE/NAME`, the annotations of this namespace are used.
    pub(crate) defaults: ServiceDefaults,
    /// The default values of the annotations that are about a port or this Service alone. They come from the
    /// annotations of the Service's own Namespace and from the settings.
    pub(crate) own_defaults: ServiceDefaults,
    /// Whether the load balancer of this plan will be replaced by a new load balancer, or replaces an old one.
    pub(crate) replacing: Replacing<'a>,
}

impl PlanContext<'_> {
    /// Returns the default values of annotations for this Service, which can be in another Namespace than the Service
    /// of the plan. They come from the annotations of its Namespace and from the settings.
    pub(crate) fn defaults_for(&self, service: &Service) -> ServiceDefaults {
        ServiceDefaults::of(&self.project.defaults, service)
    }

    /// Returns why the default value of this annotation is unknown, for example because the annotation of the Namespace
    /// is invalid. `None` means that it is known whether there is a default, and which one.
    pub(crate) fn unknown(&self, annotation: &Annotation) -> Option<&str> {
        let is_whole = annotation.scope == AnnotationScope::Whole;
        (if is_whole { &self.defaults } else { &self.own_defaults }).unknown(annotation)
    }

    pub(crate) fn is_unknown(&self, annotation: &Annotation) -> bool {
        self.unknown(annotation).is_some()
    }

    /// Returns the source of an annotation's default, for display, e.g. an environment variable. An existing port or
    /// load balancer gets this default when the annotation is missing. The result is `None` when the present value must
    /// stay unchanged: with `--cloud-provider=hcloud`, and while the default of the Namespace is not known.
    pub(crate) fn enforced(&self, annotation: &Annotation) -> Option<Source> {
        self.project.enforced(annotation).filter(|_| !self.is_unknown(annotation))
    }
}

/// The text that users see as the source of a value when it is the default of Hetzner's API.
pub(crate) const BY_API: Source = Source::Rule("the default of the API");

/// Returns the source of the value that a field has without its annotation, for display. This is the environment
/// variable with the default of the annotation, if there is one, and otherwise the API's default.
pub(crate) fn default_source(annotation: &Annotation) -> Source {
    annotation.variable.map_or(BY_API, |variable| Source::Default(variable.to_string()))
}
