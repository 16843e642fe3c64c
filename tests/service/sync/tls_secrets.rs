//! Certificates from Secrets, from outside. They are uploaded once, renewed without a gap, deleted when nothing uses
//! them, and left as they are while a Secret can't be used.

use crate::common::{self, on, wait_until};
use crate::sync::killed::{Scenario, killed_at_each_write};
use crate::sync::world::{CLUSTER_UID, Cluster, NO_RESYNC, PROFILES, World, id, len, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox::Half;
use sandbox::credentials::{Authority, Identity, Validity};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::kubernetes::PolicyRule;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock, Mutex};

pub const FROM_SECRET: &[(&str, &str)] =
    &[("protocol.p443", "https"), ("http-tls-secret.p443", "web-tls")];

const UPLOAD: &str = "POST /v1/certificates";
const TLS: &str = "kubernetes.io/tls";

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("test").unwrap());

fn identity(domain: &str, validity: Validity) -> Identity {
    AUTHORITY.server(&[domain], validity).unwrap()
}

pub fn fresh() -> Identity {
    identity("example.com", Validity::Now)
}

/// Writes the Secret, new or again.
fn put(world: &World, name: &str, kind: &str, certificate: &str, key: &str) {
    put_in(world, "default", name, kind, certificate, key);
}

/// Writes the Secret of that namespace, new or again.
fn put_in(world: &World, namespace: &str, name: &str, kind: &str, certificate: &str, key: &str) {
    let cluster = world.cluster();
    let data = json!({
        "tls.crt": STANDARD.encode(certificate),
        "tls.key": STANDARD.encode(key),
    });
    // The type of a Secret can't be changed, so the Secret is deleted first.
    let known = cluster.get("secrets", Some(namespace), name);
    if known.is_some_and(|known| known["type"] != kind) {
        cluster.delete("secrets", Some(namespace), name);
    }
    let edit = |secret: &mut Value| secret["data"] = data.clone();
    if cluster.edit("secrets", Some(namespace), name, edit) {
        return;
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
        "metadata": { "name": name, "namespace": namespace },
    });
    cluster.create("secrets", Some(namespace), secret);
}

pub fn renew(world: &World, name: &str, identity: &Identity) {
    renew_in(world, "default", name, identity);
}

/// Writes the Secret of that namespace with this certificate and its key.
pub fn renew_in(world: &World, namespace: &str, name: &str, identity: &Identity) {
    let (certificate, key) = (&identity.certificate_pem, &identity.key_pem);
    put_in(world, namespace, name, TLS, certificate, key);
}

/// The rules of `manifests/tls-secrets`.
fn rules() -> Vec<PolicyRule> {
    let text = include_str!("../../../manifests/tls-secrets/role.yaml");
    let role = serde_yaml::Deserializer::from_str(text).next().unwrap();
    let role = Value::deserialize(role).unwrap();
    serde_json::from_value(role["rules"].clone()).unwrap()
}

fn allow(world: &World) {
    allow_in(world, "default");
}

/// ccm may read the Secrets of that namespace.
pub fn allow_in(world: &World, namespace: &str) {
    let cluster = world.cluster();
    cluster.grant_in_namespace("ccm", namespace, rules());
}

/// ccm may read the Secret, which is there.
pub fn world() -> World {
    let world = World::new(1);
    allow(&world);
    renew(&world, "web-tls", &fresh());
    world
}

/// PEM of the only certificate of the project, where port 443 of the Service shows it.
fn only_shown(world: &World, name: &str) -> String {
    let all = world.certificates();
    match all.as_slice() {
        [one] if world.shown(name) == Some(vec![id(one)]) => text(&one["certificate"]),
        _ => String::new(),
    }
}

/// Creates the Service `web` with ports 80 and 443, and waits until it shows the only certificate of the project.
fn create_web(world: &World) {
    world.create("web", FROM_SECRET, &[80, 443]);
    shows_one(world, "web");
}

fn shows_one(world: &World, name: &str) {
    wait_until("port 443", || !only_shown(world, name).is_empty());
}

/// Waits until the Service shows this certificate, and there is no other one.
fn shows(world: &World, name: &str, identity: &Identity) {
    wait_until("the new one alone", || is_of(&only_shown(world, name), identity));
}

fn is_of(pem: &str, identity: &Identity) -> bool {
    pem.replace('\r', "").trim() == identity.certificate_pem.replace('\r', "").trim()
}

fn uploads(world: &World, mark: u64) -> usize {
    let writes = world.cloud_writes(mark).into_iter();
    writes.filter(|call| call == "POST /certificates").count()
}

