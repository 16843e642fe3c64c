//! One story: what happens to a cluster and its project while `ccm` starts, works and dies, all chosen by a seed.
//!
//! A story consists of phases, each with its faults and its processes. After the last phase the faults end, a
//! last `ccm` works until it converges, and then all objects must be as they should be. Every write is checked
//! against the invariants.

use crate::faults::Faults;
use crate::library::{SandboxAccess, see_one_server};
use crate::log_capture;
use crate::machine::Machine;
use crate::process::{Process, Start};
use crate::random::Random;
use crate::topics::{
    Topic, Verdict, certificates, foreign_nodes, nodes, pods, replace, routes, services, shared,
    targets, types, zones,
};
use allocation_counter::{measure, opt_out};
use ccm::controllers::{Report, Selection};
use ccm::provider::clock;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The number of rounds in which everything must have converged.
const ROUNDS_AT_MOST: usize = 40;

/// One story in this many runs over real TCP and TLS, in real time that is scaled.
pub const OVER_SOCKETS: u64 = 100;

/// How many rounds a program makes at most until it is killed.
const ROUNDS_OF_A_PROGRAM: usize = 70;

/// The time between two rounds of the controllers.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// The time between two rounds where only the longest period matters, which is five minutes.
const LONG_INTERVAL: Duration = Duration::from_secs(60);

/// The time after which everything that was used up is available again. The Cloud API's calls of an hour
/// take the longest.
const RECOVERY_TIME: Duration = Duration::from_secs(3700);

/// The limits of calls in one round of all controllers, and for one object in a round, when answers get lost and
/// calls are repeated.
const CALLS_OF_A_ROUND: usize = 60;
const CALLS_OF_AN_OBJECT: usize = 14;

/// The limit of a process's memory, and the limit of its growth while nothing changes. The growth is measured over
/// several periods with this number of rounds each.
const MEMORY_AT_MOST: u64 = 2 << 20;
const MORE_MEMORY_AT_MOST: i64 = 32 << 10;
const IDLE_ROUNDS: usize = 10;
const IDLE_PERIODS: usize = 3;

/// How long a story may compute, in real time. A story takes some 30 ms, and a second on a busy machine. A story that
/// takes longer has a plan whose cost grows faster than the cluster.
const TIME_AT_MOST: Duration = Duration::from_secs(60);

/// How often things happened in stories.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub stories: usize,
    pub calls: usize,
    pub faults: usize,
    pub writes: usize,
    pub processes: usize,
    pub died: usize,
    pub pauses: usize,
    pub events: usize,
    pub simulated: Duration,
    /// The largest memory that a process had at any time, in bytes.
    pub memory: u64,
    /// What the topics count.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Why a story failed, and all that is known about it.
