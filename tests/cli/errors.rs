//! What people see when something is wrong: the exact line, the exit code, and that nothing else was done.

use crate::common::{self, Cluster, Daemon, Env, ccm, wait_until, with};
use sandbox::faults::{Effect, Rule};
use sandbox::kubernetes::PolicyRule;
use sandbox::{Half, Sandbox};
use std::process::{Command, Stdio};

/// Three nodes that wait to be initialised, in the Network `sandbox`.
fn world() -> Sandbox {
    common::networked(3).scale(0.02).start()
}

/// Returns the complaints, without what differs from run to run, without the `ccm: ` or the time before each line, and
/// without lines that are no complaint.
fn complaints(sandbox: &Sandbox, stderr: &str) -> String {
    let text = stderr
        .replace(&sandbox.folder().display().to_string(), "DIR")
        .replace(&sandbox.hetzner_url(), "HETZNER")
        .replace(&sandbox.hetzner_url().replace("/v1", ""), "HETZNER_ROOT")
        .replace(&sandbox.kubernetes_url(), "KUBERNETES")
        .replace("?limit=500&resourceVersion=0: ", ": ")
        .replace("?limit=500: ", ": ")
        .replace("?sort=id:asc&page=1&per_page=50: ", ": ");
    let mut parts = text.split("correlation ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += "ID";
        text += part.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    }
    let lines = text.lines().map(|line| match line.split_once(' ') {
        Some((time, rest)) if time.parse::<jiff::Timestamp>().is_ok() => rest,
        _ => line.trim_start_matches("ccm: "),
    });
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("INFO ")).collect();
    lines.join("\n")
}

/// Returns an environment without routes. The missing cluster CIDR would be reported at each start, and has tests
/// of its own.
fn env(sandbox: &Sandbox) -> Env {
    let no_routes = [("HCLOUD_NETWORK_ROUTES_ENABLED", "false")];
    with(common::env(sandbox), &no_routes)
}

/// A command, the settings that differ, the exit code, and the complaints.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a str);

fn check(sandbox: &Sandbox, env: &Env, cases: &[Case]) {
    let mut wrong = 0;
    for (words, changes, code, message) in cases {
        let ran = ccm(&with(env.clone(), changes), words);
        let answered = complaints(sandbox, &ran.stderr);
        if (ran.code, answered.as_str()) != (*code, *message) {
            println!(
                "{words:?} {changes:?}\n  expected {code} {message}\n  answered {} {answered}",
                ran.code
            );
            wrong += 1;
        }
    }
    assert_eq!(wrong, 0);
}

const LIST: &[&str] = &["node", "list"];
/// What the Lease adds to this has its own tests.
const ONCE: &[&str] = &["run", "--once", "--leader-elect=false"];

/// No client of the cluster can be made.
const NO_CLUSTER: &[(&str, &str)] = &[("KUBECONFIG", "/nowhere")];

