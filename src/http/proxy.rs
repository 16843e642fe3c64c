//! Decides which calls use a proxy, and which proxy. The proxy comes from `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`,
//! read as Go programs read them (golang.org/x/net/http/httpproxy), or from the `proxy-url` of a kubeconfig.
//!
//! ureq's own support for proxies is not used for two reasons. ureq's SOCKS connector opens its own sockets, so
//! `transport` could not end a call there when the call's deadline has passed. ureq's `NO_PROXY` does not support
//! CIDRs. This program therefore implements SOCKS itself, and also `CONNECT`, which needs only one more short request.

use super::secret::Secret;
use super::tls::{Encrypt, Tls, bare_host};
use crate::text::host_and_port;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::net::IpAddr;
use ureq::http::Uri;

/// The setting that decides whether the calls of a client go through a proxy, and through which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// No proxy is used, whatever the environment says.
    #[default]
    Never,
    /// This proxy of a kubeconfig's `proxy-url` is used, whatever the environment says.
    Only(Proxy),
    /// The environment variables (e.g. `HTTPS_PROXY`) decide, for each host that is called, whether a proxy is used.
    ByEnvironment(ProxyEnvironment),
}

impl Proxies {
    /// Returns the tunnel through a proxy to the host of a base URL, or `None` when the connection is direct. `tls`
    /// contains the authorities that are trusted when the proxy itself is reached over TLS.
    pub(super) fn tunnel(&self, base: &str, tls: &Tls) -> Option<Tunnel> {
        let (proxy, named_by) = match self {
            Proxies::Never => return None,
            Proxies::Only(proxy) => (proxy, PROXY_URL),
            // An address that cannot be parsed is not reported here, because a call to this address fails
            // and reports it.
            Proxies::ByEnvironment(environment) => environment.proxy_for(&base.parse().ok()?)?,
        };
        Some(Tunnel {
            proxy: proxy.clone(),
            named_by,
            tls: (proxy.protocol == ProxyScheme::Https).then(|| {
                // The TLS settings for the API are not used for the proxy, because the proxy must not get our client
                // certificate. The proxy's certificate must be signed by a public authority or by an authority of
                // `SSL_CERT_FILE`.
                let tls = Tls { more_authorities: tls.more_authorities.clone(), ..Tls::default() };
                Encrypt::new(&tls)
            }),
        })
    }
}

/// The proxies that environment variables set. The variables are read only once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    /// The proxy for `https` URLs, and the name of the environment variable that sets it. `None` when no variable sets
    /// it.
    https: Option<(Proxy, &'static str)>,
    http: Option<(Proxy, &'static str)>,
    no_proxy: NoProxy,
}

impl ProxyEnvironment {
    /// Reads the proxies from the environment. `variable` returns the value of an environment variable. An
    /// invalid value is an error, which names the variable and does not repeat the value. (Go silently uses no
    /// proxy in this case.)
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<ProxyEnvironment, String> {
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
        Ok(ProxyEnvironment {
            https: proxy(["HTTPS_PROXY", "https_proxy"])?,
            http: proxy(["HTTP_PROXY", "http_proxy"])?,
            no_proxy: no_proxy.map_or_else(NoProxy::default, |(_, value)| NoProxy::parse(&value)),
        })
    }

    /// Returns the proxy for a URL and the name of the variable that sets the proxy. Returns `None` when no
    /// proxy is used.
    fn proxy_for(&self, uri: &Uri) -> Option<(&Proxy, &'static str)> {
        let (named, default_port) =
            if uri.scheme_str() == Some("https") { (&self.https, 443) } else { (&self.http, 80) };
        let (proxy, variable) = named.as_ref()?;
        let port = uri.port_u16().unwrap_or(default_port);
        let is_covered = self.no_proxy.covers(bare_host(uri), port);
        (!is_covered).then_some((proxy, *variable))
    }
}

/// A proxy through which tunnels are opened, and the TLS settings with which the proxy itself is reached.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) proxy: Proxy,
    /// The variable or the kubeconfig field that sets the proxy, for messages.
    pub(super) named_by: &'static str,
    /// The TLS settings for the connection to the proxy. `None` when the proxy is reached without TLS.
    pub(super) tls: Option<Encrypt>,
}

/// The field of a kubeconfig that sets a proxy.
pub(super) const PROXY_URL: &str = "proxy-url";

