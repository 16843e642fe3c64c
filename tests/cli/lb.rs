//! What people see of load balancers: the output of each command is a snapshot, in a cluster with every
//! kind of Service.

use crate::common::cluster::{CLUSTER_UID, SERVICE_UID, service, with_spec};
use crate::common::{self, Cluster, env, snapshot};
use crate::help::{ONE_BY_ONE, fits, seen, seen_all};
use sandbox::Sandbox;
use sandbox::hetzner::{Health, Machine};
use serde_json::{Value, json};

/// `web` is right, and there is one Service for each kind of trouble.
pub fn cluster() -> Sandbox {
    let sandbox = common::networked(3).scale(0.01).start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    let fsn1 = ("location", "fsn1");
    for (name, ports) in [
        ("web", &[80, 443][..]),
        ("edited", &[80, 8080]),
        ("sick", &[80]),
        ("going", &[80]),
        ("retyped", &[80]),
        ("protected", &[80]),
        ("twice", &[80]),
    ] {
        let named = [fsn1, ("name", name)];
        sandbox.create(name, &named, ports);
    }
    sandbox.ccm(&["lb", "sync", ONE_BY_ONE]).with_code(0);
    problems_of_synced_services(&sandbox);
    problems_of_new_services(&sandbox);
    orphans(&sandbox);
    sandbox
}

/// Load balancers whose Service is gone, one of them protected.
fn orphans(sandbox: &Sandbox) {
    let cluster = sandbox.service("kubernetes");
    for name in ["orphan", "kept"] {
        let labels = json!({
            "ccm-from-scratch/cluster-uid": cluster.as_ref().unwrap()["metadata"]["uid"],
            "ccm-from-scratch/service": format!("shop.{name}"),
            "hcloud-ccm/service-uid": format!("uid-of-{name}"),
        });
        let spec = json!({ "labels": labels });
        let id = sandbox.create_balancer(name, &spec);
        sandbox.edit_balancer(id, |one| one["protection"]["delete"] = json!(name == "kept"));
    }
}

fn problems_of_synced_services(sandbox: &Sandbox) {
    let cloud = sandbox.cloud();
    let of = |name: &str| sandbox.balancer_id(name);
    sandbox.edit_balancer(of("edited"), |one| {
        one["algorithm"]["type"] = json!("least_connections");
        one["services"][0]["health_check"]["interval"] = json!(60);
        let targets = one["targets"].as_array_mut().unwrap();
        targets.remove(0);
    });
    let servers = sandbox.servers();
    let unhealthy = |detail: &str, code| Health {
        status: "unhealthy".into(),
        detail: Some(detail.into()),
        http_status_code: code,
    };
    for (server, health) in [
        (0, unhealthy("layer4_timeout", None)),
        (1, unhealthy("unexpected_http_status", Some(503))),
    ] {
        let id = servers[server]["id"].as_u64().unwrap();
        cloud.set_health(of("sick"), Machine::Server(id), None, Some(health));
    }
    sandbox.protect(of("protected"));
    for name in ["going", "protected"] {
        sandbox.delete(name);
    }
    sandbox.edit("retyped", |service| {
        service["spec"]["type"] = json!("ClusterIP");
        let spec = service["spec"].as_object_mut().unwrap();
        spec.remove("allocateLoadBalancerNodePorts");
        // The API server does the same by itself.
        let port = service["spec"]["ports"][0].as_object_mut().unwrap();
        port.remove("nodePort");
        service["status"]["loadBalancer"] = json!({});
    });
    let labels = cloud.load_balancer(of("twice"))["labels"].clone();
    let twin = json!({ "labels": labels });
    sandbox.create_balancer("twin", &twin);
}

fn problems_of_new_services(sandbox: &Sandbox) {
    let fsn1 = ("location", "fsn1");
    let labels = json!({ CLUSTER_UID: "another-cluster", SERVICE_UID: "another" });
    sandbox.create_balancer("taken", &json!({ "labels": labels }));
    for (name, annotations, ports) in [
        ("new", &[fsn1][..], &[80, 443][..]),
        ("a-name-that-its-owner-thought-about-for-long", &[fsn1], &[80]),
        ("taken", &[("name", "taken")], &[80]),
        ("bad-value", &[("protocol", "smtp")], &[80]),
        ("bad-type", &[fsn1, ("type", "lb99")], &[80]),
        ("six-ports", &[fsn1], &[1, 2, 3, 4, 5, 6]),
        ("no-nodes", &[fsn1, ("node-selector", "role=edge")], &[80]),
    ] {
        sandbox.create(name, annotations, ports);
    }
    let ports = json!([
        { "name": "udp", "port": 53, "protocol": "UDP" }, { "name": "tcp", "port": 53 },
    ]);
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("no-node-port", &[fsn1][..], json!({ "allocateLoadBalancerNodePorts": false })),
        ("ignored", &[fsn1], json!({ "loadBalancerSourceRanges": ["192.0.2.0/24"], "sessionAffinity": "ClientIP" })),
        ("dns", &[fsn1], json!({ "ports": ports })),
        ("of-others", &[], json!({ "loadBalancerClass": "example.com/other" })),
    ];
    for (name, annotations, spec) in cases {
        sandbox.create_as(with_spec(service(name, annotations, &[80]), &spec));
    }
}

