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

/// How one API is reached.
#[derive(Debug)]
pub(super) enum Route {
    Direct,
    Through(Box<Tunnel>),
    /// No connection is allowed; why.
    Refused(String),
}

impl Proxies {
    /// The way to the host of a base URL. `tls` says whom to trust, should the proxy want TLS.
    pub(super) fn route(&self, base: &str, tls: &Tls, buffer_bytes: usize) -> Route {
        let chosen = match self {
            Proxies::Never => Ok(None),
            Proxies::Only(proxy) => Ok(Some((proxy, PROXY_URL))),
            Proxies::ByEnvironment(environment) => match base.parse::<Uri>() {
                Ok(uri) => environment.proxy_for(&uri),
                // The call itself will say so.
                Err(_) => Ok(None),
            },
        };
        match chosen {
            Ok(None) => Route::Direct,
            Ok(Some((proxy, named_by))) => Route::Through(Box::new(Tunnel {
                proxy: proxy.clone(),
                named_by,
                tls: (proxy.protocol() == Protocol::Https)
                    .then(|| Encrypt::new(&for_proxy(tls), buffer_bytes)),
            })),
            Err(why) => Route::Refused(why),
        }
    }
}

/// A proxy is not the API: its certificate is signed by a public authority, and our credentials for the API are not
/// for it.
fn for_proxy(tls: &Tls) -> Tls {
    Tls {
        more_authorities: tls.more_authorities.clone(),
        ..Tls::default()
    }
}

/// What the environment says about proxies, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    https: Option<Named>,
    http: Option<Named>,
    no_proxy: NoProxy,
    /// A web server runs us (CGI), and `HTTP_PROXY` is a header of a request: `Proxy: …`.
    is_cgi: bool,
}

/// A proxy and the variable that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    proxy: Proxy,
    variable: &'static str,
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
            Some((variable, value)) => Proxy::parse(&value)
                .map(|proxy| Some(Named { proxy, variable }))
                .map_err(|why| format!("{variable}: {why}")),
        };
        Ok(Environment {
            https: proxy(["HTTPS_PROXY", "https_proxy"])?,
            http: proxy(["HTTP_PROXY", "http_proxy"])?,
            no_proxy: first(["NO_PROXY", "no_proxy"])
                .map(|(_, value)| NoProxy::parse(&value))
                .unwrap_or_default(),
            is_cgi: variable("REQUEST_METHOD").is_some_and(|value| !value.is_empty()),
        })
    }

    /// The proxy on the way to a URL, and who named it; none: no proxy.
    pub(super) fn proxy_for(&self, uri: &Uri) -> Result<Option<(&Proxy, &'static str)>, String> {
        let is_https = uri.scheme_str() == Some("https");
        let (named, default_port) = match is_https {
            true => (&self.https, 443),
            false => (&self.http, 80),
        };
        let Some(Named { proxy, variable }) = named else {
            return Ok(None);
        };
        if self.is_cgi && !is_https {
            return Err(format!(
                "{variable} and REQUEST_METHOD are both set: run by a web server (CGI), {variable} may come from \
                 the request, and is not used; unset one of them"
            ));
        }
        let host = bare_host(uri);
        let port = uri.port_u16().unwrap_or(default_port);
        Ok((!self.no_proxy.covers(host, port)).then_some((proxy, *variable)))
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
        let chosen = environment.proxy_for(&url.parse().unwrap())?;
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
            (
                &[https, ("REQUEST_METHOD", "GET")],
                "https://host",
                Some(via_https),
            ),
        ];
        for (variables, url, expected) in cases {
            let found = chosen(variables, url).unwrap();
            assert_eq!(found.as_deref(), *expected, "{variables:?} {url}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_by_name() {
        let why = chosen(
            &[("HTTP_PROXY", "p"), ("REQUEST_METHOD", "GET")],
            "http://host",
        );
        assert!(
            why.unwrap_err()
                .starts_with("HTTP_PROXY and REQUEST_METHOD are both set")
        );
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
