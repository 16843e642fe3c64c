//! Bad input of a person is reported with what to do about it, and nothing is changed.

use crate::load_balancer::support::{PROFILES, World, assert_says, certificate, port};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::provider::{Protocol, Reason, ServicePort};

/// The wrong input, and the texts that the error must contain.
type Case = (fn(&mut World), &'static [&'static str]);

#[rustfmt::skip] // A case is a line or two.
const CASES: &[Case] = &[
    (|w| w.set("protocol=https http-certificates=nobody"), &["the project has no certificate with the ID or name \"nobody\""]),
    (|w| w.set("protocol=https http-certificates=ome,tow"), &["no certificate with the ID or name \"ome\"; did you mean one?", "\"tow\"; did you mean two?"]),
    (|w| { w.set("protocol=https"); w.set_one("http-certificates", &"1,".repeat(101)); }, &["it has 101 items, but at most 100 are allowed"]),
    (|w| w.set_one("hostname", &"a".repeat(20_000)), &["aaa\"… (20000 bytes) is not valid: it has 20000 bytes, but at most 1024 are allowed"]),
    (|w| w.service.ports = (1..=31).map(|n| port(&format!("p{n}"), n)).collect(), &["31 TCP ports", "of type lb11 takes at most 5", "remove ports"]),
    (|w| w.set_one("node-selector", "!a,".repeat(33).trim_end_matches(',')), &["it has 33 requirements, but at most 32 are allowed"]),
    (|w| w.set("protocol=https certificate-type=managed"), &["no annotation names its domains", "http-managed-certificate-domains"]),
    (|w| w.set("protocol.http=https http-certificates.http=nobody"), &["annotation load-balancer.hetzner.cloud/http-certificates.http", "\"nobody\""]),
    (|w| w.set("use-private-ip=true"), &["use-private-ip", "Set HCLOUD_NETWORK"]),
    (|w| w.set("private-ipv4=10.0.0.5"), &["private-ipv4", "Set HCLOUD_NETWORK"]),
    (|w| w.set("disable-public-network=true"), &["disable-public-network", "use-private-ip"]),
    (|w| w.set_one("node-selector", "a in b"), &["node-selector", "\"a in b\""]),
    (|w| w.set("health-check-protocol=https health-check-http-validate-certificate=false"), &["asks for a health check without TLS"]),
    (|w| w.set("protocol=https http-certificates=one http-redirect-http=true"), &["port 80"]),
    (|w| { w.service.ports = vec![port("a", 443), port("b", 8443)];
        w.set("protocol=https http-certificates=one http-redirect-http=true"); }, &["443, 8443", "http-redirect-http.PORT"]),
    (|w| w.set("protocol.htpp=http"), &["protocol.htpp", "http (80)"]),
    (|w| w.set("protocol.81=http"), &["protocol.81", "no port \"81\"", "http (80)"]),
    (|w| w.set("protocol.http=http protocol.80=tcp"), &["protocol.80", "protocol.http", "have different values: remove one of them"]),
    (|w| { w.service.ports.push(port("https", 443));
        w.set("protocol.https=https http-certificates=one http-redirect-http.443=true"); }, &["port 443", "port 80", "Remove that port from the Service"]),
    (|w| w.set("type.http=lb11"), &["type.http", "whole load balancer"]),
    (|w| w.set("protocol=tcp PROTOCOL=http"), &["PROTOCOL", "remove one"]),
    (|w| w.service.ports = (1..=6).map(|n| port(&format!("p{n}"), n)).collect(), &["6 TCP ports", "lb11", "takes at most 5"]),
    (eleven_certificates, &["11 certificates", "lb11", "takes at most 10", "http-certificates"]),
    (|w| w.service.ports[0].node_port = None, &["port 80", "allocateLoadBalancerNodePorts"]),
];

/// The API server refuses these host names in a status. The load balancer would cost money, and nobody would
/// learn its address.
#[test]
fn a_host_name_that_no_status_takes_is_refused_before_anything_is_made() {
    let long = ["a".repeat(63).as_str(); 4].join(".");
    #[rustfmt::skip]
    let bad = [
        "Foo_Bar.example", "Foo.example", "foo_bar.example", "a..b", ".a", "a.", "-a.example", "a-.example",
        "*.a.example", "192.0.2.1", "192.000.002.001", "2001:db8::1", "a b", "a/b", long.as_str(),
    ];
    #[rustfmt::skip]
    let good = ["a", "a.example", "1.2.3.4.5", "192.0.2.256", "192.0.2", "a-1.example", &long[1..254]];
    for text in bad {
        let mut world = World::new(Profile::CcmFromScratch);
        world.set_one("hostname", text);
        let message = world.obstacle();
        let says = format!(
            "annotation load-balancer.hetzner.cloud/hostname: {text:?} is not valid: use a host name"
        );
        assert!(message.starts_with(&says), "{message}");
    }
    for text in good {
        let mut world = World::new(Profile::CcmFromScratch);
        world.set_one("hostname", text);
        assert_eq!(world.plan().outcome.obstacle(), None, "{text}");
    }
}

