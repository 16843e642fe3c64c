//! Nodes with pods: which of them become targets when not all nodes fit, and which targets are exchanged for them.

use crate::load_balancer::departing::{states, steps, world};
use crate::load_balancer::support::{World, environment};
use ccm::provider::{
    EXCHANGES_AT_MOST, LeftOutState, PodNodes, PodsOnNode, Reason, TrafficPolicy, WhyKept,
};
use std::sync::Arc;

const PREFER: &str = "prefer-nodes-with-pods";

/// The name of the rule, the nodes, the greatest number of targets, the changes, and the nodes that are left out, or stay
/// targets although they run no pods.
///
/// Each word describes a node, see `departing`. In addition `p` is a node with a ready pod, `s` a node with a pod that is
/// about to end and serves, and `e` a node whose pod ended within the last minute.
type Case = (&'static str, &'static str, usize, &'static str, &'static str);

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    ("B1: while all nodes fit, nothing changes", "t tp t p", 4, "+4", ""),
    ("B2: on a new load balancer nodes with ready pods come first", "- - sp p - p", 3, "+3 +4 +6", "1 limit, 2 limit, 5 limit"),
    ("B2: the room is filled with other nodes by name", "- - - p", 3, "+4 +1 +2", "3 limit"),
    ("B2: a pod that is about to end does not count for a new target", "- - s", 2, "+1 +2", "3 limit"),
    ("B2: present targets stay before new nodes without pods", "- t t t", 3, "", "1 limit"),
    ("B2: departing nodes come last", "- t pd9 -", 2, "+1", "3 departing, 4 limit"),
    ("B3: a target without pods is exchanged, the last by name first", "tp t t p", 3, "-3 +4", "3 exchanged"),
    ("B3: each node with a ready pod takes a place", "tp t t p p", 3, "-2 +4 -3 +5", "3 exchanged, 2 exchanged"),
    ("B3: a target with a pod that serves stays", "tp ts t p p", 3, "-3 +4", "5 limit, 3 exchanged"),
    ("B3: a target whose pod ended within the last minute stays", "tp te te p", 3, "", "4 limit, 3 stays Recent"),
    ("B3: a target that has had no pods for longer goes first", "tp t te p", 3, "-2 +4", "2 exchanged"),
    ("B3: nothing is exchanged for a node without a ready pod", "tp t t s", 3, "", "4 limit"),
    ("B3: without any target with a ready pod, one is exchanged at once", "te te te p p", 3, "-3 +4", "5 limit, 3 exchanged, 2 stays Recent"),
    ("B3: targets with pods that are about to end stay even then", "ts ts p", 2, "", "3 limit"),
    ("B3: a departing node is not exchanged for another", "tp t pd9", 2, "", "3 departing"),
    ("B3: a departing target goes first", "tp td1 t t p", 4, "-2 +5", "2 waits 59, 2 exchanged"),
    ("B4: five targets are exchanged in a minute", "tp t t t t t t p p p p p p", 7, "-3 +8 -4 +9 -5 +10 -6 +11 -7 +12", "13 limit, 7 exchanged, 6 exchanged, 5 exchanged, 4 exchanged, 3 exchanged, 2 stays Pace"),
    ("S5: the only healthy target of a port stays", "tp th p", 2, "", "3 limit, 2 stays Health"),
    ("S5: a healthy target goes while another one stays", "tph th p", 2, "-2 +3", "2 exchanged"),
    ("S5: as many healthy targets stay as leave", "tph th th p p", 3, "-3 +4", "5 limit, 3 exchanged, 2 stays Health"),
];

fn prepared(nodes: &str, most: usize) -> World {
    let mut world = world(nodes, most, |world| {
        world.service.traffic_policy = TrafficPolicy::Local;
        world.service.health_check_node_port = Some(30999);
        world.set_one(PREFER, "true");
    });
    let name = (world.service.namespace.clone(), world.service.name.clone());
    world.cluster.history.pods = Arc::new(PodNodes { services: vec![name], ..PodNodes::default() });
    for (word, node) in nodes.split(' ').zip(world.nodes.clone()) {
        let bit = |letters: &str| u64::from(letters.chars().any(|letter| word.contains(letter)));
        let pods = PodsOnNode { ready: bit("p"), serving: bit("ps"), recent: bit("e") };
        pods_of(&mut world).nodes.insert(node.name, pods);
    }
    world
}

fn pods_of(world: &mut World) -> &mut PodNodes {
    Arc::make_mut(&mut world.cluster.history.pods)
}

#[test]
fn each_rule_about_nodes_with_pods_decides_its_case() {
    for (rule, nodes, most, expected, left) in CASES {
        let mut world = prepared(nodes, *most);
        if nodes.contains('d') {
            world.set_one("departing-delay", "60s");
        }
        let plan = world.plan();
        assert_eq!(states(&plan), *left, "{rule}");
        assert_eq!(steps(plan), *expected, "{rule}");
    }
}

/// The nodes of a case in which two targets would be exchanged.
const NODES: &str = "tp t t p p";

