//! Calls nearly everything that the simulated Hetzner Cloud API serves, and checks requests and answers against the
//! OpenAPI document of the real API.
//!
//! The document is not in this repository. `HCLOUD_OPENAPI_SPEC` contains its path, which is otherwise
//! `../shared/data/hcloud-openapi.json` beside the repository. Without the document, the tests are skipped and report
//! this.

#[path = "hetzner/api.rs"]
mod api;
#[path = "hetzner_openapi/balancing.rs"]
mod balancing;

use std::path::PathBuf;

use sandbox::exchange::Handler;
use sandbox::hetzner::ServerSpec;
use sandbox::openapi::Spec;
use serde_json::{Value, json};

use api::{Answer, Api, request};

/// Paths that the real API has removed. The real API answers 410 to them, and its OpenAPI document does not contain
/// them.
const REMOVED: [&str; 2] = ["/datacenters", "/datacenters/1"];

/// Error codes for requests that fit the OpenAPI document and are refused because of the current state, e.g. because a
/// resource is locked.
const REFUSED_BY_STATE: [&str; 12] = [
    "not_found",
    "locked",
    "conflict",
    "protected",
    "uniqueness_error",
    "ip_not_available",
    "server_already_attached",
    "resource_limit_exceeded",
    "resource_in_use",
    "target_already_defined",
    "targets_without_use_private_ip",
    "load_balancer_already_attached",
];

struct Tour {
    api: Api,
    spec: Spec,
    problems: Vec<String>,
    calls: usize,
}

#[test]
fn requests_and_answers_fit_the_document() {
    let Some(spec) = document() else { return };
    let mut tour = Tour { api: Api::new(), spec, problems: Vec::new(), calls: 0 };
    catalogs(&mut tour);
    networks(&mut tour);
    servers(&mut tour);
    balancing::tour(&mut tour);
    refusals(&mut tour);
    assert!(tour.problems.is_empty(), "{}", tour.problems.join("\n"));
    assert!(tour.calls > 170, "only {} calls", tour.calls);
}

#[test]
fn the_document_is_really_checked() {
    let Some(spec) = document() else { return };
    let network = json!({"name": "net", "ip_range": "10.0.0.0/16"});
    let query = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let body = |value: &Value| value.to_string().into_bytes();
    assert_eq!(spec.check_request("POST", "/v1/networks", &[], &body(&network)), Ok(()));
    let wrong_requests = [
        ("GET", "/v1/nothing", vec![], vec![]),
        ("GET", "/v1/networks", query("colour", "red"), vec![]),
        ("GET", "/v1/networks", query("page", "one"), vec![]),
        ("GET", "/v1/servers", query("status", "tired"), vec![]),
        ("GET", "/v1/actions", vec![], vec![]),
        ("POST", "/v1/networks", vec![], vec![]),
        ("POST", "/v1/networks", vec![], body(&json!({"name": "net"}))),
        (
            "POST",
            "/v1/networks",
            vec![],
            body(&json!({"name": "net", "ip_range": "10.0.0.0/16", "x": 1})),
        ),
        ("POST", "/v1/networks", vec![], body(&json!({"name": 1, "ip_range": "10.0.0.0/16"}))),
    ];
    for (method, path, query, body) in wrong_requests {
        assert!(
            spec.check_request(method, path, &query, &body).is_err(),
            "{method} {path} {query:?}"
        );
    }
    let action = json!({
        "id": 1, "command": "x", "status": "running", "progress": 1, "started": "2026-11-21T00:00:00Z",
        "finished": null, "resources": [], "error": null,
    });
    let with = |field: &str, value: Value| {
        let mut changed = action.clone();
        changed[field] = value;
        body(&json!({"action": changed}))
    };
    let check = |body: &[u8]| spec.check_response("GET", "/v1/actions/1", 200, body);
    assert_eq!(check(&body(&json!({"action": action}))), Ok(()));
    for (field, value) in [
        ("status", json!("tired")),
        ("progress", json!("1")),
        ("started", json!("today")),
        ("colour", json!("red")),
        ("resources", json!([{"id": 1}])),
        ("error", json!({"code": "x"})),
        ("id", Value::Null),
    ] {
        assert!(check(&with(field, value)).is_err(), "{field}");
    }
}

