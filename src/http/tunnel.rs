//! Opens tunnels through a proxy, with `CONNECT` of HTTP or with SOCKS 5.

use super::auth::USER_AGENT;
use super::error::{HttpErrorKind, describe_io, describe_transport};
use super::proxy::{PROXY_URL, ProxyLogin, ProxyScheme, Tunnel, authority};
use super::tls::{bare_host, certificate_name};
use crate::provider::clock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use ureq::Timeout;
use ureq::http::Uri;
use ureq::unversioned::transport::{ConnectionDetails, NextTimeout, Transport, TransportAdapter};

// This constant and the following ones are values in the messages of SOCKS 5 (RFC 1928) and of its login with user name
// and password (RFC 1929).
const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_OF_THESE: u8 = 0xff;
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The longest head of an answer that is read, in bytes. Even the head of a proxy's login page with its cookies is
/// shorter.
const HEAD_BYTES: usize = 16 * 1024;

/// A tunnel that is being opened.
struct Opening<'a, S> {
    stream: &'a mut S,
    login: Option<&'a ProxyLogin>,
    named_by: &'static str,
    /// The host to which the tunnel leads: a name, or an address without brackets.
    host: &'a str,
    port: u16,
}

/// Connects to the proxy, and makes the proxy connect to the host of the called URL.
pub(super) fn open(
    tunnel: &Tunnel,
    details: &ConnectionDetails,
    connect: impl Fn(&Uri) -> Result<Box<dyn Transport>, ureq::Error>,
    by: Instant,
) -> Result<Box<dyn Transport>, ureq::Error> {
    let timeout = NextTimeout {
        after: clock::machine_until(by).into(),
        reason: Timeout::Connect,
        ..NextTimeout::default()
    };
    let transport = tunnel
        .proxy_itself(details, connect, timeout)
        .map_err(|error| tunnel.failed(describe_transport(&error, Duration::ZERO)))?;
    let mut stream = TransportAdapter::new(transport, details.current_time.clone());
    stream.set_timeout(NextTimeout { reason: Timeout::RecvResponse, ..timeout });
    let default_port = if details.needs_tls() { 443 } else { 80 };
    let mut opening = Opening {
        stream: &mut stream,
        login: tunnel.proxy.login.as_ref(),
        named_by: tunnel.named_by,
        host: bare_host(details.uri),
        port: details.uri.port_u16().unwrap_or(default_port),
    };
    let opened = match tunnel.proxy.protocol {
        ProxyScheme::Http | ProxyScheme::Https => opening.http(),
        ProxyScheme::Socks5 => opening.socks(),
    };
    match opened {
        Ok(()) => Ok(stream.into_inner()),
        Err(kind) => Err(tunnel.failed(kind)),
    }
}

impl Tunnel {
    fn proxy_itself(
        &self,
        details: &ConnectionDetails,
        connect: impl Fn(&Uri) -> Result<Box<dyn Transport>, ureq::Error>,
        timeout: NextTimeout,
    ) -> Result<Box<dyn Transport>, ureq::Error> {
        // Only the host and the port of this URL are used, so the scheme does not matter.
        let uri = format!("http://{}", authority(&self.proxy.host, self.proxy.port));
        let transport = connect(&uri.parse().map_err(ureq::http::Error::from)?)?;
        Ok(match &self.tls {
            Some(tls) => {
                let name = certificate_name(&self.proxy.host)?;
                Box::new(tls.wrap(transport, name, timeout, details)?)
            }
            None => transport,
        })
    }

    /// Returns the error of a failed tunnel, with the name of the proxy in its message.
    fn failed(&self, kind: HttpErrorKind) -> ureq::Error {
        let in_full = |why| format!("the proxy {} ({}): {why}", self.proxy, self.named_by);
        ureq::Error::Other(Box::new(match kind {
            HttpErrorKind::Request(why) => HttpErrorKind::Request(in_full(why)),
            HttpErrorKind::TimedOut(_) => {
                let why = "no answer in time; are the scheme and the address of this proxy right?";
                HttpErrorKind::Unreachable(in_full(why.into()))
            }
            kind => HttpErrorKind::Unreachable(in_full(kind.to_string())),
        }))
    }
}

