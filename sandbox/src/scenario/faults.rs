//! The faults in a scenario file: which API calls fail, and how they fail.

use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::Half;
use crate::faults::{Effect, Rule};

/// One fault in a scenario file: which API calls fail, and how they fail.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultEntry {
    /// The name of the API whose calls fail: `hetzner`, `kubernetes` or `robot`. `None` means all APIs.
    pub half: Option<String>,
    pub methods: Vec<String>,
    pub writes: bool,
    pub path: Option<String>,
    pub nth: Option<u64>,
    pub every: Option<u64>,
    /// The share of calls that fail, from 0 to 1, among the calls that the other fields of this entry select. The field
    /// `seed` decides which of them fail. With `None`, calls are not chosen at random.
    pub probability: Option<f64>,
    pub seed: u64,
    pub times: Option<u64>,
    /// What happens to the calls: one of the names in [`EFFECTS`].
    pub effect: String,
    /// The delay of the effects `slow`, `slow-answer` and `drip`, e.g. `500ms`. These effects need the field, and other
    /// effects ignore it.
    pub delay: Option<String>,
    /// The HTTP status with which calls are answered when `effect` is `status`. This effect needs the field, and other
    /// effects ignore it.
    pub status: Option<u16>,
}

/// The effects that a scenario file can use, each with its description.
pub const EFFECTS: &[(&str, &str)] = &[
    ("slow", "the call is handled after `delay`"),
    ("slow-answer", "the call is handled, and answered after `delay`"),
    ("status", "refused with `status`, with an error text of this API"),
    ("rate-limit", "refused, as this API does after too many calls"),
    ("proxy-not-found", "404 in HTML, as from a proxy that does not know the path"),
    ("gateway-timeout", "handled; 504 in HTML"),
    ("reset", "not handled; the connection is reset"),
    ("answer-lost", "handled; the connection ends without an answer"),
    ("cut-off", "handled; only half of the answer is sent"),
    ("cut-off-chunked", "as cut-off, with chunks instead of a length"),
    ("malformed", "handled; the answer's JSON ends too early"),
    ("html", "handled; 200 with an HTML page"),
    ("other-json", "handled; 200 with the JSON of another program"),
    ("chunked", "handled; the whole answer in chunks"),
    ("drip", "handled; 64 bytes of the answer at a time, `delay` between them"),
];

impl FaultEntry {
    /// Returns the fault rule that this entry of a scenario file describes.
    ///
    /// # Errors
    /// Returns an error with the name of the field that is wrong.
    pub fn rule(&self) -> Result<Rule, String> {
        let half = match self.half.as_deref() {
            None => None,
            Some("hetzner" | "hcloud") => Some(Half::Hetzner),
            Some("kubernetes") => Some(Half::Kubernetes),
            Some("robot") => Some(Half::Robot),
            Some(other) => {
                return Err(format!("half {other:?}: write hetzner, kubernetes or robot"));
            }
        };
        let mut rule = Rule::new(self.effect(half)?);
        if let Some(half) = half {
            rule = rule.half(half);
        }
        for method in &self.methods {
            rule = rule.method(method);
        }
        if self.writes {
            rule = rule.writes();
        }
        if let Some(path) = &self.path {
            rule = rule.path(path);
        }
        rule = match (self.nth, self.every, self.probability) {
            (None, None, None) => rule,
            (Some(n), None, None) => rule.nth(n),
            (None, Some(k), None) => rule.every(k),
            (None, None, Some(share)) => rule.probability(share, self.seed),
            _ => return Err("write only one of nth, every and probability".into()),
        };
        Ok(match self.times {
            Some(times) => rule.times(times),
            None => rule,
        })
    }

