//! The few fields of Kubernetes' objects that this program uses. All other fields are skipped while an answer is read.

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

/// The `kind` of a node in references to objects.
pub const NODE: &str = "Node";

/// The `metadata` of an object. Only the annotations that this program uses are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    #[serde(deserialize_with = "not_empty")]
    pub name: String,
    #[serde(deserialize_with = "not_empty")]
    pub uid: String,
    /// The version of the object. An empty version is an error, because a patch with an empty version would be a write
    /// without a precondition.
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

/// A node, with the fields that this program uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KubeNode {
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
    /// Whether the node is cordoned, so that no new pods are scheduled on it.
    #[serde(default)]
    pub unschedulable: bool,
}

/// The IP ranges of a node's pods, at most one IPv4 range and one IPv6 range. They are stored as one text, which takes
/// less memory than parsed ranges when there are thousands of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodCidrs(Box<str>);

/// A taint with all its fields. A merge patch replaces the whole list of taints. The patch must therefore contain all
/// taints of the node, each with every field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: Interned,
    pub effect: Interned,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Interned>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Interned>,
    /// All other fields of the taint, which this program does not know, e.g. from a later version of Kubernetes.
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
    /// The time at which the `status` of the condition changed to its present value.
    #[serde(default, rename = "lastTransitionTime", deserialize_with = "timestamp")]
    pub last_transition_time: Option<Timestamp>,
}

/// A reference to an object, e.g. to the object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub kind: &'static str,
    pub name: String,
    /// The namespace, which is empty for cluster-wide objects. Events about such objects are in `default`.
    pub namespace: String,
    pub uid: String,
}

/// The object that a reported success or problem is about, and the controller that reports it.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub object: &'a ObjectReference,
    pub controller: &'static str,
}

impl ObjectReference {
    /// Returns this object together with the controller that reports a success or problem about it.
    pub fn seen_by(&self, controller: &'static str) -> Subject<'_> {
        Subject { object: self, controller }
    }

    /// Creates a reference to an object that has no namespace: a cluster-wide object, or an object in the cloud.
    pub fn without_namespace(
        kind: &'static str,
        name: &str,
        uid: impl ToString,
    ) -> ObjectReference {
        let (name, uid) = (name.to_owned(), uid.to_string());
        ObjectReference { kind, name, namespace: String::new(), uid }
    }

    /// Returns a text for messages, like `node/worker-1` or `service/default/web`. Returns only the kind when the
    /// reference means all objects of the kind.
    pub fn for_people(&self) -> String {
        let kind = self.kind.to_lowercase();
        match (self.namespace.as_str(), self.name.as_str()) {
            (_, "") => kind,
            ("", name) => format!("{kind}/{name}"),
            (namespace, name) => format!("{kind}/{namespace}/{name}"),
        }
    }
}

/// The `metadata` of a list.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ListMeta {
    #[serde(default, rename = "continue")]
    pub continue_token: String,
}

/// One page of a list. An answer without the field `items` is an error, because it is not a list.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(super) struct ListPage<T> {
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(deserialize_with = "null_as_default")]
    items: Vec<Shared<T>>,
}

/// A type that one page of a list can be parsed into. Different lists use different types.
pub(super) trait PageForm: DeserializeOwned {
    type Item;

    /// Adds the items of the page to `items` and returns the `continue` token. The error says why the answer is not a
    /// page of a list of kind `kind`.
    fn add_to(self, items: &mut Vec<Self::Item>, kind: &str) -> Result<String, String>;
}

impl<T: DeserializeOwned> PageForm for ListPage<T> {
    type Item = Arc<T>;

    fn add_to(self, items: &mut Vec<Arc<T>>, kind: &str) -> Result<String, String> {
        if self.kind != kind {
            return Err(format!("answered a {} instead of a {kind}", self.kind));
        }
        items.extend(self.items.into_iter().map(|item| item.0));
        Ok(self.metadata.continue_token)
    }
}

/// An item of a list, which is put into an `Arc` as soon as it is parsed. When the vector of the list grows, only the
/// pointers move. (serde's own `Arc` would allocate the item twice, which costs a megabyte with 5,000 nodes.)
#[derive(Debug)]
struct Shared<T>(Arc<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Shared<T>, D::Error> {
        T::deserialize(d).map(|item| Shared(Arc::new(item)))
    }
}

impl KubeNode {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn object(&self) -> ObjectReference {
        ObjectReference::without_namespace(NODE, &self.metadata.name, &self.metadata.uid)
    }

    pub fn taint(&self, key: &str) -> Option<&Taint> {
        self.spec.taints.iter().find(|taint| taint.key == key)
    }

    /// Returns the node's condition of this type.
    fn find(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Returns the status of the condition of this type, or `None` when the node has no such condition.
    pub fn condition(&self, kind: &str) -> Option<&str> {
        self.find(kind).map(|condition| condition.status.as_str())
    }

    /// Whether the `Ready` condition of the node is `True`. A missing condition counts as not ready.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready") == Some("True")
    }

    /// Returns the time since which the node is not ready, according to its `Ready` condition. For a node without this
    /// condition, returns the time when the node was created. Returns `None` when the node is ready, or when the
    /// condition has no time.
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

    /// Returns each pod CIDR as an IP range. A text that is no IP range is returned as an error.
    pub fn iter(&self) -> impl Iterator<Item = Result<IpNet, &str>> {
        let texts = self.0.split(',').filter(|text| !text.is_empty());
        texts.map(|text| text.parse::<IpNet>().map(|net| net.trunc()).map_err(|_| text))
    }
}

/// Reads a time of RFC 3339. Any other text is read as `None`, so that an object with a wrong time can still be used.
pub(super) fn timestamp<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(d)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Reads a value that can be `null`, and takes `null` as the default. Go writes a nil slice or map as `null`.
pub(super) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

/// Reads a list and frees the unused memory of its vector. A vector that has grown has up to twice the
/// memory that its items need.
fn fitting<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    let mut list: Vec<T> = null_as_default(d)?;
    list.shrink_to_fit();
    Ok(list)
}

fn joined<'de, D: Deserializer<'de>>(d: D) -> Result<PodCidrs, D::Error> {
    let list: Vec<String> = null_as_default(d)?;
    Ok(PodCidrs(list.join(",").into()))
}

/// At most the first `N` items of a list, and the number of the items that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<Vec<T>>", bound = "T: Deserialize<'de>")]
pub struct First<T, const N: usize> {
    kept: Vec<T>,
    left_out: usize,
}

impl<T, const N: usize> First<T, N> {
    /// Returns a message for the user when the list has more than `N` items. `what` is the word for the items.
    pub fn too_many(&self, what: &str) -> Option<String> {
        let count = self.kept.len() + self.left_out;
        (self.left_out > 0).then(|| {
            format!("the Service has {count} {what}, but ccm reads at most {N}, so ccm leaves the load balancer unchanged; remove some {what}")
        })
    }

    /// Removes the items for which `is_kept` returns `false`, and adds their number to the number of items that were
    /// left out.
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

/// Reads a text. A text of more than 256 characters is cut and gets a mark at its end, so that it is not taken for a
/// valid value.
pub(super) fn short<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let text: String = null_as_default(d)?;
    Ok(crate::text::cut(&text, 256).into_owned())
}

/// Reads a text that every object of an API server has, such as its name. An empty text is an error.
pub(super) fn not_empty<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let text = String::deserialize(d)?;
    if text.is_empty() {
        Err(serde::de::Error::custom(
            "metadata has an empty name, namespace, uid or resourceVersion",
        ))
    } else {
        Ok(text)
    }
}
