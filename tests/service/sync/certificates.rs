//! Managed certificates from outside: ordered once, waited for, and never in the way of the rest.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, PROFILES, World, len};
use sandbox::Half;
use sandbox::exchange::{Handler, Request};
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MANAGED: &[(&str, &str)] = &[
    ("protocol.p443", "https"),
    ("certificate-type", "managed"),
    ("http-managed-certificate-domains", "example.com"),
];

fn certificates(world: &World) -> Vec<Value> {
    world.cloud().certificates(world.project())
}

/// The certificates that port 443 shows; null: there is no such port.
fn shows(balancer: &Value) -> Value {
    let services = balancer["services"].as_array().unwrap().iter();
    let mut https = services.filter(|one| one["listen_port"] == 443);
    https
        .next()
        .map_or(Value::Null, |one| one["http"]["certificates"].clone())
}

#[test]
fn the_address_and_the_other_port_are_there_while_a_certificate_is_issued() {
    for profile in PROFILES {
        let world = World::new(2);
        let cloud = world.cloud();
        // Two seconds, scaled.
        cloud.set_action_duration("create_certificate", Some(Duration::from_secs(100)));
        let daemon = world.daemon(&[profile, NO_RESYNC]);
        let uid = world.create("web", MANAGED, &[80, 443]);
        let balancer = world.up("web");
        assert_eq!(certificates(&world)[0]["status"]["issuance"], "pending");
        assert_eq!(
            (len(&balancer["services"]), shows(&balancer)),
            (1, Value::Null)
        );
        world.tells(
            "web",
            "CertificatePending",
            &["port 443 waits", "ccm-managed-certificate-"],
        );
        world.tells("web", "EnsuredLoadBalancer", &[]);
        wait_until("port 443", || {
            !shows(&world.of_uid(&uid).unwrap()).is_null()
        });
        let all = certificates(&world);
        let id = all[0]["id"].clone();
        assert_eq!(
            (all.len(), shows(&world.of_uid(&uid).unwrap())),
            (1, json!([id]))
        );
        // Nothing was sent that the API refuses, and nothing failed.
        let refused = world.cloud_calls(0);
        let refused: Vec<_> = refused
            .iter()
            .filter(|call| call.status >= Some(400))
            .collect();
        assert!(refused.is_empty(), "{refused:?}");
        assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
        assert_eq!(
            world.told("web", "SyncLoadBalancerFailed"),
            Vec::<String>::new()
        );
        // And then all is quiet.
        world.ticks(15);
        let mark = world.mark();
        world.ticks(20);
        let calls = world.cloud_calls(mark);
        let nodes_only = calls.iter().all(|call| call.path == "/v1/servers");
        assert!(nodes_only, "{calls:#?}");
        world.nothing_refused();
    }
}

