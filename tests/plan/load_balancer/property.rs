//! Properties of plans for any state: the changes lead to the wanted state, a second plan is empty, and there are as
//! many writes as differences.

use crate::load_balancer::project::{fresh, same_listener, types};
use crate::load_balancer::random::Random;
use crate::load_balancer::support::{
    NETWORK, PROFILES, UID, World, certificate, environment, labels, lines, node, port, primary_ip,
    selector_target, server_target, word,
};
use ccm::hetzner::load_balancers::{
    Algorithm, AlgorithmOf, BalancerPrivateNet, CLUSTER_UID, Certificate, CertificateStatus,
    Listener, LoadBalancer, SERVICE, SERVICE_UID,
};
use ccm::provider::{
    Change, InstanceId, LoadBalancerPlan, Needs, OfferedNode, Protocol, ProviderId, Reach, Reason,
    ServicePort, TrafficPolicy,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SEEDS: u64 = 1500;

/// Annotations and values to choose from.
#[rustfmt::skip] // A case is a line.
const VALUES: &[(&str, &[&str])] = &[
    ("name", &["front", "back"]),
    ("type", &["lb11", "lb21", "lb31"]),
    ("location", &["fsn1", "nbg1", ""]),
    ("algorithm-type", &["round_robin", "least_connections"]),
    ("disable-public-network", &["true", "false"]),
    ("use-private-ip", &["true", "false"]),
    ("private-ipv4", &["10.0.0.5", "10.0.0.200"]),
    ("private-subnet-ip-range", &["10.0.0.0/24"]),
    ("ipv4-rdns", &["a.example", "static.example"]),
    ("ipv6-rdns", &["a.example"]),
    ("deletion-protection", &["true", "false"]),
    ("labels", &["team=web", "team=shop,cost=42"]),
    ("node-selector", &["even=yes", "even!=yes"]),
    ("keep", &["true", "false"]),
    ("protocol", &["tcp", "http", "https"]),
    ("protocol.p2", &["tcp", "http"]),
    ("uses-proxyprotocol", &["true", "false"]),
    ("http-cookie-name", &["A"]),
    ("http-cookie-lifetime", &["60s"]),
    ("http-timeout-idle", &["30s", "60s"]),
    ("http-sticky-sessions", &["true", "false"]),
    ("http-redirect-http", &["true", "false"]),
    ("http-certificates", &["one", "7,8"]),
    ("certificate-type", &["managed", "uploaded"]),
    ("certificate-type.p1", &["managed", "uploaded"]),
    ("http-managed-certificate-name", &["managed-one", "managed-two"]),
    ("http-managed-certificate-name.p1", &["managed-two"]),
    ("http-managed-certificate-domains", &["a.example", "b.example"]),
    ("http-managed-certificate-acme-staging", &["true", "false"]),
    ("public-net-ipv4", &["kept", "41"]),
    ("public-net-ipv6", &["kept6"]),
    ("health-check", &["kube-proxy"]),
    ("health-check-protocol", &["tcp", "http", "https"]),
    ("health-check-port", &["8080"]),
    ("health-check-interval", &["5s", "15s"]),
    ("health-check-timeout.p1", &["5s"]),
    ("health-check-retries", &["3", "5"]),
    ("health-check-http-domain", &["a.example"]),
    ("health-check-http-path", &["/a"]),
    ("http-status-codes", &["200", "3??,2??"]),
];

fn listener(random: &mut Random, number: u16) -> Listener {
    let protocol = *random.pick(&["tcp", "http", "https"]);
    let mut port = json!({
        "protocol": protocol,
        "listen_port": number,
        "destination_port": 30_000 + random.below(90),
        "proxyprotocol": random.percent(30),
        "health_check": {
            "protocol": *random.pick(&["tcp", "http"]),
            "port": 30_080,
            "interval": *random.pick(&[5, 15]),
            "timeout": 10,
            "retries": 3,
        },
    });
    if protocol != "tcp" {
        port["http"] = json!({
            "cookie_name": *random.pick(&["HCLBSTICKY", "A"]),
            "cookie_lifetime": *random.pick(&[60, 300]),
            "certificates": random.pick(&[vec![], vec![7], vec![8, 7]]),
            "redirect_http": false,
            "sticky_sessions": random.percent(30),
            "timeout_idle": 60,
        });
    }
    // A check by HTTP always shows what it asks for.
    if random.percent(50) || port["health_check"]["protocol"] == "http" {
        port["health_check"]["http"] = json!({
            "domain": null,
            "path": "/",
            "response": random.percent(10).then_some("pong"),
            "status_codes": ["3??", "2??"],
            "tls": random.percent(30),
        });
    }
    serde_json::from_value(port).unwrap()
}

/// Returns a random load balancer that the API could contain.
fn balancer(random: &mut Random, id: u64) -> LoadBalancer {
    let kind = random.pick(&types()).clone();
    let name: &str = random.pick::<&str>(&["front", "back", "other"]);
    let mut one = fresh(id, name, &kind.name);
    one.algorithm =
        AlgorithmOf { kind: *random.pick(&[Algorithm::RoundRobin, Algorithm::LeastConnections]) };
    one.protection.delete = random.percent(30);
    if random.percent(60) {
        one.private_net = vec![BalancerPrivateNet {
            network: *random.pick(&[NETWORK, NETWORK, 11]),
            ip: Some("10.0.0.200".parse().unwrap()),
        }];
    }
    let attached = !one.private_net.is_empty();
    one.public_net.enabled = !attached || random.percent(80);
    let ports = random.below(5) as u16;
    one.services = (1..=ports).map(|at| listener(random, at)).collect();
    for server in 1..=random.below(25) {
        let private = attached && (!one.public_net.enabled || random.percent(50));
        one.targets.push(server_target(server * 2, private));
    }
    if random.percent(20) && one.targets.len() < kind.max_targets {
        let other = selector_target("somebody=else", Some(&[0]));
        one.targets.push(other);
    }
    one
}

/// Managed certificates that are there already, of this Service and of others.
fn managed(random: &mut Random, world: &mut World) {
    for (id, name) in [(90, "managed-one"), (91, "managed-two"), (92, "left")] {
        let uid: &str = random.pick::<&str>(&[UID, UID, "gone", "lives", ""]);
        let label = format!("{SERVICE_UID}={uid}");
        let issuance: &str = random.pick::<&str>(&["pending", "completed", "failed"]);
        let one = Certificate {
            labels: labels(if uid.is_empty() { "" } else { &label }),
            domain_names: vec![(*random.pick(&["a.example", "b.example"])).into()],
            status: Some(CertificateStatus {
                issuance: issuance.into(),
                ..CertificateStatus::default()
            }),
            ..certificate(id, name)
        };
        if random.percent(30) {
            world.state.certificates.as_mut().unwrap().push(one);
        }
    }
    world.cluster.service_uids.insert("lives".into());
}

fn world(random: &mut Random) -> World {
    let mut world = World::new(*random.pick(&PROFILES));
    if random.percent(70) {
        world = world.with_network();
    }
    world.nodes = (1..=random.below(40)).map(node).collect();
    world.label_nodes();
    world.service.ports = (1..=1 + random.below(6) as u16)
        .map(|at| ServicePort {
            protocol: *random.pick(&[Protocol::Tcp, Protocol::Tcp, Protocol::Tcp, Protocol::Udp]),
            ..port(&format!("p{at}"), at)
        })
        .collect();
    if random.percent(20) {
        world.service.traffic_policy = TrafficPolicy::Local;
        world.service.health_check_node_port = Some(32_000);
    }
    managed(random, &mut world);
    world.state.primary_ips = Some(vec![
        primary_ip(41, "kept", "198.51.100.41", "fsn1"),
        primary_ip(61, "kept6", "2001:db8:61::/64", "fsn1"),
    ]);
    if random.percent(30) {
        world.set_one(random.pick::<&str>(&["protocol", "protocol.p1"]), "https");
        world.set("certificate-type=managed http-managed-certificate-domains=a.example http-certificates=one");
    }
    let share = random.below(50);
    for (name, values) in VALUES {
        if random.percent(share) && (*name != "protocol.p2" || world.service.ports.len() > 1) {
            let value: &str = random.pick::<&str>(values);
            world.set_one(name, value);
        }
    }
    if random.percent(30) {
        let variable = "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL";
        world.defaults.uses_proxyprotocol = Some(environment(variable, random.percent(50)));
    }
    match random.below(4) {
        0 => {}
        1 => world.state.balancers = vec![balancer(random, 1)],
        _ => {
            let mut own = balancer(random, 1);
            own.labels = labels(&format!("{SERVICE_UID}={UID}"));
            world.state.balancers = vec![own];
        }
    }
    world
}

/// Calls that lead from one to the other, counted without looking at any plan.
fn differences(from: &LoadBalancer, to: &LoadBalancer) -> usize {
    let services = |one: &LoadBalancer| -> BTreeMap<u16, Listener> {
        let services = one.services.iter();
        services.map(|s| (s.listen_port, s.clone())).collect()
    };
    let (old, new) = (services(from), services(to));
    let gone = old.keys().filter(|port| !new.contains_key(port)).count();
    let changed = new
        .iter()
        .filter(|(port, new)| old.get(port).is_none_or(|old| !same_listener(old, new)))
        .count();
    let moved = from.private_net != to.private_net;
    let network = if moved { from.private_net.len() + 1 } else { 0 };
    let detached = moved && !from.private_net.is_empty();
    let there: BTreeMap<u64, bool> =
        from.server_targets().filter(|(_, private)| !(detached && *private)).collect();
    let wanted: BTreeMap<u64, bool> = to.server_targets().collect();
    let turned = |(id, private): (&u64, &bool)| wanted.get(id).is_some_and(|p| p != private);
    let targets = there.keys().filter(|id| !wanted.contains_key(id)).count()
        + wanted.keys().filter(|id| !there.contains_key(id)).count()
        + 2 * there.iter().filter(|one| turned(*one)).count();
    usize::from(from.name != to.name || from.labels != to.labels)
        + usize::from(from.load_balancer_type != to.load_balancer_type)
        + usize::from(from.algorithm != to.algorithm)
        + usize::from(from.protection != to.protection)
        + usize::from(from.public_net.ipv4 != to.public_net.ipv4)
        + usize::from(from.public_net.ipv6 != to.public_net.ipv6)
        + usize::from(from.public_net.enabled != to.public_net.enabled)
        + network
        + gone
        + changed
        + targets
}

#[test]
fn changes_lead_to_the_wanted_state_and_no_further() {
    let (mut converged, mut refused, mut written, mut waited) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let mut world = world(&mut random);
        let before = world.state.balancers.first().cloned();
        let plan = world.plan();
        if plan.outcome.obstacle().is_some() {
            assert!(plan.outcome.changes().is_empty(), "seed {seed}");
            assert_eq!(plan.status, None, "seed {seed}");
            refused += 1;
            continue;
        }
        let differs = plan.fields.iter().any(|field| field.differs());
        let is_idle = plan.outcome.changes().is_empty();
        assert_eq!(differs, !is_idle, "seed {seed}: {plan:#?}");
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.converge()));
        let made = made.unwrap_or_else(|_| panic!("seed {seed}"));
        assert!(world.plan().outcome.changes().is_empty(), "seed {seed}");
        let after = world.balancer();
        if let Some(before) = before.filter(|before| before.id == after.id) {
            let expected = differences(&before, after);
            let words = made.iter().map(|change| word(&**change));
            let count = words.filter(|word| !word.ends_with("certificate")).count();
            assert_eq!(count, expected, "seed {seed}: {:#?}", lines(&made));
        }
        let plan = world.plan();
        let differs = plan.fields.iter().any(|field| field.differs());
        assert!(!differs, "seed {seed}: {plan:#?}");
        converged += 1;
        written += made.len();
        // The certificate that was waited for is issued, and then everything is as it should be.
        waited += usize::from(plan.outcome.is_unfinished());
        world.issue();
        world.converge();
        assert!(!world.plan().outcome.is_unfinished(), "seed {seed}");
        let there = world.balancer().services.len();
        let tcp = world.service.ports.iter();
        let tcp = tcp.filter(|port| port.protocol == Protocol::Tcp).count();
        assert_eq!(there, tcp, "seed {seed}");
    }
    println!(
        "{converged} worlds converged with {written} writes, {refused} refused, {waited} waited"
    );
    assert!(
        converged > SEEDS / 2 && waited > 20,
        "only {converged} of {SEEDS} were worlds that converge, and {waited} waited"
    );
}

