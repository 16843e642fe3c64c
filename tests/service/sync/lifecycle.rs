//! The life of a Service, from the first `kubectl apply` to the last `kubectl delete`.

use crate::common::{self, on, wait_until};
use crate::sync::world::{
    Cluster, FINALIZER, NO_RESYNC, PROFILES, SERVICE_UID, World, id, len, service, targets, text,
};
use sandbox::calls::Call;
use sandbox::faults::Effect;
use serde_json::{Value, json};
use std::sync::Arc;

const STATUS: &str = "PATCH /api/v1/namespaces/default/services/web/status";

#[test]
fn a_service_gets_its_load_balancer_with_one_post_between_finalizer_and_status() {
    for profile in PROFILES {
        let world = World::with_network(2);
        let _daemon = world.daemon(&[profile, NO_RESYNC]);
        let mark = world.mark();
        let uid = world.create("web", &[], &[80, 443, 8080]);
        let balancer = world.up("web");
        world.wait_for_event("web", "EnsuredLoadBalancer", &[]);
        world.ticks(3);
        let expected = [STATUS, "POST /load_balancers", STATUS];
        assert_eq!(world.writes(mark), expected, "{profile}");
        let calls = world.cloud_calls(mark);
        let shown: Vec<String> = calls.iter().map(ToString::to_string).collect();
        // A list, the types, the servers, the POST, how it goes on, and a list that shows the private address.
        assert!(calls.len() <= 7, "{profile}: {shown:#?}");
        let first = calls.iter().find(|call| call.is_write()).unwrap();
        let mut patches = world.calls().calls_since(mark).into_iter();
        let mut patches = patches.by_ref().filter(|call| call.path.ends_with("/web/status"));
        let body = patches.next().unwrap().json().unwrap();
        assert_eq!(body["metadata"]["finalizers"], json!([FINALIZER]));
        assert!(patches.next().unwrap().sequence > first.sequence);

        assert_eq!(targets(&balancer).len(), 2);
        assert_eq!(len(&balancer["services"]), 3);
        assert_eq!(balancer["labels"]["hcloud-ccm/service-uid"], json!(uid));
        let public = &balancer["public_net"];
        let private = &balancer["private_net"][0]["ip"];
        let expected = [&public["ipv4"]["ip"], &public["ipv6"]["ip"], private].map(text);
        assert_eq!(world.addresses("web"), expected);
        assert_eq!(world.event_messages("web", "EnsuringLoadBalancer").len(), 1);
        world.assert_nothing_refused();
    }
}

#[test]
fn a_service_costs_three_calls_and_the_first_service_two_more() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    for (name, first) in [("web", 1), ("other", 0)] {
        let mark = world.mark();
        world.create(name, &[], &[80, 443, 8080]);
        let balancer = world.up(name);
        world.wait_for_event(name, "EnsuredLoadBalancer", &[]);
        world.ticks(3);
        let public = &balancer["public_net"];
        let expected = [&public["ipv4"]["ip"], &public["ipv6"]["ip"]].map(text);
        assert_eq!(world.addresses(name), expected);
        let calls = world.cloud_calls(mark);
        let of = |path: &str| calls.iter().filter(|call| call.path == path).count();
        assert_eq!(of("/v1/load_balancers"), 2, "{name}: {calls:#?}");
        assert_eq!(of("/v1/load_balancer_types"), first, "{name}");
        // The server shows that the project is the cluster's. Later the first load balancer shows it.
        let is_server = |call: &&Call| call.path.starts_with("/v1/servers");
        assert_eq!(calls.iter().filter(is_server).count(), first, "{name}");
        // A machine that is busy may see the first question come too early.
        assert!((1..=2).contains(&of("/v1/actions")), "{name}: {calls:#?}");
        assert!(calls.len() <= 4 + 2 * first, "{name}: {calls:#?}");
    }
}

#[test]
fn an_annotation_on_three_ports_costs_three_writes_and_six_calls() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80, 443, 8080]);
    let id = id(&world.up("web"));
    world.ticks(2);
    let mark = world.mark();
    world.annotate("web", "health-check-interval", Some("20s"));
    let intervals = || {
        let balancer = world.cloud().load_balancer(id);
        let ports = balancer["services"].as_array().unwrap().iter();
        let has_it = |port: &&Value| port["health_check"]["interval"] == 20;
        ports.filter(has_it).count()
    };
    wait_until("three intervals", || intervals() == 3);
    world.ticks(3);
    let update = format!("POST /load_balancers/{id}/actions/update_service");
    assert_eq!(world.cloud_writes(mark), vec![update; 3]);
    let calls = world.cloud_calls(mark);
    let is_question = |call: &Call| call.path == "/v1/actions";
    let (questions, calls): (Vec<Call>, Vec<Call>) = calls.into_iter().partition(is_question);
    assert!(calls.len() <= 5, "{} calls: {calls:#?}", calls.len());
    // One call is enough for all three actions. On a busy machine the actions may last until a second call.
    assert!(questions.len() <= 2, "{questions:#?}");
}

