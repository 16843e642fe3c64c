//! Services of several namespaces and their certificates, from outside. No tenant shows another one's certificate,
//! prevents another one from showing its own, or uses up what is watched for all.

use crate::common::wait_until;
use crate::sync::tls_secrets::{self, FROM_SECRET, allow_in, fresh, renew_in};
use crate::sync::world::{Cluster, NO_RESYNC, World, id, listen_ports, text};
use serde_json::json;

#[test]
fn a_certificate_that_was_uploaded_from_a_secret_is_not_shown_by_another_namespace() {
    let world = tls_secrets::world();
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create_namespace("hostile");
    world.create("web", FROM_SECRET, &[80, 443]);
    world.has_https("web");
    let uploaded = world.certificates()[0].clone();
    for (service, named) in
        [("by-id", uploaded["id"].to_string()), ("by-name", text(&uploaded["name"]))]
    {
        let annotations = [("protocol.p443", "https"), ("http-certificates.p443", named.as_str())];
        let thief = format!("hostile/{service}");
        world.create(&thief, &annotations, &[80, 443]);
        let says = format!("{named:?} can't be used for port 443 by Services of namespace hostile");
        world.wait_for_event(service, "CertificateFailed", &["port 443", &says]);
        assert_eq!(listen_ports(&world.up(&thief)), [80]);
        // A Service of the same namespace may name the certificate.
        let friend = format!("{service}-too");
        world.create(&friend, &annotations, &[443]);
        world.has_https(&friend);
    }
    world.assert_nothing_refused();
}

/// The certificate is ordered under the name that the upload would get.
#[test]
fn a_managed_certificate_with_the_name_of_an_upload_keeps_no_port_from_being_served() {
    let world = tls_secrets::world();
    world.create("web", FROM_SECRET, &[80, 443]);
    world.converge(&[]);
    let uploaded = world.certificates()[0].clone();
    world.delete("web");
    world.converge(&[]);
    assert_eq!(world.certificates(), [json!(null); 0]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let name = text(&uploaded["name"]);
    let annotations = [
        ("protocol.p443", "https"),
        ("certificate-type", "managed"),
        ("http-managed-certificate-name", name.as_str()),
        ("http-managed-certificate-domains", "example.com"),
    ];
    world.create_namespace("hostile");
    world.create("hostile/thief", &annotations, &[443]);
    world.has_https("hostile/thief");
    world.create("web", FROM_SECRET, &[80, 443]);
    world.has_https("web");
    let all = world.certificates();
    let own = all.iter().find(|one| one["type"] == "uploaded").unwrap();
    assert_eq!(own["labels"]["ccm-from-scratch/secret"], "default.web-tls");
    assert_eq!(world.shown("web"), Some(vec![id(own)]));
    assert_eq!(all.len(), 2);
    let mark = world.mark();
    world.ticks(10);
    assert_eq!(world.cloud_writes(mark), [""; 0]);
    // The certificate is deleted with its Service.
    world.delete("web");
    wait_until("its end", || world.certificates().len() == 1);
    world.assert_nothing_refused();
}

/// The table in `tests/plan/load_balancer/named_certificates.rs` lists which certificates are allowed.
#[test]
fn a_certificate_that_a_setting_forbids_is_reported_with_the_setting() {
    const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR";
    const DOMAINS: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS";
    let named = [("http-certificates.p443", "gateway"); 2];
    let managed =
        [("certificate-type", "managed"), ("http-managed-certificate-domains", "bank.example")];
    let says = format!("that Services may use (environment {SELECTOR})");
    for (setting, value, annotations, says) in [
        (SELECTOR, "use=services", named, ["\"gateway\"", &says]),
        (DOMAINS, "example.com", managed, ["port 443", DOMAINS]),
    ] {
        let mut world = World::new(1);
        world.set(&[(setting, value)]);
        let one = fresh();
        world.create_certificate(json!({
            "name": "gateway", "certificate": one.certificate_pem, "private_key": one.key_pem,
        }));
        let _daemon = world.daemon(&[NO_RESYNC]);
        let https = [&[("protocol.p443", "https")], &annotations[..]].concat();
        world.create("web", &https, &[80, 443]);
        world.wait_for_event("web", "CertificateFailed", &says);
        assert_eq!(listen_ports(&world.up("web")), [80]);
        assert_eq!(world.certificates().len(), 1);
    }
}

/// There are more Secrets than are watched of one namespace, in more namespaces than there is room for.
#[test]
fn namespaces_with_many_secrets_leave_room_for_one_with_a_single_secret() {
    let one = fresh();
    for are_usable in [true, false] {
        let world = tls_secrets::world();
        let names: Vec<String> = (0..60).map(|number| format!("tls-{number:02}")).collect();
        let all = names.join(",");
        for number in 0..5 {
            let namespace = format!("a-hostile-{number}");
            world.create_namespace(&namespace);
            allow_in(&world, &namespace);
            let annotations = [("protocol", "https"), ("http-tls-secret", all.as_str())];
            world.create(&format!("{namespace}/many"), &annotations, &[443]);
            for name in names.iter().filter(|_| are_usable) {
                renew_in(&world, &namespace, name, &one);
            }
        }
        let _daemon = world.daemon(&[NO_RESYNC]);
        wait_until("all are read", || world.event_messages("many", "CertificateFailed").len() >= 5);
        world.create("web", FROM_SECRET, &[443]);
        world.has_https("web");
    }
}
