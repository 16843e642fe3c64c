//! `--load-balancer-class` and `--service-selector`: what is not ours any more stays as it is, and comes back.

use crate::common::{self, Daemon, wait_until};
use crate::sync::external::{allow, as_it_is, terraforms};
use crate::sync::killed::is_about_services;
use crate::sync::shared::{EDGE, id};
use crate::sync::world::{CLUSTER_UID, Cluster, FINALIZER, NO_RESYNC, OFTEN, World, service};
use sandbox::Builder;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

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

fn finalizers(world: &World, name: &str) -> Value {
    world.service(name).unwrap()["metadata"]["finalizers"].clone()
}

/// Own, shared and external ones.
fn cluster(builder: fn(Builder) -> World) -> (World, Vec<&'static str>) {
    let world = builder(common::builder().nodes(2).network("10.0.0.0/8"));
    world.settle(&[]);
    let edge = terraforms(&world, "edge-lb");
    allow(&world, edge, Some("default"));
    world.create("web", &[], &[80, 443]);
    world.create("old", &[EDGE], &[8081]);
    world.create("young", &[EDGE], &[8082]);
    world.create("external", &[("external", "edge-lb")], &[81]);
    world.settle(&[]);
    (world, vec!["web", "old", "young", "external"])
}

#[test]
fn a_mistyped_selector_takes_nothing_down_and_all_comes_back() {
    for wrong in [MISTYPED, CLASS] {
        let (world, names) = cluster(World::of);
        let before = all(&world);
        let addresses = Vec::from_iter(names.iter().map(|name| world.addresses(name)));
        let mark = world.mark();
        world.settle(&[wrong, DELETE_ORPHANS]);
        assert_same(&world, &before, wrong);
        let writes = world.writes(mark);
        assert_eq!(writes.len(), names.len(), "one each: {writes:#?}");
        for (name, before) in names.iter().zip(&addresses) {
            assert_ne!(finalizers(&world, name), json!([FINALIZER]), "{name}");
            assert_eq!(world.addresses(name), *before);
            world.tells(
                name,
                "LoadBalancerReleased",
                &["ends, because its", "stay as they are"],
            );
        }
        // However long it lasts, and whatever changes.
        let mark = world.mark();
        let daemon = world.daemon(&[wrong, OFTEN, DELETE_ORPHANS]);
        world.edit("web", |one| one["spec"]["ports"][0]["port"] = json!(8080));
        world.annotate("old", "algorithm-type", Some("least_connections"));
        world.ticks(6);
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
        drop(daemon);
        world.edit("web", |one| one["spec"]["ports"][0]["port"] = json!(80));
        world.annotate("old", "algorithm-type", None);

        let mark = world.mark();
        world.settle(&[DELETE_ORPHANS]);
        assert_same(&world, &before, "again ours");
        let writes = world.writes(mark);
        assert_eq!(writes.len(), names.len(), "a finalizer each: {writes:#?}");
        for name in names {
            assert_eq!(finalizers(&world, name), json!([FINALIZER]), "{name}");
            world.delete(name);
        }
        world.settle(&[]);
        assert_eq!(all(&world).len(), 1, "the external one");
    }
}

/// By its label, while the daemon runs.
#[test]
fn one_service_leaves_and_returns() {
    let world = World::new(1);
    let label = |value: &str| {
        world.edit("web", |one| {
            one["metadata"]["labels"] = json!({ "lb": value })
        });
    };
    let daemon = world.daemon(&[NO_RESYNC, "--service-selector=lb in (a, b),lb!=c"]);
    world.create("web", &[], &[80]);
    let mark = world.mark();
    world.ticks(3);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    label("a");
    let balancer = id(&world.up("web"));
    wait_until("the finalizer", || {
        finalizers(&world, "web") == json!([FINALIZER])
    });
    let before = as_it_is(&world, balancer);
    label("metallb");
    wait_until("its end", || {
        finalizers(&world, "web") != json!([FINALIZER])
    });
    world.edit("web", |one| one["spec"]["ports"][0]["port"] = json!(81));
    world.ticks(3);
    assert_eq!(as_it_is(&world, balancer), before);
    label("b");
    wait_until("the new port", || {
        as_it_is(&world, balancer)["services"][0]["listen_port"] == 81
    });
    assert_eq!(finalizers(&world, "web"), json!([FINALIZER]));
    assert_eq!(world.balancers().len(), 1);
}

