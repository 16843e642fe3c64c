//! A `ccm` as the daemon runs it, in one thread: both APIs, all controllers, a Lease, and a death.

use crate::library::{Credentials, Mortal, Place};
use crate::random::Random;
use ccm::cache::Apis;
use ccm::controllers::lifecycle::{self, LifecycleController};
use ccm::controllers::node::{self, NodeController};
use ccm::controllers::route::{self, RouteController};
use ccm::controllers::service::{self, ServiceController};
use ccm::controllers::{Controller, Report, Selection};
use ccm::daemon::Stop;
use ccm::daemon::lease::{Lease, Renewer, Settings, WaitPolicy};
use ccm::hetzner::load_balancers::{Defaults, Selector};
use ccm::kube::{self, LeaseKey};
use ccm::provider::{Gate, OpenGate, PermittedUse, Refused, Source, Sourced, clock};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

/// Services may claim Primary IPs with it.
pub const PRIMARY_IP_SELECTOR: &str = "tenants=yes";

/// How a process is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// Writes before it dies.
    pub writes: Option<u64>,
    pub robot: Credentials,
    /// Its token is another project's.
    pub wrong_token: bool,
    /// It takes part in the election of a leader.
    pub with_lease: bool,
    /// It reads what the Lease remembers, as a command does.
    pub reads_lease: bool,
    /// Load balancers are compared with every tick, and not once in some hours.
    pub resyncs: bool,
    pub concurrency: usize,
}

impl Default for Start {
    fn default() -> Start {
        Start {
            writes: None,
            robot: Credentials::Right,
            wrong_token: false,
            with_lease: false,
            reads_lease: false,
            resyncs: true,
            concurrency: 3,
        }
    }
}

impl Start {
    pub fn of(random: &mut Random) -> Start {
        Start {
            writes: random.percent(60).then(|| random.below(25)),
            robot: match random.percent(70) {
                true => Credentials::Right,
                false => *random.pick(&Credentials::ALL),
            },
            wrong_token: random.percent(6),
            with_lease: random.percent(40),
            reads_lease: false,
            resyncs: random.percent(50),
            concurrency: 1 + random.below(4) as usize,
        }
    }
}

pub struct Process {
    pub name: String,
    pub apis: Apis,
    controllers: RefCell<Vec<Box<dyn Controller>>>,
    mortal: Arc<Mortal>,
    lease: Option<Candidate>,
    /// See [`crate::machine::Machine::suspended`].
    pub suspended: Cell<Duration>,
}

struct Candidate {
    lease: Arc<Lease>,
    renewer: RefCell<Renewer>,
    /// It goes on trying.
    is_trying: Cell<bool>,
}

/// Lets a write pass while the process lives and leads.
struct Both(Arc<Mortal>, Option<Arc<Lease>>);

impl Gate for Both {
    fn pass(&self, what: &str) -> Result<(), Refused> {
        if let Some(lease) = &self.1 {
            lease.pass(what)?;
        }
        self.0.pass(what)
    }

    fn pass_at_end(&self, what: &str) -> Result<(), Refused> {
        if let Some(lease) = &self.1 {
            lease.pass_at_end(what)?;
        }
        self.0.pass(what)
    }

    fn may_wait(&self) -> bool {
        self.0.may_wait() && self.1.as_ref().is_none_or(|lease| lease.may_wait())
    }
}

impl Process {
    pub fn new(name: &str, place: &Place, start: &Start) -> Process {
        let mortal = Mortal::after(start.writes);
        let lease = start.with_lease.then(|| candidate(name, place));
        let gate = Both(Arc::clone(&mortal), lease.as_ref().map(|one| Arc::clone(&one.lease)));
        let selector = Selector::parse(PRIMARY_IP_SELECTOR).unwrap();
        let defaults = Defaults {
            location: Some(Sourced::new("fsn1".to_owned(), Source::Rule("test"))),
            permitted: PermittedUse {
                primary_ip_selector: Some(Sourced::new(selector, Source::Rule("test"))),
                ..PermittedUse::default()
            },
            ..Defaults::default()
        };
        let token = match start.wrong_token {
            true => place.other_token.clone(),
            false => place.token(),
        };
        let gate: Arc<dyn Gate> = Arc::new(gate);
        let mut apis = place.apis(gate, &token, start.robot, Some(defaults));
        apis.concurrent_nodes = start.concurrency;
        if let Some(candidate) = &lease {
            let _ = candidate.lease.cluster.set(Arc::clone(&apis.identity));
        } else if start.reads_lease {
            apis.identity.read_from(lease_key());
        }
        Process {
            name: name.to_owned(),
            apis,
            controllers: RefCell::new(controllers(start, place)),
            mortal,
            lease,
            suspended: Cell::default(),
        }
    }

