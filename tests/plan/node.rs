//! The node controller's plan: tables of matching and labels, and properties for any nodes and servers.

use crate::common::objects::{merge, node, private, server};
use crate::common::{fake_provider, random};
use ccm::controllers::NodeChange;
use ccm::controllers::node::{NodePlan, ServerMatch, UNINITIALIZED, is_uninitialized, plan};
use ccm::kube::{KubeNode, Labels};
use ccm::provider::{
    AddressKind, ErrorKind, Instance, InstanceId, NodeAddress, ProviderError, Reason, Servers,
    TopologyLabel,
};
use fake_provider::FakeProvider;
use random::Random;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

pub fn new_node(name: &str) -> KubeNode {
    node(name, json!({ "spec": { "taints": [taint()] } }))
}

fn taint() -> Value {
    json!({ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" })
}

pub fn plan_all(nodes: &[KubeNode], cloud: &FakeProvider) -> Vec<NodePlan> {
    plan(nodes, &cloud.instances, cloud, jiff::Timestamp::UNIX_EPOCH)
}

pub fn reasons(plan: &NodePlan) -> Vec<Reason> {
    plan.all_findings().map(|finding| finding.reason).collect()
}

/// Returns the labels after a merge patch.
fn merged(have: &Labels, patch: &BTreeMap<String, Option<String>>) -> Labels {
    let have = have.iter();
    let have = have.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut all: BTreeMap<String, String> = have.collect();
    for (key, value) in patch {
        match value {
            Some(value) => drop(all.insert(key.clone(), value.clone())),
            None => drop(all.remove(key)),
        }
    }
    all.into_iter().collect()
}

/// Returns the node as the API server would store it after the changes.
pub fn applied(plan: &NodePlan) -> KubeNode {
    let mut node = plan.node.clone();
    for change in &plan.changes {
        match change {
            NodeChange::SetAddresses { addresses, .. } => {
                node.status.addresses.clone_from(addresses);
            }
            NodeChange::Update { labels, annotations, provider_id, taints, .. } => {
                let metadata = &mut node.metadata;
                metadata.labels = merged(&metadata.labels, labels);
                metadata.annotations = merged(&metadata.annotations, annotations);
                if let Some(id) = provider_id {
                    assert!(node.spec.provider_id.is_empty(), "a provider ID can't be changed");
                    node.spec.provider_id = id.clone();
                }
                if let Some(taints) = taints {
                    node.spec.taints = taints.clone();
                }
            }
            other => panic!("{other:?}"),
        }
    }
    node
}

#[test]
fn a_node_is_matched_by_provider_id_then_name_then_address_and_never_guessed() {
    let reports =
        |ip: &str| json!({ "status": { "addresses": [{ "type": "InternalIP", "address": ip }] } });
    let with_id = |id: &str| json!({ "spec": { "providerID": id } });
    let cloud =
        FakeProvider::of([server(1, "a"), server(2, "b"), server(3, "other"), server(4, "twin")]);
    let mut twins = cloud.clone();
    twins
        .instances
        .push(Instance { public_ipv4: cloud.instances[2].public_ipv4, ..server(5, "another") });
    // Each case has the name, the nodes beside it, its fields, the cloud, and the expected server or reason.
    #[allow(clippy::type_complexity)]
    #[rustfmt::skip] // A case is a line.
    let cases: [(&str, Vec<KubeNode>, Value, &FakeProvider, Result<u64, Reason>); 13] = [
        ("a", vec![], json!({}), &cloud, Ok(1)),
        ("a", vec![], with_id("memory://2"), &cloud, Ok(2)),
        ("x", vec![], json!({}), &cloud, Err(Reason::ServerNotFound)),
        ("x", vec![], reports("203.0.113.4"), &cloud, Ok(3)),
        ("x", vec![], reports("192.0.2.9"), &cloud, Err(Reason::ServerNotFound)),
        ("x", vec![], reports("203.0.113.4"), &twins, Err(Reason::InstanceLookupFailed)),
        // The server belongs to the node of that name, or to the node that names it.
        ("x", vec![new_node("other")], reports("203.0.113.4"), &cloud, Err(Reason::ServerNotFound)),
        ("x", vec![node("y", with_id("memory://3"))], reports("203.0.113.4"), &cloud, Err(Reason::ServerNotFound)),
        // The name wins over the address.
        ("a", vec![], reports("203.0.113.4"), &cloud, Ok(1)),
        ("x", vec![], with_id("memory://99"), &cloud, Err(Reason::ServerNotFound)),
        ("a", vec![], with_id("elsewhere://1"), &cloud, Err(Reason::UnknownProviderIDPrefix)),
        ("a", vec![], with_id("memory://one"), &cloud, Err(Reason::UnknownProviderID)),
        ("a", vec![node("y", with_id("memory://1"))], json!({}), &cloud, Ok(1)),
    ];
    for (number, (name, beside, extra, cloud, expected)) in cases.into_iter().enumerate() {
        let mut nodes = vec![node(name, extra)];
        nodes.extend(beside);
        let plan = plan_all(&nodes, cloud).remove(0);
        match expected {
            Ok(id) => assert!(
                matches!(&plan.server, ServerMatch::Matched(instance, _) if instance.id == InstanceId::Cloud(id)),
                "case {number}: {:?}",
                plan.server
            ),
            Err(reason) => {
                assert!(reasons(&plan).contains(&reason), "case {number}: {:?}", plan.findings)
            }
        }
    }
}

/// A provider ID can't be changed, so the fix is another Node. The finding also says when the token may
/// be another project's.
#[test]
fn a_node_tied_to_a_dead_server_while_another_has_its_name_is_reported_with_the_fix() {
    let on = |id: &str| json!({ "spec": { "providerID": id } });
    let fresh = json!({ "spec": { "providerID": "memory://99", "taints": [taint()] } });
    let dying = json!({
        "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "providerID": "memory://99" },
    });
    let cloud =
        FakeProvider::of([server(1, "a"), server(2, "b"), server(3, "twin"), server(4, "twin")]);
    let other = || vec![node("b", on("memory://2"))];
    // Each case has the name, the Node's fields, the nodes beside it, and whether the finding is reported and in doubt.
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("a", on("memory://99"), other(), Some(false)),
        ("a", fresh, other(), Some(false)),
        ("a", on("memory://99"), vec![], Some(true)),
        ("x", on("memory://99"), other(), None),
        ("twin", on("memory://99"), other(), None),
        ("a", on("memory://99"), vec![node("c", on("memory://1"))], None),
        ("a", dying, other(), None),
        ("a", on("memory://1"), other(), None),
    ];
    for (number, (name, extra, beside, expected)) in cases.into_iter().enumerate() {
        let mut nodes = vec![node(name, extra)];
        nodes.extend(beside);
        let plan = plan_all(&nodes, &cloud).remove(0);
        let mut findings = plan.all_findings();
        let found = findings.find(|finding| finding.reason == Reason::ServerReplaced);
        let is_in_doubt =
            found.map(|finding| finding.message.contains("First check that the token"));
        assert_eq!(is_in_doubt, expected, "case {number}: {plan:#?}");
        let has_fix = found.is_none_or(|one| one.message.contains("kubectl delete node a)"));
        assert!(has_fix, "case {number}: {found:?}");
        assert!(found.is_none() || plan.changes.is_empty(), "case {number}");
    }
}

/// Two nodes with one provider ID would count as one machine for good.
#[test]
fn a_server_belongs_to_one_node_only() {
    let reports = |name: &str, ip: &str| {
        let addresses = json!([{ "type": "InternalIP", "address": ip }]);
        node(name, json!({ "spec": { "taints": [taint()] }, "status": { "addresses": addresses } }))
    };
    let cloud = FakeProvider::of([server(1, "a"), server(2, "free")]);
    let both = ["x", "y"].map(|name| reports(name, "203.0.113.3"));
    let by_address = plan_all(&both, &cloud);
    let claimed = node("old", json!({ "spec": { "providerID": "memory://1" } }));
    let by_name = plan_all(&[new_node("a"), claimed], &cloud);
    let twins = FakeProvider::of([server(1, "a"), server(2, "a")]);
    let by_twins = plan_all(&[new_node("a")], &twins);
    for (plan, reason) in [
        (&by_address[0], Reason::InstanceLookupFailed),
        (&by_address[1], Reason::InstanceLookupFailed),
        (&by_name[0], Reason::ServerClaimedTwice),
        (&by_twins[0], Reason::InstanceLookupFailed),
    ] {
        assert_eq!(plan.changes, vec![]);
        let obstacle = plan.obstacle.as_ref().map(|finding| finding.reason);
        assert_eq!(obstacle, Some(reason), "{plan:?}");
    }
}

/// A Node with a provider ID: its name, the second of its creation, and whether it is new.
type Claimant = (&'static str, u32, bool);

fn claimant((name, second, is_new): Claimant) -> KubeNode {
    let taints = if is_new { json!([taint()]) } else { json!([]) };
    node(
        name,
        json!({
            "metadata": { "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z") },
            "spec": { "providerID": "memory://1", "taints": taints },
        }),
    )
}

#[test]
#[rustfmt::skip] // A case is a line.
fn age_and_name_decide_which_of_several_nodes_gets_a_server() {
    let cloud = FakeProvider::of([server(1, "secure")]);
    let (old, young) = (1, 9);
    // Each case has the Nodes, and which of them has the server.
    let cases: [(&[Claimant], Option<&str>); 12] = [
        (&[("secure", old, false), ("zz-evil", young, true)], Some("secure")),
        (&[("secure", old, false), ("aa-evil", young, true)], Some("secure")),
        (&[("secure", old, false), ("zz-evil", young, false)], Some("secure")),
        (&[("secure", old, false), ("aa-evil", young, false)], Some("secure")),
        (&[("secure", young, false), ("zz-evil", old, true)], Some("secure")),
        (&[("secure", young, true), ("zz-evil", old, true)], Some("secure")),
        (&[("secure", young, true), ("aa-evil", old, true)], Some("secure")),
        // A server may have another name than its Node.
        (&[("real", old, false), ("secure", young, true)], Some("real")),
        (&[("real", old, false), ("secure", young, false)], Some("real")),
        (&[("aa", old, true), ("zz", young, true)], None),
        (&[("aa", old, true), ("zz", old, true), ("secure", young, true)], Some("secure")),
        (&[("alone", young, true)], Some("alone")),
    ];
    for (claimants, expected) in cases {
        for is_reversed in [false, true] {
            let mut nodes: Vec<KubeNode> = claimants.iter().map(|one| claimant(*one)).collect();
            if is_reversed {
                nodes.reverse();
            }
            for plan in plan_all(&nodes, &cloud) {
                let name = &plan.object.name;
                let is_refused = reasons(&plan).contains(&Reason::ServerClaimedTwice);
                assert_eq!(is_refused, Some(name.as_str()) != expected, "{claimants:?}: {name}");
                assert_eq!(plan.changes.is_empty(), is_refused, "{claimants:?}: {name}");
                let is_new = is_uninitialized(&plan.node);
                assert_eq!(plan.obstacle.is_some(), is_refused && is_new, "{claimants:?}: {name}");
            }
        }
    }
}

/// A new Node without a provider ID names the server by its own name.
#[test]
fn a_new_node_with_the_server_s_name_gets_it_before_another_new_one_that_names_it() {
    let cloud = FakeProvider::of([server(1, "secure")]);
    for evil in ["aa-evil", "zz-evil"] {
        let plans = plan_all(&[new_node("secure"), claimant((evil, 1, true))], &cloud);
        assert_eq!(plans[0].obstacle, None, "{evil}");
        assert!(is_initialised_by(&plans[0]), "{evil}");
        let second = plans[1].obstacle.as_ref().map(|one| one.reason);
        assert_eq!(second, Some(Reason::ServerClaimedTwice), "{evil}");
        // A node that is initialised already keeps the server.
        let plans = plan_all(&[new_node("secure"), claimant((evil, 1, false))], &cloud);
        assert_eq!(reasons(&plans[0]), [Reason::ServerClaimedTwice], "{evil}");
        assert_eq!(reasons(&plans[1]), [], "{evil}");
    }
}

fn is_initialised_by(plan: &NodePlan) -> bool {
    let mut changes = plan.changes.iter();
    changes.any(|change| matches!(change, NodeChange::Update { taints: Some(_), .. }))
}

#[test]
fn a_server_of_another_name_that_one_provider_id_names_is_a_finding_only() {
    let cloud = FakeProvider::of([server(1, "secure")]);
    let plans = plan_all(&[claimant(("other", 1, true))], &cloud);
    assert_eq!(reasons(&plans[0]), [Reason::ServerNameDiffers]);
    assert!(is_initialised_by(&plans[0]));
    let plans = plan_all(&[claimant(("other", 1, false))], &cloud);
    assert_eq!(reasons(&plans[0]), []);
}

/// A kubelet reports what it wants.
#[test]
fn a_reported_address_takes_no_server_from_an_initialised_node() {
    let cloud = FakeProvider::of([server(3, "other")]);
    let reports = |name: &str, extra: Value| {
        let mut given = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "203.0.113.4" }] } });
        merge(&mut given, extra);
        node(name, given)
    };
    let new = json!({ "spec": { "taints": [taint()] } });
    for evil in ["aa-evil", "zz-evil"] {
        // Another provider's node, or a node without a provider ID, has the server.
        for real in [json!({ "spec": { "providerID": "elsewhere://1" } }), json!({})] {
            let both = [reports("real", real.clone()), reports(evil, new.clone())];
            let plans = plan_all(&both, &cloud);
            let evil = &plans[1];
            assert!(evil.changes.is_empty(), "{evil:?}");
            let reason = evil.obstacle.as_ref().map(|one| one.reason);
            assert_eq!(reason, Some(Reason::InstanceLookupFailed), "{evil:?}");
            let is_matched = matches!(&plans[0].server, ServerMatch::Matched(..));
            assert_eq!(is_matched, real == json!({}), "{:?}", plans[0]);
        }
    }
}

