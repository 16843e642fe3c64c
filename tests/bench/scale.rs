//! 5,000 nodes and 100 load balancers: start, an hour at rest, a rack lost and back, servers deleted, nodes replaced.
//!
//! The start is measured in real time. Everything after it is measured in a sandbox of its own where a minute is three
//! seconds, for the daemon and for the simulated project alike: the 3,600 calls an hour are refilled twenty times as fast
//! as well, so that a budget which is used up here would be used up there. What is not scaled is the time that a call
//! takes: 4 ms for a page of servers are 80 ms there.

use crate::common::{Cluster, Daemon, ccm, env, is_lease, real_time, with};
use crate::figure::Figure;
use crate::hour::{self, POLLS, RENEWALS};
use crate::{NODE_BYTES, hetzner};
use sandbox::calls::Call;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

const SCALE: f64 = 0.05;
const NODES: usize = 5000;
/// The number of nodes that are targets, because an lb11 takes 25.
const EDGE_NODES: usize = 20;
const SERVICES: usize = 100;
const RACK: usize = 500;
const REPLACED: usize = 200;
/// The number of replaced nodes that are targets of every load balancer.
const REPLACED_EDGE: usize = 4;
/// Replaced at the same time.
const SURGE: usize = 20;
const SERVERS_A_PAGE: usize = 50;

const MEMORY_MB: f64 = 40.0;
const CPU_SECONDS: f64 = 90.0;
const REFRESH_CALLS: usize = 200;
/// Above the calls that a change needs, refreshes meanwhile aside.
const MORE_PERCENT: usize = 10;
/// The HTTP status of a write to a load balancer on which an action still runs. ccm sends the next target 1.2 s after
/// the last one, and an action takes 1 s. Here the difference is 10 ms, so a busy machine alone causes such answers. They
/// are therefore counted separately.
const BUSY: u16 = 423;
/// A list is read again when it is 10 s old.
const LISTS_AT_START: usize = 4;
const START_SECONDS: f64 = 60.0;

const PATIENCE: Duration = Duration::from_secs(600);
/// The time without calls after which a change is over, in simulated time. The calls of one change are
/// never further apart.
const QUIET: Duration = Duration::from_secs(60);
/// A lookup in a log of many thousand calls takes time from what is measured.
const POLL: Duration = Duration::from_millis(100);

pub fn all() -> Vec<Figure> {
    let mut figures = start();
    let world = World::new();
    figures.extend(world.rest());
    figures.extend(world.rack());
    figures.extend(world.deleted());
    figures.extend(world.replaced());
    let peak = world.daemon.memory_kb().0 * 1024;
    figures.push(Figure::bytes(title("peak memory"), peak).at_most(MEMORY_MB));
    figures
}

fn title(what: &str) -> String {
    format!("{NODES} nodes, {SERVICES} load balancers: {what}")
}

/// Measures a start in a whole cluster, and the creation of its Services.
fn start() -> Vec<Figure> {
    let sandbox = cluster(1.0);
    let begun = Instant::now();
    let daemon = Daemon::start(&real_time(&sandbox), &[]);
    wait("all nodes", || sandbox.calls().count(is_initialisation) >= NODES);
    let nodes = begun.elapsed();
    let calls_for_nodes = hetzner(&sandbox, 0).len();
    let (mark, begun) = (sandbox.calls().mark(), Instant::now());
    create_services(&sandbox);
    wait("all addresses", || have_addresses(&sandbox));
    let balancers = begun.elapsed();
    let of_balancers = |call: &&Call| call.path.starts_with("/v1/load_balancer");
    let of_balancers = hetzner(&sandbox, mark).iter().filter(of_balancers).count();
    let lists = LISTS_AT_START * (NODES / SERVERS_A_PAGE + 1) + 4;
    let peak = daemon.memory_kb().0 * 1024;
    vec![
        Figure::seconds(title("start, until all nodes are initialised"), nodes)
            .at_most(START_SECONDS),
        Figure::count(title("  Hetzner calls"), calls_for_nodes).at_most(lists as f64),
        Figure::seconds(title("Services until all have addresses"), balancers)
            .at_most(START_SECONDS),
        Figure::count(title("  Hetzner calls for load balancers"), of_balancers)
            .at_most(with_more(SERVICES)),
        Figure::bytes(title("  peak memory"), peak).at_most(MEMORY_MB),
    ]
}