/// A part of error messages that says how a proxy's URL is written. A text without a scheme is also accepted: it is
/// read as the `host:port` of an HTTP proxy, as in Go.
const FORMS: &str = "write the proxy's URL like http://proxy.example.com:3128, https://… or socks5://…, with user:password@ before the host if needed";

/// A proxy, with the login that it requires. `Debug` and `Display` do not show the login.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub protocol: ProxyScheme,
    /// The host: a name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
    pub(super) login: Option<ProxyLogin>,
}

/// The protocol by which a proxy is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyScheme {
    /// A proxy that is reached over plain HTTP and opens tunnels with `CONNECT`.
    Http,
    /// A proxy that is reached over HTTPS and opens tunnels with `CONNECT`.
    Https,
    /// SOCKS 5 (RFC 1928). The proxy resolves names for `socks5` as well as for `socks5h`, as in Go.
    Socks5,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct ProxyLogin {
    pub(super) user: String,
    pub(super) password: Secret,
}

impl Proxy {
    /// Parses `scheme://[user[:password]@]host[:port]`. Without a scheme the proxy is an HTTP proxy. The error repeats
    /// nothing of the text, because the text can contain a password.
    pub fn parse(text: &str) -> Result<Proxy, String> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let protocol = match scheme.to_ascii_lowercase().as_str() {
            "http" => ProxyScheme::Http,
            "https" => ProxyScheme::Https,
            "socks5" | "socks5h" => ProxyScheme::Socks5,
            _ => {
                return Err(format!("its scheme is not http, https, socks5 or socks5h; {FORMS}"));
            }
        };
        // A path in the URL of a proxy has no meaning, so it is ignored, as in Go.
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // When `@` stands after `/`, `?` or `#`, that earlier character is probably an unescaped part of the user name
        // or password. It must not be taken for the end of the host, so the URL is refused.
        if rest.len() > authority.len() && rest[authority.len()..].contains('@') {
            return Err(format!(
                "in a user name or password, write %2F, %3F and %23 instead of / ? and #; {FORMS}"
            ));
        }
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(ProxyLogin::parse(login)), address),
            None => (None, authority),
        };
        let (host, port) = host_and_port(address).map_err(|why| format!("{why}; {FORMS}"))?;
        Ok(Proxy {
            protocol,
            host: host.to_ascii_lowercase(),
            port: port.unwrap_or(protocol.scheme_and_port().1),
            login,
        })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, _) = self.protocol.scheme_and_port();
        write!(f, "{scheme}://{}", authority(&self.host, self.port))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ProxyScheme {
    /// Returns the scheme of a proxy's URL and the default port of this scheme.
    fn scheme_and_port(self) -> (&'static str, u16) {
        match self {
            ProxyScheme::Http => ("http", 80),
            ProxyScheme::Https => ("https", 443),
            ProxyScheme::Socks5 => ("socks5", 1080),
        }
    }
}

impl ProxyLogin {
    /// Parses `user:password`, in which characters can be percent-encoded. A `%` that does not begin a valid escape is
    /// kept as it is.
    fn parse(text: &str) -> ProxyLogin {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        ProxyLogin { user: decode(user), password: Secret::exactly(decode(password)) }
    }
}

/// Returns `host:port`, with an IPv6 address in brackets.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The entries of `NO_PROXY`, in the forms that Go accepts. Each entry has its hosts and its port. `None`
/// means every port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NoProxy(Vec<(Hosts, Option<u16>)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    /// Every host. The entry of `NO_PROXY` is `*`.
    All,
    /// A range of IP addresses. The entry of `NO_PROXY` is a range like `10.0.0.0/8`, or a single address like
    /// `10.0.0.1`, which is a range of one address.
    Range(IpNet),
    /// The hosts below a domain, but not the domain itself. The entry of `NO_PROXY` is `.example.com` or
    /// `*.example.com`. The value is the domain with a dot in front.
    Below(String),
    /// A domain and the hosts below the domain. The entry of `NO_PROXY` is the domain, e.g. `example.com`.
    Domain(String),
}

impl NoProxy {
    /// Parses the value of `NO_PROXY`. An entry that Go does not understand is ignored, as in Go.
    pub(super) fn parse(text: &str) -> NoProxy {
        NoProxy(text.split(',').filter_map(Hosts::parse).collect())
    }

