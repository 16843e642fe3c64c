//! Services: the fields that a load balancer is made from, and the calls that read and write Services.
//!
//! The role of hcloud-cloud-controller-manager has no `get` on services, and this program must work with that role. A
//! single Service is therefore read as a list that selects its name.

use super::budget::{Above, Age, ServiceBudget};
use super::client::{
    KubeClient, ListOf, MERGE_PATCH, PARTIAL, PASS, Print, ReadFrom, SERVICE_LIST,
};
use super::client::{folder, percent_encoded};
use super::error::KubeError;
use super::labels::{Annotations, ServiceScope, labels_of_service};
use super::streamed::{Collect, StreamedPage};
use super::types::{
    First, ListPage, ObjectReference, not_empty, null_as_default, short, timestamp,
};
use crate::http::Method;
use crate::provider::{self, Ingress, lock};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// The finalizer that a Service has as long as its load balancer can exist.
pub const LOAD_BALANCER_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The `kind` of a Service in references to objects.
pub const SERVICE: &str = "Service";

/// How many ports of a Service are read at most. The largest load balancer has only 30 ports, but a Service can have
/// further ports, with protocols that load balancers do not support.
const PORTS_AT_MOST: usize = 250;

/// How many source ranges of a Service are read at most. The ranges are used only in a message to the user, so no more
/// are needed.
const RANGES_AT_MOST: usize = 100;

const FINALIZERS_AT_MOST: usize = 100;

/// The size of one port in memory, without its name, in bytes.
const BYTES_OF_A_PORT: usize = size_of::<provider::ServicePort>();

const SERVICES: &str = "/api/v1/services";
const LOAD_BALANCER: &str = "LoadBalancer";

/// A Service, with the fields that this program uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KubeService {
    pub metadata: ServiceMeta,
    #[serde(default)]
    pub spec: ServiceSpec,
    #[serde(default)]
    pub status: ServiceStatus,
    /// The reason why this program does not manage the Service, as [`ServiceScope`] has decided. `None` means that this
    /// program manages the Service.
    #[serde(skip)]
    pub left_alone: Option<&'static str>,
    /// The limit on memory because of which the large fields of this Service were dropped. Older Services already take
    /// all the memory that this limit allows. `None` means that no limit was exceeded.
    #[serde(skip)]
    pub above: Option<Above>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMeta {
    #[serde(deserialize_with = "not_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "not_empty")]
    pub name: String,
    #[serde(deserialize_with = "not_empty")]
    pub uid: String,
    #[serde(deserialize_with = "not_empty")]
    pub resource_version: String,
    /// The labels of the Service. They are used only to decide whether this program manages the Service. After that
    /// decision they are removed from memory.
    #[serde(default, deserialize_with = "labels_of_service")]
    pub labels: Annotations,
    #[serde(default)]
    pub annotations: Annotations,
    #[serde(default)]
    pub finalizers: Finalizers,
    pub deletion_timestamp: Option<String>,
    #[serde(default, deserialize_with = "timestamp")]
    pub creation_timestamp: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: String,
    pub load_balancer_class: Option<String>,
    pub ports: First<provider::ServicePort, PORTS_AT_MOST>,
    pub external_traffic_policy: String,
    pub health_check_node_port: Option<u16>,
    #[serde(rename = "loadBalancerIP", deserialize_with = "short")]
    pub load_balancer_ip: String,
    pub load_balancer_source_ranges: First<String, RANGES_AT_MOST>,
    pub session_affinity: String,
    /// The families of the Service's addresses: `IPv4`, `IPv6`, or both.
    #[serde(deserialize_with = "null_as_default")]
    pub ip_families: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    #[serde(default, deserialize_with = "null_as_default")]
    pub load_balancer: LoadBalancerStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct LoadBalancerStatus {
    #[serde(default, deserialize_with = "null_as_default")]
    pub ingress: Vec<Ingress>,
}

/// A Service of any type, with only the few fields that are needed to know that the Service exists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AnyService {
    pub metadata: AnyServiceMeta,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AnyServiceMeta {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    #[serde(default, rename = "finalizers", deserialize_with = "has_our_finalizer")]
    pub has_our_finalizer: bool,
}

/// Reads the finalizers of a Service and returns whether [`LOAD_BALANCER_FINALIZER`] is among them. The finalizers are
/// not stored.
fn has_our_finalizer<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    Ok(has_ours(&Finalizers::deserialize(d)?))
}

