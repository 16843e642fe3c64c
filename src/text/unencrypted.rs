//! Which base URLs send what is secret over a network without TLS.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The setting that allows it, for messages.
pub const ALLOWED_BY: &str = "HCLOUD_ALLOW_INSECURE_ENDPOINT";

/// What is wrong with such a URL; `what`: the secret that is sent there.
pub fn why(what: &str) -> String {
    format!(
        "without TLS anyone on the way reads the {what}; use https://, or set {ALLOWED_BY}=true where the way is yours"
    )
}

/// `http://` to another machine than this one. What can't be read counts as another machine.
pub fn leaves_unencrypted(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    scheme.eq_ignore_ascii_case("http") && !is_this_machine(host(authority))
}

/// 127.0.0.0/8, ::1 and `localhost`: no packet to them leaves the machine.
pub fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

/// Without brackets, port and user.
fn host(authority: &str) -> &str {
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_is_no_host() {
        for (url, expected) in [
            ("http://localhost@api.example.com/", true),
            ("http://api.example.com@localhost/", false),
            ("http://127.0.0.1?@api.example.com", false),
            ("HTTP://10.0.0.1", true),
            ("http://", true),
            ("http://[::1", false),
            ("https://api.example.com", false),
        ] {
            assert_eq!(leaves_unencrypted(url), expected, "{url}");
        }
    }
}
