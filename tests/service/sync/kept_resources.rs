//! Resources that outlive a Service: its Primary IP, its managed certificate, its name.

use crate::common::{self, on};
use crate::sync::world::{
    CLUSTER_UID, Cluster, NO_RESYNC, PROFILES, SERVICE_UID, World, service, text,
};
use sandbox::calls::Call;
use sandbox::faults::Effect;
use serde_json::{Value, json};

/// Creates a free Primary IP. Returns its ID and its address.
fn primary_ip(world: &World, name: &str) -> (u64, String) {
    let (cloud, project) = (world.cloud(), world.project());
    let body =
        json!({"name": name, "type": "ipv4", "location": "fsn1", "assignee_type": "load_balancer"});
    let id = cloud.create_primary_ip(project, body);
    let all = cloud.primary_ips(project);
    let one = all.iter().find(|one| one["id"] == id).unwrap();
    (id, text(&one["ip"]))
}

fn certificate(world: &World) -> Value {
    let mut all = world.certificates();
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[test]
fn a_recreated_service_has_its_address_its_certificate_and_its_name() {
    // The certificate is created with and without a name.
    let names = [Some("front"), None];
    let cases = names.iter().flat_map(|name| PROFILES.map(|profile| (*name, profile)));
    common::run_in_parallel(cases.collect(), |(name, profile)| {
        let world = World::new(1);
        let (id, address) = primary_ip(&world, "kept");
        let (by_id, is_ours) = (id.to_string(), profile == PROFILES[0]);
        let mut annotations = vec![
            ("name", "front"),
            ("public-net-ipv4", if is_ours { "kept" } else { &by_id }),
            ("protocol.p443", "https"),
            ("certificate-type", "managed"),
            ("http-managed-certificate-domains", "example.com"),
        ];
        annotations.extend(name.map(|name| ("http-managed-certificate-name", name)));
        let _daemon = world.daemon(&[profile, NO_RESYNC]);
        world.create("web", &annotations, &[80, 443]);
        world.has_https("web");
        world.up("web");
        assert_eq!(world.addresses("web")[0], address);
        let before = certificate(&world);
        world.delete_and_wait("web");
        assert_eq!(world.balancers().len(), 0);

        let second = world.create("web", &annotations, &[80, 443]);
        world.has_https("web");
        assert_eq!(world.up("web")["name"], "front");
        assert_eq!(world.addresses("web")[0], address);
        let after = certificate(&world);
        assert_eq!(after["id"], before["id"], "{name:?} {profile}");
        assert_eq!(after["labels"][SERVICE_UID], second);
    });
}

/// The address is assigned to the load balancer of the old Service for a moment longer.
#[test]
fn an_address_that_is_still_taken_is_waited_for() {
    let world = World::new(1);
    let (_, address) = primary_ip(&world, "kept");
    let _daemon = world.daemon(&[NO_RESYNC]);
    for by_field in [false, true] {
        let kept = [("public-net-ipv4", "kept")];
        world.create("old", &kept, &[80]);
        world.up("old");
        let mut new = service("new", &kept, &[80]);
        if by_field {
            new = service("new", &[], &[80]);
            new["spec"]["loadBalancerIP"] = json!(address);
        }
        world.create_as(new);
        let says = [
            "Primary IP \"kept\"",
            &address,
            "is already assigned to load balancer \"kubernetes-default-old\"",
            "name another",
        ];
        world.wait_for_event("new", "SyncLoadBalancerFailed", &says);
        assert_eq!(world.balancers().len(), 1);
        world.delete("old");
        world.up("new");
        assert_eq!(world.addresses("new")[0], address);
        world.delete_and_wait("new");
    }
}

/// Somebody took the Primary IP after it was seen to be free.
#[test]
fn a_refused_primary_ip_is_reported_with_what_to_do() {
    let world = World::new(1);
    let (_, address) = primary_ip(&world, "kept");
    let refused = on(
        "POST /v1/load_balancers",
        Effect::hetzner_error(422, "primary_ip_assigned", "primary IP is already assigned"),
    )
    .times(1);
    world.faults().add(refused);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[("public-net-ipv4", "kept")], &[80]);
    let says = [
        "primary IP is already assigned (primary_ip_assigned",
        "unassign the Primary IP where it is used, or name another",
    ];
    world.wait_for_event("web", "SyncLoadBalancerFailed", &says);
    world.up("web");
    assert_eq!(world.addresses("web")[0], address);
    assert_eq!(world.balancers().len(), 1);
}

