//! Nodes are deleted only when their servers certainly do not exist. The binary runs against the sandbox.

use crate::common::in_flight::InFlight;
use crate::common::{
    self, Cluster, Daemon, SHUTDOWN, Simulate, answer, ccm, on, run_in_parallel, second_page,
    wait_until,
};
use ccm::provider::clock;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Starts a sandbox with this number of initialised nodes, which change only when somebody changes them.
fn initialised(nodes: usize) -> Arc<Sandbox> {
    let sandbox = common::builder().nodes(nodes).heartbeats(false).simulated();
    sandbox.converge();
    sandbox
}

/// Starts such a sandbox over sockets, with programs as processes.
fn over_sockets(nodes: usize) -> Sandbox {
    let sandbox = common::socket_cluster(nodes);
    sandbox.converge();
    sandbox
}

/// The server is deleted, and the node controller of Kubernetes has noticed that the kubelet is silent.
fn delete_server(sandbox: &Sandbox, name: &str) {
    sandbox.delete_server(name);
    sandbox.kubelets().expire();
    assert!(!sandbox.is_ready(name));
}

fn deletions(sandbox: &Sandbox) -> usize {
    sandbox.calls().count(|call| call.method == "DELETE")
}

#[test]
fn a_node_whose_server_was_deleted_is_deleted_with_an_event() {
    let sandbox = initialised(3);
    let _daemon = sandbox.daemon(&[]);
    delete_server(&sandbox, "worker-2");
    wait_until("the node to go", || !sandbox.has_node("worker-2"));
    assert!(sandbox.has_node("worker-1") && sandbox.has_node("worker-3"));
    sandbox.wait_for_event("worker-2", "DeletingNode", &[]);
    let calls = sandbox.calls().calls();
    let deletion = calls.iter().find(|call| call.method == "DELETE").unwrap();
    let preconditions = deletion.json().unwrap()["preconditions"].clone();
    assert!(preconditions["uid"].is_string() && preconditions["resourceVersion"].is_string());
}

#[test]
fn a_node_whose_server_is_off_is_tainted_until_it_is_ready_again() {
    let sandbox = initialised(2);
    let id = sandbox.server_id("worker-1");
    let _daemon = sandbox.daemon(&[]);
    sandbox.edit_node("worker-1", |node| {
        node["spec"]["taints"] = json!([{ "key": "mine", "effect": "NoSchedule" }]);
    });
    sandbox.cloud().set_power(id, false);
    sandbox.kubelets().expire();
    wait_until("the taint", || sandbox.has_taint("worker-1", SHUTDOWN));
    assert!(!sandbox.has_taint("worker-2", SHUTDOWN));
    sandbox.cloud().set_power(id, true);
    sandbox.kubelets().heartbeat();
    wait_until("the taint to go", || !sandbox.has_taint("worker-1", SHUTDOWN));
    assert!(sandbox.has_taint("worker-1", "mine"), "others' taints stay");
    assert_eq!(deletions(&sandbox), 0);
}

#[test]
fn nodes_are_tainted_at_the_same_time_and_deleted_one_after_the_other() {
    let sandbox = over_sockets(9);
    for n in 1..=5 {
        let id = sandbox.server_id(&format!("worker-{n}"));
        sandbox.cloud().set_power(id, false);
    }
    for n in 6..=8 {
        delete_server(&sandbox, &format!("worker-{n}"));
    }
    let patches = InFlight::of(&sandbox, "PATCH", 5, 5);
    let deletes = InFlight::of(&sandbox, "DELETE", 2, 1);
    // The test runs in real time, because a write that waits for others must not be too late.
    let env = common::real_time(&sandbox);
    let ran = ccm(&env, &["run", "--once"]);
    assert_eq!((patches.at_most(), deletes.at_most()), (5, 1), "{ran:?}");
    for n in 1..=5 {
        assert!(sandbox.has_taint(&format!("worker-{n}"), SHUTDOWN), "{ran:?}");
    }
    assert_eq!(deletions(&sandbox), 3);
    assert!(sandbox.has_node("worker-9"));
}