/// 64 characters, as a token has.
const NO_TOKEN: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn wrong_settings_are_explained() {
    let sandbox = world();
    let foreign = sandbox.projects().foreign_token.clone();
    let root = sandbox.hetzner_url().replace("/v1", "");
    sandbox.cloud().create_network(sandbox.project(), "other", "10.0.0.0/8");
    #[rustfmt::skip]
    check(&sandbox, &env(&sandbox), &[
        (LIST, &[("HCLOUD_TOKEN", "")], 1, "HCLOUD_TOKEN: not set; set it to a token of the project's API (Hetzner Console → Security → API tokens), or set HCLOUD_TOKEN_FILE to the path of a file with the token"),
        (LIST, &[("HCLOUD_TOKEN", "short")], 1, "warn: the token from HCLOUD_TOKEN has 5 instead of 64 characters: copy the token again\nGET HETZNER/networks: unable to authenticate (unauthorized, ID); the token in HCLOUD_TOKEN or HCLOUD_TOKEN_FILE is not accepted: is it complete, and does it still exist?"),
        (LIST, &[("HCLOUD_TOKEN", NO_TOKEN)], 1, "GET HETZNER/networks: unable to authenticate (unauthorized, ID); the token in HCLOUD_TOKEN or HCLOUD_TOKEN_FILE is not accepted: is it complete, and does it still exist?"),
        (LIST, &[("HCLOUD_TOKEN", "two words")], 1, "HCLOUD_TOKEN: holds characters that no token has, e.g. white space; copy it again"),
        (LIST, &[("HCLOUD_TOKEN", ""), ("HCLOUD_TOKEN_FILE", "/nowhere")], 1, "HCLOUD_TOKEN_FILE: \"/nowhere\" can't be used: No such file or directory (os error 2)"),
        (LIST, &[("HCLOUD_TOKEN", ""), ("HCLOUD_TOKEN_FILE", NO_TOKEN)], 1, "HCLOUD_TOKEN_FILE: the value is not the path of a file that can be read, and looks like a token; write the path of a file with the token"),
        (LIST, &[("HCLOUD_NETWORK", "sandbix")], 1, "HCLOUD_NETWORK: there is no Network sandbix; this project has sandbox (1000001), other (1000011)"),
        (LIST, &[("HCLOUD_NETWORK", "4711")], 1, "HCLOUD_NETWORK: there is no Network 4711; this project has sandbox (1000001), other (1000011)"),
        (LIST, &[("HCLOUD_NETWORK", "nets"), ("HCLOUD_TOKEN", &foreign)], 1, "HCLOUD_NETWORK: there is no Network nets; this project has no Network. Create one, or use an API token of another project"),
        (LIST, &[("HCLOUD_ENDPOINT", "localhost")], 1, "HCLOUD_ENDPOINT: \"localhost\" can't be used: write a complete URL, e.g. https://api.example.com"),
        (LIST, &[("HCLOUD_ENDPOINT", &root)], 1, "GET HETZNER_ROOT/networks: resource not found (not_found, ID); is HCLOUD_ENDPOINT complete, with /v1 at its end?"),
        (LIST, &[("HCLOUD_ENDPOINT", "http://127.0.0.1:1/v1")], 1, "GET http://127.0.0.1:1/v1/networks: connection refused; does a server run at this address? (the API's address comes from HCLOUD_ENDPOINT)"),
        (LIST, &[("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv5"), ("HCLOUD_DEBUG", "maybe")], 1, "HCLOUD_INSTANCES_ADDRESS_FAMILY: \"ipv5\" can't be used: use ipv4, ipv6, dualstack or none\nHCLOUD_DEBUG: \"maybe\" can't be used: use true or false"),
        (LIST, &[("HCLOUD_NETWROK", "x"), ("HCLOUD_NETWORK", "")], 0, "warn: HCLOUD_NETWROK: ccm does not read this variable; did you mean HCLOUD_NETWORK?"),
        (ONCE, &[("HCLOUD_TOKEN", NO_TOKEN)], 1, "ERROR cloud-node-controller: 3 nodes wait: GET HETZNER/networks: unable to authenticate (unauthorized, ID); the token in HCLOUD_TOKEN or HCLOUD_TOKEN_FILE is not accepted: is it complete, and does it still exist?"),
        (&["run", "--once", "--controllers=-cloud-node"], &[], 1, "no controller of --controllers can run with these settings, so ccm ends"),
        (&["run", "--node-sync-interval=5", "--onec", "extra"], &[("HCLOUD_DEBUG", "2"), ("HCLOUD_TOKEN", "")], 2, "--onec: unknown flag; did you mean --once?\n--node-sync-interval: \"5\" can't be used: a duration needs a unit, e.g. 5s or 1m30s\nHCLOUD_DEBUG: \"2\" can't be used: use true or false\nHCLOUD_TOKEN: not set; set it to a token of the project's API (Hetzner Console → Security → API tokens), or set HCLOUD_TOKEN_FILE to the path of a file with the token"),
    ]);
}

