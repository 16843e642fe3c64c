//! Routes that change between a read and the writes that rest on it.

use crate::LIBRARY_SCALE;
use crate::common::{self, on};
use crate::sync::library::{LONG, SandboxAccess};
use crate::sync::world::{Cluster, NOBODY, World};
use ccm::cache::Apis;
use ccm::controllers::route::{RouteController, RouteSettings};
use ccm::controllers::{Controller, Selection};
use ccm::provider::Urgency;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, RuleId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const READ: &str = "GET /v1/networks/*";
const ADD: &str = "/v1/networks/*/actions/add_route";
const DELETE: &str = "/v1/networks/*/actions/delete_route";

pub fn controller(
    server_cache_max_age: Duration,
    reconciliation_period: Duration,
) -> RouteController {
    RouteController::new(RouteSettings {
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        reconciliation_period,
        server_cache_max_age,
    })
}

/// Returns clients of the APIs of this world.
pub fn apis(world: &World) -> Apis {
    let place = SandboxAccess::at(&world.sandbox, LIBRARY_SCALE);
    place.world(&place.token(), None)
}

/// Lets somebody create a router and a route to it, just before ccm reads the Network for the second time.
fn router_is_added_at_read(world: &World) -> RuleId {
    let manual_change = common::before(&world.sandbox, |world| {
        world.attach_server("router", None);
        world.set_route("10.244.200.0/24", &world.ip("router"));
    });
    world.faults().add(on(READ, manual_change).nth(2))
}

/// The API is away.
fn away() -> Effect {
    Effect::hetzner_error(503, "maintenance", "try again")
}

/// The pass that finds the router has something to write, and a list of servers from before.
#[test]
fn a_route_to_a_server_that_was_made_meanwhile_stays() {
    let world = World::synced(2);
    world.join("worker-3", "10.244.3.0/24");
    let apis = apis(&world);
    apis.instances(None, Duration::ZERO, Urgency::Needed).unwrap();
    // Once to see that a route is missing, once to add it.
    let rule = router_is_added_at_read(&world);
    let mut routes = controller(LONG, Duration::ZERO);
    routes.tick(&apis, &Selection::Due);
    assert_eq!(world.faults().hits(rule), 1);
    assert_eq!(world.routes().len(), 4, "{:#?}", world.routes());
    assert!(world.wanted().is_subset(&world.routes()));
}

/// A long pass reads again, servers included, whatever age of lists its settings allow.
#[test]
fn a_later_deletion_of_a_pass_rests_on_a_new_list() {
    let world = World::synced(2);
    for n in 100..106 {
        world.set_route(&format!("10.244.{n}.0/24"), NOBODY);
    }
    // The first six of them take longer than a look may be old.
    let slow = Effect::Slow(Duration::from_secs(2));
    world.faults().add(on(DELETE, slow));
    let rule = router_is_added_at_read(&world);
    controller(LONG, Duration::ZERO).sync(&apis(&world));
    assert_eq!(world.faults().hits(rule), 1, "no second poll");
    assert_eq!(world.routes().len(), 3, "{:#?}", world.routes());
    assert!(world.wanted().is_subset(&world.routes()));
}

/// The daemon that was killed, or a person, has deleted the route already.
#[test]
fn a_route_that_was_deleted_before_its_replacement_is_added() {
    let world = World::synced(2);
    world.set_route("10.244.1.0/24", NOBODY);
    let manual_change = common::before(&world.sandbox, |world| world.delete_route("10.244.1.0/24"));
    let busy = Effect::hetzner_error(409, "conflict", "another change is being made");
    for effect in [manual_change, busy] {
        world.faults().add(on(DELETE, effect).times(1));
    }
    let ran = world.sync(&[]).with_code(0);
    assert_eq!(world.routes(), world.wanted());
    ran.prints("1 changed, 1 unchanged, 0 failed");
}

/// The look after a refusal shows more to do.
#[test]
fn a_route_that_is_deleted_during_the_pass_is_added_by_it() {
    let world = World::synced(2);
    world.delete_route("10.244.1.0/24");
    let manual_change = common::before(&world.sandbox, |world| world.delete_route("10.244.2.0/24"));
    let no = Effect::hetzner_error(422, "invalid_input", "invalid gateway");
    for effect in [manual_change, no] {
        world.faults().add(on(ADD, effect).times(1));
    }
    let ran = world.sync(&[]).with_code(1);
    ran.prints("invalid gateway");
    let second = format!("10.244.2.0/24 {}", world.ip("worker-2"));
    assert_eq!(world.routes().into_iter().collect::<Vec<_>>(), [second]);
    assert_eq!(world.status("worker-1").as_deref(), Some("True"));
    assert_eq!(world.status("worker-2").as_deref(), Some("False"));
}

/// Refused because it is there by now, and nobody could look.
#[test]
fn a_node_is_marked_only_when_a_read_after_the_refusal_lacks_its_route() {
    let world = World::synced(2);
    world.delete_route("10.244.1.0/24");
    let is_refused = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&is_refused);
    let manual_change = move |_: &Request| refused.store(true, Ordering::SeqCst);
    world.faults().add(on(ADD, Effect::before(manual_change)));
    let taken = Effect::hetzner_error(422, "invalid_input", "the destination overlaps");
    let Effect::Instead(taken) = taken else { unreachable!() };
    world.faults().add(on(ADD, Effect::AfterAll(taken)));
    let is_after = move |_: &Request| is_refused.load(Ordering::SeqCst);
    world.faults().add(on(READ, away()).when(is_after));
    let mark = world.mark();
    world.sync(&[]).with_code(1);
    world.wait_for_routes(&[]);
    assert_eq!(world.patches(mark), Vec::<String>::new());
    assert_eq!(world.event_messages("worker-1", "FailedToCreateRoute"), [""; 0]);
}

/// Whatever of it was made.
#[test]
fn a_replacement_that_was_interrupted_is_completed_by_the_next_sync() {
    for path in [ADD, DELETE] {
        let world = World::synced(2);
        world.set_route("10.244.1.0/24", NOBODY);
        world.faults().add(on(path, away()).times(1));
        world.sync(&[]).with_code(1);
        world.sync(&[]).with_code(0);
        assert_eq!(world.routes(), world.wanted());
    }
}

/// Nothing reaches the pods meanwhile. So the route is added again with the backoff of a failure, and not with
/// the next period.
#[test]
fn a_replacement_that_was_interrupted_does_not_wait_for_its_period() {
    let world = World::synced(2);
    let apis = apis(&world);
    let mut routes = controller(Duration::from_secs(10), LONG);
    world.set_route("10.244.1.0/24", NOBODY);
    world.faults().add(on(ADD, away()));
    let report = routes.tick(&apis, &Selection::Due);
    assert!(report.outage.is_some());
    world.faults().clear();
    common::wait_until("the whole replacement", || {
        routes.tick(&apis, &Selection::Due);
        world.routes() == world.wanted()
    });
}
