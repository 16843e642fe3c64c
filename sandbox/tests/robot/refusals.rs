//! Requests that Robot refuses: wrong logins, requests from an IP address that is blocked because of wrong logins, too
//! many requests, and unknown paths. Also Robot's answers under simulated faults.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use sandbox::robot::{Limit, Logins, Sees};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

use super::{code, get, raw, request, send, servers};

const WRONG: (&str, &str) = ("#ws+sandbox", "wrong");

fn wrong(sandbox: &Sandbox) -> (u16, Value) {
    send(sandbox, "GET", "/server", WRONG)
}

#[test]
fn requests_that_mean_nothing_are_refused_by_name() {
    let sandbox = servers(1).start();
    let cases = [
        ("GET", "/", 404, "NOT_FOUND"),
        ("GET", "/server/", 404, "SERVER_NOT_FOUND"),
        ("GET", "/server/metal-1", 404, "SERVER_NOT_FOUND"),
        ("GET", "/server/-1", 404, "SERVER_NOT_FOUND"),
        ("GET", "/server/2000001/cancellation", 404, "NOT_FOUND"),
        ("GET", "/v1/servers", 404, "NOT_FOUND"),
        ("POST", "/server", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/server/2000001", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/reset/2000001", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/server?page=2", 400, "INVALID_INPUT"),
    ];
    let (user, password) = sandbox.robot().login();
    for (method, path, status, expected) in cases {
        let seen = send(&sandbox, method, path, (&user, &password));
        assert_eq!(code(&seen), (status, expected), "{method} {path}");
    }
}

#[test]
fn three_failed_logins_block_even_the_right_password() {
    let sandbox = servers(1).start();
    let robot = sandbox.robot();
    let unauthorized =
        json!({"error": {"status": 401, "code": "UNAUTHORIZED", "message": "Unauthorized"}});
    let address = sandbox.address(Half::Robot);
    let nameless = raw::get(address, "/server").unwrap();
    assert_eq!(nameless.status, 401);
    assert_eq!(nameless.header("www-authenticate"), Some("Basic"));

    assert_eq!(wrong(&sandbox), (401, unauthorized.clone()));
    assert_eq!(wrong(&sandbox), (401, unauthorized.clone()));
    assert_eq!(get(&sandbox, "/server").0, 200, "does not reset the count");
    assert_eq!(robot.blocked_for(), None);
    assert_eq!(wrong(&sandbox), (401, unauthorized.clone()));
    assert_eq!(get(&sandbox, "/server"), (403, Value::Null), "no JSON");
    let left = robot.blocked_for().unwrap();
    assert!(left > Duration::from_secs(590) && left <= Duration::from_secs(600));

    robot.set_blocked_answer(Response::json(401, &unauthorized));
    assert_eq!(get(&sandbox, "/server"), (401, unauthorized.clone()));
    let (good, failed, blocked) = (1, 3, 2);
    let expected = Logins { good, failed, blocked };
    assert_eq!(robot.logins(), expected);

    robot.end_block();
    assert_eq!(wrong(&sandbox), (401, unauthorized));
    assert_eq!(get(&sandbox, "/server").0, 200, "the count is new");
}

#[test]
fn a_block_ends_by_itself() {
    // After several wrong logins, Robot blocks the caller's IP address for ten minutes. At this scale, ten minutes take
    // 600 ms.
    let sandbox = servers(1).scale(0.001).start();
    let robot = sandbox.robot();
    let begun = Instant::now();
    while robot.blocked_for().is_none() {
        wrong(&sandbox);
        assert!(begun.elapsed() < raw::PATIENCE, "never blocked");
    }
    while robot.blocked_for().is_some() {
        assert!(begun.elapsed() < raw::PATIENCE, "blocked for good");
        std::thread::yield_now();
    }
    assert_eq!(get(&sandbox, "/server").0, 200);
}

#[test]
fn a_new_password_makes_the_old_one_wrong() {
    let sandbox = servers(1).start();
    let robot = sandbox.robot();
    let (user, old) = robot.login();
    robot.set_password("new");
    let of = |password: &str| send(&sandbox, "GET", "/server", (&user, password)).0;
    assert_eq!((of(&old), of("new")), (401, 200));
    robot.remove_login(&user);
    assert_eq!((of("new"), robot.login()), (401, Default::default()));
}

#[test]
fn a_login_sees_its_account_or_its_server() {
    let sandbox = servers(2).start();
    let robot = sandbox.robot();
    let (first, second) = (2_000_001, 2_000_002);
    let foreign = robot.create("foreign");
    robot.edit(foreign, |server| server.account = 1);
    robot.set_login("admin", "one", Sees::Server(first));
    robot.set_login("other", "two", Sees::Account(1));
    let own = robot.login();
    let cases = [
        ((own.0.as_str(), own.1.as_str()), vec![first, second]),
        (("admin", "one"), vec![first]),
        (("other", "two"), vec![foreign]),
    ];
    for (login, expected) in cases {
        let (_, list) = send(&sandbox, "GET", "/server", login);
        let numbers = list.as_array().unwrap().iter();
        let numbers = numbers.map(|one| one["server"]["server_number"].as_u64().unwrap());
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "{login:?}");
        for number in [first, second, foreign] {
            for call in ["server", "reset"] {
                let seen = send(&sandbox, "GET", &format!("/{call}/{number}"), login);
                let status = if expected.contains(&number) { 200 } else { 404 };
                assert_eq!(seen.0, status, "{login:?} {call} {number}");
            }
        }
    }
}

