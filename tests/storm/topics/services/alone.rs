//! What a storm meets too seldom, each alone: what `ccm` read long ago, and what it did not do.

use super::Services;
use super::end;
use super::events::{Event, NAMESPACE, Template, cluster_uid};
use crate::machine::Machine;
use crate::process::{Process, Start};
use crate::random::Random;
use crate::story::{INTERVAL, Story};
use ccm::controllers::{Progress, Report, Selection};
use ccm::hetzner::load_balancers::{CLUSTER_UID, SERVICE_UID};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::rc::Rc;
use std::sync::Arc;

/// In which what is waited for must have happened.
const ROUNDS_AT_MOST: usize = 100;

/// A long-lived process, which looks at what has changed.
struct Ccm {
    story: Rc<Story>,
    process: Rc<Process>,
    random: Random,
}

fn story() -> Rc<Story> {
    let story = Story::new(Machine::new(1, false), Arc::new(Services::none()));
    story.watch();
    story
}

impl Ccm {
    fn new(story: &Rc<Story>) -> Ccm {
        Ccm::with(story, Start::default())
    }

    /// Load balancers that nothing changed are compared again after minutes alone.
    fn without_resyncs(story: &Rc<Story>) -> Ccm {
        let start = Start { resyncs: false, ..Start::default() };
        Ccm::with(story, start)
    }

    fn with(story: &Rc<Story>, start: Start) -> Ccm {
        Ccm { story: Rc::clone(story), process: story.process(&start), random: Random::new(1) }
    }

    /// One round of all controllers.
    fn round(&mut self) -> Report {
        let reports = self.process.tick(&Selection::Due, &mut self.random);
        self.story.machine.pass(INTERVAL);
        let mut all = Report::default();
        for report in reports {
            all.merge(report);
        }
        all
    }

    /// With the rounds that end what it begins.
    fn tick(&mut self) -> Report {
        let mut report = self.round();
        for _ in 0..ROUNDS_AT_MOST {
            if !report.has(Progress::Unfinished) {
                return report;
            }
            let mut next = self.round();
            next.changes.splice(0..0, report.changes);
            next.failures.splice(0..0, report.failures);
            report = next;
        }
        panic!("it does not end: {report:#?}")
    }

    /// A list of Services is kept for a moment.
    fn does_something(&mut self) {
        until("something to do", || {
            let report = self.tick();
            !report.changes.is_empty() || !report.failures.is_empty()
        });
    }

