//! One change after the other: the network is locked while one is made, so each is sent when the
//! one before has had its time, and a question is asked for several of them together.

use super::Settings;
use super::plan::{Change, Plan};
use crate::controllers::report::{count_change, log_change};
use crate::provider::{ActionId, Applied, Error, ErrorKind, Route, RouteChange, Routes, heartbeat};
use ipnet::Ipv4Net;
use serde_json::Value;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// After a change was sent, before the next is sent or the first question is asked, and how that
/// grows. Most take about a second.
const PAUSE: Duration = Duration::from_millis(1200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// So many changes are begun before one asks how they ended.
const BEGUN_AT_MOST: usize = 10;

/// A change answered "busy" is sent so often.
const TRIES_AT_MOST: u32 = 10;

/// So many questions in a row without an answer, and nothing more is concluded.
const QUESTIONS_AT_MOST: u32 = 5;

/// So often a replacement that was cut in two is continued in the same tick.
const RESUMED_AT_MOST: u32 = 3;

/// A change that takes longer is left to the next tick.
const LONGEST_ACTION: Duration = Duration::from_secs(120);

/// A node that wants a route may have been deleted since it was read: the route would lead nowhere,
/// do no harm, and be deleted by the next tick. What deletes rests on a newer read.
const ADDS_ON_ONE_LOOK: Duration = Duration::from_secs(60);

/// However old the lists may be that others write by.
const DELETES_ON_ONE_LOOK: Duration = Duration::from_secs(10);

/// A wait is cut into these: whoever ends this process does not wait for an action.
const SLICE: Duration = Duration::from_millis(100);

pub(super) struct Execution<'a> {
    routes: &'a dyn Routes,
    /// How old a look may be that deletions rest on.
    delete_within: Duration,
    /// Multiplies the pauses; 1 outside of tests.
    time_scale: f64,
    begun: Vec<Begun>,
    /// Another program changes the network too, or it is slow: wait for each change.
    one_by_one: bool,
    sent: Option<Instant>,
    /// Object, line and the same for programs, of each change that was made.
    pub(super) made: Vec<(String, String, Value)>,
    /// What was refused, and not tried again in this pass.
    pub(super) refused: Vec<(Change, Error)>,
    /// Changes of the last plan that were made.
    pub(super) done: Vec<Change>,
    /// Routes that were added.
    pub(super) added: HashSet<Route>,
    /// Where a route was deleted, or may have been, whose replacement is not there yet.
    torn: HashSet<Ipv4Net>,
    /// How often this went on after the cloud had not answered.
    resumed: u32,
    /// The network may be another one than was looked at.
    pub(super) wrote: bool,
    /// Nothing more can be done now.
    pub(super) stopped: Option<Stopped>,
}

#[derive(Debug)]
pub(super) enum Stopped {
    /// This process is to end, or may not write any more.
    Closed,
    /// The cloud does not answer.
    Outage(Error),
}

/// A change that runs as an action in the cloud.
struct Begun {
    action: ActionId,
    change: Change,
    at: Instant,
}

