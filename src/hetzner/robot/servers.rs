//! Dedicated servers: the fields we read of them, and as the contract's plain `Instance`.

use crate::provider::{Instance, InstanceId, Interned};
use ipnet::Ipv6Net;
use serde::Deserialize;
use std::collections::HashSet;
use std::net::Ipv6Addr;

/// A label's value has at most so many characters, the first and the last a letter or digit.
const LABEL_CHARACTERS: usize = 63;

/// One of `GET /server`, and `GET /server/{number}`.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) server: Server,
}

/// Texts that are not known yet, as of a server that is being set up, may be null.
#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub(super) server_number: u64,
    server_name: Option<String>,
    server_ip: Option<String>,
    /// Without its length, which is 64.
    server_ipv6_net: Option<String>,
    product: Option<String>,
    dc: Option<String>,
    status: Option<String>,
    #[serde(default)]
    cancelled: bool,
    paid_until: Option<String>,
}

/// All of a list. The error: what is wrong with it.
pub(super) fn instances(entries: Vec<Entry>) -> Result<Vec<Instance>, String> {
    let mut seen = HashSet::new();
    let read = |entry: Entry| {
        let number = entry.server.server_number;
        if !seen.insert(number) {
            return Err(format!("server {number} is there twice"));
        }
        instance(entry.server).map_err(|why| format!("server {number}: {why}"))
    };
    entries.into_iter().map(read).collect()
}

fn instance(server: Server) -> Result<Instance, String> {
    if server.server_number == 0 {
        return Err("no server has this number".to_owned());
    }
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let no_ip = |text: &str| format!("{text:?} is not an IP address");
    let ipv4 = filled(server.server_ip);
    let ipv4 = ipv4.map(|text| text.parse().map_err(|_| no_ip(&text)));
    let ipv6 = filled(server.server_ipv6_net).map(|text| {
        let net = text.strip_suffix("/64").unwrap_or(&text);
        let net = net.parse::<Ipv6Addr>().map_err(|_| no_ip(&text))?;
        Ipv6Net::new(net, 64).map_err(|error| error.to_string())
    });
    let data_center = server.dc.unwrap_or_default().to_lowercase();
    let location = data_center.split('-').next().unwrap_or_default();
    Ok(Instance {
        id: InstanceId::Dedicated(server.server_number),
        name: server.server_name.unwrap_or_default(),
        state: server.status.unwrap_or_default().into(),
        is_cancelled: server.cancelled,
        paid_until: server.paid_until.unwrap_or_default().into(),
        instance_type: label(&server.product.unwrap_or_default()),
        location: location.into(),
        network_zone: network_zone(location).into(),
        data_center: data_center.as_str().into(),
        public_ipv4: ipv4.transpose()?,
        public_ipv6: ipv6.transpose()?.map(|net| net.trunc()),
        ..Instance::default()
    })
}

/// A product's name as the value of a label.
fn label(product: &str) -> Interned {
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let dashed = product.replace(' ', "-");
    let label: String = dashed
        .chars()
        .filter(is_kept)
        .take(LABEL_CHARACTERS)
        .collect();
    let is_no_end = |c: char| !c.is_ascii_alphanumeric();
    label.trim_matches(is_no_end).into()
}

