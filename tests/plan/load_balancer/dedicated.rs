//! Nodes on dedicated servers, which are targets by their addresses.

use crate::load_balancer::random::Random;
use crate::load_balancer::support::{
    NETWORK, PROFILES, World, changes, count, creation, ip_target, lines, node,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{ApiTarget, Subnet};
use ccm::provider::{AddressKind, InstanceId, NodeAddress, OfferedNode, ProviderId, Reason};
use std::net::{IpAddr, Ipv4Addr};

const VSWITCH: &str = "10.0.1.0/24";

fn public(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 0, number)
}

fn private(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, number)
}

/// Returns `metal-01` on dedicated server 1, and so on. The numbers are also those of cloud servers.
fn metal(number: u8) -> OfferedNode {
    OfferedNode {
        name: format!("metal-{number:02}"),
        provider_id: ProviderId::Ours(InstanceId::Dedicated(number.into())),
        addresses: vec![
            NodeAddress::new(AddressKind::ExternalIP, public(number)),
            NodeAddress::new(AddressKind::InternalIP, private(number)),
        ],
        dedicated_ipv4: Some(public(number)),
        ..node(number.into())
    }
}

/// Returns a world with one cloud server and two dedicated ones, in a Network with a vSwitch.
fn world(profile: Profile) -> World {
    let mut world = World::new(profile).with_network();
    world.nodes = vec![node(1), metal(1), metal(2)];
    for number in 1..=3 {
        for ip in [public(number), private(number)] {
            let name = metal(number).name;
            world.cluster.dedicated.insert(ip.into(), name);
            world.cluster.addresses.insert(ip.into());
        }
        world.cluster.proven.insert(public(number).into());
    }
    let subnet = |kind: &str, range: &str| Subnet {
        kind: kind.into(),
        ip_range: range.parse().unwrap(),
        network_zone: "eu-central".into(),
    };
    let subnets = vec![subnet("cloud", "10.0.0.0/24"), subnet("vswitch", VSWITCH)];
    world.state.subnets = Some(subnets.into());
    world
}

fn addresses(world: &World) -> Vec<String> {
    let targets = world.balancer().targets.iter();
    let ips = targets.filter_map(|target| match target {
        ApiTarget::Ip { ip, .. } => Some(ip.ip.to_string()),
        _ => None,
    });
    let mut ips: Vec<String> = ips.collect();
    ips.sort();
    ips
}

fn add_address(world: &mut World, ip: impl Into<IpAddr>) {
    world.balancer_mut().targets.push(ip_target(ip));
}

/// Shows the world as the controllers see it with `ROBOT_ENABLED=false`, or without credentials.
fn turn_off(world: &mut World, is_off: bool) {
    world.cluster.dedicated.clear();
    world.cluster.proven.clear();
    for node in &mut world.nodes {
        if let ProviderId::Ours(InstanceId::Dedicated(_)) = node.provider_id {
            node.dedicated_ipv4 = None;
            if is_off {
                node.provider_id = ProviderId::Unknown("ROBOT_ENABLED is not true".into());
            }
        }
    }
}

#[test]
fn a_new_load_balancer_has_dedicated_nodes_as_targets_by_their_public_addresses() {
    for profile in PROFILES {
        let mut world = world(profile);
        let made = world.converge();
        assert_eq!(made.len(), 1, "{:?}", lines(&made));
        assert_eq!(count(&creation(&made)["targets"]), 3);
        assert_eq!(addresses(&world), ["198.19.0.1", "198.19.0.2"]);
        assert_eq!(world.balancer().server_targets().count(), 1);
        assert_eq!(world.findings(), []);
    }
}

#[test]
fn dedicated_targets_with_use_private_ip_have_the_address_behind_the_vswitch() {
    let mut world = world(Profile::CcmFromScratch);
    world.converge();
    world.set("use-private-ip=true");
    let made = lines(&world.converge());
    let expected = [
        "target metal-01 (10.0.1.1): added",
        "target metal-02 (10.0.1.2): added",
        "target metal-01 (198.19.0.1): removed",
        "target metal-02 (198.19.0.2): removed",
    ];
    let of_metal: Vec<&String> = made.iter().filter(|line| line.contains("metal")).collect();
    assert_eq!(of_metal, expected, "make before break");
    assert_eq!(addresses(&world), ["10.0.1.1", "10.0.1.2"]);
}

#[test]
fn a_dedicated_target_without_a_private_address_has_the_public_one_and_a_finding() {
    let mut world = world(Profile::CcmFromScratch);
    world.set("use-private-ip=true");
    let elsewhere = NodeAddress::new(AddressKind::InternalIP, Ipv4Addr::new(192, 168, 0, 2));
    world.nodes[2].addresses = vec![elsewhere];
    world.converge();
    assert_eq!(addresses(&world), ["10.0.1.1", "198.19.0.2"]);
    assert_eq!(world.findings(), [Reason::InternalIPNotConfigured]);
    // The read for this plan has no subnets, which is no reason to change an existing target.
    world.state.subnets = None;
    assert!(world.plan().outcome.changes().is_empty());
}

