//! The sandbox's project behind a plan: it has what the plan was made from, takes the writes, and shows what they made of it.
//!
//! A plan is made from values that a test has set ([`ObservedBalancers`]). [`Project::of`] puts them into a simulated Hetzner Cloud
//! in memory, [`Project::apply`] sends a write as ccm would, and [`Project::read`] takes over what changed. So there is one
//! model of Hetzner's rules, and a write that the API would refuse fails the test.

use crate::load_balancer::support::{NETWORK, World};
use ccm::hetzner::load_balancers::{
    ApiTarget, BalancerPublicIp, BalancerPublicNet, BalancerType, Certificate, HealthStatus,
    Listener, LoadBalancer, Location, ObservedBalancers, PortField, PrimaryIp,
};
use ccm::provider::{Change, InstanceId, ProviderId, Reach};
use sandbox::credentials::{Authority, Identity, Validity};
use sandbox::exchange::{Handler as _, Request, Response};
use sandbox::hetzner::{Cloud, Machine};
use sandbox::time;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const TOKEN: &str = "the token of the project";

/// The time after each write. All actions end in it, and targets become healthy, but no certificate is issued.
const PAUSE: Duration = Duration::from_secs(10);
const ISSUANCE: Duration = Duration::from_secs(1_000_000_000);

/// The second number in the addresses of servers. They have a subnet of their own, so that load balancers get
/// the first addresses.
const OF_SERVERS: u8 = 15;

/// When a load balancer was created of which the test does not say it.
const BORN: &str = "2026-11-23T12:00:00Z";

/// A server whose ID the test does not say.
const STRANGER: u64 = 60_000;

/// The types of load balancers, as the API shows them.
static TYPES: LazyLock<Vec<BalancerType>> = LazyLock::new(|| {
    let project = Project::empty();
    let answer = project.call("GET", "/load_balancer_types", &Value::Null);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    serde_json::from_value(answer["load_balancer_types"].clone()).unwrap()
});

/// A real certificate with its key. It is uploaded in the place of the pairs of the tests, which are no certificates.
static PAIR: LazyLock<Identity> = LazyLock::new(|| {
    let authority = Authority::seeded("authority", 1).unwrap();
    authority.server(&["a.example"], Validity::Now).unwrap()
});

/// `lb11`, `lb21`, `lb31`.
pub fn types() -> Vec<BalancerType> {
    TYPES.clone()
}

/// Returns a new load balancer as the API shows it. Its addresses follow from its ID.
pub fn fresh(id: u64, name: &str, kind: &str) -> LoadBalancer {
    let last = u8::try_from(id % 200).unwrap() + 1;
    let kind = TYPES.iter().find(|one| one.name == kind).unwrap();
    LoadBalancer {
        id,
        name: name.into(),
        created: Some(BORN.parse().unwrap()),
        load_balancer_type: kind.clone(),
        location: Location { name: "fsn1".into(), network_zone: "eu-central".into() },
        public_net: BalancerPublicNet {
            enabled: true,
            ipv4: BalancerPublicIp {
                id: Some(id * 10 + 4),
                ip: Some(Ipv4Addr::new(192, 0, 2, last).into()),
                dns_ptr: Some("static.example".into()),
            },
            ipv6: BalancerPublicIp {
                id: Some(id * 10 + 6),
                ip: Some(Ipv6Addr::new(0x2001, 0xdb8, 1, last.into(), 0, 0, 0, 1).into()),
                dns_ptr: None,
            },
        },
        outgoing_traffic: Some(0),
        ingoing_traffic: Some(0),
        included_traffic: Some(20 << 40),
        ..LoadBalancer::default()
    }
}

/// Whether two ports are the same in every field that the API shows.
pub fn same_listener(left: &Listener, right: &Listener) -> bool {
    PortField::ALL.iter().all(|field| field.of(left) == field.of(right))
}

/// A project with these load balancers.
pub fn state(balancers: Vec<LoadBalancer>) -> ObservedBalancers {
    ObservedBalancers {
        balancers,
        types: Some(Arc::new(types())),
        certificates: Some(Vec::new()),
        primary_ips: Some(Vec::new()),
        ..ObservedBalancers::default()
    }
}

