//! What `ccm lb inspect` puts first when a certificate, a Primary IP, a place, a port's own annotation is in trouble: the
//! first lines for each kind, as a file to read.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;

use common::services::{LoadBalancerService, balancer_of, create, edit};
use common::{Env, ccm, env, snapshot, with};
use sandbox::Sandbox;
use serde_json::json;
use std::time::Duration;

const ONE_BY_ONE: &str = "--concurrent-service-syncs=1";

const MANAGED: [(&str, &str); 2] = [("protocol.p443", "https"), ("certificate-type", "managed")];
const FSN1: (&str, &str) = ("location", "fsn1");
const LB11: (&str, &str) = ("type", "lb11");

type Annotations = &'static [(&'static str, &'static str)];

/// Services with ports 80 and 443; all have a location and a type.
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

/// These are synced, and then get into trouble.
#[rustfmt::skip] // A Service is a line.
const THERE: &[(&str, Annotations)] = &[
    ("address-asked-for-later", &[]),
    ("certificate-failed", &[MANAGED[0], MANAGED[1], ("http-managed-certificate-domains", "failed.example.org")]),
    ("certificate-for-other-domains", &[MANAGED[0], MANAGED[1], ("http-managed-certificate-domains", "before.example.com")]),
    ("certificate-pending", &[MANAGED[0], MANAGED[1], ("http-managed-certificate-domains", "pending.example.com")]),
    ("gone", &[]),
];

fn cluster() -> Sandbox {
    let sandbox = Sandbox::builder()
        .nodes(1)
        .network("10.0.0.0/16")
        .scale(0.01)
        .heartbeats(false)
        .start();
    assert_eq!(ccm(&env(&sandbox), &["node", "sync"]).code, 0);
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
    cloud.create_load_balancer(
        project,
        json!({"name": "other", "load_balancer_type": "lb11", "location": "fsn1", "public_net": {"ipv4": taken}}),
    );
    cloud.create_certificate(
        project,
        json!({"name": "theirs", "type": "managed", "domain_names": ["a.example.com"],
               "labels": {"ccm-from-scratch/cluster-uid": "another"}}),
    );
    cloud.create_certificate(
        project,
        json!({"name": "uploaded", "type": "managed", "domain_names": ["a.example.com"]}),
    );
    cloud.set_dns_zones(project, &["example.com"]);
    // What fails, fails at once, and what is issued takes for ever.
    cloud.set_action_duration("create_certificate", Some(Duration::ZERO));
    for (name, annotations) in THERE {
        if *name == "certificate-pending" {
            cloud.set_action_duration("create_certificate", Some(Duration::from_secs(1_000_000)));
        }
        let service = LoadBalancerService::new(name, &[80, 443]).with(&[FSN1, LB11]);
        create(&sandbox, service.with(annotations));
        let synced = ccm(&env(&sandbox), &["lb", "sync", "--yes", ONE_BY_ONE]);
        assert_eq!(synced.code, 0, "{synced:?}");
    }
    let set = |service: &str, annotation: &str, value: &str| {
        let key = format!("load-balancer.hetzner.cloud/{annotation}");
        edit(&sandbox, service, |service| {
            service["metadata"]["annotations"][&key] = json!(value);
        });
    };
    set("address-asked-for-later", "public-net-ipv4", "free");
    set(
        "certificate-for-other-domains",
        "http-managed-certificate-domains",
        "after.example.com",
    );
    for (name, annotations) in NEW {
        let service = LoadBalancerService::new(name, &[80, 443]).with(&[FSN1, LB11]);
        create(&sandbox, service.with(annotations));
    }
    let service = LoadBalancerService::new("without-tcp", &[53]).with(&[FSN1, LB11]);
    let udp = json!({"ports": [{"port": 53, "protocol": "UDP"}]});
    create(&sandbox, service.spec(udp));
    let service = LoadBalancerService::new("of-ipv6-alone", &[80]).with(&[FSN1, LB11]);
    create(&sandbox, service.spec(json!({"ipFamilies": ["IPv6"]})));
    let wants = json!({"loadBalancerIP": "192.0.2.1"});
    let service = LoadBalancerService::new("address-that-nobody-has", &[80]);
    create(&sandbox, service.with(&[FSN1, LB11]).spec(wants));
    sandbox
}

