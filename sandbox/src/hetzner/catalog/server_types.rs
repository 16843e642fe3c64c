//! Answers requests to `/server_types`, the sizes of servers with the locations where they are sold and the date until
//! which they are sold.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use serde::Deserialize;

use super::super::text::{Text, text};
use super::super::world::World;
use super::locations::{Location, included_traffic};
use super::{CATALOG, Entry, price_per_time};
use crate::time;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ServerType {
    pub id: u64,
    pub name: &'static str,
    pub category: &'static str,
    pub cores: u64,
    pub memory_gb: u64,
    pub disk_gb: u64,
    pub cpu_type: &'static str,
    pub architecture: &'static str,
    pub offers: Vec<Offer>,
}

/// One location in which a server type is sold, with the price there.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    pub location: &'static str,
    /// The price of a month in euro cents without VAT.
    pub monthly_cents: u64,
    pub deprecation: Option<Deprecation>,
}

/// Two dates of a server type that is being retired, as RFC 3339 timestamps: when the end of its sale was announced,
/// and until when the type is sold.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Deprecation {
    pub announced: &'static str,
    pub unavailable_after: &'static str,
}

impl ServerType {
    /// Returns the JSON of the server type, with all prices. It is computed once and then kept, because a list of
    /// servers contains it once for each server. The JSON depends on the date, because it says whether the type is
    /// still sold. Tests with simulated time therefore have their own copy.
    pub fn json(&self) -> &'static Text {
        static SHOWN: [OnceLock<BTreeMap<u64, Text>>; 2] = [OnceLock::new(), OnceLock::new()];
        static NONE: Text = Text::none();
        let shown = SHOWN[usize::from(time::is_simulated())].get_or_init(|| {
            let entry = |server_type: &ServerType| (server_type.id, server_type.new_json());
            ServerType::all().iter().map(entry).collect()
        });
        shown.get(&self.id).unwrap_or(&NONE)
    }

    fn new_json(&self) -> Text {
        let locations = self.offers.iter().map(Offer::json).collect::<Vec<_>>();
        // The API's old field `deprecation` describes the server type in general. It is only set when the type has the
        // same deprecation in all locations.
        let everywhere = self.offers.first().and_then(|first| first.deprecation);
        let everywhere = everywhere
            .filter(|found| self.offers.iter().all(|offer| offer.deprecation == Some(*found)));
        text!({
            "id": self.id, "name": self.name, "description": self.name.to_uppercase(), "category": self.category,
            "cores": self.cores, "memory": self.memory_gb, "disk": self.disk_gb, "cpu_type": self.cpu_type,
            "storage_type": "local", "architecture": self.architecture, "locations": locations,
            "prices": self.offers.iter().map(Offer::price).collect::<Vec<_>>(),
            "deprecated": everywhere.is_some(), "deprecation": everywhere.map(Deprecation::json),
        })
    }
}

impl Offer {
    /// Whether new servers of this type can be created in this location.
    pub fn is_sold(&self) -> bool {
        let until = self
            .deprecation
            .and_then(|deprecation| deprecation.unavailable_after.parse::<Timestamp>().ok());
        until.is_none_or(|until| time::timestamp() < until)
    }

    /// Returns how many bytes of traffic a server can use each month without extra cost.
    pub fn included_traffic(&self) -> u64 {
        included_traffic(self.location)
    }

    /// Returns the JSON of the offer. The API has shown the fields `available` and `recommended` since April 2026.
    fn json(&self) -> Text {
        let location_id = Location::find(self.location).map_or(0, |location| location.id);
        text!({
            "id": location_id, "name": self.location, "deprecation": self.deprecation.map(Deprecation::json),
            "available": self.is_sold(), "recommended": self.is_sold(),
        })
    }

    fn price(&self) -> Text {
        price_per_time(self.location, self.monthly_cents)
    }
}

impl Deprecation {
    fn json(self) -> Text {
        text!({"announced": self.announced, "unavailable_after": self.unavailable_after})
    }
}

impl Entry for ServerType {
    const KIND: &'static str = "server_type";

    fn all() -> &'static [ServerType] {
        &CATALOG.server_types
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the server type is still sold in at least one location. Only such types are in the list of server types,
    /// as the API's documentation says.
    fn is_offered(&self, _world: &World) -> bool {
        self.offers.iter().any(Offer::is_sold)
    }

    fn json(&self, _world: &World) -> Text {
        self.json().clone()
    }
}
