//! One story: what happens to a cluster and its project while `ccm` starts, works and dies, all of it chosen by a seed.
//!
//! Chapters with bad weather, in each of which processes live; then the weather clears up, a last `ccm` comes to rest, and
//! all must be as it should be. At every write it is checked that it does no harm.

use crate::diary;
use crate::library::{Place, see_one_server};
use crate::machine::Machine;
use crate::process::{Process, Start};
use crate::random::Random;
use crate::topics::{Topic, Verdict, nodes, routes, services, shared};
use crate::weather::Weather;
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

/// In which everything must have come to rest.
const ROUNDS_AT_MOST: usize = 40;

/// One story in so many runs over real TCP and TLS, in real time that is scaled.
pub const OVER_SOCKETS: u64 = 100;

/// At most, until it is killed.
const ROUNDS_OF_A_PROGRAM: usize = 70;

/// Between two rounds of controllers.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// The same where only the longest period counts, which is five minutes.
const LONG_INTERVAL: Duration = Duration::from_secs(60);

/// Until all that was used up is there again: the Cloud API's calls of an hour.
const AFTER_THE_STORM: Duration = Duration::from_secs(3700);

/// Calls of one round of all controllers, and of one object in it, when answers get lost and calls are repeated.
const CALLS_OF_A_ROUND: usize = 60;
const CALLS_OF_AN_OBJECT: usize = 14;

/// What a process has of memory: at most, and more after so many times so many rounds in which nothing changes.
const MEMORY_AT_MOST: u64 = 2 << 20;
const MORE_MEMORY_AT_MOST: i64 = 32 << 10;
const ROUNDS_AT_REST: usize = 10;
const RESTS: usize = 3;

/// How long a story may compute, in real time. A story takes some 30 ms, and a second on a busy machine: more than this is a
/// plan whose cost grows faster than the cluster.
const TIME_AT_MOST: Duration = Duration::from_secs(60);

/// What stories were made of.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub stories: usize,
    pub calls: usize,
    pub faults: usize,
    pub writes: usize,
    pub processes: usize,
    pub deaths: usize,
    pub stops: usize,
    pub events: usize,
    pub simulated: Duration,
    /// Of one process, the most that one had at a time.
    pub memory: u64,
    /// What topics count.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Why a story is broken, and all that is known about it.
#[derive(Debug)]
pub struct Broken {
    pub why: String,
    /// File name and text.
    pub records: Vec<(&'static str, String)>,
}

/// Runs the story of this seed. The end is the same each time.
pub fn run(seed: u64) -> Result<Tally, Broken> {
    // One that was asked for is shown.
    let is_shown = std::env::var("CCM_TEST_SEED").is_ok_and(|chosen| chosen == seed.to_string());
    let machine = Machine::new(seed, seed.is_multiple_of(OVER_SOCKETS));
    if is_shown {
        diary::begin(machine.time());
    }
    let mut random = Random::new(seed);
    let two_at_once = random.percent(25);
    let topic = topic(&mut random, two_at_once, machine.is_real());
    let story = Story::new(Rc::clone(&machine), topic);
    let begun = Instant::now();
    let told = std::panic::AssertUnwindSafe(|| story.run(&mut random, two_at_once));
    let outcome = std::panic::catch_unwind(told);
    let outcome = outcome.unwrap_or_else(|_| Err("it panicked, see above".into()));
    let outcome = outcome.and_then(|()| match begun.elapsed() > TIME_AT_MOST {
        true if !machine.is_real() => Err(format!("it took {:?} to compute", begun.elapsed())),
        _ => Ok(()),
    });
    machine.stops(0, None);
    machine.set_others(None);
    match outcome {
        Ok(()) if !is_shown => Ok(story.tally()),
        outcome => {
            let broken = story.broken(outcome.err().unwrap_or_default());
            crate::record(seed, &broken);
            match broken.why.is_empty() {
                true => Ok(story.tally()),
                false => Err(broken),
            }
        }
    }
}

/// `two_at_once`: there may be two processes at once. `is_real`: the story runs over sockets.
fn topic(random: &mut Random, two_at_once: bool, is_real: bool) -> Arc<dyn Topic> {
    match random.below(100) {
        0..10 => Arc::new(routes::Routes::of(random)),
        10..35 => Arc::new(shared::Shared::of(random, two_at_once, is_real)),
        35..75 => Arc::new(services::Services::of(random, two_at_once)),
        _ => Arc::new(nodes::Nodes::of(random)),
    }
}

pub struct Story {
    place: Place,
    pub machine: Rc<Machine>,
    pub sandbox: Arc<Sandbox>,
    topic: Arc<dyn Topic>,
    harm: Arc<Mutex<Vec<String>>>,
    /// When, and what.
    log: RefCell<Vec<(Duration, String)>>,
    holder: Arc<Mutex<Holder>>,
    tally: RefCell<Tally>,
    /// The clocks of this thread, and those of the APIs.
    _simulated: Option<(clock::Simulated, sandbox::time::Simulated)>,
}

/// Who may write.
#[derive(Debug, Default)]
struct Holder {
    /// Whoever writes takes part in the election.
    counts: bool,
    /// Which process is at work.
    at_work: String,
}

impl Story {
    /// Before anything happens, with nothing in it.
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
        let sandbox = Arc::new(topic.needs(builder).start());
        machine.connect(&sandbox);
        Rc::new(Story {
            place: match machine.is_real() {
                true => Place::new(&sandbox),
                false => Place::in_memory(&sandbox),
            },
            machine,
            topic,
            harm: Arc::default(),
            log: RefCell::default(),
            holder: Arc::default(),
            tally: RefCell::default(),
            sandbox,
            _simulated: simulated,
        })
    }

