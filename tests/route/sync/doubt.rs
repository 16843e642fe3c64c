//! What is not known beyond doubt deletes no route.

use crate::common::{self, Daemon, Simulate, wait_until, with};
use crate::sync::world::{CIDR, Cluster, NOBODY, World, is_read};
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

/// Everything that could be taken for a reason to delete is there, and one list or another can't be had whole.
#[test]
fn a_list_that_is_not_whole_deletes_nothing() {
    let second_page = |request: &Request| request.query.contains(&("page".into(), "2".into()));
    let cases: Vec<(&str, Rule)> = vec![
        ("no second page of servers", {
            let error = Effect::hetzner_error(500, "server_error", "try again");
            Rule::new(error)
                .half(Half::Hetzner)
                .path("/v1/servers")
                .when(second_page)
        }),
        (
            "servers cut off",
            Rule::new(Effect::cut_off())
                .half(Half::Hetzner)
                .path("/v1/servers"),
        ),
        (
            "servers of a proxy",
            Rule::new(Effect::html())
                .half(Half::Hetzner)
                .path("/v1/servers"),
        ),
        (
            "other JSON",
            Rule::new(Effect::other_json())
                .half(Half::Hetzner)
                .path("/v1/servers"),
        ),
        (
            "a page too few",
            Rule::new(Effect::Instead(half_a_page()))
                .half(Half::Hetzner)
                .path("/v1/servers"),
        ),
        ("no nodes", {
            let error = Effect::kubernetes_status(500, "InternalError", "try again");
            Rule::new(error)
                .half(Half::Kubernetes)
                .path("/api/v1/nodes")
        }),
        (
            "nodes cut off",
            Rule::new(Effect::cut_off())
                .half(Half::Kubernetes)
                .path("/api/v1/nodes"),
        ),
        (
            "nodes of a proxy",
            Rule::new(Effect::html())
                .half(Half::Kubernetes)
                .path("/api/v1/nodes"),
        ),
        (
            "the Network cut off",
            Rule::new(Effect::cut_off())
                .half(Half::Hetzner)
                .path("/v1/networks/*"),
        ),
        (
            "another Network",
            Rule::new(Effect::Instead(network(4711)))
                .half(Half::Hetzner)
                .path("/v1/networks/*"),
        ),
    ];
    common::side_by_side(cases, |(what, rule)| {
        let world = World::settled(2);
        for n in 0..60 {
            let spec = ServerSpec {
                name: format!("other-{n}"),
                ..ServerSpec::default()
            };
            world.cloud().create_server(world.project(), spec);
        }
        let cloud = world.cloud();
        cloud.set_route(world.network_id(), "10.244.9.0/24", NOBODY);
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
        // And when the list is there again, it goes.
        world.faults().clear();
        world.comes_right(&[]);
    });
}

/// One page that says there are more servers than it shows.
fn half_a_page() -> Response {
    let body = json!({ "servers": [], "meta": { "pagination": {
        "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": 62,
    } } });
    Response::json(200, &body)
}

fn network(id: u64) -> Response {
    Response::json(
        200,
        &json!({ "network": { "id": id, "name": "x", "ip_range": "10.0.0.0/8", "subnets": [], "routes": [] } }),
    )
}

/// The API server's cache is a moment – or an hour – behind.
#[test]
fn an_old_list_of_nodes_changes_nothing() {
    let world = World::settled(2);
    if common::needs_simulation(&world.sandbox, common::LAGS) {
        return;
    }
    let cluster = world.cluster();
    let servers = ["worker-1", "worker-2"].map(|name| world.server_id(name));
    cluster.freeze_cache(true);
    // Made anew, each with the other's pods: by the cache both routes lead astray.
    for (name, server, pods) in [
        ("worker-1", servers[0], "10.244.2.0/24"),
        ("worker-2", servers[1], "10.244.1.0/24"),
    ] {
        cluster.delete("nodes", None, name);
        world.register(name, Some(server), pods);
        world.set_route(pods, &world.ip(name));
    }
    // And this one is a reason to look closer.
    world.set_route("10.244.9.0/24", NOBODY);
    let mark = world.mark();
    let daemon = world.daemon(&["--controllers=route"]);
    wait_until("the blackhole to go", || world.routes().len() == 2);
    world.looks(10);
    let gone = format!("delete_route 10.244.9.0/24 {NOBODY}");
    assert_eq!(world.changes(mark), [gone], "{}", daemon.log());
    assert_eq!(world.routes(), world.wanted());
}

