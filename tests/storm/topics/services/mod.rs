//! Services of type LoadBalancer with load balancers of their own, among load balancers of other clusters, operators,
//! Terraform and Hetzner's controller. They have certificates and Primary IPs, too.

mod defaults;
mod end_state;
mod events;
mod foreign;
mod invariants;
mod ownership;
mod rare_cases;
mod secrets;

use super::{Topic, Verdict, cluster, nodes};
use crate::random::Random;
use ccm::controllers::{Progress, Report};
use ccm::hetzner::load_balancers::SERVICE_UID;
use events::{Event, MAX_SERVICES, NAMESPACE, Template};
use foreign::ForeignBalancer;
use invariants::{Checker, History, has_finalizer};
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Builder, Half, Sandbox};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The largest numbers of Hetzner calls about load balancers, and of writes, for one Service from any state to the
/// right one, without faults.
/// When all nodes were replaced, each Service needs a write for each of its three ports, each new target and each old one.
const CALLS_TO_CONVERGE: usize = 15;
const WRITES_TO_CONVERGE: usize = 12;

/// The number of rounds after which all Services must be right, except the one whose load balancer is stuck.
const ROUNDS_OF_INDEPENDENCE: usize = 60;

pub struct Services {
    has_network: bool,
    nodes: u64,
    services: Vec<(String, Template)>,
    others: Vec<ForeignBalancer>,
    /// The number of a Service that has a load balancer of Hetzner's controller.
    of_upstream: Option<u64>,
    /// The number of a Service whose UID another cluster's load balancer has, and whether that load balancer
    /// has a target.
    copied: Option<(u64, bool)>,
    /// The Service whose load balancer gets stuck, see [`Services::check_independence`].
    stuck: Option<String>,
    starts_converged: bool,
    /// See [`Topic::may_have_wrong_token`].
    wrong_tokens: bool,
    two_at_once: bool,
    /// Whether the Namespace of the Services has a default, which is wrong at times.
    has_defaults: bool,
    history: Mutex<History>,
    state: Mutex<StoryState>,
}

#[derive(Default)]
struct StoryState {
    /// The load balancers of other owners at the start.
    others: BTreeMap<u64, String>,
    certificates: Vec<Value>,
    orphans: BTreeSet<u64>,
    /// Whether a Service's finalizers were removed by force, so that its load balancer may stay.
    is_forced: bool,
    past_events: end_state::PastEvents,
    /// The calls that were made before everything began to converge without faults.
    mark: Option<u64>,
    independent: u64,
}

