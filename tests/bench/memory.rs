//! The space that ccm needs on the disk, and its largest memory.

use crate::NODE_BYTES;
use crate::common::cluster::service;
use crate::common::{Cluster, Daemon, Env, at_scale, binary, ccm, is_lease, wait_at_most, with};
use crate::figure::Figure;
use crate::hour;
use sandbox::calls::Call;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::time::Duration;

const MANY: usize = 5000;
/// A second lasts a fifth of one, so that polls are a second apart, and refreshes a minute.
const SCALE: f64 = 0.2;
/// The time for large clusters, which take minutes even on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(900);

/// 4.0 until there were dedicated servers, 4.5 until there were limits for tenants.
const BINARY_MB: f64 = 5.0;
const MEMORY_MB: f64 = 8.0;
const MEMORY_OF_MANY_MB: f64 = 40.0;
const MEMORY_OF_LARGE_MB: f64 = 10.0;
const MEMORY_OF_LARGE_OURS_MB: f64 = 20.0;
/// The shipped limit of the Pod is 64 MiB.
const MEMORY_OF_MANY_LARGE_MB: f64 = 40.0;

/// How much the memory may grow when EndpointSlices are read.
const MEMORY_OF_SLICES_MB: f64 = 1.0;

const LOCAL_SERVICES: usize = 20;
/// The EndpointSlices of the Services that prefer nodes with pods, and those of other Services.
const SLICES: usize = 2000;
const OTHER_SLICES: usize = 8000;
const ENDPOINTS: usize = 20;

const LARGE_SERVICES: usize = 100;
const MANY_LARGE_SERVICES: usize = 1000;
const HONEST_SERVICES: usize = 5;
const LARGE_BYTES: usize = 250_000;
const PLACE: [(&str, &str); 2] = [("location", "fsn1"), ("type", "lb11")];

pub fn all() -> Vec<Figure> {
    vec![binary_size(), of_a_hundred(), of_slices(), of_many()]
}

fn binary_size() -> Figure {
    let bytes = std::fs::metadata(binary()).unwrap().len();
    Figure::bytes("binary", bytes).at_most(BINARY_MB)
}

fn of_a_hundred() -> Figure {
    let peak_kb = hour::steady().peak_kb;
    Figure::bytes("peak memory, 100 nodes", peak_kb * 1024).at_most(MEMORY_MB)
}

