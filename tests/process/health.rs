//! The health server over raw sockets: the answers to probes, and that no client can disturb it.

use crate::common::{
    self, Cluster, Daemon, all_initialised, at_scale, on, socket_cluster, wait_until,
};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LISTENING: &str = "health: listening on ";
/// The name that an answer of `/livez` gives a thread that is stuck.
const CONTROLLER: &str = "cloud-node-controller";

/// A daemon whose waits last that share of their time, and where it answers probes.
fn start(sandbox: &Sandbox, scale: f64, flags: &[&str]) -> (Daemon, SocketAddr) {
    let daemon = Daemon::start(&at_scale(sandbox, scale), flags);
    let address = address(&daemon);
    (daemon, address)
}

fn address(daemon: &Daemon) -> SocketAddr {
    daemon.logs(LISTENING);
    let log = daemon.log();
    let (_, rest) = log.split_once(LISTENING).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// A connection that gives up after a while.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, common::LIMIT).unwrap();
    stream.set_read_timeout(Some(common::LIMIT)).unwrap();
    stream
}

/// All that comes back for these bytes, until the other side is done.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Status and body of a GET.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let answer = exchange(address, request.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn ok() -> (u16, String) {
    (200, "ok\n".to_owned())
}

#[test]
fn probes_of_a_working_daemon_succeed() {
    let sandbox = socket_cluster(1);
    let (_daemon, address) = start(&sandbox, 1.0, &[]);
    assert_eq!(get(address, "/livez"), ok());
    assert_eq!(get(address, "/healthz"), ok());
    wait_until("readiness", || get(address, "/readyz") == ok());
    assert_eq!(get(address, "/readyz?verbose"), ok());
    for path in ["/metrics/", "/", "/livez/", "/debug/pprof"] {
        assert_eq!(get(address, path).0, 404, "{path}");
    }
}

#[test]
fn the_health_server_answers_get_and_head_only() {
    let sandbox = socket_cluster(0);
    let (_daemon, address) = start(&sandbox, 1.0, &[]);
    let head = exchange(address, b"HEAD /livez HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Length: 3\r\n") && head.ends_with("\r\n\r\n"));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        let request = format!("{method} /livez HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
        let answer = exchange(address, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
    }
}

#[test]
fn an_invalid_request_is_refused_and_the_server_goes_on() {
    let sandbox = socket_cluster(0);
    let (_daemon, address) = start(&sandbox, 1.0, &[]);
    let endless = [b"GET /livez HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 10_000]].concat();
    let cases: [(&str, &[u8], &str); 5] = [
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00", "HTTP/1.1 400 "),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400 "),
        ("no path", b"GET livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        ("zeros", &[0; 5000], "HTTP/1.1 400 "),
        ("a head without end", &endless, "HTTP/1.1 431 "),
    ];
    for (name, bytes, expected) in cases {
        let answer = exchange(address, bytes);
        assert!(answer.starts_with(expected), "{name}: {answer}");
    }
    // Gone before, or in the middle of, its request.
    drop(connect(address));
    connect(address).write_all(b"GET /li").unwrap();
    assert_eq!(get(address, "/livez"), ok());
}

#[test]
fn a_slow_client_is_disconnected_and_a_request_in_pieces_is_served() {
    let sandbox = socket_cluster(0);
    let (_daemon, address) = start(&sandbox, 1.0, &[]);
    let mut pieces = connect(address);
    for piece in ["GET /liv", "ez HTTP/1.1\r", "\nHost: x\r\n\r", "\n"] {
        pieces.write_all(piece.as_bytes()).unwrap();
        pieces.flush().unwrap();
        assert_eq!(get(address, "/livez"), ok(), "others do not wait for it");
    }
    let mut answer = String::new();
    pieces.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");

    let mut silent = connect(address);
    let mut dripping = connect(address);
    let begun = Instant::now();
    wait_until("the end of the dripping client", || dripping.write_all(b"G").is_err());
    assert!(begun.elapsed() >= Duration::from_secs(1), "it had some time");
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "closed, no answer");
}

#[test]
fn many_connections_keep_no_probe_out_and_cost_little() {
    let sandbox = socket_cluster(1);
    let (daemon, address) = start(&sandbox, 1.0, &[]);
    sandbox.wait_for_nodes();
    let (before_kb, _) = daemon.memory_kb();
    // There are more connections than the server keeps, and all of them are silent.
    let held: Vec<TcpStream> = (0..200).map(|_| connect(address)).collect();
    let mut probe = connect(address);
    assert_eq!(get(address, "/livez"), ok());
    // The connection was made before the last one, and its request is sent afterwards.
    probe.write_all(b"GET /livez HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    probe.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    drop(held);
    // Clients that come again and again, with as much as is taken of them.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut stream = connect(address);
                    // The server may have closed the connection already.
                    let _ = stream.write_all(&[b'G'; 4000]);
                }
            });
        }
        for _ in 0..50 {
            let begun = Instant::now();
            assert_eq!(get(address, "/livez"), ok());
            assert!(begun.elapsed() < Duration::from_secs(5));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (after_kb, _) = daemon.memory_kb();
    assert!(after_kb < before_kb + 2048, "{before_kb} kB, then {after_kb} kB");
}

