//! Load balancers that somebody else made are used when their owner allows it, and left as they were.

use crate::common::{one_line, wait_until};
use crate::sync::shared::{owned, ports};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, SERVICE_UID, World, id, targets, text};
use sandbox::calls::Call;
use sandbox::hetzner::{Health, Machine};
use serde_json::{Value, json};
use std::time::Duration;

pub const EXTERNAL: &str = "ccm-from-scratch/external";
pub const BY_NAME: (&str, &str) = ("external", "edge-lb");

/// Creates a load balancer as Terraform does, with the API server's port and with a server that is no node
/// as its target.
pub fn create_as_terraform(world: &World, name: &str) -> u64 {
    let server = world.create_server(&format!("behind-{name}"));
    let its_own = json!({
        "load_balancer_type": "lb21",
        "algorithm": { "type": "least_connections" }, "labels": { "provisioner": "terraform" },
        "services": [{ "protocol": "tcp", "listen_port": 6443, "destination_port": 6443 }],
        "targets": [{ "type": "server", "server": { "id": server } }],
    });
    world.create_balancer(name, &its_own)
}

/// Allows the use of the load balancer as its owner does. `None` ends the permission.
pub fn allow(world: &World, id: u64, namespace: Option<&str>) {
    world.edit_balancer(id, |one| match namespace {
        Some(namespace) => one["labels"][EXTERNAL] = json!(namespace),
        None => drop(one["labels"].as_object_mut().unwrap().remove(EXTERNAL)),
    });
}

/// Everything of it but how healthy its targets are, which changes by itself.
pub fn as_it_is(world: &World, id: u64) -> Value {
    let mut one = world.cloud().load_balancer(id);
    for target in one["targets"].as_array_mut().unwrap() {
        target["health_status"] = Value::Null;
    }
    one
}

/// Asserts that no write renames, resizes, moves, attaches or deletes the load balancer, and that every write of labels
/// contains the owner's labels.
pub fn only_parts_were_written(world: &World, id: u64) {
    let path = format!("/v1/load_balancers/{id}");
    let mut calls = world.cloud_calls(0);
    calls.retain(Call::is_write);
    let is_post = |call: &Call| call.method == "POST" && call.path == "/v1/load_balancers";
    assert!(!calls.iter().any(is_post), "{calls:#?}");
    calls.retain(|call| call.path.starts_with(&path));
    assert!(!calls.is_empty(), "nothing was written");
    for call in calls {
        let body = call.json().unwrap_or_default();
        let is_right = match call.path[path.len()..].strip_prefix("/actions/") {
            None => {
                let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
                call.method == "PUT"
                    && keys == ["labels"]
                    && body["labels"]["provisioner"] == "terraform"
                    && body["labels"][EXTERNAL].is_string()
            }
            Some("add_service" | "delete_service" | "update_service") => {
                body["listen_port"] != 6443
            }
            Some(action) => ["add_target", "remove_target"].contains(&action),
        };
        assert!(is_right, "{call} {body}");
    }
}

#[test]
fn an_external_load_balancer_without_permission_is_unchanged_and_the_event_has_the_command() {
    let world = World::new(1);
    let id = create_as_terraform(&world, "edge-lb");
    let before = as_it_is(&world, id);
    let daemon = world.daemon(&[OFTEN]);
    let mark = world.mark();
    world.create("web", &[BY_NAME], &[80]);
    let command = format!("hcloud load-balancer add-label --overwrite {id} {EXTERNAL}=default");
    let says = ["does not allow namespace default to use it", &command];
    world.wait_for_event("web", "SyncLoadBalancerFailed", &says);
    world.ticks(6);
    // Nor for another namespace.
    allow(&world, id, Some("shop"));
    world.ticks(6);
    allow(&world, id, None);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    assert_eq!(as_it_is(&world, id), before);
    assert_eq!(world.event_messages("web", "SyncLoadBalancerFailed").len(), 1);
    // A load balancer that does not exist is named, and none is created instead.
    world.annotate("web", "external", Some("edge"));
    let says = ["no load balancer with the ID or name \"edge\""];
    world.wait_for_event("web", "SyncLoadBalancerFailed", &says);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    // The deletion of the Service needs no write to the cloud.
    world.delete_and_wait("web");
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
}

