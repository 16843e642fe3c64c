//! What people see when something is wrong: the exact line, the exit code, and what was not done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Daemon, Env, ccm, env, node, wait_until, with};
use sandbox::faults::{Effect, Rule};
use sandbox::kubernetes::PolicyRule;
use sandbox::{Half, Sandbox};
use std::process::{Command, Stdio};

/// Three nodes that wait to be initialised, in the Network `sandbox`.
fn world() -> Sandbox {
    Sandbox::builder()
        .nodes(3)
        .scale(0.02)
        .network("10.0.0.0/8")
        .heartbeats(false)
        .start()
}

/// What stays the same from run to run, without the `ccm: ` or the time before each line, and without what is no
/// complaint.
fn complaints(sandbox: &Sandbox, stderr: &str) -> String {
    let text = stderr
        .replace(&sandbox.folder().display().to_string(), "DIR")
        .replace(&sandbox.hetzner_url(), "HETZNER")
        .replace(&sandbox.kubernetes_url(), "KUBERNETES");
    let text = text
        .split("correlation ")
        .enumerate()
        .map(|(index, part)| match index {
            0 => part.to_owned(),
            _ => format!(
                "ID{}",
                part.trim_start_matches(|c: char| c.is_ascii_alphanumeric())
            ),
        });
    let text: String = text.collect();
    let lines = text.lines().map(|line| match line.split_once(' ') {
        Some((time, rest)) if time.parse::<jiff::Timestamp>().is_ok() => rest,
        _ => line.trim_start_matches("ccm: "),
    });
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("INFO ")).collect();
    lines.join("\n")
}

/// A command, what is set otherwise, its exit code, and its complaints.
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
    let _ = wrong;
}

const LIST: &[&str] = &["node", "list"];
const ONCE: &[&str] = &["run", "--once"];

/// 64 characters, as a token has.
const NO_TOKEN: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn settings() {
    let sandbox = world();
    let foreign = sandbox.projects().foreign_token.clone();
    let root = sandbox.hetzner_url().replace("/v1", "");
    sandbox
        .cloud()
        .create_network(sandbox.project(), "other", "10.0.0.0/8");
    #[rustfmt::skip]
    check(&sandbox, &env(&sandbox), &[
        (LIST, &[("HCLOUD_TOKEN", "")], 1, "?"),
        (LIST, &[("HCLOUD_TOKEN", "short")], 1, "?"),
        (LIST, &[("HCLOUD_TOKEN", NO_TOKEN)], 1, "?"),
        (LIST, &[("HCLOUD_TOKEN", "two words")], 1, "?"),
        (LIST, &[("HCLOUD_TOKEN", ""), ("HCLOUD_TOKEN_FILE", "/nowhere")], 1, "?"),
        (LIST, &[("HCLOUD_TOKEN", ""), ("HCLOUD_TOKEN_FILE", NO_TOKEN)], 1, "?"),
        (LIST, &[("HCLOUD_NETWORK", "sandbix")], 1, "?"),
        (LIST, &[("HCLOUD_NETWORK", "4711")], 1, "?"),
        (LIST, &[("HCLOUD_NETWORK", "nets"), ("HCLOUD_TOKEN", &foreign)], 1, "?"),
        (LIST, &[("HCLOUD_ENDPOINT", "localhost")], 1, "?"),
        (LIST, &[("HCLOUD_ENDPOINT", &root)], 1, "?"),
        (LIST, &[("HCLOUD_ENDPOINT", "http://127.0.0.1:1/v1")], 1, "?"),
        (LIST, &[("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv5"), ("HCLOUD_DEBUG", "maybe")], 1, "?"),
        (LIST, &[("HCLOUD_NETWROK", "x"), ("HCLOUD_NETWORK", "")], 0, "?"),
        (ONCE, &[("HCLOUD_TOKEN", NO_TOKEN)], 1, "?"),
        (&["run", "--once", "--controllers=-cloud-node"], &[], 1, "?"),
        (&["run", "--node-sync-interval=5", "--onec", "extra"], &[("HCLOUD_DEBUG", "2"), ("HCLOUD_TOKEN", "")], 2, "?"),
    ]);
}