/// A simulated project, and how far its clock is.
pub struct Project {
    cloud: Arc<Cloud>,
    own: u64,
    nanoseconds: Arc<AtomicU64>,
    networks: BTreeSet<u64>,
    /// Servers that exist and were not needed yet, by which networks they are in and whether they have a public IPv4.
    servers: RefCell<BTreeMap<u64, Reach>>,
    /// What the project showed when it was read last.
    shown: RefCell<Shown>,
    /// The last answer about each load balancer after a write to it.
    last: RefCell<BTreeMap<u64, Vec<u8>>>,
}

/// What a project shows, by kind and ID.
type Shown = BTreeMap<(&'static str, u64), String>;

impl Project {
    fn empty() -> Project {
        let nanoseconds = Arc::new(AtomicU64::new(0));
        let _time = time::simulate(nanoseconds.clone());
        let cloud = Cloud::new(1.0);
        let own = cloud.add_project();
        cloud.add_token(own, TOKEN, false);
        cloud.set_action_duration("create_certificate", Some(ISSUANCE));
        Project {
            cloud,
            own,
            nanoseconds,
            networks: BTreeSet::new(),
            servers: RefCell::default(),
            shown: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// A project that has what the world's plans are made from.
    pub fn of(world: &World) -> Project {
        let mut project = Project::empty();
        let _time = time::simulate(project.nanoseconds.clone());
        let ObservedBalancers { balancers, certificates, primary_ips, .. } = &world.state;
        project.put_networks(world);
        for one in certificates.iter().flatten() {
            project.put(json!({"certificate": certificate(one)}));
        }
        let mut addresses: BTreeMap<u64, Value> = BTreeMap::new();
        for one in balancers {
            let own = primary_ips_of(one).into_iter();
            addresses.extend(own.map(|one| (one["id"].as_u64().unwrap(), one)));
        }
        for one in primary_ips.iter().flatten() {
            let mut shown = primary_ip(one);
            if let Some(own) = addresses.remove(&one.id) {
                // Only load balancers show their names.
                shown["dns_ptr"] = own["dns_ptr"].clone();
            }
            project.put(json!({"primary_ip": shown}));
        }
        for own in addresses.into_values() {
            project.put(json!({"primary_ip": own}));
        }
        let mut servers = servers(world);
        for (id, labels) in selected(balancers) {
            let reach = servers.remove(&id).unwrap_or_default();
            project.put_server(id, &reach, labels);
        }
        for one in balancers {
            project.put(json!({"load_balancer": balancer(one)}));
        }
        for ip in world.cluster.dedicated.keys() {
            project.cloud.add_dedicated_ip(project.own, *ip);
        }
        project.servers = RefCell::new(servers);
        project.shown = RefCell::new(project.cloud.shown(project.own));
        project
    }

    fn put(&self, document: Value) {
        self.cloud.put(self.own, &document);
    }

    /// Every network that is named, with room for load balancers and for servers.
    fn put_networks(&mut self, world: &World) {
        let attached = world.state.balancers.iter();
        let attached = attached.flat_map(|one| one.private_net.iter().map(|net| net.network));
        let reached = world.nodes.iter().flat_map(|node| match &node.reach {
            Reach::By { networks, .. } => networks.clone(),
            _ => Vec::new(),
        });
        self.networks = [NETWORK].into_iter().chain(attached).chain(reached).collect();
        self.networks.extend(world.network);
        for id in &self.networks {
            let number = self.number_of(*id);
            let subnet = |kind: &str, range: &str, zone: &str| json!({"type": kind, "ip_range": range, "network_zone": zone});
            let own = world.state.subnets.as_ref();
            let mut subnets = match own.filter(|_| world.network == Some(*id)) {
                None => vec![subnet("cloud", &format!("10.{number}.0.0/24"), "eu-central")],
                Some(own) => {
                    let own = own.iter();
                    let own = own
                        .map(|one| subnet(&one.kind, &one.ip_range.to_string(), &one.network_zone));
                    own.collect()
                }
            };
            let of_servers = format!("10.{}.0.0/16", number + OF_SERVERS);
            subnets.push(subnet("cloud", &of_servers, "eu-central"));
            let (name, range) = (format!("network-{id}"), format!("10.{number}.0.0/12"));
            self.put(json!({"network": {
                "id": id, "name": name, "ip_range": range, "subnets": subnets,
            }}));
        }
    }

    /// Returns the second number of a Network's addresses, so that no two Networks overlap.
    fn number_of(&self, network: u64) -> u8 {
        let mut others = self.networks.iter().filter(|one| **one != NETWORK);
        let at = others.position(|one| *one == network);
        at.map_or(0, |at| 16 * (1 + u8::try_from(at).unwrap()))
    }

    fn put_server(&self, id: u64, reach: &Reach, labels: Value) {
        let all: Vec<u64> = self.networks.iter().copied().collect();
        let (has_public_ipv4, networks) = match reach {
            Reach::By { has_public_ipv4, networks } => (*has_public_ipv4, networks),
            _ => (true, &all),
        };
        let [.., high, low] = id.to_be_bytes();
        let nets = networks.iter().map(|network| {
            let ip = Ipv4Addr::new(10, self.number_of(*network) + OF_SERVERS, high, low);
            json!({"network": network, "ip": ip})
        });
        self.put(json!({"server": {
            "id": id, "name": format!("server-{id}"), "labels": labels,
            "public_net": {"ipv4": has_public_ipv4.then_some(true), "ipv6": true},
            "private_net": nets.collect::<Vec<_>>(),
        }}));
    }

    /// Sends a write. Returns whether the project must be read and planned again afterwards. Panics when the API
    /// refuses the write, when it changes nothing, and when a certificate would lose a label.
    pub fn apply(&self, change: &dyn Change) -> bool {
        let _time = time::simulate(self.nanoseconds.clone());
        let line = change.description().done().join(", ");
        let mut json = change.json();
        let mut request = json["request"].take();
        let (word, id) = (json["change"].as_str().unwrap(), json["loadBalancer"].as_u64());
        let (method, path) = match (word, id) {
            ("create", _) => ("POST", "/load_balancers".to_owned()),
            ("edit", Some(id)) => ("PUT", format!("/load_balancers/{id}")),
            ("delete", Some(id)) => ("DELETE", format!("/load_balancers/{id}")),
            ("create_certificate", _) => ("POST", "/certificates".to_owned()),
            ("edit_certificate", _) => {
                let certificate = self.named(&line);
                let (old, new) = (&certificate["labels"], &request["labels"]);
                let mut labels = old.as_object().unwrap().keys();
                assert!(labels.all(|label| new.get(label).is_some()) && old != new, "{line}");
                ("PUT", format!("/certificates/{}", certificate["id"]))
            }
            (action, Some(id)) => ("POST", format!("/load_balancers/{id}/actions/{action}")),
            (other, None) => panic!("{other}: {line}"),
        };
        if request["type"] == "uploaded" {
            request["certificate"] = json!(PAIR.certificate_pem);
            request["private_key"] = json!(PAIR.key_pem);
        }
        let targets = request["targets"].as_array().into_iter().flatten();
        for target in targets.chain([&request]) {
            let id = target["server"]["id"].as_u64();
            let server = id.and_then(|id| self.servers.borrow_mut().remove_entry(&id));
            if let Some((id, reach)) = server {
                self.put_server(id, &reach, json!({}));
            }
        }
        if let Some(id) = id.filter(|id| !self.last.borrow().contains_key(id)) {
            let now = self.send("GET", &format!("/load_balancers/{id}"), &Value::Null);
            self.last.borrow_mut().insert(id, now.body);
        }
        self.call(method, &path, &request);
        if let Some(id) = id {
            let now = self.send("GET", &format!("/load_balancers/{id}"), &Value::Null);
            let before = self.last.borrow_mut().insert(id, now.body.clone());
            assert_ne!(before, Some(now.body), "{line}: it changes nothing");
        }
        let read_again = [
            "create",
            "attach_to_network",
            "detach_from_network",
            "enable_public_interface",
            "disable_public_interface",
        ];
        read_again.contains(&word)
    }

    /// The certificate that a description names.
    fn named(&self, line: &str) -> Value {
        let mut all = self.cloud.certificates(self.own).into_iter();
        let is_named = |one: &Value| {
            let name = one["name"].as_str().unwrap();
            line.contains(&format!("{name:?} ({})", one["id"]))
        };
        all.find(is_named).expect("a certificate")
    }

    /// Sends a request, and waits for the end of the action that it started. Returns the answer.
    fn call(&self, method: &str, path: &str, body: &Value) -> String {
        let response = self.send(method, path, body);
        let answer = String::from_utf8(response.body).unwrap();
        assert!(response.status < 300, "{answer} {method} {path}: {body}");
        let pause = u64::try_from(PAUSE.as_nanos()).unwrap();
        self.nanoseconds.fetch_add(pause, Ordering::Relaxed);
        answer
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Response {
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        self.cloud.handle(&Request {
            method: method.to_owned(),
            path: format!("/v1{path}"),
            headers: vec![("authorization".to_owned(), format!("Bearer {TOKEN}"))],
            body,
            ..Request::default()
        })
    }

    /// Takes over what has changed since the last read. The rest stays as a test has set it.
    pub fn read(&self, state: &mut ObservedBalancers) {
        let _time = time::simulate(self.nanoseconds.clone());
        let now = self.cloud.shown(self.own);
        let before = self.shown.replace(now);
        let now = self.shown.borrow();
        let changed = Changed { before: &before, now: &now };
        let health = Health::of(state);
        changed.take_over("load_balancer", &mut state.balancers, |one| one.id);
        health.restore(state);
        if let Some(all) = &mut state.certificates {
            changed.take_over("certificate", all, |one| one.id);
        }
        if let Some(all) = &mut state.primary_ips {
            changed.take_over("primary_ip", all, |one| one.id);
        }
    }
}

/// The results of health checks, which a test sets.
struct Health(BTreeMap<(u64, Machine), Arc<[HealthStatus]>>);

impl Health {
    fn of(state: &mut ObservedBalancers) -> Health {
        let entries = entries(state);
        Health(entries.map(|(key, status)| (key, status.clone())).collect())
    }

    fn restore(mut self, state: &mut ObservedBalancers) {
        for (key, status) in entries(state) {
            *status = self.0.remove(&key).unwrap_or_default();
        }
    }
}

/// The health of each target that is a single server or address, by load balancer and target.
fn entries(
    state: &mut ObservedBalancers,
) -> impl Iterator<Item = ((u64, Machine), &mut Arc<[HealthStatus]>)> {
    let all = state.balancers.iter_mut().flat_map(|one| {
        let id = one.id;
        one.targets.iter_mut().map(move |target| (id, target))
    });
    all.filter_map(|(id, target)| match target {
        ApiTarget::Server { server, health_status, .. } => {
            Some(((id, Machine::Server(server.id)), health_status))
        }
        ApiTarget::Ip { ip, health_status } => Some(((id, Machine::Ip(ip.ip)), health_status)),
        ApiTarget::LabelSelector { .. } | ApiTarget::Unknown => None,
    })
}

/// What a project shows now, and what it showed at the previous read.
struct Changed<'a> {
    before: &'a Shown,
    now: &'a Shown,
}

impl Changed<'_> {
    /// Replaces what is shown in another way than before, adds what is new, and removes what is gone.
    fn take_over<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        all: &mut Vec<T>,
        id: fn(&T) -> u64,
    ) {
        all.retain(|one| self.now.contains_key(&(kind, id(one))));
        for (key, shown) in self.now.range((kind, 0)..=(kind, u64::MAX)) {
            let before = self.before.get(key);
            // The Primary IPs of servers are put together with them, and no plan asks about them.
            let is_of_server = || shown.contains(r#""assignee_type":"server""#);
            if before == Some(shown) || (before.is_none() && is_of_server()) {
                continue;
            }
            let read = serde_json::from_str(shown).unwrap();
            match all.iter_mut().find(|one| id(one) == key.1) {
                Some(one) => *one = read,
                None => all.push(read),
            }
        }
    }
}

/// Returns the servers that exist. Those of nodes exist unless a complete list does not contain them.
fn servers(world: &World) -> BTreeMap<u64, Reach> {
    let cluster = world.cluster.servers.keys();
    let cluster = cluster.map(|id| (*id, Reach::Unknown));
    let nodes = world.nodes.iter().filter_map(|node| match node.provider_id {
        ProviderId::Ours(id) => Some((id, node.reach.clone())),
        _ => None,
    });
    let mut servers = BTreeMap::new();
    for (id, reach) in cluster.chain(nodes) {
        if let InstanceId::Cloud(id) = id {
            servers.insert(id, reach);
        }
    }
    servers.retain(|_, reach| *reach != Reach::Missing { is_certain: true });
    servers
}

/// The servers that label selectors select, with the labels that they need for it.
fn selected(balancers: &[LoadBalancer]) -> BTreeMap<u64, Value> {
    let mut found: BTreeMap<u64, Value> = BTreeMap::new();
    for target in balancers.iter().flat_map(|one| &one.targets) {
        let ApiTarget::LabelSelector { label_selector, targets } = target else {
            continue;
        };
        let (key, value) = label_selector.selector.split_once('=').unwrap();
        for one in targets.iter().flatten() {
            let id = Some(one.server.id).filter(|id| *id > 0);
            let labels = found.entry(id.unwrap_or(STRANGER)).or_insert_with(|| json!({}));
            labels[key] = value.into();
        }
    }
    found
}

fn certificate(one: &Certificate) -> Value {
    let status = one.status.as_ref().map(|status| {
        let error = status.error.as_ref();
        let error = error.map(|error| json!({"code": error.code, "message": error.message}));
        json!({"issuance": status.issuance, "renewal": status.renewal, "error": error})
    });
    json!({
        "id": one.id, "name": one.name, "labels": one.labels, "domain_names": one.domain_names,
        "not_valid_after": one.not_valid_after, "status": status,
    })
}

fn primary_ip(one: &PrimaryIp) -> Value {
    json!({
        "id": one.id, "name": one.name, "ip": one.ip, "type": one.kind, "location": {"name": one.location.name},
        "labels": one.labels, "assignee_id": one.assignee_id, "assignee_type": one.assignee_type,
        "auto_delete": one.auto_delete, "blocked": one.blocked,
    })
}

/// The Primary IPs that a load balancer has by itself.
fn primary_ips_of(one: &LoadBalancer) -> Vec<Value> {
    let both = [&one.public_net.ipv4, &one.public_net.ipv6].into_iter();
    let both = both.filter_map(|public| {
        let (id, ip) = (public.id?, public.ip?);
        let range = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("{}/64", Ipv6Addr::from(u128::from(ip) >> 64 << 64)),
        };
        Some(json!({
            "id": id, "name": format!("primary_ip-{id}"), "ip": range, "location": {"name": one.location.name},
            "labels": {}, "assignee_id": one.id, "assignee_type": "load_balancer", "auto_delete": true,
            "dns_ptr": [{"ip": ip, "dns_ptr": public.dns_ptr}],
        }))
    });
    both.collect()
}

fn balancer(one: &LoadBalancer) -> Value {
    // Selected servers are reached by the Network if there is one. Otherwise their load balancer could not do without
    // its public interface.
    let by_private = !one.private_net.is_empty();
    let target = |target: &ApiTarget| match target {
        ApiTarget::Server { server, use_private_ip, .. } => {
            json!({"type": "server", "server": {"id": server.id}, "use_private_ip": use_private_ip})
        }
        ApiTarget::Ip { ip, .. } => json!({"type": "ip", "ip": {"ip": ip.ip}}),
        ApiTarget::LabelSelector { label_selector, .. } => {
            json!({"type": "label_selector", "label_selector": {"selector": label_selector.selector}, "use_private_ip": by_private})
        }
        ApiTarget::Unknown => panic!("the API has no such target"),
    };
    // The API always shows an address.
    let address = |ip: Option<Ipv4Addr>| ip.unwrap_or(Ipv4Addr::new(10, 0, 0, 200));
    let nets = one.private_net.iter();
    let nets = nets.map(|net| json!({"network": net.network, "ip": address(net.ip)}));
    let public = &one.public_net;
    json!({
        "id": one.id, "name": one.name, "created": one.created.map(|at| at.to_string()), "labels": one.labels,
        "load_balancer_type": {"name": one.load_balancer_type.name},
        "location": {"name": one.location.name}, "algorithm": {"type": one.algorithm.kind},
        "protection": {"delete": one.protection.delete}, "private_net": nets.collect::<Vec<_>>(),
        "public_net": {"enabled": public.enabled, "ipv4": {"id": public.ipv4.id}, "ipv6": {"id": public.ipv6.id}},
        "services": one.services.iter().map(|one| one.body(false)).collect::<Vec<_>>(),
        "targets": one.targets.iter().map(target).collect::<Vec<_>>(),
    })
}