#[test]
fn two_services_use_an_external_load_balancer_and_leave_it_as_it_was() {
    let world = World::with_network(2);
    let id = create_as_terraform(&world, "edge-lb");
    for (by, namespace) in [("edge-lb".to_owned(), "default"), (id.to_string(), "")] {
        allow(&world, id, Some(namespace));
        let before = as_it_is(&world, id);
        let daemon = world.daemon(&[NO_RESYNC]);
        let own = [("external", by.as_str()), ("use-private-ip", "false")];
        // Annotations about the whole load balancer have no effect.
        let whole = [("name", "mine"), ("type", "lb31"), ("algorithm-type", "round_robin")];
        let web = world.create("web", &[&own[..], &whole].concat(), &[80, 443]);
        let shop = world.create("shop", &own, &[8080, 80]);
        wait_until("their ports", || {
            ports(&as_it_is(&world, id)).len() == 4 && targets(&as_it_is(&world, id)).len() == 3
        });
        for name in ["web", "shop"] {
            world.wait_for_event(name, "EnsuredLoadBalancer", &[]);
            let ip = text(&before["public_net"]["ipv4"]["ip"]);
            wait_until("its address", || world.addresses(name).first() == Some(&ip));
        }
        let now = as_it_is(&world, id);
        let of_80 = &now["labels"]["ccm-from-scratch/port-80"];
        let (has, lacks) = if *of_80 == web { (&web, "shop") } else { (&shop, "web") };
        let expected = owned(&[(80, has), (443, &web), (6443, ""), (8080, &shop)]);
        assert_eq!(ports(&now), expected);
        world.wait_for_event(lacks, "PortConflict", &["port 80 can't be used"]);
        let said = ["web", "shop"].map(|name| world.event_messages(name, "TargetsShared"));
        let said = said.concat().join("\n");
        assert!(said.contains("e.g. port 6443"), "{said}");
        assert!(now["labels"][SERVICE_UID].is_null(), "{}", now["labels"]);
        drop(daemon);
        world.assert_converged();

        // Terraform removes the labels that it does not know. They are written again, and nothing else is written.
        let labels = before["labels"].clone();
        world.edit_balancer(id, |one| {
            let all = one["labels"].as_object_mut().unwrap();
            all.retain(|label, _| !labels[label].is_null());
        });
        let mark = world.mark();
        world.converge(&[]);
        assert_eq!(world.writes(mark), [format!("PUT /load_balancers/{id}")]);
        let mut written = as_it_is(&world, id)["labels"].clone();
        let mut labels = now["labels"].as_object().unwrap().keys();
        let before_ours = labels.find(|label| label.contains("targets-before"));
        let before_ours = before_ours.unwrap();
        assert_eq!(written[before_ours], "all", "not known any more");
        // The test goes on as if that label had been kept.
        written[before_ours] = now["labels"][before_ours].clone();
        assert_eq!(written, now["labels"]);
        world.edit_balancer(id, |one| {
            one["labels"] = written;
        });

        let daemon = world.daemon(&[NO_RESYNC]);
        world.delete_and_wait("web");
        let left = as_it_is(&world, id);
        assert_eq!(targets(&left).len(), 3, "the other one needs them");
        world.delete_and_wait("shop");
        assert_eq!(as_it_is(&world, id), before, "{}", daemon.log());
    }
    only_parts_were_written(&world, id);
    world.assert_nothing_refused();
}

#[test]
fn an_external_load_balancer_keeps_its_former_targets_and_may_have_none_of_ours() {
    let world = World::new(2);
    let id = create_as_terraform(&world, "edge-lb");
    allow(&world, id, Some(""));
    // One of the owner's targets is a node.
    let node = world.server_id("worker-1");
    world.add_target(id, node);
    world.converge(&[]);
    let before = as_it_is(&world, id);
    let mark = world.mark();
    world.create("web", &[BY_NAME, ("external-targets", "false")], &[80]);
    world.converge(&[]);
    assert_eq!(targets(&as_it_is(&world, id)), targets(&before));
    assert_eq!(world.event_messages("web", "TargetsShared"), [""; 0]);
    world.annotate("web", "external-targets", None);
    world.converge(&[]);
    assert_eq!(targets(&as_it_is(&world, id)).len(), 3);
    world.wait_for_event("web", "TargetsShared", &["6443"]);
    world.annotate("web", "external-targets", Some("false"));
    world.converge(&[]);
    let now = as_it_is(&world, id);
    assert_eq!(targets(&now), targets(&before), "those of others stay");
    world.delete("web");
    world.converge(&[]);
    assert_eq!(world.service("web"), None);
    let writes = world.cloud_writes(mark);
    assert_eq!(as_it_is(&world, id), before, "{writes:#?}");
    only_parts_were_written(&world, id);
}

