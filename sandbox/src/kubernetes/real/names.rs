//! Translates the names of objects. In the sandbox the names have no prefix, and on the real API server they have the
//! prefix of the sandbox.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The prefix that the names of one sandbox have on the real API server. No other names begin with this prefix.
pub struct Names {
    prefix: String,
}

/// Each sandbox puts a prefix before its names on the real API server, and all these prefixes begin with this text. A
/// person can search a cluster for the text, to find objects of tests that were killed before they cleaned up.
const MARK: &str = "ccmtest-";

impl Names {
    /// Creates the prefix for the names of a new sandbox. No other sandbox has this prefix, in this process or another.
    pub fn new() -> Names {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let nanoseconds =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let seed = nanoseconds ^ u64::from(std::process::id()) << 32 ^ count << 20;
        let number = crate::faults::SplitMix64::new(seed).next() >> 24;
        Names { prefix: format!("{MARK}{number:010x}-") }
    }

    /// Returns the name that the real API server knows, which is `name` with the prefix of this sandbox before it. The
    /// name of a signer of certificates, e.g. `kubernetes.io/kubelet-serving`, is returned without a change.
    pub fn inside(&self, name: &str) -> String {
        if name.contains('/') { name.to_owned() } else { format!("{}{name}", self.prefix) }
    }

    /// Returns the name that an object of this resource has on the real API server. All names get the sandbox's prefix
    /// except those of Namespaces, because all sandboxes share the Namespaces.
    pub fn own(&self, resource: &str, name: &str) -> String {
        let keeps_name = resource == "namespaces" || name.is_empty();
        if keeps_name { name.to_owned() } else { self.inside(name) }
    }

    pub fn path(&self, path: &str) -> String {
        let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        let resource = match (parts.get(1).map(String::as_str), parts.len()) {
            (Some("api"), 4..) => 3,
            (Some("apis"), 5..) => 4,
            _ => return path.to_owned(),
        };
        let in_namespace = parts[resource] == "namespaces" && parts.len() > resource + 2;
        let resource = if in_namespace { resource + 2 } else { resource };
        if let Some(name) = parts.get(resource + 1) {
            parts[resource + 1] = self.own(&parts[resource], name);
        }
        parts.join("/")
    }

    /// Puts the prefix of this sandbox before the names in field selectors such as `metadata.name=NAME`, because the
    /// objects have this prefix on the real API server. A name after `!=` is not changed.
    pub fn query(&self, query: &[(String, String)]) -> Vec<(String, String)> {
        let term = |term: &str| match term.split_once('=') {
            Some((field @ ("metadata.name" | "involvedObject.name"), name)) => {
                format!("{field}={}", self.inside(name.trim_start_matches('=')))
            }
            _ => term.to_owned(),
        };
        let value = |(key, value): &(String, String)| {
            let value = match key.as_str() {
                "fieldSelector" => value.split(',').map(term).collect::<Vec<_>>().join(","),
                _ => value.clone(),
            };
            (key.clone(), value)
        };
        query.iter().map(value).collect()
    }

    /// Puts the prefix of this sandbox before the names in an object or in a patch, because the objects have this
    /// prefix on the real API server.
    pub fn object(&self, object: &mut Value) {
        for pointer in [
            "/metadata/name",
            "/metadata/generateName",
            "/involvedObject/name",
            "/spec/resourceAttributes/name",
        ] {
            if let Some(Value::String(name)) = object.pointer_mut(pointer)
                && !name.is_empty()
                && !name.starts_with(&self.prefix)
            {
                *name = self.inside(name);
            }
        }
    }

    /// Whether this object of the real API server belongs to this sandbox, because its name begins with the sandbox's
    /// prefix.
    pub fn owns(&self, object: &Value) -> bool {
        let name = object["metadata"]["name"].as_str();
        name.is_some_and(|name| name.starts_with(&self.prefix))
    }

    /// Whether a row of a table belongs to this sandbox. This is so when the name of the row's object begins with the
    /// sandbox's prefix. For a row without an object, the name in the first cell decides.
    fn owns_row(&self, row: &Value) -> bool {
        let cell = row["cells"][0].as_str();
        self.owns(&row["object"]) || cell.is_some_and(|name| name.starts_with(&self.prefix))
    }