/// The change of the world, the reason of the finding, and the Services that are asked for.
type OffCase = (&'static str, fn(&mut World), Option<(Reason, &'static str)>, usize);

#[rustfmt::skip] // A case is a line.
const OFF: &[OffCase] = &[
    ("no annotation", |it| it.unset(PREFER), None, 0),
    ("the annotation says no", |it| it.set_one(PREFER, "false"), None, 0),
    ("policy Cluster", |it| it.service.traffic_policy = TrafficPolicy::Cluster, Some((Reason::AnnotationWithoutEffect, "externalTrafficPolicy: Local")), 0),
    ("not read yet", |it| it.cluster.history.pods = Arc::default(), None, 1),
    ("refused", |it| { let name = it.cluster.history.pods.services[0].clone(); it.cluster.history.pods = Arc::new(PodNodes { unread: [(name, "no right".to_owned())].into(), ..PodNodes::default() }); }, Some((Reason::EndpointsUnreadable, "no right")), 1),
    ("an endpoint without a node", |it| pods_of(it).unplaced = 1, None, 1),
];

#[test]
fn without_knowledge_or_a_wish_targets_are_those_of_today() {
    for (what, change, finding, asked) in OFF {
        let mut world = prepared(NODES, 3);
        change(&mut world);
        let plan = world.plan();
        assert_eq!(plan.pods_of.len(), *asked, "{what}");
        assert_eq!(states(&plan), "4 limit, 5 limit", "{what}");
        let such = plan.findings.iter().find(|found| {
            [Reason::AnnotationWithoutEffect, Reason::EndpointsUnreadable].contains(&found.reason)
        });
        assert_eq!(such.map(|found| found.reason), finding.map(|(reason, _)| reason), "{what}");
        if let Some((found, (_, text))) = such.zip(*finding) {
            assert!(found.message.contains(text), "{what}: {}", found.message);
        }
    }
}

#[test]
fn exchanges_have_limits_in_a_minute_and_in_an_hour() {
    let because = |change: fn(&mut World)| {
        let mut world = prepared(NODES, 3);
        change(&mut world);
        states(&world.plan())
    };
    let stays = |why: WhyKept| format!("4 limit, 5 limit, 3 stays {why:?}, 2 stays {why:?}");
    let of_this = |it: &World| it.state.balancers[0].id;
    let all = because(|it| {
        it.cluster.history.exchanged.insert(9999, EXCHANGES_AT_MOST);
    });
    assert_eq!(all, stays(WhyKept::Pace));
    let mut world = prepared(NODES, 3);
    let id = of_this(&world);
    world.cluster.history.exchanged.insert(id, 4);
    assert_eq!(states(&world.plan()), "5 limit, 3 exchanged, 2 stays Pace");
    let mut world = prepared(NODES, 3);
    let id = of_this(&world);
    for node in ["worker-02", "worker-03"] {
        world.cluster.history.removed_often.insert((id, node.to_owned()));
    }
    assert_eq!(states(&world.plan()), stays(WhyKept::Often));
    assert_eq!(because(|it| it.state.is_budget_low = true), stays(WhyKept::Budget));
    assert_eq!(because(|it| pods_of(it).new = 1), stays(WhyKept::Recent));
}

/// An exchange that gives a Service its only target with a ready pod does not wait for the budget.
#[test]
fn a_service_without_a_target_with_pods_does_not_wait() {
    let mut world = prepared("t t t p p", 3);
    world.state.is_budget_low = true;
    pods_of(&mut world).new = 1;
    let plan = world.plan();
    assert_eq!(states(&plan), "5 limit, 3 exchanged, 2 stays Recent");
    let removals = counted(plan);
    assert_eq!(removals, [false], "it counts for no limit");
}

/// Returns for each exchange of the plan whether it counts for the limit of exchanges in a minute.
fn counted(plan: ccm::provider::LoadBalancerPlan) -> Vec<bool> {
    let changes = crate::load_balancer::support::changes(plan);
    let soft = changes.iter().filter_map(|change| change.soft_removal());
    soft.map(|removal| removal.is_exchange).collect()
}

#[test]
fn the_setting_is_the_default_and_the_message_says_how_many_nodes_with_pods_are_left_out() {
    let mut world = prepared("tp ts ts p p", 3);
    world.unset(PREFER);
    world.defaults.prefer_nodes_with_pods =
        Some(environment("HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS", true));
    let plan = world.plan();
    let left: Vec<LeftOutState> = plan.left_out.iter().map(|node| node.state).collect();
    assert_eq!(left, [LeftOutState::Limit, LeftOutState::Limit]);
    let full = plan.findings.iter().find(|found| found.reason == Reason::MaxTargetsReached);
    let message = &full.expect("the finding").message;
    assert!(message.contains("(ready pods of the Services run on 2 of these nodes)"), "{message}");
    let shown = plan.with_pods.iter().filter(|node| node.is_target).count();
    assert_eq!((plan.with_pods.len(), shown), (5, 3));
}
