//! Names and labels within Hetzner's rules.

use crate::load_balancer::support::{UID, World};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{CLUSTER, CLUSTER_UID, SERVICE, SERVICE_UID};

fn named(profile: Profile, cluster: &str, namespace: &str, name: &str) -> World {
    let mut world = World::new(profile);
    world.cluster.name = cluster.into();
    world.service.namespace = namespace.into();
    world.service.name = name.into();
    world.converge();
    world
}

#[test]
fn default_names_are_readable_short_and_stable() {
    let long = "a".repeat(60);
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("kubernetes", "default", "web", "kubernetes-default-web"),
        ("My Cluster", "default", "web", "My-Cluster-default-web-a009ce12"),
        ("", "default", "web", "default-web-dcbc9f8e"),
        ("prod", "default", &long, "prod-default-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-373dfbbf"),
    ];
    for (cluster, namespace, name, expected) in cases {
        let world = named(Profile::CcmFromScratch, cluster, namespace, name);
        assert_eq!(world.balancer().name, expected);
        assert!(expected.len() <= 63);
    }
    let world = named(Profile::Hcloud, "kubernetes", "default", "web");
    assert_eq!(world.balancer().name, "a5f2c0e5e00004000800000000000000");
}

#[test]
fn labels_name_the_owner_and_are_valid() {
    let world = named(Profile::CcmFromScratch, "My Cluster!", "default", "web");
    let labels = &world.balancer().labels;
    assert_eq!(labels[SERVICE_UID], UID);
    assert_eq!(labels[CLUSTER_UID], "cluster-1");
    assert_eq!(labels[SERVICE], "default.web");
    assert!(labels[CLUSTER].starts_with("My-Cluster-"), "{labels:?}");
    for (namespace, name) in [("a".repeat(63), "b".repeat(63)), ("x".into(), "y-".repeat(31))] {
        let world = named(Profile::CcmFromScratch, "ü", &namespace, &name);
        for value in world.balancer().labels.values() {
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            assert!(value.len() <= 63 && edge(value.chars().next()) && edge(value.chars().last()));
            let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            assert!(value.chars().all(inner), "{value}");
        }
    }
}

/// A take-over from the other controller writes nothing. Our labels are added with the first PUT for another reason.
#[test]
fn upstreams_profile_misses_no_label_of_ours() {
    let mut world = World::new(Profile::Hcloud);
    world.converge();
    let own = [(SERVICE_UID.to_owned(), UID.to_owned())];
    world.balancer_mut().labels = own.into();
    assert!(world.converge().is_empty());
    world.set("name=front");
    assert_eq!(world.converge().len(), 1);
    assert_eq!(world.balancer().labels.len(), 4);

    let mut world = World::new(Profile::CcmFromScratch);
    world.converge();
    world.balancer_mut().labels.remove(CLUSTER_UID);
    assert_eq!(world.converge().len(), 1);
}
