//! From the first `kubectl apply` to the last `kubectl delete`.

use crate::common::{self, wait_until};
use crate::sync::world::{
    Cluster, FINALIZER, NO_RESYNC, PROFILES, World, len, service, targets, text,
};
use sandbox::calls::Call;
use sandbox::faults::{Effect, Rule};
use serde_json::json;
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
        world.tells("web", "EnsuredLoadBalancer", &[]);
        world.ticks(3);
        assert_eq!(
            world.writes(mark),
            [STATUS, "POST /load_balancers", STATUS],
            "{profile}"
        );
        let calls = world.cloud_calls(mark);
        let shown: Vec<String> = calls.iter().map(ToString::to_string).collect();
        // A list, the types, the servers, the POST, how it goes on, and a list that shows the private address.
        assert!(calls.len() <= 7, "{profile}: {shown:#?}");
        let first = calls.iter().find(|call| call.is_write()).unwrap();
        let patches = world.calls().calls_since(mark);
        let mut patches = patches
            .iter()
            .filter(|call| call.path.ends_with("/web/status"));
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
        assert_eq!(world.told("web", "EnsuringLoadBalancer").len(), 1);
        world.nothing_refused();
    }
}

#[test]
fn a_service_costs_a_list_a_post_and_a_question_and_the_first_one_types_and_a_server_too() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    for (name, first) in [("web", 1), ("other", 0)] {
        let mark = world.mark();
        world.create(name, &[], &[80, 443, 8080]);
        let balancer = world.up(name);
        world.tells(name, "EnsuredLoadBalancer", &[]);
        world.ticks(3);
        let public = &balancer["public_net"];
        let expected = [&public["ipv4"]["ip"], &public["ipv6"]["ip"]].map(text);
        assert_eq!(world.addresses(name), expected);
        let calls = world.cloud_calls(mark);
        let of = |path: &str| calls.iter().filter(|call| call.path == path).count();
        assert_eq!(of("/v1/load_balancers"), 2, "{name}: {calls:#?}");
        assert_eq!(of("/v1/load_balancer_types"), first, "{name}");
        // It shows that the project is the cluster's, as the first load balancer does afterwards.
        let servers = calls
            .iter()
            .filter(|call| call.path.starts_with("/v1/servers"));
        assert_eq!(servers.count(), first, "{name}");
        // A machine that is busy may see the first question come too early.
        assert!((1..=2).contains(&of("/v1/actions")), "{name}: {calls:#?}");
        assert!(calls.len() <= 4 + 2 * first, "{name}: {calls:#?}");
    }
}

#[test]
fn one_annotation_on_three_ports_is_three_writes_and_six_calls() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80, 443, 8080]);
    let id = world.up("web")["id"].as_u64().unwrap();
    world.ticks(2);
    let mark = world.mark();
    world.annotate("web", "health-check-interval", Some("20s"));
    let intervals = || {
        let balancer = world.cloud().load_balancer(id);
        let services = balancer["services"].as_array().unwrap().iter();
        services
            .filter(|service| service["health_check"]["interval"] == 20)
            .count()
    };
    wait_until("three intervals", || intervals() == 3);
    world.ticks(3);
    let update = format!("POST /load_balancers/{id}/actions/update_service");
    assert_eq!(world.cloud_writes(mark), vec![update; 3]);
    let calls = world.cloud_calls(mark);
    let is_question = |call: &Call| call.path == "/v1/actions";
    let (questions, calls): (Vec<Call>, Vec<Call>) = calls.into_iter().partition(is_question);
    assert!(calls.len() <= 5, "{} calls: {calls:#?}", calls.len());
    // One for all three; on a busy machine the actions may last until a second one.
    assert!(questions.len() <= 2, "{questions:#?}");
}

