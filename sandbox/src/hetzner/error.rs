//! The error answers of the simulated API. Each has a status, a code, a message and details.

use serde_json::{Value, json};

use crate::exchange::Response;

/// An error answer of the API. The codes are the documented ones, because clients react to the code.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
    /// The details of the error: null, or an object whose fields depend on the error code.
    pub details: Value,
}

impl ApiError {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), details: Value::Null }
    }

    /// Returns the error for an unknown path.
    pub fn no_such_path() -> ApiError {
        ApiError::new(404, "not_found", "resource not found")
    }

    /// Returns the error for an HTTP method that an existing path does not support.
    pub fn wrong_method(method: &str) -> ApiError {
        ApiError::new(405, "method_not_allowed", format!("method {method} is not allowed here"))
    }

    /// Returns the error for a resource that does not exist in this project.
    pub fn not_found(kind: &str, id: impl std::fmt::Display) -> ApiError {
        ApiError::new(404, "not_found", format!("{kind} with ID '{id}' not found"))
    }

    /// Returns the error for a request field or query parameter that cannot be accepted.
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

    /// Returns the error for a body that is not JSON at all.
    pub fn not_json(problem: impl std::fmt::Display) -> ApiError {
        ApiError::new(400, "json_error", format!("invalid JSON: {problem}"))
    }

    /// Returns the error for a name that another resource of the same kind in the project already has.
    pub fn name_taken(kind: &str) -> ApiError {
        ApiError {
            details: json!({"fields": [{"name": "name", "messages": ["must be unique"]}]}),
            ..ApiError::new(409, "uniqueness_error", format!("{kind} name is already used"))
        }
    }

    /// Returns the error for a resource on which an action is running. Clients usually retry after this error.
    pub fn locked(kind: &str) -> ApiError {
        ApiError::new(423, "locked", format!("{kind} is locked: an action is running on it"))
    }

    /// Returns the error for a network or a load balancer that another request is changing. `kind` says which of the two
    /// it is. Clients usually retry after this error.
    pub fn conflict(kind: &str) -> ApiError {
        ApiError::new(409, "conflict", format!("{kind} is being changed, please retry"))
    }

    /// Returns the error for a resource that is protected against deletion.
    pub fn protected(kind: &str) -> ApiError {
        ApiError::new(423, "protected", format!("{kind} is protected against deletion"))
    }

    /// Returns the error for a limit that a request exceeds. `limit` is the limit's name.
    pub fn limit_exceeded(limit: &str) -> ApiError {
        ApiError {
            details: json!({"limits": [{"name": limit}]}),
            ..ApiError::new(403, "resource_limit_exceeded", format!("{limit} limit exceeded"))
        }
    }

    /// Returns the error for a part of the API that was removed. `announcement` is the anchor of the announcement in
    /// the API's changelog.
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
