//! Annotations of all Services together: a limit for each namespace and one in total, within which the oldest Services
//! come first. And lists that are long because of what other programs keep on Services.

use crate::common::{self, Daemon, wait_at_most, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, World, key, len, service};
use ccm::provider::clock;
use sandbox::calls::Call;
use serde_json::{Value, json};
use std::time::Duration;

const GREEDY: &str = "greedy";
/// As long as the limit is 4 MiB, so many Services with 30 kB each are within it.
const FIT: usize = 130;
const MORE: usize = 30;
const PATIENCE: Duration = Duration::from_secs(240);

/// Names with commas, some 15 kB of them.
fn names() -> String {
    let all: Vec<String> = (0..1350).map(|n| format!("other-{n:04}")).collect();
    all[..].join(",")
}

/// With 30 kB of annotations that are read, and that ask for what every Service has.
fn large(namespace: &str, name: &str) -> Value {
    let names = names();
    let nodes = format!("pool notin ({names})");
    let annotations = [("node-selector", &*nodes), ("share-namespaces", &*names)];
    let mut service = service(name, &annotations, &[80]);
    service["metadata"]["namespace"] = json!(namespace);
    service
}

fn create(world: &World, service: Value) {
    let namespace = service["metadata"]["namespace"]
        .as_str()
        .unwrap()
        .to_owned();
    let cluster = world.cluster();
    cluster.create("services", Some(&namespace), service);
}

fn namespace(world: &World, name: &str) {
    let namespace = json!({ "metadata": { "name": name } });
    world.cluster().create("namespaces", None, namespace);
}

fn has_address(world: &World, namespace: &str, name: &str) -> bool {
    let found = world.cluster().get("services", Some(namespace), name);
    let ingress = &found.unwrap()["status"]["loadBalancer"]["ingress"];
    ingress.as_array().is_some_and(|list| !list.is_empty())
}

/// What is created from now on is younger: ages are in whole seconds.
fn next_second() {
    let begun = clock::now();
    wait_until("a younger second", || {
        clock::since(begun) > Duration::from_millis(1100)
    });
}

fn name(n: usize) -> String {
    format!("svc-{n:04}")
}

fn reported(daemon: &Daemon, name: &str) -> bool {
    let log = daemon.log();
    let object = format!("service/{GREEDY}/{name}:");
    let is_it = |line: &str| line.contains(&object) && line.contains("have more than 4 MiB");
    log.lines().any(is_it)
}

