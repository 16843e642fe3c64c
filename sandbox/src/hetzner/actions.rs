//! The actions of the simulated API. An action is work that takes time, locks its resources while it runs, and changes
//! them at its end. This module also answers requests to `/actions`.
//!
//! No thread works in the background. Every access to the simulated cloud first calls
//! [`World::advance`](super::world::World::advance), which ends the actions whose time has come.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::catalog::{id, read_only};
use super::clock::show;
use super::error::ApiError;
use super::input::Query;
use super::listing::{self, Page, SortKey};
use super::text::{Text, text};
use super::world::World;
use super::{Call, Reply};
use crate::time;

/// The largest number of `id` parameters of `GET /actions`.
const MAX_IDS: usize = 25;

/// Identifies a resource by its kind and its ID. While an action runs on a resource, the API refuses other changes of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The kind of the resource, e.g. `server` or `network`. An action shows it in its field `resources[].type`.
    pub kind: &'static str,
    pub id: u64,
}

/// Whether an action has succeeded or failed. When the action ends, this value is given to the function that changes
/// the action's resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Success,
    /// The action failed. Its changes are then not made. Everything that was reserved for the action, e.g. a private
    /// address, becomes free again.
    Failure,
}

type Effect = Box<dyn FnOnce(&mut World, Outcome) + Send>;

/// An action of the simulated API. It is running while `end` is `None`.
#[derive(Debug)]
pub struct Action {
    pub id: u64,
    project: u64,
    command: &'static str,
    resources: Vec<Resource>,
    started: Timestamp,
    /// The time at which this action begins. It is in the future when this action must first wait for the end of
    /// another action. This action ends `duration` after `begun`.
    begun: Instant,
    duration: Duration,
    end: Option<End>,
    /// The code and message of the error with which the running action will fail at its end. `None` when no such error
    /// was set.
    doom: Option<(String, String)>,
}

#[derive(Debug)]
struct End {
    finished: Timestamp,
    /// The error code and message of a failed action. `None` when the action succeeded.
    error: Option<(String, String)>,
}

#[derive(Default)]
pub struct Actions {
    all: BTreeMap<u64, Action>,
    /// The scheduled work. The key consists of the time at which the work is due, and of a number that is larger for
    /// each later entry. Because of this number, two entries can have the same time.
    agenda: BTreeMap<(Instant, u64), Work>,
    /// The number of running actions on each resource. A resource with a running action is locked: requests for other
    /// actions on it are refused.
    locks: HashMap<Resource, usize>,
    /// The errors that tests have set for later actions, by command, each as code and message. The next action with
    /// this command takes the first error of its list and fails with it.
    failures: HashMap<String, VecDeque<(String, String)>>,
    /// The durations that tests have set for actions, by command. They are multiplied by the time scale of the
    /// simulated cloud when an action starts. An action whose command is missing here takes its usual time.
    durations: HashMap<String, Duration>,
    held: bool,
    /// The resources whose actions stay in the status `running` until a test lets them end.
    held_resources: HashSet<Resource>,
    arrivals: u64,
}

struct Work {
    /// The ID of the action that ends when this work is done. `None` when the API shows no action for this work. An
    /// example is a server's operating system, which shuts down only some time after the action `shutdown_server` has
    /// ended.
    action: Option<u64>,
    effect: Effect,
}

/// Work that is due now, such as the end of an action. It is no longer in the schedule, and the caller must do it.
pub struct Due {
    at: Instant,
    work: Work,
}

/// The properties of a new action, which [`World::start_action`] needs.
pub struct Start<'a> {
    pub project: u64,
    pub command: &'static str,
    pub resources: &'a [Resource],
    /// The duration of the action on the real API. It is multiplied by the time scale of the simulated cloud.
    pub takes: Duration,
    /// The ID of an action that must end before this action begins. With `None`, this action begins at once.
    pub after: Option<u64>,
}

