//! What changes of Services of one namespace take of the project's calls, on the simulated clock.

use crate::library::Place;
use crate::machine::Machine;
use crate::process::{Process, Start};
use crate::random::Random;
use crate::story::INTERVAL;
use ccm::controllers::Selection;
use ccm::provider::clock;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a namespace may use at once, and in each hour.
const SHARE: usize = 900;

/// Calls that nodes and comparisons of all Services cost in half an hour, and those that were under way when the share was
/// used up.
const OTHERS: usize = 60;

const HALF_AN_HOUR: Duration = Duration::from_secs(1800);

const NOISY: &str = "noisy";
const CALM: &str = "calm";

/// A cluster with two nodes, and a daemon.
struct World {
    machine: Rc<Machine>,
    sandbox: Arc<Sandbox>,
    process: Process,
    random: Random,
    _simulated: (clock::Simulated, sandbox::time::Simulated),
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
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            sandbox.cluster().create("namespaces", None, namespace);
        }
        let start = Start {
            resyncs: false,
            ..Start::default()
        };
        World {
            process: Process::new("ccm", &Place::in_memory(&sandbox), &start),
            random: Random::new(1),
            machine,
            sandbox,
            _simulated: simulated,
        }
    }

    fn create(&self, namespace: &str, name: &str, annotations: &[(&str, &str)], port: u16) {
        let key = |name: &str| format!("load-balancer.hetzner.cloud/{name}");
        let annotations = annotations.iter();
        let annotations: serde_json::Map<String, Value> = annotations
            .map(|(name, value)| (key(name), json!(value)))
            .collect();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name, "namespace": namespace, "annotations": annotations },
            "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": [{ "port": port }] },
        });
        let cluster = self.sandbox.cluster();
        cluster.create("services", Some(namespace), service);
    }

    fn annotate(&self, namespace: &str, name: &str, annotation: &str, value: &str) {
        let key = format!("load-balancer.hetzner.cloud/{annotation}");
        let edited = self
            .sandbox
            .cluster()
            .edit("services", Some(namespace), name, |one| {
                one["metadata"]["annotations"][&key] = json!(value);
            });
        assert!(edited, "{namespace}/{name}");
    }

    /// One look of all controllers, and the time until the next.
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

    /// Until this is so; how long that took.
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

    fn balancer_of(&self, namespace: &str, name: &str) -> Option<Value> {
        let service = self
            .sandbox
            .cluster()
            .get("services", Some(namespace), name)?;
        let uid = &service["metadata"]["uid"];
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        all.into_iter()
            .find(|one| one["labels"]["hcloud-ccm/service-uid"] == *uid)
    }

    fn interval_of(&self, namespace: &str, name: &str) -> Option<u64> {
        let balancer = self.balancer_of(namespace, name)?;
        balancer["services"][0]["health_check"]["interval"].as_u64()
    }

    fn have_addresses(&self, namespace: &str) -> bool {
        let has = |one: &Value| one["status"]["loadBalancer"]["ingress"].is_array();
        self.services(namespace).iter().all(has)
    }

    fn targets(&self, namespace: &str, name: &str) -> usize {
        let balancer = self.balancer_of(namespace, name);
        balancer.map_or(0, |one| one["targets"].as_array().map_or(0, Vec::len))
    }

    /// Calls to the cloud since then.
    fn calls(&self, mark: u64) -> usize {
        let calls = self.sandbox.calls().calls_since(mark);
        let of_cloud = calls.iter().filter(|call| call.half == Half::Hetzner);
        of_cloud.count()
    }

    /// Events of this reason about Services of this namespace.
    fn events(&self, namespace: &str, reason: &str) -> Vec<Value> {
        let mut events = self.sandbox.cluster().list("events", Some(namespace));
        events.retain(|event| event["reason"] == reason);
        events
    }
}

fn name(n: usize) -> String {
    format!("web-{n}")
}

/// Thirty Services of one namespace and one of another, all as they should be.
fn noisy_and_calm() -> World {
    let mut world = World::new();
    for n in 0..30 {
        world.create(NOISY, &name(n), &[], 80);
    }
    world.create(CALM, "web", &[], 80);
    let minutes = Duration::from_secs(300);
    world.until(minutes, "addresses", |world| {
        world.have_addresses(NOISY) && world.have_addresses(CALM)
    });
    world.ticks(minutes);
    world
}

/// Each Service of the noisy namespace changes before each look at it; `meanwhile` is called before each.
fn change_all_the_time(world: &mut World, time: Duration, mut meanwhile: impl FnMut(&mut World)) {
    let end = world.machine.passed() + time;
    for turn in 0.. {
        if world.machine.passed() >= end {
            return;
        }
        let interval = ["20s", "25s"][turn % 2];
        for n in 0..30 {
            world.annotate(NOISY, &name(n), "health-check-interval", interval);
        }
        meanwhile(world);
        world.tick();
    }
}

#[test]
fn a_namespace_that_changes_all_the_time_leaves_calls_to_others() {
    let mut world = noisy_and_calm();
    let mark = world.sandbox.calls().mark();
    let mut turn = 0;
    let mut late = 0;
    change_all_the_time(&mut world, HALF_AN_HOUR, |world| {
        // The calm one changes once in two minutes, and has that at the next look but one.
        turn += 1;
        let interval = 30 + turn / 24 % 2;
        match turn % 24 {
            0 => world.annotate(
                CALM,
                "web",
                "health-check-interval",
                &format!("{interval}s"),
            ),
            3 if turn > 24 => {
                late += usize::from(world.interval_of(CALM, "web") != Some(interval));
            }
            _ => {}
        }
    });
    let calls = world.calls(mark);
    let at_most = SHARE + SHARE / 2 + OTHERS + 15 * 4;
    assert!(
        calls <= at_most,
        "{calls} calls in half an hour, not {at_most}"
    );
    assert!(calls >= SHARE, "{calls}: the share is to be had");
    assert_eq!(late, 0, "changes of another namespace were late");
    // Each says so, and not at every look.
    let events = world.events(NOISY, "CallLimitReached");
    assert_eq!(events.len(), 30, "{events:?}");
    let counts = events
        .iter()
        .map(|event| event["count"].as_u64().unwrap_or(1));
    assert!(counts.sum::<u64>() <= 30 * 10, "{events:?}");
    assert_eq!(world.events(CALM, "CallLimitReached"), Vec::<Value>::new());
}
