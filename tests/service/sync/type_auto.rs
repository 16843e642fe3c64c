//! `type: auto`, from outside: a load balancer grows before its limits are hit, and nothing else waits for that.

use crate::common::{pass, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, World, len, listen_ports, targets, text};
use sandbox::Half;
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::time::Duration;

const AUTO: (&str, &str) = ("type", "auto");
const TYPES: &str = "/v1/load_balancer_types";

/// Returns a world in which an lb11 takes three targets, and an lb21 five.
fn world(nodes: usize) -> World {
    let world = World::new(nodes);
    world.sandbox.cloud().set_target_limit("lb11", 3);
    world.sandbox.cloud().set_target_limit("lb21", 5);
    world
}

fn kind(balancer: &Value) -> String {
    text(&balancer["load_balancer_type"]["name"])
}

fn refuse(status: u16, code: &str) -> Rule {
    let error = json!({ "error": { "code": code, "message": "not today", "details": null } });
    Rule::new(Effect::Instead(Response::json(status, &error))).half(Half::Hetzner)
}

impl World {
    fn set_ports(&self, name: &str, count: u16) {
        // A real API server, which all tests share, chooses node ports that are free.
        let is_real = self.sandbox.cluster().is_real();
        let port = |at: u16| {
            let node_port = (!is_real).then_some(31_000 + at);
            json!({ "name": format!("p{at}"), "port": 80 + at, "protocol": "TCP", "nodePort": node_port })
        };
        let ports: Vec<Value> = (0..count).map(port).collect();
        self.edit(name, |service| service["spec"]["ports"] = json!(ports));
    }
}

#[test]
fn a_new_service_gets_a_type_that_fits_and_it_grows_with_the_nodes() {
    let world = world(4);
    let _daemon = world.daemon(&[NO_RESYNC]);
    // A node that is not ready is a target, and counts.
    world.set_ready("worker-4", "False");
    world.create("web", &[AUTO], &[80]);
    assert_eq!(kind(&world.up("web")), "lb21");
    world.wait_for_event("web", "EnsuringLoadBalancer", &["lb21", "4 targets", "16.40 a month"]);
    let mark = world.mark();
    world.join_and_wait("worker-5");
    world.join_and_wait("worker-6");
    wait_until("all targets", || targets(&world.balancer("web")).len() == 6);
    assert_eq!(kind(&world.balancer("web")), "lb31");
    let writes = world.cloud_writes(mark);
    let place = |part: &str| writes.iter().rposition(|write| write.contains(part));
    assert!(place("change_type") < place("add_target"), "{writes:?}");
    let parts = ["lb21 becomes lb31", "6 targets", "32.90 a month", "old price: 16.40"];
    world.wait_for_event("web", "EnsuringLoadBalancer", &parts);
    // It stays as large when the nodes are gone.
    let mark = world.mark();
    for name in ["worker-4", "worker-5", "worker-6"] {
        world.delete_node(name);
    }
    wait_until("three targets", || targets(&world.balancer("web")).len() == 3);
    world.ticks(2);
    assert_eq!(kind(&world.balancer("web")), "lb31");
    assert!(!world.cloud_writes(mark).concat().contains("change_type"));
    let inspected = world.inspect("web", &[]);
    assert_eq!(inspected["object"]["needs"]["cheaper"]["type"], "lb11");
}

#[test]
fn it_grows_with_the_ports() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[AUTO], &[80]);
    assert_eq!(kind(&world.up("web")), "lb11");
    world.set_ports("web", 6);
    wait_until("six ports", || listen_ports(&world.balancer("web")).len() == 6);
    assert_eq!(kind(&world.balancer("web")), "lb21");
    world.annotate("web", "type-max", Some("lb21"));
    world.set_ports("web", 16);
    world.wait_for_event(
        "web",
        "SyncLoadBalancerFailed",
        &["16 TCP ports", "lb21 takes at most 15"],
    );
    assert_eq!(kind(&world.balancer("web")), "lb21");
}

#[test]
fn the_list_of_types_is_read_again_before_it_grows() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[AUTO], &[80]);
    world.up("web");
    pass(&world.sandbox, Duration::from_secs(900));
    let mark = world.mark();
    world.set_ports("web", 5);
    wait_until("five ports", || listen_ports(&world.balancer("web")).len() == 5);
    assert_eq!(world.calls_of(mark, TYPES), 0, "nothing grows");
    world.set_ports("web", 6);
    wait_until("six ports", || listen_ports(&world.balancer("web")).len() == 6);
    assert_eq!(world.calls_of(mark, TYPES), 1);
}