#[derive(Debug)]
pub struct FailedStory {
    pub why: String,
    /// The name and the text of each file.
    pub records: Vec<(&'static str, String)>,
}

/// Runs the story of this seed. The result is the same each time.
pub fn run(seed: u64) -> Result<Stats, FailedStory> {
    // The log of a story is written when the story was requested by its seed.
    let is_shown = std::env::var("CCM_TEST_SEED").is_ok_and(|chosen| chosen == seed.to_string());
    let machine = Machine::new(seed, seed.is_multiple_of(OVER_SOCKETS));
    if is_shown {
        log_capture::start(machine.time());
    }
    let mut random = Random::new(seed);
    let two_at_once = random.percent(25);
    let topic = topic(&mut random, two_at_once, machine.is_real());
    let story = Story::new(Rc::clone(&machine), topic);
    let begun = Instant::now();
    let run = std::panic::AssertUnwindSafe(|| story.run(&mut random, two_at_once));
    let outcome = std::panic::catch_unwind(run);
    let outcome = outcome.unwrap_or_else(|_| Err("it panicked, see above".into()));
    let outcome = outcome.and_then(|()| match begun.elapsed() > TIME_AT_MOST {
        true if !machine.is_real() => Err(format!("it took {:?} to compute", begun.elapsed())),
        _ => Ok(()),
    });
    machine.pause_randomly(0, None);
    machine.set_others(None);
    match outcome {
        Ok(()) if !is_shown => Ok(story.stats()),
        outcome => {
            let failed = story.failed(outcome.err().unwrap_or_default());
            crate::write_records(seed, &failed);
            match failed.why.is_empty() {
                true => Ok(story.stats()),
                false => Err(failed),
            }
        }
    }
}

/// Chooses the topic of a story. `two_at_once` means that two processes may run at the same time. `is_real` means that
/// the story runs over sockets. With `CCM_TEST_TOPIC` all stories have the topic of this name.
fn topic(random: &mut Random, two_at_once: bool, is_real: bool) -> Arc<dyn Topic> {
    let topics = [
        (10, "routes"),
        (25, "shared"),
        (20, "services"),
        (3, "replace"),
        (4, "zones"),
        (4, "certificates"),
        (5, "foreign-nodes"),
        (13, "nodes"),
        (5, "pods"),
        (7, "targets"),
        (4, "types"),
    ];
    let mut number = random.below(100);
    let by_share = topics.iter().find(|(share, _)| {
        let is_it = number < *share;
        number = number.saturating_sub(*share);
        is_it
    });
    let asked = std::env::var("CCM_TEST_TOPIC").unwrap_or_default();
    let name = by_share.map_or("", |(_, name)| name);
    match if asked.is_empty() { name } else { &asked } {
        "routes" => Arc::new(routes::Routes::generate(random)),
        "shared" => Arc::new(shared::Shared::generate(random, two_at_once, is_real)),
        "services" => Arc::new(services::Services::generate(random, two_at_once)),
        "certificates" => Arc::new(certificates::Certificates::generate(random)),
        "foreign-nodes" => Arc::new(foreign_nodes::ForeignTargets::generate(random)),
        "nodes" => Arc::new(nodes::Nodes::generate(random, two_at_once, is_real)),
        "pods" => Arc::new(pods::Pods::generate(random)),
        "replace" => Arc::new(replace::Replacements::generate(random)),
        "zones" => Arc::new(zones::Zones::generate(random)),
        "types" => Arc::new(types::Types::generate(random)),
        "targets" => Arc::new(targets::Targets::generate(random)),
        other => panic!("there is no topic {other:?}"),
    }
}

pub struct Story {
    sandbox_access: SandboxAccess,
    pub machine: Rc<Machine>,
    pub sandbox: Arc<Sandbox>,
    topic: Arc<dyn Topic>,
    violations: Arc<Mutex<Vec<String>>>,
    /// What happened, each with its time.
    log: RefCell<Vec<(Duration, String)>>,
    lease_check: Arc<Mutex<LeaseCheck>>,
    stats: RefCell<Stats>,
    /// The simulated clocks of this thread and of the APIs.
    _simulated: Option<(clock::SimulationGuard, sandbox::time::Simulated)>,
}

/// The check that only the leader writes.
#[derive(Debug, Default)]
struct LeaseCheck {
    /// Whether all processes that write take part in the leader election.
    is_required: bool,
    /// The name of the process that runs now.
    running: String,
}

impl Story {
    /// Creates a story in which nothing has happened yet.
    pub fn new(machine: Rc<Machine>, topic: Arc<dyn Topic>) -> Rc<Story> {
        let simulated = (!machine.is_real()).then(|| {
            let of_apis = sandbox::time::simulate(machine.time());
            (clock::simulate(machine.clone()), of_apis)
        });
        let builder = Sandbox::builder().nodes(0).heartbeats(false);
        let builder = match machine.is_real() {
            true => builder.scale(machine.scale()),
            false => builder.in_memory(),
        };
        let sandbox = Arc::new(topic.configure(builder).start());
        machine.connect(&sandbox);
        let mut sandbox_access = match machine.is_real() {
            true => SandboxAccess::new(&sandbox),
            false => SandboxAccess::in_memory(&sandbox),
        };
        sandbox_access.foreign_nodes = topic.foreign_nodes();
        sandbox_access.namespace_defaults = topic.namespace_defaults();
        Rc::new(Story {
            sandbox_access,
            machine,
            topic,
            violations: Arc::default(),
            log: RefCell::default(),
            lease_check: Arc::default(),
            stats: RefCell::default(),
            sandbox,
            _simulated: simulated,
        })
    }

