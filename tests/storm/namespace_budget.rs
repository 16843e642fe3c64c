//! How many of the project's calls the changes of one namespace's Services may use, on the simulated clock.

use crate::common::cluster::{Cluster, len};
use crate::common::contains;
use crate::library::SandboxAccess;
use crate::machine::Machine;
use crate::process::{Process, Start};
use crate::random::Random;
use crate::story::INTERVAL;
use ccm::controllers::Selection;
use ccm::provider::clock;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The number of calls that a namespace may use at once, and in each hour.
const SHARE: usize = 900;

/// The number of calls that nodes and comparisons of all Services cost in half an hour, and that were in progress when
/// the share was used up.
const OTHERS: usize = 60;

const HALF_AN_HOUR: Duration = Duration::from_secs(1800);

/// The reason of the event that reports that a change waits.
const REASON: &str = "CallLimitReached";

const NOISY: &str = "noisy";
const CALM: &str = "calm";

/// A cluster with two nodes, and a daemon.
struct World {
    machine: Rc<Machine>,
    sandbox: Arc<Sandbox>,
    process: Process,
    random: Random,
    /// How often the Services of the noisy namespace have changed.
    turn: usize,
    _simulated: (clock::SimulationGuard, sandbox::time::Simulated),
}

impl World {
    fn new() -> World {
        let machine = Machine::new(1, false);
        let of_apis = sandbox::time::simulate(machine.time());
        let simulated = (clock::simulate(machine.clone()), of_apis);
        let builder = Sandbox::builder().nodes(2).heartbeats(false);
        let sandbox = Arc::new(builder.in_memory().start());
        machine.connect(&sandbox);
        for name in [NOISY, CALM] {
            sandbox.create_namespace(name);
        }
        let start = Start { resyncs: false, ..Start::default() };
        World {
            process: Process::new("ccm", &SandboxAccess::in_memory(&sandbox), &start),
            random: Random::new(1),
            turn: 0,
            machine,
            sandbox,
            _simulated: simulated,
        }
    }

    /// Runs all controllers once, and lets the time pass until the next tick.
    fn tick(&mut self) {
        self.process.tick(&Selection::Due, &mut self.random);
        self.machine.pass(INTERVAL);
    }

    fn ticks(&mut self, time: Duration) {
        let end = self.machine.passed() + time;
        while self.machine.passed() < end {
            self.tick();
        }
    }

    /// Runs ticks until `is_so` returns true. Returns how long that took.
    fn until(&mut self, at_most: Duration, what: &str, is_so: impl Fn(&World) -> bool) -> Duration {
        let begun = self.machine.passed();
        while !is_so(self) {
            let took = self.machine.passed() - begun;
            assert!(took <= at_most, "{what}: not in {took:?}");
            self.tick();
        }
        self.machine.passed() - begun
    }

    fn services(&self, namespace: &str) -> Vec<Value> {
        self.sandbox.cluster().list("services", Some(namespace))
    }

    /// Returns the load balancer of a Service that exists.
    fn balancer_of(&self, name: &str) -> Option<Value> {
        self.sandbox.of_uid(&self.sandbox.uid(name))
    }

    fn interval_of(&self, name: &str) -> Option<u64> {
        let balancer = self.balancer_of(name)?;
        balancer["services"][0]["health_check"]["interval"].as_u64()
    }

    fn have_addresses(&self, namespace: &str) -> bool {
        let has = |one: &Value| one["status"]["loadBalancer"]["ingress"].is_array();
        self.services(namespace).iter().all(has)
    }

    fn targets(&self, name: &str) -> usize {
        let balancer = self.balancer_of(name);
        balancer.map_or(0, |one| len(&one["targets"]))
    }

    /// Sets the interval of a Service's health checks.
    fn set_interval(&self, name: &str, interval: &str) {
        let annotation = "health-check-interval";
        self.sandbox.annotate(name, annotation, Some(interval));
    }

    /// Returns how many calls to the cloud there were since a mark.
    fn calls(&self, mark: u64) -> usize {
        let calls = self.sandbox.calls().calls_since(mark);
        let of_cloud = calls.iter().filter(|call| call.half == Half::Hetzner);
        of_cloud.count()
    }

    /// Returns the events with this reason about Services of this namespace.
    fn events(&self, namespace: &str, reason: &str) -> Vec<Value> {
        let mut events = self.sandbox.cluster().list("events", Some(namespace));
        events.retain(|event| event["reason"] == reason);
        events
    }
}

