//! `/server_types`: sizes of servers, where they are sold and until when.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;

use super::super::error::ApiError;
use super::super::input::Query;
use super::super::listing::Page;
use super::super::text::{Text, text};
use super::super::{Call, Reply};
use super::{find, id, read_only};
use crate::hetzner::catalog::locations::Location;
use crate::time;

#[derive(Debug, PartialEq)]
pub struct ServerType {
    pub id: u64,
    pub name: &'static str,
    pub category: &'static str,
    pub cores: u64,
    pub memory_gb: u64,
    pub disk_gb: u64,
    pub cpu_type: &'static str,
    pub architecture: &'static str,
    pub offers: &'static [Offer],
}

/// A server type in one location.
#[derive(Debug, PartialEq)]
pub struct Offer {
    pub location: &'static str,
    /// Euro without VAT, in cents.
    pub monthly_cents: u64,
    pub deprecation: Option<Deprecation>,
}

/// RFC 3339 time stamps: said when, not sold after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deprecation {
    pub announced: &'static str,
    pub unavailable_after: &'static str,
}

/// The first CX types, replaced by their second generation in 2024.
const CX_1: Option<Deprecation> = Some(Deprecation {
    announced: "2024-06-06T08:00:00Z",
    unavailable_after: "2024-09-06T00:00:00Z",
});
/// The second generation of CX and the first one of CPX (in Europe), replaced at the end of 2025.
const CX_2: Option<Deprecation> = Some(Deprecation {
    announced: "2025-10-16T00:00:00Z",
    unavailable_after: "2025-12-31T00:00:00Z",
});

const fn offer(
    location: &'static str,
    monthly_cents: u64,
    deprecation: Option<Deprecation>,
) -> Offer {
    Offer {
        location,
        monthly_cents,
        deprecation,
    }
}

const fn europe(monthly_cents: u64, deprecation: Option<Deprecation>) -> [Offer; 3] {
    [
        offer("fsn1", monthly_cents, deprecation),
        offer("nbg1", monthly_cents, deprecation),
        offer("hel1", monthly_cents, deprecation),
    ]
}

/// The first generation of CPX, which is still sold in North America.
const fn north_america(monthly_cents: u64) -> [Offer; 5] {
    let [fsn1, nbg1, hel1] = europe(monthly_cents, CX_2);
    [
        fsn1,
        nbg1,
        hel1,
        offer("ash", monthly_cents, None),
        offer("hil", monthly_cents, None),
    ]
}

const fn everywhere(monthly_cents: u64) -> [Offer; 6] {
    let [fsn1, nbg1, hel1] = europe(monthly_cents, None);
    let [ash, hil] = [
        offer("ash", monthly_cents, None),
        offer("hil", monthly_cents, None),
    ];
    [
        fsn1,
        nbg1,
        hel1,
        ash,
        hil,
        offer("sin", monthly_cents, None),
    ]
}

const fn europe_and_asia(monthly_cents: u64) -> [Offer; 4] {
    let [fsn1, nbg1, hel1] = europe(monthly_cents, None);
    [fsn1, nbg1, hel1, offer("sin", monthly_cents, None)]
}

const fn shared(
    id: u64,
    name: &'static str,
    category: &'static str,
    size: [u64; 3],
    architecture: &'static str,
    offers: &'static [Offer],
) -> ServerType {
    let [cores, memory_gb, disk_gb] = size;
    ServerType {
        id,
        name,
        category,
        cores,
        memory_gb,
        disk_gb,
        cpu_type: "shared",
        architecture,
        offers,
    }
}

const fn dedicated(
    id: u64,
    name: &'static str,
    size: [u64; 3],
    offers: &'static [Offer],
) -> ServerType {
    let [cores, memory_gb, disk_gb] = size;
    let category = "General Purpose";
    ServerType {
        id,
        name,
        category,
        cores,
        memory_gb,
        disk_gb,
        cpu_type: "dedicated",
        architecture: "x86",
        offers,
    }
}

const COST: &str = "Cost-Optimized";
const REGULAR: &str = "Regular Performance";