/// Robot says nothing of network zones; they are those of the Cloud's locations.
fn network_zone(location: &str) -> &'static str {
    match location {
        "fsn1" | "nbg1" | "hel1" => "eu-central",
        _ => "",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn server(changes: Value) -> Value {
        let mut server = json!({
            "server_ip": "123.123.123.123",
            "server_ipv6_net": "2a01:f48:111:4221::",
            "server_number": 321,
            "server_name": "metal-1",
            "product": "AX41-NVMe",
            "dc": "FSN1-DC16",
            "traffic": "unlimited",
            "status": "ready",
            "cancelled": false,
            "paid_until": "2026-12-01",
            "ip": ["123.123.123.123"],
            "subnet": [{ "ip": "2a01:f48:111:4221::", "mask": "64" }],
        });
        for (key, value) in changes.as_object().unwrap() {
            match value {
                Value::String(text) if text == "(missing)" => {
                    server.as_object_mut().unwrap().remove(key);
                }
                value => server[key] = value.clone(),
            }
        }
        json!({ "server": server })
    }

    fn read(servers: Vec<Value>) -> Result<Vec<Instance>, String> {
        let entries: Vec<Entry> =
            serde_json::from_value(servers.into()).map_err(|e| e.to_string())?;
        instances(entries)
    }

    #[test]
    fn a_server_is_read_whole() {
        let expected = Instance {
            id: InstanceId::Dedicated(321),
            name: "metal-1".into(),
            state: "ready".into(),
            is_off: false,
            is_cancelled: false,
            paid_until: "2026-12-01".into(),
            instance_type: "AX41-NVMe".into(),
            location: "fsn1".into(),
            data_center: "fsn1-dc16".into(),
            network_zone: "eu-central".into(),
            public_ipv4: Some("123.123.123.123".parse().unwrap()),
            public_ipv6: Some("2a01:f48:111:4221::/64".parse().unwrap()),
            ..Instance::default()
        };
        assert_eq!(read(vec![server(json!({}))]), Ok(vec![expected.clone()]));
        let with = |change: &dyn Fn(&mut Instance)| {
            let mut instance = expected.clone();
            change(&mut instance);
            Ok(vec![instance])
        };
        for (changes, expected) in [
            (
                json!({ "server_ip": null }),
                with(&|it| it.public_ipv4 = None),
            ),
            (
                json!({ "server_ip": "" }),
                with(&|it| it.public_ipv4 = None),
            ),
            (
                json!({ "server_ip": "(missing)" }),
                with(&|it| it.public_ipv4 = None),
            ),
            (
                json!({ "server_ipv6_net": null }),
                with(&|it| it.public_ipv6 = None),
            ),
            (
                json!({ "server_ipv6_net": "" }),
                with(&|it| it.public_ipv6 = None),
            ),
            (
                json!({ "server_ipv6_net": "2a01:f48:111:4221::/64" }),
                with(&|_| {}),
            ),
            (
                json!({ "server_ipv6_net": "2a01:f48:111:4221::1" }),
                with(&|_| {}),
            ),
            (json!({ "subnet": null, "ip": null }), with(&|_| {})),
            (
                json!({ "server_name": "" }),
                with(&|it| it.name = String::new()),
            ),
            (
                json!({ "server_name": null }),
                with(&|it| it.name = String::new()),
            ),
            (
                json!({ "product": null }),
                with(&|it| it.instance_type = "".into()),
            ),
            (
                json!({ "cancelled": true }),
                with(&|it| it.is_cancelled = true),
            ),
            (
                json!({ "status": "in process" }),
                with(&|it| it.state = "in process".into()),
            ),
            (
                json!({ "dc": "HEL1-DC2" }),
                with(&|it| {
                    it.location = "hel1".into();
                    it.data_center = "hel1-dc2".into();
                }),
            ),
            (
                json!({ "dc": "XYZ9-DC2" }),
                with(&|it| {
                    it.location = "xyz9".into();
                    it.data_center = "xyz9-dc2".into();
                    it.network_zone = "".into();
                }),
            ),
            (
                json!({ "dc": null }),
                with(&|it| {
                    it.location = "".into();
                    it.data_center = "".into();
                    it.network_zone = "".into();
                }),
            ),
        ] {
            assert_eq!(read(vec![server(changes.clone())]), expected, "{changes}");
        }
    }

    #[test]
    fn a_list_with_something_malformed_is_none() {
        let good = || server(json!({}));
        let of = |changes: Value| server(changes);
        for (servers, why) in [
            (vec![good(), good()], "server 321 is there twice"),
            (
                vec![good(), of(json!({ "server_number": "(missing)" }))],
                "missing field `server_number`",
            ),
            (
                vec![good(), of(json!({ "server_number": null }))],
                "invalid type: null",
            ),
            (
                vec![good(), of(json!({ "server_number": -5 }))],
                "invalid value",
            ),
            (
                vec![good(), of(json!({ "server_number": 0 }))],
                "server 0: no server has this number",
            ),
            (
                vec![
                    good(),
                    of(json!({ "server_number": 5, "server_ip": "10.0.0" })),
                ],
                "server 5: \"10.0.0\" is not an IP",
            ),
            (
                vec![of(json!({ "server_ipv6_net": "2a01::/56" }))],
                "server 321: \"2a01::/56\" is not an IP",
            ),
            (vec![json!({})], "missing field `server`"),
        ] {
            let error = read(servers).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_product_becomes_a_label() {
        for (product, expected) in [
            ("AX41-NVMe", "AX41-NVMe"),
            ("EX 101", "EX-101"),
            ("Server Auction", "Server-Auction"),
            (
                "DELL PowerEdge™ R6615 (DX182)",
                "DELL-PowerEdge-R6615-DX182",
            ),
            ("a_b.c/d", "a_b.cd"),
            ("(beta) ", "beta"),
            ("™", ""),
            ("", ""),
        ] {
            assert_eq!(label(product).as_str(), expected, "{product}");
        }
        assert_eq!(label(&"x".repeat(99)).as_str().len(), LABEL_CHARACTERS);
    }
}
