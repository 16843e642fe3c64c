//! When nothing changes.

use crate::common;
use crate::sync::world::{Cluster, PROFILES, World};
use sandbox::Half;

/// A daemon's calls to the cloud in so many looks at Services, every one of which is five seconds.
fn calls_in(world: &World, flags: &[&str], polls: usize) -> (usize, Vec<String>) {
    let _daemon = world.daemon(flags);
    world.ticks(6);
    let mark = world.mark();
    world.ticks(polls);
    (world.cloud_calls(mark).len(), world.writes(mark))
}

/// The polls of ten minutes. The rest of an hour is the same.
const POLLS: usize = 120;

#[test]
fn twenty_synced_services_cost_no_write_and_few_calls() {
    common::run_in_parallel(PROFILES.to_vec(), |profile| {
        let calls_with = |services: usize| {
            let world = World::new(3);
            for n in 0..services {
                world.create(&format!("web-{n}"), &[], &[80, 443]);
            }
            world.converge(&[profile]);
            let flags = ["--leader-elect=false", profile];
            let (calls, writes) = calls_in(&world, &flags, POLLS);
            assert_eq!(writes, Vec::<String>::new(), "{profile}, {services}");
            calls
        };
        let (without, with) = std::thread::scope(|scope| {
            let without = scope.spawn(|| calls_with(0));
            let with = calls_with(20);
            (without.join().unwrap(), with)
        });
        // Twenty an hour are three and a third in ten minutes.
        assert!(with <= without + 4, "{profile}: {with} calls, {without} without");
    });
}

#[test]
fn a_restarted_daemon_writes_nothing_in_a_right_cluster() {
    for profile in PROFILES {
        let world = World::with_network(2);
        world.converge(&[profile]);
        world.create("web", &[("uses-proxyprotocol", "true")], &[80]);
        world.create("name", &[("hostname", "web.example")], &[80]);
        world.converge(&[profile]);
        let mark = world.mark();
        let daemon = world.daemon(&[profile]);
        world.ticks(4);
        let calls = world.calls().calls_since(mark);
        let writes = calls.iter().filter(|call| call.is_write() && !common::is_lease(&call.path));
        let writes: Vec<String> = writes.map(ToString::to_string).collect();
        assert_eq!(writes, Vec::<String>::new(), "{profile}\n{}", daemon.log());
        assert!(calls.iter().any(|call| call.half == Half::Hetzner));
    }
}
