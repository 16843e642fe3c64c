//! Leases, as client-go's leader election reads and writes them.
//!
//! A Lease is kept whole, as JSON, and only the five fields of leader election are changed:
//! a PUT replaces the object, and what others wrote on it must survive.

use super::client::{Client, JSON, PASS, PASS_AT_END, folder, percent_encoded};
use super::error::Error;
use crate::http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;

const API_VERSION: &str = "coordination.k8s.io/v1";

/// When a login of the API of dedicated servers was refused, RFC 3339: the next process waits too.
const LOGIN_REFUSED: &str = "ccm-from-scratch/robot-login-refused";

/// Which Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseKey {
    pub namespace: String,
    pub name: String,
}

/// A Lease as it was read, with its `resourceVersion`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Lease(Map<String, Value>);

/// The fields of leader election. Times are what the holder's clock said: they distinguish one
/// renewal from another, and are never compared with ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    /// Empty: no holder.
    #[serde(rename = "holderIdentity")]
    pub holder: String,
    #[serde(rename = "leaseDurationSeconds")]
    pub duration_seconds: u32,
    /// MicroTime; empty: not said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub acquire_time: String,
    /// MicroTime; empty: not said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub renew_time: String,
    /// How often it changed hands.
    #[serde(rename = "leaseTransitions")]
    pub transitions: u32,
}

impl Lease {
    /// A missing field is empty, or 0.
    pub fn spec(&self) -> LeaseSpec {
        let spec = self.0.get("spec").unwrap_or(&Value::Null);
        let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| {
            let number = spec[name].as_i64().unwrap_or_default();
            u32::try_from(number.clamp(0, i64::from(i32::MAX))).unwrap_or_default()
        };
        LeaseSpec {
            holder: text("holderIdentity"),
            duration_seconds: number("leaseDurationSeconds"),
            acquire_time: text("acquireTime"),
            renew_time: text("renewTime"),
            transitions: number("leaseTransitions"),
        }
    }

    /// When a login was refused, as [`Lease::noting`] wrote it.
    pub fn login_refused(&self) -> Option<Timestamp> {
        let annotations = self.0.get("metadata")?.get("annotations")?;
        annotations.get(LOGIN_REFUSED)?.as_str()?.parse().ok()
    }

    /// The same object with that time, or without one.
    pub fn noting(mut self, login_refused: Option<Timestamp>) -> Lease {
        let metadata = self.0.entry("metadata").or_insert_with(|| json!({}));
        let annotations = metadata.as_object_mut().map(|metadata| {
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if annotations.is_null() {
                *annotations = json!({});
            }
            annotations
        });
        if let Some(Value::Object(annotations)) = annotations {
            match login_refused {
                Some(at) => annotations.insert(LOGIN_REFUSED.to_owned(), at.to_string().into()),
                None => annotations.remove(LOGIN_REFUSED),
            };
        }
        self
    }

    /// The same object with these fields; the rest of it, `resourceVersion` included, stays.
    fn with(self, spec: &LeaseSpec) -> Value {
        let mut object = self.0;
        let fields = object.entry("spec").or_insert_with(|| json!({}));
        if let (Some(fields), Value::Object(ours)) = (fields.as_object_mut(), json!(spec)) {
            fields.extend(ours);
        }
        Value::Object(object)
    }
}

impl TryFrom<Map<String, Value>> for Lease {
    type Error = String;

    fn try_from(object: Map<String, Value>) -> Result<Lease, String> {
        match object.get("kind").and_then(Value::as_str) {
            Some("Lease") => Ok(Lease(object)),
            kind => Err(format!(
                "a {} instead of a Lease",
                kind.unwrap_or("nothing")
            )),
        }
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {}/{}", self.namespace, self.name)
    }
}

/// RFC 3339 with six decimals: a time without a fraction is refused.
pub fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

impl Client {
    /// The Lease as it is now; none when the API server itself says that it is not there.
    pub fn lease(&self, key: &LeaseKey) -> Result<Option<Lease>, Error> {
        self.get_if_there(&path(key))
    }

    /// Writes these fields over those of the Lease that was read, if it was not changed since; where none was, a new
    /// Lease.
    pub fn write_lease(
        &self,
        key: &LeaseKey,
        read: Option<Lease>,
        spec: &LeaseSpec,
    ) -> Result<Lease, Error> {
        let Some(read) = read else {
            let lease = json!({
                "apiVersion": API_VERSION,
                "kind": "Lease",
                "metadata": { "name": key.name, "namespace": key.namespace },
                "spec": spec,
            });
            return self.write(PASS, Method::Post, &leases(key), JSON, &lease);
        };
        // Its release is the one write after the wish to end; its resourceVersion guards it.
        let pass = if spec.holder.is_empty() {
            PASS_AT_END
        } else {
            PASS
        };
        self.write(pass, Method::Put, &path(key), JSON, &read.with(spec))
    }
}

