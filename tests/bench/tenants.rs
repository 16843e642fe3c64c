//! What a tenant who may edit Services in one namespace can cost all others: thousands of Services, each with a group
//! of its own, beside load balancers that others share.
//!
//! All is measured in real time.

use crate::common::cluster::{service, with_spec};
use crate::common::{Cluster, Daemon, builder, ccm, is_initialised, real_time, wait_at_most};
use crate::figure::Figure;
use sandbox::Sandbox;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NODES: usize = 10;
const SHARED: usize = 10;
const GROUPS: usize = 4000;

const ROUND_SECONDS: f64 = 1.0;
const INITIALISED_SECONDS: f64 = 10.0;

const PATIENCE: Duration = Duration::from_secs(300);
/// A new label of a node is seen within thirty seconds, and then a round plans every Service.
const UNTIL_ALL_ARE_PLANNED: Duration = Duration::from_secs(45);
/// How often the tenant changes an annotation meanwhile.
const CHANGE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(50);
/// Metrics are many lines, so they are read only at one of this number of polls.
const POLLS_OF_METRICS: usize = 4;

pub fn all() -> Vec<Figure> {
    let sandbox = builder().nodes(NODES).heartbeats(false).start();
    let env = real_time(&sandbox);
    ccm(&env, &["node", "sync"]).with_code(0);
    let daemon = Daemon::start(&env, &[]);
    daemon.logs("health: listening on ");
    let watch = Watch::start(&daemon);
    let shared = |n: usize| format!("shared-{n}");
    for n in 1..=SHARED {
        let group = format!("edge-{n}");
        let asks = [("location", "fsn1"), ("type", "lb11"), ("share", &group)];
        sandbox.create(&shared(n), &asks, &[443]);
    }
    wait_at_most(PATIENCE, "addresses of the shared load balancers", || {
        (1..=SHARED).all(|n| sandbox.has_address(&shared(n)))
    });
    for n in 1..=GROUPS {
        create_of_tenant(&sandbox, n);
    }
    let initialised = new_node(&sandbox);
    wait_at_most(PATIENCE, "a first plan of each Service", || watch.pending() == Some(GROUPS));
    let mark = Instant::now();
    sandbox.edit_node("worker-1", |node| {
        node["metadata"]["labels"]["example.com/new"] = json!("label");
    });
    let cpu = daemon.cpu();
    let mut value = 0;
    while mark.elapsed() < UNTIL_ALL_ARE_PLANNED {
        value += 1;
        let interval = format!("{}s", 3 + value % 50);
        sandbox.annotate("tenant-1", "health-check-interval", Some(&interval));
        thread::sleep(CHANGE);
    }
    let cpu = daemon.cpu() - cpu;
    let peak = daemon.memory_kb().0 * 1024;
    let seen = watch.end();
    let rounds = || seen.rounds.iter().filter(|round| round.seen > mark);
    let longest = |of: fn(&Round) -> Duration| rounds().map(of).max().unwrap_or(Duration::MAX);
    let title = |what: &str| format!("{GROUPS} groups, {SHARED} shared load balancers: {what}");
    vec![
        Figure::seconds(title("a round"), longest(|round| round.took)).at_most(ROUND_SECONDS),
        Figure::seconds("  processor time of it", longest(|round| round.cpu)),
        Figure::seconds("  45 s in which one Service changes all the time", cpu),
        Figure::count("  answers of /livez that are not 200", seen.not_ok).at_most(0.0),
        Figure::count("  answers of /livez", seen.polls),
        Figure::seconds("  a new node is initialised", initialised).at_most(INITIALISED_SECONDS),
        Figure::bytes("  peak memory", peak),
    ]
}

/// Node ports are fewer than these Services. Without a location none of them gets a load balancer.
fn create_of_tenant(sandbox: &Sandbox, n: usize) {
    let group = format!("g{n}");
    let own = service(&format!("tenant-{n}"), &[("share", &group)], &[80]);
    let spec = json!({ "allocateLoadBalancerNodePorts": false });
    sandbox.create_as(with_spec(own, &spec));
}

fn new_node(sandbox: &Sandbox) -> Duration {
    let begun = Instant::now();
    sandbox.join_node("late");
    wait_at_most(PATIENCE, "an initialised node", || is_initialised(&sandbox.node("late")));
    begun.elapsed()
}

/// Asks the daemon's health server all the time.
struct Watch {
    url: String,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

#[derive(Default)]
struct Seen {
    polls: usize,
    /// Answers of `/livez` with another status than 200, or none.
    not_ok: usize,
    rounds: Vec<Round>,
}

/// A tick of the service controller.
struct Round {
    /// When the work was over.
    seen: Instant,
    took: Duration,
    /// Processor time since the tick before, of the thread that used most.
    cpu: Duration,
}

impl Watch {
    fn start(daemon: &Daemon) -> Watch {
        let log = daemon.log();
        let (_, rest) = log.split_once("health: listening on ").unwrap();
        let url = format!("http://{}", rest.split_whitespace().next().unwrap());
        let is_over = Arc::new(AtomicBool::new(false));
        let (base, over) = (url.clone(), Arc::clone(&is_over));
        let id = daemon.id();
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            let mut last = ticks(&base);
            let mut cpu = cpu_of_threads(id);
            while !over.load(Ordering::Relaxed) {
                seen.polls += 1;
                seen.not_ok += usize::from(get(&base, "/livez").is_none());
                thread::sleep(LOOK);
                if !seen.polls.is_multiple_of(POLLS_OF_METRICS) {
                    continue;
                }
                let now = ticks(&base);
                if let (Some((count, sum)), Some((count_now, sum_now))) = (last, now)
                    && count_now > count
                {
                    let cpu_now = cpu_of_threads(id);
                    let used = |(id, now): (&String, &Duration)| {
                        now.saturating_sub(cpu.get(id).copied().unwrap_or_default())
                    };
                    seen.rounds.push(Round {
                        seen: Instant::now(),
                        // The time is the sum of several short ones.
                        took: Duration::from_secs_f64(sum_now - sum),
                        cpu: cpu_now.iter().map(used).max().unwrap_or_default(),
                    });
                    cpu = cpu_now;
                }
                last = now.or(last);
            }
            seen
        });
        Watch { url, is_over, thread }
    }

    /// Services that have no address yet, as the last tick saw it.
    fn pending(&self) -> Option<usize> {
        let pending = metric(&self.url, "ccm_load_balancers{state=\"pending\"}")?;
        Some(pending as usize)
    }

    fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Returns the processor time of each thread, by its ID.
fn cpu_of_threads(process: u32) -> BTreeMap<String, Duration> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let time = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
        let id = path.file_name()?.to_string_lossy().into_owned();
        Some((id, Duration::from_nanos(nanoseconds)))
    };
    threads.filter_map(|one| time(one.ok()?.path())).collect()
}

/// Returns the number of ticks of the service controller, and the seconds that they took together.
fn ticks(url: &str) -> Option<(f64, f64)> {
    let of = |what: &str| {
        let name = "{controller=\"service-lb-controller\"}";
        metric(url, &format!("ccm_tick_duration_seconds_{what}{name}"))
    };
    Some((of("count")?, of("sum")?))
}

fn metric(url: &str, name: &str) -> Option<f64> {
    let text = get(url, "/metrics")?;
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// The text of an answer 200.
fn get(url: &str, path: &str) -> Option<String> {
    let mut answer = ureq::get(format!("{url}{path}")).call().ok()?;
    answer.body_mut().read_to_string().ok()
}
