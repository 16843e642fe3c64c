//! Services that use one load balancer together, and load balancers of somebody else. The plan as tables, and in any
//! history.

use crate::load_balancer::project::fresh;
use crate::load_balancer::random::Random;
use crate::load_balancer::support::{
    World, assert_says, environment, labels, lines, node, pairs, port, server_target, word, words,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{
    Algorithm, ApiTarget, CREATED, EXTERNAL, GROUP, KEEP, Listener, LoadBalancer, PORT, PortField,
    RELEASED, SERVICE_UID, TARGETS_BEFORE,
};
use ccm::provider::{
    Change, Finding, Ingress, Labels, LoadBalancerPlan, OfferedNode, PlanOutcome, Reach, Reason,
    Service, ServicePort, UntouchedService,
};
use jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Several Services beside one cloud.
pub(super) struct Cluster {
    pub(super) world: World,
    /// The Services by UID.
    pub(super) services: BTreeMap<String, Member>,
}

#[derive(Clone)]
pub(super) struct Member {
    pub(super) service: Service,
    pub(super) is_deleted: bool,
    /// Whether the Service is larger than ccm reads.
    pub(super) is_unread: bool,
}

impl Cluster {
    pub(super) fn new() -> Cluster {
        let mut world = World::new(Profile::CcmFromScratch);
        world.cluster.service_uids.clear();
        Cluster { world, services: BTreeMap::new() }
    }

    /// A cluster whose project has this load balancer.
    pub(super) fn beside(balancer: LoadBalancer) -> Cluster {
        let mut cluster = Cluster::new();
        cluster.world.state.balancers = vec![balancer];
        cluster
    }

    /// Adds a Service. A larger `age` makes it older. Annotations are written as `share=edge type=lb21`.
    pub(super) fn add(&mut self, uid: &str, age: i64, ports: &[u16], annotations: &str) {
        let (namespace, name) = uid.split_once('.').unwrap_or(("default", uid));
        let mut service = Service {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            created: Some(Timestamp::from_second(1_000_000 - age).unwrap()),
            ..Service::default()
        };
        // Each Service has node ports of its own.
        let number = uid.trim_start_matches(char::is_alphabetic).parse::<u16>();
        let base = 30_000 + number.unwrap_or(u16::try_from(age).unwrap()) * 100;
        let ports = (base..).zip(ports).map(|(node_port, number)| ServicePort {
            node_port: Some(node_port),
            ..port(&format!("p{number}"), *number)
        });
        service.ports = ports.collect();
        for (name, value) in pairs(annotations) {
            let name = format!("{PREFIX}{name}");
            service.annotations.insert(name, value.into());
        }
        let member = Member { service, is_deleted: false, is_unread: false };
        self.services.insert(uid.into(), member);
    }

    pub(super) fn service(&mut self, uid: &str) -> &mut Service {
        &mut self.services.get_mut(uid).expect("a Service").service
    }

    /// Deletes the Service in Kubernetes. Its load balancer exists until the next sync.
    pub(super) fn delete(&mut self, uid: &str) {
        self.services.get_mut(uid).expect("a Service").is_deleted = true;
    }

    /// The words of what is to be changed for a Service.
    pub(super) fn changes(&mut self, uid: &str) -> String {
        words(self.plan(uid).outcome.changes())
    }

    pub(super) fn reasons(&mut self, uid: &str) -> Vec<Reason> {
        reasons(&self.plan(uid))
    }

    /// Returns the problem that blocks a Service.
    pub(super) fn obstacle(&mut self, uid: &str) -> String {
        let plan = self.plan(uid);
        let obstacle = plan.outcome.obstacle().expect("an obstacle");
        obstacle.message.clone()
    }

    /// Releases the load balancer of a Service as an operator does. Returns its ID.
    fn release(&mut self, uid: &str) -> u64 {
        self.take_service(uid);
        let plan = self.world.release();
        assert_eq!(words(plan.outcome.changes()), "edit");
        self.world.apply(&*plan.outcome.changes()[0]);
        plan.found.expect("a load balancer").id
    }

    pub(super) fn has_label(&self, name: &str, label: &str) -> bool {
        self.named(name).labels.contains_key(label)
    }

    /// Hides from now on what the Service asks for.
    pub(super) fn leave_unread(&mut self, uid: &str) {
        self.services.get_mut(uid).unwrap().is_unread = true;
    }

    pub(super) fn set(&mut self, uid: &str, name: &str, value: Option<&str>) {
        let annotations = &mut self.service(uid).annotations;
        match value {
            Some(value) => annotations.insert(format!("{PREFIX}{name}"), value.into()),
            None => annotations.remove(&format!("{PREFIX}{name}")),
        };
    }

    fn take_service(&mut self, uid: &str) -> Member {
        let member = self.services[uid].clone();
        let all = self.services.values();
        self.world.cluster.service_uids = all.clone().map(|one| one.service.uid.clone()).collect();
        let mut groups: HashMap<String, Vec<Service>> = HashMap::new();
        let unread = all.clone().filter(|one| one.is_unread);
        let unread = unread.map(|one| {
            let left =
                UntouchedService { namespace: one.service.namespace.clone(), is_unread: true };
            (one.service.uid.clone(), left)
        });
        self.world.cluster.untouched = unread.collect();
        let living = all.filter(|one| !one.is_deleted && !one.is_unread);
        let living = living.map(|one| &one.service);
        for service in living {
            let text = |name: &str| service.annotations.get(&format!("{PREFIX}{name}"));
            let key = match (text("share"), text("external")) {
                (Some(name), _) if name.contains('/') => name.replace('/', "."),
                (Some(name), _) => format!("{}.{name}", service.namespace),
                (None, Some(name)) => format!("external:{name}"),
                (None, None) => continue,
            };
            groups.entry(key).or_default().push(service.clone());
        }
        for group in groups.values_mut() {
            group.sort_by_key(|one| (one.created, one.uid.clone()));
        }
        self.world.cluster.groups = groups.into();
        self.world.service = member.service.clone();
        member
    }

    /// Returns what the status of a Service must contain that is larger than ccm reads.
    pub(super) fn status_by_proxy(&mut self, uid: &str) -> Option<Vec<Ingress>> {
        self.take_service(uid);
        self.world.status_by_proxy()
    }

    pub(super) fn plan(&mut self, uid: &str) -> LoadBalancerPlan {
        match self.take_service(uid).is_deleted {
            true => self.world.removal(),
            false => self.world.plan(),
        }
    }

    /// Does what the controller does for one Service until `most` changes are made. Returns whether nothing is
    /// left to do.
    fn work(&mut self, uid: &str, most: usize, made: &mut Vec<String>) -> bool {
        let mut left = most;
        for _ in 0..6 {
            let mut plan = self.plan(uid);
            let is_deleted = self.services[uid].is_deleted;
            if plan.outcome.obstacle().is_some() {
                return true;
            }
            if plan.outcome.changes().is_empty() {
                if is_deleted {
                    self.services.remove(uid);
                    return true;
                }
                // The status is written first. `LoadBalancerPlan::status` explains this for Services that are deleted.
                if let Some(status) = plan.status.clone() {
                    let status = status.into_iter().filter_map(|one| one.ip).collect();
                    self.service(uid).addresses = status;
                }
                plan.outcome = PlanOutcome::of(plan.outcome.take_leaves());
            }
            if is_deleted && plan.status.is_some() {
                self.service(uid).addresses.clear();
            }
            if plan.outcome.changes().is_empty() {
                return true;
            }
            let project = self.world.project();
            for change in plan.outcome.take_changes() {
                if left == 0 {
                    return false;
                }
                left -= 1;
                made.push(format!("{uid}: {}", change.description().done().join(", ")));
                self.check_write(uid, &*change);
                let before = self.served();
                let anew = project.apply(&*change);
                project.read(&mut self.world.state);
                let after = self.served();
                assert!(before.is_subset(&after), "a served port is lost: {made:#?}");
                if anew {
                    break;
                }
            }
        }
        panic!("no end: {made:#?}");
    }

    /// Checks that no write changes anything of others.
    fn check_write(&self, uid: &str, change: &dyn Change) {
        let json = change.json();
        let Some(id) = json["loadBalancer"].as_u64() else {
            return;
        };
        let balancer = self.balancer(id);
        let is_ours = balancer.labels.contains_key(CREATED);
        match word(change).as_str() {
            "delete" => {
                assert!(is_ours, "{uid} deletes {} of others", balancer.name);
                let living = self.uids_on(balancer).into_iter().filter(|one| one != uid);
                let living: Vec<String> = living.filter(|one| self.lives(one)).collect();
                assert!(living.is_empty(), "{uid} deletes what {living:?} use");
            }
            "delete_service" | "update_service" => {
                let number = &json["request"]["listen_port"];
                assert_ne!(*number, 6443, "{uid} touches a port of others");
            }
            "add_service" | "add_target" => {}
            "remove_target" => {
                let server = json["request"]["server"]["id"].as_u64();
                let is_new = server != Some(1);
                assert!(is_ours || is_new, "a target that was there before");
            }
            "edit" => assert!(is_ours || json["request"]["name"].is_null(), "renamed"),
            other => assert!(is_ours, "{uid}: {other} on what is not ours"),
        }
    }

    /// Ports of living Services that are served at an address of their status.
    fn served(&self) -> BTreeSet<(String, u16)> {
        let living = self.services.values().filter(|one| !one.is_deleted);
        let pairs = living.flat_map(|one| {
            let balancers = self.world.state.balancers.iter();
            balancers.map(move |balancer| (&one.service, balancer))
        });
        let pairs = pairs.filter(|(service, balancer)| {
            let ip = balancer.public_net.ipv4.ip.map(|ip| ip.to_string());
            ip.is_some_and(|ip| service.addresses.contains(&ip))
        });
        let ports = pairs.flat_map(|(service, balancer)| {
            let served = |one: &&ServicePort| balancer.services.iter().any(|port| is_it(port, one));
            let served = service.ports.iter().filter(served);
            served.map(|port| (service.uid.clone(), port.port))
        });
        ports.collect()
    }

    fn lives(&self, uid: &str) -> bool {
        self.services.get(uid).is_some_and(|one| !one.is_deleted)
    }

    fn uids_on(&self, balancer: &LoadBalancer) -> BTreeSet<String> {
        let labels = balancer.labels.iter();
        let is_uid = |label: &str| label == SERVICE_UID || label.starts_with(PORT);
        let labels = labels.filter(|(label, _)| is_uid(label));
        labels.map(|(_, uid)| uid.clone()).collect()
    }

    fn balancer(&self, id: u64) -> &LoadBalancer {
        let mut all = self.world.state.balancers.iter();
        all.find(|one| one.id == id).expect("a load balancer")
    }

    pub(super) fn named(&self, name: &str) -> &LoadBalancer {
        let mut all = self.world.state.balancers.iter();
        all.find(|one| one.name == name).expect("a load balancer")
    }

    pub(super) fn converge(&mut self) -> Vec<String> {
        let mut made = Vec::new();
        for _ in 0..8 {
            let before = made.len();
            let uids: Vec<String> = self.services.keys().cloned().collect();
            for uid in uids {
                assert!(self.work(&uid, usize::MAX, &mut made));
            }
            if made.len() == before {
                return made;
            }
        }
        panic!("no end: {made:#?}");
    }

    /// Returns the ports of a load balancer with the owner in the label of each, such as `80 a, 443 b, 6443`.
    pub(super) fn ports(&self, name: &str) -> String {
        let balancer = self.named(name);
        let ports = balancer.services.iter();
        let mut numbers: Vec<u16> = ports.map(|one| one.listen_port).collect();
        numbers.sort_unstable();
        let with_owner = |number: u16| match balancer.labels.get(&format!("{PORT}{number}")) {
            Some(uid) => format!("{number} {uid}"),
            None => number.to_string(),
        };
        let all: Vec<String> = numbers.into_iter().map(with_owner).collect();
        all.join(", ")
    }
}

pub(super) const SHARED: &str = "kubernetes-default-edge";

/// Whether a listener is this port of a Service.
fn is_it(listener: &Listener, port: &ServicePort) -> bool {
    let to = PortField::DestinationPort.of(listener);
    listener.listen_port == port.port && to == port.node_port.map(|to| to.to_string())
}

pub(super) fn reasons(plan: &LoadBalancerPlan) -> Vec<Reason> {
    plan.findings.iter().map(|one| one.reason).collect()
}

#[test]
fn services_of_a_group_have_one_load_balancer_and_the_last_one_deletes_it() {
    let mut cluster = Cluster::new();
    for (age, uid, number) in [(3, "a", 80), (2, "b", 443), (1, "c", 22)] {
        cluster.add(uid, age, &[number], "share=edge");
    }
    let made = cluster.converge();
    let created = made.iter().filter(|line| line.contains(": created, lb"));
    assert_eq!(created.count(), 1, "{made:#?}");
    assert_eq!(made.len(), 1 + 2 + 2, "a label and a port each: {made:#?}");
    assert_eq!(cluster.ports(SHARED), "22 c, 80 a, 443 b");
    let labels = &cluster.named(SHARED).labels;
    assert_eq!(labels[GROUP], "default.edge");
    // HCCM would remove ports because of this label.
    assert!(!labels.contains_key(SERVICE_UID));
    let services = cluster.services.values();
    let addresses: HashSet<_> = services.map(|one| &one.service.addresses).collect();
    assert_eq!(addresses.len(), 1);

    cluster.delete("b");
    let made = cluster.converge();
    assert_eq!(cluster.ports(SHARED), "22 c, 80 a", "{made:#?}");
    cluster.delete("a");
    cluster.converge();
    // The Service is alone on the load balancer again.
    assert_eq!(cluster.named(SHARED).labels[SERVICE_UID], "c");
    cluster.delete("c");
    cluster.converge();
    assert!(cluster.world.state.balancers.is_empty());
}

#[test]
fn the_oldest_service_that_sets_a_field_decides_about_the_whole_load_balancer() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[80], "share=edge");
    let own = "share=edge type=lb21 name=front";
    cluster.add("b", 2, &[443], own);
    cluster.add("c", 1, &[22], "share=edge type=lb31 name=front");
    cluster.converge();
    assert_eq!(cluster.named("front").load_balancer_type.name, "lb21");
    let plan = cluster.plan("c");
    let mut findings = plan.findings.iter();
    let finding = findings.find(|one| one.reason == Reason::AnnotationWithoutEffect);
    let message = &finding.expect("a finding").message;
    let says = "type has no effect, because Service default/b, which is older, sets \"lb21\"";
    assert_says(message, &[says]);
    let labels = |cluster: &Cluster| cluster.named("front").labels.get("team").cloned();
    cluster.set("c", "labels", Some("team=c"));
    cluster.set("c", "deletion-protection", Some("true"));
    cluster.converge();
    // No older one sets it.
    assert_eq!(labels(&cluster).as_deref(), Some("c"));
    assert!(cluster.named("front").protection.delete);
    cluster.set("b", "labels", Some("team=b"));
    cluster.set("b", "deletion-protection", Some("false"));
    cluster.converge();
    assert_eq!(labels(&cluster).as_deref(), Some("b"));
    assert!(!cluster.named("front").protection.delete);
    // An annotation that can't be read changes nothing of the whole, and prevents no other Service's ports.
    cluster.set("b", "type", Some("lb2l"));
    cluster.set("b", "algorithm-type", Some("least"));
    cluster.add("d", 0, &[25], "share=edge");
    cluster.converge();
    assert_eq!(cluster.named("front").load_balancer_type.name, "lb21");
    assert_eq!(cluster.named("front").services.len(), 4);
}

