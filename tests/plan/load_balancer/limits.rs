//! Whatever is read of a Service: its plan costs little time, and says little.
//!
//! At most 250 ports and 500 annotations with 32 KiB together are read, see `kube/services.rs` and `kube/labels.rs`.

use crate::load_balancer::support::{PROFILES, World, certificate, computed, node, nodes, port};
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{Certificate, CertificateStatus};
use ccm::provider::{Protocol, ProviderId, ServicePort};
use std::time::Duration;

/// The size in bytes and the number of all annotations that are read.
const ANNOTATIONS: usize = 32 << 10;
const COUNT: usize = 500;

/// The limit for one plan. Unoptimized code is some ten times slower.
const MOST: Duration = match cfg!(debug_assertions) {
    true => Duration::from_millis(300),
    false => Duration::from_millis(50),
};

/// Name, and how a Service becomes hostile.
type Case = (&'static str, fn(&mut World));

fn ports(world: &mut World, count: usize, protocol: Protocol) {
    let ports = (1..=count)
        .map(|n| ServicePort { protocol, ..port(&format!("p{n}"), u16::try_from(n).unwrap()) });
    world.service.ports.extend(ports);
}

/// Gives the Service as many ports as a type takes.
fn thirty(world: &mut World) {
    world.service.ports.clear();
    ports(world, 30, Protocol::Tcp);
    world.set("type=lb31");
}

/// Fills the Service with as many annotations as fit.
fn fill(world: &mut World, of: impl Fn(usize) -> (String, String)) {
    let mut bytes = 0;
    for n in 0.. {
        let (name, value) = of(n);
        bytes += PREFIX.len() + name.len() + value.len();
        if bytes > ANNOTATIONS || n == COUNT {
            return;
        }
        world.set_one(&name, &value);
    }
}

/// Returns a value that is as long as allowed.
fn repeated(part: &str) -> String {
    part.repeat((ANNOTATIONS - 200) / part.len())
}

fn project_certificates(world: &mut World, count: u64) {
    let all = world.state.certificates.as_mut().unwrap();
    all.extend((0..count).map(|n| Certificate {
        domain_names: (0..20).map(|d| format!("d{d}.example")).collect(),
        status: Some(CertificateStatus {
            issuance: "completed".into(),
            ..CertificateStatus::default()
        }),
        ..certificate(1000 + n, &format!("certificate-of-somebody-{n}"))
    }));
}

/// Other letters for each number, of one name.
fn spelled(name: &str, n: usize) -> String {
    let letters = name.chars().enumerate().map(|(at, c)| match n >> at & 1 {
        1 => c.to_ascii_uppercase(),
        _ => c,
    });
    letters.collect()
}

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    ("250 ports with an annotation each", |w| {
        ports(w, 250, Protocol::Tcp);
        fill(w, |n| (format!("protocol.p{}", 1 + n % 250), "http".into()));
    }),
    ("250 UDP ports, and annotations for them", |w| {
        ports(w, 250, Protocol::Udp);
        fill(w, |n| (format!("protocol.p{}", 1 + n), "tcp".into()));
    }),
    ("annotations for ports that are not there", |w| {
        thirty(w);
        fill(w, |n| (format!("http-cookie-name.q{n}"), "a".into()));
    }),
    ("thousands of names of certificates", |w| {
        thirty(w);
        project_certificates(w, 1000);
        let names = repeated("c,b,a,");
        w.set("protocol=https");
        w.set_one("http-certificates", &names);
    }),
    ("names of certificates that are not there, for each port", |w| {
        thirty(w);
        project_certificates(w, 1000);
        w.set("protocol=https");
        let names: String = (0..290).map(|n| format!("certificate-of-somebodi-{n:03},")).collect();
        fill(w, |n| (format!("http-certificates.p{}", 1 + n % 30), format!("{names}{n}")));
    }),
    ("names of certificates that are there, for each port", |w| {
        thirty(w);
        project_certificates(w, 1000);
        w.set("protocol=https");
        let names: String = (950..1000).map(|n| format!("certificate-of-somebody-{n},")).collect();
        (1..=30).for_each(|n| w.set_one(&format!("http-certificates.p{n}"), &names));
    }),
    ("a managed certificate for each port", |w| {
        thirty(w);
        project_certificates(w, 1000);
        w.set("protocol=https certificate-type=managed");
        let domains: String = (0..300).map(|n| format!("domain-{n}.example,")).collect();
        for n in 1..=30 {
            w.set_one(&format!("http-managed-certificate-name.p{n}"), &format!("m{n}"));
            w.set_one(&format!("http-managed-certificate-domains.p{n}"), &domains);
        }
    }),
    ("domains", |w| {
        thirty(w);
        w.set("protocol=https certificate-type=managed");
        w.set_one("http-managed-certificate-domains", &repeated("a.example,"));
    }),
    ("status codes", |w| {
        thirty(w);
        w.set("health-check-protocol=http");
        w.set_one("http-status-codes", &repeated("2??,"));
    }),
    ("commas", |w| { thirty(w); w.set("health-check-protocol=http"); w.set_one("http-status-codes", &repeated(",")); }),
    ("unknown annotations", |w| { fill(w, |n| (n.to_string(), String::new())) }),
    ("unknown annotations that look like known ones", |w| fill(w, |n| (format!("health-check-intervall{n:04}"), String::new()))),
    ("unknown annotations with long names", |w| { fill(w, |n| (format!("{n:063}"), String::new())); }),
    ("one annotation in many spellings", |w| {
        fill(w, |n| (spelled("http-managed-certificate-domains", n), n.to_string()));
    }),
    ("a bad value in many spellings for each port", |w| {
        thirty(w);
        fill(w, |n| (format!("{}.p{}", spelled("protocol", n), 1 + n % 30), n.to_string()));
    }),
    ("requirements of a selector", |w| {
        w.nodes = nodes(5000);
        w.set_one("node-selector", repeated("!a,").trim_end_matches(','));
    }),
    ("values of a selector", |w| {
        w.nodes = nodes(5000);
        let values = repeated("fsn2,");
        let values = values.trim_end_matches(',');
        w.set_one("node-selector", &format!("topology.kubernetes.io/zone notin ({values})"));
    }),
    ("many requirements with many values", |w| {
        w.nodes = nodes(5000);
        let one = format!("topology.kubernetes.io/zone notin ({}fsn2)", "fsn3,".repeat(80));
        w.set_one("node-selector", &[one.as_str(); 30].join(","));
    }),
    ("long values", |w| {
        thirty(w);
        for name in ["name", "type", "location", "hostname", "ipv4-rdns", "protocol", "health-check-interval"] {
            w.set_one(name, &"ä\"".repeat(11_000));
        }
    }),
    ("one long value that is bad for every port", |w| {
        thirty(w);
        w.set_one("health-check-interval", &("1".to_owned() + &repeated("x")));
    }),
    ("long values that are good", |w| {
        thirty(w);
        w.set("protocol=http health-check-protocol=http");
        let long = "a".repeat(80_000);
        w.set_one("http-cookie-name", &long);
        w.set_one("health-check-http-domain", &long);
        w.set_one("health-check-http-path", &format!("/{long}"));
    }),
    ("values as long as they may be", |w| {
        thirty(w);
        w.set("protocol=http health-check-protocol=http");
        let long = "a".repeat(1024);
        w.set_one("http-cookie-name", &long);
        w.set_one("health-check-http-domain", &long);
        w.set_one("health-check-http-path", &format!("/{}", &long[1..]));
        let codes: Vec<String> = (100..200).map(|n| n.to_string()).collect();
        w.set_one("http-status-codes", &codes.join(","));
    }),
    ("a long address", |w| { w.service.load_balancer_ip = "1".repeat(1 << 20) }),
    ("source ranges", |w| {
        w.service.source_ranges = (0..50_000).map(|n| format!("10.{}.{}.0/24", n / 250, n % 250)).collect();
    }),
    ("a Primary IP with a long name", |w| {
        w.state.primary_ips = Some(Vec::new());
        w.set_one("public-net-ipv4", &repeated("a"));
    }),
    ("5,000 nodes of another cloud", |w| {
        w.nodes = nodes(5000);
        w.nodes.iter_mut().for_each(|node| node.provider_id = ProviderId::Foreign);
    }),
    ("5,000 nodes, and a load balancer with other targets", |w| {
        w.nodes = nodes(5000);
        w.set("type=lb31");
        w.converge();
        w.nodes = (200..5200).map(node).collect();
    }),
];

