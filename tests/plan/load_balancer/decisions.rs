//! What is decided for whole worlds, as one text for each seed. A change of the code that is to change no decision is
//! checked with it: the texts before and after are compared.
//!
//! - `CCM_TEST_DECISIONS=FILE` writes a line with seed and hash for each of `CCM_TEST_SEED=FIRST-LAST` (0 to 19999).
//! - `CCM_TEST_DECISIONS=- CCM_TEST_SEED=7` prints the text of one seed.
//!
//! Without these, some seeds show that the same world leads to the same text, whatever order its Services have, and that
//! the worlds reach each kind of outcome.

use crate::load_balancer::project::fresh;
use crate::load_balancer::random::Random;
use crate::load_balancer::support::{
    self, PROFILES, World, environment, ip_target, selector_target, server_target,
};
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{
    ADOPT, ADOPTED, ApiTarget, BalancerPrivateNet, CLUSTER, CLUSTER_UID, CREATED, Certificate,
    EXTERNAL, GROUP, KEEP, Listener, LoadBalancer, PORT, RELEASED, SECRET, SERVICE, SERVICE_UID,
    TARGETS_BEFORE,
};
use ccm::provider::{
    Change, InstanceId, LoadBalancerPlan, PlanOutcome, Protocol, ProviderId, Service, ServicePort,
    Then, TrafficPolicy, UntouchedService,
};
use jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

const SEEDS: u64 = 20_000;
/// The number of seeds in each run of the tests.
const SOME: u64 = 200;

const NAMESPACES: &[&str] = &["default", "shop", "team"];
const GROUPS: &[&str] = &["edge", "front"];
const PORTS: &[u16] = &[80, 443, 8080];
/// UID of a Service that does not exist any more, and of one that is left alone.
const GONE: &str = "uid-gone";
const ALONE: &str = "uid-alone";
/// Annotations that are about more than ownership, and their values.
const OTHERS: &[(&str, &[&str])] = &[
    ("type", &["lb11", "lb21"]),
    ("location", &["fsn1", "nbg1"]),
    ("algorithm-type", &["least_connections", "wrong"]),
    ("node-selector", &["even=yes", "(("]),
    ("use-private-ip", &["true", "false"]),
    ("disable-public-network", &["true", "false"]),
    ("disable-private-ingress", &["true"]),
    ("ipv6-disabled", &["true"]),
    ("private-ipv4", &["10.0.0.5"]),
    ("hostname", &["lb.example"]),
    ("keep", &["true", "false"]),
    ("labels", &["team=web", "caph-cluster-a=owned"]),
    ("protocol", &["http", "https"]),
    ("uses-proxyprotocol", &["true", "false"]),
    ("http-redirect-http", &["true"]),
    ("http-certificates", &["one", "7,8", "9", "none"]),
    ("certificate-type", &["managed"]),
    ("http-managed-certificate-domains", &["a.example"]),
    ("deletion-protection", &["true", "false"]),
    ("external-targets", &["true", "wrong"]),
];

/// Several Services and a project.
struct Several {
    world: World,
    services: Vec<Service>,
}

fn word<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

fn timestamp(second: u64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second as i64).unwrap()
}

fn service(random: &mut Random, at: usize) -> Service {
    let count = random.below(4);
    let mut ports: Vec<ServicePort> = Vec::new();
    for (place, number) in (0_u16..).zip(PORTS) {
        if random.percent(50) || (place == 0 && count == 0) {
            ports.push(ServicePort {
                name: format!("p{number}"),
                protocol: *random.pick(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp]),
                port: *number,
                node_port: (!random.percent(3)).then_some(30_000 + at as u16 * 10 + place),
            });
        }
    }
    let is_local = random.percent(10);
    Service {
        namespace: (word(random, NAMESPACES)).into(),
        name: format!("web-{at}"),
        uid: format!("uid-{at}"),
        created: (!random.percent(5)).then(|| timestamp(random.below(5) * 1000)),
        ports,
        traffic_policy: if is_local { TrafficPolicy::Local } else { TrafficPolicy::Cluster },
        health_check_node_port: is_local.then_some(32_000),
        load_balancer_ip: match random.percent(3) {
            true => "198.51.100.41".to_owned(),
            false => String::new(),
        },
        ..Service::default()
    }
}

