//! Services in a storm: worlds, weather and deaths of `ccm`, each chosen by a seed.
//!
//! No harm may be done at any moment (`watch`), and when the faults have ended there are exactly the load balancers
//! that are wanted (`end`). Most stories run the library's controller over real HTTP (`life`); a few run the binary
//! and kill it (`binary`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::library;
use crate::common::random;
use crate::{Tally, run_stories};

mod binary;
mod clear;
mod end;
mod groups;
mod life;
mod others;
mod ownership;
mod story;
mod watch;
mod weather;

use crate::common::LIMIT;
use ccm::controllers::{Report, Selection};
use ccm::hetzner::load_balancers::SERVICE_UID;
use library::Place;
use life::Ccm;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use story::{Chapter, Event, Story, Wish};
use watch::{Watch, all_writes};
use weather::Weather;

/// Told in the library's controller.
const STORIES: u64 = 210;

/// Hetzner calls of one look at the world, and of one Service in it, when answers get lost and calls are repeated.
const CALLS_OF_A_LOOK: usize = 12;
const CALLS_OF_A_SERVICE: usize = 6;

/// Hetzner calls and writes of one Service, from any state to the right one, in calm weather.
const CALLS_TO_SETTLE: usize = 15;
const WRITES_TO_SETTLE: usize = 8;

#[test]
fn whatever_happens_each_service_ends_with_its_load_balancer_and_nobody_loses_one() {
    run_stories("faults service", STORIES, |seed, tally| {
        let story = Story::of(seed);
        let sandbox = story.begin();
        let outcome = in_storm(&story, &sandbox, tally);
        outcome.map_err(|why| match why.contains("all writes") {
            true => why,
            false => format!("{why}\n{}", all_writes(&sandbox)),
        })
    });
}

/// What the stories were made of, over all of them.
#[derive(Debug, Default)]
struct ServiceTally {
    calls: usize,
    faults: usize,
    deaths: usize,
    created: usize,
    ordered: usize,
    kept: usize,
    deleted: usize,
    edited: usize,
    adopted: usize,
    released: usize,
    /// Stories in which an action never ended, and the other Services did not wait for it.
    independent: usize,
    targets_removed: usize,
    busy: usize,
    /// The most of any story, for each Service.
    calls_to_settle: usize,
    writes_to_settle: usize,
    rounds_to_settle: usize,
    /// Of what is allowed, in percent.
    calls_in_storm: usize,
}