    fn run(self: &Rc<Self>, random: &mut Random, two_at_once: bool) -> Result<(), String> {
        let sandbox = &*self.sandbox;
        self.topic.begin(sandbox);
        if sandbox.serves(Half::Robot) {
            see_one_server(sandbox);
        }
        let mut rounds = 0;
        let mut backup = None;
        let begins_at_rest = self.topic.begins_at_rest();
        if begins_at_rest {
            self.watch();
            self.settle(random)?;
            sandbox.faults().clear();
        }
        let mark = sandbox.calls().mark();
        for chapter in 0..1 + random.below(3) {
            if chapter > 0 || begins_at_rest {
                for _ in 0..random.below(6) {
                    self.happens(random, false);
                }
            }
            match backup.take() {
                None if random.percent(12) => backup = Some(sandbox.cluster().backup()),
                Some(backup) => {
                    sandbox.cluster().restore(&backup);
                    self.topic.restored(sandbox);
                    self.note("the cluster is restored from a backup".into());
                }
                None => {}
            }
            let mut weather = Weather::of(random, two_at_once);
            if self.machine.is_real() {
                weather = weather.without_time_outs();
            }
            self.note(format!("{weather:?}"));
            weather.begin(sandbox);
            self.topic.weather(sandbox, random);
            self.watch();
            for _ in 0..1 + random.below(3) {
                let two_at_once = two_at_once && random.percent(70);
                rounds += self.live(random, two_at_once);
            }
            weather.end(sandbox);
            self.machine.pass(Duration::from_secs(random.below(600)));
        }
        self.no_harm()?;
        self.is_bounded(mark, rounds)?;
        self.machine.pass(AFTER_THE_STORM);
        sandbox.robot().end_block();
        self.topic.clear_up(sandbox);
        self.watch();
        self.note("the storm is over".into());
        if random.percent(10) && !self.machine.is_real() {
            self.goes_on(random)?;
        }
        if !self.machine.is_real() {
            self.trial(random)?;
        }
        for _ in 0..2 {
            self.settle(random)?;
            // What processes that are dead by now began in the cloud has ended.
            self.machine.pass(Duration::from_secs(300));
        }
        self.no_harm()?;
        self.topic.is_right(sandbox)?;
        if !two_at_once {
            // Else it may be the other one's.
            self.nothing_is_repeated()?;
        }
        self.nothing_is_written(random)
    }

    fn happens(&self, random: &mut Random, between_ticks: bool) {
        let line = match random.percent(3) {
            true => {
                self.place.rotate_token(&self.sandbox);
                "the project's token is another one".to_owned()
            }
            false => self.topic.happens(&self.sandbox, random, between_ticks),
        };
        self.tally.borrow_mut().events += 1;
        self.note(line);
    }