#[test]
fn usage() {
    let sandbox = world();
    #[rustfmt::skip]
    check(&sandbox, &env(&sandbox), &[
        (&["nodes"], &[], 2, "?"),
        (&["frobnicate"], &[], 2, "?"),
        (&["node", "lst"], &[], 2, "?"),
        (&["help", "nod"], &[], 2, "?"),
        (&["node", "list", "--outptu", "json"], &[], 2, "?"),
        (&["node", "list", "-o", "xml"], &[], 2, "?"),
        (&["node", "list", "-o"], &[], 2, "?"),
        (&["node", "list", "-o", "xml", "--frob", "-v=much"], &[("HCLOUD_DEBUG", "2")], 2, "?"),
        (&["node", "list", "worker-1"], &[], 2, "?"),
        (&["node", "list", "--once"], &[], 2, "?"),
        (&["node", "list", "--token", NO_TOKEN], &[], 2, "?"),
        (&["node", "inspect"], &[], 2, "?"),
        (&["node", "inspect", "worker1"], &[], 1, "?"),
        (&["node", "inspect", "other"], &[], 1, "?"),
        (&["node", "sync", "worker-1", "wroker-2", "zzz"], &[], 1, "?"),
        (&["node", "sync", "--detailed-exitcode"], &[], 2, "?"),
        (&["node", "list", "\u{1b}[2J"], &[], 2, "?"),
        (&["\u{1b}[2J"], &[], 2, "?"),
    ]);
    for name in ["worker-1", "worker-2", "worker-3"] {
        assert!(!common::is_initialised(&node(&sandbox, name)), "{name}");
    }
}

#[test]
fn answers_of_something_else() {
    let sandbox = world();
    let env = env(&sandbox);
    let cases: [(Half, Effect, &str); 11] = [
        (Half::Hetzner, Effect::html(), "?"),
        (Half::Hetzner, Effect::proxy_not_found(), "?"),
        (Half::Hetzner, Effect::gateway_timeout(), "?"),
        (Half::Hetzner, Effect::other_json(), "?"),
        (Half::Hetzner, Effect::Malformed, "?"),
        (Half::Hetzner, Effect::Reset, "?"),
        (Half::Hetzner, Effect::hetzner_rate_limit(), "?"),
        (
            Half::Hetzner,
            Effect::hetzner_error(503, "maintenance", "back soon"),
            "?",
        ),
        (Half::Kubernetes, Effect::html(), "?"),
        (Half::Kubernetes, Effect::proxy_not_found(), "?"),
        (
            Half::Kubernetes,
            Effect::kubernetes_status(500, "InternalError", "etcdserver: request timed out"),
            "?",
        ),
    ];
    for (half, effect, why) in cases {
        let rule = sandbox.faults().add(Rule::new(effect).half(half));
        let (list, once) = match half {
            Half::Hetzner => {
                let call = format!("GET HETZNER/networks?sort=id:asc&page=1&per_page=50: {why}");
                (call.clone(), format!("3 nodes wait: {call}"))
            }
            Half::Kubernetes => {
                let call =
                    format!("GET KUBERNETES/api/v1/nodes?limit=500&resourceVersion=0: {why}");
                (
                    format!("{call} (kubeconfig DIR/kubeconfig-ccm, context ccm)"),
                    call,
                )
            }
        };
        let once = format!("ERROR cloud-node-controller: {once}");
        check(
            &sandbox,
            &env,
            &[(LIST, &[], 1, &list), (ONCE, &[], 1, &once)],
        );
        sandbox.faults().remove(rule);
    }
}