#[test]
fn wrong_usage_is_explained() {
    let sandbox = world();
    let of_explain = |word: &str| {
        format!(
            "unknown word {word}\nexplain takes the name of an annotation, setting, check, reason, metric or \
             label; all names are in these pages of ccm help: troubleshooting, services, annotations, settings, nodes, metrics."
        )
    };
    #[rustfmt::skip]
    check(&sandbox, &env(&sandbox), &[
        (&["nodes"], &[], 2, "unknown command \"nodes\"; did you mean node?\nSee ccm help."),
        (&["get", "nodes"], &[], 2, "unknown command \"get nodes\"; use one of run, node, lb, route, status, doctor, lint, config, explain, completions, help, version\nSee ccm help."),
        (&["lb", "ls"], &[], 2, "unknown command \"lb ls\"; use one of lb list, lb inspect, lb sync, lb adopt, lb release, lb replace\nSee ccm help."),
        (&["nod", "list"], &[], 2, "unknown command \"nod list\"; did you mean node?\nSee ccm help."),
        (&["node", "delete", "worker-1"], &[], 2, "unknown command \"node delete\"; use one of node list, node inspect, node sync, node relabel\nSee ccm help."),
        (&["lb", "-once"], &[], 2, "-once needs a complete command before it: lb list, lb inspect, lb sync, lb adopt, lb release or lb replace"),
        (&["lb", "list", "-namespace", "shop"], NO_CLUSTER, 2, "-namespace: long flags have two dashes: did you mean --namespace?"),
        (&["lb", "inspect", "svc", "web"], NO_CLUSTER, 2, "lb inspect takes one name: svc/web"),
        (&["lb", "list", "-l"], NO_CLUSTER, 2, "-l: needs a value: SELECTOR, e.g. -l app=web"),
        (&["lb", "sync", "--all"], NO_CLUSTER, 2, "--all: unknown flag; see ccm lb sync --help"),
        (&["route", "list"], NO_CLUSTER, 1, "with the settings of this command, ccm manages no routes, because HCLOUD_NETWORK_ROUTES_ENABLED is false. If the daemon has other settings, take them with --settings-from"),
        (&["explain", "HCLOUD_NETWRK"], &[], 2, &of_explain("\"HCLOUD_NETWRK\"; did you mean HCLOUD_NETWORK?")),
        (&["help", "HCLOUD_NETWRK"], &[], 2, "unknown command or topic \"HCLOUD_NETWRK\"; did you mean HCLOUD_NETWORK?\nSee ccm help."),
        (&["help", "lb", "foo"], &[], 2, "unknown command or topic \"lb foo\"; did you mean lb?\nSee ccm help."),
        (&["explain"], &[], 2, "explain takes one word, e.g. ccm explain protocol"),
        (&["explain", "a", "b"], &[], 2, "explain takes one word, e.g. ccm explain protocol"),
        (&["explain", "protcol"], &[], 2, &of_explain("\"protcol\"; did you mean protocol?")),
        (&["explain", "xyz"], &[], 2, &of_explain("\"xyz\"")),
        (&["explain", "health-check-http-status-codes"], &[], 2, &of_explain("\"health-check-http-status-codes\"; did you mean http-status-codes?")),
        (&["frobnicate"], &[], 2, "unknown command \"frobnicate\"; use one of run, node, lb, route, status, doctor, lint, config, explain, completions, help, version\nSee ccm help."),
        (&["--context", "foo", "node", "list"], &[], 1, "--context: there is no context \"foo\"; the kubeconfig has \"ccm\""),
        (&["--context", "foo", "node"], &[], 2, "--context needs a complete command before it: node list, node inspect, node sync or node relabel"),
        (&["version", "extra"], &[], 2, "version takes no words, and no flag except -o"),
        (&["node", "lst"], &[], 2, "unknown command \"node lst\"; did you mean node list?\nSee ccm help."),
        (&["help", "nod"], &[], 2, "unknown command or topic \"nod\"; did you mean node or now?\nSee ccm help."),
        (&["help", "nodse"], &[], 2, "unknown command or topic \"nodse\"; did you mean node or nodes?\nSee ccm help."),
        (&["help", "anotations"], &[], 2, "unknown command or topic \"anotations\"; did you mean annotations?\nSee ccm help."),
        (&["help", "trouble"], &[], 2, "unknown command or topic \"trouble\"; did you mean troubleshooting?\nSee ccm help."),
        (&["help", "xyz"], &[], 2, "unknown command or topic \"xyz\"\nSee ccm help."),
        (&["node", "list", "--outptu", "json"], &[], 2, "--outptu: unknown flag; did you mean --output?"),
        (&["node", "list", "-o", "xml"], &[], 2, "-o: \"xml\" can't be used: use table, wide, name, json or yaml"),
        (&["node", "list", "-o"], &[], 2, "-o: needs a value: table|wide|name|json|yaml"),
        (&["node", "list", "-o", "xml", "--frob", "-v=much"], &[("HCLOUD_DEBUG", "2")], 2, "--frob: unknown flag; see ccm node list --help\n-o: \"xml\" can't be used: use table, wide, name, json or yaml\n-v: \"much\" can't be used: use a whole number, 0 or larger\nHCLOUD_DEBUG: \"2\" can't be used: use true or false"),
        (&["node", "list", "-o", "jsonpath={.items[0]}"], &[], 2, "-o: \"jsonpath={.items[0]}\" can't be used: only kubectl has this format; use -o json, and select from the output with jq"),
        (&["lb", "list", "-o=custom-columns=NAME:.metadata.name"], &[], 2, "-o: \"custom-columns=NAME:.metadata.name\" can't be used: only kubectl has this format; use -o json, and select from the output with jq"),
        (&["lb", "inspect", "web", "-o", "name"], NO_CLUSTER, 2, "-o name: only for lists"),
        (&["lb", "sync", "-o", "name"], NO_CLUSTER, 2, "-o name: only for lists"),
        (&["lb", "list", "-A", "-n", "shop"], NO_CLUSTER, 2, "-A: can't be combined with -n: leave one of them out"),
        (&["node", "list", "-A"], NO_CLUSTER, 2, "-A: only for lb list"),
        (&["lb", "list", "-w", "-o", "json"], NO_CLUSTER, 2, "--watch: repeats a table, so it can't be combined with -o json or yaml"),
        (&["lb", "list", "-l", "a in b"], NO_CLUSTER, 2, "-l: \"a in b\" can't be used: \"a in b\" is not a valid label name"),
        (&["node", "list", "--sort-by", "nam"], &[], 2, "unknown column \"nam\"; did you mean name?\nSee ccm help."),
        (&["node", "list", "--sort-by", ".metadata.uid"], &[], 2, "unknown column \".metadata.uid\"; use one of name, status, server, state, addresses, diff, type, location, matched-by, provider-id, server-labels\nSee ccm help."),
        (&["lb", "inspect", "svc/"], NO_CLUSTER, 2, "\"svc/\" does not name a Service; write NAMESPACE/NAME, NAME, svc/NAME, or the ID, name or address of its load balancer"),
        (&["node", "list", "worker-1"], &[], 2, "node list takes no name; ccm node inspect worker-1 shows one node"),
        (&["node", "list", "--token", NO_TOKEN], &[], 2, "--token: unknown flag; a secret on the command line could be read by every user of this machine: set HCLOUD_TOKEN or HCLOUD_TOKEN_FILE instead"),
        (&["node", "inspect"], &[], 2, "node inspect takes one name, e.g. ccm node inspect worker-1"),
        (&["node", "inspect", "worker1"], &[], 1, "there is no node \"worker1\"; did you mean worker-1?"),
        (&["node", "inspect", "worker-"], &[], 1, "there is no node \"worker-\"; did you mean worker-1, worker-2 or worker-3?"),
        (&["node", "inspect", "other"], &[], 1, "there is no node \"other\"; ccm node list shows all 3 nodes"),
        (&["node", "sync", "worker-1", "wroker-2", "zzz"], &[], 1, "there is no node \"wroker-2\"; did you mean worker-2?\nthere is no node \"zzz\"; ccm node list shows all 3 nodes"),
        (&["node", "sync", "--detailed-exitcode"], &[], 2, "--detailed-exitcode needs --dry-run"),
        // Wrong usage is seen before any client is made.
        (&["node", "list", "x"], NO_CLUSTER, 2, "node list takes no name; ccm node inspect x shows one node"),
        (&["node", "inspect"], NO_CLUSTER, 2, "node inspect takes one name, e.g. ccm node inspect worker-1"),
        (&["node", "sync", "--detailed-exitcode"], NO_CLUSTER, 2, "--detailed-exitcode needs --dry-run"),
        (&["lb", "list", "default/x"], NO_CLUSTER, 2, "lb list takes no name; ccm lb inspect default/x shows one Service"),
        (&["lb", "inspect"], NO_CLUSTER, 2, "lb inspect takes one Service, e.g. ccm lb inspect default/web"),
        (&["lb", "inspect", "default/a", "default/b"], NO_CLUSTER, 2, "lb inspect takes one Service, e.g. ccm lb inspect default/web"),
        (&["lb", "sync", "--delete-orphans", "default/x", "--yes"], NO_CLUSTER, 2, "--delete-orphans takes no Service, because the Services of orphans do not exist"),
        (&["route", "list", "x"], NO_CLUSTER, 2, "route list takes no name: it is about all routes"),
        (&["route", "sync", "--detailed-exitcode"], NO_CLUSTER, 2, "--detailed-exitcode needs --dry-run"),
        (&["node", "list", "\u{1b}[2J"], &[], 2, "node list takes no name; ccm node inspect ''\\\\'u001b[2J' shows one node"),
        (&["\u{1b}[2J"], &[], 2, "unknown command \"\\u{1b}[2J\"; use one of run, node, lb, route, status, doctor, lint, config, explain, completions, help, version\nSee ccm help."),
    ]);
    for name in ["worker-1", "worker-2", "worker-3"] {
        assert!(!common::is_initialised(&sandbox.node(name)), "{name}");
    }
}