#[test]
fn a_service_keeps_its_port_and_the_oldest_gets_a_new_one() {
    let mut cluster = Cluster::new();
    let redirect = "share=edge protocol=https http-redirect-http=true http-certificates=one";
    cluster.add("a", 3, &[443], redirect);
    cluster.add("b", 2, &[80, 8080], "share=edge");
    cluster.add("c", 1, &[8080], "share=edge");
    cluster.converge();
    // A redirect answers on 80.
    assert_eq!(cluster.ports(SHARED), "443 a, 8080 b");
    let plan = cluster.plan("b");
    assert!(reasons(&plan).contains(&Reason::PortConflict));
    assert!(!plan.status.unwrap().is_empty(), "another port is served");
    let plan = cluster.plan("c");
    assert_eq!(plan.status, Some(Vec::new()), "none is served");
    // An older one that comes later takes no port away from who has it.
    cluster.add("d", 4, &[8080], "share=edge");
    cluster.converge();
    let still = "443 a, 8080 b";
    assert_eq!(cluster.ports(SHARED), still);
    assert!(cluster.reasons("d").contains(&Reason::PortConflict));
    // The Service leaves, and the oldest of the others gets the port.
    cluster.delete("b");
    cluster.converge();
    assert_eq!(cluster.ports(SHARED), "443 a, 8080 d");
}

