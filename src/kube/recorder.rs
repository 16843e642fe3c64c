//! Writes events from a bounded queue in a thread of its own, so that no other work waits for the writes.
//!
//! Warnings are limited in rate: fifty may be written at once, and then one each second. A lasting failure therefore
//! costs the API server little. Other events are not limited, because each of them reports a change that was made.
//! Events of one object are written in their order. Namespaces take turns. When the queue is full, an event of the
//! namespace that has the most waiting events is dropped.
//!
//! The recorder also remembers the findings of the controllers: which success or problem was reported about which
//! object, and when. It stores hashes of the findings and no texts.

use super::client::KubeClient;
use super::events::Event;
use super::types::Subject;
use crate::metrics::EVENTS;
use crate::provider::{Reason, clock, lock};
use crate::text::fnv1a;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How many warnings may be written at once, before the rate is limited to one in each [`ONE_WARNING_EACH`].
const BURST: u32 = 50;

/// After [`BURST`] warnings at once, one warning may be written in each period of this length.
const ONE_WARNING_EACH: Duration = Duration::from_secs(1);

/// When the API server did not answer the write of an event in time, no event is written for this long.
const PAUSE: Duration = Duration::from_secs(60);

/// A test with a simulated clock checks the queue for new events at this interval.
const LOOKS_FOR_EVENTS: Duration = Duration::from_millis(100);

/// While [`Recorder::first`] runs a function that makes many writes, events wait, but no longer than this time. The
/// limit is real time, because the API server does not become faster when a test makes the program's clock run faster.
const WAITS_FOR_WORK: Duration = Duration::from_secs(10);

/// While [`Recorder::first`] runs a function that makes many writes, events wait in the queue. When more than
/// this number of events wait, they are written nevertheless. The queue is then only a quarter full, so no event
/// has to be dropped.
const WAIT_FOR_WORK_AT_MOST: usize = OTHERS_AT_MOST / 4;

/// The greatest number of warnings that wait in the queue. Each warning has at most 5 kB, so all of them have at most 1
/// MB.
const WARNINGS_AT_MOST: usize = 200;

/// The greatest number of events that wait in the queue and are not warnings. Each of them has a few hundred bytes.
const OTHERS_AT_MOST: usize = 4000;

/// To find the next event to write, at most this many of the oldest waiting events are examined.
const CONSIDERED_AT_MOST: usize = 256;

/// The shortest real time between two log lines about dropped events.
const DROPS_LOGGED_EACH: Duration = Duration::from_secs(600);

/// How long, in real time, a command that a user runs waits at its end until its events are written.
const END_OF_COMMAND: Duration = Duration::from_secs(10);

/// The queue of the events that wait to be written, and the record of the successes and problems that were reported.
#[derive(Default)]
pub struct Recorder {
    reported: Mutex<Reported>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Event>,
    warnings: usize,
    /// The namespace of the event that was written last. The next event is one of another namespace, if such an event
    /// waits.
    last_namespace: String,
    /// Limits how many warnings are written in a period. Each written warning moves this moment later by
    /// [`ONE_WARNING_EACH`], beginning at the present time when the moment has already passed. A warning must wait
    /// while this moment is too far in the future. So at most [`BURST`] warnings are written at once. `None` means that
    /// no warning was written yet.
    warned_until: Option<Instant>,
    paused_until: Option<Instant>,
    /// No event is written before this moment. It is set while [`Recorder::first`] runs a function that makes many
    /// writes, because events would delay these writes. `None` means that no such function runs.
    work_until: Option<Instant>,
    /// Whether an event is being written.
    is_busy: bool,
    is_ending: bool,
    drops_logged: Option<Instant>,
}

enum NextEvent {
    Event(Event),
    /// At least one event waits, but no event may be written before this moment.
    At(Instant),
    Nothing,
}

