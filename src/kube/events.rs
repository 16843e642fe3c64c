//! Events: what `kubectl describe` shows of what we did. Best effort, and never a flood.
//!
//! A polling daemon sees the same trouble at every tick, so an event is written when it is
//! new or its message changed, and repeated at most every ten minutes. Memory is lost at a
//! restart, so an event's name is made of its object, UID, reason and message: the one that
//! is there already is counted up instead of being written a second time.

use super::client::{Client, JSON, ReadFrom, Selected, percent_encoded};
use super::error::Error;
use super::types::{ObjectMeta, ObjectReference};
use crate::cloud::Gate;
use crate::http;
use crate::text;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const REPEAT_AFTER: Duration = Duration::from_secs(600);

/// How long events are left out when the API is slow or away.
const PAUSE: Duration = Duration::from_secs(60);

/// What is remembered at most; beyond it the oldest half is forgotten, which costs a PATCH each, no more.
const REMEMBERED_AT_MOST: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// What `kubectl describe` will show.
pub struct Event<'a> {
    /// Who says it: `source.component`.
    pub component: &'a str,
    pub object: &'a ObjectReference,
    pub kind: EventType,
    pub reason: &'static str,
    pub message: &'a str,
}

/// Remembers what was told of which object.
#[derive(Default)]
pub struct Recorder {
    written: Mutex<HashMap<Key, Written>>,
    paused_until: Mutex<Option<Instant>>,
}

/// Whether something lasting is told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It will not heal by itself, and whoever was told knows.
    Never,
    EveryTenMinutes,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    reason: &'static str,
}

struct Written {
    message: String,
    at: Instant,
}

/// An event as somebody wrote it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastEvent {
    pub metadata: ObjectMeta,
    pub involved_object: Involved,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    /// When it was last counted up; controllers that never count leave it out.
    #[serde(default)]
    last_timestamp: Option<String>,
}

/// The object that an event is about.
#[derive(Clone, Debug, Deserialize)]
pub struct Involved {
    #[serde(default)]
    pub uid: String,
}

/// What we need of an event that is there already.
#[derive(Deserialize)]
struct Existing {
    metadata: ObjectMeta,
    #[serde(default)]
    count: u32,
}

impl PastEvent {
    /// When it was last seen.
    pub fn at(&self) -> Option<Timestamp> {
        let last = self.last_timestamp.as_ref();
        let last = last.and_then(|text| text.parse().ok());
        last.or(self.metadata.creation_timestamp)
    }
}

impl Client {
    /// Events about one Service, or about all of them. The daemon's role does not allow it.
    pub fn service_events(
        &self,
        one: Option<&ObjectReference>,
    ) -> Result<Vec<Arc<PastEvent>>, Error> {
        let (path, query) = match one {
            None => (
                "/api/v1/events".to_owned(),
                "&fieldSelector=involvedObject.kind%3DService".to_owned(),
            ),
            Some(one) => (
                format!(
                    "/api/v1/namespaces/{}/events",
                    percent_encoded(&one.namespace)
                ),
                format!(
                    "&fieldSelector=involvedObject.uid%3D{}",
                    percent_encoded(&one.uid)
                ),
            ),
        };
        let events = Selected {
            path: &path,
            query: &query,
            kind: "EventList",
            accept: JSON,
        };
        self.list(&events, ReadFrom::Latest)
    }
}

impl Recorder {
    /// Is this news, or was it last told long enough ago? Asking counts as telling.
    pub fn is_due(
        &self,
        object: &ObjectReference,
        reason: &'static str,
        message: &str,
        repeat: Repeat,
    ) -> bool {
        let key = Key {
            uid: object.uid.clone(),
            reason,
        };
        let now = Instant::now();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = written.get(&key)
            && last.message == message
            && (repeat == Repeat::Never || now.duration_since(last.at) < REPEAT_AFTER)
        {
            return false;
        }
        if written.len() >= REMEMBERED_AT_MOST {
            let mut times: Vec<Instant> = written.values().map(|w| w.at).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            written.retain(|_, w| w.at >= middle);
        }
        written.insert(
            key,
            Written {
                message: message.to_owned(),
                at: now,
            },
        );
        true
    }
}

