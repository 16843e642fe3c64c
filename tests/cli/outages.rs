//! Outages as an operator meets them. `status`, `doctor`, `lb list`, `lb inspect` and the events say the same.

use crate::common::{Cluster, ccm, needs_simulation, run_in_parallel, snapshot, wait_until, with};
use crate::doctor::broken_clusters::{make_older, make_young, not_ready};
use crate::doctor::world::{CIDR, World, checks};
use crate::screens::{Place, of, shown};
use sandbox::Half;
use serde_json::Value;

const ALONE: &str = "--settings-from=none";

/// Returns two Services on three nodes. `shop` has only one node as its target.
fn world() -> World {
    let mut world = World::with_machines(3, 0);
    let shop = [("location", "fsn1"), ("node-selector", "kubernetes.io/hostname=worker-3")];
    world.create("shop", &shop, &[443]);
    world.env = with(world.env.clone(), &[("HCLOUD_LOAD_BALANCERS_TYPE", "lb11")]);
    ccm(&world.env, &["lb", "sync", ALONE]).with_code(0);
    for name in ["web", "shop"] {
        make_older(&world, name);
        wait_for_status(&world, name, "healthy");
    }
    world
}

/// Waits until each health check of the Service's load balancer says the same.
fn wait_for_status(world: &World, name: &str, status: &str) {
    let id = world.balancer_id(name);
    wait_until("health checks", || {
        let all = world.sandbox.cloud().load_balancers(world.sandbox.project());
        let balancer = all.iter().find(|one| one["id"] == id).unwrap();
        let targets = balancer["targets"].as_array().unwrap().iter();
        let mut checks = targets.flat_map(|one| one["health_status"].as_array().unwrap());
        checks.all(|check| check["status"] == status)
    });
}

fn turn_off(world: &World, nodes: &[&str]) {
    for name in nodes {
        world.set_power(name, false);
        not_ready(world, name);
    }
}

struct Outage {
    what: &'static str,
    begin: fn(&mut World),
    /// The cells TARGETS of `shop` and of `web`.
    targets: [&'static str; 2],
    /// How many load balancers serve, and how many there are. `None` means that it is unknown.
    serving: Option<[u64; 2]>,
    /// The status and a part of the message of the check `targets`, for both Services.
    doctor: [(&'static str, &'static str); 2],
    /// Whether an event says that no traffic reaches the Service.
    has_event: [bool; 2],
}

#[rustfmt::skip] // An outage is a paragraph.
const OUTAGES: &[Outage] = &[
    Outage { what: "nothing", begin: |_| {}, targets: ["1/1", "3/3"], serving: Some([2, 2]),
        doctor: [("ok", ""), ("ok", "")], has_event: [false, false] },
    Outage { what: "all servers are off", begin: |world| turn_off(world, &["worker-1", "worker-2", "worker-3"]),
        targets: ["0/1", "0/3"], serving: Some([0, 2]),
        doctor: [
            ("fail", "0 of 1 targets healthy; worker-3: the server is off (the check \"servers\" says how to switch it on)"),
            ("fail", "0 of 3 targets healthy; worker-1, worker-2, worker-3: the server is off (the check \"servers\" says how to switch it on)"),
        ], has_event: [true, true] },
    Outage { what: "all servers of new Services are off", begin: |world| {
            for name in SERVICES {
                make_young(world, name);
            }
            turn_off(world, &["worker-1", "worker-2", "worker-3"]);
        },
        targets: ["0/1", "0/3"], serving: Some([0, 2]),
        doctor: [
            ("warn", "0 of 1 targets healthy; worker-3: the server is off (the check \"servers\" says how to switch it on); the Service is younger than 3 minutes"),
            ("warn", "0 of 3 targets healthy; worker-1, worker-2, worker-3: the server is off (the check \"servers\" says how to switch it on); the Service is"),
        ], has_event: [false, false] },
    Outage { what: "one server of three is off", begin: |world| turn_off(world, &["worker-1"]),
        targets: ["1/1", "2/3"], serving: Some([2, 2]),
        doctor: [("ok", ""), ("warn", "2 of 3 targets healthy; worker-1: the server is off (the check \"servers\" says how to switch it on)")],
        has_event: [false, false] },
    Outage { what: "one load balancer of two serves nothing", begin: |world| turn_off(world, &["worker-3"]),
        targets: ["0/1", "2/3"], serving: Some([1, 2]),
        doctor: [
            ("fail", "0 of 1 targets healthy; worker-3: the server is off"),
            ("warn", "2 of 3 targets healthy; worker-3: the server is off"),
        ], has_event: [true, false] },
    Outage { what: "the Cloud API does not answer", begin: |world| world.sandbox.stop(Half::Hetzner),
        targets: ["?", "?"], serving: None, doctor: [("skipped", ""), ("skipped", "")], has_event: [false, false] },
    Outage { what: "the API server does not answer", begin: |world| world.sandbox.stop(Half::Kubernetes),
        targets: ["1/1", "3/3"], serving: Some([2, 2]), doctor: [("ok", ""), ("ok", "")], has_event: [false, false] },
];

const SERVICES: [&str; 2] = ["shop", "web"];

/// The world in which the outage has begun, and a pass of the daemon has seen that.
fn begun(outage: &Outage) -> World {
    let mut world = world();
    (outage.begin)(&mut world);
    for (name, targets) in SERVICES.iter().zip(outage.targets) {
        if let Some(("0", _)) = targets.split_once('/') {
            wait_for_status(&world, name, "unhealthy");
        }
    }
    wait_until("the health that is expected", || {
        let list = world.runs(&["lb", "list"]).stdout;
        SERVICES.iter().zip(outage.targets).all(|(name, targets)| {
            let line = list.lines().find(|line| line.starts_with(&format!("default/{name} ")));
            line.is_some_and(|line| line.split_whitespace().any(|cell| cell == targets))
        })
    });
    let daemon = ["run", "--once", "--leader-elect=false", CIDR];
    let ran = ccm(&world.env, &daemon);
    let is_over = outage.serving.is_some() && !outage.what.contains("API");
    assert_eq!(ran.code == 0, is_over, "{}: {ran:?}", outage.what);
    world
}

/// Returns the status and the message of `doctor` about the targets of a Service.
fn of_targets(report: &Value, name: &str) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = report["items"].as_array().unwrap().iter();
    let mut items = items.filter(|item| item["check"] == "targets").peekable();
    let first = text(&items.peek().unwrap()["status"]);
    let object = format!("service/default/{name}");
    match items.find(|item| item["object"] == object.as_str()) {
        Some(item) => (text(&item["status"]), text(&item["message"])),
        None if first == "skipped" => (first, String::new()),
        None => ("ok".to_owned(), String::new()),
    }
}