fn services(sandbox: &Sandbox) -> (Vec<Value>, Vec<Value>) {
    let services = sandbox.cluster().list("services", None);
    (services, sandbox.balancers())
}

#[test]
fn lb_list_prints_the_snapshots() {
    let sandbox = cluster();
    let table = seen(&sandbox, &["lb", "list"]);
    snapshot("lb-list.txt", &table);
    let name = "default/a-name-that-its-owner-thought-about-for-long";
    common::is_cut_at_a_terminal_alone(&env(&sandbox), &["lb", "list"], name);
    let wide = seen(&sandbox, &["lb", "list", "-o", "wide"]);
    snapshot("lb-list-wide.txt", &wide);
}

/// Targets by address have the name of their node, and health and cause as others.
#[test]
fn lb_commands_show_targets_on_dedicated_servers() {
    let builder = common::builder().nodes(1).robot(2).scale(0.01);
    let sandbox = builder.heartbeats(false).start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    sandbox.create("web", &[("location", "fsn1")], &[80]);
    sandbox.ccm(&["lb", "sync"]).with_code(0);
    let metal = sandbox.robot().servers().remove(0).server_ip.unwrap();
    let sick = Machine::Ip(metal.parse().unwrap());
    let health = Some(Health::unhealthy("layer4_timeout"));
    let balancer = sandbox.balancer_id("web");
    sandbox.cloud().set_health(balancer, sick, None, health);
    let shown = seen(&sandbox, &["lb", "inspect", "default/web"]);
    let why = format!("target metal-1 ({metal}) is unhealthy on port 80");
    assert!(shown.contains(&why), "{shown}");
    let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("metal-")).collect();
    assert_eq!(rows.len(), 2, "{shown}");
    assert!(rows[0].starts_with(&format!("metal-1 ({metal})")));
    let why = "unhealthy  the node port does not answer (layer4_timeout)";
    assert!(rows[0].contains(why), "{rows:?}");
    let inspected = sandbox.ccm(&["lb", "inspect", "web", "-o", "json"]).json();
    assert_eq!(inspected["items"][0]["cloud"]["total"], 3, "{inspected}");
    assert_eq!(inspected["items"][0]["changes"], json!([]), "{inspected}");
}

#[test]
fn lb_inspect_prints_the_snapshots() {
    let sandbox = cluster();
    // The other Services are among the screens at a terminal, which `screens` compares with a pipe's.
    let names = "web new going protected retyped twice taken bad-type six-ports no-node-port ignored dns no-nodes";
    let inspect = |name| seen(&sandbox, &["lb", "inspect", &format!("default/{name}")]);
    let texts: Vec<String> = names.split(' ').map(inspect).collect();
    snapshot("lb-inspect.txt", &texts.join("\n"));
    texts.iter().for_each(|text| fits(text));
    let yaml = ["lb", "inspect", "default/edited", "-o", "yaml"];
    snapshot("lb-inspect.yaml", &seen(&sandbox, &yaml));
}

