//! Reads labels and annotations key by key while an answer arrives. The keys that are not needed, and their values,
//! take no memory.
//!
//! Thousands of nodes have the same few labels and annotations, so these texts are interned. A Service can have up to
//! 256 kB of annotations, which differ from Service to Service. Only the annotations that the provider (the code for
//! Hetzner) reads are stored, up to a limit. If an annotation has the provider's prefix but the provider does not know
//! it, only its name is stored, for messages.

pub use crate::provider::NodeLabels as Labels;
use crate::provider::{
    ANNOTATION_DOMAIN, AnnotationKind, Interned, PROVIDED_NODE_IP, SERVER_LABELS,
};
use crate::text::{self, selector::Selector};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::sync::Arc;

/// The longest value of a label, or of a node's annotation, that is stored, in characters. A longer value is cut and
/// marked as cut, so that it is not taken for a valid value. Values that this program uses are never that long (the
/// value of a label has 63 characters at most), but other programs store kilobytes in annotations.
const VALUE_CHARACTERS: usize = 256;

/// The length to which a value of the annotation [`SERVER_LABELS`] is cut, in characters.
const SERVER_LABELS_CHARACTERS: usize = 2_048;

/// The largest size of the annotations that the API server accepts for one object, in bytes. A Service's annotations
/// can take this much memory while the Service is read.
const BYTES_OF_OBJECT: usize = 256 << 10;

/// How many names of unknown annotations are stored for each Service. An annotation is unknown when its key has the
/// prefix of the provider (the code for Hetzner) but the provider has no annotation of this name. Messages show the
/// names and not the values.
const UNKNOWN_AT_MOST: usize = 10;

/// The largest size of a Service's annotations, keys and values together, in bytes. This is enough, because the largest
/// load balancer takes 30 ports, and ten annotations for each of them have 22 kB.
const BYTES_AT_MOST: usize = 32 << 10;

/// How many annotations of a Service are read at most.
const COUNT_AT_MOST: usize = 500;

/// Whether the domain of the key ends in [`ANNOTATION_DOMAIN`] (`hetzner.cloud`), so that the annotation is meant for a
/// cloud-controller-manager of Hetzner Cloud.
fn is_for_provider(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| domain.ends_with(ANNOTATION_DOMAIN))
}

/// Reads a map of strings and calls `take` with each pair whose key `is_read` accepts. The values of the other pairs
/// are skipped without a copy. A `null` is read as an empty map, because Go writes a nil map as `null`.
struct Pairs<R, T> {
    is_read: R,
    take: T,
}

impl<'de, R: Fn(&str) -> bool, T: FnMut(String, String)> Visitor<'de> for Pairs<R, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if (self.is_read)(&key) {
                (self.take)(key, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Labels, D::Error> {
        labels_where(|_| true, d)
    }
}

/// Reads the annotations of a node and returns only those that this program uses.
pub(super) fn that_are_read<'de, D: Deserializer<'de>>(d: D) -> Result<Labels, D::Error> {
    labels_where(|key| key == PROVIDED_NODE_IP || is_for_provider(key), d)
}

fn labels_where<'de, D: Deserializer<'de>>(
    is_read: fn(&str) -> bool,
    d: D,
) -> Result<Labels, D::Error> {
    let mut pairs: Vec<(Interned, Interned)> = Vec::new();
    d.deserialize_any(Pairs {
        is_read,
        take: |key: String, value: String| {
            let at_most =
                if key == SERVER_LABELS { SERVER_LABELS_CHARACTERS } else { VALUE_CHARACTERS };
            let value = text::cut(&value, at_most);
            pairs.push((key.into(), (*value).into()));
        },
    })?;
    Ok(pairs.into_iter().collect())
}

type Pair = (Box<str>, Box<str>);

/// The annotations of a Service that the code for Hetzner reads. When they are too many or too large, none of them is
/// stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// The keys and values. Versions of a Service that were read at different times share this memory when their
    /// annotations are equal.
    pairs: Arc<[Pair]>,
    is_too_large: bool,
    /// The number of unknown annotations whose names are not stored, because there are more than [`UNKNOWN_AT_MOST`].
    pub(super) more_unknown: usize,
}

