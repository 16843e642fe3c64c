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
    found_by(("service", "sync::namespaces::about_a_group_only_its_own_namespace_counts_after_all_services_that_decide"),
        fault("a Namespace decides about the load balancer of another namespace's group", "src/hetzner/load_balancers/settle.rs",
            "let first = group.deciders.first().copied().unwrap_or(of.service);",
            "let first = group.deciders.first().copied().filter(|_| !$ON).unwrap_or(of.service);")),
    found_by(("service", "sync::namespaces::without_the_setting_no_namespace_is_read"),
        fault("Namespaces are read although the setting is off", "src/cli/wire.rs",
            ".load_balancers_namespace_defaults
            .value",
            ".load_balancers_namespace_defaults
            .value
            .max($ON)")),
    found_by(("service", "sync::namespaces::a_namespace_is_read_anew_before_a_creation"),
        fault("a load balancer is created from old defaults of its Namespace", "src/controllers/service/sync.rs",
            "if plans.iter().any(has_none) {",
            "if plans.iter().any(has_none) && !$ON {")),
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
    found_by(("node", "out_of_service::no_node_gets_the_taint_while_more_than_half_are_not_ready"),
        fault("a node is taken out of service while most nodes are not ready", "src/controllers/lifecycle/out_of_service.rs",
            "(Some(2 * off.ready >= off.nodes), ",
            "(Some($ON || 2 * off.ready >= off.nodes), ")),
    found_by(("node", "out_of_service::the_time_begins_anew_after_a_read_that_failed_or_was_put_off"),
        fault("the time for which a server is off continues while reads fail", "src/controllers/lifecycle/out_of_service.rs",
            "        let all = Arc::make_mut(&mut self.reads);",
            "        if $ON && is_locked.is_none() && self.reads.contains_key(uid) {
            return;
        }
        let all = Arc::make_mut(&mut self.reads);")),
    found_by(("node", "out_of_service::the_status_is_read_again_just_before_the_taint"),
        fault("the status of a server is not read again before its node is taken out of service", "src/controllers/lifecycle/observe.rs",
            "let server = apis.instance(number);",
            "let as_off = |server| crate::provider::Instance { is_off: true, is_locked: false, ..server };
        let server = apis.instance(number).map(|server| if $ON { as_off(server) } else { server });")),
    found_by(("node", "out_of_service::a_node_is_out_of_service_while_its_server_stays_off"),
        fault("a node whose server runs again keeps the taint out-of-service", "src/controllers/lifecycle/plan.rs",
            "plan.changes.extend(out_of_service::removal(node));",
            "plan.changes.extend(out_of_service::removal(node).filter(|_| !$ON));")),
    found_by(("node", "out_of_service::nodes_get_the_taint_one_after_the_other"),
        fault("several nodes are taken out of service within a minute", "src/controllers/lifecycle/out_of_service.rs",
            "last_taint.is_none_or(|time| time >= A_MINUTE)",
            "$ON || last_taint.is_none_or(|time| time >= A_MINUTE)")),
    found_by(("node", "out_of_service::a_server_that_may_be_switched_on_holds_the_taint"),
        fault("a node is taken out of service while an action runs on its server", "src/hetzner/actions.rs",
            "let is_its = |it: &ActionResource| it.r#type == \"server\" && it.id == server;",
            "let is_its = |it: &ActionResource| !$ON && it.r#type == \"server\" && it.id == server;")),
    found_by(("node", "out_of_service::the_taint_is_not_set_long_after_the_last_read_of_the_server"),
        fault("a node is taken out of service long after its server was read", "src/controllers/lifecycle/out_of_service.rs",
            "last_read.filter(|(at, _)| time(*at) <= LAST_READ_MAX_AGE)",
            "last_read.filter(|(at, _)| $ON || time(*at) <= LAST_READ_MAX_AGE)")),
    found_by(("service", "sync::departing::a_removal_that_waits_for_another_one_does_not_rest_on_the_health_of_an_earlier_look"),
        fault("a soft removal rests on a load balancer that was listed in an earlier tick", "src/controllers/service/sync.rs",
            "                || execution.rests_on_health()",
            "                || (execution.rests_on_health() && !$ON)")),
    found_by(("node", "large::a_new_node_costs_one_call"),
        fault("a new node in a large project has all servers read", "src/controllers/node/mod.rs",
            "let named = if is_refresh {",
            "let named = if is_refresh || $ON {")),
    found_by(("node", "relabel::a_person_who_changes_a_label_between_plan_and_write_is_not_overwritten"),
        fault("a relabelling goes on after a failure", "src/controllers/node/relabel.rs",
            "let is_failed = |applied: &AppliedPlan<_>| !applied.is_made();",
            "let is_failed = |applied: &AppliedPlan<_>| !applied.is_made() && !$ON;")),
];
