//! Annotations of a Namespace are defaults for the Services in it, when a setting turns them on.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, HCLOUD, NO_RESYNC, OFTEN, PROFILES, World, listen_ports, text};
use sandbox::Half;
use sandbox::faults::{Effect, Rule, RuleId};
use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

const ON: (&str, &str) = ("HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS", "true");
const PREFIX: &str = "load-balancer.hetzner.cloud/";
const NAMESPACES: &str = "/api/v1/namespaces";

impl World {
    /// A world in which Namespaces have defaults, and ccm may list them.
    fn with_defaults(nodes: usize) -> World {
        let mut world = World::new(nodes);
        world.set(&[ON]);
        world.allow_namespaces();
        world
    }

    /// Whether a test that changes a Namespace must be skipped. The tests on a real API server share the Namespaces.
    fn shares_namespaces(&self) -> bool {
        common::needs_simulation(
            &self.sandbox,
            "annotations of a Namespace that one test alone sees",
        )
    }

    fn allow_namespaces(&self) {
        let role = include_str!("../../../manifests/components/namespace-defaults/role.yaml");
        let role = common::documents(role).remove(0);
        self.cluster().grant("ccm", serde_json::from_value(role["rules"].clone()).unwrap());
    }

    /// Sets an annotation of the Namespace, or removes it.
    fn set_default(&self, namespace: &str, name: &str, value: Option<&str>) {
        let key = format!("{PREFIX}{name}");
        let is_edited = self.cluster().edit("namespaces", None, namespace, |it| match value {
            Some(value) => it["metadata"]["annotations"][key.as_str()] = json!(value),
            None => drop(it["metadata"]["annotations"].as_object_mut().unwrap().remove(&key)),
        });
        assert!(is_edited, "no Namespace {namespace}");
    }

    /// Returns how often Namespaces were listed since the mark.
    fn namespace_lists(&self, mark: u64) -> usize {
        self.count_since(mark, |call| call.path == NAMESPACES)
    }

    /// Makes each list of Namespaces fail.
    fn fail_namespaces(&self) -> RuleId {
        let effect = Effect::kubernetes_status(500, "InternalError", "down");
        self.fault(Rule::new(effect).half(Half::Kubernetes).path(NAMESPACES))
    }