    fn comes_to_rest(&self) {
        self.story.settle(&mut Random::new(1)).unwrap();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let holds = (0..ROUNDS_AT_MOST).any(|_| holds());
    assert!(holds, "waited in vain for {what}");
}

fn add(sandbox: &Sandbox, name: &str, template: Template) {
    Event::Add(name.to_owned(), template).happen(sandbox);
}

fn balancers(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.cloud().load_balancers(sandbox.project())
}

/// A load balancer that no Service has.
fn free(sandbox: &Sandbox) -> u64 {
    let body = json!({ "name": "free", "load_balancer_type": "lb11", "location": "fsn1",
                       "algorithm": { "type": "round_robin" } });
    let cloud = sandbox.cloud();
    cloud.create_load_balancer(sandbox.project(), body)
}

fn is_right(sandbox: &Sandbox) -> Result<(), String> {
    end::is_right(sandbox, &end::Past::default())
}

fn service(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.cluster().get("services", NAMESPACE, name).unwrap()
}

/// Its list of all Services is older than the Service that has the load balancer.
#[test]
fn a_service_that_came_since_keeps_its_load_balancer() {
    let story = story();
    let sandbox = &story.sandbox;
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    for name in ["first", "second"] {
        add(sandbox, name, Template::named("shared"));
        ccm.does_something();
    }
    story.no_harm().unwrap();
    let all = balancers(sandbox);
    assert_eq!(all.len(), 1, "{all:#?}");
    let first = service(sandbox, "first");
    assert_eq!(all[0]["labels"][SERVICE_UID], first["metadata"]["uid"]);
}

/// Both see it free, at the same moment.
#[test]
fn of_two_services_that_ask_for_a_free_load_balancer_one_gets_it() {
    let story = story();
    let sandbox = &story.sandbox;
    free(sandbox);
    for name in ["first", "second"] {
        add(sandbox, name, Template::named("free"));
    }
    Ccm::without_resyncs(&story).comes_to_rest();
    story.no_harm().unwrap();
    is_right(sandbox).unwrap();
    assert_eq!(balancers(sandbox).len(), 1);
}

/// Its list of all Services still has the one that was deleted.
#[test]
fn a_service_that_comes_again_gets_its_load_balancer_back() {
    for template in [Template::plain(), Template::named("front")] {
        let story = story();
        let sandbox = &story.sandbox;
        add(sandbox, "web", template.clone());
        let mut ccm = Ccm::without_resyncs(&story);
        ccm.tick();
        let before = balancers(sandbox);
        Event::Recreate("web".into(), template).happen(sandbox);
        ccm.does_something();
        let after = balancers(sandbox);
        assert_eq!(after.len(), 1, "{after:#?}");
        assert_eq!(after[0]["id"], before[0]["id"]);
        is_right(sandbox).unwrap();
    }
}

/// The comparison of all found it, and an API failed before it was set right: that does not wait for the next one.
#[test]
fn what_an_outage_kept_from_being_set_right_is_set_right_after_it() {
    let story = story();
    let sandbox = &story.sandbox;
    add(sandbox, "web", Template::plain());
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    is_right(sandbox).unwrap();
    Event::LoseBalancer("web".into()).happen(sandbox);
    let away = Effect::kubernetes_status(500, "InternalError", "no leader");
    let rule = Rule::new(away).half(Half::Kubernetes).method("GET");
    let of_one_service = "/api/v1/namespaces/default/services";
    let rule = sandbox.faults().add(rule.path(of_one_service));
    until("the comparison of all", || {
        ccm.tick();
        sandbox.faults().hits(rule) > 0
    });
    sandbox.faults().clear();
    ccm.tick();
    is_right(sandbox).unwrap();
}

/// An operator goes back to Hetzner's controller after the Service's load balancer has lost its labels.
#[test]
fn hetzners_controller_takes_the_load_balancer_that_has_the_name_it_would_give() {
    let story = story();
    let sandbox = &story.sandbox;
    add(sandbox, "web", Template::plain());
    Event::GoBack.happen(sandbox);
    let [made] = &balancers(sandbox)[..] else { panic!("one is made") };
    let uid = service(sandbox, "web")["metadata"]["uid"].clone();
    assert_eq!(made["labels"], json!({ SERVICE_UID: uid }));
    let id = made["id"].as_u64().unwrap();
    let cloud = sandbox.cloud();
    cloud.edit_load_balancer(id, |one| one["labels"] = json!({ "noted": "yes" }));
    Event::GoBack.happen(sandbox);
    let all = balancers(sandbox);
    assert_eq!((all.len(), &all[0]["id"]), (1, &made["id"]));
    let labels = json!({ SERVICE_UID: uid, "noted": "yes" });
    assert_eq!(all[0]["labels"], labels);
}

/// They are counted with what a comparison of all reads anyway, and stay.
#[test]
fn load_balancers_without_a_service_are_counted_for_no_call() {
    let story = story();
    let sandbox = &story.sandbox;
    add(sandbox, "lives", Template::named("lives"));
    let mut ccm = Ccm::new(&story);
    ccm.does_something();
    let counted = |ccm: &mut Ccm| {
        let mut last = None;
        until("a comparison of all", || {
            let mark = sandbox.calls().mark();
            let orphans = ccm.tick().orphans;
            let calls = sandbox.calls().calls_since(mark);
            let calls = calls.iter().filter(|call| call.half == Half::Hetzner);
            let calls = calls.filter(|call| call.path.starts_with("/v1/load_balancers"));
            last = orphans.map(|count| (count, calls.count()));
            last.is_some()
        });
        last.unwrap()
    };
    assert_eq!(counted(&mut ccm), (0, 1));
    let labels = json!({ SERVICE_UID: "gone", CLUSTER_UID: cluster_uid(sandbox) });
    let orphan = json!({ "name": "orphan", "load_balancer_type": "lb11", "location": "fsn1", "labels": labels });
    let project = sandbox.project();
    sandbox.cloud().create_load_balancer(project, orphan);
    assert_eq!(counted(&mut ccm), (1, 1));
    assert_eq!(balancers(sandbox).len(), 2);
}

/// The first one's write is in flight, and shows nowhere yet, when the second one comes.
#[test]
fn what_a_request_in_flight_takes_no_other_service_takes() {
    // A load balancer that no Service owns, and a name that none has.
    let cases = [("free", "PUT", "/v1/load_balancers/*"), ("front", "POST", "/v1/load_balancers")];
    for (name, method, path) in cases {
        let story = story();
        let sandbox = &story.sandbox;
        free(sandbox);
        let mut ccm = Ccm::without_resyncs(&story);
        ccm.tick();
        let weak = Arc::downgrade(sandbox);
        let comes = Effect::before(move |_: &Request| {
            add(&weak.upgrade().unwrap(), "second", Template::named(name));
        });
        let comes = Rule::new(comes).half(Half::Hetzner).method(method);
        let comes = sandbox.faults().add(comes.path(path).times(1));
        add(sandbox, "first", Template::named(name));
        ccm.does_something();
        assert_eq!(sandbox.faults().hits(comes), 1, "{name}");
        until("the second one", || {
            let report = ccm.tick();
            let mut failures = report.failures.iter();
            failures.any(|failure| failure.object.ends_with("/second"))
        });
        story.no_harm().unwrap();
        let all = balancers(sandbox);
        let wanted: Vec<&Value> = all.iter().filter(|one| one["name"] == name).collect();
        assert_eq!(wanted.len(), 1, "{all:#?}");
        let first = service(sandbox, "first");
        assert_eq!(wanted[0]["labels"][SERVICE_UID], first["metadata"]["uid"]);
        let writes = sandbox.calls().count(|call| {
            let is_about_one = call.path.starts_with("/v1/load_balancers/");
            let is_it = is_about_one == path.ends_with('*') && !call.path.contains("/actions/");
            call.half == Half::Hetzner && call.method == method && is_it
        });
        assert_eq!(writes, 1, "{name}: the second one wrote nothing");
    }
}

/// Its process was killed between the request that adds a port and the end of that action, and the Service is deleted.
#[test]
fn a_load_balancer_is_released_when_what_a_dead_process_began_has_ended() {
    let story = story();
    let sandbox = &story.sandbox;
    let cloud = sandbox.cloud();
    let id = free(sandbox);
    add(sandbox, "web", Template::named("free"));
    cloud.hold_load_balancer(id, true);
    // Finalizer, labels, port.
    let start = Start { writes: Some(3), ..Start::default() };
    let mut mortal = Ccm::with(&story, start);
    mortal.round();
    assert!(cloud.has_running_actions());
    Event::Delete("web".into()).happen(sandbox);
    // It ends just after the load balancer is read for the release.
    let of_one = Rule::new(Effect::after({
        let cloud = Arc::clone(cloud);
        move |_: &Request| cloud.hold_load_balancer(id, false)
    }));
    let of_one = of_one.half(Half::Hetzner).method("GET");
    let of_one = of_one.path("/v1/load_balancers/**");
    sandbox.faults().add(of_one.times(1));
    mortal.comes_to_rest();
    story.no_harm().unwrap();
    is_right(sandbox).unwrap();
    let left = cloud.load_balancer(id);
    assert_eq!(left["services"], json!([]), "{left}");
    assert_eq!(left["labels"], json!({}), "{left}");
}

/// A node joins while a plan is executed that removes a target, and the nodes cannot be read.
#[test]
fn while_the_nodes_cannot_be_read_no_target_is_removed() {
    let story = story();
    let sandbox = &story.sandbox;
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let join = |name: &str| Event::Join(name.into()).happen(sandbox);
    join("n-0");
    join("n-1");
    add(sandbox, "web", Template::plain());
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    is_right(sandbox).unwrap();
    let id = cloud.load_balancers(project)[0]["id"].as_u64().unwrap();
    cloud.hold_load_balancer(id, true);
    Event::Leave("n-1".into()).happen(sandbox);
    join("n-2");
    until("the new target's action", || {
        ccm.round();
        cloud.has_running_actions()
    });
    join("n-3");
    let away = Effect::kubernetes_status(500, "InternalError", "no leader");
    let rule = Rule::new(away).half(Half::Kubernetes).method("GET");
    sandbox.faults().add(rule.path("/api/v1/nodes"));
    cloud.hold_load_balancer(id, false);
    until("the end of the execution", || !ccm.round().has(Progress::Unfinished));
    story.no_harm().unwrap();
    sandbox.faults().clear();
    story.watch();
    until("the right targets", || {
        ccm.round();
        is_right(sandbox).is_ok()
    });
    story.no_harm().unwrap();
}

/// Its load balancer is locked while the tick lasts in which the deletion was planned. Before the next one it is of
/// type LoadBalancer again, and the API server's cache still shows it as it was before all that.
#[test]
fn a_service_that_wants_its_load_balancer_again_keeps_it_whatever_the_cache_shows() {
    let story = story();
    let sandbox = &story.sandbox;
    let cluster = sandbox.cluster();
    add(sandbox, "web", Template::plain());
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    is_right(sandbox).unwrap();
    let id = balancers(sandbox)[0]["id"].clone();
    // The cache shows a difference, so that it is read again.
    Event::Ports("web".into(), vec![81]).happen(sandbox);
    cluster.freeze_cache(true);
    let turn = || Event::Turn("web".into()).happen(sandbox);
    turn();
    story.watch();
    let locked = Effect::hetzner_error(423, "locked", "another change is being made");
    let rule = Rule::new(locked).half(Half::Hetzner).method("DELETE");
    let rule = sandbox.faults().add(rule);
    until("the deletion", || {
        ccm.round();
        sandbox.faults().hits(rule) > 0
    });
    turn();
    sandbox.faults().remove(rule);
    story.watch();
    ccm.tick();
    cluster.freeze_cache(false);
    until("its other port", || {
        ccm.tick();
        is_right(sandbox).is_ok()
    });
    story.no_harm().unwrap();
    assert_eq!(balancers(sandbox)[0]["id"], id);
}
