//! New nodes: how long they wait, and what they cost.

use crate::NODE_BYTES;
use crate::common::{
    Cluster, Daemon, builder, is_initialised, is_lease, real_time, socket_cluster, wait_at_most,
    wait_until,
};
use crate::figure::Figure;
use sandbox::calls::Call;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use sandbox::{Half, Sandbox};
use std::time::{Duration, Instant};

const SERVERS_A_PAGE: usize = 50;
/// A thousand nodes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const READY_SECONDS: f64 = 0.3;
/// Beside one interval.
const INITIALISED_SECONDS: f64 = 1.0;
const STARTS: usize = 5;
/// The time of a write on a real API server.
const WRITE: Duration = Duration::from_millis(5);
/// The limit, as a share of the time that one writer needs.
const PERCENT_OF_ONE_WRITER: f64 = 50.0;
/// Registrations, each at another moment of an interval.
const MOMENTS: u32 = 10;

pub fn all() -> Vec<Figure> {
    let mut figures = vec![start_to_ready(), registered_to_initialised()];
    figures.extend(together(100));
    figures.extend(together(1000));
    figures.extend(beside_one_writer());
    figures
}

/// Measures the median of a few starts, each in a world of its own, because a Lease outlives its daemon.
fn start_to_ready() -> Figure {
    let start = |_| {
        let sandbox = socket_cluster(100);
        let begun = Instant::now();
        let daemon = Daemon::start(&real_time(&sandbox), &[]);
        wait_until("the health server", || address(&daemon).is_some());
        let url = format!("http://{}/readyz", address(&daemon).unwrap());
        wait_until("readiness", || ureq::get(&url).call().is_ok());
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..STARTS).map(start).collect();
    times.sort();
    Figure::seconds("start to ready, 100 nodes", times[STARTS / 2]).at_most(READY_SECONDS)
}

/// The longest of a few, with an interval of one second.
fn registered_to_initialised() -> Figure {
    let interval = Duration::from_secs(1);
    let sandbox = socket_cluster(0);
    let _daemon = Daemon::start(&real_time(&sandbox), &["--node-sync-interval=1s"]);
    first_poll(&sandbox);
    let longest = (1..=MOMENTS).map(|moment| {
        let name = format!("worker-{moment}");
        let server = ServerSpec { name: name.clone(), ..ServerSpec::default() };
        // This sleep waits for nothing. It chooses another moment of the interval.
        std::thread::sleep(interval / MOMENTS * moment);
        let begun = Instant::now();
        sandbox.join(server);
        wait_until("an initialised node", || is_initialised(&sandbox.node(&name)));
        begun.elapsed()
    });
    let limit = interval.as_secs_f64() + INITIALISED_SECONDS;
    Figure::seconds("registered to initialised, interval 1 s", longest.max().unwrap_or_default())
        .at_most(limit)
}

/// The time that 1,000 nodes need with the default of `--concurrent-node-syncs`, as a part of what one writer needs.
fn beside_one_writer() -> [Figure; 2] {
    let time = |args: &[&str]| {
        let (sandbox, ids) = servers(1000);
        let is_real = sandbox.cluster().is_real();
        if !is_real {
            let of_a_node = Rule::new(Effect::Slow(WRITE)).method("PATCH");
            sandbox.faults().add(of_a_node.half(Half::Kubernetes));
        }
        registered(&sandbox, &ids, args).1
    };
    let (all, one) = (time(&[]), time(&["--concurrent-node-syncs=1"]));
    let title = |what: &str| format!("1000 nodes at once, a write takes 5 ms: {what}");
    let part =
        Figure::percent(title("of that"), all.as_millis() as usize, one.as_millis() as usize);
    [Figure::seconds(title("one writer"), one), part.at_most(PERCENT_OF_ONE_WRITER)]
}