    pub fn is_dead(&self) -> bool {
        let is_lost = self.lease.as_ref().is_some_and(|one| one.lease.is_lost());
        self.mortal.is_closed() || is_lost
    }

    /// As far as it knows.
    pub fn leads(&self) -> bool {
        match &self.lease {
            Some(candidate) => candidate.lease.left_until_deadline().is_some(),
            None => true,
        }
    }

    /// One try to get the Lease, or to renew it.
    pub fn renew(&self) {
        let Some(candidate) = &self.lease else { return };
        candidate.lease.left_until_deadline();
        // It may be the one that waits.
        if let Ok(mut renewer) = candidate.renewer.try_borrow_mut()
            && candidate.is_trying.get()
        {
            candidate.is_trying.set(renewer.renew());
        }
    }

    /// Hands the Lease back.
    pub fn release(&self) {
        if let Some(candidate) = self.lease.as_ref().filter(|_| !self.is_dead()) {
            candidate.lease.release();
        }
    }

    /// It is in the midst of a tick.
    pub fn is_at_work(&self) -> bool {
        self.controllers.try_borrow_mut().is_err()
    }

    /// All controllers, each once, in the order that chance chooses.
    pub fn tick(&self, selection: &Selection, random: &mut Random) -> Vec<Report> {
        let mut controllers = self.controllers.borrow_mut();
        let mut places: Vec<usize> = (0..controllers.len()).collect();
        for end in (1..places.len()).rev() {
            places.swap(end, random.below(end as u64 + 1) as usize);
        }
        let mut reports = Vec::new();
        for place in places {
            if self.is_dead() || !self.leads() {
                break;
            }
            reports.push(controllers[place].tick(&self.apis, selection));
            self.apis.recorder.alongside(&self.apis.kube, || ());
        }
        reports
    }

    /// Every change that it would make now.
    pub fn proposes(&self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for controller in self.controllers.borrow().iter() {
            let proposals = controller.propose(&self.apis, &Selection::All);
            let proposals = proposals.map_err(|error| error.to_string())?;
            let changes = proposals.into_iter().filter(|one| !one.changes.is_empty());
            lines.extend(changes.map(|one| format!("{}: {}", one.object, one.changes)));
        }
        Ok(lines)
    }
}

fn lease_key() -> LeaseKey {
    LeaseKey { namespace: "kube-system".into(), name: "cloud-controller-manager".into() }
}

fn candidate(name: &str, place: &Place) -> Candidate {
    // A process has one for as long as it lives; what is left of it is small.
    let stop: &'static Stop = Box::leak(Box::default());
    let timing = place.timing();
    let client =
        kube::Client::new(place.access(), ccm::http::Proxies::Never, timing, Arc::new(OpenGate));
    let settings = Settings {
        key: lease_key(),
        identity: name.to_owned(),
        lease_seconds: 15,
        second: Duration::from_secs(1),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        write_timeout: timing.write_timeout,
    };
    let lease = Arc::new(Lease::new(client, settings, stop));
    Candidate {
        renewer: RefCell::new(lease.renewer(WaitPolicy::Forever)),
        lease,
        is_trying: Cell::new(true),
    }
}

fn controllers(start: &Start, place: &Place) -> Vec<Box<dyn Controller>> {
    let seconds = Duration::from_secs;
    // A list must live long enough to write something on it, however slow a real machine is.
    let server_cache_max_age = clock::at_least(seconds(10), Duration::from_millis(500));
    let mut controllers: Vec<Box<dyn Controller>> = vec![
        Box::new(NodeController::new(node::Settings {
            sync_interval: seconds(5),
            status_update_frequency: seconds(300),
            server_cache_max_age,
        })),
        Box::new(LifecycleController::new(lifecycle::Settings {
            monitor_period: seconds(5),
            node_max_age: seconds(300),
            server_cache_max_age,
            deletion_guard: true,
        })),
        Box::new(ServiceController::new(service::Settings {
            sync_interval: seconds(5),
            resync_period: if start.resyncs { seconds(1) } else { seconds(300) },
            concurrency: start.concurrency,
            cluster_name: "kubernetes".into(),
            delete_orphans: false,
        })),
    ];
    if place.network().is_some() {
        controllers.push(Box::new(RouteController::new(route::Settings {
            cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
            reconciliation_period: seconds(10),
            server_cache_max_age,
        })));
    }
    controllers
}
