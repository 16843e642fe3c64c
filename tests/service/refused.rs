//! The first lines of `ccm lb inspect` when a certificate, a Primary IP, a location or an annotation of one port has a
//! problem. The lines for each kind are a snapshot.

use crate::common::cluster::{CLUSTER_UID, Cluster, SERVICE_UID, id, service};
use crate::common::{Env, ccm, env, one_line, snapshot};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::time::Duration;

const ONE_BY_ONE: &str = "--concurrent-service-syncs=1";

const MANAGED: [(&str, &str); 2] = [("protocol.p443", "https"), ("certificate-type", "managed")];
const FSN1: (&str, &str) = ("location", "fsn1");
const LB11: (&str, &str) = ("type", "lb11");

type Annotations = &'static [(&'static str, &'static str)];

/// Services with ports 80 and 443. All have a location and a type.
#[rustfmt::skip] // A Service is a line.
const NEW: &[(&str, Annotations)] = &[
    ("address-of-others", &[("public-net-ipv4", "taken")]),
    ("address-blocked", &[("public-net-ipv4", "blocked")]),
    ("address-of-wrong-type", &[("public-net-ipv4", "six")]),
    ("address-elsewhere", &[("public-net-ipv4", "far")]),
    ("address-unknown", &[("public-net-ipv4", "nobody")]),
    ("address-turned-off", &[("public-net-ipv4", "free"), ("disable-public-network", "true"), ("use-private-ip", "true")]),
    ("address-that-goes", &[("public-net-ipv4", "free")]),
    ("certificate-without-domains", &[MANAGED[0], MANAGED[1]]),
    ("certificate-of-others", &[MANAGED[0], MANAGED[1], ("http-managed-certificate-domains", "a.example.com"), ("http-managed-certificate-name", "theirs")]),
    ("certificates-of-one-name", &[("protocol", "https"), MANAGED[1], ("http-managed-certificate-domains", "a.example.com"),
        ("http-managed-certificate-domains.443", "b.example.com")]),
    ("place-unknown", &[("location", "mars")]),
    ("private-address-outside", &[("private-ipv4", "10.9.0.1")]),
    ("private-address-of-others", &[("private-ipv4", "10.0.0.2")]),
    ("port-unknown", &[("protocol.https", "https")]),
    ("port-twice", &[("protocol.p80", "http"), ("protocol.80", "tcp")]),
    ("port-redirected-twice", &[MANAGED[0], ("http-certificates", "uploaded"), ("http-redirect-http.443", "true")]),
];

/// Services that are synced before they get a problem.
#[rustfmt::skip] // A Service is a line.
const THERE: &[(&str, Annotations)] = &[
    ("address-asked-for-later", &[]),
    ("certificate-failed", &[MANAGED[0], MANAGED[1], ("http-managed-certificate-domains", "failed.example.org")]),
    ("certificate-for-other-domains", &[MANAGED[0], MANAGED[1], ("http-managed-certificate-domains", "before.example.com")]),
    ("certificate-pending", &[MANAGED[0], MANAGED[1], ("http-managed-certificate-domains", "pending.example.com")]),
    ("gone", &[]),
];

/// A cluster in whose project certificates for `example.com` are issued, and others fail at once.
fn empty() -> Sandbox {
    let builder = Sandbox::builder().nodes(1).network("10.0.0.0/16");
    let sandbox = builder.scale(0.01).heartbeats(false).start();
    ccm(&env(&sandbox), &["node", "sync"]).with_code(0);
    let cloud = sandbox.cloud();
    cloud.set_dns_zones(sandbox.project(), &["example.com"]);
    cloud.set_action_duration("create_certificate", Some(Duration::ZERO));
    sandbox
}

/// Creates a Service with ports 80 and 443 that has a location and a type.
fn create(sandbox: &Sandbox, name: &str, annotations: &[(&str, &str)]) {
    let all = [&[FSN1, LB11], annotations].concat();
    sandbox.create(name, &all, &[80, 443]);
}

/// Creates a Service with other fields of its `spec`.
fn create_with(sandbox: &Sandbox, name: &str, fields: &Value) {
    let mut service = service(name, &[FSN1, LB11], &[80]);
    for (field, value) in fields.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    sandbox.create_as(service);
}

fn cluster() -> Sandbox {
    let sandbox = empty();
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let primary_ip = |name: &str, kind: &str, location: &str| {
        let body = json!({"name": name, "type": kind, "location": location, "auto_delete": name == "free"});
        cloud.create_primary_ip(project, body)
    };
    primary_ip("free", "ipv4", "fsn1");
    primary_ip("six", "ipv6", "fsn1");
    primary_ip("far", "ipv4", "nbg1");
    cloud.block_primary_ip(primary_ip("blocked", "ipv4", "fsn1"), true);
    let taken = primary_ip("taken", "ipv4", "fsn1");
    sandbox.create_balancer("other", &json!({"public_net": {"ipv4": taken}}));
    let theirs = json!({CLUSTER_UID: "another"});
    for (name, labels) in [("theirs", theirs), ("uploaded", json!({}))] {
        let domains = ["a.example.com"];
        sandbox.create_certificate(
            json!({"name": name, "type": "managed", "domain_names": domains, "labels": labels}),
        );
    }
    for (name, annotations) in THERE {
        if *name == "certificate-pending" {
            let for_ever = Some(Duration::from_secs(1_000_000));
            cloud.set_action_duration("create_certificate", for_ever);
        }
        create(&sandbox, name, annotations);
        let words = ["lb", "sync", ONE_BY_ONE];
        ccm(&env(&sandbox), &words).with_code(0);
    }
    let set = |service: &str, annotation: &str, value: &str| {
        sandbox.annotate(service, annotation, Some(value));
    };
    set("address-asked-for-later", "public-net-ipv4", "free");
    let (service, domains) = ("certificate-for-other-domains", "after.example.com");
    set(service, "http-managed-certificate-domains", domains);
    for (name, annotations) in NEW {
        create(&sandbox, name, annotations);
    }
    let udp = json!({"ports": [{"port": 53, "protocol": "UDP"}]});
    create_with(&sandbox, "without-tcp", &udp);
    let ipv6 = json!({"ipFamilies": ["IPv6"]});
    create_with(&sandbox, "of-ipv6-alone", &ipv6);
    let wants = json!({"loadBalancerIP": "192.0.2.1"});
    create_with(&sandbox, "address-that-nobody-has", &wants);
    sandbox
}

