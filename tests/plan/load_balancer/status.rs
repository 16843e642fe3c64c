//! The Service's status, and what people see of a load balancer.

use crate::load_balancer::support::{World, assert_says, node, port, selector_target};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{ApiTarget, HealthStatus, PortField};
use ccm::provider::{
    Balancer, BalancerHealth, Ingress, InstanceId, PortOwner, ProviderId, Reason, TargetHealth,
};

const V4: &str = "IPv4";
const V6: &str = "IPv6";
/// The first address of the Network that is free.
const PRIVATE: &str = "10.0.0.2";

/// Annotations, whether there is a Network, the addresses and their mode.
type Case<'a> = (&'a str, bool, &'a [&'a str], &'a str);

#[test]
fn the_addresses_in_the_status_have_their_order_and_mode() {
    #[rustfmt::skip] // A case is a line.
    let cases: &[Case] = &[
        ("", false, &[V4, V6], "VIP"),
        ("ipv6-disabled=true", false, &[V4], "VIP"),
        ("uses-proxyprotocol=true", false, &[V4, V6], "Proxy"),
        ("", true, &[V4, V6, PRIVATE], "VIP"),
        ("disable-private-ingress=true", true, &[V4, V6], "VIP"),
        ("disable-public-network=true use-private-ip=true", true, &[PRIVATE], "VIP"),
        ("disable-public-network=true use-private-ip=true disable-private-ingress=true", true, &[], "VIP"),
    ];
    for (annotations, network, addresses, mode) in cases {
        let mut world = World::new(Profile::CcmFromScratch);
        if *network {
            world = world.with_network();
        }
        world.set(annotations);
        assert_eq!(world.plan().status, None, "nothing is there yet");
        world.converge();
        let status = world.ingress();
        let ips = status.iter().map(|one| one.ip.as_deref().unwrap());
        let ips: Vec<String> = ips.map(|ip| world.named_address(ip)).collect();
        assert_eq!(ips, *addresses, "{annotations:?}");
        let mut modes = status.iter().map(|one| one.ip_mode.as_deref());
        assert!(modes.all(|one| one == Some(*mode)), "{annotations}");
    }
}

#[test]
fn a_host_name_stands_alone_and_one_proxy_port_is_enough() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.service.ports.push(port("https", 443));
    world.set("uses-proxyprotocol.443=true");
    world.converge();
    let is_proxy = |one: Ingress| one.ip_mode.as_deref() == Some("Proxy");
    assert!(world.ingress().into_iter().all(is_proxy));
    world.set("hostname=a.example");
    let status = serde_json::to_value(world.ingress()).unwrap();
    assert_eq!(status, serde_json::json!([{ "hostname": "a.example" }]));
}

/// A proxy protocol that was set by hand, and that upstream's profile leaves, counts too.
#[test]
fn a_proxy_protocol_that_stays_is_reported() {
    let mut world = World::new(Profile::Hcloud);
    world.converge();
    world.balancer_mut().services[0].set(PortField::ProxyProtocol, true);
    assert!(world.converge().is_empty());
    assert_eq!(world.ingress()[0].ip_mode.as_deref(), Some("Proxy"));
}

#[test]
fn the_health_of_targets_is_shown_by_node() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.converge();
    for target in &mut world.balancer_mut().targets {
        let ApiTarget::Server { server, health_status, .. } = target else {
            continue;
        };
        let is_well = server.id == 1;
        let health = HealthStatus {
            listen_port: 80,
            status: if is_well { "healthy" } else { "unhealthy" }.into(),
            detail: (!is_well).then(|| "layer4_timeout".into()),
            http_status_code: None,
        };
        *health_status = [health].into();
    }
    let balancer = world.plan().found.unwrap();
    assert_eq!(balancer.kind, "lb11");
    assert_eq!(balancer.location, "fsn1");
    assert_eq!(balancer.addresses.len(), 2);
    let targets = balancer.targets.iter();
    let healthy = targets.map(|target| (target.name.as_str(), target.is_healthy()));
    let expected = [("worker-01", true), ("worker-02", false), ("worker-03", false)];
    assert_eq!(healthy.collect::<Vec<_>>(), expected);
    let expected =
        TargetHealth { detail: Some("layer4_timeout".into()), ..health(80, "unhealthy") };
    assert_eq!(balancer.targets[1].health, [expected]);
}

fn health(port: u16, status: &str) -> TargetHealth {
    TargetHealth {
        port,
        status: status.into(),
        detail: None,
        http_status: None,
        is_of_kube_proxy: false,
        cause: None,
    }
}

/// Returns a target with the results of the health checks of some ports.
fn target(statuses: &[(u16, &str)]) -> ccm::provider::Target {
    let statuses = statuses.iter();
    ccm::provider::Target {
        name: "node".into(),
        health: statuses.map(|(port, status)| health(*port, status)).collect(),
    }
}

/// Port and status of each check of each target.
type Checks<'a> = &'a [&'a [(u16, &'a str)]];

const GOOD: (u16, &str) = (80, "healthy");
const BAD: (u16, &str) = (80, "unhealthy");
const NEW: (u16, &str) = (80, "unknown");