#[test]
fn foreign_unknown_and_dying_nodes_are_left_alone() {
    let cloud = FakeProvider::of([server(1, "a")]);
    let beta = json!({ "failure-domain.beta.kubernetes.io/zone": "changed" });
    let cases = [
        json!({ "spec": { "providerID": "elsewhere://1", "taints": [taint()] }, "metadata": { "labels": beta } }),
        json!({ "spec": { "providerID": "elsewhere://1" }, "metadata": { "labels": beta } }),
        json!({ "spec": { "providerID": "memory://x", "taints": [taint()] }, "metadata": { "labels": beta } }),
        json!({ "spec": { "providerID": "memory://x" }, "metadata": { "labels": beta } }),
        json!({ "spec": { "taints": [taint()] }, "metadata": { "deletionTimestamp": "2026-11-20T10:00:00Z" } }),
    ];
    for case in cases {
        let plan = plan_all(&[node("a", case.clone())], &cloud).remove(0);
        assert_eq!((&plan.changes, &plan.obstacle), (&vec![], &None), "{case}");
    }
}

/// A row of the rules for nodes of other providers: the provider ID of the node, whether the node has the taint
/// `uninitialized`, the addresses that it reports, the provider ID of another node, the names of the servers, and the
/// expected reason. `None` as the reason means that the node is no target of another provider.
type ForeignRow<'a> = (&'a str, bool, &'a [&'a str], &'a str, [&'a str; 2], Option<Reason>);

