//! Tables of endpoint slices: their first ports and addresses.

use serde_json::{Value, json};

use super::{AGE, Column, NAME, items, text};

pub(super) const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    Column { name: "AddressType", priority: 0, description: "IPv4, IPv6 or FQDN." },
    Column { name: "Ports", priority: 0, description: "First ports of the endpoints." },
    Column { name: "Endpoints", priority: 0, description: "First addresses of the endpoints." },
    AGE,
];

/// The largest number of ports, and of addresses, that a row shows.
const MOST_SHOWN: usize = 3;

pub(super) fn endpoint_slice(slice: &Value, name: &Value, age: &str) -> Value {
    let ports = items(&slice["ports"]).iter();
    let ports = ports.map(|port| port["port"].as_i64().map_or("*".into(), |port| port.to_string()));
    let addresses = items(&slice["endpoints"]).iter().flat_map(|one| items(&one["addresses"]));
    let addresses = addresses.map(|address| text(address).to_owned());
    json!([name, text(&slice["addressType"]), shown(ports), shown(addresses), age])
}

fn shown(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.collect();
    match texts.len() {
        0 => "<unset>".into(),
        count if count > MOST_SHOWN => {
            let first = texts[..MOST_SHOWN].join(",");
            format!("{first} + {} more...", count - MOST_SHOWN)
        }
        _ => texts.join(","),
    }
}
