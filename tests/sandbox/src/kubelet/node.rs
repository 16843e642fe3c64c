//! The Node object as a kubelet with `--cloud-provider=external` registers and reports it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A machine that joins the cluster.
#[derive(Clone, Debug, Default)]
pub struct NodeSpec {
    pub name: String,
    /// ID of its cloud server; without one the machine always runs.
    pub server: Option<u64>,
    /// What the kubelet sees as its own address.
    pub internal_ip: Option<String>,
    /// As given with `--node-ip`: it is the address that is reported, and written as the annotation
    /// `alpha.kubernetes.io/provided-node-ip`.
    pub node_ip: Option<String>,
    /// IPv4, or IPv4 and IPv6.
    pub pod_cidrs: Vec<String>,
    /// Beside the ones every kubelet sets.
    pub labels: BTreeMap<String, String>,
    /// Already there, as on a node that another CCM initialised: then without the `uninitialized` taint.
    pub provider_id: Option<String>,
    /// `amd64` when empty.
    pub architecture: String,
    /// The object is padded with container images to at least so many bytes of JSON; real nodes have 10 to 25 kB.
    pub bytes: usize,
}

/// Set by a kubelet with an external cloud provider, removed by the CCM.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Set by the API server on a new node, and by the node controller while the kubelet says that it is not ready.
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Set by the node controller while nothing is heard of the kubelet.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// The conditions of a kubelet: type, status, reason, message while all is well.
const CONDITIONS: [[&str; 4]; 4] = [
    [
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ],
    [
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ],
    [
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ],
    [
        "Ready",
        "True",
        "KubeletReady",
        "kubelet is posting ready status",
    ],
];

/// The object to create: metadata, spec and status.
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

/// The kubelet reports: everything is well. The node controller takes its taints back.
pub(super) fn report_ready(node: &mut Value) {
    for [kind, status, reason, message] in CONDITIONS {
        set_condition(node, kind, status, reason, message, true);
    }
    set_taints(node, &[NOT_READY_TAINT, UNREACHABLE_TAINT], &[]);
}

/// The node controller has heard nothing for its grace period.
pub(super) fn report_unknown(node: &mut Value) {
    for [kind, ..] in CONDITIONS {
        let message = "Kubelet stopped posting node status.";
        set_condition(node, kind, "Unknown", "NodeStatusUnknown", message, false);
    }
    let added = ["NoSchedule", "NoExecute"]
        .map(|effect| json!({"key": UNREACHABLE_TAINT, "effect": effect, "timeAdded": now()}));
    set_taints(node, &[NOT_READY_TAINT, UNREACHABLE_TAINT], &added);
}

fn labels(spec: &NodeSpec) -> Value {
    let architecture = architecture(spec);
    let mut labels = BTreeMap::from([
        (
            "beta.kubernetes.io/arch".to_owned(),
            architecture.to_owned(),
        ),
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
    let own = spec
        .node_ip
        .as_deref()
        .or(spec.internal_ip.as_deref())
        .into_iter();
    // `--node-ip` may name one address of each family.
    let own = own
        .flat_map(|ips| ips.split(','))
        .map(|ip| json!({"type": "InternalIP", "address": ip}));
    let addresses: Vec<Value> = own
        .chain([json!({"type": "Hostname", "address": spec.name})])
        .collect();
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
    if spec.architecture.is_empty() {
        "amd64"
    } else {
        &spec.architecture
    }
}

/// In the form of a UUID; the same for the same machine.
fn identifier(spec: &NodeSpec, which: u64) -> String {
    let seed = spec
        .name
        .bytes()
        .fold(which, |seed, byte| seed.wrapping_mul(257) ^ u64::from(byte));
    let mut generator = crate::faults::SplitMix64::new(seed);
    let (high, low) = (generator.next(), generator.next());
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    format!(
        "{a:08x}-{b:04x}-4{c:03x}-a{:03x}-{:012x}",
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

fn pad(node: &mut Value, bytes: usize) {
    let mut size = node.to_string().len();
    let mut images = Vec::new();
    while size < bytes {
        let number = images.len();
        let digest = format!("{number:064x}");
        let image = json!({
            "names": [format!("registry.example/image-{number}@sha256:{digest}"), format!("registry.example/image-{number}:v1")],
            "sizeBytes": 10_000_000 + number,
        });
        size += image.to_string().len() + 1;
        images.push(image);
    }
    if !images.is_empty() {
        node["status"]["images"] = images.into();
    }
}

fn set_condition(
    node: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    heartbeat: bool,
) {
    let conditions = array(node, "status", "conditions");
    let place = match conditions
        .iter()
        .position(|condition| condition["type"] == kind)
    {
        Some(place) => place,
        None => {
            conditions.push(json!({"type": kind, "lastHeartbeatTime": now()}));
            conditions.len() - 1
        }
    };
    let Some(condition) = conditions.get_mut(place).and_then(Value::as_object_mut) else {
        return;
    };
    let changed = condition.get("status").is_none_or(|old| old != status);
    let mut set = |field: &str, value: String| condition.insert(field.to_owned(), value.into());
    set("status", status.into());
    set("reason", reason.into());
    set("message", message.into());
    if heartbeat {
        set("lastHeartbeatTime", now());
    }
    if changed {
        set("lastTransitionTime", now());
    }
}

fn set_taints(node: &mut Value, removed: &[&str], added: &[Value]) {
    let taints = array(node, "spec", "taints");
    taints.retain(|taint| {
        !taint["key"]
            .as_str()
            .is_some_and(|key| removed.contains(&key))
    });
    taints.extend_from_slice(added);
    if taints.is_empty()
        && let Some(spec) = node["spec"].as_object_mut()
    {
        spec.remove("taints");
    }
}

/// The array at `node.part.field`; made where it is not there.
fn array<'a>(node: &'a mut Value, part: &str, field: &str) -> &'a mut Vec<Value> {
    fn at<'a>(value: &'a mut Value, key: &str, empty: Value) -> &'a mut Value {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        let slot = &mut value[key];
        if slot.is_null() {
            *slot = empty;
        }
        slot
    }
    let slot = at(at(node, part, json!({})), field, json!([]));
    if !slot.is_array() {
        *slot = json!([]);
    }
    match slot {
        Value::Array(array) => array,
        _ => unreachable!("made an array above"),
    }
}