/// A world in which everything is synced already.
struct World {
    daemon: Daemon,
    sandbox: Sandbox,
}

impl World {
    fn new() -> World {
        let sandbox = cluster(SCALE);
        for (words, what) in [(["node", "sync"], "nodes"), (["lb", "sync"], "Services")] {
            if what == "Services" {
                create_services(&sandbox);
            }
            let synced = ccm(&real_time(&sandbox), &words);
            assert_eq!(synced.code, 0, "{what}: {}", synced.stderr);
        }
        let project = sandbox.project();
        sandbox.cloud().set_rate_limit(project, 3600, 3600);
        let scale = SCALE.to_string();
        // A list of all nodes takes a second in both times, which would be most of ten scaled seconds.
        let max_age = ("HCLOUD_SERVER_CACHE_MAX_AGE", "60s");
        let env = with(env(&sandbox), &[("CCM_TEST_TIME_SCALE", &scale), max_age]);
        // The Lease is not shortened below a tenth. It is renewed every 2 s of the simulation, with room for
        // a busy machine.
        let lease = [
            "--leader-elect-retry-period=1s",
            "--leader-elect-renew-deadline=40s",
            "--leader-elect-lease-duration=60s",
        ];
        let daemon = Daemon::start(&env, &lease);
        let world = World { daemon, sandbox };
        world.wait_until_idle();
        world
    }

    /// Measures an hour after the last change.
    fn rest(&self) -> Vec<Figure> {
        let hour = self.hour();
        let calls: Vec<&Call> = hour.of(Half::Hetzner).collect();
        let of = |path: &str| calls.iter().filter(|call| call.path == path).count();
        let missing = |real: usize, simulated: usize| real as f64 / simulated.max(1) as f64;
        let factor = missing(POLLS, hour.polls()).max(missing(RENEWALS, hour.renewals()));
        let cpu = hour.cpu.mul_f64(factor.max(1.0));
        let of_kubernetes = hour.of(Half::Kubernetes).map(|call| call.answer_bytes);
        vec![
            Figure::count(title("an hour at rest: Hetzner calls"), calls.len())
                .at_most(REFRESH_CALLS as f64),
            Figure::count("  for servers", of("/v1/servers")),
            Figure::count("  for load balancers", of("/v1/load_balancers")),
            Figure::count(format!("  polls of the nodes ({POLLS} in a real hour)"), hour.polls()),
            Figure::bytes("  read from Kubernetes", of_kubernetes.sum::<usize>() as u64),
            Figure::seconds("  processor time", cpu).at_most(CPU_SECONDS),
            Figure::percent(
                "    of the time of parsing a list of ten nodes a thousand times",
                cpu.as_millis() as usize,
                hour.fixed_work.as_millis() as usize,
            ),
        ]
    }

    fn hour(&self) -> hour::Hour {
        let (mark, cpu, begun) = (self.sandbox.calls().mark(), self.daemon.cpu(), Instant::now());
        let fixed_work = hour::fixed_work(&self.sandbox, Duration::from_secs(3600).mul_f64(SCALE));
        let (cpu, elapsed) = (self.daemon.cpu() - cpu, begun.elapsed());
        let mut calls = self.sandbox.calls().calls_since(mark);
        calls.retain(|call| call.started.duration_since(begun) < elapsed);
        hour::Hour { calls, cpu, fixed_work }
    }