#[test]
fn a_service_that_can_t_have_its_port_keeps_its_own_load_balancer() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[80], "share=edge");
    cluster.add("b", 2, &[80, 81], "");
    cluster.converge();
    cluster.set("b", "share", Some("edge"));
    let plan = cluster.plan("b");
    assert_eq!(plan.outcome.obstacle(), None);
    assert!(plan.outcome.is_unfinished(), "{plan:#?}");
    let says = |finding: &Finding| {
        let parts = [
            "port 80 can't be used, because Service default/a already uses this port",
            "stays on its old load balancer \"kubernetes-default-b\"",
        ];
        parts.iter().all(|part| finding.message.contains(part))
    };
    assert!(plan.findings.iter().any(says), "{:#?}", plan.findings);
    let made = cluster.converge();
    assert_eq!(made.len(), 1, "no other's UID on a group's: {made:#?}");
    assert_eq!(cluster.named("kubernetes-default-b").services.len(), 2);
}

/// The Service was moved again before it had left the load balancer before. What it asks for now it can't have.
#[test]
fn a_service_that_is_blocked_leaves_a_load_balancer_that_serves_it_no_more() {
    let wishes = [
        ("share", "edge"),
        ("share", "infra/edge"),
        ("external", "nothing"),
        ("name", "of-others"),
    ];
    let roles = ["", "share=third", "external=7"].into_iter();
    for (role, wish) in roles.flat_map(|role| wishes.map(|wish| (role, wish))) {
        if role.is_empty() && wish.0 == "name" {
            // The Service asks for its own load balancer again.
            continue;
        }
        let about = format!("{role}, then {wish:?}");
        let mut cluster = Cluster::new();
        let mut of_others = external(&[("owner", "somebody")]);
        (of_others.id, of_others.name) = (8, "of-others".into());
        cluster.world.state.balancers = vec![external(&[(EXTERNAL, "")]), of_others];
        cluster.add("a", 5, &[80], "share=edge");
        cluster.add("c", 4, &[82], "share=old");
        cluster.add("d", 3, &[83], "share=third");
        cluster.add("b", 2, &[80], role);
        cluster.converge();
        let third = cluster.plan("b").found.expect("a load balancer").id;
        cluster.set("b", "external", None);
        cluster.set("b", "share", Some("old"));
        // The Service has not left the load balancer yet. Both load balancers have its port.
        let (label, mut there) = (format!("{PORT}80"), cluster.balancer(third).clone());
        // The address of its own load balancer may be assigned to the next one.
        there.public_net = fresh(9, "third", "lb11").public_net;
        cluster.converge();
        let all = &mut cluster.world.state.balancers;
        match all.iter_mut().find(|one| one.id == third) {
            Some(one) => *one = there,
            None => all.push(there),
        }
        cluster.set("b", "share", None);
        cluster.set("b", wish.0, Some(wish.1));
        let plan = cluster.plan("b");
        assert!(!plan.outcome.leaves().is_empty(), "{about}: {plan:#?}");
        assert!(plan.outcome.obstacle().is_none(), "{about}: {plan:#?}");
        // Without an address none serves it. With only a host name nothing shows which load balancer does.
        for (status, stays) in [(None, false), (Some("www.example.com"), wish.1 != "edge")] {
            let service = &mut cluster.service("b");
            let status = status.map(str::to_owned).into_iter().collect();
            let before = std::mem::replace(&mut service.addresses, status);
            let plan = cluster.plan("b");
            let leaves = plan.outcome.leaves();
            assert_eq!(leaves.is_empty(), stays, "{about}: {plan:#?}");
            cluster.service("b").addresses = before;
        }
        cluster.converge();
        let plan = cluster.plan("b");
        assert!(plan.outcome.leaves().is_empty(), "{about}: {plan:#?}");
        let is_blocked = plan.outcome.obstacle().is_some();
        assert_eq!(is_blocked, wish.0 == "name", "{about}: {plan:#?}");
        let mut all = cluster.world.state.balancers.iter();
        let third = all.find(|one| one.id == third);
        let has = third.is_some_and(|one| one.labels.get(&label) == Some(&"b".to_owned()));
        assert!(!has, "{about}: {third:#?}");
        let ports = cluster.ports("kubernetes-default-old");
        assert!(ports.contains("80 b"), "{about}");
    }
}