type Finalizers = First<String, FINALIZERS_AT_MOST>;

fn has_ours(finalizers: &Finalizers) -> bool {
    finalizers.iter().any(|finalizer| finalizer == LOAD_BALANCER_FINALIZER)
}

impl KubeService {
    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    pub fn object(&self) -> ObjectReference {
        ObjectReference {
            kind: SERVICE,
            name: self.metadata.name.clone(),
            namespace: self.metadata.namespace.clone(),
            uid: self.metadata.uid.clone(),
        }
    }

    pub fn has_our_finalizer(&self) -> bool {
        has_ours(&self.metadata.finalizers)
    }

    /// Decides whether this program manages the Service, and drops the annotations that the code for Hetzner does not
    /// read.
    pub fn select(&mut self, scope: &ServiceScope) {
        self.metadata.annotations.select(scope.annotations);
        let labels = std::mem::take(&mut self.metadata.labels);
        self.left_alone = scope.left_alone(&self.spec.load_balancer_class, &labels);
        // This program does not manage the Service. The Service does not have our finalizer, so it has no load balancer
        // that this program must delete. The annotations are then not needed.
        if self.left_alone.is_some() && !self.has_our_finalizer() {
            self.metadata.annotations = Annotations::default();
        }
    }

    /// Returns a message for the user when parts of the Service were dropped. The Service has too many ports or too
    /// large annotations, or the Services of its namespace or of the cluster together take too much memory. No load
    /// balancer can be made from such a Service.
    pub fn too_large(&self) -> Option<String> {
        let many_ports = self.spec.ports.too_many("ports");
        let too_large = many_ports.or_else(|| self.metadata.annotations.too_large());
        let above = || Some(self.above?.message(&self.metadata.namespace));
        too_large.or_else(above)
    }

    /// Returns the size of all parts of the Service that its author can make long, in bytes.
    fn bytes(&self) -> usize {
        let ports = self.spec.ports.iter().map(|port| BYTES_OF_A_PORT + port.name.len());
        let ranges = self.spec.load_balancer_source_ranges.iter().map(String::len);
        let finalizers = self.metadata.finalizers.iter().map(String::len);
        self.metadata.annotations.bytes() + ports.chain(ranges).chain(finalizers).sum::<usize>()
    }

    fn age(&self) -> Age {
        (self.metadata.creation_timestamp, self.metadata.uid.clone())
    }

    /// Drops the large fields: the annotations, source ranges and ports. The ports stay when the load balancer still
    /// has to be deleted, because the deletion needs them.
    fn leave_out(&mut self) {
        self.metadata.annotations = Annotations::default();
        self.spec.load_balancer_source_ranges = First::default();
        if !self.is_to_end() {
            self.spec.ports = First::default();
        }
    }

    /// Compares the annotations with those of another version of the Service. When they are equal, both versions share
    /// one copy in memory.
    pub fn share_annotations(&mut self, other: &KubeService) {
        self.metadata.annotations.share(&other.metadata.annotations);
    }

    fn is_to_end(&self) -> bool {
        self.has_our_finalizer() && !self.wants_load_balancer()
    }

    /// Drops the annotations and other large fields of this Service when `budget` says that the Services of its
    /// namespace, or all Services together, take too much memory. `budget` comes from the most recent list of Services.
    fn limit(&mut self, budget: &ServiceBudget) {
        let above = budget.is_above(&self.metadata.namespace, &self.age(), self.bytes());
        if above.is_some() {
            self.leave_out();
            self.above = above;
        }
    }

    /// Returns a message for the user when the Service has more finalizers than were read, and otherwise `None`. The
    /// finalizers of such a Service must not be written, because the patch would delete the finalizers that were not
    /// read.
    pub fn too_many_finalizers(&self) -> Option<String> {
        let why = self.metadata.finalizers.too_many("finalizers")?;
        Some(self.above.map_or(why, |above| above.message(&self.metadata.namespace)))
    }

    pub fn is_of_type_load_balancer(&self) -> bool {
        self.spec.kind == LOAD_BALANCER
    }

    /// Whether this program should create and keep a load balancer for the Service.
    pub fn wants_load_balancer(&self) -> bool {
        self.left_alone.is_none()
            && self.is_of_type_load_balancer()
            && self.metadata.deletion_timestamp.is_none()
    }

