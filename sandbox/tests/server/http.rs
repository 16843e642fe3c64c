//! Tests of the HTTP server with raw sockets: framing, limits, and the ends of connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::raw::{Echo, PATIENCE, call, connect, get, read_answer, send};
use sandbox::Half;
use sandbox::server::{Config, Limits, Server};

fn server() -> Server {
    Server::start(Config::new(Half::Hetzner, Arc::new(Echo))).unwrap()
}

fn server_with(limits: Limits) -> Server {
    Server::start(Config { limits, ..Config::new(Half::Hetzner, Arc::new(Echo)) }).unwrap()
}

#[test]
fn a_request_arrives_whole_and_decoded() {
    let server = server();
    let request =
        "POST /a%20b?x=1+2&y=%26 HTTP/1.1\r\nHost: a\r\nAccept: b\r\nContent-Length: 4\r\n\r\nbody";
    let answer = call(server.address(), request).unwrap();
    let expected = serde_json::json!({
        "method": "POST", "path": "/a b", "query": [["x", "1 2"], ["y", "&"]], "accept": "b", "body": "body",
        "certificate_bytes": null,
    });
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap(), expected);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let date = answer.header("date").unwrap();
    assert!(
        date.ends_with(" GMT") && date.len() == "Sat, 21 Nov 2026 03:46:00 GMT".len(),
        "{date}"
    );
}

#[test]
fn a_connection_serves_many_requests() {
    let server = server();
    let mut socket = connect(server.address());
    for number in 0..100 {
        send(&mut socket, &format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = read_answer(&mut socket, false).unwrap();
        assert!(answer.text().contains(&format!("\"/{number}\"")), "{}", answer.text());
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let server = server();
    let mut socket = connect(server.address());
    let requests = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
                    POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
                    POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n\
                    \r\nHEAD /4 HTTP/1.1\r\nHost: a\r\n\r\n\
                    DELETE /5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    socket.write_all(requests.as_bytes()).unwrap();
    for (path, body) in [("/1", ""), ("/2", "abc"), ("/3", "x")] {
        let answer: serde_json::Value =
            serde_json::from_slice(&read_answer(&mut socket, false).unwrap().body).unwrap();
        assert_eq!((answer["path"].as_str(), answer["body"].as_str()), (Some(path), Some(body)));
    }
    let head = read_answer(&mut socket, true).unwrap();
    assert_ne!(
        head.header("content-length"),
        Some("0"),
        "HEAD has the length of the body it leaves out"
    );
    let last = read_answer(&mut socket, false).unwrap();
    assert_eq!(last.header("connection"), Some("close"));
    assert_eq!(socket.read(&mut [0]).unwrap(), 0, "closed after Connection: close");
}

#[test]
fn request_bodies_may_be_chunked() {
    let cases = [
        ("0\r\n\r\n", Some("")),
        ("3\r\nabc\r\n0\r\n\r\n", Some("abc")),
        (
            "3;name=value\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            Some("abc0123456789"),
        ),
        ("00003\r\nabc\r\n0\r\n\r\n", Some("abc")),
        ("x\r\nabc\r\n0\r\n\r\n", None),
        ("-3\r\nabc\r\n0\r\n\r\n", None),
        ("3\r\nabcd\r\n0\r\n\r\n", None),
        ("\r\n\r\n", None),
    ];
    let server = server();
    for (body, expected) in cases {
        let request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let answer = call(server.address(), &request).unwrap();
        match expected {
            Some(expected) => {
                assert!(answer.text().contains(&format!("\"body\":\"{expected}\"")), "{body:?}")
            }
            None => assert_eq!(answer.status, 400, "{body:?}"),
        }
    }
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let server = server();
    let mut socket = connect(server.address());
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut socket, false).unwrap().status, 100);
    socket.write_all(b"ok").unwrap();
    assert!(read_answer(&mut socket, false).unwrap().text().contains("\"body\":\"ok\""));
}

