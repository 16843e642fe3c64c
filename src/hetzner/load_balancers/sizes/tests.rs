//! The tests of the choice of a load balancer's type, as a table.

use super::{Demand, Offers};
use crate::hetzner::load_balancers::model::balancer::{
    BalancerType, Deprecation, Monthly, PriceOf,
};

/// Parses types that are written as `NAME TARGETS/PORTS/CERTIFICATES PRICE@LOCATION…`, with `!` behind the name of a
/// deprecated type.
fn types(text: &str) -> Vec<BalancerType> {
    let kind = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let limits = words.next().unwrap_or_default().split('/').filter_map(|it| it.parse().ok());
        let limits: Vec<usize> = limits.collect();
        let price = |word: &str| {
            let (net, location) = word.split_once('@').unwrap_or_default();
            PriceOf { location: location.into(), price_monthly: Monthly { net: net.into() } }
        };
        let until = || Deprecation { unavailable_after: "2027-01-01T00:00:00Z".to_owned() };
        BalancerType {
            id: 1,
            name: name.trim_end_matches('!').to_owned(),
            max_targets: limits[0],
            max_services: limits[1],
            max_assigned_certificates: limits[2],
            deprecation: name.ends_with('!').then(until),
            prices: words.map(price).collect(),
        }
    };
    text.split(';').map(kind).collect()
}

const USUAL: &str = "lb11 25/5/10 5@fsn1; lb21 75/15/25 16@fsn1; lb31 150/30/50 32@fsn1";

#[test]
fn the_type_is_chosen_by_these_rules() {
    // Each case has the name of the rule, the types that exist, the present type, the numbers of targets, ports and
    // certificates that need room, the largest allowed type, and the type that is expected to be chosen.
    for (rule, all, present, demand, limit, expected) in [
        ("A4: the cheapest that fits", USUAL, "", [3, 1, 0], "", "lb11"),
        ("A4: targets ask", USUAL, "", [26, 1, 0], "", "lb21"),
        ("A4: ports ask", USUAL, "", [3, 16, 0], "", "lb31"),
        ("A4: certificates ask", USUAL, "", [3, 1, 11], "", "lb21"),
        ("A4: a limit is reached exactly", USUAL, "", [25, 5, 10], "", "lb11"),
        ("A4: none fits, so the largest", USUAL, "", [500, 1, 0], "", "lb31"),
        (
            "A4: a cheap large type",
            "lb11 25/5/10 5@fsn1; lb12 50/5/10 4@fsn1",
            "",
            [3, 1, 0],
            "",
            "lb12",
        ),
        (
            "A4: equal price, the smaller",
            "lb12 50/5/10 5@fsn1; lb11 25/5/10 5@fsn1",
            "",
            [3, 1, 0],
            "",
            "lb11",
        ),
        (
            "A4: equal size, the first name",
            "lbb 25/5/10 5@fsn1; lba 25/5/10 5@fsn1",
            "",
            [3, 1, 0],
            "",
            "lba",
        ),
        (
            "A3: not offered here",
            "lb11 25/5/10 5@ash; lb21 75/15/25 16@fsn1",
            "",
            [3, 1, 0],
            "",
            "lb21",
        ),
        ("A3: no price", "lb11 25/5/10 x@fsn1; lb21 75/15/25 16@fsn1", "", [3, 1, 0], "", "lb21"),
        ("A3: nothing is offered here", "lb11 25/5/10 5@ash", "", [3, 1, 0], "", "-"),
        (
            "A3: deprecated, another fits",
            "lb11! 25/5/10 5@fsn1; lb21 75/15/25 16@fsn1",
            "",
            [3, 1, 0],
            "",
            "lb21",
        ),
        (
            "A3: deprecated, none else fits",
            "lb11 25/5/10 5@fsn1; lb21! 75/15/25 16@fsn1",
            "",
            [26, 1, 0],
            "",
            "lb21",
        ),
        ("A5: keeps what fits", USUAL, "lb31", [1, 1, 0], "", "lb31"),
        (
            "A5: keeps a deprecated one",
            "lb11! 25/5/10 5@fsn1; lb21 75/15/25 4@fsn1",
            "lb11",
            [3, 1, 0],
            "",
            "lb11",
        ),
        ("A5: grows to the cheapest", USUAL, "lb11", [26, 1, 0], "", "lb21"),
        ("A5: grows for ports", USUAL, "lb11", [3, 6, 0], "", "lb21"),
        (
            "A5: below in no limit",
            "lb21 75/15/25 16@fsn1; wide 500/5/10 9@fsn1; lb31 150/30/50 32@fsn1",
            "lb21",
            [76, 1, 0],
            "",
            "lb31",
        ),
        ("A5: none fits, so the largest", USUAL, "lb21", [500, 1, 0], "", "lb31"),
        ("A5: nothing is larger", USUAL, "lb31", [500, 1, 0], "", "lb31"),
        (
            "A5: an equal type does not help",
            "lb31 150/30/50 32@fsn1; new 150/30/50 9@fsn1",
            "lb31",
            [500, 1, 0],
            "",
            "lb31",
        ),
        (
            "A5: one that ended is left",
            "lb21 75/15/25 16@fsn1",
            "old 20/5/10",
            [21, 1, 0],
            "",
            "lb21",
        ),
        ("A7: the limit holds for new ones", USUAL, "", [26, 1, 0], "lb11", "lb11"),
        ("A7: the limit stops growth", USUAL, "lb21", [76, 1, 0], "lb21", "lb21"),
        ("A7: growth up to the limit", USUAL, "lb11", [500, 1, 0], "lb21", "lb21"),
        ("A7: one above the limit is kept", USUAL, "lb31", [3, 1, 0], "lb11", "lb31"),
        ("A7: and does not grow", USUAL, "lb21", [76, 1, 0], "lb11", "lb21"),
        ("A9: the cheapest, whatever is asked", USUAL, "", [0, 0, 0], "", "lb11"),
        (
            "A9: a list without lb11",
            "lb21 75/15/25 16@fsn1; lb31 150/30/50 32@fsn1",
            "",
            [0, 0, 0],
            "",
            "lb21",
        ),
    ] {
        let all = types(all);
        let named = |name: &str| {
            let found = all.iter().find(|kind| kind.name == name).cloned();
            (!name.is_empty()).then(|| found.unwrap_or_else(|| types(name).remove(0)))
        };
        let (present, largest) = (named(present), named(limit));
        let offers = Offers {
            types: &all,
            is_place: &|location| location == "fsn1",
            largest: largest.as_ref(),
        };
        let [targets, ports, certificates] = demand;
        let demand = Demand { targets, ports, certificates };
        let chosen = offers.choose(&demand, present.as_ref());
        assert_eq!(chosen.map_or("-", |kind| &kind.name), expected, "{rule}");
    }
}

#[test]
fn a_cheaper_type_that_fits_is_named() {
    let all = types(USUAL);
    let offers = Offers { types: &all, is_place: &|_| true, largest: None };
    for (targets, present, expected) in
        [(3, 2, Some("lb11")), (26, 2, Some("lb21")), (76, 2, None), (3, 0, None)]
    {
        let demand = Demand { targets, ..Demand::default() };
        let cheaper = offers.cheaper(&demand, &all[present]);
        assert_eq!(cheaper.map(|kind| kind.name.as_str()), expected);
    }
}
