//! What a user chooses of a provider: the plain types that settings are parsed into.

use serde::{Deserialize, Serialize};
use std::fmt;

/// `--cloud-provider`: whose provider IDs, labels and names are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Our own names.
    #[default]
    CcmFromScratch,
    /// Those of hcloud-cloud-controller-manager, which we replace.
    Hcloud,
}

/// `HCLOUD_INSTANCES_ADDRESS_FAMILY`: which public addresses become `ExternalIP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    #[default]
    Ipv4,
    Ipv6,
    Dualstack,
}

/// `HCLOUD_NETWORK`: digits are an ID, anything else is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSelector {
    Id(u64),
    Name(String),
}

/// `HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE`: which target gets the next connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    #[default]
    RoundRobin,
    LeastConnections,
    /// A word that the API did not have when this was written.
    #[serde(other)]
    Unknown,
}

impl Profile {
    pub const ALL: [Profile; 2] = [Profile::CcmFromScratch, Profile::Hcloud];

    pub fn name(self) -> &'static str {
        match self {
            Profile::CcmFromScratch => "ccm-from-scratch",
            Profile::Hcloud => "hcloud",
        }
    }
}

impl AddressFamily {
    pub const ALL: [AddressFamily; 3] = [
        AddressFamily::Ipv4,
        AddressFamily::Ipv6,
        AddressFamily::Dualstack,
    ];

    pub fn name(self) -> &'static str {
        match self {
            AddressFamily::Ipv4 => "ipv4",
            AddressFamily::Ipv6 => "ipv6",
            AddressFamily::Dualstack => "dualstack",
        }
    }
}

impl Algorithm {
    /// Those that can be chosen.
    pub const ALL: [Algorithm; 2] = [Algorithm::RoundRobin, Algorithm::LeastConnections];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::RoundRobin => "round_robin",
            Algorithm::LeastConnections => "least_connections",
            Algorithm::Unknown => "unknown",
        }
    }
}

impl fmt::Display for NetworkSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkSelector::Id(id) => id.fmt(out),
            NetworkSelector::Name(name) => name.fmt(out),
        }
    }
}
