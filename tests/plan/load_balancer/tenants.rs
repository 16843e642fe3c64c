//! What a tenant who may edit Services in one namespace can change for the Services of others on the
//! same load balancer.

use crate::load_balancer::group::{Cluster, SHARED, external, listener, reasons};
use crate::load_balancer::support::{NETWORK, node};
use ccm::hetzner::load_balancers::{EXTERNAL, KEEP, LoadBalancer, PORT, SERVICE_UID};
use ccm::provider::{LoadBalancerPlan, Reason};
use serde_json::json;

/// The owner's port, which a Service of ours asks for with the same node port.
const OWNERS: u16 = 443;

fn with_owners_port(node_port: u16) -> LoadBalancer {
    let mut one = external(&[(EXTERNAL, "")]);
    one.services.push(listener(OWNERS, node_port));
    one
}

fn port_label(number: u16) -> String {
    format!("{PORT}{number}")
}

/// The `ipMode` of each entry of the status that the plan wants.
fn modes(plan: &LoadBalancerPlan) -> Vec<String> {
    let status = plan.status.clone().expect("a status").into_iter();
    status.map(|one| one.ip_mode.unwrap_or_default()).collect()
}

fn servers(balancer: &LoadBalancer) -> Vec<u64> {
    let mut all: Vec<u64> = balancer.server_targets().map(|(id, _)| id).collect();
    all.sort_unstable();
    all
}

/// Gives two nodes the label `pool=red`, and the third one `pool=blue`.
fn label_some_nodes(cluster: &mut Cluster) {
    for (node, pool) in cluster.world.nodes.iter_mut().zip(["red", "red", "blue"]) {
        let labels = [("pool".to_owned(), pool.to_owned())];
        node.labels = labels.into_iter().collect();
    }
}

fn by_private_ip(balancer: &LoadBalancer) -> Vec<bool> {
    let targets = balancer.server_targets();
    targets.map(|(_, private)| private).collect()
}

/// The Service has the owner's port number and node port. Its status is empty, names the load balancer, or names its
/// host name. Our labels exist, or Terraform has removed them all.
#[test]
fn an_owners_port_with_the_numbers_of_a_service_stays_the_owners() {
    let mut cluster = Cluster::new();
    cluster.add("guest", 3, &[8080, OWNERS], "external=7 uses-proxyprotocol=true");
    let node_port = cluster.services["guest"].service.ports[1].node_port.unwrap();
    let before = with_owners_port(node_port);
    cluster.world.state.balancers = vec![before.clone()];
    let plan = cluster.plan("guest");
    assert!(reasons(&plan).contains(&Reason::PortConflict), "{plan:#?}");
    cluster.converge();
    let there = cluster.named("edge-lb");
    let labels = &there.labels;
    assert!(!labels.contains_key(&port_label(OWNERS)), "{labels:?}");
    assert_eq!(there.services[1], before.services[1], "the owner's port");
    cluster.delete("guest");
    cluster.converge();
    assert_eq!(*cluster.named("edge-lb"), before);
}

#[test]
fn a_port_without_labels_is_a_service_s_only_when_its_status_shows_the_load_balancer() {
    let host = Some(("hostname", "edge.example.com"));
    let other = Some(("hostname", "other.example.com"));
    for (address, hostname, is_ours) in [
        (None, None, false),
        (Some("192.0.2.99"), None, false),
        (Some("edge.example.com"), None, false),
        (Some("edge.example.com"), other, false),
        (Some("edge.example.com"), host, true),
        (Some("its own"), None, true),
    ] {
        let mut cluster = Cluster::new();
        cluster.add("a", 3, &[OWNERS], "external=7");
        cluster.add("b", 2, &[80], "external=7");
        if let Some((name, value)) = hostname {
            cluster.set("a", name, Some(value));
        }
        let node_port = cluster.services["a"].service.ports[0].node_port.unwrap();
        let before = with_owners_port(node_port);
        let own = before.public_net.ipv4.ip.unwrap().to_string();
        cluster.world.state.balancers = vec![before];
        let address = address.map(|text| text.replace("its own", &own));
        cluster.service("a").addresses = address.clone().into_iter().collect();
        let plan = cluster.plan("a");
        let is_refused = reasons(&plan).contains(&Reason::PortConflict);
        assert_eq!(is_refused, !is_ours, "{address:?}, {hostname:?}: {plan:#?}");
        // One of our labels exists, so the others were not removed together with it.
        let all = &mut cluster.world.state.balancers[0];
        all.labels.insert(port_label(80), "b".into());
        let plan = cluster.plan("a");
        let told = reasons(&plan);
        let is_told = told.contains(&Reason::PortConflict);
        assert!(is_told, "{address:?}: {plan:#?}");
    }
}

