//! Events: what `kubectl describe` shows of what we did. Best effort, and never a flood.
//!
//! The memory of what was reported is lost at a restart, so an event's name is made of its object, UID,
//! reason and message: the one that is there already is counted up instead of being written a second time.

use super::client::{Client, JSON, MERGE_PATCH, PASS_AT_END, ReadFrom, folder, percent_encoded};
use super::error::Error;
use super::types::{ListPage, ObjectMeta, ObjectReference, null_as_default};
use crate::http::{self, Method};
use crate::provider::{Reason, Severity};
use crate::text;
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// What `kubectl describe` will show.
pub struct Event {
    /// The author: `source.component`.
    pub component: &'static str,
    pub object: ObjectReference,
    pub reason: Reason,
    pub message: String,
    /// When it happened: it may be written later.
    pub at: Timestamp,
}

impl Event {
    pub(super) fn is_warning(&self) -> bool {
        self.reason.event() != Some(Severity::Info)
    }
}

/// An event that was written, by us or by another controller.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PastEvent {
    #[serde(skip_serializing)]
    pub metadata: ObjectMeta,
    #[serde(skip_serializing)]
    pub involved_object: Involved,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    /// `Normal` or `Warning`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// How often; 0: its author does not count.
    #[serde(default, deserialize_with = "null_as_default")]
    pub count: u32,
    /// When it was last counted up; controllers that never count leave it out.
    #[serde(default, rename(serialize = "lastSeen"))]
    last_timestamp: Option<String>,
}

/// The object that an event is about.
#[derive(Clone, Debug, Deserialize)]
pub struct Involved {
    #[serde(default)]
    pub uid: String,
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
            None => ("/api/v1/events".to_owned(), "kind%3DService".to_owned()),
            Some(one) => (
                folder("api/v1", &one.namespace, "events"),
                format!("uid%3D{}", percent_encoded(&one.uid)),
            ),
        };
        let query = format!("&fieldSelector=involvedObject.{query}");
        self.list::<ListPage<_>>(&path, &query, "EventList", ReadFrom::Latest)
    }
}

/// Writes the event, or counts up the one that is there.
pub(super) fn write(client: &Client, event: &Event) -> Result<(), Error> {
    let Event {
        component,
        object,
        message,
        ..
    } = event;
    let reason = event.reason.name();
    let namespace = match object.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    };
    let kind = match event.is_warning() {
        true => "Warning",
        false => "Normal",
    };
    // People read it at a terminal, and it may repeat what came from outside.
    let message = http::without_known_secrets(message);
    let message = &*text::one_line(&message);
    let name = event_name(object, reason, message);
    let at = event.at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
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
        "type": kind,
        "reason": reason,
        "message": message,
        "source": { "component": component },
        "reportingComponent": component,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    });
    let events = folder("api/v1", namespace, "events");
    match client.write::<IgnoredAny>(PASS_AT_END, Method::Post, &events, JSON, &event) {
        Err(error) if error.is_already_exists() => {}
        outcome => return outcome.map(drop),
    }
    // The official role has no `get` on events: then only the time is brought up to date.
    let event = format!("{events}/{name}");
    let patch = match client.document(&event, "metadata") {
        Ok(existing) => json!({
            "metadata": { "resourceVersion": existing["metadata"]["resourceVersion"] },
            "count": existing["count"].as_u64().unwrap_or(0).saturating_add(1),
            "lastTimestamp": at,
        }),
        Err(error) if error.is_forbidden() => json!({ "lastTimestamp": at }),
        Err(error) => return Err(error),
    };
    let patched =
        client.write::<IgnoredAny>(PASS_AT_END, Method::Patch, &event, MERGE_PATCH, &patch);
    patched.map(drop)
}

/// `<object>.<16 hex digits>`: the same message about the same object has the same name.
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
}
