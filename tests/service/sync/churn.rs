//! Nodes come, go, and fall silent.

use crate::common::{self, on, wait_until};
use crate::sync::SERVICES;
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, World, targets, text};
use sandbox::faults::Effect;
use serde_json::{Value, json};

fn set_ready(world: &World, ready: bool) {
    for node in world.nodes() {
        world.edit_node(&text(&node["metadata"]["name"]), |node| {
            let conditions = node["status"]["conditions"].as_array_mut().unwrap();
            let is_ready = |condition: &&mut Value| condition["type"] == "Ready";
            let condition = conditions.iter_mut().find(is_ready).unwrap();
            condition["status"] = json!(if ready { "True" } else { "False" });
        });
    }
}

#[test]
fn thirty_nodes_that_flap_cost_no_write() {
    let world = World::new(30);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[("type", "lb21")], &[80]);
    assert_eq!(targets(&world.up("web")).len(), 30);
    world.ticks(2);
    let mark = world.mark();
    for ready in [false, true, false, true] {
        set_ready(&world, ready);
        world.ticks(3);
    }
    assert_eq!(world.writes(mark), Vec::<String>::new());
}

/// The node is deleted just before a plan is made, and exists again in the next list of nodes, which is then the
/// same as before.
#[test]
fn a_node_that_is_replaced_between_two_polls_is_a_target_again() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80]);
    assert_eq!(targets(&world.up("web")).len(), 2);
    let mut node = world.node("worker-2");
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        node["metadata"].as_object_mut().unwrap().remove(field);
    }
    let goes = common::before(&world.sandbox, |world| world.delete_node("worker-2"));
    world.faults().add(on(SERVICES, goes).times(1));
    let comes = common::before(&world.sandbox, move |world| {
        world.cluster().create("nodes", None, node.clone());
    });
    let comes = on("POST /v1/load_balancers/*/actions/remove_target", comes);
    world.faults().add(comes.times(1));
    world.annotate("web", "algorithm-type", Some("least_connections"));
    wait_until("the node's end as a target, and its return", || {
        let writes = world.cloud_writes(0);
        let last = |end: &str| writes.iter().rposition(|write| write.ends_with(end));
        last("/remove_target").is_some_and(|removed| last("/add_target") > Some(removed))
    });
}

#[test]
fn a_new_node_becomes_a_target_of_each_of_twenty_load_balancers() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    for n in 0..20 {
        world.create(&format!("web-{n}"), &[], &[80]);
    }
    for n in 0..20 {
        world.up(&format!("web-{n}"));
    }
    world.ticks(2);
    let mark = world.mark();
    let server = world.join_node("late");
    wait_until("twenty targets", || {
        world.balancers().iter().all(|one| targets(one).contains(&server))
    });
    world.ticks(3);
    let mut writes = world.cloud_writes(mark);
    writes.sort();
    writes.dedup();
    assert_eq!(writes.len(), 20, "{writes:#?}");
    assert_eq!(world.cloud_writes(mark).len(), 20);
    let is_add = |write: &String| write.ends_with("/actions/add_target");
    assert!(writes.iter().all(is_add), "{writes:#?}");
    let calls = world.cloud_calls(mark);
    assert!(calls.len() <= 45, "{} calls: {calls:#?}", calls.len());
}

#[test]
fn a_server_that_is_deleted_before_its_node_is_no_failure() {
    let world = World::new(2);
    let daemon = world.daemon(&[OFTEN]);
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    let mark = world.mark();
    let stays = world.server_id("worker-1");
    world.delete_server("worker-2");
    // The node still exists, and must exist for more than a minute and a resync. No call is refused.
    world.ticks(15);
    assert!(world.has_node("worker-2"));
    let writes = world.cloud_writes(mark);
    assert_eq!(writes, Vec::<String>::new(), "{}", daemon.log());
    assert_eq!(world.event_messages("web", "UpdateLoadBalancerFailed"), [""; 0]);
    // A load balancer that is created meanwhile gets the other targets at once.
    let other = world.create("other", &[], &[80]);
    world.up("other");
    world.wait_for_event("other", "EnsuredLoadBalancer", &[]);
    assert_eq!(world.cloud_writes(mark), ["POST /load_balancers"]);
    assert_eq!(targets(&world.of_uid(&other).unwrap()), [stays]);
    world.delete_and_wait("other");
    world.kubelets().expire();
    wait_until("the node's end", || !world.has_node("worker-2"));
    world.ticks(3);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [stays]);
    let mark = world.mark();
    world.change_algorithm("web");
    world.ticks(3);
    assert_eq!(world.cloud_writes(mark).len(), 1);
}

