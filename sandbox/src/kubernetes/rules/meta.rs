//! Validation of `metadata`, which is the same for all kinds.

use serde_json::Value;

use super::{items, names, text};
use crate::kubernetes::status::FieldError;

/// The largest number of bytes in the keys and values of all annotations of an object.
const ANNOTATIONS_MOST_BYTES: usize = 256 * 1024;
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
const NAME_REQUIRED: &str = "name or generateName is required";

/// Returns the errors in the metadata of a new object. `name_rule` returns what is wrong with a name of this kind of
/// object. All other checks are the same for every kind.
pub fn validate_meta(object: &Value, name_rule: &dyn Fn(&str) -> Vec<String>) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let name = text(&metadata["name"]);
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", NAME_REQUIRED));
    } else {
        let found = name_rule(name);
        errors.extend(
            found.iter().map(|why| FieldError::invalid("metadata.name", &metadata["name"], why)),
        );
    }
    errors.extend(labels(metadata));
    errors.extend(annotations(metadata));
    errors.extend(finalizers(metadata));
    errors
}

/// Returns the errors in the metadata of an updated object. Only the rules that are the same for every kind are checked
/// here.
pub fn validate_meta_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    let mut errors = Vec::new();
    if !old["deletionTimestamp"].is_null() {
        errors.extend(new_finalizers(new, old));
    }
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        if new[field] != old[field] {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                &new[field],
                "field is immutable",
            ));
        }
    }
    errors.extend(labels(new));
    errors.extend(annotations(new));
    errors
}

/// Returns the errors in the metadata of an update. kube-apiserver makes this check before it applies the rules of the
/// object's kind, which check the metadata once more. An answer therefore contains these errors twice.
pub fn validate_common_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_meta(new, &names::path_segment);
    errors.extend(validate_meta_update(new, old));
    errors
}

fn labels(metadata: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        let wrong_key = names::qualified(key);
        errors.extend(
            wrong_key
                .iter()
                .map(|why| FieldError::invalid("metadata.labels", &key.as_str().into(), why)),
        );
        let wrong_value = names::label_value(text(value));
        errors.extend(
            wrong_value.iter().map(|why| FieldError::invalid("metadata.labels", value, why)),
        );
    }
    errors
}

fn annotations(metadata: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        // The check requires a prefix in lower case. Kubernetes also allows upper case in the prefix of an annotation's
        // key, so the key is converted to lower case before the check.
        let wrong = names::qualified(&key.to_lowercase());
        errors.extend(
            wrong
                .iter()
                .map(|why| FieldError::invalid("metadata.annotations", &key.as_str().into(), why)),
        );
        bytes += key.len() + text(value).len();
    }
    if bytes > ANNOTATIONS_MOST_BYTES {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_MOST_BYTES));
    }
    errors
}

fn finalizers(metadata: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, finalizer) in items(&metadata["finalizers"]).iter().enumerate() {
        let name = text(finalizer);
        let wrong = names::qualified(name);
        errors.extend(
            wrong.iter().map(|why| FieldError::invalid("metadata.finalizers", finalizer, why)),
        );
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    errors
}

/// Returns an error when an update adds finalizers to an object that is being deleted. Finalizers can only be removed
/// from such an object.
fn new_finalizers(new: &Value, old: &Value) -> Option<FieldError> {
    let known = items(&old["finalizers"]);
    let added: Vec<String> = items(&new["finalizers"])
        .iter()
        .filter(|finalizer| !known.contains(finalizer))
        .map(Value::to_string)
        .collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    (!added.is_empty()).then(|| FieldError::forbidden("metadata.finalizers", &detail))
}
