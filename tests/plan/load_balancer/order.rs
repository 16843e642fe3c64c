//! The order of changes. Traffic always has a target, and the API refuses no change.

use crate::load_balancer::project::fresh;
use crate::load_balancer::support::{
    NETWORK, UID, World, changes, count, creation, environment, labels, lines, node, nodes, pairs,
    port, selector_target, server_target, words,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{ApiTarget, BalancerPrivateNet, SERVICE_UID, Subnet};
use ccm::provider::{AddressKind, InstanceId, NodeAddress, ProviderId, Reach, Reason};

#[test]
fn all_changes_at_once_are_made_in_the_order_of_the_specification() {
    let mut world = World::new(Profile::CcmFromScratch).with_network();
    world.service.ports = vec![port("a", 80), port("b", 81)];
    world.set("use-private-ip=true private-ipv4=10.0.0.5");
    world.converge();
    world.balancer_mut().public_net.enabled = false;
    world.service.ports = vec![port("a", 80), port("c", 82)];
    world.nodes.remove(0);
    world.nodes.push(node(9));
    world.set("name=front type=lb21 algorithm-type=least_connections ipv4-rdns=a.example private-ipv4=10.0.0.6 disable-public-network=false uses-proxyprotocol=true");
    let expected = "edit change_type change_algorithm change_dns_ptr detach_from_network attach_to_network \
                    enable_public_interface delete_service update_service add_service add_target add_target add_target";
    assert_eq!(words(&changes(world.plan())), expected);
    // Made anew after each change that drops or brings state, and the same in the end.
    assert_eq!(words(&world.converge()), expected);
}

#[test]
fn the_public_interface_is_disabled_and_the_type_reduced_last() {
    let mut world = World::new(Profile::CcmFromScratch).with_network();
    world.set("type=lb21");
    world.converge();
    world.set("type=lb11 use-private-ip=true disable-public-network=true");
    let turned = "remove_target add_target ".repeat(3);
    let expected = turned + "disable_public_interface change_type";
    assert_eq!(words(&world.converge()), expected);
}

#[test]
fn new_targets_are_added_before_old_ones_are_removed() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.nodes = nodes(4);
    world.converge();
    world.nodes = nodes(6).split_off(2);
    // The first is still a node that gets no traffic, the second is none any more.
    world.cluster.servers.remove(&InstanceId::Cloud(2));
    let made = lines(&world.converge());
    let expected = [
        "target worker-05: added",
        "target worker-06: added",
        "target worker-01: removed",
        "target server 2: removed",
    ];
    assert_eq!(made, expected);
}

#[test]
fn one_target_is_removed_for_each_new_one_at_the_limit() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.nodes = nodes(24);
    world.converge();
    world.nodes = nodes(27).split_off(3);
    let expected = ["add_target remove_target"; 3].join(" ");
    assert_eq!(words(&world.converge()), expected);
}

#[test]
fn present_targets_stay_at_the_limit_and_then_names_decide() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.nodes = nodes(30).split_off(10);
    world.converge();
    let own = selector_target("somebody=else", Some(&[0]));
    world.balancer_mut().targets.push(own);
    world.nodes = nodes(30);
    let message = world.finding_messages(Reason::MaxTargetsReached).remove(0);
    let named = "worker-05, worker-06, worker-07, worker-08, worker-09 and 1 more.";
    assert!(message.contains(named), "{message}");
    world.converge();
    let mut targets: Vec<u64> = world.balancer().server_targets().map(|t| t.0).collect();
    targets.sort_unstable();
    let expected: Vec<u64> = (1..=4).chain(11..=30).collect();
    assert_eq!(targets, expected);
    let is_own = |target: &ApiTarget| matches!(target, ApiTarget::LabelSelector { .. });
    assert!(world.balancer().targets.iter().any(is_own));
    assert!(world.converge().is_empty());
}

#[test]
fn a_new_load_balancer_is_created_with_everything_in_one_call() {
    let mut world = World::new(Profile::CcmFromScratch).with_network();
    world.nodes = nodes(20);
    world.service.ports = (1..=5).map(|n| port(&format!("p{n}"), n)).collect();
    world.set("use-private-ip=true disable-public-network=true");
    let made = world.converge();
    assert_eq!(words(&made), "create");
    let create = creation(&made);
    assert_eq!(create["network"], NETWORK);
    assert_eq!(create["public_interface"], false);
    let parts = (count(&create["services"]), count(&create["targets"]));
    assert_eq!(parts, (5, 20));
    let json = made[0].json();
    assert_eq!(json["change"], "create");
    assert_eq!(json["request"]["targets"][0]["use_private_ip"], true);
}

