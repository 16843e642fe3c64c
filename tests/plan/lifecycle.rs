//! The lifecycle controller's plan as a table, and what holds for any node and any facts.

use crate::common::{fake_provider, objects, random};
use ccm::controllers::NodeChange;
use ccm::controllers::lifecycle::{
    Fact, Facts, LifecyclePlan, OUT_OF_SERVICE, OffReads, OffServers, SHUTDOWN, plan,
};
use ccm::kube::KubeNode;
use ccm::provider::{InstanceId, Reason, Severity};
use fake_provider::FakeProvider;
use random::Random;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

fn plan_one(node: &KubeNode, fact: Option<Fact>, guard: bool) -> LifecyclePlan {
    let never = OffServers { after: None, ..long_off() };
    plan_with(node, fact, &never, guard)
}

fn plan_with(node: &KubeNode, fact: Option<Fact>, off: &OffServers, guard: bool) -> LifecyclePlan {
    let facts = Facts::from_iter(fact.map(|fact| (InstanceId::Cloud(1), fact)));
    plan(node, &facts, off, &FakeProvider::default(), guard)
}

fn exists(is_off: bool) -> Fact {
    Fact::Exists { is_off, is_locked: false }
}

const AFTER: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

/// Returns what must be known so that the node `n` gets the taint `out-of-service`, and only just.
fn long_off() -> OffServers {
    let first = Instant::now();
    let now = first + AFTER;
    let reads = OffReads {
        first,
        first_unlocked: Some(now - 60 * SECOND),
        last: now,
        for_taint: Some((now - 8 * SECOND, String::new())),
    };
    OffServers {
        after: Some(AFTER),
        nodes: 4,
        ready: 2,
        now,
        last_taint: Some(now - 60 * SECOND),
        reads: Arc::new(HashMap::from([("uid-n".to_owned(), reads)])),
    }
}

fn gone(others_are_visible: bool) -> Fact {
    Fact::Gone { others_are_visible }
}

fn change(plan: &LifecyclePlan) -> &'static str {
    match plan.changes.as_slice() {
        [] => "-",
        [NodeChange::AddShutdownTaint { .. }] => "taint",
        [NodeChange::RemoveShutdownTaint { .. }] => "untaint",
        [NodeChange::AddOutOfServiceTaint { .. }] => "out of service",
        [NodeChange::RemoveOutOfServiceTaint { .. }] => "in service",
        [NodeChange::RemoveOutOfServiceTaint { .. }, NodeChange::RemoveShutdownTaint { .. }] => {
            "in service, untaint"
        }
        [NodeChange::DeleteNode { .. }] => "delete",
        others => panic!("{others:?}"),
    }
}

