//! The private Network: found once, by ID or by name.

use super::api::{Api, Resource};
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

impl Resource for Network {
    const LIST: &'static str = "networks";
    const ONE: &'static str = "network";
    fn id(&self) -> u64 {
        self.id
    }
}

/// The Network meant by the settings. One list answers both forms, and says what there is when it is neither.
pub(super) fn find(api: &Api, selector: &NetworkSelector) -> Result<Network, Error> {
    let networks = api.list::<Network>("", Urgency::Needed)?;
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
