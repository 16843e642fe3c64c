//! Events, which `kubectl describe` shows. They report what this program did. An event can be lost, e.g. when too many
//! events wait to be written.
//!
//! A process that restarts does not know which events were written before. The name of an event is therefore made from
//! the name and UID of its object, from its reason, and from its message. When an event of this name exists, its count
//! is raised and no second event is written.

use super::client::{
    JSON, KubeClient, MERGE_PATCH, PASS_AT_END, ReadFrom, folder, percent_encoded,
};
use super::error::KubeError;
use super::types::{ListPage, ObjectReference, null_as_default, timestamp};
use crate::http::{self, Method};
use crate::provider::{Reason, Severity};
use crate::text;
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// An event that `kubectl describe` will show.
pub struct Event {
    /// The author of the event, which becomes `source.component`.
    pub component: &'static str,
    pub object: ObjectReference,
    pub reason: Reason,
    pub message: String,
    /// When the event happened. The API server can receive the event later.
    pub at: Timestamp,
    /// What happens when an equal event exists already. `true` leaves that event unchanged, and `false` raises its
    /// count. A process that has just started sets `true`, because the process before it has perhaps already written
    /// the event for the same failure.
    pub only_new: bool,
}

impl Event {
    pub(super) fn is_warning(&self) -> bool {
        self.reason.event() != Some(Severity::Info)
    }
}

