//! Services of type LoadBalancer with load balancers of their own, among load balancers of other clusters, operators,
//! Terraform and Hetzner's controller; with certificates and Primary IPs.

mod alone;
mod end;
mod events;
mod harm;
mod others;
mod ownership;
mod secrets;

use super::{Topic, Verdict, cluster, nodes};
use crate::random::Random;
use ccm::controllers::{Progress, Report};
use ccm::hetzner::load_balancers::SERVICE_UID;
use events::{Event, NAMESPACE, SERVICES, Template};
use harm::{Moment, Seen, has_finalizer};
use others::Other;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Builder, Half, Sandbox};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Hetzner calls about load balancers, and writes, of one Service, from any state to the right one, in calm weather.
const CALLS_TO_SETTLE: usize = 15;
const WRITES_TO_SETTLE: usize = 8;

/// In which all but a Service whose load balancer is stuck must be right.
const ROUNDS_OF_TRIAL: usize = 60;

pub struct Services {
    has_network: bool,
    nodes: u64,
    services: Vec<(String, Template)>,
    others: Vec<Other>,
    /// The number of a Service that has a load balancer of Hetzner's controller.
    of_upstream: Option<u64>,
    /// The number of a Service whose UID another cluster's load balancer carries; has that a target?
    of_copy: Option<(u64, bool)>,
    /// See [`Services::independent`].
    stuck: Option<String>,
    begins_at_rest: bool,
    /// See [`Topic::may_have_wrong_token`].
    wrong_tokens: bool,
    two_at_once: bool,
    seen: Mutex<Seen>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// As they were at the beginning.
    others: BTreeMap<u64, String>,
    certificates: Vec<Value>,
    orphans: BTreeSet<u64>,
    /// A Service's finalizers were removed by force, so that its load balancer may stay.
    is_forced: bool,
    past: end::Past,
    /// Calls before all began to settle in calm weather.
    mark: Option<u64>,
    independent: u64,
}

impl Services {
    /// With two `ccm` at once a load balancer that no Service owns is wanted by one Service at most, as Hetzner's API
    /// knows no condition on a write.
    pub fn of(random: &mut Random, two_at_once: bool) -> Services {
        let count = 1 + random.below(SERVICES);
        let mut template = |n| (format!("s-{n}"), Template::of(random, two_at_once));
        let services = (0..count).map(&mut template).collect();
        Services {
            has_network: random.percent(40),
            nodes: random.below(5),
            services,
            others: Other::all(random),
            of_upstream: random.percent(25).then(|| random.below(SERVICES)),
            of_copy: random.percent(15).then(|| (random.below(count), random.percent(50))),
            stuck: random.percent(30).then(|| format!("s-{}", random.below(count))),
            begins_at_rest: random.percent(60),
            wrong_tokens: random.percent(50),
            two_at_once,
            seen: Mutex::default(),
            memory: Mutex::default(),
        }
    }

    /// Nothing is there, and nothing happens by itself.
    fn none() -> Services {
        Services {
            has_network: false,
            nodes: 0,
            services: Vec::new(),
            others: Vec::new(),
            of_upstream: None,
            of_copy: None,
            stuck: None,
            begins_at_rest: false,
            wrong_tokens: false,
            two_at_once: false,
            seen: Mutex::default(),
            memory: Mutex::default(),
        }
    }

    fn moment<'a>(&'a self, sandbox: &'a Sandbox) -> Moment<'a> {
        Moment::of(sandbox, &self.seen, self.two_at_once)
    }

    fn happen(&self, sandbox: &Sandbox, event: &Event) {
        let mut memory = self.memory.lock().unwrap();
        match event {
            Event::Recreate(..) => memory.is_forced = true,
            Event::Ports(name, _) => drop(memory.past.other_ports.insert(name.clone())),
            _ => {}
        }
        event.happen(sandbox);
    }

    /// An action of this Service's load balancer never ends: all other Services, and one that is added then, reach their
    /// wanted end before `ccm` stops waiting for it. False: the Service has nothing to do, or is blocked.
    fn independent(
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
        // One that is created is held from then on.
        let after = Rule::new(Effect::after(move |_: &Request| hold()));
        let after = after.half(Half::Hetzner).method("POST");
        let rule = sandbox.faults().add(after.path("/v1/load_balancers"));
        let ports = Event::Ports(name.to_owned(), vec![9_000]);
        self.happen(sandbox, &ports);

        let object = format!("service/default/{name}");
        let is_given_up = |reports: &[Report]| {
            let mut failures = reports.iter().flat_map(|report| &report.failures);
            failures.any(|one| one.object == object && one.why.contains("it still runs after"))
        };
        // The action that never ends attaches it to the Network, which serves one at a time.
        let waits_for_network = |reports: &[Report]| {
            let mut failures = reports.iter().flat_map(|report| &report.failures);
            failures.any(|one| one.object != object && one.why.contains("network is being changed"))
        };
        let mut reports = round();
        Event::Add("late".to_owned(), Template::plain()).happen(sandbox);
        let mut outcome = Ok(());
        for _ in 0..ROUNDS_OF_TRIAL {
            outcome = end::is_right_but_for(sandbox, name, &self.memory.lock().unwrap().past);
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
            // It was released, and another Service has it by now.
            if cloud.load_balancer(id)["labels"][SERVICE_UID] != service["metadata"]["uid"] {
                return Ok(false);
            }
        }
        outcome.map(|()| was_running)
    }
}

impl Topic for Services {
    fn needs(&self, builder: Builder) -> Builder {
        match self.has_network {
            true => builder.network("10.0.0.0/16"),
            false => builder,
        }
    }

