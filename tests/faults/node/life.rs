//! `ccm` as the daemon runs it, in this process: a world, its two controllers, and a gate that closes for good.

use crate::node::library::{Credentials, Mortal, Place, SCALE, scaled};
use crate::node::random::Random;
use ccm::cache::Apis;
use ccm::controllers::lifecycle::{self, LifecycleController};
use ccm::controllers::node::{self, NodeController};
use ccm::controllers::{Controller, Report, Selection};
use std::sync::Arc;
use std::time::Duration;

/// Rounds in which everything must have come to rest.
const ROUNDS_AT_MOST: usize = 30;

/// From a start of `ccm` to its death.
#[derive(Debug)]
pub struct Life {
    /// Its token is another project's.
    wrong_token: bool,
    robot: Credentials,
    /// Writes before it dies.
    writes: Option<u64>,
    rounds: u64,
    manner: Manner,
    selection: Selection,
    concurrent_nodes: usize,
}

const CREDENTIALS: [Credentials; 5] = [
    Credentials::WrongPassword,
    Credentials::OtherAccount,
    Credentials::SingleServer,
    Credentials::None,
    Credentials::Off,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    InTurn,
    /// Each controller on its own thread, as in the daemon.
    Threads,
    /// Two of them at once, without a Lease.
    TwoAtOnce,
}

struct Ccm {
    world: Apis,
    node: NodeController,
    lifecycle: LifecycleController,
}

impl Life {
    pub fn of(random: &mut Random) -> Life {
        Life {
            wrong_token: random.percent(15),
            robot: match random.percent(60) {
                true => Credentials::Right,
                false => *random.pick(&CREDENTIALS),
            },
            writes: random.percent(70).then(|| random.below(7)),
            rounds: 1 + random.below(4),
            manner: *random.pick(&[Manner::InTurn, Manner::Threads, Manner::TwoAtOnce]),
            selection: match random.percent(40) {
                true => Selection::All,
                false => Selection::Due,
            },
            concurrent_nodes: 1 + random.below(5) as usize,
        }
    }

    /// How many died, and did not just end.
    pub fn live(&self, place: &Place) -> usize {
        let token = match self.wrong_token {
            true => &place.other_token,
            false => &place.token,
        };
        let gates = [(); 2].map(|()| Mortal::after(self.writes));
        let mut first = Ccm::new(place, &gates[0], token, self.robot);
        first.world.concurrent_nodes = self.concurrent_nodes;
        match self.manner {
            Manner::InTurn => self.in_turn(&mut first, &gates[0]),
            Manner::Threads => std::thread::scope(|scope| {
                let Ccm {
                    world,
                    node,
                    lifecycle,
                } = &mut first;
                scope.spawn(|| self.alone(node, world, &gates[0]));
                scope.spawn(|| self.alone(lifecycle, world, &gates[0]));
            }),
            Manner::TwoAtOnce => {
                let mut second = Ccm::new(place, &gates[1], token, self.robot);
                std::thread::scope(|scope| {
                    scope.spawn(|| self.in_turn(&mut first, &gates[0]));
                    scope.spawn(|| self.in_turn(&mut second, &gates[1]));
                });
            }
        }
        gates.iter().filter(|gate| gate.is_closed()).count()
    }

    fn in_turn(&self, ccm: &mut Ccm, gate: &Mortal) {
        for _ in 0..self.rounds {
            for controller in ccm.controllers() {
                if !gate.is_closed() {
                    controller.0.tick(controller.1, &self.selection);
                }
            }
        }
    }

    fn alone(&self, controller: &mut dyn Controller, world: &Apis, gate: &Mortal) {
        for _ in 0..self.rounds {
            if !gate.is_closed() {
                controller.tick(world, &self.selection);
            }
        }
    }
}

/// A new `ccm` works until nothing is left to be done.
pub fn settle(place: &Place) -> Result<(), String> {
    let mut ccm = Ccm::new(
        place,
        &Mortal::after(None),
        &place.token,
        Credentials::Right,
    );
    let mut reports = Vec::new();
    for _ in 0..ROUNDS_AT_MOST {
        reports = ccm
            .controllers()
            .map(|(controller, world)| controller.tick(world, &Selection::All))
            .into();
        if reports.iter().all(is_at_rest) {
            return Ok(());
        }
    }
    Err(format!("it does not come to rest: {reports:#?}"))
}

/// Nothing was changed, and what failed is a finding, which lasts until a person mends it.
fn is_at_rest(report: &Report) -> bool {
    let failed = report
        .failures
        .iter()
        .any(|failure| failure.finding.is_none());
    report.outage.is_none() && report.changes.is_empty() && !failed
}

impl Ccm {
    fn new(place: &Place, gate: &Arc<Mortal>, token: &str, robot: Credentials) -> Ccm {
        Ccm {
            world: place.world_with(Arc::clone(gate), token, robot, None),
            node: NodeController::new(node::Settings {
                sync_interval: scaled(5),
                status_update_frequency: scaled(300),
                // A list must live long enough to write something on it, however slow the machine.
                server_cache_max_age: Duration::from_millis(500),
                time_scale: SCALE,
            }),
            lifecycle: LifecycleController::new(lifecycle::Settings {
                monitor_period: scaled(5),
                node_max_age: scaled(300),
                server_cache_max_age: Duration::from_millis(500),
                deletion_guard: true,
                time_scale: SCALE,
            }),
        }
    }

    fn controllers(&mut self) -> [(&mut dyn Controller, &Apis); 2] {
        [
            (&mut self.node, &self.world),
            (&mut self.lifecycle, &self.world),
        ]
    }
}
