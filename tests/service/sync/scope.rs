//! `--load-balancer-class` and `--service-selector`: a Service that is not ours any more stays as it is, until it
//! is ours again.

use crate::common::{self, wait_until};
use crate::sync::external::{allow, as_it_is, create_as_terraform};
use crate::sync::killed::killed_after;
use crate::sync::shared::EDGE;
use crate::sync::world::{
    CLUSTER_UID, Cluster, NO_RESYNC, OFTEN, World, id, listen_ports, service,
};
use sandbox::Builder;
use serde_json::{Value, json};

const MISTYPED: &str = "--service-selector=tier=fornt";
const DELETE_ORPHANS: &str = "--delete-orphaned-load-balancers";
const CLASS: &str = "--load-balancer-class=example.com/hetzner";

fn all(world: &World) -> Vec<Value> {
    let all = world.balancers();
    all.iter().map(|one| as_it_is(world, id(one))).collect()
}

/// Ports, targets, addresses and all else.
fn assert_same(world: &World, before: &[Value], what: &str) {
    assert_eq!(all(world), before, "{what}");
}

fn set_label(world: &World, name: &str, value: &str) {
    world.edit(name, |one| {
        one["metadata"]["labels"] = json!({ "lb": value });
    });
}

/// Own, shared and external ones.
fn cluster(builder: fn(Builder) -> World) -> (World, Vec<&'static str>) {
    let world = builder(common::builder().nodes(2).network("10.0.0.0/8"));
    world.converge(&[]);
    let edge = create_as_terraform(&world, "edge-lb");
    allow(&world, edge, Some("default"));
    world.create("web", &[], &[80, 443]);
    world.create("old", &[EDGE], &[8081]);
    world.create("young", &[EDGE], &[8082]);
    world.create("external", &[("external", "edge-lb")], &[81]);
    world.converge(&[]);
    (world, vec!["web", "old", "young", "external"])
}

#[test]
fn a_mistyped_selector_changes_no_load_balancer_and_its_correction_syncs_all() {
    for wrong in [MISTYPED, CLASS] {
        let (world, names) = cluster(World::of);
        let before = all(&world);
        let addresses = Vec::from_iter(names.iter().map(|name| world.addresses(name)));
        let mark = world.mark();
        world.converge(&[wrong, DELETE_ORPHANS]);
        assert_same(&world, &before, wrong);
        let writes = world.writes(mark);
        assert_eq!(writes.len(), names.len(), "one each: {writes:#?}");
        for (name, before) in names.iter().zip(&addresses) {
            assert!(!world.has_finalizer(name), "{name}");
            assert_eq!(world.addresses(name), *before);
            let says = ["ends, because the Service's", "stay unchanged"];
            world.wait_for_event(name, "LoadBalancerReleased", &says);
        }
        // The load balancers stay, however long it lasts and whatever changes.
        let mark = world.mark();
        let daemon = world.daemon(&[wrong, OFTEN, DELETE_ORPHANS]);
        world.set_port("web", 8080);
        world.annotate("old", "algorithm-type", Some("least_connections"));
        world.ticks(6);
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
        drop(daemon);
        world.set_port("web", 80);
        world.annotate("old", "algorithm-type", None);

        let mark = world.mark();
        world.converge(&[DELETE_ORPHANS]);
        assert_same(&world, &before, "again ours");
        let writes = world.writes(mark);
        assert_eq!(writes.len(), names.len(), "a finalizer each: {writes:#?}");
        for name in names {
            assert!(world.has_finalizer(name), "{name}");
            world.delete(name);
        }
        world.converge(&[]);
        assert_eq!(all(&world).len(), 1, "the external one");
    }
}

/// The label of the Service changes while the daemon runs.
#[test]
fn a_service_that_leaves_the_selector_is_left_alone_until_it_returns() {
    let world = World::new(1);
    let label = |value: &str| set_label(&world, "web", value);
    let daemon = world.daemon(&[NO_RESYNC, "--service-selector=lb in (a, b),lb!=c"]);
    world.create("web", &[], &[80]);
    let mark = world.mark();
    world.ticks(3);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    label("a");
    let balancer = id(&world.up("web"));
    wait_until("the finalizer", || world.has_finalizer("web"));
    let before = as_it_is(&world, balancer);
    label("metallb");
    wait_until("its end", || !world.has_finalizer("web"));
    world.set_port("web", 81);
    world.ticks(3);
    assert_eq!(as_it_is(&world, balancer), before);
    label("b");
    wait_until("the new port", || as_it_is(&world, balancer)["services"][0]["listen_port"] == 81);
    assert!(world.has_finalizer("web"));
    assert_eq!(world.balancers().len(), 1);
}

/// The Service's port on the load balancer of a group stays. The other Services are synced beside it and converge.
#[test]
fn a_service_of_a_group_outside_the_selector_is_left_alone() {
    let world = World::new(1);
    world.converge(&[]);
    for (name, port) in [("old", 80), ("young", 81)] {
        world.create(name, &[EDGE], &[port]);
    }
    world.converge(&[]);
    let shared = id(&world.only_balancer());
    set_label(&world, "old", "metallb");
    let daemon = world.daemon(&[NO_RESYNC, "--service-selector=lb!=metallb"]);
    wait_until("its end", || !world.has_finalizer("old"));
    world.set_port("young", 82);
    let numbers = || listen_ports(&as_it_is(&world, shared));
    wait_until("the port beside", || numbers() == [80, 82]);
    world.ticks(3);
    let mark = world.mark();
    world.ticks(10);
    let calls = world.cloud_calls(mark);
    assert!(calls.is_empty(), "{calls:?}\n{}", daemon.log());
    world.delete_and_wait("young");
    assert_eq!(numbers(), [80]);
    world.delete_and_wait("old");
    drop(daemon);
    let ran = world.ccm(&["lb", "list"]);
    ran.prints("orphan");
}

