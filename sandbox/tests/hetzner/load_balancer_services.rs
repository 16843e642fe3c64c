//! Services of load balancers: defaults, allowed values, and conflicts between two services.

use serde_json::{Value, json};

use crate::api::Api;
use crate::load_balancers::{create, expect, path};

#[test]
fn fields_of_a_service_that_are_left_out_get_defaults() {
    let http = json!({
        "cookie_name": "HCLBSTICKY", "cookie_lifetime": 300, "certificates": [], "redirect_http": false,
        "sticky_sessions": false, "timeout_idle": 60,
    });
    let tcp_check = |port: u16| json!({"protocol": "tcp", "port": port, "interval": 15, "timeout": 10, "retries": 3});
    let http_check = |port: u16| {
        let mut check = tcp_check(port);
        check["protocol"] = "http".into();
        check["http"] = json!({
            "domain": null, "path": "/", "response": "", "status_codes": ["2??", "3??"], "tls": false,
        });
        check
    };
    // Each case: the request, the expected listen and destination port, the expected health check, and the expected
    // field `http`.
    let cases = [
        (
            json!({"protocol": "tcp", "listen_port": 1, "destination_port": 2}),
            (1, 2),
            tcp_check(2),
            Value::Null,
        ),
        (json!({"protocol": "http"}), (80, 80), http_check(80), http.clone()),
        (json!({"protocol": "https"}), (443, 80), http_check(80), http.clone()),
        (
            json!({"protocol": "http", "destination_port": 7, "health_check": {"protocol": "tcp", "port": 9}}),
            (80, 7),
            tcp_check(9),
            http,
        ),
    ];
    for (asked, (listen, destination), check, http) in cases {
        let api = Api::new();
        let id = create(&api, "web", json!({}));
        expect(&api, id, "add_service", asked.clone(), 201, "");
        let shown = api.get(&path(id));
        let service = shown.at("/load_balancer/services/0");
        assert_eq!(service["listen_port"], listen, "{asked}");
        assert_eq!(service["destination_port"], destination, "{asked}");
        assert_eq!(service["proxyprotocol"], false, "{asked}");
        assert_eq!(service["health_check"], check, "{asked}");
        assert_eq!(service.get("http").unwrap_or(&Value::Null), &http, "{asked}");
    }
}

#[test]
fn an_invalid_service_is_refused() {
    let api = Api::new();
    let id = create(&api, "web", json!({}));
    let tcp = json!({"protocol": "tcp", "listen_port": 1, "destination_port": 2});
    let check = |check: Value| json!({"health_check": check});
    let http = |http: Value| json!({"protocol": "http", "http": http});
    let cases = [
        (json!({"protocol": "udp"}), "invalid_input"),
        (json!({"protocol": null}), "invalid_input"),
        (json!({"listen_port": null}), "invalid_input"),
        (json!({"listen_port": 0}), "invalid_input"),
        (json!({"destination_port": 65536}), "invalid_input"),
        (json!({"colour": "red"}), "invalid_input"),
        (check(json!({"protocol": "https"})), "invalid_input"),
        (check(json!({"interval": 0})), "invalid_input"),
        (check(json!({"timeout": "1s"})), "invalid_input"),
        (check(json!({"http": {"domain": "a b"}})), "invalid_input"),
        (check(json!({"http": {"path": "healthz"}})), "invalid_input"),
        (check(json!({"http": {"status_codes": ["2xx"]}})), "invalid_input"),
        (http(json!({"timeout_idle": 29})), "invalid_input"),
        (http(json!({"timeout_idle": 301})), "invalid_input"),
        (http(json!({"redirect_http": true})), "invalid_input"),
        (json!({"http": {"sticky_sessions": true}}), "invalid_input"),
        (http(json!({"certificates": [1]})), "not_found"),
    ];
    for (more, code) in cases {
        let mut body = tcp.clone();
        for (field, value) in more.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        let answer = api.post(&format!("{}/actions/add_service", path(id)), body);
        assert_eq!(answer.code(), code, "{more}: {}", answer.body);
    }
}

#[test]
fn a_port_is_listened_on_once() {
    let api = Api::new();
    let id = create(&api, "web", json!({}));
    let tcp = |port: u16| json!({"protocol": "tcp", "listen_port": port, "destination_port": 1});
    let redirect = |on: bool| json!({"listen_port": 443, "http": {"redirect_http": on}});
    let used = "source_port_already_used";
    // Each step: the command of the action, the body of the request, and the expected status and error code. The steps
    // run in this order on the same load balancer.
    let steps = [
        ("add_service", tcp(80), 201, ""),
        ("add_service", tcp(80), 422, used),
        ("add_service", json!({"protocol": "https"}), 201, ""),
        ("update_service", redirect(true), 422, used),
        ("delete_service", json!({"listen_port": 80}), 201, ""),
        ("delete_service", json!({"listen_port": 80}), 404, "not_found"),
        ("update_service", redirect(true), 201, ""),
        ("add_service", tcp(80), 422, used),
        ("update_service", redirect(false), 201, ""),
        ("add_service", tcp(80), 201, ""),
        ("add_service", tcp(81), 201, ""),
        ("add_service", tcp(82), 201, ""),
        ("add_service", tcp(83), 201, ""),
        ("add_service", tcp(84), 403, "resource_limit_exceeded"),
        ("change_type", json!({"load_balancer_type": "lb21"}), 201, ""),
        ("add_service", tcp(84), 201, ""),
        ("change_type", json!({"load_balancer_type": "lb11"}), 422, "invalid_load_balancer_type"),
    ];
    for (command, body, status, code) in steps {
        expect(&api, id, command, body, status, code);
    }
}

#[test]
fn an_update_changes_what_it_names() {
    let api = Api::new();
    let id = create(
        &api,
        "web",
        json!({"services": [{
            "protocol": "http", "listen_port": 80, "destination_port": 1, "http": {"cookie_name": "C"},
            "health_check": {"protocol": "http", "port": 3, "http": {"domain": "example.com", "path": "/z"}},
        }]}),
    );
    let service = || api.get(&path(id)).at("/load_balancer/services/0").clone();
    let update = |body: Value| {
        let mut body = body;
        body["listen_port"] = 80.into();
        expect(&api, id, "update_service", body, 201, "");
        service()
    };
    let before = service();
    // Each case: the changed fields in the request, the path of one field in the answer, and its new value.
    let cases = [
        (json!({"destination_port": 5}), "/destination_port", json!(5)),
        (json!({"proxyprotocol": true}), "/proxyprotocol", json!(true)),
        (json!({"http": {"timeout_idle": 90}}), "/http/timeout_idle", json!(90)),
        (json!({"health_check": {"interval": 3}}), "/health_check/interval", json!(3)),
        (
            json!({"health_check": {"http": {"domain": null}}}),
            "/health_check/http/domain",
            Value::Null,
        ),
    ];
    let mut expected = before;
    for (asked, pointer, value) in cases {
        if let Some(field) = expected.pointer_mut(pointer) {
            *field = value;
        }
        assert_eq!(update(asked.clone()), expected, "{asked}");
    }
    let plain = update(json!({"protocol": "tcp", "health_check": {"protocol": "tcp"}}));
    assert_eq!((plain.get("http"), plain["health_check"].get("http")), (None, None));
    let again = update(json!({"protocol": "http"}));
    assert_eq!(again["http"]["cookie_name"], "HCLBSTICKY", "tcp forgets what is not its own");
    expect(&api, id, "update_service", json!({"listen_port": 81}), 404, "not_found");
}