/// The one call can't name an address in the Network, so neither can it name targets there.
#[test]
fn an_address_in_the_network_takes_a_call_of_its_own() {
    for by_environment in [true, false] {
        let mut world = World::new(Profile::CcmFromScratch).with_network();
        world.set("use-private-ip=true disable-public-network=true");
        match by_environment {
            true => {
                let variable = "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE";
                let range = environment(variable, "10.0.0.0/24".parse().unwrap());
                world.defaults.network.private_subnet = Some(range);
            }
            false => world.set("private-ipv4=10.0.0.5"),
        }
        let made = world.converge();
        let create = creation(&made);
        assert!(create["network"].is_null());
        assert_eq!(count(&create["targets"]), 0);
        let expected =
            "create attach_to_network add_target add_target add_target disable_public_interface";
        assert_eq!(words(&made), expected);
    }
}

#[test]
fn another_network_is_left_for_the_configured_one() {
    let mut world = World::new(Profile::CcmFromScratch).with_network();
    let mut own = fresh(1, "x", "lb11");
    own.labels = labels(&format!("{SERVICE_UID}={UID}"));
    own.private_net = vec![BalancerPrivateNet { network: 11, ip: None }];
    own.targets = vec![server_target(1, true)];
    world.state.balancers = vec![own];
    world.set("use-private-ip=true");
    let expected =
        "edit detach_from_network attach_to_network add_service add_target add_target add_target";
    assert_eq!(words(&world.converge()), expected);
    assert_eq!(world.balancer().private_net[0].network, NETWORK);
}

#[test]
fn only_a_port_a_target_or_a_name_may_fail_alone() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.converge();
    world.service.ports = vec![port("a", 81)];
    world.nodes = nodes(4).split_off(1);
    world.set("ipv4-rdns=a.example type=lb21");
    let (alone, others): (Vec<_>, Vec<_>) =
        changes(world.plan()).into_iter().partition(|one| one.may_fail_alone());
    assert_eq!(words(&alone), "change_dns_ptr add_service add_target");
    assert_eq!(words(&others), "change_type delete_service remove_target");
}

#[test]
fn the_last_targets_wait_for_one_that_works_and_others_do_not() {
    // Whether each removal waits for an addition that works.
    let flags = |world: &World| -> Vec<bool> {
        let all = changes(world.plan()).into_iter();
        let removals = all.filter(|one| one.description().done().join(", ").contains("removed"));
        removals.map(|one| one.needs_another_first()).collect()
    };
    // Nodes that are left, and whether removals wait.
    for (left, waits) in [(vec![2, 4], false), (vec![4, 5], true)] {
        let mut world = World::new(Profile::CcmFromScratch);
        world.converge();
        world.nodes = left.iter().map(|id| node(*id)).collect();
        let flags = flags(&world);
        assert_eq!(flags, vec![waits; flags.len()], "{left:?}");
        assert!(flags.len() >= 2, "{left:?}");
    }
    // Targets change to their private addresses. When none of them can be reached there, only one is lost.
    let mut world = World::new(Profile::CcmFromScratch).with_network();
    world.converge();
    world.set("use-private-ip=true");
    assert!(flags(&world).into_iter().all(|waits| waits));
}

/// A load balancer without its public interface cannot turn targets back. The obstacle is reported before a
/// target is changed.
#[test]
fn no_target_is_removed_that_could_not_be_added_again_by_its_public_address() {
    let private = "use-private-ip=true disable-public-network=true";
    // Each case has what is left of both annotations, the nodes, and whether there is an obstacle.
    for (left, nodes, is_refused) in [
        ("", &[1, 2, 3][..], true),
        ("use-private-ip=true", &[1, 2, 3], false),
        ("disable-public-network=false", &[1, 2, 3], false),
        // Another node comes, and those that were there are gone.
        ("", &[4], true),
        // No target must be reached.
        ("", &[], false),
    ] {
        let mut world = World::new(Profile::CcmFromScratch).with_network();
        world.set(private);
        world.converge();
        assert!(!world.balancer().public_net.enabled);
        pairs(private).for_each(|(name, _)| world.unset(name));
        world.set(left);
        world.nodes = nodes.iter().copied().map(node).collect();
        if is_refused {
            let message = world.obstacle();
            #[rustfmt::skip]
            let says = ["public interface", "is off", "disable-public-network", "use-private-ip", "kubernetes-default-web"];
            for part in says {
                assert!(message.contains(part), "{left}: {message}");
            }
            // The difference is shown all the same.
            let plan = world.plan();
            assert!(plan.fields.iter().any(|field| field.differs()), "{plan:?}");
        } else {
            world.converge();
        }
    }
}

