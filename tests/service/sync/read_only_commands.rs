//! Commands that only read.

use crate::common;
use crate::sync::world::{Cluster, World, service};
use serde_json::json;

/// Creates a cluster in which every kind of change would be made: creations, changes, deletions, cleanups and refusals.
fn cluster_with_all_differences() -> World {
    let world = World::over_sockets(common::builder().nodes(2));
    world.converge(&[]);
    world.create("changed", &[], &[80]);
    world.create("gone", &[], &[80]);
    world.create("retyped", &[], &[80]);
    world.converge(&[]);
    world.annotate("changed", "algorithm-type", Some("least_connections"));
    world.delete("gone");
    world.set_type("retyped", "ClusterIP");
    world.create("new", &[], &[80]);
    world.create("wrong", &[("type", "lb99")], &[80]);
    let mut foreign = service("foreign", &[], &[80]);
    foreign["spec"]["loadBalancerClass"] = json!("example.com/other");
    world.create_as(foreign);
    world
}

#[rustfmt::skip] // A case is a line.
const CASES: &[(&[&str], &[&str])] = &[
    (&["run", "--once", "--dry-run"], &["new", "changed", "gone", "retyped", "lb99"]),
    (&["lb", "sync", "--dry-run"], &["new", "changed", "gone", "retyped", "lb99"]),
    (&["lb", "sync", "--dry-run", "-o", "json"], &["new", "algorithm", "lb99"]),
    (&["lb", "sync", "default/new", "--dry-run"], &["+ service/default/new  create load balancer"]),
    (&["lb", "list"], &["new", "create", "algorithm", "delete", "!SyncLoadBalancerFailed"]),
    (&["lb", "list", "-o", "wide"], &["lb11", "fsn1"]),
    (&["lb", "list", "-n", "default", "-o", "json"], &["LoadBalancerList"]),
    (&["lb", "inspect", "default/changed"], &["~ algorithm: round_robin → least_connections"]),
    (&["lb", "inspect", "default/gone"], &["- delete load balancer", "- remove finalizer", "worker-1"]),
    (&["lb", "inspect", "default/retyped"], &["- delete load balancer", "- remove finalizer"]),
    (&["lb", "inspect", "default/new", "-o", "yaml"], &["LoadBalancerInspection"]),
    (&["lb", "inspect", "default/wrong"], &["lb99", "lb11"]),
];

#[test]
fn commands_that_only_read_write_nothing() {
    let world = cluster_with_all_differences();
    for (words, says) in CASES {
        let mark = world.mark();
        let ran = world.ccm(words);
        for part in *says {
            let text = format!("{}{}", ran.stdout, ran.stderr);
            assert!(text.contains(part), "{words:?}: {part}: {ran:?}");
        }
        let calls = world.calls().calls_since(mark);
        assert!(!calls.is_empty());
        let writes: Vec<_> = calls.iter().filter(|call| call.is_write()).collect();
        assert!(writes.is_empty(), "{words:?}: {writes:?}");
    }
    world.assert_nothing_refused();
}

#[test]
fn a_sync_makes_the_changes_of_its_dry_run() {
    let world = cluster_with_all_differences();
    let dry = world.ccm(&["lb", "sync", "--dry-run", "-o", "json"]);
    let planned = dry.json();
    let items = planned["items"].as_array().unwrap();
    let changes = items.iter().flat_map(|item| item["changes"].as_array().unwrap());
    let planned = changes.filter(|change| change.get("request").is_some()).count();
    let mark = world.mark();
    let ran = world.ccm(&["lb", "sync"]);
    assert_eq!(ran.code, 1, "one of them can't be done: {ran:?}");
    assert_eq!(world.cloud_writes(mark).len(), planned, "{ran:?}");
    let again = world.ccm(&["lb", "sync", "--dry-run", "-o", "json"]);
    let again = again.json();
    let mut items = again["items"].as_array().unwrap().iter();
    assert!(items.all(|item| item["changes"] == json!([])), "{again:#}");
}

#[test]
fn a_command_reports_that_its_controller_is_turned_off_and_does_nothing() {
    let mut world = World::over_sockets(common::builder().nodes(1));
    world.create("web", &[], &[80]);
    world.set(&[("HCLOUD_LOAD_BALANCERS_ENABLED", "false")]);
    let mark = world.mark();
    let says =
        "HCLOUD_LOAD_BALANCERS_ENABLED=false: ccm creates, changes and deletes no load balancer";
    #[rustfmt::skip] // A case is a line.
    let cases: [(&[&str], i32); 6] = [
        (&["lb", "list"], 0),
        (&["lb", "list", "-n", "default"], 0),
        (&["lb", "list", "-o", "json"], 0),
        (&["lb", "inspect", "default/web"], 1),
        (&["lb", "sync", "default/web"], 1),
        (&["lb", "sync", "--dry-run"], 1),
    ];
    for (words, code) in cases {
        let ran = world.ccm(words);
        assert_eq!(ran.code, code, "{words:?}: {ran:?}");
        let all = ran.stdout + &ran.stderr;
        assert!(all.contains(says) && !all.contains("has no Service"), "{words:?}: {all}");
    }
    assert_eq!(world.writes(mark), Vec::<String>::new());
}