    fn run(self: &Rc<Self>, random: &mut Random, two_at_once: bool) -> Result<(), String> {
        let sandbox = &*self.sandbox;
        self.topic.set_up(sandbox);
        if sandbox.serves(Half::Robot) {
            see_one_server(sandbox);
        }
        let mut rounds = 0;
        let mut backup = None;
        let starts_converged = self.topic.starts_converged();
        if starts_converged {
            self.watch_requests();
            self.converge(random)?;
            sandbox.faults().clear();
        }
        let mark = sandbox.calls().mark();
        for phase in 0..1 + random.below(3) {
            if phase > 0 || starts_converged {
                for _ in 0..random.below(6) {
                    self.apply_event(random, false);
                }
            }
            match backup.take() {
                None if random.percent(12) => backup = Some(sandbox.cluster().backup()),
                Some(backup) => {
                    sandbox.cluster().restore(&backup);
                    self.topic.restored(sandbox);
                    self.log_line("the cluster is restored from a backup".into());
                }
                None => {}
            }
            let mut faults = Faults::generate(random, two_at_once);
            if self.machine.is_real() {
                faults = faults.without_timeouts();
            }
            self.log_line(format!("{faults:?}"));
            faults.inject(sandbox);
            self.topic.inject_faults(sandbox, random);
            self.watch_requests();
            for _ in 0..1 + random.below(3) {
                let two_at_once = two_at_once && random.percent(70);
                rounds += self.run_processes(random, two_at_once);
            }
            faults.remove(sandbox);
            self.machine.pass(Duration::from_secs(random.below(600)));
        }
        self.no_violations()?;
        self.check_call_limits(mark, rounds)?;
        self.machine.pass(RECOVERY_TIME);
        sandbox.robot().end_block();
        self.topic.repair(sandbox);
        self.watch_requests();
        self.log_line("the faults have ended".into());
        if random.percent(10) && !self.machine.is_real() {
            self.check_recovery(random)?;
        }
        if !self.machine.is_real() {
            self.run_extra_check(random)?;
        }
        for _ in 0..2 {
            self.converge(random)?;
            // All actions in the cloud that dead processes have started end in this time.
            self.machine.pass(Duration::from_secs(300));
        }
        self.no_violations()?;
        self.topic.check_end_state(sandbox)?;
        if !two_at_once {
            // With two processes, the second write may have been made by the other process.
            self.check_no_repeated_write()?;
        }
        self.check_no_write(random)
    }

    fn apply_event(&self, random: &mut Random, between_ticks: bool) {
        let line = match random.percent(3) {
            true => {
                self.sandbox_access.rotate_token(&self.sandbox);
                "the project's token is another one".to_owned()
            }
            false => self.topic.apply_event(&self.sandbox, random, between_ticks),
        };
        self.stats.borrow_mut().events += 1;
        self.log_line(line);
    }

    fn log_line(&self, line: String) {
        self.log.borrow_mut().push((self.machine.passed(), line));
    }

