//! The private Network in the setting `HCLOUD_NETWORK`, and its routes. The Network is looked up once, by its ID or
//! name. Each change adds or deletes one route. Hetzner's metadata service says whether this machine is attached to the
//! Network.

use super::actions::ApiAction;
use super::api::{Api, Resource};
use crate::http::{self, Method};
use crate::provider::clock::Moment;
use crate::provider::variables::{HCLOUD_NETWORK, HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK};
use crate::provider::{
    self, Applied, Attached, ErrorKind, NetworkSelector, ProviderError, Route, RouteChange, Urgency,
};
use crate::text;
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// A private Network, as the API describes it. An answer without one of the fields is an error, except for fields with
/// a default.
#[derive(Deserialize)]
pub(super) struct ApiNetwork {
    pub(super) id: u64,
    pub(super) name: String,
    ip_range: Ipv4Net,
    pub(super) subnets: Vec<Subnet>,
    routes: Vec<Written>,
    #[serde(default)]
    expose_routes_to_vswitch: bool,
    /// The time at which the Network was read from the API.
    #[serde(skip, default = "Moment::now")]
    pub(super) read: Moment,
}

/// A subnet of a Network. It belongs to one network zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    #[serde(rename = "type")]
    pub kind: String,
    pub ip_range: Ipv4Net,
    pub network_zone: String,
}

impl ApiNetwork {
    /// Returns the Network for messages, as `name (id)`.
    pub(super) fn shown(&self) -> String {
        format!("{} ({})", self.name, self.id)
    }

    /// Whether dedicated servers in the Network's vSwitch can use the routes of the Network. `None` means that no
    /// vSwitch is connected to the Network.
    pub(super) fn exposes_routes(&self) -> Option<bool> {
        self.subnets.iter().any(Subnet::is_of_vswitch).then_some(self.expose_routes_to_vswitch)
    }
}

impl Subnet {
    /// Whether this is the subnet of a vSwitch, which connects dedicated servers.
    pub(super) fn is_of_vswitch(&self) -> bool {
        self.kind == "vswitch"
    }
}

impl Resource for ApiNetwork {
    const LIST: &'static str = "networks";
    fn id(&self) -> u64 {
        self.id
    }
}

/// Finds the Network that the settings name by its ID or name. All Networks of the project are read, so that the error
/// can list them.
pub(super) fn find(api: &Api, selector: &NetworkSelector) -> Result<ApiNetwork, ProviderError> {
    let networks = api.list::<ApiNetwork>("", Urgency::Needed)?;
    let there = match networks.as_slice() {
        [] => "this project has no Network. Create one, or use an API token of another project"
            .to_owned(),
        some => {
            let shown: Vec<String> = some.iter().map(ApiNetwork::shown).collect();
            format!("this project has {}", text::some_of(&shown))
        }
    };
    let is_it = |network: &ApiNetwork| match selector {
        NetworkSelector::Id(id) => network.id == *id,
        NetworkSelector::Name(name) => network.name == *name,
    };
    let missing = || format!("{HCLOUD_NETWORK}: there is no Network {selector}; {there}");
    let found = networks.into_iter().find(is_it);
    found.ok_or_else(|| ProviderError::new(ErrorKind::Misconfigured, missing()))
}

/// The highest number of routes that a Network can have.
const ROUTES_AT_MOST: usize = 100;

/// A route, as the API describes it.
#[derive(Deserialize)]
struct Written {
    destination: String,
    gateway: String,
}

#[derive(Deserialize)]
struct Begun {
    action: ApiAction,
}

/// Reads the Network and its routes from the API.
pub(super) fn routes(
    api: &Api,
    id: u64,
    urgency: Urgency,
) -> Result<provider::Network, ProviderError> {
    let network: ApiNetwork = api.one(id, urgency)?;
    let routes: Vec<Route> = network.routes.iter().filter_map(Written::read).collect();
    Ok(provider::Network {
        id,
        name: network.name,
        range: Some(network.ip_range),
        subnets: network.subnets.iter().map(|subnet| subnet.ip_range).collect(),
        other_routes: network.routes.len() - routes.len(),
        routes,
        routes_at_most: ROUTES_AT_MOST,
    })
}

/// Adds or deletes a route. A request names both the destination and the gateway of the route, so no other route can be
/// deleted by mistake.
pub(super) fn change_route(
    api: &Api,
    id: u64,
    change: &RouteChange,
) -> Result<Applied, ProviderError> {
    let command = if change.is_deletion { "delete_route" } else { "add_route" };
    let path = format!("/networks/{id}/actions/{command}");
    let body = json!({
        "destination": change.route.destination.to_string(),
        "gateway": change.route.gateway.to_string(),
    });
    match api.write(Method::Post, &path, Some(&body), &[]) {
        Ok(Begun { action }) => Ok(action.running()?.map_or(Applied::Done, Applied::Running)),
        // The route does not exist any more. Somebody else deleted it, or an earlier attempt did.
        Err(failed) if change.is_deletion && failed.error.kind == ErrorKind::NotFound => {
            Ok(Applied::Done)
        }
        Err(failed) => Err(failed.error),
    }
}

impl Written {
    /// Returns the route. `None` when the destination is not an IPv4 range, or the gateway is not an IPv4 address.
    fn read(&self) -> Option<Route> {
        Some(Route {
            destination: self.destination.parse().ok()?,
            gateway: self.gateway.parse().ok()?,
        })
    }
}