/// An event that a component of this program has written earlier.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PastEvent {
    #[serde(skip_serializing)]
    metadata: EventMeta,
    #[serde(skip_serializing)]
    pub involved_object: Involved,
    #[serde(default, skip_serializing)]
    source: EventSource,
    #[serde(default, skip_serializing, deserialize_with = "null_as_default")]
    reporting_component: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    /// The type of the event: `Normal` or `Warning`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// How many times the event happened. 0 means that the author of the event does not count repetitions.
    #[serde(default, deserialize_with = "null_as_default")]
    pub count: u32,
    /// When the event happened most recently. The field is missing in an event whose author does not count how often
    /// the event happens.
    #[serde(default, rename(serialize = "lastSeen"))]
    last_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EventMeta {
    namespace: String,
    resource_version: String,
    #[serde(deserialize_with = "timestamp")]
    creation_timestamp: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EventSource {
    #[serde(deserialize_with = "null_as_default")]
    component: String,
}

/// The object that an event is about. The UID alone does not identify the object, because anybody who is allowed to
/// write events in a namespace can write any UID into them. Kind, namespace, name and UID are therefore compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Involved {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

impl From<&ObjectReference> for Involved {
    fn from(object: &ObjectReference) -> Involved {
        Involved {
            kind: object.kind.to_owned(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
        }
    }
}

impl PastEvent {
    /// Whether the event names one of these components as its author, and is in the namespace of its object. The author
    /// is not proven, because anybody who is allowed to write events in this namespace can write any author. The text
    /// of an event may therefore be shown, but must never be trusted.
    fn is_of(&self, components: &[&str]) -> bool {
        let author = match self.source.component.as_str() {
            "" => &*self.reporting_component,
            component => component,
        };
        let namespace = namespace_of_events(&self.involved_object.namespace);
        components.contains(&author) && self.metadata.namespace == namespace
    }

    /// Returns a key that sorts events by time. Times of events are whole seconds, so two events of one second are
    /// sorted by their resource versions, which grow with each write.
    pub fn age_order(&self) -> (Option<Timestamp>, u64) {
        let version = self.metadata.resource_version.parse();
        (self.at(), version.unwrap_or_default())
    }

    /// Returns when the event happened most recently. For an event without this time, returns when the event was
    /// created.
    pub fn at(&self) -> Option<Timestamp> {
        let last = self.last_timestamp.as_ref().and_then(|text| text.parse().ok());
        last.or(self.metadata.creation_timestamp)
    }
}

impl KubeClient {
    /// Returns the events about one Service, or about all Services, whose author is one of the `components`, e.g.
    /// `service-controller`. Only commands that a user runs call this function, because the daemon's role does not
    /// allow reading these events.
    pub fn service_events(
        &self,
        one: Option<&ObjectReference>,
        components: &[&str],
    ) -> Result<Vec<Arc<PastEvent>>, KubeError> {
        let (path, query) = match one {
            None => ("/api/v1/events".to_owned(), "kind%3DService".to_owned()),
            Some(one) => (
                folder("api/v1", &one.namespace, "events"),
                format!("uid%3D{}", percent_encoded(&one.uid)),
            ),
        };
        let query = format!("&fieldSelector=involvedObject.{query}");
        let mut events: Vec<Arc<PastEvent>> =
            self.list::<ListPage<_>>(&path, &query, "EventList", ReadFrom::Latest)?;
        let about = one.map(Involved::from);
        let is_about =
            |event: &PastEvent| about.as_ref().is_none_or(|about| event.involved_object == *about);
        events.retain(|event| event.is_of(components) && is_about(event));
        Ok(events)
    }
}

/// Returns the namespace of the events about an object. Events about cluster-wide
/// objects, like nodes, are in `default`.
fn namespace_of_events(namespace: &str) -> &str {
    match namespace {
        "" => "default",
        namespace => namespace,
    }
}

/// Writes the event. When an event with the same object, reason and message exists already, no second event is written.
/// In this case the count of the existing event is raised, unless `only_new` is set.
pub(super) fn write(client: &KubeClient, event: &Event) -> Result<(), KubeError> {
    let Event { component, object, message, only_new, .. } = event;
    let reason = event.reason.name();
    let namespace = namespace_of_events(&object.namespace);
    let kind = if event.is_warning() { "Warning" } else { "Normal" };
    // The message can repeat text that another program has written, e.g. an error of an API, and people read the
    // message at a terminal. Secrets are therefore redacted, and control characters are escaped.
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
        Err(error) if error.is_already_exists() && *only_new => return Ok(()),
        Err(error) if error.is_already_exists() => {}
        outcome => return outcome.map(drop),
    }
    // To add 1 to the event's field `count`, its present value must be read. The role of
    // hcloud-cloud-controller-manager does not allow `get` on events. With that role, only the event's field
    // `lastTimestamp` is updated.
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

/// Returns the name `<object>.<16 hex digits>`. Two events get the same name when their object, reason and message are
/// equal.
fn event_name(object: &ObjectReference, reason: &str, message: &str) -> String {
    let hash = text::fnv1a([object.uid.as_str(), "\0", reason, "\0", message]);
    // The name of an event has at most 253 characters: the name of the object, a dot and 16 digits. So the name of the
    // object is cut to 236 characters.
    let stem: String = object.name.chars().take(236).collect();
    format!("{stem}.{hash:016x}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
    fn an_event_counts_in_the_namespace_of_its_object_alone() {
        // Each case has the namespace of the object, the namespace of the event, the author in `source.component`, the
        // author in `reportingComponent`, and whether the event counts as written by this program.
        for (of_object, of_event, component, reporter, counts) in [
            ("a", "a", "ours", "ours", true),
            ("a", "a", "ours", "", true),
            ("a", "a", "", "ours", true),
            ("a", "a", "theirs", "ours", false),
            ("a", "a", "", "", false),
            ("a", "b", "ours", "ours", false),
            // A node has no namespace. An event about a node is in the namespace `default`.
            ("", "default", "ours", "ours", true),
            ("", "b", "ours", "ours", false),
            ("b", "default", "ours", "ours", false),
        ] {
            let event = json!({
                "metadata": { "namespace": of_event },
                "involvedObject": { "namespace": of_object },
                "source": { "component": component },
                "reportingComponent": reporter,
            });
            let event: PastEvent = serde_json::from_value(event.clone()).unwrap();
            assert_eq!(event.is_of(&["ours"]), counts, "{event:?}");
        }
    }

    #[test]
    fn an_event_has_one_name_per_object_reason_and_message() {
        let name = event_name(&node(), "Synced", "hello");
        assert_eq!(name, event_name(&node(), "Synced", "hello"));
        assert_ne!(name, event_name(&node(), "Synced", "hello!"));
        assert_ne!(
            name,
            event_name(&ObjectReference { uid: "u-2".into(), ..node() }, "Synced", "hello")
        );
        assert!(name.starts_with("worker-1.") && name.len() == "worker-1.".len() + 16, "{name}");
    }
}
