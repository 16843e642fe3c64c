//! `/load_balancer_types`: sizes of load balancers, their limits and prices.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;

use super::super::error::ApiError;
use super::super::input::Query;
use super::super::listing::Page;
use super::super::text::{Text, text};
use super::super::world::World;
use super::super::{Call, Reply};
use super::locations::{LOCATIONS, Location};
use super::server_types::price_per_time;
use super::{find, id, read_only};
use crate::time;

#[derive(Debug, PartialEq)]
pub struct LoadBalancerType {
    pub id: u64,
    pub name: &'static str,
    pub max_targets: usize,
    pub max_services: usize,
    pub max_assigned_certificates: usize,
    pub max_connections: u64,
    /// Euro without VAT, in cents; the same in every location.
    monthly_cents: u64,
}

const fn size(id: u64, name: &'static str, max: [usize; 3], price: [u64; 2]) -> LoadBalancerType {
    let [max_targets, max_services, max_assigned_certificates] = max;
    let [max_connections, monthly_cents] = price;
    LoadBalancerType {
        id,
        name,
        max_targets,
        max_services,
        max_assigned_certificates,
        max_connections,
        monthly_cents,
    }
}

pub static LOAD_BALANCER_TYPES: [LoadBalancerType; 3] = [
    size(1, "lb11", [25, 5, 10], [10_000, 539]),
    size(2, "lb21", [75, 15, 25], [20_000, 1_640]),
    size(3, "lb31", [150, 30, 50], [40_000, 3_290]),
];

impl LoadBalancerType {
    /// By ID or name, sold or not.
    pub fn find(text: &str) -> Option<&'static LoadBalancerType> {
        find(&LOAD_BALANCER_TYPES, text, |one| one.id, |one| one.name)
    }

    /// New ones can be had.
    pub fn is_sold(&self, world: &World) -> bool {
        let until = world
            .circumstances
            .deprecated
            .get(self.name)
            .and_then(|(_, until)| until.parse::<Timestamp>().ok());
        until.is_none_or(|until| time::timestamp() < until)
    }

    pub fn json(&self, world: &World) -> Text {
        let dates = world.circumstances.deprecated.get(self.name);
        let deprecation = dates
            .map(|(announced, until)| text!({"announced": announced, "unavailable_after": until}));
        // Nothing changes them.
        static PRICES: OnceLock<BTreeMap<u64, Text>> = OnceLock::new();
        let prices = PRICES.get_or_init(|| {
            let all = LOAD_BALANCER_TYPES.iter();
            all.map(|one| (one.id, one.prices())).collect()
        });
        text!({
            "id": self.id, "name": self.name, "description": self.name.to_uppercase(),
            "max_targets": self.max_targets, "max_services": self.max_services,
            "max_assigned_certificates": self.max_assigned_certificates,
            "max_connections": self.max_connections,
            "prices": prices.get(&self.id),
            "deprecated": dates.map(|(_, until)| until), "deprecation": deprecation,
        })
    }

    fn prices(&self) -> Text {
        let price = |location: &Location| price_per_time(location.name, self.monthly_cents);
        Text::part(&LOCATIONS.iter().map(price).collect::<Vec<_>>())
    }
}

/// Answers `/load_balancer_types` and `/load_balancer_types/{id}`.
pub fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match rest {
        [] => read_only(call.method, || list(call)),
        [segment] => read_only(call.method, || {
            call.refuse_query()?;
            let id = id(segment)?;
            let found = LOAD_BALANCER_TYPES.iter().find(|one| one.id == id);
            let found = found.ok_or_else(|| ApiError::not_found("load_balancer_type", id))?;
            Ok(Reply::ok(
                text!({"load_balancer_type": found.json(call.world)}),
            ))
        }),
        _ => Err(ApiError::no_such_path()),
    }
}

/// Types that are no longer sold are left out, as with server types.
fn list(call: &Call) -> Result<Reply, ApiError> {
    let query = Query::new(call.query, &["name", "page", "per_page"])?;
    let page = Page::of(&query)?;
    let name = query.one("name");
    let is_listed = |one: &&LoadBalancerType| {
        name.is_none_or(|name| name == one.name) && one.is_sold(call.world)
    };
    let found: Vec<&LoadBalancerType> = LOAD_BALANCER_TYPES.iter().filter(is_listed).collect();
    Ok(page.reply(
        "/load_balancer_types",
        "load_balancer_types",
        &found,
        |one| one.json(call.world),
    ))
}
