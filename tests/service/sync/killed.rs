//! The daemon is killed after each of its writes in turn, and started again: with Services that use load balancers
//! together the end is the same.

use crate::common::{self, Daemon, wait_until};
use crate::sync::external::{BY_NAME, allow, as_it_is, only_parts_were_written, terraforms};
use crate::sync::shared::{EDGE, owned, ports};
use crate::sync::world::{Cluster, NO_RESYNC, World, targets, text};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

const NO_LEASE: &str = "--leader-elect=false";

/// What happens, and how it ends.
pub struct Scenario {
    /// Before the daemon that is killed starts, and brought in order.
    pub before: fn(&World),
    /// While no daemon runs.
    pub change: fn(&World),
    pub is_done: fn(&World) -> bool,
}

pub fn is_about_services(request: &Request) -> bool {
    !common::is_lease(&request.path) && !request.path.contains("/events")
}

/// Writes of one undisturbed run.
fn writes(scenario: &Scenario) -> usize {
    let world = begun(scenario);
    let mark = world.mark();
    finish(&world, scenario);
    world.writes(mark).len()
}

fn begun(scenario: &Scenario) -> World {
    let world = World::over_sockets(common::builder().nodes(1));
    world.settle(&[]);
    (scenario.before)(&world);
    world.settle(&[]);
    (scenario.change)(&world);
    world
}

fn finish(world: &World, scenario: &Scenario) {
    let daemon = Daemon::start(&world.env, &[NO_RESYNC, NO_LEASE]);
    let state = || format!("{}\n{:#?}", daemon.log(), world.balancers());
    common::wait_or(common::LIMIT, state, || (scenario.is_done)(world));
    drop(daemon);
    world.is_at_rest();
    assert!((scenario.is_done)(world), "{:#?}", world.balancers());
}

pub fn killed_at_each_write(scenario: Scenario) {
    let count = writes(&scenario);
    assert!(count > 2, "{count}");
    common::side_by_side((1..=count as u64).collect(), |n| {
        let world = begun(&scenario);
        let killer: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
        let kill = Arc::clone(&killer);
        let after = Effect::after(move |_: &Request| kill.wait()());
        let rule = Rule::new(after).writes().when(is_about_services).nth(n);
        let rule = world.faults().add(rule);
        let daemon = Daemon::start(&world.env, &[NO_RESYNC, NO_LEASE]);
        assert!(killer.set(Box::new(daemon.killer())).is_ok());
        wait_until("the write, or the end", || {
            world.faults().hits(rule) > 0 || (scenario.is_done)(&world)
        });
        drop(daemon);
        world.faults().clear();
        finish(&world, &scenario);
    });
}

fn uid(world: &World, name: &str) -> String {
    text(&world.service(name).unwrap()["metadata"]["uid"])
}

/// Load balancers by their ports, each with the name of its Service.
fn is(world: &World, wanted: &[&[(u64, &str)]]) -> bool {
    let mut has: Vec<_> = world.balancers().iter().map(ports).collect();
    let uids = |ports: &&[(u64, &str)]| {
        let ports = ports.iter();
        ports
            .map(|(port, name)| {
                (
                    *port,
                    if name.is_empty() {
                        String::new()
                    } else {
                        uid(world, name)
                    },
                )
            })
            .collect()
    };
    let mut wanted: Vec<Vec<(u64, String)>> = wanted.iter().map(uids).collect();
    has.sort();
    wanted.sort();
    has == wanted
}

fn same_address(world: &World, names: &[&str]) -> bool {
    let first = world.addresses(names[0]);
    !first.is_empty() && names.iter().all(|name| world.addresses(name) == first)
}

#[test]
fn three_that_share_are_made_and_one_is_deleted() {
    killed_at_each_write(Scenario {
        before: |world| drop(world.create("d", &[EDGE], &[22])),
        change: |world| {
            world.delete("d");
            for (name, port) in [("a", 80), ("b", 443), ("c", 8080)] {
                world.create(name, &[EDGE], &[port]);
            }
        },
        is_done: |world| {
            world.service("d").is_none()
                && is(world, &[&[(80, "a"), (443, "b"), (8080, "c")]])
                && same_address(world, &["a", "b", "c"])
        },
    });
}

#[test]
fn one_joins_and_another_leaves() {
    killed_at_each_write(Scenario {
        before: |world| {
            world.create("a", &[EDGE], &[80]);
            world.create("b", &[EDGE], &[443]);
            world.create("c", &[], &[8080]);
        },
        change: |world| {
            world.annotate("b", "share", None);
            world.annotate("c", "share", Some("edge"));
        },
        is_done: |world| {
            let own = (443, "");
            is(world, &[&[(80, "a"), (8080, "c")], &[own]])
                && same_address(world, &["a", "c"])
                && !same_address(world, &["a", "b"])
        },
    });
}

#[test]
fn one_of_others_is_used_and_left() {
    killed_at_each_write(Scenario {
        before: |world| {
            let id = terraforms(world, "edge-lb");
            allow(world, id, Some("default"));
            world.create("old", &[BY_NAME], &[80]);
        },
        change: |world| {
            world.delete("old");
            world.create("new", &[BY_NAME], &[443]);
        },
        is_done: |world| {
            let all = world.balancers();
            world.service("old").is_none()
                && is(world, &[&[(443, "new"), (6443, "")]])
                && targets(&all[0]).len() == 2
                && world.addresses("new").first()
                    == all[0]["public_net"]["ipv4"]["ip"]
                        .as_str()
                        .map(str::to_owned)
                        .as_ref()
        },
    });
}

#[test]
fn the_last_one_leaves_one_of_others_as_it_was() {
    killed_at_each_write(Scenario {
        before: |world| {
            let id = terraforms(world, "edge-lb");
            allow(world, id, Some(""));
            world.create("web", &[BY_NAME], &[80, 443]);
        },
        change: |world| world.delete("web"),
        is_done: |world| {
            let one: &Value = &world.balancers()[0];
            let id = one["id"].as_u64().unwrap();
            let labels = one["labels"].as_object().unwrap().len();
            let is_it = world.service("web").is_none()
                && ports(one) == owned(&[(6443, "")])
                && targets(&as_it_is(world, id)).len() == 1
                && labels == 2;
            if is_it {
                only_parts_were_written(world, id);
            }
            is_it
        },
    });
}
