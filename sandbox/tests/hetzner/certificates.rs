//! Certificates: uploaded and managed ones, the resources that use them, and failures of their issuance.

use sandbox::credentials::{Authority, Validity};
use serde_json::{Value, json};

use crate::api::Api;
use crate::load_balancers::{create, expect};

fn uploaded(name: &str, domains: &[&str]) -> Value {
    let authority = Authority::new("test").expect("a CA");
    let identity = authority.server(domains, Validity::Now).expect("a certificate");
    json!({"name": name, "certificate": identity.certificate_pem, "private_key": identity.key_pem})
}

fn managed(name: &str, domain: &str) -> Value {
    json!({"name": name, "type": "managed", "domain_names": [domain], "labels": {"a": "b"}})
}

#[test]
fn an_uploaded_certificate_shows_the_fields_of_its_pem() {
    let api = Api::new();
    let body = uploaded("own", &["example.com", "www.example.com"]);
    let made = api.post("/certificates", body.clone());
    assert_eq!(made.status, 201, "{}", made.body);
    let certificate = made.at("/certificate");
    assert_eq!(certificate["domain_names"], json!(["example.com", "www.example.com"]));
    assert_eq!(certificate["certificate"], body["certificate"]);
    assert_eq!((&certificate["type"], &certificate["status"]), (&json!("uploaded"), &Value::Null));
    assert_eq!(certificate["fingerprint"].as_str().map(str::len), Some(32 * 3 - 1));
    assert_eq!(made.body.get("action"), None);
    assert!(!made.body.to_string().contains("PRIVATE KEY"));

    let other = uploaded("other", &["example.org"]);
    let with = |field: &str, value: Value| {
        let mut changed = body.clone();
        changed["name"] = "new".into();
        changed[field] = value;
        changed
    };
    let cases = [
        (body.clone(), 409, "uniqueness_error"),
        (with("certificate", "nonsense".into()), 422, "invalid_input"),
        (with("certificate", Value::Null), 422, "invalid_input"),
        (with("private_key", "nonsense".into()), 422, "invalid_input"),
        (with("private_key", other["private_key"].clone()), 422, "invalid_input"),
        (with("type", "borrowed".into()), 422, "invalid_input"),
        (with("domain_names", json!(["example.com"])), 422, "invalid_input"),
        (json!({"name": "new", "type": "managed"}), 422, "invalid_input"),
        (managed("new", "no domain"), 422, "invalid_input"),
    ];
    for (body, status, code) in cases {
        let answer = api.post("/certificates", body);
        assert_eq!((answer.status, answer.code()), (status, code), "{}", answer.body);
    }
}

#[test]
fn a_managed_certificate_is_issued_after_a_while() {
    let api = Api::new();
    api.cloud.hold_actions(true);
    let made = api.post("/certificates", managed("issued", "*.example.com"));
    assert_eq!(made.at("/action/command"), "create_certificate", "{}", made.body);
    let certificate = made.at("/certificate");
    assert_eq!(certificate["status"], json!({"issuance": "pending", "renewal": "unavailable"}));
    assert_eq!(certificate["certificate"], Value::Null);
    let path = format!("/certificates/{}", certificate["id"]);
    let load_balancer = create(&api, "web", json!({}));
    let service = json!({"protocol": "https", "http": {"certificates": [certificate["id"]]}});
    expect(&api, load_balancer, "add_service", service.clone(), 422, "invalid_input");
    let refused = api.call("DELETE", &path, Value::Null);
    assert_eq!((refused.status, refused.code()), (423, "locked"));
    api.cloud.hold_actions(false);

    let shown = api.get(&path);
    assert_eq!(shown.at("/certificate/status/issuance"), "completed");
    assert_eq!(shown.at("/certificate/domain_names"), &json!(["*.example.com"]));
    assert!(shown.at("/certificate/not_valid_after").is_string());
    expect(&api, load_balancer, "add_service", service, 201, "");
    let users = json!([{"id": load_balancer, "type": "load_balancer"}]);
    assert_eq!(api.get(&path).at("/certificate/used_by"), &users);
    let refused = api.call("DELETE", &path, Value::Null);
    assert_eq!((refused.status, refused.code()), (422, "resource_in_use"));
    expect(&api, load_balancer, "delete_service", json!({"listen_port": 443}), 201, "");
    assert_eq!(api.call("DELETE", &path, Value::Null).status, 204);
    assert_eq!(api.get(&path).status, 404);
}