#[test]
fn answers_that_are_not_the_api_s_are_explained() {
    let sandbox = world();
    let env = env(&sandbox);
    #[rustfmt::skip]
    let cases: [(Half, Effect, &str); 11] = [
        (Half::Hetzner, Effect::html(), "answered 200 with text/html; charset=utf-8 instead of JSON; is this the API's address, or did a proxy answer?"),
        (Half::Hetzner, Effect::proxy_not_found(), "HTTP status 404 without an error message of the Hetzner API; is HCLOUD_ENDPOINT correct, or did a proxy answer?"),
        (Half::Hetzner, Effect::gateway_timeout(), "HTTP status 504 without an error message of the Hetzner API; is HCLOUD_ENDPOINT correct, or did a proxy answer?"),
        (Half::Hetzner, Effect::other_json(), "the answer does not have the form of this API (the field \"networks\" or \"meta.pagination\" is missing), so ccm does not use the answer"),
        (Half::Hetzner, Effect::Malformed, "the answer ended before it was complete (the API's address comes from HCLOUD_ENDPOINT)"),
        (Half::Hetzner, Effect::Reset, "the connection was reset (the API's address comes from HCLOUD_ENDPOINT)"),
        (Half::Hetzner, Effect::hetzner_rate_limit(), "limit of 3600 requests per hour reached (rate_limit_exceeded, ID); all tokens of the project share this limit, which allows one more call each second: wait, or find out who else makes calls"),
        (Half::Hetzner, Effect::hetzner_error(503, "maintenance", "back soon"), "back soon (maintenance, ID)"),
        (Half::Kubernetes, Effect::html(), "answered 200 with text/html; charset=utf-8 instead of JSON; is this the API's address, or did a proxy answer?"),
        (Half::Kubernetes, Effect::proxy_not_found(), "HTTP status 404 without a Status object; is this the API server's address, or did a proxy answer instead of the API server?"),
        (Half::Kubernetes, Effect::kubernetes_status(500, "InternalError", "etcdserver: request timed out"), "etcdserver: request timed out (500 InternalError)"),
    ];
    for (half, effect, why) in cases {
        let rule = sandbox.fault(Rule::new(effect).half(half));
        let (list, once) = match half {
            Half::Hetzner => {
                let call = format!("GET HETZNER/networks: {why}");
                (call.clone(), format!("3 nodes wait: {call}"))
            }
            Half::Kubernetes => {
                let call = format!("GET KUBERNETES/api/v1/nodes: {why}");
                (format!("{call} (kubeconfig \"DIR/kubeconfig-ccm\", context \"ccm\")"), call)
            }
            Half::Robot => unreachable!("no case"),
        };
        let once = format!("ERROR cloud-node-controller: {once}");
        check(&sandbox, &env, &[(LIST, &[], 1, &list), (ONCE, &[], 1, &once)]);
        sandbox.faults().remove(rule);
    }
}