    fn rack(&self) -> Vec<Figure> {
        let rack = self.servers(1000..1000 + RACK);
        let power = |on: bool| {
            for id in &rack {
                self.sandbox.cloud().set_power(*id, on);
            }
        };
        let lost = self.change(RACK, is_update, || power(false));
        let back = self.change(RACK, is_update, || power(true));
        let what = |what: &str| format!("{RACK} nodes {what}");
        let mut figures = lost.figures(&what("lost"));
        figures.extend(back.figures(&what("back")));
        figures
    }

    fn deleted(&self) -> Vec<Figure> {
        let rack = self.servers(2000..2000 + RACK);
        let deleted = self.change(RACK, is_deletion, || self.delete(&rack));
        deleted.figures(&format!("{RACK} servers deleted"))
    }

    fn delete(&self, servers: &[u64]) {
        for id in servers {
            self.sandbox.cloud().delete_server(*id);
        }
    }

    /// Replaces a few nodes at a time. Each new node exists before its old server is deleted.
    fn replaced(&self) -> Vec<Figure> {
        let mut old = self.servers(3000..3000 + REPLACED - REPLACED_EDGE);
        let last = NODES - EDGE_NODES;
        old.extend(self.servers(last..last + REPLACED_EDGE));
        let begun = Instant::now();
        let mut sum = Changed::default();
        for (batch, old) in old.chunks(SURGE).enumerate() {
            let is_edge = |n: usize| batch * SURGE + n >= REPLACED - REPLACED_EDGE;
            let come = self.change(old.len(), is_initialisation, || {
                for n in 0..old.len() {
                    join(&self.sandbox, &format!("new-{batch}-{n}"), is_edge(n));
                }
            });
            let go = self.change(old.len(), is_deletion, || self.delete(old));
            sum.add(come);
            sum.add(go);
        }
        sum.took = begun.elapsed();
        // The server of each new node is read once, and so is that of each old one. All servers are read before
        // targets are added.
        let list = NODES / SERVERS_A_PAGE + 1;
        sum.needed = 2 * REPLACED + REPLACED_EDGE * SERVICES + list;
        let what = format!(
            "{REPLACED} nodes replaced, {SURGE} at a time, {REPLACED_EDGE} of them targets"
        );
        sum.figures(&what)
    }

    /// Measures a change until this number of such writes was made and the daemon is idle again.
    fn change(&self, writes: usize, is_write: fn(&Call) -> bool, change: impl FnOnce()) -> Changed {
        let (mark, begun) = (self.sandbox.calls().mark(), Instant::now());
        change();
        let made = || {
            let later = |call: &Call| call.sequence > mark && is_write(call);
            self.sandbox.calls().count(later)
        };
        wait("the writes", || made() >= writes);
        let took = begun.elapsed();
        self.wait_until_idle();
        let calls = self.sandbox.calls().calls_since(mark);
        let is_ours = |call: &&Call| call.half == Half::Hetzner;
        let is_node_write = |call: &&Call| is_node_write(call);
        let (busy, answered): (Vec<&Call>, Vec<&Call>) =
            calls.iter().filter(is_ours).partition(|call| call.status == Some(BUSY));
        Changed {
            took,
            needed: writes,
            of_kubernetes: calls.iter().filter(is_node_write).count(),
            of_hetzner: answered.len(),
            hetzner_writes: answered.iter().filter(|call| call.is_write()).count(),
            busy: busy.len(),
        }
    }

    /// Waits until no call to Hetzner and no write to a node was made for a while.
    fn wait_until_idle(&self) {
        let count = || {
            let such = |call: &Call| call.half == Half::Hetzner || is_node_write(call);
            self.sandbox.calls().count(such)
        };
        let mut seen = (count(), Instant::now());
        wait("the last call", || {
            if count() != seen.0 {
                seen = (count(), Instant::now());
            }
            seen.1.elapsed() >= QUIET.mul_f64(SCALE)
        });
    }

