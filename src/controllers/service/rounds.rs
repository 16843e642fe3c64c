//! Many load balancers at the same time, each one change after the other: send one change for
//! each, wait for everything that runs with one call, go on.

use super::plan::ServicePlan;
use crate::cloud::{
    ActionId, Applied, Change, ChangeKind, Error, ErrorKind, Gate, Landscape, LoadBalancers, pulse,
};
use crate::controllers::report::{count_change, tell_change};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Before it is asked whether actions have ended: the first time, and how that grows. Most take
/// about a second, and a question before that is a call for nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(1200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Before a change that may follow at once is sent: most actions take about a second, and one
/// that comes too early costs a call.
const FOLLOW_PAUSE: Duration = Duration::from_secs(1);

/// An action that runs for longer is left to the next tick.
const LONGEST_ACTION: Duration = Duration::from_secs(120);

/// A change answered "busy" is sent so often.
const TRIES_AT_MOST: u32 = 10;

/// So many questions in a row without an answer, and nothing more is concluded.
const QUESTIONS_AT_MOST: u32 = 5;

/// The changes of one Service, on their way.
pub(super) struct Work {
    pub(super) plan: ServicePlan,
    queue: VecDeque<Box<dyn Change>>,
    running: Vec<Running>,
    /// Nothing is sent before.
    not_before: Instant,
    tries: u32,
    /// A line for each change that was made.
    pub(super) lines: Vec<String>,
    /// Those changes.
    pub(super) made: Vec<Box<dyn Change>>,
    /// What was refused without keeping the rest from being done.
    pub(super) refused: Vec<Error>,
    /// One of the targets that were to come did, or did not.
    added: bool,
    not_added: bool,
    /// Nothing more is done.
    pub(super) error: Option<Error>,
    /// What there is has to be read again before anything else is decided.
    pub(super) look_again: bool,
    /// The load balancer as the call that made it showed it.
    pub(super) shown: Option<Landscape>,
}

struct Running {
    action: ActionId,
    line: String,
    may_fail_alone: bool,
    adds_target: bool,
    since: Instant,
}

pub(super) struct Rounds<'a> {
    pub(super) provider: &'a dyn LoadBalancers,
    pub(super) gate: &'a dyn Gate,
    /// Requests in flight.
    pub(super) concurrency: usize,
    /// Multiplies the pauses; 1 outside of tests.
    pub(super) time_scale: f64,
}

impl Work {
    pub(super) fn new(mut plan: ServicePlan) -> Work {
        Work {
            queue: plan.take_changes().into(),
            plan,
            running: Vec::new(),
            not_before: Instant::now(),
            tries: 0,
            lines: Vec::new(),
            made: Vec::new(),
            refused: Vec::new(),
            added: false,
            not_added: false,
            error: None,
            look_again: false,
            shown: None,
        }
    }

    fn is_over(&self) -> bool {
        self.running.is_empty() && (self.queue.is_empty() || self.error.is_some())
    }

    /// Could its next change be sent while others run?
    fn follows(&self) -> bool {
        let front = self.queue.front();
        self.error.is_none()
            && !self.look_again
            && front.is_some_and(|change| {
                self.running.is_empty() || (self.tries == 0 && change.may_follow_at_once())
            })
    }

    /// Nothing can be sent until an action has ended.
    fn waits_for_actions(&self) -> bool {
        !self.running.is_empty() && !self.follows()
    }

    /// Is an action still running that was started longer ago?
    fn has_run_for(&self, longest: Duration) -> bool {
        let mut running = self.running.iter();
        running.any(|running| running.since.elapsed() > longest)
    }

    /// Would it take away the last place where traffic goes?
    fn holds_back(&self, change: &dyn Change) -> bool {
        change.needs_another_first() && self.not_added && !self.added
    }

    fn refuse(&mut self, error: Error, adds_target: bool) {
        self.not_added |= adds_target;
        self.refused.push(error);
    }

    fn fail(&mut self, error: Error) {
        self.queue.clear();
        self.error.get_or_insert(error);
    }
}