#[test]
fn unreachable() {
    let sandbox = world();
    let env = env(&sandbox);
    let refused = "connection refused; is the API running, and is this its address?";
    let hetzner = format!("GET HETZNER/networks?sort=id:asc&page=1&per_page=50: {refused}");
    let kubernetes = format!("GET KUBERNETES/api/v1/nodes?limit=500&resourceVersion=0: {refused}");
    let origin = "(kubeconfig DIR/kubeconfig-ccm, context ccm)";
    for (half, list, once) in [
        (
            Half::Hetzner,
            hetzner.clone(),
            format!("3 nodes wait: {hetzner}"),
        ),
        (
            Half::Kubernetes,
            format!("{kubernetes} {origin}"),
            kubernetes,
        ),
    ] {
        sandbox.stop(half);
        let once = format!("ERROR cloud-node-controller: {once}");
        check(
            &sandbox,
            &env,
            &[
                (LIST, &[], 1, &list),
                (&["node", "inspect", "worker-1"], &[], 1, &list),
                (&["node", "sync"], &[], 1, &list),
                (&["node", "sync", "--dry-run", "worker-1"], &[], 1, &list),
                (ONCE, &[], 1, &once),
                (
                    &["run", "--dry-run"],
                    &[],
                    1,
                    &once.replace("3 nodes wait: ", ""),
                ),
            ],
        );
        sandbox.resume(half).unwrap();
    }
    check(&sandbox, &env, &[(LIST, &[], 0, "")]);
}