/// Returns the name of a Service of the noisy namespace.
fn noisy(n: usize) -> String {
    format!("{NOISY}/web-{n}")
}

/// The Service of the calm namespace.
const WEB: &str = "calm/web";

/// Creates thirty Services in one namespace and one Service in another one, and syncs all of them.
fn noisy_and_calm() -> World {
    let mut world = World::new();
    for n in 0..30 {
        world.sandbox.create(&noisy(n), &[], &[80]);
    }
    world.sandbox.create(WEB, &[], &[80]);
    let minutes = Duration::from_secs(300);
    world.until(minutes, "addresses", |world| {
        world.have_addresses(NOISY) && world.have_addresses(CALM)
    });
    world.ticks(minutes);
    world
}

/// Changes each Service of the noisy namespace before each tick. `meanwhile` is called before each tick, too.
fn change_all_the_time(world: &mut World, time: Duration, mut meanwhile: impl FnMut(&mut World)) {
    let end = world.machine.passed() + time;
    while world.machine.passed() < end {
        world.turn += 1;
        let interval = ["20s", "25s"][world.turn % 2];
        for n in 0..30 {
            world.set_interval(&noisy(n), interval);
        }
        meanwhile(world);
        world.tick();
    }
}

#[test]
fn a_namespace_that_changes_all_the_time_leaves_calls_to_others() {
    let mut world = noisy_and_calm();
    let mark = world.sandbox.mark();
    let mut turn = 0;
    let mut late = 0;
    change_all_the_time(&mut world, HALF_AN_HOUR, |world| {
        // The Service of the calm namespace changes once in two minutes. Each change must be made two ticks later.
        turn += 1;
        let interval = 30 + turn / 24 % 2;
        match turn % 24 {
            0 => world.set_interval(WEB, &format!("{interval}s")),
            3 if turn > 24 => late += usize::from(world.interval_of(WEB) != Some(interval)),
            _ => {}
        }
    });
    let calls = world.calls(mark);
    let at_most = SHARE + SHARE / 2 + OTHERS + 15 * 4;
    assert!(calls <= at_most, "{calls} calls, not {at_most}");
    assert!(calls >= SHARE, "{calls}: the share is to be had");
    assert_eq!(late, 0, "changes of another namespace were late");
    // Each Service has an event about this, but not one for each tick.
    let events = world.events(NOISY, REASON);
    assert_eq!(events.len(), 30, "{events:?}");
    let counts = events.iter().map(|event| event["count"].as_u64().unwrap_or(1));
    assert!(counts.sum::<u64>() <= 30 * 10, "{events:?}");
    assert_eq!(world.events(CALM, REASON), Vec::<Value>::new());
}

/// Creates a world in which the noisy namespace has used up its calls.
fn used_up() -> World {
    let mut world = noisy_and_calm();
    let end = world.machine.passed() + HALF_AN_HOUR;
    while world.events(NOISY, REASON).is_empty() {
        assert!(world.machine.passed() < end);
        change_all_the_time(&mut world, INTERVAL, |_| ());
    }
    change_all_the_time(&mut world, INTERVAL * 24, |_| ());
    world
}

#[test]
fn a_service_whose_change_waits_for_calls_is_served_and_gets_the_change_later() {
    let mut world = used_up();
    assert!((0..30).all(|n| world.targets(&noisy(n)) == 2));
    for n in 0..30 {
        world.set_interval(&noisy(n), "40s");
    }
    world.tick();
    let has_change = |world: &World, n| world.interval_of(&noisy(n)) == Some(40);
    let waiting: Vec<usize> = (0..30).filter(|n| !has_change(&world, *n)).collect();
    assert!(waiting.len() > 20, "{waiting:?}");
    // A change of nodes, a deletion, and a Service of another namespace do not wait. A new Service waits.
    world.sandbox.join_node("late");
    let deleted = noisy(*waiting.last().unwrap());
    world.sandbox.delete(&deleted);
    world.sandbox.create("noisy/new", &[], &[80]);
    world.sandbox.create("calm/other", &[], &[80]);
    let minute = Duration::from_secs(60);
    world.until(minute, "targets, a deletion and a Service", |world| {
        let mut there = (0..30).filter(|n| noisy(*n) != deleted);
        there.all(|n| world.targets(&noisy(n)) == 3)
            && world.sandbox.service(&deleted).is_none()
            && world.targets("calm/other") == 3
    });
    let there = (0..30).filter(|n| noisy(*n) != deleted);
    let still: Vec<usize> = there.filter(|n| !has_change(&world, *n)).collect();
    assert!(still.len() > 5, "{still:?}");
    assert!(world.balancer_of("noisy/new").is_none(), "it waits");
    let told = world.sandbox.event_messages("new", REASON);
    assert_eq!(told.len(), 1, "{told:?}");
    contains(&told[0], "namespace noisy");
    contains(&told[0], "900 calls an hour");
    // Five calls become available in 20 s.
    let took = world.until(minute * 15, "what waited", |world| {
        let mut there = (0..30).filter(|n| noisy(*n) != deleted);
        there.all(|n| has_change(world, n)) && world.balancer_of("noisy/new").is_some()
    });
    assert!(took > minute, "{took:?}");
}