#[test]
fn a_node_of_another_provider_is_matched_by_name_and_address() {
    use Reason::{
        ForeignNodeMatched as Matched, ForeignNodeNotMatched as NotMatched,
        InstanceLookupFailed as Unsafe, ServerClaimedTwice as Twice,
    };
    let (own, second, other) = ("192.0.2.1", "192.0.2.2", "198.51.100.7");
    let rows: &[ForeignRow] = &[
        ("k3s://a", false, &[own], "", ["a", "b"], Some(Matched)),
        ("", false, &[own], "", ["a", "b"], Some(Matched)),
        ("k3s://a", true, &[own], "", ["a", "b"], Some(Matched)),
        ("", true, &[own], "", ["a", "b"], None),
        ("memory://1", false, &[own], "", ["a", "b"], None),
        ("memory://x", false, &[own], "", ["a", "b"], None),
        ("k3s://a", false, &[other], "", ["a", "b"], Some(NotMatched)),
        ("k3s://a", false, &[], "", ["a", "b"], Some(NotMatched)),
        ("k3s://a", false, &[own], "", ["c", "b"], Some(NotMatched)),
        ("k3s://a", false, &[second], "", ["c", "b"], Some(NotMatched)),
        ("k3s://a", false, &[own], "", ["a", "a"], Some(Unsafe)),
        ("k3s://a", false, &[own, second], "", ["a", "b"], Some(Unsafe)),
        ("k3s://a", false, &[second], "", ["a", "b"], Some(NotMatched)),
        ("k3s://a", false, &[own], "memory://1", ["a", "b"], Some(Twice)),
        ("k3s://a", false, &[other], "memory://1", ["a", "b"], Some(Twice)),
        ("k3s://a", false, &[own], "memory://2", ["a", "b"], Some(Matched)),
        ("k3s://a", false, &[own], "k3s://a", ["a", "b"], Some(Matched)),
    ];
    for row in rows {
        let (id, is_new, reported, other_id, names, expected) = row;
        let mut servers = [server(1, names[0]), server(2, names[1])];
        servers[0].public_ipv4 = own.parse().ok();
        servers[1].public_ipv4 = second.parse().ok();
        let cloud = FakeProvider { matches_foreign_nodes: true, ..FakeProvider::of(servers) };
        let taints = if *is_new { vec![taint()] } else { Vec::new() };
        let address = |ip: &&str| json!({ "type": "InternalIP", "address": ip });
        let addresses: Vec<Value> = reported.iter().map(address).collect();
        let nodes = [
            node(
                "a",
                json!({ "spec": { "providerID": id, "taints": taints }, "status": { "addresses": addresses } }),
            ),
            node("z", json!({ "spec": { "providerID": other_id } })),
        ];
        let plan = plan_all(&nodes, &cloud).remove(0);
        let found = match &plan.server {
            ServerMatch::TargetOnly(_) => reasons(&plan).first().copied(),
            _ => None,
        };
        assert_eq!(found, *expected, "{row:?}: {plan:?}");
        if found.is_some() {
            assert_eq!((&plan.changes, &plan.obstacle), (&vec![], &None), "{row:?}");
        }
        // Without the setting, the node is treated as before.
        let cloud = FakeProvider { matches_foreign_nodes: false, ..cloud };
        let plan = plan_all(&nodes, &cloud).remove(0);
        assert!(!matches!(plan.server, ServerMatch::TargetOnly(_)), "{row:?}: {plan:?}");
    }
}

