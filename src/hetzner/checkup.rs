//! What the token may do, found without changing anything.

use super::api::Api;
use crate::cloud::{ErrorKind, Gate, Permission};
use crate::http::Method;
use serde::de::IgnoredAny;
use serde_json::json;

/// As the gate is asked: a change that names nothing to change, of a load balancer that can't
/// exist. IDs are below 2^53, and are given out from one upwards.
pub const HARMLESS_WRITE: &str = "PUT /load_balancers/9007199254740991";

/// A token that may only read is, by the API's documentation, one that may only GET: any other
/// method is refused for that alone. That this comes before the look at the path is not written
/// down, so only the refusal is certain; who is told that the load balancer does not exist was
/// let through to it.
pub(super) fn permission(api: &Api, gate: &dyn Gate) -> Permission {
    let path = HARMLESS_WRITE.trim_start_matches("PUT ");
    let answer = api.write::<IgnoredAny>(gate, Method::Put, path, &json!({}));
    match answer {
        Ok(_) => Permission::ReadWrite,
        Err(failed) => match (&failed.error.kind, failed.code()) {
            (ErrorKind::Forbidden, _) => Permission::ReadOnly,
            (_, Some("not_found" | "invalid_input")) => Permission::ReadWrite,
            _ => Permission::Unknown(failed.error.message),
        },
    }
}
