//! Change detection while something fails: answers that are no table, stale tables, failed reads. The binary runs
//! against the sandbox.

use crate::common::steady_state::{NO_REFRESH, Read, SteadyState};
use crate::common::{
    Cluster, STALE_CACHE, answer, hetzner_calls, needs_simulation, on, run_in_parallel, wait_until,
    writes,
};
use sandbox::Half;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use serde_json::json;

#[test]
fn a_wrong_answer_instead_of_a_table_leads_to_whole_lists_and_back() {
    let no_status = json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "rows": [],
        "columnDefinitions": [{ "name": "Name" }, { "name": "Age" }],
    });
    let cases = vec![
        ("no status", answer(200, &no_status)),
        (
            "not acceptable",
            Effect::kubernetes_status(406, "NotAcceptable", "only the following media types"),
        ),
    ];
    run_in_parallel(cases, |(name, effect)| {
        let mut world = SteadyState::new(2, "--node-status-update-frequency=50s");
        let table = |request: &Request| {
            request.header("accept").is_some_and(|accept| accept.contains("as=Table"))
        };
        let rule = world.sandbox.fault(Rule::new(effect).half(Half::Kubernetes).when(table));
        world.daemon.logs("can't read the nodes as a table");
        world.reset_count();
        wait_until("whole lists", || world.whole() > 20);
        let tables = world.reads().len() - world.whole();
        assert!(tables <= 4, "{name}: {:?}", world.reads());
        world.join_node("late");
        world.wait_for_node("late");
        world.daemon.logged("can't read the nodes as a table", 1);
        world.sandbox.faults().remove(rule);
        world.reset_count();
        world.wait_for_polls(5);
    });
}

/// The API server's cache stands still, or shows what was.
#[test]
fn a_stale_table_undoes_no_change() {
    let mut world = SteadyState::new(3, NO_REFRESH);
    if needs_simulation(&world.sandbox, STALE_CACHE) {
        return;
    }
    let cluster = std::sync::Arc::clone(world.sandbox.cluster());
    world.set_ready("worker-1", "Unknown");
    wait_until("a ring", || world.by_name("worker-1") > 0);
    world.wait_for_polls(1);
    cluster.freeze_cache(true);
    // The table shows worker-1 not ready, worker-2, and no late node.
    world.set_ready("worker-1", "True");
    assert!(cluster.delete("nodes", None, "worker-2"));
    world.join_node("late");
    // Known to be not ready, it is read by name when it is its time.
    let before = world.by_name("worker-1");
    wait_until("the truth", || world.by_name("worker-1") > before);
    let (calls, written) = (hetzner_calls(&world.sandbox), writes(&world.sandbox));
    world.wait_for_polls(30);
    assert_eq!(hetzner_calls(&world.sandbox), calls, "it is ready: nobody has to be asked");
    assert_eq!(writes(&world.sandbox), written);
    assert!(world.is_ready("worker-1"));
    world.reset_count();
    cluster.freeze_cache(false);
    world.wait_for_node("late");
    wait_until("the deleted node", || world.by_name("worker-2") > 0);
    world.reset_count();
    world.wait_for_polls(5);
    assert_eq!(world.reads().iter().filter(|read| **read != Read::Table).count(), 0);
    assert_eq!(world.sandbox.calls().count(|call| call.method == "DELETE"), 0);
    assert!(!world.daemon.log().contains("WARN"), "{}", world.daemon.log());
}

#[test]
fn a_failed_read_by_name_is_repeated_and_delays_no_other_node() {
    let world = SteadyState::new(2, NO_REFRESH);
    let failure = Effect::kubernetes_status(500, "InternalError", "sorry");
    let rule = on("GET /api/v1/nodes/worker-1", failure);
    let rule = world.sandbox.fault(rule);
    let servers = world.servers();
    world.sandbox.cloud().set_power(servers[0]["id"].as_u64().unwrap(), false);
    world.set_ready("worker-1", "Unknown");
    world.daemon.logs("node/worker-1: could not be read (ccm tries again): GET");
    world.join_node("late");
    world.wait_for_node("late");
    world.wait_for_polls(5);
    assert!(!world.is_tainted("worker-1"), "a table is no ground for a write");
    world.sandbox.faults().remove(rule);
    wait_until("the taint", || world.is_tainted("worker-1"));
    world.daemon.logged("could not be read", 1);
    assert_eq!(world.whole(), 0);
}
