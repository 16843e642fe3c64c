//! Labels and annotations: few, sorted, and the same on thousands of objects.

use super::annotations;
use crate::provider::Interned;
use crate::text;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// A longer value is cut, and marked, so that no cut value reads as a valid one. None that is read here is that long (a
/// label's has 63 characters at most), and other programs keep kilobytes in annotations.
const VALUE_CHARACTERS: usize = 256;

/// The annotation of a node that its kubelet's `--node-ip` sets: one IP, or an IPv4 and an IPv6 joined by a comma.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Keys and values, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Interned, Interned)]>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self
            .0
            .binary_search_by(|(have, _)| (**have).cmp(key))
            .ok()?;
        Some(&self.0[place].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<K: Into<Interned>, V: Into<Interned>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Labels {
        let mut labels = Labels::default();
        labels.extend(pairs);
        labels
    }
}

/// The last of several values of a key is kept.
impl<K: Into<Interned>, V: Into<Interned>> Extend<(K, V)> for Labels {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        let mut all: BTreeMap<Interned, Interned> = self.0.iter().cloned().collect();
        all.extend(
            pairs
                .into_iter()
                .map(|(key, value)| (key.into(), value.into())),
        );
        self.0 = all.into_iter().collect();
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Labels, D::Error> {
        d.deserialize_any(Pairs { is_kept: |_| true })
    }
}

/// Of a node's annotations those that are read; other programs keep kilobytes there.
pub(super) fn that_are_read<'de, D: Deserializer<'de>>(d: D) -> Result<Labels, D::Error> {
    let is_kept = |key: &str| key == PROVIDED_NODE_IP || annotations::is_read(key);
    d.deserialize_any(Pairs { is_kept })
}

/// Which keys are kept.
struct Pairs {
    is_kept: fn(&str) -> bool,
}

impl<'de> Visitor<'de> for Pairs {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    /// Go writes a nil map as `null`.
    fn visit_unit<E>(self) -> Result<Labels, E> {
        Ok(Labels::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
        let mut pairs: Vec<(Interned, Interned)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if (self.is_kept)(&key) {
                let value: String = map.next_value()?;
                pairs.push((key.into(), (*text::cut(&value, VALUE_CHARACTERS)).into()));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        // API servers sort them, and never repeat one.
        match pairs.is_sorted_by(|(left, _), (right, _)| left < right) {
            true => Ok(Labels(pairs.into())),
            false => Ok(pairs.into_iter().collect()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(value: serde_json::Value) -> Labels {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn they_are_found_by_key_whatever_their_order() {
        let text = r#"{ "z": "1", "a": "2", "m": "3", "a": "4" }"#;
        let labels: Labels = serde_json::from_str(text).unwrap();
        let cases = [
            ("z", Some("1")),
            ("a", Some("4")),
            ("m", Some("3")),
            ("b", None),
        ];
        for (key, value) in cases {
            assert_eq!(labels.get(key), value, "{key}");
        }
        assert_eq!(labels.iter().count(), 3);
    }

    #[test]
    fn none_are_none() {
        for none in [json!(null), json!({})] {
            assert_eq!(labels(none), Labels::default());
        }
        assert!(serde_json::from_value::<Labels>(json!({ "a": 1 })).is_err());
    }

    #[test]
    fn of_a_node_s_annotations_those_that_are_read_are_kept() {
        let text = json!({
            PROVIDED_NODE_IP: "10.0.0.2",
            "instance.hetzner.cloud/external-ipv6": "2001:db8::1",
            "csi.volume.kubernetes.io/nodeid": "x".repeat(10_000),
            "io.cilium.network.ipv4-pod-cidr": "10.244.0.0/24",
        });
        let text = text.to_string();
        let kept = that_are_read(&mut serde_json::Deserializer::from_str(&text)).unwrap();
        let keys: Vec<&str> = kept.iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [PROVIDED_NODE_IP, "instance.hetzner.cloud/external-ipv6"]
        );
    }

    #[test]
    fn a_value_that_is_too_long_is_cut_and_says_so() {
        let long = "ä".repeat(VALUE_CHARACTERS + 1);
        let cut = labels(json!({ "a": long }));
        let value = cut.get("a").unwrap();
        assert!(value.ends_with('…') && value.chars().count() == VALUE_CHARACTERS);
    }
}