/// The URL of Hetzner's metadata service, which tells a cloud server about itself. The address is link-local, so only
/// cloud servers can reach the service. Requests to this URL never use a proxy.
pub const METADATA_ENDPOINT: &str = "http://169.254.169.254/hetzner/v1/metadata";

/// The timeout for the metadata service, in real time even in tests with a simulated clock. The service is on the same
/// host, so it answers quickly. A machine that has no such service should not wait for long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// One private Network in the metadata service's answer to `/private-networks`.
#[derive(Default)]
struct Attachment {
    network_id: u64,
    network_name: String,
}

/// Returns an error when this machine is not attached to the Network, because the settings are then probably wrong.
/// This program itself does not need the attachment. So when the metadata service can't be asked, a warning is logged,
/// and the result is success.
pub(super) fn check_attached(endpoint: &str, network: &ApiNetwork) -> Result<(), ProviderError> {
    let there = match attached(endpoint, network) {
        Attached::Yes => return Ok(()),
        Attached::No(there) => there,
        Attached::Unknown(why) => {
            log::warn!(
                "ccm could not check whether this machine is attached to the Network {} ({}): the metadata service at \
                 {endpoint} gave no usable answer ({why}). This is normal outside of Hetzner Cloud, and where a \
                 network policy forbids the call; {HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK}=true switches the check off",
                network.name,
                network.id
            );
            return Ok(());
        }
    };
    let why = format!(
        "{HCLOUD_NETWORK}: this machine is attached to {there}, but should be attached to the Network {} ({}); attach \
         the machine, correct {HCLOUD_NETWORK}, or set {HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK}=true if the machine need \
         not be attached",
        network.name, network.id
    );
    Err(ProviderError::new(ErrorKind::Misconfigured, why))
}

/// Asks the metadata service whether this machine is attached to the Network.
pub(super) fn attached(endpoint: &str, network: &ApiNetwork) -> Attached {
    let text = http::fetch_text(&format!("{endpoint}/private-networks"), TIMEOUT);
    let foreign = || "the answer does not come from Hetzner's metadata service".to_owned();
    let attached = match text.and_then(|text| attachments_in(&text).ok_or_else(foreign)) {
        Ok(attached) => attached,
        Err(why) => return Attached::Unknown(why),
    };
    if attached.iter().any(|there| there.network_id == network.id) {
        return Attached::Yes;
    }
    let shown = |there: &Attachment| format!("{} ({})", there.network_name, there.network_id);
    let there: Vec<String> = attached.iter().map(shown).collect();
    Attached::No(if there.is_empty() { "no Network".to_owned() } else { text::some_of(&there) })
}

/// Parses the answer of the metadata service, a YAML list of flat maps, and reads only two keys of each map. No full
/// YAML parser is used for this text from outside: YAML can refer to itself, so a short text can need very much memory.
/// `None` when the text is not such a list.
fn attachments_in(text: &str) -> Option<Vec<Attachment>> {
    let mut all = Vec::new();
    for line in text.lines() {
        let first = line.strip_prefix("- ");
        all.extend(first.map(|_| Attachment::default()));
        match (first.unwrap_or(line).trim().split_once(": "), all.last_mut()) {
            (Some(("network_id", id)), Some(attachment)) => {
                attachment.network_id = id.parse().ok()?;
            }
            (Some(("network_name", name)), Some(attachment)) => {
                attachment.network_name = name.trim_matches(['"', '\'']).to_owned();
            }
            _ => {}
        }
    }
    let is_list = !all.is_empty() || text.trim() == "[]";
    (is_list && all.iter().all(|attachment| attachment.network_id != 0)).then_some(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Each case has the status and the body of an answer of the metadata service, and the result of the check whether
    /// this machine is attached to Network 42. Only a list of Networks without Network 42 makes the check fail.
    #[test]
    fn only_hetzners_own_answer_counts() {
        let list = "- ip: 10.0.0.2\n  alias_ips:\n  - 10.0.0.3\n  network_id: 42\n  network_name: \"net: 1\"\n";
        let other = list.replace("42", "420");
        let cases = [
            ("200 OK", list, Ok(())),
            ("200 OK", &other, Err("is attached to net: 1 (420), but should be")),
            ("200 OK", "[]\n", Err("is attached to no Network, but should be")),
            ("200 OK", "", Ok(())),
            ("200 OK", "null\n", Ok(())),
            ("200 OK", "# no networks\n", Ok(())),
            ("200 OK", "<html><body>Welcome</body></html>", Ok(())),
            ("200 OK", "instance-id: 42", Ok(())),
            ("200 OK", "- ip: 10.0.0.2\n", Ok(())),
            ("200 OK", "- network_id: many\n", Ok(())),
            ("404 Not Found", "", Ok(())),
            ("302 Found", list, Ok(())),
        ];
        let network =
            r#"{"id": 42, "name": "net", "ip_range": "10.0.0.0/8", "subnets": [], "routes": []}"#;
        let network: ApiNetwork = serde_json::from_str(network).unwrap();
        for (status, body, expected) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
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
                Err(part) => {
                    assert!(outcome.clone().is_err_and(|why| why.contains(part)), "{outcome:?}")
                }
            }
        }
        assert!(check_attached("http://127.0.0.1:1", &network).is_ok(), "no service");
    }
}