/// Makes one change, and then a new plan, until nothing is left to do.
fn converge_one_by_one(world: &mut World) {
    let project = world.project();
    for _ in 0..1000 {
        let Some(first) = world.plan().outcome.take_changes().into_iter().next() else {
            break;
        };
        project.apply(&*first);
        project.read(&mut world.state);
    }
}

/// Killed after any write and started again, the end is the same.
#[test]
fn a_plan_that_is_cut_off_anywhere_is_completed_by_the_next_one() {
    for seed in 0..SEEDS / 4 {
        let mut random = Random::new(seed);
        let mut whole = world(&mut random);
        if whole.plan().outcome.obstacle().is_some() {
            continue;
        }
        let mut cut = whole.clone();
        whole.converge();
        converge_one_by_one(&mut cut);
        let is_full = whole.findings().contains(&Reason::MaxTargetsReached);
        let shape = |world: &World| {
            let one = world.balancer().clone();
            let mut targets: Vec<_> = one.server_targets().collect();
            targets.sort_unstable();
            if is_full {
                // Which of too many targets stay depends on those that existed at the read.
                targets.iter_mut().for_each(|target| target.0 = 0);
            }
            let mut ports: Vec<u16> = one.services.iter().map(|s| s.listen_port).collect();
            ports.sort_unstable();
            (one.name, one.labels, targets, ports, one.private_net)
        };
        assert_eq!(shape(&whole), shape(&cut), "seed {seed}");
    }
}

