//! `tls-server-name`: the name that a server's certificate has to have, when it is not the URL's.
//!
//! Only TLS gets to see it: address, `Host` and the pool of connections stay the URL's.

use std::fmt;
use ureq::Error;
use ureq::http::Uri;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Transport};

/// A host name or an IP address.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerName(Uri);

impl ServerName {
    pub fn parse(name: &str) -> Result<ServerName, String> {
        let wrong = || "is neither a host name nor an IP address".to_owned();
        rustls::pki_types::ServerName::try_from(name).map_err(|_| wrong())?;
        let host = match name.contains(':') {
            true => format!("[{name}]"),
            false => name.to_owned(),
        };
        let uri = format!("https://{host}").parse().map_err(|_| wrong())?;
        Ok(ServerName(uri))
    }
}

/// The connector of TLS, told another name than the URL's.
pub(super) struct Named<C> {
    /// None: the URL's.
    pub(super) name: Option<ServerName>,
    pub(super) tls: C,
}

impl<In: Transport, C: Connector<In>> Connector<In> for Named<C> {
    type Out = C::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<C::Out>, Error> {
        let Some(ServerName(uri)) = self.name.as_ref().filter(|_| details.needs_tls()) else {
            return self.tls.connect(details, chained);
        };
        let named = ConnectionDetails {
            uri,
            addrs: details.addrs.clone(),
            config: details.config,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        };
        self.tls.connect(&named, chained)
    }
}

impl<C: fmt::Debug> fmt::Debug for Named<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tls.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_a_certificate_can_have() {
        for (name, is_one) in [
            ("kubernetes", true),
            ("kubernetes.default.svc.", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("", false),
            ("a b", false),
            ("https://kubernetes", false),
            ("kubernetes:6443", false),
            ("käse", false),
            ("*.example.com", false),
        ] {
            assert_eq!(ServerName::parse(name).is_ok(), is_one, "{name:?}");
        }
    }
}