    /// Removes this sandbox's prefix, which keeps the names of several sandboxes apart, from all strings of an object
    /// that the real API server has sent.
    pub fn value(&self, object: &Value) -> Value {
        match object {
            Value::String(text) => text.replace(&self.prefix, "").into(),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), self.value(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// Removes the prefix of this sandbox from the names in an answer of the real API server. If the answer is a list,
    /// objects whose names do not begin with the prefix are removed from it. A list of Namespaces stays complete,
    /// because Namespaces have no prefix.
    pub fn outside(&self, body: &[u8], is_list: bool) -> Vec<u8> {
        let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
            let text = String::from_utf8_lossy(body).replace(&self.prefix, "");
            return text.into_bytes();
        };
        let is_shared = value["kind"] == "NamespaceList";
        if is_list && !is_shared {
            if let Some(Value::Array(items)) = value.get_mut("items") {
                items.retain(|item| self.owns(item));
            }
            if let Some(Value::Array(rows)) = value.get_mut("rows") {
                rows.retain(|row| self.owns_row(row));
            }
        }
        let value = self.value(&value);
        match (is_list, &value["metadata"]) {
            (true, head @ Value::Object(_)) => {
                // API servers write `metadata` before the items of a list. The JSON library would sort the fields by
                // name and write `items` first, so the text of the list is put together here.
                let rest = value.as_object().into_iter().flatten();
                let rest = rest.filter(|(name, _)| *name != "metadata");
                let rest = rest.map(|(name, value)| format!(",{}:{value}", json!(name)));
                format!(r#"{{"metadata":{head}{}}}"#, rest.collect::<String>()).into_bytes()
            }
            _ => value.to_string().into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names() -> Names {
        Names { prefix: "p-".into() }
    }

    #[test]
    fn names_in_paths_get_the_prefix() {
        for (path, expected) in [
            ("/api/v1/nodes", "/api/v1/nodes"),
            ("/api/v1/nodes/a", "/api/v1/nodes/p-a"),
            ("/api/v1/nodes/a/status", "/api/v1/nodes/p-a/status"),
            ("/api/v1/namespaces/default", "/api/v1/namespaces/default"),
            ("/api/v1/namespaces/default/events/a.1", "/api/v1/namespaces/default/events/p-a.1"),
            (
                "/api/v1/namespaces/default/services/kubernetes",
                "/api/v1/namespaces/default/services/p-kubernetes",
            ),
            (
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/p-l",
            ),
            ("/apis/coordination.k8s.io/v1", "/apis/coordination.k8s.io/v1"),
            ("/version", "/version"),
        ] {
            assert_eq!(names().path(path), expected);
        }
        let query = [("fieldSelector", "metadata.name=a,type!=b"), ("limit", "5")];
        let owned = query.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(names().query(&owned)[0].1, "metadata.name=p-a,type!=b");
        assert_eq!(names().query(&owned)[1], owned[1]);
    }

    #[test]
    fn a_body_keeps_its_names_after_both_translations() {
        let event =
            json!({"metadata": {"name": "a.1"}, "involvedObject": {"name": "a"}, "message": "a"});
        let mut sent = event.clone();
        names().object(&mut sent);
        assert_eq!(
            sent,
            json!({"metadata": {"name": "p-a.1"}, "involvedObject": {"name": "p-a"}, "message": "a"})
        );
        assert_eq!(names().value(&sent), event);
        let list = json!({"items": [sent, {"metadata": {"name": "theirs"}}]});
        let read = |is_list| -> Value {
            serde_json::from_slice(&names().outside(list.to_string().as_bytes(), is_list)).unwrap()
        };
        assert_eq!(read(true), json!({"items": [event]}));
        assert_eq!(read(false)["items"].as_array().unwrap().len(), 2);
        let table =
            json!({"rows": [{"cells": ["p-a"], "object": null}, {"cells": ["b"], "object": null}]});
        let shown = names().outside(table.to_string().as_bytes(), true);
        let rows = json!({"rows": [{"cells": ["a"], "object": null}]});
        assert_eq!(serde_json::from_slice::<Value>(&shown).unwrap(), rows);
        assert_eq!(names().outside(b"no p-a here", false), b"no a here");
    }
}
