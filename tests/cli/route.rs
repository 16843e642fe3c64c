//! What people see of routes: the output of each command is a snapshot, in a Network with every kind of route.

use crate::common::{self, Cluster, ccm, env, snapshot};
use crate::help::{fits, seen};
use sandbox::Sandbox;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use serde_json::json;

pub const CIDR: &str = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56";

/// `worker-1` is right, and there is something for each kind of trouble.
pub fn cluster() -> Sandbox {
    let sandbox = common::networked(5).scale(0.01).start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    sandbox.ccm(&["route", "sync", CIDR]).with_code(0);
    let cloud = sandbox.cloud();
    let network = sandbox.network_id();
    sandbox.delete_route("10.244.2.0/24");
    sandbox.set_route("10.244.3.0/24", "10.0.0.2");
    sandbox.set_route("10.244.40.0/24", "10.0.0.250");
    sandbox.set_route("10.244.41.0/24", "10.0.0.2");
    sandbox.set_route("0.0.0.0/0", "10.0.0.250");
    sandbox.set_route("10.99.0.0/16", "10.0.0.250");
    let spec = |name: &str| ServerSpec {
        name: name.into(),
        networks: vec![(network, None)],
        ..ServerSpec::default()
    };
    cloud.create_server(sandbox.project(), spec("router"));
    sandbox.set_route("10.244.42.0/24", "10.0.0.7");
    // Detached, and another cloud's.
    let servers = sandbox.servers();
    let four = servers[3]["id"].as_u64().unwrap();
    cloud.edit_server(four, |server| server["private_net"] = json!([]));
    sandbox.register_node(NodeSpec {
        name: "elsewhere".into(),
        provider_id: Some("aws:///i-1".into()),
        pod_cidrs: vec!["10.244.60.0/24".into()],
        ..NodeSpec::default()
    });
    sandbox.set_route("10.244.60.0/24", "10.0.0.250");
    let misfit = cloud
        .create_server(sandbox.project(), spec("a-node-with-a-name-as-long-as-its-owner-is-proud"));
    sandbox.register(
        "a-node-with-a-name-as-long-as-its-owner-is-proud",
        Some(misfit),
        "10.244.70.0/24,fd00:10:244:7::/64",
    );
    let misfit = cloud.create_server(sandbox.project(), spec("misfit"));
    sandbox.register("misfit", Some(misfit), "10.250.1.0/24");
    sandbox
}

#[test]
fn route_list_prints_the_snapshots() {
    let sandbox = cluster();
    let table = seen(&sandbox, &["route", "list", CIDR]);
    snapshot("route-list.txt", &table);
    let name = "a-node-with-a-name-as-long-as-its-owner-is-proud";
    common::is_cut_at_a_terminal_alone(&env(&sandbox), &["route", "list", CIDR], name);
    let wide = seen(&sandbox, &["route", "list", CIDR, "-o", "wide"]);
    snapshot("route-list-wide.txt", &wide);
    let json = seen(&sandbox, &["route", "list", CIDR, "-o", "json"]);
    snapshot("route-list.json", &json);
}

/// A change that finds the Network locked is tried again, so that on a busy machine another one ends before it. A route
/// and its replacement stay in their order.
fn by_object(shown: &str) -> String {
    let is_change = |line: &&str| line.starts_with("node/") || line.starts_with("route/");
    let mut changes: Vec<&str> = shown.lines().filter(is_change).collect();
    changes.sort_by_key(|line| {
        let is_condition = line.contains("  condition ");
        (line.split(' ').next(), is_condition, line.split(" via ").next())
    });
    let mut changes = changes.into_iter();
    let lines = shown.split_inclusive('\n').map(|line| match is_change(&line) {
        true => format!("{}\n", changes.next().unwrap()),
        false => line.to_owned(),
    });
    lines.collect()
}

#[test]
fn route_sync_prints_the_snapshots() {
    let sandbox = cluster();
    let network = sandbox.network_id();
    let before = (sandbox.cloud().routes(network), sandbox.nodes());
    let dry = ["route", "sync", CIDR, "--dry-run"];
    let mut text = seen(&sandbox, &dry) + "\n";
    let yaml = seen(&sandbox, &[&dry[..], &["-o", "yaml"]].concat());
    snapshot("route-sync-dry-run.yaml", &yaml);
    let after = (sandbox.cloud().routes(network), sandbox.nodes());
    assert_eq!(after, before, "nothing was written");
    text += &(by_object(&seen(&sandbox, &["route", "sync", CIDR])) + "\n");
    text += &(seen(&sandbox, &["route", "sync", CIDR]) + "\n");
    text += &(seen(&sandbox, &["route", "list", CIDR]) + "\n");
    snapshot("route-sync.txt", &text);
    fits(&text);
}

#[test]
fn a_dry_run_says_by_its_exit_code_whether_there_is_something_to_do() {
    let sandbox = common::networked(2).scale(0.01).start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    let exact = ["route", "sync", CIDR, "--dry-run", "--detailed-exitcode"];
    sandbox.ccm(&exact).with_code(3);
    let json = sandbox.ccm(&["route", "sync", CIDR, "-o", "json"]).with_code(0);
    let summary = json.json()["summary"].clone();
    let expected = json!({ "changed": 2, "unchanged": 0, "failed": 0 });
    assert_eq!(summary, expected);
    sandbox.ccm(&exact).with_code(0);
    sandbox.ccm(&["route", "sync", CIDR, "--detailed-exitcode"]).with_code(2);
}

/// With the wrong profile no node is ours. Without an error it would look as if everything was done.
#[test]
fn the_cluster_of_the_other_profile_is_not_synced() {
    let sandbox = common::networked(2).scale(0.01).start();
    let env = env(&sandbox);
    let hcloud = "--cloud-provider=hcloud";
    ccm(&env, &["node", "sync", hcloud]).with_code(0);
    let flags = ["route", "sync", "--cluster-cidr=10.244.0.0/16"];
    ccm(&env, &[&flags[..], &[hcloud]].concat()).with_code(0);
    let routes = || sandbox.cloud().routes(sandbox.network_id());
    let before = routes();
    for dry in [&[][..], &["--dry-run"]] {
        let ran = ccm(&env, &[&flags[..], dry].concat()).with_code(1);
        let why = "set --cloud-provider to the daemon's value";
        ran.warns(why);
        assert_eq!(routes(), before);
    }
}