/// The official CLI sends an ID as a number and a name as a string, and the API accepts both.
#[test]
fn a_field_for_an_id_or_a_name_accepts_both() {
    let Some(spec) = document() else { return };
    let api = Api::new();
    let key = json!({"name": "key", "public_key": "ssh-ed25519 AAAAx"});
    let key = api.post("/ssh_keys", key).at("/ssh_key/id").clone();
    let id = |list: &str, name: &str| {
        let found = api.get(&format!("/{list}?name={name}"));
        found.at(&format!("/{list}/0/id")).clone()
    };
    let server = json!({"name": "first", "server_type": "cx23", "image": "debian-12", "location": "fsn1",
        "ssh_keys": ["key"]});
    let balancer = json!({"name": "first", "load_balancer_type": "lb11", "location": "fsn1"});
    let made = api.post("/load_balancers", balancer.clone());
    let change = format!("/load_balancers/{}/actions/change_type", made.at("/load_balancer/id"));
    let bigger = json!({"load_balancer_type": "lb21"});
    let cases = [
        ("/servers", &server, "server_type", id("server_types", "cx23")),
        ("/servers", &server, "image", id("images", "debian-12")),
        ("/servers", &server, "location", id("locations", "fsn1")),
        ("/servers", &server, "ssh_keys", json!([key])),
        ("/servers", &server, "ssh_keys", json!([key, "key"])),
        ("/load_balancers", &balancer, "load_balancer_type", id("load_balancer_types", "lb11")),
        ("/load_balancers", &balancer, "location", id("locations", "fsn1")),
        (&change, &bigger, "load_balancer_type", id("load_balancer_types", "lb21")),
    ];
    for (number, (path, body, field, id)) in cases.into_iter().enumerate() {
        let check = |body: &Value| {
            let body = body.to_string();
            spec.check_request("POST", &format!("/v1{path}"), &[], body.as_bytes())
        };
        for (form, value) in [("name", body[field].clone()), ("id", id)] {
            let mut body = body.clone();
            body[field] = value;
            if path != change {
                body["name"] = json!(format!("{form}-{number}"));
            }
            assert_eq!(check(&body), Ok(()), "{path} {field} by {form}");
            let answer = api.post(path, body);
            assert_eq!(answer.status, 201, "{path} {field} by {form}: {answer:?}");
        }
        for wrong in [json!(true), json!(1.5), json!({}), json!([true])] {
            let mut body = body.clone();
            body[field] = wrong;
            assert!(check(&body).is_err(), "{path} {body}");
        }
    }
}

fn catalogs(tour: &mut Tour) {
    for path in [
        "/locations",
        "/locations?name=fsn1&sort=name:desc&page=1&per_page=2",
        "/locations/1",
        "/locations/99",
    ] {
        tour.get(path);
    }
    for path in [
        "/server_types",
        "/server_types?name=cx23&per_page=50",
        "/server_types/104",
        "/server_types/9999",
    ] {
        tour.get(path);
    }
    for path in REMOVED {
        tour.get(path);
    }
}

fn networks(tour: &mut Tour) {
    let subnet =
        |range: &str| json!({"type": "cloud", "network_zone": "eu-central", "ip_range": range});
    let created = tour.call("POST", "/networks", json!({
        "name": "net", "ip_range": "10.0.0.0/16", "labels": {"a": "b"}, "expose_routes_to_vswitch": false,
        "subnets": [
            subnet("10.0.0.0/24"),
            {"type": "vswitch", "network_zone": "eu-central", "ip_range": "10.0.9.0/24", "vswitch_id": 7},
        ],
        "routes": [{"destination": "10.244.0.0/24", "gateway": "10.0.0.2"}],
    }));
    let id = created.at("/network/id").clone();
    for path in [
        "/networks",
        "/networks?name=net&label_selector=a=b&sort=created:desc&sort=id&page=1&per_page=50",
    ] {
        tour.get(path);
    }
    let route = json!({"destination": "10.244.1.0/24", "gateway": "10.0.0.3"});
    let changes = [
        ("add_subnet", subnet("10.0.1.0/24")),
        ("add_subnet", json!({"type": "cloud", "network_zone": "eu-central"})),
        ("delete_subnet", json!({"ip_range": "10.0.1.0/24"})),
        ("add_route", route.clone()),
        ("delete_route", route),
        ("change_ip_range", json!({"ip_range": "10.0.0.0/15"})),
        ("change_protection", json!({"delete": true})),
    ];
    for (command, body) in changes {
        let started = tour.call("POST", &format!("/networks/{id}/actions/{command}"), body);
        let action = started.at("/action/id").clone();
        tour.get(&format!("/networks/{id}"));
        tour.get(&format!("/networks/{id}/actions/{action}"));
        tour.get(&format!("/networks/actions/{action}"));
        tour.get(&format!("/actions/{action}"));
    }
    tour.get(&format!("/networks/{id}/actions?status=success&sort=finished:desc"));
    tour.get("/networks/actions?sort=command&page=1&per_page=3");
    tour.call(
        "PUT",
        &format!("/networks/{id}"),
        json!({"name": "new", "labels": {}, "expose_routes_to_vswitch": true}),
    );
    tour.call("DELETE", &format!("/networks/{id}"), Value::Null);
    tour.call(
        "POST",
        &format!("/networks/{id}/actions/change_protection"),
        json!({"delete": false}),
    );
    tour.call("DELETE", &format!("/networks/{id}"), Value::Null);
    tour.get(&format!("/networks/{id}"));
}

