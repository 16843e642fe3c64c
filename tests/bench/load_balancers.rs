//! Load balancers: what it costs to create them, to change them, and to leave them alone.

use crate::common::cluster::{len, service, with_spec};
use crate::common::{Cluster, Daemon, at_scale, wait_at_most};
use crate::figure::Figure;
use crate::hour;
use crate::{NODE_BYTES, hetzner, writes};
use sandbox::calls::Call;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SERVICES: usize = 20;
const NODES: usize = 100;
const PORTS: [u16; 3] = [80, 443, 8080];
/// All Services of the cluster in which an hour is measured.
const ALL_SERVICES: usize = 1000;

const CALLS_BESIDE_POSTS: usize = 30;
const ADDRESS_SECONDS: f64 = 6.0;
const CALLS_FOR_A_NODE: usize = 45;
const CALLS_FOR_AN_ANNOTATION: usize = 6;
/// The calls for a Service: a list, a POST, and a question whether the action has ended. There is one more question
/// when it takes longer.
const CALLS_FOR_A_SERVICE: usize = 4;
const CALLS_AN_HOUR: usize = 20;
/// The number of Services that share a load balancer, with a port each.
const SHARING: usize = 5;
/// The calls for a Service that joins a load balancer: a list, a read before its labels are written, the labels, the
/// port. Polls of actions are not counted.
const CALLS_TO_JOIN: usize = 4;
const MEMORY_MB: f64 = 8.0;

const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than anything that belongs to one change lies apart.
const QUIET: Duration = Duration::from_secs(3);

pub fn all() -> Vec<Figure> {
    let mut figures = a_life(1.0);
    figures.extend(an_hour());
    figures.extend(shared(1.0));
    figures.extend(shared_steady_state());
    figures
}

/// Measures 20 new Services, a new node, a changed annotation, and one more Service. `scale` is that of both sides'
/// waits, and 1 is the real time.
pub fn a_life(scale: f64) -> Vec<Figure> {
    let sandbox = world(scale);
    let daemon = Daemon::start(&at_scale(&sandbox, scale), &[]);
    daemon.logs("leading as");
    wait_until_idle(&sandbox, scale);
    let mut figures = bring_up(&sandbox, scale);
    figures.extend(one_node(&sandbox, scale));
    figures.extend(one_annotation(&sandbox, scale));
    figures.push(one_service(&sandbox, scale));
    let peak = daemon.memory_kb().0 * 1024;
    let title = format!("peak memory, {NODES} nodes and {SERVICES} load balancers");
    figures.push(Figure::bytes(title, peak).at_most(MEMORY_MB));
    figures
}

fn world(scale: f64) -> Sandbox {
    let sandbox = Sandbox::builder()
        .nodes(NODES)
        .node_bytes(NODE_BYTES)
        .heartbeats(false)
        .scale(scale)
        .start();
    let second = Some(Duration::from_secs(1));
    for command in ["create_load_balancer", "add_target", "update_service"] {
        sandbox.cloud().set_action_duration(command, second);
    }
    sandbox.ccm(&["node", "sync"]).with_code(0);
    sandbox
}

fn name(n: usize) -> String {
    format!("lb-{n}")
}

/// An lb11 takes 25 targets.
const PLACE: [(&str, &str); 2] = [("location", "fsn1"), ("type", "lb31")];

fn create(sandbox: &Sandbox, n: usize) {
    sandbox.create(&name(n), &PLACE, &PORTS);
}

fn bring_up(sandbox: &Sandbox, scale: f64) -> Vec<Figure> {
    let mark = sandbox.calls().mark();
    for n in 1..=SERVICES {
        create(sandbox, n);
    }
    let have_addresses = || (1..=SERVICES).all(|n| sandbox.has_address(&name(n)));
    wait_at_most(PATIENCE, "addresses", have_addresses);
    let end = Instant::now();
    wait_until_idle(sandbox, scale);
    let calls = hetzner(sandbox, mark);
    let posts: Vec<&Call> = calls.iter().filter(|call| call.method == "POST").collect();
    let first = posts.iter().map(|call| call.started).min();
    let took = first.map_or(Duration::MAX, |first| end.duration_since(first));
    let title = |what: &str| format!("{SERVICES} Services × 3 ports, {NODES} nodes: {what}");
    let address = Figure::seconds(title("first POST to last address"), took);
    vec![
        Figure::count(title("POSTs"), posts.len()).at_most(SERVICES as f64),
        Figure::count(title("Hetzner calls beside"), calls.len() - posts.len())
            .at_most(CALLS_BESIDE_POSTS as f64),
        address.at_most(ADDRESS_SECONDS),
    ]
}

