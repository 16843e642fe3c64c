//! Keeps the contents of Secrets in memory, and only there. The content of a Secret is read again only when the Secret
//! has changed.

use crate::kube::{self, ReadSecret};
use crate::provider::{TlsSecret, TlsSecrets, clock, heartbeat};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The greatest number of cached Secrets that can be used: `OF_NAMESPACE` for one namespace, and `OF_ALL` in total.
/// Secrets that can't be used have the same two limits of their own. A Secret has up to 130 kB of PEM text, and usually
/// 6 kB.
const OF_NAMESPACE: usize = 50;
const OF_ALL: usize = 200;

/// How long a cached Secret is used before it is checked for changes again.
const MAX_AGE: Duration = Duration::from_secs(60);

type Name = (String, String);

/// The Secrets of type `kubernetes.io/tls` that were read, by namespace and name.
#[derive(Default)]
pub(super) struct Secrets {
    known: Mutex<KnownSecrets>,
}

/// The cached Secrets. Secrets with a valid certificate are in `usable`, all other Secrets are in `others`. Each of the
/// two maps has its own limits, so that invalid Secrets never take the places of valid ones. Invalid Secrets are cached
/// too, so that each of them is read at most once a minute.
#[derive(Default)]
struct KnownSecrets {
    usable: BTreeMap<Name, CheckedSecret>,
    others: BTreeMap<Name, CheckedSecret>,
}

/// The moment when a Secret was last checked for changes, and the content of this Secret.
type CheckedSecret = (Instant, Held);

/// The content of a Secret. The error is a text that says why the Secret can't be used.
type Held = Result<ReadSecret, String>;

impl Secrets {
    /// Returns the certificate and the key of each named Secret, or a text that says why the Secret can't be used. A
    /// cached Secret is returned without a call when it was checked for changes within the last minute ([`MAX_AGE`]).
    pub(super) fn get(
        &self,
        kube: &kube::KubeClient,
        names: &BTreeSet<Name>,
    ) -> Result<TlsSecrets, kube::KubeError> {
        let mut known = heartbeat::turn(&self.known);
        let mut all = TlsSecrets::new();
        let mut full = BTreeSet::new();
        for name in names {
            let fresh = known.get(name).filter(|(checked, _)| clock::since(*checked) <= MAX_AGE);
            if let Some((_, held)) = fresh {
                all.insert(name.clone(), shown(held));
                continue;
            }
            let before = known.remove(name).map(|(_, held)| held);
            let namespace = name.0.as_str();
            // Whether a new Secret can be used is known only after it was read. If it can't be used, it is stored in
            // the map `others`, which has a limited size. So a new Secret is read only when `others` has room for
            // one more.
            let mut has_room =
                || !full.contains(namespace) && make_room(&mut known.others, namespace);
            if before.is_none() && !has_room() {
                full.insert(namespace);
                all.insert(name.clone(), Err(too_many()));
                continue;
            }
            let held = read(kube, name, before)?;
            all.insert(name.clone(), known.put(name, held));
        }
        Ok(all)
    }

    /// Forgets all Secrets except those with these names.
    pub(super) fn keep(&self, names: &BTreeSet<Name>) {
        let mut known = heartbeat::turn(&self.known);
        let KnownSecrets { usable, others } = &mut *known;
        for part in [usable, others] {
            part.retain(|name, _| names.contains(name));
        }
    }
}

impl KnownSecrets {
    fn get(&self, name: &Name) -> Option<&CheckedSecret> {
        self.usable.get(name).or_else(|| self.others.get(name))
    }

    fn remove(&mut self, name: &Name) -> Option<CheckedSecret> {
        let usable = self.usable.remove(name);
        usable.or_else(|| self.others.remove(name))
    }

