//! Executes ordered changes in the cloud, for many objects at the same time.
//!
//! Each object has an [`Execution`], which holds its changes in their order. A change that the cloud carries out as an
//! action counts as made when the action has ended. An execution waits only for its own requests and actions. Requests
//! run on threads of their own, so that a slow request occupies one of `--concurrent-service-syncs` and holds up
//! nothing else. One question is asked for all running actions.
//!
//! Executions are made in turn when all objects are parts of an object that carries out one change at a time, such as
//! the routes of a network. See [`Executor::in_turn`].

use super::controller::Progress;
use super::report::{Report, count_change, log_change};
use super::share::Payer;
use crate::provider::{
    ActionId, Actions, Applied, Change, ChangeKind, ErrorKind, ProviderError, Snapshot, Tasks,
    Waiting, calls::counted, clock, heartbeat, waiting_for,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

/// The pause from the start of an action to the question whether it has ended, or to a change that may follow at once.
/// The pause grows up to the longest one. Most actions take about a second, and an earlier call would be wasted.
const FIRST_PAUSE: Duration = Duration::from_millis(1200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How long an action for which no change waits runs before the cloud is asked about it.
const ASKED_AFTER: Duration = Duration::from_secs(30);

/// How long an action may run before its execution fails.
const LONGEST_ACTION: Duration = Duration::from_secs(120);

/// A change is sent again at most this often when the cloud answers "busy", or when the budget of calls is
/// nearly used up.
const TRIES_AT_MOST: u32 = 10;

/// The longest time that a change may be put off by the rate budget, as a multiple of [`FIRST_PAUSE`].
const PUT_OFF_AT_MOST: u32 = 8;

/// After this many questions in a row without an answer, the executions with running actions fail.
const QUESTIONS_AT_MOST: u32 = 5;

/// The longest part of a wait, by the machine's clock, which tests do not shorten. A longer wait is cut into such
/// parts, so that the process can end without waiting for an action.
const SLICE: Duration = Duration::from_millis(100);

/// All executions of one controller. An executor may be kept from one tick to the next.
pub(super) struct Executor<T> {
    controller: &'static str,
    executions: Vec<Execution<T>>,
    last_id: u64,
    /// How many questions in a row were not answered.
    unanswered: u32,
    /// Whether executions are made in turn. See [`Executor::in_turn`].
    is_in_turn: bool,
    /// Whether a change was answered "busy".
    was_busy: bool,
}

/// The changes of one object, and how far they have come.
pub(super) struct Execution<T> {
    pub(super) id: u64,
    /// The subject for which the changes are made.
    pub(super) subject: T,
    /// The payer of the calls. The execution stops when the share of the payer is used up. `None` means that the calls
    /// are charged to nobody.
    pub(super) payer: Option<Payer>,
    controller: &'static str,
    /// The name of the object, e.g. `service/default/web`.
    object: String,
    queue: VecDeque<Box<dyn Change>>,
    is_in_flight: bool,
    running: Vec<RunningAction>,
    /// The next change is not sent before this moment.
    not_before: Instant,
    /// The moment after which the first change is not sent any more.
    begins_by: Option<Instant>,
    /// How often the cloud has answered "busy" to the next change.
    tries: u32,
    pub(super) result: ExecutionResult,
}

/// The outcome of the changes of an execution.
#[derive(Default)]
pub(super) struct ExecutionResult {
    /// The changes that were made in the cloud.
    pub(super) made: Vec<Box<dyn Change>>,
    /// The errors of changes that the cloud refused, although the execution went on with its other changes.
    pub(super) refused: Vec<ProviderError>,
    /// Whether a target that was to be added was refused.
    is_target_refused: bool,
    pub(super) end: End,
    /// Whether `Executor::stop` dropped the changes that were not sent.
    pub(super) is_stopped: bool,
}

/// The reason why no more changes of an execution are made.
#[derive(Debug, Default)]
pub(super) enum End {
    /// All changes were made, except those that were refused.
    #[default]
    AllMade,
    /// The other changes were dropped, and a new plan is needed, because the state on which the plan rests may have
    /// changed. The value is a snapshot from the answer to the creation of the load balancer, or `None` when there is
    /// no such snapshot.
    PlanAgain(Option<Arc<dyn Snapshot>>),
    /// The other changes were dropped, because something in the cloud had changed, and a new plan is needed. The text
    /// names the change that could not be made, for messages.
    Overtaken(String),
    /// The API refused a creation because of a part of it, e.g. a target whose server does not exist any more. A new
    /// plan, made after the lists are read again, may leave that part out.
    RefusedInPart(ProviderError),
    Failed(ProviderError),
}

/// A change that the cloud carries out as an action.
struct RunningAction {
    action: ActionId,
    change: Box<dyn Change>,
    since: Instant,
    /// The time of the last question about the action.
    asked: Option<Instant>,
    /// The time from the last question to the next one.
    pause: Duration,
    /// While this value exists, a person can see what the process waits for.
    _waiting: Waiting,
}

/// The requests in flight. Each request is a task of a thread scope, and has ended when the scope ends.
pub(super) struct Requests<'scope, 'env> {
    tasks: Tasks<'scope, 'env, Response>,
    actions: &'env dyn Actions,
    changes_at_most: usize,
    is_asking: bool,
}

enum Response {
    /// The answer to a change of the execution with this ID, and the number of calls that were made for the change.
    Change(u64, Box<dyn Change>, (Result<Applied, ProviderError>, u64)),
    /// The answer to the question which of these actions have ended, and the number of calls that were made to ask.
    Ended(Vec<ActionId>, (Result<EndedActions, ProviderError>, u64)),
}

type EndedActions = HashMap<ActionId, Result<(), ProviderError>>;

impl<T> Executor<T> {
    pub(super) fn new(controller: &'static str) -> Executor<T> {
        Executor {
            controller,
            executions: Vec::new(),
            last_id: 0,
            unanswered: 0,
            is_in_turn: false,
            was_busy: false,
        }
    }

    /// Creates an executor for an object that can only be changed by one change at a time. Each execution changes a
    /// part of this object. The changes are sent in the order of the executions, one execution after the other. A
    /// change is sent when most changes would be done, counted from the sending of the change before it. After an
    /// answer "busy", it is sent when the change before it has ended. A failure that concerns more than one change
    /// stops all executions.
    pub(super) fn in_turn(controller: &'static str) -> Executor<T> {
        Executor { is_in_turn: true, ..Executor::new(controller) }
    }

    /// Begins an execution without a payer, and returns it. The execution is stopped when its first change was not sent
    /// by `begins_by`, because its plan is too old then.
    pub(super) fn begin(
        &mut self,
        object: String,
        changes: Vec<Box<dyn Change>>,
        subject: T,
        begins_by: Option<Instant>,
    ) -> &mut Execution<T> {
        self.last_id += 1;
        let place = self.executions.len();
        self.executions.push(Execution {
            id: self.last_id,
            subject,
            payer: None,
            controller: self.controller,
            object,
            queue: changes.into(),
            is_in_flight: false,
            running: Vec::new(),
            not_before: clock::now(),
            begins_by,
            tries: 0,
            result: ExecutionResult::default(),
        });
        &mut self.executions[place]
    }

    pub(super) fn executions(&self) -> &[Execution<T>] {
        &self.executions
    }

    /// Drops the changes that were not sent yet. The execution ends when the request under way is answered and its
    /// actions have ended. A stop is safe after any change, just as the end of a killed process is.
    pub(super) fn stop(&mut self, is_stale: impl Fn(&Execution<T>) -> bool) {
        for execution in &mut self.executions {
            if is_stale(execution) {
                execution.queue.clear();
                execution.result.is_stopped = true;
            }
        }
    }

    /// Works on all executions until some have ended, and returns these. Returns none when `until` has passed, or when
    /// there is no execution. The next call continues the others.
    pub(super) fn work(
        &mut self,
        requests: &mut Requests,
        until: Option<Instant>,
    ) -> Vec<Execution<T>> {
        loop {
            // Answers are handled even after `until`. Otherwise a tick whose reads take longer than its interval would
            // never ask about actions, and no execution would end.
            while let Some(response) = requests.next(Duration::ZERO) {
                self.handle(response);
            }
            self.send(requests);
            let over = self.executions.extract_if(.., |execution| execution.is_over());
            let over: Vec<Execution<T>> = over.collect();
            let now = clock::now();
            if !over.is_empty() || self.executions.is_empty() {
                return over;
            }
            if !requests.actions.may_wait() && !requests.are_in_flight() {
                self.abandon(ErrorKind::Refused, "ccm is ending", |_| true);
                continue;
            }
            let why = format!("it still runs after {} s", LONGEST_ACTION.as_secs());
            self.abandon(ErrorKind::Unavailable, &why, |execution| execution.is_late(now));
            // An executor that may not ask about actions only waits for answers. A wait until the next question would
            // end at once when that question is due, and would be repeated without end.
            let may_ask = !requests.is_asking && requests.actions.may_wait();
            let question = self.next_question().filter(|_| may_ask);
            if question.is_some_and(|question| question <= now) {
                let running = self.executions.iter().flat_map(|execution| &execution.running);
                requests.ask(running.map(|running| running.action).collect());
            }
            if until.is_some_and(|until| until <= now) {
                return over;
            }
            // A moment in the past means that no request may be in flight. Nothing is sent before the open
            // answer has come.
            let next = self.next_to_send().map(|(_, moment)| moment);
            let moments = [
                until,
                question.filter(|_| !requests.is_asking),
                next.filter(|moment| *moment > now),
            ];
            let moment = moments.into_iter().flatten().min();
            let slice = clock::from_machine(SLICE);
            let wait = moment.map_or(slice, |moment| moment.saturating_duration_since(now));
            if let Some(response) = requests.next(wait.min(slice)) {
                self.handle(response);
            }
            heartbeat::beat();
        }
    }

    /// Works on all executions until their end. Returns them in the order in which they were begun.
    pub(super) fn run(&mut self, actions: &dyn Actions, concurrency: usize) -> Vec<Execution<T>> {
        std::thread::scope(|scope| {
            let mut requests = Requests::new(scope, actions, concurrency);
            let mut all = Vec::new();
            while !self.executions.is_empty() {
                all.extend(self.work(&mut requests, None));
            }
            all.sort_by_key(|execution| execution.id);
            all
        })
    }

    /// Sends one change of each execution that can go on, as long as there is room for requests. The execution that has
    /// waited longest comes first.
    pub(super) fn send(&mut self, requests: &mut Requests) {
        let now = clock::now();
        self.stop(|execution| {
            execution.begins_by.is_some_and(|moment| moment < now) && !execution.has_begun()
        });
        self.stop(|execution| {
            let must_stop = execution.payer.as_ref().is_some_and(|payer| payer.must_stop(now));
            must_stop && !execution.queue.is_empty()
        });
        if self.is_in_turn && self.executions.iter().any(|execution| execution.fails_for_all()) {
            self.stop(|_| true);
        }
        while requests.have_room() {
            let next = self.next_to_send().filter(|(_, moment)| *moment <= now);
            let Some((place, _)) = next else { return };
            let execution = &mut self.executions[place];
            if let Some(change) = execution.next_change() {
                execution.is_in_flight = true;
                requests.send(execution.id, change);
            }
        }
    }

    /// Returns the index of the execution that sends the next change, and the time. `None` when an action
    /// must end first.
    fn next_to_send(&self) -> Option<(usize, Instant)> {
        let mut executions = self.executions.iter().enumerate();
        if !self.is_in_turn {
            let can_send = executions.filter(|(_, one)| one.can_send());
            let moments = can_send.map(|(place, one)| (place, one.not_before));
            return moments.min_by_key(|(_, moment)| *moment);
        }
        let (place, next) = executions.find(|(_, one)| !one.queue.is_empty())?;
        let must_wait =
            self.was_busy && self.executions.iter().any(|execution| !execution.running.is_empty());
        let moment = self.executions.iter().map(|execution| execution.not_before).max()?;
        (next.can_send() && !must_wait).then_some((place, moment))
    }

    /// Returns the time of the next question whether actions have ended. Actions that start soon after each other are
    /// asked about together.
    fn next_question(&self) -> Option<Instant> {
        let mut moments = Vec::new();
        let mut starts = Vec::new();
        let all_wait = !self.executions.iter().any(|execution| execution.is_in_flight)
            && self.next_to_send().is_none();
        for execution in &self.executions {
            let waits = if self.is_in_turn { all_wait } else { execution.waits_for_actions() };
            for running in &execution.running {
                match running.asked {
                    None if waits => starts.push(running.since),
                    Some(asked) if waits => moments.push(asked + running.pause),
                    asked => moments.push(asked.unwrap_or(running.since) + ASKED_AFTER),
                }
            }
        }
        let (first, last) = (starts.iter().min(), starts.iter().max());
        moments.extend(first.zip(last).map(|(first, last)| {
            let soon = *last + FIRST_PAUSE;
            soon.min(*first + LONGEST_PAUSE)
        }));
        moments.into_iter().min()
    }

    fn handle(&mut self, response: Response) {
        match response {
            Response::Change(id, change, (applied, calls)) => {
                let is_busy = |error: &ProviderError| error.kind == ErrorKind::Busy;
                self.was_busy |= applied.as_ref().is_err_and(is_busy);
                if let Some(execution) =
                    self.executions.iter_mut().find(|execution| execution.id == id)
                {
                    execution.charge(calls as f64);
                    execution.answered(change, applied);
                }
            }
            Response::Ended(actions, (ended, calls)) => {
                self.share_out(&actions, calls);
                self.handle_ended(&actions, ended);
            }
        }
    }

    /// Each execution pays for its part of the calls that asked about these actions.
    fn share_out(&self, actions: &[ActionId], calls: u64) {
        let each = calls as f64 / actions.len().max(1) as f64;
        for execution in &self.executions {
            let running = execution.running.iter();
            let asked = running.filter(|running| actions.contains(&running.action));
            execution.charge(each * asked.count() as f64);
        }
    }

    fn handle_ended(&mut self, actions: &[ActionId], ended: Result<EndedActions, ProviderError>) {
        let now = clock::now();
        let all = self.executions.iter_mut().flat_map(|execution| &mut execution.running);
        for running in all.filter(|running| actions.contains(&running.action)) {
            running.asked = Some(now);
            running.pause = (running.pause * 3 / 2).min(LONGEST_PAUSE);
        }
        match ended {
            Ok(mut ended) => {
                self.unanswered = 0;
                self.executions
                    .iter_mut()
                    .for_each(|execution| execution.actions_ended(&mut ended));
            }
            Err(error) if self.unanswered + 1 >= QUESTIONS_AT_MOST => {
                self.unanswered = 0;
                let why = error.to_string();
                self.abandon(error.kind, &why, |execution| !execution.running.is_empty());
            }
            Err(error) => {
                log::debug!("{error}; asking again");
                self.unanswered += 1;
            }
        }
    }

    /// Ends executions without waiting for their running actions. The cloud still carries out these actions, and the
    /// next plan finds their results.
    fn abandon(&mut self, kind: ErrorKind, why: &str, is_given_up: impl Fn(&Execution<T>) -> bool) {
        for execution in self.executions.iter_mut().filter(|execution| is_given_up(execution)) {
            let running = execution.running.iter().map(|running| &running.change);
            let first = running.chain(&execution.queue).next();
            let what = first.map(|change| change.description().failed()).unwrap_or_default();
            let error = ProviderError::new(kind.clone(), format!("{what}: {why}"));
            for running in std::mem::take(&mut execution.running) {
                let (object, change) = (&execution.object, running.change.description());
                log::info!("{object}: {change} (begun; it may still be running)");
                execution.count(&*running.change, Err(&error));
            }
            execution.end(End::Failed(error));
        }
    }
}

impl<T> Execution<T> {
    /// Whether one of the changes that were not sent yet removes a target or deletes the load balancer.
    pub(super) fn takes_away(&self) -> bool {
        self.queue.iter().any(|change| match change.kind() {
            ChangeKind::Targets => !adds_target(&**change),
            ChangeKind::Removal | ChangeKind::Release => true,
            ChangeKind::Settings => false,
        })
    }

    fn charge(&self, calls: f64) {
        if let Some(payer) = &self.payer {
            payer.share.charge(calls, clock::now());
        }
    }

    /// Whether a change of the execution is being sent, runs in the cloud or was made. A change that was answered
    /// "busy" does not count.
    fn has_begun(&self) -> bool {
        self.is_in_flight || !self.running.is_empty() || !self.result.made.is_empty()
    }

    /// Whether the execution failed for a reason that also makes other changes of the same object fail.
    fn fails_for_all(&self) -> bool {
        let kind = self.error().map(|error| &error.kind);
        !matches!(kind, None | Some(ErrorKind::Other | ErrorKind::NotFound))
    }

    /// Returns the error because of which the other changes were not made.
    pub(super) fn error(&self) -> Option<&ProviderError> {
        match &self.result.end {
            End::Failed(error) => Some(error),
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty() && !self.is_in_flight
    }

    /// Whether the next change could be sent now, although actions of earlier changes may still run.
    fn can_send(&self) -> bool {
        !self.is_in_flight
            && self.queue.front().is_some_and(|next| {
                self.running.is_empty() || (self.tries == 0 && next.may_follow_at_once())
            })
    }

    /// Whether nothing can be sent before an action has ended.
    fn waits_for_actions(&self) -> bool {
        !self.running.is_empty() && !self.is_in_flight && !self.can_send()
    }

    /// Whether an action started longer ago than [`LONGEST_ACTION`], and was still running when the cloud was last
    /// asked about it.
    fn is_late(&self, now: Instant) -> bool {
        let mut asked = self.running.iter().filter(|running| running.asked.is_some());
        !self.is_in_flight
            && asked.any(|running| now.saturating_duration_since(running.since) > LONGEST_ACTION)
    }

    /// Takes the next change out of the queue. `None` means that neither this change nor any later one may be made.
    fn next_change(&mut self) -> Option<Box<dyn Change>> {
        let change = self.queue.pop_front()?;
        let has_no_other = self.result.is_target_refused
            && !self.result.made.iter().any(|change| adds_target(&**change));
        if change.needs_another_first() && has_no_other {
            // The change would remove the last target, so neither this change nor the changes that rest on it are made.
            self.queue.clear();
            let why = format!(
                "{}: not done yet, because the targets that must be added before could not be added",
                change.description()
            );
            self.result.refused.push(ProviderError::new(ErrorKind::Other, why));
            return None;
        }
        Some(change)
    }

    /// Handles the cloud's answer to a change.
    fn answered(&mut self, change: Box<dyn Change>, applied: Result<Applied, ProviderError>) {
        self.is_in_flight = false;
        let now = clock::now();
        let action = match applied {
            Ok(Applied::Done) => None,
            Ok(Applied::Running(action)) => Some(action),
            Ok(Applied::LookAgain(action)) => {
                self.end(End::PlanAgain(None));
                action
            }
            Ok(Applied::Shown(action, shown)) => {
                self.end(End::PlanAgain(Some(shown)));
                action
            }
            Ok(Applied::Overtaken) => {
                self.count(&*change, Err(&ProviderError::new(ErrorKind::Busy, "")));
                return self.end(End::Overtaken(change.description().to_string()));
            }
            Err(error) => {
                self.count(&*change, Err(&error));
                return self.answered_with_error(change, error);
            }
        };
        self.tries = 0;
        let Some(action) = action else {
            self.not_before = now;
            return self.is_made(change);
        };
        log::debug!("{}: {} (begun)", self.object, change.description());
        let waiting =
            waiting_for(|| format!("{}: {}", self.object, change.description().requested()));
        self.not_before = now + FIRST_PAUSE;
        self.running.push(RunningAction {
            action,
            change,
            since: now,
            asked: None,
            pause: FIRST_PAUSE,
            _waiting: waiting,
        });
    }

    fn answered_with_error(&mut self, change: Box<dyn Change>, error: ProviderError) {
        let pause = match error.kind {
            ErrorKind::Busy => Some(FIRST_PAUSE),
            // The rate budget serves calls for nodes first, so this change is sent when a few more calls are available.
            // After a longer wait, the change would rest on an old plan.
            ErrorKind::RateLimited { retry_in, put_off: true } => {
                Some(retry_in).filter(|pause| *pause <= FIRST_PAUSE * PUT_OFF_AT_MOST)
            }
            _ => None,
        };
        let may_try = self.tries < TRIES_AT_MOST && !self.result.is_stopped;
        if let Some(pause) = pause.filter(|_| may_try) {
            self.tries += 1;
            self.not_before = clock::now() + pause;
            return self.queue.push_front(change);
        }
        match error.kind {
            ErrorKind::InPart => self.end(End::RefusedInPart(error)),
            // The cloud need not refuse the other changes for the same reason, so the execution goes on.
            ErrorKind::Other | ErrorKind::NotFound | ErrorKind::Busy if change.may_fail_alone() => {
                self.tries = 0;
                self.refuse(&*change, error);
            }
            _ => self.end(End::Failed(error)),
        }
    }

    fn actions_ended(&mut self, ended: &mut EndedActions) {
        for running in std::mem::take(&mut self.running) {
            match ended.remove(&running.action) {
                None => self.running.push(running),
                Some(Ok(())) => {
                    self.not_before = clock::now();
                    self.is_made(running.change);
                }
                Some(Err(error)) => {
                    let change = running.change;
                    self.count(&*change, Err(&error));
                    let why = format!("{}: {}", change.description().failed(), error.message);
                    let error = ProviderError::new(error.kind, why);
                    if change.may_fail_alone() {
                        self.refuse(&*change, error);
                    } else {
                        self.end(End::Failed(error));
                    }
                }
            }
        }
    }

    fn is_made(&mut self, change: Box<dyn Change>) {
        self.count(&*change, Ok(()));
        log_change(self.controller, &self.object, &change.description());
        self.result.made.push(change);
    }

    fn count(&self, change: &dyn Change, outcome: Result<(), &ProviderError>) {
        count_change(self.controller, change.word(), outcome);
    }

    /// Notes the outcome for the object in the report.
    pub(super) fn note_in(self, report: &mut Report) {
        for made in &self.result.made {
            report.add_changes(&self.object, &made.description());
        }
        match self.result.end {
            End::Failed(error) => report.fail(self.object, error.to_string(), None),
            _ => report.note(self.object, Progress::Changed),
        }
    }

    fn refuse(&mut self, change: &dyn Change, error: ProviderError) {
        self.result.is_target_refused |= adds_target(change);
        self.result.refused.push(error);
    }

    /// Drops the changes that were not sent. An earlier failure remains the reason of the end.
    fn end(&mut self, end: End) {
        self.queue.clear();
        if self.error().is_none() {
            self.result.end = end;
        }
    }
}

impl<'scope, 'env> Requests<'scope, 'env> {
    /// Creates the requests. At most `concurrency` changes are in flight, and besides them one question
    /// about running actions.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        actions: &'env dyn Actions,
        concurrency: usize,
    ) -> Requests<'scope, 'env> {
        Requests {
            tasks: Tasks::new(scope),
            actions,
            changes_at_most: concurrency.max(1),
            is_asking: false,
        }
    }

    pub(super) fn are_in_flight(&self) -> bool {
        self.tasks.open() > 0
    }

    fn have_room(&self) -> bool {
        self.tasks.open() - usize::from(self.is_asking) < self.changes_at_most
    }

    fn send(&mut self, id: u64, change: Box<dyn Change>) {
        self.tasks.begin(move || {
            let applied = counted(|| change.apply());
            Response::Change(id, change, applied)
        });
    }

    fn ask(&mut self, actions: Vec<ActionId>) {
        self.is_asking = true;
        let cloud = self.actions;
        self.tasks.begin(move || {
            let ended = counted(|| cloud.ended(&actions));
            Response::Ended(actions, ended)
        });
    }

    fn next(&mut self, wait: Duration) -> Option<Response> {
        let response = self.tasks.next(wait)?;
        self.is_asking &= !matches!(response, Response::Ended(..));
        Some(response)
    }
}

fn adds_target(change: &dyn Change) -> bool {
    change.may_fail_alone() && change.kind() == ChangeKind::Targets
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