/// Everything that is not a complete list and the API's own 404 is a doubt.
#[test]
fn a_node_stays_when_anything_about_its_server_is_unclear() {
    let one = "/v1/servers/*";
    let list = "/v1/servers";
    let error = Effect::hetzner_error;
    #[rustfmt::skip] // A case is a paragraph.
    let cases: Vec<(&str, Rule)> = vec![
        ("401", Rule::new(error(401, "unauthorized", "no")).path(one)),
        ("403", Rule::new(error(403, "forbidden", "no")).path(one)),
        ("429", Rule::new(Effect::hetzner_rate_limit()).path(one)),
        ("500", Rule::new(error(500, "server_error", "no")).path(one)),
        ("503", Rule::new(error(503, "maintenance", "no")).path(one)),
        ("404 of another kind", Rule::new(error(404, "gone_fishing", "no")).path(one)),
        ("a proxy's 404", Rule::new(Effect::proxy_not_found()).path(one)),
        ("a reset", Rule::new(Effect::Reset).path(one)),
        ("silence", Rule::new(Effect::Slow(Duration::from_secs(60))).path(one)),
        ("malformed", Rule::new(Effect::other_json()).path(one)),
        ("the list: 500", Rule::new(error(500, "server_error", "no")).path(list)),
        ("the list: cut off", Rule::new(Effect::cut_off()).path(list)),
        ("the list: malformed", Rule::new(Effect::Malformed).path(list)),
        ("the list: page 2", {
            let page_2 = |request: &Request| request.query("page") == Some("2");
            Rule::new(error(500, "server_error", "no"))
                .path(list)
                .when(page_2)
        }),
        ("the list: empty", {
            let body = json!({ "servers": [], "meta": { "pagination": {
                "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": 0,
            } } });
            Rule::new(answer(200, &body)).path(list)
        }),
    ];
    run_in_parallel(cases, |(name, rule)| {
        stays_until_it_is_corrected(name, rule.half(Half::Hetzner))
    });
}

/// A list that counts more servers than it shows proves nothing about the servers that it does not show.
#[test]
fn a_list_with_fewer_servers_than_it_counts_is_incomplete() {
    for (per_page, last, total) in [(50, json!(null), 120), (50, json!(1), 120), (2, json!(1), 100)]
    {
        let sandbox = initialised(2);
        delete_server(&sandbox, "worker-2");
        let servers = sandbox.servers();
        let first = servers.iter().find(|server| server["name"] == "worker-1");
        let numbered = |n: u64| {
            let mut server = first.unwrap().clone();
            if n > 0 {
                server["id"] = json!(5_000_000 + n);
                server["name"] = json!(format!("other-{n}"));
            }
            server
        };
        let body = json!({
            "servers": (0..per_page).map(numbered).collect::<Vec<Value>>(),
            "meta": { "pagination": {
                "page": 1, "per_page": per_page, "previous_page": null, "next_page": null,
                "last_page": last, "total_entries": total,
            } },
        });
        let effect = answer(200, &body);
        sandbox.fault(on("/v1/servers", effect));
        let ran = sandbox.ccm(&["run", "--once"]);
        assert_eq!(ran.code, 1, "{body}: {ran:?}");
        ran.warns("so ccm does not use the answer");
        assert!(sandbox.has_node("worker-2") && deletions(&sandbox) == 0);
    }
}

fn stays_until_it_is_corrected(name: &str, rule: Rule) {
    let sandbox = initialised(2);
    second_page(&sandbox);
    sandbox.converge();
    let daemon = sandbox.daemon(&[]);
    let polls = |since| sandbox.calls_of(since, "/api/v1/nodes");
    let start = sandbox.mark();
    wait_until("the first ticks", || polls(start) > 3);
    let rule = sandbox.fault(rule);
    delete_server(&sandbox, "worker-2");
    let mark = sandbox.mark();
    wait_until("some ticks", || sandbox.faults().hits(rule) > 0 && polls(mark) > 6);
    assert!(sandbox.has_node("worker-2") && deletions(&sandbox) == 0, "{name}:\n{}", daemon.log());
    sandbox.faults().remove(rule);
    wait_until("the node to go when the doubt is over", || !sandbox.has_node("worker-2"));
    assert_eq!(sandbox.nodes().len(), 2, "{name}");
}

