//! An hour in which little happens: the calls to both APIs, and the processor time.

use crate::figure::Figure;
use crate::hour::{self, NODES, POLLS, RENEWALS, Steady};
use sandbox::Half;
use std::time::Duration;

/// Refreshes, at the default of `--node-status-update-frequency`.
const REFRESHES: usize = 12;
const SERVERS_A_PAGE: usize = 50;
/// The calls that one node that is not ready may add.
const MORE_CALLS: usize = 120;
/// The limit, as a share of whole lists at every tick.
const SHARE_PERCENT: f64 = 10.0;
/// The limit of the processor time, as a share of a fixed amount of work.
const CPU_PERCENT: f64 = 110.0;

pub fn all() -> Vec<Figure> {
    let hours = hour::steady();
    vec![
        hetzner_calls(hours),
        hetzner_calls_for_a_node_not_ready(hours),
        polls(hours),
        renewals(hours),
        kubernetes_bytes(hours),
        kubernetes_share(hours),
        Figure::seconds("processor time an hour, 100 nodes", cpu(hours)),
        cpu_share(hours),
    ]
}

fn hetzner_calls(hours: &Steady) -> Figure {
    let limit = REFRESHES * NODES.div_ceil(SERVERS_A_PAGE) + 12;
    let calls = hours.steady.count(Half::Hetzner);
    Figure::count("Hetzner calls an hour, 100 ready nodes", calls).at_most(limit as f64)
}

fn hetzner_calls_for_a_node_not_ready(hours: &Steady) -> Figure {
    let calls = hours.one_not_ready.count(Half::Hetzner);
    let more = calls.saturating_sub(hours.steady.count(Half::Hetzner));
    Figure::count("  more with one NotReady, its server running", more).at_most(MORE_CALLS as f64)
}

fn polls(hours: &Steady) -> Figure {
    let title = format!("polls of the nodes in that hour ({POLLS} in a real one)");
    Figure::count(title, hours.steady.polls())
}

fn renewals(hours: &Steady) -> Figure {
    let title = format!("renewals of the Lease in it ({RENEWALS} in a real one)");
    Figure::count(title, hours.steady.renewals())
}

fn kubernetes_bytes(hours: &Steady) -> Figure {
    Figure::bytes("bytes read from Kubernetes an hour", read(hours) as u64)
}

fn kubernetes_share(hours: &Steady) -> Figure {
    let whole_lists = hours.steady.polls() * hours.list_bytes;
    Figure::percent("  of whole lists at every poll", read(hours), whole_lists)
        .at_most(SHARE_PERCENT)
}

fn read(hours: &Steady) -> usize {
    let calls = hours.steady.of(Half::Kubernetes);
    calls.map(|call| call.answer_bytes).sum()
}

/// Returns the processor time as if all polls and renewals of a real hour had fitted into the simulated one. The figure
/// is rather too large than too small.
fn cpu(hours: &Steady) -> Duration {
    let steady = &hours.steady;
    let missing = |real: usize, simulated: usize| real as f64 / simulated.max(1) as f64;
    let factor = missing(POLLS, steady.polls()).max(missing(RENEWALS, steady.renewals())).max(1.0);
    steady.cpu.mul_f64(factor)
}

fn cpu_share(hours: &Steady) -> Figure {
    let title = "  of the time of parsing a list of ten nodes a thousand times";
    let [cpu, fixed_work] =
        [cpu(hours), hours.steady.fixed_work].map(|time| time.as_millis() as usize);
    Figure::percent(title, cpu, fixed_work).at_most(CPU_PERCENT)
}