#[test]
fn a_node_that_is_no_target_any_more_is_removed_and_no_foreign_address() {
    for profile in PROFILES {
        let mut world = world(profile);
        world.converge();
        add_address(&mut world, Ipv4Addr::new(198, 51, 100, 7));
        world.nodes.remove(2);
        let made = lines(&world.converge());
        assert_eq!(made, ["target metal-02 (198.19.0.2): removed"]);
        assert_eq!(addresses(&world), ["198.19.0.1", "198.51.100.7"]);
        assert_eq!(world.findings(), [Reason::TargetIgnored]);
        // The node was deleted, so nothing shows whose the address is.
        world.nodes.remove(1);
        world.cluster.dedicated.clear();
        world.cluster.proven.clear();
        assert_eq!(world.converge().len(), 0);
        assert_eq!(addresses(&world), ["198.19.0.1", "198.51.100.7"]);
    }
}

/// A kubelet in the vSwitch's subnet can report an operator's target as its own address.
#[test]
fn an_address_that_only_a_kubelet_knows_removes_no_target() {
    for use_private_ip in ["true", "false"] {
        for is_offered in [true, false] {
            let mut world = world(Profile::CcmFromScratch);
            world.set_one("use-private-ip", use_private_ip);
            world.converge();
            add_address(&mut world, private(77));
            let reported = NodeAddress::new(AddressKind::InternalIP, private(77));
            world.nodes[2].addresses = vec![reported];
            let name = "metal-02".to_owned();
            world.cluster.dedicated.insert(private(77).into(), name);
            if !is_offered {
                world.nodes.remove(2);
            }
            world.converge();
            let is_target = addresses(&world).contains(&private(77).to_string());
            assert!(is_target, "{use_private_ip} {is_offered}");
            assert!(world.plan().outcome.changes().is_empty());
            let made = lines(&changes(world.removal()));
            let is_removed =
                |line: &String| line.starts_with("target ") && line.contains("10.0.1.77");
            assert!(!made.iter().any(is_removed), "{made:?}");
        }
    }
}

#[test]
fn no_dedicated_target_is_added_or_removed_while_robot_is_off() {
    for profile in PROFILES {
        for is_off in [true, false] {
            for use_private_ip in ["false", "true"] {
                let mut world = world(profile);
                world.set_one("use-private-ip", use_private_ip);
                world.converge();
                let before = addresses(&world);
                turn_off(&mut world, is_off);
                assert!(world.plan().outcome.changes().is_empty(), "off: {is_off}");
                world.nodes.truncate(2);
                assert!(world.plan().outcome.changes().is_empty(), "off: {is_off}");
                assert_eq!(addresses(&world), before);
            }
        }
    }
}

#[test]
fn new_dedicated_targets_need_credentials_or_a_private_address() {
    let mut public = world(Profile::CcmFromScratch);
    turn_off(&mut public, false);
    public.converge();
    assert_eq!(addresses(&public), [""; 0]);
    assert_eq!(public.findings(), [Reason::ServerNotFound; 2]);
    let mut private = world(Profile::CcmFromScratch);
    turn_off(&mut private, false);
    private.set("use-private-ip=true");
    private.converge();
    assert_eq!(addresses(&private), ["10.0.1.1", "10.0.1.2"]);
    assert_eq!(private.findings(), []);
}

#[test]
fn a_release_leaves_the_addresses_of_others() {
    let mut world = world(Profile::CcmFromScratch);
    world.converge();
    add_address(&mut world, Ipv4Addr::new(198, 51, 100, 7));
    let made = lines(&changes(world.removal()));
    let is_target = |line: &&String| line.starts_with("target ");
    let targets: Vec<&String> = made.iter().filter(is_target).collect();
    let expected = [
        "target metal-01 (198.19.0.1): removed",
        "target metal-02 (198.19.0.2): removed",
        "target worker-01: removed",
    ];
    assert_eq!(targets, expected, "{made:?}");
}

/// Any state and any wish may differ. Foreign targets stay, and one plan leads to the end.
#[test]
fn foreign_addresses_stay_and_one_plan_reaches_the_end_from_any_state() {
    let (mut removed, mut foreign) = (0, 0);
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let mut world = world(*random.pick(&PROFILES));
        world.converge();
        let use_private_ip = *random.pick(&["true", "false"]);
        world.set_one("use-private-ip", use_private_ip);
        let mut others = Vec::new();
        for number in 20..20 + random.below(4) as u8 {
            others.push(public(number).to_string());
            add_address(&mut world, public(number));
        }
        let all = [node(1), node(2), metal(1), metal(2), metal(3)];
        world.nodes = all.into_iter().filter(|_| random.percent(70)).collect();
        for node in &mut world.nodes {
            if random.percent(30) {
                node.addresses.clear();
            }
            if random.percent(10) {
                node.dedicated_ipv4 = None;
            }
        }
        assert_eq!(world.network, Some(NETWORK));
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.converge()));
        let made = lines(&made.unwrap_or_else(|_| panic!("seed {seed}")));
        removed += made.iter().filter(|line| line.contains("removed")).count();
        foreign += others.len();
        for other in others {
            assert!(addresses(&world).contains(&other), "seed {seed}: {made:?}");
        }
        assert!(world.plan().outcome.changes().is_empty(), "seed {seed}");
    }
    assert!(removed > 300 && foreign > 300, "{removed} {foreign}");
}
