//! No route is deleted while anything is unclear.

use crate::common::{self, Daemon, Env, Simulate, on, wait_until, with};
use crate::sync::world::{CIDR, Cluster, NOBODY, World};
use sandbox::Sandbox;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::kubelet::NodeSpec;
use serde_json::{Value, json};
use std::sync::Arc;

/// Everything that could be taken for a reason to delete is there, and one list or another can't be had whole.
#[test]
fn a_list_that_is_not_whole_deletes_nothing() {
    const SERVERS: &str = "/v1/servers";
    const NODES: &str = "/api/v1/nodes";
    const NETWORK: &str = "/v1/networks/*";
    let second_page = |request: &Request| request.query.contains(&("page".into(), "2".into()));
    let failed = Effect::hetzner_error(500, "server_error", "try again");
    let refused = Effect::kubernetes_status(500, "InternalError", "try again");
    let cases: Vec<(&str, Rule)> = vec![
        ("no second page", on(SERVERS, failed).when(second_page)),
        ("servers cut off", on(SERVERS, Effect::cut_off())),
        ("servers of a proxy", on(SERVERS, Effect::html())),
        ("other JSON", on(SERVERS, Effect::other_json())),
        ("a page too few", on(SERVERS, half_a_page())),
        ("no nodes", on(NODES, refused)),
        ("nodes cut off", on(NODES, Effect::cut_off())),
        ("nodes of a proxy", on(NODES, Effect::html())),
        ("the Network cut off", on(NETWORK, Effect::cut_off())),
        ("another Network", on(NETWORK, network(4711))),
    ];
    common::run_in_parallel(cases, |(what, rule)| {
        let world = World::synced(2);
        for n in 0..60 {
            world.create_server(&format!("other-{n}"));
        }
        world.set_route("10.244.9.0/24", NOBODY);
        let before = world.routes();
        world.faults().add(rule);
        let ran = world.sync(&[]);
        assert_eq!(ran.code, 1, "{what}: {ran:?}");
        let daemon = world.daemon(&["--controllers=route"]);
        common::wait_at_most(common::LIMIT, what, || {
            world.calls().count(|call| call.fault.is_some()) >= 3
        });
        assert_eq!(world.routes(), before, "{what}\n{}", daemon.log());
        assert_eq!(world.changes(0).len(), 2, "{what}: those of the beginning");
        // The route is deleted as soon as the list is complete again.
        world.faults().clear();
        world.wait_for_routes(&[]);
    });
}

/// Returns a page that counts more servers than it shows.
fn half_a_page() -> Effect {
    let body = json!({ "servers": [], "meta": { "pagination": {
        "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": 62,
    } } });
    Effect::Instead(Response::json(200, &body))
}

fn network(id: u64) -> Effect {
    let network =
        json!({ "id": id, "name": "x", "ip_range": "10.0.0.0/8", "subnets": [], "routes": [] });
    Effect::Instead(Response::json(200, &json!({ "network": network })))
}

/// The API server's cache is a moment – or an hour – behind.
#[test]
fn an_old_list_of_nodes_changes_nothing() {
    let world = World::synced(2);
    if common::needs_simulation(&world.sandbox, common::STALE_CACHE) {
        return;
    }
    let cluster = world.cluster();
    let servers = ["worker-1", "worker-2"].map(|name| world.server_id(name));
    cluster.freeze_cache(true);
    // The servers were recreated, each with the other's pods. By the stale cache both routes are wrong.
    for (name, server, pods) in
        [("worker-1", servers[0], "10.244.2.0/24"), ("worker-2", servers[1], "10.244.1.0/24")]
    {
        cluster.delete("nodes", None, name);
        world.register(name, Some(server), pods);
        world.set_route(pods, &world.ip(name));
    }
    // This route is a reason to read more.
    world.set_route("10.244.9.0/24", NOBODY);
    let mark = world.mark();
    let daemon = world.daemon(&["--controllers=route"]);
    wait_until("the blackhole to go", || world.routes().len() == 2);
    world.wait_for_polls(10);
    let gone = format!("delete_route 10.244.9.0/24 {NOBODY}");
    assert_eq!(world.changes(mark), [gone], "{}", daemon.log());
    assert_eq!(world.routes(), world.wanted());
}

/// Another cluster without nodes, and the environment of a shell whose kubeconfig names it.
fn other_cluster(world: &World) -> (Arc<Sandbox>, Env) {
    let other = Sandbox::builder().nodes(0).heartbeats(false).simulated();
    let mut theirs = common::env(&other).into_iter();
    let kubeconfig = theirs.find(|(name, _)| name == "KUBECONFIG").unwrap().1;
    let env = with(world.env.clone(), &[("KUBECONFIG", &kubeconfig)]);
    (other, env)
}

/// The kubeconfig of a shell names another cluster than the token and the Network.
#[test]
fn another_cluster_s_nodes_delete_nothing_and_are_not_marked() {
    let world = World::synced(3);
    world.set_route("10.244.9.0/24", NOBODY);
    let before = world.routes();
    let (other, env) = other_cluster(&world);
    let outside = world.create_server("outside");
    for (name, id) in [
        // One server is another project's, and the other is this project's and in no Network.
        ("elsewhere", "ccm-from-scratch://99999999".to_owned()),
        ("outside", format!("ccm-from-scratch://{outside}")),
        ("foreign", "aws:///i-1".to_owned()),
        ("odd", "ccm-from-scratch://odd".to_owned()),
    ] {
        other.register_node(NodeSpec {
            name: name.into(),
            provider_id: Some(id),
            pod_cidrs: vec!["10.244.1.0/24".into()],
            ..NodeSpec::default()
        });
    }
    let ran = common::ccm(&env, &["route", "sync", CIDR]).with_code(1);
    ran.prints("no node's server is attached to this Network");
    let daemon = Daemon::start(&env, &[CIDR, "--node-sync-interval=5s"]);
    world.comparisons(3);
    assert_eq!(world.routes(), before, "{}", daemon.log());
    nobody_is_marked(&other);
}