#[test]
fn a_list_of_servers_that_failed_matches_no_node_of_another_provider() {
    let error = ProviderError::new(ErrorKind::Other, "no answer");
    let mut own = server(1, "a");
    own.public_ipv4 = "192.0.2.1".parse().ok();
    let cloud = FakeProvider { matches_foreign_nodes: true, ..FakeProvider::of([own]) };
    let reported = json!([{ "type": "InternalIP", "address": "192.0.2.1" }]);
    let nodes = [node(
        "a",
        json!({ "spec": { "providerID": "k3s://a" }, "status": { "addresses": reported } }),
    )];
    let servers = Servers { cloud: Ok(&cloud.instances), dedicated: Err(&error) };
    let plan = plan(&nodes, servers, &cloud, jiff::Timestamp::UNIX_EPOCH).remove(0);
    assert_eq!(reasons(&plan), [Reason::InstanceLookupFailed]);
    assert_eq!(plan.changes, []);
}

#[test]
fn a_new_node_gets_addresses_first_and_everything_else_in_one_patch() {
    let cloud = FakeProvider::of([server(1, "a")]);
    let other = json!({ "key": "mine", "effect": "NoExecute", "value": "x", "timeAdded": "2026-01-01T00:00:00Z" });
    let start = node("a", json!({ "spec": { "taints": [other, taint()] } }));
    let plan = plan_all(&[start], &cloud).remove(0);
    let [
        NodeChange::SetAddresses { addresses, .. },
        NodeChange::Update { labels, provider_id, taints, .. },
    ] = plan.changes.as_slice()
    else {
        panic!("{:?}", plan.changes)
    };
    assert_eq!(addresses.len(), 1);
    assert_eq!(provider_id.as_deref(), Some("memory://1"));
    // The taints and labels of others stay.
    assert_eq!(serde_json::to_value(taints).unwrap(), json!([other]));
    for label in TopologyLabel::ALL {
        assert_eq!(labels[label.stable_key()], labels[label.beta_key()]);
    }
    let zone = &labels["topology.kubernetes.io/zone"];
    assert_eq!(zone.as_deref(), Some("fsn1"));
}

