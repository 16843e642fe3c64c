//! The login of the Robot web service. Three failed logins block the IP of the machine, so a failed login is never
//! repeated, not even by the next process.

use crate::common::{
    self, Cluster, Daemon, Env, Ran, builder, ccm, env, is_initialised, run_in_parallel,
    wait_until, with,
};
use sandbox::robot::Logins;
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ten minutes, at the scale of these tests.
const WAIT: Duration = Duration::from_secs(12);

const WRONG: &[(&str, &str)] = &[("ROBOT_PASSWORD", "of-another-account")];

fn start() -> Sandbox {
    let builder = builder().nodes(1).robot(1).heartbeats(false);
    builder.scale(common::SCALE.parse().unwrap()).start()
}

fn logins(sandbox: &Sandbox) -> Logins {
    sandbox.robot().logins()
}

/// Returns the number of failed logins, and asserts that the IP is not blocked.
fn failed(sandbox: &Sandbox) -> usize {
    let logins = logins(sandbox);
    assert_eq!(logins.blocked, 0, "{logins:?}");
    logins.failed
}

/// Returns what the Lease remembers of a refused login.
fn noted(sandbox: &Sandbox) -> Value {
    sandbox.lease()["metadata"]["annotations"]["ccm-from-scratch/robot-login-refused"].clone()
}

fn waits(ran: &Ran) {
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("Robot refused a login at "), "{said}");
    let until = ["the next login until 20", "no dedicated servers until 20"];
    assert!(until.iter().any(|until| said.contains(until)), "{said}");
}

#[test]
fn a_wrong_password_costs_one_login_in_ten_minutes_across_all_processes() {
    let sandbox = start();
    let env = env(&sandbox);
    let wrong = with(env.clone(), WRONG);
    let begun = Instant::now();
    let daemon = Daemon::start(&wrong, &[]);
    // The Cloud's nodes are initialised meanwhile.
    sandbox.wait_for_node("worker-1");
    daemon.logs("ROBOT_USER and ROBOT_PASSWORD");
    wait_until("a note on the Lease", || noted(&sandbox).is_string());
    assert_eq!(failed(&sandbox), 1);
    assert!(!is_initialised(&sandbox.node("metal-1")));
    // The daemon is killed, and another one started. It waits for the Lease, and then for the login.
    drop(daemon);
    let daemon = Daemon::start(&wrong, &[]);
    daemon.logs("leading as");
    daemon.logs("Robot refused a login at ");
    for words in [
        &["node", "list"][..],
        &["node", "inspect", "metal-1"],
        &["node", "sync", "--dry-run"],
        &["lb", "list"],
        &["run", "--dry-run"],
    ] {
        waits(&ccm(&wrong, words));
    }
    for words in [&["doctor"], &["status"]] {
        ccm(&wrong, words);
    }
    daemon.stop();
    waits(&ccm(&wrong, &["run", "--once"]));
    // The right login waits as well, because the Lease does not tell which one was wrong.
    waits(&ccm(&env, &["run", "--once"]));
    let is_early = begun.elapsed() < WAIT;
    assert!(is_early, "a busy machine: {:?}", begun.elapsed());
    assert_eq!(failed(&sandbox), 1);
    assert_eq!(logins(&sandbox).good, 0);
    assert!(noted(&sandbox).is_string());

    // After ten minutes there is another try, and the Lease remembers that one.
    let first = noted(&sandbox);
    let daemon = Daemon::start(&wrong, &[]);
    wait_until("another failed login", || failed(&sandbox) == 2);
    assert!(begun.elapsed() >= WAIT, "{:?}", begun.elapsed());
    wait_until("another note", || noted(&sandbox) != first);
    drop(daemon);
}

#[test]
fn a_pass_with_a_refused_login_remembers_it_for_the_next() {
    let sandbox = start();
    let wrong = with(env(&sandbox), WRONG);
    ccm(&wrong, &["run", "--once"]).with_code(1);
    assert!(noted(&sandbox).is_string());
    let second = ccm(&wrong, &["run", "--once"]).with_code(1);
    waits(&second);
    assert_eq!(failed(&sandbox), 1);
}

#[test]
fn a_command_logs_in_once() {
    let commands: Vec<&[&str]> = vec![
        &["node", "list"],
        &["node", "inspect", "metal-1"],
        &["node", "sync"],
        &["lb", "list"],
        &["run", "--dry-run"],
        &["doctor"],
        &["status"],
    ];
    run_in_parallel(commands, |words| {
        let sandbox = start();
        let ran = ccm(&with(env(&sandbox), WRONG), words);
        assert!(failed(&sandbox) <= 1, "{words:?}: {ran:?}");
        assert_eq!(logins(&sandbox).good, 0);
        assert_eq!(noted(&sandbox), Value::Null, "only a leader notes it");
    });
}

#[test]
fn new_credentials_in_a_file_are_tried_at_once_and_forget_the_refusal() {
    let sandbox = start();
    let (user, password) = sandbox.robot().login();
    let path: PathBuf = sandbox.folder().join("robot-password");
    let write = |text: &str| {
        // The file changes at once, like a volume of a Secret.
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    write("of-another-account\n");
    let file = path.display().to_string();
    let env: Env = with(
        env(&sandbox),
        &[("ROBOT_USER", &user), ("ROBOT_PASSWORD", ""), ("ROBOT_PASSWORD_FILE", &file)],
    );
    let begun = Instant::now();
    let daemon = Daemon::start(&env, &[]);
    wait_until("a note on the Lease", || noted(&sandbox).is_string());
    write(&format!("{password}\n"));
    sandbox.wait_for_nodes();
    assert!(begun.elapsed() < WAIT, "{:?}", begun.elapsed());
    assert_eq!(failed(&sandbox), 1);
    wait_until("no note on the Lease", || noted(&sandbox).is_null());
    daemon.stop();
    assert!(!daemon.log().contains(&password) && !daemon.log().contains("of-another-account"));
}

/// Robot answers with a block, and later accepts the right password.
#[test]
fn a_block_of_the_ip_is_waited_out() {
    let sandbox = start();
    for _ in 0..3 {
        common::fail_to_log_in(&sandbox);
    }
    let daemon = sandbox.daemon(&[]);
    wait_until("a note on the Lease", || noted(&sandbox).is_string());
    daemon.logs("while it blocks the IP of this machine");
    sandbox.wait_for_nodes();
    let logins = logins(&sandbox);
    assert_eq!((logins.blocked, logins.failed), (1, 3), "{logins:?}");
    assert_eq!(
        sandbox.calls().count(|call| call.half == Half::Robot && call.status == Some(403)),
        1
    );
}

#[test]
fn a_refused_login_is_remembered_only_in_the_process_without_a_lease() {
    let sandbox = start();
    let wrong = with(env(&sandbox), WRONG);
    let daemon = Daemon::start(&wrong, &["--leader-elect=false"]);
    daemon.logs("Robot refused a login at ");
    assert_eq!(failed(&sandbox), 1);
    drop(daemon);
    let daemon = Daemon::start(&wrong, &["--leader-elect=false"]);
    daemon.logs("Robot refused a login at ");
    assert_eq!(failed(&sandbox), 2);
    drop(daemon);
    assert_eq!(noted(&sandbox), Value::Null);
}