/// No node of it was told that it has a network, or has none.
fn nobody_is_marked(cluster: &Sandbox) {
    for node in cluster.nodes() {
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let is_it = |one: &Value| one["type"] == "NetworkUnavailable";
        assert!(!conditions.iter().any(is_it), "{node}");
    }
}

/// The servers of both clusters are in one Network, and their pods have the same addresses.
#[test]
fn another_cluster_in_the_same_network_takes_no_routes_over() {
    let world = World::synced(3);
    let before = world.routes();
    let (other, env) = other_cluster(&world);
    for n in 1..=4 {
        let name = format!("theirs-{n}");
        let id = world.attach_server(&name, None);
        other.register(&name, Some(id), &format!("10.244.{n}.0/24"));
    }
    // The sync runs twice, because the first run must not change what the second one may do.
    for _ in 1..=2 {
        let ran = common::ccm(&env, &["route", "sync", CIDR]).with_code(1);
        ran.prints("the kubeconfig or the Network may be the wrong one");
        // A free destination takes nothing from anybody.
        let free = format!("10.244.4.0/24 {}", world.ip("theirs-4"));
        let with_free = before.iter().cloned().chain([free]);
        assert_eq!(world.routes(), with_free.collect());
    }
    nobody_is_marked(&other);
}

/// A server of an older cluster is still there, and so is the route to it.
#[test]
fn one_left_over_route_is_replaced_when_the_others_exist() {
    let world = World::synced(3);
    for n in 1..=3 {
        world.delete_route(&format!("10.244.{n}.0/24"));
    }
    server_without_node(&world, "old-1", "10.244.2.0/24");
    let listed = world.ccm(&["route", "list", CIDR]);
    let has = |node: &str, state: &str| {
        let mut lines = listed.stdout.lines();
        lines.any(|line| line.contains(node) && line.ends_with(state))
    };
    assert!(has("worker-1", "missing → add"), "{listed:?}");
    assert!(has("worker-2", "missing !"), "{listed:?}");
    assert!(has(" - ", "stale"), "{listed:?}");
    listed.warns("Then ccm replaces that old route");
    world.sync(&[]).with_code(0);
    assert_eq!(world.routes(), world.wanted());
    assert!(world.all_are_reached());
}

/// The routes may be another cluster's, so a person must decide. A node that waits for long is not marked as reachable.
#[test]
fn several_left_over_routes_block_and_mark_only_their_own_nodes() {
    let world = World::new(3);
    for n in 1..=2 {
        server_without_node(&world, &format!("old-{n}"), &format!("10.244.{n}.0/24"));
    }
    let before = world.routes();
    let daemon = world.daemon(&[]);
    for name in ["worker-1", "worker-2"] {
        world.wait_for_status(name, "True");
    }
    let third = format!("10.244.3.0/24 {}", world.ip("worker-3"));
    let with_third = before.iter().cloned().chain([third]);
    assert_eq!(world.routes(), with_third.collect(), "{}", daemon.log());
    assert_eq!(world.status("worker-3"), None);
    let says = ["delete that route by hand"];
    world.wait_for_event("worker-1", "FailedToCreateRoute", &says);
    // The person does so.
    for n in 1..=2 {
        world.delete_route(&format!("10.244.{n}.0/24"));
    }
    world.wait_for_routes_and_nodes(&[]);
}

/// A server in the Network that no node runs on, and a route to it.
fn server_without_node(world: &World, name: &str, destination: &str) {
    world.attach_server(name, None);
    world.set_route(destination, &world.ip(name));
}

/// A daemon that was just started has not seen the node's deletion, so the server may be somebody's router.
#[test]
fn a_route_to_a_server_without_a_node_is_reported_and_left() {
    let world = World::synced(2);
    world.delete_node("worker-2");
    let stale = format!("10.244.2.0/24 {}", world.ip("worker-2"));
    let daemon = world.daemon(&[]);
    daemon.logs("StaleRoute");
    world.comparisons(1);
    world.wait_for_routes(&[&stale]);
    let list = world.ccm(&["route", "list", CIDR]);
    list.prints("stale");
    // The route stays until another node has these pods.
    world.join("worker-3", "10.244.2.0/24");
    world.wait_for_routes(&[]);
}

/// The node may get its provider ID at any moment. Until then neither its route nor its condition is changed.
#[test]
fn a_node_without_a_provider_id_is_left_alone() {
    let world = World::synced(1);
    world.register("stray", None, "10.244.7.0/24");
    world.edit_node("stray", |node| {
        node["spec"]["providerID"] = json!("aws:///i-1");
    });
    world.set_route("10.244.7.0/24", NOBODY);
    let _daemon = world.daemon(&["--controllers=route"]);
    world.comparisons(2);
    assert_eq!(world.condition("stray"), None);
    world.wait_for_routes(&[&format!("10.244.7.0/24 {NOBODY}")]);
}