#[test]
fn a_deletion_deletes_first_the_load_balancer_with_the_label_and_then_the_service() {
    for profile in PROFILES {
        let world = World::new(1);
        let daemon = world.daemon(&[profile, NO_RESYNC]);
        world.create("web", &[], &[80]);
        let balancer = world.up("web");
        let id = id(&balancer);
        // Another one has its name, which is none of ours to delete.
        world.edit_balancer(id, |one| one["name"] = json!("renamed"));
        let decoy = world.create_balancer(&text(&balancer["name"]), &json!({}));
        world.ticks(1);
        let mark = world.mark();
        world.delete_and_wait("web");
        world.wait_for_event("web", "DeletedLoadBalancer", &[]);
        let expected = [&format!("DELETE /load_balancers/{id}"), STATUS];
        assert_eq!(world.writes(mark), expected, "{}", daemon.log());
        // The deletion is sent as the API's own client sends it, and the load balancer was read just before.
        let calls = world.cloud_calls(mark);
        let is_delete = |call: &Call| call.method == "DELETE";
        let at = calls.iter().position(is_delete).unwrap();
        assert!(calls[at].body.is_empty(), "{profile}");
        assert_eq!(calls[at - 1].path, format!("/v1/load_balancers/{id}"));
        assert_eq!(world.only_balancer()["id"], decoy);
        assert_eq!(world.event_messages("web", "DeletingLoadBalancer").len(), 1);
        world.assert_nothing_refused();
    }
}

/// The namespace accepts no events any more and is then deleted. Nobody must act on that.
#[test]
fn a_service_that_is_deleted_with_its_namespace_is_no_failure() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, "the end of a namespace") {
        return;
    }
    let daemon = world.daemon(&[NO_RESYNC]);
    let cluster = world.cluster();
    world.create_namespace("shop");
    world.create("shop/web", &[], &[80]);
    world.up("shop/web");
    let mark = world.mark();
    cluster.delete("namespaces", None, "shop");
    wait_until("its end", || cluster.get("namespaces", None, "shop").is_none());
    // The word about the end is the last thing that is tried.
    wait_until("an event that nobody takes", || {
        let calls = world.calls().calls_since(mark);
        let of_event = |call: &&Call| call.path == "/api/v1/namespaces/shop/events";
        let refused = calls.iter().filter(of_event);
        refused.filter(|call| call.status.is_some()).count() >= 2
    });
    world.ticks(1);
    assert_eq!(world.balancers(), Vec::<serde_json::Value>::new());
    let log = daemon.log();
    assert!(!log.contains("not written"), "{log}");
    assert!(!log.contains("give this user a role"), "{log}");
}

#[test]
fn a_service_of_another_type_loses_load_balancer_address_and_finalizer() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80]);
    let id = world.up("web")["id"].clone();
    let mark = world.mark();
    world.set_type("web", "ClusterIP");
    wait_until("no finalizer", || !world.has_finalizer("web"));
    assert_eq!(world.addresses("web"), Vec::<String>::new());
    assert_eq!(world.balancers(), Vec::<serde_json::Value>::new());
    world.ticks(2);
    let delete = format!("DELETE /load_balancers/{id}");
    assert_eq!(world.writes(mark), [delete.as_str(), STATUS]);
    // The type changes back.
    world.set_type("web", "LoadBalancer");
    world.up("web");
}

