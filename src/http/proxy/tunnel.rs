//! From a connection to a proxy to one through it.

use super::super::error::{Kind, describe_io, describe_transport};
use super::super::tls::{Encrypt, bare_host};
use super::{PROXY_URL, Protocol, Proxy, connect, socks};
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};
use ureq::Timeout;
use ureq::http::Uri;
use ureq::unversioned::transport::{ConnectionDetails, NextTimeout, Transport, TransportAdapter};

/// The way through one proxy.
#[derive(Debug)]
pub(in crate::http) struct Way {
    pub(super) proxy: Proxy,
    /// The variable or field that named it.
    pub(super) told_by: &'static str,
    /// For a proxy that is spoken to over TLS.
    pub(super) tls: Option<Encrypt>,
}

/// Where the tunnel is to end.
pub(super) struct Target<'a> {
    /// A name, or an address without brackets.
    pub(super) host: &'a str,
    pub(super) port: u16,
}

/// What a proxy did instead of letting us through.
pub(super) enum Trouble {
    /// It may help to try again.
    Passing(String),
    /// Somebody has to mend something.
    Lasting(String),
    /// The connection to it broke, or was silent for too long.
    Broken(io::Error),
}

/// A proxy's trouble as it goes through ureq; nothing of the request was sent.
#[derive(Debug)]
pub(in crate::http) struct Failure {
    why: String,
    is_lasting: bool,
}

/// Connects to the proxy, and has it connect to the host of the URL that is called.
pub(in crate::http) fn open(
    way: &Way,
    details: &ConnectionDetails,
    connect: impl Fn(&Uri) -> Result<Box<dyn Transport>, ureq::Error>,
    by: Instant,
) -> Result<Box<dyn Transport>, ureq::Error> {
    let timeout = NextTimeout {
        after: by.saturating_duration_since(Instant::now()).into(),
        reason: Timeout::Connect,
        ..NextTimeout::default()
    };
    let mut stream = way.proxy_itself(details, connect, timeout)?;
    stream.set_timeout(timeout);
    let default_port = if details.needs_tls() { 443 } else { 80 };
    let target = Target {
        host: bare_host(details.uri),
        port: details.uri.port_u16().unwrap_or(default_port),
    };
    let opened = match way.proxy.protocol() {
        Protocol::Http | Protocol::Https => {
            connect::open(&mut stream, &target, way.proxy.login(), way.told_by)
        }
        Protocol::Socks5 => socks::open(&mut stream, &target, way.proxy.login(), way.told_by),
    };
    match opened {
        Ok(()) => Ok(stream.into_inner()),
        Err(trouble) => Err(way.failed(trouble)),
    }
}

impl Way {
    fn proxy_itself(
        &self,
        details: &ConnectionDetails,
        connect: impl Fn(&Uri) -> Result<Box<dyn Transport>, ureq::Error>,
        timeout: NextTimeout,
    ) -> Result<TransportAdapter<Box<dyn Transport>>, ureq::Error> {
        let unreachable = |error: ureq::Error| {
            let why = unreached(&error);
            self.failed(Trouble::Passing(why))
        };
        let uri: Uri =
            self.proxy
                .address()
                .parse()
                .map_err(|error: ureq::http::uri::InvalidUri| {
                    self.failed(Trouble::Lasting(error.to_string()))
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

    /// It was the proxy, and which.
    fn failed(&self, trouble: Trouble) -> ureq::Error {
        let (why, is_lasting) = match trouble {
            Trouble::Passing(why) => (why, false),
            Trouble::Lasting(why) => (why, true),
            Trouble::Broken(error) => (unanswered(&error), false),
        };
        let (proxy, told_by) = (&self.proxy, self.told_by);
        Failure {
            why: format!("the proxy {proxy} ({told_by}): {why}"),
            is_lasting,
        }
        .into_ureq()
    }
}

impl Failure {
    /// Nothing is to be sent at all; why.
    pub(in crate::http) fn not_sent(why: String) -> ureq::Error {
        let is_lasting = true;
        Failure { why, is_lasting }.into_ureq()
    }

    pub(in crate::http) fn kind(&self) -> Kind {
        match self.is_lasting {
            true => Kind::Request(self.why.clone()),
            false => Kind::Unreachable(self.why.clone()),
        }
    }

    fn into_ureq(self) -> ureq::Error {
        ureq::Error::Other(Box::new(self))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Broken(error)
    }
}

/// What to do when a proxy lets nobody through to a host. The environment's exceptions do not
/// count where a kubeconfig names the proxy.
pub(super) fn way_out(told_by: &str) -> String {
    match told_by {
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