#[test]
fn every_state_of_a_node_and_its_server_has_its_plan() {
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
    let is_off = Some(exists(true));
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
            Some(exists(true)),
            Some(exists(false)),
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

/// Adds a taint `out-of-service` with this value to the node.
fn with_value(node: &mut KubeNode, value: &str) {
    let taint = json!({ "key": OUT_OF_SERVICE, "value": value, "effect": "NoExecute" });
    node.spec.taints.push(serde_json::from_value(taint).unwrap());
}

fn reads(off: &mut OffServers) -> &mut OffReads {
    Arc::make_mut(&mut off.reads).get_mut("uid-n").unwrap()
}

/// Rules C1 to C4. Each case differs in one point from the case in which the node gets the taint.
#[test]
fn a_node_gets_the_taint_out_of_service_only_when_every_rule_is_fulfilled() {
    type Differs = fn(&mut KubeNode, &mut OffServers);
    // What differs → what is done, and the number of the rule that the finding names.
    #[rustfmt::skip] // A case is a line.
    let cases: [(&str, Differs, &str, u32); 27] = [
        ("nothing", |_, _| {}, "out of service", 0),
        ("C1: off", |_, off| off.after = None, "-", 0),
        ("C2: the node has ours", |node, _| with_value(node, "ccm-from-scratch"), "-", 0),
        ("C2: the node has another one", |node, _| with_value(node, "nodeshutdown"), "-", 0),
        ("C2: the node has one without a value", |node, _| with_value(node, ""), "-", 0),
        ("C3 (1): a dedicated server", |node, _| node.spec.provider_id = "metal://1".into(), "-", 0),
        ("C3 (1): no taint shutdown", |node, _| node.spec.taints.truncate(1), "taint", 0),
        ("C3 (2): Ready is False", |node, _| node.status.conditions[1].status = "False".into(), "-", 2),
        ("C3 (2): Ready is True", |node, _| node.status.conditions[1].status = "True".into(), "untaint", 0),
        ("C3 (2): Ready is missing", |node, _| node.status.conditions.truncate(1), "-", 2),
        ("C3 (3): one second less", |_, off| reads(off).first += SECOND, "-", 0),
        ("C3 (3): longer", |_, off| reads(off).first -= SECOND, "out of service", 0),
        ("C3 (3): no read", |_, off| off.reads = Arc::default(), "-", 0),
        ("C3 (3): another node's reads", |node, _| node.metadata.uid = "uid-new".into(), "-", 0),
        ("C3 (4): locked at the last read", |_, off| reads(off).first_unlocked = None, "-", 4),
        ("C3 (4): locked 59 s ago", |_, off| *reads(off).first_unlocked.as_mut().unwrap() += SECOND, "-", 4),
        ("C3 (4): not read in this tick", |_, off| reads(off).for_taint = None, "-", 0),
        ("C3 (4): the read is too old", |_, off| reads(off).for_taint.as_mut().unwrap().0 -= SECOND, "-", 0),
        ("C3 (4): an action runs", |_, off| reads(off).for_taint.as_mut().unwrap().1 = "action 7 runs".into(), "-", 4),
        ("C3 (5): a node more is not ready", |_, off| off.ready = 1, "-", 5),
        ("C3 (5): a node more is ready", |_, off| off.ready = 3, "out of service", 0),
        ("C3 (5): half of three", |_, off| (off.nodes, off.ready) = (3, 1), "-", 5),
        ("C3 (5): a single node", |_, off| (off.nodes, off.ready) = (1, 0), "-", 5),
        ("C3 (6): a node got it 59 s ago", |_, off| *off.last_taint.as_mut().unwrap() += SECOND, "-", 6),
        ("C3 (6): no node got it yet", |_, off| off.last_taint = None, "out of service", 0),
        ("C6: the node is being deleted", |node, _| node.metadata.deletion_timestamp = Some("2026-11-20T10:00:00Z".into()), "-", 0),
        ("C6: no server of ours", |node, _| node.spec.provider_id = "elsewhere://1".into(), "-", 0),
    ];
    for (case, differ, expected, rule) in cases {
        let (mut node, mut off) = (node("memory://1", "Unknown", true), long_off());
        differ(&mut node, &mut off);
        let mut facts = Facts::from([(InstanceId::Cloud(1), exists(true))]);
        facts.insert(InstanceId::Dedicated(1), exists(true));
        let plan = plan(&node, &facts, &off, &FakeProvider::default(), true);
        assert_eq!(change(&plan), expected, "{case}");
        let held: Vec<&str> = plan.findings.iter().map(|finding| &*finding.message).collect();
        match (rule, &held[..]) {
            (0, []) => {}
            (rule, [message]) => {
                assert_eq!(plan.findings[0].reason, Reason::OutOfServiceHeld, "{case}");
                let named = format!("because rule {rule} is not fulfilled");
                assert!(message.contains(&named), "{case}: {message}");
            }
            other => panic!("{case}: {other:?}"),
        }
        assert_eq!(plan.obstacle, None, "{case}: the node does not count as failed");
    }
    // What was read decides, whatever the memory says.
    for (fact, expected) in [
        (Some(exists(false)), "-"),
        (Some(Fact::Unclear("?".into())), "-"),
        (Some(gone(true)), "delete"),
        (None, "-"),
    ] {
        let node = node("memory://1", "Unknown", true);
        let plan = plan_with(&node, fact.clone(), &long_off(), true);
        assert_eq!(change(&plan), expected, "{fact:?}");
    }
}

/// Rule C5, which holds also while C is off.
#[test]
fn our_taint_out_of_service_is_removed_and_taints_of_others_stay() {
    let unclear = || Some(Fact::Unclear("?".into()));
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("ccm-from-scratch", "memory://1", "Unknown", Some(exists(true)), "-"),
        ("ccm-from-scratch", "memory://1", "Unknown", Some(exists(false)), "in service"),
        ("ccm-from-scratch", "memory://1", "False", Some(exists(false)), "in service"),
        ("ccm-from-scratch", "memory://1", "Unknown", unclear(), "-"),
        ("ccm-from-scratch", "memory://1", "Unknown", None, "-"),
        ("ccm-from-scratch", "memory://1", "Unknown", Some(gone(true)), "delete"),
        ("ccm-from-scratch", "memory://1", "True", None, "in service, untaint"),
        ("ccm-from-scratch", "metal://1", "True", None, "in service, untaint"),
        ("ccm-from-scratch", "metal://1", "Unknown", Some(exists(false)), "-"),
        ("ccm-from-scratch", "elsewhere://1", "True", None, "-"),
        ("nodeshutdown", "memory://1", "True", None, "untaint"),
        ("nodeshutdown", "memory://1", "Unknown", Some(exists(false)), "-"),
        ("", "memory://1", "Unknown", Some(exists(false)), "-"),
    ];
    for (value, provider_id, ready, fact, expected) in cases {
        for after in [None, Some(AFTER)] {
            let case = format!("{value:?} {provider_id} Ready={ready} {fact:?} {after:?}");
            let mut node = node(provider_id, ready, true);
            with_value(&mut node, value);
            let id = match provider_id {
                "metal://1" => InstanceId::Dedicated(1),
                _ => InstanceId::Cloud(1),
            };
            let facts = Facts::from_iter(fact.clone().map(|fact| (id, fact)));
            let off = OffServers { after, ..long_off() };
            let plan = plan(&node, &facts, &off, &FakeProvider::default(), true);
            assert_eq!(change(&plan), expected, "{case}");
        }
    }
}

