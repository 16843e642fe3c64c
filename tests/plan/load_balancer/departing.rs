//! Departing nodes: which of them become targets, stay targets, or are removed, and in which order.

use crate::load_balancer::support::{World, changes, lines, node, server_target};
use ccm::hetzner::Profile;
use ccm::hetzner::load_balancers::{ApiTarget, HealthStatus};
use ccm::provider::{Departure, LeftOutState, LoadBalancerPlan, Reach};
use std::time::Duration;

/// The name of the rule, the nodes, the annotation `departing-delay`, the greatest number of targets, the changes, and
/// the nodes that are left out or depart.
///
/// Each word describes a node: `t` for a target, `h` for healthy on port 80, `?` for a target whose health is not known,
/// `d7` for a node that has departed for seven seconds, `m` for a node whose server is missing in the list of servers,
/// `x` for the taint of the cluster autoscaler, `-` for a node that is nothing of this.
type Case = (&'static str, &'static str, Option<&'static str>, usize, &'static str, &'static str);

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    // The taint of the cluster autoscaler, with any setting.
    ("A1: a node with the taint is not added", "th x", None, 25, "", "2 toBeDeleted"),
    ("A1: a target with the taint stays", "th thx", None, 25, "", ""),
    ("A1: a node with the taint is added where there is no other node", "x x", None, 25, "+1 +2", ""),
    ("A1: a node with the taint is not the only target", "x -", None, 25, "+2", "1 toBeDeleted"),
    ("S2: without the annotation a departing node is like any other", "th thd900 d900", None, 25, "+3", ""),
    // Delays.
    ("A3: a target stays until the delay is over", "th thd59", Some("60s"), 25, "", "2 waits 1"),
    ("A3: a target is removed when the delay is over", "th thd60", Some("60s"), 25, "-2", "2 departing"),
    ("A3: a delay of 0s removes at once", "th thd0", Some("0s"), 25, "-2", "2 departing"),
    ("A5: a departing node is not added", "th th d1", Some("60s"), 25, "", "3 departing"),
    ("A5: a node that is back is added", "th th -", Some("60s"), 25, "+3", ""),
    // Half of the targets.
    ("A4: a single target is never removed", "thd90", Some("60s"), 25, "", "1 kept Health"),
    ("A4: the only node is added although it departs", "d90", Some("60s"), 25, "+1", ""),
    ("A4: half of the targets are removed, the longest first", "th th t t td90 td70 td80", Some("60s"), 25, "-5 -6 -7", "5 departing, 7 departing, 6 departing"),
    ("A4: no more than half are removed", "th td70 td80", Some("60s"), 25, "-3", "3 departing, 2 kept Half"),
    ("A4: nodes that are no targets are left out first", "th td90 d1", Some("60s"), 25, "", "3 departing, 2 kept Half"),
    ("A4: a departing node whose server is missing is not one of the half", "th td90 d1m", Some("60s"), 25, "-2", "2 departing"),
    ("A4: names decide where the time is the same", "th td80 td80", Some("60s"), 25, "-2", "2 departing, 3 kept Half"),
    ("A4: a departing node beyond half is added", "d5 d6", Some("60s"), 25, "+1", "2 departing"),
    ("A4: half of the targets that the type allows", "t t td90 td80 - -", Some("60s"), 4, "-3 +5 -4 +6", "3 departing, 4 departing"),
    // Health.
    ("S5: no other target is healthy", "t thd90", Some("60s"), 25, "", "2 kept Health"),
    ("S5: unknown is not healthy", "t? thd90", Some("60s"), 25, "", "2 kept Health"),
    ("S5: a target that is not healthy may go", "t td90", Some("60s"), 25, "-2", "2 departing"),
    ("S5: as many healthy targets stay as leave", "th th thd90 thd80", Some("60s"), 25, "-3 -4", "3 departing, 4 departing"),
    ("S5: fewer healthy targets would stay", "th t thd90 thd1", Some("60s"), 25, "", "3 kept Health, 4 waits 59"),
    ("S8: below the limit, the addition comes first", "th thd90 -", Some("60s"), 25, "+3 -2", "2 departing"),
    ("S8: at the limit, the removal comes first", "th thd90 -", Some("60s"), 2, "-2 +3", "2 departing"),
    ("limit: present targets come first, then names", "- th - th", None, 3, "+1", "3 limit"),
    ("limit: departing nodes come last", "th d9 d9 d9 - -", Some("60s"), 4, "+5 +6 +4", "2 departing, 3 departing"),
    ("limit: departing nodes have no room", "th d9 d9 - -", Some("60s"), 3, "+4 +5", "2 departing, 3 limit"),
];

