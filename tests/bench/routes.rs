//! Routes: what it costs to bring up a hundred of them, to mend one, and to leave them alone.

use crate::NODE_BYTES;
use crate::common::{Daemon, Env, ccm, env, wait_at_most, with};
use crate::figure::Figure;
use crate::hour;
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

/// 100 nodes register, and a route breaks. `scale` of both sides' waits: 1 is the real time.
pub fn a_life(scale: f64) -> Vec<Figure> {
    let sandbox = world(scale);
    let daemon = Daemon::start(&scaled(&sandbox, scale), &[CIDR]);
    let begun = Instant::now();
    wait_at_most(PATIENCE, "a hundred routes", || all_are_reached(&sandbox));
    let took = begun.elapsed();
    let calls = network_calls(&sandbox, 0);
    let all = hetzner(&sandbox, 0);
    let posts = calls.iter().filter(|call| call.is_write()).count();
    let questions = all.iter().filter(|call| call.path == "/v1/actions").count();
    let title = |what: &str| format!("{NODES} nodes at once: {what}");
    let mut figures = vec![
        Figure::count(title("writes to the Network"), posts).at_most(NODES as f64),
        Figure::count(title("questions how they ended"), questions).at_most(NODES as f64),
        Figure::count(
            title("all other Hetzner calls"),
            all.len() - posts - questions,
        )
        .at_most(READS as f64),
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

fn scaled(sandbox: &Sandbox, scale: f64) -> Env {
    with(env(sandbox), &[("CCM_TEST_TIME_SCALE", &scale.to_string())])
}

/// A person asks for it, so that nobody waits for the next comparison.
fn one_breaks(sandbox: &Sandbox, daemon: &Daemon, scale: f64) -> Vec<Figure> {
    daemon.signal("-STOP");
    let network = sandbox.network().unwrap();
    sandbox.cloud().delete_route(network, "10.244.50.0/24");
    let mark = sandbox.calls().mark();
    let ran = ccm(&scaled(sandbox, scale), &["route", "sync", CIDR]);
    assert_eq!(ran.code, 0, "{ran:?}");
    daemon.signal("-CONT");
    let calls = hetzner(sandbox, mark);
    let writes = calls.iter().filter(|call| call.is_write()).count();
    vec![
        Figure::count("one route is missing: writes", writes).at_most(1.0),
        Figure::count("  Hetzner calls", calls.len()).at_most(CALLS_TO_MEND_ONE as f64),
    ]
}

/// In which nothing changes.
fn an_hour() -> Vec<Figure> {
    let sandbox = world(hour::SCALE);
    let env = scaled(&sandbox, hour::SCALE);
    let daemon = Daemon::start(&env, &[CIDR, hour::RETRY_PERIOD]);
    wait_at_most(PATIENCE, "a hundred routes", || all_are_reached(&sandbox));
    let hour = hour::hour(&sandbox, &daemon, || {});
    let of_network = |call: &&Call| is_of_network(call);
    let writes = hour.of(Half::Hetzner).filter(|call| call.is_write());
    let patches = hour
        .of(Half::Kubernetes)
        .filter(|call| call.path.ends_with("/status"));
    vec![
        Figure::count(
            "an hour in which no route differs: Hetzner writes",
            writes.count(),
        )
        .at_most(0.0),
        Figure::count("  conditions written", patches.count()).at_most(0.0),
        Figure::count(
            "  reads of the Network",
            hour.of(Half::Hetzner).filter(of_network).count(),
        )
        .at_most(READS_AN_HOUR as f64),
        Figure::count("  all Hetzner calls, 100 nodes", hour.count(Half::Hetzner)),
    ]
}

fn all_are_reached(sandbox: &Sandbox) -> bool {
    let nodes = sandbox.cluster().list("nodes", None);
    nodes.iter().all(|node| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|list| {
            list.iter()
                .any(|one| one["type"] == "NetworkUnavailable" && one["status"] == "False")
        })
    })
}

fn is_of_network(call: &Call) -> bool {
    call.path.starts_with("/v1/networks/")
}

fn network_calls(sandbox: &Sandbox, mark: u64) -> Vec<Call> {
    hetzner(sandbox, mark)
        .into_iter()
        .filter(is_of_network)
        .collect()
}

fn hetzner(sandbox: &Sandbox, mark: u64) -> Vec<Call> {
    let calls = sandbox.calls().calls_since(mark);
    calls
        .into_iter()
        .filter(|call| call.half == Half::Hetzner)
        .collect()
}