fn eleven_certificates(world: &mut World) {
    let ids = 101..=111;
    let eleven = ids.clone().map(|id| certificate(id, &format!("c{id}")));
    world.state.certificates.as_mut().unwrap().extend(eleven);
    let names: Vec<String> = ids.map(|id| id.to_string()).collect();
    world.set("protocol=https");
    world.set_one("http-certificates", &names.join(","));
}

#[test]
fn bad_input_is_explained_and_changes_nothing_until_it_is_corrected() {
    for (number, (break_it, says)) in CASES.iter().enumerate() {
        for profile in PROFILES {
            let mut world = World::new(profile);
            world.converge();
            let good = world.service.clone();
            break_it(&mut world);
            let message = world.obstacle();
            for part in *says {
                assert!(message.contains(part), "case {number}: {message}");
            }
            world.service = good;
            assert!(world.converge().is_empty(), "case {number}");
            // The same holds for a load balancer that does not exist yet.
            let mut world = World::new(profile);
            break_it(&mut world);
            assert_eq!(world.obstacle(), message, "case {number}");
        }
    }
}

#[test]
fn all_problems_of_a_service_are_reported_at_once() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.set("type=lb99 protocol=udp use-private-ip=true");
    let message = world.obstacle();
    assert_says(&message, &["lb99", "udp", "HCLOUD_NETWORK"]);
}

/// The first ten of many problems are reported, and the first five of many findings of one reason. A finding of another
/// reason is not lost among them.
#[test]
fn some_of_many_problems_are_reported_and_the_others_counted() {
    let mut world = World::new(Profile::CcmFromScratch);
    for n in 0..22 {
        world.set_one(&format!("unknown-{n}"), "");
        world.set_one(&format!("protocol.none-{n}"), "tcp");
    }
    world.service.has_session_affinity = true;
    let message = world.obstacle();
    assert_eq!(message.matches("has no port").count(), 10, "{message}");
    assert!(message.ends_with("; and 12 more problems"), "{message}");
    let findings = world.plan().findings;
    let of = |reason| findings.iter().filter(move |one| one.reason == reason);
    assert_eq!(of(Reason::UnknownAnnotation).count(), 6);
    let last = of(Reason::UnknownAnnotation).next_back().unwrap();
    assert_eq!(
        last.message,
        "ccm reports only 5 messages with reason UnknownAnnotation, and leaves out 17 more"
    );
    assert_eq!(of(Reason::FieldIgnored).count(), 1);
}

/// A fork has two annotations that no spelling leads to ours.
#[test]
fn annotations_of_a_fork_are_unknown_and_hostname_is_the_nearest() {
    let mut world = World::new(Profile::Hcloud);
    let names = ["external-dns-hostname", "external-dns-hostname-ipv4-only"];
    for name in names {
        world.set_one(name, "web.example.com");
    }
    let found = world.finding_messages(Reason::UnknownAnnotation);
    let told = names.map(|name| {
        format!("annotation {PREFIX}{name} is unknown; did you mean {PREFIX}hostname?")
    });
    assert_eq!(found, told.to_vec());
}

#[test]
fn a_field_that_cannot_be_honoured_is_reported_and_the_rest_is_synced() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.service.source_ranges = vec!["192.0.2.0/24".into()];
    world.service.has_session_affinity = true;
    world.service.load_balancer_ip = "198.51.100.1".into();
    world.service.ports.push(ServicePort { protocol: Protocol::Udp, ..port("dns", 53) });
    world.set("hlth-check-port=5 id=nonsense");
    let plan = world.plan();
    let expected = [
        (Reason::UnknownAnnotation, "health-check-port?"),
        (Reason::LoadBalancerSourceRangesIgnored, "192.0.2.0/24"),
        (Reason::FieldIgnored, "ClientIP"),
        (Reason::UnsupportedProtocolConfigured, "port 53 is UDP"),
        (Reason::LoadBalancerTypeUnconfigured, "lb11"),
        (Reason::FieldIgnored, "198.51.100.1"),
    ];
    assert_eq!(plan.findings.len(), expected.len(), "{plan:?}");
    for (told, (reason, part)) in plan.findings.iter().zip(expected) {
        assert_eq!(told.reason, reason);
        assert_says(&told.message, &[part]);
    }
    world.converge();
    assert_eq!(world.balancer().services.len(), 1);
}

