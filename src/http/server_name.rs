//! `tls-server-name`: the name that a server's certificate has to have, when it is not the URL's.
//!
//! Only TLS gets to see it: address, `Host`, proxies and the pool of connections go by the URL.

/// A host name or an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName(String);

impl ServerName {
    pub fn parse(name: &str) -> Result<ServerName, &'static str> {
        match rustls::pki_types::ServerName::try_from(name) {
            Ok(_) => Ok(ServerName(name.to_owned())),
            Err(_) => Err("is neither a host name nor an IP address"),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_a_certificate_can_have() {
        for (name, is_one) in [
            ("kubernetes", true),
            ("kubernetes.default.svc.", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("", false),
            ("a b", false),
            ("https://kubernetes", false),
            ("kubernetes:6443", false),
            ("käse", false),
            ("*.example.com", false),
        ] {
            assert_eq!(ServerName::parse(name).is_ok(), is_one, "{name:?}");
        }
    }
}