    fn servers(&self, numbers: Range<usize>) -> Vec<u64> {
        let all = self.sandbox.cloud().servers(self.sandbox.project());
        let names: Vec<String> = numbers.map(name).collect();
        let id = |one: &serde_json::Value| one["id"].as_u64();
        let is_named =
            |one: &&serde_json::Value| names.iter().any(|name| one["name"] == name.as_str());
        all.iter().filter(is_named).filter_map(id).collect()
    }
}

/// The cost of a change.
#[derive(Default)]
struct Changed {
    took: Duration,
    needed: usize,
    of_kubernetes: usize,
    of_hetzner: usize,
    hetzner_writes: usize,
    busy: usize,
}

impl Changed {
    fn add(&mut self, other: Changed) {
        self.of_kubernetes += other.of_kubernetes;
        self.of_hetzner += other.of_hetzner;
        self.hetzner_writes += other.hetzner_writes;
        self.busy += other.busy;
    }

    fn figures(&self, what: &str) -> Vec<Figure> {
        let took = self.took.div_f64(SCALE);
        let hours = took.as_secs_f64() / 3600.0;
        let refreshes = (REFRESH_CALLS as f64 * hours).ceil();
        vec![
            Figure::seconds(format!("{what}: until the last node is written"), took),
            Figure::count("  writes of nodes", self.of_kubernetes),
            Figure::count("  Hetzner writes", self.hetzner_writes),
            Figure::count("  Hetzner calls", self.of_hetzner)
                .at_most(with_more(self.needed) + refreshes),
            Figure::count("  writes answered with \"busy\", not counted above", self.busy),
        ]
    }
}

fn with_more(needed: usize) -> f64 {
    (needed + needed * MORE_PERCENT / 100) as f64
}

/// All servers with their nodes, none of them initialised.
fn cluster(scale: f64) -> Sandbox {
    let plain = NODES - EDGE_NODES;
    let sandbox = Sandbox::builder().nodes(plain).node_bytes(NODE_BYTES).scale(scale).start();
    for n in plain..NODES {
        join(&sandbox, &name(n), true);
    }
    sandbox.cloud().set_load_balancer_limit(sandbox.project(), SERVICES);
    sandbox
}

/// Returns the name that the builder gives to a node.
fn name(n: usize) -> String {
    format!("worker-{}", n + 1)
}

fn join(sandbox: &Sandbox, name: &str, is_edge: bool) {
    let spec = ServerSpec { name: name.to_owned(), ..ServerSpec::default() };
    let id = sandbox.cloud().create_server(sandbox.project(), spec);
    let pool = if is_edge { "edge" } else { "inner" };
    sandbox.register_node(NodeSpec {
        name: name.to_owned(),
        server: Some(id),
        labels: BTreeMap::from([("pool".to_owned(), pool.to_owned())]),
        bytes: NODE_BYTES,
        ..NodeSpec::default()
    });
}

fn create_services(sandbox: &Sandbox) {
    for n in 1..=SERVICES {
        let annotations = [("location", "fsn1"), ("type", "lb11"), ("node-selector", "pool=edge")];
        sandbox.create(&format!("lb-{n}"), &annotations, &[80, 443]);
    }
}

fn have_addresses(sandbox: &Sandbox) -> bool {
    (1..=SERVICES).all(|n| sandbox.has_address(&format!("lb-{n}")))
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(POLL);
    }
}

fn is_node_write(call: &Call) -> bool {
    call.caller == "ccm"
        && call.is_write()
        && call.path.starts_with("/api/v1/nodes/")
        && !is_lease(&call.path)
        && call.status == Some(200)
}

/// Labels, provider ID and taints.
fn is_update(call: &Call) -> bool {
    is_node_write(call) && call.method == "PATCH" && !call.path.ends_with("/status")
}

/// The write that ends a node's initialisation.
fn is_initialisation(call: &Call) -> bool {
    is_update(call)
}

fn is_deletion(call: &Call) -> bool {
    is_node_write(call) && call.method == "DELETE"
}