/// Some servers lack an address. No change is tried that the API would refuse, and the end state is the same wherever
/// the plan is cut off.
#[test]
fn servers_that_can_not_be_reached_are_never_added() {
    let (mut converged, mut lacking) = (0, 0);
    for seed in 0..SEEDS / 3 {
        let mut random = Random::new(seed);
        let mut whole = world(&mut random);
        let mut reach = BTreeMap::new();
        for node in &mut whole.nodes {
            let ProviderId::Ours(InstanceId::Cloud(id)) = node.provider_id else {
                panic!();
            };
            let one = Reach::By {
                has_public_ipv4: random.percent(70),
                networks: vec![if random.percent(70) { NETWORK } else { 11 }],
            };
            let one = match random.percent(10) {
                true => Reach::Missing { is_certain: true },
                false => one,
            };
            reach.insert(id, one.clone());
            node.reach = one;
        }
        if whole.plan().outcome.obstacle().is_some() {
            continue;
        }
        let mut cut = whole.clone();
        for change in whole.converge() {
            for (server, use_private_ip) in targets_of(&*change) {
                let reach = &reach[&server];
                let is_reached = match reach {
                    Reach::By { networks, .. } if use_private_ip => networks.contains(&NETWORK),
                    Reach::By { has_public_ipv4, .. } => *has_public_ipv4,
                    _ => false,
                };
                assert!(is_reached, "seed {seed}: {:?}", change.description().done());
            }
        }
        let plan = whole.plan();
        assert!(plan.outcome.changes().is_empty(), "seed {seed}");
        let differs = plan.fields.iter().any(|field| field.differs());
        assert!(!differs, "seed {seed}");
        converged += 1;
        lacking += usize::from(whole.needs().servers);
        converge_one_by_one(&mut cut);
        if whole.findings().contains(&Reason::MaxTargetsReached) {
            continue;
        }
        let targets = |world: &World| {
            let mut targets: Vec<_> = world.balancer().server_targets().collect();
            targets.sort_unstable();
            (targets, world.balancer().public_net.enabled)
        };
        assert_eq!(targets(&whole), targets(&cut), "seed {seed}");
    }
    assert!(converged > 200 && lacking > 100, "{converged} {lacking}");
}