impl Rounds<'_> {
    /// Makes all changes, or takes note of why not.
    pub(super) fn run(&self, works: &mut [Work]) {
        let mut pause = FIRST_PAUSE;
        let mut next_question = Instant::now();
        let mut unanswered = 0;
        while works.iter().any(|work| !work.is_over()) {
            if self.send(works) {
                pause = FIRST_PAUSE;
                next_question = Instant::now() + self.scaled(pause);
                continue;
            }
            if !self.gate.may_wait() {
                return abandon(works.iter_mut(), ErrorKind::Refused, "ccm is ending");
            }
            let longest = self.scaled(LONGEST_ACTION);
            let late = works.iter_mut().filter(|work| work.has_run_for(longest));
            let why = format!("it still runs after {} s", LONGEST_ACTION.as_secs());
            abandon(late, ErrorKind::Unavailable, &why);
            let waits = works.iter().any(Work::waits_for_actions);
            if !waits || Instant::now() < next_question {
                self.sleep(works, waits.then_some(next_question));
                continue;
            }
            unanswered = match self.ask(works) {
                Ok(()) => 0,
                Err(error) if unanswered + 1 >= QUESTIONS_AT_MOST => {
                    return abandon(works.iter_mut(), error.kind.clone(), &error.to_string());
                }
                Err(error) => {
                    log::debug!("{error}; asking again");
                    unanswered + 1
                }
            };
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            next_question = Instant::now() + self.scaled(pause);
        }
    }

    /// Sends one change for each Service that can go on; did any?
    fn send(&self, works: &mut [Work]) -> bool {
        let now = Instant::now();
        let mut ready: Vec<&mut Work> = works
            .iter_mut()
            .filter(|work| work.follows() && work.not_before <= now)
            .collect();
        for chunk in ready.chunks_mut(self.concurrency.max(1)) {
            match chunk {
                [one] => self.send_next(one),
                many => std::thread::scope(|scope| {
                    for work in many {
                        scope.spawn(move || self.send_next(work));
                    }
                }),
            }
            pulse::beat();
        }
        !ready.is_empty()
    }

    fn send_next(&self, work: &mut Work) {
        let Some(change) = work.queue.pop_front() else {
            return;
        };
        let line = change.line();
        if work.holds_back(&*change) {
            // What comes after it rests on it.
            work.queue.clear();
            let why = format!("{line}: not yet, because none of the others could be added");
            return work.refused.push(Error::new(ErrorKind::Other, why));
        }
        let adds_target = change.may_fail_alone() && change.kind() == ChangeKind::Targets;
        let applied = self.provider.apply(self.gate, &*change);
        let made = change.json();
        let kind = made["change"].as_str().unwrap_or_default();
        if let Ok(Applied::Overtaken) = applied {
            let overtaken = Error::new(ErrorKind::Busy, "");
            count_change(super::NAME, kind, Err(&overtaken));
            work.look_again = true;
            return work.queue.clear();
        }
        count_change(super::NAME, kind, applied.as_ref().map(drop));
        let (action, look_again) = match applied {
            Ok(Applied::Done | Applied::Overtaken) => (None, false),
            Ok(Applied::Running(action)) => (Some(action), false),
            Ok(Applied::LookAgain(action)) => (action, true),
            Ok(Applied::Shown(action, shown)) => {
                work.shown = Some(shown);
                (action, true)
            }
            Err(error) if error.kind == ErrorKind::InPart => match change.without_parts() {
                Some(rest) => {
                    let name = work.plan.name();
                    log::warn!("{name}: {error}; made first without what may be refused");
                    return work.queue.push_front(rest);
                }
                None => return work.fail(error),
            },
            Err(error) if error.kind == ErrorKind::Busy && work.tries < TRIES_AT_MOST => {
                work.tries += 1;
                work.not_before = Instant::now() + self.scaled(FOLLOW_PAUSE);
                return work.queue.push_front(change);
            }
            Err(error) if change.may_fail_alone() && is_about_itself(&error) => {
                work.tries = 0;
                return work.refuse(error, adds_target);
            }
            Err(error) => return work.fail(error),
        };
        tell_change(super::NAME, &work.plan.name(), &line);
        work.lines.push(line.clone());
        work.tries = 0;
        if look_again {
            work.look_again = true;
            work.queue.clear();
        }
        work.added |= adds_target && action.is_none();
        if let Some(action) = action {
            work.not_before = Instant::now() + self.scaled(FOLLOW_PAUSE);
            work.running.push(Running {
                action,
                line,
                may_fail_alone: change.may_fail_alone(),
                adds_target,
                since: Instant::now(),
            });
        }
        work.made.push(change);
    }

    /// One call for everything that runs.
    fn ask(&self, works: &mut [Work]) -> Result<(), Error> {
        let running = works.iter().flat_map(|work| &work.running);
        let actions: Vec<ActionId> = running.map(|running| running.action).collect();
        let mut ended = self.provider.ended(&actions)?;
        for work in works {
            let mut still = Vec::new();
            for running in std::mem::take(&mut work.running) {
                match ended.remove(&running.action) {
                    None => still.push(running),
                    Some(Ok(())) => {
                        work.added |= running.adds_target;
                        work.not_before = Instant::now();
                    }
                    Some(Err(error)) => {
                        let error =
                            Error::new(error.kind, format!("{}: {}", running.line, error.message));
                        match running.may_fail_alone {
                            true => work.refuse(error, running.adds_target),
                            false => work.fail(error),
                        }
                    }
                }
            }
            work.running = still;
        }
        Ok(())
    }

    /// Until something can be sent or asked.
    fn sleep(&self, works: &[Work], next_question: Option<Instant>) {
        let sends = works.iter().filter(|work| work.follows());
        let sends = sends.map(|work| work.not_before);
        let until = sends.chain(next_question).min();
        let time = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        // In slices: whoever ends this process does not wait for an action.
        std::thread::sleep(time.min(Duration::from_millis(100)));
        pulse::beat();
    }

    fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.time_scale)
    }
}

/// The cloud refuses this change, and would not refuse another one for the same reason.
fn is_about_itself(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Other | ErrorKind::NotFound | ErrorKind::Busy
    )
}

/// What still runs goes on in the cloud, and is found there by the next look.
fn abandon<'a>(works: impl Iterator<Item = &'a mut Work>, kind: ErrorKind, why: &str) {
    for work in works.filter(|work| !work.is_over()) {
        let waits_for = work.running.first().map(|running| running.line.clone());
        let next = work.queue.front().map(|change| change.line());
        let what = waits_for.or(next).unwrap_or_default();
        work.running.clear();
        work.fail(Error::new(kind.clone(), format!("{what}: {why}")));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