#[test]
fn deleted_is_the_load_balancer_first_found_by_its_label_and_then_the_service() {
    for profile in PROFILES {
        let world = World::new(1);
        let daemon = world.daemon(&[profile, NO_RESYNC]);
        world.create("web", &[], &[80]);
        let balancer = world.up("web");
        let cloud = world.cloud();
        let id = balancer["id"].as_u64().unwrap();
        // Another one has its name, which is none of ours to delete.
        let name = text(&balancer["name"]);
        cloud.edit_load_balancer(id, |one| one["name"] = json!("renamed"));
        let project = world.project();
        let decoy = json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1"});
        let decoy = cloud.create_load_balancer(project, decoy);
        world.ticks(1);
        let mark = world.mark();
        world.delete("web");
        wait_until("its end", || world.service("web").is_none());
        world.tells("web", "DeletedLoadBalancer", &[]);
        let delete = format!("DELETE /load_balancers/{id}");
        assert_eq!(
            world.writes(mark),
            [delete.as_str(), STATUS],
            "{}",
            daemon.log()
        );
        // As the API's own client sends it; and the load balancer was read just before.
        let calls = world.cloud_calls(mark);
        let at = calls
            .iter()
            .position(|call| call.method == "DELETE")
            .unwrap();
        assert!(calls[at].body.is_empty(), "{profile}");
        assert_eq!(calls[at - 1].path, format!("/v1/load_balancers/{id}"));
        let left: Vec<_> = world
            .balancers()
            .iter()
            .map(|one| one["id"].clone())
            .collect();
        assert_eq!(left, [json!(decoy)]);
        assert_eq!(world.told("web", "DeletingLoadBalancer").len(), 1);
        world.nothing_refused();
    }
}

/// Its namespace takes no events any more, and then is gone: nobody has to do anything about that.
#[test]
fn a_service_that_goes_with_its_namespace_is_no_trouble() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, "the end of a namespace") {
        return;
    }
    let daemon = world.daemon(&[NO_RESYNC]);
    let cluster = world.cluster();
    cluster.create(
        "namespaces",
        None,
        json!({ "metadata": { "name": "shop" } }),
    );
    cluster.create("services", Some("shop"), {
        let mut web = service("web", &[], &[80]);
        web["metadata"]["namespace"] = json!("shop");
        web
    });
    let address = || {
        let web = cluster.get("services", Some("shop"), "web")?;
        web.pointer("/status/loadBalancer/ingress/0/ip").cloned()
    };
    wait_until("an address", || address().is_some());
    let mark = world.mark();
    cluster.delete("namespaces", None, "shop");
    wait_until("its end", || {
        cluster.get("namespaces", None, "shop").is_none()
    });
    // The word about the end is the last thing that is tried.
    wait_until("an event that nobody takes", || {
        let calls = world.calls().calls_since(mark);
        let refused = calls
            .iter()
            .filter(|call| call.path == "/api/v1/namespaces/shop/events" && call.status.is_some());
        refused.count() >= 2
    });
    world.ticks(1);
    assert_eq!(world.balancers(), Vec::<serde_json::Value>::new());
    let log = daemon.log();
    assert!(!log.contains("not written"), "{log}");
    assert!(!log.contains("give this user a role"), "{log}");
}

#[test]
fn of_another_type_it_loses_load_balancer_address_and_finalizer() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80]);
    let id = world.up("web")["id"].clone();
    let mark = world.mark();
    world.edit("web", |service| {
        service["spec"]["type"] = json!("ClusterIP")
    });
    wait_until("no finalizer", || {
        world.service("web").unwrap()["metadata"]["finalizers"] != json!([FINALIZER])
    });
    assert_eq!(world.addresses("web"), Vec::<String>::new());
    assert_eq!(world.balancers(), Vec::<serde_json::Value>::new());
    world.ticks(2);
    let delete = format!("DELETE /load_balancers/{id}");
    assert_eq!(world.writes(mark), [delete.as_str(), STATUS]);
    // And back.
    world.edit("web", |service| {
        service["spec"]["type"] = json!("LoadBalancer")
    });
    world.up("web");
}

