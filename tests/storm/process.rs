//! A `ccm` as the daemon runs it, but in one thread: clients of both APIs, all controllers, a Lease, and a limit of
//! writes after which the process is dead.

use crate::library::{Credentials, SandboxAccess, WriteLimit};
use crate::random::Random;
use ccm::cache::Apis;
use ccm::controllers::kubelet_certificates::KubeletCertificates;
use ccm::controllers::lifecycle::{self, LifecycleController};
use ccm::controllers::node::{self, NodeController};
use ccm::controllers::route::{self, RouteController};
use ccm::controllers::service::{self, ServiceController};
use ccm::controllers::{Controller, Report, Selection};
use ccm::daemon::Stop;
use ccm::daemon::lease::{LeaderElection, LeaseSettings, RenewalPauses, Renewer, WaitPolicy};
use ccm::hetzner::load_balancers::{Defaults, Selector};
use ccm::kube::{self, LeaseKey};
use ccm::provider::{Gate, OpenGate, PermittedUse, Refused, Source, Sourced, clock};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

/// The selector of the Primary IPs that Services may claim.
pub const PRIMARY_IP_SELECTOR: &str = "tenants=yes";

/// How a process is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The number of writes after which the process is dead. `None` means that it does not die.
    pub writes: Option<u64>,
    pub robot: Credentials,
    /// Whether the process has the token of another project.
    pub wrong_token: bool,
    /// Whether the process takes part in the leader election.
    pub with_lease: bool,
    /// Whether the process reads what the Lease remembers, as a command does.
    pub reads_lease: bool,
    /// Whether load balancers are compared with every tick, instead of once in some minutes.
    pub resyncs: bool,
    pub concurrency: usize,
    /// How long a server must be off until its node gets the taint `out-of-service`.
    pub out_of_service_after: Option<Duration>,
    /// Whether the process approves certificate requests of kubelets.
    pub approves_certificates: bool,
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
            out_of_service_after: None,
            approves_certificates: false,
        }
    }
}

impl Start {
    pub fn generate(random: &mut Random) -> Start {
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
            out_of_service_after: None,
            approves_certificates: false,
        }
    }
}

pub struct Process {
    pub name: String,
    pub apis: Apis,
    controllers: RefCell<Vec<Box<dyn Controller>>>,
    write_limit: Arc<WriteLimit>,
    lease: Option<Candidate>,
    /// See [`crate::machine::Machine::suspended`].
    pub suspended: Cell<Duration>,
}

struct Candidate {
    lease: Arc<LeaderElection>,
    renewer: RefCell<Renewer>,
    /// Whether the process still tries to get or renew the Lease.
    is_trying: Cell<bool>,
}

/// A gate that lets a write pass while the process lives and leads.
struct CombinedGate(Arc<WriteLimit>, Option<Arc<LeaderElection>>);