#[test]
fn the_address_is_not_taken_over_for_traffic_inside_the_cluster_where_others_have_ports() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("a Service alone", "", None, "VIP"),
        ("a group of one namespace", "share=edge", Some(("b", "share=edge")), "VIP"),
        ("a group of two namespaces", "share=edge share-namespaces=shop", Some(("shop.b", "share=default/edge")), "Proxy"),
        ("a guest that is not allowed", "share=edge", Some(("shop.b", "share=default/edge")), "VIP"),
        ("an external one", "external=7", None, "Proxy"),
    ];
    for (what, annotations, more, mode) in cases {
        let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
        cluster.add("a", 3, &[80], annotations);
        if let Some((uid, share)) = more {
            cluster.add(uid, 2, &[8080], share);
        }
        cluster.converge();
        let plan = cluster.plan("a");
        let all = modes(&plan);
        assert!(!all.is_empty(), "{what}");
        assert!(all.iter().all(|one| one == mode), "{what}: {all:?}");
    }
}

#[test]
fn a_service_whose_port_another_one_has_gets_the_address_without_that_port() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[443], "share=edge");
    cluster.add("b", 2, &[443, 8080], "share=edge");
    cluster.converge();
    assert_eq!(modes(&cluster.plan("a"))[0], "VIP");
    assert_eq!(modes(&cluster.plan("b"))[0], "Proxy");
    cluster.delete("a");
    cluster.converge();
    assert_eq!(modes(&cluster.plan("b"))[0], "VIP", "the port is served");
}

#[test]
fn a_guest_decides_nothing_about_the_whole_load_balancer() {
    let host = "share=edge share-namespaces=shop";
    let of_guest = "share=default/edge node-selector=no=such type=lb31 name=mine \
                    algorithm-type=least_connections use-private-ip=true private-ipv4=10.0.0.9 \
                    deletion-protection=true labels=team=guest ipv4-rdns=guest.example.com keep=true location=hel1";
    let mut honest = Cluster::new();
    honest.world.network = Some(NETWORK);
    honest.add("a", 2, &[80], host);
    honest.add("shop.guest", 3, &[8080], "share=default/edge");
    honest.converge();
    let mut cluster = Cluster::new();
    cluster.world.network = Some(NETWORK);
    cluster.add("a", 2, &[80], host);
    cluster.add("shop.guest", 3, &[8080], of_guest);
    let made = cluster.converge();
    assert_eq!(*cluster.named(SHARED), *honest.named(SHARED), "{made:#?}");
    let plan = cluster.plan("shop.guest");
    let says = |name: &str| {
        let key = format!(
            "{name} has no effect, because the Services that share the load balancer name it default/edge (NAMESPACE/NAME)"
        );
        plan.findings.iter().any(|one| one.message.contains(&key))
    };
    assert!(says("type"), "{:#?}", plan.findings);
}

