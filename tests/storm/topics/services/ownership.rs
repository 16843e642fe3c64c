//! The owners of load balancers, computed from the rules of the issue without `ccm`'s own code: which load balancers a
//! Service may adopt, and which may be deleted with it.

use super::events::NAMESPACE;
pub use crate::topics::cluster::{is_ours, list, server_of};
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{
    ADOPT, ADOPTED, CLUSTER_UID, CREATED, KEEP, SERVICE, SERVICE_UID,
};
use jiff::Timestamp;
use sandbox::kubernetes::Cluster;
use serde_json::Value;
use std::collections::BTreeSet;

/// The prefixes of the labels that controllers set.
const PREFIXES: [&str; 2] = [OURS, "hcloud-ccm/"];
const OURS: &str = "ccm-from-scratch/";

/// By how many seconds the clocks of both APIs may differ.
const CLOCKS_DIFFER_BY_S: i64 = 60;

/// The state of the Kubernetes API at one moment.
#[derive(Clone, Default)]
pub struct ClusterState {
    pub services: Vec<Value>,
    pub nodes: Vec<Value>,
    cluster_uid: String,
}

impl ClusterState {
    pub fn read(cluster: &Cluster, cluster_uid: &str) -> ClusterState {
        ClusterState {
            services: cluster.list("services", NAMESPACE),
            nodes: cluster.list("nodes", None),
            cluster_uid: cluster_uid.to_owned(),
        }
    }

    pub fn service(&self, uid: &Value) -> Option<&Value> {
        let mut services = self.services.iter();
        services.find(|service| uid.is_string() && service["metadata"]["uid"] == *uid)
    }

    /// Whether the load balancer's labels name a Service that exists, and no other cluster.
    pub fn is_owned(&self, balancer: &Value) -> bool {
        let labels = &balancer["labels"];
        let is_other_cluster =
            !labels[CLUSTER_UID].is_null() && labels[CLUSTER_UID] != *self.cluster_uid;
        self.service(&labels[SERVICE_UID]).is_some() && !is_other_cluster
    }

    /// Returns the IDs of the servers of all nodes.
    pub fn servers(&self) -> BTreeSet<u64> {
        self.nodes.iter().filter_map(server_of).collect()
    }

    /// Returns an error with the reason when this Service may not adopt the load balancer.
    pub fn adoptable(&self, balancer: &Value, service: &Value) -> Result<(), String> {
        let labels = &balancer["labels"];
        let own_name = format!("default.{}", service["metadata"]["name"].as_str().unwrap());
        let owner = &labels[SERVICE_UID];
        if self.service(owner).is_some() && *owner != service["metadata"]["uid"] {
            return Err(format!("owned by Service {owner}, which exists"));
        }
        match labels[ADOPT].as_str() {
            Some(name) if name == own_name => return Ok(()),
            Some(name) => return Err(format!("its label {ADOPT} names {name}")),
            None => {}
        }
        let is_this_cluster = labels[CLUSTER_UID] == *self.cluster_uid;
        if !labels[CLUSTER_UID].is_null() && !is_this_cluster {
            return Err("another cluster's".into());
        }
        let named = &service["metadata"]["annotations"][format!("{PREFIX}name")];
        let is_named = named.is_string() && *named == balancer["name"];
        let is_left = !owner.is_null() && is_this_cluster;
        if !is_named {
            // By its default name only a load balancer is adopted that this cluster had for a Service of this name.
            let is_left_by_it = named.is_null() && is_left && labels[SERVICE] == *own_name;
            return match is_left_by_it {
                true => Ok(()),
                false => Err("no annotation names it".into()),
            };
        }
        let mut keys = labels.as_object().into_iter().flat_map(|all| all.keys());
        if keys.any(|key| key.starts_with("caph-cluster-")) {
            return Err("another program's".into());
        }
        let foreign = foreign_target(balancer, &self.servers());
        match (owner.is_null(), foreign) {
            (false, _) if is_left => Ok(()),
            (false, None) if !list(&balancer["targets"]).is_empty() => Ok(()),
            (false, _) => Err("its targets do not show that it is this cluster's".into()),
            (true, _) if !list(&balancer["services"]).is_empty() => Err("it has ports".into()),
            (true, Some(why)) => Err(why),
            (true, None) => Ok(()),
        }
    }

    /// Returns an error with the reason when the load balancer may not be deleted with its Service, but only released.
    pub fn deletable(&self, balancer: &Value, service: &Value) -> Result<(), String> {
        let labels = balancer["labels"].as_object().unwrap();
        if is_kept(balancer, service) {
            return Err("it is kept".into());
        }
        if let Some(why) = foreign_target(balancer, &self.servers()) {
            return Err(why);
        }
        if labels.contains_key(CREATED) {
            return Ok(());
        }
        if labels.contains_key(ADOPTED) || labels.contains_key(ADOPT) {
            return Err("it was adopted".into());
        }
        if let Some(label) = labels.keys().find(|label| is_of_others(label)) {
            return Err(format!("it has label {label}"));
        }
        let is_selector = |target: &&Value| target["type"] == "label_selector";
        if list(&balancer["targets"]).iter().any(|one| is_selector(&one)) {
            return Err("it has a label-selector target".into());
        }
        let age_s =
            time_s(&service["metadata"]["creationTimestamp"]) - time_s(&balancer["created"]);
        match age_s > CLOCKS_DIFFER_BY_S {
            true => Err("it is older than the Service".into()),
            false => Ok(()),
        }
    }
}

/// Whether the load balancer must be kept. The annotation decides, and without it the label.
pub fn is_kept(balancer: &Value, service: &Value) -> bool {
    match service["metadata"]["annotations"][format!("{PREFIX}keep")].as_str() {
        Some(value) => value == "true",
        None => !balancer["labels"][KEEP].is_null(),
    }
}

/// Returns a text about the first target that is no node of this cluster.
pub fn foreign_target(balancer: &Value, servers: &BTreeSet<u64>) -> Option<String> {
    let is_foreign = |target: &Value| match target["type"].as_str() {
        Some("server") => !is_node(target, servers),
        Some("label_selector") => {
            let selected = list(&target["targets"]);
            selected.is_empty() || !selected.iter().all(|one| is_node(one, servers))
        }
        _ => true,
    };
    let all = list(&balancer["targets"]);
    let found = all.iter().find(|target| is_foreign(target))?;
    Some(format!("target {found} is no node of this cluster"))
}

/// Whether neither Hetzner's controller nor ours sets this label.
pub fn is_of_others(label: &str) -> bool {
    !PREFIXES.iter().any(|prefix| label.starts_with(prefix))
}

fn is_node(target: &Value, servers: &BTreeSet<u64>) -> bool {
    let id = target["server"]["id"].as_u64();
    id.is_some_and(|id| servers.contains(&id))
}

fn time_s(value: &Value) -> i64 {
    let time: Timestamp = value.as_str().unwrap().parse().unwrap();
    time.as_second()
}
