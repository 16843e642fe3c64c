//! Services of several namespaces and their certificates, from outside: no tenant shows another one's, keeps another one
//! from showing its own, or uses up what is watched for all.

use crate::common::{self, wait_until};
use crate::sync::tls_secrets::{allow_in, certificates, fresh, put_in};
use crate::sync::world::{Cluster, NO_RESYNC, World, service, text};
use sandbox::credentials::Identity;
use serde_json::{Value, json};

const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR";
const DOMAINS: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS";

/// Annotations of a Service of `default`.
const FROM_SECRET: &[(&str, &str)] = &[
    ("protocol.p443", "https"),
    ("http-tls-secret.p443", "web-tls"),
];

fn create_in(
    world: &World,
    namespace: &str,
    name: &str,
    annotations: &[(&str, &str)],
    ports: &[u16],
) -> String {
    let cluster = world.cluster();
    let meta =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    if cluster.get("namespaces", None, namespace).is_none() {
        cluster.create("namespaces", None, meta);
    }
    let mut one = service(name, annotations, ports);
    one["metadata"]["namespace"] = json!(namespace);
    let created = cluster.create("services", Some(namespace), one);
    text(&created["metadata"]["uid"])
}

/// IDs that a port of the Service shows; none: it is not there.
fn shown(world: &World, uid: &str, port: u16) -> Option<Vec<u64>> {
    let balancer = world.of_uid(uid)?;
    let ports = balancer["services"].as_array().unwrap().iter();
    let mut ports = ports.filter(|one| one["listen_port"] == port);
    let ids = ports.next()?["http"]["certificates"].as_array().cloned();
    let ids = ids.unwrap_or_default();
    Some(ids.iter().filter_map(Value::as_u64).collect())
}

fn put_tls(world: &World, namespace: &str, name: &str, identity: &Identity) {
    let (certificate, key) = (&identity.certificate_pem, &identity.key_pem);
    put_in(
        world,
        namespace,
        name,
        "kubernetes.io/tls",
        certificate,
        key,
    );
}

fn is_there(world: &World, uid: &str, port: u16) -> bool {
    shown(world, uid, port).is_some()
}

#[test]
fn a_certificate_that_was_uploaded_from_a_secret_is_not_shown_by_another_namespace() {
    let world = World::new(1);
    allow_in(&world, "default");
    put_tls(&world, "default", "web-tls", &fresh());
    let _daemon = world.daemon(&[NO_RESYNC]);
    let owner = world.create("web", FROM_SECRET, &[80, 443]);
    wait_until("port 443", || is_there(&world, &owner, 443));
    let uploaded = certificates(&world)[0].clone();
    for (service, named) in [
        ("by-id", uploaded["id"].to_string()),
        ("by-name", text(&uploaded["name"])),
    ] {
        let annotations = [
            ("protocol.p443", "https"),
            ("http-certificates.p443", named.as_str()),
        ];
        let thief = create_in(&world, "hostile", service, &annotations, &[80, 443]);
        let says = format!("{named:?} can't be used by Services of namespace hostile");
        world.tells(service, "CertificateFailed", &["port 443", &says]);
        wait_until("port 80", || is_there(&world, &thief, 80));
        assert_eq!(shown(&world, &thief, 443), None);
        // One of the same namespace may name it.
        let friend = world.create(&format!("{service}-too"), &annotations, &[443]);
        wait_until("port 443", || is_there(&world, &friend, 443));
    }
    world.nothing_refused();
}

