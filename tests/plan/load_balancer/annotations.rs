//! Every annotation is set at creation, changed, removed again, and given a bad value, in both profiles.

use crate::common::help::has_table;
use crate::load_balancer::support::{NETWORK, PROFILES, World, port, words};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::annotations::{
    AnnotationScope, MEANINGS, PREFIX, TABLE, kind_of, markdown,
};
use ccm::hetzner::load_balancers::{KEEP, Listener, ObservedBalancers, PortField};
use ccm::provider::{AnnotationKind, Protocol, Reason, ServicePort, TrafficPolicy};
use std::collections::BTreeSet;

/// An annotation and its effect.
struct Case {
    name: &'static str,
    /// The annotations that it needs beside it.
    with: &'static str,
    network: bool,
    /// The effect as a text.
    of: fn(&World) -> String,
    /// Two values, each with its effect.
    first: (&'static str, &'static str),
    second: (&'static str, &'static str),
    /// The effect after the annotation was removed, in our profile and in profile `hcloud`.
    removed: (&'static str, &'static str),
    /// A bad value, and what the error says is allowed. An empty text means that any value is allowed.
    bad: (&'static str, &'static str),
    /// The writes of the change from the first to the second.
    writes: &'static str,
}

const BASE: Case = Case {
    name: "",
    with: "",
    network: false,
    of: |_| String::new(),
    first: ("", ""),
    second: ("", ""),
    removed: ("", ""),
    bad: ("", ""),
    writes: "update_service",
};

const HTTP: &str = "protocol=http";
const HTTPS: &str = "protocol=https http-certificates=one";
const CHECK: &str = "health-check-protocol=http";
const BOOLEAN: (&str, &str) = ("yes", "use true or false");

fn field(world: &World, field: PortField) -> String {
    let listener: &Listener = world.listener();
    field.of(listener).unwrap_or_default()
}

