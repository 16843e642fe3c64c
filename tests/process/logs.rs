//! The log has one line for each change and each finding, and none for a tick. Its keys are stable, and every call is
//! logged without secrets when that is requested.

use crate::common::{
    Cluster, Daemon, all_initialised, ccm, contains, env, socket_cluster, wait_until, with,
};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::collections::BTreeSet;

/// A new node, a node without a server, a Service, and one whose load balancer is refused.
fn busy() -> Sandbox {
    let sandbox = socket_cluster(1);
    sandbox.register("stray", None, "");
    let refused = Effect::hetzner_error(403, "forbidden", "not today");
    let is_api =
        |request: &Request| String::from_utf8_lossy(&request.body).contains("api.example.com");
    let rule = Rule::new(refused)
        .half(Half::Hetzner)
        .method("POST")
        .path("/v1/load_balancers")
        .when(is_api);
    sandbox.fault(rule);
    for name in ["web", "api.example.com"] {
        let annotations = [("location", "fsn1"), ("type", "lb11"), ("name", name)];
        sandbox.create(&name.replace('.', "-"), &annotations, &[80]);
    }
    sandbox
}

fn is_synced(sandbox: &Sandbox, daemon: &Daemon) -> bool {
    let log = daemon.log();
    // The load balancer may be created before its node is initialised, which is added then.
    let has_target = log.contains("1 port, 1 target") || log.contains("target worker-1: added");
    sandbox.has_address("web") && has_target && log.contains("not today") && log.contains("stray")
}

/// Waits for this number of ticks of the controllers.
fn ticks(sandbox: &Sandbox, count: usize) {
    let polls = || sandbox.calls().count(|call| call.path == "/api/v1/services");
    let mark = polls();
    wait_until("ticks", || polls() > mark + count);
}

#[test]
fn a_line_for_each_change_and_each_finding_and_none_for_a_tick() {
    let sandbox = busy();
    let daemon = sandbox.daemon(&[]);
    wait_until("everything to be told", || is_synced(&sandbox, &daemon));
    ticks(&sandbox, 10);
    let log = daemon.log();
    // Services may be read before the nodes are initialised, which is reported.
    let lines = log.lines();
    let lines = lines.filter(|line| !line.contains("(UnAvailableLoadBalancer)"));
    let told = lines.collect::<Vec<_>>().join("\n");
    for (line, times) in [
        ("INFO  node/worker-1: address ExternalIP: set to ", 1),
        ("INFO  node/worker-1: spec.providerID: set to ", 1),
        ("INFO  service/default/web: finalizer: added", 1),
        ("INFO  service/default/web: load balancer \"web\": created", 1),
        ("INFO  service/default/web: status: ", 1),
        ("WARN  node/stray: ", 1),
        ("(ServerNotFound)", 1),
        ("INFO  service/default/api-example-com: finalizer: added", 1),
        ("WARN  service/default/api-example-com: ", 1),
        ("(SyncLoadBalancerFailed)", 1),
    ] {
        assert_eq!(told.matches(line).count(), times, "{line} in\n{log}");
    }
    ticks(&sandbox, 20);
    assert_eq!(daemon.log(), log, "nothing has happened since");
}

#[test]
fn each_line_of_the_json_log_is_an_object_with_stable_keys() {
    let sandbox = busy();
    let daemon = sandbox.daemon(&["--log-format=json"]);
    wait_until("everything to be told", || is_synced(&sandbox, &daemon));
    sandbox.stop(Half::Kubernetes);
    daemon.logs("trying again every");
    let log = daemon.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let mut keys = BTreeSet::new();
    for line in &lines {
        let text = |key: &str| line[key].as_str().unwrap_or_else(|| panic!("{key}: {line}"));
        let time: jiff::Timestamp = text("time").parse().unwrap();
        assert!(time.as_second() > 0);
        assert!(["info", "warn", "error"].contains(&text("level")), "{line}");
        assert!(text("module").starts_with("ccm::") && !text("message").is_empty());
        keys.extend(line.as_object().unwrap().keys().map(String::as_str));
    }
    let all = "controller level message module object reason time";
    assert_eq!(keys, all.split(' ').collect::<BTreeSet<_>>());
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("cloud-node-controller", "node/worker-1", None, "node/worker-1: address "),
        ("cloud-node-controller", "node/stray", Some("ServerNotFound"), "node/stray: "),
        ("service-lb-controller", "service/default/web", None, "service/default/web: load balancer \"web\": created"),
        ("service-lb-controller", "service/default/api-example-com", Some("SyncLoadBalancerFailed"), "service/default/api-example-com: "),
    ];
    for (controller, object, reason, message) in cases {
        let is_it = |line: &&Value| {
            line["controller"] == controller
                && line["object"] == object
                && line["reason"].as_str() == reason
                && line["message"].as_str().unwrap().starts_with(message)
        };
        assert_eq!(lines.iter().filter(is_it).count(), 1, "{message} in\n{log}");
    }
    let page = include_str!("../../src/help/metrics.md");
    for key in all.split(' ') {
        contains(page, &format!("| `{key}` |"));
    }
}

#[test]
fn every_call_to_the_cloud_is_shown_without_its_secrets() {
    let sandbox = busy();
    let token = sandbox.projects().token.clone();
    for (debug, verbosity) in [("true", "0"), ("false", "4")] {
        let mark = sandbox.mark();
        let env = with(env(&sandbox), &[("HCLOUD_DEBUG", debug)]);
        let ran = ccm(&env, &["run", "--once", "-v", verbosity]);
        let calls = sandbox.calls().calls_since(mark);
        let calls = calls.iter().filter(|call| call.half == Half::Hetzner);
        let mut count = 0;
        for call in calls {
            count += 1;
            // The line has the call as it was sent, below the endpoint.
            let line = format!("{} {}", call.method, sandbox.hetzner_url());
            assert!(ran.stderr.contains(&line), "{line} in\n{}", ran.stderr);
            let path = call.path.trim_start_matches("/v1");
            assert!(ran.stderr.contains(path), "{path} in\n{}", ran.stderr);
        }
        assert!(count > 2, "{count} calls");
        let bodies = ran.stderr.contains("\"service\"") || ran.stderr.contains("\"servers\"");
        assert_eq!(bodies, debug == "true", "bodies: {}", ran.stderr);
        assert!(!ran.stderr.contains(&token) && !ran.stderr.contains("Bearer"));
    }
    let quiet = sandbox.ccm(&["run", "--once"]);
    assert!(!quiet.stderr.contains("DEBUG"), "{}", quiet.stderr);
    assert!(all_initialised(&sandbox) || quiet.code == 1, "the stray stays");
}
