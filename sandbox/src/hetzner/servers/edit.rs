//! Lets a test change the JSON that the API shows of a server.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::{Attachment, PublicIpv4, PublicIpv6, Server, Status, private_net};
use crate::hetzner::catalog::Entry;
use crate::hetzner::catalog::images::Image;
use crate::hetzner::catalog::locations::Location;
use crate::hetzner::catalog::server_types::ServerType;
use crate::hetzner::labels::Labels;
use crate::hetzner::overlay::Overlay;
use crate::hetzner::world::World;

/// Calls `change` with the JSON that the API shows of a server. From then on, the API shows exactly the changed JSON. A
/// changed field keeps the test's value until the simulation itself changes the field.
///
/// Some changed fields also change the simulated server. For example, a label selector matches the server by its new
/// labels. Unknown fields and impossible values are only shown. Returns false when there is no such server.
pub fn edit(world: &mut World, id: u64, change: impl FnOnce(&mut Value)) -> bool {
    let Some(server) = world.servers.get(&id) else {
        return false;
    };
    let mut wanted = server.json(world).value();
    change(&mut wanted);

    let mut server = server.clone();
    server.understand(&wanted);
    server.edited = Overlay::between(&wanted, &server.plain_json(world).value());
    world.servers.insert(id, server);
    private_net::hold_what_is_shown(world, id);
    true
}

impl Server {
    /// Sets fields of this server, e.g. the name and the status, from the JSON that a test wants the API to show. Other
    /// fields of the JSON, e.g. `created`, change nothing here.
    fn understand(&mut self, wanted: &Value) {
        let text = |pointer: &str| wanted.pointer(pointer).and_then(Value::as_str);
        if let Some(name) = text("/name") {
            self.name = name.into();
        }
        if let Some(status) = text("/status").and_then(Status::parse) {
            self.set_status(status);
        }
        if let Some(found) = text("/server_type/name").and_then(ServerType::find) {
            self.server_type = found;
        }
        if let Some(found) = text("/location/name").and_then(Location::find) {
            self.location = found;
        }
        if let Some(found) = text("/image/name")
            .and_then(|name| Image::find_for(name, self.server_type.architecture))
        {
            self.image = found;
        }
        if let Some(protected) = wanted.pointer("/protection/delete").and_then(Value::as_bool) {
            self.protected = protected;
        }
        if let Some(labels) = wanted.get("labels").and_then(Value::as_object) {
            let label =
                |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            self.labels = labels.iter().filter_map(label).collect::<Labels>();
        }
        let id =
            |pointer: &str| wanted.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
        let ip = text("/public_net/ipv4/ip").and_then(|ip| ip.parse().ok());
        self.ipv4 = ip.map(|ip| PublicIpv4 { id: id("/public_net/ipv4/id"), ip });
        let network = text("/public_net/ipv6/ip").and_then(|ip| ip.parse().ok());
        self.ipv6 = network.map(|network| PublicIpv6 { id: id("/public_net/ipv6/id"), network });
        let attachments = wanted.get("private_net").and_then(Value::as_array);
        self.private_net =
            attachments.into_iter().flatten().filter_map(understand_attachment).collect();
    }
}

fn understand_attachment(wanted: &Value) -> Option<Attachment> {
    let aliases = wanted.get("alias_ips").and_then(Value::as_array);
    let alias = |ip: &Value| ip.as_str()?.parse::<Ipv4Addr>().ok();
    Some(Attachment {
        network: wanted.get("network")?.as_u64()?,
        ip: wanted.get("ip")?.as_str()?.parse().ok()?,
        alias_ips: aliases.into_iter().flatten().filter_map(alias).collect(),
        mac_address: wanted.get("mac_address").and_then(Value::as_str).unwrap_or_default().into(),
    })
}
