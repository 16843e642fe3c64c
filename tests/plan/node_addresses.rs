//! The table of addresses with the real provider. It combines the address family, the Network, the server's addresses,
//! the kubelet's --node-ip and the annotation external-ipv6.

use crate::common;
use crate::common::objects::{self, connection, node_settings, private, settings};
use ccm::controllers::NodeChange;
use ccm::controllers::node::{NodePlan, PROVIDED_NODE_IP, UNINITIALIZED, plan};
use ccm::hetzner::robot::RobotSettings;
use ccm::hetzner::{
    AddressFamily, CloudConnection, EXTERNAL_IPV6, Hetzner, HetznerSettings, NetworkSelector,
    NodeSettings, Profile,
};
use ccm::http::{Secret, SecretSource};
use ccm::kube::KubeNode;
use ccm::provider::{
    INTERNAL_IP, Instance, InstanceId, InternalIpFrom, Provider, Servers, Source, Sourced,
    ZoneSettings,
};
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::fmt::Write;

const FAMILIES: [AddressFamily; 3] =
    [AddressFamily::Ipv4, AddressFamily::Ipv6, AddressFamily::Dualstack];

/// Public IPv4, public IPv6.
const SERVERS: [(&str, bool, bool); 4] = [
    ("both", true, true),
    ("no-v4", false, true),
    ("no-v6", true, false),
    ("neither", false, false),
];

const PROVIDED: [(&str, Option<&str>); 8] = [
    ("-", None),
    ("private", Some("10.0.0.2")),
    ("public", Some("203.0.113.9")),
    ("pair", Some("10.0.0.2,2001:db8:9::1")),
    ("public-pair", Some("203.0.113.9,2001:db8:9::1")),
    ("not-among", Some("192.0.2.77")),
    ("unspecified", Some("0.0.0.0")),
    ("two-v4", Some("10.0.0.2,203.0.113.9")),
];

const EXTERNAL: [(&str, Option<&str>); 4] = [
    ("-", None),
    ("good", Some("2001:db8:9::abcd")),
    ("bad", Some("fe80::1")),
    ("v4", Some("203.0.113.9")),
];

fn connection_to(sandbox: &Sandbox) -> CloudConnection {
    CloudConnection {
        endpoint: sandbox.hetzner_url(),
        token: SecretSource::fixed(Secret::new(&sandbox.projects().token)),
        ..connection()
    }
}

/// A provider of which the Network is known, as after the first tick.
fn provider(sandbox: &Sandbox, family: AddressFamily, network: bool) -> Hetzner {
    let hetzner = Hetzner::new(HetznerSettings {
        connection: connection_to(sandbox),
        network: network.then(|| NetworkSelector::Name("sandbox".into())),
        ..settings(family)
    });
    hetzner.prepare().unwrap();
    hetzner
}

fn server(network: u64, ipv4: bool, ipv6: bool) -> Instance {
    Instance {
        public_ipv4: ipv4.then(|| "203.0.113.9".parse().unwrap()),
        public_ipv6: ipv6.then(|| "2001:db8:9::/64".parse().unwrap()),
        private: vec![private(network + 1, "10.9.9.9"), private(network, "10.0.0.2")],
        ..objects::server(42, "w")
    }
}

fn node(provided: Option<&str>, external_ipv6: Option<&str>) -> KubeNode {
    let mut annotations = serde_json::Map::new();
    annotations.extend(provided.map(|ip| (PROVIDED_NODE_IP.to_owned(), json!(ip))));
    annotations.extend(external_ipv6.map(|ip| (EXTERNAL_IPV6.to_owned(), json!(ip))));
    let (metadata, spec) =
        (json!({ "annotations": annotations }), json!({ "providerID": "ccm-from-scratch://42" }));
    objects::node("w", json!({ "metadata": metadata, "spec": spec }))
}

