//! Routes are added, repaired and deleted.

use crate::common::{self, on, wait_until};
use crate::sync::world::{CIDR, Cluster, NOBODY, PROFILES, World};
use sandbox::exchange::Request;
use sandbox::faults::Effect;
use serde_json::json;

/// Routes of others, which must stay whatever they are for.
const THEIRS: [&str; 4] = [
    "0.0.0.0/0 10.0.0.250",
    "10.245.1.0/24 10.0.0.250",
    "10.0.9.0/24 10.0.0.250",
    "192.168.7.0/24 10.0.0.250",
];

fn add_theirs(world: &World) {
    for route in THEIRS {
        let (to, via) = route.split_once(' ').unwrap();
        world.set_route(to, via);
    }
}

#[test]
fn each_node_gets_its_route_and_its_condition() {
    common::run_in_parallel(PROFILES.to_vec(), |profile| {
        let world = World::new(3);
        add_theirs(&world);
        let daemon = world.daemon(&[profile]);
        world.wait_for_routes_and_nodes(&THEIRS);
        assert_eq!(world.routes().len(), 3 + THEIRS.len());
        for name in ["worker-1", "worker-2", "worker-3"] {
            let condition = world.condition(name).unwrap();
            assert_eq!(condition["reason"], "RouteCreated");
            assert_eq!(condition["message"], "RouteController created a route");
            let node = world.node(name);
            let mut conditions = node["status"]["conditions"].as_array().unwrap().iter();
            let ready = conditions.find(|one| one["type"] == "Ready").unwrap();
            assert_eq!(ready["status"], "True", "the kubelet's own stays");
        }
        // There are no other writes than one for each route and one for each condition.
        world.wait_for_polls(5);
        assert_eq!(world.changes(0).len(), 3, "{}", daemon.log());
        assert_eq!(world.patches(0).len(), 3);
        let mark = world.mark();
        world.comparisons(2);
        assert_eq!(world.changes(mark), Vec::<String>::new());
        assert_eq!(world.patches(mark), Vec::<String>::new());
        world.assert_nothing_refused();
    });
}

#[test]
fn a_route_that_somebody_breaks_is_repaired() {
    // Each change is made in a cluster of its own, because comparisons are five minutes apart.
    let cases: [fn(&World); 4] = [
        |world| world.delete_route("10.244.1.0/24"),
        |world| world.set_route("10.244.1.0/24", &world.ip("worker-2")),
        |world| world.set_route("10.244.200.0/24", NOBODY),
        |world| world.set_route("10.244.201.0/24", &world.ip("worker-2")),
    ];
    common::run_in_parallel(cases.to_vec(), |breaks| {
        let world = World::synced(3);
        add_theirs(&world);
        let _daemon = world.daemon(&[]);
        world.comparisons(1);
        let right = world.routes();
        breaks(&world);
        assert_ne!(world.routes(), right);
        world.wait_for_routes(&THEIRS);
    });
}

#[test]
fn a_condition_that_somebody_changes_is_set_again() {
    let world = World::synced(3);
    let _daemon = world.daemon(&[]);
    world.comparisons(1);
    world.mark_unavailable("worker-3");
    // Seen when whole nodes are read again, or when something rings.
    world.edit_node("worker-3", |node| {
        node["metadata"]["labels"]["rings"] = json!("yes");
    });
    wait_until("the condition", || world.all_are_reached());
}

#[test]
fn a_route_is_deleted_with_its_node() {
    let world = World::synced(3);
    let daemon = world.daemon(&[]);
    world.comparisons(1);
    // The server stays, but the daemon saw that the node was deleted.
    world.delete_node("worker-3");
    world.wait_for_routes(&[]);
    assert_eq!(world.routes().len(), 2, "{}", daemon.log());
    // The node is deleted with its server.
    world.delete_server("worker-2");
    world.delete_node("worker-2");
    world.wait_for_routes(&[]);
    assert_eq!(world.routes().len(), 1);
    // A server that is gone while its node stays is a blackhole.
    world.join("worker-4", "10.244.4.0/24");
    world.wait_for_routes(&[]);
    assert_eq!(world.routes().len(), 2);
    world.delete_server("worker-4");
    world.wait_for_routes(&[]);
    assert_eq!(world.routes().len(), 1);
}

/// A cluster autoscaler may give a new node the pods of one that went.
#[test]
fn a_recreated_node_with_the_same_pods_gets_the_route() {
    let world = World::synced(3);
    let daemon = world.daemon(&[]);
    world.comparisons(1);
    world.delete_node("worker-3");
    let old = world.ip("worker-3");
    world.join("worker-9", "10.244.3.0/24");
    let mark = world.mark();
    world.wait_for_routes(&[]);
    world.wait_for_status("worker-9", "False");
    let new = world.ip("worker-9");
    let changes = world.changes(mark);
    let replaced =
        [format!("delete_route 10.244.3.0/24 {old}"), format!("add_route 10.244.3.0/24 {new}")];
    assert_eq!(changes, replaced, "{}", daemon.log());
}

