//! Tests of the steps of a replacement, and of the rule for when a load balancer can take over from another one.
#![allow(clippy::unwrap_used)]

use super::super::index::BalancerIndex;
use super::super::labels::PORT;
use super::*;
use crate::hetzner::load_balancers::model::balancer::ApiTarget;
use crate::text::duration::overlap;
use serde_json::json;

/// The time of the API in these tests. `PAST` is a time before it, and `LATER` is a time after it.
const NOW: i64 = 1000;
const PAST: i64 = 900;
const LATER: i64 = 1100;

/// Writes a step as a short text.
fn shown(step: ReplacementStep) -> String {
    match step {
        ReplacementStep::Mark(to) => to.to_string(),
        ReplacementStep::Remove(side) => format!("remove {side:?}"),
        ReplacementStep::ReadServices => "read".to_owned(),
        step => format!("{step:?}"),
    }
}

type StepCase = (bool, Option<&'static str>, &'static str, &'static str, bool, &'static str);

/// Each case has six values: whether the old load balancer has the label `replace`, the value of the label `overlap`,
/// which load balancers can take over, which load balancers are shown in a status, whether the API told the time, and
/// the expected next step. `o` is the old load balancer, `n` the new one. `?` means that the statuses were not read.
#[rustfmt::skip] // A case is a line.
const CASES: &[StepCase] = &[
    (true, None, "", "o", true, "WaitForHealth(New)"),
    (true, None, "o", "o", true, "WaitForHealth(New)"),
    (true, None, "n", "?", false, "serves"),
    (true, Some("leaves"), "o", "n", true, "WaitForHealth(New)"),
    (true, Some("leaves"), "n", "n", true, "serves"),
    (true, Some("leaves.900"), "on", "", true, "serves"),
    (true, Some("serves"), "n", "?", true, "read"),
    (true, Some("serves"), "n", "o", true, "WaitForStatus(Old)"),
    (true, Some("serves"), "n", "on", true, "WaitForStatus(Old)"),
    (true, Some("serves"), "n", "n", false, "WaitForClock"),
    (true, Some("serves"), "n", "n", true, "serves.1060"),
    (true, Some("serves"), "", "", true, "serves.1060"),
    (true, Some("serves.1100"), "on", "n", true, "WaitForTime(1100)"),
    (true, Some("serves.900"), "on", "n", false, "WaitForClock"),
    (true, Some("serves.900"), "o", "n", true, "WaitForHealth(New)"),
    (true, Some("serves.900"), "n", "?", true, "read"),
    (true, Some("serves.900"), "n", "o", true, "WaitForStatus(Old)"),
    (true, Some("serves.900"), "n", "n", true, "remove Old"),
    (true, Some("serves.1000"), "n", "n", true, "remove Old"),
    (false, None, "", "?", true, "read"),
    (false, None, "on", "n", true, "WaitForStatus(New)"),
    (false, None, "", "o", false, "remove New"),
    (false, Some("serves"), "n", "n", true, "WaitForHealth(Old)"),
    (false, Some("serves"), "o", "?", false, "leaves"),
    (false, Some("serves.900"), "n", "n", true, "WaitForHealth(Old)"),
    (false, Some("serves.900"), "o", "n", true, "leaves"),
    (false, Some("leaves"), "o", "?", true, "read"),
    (false, Some("leaves"), "o", "n", true, "WaitForStatus(New)"),
    (false, Some("leaves"), "o", "o", false, "WaitForClock"),
    (false, Some("leaves"), "o", "o", true, "leaves.4600"),
    (false, Some("leaves.1100"), "on", "o", true, "WaitForTime(1100)"),
    (false, Some("leaves.900"), "n", "o", true, "WaitForHealth(Old)"),
    (false, Some("leaves.900"), "o", "?", true, "read"),
    (false, Some("leaves.900"), "o", "n", true, "WaitForStatus(New)"),
    (false, Some("leaves.900"), "o", "o", true, "remove New"),
];

fn facts(case: &StepCase) -> ReplacementFacts {
    let (is_asked, overlap, takes_over, shown, has_time, _) = *case;
    ReplacementFacts {
        overlap: Overlap::parse(overlap).unwrap(),
        is_asked,
        seconds: Some(60),
        takes_over: (takes_over.contains('o'), takes_over.contains('n')),
        is_shown: (shown != "?").then(|| (shown.contains('o'), shown.contains('n'))),
        now: has_time.then_some(NOW),
    }
}

#[test]
fn labels_health_statuses_and_the_time_decide_about_the_next_step() {
    for case in CASES {
        assert_eq!(shown(next_step(&facts(case))), case.5, "{case:?}");
    }
    let without_duration = ReplacementFacts { seconds: None, ..facts(&CASES[10]) };
    assert_eq!(shown(next_step(&without_duration)), "WaitForDuration");
}

/// Returns all combinations of the facts that decide the next step of a replacement.
fn all_facts() -> Vec<ReplacementFacts> {
    let sides = [Side::Old, Side::New].map(Some);
    let with_side = |ends| sides.map(|serving| Overlap { serving, ends });
    let overlaps = [None, Some(PAST), Some(LATER)].map(with_side);
    let unused = Overlap { serving: None, ends: None };
    let shown = [None, Some((false, false)), Some((false, true)), Some((true, false))];
    let mut all = Vec::new();
    for overlap in overlaps.into_iter().flatten().chain([unused]) {
        for bits in 0..16 {
            for is_shown in shown.into_iter().chain([Some((true, true))]) {
                all.push(ReplacementFacts {
                    overlap,
                    is_asked: bits & 1 > 0,
                    seconds: Some(60),
                    takes_over: (bits & 2 > 0, bits & 4 > 0),
                    is_shown,
                    now: (bits & 8 > 0).then_some(NOW),
                });
            }
        }
    }
    all
}

