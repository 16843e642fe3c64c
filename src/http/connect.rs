//! From a URL to a connection: its name resolved, or a tunnel through a proxy.

use super::deadline;
use super::proxy::{self, Route};
use super::socket::Socket;
use std::io;
use std::time::{Duration, Instant};
use ureq::Timeout;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, Transport};

/// Connects to the host of a URL, or through the proxy on its way; TLS comes after it.
#[derive(Debug)]
pub(super) struct Connect {
    pub(super) route: Route,
    /// Resolving and connecting together, and the proxy's answer.
    pub(super) timeout: Duration,
    pub(super) buffer_bytes: usize,
}

/// Resolves nothing: a connection that is still open needs no address, behind a proxy it is the
/// proxy that knows names, and everything else [`Connect`] resolves.
#[derive(Debug)]
pub(super) struct Unresolved;

impl Resolver for Unresolved {
    fn resolve(
        &self,
        _: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

impl Connector<()> for Connect {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Box<dyn Transport>>, ureq::Error> {
        let by = deadline::capped(Instant::now() + self.timeout);
        let _held = deadline::hold(by);
        match &self.route {
            Route::Direct => {
                let socket = self.socket(details.uri, details.config, by)?;
                Ok(Some(Box::new(socket)))
            }
            Route::Refused(why) => Err(proxy::Failure::not_sent(why.clone())),
            Route::Through(way) => {
                let connect = |uri: &Uri| {
                    let socket = self.socket(uri, details.config, by)?;
                    Ok(Box::new(socket) as Box<dyn Transport>)
                };
                proxy::open(way, details, connect, by).map(Some)
            }
        }
    }
}

impl Connect {
    fn socket(&self, uri: &Uri, config: &Config, by: Instant) -> Result<Socket, ureq::Error> {
        let timeout = NextTimeout {
            after: by.saturating_duration_since(Instant::now()).into(),
            reason: Timeout::Resolve,
            ..NextTimeout::default()
        };
        let addresses = DefaultResolver::default().resolve(uri, config, timeout)?;
        Socket::connect(&addresses, by, self.buffer_bytes).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                ureq::Error::Timeout(Timeout::Connect)
            }
            _ => ureq::Error::Io(error),
        })
    }
}