/// A job that runs every minute is only heard of by its exit code.
#[test]
fn an_unclear_answer_fails_the_pass() {
    let one = "/v1/servers/*";
    let error = Effect::hetzner_error;
    let other_server = json!({ "server": { "id": 1 } });
    let cases = vec![
        ("500", error(500, "server_error", "no")),
        ("404 of another kind", error(404, "gone_fishing", "no")),
        ("410", error(410, "not_found", "no")),
        ("another server", answer(200, &other_server)),
    ];
    run_in_parallel(cases, |(name, effect)| {
        let sandbox = initialised(2);
        delete_server(&sandbox, "worker-2");
        sandbox.edit_node("worker-1", |node| {
            for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                condition["status"] = json!("True");
            }
        });
        let rule = Rule::new(effect).path(one).half(Half::Hetzner);
        sandbox.fault(rule);
        let once = sandbox.ccm(&["run", "--once"]);
        let said = |text: &str| once.stderr.contains(text);
        assert!(
            once.code == 1 && said("WARN") && said("is not clear") && said(", 1 failed"),
            "{name}: {once:?}"
        );
        assert!(sandbox.has_event("worker-2", "InstanceLookupFailed"));
        let sync = sandbox.ccm(&["node", "sync"]);
        let said = |text: &str| sync.stdout.contains(text);
        assert!(
            sync.code == 1 && said("node/worker-2  failed: ") && said(", 1 failed"),
            "{name}: {sync:?}"
        );
        let dry = sandbox.ccm(&["node", "sync", "--dry-run"]);
        let said = |text: &str| dry.stdout.contains(text);
        assert!(
            dry.code == 1 && said("node/worker-2  blocked: ") && said(", 1 blocked"),
            "{name}: {dry:?}"
        );
        assert!(sandbox.has_node("worker-2"), "{name}");
    });
}

#[test]
fn another_project_s_token_fails_a_pass() {
    let sandbox = initialised(2);
    for name in ["worker-1", "worker-2"] {
        sandbox.set_power(name, false);
    }
    sandbox.kubelets().expire();
    let foreign = common::foreign(&sandbox);
    for (words, failed) in [
        (&["run", "--once"][..], ", 2 failed"),
        (&["node", "sync"], ", 2 failed"),
        (&["node", "sync", "--dry-run"], ", 2 blocked"),
    ] {
        let ran = ccm(&foreign, words);
        let said = |text: &str| ran.stdout.contains(text) || ran.stderr.contains(text);
        assert!(
            ran.code == 1 && said("--node-deletion-guard=false") && said(failed),
            "{words:?}: {ran:?}"
        );
    }
    assert_eq!(deletions(&sandbox), 0);
}

/// The API server refuses the write. The refusal is reported once, and the write is tried less and less often.
#[test]
fn a_taint_that_cannot_be_removed_is_retried_with_a_growing_backoff() {
    let sandbox = initialised(2);
    let rule = on("PATCH /api/v1/nodes/*", Effect::kubernetes_status(403, "Forbidden", "no"));
    let rule = sandbox.fault(rule);
    sandbox.edit_node("worker-1", |node| {
        node["spec"]["taints"] = json!([{ "key": SHUTDOWN, "effect": "NoSchedule" }]);
    });
    let mark = sandbox.mark();
    let daemon = sandbox.daemon(&[]);
    let patches = || sandbox.count_since(mark, |call| call.method == "PATCH");
    wait_until("two tries", || patches() >= 2);
    // Each poll is a tick of one of two controllers, five seconds apart. So 120 polls take five minutes.
    let polls = || sandbox.calls_of(mark, "/api/v1/nodes");
    wait_until("many polls", || polls() >= 120);
    assert!(patches() <= 12, "{} tries in {} polls", patches(), polls());
    let told = daemon.log().matches("(TaintingNodeFailed)").count();
    assert_eq!(told, 1, "{}", daemon.log());
    assert!(sandbox.has_event("worker-1", "TaintingNodeFailed"));
    sandbox.faults().remove(rule);
    wait_until("the taint to go", || !sandbox.has_taint("worker-1", SHUTDOWN));
}