/// The finalizer does not hold a Service that is left alone. Its load balancer is then an orphan, as after any deletion
/// that the daemon does not see. A load balancer without our labels, and a Service that may be another controller's,
/// are not changed.
#[test]
fn a_service_that_is_deleted_outside_the_selector_leaves_an_orphan() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.create("retyped", &[], &[80]);
    world.create("upstream", &[], &[80]);
    world.converge(&[]);
    let upstream = world.up("upstream");
    // Hetzner's controller leaves only the UID.
    let labels = upstream["labels"].as_object().unwrap().clone();
    let is_ours = |label: &&String| label.starts_with("ccm-from-scratch/");
    assert!(labels.contains_key(CLUSTER_UID));
    for label in labels.keys().filter(is_ours) {
        world.edit_balancer(id(&upstream), |one| {
            one["labels"].as_object_mut().unwrap().remove(label);
        });
    }
    world.set_type("retyped", "ClusterIP");
    for name in ["web", "upstream"] {
        world.delete(name);
    }
    let before = all(&world);
    world.converge(&[MISTYPED]);
    assert_same(&world, &before, "left alone");
    assert_eq!(world.service("web"), None, "no finalizer holds it");
    for name in ["retyped", "upstream"] {
        assert!(world.has_finalizer(name), "{name}");
    }
    let ran = world.ccm(&["lb", "list", MISTYPED]);
    ran.prints("orphan");
    // A person says that the finalizer is ours.
    let ran = world.ccm(&["lb", "release", "default/upstream", "--yes", MISTYPED]);
    assert_eq!((ran.code, world.service("upstream")), (0, None), "{ran:?}");
    // Ours again, it is cleaned up.
    world.converge(&[]);
    assert_eq!(world.finalizers("retyped"), Value::Null);
    // The orphan, and the one that was released.
    assert_eq!(all(&world).len(), 2);
}

/// A Service of the class, and one without a class.
fn create_both(world: &World) {
    let mut classed = service("classed", &[], &[80]);
    classed["spec"]["loadBalancerClass"] = json!("example.com/hetzner");
    world.create_as(classed);
    world.create("plain", &[], &[80]);
}

#[test]
fn only_services_of_the_class_are_ours() {
    let world = World::new(1);
    create_both(&world);
    world.converge(&[CLASS]);
    assert_eq!(world.balancers().len(), 1);
    assert!(world.addresses("plain").is_empty() && world.has_address("classed"));
    let before = all(&world);
    // There is no workload of a daemon, so the shell's own settings count.
    let mark = world.mark();
    let ran = world.ccm(&["lb", "sync", "--dry-run", "default/classed"]);
    assert_eq!((ran.code, world.writes(mark)), (0, vec![]), "{ran:?}");
    let ran = world.ccm(&["lb", "list"]);
    ran.prints("not managed");
    let ran = world.ccm(&["lb", "inspect", "default/classed"]);
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the Service's spec.loadBalancerClass differs from the flag"), "{said}");
    assert_same(&world, &before, "in a shell");
    world.delete("classed");
    world.converge(&[CLASS]);
    assert_eq!(world.service("classed"), None);
    assert_eq!(world.balancers().len(), 0);
}

/// Two daemons with different classes do not undo each other's finalizers for ever.
#[test]
fn two_daemons_with_different_classes_converge() {
    let world = World::new(1);
    create_both(&world);
    let flags = ["--leader-elect=false", OFTEN];
    let one = world.daemon(&[&flags[..], &[CLASS]].concat());
    let other = world.daemon(&flags);
    for name in ["classed", "plain"] {
        world.up(name);
    }
    let is_whole = || {
        let mut names = ["classed", "plain"].iter();
        names.all(|name| world.has_finalizer(name))
    };
    world.ticks(20);
    wait_until("both finalizers", is_whole);
    let mark = world.mark();
    world.ticks(20);
    let logs = one.log() + &other.log();
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{logs}");
    // Each daemon still deletes its own load balancers.
    world.delete("classed");
    world.delete("plain");
    wait_until("the end", || {
        let names = ["classed", "plain"];
        world.balancers().is_empty() && names.iter().all(|name| world.service(name).is_none())
    });
}

/// A Service costs one write, so between any two there is a Service that is whole.
#[test]
fn a_mistyped_selector_and_its_correction_survive_a_kill_at_any_write() {
    common::run_in_parallel((1..=4_u64).collect(), |n| {
        let (world, names) = cluster(World::over_sockets);
        let before = all(&world);
        for (flag, held) in [(MISTYPED, false), (NO_RESYNC, true)] {
            let (daemon, rule) = killed_after(&world, flag, n);
            wait_until("the write", || world.faults().hits(rule) > 0);
            drop(daemon);
            world.faults().clear();
            world.converge(&[flag]);
            assert_same(&world, &before, flag);
            for name in &names {
                assert_eq!(world.has_finalizer(name), held, "{name}");
            }
        }
    });
}