#[test]
fn primary_ips_are_read_only_to_make_a_load_balancer_that_wants_one() {
    let world = World::new(1);
    primary_ip(&world, "kept");
    let reads = |mark| {
        let calls = world.cloud_calls(mark);
        let is_read = |call: &&Call| call.path == "/v1/primary_ips";
        calls.iter().filter(is_read).count()
    };
    // Comparisons of all, every fifth of a second.
    let _daemon = world.daemon(&[crate::sync::world::OFTEN]);
    world.create("other", &[], &[80]);
    world.up("other");
    assert_eq!(reads(0), 0);
    world.create("web", &[("public-net-ipv4", "kept")], &[80]);
    world.up("web");
    // The Primary IPs are read for the proposal and for the creation.
    let made = reads(0);
    assert!((1..=2).contains(&made), "{made}");
    world.annotate("web", "algorithm-type", Some("least_connections"));
    world.ticks(20);
    assert_eq!(reads(0), made);
    // A person who inspects the Service is told what the existing load balancer can't have.
    world.annotate("web", "public-net-ipv4", Some("nobody"));
    let findings = world.inspect("web", &[])["findings"].to_string();
    let says = "delete the Service and create it again";
    assert!(findings.contains(says), "{findings}");
    assert!(reads(0) > made);
}

/// Nobody deletes the certificate, so a person should know about it.
#[test]
fn a_certificate_that_no_service_wants_any_more_is_listed() {
    let world = World::new(1);
    let list = || world.ccm(&["lb", "list"]).stdout;
    let json = |words: &[&str]| world.ccm(&[&["lb", "list", "-o=json"], words].concat());
    world.converge(&[]);
    let managed = [
        ("protocol", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-domains", "example.com"),
    ];
    world.create("web", &managed, &[443]);
    world.converge(&[]);
    let shown = list();
    assert!(shown.contains("default/web"), "{shown}");
    assert!(!shown.contains("Kept"), "{shown}");
    assert_eq!(json(&[]).json()["kept"], json!([]));
    let certificate = certificate(&world);
    world.create_certificate(json!({
        "name": "theirs", "type": "managed", "domain_names": ["example.com"],
        "labels": {CLUSTER_UID: "another", SERVICE_UID: "theirs"},
    }));
    world.delete("web");
    world.converge(&[]);
    let shown = list();
    let words = common::one_line(&shown);
    let expected = format!(
        "Kept, because an annotation of their deleted Service asked for this: certificate {:?} ({}), for example.com",
        text(&certificate["name"]),
        certificate["id"]
    );
    assert_eq!(words, expected);
    assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
    let shown = json(&[]).json();
    let (id, name) = (&certificate["id"], &certificate["name"]);
    let kept = json!([{"kind": "Certificate", "id": id, "name": name, "domains": ["example.com"]}]);
    assert_eq!((&shown["kept"], &shown["items"]), (&kept, &json!([])));
    // A namespace without certificates costs no call for them.
    assert_eq!(json(&["-n", "default"]).json().get("kept"), None);
    let error = Effect::hetzner_error(500, "server_error", "not today");
    let rule = on("/v1/certificates", error);
    world.faults().add(rule);
    let ran = json(&[]);
    let ran = ran.with_code(0);
    assert_eq!(ran.json().get("kept"), Some(&Value::Null), "{ran:?}");
    ran.warns("the kept load balancers and certificates of deleted Services can't be read: ");
    ran.warns("not today");
}