#[test]
fn lb_sync_prints_the_snapshots() {
    let sandbox = cluster();
    let before = services(&sandbox);
    let mut text = String::new();
    let exact = ["lb", "sync", "--dry-run", "--detailed-exitcode"];
    for words in [
        &["lb", "sync", "--dry-run"][..],
        &["lb", "sync", "--dry-run", "-n", "default", "new", "edited"],
        &[&exact[..], &["default/new"]].concat(),
        &[&exact[..], &["default/web"]].concat(),
        &[&exact[..], &["default/taken"]].concat(),
        &[&exact[..], &["--delete-orphans"]].concat(),
    ] {
        text += &(seen(&sandbox, words) + "\n");
    }
    let json = ["lb", "sync", "default/new", "--dry-run", "-o", "json"];
    snapshot("lb-sync-dry-run.json", &seen(&sandbox, &json));
    assert_eq!(services(&sandbox), before, "nothing was written");
    text += &seen_all(&sandbox, &["lb sync default/new default/web", "lb sync default/new"]);
    let yaml = ["lb", "sync", "-n", "default", "edited", "dns", "-o", "yaml"];
    // The first health checks of a new one may be over or not.
    let checked = seen(&sandbox, &yaml).replace("status: unknown", "status: healthy");
    let checked = checked.replace("    healthy: 0\n", "    healthy: 3\n");
    snapshot("lb-sync.yaml", &checked);
    text += &(seen(&sandbox, &["lb", "sync"]) + "\n");
    text += &(seen(&sandbox, &["lb", "sync", "--yes"]) + "\n");
    text += &seen(&sandbox, &["lb", "sync", "--delete-orphans", "--yes"]);
    let gone = ["lb", "sync", "--delete-orphans", "--yes", "-o", "yaml"];
    snapshot("lb-orphans.yaml", &seen(&sandbox, &gone));
    // The private address of the one that goes is free again for the next, or not yet.
    let private = |line: &str| match line.split_once(", 10.0.0.") {
        Some((before, _)) if line.contains("  status: ") => format!("{before}, 10.0.0.N\n"),
        _ => line.to_owned(),
    };
    let text: String = text.split_inclusive('\n').map(private).collect();
    snapshot("lb-sync.txt", &text);
    fits(&text);
}

#[test]
fn wrong_lb_commands_print_the_snapshots() {
    let sandbox = cluster();
    let text = seen_all(
        &sandbox,
        &[
            "lb",
            "lb lst",
            "lb inspect",
            "lb inspect wbe",
            "lb inspect 203.0.113.99",
            "lb inspect default/",
            "lb inspect default/wbe",
            "lb inspect elsewhere/zzz",
            "lb inspect default/web default/new",
            "lb inspect -n other default/web",
            "lb inspect default/of-others",
            "lb inspect default/kubernetes",
            "lb list default/web",
            "lb list -n elsewhere",
            "lb list -n elsewhere -o json",
            "lb sync --detailed-exitcode",
            "lb sync default/web default/wbe nowhere/near",
        ],
    );
    snapshot("lb-mistakes.txt", &text);
}

/// An lb11 takes 25 targets. Nothing is left to do, and still two nodes are missing.
#[test]
fn nodes_that_a_load_balancer_has_no_room_for_are_shown() {
    let builder = common::builder().nodes(27).scale(0.01).heartbeats(false);
    let sandbox = builder.start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    let annotations = [("location", "fsn1"), ("type", "lb11")];
    for name in ["web", "small"] {
        sandbox.create(name, &annotations, &[80]);
    }
    let one = Some("kubernetes.io/hostname=worker-1");
    sandbox.annotate("small", "node-selector", one);
    sandbox.ccm(&["lb", "sync"]).with_code(0);
    let list = sandbox.ccm(&["lb", "list"]);
    let line = |name: &str| {
        let mut lines = list.stdout.lines();
        lines.find(|line| line.starts_with(&format!("default/{name} "))).unwrap()
    };
    assert!(line("web").ends_with(" 25/25    MaxTargetsReached"), "{list:?}");
    assert!(line("small").ends_with("-"), "{list:?}");
    let list = sandbox.ccm(&["lb", "list", "-o", "json"]).json();
    let items = list["items"].as_array().unwrap().iter();
    let reasons: Vec<(&Value, &Value)> =
        items.map(|item| (&item["object"]["name"], &item["findings"][0]["reason"])).collect();
    let expected = [(&json!("small"), &Value::Null), (&json!("web"), &json!("MaxTargetsReached"))];
    assert_eq!(reasons, expected);
    let doctor = sandbox.ccm(&["doctor", "-o", "json"]).json();
    let mut checks = doctor["items"].as_array().unwrap().iter();
    let services = checks.find(|one| one["check"] == "services").unwrap();
    assert_eq!(services["status"], "warn", "{services}");
    let message = services["message"].as_str().unwrap();
    assert_eq!(services["object"], "service/default/web");
    let says = "the load balancer takes at most 25 targets, and has no room for ";
    assert!(message.starts_with(says), "{message}");
}

/// A finalizer, class or load balancer of another controller does not disturb the list.
#[test]
fn a_service_of_another_controller_is_not_listed() {
    let sandbox = cluster();
    let list = sandbox.ccm(&["lb", "list", "-o", "json"]).json();
    let items = list["items"].as_array().unwrap();
    let has = |name: &str| items.iter().any(|item| item["object"]["name"] == name);
    assert!(has("web") && !has("of-others"), "{list}");
    assert!(sandbox.has_finalizer("web"));
}
