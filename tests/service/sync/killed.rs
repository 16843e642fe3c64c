//! The daemon is killed after each of its writes in turn, and started again. Services that use load balancers together
//! reach the same end state.

use crate::common::{self, Daemon, is_lease, wait_until};
use crate::sync::external::{BY_NAME, allow, create_as_terraform, only_parts_were_written};
use crate::sync::shared::{EDGE, owned, ports};
use crate::sync::world::{Cluster, NO_RESYNC, World, id, targets, text};
use sandbox::exchange::Request;
use sandbox::faults::{Rule, RuleId};

const NO_LEASE: &str = "--leader-elect=false";

/// A change, and the state that it must lead to.
pub struct Scenario {
    /// The objects that are created and synced before the daemon that is killed starts.
    pub before: fn(&World),
    /// The change that is made while no daemon runs.
    pub change: fn(&World),
    pub is_done: fn(&World) -> bool,
}

/// A daemon without a Lease that is killed after the n-th write about Services.
pub fn killed_after(world: &World, flag: &str, n: u64) -> (Daemon, RuleId) {
    let is_about_services =
        |request: &Request| !is_lease(&request.path) && !request.path.contains("/events");
    let calls = |rule: Rule| rule.writes().when(is_about_services).nth(n);
    Daemon::killed_at(world, &world.env, &[flag, NO_LEASE], false, calls)
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
    world.converge(&[]);
    (scenario.before)(&world);
    world.converge(&[]);
    (scenario.change)(&world);
    world
}

fn finish(world: &World, scenario: &Scenario) {
    let daemon = Daemon::start(&world.env, &[NO_RESYNC, NO_LEASE]);
    let state = || format!("{}\n{:#?}", daemon.log(), world.balancers());
    common::wait_or(common::LIMIT, state, || (scenario.is_done)(world));
    drop(daemon);
    world.assert_converged();
    assert!((scenario.is_done)(world), "{:#?}", world.balancers());
}

pub fn killed_at_each_write(scenario: Scenario) {
    let count = writes(&scenario);
    assert!(count > 2, "{count}");
    common::run_in_parallel((1..=count as u64).collect(), |n| {
        let world = begun(&scenario);
        let (daemon, rule) = killed_after(&world, NO_RESYNC, n);
        wait_until("the write, or the end", || {
            world.faults().hits(rule) > 0 || (scenario.is_done)(&world)
        });
        drop(daemon);
        world.faults().clear();
        finish(&world, &scenario);
    });
}

/// Load balancers by their ports, each with the name of its Service.
fn is(world: &World, wanted: &[&[(u64, &str)]]) -> bool {
    let mut has: Vec<_> = world.balancers().iter().map(ports).collect();
    let with_uid = |(port, name): &(u64, &str)| match *name {
        "" => (*port, String::new()),
        name => (*port, world.uid(name)),
    };
    let wanted = wanted.iter();
    let mut wanted: Vec<Vec<(u64, String)>> =
        wanted.map(|ports| ports.iter().map(with_uid).collect()).collect();
    has.sort();
    wanted.sort();
    has == wanted
}

fn same_address(world: &World, names: &[&str]) -> bool {
    let first = world.addresses(names[0]);
    !first.is_empty() && names.iter().all(|name| world.addresses(name) == first)
}

#[test]
fn three_services_that_share_survive_a_kill_at_any_write_and_a_deletion() {
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
fn a_join_and_a_leave_survive_a_kill_at_any_write() {
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
fn the_use_of_an_external_load_balancer_survives_a_kill_at_any_write() {
    killed_at_each_write(Scenario {
        before: |world| {
            let id = create_as_terraform(world, "edge-lb");
            allow(world, id, Some("default"));
            world.create("old", &[BY_NAME], &[80]);
        },
        change: |world| {
            world.delete("old");
            world.create("new", &[BY_NAME], &[443]);
        },
        is_done: |world| {
            let one = world.only_balancer();
            let ip = text(&one["public_net"]["ipv4"]["ip"]);
            world.service("old").is_none()
                && is(world, &[&[(443, "new"), (6443, "")]])
                && targets(&one).len() == 2
                && world.addresses("new").first() == Some(&ip)
        },
    });
}

#[test]
fn the_last_leave_of_an_external_load_balancer_survives_a_kill_at_any_write() {
    killed_at_each_write(Scenario {
        before: |world| {
            let id = create_as_terraform(world, "edge-lb");
            allow(world, id, Some(""));
            world.create("web", &[BY_NAME], &[80, 443]);
        },
        change: |world| world.delete("web"),
        is_done: |world| {
            let one = world.only_balancer();
            let is_it = world.service("web").is_none()
                && ports(&one) == owned(&[(6443, "")])
                && targets(&one).len() == 1
                && one["labels"].as_object().unwrap().len() == 2;
            if is_it {
                only_parts_were_written(world, id(&one));
            }
            is_it
        },
    });
}
