//! Defaults of a Namespace, and `location: auto`, in plans. The tests of the whole program are in `tests/service`.

use crate::load_balancer::group::Cluster;
use crate::load_balancer::support::{
    NETWORK, PROFILES, World, assert_says, changes, creation, environment, lines, node, nodes,
    primary_ip, words,
};
use ccm::hetzner::Profile;
use ccm::provider::{NamespaceAnnotations, Reason};
use std::sync::Arc;

/// The annotations of a Namespace, written as `NAME=VALUE`.
fn annotated(pairs: &[&str]) -> Arc<NamespaceAnnotations> {
    let pairs = pairs.iter().map(|pair| pair.split_once('=').unwrap());
    let key = |name: &str| format!("load-balancer.hetzner.cloud/{name}");
    let pairs = pairs.map(|(name, value)| (key(name), value.to_owned()));
    Arc::new(NamespaceAnnotations::Known(pairs.collect()))
}

fn unread() -> Arc<NamespaceAnnotations> {
    Arc::new(NamespaceAnnotations::Unknown("the API server does not answer".into()))
}

/// A world with nodes at these locations, one letter each: `f` is fsn1, `n` is nbg1, `h` is hel1, and `-` is not known.
fn at(profile: Profile, locations: &str) -> World {
    let mut world = World::new(profile);
    let place = |letter| match letter {
        'f' => "fsn1",
        'n' => "nbg1",
        'h' => "hel1",
        _ => "",
    };
    let all = (1..).zip(locations.chars());
    world.nodes = all
        .map(|(id, letter)| {
            let mut node = node(id);
            node.location = place(letter).into();
            node
        })
        .collect();
    world.unset("location");
    world
}

/// Leaves the offers of a type only at these locations.
fn offer(world: &mut World, kind: &str, locations: &[&str]) {
    let types = Arc::make_mut(world.state.types.as_mut().unwrap());
    for offered in types.iter_mut().filter(|offered| offered.name == kind) {
        offered.prices.retain(|price| locations.contains(&&*price.location));
    }
}

#[test]
fn auto_is_the_location_of_most_targets_at_which_the_type_is_offered() {
    // The rule; the locations of the nodes; the annotation `type`; where lb11 is offered; the location; the type.
    let all = &["fsn1", "nbg1", "hel1"][..];
    for (rule, locations, kind, offered, location, chosen) in [
        ("most", "fnn", "", all, "nbg1", "lb11"),
        ("the first by name", "nfh", "", all, "fsn1", "lb11"),
        ("an unknown location does not count", "---n", "lb11", all, "nbg1", "lb11"),
        ("the type is not offered at most", "fnn", "lb11", &["fsn1"][..], "fsn1", "lb11"),
        ("any type is offered there", "fnn", "", &["fsn1"], "nbg1", "lb21"),
        ("auto and auto", "fnn", "auto", &["fsn1"], "nbg1", "lb21"),
        ("auto and auto, with many", "fnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", "auto", all, "nbg1", "lb21"),
    ] {
        for profile in PROFILES {
            let mut world = at(profile, locations);
            world.set("location=auto");
            if !kind.is_empty() {
                world.set_one("type", kind);
            }
            offer(&mut world, "lb11", offered);
            let body = creation(&changes(world.plan()));
            let found = [&body["location"], &body["load_balancer_type"]];
            assert_eq!(found, [location, chosen], "{rule} {profile:?}");
            assert!(body["network_zone"].is_null(), "{rule}");
        }
    }
}

#[test]
fn auto_within_the_limit_is_a_location_with_a_type_up_to_the_limit() {
    let mut world = at(Profile::CcmFromScratch, "fnn");
    world.set("location=auto type=auto type-max=lb11");
    offer(&mut world, "lb11", &["fsn1"]);
    let body = creation(&changes(world.plan()));
    assert_eq!([&body["location"], &body["load_balancer_type"]], ["fsn1", "lb11"]);
}

#[test]
fn auto_by_the_setting_yields_to_the_service_and_to_a_primary_ip() {
    for profile in PROFILES {
        let mut world = at(profile, "nn");
        world.defaults.location =
            Some(environment("HCLOUD_LOAD_BALANCERS_LOCATION", "auto".into()));
        assert_eq!(creation(&changes(world.plan()))["location"], "nbg1");
        world.set_one("location", "hel1");
        assert_eq!(creation(&changes(world.plan()))["location"], "hel1");
        world.unset("location");
        world.state.primary_ips = Some(vec![primary_ip(7, "front", "203.0.113.9", "fsn1")]);
        world.set_one("public-net-ipv4", "7");
        assert_eq!(creation(&changes(world.plan()))["location"], "fsn1");
    }
}

#[test]
fn auto_without_a_known_location_creates_nothing_and_says_so() {
    for kind in ["lb11", "auto", ""] {
        let mut world = at(Profile::CcmFromScratch, "--");
        world.set_one("location", "auto");
        if !kind.is_empty() {
            world.set_one("type", kind);
        }
        let why = world.obstacle();
        assert_says(&why, &["ccm knows no target server", "type lb11", "location to a location"]);
        assert!(world.needs().servers, "the servers are read for the location");
    }
}