#[test]
fn issuance_fails_on_request_and_outside_of_the_zones() {
    let api = Api::new();
    let code = "certificate_could_not_verify_domain_delegated_to_zone";
    api.cloud.fail_next_action("create_certificate", code, "not delegated");
    let made = api.post("/certificates", managed("one", "www.example.com"));
    let path = format!("/certificates/{}", made.at("/certificate/id"));
    let error = || api.get(&path).at("/certificate/status/error").clone();
    assert_eq!(error(), json!({"code": code, "message": "not delegated"}));
    let retry = || api.post(&format!("{path}/actions/retry"), Value::Null);
    api.cloud.set_dns_zones(api.project, &["ample.com"]);
    assert_eq!(retry().at("/action/command"), "issue_certificate");
    assert_eq!(error()["code"], "dns_zone_not_found");
    api.cloud.set_dns_zones(api.project, &["example.com"]);
    assert_eq!(retry().status, 201);
    assert_eq!(api.get(&path).at("/certificate/status/issuance"), "completed");
    let again = retry();
    assert_eq!((again.status, again.code()), (422, "invalid_input"));
    let actions = api.get(&format!("{path}/actions?sort=id"));
    let statuses: Vec<&Value> = (0..3)
        .map(|at| actions.at(["/actions/0/status", "/actions/1/status", "/actions/2/status"][at]))
        .collect();
    assert_eq!(statuses, ["error", "error", "success"]);
    let id = api.cloud.create_certificate(api.project, uploaded("own", &["example.org"]));
    let answer = api.post(&format!("/certificates/{id}/actions/retry"), Value::Null);
    assert_eq!((answer.status, answer.code()), (422, "invalid_input"));
}

#[test]
fn certificates_are_found_and_counted() {
    let api = Api::new();
    let first = api.cloud.create_certificate(api.project, managed("issued", "example.com"));
    api.cloud.create_certificate(api.project, uploaded("own", &["example.org"]));
    let cases = [
        ("", vec!["issued", "own"]),
        ("?name=own", vec!["own"]),
        ("?type=managed", vec!["issued"]),
        ("?type=managed&type=uploaded&sort=name:desc", vec!["own", "issued"]),
        ("?label_selector=a=b", vec!["issued"]),
    ];
    for (query, names) in cases {
        let found = api.get(&format!("/certificates{query}"));
        assert_eq!(found.names("certificates"), names, "{query}");
    }
    assert_eq!(api.get("/certificates?type=stolen").status, 422);
    let renamed = api.call("PUT", &format!("/certificates/{first}"), json!({"name": "own"}));
    assert_eq!((renamed.status, renamed.code()), (409, "uniqueness_error"));
    let renamed =
        api.call("PUT", &format!("/certificates/{first}"), json!({"name": "new", "labels": {}}));
    assert_eq!(renamed.at("/certificate/name"), "new");
    let ids: Vec<u64> = (0..11)
        .map(|number| {
            api.cloud.create_certificate(api.project, managed(&format!("c{number}"), "example.com"))
        })
        .collect();
    let id = create(&api, "web", json!({}));
    let https =
        |certificates: &[u64]| json!({"protocol": "https", "http": {"certificates": certificates}});
    expect(&api, id, "add_service", https(&ids), 403, "resource_limit_exceeded");
    expect(&api, id, "add_service", https(&ids[..10]), 201, "");
}
