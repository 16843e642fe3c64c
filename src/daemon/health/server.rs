//! The sockets of the health server. One thread accepts connections, and each connection has a thread.
//!
//! Everybody may connect, so the number of connections, the bytes and the time of each are limited. When all places are
//! taken, a new connection replaces the oldest connection that was silent for too long, has sent an incomplete request,
//! or got its answer. Clients that hold connections open therefore can't lock out a probe, because a probe sends its
//! request as soon as it is connected. The server does not trust the content of a request.

use super::super::stop::Stop;
use crate::provider::clock;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use ureq::http::StatusCode;

/// The wait between two tries to listen on the address, e.g. because another process uses the port.
const BIND_RETRY: Duration = Duration::from_secs(5);

const CONNECTIONS_AT_MOST: usize = 64;
/// The longest time from the start to the end of a connection. This is real time, even in a test that makes time run
/// faster. The kubelet's own time-out for a probe is 1 s by default.
const LIFETIME: Duration = Duration::from_secs(2);
/// How many bytes of a request are read and thrown away after the answer was sent. When a connection is closed before
/// all its bytes were read, TCP resets it, and the client can lose the answer.
const DRAINED_AT_MOST_BYTES: usize = 64 * 1024;
/// The time in which a connection must begin its request. In this time, no new connection can take its place.
const TURN: Duration = Duration::from_millis(20);
/// When all places for connections are taken, the server checks again after this wait whether a place is free. The wait
/// is short, because the thread of a closed connection ends at once.
const PLACE_RETRY: Duration = Duration::from_micros(100);
/// The wait after `accept` has failed. The usual reason is that the process has no free file descriptor.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The stack size of a thread of the health server. The size is small because these threads do little work.
const STACK_BYTES: usize = 128 * 1024;

struct Connection {
    stream: TcpStream,
    /// Whether a new connection may take the place of this connection, because this connection was silent for too long,
    /// has sent an incomplete request, or got its answer.
    had_turn: AtomicBool,
}

/// Starts a thread that listens on the address and answers requests. When the address can't be used, the thread logs
/// this once and keeps trying. The daemon works without the health server until then.
pub(super) fn start(
    address: SocketAddr,
    stop: &'static Stop,
    verdict: impl Fn(&str) -> Option<ProbeAnswer> + Copy + Send + 'static,
) {
    spawn(move || {
        for listener in bind_in_the_end(address, stop) {
            spawn(move || serve(&listener, verdict));
        }
    });
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name("health".into()).stack_size(STACK_BYTES);
    if let Err(error) = thread.spawn(work) {
        log::warn!("the health server can't start a thread: {error}");
    }
}

