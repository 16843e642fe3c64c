//! What it takes: of the disk, and of memory at its highest.

use crate::NODE_BYTES;
use crate::common::{Daemon, binary, env, is_lease, wait_at_most, with};
use crate::figure::Figure;
use crate::hour;
use sandbox::{Half, Sandbox};
use std::time::Duration;

const MANY: usize = 5000;
/// A fifth: looks lie a second apart, refreshes a minute.
const SCALE: &str = "0.2";
/// They take minutes even on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(900);

const BINARY_MB: f64 = 4.0;
const MEMORY_MB: f64 = 8.0;
const MEMORY_OF_MANY_MB: f64 = 40.0;

pub fn all() -> Vec<Figure> {
    vec![binary_size(), of_a_hundred(), of_many()]
}

fn binary_size() -> Figure {
    let bytes = std::fs::metadata(binary()).unwrap().len();
    Figure::bytes("binary", bytes).at_most(BINARY_MB)
}

fn of_a_hundred() -> Figure {
    let peak_kb = hour::steady().peak_kb;
    Figure::bytes("peak memory, 100 nodes", peak_kb * 1024).at_most(MEMORY_MB)
}

/// Until all of them are initialised and were compared with their servers once more.
fn of_many() -> Figure {
    let sandbox = Sandbox::builder()
        .nodes(MANY)
        .node_bytes(NODE_BYTES)
        .heartbeats(false)
        .start();
    let env = with(env(&sandbox), &[("CCM_TEST_TIME_SCALE", SCALE)]);
    let daemon = Daemon::start(&env, &[]);
    let created = |call: &sandbox::calls::Call| {
        call.method == "POST" && call.status == Some(201) && !is_lease(&call.path)
    };
    wait_at_most(PATIENCE, "an event for each of the nodes", || {
        sandbox.calls().count(created) >= MANY
    });
    let hetzner = || sandbox.calls().count(|call| call.half == Half::Hetzner);
    let before = hetzner();
    let pages = MANY.div_ceil(50);
    wait_at_most(PATIENCE, "a refresh of them all", || {
        hetzner() >= before + pages
    });
    let (peak_kb, _) = daemon.memory_kb();
    Figure::bytes("peak memory, 5,000 nodes and servers", peak_kb * 1024).at_most(MEMORY_OF_MANY_MB)
}
