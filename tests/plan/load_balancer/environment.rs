//! Every default of the environment: in force without an annotation, overruled by one, and removed again.

use crate::load_balancer::support::{
    NETWORK, PROFILES, World, creation, environment, pairs, words,
};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::annotations::TABLE;
use ccm::hetzner::load_balancers::{Algorithm, Defaults, PortField};
use ccm::provider::{HealthCheck, Labels, Source, TrafficPolicy};
use std::collections::BTreeSet;
use std::time::Duration;

struct Case {
    variable: &'static str,
    set: fn(&mut Defaults),
    unset: fn(&mut Defaults),
    /// The annotation that wins over it, and a value.
    annotation: &'static str,
    of: fn(&World) -> String,
    /// The effects by the environment, by the annotation, and with neither of them in our profile and
    /// in profile `hcloud`.
    effects: [&'static str; 4],
}

fn check(world: &World, field: PortField) -> String {
    field.of(world.listener()).unwrap()
}

fn addresses(world: &World) -> String {
    world.ingress().len().to_string()
}

fn env<T>(variable: &str, value: T) -> Option<ccm::provider::Sourced<T>> {
    Some(environment(variable, value))
}

/// Returns what happens to a node that has departed for half a minute.
fn departing(world: &World) -> String {
    let mut world = world.clone();
    world.nodes[0].departure.departed = Some(Duration::from_secs(30));
    world.plan().left_out.iter().map(|left| format!("{:?}", left.state)).collect()
}

/// Returns for how many Services the pods decide which of too many nodes become targets.
fn with_pods(world: &World) -> String {
    let mut world = world.clone();
    world.service.traffic_policy = TrafficPolicy::Local;
    world.balancer_mut().load_balancer_type.max_targets = 2;
    world.plan().pods_of.len().to_string()
}

const PRIVATE: &str = "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP";

#[rustfmt::skip] // A case is a paragraph.
const CASES: &[Case] = &[
    Case { variable: "HCLOUD_LOAD_BALANCERS_TYPE", set: |d| d.kind = env("HCLOUD_LOAD_BALANCERS_TYPE", "lb21".into()), unset: |d| d.kind = None,
        annotation: "type=lb31", of: |w| w.balancer().load_balancer_type.name.clone(), effects: ["lb21", "lb31", "lb31", "lb31"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_TYPE_MAX",
        set: |d| { d.kind = env("HCLOUD_LOAD_BALANCERS_TYPE", "lb31".into());
            d.permitted.largest_type = env("HCLOUD_LOAD_BALANCERS_TYPE_MAX", "lb21".into()); },
        unset: |d| d.permitted.largest_type = None, annotation: "type-max=lb11", of: |w| w.balancer().load_balancer_type.name.clone(),
        effects: ["lb21", "lb21", "lb31", "lb31"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_LOCATION", set: |d| d.location = env("HCLOUD_LOAD_BALANCERS_LOCATION", "hel1".into()), unset: |_| {},
        annotation: "location=nbg1", of: |w| w.balancer().location.name.to_string(), effects: ["hel1", "hel1", "hel1", "hel1"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE",
        set: |d| { d.location = None; d.network_zone = env("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", "us-east".into()); }, unset: |_| {},
        annotation: "network-zone=us-west", of: |w| w.balancer().location.network_zone.to_string(),
        effects: ["us-east", "us-east", "us-east", "us-east"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE",
        set: |d| d.algorithm = env("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", Algorithm::LeastConnections), unset: |d| d.algorithm = None,
        annotation: "algorithm-type=least_connections", of: |w| w.balancer().algorithm.kind.name().into(),
        effects: ["least_connections", "least_connections", "round_robin", "least_connections"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK",
        set: |d| { d.network.use_private_ip = env(PRIVATE, true);
            d.network.disable_public_network = env("HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", true); },
        unset: |d| d.network.disable_public_network = None, annotation: "disable-public-network=false",
        of: |w| w.balancer().public_net.enabled.to_string(), effects: ["false", "true", "true", "true"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS",
        set: |d| d.network.disable_private_ingress = env("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", true), unset: |d| d.network.disable_private_ingress = None,
        annotation: "disable-private-ingress=false", of: addresses, effects: ["2", "3", "3", "3"] },
    Case { variable: PRIVATE, set: |d| d.network.use_private_ip = env(PRIVATE, true), unset: |d| d.network.use_private_ip = None,
        annotation: "use-private-ip=false", of: |w| w.balancer().server_targets().filter(|t| t.1).count().to_string(),
        effects: ["3", "0", "0", "0"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE",
        set: |d| d.network.private_subnet = env("HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", "10.0.0.0/24".parse().unwrap()), unset: |_| {},
        annotation: "private-subnet-ip-range=10.0.0.0/16", of: |w| w.balancer().private_net[0].network.to_string(),
        effects: ["10", "10", "10", "10"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", set: |d| d.network.disable_ipv6 = env("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", true),
        unset: |d| d.network.disable_ipv6 = None, annotation: "ipv6-disabled=false", of: addresses, effects: ["2", "3", "3", "3"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL",
        set: |d| d.uses_proxyprotocol = env("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", true), unset: |d| d.uses_proxyprotocol = None,
        annotation: "uses-proxyprotocol=false", of: |w| check(w, PortField::ProxyProtocol), effects: ["true", "false", "false", "false"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY",
        set: |d| d.departing_delay = env("HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY", Duration::from_secs(10)), unset: |d| d.departing_delay = None,
        annotation: "departing-delay=60s", of: departing, effects: ["Departing", "Waits { seconds: 30 }", "", ""] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS",
        set: |d| d.prefer_nodes_with_pods = env("HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS", true), unset: |d| d.prefer_nodes_with_pods = None,
        annotation: "prefer-nodes-with-pods=false", of: with_pods, effects: ["1", "0", "0", "0"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_LABELS",
        set: |d| d.labels = env("HCLOUD_LOAD_BALANCERS_LABELS", Labels::parse("team=all,cost=1").unwrap()), unset: |d| d.labels = None,
        annotation: "labels=team=web", of: |w| format!("{} {}", w.balancer().labels["team"], w.balancer().labels["cost"]),
        effects: ["all 1", "web 1", "web 1", "web 1"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK",
        set: |d| d.health_check.kind = env("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK", HealthCheck::KubeProxy), unset: |d| d.health_check.kind = None,
        annotation: "health-check-protocol=tcp", of: |w| format!("{} {}", check(w, PortField::CheckProtocol), check(w, PortField::CheckPort)),
        effects: ["http 10256", "tcp 30080", "tcp 30080", "tcp 30080"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL",
        set: |d| d.health_check.interval_s = env("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", 5), unset: |d| d.health_check.interval_s = None,
        annotation: "health-check-interval=6s", of: |w| check(w, PortField::CheckInterval), effects: ["5s", "6s", "15s", "6s"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT",
        set: |d| d.health_check.timeout_s = env("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", 5), unset: |d| d.health_check.timeout_s = None,
        annotation: "health-check-timeout=6s", of: |w| check(w, PortField::CheckTimeout), effects: ["5s", "6s", "10s", "6s"] },
    Case { variable: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES",
        set: |d| d.health_check.retries = env("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", 5), unset: |d| d.health_check.retries = None,
        annotation: "health-check-retries=6", of: |w| check(w, PortField::CheckRetries), effects: ["5", "6", "3", "6"] },
];

#[test]
fn a_default_holds_without_an_annotation_and_below_one() {
    for (case, profile) in CASES.iter().flat_map(|case| PROFILES.map(|profile| (case, profile))) {
        let about = format!("{} in profile {}", case.variable, profile.name());
        let mut world = World::new(profile);
        // A Network is in one network zone, which is that of the nodes.
        if case.variable != "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE" {
            world = world.with_network();
        }
        (case.set)(&mut world.defaults);
        world.converge();
        let [by_default, by_annotation, ours, upstream] = case.effects;
        assert_eq!((case.of)(&world), by_default, "{about}: by the environment");
        world.set(case.annotation);
        world.converge();
        let effect = (case.of)(&world);
        assert_eq!(effect, by_annotation, "{about}: by the annotation");
        pairs(case.annotation).for_each(|(name, _)| world.unset(name));
        (case.unset)(&mut world.defaults);
        world.converge();
        let neither = match profile {
            Profile::CcmFromScratch => ours,
            Profile::Hcloud => upstream,
        };
        assert_eq!((case.of)(&world), neither, "{about}: neither");
    }
}

#[test]
fn every_variable_of_the_table_has_a_case() {
    let cases: BTreeSet<&str> = CASES.iter().map(|case| case.variable).collect();
    let rows: BTreeSet<&str> = TABLE.iter().filter_map(|row| Some(row.variable?.text())).collect();
    assert_eq!(cases, rows);
}

/// A shell does not have the daemon's environment. So it must know which changes to hold back.
#[test]
fn a_change_by_a_default_names_the_setting_that_would_prevent_it() {
    let mut world = World::new(Profile::CcmFromScratch);
    world.converge();
    world.balancer_mut().services[0].set(PortField::ProxyProtocol, true);
    let plan = world.plan();
    let expected = Source::Default("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL".into());
    assert_eq!(plan.outcome.changes().len(), 1);
    let differs: Vec<_> = plan.fields.iter().filter(|field| field.differs()).collect();
    assert_eq!(differs.len(), 1);
    assert_eq!(differs[0].field, "port 80 proxy protocol");
    assert_eq!(differs[0].source, expected);
    assert_eq!(differs[0].have.as_deref(), Some("true"));
    assert_eq!(differs[0].want.as_deref(), Some("false"));
}

#[test]
fn a_local_traffic_policy_is_checked_at_the_health_check_node_port() {
    let [ours, upstream] = PROFILES;
    #[rustfmt::skip] // A case is a line.
    let cases = [
        (ours, None, "", "http 32000 /healthz"),
        (ours, Some(false), "", "tcp 30080 -"),
        (upstream, None, "", "tcp 30080 -"),
        (upstream, Some(true), "", "http 32000 /healthz"),
        (ours, None, "health-check-interval=5s", "http 32000 /healthz"),
        (ours, None, "health-check-port=8080", "tcp 8080 -"),
        (ours, None, "health-check-protocol=tcp", "tcp 30080 -"),
        (ours, None, "protocol=http health-check-http-path=/up", "http 30080 /up"),
    ];
    for (profile, setting, annotations, expected) in cases {
        let mut world = World::new(profile);
        world.service.traffic_policy = TrafficPolicy::Local;
        world.service.health_check_node_port = Some(32000);
        let variable = "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT";
        world.defaults.health_check.node_port = setting.map(|on| environment(variable, on));
        world.set(annotations);
        world.converge();
        let path = PortField::CheckPath.of(world.listener());
        let protocol = check(&world, PortField::CheckProtocol);
        let port = check(&world, PortField::CheckPort);
        let is = format!("{protocol} {port} {}", path.unwrap_or("-".into()));
        assert_eq!(is, expected, "{profile:?} {setting:?} {annotations:?}");
    }
}

#[test]
fn location_and_zone_of_annotation_and_variable_are_combined() {
    // An environment location beats a zone annotation, unless an empty annotation unsets it.
    let made = |annotations: &str, location: bool, profile| {
        let mut world = World::new(profile);
        if !location {
            world.defaults.location = None;
        }
        world.set(annotations);
        let changes = world.plan().outcome.take_changes();
        if changes.is_empty() {
            return world.obstacle();
        }
        let create = creation(&changes);
        let place = |key: &str| create[key].as_str().map(str::to_owned);
        format!("{:?} {:?}", place("location"), place("network_zone"))
    };
    let ours = Profile::CcmFromScratch;
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("network-zone=us-east", true, "Some(\"fsn1\") None"),
        ("network-zone=us-east location=", true, "None Some(\"us-east\")"),
        ("network-zone=us-east location=hel1", false, "Some(\"hel1\") None"),
        // Most of the nodes are there.
        ("", false, "Some(\"fsn1\") None"),
    ];
    for (annotations, has_location, expected) in cases {
        assert_eq!(made(annotations, has_location, ours), expected);
    }
    // Upstream's zone labels are no locations.
    assert!(made("", false, Profile::Hcloud).contains("no location is set"));
}

#[test]
fn a_load_balancer_is_not_detached_while_no_network_is_configured() {
    let mut world = World::new(Profile::CcmFromScratch).with_network();
    world.converge();
    world.network = None;
    assert_eq!(words(&world.converge()), "");
    assert_eq!(world.balancer().private_net[0].network, NETWORK);
}
