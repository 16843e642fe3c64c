//! The fields of a resource that a test has changed by hand to values that the simulation cannot produce.

use std::collections::BTreeMap;

use serde_json::Value;

use super::text::Text;

/// The top-level fields whose values are shown instead of the simulation's values. `None` means that the field
/// is not shown.
#[derive(Clone, Debug, Default)]
pub struct Overlay(BTreeMap<String, Option<Value>>);

impl Overlay {
    /// Returns the fields in which `wanted` differs from `plain`, which is the JSON that the simulation would show.
    pub fn between(wanted: &Value, plain: &Value) -> Overlay {
        let (Some(wanted), Some(plain)) = (wanted.as_object(), plain.as_object()) else {
            return Overlay::default();
        };
        let differs = |name: &&String| wanted.get(*name) != plain.get(*name);
        let names = wanted.keys().chain(plain.keys()).filter(differs);
        Overlay(names.map(|name| (name.clone(), wanted.get(name).cloned())).collect())
    }

    /// Removes the value that was set for this field. The simulation's value is then shown again.
    pub fn forget(&mut self, field: &str) {
        self.0.remove(field);
    }

    /// Returns `plain` after replacing the fields that were set by hand.
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