#[test]
fn a_failed_issuance_is_told_and_its_port_comes_once_it_was_mended() {
    let world = World::new(1);
    let (cloud, project) = (world.cloud(), world.project());
    cloud.set_dns_zones(project, &["another.example"]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", MANAGED, &[80, 443]);
    world.up("web");
    world.tells(
        "web",
        "CertificateFailed",
        &[
            "port 443 waits",
            "DNS zone of example.com not found",
            "dns_zone_not_found",
            "hcloud certificate retry",
        ],
    );
    // The rest goes on.
    world.annotate("web", "algorithm-type", Some("least_connections"));
    wait_until("the algorithm", || {
        world.of_uid(&uid).unwrap()["algorithm"]["type"] == "least_connections"
    });
    cloud.set_dns_zones(project, &["example.com"]);
    cloud.retry_certificate(certificates(&world)[0]["id"].as_u64().unwrap());
    wait_until("port 443", || {
        !shows(&world.of_uid(&uid).unwrap()).is_null()
    });
    assert_eq!(certificates(&world).len(), 1);
}

#[test]
fn an_order_that_is_refused_keeps_nothing_else_from_being_made() {
    let world = World::new(1);
    let refused = Rule::new(Effect::hetzner_error(
        403,
        "resource_limit_exceeded",
        "too many certificates",
    ))
    .half(Half::Hetzner)
    .method("POST")
    .path("/v1/certificates");
    let rule = world.faults().add(refused);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", MANAGED, &[80, 443]);
    world.up("web");
    world.tells(
        "web",
        "SyncLoadBalancerFailed",
        &["POST", "/certificates", "too many certificates"],
    );
    assert_eq!(len(&world.of_uid(&uid).unwrap()["services"]), 1);
    world.faults().remove(rule);
    wait_until("port 443", || {
        !shows(&world.of_uid(&uid).unwrap()).is_null()
    });
}

#[test]
fn an_order_whose_answer_is_lost_is_not_made_twice() {
    common::side_by_side(crate::sync::LOST_ANSWERS.to_vec(), |fault| {
        let world = World::new(1);
        let lost = Rule::new(fault())
            .half(Half::Hetzner)
            .method("POST")
            .path("/v1/certificates")
            .times(1);
        world.faults().add(lost);
        let _daemon = world.daemon(&[NO_RESYNC]);
        let uid = world.create("web", MANAGED, &[80, 443]);
        world.up("web");
        wait_until("port 443", || {
            !shows(&world.of_uid(&uid).unwrap()).is_null()
        });
        assert_eq!(certificates(&world).len(), 1);
    });
}

/// Somebody else's has the name.
#[test]
fn a_name_that_is_taken_is_an_error_that_says_whose() {
    let world = World::new(1);
    let (cloud, project) = (world.cloud(), world.project());
    let labels =
        json!({"ccm-from-scratch/cluster-uid": "another", "hcloud-ccm/service-uid": "theirs"});
    cloud.create_certificate(
        project,
        json!({"name": "front", "type": "managed", "domain_names": ["example.com"], "labels": labels}),
    );
    let _daemon = world.daemon(&[NO_RESYNC]);
    let named = [MANAGED, &[("http-managed-certificate-name", "front")]].concat();
    world.create("web", &named, &[80, 443]);
    world.tells(
        "web",
        "SyncLoadBalancerFailed",
        &["front", "says cluster another", "choose another name"],
    );
    assert_eq!(certificates(&world)[0]["labels"], labels);
    assert_eq!(world.balancers().len(), 0);
    world.annotate("web", "http-managed-certificate-name", Some("own"));
    world.up("web");
    assert_eq!(certificates(&world).len(), 2);
}

/// Both see it free in the same look.
#[test]
fn of_two_services_that_ask_for_a_free_certificate_one_gets_it() {
    let world = World::new(1);
    let (cloud, project) = (world.cloud(), world.project());
    let labels = json!({"hcloud-ccm/service-uid": "gone"});
    cloud.create_certificate(
        project,
        json!({"name": "front", "type": "managed", "domain_names": ["example.com"], "labels": labels}),
    );
    let named = [MANAGED, &[("http-managed-certificate-name", "front")]].concat();
    let uids = ["first", "second"].map(|name| world.create(name, &named, &[443]));
    let ran = world.once(&[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let whose = certificates(&world)[0]["labels"]["hcloud-ccm/service-uid"].clone();
    assert_eq!(whose, json!(uids[0]));
    let taken_over = |call: &&String| call.starts_with("PUT /certificates");
    assert_eq!(world.cloud_writes(0).iter().filter(taken_over).count(), 1);
    world.tells(
        "second",
        "SyncLoadBalancerFailed",
        &["front", &uids[0], "choose another name"],
    );
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
    let faster = Rule::new(Effect::before(made))
        .half(Half::Hetzner)
        .method("POST")
        .path("/v1/certificates")
        .times(1);
    world.faults().add(faster);
    world.settle(&[]);
    let uid = world.create("web", MANAGED, &[80, 443]);
    world.settle(&[]);
    assert_eq!(certificates(&world).len(), 1);
    assert!(!shows(&world.of_uid(&uid).unwrap()).is_null());
    assert_eq!(
        world.told("web", "SyncLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

/// The API replaces the whole map of labels.
#[test]
fn a_label_that_a_certificate_gets_after_the_list_is_kept() {
    let world = Arc::new(World::new(1));
    let (cloud, project) = (Arc::clone(world.cloud()), world.project());
    let labels = json!({"hcloud-ccm/service-uid": "gone", "team": "0"});
    let id = cloud.create_certificate(
        project,
        json!({"name": "front", "type": "managed", "domain_names": ["example.com"], "labels": labels}),
    );
    let token = format!("Bearer {}", world.projects().token);
    let set_team = move |labels: &mut Value| {
        let lists = labels["team"].as_str().unwrap().parse::<u64>().unwrap();
        labels["team"] = json!((lists + 1).to_string());
        let answer = cloud.handle(&Request {
            method: "PUT".into(),
            path: format!("/v1/certificates/{id}"),
            headers: [
                ("authorization", token.as_str()),
                ("content-type", "application/json"),
            ]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
            body: json!({ "labels": labels }).to_string().into_bytes(),
            ..Request::default()
        });
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    // After each list an operator changes a label.
    let into = Arc::downgrade(&world);
    let hand = Effect::after(move |_| {
        if let Some(world) = into.upgrade() {
            set_team(&mut certificates(&world)[0]["labels"]);
        }
    });
    let list = Rule::new(hand).half(Half::Hetzner).method("GET");
    let list = world.faults().add(list.path("/v1/certificates"));
    world.settle(&[]);
    let named = [MANAGED, &[("http-managed-certificate-name", "front")]].concat();
    let uid = world.create("web", &named, &[443]);
    let ran = world.once(&[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let labels = &certificates(&world)[0]["labels"];
    assert_eq!(labels["hcloud-ccm/service-uid"], json!(uid));
    let lists = world.faults().hits(list);
    assert_eq!(labels["team"], json!(lists.to_string()));
}
