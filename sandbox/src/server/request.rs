//! Reads one HTTP request from a connection. It supports the parts of RFC 9112 that clients of the simulated APIs use,
//! and answers everything else with an error status.

use std::io;
use std::time::Instant;

use super::Limits;
use super::bytes::Bytes;
use crate::exchange::Request;

/// A request, and whether the client wants to keep the connection open after it.
pub(super) struct Received {
    pub request: Request,
    pub keep_alive: bool,
}

/// The reason why the server could not read a request: the client no longer waits for an answer, or the request is
/// wrong and gets an error answer.
pub(super) enum Refusal {
    /// The client has closed the connection, perhaps in the middle of a request, or has not begun a new request for too
    /// long. No answer is sent, because no client waits for it.
    Gone,
    /// The client gets an answer with this status and with this sentence as its body. The connection is closed
    /// afterwards.
    Answer(u16, &'static str),
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Refusal {
        Refusal::Gone
    }
}

/// Reads the next request of a connection. The limit `idle` applies to the wait for its first byte, and the limit
/// `request` to the rest.
pub(super) fn receive(stream: &mut impl Bytes, limits: &Limits) -> Result<Received, Refusal> {
    if stream.buffered().is_empty() && stream.fill(Instant::now() + limits.idle)? == 0 {
        return Err(Refusal::Gone);
    }
    let deadline = Instant::now() + limits.request;
    let head = read_head(stream, limits, deadline)?;
    let mut received = parse_head(&head)?;
    received.request.body = read_body(stream, &received.request, limits, deadline)?;
    received.request.client_certificate = stream.client_certificate().map(<[u8]>::to_vec);
    Ok(received)
}

/// Waits until `deadline` for more bytes of a request whose first bytes have already arrived.
fn fill(stream: &mut impl Bytes, deadline: Instant) -> Result<(), Refusal> {
    match stream.fill(deadline) {
        Ok(0) => Err(Refusal::Gone),
        Ok(_) => Ok(()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) =>
        {
            Err(Refusal::Answer(408, "the request took too long to arrive"))
        }
        Err(_) => Err(Refusal::Gone),
    }
}

fn read_head(
    stream: &mut impl Bytes,
    limits: &Limits,
    deadline: Instant,
) -> Result<String, Refusal> {
    // RFC 9112, section 2.2, says that a server skips empty lines before a request line.
    loop {
        while stream.buffered().starts_with(b"\r\n") {
            stream.consume(2);
        }
        if let Some(end) = find(stream.buffered(), b"\r\n\r\n") {
            if end > limits.head_bytes {
                break;
            }
            // Header values are bytes of any encoding. Each byte is read as a Latin-1 character, as browsers do.
            let head = stream.buffered()[..end].iter().map(|byte| char::from(*byte)).collect();
            stream.consume(end + 4);
            return Ok(head);
        }
        if stream.buffered().len() > limits.head_bytes {
            break;
        }
        fill(stream, deadline)?;
    }
    Err(Refusal::Answer(431, "the request's head is too large"))
}

fn parse_head(head: &str) -> Result<Received, Refusal> {
    let bad = |what| Refusal::Answer(400, what);
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else {
        return Err(bad("malformed request line"));
    };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
        return Err(bad("malformed method"));
    }
    let persistent = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ if version.starts_with("HTTP/") => {
            return Err(Refusal::Answer(505, "only HTTP/1.1 is spoken here"));
        }
        _ => return Err(bad("malformed request line")),
    };
    let (path, query) = parse_target(target).ok_or_else(|| bad("malformed request target"))?;
    let headers =
        lines.map(parse_header).collect::<Option<_>>().ok_or_else(|| bad("malformed header"))?;
    let request = Request { method: method.into(), path, query, headers, ..Request::default() };
    if persistent && request.header("host").is_none() {
        return Err(bad("missing header Host"));
    }
    let connection = request.header("connection").unwrap_or_default().to_ascii_lowercase();
    let keep_alive = match persistent {
        true => !connection.split(',').any(|word| word.trim() == "close"),
        false => false,
    };
    Ok(Received { request, keep_alive })
}

