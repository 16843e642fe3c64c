//! What people see of load balancers that several Services share, of external ones, and of the management that ends and
//! begins again.

use crate::common::cluster::text;
use crate::common::{self, Cluster, Simulate, contains, snapshot};
use crate::help::{ONE_BY_ONE, fits, seen};
use jiff::{SignedDuration, Timestamp};
use sandbox::Sandbox;
use sandbox::hetzner::{Health, Machine};
use serde_json::{Value, json};
use std::time::Duration;

const FSN1: (&str, &str) = ("location", "fsn1");
const EDGE: (&str, &str) = ("share", "edge");

fn empty() -> Sandbox {
    let sandbox = common::networked(3).scale(0.01).start();
    sandbox.ccm(&["node", "sync"]).with_code(0);
    sandbox.create_namespace("shop");
    sandbox
}

/// Creates a Service that is a second younger than the last one. Its name is `namespace/name`.
fn create(sandbox: &Sandbox, name: &str, ports: &[u16], annotations: &[(&str, &str)]) {
    let others = sandbox.cluster().list("services", None).into_iter();
    let others = others.filter(|one| one["spec"]["type"] == "LoadBalancer");
    let created = |one: Value| -> Timestamp {
        let at = text(&one["metadata"]["creationTimestamp"]);
        at.parse().unwrap()
    };
    let newest = others.map(created).max();
    let newest = newest.unwrap_or(Timestamp::now() - SignedDuration::from_hours(1));
    let younger = newest + SignedDuration::from_secs(1);
    sandbox.create(name, annotations, ports);
    sandbox.edit(name, |service| {
        let at = younger.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        service["metadata"]["creationTimestamp"] = json!(at);
    });
}

fn named(sandbox: &Sandbox, name: &str) -> Value {
    let mut all = sandbox.balancers().into_iter();
    all.find(|one| one["name"] == name).unwrap()
}

/// Four Services of two namespaces: `edge` is shared by three of them, and one uses Terraform's.
pub fn cluster() -> Sandbox {
    let sandbox = empty();
    let spec = json!({ "labels": { "managed-by": "terraform", "ccm-from-scratch/external": "shop" },
        "services": [{
            "protocol": "tcp", "listen_port": 6443, "destination_port": 6443, "proxyprotocol": false,
            "health_check": { "protocol": "tcp", "port": 6443, "interval": 15, "timeout": 10, "retries": 3 },
        }] });
    sandbox.create_balancer("terraform", &spec);
    let allows = ("share-namespaces", "shop");
    create(&sandbox, "default/edge", &[80], &[FSN1, EDGE, allows]);
    create(&sandbox, "default/web", &[443], &[EDGE]);
    let joins = ("share", "default/edge");
    let small = ("type", "lb11");
    create(&sandbox, "shop/api", &[8443, 80], &[joins, small]);
    let external = ("external", "terraform");
    create(&sandbox, "shop/mqtt", &[1883, 6443], &[external]);
    sandbox
}

#[test]
fn groups_and_external_ones_are_shown() {
    let sandbox = cluster();
    let mut text = String::new();
    let mut see = |words: &[&str]| text += &(seen(&sandbox, words) + "\n");
    see(&["lb", "list"]);
    see(&["lb", "sync", "--dry-run"]);
    see(&["lb", "sync"]);
    see(&["lb", "list", "-o", "wide"]);
    see(&["lb", "inspect", "shop/api"]);
    see(&["lb", "inspect", "shop/mqtt"]);
    let json = sandbox.ccm(&["lb", "list", "-o", "json"]).json();
    let status = sandbox.ccm(&["status", "-o", "json"]).json();
    assert_eq!(status["loadBalancers"], json!({ "healthy": 2, "total": 2 }));
    // A younger one that wants something else of the whole, one that leaves, one that joins, and mistakes.
    sandbox.annotate("default/edge", "type", Some("lb21"));
    sandbox.annotate("default/web", "share", None);
    sandbox.annotate("default/web", "location", Some("fsn1"));
    create(&sandbox, "shop/both", &[1], &[EDGE, ("external", "terraform")]);
    create(&sandbox, "shop/bad", &[2], &[("share", "Edge_1")]);
    create(&sandbox, "default/refused", &[3], &[("external", "terraform")]);
    create(&sandbox, "default/none", &[4], &[("external", "4711")]);
    create(&sandbox, "default/guest", &[5], &[("share", "shop/none")]);
    see(&["lb", "list"]);
    see(&["lb", "sync", "--dry-run"]);
    see(&["lb", "inspect", "default/refused"]);
    let doctor = seen(&sandbox, &["doctor"]);
    fits(&doctor);
    assert!(!doctor.contains("although the status has an address"), "{doctor}");
    // Deleted: one leaves its group, one the external one.
    for name in ["shop/api", "shop/mqtt"] {
        sandbox.delete(name);
    }
    see(&["lb", "list", "-n", "shop"]);
    see(&["lb", "inspect", "shop/api"]);
    see(&["lb", "sync", "shop/api", "shop/mqtt"]);
    snapshot("lb-groups.txt", &text);
    let cloud = |name: &str| {
        let items = json["items"].as_array().unwrap().iter();
        let mut items = items.filter(|one| one["object"]["name"] == name);
        items.next().unwrap()["cloud"].clone()
    };
    assert_eq!(cloud("api")["use"], "shared");
    assert_eq!(cloud("api")["group"], "default/edge");
    let owners = |name: &str| -> Vec<(u64, Value)> {
        let cloud = cloud(name);
        let ports = cloud["ports"].as_array().unwrap().iter();
        let owner = |one: &Value| (one["port"].as_u64().unwrap(), one["service"].clone());
        ports.map(owner).collect()
    };
    let shared =
        [(80, json!("default/edge")), (443, json!("default/web")), (8443, json!("shop/api"))];
    assert_eq!(owners("api"), shared);
    let expected = [(6443, Value::Null), (1883, json!("shop/mqtt"))];
    assert_eq!(owners("mqtt"), expected);
}

