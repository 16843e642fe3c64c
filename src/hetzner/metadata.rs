//! The metadata service: what the server that we run on may ask about itself. It is on every
//! cloud server, on no other machine, and never behind a proxy.

use super::networks::Network;
use crate::http;
use crate::provider::{Attached, Error, ErrorKind};
use crate::text;
use serde::Deserialize;
use std::time::Duration;

/// Where it is on every server; link-local, so on this one.
pub const METADATA_ENDPOINT: &str = "http://169.254.169.254/hetzner/v1/metadata";

/// It answers from the same host; where there is none, the wait must be short.
const TIMEOUT: Duration = Duration::from_secs(2);

/// One of `/private-networks`.
#[derive(Deserialize)]
struct Attachment {
    network_id: u64,
    #[serde(default)]
    network_name: String,
}

/// Is this machine in the Network? Where that is not known, it is logged and counts as yes:
/// all our work is done through the two APIs, and the check finds a slip in a setting, no more.
pub(super) fn check_attached(endpoint: &str, network: &Network) -> Result<(), Error> {
    let there = match attached(endpoint, network) {
        Attached::Yes => return Ok(()),
        Attached::No(there) => there,
        Attached::Unknown(why) => {
            log::warn!(
                "not checked whether this machine is attached to the Network {} ({}): the metadata service at \
                 {endpoint} can't be asked ({why}). That is so outside of Hetzner Cloud, and where a network policy \
                 forbids it; HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true silences this",
                network.name,
                network.id
            );
            return Ok(());
        }
    };
    Err(Error::new(
        ErrorKind::Misconfigured,
        format!(
            "HCLOUD_NETWORK: this machine is not attached to the Network {} ({}), but to {there}; attach it, correct \
             HCLOUD_NETWORK, or set HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true if it need not be",
            network.name, network.id
        ),
    ))
}

/// What the metadata service says about it.
pub(super) fn attached(endpoint: &str, network: &Network) -> Attached {
    let attached = match attachments(endpoint) {
        Ok(attached) => attached,
        Err(why) => return Attached::Unknown(why),
    };
    if attached.iter().any(|there| there.network_id == network.id) {
        return Attached::Yes;
    }
    let there: Vec<String> = attached
        .iter()
        .map(|there| format!("{} ({})", there.network_name, there.network_id))
        .collect();
    Attached::No(match there.is_empty() {
        true => "none".to_owned(),
        false => text::some_of(&there),
    })
}

fn attachments(endpoint: &str) -> Result<Vec<Attachment>, String> {
    let text = http::fetch_text(&format!("{endpoint}/private-networks"), TIMEOUT)?;
    // Nothing at all is no list: whatever answers there may not know.
    match serde_yaml::from_str(&text) {
        Ok(Some(attachments)) => Ok(attachments),
        Ok(None) => Err("it answered nothing".to_owned()),
        Err(_) => Err("what answers there is not Hetzner's".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// What is answered, and what is made of it.
    #[test]
    fn only_hetzners_own_answer_counts() {
        let list =
            "- ip: 10.0.0.2\n  alias_ips: []\n  network_id: 42\n  network_name: \"net: 1\"\n";
        let other = list.replace("42", "420");
        let cases = [
            ("200 OK", list, Ok(())),
            ("200 OK", &other, Err("but to net: 1 (420); attach it")),
            ("200 OK", "[]\n", Err("but to none; attach it")),
            ("200 OK", "", Ok(())),
            ("200 OK", "null\n", Ok(())),
            ("200 OK", "# no networks\n", Ok(())),
            ("200 OK", "<html><body>Welcome</body></html>", Ok(())),
            ("200 OK", "instance-id: 42", Ok(())),
            ("404 Not Found", "", Ok(())),
            ("302 Found", list, Ok(())),
        ];
        let network: Network = serde_yaml::from_str(
            "{id: 42, name: net, ip_range: 10.0.0.0/8, subnets: [], routes: []}",
        )
        .unwrap();
        for (status, body, expected) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let count = stream.read(&mut request).unwrap();
                assert!(request[..count].starts_with(b"GET /v1/private-networks HTTP/1.1"));
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let outcome = check_attached(&endpoint, &network).map_err(|error| error.to_string());
            server.join().unwrap();
            match expected {
                Ok(()) => assert_eq!(outcome, Ok(()), "{status} {body}"),
                Err(part) => assert!(
                    outcome.clone().is_err_and(|why| why.contains(part)),
                    "{outcome:?}"
                ),
            }
        }
        assert!(
            check_attached("http://127.0.0.1:1", &network).is_ok(),
            "no service"
        );
    }
}
