//! The addresses of the private Network that Services may ask for.

use crate::sync::world::{Cluster, World, len, targets, text};
use serde_json::Value;

/// The setting.
const RANGES: &str = "HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES";
/// Addresses inside and outside of the ranges of these tests. Both are in the subnet of the Network.
const ALLOWED: &str = "10.0.0.100";
const REFUSED: &str = "10.0.0.50";

/// Limits the addresses that Services may ask for from now on.
fn limit(world: &mut World) {
    let ranges = (RANGES, "10.0.0.96/28, 10.77.0.0/16");
    world.set(&[ranges]);
}

fn private_ip(balancer: &Value) -> String {
    text(&balancer["private_net"][0]["ip"])
}

fn attachments(world: &World, mark: u64) -> usize {
    let writes = world.cloud_writes(mark);
    let is_one = |write: &&String| write.ends_with("attach_to_network") || write.contains("detach");
    writes.iter().filter(is_one).count()
}

/// All other settings of the Service are synced.
#[test]
fn a_new_load_balancer_gets_an_address_that_was_not_asked_for() {
    let mut world = World::with_network(1);
    limit(&mut world);
    world.converge(&[]);
    let annotations = [("private-ipv4", REFUSED), ("use-private-ip", "true")];
    let guest = world.create("guest", &annotations, &[80, 443]);
    let honest = world.create("honest", &[("private-ipv4", ALLOWED)], &[80]);
    world.converge(&[]);
    let balancer = world.of_uid(&guest).unwrap();
    let ip = private_ip(&balancer);
    assert!(ip != REFUSED && !ip.is_empty(), "{balancer}");
    assert!(world.addresses("guest").contains(&ip), "{ip}");
    assert_eq!((len(&balancer["services"]), targets(&balancer).len()), (2, 1));
    let says = ["private-ipv4", REFUSED, RANGES, "10.0.0.96/28"];
    world.wait_for_event("guest", "AnnotationWithoutEffect", &says);
    assert_eq!(private_ip(&world.of_uid(&honest).unwrap()), ALLOWED);
    assert_eq!(world.event_messages("honest", "AnnotationWithoutEffect").len(), 0);
}

#[test]
fn an_existing_load_balancer_keeps_its_address_and_the_rest_is_synced() {
    let mut world = World::with_network(1);
    world.converge(&[]);
    let first = world.create("first", &[("private-ipv4", REFUSED)], &[80]);
    let second = world.create("second", &[("private-ipv4", ALLOWED)], &[80]);
    let third = world.create("third", &[], &[80]);
    world.converge(&[]);
    let ip_of = |world: &World, uid: &str| private_ip(&world.of_uid(uid).unwrap());
    let chosen = ip_of(&world, &third);

    // An address that a load balancer has already is not refused.
    limit(&mut world);
    let mark = world.mark();
    world.converge(&[]);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    assert_eq!(ip_of(&world, &first), REFUSED);
    assert_eq!(world.event_messages("first", "AnnotationWithoutEffect").len(), 0);

    for (name, uid, has) in [("second", &second, ALLOWED), ("third", &third, &*chosen)] {
        world.annotate(name, "private-ipv4", Some("10.0.0.51"));
        world.annotate(name, "algorithm-type", Some("least_connections"));
        let mark = world.mark();
        world.converge(&[]);
        assert_eq!(attachments(&world, mark), 0, "{name}");
        let balancer = world.of_uid(uid).unwrap();
        assert_eq!(private_ip(&balancer), has, "{name}");
        assert_eq!(balancer["algorithm"]["type"], "least_connections", "{name}");
        world.wait_for_event(name, "AnnotationWithoutEffect", &["10.0.0.51", RANGES]);
    }
    // An address in a range works as it does without the setting.
    world.annotate("third", "private-ipv4", Some("10.0.0.101"));
    world.converge(&[]);
    assert_eq!(ip_of(&world, &third), "10.0.0.101");
}