impl Recorder {
    /// Returns the record of the successes and problems that were reported about each object.
    pub fn reported(&self) -> MutexGuard<'_, Reported> {
        lock(&self.reported)
    }

    /// Puts an event into the queue of the events to be written.
    pub fn queue(&self, event: Event) {
        lock(&self.queue).push(event, clock::now());
        self.changed.notify_all();
    }

    /// Writes events until [`end`](Recorder::end) is called. Only one thread runs this function.
    pub fn write_events(&self, client: &KubeClient) {
        while let Some(event) = self.next() {
            self.write(client, &event);
        }
    }

    /// Writes all events that may be written now. Returns how long to wait before the next call of this function, or
    /// `None` when the recorder has ended. Tests with a simulated clock call this function, because they have no thread
    /// that waits for events.
    pub fn write_due(&self, client: &KubeClient) -> Option<Duration> {
        loop {
            let now = clock::now();
            let next = lock(&self.queue).next(now);
            match next {
                NextEvent::Event(event) => self.write(client, &event),
                NextEvent::Nothing if lock(&self.queue).is_ending => return None,
                NextEvent::Nothing => return Some(LOOKS_FOR_EVENTS),
                NextEvent::At(then) => return Some(then.saturating_duration_since(now)),
            }
        }
    }

    /// Runs `work`, which makes many writes, and lets events wait until `work` has ended. Otherwise a third of the
    /// requests to the API server would be for events, and `work` would take longer. The events no longer wait when
    /// `work` takes more than ten seconds, or when more than a thousand events wait.
    pub fn first<T>(&self, work: impl FnOnce() -> T) -> T {
        lock(&self.queue).work_until = Some(clock::now() + clock::from_machine(WAITS_FOR_WORK));
        let done = work();
        let mut queue = lock(&self.queue);
        queue.work_until = None;
        // Usually no event waits, and then the thread that writes events is not woken.
        if !queue.waiting.is_empty() {
            self.changed.notify_all();
        }
        done
    }

    /// Runs `work` while another thread writes the events that `work` creates. After `work`, waits until these events
    /// are written, but no longer than [`END_OF_COMMAND`].
    pub fn alongside<T>(&self, client: &KubeClient, work: impl FnOnce() -> T) -> T {
        let is_simulated = clock::is_simulated();
        lock(&self.queue).is_ending = is_simulated;
        if is_simulated {
            let done = work();
            self.write_events(client);
            return done;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| self.write_events(client));
            let done = work();
            self.end(clock::from_machine(END_OF_COMMAND));
            done
        })
    }

    /// Waits until all events in the queue are written, but no longer than `at_most`. The events that are then still in
    /// the queue are dropped.
    pub fn end(&self, at_most: Duration) {
        let mut queue = lock(&self.queue);
        queue.is_ending = true;
        self.changed.notify_all();
        let is_unwritten = |queue: &mut Queue| queue.is_busy || !queue.waiting.is_empty();
        queue = clock::wait_at_most(&self.changed, queue, at_most, is_unwritten);
        queue.drop_all();
    }

    /// Waits until an event may be written, and returns the event. Returns `None` when the recorder has ended and the
    /// queue is empty.
    fn next(&self) -> Option<Event> {
        let mut queue = lock(&self.queue);
        queue.is_busy = false;
        self.changed.notify_all();
        loop {
            let now = clock::now();
            let wait = match queue.next(now) {
                NextEvent::Event(event) => {
                    queue.is_busy = true;
                    return Some(event);
                }
                NextEvent::Nothing if queue.is_ending => return None,
                NextEvent::Nothing => PAUSE,
                NextEvent::At(then) => then.saturating_duration_since(now),
            };
            queue = clock::wait(&self.changed, queue, wait);
        }
    }

    /// Writes an event. A failure is logged and not returned, because work must not fail when its events
    /// cannot be written.
    fn write(&self, client: &KubeClient, event: &Event) {
        let Err(error) = super::events::write(client, event) else {
            EVENTS.count(&["written"]);
            return;
        };
        let (reason, name) = (event.reason.name(), event.object.for_people());
        EVENTS.count(&["failed"]);
        // These failures are normal, so they are not logged as warnings. Either this process is not allowed to write
        // now, or the namespace is being deleted or does not exist any more, and accepts no new events.
        if error.is_refused() || error.is_namespace_terminating() || error.is_not_found() {
            log::debug!("event {reason} of {name} was not written: {error}");
            return;
        }
        log::warn!("event {reason} of {name} was not written: {error}");
        if error.is_unavailable() {
            lock(&self.queue).paused_until = Some(clock::now() + PAUSE);
        }
    }
}

