//! Checks that an answer depends only on the earlier calls and their times, so that a run can be repeated byte by byte.

use std::time::Duration;

use sandbox::credentials::{Authority, Validity};
use sandbox::{Half, Sandbox};
use serde_json::json;

use crate::calls::{Room, document, request};

/// Starts a new sandbox, sends it requests about load balancers, certificates, Nodes, Services and Events, and returns
/// the bytes of all answers.
fn life() -> Vec<Vec<u8>> {
    let builder = Sandbox::builder().nodes(3).services(2).robot(1);
    let room = Room::new(builder.network("10.0.0.0/8"));
    let sandbox = &room.sandbox;
    let (project, admin) =
        (sandbox.projects().token.clone(), sandbox.account("admin").unwrap().token);
    let server = sandbox.cloud().servers(sandbox.project())[0]["id"].clone();
    let mut answers = vec![project.clone().into_bytes(), admin.clone().into_bytes()];
    let mut call = |half: Half, method: &str, path: &str, headers: &str, body: &str| {
        let token = match half {
            Half::Hetzner => &project,
            _ => &admin,
        };
        room.pass(Duration::from_millis(700));
        let exchanged = room.exchange(half, &request(method, path, token, headers, body));
        answers.push(exchanged.answer.clone());
        document(&exchanged).1
    };
    let (hetzner, kubernetes) = (Half::Hetzner, Half::Kubernetes);
    let table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let merge = "Content-Type: application/strategic-merge-patch+json\r\n";
    let body = json!({
        "name": "one", "load_balancer_type": "lb11", "network_zone": "eu-central", "labels": {"a": "b", "c": "d"},
        "network": sandbox.network(), "targets": [{"type": "server", "server": {"id": server}}],
        "services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 80}],
    });
    let created = call(hetzner, "POST", "/v1/load_balancers", "", &body.to_string());
    let balancer = format!("/v1/load_balancers/{}", created["load_balancer"]["id"]);
    let event = json!({
        "metadata": {"generateName": "web-1.", "namespace": "default"},
        "involvedObject": {"kind": "Service", "namespace": "default", "name": "web-1"},
        "reason": "Created", "type": "Normal", "message": "created",
    });
    let events = "/api/v1/namespaces/default/events";
    for _ in 0..3 {
        call(kubernetes, "POST", events, "", &event.to_string());
    }
    let labels = r#"{"metadata":{"labels":{"x":"y"}}}"#;
    call(kubernetes, "PATCH", "/api/v1/nodes/worker-1", merge, labels);
    for path in ["/v1/servers", "/v1/networks", "/v1/primary_ips", "/v1/load_balancers", &balancer]
    {
        call(hetzner, "GET", path, "", "");
    }
    for path in ["/api/v1/nodes", "/api/v1/services", events] {
        call(kubernetes, "GET", path, "", "");
        call(kubernetes, "GET", path, table, "");
    }
    let authority = Authority::seeded("authority", 7).unwrap();
    let [first, second] =
        [(); 2].map(|()| authority.server(&["a.example"], Validity::Now).unwrap());
    assert_ne!(first.certificate_pem, second.certificate_pem);
    let uploaded = json!({"name": "own", "certificate": second.certificate_pem, "private_key": second.key_pem});
    let managed = json!({"name": "managed", "type": "managed", "domain_names": ["a.example"]});
    for certificate in [uploaded, managed] {
        call(hetzner, "POST", "/v1/certificates", "", &certificate.to_string());
    }
    room.pass(Duration::from_secs(400));
    let issued = call(hetzner, "GET", "/v1/certificates", "", "");
    assert_eq!(issued["certificates"][1]["status"]["issuance"], "completed");
    call(kubernetes, "GET", "/api/v1/nodes", "", "");
    call(hetzner, "GET", &format!("{balancer}/actions"), "", "");
    call(hetzner, "DELETE", &balancer, "", "");
    answers
}

#[test]
fn the_same_calls_get_the_same_bytes() {
    let (first, second) = (life(), life());
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(String::from_utf8_lossy(first), String::from_utf8_lossy(second));
    }
    assert_eq!(first.len(), second.len());
}