    /// Returns the data of the Service that a cloud provider needs, with the defaults of its Namespace.
    pub fn in_namespace(&self, namespaces: &provider::NamespaceDefaults) -> provider::Service {
        let of_namespace = namespaces.of(&self.metadata.namespace);
        provider::Service { of_namespace, ..self.for_cloud() }
    }

    /// Returns the data of the Service that a cloud provider needs, without the defaults of its Namespace.
    pub fn for_cloud(&self) -> provider::Service {
        let spec = &self.spec;
        let metadata = &self.metadata;
        provider::Service {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            created: metadata.creation_timestamp,
            annotations: metadata
                .annotations
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            more_unknown: metadata.annotations.more_unknown,
            ports: spec.ports.to_vec(),
            traffic_policy: match spec.external_traffic_policy.as_str() {
                "Local" => provider::TrafficPolicy::Local,
                _ => provider::TrafficPolicy::Cluster,
            },
            health_check_node_port: spec.health_check_node_port,
            load_balancer_ip: spec.load_balancer_ip.clone(),
            source_ranges: spec.load_balancer_source_ranges.to_vec(),
            has_session_affinity: spec.session_affinity == "ClientIP",
            is_ipv6_alone: spec.ip_families == ["IPv6"],
            addresses: self
                .status
                .load_balancer
                .ingress
                .iter()
                .filter_map(|ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()))
                .collect(),
            of_namespace: Arc::default(),
        }
    }
}

/// The Services of a list, and the hash of the list. When a new list has the same hash, no Service has changed.
#[derive(Debug, Default)]
pub struct ServiceList {
    pub items: Arc<Vec<Arc<KubeService>>>,
    print: Print,
}

/// The Services of a list that is being read. The fields that are not needed are dropped as soon as a Service is read.
struct Collected<'a> {
    scope: &'a ServiceScope,
    /// The Services of the previous list, by UID. An unchanged Service shares its memory with the Service in this map,
    /// so that reading an unchanged list again needs no more memory.
    known: &'a HashMap<&'a str, &'a Arc<KubeService>>,
    services: Vec<Arc<KubeService>>,
    budget: ServiceBudget,
    /// The number of Services on the pages before the current page.
    before_page: usize,
}

impl Collect for Collected<'_> {
    type Item = KubeService;
    const KIND: &'static str = SERVICE_LIST;

    fn begin_page(&mut self) {
        self.services.truncate(self.before_page);
        self.budget.forget_from(self.before_page);
    }

    fn end_page(&mut self) {
        self.before_page = self.services.len();
    }

    fn add(&mut self, mut service: KubeService) {
        service.select(self.scope);
        let place = self.services.len();
        let (namespace, age) = (&service.metadata.namespace, service.age());
        let above = self.budget.add(namespace, &age, service.bytes(), place);
        self.services.push(Arc::new(service));
        self.share(place);
        for place in above {
            let service = Arc::make_mut(&mut self.services[place]);
            service.leave_out();
            // To save memory, finalizers other than ours are removed from this copy of the Service. They are needed
            // only for a write, and before a write the Service is read again by its name, with all its finalizers. A
            // Service whose load balancer must be deleted keeps them, because the removal of our finalizer is not
            // planned for a copy in which finalizers are missing.
            if !service.is_to_end() {
                let finalizers = &mut service.metadata.finalizers;
                finalizers.keep(|finalizer| finalizer == LOAD_BALANCER_FINALIZER);
            }
            // The Service has lost its large fields because a memory limit was exceeded. This is either the limit of
            // its namespace or the limit of all Services together. Which of the two it is can be known only after all
            // Services were read. The value is `Total` for now, and `Collected::end` sets the right value.
            service.above = Some(Above::Total);
        }
    }
}

impl Collected<'_> {
    fn share(&mut self, place: usize) {
        let service = &mut self.services[place];
        let Some(known) = self.known.get(service.metadata.uid.as_str()) else {
            return;
        };
        if ***known == **service {
            *service = Arc::clone(known)
        } else {
            Arc::make_mut(service).share_annotations(known)
        }
    }

    /// Returns the Services of the finished list, and which memory limits they have used up. When a single Service is
    /// later read by its name, these limits decide whether it keeps its annotations and other large fields.
    fn end(mut self) -> (Vec<Arc<KubeService>>, ServiceBudget) {
        for place in 0..self.services.len() {
            let service = &self.services[place];
            if service.above.is_some() {
                let above = self.budget.cut(&service.metadata.namespace, &service.age());
                Arc::make_mut(&mut self.services[place]).above = above;
                self.share(place);
            }
        }
        (self.services, self.budget.ended())
    }
}