/// Whatever the API answers, the ports and targets that fit the present type are synced, and the same type is asked for
/// again later.
#[test]
fn a_refused_growth_stops_nothing_else() {
    let codes =
        [(422, "invalid_load_balancer_type"), (503, "maintenance"), (412, "resource_unavailable")];
    for (status, code) in codes {
        let world = world(2);
        let _daemon = world.daemon(&[NO_RESYNC]);
        world.create("web", &[AUTO], &[80]);
        world.up("web");
        let rule = world.fault(
            refuse(status, code).method("POST").path("/v1/load_balancers/*/actions/change_type"),
        );
        let mark = world.mark();
        for at in 3..=5 {
            world.join_and_wait(&format!("worker-{at}"));
        }
        world.set_ports("web", 3);
        wait_until("what fits", || {
            let now = world.balancer("web");
            targets(&now).len() == 3 && len(&now["services"]) == 3
        });
        world.wait_for_event("web", "SyncLoadBalancerFailed", &[code]);
        assert_eq!(kind(&world.balancer("web")), "lb11");
        let writes = world.cloud_writes(mark);
        let refused = writes.iter().filter(|write| write.contains("add_target")).count();
        assert_eq!(refused, 1, "only the target that fits was asked for: {writes:?}");
        world.faults().remove(rule);
        wait_until("growth", || targets(&world.balancer("web")).len() == 5);
        assert_eq!(kind(&world.balancer("web")), "lb21");
    }
}

#[test]
fn while_the_list_of_types_cannot_be_read_nothing_grows() {
    let world = world(3);
    let daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[AUTO], &[80]);
    world.up("web");
    drop(daemon);
    let rule = world.fault(refuse(500, "server_error").path(TYPES));
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.set_ports("web", 2);
    world.join_and_wait("worker-4");
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["list of types could not be read"]);
    wait_until("the port", || len(&world.balancer("web")["services"]) == 2);
    assert_eq!(kind(&world.balancer("web")), "lb11");
    world.faults().remove(rule);
    wait_until("growth", || targets(&world.balancer("web")).len() == 4);
    assert_eq!(kind(&world.balancer("web")), "lb21");
}

#[test]
fn without_a_type_the_list_is_read_before_a_creation_only() {
    let mut world = World::new(1);
    world.set(&[("HCLOUD_LOAD_BALANCERS_TYPE", "")]);
    let daemon = world.daemon(&[OFTEN]);
    world.create("web", &[], &[80]);
    assert_eq!(kind(&world.up("web")), "lb11");
    let mark = world.mark();
    world.ticks(20);
    assert_eq!(world.calls_of(mark, TYPES), 0);
    drop(daemon);
    // lb11 is not offered any more. New load balancers get another type, and the existing one is synced as always.
    let cloud = world.sandbox.cloud();
    cloud.deprecate_load_balancer_type("lb11", "2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z");
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("new", &[], &[81]);
    assert_eq!(kind(&world.up("new")), "lb21");
    world.wait_for_event("new", "LoadBalancerTypeUnconfigured", &["lb21", "16.40 a month"]);
    world.set_ports("web", 2);
    wait_until("the port", || len(&world.balancer("web")["services"]) == 2);
    assert_eq!(kind(&world.balancer("web")), "lb11");
    // The list can't be read.
    world.fault(refuse(500, "server_error").path(TYPES));
    cloud.deprecate_load_balancer_type("lb11", "2020-01-01T00:00:00Z", "2999-02-01T00:00:00Z");
    world.create("blind", &[], &[82]);
    let blind = world.up("blind");
    assert!(["lb11", "lb21"].contains(&&*kind(&blind)), "{blind}");
}

#[test]
fn commands_show_why_a_type_is_chosen() {
    let world = world(4);
    world.converge(&[]);
    world.create("web", &[AUTO], &[80]);
    let planned = world.ccm(&["lb", "sync", "--dry-run"]).with_code(0).stdout;
    let line = planned.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        line.contains("lb21 in fsn1") && line.contains("4 targets, 1 port, 16.40 a month"),
        "{planned}"
    );
    world.converge(&[]);
    let shown = world.ccm(&["lb", "inspect", "default/web"]).stdout;
    for part in ["(auto: 4 targets, 1 port)", "needs    4 targets, 1 ports, 0 certificates"] {
        assert!(
            shown
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(&part.split_whitespace().collect::<Vec<_>>().join(" ")),
            "{part}: {shown}"
        );
    }
    assert!(world.ccm(&["status"]).stdout.contains(", 1 lb21"));
}