    /// Runs one process, or two at the same time, with or without a Lease, until it dies or ends. Returns how many
    /// rounds the controllers made.
    fn run_processes(self: &Rc<Self>, random: &mut Random, two_at_once: bool) -> usize {
        if self.machine.is_real() && random.percent(60) {
            let line =
                crate::program::run_until_killed(&self.sandbox, &self.sandbox_access, random);
            self.log_line(line);
            return ROUNDS_OF_A_PROGRAM;
        }
        let mut start = self.generate_start(random);
        let more_rounds = self.topic.more_rounds(random);
        // A process that works for long must not die after a few writes.
        start.writes = start.writes.filter(|_| more_rounds == 0 || self.topic.may_die_late());
        // A process that leads for 30 ms proves nothing.
        start.with_lease &= !self.machine.is_real();
        let mut processes = vec![self.process(&start)];
        if two_at_once {
            let start = Start { with_lease: start.with_lease, ..self.generate_start(random) };
            processes.push(self.process(&start));
        }
        self.lease_check.lock().unwrap().is_required = start.with_lease;
        if random.percent(30) && !self.machine.is_real() {
            self.pause_now_and_then(random, &processes);
        }
        let mut count = 0;
        for _ in 0..1 + random.below(4) + more_rounds {
            let selection = match random.percent(30) {
                true => Selection::All,
                false => Selection::Due,
            };
            for one in &processes {
                count += usize::from(!one.is_dead());
                self.run_as(one, || one.tick(&selection, random));
                if random.percent(40) {
                    self.apply_event(random, true);
                }
            }
            self.machine.pass(INTERVAL);
        }
        self.machine.pause_randomly(0, None);
        let mut stats = self.stats.borrow_mut();
        for one in processes {
            stats.processes += 1;
            stats.died += usize::from(one.is_dead());
            if random.percent(50) {
                one.release();
            }
        }
        self.lease_check.lock().unwrap().is_required = false;
        // The rounds that the other process made while this one was paused are included.
        count + 2 * self.machine.pauses.get() as usize
    }

    /// Pauses processes at random moments. A paused process continues later with what it knew. The others work
    /// meanwhile, and one of them may lead when the process continues.
    fn pause_now_and_then(self: &Rc<Self>, random: &mut Random, processes: &[Rc<Process>]) {
        let pauses = *random.pick(&[1, 3, 10]);
        let story = Rc::downgrade(self);
        let processes: Vec<_> = processes.iter().map(Rc::downgrade).collect();
        let random = RefCell::new(Random::new(random.next()));
        let meanwhile = move |is_end: bool| {
            let story = story.upgrade();
            let living = processes.iter().filter_map(std::rc::Weak::upgrade);
            for other in living.filter(|other| !other.is_in_tick()) {
                let work = |story: Rc<Story>| {
                    story.run_as(&other, || {
                        // When the pause begins, the other process only looks who leads.
                        is_end.then(|| other.tick(&Selection::Due, &mut random.borrow_mut()))
                    })
                };
                story.clone().map(work);
            }
        };
        self.machine.pause_randomly(pauses, Some(Rc::new(meanwhile)));
    }

    fn generate_start(&self, random: &mut Random) -> Start {
        let mut start = Start::generate(random);
        start.wrong_token &= self.topic.may_have_wrong_token();
        start.with_lease |= self.topic.needs_lease();
        start.out_of_service_after = self.topic.out_of_service_after();
        start
    }

    pub fn process(&self, start: &Start) -> Rc<Process> {
        let name = format!("ccm-{}", 1 + self.log.borrow().len());
        let start = Start {
            reads_lease: self.topic.needs_lease(),
            approves_certificates: self.topic.approves_certificates(),
            ..start.clone()
        };
        self.log_line(format!("{name} starts: {start:?}"));
        self.topic.process_starts(&name);
        *self.sandbox_access.zone_label.lock().unwrap() = self.topic.zone_label();
        Rc::new(Process::new(&name, &self.sandbox_access, &start))
    }

    /// Runs work of a process. The process renews its Lease before, and while it waits.
    fn run_as<T>(&self, process: &Rc<Process>, work: impl FnOnce() -> T) -> T {
        let renewer = Rc::downgrade(process);
        let others = move || {
            if let Some(process) = renewer.upgrade() {
                process.renew();
            }
        };
        let others = self.machine.set_others(Some(Rc::new(others)));
        let name = process.name.clone();
        self.topic.process_works(&name);
        let before = std::mem::replace(&mut self.lease_check.lock().unwrap().running, name);
        let suspended = self.machine.suspended.replace(process.suspended.get());
        process.renew();
        let done = work();
        process.suspended.set(self.machine.suspended.replace(suspended));
        self.topic.process_works(&before);
        self.lease_check.lock().unwrap().running = before;
        self.machine.set_others(others);
        done
    }