/// With faults and deaths; then the weather clears up and a new `ccm` starts.
fn in_storm(story: &Story, sandbox: &Sandbox, tally: &Mutex<ServiceTally>) -> Result<(), String> {
    let place = Place::new(sandbox);
    let watch = Watch::with(sandbox, story.two_at_once);
    let (others, orphans) = (end::others(sandbox), end::orphans(sandbox));
    let mut deaths = 0;
    storm(story, sandbox, &watch, |chapter| {
        let lives = chapter.lives.iter();
        deaths += lives.map(|life| life.live(sandbox, &place)).sum::<usize>();
        Ok(())
    })?;
    watch.no_harm(sandbox)?;
    let in_storm = cloud_calls(sandbox, 0).len();
    let looks = story.chapters.iter().flat_map(|chapter| &chapter.lives);
    let looks: usize = looks.map(life::Life::looks).sum();
    // Services are taken up at each interval, also while a request that gets no answer holds the tick's end up.
    let is_list =
        |call: &Call| call.path == "/api/v1/services" && call.query("fieldSelector").is_some();
    let looks = looks.max(sandbox.calls().count(is_list));
    let services = story::SERVICES as usize;
    let allowed = looks * (CALLS_OF_A_LOOK + services * CALLS_OF_A_SERVICE);
    if in_storm > allowed {
        return Err(format!(
            "{in_storm} calls in {looks} looks, and {allowed} are allowed"
        ));
    }

    let was_independent = match &story.stuck {
        Some(name) => independent(sandbox, &place, name)?,
        None => false,
    };
    let is_begun = sandbox.cloud().has_running_actions();
    let mark = sandbox.calls().mark();
    let rounds = Ccm::new(&place, true).settle()?;
    watch.no_harm(sandbox)?;
    let calls = cloud_calls(sandbox, mark);
    let writes = calls.iter().filter(|call| call.is_write()).count();
    {
        let mut tally = tally.lock().unwrap();
        tally.add(sandbox, deaths);
        let (adopted, released) = watch.counts();
        tally.adopted += adopted;
        tally.released += released;
        tally.independent += usize::from(was_independent);
        let most = |most: &mut usize, now: usize| *most = now.max(*most);
        most(&mut tally.calls_to_settle, calls.len() / services);
        most(&mut tally.writes_to_settle, writes / services);
        most(&mut tally.rounds_to_settle, rounds);
        most(&mut tally.calls_in_storm, in_storm * 100 / allowed);
    }
    if calls.len() > services * CALLS_TO_SETTLE || writes > services * WRITES_TO_SETTLE {
        return Err(format!(
            "{} calls, {writes} of them writes, to settle",
            calls.len()
        ));
    }
    if is_begun {
        // What a dead `ccm` began shows when it has ended, perhaps after the plan: the next comparison of all sees it.
        end::actions_end(sandbox);
        Ccm::new(&place, true).settle()?;
        watch.no_harm(sandbox)?;
    }
    at_rest(sandbox, &place)?;
    // One that was there from the start may be adopted.
    let left = end::orphans(sandbox);
    if !story.forces() && !left.is_subset(&orphans) {
        return Err(format!("orphans before {orphans:?}, after {left:?}"));
    }
    match end::others(sandbox) == others {
        true => Ok(()),
        false => Err(format!(
            "others before {others:#?}\nafter {:#?}",
            end::others(sandbox)
        )),
    }
}

/// An action of this Service's load balancer never ends: all other Services, and one that is added then, reach their
/// wanted end before `ccm` stops waiting for it. False: the Service has nothing to do, or is blocked.
fn independent(sandbox: &Sandbox, place: &Place, name: &str) -> Result<bool, String> {
    end::actions_end(sandbox);
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let Some(service) = sandbox.cluster().get("services", story::NAMESPACE, name) else {
        return Ok(false);
    };
    let uid = service["metadata"]["uid"].clone();
    let held: Arc<Mutex<Option<u64>>> = Arc::default();
    let hold = {
        let (cloud, held) = (Arc::clone(cloud), Arc::clone(&held));
        move || {
            let mut all = cloud.load_balancers(project).into_iter();
            let own = all.find(|one| one["labels"][SERVICE_UID] == uid);
            if let Some(id) = own.and_then(|one| one["id"].as_u64()) {
                cloud.hold_load_balancer(id, true);
                *held.lock().unwrap() = Some(id);
            }
        }
    };
    hold();
    // One that is created is held from then on.
    let after = Rule::new(Effect::after(move |_: &Request| hold()));
    let after = after.half(Half::Hetzner).method("POST");
    let rule = sandbox.faults().add(after.path("/v1/load_balancers"));
    Event::Ports(name.to_owned(), vec![9_000]).happen(sandbox);

    let mut ccm = Ccm::patient(place, 10.0);
    let object = format!("service/default/{name}");
    let first = ccm.tick(&Selection::Due);
    Event::Add("late".to_owned(), Wish::plain()).happen(sandbox);
    let begun = Instant::now();
    let is_given_up = |report: &Report| {
        let mut failures = report.failures.iter();
        failures.any(|one| one.object == object && one.why.contains("it still runs after"))
    };
    let mut report = first;
    let outcome = loop {
        let outcome = end::is_right_but_for(sandbox, name);
        if outcome.is_ok() || is_given_up(&report) || begun.elapsed() > LIMIT {
            break outcome;
        }
        report = ccm.tick(&Selection::Due);
    };
    let was_running = report.unfinished > 0;
    let waited_s = begun.elapsed().as_secs_f64();
    let outcome = outcome
        .map_err(|why| format!("it waited {waited_s:.1} s for Service {name}: {why}\n{report:#?}"));
    sandbox.faults().remove(rule);
    for id in held.lock().unwrap().iter() {
        cloud.hold_load_balancer(*id, false);
    }
    outcome.map(|()| was_running)
}