/// Parses `Name: value`, and returns the name in lower case. Returns `None` for a malformed line. Header lines that
/// continue on the next line, and a space before the colon, count as malformed, because both can be used to smuggle a
/// second request past a proxy.
fn parse_header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let value = value.trim_matches([' ', '\t']);
    let valid = !name.is_empty() && name.bytes().all(token) && !value.contains(['\r', '\n', '\0']);
    valid.then(|| (name.to_ascii_lowercase(), value.to_owned()))
}

/// Splits `/path?query` into the path and the parameters of the query. Also accepts `http://host/path?query`, which
/// clients send to a proxy. Returns `None` for a malformed target.
fn parse_target(target: &str) -> Option<(String, Vec<(String, String)>)> {
    let origin = match target.split_once("://") {
        Some(("http" | "https", rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        _ => target,
    };
    if !origin.starts_with('/') || origin.contains('#') {
        return None;
    }
    let (path, query) = origin.split_once('?').unwrap_or((origin, ""));
    let parameters = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name, true)?, decode(value, true)?))
    });
    Some((decode(path, false)?, parameters.collect::<Option<_>>()?))
}

/// Decodes percent-encoded text. When `plus_is_blank` is true, as in a query, `+` becomes a space. Returns `None` when
/// an escape is invalid or the result is not UTF-8.
fn decode(text: &str, plus_is_blank: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
                u8::try_from(value).ok()?
            }
            b'+' if plus_is_blank => b' ',
            0x21..=0x7e => byte,
            _ => return None,
        });
    }
    String::from_utf8(bytes).ok()
}

enum Length {
    Known(usize),
    Chunked,
}

fn read_body(
    stream: &mut impl Bytes,
    request: &Request,
    limits: &Limits,
    deadline: Instant,
) -> Result<Vec<u8>, Refusal> {
    let length = body_length(request)?;
    if matches!(length, Length::Known(bytes) if bytes > limits.body_bytes) {
        return Err(TOO_LARGE);
    }
    match request.header("expect") {
        Some(expected) if expected.eq_ignore_ascii_case("100-continue") => {
            let waits = !matches!(length, Length::Known(0)) && stream.buffered().is_empty();
            if waits {
                stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
        }
        Some(_) => return Err(Refusal::Answer(417, "only 100-continue can be expected")),
        None => {}
    }
    match length {
        Length::Known(bytes) => take(stream, bytes, deadline),
        Length::Chunked => read_chunks(stream, limits, deadline),
    }
}

const TOO_LARGE: Refusal = Refusal::Answer(413, "the request's body is too large");

fn body_length(request: &Request) -> Result<Length, Refusal> {
    let values = |name: &str| -> Vec<&str> {
        let named = request.headers.iter().filter(|(header, _)| header == name);
        named.flat_map(|(_, value)| value.split(',')).map(str::trim).collect()
    };
    let (codings, lengths) = (values("transfer-encoding"), values("content-length"));
    match (&codings[..], &lengths[..]) {
        ([], []) => Ok(Length::Known(0)),
        ([], [length, others @ ..]) => {
            let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            if !digits || others.iter().any(|other| other != length) {
                return Err(Refusal::Answer(400, "malformed Content-Length"));
            }
            // A length that is too large for a `usize` is still a valid number. The request is refused because its body
            // is too large, and not because the header is malformed.
            Ok(Length::Known(length.parse().unwrap_or(usize::MAX)))
        }
        ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Length::Chunked),
        (_, []) => Err(Refusal::Answer(501, "only the transfer coding chunked is known")),
        // RFC 9112, section 6.1: a request with both `Content-Length` and `Transfer-Encoding` is broken, or is an
        // attempt to smuggle a second request past a proxy.
        _ => Err(Refusal::Answer(400, "both Content-Length and Transfer-Encoding")),
    }
}