fn plan_one(node: &KubeNode, server: &Instance, hetzner: &Hetzner) -> NodePlan {
    let (nodes, instances) = ([node.clone()], [server.clone()]);
    plan(&nodes, &instances, hetzner, jiff::Timestamp::UNIX_EPOCH).remove(0)
}

/// Returns the addresses, with H for the host name, E for an external and I for an internal address, or the reason why
/// the addresses stay.
fn outcome(plan: &NodePlan) -> String {
    let addresses = plan.changes.iter().flat_map(|change| match change {
        NodeChange::SetAddresses { addresses, .. } => addresses,
        other => panic!("{other:?}"),
    });
    let shown = addresses.map(|one| format!("{}:{}", &one.kind.name()[..1], one.address));
    let mut parts: Vec<String> = shown.collect();
    // A plan has either addresses or an obstacle, and never both.
    assert_eq!(plan.obstacle.is_some(), parts.is_empty());
    let findings = plan.all_findings();
    parts.extend(findings.map(|finding| format!("!{}", finding.reason.name())));
    parts.join(" ")
}

#[test]
fn every_combination_of_settings_gives_the_addresses_in_the_table() {
    let sandbox = Sandbox::builder().nodes(0).network("10.0.0.0/16").only(Half::Hetzner).start();
    let network = sandbox.network().unwrap();
    let mut table = String::from(
        "family    net server  node-ip     ipv6 → addresses, or what stands in the way\n",
    );
    for family in FAMILIES {
        for has_network in [false, true] {
            let hetzner = provider(&sandbox, family, has_network);
            for (has, ipv4, ipv6) in SERVERS {
                let server = server(network, ipv4, ipv6);
                for (provided_name, provided) in PROVIDED {
                    for (external_name, external) in EXTERNAL {
                        let node = node(provided, external);
                        let plan = plan_one(&node, &server, &hetzner);
                        let net = if has_network { "yes" } else { "no" };
                        let family = family.name();
                        writeln!(
                            table,
                            "{family:<9} {net:<3} {has:<7} {provided_name:<11} {external_name:<4} → {}",
                            outcome(&plan)
                        )
                        .unwrap();
                        stays(&node, &plan, &server, &hetzner);
                    }
                }
            }
        }
    }
    common::snapshot("addresses.txt", &table);
}

/// Once the addresses are there, nothing more is written, in whatever order they stand.
fn stays(node: &KubeNode, plan: &NodePlan, server: &Instance, hetzner: &Hetzner) {
    let [NodeChange::SetAddresses { addresses, .. }] = plan.changes.as_slice() else {
        return;
    };
    let mut node = node.clone();
    node.status.addresses = addresses.iter().rev().cloned().collect();
    assert_eq!(plan_one(&node, server, hetzner).changes, vec![]);
}

/// The addresses that the kubelet of a dedicated server reported.
const REPORTED: [(&str, &[&str]); 5] = [
    ("-", &[]),
    ("private", &["10.0.1.2"]),
    ("public", &["203.0.113.9"]),
    ("pair", &["10.0.1.2", "fd00:1::2"]),
    ("no-ip", &["metal"]),
];

fn dedicated(ipv4: bool, ipv6: bool) -> Instance {
    Instance {
        id: InstanceId::Dedicated(321),
        instance_type: "AX41-NVMe".into(),
        data_center: "fsn1-dc16".into(),
        private: Vec::new(),
        ..server(0, ipv4, ipv6)
    }
}

fn dedicated_node(reported: &[&str]) -> KubeNode {
    let addresses = reported.iter().map(|ip| json!({ "type": "InternalIP", "address": ip }));
    let status = json!({ "addresses": Vec::from_iter(addresses) });
    let spec = json!({ "providerID": "hrobot://321" });
    objects::node("w", json!({ "spec": spec, "status": status }))
}

fn plan_dedicated(node: &KubeNode, server: &Instance, hetzner: &Hetzner) -> NodePlan {
    let nodes = [node.clone()];
    let servers = Servers { cloud: Ok(&[]), dedicated: Ok(std::slice::from_ref(server)) };
    plan(&nodes, servers, hetzner, jiff::Timestamp::UNIX_EPOCH).remove(0)
}

