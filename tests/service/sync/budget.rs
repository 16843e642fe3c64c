//! The annotations of all Services together have a limit for each namespace and one in total, and the oldest Services
//! come first. Lists may be long because of what other programs store on Services.

use crate::common::{Daemon, wait_at_most, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, World, key, len, service};
use ccm::provider::clock;
use sandbox::calls::Call;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

const GREEDY: &str = "greedy";
/// How many Services with 30 kB each are within the limit of 4 MiB.
const FIT: usize = 130;
const MORE: usize = 30;
const PATIENCE: Duration = Duration::from_secs(240);

/// Names with commas, some 15 kB of them.
fn names() -> String {
    let all: Vec<String> = (0..1350).map(|n| format!("other-{n:04}")).collect();
    all[..].join(",")
}

/// A Service with 30 kB of annotations that are read, and that ask for what every Service has.
fn large(name: &str) -> Value {
    let names = names();
    let nodes = format!("pool notin ({names})");
    let annotations = [("node-selector", &*nodes), ("share-namespaces", &*names)];
    service(name, &annotations, &[80])
}

/// Waits until Services that are created later are younger, because ages are in whole seconds.
fn next_second() {
    let begun = clock::now();
    wait_until("a younger second", || clock::since(begun) > Duration::from_millis(1100));
}

fn name(n: usize) -> String {
    format!("{GREEDY}/svc-{n:04}")
}

/// Services of which the log says that their annotations are above the limit.
fn reported(daemon: &Daemon) -> BTreeSet<String> {
    let log = daemon.log();
    let lines = log.lines();
    let lines = lines.filter(|line| line.contains("have more than 4 MiB"));
    let object = |line: &str| Some(line.split_once("service/")?.1.split_once(':')?.0.to_owned());
    lines.filter_map(object).collect()
}

/// Waits until all of these Services have addresses. A Service that has one is not checked again.
fn have_addresses(world: &World, services: Range<usize>) {
    let mut services = services.peekable();
    wait_at_most(PATIENCE, "addresses", || {
        while services.next_if(|n| world.has_address(&name(*n))).is_some() {}
        services.peek().is_none()
    });
}

/// A namespace has more annotations than ccm keeps. Its oldest Services are synced, and those of other namespaces, too.
/// Each younger Service reports the limit and stays as it is. It still counts as existing, and is deleted on request.
#[test]
fn a_namespace_with_more_than_its_share_keeps_its_oldest_services() {
    let world = World::new(1);
    world.create_namespace(GREEDY);
    for n in 0..FIT {
        world.create_as(large(&name(n)));
    }
    let daemon = world.daemon(&[NO_RESYNC]);
    have_addresses(&world, 0..FIT);
    next_second();
    for n in FIT..FIT + MORE {
        world.create_as(large(&name(n)));
    }
    wait_at_most(PATIENCE, "what is said of the youngest", || reported(&daemon).len() >= MORE / 3);
    world.create_as(large("honest"));
    wait_at_most(PATIENCE, "an address in another namespace", || world.has_address("honest"));
    world.ticks_within(PATIENCE, 3);
    let above = reported(&daemon);
    assert!((0..FIT).all(|n| !above.contains(&name(n))), "{above:?}");
    let youngest: Vec<String> = (FIT..FIT + MORE).map(name).collect();
    wait_at_most(PATIENCE, "an address or a word for each", || {
        let above = reported(&daemon);
        let mut youngest = youngest.iter();
        youngest.all(|name| world.has_address(name) != above.contains(name))
    });
    // The youngest are served while they are small. Later one of two that share a load balancer asks for more, and
    // nothing of it changes.
    next_second();
    let small = ["greedy/small", "greedy/other"];
    for (name, port) in small.iter().zip([80, 81]) {
        world.create(name, &[("share", "edge")], &[port]);
    }
    wait_at_most(PATIENCE, "addresses of small ones", || {
        small.iter().all(|name| world.has_address(name))
    });
    let of_both = || {
        let mut all = world.balancers();
        all.retain(|one| one["labels"]["ccm-from-scratch/group"] == "greedy.edge");
        let mut both = all.pop().unwrap();
        // The targets become healthy meanwhile.
        for target in both["targets"].as_array_mut().unwrap() {
            target["health_status"].take();
        }
        both
    };
    let before = of_both();
    let mut annotations = large(small[0])["metadata"]["annotations"].clone();
    annotations[key("share")] = json!("edge");
    annotations[key("health-check-interval")] = json!("20s");
    world.edit(small[0], |one| {
        one["metadata"]["annotations"] = annotations.clone();
    });
    wait_at_most(PATIENCE, "what is said of the small one", || {
        reported(&daemon).contains(small[0])
    });
    world.ticks_within(PATIENCE, 3);
    assert_eq!(of_both(), before, "{}", daemon.log());
    let all = world.ccm(&["lb", "list", "-o", "json"]).json();
    let mut items = all["items"].as_array().unwrap().iter();
    assert!(items.all(|one| one["orphan"] != json!(true)));
    // People see what serves it.
    let list = world.ccm(&["lb", "list"]).stdout;
    let mut rows = list.lines();
    let row = rows.find(|line| line.starts_with("greedy/small "));
    let row = row.expect("the Service is listed");
    assert!(row.contains("kubernetes-greedy-edge"), "{row}");
    // The deletion of such a Service is carried out.
    let above = reported(&daemon);
    let last = youngest.iter().find(|name| above.contains(*name)).unwrap();
    let ending = [small[0], last];
    for name in ending {
        world.delete(name);
    }
    wait_at_most(PATIENCE, "the end of two Services", || {
        ending.iter().all(|name| world.service(name).is_none())
    });
    let ports = of_both()["services"].clone();
    assert_eq!((len(&ports), &ports[0]["listen_port"]), (1, &json!(81)));
}

/// Other programs may store 256 kB on each Service. A list that is too long is read in pages.
#[test]
fn a_list_that_is_long_because_of_foreign_annotations_ends_no_sync() {
    // This is more than ccm reads of one answer.
    let count = std::env::var("CCM_TEST_LARGE_SERVICES").map_or(280, |text| text.parse().unwrap());
    let world = World::new(1);
    let foreign = "x".repeat(250_000);
    let name = |n: usize| format!("svc-{n:04}");
    for n in 0..count {
        let mut other = service(&name(n), &[], &[80]);
        other["metadata"]["annotations"] = json!({ "example.com/state": foreign });
        other["spec"]["loadBalancerClass"] = json!("example.com/other");
        world.create_as(other);
    }
    world.create("web", &[], &[80]);
    // Each poll reads 70 MB, so there should be few polls.
    let daemon = Daemon::start(&world.env, &[NO_RESYNC]);
    let pages = || {
        let is_page = |call: &Call| {
            call.path == "/api/v1/services"
                && call.query("fieldSelector") == Some("spec.type=LoadBalancer")
                && call.query("continue").is_some()
        };
        world.calls().count(is_page)
    };
    wait_at_most(PATIENCE, "an address", || world.has_address("web"));
    assert!(pages() > 0, "{}", daemon.log());
    // When the list is short again, one call reads it.
    for n in 0..count {
        world.delete(&name(n));
    }
    world.ticks_within(PATIENCE, 3);
    let before = pages();
    world.ticks_within(PATIENCE, 3);
    assert_eq!(pages(), before, "{}", daemon.log());
    world.ccm(&["lb", "sync"]).with_code(0);
}