    /// Returns what `lb inspect` prints, as one line.
    fn inspected(&self, name: &str, profile: &str) -> String {
        let words = ["lb", "inspect", &format!("default/{name}"), profile];
        let shown = self.ccm(&words).with_code(0).stdout;
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn the_order_is_service_then_namespace_then_setting() {
    for profile in PROFILES {
        let world = World::with_defaults(2);
        if world.shares_namespaces() {
            return;
        }
        world.set_default("default", "type", Some("lb21"));
        world.set_default("default", "location", Some("nbg1"));
        world.create("own", &[("type", "lb31")], &[80]);
        world.create("web", &[], &[80]);
        let _daemon = world.daemon(&[profile]);
        assert_eq!(world.up("own")["load_balancer_type"]["name"], "lb31");
        let balancer = world.up("web");
        assert_eq!(balancer["load_balancer_type"]["name"], "lb21");
        assert_eq!(balancer["location"]["name"], "nbg1", "the variable says fsn1");
        let source = "lb21 annotation load-balancer.hetzner.cloud/type of namespace default";
        let shown = world.inspected("web", profile);
        assert!(shown.contains(source), "{shown}");
    }
}

#[test]
fn labels_are_joined_and_of_one_key_the_first_in_the_order_counts() {
    let mut world = World::with_defaults(1);
    if world.shares_namespaces() {
        return;
    }
    world.set(&[("HCLOUD_LOAD_BALANCERS_LABELS", "a=setting,b=setting,c=setting")]);
    world.set_default("default", "labels", Some("a=namespace,b=namespace,d=namespace,hcloud/x=y"));
    world.create("web", &[("labels", "a=service")], &[80]);
    let _daemon = world.daemon(&[]);
    let labels = world.up("web")["labels"].clone();
    let found = ["a", "b", "c", "d", "hcloud/x"].map(|key| text(&labels[key]));
    assert_eq!(found, ["service", "namespace", "setting", "namespace", ""]);
}

#[test]
fn a_change_has_effect_within_the_resync_period_and_a_list_is_read_once_in_it() {
    let world = World::with_defaults(1);
    if world.shares_namespaces() {
        return;
    }
    world.create("web", &[], &[80]);
    let _daemon = world.daemon(&[OFTEN]);
    world.up("web");
    world.set_default("default", "algorithm-type", Some("least_connections"));
    wait_until("the algorithm", || {
        world.balancer("web")["algorithm"]["type"] == "least_connections"
    });
    let mark = world.mark();
    wait_until("three comparisons", || {
        world.cloud_calls(mark).iter().filter(|call| call.path == "/v1/load_balancers").count() >= 3
    });
    let lists = world.namespace_lists(mark);
    assert!((2..=4).contains(&lists), "{lists}");
    world.set_default("default", "algorithm-type", None);
    wait_until("round robin", || world.balancer("web")["algorithm"]["type"] == "round_robin");
}

#[test]
fn a_namespace_is_read_anew_before_a_creation() {
    let world = World::with_defaults(1);
    if world.shares_namespaces() {
        return;
    }
    world.create("first", &[], &[80]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.up("first");
    world.set_default("default", "location", Some("hel1"));
    world.create("web", &[], &[80]);
    assert_eq!(world.up("web")["location"]["name"], "hel1");
    assert_eq!(world.balancer("first")["location"]["name"], "fsn1", "nothing moves");
    let inspected = world.inspect("first", &[]);
    assert!(!inspected.to_string().contains("can't be moved"), "{inspected}");
}

/// Reads each field of a load balancer that a default could change.
fn fields(balancer: &Value, status: &Value) -> Value {
    let mut balancer = balancer.clone();
    let health = balancer["targets"].as_array_mut().unwrap();
    health.iter_mut().for_each(|target| target["health_status"] = Value::Null);
    json!([balancer, status])
}

/// Defaults that change each kind of field.
const MANY: [(&str, &str); 9] = [
    ("type", "lb21"),
    ("algorithm-type", "least_connections"),
    ("ipv6-disabled", "true"),
    ("uses-proxyprotocol", "true"),
    ("health-check-interval", "20s"),
    ("health-check-retries", "5"),
    ("health-check", "kube-proxy"),
    ("departing-delay", "60s"),
    ("labels", "team=web"),
];

#[test]
fn an_unknown_default_changes_nothing_and_ports_and_targets_are_synced() {
    for profile in PROFILES {
        for cause in ["right", "outage", "wrong", "incomplete"] {
            let world = World::with_defaults(2);
            if world.shares_namespaces() {
                return;
            }
            for (name, value) in MANY {
                world.set_default("default", name, Some(value));
            }
            world.create("web", &[], &[80]);
            world.converge(&[profile]);
            let now = || fields(&world.balancer("web"), &world.service("web").unwrap()["status"]);
            let before = now();
            match cause {
                "right" => {
                    let refused =
                        Effect::kubernetes_status(403, "Forbidden", "no list of namespaces");
                    world.fault(Rule::new(refused).half(Half::Kubernetes).path(NAMESPACES));
                }
                "outage" => drop(world.fail_namespaces()),
                "incomplete" => {
                    let empty = Effect::changed(|mut answer| {
                        let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
                        body["items"] = json!([]);
                        answer.body = body.to_string().into_bytes();
                        answer
                    });
                    world.fault(Rule::new(empty).half(Half::Kubernetes).path(NAMESPACES));
                }
                _ => {
                    for (name, _) in MANY {
                        let is_any = name == "type";
                        let value = if is_any { "lb99" } else { "no such value" };
                        world.set_default("default", name, Some(value));
                    }
                }
            }
            let mark = world.mark();
            world.once(&[profile]).with_code(0);
            assert_eq!(now(), before, "{cause} {profile}");
            assert_eq!(world.writes(mark), Vec::<String>::new(), "{cause} {profile}");
            let shown = world.ccm(&["lb", "inspect", "default/web", profile]);
            let inspected = format!("{}{}", shown.stdout, shown.stderr);
            assert!(inspected.contains("namespace default"), "{cause}: {inspected}");
            world.edit("web", |service| {
                let new = json!({"name": "s", "port": 443, "protocol": "TCP", "nodePort": 30443});
                service["spec"]["ports"].as_array_mut().unwrap().push(new);
            });
            world.join_node("third");
            world.converge(&[profile]);
            let balancer = world.balancer("web");
            assert_eq!(listen_ports(&balancer), [80, 443], "{cause} {profile}");
            assert_eq!(balancer["targets"].as_array().unwrap().len(), 3, "{cause} {profile}");
            assert_eq!(balancer["load_balancer_type"]["name"], "lb21", "{cause} {profile}");
            world.create("new", &[], &[80]);
            let ran = world.once(&[profile]);
            assert!(world.of_uid(&world.uid("new")).is_none(), "{cause}: {ran:?}");
            assert!(format!("{ran:?}").contains("namespace default"), "{cause}: {ran:?}");
        }
    }
}

#[test]
fn a_service_that_sets_the_field_itself_is_created_while_its_default_is_wrong() {
    let world = World::with_defaults(1);
    if world.shares_namespaces() {
        return;
    }
    world.set_default("default", "algorithm-type", Some("fastest"));
    world.create("web", &[("algorithm-type", "round_robin")], &[80]);
    world.create("other", &[], &[80]);
    let daemon = world.daemon(&[]);
    world.up("web");
    world.wait_for_event("other", "SyncLoadBalancerFailed", &["fastest", "namespace default"]);
    assert!(!world.has_address("other"));
    world.set_default("default", "algorithm-type", Some("least_connections"));
    assert_eq!(world.up("other")["algorithm"]["type"], "least_connections");
    drop(daemon);
}

#[test]
fn about_a_group_only_its_own_namespace_counts_after_all_services_that_decide() {
    let world = World::with_defaults(1);
    if world.shares_namespaces() {
        return;
    }
    world.cluster().create(
        "namespaces",
        None,
        json!({"metadata": {"name": "shop", "annotations": {}}}),
    );
    world.set_default("default", "algorithm-type", Some("least_connections"));
    world.set_default("default", "location", Some("nbg1"));
    world.set_default("shop", "type", Some("lb31"));
    world.set_default("shop", "algorithm-type", Some("fastest"));
    world.set_default("shop", "uses-proxyprotocol", Some("true"));
    world.set_default("shop", "labels", Some("team=shop"));
    let share = ("share", "edge");
    world.create("first", &[share, ("share-namespaces", "shop")], &[80]);
    world.create("second", &[share, ("type", "lb21")], &[81]);
    world.create("shop/guest", &[("share", "default/edge")], &[82]);
    let _daemon = world.daemon(&[]);
    wait_until("an address", || world.has_address("first"));
    wait_until("three ports", || listen_ports(&world.only_balancer()).len() == 3);
    world.converge(&[]);
    let balancer = world.only_balancer();
    assert_eq!(
        balancer["load_balancer_type"]["name"], "lb21",
        "a Service that decides comes first"
    );
    assert_eq!(balancer["algorithm"]["type"], "least_connections");
    assert_eq!(balancer["location"]["name"], "nbg1");
    assert!(balancer["labels"]["team"].is_null(), "{}", balancer["labels"]);
    let of = |port: u64| {
        let mut ports = balancer["services"].as_array().unwrap().iter();
        ports.find(|one| one["listen_port"] == port).unwrap()["proxyprotocol"].clone()
    };
    assert_eq!([of(80), of(82)], [json!(false), json!(true)], "a port is the guest's own");
}

#[test]
fn other_annotations_of_a_namespace_have_no_effect_and_the_log_says_so() {
    let world = World::with_defaults(1);
    if world.shares_namespaces() {
        return;
    }
    world.set_default("default", "name", Some("mine"));
    world.set_default("default", "uses-proxyprotocol.80", Some("true"));
    world.create("web", &[], &[80]);
    let ran = world.once(&[]);
    world.converge(&[]);
    let balancer = world.balancer("web");
    assert_ne!(balancer["name"], "mine");
    assert_eq!(balancer["services"][0]["proxyprotocol"], false);
    for name in ["name", "uses-proxyprotocol.80"] {
        let said = format!("annotation {PREFIX}{name} of namespace default has no effect");
        assert!(ran.stderr.contains(&said), "{ran:?}");
        let doctor = world.ccm(&["doctor"]).stdout;
        let shown = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&said), "{doctor}");
    }
}

#[test]
fn without_the_setting_no_namespace_is_read() {
    let world = World::new(1);
    if world.shares_namespaces() {
        return;
    }
    world.allow_namespaces();
    world.set_default("default", "type", Some("lb31"));
    world.create("web", &[], &[80]);
    let mark = world.mark();
    world.converge(&[]);
    world.ccm(&["doctor"]);
    assert_eq!(world.namespace_lists(mark), 0);
    assert_eq!(world.balancer("web")["load_balancer_type"]["name"], "lb11");
}

#[test]
fn doctor_fails_without_the_right() {
    let mut world = World::new(1);
    world.set(&[ON]);
    let doctor = |world: &World| {
        let shown = world.ccm(&["doctor"]).stdout;
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown = doctor(&world);
    assert!(shown.contains("FAIL rights this user may not "), "{shown}");
    assert!(shown.contains("kubectl apply -k manifests/components/namespace-defaults"), "{shown}");
    world.allow_namespaces();
    let shown = doctor(&world);
    assert!(!shown.contains("list namespaces"), "{shown}");
}

/// A server at a location, whose node joins.
fn join(world: &World, name: &str, location: &str) {
    let (name, location) = (name.to_owned(), location.to_owned());
    world.sandbox.join(ServerSpec { name, location, ..ServerSpec::default() });
}

#[test]
fn auto_is_the_location_of_most_targets_in_both_profiles() {
    for profile in PROFILES {
        let mut world = World::new(1);
        world.set(&[("HCLOUD_LOAD_BALANCERS_LOCATION", "auto")]);
        join(&world, "second", "nbg1");
        join(&world, "third", "nbg1");
        world.create("web", &[], &[80]);
        world.create(
            "one",
            &[("location", "auto"), ("node-selector", "kubernetes.io/hostname=third")],
            &[80],
        );
        world.converge(&[profile]);
        for name in ["web", "one"] {
            let at = world.balancer(name)["location"]["name"].clone();
            assert_eq!(at, "nbg1", "{name} {profile}");
        }
        for name in ["fourth", "fifth", "sixth"] {
            join(&world, name, "fsn1");
        }
        world.converge(&[profile]);
        let mark = world.mark();
        let ran = world.once(&[profile]).with_code(0);
        assert_eq!(world.writes(mark), Vec::<String>::new());
        assert_eq!(world.balancer("web")["location"]["name"], "nbg1", "it never moves");
        assert!(!format!("{ran:?}").contains("can't be moved"), "{ran:?}");
    }
}

#[test]
fn at_equal_numbers_auto_is_the_first_location_by_name_where_the_type_is_offered() {
    let mut world = World::new(0);
    world.set(&[("HCLOUD_LOAD_BALANCERS_LOCATION", "auto")]);
    join(&world, "one", "nbg1");
    join(&world, "two", "hel1");
    world.create("web", &[], &[80]);
    world.converge(&[HCLOUD]);
    assert_eq!(world.balancer("web")["location"]["name"], "hel1");
}
