//! Base URLs of APIs: scheme, host, port and path, nothing else.

use crate::text::unencrypted;
use std::fmt;
use std::net::Ipv6Addr;

/// An `http` or `https` URL without a slash at its end, to which paths can be appended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url(String);

impl Url {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is secret is read on the way there.
    pub fn leaves_unencrypted(&self) -> bool {
        unencrypted::leaves_unencrypted(&self.0)
    }

    pub(super) fn parse(text: &str) -> Result<Url, String> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace() || !c.is_ascii()) {
            return Err("a URL has no white space and only ASCII characters".to_owned());
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("write a whole URL, e.g. https://api.example.com".to_owned());
        };
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err("use http:// or https://".to_owned());
        }
        if rest.contains(['?', '#']) {
            return Err("a base URL has no query and no fragment".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("leave out the user name and password".to_owned());
        }
        check_authority(authority)?;
        Ok(Url(format!(
            "{scheme}://{authority}{}",
            path.trim_end_matches('/')
        )))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// What a message may repeat of something that should have been a URL: whatever may be a password
/// or a token in it is left out.
pub(super) fn without_credentials(text: &str) -> String {
    let (text, query) = match text.split_once(['?', '#']) {
        Some((before, _)) => (before, "?…"),
        None => (text, ""),
    };
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}{query}"),
        (None, Some((_, host))) => format!("…@{host}{query}"),
        (_, None) => format!("{text}{query}"),
    }
}

fn check_authority(authority: &str) -> Result<(), String> {
    let (host, port) = match authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((address, port)) => {
            if address.parse::<Ipv6Addr>().is_err() {
                return Err(format!("{address:?} is no IPv6 address"));
            }
            (
                address,
                port.strip_prefix(':').or(port.is_empty().then_some("")),
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, Some("")),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !authority.starts_with('[') && !host.chars().all(allowed) {
        return Err(format!("{host:?} is no host name"));
    }
    match port {
        Some("") if !authority.ends_with(':') => Ok(()),
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(()),
        _ => Err("the port is a number from 1 to 65535".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_loses_only_its_last_slashes() {
        for (text, url) in [
            (
                "https://api.hetzner.cloud/v1",
                "https://api.hetzner.cloud/v1",
            ),
            (
                "https://api.hetzner.cloud/v1//",
                "https://api.hetzner.cloud/v1",
            ),
            ("HTTP://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("https://[fd00::1]", "https://[fd00::1]"),
            (
                "https://host.example/k8s/clusters/c-1",
                "https://host.example/k8s/clusters/c-1",
            ),
        ] {
            assert_eq!(Url::parse(text), Ok(Url(url.to_owned())), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for (text, message) in [
            (
                "api.hetzner.cloud/v1",
                "write a whole URL, e.g. https://api.example.com",
            ),
            ("ftp://host", "use http:// or https://"),
            ("https://", "the host is missing"),
            ("https:///v1", "the host is missing"),
            ("https://:443", "the host is missing"),
            (
                "https://host/v1?a=b",
                "a base URL has no query and no fragment",
            ),
            (
                "https://host#top",
                "a base URL has no query and no fragment",
            ),
            (
                "https://user:password@host",
                "leave out the user name and password",
            ),
            ("https://host:", "the port is a number from 1 to 65535"),
            ("https://host:0", "the port is a number from 1 to 65535"),
            ("https://host:65536", "the port is a number from 1 to 65535"),
            ("https://[::1]443", "the port is a number from 1 to 65535"),
            ("https://[::g]", "\"::g\" is no IPv6 address"),
            ("https://ho%20st", "\"ho%20st\" is no host name"),
            (
                "https://ho st",
                "a URL has no white space and only ASCII characters",
            ),
        ] {
            assert_eq!(Url::parse(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_message_repeats_no_credentials() {
        for (text, shown) in [
            ("https://host/v1", "https://host/v1"),
            ("https://user:password@host/v1", "https://…@host/v1"),
            ("https://user:p@ss/w@rd@host", "https://…@host"),
            ("user:password@host", "…@host"),
            ("https://host?token=secret", "https://host?…"),
        ] {
            assert_eq!(without_credentials(text), shown, "{text}");
        }
    }
}
