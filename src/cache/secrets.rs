//! What Secrets hold: in memory only, and read whole only when they changed.

use crate::kube::{self, ReadSecret};
use crate::provider::{TlsSecret, TlsSecrets, heartbeat};
use jiff::Timestamp;
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

enum Known {
    Read(ReadSecret),
    /// Why not, for people.
    Unread(String),
}

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
            let before = known.get(name);
            let is_fresh = before.is_some_and(|(checked, _)| checked.elapsed() <= self.max_age);
            let of_namespace = known.keys().filter(|other| other.0 == name.0).count();
            let is_full = of_namespace >= OF_NAMESPACE || known.len() >= OF_ALL;
            if before.is_none() && is_full {
                let why = format!(
                    "it is not read: of one namespace {OF_NAMESPACE} Secrets are, and of all {OF_ALL}"
                );
                all.insert(name.clone(), Err(why));
                continue;
            }
            if !is_fresh {
                let secret = read(kube, name, before.map(|(_, secret)| secret))?;
                known.insert(name.clone(), (Instant::now(), secret));
            }
            let now = known.get(name).map(|(_, secret)| secret.now());
            all.extend(now.map(|now| (name.clone(), now)));
        }
        Ok(all)
    }

    /// All others are forgotten.
    pub(super) fn keep(&self, names: &BTreeSet<Name>) {
        heartbeat::turn(&self.known).retain(|name, _| names.contains(name));
    }
}

impl Known {
    fn now(&self) -> TlsSecret {
        match self {
            Known::Read(secret) => secret.at(Timestamp::now()),
            Known::Unread(why) => Err(why.clone()),
        }
    }
}

fn read(
    kube: &kube::Client,
    (namespace, name): &Name,
    before: Option<&Known>,
) -> Result<Known, kube::Error> {
    let version = kube.secret_version(namespace, name);
    if let (Ok(version), Some(Known::Read(before))) = (&version, before)
        && *version == before.version
    {
        return Ok(Known::Read(before.clone()));
    }
    match version.and_then(|_| kube.tls_secret(namespace, name)) {
        Ok(secret) => Ok(Known::Read(secret)),
        Err(error) if error.is_not_found() => Ok(Known::Unread("it does not exist".to_owned())),
        Err(error) if error.is_forbidden() => Ok(Known::Unread(format!(
            "ccm may not read it: allow that by kubectl apply -n {namespace} -k manifests/tls-secrets, or by the value \
             tlsSecretNamespaces of the chart"
        ))),
        Err(error @ kube::Error::Status(_)) if !error.is_unauthorized() => {
            Ok(Known::Unread(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
