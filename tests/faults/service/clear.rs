//! What a storm meets too seldom, each alone: what `ccm` read long ago, and what it did not come to.

use crate::common::wait_until;
use crate::service::end;
use crate::service::library::{Place, scaled};
use crate::service::life::Ccm;
use crate::service::story::{Event, NAMESPACE, Wish};
use crate::service::watch::Watch;
use ccm::controllers::{Report, Selection};
use ccm::hetzner::load_balancers::SERVICE_UID;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn world() -> (Sandbox, Place) {
    let sandbox = Sandbox::builder()
        .nodes(0)
        .heartbeats(false)
        .scale(crate::service::library::SCALE)
        .start();
    let place = Place::new(&sandbox);
    (sandbox, place)
}

/// A long-lived `ccm`, which looks at what has changed and at nothing else; with the ticks that end what it begins.
fn tick(ccm: &mut Ccm) -> Report {
    let mut report = ccm.tick(&Selection::Due);
    while report.unfinished > 0 {
        let next = ccm.tick(&Selection::Due);
        report.changes.extend(next.changes);
        report.failures.extend(next.failures);
        report.unfinished = next.unfinished;
        report.orphans = next.orphans;
    }
    report
}

/// The next look that comes to anything: a list of Services is kept for a moment.
fn comes_to_something(ccm: &mut Ccm) {
    wait_until("something to do", || {
        let report = tick(ccm);
        !report.changes.is_empty() || !report.failures.is_empty()
    });
}

fn add(sandbox: &Sandbox, name: &str, wish: Wish) {
    Event::Add(name.to_owned(), wish).happen(sandbox);
}

fn balancers(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.cloud().load_balancers(sandbox.project())
}

/// Its list of all Services is older than the Service that lives there.
#[test]
fn a_service_that_came_since_is_not_driven_out() {
    let (sandbox, place) = world();
    let watch = Watch::new(&sandbox);
    watch.over(&sandbox);
    let mut ccm = Ccm::new(&place, false);
    tick(&mut ccm);
    for name in ["first", "second"] {
        add(&sandbox, name, Wish::named("shared"));
        comes_to_something(&mut ccm);
    }
    watch.no_harm(&sandbox).unwrap();
    let first = sandbox.cluster().get("services", NAMESPACE, "first");
    let all = balancers(&sandbox);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(
        all[0]["labels"][SERVICE_UID],
        first.unwrap()["metadata"]["uid"]
    );
}

/// Both see it free, at the same moment.
#[test]
fn of_two_services_that_ask_for_a_free_load_balancer_one_gets_it() {
    let (sandbox, place) = world();
    let body = json!({ "name": "free", "load_balancer_type": "lb11", "location": "fsn1",
                       "algorithm": { "type": "round_robin" } });
    sandbox
        .cloud()
        .create_load_balancer(sandbox.project(), body);
    let watch = Watch::new(&sandbox);
    watch.over(&sandbox);
    for name in ["first", "second"] {
        add(&sandbox, name, Wish::named("free"));
    }
    Ccm::new(&place, false).settle().unwrap();
    watch.no_harm(&sandbox).unwrap();
    end::is_right(&sandbox).unwrap();
    assert_eq!(balancers(&sandbox).len(), 1);
}

/// Its list of all Services still has the one that went.
#[test]
fn a_service_that_comes_again_gets_its_load_balancer_back() {
    for wish in [Wish::plain(), Wish::named("front")] {
        let (sandbox, place) = world();
        add(&sandbox, "web", wish.clone());
        let mut ccm = Ccm::new(&place, false);
        tick(&mut ccm);
        let before = balancers(&sandbox);
        Event::Recreate("web".into(), wish).happen(&sandbox);
        comes_to_something(&mut ccm);
        let after = balancers(&sandbox);
        assert_eq!(after.len(), 1, "{after:#?}");
        assert_eq!(after[0]["id"], before[0]["id"]);
        end::is_right(&sandbox).unwrap();
    }
}

/// The comparison of all found it, and an API failed before it was mended: that does not wait for the next one.
#[test]
fn what_an_outage_kept_from_being_mended_is_mended_after_it() {
    let (sandbox, place) = world();
    add(&sandbox, "web", Wish::plain());
    // So far apart that the second is the last.
    let mut ccm = Ccm::with(&place, Duration::from_secs(2));
    tick(&mut ccm);
    end::is_right(&sandbox).unwrap();
    Event::LoseBalancer("web".into()).happen(&sandbox);
    let away = Effect::kubernetes_status(500, "InternalError", "no leader");
    let rule = Rule::new(away).half(Half::Kubernetes).method("GET");
    let of_one_service = "/api/v1/namespaces/default/services";
    let rule = sandbox.faults().add(rule.path(of_one_service));
    wait_until("the comparison of all", || {
        tick(&mut ccm);
        std::thread::sleep(scaled(1));
        sandbox.faults().hits(rule) > 0
    });
    sandbox.faults().clear();
    tick(&mut ccm);
    end::is_right(&sandbox).unwrap();
}

