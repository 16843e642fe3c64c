//! A small world with one Service, some nodes and a project, and the way from a plan to its end.

use crate::common::objects;
use crate::load_balancer::project::{self, Project as Simulated};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{
    ApiTarget, BalancerPublicIp, BalancerSnapshot, Certificate, Defaults, IpRef, Listener,
    LoadBalancer, Location, ObservedBalancers, PrimaryIp, Project, Reference, SERVICE_UID,
    SelectedServer, SelectorRef,
};
use ccm::hetzner::{AddressFamily, Hetzner};
use ccm::provider::{
    Balancer, Change, Cluster, Departure, Ingress, InstanceId, KeptObject, LoadBalancerPlan,
    LoadBalancers as _, Needs, OfferedNode, Orphan, ProviderId, Reach, Reason, Service,
    ServiceInput, ServicePort, Snapshot as _, Source, Sourced,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

pub const PROFILES: [Profile; 2] = [Profile::CcmFromScratch, Profile::Hcloud];

/// The private Network of those worlds that have one.
pub const NETWORK: u64 = 10;

pub const UID: &str = "5f2c0e5e-0000-4000-8000-000000000001";

/// The provider of a project that is never called.
static HETZNER: LazyLock<Hetzner> =
    LazyLock::new(|| Hetzner::new(objects::settings(AddressFamily::Ipv4)));

static PROJECT: LazyLock<Project> = LazyLock::new(|| HETZNER.project(None));

/// Everything that a plan is made from.
#[derive(Clone)]
pub struct World {
    pub profile: Profile,
    pub defaults: Defaults,
    pub network: Option<u64>,
    pub state: ObservedBalancers,
    pub service: Service,
    pub nodes: Vec<OfferedNode>,
    pub cluster: Cluster,
}

impl World {
    /// Three nodes in fsn1, a Service with port 80, and no load balancer.
    pub fn new(profile: Profile) -> World {
        let mut state = project::state(Vec::new());
        state.certificates = Some(vec![certificate(7, "one"), certificate(8, "two")]);
        World {
            profile,
            defaults: Defaults {
                // Upstream can't do without.
                location: Some(environment("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1".into())),
                ..Defaults::default()
            },
            network: None,
            state,
            service: service(),
            nodes: nodes(3),
            cluster: Cluster {
                uid: "cluster-1".into(),
                name: "kubernetes".into(),
                service_uids: [UID.to_owned()].into(),
                servers: (1..=3).map(|id| (InstanceId::Cloud(id), node(id).name)).collect(),
                ..Cluster::default()
            },
        }
    }

    pub fn with_network(mut self) -> World {
        self.network = Some(NETWORK);
        self
    }

    /// Sets annotations, which are written without their prefix, as in `type=lb21 location=nbg1`.
    pub fn set(&mut self, annotations: &str) {
        pairs(annotations).for_each(|(name, value)| self.set_one(name, value));
    }

    /// Sets an annotation, without its prefix, to any value.
    pub fn set_one(&mut self, name: &str, value: &str) {
        let key = format!("{PREFIX}{name}");
        self.service.annotations.insert(key, value.to_owned());
    }

    /// Labels every second node, beginning with the first, `even=yes`, and the others `even=no`.
    pub fn label_nodes(&mut self) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let even = if at % 2 == 0 { "yes" } else { "no" };
            node.labels = node.labels.iter().chain([("even", even)]).collect();
        }
    }

    pub fn unset(&mut self, name: &str) {
        self.service.annotations.remove(&format!("{PREFIX}{name}"));
    }

    /// Every managed certificate is issued.
    pub fn issue(&mut self) {
        for one in self.state.certificates.iter_mut().flatten() {
            if let Some(status) = &mut one.status {
                status.issuance = "completed".into();
            }
        }
    }

    pub fn certificate(&self, name: &str) -> &Certificate {
        let mut all = self.state.certificates.iter().flatten();
        all.find(|one| one.name == name).expect("a certificate")
    }

    pub fn plan(&self) -> LoadBalancerPlan {
        let snapshot = self.snapshot();
        let cluster = &self.all_nodes();
        snapshot.plan(ServiceInput { service: &self.service, nodes: &self.nodes, cluster })
    }

    /// The plans of several Services by one snapshot, and how long they took without the snapshot.
    pub fn plans(&self, services: &[Service]) -> (Vec<LoadBalancerPlan>, Duration) {
        let (snapshot, cluster, nodes) = (self.snapshot(), &self.all_nodes(), &self.nodes[..]);
        let plan = |service| snapshot.plan(ServiceInput { service, nodes, cluster });
        computed(|| services.iter().map(plan).collect())
    }

    pub fn known_group(&self, key: &str) -> String {
        self.snapshot().known_group(key.to_owned())
    }

    pub fn needs(&self) -> Needs {
        self.plan().needs
    }

    pub fn removal(&self) -> LoadBalancerPlan {
        let snapshot = self.snapshot();
        snapshot.plan_removal(&self.service, &self.all_nodes())
    }

    pub fn release(&self) -> LoadBalancerPlan {
        let snapshot = self.snapshot();
        snapshot.plan_release(&self.service, &self.all_nodes())
    }

    /// The plan by which an operator gives the load balancer to the Service.
    pub fn adoption(&self, id: u64) -> LoadBalancerPlan {
        let snapshot = self.snapshot();
        let (service, nodes, cluster) = (&self.service, &self.nodes[..], &self.all_nodes());
        snapshot.plan_adoption(id, ServiceInput { service, nodes, cluster })
    }

    pub fn status_by_proxy(&self) -> Option<Vec<Ingress>> {
        let snapshot = self.snapshot();
        snapshot.status_by_proxy(&self.service, &self.all_nodes())
    }

    /// The key of the Service's group, where it is in one.
    pub fn group(&self, service: &Service) -> Option<String> {
        let all = service.annotations.iter();
        let mut all = all.map(|(key, value)| (key.as_str(), value.as_str()));
        let key = HETZNER.group(&service.namespace, &mut all)?;
        Some(self.known_group(&key))
    }

    pub fn left_on(&self) -> Option<Balancer> {
        self.snapshot().left_on(&self.service, &self.all_nodes())
    }

    pub fn kept(&self) -> Vec<KeptObject> {
        self.snapshot().kept(&self.cluster)
    }

    /// Returns the cluster, whose nodes include the eligible ones.
    fn all_nodes(&self) -> Cluster {
        let mut cluster = self.cluster.clone();
        for node in &self.nodes {
            if let ProviderId::Ours(id) = node.provider_id {
                let name = || node.name.clone();
                cluster.servers.entry(id).or_insert_with(name);
            }
        }
        cluster
    }

    pub fn orphans(&self) -> Vec<Orphan> {
        self.snapshot().orphans(&self.cluster)
    }

    fn snapshot(&self) -> BalancerSnapshot {
        let mut project = PROJECT.clone();
        project.profile = self.profile;
        project.defaults = Arc::new(self.defaults.clone());
        project.network = self.network;
        BalancerSnapshot::new(project, self.state.clone())
    }

    /// Plans and makes changes until none is left. Returns all of them.
    pub fn converge(&mut self) -> Vec<Box<dyn Change>> {
        let mut made = Vec::new();
        let project = self.project();
        for _ in 0..5 {
            let mut plan = self.plan();
            if let Some(obstacle) = plan.outcome.obstacle() {
                panic!("{}", obstacle.message);
            }
            if plan.outcome.changes().is_empty() {
                return made;
            }
            for change in plan.outcome.take_changes() {
                let anew = project.apply(&*change);
                made.push(change);
                if anew {
                    break;
                }
            }
            project.read(&mut self.state);
        }
        panic!("no end of changes: {:?}", lines(&made));
    }

    /// A simulated project with all of it.
    pub fn project(&self) -> Simulated {
        Simulated::of(self)
    }

    /// Makes one change. Returns whether the plan must be made again.
    pub fn apply(&mut self, change: &dyn Change) -> bool {
        let project = self.project();
        let anew = project.apply(change);
        project.read(&mut self.state);
        anew
    }

    /// The Service's own.
    pub fn balancer(&self) -> &LoadBalancer {
        let mut all = self.state.balancers.iter();
        let is_it = |one: &&LoadBalancer| {
            one.labels.get(SERVICE_UID).map(String::as_str) == Some(&self.service.uid)
        };
        all.find(is_it).expect("the Service has a load balancer")
    }

    pub fn balancer_mut(&mut self) -> &mut LoadBalancer {
        let id = self.balancer().id;
        let mut all = self.state.balancers.iter_mut();
        all.find(|one| one.id == id).unwrap()
    }

    /// Port 80, or the first.
    pub fn listener(&self) -> &Listener {
        &self.balancer().services[0]
    }

    pub fn ingress(&self) -> Vec<Ingress> {
        self.plan().status.expect("a status")
    }

    /// Returns `IPv4` or `IPv6` for a public address of the Service's load balancer, and any other address itself.
    pub fn named_address(&self, address: &str) -> String {
        let public = &self.balancer().public_net;
        let is = |public: &BalancerPublicIp| public.ip.is_some_and(|ip| ip.to_string() == address);
        match (is(&public.ipv4), is(&public.ipv6)) {
            (true, _) => "IPv4".to_owned(),
            (_, true) => "IPv6".to_owned(),
            _ => address.to_owned(),
        }
    }

    /// Returns the problem that blocks the plan.
    pub fn obstacle(&self) -> String {
        let plan = self.plan();
        assert!(plan.outcome.changes().is_empty() && plan.status.is_none());
        let obstacle = plan.outcome.obstacle().expect("an obstacle");
        assert_eq!(obstacle.reason, Reason::SyncLoadBalancerFailed);
        obstacle.message.clone()
    }

    pub fn findings(&self) -> Vec<Reason> {
        self.plan().findings.iter().map(|one| one.reason).collect()
    }

    /// The messages of the findings that have this reason.
    pub fn finding_messages(&self, reason: Reason) -> Vec<String> {
        let findings = self.plan().findings.into_iter();
        let told = findings.filter(|one| one.reason == reason);
        told.map(|one| one.message).collect()
    }

    /// The certificates that a port of the load balancer shows. `None` means that there is no such port.
    pub fn shows(&self, listen_port: u16) -> Option<Vec<u64>> {
        let mut ports = self.balancer().services.iter();
        let port = ports.find(|one| one.listen_port == listen_port)?;
        Some(port.certificates())
    }
}

