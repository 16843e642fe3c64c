//! A node that will stop soon leaves the targets after a delay, and comes back by itself.

use crate::common::{self, pass, wait_until};
use crate::sync::external::{BY_NAME, allow, create_as_terraform};
use crate::sync::world::{Cluster, NO_RESYNC, World, id, targets};
use sandbox::hetzner::{Health, Machine};
use serde_json::json;
use std::time::Duration;

const DELAY: (&str, &str) = ("departing-delay", "60s");
const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
const DRAIN: &str = "DrainInProgress";

/// A world with a Service whose targets are all healthy, its daemon, and the ID of its load balancer.
fn world(nodes: usize, annotations: &[(&str, &str)]) -> (World, common::Daemon, u64) {
    let world = World::new(nodes);
    let daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", annotations, &[80]);
    wait_until("an address", || world.has_address("web"));
    let id = id(&world.only_balancer());
    wait_until("all targets", || world.targets(id).len() == nodes);
    pass(&world.sandbox, Duration::from_secs(10));
    (world, daemon, id)
}

impl World {
    /// Drains a node as kubectl of Kubernetes 1.38 will do it.
    fn drain(&self, name: &str) {
        self.cluster().set_cordoned(name, true);
        self.cluster().set_condition(name, DRAIN, "True");
    }

    fn uncordon(&self, name: &str) {
        self.cluster().set_condition(name, DRAIN, "False");
        self.cluster().set_cordoned(name, false);
    }

    fn targets(&self, balancer: u64) -> Vec<u64> {
        let all = self.balancers();
        targets(all.iter().find(|one| id(one) == balancer).expect("the load balancer"))
    }

    fn has_target(&self, balancer: u64, node: &str) -> bool {
        self.targets(balancer).contains(&self.server_id(node))
    }

    /// Returns how often the load balancers were read since the mark.
    fn lists(&self, mark: u64) -> usize {
        let calls = self.cloud_calls(mark);
        calls.iter().filter(|call| call.path == "/v1/load_balancers").count()
    }

    fn wait_for_target(&self, balancer: u64, node: &str, is_target: bool) {
        wait_until("the target", || self.has_target(balancer, node) == is_target);
    }

    /// Lets time pass. At the end the node is a target or not, as before.
    fn stays(&self, balancer: u64, node: &str, is_target: bool, seconds: u64) {
        pass(&self.sandbox, Duration::from_secs(seconds));
        assert_eq!(self.has_target(balancer, node), is_target, "{node}");
    }
}

#[test]
fn a_drained_node_leaves_the_targets_after_the_delay_and_comes_back() {
    let (world, _daemon, id) = world(3, &[DELAY]);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let mark = world.mark();
    world.drain("worker-2");
    world.stays(id, "worker-2", true, 55);
    world.wait_for_target(id, "worker-2", false);
    world.stays(id, "worker-2", false, 600);
    world.uncordon("worker-2");
    world.wait_for_target(id, "worker-2", true);
    let writes = world.cloud_writes(mark);
    assert_eq!(writes.len(), 2, "{writes:#?}");
    // The load balancers are read before and after the removal, and before and after the addition, and the servers
    // before the addition.
    assert!(world.cloud_calls(mark).len() <= 10, "{:#?}", world.cloud_calls(mark));
}

#[test]
fn a_new_process_leaves_the_targets_as_they_are() {
    let (world, daemon, id) = world(3, &[DELAY]);
    world.drain("worker-2");
    world.wait_for_target(id, "worker-2", false);
    daemon.stop();
    let mark = world.mark();
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.stays(id, "worker-2", false, 120);
    assert_eq!(world.cloud_writes(mark), [""; 0]);
    world.drain("worker-3");
    // Only half of three targets are left out, which is one.
    world.stays(id, "worker-3", true, 120);
    assert_eq!(world.cloud_writes(mark), [""; 0]);
}

