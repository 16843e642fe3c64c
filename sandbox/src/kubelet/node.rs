//! The Node object that a kubelet with `--cloud-provider=external` creates.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::weight::pad;

/// A machine that becomes a Node of the cluster: the properties of its simulated kubelet and of its Node.
#[derive(Clone, Debug, Default)]
pub struct NodeSpec {
    pub name: String,
    /// The ID of the cloud server on which the kubelet runs. `None` when it runs on no cloud server. A kubelet that
    /// runs neither on a cloud server nor on a dedicated server behaves as if its server always ran.
    pub server: Option<u64>,
    /// The number of the physical machine on which the kubelet runs, when it runs on a dedicated server. See
    /// [`DedicatedServer::machine`](crate::robot::DedicatedServer::machine). `None` when it runs on no dedicated
    /// server.
    pub machine: Option<u64>,
    /// The address that the kubelet reports when it is started without the flag `--node-ip`. With `None`, such a
    /// kubelet reports only its host name.
    pub internal_ip: Option<String>,
    /// The value of the kubelet's flag `--node-ip`, or `None` without the flag. The kubelet reports this address
    /// instead of `internal_ip`. It also writes the address into the annotation `alpha.kubernetes.io/provided-node-ip`.
    pub node_ip: Option<String>,
    /// The pod CIDRs of the Node: one of IPv4, or one of IPv4 and one of IPv6.
    pub pod_cidrs: Vec<String>,
    /// Labels of the Node, in addition to those that every kubelet sets.
    pub labels: BTreeMap<String, String>,
    /// The provider ID of a Node that a cloud controller manager has already initialised. With `None`, the Node is not
    /// initialised and has the `uninitialized` taint.
    pub provider_id: Option<String>,
    /// The CPU architecture. An empty text means `amd64`.
    pub architecture: String,
    /// The smallest size of the Node's JSON, in bytes. A smaller Node is filled with labels, annotations, managed
    /// fields and images, as real Nodes have them. Real Nodes have 10 to 25 kB.
    pub bytes: usize,
}

/// The taint of a Node that is not initialised. A kubelet with an external cloud provider sets the taint, and the cloud
/// controller manager removes it.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Returns the Node object that the kubelet creates, with its metadata, spec and status.
pub(super) fn registration(spec: &NodeSpec) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels(spec), "annotations": annotations(spec)},
        "spec": {},
        "status": status(spec),
    });
    if let Some(first) = spec.pod_cidrs.first() {
        node["spec"]["podCIDR"] = json!(first);
        node["spec"]["podCIDRs"] = json!(spec.pod_cidrs);
    }
    match &spec.provider_id {
        Some(id) => node["spec"]["providerID"] = json!(id),
        None => {
            let taint =
                json!({"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"});
            node["spec"]["taints"] = json!([taint]);
        }
    }
    pad(&mut node, spec.bytes);
    node
}