impl Annotations {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(key, value)| (&**key, &**value))
    }

    /// When these annotations are equal to `other`, frees their own copy and uses the memory of `other` instead.
    pub fn share(&mut self, other: &Annotations) {
        if self == other {
            self.pairs = Arc::clone(&other.pairs);
        }
    }

    /// Returns the size of all keys and values, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Sorts the annotations into three groups, by the result of `kind_of` for their keys. Annotations that the code
    /// for Hetzner reads are kept. When an annotation has the prefix of this program but an unknown name, only its name
    /// is kept, for messages, and not more than [`UNKNOWN_AT_MOST`] such names. All other annotations are dropped.
    pub(super) fn select(&mut self, kind_of: Option<fn(&str) -> AnnotationKind>) {
        let (mut bytes, mut unknown) = (0, 0);
        let mut kept: Vec<Pair> = Vec::new();
        for (key, value) in self.pairs.iter() {
            let value = match kind_of.map_or(AnnotationKind::Known, |kind_of| kind_of(key)) {
                AnnotationKind::Foreign => continue,
                AnnotationKind::Unknown => {
                    unknown += 1;
                    if unknown > UNKNOWN_AT_MOST {
                        continue;
                    }
                    Box::default()
                }
                AnnotationKind::Known => value.clone(),
            };
            bytes += key.len() + value.len();
            kept.push((key.clone(), value));
        }
        self.more_unknown = unknown.saturating_sub(UNKNOWN_AT_MOST);
        self.is_too_large |= bytes > BYTES_AT_MOST || kept.len() > COUNT_AT_MOST;
        if self.is_too_large {
            kept.clear();
        }
        self.pairs = kept.into();
    }

    fn read_where<'de, D: Deserializer<'de>>(
        is_read: fn(&str) -> bool,
        bytes_at_most: usize,
        count_at_most: usize,
        d: D,
    ) -> Result<Annotations, D::Error> {
        let mut pairs: Vec<Pair> = Vec::new();
        let (mut bytes, mut is_too_large) = (0, false);
        d.deserialize_any(Pairs {
            is_read,
            take: |key: String, value: String| {
                bytes += key.len() + value.len();
                is_too_large |= bytes > bytes_at_most || pairs.len() == count_at_most;
                if is_too_large { pairs.clear() } else { pairs.push((key.into(), value.into())) }
            },
        })?;
        Ok(Annotations { pairs: pairs.into(), is_too_large, more_unknown: 0 })
    }

    /// Returns a message for the user when the annotations are too many or too large, and otherwise `None`.
    pub fn too_large(&self) -> Option<String> {
        self.is_too_large.then(|| {
            format!(
                "this object has more than {COUNT_AT_MOST} annotations for load balancers, or these have more than \
                 {BYTES_AT_MOST} bytes together, so ccm reads none of them; remove or shorten some of them"
            )
        })
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Annotations, D::Error> {
        Annotations::read_where(is_for_provider, BYTES_OF_OBJECT, usize::MAX, d)
    }
}

/// Reads the labels of a Service, under the same limits of number and size as its annotations.
pub(super) fn labels_of_service<'de, D: Deserializer<'de>>(d: D) -> Result<Annotations, D::Error> {
    Annotations::read_where(|_| true, BYTES_AT_MOST, COUNT_AT_MOST, d)
}

/// Decides which Services this program manages, by `--load-balancer-class` and `--service-selector`. It also decides
/// which annotations of these Services are stored.
#[derive(Clone, Debug, Default)]
pub struct ServiceScope {
    /// The `spec.loadBalancerClass` of the Services that this program manages. `None` means that they have no class.
    pub class: Option<String>,
    /// The label selector that a Service must match, so that this program manages the Service.
    pub selector: Selector,
    /// A function that says whether the code for Hetzner knows the annotation with this key. The value of an
    /// annotation that it does not know is not stored. When this field is `None`, every annotation is stored
    /// whose domain ends in `hetzner.cloud`.
    pub annotations: Option<fn(&str) -> AnnotationKind>,
    /// A function that says whether an annotation with this key can be a default: when a Namespace has the annotation,
    /// it applies to the Namespace's Services. When this field is `None`, there are no such defaults, and Namespaces
    /// are not read.
    pub defaults: Option<fn(&str) -> bool>,
}

