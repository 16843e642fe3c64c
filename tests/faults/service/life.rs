//! `ccm` as the daemon runs it, in this process: a world, its service controller, and a gate that closes for good.

use crate::service::library::{Mortal, Place, SCALE, scaled};
use crate::service::others::PRIMARY_IP_SELECTOR;
use crate::service::random::Random;
use crate::service::story::Event;
use ccm::cache::Apis;
use ccm::controllers::service::{self, ServiceController};
use ccm::controllers::{Controller, Report, Selection};
use ccm::hetzner::load_balancers::{Defaults, Selector};
use ccm::provider::{Source, Sourced, Urgency};
use sandbox::Sandbox;
use std::sync::Arc;
use std::time::Duration;

/// Rounds in which everything must have come to rest.
const ROUNDS_AT_MOST: usize = 30;

/// From a start of `ccm` to its death.
#[derive(Debug)]
pub struct Life {
    /// Writes before it dies.
    writes: Option<u64>,
    /// What happens between two looks.
    rounds: Vec<Option<Event>>,
    /// Two of them, without a Lease.
    two_at_once: bool,
    selection: Selection,
    /// Until load balancers that nobody changed are compared again: 1 ms, or hours.
    resyncs: bool,
}

pub struct Ccm {
    pub world: Apis,
    controller: ServiceController,
}

impl Life {
    pub fn of(random: &mut Random, may_be_two: bool) -> Life {
        let two_at_once = may_be_two && random.percent(70);
        let rounds = 1 + random.below(5);
        Life {
            writes: random.percent(60).then(|| random.below(25)),
            two_at_once,
            // Two at once cannot help it that one is a moment behind the other.
            rounds: (0..rounds)
                .map(|_| {
                    (!two_at_once && random.percent(50))
                        .then(|| Event::between_ticks(random, may_be_two))
                })
                .collect(),
            selection: match random.percent(30) {
                true => Selection::All,
                false => Selection::Due,
            },
            resyncs: random.percent(50),
        }
    }

    /// What happens in it.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.rounds.iter().flatten()
    }

    /// How many died, and did not just end.
    pub fn live(&self, sandbox: &Sandbox, place: &Place) -> usize {
        let gates = [(); 2].map(|()| Mortal::after(self.writes));
        let period = resync_period(self.resyncs);
        let [mut first, mut second] =
            [0, 1].map(|n| Ccm::of(place, Arc::clone(&gates[n]), period, SCALE));
        if self.two_at_once {
            std::thread::scope(|scope| {
                scope.spawn(|| self.pass(sandbox, &mut first, &gates[0]));
                scope.spawn(|| self.pass(sandbox, &mut second, &gates[1]));
            });
        } else {
            self.pass(sandbox, &mut first, &gates[0]);
        }
        gates.iter().filter(|gate| gate.is_closed()).count()
    }

    /// How often it looks at the world.
    pub fn looks(&self) -> usize {
        self.rounds.len() * if self.two_at_once { 2 } else { 1 }
    }

    fn pass(&self, sandbox: &Sandbox, ccm: &mut Ccm, gate: &Mortal) {
        for event in &self.rounds {
            if gate.is_closed() {
                return;
            }
            ccm.tick(&self.selection);
            if let Some(event) = event {
                event.happen(sandbox);
            }
        }
    }
}

impl Ccm {
    pub fn new(place: &Place, resyncs: bool) -> Ccm {
        Ccm::with(place, resync_period(resyncs))
    }

    pub fn with(place: &Place, resync_period: Duration) -> Ccm {
        Ccm::of(place, Mortal::after(None), resync_period, SCALE)
    }

    /// One that dies after so many writes.
    pub fn mortal(place: &Place, writes: u64) -> Ccm {
        let gate = Mortal::after(Some(writes));
        Ccm::of(place, gate, resync_period(false), SCALE)
    }

    /// One for which actions may run so many times longer before they count as failed.
    pub fn patient(place: &Place, patience: f64) -> Ccm {
        Ccm::of(
            place,
            Mortal::after(None),
            scaled(1_000_000),
            patience * SCALE,
        )
    }

    fn of(place: &Place, gate: Arc<Mortal>, resync_period: Duration, time_scale: f64) -> Ccm {
        let selector = Selector::parse(PRIMARY_IP_SELECTOR);
        let defaults = Defaults {
            location: Some(Sourced::new("fsn1".to_owned(), Source::Rule("test"))),
            primary_ip_selector: Some(Sourced::new(selector.unwrap(), Source::Rule("test"))),
            ..Defaults::default()
        };
        Ccm {
            world: place.world_of(gate, &place.token, Some(defaults)),
            controller: ServiceController::new(service::Settings {
                sync_interval: scaled(5),
                resync_period,
                concurrency: 3,
                cluster_name: "kubernetes".into(),
                delete_orphans: false,
                time_scale,
            }),
        }
    }

    pub fn tick(&mut self, selection: &Selection) -> Report {
        let world = &self.world;
        let report = self.controller.tick(world, selection);
        // In turn, so that a story is the same each time.
        world.recorder.alongside(&world.kube, || ());
        report
    }

    /// Every change that it would make now.
    pub fn proposes(&self) -> Result<Vec<String>, String> {
        let proposals = self.controller.propose(&self.world, &Selection::All);
        let proposals = proposals.map_err(|error| error.to_string())?;
        let lines = proposals.into_iter().flat_map(|proposal| {
            let object = proposal.object;
            let changes = proposal.changes;
            (!changes.is_empty()).then(|| format!("{object}: {changes}"))
        });
        Ok(lines.collect())
    }

    /// Works until nothing is left to be done; in how many rounds. Servers are known, as the controllers of nodes read
    /// them in the same process.
    pub fn settle(&mut self) -> Result<usize, String> {
        let servers = self.world.instances(Duration::ZERO, Urgency::Needed);
        servers.map_err(|error| error.to_string())?;
        let mut report = Report::default();
        for round in 1..=ROUNDS_AT_MOST {
            let failures = std::mem::take(&mut report.failures);
            report = self.tick(&Selection::All);
            // What failed by itself, as an action may, works in the next round.
            let is_lasting = report.failures.is_empty() || report.failures == failures;
            if is_at_rest(&report) && is_lasting {
                return Ok(round);
            }
        }
        Err(format!("it does not come to rest: {report:#?}"))
    }
}

fn resync_period(resyncs: bool) -> Duration {
    scaled(if resyncs { 1 } else { 1_000_000 })
}

/// Nothing was changed, and what failed is a finding, which lasts until a person mends it.
fn is_at_rest(report: &Report) -> bool {
    let failed = report
        .failures
        .iter()
        .any(|failure| failure.finding.is_none());
    report.outage.is_none() && report.changes.is_empty() && report.unreached == 0 && !failed
}