/// The condition is set on the node, but nothing says that the node ends.
#[test]
fn only_a_cordoned_or_unready_node_with_a_mark_departs() {
    let (world, _daemon, id) = world(4, &[("departing-delay", "0s")]);
    let mark = world.mark();
    world.cluster().set_condition("worker-1", DRAIN, "True");
    world.cluster().set_cordoned("worker-2", true);
    world.cluster().set_condition("worker-2", DRAIN, "Unknown");
    world.cluster().set_condition("worker-2", "MaintenanceInProgress", "True");
    world.set_ready("worker-3", "False");
    world.cluster().set_taint("worker-4", AUTOSCALER, "1", "NoSchedule");
    world.stays(id, "worker-1", true, 120);
    assert_eq!(world.writes(mark), [""; 0]);
    for (node, kind) in [("worker-2", "Drained"), ("worker-3", "GracefulNodeShutdownInProgress")] {
        world.cluster().set_condition(node, kind, "True");
        world.wait_for_target(id, node, false);
        world.cluster().set_condition(node, kind, "False");
        world.wait_for_target(id, node, true);
    }
}

#[test]
fn a_cordon_alone_counts_when_the_setting_says_so() {
    let mut world = World::new(3);
    world.set(&[
        ("HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED", "true"),
        ("HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY", "0s"),
    ]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80]);
    world.up("web");
    let id = id(&world.only_balancer());
    pass(&world.sandbox, Duration::from_secs(10));
    world.cluster().set_cordoned("worker-1", true);
    world.wait_for_target(id, "worker-1", false);
    world.cluster().set_cordoned("worker-1", false);
    world.wait_for_target(id, "worker-1", true);
}

#[test]
fn at_most_half_of_the_targets_leave_and_the_finding_says_why_others_stay() {
    let (world, daemon, id) = world(4, &[("departing-delay", "10s")]);
    for node in ["worker-1", "worker-2"] {
        world.drain(node);
        world.wait_for_target(id, node, false);
    }
    world.drain("worker-3");
    world.stays(id, "worker-3", true, 60);
    assert_eq!(world.targets(id).len(), 2);
    let says = "node worker-3 will stop soon, but stays a target, because ccm removes at most half of all targets";
    assert!(daemon.log().contains(says), "{}", daemon.log());
    assert_eq!(world.event_messages("web", "DepartingNodeKept"), [""; 0]);
    // The node whose place is free again comes first.
    world.uncordon("worker-1");
    world.wait_for_target(id, "worker-1", true);
    world.wait_for_target(id, "worker-3", false);
}

/// The other target is not healthy, so the removal waits. The load balancer is read once a minute for ten minutes.
#[test]
fn a_target_stays_while_no_other_target_is_healthy() {
    let (world, _daemon, id) = world(2, &[("departing-delay", "0s")]);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let other = world.server_id("worker-2");
    let health = Health::unhealthy("layer4_timeout");
    world.cloud().set_health(id, Machine::Server(other), None, Some(health));
    world.drain("worker-1");
    let mark = world.mark();
    world.stays(id, "worker-1", true, 300);
    let lists = world.lists(mark);
    assert!((4..=6).contains(&lists), "{lists} lists");
    pass(&world.sandbox, Duration::from_secs(600));
    let mark = world.mark();
    world.stays(id, "worker-1", true, 600);
    assert_eq!(world.lists(mark), 0);
    assert_eq!(world.cloud_writes(mark), [""; 0]);
}

#[test]
fn a_node_that_begins_and_ceases_to_depart_is_removed_six_times_an_hour() {
    let (world, daemon, id) = world(2, &[("departing-delay", "0s")]);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let mark = world.mark();
    for _ in 0..6 {
        world.drain("worker-2");
        world.wait_for_target(id, "worker-2", false);
        world.uncordon("worker-2");
        world.wait_for_target(id, "worker-2", true);
        pass(&world.sandbox, Duration::from_secs(10));
    }
    world.drain("worker-2");
    world.stays(id, "worker-2", true, 600);
    assert_eq!(world.cloud_writes(mark).len(), 12);
    assert!(daemon.log().contains("at most six times an hour"), "{}", daemon.log());
}

/// The cloud refuses nothing, but few calls are left.
#[test]
fn a_removal_is_put_off_while_few_calls_are_left() {
    let (world, daemon, id) = world(2, &[("departing-delay", "0s")]);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    world.cloud().set_rate_limit(world.projects().own, 3600, 200);
    world.drain("worker-2");
    world.stays(id, "worker-2", true, 60);
    assert!(daemon.log().contains("few API calls are left"), "{}", daemon.log());
    world.wait_for_target(id, "worker-2", false);
}

