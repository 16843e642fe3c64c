//! Compares a recorded answer with the simulated server's answer, although some values cannot be equal.
//!
//! UIDs, values of `resourceVersion`, allocated addresses and ports, and `continue` tokens differ. When a recorded
//! value occurs for the first time, the test pairs it with the value at the same place of the simulated answer. In all
//! later requests and answers, the simulated value must stand wherever the recorded value stands. For example, when a
//! recorded write leaves the `resourceVersion` unchanged, the simulated write must not raise it either.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sandbox::exchange::Response;
use serde_json::{Value, json};

use super::order::{Case, Exemption};

/// A map from recorded values to simulated values, e.g. from a recorded UID to the simulated UID of the same object.
/// The key consists of the kind of the value, e.g. `uid` or `port`, and the recorded value.
#[derive(Default)]
pub struct Names {
    known: BTreeMap<(&'static str, String), Value>,
}

/// The fields whose values differ between recorded and simulated answers, each with the kind of its values. For
/// example, `nodePort` and `healthCheckNodePort` both contain values of the kind `port`.
const LEARNED: [(&str, &str); 6] = [
    ("uid", "uid"),
    ("resourceVersion", "version"),
    ("nodePort", "port"),
    ("healthCheckNodePort", "port"),
    ("clusterIP", "ip"),
    ("continue", "continue"),
];
/// The table columns that show ages, which are not compared.
const AGES: [&str; 3] = ["Age", "Last Seen", "First Seen"];

impl Names {
    /// Returns a recorded request in which known recorded values, e.g. UIDs, are replaced by the corresponding
    /// simulated ones.
    pub fn apply(&self, request: &Value) -> Value {
        let mut request = self.renamed(request, "");
        let mut path = request["path"].as_str().unwrap_or_default().to_string();
        for ((_, recorded), ours) in
            self.known.iter().filter(|((group, _), _)| *group == "continue")
        {
            path = path.replace(recorded, ours.as_str().unwrap_or_default());
        }
        request["path"] = path.into();
        // An update is not allowed to change `creationTimestamp`, and the recorded time differs from the simulated one.
        // The field is removed from the request, so that the object keeps its simulated time.
        if let Some(metadata) = request["body"].get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("creationTimestamp");
        }
        request
    }

    fn renamed(&self, value: &Value, field: &str) -> Value {
        if let Some(ours) = group(field).and_then(|group| self.known.get(&(group, plain(value)))) {
            return ours.clone();
        }
        match value {
            Value::Object(map) => {
                map.iter().map(|(name, value)| (name.clone(), self.renamed(value, name))).collect()
            }
            Value::Array(items) => {
                let field = if field == "clusterIPs" { "clusterIP" } else { "" };
                items.iter().map(|item| self.renamed(item, field)).collect()
            }
            Value::String(text) => self.in_text(text).into(),
            other => other.clone(),
        }
    }

    /// Replaces recorded values by simulated ones in messages and table cells. Only whole words are replaced, so that a
    /// short number does not change a part of another word.
    fn in_text(&self, text: &str) -> String {
        let is_part =
            |character: char| character.is_ascii_alphanumeric() || "-.".contains(character);
        let mut renamed = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end = if is_part(first) {
                rest.find(|character| !is_part(character)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let (word, tail) = rest.split_at(end);
            let known = ["uid", "version", "port", "ip"].iter().find_map(|group| {
                self.known.iter().find(|((of, name), _)| of == group && name == word)
            });
            renamed.push_str(&known.map_or_else(|| word.to_string(), |(_, ours)| plain(ours)));
            rest = tail;
        }
        renamed
    }
}

/// Returns the differences between the simulated answer and the recorded answer, one text for each.
pub fn differences(
    case: &Case,
    recorded: &Value,
    answer: &Response,
    names: &mut Names,
) -> Vec<String> {
    let mut found = Vec::new();
    if recorded["status"] != answer.status {
        found.push(format!("status: {} recorded, {} answered", recorded["status"], answer.status));
    }
    for (name, value) in recorded["headers"].as_object().into_iter().flatten() {
        let ours = answer
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value);
        if ours.map(String::as_str) != value.as_str() {
            found.push(format!("header {name}: {value} recorded, {ours:?} answered"));
        }
    }
    let text = String::from_utf8_lossy(&answer.body);
    let ours = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.as_ref()));
    let ours = normalised(case, ours);
    let theirs = normalised(case, recorded["body"].clone());
    let (theirs, ours) = if case.discovery { served(theirs, ours) } else { (theirs, ours) };
    learn(&theirs, &ours, "", names);
    tree("", &names.renamed(&theirs, ""), &ours, &mut found);
    found
}

fn group(field: &str) -> Option<&'static str> {
    LEARNED.iter().find(|(name, _)| *name == field).map(|(_, group)| *group)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