/// The Service stays on its own load balancer, on that of a group, or on an external one, unless its owner does not
/// allow it any more. The Services that still ask for a load balancer decide about the whole of it.
#[test]
fn a_blocked_service_is_synced_in_its_role_where_it_stays() {
    for (role, other, is_right) in [
        ("", false, true),
        ("share=old", false, true),
        ("share=old", true, true),
        ("external=7", false, true),
        ("external=7", true, true),
        ("external=7", true, false),
    ] {
        let about = format!("{role}, another Service: {other}, allowed: {is_right}");
        let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
        cluster.add("a", 4, &[80], "share=edge");
        let with_algorithm = format!("{role} algorithm-type=least_connections");
        cluster.add("b", 3, &[80, 81], &with_algorithm);
        if other {
            cluster.add("c", 2, &[82], role);
        }
        cluster.converge();
        let at = cluster.plan("b").found.expect("a load balancer").id;
        for name in ["share", "external"] {
            cluster.set("b", name, None);
        }
        cluster.set("b", "share", Some("edge"));
        let member = cluster.services.get_mut("b").unwrap();
        member.service.ports[0].node_port = Some(32_000);
        if !is_right {
            let all = &mut cluster.world.state.balancers;
            let external = all.iter_mut().find(|one| one.id == 7).unwrap();
            external.labels.insert(EXTERNAL.into(), "infra".into());
        }
        cluster.converge();
        let plan = cluster.plan("b");
        let obstacle = plan.outcome.obstacle();
        assert_eq!(obstacle.is_none(), is_right, "{about}: {plan:#?}");
        let all = cluster.world.state.balancers.iter();
        let there = all.clone().find(|one| one.id == at).unwrap();
        let mut ports = there.services.iter();
        let has = ports.any(|one| is_it(one, &cluster.services["b"].service.ports[0]));
        assert_eq!(has, is_right, "{about}: {there:#?}");
        let decides = !role.starts_with("external") && !other;
        let kind = &there.algorithm.kind;
        assert_eq!(*kind == Algorithm::LeastConnections, decides, "{about}");
    }
}

/// A Service decides about the targets where it stays, unless another Service has a port there. A Service that only asks
/// for the load balancer has no port there, so its plan has no targets.
#[test]
fn a_blocked_service_gets_targets_beside_a_service_without_a_port_there() {
    for (port_of_other, is_made) in [(6443, "add_target"), (82, "")] {
        let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
        cluster.add("a", 4, &[80], "share=edge");
        cluster.add("b", 3, &[80], "external=7");
        cluster.add("c", 2, &[port_of_other], "external=7");
        cluster.converge();
        cluster.set("b", "external", None);
        cluster.set("b", "share", Some("edge"));
        cluster.converge();
        cluster.world.nodes.push(node(9));
        assert_eq!(cluster.changes("b"), is_made, "{port_of_other}");
        cluster.converge();
        let has = cluster.balancer(7).targets.contains(&server(9));
        assert!(has, "{port_of_other}: {:#?}", cluster.balancer(7));
    }
}

#[test]
fn a_service_that_joins_or_leaves_is_served_at_every_moment() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[80], "");
    cluster.add("b", 2, &[443], "");
    cluster.converge();
    let old = cluster.named("kubernetes-default-a").id;
    // The oldest Service gives its own load balancer to the group. Only labels change.
    cluster.set("a", "share", Some("edge"));
    let made = cluster.converge();
    assert_eq!(made.len(), 1, "{made:#?}");
    assert_eq!(cluster.balancer(old).labels[GROUP], "default.edge");
    // The other one moves.
    cluster.set("b", "share", Some("edge"));
    let plan = cluster.plan("b");
    assert!(reasons(&plan).contains(&Reason::LoadBalancerChanges));
    assert_eq!(words(plan.outcome.changes()), "edit add_service");
    assert_eq!(words(plan.outcome.leaves()), "delete");
    cluster.converge();
    assert_eq!(cluster.world.state.balancers.len(), 1);
    // The Service leaves the group again.
    cluster.set("b", "share", None);
    let plan = cluster.plan("b");
    assert_eq!(words(plan.outcome.changes()), "create");
    assert_eq!(words(plan.outcome.leaves()), "delete_service edit");
    cluster.converge();
    assert_eq!(cluster.ports("kubernetes-default-a"), "80 a");
    // The last one of a group keeps its load balancer.
    cluster.set("a", "share", None);
    let made = cluster.converge();
    assert_eq!(made.len(), 1, "{made:#?}");
    let labels = &cluster.balancer(old).labels;
    assert_eq!(labels[SERVICE_UID], "a");
    let is_of_group = |label: &String| label == GROUP || label.starts_with(PORT);
    assert!(!labels.keys().any(is_of_group), "{labels:?}");
}

/// The Service was creating a load balancer of its own, and stopped. Then the last other Service left the group, too.
#[test]
fn a_service_with_its_uid_on_two_load_balancers_ends_with_its_own() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[80], "share=edge");
    cluster.converge();
    assert_eq!(cluster.named(SHARED).labels[SERVICE_UID], "a");
    let mut own = cluster.named(SHARED).clone();
    (own.id, own.name) = (own.id + 1000, "kubernetes-default-a".into());
    own.labels.remove(GROUP);
    own.labels.retain(|label, _| !label.starts_with(PORT));
    cluster.world.state.balancers.push(own);
    cluster.set("a", "share", None);
    cluster.converge();
    assert_eq!(cluster.world.state.balancers.len(), 1);
    assert_eq!(cluster.named("kubernetes-default-a").services.len(), 1);
}

#[test]
fn another_namespace_shares_only_a_load_balancer_that_it_is_allowed_to() {
    let mut cluster = Cluster::new();
    cluster.add("infra.a", 3, &[80], "share=edge");
    cluster.add("web.b", 2, &[443], "share=infra/edge");
    cluster.converge();
    let obstacle = cluster.obstacle("web.b");
    assert_says(
        &obstacle,
        &[
            "add \"web\" to the value of its annotation load-balancer.hetzner.cloud/share-namespaces",
        ],
    );
    assert_eq!(cluster.world.state.balancers.len(), 1);
    for allowed in ["web", "shop, web", "*"] {
        cluster.set("infra.a", "share-namespaces", Some(allowed));
        assert_eq!(cluster.changes("web.b"), "edit add_service", "{allowed}");
    }
    cluster.converge();
    let shared = cluster.named("kubernetes-infra-edge");
    assert_eq!(shared.services.len(), 2);
    // A permission that is taken back removes no traffic.
    cluster.set("infra.a", "share-namespaces", None);
    assert!(cluster.converge().is_empty());
    // A Service that may not share it keeps no load balancer alive, and gets no port.
    cluster.delete("web.b");
    cluster.converge();
    cluster.add("web.c", 1, &[22], "share=infra/edge");
    cluster.delete("infra.a");
    cluster.converge();
    assert!(cluster.world.state.balancers.is_empty());
}