/// Annotations of a Service with ports 80 (`http`) and 443 (`https`), and those that are told to have no effect, with
/// the protocols that have one.
type Idle = (&'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip] // A case is a line or two.
const IDLE: &[Idle] = &[
    ("certificate-type=managed", &[("certificate-type", "https")]),
    ("http-certificates=one", &[("http-certificates", "https")]),
    ("http-sticky-sessions=true", &[("http-sticky-sessions", "http or https")]),
    ("http-redirect-http=true", &[("http-redirect-http", "https")]),
    ("http-cookie-name=A", &[("http-cookie-name", "http or https")]),
    ("http-cookie-lifetime=5m", &[("http-cookie-lifetime", "http or https")]),
    ("http-timeout-idle=60s", &[("http-timeout-idle", "http or https")]),
    ("http-managed-certificate-name=a", &[("http-managed-certificate-name", "https")]),
    ("http-managed-certificate-domains=a.example", &[("http-managed-certificate-domains", "https")]),
    ("http-managed-certificate-acme-staging=true", &[("http-managed-certificate-acme-staging", "https")]),
    // The annotation is for one port only.
    ("http-sticky-sessions.http=true", &[("http-sticky-sessions", "http or https")]),
    // Plain http has no certificates.
    ("protocol=http http-certificates=one http-cookie-name=A", &[("http-certificates", "https")]),
    // One https port is enough.
    ("protocol.https=https http-certificates=one http-cookie-name=A http-timeout-idle=60s", &[]),
    // Nothing is asked for.
    ("http-sticky-sessions=false http-redirect-http=false http-certificates=", &[]),
];

#[test]
fn an_annotation_for_http_is_reported_when_no_port_is_http() {
    for (annotations, expected) in IDLE {
        for profile in PROFILES {
            let mut world = World::new(profile);
            world.service.ports = vec![port("http", 80), port("https", 443)];
            world.converge();
            world.set(annotations);
            let outcome = world.plan().outcome;
            assert_eq!(outcome.obstacle(), None, "{annotations}");
            let told = world.finding_messages(Reason::AnnotationWithoutEffect);
            assert_eq!(told.len(), expected.len(), "{annotations}: {told:?}");
            for (told, (name, about)) in told.iter().zip(*expected) {
                let says = format!(
                    "annotation {PREFIX}{name} has no effect, because no port of the Service has protocol {about}."
                );
                assert!(told.starts_with(&says), "{told}");
                let mends = format!("Set annotation {PREFIX}protocol to http");
                assert!(told.contains(&mends), "{told}");
            }
        }
    }
}

#[test]
fn a_load_balancer_that_serves_nothing_is_reported() {
    let kinds = [(Protocol::Udp, Protocol::Sctp, true), (Protocol::Udp, Protocol::Tcp, false)];
    for (first, second, is_told) in kinds {
        for profile in PROFILES {
            let mut world = World::new(profile);
            world.service.ports = vec![port("a", 53), port("b", 54)];
            world.service.ports[0].protocol = first;
            world.service.ports[1].protocol = second;
            for _ in 0..2 {
                let told = world.finding_messages(Reason::UnsupportedProtocolConfigured);
                let nothing =
                    |told: &&String| told.contains("serves nothing, but still costs money");
                let count = told.iter().filter(nothing).count();
                assert_eq!(count, usize::from(is_told), "{first:?} {second:?}");
                world.converge();
            }
        }
    }
}

/// An error that stops the sync of the whole Service is reported alone.
#[test]
fn a_bad_value_without_effect_is_reported_once() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.set("http-timeout-idle=10s");
    assert!(world.obstacle().contains("use 30s to 300s"));
    assert!(!world.findings().contains(&Reason::AnnotationWithoutEffect));
    world.set("http-timeout-idle=30s");
    assert!(world.findings().contains(&Reason::AnnotationWithoutEffect));
}

#[test]
fn an_unknown_certificate_type_is_an_error_of_ours_and_uploaded_to_upstream() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        world.set("protocol=https certificate-type=imported http-certificates=7");
        match profile {
            Profile::CcmFromScratch => assert!(world.obstacle().contains("uploaded or managed")),
            Profile::Hcloud => {
                assert!(world.findings().contains(&Reason::AnnotationWithoutEffect));
                world.converge();
                assert_eq!(world.listener().certificates(), [7]);
            }
        }
    }
}

#[test]
fn a_managed_certificate_of_the_service_is_found_by_its_label() {
    for profile in PROFILES {
        let mut world = World::new(profile);
        let uid = world.service.uid.clone();
        let certificates = world.state.certificates.as_mut().unwrap();
        let label = ccm::hetzner::load_balancers::SERVICE_UID;
        certificates[1].labels.insert(label.into(), uid);
        world.set("protocol=https certificate-type=Managed");
        world.converge();
        assert_eq!(world.listener().certificates(), [8]);
    }
}
