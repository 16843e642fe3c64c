//! What the API answers when it refuses: status, code, message, details.

use serde_json::{Value, json};

use crate::exchange::Response;

/// An error answer. The codes are those of the API's documentation; clients match on them.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
    /// Null, or an object whose shape depends on the code.
    pub details: Value,
}

impl ApiError {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), details: Value::Null }
    }

    /// No such path.
    pub fn no_such_path() -> ApiError {
        ApiError::new(404, "not_found", "resource not found")
    }

    /// The path exists, but not with this method.
    pub fn wrong_method(method: &str) -> ApiError {
        ApiError::new(405, "method_not_allowed", format!("method {method} is not allowed here"))
    }

    /// No such server, network, … in this project.
    pub fn not_found(kind: &str, id: impl std::fmt::Display) -> ApiError {
        ApiError::new(404, "not_found", format!("{kind} with ID '{id}' not found"))
    }

    /// A request field or query parameter that cannot be accepted.
    pub fn invalid(field: &str, problem: impl Into<String>) -> ApiError {
        let problem = problem.into();
        ApiError {
            details: json!({"fields": [{"name": field, "messages": [problem]}]}),
            ..ApiError::new(
                422,
                "invalid_input",
                format!("invalid input in field '{field}': {problem}"),
            )
        }
    }

    /// A body that is not JSON at all.
    pub fn not_json(problem: impl std::fmt::Display) -> ApiError {
        ApiError::new(400, "json_error", format!("invalid JSON: {problem}"))
    }

    /// A name that another resource of the project has.
    pub fn name_taken(kind: &str) -> ApiError {
        ApiError {
            details: json!({"fields": [{"name": "name", "messages": ["must be unique"]}]}),
            ..ApiError::new(409, "uniqueness_error", format!("{kind} name is already used"))
        }
    }

    /// An action runs on the resource; retry.
    pub fn locked(kind: &str) -> ApiError {
        ApiError::new(423, "locked", format!("{kind} is locked: an action is running on it"))
    }

    /// A network that is being changed; retry.
    pub fn conflict(kind: &str) -> ApiError {
        ApiError::new(409, "conflict", format!("{kind} is being changed, please retry"))
    }

    /// Protected against deletion.
    pub fn protected(kind: &str) -> ApiError {
        ApiError::new(423, "protected", format!("{kind} is protected against deletion"))
    }

    /// More of something than one resource may have; `limit` is its name.
    pub fn limit_exceeded(limit: &str) -> ApiError {
        ApiError {
            details: json!({"limits": [{"name": limit}]}),
            ..ApiError::new(403, "resource_limit_exceeded", format!("{limit} limit exceeded"))
        }
    }

    /// A part of the API that was removed; `announcement` is the changelog's anchor.
    pub fn removed(announcement: &str) -> ApiError {
        ApiError {
            details: json!({"announcement": format!("https://docs.hetzner.cloud/changelog#{announcement}")}),
            ..ApiError::new(410, "deprecated_api_endpoint", "this part of the API was removed")
        }
    }

    pub fn response(&self) -> Response {
        let error = json!({"code": self.code, "message": self.message, "details": self.details});
        Response::json(self.status, &json!({ "error": error }))
    }
}
