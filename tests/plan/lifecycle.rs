//! The lifecycle controller's plan as a table, and what holds for any node and any facts.

use crate::common::{fake_provider, objects, random};
use ccm::controllers::lifecycle::{Fact, Facts, SHUTDOWN, plan};
use ccm::controllers::{NodeChange, Plan};
use ccm::kube::KubeNode;
use ccm::provider::{InstanceId, Reason, Severity};
use fake_provider::FakeProvider;
use random::Random;
use serde_json::json;

fn node(provider_id: &str, ready: &str, tainted: bool) -> KubeNode {
    let others =
        json!({ "key": "mine", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" });
    let mut taints = vec![others, json!({ "key": SHUTDOWN, "effect": "NoSchedule" })];
    taints.truncate(1 + usize::from(tainted));
    let mut conditions = vec![json!({ "type": "MemoryPressure", "status": "True" })];
    if !ready.is_empty() {
        conditions.push(json!({ "type": "Ready", "status": ready }));
    }
    let spec = json!({ "providerID": provider_id, "taints": taints });
    let extra = json!({ "spec": spec, "status": { "conditions": conditions } });
    objects::node("n", extra)
}

fn plan_one(node: &KubeNode, fact: Option<Fact>, guard: bool) -> Plan<NodeChange> {
    let facts = Facts::from_iter(fact.map(|fact| (InstanceId::Cloud(1), fact)));
    plan(node, &facts, &FakeProvider::default(), guard)
}

fn gone(others_are_visible: bool) -> Fact {
    Fact::Gone { others_are_visible }
}

fn change(plan: &Plan<NodeChange>) -> &'static str {
    match plan.changes.as_slice() {
        [] => "-",
        [NodeChange::AddShutdownTaint { .. }] => "taint",
        [NodeChange::RemoveShutdownTaint { .. }] => "untaint",
        [NodeChange::DeleteNode { .. }] => "delete",
        others => panic!("{others:?}"),
    }
}

#[test]
fn every_state_of_a_node_and_its_server_has_its_plan() {
    let exists = |is_off| Fact::Exists { is_off };
    let unclear = || Fact::Unclear("time-out".into());
    // Provider ID, Ready, tainted, what is known, guard → what is done.
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("memory://1", "True", false, None, true, "-"),
        ("memory://1", "True", true, None, true, "untaint"),
        ("memory://1", "True", false, Some(gone(true)), true, "-"),
        ("memory://1", "False", false, None, true, "-"),
        ("memory://1", "False", false, Some(exists(false)), true, "-"),
        ("memory://1", "False", false, Some(exists(true)), true, "taint"),
        ("memory://1", "False", true, Some(exists(true)), true, "-"),
        ("memory://1", "Unknown", false, Some(exists(true)), true, "taint"),
        ("memory://1", "", false, Some(exists(true)), true, "taint"),
        ("memory://1", "False", true, Some(exists(false)), true, "-"),
        ("memory://1", "False", false, Some(unclear()), true, "-"),
        ("memory://1", "False", false, Some(unclear()), false, "-"),
        ("memory://1", "False", false, Some(gone(true)), true, "delete"),
        ("memory://1", "Unknown", true, Some(gone(true)), true, "delete"),
        ("memory://1", "", false, Some(gone(true)), true, "delete"),
        ("memory://1", "False", false, Some(gone(false)), true, "-"),
        ("memory://1", "False", false, Some(gone(false)), false, "delete"),
        ("memory://one", "False", false, Some(gone(true)), false, "-"),
        ("elsewhere://1", "False", false, Some(gone(true)), false, "-"),
        ("elsewhere://1", "True", true, None, true, "-"),
        ("", "False", false, Some(gone(true)), false, "-"),
        ("", "False", false, Some(exists(true)), true, "-"),
    ];
    for (provider_id, ready, tainted, fact, guard, expected) in cases {
        let case =
            format!("{provider_id:?} Ready={ready:?} tainted={tainted} {fact:?} guard={guard}");
        let plan = plan_one(&node(provider_id, ready, tainted), fact, guard);
        assert_eq!(change(&plan), expected, "{case}");
    }
}

#[test]
fn a_deletion_that_the_guard_prevents_is_reported() {
    let plan = plan_one(&node("memory://1", "False", false), Some(gone(false)), true);
    assert_eq!(plan.obstacle.unwrap().reason, Reason::PossibleNodeDeletion);
}

/// A node that nothing can be decided about has failed, and somebody should know.
#[test]
fn an_unclear_server_prevents_a_deletion_with_a_warning() {
    let unclear = Fact::Unclear("HTTP status 500".into());
    let plan = plan_one(&node("memory://1", "False", false), Some(unclear), true);
    let obstacle = plan.obstacle.clone().unwrap();
    assert_eq!(obstacle.reason, Reason::InstanceLookupFailed);
    assert_eq!(obstacle.severity, Severity::Warning);
    assert_eq!(plan.proposal().obstacle, Some(obstacle.message));
}

#[test]
fn taints_of_others_stay_as_they_are() {
    let mine = node("memory://1", "True", false).spec.taints;
    let is_off = Some(Fact::Exists { is_off: true });
    let off = plan_one(&node("memory://1", "False", false), is_off, true);
    let Some(NodeChange::AddShutdownTaint { taints }) = off.changes.first() else {
        panic!("{off:?}")
    };
    assert_eq!(taints[..1], mine[..]);
    let added = (&*taints[1].key, &*taints[1].effect);
    assert_eq!((added, taints.len()), ((SHUTDOWN, "NoSchedule"), 2));
    let ready = plan_one(&node("memory://1", "True", true), None, true);
    let Some(NodeChange::RemoveShutdownTaint { taints }) = ready.changes.first() else {
        panic!("{ready:?}")
    };
    assert_eq!(*taints, mine);
}

#[test]
fn a_node_is_deleted_only_when_it_is_ours_not_ready_and_its_server_certainly_does_not_exist() {
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let own = "memory://1";
        let provider_id = *random.pick(&[own, own, "memory://x", "elsewhere://1", ""]);
        let ready = *random.pick(&["True", "False", "Unknown", ""]);
        let mut node = node(provider_id, ready, random.percent(50));
        if random.percent(20) {
            node.metadata.deletion_timestamp = Some("2026-11-20T10:00:00Z".into());
        }
        let facts = [
            None,
            Some(gone(true)),
            Some(gone(false)),
            Some(Fact::Exists { is_off: true }),
            Some(Fact::Exists { is_off: false }),
            Some(Fact::Unclear("?".into())),
        ];
        let (fact, guard) = (random.pick(&facts).clone(), random.percent(70));
        let plan = plan_one(&node, fact.clone(), guard);
        let may_go = provider_id == "memory://1"
            && ready != "True"
            && node.metadata.deletion_timestamp.is_none()
            && (fact == Some(gone(true)) || fact == Some(gone(false)) && !guard);
        assert_eq!(change(&plan) == "delete", may_go, "seed {seed}: {plan:?}");
    }
}