/// The first removal takes several looks at the Services. Meanwhile the targets that would stay become unhealthy.
#[test]
fn a_removal_that_waits_for_another_one_does_not_rest_on_the_health_of_an_earlier_look() {
    let (world, _daemon, id) = world(4, &[("departing-delay", "0s")]);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    world.cloud().set_action_duration("remove_target", Some(Duration::from_secs(30)));
    let mark = world.mark();
    world.drain("worker-1");
    world.drain("worker-2");
    wait_until("the first removal", || !world.cloud_writes(mark).is_empty());
    for node in ["worker-3", "worker-4"] {
        let server = Machine::Server(world.server_id(node));
        world.cloud().set_health(id, server, None, Some(Health::unhealthy("layer4_timeout")));
    }
    pass(&world.sandbox, Duration::from_secs(300));
    assert_eq!(world.targets(id).len(), 3, "{:#?}", world.cloud_writes(mark));
}

#[test]
fn in_a_group_the_namespace_of_the_group_decides() {
    let (world, _daemon, id) = world(3, &[("share", "edge"), ("share-namespaces", "shop")]);
    world.create_namespace("shop");
    world.create("shop/guest", &[("share", "default/edge"), ("departing-delay", "0s")], &[81]);
    world.ticks(3);
    world.drain("worker-2");
    world.stays(id, "worker-2", true, 60);
    world.annotate("web", "departing-delay", Some("0s"));
    world.wait_for_target(id, "worker-2", false);
}

#[test]
fn a_node_that_dies_while_it_departs_is_removed_like_any_other() {
    let (world, _daemon, id) = world(3, &[DELAY]);
    let mark = world.mark();
    world.drain("worker-2");
    world.wait_for_target(id, "worker-2", false);
    world.delete_server("worker-2");
    world.set_ready("worker-2", "Unknown");
    wait_until("the node's end", || !world.has_node("worker-2"));
    world.ticks(3);
    assert_eq!(world.cloud_writes(mark).len(), 1);
}

#[test]
fn on_an_external_load_balancer_each_service_must_ask_and_the_longest_delay_counts() {
    let world = World::new(3);
    let id = create_as_terraform(&world, "edge-lb");
    allow(&world, id, Some("default"));
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[BY_NAME, ("departing-delay", "0s")], &[80]);
    world.create("api", &[BY_NAME], &[81]);
    wait_until("all targets", || world.targets(id).len() == 4);
    pass(&world.sandbox, Duration::from_secs(10));
    world.drain("worker-2");
    world.stays(id, "worker-2", true, 60);
    let why = "has a port on the same load balancer, but does not have the annotation";
    world.wait_for_event("web", "AnnotationWithoutEffect", &[why]);
    world.annotate("api", "departing-delay", Some("10s"));
    world.wait_for_target(id, "worker-2", false);
    assert_eq!(world.targets(id).len(), 3);
}

/// A command that people run sees the node for the first time, so that its delay begins anew.
#[test]
fn commands_show_which_nodes_are_left_out_and_which_will_be() {
    let (world, _daemon, id) = world(3, &[("departing-delay", "600s")]);
    world.drain("worker-2");
    let shown = world.ccm(&["lb", "inspect", "default/web"]).with_code(0);
    shown.prints(
        "still a target. The node will stop soon, so ccm removes the target in at most 600 s",
    );
    world.annotate("web", "departing-delay", Some("0s"));
    world.wait_for_target(id, "worker-2", false);
    let shown = world.ccm(&["lb", "inspect", "default/web"]).with_code(0);
    shown.prints("no target, because the node will stop soon");
    let left_out = &world.inspect("web", &[])["object"]["leftOut"];
    assert_eq!(*left_out, json!([{ "node": "worker-2", "state": "departing" }]));
    world.ccm(&["status"]).prints("3 of 3 ready, 1 will stop soon");
    world.ccm(&["lb", "sync", "default/web", "--dry-run"]).prints("0 to change");
}
