//! Cases that the stories meet too seldom, each in a test of its own. In most of them `ccm` acts on what it
//! read long ago.

use super::Services;
use super::end_state;
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

/// The number of rounds in which an expected state must be reached.
const ROUNDS_AT_MOST: usize = 100;

/// A long-lived process, which looks only at what has changed.
struct Ccm {
    story: Rc<Story>,
    process: Rc<Process>,
    random: Random,
}

fn story() -> Rc<Story> {
    let story = Story::new(Machine::new(1, false), Arc::new(Services::empty()));
    story.watch_requests();
    story
}

impl Ccm {
    fn new(story: &Rc<Story>) -> Ccm {
        Ccm::with(story, Start::default())
    }

    /// Starts a process that compares load balancers without a change only after some minutes.
    fn without_resyncs(story: &Rc<Story>) -> Ccm {
        let start = Start { resyncs: false, ..Start::default() };
        Ccm::with(story, start)
    }

    fn with(story: &Rc<Story>, start: Start) -> Ccm {
        Ccm { story: Rc::clone(story), process: story.process(&start), random: Random::new(1) }
    }

    /// Runs all controllers once.
    fn round(&mut self) -> Report {
        let reports = self.process.tick(&Selection::Due, &mut self.random);
        self.story.machine.pass(INTERVAL);
        let mut all = Report::default();
        for report in reports {
            all.merge(report);
        }
        all
    }

    /// Runs rounds until everything that the first round started has ended.
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

    /// Runs ticks until something changes or fails. The first ticks may do nothing, because a list of Services is
    /// cached for a moment.
    fn tick_until_change(&mut self) {
        until("something to do", || {
            let report = self.tick();
            !report.changes.is_empty() || !report.failures.is_empty()
        });
    }