    fn note(&self, line: String) {
        self.log.borrow_mut().push((self.machine.passed(), line));
    }

    /// From the start of a process to its death or end; two of them at once, with or without a Lease. How many rounds of
    /// controllers there were.
    fn live(self: &Rc<Self>, random: &mut Random, two_at_once: bool) -> usize {
        if self.machine.is_real() && random.percent(60) {
            let line = crate::program::live(&self.sandbox, &self.place.token(), random);
            self.note(line);
            return ROUNDS_OF_A_PROGRAM;
        }
        let mut start = self.start(random);
        // Whoever leads for 30 ms proves nothing.
        start.with_lease &= !self.machine.is_real();
        let mut processes = vec![self.process(&start)];
        if two_at_once {
            let start = Start { with_lease: start.with_lease, ..self.start(random) };
            processes.push(self.process(&start));
        }
        self.holder.lock().unwrap().counts = start.with_lease;
        if random.percent(30) && !self.machine.is_real() {
            self.stop_now_and_then(random, &processes);
        }
        let mut count = 0;
        for _ in 0..1 + random.below(4) {
            let selection = match random.percent(30) {
                true => Selection::All,
                false => Selection::Due,
            };
            for one in &processes {
                count += usize::from(!one.is_dead());
                self.at_work(one, || one.tick(&selection, random));
                if random.percent(40) {
                    self.happens(random, true);
                }
            }
            self.machine.pass(INTERVAL);
        }
        self.machine.stops(0, None);
        let mut tally = self.tally.borrow_mut();
        for one in processes {
            tally.processes += 1;
            tally.deaths += usize::from(one.is_dead());
            if random.percent(50) {
                one.release();
            }
        }
        self.holder.lock().unwrap().counts = false;
        // The other one's rounds while one was stopped.
        count + 2 * self.machine.stopped.get() as usize
    }

    /// A process is stopped at any moment and goes on later, with what it knew. The others work meanwhile, and one of them
    /// may lead by then.
    fn stop_now_and_then(self: &Rc<Self>, random: &mut Random, processes: &[Rc<Process>]) {
        let stops = *random.pick(&[1, 3, 10]);
        let story = Rc::downgrade(self);
        let processes: Vec<_> = processes.iter().map(Rc::downgrade).collect();
        let random = RefCell::new(Random::new(random.next()));
        let meanwhile = move |is_end: bool| {
            let story = story.upgrade();
            let living = processes.iter().filter_map(std::rc::Weak::upgrade);
            for other in living.filter(|other| !other.is_at_work()) {
                let work = |story: Rc<Story>| {
                    story.at_work(&other, || {
                        // At first it only looks who leads.
                        is_end.then(|| other.tick(&Selection::Due, &mut random.borrow_mut()))
                    })
                };
                story.clone().map(work);
            }
        };
        self.machine.stops(stops, Some(Rc::new(meanwhile)));
    }

    fn start(&self, random: &mut Random) -> Start {
        let mut start = Start::of(random);
        start.wrong_token &= self.topic.may_have_wrong_token();
        start.with_lease |= self.topic.needs_lease();
        start
    }

    pub fn process(&self, start: &Start) -> Rc<Process> {
        let name = format!("ccm-{}", 1 + self.log.borrow().len());
        let start = Start { reads_lease: self.topic.needs_lease(), ..start.clone() };
        self.note(format!("{name} starts: {start:?}"));
        Rc::new(Process::new(&name, &self.place, &start))
    }

    /// This process is at work: it is renewed before, and while it waits for that.
    fn at_work<T>(&self, process: &Rc<Process>, work: impl FnOnce() -> T) -> T {
        let renewer = Rc::downgrade(process);
        let others = move || {
            if let Some(process) = renewer.upgrade() {
                process.renew();
            }
        };
        let others = self.machine.set_others(Some(Rc::new(others)));
        let name = process.name.clone();
        let before = std::mem::replace(&mut self.holder.lock().unwrap().at_work, name);
        let suspended = self.machine.suspended.replace(process.suspended.get());
        process.renew();
        let done = work();
        process.suspended.set(self.machine.suspended.replace(suspended));
        self.holder.lock().unwrap().at_work = before;
        self.machine.set_others(others);
        done
    }