#[test]
fn the_host_name_of_the_kubelet_is_kept_where_the_cloud_names_none() {
    let cloud = FakeProvider::of([server(1, "a")]);
    let own = json!([{ "type": "Hostname", "address": "a.example.com" }]);
    let node = node("a", json!({ "status": { "addresses": own } }));
    let plan = plan_all(&[node], &cloud).remove(0);
    let [NodeChange::SetAddresses { addresses, .. }] = plan.changes.as_slice() else {
        panic!("{:?}", plan.changes)
    };
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(list, ["ExternalIP 203.0.113.2", "Hostname a.example.com"]);
}

#[test]
fn the_stable_label_of_an_initialised_node_follows_its_beta_twin() {
    let cloud = FakeProvider::of([server(1, "a")]);
    let (beta, stable) = (TopologyLabel::Zone.beta_key(), TopologyLabel::Zone.stable_key());
    // Beta, stable, what the stable one is set to.
    let cases = [
        (None, None, None),
        (None, Some("kept"), None),
        (Some("z"), None, Some("z")),
        (Some("z"), Some("other"), Some("z")),
        (Some("z"), Some("z"), None),
    ];
    for (have_beta, have_stable, expected) in cases {
        let mut node = node("a", json!({ "spec": { "providerID": "memory://1" } }));
        node.status.addresses = vec![NodeAddress::new(AddressKind::ExternalIP, "203.0.113.2")];
        let labels = [(beta, have_beta), (stable, have_stable)];
        let labels =
            labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
        node.metadata.labels = labels.collect();
        let plan = plan_all(&[node], &cloud).remove(0);
        let set: Vec<(String, Option<String>)> = plan
            .changes
            .iter()
            .flat_map(|change| match change {
                NodeChange::Update { labels, provider_id: None, taints: None, .. } => {
                    labels.clone().into_iter()
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = expected.map(|value| (stable.to_owned(), Some(value.to_owned())));
        let wanted = Vec::from_iter(expected);
        assert_eq!(set, wanted, "{have_beta:?} {have_stable:?}");
    }
}

#[test]
fn a_node_without_id_and_taint_gets_addresses_and_nothing_else() {
    let cloud = FakeProvider::of([server(1, "a")]);
    let labels = json!({ "failure-domain.beta.kubernetes.io/zone": "changed" });
    let node = node("a", json!({ "metadata": { "labels": labels } }));
    let plan = plan_all(&[node], &cloud).remove(0);
    let changes = plan.changes.as_slice();
    assert!(matches!(changes, [NodeChange::SetAddresses { .. }]), "{changes:?}");
    assert!(reasons(&plan).contains(&Reason::NotExternal));
}

#[test]
fn the_order_of_addresses_alone_is_no_difference() {
    let mut instance = server(1, "a");
    instance.private = vec![private(7, "10.0.0.2")];
    let cloud = FakeProvider::of([instance]);
    let external = json!({ "type": "ExternalIP", "address": "203.0.113.2" });
    let internal = json!({ "type": "InternalIP", "address": "10.0.0.2" });
    for addresses in [json!([external, internal]), json!([internal, external])] {
        let extra =
            json!({ "spec": { "providerID": "memory://1" }, "status": { "addresses": addresses } });
        assert_eq!(plan_all(&[node("a", extra)], &cloud)[0].changes, vec![]);
    }
}

/// Nodes and servers of every kind, in every state of being half done.
fn random_world(random: &mut Random) -> (Vec<KubeNode>, FakeProvider) {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut instances = Vec::new();
    for (number, name) in names.iter().enumerate() {
        if random.percent(80) {
            let mut instance = server(number as u64 + 1, name);
            if random.percent(20) {
                instance.public_ipv4 = None;
            }
            if random.percent(50) {
                instance.private = vec![private(7, &format!("10.0.0.{}", number + 2))];
            }
            instances.push(instance);
        }
    }
    let nodes = names.iter().filter_map(|name| match random.percent(85) {
        true => Some(random_node(random, name)),
        false => None,
    });
    (nodes.collect(), FakeProvider::of(instances))
}

fn random_node(random: &mut Random, name: &str) -> KubeNode {
    #[rustfmt::skip]
    let ids = ["", "", "", "memory://1", "memory://2", "memory://99", "memory://x", "elsewhere://1"];
    let mut extra = json!({ "spec": { "providerID": random.pick(&ids) } });
    let mut taints = Vec::new();
    if random.percent(60) {
        taints.push(taint());
    }
    if random.percent(30) {
        taints.push(json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }));
    }
    extra["spec"]["taints"] = json!(taints);
    let address = |kind: &str, ip: String| json!({ "type": kind, "address": ip });
    let mut addresses = Vec::new();
    if random.percent(60) {
        addresses.push(address("InternalIP", format!("10.0.0.{}", random.below(8))));
    }
    if random.percent(40) {
        let ip = format!("203.0.113.{}", random.below(8));
        addresses.push(address("ExternalIP", ip));
    }
    if random.percent(40) {
        addresses.push(address("Hostname", name.to_owned()));
    }
    extra["status"] = json!({ "addresses": addresses });
    let mut labels = json!({});
    for label in TopologyLabel::ALL {
        for key in [label.stable_key(), label.beta_key()] {
            if random.percent(40) {
                labels[key] = json!(random.pick(&["fsn1", "cx22", "eu-central", "strange"]));
            }
        }
    }
    extra["metadata"] = json!({ "labels": labels });
    if random.percent(25) {
        #[rustfmt::skip]
        let ips = ["10.0.0.2", "203.0.113.2", "0.0.0.0", "nonsense", "203.0.113.2,2001:db8::1", "10.0.0.2,10.0.0.3"];
        extra["metadata"]["annotations"] =
            json!({ ccm::controllers::node::PROVIDED_NODE_IP: random.pick(&ips) });
    }
    node(name, extra)
}

#[test]
fn a_second_plan_is_empty_for_any_nodes() {
    for seed in 0..5_000 {
        let (nodes, cloud) = random_world(&mut Random::new(seed));
        let plans = plan_all(&nodes, &cloud);
        let after: Vec<KubeNode> = plans.iter().map(applied).collect();
        for (first, second) in plans.iter().zip(plan_all(&after, &cloud)) {
            let made = &first.changes;
            assert_eq!(second.changes, vec![], "seed {seed}, after {made:?}");
            let differences: Vec<_> = second.differences().collect();
            let blocked = second.obstacle.is_some();
            let is_right = blocked || differences.is_empty();
            assert!(is_right, "seed {seed}: {differences:?}");
        }
    }
}

#[test]
fn no_new_provider_id_is_one_that_another_initialised_node_has_in_any_world() {
    for seed in 0..5_000 {
        let (nodes, cloud) = random_world(&mut Random::new(seed));
        let after: Vec<KubeNode> = plan_all(&nodes, &cloud).iter().map(applied).collect();
        for (before, now) in nodes.iter().zip(&after) {
            if before.spec.provider_id.is_empty() && !now.spec.provider_id.is_empty() {
                let holders = after
                    .iter()
                    .filter(|other| other.spec.provider_id == now.spec.provider_id)
                    .filter(|other| !is_uninitialized(other));
                assert_eq!(holders.count(), 1, "seed {seed}: {}", now.spec.provider_id);
            }
        }
    }
}

#[test]
fn a_plan_for_any_nodes_rests_on_known_facts() {
    for seed in 0..5_000 {
        let (nodes, cloud) = random_world(&mut Random::new(seed));
        let servers = cloud.instances.iter();
        let ids: HashSet<String> = servers.map(|i| format!("memory://{}", i.id)).collect();
        for plan in plan_all(&nodes, &cloud) {
            let after = applied(&plan);
            let lost_taint = is_uninitialized(&plan.node) && !is_uninitialized(&after);
            if lost_taint {
                let is_matched = matches!(plan.server, ServerMatch::Matched(..));
                assert!(is_matched, "seed {seed}: {plan:?}");
                let is_known = ids.contains(&after.spec.provider_id);
                assert!(is_known, "seed {seed}: {plan:?}");
            }
            let others = |node: &KubeNode| {
                let taints = node.spec.taints.iter();
                taints.filter(|t| t.key != UNINITIALIZED).count()
            };
            assert_eq!(
                others(&plan.node),
                others(&after),
                "seed {seed}: a taint of others was touched"
            );
            // The commit point comes last.
            let commit = plan
                .changes
                .iter()
                .position(|c| matches!(c, NodeChange::Update { taints: Some(_), .. }));
            assert!(
                commit.is_none_or(|position| position + 1 == plan.changes.len()),
                "seed {seed}"
            );
        }
    }
}

fn metal(number: u64, name: &str) -> Instance {
    Instance { id: InstanceId::Dedicated(number), public_ipv4: None, ..server(number, name) }
}

/// Makes a plan from the list of servers of each API, or from the error instead of it.
fn plan_by(
    nodes: &[KubeNode],
    provider: &FakeProvider,
    cloud: Option<&ProviderError>,
    dedicated: Option<&ProviderError>,
) -> Vec<NodePlan> {
    let metal = provider.dedicated.clone().unwrap_or_default();
    let servers = Servers {
        cloud: cloud.map_or(Ok(&provider.instances), Err),
        dedicated: dedicated.map_or(Ok(&metal), Err),
    };
    plan(nodes, servers, provider, jiff::Timestamp::UNIX_EPOCH)
}

/// Returns the server or the reason why there is none, and how much is written.
fn found(plan: &NodePlan) -> String {
    let server = match &plan.server {
        ServerMatch::Matched(instance, _) => format!("{:?}", instance.id),
        ServerMatch::Gone(id) => format!("no {id:?}"),
        other => format!("{other:?}"),
    };
    let reasons = reasons(plan).into_iter().map(Reason::name);
    let parts = [server, format!("{} writes", plan.changes.len())].into_iter();
    let parts = parts.chain(reasons.map(str::to_owned));
    parts.collect::<Vec<_>>().join(", ")
}

#[test]
fn an_outage_of_one_api_leaves_the_other_s_servers_and_proves_nothing_about_its_own() {
    let provider = FakeProvider {
        instances: vec![server(1, "worker"), server(7, "both")],
        dedicated: Some(vec![metal(1, "metal"), metal(8, "both")]),
        ..FakeProvider::default()
    };
    let with_id = |id: &str| node("n", json!({ "spec": { "providerID": id } }));
    let report = json!({ "spec": { "taints": [taint()] }, "status": { "addresses": [
        { "type": "InternalIP", "address": "203.0.113.2" },
    ] } });
    let away = ProviderError::new(ErrorKind::Unavailable, "away");
    let nodes = [
        ("new worker", new_node("worker")),
        ("new metal", new_node("metal")),
        ("new, a name of both", new_node("both")),
        ("new, a name of neither", new_node("x")),
        ("new, by address", node("y", report)),
        ("worker", with_id("memory://1")),
        ("metal", with_id("metal://1")),
        ("worker that is gone", with_id("memory://8")),
        ("metal that is gone", with_id("metal://7")),
    ];
    let mut table = String::new();
    let apis = [
        ("both answer", None, None),
        ("no answer of the cloud", Some(&away), None),
        ("no answer of Robot", None, Some(&away)),
        ("no answer at all", Some(&away), Some(&away)),
    ];
    for (name, cloud, dedicated) in apis {
        writeln!(table, "{name}").unwrap();
        for (what, node) in &nodes {
            let plans = plan_by(std::slice::from_ref(node), &provider, cloud, dedicated);
            writeln!(table, "  {what:<23} {}", found(&plans[0])).unwrap();
        }
    }
    crate::common::snapshot("nodes-of-two-apis.txt", &table);
}

#[test]
fn a_dedicated_node_is_left_alone_without_credentials() {
    let provider = FakeProvider::of([server(1, "worker")]);
    let metal = node("n", json!({ "spec": { "providerID": "metal://1" } }));
    let mut renewed = metal.clone();
    renewed.spec.taints = serde_json::from_value(json!([taint()])).unwrap();
    for node in [metal, renewed] {
        let plan = plan_all(&[node], &provider).remove(0);
        assert_eq!(found(&plan), "Unknown, 0 writes, UnknownProviderID");
    }
    let new = plan_all(&[new_node("worker")], &provider).remove(0);
    assert!(found(&new).starts_with("Cloud(1), "), "{}", found(&new));
}