#[test]
fn the_limit_of_the_type_counts_for_the_group_and_the_youngest_service_is_refused() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[1, 2, 3], "share=edge type=lb11");
    cluster.add("b", 2, &[4, 5, 6], "share=edge");
    cluster.add("c", 1, &[7], "share=edge");
    cluster.converge();
    let obstacle = cluster.obstacle("b");
    let says = "3 TCP ports, and other owners have 3 ports on the load balancer, but a load balancer of type lb11 takes at most 5";
    assert_says(&obstacle, &[says]);
    let obstacle = cluster.obstacle("c");
    assert_says(&obstacle, &["1 TCP ports, and other owners have 6 ports on the load balancer"]);
}

pub(super) fn listener(number: u16, to: u16) -> Listener {
    serde_json::from_value(json!({
        "protocol": "tcp", "listen_port": number, "destination_port": to, "proxyprotocol": false,
        "health_check": { "protocol": "tcp", "port": to, "interval": 15, "timeout": 10, "retries": 3 },
    }))
    .unwrap()
}

pub(super) fn server(id: u64) -> ApiTarget {
    server_target(id, false)
}

pub(super) fn external(labels: &[(&str, &str)]) -> LoadBalancer {
    let mut one = fresh(7, "edge-lb", "lb31");
    one.services = vec![listener(6443, 6443)];
    one.targets = [1, 77].map(server).into();
    let all = [("made-by", "terraform")].iter().chain(labels);
    one.labels = all.map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    one
}

#[test]
fn an_external_load_balancer_is_used_where_its_owner_allows_it_and_left_as_it_was() {
    for (allowed, is_it) in
        [(None, false), (Some("shop"), false), (Some("default"), true), (Some(""), true)]
    {
        for name in ["7", "edge-lb"] {
            let mut cluster = Cluster::new();
            let labels: Vec<_> = allowed.into_iter().map(|value| (EXTERNAL, value)).collect();
            let before = external(&labels);
            cluster.world.state.balancers = vec![before.clone()];
            let without_effect = "type=lb11 name=other algorithm-type=least_connections labels=team=web \
                                  deletion-protection=true";
            let own = format!("external={name} {without_effect}");
            let labels = Labels::parse("cost=42").unwrap();
            cluster.world.defaults.labels =
                Some(environment("HCLOUD_LOAD_BALANCERS_LABELS", labels));
            cluster.add("a", 3, &[80], &own);
            if !is_it {
                let obstacle = cluster.obstacle("a");
                let command = "add-label --overwrite 7 ccm-from-scratch/external=default";
                assert_says(&obstacle, &[command]);
                continue;
            }
            let plan = cluster.plan("a");
            let told = reasons(&plan);
            assert!(told.contains(&Reason::TargetsShared), "{told:?}");
            let without = told.iter().filter(|one| **one == Reason::AnnotationWithoutEffect);
            assert_eq!(without.count(), 5);
            let made = cluster.converge();
            assert_eq!(made.len(), 4, "labels, a port, two targets: {made:#?}");
            assert_eq!(cluster.ports("edge-lb"), "80 a, 6443");
            let label = format!("{TARGETS_BEFORE}cluster-1");
            assert_eq!(cluster.named("edge-lb").labels[&label], "1_77");
            // A node that is no node any more goes, the ones of others stay.
            cluster.world.nodes.remove(2);
            cluster.converge();
            let servers = cluster.named("edge-lb").server_targets();
            assert_eq!(Vec::from_iter(servers.map(|(id, _)| id)), [1, 77, 2]);
            cluster.delete("a");
            cluster.converge();
            assert_eq!(*cluster.named("edge-lb"), before);
        }
    }
}

#[test]
fn external_targets_may_be_left_out() {
    let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
    cluster.add("a", 3, &[80], "external=7 external-targets=false");
    assert_eq!(cluster.changes("a"), "edit add_service");
}

#[test]
fn a_port_that_others_have_is_named_and_left() {
    let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
    cluster.add("a", 3, &[6443, 80], "external=7");
    cluster.add("b", 2, &[80], "external=edge-lb");
    cluster.converge();
    assert_eq!(cluster.ports("edge-lb"), "80 a, 6443");
    for uid in ["a", "b"] {
        let told = cluster.reasons(uid);
        assert!(told.contains(&Reason::PortConflict), "{uid}: {told:?}");
    }
    // A load balancer that does not exist is named.
    cluster.add("c", 1, &[1], "external=front");
    let obstacle = cluster.obstacle("c");
    assert_says(&obstacle, &["the project has no load balancer with the ID or name \"front\""]);
}

#[test]
fn labels_that_terraform_removed_are_written_again() {
    let mut cluster = Cluster::new();
    let before = external(&[(EXTERNAL, "")]);
    cluster.world.state.balancers = vec![before.clone()];
    cluster.add("a", 3, &[80], "external=7");
    cluster.add("b", 2, &[81], "external=7");
    cluster.converge();
    cluster.world.state.balancers[0].labels = before.labels.clone();
    let made = cluster.converge();
    assert_eq!(made.len(), 1, "{made:#?}");
    assert_eq!(cluster.ports("edge-lb"), "80 a, 81 b, 6443");
    // The former targets are not known any more, so none is removed.
    for uid in ["a", "b"] {
        cluster.delete(uid);
    }
    cluster.converge();
    let after = cluster.named("edge-lb");
    assert_eq!(after.labels, before.labels);
    assert_eq!(after.services, before.services);
    assert_eq!(after.targets.len(), 4);
}

#[test]
fn a_service_that_is_released_and_adopted_is_managed_again() {
    let mut cluster = Cluster::new();
    for share in [None, Some("edge")] {
        cluster = Cluster::new();
        cluster.add("a", 3, &[80], "");
        cluster.set("a", "share", share);
        cluster.converge();
        let before = cluster.world.state.balancers[0].clone();
        cluster.release("a");
        let after = cluster.world.state.balancers[0].clone();
        assert_eq!(after.labels, labels(&format!("{RELEASED}=a")));
        assert_eq!(after.services, before.services);
        assert_eq!(after.targets, before.targets);
        assert!(cluster.plan("a").outcome.is_released());
        assert!(cluster.converge().is_empty());
        let plan = cluster.world.adoption(after.id);
        assert!(plan.outcome.obstacle().is_none() && plan.outcome.changes().len() > 1);
        cluster.world.apply(&*plan.outcome.changes()[0]);
        cluster.converge();
        assert!(!cluster.plan("a").outcome.is_released());
        assert_eq!(cluster.world.state.balancers[0].labels[SERVICE_UID], "a");
    }
    // The Service is deleted after its release, and the load balancer stays.
    cluster.release("a");
    cluster.delete("a");
    cluster.converge();
    assert_eq!(cluster.world.state.balancers.len(), 1);
}

