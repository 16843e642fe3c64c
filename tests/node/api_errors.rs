//! Nodes while something fails: kills, conflicts, outages, wrong lists, and budgets that are used up.

use crate::common::library::{LONG, SandboxAccess};
use crate::common::{
    self, Cluster, Daemon, LIMIT, STALE_CACHE, Simulate, UNINITIALIZED, addresses, all_initialised,
    answer, ccm, env, events, hetzner_calls, is_initialised, is_lease, needs_simulation, on,
    run_in_parallel, second_page, simulated_cluster, socket_cluster, wait_until, with, writes,
};
use ccm::controllers::node::{NodeController, NodeControllerSettings, NodePlan};
use ccm::controllers::{Controller, Selection};
use ccm::provider::{Reason, Urgency};
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kills the daemon at its n-th write, before or after the write happened, and starts another one.
#[test]
fn a_node_is_initialised_once_when_the_daemon_is_killed_at_any_write() {
    std::thread::scope(|scope| {
        for n in 1..=3 {
            for after in [false, true] {
                scope.spawn(move || killed_at_write(n, after));
            }
        }
    });
}

fn killed_at_write(n: u64, after: bool) {
    let sandbox = socket_cluster(1);
    let of_the_controller = |request: &Request| !is_lease(&request.path);
    let calls = |rule: Rule| {
        let rule = rule.half(Half::Kubernetes).writes();
        rule.when(of_the_controller).nth(n)
    };
    let (daemon, rule) = Daemon::killed_at(&sandbox, &env(&sandbox), &[], !after, calls);
    assert!(!daemon.ended().success());
    sandbox.faults().remove(rule);

    let second = sandbox.daemon(&[]);
    sandbox.wait_for_nodes();
    if n == 1 {
        wait_until("its event", || !events(&sandbox, "worker-1").is_empty());
    }
    drop(second);
    sandbox.converge();
    let worker = sandbox.node("worker-1");
    let expected = ["Hostname worker-1", "ExternalIP 203.0.113.1"];
    assert_eq!(addresses(&worker), expected, "write {n}, {after}");
    // A request that had left before the kill is carried out all the same, so from
    // the second write on the first daemon's work counts, and its event may be lost.
    let told = events(&sandbox, "worker-1");
    assert!(told.len() <= 1 && told.iter().all(|(_, count)| *count == 1), "write {n}: {told:?}");
    assert!(n > 1 || told.len() == 1, "write {n}: {told:?}");
}

#[test]
fn a_node_that_changed_since_it_was_read_is_read_again_and_planned_again() {
    let sandbox = simulated_cluster(1);
    if needs_simulation(&sandbox, STALE_CACHE) {
        return;
    }
    sandbox.cluster().freeze_cache(true);
    sandbox.edit_node("worker-1", |node| {
        node["metadata"]["labels"]["mine"] = json!("kept");
        node["spec"]["taints"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "key": "mine", "effect": "NoExecute" }));
    });
    // Another controller may read the node as it is now before this one looks, and what was read long ago is read again.
    let flags = ["--controllers=cloud-node", "--node-sync-interval=1h"];
    let _daemon = sandbox.daemon(&flags);
    sandbox.wait_for_node("worker-1");
    assert!(sandbox.calls().count(|call| call.status == Some(409)) >= 1);
    let worker = sandbox.node("worker-1");
    assert_eq!(worker["metadata"]["labels"]["mine"], "kept");
    let taints: Vec<&Value> =
        worker["spec"]["taints"].as_array().unwrap().iter().map(|t| &t["key"]).collect();
    assert!(
        taints.contains(&&json!("mine")) && !taints.contains(&&json!(UNINITIALIZED)),
        "{taints:?}"
    );
}