    fn effect(&self, half: Option<Half>) -> Result<Effect, String> {
        let half = || half.ok_or_else(|| format!("effect {:?} needs the field half", self.effect));
        Ok(match self.effect.as_str() {
            "slow" => Effect::Slow(self.delay()?),
            "slow-answer" => Effect::SlowAnswer(self.delay()?),
            "status" => {
                let status = self.status.ok_or("effect \"status\" needs the field status")?;
                match half()? {
                    Half::Hetzner => Effect::hetzner_error(
                        status,
                        hetzner_code(status),
                        "refused by the scenario",
                    ),
                    Half::Kubernetes => Effect::kubernetes_status(
                        status,
                        kubernetes_reason(status),
                        "refused by the scenario",
                    ),
                    Half::Robot if status == 503 => Effect::robot_maintenance(),
                    Half::Robot => {
                        Effect::robot_error(status, robot_code(status), "refused by the scenario")
                    }
                }
            }
            "rate-limit" => match half()? {
                Half::Hetzner => Effect::hetzner_rate_limit(),
                Half::Kubernetes => Effect::kubernetes_busy(1),
                Half::Robot => Effect::robot_rate_limit(200, 3600),
            },
            "proxy-not-found" => Effect::proxy_not_found(),
            "gateway-timeout" => Effect::gateway_timeout(),
            "reset" => Effect::Reset,
            "answer-lost" => Effect::AnswerLost,
            "cut-off" => Effect::cut_off(),
            "cut-off-chunked" => Effect::cut_off_chunked(),
            "malformed" => Effect::Malformed,
            "html" => Effect::html(),
            "other-json" => Effect::other_json(),
            "chunked" => Effect::chunked(),
            "drip" => Effect::drip(64, self.delay()?),
            other => {
                let names: Vec<&str> = EFFECTS.iter().map(|(name, _)| *name).collect();
                return Err(format!("effect {other:?}: write one of {}", names.join(", ")));
            }
        })
    }

    fn delay(&self) -> Result<Duration, String> {
        let text = self
            .delay
            .as_deref()
            .ok_or_else(|| format!("effect {:?} needs the field delay", self.effect))?;
        let parsed =
            text.parse::<SignedDuration>().ok().and_then(|delay| Duration::try_from(delay).ok());
        parsed.ok_or_else(|| format!("delay {text:?}: write a duration such as 500ms or 2s"))
    }
}

/// Returns an error code that the Hetzner Cloud API uses with this HTTP status. When the API uses several codes with
/// the status, the most frequent code is returned.
fn hetzner_code(status: u16) -> &'static str {
    match status {
        400 => "json_error",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        422 => "invalid_input",
        423 => "locked",
        429 => "rate_limit_exceeded",
        502 => "bad_gateway",
        503 => "maintenance",
        504 => "timeout",
        _ => "server_error",
    }
}

/// Returns an error code that Robot uses with this HTTP status.
fn robot_code(status: u16) -> &'static str {
    match status {
        400 => "INVALID_INPUT",
        401 => "UNAUTHORIZED",
        404 => "SERVER_NOT_FOUND",
        _ => "INTERNAL_ERROR",
    }
}

/// Returns the `reason` that a Kubernetes API server uses with this HTTP status.
fn kubernetes_reason(status: u16) -> &'static str {
    match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(yaml: &str) -> Result<Rule, String> {
        let entry: FaultEntry = serde_yaml::from_str(yaml).map_err(|error| error.to_string())?;
        entry.rule()
    }

    #[test]
    fn every_effect_that_is_named_can_be_asked_for() {
        for half in ["hetzner", "kubernetes", "robot"] {
            for (name, _) in EFFECTS {
                let rule =
                    fault(&format!("{{half: {half}, effect: {name}, delay: 1ms, status: 503}}"));
                assert!(rule.is_ok(), "{half} {name}: {rule:?}");
            }
        }
    }

    #[test]
    fn an_invalid_fault_is_refused_by_its_name() {
        let cases = [
            ("{effect: explode}", "effect \"explode\": write one of slow,"),
            ("{}", "effect \"\": write one of"),
            ("{effect: slow}", "effect \"slow\" needs the field delay"),
            ("{effect: slow, delay: soon}", "delay \"soon\""),
            ("{effect: slow, delay: -1s}", "delay \"-1s\""),
            ("{effect: status, half: hetzner}", "effect \"status\" needs the field status"),
            ("{effect: status, status: 500}", "effect \"status\" needs the field half"),
            ("{effect: rate-limit}", "effect \"rate-limit\" needs the field half"),
            ("{effect: reset, half: third}", "half \"third\""),
            ("{effect: reset, nth: 1, every: 2}", "write only one of nth"),
            ("{effect: reset, colour: red}", "unknown field `colour`"),
        ];
        for (yaml, expected) in cases {
            let error = fault(yaml).unwrap_err();
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }
}
