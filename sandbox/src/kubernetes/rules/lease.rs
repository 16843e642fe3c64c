//! Validation of `Lease`: the rules by which a new or changed Lease is refused.

use serde_json::Value;

use super::{Rules, validate_meta, validate_meta_update};
use crate::kubernetes::status::FieldError;

pub struct Lease;

impl Rules for Lease {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta(object, &|name| self.validate_name(name));
        errors.extend(spec(&object["spec"]));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta_update(new, old);
        errors.extend(spec(&new["spec"]));
        errors
    }
}

fn spec(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at_least = [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ];
    for (field, least, detail) in at_least {
        if spec[field].as_i64().is_some_and(|value| value < least) {
            errors.push(FieldError::invalid(format!("spec.{field}"), &spec[field], detail));
        }
    }
    errors
}
