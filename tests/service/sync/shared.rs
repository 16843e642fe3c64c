//! Several Services on one load balancer: from the first to the last, joining and leaving, ports that two Services ask
//! for, and namespaces.

use crate::common::{self, Daemon, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, SERVICE_UID, World, id, len, targets, text};
use sandbox::calls::Call;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

pub const EDGE: (&str, &str) = ("share", "edge");
const GROUP: &str = "ccm-from-scratch/group";

/// Ports of a load balancer, each with the UID in its label.
pub fn ports(balancer: &Value) -> Vec<(u64, String)> {
    let label = |port: u64| text(&balancer["labels"][format!("ccm-from-scratch/port-{port}")]);
    let ports = balancer["services"].as_array().unwrap().iter();
    let ports = ports.map(|port| port["listen_port"].as_u64().unwrap());
    let mut ports: Vec<(u64, String)> = ports.map(|port| (port, label(port))).collect();
    ports.sort();
    ports
}

/// Returns these ports with their owners, as they should be.
pub fn owned(ports: &[(u64, &str)]) -> Vec<(u64, String)> {
    let ports = ports.iter();
    ports.map(|(port, uid)| (*port, (*uid).to_owned())).collect()
}

impl World {
    /// Waits until the Services have addresses.
    fn all_up(&self, names: &[&str]) {
        wait_until("addresses", || names.iter().all(|name| self.has_address(name)));
    }

    /// Asserts that nothing is left to do after the last write of a daemon: the second of two passes writes nothing.
    pub fn assert_converged(&self) {
        self.converge(&[]);
        let mark = self.mark();
        let ran = self.once(&[]).with_code(0);
        assert_eq!(self.writes(mark), Vec::<String>::new(), "{ran:?}");
        self.assert_nothing_refused();
    }
}

