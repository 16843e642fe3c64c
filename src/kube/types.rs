//! The few fields of Kubernetes' objects that we use. Everything else is dropped while it streams in.

use super::labels::{self, Labels};
use crate::provider::{Interned, NodeAddress};
use ipnet::IpNet;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// The kind of a node in references to it.
pub const NODE: &str = "Node";

/// `metadata` of an object. Of its annotations those that are read are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    #[serde(deserialize_with = "not_empty")]
    pub name: String,
    #[serde(deserialize_with = "not_empty")]
    pub uid: String,
    /// A patch that carries an empty one would be a write without a precondition, so an
    /// object without one is no answer of an API server.
    #[serde(deserialize_with = "not_empty")]
    pub resource_version: String,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default, deserialize_with = "labels::that_are_read")]
    pub annotations: Labels,
    #[serde(default, deserialize_with = "timestamp")]
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<String>,
}

/// A machine that runs pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Node {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeSpec,
    #[serde(default)]
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NodeSpec {
    #[serde(default, rename = "providerID", deserialize_with = "null_as_default")]
    pub provider_id: String,
    #[serde(default, deserialize_with = "fitting")]
    pub taints: Vec<Taint>,
    #[serde(default, rename = "podCIDRs", deserialize_with = "joined")]
    pub pod_cidrs: PodCidrs,
}

/// Where the pods of a node have their addresses: at most one range of IPv4 and one of IPv6. Kept
/// as it was written, for thousands of nodes have one each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodCidrs(Box<str>);

/// A taint, whole: a merge patch replaces the list of them, so nothing of the others may get lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: Interned,
    pub effect: Interned,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Interned>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Interned>,
    /// What a later Kubernetes may add.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NodeStatus {
    #[serde(default, deserialize_with = "fitting")]
    pub addresses: Vec<NodeAddress>,
    #[serde(default, deserialize_with = "fitting")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Interned,
    pub status: Interned,
    #[serde(default)]
    pub reason: Interned,
    /// When `status` became what it is.
    #[serde(default, rename = "lastTransitionTime", deserialize_with = "timestamp")]
    pub last_transition_time: Option<Timestamp>,
}

/// Names an object, e.g. as what an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectReference {
    pub kind: &'static str,
    pub name: String,
    /// Empty for objects of the cluster; their events go to `default`.
    pub namespace: String,
    pub uid: String,
}

impl ObjectReference {
    /// `node/worker-1`, `service/default/web`; the kind alone for all objects of it.
    pub fn for_people(&self) -> String {
        let kind = self.kind.to_lowercase();
        match (self.namespace.as_str(), self.name.as_str()) {
            (_, "") => kind,
            ("", name) => format!("{kind}/{name}"),
            (namespace, name) => format!("{kind}/{namespace}/{name}"),
        }
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ListMeta {
    #[serde(default, rename = "continue")]
    pub continue_token: String,
}

/// One page of a list. `items` must be there: an answer without it is no list.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(super) struct ListPage<T> {
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(deserialize_with = "null_as_default")]
    items: Vec<Shared<T>>,
}

/// A part of a list.
pub(super) trait Page: DeserializeOwned {
    type Item;

    /// Adds its items; answers the `continue` token. The error: why it is no page of a list of that kind.
    fn add_to(self, items: &mut Vec<Self::Item>, kind: &str) -> Result<String, String>;
}

impl<T: DeserializeOwned> Page for ListPage<T> {
    type Item = Arc<T>;

    fn add_to(self, items: &mut Vec<Arc<T>>, kind: &str) -> Result<String, String> {
        if self.kind != kind {
            return Err(format!("answered a {} instead of a {kind}", self.kind));
        }
        items.extend(self.items.into_iter().map(|item| item.0));
        Ok(self.metadata.continue_token)
    }
}

/// An item, shared as soon as it is parsed: a growing list moves pointers. (That of serde itself boxes it first, which
/// costs a megabyte with 5,000 nodes.)
#[derive(Debug)]
struct Shared<T>(Arc<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Shared<T>, D::Error> {
        T::deserialize(d).map(|item| Shared(Arc::new(item)))
    }
}