fn annotate(random: &mut Random, service: &mut Service, names: &[String]) {
    let mut set = |name: &str, value: &str| {
        let key = format!("{PREFIX}{name}");
        service.annotations.insert(key, value.to_owned());
    };
    let group = word(random, GROUPS);
    let namespace = word(random, NAMESPACES);
    match random.below(10) {
        0..3 => {}
        3..5 => set("share", group),
        5..7 => set("share", &format!("{namespace}/{group}")),
        7 => set("external", "front"),
        8 => set("external", word(random, &["1", "2", "no-such", "front"])),
        _ => {
            set("share", group);
            set("external", "front");
        }
    }
    if random.percent(40) {
        let allowed = ["*", "shop", "shop, team"];
        set("share-namespaces", word(random, &allowed));
    }
    if random.percent(15) {
        set("name", &random.pick(names).clone());
    }
    let share = random.below(25);
    for (name, values) in OTHERS {
        if random.percent(share) {
            set(name, word(random, values));
        }
    }
}

/// Returns the names that load balancers have, which are those that ccm would give and others.
fn names(services: &[Service]) -> Vec<String> {
    let mut names = vec!["front".to_owned(), "other".to_owned()];
    for one in services {
        names.push(format!("kubernetes-{}-{}", one.namespace, one.name));
        names.push(format!("a{}", one.uid.replace('-', "")));
        let groups = GROUPS.iter();
        names.extend(groups.map(|group| format!("kubernetes-{}-{group}", one.namespace)));
    }
    names
}

fn uid(random: &mut Random, services: &[Service]) -> String {
    match random.below(10) {
        0 => GONE.to_owned(),
        1 => ALONE.to_owned(),
        _ => random.pick(services).uid.clone(),
    }
}

/// Labels as the code writes them, some of which were then removed, added or changed.
fn labels(random: &mut Random, services: &[Service]) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut set = |label: &str, value: &str| labels.insert(label.to_owned(), value.to_owned());
    let one = random.pick(services);
    let full_name = format!("{}.{}", one.namespace, one.name);
    let [own, former, other] = ["cluster-1", "cluster-0", "cluster-9"];
    let cluster = word(random, &[own, own, own, former, other]);
    let group = format!("{}.{}", word(random, NAMESPACES), word(random, GROUPS));
    let kind = random.below(10);
    if (1..7).contains(&kind) {
        set(CLUSTER_UID, cluster);
        set(CLUSTER, "kubernetes");
        set(SERVICE, &full_name);
        set(SERVICE_UID, &uid(random, services));
        set(word(random, &[CREATED, CREATED, ADOPTED]), "true");
    }
    if (4..7).contains(&kind) {
        set(GROUP, &group);
    }
    if kind == 7 {
        let allowed = ["", "", "default", "shop"];
        set(EXTERNAL, word(random, &allowed));
        if random.percent(60) {
            let value = word(random, &["all", "none", "1_99", "2"]);
            set(&format!("{TARGETS_BEFORE}{cluster}"), value);
        }
    }
    for number in PORTS {
        if kind >= 4 && random.percent(50) {
            set(&format!("{PORT}{number}"), &uid(random, services));
        }
    }
    for (label, values) in [
        (ADOPT, &[full_name.as_str(), "default.other"][..]),
        (ADOPTED, &["true"]),
        (KEEP, &[full_name.as_str(), group.as_str()]),
        (RELEASED, &[one.uid.as_str(), GONE]),
        (EXTERNAL, &["", "default"]),
        (GROUP, &[group.as_str()]),
        (SERVICE_UID, &[one.uid.as_str(), GONE]),
        (CLUSTER_UID, &["cluster-1", "cluster-9"]),
        ("caph-cluster-prod", &["owned"]),
        ("provisioner", &["terraform"]),
        ("team", &["owned", "web"]),
    ] {
        if random.percent(6) {
            set(label, word(random, values));
        }
    }
    if random.percent(10) {
        // Terraform leaves these labels.
        labels.retain(|label, _| !label.contains("ccm") || label == EXTERNAL);
    }
    labels.retain(|_, _| !random.percent(4));
    labels
}

