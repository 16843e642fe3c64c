//! What was reported of which object, and when: hashes, no texts.

use super::types::ObjectReference;
use crate::provider::Reason;
use crate::text::fnv1a;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// What lasts is reported again after that long.
const REPEAT_AFTER: Duration = Duration::from_secs(600);

/// What is remembered of all objects: some 50 bytes each, 1 MB in all. Beyond it the oldest half is
/// forgotten, which costs a line of the log and a PATCH each, no more.
const ENTRIES_AT_MOST: usize = 20_000;

/// What is remembered of one object: more than all controllers together report of it at once.
const OF_ONE_OBJECT_AT_MOST: usize = 40;

/// What was reported of each object, in this process.
pub struct Reported {
    /// By hash of the object's UID, then of controller, reason and message.
    entries: BTreeMap<(u64, u64), Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    at: Instant,
    /// Hash of the controller's name.
    controller: u32,
    /// Hash of the object's kind.
    kind: u32,
    reason: Reason,
}

impl Reported {
    pub(super) fn new() -> Reported {
        Reported {
            entries: BTreeMap::new(),
        }
    }

    /// Is this news, or was it last reported long enough ago? Asking counts as reporting. A failure
    /// makes the controller's next success news, and a success its next failure.
    pub fn is_due(
        &mut self,
        object: &ObjectReference,
        controller: &str,
        reason: Reason,
        message: &str,
        now: Instant,
    ) -> bool {
        match (reason.is_success(), reason.is_failure()) {
            (true, _) => drop(self.forget(object, controller, Reason::is_failure)),
            (_, true) => drop(self.forget(object, controller, Reason::is_success)),
            (false, false) => {}
        }
        let finding = fnv1a([controller, "\0", reason.name(), "\0", message]);
        let key = (hash(&object.uid), finding);
        if let Some(last) = self.entries.get(&key) {
            if !reason.is_repeated() || now.saturating_duration_since(last.at) < REPEAT_AFTER {
                return false;
            }
        } else {
            self.make_room(key.0);
        }
        let entry = Entry {
            at: now,
            controller: short_hash(controller),
            kind: short_hash(object.kind),
            reason,
        };
        self.entries.insert(key, entry);
        true
    }

    /// The object is as it should be: its next failure is news. Had it failed before?
    pub fn recovered(&mut self, object: &ObjectReference, controller: &str) -> bool {
        self.forget(object, controller, Reason::is_failure)
    }

    /// Forgets objects of this kind that are not among these.
    pub fn keep<'a>(&mut self, kind: &str, uids: impl Iterator<Item = &'a str>) {
        let (kind, kept) = (short_hash(kind), HashSet::<u64>::from_iter(uids.map(hash)));
        self.entries
            .retain(|(of, _), entry| entry.kind != kind || kept.contains(of));
    }

    fn forget(
        &mut self,
        object: &ObjectReference,
        controller: &str,
        such: fn(Reason) -> bool,
    ) -> bool {
        let of = hash(&object.uid);
        let controller = short_hash(controller);
        let entries = self.entries.range((of, 0)..=(of, u64::MAX));
        let is_forgotten = |entry: &Entry| entry.controller == controller && such(entry.reason);
        let keys = entries
            .filter(|(_, entry)| is_forgotten(entry))
            .map(|(key, _)| *key);
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
mod tests {
    use super::*;

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
        let mut reported = Reported::new();
        let begun = Instant::now();
        let mut due = |uid, controller, reason, message, after_s| {
            let now = begun + Duration::from_secs(after_s);
            reported.is_due(&object(uid), controller, reason, message, now)
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
            // It lasts until a person fixes it.
            ("u", A, Reason::NotExternal, "a", 700, true),
            ("u", A, Reason::NotExternal, "a", 7000, false),
        ];
        for (uid, controller, reason, message, after_s, expected) in cases {
            let is_due = due(uid, controller, reason, message, after_s);
            assert_eq!(
                is_due, expected,
                "{uid} {controller} {reason:?} {message} {after_s}"
            );
        }
    }

    #[test]
    fn a_success_makes_the_next_failure_news_and_the_reverse() {
        let mut reported = Reported::new();
        let now = Instant::now();
        let (bad, good) = (Reason::SyncLoadBalancerFailed, Reason::EnsuredLoadBalancer);
        let web = object("u");
        for (reason, expected) in [
            (bad, true),
            (bad, false),
            (good, true),
            (good, false),
            (bad, true),
            (bad, false),
        ] {
            assert_eq!(
                reported.is_due(&web, A, reason, "m", now),
                expected,
                "{reason:?}"
            );
        }
        // What another controller found is none of this one's.
        assert!(!reported.recovered(&web, "b"));
        assert!(reported.recovered(&web, A));
        assert!(!reported.recovered(&web, A));
        assert!(reported.is_due(&web, A, bad, "m", now));
    }

    #[test]
    fn objects_that_do_not_exist_are_forgotten() {
        let mut reported = Reported::new();
        let now = Instant::now();
        let node = ObjectReference {
            kind: "Node",
            ..object("n")
        };
        for object in [&object("u"), &object("v"), &node] {
            assert!(reported.is_due(object, A, Reason::FieldIgnored, "m", now));
        }
        reported.keep("Service", ["v"].into_iter());
        for (object, expected) in [(&object("u"), true), (&object("v"), false), (&node, false)] {
            let is_due = reported.is_due(object, A, Reason::FieldIgnored, "m", now);
            assert_eq!(is_due, expected, "{object:?}");
        }
    }

    #[test]
    fn its_memory_has_a_bound() {
        let mut reported = Reported::new();
        let begun = Instant::now();
        // Findings that change all the time, of one object and of many.
        for n in 0..3 * ENTRIES_AT_MOST {
            let now = begun + Duration::from_secs(n as u64);
            let message = n.to_string();
            let many = object(&message);
            for object in [&object("one"), &many] {
                assert!(reported.is_due(object, A, Reason::FieldIgnored, &message, now));
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