/// The load balancer stays when no Service of the group exists any more, because the finalizers were removed by hand.
#[test]
fn the_orphan_of_a_group_is_named_by_its_group() {
    let sandbox = empty();
    create(&sandbox, "default/a", &[80], &[FSN1, EDGE]);
    create(&sandbox, "default/b", &[443], &[EDGE]);
    sandbox.ccm(&["lb", "sync"]).with_code(0);
    for name in ["a", "b"] {
        sandbox.remove_finalizers(name);
        sandbox.delete(name);
    }
    let doctor = sandbox.ccm(&["doctor"]);
    let text = ["lb", "list"];
    let delete = ["lb", "sync", "--delete-orphans", "--yes"];
    let text = seen(&sandbox, &text) + "\n" + &seen(&sandbox, &delete);
    snapshot("lb-groups-orphan.txt", &text);
    let says = "costs money, but was created for the Services that share it under the name default/edge, none of which exists";
    contains(&common::one_line(&doctor.stdout), says);
    assert_eq!(sandbox.balancers(), Vec::<Value>::new());
}

/// The address and the targets of a load balancer are those of the Services that have ports there.
#[test]
fn a_service_that_has_no_port_on_its_load_balancer_has_neither_address_nor_targets() {
    let sandbox = empty();
    let its_own = json!({
        "labels": { "ccm-from-scratch/external": "" },
        "services": [{ "protocol": "tcp", "listen_port": 6443, "destination_port": 6443 }],
    });
    sandbox.create_balancer("terraform", &its_own);
    create(&sandbox, "default/edge", &[80], &[FSN1, EDGE]);
    sandbox.ccm(&["lb", "sync"]).with_code(0);
    create(&sandbox, "default/late", &[80], &[EDGE]);
    create(&sandbox, "default/refused", &[6443], &[("external", "terraform")]);
    sandbox.ccm(&["lb", "sync"]).with_code(0);
    let list = sandbox.ccm(&["lb", "list"]).stdout;
    let cells = |name: &str| {
        let mut lines = list.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        cells[1..4].join(" ")
    };
    let edge = named(&sandbox, "kubernetes-default-edge");
    let ip = text(&edge["public_net"]["ipv4"]["ip"]);
    let expected = format!("kubernetes-default-edge {ip} 3/3");
    assert_eq!(cells("default/edge "), expected, "{list}");
    let expected = "kubernetes-default-edge - -";
    assert_eq!(cells("default/late "), expected, "{list}");
    assert_eq!(cells("default/refused "), "terraform - -", "{list}");
}

/// What one Service has to do with another one's port is nothing: only its own ports are judged.
#[test]
fn an_unhealthy_port_of_one_service_is_not_reported_for_the_others() {
    let sandbox = empty();
    create(&sandbox, "default/edge", &[80], &[FSN1, EDGE]);
    create(&sandbox, "default/web", &[443], &[EDGE]);
    sandbox.ccm(&["lb", "sync"]).with_code(0);
    let id = sandbox.balancers()[0]["id"].as_u64().unwrap();
    for server in sandbox.servers() {
        let server = Machine::Server(server["id"].as_u64().unwrap());
        let (cloud, sick) = (sandbox.cloud(), Health::unhealthy("layer4_timeout"));
        cloud.set_health(id, server, Some(443), Some(sick));
    }
    let list = sandbox.ccm(&["lb", "list"]).stdout;
    let targets = |name: &str| {
        let mut lines = list.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(3).unwrap().to_owned()
    };
    assert_eq!(targets("default/edge"), "3/3", "{list}");
    assert_eq!(targets("default/web"), "0/3", "{list}");
    let inspected = seen(&sandbox, &["lb", "inspect", "default/edge"]);
    assert!(!inspected.contains("unhealthy on port"), "{inspected}");
    let inspected = seen(&sandbox, &["lb", "inspect", "default/web"]);
    contains(&inspected, "worker-1, worker-2, worker-3 are unhealthy on port 443");
}