#[test]
fn a_node_that_is_not_attached_is_reported_and_the_others_are_synced() {
    let world = World::new(1);
    world.join("worker-2", "10.244.2.0/24");
    let id = world.server_id("worker-2");
    let cloud = world.cloud();
    let mut attachment = json!(null);
    cloud.edit_server(id, |server| {
        attachment = server["private_net"].take();
        server["private_net"] = json!([]);
    });
    let daemon = world.daemon(&[]);
    world.wait_for_status("worker-1", "False");
    world.wait_for_status("worker-2", "True");
    let says = ["is not attached to network \"sandbox\""];
    world.wait_for_event("worker-2", "FailedToCreateRoute", &says);
    let condition = world.condition("worker-2").unwrap();
    assert_eq!(condition["reason"], "NoRouteCreated");
    world.once(&[CIDR, "--leader-elect=false"]).with_code(1);
    let told = daemon.log().matches("FailedToCreateRoute").count();
    assert_eq!(told, 1, "{}", daemon.log());
    cloud.edit_server(id, |server| server["private_net"] = attachment.take());
    world.wait_for_routes_and_nodes(&[]);
}

#[test]
fn a_dual_stack_node_gets_its_ipv4_route() {
    let world = World::new(1);
    world.join("worker-2", "10.244.2.0/24,fd00:10:244:2::/64");
    world.join("worker-3", "fd00:10:244:3::/64,10.244.3.0/24");
    let both = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56";
    let daemon = common::Daemon::start(&world.env, &[both]);
    world.wait_for_routes_and_nodes(&[]);
    assert_eq!(world.routes().len(), 3);
    daemon.logs("IPv6 addresses of pods get no routes");
}

/// kube-controller-manager gives a node its pods' addresses after it has registered.
#[test]
fn a_node_that_gets_its_pod_cidr_late_gets_its_route() {
    let world = World::synced(1);
    world.join("worker-2", "");
    // No other controller reads nodes, and no table shows the change.
    let _daemon = world.daemon(&["--controllers=route"]);
    world.wait_for_polls(3);
    assert_eq!(world.routes().len(), 1);
    let mark = world.mark();
    world.edit_node("worker-2", |node| {
        node["spec"]["podCIDR"] = json!("10.244.2.0/24");
        node["spec"]["podCIDRs"] = json!(["10.244.2.0/24"]);
    });
    wait_until("its route", || world.routes().len() == 2);
    let calls = world.calls().calls_since(mark);
    let lists = calls.iter().filter(|call| {
        let is_table = call.header("accept").is_some_and(|accept| accept.contains("as=Table"));
        let is_list = call.path == "/api/v1/nodes" && !is_table;
        is_list && call.query("resourceVersion") == Some("0")
    });
    assert_eq!(lists.count(), 0, "it was not the slow look at all nodes");
    wait_until("its condition", || world.all_are_reached());
}

/// The kubelet writes to the same status all the time.
#[test]
fn a_node_that_changes_under_the_patch_is_read_again() {
    let world = World::synced(1);
    let cluster = std::sync::Arc::clone(world.cluster());
    world.join("worker-2", "10.244.2.0/24");
    let change = move |_: &Request| {
        cluster.edit("nodes", None, "worker-2", |node| {
            let mine = &mut node["metadata"]["labels"]["mine"];
            *mine = json!(if mine.is_null() { "new" } else { "kept" });
        });
    };
    let rule = on("/api/v1/nodes/worker-2/status", Effect::before(change));
    let rule = world.faults().add(rule.writes().times(2));
    world.sync(&[]).with_code(0);
    assert!(world.all_are_reached());
    assert_eq!(world.faults().hits(rule), 2);
    assert_eq!(world.node("worker-2")["metadata"]["labels"]["mine"], "kept");
    let calls = world.calls().calls();
    let conflicts = calls.iter().filter(|call| call.status == Some(409));
    assert_eq!(conflicts.count(), 2);
}

#[test]
fn one_pass_of_cron_makes_all_routes() {
    for profile in PROFILES {
        let world = World::over_sockets(3);
        world.once(&[CIDR, profile]).with_code(0);
        assert_eq!(world.routes(), world.wanted());
        assert_eq!(world.routes().len(), 3);
        assert!(world.all_are_reached());
        let mark = world.mark();
        world.once(&[CIDR, profile]).with_code(0);
        assert_eq!(world.changes(mark), Vec::<String>::new());
        assert_eq!(world.patches(mark), Vec::<String>::new());
        world.ccm(&["run", "--dry-run", CIDR, profile]).with_code(0);
    }
}
