//! What it costs: calls, time, memory, size. The limits of 100 nodes are a test; `make bench`
//! measures the static binary and prints more.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Daemon, binary, env, is_lease, wait_until, with};
use sandbox::hetzner::ServerSpec;
use sandbox::{Half, Sandbox};
use std::time::{Duration, Instant};

/// Of a real node: images, managed fields, conditions.
const NODE_BYTES: usize = 12_000;

/// Enough for 100 nodes on a machine that is busy with something else: the calls are what is
/// tested, and `make bench` measures the time.
const PATIENCE: Duration = Duration::from_secs(20);

/// What bringing up nodes that register together cost.
struct Cost {
    took: Duration,
    hetzner_calls: usize,
    kubernetes_calls: usize,
    peak_kb: u64,
    resting_kb: u64,
    /// While a minute's worth of ticks went by.
    steady_hetzner_calls: usize,
    steady_kubernetes_bytes: usize,
}

/// So many servers, a daemon that has seen that there are no nodes yet, then all their nodes at once.
fn bring_up(nodes: usize, interval: &str) -> Cost {
    let sandbox = Sandbox::builder()
        .nodes(0)
        .node_bytes(NODE_BYTES)
        .heartbeats(false)
        .start();
    let server = |n: usize| ServerSpec {
        name: format!("worker-{n}"),
        ..ServerSpec::default()
    };
    let ids: Vec<u64> = (1..=nodes)
        .map(|n| sandbox.cloud().create_server(sandbox.project(), server(n)))
        .collect();
    let real_time = with(env(&sandbox), &[("CCM_TEST_TIME_SCALE", "1")]);
    let daemon = Daemon::start(&real_time, &[&format!("--node-sync-interval={interval}")]);
    wait_until("the first look", || {
        sandbox.calls().count(|call| call.path == "/api/v1/nodes") > 0
    });
    let begun = Instant::now();
    sandbox.register_nodes_of(&ids);
    let patched = || {
        let is_commit =
            |path: &str| path.starts_with("/api/v1/nodes/") && !path.ends_with("/status");
        sandbox.calls().count(|call| {
            call.method == "PATCH" && is_commit(&call.path) && call.status == Some(200)
        })
    };
    wait_until("all nodes", || patched() == nodes);
    let took = begun.elapsed();
    let events = || {
        sandbox.calls().count(|call| {
            call.method == "POST" && call.status == Some(201) && !is_lease(&call.path)
        })
    };
    wait_until("all events", || events() == nodes);
    let of = |half| {
        sandbox
            .calls()
            .count(|call| call.half == half && call.caller != "admin" && !is_lease(&call.path))
    };
    let (hetzner_calls, kubernetes_calls) = (of(Half::Hetzner), of(Half::Kubernetes));
    let mark = sandbox.calls().mark();
    let looks = |since| {
        let calls = sandbox.calls().calls_since(since);
        calls
            .into_iter()
            .filter(|call| call.path == "/api/v1/nodes" && call.status.is_some())
            .collect::<Vec<_>>()
    };
    wait_until("three more looks", || looks(mark).len() >= 3);
    let steady = sandbox.calls().calls_since(mark);
    let (peak_kb, resting_kb) = daemon.memory_kb();
    Cost {
        took,
        hetzner_calls,
        kubernetes_calls,
        peak_kb,
        resting_kb,
        steady_hetzner_calls: steady
            .iter()
            .filter(|call| call.half == Half::Hetzner)
            .count(),
        steady_kubernetes_bytes: looks(mark)
            .iter()
            .map(|call| call.answer_bytes)
            .sum::<usize>()
            / looks(mark).len(),
    }
}

#[test]
fn a_hundred_nodes_that_register_together_cost_little() {
    let cost = bring_up(100, "1s");
    let pages = 100usize.div_ceil(50);
    assert!(
        cost.hetzner_calls <= 2 * pages + 4,
        "{} Hetzner calls",
        cost.hetzner_calls
    );
    assert!(cost.took <= PATIENCE, "{:?}", cost.took);
    assert_eq!(cost.steady_hetzner_calls, 0);
}

#[test]
#[ignore = "a measurement: make bench"]
fn bench() {
    let size = std::fs::metadata(binary()).unwrap().len();
    println!("binary              {:>9.2} MB", size as f64 / 1e6);
    for nodes in [100, 1000] {
        let cost = bring_up(nodes, "1s");
        println!(
            "{nodes} nodes of {NODE_BYTES} bytes, registered together, looked for every second:"
        );
        println!("  all initialised   {:>9.2} s", cost.took.as_secs_f64());
        println!(
            "  Hetzner calls     {:>9}   ({} pages of servers)",
            cost.hetzner_calls,
            nodes.div_ceil(50)
        );
        println!(
            "  Kubernetes calls  {:>9}   ({:.1} a node)",
            cost.kubernetes_calls,
            cost.kubernetes_calls as f64 / nodes as f64
        );
        println!(
            "  memory at most    {:>9.1} MB",
            cost.peak_kb as f64 / 1024.0
        );
        println!(
            "  memory at rest    {:>9.1} MB",
            cost.resting_kb as f64 / 1024.0
        );
        println!(
            "  a look at rest    {:>9.1} kB, {} Hetzner calls",
            cost.steady_kubernetes_bytes as f64 / 1e3,
            cost.steady_hetzner_calls
        );
    }
}
