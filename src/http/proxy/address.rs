//! A proxy's address.

use super::super::secret::Secret;
use crate::text::host_and_port;
use percent_encoding::percent_decode_str;
use std::fmt;

/// The field of a kubeconfig that names a proxy.
pub(super) const PROXY_URL: &str = "proxy-url";

/// Go's own order of trying: a URL first, and `host:port` is an HTTP proxy.
const FORMS: &str = "write it like http://proxy.example.com:3128, https://… or socks5://…, with user:password@ before the host if needed";

/// A proxy, with the login it wants. Shown without the login.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub protocol: Protocol,
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
    pub(super) login: Option<Login>,
}

/// The protocol that a proxy is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `CONNECT` of HTTP.
    Http,
    /// `CONNECT` of HTTP, over TLS.
    Https,
    /// SOCKS 5 (RFC 1928). The proxy resolves names, whether it is written `socks5` or `socks5h`: so does Go.
    Socks5,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: Secret,
}

impl Proxy {
    /// `scheme://[user[:password]@]host[:port]`; without a scheme it is an HTTP proxy. The error
    /// repeats nothing of what was given: there may be a password in it.
    pub fn parse(text: &str) -> Result<Proxy, String> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let protocol = match scheme.to_ascii_lowercase().as_str() {
            "http" => Protocol::Http,
            "https" => Protocol::Https,
            "socks5" | "socks5h" => Protocol::Socks5,
            _ => {
                return Err(format!(
                    "its scheme is none of http, https, socks5 and socks5h; {FORMS}"
                ));
            }
        };
        // A path says nothing about a proxy; Go does not read it either.
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // What is not escaped in a password may be cut in two by that.
        if rest.len() > authority.len() && rest[authority.len()..].contains('@') {
            return Err(format!(
                "a user name or password with one of / ? # in it is written with %2F, %3F, %23; {FORMS}"
            ));
        }
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(Login::parse(login)), address),
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

impl Protocol {
    /// With the port where none is written.
    fn scheme_and_port(self) -> (&'static str, u16) {
        match self {
            Protocol::Http => ("http", 80),
            Protocol::Https => ("https", 443),
            Protocol::Socks5 => ("socks5", 1080),
        }
    }
}

impl Login {
    /// A `%` that begins no escape is itself.
    fn parse(text: &str) -> Login {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Login {
            user: decode(user),
            password: Secret::exactly(decode(password)),
        }
    }
}

/// `host:port`, an IPv6 address in brackets.
pub(super) fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_as_go_takes_it() {
        for (text, shown, login) in [
            ("http://proxy:3128", "http://proxy:3128", None),
            (
                "proxy.example.com:3128",
                "http://proxy.example.com:3128",
                None,
            ),
            ("proxy", "http://proxy:80", None),
            ("10.0.0.1:8080", "http://10.0.0.1:8080", None),
            ("https://proxy/", "https://proxy:443", None),
            ("HTTP://Proxy:3128/path", "http://proxy:3128", None),
            ("http://proxy:", "http://proxy:80", None),
            ("socks5://[fd00::1]", "socks5://[fd00::1]:1080", None),
            ("socks5h://proxy:1081", "socks5://proxy:1081", None),
            (
                " http://u:p@proxy:3128 ",
                "http://proxy:3128",
                Some(("u", "p")),
            ),
            ("u:p@proxy:3128", "http://proxy:3128", Some(("u", "p"))),
            (
                "http://u%40x:p%3a%2F@proxy",
                "http://proxy:80",
                Some(("u@x", "p:/")),
            ),
            (
                "http://u:a:b@c@proxy",
                "http://proxy:80",
                Some(("u", "a:b@c")),
            ),
            ("http://token@proxy", "http://proxy:80", Some(("token", ""))),
            ("http://u:a%@proxy", "http://proxy:80", Some(("u", "a%"))),
            (
                "http://u:a%+1@proxy",
                "http://proxy:80",
                Some(("u", "a%+1")),
            ),
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
            (
                "http://user:hunter2@host:99999",
                "the port is a number from 1 to 65535",
            ),
            (
                "http://user:hunter2@host:0",
                "the port is a number from 1 to 65535",
            ),
            ("http://[::1]3128", "the port is a number from 1 to 65535"),
            ("http://[::g]:3128", "what is in [ ] is no IPv6 address"),
            (
                "ftp://user:hunter2@host",
                "its scheme is none of http, https, socks5 and socks5h",
            ),
            ("socks4://host", "its scheme is none of"),
            ("http://user:hunter2/3@host", "with one of / ? # in it"),
        ] {
            let why = Proxy::parse(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