/// From the command to the end of its findings.
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
fn the_first_lines_name_the_trouble() {
    let sandbox = cluster();
    // They have load balancers, certificates or not.
    for (name, _) in THERE {
        balancer_of(&sandbox, name);
    }
    let gone = balancer_of(&sandbox, "gone");
    sandbox.cloud().delete_load_balancer(gone);
    let names = NEW.iter().chain(THERE).map(|(name, _)| *name);
    let names = names.chain(["address-that-nobody-has", "without-tcp", "of-ipv6-alone"]);
    let texts: Vec<String> = names.map(|name| first_lines(&sandbox, name)).collect();
    for line in texts.iter().flat_map(|text| text.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    snapshot("lb-trouble.txt", &texts.join("\n"));
    // Nothing of it was written.
    let balancers = sandbox.cloud().load_balancers(sandbox.project());
    assert_eq!(balancers.len(), THERE.len());
}

/// What the API said when it was tried, for who may list events; the others see what there is without.
#[test]
fn what_was_refused_is_told() {
    let sandbox = Sandbox::builder().nodes(1).scale(0.01).start();
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    cloud.set_load_balancer_limit(project, 0);
    create(
        &sandbox,
        LoadBalancerService::new("refused", &[80]).with(&[FSN1, LB11]),
    );
    let inspect = |env: &Env| {
        let lines = first_lines_of(&sandbox, env, "refused");
        lines.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let person = with(sandbox.env(), &[]);
    assert!(!inspect(&person).contains("the last try"));
    let synced = ccm(&env(&sandbox), &["lb", "sync", "--yes", "default/refused"]);
    assert_eq!(synced.code, 1, "{synced:?}");
    let told = inspect(&person);
    let failed = "! SyncLoadBalancerFailed the last try failed ";
    assert!(
        told.contains(failed) && told.contains("(resource_limit_exceeded)"),
        "{told}"
    );
    assert!(!inspect(&env(&sandbox)).contains("the last try"));
    // What was made since is what counts.
    cloud.set_load_balancer_limit(project, 1);
    let synced = ccm(&env(&sandbox), &["lb", "sync", "--yes", "default/refused"]);
    assert_eq!(synced.code, 0, "{synced:?}");
    let id = balancer_of(&sandbox, "refused");
    cloud.delete_load_balancer(id);
    let told = inspect(&person);
    assert!(!told.contains("the last try"), "{told}");
}

/// What each command is about is named by its ID, so that nobody who copies it runs what a tenant wrote.
#[test]
fn a_printed_command_holds_no_name_that_a_tenant_chose() {
    const EVIL: &str = "web; touch ran";
    let sandbox = Sandbox::builder()
        .nodes(1)
        .network("10.0.0.0/16")
        .scale(0.01)
        .heartbeats(false)
        .start();
    assert_eq!(ccm(&env(&sandbox), &["node", "sync"]).code, 0);
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    cloud.set_dns_zones(project, &["example.com"]);
    cloud.set_action_duration("create_certificate", Some(Duration::ZERO));
    let domains = ("http-managed-certificate-domains", "failed.example.org");
    let services: [(&str, Annotations); 3] = [
        (
            "certificate",
            &[
                ("http-managed-certificate-name", EVIL),
                MANAGED[0],
                MANAGED[1],
                FSN1,
            ],
        ),
        ("address", &[("public-net-ipv4", EVIL), FSN1]),
        ("adopts", &[("name", EVIL), FSN1]),
    ];
    for (name, annotations) in services {
        let service = LoadBalancerService::new(name, &[80, 443]).with(&[LB11, domains]);
        create(&sandbox, service.with(annotations));
    }
    let labels = json!({"hcloud-ccm/service-uid": "of-another"});
    let foreign = json!({
        "name": EVIL, "load_balancer_type": "lb11", "location": "fsn1", "labels": labels,
    });
    let foreign = cloud.create_load_balancer(project, foreign);
    let address = json!({"name": EVIL, "type": "ipv4", "location": "fsn1", "auto_delete": true});
    let address = cloud.create_primary_ip(project, address);
    ccm(&env(&sandbox), &["lb", "sync", "--yes", ONE_BY_ONE]);
    let certificates = cloud.certificates(project);
    let certificate = certificates[0]["id"].as_u64().unwrap();
    for (name, command) in [
        (
            "certificate",
            format!("hcloud certificate retry {certificate}"),
        ),
        (
            "address",
            format!("hcloud primary-ip update --auto-delete=false {address}"),
        ),
        (
            "adopts",
            format!(
                "hcloud load-balancer add-label {foreign} ccm-from-scratch/adopt=default.adopts"
            ),
        ),
    ] {
        let told = first_lines(&sandbox, name);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(&command), "{told}");
    }
}