/// It is ordered under the name that the upload is to get.
#[test]
fn a_managed_certificate_with_the_name_of_an_upload_keeps_no_port_from_being_served() {
    let world = World::new(1);
    allow_in(&world, "default");
    put_tls(&world, "default", "web-tls", &fresh());
    world.create("web", FROM_SECRET, &[80, 443]);
    world.settle(&[]);
    let uploaded = certificates(&world)[0].clone();
    world.delete("web");
    world.settle(&[]);
    assert_eq!(certificates(&world), [json!(null); 0]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let name = text(&uploaded["name"]);
    let annotations = [
        ("protocol.p443", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-name", name.as_str()),
        ("http-managed-certificate-domains", "example.com"),
    ];
    let thief = create_in(&world, "hostile", "thief", &annotations, &[443]);
    wait_until("the name is taken", || is_there(&world, &thief, 443));
    let owner = world.create("web", FROM_SECRET, &[80, 443]);
    wait_until("port 443", || is_there(&world, &owner, 443));
    let all = certificates(&world);
    let own = all.iter().find(|one| one["type"] == "uploaded").unwrap();
    assert_eq!(own["labels"]["ccm-from-scratch/secret"], "default.web-tls");
    assert_eq!(
        shown(&world, &owner, 443),
        own["id"].as_u64().map(|id| vec![id])
    );
    assert_eq!(all.len(), 2);
    let mark = world.mark();
    world.ticks(10);
    assert_eq!(world.cloud_writes(mark), [""; 0]);
    // And it goes with its Service.
    world.delete("web");
    wait_until("its end", || certificates(&world).len() == 1);
    world.nothing_refused();
}

#[test]
fn only_selected_certificates_may_be_named() {
    let mut world = World::new(1);
    world.env = common::with(world.env, &[(SELECTOR, "use=services")]);
    allow_in(&world, "default");
    put_tls(&world, "default", "web-tls", &fresh());
    let (cloud, project) = (world.cloud().clone(), world.project());
    for (name, labels) in [
        ("bought", json!({"use": "services"})),
        ("gateway", json!({})),
    ] {
        let one = fresh();
        cloud.create_certificate(
            project,
            json!({"name": name, "certificate": one.certificate_pem, "private_key": one.key_pem, "labels": labels}),
        );
    }
    let daemon = world.daemon(&[NO_RESYNC]);
    let named = |name| [("protocol.p443", "https"), ("http-certificates.p443", name)];
    let uid = world.create("refused", &named("gateway"), &[80, 443]);
    let says = format!("that Services may use (environment {SELECTOR})");
    world.tells("refused", "CertificateFailed", &["\"gateway\"", &says]);
    world.up("refused");
    assert_eq!(shown(&world, &uid, 443), None);
    let uid = world.create("allowed", &named("bought"), &[443]);
    wait_until("port 443", || is_there(&world, &uid, 443));
    // Those of Secrets, and the Service's own, are no others.
    let uid = world.create("web", FROM_SECRET, &[80, 443]);
    wait_until("port 443", || is_there(&world, &uid, 443));
    let managed = [
        ("protocol.p443", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-domains", "example.com"),
    ];
    let uid = world.create("managed", &managed, &[443]);
    wait_until("port 443", || is_there(&world, &uid, 443));
    assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
    world.nothing_refused();
}

#[test]
fn the_domains_of_managed_certificates_are_limited_or_they_are_turned_off() {
    let cases = [
        ("example.com", "example.com,*.example.com", true),
        ("other.example, example.com", "www.example.com", true),
        ("example.com", "example.com,bank.example", false),
        ("example.com", "notexample.com", false),
        ("none", "example.com", false),
    ];
    common::side_by_side(cases.to_vec(), |(setting, domains, is_ordered)| {
        let mut world = World::new(1);
        world.env = common::with(world.env, &[(DOMAINS, setting)]);
        let _daemon = world.daemon(&[NO_RESYNC]);
        let managed = [
            ("protocol.p443", "https"),
            ("certificate-type", "managed"),
            ("http-managed-certificate-domains", domains),
        ];
        let uid = world.create("web", &managed, &[80, 443]);
        world.up("web");
        if is_ordered {
            return wait_until("port 443", || is_there(&world, &uid, 443));
        }
        let parts = ["port 443", DOMAINS];
        world.tells("web", "CertificateFailed", &parts);
        world.ticks(5);
        assert_eq!(certificates(&world), [json!(null); 0]);
        assert_eq!(shown(&world, &uid, 443), None);
    });
}

/// More than are watched of one namespace, in more namespaces than have room.
#[test]
fn namespaces_with_many_secrets_leave_room_for_one_with_a_single_secret() {
    let one = fresh();
    for are_usable in [true, false] {
        let world = World::new(1);
        allow_in(&world, "default");
        put_tls(&world, "default", "web-tls", &one);
        let names: Vec<String> = (0..60).map(|number| format!("tls-{number:02}")).collect();
        let all = names.join(",");
        for number in 0..5 {
            let namespace = format!("a-hostile-{number}");
            allow_in(&world, &namespace);
            let annotations = [("protocol", "https"), ("http-tls-secret", all.as_str())];
            create_in(&world, &namespace, "many", &annotations, &[443]);
            for name in names.iter().filter(|_| are_usable) {
                put_tls(&world, &namespace, name, &one);
            }
        }
        let _daemon = world.daemon(&[NO_RESYNC]);
        wait_until("all are read", || {
            world.told("many", "CertificateFailed").len() >= 5
        });
        let uid = world.create("web", FROM_SECRET, &[443]);
        wait_until("port 443", || is_there(&world, &uid, 443));
    }
}