/// Returns the lines from the command to the end of its findings.
fn first_lines(sandbox: &Sandbox, name: &str) -> String {
    first_lines_of(sandbox, &env(sandbox), name)
}

fn first_lines_of(sandbox: &Sandbox, env: &Env, name: &str) -> String {
    let service = format!("default/{name}");
    let ran = ccm(env, &["lb", "inspect", &service]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let (findings, _) = ran.stdout.split_once("\n\n").unwrap();
    let mut text = format!("$ ccm lb inspect {service}\n{findings}\n");
    for service in sandbox.cluster().list("services", None) {
        text = text.replace(service["metadata"]["uid"].as_str().unwrap(), "UID");
    }
    text
}

#[test]
fn the_first_lines_of_inspect_name_the_problem() {
    let sandbox = cluster();
    // The Services have load balancers, with or without certificates.
    for (name, _) in THERE {
        sandbox.balancer(name);
    }
    let gone = id(&sandbox.balancer("gone"));
    sandbox.cloud().delete_load_balancer(gone);
    let names = NEW.iter().chain(THERE).map(|(name, _)| *name);
    let names = names.chain(["address-that-nobody-has", "without-tcp", "of-ipv6-alone"]);
    let texts: Vec<String> = names.map(|name| first_lines(&sandbox, name)).collect();
    for line in texts.iter().flat_map(|text| text.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    snapshot("lb-trouble.txt", &texts.join("\n"));
    // Nothing of these Services was written.
    assert_eq!(sandbox.balancers().len(), THERE.len());
}

/// Who may list events sees what the API answered. Others see what is there without it.
#[test]
fn inspect_shows_what_was_refused() {
    let sandbox = Sandbox::builder().nodes(1).scale(0.01).start();
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    cloud.set_load_balancer_limit(project, 0);
    sandbox.create("refused", &[FSN1, LB11], &[80]);
    let inspect = |env: &Env| one_line(&first_lines_of(&sandbox, env, "refused"));
    let person = sandbox.env();
    assert!(!inspect(&person).contains("the last sync failed"));
    let sync = || ccm(&env(&sandbox), &["lb", "sync", "default/refused"]);
    sync().with_code(1);
    let told = inspect(&person);
    let failed = "! SyncLoadBalancerFailed according to this event, the last sync failed ";
    for part in [failed, "(resource_limit_exceeded)"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!inspect(&env(&sandbox)).contains("the last sync failed"));
    // Only what was tried since then counts.
    cloud.set_load_balancer_limit(project, 1);
    sync().with_code(0);
    cloud.delete_load_balancer(id(&sandbox.only_balancer()));
    let told = inspect(&person);
    assert!(!told.contains("the last sync failed"), "{told}");
}

/// Each command names its object by the ID, so that nobody who copies the command runs a text of a tenant.
#[test]
fn a_printed_command_holds_no_name_that_a_tenant_chose() {
    const EVIL: &str = "web; touch ran";
    let sandbox = empty();
    let domains = ("http-managed-certificate-domains", "failed.example.org");
    let named = ("http-managed-certificate-name", EVIL);
    let certificate = [named, MANAGED[0], MANAGED[1], domains];
    create(&sandbox, "certificate", &certificate);
    create(&sandbox, "address", &[("public-net-ipv4", EVIL), domains]);
    create(&sandbox, "adopts", &[("name", EVIL), domains]);
    let labels = json!({"labels": {SERVICE_UID: "of-another"}});
    let foreign = sandbox.create_balancer(EVIL, &labels);
    let address = json!({"name": EVIL, "type": "ipv4", "location": "fsn1", "auto_delete": true});
    let address = sandbox.cloud().create_primary_ip(sandbox.project(), address);
    ccm(&env(&sandbox), &["lb", "sync", ONE_BY_ONE]);
    let certificate = id(&sandbox.certificates()[0]);
    let retry = format!("hcloud certificate retry {certificate}");
    let update = format!("hcloud primary-ip update --auto-delete=false {address}");
    let label = "ccm-from-scratch/adopt=default.adopts";
    let add_label = format!("hcloud load-balancer add-label {foreign} {label}");
    for (name, command) in [("certificate", retry), ("address", update), ("adopts", add_label)] {
        let told = one_line(&first_lines(&sandbox, name));
        assert!(told.contains(&command), "{told}");
    }
}