#[test]
fn a_node_that_never_stops_changing_is_left_for_later() {
    let sandbox = simulated_cluster(2);
    let cluster = Arc::clone(sandbox.cluster());
    let change = move |_: &Request| {
        cluster.edit("nodes", None, "worker-1", |node| {
            let count = node["metadata"]["annotations"]["count"]
                .as_str()
                .map_or(0, |text| text.parse().unwrap());
            node["metadata"]["annotations"]["count"] = json!((count + 1).to_string());
        });
    };
    sandbox.fault(on("PATCH /api/v1/nodes/worker-1/status", Effect::before(change)));
    // The real time is used because the list of servers could grow too old between two tries in scaled time.
    let unscaled = common::real_time(&sandbox);
    let ran = ccm(&unscaled, &["run", "--once"]).with_code(1);
    assert!(
        ran.stderr.contains("node/worker-1") && ran.stderr.contains("has been modified"),
        "{}",
        ran.stderr
    );
    assert!(
        is_initialised(&sandbox.node("worker-2")),
        "one object's trouble never stops the others"
    );
    let tries =
        sandbox.calls().count(|call| call.path.ends_with("worker-1/status") && call.is_write());
    assert!((2..=5).contains(&tries), "{tries} tries");
}

#[test]
fn a_used_up_budget_is_respected_and_waiting_work_is_reported() {
    let sandbox = simulated_cluster(2);
    let rule = sandbox.fault(Rule::new(Effect::hetzner_rate_limit()).half(Half::Hetzner));
    // In this time scale the first pause lasts 0.4 s, which is ten ticks.
    let scaled = common::at_scale(&sandbox, 0.2);
    // The others have questions of their own, which they would ask first at this very moment.
    let daemon =
        Daemon::start(&scaled, &["--node-sync-interval=200ms", "--controllers=cloud-node"]);
    daemon.logs("2 nodes wait: GET");
    daemon.logs("rate_limit_exceeded");
    wait_until("a second try", || sandbox.faults().hits(rule) == 2);
    sandbox.faults().remove(rule);
    // The last poll between the first and the second call to Hetzner belongs to the second call.
    let calls = sandbox.calls().calls();
    let of_hetzner = |call: &Call| call.half == Half::Hetzner;
    let first = calls.iter().position(of_hetzner).unwrap();
    let paused = calls[first + 1..].iter().take_while(|call| !of_hetzner(call));
    let polls = paused.filter(|call| call.path == "/api/v1/nodes").count();
    assert!(polls >= 3, "the cluster was polled {polls} times in the pause");
    sandbox.wait_for_nodes();
    daemon.logs("Kubernetes and the cloud answer again");
    daemon.logged("WARN", 1);
}

#[test]
fn refreshes_wait_and_new_nodes_do_not_while_few_calls_are_left() {
    let sandbox = simulated_cluster(1);
    let daemon = sandbox.daemon(&["--node-status-update-frequency=5s", "--node-sync-interval=2s"]);
    sandbox.wait_for_nodes();
    sandbox.cloud().set_rate_limit(sandbox.project(), 3600, 20);
    // The refresh after this answer sees how little is left.
    daemon.logs("postponed");
    let mark = sandbox.mark();
    let polls = |sandbox: &Sandbox| sandbox.calls_of(mark, "/api/v1/nodes");
    wait_until("ten more polls of the cluster", || polls(&sandbox) > 10);
    let asked = sandbox.count_since(mark, |call| call.half == Half::Hetzner);
    assert_eq!(asked, 0, "refreshes can wait");
    sandbox.join_node("late");
    sandbox.wait_for_node("late");

    sandbox.cloud().set_rate_limit(sandbox.project(), 3600, 3600);
    sandbox.join_node("later");
    daemon.logs("cloud-node-controller: ccm refreshes its lists again");
    let log = daemon.log();
    let of_nodes = |text: &str| {
        let lines = log.lines().filter(|line| line.contains("INFO"));
        lines.filter(|line| line.contains("cloud-node-controller: ") && line.contains(text)).count()
    };
    assert_eq!(
        (of_nodes("postponed"), of_nodes("ccm refreshes its lists again")),
        (1, 1),
        "each is told once:\n{log}"
    );
    assert!(
        !log.contains("WARN") && !log.contains("answer again"),
        "nothing had stopped answering:\n{log}"
    );
}

