//! Managed certificates from outside: they are ordered once, waited for, and delay nothing else.

use crate::common::{self, on};
use crate::sync::world::{Cluster, NO_RESYNC, PROFILES, SERVICE_UID, World, id, listen_ports};
use sandbox::exchange::{Handler, Request};
use sandbox::faults::Effect;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MANAGED: &[(&str, &str)] = &[
    ("protocol.p443", "https"),
    ("certificate-type", "managed"),
    ("http-managed-certificate-domains", "example.com"),
];

const ORDER: &str = "POST /v1/certificates";

/// A certificate called `front` that somebody else ordered, with these labels.
fn front(world: &World, labels: &Value) -> u64 {
    world.create_certificate(json!({
        "name": "front", "type": "managed", "domain_names": ["example.com"], "labels": labels,
    }))
}

/// A Service with ports 80 and 443 that asks for the certificate called `front`.
fn create_named(world: &World, name: &str) -> String {
    let named = [MANAGED, &[("http-managed-certificate-name", "front")]].concat();
    world.create(name, &named, &[80, 443])
}

#[test]
fn the_address_and_the_other_port_are_there_while_a_certificate_is_issued() {
    for profile in PROFILES {
        let world = World::new(2);
        let cloud = world.cloud();
        // This takes eight seconds in scaled time, so that the address is there before on a slow API server, too.
        cloud.set_action_duration("create_certificate", Some(Duration::from_secs(400)));
        let daemon = world.daemon(&[profile, NO_RESYNC]);
        world.create("web", MANAGED, &[80, 443]);
        let balancer = world.up("web");
        assert_eq!(world.certificates()[0]["status"]["issuance"], "pending");
        assert_eq!(listen_ports(&balancer), [80]);
        let says = ["port 443 waits", "ccm-managed-certificate-"];
        world.wait_for_event("web", "CertificatePending", &says);
        world.wait_for_event("web", "EnsuredLoadBalancer", &[]);
        world.has_https("web");
        let all = world.certificates();
        assert_eq!(all.len(), 1);
        assert_eq!(world.shown("web"), Some(vec![id(&all[0])]));
        // No call was refused, and nothing failed.
        let mut refused = world.cloud_calls(0);
        refused.retain(|call| call.status >= Some(400));
        assert!(refused.is_empty(), "{refused:?}");
        assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
        assert_eq!(world.event_messages("web", "SyncLoadBalancerFailed"), [""; 0]);
        // After that there are no more writes.
        world.ticks(15);
        let mark = world.mark();
        world.ticks(20);
        let calls = world.cloud_calls(mark);
        let nodes_only = calls.iter().all(|call| call.path == "/v1/servers");
        assert!(nodes_only, "{calls:#?}");
        world.assert_nothing_refused();
    }
}

