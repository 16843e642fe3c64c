//! Labels that nodes get from their servers: who owns a label, what is never changed, and any history of both sides.

use crate::common::fake_provider::FakeProvider;
use crate::common::objects::{node, server};
use crate::common::random::Random;
use crate::node::{applied, new_node, plan_all, reasons};
use ccm::controllers::NodeChange;
use ccm::controllers::node::NodePlan;
use ccm::kube::KubeNode;
use ccm::provider::{Instance, LabelPrefixes, NodeAddress, Reason, SERVER_LABELS, Source};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const POOL: &str = "node.example.com/pool";

type Pairs = BTreeMap<String, String>;

/// The server, with those of its labels that are allowed.
fn cloud(labels: &[(&str, &str)], prefixes: &[&str]) -> FakeProvider {
    let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned());
    let label_prefixes = LabelPrefixes(prefixes.collect());
    let labels = labels.iter().filter(|(key, _)| label_prefixes.allow(key));
    let labels = labels.map(|(key, value)| ((*key).into(), (*value).into()));
    FakeProvider {
        instances: vec![Instance { labels: labels.collect(), ..server(1, "a") }],
        label_prefixes,
        ..FakeProvider::default()
    }
}

/// Initialised, with its address.
fn initialised(labels: Value, remembered: Option<&str>) -> KubeNode {
    let address = NodeAddress::new(ccm::provider::AddressKind::ExternalIP, "203.0.113.2");
    let annotations = json!({ SERVER_LABELS: remembered.unwrap_or_default() });
    let extra = json!({
        "metadata": { "labels": labels, "annotations": annotations },
        "spec": { "providerID": "memory://1" },
        "status": { "addresses": [address] },
    });
    node("a", extra)
}

fn plan_one(node: &KubeNode, cloud: &FakeProvider) -> NodePlan {
    plan_all(std::slice::from_ref(node), cloud).remove(0)
}

