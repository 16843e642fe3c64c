//! What outlives a Service: its Primary IP, its managed certificate, its name.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, PROFILES, World, text};
use sandbox::Half;
use sandbox::calls::Call;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};

/// A free Primary IP; its ID and address.
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
    let mut all = world.cloud().certificates(world.project());
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn has_https(world: &World, uid: &str) -> bool {
    let balancer = world.of_uid(uid).unwrap_or_default();
    let services = balancer["services"].as_array().cloned().unwrap_or_default();
    services.iter().any(|one| one["listen_port"] == 443)
}

#[test]
fn a_service_made_again_has_its_address_its_certificate_and_its_name() {
    // With a name for the certificate, and without.
    let names = [Some("front"), None];
    let cases = names
        .iter()
        .flat_map(|name| PROFILES.map(|profile| (*name, profile)));
    common::side_by_side(cases.collect(), |(name, profile)| {
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
        let first = world.create("web", &annotations, &[80, 443]);
        wait_until("port 443", || has_https(&world, &first));
        world.up("web");
        assert_eq!(world.addresses("web")[0], address);
        let before = certificate(&world);
        world.delete("web");
        wait_until("its end", || world.service("web").is_none());
        assert_eq!(world.balancers().len(), 0);

        let second = world.create("web", &annotations, &[80, 443]);
        wait_until("port 443", || has_https(&world, &second));
        world.up("web");
        assert_eq!(world.addresses("web")[0], address);
        assert_eq!(world.of_uid(&second).unwrap()["name"], "front");
        let after = certificate(&world);
        assert_eq!(after["id"], before["id"], "{name:?} {profile}");
        assert_eq!(after["labels"]["hcloud-ccm/service-uid"], json!(second));
    });
}

/// It is assigned to the load balancer of the old one for a moment longer.
#[test]
fn an_address_that_is_still_taken_is_waited_for() {
    let world = World::new(1);
    let (_, address) = primary_ip(&world, "kept");
    let _daemon = world.daemon(&[NO_RESYNC]);
    for by_field in [false, true] {
        let annotations: &[(&str, &str)] = if by_field {
            &[]
        } else {
            &[("public-net-ipv4", "kept")]
        };
        world.create("old", &[("public-net-ipv4", "kept")], &[80]);
        world.up("old");
        let mut new = crate::sync::world::service("new", annotations, &[80]);
        if by_field {
            new["spec"]["loadBalancerIP"] = json!(address);
        }
        world.create_as(new);
        world.tells(
            "new",
            "SyncLoadBalancerFailed",
            &[
                "Primary IP kept",
                &address,
                "is assigned to load balancer kubernetes-default-old",
                "choose another",
            ],
        );
        assert_eq!(world.balancers().len(), 1);
        world.delete("old");
        world.up("new");
        assert_eq!(world.addresses("new")[0], address);
        world.delete("new");
        wait_until("its end", || world.service("new").is_none());
    }
}