#[test]
fn every_command_describes_an_outage_in_the_same_words() {
    run_in_parallel(OUTAGES.iter().collect(), |outage| {
        let world = begun(outage);
        let what = outage.what;
        let status = world.runs(&["status", CIDR, "-o", "json"]).json();
        let serving = &status["loadBalancers"];
        match outage.serving {
            None => assert!(serving.is_null(), "{what}: {status}"),
            Some([healthy, total]) => {
                let wanted = (&healthy.into(), &total.into());
                assert_eq!((&serving["healthy"], &serving["total"]), wanted, "{what}");
            }
        }
        let ran = world.doctor(&["-o", "json"]);
        let report = ran.json();
        for (number, name) in SERVICES.iter().enumerate() {
            let (expected, part) = outage.doctor[number];
            let (status, message) = of_targets(&report, name);
            assert_eq!(status, expected, "{what}: {name}: {ran:?}");
            assert!(message.contains(part), "{what}: {name}: {ran:?}");
            let events = world.sandbox.cluster().list("events", None);
            let is_it = |event: &&Value| {
                event["reason"] == "NoHealthyTarget" && event["involvedObject"]["name"] == *name
            };
            let events: Vec<&Value> = events.iter().filter(is_it).collect();
            let wanted = &outage.has_event[number];
            assert_eq!(!events.is_empty(), *wanted, "{what}: {name}: {events:?}");
        }
        // The fix is named once, where the servers are listed.
        let text = world.doctor(&[]).stdout;
        let off = text.matches("is off; the node").count();
        let fixes = text.matches("hcloud server poweron").count();
        assert_eq!(off, fixes, "{what}: {text}");
        let of_servers = checks(&ran).into_iter().find(|(name, _)| name == "servers");
        assert!(of_servers.is_some(), "{what}: {ran:?}");
    });
}

/// The outputs are those of a terminal. `doctor` shows the same findings as `status`, and then their number.
#[test]
fn the_texts_of_outages_are_the_snapshots() {
    if needs_simulation(&crate::common::socket_cluster(0), "numbers that are the same in each run")
    {
        return;
    }
    run_in_parallel(vec![80, 120], |columns| {
        let mut all = String::new();
        for outage in &OUTAGES[1..] {
            let Place { env, sandbox } = of(begun(outage));
            let place = Place { env: with(env, &[("TERM", "dumb")]), sandbox };
            all += &format!("=== {}\n\n", outage.what);
            let at_terminal = |words: &[&str]| shown(&place, columns, words);
            let Some(status) = at_terminal(&["status", CIDR, ALONE]) else {
                return;
            };
            let doctor = at_terminal(&["doctor", CIDR, ALONE]).unwrap();
            let (command, doctor) = doctor.split_once('\n').unwrap();
            let bad = without_good(doctor);
            let (findings, count) = bad.rsplit_once('\n').unwrap();
            let (_, of_status) = status.trim_end().split_once("\n\n").unwrap();
            assert_eq!(findings, of_status, "{}", outage.what);
            all += &format!("{status}{command}\n{count}\n\n");
            for words in [&["lb", "list", ALONE][..], &["lb", "inspect", "default/shop", ALONE]] {
                all += &at_terminal(words).unwrap();
            }
        }
        snapshot(&format!("outages-{columns}.txt"), &all);
    });
}

/// The lines of `doctor` without those of checks that are ok or were skipped.
fn without_good(screen: &str) -> String {
    let mut is_good = false;
    let mut lines = Vec::new();
    for line in screen.lines() {
        if !line.starts_with(' ') {
            is_good = line.starts_with("ok ") || line.starts_with("skipped ");
        }
        if !is_good {
            lines.push(line);
        }
    }
    lines.join("\n").trim_end().to_owned()
}