/// The time scale is a hundredth. The limit of silence is 0.6 s, and the client waits 2 s for an answer.
#[test]
fn a_stuck_controller_fails_liveness_with_its_name_until_it_continues() {
    let sandbox = socket_cluster(1);
    let (_daemon, address) = start(&sandbox, 0.01, &["--controllers=cloud-node"]);
    sandbox.wait_for_nodes();
    wait_until("life", || get(address, "/livez") == ok());
    let held = Effect::Slow(common::LIMIT * 2);
    let rule = sandbox.fault(on("/api/v1/nodes", held));
    let mut told = String::new();
    wait_until("its failure", || {
        let (status, body) = get(address, "/livez");
        told = body;
        status == 500
    });
    assert!(told.starts_with(&format!("{CONTROLLER}: no progress for ")), "{told}");
    assert_eq!(get(address, "/healthz").0, 500);
    assert_eq!(get(address, "/readyz"), ok(), "once ready, always ready");
    sandbox.faults().remove(rule);
    wait_until("its healing", || get(address, "/livez") == ok());
}

/// The time scale is a twentieth. The limit of silence is 3 s, and two dozen writes take longer than that.
#[test]
fn a_long_tick_does_not_fail_liveness() {
    let sandbox = socket_cluster(12);
    let slow = Effect::Slow(Duration::from_millis(200));
    sandbox.fault(Rule::new(slow).half(Half::Kubernetes).writes());
    // Under load, a slow renewal would end the daemon, so there is no Lease.
    let one_by_one = &["--concurrent-node-syncs=1", "--leader-elect=false"];
    let (_daemon, address) = start(&sandbox, 0.05, one_by_one);
    let begun = Instant::now();
    wait_until("initialised nodes", || {
        assert_eq!(get(address, "/livez"), ok());
        all_initialised(&sandbox)
    });
    assert!(begun.elapsed() > Duration::from_secs(4), "it was a long tick");
}

/// The time scale is a hundredth. The limit of silence is 0.6 s, and two ticks are 36 s apart.
#[test]
fn a_long_pause_between_ticks_does_not_fail_liveness() {
    let sandbox = socket_cluster(1);
    let (_daemon, address) = start(&sandbox, 0.01, &["--node-sync-interval=1h"]);
    wait_until("the event, which is the tick's last", || {
        !common::events(&sandbox, "worker-1").is_empty()
    });
    wait_until("the end of the tick", || get(address, "/livez") == ok());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1200) {
        assert_eq!(get(address, "/livez"), ok());
    }
}

#[test]
fn a_daemon_is_not_ready_until_both_apis_were_reached() {
    for (half, told) in [
        (Half::Kubernetes, "ccm has not reached the Kubernetes API yet\n"),
        (Half::Hetzner, "ccm has not reached the cloud API yet\n"),
    ] {
        let sandbox = socket_cluster(1);
        sandbox.stop(half);
        let (daemon, address) = start(&sandbox, 0.02, &[]);
        daemon.logs("trying again");
        let (status, body) = get(address, "/readyz");
        assert_eq!(status, 503, "{half}");
        assert!(body.contains(told), "{half}: {body}");
        sandbox.resume(half).unwrap();
        wait_until("readiness", || get(address, "/readyz") == ok());
        assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
    }
}

#[test]
fn an_api_that_refuses_or_talks_nonsense_is_not_reached() {
    for (name, effect) in [
        ("an error", Effect::hetzner_error(503, "maintenance", "later")),
        ("a web page", Effect::html()),
        ("the budget", Effect::hetzner_rate_limit()),
    ] {
        let sandbox = socket_cluster(1);
        let rule = Rule::new(effect).half(Half::Hetzner);
        sandbox.fault(rule);
        let (daemon, address) = start(&sandbox, 0.02, &[]);
        daemon.logs("WARN");
        let expected = (503, "ccm has not reached the cloud API yet\n".to_owned());
        assert_eq!(get(address, "/readyz"), expected, "{name}");
    }
}

#[test]
fn a_taken_port_is_reported_once_and_used_as_soon_as_it_is_free() {
    let sandbox = socket_cluster(1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let flag = format!("--metrics-address={address}");
    let daemon = sandbox.daemon(&[&flag]);
    daemon.logs(&format!("the health server can't listen on {address}: Address "));
    sandbox.wait_for_nodes();
    let polls = || sandbox.calls().count(|call| call.path == "/api/v1/nodes");
    // The daemon tries to listen with each tick.
    let mark = polls();
    wait_until("some more tries", || polls() > mark + 5);
    drop(taken);
    daemon.logs(LISTENING);
    assert_eq!(get(address, "/readyz"), ok());
    daemon.logged("already in use", 1);
}

#[test]
fn a_port_alone_is_every_address_of_the_machine() {
    let sandbox = socket_cluster(0);
    let daemon = sandbox.daemon(&["--metrics-address=:0"]);
    let port = address(&daemon).port();
    assert_eq!(get(SocketAddr::from(([127, 0, 0, 1], port)), "/livez"), ok());
    // A machine without IPv6 has no address to try.
    if TcpListener::bind("[::1]:0").is_ok() {
        let loopback = SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), port);
        assert_eq!(get(loopback, "/livez"), ok());
    }
}

#[test]
fn no_health_server_is_started_without_an_address_or_for_one_pass() {
    let sandbox = socket_cluster(1);
    let once = sandbox.ccm(&["run", "--once"]).with_code(0);
    assert!(!once.stderr.contains("health"), "{once:?}");
    let daemon = sandbox.daemon(&["--metrics-address="]);
    wait_until("a poll of the cluster", || {
        sandbox.calls().count(|call| call.path == "/api/v1/nodes") > 2
    });
    assert!(!daemon.log().contains("health"), "{}", daemon.log());
}