impl Queue {
    fn push(&mut self, event: Event, now: Instant) {
        let is_warning = event.is_warning();
        let (count, at_most) = if is_warning {
            (self.warnings, WARNINGS_AT_MOST)
        } else {
            (self.waiting.len() - self.warnings, OTHERS_AT_MOST)
        };
        if count >= at_most {
            self.log_drop(now);
            EVENTS.count(&["dropped"]);
            match self.most_crowded(&event) {
                Some(place) => drop(self.remove(place)),
                None => return,
            }
        }
        self.warnings += usize::from(is_warning);
        self.waiting.push_back(event);
    }

    /// Returns the index of the waiting event that is dropped so that `event` fits into the queue. If `event` is a
    /// warning, only warnings are considered, and otherwise only other events. Of these, the newest event of the
    /// namespace with the most waiting events is dropped. `None` means that `event` itself is dropped.
    fn most_crowded(&self, event: &Event) -> Option<usize> {
        let is_kind = |other: &&Event| other.is_warning() == event.is_warning();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for other in self.waiting.iter().filter(is_kind) {
            *counts.entry(&other.object.namespace).or_default() += 1;
        }
        let own = counts.get(event.object.namespace.as_str()).copied();
        let (namespace, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        if count <= own.unwrap_or(0) + 1 {
            return None;
        }
        let is_it = |other: &Event| is_kind(&other) && other.object.namespace == namespace;
        self.waiting.iter().rposition(is_it)
    }

    fn next(&mut self, now: Instant) -> NextEvent {
        match self.paused_until {
            Some(_) if self.is_ending => self.drop_all(),
            Some(until) if now < until => return NextEvent::At(until),
            _ => self.paused_until = None,
        }
        if let Some(until) = self.work_until.filter(|until| now < *until)
            && !self.is_ending
            && self.waiting.len() <= WAIT_FOR_WORK_AT_MOST
        {
            return NextEvent::At(until);
        }
        let ahead = ONE_WARNING_EACH * (BURST - 1);
        // `warned_until` limits the rate of warnings. Each written warning moves it later by [`ONE_WARNING_EACH`]. A
        // further warning can be written only if `warned_until` is at most `ahead` later than now, so that at most
        // [`BURST`] warnings are written at once. While the process is ending, warnings are not limited, because no
        // more events are added.
        let warned_until = self.warned_until.map_or(now, |until| until.max(now));
        let may_warn = self.is_ending || warned_until <= now + ahead;
        let Some(place) = self.whose_turn(may_warn) else {
            return if self.waiting.is_empty() {
                NextEvent::Nothing
            } else {
                NextEvent::At(now + warned_until.saturating_duration_since(now + ahead))
            };
        };
        let Some(event) = self.remove(place) else {
            return NextEvent::Nothing;
        };
        if event.is_warning() {
            self.warned_until = Some(warned_until + ONE_WARNING_EACH);
        }
        self.last_namespace.clone_from(&event.object.namespace);
        NextEvent::Event(event)
    }

    /// Returns the index of the next event to write. The events of one object are written in their order, so only the
    /// oldest waiting event of each object can be chosen. A warning can be chosen only if `may_warn` is set. Events of
    /// another namespace than that of the last written event are preferred. Among several events, the oldest is chosen.
    fn whose_turn(&self, may_warn: bool) -> Option<usize> {
        let mut first = None;
        let mut seen = HashSet::new();
        for (place, event) in self.waiting.iter().take(CONSIDERED_AT_MOST).enumerate() {
            let is_first = seen.insert(event.object.uid.as_str());
            if !is_first || event.is_warning() && !may_warn {
                continue;
            }
            if event.object.namespace != self.last_namespace {
                return Some(place);
            }
            first = first.or(Some(place));
        }
        first
    }

    fn remove(&mut self, place: usize) -> Option<Event> {
        let event = self.waiting.remove(place)?;
        self.warnings -= usize::from(event.is_warning());
        Some(event)
    }

    fn drop_all(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let count = self.waiting.len();
        EVENTS.add(&["dropped"], count as f64);
        log::warn!(
            "ccm has not written {count} events, because it had no time for them before its exit"
        );
        self.waiting.clear();
        self.warnings = 0;
    }

    fn log_drop(&mut self, now: Instant) {
        let pause = clock::from_machine(DROPS_LOGGED_EACH);
        let is_due = |at: Instant| now.saturating_duration_since(at) >= pause;
        if self.drops_logged.is_none_or(is_due) {
            self.drops_logged = Some(now);
            log::warn!(
                "too many events to write: ccm drops events, beginning with those of the namespaces that have the most; \
                 metric {} counts the dropped events",
                EVENTS.name
            );
        }
    }
}

/// When a problem lasts, it is reported again after this time. The time is real time even when a test accelerates the
/// clock, because people read the events.
const REPEAT_AFTER: Duration = Duration::from_secs(600);

/// How many findings (successes and problems) are remembered for all objects together. A finding takes about 50 bytes,
/// so all of them take 1 MB. When the number is reached, the older half is forgotten. A forgotten finding is reported
/// again if it still exists, which costs only a log line and a PATCH.
const ENTRIES_AT_MOST: usize = 20_000;

/// How many findings (successes and problems) are remembered for one object. At any one time, all controllers together
/// have fewer findings about one object.
const OF_ONE_OBJECT_AT_MOST: usize = 40;

/// The findings (successes and problems) that this process has reported about each object, and when.
#[derive(Default)]
pub struct Reported {
    /// The reported successes and problems. The key consists of two hashes: one of the object's UID, and one of
    /// controller, reason and message.
    entries: BTreeMap<(u64, u64), Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    at: Instant,
    /// The hash of the name of the controller that reported the success or problem to which this entry belongs.
    controller: u32,
    /// The hash of the kind of the Kubernetes object that the success or problem of this entry is about, e.g. of
    /// `Service`.
    kind: u32,
    reason: Reason,
}

impl Reported {
    /// Called when a controller has found a success or failure of an object. A success deletes the remembered failures
    /// of the object, and a failure deletes its remembered successes. The first failure after a success is therefore
    /// always reported, and so is the first success after a failure.
    pub fn turn(&mut self, of: Subject, reason: Reason) {
        if reason.is_success() {
            self.forget(of, Reason::is_failure);
        } else if reason.is_failure() {
            self.forget(of, Reason::is_success);
        }
    }

