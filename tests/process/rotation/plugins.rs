//! Credentials of plugins that expire, are refused, or are not available for a while.

use super::{V1, World, status_of};
use crate::common::{Daemon, env, wait_until, with};
use sandbox::calls::Call;
use sandbox::credentials::Authority;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn a_refused_token_of_a_plugin_is_renewed() {
    let mut world = World::new();
    let [first, second] = ["first", "second"].map(|name| world.token(name));
    world.answer(json!({"token": first}));
    let config = world.plugin();
    world.start_with(&config);
    world.uses("first");
    assert_eq!(world.runs(), 1, "for both clients and all threads");
    world.answer(json!({"token": second}));
    world.works("one");
    assert_eq!(world.runs(), 1, "nobody said that the first has ended");
    world.sandbox.cluster().remove_token(&first);
    world.uses("second");
    world.works("two");
    assert_eq!(world.runs(), 2, "once, whoever was refused");
}

#[test]
fn a_token_of_a_plugin_is_renewed_before_it_expires() {
    let mut world = World::new();
    let token = world.token("first");
    let config = world.plugin();
    // The time is the program's to say, at each run.
    let folder = world.sandbox.folder().display().to_string();
    let text = format!(
        "#!/bin/sh\necho run >> {folder}/runs\n\
         echo '{{\"kind\":\"ExecCredential\",\"apiVersion\":\"{V1}\",\"status\":{{\"token\":\"{token}\",\
         \"expirationTimestamp\":\"'$(date -u -d '+4 seconds' +%Y-%m-%dT%H:%M:%SZ)'\"}}}}'\n"
    );
    fs::write(world.path("plugin"), text).unwrap();
    let begun = Instant::now();
    world.start_with(&config);
    wait_until("three runs", || world.runs() >= 3);
    // Whole seconds are cut off, so a credential is valid for three seconds at least, and is renewed a tenth
    // before its end.
    let most = begun.elapsed().as_secs_f64() / 2.6 + 2.0;
    assert!(world.runs() as f64 <= most, "{} runs", world.runs());
    world.works("two");
    let is_refused = |call: &Call| call.status == Some(401);
    assert_eq!(world.sandbox.calls().count(is_refused), 0);
}

#[test]
fn a_certificate_of_a_plugin_is_renewed() {
    let mut world = World::new();
    let first = world.identity("first", world.sandbox.authority());
    world.answer(status_of(&first));
    let config = world.plugin();
    world.start_with(&config);
    world.uses("first");
    let clients = Authority::new("new-clients").unwrap();
    let second = world.identity("second", &clients);
    world.answer(status_of(&second));
    world.trust(&clients);
    world.uses("second");
    world.works("two");
    assert_eq!(world.runs(), 2);
}

/// The program breaks, its credential is refused, and then it works again. Nothing of the failure remains.
#[test]
fn a_plugin_that_fails_for_a_while_is_tried_again() {
    let mut world = World::new();
    let [first, second] = ["first", "second"].map(|name| world.token(name));
    world.answer(json!({"token": first}));
    let config = world.plugin();
    // Time is short here, and a Lease would be lost before the program is asked again.
    world.start_flagged(&config, &["--leader-elect=false"]);
    fs::remove_file(world.path("answer")).unwrap();
    world.sandbox.cluster().remove_token(&first);
    let failed = "\"./plugin\" failed (exit status: 1); run the plugin by hand";
    world.daemon.as_ref().unwrap().logs(failed);
    world.answer(json!({"token": second}));
    world.does_work("two");
    let is_second = |call: &Call| call.caller == "second";
    assert!(world.sandbox.calls().count(is_second) > 0);
    assert!(world.runs() < 10, "{} runs", world.runs());
}

/// Neither the processes that the plugin started nor our threads and descriptors for it remain.
#[test]
fn a_plugin_that_hangs_leaves_nothing_behind() {
    let mut world = World::new();
    let first = world.token("first");
    world.answer(json!({"token": first}));
    let config = world.plugin();
    // Time is short here, and a Lease would be lost before the program is stopped.
    world.start_flagged(&config, &["--leader-elect=false"]);
    let daemon = world.daemon.as_ref().unwrap();
    fs::remove_file(world.path("runs")).unwrap();
    let folder = world.sandbox.folder().display().to_string();
    let text = format!("#!/bin/sh\nsleep 600 &\necho $! >> {folder}/runs\nwait\n");
    fs::write(world.path("plugin"), text).unwrap();
    world.sandbox.cluster().remove_token(&first);
    let children = || -> Vec<String> {
        let runs = fs::read_to_string(world.path("runs")).unwrap_or_default();
        runs.lines().map(str::to_owned).collect()
    };
    let count = |folder: &str| {
        let of_daemon = format!("/proc/{}/{folder}", daemon.id());
        fs::read_dir(of_daemon).unwrap().count()
    };
    let state = || (count("fd"), count("task"));
    // A run begins when the one before was ended. What there is at the end of the first one, after which nothing can be
    // left, is compared with the third one's.
    let mut early = state();
    wait_until("a second run", || {
        let is_first = children().len() < 2;
        if is_first {
            early = state();
        }
        !is_first
    });
    wait_until("a third run", || children().len() >= 3);
    // Requests may use more for a moment.
    wait_until("as few descriptors and threads as before", || {
        let (descriptors, threads) = state();
        descriptors <= early.0 + 2 && threads <= early.1 + 1
    });
    for child in &children()[..2] {
        let status = format!("/proc/{child}/status");
        let is_gone =
            || fs::read_to_string(&status).map_or(true, |status| status.contains("State:\tZ"));
        wait_until("the plugin's child to go", is_gone);
    }
}

#[test]
fn a_plugin_that_hangs_does_not_hold_up_the_end() {
    let world = World::new();
    let config = world.plugin();
    let folder = world.sandbox.folder().display().to_string();
    let text = format!("#!/bin/sh\necho run >> {folder}/runs\nexec sleep 60\n");
    fs::write(world.path("plugin"), text).unwrap();
    world.write("ca.crt", world.sandbox.authority().certificate_pem());
    world.write("rotating", &config);
    let path = world.path("rotating").display().to_string();
    // The test runs in real time, because the program has half a minute.
    let changes = [("KUBECONFIG", &path[..]), ("CCM_TEST_TIME_SCALE", "1")];
    let daemon = Daemon::start(&with(env(&world.sandbox), &changes), &[]);
    wait_until("a run", || world.path("runs").exists());
    let begun = Instant::now();
    daemon.signal("-TERM");
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert!(begun.elapsed() < Duration::from_secs(10), "{}", daemon.log());
    assert_eq!(world.runs(), 1);
}
