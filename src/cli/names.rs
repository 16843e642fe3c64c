//! The words by which a user can name an object: its name, or `KIND/NAME`. When no object has that name, the word can
//! also be the ID, the name or an address of the object in the cloud. This module calls no API.

use super::output::{CommandFailure, Printer};
use crate::settings::{all_nearest, one_of};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// When several known names are equally similar to an unknown name, the error suggests at most this many of them.
const NEAREST_AT_MOST: usize = 3;

/// A kind of Kubernetes objects, and how commands refer to it.
pub(super) struct ObjectKind {
    /// The words that a user can write as `KIND` in `KIND/NAME`. The messages of ccm use the first of these words.
    pub(super) prefixes: [&'static str; 3],
    /// The command that lists all objects of the kind.
    list: &'static str,
}

pub(super) const NODES: ObjectKind =
    ObjectKind { prefixes: ["node", "nodes", "no"], list: "ccm node list" };

pub(super) const SERVICES: ObjectKind =
    ObjectKind { prefixes: ["service", "services", "svc"], list: "ccm lb list" };

/// Returns the full names of the objects that the user's words name. An error is printed for each word that does not
/// name exactly one object.
///
/// `in_cloud` returns the objects together with their IDs, names and addresses in the cloud. It is called at most
/// once, and only when a word is not the name of a Kubernetes object. `none` is called for a word that names no
/// object. It returns a description of what does not exist, for the error message, e.g. `Service default/web of
/// type LoadBalancer`.
pub(super) fn resolve(
    kind: &ObjectKind,
    words: &[String],
    namespace: Option<&str>,
    mut known: Vec<KnownObject>,
    mut in_cloud: impl FnMut() -> Result<Vec<KnownObject>, CommandFailure>,
    none: impl Fn(&Word) -> String,
) -> Result<BTreeSet<String>, CommandFailure> {
    let (mut names, mut exit, mut is_whole) = (BTreeSet::new(), Ok(()), false);
    for text in words {
        let word = Word { kind, text, namespace };
        let mut found = word.find(&known);
        // A word with a slash can't be an ID, name or address in the cloud, unless it is a provider ID such as
        // `hcloud://1`.
        let may_be = !word.bare().contains('/') || word.bare().contains("://");
        if found.is_empty() && may_be && !is_whole {
            is_whole = true;
            known.extend(in_cloud()?);
            found = word.find(&known);
        }
        match found.len() {
            1 => names.append(&mut found),
            0 => exit = Err(Printer::failure(word.none(&none(&word), &known))),
            _ => exit = Err(Printer::failure(word.ambiguous(&found))),
        }
    }
    exit.map(|()| names).map_err(CommandFailure::Shown)
}

/// An existing object that a user can name, e.g. a node or a Service.
#[derive(Debug)]
pub(super) struct KnownObject {
    /// The name of the object. The name of a Service includes its namespace, e.g. `default/web`.
    pub(super) name: String,
    /// The object's IDs, names and addresses in the cloud. When this list has an IP range, every address of the range
    /// names the object.
    pub(super) others: Vec<String>,
}

impl KnownObject {
    pub(super) fn new(name: &str) -> KnownObject {
        KnownObject { name: name.to_owned(), others: Vec::new() }
    }
}

/// A word that a user typed to name an object. The object has the kind `kind`.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) kind: &'a ObjectKind,
    pub(super) text: &'a str,
    /// The namespace in which an object is looked up when the user typed its name without a namespace. `None` when
    /// objects of this kind have no namespace.
    pub(super) namespace: Option<&'a str>,
}

