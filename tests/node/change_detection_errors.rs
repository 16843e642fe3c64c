//! The doorbell in bad times: tables that are none, old ones, reads that fail. The binary against
//! the sandbox.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;
use crate::common::at_rest;

use at_rest::{AtRest, NO_REFRESH, Read, is_ready, is_tainted};
use common::{
    LAGS, hetzner_calls, is_initialised, needs_simulation, node, side_by_side, wait_until, writes,
};
use sandbox::Half;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use serde_json::json;

#[test]
fn a_table_that_is_none_leads_to_whole_lists_and_back() {
    let no_status = json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "rows": [],
        "columnDefinitions": [{ "name": "Name" }, { "name": "Age" }],
    });
    let cases = vec![
        (
            "no status",
            Effect::Instead(Response::json(200, &no_status)),
        ),
        (
            "not acceptable",
            Effect::kubernetes_status(406, "NotAcceptable", "only the following media types"),
        ),
    ];
    side_by_side(cases, |(name, effect)| {
        let mut world = AtRest::new(2, "--node-status-update-frequency=50s");
        let table = |request: &Request| {
            request
                .header("accept")
                .is_some_and(|accept| accept.contains("as=Table"))
        };
        let rule = world
            .sandbox
            .faults()
            .add(Rule::new(effect).half(Half::Kubernetes).when(table));
        world.daemon.logs("is not one that ccm can read");
        world.mark();
        wait_until("whole lists", || world.whole() > 20);
        let tables = world.reads().len() - world.whole();
        assert!(tables <= 4, "{name}: {:?}", world.reads());
        world.sandbox.join(ServerSpec {
            name: "late".into(),
            ..ServerSpec::default()
        });
        wait_until("the late node", || {
            is_initialised(&node(&world.sandbox, "late"))
        });
        assert_eq!(
            world.daemon.log().matches("is not one that ccm").count(),
            1,
            "{name}"
        );
        world.sandbox.faults().remove(rule);
        world.mark();
        world.looks(5);
    });
}

/// The API server's cache stands still, or shows what was.
#[test]
fn an_old_table_does_no_harm() {
    let mut world = AtRest::new(3, NO_REFRESH);
    if needs_simulation(&world.sandbox, LAGS) {
        return;
    }
    let cluster = std::sync::Arc::clone(world.sandbox.cluster());
    world.set_ready("worker-1", "Unknown");
    wait_until("a ring", || world.by_name("worker-1") > 0);
    world.looks(1);
    cluster.freeze_cache(true);
    // The table shows worker-1 not ready, worker-2, and no late node.
    world.set_ready("worker-1", "True");
    assert!(cluster.delete("nodes", None, "worker-2"));
    world.sandbox.join(ServerSpec {
        name: "late".into(),
        ..ServerSpec::default()
    });
    // Known to be not ready, it is read by name when it is its time.
    let before = world.by_name("worker-1");
    wait_until("the truth", || world.by_name("worker-1") > before);
    let (calls, written) = (hetzner_calls(&world.sandbox), writes(&world.sandbox));
    world.looks(30);
    assert_eq!(
        hetzner_calls(&world.sandbox),
        calls,
        "it is ready: nobody has to be asked"
    );
    assert_eq!(writes(&world.sandbox), written);
    assert!(is_ready(&world.sandbox, "worker-1"));
    world.mark();
    cluster.freeze_cache(false);
    wait_until("the late node", || {
        is_initialised(&node(&world.sandbox, "late"))
    });
    wait_until("the deleted node", || world.by_name("worker-2") > 0);
    world.mark();
    world.looks(5);
    assert_eq!(
        world
            .reads()
            .iter()
            .filter(|read| **read != Read::Table)
            .count(),
        0
    );
    assert_eq!(
        world.sandbox.calls().count(|call| call.method == "DELETE"),
        0
    );
    assert!(
        !world.daemon.log().contains("WARN"),
        "{}",
        world.daemon.log()
    );
}

#[test]
fn a_read_by_name_that_fails_is_repeated_and_holds_up_nobody() {
    let world = AtRest::new(2, NO_REFRESH);
    let failure = Effect::kubernetes_status(500, "InternalError", "sorry");
    let rule = Rule::new(failure)
        .method("GET")
        .path("/api/v1/nodes/worker-1");
    let rule = world.sandbox.faults().add(rule);
    let servers = world.sandbox.cloud().servers(world.sandbox.project());
    world
        .sandbox
        .cloud()
        .set_power(servers[0]["id"].as_u64().unwrap(), false);
    world.set_ready("worker-1", "Unknown");
    world
        .daemon
        .logs("node/worker-1: not read, tried again: GET");
    world.sandbox.join(ServerSpec {
        name: "late".into(),
        ..ServerSpec::default()
    });
    wait_until("the late node", || {
        is_initialised(&node(&world.sandbox, "late"))
    });
    world.looks(5);
    assert!(
        !is_tainted(&world.sandbox, "worker-1"),
        "a table is no ground for a write"
    );
    world.sandbox.faults().remove(rule);
    wait_until("the taint", || is_tainted(&world.sandbox, "worker-1"));
    assert_eq!(
        world.daemon.log().matches("not read").count(),
        1,
        "{}",
        world.daemon.log()
    );
    assert_eq!(world.whole(), 0);
}