/// Returns the time of one plan. It is the mean of several plans, which reduces the effect of the clock's resolution.
fn cost(world: &World) -> Duration {
    const TIMES: u32 = 5;
    let plan = |_| drop(std::hint::black_box(world.plan()));
    computed(|| (0..TIMES).for_each(plan)).1 / TIMES
}

#[test]
fn a_plan_takes_bounded_time_for_any_service() {
    let mut slow = Vec::new();
    for (name, make) in CASES {
        for profile in PROFILES {
            let mut world = World::new(profile);
            make(&mut world);
            let cost = cost(&world);
            println!("{cost:>12?}  {name}, profile {}", profile.name());
            if cost > MOST {
                slow.push(format!("{name}: {cost:?}"));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

#[test]
fn a_plan_has_a_bounded_size_for_any_service() {
    for (name, make) in CASES {
        let mut world = World::new(PROFILES[0]);
        make(&mut world);
        let plan = world.plan();
        assert!(plan.findings.len() <= 40, "{name}: {}", plan.findings.len());
        for one in &plan.findings {
            let length = one.message.chars().count();
            assert!(length <= 1000, "{name}: {length}: {:.300}", one.message);
        }
        // All that is wrong, at once.
        let obstacle = plan.outcome.obstacle().map_or(0, |one| one.message.chars().count());
        assert!(obstacle <= 10_200, "{name}: {obstacle}");
    }
}
