//! Servers are replaced, and other servers get their addresses. Calls are made only when a list of servers
//! is read anyway.

use crate::sync::concurrent_changes::{apis, controller};
use crate::sync::library::LONG;
use crate::sync::world::{Cluster, World};
use ccm::controllers::route::RouteController;
use ccm::controllers::{Controller, Report, Selection};
use ccm::provider::{Reason, Urgency};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::time::Duration;

const PODS: &str = "10.244.2.0/24";

/// Two nodes with their routes, and a controller that compared them once. Nothing is due again by itself while a test runs,
/// which is less than half a minute.
struct Compared {
    world: World,
    ccm: ccm::cache::Apis,
    controller: RouteController,
}

impl Compared {
    fn new() -> Compared {
        let world = World::synced(2);
        let mut compared =
            Compared { ccm: apis(&world), controller: controller(LONG, Duration::ZERO), world };
        let mark = compared.world.mark();
        compared.tick();
        assert_eq!(compared.world.changes(mark), Vec::<String>::new());
        compared
    }

    fn tick(&mut self) -> Report {
        self.controller.tick(&self.ccm, &Selection::Due)
    }

    /// Another controller lists the servers.
    fn list(&self) {
        self.ccm.instances(None, Duration::ZERO, Urgency::Needed).unwrap();
    }

    /// Another controller reads the nodes.
    fn read_nodes(&self) {
        let latest = ccm::cache::ReadFrom::Latest;
        self.ccm.nodes.whole(Duration::ZERO, latest).unwrap();
    }

    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let id = self.world.server_id("worker-2");
        self.world.cloud().edit_server(id, change);
    }

    /// Whether the plan that a tick would be made of finds a stale route.
    fn is_stale(&self) -> bool {
        let plan = self.controller.evaluate(&self.ccm, Duration::ZERO);
        let mut findings = plan.unwrap().findings.into_iter();
        findings.any(|finding| finding.reason == Reason::StaleRoute)
    }

    /// Another machine, with the address of `worker-2`'s, which is deleted.
    fn replace_server(&self) {
        let ip = self.world.ip("worker-2");
        self.world.delete_server("worker-2");
        self.world.attach_server("worker-2", Some(&ip));
    }

    fn route(&self, change: &str) -> String {
        format!("{change} {PODS} {}", self.world.ip("worker-2"))
    }
}

#[test]
fn a_private_address_that_changes_is_compared_with_the_next_list_of_servers() {
    let mut compared = Compared::new();
    let old = compared.route("delete_route");
    compared.edit(|server| server["private_net"][0]["ip"] = json!("10.0.0.99"));
    let mark = compared.world.mark();
    compared.tick();
    assert_eq!(compared.world.cloud_calls(mark).len(), 0);
    compared.list();
    compared.tick();
    let new = compared.route("add_route");
    assert_eq!(compared.world.changes(mark), [old, new]);
    assert_eq!(compared.world.status("worker-2").as_deref(), Some("False"));
    // There are no more changes, however many lists follow.
    let mark = compared.world.mark();
    compared.list();
    let calls = compared.world.cloud_calls(mark).len();
    compared.tick();
    assert_eq!(compared.world.cloud_calls(mark).len(), calls);
}

#[test]
fn a_detached_server_s_node_loses_its_route_and_is_marked_with_the_next_list_of_servers() {
    let mut compared = Compared::new();
    let deleted = compared.route("delete_route");
    let mut attachment = json!(null);
    compared.edit(|server| {
        attachment = server["private_net"].take();
        server["private_net"] = json!([]);
    });
    compared.list();
    let mark = compared.world.mark();
    compared.tick();
    assert_eq!(compared.world.changes(mark), [deleted]);
    assert_eq!(compared.world.status("worker-2").as_deref(), Some("True"));
    // Attached again.
    compared.edit(|server| server["private_net"] = attachment.take());
    compared.list();
    compared.tick();
    assert_eq!(compared.world.routes(), compared.world.wanted());
    assert_eq!(compared.world.status("worker-2").as_deref(), Some("False"));
}

/// Steps of a replacement, in any order in which a controller may come to see them.
#[test]
fn a_replaced_node_s_route_is_deleted_though_another_server_has_its_address() {
    type Steps = fn(&mut Compared);
    let cases: [(&str, Steps); 3] = [
        ("server and node, then a look", |compared| {
            compared.replace_server();
            compared.world.delete_node("worker-2");
        }),
        ("the node stays", |compared| compared.replace_server()),
        ("the first try fails", |compared| {
            let error = Effect::hetzner_error(422, "invalid_input", "not now");
            let rule = Rule::new(error).half(Half::Hetzner).writes();
            compared.world.delete_node("worker-2");
            compared.world.faults().add(rule);
            compared.read_nodes();
            assert_eq!(compared.tick().failures.len(), 1);
            compared.world.faults().clear();
            compared.replace_server();
        }),
    ];
    for (case, steps) in cases {
        let mut compared = Compared::new();
        let deleted = compared.route("delete_route");
        steps(&mut compared);
        let mark = compared.world.mark();
        compared.list();
        compared.read_nodes();
        assert!(!compared.is_stale(), "{case}");
        // The loop ends when the backoff is over.
        crate::common::wait_until(case, || {
            compared.tick();
            !compared.world.changes(mark).is_empty()
        });
        assert_eq!(compared.world.changes(mark), [deleted], "{case}");
        assert!(!compared.is_stale(), "{case}");
    }
}

/// Somebody else adds the same route again. It was the node's before, and is not any more.
#[test]
fn a_route_that_was_deleted_is_not_remembered() {
    let mut compared = Compared::new();
    compared.replace_server();
    compared.world.delete_node("worker-2");
    compared.list();
    compared.read_nodes();
    compared.tick();
    let ip = compared.world.ip("worker-2");
    let theirs = format!("{PODS} {ip}");
    assert!(!compared.world.routes().contains(&theirs));
    compared.world.set_route(PODS, &ip);
    let mark = compared.world.mark();
    let passed = compared.controller.sync(&compared.ccm);
    assert!(passed.report.failures.is_empty(), "{passed:?}");
    assert_eq!(compared.world.changes(mark), Vec::<String>::new());
    assert!(compared.is_stale());
}

/// In an old list of servers the router seems to be a node. That does not make its routes the node's.
#[test]
fn a_router_with_the_address_that_a_node_had_keeps_its_routes() {
    let mut compared = Compared::new();
    let ip = compared.world.ip("worker-2");
    compared.edit(|server| server["private_net"][0]["ip"] = json!("10.0.0.99"));
    compared.world.attach_server("router", Some(&ip));
    compared.world.set_route("10.244.200.0/24", &ip);
    // Something is to be done, so that the Network is read before the servers are.
    compared.world.join("worker-3", "10.244.3.0/24");
    compared.read_nodes();
    compared.ccm.network(Duration::ZERO, Urgency::Needed).unwrap();
    compared.tick();
    let mut expected = compared.world.wanted();
    expected.insert(format!("10.244.200.0/24 {ip}"));
    assert_eq!(compared.world.routes(), expected);
}
