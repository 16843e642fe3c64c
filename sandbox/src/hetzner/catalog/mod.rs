//! What Hetzner offers in the simulated cloud: locations, types of servers and load balancers, and images. The offers
//! are the same for every project, and no request can change them.
//!
//! The offers and their prices are data in `hetzner/catalog.json`. Each file in this module contains one kind of offer,
//! with its query parameters and its JSON.

pub mod images;
pub mod load_balancer_types;
pub mod locations;
pub mod server_types;

use std::sync::LazyLock;

use serde::Deserialize;

use self::images::Image;
use self::load_balancer_types::LoadBalancerType;
use self::locations::Location;
use self::server_types::ServerType;
use super::error::ApiError;
use super::input::Query;
use super::listing::{self, Page, SortKey};
use super::text::{Text, text};
use super::world::World;
use super::{Call, Reply};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Catalog {
    prices: Prices,
    locations: Vec<Location>,
    server_types: Vec<ServerType>,
    load_balancer_types: Vec<LoadBalancerType>,
    images: Vec<Image>,
}

/// The numbers from which all prices are computed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prices {
    /// The German VAT in percent, by which a gross price is higher than the net price.
    vat_percent: f64,
    /// The number of hours by which the monthly price is divided to get the hourly price. Most months have more hours,
    /// but a resource never costs more than the monthly price.
    hours_a_month: f64,
    /// The price of traffic beyond the included traffic, in euro cents without VAT.
    cents_per_terabyte: f64,
}

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../catalog.json"))
        .expect("the catalog is a part of the program")
});

/// One kind of read-only resource that the provider defines for all projects: a location, a server type, a load
/// balancer type or an image.
pub trait Entry: Sized + 'static {
    /// The name of the kind in errors and answers, e.g. `location`. Its plural, e.g. `locations`, is formed with an
    /// `s`, and is the name of the list in answers and in the path.
    const KIND: &'static str;
    /// The query parameters that a list accepts. The API's documentation has `sort` only for locations and images. Here
    /// all lists accept it, because the program `hcloud` sends it for all lists.
    const PARAMETERS: &'static [&'static str] = &["name", "sort", "page", "per_page"];

    /// Returns all entries of this kind, in the order in which a list shows them.
    fn all() -> &'static [Self];

    fn id(&self) -> u64;
    fn name(&self) -> &'static str;

    /// Whether the API's lists contain this entry. An entry that is not offered is also missing when a client asks for
    /// its `name`, but the client can still get it by its ID.
    fn is_offered(&self, _world: &World) -> bool {
        true
    }

    /// Whether the entry matches the query parameters of a request for a list.
    fn is_asked_for(&self, query: &Query) -> bool {
        query.one("name").is_none_or(|name| name == self.name())
    }

    /// Returns the entry as the API shows it.
    fn json(&self, world: &World) -> Text;

    /// Finds the entry whose ID or name is `text`.
    fn find(text: &str) -> Option<&'static Self> {
        let number = text.parse::<u64>().ok();
        let is_it = |entry: &&Self| Some(entry.id()) == number || entry.name() == text;
        Self::all().iter().find(is_it)
    }
}

/// Answers a `GET` request for all entries of one kind, e.g. all locations, or for the one entry whose ID is in the
/// path.
pub fn route<T: Entry>(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match rest {
        [] => read_only(call.method, || list::<T>(call)),
        [segment] => read_only(call.method, || {
            call.refuse_query()?;
            let id = id(segment)?;
            let entry = T::all().iter().find(|entry| entry.id() == id);
            let entry = entry.ok_or_else(|| ApiError::not_found(T::KIND, id))?;
            let shown = format!(r#"{{"{}":{}}}"#, T::KIND, entry.json(call.world));
            Ok(Reply::ok(Text::of(shown)))
        }),
        _ => Err(ApiError::no_such_path()),
    }
}

fn list<T: Entry>(call: &Call) -> Result<Reply, ApiError> {
    let query = Query::new(call.query, T::PARAMETERS)?;
    let page = Page::of(&query)?;
    let is_listed = |entry: &&T| entry.is_offered(call.world) && entry.is_asked_for(&query);
    let mut found: Vec<&T> = T::all().iter().filter(is_listed).collect();
    let keys: [SortKey<T>; 2] =
        [("id", |a, b| a.id().cmp(&b.id())), ("name", |a, b| a.name().cmp(b.name()))];
    listing::sort(&query, &mut found, &keys)?;
    let plural = format!("{}s", T::KIND);
    Ok(page.reply(&format!("/{plural}"), &plural, &found, |entry| entry.json(call.world)))
}

/// Parses an ID that is a segment of a request's path. A segment that is not a number gets the same error as an unknown
/// path.
pub fn id(segment: &str) -> Result<u64, ApiError> {
    segment.parse().map_err(|_| ApiError::no_such_path())
}

/// Calls `answer` for the method `GET`, and refuses all other methods.
pub fn read_only(
    method: &str,
    answer: impl FnOnce() -> Result<Reply, ApiError>,
) -> Result<Reply, ApiError> {
    if method == "GET" { answer() } else { Err(ApiError::wrong_method(method)) }
}

/// Returns the price of a server type or a load balancer type in a location. `monthly_cents` is the price of a month in
/// euro cents without VAT.
fn price_per_time(location: &str, monthly_cents: u64) -> Text {
    let (prices, monthly) = (&CATALOG.prices, monthly_cents as f64);
    text!({
        "location": location, "included_traffic": locations::included_traffic(location),
        "price_hourly": prices.price(monthly / prices.hours_a_month), "price_monthly": prices.price(monthly),
        "price_per_tb_traffic": prices.price(prices.cents_per_terabyte),
    })
}

impl Prices {
    /// Returns a price with and without VAT, as decimal strings in euro. `cents` is the price without VAT in euro
    /// cents.
    fn price(&self, cents: f64) -> Text {
        let gross = cents * (100.0 + self.vat_percent) / 100.0;
        text!({"net": format!("{:.10}", cents / 100.0), "gross": format!("{:.10}", gross / 100.0)})
    }
}