fn learn(theirs: &Value, ours: &Value, field: &str, names: &mut Names) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (name, value) in theirs {
                learn(value, ours.get(name).unwrap_or(&Value::Null), name, names);
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            let field = if field == "clusterIPs" { "clusterIP" } else { "" };
            theirs.iter().zip(ours).for_each(|(theirs, ours)| learn(theirs, ours, field, names));
        }
        (theirs, ours)
            if !ours.is_null() && !theirs.is_null() && same_token(field, theirs, ours) =>
        {
            if let Some(group) = group(field) {
                names.known.entry((group, plain(theirs))).or_insert_with(|| ours.clone());
            }
        }
        _ => {}
    }
}

/// Whether a recorded `continue` token and a simulated one continue the list at the same key. Returns true for all
/// other fields.
fn same_token(field: &str, theirs: &Value, ours: &Value) -> bool {
    let start = |token: &Value| -> Option<Value> {
        let json = URL_SAFE_NO_PAD.decode(token.as_str()?).ok()?;
        let token: Value = serde_json::from_slice(&json).ok()?;
        Some(json!([token["v"], token["start"]]))
    };
    field != "continue" || start(theirs) == start(ours)
}

/// Replaces the values in a body that can differ between the recording and the sandbox, such as ages and times. The new
/// value says only what is compared, e.g. that a table cell contains an age.
fn normalised(case: &Case, mut body: Value) -> Value {
    if body["kind"] == "Table" {
        hide_ages(&mut body);
    }
    if case.exempt == Some(Exemption::Message) {
        body["message"] = Value::Null;
        body["details"]["causes"][0]["message"] = Value::Null;
    }
    if case.generated_name {
        let name = plain(&body["metadata"]["name"]);
        let prefix = plain(&body["metadata"]["generateName"]);
        let suffix = name.strip_prefix(&prefix).map(str::len);
        body["metadata"]["name"] = json!({"generated after the prefix, characters": suffix});
    }
    hide(&mut body);
    body
}

fn hide_ages(table: &mut Value) {
    let columns: Vec<usize> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .filter(|(_, column)| AGES.iter().any(|name| column["name"] == *name))
        .map(|(index, _)| index)
        .collect();
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        for column in &columns {
            let is_age = row["cells"][column]
                .as_str()
                .is_some_and(|age| age.starts_with(|c: char| c.is_ascii_digit()));
            row["cells"][column] = json!({"age": is_age});
        }
    }
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for name in ["managedFields", "storageVersionHash", "serverAddress"] {
                map.remove(name);
            }
            for (name, value) in map.iter_mut() {
                match (name.as_str(), &value) {
                    ("creationTimestamp" | "deletionTimestamp", Value::String(_)) => {
                        *value = "a time".into()
                    }
                    // The simulated server describes table columns in its own words. Only whether there is a
                    // description is compared.
                    ("description", Value::String(text)) => {
                        *value = json!({"described": !text.is_empty()})
                    }
                    _ => hide(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// Reduces two discovery documents, `theirs` from a recording and `ours` from the sandbox, to the parts that are
/// compared. A real API server serves more than the sandbox, so everything that is only in `theirs` is left out. When a
/// verb is only in `ours`, the verbs of this entry stay as they are, so that the comparison finds the difference.
fn served(mut theirs: Value, ours: Value) -> (Value, Value) {
    for list in ["resources", "groups"] {
        let Some(entries) = ours[list].as_array() else {
            continue;
        };
        let recorded: Vec<Value> = theirs[list].as_array().cloned().unwrap_or_default();
        let same: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let found = recorded.iter().find(|one| one["name"] == entry["name"]).cloned();
                let mut found = found.unwrap_or(Value::Null);
                if let (Some(theirs), Some(ours)) =
                    (found["verbs"].as_array(), entry["verbs"].as_array())
                    && ours.iter().all(|verb| theirs.contains(verb))
                {
                    found["verbs"] = entry["verbs"].clone();
                }
                found
            })
            .collect();
        theirs[list] = same.into();
    }
    (theirs, ours)
}

fn tree(path: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let extra = right.keys().filter(|name| !left.contains_key(*name));
            for name in left.keys().chain(extra) {
                let absent = json!("(absent)");
                let theirs = left.get(name).unwrap_or(&absent);
                tree(&format!("{path}/{name}"), theirs, right.get(name).unwrap_or(&absent), found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (theirs, ours)) in left.iter().zip(right).enumerate() {
                tree(&format!("{path}/{index}"), theirs, ours, found);
            }
        }
        (theirs, ours) if theirs != ours => {
            found.push(format!("{path}: {theirs} recorded, {ours} answered"))
        }
        _ => {}
    }
}
