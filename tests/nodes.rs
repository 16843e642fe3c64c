//! Nodes get their identity: the binary against the sandbox, in good times and in bad ones.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{
    Daemon, LIMIT, UNINITIALIZED, addresses, all_initialised, ccm, env, events, is_initialised,
    is_lease, node, wait_until, with,
};
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Nodes that change only when somebody changes them.
fn quiet(nodes: usize) -> Sandbox {
    Sandbox::builder().nodes(nodes).heartbeats(false).start()
}

fn hetzner_calls(sandbox: &Sandbox) -> usize {
    sandbox.calls().count(|call| call.half == Half::Hetzner)
}

/// Writes of `ccm`, the Lease's aside: method and path.
fn writes(sandbox: &Sandbox) -> Vec<String> {
    let calls = sandbox.calls().calls();
    let writes = calls
        .iter()
        .filter(|call| call.is_write() && call.caller != "admin" && !is_lease(&call.path));
    writes
        .map(|call| format!("{} {}", call.method, call.path))
        .collect()
}

#[test]
fn the_daemon_initialises_new_nodes_and_ends_cleanly() {
    let sandbox = Sandbox::builder().nodes(3).network("10.0.0.0/16").start();
    let daemon = Daemon::start(&env(&sandbox), &[]);
    wait_until("three initialised nodes", || all_initialised(&sandbox));
    let worker = node(&sandbox, "worker-1");
    assert_eq!(
        addresses(&worker),
        [
            "Hostname worker-1",
            "ExternalIP 203.0.113.1",
            "InternalIP 10.0.0.2"
        ]
    );
    let id = sandbox.cloud().servers(sandbox.project())[0]["id"]
        .as_u64()
        .unwrap();
    assert_eq!(
        worker["spec"]["providerID"],
        format!("ccm-from-scratch://{id}")
    );
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "cx22"),
        ("beta.kubernetes.io/instance-type", "cx22"),
        ("topology.kubernetes.io/zone", "fsn1"),
        ("failure-domain.beta.kubernetes.io/zone", "fsn1"),
        ("topology.kubernetes.io/region", "eu-central"),
        ("failure-domain.beta.kubernetes.io/region", "eu-central"),
    ] {
        assert_eq!(worker["metadata"]["labels"][key], value, "{key}");
    }
    sandbox.join(ServerSpec {
        name: "late".into(),
        ..ServerSpec::default()
    });
    wait_until("the late node", || is_initialised(&node(&sandbox, "late")));
    wait_until("its event", || {
        events(&sandbox, "late") == [("Synced".to_owned(), 1)]
    });
    let begun = Instant::now();
    daemon.signal("-TERM");
    assert!(daemon.ended().success(), "{}", daemon.log());
    assert!(begun.elapsed().as_secs() < 2, "it had nothing left to do");
}

#[test]
fn ctrl_c_ends_it_at_once_even_while_an_answer_is_waited_for() {
    let sandbox = quiet(1);
    let slow = Effect::Slow(std::time::Duration::from_secs(60));
    sandbox.faults().add(Rule::new(slow).half(Half::Hetzner));
    // In real time, in which the answer may take longer than a pod is given to end.
    let real_time = with(env(&sandbox), &[("CCM_TEST_TIME_SCALE", "1")]);
    let daemon = Daemon::start(&real_time, &[]);
    wait_until("a call", || hetzner_calls(&sandbox) > 0);
    let begun = Instant::now();
    daemon.signal("-INT");
    assert!(daemon.ended().success(), "{}", daemon.log());
    assert!(begun.elapsed().as_secs() < 10);
}

#[test]
fn addresses_are_written_before_the_taint_goes() {
    let sandbox = quiet(1);
    assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
    let expected = [
        "PATCH /api/v1/nodes/worker-1/status",
        "PATCH /api/v1/nodes/worker-1",
        "POST /api/v1/namespaces/default/events",
    ];
    assert_eq!(writes(&sandbox), expected);
    let bodies: Vec<Value> = sandbox
        .calls()
        .calls()
        .iter()
        .filter(|call| call.method == "PATCH")
        .map(|call| call.json().unwrap())
        .collect();
    for body in &bodies {
        assert!(
            body["metadata"]["resourceVersion"].is_string(),
            "a patch names the version it was planned on"
        );
    }
    assert!(bodies[0]["spec"].is_null() && bodies[1]["spec"]["providerID"].is_string());
}