/// They are counted with what a comparison of all reads anyway, and stay while nobody asks for more.
#[test]
fn load_balancers_that_nobody_wants_are_counted_for_no_call() {
    let (sandbox, place) = world();
    add(&sandbox, "lives", Wish::named("lives"));
    let mut ccm = Ccm::new(&place, true);
    comes_to_something(&mut ccm);
    let counted = |ccm: &mut Ccm| {
        let mut last = None;
        wait_until("a comparison of all", || {
            let mark = sandbox.calls().mark();
            let orphans = tick(ccm).orphans;
            let calls = sandbox.calls().calls_since(mark);
            let calls = calls.iter().filter(|call| call.half == Half::Hetzner);
            last = orphans.map(|count| (count, calls.count()));
            last.is_some()
        });
        last.unwrap()
    };
    assert_eq!(counted(&mut ccm), (0, 1));
    let uid = crate::service::story::cluster_uid(&sandbox);
    let labels = json!({ SERVICE_UID: "gone", "ccm-from-scratch/cluster-uid": uid });
    let orphan = json!({ "name": "orphan", "load_balancer_type": "lb11", "location": "fsn1", "labels": labels });
    let project = sandbox.project();
    sandbox.cloud().create_load_balancer(project, orphan);
    assert_eq!(counted(&mut ccm), (1, 1));
    assert_eq!(balancers(&sandbox).len(), 2);
}

/// The first one's write is in flight, and shows nowhere yet, when the second one comes: with its own tick, which does
/// not wait for that write.
#[test]
fn what_a_request_in_flight_takes_no_other_service_takes() {
    // A load balancer that no Service owns, and a name that none has.
    let cases = [
        ("free", "PUT", "/v1/load_balancers/*"),
        ("front", "POST", "/v1/load_balancers"),
    ];
    for (name, method, path) in cases {
        let (sandbox, place) = world();
        let free = json!({ "name": "free", "load_balancer_type": "lb11", "location": "fsn1",
                           "algorithm": { "type": "round_robin" } });
        sandbox
            .cloud()
            .create_load_balancer(sandbox.project(), free);
        let watch = Watch::new(&sandbox);
        watch.over(&sandbox);
        let mut ccm = Ccm::new(&place, false);
        tick(&mut ccm);
        let slow = Rule::new(Effect::Slow(Duration::from_millis(700)));
        let slow = slow.half(Half::Hetzner).method(method).path(path).times(1);
        let slow = sandbox.faults().add(slow);
        add(&sandbox, "first", Wish::named(name));
        let looks = || {
            let is_look = |call: &Call| {
                call.method == "GET" && call.path == "/v1/load_balancers" && call.status.is_some()
            };
            sandbox.calls().count(is_look)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_until("the first one's write", || sandbox.faults().hits(slow) == 1);
                let before = looks();
                add(&sandbox, "second", Wish::named(name));
                let begun = Instant::now();
                wait_until("a plan for the second one", || looks() > before);
                assert!(
                    begun.elapsed() < Duration::from_millis(400),
                    "{name}: it waited for the request of another Service"
                );
            });
            comes_to_something(&mut ccm);
        });
        wait_until("the second one", || {
            let report = tick(&mut ccm);
            let mut failures = report.failures.iter();
            failures.any(|failure| failure.object.ends_with("/second"))
        });
        watch.no_harm(&sandbox).unwrap();
        let of = |name: &str| sandbox.cluster().get("services", NAMESPACE, name).unwrap();
        let all = balancers(&sandbox);
        let wanted: Vec<&Value> = all.iter().filter(|one| one["name"] == name).collect();
        assert_eq!(wanted.len(), 1, "{all:#?}");
        assert_eq!(
            wanted[0]["labels"][SERVICE_UID],
            of("first")["metadata"]["uid"]
        );
        let writes = sandbox.calls().count(|call| {
            call.half == Half::Hetzner
                && call.method == method
                && call.path.starts_with(&path[..18])
        });
        assert_eq!(writes, 1, "{name}: the second one wrote nothing");
    }
}