#[test]
fn a_renewed_secret_is_uploaded_swapped_in_and_the_old_one_deleted() {
    for profile in PROFILES {
        let world = world();
        let _daemon = world.daemon(&[profile, NO_RESYNC]);
        create_web(&world);
        let labels = world.certificates()[0]["labels"].clone();
        assert_eq!(labels["ccm-from-scratch/secret"], "default.web-tls");
        assert!(labels[CLUSTER_UID].is_string());
        assert!(labels["hcloud-ccm/service-uid"].is_null());
        // At each write of the renewal the port shows an existing certificate.
        let mark = world.mark();
        let gaps = watch_for_gaps(&world);
        let second = fresh();
        renew(&world, "web-tls", &second);
        shows(&world, "web", &second);
        world.ticks(5);
        let writes = world.cloud_writes(mark);
        let steps = ["POST /certificates", "/actions/update_service", "DELETE /certificates/"];
        assert_eq!(writes.len(), steps.len(), "{writes:#?}");
        for (call, step) in writes.iter().zip(steps) {
            assert!(call.contains(step), "{writes:#?}");
        }
        assert_eq!(*gaps.lock().unwrap(), Vec::<String>::new());
        // After that there are no more writes.
        let mark = world.mark();
        world.ticks(20);
        let calls = world.cloud_calls(mark);
        let nodes_only = calls.iter().all(|call| call.path == "/v1/servers");
        assert!(nodes_only, "{calls:#?}");
        world.assert_nothing_refused();
    }
}

/// The moments at which port 443 of the only load balancer showed none, or one that does not exist.
fn watch_for_gaps(world: &World) -> Arc<Mutex<Vec<String>>> {
    let gaps: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&gaps);
    let cloud = Arc::clone(world.cloud());
    let project = world.project();
    let look = move |request: &Request| {
        let all = cloud.load_balancers(project);
        let ports = all[0]["services"].as_array().unwrap().iter();
        let https = ports.filter(|port| port["listen_port"] == 443);
        let mut shown = https.flat_map(|port| port["http"]["certificates"].as_array().unwrap());
        let there = cloud.certificates(project);
        if !shown.any(|id| there.iter().any(|one| one["id"] == *id)) {
            let call = format!("{} {}", request.method, request.path);
            noted.lock().unwrap().push(call);
        }
    };
    let look = Arc::new(look);
    let before = Arc::clone(&look);
    for effect in [
        Effect::before(move |request| before(request)),
        Effect::after(move |request| look(request)),
    ] {
        world.faults().add(Rule::new(effect).half(Half::Hetzner));
    }
    gaps
}

#[test]
fn ten_services_with_one_secret_upload_it_once() {
    let world = world();
    let names: Vec<String> = (0..10).map(|n| format!("web-{n}")).collect();
    for name in &names {
        world.create(name, FROM_SECRET, &[443]);
    }
    let mark = world.mark();
    let _daemon = world.daemon(&[NO_RESYNC]);
    for name in &names {
        shows_one(&world, name);
    }
    assert_eq!(uploads(&world, mark), 1);
    let mark = world.mark();
    let second = fresh();
    renew(&world, "web-tls", &second);
    for name in &names {
        shows(&world, name, &second);
    }
    assert_eq!(uploads(&world, mark), 1);
}

#[test]
fn a_renewal_that_is_killed_at_any_write_leaves_no_certificate_over() {
    killed_at_each_write(Scenario {
        before: |world| {
            allow(world);
            renew(world, "web-tls", &fresh());
            for name in ["one", "two"] {
                world.create(name, FROM_SECRET, &[80, 443]);
            }
        },
        change: |world| {
            let renewed = identity("renewed.example", Validity::Now);
            renew(world, "web-tls", &renewed);
        },
        is_done: |world| {
            let all = world.certificates();
            let is_new = |one: &Value| one["domain_names"] == json!(["renewed.example"]);
            let mut names = ["one", "two"].iter();
            all.iter().all(is_new) && names.all(|name| !only_shown(world, name).is_empty())
        },
    });
}

#[test]
fn a_deletion_that_is_killed_at_any_write_leaves_no_certificate_over() {
    killed_at_each_write(Scenario {
        before: |world| {
            allow(world);
            renew(world, "web-tls", &fresh());
            world.create("web", FROM_SECRET, &[80, 443]);
        },
        change: |world| world.delete("web"),
        is_done: |world| {
            world.service("web").is_none()
                && world.balancers().is_empty()
                && world.certificates().is_empty()
        },
    });
}

