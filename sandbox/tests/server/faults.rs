//! Tests of each simulated fault: what a client receives, and what the call log contains.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::raw::{connect, get, read_answer, send};
use sandbox::Half;
use sandbox::calls::CallLog;
use sandbox::exchange::{Handler, Request, Response};
use sandbox::faults::{Effect, Faults, Rule};
use sandbox::server::{Config, Server};

/// A handler that counts how often it is called.
#[derive(Default)]
struct Counter {
    ran: AtomicUsize,
}

impl Handler for Counter {
    fn handle(&self, _: &Request) -> Response {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Response::json(200, &serde_json::json!({"items": ["a", "b", "c"]}))
    }
}

struct World {
    counter: Arc<Counter>,
    faults: Arc<Faults>,
    calls: Arc<CallLog>,
    server: Server,
}

fn world() -> World {
    let counter = Arc::new(Counter::default());
    let config = Config::new(Half::Hetzner, counter.clone());
    let (faults, calls) = (config.faults.clone(), config.calls.clone());
    World { counter, faults, calls, server: Server::start(config).unwrap() }
}

const WHOLE: &str = r#"{"items":["a","b","c"]}"#;

/// What a client receives: the status and body of an answer, or the kind of an error.
type Seen = Result<(u16, &'static str), ErrorKind>;

#[test]
fn each_effect_is_seen_by_the_client_and_runs_the_handler_or_not() {
    let lost = Err(ErrorKind::UnexpectedEof);
    let short = Duration::from_millis(1);
    let unavailable = r#"{"error":{"code":"maintenance","details":null,"message":"m"}}"#;
    let cases: [(Effect, Seen, usize, Option<u16>); 13] = [
        (Effect::Slow(short), Ok((200, WHOLE)), 1, Some(200)),
        (Effect::SlowAnswer(short), Ok((200, WHOLE)), 1, Some(200)),
        (Effect::hetzner_error(503, "maintenance", "m"), Ok((503, unavailable)), 0, Some(503)),
        (
            Effect::AfterAll(Response { status: 504, ..Response::default() }),
            Ok((504, "")),
            1,
            Some(504),
        ),
        (Effect::other_json(), Ok((200, r#"{"data":[1,2,3],"status":"ok"}"#)), 1, Some(200)),
        (Effect::Malformed, Ok((200, r#"{"items":[""#)), 1, Some(200)),
        (Effect::Reset, Err(ErrorKind::ConnectionReset), 0, None),
        (Effect::AnswerLost, lost, 1, None),
        (Effect::cut_off(), lost, 1, Some(200)),
        (Effect::cut_off_chunked(), lost, 1, Some(200)),
        (Effect::chunked(), Ok((200, WHOLE)), 1, Some(200)),
        (Effect::drip(1, Duration::ZERO), Ok((200, WHOLE)), 1, Some(200)),
        (Effect::before(|_| ()), Ok((200, WHOLE)), 1, Some(200)),
    ];
    for (effect, expected, runs, logged) in cases {
        let world = world();
        let name = effect.to_string();
        world.faults.add(Rule::new(effect).times(1));
        let answer = get(world.server.address(), "/").map(|answer| (answer.status, answer.text()));
        let expected = expected.map(|(status, body)| (status, body.to_owned()));
        assert_eq!(answer.map_err(|error| error.kind()), expected, "{name}");
        assert_eq!(world.counter.ran.load(Ordering::SeqCst), runs, "{name}: runs of the handler");
        let calls = world.calls.calls();
        assert_eq!(calls.len(), 1, "{name}");
        assert_eq!(
            (calls[0].fault.as_deref(), calls[0].status),
            (Some(name.as_str()), logged),
            "{name}"
        );
        assert_eq!(get(world.server.address(), "/").unwrap().text(), WHOLE, "{name}: once only");
    }
}

#[test]
fn refusals_contain_the_fields_on_which_clients_decide() {
    let cases = [
        (Effect::hetzner_rate_limit(), 429, "ratelimit-remaining", "0"),
        (Effect::kubernetes_busy(7), 429, "retry-after", "7"),
        (
            Effect::kubernetes_status(503, "ServiceUnavailable", "m"),
            503,
            "content-type",
            "application/json",
        ),
        (Effect::proxy_not_found(), 404, "content-type", "text/html; charset=utf-8"),
        (Effect::gateway_timeout(), 504, "content-type", "text/html; charset=utf-8"),
        (Effect::html(), 200, "content-type", "text/html; charset=utf-8"),
    ];
    for (effect, status, header, value) in cases {
        let world = world();
        let name = effect.to_string();
        world.faults.add(Rule::new(effect));
        let answer = get(world.server.address(), "/").unwrap();
        assert_eq!((answer.status, answer.header(header)), (status, Some(value)), "{name}");
    }
}

#[test]
fn a_slow_call_takes_its_time() {
    let world = world();
    let delay = Duration::from_millis(60);
    world.faults.add(Rule::new(Effect::Slow(delay)));
    world.faults.add(Rule::new(Effect::SlowAnswer(delay)));
    let begun = Instant::now();
    get(world.server.address(), "/").unwrap();
    assert!(begun.elapsed() >= 2 * delay);
    assert!(world.calls.calls()[0].duration.unwrap() >= 2 * delay);
}

#[test]
fn a_server_that_stops_does_not_wait_for_slow_calls() {
    let world = world();
    world.faults.add(Rule::new(Effect::Slow(Duration::from_secs(3600))));
    let mut socket = connect(world.server.address());
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    while world.calls.mark() == 0 {
        std::thread::yield_now();
    }
    let begun = Instant::now();
    drop(world.server);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn hooks_run_around_the_handler_at_the_chosen_write() {
    let world = world();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |when: &'static str| {
        let (seen, counter) = (seen.clone(), world.counter.clone());
        move |request: &Request| {
            let runs = counter.ran.load(Ordering::SeqCst);
            seen.lock().unwrap().push((when, request.method.clone(), runs));
        }
    };
    world.faults.add(Rule::new(Effect::before(note("before"))).writes().nth(2));
    world.faults.add(Rule::new(Effect::after(note("after"))).writes().nth(2));
    let mut socket = connect(world.server.address());
    for method in ["POST", "GET", "PUT", "DELETE"] {
        send(&mut socket, &format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        read_answer(&mut socket, false).unwrap();
    }
    assert_eq!(
        *seen.lock().unwrap(),
        [("before", "PUT".to_owned(), 2), ("after", "PUT".to_owned(), 3)]
    );
}

#[test]
fn a_hook_that_panics_costs_its_own_connection_only() {
    let world = world();
    world.faults.add(Rule::new(Effect::before(|_| panic!("a test failed"))).nth(1));
    assert!(get(world.server.address(), "/").is_err());
    assert_eq!(get(world.server.address(), "/").unwrap().status, 200);
    let begun = Instant::now();
    drop(world.server);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn the_first_effect_on_an_answer_counts_and_delays_come_with_it() {
    let world = world();
    let instead = |status| Effect::Instead(Response { status, ..Response::default() });
    world.faults.add(Rule::new(Effect::Slow(Duration::from_millis(1))));
    world.faults.add(Rule::new(instead(500)));
    let second = world.faults.add(Rule::new(instead(503)));
    assert_eq!(get(world.server.address(), "/").unwrap().status, 500);
    assert_eq!(world.calls.calls()[0].fault.as_deref(), Some("slow 1ms, 500 instead"));
    assert_eq!(world.faults.hits(second), 1);
    world.faults.clear();
    assert_eq!(get(world.server.address(), "/").unwrap().status, 200);
}

#[test]
fn a_seed_gives_the_same_faults_in_each_run() {
    let faults_of = |seed| {
        let world = world();
        world.faults.random(seed, 0.5);
        for path in ["/a", "/b", "/c", "/d"].repeat(8) {
            let _ = get(world.server.address(), path);
        }
        world.calls.calls().into_iter().map(|call| call.fault).collect::<Vec<_>>()
    };
    assert_eq!(faults_of(42), faults_of(42));
    assert_ne!(faults_of(42), faults_of(43));
}

#[test]
fn the_call_log_names_the_caller_and_no_secret() {
    let world = world();
    world.calls.name_caller("known-token", "ccm");
    let cases = [
        ("", "none"),
        ("Authorization: Bearer known-token\r\n", "ccm"),
        ("Authorization: bearer known-token\r\n", "ccm"),
        ("Authorization: Bearer other-token\r\n", "bearer"),
        ("Authorization: Basic a25vd24tdG9rZW4=\r\n", "basic"),
        ("Authorization: known-token\r\n", "other"),
    ];
    for (header, caller) in cases {
        let mark = world.calls.mark();
        let request =
            format!("POST /a?b=c HTTP/1.1\r\nHost: a\r\n{header}Content-Length: 2\r\n\r\n{{}}");
        crate::raw::call(world.server.address(), &request).unwrap();
        let calls = world.calls.calls_since(mark);
        let [call] = &calls[..] else { panic!("{} calls", calls.len()) };
        assert_eq!(call.caller, caller, "{header:?}");
        assert!(!format!("{call:?} {call}").contains("token"), "{call:?}");
        assert_eq!(
            (call.query("b"), call.header("host"), call.json()),
            (Some("c"), Some("a"), Some(serde_json::json!({})))
        );
        assert!(
            call.to_string()
                .starts_with(&format!("hetzner {caller} POST /a?b=c → 200, 23 bytes, ")),
            "{call}"
        );
    }
    assert_eq!(world.calls.count(|call| call.is_write()), cases.len());
    world.calls.clear();
    assert!(world.calls.calls().is_empty());
}

#[test]
fn a_watcher_sees_every_call_when_it_has_ended() {
    let world = world();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = seen.clone();
    world.calls.watch(move |call| shown.lock().unwrap().push((call.path.clone(), call.status)));
    get(world.server.address(), "/a").unwrap();
    get(world.server.address(), "/b").unwrap();
    assert_eq!(*seen.lock().unwrap(), [("/a".to_owned(), Some(200)), ("/b".to_owned(), Some(200))]);
}