impl Recorder {
    /// Writes the event, or counts up the one that is there. Failing is logged and never fails
    /// the work – nor does it hold it up: after a write that took too long, events are left out
    /// for a while.
    pub fn write(&self, client: &Client, gate: &dyn Gate, event: &Event) {
        let mut paused_until = self
            .paused_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if paused_until.is_some_and(|until| Instant::now() < until) {
            log::debug!("event {} of {:?} left out", event.reason, event.object.name);
            return;
        }
        match write(client, gate, event) {
            Ok(()) => {}
            Err(error) if error.is_refused() => {}
            // Whoever deletes a namespace deletes what is said there as well: the normal course.
            Err(error) if error.is_namespace_going() || error.is_not_found() => {
                log::debug!(
                    "event {} of {:?} not written: {error}",
                    event.reason,
                    event.object.name
                );
            }
            Err(error) => {
                let Event { object, reason, .. } = event;
                log::warn!(
                    "event {reason} of {} {:?} not written: {error}",
                    object.kind,
                    object.name
                );
                if error.is_unavailable() {
                    *paused_until = Some(Instant::now() + PAUSE);
                }
            }
        }
    }
}

fn write(client: &Client, gate: &dyn Gate, event: &Event) -> Result<(), Error> {
    let Event {
        component,
        object,
        kind,
        reason,
        message,
    } = event;
    let namespace = if object.namespace.is_empty() {
        "default"
    } else {
        &object.namespace
    };
    // People read it at a terminal, and it may repeat what came from outside.
    let message = http::without_known_secrets(message);
    let message = &*text::one_line(&message);
    let name = event_name(object, reason, message);
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": object.kind,
            "name": object.name,
            "namespace": object.namespace,
            "uid": object.uid,
        },
        "type": match kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
        "reason": reason,
        "message": message,
        "source": { "component": component },
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    match client.create_event(gate, namespace, &event) {
        Err(error) if error.is_already_exists() => {}
        outcome => return outcome,
    }
    // The official role has no `get` on events: then only the time is brought up to date.
    let patch = match client.event::<Existing>(namespace, &name) {
        Ok(existing) => json!({
            "metadata": { "resourceVersion": existing.metadata.resource_version },
            "count": existing.count.saturating_add(1),
            "lastTimestamp": now,
        }),
        Err(error) if error.is_forbidden() => json!({ "lastTimestamp": now }),
        Err(error) => return Err(error),
    };
    client.patch_event(gate, namespace, &name, &patch)
}

/// `<object>.<16 hex digits>`: the same trouble of the same object has the same name.
fn event_name(object: &ObjectReference, reason: &str, message: &str) -> String {
    let hash = text::fnv1a([object.uid.as_str(), "\0", reason, "\0", message]);
    // The longest name an object may have is 253 characters.
    let stem: String = object.name.chars().take(236).collect();
    format!("{stem}.{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> ObjectReference {
        ObjectReference {
            kind: "Node",
            name: "worker-1".into(),
            namespace: String::new(),
            uid: "u-1".into(),
        }
    }

    #[test]
    fn an_event_has_one_name_per_object_reason_and_message() {
        let name = event_name(&node(), "Synced", "hello");
        assert_eq!(name, event_name(&node(), "Synced", "hello"));
        assert_ne!(name, event_name(&node(), "Synced", "hello!"));
        assert_ne!(
            name,
            event_name(
                &ObjectReference {
                    uid: "u-2".into(),
                    ..node()
                },
                "Synced",
                "hello"
            )
        );
        assert!(
            name.starts_with("worker-1.") && name.len() == "worker-1.".len() + 16,
            "{name}"
        );
    }

    #[test]
    fn the_same_event_is_not_due_twice_but_a_new_message_is() {
        let recorder = Recorder::default();
        let due =
            |reason, message| recorder.is_due(&node(), reason, message, Repeat::EveryTenMinutes);
        assert!(due("ServerNotFound", "a"));
        assert!(!due("ServerNotFound", "a"));
        assert!(due("ServerNotFound", "b"));
        assert!(due("Synced", "a"));
    }
}