/// Terraform has removed the labels, and the Service is deleted. Its ports are known by its status alone, and the process may be
/// killed before each change.
#[test]
fn a_service_that_ends_without_its_labels_leaves_no_port_wherever_the_process_is_killed() {
    for most in 0..4 {
        let mut cluster = Cluster::new();
        let before = external(&[(EXTERNAL, "")]);
        cluster.world.state.balancers = vec![before.clone()];
        cluster.add("a", 2, &[80, 443], "external=edge-lb");
        cluster.converge();
        let there = &mut cluster.world.state.balancers[0];
        assert_eq!(there.services.len(), 3);
        there.labels.clone_from(&before.labels);
        cluster.delete("a");
        cluster.work("a", most, &mut Vec::new());
        cluster.converge();
        let there = &cluster.world.state.balancers[0];
        assert_eq!(there.services, before.services, "killed after {most}");
        assert!(cluster.services.is_empty(), "killed after {most}");
    }
}

/// A load balancer that others use is adopted again. Then the Service asks for one of its own.
#[test]
fn a_load_balancer_that_was_adopted_beside_others_is_left_to_them() {
    for uses in ["external", "share"] {
        let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
        let value = if uses == "share" { "edge" } else { "edge-lb" };
        for (uid, age, port) in [("a", 2, 80), ("b", 3, 443)] {
            cluster.add(uid, age, &[port], &format!("{uses}={value}"));
        }
        cluster.converge();
        let id = cluster.release("a");
        cluster.converge();
        let before = cluster.balancer(id).clone();
        cluster.take_service("a");
        let plan = cluster.world.adoption(id);
        assert!(plan.outcome.obstacle().is_none(), "{plan:?}");
        cluster.world.apply(&*plan.outcome.changes()[0]);
        cluster.converge();
        assert!(!cluster.plan("a").outcome.is_released());
        cluster.set("a", uses, None);
        cluster.converge();
        let plan = cluster.plan("a");
        assert!(plan.outcome.obstacle().is_none(), "{plan:?}");
        assert_ne!(plan.found.expect("its own").id, id);
        let after = cluster.balancer(id);
        let labels = after.labels.keys().filter(|label| label.contains("adopt"));
        assert_eq!(labels.count(), 0, "{:?}", after.labels);
        let number = |port: &Listener| port.listen_port;
        let ports = |one: &LoadBalancer| one.services.iter().map(number).collect::<Vec<_>>();
        let mut expected = ports(&before);
        expected.retain(|number| *number != 80);
        assert_eq!(ports(after), expected);
    }
}

/// The owner lets Services add ports to the load balancer, and nothing more.
#[test]
fn an_external_load_balancer_is_never_one_service_s_own() {
    for (label, annotations) in [(Some("default.a"), ""), (None, "name=edge-lb")] {
        let mut cluster = Cluster::new();
        let mut before = external(&[(EXTERNAL, "")]);
        before.services.clear();
        before.targets.clear();
        let adopt = label.map(|value| ("ccm-from-scratch/adopt".to_owned(), value.to_owned()));
        before.labels.extend(adopt);
        cluster.world.state.balancers = vec![before.clone()];
        cluster.add("a", 1, &[80], annotations);
        let plan = cluster.plan("a");
        let obstacle = plan.outcome.obstacle().expect("not adopted");
        let expected = Reason::LoadBalancerNotAdopted;
        assert_eq!(obstacle.reason, expected, "{obstacle:?}");
        cluster.converge();
        assert_eq!(cluster.world.state.balancers, [before]);
    }
}

/// The ports of the released Service have no label any more, so nothing else shows that they must stay.
#[test]
fn a_released_service_is_served_when_the_others_of_its_group_are_deleted() {
    for is_deleted in [false, true] {
        let mut cluster = Cluster::new();
        cluster.add("a", 3, &[80], "share=edge");
        cluster.add("b", 2, &[443], "share=edge");
        cluster.converge();
        cluster.release("a");
        let before = cluster.named(SHARED).clone();
        cluster.set("a", "share", None);
        cluster.services.get_mut("a").unwrap().is_deleted = is_deleted;
        cluster.converge();
        cluster.delete("b");
        let made = cluster.converge();
        assert_eq!(cluster.ports(SHARED), "80", "{is_deleted}: {made:#?}");
        assert_eq!(cluster.named(SHARED).targets, before.targets);
        let orphans = cluster.world.orphans();
        assert!(orphans.iter().all(|one| one.removal.is_err()));
    }
}

#[test]
fn targets_of_an_external_load_balancer_stay_while_a_service_needs_them() {
    // Each case has the first and the second annotation of Service a, then that of b, and the number of changes.
    #[rustfmt::skip] // A case is a line.
    let cases = [
        // A selector that can't be read selects nothing, and does not select all.
        ("node-selector=topology.kubernetes.io/zone!=fsn1", ("node-selector", "=="), "true", 0),
        // A Service that needs no targets takes none from the others.
        ("type=lb31", ("external-targets", "false"), "true", 0),
        ("type=lb31", ("external-targets", "true"), "false", 0),
        ("type=lb31", ("external-targets", "false"), "false", 2),
    ];
    for (first, then, of_b, changes) in cases {
        let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
        cluster.add("a", 3, &[80], &format!("external=7 {first}"));
        cluster.add("b", 2, &[81], "external=7");
        cluster.converge();
        cluster.set("a", then.0, Some(then.1));
        cluster.set("b", "external-targets", Some(of_b));
        for uid in ["a", "b"] {
            let plan = cluster.plan(uid);
            let lines = lines(plan.outcome.changes());
            assert_eq!(lines.len(), changes, "{then:?}, {of_b}: {uid}: {lines:?}");
        }
    }
}

/// A cluster that was made from another one's backup has Services of the same UIDs.
#[test]
fn ports_of_the_cluster_that_this_is_a_copy_of_are_not_ours() {
    let of_other = format!("{TARGETS_BEFORE}cluster-2");
    let port = format!("{PORT}80");
    // A target, the UID of the port, and whether the Service may use it.
    for (target, uid, is_ours) in [(77, "a", false), (2, "a", true), (77, "other", true)] {
        let mut one = external(&[(EXTERNAL, ""), (&of_other, "none"), (&port, uid)]);
        one.targets = vec![server(target)];
        one.services.push(listener(80, 30_300));
        let mut cluster = Cluster::new();
        cluster.add("a", 3, &[80, 81], "external=7");
        cluster.add("b", 2, &[82], "external=7");
        let ip = one.public_net.ipv4.ip.expect("an address").to_string();
        cluster.world.state.balancers = vec![one];
        cluster.service("a").addresses = vec![ip];
        for of in ["a", "b"] {
            let plan = cluster.plan(of);
            let obstacle = plan.outcome.obstacle().map(|one| one.message.clone());
            let why = obstacle.unwrap_or_default();
            assert_eq!(why.is_empty(), is_ours, "{of}, {target}, {uid}: {why}");
            assert!(is_ours || why.contains("cluster-2"), "{why}");
        }
        cluster.delete("a");
        let removal = cluster.plan("a");
        let made = words(removal.outcome.changes());
        let is_removed = made.contains("delete_service");
        assert_eq!(is_removed, is_ours && uid == "a", "{target}, {uid}: {made}");
    }
}