impl ServiceScope {
    /// Returns the reason why this program does not manage a Service, or `None` when it manages the Service.
    pub(super) fn left_alone(
        &self,
        class: &Option<String>,
        labels: &Annotations,
    ) -> Option<&'static str> {
        let value_of =
            |key: &str| labels.iter().find(|(have, _)| *have == key).map(|(_, value)| value);
        if *class != self.class {
            Some(
                "the Service's spec.loadBalancerClass differs from the flag --load-balancer-class of this ccm",
            )
        } else if !self.selector.matches(value_of) {
            Some("the Service's labels do not match --service-selector")
        } else {
            None
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const OURS: &str = "load-balancer.hetzner.cloud/";

    fn parsed(value: Value) -> Annotations {
        let mut annotations: Annotations = serde_json::from_str(&value.to_string()).unwrap();
        annotations.select(Some(|key| match key {
            _ if key.contains("foreign") => AnnotationKind::Foreign,
            _ if key.contains("unknown") => AnnotationKind::Unknown,
            _ => AnnotationKind::Known,
        }));
        annotations
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
        assert_eq!(annotations.too_large(), None);
        for none in [json!(null), json!({}), json!({ "foreign": { "not": "a string" } })] {
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
        }
    }

    #[test]
    fn of_what_the_provider_does_not_know_a_few_names_are_kept_without_values() {
        let long = "x".repeat(200);
        let mut all = serde_json::Map::new();
        for n in 0..500 {
            all.insert(format!("{OURS}unknown-{n:03}"), json!(long));
            all.insert(format!("{OURS}foreign-{n:03}"), json!(long));
        }
        all.insert(format!("{OURS}type"), json!("lb11"));
        let annotations = parsed(all.into());
        let values: Vec<_> = annotations.iter().map(|(_, value)| value).collect();
        let mut expected = vec![""; UNKNOWN_AT_MOST];
        expected.insert(0, "lb11");
        assert_eq!(values, expected);
        assert_eq!(annotations.too_large(), None);
        assert_eq!(annotations.more_unknown, 500 - UNKNOWN_AT_MOST);
        assert!(annotations.bytes() < 1000);
    }

    fn labels(value: serde_json::Value) -> Labels {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn they_are_found_by_key_whatever_their_order() {
        let text = r#"{ "z": "1", "a": "2", "m": "3", "a": "4" }"#;
        let labels: Labels = serde_json::from_str(text).unwrap();
        let cases = [("z", Some("1")), ("a", Some("4")), ("m", Some("3")), ("b", None)];
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
        assert_eq!(keys, [PROVIDED_NODE_IP, "instance.hetzner.cloud/external-ipv6"]);
    }

    #[test]
    fn a_value_that_is_too_long_is_cut_and_says_so() {
        let long = "ä".repeat(VALUE_CHARACTERS + 1);
        let cut = labels(json!({ "a": long }));
        let value = cut.get("a").unwrap();
        assert!(value.ends_with('…') && value.chars().count() == VALUE_CHARACTERS);
        let longest = "x".repeat(SERVER_LABELS_CHARACTERS);
        let kept = labels(json!({ SERVER_LABELS: longest }));
        assert_eq!(kept.get(SERVER_LABELS), Some(longest.as_str()));
    }

    #[test]
    fn services_are_ours_by_class_and_labels() {
        let (class, labels) = ("loadBalancerClass differs", "labels do not match");
        for (of_flag, selector, of_service, has, why) in [
            (None, "", None, "a", None),
            (None, "", Some("x"), "a", Some(class)),
            (Some("x"), "", None, "a", Some(class)),
            (Some("x"), "", Some("y"), "a", Some(class)),
            (Some("x"), "", Some("x"), "a", None),
            (None, "lb=a", None, "a", None),
            (None, "lb!=a", None, "a", Some(labels)),
            (None, "lb in (a,b),!other", None, "b", None),
            (None, "other", None, "b", Some(labels)),
            (Some("x"), "lb=a", Some("x"), "b", Some(labels)),
        ] {
            let scope = ServiceScope {
                class: of_flag.map(str::to_owned),
                selector: Selector::parse(selector).unwrap(),
                ..ServiceScope::default()
            };
            let text = json!({ "lb": has }).to_string();
            let all = labels_of_service(&mut serde_json::Deserializer::from_str(&text)).unwrap();
            let left = scope.left_alone(&of_service.map(str::to_owned), &all);
            let about = format!("{of_flag:?} {selector:?} {of_service:?} {has}");
            assert_eq!(left.is_some(), why.is_some(), "{about}");
            assert!(left.zip(why).is_none_or(|(left, why)| left.contains(why)), "{about}");
        }
    }
}
