//! Nodes that register together are written at the same time. The writes of each node keep their order, and no more
//! nodes are written at once than the setting allows.

use crate::common::in_flight::InFlight;
use crate::common::library::{LONG, SandboxAccess, WriteLimit};
use crate::common::{self, Env, all_initialised, ccm, simulated_cluster, socket_cluster};
use ccm::controllers::node::{NodeController, NodeControllerSettings};
use ccm::controllers::{Controller, Selection};
use sandbox::Sandbox;
use std::time::Duration;

const NODES: usize = 30;

/// Returns an environment in real time, because a write that waits for others must not be too late for the
/// list of servers.
fn real_time(sandbox: &Sandbox) -> Env {
    common::real_time(sandbox)
}

/// Returns the writes to nodes in the order in which they arrived: the name of the node, and whether the write is
/// to its status.
fn node_writes(sandbox: &Sandbox) -> Vec<(String, bool)> {
    let calls = sandbox.calls().calls();
    let patches = calls.iter().filter(|call| call.method == "PATCH");
    let mut writes = Vec::new();
    for call in patches.filter(|call| call.status == Some(200)) {
        let node = call.path.strip_prefix("/api/v1/nodes/").unwrap();
        let is_status = node.ends_with("/status");
        writes.push((node.trim_end_matches("/status").to_owned(), is_status));
    }
    writes
}

#[test]
fn nodes_are_written_at_the_same_time_up_to_the_limit_and_each_gets_its_addresses_first() {
    for (args, expected) in
        [(&[][..], 5), (&["--concurrent-node-syncs=3"], 3), (&["--concurrent-node-syncs=1"], 1)]
    {
        let sandbox = socket_cluster(NODES);
        let in_flight = InFlight::of(&sandbox, "PATCH", expected, 5);
        ccm(&real_time(&sandbox), &[&["run", "--once"], args].concat()).with_code(0);
        assert!(all_initialised(&sandbox));
        assert_eq!(in_flight.at_most(), expected, "{args:?}");
        let mut writes = node_writes(&sandbox);
        // The sort is stable, so that the writes of one node keep their order.
        writes.sort_by(|one, next| one.0.cmp(&next.0));
        assert_eq!(writes.len(), 2 * NODES);
        for of_node in writes.chunks(2) {
            assert_eq!(of_node[0].0, of_node[1].0);
            assert!(of_node[0].1 && !of_node[1].1, "{of_node:?}");
        }
    }
}

#[test]
fn events_and_lines_have_the_order_of_the_nodes_whatever_was_written_first() {
    let sandbox = socket_cluster(NODES);
    // In scaled time the list of servers may be too old for the next write after milliseconds. Then the nodes whose
    // writes have begun end before those whose writes wait for the new list.
    ccm(&real_time(&sandbox), &["node", "sync", "-o", "json"]).with_code(0);
    let calls = sandbox.calls().calls();
    let events =
        calls.iter().filter(|call| call.method == "POST" && call.path.ends_with("/events"));
    let about = events
        .map(|call| call.json().unwrap()["involvedObject"]["name"].as_str().unwrap().to_owned());
    let about: Vec<String> = about.collect();
    assert_eq!(about.len(), NODES);
    assert!(about.is_sorted(), "{about:?}");
}

/// The Lease is lost, or the process is to end.
#[test]
fn a_pass_whose_gate_closes_starts_no_other_write_and_the_next_pass_finishes() {
    for writes in [0, 1, 4, 5, 13, 2 * NODES as u64 - 1] {
        let sandbox = simulated_cluster(NODES);
        let place = SandboxAccess::new(&sandbox);
        let pass = |gate| {
            let mut apis = place.world_of(WriteLimit::after(gate), &place.token(), None);
            apis.concurrent_nodes = 5;
            let mut controller = NodeController::new(NodeControllerSettings {
                sync_interval: Duration::from_secs(5),
                status_update_frequency: LONG,
                server_cache_max_age: LONG,
            });
            controller.tick(&apis, &Selection::Due)
        };
        let report = pass(Some(writes));
        assert_eq!(node_writes(&sandbox).len() as u64, writes);
        let counts = report.counts();
        let counted = counts.changed + counts.failed + counts.unreached + counts.unchanged;
        assert_eq!(counted, NODES, "{report:?}");
        assert!(report.changes.is_sorted_by_key(|(object, _)| object), "{report:?}");
        // These are the nodes whose writes have begun. All others are not reached.
        assert!(counts.failed <= 5, "{report:?}");

        let report = pass(None);
        assert!(all_initialised(&sandbox), "{report:?}");
        assert_eq!(node_writes(&sandbox).len(), 2 * NODES);
        assert!(report.failures.is_empty() && report.is_complete(), "{report:?}");
    }
}