#[test]
fn the_taint_out_of_service_comes_beside_other_taints_and_leaves_them() {
    let before = node("memory://1", "Unknown", true);
    let plan = plan_with(&before, Some(exists(true)), &long_off(), true);
    let Some(NodeChange::AddOutOfServiceTaint { taints, .. }) = plan.changes.first() else {
        panic!("{plan:?}")
    };
    assert_eq!(taints[..2], before.spec.taints[..]);
    let own = (&*taints[2].key, taints[2].value.as_deref(), &*taints[2].effect);
    assert_eq!((own, taints.len()), ((OUT_OF_SERVICE, Some("ccm-from-scratch"), "NoExecute"), 3));

    let mut ready = node("memory://1", "True", true);
    with_value(&mut ready, "ccm-from-scratch");
    with_value(&mut ready, "nodeshutdown");
    let plan = plan_one(&ready, None, true);
    let [
        NodeChange::RemoveOutOfServiceTaint { taints: first },
        NodeChange::RemoveShutdownTaint { taints: then },
    ] = &plan.changes[..]
    else {
        panic!("{plan:?}")
    };
    let keys = |taints: &[ccm::kube::Taint]| {
        Vec::from_iter(taints.iter().map(|taint| taint.key.as_str().to_owned()))
    };
    assert_eq!(keys(first), ["mine", SHUTDOWN, OUT_OF_SERVICE]);
    assert_eq!(keys(then), ["mine", OUT_OF_SERVICE], "each write removes what it says");
}