#[test]
fn a_failed_issuance_is_reported_and_its_port_is_added_once_it_is_corrected() {
    let world = World::new(1);
    let (cloud, project) = (world.cloud(), world.project());
    cloud.set_dns_zones(project, &["another.example"]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", MANAGED, &[80, 443]);
    world.up("web");
    let says = [
        "port 443 waits",
        "DNS zone of example.com not found",
        "dns_zone_not_found",
        "hcloud certificate retry",
    ];
    world.wait_for_event("web", "CertificateFailed", &says);
    // The rest goes on.
    world.change_algorithm("web");
    cloud.set_dns_zones(project, &["example.com"]);
    cloud.retry_certificate(id(&world.certificates()[0]));
    world.has_https("web");
    assert_eq!(world.certificates().len(), 1);
}

#[test]
fn a_refused_order_does_not_prevent_the_other_changes() {
    let world = World::new(1);
    let limit = Effect::hetzner_error(403, "resource_limit_exceeded", "too many certificates");
    let rule = world.faults().add(on(ORDER, limit));
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", MANAGED, &[80, 443]);
    world.up("web");
    let says = ["POST", "/certificates", "too many certificates"];
    world.wait_for_event("web", "SyncLoadBalancerFailed", &says);
    assert_eq!(listen_ports(&world.balancer("web")), [80]);
    world.faults().remove(rule);
    world.has_https("web");
}

#[test]
fn an_order_whose_answer_is_lost_is_not_made_twice() {
    common::run_in_parallel(crate::sync::LOST_ANSWERS.to_vec(), |fault| {
        let world = World::new(1);
        world.faults().add(on(ORDER, fault()).times(1));
        let _daemon = world.daemon(&[NO_RESYNC]);
        world.create("web", MANAGED, &[80, 443]);
        world.has_https("web");
        assert_eq!(world.certificates().len(), 1);
    });
}

/// Both Services see in the same list that the certificate is free.
#[test]
fn one_of_two_services_that_ask_for_a_free_certificate_gets_it() {
    let world = World::new(1);
    front(&world, &json!({SERVICE_UID: "gone"}));
    let uids = ["first", "second"].map(|name| create_named(&world, name));
    let ran = world.once(&[]).with_code(1);
    let labels = &world.certificates()[0]["labels"];
    assert_eq!(labels[SERVICE_UID], uids[0], "{}", ran.stderr);
    let taken_over = |call: &&String| call.starts_with("PUT /certificates");
    assert_eq!(world.cloud_writes(0).iter().filter(taken_over).count(), 1);
    let says = ["front", &uids[0], "Choose another name"];
    world.wait_for_event("second", "SyncLoadBalancerFailed", &says);
    assert_eq!(world.of_uid(&uids[1]), None);
}

/// Another one was faster, as when an old and a new pod overlap.
#[test]
fn an_order_that_somebody_else_made_meanwhile_is_no_failure() {
    let world = World::new(1);
    let (cloud, project) = (Arc::clone(world.cloud()), world.project());
    let made = move |request: &Request| {
        let body = serde_json::from_slice(&request.body).unwrap();
        cloud.create_certificate(project, body);
    };
    let faster = on(ORDER, Effect::before(made)).times(1);
    world.faults().add(faster);
    world.converge(&[]);
    world.create("web", MANAGED, &[80, 443]);
    world.converge(&[]);
    assert_eq!(world.certificates().len(), 1);
    assert!(world.shown("web").is_some());
    assert_eq!(world.event_messages("web", "SyncLoadBalancerFailed"), [""; 0]);
}

/// The API replaces the whole map of labels.
#[test]
fn a_label_that_a_certificate_gets_after_the_list_is_kept() {
    let world = World::new(1);
    let cloud = Arc::clone(world.cloud());
    let id = front(&world, &json!({SERVICE_UID: "gone", "team": "0"}));
    let token = format!("Bearer {}", world.projects().token);
    let set_team = move |labels: &mut Value| {
        let lists = labels["team"].as_str().unwrap().parse::<u64>().unwrap();
        labels["team"] = json!((lists + 1).to_string());
        let answer = cloud.handle(&Request {
            method: "PUT".into(),
            path: format!("/v1/certificates/{id}"),
            headers: [("authorization", token.as_str()), ("content-type", "application/json")]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            body: json!({ "labels": labels }).to_string().into_bytes(),
            ..Request::default()
        });
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    // An operator changes a label after each list.
    let sandbox = Arc::downgrade(&world.sandbox);
    let manual_change = Effect::after(move |_| {
        if let Some(sandbox) = sandbox.upgrade() {
            set_team(&mut sandbox.certificates()[0]["labels"]);
        }
    });
    let list = world.faults().add(on("GET /v1/certificates", manual_change));
    world.converge(&[]);
    let uid = create_named(&world, "web");
    world.once(&[]).with_code(0);
    let labels = &world.certificates()[0]["labels"];
    assert_eq!(labels[SERVICE_UID], uid);
    let lists = world.faults().hits(list);
    assert_eq!(labels["team"], json!(lists.to_string()));
}