/// Address family × what the server has × what its kubelet reported × ROBOT_FORWARD_INTERNAL_IPS.
#[test]
fn every_combination_of_settings_gives_the_addresses_of_dedicated_servers_in_the_table() {
    let mut table = String::from("family    server  reported forward → addresses\n");
    for family in FAMILIES {
        for (has, ipv4, ipv6) in SERVERS {
            for (reported_name, reported) in REPORTED {
                for forward in [true, false] {
                    let hetzner = Hetzner::new(HetznerSettings {
                        robot: Some(robot(forward)),
                        ..settings(family)
                    });
                    let (node, server) = (dedicated_node(reported), dedicated(ipv4, ipv6));
                    let plan = plan_dedicated(&node, &server, &hetzner);
                    let family = family.name();
                    writeln!(
                        table,
                        "{family:<9} {has:<7} {reported_name:<8} {forward:<7} → {}",
                        outcome(&plan)
                    )
                    .unwrap();
                    if let [NodeChange::SetAddresses { addresses, .. }] = plan.changes.as_slice() {
                        let mut node = node.clone();
                        node.status.addresses = addresses.iter().rev().cloned().collect();
                        let again = plan_dedicated(&node, &server, &hetzner);
                        assert_eq!(again.changes, vec![], "nothing more is written");
                    }
                }
            }
        }
    }
    common::snapshot("addresses-dedicated.txt", &table);
}