/// Returns answers that an API may give instead of its list.
fn bad_answers(half: Half) -> Vec<(&'static str, Effect)> {
    let error = match half {
        Half::Hetzner => Effect::hetzner_error(500, "server_error", "sorry"),
        Half::Kubernetes => Effect::kubernetes_status(500, "InternalError", "sorry"),
        Half::Robot => Effect::robot_error(500, "INTERNAL_ERROR", "sorry"),
    };
    let unavailable = match half {
        Half::Hetzner => Effect::hetzner_error(503, "maintenance", "later"),
        Half::Kubernetes => Effect::kubernetes_busy(1),
        Half::Robot => Effect::robot_maintenance(),
    };
    vec![
        ("an error", error),
        ("unavailable", unavailable),
        ("a reset", Effect::Reset),
        ("no answer", Effect::AnswerLost),
        ("malformed", Effect::Malformed),
        ("cut off", Effect::cut_off()),
        ("cut off in chunks", Effect::cut_off_chunked()),
        ("a web page", Effect::html()),
        ("another document", Effect::other_json()),
        ("a proxy's 404", Effect::proxy_not_found()),
        ("a gateway's time-out", Effect::gateway_timeout()),
        ("silence", Effect::Slow(LIMIT * 2)),
    ]
}

/// Page 2 of the servers, or the list of nodes, goes wrong until it is mended.
fn survives(half: Half, name: &str, effect: Effect) {
    let sandbox = simulated_cluster(2);
    second_page(&sandbox);
    let rule = Rule::new(effect).half(half);
    let rule = match half {
        Half::Hetzner => {
            rule.path("/v1/servers").when(|request| request.query("page") == Some("2"))
        }
        Half::Kubernetes => rule.path("/api/v1/nodes"),
        Half::Robot => rule.path("/server"),
    };
    let rule = sandbox.fault(rule);
    let daemon = sandbox.daemon(&[]);
    daemon.logs("WARN");
    let (written, log) = (writes(&sandbox), daemon.log());
    assert_eq!(written, Vec::<String>::new(), "{half}, {name}: {log}");
    sandbox.faults().remove(rule);
    sandbox.wait_for_nodes();
    daemon.logs("Kubernetes and the cloud answer again");
    daemon.logged("WARN", 1);
}

#[test]
fn a_wrong_list_of_servers_leads_to_no_wrong_write() {
    run_in_parallel(bad_answers(Half::Hetzner), |(name, effect)| {
        survives(Half::Hetzner, name, effect)
    });
}

#[test]
fn a_wrong_list_of_nodes_leads_to_no_wrong_write() {
    run_in_parallel(bad_answers(Half::Kubernetes), |(name, effect)| {
        survives(Half::Kubernetes, name, effect)
    });
}

/// Faults of all kinds happen at random in both APIs. The message of a failure contains the seed.
#[test]
fn nodes_are_right_again_after_any_faults() {
    for seed in common::seeds::chosen(1..=6) {
        let sandbox = common::builder().nodes(4).scale(0.05).simulated();
        sandbox.faults().random(seed, 0.3);
        let daemon = sandbox.daemon(&["--node-status-update-frequency=10s"]);
        let state = || format!("seed {seed} does not heal:\n{}", daemon.log());
        common::wait_or(LIMIT * 2, state, || all_initialised(&sandbox));
        sandbox.faults().clear();
        // The daemon releases its Lease at once.
        daemon.signal("-TERM");
        assert!(daemon.ended().success(), "seed {seed}: {}", daemon.log());
        let converged = sandbox.ccm(&["run", "--once"]);
        assert_eq!(converged.code, 0, "seed {seed}: {}", converged.stderr);
        for server in sandbox.servers() {
            let name = server["name"].as_str().unwrap();
            let worker = sandbox.node(name);
            let expected = format!("ccm-from-scratch://{}", server["id"]);
            assert_eq!(worker["spec"]["providerID"], expected, "seed {seed}");
            let ip = server["public_net"]["ipv4"]["ip"].as_str().unwrap();
            let expected = [format!("Hostname {name}"), format!("ExternalIP {ip}")];
            assert_eq!(addresses(&worker), expected, "seed {seed}");
            let synced =
                events(&sandbox, name).iter().filter(|(reason, _)| reason == "Synced").count();
            assert!(synced <= 1, "seed {seed}: {name} was synced {synced} times");
        }
    }
}