    /// Checks that a `ccm` that ran while there were faults sets everything right afterwards, without a comparison
    /// of all objects.
    fn check_recovery(self: &Rc<Self>, random: &mut Random) -> Result<(), String> {
        let start = Start { resyncs: false, ..Start::default() };
        let faults = Faults::generate(random, false);
        self.log_line(format!("{faults:?}"));
        faults.inject(&self.sandbox);
        self.watch_requests();
        let mut outcome = Ok(());
        self.with_bounded_memory(|| {
            let process = self.process(&start);
            for _ in 0..3 {
                process.tick(&Selection::Due, random);
                self.machine.pass(INTERVAL);
            }
            opt_out(|| {
                faults.remove(&self.sandbox);
                self.watch_requests();
                self.log_line("the faults have ended, and the process continues".into());
                self.machine.pass(RECOVERY_TIME);
                self.topic.repair(&self.sandbox);
            });
            for _ in 0..ROUNDS_AT_MOST {
                process.tick(&Selection::Due, random);
                opt_out(|| outcome = self.topic.check_end_state(&self.sandbox));
                if outcome.is_ok() {
                    break;
                }
                self.machine.pass(LONG_INTERVAL);
            }
            outcome.map_err(|why| format!("a process that goes on: {why}"))
        })
    }

    /// Runs the topic's extra check with a long-lived `ccm`, which looks only at what has changed.
    fn run_extra_check(&self, random: &mut Random) -> Result<(), String> {
        let start = Start { resyncs: false, ..Start::default() };
        let process = self.process(&start);
        let mut round = || {
            let reports = process.tick(&Selection::Due, random);
            self.machine.pass(INTERVAL);
            reports
        };
        self.topic.extra_check(&self.sandbox, &mut round)
    }

    /// Runs a new `ccm` until it has nothing left to do.
    pub fn converge(&self, random: &mut Random) -> Result<(), String> {
        self.with_bounded_memory(|| self.converge_process(random))
    }

    /// Runs a process in this thread, and checks that its memory stays within its limit.
    fn with_bounded_memory(&self, run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let mut outcome = Ok(());
        let used = measure(|| outcome = run());
        outcome?;
        let mut stats = self.stats.borrow_mut();
        stats.memory = stats.memory.max(used.bytes_max);
        match used.bytes_max > MEMORY_AT_MOST {
            true => Err(format!("a process had {} kB of memory", used.bytes_max >> 10)),
            false => Ok(()),
        }
    }

    fn converge_process(&self, random: &mut Random) -> Result<(), String> {
        let process = self.process(&Start::default());
        let mut before = Vec::new();
        for round in 0..ROUNDS_AT_MOST {
            let reports = process.tick(&Selection::All, random);
            let failures = failures(&reports);
            // A change that failed by itself, as an action may, succeeds in the next round. In the first round a
            // controller does not know yet what another controller reads.
            let is_lasting = round > 0 && (failures.is_empty() || failures == before);
            if reports.iter().all(has_converged) && is_lasting {
                return Ok(());
            }
            before = failures;
            self.machine.pass(INTERVAL);
        }
        let reports = process.tick(&Selection::All, random);
        Err(format!("it does not converge: {reports:#?}"))
    }

    /// Checks that a new `ccm` finds nothing to do and writes nothing.
    fn check_no_write(&self, random: &mut Random) -> Result<(), String> {
        let process = self.process(&Start::default());
        let left = process.propose()?;
        if !left.is_empty() {
            return Err(format!("planned again: {left:#?}"));
        }
        let mark = self.sandbox.calls().mark();
        for selection in [Selection::All, Selection::Due] {
            process.tick(&selection, random);
        }
        if random.percent(10) && !self.machine.is_real() {
            self.check_no_memory_leak(&process, random)?;
        }
        let calls = self.sandbox.calls().calls_since(mark);
        let is_event = |call: &Call| call.path.contains("/events");
        match calls.iter().find(|call| call.is_write() && !is_event(call)) {
            None => Ok(()),
            Some(call) => Err(format!("a write when nothing differs: {call}")),
        }
    }