#[test]
fn another_project_s_token_deletes_nothing() {
    let sandbox = initialised(3);
    for name in ["worker-1", "worker-2", "worker-3"] {
        sandbox.set_power(name, false);
    }
    sandbox.kubelets().expire();
    let foreign = common::foreign(&sandbox);
    let daemon = Daemon::start(&foreign, &[]);
    daemon.logs("the token probably belongs to another project");
    sandbox.wait_for_event("worker-1", "PossibleNodeDeletion", &[]);
    assert_eq!((deletions(&sandbox), sandbox.nodes().len()), (0, 3));
    drop(daemon);
    // Turned off, it does as it is told.
    let _daemon = Daemon::start(&foreign, &["--node-deletion-guard=false"]);
    wait_until("all nodes to go", || sandbox.nodes().is_empty());
}

/// The node is written to by its kubelet, or made anew, in the moment before it is deleted.
#[test]
fn a_node_that_was_renewed_in_between_stays() {
    for made_anew in [false, true] {
        let sandbox = initialised(3);
        delete_server(&sandbox, "worker-2");
        let cluster = Arc::clone(sandbox.cluster());
        let renew = move |_: &Request| {
            if made_anew {
                let mut node: Value = cluster.get("nodes", None, "worker-2").unwrap();
                cluster.delete("nodes", None, "worker-2");
                node["metadata"] = json!({ "name": "worker-2" });
                node["spec"] = json!({});
                cluster.create("nodes", None, node);
            } else {
                cluster.edit("nodes", None, "worker-2", |node| {
                    node["metadata"]["labels"]["alive"] = json!("yes")
                });
            }
        };
        let rule =
            Rule::new(Effect::before(renew)).half(Half::Kubernetes).method("DELETE").times(1);
        sandbox.fault(rule);
        let ran = sandbox.ccm(&["run", "--once"]);
        assert_eq!((ran.code, deletions(&sandbox)), (1, 1), "{}", ran.stderr);
        assert!(sandbox.has_node("worker-2"));
        assert!(sandbox.has_event("worker-2", "DeletingNodeFailed"));
    }
}

#[test]
fn nodes_that_are_not_ours_stay_whatever_their_state() {
    let sandbox = initialised(2);
    for (name, provider_id) in [
        ("foreign", "aws:///eu-central-1a/i-0abc"),
        ("odd", "ccm-from-scratch://not-a-number"),
        ("other-profile", "hcloud://1"),
        ("without", ""),
    ] {
        sandbox.register(name, None, "");
        sandbox.edit_node(name, |node| {
            node["spec"] = json!({ "providerID": provider_id });
            node["status"]["conditions"] = json!([]);
        });
    }
    let before = sandbox.nodes().len();
    sandbox.ccm(&["run", "--once"]);
    assert_eq!((sandbox.nodes().len(), deletions(&sandbox)), (before, 0));
    sandbox.register_node(NodeSpec {
        name: "robot".into(),
        provider_id: Some("hcloud://bm-1".into()),
        ..Default::default()
    });
    sandbox.remove_conditions("robot");
    sandbox.ccm(&["run", "--once", "--cloud-provider=hcloud"]);
    assert!(sandbox.has_node("robot") && sandbox.has_node("foreign"));
}

#[test]
fn not_ready_nodes_cost_few_calls() {
    let sandbox = initialised(2);
    sandbox.remove_conditions("worker-1");
    let mark = sandbox.mark();
    let _daemon = sandbox.daemon(&["--node-status-update-frequency=10h"]);
    // In a minute the server is read at once and after 15 seconds. The next reads come after 45 and 105 seconds.
    wait_until("a minute's polls", || sandbox.calls_of(mark, "/api/v1/nodes") >= 24);
    let asked = sandbox.count_since(mark, |call| call.path.starts_with("/v1/servers/"));
    assert!((1..=4).contains(&asked), "asked {asked} times");
}