/// Listens on the address, and returns the listeners. When the address can't be used, the function keeps trying.
/// Returns an empty list when the daemon ends before that.
fn bind_in_the_end(address: SocketAddr, stop: &Stop) -> Vec<TcpListener> {
    let mut is_logged = false;
    loop {
        match bind(address) {
            Ok(listeners) => {
                for address in listeners.iter().flat_map(TcpListener::local_addr) {
                    log::info!("health: listening on {address}");
                }
                return listeners;
            }
            Err(error) if !std::mem::replace(&mut is_logged, true) => {
                let retry_s = BIND_RETRY.as_secs();
                log::warn!("health: {address}: {error}; trying again every {retry_s} s");
            }
            Err(_) => {}
        }
        if stop.wait(BIND_RETRY) {
            return Vec::new();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Vec<TcpListener>> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return Ok(vec![TcpListener::bind(address)?]);
    }
    let port = address.port();
    let both = match TcpListener::bind(address) {
        Ok(both) => both,
        Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(error),
        // An error other than "address in use" means that the machine has no IPv6, so the server listens on IPv4 only.
        Err(_) => return Ok(vec![TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?]),
    };
    let port = both.local_addr()?.port();
    // The first listener accepts only IPv6 when `net.ipv6.bindv6only` is set, so a second listener for IPv4 is opened.
    // When the first listener accepts IPv4 as well, the second can't be opened, and that error is ignored.
    let ipv4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok();
    Ok([Some(both), ipv4].into_iter().flatten().collect())
}

fn serve(
    listener: &TcpListener,
    verdict: impl Fn(&str) -> Option<ProbeAnswer> + Copy + Send + 'static,
) {
    // The open connections, the oldest first. The thread of each connection owns that connection, so the weak reference
    // becomes invalid when the thread ends.
    let mut open: VecDeque<Weak<Connection>> = VecDeque::new();
    loop {
        let connection = match listener.accept() {
            Ok((stream, _)) => Arc::new(Connection { stream, had_turn: AtomicBool::new(false) }),
            Err(error) => {
                log::debug!("health: accept: {error}");
                clock::sleep(clock::from_machine(ACCEPT_RETRY));
                continue;
            }
        };
        loop {
            open.retain(|connection| connection.strong_count() > 0);
            if open.len() < CONNECTIONS_AT_MOST {
                break;
            }
            let mut open = open.iter().filter_map(Weak::upgrade);
            if let Some(oldest) =
                open.find(|connection| connection.had_turn.load(Ordering::Relaxed))
            {
                drop(oldest.stream.shutdown(Shutdown::Both));
            }
            clock::sleep(clock::from_machine(PLACE_RETRY));
        }
        open.push_back(Arc::downgrade(&connection));
        // An error means that the client was too slow or has closed its connection. Such an error is ignored.
        spawn(move || drop(respond(&connection, verdict)));
    }
}

/// Reads one request and answers it.
fn respond(
    connection: &Connection,
    verdict: impl Fn(&str) -> Option<ProbeAnswer>,
) -> io::Result<()> {
    let mut stream = &connection.stream;
    let had_turn = || connection.had_turn.store(true, Ordering::Relaxed);
    let deadline = clock::now() + clock::from_machine(LIFETIME);
    stream.set_read_timeout(Some(TURN))?;
    if stream.peek(&mut [0]).is_err() {
        had_turn();
    }
    let mut received = Vec::new();
    let answer = loop {
        receive(stream, deadline, &mut received)?;
        if let Some(answer) = answer(&received, &verdict) {
            break answer;
        }
        had_turn();
    };
    let mut unsent = answer.as_slice();
    while !unsent.is_empty() {
        // A single write sends only as much as fits into the socket's buffer, and the metrics can be longer.
        stream.set_write_timeout(Some(left(deadline)?))?;
        let count = stream.write(unsent)?;
        unsent = unsent.get(count..).unwrap_or_default();
        had_turn();
    }
    stream.shutdown(Shutdown::Write)?;
    let mut drained_bytes = 0;
    while drained_bytes < DRAINED_AT_MOST_BYTES {
        received.clear();
        receive(stream, deadline, &mut received)?;
        drained_bytes += received.len();
    }
    Ok(())
}

fn receive(mut stream: &TcpStream, deadline: Instant, into: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 1024];
    stream.set_read_timeout(Some(left(deadline)?))?;
    match stream.read(&mut buffer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            into.extend(&buffer[..count]);
            Ok(())
        }
    }
}

/// Returns the time that is left until the deadline. Returns an error when no time is left, because a socket does not
/// accept a time-out of zero.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = clock::machine_until(deadline);
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProbeAnswer {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    /// The body of the answer, which has one or more lines.
    pub(super) text: String,
}

impl ProbeAnswer {
    pub(super) fn new(status: u16, text: impl Into<String>) -> ProbeAnswer {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ProbeAnswer { status, content_type: "text/plain; charset=utf-8", text: text.into() }
    }
}

/// The greatest length of a request's head in bytes. A probe sends about 150 bytes, and Prometheus sends about 500.
const REQUEST_LIMIT_BYTES: usize = 4096;

/// Returns the answer to the bytes that have arrived so far, or `None` while the request is incomplete.
///
/// Only the first request of a connection is answered. Request bodies and further requests are not read.
pub(super) fn answer(
    received: &[u8],
    verdict: impl Fn(&str) -> Option<ProbeAnswer>,
) -> Option<Vec<u8>> {
    // The first byte shows that this is not HTTP but e.g. TLS. The server refuses the request at once.
    if received.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
        return Some(refusal(400));
    }
    let is_whole = contains(received, b"\r\n\r\n") || contains(received, b"\n\n");
    if !is_whole {
        return (received.len() >= REQUEST_LIMIT_BYTES).then(|| refusal(431));
    }
    let Some((method, path)) = request_line(received) else {
        return Some(refusal(400));
    };
    let Some(verdict) = verdict(path) else {
        return Some(refusal(404));
    };
    Some(match method {
        "GET" => response(&verdict, true),
        "HEAD" => response(&verdict, false),
        _ => refusal(405),
    })
}

/// Returns the method and the path of an HTTP/1 request.
fn request_line(received: &[u8]) -> Option<(&str, &str)> {
    let line = received.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return None;
    };
    let path = target.split('?').next()?;
    path.starts_with('/').then_some((method, path))
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