/// Otherwise its nodes would get the traffic of the owner's ports, and nothing would show later that the targets
/// must be removed.
#[test]
fn a_service_without_a_port_there_adds_no_target() {
    let world = World::new(2);
    let id = create_as_terraform(&world, "edge-lb");
    allow(&world, id, Some(""));
    let before = as_it_is(&world, id);
    world.create("web", &[BY_NAME], &[6443]);
    world.converge(&[]);
    world.wait_for_event("web", "PortConflict", &["port 6443 can't be used"]);
    assert_eq!(as_it_is(&world, id), before);
    // A Service that keeps none of its ports removes the targets that it added.
    let set_port = |number: u16| {
        world.set_port("web", number);
        world.converge(&[]);
    };
    set_port(80);
    assert_eq!(targets(&as_it_is(&world, id)).len(), 3);
    set_port(6443);
    assert_eq!(as_it_is(&world, id), before);
    assert!(world.addresses("web").is_empty());
    world.annotate("web", "external", None);
    world.converge(&[]);
    assert_eq!(as_it_is(&world, id), before);
    world.assert_converged();
}

/// The Service moves to an external load balancer and back. It is served all the time, and its own load balancer is
/// deleted after the Service has left it.
#[test]
fn a_service_that_moves_to_an_external_load_balancer_and_back_is_served_all_the_time() {
    let world = World::new(1);
    let external = create_as_terraform(&world, "edge-lb");
    allow(&world, external, Some("default"));
    let before = as_it_is(&world, external);
    let daemon = world.daemon(&[OFTEN]);
    let uid = world.create("web", &[], &[80]);
    let own = id(&world.up("web"));
    world.annotate("web", "external", Some("edge-lb"));
    world.wait_for_event("web", "LoadBalancerChanges", &["to \"edge-lb\""]);
    wait_until("the end of its own", || world.balancers().len() == 1);
    let ip = text(&before["public_net"]["ipv4"]["ip"]);
    assert_eq!(world.addresses("web")[0], ip);
    assert!(world.cloud().load_balancer(own).is_null());
    world.annotate("web", "external", None);
    wait_until("its own again", || {
        as_it_is(&world, external) == before && world.of_uid(&uid).is_some()
    });
    wait_until("its address", || world.addresses("web")[0] != ip);
    drop(daemon);
    world.assert_converged();
    let mut deletes = world.cloud_writes(0);
    deletes.retain(|write| write.starts_with("DELETE"));
    assert_eq!(deletes, [format!("DELETE /load_balancers/{own}")]);
}

/// The move has begun, and the Service changes its ports meanwhile. The node ports of the former ports may belong to
/// another Service by now.
#[test]
fn a_move_that_is_blocked_leaves_no_port_that_the_service_has_given_up() {
    for kept in [None, Some(81)] {
        let world = World::new(1);
        let external = create_as_terraform(&world, "edge-lb");
        allow(&world, external, Some("default"));
        let before = as_it_is(&world, external);
        let daemon = world.daemon(&[OFTEN]);
        world.create("web", &[], &[80, 81]);
        let own = id(&world.up("web"));
        world.cloud().set_action_duration("add_service", Some(Duration::from_secs(20)));
        world.annotate("web", "external", Some("edge-lb"));
        wait_until("its first port", || ports(&as_it_is(&world, external)).len() == 2);
        // The owner has this port.
        world.edit("web", |service| {
            let all = service["spec"]["ports"].as_array_mut().unwrap();
            all[0]["port"] = json!(6443);
            all.truncate(if kept.is_none() { 1 } else { 2 });
        });
        let left = || as_it_is(&world, external);
        match kept {
            // The Service can continue to move when the port is free.
            Some(port) => wait_until("the end of port 80", || {
                let numbers: Vec<u64> = ports(&left()).iter().map(|(number, _)| *number).collect();
                numbers == [port, 6443]
            }),
            None => wait_until("what it was before", || left() == before),
        }
        let ip = text(&world.cloud().load_balancer(own)["public_net"]["ipv4"]["ip"]);
        assert_eq!(world.addresses("web")[0], ip, "{}", daemon.log());
        world.edit("web", |service| service["spec"]["ports"][0]["port"] = json!(443));
        wait_until("the end of its own", || world.balancers().len() == 1);
        drop(daemon);
        world.assert_converged();
    }
}

