//! A change that the cloud would refuse is recognised before, if possible. `inspect` reports it, and nothing is created
//! or detached. For all other refusals the error says what to do.

use crate::common;
use crate::sync::world::{Cluster, World, text};
use sandbox::Half;
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use serde_json::json;

#[test]
fn a_location_in_which_nothing_can_be_created_costs_no_write_and_is_shown() {
    let world = World::with_network(1);
    world.converge(&[]);
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("location", "mars", "there is no location \"mars\" for load balancers of type lb11; use ash, "),
        ("private-ipv4", "11.9.0.1", "11.9.0.1 is in no subnet of Network"),
        ("private-subnet-ip-range", "11.9.0.0/24", "has no subnet 11.9.0.0/24"),
    ];
    for (name, value, says) in cases {
        world.create(name, &[(name, value)], &[80]);
        let mark = world.mark();
        world.once(&[]).with_code(1);
        assert_eq!(world.cloud_writes(mark), Vec::<String>::new(), "{name}");
        let finding = &world.inspect(name, &[])["findings"][0];
        assert_eq!(finding["reason"], "SyncLoadBalancerFailed");
        let message = text(&finding["message"]);
        assert!(message.contains(says) && message.contains(name), "{message}");
        world.delete(name);
        world.once(&[]).with_code(0);
    }
}

/// The load balancer is attached, and is to be attached where that is impossible. It stays where it is,
/// with its targets.
#[test]
fn a_load_balancer_that_cannot_be_attached_elsewhere_is_not_detached() {
    let world = World::with_network(1);
    world.converge(&[]);
    let uid = world.create("web", &[("use-private-ip", "true")], &[80]);
    world.converge(&[]);
    let before = world.of_uid(&uid).unwrap();
    let node = world.node("worker-1");
    let addresses = common::addresses(&node);
    let address = addresses.iter().find_map(|one| one.strip_prefix("InternalIP "));
    for ip in ["11.9.0.1", address.unwrap()] {
        world.annotate("web", "private-ipv4", Some(ip));
        let mark = world.mark();
        world.ccm(&["lb", "sync"]).with_code(1);
        assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
        world.wait_for_event("web", "SyncLoadBalancerFailed", &["private-ipv4", ip]);
    }
    let after = world.of_uid(&uid).unwrap();
    let expected = (&before["private_net"], &before["targets"]);
    assert_eq!((&after["private_net"], &after["targets"]), expected);
}

/// A subnet that came after the daemon is found within a minute of its clock, and nobody has to do anything.
#[test]
fn a_subnet_that_is_added_later_is_used() {
    let world = World::with_network(1);
    let _daemon = world.daemon(&[]);
    world.create("web", &[("private-subnet-ip-range", "10.200.0.0/24")], &[80]);
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["has no subnet 10.200.0.0/24"]);
    let network = world.network_id();
    let subnet =
        json!({"type": "cloud", "ip_range": "10.200.0.0/24", "network_zone": "eu-central"});
    world.post(&format!("/networks/{network}/actions/add_subnet"), &subnet);
    let ip = text(&world.up("web")["private_net"][0]["ip"]);
    assert!(ip.is_empty() || ip.starts_with("10.200.0."), "{ip}");
}

#[test]
fn a_reached_limit_is_reported_with_what_to_do() {
    #[rustfmt::skip] // A case is a paragraph.
    let limits = [
        (403,
            json!({"code": "resource_limit_exceeded", "message": "no", "details": {"limits": [{"name": "network_attached_resources"}]}}),
            "detach some"),
        (403,
            json!({"code": "resource_limit_exceeded", "message": "no", "details": {"limits": [{"name": "load_balancer_limit"}]}}),
            "ask for a higher limit"),
        (422, json!({"code": "no_subnet_available", "message": "no", "details": null}), "hcloud network add-subnet"),
    ];
    for (status, error, says) in limits {
        let world = World::with_network(1);
        world.converge(&[]);
        world.create("web", &[], &[80]);
        let answer = Response::json(status, &json!({ "error": error }));
        let refused = Rule::new(Effect::Instead(answer)).half(Half::Hetzner).method("POST");
        world.faults().add(refused.path("/v1/load_balancers"));
        let ran = world.ccm(&["lb", "sync"]).with_code(1);
        assert!((ran.stdout + &ran.stderr).contains(says), "{says}");
        world.wait_for_event("web", "SyncLoadBalancerFailed", &[says]);
    }
}
