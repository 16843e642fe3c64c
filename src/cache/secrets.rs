//! What Secrets hold: in memory only, and read whole only when they changed.

use crate::kube::{self, ReadSecret};
use crate::provider::{TlsSecrets, clock, heartbeat};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Of one namespace, and of all: each may have 130 kB of PEM, and mostly has 6.
const OF_NAMESPACE: usize = 50;
const OF_ALL: usize = 200;

/// How late a change is seen.
const MAX_AGE: Duration = Duration::from_secs(60);

type Name = (String, String);

/// By namespace and name, and when each was checked last.
pub(super) struct Secrets {
    known: Mutex<BTreeMap<Name, (Instant, Known)>>,
    max_age: Duration,
}

/// The error: why it was not read, for people.
type Known = Result<ReadSecret, String>;

impl Secrets {
    pub(super) fn new(time_scale: f64) -> Secrets {
        Secrets {
            known: Mutex::default(),
            max_age: MAX_AGE.mul_f64(time_scale),
        }
    }

    /// See `Apis::tls_secrets`.
    pub(super) fn get(
        &self,
        kube: &kube::Client,
        names: &BTreeSet<Name>,
    ) -> Result<TlsSecrets, kube::Error> {
        let mut known = heartbeat::turn(&self.known);
        let mut all = TlsSecrets::new();
        for name in names {
            let of_namespace = known.keys().filter(|other| other.0 == name.0).count();
            let is_full = of_namespace >= OF_NAMESPACE || known.len() >= OF_ALL;
            let (checked, secret) = match known.remove(name) {
                None if is_full => {
                    let why = format!(
                        "it is not read: of one namespace {OF_NAMESPACE} Secrets are, and of all {OF_ALL}"
                    );
                    all.insert(name.clone(), Err(why));
                    continue;
                }
                Some((checked, secret)) if clock::since(checked) <= self.max_age => {
                    (checked, secret)
                }
                before => {
                    let before = before.map(|(_, secret)| secret);
                    (clock::now(), read(kube, name, before)?)
                }
            };
            let pair = secret.as_ref().map_err(Clone::clone);
            let pair = pair.and_then(|secret| secret.at(clock::timestamp()));
            all.insert(name.clone(), pair);
            known.insert(name.clone(), (checked, secret));
        }
        Ok(all)
    }

    /// All others are forgotten.
    pub(super) fn keep(&self, names: &BTreeSet<Name>) {
        heartbeat::turn(&self.known).retain(|name, _| names.contains(name));
    }
}

/// Whole only where it is not as it was.
fn read(
    kube: &kube::Client,
    (namespace, name): &Name,
    before: Option<Known>,
) -> Result<Known, kube::Error> {
    let version = kube.secret_version(namespace, name);
    let secret = match (version, before) {
        (Ok(version), Some(Ok(before))) if version == before.version => Ok(before),
        (Ok(_), _) => kube.tls_secret(namespace, name),
        (Err(error), _) => Err(error),
    };
    match secret {
        Ok(secret) => Ok(Ok(secret)),
        Err(error) if error.is_not_found() => Ok(Err("it does not exist".to_owned())),
        Err(error) if error.is_forbidden() => Ok(Err(kube::without_rights(&error, namespace))),
        Err(error @ kube::Error::Status(_)) if !error.is_unauthorized() => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
