//! `ccm` as the daemon runs it, in this process: a world, its two controllers, and a gate that closes for good.

use crate::random::Random;
use ccm::cloud::{self, Gate, Refused, Source};
use ccm::controllers::lifecycle::{self, LifecycleController};
use ccm::controllers::node::{self, NodeController};
use ccm::controllers::{Controller, Report, Selection};
use ccm::hetzner::{self, AddressFamily, Hetzner, Profile};
use ccm::http::{Proxies, Secret, Timing, Tls, Token};
use ccm::kube::{self, config};
use ccm::world::World;
use sandbox::Sandbox;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A second of the daemon's waits.
const SCALE: f64 = 0.002;

/// Rounds in which everything must have come to rest.
const ROUNDS_AT_MOST: usize = 30;

/// From a start of `ccm` to its death.
#[derive(Debug)]
pub struct Life {
    /// Its token is another project's.
    wrong_token: bool,
    /// Writes before it dies.
    writes: Option<u64>,
    rounds: u64,
    manner: Manner,
    selection: Selection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    InTurn,
    /// Each controller on its own thread, as in the daemon.
    Threads,
    /// Two of them at once, without a Lease.
    TwoAtOnce,
}

/// How to reach one sandbox.
pub struct Place {
    kubeconfig: config::Options,
    endpoint: String,
    token: String,
    other_token: String,
}

struct Ccm {
    world: World,
    node: NodeController,
    lifecycle: LifecycleController,
}

/// Lets so many writes pass, and then none: as far as the APIs can tell, the process is dead.
struct Mortal {
    writes_left: AtomicI64,
}

impl Life {
    pub fn of(random: &mut Random) -> Life {
        Life {
            wrong_token: random.percent(15),
            writes: random.percent(70).then(|| random.below(7)),
            rounds: 1 + random.below(4),
            manner: *random.pick(&[Manner::InTurn, Manner::Threads, Manner::TwoAtOnce]),
            selection: match random.percent(40) {
                true => Selection::All,
                false => Selection::Due,
            },
        }
    }

    /// How many died, and did not just end.
    pub fn live(&self, place: &Place) -> usize {
        let token = match self.wrong_token {
            true => &place.other_token,
            false => &place.token,
        };
        let gates = [self.gate(), self.gate()];
        let mut first = place.ccm(token);
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
                let mut second = place.ccm(token);
                std::thread::scope(|scope| {
                    scope.spawn(|| self.in_turn(&mut first, &gates[0]));
                    scope.spawn(|| self.in_turn(&mut second, &gates[1]));
                });
            }
        }
        gates.iter().filter(|gate| gate.is_closed()).count()
    }

    fn gate(&self) -> Mortal {
        let writes = self.writes.map_or(i64::MAX, |writes| writes as i64);
        Mortal {
            writes_left: writes.into(),
        }
    }

    fn in_turn(&self, ccm: &mut Ccm, gate: &Mortal) {
        for _ in 0..self.rounds {
            for controller in ccm.controllers() {
                if !gate.is_closed() {
                    controller.0.tick(controller.1, gate, &self.selection);
                }
            }
        }
    }

    fn alone(&self, controller: &mut dyn Controller, world: &World, gate: &Mortal) {
        for _ in 0..self.rounds {
            if !gate.is_closed() {
                controller.tick(world, gate, &self.selection);
            }
        }
    }
}

impl Place {
    pub fn new(sandbox: &Sandbox) -> Place {
        let env = sandbox.env_of("ccm");
        let value = |name: &str| {
            let found = env.iter().find(|(other, _)| other == name);
            found.unwrap().1.clone()
        };
        Place {
            kubeconfig: config::Options {
                kubeconfig: vec![value("KUBECONFIG").into()],
                ..config::Options::default()
            },
            endpoint: value("HCLOUD_ENDPOINT"),
            token: value("HCLOUD_TOKEN"),
            other_token: sandbox.projects().foreign_token.clone(),
        }
    }

    /// A new `ccm` works until nothing is left to be done.
    pub fn settle(&self) -> Result<(), String> {
        let mut ccm = self.ccm(&self.token);
        let gate = Mortal {
            writes_left: i64::MAX.into(),
        };
        let mut reports = Vec::new();
        for _ in 0..ROUNDS_AT_MOST {
            reports = ccm
                .controllers()
                .map(|(controller, world)| controller.tick(world, &gate, &Selection::All))
                .into();
            if reports.iter().all(is_at_rest) {
                return Ok(());
            }
        }
        Err(format!("it does not come to rest: {reports:#?}"))
    }

    fn ccm(&self, token: &str) -> Ccm {
        let timing = Timing {
            read_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            retry_wait: Duration::from_millis(1),
        };
        let access = config::load(&self.kubeconfig).unwrap();
        let hetzner = Hetzner::new(hetzner::Settings {
            profile: Profile::CcmFromScratch,
            endpoint: self.endpoint.clone(),
            proxies: Proxies::Never,
            tls: Tls::default(),
            metadata: None,
            token: Token::fixed(Secret::new(token)),
            network: None,
            address_family: cloud::Sourced::new(AddressFamily::Ipv4, Source::Rule("test")),
            load_balancers: None,
            zone_label: cloud::Sourced::new(true, Source::Rule("test")),
            debug: false,
            timing,
            time_scale: SCALE,
        });
        let scaled = |time_s: u64| Duration::from_secs(time_s).mul_f64(SCALE);
        Ccm {
            world: World::new(
                kube::Client::new(access, Proxies::Never, timing),
                Box::new(hetzner),
                SCALE,
            ),
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
    fn controllers(&mut self) -> [(&mut dyn Controller, &World); 2] {
        [
            (&mut self.node, &self.world),
            (&mut self.lifecycle, &self.world),
        ]
    }
}

impl Mortal {
    fn is_closed(&self) -> bool {
        self.writes_left.load(Ordering::Relaxed) <= 0
    }
}

impl Gate for Mortal {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        match self.writes_left.fetch_sub(1, Ordering::Relaxed) > 0 {
            true => Ok(()),
            false => Err(Refused("dead".into())),
        }
    }
}