#[test]
fn a_certificate_is_deleted_when_the_annotation_is_removed_and_no_port_shows_it() {
    let world = world();
    let _daemon = world.daemon(&[NO_RESYNC]);
    create_web(&world);
    world.annotate("web", "protocol.p443", None);
    world.annotate("web", "http-tls-secret.p443", None);
    wait_until("its end", || world.certificates().is_empty());
    assert_eq!(world.shown("web"), Some(vec![]));
}

/// A CronJob runs all Services. A person who names a Service gets only what concerns that Service.
#[test]
fn a_pass_deletes_unused_certificates_and_a_sync_of_one_service_does_not() {
    let world = world();
    world.create("web", FROM_SECRET, &[80, 443]);
    let run = |words: &[&str]| drop(world.ccm(words).with_code(0));
    run(&["run", "--once"]);
    let first = only_shown(&world, "web");
    assert!(!first.is_empty());
    renew(&world, "web-tls", &fresh());
    run(&["lb", "sync", "default/web"]);
    assert_eq!(world.certificates().len(), 2);
    run(&["run", "--once"]);
    let second = only_shown(&world, "web");
    assert!(!second.is_empty() && second != first);
}

/// The plan of all Services lists the certificates that a sync of all deletes. The plan of one Service does not.
#[test]
fn a_dry_run_lists_the_certificates_that_nothing_uses() {
    let world = world();
    world.create("web", FROM_SECRET, &[80, 443]);
    let run = |words: &[&str], code: i32| world.ccm(words).with_code(code).stdout;
    run(&["run", "--once"], 0);
    let old = world.certificates()[0].clone();
    renew(&world, "web-tls", &fresh());
    run(&["lb", "sync", "default/web"], 0);
    let (name, id) = (text(&old["name"]), &old["id"]);
    let line = format!("- certificates  delete certificate {name:?} ({id}), which nothing uses\n");
    let of_all: &[&str] = &["lb", "sync", "--dry-run"];
    let pending = [of_all, &["--detailed-exitcode"]].concat();
    for words in [of_all, &["run", "--once", "--dry-run"]] {
        let planned = run(words, 0);
        assert!(planned.contains(&line), "{planned}");
        assert!(planned.contains("Plan: 1 to change"), "{planned}");
    }
    run(&pending, 3);
    let json: Value = serde_json::from_str(&run(&[of_all, &["-o", "json"]].concat(), 0)).unwrap();
    assert_eq!(json["items"][1]["object"], Value::Null, "{json}");
    let change = &json["items"][1]["changes"][0]["change"];
    assert_eq!(*change, "delete_certificate", "{json}");
    let of_one = run(&["lb", "sync", "--dry-run", "default/web"], 0);
    assert!(!of_one.contains("certificate"), "{of_one}");
    // A sync of all does it.
    let done = run(&["lb", "sync"], 0);
    let line = format!("certificates  certificate {name:?} ({id}): deleted");
    assert!(done.contains(&line), "{done}");
    assert!(done.contains("1 changed, 1 unchanged, 0 failed"), "{done}");
    assert_eq!(world.certificates().len(), 1);
    run(&[of_all, &["--detailed-exitcode"]].concat(), 0);
}

/// A problem of the Secret: its name, the change that causes it, and a part of the message.
type Case = (&'static str, fn(&World), &'static str);

#[rustfmt::skip] // A case is a line.
const BROKEN: &[Case] = &[
    ("it was deleted", |world| assert!(world.cluster().delete("secrets", Some("default"), "web-tls")), "it does not exist"),
    ("no PEM", |world| put(world, "web-tls", TLS, "nonsense", "nonsense"), "tls.crt holds no PEM certificate"),
    ("another key", |world| put(world, "web-tls", TLS, &fresh().certificate_pem, &fresh().key_pem), "tls.key is the key of another certificate"),
    ("expired", |world| renew(world, "web-tls", &identity("example.com", Validity::Expired)), "its certificate expired at "),
    ("not valid yet", |world| renew(world, "web-tls", &identity("example.com", Validity::NotYet)), "its certificate is not valid before "),
    ("another type", |world| put(world, "web-tls", "Opaque", &fresh().certificate_pem, "x"), "its type is not kubernetes.io/tls"),
    ("a long chain", |world| {
        let one = fresh();
        put(world, "web-tls", TLS, &one.certificate_pem.repeat(6), &one.key_pem);
    }, "the number of certificates in tls.crt is 6, but Hetzner allows at most 5"),
    ("a long key", |world| {
        let one = fresh();
        put(world, "web-tls", TLS, &one.certificate_pem, &format!("{}{}", "x\n".repeat(3000), one.key_pem));
    }, "but Hetzner allows at most 5000"),
    ("far too large", |world| put(world, "web-tls", TLS, &"x".repeat(100_000), "x"), "tls.crt has more than 65536 bytes"),
];

