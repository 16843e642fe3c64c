//! Which calls use a proxy, and through which: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as Go programs read
//! them (golang.org/x/net/http/httpproxy), or a kubeconfig's `proxy-url`.
//!
//! The tunnels are our own: ureq's SOCKS connector opens its own sockets, on which our deadline has no effect, its
//! `NO_PROXY` knows no CIDRs, and what remains of `CONNECT` is a request of five lines.

mod address;
mod no_proxy;
mod tunnel;

pub use address::{Protocol, Proxy};
pub(super) use tunnel::{Tunnel, open};

use super::tls::{Encrypt, Tls, bare_host};
use address::PROXY_URL;
use no_proxy::NoProxy;
use ureq::http::Uri;

/// What decides whether a client's calls go through a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// None, whatever the environment says.
    #[default]
    Never,
    /// This one, whatever the environment says: a kubeconfig's `proxy-url`.
    Only(Proxy),
    /// What the environment says of the address called.
    ByEnvironment(Environment),
}

impl Proxies {
    /// The way to the host of a base URL; none: directly. `tls` says whom to trust, should the proxy want TLS.
    pub(super) fn tunnel(&self, base: &str, tls: &Tls) -> Option<Tunnel> {
        let (proxy, named_by) = match self {
            Proxies::Never => return None,
            Proxies::Only(proxy) => (proxy, PROXY_URL),
            // An address that can't be read: the call itself will say so.
            Proxies::ByEnvironment(environment) => environment.proxy_for(&base.parse().ok()?)?,
        };
        Some(Tunnel {
            proxy: proxy.clone(),
            named_by,
            tls: (proxy.protocol == Protocol::Https).then(|| {
                // A proxy is not the API: its certificate is signed by a public authority, and our credentials for the
                // API are not for it.
                let tls = Tls {
                    more_authorities: tls.more_authorities.clone(),
                    ..Tls::default()
                };
                Encrypt::new(&tls)
            }),
        })
    }
}

/// What the environment says about proxies, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Each with the variable that names it.
    https: Option<(Proxy, &'static str)>,
    http: Option<(Proxy, &'static str)>,
    no_proxy: NoProxy,
}

impl Environment {
    /// `variable` answers the value of an environment variable. The error names the variable and
    /// repeats nothing of its value. (Go uses no proxy then, and says nothing.)
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Environment, String> {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = variable(name).filter(|value| !value.is_empty())?;
                Some((name, value))
            })
        };
        let proxy = |names| match first(names) {
            None => Ok(None),
            Some((variable, value)) => match Proxy::parse(&value) {
                Ok(proxy) => Ok(Some((proxy, variable))),
                Err(why) => Err(format!("{variable}: {why}")),
            },
        };
        let no_proxy = first(["NO_PROXY", "no_proxy"]);
        Ok(Environment {
            https: proxy(["HTTPS_PROXY", "https_proxy"])?,
            http: proxy(["HTTP_PROXY", "http_proxy"])?,
            no_proxy: no_proxy.map_or_else(NoProxy::default, |(_, value)| NoProxy::parse(&value)),
        })
    }

    /// The proxy on the way to a URL, and who named it; none: no proxy.
    fn proxy_for(&self, uri: &Uri) -> Option<(&Proxy, &'static str)> {
        let (named, default_port) = match uri.scheme_str() == Some("https") {
            true => (&self.https, 443),
            false => (&self.http, 80),
        };
        let (proxy, variable) = named.as_ref()?;
        let port = uri.port_u16().unwrap_or(default_port);
        let is_covered = self.no_proxy.covers(bare_host(uri), port);
        (!is_covered).then_some((proxy, *variable))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], url: &str) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let environment = Environment::read(variable)?;
        let chosen = environment.proxy_for(&url.parse().unwrap());
        Ok(chosen.map(|(proxy, variable)| format!("{variable}={proxy}")))
    }

    /// Variables, URL, and which proxy it uses.
    #[test]
    fn the_scheme_of_the_url_chooses_the_variable() {
        let (http, https) = (("HTTP_PROXY", "cache:3128"), ("HTTPS_PROXY", "gate:3128"));
        let lower = ("https_proxy", "lower:3128");
        let (via_http, via_https) = (
            "HTTP_PROXY=http://cache:3128",
            "HTTPS_PROXY=http://gate:3128",
        );
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, Option<&'a str>);
        let cases: &[Case] = &[
            (&[], "https://api.hetzner.cloud/v1", None),
            (&[http], "https://api.hetzner.cloud/v1", None),
            (&[https], "http://10.0.0.1", None),
            (
                &[http, https],
                "https://api.hetzner.cloud/v1",
                Some(via_https),
            ),
            (&[http, https], "http://10.0.0.1", Some(via_http)),
            (&[https, lower], "https://host", Some(via_https)),
            (
                &[("HTTPS_PROXY", ""), lower],
                "https://host",
                Some("https_proxy=http://lower:3128"),
            ),
            (&[https, ("NO_PROXY", "host")], "https://host", None),
            (&[https, ("no_proxy", "host")], "https://host", None),
            (
                &[https, ("NO_PROXY", "other"), ("no_proxy", "host")],
                "https://host",
                Some(via_https),
            ),
            (&[https, ("NO_PROXY", "host:443")], "https://host", None),
            (
                &[https, ("NO_PROXY", "host:443")],
                "https://host:6443",
                Some(via_https),
            ),
            (&[http, ("NO_PROXY", "host:80")], "http://host", None),
            (&[https, ("NO_PROXY", "*")], "https://host", None),
            (&[https], "https://localhost:6443", None),
            (&[https], "https://127.0.0.1:6443", None),
            (&[https], "https://[::1]:6443", None),
        ];
        for (variables, url, expected) in cases {
            let found = chosen(variables, url).unwrap();
            assert_eq!(found.as_deref(), *expected, "{variables:?} {url}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_by_name() {
        for variable in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            let why = chosen(&[(variable, "ftp://u:hunter2@p")], "https://host").unwrap_err();
            assert!(
                why.starts_with(&format!("{variable}: its scheme is none of")),
                "{why}"
            );
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