fn one_node(sandbox: &Sandbox, scale: f64) -> Vec<Figure> {
    let mark = sandbox.calls().mark();
    sandbox.join_node("late");
    let has_it = |one: &Value| len(&one["targets"]) > NODES;
    let have_it = || sandbox.balancers().iter().all(has_it);
    wait_at_most(PATIENCE, "the new target", have_it);
    wait_until_idle(sandbox, scale);
    let calls = hetzner(sandbox, mark);
    let title = |what: &str| format!("one node more, {SERVICES} Services: Hetzner {what}");
    vec![
        Figure::count(title("writes"), writes(&calls)).at_most(SERVICES as f64),
        Figure::count(title("calls"), calls.len()).at_most(CALLS_FOR_A_NODE as f64),
    ]
}

fn one_annotation(sandbox: &Sandbox, scale: f64) -> Vec<Figure> {
    let mark = sandbox.calls().mark();
    sandbox.annotate(&name(1), "health-check-interval", Some("20s"));
    let is_written = |call: &Call| call.sequence > mark && call.path.ends_with("/update_service");
    wait_at_most(PATIENCE, "the change of each port", || {
        sandbox.calls().count(is_written) >= PORTS.len()
    });
    wait_until_idle(sandbox, scale);
    let calls = hetzner(sandbox, mark);
    let title = |what: &str| format!("one annotation, 3 ports: Hetzner {what}");
    vec![
        Figure::count(title("writes"), writes(&calls)).at_most(PORTS.len() as f64),
        Figure::count(title("calls"), calls.len()).at_most(CALLS_FOR_AN_ANNOTATION as f64),
    ]
}

fn one_service(sandbox: &Sandbox, scale: f64) -> Figure {
    let mark = sandbox.calls().mark();
    let late = name(SERVICES + 1);
    create(sandbox, SERVICES + 1);
    wait_at_most(PATIENCE, "its address", || sandbox.has_address(&late));
    wait_until_idle(sandbox, scale);
    let calls = hetzner(sandbox, mark).len();
    let title = format!("one Service more × 3 ports, {NODES} nodes: Hetzner calls");
    Figure::count(title, calls).at_most(CALLS_FOR_A_SERVICE as f64)
}

/// Measures five new Services with a port each, on one load balancer, and on one each.
pub fn shared(scale: f64) -> Vec<Figure> {
    let sandbox = world(scale);
    let daemon = Daemon::start(&at_scale(&sandbox, scale), &[]);
    daemon.logs("leading as");
    wait_until_idle(&sandbox, scale);
    let bring_up = |prefix: &str, share: bool| {
        let mark = sandbox.calls().mark();
        create_five(&sandbox, prefix, share);
        wait_until_idle(&sandbox, scale);
        let mut calls = hetzner(&sandbox, mark);
        let is_post = |call: &&Call| call.method == "POST" && call.path == "/v1/load_balancers";
        let posts = calls.iter().filter(is_post).count();
        // Types are read once a day.
        let apart = ["/v1/actions", "/v1/load_balancer_types"];
        calls.retain(|call| !apart.contains(&call.path.as_str()));
        (posts, calls.len())
    };
    // When ticks are short the Services come in several ticks, each with its list.
    let ticks = if scale < 1.0 { SHARING - 1 } else { 0 };
    let (posts, calls) = bring_up("shared", true);
    let (_, alone) = bring_up("alone", false);
    let title = |what: &str| format!("{SHARING} Services × 1 port on one, {NODES} nodes: {what}");
    vec![
        Figure::count(title("POSTs"), posts).at_most(1.0),
        Figure::count(title("Hetzner calls beside"), calls - posts)
            .at_most((SHARING * CALLS_TO_JOIN + ticks) as f64),
        Figure::percent(title("calls, of those on one each"), calls, alone),
    ]
}