/// A namespace with more than is kept of it: its oldest Services are synced, those of others too; each younger one says
/// so and stays as it is. It exists all the same, and goes when it is deleted.
#[test]
fn a_namespace_with_more_than_its_share_keeps_its_oldest_services() {
    let world = World::new(1);
    namespace(&world, GREEDY);
    for n in 0..FIT {
        create(&world, large(GREEDY, &name(n)));
    }
    let daemon = world.daemon(&[NO_RESYNC]);
    wait_at_most(PATIENCE, "addresses of the oldest", || {
        (0..FIT).all(|n| has_address(&world, GREEDY, &name(n)))
    });
    next_second();
    for n in FIT..FIT + MORE {
        create(&world, large(GREEDY, &name(n)));
    }
    let is_above = |n: usize| reported(&daemon, &name(n));
    wait_at_most(PATIENCE, "what is said of the youngest", || {
        (FIT..FIT + MORE).filter(|n| is_above(*n)).count() >= MORE / 3
    });
    create(&world, large("default", "honest"));
    wait_at_most(PATIENCE, "an address in another namespace", || {
        has_address(&world, "default", "honest")
    });
    world.ticks_within(PATIENCE, 3);
    assert!((0..FIT).all(|n| !is_above(n)), "{}", daemon.log());
    let is_served = |n: usize| has_address(&world, GREEDY, &name(n));
    wait_at_most(PATIENCE, "an address or a word for each", || {
        (FIT..FIT + MORE).all(|n| is_served(n) != is_above(n))
    });
    // The youngest are served while they are small. Later one of two that share a load balancer asks for more, and
    // nothing of it changes.
    next_second();
    let share = |name: &str, port: u16| {
        let mut small = service(name, &[("share", "edge")], &[port]);
        small["metadata"]["namespace"] = json!(GREEDY);
        create(&world, small);
    };
    share("small", 80);
    share("other", 81);
    wait_at_most(PATIENCE, "addresses of small ones", || {
        ["small", "other"]
            .iter()
            .all(|name| has_address(&world, GREEDY, name))
    });
    let of_both = || {
        let mut all = world.balancers();
        all.retain(|one| one["labels"]["ccm-from-scratch/group"] == "greedy.edge");
        let mut both = all.pop().unwrap();
        // They become healthy meanwhile.
        for target in both["targets"].as_array_mut().unwrap() {
            target["health_status"].take();
        }
        both
    };
    let before = of_both();
    let cluster = world.cluster();
    let mut annotations = large(GREEDY, "small")["metadata"]["annotations"].clone();
    annotations[key("share")] = json!("edge");
    annotations[key("health-check-interval")] = json!("20s");
    assert!(cluster.edit("services", Some(GREEDY), "small", |one| {
        one["metadata"]["annotations"] = annotations.clone();
    }));
    wait_at_most(PATIENCE, "what is said of the small one", || {
        reported(&daemon, "small")
    });
    world.ticks_within(PATIENCE, 3);
    assert_eq!(of_both(), before, "{}", daemon.log());
    let orphans = common::ccm(&world.env, &["lb", "list", "-o", "json"]);
    let all = orphans.json();
    let items = all["items"].as_array().unwrap();
    assert!(items.iter().all(|one| one["orphan"] != json!(true)));
    // People see what serves it.
    let list = common::ccm(&world.env, &["lb", "list"]).stdout;
    let mut rows = list
        .lines()
        .filter(|line| line.starts_with("greedy/small "));
    let row = rows.next().expect("the Service is listed");
    assert!(row.contains("kubernetes-greedy-edge"), "{row}");
    // Their deletion is carried out.
    let last = (FIT..FIT + MORE).find(|n| is_above(*n)).map(name).unwrap();
    for name in ["small", last.as_str()] {
        assert!(cluster.delete("services", Some(GREEDY), name));
    }
    wait_at_most(PATIENCE, "the end of two Services", || {
        let is_there = |name: &str| cluster.get("services", Some(GREEDY), name).is_some();
        !is_there("small") && !is_there(&last)
    });
    let ports = of_both()["services"].clone();
    assert_eq!((len(&ports), &ports[0]["listen_port"]), (1, &json!(81)));
}

/// Other programs may keep 256 kB on each Service: a list that is too long is read in pages.
#[test]
fn a_list_that_is_long_because_of_foreign_annotations_ends_no_sync() {
    // More than is read of one answer.
    let count = std::env::var("CCM_TEST_LARGE_SERVICES").map_or(280, |text| text.parse().unwrap());
    let world = World::new(1);
    let foreign = "x".repeat(250_000);
    for n in 0..count {
        let mut other = service(&name(n), &[], &[80]);
        other["metadata"]["annotations"] = json!({ "example.com/state": foreign });
        other["spec"]["loadBalancerClass"] = json!("example.com/other");
        create(&world, other);
    }
    let daemon = world.daemon(&[NO_RESYNC]);
    let pages = || {
        let is_page = |call: &Call| {
            call.path == "/api/v1/services"
                && call.query("fieldSelector") == Some("spec.type=LoadBalancer")
                && call.query("continue").is_some()
        };
        world.calls().count(is_page)
    };
    world.create("web", &[], &[80]);
    wait_at_most(PATIENCE, "an address", || {
        has_address(&world, "default", "web")
    });
    assert!(pages() > 0, "{}", daemon.log());
    // When the list is short again, one call reads it.
    for n in 0..count {
        world.delete(&name(n));
    }
    world.ticks_within(PATIENCE, 3);
    let before = pages();
    world.ticks_within(PATIENCE, 3);
    assert_eq!(pages(), before, "{}", daemon.log());
    assert_eq!(common::ccm(&world.env, &["lb", "sync"]).code, 0);
}