fn listener(random: &mut Random, number: u16, to: u16) -> Listener {
    let protocol = word(random, &["tcp", "tcp", "https"]);
    let mut port = json!({
        "protocol": protocol,
        "listen_port": number,
        "destination_port": to,
        "proxyprotocol": random.percent(20),
        "health_check": {
            "protocol": "tcp", "port": to, "interval": 15, "timeout": 10, "retries": 3,
        },
    });
    if protocol == "https" {
        port["http"] = json!({
            "cookie_name": "HCLBSTICKY",
            "cookie_lifetime": 300,
            "certificates": random.pick(&[vec![], vec![7], vec![9, 7]]),
            "redirect_http": random.percent(30),
            "sticky_sessions": false,
            "timeout_idle": 60,
        });
    }
    serde_json::from_value(port).unwrap()
}

fn target(random: &mut Random) -> ApiTarget {
    match random.below(12) {
        0 => ip_target(Ipv4Addr::new(10, 0, 0, *random.pick(&[9, 99]))),
        1 => {
            let is_known = random.percent(70);
            let selected = is_known.then(|| *random.pick::<&[u64]>(&[&[], &[1], &[1, 99]]));
            selector_target("role=web", selected)
        }
        2 => server_target(99, random.percent(20)),
        _ => server_target(1 + random.below(3), random.percent(20)),
    }
}

fn balancer(random: &mut Random, id: u64, services: &[Service], names: &[String]) -> LoadBalancer {
    let kind: &str = word(random, &["lb11", "lb21"]);
    let mut one = fresh(id, &random.pick(names).clone(), kind);
    one.labels = labels(random, services);
    one.created = (!random.percent(20)).then(|| timestamp(random.below(5) * 1000));
    one.protection.delete = random.percent(10);
    if random.percent(30) {
        one.private_net =
            vec![BalancerPrivateNet { network: 10, ip: Some("10.0.0.200".parse().unwrap()) }];
    }
    for number in PORTS {
        if random.percent(45) {
            let owner = random.pick(services);
            let own = owner.ports.iter().find(|port| port.port == *number);
            let own = own.and_then(|port| port.node_port);
            let to = own.filter(|_| random.percent(80)).unwrap_or(31_000);
            one.services.push(listener(random, *number, to));
        }
    }
    for _ in 0..random.below(4) {
        let more = target(random);
        if !one.targets.contains(&more) {
            one.targets.push(more);
        }
    }
    one
}

fn certificate(random: &mut Random, id: u64, name: &str, services: &[Service]) -> Certificate {
    let mut labels = BTreeMap::new();
    if random.percent(40) {
        let secret = format!("{}.tls", word(random, NAMESPACES));
        labels.insert(SECRET.to_owned(), secret);
    }
    if random.percent(30) {
        let cluster = word(random, &["cluster-1", "cluster-9"]);
        labels.insert(CLUSTER_UID.to_owned(), (*cluster).to_owned());
    }
    if random.percent(20) {
        labels.insert(SERVICE_UID.to_owned(), uid(random, services));
    }
    Certificate { labels, ..support::certificate(id, name) }
}