    /// Whether a host is reached without a proxy, because `NO_PROXY` lists the host or because the host is this machine
    /// (`localhost` or a loopback address). `host` is a name, or an address without brackets.
    pub(super) fn covers(&self, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
            return true;
        }
        let mut entries = self.0.iter();
        entries.any(|(hosts, own)| own.is_none_or(|own| own == port) && hosts.covers(&host, ip))
    }
}

impl Hosts {
    fn parse(text: &str) -> Option<(Hosts, Option<u16>)> {
        let text = text.trim().to_ascii_lowercase();
        if text == "*" {
            return Some((Hosts::All, None));
        }
        let range = text.parse::<IpNet>().ok();
        let address =
            |text: &str| text.parse::<IpAddr>().ok().map(|ip| IpNet::from(ip.to_canonical()));
        if let Some(range) = range.or_else(|| address(&text)) {
            return Some((Hosts::Range(range), None));
        }
        let without_star = text.strip_prefix('*').filter(|rest| rest.starts_with('.'));
        let (host, port) = host_and_port(without_star.unwrap_or(&text)).ok()?;
        let hosts = match address(host) {
            Some(range) => Hosts::Range(range),
            None if host.starts_with('.') => Hosts::Below(host.to_owned()),
            None => Hosts::Domain(host.to_owned()),
        };
        Some((hosts, port))
    }