/// Checks Services from manifests, which are not in a cluster, against the memory limits for all Services. Marks each
/// Service whose large fields (annotations, source ranges and ports) would be dropped when it is read from a cluster.
/// Manifests contain no creation times, so a Service counts as older than the Services that follow it in the manifests.
pub fn limit_manifests<'a>(services: impl Iterator<Item = &'a mut KubeService>) {
    let mut all: Vec<&mut KubeService> = services.collect();
    let mut budget = ServiceBudget::default();
    for (place, service) in all.iter().enumerate() {
        let age = (None, format!("{place:09}"));
        budget.add(&service.metadata.namespace, &age, service.bytes(), place);
    }
    for (place, service) in all.iter_mut().enumerate() {
        let age = (None, format!("{place:09}"));
        let above = budget.is_above(&service.metadata.namespace, &age, service.bytes());
        service.above = above;
    }
}

impl KubeClient {
    /// Returns all Services of type LoadBalancer, or an error when the list is not complete. `known` is an earlier
    /// list. A Service that has not changed since then is not stored a second time: the result points to the object in
    /// `known`.
    pub fn load_balancer_services(
        &self,
        from: ReadFrom,
        known: &ServiceList,
    ) -> Result<ServiceList, KubeError> {
        let list = ListOf {
            path: SERVICES,
            query: "&fieldSelector=spec.type%3DLoadBalancer",
            kind: SERVICE_LIST,
            from,
        };
        let by_uid: HashMap<&str, &Arc<KubeService>> =
            known.items.iter().map(|service| (service.metadata.uid.as_str(), service)).collect();
        let begin = || {
            RefCell::new(Collected {
                scope: &self.scope,
                known: &by_uid,
                services: Vec::new(),
                budget: ServiceBudget::default(),
                before_page: 0,
            })
        };
        let mut print = known.print;
        let read = self.read_pages(list, Some(&mut print), begin, |collected, path, reading| {
            self.page(path, reading, StreamedPage(collected), |token| token)
        })?;
        let Some(collected) = read else {
            let items = Arc::clone(&known.items);
            return Ok(ServiceList { items, print });
        };
        let (new, budget) = collected.into_inner().end();
        *lock(&self.budget) = budget;
        let is_same = new.len() == known.items.len()
            && new.iter().zip(known.items.iter()).all(|(one, other)| Arc::ptr_eq(one, other));
        let items = if is_same { Arc::clone(&known.items) } else { Arc::new(new) };
        Ok(ServiceList { items, print })
    }

