//! One change after the other: the network is locked while one is made, so each is sent when the
//! one before has had its time, and a question is asked for several of them together.

use super::Settings;
use super::plan::{Change, Plan};
use crate::cloud::{ActionId, Applied, Error, ErrorKind, Gate, Route, RouteChange, Routes, pulse};
use crate::controllers::report::{count_change, tell_change};
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

/// What goes on for longer is left to the next pass.
const LONGEST_ACTION: Duration = Duration::from_secs(120);

/// A node that wants a route may have gone since it was looked at: the route would lead nowhere,
/// harm nobody, and go with the next pass. What deletes rests on a younger look.
const ADDS_ON_ONE_LOOK: Duration = Duration::from_secs(60);

/// However old the lists may be that others write by.
const DELETES_ON_ONE_LOOK: Duration = Duration::from_secs(10);

/// A wait is cut into these: whoever ends this process does not wait for an action.
const SLICE: Duration = Duration::from_millis(100);

pub(super) struct Making<'a> {
    routes: &'a dyn Routes,
    gate: &'a dyn Gate,
    /// How old a look may be that deletions rest on.
    delete_within: Duration,
    /// Multiplies the pauses; 1 outside of tests.
    time_scale: f64,
    begun: Vec<Begun>,
    /// Somebody else changes the network too, or it takes its time: wait for each.
    one_by_one: bool,
    sent: Option<Instant>,
    /// Object, line and the same for programs, of each change that was made.
    pub(super) made: Vec<(String, String, Value)>,
    /// What was refused, and not tried again in this pass.
    pub(super) refused: Vec<(Change, Error)>,
    /// Routes that were added.
    pub(super) added: HashSet<Route>,
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

/// A change that goes on in the cloud.
struct Begun {
    action: ActionId,
    change: Change,
    at: Instant,
}

impl<'a> Making<'a> {
    pub(super) fn new(
        routes: &'a dyn Routes,
        gate: &'a dyn Gate,
        settings: &Settings,
    ) -> Making<'a> {
        Making {
            routes,
            gate,
            delete_within: settings.young().min(settings.scaled(DELETES_ON_ONE_LOOK)),
            time_scale: settings.time_scale,
            begun: Vec::new(),
            one_by_one: false,
            sent: None,
            made: Vec::new(),
            refused: Vec::new(),
            added: HashSet::new(),
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
        let mut told = 0;
        let mut replaced: Option<&Change> = None;
        for change in &plan.changes {
            let pair = replaced.filter(|old| old.route.destination == change.route.destination);
            let was_refused = |change: &Change| self.refused.iter().any(|(one, _)| one == change);
            if was_refused(change) || pair.is_some_and(was_refused) {
                continue;
            }
            // What was deleted to be replaced is replaced, whatever the time.
            if pair.is_none() && sent > 0 && self.is_too_old(change, looked) {
                self.wait();
                ended(&self.added);
                return false;
            }
            self.send(change);
            sent += 1;
            replaced = (change.change == RouteChange::Delete).then_some(change);
            if self.added.len() > told {
                told = self.added.len();
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
            let changed = self.routes.change(self.gate, change.change, &change.route);
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
                Ok(Applied::Done | Applied::LookAgain(_) | Applied::Shown(..)) => {
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
            ErrorKind::Refused => self.stopped = Some(Stopped::Closed),
            // About this change alone.
            ErrorKind::Other | ErrorKind::NotFound => self.refused.push((change.clone(), error)),
            _ => self.stopped = Some(Stopped::Outage(error)),
        }
    }

    fn note(&mut self, change: &Change) {
        let (object, line) = (change.object(), change.line());
        tell_change(super::NAME, &object, &line);
        if change.change == RouteChange::Add {
            self.added.insert(change.route);
        }
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
                let line = late.change.line();
                let why = format!(
                    "{line}: it still goes on after {} s",
                    LONGEST_ACTION.as_secs()
                );
                let error = Error::new(ErrorKind::Unavailable, why);
                self.stopped = Some(Stopped::Outage(error));
            }
            pause = (pause * 3 / 2).min(self.scaled(LONGEST_PAUSE));
            next = Instant::now() + pause;
        }
        self.sent = None;
    }

    /// What still goes on is found there by the next pass.
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
            if !self.gate.may_wait() {
                self.stopped = Some(Stopped::Closed);
                return;
            }
            std::thread::sleep(left.min(SLICE));
            pulse::beat();
        }
    }

    fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.time_scale)
    }
}
