//! What the API server says about itself, about us, and about the workloads beside us: for `doctor`.

use super::client::{Client, JSON, percent_encoded};
use super::error::Error;
use crate::http::Method;
use serde_json::{Value, json};

/// As the gate is asked: a question in the form of a write, which changes nothing.
pub const ACCESS_REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// `/version`. What is missing is empty.
#[derive(Clone, Debug)]
pub struct Version {
    pub major: String,
    /// May end in `+`.
    pub minor: String,
    /// E.g. `v1.36.2`.
    pub name: String,
}

/// Something that a role allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verb<'a> {
    pub verb: &'a str,
    /// Empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    /// Empty: the resource itself.
    pub subresource: &'a str,
    /// Empty: in all of them, or the resource has none.
    pub namespace: &'a str,
    /// Empty: of any name.
    pub name: &'a str,
}

/// A Deployment or DaemonSet that runs pods.
#[derive(Clone, Debug)]
pub struct Workload {
    /// `deployment/NAME`, `daemonset/NAME`.
    pub name: String,
    pub images: Vec<String>,
    /// Ports that its probes ask at, by number.
    pub probed_ports: Vec<u64>,
}

impl Client {
    pub fn version(&self) -> Result<Version, Error> {
        let version = self.document("/version", "gitVersion")?;
        Ok(Version {
            major: text(&version["major"]),
            minor: text(&version["minor"]),
            name: text(&version["gitVersion"]),
        })
    }

    /// May the user that we log in as do this?
    pub fn may(&self, verb: &Verb) -> Result<bool, Error> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb.verb,
                "group": verb.group,
                "resource": verb.resource,
                "subresource": verb.subresource,
                "namespace": verb.namespace,
                "name": verb.name,
            }},
        });
        let path = ACCESS_REVIEW.trim_start_matches("POST ");
        let answer: Value = self.write(Method::Post, path, JSON, &review)?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Deployments and DaemonSets of a namespace, those scaled to nothing left out.
    pub fn workloads(&self, namespace: &str) -> Result<Vec<Workload>, Error> {
        let mut workloads = Vec::new();
        let namespace = percent_encoded(namespace);
        for resource in ["deployments", "daemonsets"] {
            // Without a limit everything comes in one answer; of these there are few.
            let path = format!("/apis/apps/v1/namespaces/{namespace}/{resource}");
            let list = self.document(&path, "items")?;
            let items = list["items"].as_array().into_iter().flatten();
            let running = items.filter(|item| item["spec"]["replicas"] != 0);
            workloads.extend(running.map(|item| workload(resource, item)));
        }
        Ok(workloads)
    }
}

fn workload(resource: &str, item: &Value) -> Workload {
    let kind = resource.trim_end_matches('s');
    let mut workload = Workload {
        name: format!("{kind}/{}", text(&item["metadata"]["name"])),
        images: Vec::new(),
        probed_ports: Vec::new(),
    };
    let containers = item["spec"]["template"]["spec"]["containers"].as_array();
    for container in containers.into_iter().flatten() {
        workload.images.push(text(&container["image"]));
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            for how in ["httpGet", "tcpSocket"] {
                let port = &container[probe][how]["port"];
                workload.probed_ports.extend(number(container, port));
            }
        }
    }
    workload
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A probe may name one of the container's ports.
fn number(container: &Value, port: &Value) -> Option<u64> {
    let name = match port {
        Value::Number(number) => return number.as_u64(),
        Value::String(name) => name,
        _ => return None,
    };
    let mut ports = container["ports"].as_array()?.iter();
    let named = ports.find(|port| port["name"] == name.as_str())?;
    named["containerPort"].as_u64()
}