impl<S: Read + Write> Opening<'_, S> {
    /// Opens the tunnel with `CONNECT` of HTTP/1.1 (RFC 9110, 9.3.6).
    fn http(&mut self) -> Result<(), HttpErrorKind> {
        let to = authority(self.host, self.port);
        let mut request =
            format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: {USER_AGENT}\r\n");
        if let Some(login) = self.login {
            let pair = format!("{}:{}", login.user, login.password.expose());
            request += &format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(pair));
        }
        request += "\r\n";
        self.send(request.as_bytes())?;
        let refused = |status| format!("(HTTP status {status})");
        match self.http_status()? {
            200..=299 => Ok(()),
            407 => Err(self.wants_login(" (HTTP status 407)", "http")),
            status @ (403 | 405) => Err(self.not_let_through(&format!("{to} {}", refused(status)))),
            status => Err(HttpErrorKind::Unreachable(format!(
                "it could not connect to {to} {}; can the proxy reach this host?",
                refused(status)
            ))),
        }
    }

    /// Reads the head of an answer like `HTTP/1.1 200 Connection established` and returns its status. Reading stops
    /// after the empty line, because the bytes after it belong to the tunnel.
    fn http_status(&mut self) -> Result<u16, HttpErrorKind> {
        let not_http = || {
            let why =
                "the server at this address does not speak HTTP; is it a SOCKS proxy (socks5://)?";
            HttpErrorKind::Request(why.to_owned())
        };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.receive::<1>()?);
            // A server that does not speak HTTP is recognized by the first bytes of its answer, without waiting
            // for the time-out.
            if head.len() > HEAD_BYTES || !b"HTTP/1.".starts_with(&head[..head.len().min(7)]) {
                return Err(not_http());
            }
        }
        let digits = head.get(9..12).and_then(|text| str::from_utf8(text).ok());
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(not_http)
    }

    fn socks(&mut self) -> Result<(), HttpErrorKind> {
        let offered: &[u8] = match self.login {
            Some(_) => &[VERSION, 2, NO_LOGIN, USER_AND_PASSWORD],
            None => &[VERSION, 1, NO_LOGIN],
        };
        self.send(offered)?;
        let [version, method] = self.receive()?;
        is_socks(version)?;
        match (method, self.login) {
            (NO_LOGIN, _) => {}
            (USER_AND_PASSWORD, Some(login)) => self.log_in(login)?,
            (NONE_OF_THESE, None) => return Err(self.wants_login("", "socks5")),
            _ => {
                let why = "it requires a login method other than user name and password";
                return Err(HttpErrorKind::Request(why.to_owned()));
            }
        }
        // A host name is sent to the proxy unresolved, because the proxy can resolve names that this machine can't
        // resolve.
        let mut message = vec![VERSION, CONNECT, 0];
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => message.extend([&[IPV4], &ip.octets()[..]].concat()),
            Ok(IpAddr::V6(ip)) => message.extend([&[IPV6], &ip.octets()[..]].concat()),
            Err(_) => {
                message.push(NAME);
                message.extend(with_length(self.host, "the host's name")?);
            }
        }
        message.extend(self.port.to_be_bytes());
        self.send(&message)?;
        let [version, reply, _, kind] = self.receive()?;
        is_socks(version)?;
        self.check_reply(reply)?;
        // The proxy's answer ends with the address from which the proxy connects to the host. This address is read
        // and not used.
        let length = match kind {
            IPV4 => 4,
            IPV6 => 16,
            NAME => u64::from(self.receive::<1>()?[0]),
            _ => return is_socks(0),
        };
        for _ in 0..length + 2 {
            self.receive::<1>()?;
        }
        Ok(())
    }

    fn log_in(&mut self, login: &ProxyLogin) -> Result<(), HttpErrorKind> {
        let what = format!("the user name or password in {}", self.named_by);
        let user = with_length(&login.user, &what)?;
        let password = with_length(login.password.expose(), &what)?;
        self.send(&[vec![LOGIN_VERSION], user, password].concat())?;
        match self.receive()? {
            [_, 0] => Ok(()),
            _ => Err(self.wants_login("", "socks5")),
        }
    }

    fn check_reply(&self, reply: u8) -> Result<(), HttpErrorKind> {
        let to = format!("{} port {}", self.host, self.port);
        let why = match reply {
            0 => return Ok(()),
            2 => return Err(self.not_let_through(&to)),
            3 => "network unreachable",
            4 => "host unreachable",
            5 => "connection refused",
            6 => "no answer in time",
            7 | 8 => "the proxy does not support this kind of connection",
            _ => "general failure",
        };
        let why = format!("it could not connect to {to} ({why}); can the proxy reach this host?");
        Err(HttpErrorKind::Unreachable(why))
    }

    fn wants_login(&self, status: &str, scheme: &str) -> HttpErrorKind {
        let named_by = self.named_by;
        HttpErrorKind::Request(match self.login {
            Some(_) => {
                format!("it does not accept the login in {named_by}{status}; is the login right?")
            }
            None => format!(
                "it requires a login{status}; write the login before the host in {named_by}: {scheme}://user:password@host:port"
            ),
        })
    }

    /// Returns the error for a proxy that refuses the connection. The message suggests `NO_PROXY` when the proxy comes
    /// from an environment variable. For a proxy of a kubeconfig, `NO_PROXY` has no effect.
    fn not_let_through(&self, to: &str) -> HttpErrorKind {
        let remedy = match self.named_by {
            PROXY_URL => "the kubeconfig's proxy-url must name another proxy or none",
            _ => "NO_PROXY must name this host",
        };
        HttpErrorKind::Request(format!(
            "it refuses connections to {to}; the proxy's rules must allow these connections, or {remedy}"
        ))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), HttpErrorKind> {
        let sent = self.stream.write_all(bytes);
        sent.and_then(|()| self.stream.flush()).map_err(|error| describe_io(&error, Duration::ZERO))
    }

    fn receive<const N: usize>(&mut self) -> Result<[u8; N], HttpErrorKind> {
        let mut bytes = [0; N];
        let read = self.stream.read_exact(&mut bytes);
        read.map_err(|error| describe_io(&error, Duration::ZERO))?;
        Ok(bytes)
    }
}

fn is_socks(version: u8) -> Result<(), HttpErrorKind> {
    match version {
        VERSION => Ok(()),
        _ => Err(HttpErrorKind::Request(
            "the server at this address does not speak SOCKS 5; is it an HTTP proxy (http://)?"
                .to_owned(),
        )),
    }
}

/// Returns a text as SOCKS sends it: its length, then its bytes.
fn with_length(text: &str, what: &str) -> Result<Vec<u8>, HttpErrorKind> {
    match u8::try_from(text.len()) {
        Ok(length) => Ok([&[length], text.as_bytes()].concat()),
        Err(_) => Err(HttpErrorKind::Request(format!(
            "{what} is longer than the 255 bytes that SOCKS allows"
        ))),
    }
}