impl Gate for CombinedGate {
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
    pub fn new(name: &str, sandbox_access: &SandboxAccess, start: &Start) -> Process {
        let write_limit = WriteLimit::after(start.writes);
        let lease = start.with_lease.then(|| candidate(name, sandbox_access));
        let gate = CombinedGate(
            Arc::clone(&write_limit),
            lease.as_ref().map(|one| Arc::clone(&one.lease)),
        );
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
            true => sandbox_access.other_token.clone(),
            false => sandbox_access.token(),
        };
        let gate: Arc<dyn Gate> = Arc::new(gate);
        let mut apis = sandbox_access.apis(gate, &token, start.robot, Some(defaults));
        apis.concurrent_nodes = start.concurrency;
        if let Some(candidate) = &lease {
            let _ = candidate.lease.cluster.set(Arc::clone(&apis.identity));
        } else if start.reads_lease {
            apis.identity.read_from(lease_key());
        }
        Process {
            name: name.to_owned(),
            apis,
            controllers: RefCell::new(controllers(start, sandbox_access)),
            write_limit,
            lease,
            suspended: Cell::default(),
        }
    }

    pub fn is_dead(&self) -> bool {
        let is_lost = self.lease.as_ref().is_some_and(|one| one.lease.is_lost());
        self.write_limit.is_closed() || is_lost
    }

    /// Whether the process leads, as far as it knows.
    pub fn leads(&self) -> bool {
        match &self.lease {
            Some(candidate) => candidate.lease.left_until_deadline().is_some(),
            None => true,
        }
    }

    /// Tries once to get or to renew the Lease.
    pub fn renew(&self) {
        let Some(candidate) = &self.lease else { return };
        candidate.lease.left_until_deadline();
        // The renewer is borrowed already when the renewal itself waits.
        if let Ok(mut renewer) = candidate.renewer.try_borrow_mut()
            && candidate.is_trying.get()
        {
            candidate.is_trying.set(renewer.renew().is_some());
        }
    }

    /// Releases the Lease.
    pub fn release(&self) {
        if let Some(candidate) = self.lease.as_ref().filter(|_| !self.is_dead()) {
            candidate.lease.release();
        }
    }

    /// Whether the process is in the middle of a tick.
    pub fn is_in_tick(&self) -> bool {
        self.controllers.try_borrow_mut().is_err()
    }

    /// Runs each controller once, in a random order.
    pub fn tick(&self, selection: &Selection, random: &mut Random) -> Vec<Report> {
        let mut controllers = self.controllers.borrow_mut();
        let mut order: Vec<usize> = (0..controllers.len()).collect();
        for end in (1..order.len()).rev() {
            order.swap(end, random.below(end as u64 + 1) as usize);
        }
        let mut reports = Vec::new();
        for index in order {
            if self.is_dead() || !self.leads() {
                break;
            }
            reports.push(controllers[index].tick(&self.apis, selection));
            self.apis.recorder.alongside(&self.apis.kube, || ());
        }
        reports
    }

    /// Returns every change that the process would make now.
    pub fn propose(&self) -> Result<Vec<String>, String> {
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

fn candidate(name: &str, sandbox_access: &SandboxAccess) -> Candidate {
    // A process uses this value until its end. The memory that is leaked is small.
    let stop: &'static Stop = Box::leak(Box::default());
    let timing = sandbox_access.timing();
    let client = kube::KubeClient::new(
        sandbox_access.access(),
        ccm::http::Proxies::Never,
        timing,
        Arc::new(OpenGate),
    );
    let settings = LeaseSettings {
        key: lease_key(),
        identity: name.to_owned(),
        lease_seconds: 15,
        second: Duration::from_secs(1),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        renewal: RenewalPauses::equal(Duration::from_secs(2)),
        write_timeout: timing.write_timeout,
    };
    let lease = Arc::new(LeaderElection::new(client, settings, stop));
    Candidate {
        renewer: RefCell::new(lease.renewer(WaitPolicy::Forever)),
        lease,
        is_trying: Cell::new(true),
    }
}

fn controllers(start: &Start, sandbox_access: &SandboxAccess) -> Vec<Box<dyn Controller>> {
    let seconds = Duration::from_secs;
    // A list must live long enough for a write that rests on it, even when a real machine is slow.
    let server_cache_max_age = clock::at_least(seconds(10), Duration::from_millis(500));
    let mut controllers: Vec<Box<dyn Controller>> = vec![
        Box::new(NodeController::new(node::NodeControllerSettings {
            sync_interval: seconds(5),
            status_update_frequency: seconds(300),
            server_cache_max_age,
        })),
        Box::new(LifecycleController::new(lifecycle::LifecycleSettings {
            monitor_period: seconds(5),
            node_max_age: seconds(300),
            server_cache_max_age,
            deletion_guard: true,
            out_of_service_after: start.out_of_service_after,
        })),
        Box::new(ServiceController::new(service::ServiceSettings {
            sync_interval: seconds(5),
            resync_period: if start.resyncs { seconds(1) } else { seconds(300) },
            concurrency: start.concurrency,
            cluster_name: "kubernetes".into(),
            departing_cordoned: false,
            delete_orphans: false,
        })),
    ];
    if start.approves_certificates {
        controllers.push(Box::new(KubeletCertificates::new(server_cache_max_age)));
    } else if sandbox_access.network().is_some() {
        controllers.push(Box::new(RouteController::new(route::RouteSettings {
            cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
            reconciliation_period: seconds(10),
            server_cache_max_age,
        })));
    }
    controllers
}
