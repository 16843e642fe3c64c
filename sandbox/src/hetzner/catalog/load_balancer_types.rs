//! Answers requests to `/load_balancer_types`, the sizes of load balancers with their limits and prices.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use serde::Deserialize;

use super::super::text::{Text, text};
use super::super::world::World;
use super::locations::Location;
use super::{CATALOG, Entry, price_per_time};
use crate::time;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct LoadBalancerType {
    pub id: u64,
    pub name: &'static str,
    max_targets: usize,
    pub max_services: usize,
    pub max_assigned_certificates: usize,
    pub max_connections: u64,
    /// The price of a month in euro cents without VAT. It is the same in all locations.
    monthly_cents: u64,
}

impl LoadBalancerType {
    /// Whether new load balancers of this type can be created.
    pub fn is_sold(&self, world: &World) -> bool {
        let until = world
            .circumstances
            .deprecated
            .get(self.name)
            .and_then(|(_, until)| until.parse::<Timestamp>().ok());
        until.is_none_or(|until| time::timestamp() < until)
    }

    /// Returns how many targets a load balancer of this type can have: the limit that a test has set for the type, or
    /// else the limit in `hetzner/catalog.json`.
    pub fn max_targets(&self, world: &World) -> usize {
        world.circumstances.target_limits.get(self.name).copied().unwrap_or(self.max_targets)
    }

    pub fn json(&self, world: &World) -> Text {
        let dates = world.circumstances.deprecated.get(self.name);
        let deprecation = dates
            .map(|(announced, until)| text!({"announced": announced, "unavailable_after": until}));
        // The prices never change, so their JSON is made only once.
        static PRICES: OnceLock<BTreeMap<u64, Text>> = OnceLock::new();
        let prices = PRICES.get_or_init(|| {
            let all = LoadBalancerType::all().iter();
            all.map(|one| (one.id, one.prices())).collect()
        });
        text!({
            "id": self.id, "name": self.name, "description": self.name.to_uppercase(),
            "max_targets": self.max_targets(world), "max_services": self.max_services,
            "max_assigned_certificates": self.max_assigned_certificates,
            "max_connections": self.max_connections,
            "prices": prices.get(&self.id),
            "deprecated": dates.map(|(_, until)| until), "deprecation": deprecation,
        })
    }

    fn prices(&self) -> Text {
        let price = |location: &Location| price_per_time(location.name, self.monthly_cents);
        Text::part(&Location::all().iter().map(price).collect::<Vec<_>>())
    }
}

impl Entry for LoadBalancerType {
    const KIND: &'static str = "load_balancer_type";

    fn all() -> &'static [LoadBalancerType] {
        &CATALOG.load_balancer_types
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the API shows this load balancer type in its list of types. It shows only the types that are still sold.
    fn is_offered(&self, world: &World) -> bool {
        self.is_sold(world)
    }

    fn json(&self, world: &World) -> Text {
        self.json(world)
    }
}