#[test]
fn what_a_role_does_not_allow() {
    let sandbox = world();
    let rule = |verbs: &[&str]| PolicyRule {
        api_groups: vec![String::new()],
        resources: vec!["nodes".into()],
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    sandbox.add_user("nobody", &[], Vec::new()).unwrap();
    sandbox
        .add_user("reader", &[], vec![rule(&["get", "list"])])
        .unwrap();
    let env_of = |user| {
        with(
            env(&sandbox),
            &sandbox
                .env_of(user)
                .iter()
                .map(|(n, v)| (n.as_str(), v.as_str()))
                .collect::<Vec<_>>(),
        )
    };
    let denied = "GET KUBERNETES/api/v1/nodes?limit=500&resourceVersion=0: nodes is forbidden: User \"nobody\" cannot \
                  list resource \"nodes\" in API group \"\" at the cluster scope (403 Forbidden); give this user a role \
                  that allows it";
    check(
        &sandbox,
        &env_of("nobody"),
        &[
            (
                LIST,
                &[],
                1,
                &format!("{denied} (kubeconfig DIR/kubeconfig-nobody, context nobody)"),
            ),
            (
                ONCE,
                &[],
                1,
                &format!("ERROR cloud-node-controller: {denied}"),
            ),
            (
                &["run"],
                &[],
                1,
                &format!("ERROR cloud-node-controller: {denied}"),
            ),
        ],
    );
    check(&sandbox, &env_of("reader"), &[(LIST, &[], 0, "")]);
    let ran = ccm(&env_of("reader"), &["node", "sync", "worker-2"]);
    let expected = "node/worker-2  failed: PATCH KUBERNETES/api/v1/nodes/worker-2/status: nodes \"worker-2\" is forbidden: \
                    User \"reader\" cannot patch resource \"nodes/status\" in API group \"\" at the cluster scope \
                    (403 Forbidden); give this user a role that allows it\n0 changed, 1 unchanged, 1 failed";
    assert_eq!(
        (ran.code, complaints(&sandbox, &ran.stdout).as_str()),
        (1, expected),
        "{ran:?}"
    );
}

#[test]
fn tokens_of_others() {
    let sandbox = world();
    let env = env(&sandbox);
    let projects = sandbox.projects();
    let read_only = with(env.clone(), &[("HCLOUD_TOKEN", &projects.read_only_token)]);
    assert_eq!(ccm(&read_only, &["node", "sync", "worker-1"]).code, 0);
    let before = sandbox.cluster().list("nodes", None);
    let foreign = with(
        env,
        &[
            ("HCLOUD_TOKEN", &projects.foreign_token),
            ("HCLOUD_NETWORK", ""),
        ],
    );
    let listed = ccm(&foreign, LIST);
    println!("{}", listed.stdout);
    let once = ccm(&foreign, ONCE);
    println!("{}", once.stderr);
    let synced = ccm(&foreign, &["node", "sync"]);
    println!("{} {}", synced.stdout, synced.stderr);
    assert_eq!((listed.code, once.code, synced.code), (0, 1, 1));
    assert_eq!(
        sandbox.cluster().list("nodes", None),
        before,
        "a node was written to"
    );
}

#[test]
fn a_daemon_that_needs_a_person_ends() {
    let sandbox = world();
    let env = env(&sandbox);
    check(
        &sandbox,
        &env,
        &[
            (&["run"], &[("HCLOUD_TOKEN", NO_TOKEN)], 1, "?"),
            (&["run"], &[("HCLOUD_NETWORK", "4711")], 1, "?"),
            (&["run"], &[("KUBECONFIG", "/nowhere")], 1, "?"),
        ],
    );
}

#[test]
fn a_daemon_waits_for_what_is_unreachable() {
    let sandbox = world();
    for half in [Half::Hetzner, Half::Kubernetes] {
        sandbox.stop(half);
        // At -v=4 each failed call is a line: so it is seen that many ticks have failed.
        let daemon = Daemon::start(
            &env(&sandbox),
            &["-v=4", "--node-status-update-frequency=1s"],
        );
        let failed = || daemon.log().matches("DEBUG GET").count();
        wait_until("ten failed calls", || failed() >= 10);
        sandbox.resume(half).unwrap();
        daemon.logs("both APIs answer again");
        wait_until("initialised nodes", || common::all_initialised(&sandbox));
        sandbox.stop(half);
        let before = failed();
        let warnings = || {
            daemon
                .log()
                .lines()
                .filter(|line| line.contains(" WARN "))
                .count()
        };
        wait_until("the next outage", || warnings() == 2);
        wait_until("ten more failed calls", || failed() >= before + 10);
        sandbox.resume(half).unwrap();
        wait_until("its end", || {
            daemon.log().matches("both APIs answer again").count() == 2
        });
        daemon.signal("-TERM");
        assert_eq!(daemon.ended().code(), Some(0));
        println!(
            "{}",
            daemon
                .log()
                .lines()
                .filter(|l| !l.contains("DEBUG"))
                .collect::<Vec<_>>()
                .join("\n")
        );
        assert_eq!(warnings(), 2, "{}", daemon.log());
    }
}

#[test]
fn a_token_that_is_taken_away_later_is_waited_for() {
    let sandbox = world();
    let daemon = Daemon::start(&env(&sandbox), &["--node-status-update-frequency=1s"]);
    wait_until("initialised nodes", || common::all_initialised(&sandbox));
    let projects = sandbox.projects();
    sandbox.cloud().remove_token(&projects.token);
    daemon.logs("is not accepted");
    sandbox
        .cloud()
        .add_token(projects.own, &projects.token, false);
    daemon.logs("both APIs answer again");
    assert_eq!(daemon.log().matches("WARN").count(), 1, "{}", daemon.log());
}

#[test]
fn output_that_nobody_takes() {
    let sandbox = world();
    let run = |stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccm"));
        command
            .args(LIST)
            .env_clear()
            .envs(env(&sandbox))
            .stdout(stdout)
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(
        run(writer.into()),
        (Some(0), String::new()),
        "a reader that went away"
    );
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let message =
        "ccm: the output can't be written to stdout: No space left on device (os error 28)\n";
    assert_eq!(run(full.into()), (Some(1), message.into()), "a full disk");
}
