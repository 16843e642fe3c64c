//! Parses values that people write on a command line, in a variable or in an annotation: booleans, counts, IP ranges,
//! names and base URLs.

use ipnet::Ipv4Net;
use std::net::{IpAddr, Ipv6Addr};

/// Parses a boolean in one of the forms that Go's `strconv.ParseBool` accepts, e.g. `true` or `1`.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// Parses a whole number that must be at least 1.
pub fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("use a whole number of 1 or more".to_owned()),
    }
}

/// Parses an IPv4 range. An address within the range is accepted, too: `10.0.1.7/24` becomes `10.0.1.0/24`.
pub fn ip_range(text: &str) -> Result<Ipv4Net, String> {
    let range = text.parse::<Ipv4Net>().map_err(|_| "use an IP range, e.g. 10.0.1.0/24")?;
    Ok(range.trunc())
}

/// Whether Kubernetes accepts the text as a DNS subdomain (RFC 1123), e.g. `example.com`.
pub fn is_subdomain(text: &str) -> bool {
    // Each part between dots can be longer than the 63 characters of a DNS label, because Kubernetes limits only the
    // length of the whole text.
    text.len() <= 253 && text.split('.').all(has_label_form)
}

/// Whether Kubernetes accepts the text as a DNS label (RFC 1123), e.g. `web-1`.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && has_label_form(text)
}

/// Whether Kubernetes and the Cloud API accept the text as the key of a label. A key is a name, or a domain and a name
/// with a slash between them.
pub fn is_label_key(text: &str) -> bool {
    let (domain, name) =
        text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Whether Kubernetes and the Cloud API accept the text as the value of a label. The empty text is accepted.
pub fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

fn has_label_form(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
        && bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
}

/// Parses an `http` or `https` URL, and removes slashes at its end, so that paths can be appended to it. The error does
/// not repeat the text, because the text may contain a password.
pub fn base_url(text: &str) -> Result<String, &'static str> {
    if text.contains(|c: char| c.is_control() || c.is_whitespace() || !c.is_ascii()) {
        return Err("a URL must have only ASCII characters and no white space");
    }
    let (scheme, rest) =
        text.split_once("://").ok_or("write a complete URL, e.g. https://api.example.com")?;
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "http" && scheme != "https" {
        return Err("use http:// or https://");
    }
    if rest.contains(['?', '#']) {
        return Err("a base URL must have no query (from ? on) and no fragment (from # on)");
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("leave out the user name and password");
    }
    host_and_port(authority)?;
    Ok(format!("{scheme}://{authority}{path}").trim_end_matches('/').to_owned())
}

/// Whether a request to this URL leaves this machine without encryption. This is the case when the URL begins with
/// `http://` and its host is another machine. A host that can't be parsed counts as another machine.
pub fn leaves_unencrypted(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_here = host_and_port(host).is_ok_and(|(host, _)| is_this_machine(host));
    scheme.eq_ignore_ascii_case("http") && !is_here
}

/// Whether the host is this machine, because it is a loopback address or `localhost`. Packets to such a host do not
/// leave the machine.
pub fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Parses `host`, `host:port` or `[IPv6]:port`. Returns the host without brackets, and the port. As in Go, a colon
/// without a port is accepted and means no port. The error does not repeat the text, because the text may contain a
/// password.
pub fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())
            .ok_or("the text in [ ] is not an IPv6 address")?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    match host.chars().all(is_allowed) {
        _ if host.is_empty() => return Err("the host is missing"),
        true => {}
        false => return Err("the host has characters that are not allowed in a host name"),
    }
    match (port, port.strip_prefix(':').map(str::parse::<u16>)) {
        ("" | ":", _) => Ok((host, None)),
        (port_text, Some(Ok(port @ 1..))) if !port_text.contains('+') => Ok((host, Some(port))),
        _ => Err("the port must be a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port() {
        for (text, expected) in [
            ("host", Ok(("host", None))),
            ("host:", Ok(("host", None))),
            ("10.0.0.1:6443", Ok(("10.0.0.1", Some(6443)))),
            ("[fd00::1]", Ok(("fd00::1", None))),
            ("[fd00::1]:80", Ok(("fd00::1", Some(80)))),
            ("", Err("the host is missing")),
            (":443", Err("the host is missing")),
            ("ho%20st", Err("the host has characters that are not allowed in a host name")),
            ("[::g]", Err("the text in [ ] is not an IPv6 address")),
            ("[::1", Err("the text in [ ] is not an IPv6 address")),
            ("[::1]443", Err("the port must be a number from 1 to 65535")),
            ("host:0", Err("the port must be a number from 1 to 65535")),
            ("host:+1", Err("the port must be a number from 1 to 65535")),
            ("host:65536", Err("the port must be a number from 1 to 65535")),
        ] {
            assert_eq!(host_and_port(text), expected, "{text}");
        }
    }

    #[test]
    fn a_user_name_is_no_host() {
        for (url, expected) in [
            ("http://localhost@api.example.com/", true),
            ("http://api.example.com@localhost/", false),
            ("http://127.0.0.1?@api.example.com", false),
            ("HTTP://10.0.0.1", true),
            ("http://", true),
            ("http://[::1]", false),
            ("http://[::1", true),
            ("https://api.example.com", false),
        ] {
            assert_eq!(leaves_unencrypted(url), expected, "{url}");
        }
    }
}