#[test]
fn every_count_of_healthy_targets_follows_one_rule() {
    let other = |status| (443, status);
    // The checks of each target, how many targets are healthy, what is said of all.
    #[rustfmt::skip] // A case is a line.
    let cases: &[(Checks, usize, BalancerHealth)] = &[
        (&[], 0, BalancerHealth::None),
        (&[&[GOOD], &[GOOD]], 2, BalancerHealth::All),
        (&[&[GOOD], &[BAD]], 1, BalancerHealth::Some),
        (&[&[BAD], &[BAD]], 0, BalancerHealth::None),
        (&[&[GOOD], &[NEW]], 1, BalancerHealth::All),
        (&[&[BAD], &[NEW]], 0, BalancerHealth::None),
        (&[&[NEW], &[NEW]], 0, BalancerHealth::Unknown),
        (&[&[], &[]], 0, BalancerHealth::Unknown),
        (&[&[GOOD, other("unhealthy")], &[GOOD, other("healthy")]], 1, BalancerHealth::Some),
        (&[&[GOOD, other("unhealthy")], &[GOOD, other("unhealthy")]], 0, BalancerHealth::None),
        (&[&[GOOD, other("unknown")]], 0, BalancerHealth::Unknown),
    ];
    for (targets, healthy, health) in cases {
        let balancer = Balancer {
            targets: targets.iter().map(|checks| target(checks)).collect(),
            ..Balancer::default()
        };
        let counts = balancer.target_counts(Some("uid"));
        assert_eq!(counts.total, targets.len(), "{targets:?}");
        assert_eq!(counts.healthy, *healthy, "{targets:?}");
        assert_eq!(counts.health(), *health, "{targets:?}");
    }
}

/// Only the Service's own ports count on a load balancer that several Services share. Without such a port all
/// of them count.
#[test]
fn ports_of_other_services_do_not_count() {
    let port = |port, uid: &str| PortOwner {
        port,
        uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
        service: None,
        destination: None,
    };
    let balancer = Balancer {
        targets: vec![target(&[GOOD, (443, "unhealthy"), (22, "unhealthy")])],
        ports: vec![port(80, "a"), port(443, "b"), port(22, "")],
        ..Balancer::default()
    };
    for (uid, healthy, has_port) in [("a", 1, true), ("b", 0, true), ("c", 0, false)] {
        assert_eq!(balancer.target_counts(Some(uid)).healthy, healthy, "{uid}");
        assert_eq!(balancer.has_port_of(uid), has_port, "{uid}");
    }
}

#[test]
fn the_servers_that_a_label_selector_selects_are_shown_with_their_health() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.converge();
    let mut selector = selector_target("pool=web", Some(&[1, 77]));
    if let ApiTarget::LabelSelector { targets: Some(all), .. } = &mut selector {
        for (one, status) in all.iter_mut().zip(["healthy", "unhealthy"]) {
            one.health_status = vec![HealthStatus {
                listen_port: 80,
                status: status.into(),
                ..HealthStatus::default()
            }];
        }
    }
    world.balancer_mut().targets = vec![selector];
    let found = world.plan().found.unwrap();
    let names: Vec<&str> = found.targets.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["worker-01", "server 77"]);
    let counts = found.target_counts(None);
    assert_eq!((counts.healthy, counts.total), (1, 2));
}

#[test]
fn nodes_that_are_not_ours_are_reported_and_are_no_targets() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.nodes[0].provider_id = ProviderId::Foreign;
    world.nodes[1].provider_id = ProviderId::Unknown("no number".into());
    world.nodes.push(node(3)); // Claims a server twice.
    let told = world.findings();
    assert!(told.contains(&Reason::UnknownProviderIDPrefix), "{told:?}");
    assert!(told.contains(&Reason::TargetIgnored), "{told:?}");
    world.converge();
    let targets: Vec<_> = world.balancer().server_targets().collect();
    assert_eq!(targets, [(3, false)]);
}

/// Three servers are targets. The node of server 1 is not ours, and the target stays if the node's provider ID may mean
/// this server.
#[test]
fn a_target_with_a_node_of_another_program_stops_all_changes() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("hetzner://1", true),
        ("hcloud://1", true),
        ("other:///eu-central/1", true),
        ("hetzner://2", false), // Server 2 has a node of ours, so its target is not in danger.
        ("hetzner://9", false), // Server 9 is no target.
        ("hcloud://bm-1", false),
        ("k3s://worker-01", false),
        ("hetzner://", false),
        ("1x", false),
    ];
    for (id, stays) in cases {
        let mut world = World::new(Profile::CcmFromScratch);
        world.converge();
        world.nodes[0].provider_id = ProviderId::Foreign;
        world.cluster.servers.remove(&InstanceId::Cloud(1));
        world.cluster.foreign_nodes.push(("worker-01".to_owned(), id.to_owned()));
        if stays {
            assert_says(
                &world.obstacle(),
                &["to node worker-01, ", id, "does not change the load balancer"],
            );
        } else {
            world.converge();
            let targets: Vec<_> = world.balancer().server_targets().collect();
            assert_eq!(targets, [(2, false), (3, false)], "{id}");
        }
    }
}

/// A dry run says what the status will be, not what the old address was.
#[test]
fn the_status_has_the_private_address_of_the_coming_attachment() {
    let mut world = World::new(Profile::CcmFromScratch).with_network();
    world.converge();
    let ips = |world: &World| -> Vec<String> {
        let ingress = world.ingress().into_iter();
        ingress.filter_map(|entry| entry.ip).collect()
    };
    let before = ips(&world);
    assert_eq!(before.last().map(String::as_str), Some(PRIVATE));
    world.set("private-ipv4=10.0.0.77");
    let told = ips(&world);
    assert_eq!(told.last().map(String::as_str), Some("10.0.0.77"));
    assert_eq!(told.len(), before.len());
    world.converge();
    assert_eq!(ips(&world), told);
    // In another Network the API chooses the address.
    world.unset("private-ipv4");
    world.network = Some(11);
    assert_eq!(ips(&world), before[..2]);
}
