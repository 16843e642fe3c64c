//! Makes Nodes and servers for unit tests. A test specifies only the fields that it needs.

use ccm::hetzner::{AddressFamily, CloudConnection, HetznerSettings, NodeSettings, Profile};
use ccm::http::{Proxies, SecretSource, Timing, Tls};
use ccm::kube::KubeNode;
use ccm::provider::{
    ForeignNodes, Instance, InstanceId, InternalIpFrom, LabelPrefixes, OpenGate, PrivateAddress,
    Source, Sourced, Urgency, ZoneSettings,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Returns a Node of this name that also has the fields of `extra`.
pub fn node(name: &str, extra: Value) -> KubeNode {
    let mut node = json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1" },
        "spec": {}, "status": {},
    });
    merge(&mut node, extra);
    serde_json::from_value(node).unwrap()
}

/// Adds the fields of `from` to `into`, also inside of nested objects. When both values have a field, `into` gets the
/// value of `from`.
pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Returns a running server that is in no Network. Its public IPv4 address is computed from its ID.
pub fn server(id: u64, name: &str) -> Instance {
    Instance {
        id: InstanceId::Cloud(id),
        name: name.into(),
        state: "running".into(),
        instance_type: "cx22".into(),
        location: "fsn1".into(),
        network_zone: "eu-central".into(),
        public_ipv4: Some(format!("203.0.113.{}", id % 250 + 1).parse().unwrap()),
        ..Instance::default()
    }
}

/// Returns the private address `ip` of a server in this Network, without alias addresses.
pub fn private(network: u64, ip: &str) -> PrivateAddress {
    PrivateAddress { network, ip: ip.parse().unwrap(), aliases: Vec::new() }
}

/// Returns the settings of a connection to the Hetzner Cloud API. They have no token, and nothing listens at their
/// endpoint.
pub fn connection() -> CloudConnection {
    CloudConnection {
        endpoint: "http://127.0.0.1:1".into(),
        tls: Tls::default(),
        proxies: Proxies::Never,
        token: SecretSource::none(),
        debug: false,
        timing: Timing {
            read_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(8),
            retry_wait: Duration::from_millis(1),
        },
    }
}

/// Returns the settings of the node controllers. `family` decides which public addresses of a server (IPv4, IPv6 or
/// both) its node gets.
pub fn node_settings(family: AddressFamily) -> NodeSettings {
    NodeSettings {
        address_family: Sourced::new(family, Source::Kept),
        internal_ip_from: InternalIpFrom::Network,
        internal_ip_ranges: Vec::new(),
        label_prefixes: LabelPrefixes::default(),
        foreign: ForeignNodes::Ignore,
        zone: ZoneSettings { is_enabled: true, label: None },
    }
}

/// Returns the settings of a client of Hetzner Cloud. `family` decides which public addresses of a server (IPv4, IPv6
/// or both) its node gets. The settings have no token, and nothing listens at their endpoint.
pub fn settings(family: AddressFamily) -> HetznerSettings {
    HetznerSettings {
        profile: Profile::CcmFromScratch,
        connection: connection(),
        network: None,
        metadata: None,
        nodes: node_settings(family),
        robot: None,
        load_balancers: None,
        gate: Arc::new(OpenGate),
        urgency: Urgency::Asked,
    }
}