/// Its process was killed between the request that adds a port and the end of that action, and the Service is deleted.
#[test]
fn a_load_balancer_is_released_when_what_a_dead_process_began_has_ended() {
    let (sandbox, place) = world();
    let body = json!({ "name": "free", "load_balancer_type": "lb11", "location": "fsn1",
                       "algorithm": { "type": "round_robin" } });
    let cloud = sandbox.cloud();
    let id = cloud.create_load_balancer(sandbox.project(), body);
    let watch = Watch::new(&sandbox);
    watch.over(&sandbox);
    add(&sandbox, "web", Wish::named("free"));
    cloud.hold_load_balancer(id, true);
    // Finalizer, labels, port.
    Ccm::mortal(&place, 3).tick(&Selection::All);
    assert!(cloud.has_running_actions());
    Event::Delete("web".into()).happen(&sandbox);
    // It ends just after the load balancer is read for the release.
    let of_one = Rule::new(Effect::after({
        let cloud = Arc::clone(cloud);
        move |_: &Request| cloud.hold_load_balancer(id, false)
    }));
    let of_one = of_one.half(Half::Hetzner).method("GET");
    let of_one = of_one.path("/v1/load_balancers/**");
    sandbox.faults().add(of_one.times(1));
    Ccm::new(&place, false).settle().unwrap();
    watch.no_harm(&sandbox).unwrap();
    end::is_right(&sandbox).unwrap();
    let left = cloud.load_balancer(id);
    assert_eq!(left["services"], json!([]), "{left}");
    assert_eq!(left["labels"], json!({}), "{left}");
}

/// A node joins while a plan is executed that removes a target, and the nodes can't be read.
#[test]
fn while_the_nodes_cannot_be_read_no_target_is_removed() {
    let (sandbox, place) = world();
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let watch = Watch::new(&sandbox);
    watch.over(&sandbox);
    let join = |name: &str| Event::Join(name.into()).happen(&sandbox);
    join("n-0");
    join("n-1");
    add(&sandbox, "web", Wish::plain());
    let mut ccm = Ccm::patient(&place, 10.0);
    tick(&mut ccm);
    end::is_right(&sandbox).unwrap();
    let id = cloud.load_balancers(project)[0]["id"].as_u64().unwrap();
    cloud.hold_load_balancer(id, true);
    Event::Leave("n-1".into()).happen(&sandbox);
    join("n-2");
    wait_until("the new target's action", || {
        ccm.tick(&Selection::Due);
        cloud.has_running_actions()
    });
    join("n-3");
    let away = Effect::kubernetes_status(500, "InternalError", "no leader");
    let rule = Rule::new(away).half(Half::Kubernetes).method("GET");
    sandbox.faults().add(rule.path("/api/v1/nodes"));
    cloud.hold_load_balancer(id, false);
    wait_until("the end of the execution", || {
        ccm.tick(&Selection::Due).unfinished == 0
    });
    watch.no_harm(&sandbox).unwrap();
    sandbox.faults().clear();
    watch.over(&sandbox);
    wait_until("the right targets", || {
        ccm.tick(&Selection::Due);
        end::is_right(&sandbox).is_ok()
    });
    watch.no_harm(&sandbox).unwrap();
}

/// Its load balancer is locked while the tick lasts in which the deletion was planned. Before the next one it is of
/// type LoadBalancer again, and the API server's cache still shows it as it was before all that.
#[test]
fn a_service_that_wants_its_load_balancer_again_keeps_it_whatever_the_cache_shows() {
    let (sandbox, place) = world();
    let cluster = sandbox.cluster();
    let watch = Watch::new(&sandbox);
    add(&sandbox, "web", Wish::plain());
    let mut ccm = Ccm::patient(&place, 10.0);
    tick(&mut ccm);
    end::is_right(&sandbox).unwrap();
    let id = balancers(&sandbox)[0]["id"].clone();
    // The cache shows a difference, so that it is read again.
    Event::Ports("web".into(), vec![81]).happen(&sandbox);
    cluster.freeze_cache(true);
    let turn = || Event::Turn("web".into()).happen(&sandbox);
    turn();
    watch.over(&sandbox);
    let locked = Effect::hetzner_error(423, "locked", "another change is being made");
    let rule = Rule::new(locked).half(Half::Hetzner).method("DELETE");
    let rule = sandbox.faults().add(rule);
    wait_until("the deletion", || {
        ccm.tick(&Selection::Due);
        sandbox.faults().hits(rule) > 0
    });
    turn();
    sandbox.faults().remove(rule);
    watch.over(&sandbox);
    tick(&mut ccm);
    cluster.freeze_cache(false);
    wait_until("its other port", || {
        tick(&mut ccm);
        end::is_right(&sandbox).is_ok()
    });
    watch.no_harm(&sandbox).unwrap();
    assert_eq!(balancers(&sandbox)[0]["id"], id);
}
