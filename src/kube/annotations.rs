//! Annotations of a Service: those that the provider reads, in little room. All others are skipped while they
//! stream in; a Service may carry 256 kB of them.

use crate::provider::ANNOTATION_DOMAIN;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Keys and values together, in bytes. Ten annotations for each of the 30 ports that the largest load balancer
/// takes are 22 kB.
const BYTES_AT_MOST: usize = 32 << 10;

const COUNT_AT_MOST: usize = 500;

/// Those of a Service that the provider reads. Of one that has more than is read none is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Key after value after key.
    text: Box<str>,
    /// Where each key and each value ends.
    ends: Box<[u32]>,
    is_too_large: bool,
}

impl Annotations {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut begin = 0;
        self.ends.chunks_exact(2).map(move |ends| {
            let (key_end, value_end) = (ends[0] as usize, ends[1] as usize);
            let pair = (&self.text[begin..key_end], &self.text[key_end..value_end]);
            begin = value_end;
            pair
        })
    }

    /// What is wrong, when there is more than is read.
    pub fn too_large(&self) -> Option<String> {
        self.is_too_large.then(|| {
            format!(
                "its annotations for load balancers are too large: {COUNT_AT_MOST} with {BYTES_AT_MOST} bytes together \
                 are read at most"
            )
        })
    }
}

/// Does the provider read annotations with this key?
pub(super) fn is_read(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| domain.ends_with(ANNOTATION_DOMAIN))
}

#[derive(Default)]
struct Builder {
    text: String,
    ends: Vec<u32>,
    is_too_large: bool,
}

impl Builder {
    /// False: it has no room, and neither has anything after it.
    fn push(&mut self, text: &str) -> bool {
        let is_room =
            self.text.len() + text.len() <= BYTES_AT_MOST && self.ends.len() < 2 * COUNT_AT_MOST;
        if self.is_too_large || !is_room {
            *self = Builder {
                is_too_large: true,
                ..Builder::default()
            };
            return false;
        }
        self.text.push_str(text);
        // At most BYTES_AT_MOST.
        self.ends.push(self.text.len() as u32);
        true
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Annotations {
        let mut all = Builder::default();
        for (key, value) in pairs {
            if is_read(key.as_ref()) && all.push(key.as_ref()) {
                all.push(value.as_ref());
            }
        }
        all.into()
    }
}

impl From<Builder> for Annotations {
    fn from(builder: Builder) -> Annotations {
        Annotations {
            text: builder.text.into(),
            ends: builder.ends.into(),
            is_too_large: builder.is_too_large,
        }
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Annotations, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            /// Go writes a nil map as `null`.
            fn visit_unit<E>(self) -> Result<Annotations, E> {
                Ok(Annotations::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut all = Builder::default();
                while let Some(key) = map.next_key::<String>()? {
                    if is_read(&key) && all.push(&key) {
                        all.push(&map.next_value::<String>()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(all.into())
            }
        }

        d.deserialize_any(Pairs)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const OURS: &str = "load-balancer.hetzner.cloud/";

    fn parsed(value: Value) -> Annotations {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn many(count: usize, value: &str) -> Value {
        (0..count)
            .map(|n| (format!("{OURS}n-{n}"), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    #[test]
    fn what_the_provider_reads_is_kept_and_nothing_else() {
        let foreign = "x".repeat(250_000);
        let name = format!("{OURS}name");
        let annotations = parsed(json!({
            "kubectl.kubernetes.io/last-applied-configuration": foreign,
            "hetzner.cloud.example.com/name": "no",
            "name": "no",
            "hetzner.cloud": "no",
            name.clone(): "wéb",
            format!("{OURS}type"): "",
        }));
        let pairs: Vec<_> = annotations.iter().collect();
        let kind = format!("{OURS}type");
        assert_eq!(pairs, [(name.as_str(), "wéb"), (kind.as_str(), "")]);
        assert_eq!(
            annotations.text.len(),
            name.len() + kind.len() + "wéb".len()
        );
        assert_eq!(annotations.too_large(), None);
        let same: Annotations = pairs.into_iter().collect();
        assert_eq!(annotations, same);
        for none in [
            json!(null),
            json!({}),
            json!({ "foreign": { "not": "a string" } }),
        ] {
            assert_eq!(parsed(none), Annotations::default());
        }
        assert!(serde_json::from_value::<Annotations>(json!({ name: 1 })).is_err());
    }

    #[test]
    fn of_more_than_is_read_none_is_kept() {
        for (value, is_too_large) in [
            (many(COUNT_AT_MOST, "x"), false),
            (many(COUNT_AT_MOST + 1, "x"), true),
            (many(1, &"x".repeat(BYTES_AT_MOST - 40)), false),
            (many(1, &"x".repeat(BYTES_AT_MOST)), true),
            (many(20, &"x".repeat(BYTES_AT_MOST / 10)), true),
        ] {
            let annotations = parsed(value);
            assert_eq!(annotations.too_large().is_some(), is_too_large);
            assert_eq!(annotations.iter().count() == 0, is_too_large);
            assert_eq!(annotations.text.is_empty(), is_too_large);
        }
    }
}