/// A target that could not be added again by the other address stays as it is. The others change.
#[test]
fn a_target_whose_server_has_no_such_address_stays_as_it_is() {
    let private = "use-private-ip=true";
    let closed = "use-private-ip=true disable-public-network=true";
    // Annotations before and after, the server that lacks the other address → its and the others' ways, and is the
    // public interface on?
    for (before, after, lacks, turned, is_public) in [
        ("", private, &[1][..], "1 2p 3p", true),
        ("", private, &[1, 2, 3], "1 2 3", true),
        // The target is removed when the way to it is to be closed and other targets exist.
        ("", closed, &[2], "1p 3p", false),
        ("", closed, &[1, 2, 3], "1 2 3", true),
        (private, "", &[3], "1 2 3p", true),
        (private, "", &[], "1 2 3", true),
    ] {
        let about = format!("{after} {lacks:?}");
        let mut world = World::new(Profile::CcmFromScratch).with_network();
        world.set(before);
        world.converge();
        pairs(before).for_each(|(name, _)| world.unset(name));
        world.set(after);
        assert!(world.needs().servers, "{about}");
        for node in &mut world.nodes {
            let ProviderId::Ours(InstanceId::Cloud(id)) = node.provider_id else {
                panic!();
            };
            let has_other = !lacks.contains(&id);
            let is_private = !after.is_empty();
            node.reach = Reach::By {
                has_public_ipv4: is_private || has_other,
                networks: vec![if !is_private || has_other { NETWORK } else { 11 }],
            };
        }
        world.converge();
        let way = |(server, private)| format!("{server}{}", if private { "p" } else { "" });
        let mut ways: Vec<String> = world.balancer().server_targets().map(way).collect();
        ways.sort_unstable();
        assert_eq!(ways.join(" "), turned, "{about}");
        assert_eq!(world.balancer().public_net.enabled, is_public, "{about}");
        let plan = world.plan();
        let told: Vec<&str> = plan.findings.iter().map(|one| &*one.message).collect();
        assert_eq!(told.is_empty(), lacks.is_empty(), "{about}: {told:?}");
        assert_eq!(plan.outcome.is_unfinished(), !lacks.is_empty(), "{about}");
        assert_eq!(world.needs().servers, !lacks.is_empty(), "{about}");
        let name = |id: &u64| told[0].contains(&format!("worker-0{id}"));
        assert!(lacks.iter().all(name), "{about}: {told:?}");
        // A new one is made without what the cloud would refuse.
        world.state.balancers.clear();
        let made = world.converge();
        let targets = count(&creation(&made)["targets"]);
        assert_eq!(targets, 3 - lacks.len(), "{about}");
    }
}

/// Each case has the servers of the nodes: `there`, `missing` from a list requested after the pass began, missing
/// from an `older` list, or not read. Then come the targets before and after, and whether the servers must be read
/// before the plan.
#[test]
fn only_servers_that_exist_are_targets() {
    let exists = || Reach::By { has_public_ipv4: true, networks: vec![] };
    let missing = || Reach::Missing { is_certain: true };
    let older = || Reach::Missing { is_certain: false };
    let unknown = || Reach::Unknown;
    type Case = ([fn() -> Reach; 3], &'static [u64], &'static [u64], bool);
    #[rustfmt::skip] // A case is a line.
    let cases: &[Case] = &[
        ([exists, exists, exists], &[], &[1, 2, 3], true),
        ([exists, exists, exists], &[1, 2, 3], &[1, 2, 3], false),
        ([unknown, unknown, unknown], &[1, 2, 3], &[1, 2, 3], false),
        ([unknown, unknown, unknown], &[1], &[1, 2, 3], true),
        ([exists, exists, missing], &[1, 2], &[1, 2], false),
        ([exists, exists, missing], &[1, 2, 3], &[1, 2], true),
        ([exists, missing, missing], &[2], &[1], true),
        // The server may be newer than the list, so the plan must be confirmed by a newer list.
        ([exists, exists, older], &[1, 2], &[1, 2, 3], true),
        ([exists, exists, older], &[1, 2, 3], &[1, 2], true),
        // A list of another project contains none of the servers. Nothing is removed.
        ([missing, missing, missing], &[1, 2], &[1, 2], true),
        ([missing, missing, missing], &[], &[], false),
    ];
    for (reach, before, after, needs) in cases {
        let about = format!("{:?} {before:?}", reach.map(|reach| reach()));
        let mut world = World::new(Profile::CcmFromScratch);
        world.converge();
        let targets = before.iter().map(|id| server_target(*id, false));
        world.balancer_mut().targets = targets.collect();
        for (node, reach) in world.nodes.iter_mut().zip(reach) {
            node.reach = reach();
        }
        assert_eq!(world.needs().servers, *needs, "{about}");
        // Changes are made one at a time, because an older list adds and removes one target in turn.
        for change in changes(world.plan()) {
            world.apply(&*change);
        }
        let mut targets: Vec<u64> = world.balancer().server_targets().map(|t| t.0).collect();
        targets.sort_unstable();
        assert_eq!(targets, *after, "{about}");
    }
    // A new one is created with the others at once.
    let mut world = World::new(Profile::CcmFromScratch);
    world.nodes[0].reach = missing();
    assert!(world.needs().servers);
    let made = world.converge();
    let targets = count(&creation(&made)["targets"]);
    assert_eq!((targets, made.len()), (2, 1));
}

