//! Rules that apply to every request: tokens, rate limit, paths, methods and fields.

use sandbox::exchange::Handler;
use sandbox::hetzner::{Cloud, ServerSpec};
use serde_json::{Value, json};

use crate::api::{Answer, Api, READ_ONLY, TOKEN, request};

#[test]
fn a_token_opens_its_own_project_and_nothing_else() {
    let api = Api::new();
    let other = api.cloud.add_project();
    api.cloud.add_token(other, "another-project", false);
    let id = api.cloud.create_server(api.project, ServerSpec::default());
    let server = format!("/servers/{id}");
    let cases = [
        (Some(TOKEN), "GET", server.as_str(), 200, ""),
        (Some(READ_ONLY), "GET", &server, 200, ""),
        (Some(READ_ONLY), "DELETE", &server, 403, "forbidden"),
        (Some(READ_ONLY), "POST", "/servers", 403, "forbidden"),
        (Some("another-project"), "GET", &server, 404, "not_found"),
        (Some("another-project"), "DELETE", &server, 404, "not_found"),
        (Some("nobody"), "GET", &server, 401, "unauthorized"),
        (Some("nobody"), "GET", "/nowhere", 401, "unauthorized"),
        (None, "GET", &server, 401, "unauthorized"),
    ];
    for (token, method, path, status, code) in cases {
        let answer = call_with(&api.cloud, token, method, path);
        assert_eq!((answer.status, answer.code()), (status, code), "{token:?} {method} {path}");
    }
    api.cloud.remove_token(TOKEN);
    assert_eq!(api.get(&server).code(), "unauthorized");
}

#[test]
fn paths_methods_and_bodies_are_checked() {
    let api = Api::new();
    let id = api.cloud.create_server(api.project, ServerSpec::default());
    let server = |rest: &str| format!("/servers/{id}{rest}");
    let cases = [
        ("GET", "/nothing".into(), Value::Null, 404, "not_found"),
        ("GET", "/servers/".into(), Value::Null, 404, "not_found"),
        ("GET", "/servers/abc".into(), Value::Null, 404, "not_found"),
        ("GET", "/servers/42".into(), Value::Null, 404, "not_found"),
        ("GET", server("/nothing"), Value::Null, 404, "not_found"),
        ("POST", server("/actions/explode"), Value::Null, 404, "not_found"),
        ("GET", server("/actions/poweron"), Value::Null, 405, "method_not_allowed"),
        ("PATCH", server(""), Value::Null, 405, "method_not_allowed"),
        ("DELETE", "/servers".into(), Value::Null, 405, "method_not_allowed"),
        ("POST", "/locations".into(), Value::Null, 405, "method_not_allowed"),
        ("GET", "/datacenters".into(), Value::Null, 410, "deprecated_api_endpoint"),
        ("GET", "/datacenters/1".into(), Value::Null, 410, "deprecated_api_endpoint"),
        ("GET", "/servers?color=red".into(), Value::Null, 422, "invalid_input"),
        ("GET", server("?color=red"), Value::Null, 422, "invalid_input"),
        ("DELETE", server("?force=true"), Value::Null, 422, "invalid_input"),
        ("GET", "/locations/1?name=fsn1".into(), Value::Null, 422, "invalid_input"),
        ("PUT", server(""), json!({"color": "red"}), 422, "invalid_input"),
        ("PUT", server(""), json!({"name": 7}), 422, "invalid_input"),
        ("PUT", server(""), json!([]), 400, "json_error"),
        ("POST", server("/actions/poweron"), json!({"hard": true}), 422, "invalid_input"),
        ("POST", server("/actions/poweron"), json!({}), 201, ""),
    ];
    for (method, path, body, status, code) in cases {
        let answer = api.call(method, &path, body.clone());
        assert_eq!(
            (answer.status, answer.code()),
            (status, code),
            "{method} {path} {body}: {}",
            answer.body
        );
    }
}

#[test]
fn a_body_that_is_not_json_has_another_error_than_a_wrong_body() {
    let api = Api::new();
    let mut broken = request("POST", "/servers", &Value::Null);
    broken.body = b"{\"name\": ".to_vec();
    let answer = Answer::of(api.cloud.handle(&broken));
    assert_eq!((answer.status, answer.code()), (400, "json_error"));
}

#[test]
fn an_invalid_field_is_named() {
    let api = Api::new();
    let body = json!({"name": "net", "ip_range": "10.0.0.0/16", "subnets": [{"type": "cloud", "network_zone": "mars"}]});
    let answer = api.post("/networks", body);
    assert_eq!(answer.at("/error/details/fields/0/name"), "subnets.0.network_zone");
    assert!(
        answer
            .at("/error/message")
            .as_str()
            .is_some_and(|text| text.contains("subnets.0.network_zone"))
    );
}

#[test]
fn every_answer_shows_the_budget_and_has_an_id_of_its_own() {
    let api = Api::new();
    let answers =
        [api.get("/servers"), api.get("/nothing"), call_with(&api.cloud, None, "GET", "/servers")];
    for answer in &answers {
        for name in ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"] {
            let value = answer.header(name).unwrap_or_default();
            assert!(value.parse::<u64>().is_ok(), "{name}: {value:?}");
        }
    }
    let ids: Vec<_> = answers.iter().map(|answer| answer.header("X-Correlation-Id")).collect();
    assert!(
        ids[0].is_some_and(|id| id.len() == 32) && ids[0] != ids[1] && ids[1] != ids[2],
        "{ids:?}"
    );
}

#[test]
fn the_budget_of_a_project_runs_out_and_refills() {
    let cloud = Cloud::new(1.0);
    let (mine, other) = (cloud.add_project(), cloud.add_project());
    cloud.add_token(mine, TOKEN, false);
    cloud.add_token(other, "other", false);
    cloud.set_rate_limit(mine, 3600, 2);
    let api = Api { cloud, project: mine };
    let remaining = |answer: &Answer| answer.header("RateLimit-Remaining").map(str::to_owned);

    let first = api.get("/servers");
    assert_eq!((first.status, remaining(&first).as_deref()), (200, Some("1")));
    assert_eq!(api.get("/servers").status, 200);
    let refused = api.get("/servers");
    assert_eq!((refused.status, refused.code()), (429, "rate_limit_exceeded"));
    assert_eq!(remaining(&refused).as_deref(), Some("0"));
    let reset: i64 =
        refused.header("RateLimit-Reset").and_then(|text| text.parse().ok()).unwrap_or_default();
    let wait = reset - jiff::Timestamp::now().as_second();
    assert!((3590..=3601).contains(&wait), "full again in {wait} s");
    assert_eq!(call_with(&api.cloud, Some("other"), "GET", "/servers").status, 200);

    // This cloud simulates all durations as zero, so that an exhausted rate limit is refilled at once.
    let fast = Api::new();
    fast.cloud.set_rate_limit(fast.project, 3600, 0);
    assert_eq!(fast.get("/servers").status, 200);
}

fn call_with(cloud: &Cloud, token: Option<&str>, method: &str, path: &str) -> Answer {
    let mut request = request(method, path, &Value::Null);
    request.headers = token
        .map(|token| ("authorization".into(), format!("Bearer {token}")))
        .into_iter()
        .collect();
    Answer::of(cloud.handle(&request))
}