#[test]
fn release_and_adopt_print_the_snapshots() {
    let sandbox = empty();
    create(&sandbox, "default/web", &[443], &[FSN1]);
    create(&sandbox, "default/edge", &[80], &[FSN1, EDGE]);
    create(&sandbox, "default/mqtt", &[1883], &[EDGE]);
    sandbox.ccm(&["lb", "sync", ONE_BY_ONE]).with_code(0);
    let id = named(&sandbox, "kubernetes-default-web")["id"].to_string();
    let of_group = named(&sandbox, "kubernetes-default-edge")["id"].to_string();
    let mut text = String::new();
    let mut see = |words: &[&str]| text += &(seen(&sandbox, words) + "\n");
    see(&["lb", "release", "default/web", "--dry-run"]);
    see(&["lb", "release", "default/web"]);
    see(&["lb", "release", "default/web", "--yes"]);
    let released = named(&sandbox, "kubernetes-default-web");
    assert!(released["labels"]["ccm-from-scratch/released"].is_string());
    assert_eq!(released["labels"]["hcloud-ccm/service-uid"], Value::Null);
    see(&["lb", "release", "default/web", "--yes"]);
    see(&["lb", "list", "-o", "wide"]);
    see(&["lb", "inspect", "default/web"]);
    see(&["lb", "sync"]);
    assert_eq!(named(&sandbox, "kubernetes-default-web"), released);
    see(&["lb", "adopt", &id, "default/edge", "--yes"]);
    see(&["lb", "adopt", &of_group, "default/web", "--yes"]);
    see(&["lb", "adopt", "4711", "default/web", "--yes"]);
    see(&["lb", "adopt", "default/web", &id]);
    see(&["lb", "adopt", &id, "default/web"]);
    see(&["lb", "adopt", &id, "default/wbe", "--yes"]);
    see(&["lb", "adopt", &id, "default/web", "--dry-run"]);
    see(&["lb", "adopt", &id, "default/web", "--yes"]);
    see(&["lb", "adopt", &id, "default/web", "--yes"]);
    see(&["lb", "release", "default/mqtt", "--yes"]);
    see(&["lb", "list", "-o", "wide"]);
    see(&["lb", "release"]);
    see(&["lb", "release", "default/web", "default/edge"]);
    see(&["lb", "relase", "default/web"]);
    snapshot("lb-adopt-release.txt", &text);
}

/// Everything that a person sees about a replacement, from the plan to its end.
#[test]
fn a_replacement_is_shown_in_each_state() {
    let sandbox = common::builder().nodes(2).heartbeats(false).simulated();
    if common::needs_simulation(&sandbox, "times that are the same in each run") {
        return;
    }
    sandbox.create("default/web", &[("hostname", "web.example.com"), FSN1], &[80]);
    sandbox.ccm(&["run", "--once"]).with_code(0);
    sandbox.ccm(&["run", "--once"]).with_code(0);
    common::pass(&sandbox, Duration::from_secs(60));
    sandbox.annotate("default/web", "location", Some("nbg1"));
    let mut text = String::new();
    let mut see = |words: &[&str]| text += &(seen(&sandbox, words) + "\n");
    see(&["lb", "replace", "default/web"]);
    see(&["lb", "replace", "default/web", "--overlap=24h"]);
    see(&["lb", "replace", "default/web", "--overlap=24h", "--dry-run"]);
    see(&["lb", "replace", "default/web", "--overlap=240h", "--yes"]);
    see(&["lb", "sync", "--dry-run"]);
    see(&["lb", "sync"]);
    see(&["lb", "list"]);
    see(&["lb", "sync", "--dry-run"]);
    common::pass(&sandbox, Duration::from_secs(60));
    see(&["lb", "sync"]);
    see(&["lb", "sync"]);
    see(&["lb", "list", "-o", "wide"]);
    see(&["lb", "inspect", "default/web"]);
    contains(&seen(&sandbox, &["status"]), "1 of 1 serving, 1 being replaced");
    contains(&seen(&sandbox, &["doctor"]), "Both load balancers serve until");
    see(&["lb", "replace", "default/web", "--abort", "--dry-run"]);
    see(&["lb", "replace", "default/web", "--now", "--yes"]);
    see(&["lb", "sync"]);
    see(&["lb", "sync"]);
    see(&["lb", "replace", "default/web", "--abort", "--yes"]);
    see(&["lb", "list"]);
    snapshot("lb-replace.txt", &text);
}