/// Returns a world with these nodes. `prepare` changes the Service before its load balancer is created.
pub fn world(nodes: &str, most: usize, prepare: fn(&mut World)) -> World {
    let mut world = World::new(Profile::CcmFromScratch);
    world.nodes = Vec::new();
    prepare(&mut world);
    world.converge();
    let mut targets = Vec::new();
    for (word, id) in nodes.split(' ').zip(1..) {
        let departed = word.split('d').nth(1).map(|digits| {
            let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
            Duration::from_secs(digits.parse().unwrap())
        });
        let departure = Departure { departed, is_to_be_deleted: word.contains('x') };
        let mut node = node(id);
        node.departure = departure;
        if word.contains('m') {
            node.reach = Reach::Missing { is_certain: false };
        }
        world.nodes.push(node);
        if word.starts_with('t') {
            let status = if word.contains('h') {
                "healthy"
            } else if word.contains('?') {
                "unknown"
            } else {
                "unhealthy"
            };
            targets.push(target(id, &[(80, status)]));
        }
    }
    let balancer = world.balancer_mut();
    balancer.targets = targets;
    balancer.load_balancer_type.max_targets = most;
    world
}

fn target(id: u64, health: &[(u16, &str)]) -> ApiTarget {
    let mut target = server_target(id, false);
    if let ApiTarget::Server { health_status, .. } = &mut target {
        let of_port = |(listen_port, status): &(u16, &str)| HealthStatus {
            listen_port: *listen_port,
            status: (*status).into(),
            ..HealthStatus::default()
        };
        *health_status = health.iter().map(of_port).collect();
    }
    target
}

/// Returns the changes of targets as `+1 -2`.
pub fn steps(plan: LoadBalancerPlan) -> String {
    let lines = lines(&changes(plan));
    let step = |line: &String| {
        let sign = if line.contains("removed") { '-' } else { '+' };
        let number = line.split("worker-").nth(1).expect("a target")[..2].parse::<u32>();
        format!("{sign}{}", number.unwrap())
    };
    lines.iter().map(step).collect::<Vec<_>>().join(" ")
}

pub fn states(plan: &LoadBalancerPlan) -> String {
    let state = |state: LeftOutState| match state {
        LeftOutState::Limit => "limit".to_owned(),
        LeftOutState::Departing => "departing".to_owned(),
        LeftOutState::ToBeDeleted => "toBeDeleted".to_owned(),
        LeftOutState::Waits { seconds } => format!("waits {seconds}"),
        LeftOutState::Kept(why) => format!("kept {why:?}"),
        LeftOutState::Exchanged => "exchanged".to_owned(),
        LeftOutState::Stays(why) => format!("stays {why:?}"),
    };
    let number = |name: &str| name.trim_start_matches("worker-").parse::<u32>().unwrap();
    let all = plan.left_out.iter();
    let all = all.map(|node| format!("{} {}", number(&node.node), state(node.state)));
    all.collect::<Vec<_>>().join(", ")
}

#[test]
fn each_rule_about_departing_nodes_decides_its_case() {
    for (rule, nodes, delay, most, expected, left) in CASES {
        let mut world = world(nodes, *most, |_| {});
        if let Some(delay) = delay {
            world.set_one("departing-delay", delay);
        }
        let plan = world.plan();
        assert_eq!(states(&plan), *left, "{rule}");
        assert_eq!(steps(plan), *expected, "{rule}");
    }
}
