//! From a connection to a proxy to one through it: `CONNECT` of HTTP, or SOCKS 5.

use super::super::auth::USER_AGENT;
use super::super::error::{Kind, ProxyError, describe_io, describe_transport};
use super::super::tls::{Encrypt, bare_host};
use super::address::{Login, PROXY_URL, Protocol, Proxy, authority};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use ureq::Timeout;
use ureq::http::Uri;
use ureq::unversioned::transport::{ConnectionDetails, NextTimeout, Transport, TransportAdapter};

// SOCKS 5 (RFC 1928), with user name and password (RFC 1929).
const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_OF_THESE: u8 = 0xff;
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Of an answer's head; a login page's cookies fit in.
const HEAD_BYTES: usize = 16 * 1024;

/// What a tunnel through one proxy needs.
#[derive(Debug)]
pub(in crate::http) struct Tunnel {
    pub(super) proxy: Proxy,
    /// The variable or field that named it.
    pub(super) named_by: &'static str,
    /// For a proxy that is reached over TLS.
    pub(super) tls: Option<Encrypt>,
}

/// Where the tunnel is to end.
struct Target<'a> {
    /// A name, or an address without brackets.
    host: &'a str,
    port: u16,
}

/// What a proxy did instead of opening the tunnel.
enum TunnelError {
    /// It may help to try again.
    Temporary(String),
    /// A setting has to be corrected.
    Permanent(String),
    /// The connection to it broke, or was silent for too long.
    Broken(io::Error),
}

/// Connects to the proxy, and has it connect to the host of the URL that is called.
pub(in crate::http) fn open(
    tunnel: &Tunnel,
    details: &ConnectionDetails,
    connect: impl Fn(&Uri) -> Result<Box<dyn Transport>, ureq::Error>,
    by: Instant,
) -> Result<Box<dyn Transport>, ureq::Error> {
    let timeout = NextTimeout {
        after: by.saturating_duration_since(Instant::now()).into(),
        reason: Timeout::Connect,
        ..NextTimeout::default()
    };
    let mut stream = tunnel.proxy_itself(details, connect, timeout)?;
    stream.set_timeout(timeout);
    let default_port = if details.needs_tls() { 443 } else { 80 };
    let target = Target {
        host: bare_host(details.uri),
        port: details.uri.port_u16().unwrap_or(default_port),
    };
    let opened = match tunnel.proxy.protocol() {
        Protocol::Http | Protocol::Https => {
            open_http(&mut stream, &target, tunnel.proxy.login(), tunnel.named_by)
        }
        Protocol::Socks5 => open_socks(&mut stream, &target, tunnel.proxy.login(), tunnel.named_by),
    };
    match opened {
        Ok(()) => Ok(stream.into_inner()),
        Err(error) => Err(tunnel.failed(error)),
    }
}

impl Tunnel {
    fn proxy_itself(
        &self,
        details: &ConnectionDetails,
        connect: impl Fn(&Uri) -> Result<Box<dyn Transport>, ureq::Error>,
        timeout: NextTimeout,
    ) -> Result<TransportAdapter<Box<dyn Transport>>, ureq::Error> {
        let unreachable = |error: ureq::Error| {
            let why = unreached(&error);
            self.failed(TunnelError::Temporary(why))
        };
        let uri: Uri =
            self.proxy
                .address()
                .parse()
                .map_err(|error: ureq::http::uri::InvalidUri| {
                    self.failed(TunnelError::Permanent(error.to_string()))
                })?;
        let mut transport = connect(&uri).map_err(unreachable)?;
        if let Some(tls) = &self.tls {
            let encrypted = tls
                .wrap(transport, self.proxy.host(), timeout, details)
                .map_err(unreachable)?;
            transport = Box::new(encrypted);
        }
        Ok(TransportAdapter::new(
            transport,
            details.current_time.clone(),
        ))
    }

