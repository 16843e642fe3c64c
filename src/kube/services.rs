//! Services: the fields of them that a load balancer is made from, and our calls.
//!
//! The official role has no `get` on services: one of them is read as a list with its name.

use super::client::{Client, MERGE_PATCH, PARTIAL, PASS, Print, ReadFrom};
use super::client::{folder, percent_encoded};
use super::error::Error;
use super::labels::{Annotations, LeftAlone, ServiceScope, labels_of_service};
use super::types::{
    First, ListPage, ObjectReference, not_empty, null_as_default, short, timestamp,
};
use crate::http::Method;
use crate::provider::{self, Ingress};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// On a Service as long as its load balancer may exist.
pub const LOAD_BALANCER_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The kind of a Service in references to it.
pub const SERVICE: &str = "Service";

/// The largest load balancer takes 30; others may be of protocols that it does not speak.
const PORTS_AT_MOST: usize = 250;

/// They are only named in a message.
const RANGES_AT_MOST: usize = 100;

const FINALIZERS_AT_MOST: usize = 100;

const SERVICES: &str = "/api/v1/services";
const LOAD_BALANCER: &str = "LoadBalancer";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Service {
    pub metadata: ServiceMeta,
    #[serde(default)]
    pub spec: ServiceSpec,
    #[serde(default)]
    pub status: ServiceStatus,
    /// None: it is ours, says [`ServiceScope`].
    #[serde(skip)]
    pub left_alone: Option<LeftAlone>,
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
    /// Compared when they are read, and not kept: see [`Service::left_alone`].
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
    /// `IPv4`, `IPv6`, or both.
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

/// A Service of any type, as little of it as is needed to know that it exists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AnyService {
    pub metadata: AnyServiceMeta,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AnyServiceMeta {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    #[serde(default)]
    finalizers: Finalizers,
}

type Finalizers = First<String, FINALIZERS_AT_MOST>;

fn has_ours(finalizers: &Finalizers) -> bool {
    finalizers.iter().any(|one| one == LOAD_BALANCER_FINALIZER)
}

impl AnyService {
    pub fn has_our_finalizer(&self) -> bool {
        has_ours(&self.metadata.finalizers)
    }
}

impl Service {
    /// `namespace/name`.
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

    /// Notes whether it is ours.
    pub fn select(&mut self, scope: &ServiceScope) {
        let labels = std::mem::take(&mut self.metadata.labels);
        self.left_alone = scope.left_alone(&self.spec.load_balancer_class, &labels);
    }

    /// More of it than is read: no load balancer can be made from it.
    pub fn too_large(&self) -> Option<String> {
        let many_ports = self.spec.ports.too_many("ports");
        many_ports.or_else(|| self.metadata.annotations.too_large())
    }

    /// More finalizers than are read: a write of them would lose some.
    pub fn too_many_finalizers(&self) -> Option<String> {
        self.metadata.finalizers.too_many("finalizers")
    }

    pub fn is_of_type_load_balancer(&self) -> bool {
        self.spec.kind == LOAD_BALANCER
    }

    /// It wants one from us.
    pub fn wants_load_balancer(&self) -> bool {
        self.left_alone.is_none()
            && self.is_of_type_load_balancer()
            && self.metadata.deletion_timestamp.is_none()
    }

    /// As a cloud sees it.
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
                .filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone()))
                .collect(),
        }
    }
}

/// Services as they were listed, and by what the same answer is known again.
#[derive(Debug, Default)]
pub struct ServiceList {
    pub items: Arc<Vec<Arc<Service>>>,
    print: Print,
}

impl Client {
    /// All Services of type LoadBalancer: complete, or an error. Where they are as they were, it is the same list.
    pub fn load_balancer_services(
        &self,
        from: ReadFrom,
        known: &ServiceList,
    ) -> Result<ServiceList, Error> {
        let query = "&fieldSelector=spec.type%3DLoadBalancer";
        let mut print = known.print;
        let new = self.services_at(SERVICES, query, from, &mut print)?;
        let items = new.map_or_else(|| Arc::clone(&known.items), Arc::new);
        Ok(ServiceList { items, print })
    }

    fn services_at(
        &self,
        path: &str,
        query: &str,
        from: ReadFrom,
        print: &mut Print,
    ) -> Result<Option<Vec<Arc<Service>>>, Error> {
        let mut all =
            self.list_new::<ListPage<Service>>(path, query, "ServiceList", from, print)?;
        for one in all.iter_mut().flatten() {
            Arc::make_mut(one).select(&self.scope);
        }
        Ok(all)
    }

    /// One Service as it is now; none when there is none of this name.
    pub fn service(&self, namespace: &str, name: &str) -> Result<Option<Arc<Service>>, Error> {
        let path = folder("api/v1", namespace, "services");
        let query = format!("&fieldSelector=metadata.name%3D{}", percent_encoded(name));
        let new = &mut Print::default();
        let items = self.services_at(&path, &query, ReadFrom::Latest, new)?;
        let is_it = |service: &Arc<Service>| {
            service.metadata.name == name && service.metadata.namespace == namespace
        };
        Ok(items.into_iter().flatten().find(is_it))
    }

    /// Every Service of the cluster, of any type, read from etcd: complete, or an error.
    pub fn any_services(&self) -> Result<Vec<Arc<AnyService>>, Error> {
        self.services_with("")
    }

    /// Those with labels that a selector takes; an empty one takes all.
    pub fn services_with(&self, selector: &str) -> Result<Vec<Arc<AnyService>>, Error> {
        let query = match selector {
            "" => String::new(),
            selector => format!("&labelSelector={}", percent_encoded(selector)),
        };
        self.list::<ListPage<_>>(SERVICES, &query, PARTIAL, ReadFrom::Latest)
    }

    /// Merge-patches metadata and status of a Service; the official role allows no more. The
    /// patch must carry `metadata.resourceVersion`.
    pub fn patch_service_status(
        &self,
        namespace: &str,
        name: &str,
        patch: &impl Serialize,
    ) -> Result<Service, Error> {
        let (services, name) = (
            folder("api/v1", namespace, "services"),
            percent_encoded(name),
        );
        let path = format!("{services}/{name}/status");
        let mut service: Service = self.write(PASS, Method::Patch, &path, MERGE_PATCH, patch)?;
        service.select(&self.scope);
        Ok(service)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const OURS: &str = "load-balancer.hetzner.cloud";

    /// As an API server answers, with every large thing that a tenant may put there.
    fn parsed(edit: impl FnOnce(&mut Value)) -> Service {
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
        assert_eq!(
            (service.too_large(), service.too_many_finalizers()),
            (None, None)
        );
    }

    #[test]
    fn a_service_that_has_more_than_is_read_says_so() {
        let list =
            |count: usize, item: fn(usize) -> Value| -> Value { (0..count).map(item).collect() };
        let port = |n: usize| json!({ "name": format!("p{n}"), "port": n + 1 });
        for (count, is_cut) in [
            (PORTS_AT_MOST, false),
            (PORTS_AT_MOST + 1, true),
            (20_000, true),
        ] {
            let service = parsed(|all| all["spec"]["ports"] = list(count, port));
            assert_eq!(service.spec.ports.len(), count.min(PORTS_AT_MOST));
            let said = format!("it has {count} ports");
            let why = service.too_large();
            assert_eq!(
                why.is_some_and(|why| why.contains(&said)),
                is_cut,
                "{count}"
            );
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
