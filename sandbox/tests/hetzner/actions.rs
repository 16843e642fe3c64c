//! Actions: how long they take, what they lock, and how they fail.

use std::time::{Duration, Instant};

use sandbox::hetzner::{Cloud, ServerSpec};
use serde_json::{Value, json};

use crate::api::{Api, TOKEN};

#[test]
fn an_action_runs_locks_and_takes_effect() {
    let api = Api::new();
    let server = server(&api);
    api.cloud.hold_actions(true);
    let started = api.post(&format!("{server}/actions/poweroff"), Value::Null);
    assert_eq!(started.status, 201);
    assert_eq!(started.at("/action/status"), "running");
    assert_eq!(started.at("/action/command"), "stop_server");
    assert!(started.at("/action/progress").as_u64().is_some_and(|progress| progress < 100));
    assert_eq!(
        (started.at("/action/finished"), started.at("/action/error")),
        (&Value::Null, &Value::Null)
    );
    let id = started.at("/action/id").as_u64().unwrap_or_default();

    let shown = api.get(&server);
    assert_eq!(
        (shown.at("/server/status"), shown.at("/server/locked")),
        (&json!("stopping"), &json!(true))
    );
    for (method, path) in
        [("POST", "/actions/poweron"), ("POST", "/actions/change_protection"), ("DELETE", "")]
    {
        let refused = api.call(method, &format!("{server}{path}"), Value::Null);
        assert_eq!((refused.status, refused.code()), (423, "locked"), "{method} {path}");
    }

    api.cloud.hold_actions(false);
    let over = api.get(&format!("/actions/{id}"));
    assert_eq!(
        (over.at("/action/status"), over.at("/action/progress")),
        (&json!("success"), &json!(100))
    );
    assert!(over.at("/action/finished").is_string());
    let shown = api.get(&server);
    assert_eq!(
        (shown.at("/server/status"), shown.at("/server/locked")),
        (&json!("off"), &json!(false))
    );
}

#[test]
fn actions_are_found_by_id_and_by_resource() {
    let api = Api::new();
    let (one, two) = (server(&api), server(&api));
    let action =
        |path: &str| api.post(path, Value::Null).at("/action/id").as_u64().unwrap_or_default();
    let first = action(&format!("{one}/actions/poweroff"));
    let second = action(&format!("{two}/actions/poweroff"));
    api.cloud.hold_actions(true);
    let third = action(&format!("{one}/actions/poweron"));
    let ids = (1..=26).map(|id| format!("id={id}")).collect::<Vec<_>>().join("&");
    let cases = [
        (format!("/actions?id={first}&id={second}"), 200, json!([first, second])),
        (format!("/actions?id={first}&id=1"), 200, json!([first])),
        ("/actions".into(), 410, Value::Null),
        (format!("/actions?{ids}"), 422, Value::Null),
        ("/actions?id=x".into(), 422, Value::Null),
        (format!("{one}/actions"), 200, json!([first, third])),
        (format!("{one}/actions?status=running"), 200, json!([third])),
        (format!("{one}/actions?sort=id:desc"), 200, json!([third, first])),
        (format!("{one}/actions?status=tired"), 422, Value::Null),
        ("/servers/actions?sort=command".into(), 200, json!([third, first, second])),
        (format!("/servers/actions?id={second}"), 200, json!([second])),
        ("/networks/actions".into(), 200, json!([])),
    ];
    for (path, status, expected) in cases {
        let answer = api.get(&path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        let actions = answer.body["actions"].as_array();
        let shown = actions
            .map(|actions| actions.iter().map(|action| action["id"].clone()).collect::<Value>());
        assert_eq!(shown.unwrap_or_default(), expected, "{path}");
    }
    let cases = [
        (format!("/actions/{first}"), 200),
        (format!("/servers/actions/{first}"), 200),
        (format!("{one}/actions/{first}"), 200),
        (format!("{two}/actions/{first}"), 404),
        (format!("/networks/actions/{first}"), 404),
        ("/actions/1".into(), 404),
    ];
    for (path, status) in cases {
        assert_eq!(api.get(&path).status, status, "{path}");
    }
}

#[test]
fn the_running_actions_of_all_servers_are_listed_with_their_servers() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let commands = [
        ("poweroff", "stop_server", Value::Null),
        ("shutdown", "shutdown_server", Value::Null),
        ("reboot", "reboot_server", Value::Null),
        ("reset", "reset_server", Value::Null),
        ("poweron", "start_server", Value::Null),
        ("attach_to_network", "attach_to_network", json!({"network": network})),
    ];
    for (path, command, body) in commands {
        let server = server(&api);
        if path == "poweron" {
            api.post(&format!("{server}/actions/poweroff"), Value::Null);
            assert_eq!(api.get(&server).at("/server/status"), "off");
        }
        api.cloud.hold_actions(true);
        let started = api.post(&format!("{server}/actions/{path}"), body);
        assert_eq!(started.status, 201, "{path}: {}", started.body);
        let running = api.get("/servers/actions?status=running");
        let actions = running.at("/actions").as_array().cloned().unwrap_or_default();
        assert_eq!(actions, [started.at("/action").clone()], "{path}");
        assert_eq!(
            (&actions[0]["command"], &actions[0]["status"]),
            (&json!(command), &json!("running"))
        );
        let id: u64 = server.trim_start_matches("/servers/").parse().expect("an ID");
        let resources = actions[0]["resources"].as_array().cloned().unwrap_or_default();
        assert!(resources.contains(&json!({"id": id, "type": "server"})), "{path}: {resources:?}");
        api.cloud.hold_actions(false);
        assert_eq!(api.get("/servers/actions?status=running").at("/actions"), &json!([]), "{path}");
    }
}

