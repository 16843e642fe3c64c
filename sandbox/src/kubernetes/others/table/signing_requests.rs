//! Tables of certificate signing requests: which user created each request, and whether it was approved or denied.

use serde_json::{Value, json};

use super::{AGE, Column, NAME, items, text};

pub(super) const SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    Column { name: "SignerName", priority: 0, description: "Who signs the certificate." },
    Column { name: "Requestor", priority: 0, description: "User who has created the request." },
    Column { name: "RequestedDuration", priority: 0, description: "Wanted validity." },
    Column {
        name: "Condition",
        priority: 0,
        description: "What was decided, and what came of it.",
    },
];

pub(super) fn signing_request(request: &Value, name: &Value, age: &str) -> Value {
    let (spec, status) = (&request["spec"], &request["status"]);
    let has = |kind: &str| items(&status["conditions"]).iter().any(|one| one["type"] == kind);
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition += ",Failed";
    }
    if !text(&status["certificate"]).is_empty() {
        condition += ",Issued";
    }
    let duration = spec["expirationSeconds"].as_i64();
    let duration = duration.map_or("<none>".into(), |seconds| format!("{seconds}s"));
    json!([name, age, text(&spec["signerName"]), text(&spec["username"]), duration, condition])
}
