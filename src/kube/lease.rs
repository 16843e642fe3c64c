//! Leases, as client-go's leader election reads and writes them.
//!
//! A Lease is written by a PUT, which replaces the whole object. Everything that other programs wrote into the Lease
//! must stay. The Lease is therefore kept in memory as complete JSON, of which only the five fields of leader election
//! and our annotations are changed.

use super::client::{JSON, KubeClient, PASS, PASS_AT_END, folder, percent_encoded};
use super::error::KubeError;
use crate::http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;

const API_VERSION: &str = "coordination.k8s.io/v1";

/// The annotation with the time, in RFC 3339, at which the API of dedicated servers refused a login. The next leader
/// reads this time, and does not log in until enough time has passed since then. Repeated wrong logins would make
/// Hetzner block the IP address.
const LOGIN_REFUSED: &str = "ccm-from-scratch/robot-login-refused";

/// The annotation by which the Lease stores the identity of the cluster, i.e. the first UID that the Service
/// `default/kubernetes` had. The value is JSON with this UID, the later UIDs of that Service if it was created again,
/// and the UID of the Lease itself.
const IDENTITY: &str = "ccm-from-scratch/identity";

/// The longest value of the annotation [`IDENTITY`] that is read, in bytes. The value contains up to eleven UIDs that
/// the Service `default/kubernetes` has had over time, which need about half of this length.
const IDENTITY_BYTES: usize = 1024;

/// How many UIDs of the Service `default/kubernetes` are stored in the Lease besides the first one. The Service gets
/// another UID when it is deleted and created again.
const FORMER_AT_MOST: usize = 10;

/// The length of the longest UID that is accepted, in characters. The UID that identifies the cluster is also stored as
/// the value of a label, which has at most 63 characters.
const UID_LENGTH: usize = 63;

/// The namespace and the name of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseKey {
    pub namespace: String,
    pub name: String,
}

/// The UIDs that the Service `default/kubernetes` has had over time. It gets another UID when it is deleted and created
/// again. The labels that ccm writes in the cloud contain one of these UIDs, so that ccm recognizes what belongs to
/// this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identities {
    /// The first UID that the Service `default/kubernetes` had. ccm identifies the cluster by this UID, e.g. in the
    /// labels of load balancers. An empty text means that no UID is known yet.
    pub identity: String,
    /// The UIDs that the Service `default/kubernetes` had after the first one, the newest last, and at most
    /// [`FORMER_AT_MOST`]. Labels in the cloud can contain one of these UIDs: a process that could not read the Lease
    /// has perhaps taken the UID that it saw as the identity of the cluster.
    pub former: Vec<String>,
}

/// The JSON value of the annotation [`IDENTITY`]: the UIDs that identify the cluster, and the UID of the Lease.
#[derive(Serialize, Deserialize)]
struct IdentityNote {
    /// The UID of the Lease into which this annotation was written. When a Lease is restored from a backup into another
    /// cluster, the new Lease has another UID. Its annotation is then ignored, because it contains the identity of the
    /// cluster from which the backup was made.
    lease: String,
    #[serde(flatten)]
    known: Identities,
}

/// A Lease as it was read, with its `resourceVersion`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Lease(Map<String, Value>);

/// The fields in `spec` of a Lease, which leader election uses. The times in these fields come from the clock of the
/// holder. This process never compares them with its own clock. It only checks whether they have changed, because a
/// change shows that the holder has renewed the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    /// The identity of the holder. An empty text means that there is no holder.
    #[serde(rename = "holderIdentity")]
    pub holder: String,
    #[serde(rename = "leaseDurationSeconds")]
    pub duration_seconds: u32,
    /// When the holder acquired the Lease, as MicroTime. An empty text means that the time is not set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub acquire_time: String,
    /// When the holder last renewed the Lease, as MicroTime. An empty text means that the time is not set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub renew_time: String,
    /// How many times the Lease changed its holder.
    #[serde(rename = "leaseTransitions")]
    pub transitions: u32,
}

