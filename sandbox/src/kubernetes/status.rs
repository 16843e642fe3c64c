//! Error answers. A Kubernetes API server answers with a `Status` object instead of the requested object.
//!
//! The wording and the fields of `details` are those of kube-apiserver 1.36 (`apimachinery`'s `errors` package).

use serde_json::{Map, Value, json};

use super::resource::Resource;
use crate::exchange::Response;

/// The reason why a request is refused. It is sent as a `Status` object.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: u16,
    /// The machine-readable reason, e.g. `NotFound`. It is empty for errors to which Kubernetes gives no reason.
    pub reason: &'static str,
    pub message: String,
    /// The field `details` of the answer. `None` means that the answer has no such field, and an empty object is sent
    /// as `{}`.
    pub details: Option<Value>,
    /// The field `metadata.continue` of an answer with 410 to an expired `continue` token. With it, the client can read
    /// the rest of the list as it is now. Other errors have `None`.
    pub continue_token: Option<String>,
}

/// One error that validation has found. An answer with 422 lists such errors as `causes` in its `details`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    reason: &'static str,
    field: String,
    message: String,
}

impl FieldError {
    pub fn required(field: impl Into<String>, detail: &str) -> FieldError {
        let message = if detail.is_empty() {
            "Required value".into()
        } else {
            format!("Required value: {detail}")
        };
        FieldError { reason: "FieldValueRequired", field: field.into(), message }
    }

