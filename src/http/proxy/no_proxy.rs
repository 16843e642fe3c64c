//! `NO_PROXY`: the hosts that are reached without a proxy.

use crate::text::host_and_port;
use ipnet::IpNet;
use std::net::IpAddr;

/// Entries separated by commas, in the forms that Go takes, each with its port; none: every port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NoProxy(Vec<(Hosts, Option<u16>)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    /// `*`
    All,
    /// `10.0.0.0/8`, and `10.0.0.1` as a range of one address.
    Range(IpNet),
    /// `.example.com` and `*.example.com`, with a dot in front.
    Below(String),
    /// `example.com`: itself too.
    Domain(String),
}

impl NoProxy {
    /// What is none of the forms means no host, as in Go.
    pub(super) fn parse(text: &str) -> NoProxy {
        NoProxy(text.split(',').filter_map(Hosts::parse).collect())
    }

    /// A host's name or its address without brackets. This machine itself is always covered.
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
        let address = |text: &str| {
            text.parse::<IpAddr>()
                .ok()
                .map(|ip| IpNet::from(ip.to_canonical()))
        };
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
mod tests {
    use super::*;

    const LIST: &str = "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, \
                        10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, \
                        2002:db8:a::45/64, with-port.org:8080, ,:80,[broken";

    /// Host, port, and whether it is reached without a proxy: Go's own rules, each once.
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
        // An address is no domain, and a star covers everything.
        assert!(!NoProxy::parse("1.1, .1").covers("10.0.1.1", 80));
        assert!(NoProxy::parse("example.com, *").covers("10.0.1.1", 80));
        assert!(!NoProxy::parse("").covers("10.0.1.1", 80));
    }
}
