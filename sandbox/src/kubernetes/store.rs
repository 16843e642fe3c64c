//! The objects of the cluster. The store has the role of etcd.
//!
//! Every write of any resource raises one counter, the revision. The `resourceVersion`s of objects and lists are values
//! of this counter. A write stores a new version of an object, and never changes an earlier version. A list that a
//! client reads page by page can therefore keep the earlier versions without a copy.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::resource::Resource;

/// One version of an object. It is stored without `kind` and `apiVersion`, because the items of a list do not have
/// these fields.
#[derive(Debug)]
pub struct Object {
    pub key: String,
    pub value: Value,
    text: OnceLock<String>,
    metadata_text: OnceLock<String>,
}

/// All objects as they are at one revision. Every write raises the revision.
#[derive(Clone, Debug, Default)]
pub struct Store {
    revision: u64,
    /// The objects by plural name of the resource, and then by key. The keys are sorted as in etcd, so lists have the
    /// order of kube-apiserver.
    collections: BTreeMap<&'static str, BTreeMap<String, Arc<Object>>>,
    /// For each resource, the revision of the last write of one of its objects. The key is the plural name of the
    /// resource.
    changed: BTreeMap<&'static str, u64>,
}

/// Returns the key of an object in the store: `NAMESPACE/NAME`, or only `NAME` for an object without a namespace.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}") }
}

impl Object {
    pub fn new(key: &str, value: Value) -> Object {
        Object { key: key.into(), value, text: OnceLock::new(), metadata_text: OnceLock::new() }
    }

    /// Returns the object's JSON, which is made at the first call and then kept.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| self.value.to_string())
    }

    /// Returns the JSON of the object's metadata, which is made at the first call and then kept.
    pub fn metadata_text(&self) -> &str {
        let metadata = || self.value["metadata"].to_string();
        self.metadata_text.get_or_init(metadata)
    }

    /// Returns the object's JSON with `kind` and `apiVersion`, for an answer that contains only this object.
    pub fn text_with_kind(&self, resource: &Resource) -> String {
        let inside = self.text().trim_start_matches('{');
        format!(
            r#"{{"kind":"{}","apiVersion":"{}",{inside}"#,
            resource.kind,
            resource.api_version()
        )
    }

    pub fn metadata(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }
}

impl Store {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the revision of the last write of a resource, or 0 when the resource was never written.
    pub fn changed(&self, resource: &Resource) -> u64 {
        self.changed.get(resource.plural).copied().unwrap_or_default()
    }

    /// Raises the revision without changing an object. A compaction in a real cluster has this effect, because
    /// kube-apiserver writes a key to etcd for every compaction.
    pub fn advance(&mut self) {
        self.revision += 1;
    }

    pub fn get(&self, resource: &Resource, key: &str) -> Option<&Arc<Object>> {
        self.collections.get(resource.plural)?.get(key)
    }

    /// Returns the objects of one namespace, or all objects when `namespace` is empty, in the order of their keys.
    pub fn list(&self, resource: &Resource, namespace: &str) -> Vec<Arc<Object>> {
        let Some(collection) = self.collections.get(resource.plural) else {
            return Vec::new();
        };
        if namespace.is_empty() {
            return collection.values().cloned().collect();
        }
        let prefix = key(namespace, "");
        let from = collection.range(prefix.clone()..);
        from.take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Stores an object under its key with a new `resourceVersion`, and returns the stored object. It replaces an
    /// earlier version of the object.
    pub fn put(&mut self, resource: &Resource, key: &str, mut value: Value) -> Arc<Object> {
        self.revision += 1;
        self.changed.insert(resource.plural, self.revision);
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Arc::new(Object::new(key, value));
        self.collections.entry(resource.plural).or_default().insert(key.into(), object.clone());
        object
    }

    /// Removes an object and returns it. Its `resourceVersion` is then the revision of the removal.
    pub fn remove(&mut self, resource: &Resource, key: &str) -> Option<Value> {
        let object = self.collections.get_mut(resource.plural)?.remove(key)?;
        self.revision += 1;
        self.changed.insert(resource.plural, self.revision);
        let mut value = object.value.clone();
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resource;
    use super::*;

    #[test]
    fn lists_come_in_etcd_s_order() {
        let services = resource::named("services").expect("served");
        let mut store = Store::default();
        for path in ["a/x", "a-b/x", "a/b", "b/a"] {
            store.put(services, path, json!({"metadata": {}}));
        }
        let keys = |namespace| -> Vec<String> {
            store.list(services, namespace).iter().map(|object| object.key.clone()).collect()
        };
        assert_eq!(keys(""), ["a-b/x", "a/b", "a/x", "b/a"]);
        assert_eq!(keys("a"), ["a/b", "a/x"]);
        assert_eq!(store.revision(), 4);
    }
}