impl Lease {
    /// Returns the fields of leader election. A missing text is returned as an empty text, and a missing number as 0.
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

    /// Returns when the API of dedicated servers refused a login. The time is in an annotation that [`Lease::noting`]
    /// writes. Returns `None` when the Lease has no such annotation.
    pub fn login_refused(&self) -> Option<Timestamp> {
        let annotations = self.metadata("annotations")?;
        annotations.get(LOGIN_REFUSED)?.as_str()?.parse().ok()
    }

    /// Returns the Lease with an annotation that contains the time when the API of dedicated servers refused a login.
    /// `None` removes the annotation.
    pub fn noting(self, login_refused: Option<Timestamp>) -> Lease {
        let at = login_refused.map(|at| at.to_string());
        self.annotated(LOGIN_REFUSED, at)
    }

    /// Returns the UIDs in an annotation of the Lease, which identify the cluster. They are the present and the former
    /// UIDs of the Service `default/kubernetes`, which gets a new UID when it is deleted and created again. Returns
    /// `None` when the Lease has no such annotation. The error says why the annotation can't be used.
    pub fn identities(&self) -> Result<Option<Identities>, String> {
        let annotations = self.metadata("annotations");
        let Some(note) = annotations.and_then(|all| all.get(IDENTITY)) else {
            return Ok(None);
        };
        let ignored = |why: &str| format!("ccm ignores annotation {IDENTITY}, because {why}");
        let text = note.as_str().unwrap_or_default();
        if text.len() > IDENTITY_BYTES {
            return Err(ignored("it is too long"));
        }
        let note = serde_json::from_str::<IdentityNote>(text);
        let note = note.map_err(|_| ignored("it does not have the form that ccm writes"))?;
        let IdentityNote { lease, known } = note;
        let fits =
            [&known.identity, &lease].into_iter().chain(&known.former).all(|uid| is_uid(uid));
        if known.former.len() > FORMER_AT_MOST || !fits {
            return Err(ignored("it does not have the form that ccm writes"));
        }
        if self.uid() != Some(lease.as_str()) {
            return Err(ignored("it was written for a Lease with another UID"));
        }
        Ok(Some(known))
    }

    /// Returns the Lease with an annotation that lists the present and earlier UIDs of the Service
    /// `default/kubernetes`. They identify this cluster in the labels of load balancers. The next leader reads them
    /// from the Lease, because Kubernetes does not keep the earlier UIDs. The annotation also contains the UID of the
    /// Lease itself. A Lease that has no UID, because it is only about to be created, is returned unchanged.
    pub fn noting_identities(self, known: &Identities) -> Lease {
        let Some(lease) = self.uid().map(str::to_owned) else {
            return self;
        };
        match serde_json::to_string(&IdentityNote { lease, known: known.clone() }) {
            Ok(text) => self.annotated(IDENTITY, Some(text)),
            Err(_) => self,
        }
    }

    fn metadata(&self, field: &str) -> Option<&Value> {
        self.0.get("metadata")?.get(field)
    }

    fn uid(&self) -> Option<&str> {
        self.metadata("uid")?.as_str()
    }

    /// Returns the Lease with this annotation, or without the annotation when `value` is `None`.
    fn annotated(mut self, key: &str, value: Option<String>) -> Lease {
        let metadata = self.0.entry("metadata").or_insert_with(|| json!({}));
        let annotations = metadata.as_object_mut().map(|metadata| {
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if annotations.is_null() {
                *annotations = json!({});
            }
            annotations
        });
        if let Some(Value::Object(annotations)) = annotations {
            match value {
                Some(value) => annotations.insert(key.to_owned(), value.into()),
                None => annotations.remove(key),
            };
        }
        self
    }