/// The node may have become another machine's node meanwhile, which the list does not show.
#[test]
fn a_node_that_changes_until_the_list_is_too_old_is_not_done() {
    let sandbox = simulated_cluster(2);
    let cluster = Arc::clone(sandbox.cluster());
    let change = move |_: &Request| {
        cluster.edit("nodes", None, "worker-1", |node| {
            node["metadata"]["annotations"]["mine"] = json!("changed");
        });
    };
    // A list may be two seconds old, and this write takes four.
    let takes = match sandbox.is_in_memory() {
        true => Duration::from_secs(4),
        false => Duration::from_millis(1200),
    };
    for effect in [Effect::before(change), Effect::Slow(takes)] {
        let first = Rule::new(effect).half(Half::Kubernetes).method("PATCH");
        let first = first.path("/api/v1/nodes/worker-1/status");
        sandbox.fault(first.times(1));
    }
    let slow = with(
        env(&sandbox),
        &[("CCM_TEST_TIME_SCALE", "0.3"), ("HCLOUD_SERVER_CACHE_MAX_AGE", "2s")],
    );
    let ran = ccm(&slow, &["run", "--once"]).with_code(1);
    let why = "node/worker-1: another program changed the node, so ccm must read the list of servers again before it writes to the node";
    ran.warns(why);
    assert!(!is_initialised(&sandbox.node("worker-1")));
    assert!(is_initialised(&sandbox.node("worker-2")));
    sandbox.converge();
    assert!(is_initialised(&sandbox.node("worker-1")));
}

/// A pass that takes longer than a list of servers may be old reads it again on the way.
#[test]
fn a_list_that_grows_old_during_a_pass_is_read_again() {
    let sandbox = simulated_cluster(2);
    let old = sandbox.server_id("worker-2");
    // The server of the second node is replaced while the write to the first node is slow.
    let (cloud, project) = (Arc::clone(sandbox.cloud()), sandbox.project());
    let replace = move |_: &Request| {
        cloud.delete_server(old);
        cloud.create_server(
            project,
            ServerSpec { name: "worker-2".into(), ..ServerSpec::default() },
        );
    };
    let status = "/api/v1/nodes/worker-1/status";
    let first = Rule::new(Effect::before(replace)).method("PATCH");
    sandbox.fault(first.path(status).times(1));
    for path in [status, "/api/v1/nodes/worker-1"] {
        let slow = Effect::Slow(common::lasting(&sandbox, Duration::from_secs(7)));
        let slow = Rule::new(slow).method("PATCH").path(path);
        sandbox.fault(slow.times(1));
    }
    let one_by_one = ["run", "--once", "--concurrent-node-syncs=1"];
    sandbox.ccm(&one_by_one).with_code(0);
    let new = sandbox.server_id("worker-2");
    assert_ne!(new, old);
    let expected = format!("ccm-from-scratch://{new}");
    assert_eq!(sandbox.provider_id("worker-2"), expected);
}

#[test]
fn a_node_that_somebody_deletes_during_the_pass_is_no_failure() {
    let sandbox = simulated_cluster(2);
    let cluster = Arc::clone(sandbox.cluster());
    let take_away = move |_: &Request| {
        cluster.delete("nodes", None, "worker-1");
    };
    let rule = on("PATCH /api/v1/nodes/worker-1/status", Effect::before(take_away));
    sandbox.fault(rule);
    sandbox.converge();
    assert!(is_initialised(&sandbox.node("worker-2")));
}

