//! Stories: what happens to a cluster while its APIs have faults, chosen by a seed, ten thousand times.
//!
//! `make test` runs five hundred fixed seeds, and `make storm` runs new seeds. A story runs in one thread and in
//! memory, with simulated time, and is the same each time. `CCM_TEST_SEED=4711 make storm` runs one story and
//! writes its log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod faults;
mod log_capture;
mod mutants;
mod namespace_budget;
mod process;
mod program;
mod requests;
mod story;
mod topics;

use common::seeds::chosen;
use common::{library, machine, random};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use story::{FailedStory, Stats};

/// The number of fixed seeds that `make test` runs.
const STORIES: u64 = 500;

/// How often each of these things must happen at least in the stories with fixed seeds. Stories in which they no longer
/// happen, because the way in which stories are generated was changed, test nothing.
const AT_LEAST: &[(&str, u64)] = &[
    ("stories with defaults of a Namespace", 10),
    ("zone labels changed", 25),
    ("relabellings prevented by a volume", 7),
    ("nodes taken out of service", 10),
    ("load balancers created", 95),
    ("created with a Primary IP", 15),
    ("types changed", 8),
    ("certificates ordered or uploaded", 50),
    ("load balancers deleted", 20),
    ("load balancers renamed or labelled", 65),
    ("adopted", 32),
    ("released", 12),
    ("targets removed", 50),
    ("targets of departing nodes removed", 90),
    ("changes refused for a moment", 70),
    ("not stopped by a stuck one", 12),
    ("ports added to shared ones", 180),
    ("ports changed on shared ones", 1),
    ("ports removed from shared ones", 25),
    ("shared ones labelled", 160),
    ("shared ones deleted", 14),
    ("stories with a hostile tenant", 40),
    ("routes added", 130),
    ("routes deleted", 130),
    ("routes refused as busy", 20),
    ("certificates approved", 50),
    ("targets added beside nodes of other providers", 100),
    ("targets removed beside nodes of other providers", 40),
    ("load balancers created to replace another one", 15),
    ("statuses that changed to another load balancer", 20),
];

#[test]
fn the_stories_with_fixed_seeds_keep_all_invariants_and_converge() {
    let seeds = chosen(1..=STORIES);
    let is_fixed = seeds.len() == STORIES as usize;
    let report = run_stories(seeds, usize::MAX);
    println!("{report}");
    assert!(report.failed.is_empty(), "{report}");
    for (what, least) in AT_LEAST.iter().copied().filter(|_| is_fixed) {
        let count = report.stats.counts.get(what).copied().unwrap_or_default();
        assert!(count >= least, "{count} {what}, not {least}");
    }
}

/// Runs ten thousand new stories for `make storm`.
#[test]
#[ignore = "make storm"]
fn storm() {
    requests::compare(2, 100_000);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = now.unwrap().as_secs() * 100_000;
    let seeds = chosen(first..first + 10_000);
    println!("seeds {} to {}", seeds[0], seeds[seeds.len() - 1]);
    let one = (seeds.len() == 1).then_some(seeds[0]);
    let report = run_stories(seeds, 5);
    println!("{report}");
    if let Some(seed) = one {
        println!("its log and the histories of the APIs are in target/storm/{seed}");
    }
    assert!(report.failed.is_empty(), "a story failed");
}

#[test]
fn a_seed_always_gives_the_same_story() {
    for seed in 1..40 {
        let all = [(); 2].map(|()| match story::run(seed) {
            // Hash maps have a different size each time.
            Ok(stats) => format!("{:?}", Stats { memory: 0, ..stats }),
            Err(failed) => failed.why,
        });
        assert_eq!(all[0], all[1], "seed {seed}");
    }
}

struct Report {
    stats: Stats,
    failed: BTreeMap<u64, FailedStory>,
    took_s: f64,
}

/// Runs these stories on all processors until this many have failed.
fn run_stories(seeds: Vec<u64>, failed_at_most: usize) -> Report {
    let begun = Instant::now();
    let is_over = AtomicBool::new(false);
    let all: Mutex<(Stats, BTreeMap<u64, FailedStory>)> = Mutex::default();
    let run_one = |seed: u64| {
        let outcome = story::run(seed);
        let mut all = all.lock().unwrap();
        match outcome {
            Ok(stats) => all.0.add(&stats),
            Err(failed) => drop(all.1.insert(seed, failed)),
        }
        if all.1.len() >= failed_at_most {
            is_over.store(true, Ordering::Relaxed);
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Stories over sockets wait more than they compute.
    let (over_sockets, in_memory): (Vec<u64>, Vec<u64>) =
        seeds.into_iter().partition(|seed| seed.is_multiple_of(story::OVER_SOCKETS));
    std::thread::scope(|scope| {
        for (seeds, threads) in [(over_sockets, 32), (in_memory, processors)] {
            let seeds = Arc::new(Mutex::new(seeds.into_iter()));
            for _ in 0..threads {
                let (seeds, run_one, is_over) = (Arc::clone(&seeds), &run_one, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed)
                        && let Some(seed) = { seeds.lock().unwrap().next() }
                    {
                        run_one(seed);
                    }
                });
            }
        }
    });
    let (stats, failed) = all.into_inner().unwrap();
    Report { stats, failed, took_s: begun.elapsed().as_secs_f64() }
}

/// Writes what is known about a failed story to `target/storm/SEED`.
fn write_records(seed: u64, failed: &FailedStory) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/storm");
    let folder = folder.join(seed.to_string());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("why"), &failed.why).unwrap();
    for (name, text) in &failed.records {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

impl Stats {
    fn add(&mut self, other: &Stats) {
        self.stories += other.stories;
        self.calls += other.calls;
        self.faults += other.faults;
        self.writes += other.writes;
        self.processes += other.processes;
        self.died += other.died;
        self.pauses += other.pauses;
        self.events += other.events;
        self.simulated += other.simulated;
        self.memory = self.memory.max(other.memory);
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = &self.stats;
        let hours = stats.simulated.as_secs_f64() / 3600.0;
        let (stories, each) = (stats.stories + self.failed.len(), self.took_s);
        writeln!(f, "{stories} stories in {each:.1} s, {:.0} a second", stories as f64 / each)?;
        writeln!(
            f,
            "{} calls ({} of them writes), {} of them with a fault; {} events; {} processes, {} died, stopped {} times; \
             {hours:.0} simulated hours; a process had {} kB of memory at most",
            stats.calls,
            stats.writes,
            stats.faults,
            stats.events,
            stats.processes,
            stats.died,
            stats.pauses,
            stats.memory >> 10
        )?;
        let counts = stats.counts.iter();
        let counts: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
        writeln!(f, "{}", counts.join(", "))?;
        for (seed, failed) in self.failed.iter().take(20) {
            let why: String = failed.why.chars().take(400).collect();
            writeln!(f, "CCM_TEST_SEED={seed}: {why}\n  all of it in target/storm/{seed}")?;
        }
        write!(f, "{} failed", self.failed.len())
    }
}
