//! Routes: what it costs to add a hundred of them, to repair one, and to leave them alone.

use crate::common::{Cluster, Daemon, at_scale, ccm, wait_at_most};
use crate::figure::Figure;
use crate::hour;
use crate::{NODE_BYTES, hetzner, writes};
use sandbox::calls::Call;
use sandbox::{Half, Sandbox};
use std::time::{Duration, Instant};

const NODES: usize = 100;
const CIDR: &str = "--cluster-cidr=10.244.0.0/16";

/// Lists of servers, and the Network, while a hundred routes are made.
const READS: usize = 40;
const CALLS_TO_MEND_ONE: usize = 10;
const READS_AN_HOUR: usize = 20;
const MEMORY_MB: f64 = 8.0;

const PATIENCE: Duration = Duration::from_secs(400);

pub fn all() -> Vec<Figure> {
    let mut figures = a_life(1.0);
    figures.extend(an_hour());
    figures
}

/// Measures 100 nodes that register, and a broken route. `scale` is that of both sides' waits, and 1 is the real time.
pub fn a_life(scale: f64) -> Vec<Figure> {
    let sandbox = world(scale);
    let daemon = Daemon::start(&at_scale(&sandbox, scale), &[CIDR]);
    let begun = Instant::now();
    wait_at_most(PATIENCE, "a hundred routes", || all_are_reached(&sandbox));
    let took = begun.elapsed();
    let all = hetzner(&sandbox, 0);
    let is_post = |call: &&Call| is_of_network(call) && call.is_write();
    let posts = all.iter().filter(is_post).count();
    let questions = all.iter().filter(|call| call.path == "/v1/actions").count();
    let others = all.len() - posts - questions;
    let title = |what: &str| format!("{NODES} nodes at once: {what}");
    let mut figures = vec![
        Figure::count(title("writes to the Network"), posts).at_most(NODES as f64),
        Figure::count(title("questions how they ended"), questions).at_most(NODES as f64),
        Figure::count(title("all other Hetzner calls"), others).at_most(READS as f64),
        Figure::seconds(title("all routes, when one takes 1 s"), took),
    ];
    figures.extend(one_breaks(&sandbox, &daemon, scale));
    let title = format!("peak memory, {NODES} nodes and their routes");
    let peak = daemon.memory_kb().0 * 1024;
    figures.push(Figure::bytes(title, peak).at_most(MEMORY_MB));
    figures
}

fn world(scale: f64) -> Sandbox {
    let sandbox = Sandbox::builder()
        .nodes(NODES)
        .network("10.0.0.0/8")
        .node_bytes(NODE_BYTES)
        .heartbeats(false)
        .scale(scale)
        .start();
    let second = Some(Duration::from_secs(1));
    sandbox.cloud().set_action_duration("add_route", second);
    sandbox
}

/// A person asks for it, so that nobody waits for the next comparison.
fn one_breaks(sandbox: &Sandbox, daemon: &Daemon, scale: f64) -> Vec<Figure> {
    daemon.signal("-STOP");
    sandbox.delete_route("10.244.50.0/24");
    let mark = sandbox.mark();
    ccm(&at_scale(sandbox, scale), &["route", "sync", CIDR]).with_code(0);
    daemon.signal("-CONT");
    let calls = hetzner(sandbox, mark);
    vec![
        Figure::count("one route is missing: writes", writes(&calls)).at_most(1.0),
        Figure::count("  Hetzner calls", calls.len()).at_most(CALLS_TO_MEND_ONE as f64),
    ]
}

/// Measures an hour in which nothing changes.
fn an_hour() -> Vec<Figure> {
    let sandbox = world(hour::SCALE);
    let env = at_scale(&sandbox, hour::SCALE);
    let daemon = Daemon::start(&env, &[CIDR, hour::RETRY_PERIOD]);
    wait_at_most(PATIENCE, "a hundred routes", || all_are_reached(&sandbox));
    let hour = hour::hour(&sandbox, &daemon, || {});
    let count = |half, is_such: fn(&Call) -> bool| hour.of(half).filter(|one| is_such(one)).count();
    let writes = count(Half::Hetzner, Call::is_write);
    let patches = count(Half::Kubernetes, |call| call.path.ends_with("/status"));
    let reads = count(Half::Hetzner, is_of_network);
    vec![
        Figure::count("an hour in which no route differs: Hetzner writes", writes).at_most(0.0),
        Figure::count("  conditions written", patches).at_most(0.0),
        Figure::count("  reads of the Network", reads).at_most(READS_AN_HOUR as f64),
        Figure::count("  all Hetzner calls, 100 nodes", hour.count(Half::Hetzner)),
    ]
}

fn all_are_reached(sandbox: &Sandbox) -> bool {
    sandbox.nodes().iter().all(|node| {
        let conditions = node["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == "NetworkUnavailable" && one["status"] == "False")
    })
}

fn is_of_network(call: &Call) -> bool {
    call.path.starts_with("/v1/networks/")
}