fn statuses(world: &World) -> String {
    let shown = world.ingress().into_iter().map(|one| {
        let name = world.named_address(&one.ip.or(one.hostname).unwrap());
        [Some(name), one.ip_mode].into_iter().flatten().collect::<Vec<_>>().join(" ")
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn targets(world: &World) -> String {
    let targets = world.balancer().server_targets();
    let shown = targets.map(|(id, private)| format!("{id}{}", if private { "p" } else { "" }));
    shown.collect::<Vec<_>>().join(" ")
}

fn public(world: &World) -> String {
    world.balancer().public_net.enabled.to_string()
}

/// Returns the labels that no controller sets.
fn labels(world: &World) -> String {
    let all = world.balancer().labels.iter();
    let own = all.filter(|(key, _)| !key.contains('/'));
    let shown: Vec<String> = own.map(|(key, value)| format!("{key}={value}")).collect();
    shown.join(" ")
}

const VIP: &str = "IPv4 VIP, IPv6 VIP";
const PRIVATE_TOO: &str = "IPv4 VIP, IPv6 VIP, 10.0.0.2 VIP";

#[rustfmt::skip] // A case is a paragraph.
const CASES: &[Case] = &[
    Case { name: "name", of: |w| w.balancer().name.clone(), first: ("one", "one"), second: ("two", "two"),
        removed: ("two", "two"), writes: "edit", ..BASE },
    Case { name: "type", of: |w| w.balancer().load_balancer_type.name.clone(), first: ("lb21", "lb21"), second: ("lb31", "lb31"),
        removed: ("lb31", "lb31"), bad: ("lb99", "use lb11, lb21 or lb31"), writes: "change_type", ..BASE },
    Case { name: "type", of: |w| w.balancer().load_balancer_type.name.clone(), first: ("auto", "lb11"), second: ("lb31", "lb31"),
        removed: ("lb31", "lb31"), bad: ("lb99", "use lb11, lb21 or lb31"), writes: "change_type", ..BASE },
    Case { name: "type-max", with: "type=lb31", of: |w| w.balancer().load_balancer_type.name.clone(), first: ("lb11", "lb11"),
        second: ("lb21", "lb21"), removed: ("lb31", "lb31"), bad: ("", ""), writes: "change_type", ..BASE },
    Case { name: "location", of: |w| w.balancer().location.name.to_string(), first: ("nbg1", "nbg1"), second: ("hel1", "nbg1"),
        removed: ("nbg1", "nbg1"), writes: "", ..BASE },
    Case { name: "network-zone", with: "location=", of: |w| w.balancer().location.network_zone.to_string(),
        first: ("us-east", "us-east"), second: ("us-west", "us-east"), removed: ("us-east", "us-east"), writes: "", ..BASE },
    Case { name: "algorithm-type", of: |w| w.balancer().algorithm.kind.name().into(), first: ("Least_Connections", "least_connections"),
        second: ("round_robin", "round_robin"), removed: ("round_robin", "round_robin"),
        bad: ("random", "use round_robin or least_connections"), writes: "change_algorithm", ..BASE },
    Case { name: "algorithm-type", of: |w| w.balancer().algorithm.kind.name().into(), first: ("round_robin", "round_robin"),
        second: ("least_connections", "least_connections"), removed: ("round_robin", "least_connections"),
        bad: ("random", "use round_robin or least_connections"), writes: "change_algorithm", ..BASE },
    Case { name: "disable-public-network", with: "use-private-ip=true", network: true, of: public,
        first: ("false", "true"), second: ("true", "false"), removed: ("false", "false"), bad: BOOLEAN,
        writes: "disable_public_interface" },
    Case { name: "disable-public-network", with: "use-private-ip=true", network: true, of: public,
        first: ("true", "false"), second: ("false", "true"), removed: ("true", "true"), bad: BOOLEAN,
        writes: "enable_public_interface" },
    Case { name: "disable-private-ingress", network: true, of: statuses, first: ("false", PRIVATE_TOO), second: ("true", VIP),
        removed: (PRIVATE_TOO, PRIVATE_TOO), bad: BOOLEAN, writes: "", ..BASE },
    Case { name: "use-private-ip", network: true, of: targets, first: ("true", "1p 2p 3p"), second: ("false", "1 2 3"),
        removed: ("1 2 3", "1 2 3"), bad: BOOLEAN,
        writes: "remove_target add_target remove_target add_target remove_target add_target", ..BASE },
    Case { name: "use-private-ip", network: true, of: targets, first: ("false", "1 2 3"), second: ("true", "1p 2p 3p"),
        removed: ("1 2 3", "1 2 3"), bad: BOOLEAN,
        writes: "remove_target add_target remove_target add_target remove_target add_target", ..BASE },
    Case { name: "private-ipv4", with: "use-private-ip=true", network: true,
        of: |w| format!("{} {}", w.balancer().private_net[0].ip.unwrap(), targets(w)),
        first: ("10.0.0.5", "10.0.0.5 1p 2p 3p"), second: ("10.0.0.6", "10.0.0.6 1p 2p 3p"),
        removed: ("10.0.0.6 1p 2p 3p", "10.0.0.6 1p 2p 3p"), bad: ("10.0.0", "use an IPv4 address"),
        writes: "detach_from_network attach_to_network add_target add_target add_target" },
    Case { name: "private-subnet-ip-range", network: true, of: |w| w.balancer().private_net.len().to_string(),
        first: ("10.0.0.0/24", "1"), second: ("10.0.9.0/24", "1"), removed: ("1", "1"), bad: ("10.0.0.0", "use an IP range"),
        writes: "", ..BASE },
    Case { name: "ipv6-disabled", of: statuses, first: ("true", "IPv4 VIP"), second: ("false", VIP), removed: (VIP, VIP),
        bad: BOOLEAN, writes: "", ..BASE },
    Case { name: "hostname", of: statuses, first: ("a.example", "a.example"), second: ("b.example", "b.example"), removed: (VIP, VIP),
        bad: ("Foo_Bar.example", "use a host name (no IP address)"), writes: "", ..BASE },
    Case { name: "ipv4-rdns", of: |w| w.balancer().public_net.ipv4.dns_ptr.clone().unwrap(), first: ("a.example", "a.example"),
        second: ("b.example", "b.example"), removed: ("b.example", "b.example"), writes: "change_dns_ptr", ..BASE },
    Case { name: "ipv6-rdns", of: |w| w.balancer().public_net.ipv6.dns_ptr.clone().unwrap(), first: ("a.example", "a.example"),
        second: ("b.example", "b.example"), removed: ("b.example", "b.example"), writes: "change_dns_ptr", ..BASE },
    Case { name: "node-selector", of: targets, first: ("n in (1,2)", "1 2"), second: ("n!=1", "2 3"), removed: ("2 3 1", "2 3 1"),
        bad: ("n in (1", "a \"(\" has no \")\" after it"), writes: "add_target remove_target", ..BASE },
    Case { name: "keep", of: |w| w.balancer().labels.get(KEEP).cloned().unwrap_or_default(), first: ("false", ""),
        second: ("true", "default.web"), removed: ("", ""), bad: BOOLEAN, writes: "edit", ..BASE },
    Case { name: "deletion-protection", of: |w| w.balancer().protection.delete.to_string(), first: ("false", "false"),
        second: ("true", "true"), removed: ("true", "true"), bad: BOOLEAN, writes: "change_protection", ..BASE },
    Case { name: "deletion-protection", of: |w| w.balancer().protection.delete.to_string(), first: ("true", "true"),
        second: ("false", "false"), removed: ("false", "false"), bad: BOOLEAN, writes: "change_protection", ..BASE },
    Case { name: "labels", of: labels, first: ("team=web, cost=42,", "cost=42 team=web"), second: ("team=", "cost=42 team="),
        removed: ("cost=42 team=", "cost=42 team="), bad: ("team", "is not of the form KEY=VALUE"), writes: "edit", ..BASE },
    Case { name: "protocol", of: |w| field(w, PortField::Protocol), first: ("HTTP", "http"), second: ("tcp", "tcp"),
        removed: ("tcp", "tcp"), bad: ("udp", "use tcp, http or https"), ..BASE },
    Case { name: "protocol", with: "http-certificates=one", of: |w| field(w, PortField::Protocol),
        first: ("tcp", "tcp"), second: ("https", "https"), removed: ("tcp", "tcp"), bad: ("ftp", "use tcp, http or https"), ..BASE },
    Case { name: "uses-proxyprotocol", of: |w| field(w, PortField::ProxyProtocol), first: ("false", "false"), second: ("true", "true"),
        removed: ("false", "true"), bad: BOOLEAN, ..BASE },
    Case { name: "http-cookie-name", with: HTTP, of: |w| field(w, PortField::CookieName), first: ("A", "A"), second: ("B", "B"),
        removed: ("HCLBSTICKY", "B"), ..BASE },
    Case { name: "http-cookie-lifetime", with: HTTP, of: |w| field(w, PortField::CookieLifetime), first: ("1m", "60s"),
        second: ("90s", "90s"), removed: ("300s", "90s"), bad: ("15", "a duration needs a unit"), ..BASE },
    Case { name: "http-timeout-idle", with: HTTP, of: |w| field(w, PortField::TimeoutIdle), first: ("30s", "30s"),
        second: ("5m", "300s"), removed: ("300s", "300s"), bad: ("10s", "use 30s to 300s"), ..BASE },
    Case { name: "http-sticky-sessions", with: HTTP, of: |w| field(w, PortField::StickySessions), first: ("false", "false"),
        second: ("true", "true"), removed: ("false", "true"), bad: BOOLEAN, ..BASE },
    Case { name: "http-redirect-http", with: HTTPS, of: |w| field(w, PortField::RedirectHttp), first: ("false", "false"),
        second: ("true", "true"), removed: ("false", "true"), bad: BOOLEAN, ..BASE },
    Case { name: "http-certificates", with: "protocol=https", of: |w| field(w, PortField::Certificates),
        first: ("one", "7"), second: ("8 , one", "7, 8"), removed: ("needs a certificate", "7, 8"),
        bad: ("three", "the project has no certificate with the ID or name \"three\""), ..BASE },
    Case { name: "health-check", of: |w| format!("{} {}", field(w, PortField::CheckProtocol), field(w, PortField::CheckPort)),
        first: ("kube-proxy", "http 10256"), second: ("Kube-Proxy", "http 10256"), removed: ("tcp 30080", "tcp 30080"),
        bad: ("kubeproxy", "use kube-proxy"), writes: "", ..BASE },
    Case { name: "health-check-protocol", of: |w| format!("{}{}", field(w, PortField::CheckProtocol), field(w, PortField::CheckTls)),
        first: ("HTTP", "httpfalse"), second: ("https", "httptrue"), removed: ("tcp", "tcp"), bad: ("udp", "use tcp, http or https"), ..BASE },
    Case { name: "health-check-port", of: |w| field(w, PortField::CheckPort), first: ("8080", "8080"), second: ("8081", "8081"),
        removed: ("30080", "30080"), bad: ("70000", "use a port number"), ..BASE },
    Case { name: "health-check-interval", of: |w| field(w, PortField::CheckInterval), first: ("5s", "5s"), second: ("1m", "60s"),
        removed: ("15s", "60s"), bad: ("1500ms", "use whole seconds"), ..BASE },
    Case { name: "health-check-timeout", of: |w| field(w, PortField::CheckTimeout), first: ("5s", "5s"), second: ("6s", "6s"),
        removed: ("10s", "6s"), bad: ("0s", "use 1s to"), ..BASE },
    Case { name: "health-check-retries", of: |w| field(w, PortField::CheckRetries), first: ("5", "5"), second: ("1", "1"),
        removed: ("3", "1"), bad: ("0", "use a whole number of 1 or more"), ..BASE },
    Case { name: "health-check-http-domain", with: CHECK, of: |w| field(w, PortField::CheckDomain), first: ("a.example", "a.example"),
        second: ("b.example", "b.example"), removed: ("(none)", "b.example"), bad: ("a b", "use a host name"), ..BASE },
    Case { name: "health-check-http-path", with: CHECK, of: |w| field(w, PortField::CheckPath), first: ("/a", "/a"), second: ("/b", "/b"),
        removed: ("/", "/b"), bad: ("a", "use a path that begins with /"), ..BASE },
    Case { name: "http-status-codes", with: CHECK, of: |w| field(w, PortField::CheckStatusCodes), first: ("200, 301,", "200, 301"),
        second: ("2??", "2??"), removed: ("2??, 3??", "2??"), bad: ("2xx", "is no status code"), ..BASE },
    Case { name: "health-check-http-validate-certificate", with: CHECK, of: |w| field(w, PortField::CheckTls),
        first: ("false", "false"), second: ("true", "true"), removed: ("false", "false"), bad: BOOLEAN, ..BASE },
];

/// The annotations that have tests of their own, in `certificates` and `primary_ips`.
#[rustfmt::skip]
const ELSEWHERE: [&str; 13] = [
    "departing-delay", "prefer-nodes-with-pods",
    "http-tls-secret", "share", "share-namespaces", "external", "external-targets", "certificate-type",
    "http-managed-certificate-name", "http-managed-certificate-domains", "http-managed-certificate-acme-staging",
    "public-net-ipv4", "public-net-ipv6",
];

fn world(case: &Case, profile: Profile) -> World {
    let mut world = World::new(profile);
    if case.network {
        world = world.with_network();
    }
    for (at, node) in world.nodes.iter_mut().enumerate() {
        let number = (at + 1).to_string();
        let labels = node.labels.iter().chain([("n", number.as_str())]);
        node.labels = labels.collect();
    }
    if case.with == HTTPS {
        // A redirect takes port 80 itself.
        world.service.ports = vec![port("https", 443)];
    }
    world.set(case.with);
    world
}

#[test]
fn every_annotation_is_set_changed_and_removed() {
    for (case, profile) in CASES.iter().flat_map(|case| PROFILES.map(|profile| (case, profile))) {
        let about = format!("{} in profile {}", case.name, profile.name());
        let mut world = world(case, profile);
        world.set_one(case.name, case.first.0);
        world.converge();
        assert_eq!((case.of)(&world), case.first.1, "{about}: at creation");
        world.set_one(case.name, case.second.0);
        let made = world.converge();
        assert_eq!((case.of)(&world), case.second.1, "{about}: changed");
        assert_eq!(words(&made), case.writes, "{about}: writes of the change");
        world.unset(case.name);
        let removed = match profile {
            Profile::CcmFromScratch => case.removed.0,
            Profile::Hcloud => case.removed.1,
        };
        if let Some(obstacle) = world.plan().outcome.obstacle() {
            let message = &obstacle.message;
            assert!(message.contains(removed), "{about}: {message}");
            continue;
        }
        world.converge();
        assert_eq!((case.of)(&world), removed, "{about}: removed");
    }
}

#[test]
fn a_bad_value_is_explained_and_changes_nothing() {
    let with_bad = CASES.iter().filter(|case| !case.bad.0.is_empty());
    for (case, profile) in with_bad.flat_map(|case| PROFILES.map(|profile| (case, profile))) {
        let mut world = world(case, profile);
        world.set_one(case.name, case.first.0);
        world.converge();
        world.set_one(case.name, case.bad.0);
        let message = world.obstacle();
        for part in [case.bad.0, case.bad.1] {
            assert!(message.contains(part), "{}: {message}", case.name);
        }
        let names_it = message.contains(&format!("annotation {PREFIX}{}", case.name));
        assert!(names_it, "{message}");
        // The plan is right again when the value is corrected.
        world.set_one(case.name, case.first.0);
        assert_eq!(words(&world.converge()), "", "{}", case.name);
    }
}

#[test]
fn every_annotation_has_a_case() {
    let cases: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
    for (row, meaning) in TABLE.iter().zip(MEANINGS).filter(|(row, _)| row.is_read) {
        let has_case = cases.contains(row.name) || ELSEWHERE.contains(&row.name);
        assert!(has_case, "{} has no case", row.name);
        assert!(meaning.ends_with('.'), "{}", row.name);
    }
}

/// The examples are planned with values that exist in no project, where each name counts as right.
#[test]
fn the_example_of_each_annotation_is_right() {
    const MANAGED: &str =
        "protocol=https certificate-type=managed http-managed-certificate-domains=a.example";
    for row in TABLE.iter().filter(|row| row.is_read) {
        let example = row.example().unwrap_or_else(|| panic!("{}: no example", row.name));
        let case = CASES.iter().find(|case| case.name == row.name);
        let with = match (case, row.name.contains("certificate")) {
            (Some(case), _) => case.with,
            (None, _) if row.name == "http-tls-secret" => "protocol=https",
            (None, true) if row.name == "certificate-type" => HTTPS,
            (None, true) => MANAGED,
            (None, false) => "",
        };
        let mut world = World::new(Profile::CcmFromScratch);
        world.service.ports = vec![port("https", 443)];
        world.network = Some(NETWORK);
        if row.name == "prefer-nodes-with-pods" {
            world.service.traffic_policy = TrafficPolicy::Local;
        }
        world.state = ObservedBalancers { is_for_manifests: true, ..ObservedBalancers::default() };
        world.set(with);
        world.set_one(row.name, example);
        let outcome = world.plan().outcome;
        assert_eq!(outcome.obstacle(), None, "{} {example}", row.name);
        for unused in [Reason::UnknownAnnotation, Reason::AnnotationWithoutEffect] {
            assert_eq!(world.finding_messages(unused), [""; 0], "{} {example}", row.name);
        }
    }
}

#[test]
fn one_port_may_have_its_own_annotation() {
    let per_port = TABLE.iter().filter(|row| row.scope == AnnotationScope::Port);
    let names: BTreeSet<&str> = per_port.map(|row| row.name).collect();
    let value_of = |world: &World, case: &Case, at: usize| {
        let mut one = World::new(world.profile);
        one.state = world.state.clone();
        one.service = world.service.clone();
        one.balancer_mut().services.swap(0, at);
        (case.of)(&one)
    };
    for case in CASES.iter().filter(|case| names.contains(case.name)) {
        let by_name = format!("{}.second", case.name);
        let by_number = format!("{}.9443", case.name);
        for key in [by_name, by_number] {
            let mut world = World::new(Profile::CcmFromScratch);
            world.service.ports = vec![port("first", 9000), port("second", 9443)];
            world.set(case.with);
            world.set_one(case.name, case.first.0);
            world.set_one(&key, case.second.0);
            world.converge();
            // The check's port is the node port unless it is said.
            assert_eq!(value_of(&world, case, 0), case.first.1, "{key}");
            assert_eq!(value_of(&world, case, 1), case.second.1, "{key}");
        }
    }
}

/// Annotations of a Service with 53/TCP (`dns-tcp`) and 53/UDP (`dns-udp`), what its one listener
/// becomes, and the annotation that is told to have no effect.
type Shared = (&'static str, &'static str, Option<&'static str>);

#[rustfmt::skip] // A case is a line.
const SHARED: &[Shared] = &[
    ("protocol.dns-udp=http", "tcp false", Some("protocol.dns-udp")),
    ("protocol.dns-tcp=http", "http false", None),
    ("protocol.53=http", "http false", None),
    ("uses-proxyprotocol.dns-tcp=true uses-proxyprotocol.dns-udp=false", "tcp true",
        Some("uses-proxyprotocol.dns-udp")),
    ("uses-proxyprotocol.dns-udp=true uses-proxyprotocol=false", "tcp false",
        Some("uses-proxyprotocol.dns-udp")),
    ("protocol.quic=http", "tcp false", Some("protocol.quic")),
    ("protocol.443=http", "tcp false", Some("protocol.443")),
];

/// Two ports may have the same number, and only the TCP port is the load balancer's.
#[test]
fn an_annotation_of_a_udp_port_changes_no_tcp_port() {
    let udp = |name, number| ServicePort { protocol: Protocol::Udp, ..port(name, number) };
    for (annotations, expected, told) in SHARED {
        for udp_first in [false, true] {
            for profile in PROFILES {
                let mut world = World::new(profile);
                let mut ports = vec![port("dns-tcp", 53), udp("dns-udp", 53), udp("quic", 443)];
                if udp_first {
                    ports.reverse();
                }
                world.service.ports = ports;
                world.set(annotations);
                let without = world.finding_messages(Reason::AnnotationWithoutEffect);
                assert_eq!(without.len(), usize::from(told.is_some()), "{without:?}");
                if let Some(told) = told {
                    let key = format!("{PREFIX}{told} has no effect");
                    assert!(without[0].contains(&key), "{without:?}");
                    assert!(without[0].contains("is UDP"), "{without:?}");
                }
                world.converge();
                let protocol = field(&world, PortField::Protocol);
                let proxy = field(&world, PortField::ProxyProtocol);
                let is = format!("{protocol} {proxy}");
                assert_eq!(is, *expected, "{annotations:?}, UDP first: {udp_first}");
                assert_eq!(world.balancer().services.len(), 1);
            }
        }
    }
}

/// Annotations of other domains are dropped while an answer is parsed.
#[test]
fn every_annotation_is_in_the_domain_that_is_kept() {
    for key in [PREFIX, ccm::hetzner::EXTERNAL_IPV6] {
        let (domain, _) = key.split_once('/').unwrap();
        assert!(domain.ends_with(ccm::provider::ANNOTATION_DOMAIN), "{key}");
    }
}

/// `CCM_UPDATE_HELP=1 cargo test --test plan` writes the table.
#[test]
fn the_help_page_has_the_table() {
    has_table("annotations", "annotations", &markdown());
}

#[test]
fn the_name_of_an_annotation_decides_what_is_kept_of_it() {
    use AnnotationKind::{Foreign, Known, Unknown};
    for (key, expected) in [
        ("load-balancer.hetzner.cloud/type", Known),
        ("load-balancer.hetzner.cloud/Type", Known),
        ("load-balancer.hetzner.cloud/protocol.https", Known),
        ("load-balancer.hetzner.cloud/PROTOCOL.443", Known),
        ("load-balancer.hetzner.cloud/protocol.a.b", Known),
        ("load-balancer.hetzner.cloud/protcol", Unknown),
        ("load-balancer.hetzner.cloud/", Unknown),
        // No program reads it.
        ("load-balancer.hetzner.cloud/ipv4", Foreign),
        ("instance.hetzner.cloud/type", Foreign),
        ("type", Foreign),
        ("example.com/type", Foreign),
    ] {
        assert_eq!(kind_of(key), expected, "{key}");
    }
}
