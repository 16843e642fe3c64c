//! Nothing harmful under random faults: worlds, weather and deaths of `ccm`, each chosen by a seed.
//!
//! A story is told twice: once in a storm, where the APIs fail and lie and `ccm` dies again and again, and once in
//! calm weather. No harm may be done at any moment (`watch`), and both end with the same nodes. Most stories run
//! the library's controllers over real HTTP (`life`); a few run the binary and kill it (`binary`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::library;
use crate::common::random;
use crate::{Tally, run_stories};

mod binary;
mod life;
mod story;
mod watch;
mod weather;

use library::Place;
use sandbox::Sandbox;
use sandbox::calls::Call;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use story::{Chapter, Story};
use watch::Watch;
use weather::Weather;

/// Told in the library's controllers.
const STORIES: u64 = 320;

#[test]
fn whatever_happens_no_harm_is_done_and_the_end_is_the_same() {
    run_stories("faults node", STORIES, |seed, tally| {
        let story = Story::of(seed);
        let in_storm = in_storm(&story, tally)?;
        let in_calm = in_calm(&story)?;
        story.same_end(&in_storm, &in_calm)
    });
}

/// What the stories were made of, over all of them.
#[derive(Debug, Default)]
struct NodeTally {
    calls: usize,
    faults: usize,
    deaths: usize,
    nodes_deleted: usize,
    /// The node had changed since it was read.
    deletions_refused: usize,
}

/// The nodes in the end, by name, without what differs between any two runs.
type End = BTreeMap<String, Value>;

/// With faults, lies and deaths; then the weather clears up and a new `ccm` starts.
fn in_storm(story: &Story, tally: &Mutex<NodeTally>) -> Result<End, String> {
    let sandbox = story.begin();
    let place = Place::new(&sandbox);
    let watch = Watch::default();
    let mut deaths = 0;
    storm(story, &sandbox, &watch, |chapter| {
        deaths += chapter
            .lives
            .iter()
            .map(|life| life.live(&place))
            .sum::<usize>();
        Ok(())
    })?;
    tally.lock().unwrap().add(&sandbox, deaths);
    let settled = life::settle(&place);
    watch.no_harm(&sandbox)?;
    settled.map(|()| end(&sandbox))
}

/// All chapters in bad weather, with `ccm` doing in each what it is told to, and then the weather clears up.
fn storm(
    story: &Story,
    sandbox: &Sandbox,
    watch: &Watch,
    mut ccm: impl FnMut(&Chapter) -> Result<(), String>,
) -> Result<(), String> {
    let renewal = story.renewal();
    for chapter in &story.chapters {
        chapter
            .events
            .iter()
            .for_each(|event| event.happen(sandbox));
        Weather::of(chapter.seed).begin(sandbox, &renewal);
        renewal.may_come_before_a_write(sandbox);
        watch.over(sandbox);
        ccm(chapter)?;
        sandbox.faults().clear();
        sandbox.cluster().freeze_cache(false);
    }
    watch.over(sandbox);
    renewal.happen(sandbox);
    // Wrong passwords of before.
    sandbox.robot().end_block();
    Ok(())
}

impl NodeTally {
    fn add(&mut self, sandbox: &Sandbox, deaths: usize) {
        let deletion = |call: &Call, status| call.method == "DELETE" && call.status == Some(status);
        let is_fault = |fault: &String| !fault.split(", ").all(|effect| effect == "hook before");
        for call in sandbox.calls().calls() {
            self.calls += 1;
            self.faults += usize::from(call.fault.as_ref().is_some_and(is_fault));
            self.nodes_deleted += usize::from(deletion(&call, 200));
            self.deletions_refused += usize::from(deletion(&call, 409));
        }
        self.deaths += deaths;
    }
}

impl Tally for NodeTally {
    fn assert_storm(&self) {
        assert!(self.faults > self.calls / 20, "{self:?}");
        assert!(self.deaths > STORIES as usize, "{self:?}");
        assert!(self.nodes_deleted > STORIES as usize / 8, "{self:?}");
        assert!(self.deletions_refused > STORIES as usize / 40, "{self:?}");
    }
}

/// The same world and the same events, and `ccm` has all the time it needs between them.
fn in_calm(story: &Story) -> Result<End, String> {
    let sandbox = story.begin();
    let place = Place::new(&sandbox);
    for chapter in &story.chapters {
        chapter
            .events
            .iter()
            .for_each(|event| event.happen(&sandbox));
        life::settle(&place)?;
    }
    story.renewal().happen(&sandbox);
    life::settle(&place)?;
    Ok(end(&sandbox))
}

fn end(sandbox: &Sandbox) -> End {
    let nodes = sandbox.cluster().list("nodes", None);
    nodes.into_iter().map(comparable).collect()
}

/// Name, and the node without what Kubernetes counts and times.
fn comparable(mut node: Value) -> (String, Value) {
    let name = node["metadata"]["name"].as_str().unwrap().to_owned();
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        node["metadata"].as_object_mut().unwrap().remove(field);
    }
    // `pointer_mut`: an index would add what is not there.
    let array = |node: &mut Value, at: &str, forget: &[&str]| {
        let items = node.pointer_mut(at).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            forget
                .iter()
                .for_each(|field| drop(item.as_object_mut().unwrap().remove(*field)));
        }
    };
    array(
        &mut node,
        "/status/conditions",
        &["lastHeartbeatTime", "lastTransitionTime"],
    );
    array(&mut node, "/spec/taints", &["timeAdded"]);
    if let Some(taints) = node
        .pointer_mut("/spec/taints")
        .and_then(Value::as_array_mut)
    {
        taints.sort_by_key(|taint| (taint["key"].to_string(), taint["effect"].to_string()));
    }
    (name, node)
}