impl<'a> Word<'a> {
    /// Returns the word without the prefix `KIND/`.
    pub(super) fn bare(&self) -> &'a str {
        match self.text.split_once('/') {
            Some((prefix, rest)) if self.kind.prefixes.contains(&prefix) => rest,
            _ => self.text,
        }
    }

    /// Returns the full names that the word can mean. A word such as `service/web` has two meanings: the Service `web`,
    /// or a Service in a namespace that is called `service`. The result is empty when the word has no valid form of a
    /// name.
    pub(super) fn readings(&self) -> BTreeSet<String> {
        let full = |text: &str| {
            let is_whole = |part: &str| !part.is_empty() && !part.contains('/');
            match (self.namespace, text.split_once('/')) {
                (Some(_), Some((of, name))) if is_whole(of) && is_whole(name) => Some(text.into()),
                (Some(namespace), None) if is_whole(text) => Some(format!("{namespace}/{text}")),
                (None, None) if is_whole(text) => Some(text.into()),
                _ => None,
            }
        };
        [self.text, self.bare()].into_iter().filter_map(full).collect()
    }

    /// Returns the full names of the known objects that the user's word can mean. The word is first compared with the
    /// names of objects in Kubernetes. It is compared with IDs, names and addresses in the cloud only when no object
    /// has this name.
    fn find(&self, known: &[KnownObject]) -> BTreeSet<String> {
        let (bare, readings) = (self.bare(), self.readings());
        let address: Option<IpAddr> = bare.parse().ok();
        let is_called = |other: &String| match (address, other.parse::<IpNet>()) {
            (Some(address), Ok(range)) => range.contains(&address),
            (Some(address), Err(_)) => other.parse() == Ok(address),
            (None, _) => other == bare,
        };
        let own = known.iter().filter(|known| readings.contains(&known.name));
        let mut found = Vec::from_iter(own);
        if found.is_empty() {
            found.extend(known.iter().filter(|known| known.others.iter().any(is_called)));
        }
        found.into_iter().map(|known| known.name.clone()).collect()
    }

    /// Returns the error for a word that names no object. The error suggests existing objects with similar names.
    /// `what` describes the object that does not exist.
    fn none(&self, what: &str, known: &[KnownObject]) -> String {
        fn last(name: &str) -> &str {
            name.rsplit('/').next().unwrap_or(name)
        }
        let names: BTreeSet<&str> = known.iter().map(|known| known.name.as_str()).collect();
        let names = || names.iter().copied();
        let mut near = all_nearest(self.bare(), names());
        if near.is_empty() {
            // The user may have meant an object in another namespace. So the typed name is now compared with the known
            // names without their namespaces.
            let meant = all_nearest(last(self.bare()), names().map(last));
            near = names().filter(|name| meant.contains(&last(name))).collect();
        }
        near.truncate(NEAREST_AT_MOST);
        let hint = match near.as_slice() {
            [] if known.is_empty() => "; the cluster has none".to_owned(),
            [] => {
                let (list, count, kind) = (self.kind.list, names().count(), self.kind.prefixes[1]);
                format!("; {list} shows all {count} {kind}")
            }
            near => format!("; did you mean {}?", one_of(near)),
        };
        format!("there is no {what}{hint}")
    }

    /// Returns the error for a word that names several objects and should name one.
    fn ambiguous(&self, found: &BTreeSet<String>) -> String {
        let prefix = self.kind.prefixes[0];
        let found: Vec<String> = found.iter().map(|name| format!("{prefix}/{name}")).collect();
        format!("{:?} names {} objects: write {}", self.text, found.len(), one_of(&found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(objects: &[(&str, &[&str])]) -> Vec<KnownObject> {
        let known = objects.iter().map(|(name, others)| KnownObject {
            name: (*name).to_owned(),
            others: others.iter().map(|other| (*other).to_owned()).collect(),
        });
        known.collect()
    }

    #[test]
    fn services() {
        let known = known(&[
            ("default/web", &["101", "front", "203.0.113.4", "2001:db8::1"]),
            ("shop/web", &["102", "web", "203.0.113.5", "10.0.0.9"]),
            ("shop/api", &["103", "api", "203.0.113.6", "10.0.0.9"]),
            ("svc/web", &["104", "104.svc", "203.0.113.7"]),
            ("shop/front", &[]),
        ]);
        // Each case has the assumed namespace, the word that a user typed, and the Services that this word names.
        for (namespace, text, named) in [
            ("default", "default/web", &["default/web"] as &[&str]),
            ("default", "shop/web", &["shop/web"]),
            // The typed word `web` is the name of the Service `default/web`. It is also the name of the load balancer
            // of `shop/web`, but the name of a Service takes precedence.
            ("default", "web", &["default/web"]),
            ("shop", "web", &["shop/web"]),
            ("shop", "front", &["shop/front"]),
            ("default", "front", &["default/web"]),
            ("shop", "svc/api", &["shop/api"]),
            ("shop", "service/api", &["shop/api"]),
            ("shop", "services/api", &["shop/api"]),
            ("default", "svc/shop/web", &["shop/web"]),
            ("default", "service/svc/web", &["svc/web"]),
            // `svc` can be the kind or a namespace, so the word names two Services.
            ("default", "svc/web", &["default/web", "svc/web"]),
            ("default", "svc/api", &["shop/api"]),
            ("default", "101", &["default/web"]),
            ("default", "svc/101", &["default/web"]),
            ("default", "203.0.113.4", &["default/web"]),
            ("default", "2001:0db8:0:0::1", &["default/web"]),
            ("default", "10.0.0.9", &["shop/api", "shop/web"]),
            ("default", "10", &[]),
            ("default", "203.0.113.44", &[]),
            ("default", "node/web", &[]),
            ("default", "other/101", &[]),
            ("default", "a/b/c", &[]),
            ("default", "/web", &[]),
            ("default", "svc/", &[]),
            ("default", "", &[]),
        ] {
            let word = Word { kind: &SERVICES, text, namespace: Some(namespace) };
            let named: BTreeSet<String> = named.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(word.find(&known), named, "{text} in {namespace}");
        }
    }

    #[test]
    fn nodes() {
        let known = known(&[
            ("worker-1", &["1001", "worker-1", "203.0.113.4", "2001:db8:1::/64", "10.0.0.2"]),
            ("worker-2", &["1002", "worker-1", "203.0.113.5", "10.0.0.3"]),
            ("1001", &["1003", "renamed"]),
            ("metal-1", &["321", "hrobot://321"]),
        ]);
        for (text, named) in [
            ("worker-1", &["worker-1"] as &[&str]),
            ("node/worker-1", &["worker-1"]),
            ("nodes/worker-2", &["worker-2"]),
            ("no/worker-2", &["worker-2"]),
            ("1002", &["worker-2"]),
            ("1001", &["1001"]),
            ("renamed", &["1001"]),
            ("10.0.0.2", &["worker-1"]),
            ("2001:db8:1::77", &["worker-1"]),
            ("node/203.0.113.5", &["worker-2"]),
            ("hrobot://321", &["metal-1"]),
            ("321", &["metal-1"]),
            ("svc/worker-1", &[]),
            ("default/worker-1", &[]),
            ("node/", &[]),
        ] {
            let word = Word { kind: &NODES, text, namespace: None };
            let named: BTreeSet<String> = named.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(word.find(&known), named, "{text}");
        }
    }

    #[test]
    fn those_that_may_be_meant() {
        let known = known(&[("default/web", &[]), ("shop/frontend", &[]), ("ops/web", &[])]);
        for (text, hint) in [
            ("default/wbe", "; did you mean default/web?"),
            ("kube-system/web", "; did you mean default/web or ops/web?"),
            ("frontend", "; did you mean shop/frontend?"),
            ("svc/fronted", "; did you mean shop/frontend?"),
            ("else", "; ccm lb list shows all 3 services"),
        ] {
            let word = Word { kind: &SERVICES, text, namespace: Some("kube-system") };
            assert_eq!(word.none("such", &known), format!("there is no such{hint}"));
        }
        let word = Word { kind: &SERVICES, text: "svc/web", namespace: Some("default") };
        let found = ["default/web".to_owned(), "svc/web".to_owned()].into();
        let why = "\"svc/web\" names 2 objects: write service/default/web or service/svc/web";
        assert_eq!(word.ambiguous(&found), why);
        assert_eq!(word.none("such", &[]), "there is no such; the cluster has none");
    }
}
