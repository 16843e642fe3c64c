//! What people see of nodes: the output of each command is a snapshot, in a cluster with every kind of node.

use crate::common::{self, Cluster, ccm, env, snapshot};
use crate::help::{fits, seen, seen_all};
use sandbox::{Half, Sandbox};
use serde_json::json;

/// `worker-1` new, `worker-2` initialised, `worker-3` with another zone label, and one node for
/// each kind of trouble.
pub fn cluster() -> Sandbox {
    let sandbox = common::networked(3).start();
    sandbox.ccm(&["node", "sync", "worker-2", "worker-3"]).with_code(0);
    sandbox.edit_node("worker-3", |node| {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("elsewhere");
        node["status"]["addresses"][1]["address"] = json!("203.0.113.99");
    });
    for (name, provider_id) in [
        ("foreign", "aws:///eu-central-1a/i-0abc"),
        ("gone", "ccm-from-scratch://99"),
        ("odd", "ccm-from-scratch://x"),
    ] {
        sandbox.register(name, None, "");
        sandbox.edit_node(name, |node| {
            node["spec"]["providerID"] = json!(provider_id);
            node["spec"]["taints"] = json!([]);
        });
    }
    sandbox.register("stray", None, "");
    let off = sandbox.join_node("off-at-night");
    sandbox.cloud().set_power(off, false);
    sandbox.join_node("wrong-node-ip");
    sandbox.edit_node("wrong-node-ip", |node| {
        node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"] =
            json!("192.0.2.1");
    });
    sandbox
}

#[test]
fn node_list_prints_the_snapshots() {
    let sandbox = cluster();
    let table = seen(&sandbox, &["node", "list"]);
    snapshot("node-list.txt", &table);
    snapshot("node-list-wide.txt", &seen(&sandbox, &["node", "list", "-o", "wide"]));
}

#[test]
fn a_long_name_is_cut_at_a_terminal_alone() {
    let sandbox = cluster();
    let name = "a-node-with-a-name-as-long-as-its-owner-is-proud-of-it";
    sandbox.register(name, None, "");
    common::is_cut_at_a_terminal_alone(&env(&sandbox), &["node", "list"], name);
}

#[test]
fn node_inspect_prints_the_snapshots() {
    let sandbox = cluster();
    // The other nodes are among the screens at a terminal, which `screens` compares with a pipe's.
    let names = "worker-2 worker-3 foreign gone odd stray off-at-night wrong-node-ip";
    let inspect = |name| seen(&sandbox, &["node", "inspect", name]);
    let texts: Vec<String> = names.split(' ').map(inspect).collect();
    texts.iter().for_each(|text| fits(text));
    snapshot("node-inspect.txt", &texts.join("\n"));
    snapshot("node-inspect.yaml", &seen(&sandbox, &["node", "inspect", "worker-3", "-o", "yaml"]));
}

/// `metal-1` initialised, `metal-2` new and cancelled, `metal-3` gone, and a Cloud node beside them.
fn with_dedicated() -> Sandbox {
    let sandbox = common::networked(1).robot(3).start();
    sandbox.ccm(&["node", "sync", "metal-1", "metal-3"]).with_code(0);
    let robot = sandbox.robot();
    let number = |name| robot.number_of(name).unwrap();
    robot.edit(number("metal-2"), |server| server.cancelled = true);
    robot.remove(number("metal-3"));
    sandbox
}

#[test]
fn node_commands_show_dedicated_servers() {
    let sandbox = with_dedicated();
    let text = seen_all(
        &sandbox,
        &[
            "node list -o wide",
            "node inspect metal-1",
            "node inspect metal-2",
            "node inspect metal-3",
        ],
    );
    snapshot("node-dedicated.txt", &text);
    let inspected = sandbox.ccm(&["node", "inspect", "metal-2", "-o", "json"]).json();
    let cloud = &inspected["items"][0]["cloud"];
    let number = sandbox.robot().number_of("metal-2");
    for (field, value) in [
        ("kind", json!("DedicatedServer")),
        ("id", json!(number)),
        ("state", json!("ready")),
        ("type", json!("AX41-NVMe")),
        ("location", json!("fsn1")),
        ("dataCenter", json!("fsn1-dc16")),
        ("cancelled", json!(true)),
        ("paidUntil", json!("2027-01-31")),
    ] {
        assert_eq!(cloud[field], value, "{field}: {cloud}");
    }
    // A dedicated server is found by its number, its provider ID and its public address, like a Cloud server.
    let by_name = |name: &str| sandbox.ccm(&["node", "inspect", name]).stdout;
    let metal = sandbox.robot().server(number.unwrap()).unwrap();
    let server = sandbox.servers().remove(0);
    for (name, words) in [
        (
            "metal-2",
            &[
                metal.number.to_string(),
                format!("hrobot://{}", metal.number),
                format!("node/{}", metal.number),
                metal.server_ip.unwrap(),
            ][..],
        ),
        ("worker-1", &[server["id"].to_string()]),
    ] {
        for word in words {
            assert_eq!(by_name(word), by_name(name), "{word}");
        }
    }
}