/// Asserts that a message has each of these parts.
#[track_caller]
pub fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// Reads `NAME=VALUE NAME=VALUE`.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = text.split_whitespace();
    words.map(|word| word.split_once('=').expect("NAME=VALUE"))
}

/// Labels, written as `NAME=VALUE NAME=VALUE`.
pub fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = pairs(text);
    pairs.map(|(key, value)| (key.into(), value.into())).collect()
}

pub fn environment<T>(variable: &str, value: T) -> Sourced<T> {
    Sourced::new(value, Source::Environment(variable.into()))
}

pub fn service() -> Service {
    Service {
        namespace: "default".into(),
        name: "web".into(),
        uid: UID.into(),
        ports: vec![port("http", 80)],
        ..Service::default()
    }
}

/// Returns a port whose node port is larger by 30000.
pub fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: name.into(),
        port: number,
        node_port: Some(30_000 + number % 2700),
        ..ServicePort::default()
    }
}

/// `worker-01` on server 1, and so on.
pub fn nodes(count: u64) -> Vec<OfferedNode> {
    (1..=count).map(node).collect()
}

pub fn node(id: u64) -> OfferedNode {
    let labels =
        [("topology.kubernetes.io/zone", "fsn1"), ("topology.kubernetes.io/region", "eu-central")];
    OfferedNode {
        name: format!("worker-{id:02}"),
        provider_id: ProviderId::Ours(InstanceId::Cloud(id)),
        labels: labels.into_iter().collect(),
        addresses: Vec::new(),
        reach: Reach::Unknown,
        dedicated_ipv4: None,
        location: Default::default(),
        departure: Departure::default(),
    }
}