    /// Returns a Service as it is now, or `None` when there is no Service of this name.
    pub fn service(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<KubeService>>, KubeError> {
        let path = folder("api/v1", namespace, "services");
        let query = format!("&fieldSelector=metadata.name%3D{}", percent_encoded(name));
        let items =
            self.list::<ListPage<KubeService>>(&path, &query, SERVICE_LIST, ReadFrom::Latest)?;
        let is_it = |service: &Arc<KubeService>| {
            service.metadata.name == name && service.metadata.namespace == namespace
        };
        let mut found = items.into_iter().find(is_it);
        if let Some(service) = &mut found {
            self.cut(Arc::make_mut(service));
        }
        Ok(found)
    }

    /// Drops fields from a Service that was read by its name: the annotations that are not needed and, when a memory
    /// limit is exceeded, all large fields. A list of all Services would drop them too.
    fn cut(&self, service: &mut KubeService) {
        service.select(&self.scope);
        service.limit(&lock(&self.budget));
    }

    /// Returns every Service of the cluster, of any type, read from etcd, or an error when the list is not complete.
    pub fn any_services(&self) -> Result<Vec<Arc<AnyService>>, KubeError> {
        self.services_with("")
    }

    /// Returns the Services whose labels match the selector. An empty selector matches all Services.
    pub fn services_with(&self, selector: &str) -> Result<Vec<Arc<AnyService>>, KubeError> {
        let query = match selector {
            "" => String::new(),
            selector => format!("&labelSelector={}", percent_encoded(selector)),
        };
        self.list::<ListPage<_>>(SERVICES, &query, PARTIAL, ReadFrom::Latest)
    }

    /// Changes the metadata and the status of a Service by a merge patch of its status subresource. The role of
    /// hcloud-cloud-controller-manager, with which this program must work, allows no other write of a Service. The
    /// patch must contain `metadata.resourceVersion`.
    pub fn patch_service_status(
        &self,
        namespace: &str,
        name: &str,
        patch: &impl Serialize,
    ) -> Result<KubeService, KubeError> {
        let (services, name) = (folder("api/v1", namespace, "services"), percent_encoded(name));
        let path = format!("{services}/{name}/status");
        let mut service: KubeService =
            self.write(PASS, Method::Patch, &path, MERGE_PATCH, patch)?;
        self.cut(&mut service);
        Ok(service)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const OURS: &str = "load-balancer.hetzner.cloud";

    /// Returns a Service parsed from JSON. The JSON has a text of 250,000 characters in many fields, because a user can
    /// write such long texts. `edit` can change the JSON before it is parsed.
    fn parsed(edit: impl FnOnce(&mut Value)) -> KubeService {
        let long = "x".repeat(250_000);
        let mut service = json!({
            "metadata": {
                "namespace": "default", "name": "web", "uid": "u", "resourceVersion": "7",
                "annotations": { "example.com/a": long.clone(), format!("{OURS}/name"): "web" },
                "labels": { "example.com/b": long.clone() },
                "managedFields": [{ "manager": long.clone() }],
                "finalizers": [LOAD_BALANCER_FINALIZER],
            },
            "spec": {
                "type": "LoadBalancer",
                "selector": { "app": long.clone() },
                "loadBalancerIP": long.clone(),
                "ports": [{ "name": "http", "port": 80, "nodePort": 30080, "appProtocol": long.clone() }],
            },
            "status": { "loadBalancer": {}, "conditions": [{ "message": long }] },
        });
        edit(&mut service);
        serde_json::from_str(&service.to_string()).unwrap()
    }

    #[test]
    fn of_a_service_only_what_is_read_is_kept() {
        let service = parsed(|_| {});
        let all = format!("{service:?}");
        assert!(all.len() < 2000, "{} bytes: {}", all.len(), &all[..2000]);
        let name = service.for_cloud().annotations[&format!("{OURS}/name")].clone();
        assert_eq!(name, "web");
        assert!(service.spec.load_balancer_ip.ends_with('…'));
        assert_eq!((service.too_large(), service.too_many_finalizers()), (None, None));
    }

    #[test]
    fn a_service_that_has_more_than_is_read_says_so() {
        let list =
            |count: usize, item: fn(usize) -> Value| -> Value { (0..count).map(item).collect() };
        let port = |n: usize| json!({ "name": format!("p{n}"), "port": n + 1 });
        for (count, is_cut) in [(PORTS_AT_MOST, false), (PORTS_AT_MOST + 1, true), (20_000, true)] {
            let service = parsed(|all| all["spec"]["ports"] = list(count, port));
            assert_eq!(service.spec.ports.len(), count.min(PORTS_AT_MOST));
            let said = format!("the Service has {count} ports");
            let why = service.too_large();
            assert_eq!(why.is_some_and(|why| why.contains(&said)), is_cut, "{count}");
        }
        let finalizer = |n: usize| json!(format!("example.com/{n}"));
        for (count, is_cut) in [(FINALIZERS_AT_MOST, false), (20_000, true)] {
            let service = parsed(|all| all["metadata"]["finalizers"] = list(count, finalizer));
            assert_eq!(service.too_many_finalizers().is_some(), is_cut, "{count}");
            assert!(format!("{service:?}").len() < 8000);
        }
        let range = |n: usize| json!(format!("10.0.{n}.0/24"));
        let service = parsed(|all| all["spec"]["loadBalancerSourceRanges"] = list(20_000, range));
        assert_eq!(service.for_cloud().source_ranges.len(), RANGES_AT_MOST);
        assert_eq!(service.too_large(), None);
    }

    #[test]
    fn lists_that_are_null_are_empty() {
        let service = parsed(|all| {
            all["metadata"]["finalizers"] = Value::Null;
            all["metadata"]["annotations"] = Value::Null;
            all["spec"]["ports"] = Value::Null;
            all["spec"]["loadBalancerIP"] = Value::Null;
            all["spec"]["loadBalancerSourceRanges"] = Value::Null;
        });
        assert!(service.spec.ports.is_empty() && !service.has_our_finalizer());
        assert_eq!(service.metadata.annotations, Annotations::default());
    }
}