#[test]
fn in_every_state_a_step_needs_the_health_of_the_one_that_stays() {
    for facts in all_facts() {
        let takes_over = |side: Side| side.of(facts.takes_over);
        match next_step(&facts) {
            ReplacementStep::Remove(side) => {
                let is_shown = facts.is_shown.map(|shown| side.of(shown));
                assert_eq!(is_shown, Some(false), "{facts:?}");
                let was_used = facts.overlap.serving.is_some();
                assert!(!was_used || takes_over(side.other()), "{facts:?}");
                assert!(
                    !was_used || facts.now.unwrap() >= facts.overlap.ends.unwrap(),
                    "{facts:?}"
                );
                assert!(was_used || side == Side::New, "{facts:?}");
                assert_eq!(facts.is_asked, side == Side::Old, "{facts:?}");
            }
            ReplacementStep::Mark(Overlap { serving: Some(side), ends: None }) => {
                assert!(takes_over(side), "{facts:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn a_label_is_read_as_it_is_written() {
    for text in ["serves", "leaves", "serves.0", "leaves.1764268800"] {
        assert_eq!(Overlap::parse(Some(text)).unwrap().to_string(), text);
    }
    assert_eq!(Overlap::parse(None).unwrap().serving, None);
    for text in ["", "Serves", "serves.", "serves.-1", "serves.1.2", "serves.x", "stays.1", ".1"] {
        assert_eq!(Overlap::parse(Some(text)), None, "{text:?}");
    }
}

#[test]
fn an_overlap_is_at_most_thirty_days() {
    for (text, seconds) in
        [("0s", 0), ("0", 0), ("24h", 86_400), ("1h30m", 5400), ("720h", 2_592_000)]
    {
        assert_eq!(overlap(text), Ok(seconds), "{text}");
    }
    for text in ["", "24", "-1h", "721h", "1.5s", "2d", "forever"] {
        assert!(overlap(text).is_err(), "{text}");
    }
}

/// Returns a load balancer with these ports. Each port has a number, its owner, and its healthy targets among the
/// servers 1 and 2.
fn balancer(ports: &[(u16, &str, &[u64])]) -> LoadBalancer {
    let check =
        json!({ "protocol": "tcp", "port": 1, "interval": 15, "timeout": 10, "retries": 3 });
    let port = |number: u16| {
        let port = json!({
            "listen_port": number, "destination_port": number, "protocol": "tcp",
            "proxyprotocol": false, "health_check": check,
        });
        serde_json::from_value(port).unwrap()
    };
    let target = |id: u64| -> ApiTarget {
        let status = |(number, _, healthy): &(u16, &str, &[u64])| {
            let status = if healthy.contains(&id) { "healthy" } else { "unhealthy" };
            json!({ "listen_port": number, "status": status })
        };
        let health: Vec<_> = ports.iter().map(status).collect();
        let target = json!({ "type": "server", "server": { "id": id }, "health_status": health });
        serde_json::from_value(target).unwrap()
    };
    LoadBalancer {
        labels: ports.iter().map(|port| (format!("{PORT}{}", port.0), port.1.to_owned())).collect(),
        services: ports.iter().map(|(number, ..)| port(*number)).collect(),
        targets: [1, 2].map(target).into(),
        ..LoadBalancer::default()
    }
}

type Ports = &'static [(u16, &'static str, &'static [u64])];

#[test]
fn the_one_that_stays_must_serve_every_port_of_the_one_that_leaves() {
    #[rustfmt::skip] // A case is a line.
    let cases: [(&str, Ports, Ports, bool); 9] = [
        ("the same", &[(80, "a", &[1, 2])], &[(80, "a", &[1, 2])], true),
        ("another target", &[(80, "a", &[2])], &[(80, "a", &[1])], true),
        ("one more port", &[(80, "a", &[1]), (443, "a", &[])], &[(80, "a", &[1])], true),
        ("fewer targets", &[(80, "a", &[1])], &[(80, "a", &[1, 2])], false),
        ("a port is missing", &[(80, "a", &[1])], &[(80, "a", &[1]), (443, "a", &[])], false),
        ("another owner", &[(80, "b", &[1])], &[(80, "a", &[1])], false),
        ("no healthy target at all", &[(80, "a", &[])], &[(80, "a", &[])], false),
        ("one of two ports is not healthy on both", &[(80, "a", &[]), (443, "a", &[1])], &[(80, "a", &[]), (443, "a", &[1])], true),
        ("nothing leaves", &[(80, "a", &[1])], &[], true),
    ];
    for (what, stays, leaves, expected) in cases {
        let all = [balancer(stays), balancer(leaves)];
        let index = BalancerIndex::new(&all);
        let [stays, leaves] = [0, 1].map(|place| index.of(&all).all().nth(place).unwrap());
        assert_eq!(takes_over(stays, leaves), expected, "{what}");
    }
}