/// Cores, memory and disk in GB, then prices: a selection of what the provider sells or has sold.
pub static SERVER_TYPES: [ServerType; 19] = [
    shared(
        1,
        "cx11",
        COST,
        [1, 2, 20],
        "x86",
        const { &europe(329, CX_1) },
    ),
    shared(
        3,
        "cx21",
        COST,
        [2, 4, 40],
        "x86",
        const { &europe(485, CX_1) },
    ),
    shared(
        22,
        "cpx11",
        REGULAR,
        [2, 2, 40],
        "x86",
        const { &north_america(399) },
    ),
    shared(
        23,
        "cpx21",
        REGULAR,
        [3, 4, 80],
        "x86",
        const { &north_america(755) },
    ),
    shared(
        24,
        "cpx31",
        REGULAR,
        [4, 8, 160],
        "x86",
        const { &north_america(1360) },
    ),
    shared(
        45,
        "cax11",
        COST,
        [2, 4, 40],
        "arm",
        const { &europe(329, None) },
    ),
    shared(
        93,
        "cax21",
        COST,
        [4, 8, 80],
        "arm",
        const { &europe(599, None) },
    ),
    shared(
        94,
        "cax31",
        COST,
        [8, 16, 160],
        "arm",
        const { &europe(1199, None) },
    ),
    dedicated(96, "ccx13", [2, 8, 80], const { &everywhere(1199) }),
    dedicated(97, "ccx23", [4, 16, 160], const { &everywhere(2399) }),
    dedicated(98, "ccx33", [8, 32, 240], const { &everywhere(4799) }),
    shared(
        104,
        "cx22",
        COST,
        [2, 4, 40],
        "x86",
        const { &europe(329, CX_2) },
    ),
    shared(
        105,
        "cx32",
        COST,
        [4, 8, 80],
        "x86",
        const { &europe(599, CX_2) },
    ),
    shared(
        106,
        "cx42",
        COST,
        [8, 16, 160],
        "x86",
        const { &europe(1649, CX_2) },
    ),
    shared(
        109,
        "cpx22",
        REGULAR,
        [2, 4, 80],
        "x86",
        const { &europe_and_asia(649) },
    ),
    shared(
        110,
        "cpx32",
        REGULAR,
        [4, 8, 160],
        "x86",
        const { &europe_and_asia(1099) },
    ),
    shared(
        114,
        "cx23",
        COST,
        [2, 4, 40],
        "x86",
        const { &europe(299, None) },
    ),
    shared(
        115,
        "cx33",
        COST,
        [4, 8, 80],
        "x86",
        const { &europe(499, None) },
    ),
    shared(
        116,
        "cx43",
        COST,
        [8, 16, 160],
        "x86",
        const { &europe(899, None) },
    ),
];

impl ServerType {
    /// By ID or name, sold or not.
    pub fn find(text: &str) -> Option<&'static ServerType> {
        find(
            &SERVER_TYPES,
            text,
            |server_type| server_type.id,
            |server_type| server_type.name,
        )
    }

    /// As it was when somebody first asked, in real or in simulated time: every server in a list shows its type, prices
    /// and all.
    pub fn json(&self) -> &'static Text {
        static SHOWN: [OnceLock<BTreeMap<u64, Text>>; 2] = [OnceLock::new(), OnceLock::new()];
        static NONE: Text = Text::none();
        let shown = SHOWN[usize::from(time::is_simulated())].get_or_init(|| {
            let entry = |server_type: &ServerType| (server_type.id, server_type.new_json());
            SERVER_TYPES.iter().map(entry).collect()
        });
        shown.get(&self.id).unwrap_or(&NONE)
    }

    fn new_json(&self) -> Text {
        let locations = self.offers.iter().map(Offer::json).collect::<Vec<_>>();
        // The old field on the type itself is only set when every location says the same.
        let everywhere = self.offers.first().and_then(|first| first.deprecation);
        let everywhere = everywhere.filter(|found| {
            self.offers
                .iter()
                .all(|offer| offer.deprecation == Some(*found))
        });
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
    /// New servers can be had here.
    pub fn is_sold(&self) -> bool {
        let until = self
            .deprecation
            .and_then(|deprecation| deprecation.unavailable_after.parse::<Timestamp>().ok());
        until.is_none_or(|until| time::timestamp() < until)
    }

    /// Bytes a month.
    pub fn included_traffic(&self) -> u64 {
        included_traffic(self.location)
    }

    /// `available` and `recommended` came in April 2026, when `/datacenters` was on its way out.
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

/// Bytes a month that cost nothing extra.
pub fn included_traffic(location: &str) -> u64 {
    const TERABYTE: u64 = 1 << 40;
    if matches!(location, "fsn1" | "nbg1" | "hel1") {
        20 * TERABYTE
    } else {
        TERABYTE
    }
}

/// What something costs in a location.
pub fn price_per_time(location: &str, monthly_cents: u64) -> Text {
    let monthly = monthly_cents as f64;
    // A month is billed as 624 hours: the monthly price caps the sum of hours.
    text!({
        "location": location, "included_traffic": included_traffic(location),
        "price_hourly": price(monthly / 624.0), "price_monthly": price(monthly),
        "price_per_tb_traffic": price(100.0),
    })
}

/// Decimal strings in euro; German VAT of 19 % in `gross`.
fn price(cents: f64) -> Text {
    text!({"net": format!("{:.10}", cents / 100.0), "gross": format!("{:.10}", cents * 1.19 / 100.0)})
}

/// Answers `/server_types` and `/server_types/{id}`.
pub fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match rest {
        [] => read_only(call.method, || list(call)),
        [segment] => read_only(call.method, || {
            call.refuse_query()?;
            let id = id(segment)?;
            let server_type = SERVER_TYPES.iter().find(|server_type| server_type.id == id);
            let server_type = server_type.ok_or_else(|| ApiError::not_found("server_type", id))?;
            Ok(Reply::ok(text!({"server_type": server_type.json()})))
        }),
        _ => Err(ApiError::no_such_path()),
    }
}

/// Types that are no longer sold anywhere are left out of the list, as the documentation says.
fn list(call: &Call) -> Result<Reply, ApiError> {
    let query = Query::new(call.query, &["name", "page", "per_page"])?;
    let page = Page::of(&query)?;
    let name = query.one("name");
    let is_listed = |server_type: &&ServerType| {
        name.is_none_or(|name| name == server_type.name)
            && server_type.offers.iter().any(Offer::is_sold)
    };
    let found: Vec<&ServerType> = SERVER_TYPES.iter().filter(is_listed).collect();
    Ok(
        page.reply("/server_types", "server_types", &found, |server_type| {
            server_type.json()
        }),
    )
}