fn now() -> String {
    // The API server keeps whole seconds.
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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

    fn status_of(node: &Value, kind: &str) -> Vec<String> {
        let conditions = node["status"]["conditions"].as_array().unwrap().iter();
        let condition = conditions.filter(|condition| condition["type"] == kind);
        condition
            .map(|condition| condition["status"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn addresses_follow_the_kubelet_s_flags() {
        let cases = [
            (spec(), vec!["10.0.0.2", "worker-1"], None),
            (
                NodeSpec {
                    internal_ip: None,
                    ..spec()
                },
                vec!["worker-1"],
                None,
            ),
            (
                NodeSpec {
                    node_ip: Some("10.9.9.9".into()),
                    ..spec()
                },
                vec!["10.9.9.9", "worker-1"],
                Some("10.9.9.9"),
            ),
            (
                NodeSpec {
                    node_ip: Some("10.9.9.9,fd00::9".into()),
                    ..spec()
                },
                vec!["10.9.9.9", "fd00::9", "worker-1"],
                Some("10.9.9.9,fd00::9"),
            ),
        ];
        for (spec, expected, annotation) in cases {
            let node = registration(&spec);
            let addresses = node["status"]["addresses"].as_array().unwrap().iter();
            assert_eq!(
                addresses
                    .map(|address| address["address"].as_str().unwrap())
                    .collect::<Vec<_>>(),
                expected
            );
            let provided = &node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"];
            assert_eq!(provided.as_str(), annotation);
        }
    }

    #[test]
    fn only_a_node_without_provider_id_is_uninitialized() {
        let taints = |provider_id: Option<&str>| {
            let spec = NodeSpec {
                provider_id: provider_id.map(str::to_owned),
                ..spec()
            };
            registration(&spec)["spec"]["taints"].clone()
        };
        let uninitialized =
            json!([{"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}]);
        assert_eq!(taints(None), uninitialized);
        assert_eq!(taints(Some("hcloud://1")), Value::Null);
    }

    #[test]
    fn reports_change_their_own_conditions_and_taints_only() {
        let mut node = registration(&spec());
        let kept = json!({"type": "NetworkUnavailable", "status": "False"});
        array(&mut node, "status", "conditions").push(kept.clone());
        array(&mut node, "spec", "taints")
            .push(json!({"key": NOT_READY_TAINT, "effect": "NoSchedule"}));
        let keys = |node: &Value| -> Vec<String> {
            let taints = node["spec"]["taints"].as_array().unwrap().iter();
            taints
                .map(|taint| taint["key"].as_str().unwrap().to_owned())
                .collect()
        };

        report_ready(&mut node);
        assert_eq!(
            (status_of(&node, "Ready"), keys(&node)),
            (vec!["True".into()], vec![UNINITIALIZED_TAINT.into()])
        );
        report_unknown(&mut node);
        report_unknown(&mut node);
        assert_eq!(status_of(&node, "Ready"), ["Unknown"]);
        assert_eq!(
            keys(&node),
            [UNINITIALIZED_TAINT, UNREACHABLE_TAINT, UNREACHABLE_TAINT]
        );
        report_ready(&mut node);
        assert_eq!(
            (status_of(&node, "Ready"), keys(&node)),
            (vec!["True".into()], vec![UNINITIALIZED_TAINT.into()])
        );
        assert_eq!(node["status"]["conditions"][0], kept);
    }

    #[test]
    fn a_node_is_padded_to_its_size() {
        for bytes in [0, 5_000, 12_000, 25_000] {
            let size = registration(&NodeSpec { bytes, ..spec() })
                .to_string()
                .len();
            assert!(
                size >= bytes && size < bytes.max(2_500) + 300,
                "{size} for {bytes}"
            );
        }
    }
}