/// Between the look and the DELETE: what is protected stays, and the Service goes, as if it had been so before.
#[test]
fn protected_at_the_last_moment_it_stays_and_the_service_goes() {
    let world = World::new(1);
    let uid = world.create("web", &[], &[80]);
    world.settle(&[]);
    let id = world.of_uid(&uid).unwrap()["id"].as_u64().unwrap();
    let cloud = world.cloud().clone();
    let protect = Effect::before(move |_| {
        cloud.edit_load_balancer(id, |one| one["protection"]["delete"] = json!(true));
    });
    let delete = Rule::new(protect).method("DELETE").nth(1);
    world.faults().add(delete);
    world.delete("web");
    let ran = world.once(&[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(world.service("web"), None, "{ran:?}");
    assert!(world.of_uid(&uid).is_some());
    world.tells("web", "LoadBalancerProtected", &["protected"]);
    assert_eq!(world.told("web", "DeleteLoadBalancerFailed"), [""; 0]);
    assert_eq!(world.told("web", "DeletedLoadBalancer"), [""; 0]);
    assert!(!ran.stdout.contains("deleted"), "{ran:?}");
}

/// Its load balancer is there by then, and nobody's: whoever looks at the log finds it.
#[test]
fn a_service_that_goes_by_force_while_its_load_balancer_is_made_leaves_a_word() {
    let world = Arc::new(World::new(1));
    world.settle(&[]);
    world.create("web", &[], &[80]);
    let into = Arc::downgrade(&world);
    let force = Effect::after(move |_| {
        let world = into.upgrade().unwrap();
        world.edit("web", |service| {
            service["metadata"]["finalizers"] = json!([])
        });
        world.delete("web");
    });
    let create = Rule::new(force).method("POST").path("/v1/load_balancers");
    world.faults().add(create);
    let ran = world.once(&[]);
    assert_eq!(world.service("web"), None, "{ran:?}");
    let id = world.balancers()[0]["id"].as_u64().unwrap();
    let told = ran.stderr.lines().find(|line| line.contains("WARN"));
    let told = told.unwrap_or_else(|| panic!("{ran:?}"));
    let name = format!("kubernetes-default-web ({id})");
    assert!(
        told.contains("service/default/web") && told.contains(&name),
        "{told}"
    );
    world.faults().clear();
}

#[test]
fn changed_to_another_type_while_nobody_looked_it_is_cleaned_up_all_the_same() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.settle(&[]);
    assert_eq!(world.balancers().len(), 1);
    world.edit("web", |service| service["spec"]["type"] = json!("NodePort"));
    world.settle(&[]);
    assert_eq!(world.balancers().len(), 0);
    assert_eq!(world.addresses("web"), Vec::<String>::new());
}

#[test]
fn nothing_is_written_to_who_wants_nothing_of_us() {
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
    // Its end changes nothing about it.
    world.delete("theirs");
    world.ticks(4);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    for name in ["theirs", "going"] {
        let service = world.service(name).unwrap();
        let finalizers = len(&service["metadata"]["finalizers"]);
        assert_eq!(finalizers, 1, "{name}");
        assert_eq!(world.addresses(name), Vec::<String>::new());
    }
    assert_eq!(world.balancers().len(), 0);
}

#[test]
fn a_protected_load_balancer_is_kept_and_said_so() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80]);
    let id = world.up("web")["id"].as_u64().unwrap();
    let protect = |on| move |one: &mut serde_json::Value| one["protection"]["delete"] = json!(on);
    world.cloud().edit_load_balancer(id, protect(true));
    let mark = world.mark();
    world.delete("web");
    wait_until("its end", || world.service("web").is_none());
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    assert_eq!(world.balancers().len(), 1);
    world.tells(
        "web",
        "LoadBalancerProtected",
        &["protected", "costs money"],
    );
}

#[test]
fn two_with_the_label_are_named_and_neither_is_touched() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[], &[80]);
    let first = world.up("web");
    let cloud = world.cloud();
    let twin = json!({
        "name": "twin", "load_balancer_type": "lb11", "location": "fsn1",
        "labels": {"hcloud-ccm/service-uid": uid},
    });
    let twin = cloud.create_load_balancer(world.project(), twin);
    let mark = world.mark();
    world.annotate("web", "algorithm-type", Some("least_connections"));
    let names = [text(&first["name"]), format!("twin ({twin})")];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world.tells("web", "SyncLoadBalancerFailed", &names);
    world.delete("web");
    world.tells("web", "DeleteLoadBalancerFailed", &names);
    world.ticks(2);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    // Somebody decides which is the wrong one.
    cloud.edit_load_balancer(twin, |one| one["labels"] = json!({}));
    wait_until("its end", || world.service("web").is_none());
    assert_eq!(world.balancers().len(), 1);
}

#[test]
fn one_that_serves_nothing_is_told_wherever_somebody_looks() {
    let world = World::new(1);
    world.settle(&[]);
    let mut dns = service("dns", &[], &[53]);
    dns["spec"]["ports"][0]["protocol"] = json!("UDP");
    world.create_as(dns);
    for diff in ["create,no TCP port,", "no TCP port,"] {
        let list = common::ccm(&world.env, &["lb", "list"]).stdout;
        let row = list.lines().find(|line| line.starts_with("default/dns"));
        assert!(
            row.is_some_and(|row| row.contains(&format!("  {diff}UnsupportedProtocolConfigured"))),
            "{list}"
        );
        world.settle(&[]);
    }
    let says = ["serves nothing, and costs money"];
    world.tells("dns", "UnsupportedProtocolConfigured", &says);
    assert!(
        world.inspect("dns", &[])["findings"]
            .to_string()
            .contains(says[0])
    );
}
