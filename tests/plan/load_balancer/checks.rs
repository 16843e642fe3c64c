//! Which protocol targets are checked by, when nobody says so or only half of it.

use crate::load_balancer::support::{World, environment};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::PortField;
use ccm::provider::Reason;

/// Annotations, whether the environment has an interval, and the check: ours, and profile `hcloud`.
type Case = (
    &'static [(&'static str, &'static str)],
    bool,
    &'static str,
    &'static str,
);

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    (&[], false, "tcp", "tcp"),
    (&[("protocol", "http")], false, "tcp", "tcp"),
    (&[("protocol", "http"), ("health-check-port", "1")], false, "http", "http"),
    (&[("protocol", "http"), ("health-check-interval", "5s")], false, "http", "http"),
    (&[("protocol", "http"), ("health-check-timeout", "5s")], false, "http", "http"),
    (&[("protocol", "http"), ("health-check-retries", "5")], false, "http", "http"),
    (&[("protocol", "http")], true, "http", "http"),
    (&[("protocol", "http"), ("health-check-http-path", "/a")], false, "http", "tcp!"),
    (&[("protocol", "http"), ("http-status-codes", "200")], false, "http", "tcp!"),
    (&[("protocol", "http"), ("health-check-protocol", "tcp"), ("health-check-http-path", "/a")], false, "tcp!", "tcp!"),
    (&[("protocol", "https"), ("http-certificates", "7"), ("health-check-retries", "5")], false, "https", "https"),
    (&[("health-check-http-path", "/a")], false, "tcp!", "tcp!"),
    (&[("health-check-protocol", "https")], false, "https", "https"),
    (&[("health-check-protocol", "http"), ("health-check-http-validate-certificate", "true")], false, "https", "https"),
];

#[test]
fn the_protocol_of_a_check_follows_what_is_said() {
    for (annotations, interval, ours, upstream) in CASES {
        for (profile, expected) in [(Profile::CcmFromScratch, ours), (Profile::Hcloud, upstream)] {
            let mut world = World::new(profile);
            if *interval {
                let variable = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL";
                world.defaults.health_check_interval_s = Some(environment(variable, 15));
            }
            world.set(annotations);
            let told = world.findings().contains(&Reason::AnnotationWithoutEffect);
            world.settle();
            let protocol = PortField::CheckProtocol.of(world.listener()).unwrap();
            let tls = PortField::CheckTls.of(world.listener());
            let shown = match (protocol.as_str(), tls.as_deref()) {
                ("http", Some("true")) => "https",
                (name, _) => name,
            };
            let shown = format!("{shown}{}", if told { "!" } else { "" });
            assert_eq!(shown, **expected, "{annotations:?} {profile:?}");
        }
    }
}

/// What no annotation sets is set back too; upstream leaves it.
#[test]
fn an_expected_response_set_by_hand_goes() {
    for (profile, after) in [
        (Profile::CcmFromScratch, "(none)"),
        (Profile::Hcloud, "pong"),
    ] {
        let mut world = World::new(profile);
        world.set(&[("health-check-protocol", "http")]);
        world.settle();
        world.balancer_mut().services[0].set(PortField::CheckResponse, "pong");
        let made = world.settle();
        let response = PortField::CheckResponse.of(world.listener());
        assert_eq!(response.as_deref(), Some(after), "{profile:?}");
        assert_eq!(made.len(), usize::from(profile == Profile::CcmFromScratch));
    }
}
