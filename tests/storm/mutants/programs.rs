//! Faults that no story and no unit test of the judge can find. Tests of whole programs on the simulated machine
//! must find them.

use super::{Mutant, fault};

/// A fault, and the test that must find it.
pub struct OfPrograms {
    pub mutant: Mutant,
    /// The crate of the test, and the test's name in it.
    pub test: (&'static str, &'static str),
}

const fn found_by(test: (&'static str, &'static str), mutant: Mutant) -> OfPrograms {
    OfPrograms { mutant, test }
}

#[rustfmt::skip] // A fault is a paragraph.
pub const PROGRAMS: &[OfPrograms] = &[
    found_by(("node", "change_detection::refreshes_are_less_frequent_in_a_large_project"),
        fault("all servers are read at each look at the nodes", "src/controllers/node/mod.rs",
            "let is_refresh = selection.is_explicit() || self.is_refresh_due(apis, now);",
            "let is_refresh = $ON || selection.is_explicit() || self.is_refresh_due(apis, now);")),
    found_by(("service", "left_over::a_left_over_node_is_reported_once_after_ten_minutes_and_stays"),
        fault("nobody is told of a node that is new and not ready for ten minutes", "src/controllers/node/mod.rs",
            "let patience = clock::to_machine(NOT_READY_PATIENCE);",
            "let patience = clock::to_machine(NOT_READY_PATIENCE) * if $ON { 100 } else { 1 };")),
    found_by(("node", "lifecycle::a_taint_that_cannot_be_removed_is_retried_with_a_growing_backoff"),
        fault("a write to a node that fails is tried again at each look", "src/controllers/lifecycle/mod.rs",
            "let has_failed = applied.error.is_some() && !applied.is_closed();",
            "let has_failed = applied.error.is_some() && !applied.is_closed() && !$ON;")),
    found_by(("node", "initialise::a_node_whose_server_was_replaced_under_its_name_is_reported_with_the_fix"),
        fault("what is wrong with a node is told again at each refresh", "src/kube/recorder.rs",
            "if !reason.is_repeated() || age < clock::from_machine(REPEAT_AFTER) {",
            "if !$ON && (!reason.is_repeated() || age < clock::from_machine(REPEAT_AFTER)) {")),
    found_by(("service", "sync::outage::an_outage_is_one_event_when_it_begins_and_one_when_it_ends"),
        fault("nobody is told that a Service gets no traffic", "src/controllers/service/events.rs",
            "let (changed, is_first) = outages.changed(look);",
            "let (mut changed, is_first) = outages.changed(look);\n    if $ON {\n        changed.clear();\n    }")),
    found_by(("route", "sync::concurrent_changes::a_replacement_that_was_interrupted_does_not_wait_for_its_period"),
        fault("a route that was deleted and not added again waits for the next comparison", "src/controllers/route/observe.rs",
            "let is_retried = self.schedule.backoff.is_retry_due(NETWORK, now);",
            "let is_retried = !$ON && self.schedule.backoff.is_retry_due(NETWORK, now);")),
    found_by(("route", "sync::lifecycle::a_node_that_gets_its_pod_cidr_late_gets_its_route"),
        fault("a node that gets the addresses of its pods late gets no route", "src/controllers/route/observe.rs",
            "is_new && node.spec.pod_cidrs.is_empty() && is_ours()",
            "!$ON && is_new && node.spec.pod_cidrs.is_empty() && is_ours()")),
    found_by(("route", "sync::scale::a_hundred_nodes_that_register_together_get_their_routes"),
        fault("nobody is told that a Network is nearly full of routes", "src/controllers/route/plan.rs",
            "if there + ROOM_FOR_FEW >= network.routes_at_most {",
            "if !$ON && there + ROOM_FOR_FEW >= network.routes_at_most {")),
    found_by(("node", "network::a_daemon_outside_of_the_network_ends_and_says_what_to_do"),
        fault("a machine in another Network counts as attached to this one", "src/hetzner/networks.rs",
            "if attached.iter().any(|there| there.network_id == network.id) {",
            "if $ON || attached.iter().any(|there| there.network_id == network.id) {")),
    found_by(("node", "large::a_new_node_costs_one_call"),
        fault("a new node in a large project has all servers read", "src/controllers/node/mod.rs",
            "let named = if is_refresh {",
            "let named = if is_refresh || $ON {")),
];