#[test]
fn a_secret_that_cannot_be_used_leaves_everything_as_it_was() {
    common::run_in_parallel(BROKEN.to_vec(), |(what, breaks, message)| {
        let world = world();
        let _daemon = world.daemon(&[NO_RESYNC]);
        create_web(&world);
        let (before, mark) = (world.certificates(), world.mark());
        breaks(&world);
        let says = ["port 443 can't use Secret default/web-tls: ", message];
        world.wait_for_event("web", "CertificateFailed", &says);
        world.ticks(10);
        assert_eq!(world.certificates(), before, "{what}");
        assert_eq!(world.cloud_writes(mark), Vec::<String>::new(), "{what}");
        // A new Service gets its other port, and what was uploaded before.
        world.create("second", FROM_SECRET, &[80, 443]);
        world.up("second");
        let shown = world.shown("web");
        wait_until("both ports", || world.shown("second") == shown);
        // Everything is as it should be after the Secret was corrected.
        let good = fresh();
        renew(&world, "web-tls", &good);
        for name in ["web", "second"] {
            shows(&world, name, &good);
        }
    });
}

#[test]
fn a_missing_right_to_read_secrets_is_reported_and_the_other_ports_are_served() {
    let world = World::new(1);
    renew(&world, "web-tls", &fresh());
    let daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", FROM_SECRET, &[80, 443]);
    assert_eq!(len(&world.up("web")["services"]), 1);
    let parts = [
        "cannot get resource",
        "kubectl apply -n default -k manifests/tls-secrets",
        "tlsSecretNamespaces",
    ];
    world.wait_for_event("web", "CertificateFailed", &parts);
    assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
    allow(&world);
    shows_one(&world, "web");
}

#[test]
fn certificates_of_others_are_never_touched() {
    let world = world();
    let theirs = json!({"ccm-from-scratch/secret": "default.web-tls", CLUSTER_UID: "another"});
    for (name, labels) in [("bought", json!({})), ("another-clusters", theirs)] {
        let one = fresh();
        world.create_certificate(json!({
            "name": name, "certificate": one.certificate_pem, "private_key": one.key_pem, "labels": labels,
        }));
    }
    let before = world.certificates();
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", FROM_SECRET, &[443]);
    world.has_https("web");
    world.delete_and_wait("web");
    wait_until("its end", || world.certificates().len() == 2);
    assert_eq!(world.certificates(), before);
}

/// The certificate is wanted, although it is neither read nor used at the moment.
#[test]
fn a_certificate_of_a_secret_that_cannot_be_read_is_not_deleted() {
    let world = world();
    let _daemon = world.daemon(&[NO_RESYNC]);
    create_web(&world);
    let before = world.certificates()[0]["id"].clone();
    let cluster = world.cluster();
    assert!(cluster.delete("secrets", Some("default"), "web-tls"));
    world.wait_for_event("web", "CertificateFailed", &["it does not exist"]);
    // The port is removed by hand, and the daemon does not compare the load balancer for a day.
    let id = id(&world.only_balancer());
    let action = format!("/load_balancers/{id}/actions/delete_service");
    world.post(&action, &json!({ "listen_port": 443 }));
    let mark = world.mark();
    world.create("other", &[], &[80]);
    world.up("other");
    wait_until("a search", || {
        let mut calls = world.cloud_calls(mark).into_iter();
        calls.any(|call| call.query("label_selector").is_some())
    });
    world.ticks(5);
    assert_eq!(world.certificates()[0]["id"], before);
}

#[test]
fn a_refused_upload_leaves_the_old_certificate_and_the_rest_is_synced() {
    let world = world();
    let _daemon = world.daemon(&[NO_RESYNC]);
    create_web(&world);
    let limit = Effect::hetzner_error(403, "resource_limit_exceeded", "too many certificates");
    let rule = world.faults().add(on(UPLOAD, limit));
    let (before, second) = (world.shown("web"), fresh());
    renew(&world, "web-tls", &second);
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["too many certificates"]);
    world.change_algorithm("web");
    assert_eq!(world.shown("web"), before);
    world.faults().remove(rule);
    shows(&world, "web", &second);
}

