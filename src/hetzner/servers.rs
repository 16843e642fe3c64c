//! Servers: the fields we read of them, and as the contract's plain `Instance`.

use super::api::{Api, Resource};
use crate::provider::{Error, Instance, InstanceId, Interned, PrivateAddress, Urgency};
use ipnet::Ipv6Net;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};

#[derive(Deserialize)]
struct Server {
    id: u64,
    name: String,
    status: Interned,
    server_type: ServerType,
    location: Location,
    public_net: PublicNet,
    /// An answer without it is none: routes to a server that seems to have no address would go.
    private_net: Vec<PrivateNet>,
}

#[derive(Deserialize)]
struct ServerType {
    name: Interned,
}

#[derive(Deserialize)]
struct Location {
    name: Interned,
    network_zone: Interned,
}

#[derive(Deserialize)]
struct PublicNet {
    ipv4: Option<PublicIpv4>,
    ipv6: Option<PublicIpv6>,
}

#[derive(Deserialize)]
struct PublicIpv4 {
    ip: Ipv4Addr,
}

#[derive(Deserialize)]
struct PublicIpv6 {
    ip: Ipv6Net,
}

#[derive(Deserialize)]
struct PrivateNet {
    network: u64,
    ip: IpAddr,
    #[serde(default)]
    alias_ips: Vec<IpAddr>,
}

impl Resource for Server {
    const LIST: &'static str = "servers";
    const ONE: &'static str = "server";
    fn id(&self) -> u64 {
        self.id
    }
}

/// All servers of the project: complete, or an error.
pub(super) fn list(api: &Api, urgency: Urgency) -> Result<Vec<Instance>, Error> {
    let servers = api.list::<Server>("", urgency)?;
    Ok(servers.into_iter().map(Instance::from).collect())
}

/// One server as it is now.
pub(super) fn get(api: &Api, number: u64) -> Result<Instance, Error> {
    Ok(api.one::<Server>(number, Urgency::Needed)?.into())
}

impl From<Server> for Instance {
    fn from(server: Server) -> Instance {
        Instance {
            id: InstanceId::Cloud(server.id),
            name: server.name,
            is_off: server.status == "off",
            state: server.status,
            is_cancelled: false,
            paid_until: Interned::default(),
            instance_type: server.server_type.name,
            location: server.location.name,
            network_zone: server.location.network_zone,
            data_center: Interned::default(),
            public_ipv4: server.public_net.ipv4.map(|ipv4| ipv4.ip),
            public_ipv6: server.public_net.ipv6.map(|ipv6| ipv6.ip),
            private: server
                .private_net
                .into_iter()
                .map(|private| PrivateAddress {
                    network: private.network,
                    ip: private.ip,
                    aliases: private.alias_ips,
                })
                .collect(),
        }
    }
}