    /// Checks that a process has as much memory as before after rounds in which nothing changes.
    fn check_no_memory_leak(&self, process: &Process, random: &mut Random) -> Result<(), String> {
        let mut rest = || {
            for _ in 0..IDLE_ROUNDS {
                process.tick(&Selection::Due, random);
                self.machine.pass(LONG_INTERVAL);
            }
        };
        // The last answers are kept in memory, and not every list is read in each round. So the smallest value of
        // several periods counts.
        let mut memory = 0;
        let mut least = || {
            let each = [(); IDLE_PERIODS].map(|()| {
                memory += measure(&mut rest).bytes_current;
                memory
            });
            each.into_iter().min().unwrap_or_default()
        };
        let before = least();
        let more = least() - before;
        match more > MORE_MEMORY_AT_MOST {
            true => Err(format!("{more} bytes more of memory, and nothing had changed")),
            false => Ok(()),
        }
    }

    /// Checks that no call is repeated without a limit.
    fn check_call_limits(&self, mark: u64, rounds: usize) -> Result<(), String> {
        let calls = self.sandbox.calls().calls_since(mark);
        let (cluster, cloud) = (self.sandbox.cluster(), self.sandbox.cloud());
        let objects = cluster.list("nodes", None).len() + cluster.list("services", None).len();
        let pages = 1 + cloud.servers(self.sandbox.project()).len() / 50;
        let allowed =
            (1 + rounds) * (CALLS_OF_A_ROUND * pages + CALLS_OF_AN_OBJECT * (8 + objects));
        for half in [Half::Hetzner, Half::Kubernetes, Half::Robot] {
            let calls = calls.iter().filter(|call| call.half == half).count();
            if calls > allowed {
                return Err(format!(
                    "{calls} calls of {half} in {rounds} rounds, {allowed} are allowed"
                ));
            }
        }
        Ok(())
    }

    /// Checks that no write is repeated at once after its answer was lost. Such a write may have been carried out, so
    /// the present state must be read before the write is made again.
    fn check_no_repeated_write(&self) -> Result<(), String> {
        let calls = self.sandbox.calls().calls();
        let is_about_objects =
            |call: &Call| !["/events", "/leases"].iter().any(|part| call.path.contains(part));
        for half in [Half::Hetzner, Half::Kubernetes] {
            let calls = calls.iter().filter(|call| call.half == half && is_about_objects(call));
            let calls: Vec<&Call> = calls.collect();
            let is_again = |two: &&[&Call]| {
                let same =
                    |call: &Call| (call.method.clone(), call.path.clone(), call.body.clone());
                two[0].is_write() && two[0].status.is_none() && same(two[0]) == same(two[1])
            };
            if let Some(two) = calls.windows(2).find(is_again) {
                return Err(format!("a write is repeated whose answer was lost: {}", two[1]));
            }
        }
        Ok(())
    }

    /// Checks every request from now on, until the faults are removed.
    pub fn watch_requests(&self) {
        self.topic.phase_starts(&self.sandbox);
        let (topic, sandbox) = (Arc::clone(&self.topic), Arc::downgrade(&self.sandbox));
        let read = Effect::before(move |request: &Request| {
            if let Some(sandbox) = sandbox.upgrade() {
                topic.before_read(&sandbox, request);
            }
        });
        let faults = self.sandbox.faults();
        faults.add(Rule::new(read).half(Half::Kubernetes).method("GET"));
        for half in [Half::Hetzner, Half::Kubernetes, Half::Robot] {
            let (topic, sandbox) = (Arc::clone(&self.topic), Arc::downgrade(&self.sandbox));
            let (violations, lease_check) =
                (Arc::clone(&self.violations), Arc::clone(&self.lease_check));
            let look = Effect::before(move |request: &Request| {
                let Some(sandbox) = sandbox.upgrade() else {
                    return;
                };
                let verdict = check_write(&*topic, &sandbox, half, request, &lease_check);
                if let Verdict::Violation(why) = verdict {
                    let line = format!("{} {}: {why}", request.method, request.path);
                    violations.lock().unwrap().push(line);
                }
            });
            faults.add(Rule::new(look).half(half).writes());
        }
    }