#[test]
fn no_place_of_a_namespace_moves_a_load_balancer_or_is_a_finding() {
    for place in ["location=nbg1", "location=auto", "network-zone=us-east", "location=xyz1"] {
        for profile in PROFILES {
            let mut world = at(profile, "nnn");
            world.set("location=fsn1");
            world.converge();
            world.unset("location");
            world.service.of_namespace = annotated(&[place]);
            let plan = world.plan();
            assert_eq!(words(&changes(plan)), "", "{place}");
            let warnings = world.finding_messages(Reason::AnnotationWithoutEffect);
            assert!(warnings.is_empty(), "{place}: {warnings:?}");
        }
    }
}

#[test]
fn the_smallest_of_all_limits_counts() {
    // The limits of the setting, of the Namespace and of the Service; the type that is asked for; the chosen type.
    for (limits, asked, expected) in [
        (["", "lb21", ""], "lb31", "lb21"),
        (["", "lb21", "lb31"], "lb31", "lb21"),
        (["lb11", "lb21", "lb31"], "lb31", "lb11"),
        (["lb31", "lb21", "lb11"], "lb31", "lb11"),
        (["", "lb21", ""], "auto", "lb21"),
        (["", "lb11", "lb31"], "auto", "lb11"),
        (["", "lb21", ""], "lb11", "lb11"),
    ] {
        let mut world = World::new(Profile::CcmFromScratch);
        world.nodes = nodes(80);
        let [setting, namespace, service] = limits;
        if !setting.is_empty() {
            let set = environment("HCLOUD_LOAD_BALANCERS_TYPE_MAX", setting.to_owned());
            world.defaults.permitted.largest_type = Some(set);
        }
        if !service.is_empty() {
            world.set_one("type-max", service);
        }
        let limit = format!("type-max={namespace}");
        for by_namespace in [false, true] {
            let mut of_namespace = vec![limit.as_str()];
            let kind = format!("type={asked}");
            if by_namespace {
                world.unset("type");
                of_namespace.push(&kind);
            } else {
                world.set_one("type", asked);
            }
            world.service.of_namespace = annotated(&of_namespace);
            let body = creation(&changes(world.plan()));
            assert_eq!(body["load_balancer_type"], expected, "{limits:?} {asked} {by_namespace}");
        }
    }
}

/// A limit that is not known is no permission for another type.
#[test]
fn a_load_balancer_keeps_its_type_while_the_limit_or_the_type_of_its_namespace_is_not_known() {
    let long = format!("type-max={}", "x".repeat(1025));
    for (asked, of_namespace, said) in [
        ("lb31", annotated(&["type-max=lb99"]), "there is no load balancer type \"lb99\""),
        ("lb31", annotated(&[&long]), "at most"),
        ("lb31", unread(), "the API server does not answer"),
        ("auto", annotated(&["type-max=lb99"]), "there is no load balancer type \"lb99\""),
        ("auto", unread(), "the API server does not answer"),
        ("", annotated(&["type=lb99"]), "there is no load balancer type \"lb99\""),
        ("", unread(), "the API server does not answer"),
    ] {
        let mut world = World::new(Profile::CcmFromScratch);
        world.set("type=lb11");
        world.nodes = nodes(3);
        world.converge();
        world.unset("type");
        if !asked.is_empty() {
            world.set_one("type", asked);
        }
        world.nodes = nodes(30);
        world.service.of_namespace = of_namespace;
        let found = words(&changes(world.plan()));
        assert!(!found.contains("change_type"), "{asked} {said}: {found}");
        assert!(found.contains("add_target"), "{asked} {said}: everything else is synced: {found}");
        let messages: Vec<String> =
            [Reason::AnnotationWithoutEffect, Reason::SyncLoadBalancerFailed]
                .into_iter()
                .flat_map(|reason| world.finding_messages(reason))
                .collect();
        let names = |message: &String| message.contains(said) && message.contains("of namespace ");
        assert!(messages.iter().any(names), "{messages:?}");
        world.state.balancers.clear();
        let why = world.obstacle();
        assert_says(&why, &[said, "namespace "]);
    }
}

#[test]
fn a_namespace_never_decides_about_the_load_balancer_of_another_one() {
    for has_decider in [true, false] {
        let mut cluster = Cluster::new();
        cluster.world.network = Some(NETWORK);
        cluster.add("owner", 3, &[80], "share=edge share-namespaces=shop");
        cluster.add("shop.guest", 2, &[81], "share=default/edge");
        cluster.converge();
        if !has_decider {
            cluster.delete("owner");
            cluster.converge();
        }
        cluster.world.nodes = nodes(4);
        let before = lines(cluster.plan("shop.guest").outcome.changes());
        assert!(before.concat().contains("worker-04"), "{before:?}");
        cluster.service("shop.guest").of_namespace = annotated(&[
            "use-private-ip=true",
            "type=lb31",
            "type-max=lb11",
            "algorithm-type=least_connections",
            "disable-public-network=true",
            "labels=team=web",
            "departing-delay=60s",
        ]);
        assert_eq!(lines(cluster.plan("shop.guest").outcome.changes()), before);
    }
}