    fn converge(&self) {
        self.story.converge(&mut Random::new(1)).unwrap();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let holds = (0..ROUNDS_AT_MOST).any(|_| holds());
    assert!(holds, "waited in vain for {what}");
}

fn add(sandbox: &Sandbox, name: &str, template: Template) {
    Event::Add(name.to_owned(), template).apply(sandbox);
}

fn balancers(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.cloud().load_balancers(sandbox.project())
}

/// Creates a load balancer that no Service owns.
fn create_unowned_balancer(sandbox: &Sandbox) -> u64 {
    let body = json!({ "name": "free", "load_balancer_type": "lb11", "location": "fsn1",
                       "algorithm": { "type": "round_robin" } });
    let cloud = sandbox.cloud();
    cloud.create_load_balancer(sandbox.project(), body)
}

fn check_end_state(sandbox: &Sandbox) -> Result<(), String> {
    end_state::check_end_state(sandbox, &end_state::PastEvents::default())
}

fn service(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.cluster().get("services", NAMESPACE, name).unwrap()
}

/// The process's list of all Services is older than the Service that has the load balancer.
#[test]
fn a_service_that_is_newer_than_the_cached_list_keeps_its_load_balancer() {
    let story = story();
    let sandbox = &story.sandbox;
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    for name in ["first", "second"] {
        add(sandbox, name, Template::named("shared"));
        ccm.tick_until_change();
    }
    story.no_violations().unwrap();
    let all = balancers(sandbox);
    assert_eq!(all.len(), 1, "{all:#?}");
    let first = service(sandbox, "first");
    assert_eq!(all[0]["labels"][SERVICE_UID], first["metadata"]["uid"]);
}

/// Both Services see at the same moment that the load balancer is free.
#[test]
fn one_of_two_services_that_ask_for_a_free_load_balancer_gets_it() {
    let story = story();
    let sandbox = &story.sandbox;
    create_unowned_balancer(sandbox);
    for name in ["first", "second"] {
        add(sandbox, name, Template::named("free"));
    }
    Ccm::without_resyncs(&story).converge();
    story.no_violations().unwrap();
    check_end_state(sandbox).unwrap();
    assert_eq!(balancers(sandbox).len(), 1);
}

/// The process's list of all Services still contains the deleted Service.
#[test]
fn a_recreated_service_gets_its_load_balancer_back() {
    for template in [Template::plain(), Template::named("front")] {
        let story = story();
        let sandbox = &story.sandbox;
        add(sandbox, "web", template.clone());
        let mut ccm = Ccm::without_resyncs(&story);
        ccm.tick();
        let before = balancers(sandbox);
        Event::Recreate("web".into(), template).apply(sandbox);
        ccm.tick_until_change();
        let after = balancers(sandbox);
        assert_eq!(after.len(), 1, "{after:#?}");
        assert_eq!(after[0]["id"], before[0]["id"]);
        check_end_state(sandbox).unwrap();
    }
}

/// A comparison of all Services found the difference, and an API failed before the change was made. The change does not
/// wait for the next comparison.
#[test]
fn a_change_that_an_outage_prevented_is_made_right_after_the_outage() {
    let story = story();
    let sandbox = &story.sandbox;
    add(sandbox, "web", Template::plain());
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    check_end_state(sandbox).unwrap();
    Event::DeleteBalancer("web".into()).apply(sandbox);
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
    check_end_state(sandbox).unwrap();
}

/// An operator goes back to Hetzner's controller after the Service's load balancer has lost its labels.
#[test]
fn hetzners_controller_takes_a_load_balancer_with_the_name_that_it_would_give() {
    let story = story();
    let sandbox = &story.sandbox;
    add(sandbox, "web", Template::plain());
    Event::RunUpstream.apply(sandbox);
    let [made] = &balancers(sandbox)[..] else { panic!("one is made") };
    let uid = service(sandbox, "web")["metadata"]["uid"].clone();
    assert_eq!(made["labels"], json!({ SERVICE_UID: uid }));
    let id = made["id"].as_u64().unwrap();
    let cloud = sandbox.cloud();
    cloud.edit_load_balancer(id, |one| one["labels"] = json!({ "noted": "yes" }));
    Event::RunUpstream.apply(sandbox);
    let all = balancers(sandbox);
    assert_eq!((all.len(), &all[0]["id"]), (1, &made["id"]));
    let labels = json!({ SERVICE_UID: uid, "noted": "yes" });
    assert_eq!(all[0]["labels"], labels);
}

/// The orphans are counted in a list that a comparison reads anyway, and they stay.
#[test]
fn orphans_are_counted_without_an_extra_call() {
    let story = story();
    let sandbox = &story.sandbox;
    add(sandbox, "lives", Template::named("lives"));
    let mut ccm = Ccm::new(&story);
    ccm.tick_until_change();
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

/// The write of the first Service is in flight and shows nowhere yet when the second Service is created.
#[test]
fn a_load_balancer_in_a_request_in_flight_is_taken_by_no_other_service() {
    // The cases are a load balancer that no Service owns, and a name that no load balancer has.
    let cases = [("free", "PUT", "/v1/load_balancers/*"), ("front", "POST", "/v1/load_balancers")];
    for (name, method, path) in cases {
        let story = story();
        let sandbox = &story.sandbox;
        create_unowned_balancer(sandbox);
        let mut ccm = Ccm::without_resyncs(&story);
        ccm.tick();
        let weak = Arc::downgrade(sandbox);
        let comes = Effect::before(move |_: &Request| {
            add(&weak.upgrade().unwrap(), "second", Template::named(name));
        });
        let comes = Rule::new(comes).half(Half::Hetzner).method(method);
        let comes = sandbox.faults().add(comes.path(path).times(1));
        add(sandbox, "first", Template::named(name));
        ccm.tick_until_change();
        assert_eq!(sandbox.faults().hits(comes), 1, "{name}");
        until("the second one", || {
            let report = ccm.tick();
            let mut failures = report.failures.iter();
            failures.any(|failure| failure.object.ends_with("/second"))
        });
        story.no_violations().unwrap();
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

/// The process was killed between the request that adds a port and the end of that action. Then the Service is deleted.
#[test]
fn a_load_balancer_is_released_after_the_actions_of_a_dead_process_have_ended() {
    let story = story();
    let sandbox = &story.sandbox;
    let cloud = sandbox.cloud();
    let id = create_unowned_balancer(sandbox);
    add(sandbox, "web", Template::named("free"));
    cloud.hold_load_balancer(id, true);
    // The three writes are the finalizer, the labels and the port.
    let start = Start { writes: Some(3), ..Start::default() };
    let mut short_lived = Ccm::with(&story, start);
    short_lived.round();
    assert!(cloud.has_running_actions());
    Event::Delete("web".into()).apply(sandbox);
    // The action ends just after the load balancer is read for the release.
    let of_one = Rule::new(Effect::after({
        let cloud = Arc::clone(cloud);
        move |_: &Request| cloud.hold_load_balancer(id, false)
    }));
    let of_one = of_one.half(Half::Hetzner).method("GET");
    let of_one = of_one.path("/v1/load_balancers/**");
    sandbox.faults().add(of_one.times(1));
    short_lived.converge();
    story.no_violations().unwrap();
    check_end_state(sandbox).unwrap();
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
    let join = |name: &str| Event::Join(name.into()).apply(sandbox);
    join("n-0");
    join("n-1");
    add(sandbox, "web", Template::plain());
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    check_end_state(sandbox).unwrap();
    let id = cloud.load_balancers(project)[0]["id"].as_u64().unwrap();
    cloud.hold_load_balancer(id, true);
    Event::DeleteNode("n-1".into()).apply(sandbox);
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
    story.no_violations().unwrap();
    sandbox.faults().clear();
    story.watch_requests();
    until("the right targets", || {
        ccm.round();
        check_end_state(sandbox).is_ok()
    });
    story.no_violations().unwrap();
}

/// The load balancer is locked during the tick in which its deletion was planned. Before the next tick the Service is
/// of type LoadBalancer again, and the API server's cache still shows it was at the start.
#[test]
fn a_service_that_wants_its_load_balancer_again_keeps_it_whatever_the_cache_shows() {
    let story = story();
    let sandbox = &story.sandbox;
    let cluster = sandbox.cluster();
    add(sandbox, "web", Template::plain());
    let mut ccm = Ccm::without_resyncs(&story);
    ccm.tick();
    check_end_state(sandbox).unwrap();
    let id = balancers(sandbox)[0]["id"].clone();
    // The cache shows a difference, so that the Service is read again.
    Event::Ports("web".into(), vec![81]).apply(sandbox);
    cluster.freeze_cache(true);
    let turn = || Event::ChangeType("web".into()).apply(sandbox);
    turn();
    story.watch_requests();
    let locked = Effect::hetzner_error(423, "locked", "another change is being made");
    let rule = Rule::new(locked).half(Half::Hetzner).method("DELETE");
    let rule = sandbox.faults().add(rule);
    until("the deletion", || {
        ccm.round();
        sandbox.faults().hits(rule) > 0
    });
    turn();
    sandbox.faults().remove(rule);
    story.watch_requests();
    ccm.tick();
    cluster.freeze_cache(false);
    until("its other port", || {
        ccm.tick();
        check_end_state(sandbox).is_ok()
    });
    story.no_violations().unwrap();
    assert_eq!(balancers(sandbox)[0]["id"], id);
}