/// An upload whose answer is lost, and one that another process made meanwhile.
#[test]
fn a_lost_answer_does_not_upload_a_certificate_twice() {
    common::run_in_parallel(crate::sync::LOST_ANSWERS.to_vec(), |fault| {
        let world = world();
        world.faults().add(on(UPLOAD, fault()).times(1));
        let _daemon = world.daemon(&[NO_RESYNC]);
        create_web(&world);
    });
}

#[test]
fn inspect_shows_until_when_a_certificate_is_valid_and_its_secret() {
    let world = world();
    world.converge(&[]);
    world.create("web", FROM_SECRET, &[443]);
    world.converge(&[]);
    let one = world.inspect("web", &[])["cloud"]["certificates"][0].clone();
    let stored = world.certificates()[0].clone();
    assert_eq!((&one["id"], &one["ports"]), (&stored["id"], &json!([443])));
    assert_eq!(one["secret"], "default.web-tls");
    assert_eq!(one["isManaged"], false);
    let ends = text(&stored["not_valid_after"]);
    let (ends, _) = ends.split_once('T').unwrap();
    assert!(text(&one["notValidAfter"]).starts_with(ends), "{one}");
    let ran = world.ccm(&["lb", "inspect", "default/web"]);
    for part in ["EXPIRES", ends, "from Secret default/web-tls"] {
        ran.prints(part);
    }
}

/// Only a Secret is read that a Service of its own namespace names for an https port.
#[test]
fn no_other_secret_is_read() {
    let world = world();
    for name in ["other", "named"] {
        renew(&world, name, &fresh());
    }
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("plain", &[("http-tls-secret", "other")], &[443]);
    world.create("https", FROM_SECRET, &[443]);
    world.up("plain");
    world.up("https");
    world.ticks(10);
    let mut reads = world.calls().calls();
    reads.retain(|call| call.path.contains("/secrets"));
    assert!(!reads.is_empty());
    for read in reads {
        let named = "/api/v1/namespaces/default/secrets/web-tls";
        assert_eq!(read.path, named);
    }
}

#[test]
fn two_ways_to_name_certificates_of_one_port_are_an_error() {
    let world = world();
    world.converge(&[]);
    for more in [("http-certificates", "bought"), ("certificate-type", "managed")] {
        let name = format!("web-{}", &more.0[..4]);
        world.create(&name, &[FROM_SECRET, &[more]].concat(), &[443]);
        world.once(&[]).with_code(1);
        let says =
            ["port 443", "both ask for certificates of this port", "http-tls-secret.p443", more.0];
        world.wait_for_event(&name, "SyncLoadBalancerFailed", &says);
        world.delete(&name);
    }
    assert_eq!(world.certificates(), Vec::<Value>::new());
}

/// The key must not be printed, however much is requested and whatever fails.
#[test]
fn no_part_of_the_key_is_printed() {
    let world = world();
    let one = fresh();
    renew(&world, "web-tls", &one);
    let secrets = common::secrets::Secrets::new(&[&one.key_pem, &STANDARD.encode(&one.key_pem)]);
    let mut printed = String::new();
    let all = [("HCLOUD_DEBUG", "true"), ("RUST_LOG", "trace")];
    let env = common::with(world.env.clone(), &all);
    world.converge(&[]);
    world.create("web", FROM_SECRET, &[443]);
    let is_of_key = |line: &&str| line.len() > 20 && !line.starts_with('-');
    let key_lines: Vec<&str> = one.key_pem.lines().filter(is_of_key).collect();
    assert!(!key_lines.is_empty());
    let refused = Effect::hetzner_error(422, "invalid_input", &one.key_pem);
    let rule = world.faults().add(on(UPLOAD, refused));
    for words in [
        &["lb", "sync", "default/web", "--dry-run", "-o", "json"][..],
        &["lb", "inspect", "default/web", "-o", "yaml"],
        &["run", "--once", "-v=10"],
    ] {
        let ran = common::ccm(&env, words);
        printed += &(ran.stdout + &ran.stderr);
    }
    world.faults().remove(rule);
    let ran = common::ccm(&env, &["run", "--once", "-v=10", "--log-format=json"]);
    printed += &(ran.stdout + &ran.stderr);
    for part in ["POST", "/certificates"] {
        assert!(printed.contains(part), "{printed}");
    }
    assert_eq!(secrets.leak(&printed), None, "{printed}");
    for line in &key_lines {
        assert!(!printed.contains(line), "{line}\n{printed}");
    }
    let events = world.cluster().list("events", None);
    assert!(!json!(events).to_string().contains(key_lines[0]));
}
