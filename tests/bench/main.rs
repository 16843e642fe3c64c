//! What it costs: figures of the real binary on the sandbox, each with the limit that it has to keep.
//!
//! `make bench` measures the static binary, prints them all as a table, and fails where a limit is missed.
//! What does not depend on the machine and costs little is an ordinary test.
//!
//! | file | measures |
//! |---|---|
//! | `nodes` | nodes that come: time, calls |
//! | `rest` | an hour in which little happens: calls, bytes, processor time |
//! | `load_balancers` | Services that get load balancers, and an hour with them |
//! | `routes` | nodes that get routes, and an hour with them |
//! | `scale` | 5,000 nodes and 100 load balancers: start, an hour, a rack lost, nodes replaced |
//! | `memory` | what it takes of disk and memory; `large_services`: with Services that are as large as may be |
//! | `tenants` | 4,000 Services in groups of their own: a round, probes, a new node |
//! | `simulation` | the sandbox itself, so that nobody takes its time for ours |
//! | `hour`, `figure` | the simulated hour; a row of the table |
//!
//! A figure is a function that returns [`Figure`]; its theme's `all` names it. `CCM_BENCH_ONLY=rest,memory`
//! measures these themes only; `CCM_BENCH_JSON=FILE` also writes one JSON object a line.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod figure;
mod hour;
mod load_balancers;
mod memory;
mod nodes;
mod rest;
mod routes;
mod scale;
mod simulation;
mod tenants;

use figure::Figure;
use sandbox::calls::Call;
use sandbox::{Half, Sandbox};

/// The size of a real node, with 12 labels, 6 annotations, 45 images and managed fields.
const NODE_BYTES: usize = 12_000;

/// Calls of Hetzner's API since a mark.
fn hetzner(sandbox: &Sandbox, mark: u64) -> Vec<Call> {
    let mut calls = sandbox.calls().calls_since(mark);
    calls.retain(|call| call.half == Half::Hetzner);
    calls
}

fn writes(calls: &[Call]) -> usize {
    calls.iter().filter(|call| call.is_write()).count()
}

type Theme = (&'static str, fn() -> Vec<Figure>);

const THEMES: [Theme; 9] = [
    // First, for it measures the memory of this very process.
    ("simulation", simulation::all),
    ("nodes", nodes::all),
    ("load_balancers", load_balancers::all),
    ("routes", routes::all),
    ("rest", rest::all),
    ("scale", scale::all),
    ("tenants", tenants::all),
    ("memory", memory::all),
    ("large_services", memory::of_large_services),
];

#[test]
fn a_hundred_nodes_that_register_together_cost_few_calls() {
    for figure in nodes::together(100) {
        if figure.is_count() {
            assert!(figure.is_ok(), "{figure}");
        }
    }
}

#[test]
fn twenty_load_balancers_cost_few_calls() {
    for figure in load_balancers::a_life(0.1) {
        if figure.is_count() {
            assert!(figure.is_ok(), "{figure}");
        }
    }
}

#[test]
fn five_services_that_share_cost_few_calls() {
    for figure in load_balancers::shared(0.1) {
        if figure.is_count() {
            assert!(figure.is_ok(), "{figure}");
        }
    }
}

#[test]
fn a_hundred_routes_cost_a_write_each_and_few_calls() {
    for figure in routes::a_life(0.1) {
        if figure.is_count() {
            assert!(figure.is_ok(), "{figure}");
        }
    }
}

#[test]
#[ignore = "a measurement: make bench"]
fn bench() {
    let only = std::env::var("CCM_BENCH_ONLY").unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|one| one == name);
    let themes = THEMES.iter().filter(|(name, _)| wanted(name));
    let figures: Vec<Figure> = themes
        .flat_map(|(_, measure)| measure())
        // The figure is also printed at once, so that it is known whatever stops the rest.
        .inspect(|figure| println!("{figure}"))
        .collect();
    print!("\n{}", figure::table(&figures));
    if let Some(file) = std::env::var_os("CCM_BENCH_JSON") {
        std::fs::write(file, figure::json_lines(&figures)).unwrap();
    }
    let missed: Vec<String> =
        figures.iter().filter(|figure| !figure.is_ok()).map(Figure::to_string).collect();
    assert!(missed.is_empty(), "limits missed:\n{}", missed.join("\n"));
}