#[test]
fn the_actions_of_all_servers_come_in_pages() {
    let api = Api::new();
    for number in 0..60 {
        if number == 59 {
            api.cloud.fail_next_action("stop_server", "action_failed", "Action failed");
        }
        api.post(&format!("{}/actions/poweroff", server(&api)), Value::Null);
    }
    // The query, the status, the number of actions on the page, and the number of actions on all pages.
    let cases = [
        ("", 200, 25, 60),
        ("?per_page=50", 200, 50, 60),
        ("?per_page=50&page=2", 200, 10, 60),
        ("?per_page=50&page=3", 200, 0, 60),
        ("?status=success&per_page=50", 200, 50, 59),
        ("?status=success&status=error&per_page=50&page=2", 200, 10, 60),
        ("?status=error", 200, 1, 1),
        ("?status=running", 200, 0, 0),
        ("?sort=started:desc&sort=id:desc", 200, 25, 60),
        ("?per_page=51", 422, 0, 0),
        ("?sort=progress", 422, 0, 0),
        ("?name=x", 422, 0, 0),
    ];
    for (query, status, entries, total) in cases {
        let answer = api.get(&format!("/servers/actions{query}"));
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        let shown = answer.at("/actions").as_array().map_or(0, Vec::len);
        let all = answer.at("/meta/pagination/total_entries").as_u64().unwrap_or_default();
        assert_eq!((shown, all), (entries, total), "{query}");
    }
    let answer = api.get("/servers/actions?status=success&per_page=50");
    let link = answer.header("Link").unwrap_or_default();
    let next = r#"</v1/servers/actions?page=2&per_page=50&status=success>; rel="next""#;
    assert!(link.contains(next), "{link}");
}