/// The last list of servers is older than the deletion. The API refuses the creation, which is planned again with
/// a new list.
#[test]
fn a_server_that_was_deleted_since_the_last_list_is_left_out_of_a_creation() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    // Servers are listed for the first load balancer.
    world.create("first", &[], &[80]);
    world.up("first");
    world.ticks(2);
    let stays = world.server_id("worker-1");
    world.delete_server("worker-2");
    let mark = world.mark();
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_event("web", "EnsuredLoadBalancer", &[]);
    world.ticks(2);
    // The first one is refused. No target is added one by one.
    assert_eq!(world.cloud_writes(mark), ["POST /load_balancers"; 2]);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [stays]);
    assert_eq!(world.event_messages("web", "SyncLoadBalancerFailed"), [""; 0]);
}

#[test]
fn an_old_target_stays_until_a_new_target_is_healthy() {
    let world = World::new(2);
    let daemon = world.daemon(&[NO_RESYNC]);
    let of = |node: &str| format!("kubernetes.io/hostname={node}");
    let uid = world.create("web", &[("node-selector", &of("worker-1"))], &[80]);
    world.up("web");
    let [old, new] = ["worker-1", "worker-2"].map(|node| world.server_id(node));
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [old]);
    let refuses = Effect::hetzner_error(422, "missing_ipv4", "it has no address");
    let refuses = on("/v1/load_balancers/*/actions/add_target", refuses).times(2);
    let refuses = world.faults().add(refuses);
    let mark = world.mark();
    world.annotate("web", "node-selector", Some(&of("worker-2")));
    let says = ["it has no address", "remove target worker-1: not done yet"];
    world.wait_for_event("web", "UpdateLoadBalancerFailed", &says);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [old]);
    // Then the target is accepted.
    wait_until("the new target alone", || targets(&world.of_uid(&uid).unwrap()) == [new]);
    assert_eq!(world.faults().hits(refuses), 2);
    let add = world.cloud_writes(mark);
    let removed = add.iter().position(|call| call.ends_with("remove_target"));
    assert_eq!(removed, Some(3), "{add:#?}");
    let log = daemon.log();
    let warned = log.lines().filter(|line| line.contains("WARN")).count();
    assert_eq!(warned, 1, "one line for one trouble:\n{log}");
}

/// The health check ends the traffic of such a node (KEP-3836). A removal from the targets would break its connections.
#[test]
fn a_node_that_the_autoscaler_will_remove_is_a_target_until_it_is_deleted() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    world.ticks(1);
    let both = targets(&world.of_uid(&uid).unwrap());
    let mark = world.mark();
    let key = "ToBeDeletedByClusterAutoscaler";
    world.edit_node("worker-2", |node| {
        node["spec"]["taints"] = json!([{"key": key, "value": "1", "effect": "NoSchedule"}]);
    });
    world.ticks(4);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    world.change_algorithm("web");
    world.ticks(2);
    assert_eq!(world.cloud_writes(mark).len(), 1);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), both);
    // A load balancer that is created meanwhile does not get the node.
    let other = world.create("other", &[], &[80]);
    world.up("other");
    assert_eq!(targets(&world.of_uid(&other).unwrap()), [world.server_id("worker-1")]);
    world.delete_node("worker-2");
    let left = world.server_id("worker-1");
    wait_until("one target", || targets(&world.of_uid(&uid).unwrap()) == [left]);
}

#[test]
fn a_service_without_any_node_gets_an_address_and_a_warning() {
    let world = World::new(0);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_event("web", "UnAvailableLoadBalancer", &["no available nodes"]);
    let server = world.join_node("first");
    wait_until("its target", || targets(&world.of_uid(&uid).unwrap()) == [server]);
}