/// Watches all the time that what a Service's status shows is served there.
struct Served {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Served {
    /// Watches these ports, each with the name of its Service.
    fn watch(world: &World, ports: &[(&'static str, u64)]) -> Served {
        let (cluster, cloud) = (world.cluster().clone(), world.cloud().clone());
        let (project, ports) = (world.project(), ports.to_vec());
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let status = move |name: &str| {
            let service = cluster.get("services", Some("default"), name).unwrap();
            let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
            (text(ip), service["spec"]["ports"].clone())
        };
        let thread = std::thread::spawn(move || {
            let mut failures = Vec::new();
            while !until.load(Ordering::Relaxed) {
                for (name, port) in &ports {
                    let (ip, spec) = status(name);
                    let all = cloud.load_balancers(project);
                    // The status was written meanwhile.
                    if status(name).0 != ip {
                        continue;
                    }
                    let mut spec = spec.as_array().unwrap().iter();
                    let spec = spec.find(|one| one["port"] == *port).unwrap();
                    let node_port = &spec["nodePort"];
                    let found = all.iter().find(|one| one["public_net"]["ipv4"]["ip"] == ip);
                    let is_served = found.is_some_and(|found| {
                        let mut ports = found["services"].as_array().unwrap().iter();
                        let is_it = |one: &Value| {
                            one["listen_port"] == *port && one["destination_port"] == *node_port
                        };
                        ports.any(is_it) && !targets(found).is_empty()
                    });
                    if !is_served {
                        failures.push(format!("port {port} of {name} at {ip:?}: {found:?}"));
                    }
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            failures
        });
        Served { is_over, thread }
    }

    fn always(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let failures = self.thread.join().unwrap();
        assert!(failures.is_empty(), "{}: {:?}", failures.len(), failures[0]);
    }
}

#[test]
fn services_that_share_are_made_with_one_post_and_the_last_one_deletes_it() {
    let world = World::with_network(2);
    let daemon = world.daemon(&[NO_RESYNC]);
    let mark = world.mark();
    let [a, b, c] = [("a", 80), ("b", 443), ("c", 8080)]
        .map(|(name, port)| world.create(name, &[EDGE], &[port]));
    world.all_up(&["a", "b", "c"]);
    let labelled = owned(&[(80, &a), (443, &b), (8080, &c)]);
    let state = || format!("{}\n{}", daemon.log(), calls(&world, mark));
    common::wait_or(common::LIMIT, state, || ports(&world.only_balancer()) == labelled);
    for name in ["a", "b", "c"] {
        world.wait_for_event(name, "EnsuredLoadBalancer", &[]);
        assert!(world.has_finalizer(name), "{name}");
    }
    let balancer = world.only_balancer();
    assert_eq!(balancer["name"], "kubernetes-default-edge");
    assert_eq!(balancer["labels"][GROUP], "default.edge");
    assert!(balancer["labels"][SERVICE_UID].is_null(), "{balancer}");
    assert_eq!(targets(&balancer).len(), 2);
    let public = &balancer["public_net"];
    let expected =
        [&public["ipv4"]["ip"], &public["ipv6"]["ip"], &balancer["private_net"][0]["ip"]];
    for name in ["a", "b", "c"] {
        assert_eq!(world.addresses(name), expected.map(text), "{name}");
    }
    world.ticks(3);
    let writes = world.cloud_writes(mark);
    let is_post = |write: &&String| *write == "POST /load_balancers";
    assert_eq!(writes.iter().filter(is_post).count(), 1, "{writes:#?}");
    // The first write creates the load balancer. Each later Service costs a label and a port. On a real API server the
    // second Service comes a second after the first, which had the load balancer for itself, with its UID in a label.
    let uid_label = usize::from(world.cluster().is_real());
    assert!(writes.len() <= 1 + uid_label + 2 * 2, "{writes:#?}");
    drop(daemon);
    world.assert_converged();

    // One Service is deleted. Only its port is removed, and that before its finalizer.
    let daemon = world.daemon(&[NO_RESYNC]);
    let mark = world.mark();
    world.delete_and_wait("b");
    assert_eq!(ports(&world.only_balancer()), owned(&[(80, &a), (8080, &c)]));
    let id = id(&world.only_balancer());
    let removed = format!("POST /load_balancers/{id}/actions/delete_service");
    let labels = format!("PUT /load_balancers/{id}");
    let status = "PATCH /api/v1/namespaces/default/services/b/status";
    world.ticks(2);
    let expected = [removed.as_str(), &labels, status];
    assert_eq!(world.writes(mark), expected, "{}", daemon.log());
    let says = ["ccm removed the ports of the Service there"];
    world.wait_for_event("b", "LoadBalancerReleased", &says);
    // The last Service has the load balancer as if it had never been shared, so that HCCM may take it over.
    world.delete_and_wait("a");
    wait_until("the UID", || world.only_balancer()["labels"][SERVICE_UID] == c);
    drop(daemon);
    world.assert_converged();
    // The last one.
    let _daemon = world.daemon(&[NO_RESYNC]);
    let mark = world.mark();
    world.delete_and_wait("c");
    assert_eq!(world.balancers(), Vec::<Value>::new());
    let deleted = format!("DELETE /load_balancers/{id}");
    assert_eq!(world.cloud_writes(mark), [deleted]);
}

#[test]
fn a_pass_creates_the_whole_group_and_the_next_writes_nothing() {
    let world = World::new(2);
    world.converge(&[]);
    let mark = world.mark();
    for (name, port) in [("a", 80), ("b", 443), ("c", 8080)] {
        world.create(name, &[EDGE], &[port]);
    }
    let ran = world.once(&[]).with_code(0);
    assert_eq!(ports(&world.only_balancer()).len(), 3, "{ran:?}");
    let writes = world.cloud_writes(mark);
    assert_eq!(writes.len(), 5, "{writes:#?}");
    let mark = world.mark();
    let ran = world.once(&[]);
    assert_eq!((ran.code, world.writes(mark)), (0, vec![]), "{ran:?}");
}

#[test]
fn a_service_that_joins_or_leaves_a_group_is_served_at_every_moment() {
    let world = World::new(2);
    world.converge(&[]);
    let a = world.create("a", &[EDGE], &[80]);
    let b = world.create("b", &[], &[443]);
    world.converge(&[]);
    let [group, old] = [&a, &b].map(|uid| world.of_uid(uid).unwrap());
    let served = Served::watch(&world, &[("a", 80), ("b", 443)]);
    let changes = |from: &str, to: &str| {
        let moves = format!("the Service moves from load balancer {from:?}");
        let mark = world.mark();
        let ran = world.ccm(&["lb", "sync", "--dry-run"]);
        ran.prints(&moves);
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
        let daemon = world.daemon(&[NO_RESYNC]);
        let says = [&*moves, &format!(" to {to}"), "the addresses of the Service change"];
        world.wait_for_event("b", "LoadBalancerChanges", &says);
        daemon
    };
    let ip = |balancer: &Value| text(&balancer["public_net"]["ipv4"]["ip"]);

    let mark = world.mark();
    world.annotate("b", "share", Some("edge"));
    let daemon = changes("kubernetes-default-b", "\"kubernetes-default-edge\"");
    wait_until("its end", || world.balancers().len() == 1);
    assert_eq!(ports(&world.only_balancer()), owned(&[(80, &a), (443, &b)]));
    assert_eq!(world.addresses("b")[0], ip(&group));
    world.ticks(2);
    // The event is sent before what it announces is made, and the old one is deleted at last.
    let calls = world.calls().calls_since(mark);
    let is_delete = |call: &Call| call.method == "DELETE";
    let delete = calls.iter().position(is_delete).unwrap();
    let path = format!("/v1/load_balancers/{}", id(&old));
    assert_eq!(calls[delete].path, path, "{}", daemon.log());
    let status = "/api/v1/namespaces/default/services/b/status";
    let is_status = |call: &Call| call.path == status && call.is_write();
    let status = calls.iter().rposition(is_status);
    assert!(status < Some(delete), "{}", daemon.log());
    drop(daemon);
    world.assert_converged();

    let mark = world.mark();
    world.annotate("b", "share", None);
    let daemon = changes("kubernetes-default-edge", "a new one");
    wait_until("its port on the other one", || world.balancers().len() == 2);
    wait_until("a alone", || {
        let group = world.cloud().load_balancer(id(&group));
        group["labels"][SERVICE_UID] == a && len(&group["services"]) == 1
    });
    world.ticks(2);
    assert_eq!(world.addresses("b")[0], ip(&world.balancer("b")));
    let writes = world.cloud_writes(mark);
    let is_delete = |write: &String| write.starts_with("DELETE");
    assert!(!writes.iter().any(is_delete), "{writes:#?}");
    drop(daemon);
    served.always();
    world.assert_converged();
}

/// The settings name no type, so the types are read for the new load balancer.
#[test]
fn a_service_that_moves_to_another_group_is_served_all_the_time() {
    let mut world = World::new(1);
    world.set(&[("HCLOUD_LOAD_BALANCERS_TYPE", "")]);
    world.converge(&[]);
    world.create("a", &[EDGE], &[80]);
    world.converge(&[]);
    world.create("b", &[EDGE], &[443]);
    world.converge(&[]);
    let served = Served::watch(&world, &[("a", 80), ("b", 443)]);
    let groups = || {
        let all = world.balancers();
        let groups = all.iter().map(|one| text(&one["labels"][GROUP]));
        groups.collect::<BTreeSet<String>>()
    };
    let of = |groups: [&str; 2]| BTreeSet::from(groups.map(str::to_owned));
    world.annotate("b", "share", Some("front"));
    world.converge(&[]);
    assert_eq!(groups(), of(["default.edge", "default.front"]));
    world.assert_converged();
    // Alone in its group it goes on to the next one.
    world.annotate("b", "share", Some("back"));
    let daemon = Daemon::start(&world.env, &[NO_RESYNC]);
    let next = of(["default.back", "default.edge"]);
    wait_until("the next one", || groups() == next);
    drop(daemon);
    world.assert_converged();
    assert_eq!(world.balancer("b")["labels"][GROUP], "default.back");
    served.always();
    world.delete("b");
    world.converge(&[]);
    assert_eq!(world.service("b"), None);
    assert_eq!(world.balancers().len(), 1);
}

/// The first try to add the port fails, and so the address stays until the next.
#[test]
fn a_service_keeps_its_old_address_while_its_port_is_refused() {
    let world = World::new(2);
    world.converge(&[]);
    world.create("a", &[EDGE], &[80]);
    world.create("b", &[], &[443]);
    world.converge(&[]);
    let served = Served::watch(&world, &[("a", 80), ("b", 443)]);
    let fails = ("action_failed", "it did not work out");
    world.cloud().fail_next_action("add_service", fails.0, fails.1);
    world.annotate("b", "share", Some("edge"));
    let ran = world.once(&[]).with_code(1);
    assert_eq!(world.balancers().len(), 2, "{ran:?}");
    world.converge(&[]);
    assert_eq!(ports(&world.only_balancer()).len(), 2);
    served.always();
}

/// Whether one Service is older than another one. Times are whole seconds.
fn is_older(world: &World, one: &str, other: &str) -> bool {
    let age = |name: &str| {
        let metadata = &world.service(name).unwrap()["metadata"];
        (text(&metadata["creationTimestamp"]), text(&metadata["uid"]))
    };
    age(one) < age(other)
}

#[test]
fn a_port_that_another_service_has_is_named_and_the_others_are_served() {
    let world = World::new(1);
    let _daemon = world.daemon(&[OFTEN]);
    let a = world.create("a", &[EDGE], &[80]);
    world.up("a");
    let b = world.create("b", &[EDGE], &[80, 8080]);
    let c = world.create("c", &[EDGE], &[80]);
    let says = [
        "port 80 can't be used",
        "default/a already uses this port",
        "Fix: give the Service another port, or remove its annotation load-balancer.hetzner.cloud/share; ccm lb inspect \
         default/",
    ];
    for name in ["b", "c"] {
        world.wait_for_event(name, "PortConflict", &says);
    }
    world.all_up(&["b"]);
    wait_until("the other port", || {
        ports(&world.only_balancer()) == owned(&[(80, &a), (8080, &b)])
    });
    assert_eq!(world.addresses("b"), world.addresses("a"));
    world.ticks(6);
    assert!(!world.has_address("c"), "nothing of it is served");
    assert_eq!(world.event_messages("c", "PortConflict").len(), 1);
    // The port is free. The oldest Service that asks for it gets it.
    world.delete("a");
    let (heir, uid) = match is_older(&world, "b", "c") {
        true => ("b", &b),
        false => ("c", &c),
    };
    wait_until("its heir", || ports(&world.only_balancer()) == owned(&[(80, uid), (8080, &b)]));
    world.all_up(&[heir]);
    world.ticks(6);
    assert_eq!(world.addresses("c").is_empty(), heir == "b");
    assert_eq!(world.balancers().len(), 1);
}

/// Meanwhile nodes come and node ports change. What is about the whole of a load balancer that others share is theirs.
#[test]
fn a_blocked_service_is_synced_on_the_load_balancer_where_it_stays() {
    for old in [None, Some("old")] {
        let world = World::new(1);
        let daemon = world.daemon(&[OFTEN]);
        world.create("a", &[EDGE], &[80]);
        world.up("a");
        let algorithm = ("algorithm-type", "least_connections");
        let shares = old.map(|old| ("share", old));
        let annotations: Vec<_> = shares.into_iter().chain([algorithm]).collect();
        let uid = world.create("b", &annotations, &[80, 81]);
        if let Some(old) = old {
            world.create("c", &[("share", old)], &[82]);
            world.all_up(&["c"]);
        }
        world.all_up(&["b"]);
        let address = world.addresses("b");
        let at = || {
            let mut all = world.balancers().into_iter();
            all.find(|one| text(&one["public_net"]["ipv4"]["ip"]) == address[0]).unwrap()
        };
        let served = Served::watch(&world, &[("b", 81)]);
        world.annotate("b", "share", Some("edge"));
        let says = ["port 80 can't be used", "stays on"];
        world.wait_for_event("b", "SyncLoadBalancerFailed", &says);
        let late = world.join_node("late");
        wait_until("the late node", || targets(&at()).contains(&late));
        world.edit("b", |service| {
            service["spec"]["ports"][0]["nodePort"] = json!(32_000);
            let more = json!({ "name": "more", "port": 83, "protocol": "TCP", "nodePort": 32_001 });
            service["spec"]["ports"].as_array_mut().unwrap().push(more);
        });
        let has = |port: u64, to: u64| {
            let ports = at()["services"].clone();
            let is_it = |one: &Value| one["listen_port"] == port && one["destination_port"] == to;
            ports.as_array().unwrap().iter().any(is_it)
        };
        wait_until("its node port", || has(80, 32_000) && has(83, 32_001));
        world.assert_converged();
        assert_eq!(world.addresses("b"), address);
        assert_eq!(world.balancers().len(), 2);
        let algorithm = match old {
            None => "least_connections",
            Some(_) => "round_robin",
        };
        assert_eq!(at()["algorithm"]["type"], algorithm);
        // The Service can have its port now.
        world.delete("a");
        wait_until("the other address", || world.addresses("b") != address);
        wait_until("the end on the one that it leaves", || {
            let has_uid = |one: &Value| {
                let mut labels = one["labels"].as_object().unwrap().values();
                labels.any(|value| *value == uid)
            };
            world.balancers().iter().filter(|one| has_uid(one)).count() == 1
        });
        // The Service that is alone on the other load balancer takes it over at the next comparison.
        drop(daemon);
        world.assert_converged();
        served.always();
    }
}

#[test]
fn another_namespace_s_group_is_joined_where_a_service_there_allows_it() {
    let world = World::new(1);
    world.create_namespace("infra");
    world.create_namespace("shop");
    let _daemon = world.daemon(&[OFTEN]);
    let host = world.create("infra/host", &[EDGE], &[80]);
    world.up("infra/host");
    let mark = world.mark();
    let guest = world.create("shop/guest", &[("share", "infra/edge")], &[443]);
    let says = [
        "the value \"infra/edge\" names a load balancer of namespace infra",
        "no Service of namespace infra allows namespace shop to use it",
        "\"shop\"",
    ];
    world.wait_for_event("guest", "SyncLoadBalancerFailed", &says);
    world.ticks(6);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    // The guest's own list allows nothing.
    let allow = |by: &str, namespaces: &str| {
        world.annotate(by, "share-namespaces", Some(namespaces));
    };
    allow("shop/guest", "*");
    world.ticks(6);
    assert_eq!(world.writes(mark), Vec::<String>::new());

    allow("infra/host", "blog, shop");
    world.all_up(&["shop/guest"]);
    assert_eq!(world.addresses("shop/guest"), world.addresses("infra/host"));
    assert_eq!(ports(&world.only_balancer()), owned(&[(80, &host), (443, &guest)]));
    // A permission that is taken back removes no traffic.
    let mark = world.mark();
    allow("infra/host", "blog");
    world.ticks(6);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    assert_eq!(ports(&world.only_balancer()), owned(&[(80, &host), (443, &guest)]));
    // The guest's port is removed with the guest.
    world.delete_and_wait("shop/guest");
    assert_eq!(ports(&world.only_balancer()).len(), 1);
    world.assert_nothing_refused();
}

/// Returns the calls as text for the message of a failure.
fn calls(world: &World, mark: u64) -> String {
    let mut calls = world.calls().calls_since(mark);
    let others = ["/leases", "/events", "/nodes"];
    calls.retain(|call| !others.iter().any(|part| call.path.contains(part)));
    let lines = calls.iter().map(|call| format!("{call} {}", String::from_utf8_lossy(&call.body)));
    lines.collect::<Vec<_>>().join("\n")
}