/// Returns what a list of servers may show of a server.
fn any_reach(random: &mut Random) -> Reach {
    match random.below(10) {
        0..=1 => Reach::Unknown,
        2 => Reach::Missing { is_certain: true },
        3 => Reach::Missing { is_certain: false },
        _ => Reach::By {
            has_public_ipv4: random.percent(80),
            networks: vec![if random.percent(80) { NETWORK } else { 11 }],
        },
    }
}

/// Servers that the plan adds, and those that it removes, once each.
fn added_and_removed(plan: &LoadBalancerPlan) -> (Vec<u64>, Vec<u64>) {
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for change in plan.outcome.changes() {
        let request = &change.json()["request"];
        match word(&**change).as_str() {
            "add_target" => added.push(target(request).0),
            "remove_target" => removed.push(target(request).0),
            _ => {}
        }
    }
    (added, removed)
}

/// Returns a target of a request: its server, and whether it is reached by its private IP.
fn target(request: &Value) -> (u64, bool) {
    let server = request["server"]["id"].as_u64().unwrap();
    (server, request["use_private_ip"] == true)
}

/// Targets that a change adds.
fn targets_of(change: &dyn Change) -> Vec<(u64, bool)> {
    let request = &change.json()["request"];
    match word(change).as_str() {
        "add_target" => vec![target(request)],
        "create" => {
            let targets = request["targets"].as_array().unwrap();
            targets.iter().map(target).collect()
        }
        _ => Vec::new(),
    }
}