/// A status may be written by who may not use the load balancer.
#[test]
fn a_port_without_label_is_of_no_service_that_its_owner_does_not_allow() {
    for (allowed, is_removed) in [("shop", false), ("default", true)] {
        let one = external(&[(EXTERNAL, allowed)]);
        let mut cluster = Cluster::new();
        cluster.add("a", 3, &[6443], "");
        cluster.service("a").ports[0].node_port = Some(6443);
        let ip = one.public_net.ipv4.ip.expect("an address");
        cluster.world.state.balancers = vec![one];
        let member = cluster.services.get_mut("a").unwrap();
        member.service.addresses = vec![ip.to_string()];
        member.is_deleted = true;
        let changes = cluster.changes("a");
        assert_eq!(!changes.is_empty(), is_removed, "{allowed}: {changes}");
    }
}

#[test]
fn a_service_that_waits_for_a_certificate_keeps_its_own_load_balancer() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[80], "share=edge");
    cluster.add("b", 2, &[443], "");
    cluster.converge();
    let before = cluster.services["b"].service.addresses.clone();
    for (name, value) in [
        ("share", "edge"),
        ("protocol", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-domains", "example.com"),
    ] {
        cluster.set("b", name, Some(value));
    }
    cluster.converge();
    assert_eq!(cluster.named("kubernetes-default-b").services.len(), 1);
    assert_eq!(cluster.services["b"].service.addresses, before);
    cluster.world.issue();
    cluster.converge();
    assert_eq!(cluster.ports(SHARED), "80 a, 443 b");
    assert_eq!(cluster.world.state.balancers.len(), 1);
}

/// The new load balancer would not get the Service's port, so nothing would serve it.
#[test]
fn a_service_that_shows_a_refused_certificate_keeps_its_own_load_balancer() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[80], "share=edge");
    cluster.add("b", 2, &[443], "protocol=https http-certificates=one");
    cluster.converge();
    let before = cluster.services["b"].service.addresses.clone();
    let all = cluster.world.state.certificates.as_mut().unwrap();
    let label = ("ccm-from-scratch/secret", "shop.tls");
    let named = all.iter_mut().find(|one| one.name == "one").unwrap();
    named.labels.insert(label.0.to_owned(), label.1.to_owned());
    cluster.set("b", "share", Some("edge"));
    cluster.converge();
    let own = cluster.named("kubernetes-default-b");
    assert_eq!(own.services.len(), 1);
    assert_eq!(cluster.services["b"].service.addresses, before);
    cluster.set("b", "http-certificates", Some("two"));
    cluster.converge();
    assert_eq!(cluster.ports(SHARED), "80 a, 443 b");
    assert_eq!(cluster.world.state.balancers.len(), 1);
}

#[test]
fn a_node_that_can_t_be_a_target_keeps_no_old_load_balancer() {
    let mut cluster = Cluster::new();
    cluster.add("a", 3, &[80], "share=edge");
    cluster.add("b", 2, &[443], "");
    cluster.converge();
    cluster.world.nodes.push(OfferedNode {
        reach: Reach::By { has_public_ipv4: false, networks: Vec::new() },
        ..node(9)
    });
    cluster.set("b", "share", Some("edge"));
    cluster.converge();
    assert!(cluster.plan("b").outcome.is_unfinished(), "of node 9");
    assert_eq!(cluster.world.state.balancers.len(), 1);
}

/// The Service can't have what it asks for. The load balancer that serves it is synced meanwhile, also for new nodes
/// and for its other annotations.
#[test]
fn a_service_that_can_t_have_what_it_asks_for_is_served_on_by_what_it_has() {
    let mut cluster = Cluster::beside(external(&[(EXTERNAL, "of-others")]));
    cluster.add("a", 3, &[80], "");
    cluster.converge();
    let id = cluster.named("kubernetes-default-a").id;
    let nodes = cluster.world.nodes.clone();
    for (name, value) in [("external", "none"), ("external", "7"), ("share", "other/edge")] {
        cluster.set("a", name, Some(value));
        cluster.world.nodes.push(node(9));
        cluster.set("a", "uses-proxyprotocol", Some("true"));
        let plan = cluster.plan("a");
        assert!(plan.outcome.obstacle().is_none(), "{name}: {plan:#?}");
        assert_eq!(plan.found.as_ref().map(|one| one.id), Some(id), "{name}");
        let made = words(plan.outcome.changes());
        assert_eq!(made, "update_service add_target", "{name}: {plan:#?}");
        let says = |one: &Finding| {
            one.reason == Reason::SyncLoadBalancerFailed
                && one.message.contains(&format!("annotation {PREFIX}{name}"))
                && one
                    .message
                    .contains("the Service stays on load balancer \"kubernetes-default-a\"")
        };
        assert!(plan.findings.iter().any(says), "{:#?}", plan.findings);
        cluster.set("a", name, None);
        cluster.set("a", "uses-proxyprotocol", None);
        cluster.world.nodes.clone_from(&nodes);
    }
}

/// Each of two Services asks for the load balancer of the other, and both stay, because each has the port that the other
/// one needs. Both load balancers get a new node as a target nevertheless.
#[test]
fn two_services_that_ask_for_each_other_s_load_balancer_keep_their_targets() {
    let mut cluster = Cluster::beside(external(&[(EXTERNAL, "")]));
    cluster.add("a", 3, &[80], "share=edge");
    cluster.add("b", 2, &[80], "external=7");
    cluster.converge();
    cluster.set("a", "share", None);
    cluster.set("a", "external", Some("7"));
    cluster.set("b", "external", None);
    cluster.set("b", "share", Some("edge"));
    cluster.world.nodes.push(node(9));
    cluster.converge();
    for (name, ports) in [(SHARED, "80 a"), ("edge-lb", "80 b, 6443")] {
        assert_eq!(cluster.ports(name), ports);
        assert!(cluster.named(name).targets.contains(&server(9)), "{name}");
    }
}

#[test]
fn a_load_balancer_that_is_managed_for_a_service_is_not_external() {
    for share in [None, Some("edge")] {
        let mut cluster = Cluster::new();
        cluster.add("a", 3, &[80], "");
        cluster.set("a", "share", share);
        cluster.converge();
        let one = &mut cluster.world.state.balancers[0];
        one.labels.insert(EXTERNAL.into(), String::new());
        let id = one.id.to_string();
        cluster.add("b", 2, &[81], &format!("external={id}"));
        let obstacle = cluster.obstacle("b");
        assert!(obstacle.contains("ccm lb release"), "{obstacle}");
        assert!(cluster.converge().is_empty(), "its address would change");
    }
}

#[test]
fn a_redirect_has_port_80_however_its_value_is_written() {
    for on in ["true", "1", "T"] {
        let mut cluster = Cluster::new();
        let redirect =
            format!("share=edge protocol=HTTPS http-redirect-http={on} http-certificates=one");
        cluster.add("a", 3, &[443], &redirect);
        cluster.add("b", 2, &[80], "share=edge");
        cluster.converge();
        assert_eq!(cluster.ports(SHARED), "443 a", "{on}");
    }
}