fn several(seed: u64) -> Several {
    let random = &mut Random::new(seed);
    let mut world = World::new(*random.pick(&PROFILES));
    if random.percent(30) {
        world = world.with_network();
    }
    world.label_nodes();
    if random.percent(5) {
        world.nodes.clear();
    }
    if random.percent(10) {
        let variable = "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP";
        world.defaults.network.use_private_ip = Some(environment(variable, true));
    }
    let count = 1 + random.below(6) as usize;
    let mut services: Vec<Service> = (0..count).map(|at| service(random, at)).collect();
    let names = names(&services);
    for one in &mut services {
        annotate(random, one, &names);
    }
    world.state.balancers =
        (1..=random.below(7)).map(|id| balancer(random, id, &services, &names)).collect();
    for one in &mut services {
        if let (true, Some(served_by)) = (random.percent(60), world.state.balancers.last()) {
            let mut all = world.state.balancers.iter();
            let own = all.find(|there| there.labels.values().any(|value| *value == one.uid));
            let shown = own.unwrap_or(served_by).public_net.ipv4.ip.unwrap();
            one.addresses.push(shown.to_string());
        }
        if random.percent(5) {
            one.addresses.push("lb.example".to_owned());
        }
    }
    let certificates = [(7, "one"), (8, "two"), (9, "three")];
    let certificates = certificates.map(|(id, name)| certificate(random, id, name, &services));
    world.state.certificates = Some(certificates.into());
    let cluster = &mut world.cluster;
    cluster.former_uids = vec!["cluster-0".to_owned()];
    if random.percent(4) {
        (cluster.uid, cluster.former_uids) = (String::new(), Vec::new());
    }
    cluster.addresses.insert("10.0.0.9".parse().unwrap());
    cluster.service_uids = services.iter().map(|one| one.uid.clone()).collect();
    if random.percent(50) {
        cluster.service_uids.insert(ALONE.to_owned());
        let left = UntouchedService::default();
        cluster.untouched.insert(ALONE.to_owned(), left);
    }
    if random.percent(5) {
        let id = "hcloud://2".to_owned();
        cluster.foreign_nodes.push(("worker-02".to_owned(), id));
    }
    if random.percent(5) {
        cluster.servers.remove(&InstanceId::Cloud(3));
        let is_third = |id| matches!(id, ProviderId::Ours(InstanceId::Cloud(3)));
        world.nodes.retain(|one| !is_third(one.provider_id.clone()));
    }
    Several { world, services }
}

impl Several {
    /// Returns the decisions for all Services. `is_reversed` means that the list of Services is in the opposite order,
    /// while their ages stay the same.
    fn text(&mut self, is_reversed: bool) -> String {
        let mut all: Vec<Service> = self.services.clone();
        if is_reversed {
            all.reverse();
        }
        let world = &mut self.world;
        let mut groups: HashMap<String, Vec<Service>> = HashMap::new();
        for service in &all {
            if let Some(key) = world.group(service) {
                groups.entry(key).or_default().push(service.clone());
            }
        }
        for group in groups.values_mut() {
            group.sort_by_key(|one| (one.created.is_none(), one.created, one.uid.clone()));
        }
        world.cluster.groups = groups.into();
        let mut text = String::new();
        for service in &self.services {
            world.service = service.clone();
            let name = service.full_name();
            writeln!(text, "== {name}\n{}", plan_text(&world.plan())).unwrap();
            writeln!(text, "-- removal\n{}", plan_text(&world.removal())).unwrap();
            writeln!(text, "-- release\n{}", plan_text(&world.release())).unwrap();
            writeln!(text, "-- left on {:?}", world.left_on()).unwrap();
            let ids: Vec<u64> = world.state.balancers.iter().map(|one| one.id).collect();
            for id in ids {
                let plan = world.adoption(id);
                let found = plan.found.as_ref().map(|found| found.id);
                let changes = plan.outcome.changes().iter();
                let changes: Vec<String> = changes.map(|one| change_text(&**one)).collect();
                let obstacle = plan.outcome.obstacle();
                let made = format!("{found:?} {changes:?} {obstacle:?}");
                writeln!(text, "-- adoption of {id}: {made}").unwrap();
            }
        }
        writeln!(text, "== orphans").unwrap();
        for orphan in world.orphans() {
            let removal = orphan.removal.as_ref().map(|one| change_text(&**one));
            let (stays, removal) = (removal.as_ref().err(), removal.as_ref().ok());
            let (id, service) = (orphan.balancer.id, &orphan.service);
            let uid = &orphan.service_uid;
            let becomes = format!("{stays:?} {removal:?}");
            writeln!(text, "orphan {id} of {service} {uid}: {becomes}").unwrap();
        }
        writeln!(text, "== kept {:?}", world.kept()).unwrap();
        text
    }
}