/// The kubeconfig of a shell names another cluster than the token and the Network.
#[test]
fn another_cluster_s_nodes_delete_nothing_and_are_not_marked() {
    let world = World::settled(3);
    world.set_route("10.244.9.0/24", NOBODY);
    let before = world.routes();
    let other = Sandbox::builder().nodes(0).heartbeats(false).simulated();
    let kubeconfig = common::env(&other)
        .into_iter()
        .find(|(name, _)| name == "KUBECONFIG");
    let env = with(world.env.clone(), &[("KUBECONFIG", &kubeconfig.unwrap().1)]);
    let outside = ServerSpec {
        name: "outside".into(),
        ..ServerSpec::default()
    };
    let outside = world.cloud().create_server(world.project(), outside);
    for (name, id) in [
        // Of another project, and of this one but in no Network.
        ("elsewhere", "ccm-from-scratch://99999999".to_owned()),
        ("outside", format!("ccm-from-scratch://{outside}")),
        ("foreign", "aws:///i-1".to_owned()),
        ("odd", "ccm-from-scratch://odd".to_owned()),
    ] {
        other.register_node(sandbox::kubelet::NodeSpec {
            name: name.into(),
            provider_id: Some(id),
            pod_cidrs: vec!["10.244.1.0/24".into()],
            ..Default::default()
        });
    }
    let ran = common::ccm(&env, &["route", "sync", CIDR]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout.contains("it holds the server of no node"),
        "{ran:?}"
    );
    let daemon = Daemon::start(&env, &[CIDR, "--node-sync-interval=5s"]);
    let reads = || world.calls().count(is_read);
    let enough = reads() + 3;
    wait_until("looks at the Network", || reads() >= enough);
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

/// Both clusters' servers are in one Network, and their pods have the same addresses.
#[test]
fn another_cluster_in_the_same_network_takes_no_routes_over() {
    let world = World::settled(3);
    let before = world.routes();
    let other = Sandbox::builder().nodes(0).heartbeats(false).simulated();
    let kubeconfig = common::env(&other)
        .into_iter()
        .find(|(name, _)| name == "KUBECONFIG");
    let env = with(world.env.clone(), &[("KUBECONFIG", &kubeconfig.unwrap().1)]);
    for n in 1..=4 {
        let spec = ServerSpec {
            name: format!("theirs-{n}"),
            networks: vec![(world.network_id(), None)],
            ..ServerSpec::default()
        };
        let cloud = world.cloud();
        let id = cloud.create_server(world.project(), spec);
        other.register_node(sandbox::kubelet::NodeSpec {
            name: format!("theirs-{n}"),
            provider_id: Some(format!("ccm-from-scratch://{id}")),
            pod_cidrs: vec![format!("10.244.{n}.0/24")],
            ..Default::default()
        });
    }
    // Twice: nothing that the first did makes the second bolder.
    for _ in 1..=2 {
        let ran = common::ccm(&env, &["route", "sync", CIDR]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stdout.contains("is the kubeconfig another cluster's?"),
            "{ran:?}"
        );
        // What is free takes nothing from anybody.
        let free = format!("10.244.4.0/24 {}", world.ip("theirs-4"));
        let with_free = before.iter().cloned().chain([free]);
        assert_eq!(world.routes(), with_free.collect());
    }
    nobody_is_marked(&other);
}

/// A server of an older cluster is still there, and so is the route to it.
#[test]
fn one_route_that_was_left_gives_way_when_the_others_are_there() {
    let world = World::settled(3);
    let cloud = world.cloud();
    for n in 1..=3 {
        cloud.delete_route(world.network_id(), &format!("10.244.{n}.0/24"));
    }
    bystander(&world, "old-1", "10.244.2.0/24");
    let listed = common::ccm(&world.env, &["route", "list", CIDR]);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    let has = |node: &str, state: &str| {
        lines
            .iter()
            .any(|line| line.contains(node) && line.ends_with(state))
    };
    assert!(has("worker-1", "missing → add"), "{listed:?}");
    assert!(has("worker-2", "missing !"), "{listed:?}");
    assert!(has(" - ", "stale"), "{listed:?}");
    assert!(listed.stderr.contains("gives way as soon as"), "{listed:?}");
    let ran = world.sync(&[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(world.routes(), world.wanted());
    assert!(world.all_are_reached());
}

/// They may be another cluster's, so a person decides; who waits for long is not called reachable.
#[test]
fn several_routes_that_were_left_hold_up_and_mark_only_their_own_nodes() {
    let world = World::new(3);
    for n in 1..=2 {
        bystander(&world, &format!("old-{n}"), &format!("10.244.{n}.0/24"));
    }
    let before = world.routes();
    let daemon = world.daemon(&[]);
    let status = |name: &str| world.status(name);
    wait_until("both to be marked", || {
        [1, 2]
            .iter()
            .all(|n| status(&format!("worker-{n}")).as_deref() == Some("True"))
    });
    let third = format!("10.244.3.0/24 {}", world.ip("worker-3"));
    let with_third = before.iter().cloned().chain([third]);
    assert_eq!(world.routes(), with_third.collect(), "{}", daemon.log());
    assert_eq!(status("worker-3"), None);
    world.tells(
        "worker-1",
        "FailedToCreateRoute",
        &["delete that route by hand"],
    );
    // The person does so.
    let cloud = world.cloud();
    for n in 1..=2 {
        cloud.delete_route(world.network_id(), &format!("10.244.{n}.0/24"));
    }
    world.comes_right(&[]);
    wait_until("all to be reached", || world.all_are_reached());
}

/// A server in the Network that no node runs on, and a route to it.
fn bystander(world: &World, name: &str, destination: &str) {
    let spec = ServerSpec {
        name: name.into(),
        networks: vec![(world.network_id(), None)],
        ..ServerSpec::default()
    };
    let cloud = world.cloud();
    cloud.create_server(world.project(), spec);
    cloud.set_route(world.network_id(), destination, &world.ip(name));
}

/// Who starts anew has not seen a node go: the server may be somebody's router.
#[test]
fn a_route_to_a_server_that_no_node_runs_on_is_told_and_left() {
    let world = World::settled(2);
    world.delete_node("worker-2");
    let stale = format!("10.244.2.0/24 {}", world.ip("worker-2"));
    let daemon = world.daemon(&[]);
    daemon.logs("StaleRoute");
    world.comparisons(1);
    world.comes_right(&[&stale]);
    let list = common::ccm(&world.env, &["route", "list", CIDR]);
    assert!(list.stdout.contains("stale"), "{list:?}");
    // Until another node has these pods.
    world.join("worker-3", "10.244.2.0/24");
    world.comes_right(&[]);
}

/// Its provider ID may come any moment: neither a route nor a condition is touched before.
#[test]
fn a_node_without_a_provider_id_is_left_alone() {
    let world = World::settled(1);
    world.register("stray", None, "10.244.7.0/24");
    world.edit_node("stray", |node| {
        node["spec"]["providerID"] = json!("aws:///i-1");
    });
    world.set_route("10.244.7.0/24", NOBODY);
    let _daemon = world.daemon(&["--controllers=route"]);
    world.comparisons(2);
    assert_eq!(world.condition("stray"), None);
    world.comes_right(&[&format!("10.244.7.0/24 {NOBODY}")]);
}
