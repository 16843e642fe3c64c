//! `NO_PROXY`: the hosts that are reached without a proxy.

use ipnet::IpNet;
use std::net::IpAddr;

/// Entries separated by commas, in the forms that Go takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NoProxy(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// `*`
    Everything,
    /// `10.0.0.0/8`
    Range(IpNet),
    /// `10.0.0.1`, `10.0.0.1:443`, `[fd00::1]:443`
    Address(IpAddr, Option<String>),
    Domain {
        /// With a dot in front.
        suffix: String,
        /// `example.com` means itself too; `.example.com` and `*.example.com` do not.
        itself: bool,
        port: Option<String>,
    },
}

impl NoProxy {
    /// What is none of the forms means no host, as in Go.
    pub(super) fn parse(text: &str) -> NoProxy {
        NoProxy(text.split(',').filter_map(Entry::parse).collect())
    }

    /// A host's name or its address without brackets. This machine itself is always covered.
    pub(super) fn covers(&self, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
            return true;
        }
        let port = port.to_string();
        self.0.iter().any(|entry| entry.covers(&host, ip, &port))
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Entry> {
        let text = text.trim().to_ascii_lowercase();
        if text == "*" {
            return Some(Entry::Everything);
        }
        if let Ok(range) = text.parse::<IpNet>() {
            return Some(Entry::Range(range));
        }
        let (host, port) = split_port(&text);
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Some(Entry::Address(ip.to_canonical(), port));
        }
        let host = match host.strip_prefix("*.") {
            // The dot stays.
            Some(_) => &host[1..],
            None => host,
        };
        if host.is_empty() {
            return None;
        }
        let itself = !host.starts_with('.');
        let dot = if itself { "." } else { "" };
        Some(Entry::Domain {
            suffix: format!("{dot}{host}"),
            itself,
            port,
        })
    }

    fn covers(&self, host: &str, ip: Option<IpAddr>, port: &str) -> bool {
        let is_port = |wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == port);
        match self {
            Entry::Everything => true,
            Entry::Range(range) => ip.is_some_and(|ip| range.contains(&ip)),
            Entry::Address(address, wanted) => ip == Some(*address) && is_port(wanted),
            Entry::Domain {
                suffix,
                itself,
                port,
            } => {
                let is_it = *itself && suffix.strip_prefix('.') == Some(host);
                ip.is_none() && (is_it || host.ends_with(suffix.as_str())) && is_port(port)
            }
        }
    }
}

/// `host:port` and `[address]:port`; anything else, an IPv6 address too, is all host.
fn split_port(text: &str) -> (&str, Option<String>) {
    let all = (text, None);
    let Some((host, port)) = text.rsplit_once(':') else {
        return all;
    };
    let host = match host.strip_prefix('[') {
        Some(inner) => match inner.strip_suffix(']') {
            Some(inner) => inner,
            None => return all,
        },
        None if host.contains(':') => return all,
        None => host,
    };
    (host, (!port.is_empty()).then(|| port.to_owned()))
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