    /// Whether a success or problem must be reported now. This is so when it was not reported before. It is also so
    /// when the last report is at least [`REPEAT_AFTER`] ago and findings with this reason are reported repeatedly. If
    /// the result is `true`, records that the success or problem was reported now.
    pub fn is_due(&mut self, of: Subject, reason: Reason, message: &str, now: Instant) -> bool {
        let finding = fnv1a([of.controller, "\0", reason.name(), "\0", message]);
        let key = (hash(&of.object.uid), finding);
        if let Some(last) = self.entries.get(&key) {
            let age = now.saturating_duration_since(last.at);
            if !reason.is_repeated() || age < clock::from_machine(REPEAT_AFTER) {
                return false;
            }
        } else {
            self.make_room(key.0);
        }
        let entry = Entry {
            at: now,
            controller: short_hash(of.controller),
            kind: short_hash(of.object.kind),
            reason,
        };
        self.entries.insert(key, entry);
        true
    }

    /// Records that the object has no failure now, so that its next failure is reported as new. Returns whether the
    /// object had a failure before.
    pub fn recovered(&mut self, of: Subject) -> bool {
        self.forget(of, Reason::is_failure)
    }

    /// Forgets the reported successes and problems of all objects of this kind, except the objects with the given UIDs.
    pub fn keep<'a>(&mut self, kind: &str, uids: impl Iterator<Item = &'a str>) {
        let (kind, kept) = (short_hash(kind), HashSet::<u64>::from_iter(uids.map(hash)));
        self.entries.retain(|(of, _), entry| entry.kind != kind || kept.contains(of));
    }

