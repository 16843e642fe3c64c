//! Simulates the metadata service, from which a server learns facts about itself in plain text and YAML.

use std::net::Ipv4Addr;

use super::networks::Network;
use super::servers::{Attachment, Server};
use super::world::World;
use crate::exchange::{Request, Response};

/// The path of the metadata service. A cloud server of Hetzner reaches this service at the address 169.254.169.254.
pub const PATH: &str = "/hetzner/v1/metadata";

/// Answers a request to the metadata service as if it came from the server that a test has chosen. The answer is 404
/// when no server was chosen, or when the server no longer exists.
pub fn answer(world: &World, request: &Request) -> Response {
    let Some(server) = world.metadata_server.and_then(|id| world.servers.get(&id)) else {
        return text(404, "not found".into());
    };
    if request.method != "GET" {
        return text(405, "method not allowed".into());
    }
    let path = request.path.strip_prefix(PATH).unwrap_or_default();
    let found = match path.trim_end_matches('/') {
        "" => Some(summary(server)),
        "/hostname" => Some(server.name.clone()),
        "/instance-id" => Some(server.id.to_string()),
        "/public-ipv4" => server.ipv4.map(|ipv4| ipv4.ip.to_string()),
        "/region" => Some(server.location.network_zone.into()),
        "/availability-zone" => Some(server.location.availability_zone.into()),
        "/private-networks" => Some(private_networks(world, server)),
        _ => None,
    };
    found.map_or_else(|| text(404, "not found".into()), |body| text(200, body))
}

fn summary(server: &Server) -> String {
    let public_ipv4 =
        server.ipv4.map(|ipv4| format!("public-ipv4: {}\n", ipv4.ip)).unwrap_or_default();
    format!(
        "availability-zone: {}\nhostname: {}\ninstance-id: {}\n{public_ipv4}region: {}\n",
        server.location.availability_zone, server.name, server.id, server.location.network_zone,
    )
}

/// Returns the server's private networks as a YAML list. The list is `[]` when the server is in no network.
fn private_networks(world: &World, server: &Server) -> String {
    let entry = |(index, attachment): (usize, &Attachment)| {
        let network = world.networks.get(&attachment.network)?;
        Some(private_network(index + 1, attachment, network))
    };
    let entries: String = server.private_net.iter().enumerate().filter_map(entry).collect();
    if entries.is_empty() { "[]\n".into() } else { entries }
}

fn private_network(interface: usize, attachment: &Attachment, network: &Network) -> String {
    let aliases: Vec<String> = attachment.alias_ips.iter().map(Ipv4Addr::to_string).collect();
    let subnet = network.subnets.iter().find(|subnet| subnet.ip_range.contains(&attachment.ip));
    let subnet = subnet.map_or(network.ip_range, |subnet| subnet.ip_range);
    format!(
        "- ip: {}\n  alias_ips: [{}]\n  interface_num: {interface}\n  mac_address: {}\n  network_id: {}\n  \
         network_name: {}\n  network: {}\n  subnet: {subnet}\n  gateway: {}\n",
        attachment.ip,
        aliases.join(", "),
        attachment.mac_address,
        network.id,
        // The name is written as a JSON string. Every JSON string is also a valid YAML string, so the name can contain
        // any characters.
        serde_json::Value::from(network.name.as_str()),
        network.ip_range,
        network.gateway(),
    )
}

fn text(status: u16, body: String) -> Response {
    Response {
        status,
        headers: vec![("Content-Type".into(), "text/plain".into())],
        body: body.into_bytes(),
    }
}
