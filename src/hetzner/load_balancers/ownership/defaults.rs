//! The values of annotations that a Service does not set itself. An annotation of its Namespace comes first, and then
//! the setting with the default of the annotation.
//!
//! A default with an invalid value is *unknown*, and so are all defaults of a Namespace that could not be read. A field
//! with an unknown default stays as it is, unless the Service sets it.

use super::labels::is_of_program;
use crate::hetzner::load_balancers::annotations::values as v;
use crate::hetzner::load_balancers::annotations::{self as a, Annotation};
use crate::provider::{
    Labels, LoadBalancerDefaults, NamespaceAnnotations, Service, Source, Sourced,
};
use crate::text;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The text that users see as the source of a field's value when this program leaves the value unchanged, because it
/// can't read the default of the Namespace.
pub(crate) const STAYS: Source =
    Source::Rule("the value stays unchanged, because the default of the Namespace is not known");

/// A pair: the labels for a load balancer, and the keys of labels that were left out. Labels with these keys are left
/// out because other programs find their own load balancers by them.
pub(crate) type AllowedLabels = (Labels, Vec<String>);

/// The default values of annotations, for the Services of one Namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceDefaults {
    /// The default value of each annotation. It comes from the annotation of the Namespace if there is one, and
    /// otherwise from the settings of the program. The value is `None` when there is no default, or when it is unknown
    /// because the Namespace's annotation is invalid or was not read. For the annotation `labels`, these are only the
    /// labels from the settings.
    pub(crate) values: Arc<LoadBalancerDefaults>,
    /// The labels that the annotation `labels` of the Namespace puts on load balancers, in addition to the labels from
    /// the settings. `None` when the Namespace sets no labels, or when they are unknown.
    pub(crate) labels: Option<Sourced<AllowedLabels>>,
    /// The largest load balancer type that the Namespace allows for its Services. A limit in the settings applies as
    /// well. `None` when the Namespace sets no limit.
    pub(crate) largest_type: Option<Sourced<String>>,
    /// The annotations whose default could not be read, because the Namespace could not be read or has an invalid
    /// value. The key is the name of the annotation, and the value says what is wrong.
    wrong: BTreeMap<&'static str, String>,
}

/// Parses a list of labels. A label by which another program finds its load balancers is left out, because neither a
/// Service nor a Namespace is allowed to set it.
pub(crate) fn allowed_labels(text: &str) -> Result<AllowedLabels, String> {
    let key_of = |item: &str| item.split_once('=').map_or(item, |(key, _)| key).trim().to_owned();
    let is_left_out = |item: &&str| is_of_program(&key_of(item));
    let (left_out, own): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_left_out);
    let labels = Labels::parse(&own.join(","))?;
    Ok((labels, left_out.into_iter().map(key_of).collect()))
}

/// Reads the annotations of one Namespace that are default values for the annotations of its Services.
struct DefaultsReader<'a> {
    namespace: &'a str,
    annotations: &'a NamespaceAnnotations,
    wrong: &'a mut BTreeMap<&'static str, String>,
}

impl DefaultsReader<'_> {
    /// Reads this annotation of the Namespace. Its value replaces the value from the settings in `field`. When the
    /// annotation is missing or empty, `field` stays as it is. But an empty `location` or `network-zone` sets `field`
    /// to `None`, so that the settings choose no location or network zone. `field` also becomes `None` when the value
    /// is invalid or the Namespace could not be read. The reason is then stored in `wrong`.
    fn read<T>(
        &mut self,
        annotation: &'static Annotation,
        field: &mut Option<Sourced<T>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) {
        let namespace = self.namespace;
        let parsed = match self.annotations {
            NamespaceAnnotations::Unknown(why) => Err(format!(
                "the defaults for load balancers in the annotations of namespace {namespace} are not known: {why}"
            )),
            NamespaceAnnotations::Known(all) => {
                let mut set = all.iter().filter(|(key, _)| annotation.has_key(key));
                let Some((key, value)) = set.next() else { return };
                let (value, longest) = (value.trim(), annotation.longest);
                let source = Source::Namespace(format!("{key} of namespace {namespace}"));
                let parsed = if let Some((other, _)) = set.find(|(_, other)| other.trim() != value)
                {
                    Err(format!(
                        "the Namespace also has annotation {other} with another value, and the two names differ only in \
                         upper and lower case. Remove one of the two annotations"
                    ))
                } else if value.len() > longest {
                    Err(format!(
                        "the value has {} bytes, but at most {longest} are allowed",
                        value.len()
                    ))
                } else if value.is_empty() {
                    field.take_if(|_| annotation.is_place());
                    return;
                } else {
                    parse(value)
                };
                // A value that is too long would make the message hard to read.
                let shown = match value.len() {
                    length if length > longest => String::new(),
                    _ => format!(" ({})", text::quoted(value)),
                };
                let named = |why| format!("{source}{shown} is no valid default: {why}");
                parsed.map_err(named).map(|value| Sourced::new(value, source.clone()))
            }
        };
        *field = parsed.map_err(|why| self.wrong.insert(annotation.name, why)).ok();
    }
}

impl ServiceDefaults {
    /// Returns the default values of the annotations that this Service does not set itself.
    pub(crate) fn of(settings: &Arc<LoadBalancerDefaults>, service: &Service) -> ServiceDefaults {
        ServiceDefaults::in_namespace(settings, &service.namespace, &service.of_namespace)
    }