    /// Stores `held`, the result of reading a Secret, in the cache. Returns the certificate and the key of the Secret,
    /// or the reason why they can't be used.
    fn put(&mut self, name: &Name, held: Held) -> TlsSecret {
        let pair = shown(&held);
        let pair = pair.and_then(|pair| {
            if make_room(&mut self.usable, &name.0) { Ok(pair) } else { Err(too_many()) }
        });
        let (part, held) = match &pair {
            Ok(_) => (&mut self.usable, held),
            // The Secret has a certificate and a key, but they can't be used: the certificate is not valid at the
            // present time, or the cache has no place for one more usable Secret. They are therefore not kept in
            // memory. The cache keeps only the reason.
            Err(why) if held.as_ref().is_ok_and(ReadSecret::has_pair) => {
                (&mut self.others, Err(why.clone()))
            }
            Err(_) => (&mut self.others, held),
        };
        part.insert(name.clone(), (clock::now(), held));
        pair
    }
}

/// Returns the certificate and the key of a Secret that was read, or why they can't be used at the present time.
fn shown(held: &Held) -> TlsSecret {
    let held = held.as_ref().map_err(Clone::clone);
    held.and_then(|held| held.at(clock::timestamp()))
}

/// Makes room for one more Secret of `namespace` in the cache, and returns whether there is room. There is none when
/// `namespace` already has the greatest number of Secrets for one namespace. When the whole cache is full, a Secret of
/// the namespace with the most cached Secrets is removed, but only if that namespace has at least two Secrets more
/// than `namespace`.
fn make_room<T>(places: &mut BTreeMap<Name, T>, namespace: &str) -> bool {
    let own = places.keys().filter(|name| name.0 == namespace).count();
    if own >= OF_NAMESPACE || places.len() < OF_ALL {
        return own < OF_NAMESPACE;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (namespace, _) in places.keys() {
        *counts.entry(namespace).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let most = most.filter(|(_, count)| *count > own + 1);
    let is_of_most = |name: &&Name| most.is_some_and(|(namespace, _)| name.0 == namespace);
    let last = places.keys().rfind(is_of_most).cloned();
    last.is_some_and(|last| places.remove(&last).is_some())
}

fn too_many() -> String {
    format!(
        "ccm uses at most {OF_NAMESPACE} Secrets of one namespace, and at most {OF_ALL} of all namespaces together. \
         Name fewer Secrets in the annotations of Services"
    )
}

/// Reads the resource version of a Secret. Reads the whole Secret only when the version has changed since the last
/// read.
fn read(
    kube: &kube::KubeClient,
    (namespace, name): &Name,
    before: Option<Held>,
) -> Result<Held, kube::KubeError> {
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
        Err(error @ kube::KubeError::Status(_)) if !error.is_unauthorized() => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates the cache of Secrets, without their contents. Tries three times to put all Secrets of all namespaces
    /// into an empty cache. Each element of `asked` is a namespace and the number of its Secrets. Returns how many
    /// Secrets of each namespace are in the cache in the end.
    fn places(asked: &[(&str, usize)]) -> Vec<usize> {
        let mut places = BTreeMap::new();
        for _ in 0..3 {
            for (namespace, count) in asked {
                for number in 0..*count {
                    let name = ((*namespace).to_owned(), format!("{number:04}"));
                    if !places.contains_key(&name) && make_room(&mut places, namespace) {
                        places.insert(name, ());
                    }
                }
            }
        }
        let of = |namespace: &str| places.keys().filter(|name| name.0 == namespace).count();
        asked.iter().map(|(namespace, _)| of(namespace)).collect()
    }

    #[rustfmt::skip] // A case is a line.
    #[test]
    fn each_namespace_has_its_share_of_the_places() {
        type Asked = &'static [(&'static str, usize)];
        let cases: &[(Asked, &[usize])] = &[
            (&[("a", 3), ("b", 49)], &[3, 49]),
            (&[("a", 1000)], &[50]),
            (&[("a", 50), ("b", 50), ("c", 50), ("d", 50), ("e", 1)], &[50, 50, 50, 49, 1]),
            (&[("a", 1000), ("b", 1000), ("c", 1000), ("d", 1000), ("e", 1000)], &[40; 5]),
            (&[("e", 7), ("a", 1000), ("b", 1000), ("c", 1000), ("d", 1000)], &[7, 49, 48, 48, 48]),
        ];
        for (asked, expected) in cases {
            assert_eq!(places(asked), *expected, "{asked:?}");
        }
    }
}