impl Services {
    /// Chooses the topic's objects. When two processes run at once, at most one Service may want a load balancer that
    /// no Service owns, because Hetzner's API has no preconditions for writes.
    pub fn generate(random: &mut Random, two_at_once: bool) -> Services {
        let count = 1 + random.below(MAX_SERVICES);
        let mut template = |n| (format!("s-{n}"), Template::generate(random, two_at_once));
        let services = (0..count).map(&mut template).collect();
        Services {
            has_network: random.percent(40),
            nodes: random.below(5),
            services,
            others: ForeignBalancer::generate_all(random),
            of_upstream: random.percent(25).then(|| random.below(MAX_SERVICES)),
            copied: random.percent(15).then(|| (random.below(count), random.percent(50))),
            stuck: random.percent(30).then(|| format!("s-{}", random.below(count))),
            starts_converged: random.percent(60),
            wrong_tokens: random.percent(50),
            two_at_once,
            has_defaults: random.percent(20),
            history: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Returns the topic without any object.
    fn empty() -> Services {
        Services {
            has_network: false,
            nodes: 0,
            services: Vec::new(),
            others: Vec::new(),
            of_upstream: None,
            copied: None,
            stuck: None,
            starts_converged: false,
            wrong_tokens: false,
            two_at_once: false,
            has_defaults: false,
            history: Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn checker<'a>(&'a self, sandbox: &'a Sandbox) -> Checker<'a> {
        Checker::new(sandbox, &self.history, self.two_at_once)
    }

    fn apply(&self, sandbox: &Sandbox, event: &Event) {
        let mut state = self.state.lock().unwrap();
        match event {
            Event::Recreate(..) => state.is_forced = true,
            Event::Ports(name, _) => drop(state.past_events.other_ports.insert(name.clone())),
            _ => {}
        }
        event.apply(sandbox);
    }

    /// Checks that an action that never ends delays only its own Service. All other Services, and one that is added
    /// then, must be right before `ccm` stops waiting for the action. Returns false when the Service has nothing to do,
    /// or is blocked.
    fn check_independence(
        &self,
        sandbox: &Sandbox,
        name: &str,
        round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<bool, String> {
        let (cloud, project) = (sandbox.cloud(), sandbox.project());
        let Some(service) = sandbox.cluster().get("services", NAMESPACE, name) else {
            return Ok(false);
        };
        let uid = service["metadata"]["uid"].clone();
        let held: Arc<Mutex<Option<u64>>> = Arc::default();
        let hold = {
            let (cloud, held) = (Arc::clone(cloud), Arc::clone(&held));
            move || {
                let mut all = cloud.load_balancers(project).into_iter();
                let own = all.find(|one| one["labels"][SERVICE_UID] == uid);
                if let Some(id) = own.and_then(|one| one["id"].as_u64()) {
                    cloud.hold_load_balancer(id, true);
                    *held.lock().unwrap() = Some(id);
                }
            }
        };
        hold();
        // A load balancer that is created from now on is held, too.
        let after = Rule::new(Effect::after(move |_: &Request| hold()));
        let after = after.half(Half::Hetzner).method("POST");
        let rule = sandbox.faults().add(after.path("/v1/load_balancers"));
        let ports = Event::Ports(name.to_owned(), vec![9_000]);
        self.apply(sandbox, &ports);

        let object = format!("service/default/{name}");
        let is_given_up = |reports: &[Report]| {
            let mut failures = reports.iter().flat_map(|report| &report.failures);
            failures.any(|one| {
                one.object == object
                    && one.why.contains("the cloud's action for this change still runs after")
            })
        };
        // The action that never ends attaches the load balancer to the Network, which allows one change at a time.
        let waits_for_network = |reports: &[Report]| {
            let mut failures = reports.iter().flat_map(|report| &report.failures);
            failures.any(|one| one.object != object && one.why.contains("network is being changed"))
        };
        let mut reports = round();
        Event::Add("late".to_owned(), Template::plain()).apply(sandbox);
        let mut outcome = Ok(());
        for _ in 0..ROUNDS_OF_INDEPENDENCE {
            outcome = end_state::check_end_state_except(
                sandbox,
                name,
                &self.state.lock().unwrap().past_events,
            );
            if outcome.is_ok() || is_given_up(&reports) {
                break;
            }
            reports = round();
            if waits_for_network(&reports) {
                outcome = Ok(());
                break;
            }
        }
        let was_running = reports.iter().any(|report| report.has(Progress::Unfinished));
        let outcome =
            outcome.map_err(|why| format!("it waited for Service {name}: {why}\n{reports:#?}"));
        sandbox.faults().remove(rule);
        let held = *held.lock().unwrap();
        if let Some(id) = held {
            cloud.hold_load_balancer(id, false);
            // The load balancer was released, and another Service has it now.
            if cloud.load_balancer(id)["labels"][SERVICE_UID] != service["metadata"]["uid"] {
                return Ok(false);
            }
        }
        outcome.map(|()| was_running)
    }
}

impl Topic for Services {
    fn configure(&self, builder: Builder) -> Builder {
        match self.has_network {
            true => builder.network("10.0.0.0/16"),
            false => builder,
        }
    }

    fn set_up(&self, sandbox: &Sandbox) {
        for n in 0..self.nodes {
            cluster::join(sandbox, &format!("n-{n}"));
        }
        if self.wrong_tokens {
            cluster::join(sandbox, cluster::PERMANENT_NODE);
        }
        foreign::make_all(sandbox, &self.others);
        if self.has_defaults {
            defaults::allow_and_set(sandbox);
        }
        secrets::allow_reading(sandbox);
        secrets::make_foreign(sandbox);
        secrets::repair(sandbox);
        for (n, (name, template)) in self.services.iter().enumerate() {
            let service = template.make(sandbox, name);
            if self.of_upstream == Some(n as u64) {
                foreign::make_upstream(sandbox, &service);
                continue;
            }
            if let Some((_, has_target)) = self.copied.filter(|(of, _)| *of == n as u64) {
                foreign::make_copy(sandbox, &service, has_target);
            }
        }
        let mut state = self.state.lock().unwrap();
        state.others = end_state::foreign_balancers(sandbox);
        state.certificates = secrets::foreign_certificates(sandbox);
        state.orphans = end_state::orphans(sandbox);
        let balancers = sandbox.cloud().load_balancers(sandbox.project());
        let first =
            balancers.iter().filter_map(|one| Some((one["id"].as_u64()?, end_state::ports(one))));
        state.past_events.first_ports = first.collect();
    }

    fn starts_converged(&self) -> bool {
        self.starts_converged
    }

    fn namespace_defaults(&self) -> bool {
        self.has_defaults
    }

    /// In a cluster without nodes another project can't be distinguished from the right one.
    fn may_have_wrong_token(&self) -> bool {
        self.wrong_tokens
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        self.checker(sandbox).record_state();
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, between_ticks: bool) -> String {
        if between_ticks && self.two_at_once {
            // One process is a moment behind the other, and only the process itself can say what it knew.
            return "nothing happens".to_owned();
        }
        let mut said = String::new();
        if self.has_defaults && random.percent(20) {
            said = defaults::change(sandbox, random) + "; ";
        }
        let event = match between_ticks {
            true => Event::between_ticks(random, self.two_at_once),
            false => Event::generate(random, self.two_at_once),
        };
        self.apply(sandbox, &event);
        format!("{said}{event:?}")
    }

    /// After a restore, load balancers that were created since the backup have lost their Service, and ports are
    /// as they were.
    fn restored(&self, sandbox: &Sandbox) {
        let mut state = self.state.lock().unwrap();
        state.is_forced = true;
        let services = sandbox.cluster().list("services", NAMESPACE);
        let names = services.iter().filter_map(|one| one["metadata"]["name"].as_str());
        state.past_events.other_ports.extend(names.map(str::to_owned));
        let balancers = sandbox.cloud().load_balancers(sandbox.project());
        let has_one = |uid: &Value| balancers.iter().any(|one| one["labels"][SERVICE_UID] == *uid);
        let lost = services.iter().filter(|one| !has_finalizer(one));
        let lost = lost.map(|one| &one["metadata"]["uid"]).filter(|uid| has_one(uid));
        let lost = lost.filter_map(Value::as_str).map(str::to_owned);
        state.past_events.lost_finalizer.extend(lost);
    }

    fn repair(&self, sandbox: &Sandbox) {
        end_state::issue_failed_certificates(sandbox);
        if self.has_defaults {
            defaults::set(sandbox, defaults::RIGHT);
        }
        secrets::repair(sandbox);
        cluster::ensure_existing_server(sandbox);
    }

    fn extra_check(
        &self,
        sandbox: &Sandbox,
        round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<(), String> {
        if let Some(name) = &self.stuck {
            let was_independent = self.check_independence(sandbox, name, round)?;
            self.state.lock().unwrap().independent += u64::from(was_independent);
        }
        self.state.lock().unwrap().mark = Some(sandbox.calls().mark());
        Ok(())
    }

    fn before_read(&self, sandbox: &Sandbox, request: &Request) {
        self.checker(sandbox).record_read(request);
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let checker = self.checker(sandbox);
        match half {
            Half::Hetzner => {
                let of_defaults = || checker.violation_of_default(request);
                let of_defaults = self.has_defaults.then(of_defaults).flatten();
                Verdict::from_violation(of_defaults.or_else(|| checker.violation_in_cloud(request)))
            }
            Half::Kubernetes if request.path.contains("/services/") => {
                Verdict::from_violation(checker.violation_in_cluster(request))
            }
            Half::Kubernetes => nodes::check_write(sandbox, half, request, &Vec::new()),
            Half::Robot => Verdict::Unrelated,
        }
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let state = self.state.lock().unwrap();
        end_state::check_end_state(sandbox, &state.past_events)?;
        // A load balancer that was an orphan from the start may have been adopted.
        let left = end_state::orphans(sandbox);
        if !state.is_forced && !left.is_subset(&state.orphans) {
            return Err(format!("orphans before {:?}, after {left:?}", state.orphans));
        }
        let others = end_state::foreign_balancers(sandbox);
        if others != state.others {
            return Err(format!("others before {:#?}\nafter {others:#?}", state.others));
        }
        if secrets::foreign_certificates(sandbox) != state.certificates {
            return Err("other people's certificates are not as they were".into());
        }
        let Some(mark) = state.mark else {
            return Ok(());
        };
        let calls = sandbox.calls().calls_since(mark);
        let count = |is_it: &dyn Fn(&Call) -> bool| {
            let all = calls.iter().filter(|call| call.half == Half::Hetzner);
            all.filter(|call| is_it(call)).count()
        };
        let calls = count(&|call| call.path.starts_with("/v1/load_balancers"));
        // A write that is refused for a moment counts as a call, but changes nothing.
        let is_made = |call: &Call| !matches!(call.status, Some(409 | 423));
        let writes = count(&|call| call.is_write() && is_made(call));
        let services = MAX_SERVICES as usize;
        match calls > services * CALLS_TO_CONVERGE || writes > services * WRITES_TO_CONVERGE {
            true => Err(format!("{calls} calls, {writes} of them writes, to converge")),
            false => Ok(()),
        }
    }

    fn counts(&self, sandbox: &Sandbox) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        let mut add = |what, number| *counts.entry(what).or_default() += number;
        for call in sandbox.calls().calls() {
            if call.half != Half::Hetzner {
                continue;
            }
            let is = |method: &str, end: &str| call.method == method && call.path.ends_with(end);
            let is_made = call.status.is_some_and(|status| status < 300);
            let what = match () {
                () if matches!(call.status, Some(409 | 423)) => "changes refused for a moment",
                () if !is_made => continue,
                () if is("POST", "/v1/load_balancers") => {
                    let body = call.json().unwrap_or_default();
                    add("created with a Primary IP", u64::from(!body["public_net"].is_null()));
                    "load balancers created"
                }
                () if is("POST", "/v1/certificates") => "certificates ordered or uploaded",
                () if is("DELETE", "") && call.path.starts_with("/v1/certificates/") => {
                    "certificates deleted"
                }
                () if is("DELETE", "") => "load balancers deleted",
                () if is("PUT", "") => "load balancers renamed or labelled",
                () if is("POST", "/remove_target") => "targets removed",
                () => continue,
            };
            add(what, 1);
        }
        add("stories with defaults of a Namespace", u64::from(self.has_defaults));
        let history = self.history.lock().unwrap();
        add("adopted", history.adopted);
        add("released", history.released_count);
        add("not stopped by a stuck one", self.state.lock().unwrap().independent);
        counts
    }
}