impl<'a> Execution<'a> {
    pub(super) fn new(routes: &'a dyn Routes, settings: &Settings) -> Execution<'a> {
        Execution {
            routes,
            delete_within: settings.young().min(settings.scaled(DELETES_ON_ONE_LOOK)),
            time_scale: settings.time_scale,
            begun: Vec::new(),
            one_by_one: false,
            sent: None,
            made: Vec::new(),
            refused: Vec::new(),
            done: Vec::new(),
            added: HashSet::new(),
            torn: HashSet::new(),
            resumed: 0,
            wrote: false,
            stopped: None,
        }
    }

    /// Makes the changes of a plan that rests on a look of then; `ended` is called when some have
    /// ended. False: the look became too old for the rest.
    pub(super) fn run(
        &mut self,
        plan: &Plan,
        looked: Instant,
        mut ended: impl FnMut(&HashSet<Route>),
    ) -> bool {
        let mut sent = 0;
        let mut reported = 0;
        for (place, change) in plan.changes.iter().enumerate() {
            if self.was_refused(plan, change) {
                continue;
            }
            let before = place
                .checked_sub(1)
                .and_then(|before| plan.changes.get(before));
            let is_pair = |other: Option<&Change>| {
                other.is_some_and(|other| other.route.destination == change.route.destination)
            };
            // What was deleted to be replaced is replaced, whatever the time.
            if !is_pair(before) && sent > 0 && self.is_too_old(change, looked) {
                self.wait();
                ended(&self.added);
                return false;
            }
            if is_pair(plan.changes.get(place + 1)) {
                self.torn.insert(change.route.destination);
            }
            self.send(change);
            sent += 1;
            if self.added.len() > reported {
                reported = self.added.len();
                ended(&self.added);
            }
            if self.stopped.is_some() {
                break;
            }
        }
        self.wait();
        ended(&self.added);
        true
    }

    /// Both APIs were read again, and a new plan was made. What another program did meanwhile is done.
    pub(super) fn looked_again(&mut self, plan: &Plan) {
        self.done.clear();
        self.refused
            .retain(|(change, _)| plan.changes.contains(change));
        let is_missing = |net: &Ipv4Net| {
            let mut changes = plan.changes.iter();
            changes.any(|one| one.change == RouteChange::Add && one.route.destination == *net)
        };
        self.torn.retain(is_missing);
    }

    /// What was neither made nor refused.
    pub(super) fn left<'p>(&self, plan: &'p Plan) -> impl Iterator<Item = &'p Change> {
        let is_left =
            |change: &&Change| !self.done.contains(change) && !self.was_refused(plan, change);
        plan.changes.iter().filter(is_left)
    }

    /// It, or the deletion that makes place for it.
    fn was_refused(&self, plan: &Plan, change: &Change) -> bool {
        let was_refused = |change: &Change| self.refused.iter().any(|(one, _)| one == change);
        let mut changes = plan.changes.iter();
        was_refused(change)
            || changes.any(|one| {
                let makes_place = one.change == RouteChange::Delete
                    && one.route.destination == change.route.destination;
                makes_place && was_refused(one)
            })
    }

    pub(super) fn is_torn(&self) -> bool {
        !self.torn.is_empty()
    }

    /// After the cloud did not answer between the two halves of a replacement, these pods
    /// can't be reached: it is tried again in a moment, a few times.
    pub(super) fn may_go_on(&mut self) -> bool {
        let may_help = match &self.stopped {
            Some(Stopped::Outage(error)) => error.kind == ErrorKind::Unavailable,
            Some(Stopped::Closed) | None => false,
        };
        if !may_help || !self.is_torn() || self.resumed >= RESUMED_AT_MOST {
            return false;
        }
        if let Some(Stopped::Outage(error)) = self.stopped.take() {
            log::warn!("{error}; a route was deleted to be replaced: looking again in a moment");
        }
        self.resumed += 1;
        self.sleep_until(Instant::now() + self.scaled(PAUSE) * self.resumed);
        self.stopped.is_none()
    }

    fn is_too_old(&self, change: &Change, looked: Instant) -> bool {
        let limit = match change.change {
            RouteChange::Add => self.scaled(ADDS_ON_ONE_LOOK),
            RouteChange::Delete => self.delete_within,
        };
        looked.elapsed() > limit
    }

    fn send(&mut self, change: &Change) {
        let mut pause = self.scaled(PAUSE);
        for tries in 1.. {
            if self.one_by_one || self.begun.len() >= BEGUN_AT_MOST {
                self.wait();
            } else if let Some(sent) = self.sent {
                self.sleep_until(sent + self.scaled(PAUSE));
            }
            if self.stopped.is_some() {
                return;
            }
            self.sent = None;
            self.wrote = true;
            let changed = self.routes.change(change.change, &change.route);
            let kind = change.change.name();
            count_change(super::NAME, kind, changed.as_ref().map(drop));
            match changed {
                Ok(Applied::Running(action)) => {
                    self.sent = Some(Instant::now());
                    return self.begun.push(Begun {
                        action,
                        change: change.clone(),
                        at: Instant::now(),
                    });
                }
                Ok(
                    Applied::Done | Applied::LookAgain(_) | Applied::Shown(..) | Applied::Overtaken,
                ) => {
                    return self.note(change);
                }
                Err(error) if error.kind == ErrorKind::Busy && tries < TRIES_AT_MOST => {
                    log::debug!("{error}; sent again in a moment");
                    self.one_by_one = true;
                    self.sleep_until(Instant::now() + pause);
                    pause = (pause * 3 / 2).min(self.scaled(LONGEST_PAUSE));
                }
                Err(error) => return self.failed(change, error),
            }
        }
    }

    fn failed(&mut self, change: &Change, error: Error) {
        match error.kind {
            // Another program, or an earlier process, has done it: what follows can be done.
            ErrorKind::NotFound if change.change == RouteChange::Delete => {
                log::debug!("{error}; it is gone, as it should be");
                self.done.push(change.clone());
            }
            ErrorKind::Refused => self.stopped = Some(Stopped::Closed),
            // About this change alone.
            ErrorKind::Other | ErrorKind::NotFound => {
                if change.change == RouteChange::Delete {
                    self.torn.remove(&change.route.destination);
                }
                self.refused.push((change.clone(), error));
            }
            _ => self.stopped = Some(Stopped::Outage(error)),
        }
    }

    fn note(&mut self, change: &Change) {
        let (object, line) = (change.object(), change.line());
        log_change(super::NAME, &object, &line);
        if change.change == RouteChange::Add {
            self.added.insert(change.route);
            self.torn.remove(&change.route.destination);
        }
        self.done.push(change.clone());
        self.made.push((object, line, change.json()));
    }

    /// Until all that was begun has ended.
    fn wait(&mut self) {
        if self.stopped.is_some() {
            return self.abandon();
        }
        let mut pause = self.scaled(PAUSE);
        let mut unanswered = 0;
        let mut next = self.sent.unwrap_or_else(Instant::now) + pause;
        while !self.begun.is_empty() {
            self.sleep_until(next);
            if self.stopped.is_some() {
                return self.abandon();
            }
            let actions: Vec<ActionId> = self.begun.iter().map(|begun| begun.action).collect();
            match self.routes.ended(&actions) {
                Ok(mut ended) => {
                    unanswered = 0;
                    for begun in std::mem::take(&mut self.begun) {
                        match ended.remove(&begun.action) {
                            None => self.begun.push(begun),
                            Some(Ok(())) => self.note(&begun.change),
                            Some(Err(error)) => self.refused.push((begun.change, error)),
                        }
                    }
                }
                Err(error) => {
                    unanswered += 1;
                    if unanswered >= QUESTIONS_AT_MOST {
                        self.stopped = Some(Stopped::Outage(error));
                    }
                }
            }
            let longest = self.scaled(LONGEST_ACTION);
            if let Some(late) = self.begun.iter().find(|begun| begun.at.elapsed() > longest) {
                let route = late.change.route;
                let why = format!(
                    "route {route}: its change still runs after {} s",
                    LONGEST_ACTION.as_secs()
                );
                let error = Error::new(ErrorKind::Unavailable, why);
                self.resumed = RESUMED_AT_MOST;
                self.stopped = Some(Stopped::Outage(error));
            }
            pause = (pause * 3 / 2).min(self.scaled(LONGEST_PAUSE));
            next = Instant::now() + pause;
        }
        self.sent = None;
    }

    /// What still runs is found there by the next tick.
    fn abandon(&mut self) {
        for begun in self.begun.drain(..) {
            let (object, line) = (begun.change.object(), begun.change.line());
            log::info!("{object}: {line} (begun; its end was not waited for)");
        }
    }

    fn sleep_until(&mut self, moment: Instant) {
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stopped.is_some() {
                return;
            }
            if !self.routes.may_wait() {
                self.stopped = Some(Stopped::Closed);
                return;
            }
            std::thread::sleep(left.min(SLICE));
            heartbeat::beat();
        }
    }

    fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.time_scale)
    }
}