    pub fn no_violations(&self) -> Result<(), String> {
        let violations = self.violations.lock().unwrap();
        match violations.is_empty() {
            true => Ok(()),
            false => Err(violations.join("\n")),
        }
    }

    fn stats(&self) -> Stats {
        let mut stats = self.stats.borrow().clone();
        let is_fault = |fault: &String| !fault.split(", ").all(|effect| effect == "hook before");
        for call in self.sandbox.calls().calls() {
            stats.calls += 1;
            stats.writes += usize::from(call.is_write());
            stats.faults += usize::from(call.fault.as_ref().is_some_and(is_fault));
        }
        stats.stories = 1;
        stats.counts = self.topic.counts(&self.sandbox);
        stats.pauses = self.machine.pauses.get() as usize;
        stats.simulated = self.machine.passed();
        stats
    }

    fn failed(&self, why: String) -> FailedStory {
        let at = |time: Duration| format!("{:>10.3}", time.as_secs_f64());
        let mut log = self.log.borrow().clone();
        log.extend(log_capture::take_lines());
        log.sort_by_key(|(time, _)| *time);
        let log = log.iter().map(|(time, line)| format!("{} {line}\n", at(*time)));
        let calls = self.sandbox.calls().calls();
        let begun = calls.first().map(|call| call.started);
        let history = |half: Half| {
            let calls = calls.iter().filter(|call| call.half == half);
            let line = |call: &Call| {
                let since = begun.map(|begun| call.started.saturating_duration_since(begun));
                let body = String::from_utf8_lossy(&call.body);
                format!("{} {call} {body}\n", at(since.unwrap_or_default()))
            };
            calls.map(line).collect::<String>()
        };
        FailedStory {
            why,
            records: vec![
                ("story.log", log.collect()),
                ("hetzner.log", history(Half::Hetzner)),
                ("kubernetes.log", history(Half::Kubernetes)),
                ("robot.log", history(Half::Robot)),
            ],
        }
    }
}

fn check_write(
    topic: &dyn Topic,
    sandbox: &Sandbox,
    half: Half,
    request: &Request,
    lease_check: &Mutex<LeaseCheck>,
) -> Verdict {
    let path = request.path.as_str();
    if half == Half::Kubernetes && (path.contains("/events") || path.contains("/leases")) {
        return Verdict::Allowed;
    }
    let lease_check = lease_check.lock().unwrap();
    if lease_check.is_required && !topic.is_person_at_work() {
        let leases = sandbox.cluster().list("leases", Some("kube-system"));
        let now = leases.first().map(|lease| &lease["spec"]["holderIdentity"]);
        if now.is_none_or(|now| *now != *lease_check.running) {
            return Verdict::Violation(format!(
                "{} does not lead: {now:?} does",
                lease_check.running
            ));
        }
    }
    let foreign = format!("Bearer {}", sandbox.projects().foreign_token);
    if request.header("authorization") == Some(&foreign) {
        return Verdict::Violation("it is in another project".into());
    }
    match topic.check_write(sandbox, half, request) {
        Verdict::Unrelated => Verdict::Violation("it is about nothing of ours".into()),
        verdict => verdict,
    }
}

/// Whether a round changed nothing, and everything that failed is a finding, which lasts until a person acts.
fn has_converged(report: &Report) -> bool {
    let mut failures = report.failures.iter();
    let failed = failures.any(|failure| failure.finding.is_none());
    let is_done = report.is_complete();
    report.outage.is_none() && report.changes.is_empty() && is_done && !failed
}

fn failures(reports: &[Report]) -> Vec<String> {
    let failures = reports.iter().flat_map(|report| &report.failures);
    let mut failures: Vec<String> = failures.map(|one| format!("{one:?}")).collect();
    failures.sort();
    failures
}
