//! Measures how long calls take. These tests run only on request:
//! `cargo test --release -p sandbox --test memory -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use sandbox::{Half, Sandbox};
use serde_json::json;

use crate::calls::{Room, document, request};

/// How many calls are measured in total. They are of several kinds, e.g. lists and writes.
const CALLS: u32 = 20_000;
const SANDBOXES: u32 = 1_000;

#[test]
#[ignore = "a measurement"]
fn a_sandbox() {
    let spent = (0..SANDBOXES).map(|_| {
        let begun = Instant::now();
        Room::new(Sandbox::builder().nodes(3).network("10.0.0.0/8"));
        begun.elapsed()
    });
    println!("{:>8.1} µs  a sandbox with 3 nodes", median(spent.collect()));
}

#[test]
#[ignore = "a measurement"]
fn a_call() {
    let builder = Sandbox::builder().nodes(5).services(5);
    let room = Room::new(builder.network("10.0.0.0/8"));
    let (project, ccm) =
        (room.sandbox.projects().token.clone(), room.sandbox.account("ccm").unwrap().token);
    room.sandbox.cloud().set_rate_limit(room.sandbox.project(), 3_600_000, 3_600_000);
    let servers = room.sandbox.cloud().servers(room.sandbox.project());
    let targets: Vec<_> = servers[..4]
        .iter()
        .map(|server| json!({"type": "server", "server": {"id": server["id"]}, "use_private_ip": true}))
        .collect();
    let mut ids = Vec::new();
    for number in 1..=5 {
        let body = json!({
            "name": format!("web-{number}"), "load_balancer_type": "lb11", "location": "fsn1", "targets": targets,
            "network": room.sandbox.network(),
            "labels": {"cluster": "c", "service-uid": "0b6e6c5c-3c6e-4bbd-8f2a-2f5a5f2b7c11"},
            "services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 30080},
                {"protocol": "tcp", "listen_port": 443, "destination_port": 30443}],
        });
        let body = body.to_string();
        let created = request("POST", "/v1/load_balancers", &project, "", &body);
        let (status, created) = document(&room.exchange(Half::Hetzner, &created));
        assert_eq!(status, 201, "{created}");
        ids.push(created["load_balancer"]["id"].to_string());
    }
    room.pass(Duration::from_secs(10));
    let table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let merge = "Content-Type: application/strategic-merge-patch+json\r\n";
    let hetzner = |method: &str, path: &str, body: &str| {
        (Half::Hetzner, request(method, &format!("/v1{path}"), &project, "", body))
    };
    let kubernetes = |method: &str, path: &str, headers: &str, body: &str| {
        (Half::Kubernetes, request(method, path, &ccm, headers, body))
    };
    let balancer = |rest: &str| format!("/load_balancers/{}{rest}", ids[0]);
    let target = |command: &str| {
        let body = json!({"type": "server", "server": {"id": servers[4]["id"]}});
        let mut body = body.clone();
        if command == "add_target" {
            body["use_private_ip"] = true.into();
        }
        hetzner("POST", &balancer(&format!("/actions/{command}")), &body.to_string())
    };
    let metadata = "/api/v1/nodes?includeObject=Metadata";
    let patch = |number: u32| {
        let condition = json!({"type": "NetworkUnavailable", "status": "False", "reason": format!("r{number}")});
        let body = json!({"status": {"conditions": [condition]}});
        kubernetes("PATCH", "/api/v1/nodes/worker-1/status", merge, &body.to_string())
    };
    let labels =
        |number: u32| hetzner("PUT", &balancer(""), &format!(r#"{{"labels":{{"a":"{number}"}}}}"#));
    type Kind<'a> = (&'a str, Box<dyn Fn(u32) -> (Half, Vec<u8>) + 'a>);
    let kinds: [Kind; 10] = [
        ("list nodes", Box::new(|_| kubernetes("GET", "/api/v1/nodes?limit=500", "", ""))),
        ("list services", Box::new(|_| kubernetes("GET", "/api/v1/services?limit=500", "", ""))),
        ("table of metadata", Box::new(|_| kubernetes("GET", metadata, table, ""))),
        ("patch status", Box::new(patch)),
        ("list servers", Box::new(|_| hetzner("GET", "/servers?per_page=50", ""))),
        ("list load balancers", Box::new(|_| hetzner("GET", "/load_balancers?per_page=50", ""))),
        ("get a load balancer", Box::new(|_| hetzner("GET", &balancer(""), ""))),
        ("add a target", Box::new(|_| target("add_target"))),
        ("remove a target", Box::new(|_| target("remove_target"))),
        ("put labels", Box::new(labels)),
    ];
    let rounds = CALLS / kinds.len() as u32;
    let mut spent = vec![Vec::new(); kinds.len()];
    for round in 0..rounds {
        for ((name, make), spent) in kinds.iter().zip(&mut spent) {
            let (half, request) = make(round);
            let begun = Instant::now();
            let exchanged = room.exchange(half, &request);
            spent.push(begun.elapsed());
            let status = &exchanged.answer[9..12];
            assert!(
                status.starts_with(b"20"),
                "{name}: {}",
                String::from_utf8_lossy(&exchanged.answer)
            );
            room.pass(Duration::from_secs(2));
        }
    }
    let mut sum = 0.0;
    for ((name, _), spent) in kinds.iter().zip(spent) {
        let median = median(spent);
        sum += median;
        println!("{median:>8.1} µs  {name}");
    }
    println!("{:>8.1} µs  on average", sum / kinds.len() as f64);
}

/// Returns the median in microseconds. Some calls are slow because of other programs, and they hardly change the
/// median.
fn median(mut spent: Vec<Duration>) -> f64 {
    spent.sort_unstable();
    spent[spent.len() / 2].as_secs_f64() * 1e6
}