/// Measures how much the memory grows when nodes with pods are preferred: 40 nodes for 25 targets, and 10,000
/// EndpointSlices. The same cluster is served without and with the setting.
fn of_slices() -> Figure {
    let sandbox = Sandbox::builder().nodes(40).heartbeats(false).scale(0.1).start();
    let right = json!({ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"] });
    sandbox.cluster().grant("ccm", vec![serde_json::from_value(right).unwrap()]);
    let env = at_scale(&sandbox, 0.1);
    ccm(&env, &["node", "sync"]).with_code(0);
    let name = |n: usize| format!("local-{n}");
    for n in 1..=LOCAL_SERVICES {
        let mut local = service(&name(n), &PLACE, &[80]);
        local["spec"]["externalTrafficPolicy"] = "Local".into();
        sandbox.create_as(local);
    }
    for n in 0..SLICES {
        put_slice(&sandbox, &name(n % LOCAL_SERVICES + 1), n, ENDPOINTS);
    }
    for n in 0..OTHER_SLICES {
        put_slice(&sandbox, "other", SLICES + n, 1);
    }
    let peak = |setting: &str, path: &str| {
        let setting = ("HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS", setting);
        let daemon = Daemon::start(&with(env.clone(), &[setting]), &[]);
        let mark = sandbox.calls().mark();
        let is_read =
            |call: &Call| call.sequence > mark && call.path == path && call.duration.is_some();
        wait_at_most(PATIENCE, "addresses", || {
            (1..=LOCAL_SERVICES).all(|n| sandbox.has_address(&name(n)))
        });
        wait_at_most(PATIENCE, "reads", || sandbox.calls().count(is_read) >= 10);
        daemon.memory_kb().0
    };
    // The first run creates the load balancers, which takes more memory.
    peak("false", "/api/v1/services");
    let without = peak("false", "/api/v1/services");
    let with_pods = peak("true", "/apis/discovery.k8s.io/v1/endpointslices");
    let title = format!(
        "memory that {} EndpointSlices take, {LOCAL_SERVICES} Services",
        SLICES + OTHER_SLICES
    );
    let grown = with_pods.saturating_sub(without) * 1024;
    Figure::bytes(title, grown).at_most(MEMORY_OF_SLICES_MB)
}

/// Writes an EndpointSlice of a Service.
fn put_slice(sandbox: &Sandbox, service: &str, number: usize, endpoints: usize) {
    let endpoint = |n: usize| {
        json!({
            "addresses": [format!("10.244.{}.{}", number % 250, n + 1)],
            "nodeName": format!("worker-{}", (number + n) % 40 + 1),
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "targetRef": { "kind": "Pod", "namespace": "default", "name": format!("{service}-{number}-{n}") },
        })
    };
    let slice = json!({
        "metadata": {
            "name": format!("{service}-{number}"), "namespace": "default",
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4", "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }],
    });
    sandbox.cluster().create("endpointslices", Some("default"), slice);
}

/// What other programs store on Services is read at every poll and never kept. The same holds for annotations of ours
/// above their limit.
pub fn of_large_services() -> Vec<Figure> {
    const OURS: &str = "load-balancer.hetzner.cloud/http-certificates";
    let foreign = |all: &mut Value| all["example.com/state"] = "x".repeat(LARGE_BYTES).into();
    let ours = |all: &mut Value| {
        for n in 0..LARGE_BYTES / 50 {
            all[format!("{OURS}.{n:04}")] = "x".repeat(12).into();
        }
    };
    vec![
        of_services("250 kB of foreign annotations", true, foreign).at_most(MEMORY_OF_LARGE_MB),
        of_services("250 kB of our annotations", false, ours).at_most(MEMORY_OF_LARGE_MB),
        of_services("31 kB of our annotations", true, ours_that_are_read)
            .at_most(MEMORY_OF_LARGE_OURS_MB),
        of_many_services(1),
        of_many_services(10),
    ]
}

/// 31 kB of annotations that ask for what every Service has.
fn ours_that_are_read(all: &mut Value) {
    let names: Vec<String> = (0..1400).map(|n| format!("other-{n:04}")).collect();
    let names = names.join(",");
    all["load-balancer.hetzner.cloud/node-selector"] = format!("pool notin ({names})").into();
    all["load-balancer.hetzner.cloud/share-namespaces"] = names.into();
}

/// Measures Services with more annotations than ccm keeps, in this number of namespaces, and foreign Services,
/// which are younger.
fn of_many_services(namespaces: usize) -> Figure {
    let (sandbox, env) = small_world();
    for n in 0..namespaces {
        sandbox.create_namespace(&format!("tenant-{n}"));
    }
    for n in 1..=MANY_LARGE_SERVICES {
        let name = format!("tenant-{}/large-{n}", n % namespaces);
        let mut large = service(&name, &PLACE, &[80]);
        ours_that_are_read(&mut large["metadata"]["annotations"]);
        sandbox.create_as(large);
    }
    let daemon = Daemon::start(&env, &[]);
    daemon.logs("of them together");
    let name = |n: usize| format!("honest-{n}");
    for n in 1..=HONEST_SERVICES {
        sandbox.create(&name(n), &PLACE, &[80]);
    }
    wait_at_most(PATIENCE, "addresses of the others", || {
        (1..=HONEST_SERVICES).all(|n| sandbox.has_address(&name(n)))
    });
    wait_for_polls(&sandbox);
    let (peak_kb, _) = daemon.memory_kb();
    let title = format!(
        "peak memory, {MANY_LARGE_SERVICES} Services with 31 kB of our annotations each, namespaces: {namespaces}"
    );
    Figure::bytes(title, peak_kb * 1024).at_most(MEMORY_OF_MANY_LARGE_MB)
}

/// Ten nodes that are initialised.
fn small_world() -> (Sandbox, Env) {
    let sandbox = Sandbox::builder().nodes(10).heartbeats(false).scale(0.1).start();
    let env = at_scale(&sandbox, 0.1);
    ccm(&env, &["node", "sync"]).with_code(0);
    (sandbox, env)
}

fn wait_for_polls(sandbox: &Sandbox) {
    let mark = sandbox.calls().mark();
    let is_look = |call: &Call| {
        call.sequence > mark && call.path == "/api/v1/services" && call.duration.is_some()
    };
    wait_at_most(PATIENCE, "more polls of all of them", || sandbox.calls().count(is_look) >= 5);
}

fn of_services(each: &str, is_made: bool, fill: impl Fn(&mut Value)) -> Figure {
    let (sandbox, env) = small_world();
    let name = |n: usize| format!("large-{n}");
    for n in 1..=LARGE_SERVICES {
        sandbox.create(&name(n), &PLACE, &[80]);
        sandbox.edit(&name(n), |service| {
            fill(&mut service["metadata"]["annotations"]);
        });
    }
    let daemon = Daemon::start(&env, &[]);
    let is_done = |n: usize| match is_made {
        true => sandbox.has_address(&name(n)),
        false => daemon.log().contains(&format!("/{}: its annotations", name(n))),
    };
    wait_at_most(PATIENCE, "what comes of all of them", || (1..=LARGE_SERVICES).all(is_done));
    wait_for_polls(&sandbox);
    let (peak_kb, _) = daemon.memory_kb();
    let title = format!("peak memory, {LARGE_SERVICES} Services with {each} each");
    Figure::bytes(title, peak_kb * 1024)
}

/// Measures until all nodes are initialised and were compared with their servers once more.
fn of_many() -> Figure {
    let sandbox = Sandbox::builder().nodes(MANY).node_bytes(NODE_BYTES).heartbeats(false).start();
    let daemon = Daemon::start(&at_scale(&sandbox, SCALE), &[]);
    let created =
        |call: &Call| call.method == "POST" && call.status == Some(201) && !is_lease(&call.path);
    wait_at_most(PATIENCE, "an event for each of the nodes", || {
        sandbox.calls().count(created) >= MANY
    });
    let hetzner = || sandbox.calls().count(|call| call.half == Half::Hetzner);
    let before = hetzner();
    let pages = MANY.div_ceil(50);
    wait_at_most(PATIENCE, "a refresh of them all", || hetzner() >= before + pages);
    let (peak_kb, _) = daemon.memory_kb();
    Figure::bytes("peak memory, 5,000 nodes and servers", peak_kb * 1024).at_most(MEMORY_OF_MANY_MB)
}