    pub(crate) fn in_namespace(
        settings: &Arc<LoadBalancerDefaults>,
        namespace: &str,
        annotations: &NamespaceAnnotations,
    ) -> ServiceDefaults {
        let (values, wrong) = (Arc::clone(settings), BTreeMap::new());
        let mut defaults = ServiceDefaults { values, labels: None, largest_type: None, wrong };
        if *annotations == NamespaceAnnotations::default() {
            return defaults;
        }
        let mut of = DefaultsReader { namespace, annotations, wrong: &mut defaults.wrong };
        let values = Arc::make_mut(&mut defaults.values);
        let network = &mut values.network;
        of.read(&a::TYPE, &mut values.kind, v::any);
        of.read(&a::TYPE_MAX, &mut defaults.largest_type, v::any);
        of.read(&a::LOCATION, &mut values.location, v::any);
        of.read(&a::NETWORK_ZONE, &mut values.network_zone, v::any);
        of.read(&a::ALGORITHM_TYPE, &mut values.algorithm, v::algorithm);
        of.read(&a::DISABLE_PUBLIC_NETWORK, &mut network.disable_public_network, v::boolean);
        of.read(&a::DISABLE_PRIVATE_INGRESS, &mut network.disable_private_ingress, v::boolean);
        of.read(&a::USE_PRIVATE_IP, &mut network.use_private_ip, v::boolean);
        of.read(&a::PRIVATE_SUBNET_IP_RANGE, &mut network.private_subnet, v::ip_range);
        of.read(&a::IPV6_DISABLED, &mut network.disable_ipv6, v::boolean);
        of.read(&a::DEPARTING_DELAY, &mut values.departing_delay, v::departing_delay);
        of.read(&a::PREFER_NODES_WITH_PODS, &mut values.prefer_nodes_with_pods, v::boolean);
        of.read(&a::LABELS, &mut defaults.labels, allowed_labels);
        of.read(&a::USES_PROXYPROTOCOL, &mut values.uses_proxyprotocol, v::boolean);
        let check = &mut values.health_check;
        of.read(&a::HEALTH_CHECK, &mut check.kind, v::health_check);
        of.read(&a::HEALTH_CHECK_INTERVAL, &mut check.interval_s, v::seconds);
        of.read(&a::HEALTH_CHECK_TIMEOUT, &mut check.timeout_s, v::seconds);
        of.read(&a::HEALTH_CHECK_RETRIES, &mut check.retries, v::count);
        defaults
    }

    /// Returns why the default value of this annotation is unknown, for example because the annotation of the Namespace
    /// is invalid. `None` means that it is known whether there is a default, and which one.
    pub(crate) fn unknown(&self, annotation: &Annotation) -> Option<&str> {
        self.wrong.get(annotation.name).map(String::as_str)
    }

    pub(crate) fn is_unknown(&self, annotation: &Annotation) -> bool {
        self.unknown(annotation).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hetzner::load_balancers::annotations::{PREFIX, TABLE, is_default};

    fn read(pairs: &[(&str, &str)], settings: LoadBalancerDefaults) -> ServiceDefaults {
        let pairs =
            pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        let annotations = NamespaceAnnotations::Known(pairs.collect());
        ServiceDefaults::in_namespace(&Arc::new(settings), "web", &annotations)
    }

    /// Each annotation whose default can be set by an environment variable can also be set on a Namespace, as a default
    /// for the Services of this Namespace. When the value on the Namespace is too long, the default is unknown.
    #[test]
    fn each_annotation_with_a_variable_is_read() {
        let none = read(&[], LoadBalancerDefaults::default());
        for row in TABLE.iter().filter(|row| row.variable.is_some()) {
            let example = row.example().unwrap_or_default();
            let value = if row.name.starts_with("departing") { "60s" } else { example };
            let found = read(&[(row.name, value)], LoadBalancerDefaults::default());
            assert!(found != none && !found.is_unknown(row), "{}: {value:?}", row.name);
            let long = "x".repeat(row.longest + 1);
            let wrong = read(&[(row.name, &long)], LoadBalancerDefaults::default());
            assert!(wrong.is_unknown(row) && wrong.values == none.values, "{}", row.name);
        }
    }

    #[test]
    fn a_namespace_comes_before_a_setting_and_after_it_where_it_sets_nothing() {
        let set = |value: &str| Some(Sourced::new(value.to_owned(), Source::Flag("x".into())));
        let settings = || LoadBalancerDefaults {
            kind: set("lb31"),
            location: set("hel1"),
            ..LoadBalancerDefaults::default()
        };
        let kind = |pairs: &[(&str, &str)]| read(pairs, settings()).values.kind.clone();
        let source = Source::Namespace(format!("{PREFIX}type of namespace web"));
        assert_eq!(kind(&[("type", " lb21 ")]), Some(Sourced::new("lb21".to_owned(), source)));
        assert_eq!(kind(&[("type", "")]), set("lb31"));
        assert_eq!(kind(&[("TYPE", "lb21"), ("type", "lb11")]), None, "two values are unknown");
        assert_eq!(read(&[("location", "")], settings()).values.location, None);
        let unread = NamespaceAnnotations::Unknown("no right".into());
        let unread = ServiceDefaults::in_namespace(&Arc::new(settings()), "web", &unread);
        assert!(unread.is_unknown(&a::TYPE) && !unread.is_unknown(&a::NAME));
        assert_eq!(unread.values.kind, None, "a setting does not count while it is unknown");
    }

    #[test]
    fn only_annotations_with_a_default_count_and_none_for_one_port() {
        for (key, is_it) in [
            ("load-balancer.hetzner.cloud/location", true),
            ("load-balancer.hetzner.cloud/Location", true),
            ("load-balancer.hetzner.cloud/uses-proxyprotocol.443", false),
            ("load-balancer.hetzner.cloud/name", false),
            ("load-balancer.hetzner.cloud/share", false),
            ("example.com/location", false),
        ] {
            assert_eq!(is_default(key), is_it, "{key}");
        }
    }
}