#[test]
fn many_nodes_that_are_not_ready_share_one_list() {
    let sandbox = initialised(20);
    for n in 1..=20 {
        sandbox.remove_conditions(&format!("worker-{n}"));
    }
    let mark = sandbox.mark();
    sandbox.converge();
    let is_such = |call: &Call| call.half == Half::Hetzner && call.path.starts_with("/v1/servers");
    let hetzner = sandbox.count_since(mark, is_such);
    assert_eq!(hetzner, 1, "one page, for both controllers");
}

/// A list of five pages costs five calls. It is read every 15 s at most, however many servers are needed, and whenever
/// they are due.
#[test]
fn nodes_that_are_not_ready_share_a_list_for_some_time_in_a_large_project() {
    const NODES: usize = 40;
    let sandbox = initialised(NODES);
    for n in 0..200 {
        sandbox.create_server(&format!("other-{n}"));
    }
    let flags = ["--node-status-update-frequency=10h", "--controllers=*,-service"];
    let _daemon = sandbox.daemon(&flags);
    let mark = sandbox.mark();
    let count = |path: &str| sandbox.calls_of(mark, path);
    let polls = || count("/api/v1/nodes");
    // Four at each look.
    for four in (1..=NODES).collect::<Vec<_>>().chunks(4) {
        let before = polls();
        for n in four {
            sandbox.remove_conditions(&format!("worker-{n}"));
        }
        wait_until("the next poll", || polls() > before);
    }
    let (mark, begun) = (sandbox.mark(), clock::now());
    let before = polls();
    wait_until("polls", || polls() >= before + 60);
    let seconds = common::seconds_since(&sandbox, begun);
    let calls = sandbox.calls().calls_since(mark);
    let calls = calls.iter().filter(|call| call.half == Half::Hetzner);
    let (lists, others): (Vec<_>, Vec<_>) = calls.partition(|call| call.path == "/v1/servers");
    let at_most = 5 * ((seconds / 15.0).ceil() as usize + 1);
    let pages = lists.len();
    assert!((5..=at_most).contains(&pages), "{pages} in {seconds:.0} s");
    assert!(others.is_empty(), "one by one: {}", others.len());
}

#[test]
fn a_controller_that_is_turned_off_does_nothing() {
    let sandbox = initialised(2);
    delete_server(&sandbox, "worker-1");
    let ran = sandbox.ccm(&["run", "--once", "--controllers=*,-cloud-node-lifecycle"]);
    assert_eq!((ran.code, deletions(&sandbox)), (0, 0), "{}", ran.stderr);
}

#[test]
fn commands_show_a_deletion_and_sync_carries_it_out() {
    let sandbox = initialised(3);
    delete_server(&sandbox, "worker-2");
    let off = sandbox.join_node("off");
    sandbox.ccm(&["node", "sync", "off"]).with_code(0);
    sandbox.cloud().set_power(off, false);
    sandbox.kubelets().expire();
    let list = sandbox.ccm(&["node", "list"]).stdout;
    for (name, state, end) in
        [("worker-2", "missing", "delete"), ("off", "NotReady", "shutdown taint")]
    {
        let row = list.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(row.contains(state) && row.ends_with(end), "{list}");
    }
    let inspect = sandbox.ccm(&["node", "inspect", "worker-2"]).stdout;
    assert!(inspect.contains("- delete node (server "), "{inspect}");
    let dry = sandbox.ccm(&["node", "sync", "--dry-run", "--detailed-exitcode"]);
    assert_eq!((dry.code, deletions(&sandbox)), (3, 0), "{dry:?}");
    let json = sandbox.ccm(&["node", "sync", "worker-2", "--dry-run", "-o", "json"]).json();
    assert_eq!(json["items"][0]["changes"][0]["change"], "DeleteNode");
    let synced = sandbox.ccm(&["node", "sync"]).with_code(0);
    let end = "2 changed, 2 unchanged, 0 failed\n";
    assert!(synced.stdout.ends_with(end), "{synced:?}");
    assert!(!sandbox.has_node("worker-2") && sandbox.has_taint("off", SHUTDOWN));
}