fn plan_text(plan: &LoadBalancerPlan) -> String {
    let mut text = String::new();
    let found = plan.found.as_ref();
    let found = found.map(|found| json!(found).to_string());
    writeln!(text, "found {found:?} by UID {}", plan.carries_uid).unwrap();
    let outcome = &plan.outcome;
    for (kind, changes) in [("write", outcome.changes()), ("leave", outcome.leaves())] {
        for change in changes {
            writeln!(text, "{kind} {}", change_text(&**change)).unwrap();
        }
    }
    match outcome {
        PlanOutcome::Refused { why, problems } => writeln!(text, "refused {why:?} {problems:?}"),
        PlanOutcome::Released => writeln!(text, "released"),
        PlanOutcome::Waiting => writeln!(text, "waiting"),
        PlanOutcome::Change { then, .. } => match then {
            Then::Done => writeln!(text, "then done"),
            Then::Again => writeln!(text, "then again"),
            Then::Leave(_) => writeln!(text, "then leaves"),
            Then::Move(_) => writeln!(text, "then moves"),
        },
    }
    .unwrap();
    for field in &plan.fields {
        writeln!(text, "field {field:?}").unwrap();
    }
    for finding in &plan.findings {
        writeln!(text, "finding {finding:?}").unwrap();
    }
    writeln!(text, "status {:?}", plan.status).unwrap();
    let name = plan.outcome.changes().iter().find_map(|change| change.new_name());
    let (claims, needs) = (&plan.claims, &plan.needs);
    writeln!(text, "claims {claims:?} name {name:?} needs {needs:?}").unwrap();
    text
}

fn change_text(change: &dyn Change) -> String {
    let (json, description) = (change.json(), change.description());
    let (kind, event) = (change.kind(), change.event());
    format!("{json} {description} {kind:?} {event:?}")
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(asked) = std::env::var("CCM_TEST_SEED") else {
        return 0..=SEEDS - 1;
    };
    let (first, last) = asked.split_once('-').unwrap_or((&asked, &asked));
    first.parse().expect("a seed")..=last.parse().expect("a seed")
}

#[test]
fn the_same_input_leads_to_the_same_decisions() {
    if let Ok(file) = std::env::var("CCM_TEST_DECISIONS") {
        let mut lines = String::new();
        for seed in seeds() {
            let text = several(seed).text(false);
            match file.as_str() {
                "-" => println!("{text}"),
                _ => writeln!(lines, "{seed} {:016x}", hash(&text)).unwrap(),
            }
        }
        if file != "-" {
            std::fs::write(&file, lines).expect("the file can be written");
        }
        return;
    }
    // The test counts how often these words are in the texts.
    #[rustfmt::skip]
    let words = [
        r#""change":"create""#, r#""change":"delete""#, r#""change":"edit""#, r#""change":"delete_service""#,
        r#""change":"add_service""#, "leave ", "refused ", "released\n", "then moves", r#"ip_mode: Some("Proxy")"#,
        "Release", "orphan ",
    ];
    let mut counts = [0; 12];
    for seed in 0..SOME {
        let text = several(seed).text(false);
        assert_eq!(text, several(seed).text(true), "seed {seed}");
        for (count, word) in counts.iter_mut().zip(words) {
            *count += usize::from(text.contains(word));
        }
    }
    for (count, word) in counts.into_iter().zip(words) {
        assert!(count > 5, "{word} in {count} of {SOME} worlds");
    }
}