/// The Service that allowed the guest is deleted, or it does not allow it any more.
#[test]
fn a_guest_that_nobody_allows_any_more_is_served_as_it_was_and_gets_no_more_ports() {
    for is_deleted in [true, false] {
        let mut cluster = Cluster::new();
        cluster.world.network = Some(NETWORK);
        cluster.add(
            "a",
            3,
            &[80],
            "share=edge share-namespaces=shop type=lb21 name=front \
                    algorithm-type=least_connections use-private-ip=true node-selector=!skipped",
        );
        cluster.add("shop.guest", 2, &[8080], "share=default/edge keep=false");
        cluster.converge();
        assert_eq!(cluster.named("front").services.len(), 2);
        match is_deleted {
            true => cluster.delete("a"),
            false => cluster.set("a", "share-namespaces", None),
        }
        cluster.converge();
        let before = cluster.named("front").clone();
        let labels = &before.labels;
        assert!(!labels.contains_key(SERVICE_UID), "a guest owns it: {labels:?}");
        // A node comes, and the guest asks for more.
        cluster.world.nodes.push(node(4));
        let guest = cluster.services.get_mut("shop.guest").unwrap();
        let mut more = guest.service.ports[0].clone();
        (more.name, more.port) = ("more".into(), 25);
        guest.service.ports.push(more);
        cluster.set("shop.guest", "type", Some("lb31"));
        let plan = cluster.plan("shop.guest");
        assert!(plan.outcome.obstacle().is_none(), "{plan:#?}");
        let says = |text: &str| plan.findings.iter().any(|one| one.message.contains(text));
        assert!(
            says("no Service of namespace default allows namespace shop to use it"),
            "{:#?}",
            plan.findings
        );
        cluster.converge();
        let after = cluster.named("front");
        assert_eq!(servers(after), [1, 2, 3, 4]);
        assert_eq!(after.services, before.services, "no more ports");
        assert_eq!(after.load_balancer_type.name, "lb21");
        assert_eq!(after.algorithm.kind, before.algorithm.kind);
        // Present targets stay.
        assert_eq!(by_private_ip(after)[..3], by_private_ip(&before)[..3]);
        // The guest's own port follows its node port.
        let guest = cluster.services.get_mut("shop.guest").unwrap();
        guest.service.ports[0].node_port = Some(32_222);
        assert_eq!(cluster.changes("shop.guest"), "update_service");
        guest_leaves(cluster, is_deleted);
    }
}

/// The guest asks for another load balancer, can't have its port there, and keeps its port here.
#[test]
fn a_guest_that_stays_counts_as_a_guest() {
    let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
    let host = "share=edge share-namespaces=shop";
    cluster.add("a", 3, &[80], host);
    cluster.add("shop.guest", 2, &[6443], "share=default/edge");
    cluster.converge();
    cluster.set("shop.guest", "share", None);
    cluster.set("shop.guest", "external", Some("7"));
    cluster.converge();
    assert_eq!(cluster.named(SHARED).services.len(), 2, "it stays");
    let modes = modes(&cluster.plan("a"));
    assert!(modes.iter().all(|mode| mode == "Proxy"), "{modes:?}");
}

fn guest_leaves(mut cluster: Cluster, was_last: bool) {
    cluster.set("shop.guest", "share", None);
    cluster.converge();
    let mut all = cluster.world.state.balancers.iter();
    let is_there = all.any(|one| one.name == "front");
    assert_eq!(is_there, !was_last, "deleted with its last Service");
    let own = cluster.named("kubernetes-shop-guest");
    assert_eq!(own.services.len(), 2, "it has its own");
}

#[test]
fn an_external_load_balancer_has_the_targets_that_any_of_its_services_asks_for() {
    let mut cluster = Cluster::new();
    let mut before = external(&[(EXTERNAL, "")]);
    before.targets.clear();
    cluster.world.state.balancers = vec![before];
    label_some_nodes(&mut cluster);
    cluster.add("a", 3, &[80], "external=7 node-selector=pool=red");
    cluster.add("shop.b", 2, &[81], "external=7 node-selector=pool=blue");
    cluster.add("shop.c", 1, &[82], "external=7 node-selector=no=such");
    cluster.converge();
    assert_eq!(servers(cluster.named("edge-lb")), [1, 2, 3]);
    // A Service that can't be read removes nothing.
    cluster.set("shop.b", "node-selector", Some("pool in blue"));
    assert!(cluster.converge().is_empty());
    cluster.delete("shop.b");
    cluster.converge();
    assert_eq!(servers(cluster.named("edge-lb")), [1, 2]);
    cluster.set("shop.c", "external-targets", Some("false"));
    cluster.set("shop.c", "node-selector", None);
    assert!(cluster.converge().is_empty());
}

#[test]
fn present_targets_of_an_external_load_balancer_are_reached_as_they_were() {
    let mut cluster = Cluster::new();
    let mut before = external(&[(EXTERNAL, "")]);
    before.targets.clear();
    before.private_net =
        serde_json::from_value(json!([{ "network": 10, "ip": "10.0.0.7" }])).unwrap();
    cluster.world.network = Some(NETWORK);
    cluster.world.state.balancers = vec![before];
    cluster.add("a", 3, &[80], "external=7 use-private-ip=true");
    cluster.add("shop.b", 2, &[81], "external=7 use-private-ip=false");
    cluster.converge();
    assert_eq!(by_private_ip(cluster.named("edge-lb")), [true; 3]);
    cluster.set("a", "use-private-ip", Some("false"));
    assert!(cluster.converge().is_empty(), "present ones do not change");
    cluster.world.nodes.push(node(4));
    cluster.converge();
    let ways = by_private_ip(cluster.named("edge-lb"));
    assert_eq!(ways, [true, true, true, false]);
}

