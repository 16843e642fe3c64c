//! Settings that turn routes off change nothing else.

use crate::common::{self, Daemon, addresses, all_initialised, wait_until, with};
use crate::sync::world::{CIDR, Cluster, HCLOUD, World, is_read};

const ENABLED: &str = "HCLOUD_NETWORK_ROUTES_ENABLED";
const BOTH: &str = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56";

#[test]
fn nodes_are_synced_and_the_network_is_left_alone_without_routes() {
    // Variable, flags, how often the log warns of it.
    let cases: Vec<(&str, &[&str], usize)> = vec![
        ("false", &[CIDR], 0),
        ("", &[CIDR, "--configure-cloud-routes=false"], 0),
        ("", &[CIDR, "--controllers=*,-route"], 0),
        ("", &[], 1),
        ("", &["--cluster-cidr=fd00:10:244::/56"], 1),
        ("", &[BOTH, HCLOUD], 1),
        ("false", &[BOTH, HCLOUD], 0),
    ];
    common::run_in_parallel(cases, |(enabled, flags, warnings)| {
        let world = World::new(2);
        let env = with(world.env.clone(), &[(ENABLED, enabled)]);
        let daemon = Daemon::start(&env, flags);
        wait_until("initialised nodes", || all_initialised(&world.sandbox));
        world.wait_for_polls(10);
        let ips = addresses(&world.node("worker-1"));
        assert!(ips.contains(&"InternalIP 10.0.0.2".to_owned()), "{ips:?}");
        assert!(world.routes().is_empty(), "{flags:?}");
        assert_eq!(world.calls().count(is_read), 0, "{flags:?}");
        assert_eq!(world.condition("worker-1"), None);
        let log = daemon.log();
        for part in ["the route controller does not run, because ", "WARN"] {
            assert_eq!(log.matches(part).count(), warnings, "{flags:?}\n{log}");
        }
    });
}

#[test]
fn a_missing_network_is_one_warning_where_routes_were_requested() {
    for (flags, warnings) in [(&[][..], 0), (&[CIDR][..], 1)] {
        let sandbox = common::simulated_cluster(1);
        let daemon = Daemon::start(&common::env(&sandbox), flags);
        wait_until("initialised nodes", || all_initialised(&sandbox));
        let log = daemon.log();
        assert_eq!(
            log.matches("the route controller does not run, because ").count(),
            warnings,
            "{log}"
        );
    }
}

#[test]
fn a_dual_stack_cluster_of_the_other_profile_has_routes_on_request() {
    let world = World::new(2);
    let env = with(world.env.clone(), &[(ENABLED, "true")]);
    let _daemon = Daemon::start(&env, &[BOTH, HCLOUD, "--allocate-node-cidrs=true"]);
    world.wait_for_routes_and_nodes(&[]);
    assert_eq!(world.routes().len(), 2);
}

#[test]
fn route_commands_name_a_missing_setting() {
    let world = World::new(1);
    // Variables, flags, a part of the error.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a str);
    #[rustfmt::skip] // A case is a line.
    let cases: [Case; 4] = [
        (&[], &[], "--cluster-cidr is not set"),
        (&[("HCLOUD_NETWORK", "")], &[CIDR], "HCLOUD_NETWORK is not set"),
        (&[(ENABLED, "false")], &[CIDR], "HCLOUD_NETWORK_ROUTES_ENABLED is false"),
        (&[], &[CIDR, "--configure-cloud-routes=false"], "--configure-cloud-routes is false"),
    ];
    for (variables, flags, part) in cases {
        let env = with(world.env.clone(), variables);
        for command in ["list", "sync"] {
            let ran = common::ccm(&env, &[&["route", command], flags].concat());
            ran.with_code(1).warns(part);
        }
    }
    world.sync(&["worker-1"]).with_code(2);
}
