//! What only a terminal shows: the line about a wait, screens that are drawn again, and who asks for colour.

use crate::common::{self, Cluster, Env, LIMIT, at_terminal, ccm, env, with};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SCALE: f64 = 0.02;

fn world(nodes: usize) -> (Sandbox, Env) {
    let sandbox = common::networked(nodes).scale(SCALE).start();
    // Waits are as long as a person's.
    let env = with(env(&sandbox), &[("CCM_TEST_TIME_SCALE", "1"), ("TERM", "xterm")]);
    (sandbox, env)
}

/// Returns what a terminal shows at the end, which is the part of each line that was written after its last erasure.
fn left(shown: &str) -> Vec<&str> {
    let lines = shown.lines();
    lines.map(|line| line.split("\u{1b}[K").last().unwrap()).collect()
}

#[test]
fn a_wait_at_a_terminal_is_one_line_that_is_erased() {
    // Each case has the API whose first answer is slow, the command, the duration of an action, and the line.
    const HETZNER: &str = "ccm: waiting for GET http://";
    const KUBERNETES: &str = "ccm: waiting for GET https://";
    const BALANCER: &str = "ccm: waiting for service/default/web: create load balancer ";
    const ROUTE: &str = "ccm: waiting for node/worker-1: add route 10.244.1.0/24 via 10.0.0.2 (";
    #[rustfmt::skip] // A case is a line.
    let cases: &[(&str, Option<Half>, &str)] = &[
        ("node list", Some(Half::Hetzner), HETZNER),
        ("node sync --settings-from=none", Some(Half::Kubernetes), KUBERNETES),
        ("doctor --settings-from=none", Some(Half::Kubernetes), KUBERNETES),
        ("lb list -o json", Some(Half::Hetzner), HETZNER),
        ("run --dry-run", Some(Half::Kubernetes), KUBERNETES),
        ("lb sync", None, BALANCER),
        ("route sync --cluster-cidr=10.244.0.0/16", None, ROUTE),
        ("run --once --leader-elect=false", None, BALANCER),
    ];
    common::run_in_parallel(cases.to_vec(), |(words, slow, line)| {
        let words: Vec<&str> = words.split(' ').collect();
        let (sandbox, env) = world(1);
        if words[0] == "route" {
            ccm(&with(env.clone(), &[("TERM", "")]), &["node", "sync"]).with_code(0);
        }
        sandbox.create("web", &[("location", "fsn1")], &[80]);
        let long = Duration::from_secs(4);
        if let Some(half) = slow {
            let slow = Effect::Slow(long);
            sandbox.fault(Rule::new(slow).half(half).times(1));
        }
        for command in ["create_load_balancer", "add_route"] {
            let long = long.div_f64(SCALE);
            sandbox.cloud().set_action_duration(command, slow.is_none().then_some(long));
        }
        let Some(shown) = at_terminal(&env, &words) else {
            return;
        };
        assert!(shown.contains(line), "{line}: {shown:?}");
        assert!(!left(&shown).concat().contains("ccm: waiting"), "{shown:?}");
        assert!(!left(&shown).concat().is_empty(), "{shown:?}");
    });
}

/// A wait has no line in a pipe, nor at a terminal that can't move its cursor.
#[test]
fn a_wait_without_a_terminal_redraws_no_line() {
    common::run_in_parallel(vec![false, true], |is_at_terminal| {
        let (sandbox, env) = world(1);
        let long = Some(Duration::from_secs(3).div_f64(SCALE));
        sandbox.cloud().set_action_duration("create_load_balancer", long);
        sandbox.create("web", &[("location", "fsn1")], &[80]);
        let shown = if is_at_terminal {
            at_terminal(&with(env, &[("TERM", "dumb")]), &["lb", "sync"])
        } else {
            let piped = ccm(&env, &["lb", "sync"]).with_code(0);
            Some(piped.stdout + &piped.stderr)
        };
        let Some(shown) = shown else { return };
        assert!(shown.contains("0 failed"), "{shown:?}");
        assert!(!shown.contains("waiting") && !shown.contains('\u{1b}'), "{shown:?}");
    });
}

#[test]
fn colour_of_a_plan_of_the_daemon_is_a_flag() {
    let (_sandbox, env) = world(2);
    let planned = |flags: &[&str], variables: &[(&str, &str)]| {
        let env = with(env.clone(), variables);
        let words = ["run", "--dry-run", "--controllers=cloud-node"];
        let ran = ccm(&env, &[&words, flags].concat()).with_code(0);
        assert!(!ran.stderr.contains('\u{1b}'), "the log has none: {ran:?}");
        ran.stdout
    };
    let add = "\u{1b}[32m+ node/worker-1  set ";
    assert!(planned(&["--color=always"], &[]).contains(add));
    let flag_wins = planned(&["--color=always"], &[("NO_COLOR", "1")]);
    assert!(flag_wins.contains(add));
    assert!(!planned(&[], &[]).contains('\u{1b}'), "a pipe has none");
    let words = ["run", "--dry-run", "--controllers=cloud-node", "--color=never"];
    for (words, env, has) in [
        (&words[..3], env.clone(), true),
        (&words[..], env.clone(), false),
        (&words[..3], with(env, &[("NO_COLOR", "1")]), false),
    ] {
        if let Some(shown) = at_terminal(&env, words) {
            assert_eq!(shown.contains(add), has, "{words:?}: {shown}");
        }
    }
}

/// Each screen in the place of the last one.
#[test]
fn a_watch_at_a_terminal_redraws_and_ctrl_c_ends_it() {
    const SCREEN: &str = "\u{1b}[H\u{1b}[2J";
    let (_sandbox, env) = world(2);
    let env = with(env, &[("CCM_TEST_TIME_SCALE", common::SCALE)]);
    for words in ["status --watch", "node list --watch"] {
        // The shell becomes the command, so the number is the command's.
        let line =
            format!("stty rows 10 cols 100; echo $$; exec {} {words}", common::binary().display());
        let child = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("SHELL", "/bin/sh")
            .envs(env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            return sandbox::skipped::skip("screens at a terminal", "script", "there is none");
        };
        let mut stdout = child.stdout.take().unwrap();
        let (mut shown, mut bytes) = (String::new(), [0; 4096]);
        let begun = Instant::now();
        let mut read = |shown: &mut String| {
            assert!(begun.elapsed() < LIMIT, "{shown:?}");
            let count = stdout.read(&mut bytes).unwrap_or(0);
            *shown += &String::from_utf8_lossy(&bytes[..count]);
            count > 0
        };
        while shown.matches(SCREEN).count() < 3 {
            assert!(read(&mut shown), "{words}: {shown:?}");
        }
        let number = shown.lines().next().unwrap().trim();
        common::send("-INT", number.parse().unwrap());
        while read(&mut shown) {}
        assert_eq!(child.wait().unwrap().code(), Some(130), "{words}: {shown:?}");
        let screens: Vec<&str> = shown.split(SCREEN).skip(1).collect();
        let rows = screens[0].lines().count();
        assert!(rows <= 9, "{words}: {rows} of 10 rows: {shown:?}");
        let is_cut = screens[0].contains(" more lines");
        assert_eq!(is_cut, words.starts_with("status"), "{words}: {shown:?}");
    }
}