#[test]
fn an_action_can_fail_and_then_has_no_effect() {
    let api = Api::new();
    let server = server(&api);
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let network_path = format!("/networks/{network}");
    let route = json!({"destination": "10.1.0.0/24", "gateway": "10.0.0.9"});
    // Each case: the action's command, the path and body of its request, the path of the resource that the action
    // changes, and the JSON pointer of the changed field.
    let cases = [
        (
            "stop_server",
            format!("{server}/actions/poweroff"),
            Value::Null,
            &server,
            "/server/status",
        ),
        (
            "change_protection",
            format!("{server}/actions/change_protection"),
            json!({"delete": true, "rebuild": true}),
            &server,
            "/server/protection",
        ),
        (
            "attach_to_network",
            format!("{server}/actions/attach_to_network"),
            json!({"network": network, "ip": "10.0.0.7"}),
            &server,
            "/server/private_net",
        ),
        (
            "add_route",
            format!("{network_path}/actions/add_route"),
            route,
            &network_path,
            "/network/routes",
        ),
    ];
    for (command, path, body, seen_at, pointer) in cases {
        let before = api.get(seen_at).at(pointer).clone();
        api.cloud.fail_next_action(command, "action_failed", "Action failed");
        let started = api.post(&path, body.clone());
        assert_eq!(started.status, 201, "{command}: {}", started.body);
        let over = api.get(&format!("/actions/{}", started.at("/action/id")));
        assert_eq!(over.at("/action/status"), "error", "{command}");
        assert_eq!(
            over.at("/action/error"),
            &json!({"code": "action_failed", "message": "Action failed"})
        );
        assert_eq!(api.get(seen_at).at(pointer), &before, "{command}");
        // The second request succeeds. This shows that the failed action has released everything that it had reserved.
        assert_eq!(api.post(&path, body).status, 201, "{command}");
        assert_ne!(api.get(seen_at).at(pointer), &before, "{command}");
    }
}

#[test]
fn a_failed_creation_or_deletion_of_a_server_has_no_effect() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let body =
        json!({"name": "new", "server_type": "cx23", "image": "debian-12", "networks": [network]});
    api.cloud.fail_next_action("create_server", "resource_unavailable", "no capacity");
    let created = api.post("/servers", body.clone());
    assert_eq!(created.status, 201);
    assert_eq!(api.get(&format!("/servers/{}", created.at("/server/id"))).status, 404);
    let created = api.post("/servers", body);
    let path = format!("/servers/{}", created.at("/server/id"));
    assert_eq!(api.get(&path).at("/server/private_net/0/ip"), "10.0.0.2");

    api.cloud.fail_next_action("delete_server", "action_failed", "Action failed");
    assert_eq!(api.call("DELETE", &path, Value::Null).status, 200);
    assert_eq!(api.get(&path).at("/server/status"), "running");
    assert_eq!(api.call("DELETE", &path, Value::Null).status, 200);
    assert_eq!(api.get(&path).status, 404);
}

#[test]
fn durations_follow_the_scale() {
    let cloud = Cloud::new(0.1);
    let project = cloud.add_project();
    cloud.add_token(project, TOKEN, false);
    // This test polls without a pause, which needs more calls than the rate limit of a real project allows.
    cloud.set_rate_limit(project, u32::MAX, u32::MAX);
    let api = Api { cloud, project };
    let started = api.post(&format!("{}/actions/poweroff", server(&api)), Value::Null);
    let path = format!("/actions/{}", started.at("/action/id"));
    let (begin, mut progress) = (Instant::now(), 0);
    while api.get(&path).at("/action/status") == "running" {
        let now = api.get(&path).at("/action/progress").as_u64().unwrap_or_default();
        assert!(now >= progress, "progress goes up");
        progress = now;
        assert!(begin.elapsed() < Duration::from_secs(10), "the action never ends");
    }
    assert!(begin.elapsed() >= Duration::from_millis(50), "a second at scale 0.1");
}

/// Creates a running server and returns its path.
fn server(api: &Api) -> String {
    let name = format!("server-{}", api.cloud.servers(api.project).len());
    format!(
        "/servers/{}",
        api.cloud.create_server(api.project, ServerSpec { name, ..ServerSpec::default() })
    )
}
