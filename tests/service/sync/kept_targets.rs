//! A target that works is not taken away for one that can't come.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, OFTEN, World, targets};
use serde_json::{Value, json};

const PRIVATE: &str = "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP";
const CLOSED: &str = "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK";

/// The interface stays off when nobody asks for it any more, and then no public address is a way in.
#[test]
fn a_target_that_only_its_private_address_reaches_stays() {
    let mut world = World::with_network(1);
    world.converge(&[]);
    let by_annotation = world.create(
        "annotated",
        &[("use-private-ip", "true"), ("disable-public-network", "true")],
        &[80],
    );
    let plain = world.env.clone();
    world.env = common::with(plain.clone(), &[(PRIVATE, "true"), (CLOSED, "true")]);
    let by_variable = world.create("plain", &[], &[80]);
    world.converge(&[]);
    world.env = plain;
    world.annotate("annotated", "use-private-ip", None);
    world.annotate("annotated", "disable-public-network", None);
    let mark = world.mark();
    world.once(&[]).with_code(1);
    for name in ["annotated", "plain"] {
        let says = ["public interface", "is off", "disable-public-network"];
        world.wait_for_event(name, "SyncLoadBalancerFailed", &says);
    }
    let daemon = world.daemon(&[OFTEN]);
    world.ticks(4);
    assert_eq!(world.cloud_writes(mark), [""; 0], "{}", daemon.log());
    for uid in [by_annotation, by_variable] {
        assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 1);
    }
    // The load balancer is used as the annotations now say.
    world.annotate("annotated", "disable-public-network", Some("false"));
    world.annotate("plain", "use-private-ip", Some("true"));
    world.ccm(&["lb", "sync"]).with_code(0);
}

/// The node's server is not in the Network. The other targets change, and this target stays as it was and is reported.
#[test]
fn a_node_outside_the_network_does_not_keep_the_others_from_private_addresses() {
    let world = World::with_network(3);
    world.converge(&[]);
    let uid = world.create("web", &[], &[80]);
    world.converge(&[]);
    let second = world.server_id("worker-2");
    let network = world.network_id();
    let detach = |path: &str| {
        world.post(&format!("/servers/{second}/actions/{path}"), &json!({"network": network}));
        let is_in = || !world.ip("worker-2").is_empty();
        wait_until(path, || is_in() == (path == "attach_to_network"));
    };
    detach("detach_from_network");
    world.annotate("web", "use-private-ip", Some("true"));
    let ways = || {
        let balancer = world.of_uid(&uid).unwrap();
        let targets = balancer["targets"].as_array().unwrap().iter();
        let way = |target: &Value| {
            let is_second = target["server"]["id"] == second;
            (is_second, target["use_private_ip"] == true)
        };
        let mut ways: Vec<(bool, bool)> = targets.map(way).collect();
        ways.sort_unstable();
        ways
    };
    let says =
        ["worker-2", "no address in Network", "ccm leaves these targets at their public addresses"];
    let sync = world.ccm(&["lb", "sync", "default/web", "--dry-run"]);
    assert!(!sync.stdout.contains("remove target worker-2"), "{sync:?}");
    for part in says {
        sync.prints(part);
    }
    let daemon = world.daemon(&[OFTEN]);
    wait_until("the others", || ways() == [(false, true), (false, true), (true, false)]);
    says.iter().for_each(|part| daemon.logs(part));
    let mark = world.mark();
    world.ticks(4);
    assert_eq!(world.cloud_writes(mark), [""; 0], "{}", daemon.log());
    let finding = world.inspect("web", &[])["findings"].to_string();
    assert!(says.iter().all(|part| finding.contains(part)), "{finding}");
    // The target changes as soon as its server is in the Network.
    detach("attach_to_network");
    wait_until("the last", || ways() == [(false, true), (false, true), (true, true)]);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 3);
}