#[test]
fn nothing_is_written_when_nothing_differs() {
    let sandbox = quiet(2);
    assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
    sandbox.calls().clear();
    let again = ccm(&env(&sandbox), &["run", "--once"]);
    assert_eq!((again.code, writes(&sandbox)), (0, vec![]));
    assert!(
        again.stderr.contains("0 changed, 2 unchanged, 0 failed"),
        "{}",
        again.stderr
    );
}

/// Kills the daemon at its n-th write, before or after the write happened, and starts another one.
#[test]
fn killed_between_any_two_writes_the_node_ends_initialised_once() {
    std::thread::scope(|scope| {
        for n in 1..=3 {
            for after in [false, true] {
                scope.spawn(move || killed_at_write(n, after));
            }
        }
    });
}

fn killed_at_write(n: u64, after: bool) {
    let sandbox = quiet(1);
    let killer: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
    let kill = Arc::clone(&killer);
    let hook = move |_: &sandbox::exchange::Request| kill.wait()();
    let effect = if after {
        Effect::after(hook)
    } else {
        Effect::before(hook)
    };
    let rule = Rule::new(effect).half(Half::Kubernetes).writes();
    let of_the_controller = |request: &sandbox::exchange::Request| !is_lease(&request.path);
    let rule = sandbox.faults().add(rule.when(of_the_controller).nth(n));
    let daemon = Daemon::start(&env(&sandbox), &[]);
    assert!(killer.set(Box::new(daemon.killer())).is_ok());
    assert!(!daemon.ended().success());
    sandbox.faults().remove(rule);

    let second = Daemon::start(&env(&sandbox), &[]);
    wait_until("an initialised node", || all_initialised(&sandbox));
    if n == 1 {
        wait_until("its event", || !events(&sandbox, "worker-1").is_empty());
    }
    drop(second);
    assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
    let worker = node(&sandbox, "worker-1");
    assert_eq!(
        addresses(&worker),
        ["Hostname worker-1", "ExternalIP 203.0.113.1"],
        "write {n}, {after}"
    );
    // A request that had left before the kill is carried out all the same, so from
    // the second write on the first daemon's work counts, and its event may be lost.
    let told = events(&sandbox, "worker-1");
    assert!(
        told.len() <= 1 && told.iter().all(|(_, count)| *count == 1),
        "write {n}: {told:?}"
    );
    assert!(n > 1 || told.len() == 1, "write {n}: {told:?}");
}

#[test]
fn a_node_that_changed_since_it_was_read_is_read_again_and_planned_again() {
    let sandbox = quiet(1);
    sandbox.cluster().freeze_cache(true);
    sandbox.cluster().edit("nodes", None, "worker-1", |node| {
        node["metadata"]["labels"]["mine"] = json!("kept");
        node["spec"]["taints"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "key": "mine", "effect": "NoExecute" }));
    });
    let _daemon = Daemon::start(&env(&sandbox), &[]);
    wait_until("an initialised node", || {
        is_initialised(&node(&sandbox, "worker-1"))
    });
    assert!(sandbox.calls().count(|call| call.status == Some(409)) >= 1);
    let worker = node(&sandbox, "worker-1");
    assert_eq!(worker["metadata"]["labels"]["mine"], "kept");
    let taints: Vec<&Value> = worker["spec"]["taints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["key"])
        .collect();
    assert!(
        taints.contains(&&json!("mine")) && !taints.contains(&&json!(UNINITIALIZED)),
        "{taints:?}"
    );
}