impl World {
    /// Starts an action and returns its ID. At the end of the action, the function `effect` makes the action's changes.
    pub fn start_action(
        &mut self,
        start: Start,
        effect: impl FnOnce(&mut World, Outcome) + Send + 'static,
    ) -> u64 {
        let id = self.new_id();
        let predecessor = start.after.and_then(|id| self.actions.all.get(&id));
        let begun =
            predecessor.map_or_else(|| self.clock.now(), |action| action.begun + action.duration);
        let takes = self.actions.durations.get(start.command);
        let duration = self.clock.scaled(takes.copied().unwrap_or(start.takes));
        for resource in start.resources {
            *self.actions.locks.entry(*resource).or_default() += 1;
        }
        let action = Action {
            id,
            project: start.project,
            command: start.command,
            resources: start.resources.to_vec(),
            started: time::timestamp(),
            begun,
            duration,
            end: None,
            doom: None,
        };
        self.actions.all.insert(id, action);
        self.actions.plan(begun + duration, Work { action: Some(id), effect: Box::new(effect) });
        id
    }

    /// Calls `effect` after the duration `after`, which is multiplied by the time scale of the simulated cloud. The API
    /// shows no action for this work.
    pub fn later(&mut self, after: Duration, effect: impl FnOnce(&mut World) + Send + 'static) {
        let at = self.clock.now() + self.clock.scaled(after);
        self.actions.plan(at, Work { action: None, effect: Box::new(|world, _| effect(world)) });
    }

    /// Whether an action runs on the resource.
    pub fn is_locked(&self, resource: Resource) -> bool {
        self.actions.locks.contains_key(&resource)
    }

    /// Returns an action as JSON, or the JSON value `null` when there is no action with this ID.
    pub fn action_json(&self, id: u64) -> Text {
        self.actions
            .all
            .get(&id)
            .map_or_else(|| Value::Null.into(), |action| action.json(self.clock.now()))
    }

    /// Returns the answer to a write that has started an action: an object with the one field `action`.
    pub fn action_reply(&self, status: u16, id: u64) -> Reply {
        Reply::new(status, text!({"action": self.action_json(id)}))
    }
}

impl Actions {
    /// Takes the next work that is due at `now` out of the schedule. Returns `None` when no work is due. A test can
    /// hold all actions ([`hold`](Actions::hold)), and then no work is due. It can also hold the actions on one
    /// resource, and then only the work of these actions is not due.
    pub fn take_due(&mut self, now: Instant) -> Option<Due> {
        if self.held {
            return None;
        }
        let mut due = self.agenda.range(..=(now, u64::MAX));
        let key = *due.find(|(_, work)| !self.is_held(work))?.0;
        let work = self.agenda.remove(&key)?;
        Some(Due { at: key.0, work })
    }

    /// Whether no action runs in the whole simulated cloud.
    pub fn is_idle(&self) -> bool {
        self.locks.is_empty()
    }

    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    pub fn hold_resource(&mut self, resource: Resource, held: bool) {
        match held {
            true => self.held_resources.insert(resource),
            false => self.held_resources.remove(&resource),
        };
    }

    fn is_held(&self, work: &Work) -> bool {
        let action = work.action.and_then(|id| self.all.get(&id));
        let mut resources = action.iter().flat_map(|action| &action.resources);
        resources.any(|resource| self.held_resources.contains(resource))
    }

    pub fn fail_next(&mut self, command: &str, code: &str, message: &str) {
        self.failures.entry(command.into()).or_default().push_back((code.into(), message.into()));
    }

    /// Sets the duration of later actions with this command. The duration is multiplied by the time scale of the
    /// simulated cloud. `None` restores the usual duration. Running actions keep their duration.
    pub fn set_duration(&mut self, command: &str, takes: Option<Duration>) {
        match takes {
            Some(takes) => self.durations.insert(command.into(), takes),
            None => self.durations.remove(command),
        };
    }

