//! Checks that everything that depends on time follows the simulated clock.

use std::time::Duration;

use sandbox::robot::Sees;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

use crate::calls::Room;

const NANOSECOND: Duration = Duration::from_nanos(1);

fn load_balancer(room: &Room) -> String {
    let body = json!({
        "name": "one", "load_balancer_type": "lb11", "location": "fsn1",
        "services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 80}],
        "targets": [{"type": "server", "server": {"id": room.sandbox.cloud().servers(room.sandbox.project())[0]["id"]}}],
    });
    let (status, created) = room.hetzner("POST", "/load_balancers", &body.to_string());
    assert_eq!(status, 201, "{created}");
    created["load_balancer"]["id"].to_string()
}

#[test]
fn an_action_ends_exactly_when_its_time_has_passed() {
    let room = Room::new(Sandbox::builder());
    room.sandbox.cloud().set_action_duration("create_load_balancer", Some(Duration::from_secs(2)));
    load_balancer(&room);
    let action = || {
        let (_, listed) = room.hetzner("GET", "/load_balancers/actions", "");
        let action = &listed["actions"][0];
        [&action["status"], &action["started"], &action["finished"]].map(Value::clone)
    };
    let started = json!("2026-11-23T12:00:00Z");
    let running = [json!("running"), started.clone(), Value::Null];
    assert_eq!(action(), running);
    room.pass(Duration::from_secs(2) - NANOSECOND);
    assert_eq!(action(), running);
    room.pass(NANOSECOND);
    let ended = [json!("success"), started, json!("2026-11-23T12:00:02Z")];
    assert_eq!(action(), ended);
    room.pass(Duration::from_secs(3600));
    assert_eq!(action(), ended);
}

#[test]
fn targets_become_healthy_and_unhealthy() {
    let room = Room::new(Sandbox::builder());
    let id = load_balancer(&room);
    let health = || {
        let (_, shown) = room.hetzner("GET", &format!("/load_balancers/{id}"), "");
        let health = &shown["load_balancer"]["targets"][0]["health_status"][0];
        health["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(health(), "unknown");
    room.pass(Duration::from_secs(3) - NANOSECOND);
    assert_eq!(health(), "unknown");
    room.pass(NANOSECOND);
    assert_eq!(health(), "healthy");
    let server = room.sandbox.cloud().servers(room.sandbox.project())[0]["id"].clone();
    room.sandbox.cloud().set_power(server.as_u64().unwrap(), false);
    assert_eq!(health(), "unhealthy");
}

#[test]
fn budgets_refill_and_blocks_end() {
    let room = Room::new(Sandbox::builder().serve_robot());
    room.sandbox.cloud().set_rate_limit(room.sandbox.project(), 3600, 1);
    let list = || room.hetzner("GET", "/servers", "").0;
    assert_eq!((list(), list()), (200, 429));
    room.pass(Duration::from_secs(1) - NANOSECOND);
    assert_eq!(list(), 429);
    room.pass(Duration::from_millis(2));
    assert_eq!(list(), 200);

    let robot = |login: &str| {
        let login = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, login);
        let request =
            format!("GET /server HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {login}\r\n\r\n");
        let answer = room.exchange(Half::Robot, request.as_bytes()).answer;
        String::from_utf8(answer[9..12].to_vec()).unwrap()
    };
    room.sandbox.robot().set_login("me", "right", Sees::Account(0));
    room.sandbox.robot().create("metal-1");
    assert_eq!(robot("me:right"), "200");
    for _ in 0..3 {
        assert_eq!(robot("me:wrong"), "401");
    }
    assert_eq!(robot("me:right"), "403");
    room.pass(Duration::from_secs(600) - NANOSECOND);
    assert_eq!(robot("me:right"), "403");
    room.pass(NANOSECOND);
    assert_eq!(robot("me:right"), "200");
}

#[test]
fn kubelets_report_until_their_machine_is_off() {
    let room = Room::new(Sandbox::builder().nodes(2));
    let server = room.sandbox.cloud().servers(room.sandbox.project())[1]["id"].clone();
    let ready = || {
        let (_, listed) = room.kubernetes("GET", "/api/v1/nodes", "", "");
        let nodes = listed["items"].as_array().unwrap().clone();
        nodes
            .into_iter()
            .map(|node| {
                let conditions = node["status"]["conditions"].as_array().unwrap().clone();
                let condition = conditions.into_iter().find(|one| one["type"] == "Ready");
                let condition = condition.unwrap();
                ["status", "lastHeartbeatTime"]
                    .map(|field| condition[field].as_str().unwrap().to_owned())
            })
            .collect::<Vec<_>>()
    };
    let expected = |of: [[&str; 2]; 2]| of.map(|one| one.map(str::to_owned)).to_vec();
    let begun = "2026-11-23T12:00:00Z";
    assert_eq!(ready(), expected([["True", begun], ["True", begun]]));
    room.sandbox.cloud().set_power(server.as_u64().unwrap(), false);
    // The simulated kubelets check every ten seconds whether their servers run. The next check, ten seconds from now,
    // notices that the server is off. The condition `Ready` becomes `Unknown` fifty seconds after this check, so sixty
    // seconds from now.
    for _ in 0..6 {
        assert_eq!(ready(), expected([["True", begun], ["True", begun]]));
        room.pass(Duration::from_secs(10));
    }
    assert_eq!(ready(), expected([["True", begun], ["Unknown", begun]]));
    room.pass(Duration::from_secs(240));
    let reported = "2026-11-23T12:05:00Z";
    assert_eq!(ready(), expected([["True", reported], ["Unknown", begun]]));
    room.sandbox.cloud().set_power(server.as_u64().unwrap(), true);
    room.pass(Duration::from_secs(10));
    let back = "2026-11-23T12:05:10Z";
    assert_eq!(ready(), expected([["True", reported], ["True", back]]));
}

#[test]
fn waits_and_durations_are_simulated() {
    use sandbox::faults::{Effect, Rule};
    let room = Room::new(Sandbox::builder());
    let slow = Effect::Slow(Duration::from_secs(40));
    room.sandbox.faults().add(Rule::new(slow));
    room.hetzner("GET", "/servers", "");
    let call = room.sandbox.calls().calls().remove(0);
    assert_eq!(call.duration, Some(Duration::from_secs(40)));
}