/// Returns the changes as the provider made them.
pub fn changes(mut plan: LoadBalancerPlan) -> Vec<Box<dyn Change>> {
    plan.outcome.take_changes()
}

/// The target that is this server.
pub fn server_target(id: u64, use_private_ip: bool) -> ApiTarget {
    ApiTarget::Server { server: Reference { id }, use_private_ip, health_status: Arc::default() }
}

/// The target that is this address.
pub fn ip_target(ip: impl Into<IpAddr>) -> ApiTarget {
    ApiTarget::Ip { ip: IpRef { ip: ip.into() }, health_status: Arc::default() }
}

/// The target that is what this selector selects. `None` means that it is not known.
pub fn selector_target(selector: &str, servers: Option<&[u64]>) -> ApiTarget {
    let selected =
        |id: &u64| SelectedServer { server: Reference { id: *id }, ..SelectedServer::default() };
    ApiTarget::LabelSelector {
        label_selector: SelectorRef { selector: selector.into() },
        targets: servers.map(|servers| servers.iter().map(selected).collect()),
    }
}

/// A Primary IP in eu-central that nothing has.
pub fn primary_ip(id: u64, name: &str, ip: &str, location: &str) -> PrimaryIp {
    PrimaryIp {
        id,
        name: name.into(),
        ip: ip.into(),
        kind: if ip.contains(':') { "ipv6" } else { "ipv4" }.into(),
        location: Location { name: location.into(), network_zone: "eu-central".into() },
        assignee_type: "unassigned".into(),
        ..PrimaryIp::default()
    }
}

/// A certificate without labels and domains.
pub fn certificate(id: u64, name: &str) -> Certificate {
    Certificate { id, name: name.into(), ..Certificate::default() }
}

/// The API's words for them, with spaces between.
pub fn words(changes: &[Box<dyn Change>]) -> String {
    let words: Vec<String> = changes.iter().map(|change| word(&**change)).collect();
    words.join(" ")
}

pub fn word(change: &dyn Change) -> String {
    let json = change.json();
    json["change"].as_str().expect("a word").to_owned()
}

/// Returns the body of the first change, which must create a load balancer.
pub fn creation(changes: &[Box<dyn Change>]) -> Value {
    assert_eq!(word(&*changes[0]), "create");
    changes[0].json()["request"].clone()
}

pub fn count(list: &Value) -> usize {
    list.as_array().expect("a list").len()
}

pub fn lines(changes: &[Box<dyn Change>]) -> Vec<String> {
    changes.iter().map(|change| change.description().done().join(", ")).collect()
}

/// The result of some work, and for how long this thread has computed for it, however busy the machine is. The time is
/// exact to a tick of the scheduler, which is some milliseconds.
pub fn computed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let so_far = || -> Option<u64> {
        let of_thread = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        of_thread.split(' ').next()?.parse().ok()
    };
    let (begun, before) = (Instant::now(), so_far());
    let result = work();
    let time = match (before, so_far()) {
        (Some(before), Some(after)) => Duration::from_nanos(after.saturating_sub(before)),
        _ => begun.elapsed(),
    };
    (result, time)
}