    /// Sets the error with which a running action will fail at its end.
    pub fn doom(&mut self, id: u64, code: &str, message: &str) {
        if let Some(action) = self.all.get_mut(&id) {
            action.doom = Some((code.into(), message.into()));
        }
    }

    /// Returns the code and the message of the error with which the newest action of a resource has failed. Returns
    /// `None` when that action has not failed.
    pub fn last_error(&self, resource: Resource) -> Option<&(String, String)> {
        let mut newest_first = self.all.values().rev();
        let newest = newest_first.find(|action| action.resources.contains(&resource))?;
        newest.end.as_ref()?.error.as_ref()
    }

    fn plan(&mut self, at: Instant, work: Work) {
        self.arrivals += 1;
        self.agenda.insert((at, self.arrivals), work);
    }

    /// Marks an action as ended, unlocks its resources, and returns whether the action succeeded.
    fn finish(&mut self, id: u64, at: Instant) -> Outcome {
        let Some(action) = self.all.get_mut(&id) else {
            return Outcome::Success;
        };
        let doom = action.doom.take();
        let planned = self.failures.get_mut(action.command).and_then(VecDeque::pop_front);
        let error = doom.or(planned);
        let ago = SignedDuration::try_from(time::since(at)).unwrap_or(SignedDuration::ZERO);
        let outcome = if error.is_some() { Outcome::Failure } else { Outcome::Success };
        action.end = Some(End {
            finished: time::timestamp().checked_sub(ago).unwrap_or(action.started),
            error,
        });
        for resource in &action.resources {
            if let Some(count) = self.locks.get_mut(resource) {
                *count -= 1;
            }
        }
        self.locks.retain(|_, count| *count > 0);
        outcome
    }
}

impl Due {
    pub fn run(self, world: &mut World) {
        let outcome =
            self.work.action.map_or(Outcome::Success, |id| world.actions.finish(id, self.at));
        (self.work.effect)(world, outcome);
    }
}

impl Action {
    fn status(&self) -> &'static str {
        match &self.end {
            None => "running",
            Some(End { error: None, .. }) => "success",
            Some(End { error: Some(_), .. }) => "error",
        }
    }

    /// Returns the progress of the action in percent. The progress is 100 only after the action has ended.
    fn progress(&self, now: Instant) -> u64 {
        if self.end.is_some() {
            return 100;
        }
        let passed = now.saturating_duration_since(self.begun).as_secs_f64();
        let share =
            if self.duration.is_zero() { 0.0 } else { passed / self.duration.as_secs_f64() };
        (share * 100.0).clamp(0.0, 99.0) as u64
    }

    fn json(&self, now: Instant) -> Text {
        let resource = |resource: &Resource| text!({"id": resource.id, "type": resource.kind});
        let error = self.end.as_ref().and_then(|end| end.error.as_ref());
        text!({
            "id": self.id, "command": self.command, "status": self.status(), "progress": self.progress(now),
            "started": show(self.started), "finished": self.end.as_ref().map(|end| show(end.finished)),
            "resources": self.resources.iter().map(resource).collect::<Vec<_>>(),
            "error": error.map(|(code, message)| text!({"code": code, "message": message})),
        })
    }
}

/// Answers requests to `/actions` and `/actions/{id}`.
pub fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match rest {
        [] => read_only(call.method, || list_by_id(call)),
        [segment] => read_only(call.method, || get(call, segment, |_| true)),
        _ => Err(ApiError::no_such_path()),
    }
}

/// Answers requests to `/{resources}/actions` and `/{resources}/actions/{id}`, e.g. `/servers/actions`. Only the
/// actions on resources of this `kind`, e.g. `server`, are found.
pub fn route_kind(call: &Call, path: &str, kind: &str, rest: &[&str]) -> Result<Reply, ApiError> {
    let is_kind = |action: &Action| action.resources.iter().any(|resource| resource.kind == kind);
    route_matching(call, path, rest, is_kind)
}