fn refusal(status: u16) -> Vec<u8> {
    let mut verdict = ProbeAnswer::new(status, "");
    verdict.text = format!("{}\n", verdict.status.canonical_reason().unwrap_or_default());
    response(&verdict, true)
}

fn response(verdict: &ProbeAnswer, with_body: bool) -> Vec<u8> {
    let ProbeAnswer { status, content_type, text } = verdict;
    let is_wrong_method = *status == StatusCode::METHOD_NOT_ALLOWED;
    let allow = if is_wrong_method { "Allow: GET, HEAD\r\n" } else { "" };
    // The status is written as its number and its reason phrase, e.g. `404 Not Found`.
    format!(
        "HTTP/1.1 {status}\r\n\
         Content-Type: {content_type}\r\n\
         Content-Length: {}\r\n\
         Cache-Control: no-store\r\n\
         {allow}\
         Connection: close\r\n\
         \r\n\
         {}",
        text.len(),
        if with_body { text } else { "" }
    )
    .into_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The answer is longer than all socket buffers between the server and the client.
    #[test]
    fn a_long_answer_arrives_whole() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let stream = listener.accept().unwrap().0;
        let text = "0123456789abcdef".repeat(1 << 20);
        let expected = text.clone();
        let serving = std::thread::spawn(move || {
            let had_turn = AtomicBool::new(false);
            let connection = Connection { stream, had_turn };
            drop(respond(&connection, |_| Some(ProbeAnswer::new(200, text.as_str()))));
        });
        let mut received = String::new();
        client.read_to_string(&mut received).unwrap();
        drop(client);
        serving.join().unwrap();
        assert!(received.split_once("\r\n\r\n").unwrap().1 == expected);
    }

    fn verdict(path: &str) -> Option<ProbeAnswer> {
        match path {
            "/livez" => Some(ProbeAnswer::new(200, "ok\n")),
            "/readyz" => Some(ProbeAnswer::new(503, "later\n")),
            _ => None,
        }
    }

    /// Returns the status line and the body of the answer to a request. Both are empty while the request is incomplete.
    fn answered(request: &[u8]) -> (String, String) {
        let Some(answer) = answer(request, verdict) else {
            return Default::default();
        };
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[test]
    #[rustfmt::skip] // Each line is a case.
    fn requests_and_their_answers() {
        let cases: [(&[u8], &str, &str); 22] = [
            (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK", "ok\n"),
            (b"GET /livez HTTP/1.0\n\n", "HTTP/1.1 200 OK", "ok\n"),
            (b"GET /livez?verbose HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", "ok\n"),
            (b"GET /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 503 Service Unavailable", "later\n"),
            (b"HEAD /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", ""),
            (b"HEAD /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 503 Service Unavailable", ""),
            (b"POST /livez HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 405 Method Not Allowed", "Method Not Allowed\n"),
            (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found", "Not Found\n"),
            (b"GET /livez/ HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found", "Not Found\n"),
            (b"GET /livez HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", "ok\n"),
            // These requests are incomplete.
            (b"", "", ""),
            (b"G", "", ""),
            (b"GET /livez HTTP/1.1\r\n", "", ""),
            (b"GET /livez HTTP/1.1\r\nHost: x\r\n", "", ""),
            // These requests are not HTTP/1.
            (b"\x16\x03\x01\x02\x00", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"PRI * HTTP/2.0\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET /livez\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET  /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"G\xffT /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
            (b"GET /livez HTTP/1.1 x\r\n\r\n", "HTTP/1.1 400 Bad Request", "Bad Request\n"),
        ];
        for (request, status, body) in cases {
            let expected = (status.to_owned(), body.to_owned());
            assert_eq!(answered(request), expected, "{:?}", String::from_utf8_lossy(request));
        }
    }

    #[test]
    fn a_head_without_end_is_refused_at_the_limit() {
        let mut request = b"GET /livez HTTP/1.1\r\nX: ".to_vec();
        request.resize(REQUEST_LIMIT_BYTES - 1, b'x');
        assert_eq!(answered(&request).0, "");
        request.push(b'x');
        let refused = "HTTP/1.1 431 Request Header Fields Too Large";
        assert_eq!(answered(&request).0, refused);
    }

    #[test]
    fn an_answer_without_body_tells_its_length_all_the_same() {
        let answer = answer(b"HEAD /livez HTTP/1.1\r\n\r\n", verdict).unwrap();
        assert!(contains(&answer, b"\r\nContent-Length: 3\r\n"));
    }
}
