//! The zone labels of initialised nodes: `ccm node relabel` changes those that this program could have set, and the
//! plan of a sync changes none.

use crate::common::fake_provider::FakeProvider;
use crate::common::objects::{node, server};
use crate::node::{plan_all, reasons};
use ccm::controllers::node::{NodePlan, UNINITIALIZED};
use ccm::kube::KubeNode;
use ccm::provider::{Instance, Reason, TopologyLabel, ZoneLabel};
use serde_json::{Value, json};

const BETA: &str = TopologyLabel::Zone.beta_key();
const STABLE: &str = TopologyLabel::Zone.stable_key();

/// Creates a node with these values of the beta label and the stable label.
fn with_zone(beta: Option<&str>, stable: Option<&str>, extra: &Value) -> KubeNode {
    let labels = [(BETA, beta), (STABLE, stable)].into_iter();
    let labels = labels.filter_map(|(key, value)| Some((key.to_owned(), json!(value?))));
    let labels = Value::Object(labels.collect());
    let mut fields =
        json!({ "metadata": { "labels": labels }, "spec": { "providerID": "memory://1" } });
    crate::common::objects::merge(&mut fields, extra.clone());
    node("a", fields)
}

fn cloud(zone_label: Option<ZoneLabel>, without_zone: bool) -> FakeProvider {
    let instances = vec![Instance { location: "nbg1".into(), ..server(1, "a") }];
    FakeProvider { instances, zone_label, without_zone, ..FakeProvider::default() }
}

fn plan_one(node: &KubeNode, cloud: &FakeProvider) -> NodePlan {
    plan_all(std::slice::from_ref(node), cloud).remove(0)
}

/// Returns what `ccm node relabel` would set, for example `nbg1-dc1`, and `-` for no label. Otherwise returns the
/// beginning of the reason why the labels stay, or `equal`.
fn outcome(plan: &NodePlan) -> String {
    let Some(zone) = &plan.zone else {
        return "not compared".into();
    };
    match &zone.stays {
        Some(_) => "stays".into(),
        None if zone.is_to_change() => {
            let [beta, stable] = &zone.fields;
            assert_eq!(beta.want, stable.want);
            beta.want.clone().unwrap_or_else(|| "-".into())
        }
        None => "equal".into(),
    }
}

#[test]
#[rustfmt::skip] // A case is a line.
fn labels_that_this_program_could_have_set_are_changed_and_all_others_stay() {
    let (location, datacenter) = (Some(ZoneLabel::Location), Some(ZoneLabel::Datacenter));
    let cases = [
        // The setting, whether labels are off, the beta label, the stable label, and the outcome.
        (location, false, Some("nbg1-dc1"), Some("nbg1-dc1"), "nbg1"),
        (location, false, Some("nbg1-dc1"), None, "nbg1"),
        (location, false, Some("nbg1-dc1"), Some("other"), "nbg1"),
        (location, false, Some("nbg1"), Some("nbg1"), "equal"),
        (location, false, Some("nbg1"), Some("nbg1-dc1"), "nbg1"),
        (location, false, Some("rack-7"), Some("rack-7"), "stays"),
        (location, false, Some("rack-7"), Some("nbg1"), "stays"),
        (location, false, Some("fsn1"), Some("fsn1"), "stays"),
        (location, false, Some(""), Some(""), "stays"),
        (location, false, None, Some("nbg1-dc1"), "stays"),
        (location, false, None, Some("nbg1"), "stays"),
        (location, false, None, None, "stays"),
        (datacenter, false, Some("nbg1"), Some("nbg1"), "nbg1-dc1"),
        (datacenter, false, Some("nbg1-dc1"), Some("nbg1-dc1"), "equal"),
        (None, false, Some("nbg1-dc1"), Some("nbg1-dc1"), "nbg1"),
        (location, true, Some("nbg1"), Some("nbg1"), "-"),
        (None, true, Some("nbg1-dc1"), Some("nbg1-dc1"), "-"),
        (location, true, Some("rack-7"), Some("rack-7"), "stays"),
        (location, true, None, Some("nbg1"), "stays"),
        (location, true, None, None, "equal"),
    ];
    for (setting, is_off, beta, stable, expected) in cases {
        let case = format!("{setting:?} {is_off} {beta:?} {stable:?}");
        let node = with_zone(beta, stable, &json!({}));
        let plan = plan_one(&node, &cloud(setting, is_off));
        assert_eq!(outcome(&plan), expected, "{case}");
        // The finding says that the label differs, but only when a setting has chosen the label.
        let is_reported = reasons(&plan).contains(&Reason::ZoneLabelDiffers);
        let is_to_change = !["equal", "stays"].contains(&expected);
        assert_eq!(is_reported, setting.is_some() && is_to_change, "{case}");
        // A sync gives the stable label the value of the beta label, whatever the setting is.
        let without = plan_one(&node, &cloud(None, false));
        assert_eq!(plan.changes, without.changes, "{case}");
    }
}

#[test]
fn a_node_that_is_not_ours_or_not_initialised_is_not_compared() {
    let taints = json!([{ "key": UNINITIALIZED, "effect": "NoSchedule" }]);
    let zone = Some("nbg1-dc1");
    let cloud = cloud(Some(ZoneLabel::Location), false);
    for (what, extra) in [
        ("it is not initialised", json!({ "spec": { "taints": taints } })),
        ("its provider ID is foreign", json!({ "spec": { "providerID": "k3s://a" } })),
        ("its provider ID names no server", json!({ "spec": { "providerID": "memory://x" } })),
        ("its server is not in the list", json!({ "spec": { "providerID": "memory://2" } })),
        ("it has no provider ID", json!({ "spec": { "providerID": "" } })),
        (
            "it is being deleted",
            json!({ "metadata": { "deletionTimestamp": "2026-11-27T10:00:00Z" } }),
        ),
    ] {
        let plan = plan_one(&with_zone(zone, zone, &extra), &cloud);
        assert_eq!(outcome(&plan), "not compared", "{what}");
    }
    // Another node is older and has the server.
    let age =
        json!({ "metadata": { "creationTimestamp": "2026-11-27T10:00:00Z", "uid": "second" } });
    let mut nodes = vec![with_zone(zone, zone, &age)];
    nodes.push(node(
        "b",
        json!({
            "metadata": { "creationTimestamp": "2026-11-26T10:00:00Z" },
            "spec": { "providerID": "memory://1" },
        }),
    ));
    assert_eq!(outcome(&plan_all(&nodes, &cloud)[0]), "not compared");
    // The place of the server is not known.
    let mut nowhere = cloud;
    nowhere.instances[0].location = "".into();
    for zone in ["", "nbg1"] {
        let plan = plan_one(&with_zone(Some(zone), Some("other"), &json!({})), &nowhere);
        assert_eq!(outcome(&plan), "stays", "{zone:?}");
    }
}
