//! Where a server of ours listens.

use std::net::{IpAddr, SocketAddr};

/// An address as Go's `net.Listen` takes it, without host names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// None: every address of the machine, IPv6 and IPv4.
    pub ip: Option<IpAddr>,
    /// 0: any free one.
    pub port: u16,
}

impl ListenAddress {
    /// `:8233`, `0.0.0.0:8233`, `[::1]:8233`; an empty text means not to listen at all.
    pub(super) fn parse(text: &str) -> Result<Option<ListenAddress>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let address = match text.strip_prefix(':') {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
                .parse()
                .ok()
                .map(|port| ListenAddress { ip: None, port }),
            Some(_) => None,
            None => text
                .parse::<SocketAddr>()
                .ok()
                .map(|address| ListenAddress {
                    ip: Some(address.ip()),
                    port: address.port(),
                }),
        };
        address.map(Some).ok_or_else(|| {
            "write :PORT or IP:PORT, e.g. :8233, 127.0.0.1:8233 or [::1]:8233".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_s_forms_are_read() {
        for (text, ip, port) in [
            (":8233", None, 8233),
            (":0", None, 0),
            ("0.0.0.0:8233", Some("0.0.0.0"), 8233),
            ("127.0.0.1:0", Some("127.0.0.1"), 0),
            ("[::]:8233", Some("::"), 8233),
            ("[fd00::1]:65535", Some("fd00::1"), 65535),
        ] {
            let ip = ip.and_then(|ip| ip.parse().ok());
            let expected = ListenAddress { ip, port };
            assert_eq!(ListenAddress::parse(text), Ok(Some(expected)), "{text}");
        }
        assert_eq!(ListenAddress::parse(""), Ok(None));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "8233",
            ":",
            ":+1",
            ":-1",
            ":65536",
            ":http",
            "127.0.0.1",
            "127.0.0.1:",
            "::1:8233",
            "[::1]",
            "localhost:8233",
            " :8233",
            "http://127.0.0.1:8233",
        ] {
            assert!(ListenAddress::parse(text).is_err(), "{text}");
        }
    }
}