/// Its port on the load balancer of a group stays, and the others go on beside it, and come to rest.
#[test]
fn one_of_a_group_is_left_alone() {
    let world = World::new(1);
    world.settle(&[]);
    for (name, port) in [("old", 80), ("young", 81)] {
        world.create(name, &[EDGE], &[port]);
    }
    world.settle(&[]);
    let shared = id(&world.only());
    world.edit("old", |one| {
        one["metadata"]["labels"] = json!({ "lb": "metallb" })
    });
    let daemon = world.daemon(&[NO_RESYNC, "--service-selector=lb!=metallb"]);
    wait_until("its end", || {
        finalizers(&world, "old") != json!([FINALIZER])
    });
    world.edit("young", |one| one["spec"]["ports"][0]["port"] = json!(82));
    let numbers = || {
        let balancer = as_it_is(&world, shared);
        let all = balancer["services"].as_array().unwrap().clone();
        Vec::from_iter(all.iter().map(|one| one["listen_port"].as_u64().unwrap()))
    };
    wait_until("the port beside", || numbers() == [80, 82]);
    world.ticks(3);
    let mark = world.mark();
    world.ticks(10);
    let calls = world.cloud_calls(mark);
    assert!(calls.is_empty(), "{calls:?}\n{}", daemon.log());
    world.delete("young");
    wait_until("its end", || world.service("young").is_none());
    assert_eq!(numbers(), [80]);
    world.delete("old");
    wait_until("its end", || world.service("old").is_none());
    drop(daemon);
    let ran = common::ccm(&world.env, &["lb", "list"]);
    assert!(ran.stdout.contains("orphan"), "{ran:?}");
}

/// The finalizer holds no Service that is left alone; its load balancer is an orphan then, as after any deletion that we
/// do not see. One that was not ours by its labels, and a Service that may be another controller's, are not touched.
#[test]
fn deleted_while_it_is_left_alone() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.create("retyped", &[], &[80]);
    world.create("upstream", &[], &[80]);
    world.settle(&[]);
    let upstream = world.up("upstream");
    // As Hetzner's controller leaves it: the UID alone.
    let labels = upstream["labels"].as_object().unwrap().clone();
    let is_ours = |label: &&String| label.starts_with("ccm-from-scratch/");
    assert!(labels.contains_key(CLUSTER_UID));
    for label in labels.keys().filter(is_ours) {
        world.cloud().edit_load_balancer(id(&upstream), |one| {
            one["labels"].as_object_mut().unwrap().remove(label);
        });
    }
    world.edit("retyped", |one| one["spec"]["type"] = json!("ClusterIP"));
    for name in ["web", "upstream"] {
        world.delete(name);
    }
    let before = all(&world);
    world.settle(&[MISTYPED]);
    assert_same(&world, &before, "left alone");
    assert_eq!(world.service("web"), None, "no finalizer holds it");
    for name in ["retyped", "upstream"] {
        assert_eq!(finalizers(&world, name), json!([FINALIZER]), "{name}");
    }
    let ran = common::ccm(&world.env, &["lb", "list", MISTYPED]);
    assert!(ran.stdout.contains("orphan"), "{ran:?}");
    // A person says that the finalizer is ours.
    let ran = common::ccm(
        &world.env,
        &["lb", "release", "default/upstream", "--yes", MISTYPED],
    );
    assert_eq!((ran.code, world.service("upstream")), (0, None), "{ran:?}");
    // Ours again, it is cleaned up.
    world.settle(&[]);
    assert_eq!(finalizers(&world, "retyped"), Value::Null);
    assert_eq!(
        all(&world).len(),
        2,
        "the orphan, and the one that was released"
    );
}