#[test]
fn a_hundred_new_services_of_a_namespace_do_not_wait() {
    let mut world = World::new();
    world.sandbox.create(WEB, &[], &[80]);
    world.ticks(Duration::from_secs(60));
    let mark = world.sandbox.mark();
    for n in 0..100 {
        world.sandbox.create(&noisy(n), &[], &[80]);
    }
    let minutes = Duration::from_secs(300);
    world.until(minutes, "addresses", |world| world.have_addresses(NOISY));
    assert_eq!(world.events(NOISY, REASON), Vec::<Value>::new());
    let calls = world.calls(mark);
    assert!(calls < SHARE / 2, "{calls} calls");
}

/// Calls for changes that were refused count against the share, and so do retries.
#[test]
fn refused_changes_count_against_the_share_of_calls() {
    let mut world = noisy_and_calm();
    let refused = Effect::hetzner_error(422, "invalid_input", "invalid input in some field");
    let refused = Rule::new(refused).half(Half::Hetzner).method("POST");
    world.sandbox.fault(refused.path("/actions/update_service"));
    let mark = world.sandbox.mark();
    change_all_the_time(&mut world, HALF_AN_HOUR / 2, |_| ());
    let calls = world.calls(mark);
    let at_most = SHARE + SHARE / 4 + OTHERS;
    assert!(calls <= at_most, "{calls} calls, not {at_most}");
    assert!(!world.events(NOISY, REASON).is_empty());
}

#[test]
fn the_namespace_that_changes_a_shared_load_balancer_pays_for_all_its_services() {
    let mut world = World::new();
    let share = [("share", "noisy/front"), ("share-namespaces", CALM)];
    for n in 0..4 {
        world.sandbox.create(&noisy(n), &share, &[80 + n as u16]);
    }
    world.sandbox.create(WEB, &share[..1], &[443]);
    world.sandbox.create("calm/alone", &[], &[80]);
    let minutes = Duration::from_secs(300);
    world.until(minutes, "addresses", |world| {
        world.have_addresses(NOISY) && world.have_addresses(CALM)
    });
    world.ticks(minutes);
    let mark = world.sandbox.mark();
    let end = world.machine.passed() + HALF_AN_HOUR;
    for turn in 0.. {
        if world.machine.passed() >= end {
            break;
        }
        let algorithm = ["least_connections", "round_robin"][turn % 2];
        let (first, annotation) = (noisy(0), "algorithm-type");
        world.sandbox.annotate(&first, annotation, Some(algorithm));
        for n in 1..4 {
            world.set_interval(&noisy(n), ["20s", "25s"][turn % 2]);
        }
        world.tick();
    }
    let calls = world.calls(mark);
    let at_most = SHARE + SHARE / 2 + OTHERS;
    assert!(calls <= at_most, "{calls} calls, not {at_most}");
    assert!(!world.events(NOISY, REASON).is_empty());
    assert_eq!(world.events(CALM, REASON), Vec::<Value>::new());
    // The other namespace changes its own port on that load balancer.
    world.set_interval(WEB, "50s");
    let shared = |world: &World| {
        let all = world.sandbox.balancers();
        let mut ports = all.iter().flat_map(|one| one["services"].as_array().unwrap());
        ports.any(|port| port["health_check"]["interval"] == 50)
    };
    world.until(Duration::from_secs(60), "its port", shared);
}