/// Every request.
fn requests(plan: &LoadBalancerPlan) -> Vec<Value> {
    let changes = plan.outcome.changes().iter();
    changes.map(|change| change.json()).collect()
}

#[test]
fn a_plan_states_its_needs_before_it_is_made() {
    let (mut with_servers, mut with_services, mut with_none) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let mut world = world(&mut random);
        for node in &mut world.nodes {
            node.reach = any_reach(&mut random);
        }
        let labels = [
            (SERVICE_UID, ["gone", "lives", UID]),
            (CLUSTER_UID, ["cluster-1", "cluster-1", "cluster-2"]),
            (SERVICE, ["default.web", "default.other", "other.web"]),
        ];
        for balancer in &mut world.state.balancers {
            for (label, values) in &labels {
                if random.percent(40) {
                    let value: &str = random.pick::<&str>(values);
                    balancer.labels.insert((*label).into(), value.into());
                }
            }
        }
        if random.percent(30) && !world.state.balancers.is_empty() {
            world.state.balancers[0].name = "k8s-cluster-1-default-web".into();
            world.unset("name");
        }
        let (needs, plan) = (world.needs(), world.plan());
        let made = lines(plan.outcome.changes());
        let about = || format!("seed {seed}: {needs:?} {made:#?}");
        with_servers += usize::from(needs.servers);
        with_services += usize::from(needs.services);
        with_none += usize::from(needs == Needs::default());
        // The plan does not depend on which Services exist.
        if !needs.services {
            for uids in [&[UID][..], &[UID, "gone"], &[UID, "lives"], &[UID, "gone", "lives"]] {
                world.cluster.service_uids = uids.iter().map(|uid| (*uid).into()).collect();
                let other = world.plan();
                assert_eq!(requests(&other), requests(&plan), "{}", about());
                let is_blocked = other.outcome.obstacle().is_some();
                assert_eq!(is_blocked, plan.outcome.obstacle().is_some(), "{}", about());
            }
        }
        if needs.servers {
            continue;
        }
        // No targets are added or removed because of which servers exist.
        let (added, removed) = added_and_removed(&plan);
        assert!(added.is_empty(), "{}", about());
        for change in plan.outcome.changes() {
            for (server, _) in targets_of(&**change) {
                let id = ProviderId::Ours(InstanceId::Cloud(server));
                let mut nodes = world.nodes.iter();
                let node = nodes.find(|node| node.provider_id == id).unwrap();
                assert!(matches!(node.reach, Reach::By { .. }), "{}", about());
            }
        }
        for node in &mut world.nodes {
            node.reach = Reach::Unknown;
        }
        let (_, without_list) = added_and_removed(&world.plan());
        for server in removed {
            assert!(without_list.contains(&server), "{}", about());
        }
    }
    let are_enough = with_servers > 300 && with_services > 50 && with_none > 200;
    assert!(are_enough, "{with_servers} {with_services} {with_none}");
}

#[test]
fn a_plan_in_order_needs_nothing_else() {
    let mut in_order = 0;
    for seed in 0..SEEDS / 3 {
        let mut random = Random::new(seed);
        let mut world = world(&mut random);
        for node in &mut world.nodes {
            node.reach = match random.percent(10) {
                true => Reach::Missing { is_certain: true },
                false => Reach::By { has_public_ipv4: true, networks: vec![NETWORK] },
            };
        }
        if world.plan().outcome.obstacle().is_some() {
            continue;
        }
        world.converge();
        let plan = world.plan();
        let is_full = world.findings().contains(&Reason::MaxTargetsReached);
        // A list without any of the servers takes no target away.
        let is_of_cluster = |node: &OfferedNode| matches!(node.reach, Reach::By { .. });
        if plan.outcome.is_unfinished() || is_full || !world.nodes.iter().any(is_of_cluster) {
            continue;
        }
        in_order += 1;
        assert_eq!(world.needs(), Needs::default(), "seed {seed}");
    }
    assert!(in_order > 100, "{in_order}");
}