#[test]
fn servers_and_resets_have_a_limit_each() {
    let sandbox = servers(1).start();
    let robot = sandbox.robot();
    robot.set_limit(Limit::Server, 2, Duration::from_secs(77));
    robot.set_limit(Limit::Reset, 1, Duration::from_millis(1500));
    let limited = |max_request: u32, interval: u32| {
        let message = "rate limit exceeded";
        let error = json!({"status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": message,
            "max_request": max_request, "interval": interval});
        (403, json!({ "error": error }))
    };
    assert_eq!(get(&sandbox, "/server").0, 200);
    assert_eq!(wrong(&sandbox).0, 401, "spends nothing");
    assert_eq!(get(&sandbox, "/unknown").0, 404, "spends nothing");
    assert_eq!(get(&sandbox, "/server/1").0, 404);
    assert_eq!(get(&sandbox, "/server"), limited(2, 77));
    assert_eq!(get(&sandbox, "/server/2000001"), limited(2, 77));
    assert_eq!(get(&sandbox, "/reset/2000001").0, 200);
    assert_eq!(get(&sandbox, "/reset"), limited(1, 2));
    robot.set_limit(Limit::Reset, 500, Duration::from_secs(3600));
    assert_eq!(get(&sandbox, "/reset").0, 200);
}

#[test]
fn robot_s_limits_are_the_documented_ones_and_end_after_their_interval() {
    // Robot limits the number of requests in an hour. At this scale, an hour takes 1.08 s. Robot's error answer shows
    // the length of this interval in whole seconds, rounded up to 2.
    let sandbox = servers(1).scale(0.0003).start();
    for (path, limit) in [("/server", 200), ("/reset", 500)] {
        let begun = Instant::now();
        for _ in 0..limit {
            assert_eq!(get(&sandbox, path).0, 200);
        }
        let (status, refusal) = get(&sandbox, path);
        // On a busy computer, these calls can take longer than the interval of the rate limit. Robot then no longer
        // counts the oldest calls and refuses none. The test therefore checks the answer only when the calls were fast
        // enough.
        if begun.elapsed() < Duration::from_secs(1) {
            let error = &refusal["error"];
            assert_eq!((status, &error["max_request"]), (403, &json!(limit)));
            assert_eq!(error["interval"], 2);
        }
        while get(&sandbox, path).0 != 200 {
            assert!(begun.elapsed() < raw::PATIENCE, "{path}: never again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_fault_of_robot_affects_no_other_api() {
    let sandbox = servers(1).start();
    let page = Value::Null;
    let empty = Response { status: 503, ..Response::default() };
    let internal =
        json!({"error": {"status": 500, "code": "INTERNAL_ERROR", "message": "internal"}});
    let limited = json!({"error": {"status": 403, "code": "RATE_LIMIT_EXCEEDED",
        "message": "rate limit exceeded", "max_request": 200, "interval": 3600}});
    let cases = [
        (Effect::robot_maintenance(), (503, page.clone())),
        (Effect::Instead(empty), (503, page.clone())),
        (Effect::robot_forbidden(), (403, page.clone())),
        (Effect::robot_rate_limit(200, 3600), (403, limited)),
        (Effect::robot_error(500, "INTERNAL_ERROR", "internal"), (500, internal)),
        (Effect::Malformed, (200, page)),
    ];
    for (effect, expected) in cases {
        let name = effect.to_string();
        let rule = Rule::new(effect).half(Half::Robot).path("/server").times(1);
        sandbox.faults().add(rule);
        assert_eq!(get(&sandbox, "/server"), expected, "{name}");
    }
    let calls = sandbox.calls().calls();
    assert!(calls.iter().all(|call| call.half == Half::Robot));
    assert_eq!(calls[0].to_string().split(" →").next(), Some("robot basic GET /server"));
    assert_eq!(sandbox.robot().logins().good, 1, "the malformed one alone");
}

#[test]
fn faults_by_a_seed_are_answers_of_robot() {
    let sandbox = servers(1).start();
    sandbox.faults().random(7, 1.0);
    let (user, password) = sandbox.robot().login();
    for number in 0..150 {
        let head = request("GET", &format!("/server/{number}"), (&user, &password));
        // The result is ignored, because some of the simulated faults end the connection without an answer.
        let _ = raw::call(sandbox.address(Half::Robot), &head);
    }
    let calls = sandbox.calls().calls();
    let seen: HashSet<_> = calls.iter().map(|call| call.fault.clone().unwrap()).collect();
    for fault in ["500 instead", "503 instead", "403 instead", "reset", "malformed"] {
        assert!(seen.contains(fault), "{fault} of {seen:?}");
    }
    assert!(calls.iter().all(|call| call.status != Some(429)));
    sandbox.faults().clear();
    assert_eq!(get(&sandbox, "/server").0, 200);
}

#[test]
fn robot_stops_and_starts_again_at_the_same_address() {
    let sandbox = servers(1).start();
    let address = sandbox.address(Half::Robot);
    assert_eq!(sandbox.robot_url(), format!("http://{address}"));
    sandbox.stop(Half::Robot);
    let refused = std::net::TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    sandbox.resume(Half::Robot).unwrap();
    assert_eq!(get(&sandbox, "/server").0, 200);
}
