//! Answers requests to `/locations`, the places where servers run, each with its network zone.

use serde::Deserialize;
use serde_json::Value;

use super::super::text::{Text, text};
use super::super::world::World;
use super::{CATALOG, Entry};

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Location {
    pub id: u64,
    pub name: &'static str,
    pub description: &'static str,
    pub city: &'static str,
    pub country: &'static str,
    pub latitude: f64,
    pub longitude: f64,
    pub network_zone: &'static str,
    /// The availability zone of servers in this location, as the metadata service shows it.
    pub availability_zone: &'static str,
    /// How many terabytes of traffic a server or a load balancer in this location can use each month without extra
    /// cost.
    included_terabytes: u64,
}

/// Returns the name of this network zone as a static string, or `None` when there is no such zone.
pub fn network_zone(name: &str) -> Option<&'static str> {
    let mut zones = Location::all().iter().map(|location| location.network_zone);
    zones.find(|zone| *zone == name)
}

/// Returns how many bytes of traffic a server or a load balancer in this location can use each month without extra
/// cost.
pub fn included_traffic(location: &str) -> u64 {
    Location::find(location).map_or(0, |location| location.included_terabytes << 40)
}

impl Location {
    pub fn json(&self) -> Text {
        text!({
            "id": self.id, "name": self.name, "description": self.description, "city": self.city,
            "country": self.country, "latitude": Value::from(self.latitude), "longitude": Value::from(self.longitude),
            "network_zone": self.network_zone,
        })
    }
}

impl Entry for Location {
    const KIND: &'static str = "location";

    fn all() -> &'static [Location] {
        &CATALOG.locations
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn json(&self, _world: &World) -> Text {
        self.json()
    }
}