/// The load balancer is protected between the read and the DELETE. It stays, and the Service is deleted, as if the
/// protection had been there before.
#[test]
fn a_load_balancer_that_is_protected_at_the_last_moment_stays_and_the_service_is_deleted() {
    let world = World::new(1);
    let uid = world.create("web", &[], &[80]);
    world.converge(&[]);
    let id = id(&world.only_balancer());
    let protect = common::before(&world.sandbox, move |world| world.protect(id));
    let delete = on("DELETE /v1/load_balancers/*", protect);
    world.faults().add(delete.nth(1));
    world.delete("web");
    let ran = world.once(&[]).with_code(0);
    assert_eq!(world.service("web"), None, "{ran:?}");
    assert!(world.of_uid(&uid).is_some());
    world.wait_for_event("web", "LoadBalancerProtected", &["delete protection"]);
    assert_eq!(world.event_messages("web", "DeleteLoadBalancerFailed"), [""; 0]);
    assert_eq!(world.event_messages("web", "DeletedLoadBalancer"), [""; 0]);
    assert!(!ran.stdout.contains("deleted"), "{ran:?}");
}

/// By then the load balancer exists without an owner. The log names it.
#[test]
fn a_service_that_is_deleted_by_force_during_its_creation_leaves_an_event() {
    let world = World::new(1);
    world.converge(&[]);
    world.create("web", &[], &[80]);
    let sandbox = Arc::downgrade(&world.sandbox);
    let force = Effect::after(move |_| {
        let sandbox = sandbox.upgrade().unwrap();
        sandbox.remove_finalizers("web");
        sandbox.delete("web");
    });
    let create = on("POST /v1/load_balancers", force);
    world.faults().add(create);
    let ran = world.once(&[]);
    assert_eq!(world.service("web"), None, "{ran:?}");
    let told = ran.stderr.lines().find(|line| line.contains("WARN"));
    let told = told.unwrap_or_else(|| panic!("{ran:?}"));
    let name = format!("\"kubernetes-default-web\" ({})", id(&world.only_balancer()));
    for part in ["service/default/web", &name] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_service_that_is_not_ours_gets_no_write() {
    let world = World::new(1);
    // Another controller's, which uses the same finalizer.
    let mut theirs = service("theirs", &[], &[80]);
    theirs["spec"]["loadBalancerClass"] = json!("example.com/other");
    theirs["metadata"]["finalizers"] = json!([FINALIZER]);
    world.create_as(theirs);
    // Being deleted, held by somebody else, and never ours.
    let mut going = service("going", &[], &[80]);
    going["metadata"]["finalizers"] = json!(["example.com/held"]);
    world.create_as(going);
    world.delete("going");
    let mark = world.mark();
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.ticks(4);
    // The deletion of the Service changes nothing.
    world.delete("theirs");
    world.ticks(4);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    for name in ["theirs", "going"] {
        let service = world.service(name).unwrap();
        assert_eq!(len(&service["metadata"]["finalizers"]), 1, "{name}");
        assert_eq!(world.addresses(name), Vec::<String>::new());
    }
    assert_eq!(world.balancers().len(), 0);
}

#[test]
fn two_load_balancers_with_the_label_are_named_and_unchanged() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[], &[80]);
    let first = world.up("web");
    let labels = json!({"labels": {SERVICE_UID: uid}});
    let twin = world.create_balancer("twin", &labels);
    let mark = world.mark();
    world.annotate("web", "algorithm-type", Some("least_connections"));
    let names = [&text(&first["name"]), &*format!("\"twin\" ({twin})")];
    world.wait_for_event("web", "SyncLoadBalancerFailed", &names);
    world.delete("web");
    world.wait_for_event("web", "DeleteLoadBalancerFailed", &names);
    world.ticks(2);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    // A person decides which load balancer is the wrong one.
    world.edit_balancer(twin, |one| one["labels"] = json!({}));
    wait_until("its end", || world.service("web").is_none());
    assert_eq!(world.balancers().len(), 1);
}

#[test]
fn a_load_balancer_that_serves_nothing_is_reported_everywhere() {
    let world = World::new(1);
    world.converge(&[]);
    let mut dns = service("dns", &[], &[53]);
    dns["spec"]["ports"][0]["protocol"] = json!("UDP");
    world.create_as(dns);
    for diff in ["create,no TCP port,", "no TCP port,"] {
        let list = world.ccm(&["lb", "list"]).stdout;
        let row = list.lines().find(|line| line.starts_with("default/dns"));
        let says = format!("  {diff}UnsupportedProtocolConfigured");
        assert!(row.is_some_and(|row| row.contains(&says)), "{list}");
        world.converge(&[]);
    }
    let says = ["serves nothing, but still costs money"];
    world.wait_for_event("dns", "UnsupportedProtocolConfigured", &says);
    let findings = world.inspect("dns", &[])["findings"].to_string();
    assert!(findings.contains(says[0]), "{findings}");
}