fn read_chunks(
    stream: &mut impl Bytes,
    limits: &Limits,
    deadline: Instant,
) -> Result<Vec<u8>, Refusal> {
    let bad = || Refusal::Answer(400, "malformed chunk");
    let mut body = Vec::new();
    loop {
        let line = read_line(stream, limits.head_bytes, deadline)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let size = usize::from_str_radix(digits, 16).map_err(|_| TOO_LARGE)?;
        if size == 0 {
            break;
        }
        if size > limits.body_bytes - body.len() {
            return Err(TOO_LARGE);
        }
        body.extend(take(stream, size, deadline)?);
        if take(stream, 2, deadline)? != b"\r\n" {
            return Err(bad());
        }
    }
    let mut trailer_bytes = 0;
    loop {
        let line = read_line(stream, limits.head_bytes, deadline)?;
        trailer_bytes += line.len();
        match line.is_empty() {
            true => return Ok(body),
            false if trailer_bytes > limits.head_bytes => {
                return Err(Refusal::Answer(431, "the request's trailer is too large"));
            }
            false => {}
        }
    }
}

fn read_line(
    stream: &mut impl Bytes,
    limit_bytes: usize,
    deadline: Instant,
) -> Result<String, Refusal> {
    loop {
        if let Some(end) = find(stream.buffered(), b"\r\n") {
            let line = stream.buffered()[..end].iter().map(|byte| char::from(*byte)).collect();
            stream.consume(end + 2);
            return Ok(line);
        }
        if stream.buffered().len() > limit_bytes {
            return Err(Refusal::Answer(400, "a line of the body is too long"));
        }
        fill(stream, deadline)?;
    }
}

fn take(stream: &mut impl Bytes, bytes: usize, deadline: Instant) -> Result<Vec<u8>, Refusal> {
    let mut taken = Vec::with_capacity(bytes);
    while taken.len() < bytes {
        if stream.buffered().is_empty() {
            fill(stream, deadline)?;
        }
        let part = &stream.buffered()[..stream.buffered().len().min(bytes - taken.len())];
        taken.extend_from_slice(part);
        let part_bytes = part.len();
        stream.consume(part_bytes);
    }
    Ok(taken)
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_split_and_decoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let cases = [
            ("/", Some(("/", vec![]))),
            (
                "/v1/servers?page=2&per_page=50",
                Some(("/v1/servers", vec![pair("page", "2"), pair("per_page", "50")])),
            ),
            ("/a%20b/%c3%a4?x=1+1&y=1%2B1&flag", {
                Some(("/a b/ä", vec![pair("x", "1 1"), pair("y", "1+1"), pair("flag", "")]))
            }),
            ("/a+b?&", Some(("/a+b", vec![]))),
            ("http://proxied.example/v1?a=b=c", Some(("/v1", vec![pair("a", "b=c")]))),
            ("http://proxied.example", Some(("/", vec![]))),
            ("*", None),
            ("servers", None),
            ("/%", None),
            ("/%f", None),
            ("/%zz", None),
            ("/%ff", None),
            ("/a#b", None),
            ("/\u{e4}", None),
        ];
        for (target, expected) in cases {
            let expected = expected.map(|(path, query)| (path.to_owned(), query));
            assert_eq!(parse_target(target), expected, "{target}");
        }
    }

    #[test]
    fn headers_are_trimmed_and_lower_case() {
        let cases = [
            ("Host: a", Some(("host", "a"))),
            ("X-Empty:", Some(("x-empty", ""))),
            ("Accept:\t a;b=c \t", Some(("accept", "a;b=c"))),
            ("Host : a", None),
            (" folded", None),
            (": a", None),
            ("no colon", None),
            ("A: b\nC: d", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(parse_header(line), expected, "{line:?}");
        }
    }
}