#[test]
fn an_unreachable_api_is_explained() {
    let sandbox = world();
    let env = env(&sandbox);
    let refused = "connection refused; does a server run at this address?";
    let hetzner =
        format!("GET HETZNER/networks: {refused} (the API's address comes from HCLOUD_ENDPOINT)");
    let kubernetes = format!("GET KUBERNETES/api/v1/nodes: {refused}");
    let origin = "(kubeconfig \"DIR/kubeconfig-ccm\", context \"ccm\")";
    #[rustfmt::skip]
    let cases = [
        (Half::Hetzner, hetzner.clone(), format!("3 nodes wait: {hetzner}")),
        (Half::Kubernetes, format!("{kubernetes} {origin}"), kubernetes),
    ];
    for (half, list, once) in cases {
        sandbox.stop(half);
        let once = format!("ERROR cloud-node-controller: {once}");
        let planned = once.replace("3 nodes wait: ", "");
        #[rustfmt::skip]
        check(&sandbox, &env, &[
            (LIST, &[], 1, &list),
            (&["node", "list", "-o", "json"], &[], 1, &list),
            (&["node", "sync"], &[], 1, &list),
            (&["node", "sync", "--dry-run", "--own-settings"], &[], 1, &list),
            (ONCE, &[], 1, &once),
            (&["run", "--dry-run"], &[], 1, &planned),
        ]);
        sandbox.resume(half).unwrap();
    }
    check(&sandbox, &env, &[(LIST, &[], 0, "")]);
}