#[test]
fn a_node_that_never_stops_changing_is_left_for_later() {
    let sandbox = quiet(2);
    let cluster = Arc::clone(sandbox.cluster());
    let change = move |_: &sandbox::exchange::Request| {
        cluster.edit("nodes", None, "worker-1", |node| {
            let count = node["metadata"]["annotations"]["count"]
                .as_str()
                .map_or(0, |text| text.parse().unwrap());
            node["metadata"]["annotations"]["count"] = json!((count + 1).to_string());
        });
    };
    sandbox.faults().add(
        Rule::new(Effect::before(change))
            .half(Half::Kubernetes)
            .method("PATCH")
            .path("/api/v1/nodes/worker-1/status"),
    );
    let ran = ccm(&env(&sandbox), &["run", "--once"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("node/worker-1") && ran.stderr.contains("has been modified"),
        "{}",
        ran.stderr
    );
    assert!(
        is_initialised(&node(&sandbox, "worker-2")),
        "one object's trouble never stops the others"
    );
    let tries = sandbox
        .calls()
        .count(|call| call.path.ends_with("worker-1/status") && call.is_write());
    assert!((2..=4).contains(&tries), "{tries} tries");
}

#[test]
fn a_used_up_budget_is_respected_and_what_waits_is_told() {
    let sandbox = quiet(2);
    let rule = sandbox
        .faults()
        .add(Rule::new(Effect::hetzner_rate_limit()).half(Half::Hetzner));
    // In real time: 2, 4 and 8 seconds of pause.
    let daemon = Daemon::start(&with(env(&sandbox), &[("CCM_TEST_TIME_SCALE", "0.1")]), &[]);
    daemon.logs("2 nodes wait: GET");
    daemon.logs("rate_limit_exceeded");
    wait_until("a second try", || sandbox.faults().hits(rule) == 2);
    let ticks = sandbox.calls().count(|call| call.path == "/api/v1/nodes");
    sandbox.faults().remove(rule);
    wait_until("initialised nodes", || all_initialised(&sandbox));
    daemon.logs("both APIs answer again");
    assert!(ticks >= 1, "the cluster was still looked at");
    assert_eq!(
        daemon.log().matches("WARN").count(),
        1,
        "one line for the whole outage:\n{}",
        daemon.log()
    );
}

#[test]
fn while_little_budget_remains_refreshes_wait_and_new_nodes_do_not() {
    let sandbox = quiet(1);
    let daemon = Daemon::start(
        &env(&sandbox),
        &[
            "--node-status-update-frequency=5s",
            "--node-sync-interval=2s",
        ],
    );
    wait_until("an initialised node", || all_initialised(&sandbox));
    sandbox.cloud().set_rate_limit(sandbox.project(), 3600, 20);
    // The refresh after this answer sees how little is left.
    daemon.logs("put off");
    let mark = sandbox.calls().mark();
    let looks = |sandbox: &Sandbox| {
        sandbox
            .calls()
            .calls_since(mark)
            .iter()
            .filter(|call| call.path == "/api/v1/nodes")
            .count()
    };
    wait_until("ten more looks at the cluster", || looks(&sandbox) > 10);
    let asked = sandbox
        .calls()
        .calls_since(mark)
        .iter()
        .filter(|call| call.half == Half::Hetzner)
        .count();
    assert_eq!(asked, 0, "refreshes can wait");
    sandbox.join(ServerSpec {
        name: "late".into(),
        ..ServerSpec::default()
    });
    wait_until("the late node", || is_initialised(&node(&sandbox, "late")));
}

/// What an API may answer instead of its list.
fn bad_answers(half: Half) -> Vec<(&'static str, Effect)> {
    let error = match half {
        Half::Hetzner => Effect::hetzner_error(500, "server_error", "sorry"),
        Half::Kubernetes => Effect::kubernetes_status(500, "InternalError", "sorry"),
    };
    let unavailable = match half {
        Half::Hetzner => Effect::hetzner_error(503, "maintenance", "later"),
        Half::Kubernetes => Effect::kubernetes_busy(1),
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
    let sandbox = Sandbox::builder().nodes(60).heartbeats(false).start();
    let rule = Rule::new(effect).half(half);
    let rule = match half {
        Half::Hetzner => rule
            .path("/v1/servers")
            .when(|request| request.query("page") == Some("2")),
        Half::Kubernetes => rule.path("/api/v1/nodes"),
    };
    let rule = sandbox.faults().add(rule);
    let daemon = Daemon::start(&env(&sandbox), &[]);
    daemon.logs("WARN");
    assert_eq!(
        writes(&sandbox),
        Vec::<String>::new(),
        "{half}, {name}: {}",
        daemon.log()
    );
    sandbox.faults().remove(rule);
    wait_until("healing", || all_initialised(&sandbox));
    daemon.logs("both APIs answer again");
    assert_eq!(
        daemon.log().matches("WARN").count(),
        1,
        "{half}, {name}: one clear line:\n{}",
        daemon.log()
    );
}

#[test]
fn a_list_of_servers_that_goes_wrong_leads_to_nothing_wrong() {
    std::thread::scope(|scope| {
        for (name, effect) in bad_answers(Half::Hetzner) {
            scope.spawn(move || survives(Half::Hetzner, name, effect));
        }
    });
}

#[test]
fn a_list_of_nodes_that_goes_wrong_leads_to_nothing_wrong() {
    std::thread::scope(|scope| {
        for (name, effect) in bad_answers(Half::Kubernetes) {
            scope.spawn(move || survives(Half::Kubernetes, name, effect));
        }
    });
}

/// Every kind of fault, at random, on both sides; the seed is in the message of a failure.
#[test]
fn any_faults_heal_without_harm() {
    let seeds: Vec<u64> = match std::env::var("CCM_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=6).collect(),
    };
    for seed in seeds {
        let sandbox = Sandbox::builder().nodes(4).scale(0.05).start();
        sandbox.faults().random(seed, 0.3);
        let daemon = Daemon::start(&env(&sandbox), &["--node-status-update-frequency=10s"]);
        let begun = Instant::now();
        while !all_initialised(&sandbox) {
            assert!(
                begun.elapsed() < LIMIT * 2,
                "seed {seed} does not heal:\n{}",
                daemon.log()
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        sandbox.faults().clear();
        // Its Lease is free at once.
        daemon.signal("-TERM");
        assert!(daemon.ended().success(), "seed {seed}: {}", daemon.log());
        let settled = ccm(&env(&sandbox), &["run", "--once"]);
        assert_eq!(settled.code, 0, "seed {seed}: {}", settled.stderr);
        for server in sandbox.cloud().servers(sandbox.project()) {
            let name = server["name"].as_str().unwrap();
            let worker = node(&sandbox, name);
            assert_eq!(
                worker["spec"]["providerID"],
                format!("ccm-from-scratch://{}", server["id"]),
                "seed {seed}"
            );
            let ip = server["public_net"]["ipv4"]["ip"].as_str().unwrap();
            assert_eq!(
                addresses(&worker),
                [format!("Hostname {name}"), format!("ExternalIP {ip}")],
                "seed {seed}"
            );
            let synced = events(&sandbox, name)
                .iter()
                .filter(|(reason, _)| reason == "Synced")
                .count();
            assert!(synced <= 1, "seed {seed}: {name} was synced {synced} times");
        }
    }
}

#[test]
fn steady_state_costs_no_hetzner_call_and_no_write() {
    let sandbox = Sandbox::builder().nodes(3).scale(0.02).start();
    let daemon = Daemon::start(&env(&sandbox), &["--node-status-update-frequency=1h"]);
    wait_until("initialised nodes", || all_initialised(&sandbox));
    wait_until("all events", || {
        (1..=3).all(|n| !events(&sandbox, &format!("worker-{n}")).is_empty())
    });
    let mark = sandbox.calls().mark();
    let since = || sandbox.calls().calls_since(mark);
    wait_until("thirty looks", || {
        since()
            .iter()
            .filter(|call| call.path == "/api/v1/nodes")
            .count()
            > 30
    });
    let others: Vec<String> = since()
        .iter()
        .filter(|call| call.path != "/api/v1/nodes" && !is_lease(&call.path))
        .map(ToString::to_string)
        .collect();
    assert_eq!(others, Vec::<String>::new(), "{}", daemon.log());
}

#[test]
fn a_node_without_a_server_waits_with_a_growing_pause() {
    let sandbox = quiet(1);
    sandbox.register_node(sandbox::kubelet::NodeSpec {
        name: "stray".into(),
        ..Default::default()
    });
    let daemon = Daemon::start(&env(&sandbox), &[]);
    wait_until("its event", || {
        events(&sandbox, "stray") == [("ServerNotFound".to_owned(), 1)]
    });
    let lists = || {
        let calls = sandbox.calls().calls();
        let lists = calls.iter().filter(|call| call.path == "/v1/servers");
        lists.map(|call| call.started).collect::<Vec<_>>()
    };
    wait_until("six looks", || lists().len() >= 6);
    let pauses: Vec<_> = lists().windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[4] > pauses[1] * 2, "{pauses:?}");
    assert!(
        !is_initialised(&node(&sandbox, "stray")),
        "{}",
        daemon.log()
    );
    assert_eq!(
        events(&sandbox, "stray"),
        [("ServerNotFound".to_owned(), 1)],
        "told once"
    );
    sandbox.cloud().create_server(
        sandbox.project(),
        ServerSpec {
            name: "stray".into(),
            ..ServerSpec::default()
        },
    );
    wait_until("its initialisation", || {
        is_initialised(&node(&sandbox, "stray"))
    });
}

#[test]
fn another_project_s_token_changes_nothing() {
    let sandbox = quiet(2);
    assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
    let before = sandbox.cluster().list("nodes", None);
    let foreign = with(
        env(&sandbox),
        &[("HCLOUD_TOKEN", &sandbox.projects().foreign_token)],
    );
    let ran = ccm(&foreign, &["run", "--once"]);
    assert!(
        ran.stderr.contains("is the token another project's?"),
        "{}",
        ran.stderr
    );
    assert_eq!(sandbox.cluster().list("nodes", None), before);
}

#[test]
fn addresses_that_change_in_the_cloud_follow_at_the_refresh() {
    let sandbox = quiet(1);
    let _daemon = Daemon::start(&env(&sandbox), &["--node-status-update-frequency=10s"]);
    wait_until("an initialised node", || all_initialised(&sandbox));
    let id = sandbox.cloud().servers(sandbox.project())[0]["id"]
        .as_u64()
        .unwrap();
    sandbox.cloud().edit_server(id, |server| {
        server["public_net"]["ipv4"]["ip"] = json!("203.0.113.77")
    });
    wait_until("the new address", || {
        addresses(&node(&sandbox, "worker-1")) == ["Hostname worker-1", "ExternalIP 203.0.113.77"]
    });
}

#[test]
fn rotated_tokens_are_picked_up_without_a_restart() {
    let sandbox = quiet(1);
    let token_file = sandbox.folder().join("hcloud-token");
    std::fs::write(&token_file, &sandbox.projects().token).unwrap();
    let from_file = [
        ("HCLOUD_TOKEN", ""),
        ("HCLOUD_TOKEN_FILE", token_file.to_str().unwrap()),
    ];
    let daemon = Daemon::start(&with(env(&sandbox), &from_file), &[]);
    wait_until("an initialised node", || all_initialised(&sandbox));
    let rotated = "r".repeat(64);
    sandbox
        .cloud()
        .add_token(sandbox.project(), &rotated, false);
    std::fs::write(&token_file, &rotated).unwrap();
    sandbox.cloud().remove_token(&sandbox.projects().token);
    sandbox.join(ServerSpec {
        name: "late".into(),
        ..ServerSpec::default()
    });
    wait_until("the late node", || is_initialised(&node(&sandbox, "late")));
    assert!(!daemon.log().contains("WARN"), "{}", daemon.log());
}

#[test]
fn it_takes_the_place_of_the_other_one_by_its_arguments() {
    let sandbox = quiet(1);
    let words = [
        "--cloud-provider=hcloud",
        "--leader-elect=false",
        "--allow-untagged-cloud",
        "--route-reconciliation-period=30s",
        "--webhook-secure-port=0",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.244.0.0/16",
        "--once",
    ];
    let ran = ccm(&env(&sandbox), &words);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("--webhook-secure-port: accepted and ignored"),
        "{}",
        ran.stderr
    );
    let worker = node(&sandbox, "worker-1");
    assert!(
        worker["spec"]["providerID"]
            .as_str()
            .unwrap()
            .starts_with("hcloud://")
    );
    let labels = &worker["metadata"]["labels"];
    assert_eq!(labels["topology.kubernetes.io/zone"], "fsn1-dc14");
    assert_eq!(labels["topology.kubernetes.io/region"], "fsn1");
    assert_eq!(labels["instance.hetzner.cloud/provided-by"], "cloud");
}

#[test]
fn every_request_fits_the_api_s_own_document() {
    let Some(spec) = common::openapi() else {
        return;
    };
    let sandbox = Sandbox::builder()
        .nodes(60)
        .network("10.0.0.0/16")
        .heartbeats(false)
        .start();
    assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
    let calls = sandbox.calls().calls();
    let hetzner: Vec<_> = calls
        .iter()
        .filter(|call| call.half == Half::Hetzner)
        .collect();
    assert!(hetzner.len() >= 3, "a network and two pages");
    for call in hetzner {
        spec.check_request(&call.method, &call.path, &call.query, &call.body)
            .unwrap_or_else(|e| panic!("{call}: {e:?}"));
    }
}