impl Node {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn object(&self) -> ObjectReference {
        ObjectReference {
            kind: NODE,
            name: self.metadata.name.clone(),
            namespace: String::new(),
            uid: self.metadata.uid.clone(),
        }
    }

    pub fn taint(&self, key: &str) -> Option<&Taint> {
        self.spec.taints.iter().find(|taint| taint.key == key)
    }

    /// One of its conditions, by its type.
    fn find(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// The status of one of its conditions; none when it has none of that type.
    pub fn condition(&self, kind: &str) -> Option<&str> {
        self.find(kind).map(|condition| condition.status.as_str())
    }

    /// Is its `Ready` condition `True`? A missing one counts as not.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready") == Some("True")
    }

    /// Since when it is not ready, by what Kubernetes itself wrote down: its creation where no
    /// `Ready` condition came yet. None when it is ready, and when it is not known.
    pub fn not_ready_since(&self) -> Option<Timestamp> {
        match self.find("Ready") {
            _ if self.is_ready() => None,
            Some(ready) => ready.last_transition_time,
            None => self.metadata.creation_timestamp,
        }
    }
}

impl PodCidrs {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each as a range, or as the text that is none.
    pub fn iter(&self) -> impl Iterator<Item = Result<IpNet, &str>> {
        self.0.split(',').filter(|text| !text.is_empty()).map(|text| match text.parse::<IpNet>() {
            Ok(net) => Ok(net.trunc()),
            Err(_) => Err(text),
        })
    }
}

/// RFC 3339. Nothing that matters more may be lost for the sake of a time: what is none counts as missing.
pub(super) fn timestamp<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(d)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Go writes a nil slice or map as `null`.
pub(super) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

/// A list that takes no more room than it needs: a growing one has twice that.
fn fitting<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    let mut list: Vec<T> = null_as_default(d)?;
    list.shrink_to_fit();
    Ok(list)
}

fn joined<'de, D: Deserializer<'de>>(d: D) -> Result<PodCidrs, D::Error> {
    let list: Vec<String> = null_as_default(d)?;
    Ok(PodCidrs(list.join(",").into()))
}

/// So many of a list at most, and how many more there were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<Vec<T>>", bound = "T: Deserialize<'de>")]
pub struct First<T, const N: usize> {
    kept: Vec<T>,
    left_out: usize,
}

impl<T, const N: usize> First<T, N> {
    /// There are more `what` than are read; the message.
    pub fn too_many(&self, what: &str) -> Option<String> {
        let count = self.kept.len() + self.left_out;
        (self.left_out > 0).then(|| format!("it has {count} {what}: {N} are read at most"))
    }

    /// Leaves out what does not fulfil this.
    pub(super) fn keep(&mut self, is_kept: impl Fn(&T) -> bool) {
        let count = self.kept.len();
        self.kept.retain(is_kept);
        self.left_out += count - self.kept.len();
        self.kept.shrink_to_fit();
    }
}

impl<T, const N: usize> Deref for First<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.kept
    }
}

impl<T, const N: usize> From<Option<Vec<T>>> for First<T, N> {
    fn from(list: Option<Vec<T>>) -> First<T, N> {
        let mut kept = list.unwrap_or_default();
        let left_out = kept.len().saturating_sub(N);
        kept.truncate(N);
        kept.shrink_to_fit();
        First { kept, left_out }
    }
}

/// A longer text is cut; it is marked, so that no cut value reads as a valid one.
pub(super) fn short<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let text: String = null_as_default(d)?;
    Ok(crate::text::cut(&text, 256).into_owned())
}

/// What every object of an API server has.
pub(super) fn not_empty<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let text = String::deserialize(d)?;
    if text.is_empty() {
        Err(serde::de::Error::invalid_value(
            serde::de::Unexpected::Str(""),
            &"a name, UID or resourceVersion",
        ))
    } else {
        Ok(text)
    }
}