    fn forget(&mut self, of: Subject, such: fn(Reason) -> bool) -> bool {
        let (uid, controller) = (hash(&of.object.uid), short_hash(of.controller));
        let entries = self.entries.range((uid, 0)..=(uid, u64::MAX));
        let is_forgotten = |entry: &Entry| entry.controller == controller && such(entry.reason);
        let keys = entries.filter(|(_, entry)| is_forgotten(entry)).map(|(key, _)| *key);
        let keys: Vec<(u64, u64)> = keys.collect();
        for key in &keys {
            self.entries.remove(key);
        }
        !keys.is_empty()
    }

    fn make_room(&mut self, of: u64) {
        let own = self.entries.range((of, 0)..=(of, u64::MAX));
        if own.clone().count() >= OF_ONE_OBJECT_AT_MOST {
            let oldest = own.min_by_key(|(_, entry)| entry.at);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.entries.remove(&key);
            }
        }
        if self.entries.len() >= ENTRIES_AT_MOST {
            let mut times: Vec<Instant> = self.entries.values().map(|entry| entry.at).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.entries.retain(|_, entry| entry.at > middle);
        }
    }
}

fn hash(text: &str) -> u64 {
    fnv1a([text])
}

fn short_hash(text: &str) -> u32 {
    let hash = hash(text);
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::super::types::ObjectReference;
    use super::*;
    use crate::provider::Reason;
    use jiff::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);

    fn event(namespace: &str, uid: &str, reason: Reason, message: &str) -> Event {
        Event {
            component: "test",
            object: ObjectReference {
                kind: "Service",
                name: uid.into(),
                namespace: namespace.into(),
                uid: uid.into(),
            },
            reason,
            message: message.into(),
            at: Timestamp::UNIX_EPOCH,
            only_new: false,
        }
    }

    fn bad(namespace: &str, uid: &str, message: &str) -> Event {
        event(namespace, uid, Reason::SyncLoadBalancerFailed, message)
    }

    fn good(namespace: &str, uid: &str, message: &str) -> Event {
        event(namespace, uid, Reason::EnsuredLoadBalancer, message)
    }

    /// Returns the messages of all events that may be written at the moment `now`.
    fn written(queue: &mut Queue, now: Instant) -> Vec<String> {
        let mut messages = Vec::new();
        while let NextEvent::Event(event) = queue.next(now) {
            messages.push(event.message);
        }
        messages
    }

    #[test]
    fn fifty_warnings_at_once_then_one_a_second() {
        let mut queue = Queue::default();
        let begun = Instant::now();
        for n in 0..100 {
            queue.push(bad("a", &format!("u{n}"), ""), begun);
        }
        assert_eq!(written(&mut queue, begun).len(), 50);
        for (after_s, expected) in [(0, 0), (1, 1), (4, 3), (4, 0), (14, 10)] {
            let now = begun + SECOND * after_s;
            assert_eq!(written(&mut queue, now).len(), expected, "after {after_s} s");
        }
        assert!(
            matches!(queue.next(begun + SECOND * 14), NextEvent::At(then) if then == begun + SECOND * 15)
        );
        // This event reports a change and is no warning. The limit for warnings does not apply to it, so it is written
        // at once.
        queue.push(good("a", "other", "done"), begun);
        assert_eq!(written(&mut queue, begun + SECOND * 14), ["done"]);
        queue.is_ending = true;
        assert_eq!(written(&mut queue, begun + SECOND * 14).len(), 36);
    }

    #[test]
    fn events_of_one_object_keep_their_order() {
        let mut queue = Queue::default();
        let begun = Instant::now();
        queue.warned_until = Some(begun + ONE_WARNING_EACH * BURST);
        for event in [
            bad("a", "u", "1"),
            good("a", "u", "2"),
            good("a", "v", "3"),
            bad("b", "u", "4"),
            good("a", "u", "5"),
        ] {
            queue.push(event, begun);
        }
        assert_eq!(written(&mut queue, begun), ["3"]);
        assert_eq!(written(&mut queue, begun + SECOND), ["1", "2"]);
        assert_eq!(written(&mut queue, begun + SECOND * 2), ["4", "5"]);
    }

    #[test]
    fn a_namespace_that_floods_costs_the_others_nothing() {
        let mut queue = Queue::default();
        let begun = Instant::now();
        queue.warned_until = Some(begun + ONE_WARNING_EACH * BURST);
        for n in 0..10 * WARNINGS_AT_MOST {
            queue.push(bad("flood", &format!("u{n}"), "flood"), begun);
        }
        assert_eq!(queue.waiting.len(), WARNINGS_AT_MOST);
        for n in 0..10 {
            queue.push(bad("calm", &format!("v{n}"), "calm"), begun);
            queue.push(bad("flood", &format!("w{n}"), "flood"), begun);
        }
        assert_eq!(queue.waiting.len(), WARNINGS_AT_MOST);
        assert_eq!(queue.warnings, WARNINGS_AT_MOST);
        let next = written(&mut queue, begun + SECOND * 20);
        let calm = next.iter().filter(|message| *message == "calm").count();
        assert_eq!((next.len(), calm), (20, 10), "{next:?}");
    }

    #[test]
    fn the_queue_has_a_bound() {
        let mut queue = Queue::default();
        let begun = Instant::now();
        for n in 0..OTHERS_AT_MOST + 10 {
            queue.push(good("a", &format!("u{n}"), ""), begun);
        }
        for n in 0..WARNINGS_AT_MOST + 10 {
            queue.push(bad("a", &format!("u{n}"), ""), begun);
        }
        assert_eq!(queue.waiting.len(), OTHERS_AT_MOST + WARNINGS_AT_MOST);
        queue.drop_all();
        assert_eq!((queue.waiting.len(), queue.warnings), (0, 0));
    }

    #[test]
    fn events_wait_for_work_that_is_ahead_of_them_but_not_for_ever() {
        let recorder = Recorder::default();
        let now = Instant::now();
        let at = |at: Instant| written(&mut lock(&recorder.queue), at);
        recorder.first(|| {
            recorder.queue(good("a", "u", "1"));
            assert!(at(now).is_empty());
            assert_eq!(at(now + WAITS_FOR_WORK * 2), ["1"]);
            recorder.queue(good("a", "u", "2"));
            recorder.queue(good("a", "v", "3"));
        });
        assert_eq!(at(now), ["2", "3"]);
        recorder.first(|| {
            for n in 0..2 * WAIT_FOR_WORK_AT_MOST {
                recorder.queue(good("a", &format!("u{n}"), "many"));
            }
            assert_eq!(at(now).len(), WAIT_FOR_WORK_AT_MOST);
        });
        assert_eq!(at(now).len(), WAIT_FOR_WORK_AT_MOST);
        recorder.first(|| {
            recorder.queue(good("a", "u", "4"));
            lock(&recorder.queue).is_ending = true;
            assert_eq!(at(now), ["4"]);
        });
    }

    #[test]
    fn nothing_is_written_during_a_pause_and_its_end_is_waited_for() {
        let mut queue = Queue::default();
        let begun = Instant::now();
        queue.push(good("a", "u", "1"), begun);
        queue.paused_until = Some(begun + PAUSE);
        assert!(matches!(queue.next(begun), NextEvent::At(then) if then == begun + PAUSE));
        assert_eq!(written(&mut queue, begun + PAUSE), ["1"]);
        // The API server did not answer, so no event is written before the moment `paused_until`. A process that is
        // ending does not wait until then: it drops the event.
        queue.push(good("a", "u", "2"), begun);
        queue.paused_until = Some(begun + PAUSE * 2);
        queue.is_ending = true;
        assert!(matches!(queue.next(begun), NextEvent::Nothing));
    }

    const A: &str = "controller-a";

    fn object(uid: &str) -> ObjectReference {
        ObjectReference {
            kind: "Service",
            name: "web".into(),
            namespace: "default".into(),
            uid: uid.into(),
        }
    }

    #[test]
    fn a_finding_is_due_once_until_it_is_repeated() {
        let mut reported = Reported::default();
        let begun = Instant::now();
        let mut due = |uid, controller, reason, message, after_s| {
            let now = begun + Duration::from_secs(after_s);
            reported.is_due(object(uid).seen_by(controller), reason, message, now)
        };
        #[rustfmt::skip] // A case is a line.
        let cases = [
            ("u", A, Reason::UnknownAnnotation, "a", 0, true),
            ("u", A, Reason::UnknownAnnotation, "b", 0, true),
            ("u", A, Reason::UnknownAnnotation, "a", 1, false),
            ("u", A, Reason::UnknownAnnotation, "b", 1, false),
            ("v", A, Reason::UnknownAnnotation, "a", 1, true),
            ("u", "b", Reason::UnknownAnnotation, "a", 1, true),
            ("u", A, Reason::FieldIgnored, "a", 1, true),
            ("u", A, Reason::UnknownAnnotation, "a", 599, false),
            ("u", A, Reason::UnknownAnnotation, "a", 602, true),
            ("u", A, Reason::UnknownAnnotation, "a", 700, false),
            // A problem with this reason is reported when it is seen for the first time, here at 700 s, and then never
            // again. It lasts until a person fixes the cause, so repeated reports would not help.
            ("u", A, Reason::NotExternal, "a", 700, true),
            ("u", A, Reason::NotExternal, "a", 7000, false),
        ];
        for (uid, controller, reason, message, after_s, expected) in cases {
            let is_due = due(uid, controller, reason, message, after_s);
            assert_eq!(is_due, expected, "{uid} {controller} {reason:?} {message} {after_s}");
        }
    }

    #[test]
    fn a_success_makes_the_next_failure_news_and_the_reverse() {
        let mut reported = Reported::default();
        let now = Instant::now();
        let (bad, good) = (Reason::SyncLoadBalancerFailed, Reason::EnsuredLoadBalancer);
        let web = object("u");
        for (reason, expected) in
            [(bad, true), (bad, false), (good, true), (good, false), (bad, true), (bad, false)]
        {
            reported.turn(web.seen_by(A), reason);
            let is_due = reported.is_due(web.seen_by(A), reason, "m", now);
            assert_eq!(is_due, expected, "{reason:?}");
        }
        // Controller `controller-a` has reported the problem. When another controller reports that the object has
        // recovered, the problem does not end.
        assert!(!reported.recovered(web.seen_by("b")));
        assert!(reported.recovered(web.seen_by(A)));
        assert!(!reported.recovered(web.seen_by(A)));
        assert!(reported.is_due(web.seen_by(A), bad, "m", now));
    }

    #[test]
    fn objects_that_do_not_exist_are_forgotten() {
        let mut reported = Reported::default();
        let now = Instant::now();
        let node = ObjectReference { kind: "Node", ..object("n") };
        for object in [&object("u"), &object("v"), &node] {
            assert!(reported.is_due(object.seen_by(A), Reason::FieldIgnored, "m", now));
        }
        reported.keep("Service", ["v"].into_iter());
        for (object, expected) in [(&object("u"), true), (&object("v"), false), (&node, false)] {
            let is_due = reported.is_due(object.seen_by(A), Reason::FieldIgnored, "m", now);
            assert_eq!(is_due, expected, "{object:?}");
        }
    }

    #[test]
    fn its_memory_has_a_bound() {
        let mut reported = Reported::default();
        let begun = Instant::now();
        // Each step reports a new problem of the object `one`, and a problem of an object that was never seen before.
        // The number of remembered problems must stay limited, both in total and for the object `one`.
        for n in 0..3 * ENTRIES_AT_MOST {
            let now = begun + Duration::from_secs(n as u64);
            let message = n.to_string();
            let many = object(&message);
            for object in [&object("one"), &many] {
                assert!(reported.is_due(object.seen_by(A), Reason::FieldIgnored, &message, now));
            }
            assert!(reported.entries.len() <= ENTRIES_AT_MOST + 1);
        }
        let of = hash("one");
        let own = reported.entries.range((of, 0)..=(of, u64::MAX)).count();
        assert!(own <= OF_ONE_OBJECT_AT_MOST, "{own}");
        let bytes = size_of::<((u64, u64), Entry)>();
        assert!(bytes <= 48, "{bytes} bytes each");
    }
}