/// In a copy of the cluster the status and the node ports are the same.
#[test]
fn a_group_takes_no_load_balancer_without_labels_that_sends_traffic_elsewhere() {
    for (target, word) in [(77, "create"), (2, "edit")] {
        let mut one = external(&[]);
        one.targets = vec![server(target)];
        one.services = vec![listener(80, 30_300)];
        let mut cluster = Cluster::new();
        cluster.add("a", 3, &[80], "share=edge");
        let ip = one.public_net.ipv4.ip.expect("an address").to_string();
        cluster.service("a").addresses = vec![ip];
        cluster.world.state.balancers = vec![one];
        let changes = cluster.changes("a");
        assert!(changes.starts_with(word), "{target}: {changes}");
    }
}

const HISTORIES: u64 = 1500;

/// Services are added, deleted, join, leave and change their ports. Labels are lost, and the process is killed
/// at any write.
#[test]
fn each_service_is_served_and_no_foreign_object_is_changed_after_any_history() {
    let mut writes = 0;
    for seed in 0..HISTORIES {
        let story = std::panic::catch_unwind(|| history(seed));
        writes += story.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(writes > 9_000, "{writes}");
}

fn history(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let mut cluster = Cluster::new();
    let before = external(&[(EXTERNAL, "")]);
    cluster.world.state.balancers = vec![before.clone()];
    let mut made = Vec::new();
    let mut next = 0;
    for _ in 0..4 + random.below(12) {
        let uids: Vec<String> = cluster.services.keys().cloned().collect();
        let living = uids.iter().filter(|uid| cluster.lives(uid)).cloned();
        let living: Vec<String> = living.collect();
        match random.below(10) {
            0..=2 if living.len() < 6 => {
                next += 1;
                let ports: Vec<u16> = (1..=4).filter(|_| random.percent(40)).collect();
                let ports = if ports.is_empty() { vec![5] } else { ports };
                let age = random.below(100) as i64;
                cluster.add(&format!("s{next}"), age, &ports, "");
                let uid = format!("s{next}");
                choose(&mut random, &mut cluster, &uid);
            }
            3 | 4 if !living.is_empty() => {
                let uid = random.pick(&living).clone();
                choose(&mut random, &mut cluster, &uid);
            }
            5 if !living.is_empty() => {
                let uid = random.pick(&living).clone();
                cluster.delete(&uid);
            }
            6 if !living.is_empty() => {
                let uid = random.pick(&living).clone();
                let member = cluster.services.get_mut(&uid).unwrap();
                let number = 1 + random.below(6) as u16;
                let mut other = member.service.ports[0].clone();
                other.port = number;
                other.node_port = other.node_port.map(|port| port + 10);
                member.service.ports = vec![other];
            }
            7 => {
                // Terraform.
                made.extend(cluster.converge());
                // A port without a label that a Service left behind, with other numbers, can't be recognised
                // as the Service's.
                if uids.iter().any(|uid| {
                    cluster.services.contains_key(uid)
                        && cluster.plan(uid).outcome.obstacle().is_some()
                }) {
                    continue;
                }
                let one = &mut cluster.world.state.balancers[0];
                one.labels = before.labels.clone();
                if !living.is_empty() && random.percent(30) {
                    let uid = random.pick(&living).clone();
                    cluster.delete(&uid);
                    // Once another Service has written labels again, the ports of the deleted one stay.
                    cluster.work(&uid, usize::MAX, &mut made);
                }
                made.extend(cluster.converge());
            }
            _ if !uids.is_empty() => {
                // Killed after some writes.
                let uid = random.pick(&uids).clone();
                let most = random.below(4) as usize;
                cluster.work(&uid, most, &mut made);
            }
            _ => {}
        }
    }
    made.extend(cluster.converge());
    check_end(&mut cluster, &before, &made);
    made.len()
}

fn choose(random: &mut Random, cluster: &mut Cluster, uid: &str) {
    cluster.set(uid, "share", None);
    cluster.set(uid, "external", None);
    let keep = random.percent(20).then_some("true");
    cluster.set(uid, "keep", keep);
    match random.below(5) {
        0 => {}
        1 => cluster.set(uid, "external", Some("7")),
        2 => cluster.set(uid, "share", Some("back")),
        _ => cluster.set(uid, "share", Some("edge")),
    }
}

fn check_end(cluster: &mut Cluster, before: &LoadBalancer, made: &[String]) {
    let state = cluster.world.state.balancers.clone();
    let uids: Vec<String> = cluster.services.keys().cloned().collect();
    let mut names = BTreeSet::new();
    for uid in &uids {
        let plan = cluster.plan(uid);
        let service = cluster.services[uid].service.clone();
        let found = plan.found.as_ref().map(|found| found.id);
        if plan.outcome.obstacle().is_some() {
            // The Service stays where it was.
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("{uid} has none: {made:#?}"));
        names.insert(found);
        let balancer = state.iter().find(|one| one.id == found).unwrap();
        let is_left_out = |number: u16| {
            let text = format!("port {number} can't be used");
            plan.findings
                .iter()
                .any(|one| one.reason == Reason::PortConflict && one.message.contains(&text))
        };
        for port in &service.ports {
            let served = balancer.services.iter().any(|one| is_it(one, port));
            let number = port.port;
            let is_right = served != is_left_out(number);
            assert!(is_right, "{uid} port {number}: {made:#?}");
        }
    }
    for balancer in &state {
        if balancer.id != 7 {
            // The last Service left this load balancer for another one that was then not created. It has no port,
            // and is reported.
            let users = cluster.uids_on(balancer);
            let is_used = users.iter().any(|uid| uids.contains(uid));
            let mut orphans = cluster.world.orphans().into_iter();
            let is_orphan = orphans.any(|one| one.balancer.id == balancer.id);
            let is_kept = balancer.labels.contains_key(KEEP);
            let is_unused = !is_used && !is_kept && balancer.services.is_empty();
            assert_eq!(is_orphan, is_unused, "{}: {made:#?}", balancer.name);
            // The group is still to come to one that has its label.
            let is_left = balancer.targets.is_empty() || balancer.labels.contains_key(GROUP);
            let is_bare = balancer.services.is_empty() && is_left;
            let is_right = is_used || is_orphan || (is_kept && is_bare);
            assert!(is_right, "{} is left: {made:#?}", balancer.name);
        }
        let ports: Vec<&Listener> = balancer.services.iter().collect();
        for port in ports.iter().filter(|port| port.listen_port != 6443) {
            let (number, labels) = (port.listen_port, &balancer.labels);
            let of = labels.get(&format!("{PORT}{number}")).or(labels.get(SERVICE_UID));
            let of = of.unwrap_or_else(|| panic!("port {number} of nobody: {made:#?}"));
            let lives = uids.contains(of);
            assert!(lives, "port {number} of {of}, which is deleted: {made:#?}");
        }
    }
    let external = &state[0];
    assert!(external.services.contains(&before.services[0]));
    let stays = |target| external.targets.contains(target);
    assert!(before.targets.iter().all(stays));
    assert_eq!((external.id, &external.name), (7, &before.name));
}