    /// Returns the Lease as JSON. The fields in `spec` (the holder, the times and so on) replace those that were read.
    /// All other fields stay as they were read, including `resourceVersion`.
    fn with(self, spec: &LeaseSpec) -> Value {
        let mut object = self.0;
        let fields = object.entry("spec").or_insert_with(|| json!({}));
        if let (Some(fields), Value::Object(ours)) = (fields.as_object_mut(), json!(spec)) {
            fields.extend(ours);
        }
        Value::Object(object)
    }
}

impl Identities {
    /// Records the UID that the Service `default/kubernetes` has now. The first UID that is ever recorded becomes the
    /// identity of the cluster. Returns `true` when other UIDs were recorded before, but not this one.
    pub fn see(&mut self, uid: &str) -> bool {
        if self.identity.is_empty() {
            uid.clone_into(&mut self.identity);
            return false;
        }
        if self.identity == uid || self.former.iter().any(|former| former == uid) {
            return false;
        }
        if self.former.len() >= FORMER_AT_MOST {
            self.former.remove(0);
        }
        self.former.push(uid.to_owned());
        true
    }
}

/// Whether the text has the form of a UID. Such a text can be the value of a label and a part of a label selector.
fn is_uid(text: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
    (1..=UID_LENGTH).contains(&text.len()) && text.bytes().all(fits)
}

impl TryFrom<Map<String, Value>> for Lease {
    type Error = String;

    fn try_from(object: Map<String, Value>) -> Result<Lease, String> {
        match object.get("kind").and_then(Value::as_str) {
            Some("Lease") => Ok(Lease(object)),
            kind => Err(format!("a {} instead of a Lease", kind.unwrap_or("nothing"))),
        }
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {}/{}", self.namespace, self.name)
    }
}

/// Returns a time in RFC 3339 with six decimals, because the API server refuses a time without a fraction.
pub fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

impl KubeClient {
    /// Returns the Lease as it is now. Returns `None` when the API server answers that the Lease does not exist. A 404
    /// that a proxy has sent is an error.
    pub fn lease(&self, key: &LeaseKey) -> Result<Option<Lease>, KubeError> {
        self.get_if_there(&path(key))
    }