    fn begin(&self, sandbox: &Sandbox) {
        for n in 0..self.nodes {
            cluster::join(sandbox, &format!("n-{n}"));
        }
        if self.wrong_tokens {
            cluster::join(sandbox, cluster::STAYS);
        }
        others::make_all(sandbox, &self.others);
        secrets::allow(sandbox);
        secrets::make_others(sandbox);
        secrets::set_right(sandbox);
        for (n, (name, template)) in self.services.iter().enumerate() {
            let service = template.make(sandbox, name);
            if self.of_upstream == Some(n as u64) {
                others::make_upstream(sandbox, &service);
                continue;
            }
            if let Some((_, has_target)) = self.of_copy.filter(|(of, _)| *of == n as u64) {
                others::make_copy(sandbox, &service, has_target);
            }
        }
        let mut memory = self.memory.lock().unwrap();
        memory.others = end::others(sandbox);
        memory.certificates = secrets::others(sandbox);
        memory.orphans = end::orphans(sandbox);
        let balancers = sandbox.cloud().load_balancers(sandbox.project());
        let first = balancers.iter().filter_map(|one| Some((one["id"].as_u64()?, end::ports(one))));
        memory.past.first_ports = first.collect();
    }

    fn begins_at_rest(&self) -> bool {
        self.begins_at_rest
    }

    /// In a cluster without nodes a project can't be distinguished from the right one.
    fn may_have_wrong_token(&self) -> bool {
        self.wrong_tokens
    }

    fn chapter_begins(&self, sandbox: &Sandbox) {
        self.moment(sandbox).learn_all();
    }

    fn happens(&self, sandbox: &Sandbox, random: &mut Random, between_ticks: bool) -> String {
        if between_ticks && self.two_at_once {
            // One is a moment behind the other: what it knew, only it can say.
            return "nothing happens".to_owned();
        }
        let event = match between_ticks {
            true => Event::between_ticks(random, self.two_at_once),
            false => Event::of(random, self.two_at_once),
        };
        self.happen(sandbox, &event);
        format!("{event:?}")
    }

    /// What came since the backup has lost its Service, and ports are as they were.
    fn restored(&self, sandbox: &Sandbox) {
        let mut memory = self.memory.lock().unwrap();
        memory.is_forced = true;
        let services = sandbox.cluster().list("services", NAMESPACE);
        let names = services.iter().filter_map(|one| one["metadata"]["name"].as_str());
        memory.past.other_ports.extend(names.map(str::to_owned));
        let balancers = sandbox.cloud().load_balancers(sandbox.project());
        let has_one = |uid: &Value| balancers.iter().any(|one| one["labels"][SERVICE_UID] == *uid);
        let lost = services.iter().filter(|one| !has_finalizer(one));
        let lost = lost.map(|one| &one["metadata"]["uid"]).filter(|uid| has_one(uid));
        let lost = lost.filter_map(Value::as_str).map(str::to_owned);
        memory.past.lost_finalizer.extend(lost);
    }

    fn clear_up(&self, sandbox: &Sandbox) {
        end::certificates_come(sandbox);
        secrets::set_right(sandbox);
        cluster::some_node_is_alive(sandbox);
    }

    fn trial(
        &self,
        sandbox: &Sandbox,
        round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<(), String> {
        if let Some(name) = &self.stuck {
            let was_independent = self.independent(sandbox, name, round)?;
            self.memory.lock().unwrap().independent += u64::from(was_independent);
        }
        self.memory.lock().unwrap().mark = Some(sandbox.calls().mark());
        Ok(())
    }

    fn read(&self, sandbox: &Sandbox, request: &Request) {
        self.moment(sandbox).learn(request);
    }

    fn judge(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let moment = self.moment(sandbox);
        match half {
            Half::Hetzner => Verdict::of(moment.harm_in_cloud(request)),
            Half::Kubernetes if request.path.contains("/services/") => {
                Verdict::of(moment.harm_in_cluster(request))
            }
            Half::Kubernetes => nodes::judge(sandbox, half, request, &Vec::new()),
            Half::Robot => Verdict::Other,
        }
    }

    fn is_right(&self, sandbox: &Sandbox) -> Result<(), String> {
        let memory = self.memory.lock().unwrap();
        end::is_right(sandbox, &memory.past)?;
        // One that was there from the beginning may be adopted.
        let left = end::orphans(sandbox);
        if !memory.is_forced && !left.is_subset(&memory.orphans) {
            return Err(format!("orphans before {:?}, after {left:?}", memory.orphans));
        }
        let others = end::others(sandbox);
        if others != memory.others {
            return Err(format!("others before {:#?}\nafter {others:#?}", memory.others));
        }
        if secrets::others(sandbox) != memory.certificates {
            return Err("other people's certificates are not as they were".into());
        }
        let Some(mark) = memory.mark else {
            return Ok(());
        };
        let calls = sandbox.calls().calls_since(mark);
        let count = |is_it: &dyn Fn(&Call) -> bool| {
            let all = calls.iter().filter(|call| call.half == Half::Hetzner);
            all.filter(|call| is_it(call)).count()
        };
        let calls = count(&|call| call.path.starts_with("/v1/load_balancers"));
        // What is refused for a moment is a call, and changes nothing.
        let is_made = |call: &Call| !matches!(call.status, Some(409 | 423));
        let writes = count(&|call| call.is_write() && is_made(call));
        let services = SERVICES as usize;
        match calls > services * CALLS_TO_SETTLE || writes > services * WRITES_TO_SETTLE {
            true => Err(format!("{calls} calls, {writes} of them writes, to settle")),
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
        let seen = self.seen.lock().unwrap();
        add("adopted", seen.adopted);
        add("released", seen.released_count);
        add("not stopped by a stuck one", self.memory.lock().unwrap().independent);
        counts
    }
}
