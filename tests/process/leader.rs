//! Leader election from outside: daemons beside each other, and beside other candidates.
//!
//! In these tests a lease of 15 s lasts 1.5 s, and everything about it accordingly.

use crate::common::cluster::{Cluster, KUBE_SYSTEM, LEASE, held, lease_time};
use crate::common::{
    self, Daemon, Env, all_initialised, at_scale, is_initialised, is_lease, socket_cluster,
    wait_until,
};
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LEASES: &str = "/apis/coordination.k8s.io/**";
const IDENTITY: &str = "ccm-from-scratch/identity";
const LEASE_DURATION: Duration = Duration::from_millis(1_500);

/// The environment of a user of its own, so that calls tell who made them.
fn env_of(sandbox: &Sandbox, user: &str) -> Env {
    sandbox.add_user(user, &[], sandbox::world::official_rules()).unwrap();
    let mut env = sandbox.env_of(user);
    env.push(("CCM_TEST_TIME_SCALE".into(), common::SCALE.into()));
    env
}

/// Returns the fields of the Lease about its holder.
fn spec_of_lease(sandbox: &Sandbox) -> Value {
    sandbox.lease()["spec"].clone()
}

/// Returns what the Lease remembers of the cluster's identity, or `Null` when nothing can be read.
fn noted(sandbox: &Sandbox) -> Value {
    let whole = sandbox.lease();
    let text = whole["metadata"]["annotations"][IDENTITY].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn uid(object: &Value) -> Value {
    object["metadata"]["uid"].clone()
}

/// The Service is deleted, and made again with another UID.
fn replace_kubernetes(sandbox: &Sandbox) {
    let cluster = sandbox.cluster();
    let mut service = sandbox.service("kubernetes").unwrap();
    sandbox.delete("kubernetes");
    service["metadata"] = json!({ "name": "kubernetes" });
    cluster.create("services", Some("default"), service);
}

fn note(sandbox: &Sandbox, text: &str) {
    sandbox.edit_lease(|lease| {
        lease["metadata"]["annotations"][IDENTITY] = json!(text);
    });
}

/// Calls of a user that change something, its own Lease aside.
fn writes(sandbox: &Sandbox, user: &str, mark: u64) -> Vec<String> {
    let calls = sandbox.calls().calls_since(mark);
    let writes =
        calls.iter().filter(|call| call.caller == user && call.is_write() && !is_lease(&call.path));
    writes.map(ToString::to_string).collect()
}

fn count(sandbox: &Sandbox, such: impl Fn(&Call) -> bool) -> usize {
    sandbox.calls().count(such)
}

/// A candidate that is not ours. It renews its record until it is dropped, and has a clock of its own.
struct Holder {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    fn start(sandbox: &Sandbox, clock_offset: jiff::SignedDuration) -> Holder {
        let cluster = Arc::clone(sandbox.cluster());
        let now = move || lease_time(jiff::Timestamp::now() + clock_offset);
        sandbox.create_lease(held("another-host_1", 15, &now(), 7));
        let labels = json!({ "somebody": "else" });
        sandbox.edit_lease(|lease| lease["metadata"]["labels"] = labels.clone());
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let renew = move || {
            while !over.load(Ordering::Relaxed) {
                cluster.edit("leases", KUBE_SYSTEM, LEASE, |lease| {
                    lease["spec"]["renewTime"] = json!(now())
                });
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        Holder { is_over, thread: Some(std::thread::spawn(renew)) }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_standby_leads_when_the_leader_is_killed() {
    let sandbox = socket_cluster(2);
    let first = Daemon::start(&env_of(&sandbox, "first"), &[]);
    first.logs("leading as");
    let second = Daemon::start(&env_of(&sandbox, "second"), &[]);
    second.logs("leads; standing by");
    sandbox.wait_for_nodes();
    let record = spec_of_lease(&sandbox);
    let holder = record["holderIdentity"].as_str().unwrap();
    second.logged(&format!("{holder} leads"), 1);
    assert_eq!(record["leaseDurationSeconds"], 15);
    assert_eq!(record["leaseTransitions"], 0);
    let others =
        |call: &Call| call.caller == "second" && (call.is_write() || !is_lease(&call.path));
    // A standby only looks at the Lease.
    assert_eq!(count(&sandbox, others), 0);

    let begun = Instant::now();
    drop(first);
    sandbox.join_node("late");
    second.logs("leading as");
    let waited = begun.elapsed();
    assert!(waited > LEASE_DURATION.mul_f64(0.8), "after {waited:?}");
    sandbox.wait_for_node("late");
    let record = spec_of_lease(&sandbox);
    assert_ne!(record["holderIdentity"], holder);
    assert_eq!(record["leaseTransitions"], 1);
}

#[test]
fn a_leader_that_is_terminated_hands_over_at_once() {
    let sandbox = socket_cluster(1);
    let first = sandbox.daemon(&[]);
    first.logs("leading as");
    first.stop();
    let record = spec_of_lease(&sandbox);
    assert_eq!(record["holderIdentity"], "");
    assert_eq!(record["leaseDurationSeconds"], 1);

    let second = sandbox.daemon(&[]);
    second.logs("leading as");
    let third = sandbox.daemon(&[]);
    third.logs("standing by");
    let begun = Instant::now();
    second.signal("-INT");
    third.logs("leading as");
    let waited = begun.elapsed();
    assert!(waited < LEASE_DURATION, "after {waited:?}");
    assert!(second.ended().success(), "{}", second.log());
    assert_eq!(spec_of_lease(&sandbox)["leaseTransitions"], 2);
}

#[test]
fn a_standby_ends_at_once_and_leaves_the_lease_alone() {
    let sandbox = socket_cluster(1);
    let _holder = Holder::start(&sandbox, jiff::SignedDuration::ZERO);
    let standby = sandbox.daemon(&[]);
    standby.logs("standing by");
    standby.stop();
    assert_eq!(spec_of_lease(&sandbox)["holderIdentity"], "another-host_1");
}

/// The clock of the other host may be wrong. Only changes of its record count.
#[test]
fn a_holder_that_renews_is_respected_and_one_that_stops_is_followed() {
    let respected = |hours: i64| {
        let sandbox = socket_cluster(1);
        let holder = Holder::start(&sandbox, jiff::SignedDuration::from_hours(hours));
        let daemon = sandbox.daemon(&[]);
        daemon.logs("another-host_1 leads; standing by");
        let polls = || count(&sandbox, |call| is_lease(&call.path));
        // There is a poll every 0.2 s, so this takes two lease durations.
        wait_until("15 polls", || polls() >= 15);
        assert!(!daemon.log().contains("leading"), "{}", daemon.log());
        let begun = Instant::now();
        drop(holder);
        daemon.logs("leading as");
        let waited = begun.elapsed();
        assert!(waited > LEASE_DURATION.mul_f64(0.8), "{hours} h: after {waited:?}");
        let whole = sandbox.lease();
        assert_eq!(whole["spec"]["leaseTransitions"], 8);
        assert_eq!(whole["metadata"]["labels"]["somebody"], "else");
        sandbox.wait_for_nodes();
    };
    std::thread::scope(|scope| {
        for hours in [-1, 0, 1] {
            scope.spawn(move || respected(hours));
        }
    });
}

#[test]
fn a_leader_that_was_paused_past_its_lease_writes_nothing_afterwards() {
    let sandbox = socket_cluster(40);
    let slow = Effect::Slow(Duration::from_millis(10));
    sandbox.fault(Rule::new(slow).method("PATCH"));
    let first = Daemon::start(&env_of(&sandbox, "first"), &[]);
    let written = |user| writes(&sandbox, user, 0).len();
    wait_until("some work done", || written("first") >= 5);
    first.signal("-STOP");
    let second = Daemon::start(&env_of(&sandbox, "second"), &[]);
    second.logs("leading as");
    assert!(!all_initialised(&sandbox), "it was stopped in the middle");
    sandbox.wait_for_nodes();

    // Something to do for both.
    drop(second);
    let mark = sandbox.mark();
    sandbox.join_node("late");
    first.signal("-CONT");
    assert_eq!(first.ended().code(), Some(1), "{}", first.log());
    assert_eq!(writes(&sandbox, "first", mark), Vec::<String>::new());
    first.logs("ccm starts no more writes");
    first.logged("ERROR", 1);
    assert!(!is_initialised(&sandbox.node("late")));
}

#[test]
fn a_leader_that_cannot_renew_until_the_deadline_ends() {
    let failures = [
        ("refused", Effect::kubernetes_status(500, "InternalError", "sorry")),
        ("silence", Effect::Slow(Duration::from_secs(60))),
        ("answers lost", Effect::Reset),
    ];
    std::thread::scope(|scope| {
        for (name, effect) in failures {
            scope.spawn(move || {
                let sandbox = socket_cluster(1);
                let daemon = sandbox.daemon(&[]);
                sandbox.wait_for_nodes();
                sandbox.fault(Rule::new(effect).path(LEASES));
                assert_eq!(daemon.ended().code(), Some(1), "{name}: {}", daemon.log());
                daemon.logs("not renewed for 1 s; ccm starts no more writes and exits");
                daemon.logged("released", 0);
            });
        }
    });
}

/// Writes wait between the last moment in which a write fits into the lease and the deadline. Here that is from 3.5 s
/// to 7 s after the last renewal.
#[test]
fn a_renewal_that_is_late_makes_a_write_wait() {
    let sandbox = socket_cluster(1);
    let half_as_long = at_scale(&sandbox, 0.5);
    let flags = ["--leader-elect-renew-deadline=14s", "--node-sync-interval=200ms"];
    let daemon = Daemon::start(&half_as_long, &flags);
    sandbox.wait_for_nodes();
    let failing = Effect::kubernetes_status(500, "InternalError", "sorry");
    let failing = sandbox.fault(Rule::new(failing).path(LEASES));
    let begun = Instant::now();
    wait_until("3.6 s", || begun.elapsed() > Duration::from_millis(3_600));
    let mark = sandbox.mark();
    sandbox.join_node("late");
    let asked = || {
        let calls = sandbox.calls().calls_since(mark);
        calls.iter().any(|call| call.half == Half::Hetzner)
    };
    wait_until("a poll of its server", asked);
    let mended = sandbox.mark();
    sandbox.faults().remove(failing);
    sandbox.wait_for_node("late");
    let (all, afterwards) = (writes(&sandbox, "ccm", mark), writes(&sandbox, "ccm", mended));
    assert_eq!(all, afterwards, "{}", daemon.log());
    daemon.logs("trying again every 1 s");
    daemon.logs("the API server answers again");
    daemon.logged("WARN", 1);
}

/// A retry period that is set means the pause between two renewals. Without it, the pause is twice as long.
#[test]
fn a_leader_renews_less_often_when_the_retry_period_is_not_set() {
    let sandbox = socket_cluster(1);
    let env = env_of(&sandbox, "leader");
    let usual = Daemon::start(&env, &["--leader-elect-resource-name=usual"]);
    let set = ["--leader-elect-resource-name=set", "--leader-elect-retry-period=2s"];
    let set = Daemon::start(&env, &set);
    usual.logs("leading as");
    set.logs("leading as");
    let mark = sandbox.mark();
    let renewals = |lease: &str| {
        let calls = sandbox.calls().calls_since(mark);
        calls.iter().filter(|call| call.method == "PUT" && call.path.ends_with(lease)).count()
    };
    wait_until("renewals", || renewals("/set") >= 20);
    let renewed = renewals("/usual");
    assert!((5..=14).contains(&renewed), "{renewed} renewals");
}

#[test]
fn a_leader_ends_when_its_lease_is_taken_and_repairs_it_otherwise() {
    // The Lease is changed by somebody at every renewal, deleted, taken, emptied.
    let sandbox = socket_cluster(1);
    let daemon = sandbox.daemon(&[]);
    daemon.logs("leading as");
    let cluster = Arc::clone(sandbox.cluster());
    let changes = AtomicUsize::new(0);
    let label = move |_: &Request| {
        let change = changes.fetch_add(1, Ordering::Relaxed).to_string();
        cluster.edit("leases", KUBE_SYSTEM, LEASE, |lease| {
            lease["metadata"]["annotations"] = json!({ "note": "mine", "change": change })
        });
    };
    let renewals = Rule::new(Effect::before(label)).method("PUT").path(LEASES);
    sandbox.fault(renewals.every(2));
    let such = |status| move |call: &Call| call.method == "PUT" && call.status == Some(status);
    wait_until("conflicts", || count(&sandbox, such(409)) >= 3);
    let renewed = count(&sandbox, such(200));
    wait_until("renewals", || count(&sandbox, such(200)) >= renewed + 3);
    let whole = sandbox.lease();
    assert_eq!(whole["metadata"]["annotations"]["note"], "mine");

    sandbox.delete_lease();
    wait_until("a new Lease", || !spec_of_lease(&sandbox).is_null());
    let expected = &whole["spec"]["holderIdentity"];
    assert_eq!(spec_of_lease(&sandbox)["holderIdentity"], *expected);
    let log = daemon.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");

    sandbox.edit_lease(|lease| lease["spec"]["holderIdentity"] = json!("intruder"));
    assert_eq!(daemon.ended().code(), Some(1), "{}", daemon.log());
    daemon.logs("intruder holds the Lease now");
    assert_eq!(spec_of_lease(&sandbox)["holderIdentity"], "intruder");
}

#[test]
fn the_lease_remembers_the_identity_of_the_cluster() {
    let sandbox = socket_cluster(1);
    let first = json!(sandbox.uid("kubernetes"));
    let is_noted = |identity: &Value, former: Value| {
        let lease = uid(&sandbox.lease());
        noted(&sandbox) == json!({ "lease": lease, "identity": identity, "former": former })
    };
    let start = || {
        let daemon = sandbox.daemon(&["--load-balancer-resync-period=10s"]);
        daemon.logs("leading as");
        daemon
    };
    let daemon = start();
    wait_until("a note", || is_noted(&first, json!([])));
    // A new Lease gets it, too.
    let old = uid(&sandbox.lease());
    sandbox.delete_lease();
    wait_until("a note on a new Lease", || is_noted(&first, json!([])));
    assert_ne!(uid(&sandbox.lease()), old);
    replace_kubernetes(&sandbox);
    let second = json!(sandbox.uid("kubernetes"));
    daemon.stop();
    let daemon = start();
    wait_until("a second UID", || is_noted(&first, json!([second])));
    daemon.logs("ccm still identifies the cluster");
    // The only writes are renewals, each with a new time.
    let calls = sandbox.calls().calls();
    let writes = calls.iter().filter(|call| call.method == "PUT" && is_lease(&call.path));
    let times = writes.map(|call| {
        let lease: Value = serde_json::from_slice(&call.body).unwrap();
        lease["spec"]["renewTime"].to_string()
    });
    let times: Vec<String> = times.collect();
    assert!(times.is_sorted() && times.len() > 3, "{times:?}");
    assert!(times.windows(2).all(|two| two[0] != two[1]), "{times:?}");

    // The part that another candidate leaves counts, also for a pass.
    drop(daemon);
    sandbox.edit_lease(|lease| {
        lease["spec"]["holderIdentity"] = json!("");
    });
    sandbox.converge();
    assert!(is_noted(&first, json!([second])), "{}", noted(&sandbox));

    // A record that can't be read is ignored and written again.
    let lease = uid(&sandbox.lease());
    let of_lease = |lease: &Value| json!({ "lease": lease, "identity": "x", "former": [] });
    let mut injected = of_lease(&lease);
    injected["identity"] = json!("x,y)");
    for (garbage, why) in [
        ("garbage".to_owned(), "it does not have the form that ccm writes"),
        (injected.to_string(), "it does not have the form that ccm writes"),
        ("x".repeat(100_000), "it is too long"),
        (of_lease(&json!("other")).to_string(), "it was written for a Lease with another UID"),
    ] {
        note(&sandbox, &garbage);
        let daemon = start();
        daemon.logs(&format!("ccm ignores annotation {IDENTITY}, because {why}"));
        wait_until("the present UID", || is_noted(&second, json!([])));
        daemon.stop();
    }
    // Another program that took the Lease wrote it without annotations.
    sandbox.edit_lease(|lease| {
        lease["metadata"]["annotations"] = Value::Null;
    });
    let daemon = start();
    wait_until("the present UID", || is_noted(&second, json!([])));
    assert!(!daemon.log().contains("WARN"), "{}", daemon.log());
}
