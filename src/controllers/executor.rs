//! Makes the changes of many objects in the cloud at the same time.
//!
//! Each object has an [`Execution`], which contains its changes in their order. Some changes are carried out by the
//! cloud as an action. Such a change counts as made when the action has ended. Each request runs on a thread of its
//! own, and an execution waits only for its own requests and actions. A slow request therefore delays no other object.
//! It only counts as one of the requests that `--concurrent-service-syncs` allows at the same time. A single API
//! request asks about the state of all running actions.
//!
//! Routes are different, because the cloud changes only one route of a network at a time. For routes, one execution is
//! made after the other, see [`Executor::in_turn`].

use super::controller::Progress;
use super::report::{Report, count_change, log_change};
use super::share::Payer;
use crate::provider::order;
use crate::provider::{
    ActionId, Actions, Applied, Change, ChangeKind, ErrorKind, ProviderError, Snapshot, Tasks,
    Waiting, calls::counted, clock, heartbeat, waiting_for,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How long the executor waits after the start of an action before it asks the cloud whether the action has ended. A
/// following change that need not wait for the end of the action is sent after the same time. When the executor must
/// ask again, each further wait is longer, up to [`LONGEST_PAUSE`]. Most actions take about a second, so an earlier
/// request would be wasted.
const FIRST_PAUSE: Duration = Duration::from_millis(1200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How long the executor waits before it asks the cloud whether a running action has ended, when no other change has to
/// wait for the end of this action.
const ASKED_AFTER: Duration = Duration::from_secs(30);

/// How long an action may run. When it runs longer, its object has failed, and the remaining changes of the object are
/// dropped.
const LONGEST_ACTION: Duration = Duration::from_secs(120);

/// The greatest number of times that a change is sent again. A change is sent again when the cloud has answered "busy",
/// or when the change was delayed because few API calls were left under the rate limit.
const TRIES_AT_MOST: u32 = 10;

/// A change is delayed when few API calls are left under the rate limit. If the delay would be longer than this number
/// multiplied by [`FIRST_PAUSE`], the change fails.
const PUT_OFF_AT_MOST: u32 = 8;

/// The executor repeatedly asks the cloud which actions have ended. When this many of these questions have failed in a
/// row, each object with a running action counts as failed, and its remaining changes are dropped.
const QUESTIONS_AT_MOST: u32 = 5;

/// The longest single wait of the executor for an answer or for the time of the next change. Longer waits are split
/// into parts of this length, so that the process notices soon when it should end. The length is real time, even in
/// tests that simulate the clock.
const SLICE: Duration = Duration::from_millis(100);

/// All executions of one controller. An execution makes the changes of one object, and can continue from one sync pass
/// into the next.
pub(super) struct Executor<T> {
    controller: &'static str,
    executions: Vec<Execution<T>>,
    last_id: u64,
    /// How many requests that ask for the state of running actions have failed in a row.
    unanswered: u32,
    /// Whether the changes of an object are sent only after all changes of the object before it were sent, see
    /// [`Executor::in_turn`].
    is_in_turn: bool,
    /// Whether the cloud has ever answered "busy" to a change of this executor.
    was_busy: bool,
}

/// The changes of one object, and how many of them have been made.
pub(super) struct Execution<T> {
    pub(super) id: u64,
    /// Data that the caller keeps together with the changes, e.g. the plan from which they come.
    pub(super) subject: T,
    /// The API calls for this object's changes are subtracted from this share, i.e. from the calls that ccm allows one
    /// namespace. When the share is used up and [`Payer::can_stop`] is true, the changes that were not sent yet are
    /// dropped. `None` means that no share limits the calls.
    pub(super) payer: Option<Payer>,
    controller: &'static str,
    /// The name of the object, e.g. `service/default/web`.
    object: String,
    queue: VecDeque<Box<dyn Change>>,
    is_in_flight: bool,
    running: Vec<RunningAction>,
    /// The earliest time at which the next change can be sent.
    not_before: Instant,
    /// The latest time at which the first change may be sent. When it was not sent by then, all changes are dropped.
    /// `None` means that there is no limit.
    begins_by: Option<Instant>,
    /// How often the next change was already sent without success, because the cloud was busy or few API calls were
    /// left.
    tries: u32,
    pub(super) result: ExecutionResult,
}

/// The outcome of the changes of one object.
#[derive(Default)]
pub(super) struct ExecutionResult {
    /// The changes of the object that were made in the cloud.
    pub(super) made: Vec<Box<dyn Change>>,
    /// The errors of changes that the cloud refused, although the changes after them were still made. If the removal of
    /// the last target was not sent, because no other target could be added before it, the last error says so. The
    /// changes after this removal were then dropped.
    pub(super) refused: Vec<ProviderError>,
    /// Whether a target of the load balancer could not be added: the cloud refused the target, or the target was not
    /// sent because an earlier change was refused.
    is_target_refused: bool,
    pub(super) end: End,
    /// Whether [`Executor::stop`] was called for this object. The changes that were not sent by then, if any, were
    /// dropped.
    pub(super) is_stopped: bool,
}

/// The reason why no more changes are made for an object.
#[derive(Debug, Default)]
pub(super) enum End {
    /// No error has stopped the changes, and no new plan is needed. The changes that were not made are those that the
    /// cloud refused, those that could not be made without them, and those that [`Executor::stop`] has dropped.
    #[default]
    AllMade,
    /// A new plan is needed, because the change that was just made has altered the state for which the plan was made.
    /// The remaining changes were dropped. If a load balancer was created and the answer to its creation contained it,
    /// the value is the state of all load balancers, including the new one. Otherwise the value is `None`.
    PlanAgain(Option<Arc<dyn Snapshot>>),
    /// A new plan is needed, because something in the cloud had changed since the plan was made. The remaining changes
    /// were dropped. The text describes the change that could not be made.
    Overtaken(String),
    /// A new plan is needed, because the API refused a creation on account of a part of the request, e.g. a target
    /// whose server does not exist any more. The servers and load balancers must be read again for the new plan, so
    /// that it can leave out the refused part.
    RefusedInPart(ProviderError),
    Failed(ProviderError),
}

/// A change that the cloud is carrying out as an action.
struct RunningAction {
    action: ActionId,
    change: Box<dyn Change>,
    since: Instant,
    /// The time of the last request that asked whether the action has ended. `None` means that there was no such
    /// request yet.
    asked: Option<Instant>,
    /// How long the executor waits, after it has asked the cloud about this action, before it asks again.
    pause: Duration,
    /// Says, for as long as this value exists, that the process waits for the end of this action. The process keeps a
    /// list of everything that it waits for, e.g. answers to API calls.
    _waiting: Waiting,
}

/// The requests that were sent and not answered yet. Each request runs on a thread in a thread scope, which ends only
/// after all its threads.
pub(super) struct Requests<'scope, 'env> {
    tasks: Tasks<'scope, 'env, Response>,
    actions: &'env dyn Actions,
    changes_at_most: usize,
    is_asking: bool,
}

enum Response {
    /// The cloud's answer to a change: the ID of the [`Execution`] to which the change belongs, the change, the answer,
    /// and the number of API calls that were made for the change.
    Change(u64, Box<dyn Change>, (Result<Applied, ProviderError>, u64)),
    /// The answer to the question which actions have ended: the actions that were asked about, the answer, and the
    /// number of API calls that were made for the question.
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

    /// Creates an executor for objects of which the cloud changes only one at a time, e.g. the routes of a network. All
    /// changes of an object are sent before those of the next object, in the order in which the objects were added.
    ///
    /// Each change is sent a short pause after the change before it, which has usually ended by then. After the cloud
    /// has answered "busy" once, each change is sent only when the change before it has ended. When an object fails for
    /// a reason that would also let other objects fail, no more changes are sent.
    pub(super) fn in_turn(controller: &'static str) -> Executor<T> {
        Executor { is_in_turn: true, ..Executor::new(controller) }
    }

    /// Adds an object with its changes, and returns its [`Execution`]. When the first change was not sent by
    /// `begins_by`, no change is sent, because the plan is too old then. The field `payer` is `None`, i.e. no
    /// namespace's share of API calls limits the changes. The caller can set this field.
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

    /// Drops the changes that were not sent yet, in each execution (the changes of one object) for which `is_stale`
    /// returns `true`. The execution then ends as soon as its open request is answered and its running actions have
    /// ended. This does no harm: the changes are in an order in which each of them can be the last one that is made.
    pub(super) fn stop(&mut self, is_stale: impl Fn(&Execution<T>) -> bool) {
        for execution in &mut self.executions {
            if is_stale(execution) {
                execution.queue.clear();
                execution.result.is_stopped = true;
            }
        }
    }

    /// Makes changes until all changes of at least one object have ended, and returns the [`Execution`] of each such
    /// object. Returns an empty list when there are no changes, or when `until` has passed. The next call goes on with
    /// the remaining objects.
    pub(super) fn work(
        &mut self,
        requests: &mut Requests,
        until: Option<Instant>,
    ) -> Vec<Execution<T>> {
        loop {
            // The cloud's answers to earlier requests are handled first, even when this function must end at once
            // because the time `until` has passed. When the reads of every sync pass take very long, `until` has always
            // passed. Without this rule, no answer would ever be handled then.
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
            let why = format!(
                "the cloud's action for this change still runs after {} s, and ccm does not wait longer",
                LONGEST_ACTION.as_secs()
            );
            self.abandon(ErrorKind::Unavailable, &why, |execution| execution.is_late(now));
            // The executor repeatedly asks the cloud which running actions have ended. It does not ask while its last
            // question is not answered, or while the process is ending. In these cases the time of the next question is
            // ignored. If this time has passed, this loop would otherwise never wait, and would use the processor
            // without a pause.
            let may_ask = !requests.is_asking && requests.actions.may_wait();
            let question = self.next_question().filter(|_| may_ask);
            if question.is_some_and(|question| question <= now) {
                let running = self.executions.iter().flat_map(|execution| &execution.running);
                requests.ask(running.map(|running| running.action).collect());
            }
            if until.is_some_and(|until| until <= now) {
                return over;
            }
            // When the time to send the next change has already passed, the change waits only because too many requests
            // are in flight. This time is then ignored. Otherwise this loop would never wait, and would use the
            // processor without a pause.
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

    /// Makes the changes of all objects and returns when all have ended. Returns the [`Execution`] of each object,
    /// which contains the outcome, in the order in which the objects were added.
    pub(super) fn run(&mut self, actions: &dyn Actions, concurrency: usize) -> Vec<Execution<T>> {
        std::thread::scope(|scope| {
            let mut requests = Requests::new(scope, actions, concurrency);
            let mut all = Vec::new();
            while !self.executions.is_empty() {
                all.extend(self.work(&mut requests, None));
            }
            order::sort_by_key(&mut all, |execution| execution.id);
            all
        })
    }

    /// Sends changes until no other change can be sent now, or until as many requests wait for an answer as are allowed
    /// at the same time. The change that could have been sent earliest is sent first.
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

    /// Returns the index of the [`Execution`] (the changes of one object) from which a change is sent next, and the
    /// time at which the change is sent. Returns `None` when no change is left, or when each change must wait for an
    /// answer or for the end of an action.
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

    /// Returns the time at which the executor must next ask the cloud which actions have ended, or `None` when no
    /// action is running. When several actions start shortly after each other, the time is late enough to ask about all
    /// of them in one request.
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

    /// Charges the API calls that asked whether these actions have ended. Each action pays an equal part of the calls.
    /// The part is subtracted from the share of API calls (the calls that ccm allows a namespace) that pays for the
    /// object of the action.
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

    /// Gives up the changes of all objects for which `is_given_up` returns `true`, and does not wait for actions of the
    /// cloud that are still running for these objects. The cloud still carries out these actions, and the next plan
    /// sees their results.
    fn abandon(&mut self, kind: ErrorKind, why: &str, is_given_up: impl Fn(&Execution<T>) -> bool) {
        for execution in self.executions.iter_mut().filter(|execution| is_given_up(execution)) {
            let running = execution.running.iter().map(|running| &running.change);
            let first = running.chain(&execution.queue).next();
            let what = first.map(|change| change.description().failed()).unwrap_or_default();
            let error = ProviderError::new(kind.clone(), format!("{what}: {why}"));
            for running in std::mem::take(&mut execution.running) {
                let (object, change) = (&execution.object, running.change.description());
                log::info!("{object}: {change} (begun; the cloud may still be making this change)");
                execution.count(&*running.change, Err(&error));
            }
            execution.end(End::Failed(error));
        }
    }
}

impl<T> Execution<T> {
    /// Whether one of the changes that were not sent yet takes something away: it removes a target, deletes the load
    /// balancer, removes the Service from the load balancer, or makes this controller stop managing the load balancer.
    pub(super) fn takes_away(&self) -> bool {
        self.queue.iter().any(|change| match change.kind() {
            ChangeKind::Targets => !adds_target(&**change),
            ChangeKind::Removal | ChangeKind::Release => true,
            ChangeKind::Settings => false,
        })
    }

    /// Whether one of the changes that were not sent yet removes a target that Services still want. Such a target is
    /// removed because its node will stop soon, or because a node with pods takes its place. The next sync pass drops
    /// such a change if it was not sent by then, because the health checks on which it depends are then too old.
    pub(super) fn rests_on_health(&self) -> bool {
        self.queue.iter().any(|change| change.soft_removal().is_some())
    }

    fn charge(&self, calls: f64) {
        if let Some(payer) = &self.payer {
            payer.share.charge(calls, clock::now());
        }
    }

    /// Whether a change of the object is being sent, is running in the cloud, or was made. A change that the cloud
    /// refused as "busy" does not count.
    fn has_begun(&self) -> bool {
        self.is_in_flight || !self.running.is_empty() || !self.result.made.is_empty()
    }

    /// Whether this object has failed for a reason that would let other objects fail as well, e.g. because the API does
    /// not answer.
    fn fails_for_all(&self) -> bool {
        let kind = self.error().map(|error| &error.kind);
        !matches!(kind, None | Some(ErrorKind::Other | ErrorKind::NotFound))
    }

    /// Returns the error because of which the object's remaining changes were dropped, if there is such an error.
    pub(super) fn error(&self) -> Option<&ProviderError> {
        match &self.result.end {
            End::Failed(error) => Some(error),
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty() && !self.is_in_flight
    }

    /// Whether the next change is allowed to be sent now. Some changes are allowed even while actions of earlier
    /// changes still run.
    fn can_send(&self) -> bool {
        !self.is_in_flight
            && self.queue.front().is_some_and(|next| {
                self.running.is_empty() || (self.tries == 0 && next.may_follow_at_once())
            })
    }

    /// Whether nothing can be done for the object before one of its running actions has ended.
    fn waits_for_actions(&self) -> bool {
        !self.running.is_empty() && !self.is_in_flight && !self.can_send()
    }

    /// Whether an action of the object has been running for longer than [`LONGEST_ACTION`]. An action about which the
    /// cloud was not asked yet does not count, because it may have ended long ago.
    fn is_late(&self, now: Instant) -> bool {
        let mut asked = self.running.iter().filter(|running| running.asked.is_some());
        !self.is_in_flight
            && asked.any(|running| now.saturating_duration_since(running.since) > LONGEST_ACTION)
    }

    /// Takes the object's next change that was not sent yet, and returns it. When this change would remove the last
    /// target of a load balancer, and no new target could be added before, drops all remaining changes and returns
    /// `None`.
    fn next_change(&mut self) -> Option<Box<dyn Change>> {
        let has_refused = !self.result.refused.is_empty();
        while has_refused && self.queue.front().is_some_and(|next| next.needs_all_before()) {
            let left_out = self.queue.pop_front()?;
            self.result.is_target_refused |= adds_target(&*left_out);
        }
        let change = self.queue.pop_front()?;
        let has_no_other = self.result.is_target_refused
            && !self.result.made.iter().any(|change| adds_target(&**change));
        if change.needs_another_first() && has_no_other {
            // This change removes the last target of the load balancer, but no new target could be added before it.
            // Neither this change nor a later one is made.
            self.queue.clear();
            let why = format!(
                "{}: not done yet, because the targets that must be added first could not be added",
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
            // Few API calls are left under the rate limit, and they are kept for more urgent calls, e.g. about nodes.
            // The change is sent again after `retry_in`. If that is longer than `PUT_OFF_AT_MOST` allows, the change
            // fails instead, because its plan would be too old by then.
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
            // An error of this kind concerns only this change, so the remaining changes of the object are still made.
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

    /// Adds the result for the object to the report of the sync pass: the changes that were made and, if an error has
    /// stopped the other changes, this error.
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

    /// Drops the object's changes that were not sent yet, and stores the reason. When an error is already stored, it
    /// stays the reason.
    fn end(&mut self, end: End) {
        self.queue.clear();
        if self.error().is_none() {
            self.result.end = end;
        }
    }
}

impl<'scope, 'env> Requests<'scope, 'env> {
    /// Creates an empty set of requests. At most `concurrency` changes can be in flight at the same time. One request
    /// that asks about running actions is allowed in addition.
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