/// Waits until `doctor` names the port, says why it may be left over, and has the command for its owner.
fn doctor_names(world: &World, id: u64, number: u16, why: &str) {
    let command = format!("hcloud load-balancer delete-service --listen-port {number} {id}");
    let port = format!(
        "load-balancer/edge-lb: no label of the load balancer says which Service uses port {number}."
    );
    wait_until(&format!("port {number} in doctor"), || {
        let words = one_line(&doctor(world));
        let mut parts = [&*port, why, &*command].into_iter();
        parts.all(|part| words.contains(part))
    });
}

fn doctor(world: &World) -> String {
    world.ccm(&["doctor", "-o", "wide"]).stdout
}

/// Terraform removes the labels that it does not know.
fn only_labels_of_the_owner_stay(world: &World, id: u64) {
    world.edit_balancer(id, |one| {
        let all = one["labels"].as_object_mut().unwrap();
        all.retain(|label, _| [EXTERNAL, "provisioner"].contains(&label.as_str()));
    });
}

/// Terraform removes the labels, and the ports of the Service change before the labels are written again. Nothing is
/// deleted by a guess. The owner must remove what is left over, and `doctor` names it.
#[test]
fn a_port_that_lost_its_label_before_the_service_changed_is_named_and_stays() {
    let world = World::with_network(2);
    let id = create_as_terraform(&world, "edge-lb");
    allow(&world, id, Some("default"));
    let first = world.daemon(&[NO_RESYNC]);
    world.create("web", &[BY_NAME], &[80, 443, 8080]);
    wait_until("its ports", || ports(&as_it_is(&world, id)).len() == 4);
    world.wait_for_event("web", "EnsuredLoadBalancer", &[]);
    drop(first);
    let cloud = world.cloud();
    only_labels_of_the_owner_stay(&world, id);
    // The labels are written again.
    assert!(!doctor(&world).contains("has no label"));
    // 443 becomes 8443 with the same node port, and 8080 ends with its node port.
    world.edit("web", |service| {
        let all = service["spec"]["ports"].as_array_mut().unwrap();
        all[1]["port"] = json!(8443);
        all.remove(2);
    });
    let mark = world.mark();
    let _daemon = world.daemon(&[NO_RESYNC]);
    wait_until("the new port", || ports(&as_it_is(&world, id)).len() == 5);
    world.ticks(6);
    let is_deletion = |call: &&String| call.contains("delete_service") || call.contains("DELETE");
    assert_eq!(world.cloud_writes(mark).iter().find(is_deletion), None);
    doctor_names(&world, id, 443, "of Service default/web");
    // Nothing listens on the node port any more.
    for server in targets(&as_it_is(&world, id)) {
        let closed = Health::unhealthy("layer4_no_connection");
        cloud.set_health(id, Machine::Server(server), Some(8080), Some(closed));
    }
    doctor_names(&world, id, 8080, "No target answers at node port");
    let doctor = doctor(&world);
    for port in ["port 6443", "uses port 80."] {
        assert!(!doctor.contains(port), "{doctor}");
    }
}

/// The Service leaves the load balancer before its labels are written again, and nothing uses the load
/// balancer any more.
#[test]
fn a_port_that_lost_its_label_before_the_service_left_is_named_and_stays() {
    let world = World::with_network(2);
    let id = create_as_terraform(&world, "edge-lb");
    allow(&world, id, Some("default"));
    world.create("web", &[BY_NAME], &[80, 443]);
    world.converge(&[]);
    assert_eq!(ports(&as_it_is(&world, id)).len(), 3);
    only_labels_of_the_owner_stay(&world, id);
    world.annotate("web", "external", None);
    let mark = world.mark();
    world.converge(&[]);
    world.wait_for_event("web", "EnsuredLoadBalancer", &[]);
    let is_of_the_owner = |call: &&String| call.contains(&format!("/load_balancers/{id}"));
    assert_eq!(world.cloud_writes(mark).iter().find(is_of_the_owner), None);
    for number in [80, 443] {
        doctor_names(&world, id, number, "of Service default/web");
    }
    assert!(!doctor(&world).contains("port 6443"));
}
