//! What the token may do, found without changing anything.

use super::api::Api;
use crate::http::Method;
use crate::provider::{ErrorKind, Permission};
use serde::de::IgnoredAny;
use serde_json::json;

/// As the gate is asked: a change that names nothing to change, of a load balancer that can't
/// exist. The number is the highest that the API's document allows, and numbers are given out
/// from below.
pub const HARMLESS_WRITE: &str = "PUT /load_balancers/9007199254740991";

/// A token with the permission Read may, by Hetzner's documentation of tokens, only GET: any other
/// method is refused for that alone. That this is checked before the path is not written
/// down, so only the refusal is beyond doubt; an answer that the load balancer does not exist shows that the token may
/// write.
pub(super) fn permission(api: &Api) -> Permission {
    let path = HARMLESS_WRITE.trim_start_matches("PUT ");
    let answer = api.write::<IgnoredAny>(Method::Put, path, Some(&json!({})));
    match answer {
        Ok(_) => Permission::ReadWrite,
        Err(failed) => match (&failed.error.kind, failed.code()) {
            (ErrorKind::Forbidden, _) => Permission::ReadOnly,
            (_, Some("not_found" | "invalid_input")) => Permission::ReadWrite,
            _ => Permission::Unknown(failed.error.message),
        },
    }
}