#[test]
fn a_missing_right_is_explained() {
    let sandbox = world();
    let rule = |verbs: &[&str]| PolicyRule {
        api_groups: vec![String::new()],
        resources: vec!["nodes".into()],
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    // Whose settings count is another question, which has its own tests.
    const OWN: &[&str] = &["node", "list", "--own-settings"];
    sandbox.add_user("nobody", &[], Vec::new()).unwrap();
    sandbox.add_user("reader", &[], vec![rule(&["get", "list"])]).unwrap();
    let env_of = |user| {
        let mut env = env(&sandbox);
        env.retain(|(name, _)| name != "KUBECONFIG");
        env.extend(sandbox.env_of(user));
        env
    };
    let denied = "GET KUBERNETES/api/v1/nodes: nodes is forbidden: User \"nobody\" cannot \
                  list resource \"nodes\" in API group \"\" at the cluster scope (403 Forbidden); give this user a role \
                  that allows this call";
    let (listed, logged) = (
        format!("{denied} (kubeconfig \"DIR/kubeconfig-nobody\", context \"nobody\")"),
        format!("ERROR cloud-node-controller: {denied}"),
    );
    #[rustfmt::skip]
    check(&sandbox, &env_of("nobody"), &[
        (OWN, &[], 1, &listed),
        (ONCE, &[], 1, &logged),
        (&["run", "--leader-elect=false", "--controllers=cloud-node"], &[], 1, &logged),
    ]);
    check(&sandbox, &env_of("reader"), &[(OWN, &[], 0, "")]);
    let ran = ccm(&env_of("reader"), &["node", "sync", "worker-2", "--own-settings"]);
    let expected = "! node/worker-2  failed: PATCH KUBERNETES/api/v1/nodes/worker-2/status: nodes \"worker-2\" is forbidden: \
                    User \"reader\" cannot patch resource \"nodes/status\" in API group \"\" at the cluster scope \
                    (403 Forbidden); give this user a role that allows this call\n";
    let told = complaints(&sandbox, &ran.stdout);
    assert!(ran.code == 1 && told.starts_with(expected) && told.ends_with(" 1 failed"), "{ran:?}");
}

#[test]
fn tokens_that_are_not_the_project_s_are_explained() {
    let sandbox = world();
    let env = env(&sandbox);
    let projects = sandbox.projects();
    let read_only = with(env.clone(), &[("HCLOUD_TOKEN", &projects.read_only_token)]);
    ccm(&read_only, &["node", "sync", "worker-1"]).with_code(0);
    let before = sandbox.nodes();
    let foreign = with(env, &[("HCLOUD_TOKEN", &projects.foreign_token), ("HCLOUD_NETWORK", "")]);
    let codes = [LIST, ONCE, &["node", "sync"]].map(|words| ccm(&foreign, words).code);
    assert_eq!(codes, [0, 1, 1]);
    let log = ccm(&foreign, ONCE).stderr;
    for found in [
        "node/worker-1: the node's provider ID \"ccm-from-scratch://1000002\" names server 1000002, but this token's \
         project has no server 1000002. Was the server deleted, or does the token belong to another project?",
        "node/worker-2: no server is named \"worker-2\", and none of the servers without a node has an address that \
         the node reports (10.0.0.3); the project has no servers at all, so the token may belong to another project",
    ] {
        assert!(log.contains(found), "{log}");
    }
    assert_eq!(sandbox.nodes(), before, "a node was written to");
}

#[test]
fn a_daemon_that_is_permanent_ends() {
    let sandbox = world();
    let env = env(&sandbox);
    #[rustfmt::skip]
    check(&sandbox, &env, &[
        (&["run"], &[("HCLOUD_TOKEN", NO_TOKEN)], 1, "ERROR cloud-node-controller: 3 nodes wait: GET HETZNER/networks: unable to authenticate (unauthorized, ID); the token in HCLOUD_TOKEN or HCLOUD_TOKEN_FILE is not accepted: is it complete, and does it still exist?"),
        (&["run"], &[("HCLOUD_NETWORK", "4711")], 1, "ERROR cloud-node-controller: 3 nodes wait: HCLOUD_NETWORK: there is no Network 4711; this project has sandbox (1000001)"),
        (&["run"], &[("KUBECONFIG", "/nowhere")], 1, "kubeconfig \"/nowhere\": the file does not exist; correct the path"),
    ]);
}

#[test]
fn a_daemon_waits_for_what_is_unreachable() {
    let sandbox = world();
    for half in [Half::Hetzner, Half::Kubernetes] {
        sandbox.stop(half);
        // At -v=4 each failed call is a line: so it is seen that many ticks have failed.
        let daemon = Daemon::start(
            &env(&sandbox),
            &["-v=4", "--node-status-update-frequency=1s", "--leader-elect=false"],
        );
        let failed = || daemon.log().matches("DEBUG GET").count();
        let warnings = || daemon.log().lines().filter(|line| line.contains(" WARN ")).count();
        wait_until("ten failed calls", || failed() >= 10);
        wait_until("the outage", || warnings() == 1);
        sandbox.resume(half).unwrap();
        daemon.logs("Kubernetes and the cloud answer again");
        sandbox.wait_for_nodes();
        sandbox.stop(half);
        let before = failed();
        wait_until("the next outage", || warnings() == 2);
        wait_until("ten more failed calls", || failed() >= before + 10);
        sandbox.resume(half).unwrap();
        wait_until("its end", || {
            daemon.log().matches("Kubernetes and the cloud answer again").count() == 2
        });
        daemon.signal("-TERM");
        assert_eq!(daemon.ended().code(), Some(0));
        assert_eq!(warnings(), 2, "{}", daemon.log());
    }
}

#[test]
fn a_token_that_is_taken_away_later_is_waited_for() {
    let sandbox = world();
    let daemon = Daemon::start(&env(&sandbox), &["--node-status-update-frequency=1s"]);
    sandbox.wait_for_nodes();
    let projects = sandbox.projects();
    sandbox.cloud().remove_token(&projects.token);
    daemon.logs("is not accepted");
    sandbox.cloud().add_token(projects.own, &projects.token, false);
    daemon.logs("Kubernetes and the cloud answer again");
    daemon.logged("WARN", 1);
}

#[test]
fn output_to_a_closed_pipe_ends_a_command_quietly() {
    let sandbox = world();
    let run = |stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccm"));
        command.args(LIST).env_clear().envs(env(&sandbox)).stdout(stdout).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let expected = (Some(0), String::new());
    assert_eq!(run(writer.into()), expected, "a reader that went away");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let message =
        "ccm: the output can't be written to stdout: No space left on device (os error 28)\n";
    assert_eq!(run(full.into()), (Some(1), message.into()), "a full disk");
}