/// A change that the API would refuse later is reported before anything is paid for or detached.
#[test]
fn a_network_to_which_it_cannot_be_attached_is_reported_before_any_change() {
    let subnet = |range: &str, kind: &str, zone: &str| Subnet {
        kind: kind.into(),
        ip_range: range.parse().unwrap(),
        network_zone: zone.into(),
    };
    type Case<'a> = (&'a [Subnet], &'a str, &'a [&'a str]);
    let cloud = subnet("10.0.0.0/24", "cloud", "eu-central");
    let far = subnet("10.1.0.0/24", "cloud", "us-east");
    let other = subnet("10.2.0.0/24", "vswitch", "eu-central");
    let some = [cloud.clone(), far.clone(), other.clone()];
    let ip = "annotation load-balancer.hetzner.cloud/private-ipv4: ";
    let range = "annotation load-balancer.hetzner.cloud/private-subnet-ip-range: ";
    #[rustfmt::skip] // A case is a line or two.
    let cases: &[Case] = &[
        (&some, "private-ipv4=10.0.0.5", &[]),
        (&some, "private-subnet-ip-range=10.0.0.0/24", &[]),
        (&some, "private-ipv4=10.9.0.1", &[ip, "10.9.0.1 is in no subnet of Network 10 that load balancers in network zone eu-central can use. Choose another value; hcloud network describe 10 shows the subnets of the Network"]),
        (&some, "private-ipv4=10.1.0.5", &[ip, "10.1.0.5 is in no subnet"]),
        (&some, "private-ipv4=10.2.0.5", &[ip, "10.2.0.5 is in no subnet"]),
        (&some, "private-subnet-ip-range=10.1.0.0/24", &[range, "no subnet 10.1.0.0/24 that load balancers in network zone eu-central can use. Choose another value; hcloud network describe 10 shows the subnets of the Network"]),
        (&some, "private-ipv4=10.0.0.5 private-subnet-ip-range=10.1.0.0/24", &[ip, "10.0.0.5 is not in the range 10.1.0.0/24"]),
        (&some, "private-ipv4=10.0.0.77", &[ip, "10.0.0.77 is already the private IP of load balancer \"neighbour\" (7)"]),
        (&some, "private-ipv4=10.0.0.66", &[ip, "10.0.0.66 is already the private IP of node worker-01"]),
        (&[far.clone(), other.clone()], "", &["HCLOUD_NETWORK", "Network 10 has no subnet in network zone eu-central", "hcloud network add-subnet 10"]),
        (&[], "", &["HCLOUD_NETWORK", "has no subnet"]),
    ];
    for (subnets, annotations, says) in cases {
        // A new one, and one that is to be attached anew.
        for is_there in [false, true] {
            let mut world = World::new(Profile::CcmFromScratch).with_network();
            let mut neighbour = fresh(7, "neighbour", "lb11");
            neighbour.private_net = vec![BalancerPrivateNet {
                network: NETWORK,
                ip: Some("10.0.0.77".parse().unwrap()),
            }];
            world.state.balancers.push(neighbour);
            let address = NodeAddress::new(AddressKind::InternalIP, "10.0.0.66");
            world.nodes[0].addresses.push(address);
            if is_there {
                world.converge();
                if !annotations.contains("private-ipv4") {
                    world.balancer_mut().private_net.clear();
                }
            }
            world.set(annotations);
            world.state.subnets = Some(subnets.to_vec().into());
            let about = format!("{annotations} {is_there}");
            if says.is_empty() {
                assert_eq!(world.plan().outcome.obstacle(), None, "{about}");
                continue;
            }
            let message = world.obstacle();
            for part in *says {
                assert!(message.contains(part), "{about}: {message}");
            }
        }
    }
}

#[test]
fn a_location_in_which_the_type_is_not_sold_is_reported() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.set("location=mars");
    let message = world.obstacle();
    let says = "annotation load-balancer.hetzner.cloud/location: there is no location \"mars\" for load balancers of type \
                lb11; use ash, fsn1, hel1, hil, nbg1 or sin";
    assert_eq!(message, says);
}