    /// The same error, with the proxy's name.
    fn failed(&self, error: TunnelError) -> ureq::Error {
        let in_full = |why: &str| format!("the proxy {} ({}): {why}", self.proxy, self.named_by);
        match error {
            TunnelError::Temporary(why) => ProxyError::temporary(in_full(&why)),
            TunnelError::Permanent(why) => ProxyError::permanent(in_full(&why)),
            TunnelError::Broken(error) => ProxyError::temporary(in_full(&unanswered(&error))),
        }
        .into()
    }
}

impl From<io::Error> for TunnelError {
    fn from(error: io::Error) -> TunnelError {
        TunnelError::Broken(error)
    }
}

/// What to do when a proxy refuses a host. The environment's exceptions do not
/// count where a kubeconfig names the proxy.
fn remedy(named_by: &str) -> String {
    match named_by {
        PROXY_URL => format!(
            "its rules have to allow it, or the kubeconfig's {PROXY_URL} to name another proxy or none"
        ),
        _ => "its rules have to allow it, or NO_PROXY to name the host".to_owned(),
    }
}

/// Why there is no connection to the proxy.
fn unreached(error: &ureq::Error) -> String {
    const HINT: &str = "is it running, and is this its address?";
    match error {
        ureq::Error::Timeout(_) => format!("no connection in time; {HINT}"),
        ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            format!("connection refused; {HINT}")
        }
        other => in_words(describe_transport(other, Duration::ZERO)),
    }
}

/// Why there is no answer of the proxy.
fn unanswered(error: &io::Error) -> String {
    const HINT: &str = "is it a proxy, and is it of this kind?";
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match (inner, error.kind()) {
        (Some(ureq::Error::Timeout(_)), _) => format!("no answer in time; {HINT}"),
        (_, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            format!("it closed the connection without an answer; {HINT}")
        }
        _ => in_words(describe_io(error, Duration::ZERO)),
    }
}

/// The same words as of an API.
fn in_words(kind: Kind) -> String {
    match kind {
        Kind::Unreachable(why) | Kind::Request(why) | Kind::Malformed(why) => why,
        Kind::Untrusted(why) | Kind::Tls(why) => format!("TLS: {why}"),
        _ => "no answer that can be read".to_owned(),
    }
}

/// `CONNECT` of HTTP/1.1 (RFC 9110, 9.3.6).
fn open_http(
    stream: &mut (impl Read + Write),
    target: &Target,
    login: Option<&Login>,
    named_by: &str,
) -> Result<(), TunnelError> {
    let authority = authority(target.host, target.port);
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    request += &format!("User-Agent: {USER_AGENT}\r\n");
    if let Some(login) = login {
        let pair = format!("{}:{}", login.user, login.password.expose());
        request += &format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(pair));
    }
    request += "\r\n";
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    match status_of(&answer_head(stream)?)? {
        200..=299 => Ok(()),
        407 => Err(TunnelError::Permanent(match login {
            Some(_) => {
                format!(
                    "it does not accept the login in {named_by} (HTTP status 407); is it right?"
                )
            }
            None => format!(
                "it wants a login (HTTP status 407); write it before the host in {named_by}: http://user:password@host:port"
            ),
        })),
        status @ (403 | 405) => Err(TunnelError::Permanent(format!(
            "it does not let us through to {authority} (HTTP status {status}); {}",
            remedy(named_by)
        ))),
        status => Err(TunnelError::Temporary(format!(
            "it could not connect to {authority} (HTTP status {status}); does it reach that host?"
        ))),
    }
}