/// A list without resourceVersions would make writes without a precondition.
#[test]
fn an_object_without_a_version_is_no_answer() {
    let sandbox = simulated_cluster(1);
    let mut node = sandbox.node("worker-1");
    node["metadata"]["resourceVersion"] = json!("");
    let list = json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node] });
    let answer = answer(200, &list);
    sandbox.fault(on("GET /api/v1/nodes", answer));
    sandbox.ccm(&["run", "--once"]).with_code(1).warns("not have the form of this API");
    assert_eq!(writes(&sandbox), Vec::<String>::new());
}

#[test]
fn events_that_cannot_be_written_delay_no_node() {
    let sandbox = socket_cluster(4);
    let slow = on("POST /api/v1/namespaces/default/events", Effect::Slow(LIMIT));
    let slow = sandbox.fault(slow);
    let real_time = common::real_time(&sandbox);
    let _daemon = Daemon::start(&real_time, &["--node-sync-interval=200ms"]);
    wait_until("the first event", || sandbox.faults().hits(slow) == 1);
    let begun = Instant::now();
    sandbox.wait_for_nodes();
    sandbox.join_node("late");
    sandbox.wait_for_node("late");
    assert!(begun.elapsed().as_secs() < 7, "no node waits for an event, which takes eight seconds");
    assert_eq!(sandbox.faults().hits(slow), 1);
}

#[test]
fn an_outage_is_asked_about_ever_less_often() {
    let sandbox = simulated_cluster(1);
    let away = Rule::new(Effect::hetzner_error(500, "server_error", "sorry")).half(Half::Hetzner);
    sandbox.fault(away);
    let _daemon = sandbox.daemon(&[]);
    let polls = || sandbox.calls().count(|call| call.path == "/api/v1/nodes");
    // In two minutes the API is called at once and after 5, 15, 35 and 75 seconds, with three tries each.
    wait_until("two minutes of ticks", || polls() >= 24);
    assert!(hetzner_calls(&sandbox) <= 6 * 3, "{} calls", hetzner_calls(&sandbox));
}

fn provider_id(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.node(name)["spec"]["providerID"].clone()
}

fn lists_of_servers(sandbox: &Sandbox) -> usize {
    sandbox.calls().count(|call| call.half == Half::Hetzner && call.path == "/v1/servers")
}

/// Returns a controller whose lists of servers are always new.
fn controller() -> NodeController {
    NodeController::new(NodeControllerSettings {
        sync_interval: Duration::from_secs(5),
        status_update_frequency: LONG,
        server_cache_max_age: LONG,
    })
}

/// Replaces a machine. The new node and the new server have the same names as the old ones. Returns the ID of
/// the new server.
fn replaced(sandbox: &Sandbox, node: &str, server: &str) -> u64 {
    let cloud = sandbox.cloud();
    cloud.delete_server(sandbox.server_id(server));
    sandbox.delete_node(node);
    machine(sandbox, node, server)
}

fn machine(sandbox: &Sandbox, node: &str, server: &str) -> u64 {
    let ip = "10.0.0.77";
    let network = sandbox.network_id();
    let spec = ServerSpec {
        name: server.into(),
        networks: vec![(network, Some(ip.parse().unwrap()))],
        ..ServerSpec::default()
    };
    let id = sandbox.cloud().create_server(sandbox.project(), spec);
    sandbox.register_node(NodeSpec {
        name: node.into(),
        server: Some(id),
        internal_ip: Some(ip.into()),
        ..NodeSpec::default()
    });
    id
}

/// The list of servers at hand, however young, may hold the machine that was there before.
#[test]
fn a_provider_id_rests_on_a_list_requested_after_the_node_was_first_seen() {
    let cases = [("by name", "w", "w"), ("by address", "w", "machine-7")];
    run_in_parallel(cases.to_vec(), |(case, name, server)| {
        let sandbox = common::builder().nodes(1).network("10.0.0.0/8").simulated();
        let old = machine(&sandbox, name, server);
        let hour = with(env(&sandbox), &[("HCLOUD_SERVER_CACHE_MAX_AGE", "1h")]);
        let daemon = Daemon::start(&hour, &[]);
        sandbox.wait_for_nodes();
        let wanted = format!("ccm-from-scratch://{old}");
        assert_eq!(provider_id(&sandbox, name), wanted);
        let new = replaced(&sandbox, name, server);
        sandbox.wait_for_node(name);
        let expected = format!("ccm-from-scratch://{new}");
        let log = daemon.log();
        assert_eq!(provider_id(&sandbox, name), expected, "{case}: {log}");
    });
}