#[test]
fn only_services_of_the_class_are_ours() {
    let world = World::new(1);
    let mut classed = service("classed", &[], &[80]);
    classed["spec"]["loadBalancerClass"] = json!("example.com/hetzner");
    world.create_as(classed);
    world.create("plain", &[], &[80]);
    world.settle(&[CLASS]);
    assert_eq!(world.balancers().len(), 1);
    assert!(world.addresses("plain").is_empty() && !world.addresses("classed").is_empty());
    let before = all(&world);
    // A shell that does not know the daemon's settings ends nothing, and makes what is asked for as ever.
    let mark = world.mark();
    let ran = common::ccm(&world.env, &["lb", "sync", "default/classed"]);
    assert_eq!((ran.code, world.writes(mark)), (1, vec![]), "{ran:?}");
    assert!(
        ran.stderr.contains("is not that of --load-balancer-class"),
        "{ran:?}"
    );
    let ran = common::ccm(&world.env, &["lb", "list"]);
    assert!(ran.stdout.contains("left alone"), "{ran:?}");
    let ran = common::ccm(&world.env, &["lb", "inspect", "default/classed"]);
    assert!(
        ran.stdout.contains("is not that of --load-balancer-class"),
        "{ran:?}"
    );
    assert_same(&world, &before, "in a shell");
    world.delete("classed");
    world.settle(&[CLASS]);
    assert_eq!(
        (world.service("classed"), world.balancers().len()),
        (None, 0)
    );
}

/// Two daemons with classes of their own do not undo each other's finalizers for ever.
#[test]
fn two_daemons_come_to_rest() {
    let world = World::new(1);
    let mut classed = service("classed", &[], &[80]);
    classed["spec"]["loadBalancerClass"] = json!("example.com/hetzner");
    world.create_as(classed);
    world.create("plain", &[], &[80]);
    let flags = ["--leader-elect=false", OFTEN];
    let one = world.daemon(&[&flags[..], &[CLASS]].concat());
    let other = world.daemon(&flags);
    for name in ["classed", "plain"] {
        world.up(name);
    }
    let is_whole = || {
        let mut names = ["classed", "plain"].iter();
        names.all(|name| finalizers(&world, name) == json!([FINALIZER]))
    };
    world.ticks(20);
    wait_until("both finalizers", is_whole);
    let mark = world.mark();
    world.ticks(20);
    assert_eq!(
        world.writes(mark),
        Vec::<String>::new(),
        "{}{}",
        one.log(),
        other.log()
    );
    // And each still removes what is its own.
    world.delete("classed");
    world.delete("plain");
    wait_until("the end", || world.balancers().is_empty());
    wait_until("the end", || {
        world
            .service("classed")
            .or(world.service("plain"))
            .is_none()
    });
}

/// A Service costs one write, so between any two there is a Service that is whole.
#[test]
fn killed_at_each_write_both_ways() {
    common::side_by_side((1..=4_u64).collect(), |n| {
        let (world, names) = cluster(World::over_sockets);
        let before = all(&world);
        for (flag, held) in [(MISTYPED, false), (NO_RESYNC, true)] {
            let killer: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
            let kill = Arc::clone(&killer);
            let after = Effect::after(move |_: &Request| kill.wait()());
            let rule = Rule::new(after).writes().when(is_about_services).nth(n);
            let rule = world.faults().add(rule);
            let daemon = Daemon::start(&world.env, &[flag, "--leader-elect=false"]);
            assert!(killer.set(Box::new(daemon.killer())).is_ok());
            wait_until("the write", || world.faults().hits(rule) > 0);
            drop(daemon);
            world.faults().clear();
            world.settle(&[flag]);
            assert_same(&world, &before, flag);
            for name in &names {
                assert_eq!(
                    finalizers(&world, name) == json!([FINALIZER]),
                    held,
                    "{name}"
                );
            }
        }
    });
}