/// The labels of a node, to be compared and changed.
fn owned(node: &KubeNode) -> Pairs {
    let labels = node.metadata.labels.iter();
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Plans and applies the plan, and checks that a second plan writes nothing.
fn plan_and_apply(node: &KubeNode, cloud: &FakeProvider) -> KubeNode {
    let after = applied(&plan_one(node, cloud));
    assert_eq!(plan_one(&after, cloud).changes, vec![], "{after:?}");
    after
}

#[test]
fn a_label_is_the_server_s_while_its_value_is_unchanged() {
    // Each case has the rule, the server's label, the node's label, the remembered value, and then the node's label and
    // the remembered value after the plan.
    #[rustfmt::skip] // A case is a line.
    #[allow(clippy::type_complexity)]
    let cases: [(&str, Option<&str>, Option<&str>, Option<&str>, Option<&str>, Option<&str>); 14] = [
        ("nothing is wanted",           None,      None,      None,      None,      None),
        ("it is set",                   Some("a"), None,      None,      Some("a"), Some("a")),
        ("an empty value is one",       Some(""),  None,      None,      Some(""),  Some("")),
        ("it follows the server's",     Some("b"), Some("a"), Some("a"), Some("b"), Some("b")),
        ("it is removed",               None,      Some("a"), Some("a"), None,      None),
        ("nothing differs",             Some("a"), Some("a"), Some("a"), Some("a"), Some("a")),
        ("it is set again",             Some("a"), None,      Some("a"), Some("a"), Some("a")),
        ("both removed it",             None,      None,      Some("a"), None,      None),
        ("it was there before",         Some("a"), Some("x"), None,      Some("x"), None),
        ("with the same value",         Some("a"), Some("a"), None,      Some("a"), None),
        ("and stays",                   None,      Some("a"), None,      Some("a"), None),
        ("a person changed it",         Some("a"), Some("x"), Some("a"), Some("x"), None),
        ("before the server's changed", Some("b"), Some("b"), Some("a"), Some("b"), None),
        ("before it was removed",       None,      Some("x"), Some("a"), Some("x"), None),
    ];
    for (rule, wanted, have, remembered, expected, remembered_then) in cases {
        let labels: Vec<(&str, &str)> = wanted.iter().map(|value| (POOL, *value)).collect();
        let cloud = cloud(&labels, &["node.example.com/"]);
        let remembered = remembered.map(|value| format!("{POOL}={value}"));
        let labels = have.map_or(json!({}), |value| json!({ POOL: value }));
        let after = plan_and_apply(&initialised(labels, remembered.as_deref()), &cloud);
        assert_eq!(after.metadata.labels.get(POOL), expected, "{rule}");
        let remembered = remembered_then.map(|value| format!("{POOL}={value}"));
        let have = after.metadata.annotations.get(SERVER_LABELS);
        let have = have.filter(|text| !text.is_empty());
        assert_eq!(have, remembered.as_deref(), "{rule}");
    }
}

#[test]
fn labels_and_taints_of_the_server_are_set_with_the_patch_that_removes_the_taint() {
    let labels = [
        (POOL, "gpu"),
        ("node.example.com/taint.dedicated", "gpu_NoSchedule"),
        ("node.example.com/taint.plain", "NoExecute"),
        ("node.example.com/taint.there", "PreferNoSchedule"),
        ("node.example.com/taint.wrong", "Never"),
        ("node.example.com/taint.long", "a_b_NoSchedule"),
        ("example.org/not-listed", "x"),
    ];
    let cloud = cloud(&labels, &["node.example.com/"]);
    let mut new = new_node("a");
    let taint = |key, value, effect| json!({ "key": key, "value": value, "effect": effect });
    let there = taint("node.example.com/there", "own", "PreferNoSchedule");
    let own = serde_json::from_value(there.clone()).unwrap();
    new.spec.taints.push(own);
    let plan = plan_one(&new, &cloud);
    let [NodeChange::SetAddresses { .. }, NodeChange::Update { labels, annotations, taints, .. }] =
        plan.changes.as_slice()
    else {
        panic!("{:?}", plan.changes)
    };
    let of_server = labels.iter().filter(|(key, _)| key.contains("example"));
    let expected = [(&POOL.to_owned(), &Some("gpu".to_owned()))];
    assert_eq!(Vec::from_iter(of_server), expected);
    assert_eq!(annotations[SERVER_LABELS], Some(format!("{POOL}=gpu")));
    let expected = json!([
        there,
        taint("node.example.com/dedicated", "gpu", "NoSchedule"),
        taint("node.example.com/long", "a_b", "NoSchedule"),
        json!({ "key": "node.example.com/plain", "effect": "NoExecute" }),
    ]);
    assert_eq!(serde_json::to_value(taints).unwrap(), expected);
    assert_eq!(reasons(&plan), [Reason::InvalidServerLabel]);
    let label = format!("label {POOL}");
    let field = plan.fields().find(|field| field.field == label);
    let source = Source::server_because("labels", "HCLOUD_INSTANCES_LABEL_PREFIXES");
    assert_eq!(field.unwrap().source, source);
    // A taint that a person removes from the running node is not set again.
    let mut after = applied(&plan);
    after.spec.taints.clear();
    assert_eq!(plan_one(&after, &cloud).changes, vec![]);
}

#[test]
fn labels_whose_prefix_is_not_listed_any_more_are_removed() {
    const WORKER: &str = "node-role.kubernetes.io/worker";
    let labels = [(POOL, "gpu"), ("example.org/rack", "r1"), (WORKER, "")];
    let all = ["node.example.com/", "example.org/rack", WORKER];
    let start = initialised(json!({}), None);
    let with_all = plan_and_apply(&start, &cloud(&labels, &all));
    assert_eq!(with_all.metadata.labels.iter().count(), 3);
    let with_one = plan_and_apply(&with_all, &cloud(&labels, &all[1..2]));
    // Kubernetes keeps kubelets from its own domains, and we do not remove on a kubelet's word.
    let left: Vec<_> = with_one.metadata.labels.iter().collect();
    assert_eq!(left, labels[1..]);
    let annotation = with_one.metadata.annotations.get(SERVER_LABELS);
    assert_eq!(annotation, Some("example.org/rack=r1"));
}

/// A kubelet may write any annotation of its own node.
#[test]
fn an_annotation_that_claims_other_labels_removes_none_of_kubernetes() {
    let labels = json!({
        "kubernetes.io/hostname": "a", "node-role.kubernetes.io/control-plane": "",
        "node-restriction.kubernetes.io/secure": "true", "node.kubernetes.io/exclude-from-external-load-balancers": "",
        "plain": "x",
    });
    let claims = "kubernetes.io/hostname=a,node-role.kubernetes.io/control-plane=,plain=x,=,a/b,\
                  node-restriction.kubernetes.io/secure=true,x.k8s.io/y=z,\
                  node.kubernetes.io/exclude-from-external-load-balancers=,…";
    let start = initialised(labels, Some(claims));
    let after = plan_and_apply(&start, &cloud(&[(POOL, "gpu")], &["node.example.com/"]));
    let count = |node: &KubeNode| node.metadata.labels.iter().count();
    assert_eq!(count(&after), count(&start) + 1);
    let annotation = after.metadata.annotations.get(SERVER_LABELS);
    assert_eq!(annotation, Some(format!("{POOL}=gpu").as_str()));
}

#[test]
fn too_many_or_invalid_labels_leave_the_node_as_it_is() {
    let start = initialised(json!({ POOL: "gpu" }), Some(&format!("{POOL}=gpu")));
    let many: Vec<String> = (0..17).map(|n| format!("node.example.com/n-{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "x")).collect();
    let long = format!("{}.example.com/x", "a".repeat(230));
    let long: Vec<String> = (0..9).map(|n| format!("{long}{n}")).collect();
    let long: Vec<(&str, &str)> = long.iter().map(|key| (key.as_str(), "x")).collect();
    let [domain, _] = long[0].0.split('/').collect::<Vec<_>>()[..] else { panic!() };
    let domain = format!("{domain}/");
    let too_long = "x".repeat(64);
    for labels in [&many[..], &long, &[(POOL, "not valid")], &[(POOL, &too_long)]] {
        let plan = plan_one(&start, &cloud(labels, &["node.example.com/", &domain]));
        assert_eq!(plan.changes, vec![], "{labels:?}");
        assert_eq!(reasons(&plan), [Reason::InvalidServerLabel], "{labels:?}");
    }
    let plan = plan_one(&start, &cloud(&many[..16], &["node.example.com/"]));
    assert_eq!((plan.changes.len(), reasons(&plan)), (1, vec![]));
}

#[test]
fn an_unknown_server_removes_no_label() {
    let start = initialised(json!({ POOL: "gpu" }), Some(&format!("{POOL}=gpu")));
    let mut twin = start.clone();
    twin.metadata.name = "b".into();
    let mut with_taint = start.clone();
    let annotations = [
        (SERVER_LABELS, format!("{POOL}=gpu")),
        (ccm::provider::PROVIDED_NODE_IP, "192.0.2.1".to_owned()),
    ];
    with_taint.metadata.annotations = annotations.into_iter().collect();
    let empty = FakeProvider::default();
    let known = cloud(&[(POOL, "gpu")], &["node.example.com/"]);
    for (what, nodes, cloud) in [
        ("no server at all", vec![start.clone()], &empty),
        ("a server of two nodes", vec![start, twin], &known),
        ("addresses that can't be computed", vec![with_taint], &known),
    ] {
        for plan in plan_all(&nodes, cloud) {
            assert_eq!(plan.changes, vec![], "{what}");
        }
    }
}

#[test]
fn any_history_ends_with_the_server_s_labels_and_all_of_the_person_s() {
    let [other, stable] = ["example.org/rack", "topology.kubernetes.io/rack"];
    let keys = [POOL, "node.example.com/zone", other, stable];
    let prefixes = ["node.example.com/", other, stable];
    let values = ["", "a", "b"];
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let (mut of_server, mut ours) = (Pairs::new(), Pairs::new());
        let mut node = match random.percent(50) {
            true => new_node("a"),
            false => initialised(json!({}), None),
        };
        for step in 0..30 {
            let (key, value) = (*random.pick(&keys), *random.pick(&values));
            let mut labels = owned(&node);
            match random.below(5) {
                0 => drop(of_server.insert(key.into(), value.into())),
                1 => drop(of_server.remove(key)),
                2 => drop(labels.insert(key.into(), value.into())),
                3 => drop(labels.remove(key)),
                _ => {
                    let of_server: Vec<_> = of_server.iter().map(|(k, v)| (&**k, &**v)).collect();
                    let after = plan_and_apply(&node, &cloud(&of_server, &prefixes));
                    // A label that a person has set before or since is the person's.
                    let mut expected = labels;
                    expected.retain(|key, value| ours.get(key) != Some(value));
                    ours.clear();
                    for (key, value) in &of_server {
                        if !expected.contains_key(*key) {
                            ours.insert((*key).into(), (*value).into());
                        }
                    }
                    expected.extend(ours.clone());
                    let mut have = owned(&after);
                    have.retain(|key, _| keys.contains(&key.as_str()));
                    expected.retain(|key, _| keys.contains(&key.as_str()));
                    assert_eq!(have, expected, "seed {seed}, step {step}");
                    node = after;
                    continue;
                }
            }
            node.metadata.labels = labels.into_iter().collect();
        }
    }
}