#[test]
fn new_nodes_of_a_tick_share_one_list_and_a_retry_needs_none() {
    let sandbox = simulated_cluster(2);
    let world = SandboxAccess::new(&sandbox).world(&sandbox.projects().token, None);
    let mut controller = controller();
    let mut tick = || controller.tick(&world, &Selection::Due);
    assert_eq!(tick().counts().changed, 2);
    assert_eq!(lists_of_servers(&sandbox), 1);
    // Some are seen by a read of each, many by a list of all.
    for (count, lists) in [(3, 2), (15, 3)] {
        for n in 1..=count {
            let name = format!("new-{count}-{n}");
            sandbox.join_node(&name);
        }
        let error = Effect::kubernetes_status(500, "InternalError", "try again");
        let rule = Rule::new(error).half(Half::Kubernetes).method("PATCH");
        let rule = sandbox.fault(rule);
        wait_until("the first try", || {
            tick();
            sandbox.faults().hits(rule) >= count
        });
        assert_eq!(lists_of_servers(&sandbox), lists, "{count} new nodes");
        sandbox.faults().clear();
        wait_until("another try", || {
            tick();
            all_initialised(&sandbox)
        });
        assert_eq!(lists_of_servers(&sandbox), lists, "{count} tried again");
    }
}

/// The write is refused, because the node is another one by now.
#[test]
fn a_node_that_is_recreated_during_a_write_is_another_node() {
    let sandbox = Arc::new(common::builder().nodes(1).network("10.0.0.0/8").simulated());
    machine(&sandbox, "w", "w");
    let other = Arc::downgrade(&sandbox);
    let replace = move |_: &Request| {
        replaced(&other.upgrade().unwrap(), "w", "w");
    };
    let rule = on("PATCH /api/v1/nodes/w/status", Effect::before(replace));
    sandbox.fault(rule.times(1));
    let _daemon = sandbox.daemon(&[]);
    // There is no node between its deletion and its return.
    let found = || sandbox.cluster().get("nodes", None, "w");
    wait_until("the new node", || found().is_some_and(|node| is_initialised(&node)));
    let id = sandbox.server_id("w");
    let expected = format!("ccm-from-scratch://{id}");
    assert_eq!(provider_id(&sandbox, "w"), expected);
}

/// A provider ID that an older list of servers does not hold may name a server that was made since.
#[test]
fn a_server_is_only_said_to_be_missing_by_a_list_requested_after_the_node_was_first_seen() {
    let sandbox = simulated_cluster(1);
    sandbox.create_server("w");
    let world = SandboxAccess::new(&sandbox).world(&sandbox.projects().token, None);
    let mut controller = controller();
    controller.tick(&world, &Selection::Due);
    sandbox.delete_server("w");
    let id = sandbox.create_server("w");
    sandbox.register("w", Some(id), "");
    let evaluated = || controller.evaluate(&world, &Selection::All).unwrap();
    let findings = |plans: &[NodePlan]| -> Vec<Reason> {
        let findings = plans.iter().flat_map(|plan| plan.all_findings());
        findings.map(|finding| finding.reason).collect()
    };
    assert_eq!(findings(&evaluated()), []);
    // A server that was deleted for good is reported as missing without another list.
    sandbox.cloud().delete_server(id);
    world.instances(None, Duration::ZERO, Urgency::Needed).unwrap();
    let lists = lists_of_servers(&sandbox);
    assert_eq!(findings(&evaluated()), [Reason::ServerNotFound]);
    assert_eq!(lists_of_servers(&sandbox), lists);
}
