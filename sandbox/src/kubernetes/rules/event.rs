//! Validation of `Event` (core/v1). It accepts almost every value.

use serde_json::Value;

use super::{Rules, names, text};
use crate::kubernetes::status::FieldError;

pub struct Event;

impl Rules for Event {
    fn validate_name(&self, name: &str) -> Vec<String> {
        names::path_segment(name)
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let namespace = text(&object["metadata"]["namespace"]);
        let involved = text(&object["involvedObject"]["namespace"]);
        // An event about an object without a namespace must be in the namespace `default`.
        let agrees =
            if involved.is_empty() { namespace == "default" } else { involved == namespace };
        if agrees {
            return Vec::new();
        }
        let detail = "does not match event.namespace";
        vec![FieldError::invalid("involvedObject.namespace", &involved.into(), detail)]
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}
