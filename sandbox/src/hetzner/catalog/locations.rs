//! `/locations`: where servers stand, and in which network zone.

use serde_json::Value;

use super::super::error::ApiError;
use super::super::input::Query;
use super::super::listing::{self, Page, SortKey};
use super::super::text::{Text, text};
use super::super::{Call, Reply};
use super::{find, id, read_only};

#[derive(Debug, PartialEq)]
pub struct Location {
    pub id: u64,
    pub name: &'static str,
    pub description: &'static str,
    pub city: &'static str,
    pub country: &'static str,
    pub latitude: f64,
    pub longitude: f64,
    pub network_zone: &'static str,
    /// What the metadata service of a server there calls its availability zone.
    pub availability_zone: &'static str,
}

/// The zones of the table below; the only one where a vSwitch can be coupled is the first.
pub const NETWORK_ZONES: [&str; 4] = ["eu-central", "us-east", "us-west", "ap-southeast"];

pub static LOCATIONS: [Location; 6] = [
    Location {
        id: 1,
        name: "fsn1",
        description: "Falkenstein DC Park 1",
        city: "Falkenstein",
        country: "DE",
        latitude: 50.47612,
        longitude: 12.370071,
        network_zone: "eu-central",
        availability_zone: "fsn1-dc14",
    },
    Location {
        id: 2,
        name: "nbg1",
        description: "Nuremberg DC Park 1",
        city: "Nuremberg",
        country: "DE",
        latitude: 49.452102,
        longitude: 11.076665,
        network_zone: "eu-central",
        availability_zone: "nbg1-dc3",
    },
    Location {
        id: 3,
        name: "hel1",
        description: "Helsinki DC Park 1",
        city: "Helsinki",
        country: "FI",
        latitude: 60.169855,
        longitude: 24.938379,
        network_zone: "eu-central",
        availability_zone: "hel1-dc2",
    },
    Location {
        id: 4,
        name: "ash",
        description: "Ashburn, VA",
        city: "Ashburn, VA",
        country: "US",
        latitude: 39.045821,
        longitude: -77.487073,
        network_zone: "us-east",
        availability_zone: "ash-dc1",
    },
    Location {
        id: 5,
        name: "hil",
        description: "Hillsboro, OR",
        city: "Hillsboro, OR",
        country: "US",
        latitude: 45.54222,
        longitude: -122.951924,
        network_zone: "us-west",
        availability_zone: "hil-dc1",
    },
    Location {
        id: 6,
        name: "sin",
        description: "Singapore",
        city: "Singapore",
        country: "SG",
        latitude: 1.283333,
        longitude: 103.833333,
        network_zone: "ap-southeast",
        availability_zone: "sin-dc1",
    },
];

impl Location {
    /// By ID or name.
    pub fn find(text: &str) -> Option<&'static Location> {
        find(
            &LOCATIONS,
            text,
            |location| location.id,
            |location| location.name,
        )
    }

    pub fn json(&self) -> Text {
        text!({
            "id": self.id, "name": self.name, "description": self.description, "city": self.city,
            "country": self.country, "latitude": Value::from(self.latitude), "longitude": Value::from(self.longitude),
            "network_zone": self.network_zone,
        })
    }
}

/// Answers `/locations` and `/locations/{id}`.
pub fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match rest {
        [] => read_only(call.method, || list(call)),
        [segment] => read_only(call.method, || {
            call.refuse_query()?;
            let id = id(segment)?;
            let location = LOCATIONS.iter().find(|location| location.id == id);
            let location = location.ok_or_else(|| ApiError::not_found("location", id))?;
            Ok(Reply::ok(text!({"location": location.json()})))
        }),
        _ => Err(ApiError::no_such_path()),
    }
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    const KEYS: [SortKey<Location>; 2] = [
        ("id", |a, b| a.id.cmp(&b.id)),
        ("name", |a, b| a.name.cmp(b.name)),
    ];
    let query = Query::new(call.query, &["name", "sort", "page", "per_page"])?;
    let page = Page::of(&query)?;
    let name = query.one("name");
    let mut found: Vec<&Location> = LOCATIONS
        .iter()
        .filter(|location| name.is_none_or(|name| name == location.name))
        .collect();
    listing::sort(&query, &mut found, &KEYS)?;
    Ok(page.reply("/locations", "locations", &found, |location| {
        location.json()
    }))
}