/// Whose label selects them: the others are as if they were not there, and no message names one.
#[test]
fn only_selected_addresses_are_claimed() {
    const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR";
    let mut world = World::new(1);
    world.env = common::with(world.env, &[(SELECTOR, "use=services")]);
    let (cloud, project) = (world.cloud().clone(), world.project());
    for (name, labels) in [("ours", json!({"use": "services"})), ("gateway", json!({}))] {
        let body = json!({"name": name, "type": "ipv4", "location": "fsn1", "labels": labels});
        cloud.create_primary_ip(project, body);
    }
    let all = cloud.primary_ips(project);
    let ip_of = |name: &str| text(&all.iter().find(|one| one["name"] == name).unwrap()["ip"]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let reserved = ip_of("gateway");
    for (name, asked) in [("by-name", "gateway"), ("by-ip", reserved.as_str())] {
        world.create(name, &[("public-net-ipv4", asked)], &[80]);
        let says = format!(
            "the project has no Primary IP {asked:?} that Services may claim (environment {SELECTOR})"
        );
        world.tells(name, "SyncLoadBalancerFailed", &[&says]);
    }
    assert_eq!(world.balancers().len(), 0);
    world.create("web", &[("public-net-ipv4", "ours")], &[80]);
    world.up("web");
    assert_eq!(world.addresses("web")[0], ip_of("ours"));
}

/// Somebody took it after it was seen to be free.
#[test]
fn what_the_api_refuses_is_said_with_what_to_do() {
    let world = World::new(1);
    let (_, address) = primary_ip(&world, "kept");
    let refused = Rule::new(Effect::hetzner_error(
        422,
        "primary_ip_assigned",
        "primary IP is already assigned",
    ))
    .half(Half::Hetzner)
    .method("POST")
    .path("/v1/load_balancers")
    .times(1);
    world.faults().add(refused);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[("public-net-ipv4", "kept")], &[80]);
    world.tells(
        "web",
        "SyncLoadBalancerFailed",
        &[
            "primary IP is already assigned (primary_ip_assigned",
            "free the Primary IP, or choose another",
        ],
    );
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
    // To propose it, and to make it.
    let made = reads(0);
    assert!((1..=2).contains(&made), "{made}");
    world.annotate("web", "algorithm-type", Some("least_connections"));
    world.ticks(20);
    assert_eq!(reads(0), made);
    // Who looks is told what the one that is there can't have.
    world.annotate("web", "public-net-ipv4", Some("nobody"));
    let item = world.inspect("web", &[]);
    let findings = item["findings"].to_string();
    assert!(
        findings.contains("delete the Service and make it again"),
        "{findings}"
    );
    assert!(reads(0) > made);
}

/// Nobody deletes it, so somebody should know.
#[test]
fn a_certificate_that_no_service_wants_any_more_is_listed() {
    let world = World::new(1);
    let list = || common::ccm(&world.env, &["lb", "list"]).stdout;
    let json =
        |words: &[&str]| common::ccm(&world.env, &[&["lb", "list", "-o=json"], words].concat());
    world.settle(&[]);
    let managed = [
        ("protocol", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-domains", "example.com"),
    ];
    world.create("web", &managed, &[443]);
    world.settle(&[]);
    let shown = list();
    assert!(
        shown.contains("default/web") && !shown.contains("Kept"),
        "{shown}"
    );
    assert_eq!(json(&[]).json()["kept"], json!([]));
    let certificate = certificate(&world);
    let (cloud, project) = (world.cloud(), world.project());
    let theirs =
        json!({"ccm-from-scratch/cluster-uid": "another", "hcloud-ccm/service-uid": "theirs"});
    cloud.create_certificate(
        project,
        json!({"name": "theirs", "type": "managed", "domain_names": ["example.com"], "labels": theirs}),
    );
    world.delete("web");
    world.settle(&[]);
    let shown = list();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = format!(
        "Kept, although no Service wants it any more: certificate {} ({}), for example.com",
        text(&certificate["name"]),
        certificate["id"]
    );
    assert_eq!(words, expected);
    assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
    let shown = json(&[]).json();
    let expected = json!([{
        "kind": "Certificate",
        "id": certificate["id"],
        "name": certificate["name"],
        "domains": ["example.com"],
    }]);
    assert_eq!((&shown["kept"], &shown["items"]), (&expected, &json!([])));
    // Of one namespace nobody asks for what has none.
    assert_eq!(json(&["-n", "default"]).json().get("kept"), None);
    let error = Effect::hetzner_error(500, "server_error", "not today");
    let rule = Rule::new(error).path("/v1/certificates");
    world.faults().add(rule);
    let ran = json(&[]);
    assert_eq!(
        (ran.code, &ran.json()["kept"]),
        (0, &Value::Null),
        "{ran:?}"
    );
    assert!(ran.json().get("kept").is_some(), "{ran:?}");
    let why = "what is kept could not be read: ";
    assert!(
        ran.stderr.contains(why) && ran.stderr.contains("not today"),
        "{ran:?}"
    );
}
