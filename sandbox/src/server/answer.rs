//! Writes one HTTP answer: whole, in chunks, in small parts with pauses, or cut off on purpose.

use std::io;
use std::time::Duration;

use super::bytes::Bytes;
use crate::exchange::{Request, Response};
use crate::faults::Delivery;
use crate::time;

/// Whether the connection stays open for another request after the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    KeepAlive,
    Close,
}

/// The size of the chunks of an answer with `Transfer-Encoding: chunked`, in bytes.
const CHUNK_BYTES: usize = 8 << 10;
/// How many bytes of the body are written together with the status line and the headers, from one buffer. The rest of a
/// larger body is written without being copied into this buffer.
const FIRST_BYTES: usize = 256 << 10;

/// Writes an answer in the way that `delivery` says. `pause` is called to wait between the parts of an answer with
/// [`Delivery::Drip`].
pub(super) fn write(
    stream: &mut impl Bytes,
    request: &Request,
    response: &Response,
    next: Next,
    delivery: Delivery,
    pause: &dyn Fn(Duration),
) -> io::Result<Next> {
    let body: &[u8] = match request.method.as_str() {
        "HEAD" => &[],
        _ if has_no_body(response.status) => &[],
        _ => &response.body,
    };
    let head = |framing: Framing| head(response, framing, next);
    match delivery {
        Delivery::Whole => {
            let mut bytes = head(Framing::Length);
            let (first, rest) = body.split_at(body.len().min(FIRST_BYTES));
            bytes.extend_from_slice(first);
            stream.write(&bytes)?;
            stream.write(rest)?;
            Ok(next)
        }
        Delivery::Chunked => {
            let mut bytes = head(Framing::Chunked);
            bytes.extend(chunks(body));
            bytes.extend_from_slice(b"0\r\n\r\n");
            stream.write(&bytes)?;
            Ok(next)
        }
        Delivery::Drip { bytes: drop_bytes, pause: between } => {
            let mut bytes = head(Framing::Length);
            bytes.extend_from_slice(body);
            for drop in bytes.chunks(drop_bytes.max(1)) {
                stream.write(drop)?;
                pause(between);
            }
            Ok(next)
        }
        Delivery::CutOff => {
            let mut bytes = head(Framing::Length);
            bytes.extend_from_slice(&body[..body.len() / 2]);
            stream.write(&bytes)?;
            Ok(Next::Close)
        }
        Delivery::CutOffChunked => {
            let mut bytes = head(Framing::Chunked);
            bytes.extend(chunks(&body[..body.len() / 2]));
            stream.write(&bytes)?;
            Ok(Next::Close)
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Framing {
    Length,
    Chunked,
}

fn head(response: &Response, framing: Framing, next: Next) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
    let mut line = |name: &str, value: &str| {
        // Control characters become spaces. Otherwise, a line end in a value that a client has sent could begin another
        // header.
        let value = value.chars().map(|c| if c.is_control() { ' ' } else { c });
        head.extend([name, ": "]);
        head.extend(value);
        head.push_str("\r\n");
    };
    for (name, value) in &response.headers {
        line(name, value);
    }
    // The headers of the simulated API contain `Date` only when its clock is wrong on purpose. In all other cases, the
    // header is added here with the present time.
    if !response.headers.iter().any(|(name, _)| name == "Date") {
        let now = time::timestamp().strftime("%a, %d %b %Y %H:%M:%S GMT");
        line("Date", &now.to_string());
    }
    match framing {
        Framing::Chunked => line("Transfer-Encoding", "chunked"),
        Framing::Length if has_no_body(response.status) => {}
        Framing::Length => line("Content-Length", &response.body.len().to_string()),
    }
    if next == Next::Close {
        line("Connection", "close");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

fn chunks(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + body.len() / 512);
    for chunk in body.chunks(CHUNK_BYTES) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn has_no_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Entity",
        423 => "Locked",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        // Other status codes get an empty reason phrase, which RFC 9112, section 4, allows.
        _ => "",
    }
}