/// Profile × zone switch, at the initialisation.
#[test]
fn a_dedicated_server_has_its_labels_and_provider_id() {
    let mut table = String::new();
    for profile in [Profile::CcmFromScratch, Profile::Hcloud] {
        for zone_label in [true, false] {
            for id in ["", "hrobot://321", "hcloud://bm-321"] {
                let hetzner = Hetzner::new(HetznerSettings {
                    profile,
                    nodes: NodeSettings {
                        zone: ZoneSettings { is_enabled: zone_label, label: None },
                        ..node_settings(AddressFamily::Ipv4)
                    },
                    robot: Some(robot(true)),
                    ..settings(AddressFamily::Ipv4)
                });
                let mut node = dedicated_node(&["10.0.1.2"]);
                node.spec.provider_id = id.into();
                node.spec.taints = serde_json::from_value(json!([
                    { "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }
                ]))
                .unwrap();
                let plan = plan_dedicated(&node, &dedicated(true, true), &hetzner);
                let update = plan.changes.iter().find_map(|change| match change {
                    NodeChange::Update { labels, provider_id, .. } => Some((labels, provider_id)),
                    _ => None,
                });
                let (labels, provider_id) = update.unwrap();
                writeln!(table, "{} zone {zone_label}, {id:?}:", profile.name()).unwrap();
                writeln!(table, "  provider ID: {provider_id:?}").unwrap();
                for (key, value) in labels {
                    writeln!(table, "  {key}={}", value.as_deref().unwrap()).unwrap();
                }
            }
        }
    }
    common::snapshot("labels-dedicated.txt", &table);
}

fn robot(forward_internal_ips: bool) -> RobotSettings {
    let secret = || SecretSource::fixed(Secret::new("secret"));
    RobotSettings {
        endpoint: "http://127.0.0.1:1".into(),
        credentials: Some((secret(), secret())),
        rate_limit_wait: None,
        forward_internal_ips: Sourced::new(forward_internal_ips, Source::Rule("test")),
    }
}

/// The nodes have addresses that the API does not know. The table combines the family, --node-ip, the annotation, and
/// where InternalIPs come from.
#[test]
fn private_addresses_that_the_api_does_not_know_come_from_annotation_or_kubelet() {
    use AddressFamily::{Dualstack, Ipv4, None as Private};
    use InternalIpFrom::{Kubelet, Network};
    let (sandbox, vpn) = (
        Sandbox::builder().nodes(0).network("10.0.0.0/16").only(Half::Hetzner).start(),
        "100.64.0.7",
    );
    let network = sandbox.network().unwrap();
    #[rustfmt::skip] // A case is a line.
    let cases = [
        // No public address.
        (Private, Network, None, None, "H:w I:10.0.0.2"),
        (Private, Network, Some("10.0.0.2"), None, "I:10.0.0.2 H:w"),
        (Private, Network, Some("203.0.113.9"), None, "!InvalidProvidedNodeIP"),
        (Private, Kubelet, None, None, "H:w I:10.0.0.2"),
        (Private, Kubelet, Some(vpn), None, "I:100.64.0.7 H:w"),
        (Private, Kubelet, Some("203.0.113.9"), None, "!InvalidProvidedNodeIP"),
        // The kubelet was given this address, which is the only one of its type.
        (Ipv4, Network, Some(vpn), None, "!InvalidProvidedNodeIP"),
        (Ipv4, Kubelet, Some(vpn), None, "I:100.64.0.7 H:w E:203.0.113.9"),
        (Ipv4, Kubelet, Some("100.64.0.7,fd00::7"), None, "I:100.64.0.7 I:fd00::7 H:w E:203.0.113.9"),
        (Ipv4, Kubelet, Some("fd00::7,100.64.0.7"), None, "I:fd00::7 I:100.64.0.7 H:w E:203.0.113.9"),
        (Ipv4, Kubelet, Some("203.0.113.9"), None, "E:203.0.113.9 H:w I:10.0.0.2"),
        (Ipv4, Kubelet, Some("100.64.0.7,2001:db8:9::1"), None, "!InvalidProvidedNodeIP"),
        (Dualstack, Kubelet, Some("100.64.0.7,2001:db8:9::1"), None, "I:100.64.0.7 E:2001:db8:9::1 H:w"),
        (Ipv4, Kubelet, Some("10.9.9.9"), None, "I:10.9.9.9 H:w E:203.0.113.9"),
        (Ipv4, Kubelet, Some("127.0.0.1"), None, "!InvalidProvidedNodeIP"),
        (Ipv4, Kubelet, Some("nonsense"), None, "!InvalidProvidedNodeIP"),
        // The annotation wins over both.
        (Ipv4, Network, None, Some(vpn), "H:w E:203.0.113.9 I:100.64.0.7"),
        (Ipv4, Network, None, Some(" fd00::7 , 100.64.0.7"), "H:w E:203.0.113.9 I:fd00::7 I:100.64.0.7"),
        (Ipv4, Network, Some(vpn), Some(vpn), "I:100.64.0.7 H:w E:203.0.113.9"),
        (Ipv4, Network, Some("10.0.0.2"), Some(vpn), "!InvalidProvidedNodeIP"),
        (Ipv4, Kubelet, Some("10.0.0.2"), Some(vpn), "!InvalidProvidedNodeIP"),
        (Private, Network, None, Some("203.0.113.9"), "H:w I:203.0.113.9"),
        (Ipv4, Network, None, Some("203.0.113.9"), "!InvalidInternalIP"),
        (Dualstack, Network, None, Some("2001:db8:9::1"), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some(""), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some("10.0.0.2,10.0.0.3"), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some("0.0.0.0"), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some("169.254.0.1"), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some("fe80::1"), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some("::ffff:10.0.0.2"), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some("224.0.0.1"), "!InvalidInternalIP"),
        (Ipv4, Network, None, Some("100.64.0.7/32"), "!InvalidInternalIP"),
    ];
    for (family, internal_ip_from, provided, annotation, expected) in cases {
        let hetzner = Hetzner::new(HetznerSettings {
            connection: connection_to(&sandbox),
            network: Some(NetworkSelector::Id(network)),
            nodes: NodeSettings { internal_ip_from, ..node_settings(family) },
            ..settings(family)
        });
        hetzner.prepare().unwrap();
        let mut node = node(provided, None);
        let annotations = node.metadata.annotations.iter();
        let annotations = annotations.chain(annotation.map(|ip| (INTERNAL_IP, ip)));
        node.metadata.annotations = annotations.collect();
        let server = server(network, true, true);
        let plan = plan_one(&node, &server, &hetzner);
        let case = format!("{} {internal_ip_from:?} {provided:?} {annotation:?}", family.name());
        assert_eq!(outcome(&plan), expected, "{case}");
        stays(&node, &plan, &server, &hetzner);
    }
}

/// Each case has the ranges, the annotation, and the addresses or the reason of a refusal.
#[test]
#[rustfmt::skip] // A case is a line.
fn ranges_limit_the_annotation_alone() {
    let own = "H:w E:203.0.113.9";
    let cases: [(&[&str], Option<&str>, String); 9] = [
        (&[], Some("192.168.0.9"), format!("{own} I:192.168.0.9")),
        (&["100.64.0.0/10"], Some("100.64.0.7"), format!("{own} I:100.64.0.7")),
        (&["10.0.0.0/8", "100.64.0.0/10"], Some("100.64.0.7"), format!("{own} I:100.64.0.7")),
        (&["100.64.0.0/10", "fd00::/8"], Some("100.64.0.7,fd00::7"), format!("{own} I:100.64.0.7 I:fd00::7")),
        (&["100.64.0.0/10"], Some("100.64.0.7,fd00::7"), "!InvalidInternalIP".into()),
        (&["100.64.0.0/10"], Some("10.0.0.9"), "!InvalidInternalIP".into()),
        (&["fd00::/8"], Some("100.64.0.7"), "!InvalidInternalIP".into()),
        (&["100.64.0.0/10"], Some("nonsense"), "!InvalidInternalIP".into()),
        // Without the annotation nothing is limited.
        (&["100.64.0.0/10"], None, own.into()),
    ];
    for (ranges, annotation, expected) in cases {
        let hetzner = Hetzner::new(HetznerSettings {
            nodes: NodeSettings {
                internal_ip_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
                ..node_settings(AddressFamily::Ipv4)
            },
            ..settings(AddressFamily::Ipv4)
        });
        let mut node = node(None, None);
        node.metadata.annotations = annotation.map(|ip| (INTERNAL_IP, ip)).into_iter().collect();
        let server = server(0, true, true);
        let plan = plan_one(&node, &server, &hetzner);
        assert_eq!(outcome(&plan), expected, "{ranges:?} {annotation:?}");
        stays(&node, &plan, &server, &hetzner);
    }
}

/// The first pod range of a cluster is of its primary family. Existing addresses stay in their order.
#[test]
fn addresses_of_the_cluster_s_primary_family_come_first_in_each_type() {
    let hetzner = Hetzner::new(settings(AddressFamily::Dualstack));
    let server = server(0, true, true);
    let (v4, v6) = ("E:203.0.113.9", "E:2001:db8:9::1");
    for (pods, expected) in [
        (json!([]), [v4, v6]),
        (json!(["10.244.0.0/24"]), [v4, v6]),
        (json!(["10.244.0.0/24", "fd00::/64"]), [v4, v6]),
        (json!(["fd00::/64", "10.244.0.0/24"]), [v6, v4]),
        (json!(["fd00::/64"]), [v6, v4]),
        (json!(["nonsense"]), [v4, v6]),
    ] {
        let mut node = node(None, None);
        let spec = json!({ "providerID": "ccm-from-scratch://42", "podCIDRs": pods });
        node.spec = serde_json::from_value(spec).unwrap();
        let plan = plan_one(&node, &server, &hetzner);
        let wanted = format!("H:w {}", expected.join(" "));
        assert_eq!(outcome(&plan), wanted, "{pods}");
        stays(&node, &plan, &server, &hetzner);
    }
}