/// All is right, a new `ccm` finds nothing to do, and writes nothing.
fn at_rest(sandbox: &Sandbox, place: &Place) -> Result<(), String> {
    end::is_right_with_servers(sandbox)?;
    nothing_is_written(sandbox, place)
}

fn nothing_is_written(sandbox: &Sandbox, place: &Place) -> Result<(), String> {
    let mut ccm = Ccm::new(place, true);
    let left = ccm.proposes()?;
    if !left.is_empty() {
        return Err(format!("planned again: {left:#?}"));
    }
    let mark = sandbox.calls().mark();
    ccm.settle()?;
    let calls = sandbox.calls().calls_since(mark);
    let is_event = |call: &Call| call.path.contains("/events");
    let write = calls.iter().find(|call| call.is_write() && !is_event(call));
    match write {
        None => Ok(()),
        Some(call) => Err(format!("a write when nothing differs: {call}")),
    }
}

/// All chapters in bad weather, with `ccm` doing in each what it is told to, and then the weather clears up.
fn storm(
    story: &Story,
    sandbox: &Sandbox,
    watch: &Watch,
    mut ccm: impl FnMut(&Chapter) -> Result<(), String>,
) -> Result<(), String> {
    for chapter in &story.chapters {
        chapter
            .events
            .iter()
            .for_each(|event| event.happen(sandbox));
        let weather = Weather::of(chapter.seed, story.two_at_once);
        weather.begin(sandbox);
        watch.over(sandbox);
        let outcome = ccm(chapter);
        weather.end(sandbox);
        outcome?;
    }
    end::certificates_come(sandbox);
    story::some_node_is_alive(sandbox);
    watch.over(sandbox);
    Ok(())
}

fn cloud_calls(sandbox: &Sandbox, mark: u64) -> Vec<Call> {
    let calls = sandbox.calls().calls_since(mark).into_iter();
    calls.filter(|call| call.half == Half::Hetzner).collect()
}

impl ServiceTally {
    fn add(&mut self, sandbox: &Sandbox, deaths: usize) {
        let is_fault = |fault: &String| !fault.split(", ").all(|effect| effect == "hook before");
        self.deaths += deaths;
        for call in sandbox.calls().calls() {
            self.calls += 1;
            self.faults += usize::from(call.fault.as_ref().is_some_and(is_fault));
            if call.half != Half::Hetzner {
                continue;
            }
            let done = call.status.is_some_and(|status| status < 300);
            let is = |method: &str, end: &str| {
                usize::from(done && call.method == method && call.path.ends_with(end))
            };
            self.created += is("POST", "/v1/load_balancers");
            self.ordered += is("POST", "/v1/certificates");
            let asks = !call.json().unwrap_or_default()["public_net"].is_null();
            self.kept += usize::from(asks) * is("POST", "/v1/load_balancers");
            self.deleted += is("DELETE", "");
            self.edited += is("PUT", "");
            self.targets_removed += is("POST", "/remove_target");
            self.busy += usize::from(matches!(call.status, Some(409 | 423)));
        }
    }
}

impl Tally for ServiceTally {
    fn assert_storm(&self) {
        let stories = STORIES as usize;
        assert!(self.faults > self.calls / 40, "{self:?}");
        assert!(self.deaths > stories / 2, "{self:?}");
        assert!(self.created > stories * 3 / 4, "{self:?}");
        assert!(self.ordered > stories / 5, "{self:?}");
        assert!(self.kept > stories / 6, "{self:?}");
        assert!(self.deleted > stories / 4, "{self:?}");
        assert!(self.edited > stories / 4, "{self:?}");
        assert!(self.adopted > stories / 6, "{self:?}");
        assert!(self.released > stories / 10, "{self:?}");
        assert!(self.independent > stories / 10, "{self:?}");
        assert!(self.targets_removed > stories / 4, "{self:?}");
        assert!(self.busy > stories / 2, "{self:?}");
    }
}
