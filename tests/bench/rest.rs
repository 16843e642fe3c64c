//! An hour in which little happens: what is asked of both APIs, and the processor time.

use crate::figure::Figure;
use crate::hour::{self, NODES, Steady, TICKS};
use sandbox::Half;

/// Refreshes, at the default of `--node-status-update-frequency`.
const REFRESHES: usize = 12;
const SERVERS_A_PAGE: usize = 50;
/// What one node that is not ready may add.
const MORE_CALLS: usize = 120;
/// Of what whole lists at every tick would be.
const SHARE_PERCENT: f64 = 10.0;
/// What `hcloud-cloud-controller-manager` takes, which watches.
const CPU_SECONDS: f64 = 2.2;

pub fn all() -> Vec<Figure> {
    let hours = hour::steady();
    vec![
        hetzner_calls(hours),
        hetzner_calls_for_a_node_not_ready(hours),
        kubernetes_calls(hours),
        kubernetes_bytes(hours),
        kubernetes_share(hours),
        cpu(hours),
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

fn kubernetes_calls(hours: &Steady) -> Figure {
    let calls = hours.steady.count(Half::Kubernetes);
    Figure::count("Kubernetes calls an hour, 100 nodes", calls)
}

fn kubernetes_bytes(hours: &Steady) -> Figure {
    Figure::bytes("bytes read from Kubernetes an hour", read(hours) as u64)
}

fn kubernetes_share(hours: &Steady) -> Figure {
    let whole_lists = TICKS * hours.list_bytes;
    Figure::percent("  of whole lists at every tick", read(hours), whole_lists)
        .at_most(SHARE_PERCENT)
}

fn read(hours: &Steady) -> usize {
    let calls = hours.steady.of(Half::Kubernetes);
    calls.map(|call| call.answer_bytes).sum()
}

fn cpu(hours: &Steady) -> Figure {
    Figure::seconds("CPU an hour, 100 nodes", hours.steady.cpu).at_most(CPU_SECONDS)
}