/// What a failed API does not tell is `?`, with the error on stderr. What the other API tells is shown.
#[test]
fn node_list_shows_the_servers_of_one_api_although_the_other_fails() {
    let sandbox = common::builder().nodes(1).robot(1).start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    let refused = common::with(env(&sandbox), &[("ROBOT_PASSWORD", "another")]);
    let row = |ran: &common::Ran, name: &str| {
        let mut lines = ran.stdout.lines();
        let cells = lines.find(|line| line.starts_with(name)).unwrap().split_whitespace();
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    let is = |env: &common::Env, unknown: &str, known: &str, why: &str| {
        let ran = ccm(env, &["node", "list"]);
        assert_eq!((ran.code, ran.stderr.lines().count()), (1, 1), "{ran:?}");
        ran.warns(why);
        assert_eq!(row(&ran, unknown)[2..4], ["?", "?"], "{ran:?}");
        assert!(!row(&ran, known).contains(&"?".to_owned()), "{ran:?}");
        let items = ccm(env, &["node", "list", "-o", "json"]).json();
        for item in items["items"].as_array().unwrap() {
            let is_known = item["object"]["name"] == known;
            assert_eq!(item["cloud"].is_null(), !is_known, "{item}");
            assert_eq!(item["error"].is_null(), is_known, "{item}");
        }
        for (name, code) in [(unknown, 1), (known, 0)] {
            let ran = ccm(env, &["node", "inspect", name]);
            assert_eq!(ran.code, code, "{ran:?}");
            assert_eq!(ran.stderr.contains(why), code == 1, "{ran:?}");
        }
        ccm(env, &["node", "sync", "--dry-run"]).with_code(1).warns(why);
        ccm(env, &["run", "--dry-run"]).with_code(1).warns(why);
    };
    is(&refused, "metal-1", "worker-1", "ROBOT_PASSWORD");
    sandbox.robot().end_block();
    for (half, unknown, known) in
        [(Half::Robot, "metal-1", "worker-1"), (Half::Hetzner, "worker-1", "metal-1")]
    {
        sandbox.stop(half);
        is(&env(&sandbox), unknown, known, "onnection refused");
        sandbox.resume(half).unwrap();
    }
}

#[test]
fn node_sync_syncs_the_cloud_s_nodes_while_robot_fails() {
    let builder = common::builder().nodes(2).robot(1).heartbeats(false);
    let sandbox = builder.start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    for name in ["worker-1", "worker-2"] {
        sandbox.set_power(name, false);
    }
    sandbox.kubelets().expire();
    sandbox.stop(Half::Robot);
    let ran = sandbox.ccm(&["node", "sync"]).with_code(1);
    assert!(sandbox.has_taint("worker-1", common::SHUTDOWN), "{ran:?}");
}

#[test]
fn node_sync_prints_the_snapshots() {
    let sandbox = cluster();
    let before = sandbox.nodes();
    let mut text = seen_all(
        &sandbox,
        &[
            "node sync --dry-run worker-1 worker-3",
            "node sync --dry-run --detailed-exitcode worker-1",
            "node sync --dry-run --detailed-exitcode worker-2",
            "node sync --dry-run wrong-node-ip",
        ],
    );
    snapshot(
        "node-sync-dry-run.json",
        &seen(&sandbox, &["node", "sync", "worker-1", "--dry-run", "-o", "json"]),
    );
    assert_eq!(sandbox.nodes(), before, "nothing was written");
    text +=
        &seen_all(&sandbox, &["node sync worker-1 worker-2", "node sync worker-1", "node sync"]);
    fits(&text);
    snapshot("node-sync.txt", &text);
}

#[test]
fn run_dry_run_writes_nothing() {
    let sandbox = cluster();
    let before = sandbox.nodes();
    // Some are blocked.
    let ran = sandbox.ccm(&["run", "--dry-run"]).with_code(1);
    ran.prints("- node/worker-1  remove taint uninitialized\n");
    snapshot("run-dry-run.txt", &ran.stdout);
    assert_eq!(sandbox.nodes(), before);
    let writes = sandbox.calls().count(|call| call.is_write() && call.path.ends_with("worker-1"));
    assert_eq!(writes, 0);
}

#[test]
fn sync_touches_only_the_nodes_that_were_named() {
    let sandbox = cluster();
    let others = |sandbox: &Sandbox| {
        let nodes = sandbox.nodes();
        nodes.into_iter().filter(|node| node["metadata"]["name"] != "worker-1").collect::<Vec<_>>()
    };
    let before = others(&sandbox);
    sandbox.ccm(&["node", "sync", "worker-1"]).with_code(0);
    assert_eq!(others(&sandbox), before);
    assert!(common::is_initialised(&sandbox.node("worker-1")));
}