fn servers(tour: &mut Tour) {
    let network = tour.api.cloud.create_network(tour.api.project, "net", "10.0.0.0/16");
    // These requests are not checked against the OpenAPI document, because it has no paths for creating SSH keys and
    // firewalls.
    let key = json!({"name": "key", "public_key": "ssh-ed25519 AAAAx"});
    tour.api.post("/ssh_keys", key);
    let firewall = tour.api.post("/firewalls", json!({"name": "firewall"}));
    let firewall = firewall.at("/firewall/id").clone();
    tour.api.cloud.hold_actions(true);
    let created = tour.call("POST", "/servers", json!({
        "name": "new", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "labels": {"a": "b"},
        "networks": [network], "start_after_create": true, "user_data": "#cloud-config", "ssh_keys": ["key"],
        "firewalls": [{"firewall": firewall}],
        "public_net": {"enable_ipv4": true, "enable_ipv6": true},
    }));
    tour.get(&format!("/servers/{}", created.at("/server/id")));
    tour.get(&format!(
        "/actions?id={}&id={}",
        created.at("/action/id"),
        created.at("/next_actions/0/id")
    ));
    tour.api.cloud.hold_actions(false);
    let id = created.at("/server/id").clone();
    tour.call(
        "POST",
        "/servers",
        json!({
            "name": "private", "server_type": "cax11", "image": "debian-12", "networks": [network],
            "public_net": {"enable_ipv4": false, "enable_ipv6": false},
        }),
    );
    tour.api.cloud.create_server(tour.api.project, ServerSpec::default());
    for path in [
        "/servers",
        "/servers?name=new",
        "/servers?label_selector=a+in+(b)&status=running&status=off&sort=name:asc&page=1&per_page=50",
    ] {
        tour.get(path);
    }
    let attach = json!({"network": network, "ip": "10.0.0.20", "alias_ips": ["10.0.0.21"], "ip_range": "10.0.0.0/24"});
    let actions = [
        ("poweroff", Value::Null),
        ("poweron", Value::Null),
        ("reboot", Value::Null),
        ("reset", Value::Null),
        ("detach_from_network", json!({"network": network})),
        ("attach_to_network", attach),
        ("change_alias_ips", json!({"network": network, "alias_ips": ["10.0.0.22", "10.0.0.23"]})),
        ("change_protection", json!({"delete": true, "rebuild": true})),
        ("change_protection", json!({"delete": false, "rebuild": false})),
        ("shutdown", Value::Null),
    ];
    for (command, body) in actions {
        let started = tour.call("POST", &format!("/servers/{id}/actions/{command}"), body);
        assert_eq!(started.status, 201, "{command}: {}", started.body);
        let action = started.at("/action/id").clone();
        tour.get(&format!("/servers/{id}"));
        tour.get(&format!("/servers/{id}/actions/{action}"));
        tour.get(&format!("/servers/actions/{action}"));
    }
    tour.api.cloud.fail_next_action("start_server", "action_failed", "Action failed");
    let failed = tour.call("POST", &format!("/servers/{id}/actions/poweron"), Value::Null);
    tour.get(&format!("/actions/{}", failed.at("/action/id")));
    tour.get(&format!("/servers/{id}/actions?sort=started:desc&status=error"));
    tour.get("/servers/actions?page=2&per_page=3");
    tour.call("PUT", &format!("/servers/{id}"), json!({"name": "renamed", "labels": {"c": "d"}}));
    tour.api.cloud.hold_actions(true);
    tour.call("DELETE", &format!("/servers/{id}"), Value::Null);
    tour.get(&format!("/servers/{id}"));
    tour.call("DELETE", &format!("/servers/{id}"), Value::Null);
    tour.api.cloud.hold_actions(false);
    tour.get(&format!("/servers/{id}"));
}