    /// Returns an error about an invalid value. The message contains `value` as JSON, as in kube-apiserver.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> FieldError {
        let message = format!("Invalid value: {value}: {detail}");
        FieldError { reason: "FieldValueInvalid", field: field.into(), message }
    }

    /// Returns an error about a duplicate item of a list. Its message shows `value`, which is the duplicate item, and
    /// then `detail`. The caller formats `value`, because kube-apiserver shows its internal Go struct there, in which
    /// fields have other names and another order than in the JSON of the API.
    pub fn duplicate(field: impl Into<String>, value: &str, detail: &str) -> FieldError {
        let message = if detail.is_empty() {
            format!("Duplicate value: {value}")
        } else {
            format!("Duplicate value: {value}: {detail}")
        };
        FieldError { reason: "FieldValueDuplicate", field: field.into(), message }
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> FieldError {
        FieldError {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {detail}"),
        }
    }

    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> FieldError {
        let quoted: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        FieldError {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {value}: supported values: {}", quoted.join(", ")),
        }
    }

    pub fn too_many(field: impl Into<String>, count: usize, most: usize) -> FieldError {
        FieldError {
            reason: "FieldValueTooMany",
            field: field.into(),
            message: format!("Too many: {count}: must have at most {most} items"),
        }
    }

    pub fn too_long(field: impl Into<String>, most_bytes: usize) -> FieldError {
        FieldError {
            reason: "FieldValueTooLong",
            field: field.into(),
            message: format!("Too long: may not be more than {most_bytes} bytes"),
        }
    }

    fn line(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }

    fn cause(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

impl Refusal {
    pub fn response(&self) -> Response {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.clone().into());
        }
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            body["details"] = details.clone();
        }
        let response = Response::json(self.code, &body);
        match self.details.as_ref().and_then(|details| details.get("retryAfterSeconds")) {
            Some(seconds) => response.with_header("Retry-After", seconds.to_string()),
            None => response,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "BadRequest", message, None)
    }

    pub fn unauthorized() -> Refusal {
        Refusal::new(401, "Unauthorized", "Unauthorized", None)
    }

    /// Returns a 403 with a message such as `nodes "x" is forbidden: WHY`.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Refusal {
        let subject = if name.is_empty() {
            qualified(resource, group)
        } else {
            format!("{} {name:?}", qualified(resource, group))
        };
        let details = Some(details(group, resource, name));
        Refusal::new(403, "Forbidden", format!("{subject} is forbidden: {why}"), details)
    }

    pub fn forbidden_path(why: &str) -> Refusal {
        Refusal::new(403, "Forbidden", format!("forbidden: {why}"), Some(json!({})))
    }

    pub fn not_found(resource: &Resource, name: &str) -> Refusal {
        let message = format!("{} {name:?} not found", resource.qualified());
        Refusal::new(404, "NotFound", message, Some(resource.details(name)))
    }

    /// Returns a 404 for a path with an unknown resource in a known API group.
    pub fn unknown_resource() -> Refusal {
        Refusal::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
            Some(json!({})),
        )
    }

    pub fn method_not_allowed() -> Refusal {
        let message = "the server does not allow this method on the requested resource";
        Refusal::new(405, "MethodNotAllowed", message, Some(json!({})))
    }

    /// Returns a 405 for a verb that the resource does not support, e.g. `watch`. The message is the one that
    /// kube-apiserver has for such a verb.
    pub fn verb_not_supported(resource: &Resource, verb: &str) -> Refusal {
        let message =
            format!("{verb} is not supported on resources of kind {:?}", resource.qualified());
        Refusal::new(
            405,
            "MethodNotAllowed",
            message,
            Some(details(resource.group, resource.plural, "")),
        )
    }

    pub fn not_acceptable() -> Refusal {
        let message = "only the following media types are accepted: application/json";
        Refusal::new(406, "NotAcceptable", message, Some(json!({})))
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Refusal {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Refusal::new(409, "AlreadyExists", message, Some(resource.details(name)))
    }

    /// Returns the conflict (409) for a write whose `resourceVersion` is not the object's current one.
    pub fn modified(resource: &Resource, name: &str) -> Refusal {
        Refusal::conflict(
            &resource.qualified(),
            resource.details(name),
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns the conflict (409) for a DELETE whose preconditions, a UID or a `resourceVersion`, are not those of the
    /// stored object. The message names the kind, e.g. `Node`, while all other conflicts name the resource, e.g.
    /// `nodes`.
    pub fn precondition(resource: &Resource, name: &str, why: &str) -> Refusal {
        let details = details(resource.group, resource.kind, name);
        Refusal::conflict(&qualified(resource.kind, resource.group), details, name, why)
    }

    pub fn conflict(subject: &str, details: Value, name: &str, why: &str) -> Refusal {
        let message = format!("Operation cannot be fulfilled on {subject} {name:?}: {why}");
        Refusal::new(409, "Conflict", message, Some(details))
    }

    pub fn expired(message: &str, continue_token: Option<String>) -> Refusal {
        Refusal { continue_token, ..Refusal::new(410, "Expired", message, None) }
    }

    pub fn unsupported_media_type() -> Refusal {
        Refusal::new(415, "UnsupportedMediaType", "415: Unsupported Media Type", Some(json!({})))
    }

    /// Returns a 422 that lists the validation errors of an object.
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Refusal {
        Refusal::invalid_as(resource.group, resource.kind, name, errors)
    }

    /// Returns a 422 with the message `KIND "NAME" is invalid: …`. The caller chooses the text for KIND, because
    /// kube-apiserver sometimes writes the plural name of the resource there, e.g. `nodes`. `kind` and `name` are empty
    /// when the object could not be read.
    pub fn invalid_as(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Refusal {
        let mut details = details(group, kind, name);
        details["causes"] = errors.iter().map(FieldError::cause).collect();
        let message =
            format!("{} {name:?} is invalid: {}", qualified(kind, group), aggregate(errors));
        Refusal::new(422, "Invalid", message, Some(details))
    }

    /// Returns a 422 for a patch that is well-formed but cannot be applied.
    pub fn unprocessable() -> Refusal {
        let message = "the server rejected our request due to an error in our request";
        Refusal::new(422, "Invalid", message, Some(json!({})))
    }

    /// Returns a 500 with this message and no reason. kube-apiserver returns such an answer for an internal error to
    /// which it gives no reason.
    pub fn unclassified(message: &str) -> Refusal {
        Refusal::new(500, "", message, None)
    }

    /// Returns the error for a read with a `resourceVersion` that is larger than the current one. kube-apiserver
    /// answers with this error after a wait of three seconds, and the sandbox at once.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Refusal {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let details = json!({"causes": [cause], "retryAfterSeconds": 1});
        Refusal::new(504, "Timeout", message, Some(details))
    }

    fn new(
        code: u16,
        reason: &'static str,
        message: impl Into<String>,
        details: Option<Value>,
    ) -> Refusal {
        Refusal { code, reason, message: message.into(), details, continue_token: None }
    }
}

/// Returns the name of a resource or kind with its group, e.g. `leases.coordination.k8s.io`, or `nodes` in the core
/// group.
pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.into() } else { format!("{name}.{group}") }
}

/// Returns the `details` of a `Status`. It has no field for `group`, `kind` or `name` when this argument is empty.
pub fn details(group: &str, kind: &str, name: &str) -> Value {
    let parts = [("name", name), ("group", group), ("kind", kind)];
    let shown = parts.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(shown.map(|(key, value)| (key.to_string(), value.into())).collect())
}

/// Joins the texts of several errors with commas, in brackets. A repeated text is written once. A single text gets no
/// brackets.
fn aggregate(errors: &[FieldError]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in errors.iter().map(FieldError::line) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.as_slice() {
        [line] => line.clone(),
        lines => format!("[{}]", lines.join(", ")),
    }
}
