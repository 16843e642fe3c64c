//! SIGTERM at any moment: the daemon ends within ten seconds, writes nothing more, and releases the Lease.

use crate::common::{self, Cluster, Daemon, wait_until};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";

/// What the daemon does when it is terminated: a call that gets no answer, or an action that does not end.
enum At {
    Call(Half, &'static str, &'static str),
    Action(&'static str),
}
use At::{Action, Call};

#[rustfmt::skip] // A case is a line.
const CASES: &[(&str, At)] = &[
    ("it reads servers", Call(Half::Hetzner, "GET", "/v1/servers")),
    ("it reads load balancers", Call(Half::Hetzner, "GET", "/v1/load_balancers")),
    ("it makes a load balancer", Call(Half::Hetzner, "POST", "/v1/load_balancers")),
    ("a load balancer is being made", Action("create_load_balancer")),
    ("it adds a route", Call(Half::Hetzner, "POST", "/v1/networks/*/actions/add_route")),
    ("a route is being added", Action("add_route")),
    ("it asks how actions ended", Call(Half::Hetzner, "GET", "/v1/actions")),
    ("it looks at nodes", Call(Half::Kubernetes, "GET", "/api/v1/nodes")),
    ("it writes addresses", Call(Half::Kubernetes, "PATCH", "/api/v1/nodes/*/status")),
    ("it initialises a node", Call(Half::Kubernetes, "PATCH", "/api/v1/nodes/*")),
    ("it looks at Services", Call(Half::Kubernetes, "GET", "/api/v1/services")),
    ("it writes a finalizer", Call(Half::Kubernetes, "PATCH", "/api/v1/namespaces/default/services/*/status")),
    ("it writes an event", Call(Half::Kubernetes, "POST", "/api/v1/namespaces/default/events")),
];

/// Terminates a daemon at that place. The time-outs are the real ones, and the daemon waits for longer than
/// all of them.
fn told_to_end(case: &str, at: &At) -> (Sandbox, Daemon, Duration) {
    let sandbox = common::networked(2).start();
    let for_ever = Duration::from_secs(1_000_000);
    let (half, method, path) = match at {
        Call(half, method, path) => {
            let slow = Rule::new(Effect::Slow(Duration::from_secs(60)));
            let slow = slow.half(*half).method(method).path(path);
            sandbox.fault(slow);
            (*half, *method, *path)
        }
        Action(command) => {
            let cloud = sandbox.cloud();
            cloud.set_action_duration(command, Some(for_ever));
            (Half::Hetzner, "GET", "/v1/actions")
        }
    };
    sandbox.create("web", &[], &[80]);
    let env = common::real_time(&sandbox);
    let flags = [
        "--cluster-cidr=10.244.0.0/16",
        "--node-sync-interval=100ms",
        "--service-sync-interval=100ms",
    ];
    let daemon = Daemon::start(&env, &flags);
    let stem = path.split('*').next().unwrap();
    let end = path.rsplit('*').next().unwrap();
    wait_until(case, || {
        sandbox.calls().count(|call| {
            call.half == half
                && call.method == method
                && call.path.starts_with(stem)
                && call.path.ends_with(end)
        }) > 0
    });
    let begun = Instant::now();
    daemon.signal("-TERM");
    assert!(daemon.ended().success(), "{case}: {}", daemon.log());
    (sandbox, daemon, begun.elapsed())
}

#[test]
fn a_terminated_daemon_ends_in_time_and_releases_the_lease() {
    // All cases run at once, because each of them waits for seconds and does nothing meanwhile.
    std::thread::scope(|scope| {
        for (case, at) in CASES {
            scope.spawn(move || ends_in_time(case, at));
        }
    });
}

fn ends_in_time(case: &str, at: &At) {
    let (sandbox, daemon, took) = told_to_end(case, at);
    assert!(took < LIMIT, "{case}: {took:?}: {}", daemon.log());
    let holder = &sandbox.lease()["spec"]["holderIdentity"];
    assert_eq!(holder, "", "{case}: {}", daemon.log());
    let calls = sandbox.calls().calls();
    let last = calls.iter().rfind(|call| call.is_write());
    assert!(
        last.is_some_and(|call| call.path == LEASE),
        "{case}: the Lease goes last, and not {last:?}"
    );
}

/// The Lease itself cannot be written, and expires by itself.
#[test]
fn a_terminated_daemon_ends_in_time_when_the_lease_cannot_be_written() {
    let (_, daemon, took) =
        told_to_end("it renews the Lease", &Call(Half::Kubernetes, "PUT", LEASE));
    assert!(took < LIMIT, "{took:?}: {}", daemon.log());
}