fn refusals(tour: &mut Tour) {
    let id = tour.api.cloud.create_server(
        tour.api.project,
        ServerSpec { name: "still".into(), ..ServerSpec::default() },
    );
    let create = json!({"name": "still", "server_type": "cx23", "image": "debian-12"});
    let cases = [
        ("POST", "/servers".into(), create, 409),
        ("POST", "/servers".into(), json!({"name": "x"}), 422),
        ("PUT", format!("/servers/{id}"), json!({"colour": "red"}), 422),
        ("GET", "/servers?per_page=51".into(), Value::Null, 422),
        ("GET", "/servers/1".into(), Value::Null, 404),
        ("GET", "/actions".into(), Value::Null, 410),
        ("GET", "/actions/1".into(), Value::Null, 404),
        ("POST", format!("/servers/{id}/actions/attach_to_network"), json!({"network": 1}), 404),
    ];
    for (method, path, body, status) in cases {
        assert_eq!(tour.call(method, &path, body).status, status, "{method} {path}");
    }
    tour.api.cloud.set_rate_limit(tour.api.project, 1, 0);
    tour.api.cloud.remove_token(api::TOKEN);
    assert_eq!(tour.get("/servers").status, 401);
}

impl Tour {
    fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, Value::Null)
    }

    fn call(&mut self, method: &str, path: &str, body: Value) -> Answer {
        let request = request(method, path, &body);
        let response = self.api.cloud.handle(&request);
        let answer = Answer::of(response.clone());
        self.calls += 1;
        if REMOVED.contains(&path) {
            return answer;
        }
        let what = format!("{method} {path} {body} -> {}", answer.status);
        let is_valid = answer.status < 300 || REFUSED_BY_STATE.contains(&answer.code());
        let path = in_document(&request.path);
        if is_valid
            && let Err(problems) =
                self.spec.check_request(method, &path, &request.query, &request.body)
        {
            self.problems.push(format!("{what}: request: {}", problems.join("; ")));
        }
        if let Err(problems) =
            self.spec.check_response(method, &path, answer.status, &response.body)
        {
            self.problems.push(format!("{what}: answer: {}", problems.join("; ")));
        }
        answer
    }
}

/// Returns the path under which the OpenAPI document describes a request. The document does not contain
/// `/servers/{id}/actions` and `/servers/{id}/actions/{action_id}`. Such a request is checked like one for
/// `/networks/{id}/actions`, because the API's reference describes both in the same way.
fn in_document(path: &str) -> String {
    let is_left_out = |rest: &str| {
        let parts: Vec<&str> = rest.split('/').collect();
        matches!(parts[..], [_, "actions"])
            || matches!(parts[..], [_, "actions", id] if id.parse::<u64>().is_ok())
    };
    match path.strip_prefix("/v1/servers/") {
        Some(rest) if is_left_out(rest) => format!("/v1/networks/{rest}"),
        _ => path.into(),
    }
}

/// Reads the OpenAPI document. Returns `None` when it is missing, and fails when it cannot be read.
fn document() -> Option<Spec> {
    let usual =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/hcloud-openapi.json");
    let path = std::env::var_os("HCLOUD_OPENAPI_SPEC").map(PathBuf::from);
    if path.is_none() && !usual.exists() {
        sandbox::skipped::skip(
            "hetzner_openapi",
            "openapi",
            "HCLOUD_OPENAPI_SPEC names no document",
        );
        return None;
    }
    match Spec::hetzner(path.unwrap_or(usual)) {
        Ok(spec) => Some(spec),
        Err(error) => panic!("{error}"),
    }
}