/// Answers requests to `/{resources}/{id}/actions` and `/{resources}/{id}/actions/{action_id}`.
pub fn route_resource(
    call: &Call,
    path: &str,
    resource: Resource,
    rest: &[&str],
) -> Result<Reply, ApiError> {
    route_matching(call, path, rest, |action| action.resources.contains(&resource))
}

fn route_matching(
    call: &Call,
    path: &str,
    rest: &[&str],
    matches: impl Fn(&Action) -> bool,
) -> Result<Reply, ApiError> {
    match rest {
        [] => read_only(call.method, || list(call, path, matches)),
        [segment] => read_only(call.method, || get(call, segment, matches)),
        _ => Err(ApiError::no_such_path()),
    }
}

fn get(call: &Call, segment: &str, matches: impl Fn(&Action) -> bool) -> Result<Reply, ApiError> {
    call.refuse_query()?;
    let id = id(segment)?;
    let found = call
        .world
        .actions
        .all
        .get(&id)
        .filter(|action| action.project == call.project && matches(action));
    let action = found.ok_or_else(|| ApiError::not_found("action", id))?;
    Ok(Reply::ok(text!({"action": action.json(call.world.clock.now())})))
}

/// Answers `GET /actions`, which returns only the actions whose IDs are in the request. The answer has no pages, so the
/// parameters `page` and `per_page` are ignored.
fn list_by_id(call: &Call) -> Result<Reply, ApiError> {
    let query = Query::new(call.query, &["id", "status", "sort", "page", "per_page"])?;
    if query.one("id").is_none() {
        return Err(ApiError::removed(
            "2025-01-30-listing-arbitrary-actions-in-the-actions-list-endpoint-is-removed",
        ));
    }
    if query.all("id").count() > MAX_IDS {
        return Err(ApiError::invalid(
            "id",
            format!("must not be given more than {MAX_IDS} times"),
        ));
    }
    let now = call.world.clock.now();
    let actions: Vec<Text> =
        select(call, &query, |_| true)?.into_iter().map(|action| action.json(now)).collect();
    Ok(Reply::ok(text!({ "actions": actions })))
}

fn list(call: &Call, path: &str, matches: impl Fn(&Action) -> bool) -> Result<Reply, ApiError> {
    let query = Query::new(call.query, &["id", "status", "sort", "page", "per_page"])?;
    let page = Page::of(&query)?;
    let now = call.world.clock.now();
    let found = select(call, &query, matches)?;
    Ok(page.reply(path, "actions", &found, |action| action.json(now)))
}

fn select<'c>(
    call: &'c Call,
    query: &Query,
    matches: impl Fn(&Action) -> bool,
) -> Result<Vec<&'c Action>, ApiError> {
    const KEYS: [SortKey<Action>; 5] = [
        ("id", |a, b| a.id.cmp(&b.id)),
        ("command", |a, b| a.command.cmp(b.command)),
        ("status", |a, b| a.status().cmp(b.status())),
        ("started", |a, b| a.started.cmp(&b.started)),
        ("finished", |a, b| {
            a.end.as_ref().map(|end| end.finished).cmp(&b.end.as_ref().map(|end| end.finished))
        }),
    ];
    let ids = query.numbers("id")?;
    let statuses: Vec<&str> = query.all("status").collect();
    if let Some(unknown) =
        statuses.iter().find(|status| !["running", "success", "error"].contains(status))
    {
        return Err(ApiError::invalid("status", format!("'{unknown}' is no status of an action")));
    }
    let is_asked_for = |action: &&Action| {
        action.project == call.project
            && matches(action)
            && (ids.is_empty() || ids.contains(&action.id))
            && (statuses.is_empty() || statuses.contains(&action.status()))
    };
    let mut found: Vec<&Action> = call.world.actions.all.values().filter(is_asked_for).collect();
    listing::sort(query, &mut found, &KEYS)?;
    Ok(found)
}
