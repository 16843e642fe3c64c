//! Stores the values that a test has set in the JSON of a resource. The API shows these values instead of the values
//! that the simulation computes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::text::Text;

/// The top-level JSON fields that a test has changed, with the values that are shown instead of the simulation's
/// values. `None` means that the field is not shown.
#[derive(Clone, Debug, Default)]
pub struct Overlay(BTreeMap<String, Option<Value>>);

impl Overlay {
    /// Returns the fields in which the JSON `wanted` differs from `plain`. `wanted` is what a test wants the API to
    /// show, and `plain` is what the simulation would show.
    pub fn between(wanted: &Value, plain: &Value) -> Overlay {
        let (Some(wanted), Some(plain)) = (wanted.as_object(), plain.as_object()) else {
            return Overlay::default();
        };
        let differs = |name: &&String| wanted.get(*name) != plain.get(*name);
        let names = wanted.keys().chain(plain.keys()).filter(differs);
        Overlay(names.map(|name| (name.clone(), wanted.get(name).cloned())).collect())
    }

    /// Removes the value that a test has set for this field, so that the simulation's value is shown again.
    pub fn forget(&mut self, field: &str) {
        self.0.remove(field);
    }

    /// Returns a copy of the JSON `plain`, which the simulation has computed. In the copy, the fields that a test has
    /// changed have the values that the test has set.
    pub fn over(&self, plain: Text) -> Text {
        if self.0.is_empty() {
            return plain;
        }
        let mut plain = plain.value();
        for (name, value) in &self.0 {
            match (value, plain.as_object_mut()) {
                (Some(value), Some(fields)) => drop(fields.insert(name.clone(), value.clone())),
                (None, Some(fields)) => drop(fields.remove(name)),
                (_, None) => {}
            }
        }
        plain.into()
    }
}
