//! Broken routes of the Network, and nodes that say that their pods can't be reached.

use crate::common::Cluster;
use crate::common::cluster::text;
use crate::doctor::world::{CIDR, World, checks, each, find};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use serde_json::json;

const PROBE: &str = "/v1/load_balancers/9007199254740991";

/// An address in the Network's range that no server has.
const NOBODY: &str = "10.0.0.250";

fn pods(world: &World, name: &str) -> String {
    text(&world.node(name)["spec"]["podCIDR"])
}

fn says(world: &World, name: &str, status: &str) {
    world.edit_node(name, |node| {
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        conditions.retain(|one| one["type"] != "NetworkUnavailable");
        conditions.push(json!({
            "type": "NetworkUnavailable", "status": status, "reason": "Test", "message": "",
        }));
    });
}

#[test]
fn routes_that_the_next_pass_repairs_are_warnings() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("one is missing", |world| {
            let destination = pods(world, "worker-2");
            world.delete_route(&destination);
        }, "routes: warn", &["route/10.244.", "/24: missing: the route for node worker-2"], "ccm route sync corrects the routes now"),
        ("a blackhole", |world| world.set_route("10.244.9.0/24", NOBODY), "routes: warn",
            &["route/10.244.9.0/24: blackhole: the route leads to 10.0.0.250"], "the daemon corrects this"),
        ("another node's gateway", |world| world.set_route(&pods(world, "worker-2"), NOBODY), "routes: warn",
            &["route/10.244.", "/24: wrong gateway: the route leads to 10.0.0.250"], "see the check \"lease\""),
        ("a condition of yesterday", |world| says(world, "worker-2", "True"), "pod-network: warn",
            &["node/worker-2: NetworkUnavailable=True, so Kubernetes starts no new pods on the node"],
            "ccm route sync sets it now"),
    ]);
}

#[test]
fn routes_that_a_person_must_repair_are_reported_with_the_fix() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("to a server that is no node's", |world| {
            world.attach_server("old", None);
            let ip = world.ip("old");
            world.set_route("10.244.9.0/24", &ip);
        }, "routes: warn", &["network/sandbox: the route 10.244.9.0/24 via", "leads to server \"old\", which belongs to no node"],
            "if the route is not needed, delete it: hcloud network remove-route "),
        ("a node outside of the Network", |world| {
            let id = world.create_server("alone");
            world.register("alone", Some(id), "10.244.7.0/24");
        }, "routes: fail", &["alone: the node gets no route, because its server 1", "is not attached to network \"sandbox\""],
            "attach the server: hcloud server attach-to-network "),
        ("and what it says itself", |world| {
            let id = world.attach_server("alone", None);
            world.register("alone", Some(id), "");
            says(world, "alone", "True");
        }, "pod-network: warn", &["node/alone: NetworkUnavailable=True"], "fix what the check \"routes\" reports"),
        ("a node without addresses for pods", |world| {
            let id = world.attach_server("bare", None);
            world.register("bare", Some(id), "");
        }, "routes: warn", &["node/bare: the node has no spec.podCIDR, so no route leads to its pods"],
            "--allocate-node-cidrs"),
        ("pods outside of --cluster-cidr", |world| {
            let id = world.attach_server("far", None);
            world.register("far", Some(id), "10.99.0.0/24");
        }, "routes: warn", &["far: the node's pod CIDR 10.99.0.0/24 is not within --cluster-cidr=10.244.0.0/16"],
            "kube-controller-manager"),
        ("few are left", |world| { for number in 0..90 { world.set_route(&format!("172.16.{number}.0/24"), NOBODY); } },
            "routes: warn", &["network/sandbox: 90 or more of the Network's 100 possible routes"], "overlay"),
        ("pods beside the Network's range", |world| world.flags = vec![CIDR, "--cluster-cidr=192.168.0.0/16"],
            "routes: warn", &["--cluster-cidr=192.168.0.0/16 is not within the Network's range"], "a range within the Network's"),
        ("two at once", |world| {
            world.set_route("10.244.9.0/24", NOBODY);
            let id = world.create_server("alone");
            world.register("alone", Some(id), "10.244.7.0/24");
        }, "routes: fail", &["node/alone: the node gets no route", "; route/10.244.9.0/24: blackhole"],
            "hcloud server attach-to-network"),
    ]);
}

#[test]
fn routes_are_not_checked_where_no_route_controller_runs() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("without --cluster-cidr", |world| world.flags = Vec::new(), "routes: skipped",
            &["--cluster-cidr is not set", "--settings-from"], ""),
        ("turned off", |world| {
            world.set("HCLOUD_NETWORK_ROUTES_ENABLED", "false");
            world.set_route("10.244.9.0/24", NOBODY);
        }, "routes: skipped", &["HCLOUD_NETWORK_ROUTES_ENABLED is false"], ""),
        ("without a Network", |world| world.set("HCLOUD_NETWORK", ""), "routes: skipped",
            &["HCLOUD_NETWORK is not set"], ""),
        ("left out", |world| world.flags.push("--controllers=*,-route"), "routes: skipped",
            &["--controllers does not include the route controller"], ""),
        ("set by another program", |world| {
            world.flags = Vec::new();
            says(world, "worker-2", "True");
        }, "pod-network: warn", &["worker-2"], "ccm does not set this condition"),
        ("hcloud-cloud-controller-manager may keep them", |world| {
            world.leads("hcloud-cloud-controller-manager-7d_4711", -600);
            let cluster = world.sandbox.cluster();
            cluster.delete("deployments", Some("kube-system"), "ccm-from-scratch");
            world.set_route("10.244.9.0/24", NOBODY);
        }, "routes: skipped", &["see the check \"other-ccm\""], ""),
    ]);
}

/// Servers are read first, and a machine may join before the nodes are.
#[test]
fn a_node_that_joins_between_two_reads_is_not_reported() {
    let world = World::healthy();
    let rule = {
        let (cloud, project) = (world.sandbox.cloud().clone(), world.sandbox.project());
        let (network, cluster) = (world.network(), world.sandbox.cluster().clone());
        let mut late = world.node("worker-2");
        late["metadata"] = json!({ "name": "late" });
        let make = move |_: &Request| {
            let spec = ServerSpec {
                name: "late".into(),
                networks: vec![(network, None)],
                ..ServerSpec::default()
            };
            let id = cloud.create_server(project, spec);
            let servers = cloud.servers(project);
            let made = servers.iter().find(|server| server["id"] == id).unwrap();
            let mut late = late.clone();
            late["spec"] = json!({
                "providerID": format!("ccm-from-scratch://{id}"),
                "podCIDR": "10.244.77.0/24",
                "podCIDRs": ["10.244.77.0/24"],
            });
            cluster.create("nodes", None, late);
            let ip = made["private_net"][0]["ip"].as_str().unwrap();
            cloud.set_route(network, "10.244.77.0/24", ip);
        };
        Rule::new(Effect::before(make)).path(PROBE).times(1)
    };
    let rule = world.fault(rule);
    let ran = world.doctor(&["-o", "json"]);
    assert_eq!(world.sandbox.faults().hits(rule), 1);
    let checks = checks(&ran);
    let check = find(&checks, "routes");
    assert_eq!(check.status, "ok", "{check:?}");
    assert_eq!(check.message, "3 routes, each as it should be");
}