fn labels(spec: &NodeSpec) -> Value {
    let architecture = architecture(spec);
    let mut labels = BTreeMap::from([
        ("beta.kubernetes.io/arch".to_owned(), architecture.to_owned()),
        ("beta.kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), architecture.to_owned()),
        ("kubernetes.io/hostname".to_owned(), spec.name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
    ]);
    labels.extend(spec.labels.clone());
    json!(labels)
}

fn annotations(spec: &NodeSpec) -> Value {
    let mut annotations = json!({
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    if let Some(ip) = &spec.node_ip {
        annotations["alpha.kubernetes.io/provided-node-ip"] = json!(ip);
    }
    annotations
}

fn status(spec: &NodeSpec) -> Value {
    let own = spec.node_ip.as_deref().or(spec.internal_ip.as_deref()).into_iter();
    // The kubelet's flag `--node-ip` is allowed to contain two addresses with a comma between, one of IPv4 and one of
    // IPv6. The Node gets an `InternalIP` for each of them.
    let own =
        own.flat_map(|ips| ips.split(',')).map(|ip| json!({"type": "InternalIP", "address": ip}));
    let addresses: Vec<Value> =
        own.chain([json!({"type": "Hostname", "address": spec.name})]).collect();
    let resources = |memory: &str| {
        json!({
            "cpu": "2", "memory": memory, "ephemeral-storage": "39090984Ki", "pods": "110",
            "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        })
    };
    json!({
        "addresses": addresses,
        "allocatable": resources("3813320Ki"),
        "capacity": resources("3915720Ki"),
        "conditions": [],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": architecture(spec),
            "bootID": identifier(spec, 1),
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.8.0-79-generic",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.2",
            "machineID": identifier(spec, 2).replace('-', ""),
            "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.3 LTS",
            "systemUUID": identifier(spec, 3),
        },
    })
}

fn architecture(spec: &NodeSpec) -> &str {
    if spec.architecture.is_empty() { "amd64" } else { &spec.architecture }
}

/// Returns an identifier that looks like a UUID. It is computed from the Node's name and the number `which`. With
/// different numbers, a Node gets different identifiers for its fields `bootID`, `machineID` and `systemUUID`.
fn identifier(spec: &NodeSpec, which: u64) -> String {
    let seed = spec.name.bytes().fold(which, |seed, byte| seed.wrapping_mul(257) ^ u64::from(byte));
    let mut generator = crate::faults::SplitMix64::new(seed);
    let (high, low) = (generator.next(), generator.next());
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    format!("{a:08x}-{b:04x}-4{c:03x}-a{:03x}-{:012x}", low >> 52, low & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> NodeSpec {
        NodeSpec {
            name: "worker-1".into(),
            internal_ip: Some("10.0.0.2".into()),
            ..NodeSpec::default()
        }
    }

    #[test]
    fn addresses_follow_the_kubelet_s_flags() {
        let cases = [
            (spec(), vec!["10.0.0.2", "worker-1"], None),
            (NodeSpec { internal_ip: None, ..spec() }, vec!["worker-1"], None),
            (
                NodeSpec { node_ip: Some("10.9.9.9".into()), ..spec() },
                vec!["10.9.9.9", "worker-1"],
                Some("10.9.9.9"),
            ),
            (
                NodeSpec { node_ip: Some("10.9.9.9,fd00::9".into()), ..spec() },
                vec!["10.9.9.9", "fd00::9", "worker-1"],
                Some("10.9.9.9,fd00::9"),
            ),
        ];
        for (spec, expected, annotation) in cases {
            let node = registration(&spec);
            let addresses = node["status"]["addresses"].as_array().unwrap().iter();
            assert_eq!(
                addresses.map(|address| address["address"].as_str().unwrap()).collect::<Vec<_>>(),
                expected
            );
            let provided = &node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"];
            assert_eq!(provided.as_str(), annotation);
        }
    }

    #[test]
    fn only_a_node_without_provider_id_is_uninitialized() {
        let taints = |provider_id: Option<&str>| {
            let spec = NodeSpec { provider_id: provider_id.map(str::to_owned), ..spec() };
            registration(&spec)["spec"]["taints"].clone()
        };
        let uninitialized =
            json!([{"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}]);
        assert_eq!(taints(None), uninitialized);
        assert_eq!(taints(Some("hcloud://1")), Value::Null);
    }

    #[test]
    fn a_node_is_padded_to_its_size() {
        for bytes in [0, 6_000, 12_000, 25_000] {
            let size = registration(&NodeSpec { bytes, ..spec() }).to_string().len();
            assert!(size >= bytes && size < bytes.max(2_500) + 300, "{size} for {bytes}");
        }
    }

    #[test]
    fn a_padded_node_of_12_kb_is_like_a_real_node() {
        let node = registration(&NodeSpec { bytes: 12_000, ..spec() });
        let count = |pointer: &str| match node.pointer(pointer) {
            Some(Value::Object(map)) => map.len(),
            Some(Value::Array(items)) => items.len(),
            _ => 0,
        };
        let parts = [
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/managedFields",
            "/status/images",
        ];
        assert_eq!(parts.map(count), [12, 6, 3, 45]);
    }
}