#[test]
fn what_is_not_http_is_refused_and_the_connection_ends() {
    let long = "x".repeat(70_000);
    let cases = [
        ("GET /\r\n\r\n".to_owned(), 400),
        ("hello\r\n\r\n".into(), 400),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET servers HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nbroken\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".into(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 505),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".into(), 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n".into(), 400),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab".into(),
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .into(),
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".into(), 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\nContent-Length: 1\r\n\r\na".into(), 417),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999999999999999\r\n\r\n".into(),
            413,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n".into(),
            413,
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 431),
    ];
    let server = server();
    for (request, status) in cases {
        let start = &request[..request.len().min(60)];
        let mut socket = connect(server.address());
        socket.write_all(request.as_bytes()).unwrap();
        let answer =
            read_answer(&mut socket, false).unwrap_or_else(|error| panic!("{start:?}: {error}"));
        assert_eq!(answer.status, status, "{start:?}");
        assert_eq!(answer.header("connection"), Some("close"), "{start:?}");
        assert_eq!(socket.read(&mut [0]).unwrap(), 0, "{start:?}");
    }
}

#[test]
fn http_1_0_and_proxy_requests_are_served() {
    let server = server();
    let answer = call(server.address(), "GET /old HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    let answer = call(
        server.address(),
        "GET http://api.example/v1?a=1 HTTP/1.1\r\nHost: api.example\r\n\r\n",
    )
    .unwrap();
    assert!(answer.text().contains("\"path\":\"/v1\""), "{}", answer.text());
}

#[test]
fn answers_without_a_body_have_no_length() {
    let server = server();
    let answer = get(server.address(), "/nothing").unwrap();
    assert_eq!((answer.status, answer.header("content-length")), (204, None));
}

#[test]
fn an_answer_cannot_carry_headers_of_its_own_making() {
    let server = server();
    let answer = get(server.address(), "/split").unwrap();
    assert_eq!(
        (answer.header("x-echo"), answer.header("x-injected")),
        (Some("a  X-Injected: b"), None)
    );
}

#[test]
fn a_handler_that_panics_is_a_500() {
    let server = server();
    let mut socket = connect(server.address());
    for (path, status) in [("/panic", 500), ("/", 200)] {
        send(&mut socket, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(read_answer(&mut socket, false).unwrap().status, status);
    }
}

#[test]
fn silent_and_slow_clients_are_not_waited_for() {
    let short = Duration::from_millis(50);
    let server = server_with(Limits { idle: short, request: short, ..Limits::default() });
    let cases = [
        ("", None),
        ("GET / HT", Some(408)),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", Some(408)),
    ];
    for (sent, status) in cases {
        let mut socket = connect(server.address());
        socket.write_all(sent.as_bytes()).unwrap();
        let begun = Instant::now();
        let answer = read_answer(&mut socket, false).ok().map(|answer| answer.status);
        assert_eq!(answer, status, "{sent:?}");
        assert!(begun.elapsed() < PATIENCE, "{sent:?}");
    }
}

#[test]
fn more_connections_than_allowed_wait_for_their_turn() {
    let server = server_with(Limits { connections: 2, ..Limits::default() });
    let mut first: Vec<TcpStream> = (0..2).map(|_| connect(server.address())).collect();
    for socket in &mut first {
        send(socket, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        read_answer(socket, false).unwrap();
    }
    let mut third = connect(server.address());
    send(&mut third, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    third.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(read_answer(&mut third, false).is_err(), "nobody serves it yet");
    drop(first);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(read_answer(&mut third, false).unwrap().status, 200);
}

#[test]
fn a_dropped_server_closes_all_connections_at_once() {
    let server = server();
    let address = server.address();
    let mut idle = connect(address);
    send(&mut idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    read_answer(&mut idle, false).unwrap();
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
    assert!(TcpStream::connect(address).is_err());
    let again = Server::start(Config {
        port: address.port(),
        ..Config::new(Half::Hetzner, Arc::new(Echo))
    });
    assert!(again.is_ok(), "the port is free again");
}

#[test]
fn many_connections_get_large_answers_at_the_same_time() {
    let server = server();
    let address = server.address();
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(move || {
                let mut socket = connect(address);
                for size in [0, 1, 100_000] {
                    send(&mut socket, &format!("GET /large/{size} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    assert_eq!(read_answer(&mut socket, false).unwrap().body.len(), size);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                assert_eq!(get(address, "/large/25000000").unwrap().body.len(), 25_000_000)
            });
        }
    });
}