    /// A `ccm` that was there in the storm goes on: it comes right by itself, without a comparison of everything.
    fn goes_on(self: &Rc<Self>, random: &mut Random) -> Result<(), String> {
        let start = Start { resyncs: false, ..Start::default() };
        let weather = Weather::of(random, false);
        self.note(format!("{weather:?}"));
        weather.begin(&self.sandbox);
        self.watch();
        let mut outcome = Ok(());
        self.in_bounds(|| {
            let process = self.process(&start);
            for _ in 0..3 {
                process.tick(&Selection::Due, random);
                self.machine.pass(INTERVAL);
            }
            opt_out(|| {
                weather.end(&self.sandbox);
                self.watch();
                self.note("the storm is over, and it goes on".into());
                self.machine.pass(AFTER_THE_STORM);
                self.topic.clear_up(&self.sandbox);
            });
            for _ in 0..ROUNDS_AT_MOST {
                process.tick(&Selection::Due, random);
                opt_out(|| outcome = self.topic.is_right(&self.sandbox));
                if outcome.is_ok() {
                    break;
                }
                self.machine.pass(LONG_INTERVAL);
            }
            outcome.map_err(|why| format!("a process that goes on: {why}"))
        })
    }

    /// By a long-lived `ccm` that looks at what has changed.
    fn trial(&self, random: &mut Random) -> Result<(), String> {
        let start = Start { resyncs: false, ..Start::default() };
        let process = self.process(&start);
        let mut round = || {
            let reports = process.tick(&Selection::Due, random);
            self.machine.pass(INTERVAL);
            reports
        };
        self.topic.trial(&self.sandbox, &mut round)
    }

    /// A new `ccm` works until nothing is left to be done.
    pub fn settle(&self, random: &mut Random) -> Result<(), String> {
        self.in_bounds(|| self.settle_by_one(random))
    }

    /// Runs a process in this thread. How much memory it has does not grow without bound.
    fn in_bounds(&self, run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let mut outcome = Ok(());
        let used = measure(|| outcome = run());
        outcome?;
        let mut tally = self.tally.borrow_mut();
        tally.memory = tally.memory.max(used.bytes_max);
        match used.bytes_max > MEMORY_AT_MOST {
            true => Err(format!("a process had {} kB of memory", used.bytes_max >> 10)),
            false => Ok(()),
        }
    }

    fn settle_by_one(&self, random: &mut Random) -> Result<(), String> {
        let process = self.process(&Start::default());
        let mut before = Vec::new();
        for round in 0..ROUNDS_AT_MOST {
            let reports = process.tick(&Selection::All, random);
            let failures = failures(&reports);
            // What failed by itself, as an action may, works in the next round. In the first one a controller does not
            // know yet what another one reads.
            let is_lasting = round > 0 && (failures.is_empty() || failures == before);
            if reports.iter().all(is_at_rest) && is_lasting {
                return Ok(());
            }
            before = failures;
            self.machine.pass(INTERVAL);
        }
        let reports = process.tick(&Selection::All, random);
        Err(format!("it does not come to rest: {reports:#?}"))
    }

    /// All is right: a new `ccm` finds nothing to do, and writes nothing.
    fn nothing_is_written(&self, random: &mut Random) -> Result<(), String> {
        let process = self.process(&Start::default());
        let left = process.proposes()?;
        if !left.is_empty() {
            return Err(format!("planned again: {left:#?}"));
        }
        let mark = self.sandbox.calls().mark();
        for selection in [Selection::All, Selection::Due] {
            process.tick(&selection, random);
        }
        if random.percent(10) && !self.machine.is_real() {
            self.no_memory_is_lost(&process, random)?;
        }
        let calls = self.sandbox.calls().calls_since(mark);
        let is_event = |call: &Call| call.path.contains("/events");
        match calls.iter().find(|call| call.is_write() && !is_event(call)) {
            None => Ok(()),
            Some(call) => Err(format!("a write when nothing differs: {call}")),
        }
    }