/// A guest asks for private or public addresses that the load balancer can't reach. Its wish counts for nothing, and
/// its own plan and the plan of another Service add the same targets.
#[test]
fn on_an_external_load_balancer_a_guest_cannot_ask_for_a_kind_of_address_that_is_not_possible() {
    let attached = json!([{ "network": 10, "ip": "10.0.0.7" }]);
    for (network, private_net, is_public, asked, by_private) in [
        (None, json!([]), true, "true", false),
        (Some(NETWORK), json!([]), true, "true", false),
        (Some(NETWORK), attached, false, "false", true),
    ] {
        let mut cluster = Cluster::new();
        let mut before = external(&[(EXTERNAL, "")]);
        before.targets.clear();
        before.private_net = serde_json::from_value(private_net).unwrap();
        before.public_net.enabled = is_public;
        cluster.world.network = network;
        cluster.world.state.balancers = vec![before];
        let asked = format!("external=7 use-private-ip={asked}");
        cluster.add("shop.guest", 3, &[81], &asked);
        cluster.add("a", 2, &[80], &format!("external=7 use-private-ip={by_private}"));
        cluster.converge();
        let ways = by_private_ip(cluster.named("edge-lb"));
        assert_eq!(ways, [by_private; 3], "{asked}");
        cluster.world.nodes.push(node(4));
        cluster.converge();
        let ways = by_private_ip(cluster.named("edge-lb"));
        assert_eq!(ways, [by_private; 4], "{asked}");
    }
}

/// The guest stays, because a port that it asks for elsewhere has another owner. Its permission has ended meanwhile.
#[test]
fn a_guest_that_stays_gets_no_more_ports_once_nobody_allows_it() {
    // The wish is allowed and its port taken, or it is not allowed.
    for (wish, allowed, has) in [
        ("own", Some("shop"), true),
        ("own", None, false),
        ("infra/none", Some("shop"), true),
        ("infra/none", None, false),
    ] {
        let mut cluster = Cluster::new();
        let open = "share=edge share-namespaces=shop";
        cluster.add("a", 5, &[80], open);
        cluster.add("shop.g", 4, &[81], "share=default/edge");
        cluster.add("shop.h", 3, &[81], "share=own");
        cluster.converge();
        cluster.set("a", "share-namespaces", allowed);
        cluster.add("shop.g", 4, &[81, 443], &format!("share={wish}"));
        let there = cluster.named(SHARED).public_net.ipv4.ip.unwrap();
        let guest = cluster.services.get_mut("shop.g").unwrap();
        guest.service.addresses = vec![there.to_string()];
        cluster.converge();
        let ports = cluster.ports(SHARED);
        assert!(ports.contains("81 shop.g"), "{ports:?}");
        let got = ports.contains("443 shop.g");
        assert_eq!(got, has, "{wish}, {allowed:?}: {ports:?}");
    }
}

/// No Service asks for the group any more, and none of them can have what it asks for. Each would decide by itself.
#[test]
fn two_services_that_stay_do_not_fight_over_the_whole() {
    for wish in ["busy", "infra/none"] {
        let mut cluster = Cluster::new();
        cluster.add("a", 5, &[80], "share=edge");
        cluster.add("b", 4, &[81], "share=edge");
        cluster.add("c", 3, &[80, 81], "share=busy");
        cluster.converge();
        for (uid, kind) in [("a", "least_connections"), ("b", "round_robin")] {
            cluster.set(uid, "share", Some(wish));
            cluster.set(uid, "algorithm-type", Some(kind));
        }
        let before = cluster.named(SHARED).clone();
        cluster.converge();
        let after = cluster.named(SHARED);
        assert_eq!(after.algorithm, before.algorithm, "{wish}");
        assert_eq!(after.services, before.services, "{wish}");
        assert_eq!(servers(after), servers(&before), "{wish}");
    }
}

