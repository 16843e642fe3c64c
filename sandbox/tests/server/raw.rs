//! An HTTP client that sends exactly the bytes that a test gives it, and reads the answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sandbox::exchange::{Handler, Request, Response};

/// An answer as the client received it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The longest time that a test waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a request with one write. With two writes, the operating system could hold the second back until the first is
/// acknowledged.
pub fn send(stream: &mut impl Write, request: &str) {
    stream.write_all(request.as_bytes()).unwrap();
}

/// Sends one request on a new connection and returns the answer.
pub fn call(address: SocketAddr, request: &str) -> std::io::Result<Answer> {
    let mut socket = connect(address);
    socket.write_all(request.as_bytes())?;
    read_answer(&mut socket, request.starts_with("HEAD"))
}

pub fn get(address: SocketAddr, path: &str) -> std::io::Result<Answer> {
    call(address, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
}

/// Reads exactly one answer. `without_body` says that the answer has no body, because the request was a HEAD. Fails
/// when the connection ends before the answer is complete.
pub fn read_answer(stream: &mut impl Read, without_body: bool) -> std::io::Result<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(read_exactly(stream, 1)?[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let mut answer = Answer { status, headers, body: Vec::new() };
    if without_body || matches!(status, 100 | 204 | 304) {
        return Ok(answer);
    }
    if answer.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(read_exactly(stream, 1)?[0]);
            }
            let size = usize::from_str_radix(String::from_utf8(line).unwrap().trim(), 16).unwrap();
            answer.body.extend(read_exactly(stream, size)?);
            read_exactly(stream, 2)?;
            if size == 0 {
                return Ok(answer);
            }
        }
    }
    let length = answer.header("content-length").expect("a length").parse().unwrap();
    answer.body = read_exactly(stream, length)?;
    Ok(answer)
}

fn read_exactly(stream: &mut impl Read, bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut read = vec![0; bytes];
    stream.read_exact(&mut read)?;
    Ok(read)
}

/// A handler for tests. It usually answers with the request as JSON. For `/large/N` it answers with N bytes, for
/// `/nothing` with status 204, and for `/split` with a line break in a header. For `/panic` it panics.
pub struct Echo;

impl Handler for Echo {
    fn handle(&self, request: &Request) -> Response {
        if let Some(size) = request.path.strip_prefix("/large/") {
            let body = vec![b'x'; size.parse().unwrap()];
            return Response { status: 200, headers: vec![], body };
        }
        match request.path.as_str() {
            "/nothing" => Response { status: 204, ..Response::default() },
            "/panic" => panic!("asked to"),
            "/split" => {
                Response::json(200, &true.into()).with_header("X-Echo", "a\r\nX-Injected: b")
            }
            path => Response::json(
                200,
                &serde_json::json!({
                    "method": request.method,
                    "path": path,
                    "query": request.query,
                    "accept": request.header("accept"),
                    "body": String::from_utf8_lossy(&request.body),
                    "certificate_bytes": request.client_certificate.as_ref().map(Vec::len),
                }),
            ),
        }
    }
}