    /// After rounds in which nothing changes a process has as much memory as before.
    fn no_memory_is_lost(&self, process: &Process, random: &mut Random) -> Result<(), String> {
        let mut rest = || {
            for _ in 0..ROUNDS_AT_REST {
                process.tick(&Selection::Due, random);
                self.machine.pass(LONG_INTERVAL);
            }
        };
        // What was read last is kept, and lists are not all read in each round: the least counts.
        let mut memory = 0;
        let mut least = || {
            let each = [(); RESTS].map(|()| {
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

    /// No call is repeated without a limit.
    fn is_bounded(&self, mark: u64, rounds: usize) -> Result<(), String> {
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

    /// A write whose answer was lost may have been carried out: what there is now is read before it is made again.
    fn nothing_is_repeated(&self) -> Result<(), String> {
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

    /// From now on, until the faults are cleared.
    pub fn watch(&self) {
        self.topic.chapter_begins(&self.sandbox);
        let (topic, sandbox) = (Arc::clone(&self.topic), Arc::downgrade(&self.sandbox));
        let read = Effect::before(move |request: &Request| {
            if let Some(sandbox) = sandbox.upgrade() {
                topic.read(&sandbox, request);
            }
        });
        let faults = self.sandbox.faults();
        faults.add(Rule::new(read).half(Half::Kubernetes).method("GET"));
        for half in [Half::Hetzner, Half::Kubernetes, Half::Robot] {
            let (topic, sandbox) = (Arc::clone(&self.topic), Arc::downgrade(&self.sandbox));
            let (harm, holder) = (Arc::clone(&self.harm), Arc::clone(&self.holder));
            let look = Effect::before(move |request: &Request| {
                let Some(sandbox) = sandbox.upgrade() else {
                    return;
                };
                let verdict = judge(&*topic, &sandbox, half, request, &holder);
                if let Verdict::Harm(why) = verdict {
                    let line = format!("{} {}: {why}", request.method, request.path);
                    harm.lock().unwrap().push(line);
                }
            });
            faults.add(Rule::new(look).half(half).writes());
        }
    }

    pub fn no_harm(&self) -> Result<(), String> {
        let harm = self.harm.lock().unwrap();
        match harm.is_empty() {
            true => Ok(()),
            false => Err(harm.join("\n")),
        }
    }

    fn tally(&self) -> Tally {
        let mut tally = self.tally.borrow().clone();
        let is_fault = |fault: &String| !fault.split(", ").all(|effect| effect == "hook before");
        for call in self.sandbox.calls().calls() {
            tally.calls += 1;
            tally.writes += usize::from(call.is_write());
            tally.faults += usize::from(call.fault.as_ref().is_some_and(is_fault));
        }
        tally.stories = 1;
        tally.counts = self.topic.counts(&self.sandbox);
        tally.stops = self.machine.stopped.get() as usize;
        tally.simulated = self.machine.passed();
        tally
    }

    fn broken(&self, why: String) -> Broken {
        let at = |time: Duration| format!("{:>10.3}", time.as_secs_f64());
        let mut log = self.log.borrow().clone();
        log.extend(diary::lines());
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
        Broken {
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

fn judge(
    topic: &dyn Topic,
    sandbox: &Sandbox,
    half: Half,
    request: &Request,
    holder: &Mutex<Holder>,
) -> Verdict {
    let path = request.path.as_str();
    if half == Half::Kubernetes && (path.contains("/events") || path.contains("/leases")) {
        return Verdict::Fine;
    }
    let holder = holder.lock().unwrap();
    if holder.counts {
        let leases = sandbox.cluster().list("leases", Some("kube-system"));
        let now = leases.first().map(|lease| &lease["spec"]["holderIdentity"]);
        if now.is_none_or(|now| *now != *holder.at_work) {
            return Verdict::Harm(format!("{} does not lead: {now:?} does", holder.at_work));
        }
    }
    let foreign = format!("Bearer {}", sandbox.projects().foreign_token);
    if request.header("authorization") == Some(&foreign) {
        return Verdict::Harm("it is in another project".into());
    }
    match topic.judge(sandbox, half, request) {
        Verdict::Other => Verdict::Harm("it is about nothing of ours".into()),
        verdict => verdict,
    }
}

/// Nothing was changed, and what failed is a finding, which lasts until a person acts.
fn is_at_rest(report: &Report) -> bool {
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
