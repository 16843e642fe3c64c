//! The protocol with which targets are checked, when the annotations name it not at all or only in part.

use crate::load_balancer::support::{World, environment};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::PortField;
use ccm::provider::{HealthCheck, Reason, TrafficPolicy};

/// The annotations, whether the environment has an interval, and the health check in our profile and
/// in profile `hcloud`.
type Case = (&'static str, bool, &'static str, &'static str);

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    ("", false, "tcp", "tcp"),
    ("protocol=http", false, "tcp", "tcp"),
    ("protocol=http health-check-port=1", false, "http", "http"),
    ("protocol=http health-check-interval=5s", false, "http", "http"),
    ("protocol=http health-check-timeout=5s", false, "http", "http"),
    ("protocol=http health-check-retries=5", false, "http", "http"),
    ("protocol=http", true, "http", "http"),
    ("protocol=http health-check-http-path=/a", false, "http", "tcp!"),
    ("protocol=http http-status-codes=200", false, "http", "tcp!"),
    ("protocol=http health-check-protocol=tcp health-check-http-path=/a", false, "tcp!", "tcp!"),
    ("protocol=https http-certificates=7 health-check-retries=5", false, "https", "https"),
    ("health-check-http-path=/a", false, "tcp!", "tcp!"),
    ("health-check-protocol=https", false, "https", "https"),
    ("health-check-protocol=http health-check-http-validate-certificate=true", false, "https", "https"),
];

#[test]
fn the_protocol_of_a_health_check_follows_the_annotations() {
    for (annotations, interval, ours, upstream) in CASES {
        for (profile, expected) in [(Profile::CcmFromScratch, ours), (Profile::Hcloud, upstream)] {
            let mut world = World::new(profile);
            if *interval {
                let variable = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL";
                world.defaults.health_check.interval_s = Some(environment(variable, 15));
            }
            world.set(annotations);
            let told = world.findings().contains(&Reason::AnnotationWithoutEffect);
            world.converge();
            let protocol = PortField::CheckProtocol.of(world.listener()).unwrap();
            let tls = PortField::CheckTls.of(world.listener());
            let shown = match (protocol.as_str(), tls.as_deref()) {
                ("http", Some("true")) => "https",
                (name, _) => name,
            };
            let shown = format!("{shown}{}", if told { "!" } else { "" });
            assert_eq!(shown, **expected, "{annotations} {profile:?}");
        }
    }
}

/// A field that no annotation sets is set back, too. The other controller leaves it.
#[test]
fn an_expected_response_that_was_set_by_hand_is_removed() {
    for (profile, after) in [(Profile::CcmFromScratch, "(none)"), (Profile::Hcloud, "pong")] {
        let mut world = World::new(profile);
        world.set("health-check-protocol=http");
        world.converge();
        world.balancer_mut().services[0].set(PortField::CheckResponse, "pong");
        let made = world.converge();
        let response = PortField::CheckResponse.of(world.listener());
        assert_eq!(response.as_deref(), Some(after), "{profile:?}");
        assert_eq!(made.len(), usize::from(profile == Profile::CcmFromScratch));
    }
}

const DEFAULT: &str = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK";

fn shown(world: &World) -> String {
    let field = |field: PortField| field.of(world.listener()).unwrap_or("-".into());
    [
        PortField::CheckProtocol,
        PortField::CheckPort,
        PortField::CheckPath,
        PortField::CheckStatusCodes,
    ]
    .map(field)
    .join(" ")
}

/// Annotations that describe another check win. The interval counts for both.
#[test]
fn kube_proxy_is_asked_unless_another_check_is_described() {
    const ASKED: &str = "http 10256 /healthz 200";
    let cluster = TrafficPolicy::Cluster;
    let local = TrafficPolicy::Local;
    #[rustfmt::skip] // A case is a line.
    let cases = [
        // Each case has the policy, the annotations, whether the environment asks for kube-proxy, the check, and the
        // number of warnings.
        (cluster, "", false, "tcp 30080 - -", 0),
        (cluster, "health-check=kube-proxy", false, ASKED, 0),
        (cluster, "", true, ASKED, 0),
        (cluster, "health-check=kube-proxy", true, ASKED, 0),
        (cluster, "health-check=kube-proxy health-check-interval=5s", false, ASKED, 0),
        (cluster, "health-check=kube-proxy protocol=http", false, ASKED, 0),
        (cluster, "health-check.http=kube-proxy", false, ASKED, 0),
        (cluster, "health-check=kube-proxy health-check-port=8080", false, "tcp 8080 - -", 1),
        (cluster, "health-check=kube-proxy health-check-protocol=tcp", false, "tcp 30080 - -", 1),
        (cluster, "health-check=kube-proxy health-check-protocol.http=tcp", false, "tcp 30080 - -", 1),
        (cluster, "health-check-protocol=tcp", true, "tcp 30080 - -", 0),
        (cluster, "protocol=http http-status-codes=404", true, "http 30080 / 404", 0),
        (cluster, "protocol=http health-check-http-path=/up", true, "http 30080 /up 2??, 3??", 0),
        (local, "", true, "http 32000 /healthz 2??, 3??", 0),
        (local, "health-check=kube-proxy", false, "http 32000 /healthz 2??, 3??", 1),
        (local, "health-check=kube-proxy health-check-port=8080", false, "tcp 8080 - -", 1),
    ];
    for (policy, annotations, by_default, expected, warnings) in cases {
        let mut world = World::new(Profile::CcmFromScratch);
        world.service.traffic_policy = policy;
        world.service.health_check_node_port = (policy == local).then_some(32000);
        let set = || environment(DEFAULT, HealthCheck::KubeProxy);
        world.defaults.health_check.kind = by_default.then(set);
        world.set(annotations);
        let told = world.finding_messages(Reason::AnnotationWithoutEffect);
        world.converge();
        let about = format!("{policy:?} {annotations} {by_default}");
        assert_eq!(shown(&world), expected, "{about}");
        assert_eq!(told.len(), warnings, "{about}");
    }
}

/// The other controller leaves path and status codes unchanged, and those of kube-proxy would make each pod unhealthy.
#[test]
fn nothing_of_a_former_health_check_of_kube_proxy_stays() {
    for profile in [Profile::CcmFromScratch, Profile::Hcloud] {
        let mut world = World::new(profile);
        world.set("protocol=http health-check-interval=5s");
        world.set("health-check=kube-proxy");
        world.converge();
        assert_eq!(shown(&world), "http 10256 /healthz 200", "{profile:?}");
        world.unset("health-check");
        world.converge();
        assert_eq!(shown(&world), "http 30080 / 2??, 3??", "{profile:?}");
    }
    // A health check that was made by hand, with that port in the annotation, stays as it was.
    let mut world = World::new(Profile::Hcloud);
    world.set("health-check-protocol=http health-check-port=10256");
    world.converge();
    world.balancer_mut().services[0].set(PortField::CheckPath, "/healthz");
    assert!(world.plan().outcome.changes().is_empty());
}
