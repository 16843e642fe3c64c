//! The private Network: found once, by ID or by name.

use super::api::{Api, Meta, Page};
use crate::provider::{Error, ErrorKind, NetworkSelector, Urgency};
use crate::text;
use ipnet::Ipv4Net;
use serde::Deserialize;
use std::time::Instant;

#[derive(Deserialize)]
pub(super) struct Network {
    pub(super) id: u64,
    pub(super) name: String,
    #[serde(default)]
    pub(super) subnets: Vec<Subnet>,
    /// When it was read.
    #[serde(skip, default = "Instant::now")]
    pub(super) read: Instant,
}

/// A part of a Network, in one network zone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    #[serde(rename = "type")]
    pub kind: String,
    pub ip_range: Ipv4Net,
    pub network_zone: String,
}

#[derive(Deserialize)]
struct One {
    network: Network,
}

#[derive(Deserialize)]
struct NetworksPage {
    networks: Vec<Network>,
    meta: Meta,
}

impl Page for NetworksPage {
    type Item = Network;

    fn into_parts(self) -> (Meta, Vec<Network>) {
        (self.meta, self.networks)
    }

    fn id(item: &Network) -> u64 {
        item.id
    }
}

/// As it is now.
pub(super) fn get(api: &Api, id: u64, urgency: Urgency) -> Result<Network, Error> {
    let answer: One = api.get(&format!("/networks/{id}"), urgency)?;
    Ok(answer.network)
}

/// The Network meant by the settings. One list answers both forms, and says what there is when it is neither.
pub(super) fn find(api: &Api, selector: &NetworkSelector) -> Result<Network, Error> {
    let networks = api.list::<NetworksPage>("/networks", Urgency::Needed)?;
    let there = match networks.as_slice() {
        [] => "this project has none".to_owned(),
        some => format!(
            "this project has {}",
            text::some_of(
                &some
                    .iter()
                    .map(|n| format!("{} ({})", n.name, n.id))
                    .collect::<Vec<_>>()
            )
        ),
    };
    let is_it = |network: &Network| match selector {
        NetworkSelector::Id(id) => network.id == *id,
        NetworkSelector::Name(name) => network.name == *name,
    };
    networks.into_iter().find(is_it).ok_or_else(|| {
        Error::new(
            ErrorKind::Misconfigured,
            format!("HCLOUD_NETWORK: there is no Network {selector}; {there}"),
        )
    })
}