    /// Writes the fields of leader election into a Lease. `read` is the Lease as it was read before, and the write
    /// fails when the Lease was changed since then. When `read` is `None`, creates a Lease.
    pub fn write_lease(
        &self,
        key: &LeaseKey,
        read: Option<Lease>,
        spec: &LeaseSpec,
    ) -> Result<Lease, KubeError> {
        let Some(read) = read else {
            let lease = json!({
                "apiVersion": API_VERSION,
                "kind": "Lease",
                "metadata": { "name": key.name, "namespace": key.namespace },
                "spec": spec,
            });
            return self.write(PASS, Method::Post, &leases(key), JSON, &lease);
        };
        // A process releases its Lease while it ends, by a write without a holder. At that time, the
        // [`Gate`](crate::provider::Gate) (the check before each write) allows no other writes. With `PASS_AT_END` it
        // allows this one. The `resourceVersion` makes the release fail when another process has changed the Lease.
        let pass = if spec.holder.is_empty() { PASS_AT_END } else { PASS };
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
        assert_eq!(written["metadata"], json!({ "resourceVersion": "7", "labels": { "a": "b" } }));
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
            (json!({ "a": "b", LOGIN_REFUSED: "once" }), Some(time), noted.clone()),
            (noted.clone(), None, json!({ "a": "b" })),
            (json!(null), Some(time), json!({ LOGIN_REFUSED: "2026-11-20T10:00:02Z" })),
            (json!(null), None, json!({})),
            (json!([1]), Some(time), json!([1])),
        ] {
            assert_eq!(with(before).noting(refused), with(after));
        }
        assert_eq!(with(noted).login_refused(), Some(time));
        for none in [json!({}), json!(null), json!([]), json!({ LOGIN_REFUSED: "once" })] {
            assert_eq!(with(none).login_refused(), None);
        }
        let bare = lease(json!({ "kind": "Lease" })).unwrap();
        assert_eq!(bare.clone().noting(Some(time)).login_refused(), Some(time));
        assert_eq!(bare.login_refused(), None);
    }

    #[test]
    fn identities_count_on_the_lease_that_they_were_noted_on() {
        let of = |uid: &str, note: Value| {
            let annotations = json!({ "a": "b", IDENTITY: note });
            let metadata = json!({ "uid": uid, "annotations": annotations });
            lease(json!({ "kind": "Lease", "metadata": metadata })).unwrap()
        };
        let known =
            Identities { identity: "first".into(), former: vec!["second".into(), "third".into()] };
        let written = of("lease-1", json!("garbage")).noting_identities(&known);
        assert_eq!(written.identities(), Ok(Some(known.clone())));
        let note = written.metadata("annotations").unwrap()[IDENTITY].clone();
        assert_eq!(written.metadata("annotations").unwrap()["a"], "b");
        assert_eq!(of("lease-1", note.clone()).identities(), Ok(Some(known.clone())));
        let restored = of("lease-2", note).identities().unwrap_err();
        assert!(restored.ends_with("a Lease with another UID"), "{restored}");

        let text = |lease: &str, identity: &str, former: &[&str]| {
            json!(json!({ "lease": lease, "identity": identity, "former": former }).to_string())
        };
        let long = "x".repeat(64);
        for garbage in [
            json!(""),
            json!(7),
            json!(null),
            json!("{"),
            json!("[]"),
            json!(r#"{"lease":"lease-1"}"#),
            text("lease-1", "", &[]),
            text("lease-1", "a,b", &[]),
            text("lease-1", "a b", &[]),
            text("lease-1", &long, &[]),
            text("lease-1", "a", &[""]),
            text("lease-1", "a", &["b)"]),
            text("lease-1", "a", &["b"; 11]),
            json!(format!("{}{}", text("lease-1", "a", &[]).as_str().unwrap(), " ".repeat(1024))),
        ] {
            let read = of("lease-1", garbage.clone());
            assert!(read.identities().is_err(), "{garbage}");
            assert_eq!(read.noting_identities(&known).identities(), Ok(Some(known.clone())));
        }
        let bare = lease(json!({ "kind": "Lease" })).unwrap();
        assert_eq!(bare.clone().noting_identities(&known), bare, "its UID is not known");
        assert_eq!(bare.identities(), Ok(None));
    }

    #[test]
    fn the_first_uid_stays_the_identity_and_the_last_ten_are_remembered() {
        let mut known = Identities::default();
        assert!(!known.see("u0"));
        assert!(!known.see("u0"));
        for number in 1..=12 {
            assert!(known.see(&format!("u{number}")));
            assert!(!known.see(&format!("u{number}")));
            assert!(!known.see("u0"));
        }
        assert_eq!(known.identity, "u0");
        let last: Vec<String> = (3..=12).map(|number| format!("u{number}")).collect();
        assert_eq!(known.former, last);
        // The annotation with the UIDs of the cluster has the greatest number of UIDs here, each of the greatest
        // length. It is written and read back, and no UID is lost.
        known.identity = "x".repeat(UID_LENGTH);
        known.former = vec!["y".repeat(UID_LENGTH); FORMER_AT_MOST];
        let metadata = json!({ "uid": "z".repeat(UID_LENGTH) });
        let full = lease(json!({ "kind": "Lease", "metadata": metadata })).unwrap();
        assert_eq!(full.noting_identities(&known).identities(), Ok(Some(known)));
    }

    #[test]
    fn fields_that_are_missing_or_odd_are_no_panic() {
        for (spec, holder, duration_seconds, transitions) in [
            (json!(null), "", 0, 0),
            (json!({}), "", 0, 0),
            (json!([1]), "", 0, 0),
            (json!({ "holderIdentity": null, "leaseTransitions": -1 }), "", 0, 0),
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
        for other in [json!({ "kind": "Status" }), json!({ "status": "ok" }), json!([])] {
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