/// Up to the empty line and not a byte further: what follows is the tunnel's.
fn answer_head(stream: &mut impl Read) -> Result<Vec<u8>, TunnelError> {
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
fn status_of(head: &[u8]) -> Result<u16, TunnelError> {
    let digits = head
        .get(9..12)
        .and_then(|text| std::str::from_utf8(text).ok());
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(no_http)
}

fn no_http() -> TunnelError {
    TunnelError::Permanent(
        "what answers there does not speak HTTP; is it a SOCKS proxy (socks5://)?".into(),
    )
}

/// SOCKS 5 (RFC 1928), with user name and password (RFC 1929).
fn open_socks(
    stream: &mut (impl Read + Write),
    target: &Target,
    login: Option<&Login>,
    named_by: &str,
) -> Result<(), TunnelError> {
    let offered: &[u8] = match login {
        Some(_) => &[VERSION, 2, NO_LOGIN, USER_AND_PASSWORD],
        None => &[VERSION, 1, NO_LOGIN],
    };
    send(stream, offered)?;
    let [version, method] = receive(stream)?;
    if version != VERSION {
        return Err(no_socks());
    }
    match (method, login) {
        (NO_LOGIN, _) => {}
        (USER_AND_PASSWORD, Some(login)) => log_in(stream, login, named_by)?,
        (NONE_OF_THESE, None) => {
            return Err(TunnelError::Permanent(format!(
                "it wants a login; write it before the host in {named_by}: socks5://user:password@host:port"
            )));
        }
        _ => {
            return Err(TunnelError::Permanent(
                "it wants another way of logging in than user name and password".into(),
            ));
        }
    }
    send(stream, &socks_request(target)?)?;
    let [version, reply, _, kind] = receive(stream)?;
    if version != VERSION {
        return Err(no_socks());
    }
    socks_refusal(reply, target, named_by)?;
    // The address that the proxy connects from is not used, but comes before the bytes of the tunnel.
    match kind {
        IPV4 => receive::<{ 4 + 2 }>(stream).map(drop),
        IPV6 => receive::<{ 16 + 2 }>(stream).map(drop),
        NAME => {
            let [length] = receive(stream)?;
            let mut name_and_port = vec![0; usize::from(length) + 2];
            Ok(stream.read_exact(&mut name_and_port)?)
        }
        _ => Err(no_socks()),
    }
}

fn log_in(
    stream: &mut (impl Read + Write),
    login: &Login,
    named_by: &str,
) -> Result<(), TunnelError> {
    let mut message = vec![LOGIN_VERSION];
    for text in [login.user.as_str(), login.password.expose()] {
        let length = u8::try_from(text.len()).map_err(|_| {
            TunnelError::Permanent(format!(
                "the user name or password in {named_by} is longer than the 255 bytes that SOCKS allows"
            ))
        })?;
        message.push(length);
        message.extend(text.as_bytes());
    }
    send(stream, &message)?;
    let [_, refused] = receive(stream)?;
    match refused {
        0 => Ok(()),
        _ => Err(TunnelError::Permanent(format!(
            "it does not accept the login in {named_by}; is it right?"
        ))),
    }
}

/// A name is sent as it is: the proxy knows names that we can't resolve.
fn socks_request(target: &Target) -> Result<Vec<u8>, TunnelError> {
    let mut message = vec![VERSION, CONNECT, 0];
    match target.host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            message.push(IPV4);
            message.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            message.push(IPV6);
            message.extend(ip.octets());
        }
        Err(_) => {
            let length = u8::try_from(target.host.len()).map_err(|_| {
                TunnelError::Permanent(format!("{} is too long for a host's name", target.host))
            })?;
            message.extend([NAME, length]);
            message.extend(target.host.as_bytes());
        }
    }
    message.extend(target.port.to_be_bytes());
    Ok(message)
}

fn socks_refusal(reply: u8, target: &Target, named_by: &str) -> Result<(), TunnelError> {
    let Target { host, port } = target;
    let why = match reply {
        0 => return Ok(()),
        2 => {
            return Err(TunnelError::Permanent(format!(
                "it does not let us through to {host} port {port}; {}",
                remedy(named_by)
            )));
        }
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "no answer in time",
        7 | 8 => "it does not support this",
        _ => "general failure",
    };
    Err(TunnelError::Temporary(format!(
        "it could not connect to {host} port {port} ({why}); does it reach that host?"
    )))
}

fn send(stream: &mut impl Write, bytes: &[u8]) -> Result<(), TunnelError> {
    stream.write_all(bytes)?;
    Ok(stream.flush()?)
}

fn receive<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], TunnelError> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn no_socks() -> TunnelError {
    TunnelError::Permanent(
        "what answers there does not speak SOCKS 5; is it an HTTP proxy (http://)?".into(),
    )
}
