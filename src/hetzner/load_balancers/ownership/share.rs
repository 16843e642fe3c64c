//! Groups of Services that share a load balancer: the names of groups, and the Services that belong to each group.

use super::index::Balancers;
use super::labels::Labelled;
use super::names::label_value;
use crate::hetzner::load_balancers::annotations::parser::value_of;
use crate::hetzner::load_balancers::annotations::{self as a, PREFIX};
use crate::provider::{Cluster, Service};
use crate::text::is_label;

/// The start of the text that [`key`] returns for an external load balancer. The ID or name of the
/// load balancer follows.
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
            Err("write NAME or NAMESPACE/NAME, each of lower-case letters, digits and dashes"
                .to_owned())
        }
    }

    /// Returns the Services that may share the load balancer. `all` are the Services that ask for it.
    pub(crate) fn members(self, all: &[Service]) -> impl Iterator<Item = &Service> {
        let guests = self.guests(all);
        all.iter().filter(move |service| self.is_open_to(&service.namespace, &guests))
    }

    /// Whether Services of this namespace may share the load balancer. `all` are the Services that ask for it.
    pub(crate) fn allows(self, namespace: &str, all: &[Service]) -> bool {
        self.is_open_to(namespace, &self.guests(all))
    }

    /// Returns the namespaces that may share the load balancer, according to the annotations of the Services in the
    /// group's own namespace.
    fn guests(self, all: &[Service]) -> Vec<&str> {
        let hosts = all.iter().filter(|service| service.namespace == self.namespace);
        let lists = hosts.filter_map(|service| value_of(service, &a::SHARE_NAMESPACES));
        lists.flat_map(|list| list.split(',')).map(str::trim).collect()
    }

    /// Returns the value of the load balancer's label `group`.
    pub(crate) fn label(self) -> String {
        label_value(&format!("{}.{}", self.namespace, self.name))
    }

    fn is_open_to(self, namespace: &str, guests: &[&str]) -> bool {
        let mut guests = guests.iter();
        namespace == self.namespace || guests.any(|guest| *guest == "*" || *guest == namespace)
    }
}

/// Returns the key of the group to which a Service belongs by its annotations. The key is equal for all Services of the
/// group; see `LoadBalancers::group`. The key for a shared load balancer is the value of the load balancer's label
/// `group`, so that the Services of the group are found from the label.
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

/// Replaces the name of an external load balancer in a group's key by its ID. Services that name this load balancer by
/// its name and Services that name it by its ID thereby get the same key. The key stays unchanged when the project has
/// no such load balancer.
pub(crate) fn known_key(key: String, balancers: Balancers) -> String {
    let named = key.strip_prefix(OF_EXTERNAL);
    let found = named.and_then(|text| external_named(text, balancers));
    found.map_or(key, |found| format!("{OF_EXTERNAL}{}", found.id))
}

/// Returns the name of the group whose label has this value, and the Services that ask for its load balancer. The name
/// is read from the annotation of one of these Services, because a long name is cut in the label.
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

/// Returns the load balancer whose ID is this text, or else the load balancer whose name is this text.
pub(crate) fn external_named<'a>(text: &str, balancers: Balancers<'a>) -> Option<Labelled<'a>> {
    let by_id = text.parse().ok().and_then(|id| balancers.with_id(id));
    let by_id = by_id.filter(|balancer| balancer.id.to_string() == text);
    by_id.or_else(|| balancers.named(text).next())
}

/// Returns the two group keys under which Services may ask for this external load balancer. One key has the load
/// balancer's ID, the other its name; see [`key`].
pub(crate) fn external_keys(balancer: Labelled) -> [String; 2] {
    let names = [balancer.id.to_string(), balancer.name.clone()];
    names.map(|name| format!("{OF_EXTERNAL}{name}"))
}