/// Returns this number of servers whose nodes do not exist yet.
fn servers(nodes: usize) -> (Sandbox, Vec<u64>) {
    let sandbox = builder().nodes(0).node_bytes(NODE_BYTES).heartbeats(false).start();
    let server = |n: usize| ServerSpec { name: format!("worker-{n}"), ..ServerSpec::default() };
    let ids: Vec<u64> =
        (1..=nodes).map(|n| sandbox.cloud().create_server(sandbox.project(), server(n))).collect();
    (sandbox, ids)
}

/// Starts a daemon, which sees that there are no nodes yet, and then registers all nodes. Returns the time until all
/// are initialised, and the time until the last one was registered.
fn registered(sandbox: &Sandbox, ids: &[u64], args: &[&str]) -> (Daemon, Duration, Duration) {
    let args = [&["--node-sync-interval=1s"], args].concat();
    let daemon = Daemon::start(&real_time(sandbox), &args);
    first_poll(sandbox);
    let begun = Instant::now();
    sandbox.register_nodes_of(ids);
    let registering = begun.elapsed();
    wait_at_most(PATIENCE, "all nodes", || sandbox.calls().count(is_commit) == ids.len());
    (daemon, begun.elapsed(), registering)
}

pub fn together(nodes: usize) -> Vec<Figure> {
    let (sandbox, ids) = servers(nodes);
    let (daemon, took, registering) = registered(&sandbox, &ids, &[]);
    let count = |such: fn(&Call) -> bool| sandbox.calls().count(such);
    wait_at_most(PATIENCE, "all events", || count(is_event) == nodes);

    // Certificates that an earlier process left are searched once, whatever nodes there are.
    let hetzner_calls =
        count(|call| call.half == Half::Hetzner && !call.path.ends_with("/certificates"));
    let kubernetes_calls = count(|call| {
        call.half == Half::Kubernetes && call.caller == "ccm" && !is_lease(&call.path)
    });
    let mark = sandbox.calls().mark();
    let is_look = |call: &Call| call.path == "/api/v1/nodes" && call.status.is_some();
    wait_until("three more polls", || {
        let later = |call: &Call| call.sequence > mark && is_look(call);
        sandbox.calls().count(later) >= 3
    });
    let later = |call: &Call| call.sequence > mark && call.half == Half::Hetzner;
    let steady_calls = sandbox.calls().count(later);

    let title = |what: &str| format!("{nodes} nodes at once, interval 1 s: {what}");
    // On a real API server the nodes take longer to register than one interval, and each poll finds new ones.
    let polls = 1 + registering.as_secs() as usize;
    let calls_limit = polls * (2 * nodes.div_ceil(SERVERS_A_PAGE) + 4);
    vec![
        Figure::seconds(title("all initialised"), took),
        Figure::count(title("Hetzner calls"), hetzner_calls).at_most(calls_limit as f64),
        Figure::count(title("Hetzner calls in three more polls"), steady_calls).at_most(0.0),
        Figure::count(title("Kubernetes calls"), kubernetes_calls),
        Figure::bytes(title("peak memory"), daemon.memory_kb().0 * 1024),
    ]
}

/// Returns the address of the probes, once the log contains it.
fn address(daemon: &Daemon) -> Option<String> {
    let log = daemon.log();
    let (_, rest) = log.split_once("health: listening on ")?;
    Some(rest.split_whitespace().next()?.to_owned())
}

fn first_poll(sandbox: &Sandbox) {
    wait_until("the first poll", || sandbox.calls().count(|call| call.path == "/api/v1/nodes") > 0);
}

/// The write that ends a node's initialisation.
fn is_commit(call: &Call) -> bool {
    let of_a_node = call.path.starts_with("/api/v1/nodes/") && !call.path.ends_with("/status");
    call.method == "PATCH" && of_a_node && call.status == Some(200)
}

fn is_event(call: &Call) -> bool {
    call.method == "POST" && call.status == Some(201) && !is_lease(&call.path)
}