fn path(key: &LeaseKey) -> String {
    format!("{}/{}", leases(key), percent_encoded(&key.name))
}

fn leases(key: &LeaseKey) -> String {
    folder(&format!("apis/{API_VERSION}"), &key.namespace, "leases")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn lease(object: Value) -> Result<Lease, String> {
        serde_json::from_value(object).map_err(|error| error.to_string())
    }

    #[test]
    fn what_others_wrote_survives() {
        let read = lease(json!({
            "kind": "Lease",
            "metadata": { "resourceVersion": "7", "labels": { "a": "b" } },
            "spec": { "holderIdentity": "x", "strategy": "OldestEmulationVersion" },
        }))
        .unwrap();
        let ours = LeaseSpec {
            holder: "us".into(),
            duration_seconds: 15,
            acquire_time: "t0".into(),
            renew_time: "t1".into(),
            transitions: 3,
        };
        let written = read.clone().with(&ours);
        assert_eq!(
            written["metadata"],
            json!({ "resourceVersion": "7", "labels": { "a": "b" } })
        );
        assert_eq!(written["spec"]["strategy"], "OldestEmulationVersion");
        assert_eq!(lease(written).unwrap().spec(), ours);
    }

    #[test]
    fn a_refused_login_is_noted_and_nothing_else_changes() {
        let time: Timestamp = "2026-11-20T10:00:02Z".parse().unwrap();
        let with = |annotations: Value| {
            let metadata = json!({ "resourceVersion": "7", "annotations": annotations });
            lease(json!({ "kind": "Lease", "metadata": metadata })).unwrap()
        };
        let noted = json!({ "a": "b", LOGIN_REFUSED: "2026-11-20T10:00:02Z" });
        for (before, refused, after) in [
            (json!({ "a": "b" }), Some(time), noted.clone()),
            (
                json!({ "a": "b", LOGIN_REFUSED: "once" }),
                Some(time),
                noted.clone(),
            ),
            (noted.clone(), None, json!({ "a": "b" })),
            (
                json!(null),
                Some(time),
                json!({ LOGIN_REFUSED: "2026-11-20T10:00:02Z" }),
            ),
            (json!(null), None, json!({})),
            (json!([1]), Some(time), json!([1])),
        ] {
            assert_eq!(with(before).noting(refused), with(after));
        }
        assert_eq!(with(noted).login_refused(), Some(time));
        for none in [
            json!({}),
            json!(null),
            json!([]),
            json!({ LOGIN_REFUSED: "once" }),
        ] {
            assert_eq!(with(none).login_refused(), None);
        }
        let bare = lease(json!({ "kind": "Lease" })).unwrap();
        assert_eq!(bare.clone().noting(Some(time)).login_refused(), Some(time));
        assert_eq!(bare.login_refused(), None);
    }

    #[test]
    fn fields_that_are_missing_or_odd_are_no_panic() {
        for (spec, holder, duration_seconds, transitions) in [
            (json!(null), "", 0, 0),
            (json!({}), "", 0, 0),
            (json!([1]), "", 0, 0),
            (
                json!({ "holderIdentity": null, "leaseTransitions": -1 }),
                "",
                0,
                0,
            ),
            (
                json!({ "holderIdentity": "x", "leaseDurationSeconds": 1_u64 << 40 }),
                "x",
                i32::MAX as u32,
                0,
            ),
        ] {
            let read = lease(json!({ "kind": "Lease", "spec": spec })).unwrap();
            let expected = LeaseSpec {
                holder: holder.into(),
                duration_seconds,
                transitions,
                ..LeaseSpec::default()
            };
            assert_eq!(read.spec(), expected, "{read:?}");
            read.with(&expected);
        }
        for other in [
            json!({ "kind": "Status" }),
            json!({ "status": "ok" }),
            json!([]),
        ] {
            assert!(lease(other).is_err());
        }
    }

    #[test]
    fn times_have_six_decimals() {
        let time: Timestamp = "2026-11-20T10:00:02Z".parse().unwrap();
        assert_eq!(micro_time(time), "2026-11-20T10:00:02.000000Z");
        let time: Timestamp = "2026-11-20T10:00:02.123456789Z".parse().unwrap();
        assert_eq!(micro_time(time), "2026-11-20T10:00:02.123456Z");
    }
}
