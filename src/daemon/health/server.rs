//! The sockets of the health server. One thread accepts connections, and each connection then gets a thread of its own.
//!
//! Anybody can connect, so the number of connections is limited, and so are the bytes and the time of each connection.
//! When there are too many connections, a new one replaces an old one. Only a connection that has had its chance is
//! replaced: it was silent for too long, has sent an incomplete request, or has got an answer. Clients that hold
//! connections open can therefore not lock out a probe, which sends its whole request at once. The content of a request
//! is not trusted.

use super::super::stop::Stop;
use crate::provider::clock;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use ureq::http::StatusCode;

/// How long the server waits before it tries again to listen on its address. Another process may use the port for some
/// time.
const BIND_RETRY: Duration = Duration::from_secs(5);

const CONNECTIONS_AT_MOST: usize = 64;
/// The longest time from the start to the end of a connection. The kubelet waits 1 s for the answer to a probe by
/// default. This is real time, even in tests in which the program's clock runs faster.
const LIFETIME: Duration = Duration::from_secs(2);
/// How many bytes of a request are read and ignored after the answer was sent. If the connection were closed while
/// bytes are unread, TCP would reset it, and the client could lose the answer.
const DRAINED_AT_MOST_BYTES: usize = 64 * 1024;
/// How long a new connection may send nothing before another connection can replace it, when too many connections are
/// open. A probe sends its request within this time.
const TURN: Duration = Duration::from_millis(20);
/// When the greatest number of connections is open, a new connection replaces an older one, which is then closed. This
/// is the time between two checks whether the older one was closed. It is short, because closing takes hardly any time.
const PLACE_RETRY: Duration = Duration::from_micros(100);
/// How long the server waits after the system call `accept` has failed. Usually the process has no free file descriptor
/// then.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The stack size of the threads of the health server. It is small, because these threads need little memory.
const STACK_BYTES: usize = 128 * 1024;

struct Connection {
    stream: TcpStream,
    /// Whether a newer connection is allowed to replace this one when too many are open. This is so when this
    /// connection was silent for too long, has sent an incomplete request, or has got an answer.
    had_turn: AtomicBool,
}

/// Starts a thread that listens on the address and answers requests. When the address is not free, the thread logs this
/// once and tries again and again. Until it succeeds, the daemon works without a health server.
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

/// Opens the listeners for the address. When this fails, tries again and again. Returns an empty list when the daemon
/// ends before the listeners were opened.
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
                log::warn!(
                    "the health server can't listen on {address}: {error}; ccm tries again every {retry_s} s"
                );
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
        // The listener for IPv6 could not be opened. The reason is not that another process uses the port, so this
        // machine has no IPv6. The server then listens on IPv4 only.
        Err(_) => return Ok(vec![TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?]),
    };
    let port = both.local_addr()?.port();
    // A second listener for IPv4 is needed when the first one accepts only IPv6, because `net.ipv6.bindv6only` is set.
    // When the first listener accepts IPv4 as well, the second can't be opened, and the error is ignored.
    let ipv4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok();
    Ok([Some(both), ipv4].into_iter().flatten().collect())
}

fn serve(
    listener: &TcpListener,
    verdict: impl Fn(&str) -> Option<ProbeAnswer> + Copy + Send + 'static,
) {
    // The open connections, the oldest first. Only the thread of a connection owns it. When the thread ends, the
    // connection is dropped, and its weak reference in this list shows this.
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
        // The error of a connection is ignored. It means that the client was too slow or has closed the connection.
        spawn(move || drop(respond(&connection, verdict)));
    }
}

/// Reads one request from the connection, and sends the answer.
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
        // One write sends only what fits into the buffer of the socket, so a longer answer, e.g. the metrics, needs
        // several writes. Each of them may take the time that is left until the deadline of the whole answer.
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

/// Returns the time that is left until the deadline. Returns an error when no time is left, because zero is no valid
/// timeout of a socket.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = clock::machine_until(deadline);
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProbeAnswer {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    /// The body of the answer, in one or more lines.
    pub(super) text: String,
}

impl ProbeAnswer {
    pub(super) fn new(status: u16, text: impl Into<String>) -> ProbeAnswer {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ProbeAnswer { status, content_type: "text/plain; charset=utf-8", text: text.into() }
    }
}

/// The greatest length of the head of a request in bytes. The head that the kubelet sends has about 150 bytes, and that
/// of Prometheus has about 500.
const REQUEST_LIMIT_BYTES: usize = 4096;

/// Returns the answer to a request of which these bytes have arrived so far. Returns `None` when the request is not
/// complete yet.
///
/// Only the first request of a connection is answered. The body of a request and further requests are ignored.
pub(super) fn answer(
    received: &[u8],
    verdict: impl Fn(&str) -> Option<ProbeAnswer>,
) -> Option<Vec<u8>> {
    // An HTTP request begins with an upper case letter. Anything else, e.g. the start of a TLS connection, is refused
    // at once.
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

/// Returns the method and the path of an HTTP/1 request, or `None` when the request is of another protocol or
/// malformed.
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
    // `{status}` is printed as the number with its usual text, e.g. `404 Not Found`.
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

    /// The answer in this test is longer than the buffers of both sockets, so it needs several writes.
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

    /// Returns the first line and the body of the answer to a request. Both are empty when the request is not complete.
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
            // The requests of the following cases are not complete. They get no answer yet, so the two expected texts
            // are empty.
            (b"", "", ""),
            (b"G", "", ""),
            (b"GET /livez HTTP/1.1\r\n", "", ""),
            (b"GET /livez HTTP/1.1\r\nHost: x\r\n", "", ""),
            // The requests of the following cases are not valid HTTP/1. They get the status 400.
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