fn create_five(sandbox: &Sandbox, prefix: &str, share: bool) {
    let names: Vec<String> = (1..=SHARING).map(|n| format!("{prefix}-{n}")).collect();
    for (name, port) in names.iter().zip(8001..) {
        let shares = share.then_some(("share", "edge"));
        let annotations: Vec<_> = PLACE.into_iter().chain(shares).collect();
        sandbox.create(name, &annotations, &[port]);
    }
    let have_addresses = || names.iter().all(|name| sandbox.has_address(name));
    let state = || {
        let shown = |name: &String| sandbox.service(name).unwrap()["status"].clone();
        names.iter().map(shown).collect::<Vec<_>>()
    };
    let state = || format!("no addresses: {:?}", state());
    crate::common::wait_or(PATIENCE, state, have_addresses);
}

/// Measures an hour without differences, with five Services on one load balancer, and with one Service alone.
fn shared_steady_state() -> Vec<Figure> {
    let calls_at_rest = |come: fn(&Sandbox)| {
        let sandbox = world(hour::SCALE);
        let daemon = Daemon::start(&at_scale(&sandbox, hour::SCALE), &[hour::RETRY_PERIOD]);
        come(&sandbox);
        let hour = hour::hour(&sandbox, &daemon, || {});
        let calls = hour.of(Half::Hetzner);
        let calls = calls.filter(|call| !call.path.starts_with("/v1/servers"));
        calls.cloned().collect::<Vec<Call>>()
    };
    let shared = calls_at_rest(|sandbox| create_five(sandbox, "shared", true));
    let one = calls_at_rest(|sandbox| {
        create(sandbox, 1);
        wait_at_most(PATIENCE, "an address", || sandbox.has_address(&name(1)));
    });
    let title = |what: &str| format!("an hour of {SHARING} Services on one: Hetzner {what}");
    vec![
        Figure::count(title("writes"), writes(&shared)).at_most(0.0),
        // A comparison may fall on the edge of the hour.
        Figure::count(title("calls"), shared.len()).at_most((one.len() + 1) as f64),
    ]
}

/// Measures an hour in which nothing changes, with many Services that are not ours.
fn an_hour() -> Vec<Figure> {
    let sandbox = world(hour::SCALE);
    for n in SERVICES + 1..=ALL_SERVICES {
        let other = service(&name(n), &[], &PORTS);
        sandbox.create_as(with_spec(other, &json!({ "type": "ClusterIP" })));
    }
    for n in 1..=SERVICES {
        create(&sandbox, n);
    }
    let daemon = Daemon::start(&at_scale(&sandbox, hour::SCALE), &[hour::RETRY_PERIOD]);
    let have_addresses = || (1..=SERVICES).all(|n| sandbox.has_address(&name(n)));
    wait_at_most(PATIENCE, "addresses", have_addresses);
    let hour = hour::hour(&sandbox, &daemon, || {});
    let of_services = |call: &&Call| call.path.contains("/services");
    let ours = |call: &&Call| !call.path.starts_with("/v1/servers");
    let services = hour.of(Half::Kubernetes).filter(of_services);
    let bytes: usize = services.map(|call| call.answer_bytes).sum();
    let writes = hour.of(Half::Hetzner).filter(|call| call.is_write()).count();
    let title = format!("bytes read of {ALL_SERVICES} Services an hour, {SERVICES} of them ours");
    let memory = format!("peak memory, {NODES} nodes and {ALL_SERVICES} Services");
    vec![
        Figure::count("an hour in which nothing differs: Hetzner writes", writes).at_most(0.0),
        Figure::count(
            format!("  Hetzner calls for {SERVICES} load balancers"),
            hour.of(Half::Hetzner).filter(ours).count(),
        )
        .at_most(CALLS_AN_HOUR as f64),
        Figure::bytes(title, bytes as u64),
        Figure::bytes(memory, daemon.memory_kb().0 * 1024).at_most(MEMORY_MB),
    ]
}

/// Waits until no call to Hetzner was made for a while.
fn wait_until_idle(sandbox: &Sandbox, scale: f64) {
    let count = || sandbox.calls().count(|call| call.half == Half::Hetzner);
    let mut seen = (count(), Instant::now());
    wait_at_most(PATIENCE, "the last call", || {
        if count() != seen.0 {
            seen = (count(), Instant::now());
        }
        seen.1.elapsed() >= QUIET.mul_f64(scale).max(Duration::from_millis(500))
    });
}