/// One of the Services can't have what it asks for now, and stays. The targets that it asks for stay, too.
#[test]
fn services_on_an_external_load_balancer_do_not_fight_over_targets() {
    for wish in ["busy", "infra/none"] {
        let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
        cluster.add("a", 5, &[80], "external=7");
        cluster.add("b", 4, &[81], "external=7 external-targets=false");
        cluster.add("c", 3, &[80], "share=busy");
        cluster.converge();
        let before = servers(cluster.named("edge-lb"));
        assert!(!before.is_empty(), "{wish}");
        cluster.set("a", "external", None);
        cluster.set("a", "share", Some(wish));
        cluster.converge();
        assert_eq!(servers(cluster.named("edge-lb")), before, "{wish}");
    }
}

#[test]
fn a_guest_does_not_end_that_the_hosts_load_balancer_is_kept() {
    let mut cluster = Cluster::new();
    let host = "share=edge share-namespaces=* keep=true";
    cluster.add("a", 5, &[80], host);
    cluster.add("shop.g", 4, &[81], "share=default/edge");
    cluster.converge();
    assert!(cluster.has_label(SHARED, KEEP));
    cluster.delete("a");
    cluster.converge();
    cluster.delete("shop.g");
    cluster.converge();
    assert!(cluster.has_label(SHARED, KEEP));
}

/// The Service that decides about the whole becomes larger than ccm reads, so that its wishes are not known any more.
#[test]
fn while_a_service_that_decides_is_not_read_the_others_change_nothing_about_the_whole() {
    for is_younger in [false, true] {
        let mut cluster = Cluster::new();
        let age = if is_younger { 1 } else { 3 };
        let of_decider =
            "share=edge node-selector=pool=red algorithm-type=least_connections keep=true";
        label_some_nodes(&mut cluster);
        cluster.add("a", age, &[80], of_decider);
        cluster.add("b", 2, &[8080], "share=edge");
        cluster.converge();
        let before = cluster.named(SHARED).clone();
        assert_eq!(servers(&before), [1, 2]);
        cluster.leave_unread("a");
        cluster.set("b", "type", Some("lb31"));
        assert_eq!(cluster.changes("b"), "");
        assert_eq!(modes(&cluster.plan("b"))[0], "VIP", "one namespace");
        // A node that is gone is no target any more, and the port of the other one follows its node port.
        cluster.world.nodes.remove(1);
        let other = cluster.services.get_mut("b").unwrap();
        other.service.ports[0].node_port = Some(32_222);
        let words = cluster.changes("b");
        assert_eq!(words, "update_service remove_target");
    }
}

#[test]
fn a_service_that_is_not_read_loses_no_target_of_an_external_one() {
    let mut cluster = Cluster::new();
    let mut before = external(&[(EXTERNAL, "")]);
    before.targets.clear();
    cluster.world.state.balancers = vec![before];
    label_some_nodes(&mut cluster);
    cluster.add("a", 3, &[80], "external=7 node-selector=pool=red");
    cluster.add("shop.b", 2, &[81], "external=7 node-selector=pool=blue");
    cluster.converge();
    cluster.leave_unread("a");
    cluster.set("shop.b", "external-targets", Some("false"));
    assert_eq!(cluster.changes("shop.b"), "");
}

/// A tenant keeps a mistake, or makes the Service larger than is read, so that its plan is refused.
#[test]
fn a_service_that_is_refused_does_not_keep_the_address_for_traffic_inside_the_cluster() {
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("alone", "", None, None),
        ("one namespace", "share=edge", Some("b"), None),
        ("guests", "share=edge share-namespaces=shop", Some("shop.b"), Some("Proxy")),
        ("external", "external=7", None, Some("Proxy")),
    ];
    for (what, annotations, guest, mode) in cases {
        let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
        cluster.add("a", 3, &[80], annotations);
        if let Some(guest) = guest {
            cluster.add(guest, 2, &[8080], "share=default/edge");
        }
        cluster.converge();
        cluster.set("a", "health-check-interval", Some("soon"));
        let plan = cluster.plan("a");
        assert!(plan.outcome.obstacle().is_some(), "{what}: {plan:#?}");
        let has = &cluster.services["a"].service.addresses;
        let status = plan.status.as_ref().map(|all| {
            let ips: Vec<_> = all.iter().filter_map(|one| one.ip.clone()).collect();
            assert_eq!(ips, *has, "{what}: the addresses stay");
            modes(&plan)[0].clone()
        });
        assert_eq!(status.as_deref(), mode, "{what}");
        let unread = cluster.status_by_proxy("a");
        let unread = unread.map(|all| all[0].ip_mode.clone());
        assert_eq!(unread.map(Option::unwrap).as_deref(), mode, "{what}");
    }
}
