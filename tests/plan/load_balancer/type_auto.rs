//! With `type: auto` the plan chooses the type of the load balancer. The table of the choice itself is beside its code.

use crate::load_balancer::support::{
    PROFILES, World, assert_says, changes, creation, environment, ip_target, nodes, port,
    selector_target, service, words,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{Deprecation, GROUP};
use ccm::provider::{Groups, LoadBalancerPlan, Reason, Service};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A world whose Service asks for `auto`, with this number of nodes and of ports.
fn auto(count: u64, ports: u16) -> World {
    let mut world = World::new(Profile::CcmFromScratch);
    world.set("type=auto");
    world.nodes = nodes(count);
    set_ports(&mut world, ports);
    world
}

fn set_ports(world: &mut World, count: u16) {
    world.service.ports = (0..count).map(|at| port(&format!("p{at}"), 80 + at)).collect();
}

fn kind(world: &World) -> &str {
    &world.balancer().load_balancer_type.name
}

/// Removes types from the list.
fn retain_types(world: &mut World, names: &[&str]) {
    let types = Arc::make_mut(world.state.types.as_mut().unwrap());
    types.retain(|kind| names.contains(&kind.name.as_str()));
}

fn announced(plan: &LoadBalancerPlan) -> Vec<String> {
    let all = plan.outcome.changes().iter();
    all.filter_map(|change| change.announcement().map(str::to_owned)).collect()
}

#[test]
fn a_new_load_balancer_gets_the_cheapest_type_that_fits() {
    for profile in PROFILES {
        for (count, ports, expected) in
            [(3, 1, "lb11"), (26, 1, "lb21"), (3, 16, "lb31"), (400, 1, "lb31")]
        {
            let mut world = auto(count, ports);
            world.profile = profile;
            let [announced] = announced(&world.plan()).try_into().unwrap();
            assert_says(&announced, &[expected, " a month without VAT"]);
            assert_eq!(creation(&changes(world.plan()))["load_balancer_type"], expected);
            assert!(!world.findings().contains(&Reason::LoadBalancerTypeUnconfigured));
        }
    }
}

#[test]
fn it_grows_before_the_port_or_target_is_added() {
    let mut world = auto(3, 5);
    world.converge();
    assert_eq!(kind(&world), "lb11");
    set_ports(&mut world, 6);
    let [reason] = announced(&world.plan()).try_into().unwrap();
    assert_says(
        &reason,
        &["lb11 becomes lb21", "6 ports", "16.40 a month", "old price: 5.39 a month"],
    );
    assert_eq!(words(&world.converge()), "change_type add_service");
    let mut world = auto(25, 1);
    world.converge();
    world.nodes = nodes(27);
    let plan = world.plan();
    let marked = |place: usize| plan.outcome.changes()[place].needs_all_before();
    assert_eq!([0, 1, 2].map(marked), [false, true, true]);
    assert_eq!(words(&world.converge()), "change_type add_target add_target");
}

/// What fits the present type does not depend on the larger type.
#[test]
fn only_what_is_beyond_the_present_type_waits_for_the_larger_one() {
    let mut world = auto(24, 4);
    world.converge();
    world.nodes = nodes(26);
    set_ports(&mut world, 6);
    let plan = world.plan();
    let all = plan.outcome.changes().iter();
    let all: Vec<(String, bool)> =
        all.map(|change| (change.word().to_owned(), change.needs_all_before())).collect();
    let all: Vec<(&str, bool)> = all.iter().map(|(word, waits)| (word.as_str(), *waits)).collect();
    let expected = [
        ("change_type", false),
        ("add_service", false),
        ("add_service", true),
        ("add_target", false),
        ("add_target", true),
    ];
    assert_eq!(all, expected);
    assert!(plan.outcome.changes()[0].may_fail_alone());
}

#[test]
fn it_never_becomes_smaller_and_inspect_names_a_cheaper_type() {
    let mut world = auto(26, 1);
    world.converge();
    world.nodes = nodes(3);
    assert_eq!(words(&world.converge()).matches("change_type").count(), 0);
    assert_eq!(kind(&world), "lb21");
    let sizing = world.plan().sizing.unwrap();
    assert_eq!((sizing.targets, sizing.ports), (3, 1));
    assert_eq!(sizing.cheaper.unwrap().kind, "lb11");
    // A person makes it smaller, and it stays so.
    world.set("type=lb11");
    assert_eq!(words(&world.converge()), "change_type");
    world.set("type=auto");
    assert_eq!(words(&world.converge()), "");
}

#[test]
fn what_others_have_on_it_counts_and_readiness_does_not() {
    let mut world = auto(20, 1);
    world.converge();
    let room = |world: &World| world.plan().sizing.unwrap().targets;
    world.balancer_mut().targets.push(ip_target([192, 0, 2, 1]));
    assert_eq!(room(&world), 21, "an address that is no node");
    world.balancer_mut().targets.push(selector_target("role=web", Some(&[101, 102])));
    assert_eq!(room(&world), 23, "the servers of a label selector");
    world.set("departing-delay=0s");
    world.nodes[0].departure.departed = Some(Duration::from_secs(60));
    assert_eq!(room(&world), 23, "a departing node");
    world.nodes = nodes(21);
    world.nodes[20].departure.is_to_be_deleted = true;
    assert_eq!(room(&world), 23, "a node that is about to be deleted and is no target");
}

#[test]
fn the_limit_holds_for_auto_and_for_named_types() {
    for by_setting in [false, true] {
        let limit = |world: &mut World, name: &str| {
            let set = environment("HCLOUD_LOAD_BALANCERS_TYPE_MAX", name.to_owned());
            if by_setting {
                world.defaults.permitted.largest_type = Some(set);
            } else {
                world.set_one("type-max", name);
            }
        };
        let mut world = auto(100, 1);
        limit(&mut world, "lb21");
        world.converge();
        assert_eq!((kind(&world), world.balancer().targets.len()), ("lb21", 75));
        assert!(world.findings().contains(&Reason::MaxTargetsReached));
        limit(&mut world, "lb11");
        assert_eq!(words(&world.converge()), "", "one above the limit is not changed");
        // A named type counts as the limit.
        let mut world = World::new(Profile::CcmFromScratch);
        world.set("type=lb31");
        limit(&mut world, "lb21");
        let [why] = world.finding_messages(Reason::AnnotationWithoutEffect).try_into().unwrap();
        assert_says(&why, &["lb31", "lb21"]);
        world.converge();
        assert_eq!(kind(&world), "lb21");
        // Nothing is named.
        let mut world = World::new(Profile::CcmFromScratch);
        limit(&mut world, "lb21");
        world.converge();
        assert_eq!(kind(&world), "lb11");
        // A limit that is no type stops nothing but a new load balancer and a change of the type.
        limit(&mut world, "lb99");
        world.set("type=auto");
        world.nodes = nodes(26);
        assert_eq!(world.plan().outcome.obstacle(), None);
        assert_says(
            &world.finding_messages(Reason::AnnotationWithoutEffect)[0],
            &["lb99", "use lb11, lb21"],
        );
        assert!(!words(&changes(world.plan())).contains("change_type"));
        let mut world = auto(3, 1);
        limit(&mut world, "lb99");
        assert_says(&world.obstacle(), &["there is no load balancer type \"lb99\""]);
    }
}

#[test]
fn a_type_is_chosen_only_from_a_new_and_whole_list() {
    let mut world = auto(25, 5);
    world.converge();
    world.state.are_types_old = true;
    assert!(!world.needs().types, "nothing changes");
    world.nodes = nodes(26);
    assert!(world.needs().types);
    world.state.are_types_old = false;
    assert!(!world.needs().types);
    // Without a list nothing grows. The rest goes on, and it is tried again.
    let types = world.state.types.take();
    world.state.types_error = Some("status 500".to_owned());
    set_ports(&mut world, 4);
    let plan = world.plan();
    assert!(plan.outcome.is_unfinished() && !plan.needs.types);
    assert_eq!(words(&changes(plan)), "delete_service");
    assert_says(&world.finding_messages(Reason::SyncLoadBalancerFailed)[0], &["status 500"]);
    world.state.balancers.clear();
    assert_says(&world.obstacle(), &["status 500"]);
    (world.state.types, world.state.types_error) = (types, None);
    world.state.are_types_old = true;
    assert!(world.needs().types, "a new load balancer");
}

#[test]
fn deprecated_types_and_types_of_other_places_are_left_out() {
    let mut world = auto(3, 1);
    let deprecate = |world: &mut World, at: usize| {
        let until = "2027-01-01T00:00:00Z".to_owned();
        let types = Arc::make_mut(world.state.types.as_mut().unwrap());
        types[at].deprecation = Some(Deprecation { unavailable_after: until });
    };
    deprecate(&mut world, 0);
    assert_eq!(creation(&changes(world.plan()))["load_balancer_type"], "lb21");
    let types = Arc::make_mut(world.state.types.as_mut().unwrap());
    types[1].prices.retain(|price| *price.location != *"fsn1");
    assert_eq!(creation(&changes(world.plan()))["load_balancer_type"], "lb31");
    world.set("location=nbg1");
    assert_eq!(creation(&changes(world.plan()))["load_balancer_type"], "lb21");
}

#[test]
fn without_a_type_a_new_load_balancer_gets_the_cheapest_type() {
    for (names, expected) in [(&["lb11", "lb21"][..], "lb11"), (&["lb21", "lb31"], "lb21")] {
        let mut world = World::new(Profile::CcmFromScratch);
        world.nodes = nodes(30);
        retain_types(&mut world, names);
        let plan = world.plan();
        let why = &world.finding_messages(Reason::LoadBalancerTypeUnconfigured)[0];
        assert_says(why, &[expected, " a month without VAT"]);
        assert_eq!(creation(&changes(plan))["load_balancer_type"], expected);
        world.state.are_types_old = true;
        assert!(world.needs().types);
    }
    // The list can't be read. Nor does an existing load balancer need it.
    let mut world = World::new(Profile::CcmFromScratch);
    let types = world.state.types.take();
    world.state.types_error = Some("status 500".to_owned());
    assert_eq!(creation(&changes(world.plan()))["load_balancer_type"], "lb11");
    world.state.types = types;
    world.converge();
    world.state.types = None;
    world.state.are_types_old = true;
    world.nodes = nodes(30);
    let plan = world.plan();
    assert!(!plan.needs.types && plan.sizing.is_none());
    assert!(!words(&changes(plan)).contains("change_type"));
}

/// Two Services share a load balancer, and a Service of another namespace is their guest.
#[test]
fn each_service_of_a_group_finds_the_same_and_a_guest_does_not_decide() {
    let member = |at: u16, namespace: &str, annotations: &str| {
        let mut one = service();
        one.namespace = namespace.into();
        (one.name, one.uid) = (format!("web-{at}"), format!("uid-{at}"));
        one.created = jiff::Timestamp::from_second(i64::from(at)).ok();
        one.ports = (0..3).map(|place| port("p", 100 * at + place)).collect();
        let mut world = World::new(Profile::CcmFromScratch);
        world.service = one;
        world.set(annotations);
        world.service
    };
    let own = "share=default/edge type=auto share-namespaces=shop";
    let guest = "share=default/edge type=lb31 type-max=lb11";
    let all = [member(1, "default", own), member(2, "default", own), member(3, "shop", guest)];
    let mut world = World::new(Profile::CcmFromScratch);
    let key = world.group(&all[0]).unwrap();
    world.cluster.service_uids = all.iter().map(|one| one.uid.clone()).collect();
    world.cluster.groups = Groups::from(HashMap::from([(key, all.to_vec())]));
    let plan = |world: &World, service: &Service| {
        World { service: service.clone(), ..world.clone() }.plan()
    };
    for service in &all {
        let plan = plan(&world, service);
        let body = creation(&changes(plan));
        assert_eq!(body["load_balancer_type"], "lb21", "{}", service.name);
        assert!(body["labels"][GROUP].is_string());
    }
    for at in [0, 1, 2, 0, 1, 2] {
        world.service = all[at].clone();
        world.converge();
    }
    for service in &all {
        let plan = plan(&world, service);
        assert!(plan.outcome.changes().is_empty(), "{:?}", plan.outcome);
        assert_eq!(plan.sizing.unwrap().ports, 9, "{}", service.name);
    }
}
