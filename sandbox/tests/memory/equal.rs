//! Checks that a request gets the same bytes in memory as over a socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use sandbox::exchange::{Handler, Response};
use sandbox::faults::{Delivery, Effect, Rule};
use sandbox::server::{self, Config, Ending, Server};
use sandbox::{Half, Sandbox};

use crate::calls::request;

/// Sends a request over a socket, and returns everything that the API sends until the connection ends. Returns `None`
/// when the connection is reset.
fn by_socket(address: SocketAddr, request: &[u8]) -> Option<Vec<u8>> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).ok().map(|_| answer)
}

/// Returns an answer without the headers that differ from one answer to the next.
fn steady(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let counts = |line: &&str| {
        ["Date:", "X-Correlation-Id:", "RateLimit-"].iter().all(|name| !line.starts_with(name))
    };
    text.split("\r\n").filter(counts).collect::<Vec<_>>().join("\n")
}

/// Returns two equal configurations of an HTTP server for one of the two simulated APIs, which `half` names. One is
/// used in memory, and the other over a socket. When `effect` is given, a simulated fault with this effect applies to
/// every call.
fn pair(half: Half, handler: &Arc<impl Handler + 'static>, effect: Option<Effect>) -> [Config; 2] {
    let config = || {
        let config = Config::new(half, handler.clone());
        if let Some(effect) = effect.clone() {
            config.faults.add(Rule::new(effect));
        }
        config
    };
    [config(), config()]
}

#[test]
fn calls_are_answered_the_same_in_memory_and_over_sockets() {
    let sandbox = Sandbox::builder().nodes(2).services(1).heartbeats(false).start();
    let project = sandbox.projects().token.as_str();
    let ccm = sandbox.account("ccm").unwrap().token;
    let table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let close = "Connection: close\r\n";
    let cases = [
        (Half::Hetzner, "GET", "/v1/servers?per_page=1", project, ""),
        (Half::Hetzner, "HEAD", "/v1/servers", project, ""),
        (Half::Hetzner, "GET", "http://a.example/v1/locations", project, ""),
        (Half::Hetzner, "GET", "/v1/servers", "wrong", ""),
        (Half::Hetzner, "get", "/v1/servers", project, ""),
        (Half::Hetzner, "GET", "/%zz", project, ""),
        (Half::Kubernetes, "GET", "/api/v1/nodes", ccm.as_str(), ""),
        (Half::Kubernetes, "GET", "/api/v1/services?limit=1", ccm.as_str(), table),
        (Half::Kubernetes, "GET", "/api/v1/secrets", ccm.as_str(), ""),
    ];
    for (half, method, target, token, headers) in cases {
        let [socket, memory] = match half {
            Half::Hetzner => pair(half, sandbox.cloud(), None),
            _ => pair(half, sandbox.cluster(), None),
        };
        let server = Server::start(socket).unwrap();
        let request = request(method, target, token, &format!("{headers}{close}"), "");
        let read = by_socket(server.address(), &request).unwrap();
        let exchanged = server::exchange(&memory, &request, &|_| {});
        assert_eq!(steady(&exchanged.answer), steady(&read), "{method} {target}");
        assert_eq!(exchanged.ending, Ending::Close);
    }
}

#[test]
fn faults_and_deliveries_are_the_same_in_memory_and_over_sockets() {
    const WAIT: Duration = Duration::from_millis(1);
    let drip = Delivery::Drip { bytes: 50, pause: WAIT };
    let effects = [
        Effect::Deliver(Delivery::Whole),
        Effect::chunked(),
        Effect::Deliver(drip),
        Effect::cut_off(),
        Effect::cut_off_chunked(),
        Effect::Malformed,
        Effect::Reset,
        Effect::AnswerLost,
        Effect::Slow(WAIT),
        Effect::SlowAnswer(WAIT),
        Effect::gateway_timeout(),
        Effect::Instead(Response::default()),
    ];
    let sandbox = Sandbox::builder().in_memory().start();
    let token = sandbox.account("admin").unwrap().token;
    for effect in effects {
        let [socket, memory] = pair(Half::Kubernetes, sandbox.cluster(), Some(effect.clone()));
        let (by_server, in_memory) = (socket.calls.clone(), memory.calls.clone());
        let server = Server::start(socket).unwrap();
        let request = request("GET", "/api/v1/nodes", &token, "Connection: close\r\n", "");
        let read = by_socket(server.address(), &request);
        let waited = std::cell::Cell::new(0);
        let exchanged = server::exchange(&memory, &request, &|_| waited.set(waited.get() + 1));
        let ending = match read {
            Some(_) => Ending::Close,
            None => Ending::Reset,
        };
        assert_eq!(exchanged.ending, ending, "{effect}");
        let read = read.unwrap_or_default();
        assert_eq!(steady(&exchanged.answer), steady(&read), "{effect}");
        let waits = match effect {
            Effect::Deliver(Delivery::Drip { .. }) => exchanged.answer.len().div_ceil(50),
            Effect::Slow(_) | Effect::SlowAnswer(_) => 1,
            _ => 0,
        };
        assert_eq!(waited.get(), waits, "{effect}");
        drop(server);
        let logged = |log: &sandbox::calls::CallLog| {
            let call = log.calls().remove(0);
            (call.status, call.answer_bytes, call.fault, call.path)
        };
        assert_eq!(logged(&in_memory), logged(&by_server), "{effect}");
    }
}

#[test]
fn bodies_arrive_whole_or_not_at_all() {
    let sandbox = Sandbox::builder().in_memory().start();
    let token = &sandbox.projects().token;
    let head =
        format!("POST /v1/ssh_keys HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"nam\r\n6\r\ne\":\"\"}\r\n0\r\n\r\n";
    let answered = |rest: &str| {
        let request = format!("{head}{rest}");
        let exchanged = sandbox.exchange(Half::Hetzner, request.as_bytes(), &|_| {});
        let answer = String::from_utf8(exchanged.answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        (status, exchanged.ending)
    };
    let body = "Content-Length: 11\r\n\r\n{\"name\":\"\"}";
    assert_eq!(answered(body), ("422".into(), Ending::KeepAlive));
    assert_eq!(answered(chunked), ("422".into(), Ending::KeepAlive));
    assert_eq!(answered(&body[..30]), (String::new(), Ending::Close));
    assert_eq!(answered("Expect: tea\r\n\r\n"), ("417".into(), Ending::Close));
}

#[test]
fn a_half_that_is_stopped_resets() {
    let sandbox = Sandbox::builder().in_memory().start();
    let request = request("GET", "/v1/servers", &sandbox.projects().token, "", "");
    let answered = || {
        let exchanged = sandbox.exchange(Half::Hetzner, &request, &|_| {});
        (exchanged.ending, exchanged.answer.is_empty())
    };
    assert_eq!(answered(), (Ending::KeepAlive, false));
    sandbox.stop(Half::Hetzner);
    assert!(!sandbox.is_served(Half::Hetzner) && sandbox.is_served(Half::Kubernetes));
    assert_eq!(answered(), (Ending::Reset, true));
    sandbox.resume(Half::Hetzner).unwrap();
    assert_eq!(answered(), (Ending::KeepAlive, false));
}
