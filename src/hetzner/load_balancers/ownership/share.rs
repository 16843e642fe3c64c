//! Several Services that share one load balancer are a group. This file finds the name of a Service's group, and the
//! Services that belong to a group.

use super::index::Balancers;
use super::labels::Labelled;
use super::names::label_value;
use crate::hetzner::load_balancers::annotations::parser::value_of;
use crate::hetzner::load_balancers::annotations::{self as a, PREFIX};
use crate::provider::{Cluster, Service};
use crate::text::is_label;

/// The beginning of the text by which [`key`] identifies an external load balancer (one that somebody else made). The
/// load balancer's ID or name follows.
const OF_EXTERNAL: &str = "external:";

/// The name of a group of Services that share one load balancer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupName<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> GroupName<'a> {
    pub(crate) fn parse(text: &'a str, own_namespace: &'a str) -> Result<GroupName<'a>, String> {
        let (namespace, name) = text.split_once('/').unwrap_or((own_namespace, text));
        if is_label(namespace) && is_label(name) {
            Ok(GroupName { namespace, name })
        } else {
            Err("write a name for the load balancer that Services share, as NAME or NAMESPACE/NAME; use only \
                 lower-case letters, digits and dashes"
                .to_owned())
        }
    }

    /// Chooses from `all` the Services whose namespace is allowed to share the load balancer of this group. `all` are
    /// the Services that name the group in their annotation `share`.
    pub(crate) fn members(self, all: &[Service]) -> impl Iterator<Item = &Service> {
        let guests = self.guests(all);
        all.iter().filter(move |service| self.is_open_to(&service.namespace, &guests))
    }

    /// Whether Services of this namespace are allowed to share the load balancer. The namespace in the group name
    /// `NAMESPACE/NAME` is allowed. Services in that namespace can allow more namespaces by their annotation
    /// `share-namespaces`. `all` are the Services that ask to share the load balancer.
    pub(crate) fn allows(self, namespace: &str, all: &[Service]) -> bool {
        self.is_open_to(namespace, &self.guests(all))
    }

    /// Returns the namespaces that are allowed to share the load balancer, besides the namespace in the group name
    /// `NAMESPACE/NAME`. The annotation `share-namespaces` of Services in that namespace allows them.
    fn guests(self, all: &[Service]) -> Vec<&str> {
        let hosts = all.iter().filter(|service| service.namespace == self.namespace);
        let lists = hosts.filter_map(|service| value_of(service, &a::SHARE_NAMESPACES));
        lists.flat_map(|list| list.split(',')).map(str::trim).collect()
    }

    /// Returns the value that the label `group` has on the load balancer that the Services of this group share.
    pub(crate) fn label(self) -> String {
        label_value(&format!("{}.{}", self.namespace, self.name))
    }

    fn is_open_to(self, namespace: &str, guests: &[&str]) -> bool {
        let mut guests = guests.iter();
        namespace == self.namespace || guests.any(|guest| *guest == "*" || *guest == namespace)
    }
}

/// Returns a text that identifies the group to which a Service belongs. A group consists of the Services that name the
/// same load balancer in the annotation `share` or `external`, and the text is the same for all Services of a group.
/// For a shared load balancer, it is also the value of the load balancer's label `group`, so that the Services of the
/// group can be found from this label. `None` when the Service has neither annotation.
pub(in crate::hetzner) fn key(
    namespace: &str,
    annotations: &mut dyn Iterator<Item = (&str, &str)>,
) -> Option<String> {
    let set = annotations.filter_map(|(key, value)| {
        let (name, value) = (key.strip_prefix(PREFIX)?, value.trim());
        let is = |annotation: &a::Annotation| name.eq_ignore_ascii_case(annotation.name);
        match (is(&a::SHARE), is(&a::EXTERNAL)) {
            _ if value.is_empty() => None,
            (true, _) => GroupName::parse(value, namespace).ok().map(GroupName::label),
            (_, true) => Some(format!("{OF_EXTERNAL}{value}")),
            _ => None,
        }
    });
    set.last()
}

/// Changes the text by which [`key`] identifies a group of Services. If it has the name of an external load balancer
/// (one that somebody else made), the name is replaced by the load balancer's ID. So Services that use the name and
/// Services that use the ID belong to the same group. When the project has no such load balancer, the text stays
/// unchanged.
pub(crate) fn known_key(key: String, balancers: Balancers) -> String {
    let named = key.strip_prefix(OF_EXTERNAL);
    let found = named.and_then(|text| external_named(text, balancers));
    found.map_or(key, |found| format!("{OF_EXTERNAL}{}", found.id))
}

/// Finds the group of Services whose load balancer has this value in the label `group`. Returns the name of the group,
/// and the Services that ask to share its load balancer. A long name is cut in the label, so the full name is read from
/// the annotation of one of these Services.
pub(crate) fn asked<'a>(
    label: &str,
    cluster: &'a Cluster,
) -> Option<(GroupName<'a>, &'a [Service])> {
    let all = cluster.groups.of_key(label);
    let share = |service: &'a Service| {
        GroupName::parse(value_of(service, &a::SHARE)?, &service.namespace).ok()
    };
    let mut shares = all.iter().filter_map(share);
    Some((shares.find(|share| share.label() == label)?, all))
}

/// Returns the load balancer with the ID `text`, or else the load balancer with the name `text`. Returns `None` when
/// there is neither.
pub(crate) fn external_named<'a>(text: &str, balancers: Balancers<'a>) -> Option<Labelled<'a>> {
    let by_id = text.parse().ok().and_then(|id| balancers.with_id(id));
    let by_id = by_id.filter(|balancer| balancer.id.to_string() == text);
    by_id.or_else(|| balancers.named(text).next())
}

/// Returns the two texts by which [`key`] identifies this external load balancer (one that somebody else made): one
/// with its ID and one with its name. Services can ask for it in both ways.
pub(crate) fn external_keys(balancer: Labelled) -> [String; 2] {
    let names = [balancer.id.to_string(), balancer.name.clone()];
    names.map(|name| format!("{OF_EXTERNAL}{name}"))
}
