//! `CONNECT` of HTTP/1.1 (RFC 9110, 9.3.6).

use super::super::USER_AGENT;
use super::address::Login;
use super::tunnel::{Target, Trouble, way_out};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{Read, Write};

/// Of an answer's head; a login page's cookies fit in.
const HEAD_BYTES: usize = 16 * 1024;

pub(super) fn open(
    stream: &mut (impl Read + Write),
    target: &Target,
    login: Option<&Login>,
    told_by: &str,
) -> Result<(), Trouble> {
    let authority = match target.host.contains(':') {
        true => format!("[{}]:{}", target.host, target.port),
        false => format!("{}:{}", target.host, target.port),
    };
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    request += &format!("User-Agent: {USER_AGENT}\r\n");
    if let Some(login) = login {
        let pair = format!("{}:{}", login.user, login.password.expose());
        request += &format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(pair));
    }
    request += "\r\n";
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    match status(&head(stream)?)? {
        200..=299 => Ok(()),
        407 => Err(Trouble::Lasting(match login {
            Some(_) => {
                format!("it does not accept the login in {told_by} (HTTP status 407); is it right?")
            }
            None => format!(
                "it wants a login (HTTP status 407); write it before the host in {told_by}: http://user:password@host:port"
            ),
        })),
        status @ (403 | 405) => Err(Trouble::Lasting(format!(
            "it does not let us through to {authority} (HTTP status {status}); {}",
            way_out(told_by)
        ))),
        status => Err(Trouble::Passing(format!(
            "it could not connect to {authority} (HTTP status {status}); does it reach that host?"
        ))),
    }
}

/// Up to the empty line and not a byte further: what follows is the tunnel's.
fn head(stream: &mut impl Read) -> Result<Vec<u8>, Trouble> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES {
            return Err(no_http());
        }
        stream.read_exact(&mut byte)?;
        head.extend(byte);
        // No HTTP at all is seen at once, and not when its time is over.
        if !b"HTTP/1.".starts_with(&head[..head.len().min(7)]) {
            return Err(no_http());
        }
    }
    Ok(head)
}

/// `HTTP/1.1 200 Connection established`
fn status(head: &[u8]) -> Result<u16, Trouble> {
    let digits = head
        .get(9..12)
        .and_then(|text| std::str::from_utf8(text).ok());
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(no_http)
}

fn no_http() -> Trouble {
    Trouble::Lasting(
        "what answers there does not speak HTTP; is it a SOCKS proxy (socks5://)?".into(),
    )
}