    fn covers(&self, host: &str, ip: Option<IpAddr>) -> bool {
        match (self, ip) {
            (Hosts::All, _) => true,
            (Hosts::Range(range), _) => ip.is_some_and(|ip| range.contains(&ip)),
            (_, Some(_)) => false,
            (Hosts::Below(suffix), None) => host.ends_with(suffix),
            (Hosts::Domain(domain), None) => {
                let rest = host.strip_suffix(domain);
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], url: &str) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        };
        let environment = ProxyEnvironment::read(variable)?;
        let chosen = environment.proxy_for(&url.parse().unwrap());
        Ok(chosen.map(|(proxy, variable)| format!("{variable}={proxy}")))
    }

    /// Each case has the environment variables, a URL, and the proxy that calls to this URL use.
    #[test]
    fn the_scheme_of_the_url_chooses_the_variable() {
        let (http, https) = (("HTTP_PROXY", "cache:3128"), ("HTTPS_PROXY", "gate:3128"));
        let lower = ("https_proxy", "lower:3128");
        let (via_http, via_https) =
            ("HTTP_PROXY=http://cache:3128", "HTTPS_PROXY=http://gate:3128");
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, Option<&'a str>);
        let cases: &[Case] = &[
            (&[], "https://api.hetzner.cloud/v1", None),
            (&[http], "https://api.hetzner.cloud/v1", None),
            (&[https], "http://10.0.0.1", None),
            (&[http, https], "https://api.hetzner.cloud/v1", Some(via_https)),
            (&[http, https], "http://10.0.0.1", Some(via_http)),
            (&[https, lower], "https://host", Some(via_https)),
            (&[("HTTPS_PROXY", ""), lower], "https://host", Some("https_proxy=http://lower:3128")),
            (&[https, ("NO_PROXY", "host")], "https://host", None),
            (&[https, ("no_proxy", "host")], "https://host", None),
            (
                &[https, ("NO_PROXY", "other"), ("no_proxy", "host")],
                "https://host",
                Some(via_https),
            ),
            (&[https, ("NO_PROXY", "host:443")], "https://host", None),
            (&[https, ("NO_PROXY", "host:443")], "https://host:6443", Some(via_https)),
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
            assert!(why.starts_with(&format!("{variable}: its scheme is not")), "{why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn a_proxy_as_go_takes_it() {
        for (text, shown, login) in [
            ("http://proxy:3128", "http://proxy:3128", None),
            ("proxy.example.com:3128", "http://proxy.example.com:3128", None),
            ("proxy", "http://proxy:80", None),
            ("10.0.0.1:8080", "http://10.0.0.1:8080", None),
            ("https://proxy/", "https://proxy:443", None),
            ("HTTP://Proxy:3128/path", "http://proxy:3128", None),
            ("http://proxy:", "http://proxy:80", None),
            ("socks5://[fd00::1]", "socks5://[fd00::1]:1080", None),
            ("socks5h://proxy:1081", "socks5://proxy:1081", None),
            (" http://u:p@proxy:3128 ", "http://proxy:3128", Some(("u", "p"))),
            ("u:p@proxy:3128", "http://proxy:3128", Some(("u", "p"))),
            ("http://u%40x:p%3a%2F@proxy", "http://proxy:80", Some(("u@x", "p:/"))),
            ("http://u:a:b@c@proxy", "http://proxy:80", Some(("u", "a:b@c"))),
            ("http://token@proxy", "http://proxy:80", Some(("token", ""))),
            ("http://u:a%@proxy", "http://proxy:80", Some(("u", "a%"))),
            ("http://u:a%+1@proxy", "http://proxy:80", Some(("u", "a%+1"))),
        ] {
            let proxy = Proxy::parse(text).unwrap();
            assert_eq!(proxy.to_string(), shown, "{text}");
            assert_eq!(format!("{proxy:?}"), shown, "{text}");
            let found = proxy.login.as_ref();
            let found = found.map(|login| (login.user.as_str(), login.password.expose()));
            assert_eq!(found, login, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, expected) in [
            ("", "the host is missing"),
            ("http://", "the host is missing"),
            ("http://user:hunter2@", "the host is missing"),
            ("http://user:hunter2@ho st", "the host has characters"),
            ("http://user:hunter2@host:99999", "the port must be a number from 1 to 65535"),
            ("http://user:hunter2@host:0", "the port must be a number from 1 to 65535"),
            ("http://[::1]3128", "the port must be a number from 1 to 65535"),
            ("http://[::g]:3128", "the text in [ ] is not an IPv6 address"),
            ("ftp://user:hunter2@host", "its scheme is not http, https, socks5 or socks5h"),
            ("socks4://host", "its scheme is not"),
            ("http://user:hunter2/3@host", "write %2F, %3F and %23"),
        ] {
            let why = Proxy::parse(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    const LIST: &str = "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, \
                        10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, \
                        2002:db8:a::45/64, with-port.org:8080, ,:80,[broken";

    /// Each case has a host, a port, and whether the host is reached without a proxy. There is one case for each rule
    /// of Go.
    #[test]
    fn no_proxy_means_what_it_means_to_go() {
        let cases = [
            ("localhost", 80, true),
            ("127.0.0.1", 80, true),
            ("127.0.0.2", 80, true),
            ("::1", 80, true),
            ("::ffff:127.0.0.1", 80, true),
            ("::2", 80, false),
            ("192.168.1.1", 80, true),
            ("192.168.1.1", 6443, true),
            ("192.168.1.2", 80, false),
            ("192.168.1.2", 81, true),
            ("192.168.1.3", 80, true),
            ("192.168.1.4", 80, false),
            ("10.0.0.2", 80, true),
            ("10.0.0.4", 80, false),
            ("2001:db8::52:0:1", 80, true),
            ("2001:db8::52:0:2", 80, false),
            ("2001:db8::52:0:2", 443, true),
            ("2001:db8::52:0:3", 80, true),
            ("2002:db8:a::123", 80, true),
            ("fe80::424b:c8be:1643:a1b6", 80, false),
            ("barbaz.net", 80, false),
            ("www.barbaz.net", 80, true),
            ("foobar.com", 80, true),
            ("FooBar.com", 80, true),
            ("www.foobar.com", 80, true),
            ("foofoobar.com", 80, false),
            ("baz.com", 80, false),
            ("localhost.net", 80, false),
            ("local.localhost", 80, false),
            ("barbarbaz.net", 80, false),
            ("wildcard.io", 80, false),
            ("nested.wildcard.io", 80, true),
            ("awildcard.io", 80, false),
            ("with-port.org", 8080, true),
            ("a.with-port.org", 8080, true),
            ("with-port.org", 80, false),
        ];
        let bypass = NoProxy::parse(LIST);
        for (host, port, expected) in cases {
            assert_eq!(bypass.covers(host, port), expected, "{host}:{port}");
        }
        // An entry for a domain never matches an IP address, even when the texts match. The entry `*` matches every
        // host.
        assert!(!NoProxy::parse("1.1, .1").covers("10.0.1.1", 80));
        assert!(NoProxy::parse("example.com, *").covers("10.0.1.1", 80));
        assert!(!NoProxy::parse("").covers("10.0.1.1", 80));
    }
}
