//! Reads which Namespaces have annotations that are defaults for their Services.

use super::client::{KubeClient, ListOf, PARTIAL, Print, ReadFrom};
use super::error::KubeError;
use super::labels::{Annotations, ServiceScope};
use super::streamed::{Collect, StreamedPage};
use crate::provider::{AnnotationKind, NamespaceAnnotations, NamespaceDefaults};
use crate::text::shell_command;
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;

const NAMESPACES: &str = "/api/v1/namespaces";

/// The largest size of the annotations of all Namespaces together that is read, in bytes. Annotations that are no
/// defaults do not count.
const BYTES_AT_MOST: usize = 1 << 20;

/// How many annotations without effect are kept, so that they can be reported.
const WITHOUT_EFFECT_AT_MOST: usize = 20;

/// The metadata of a Namespace.
#[derive(Deserialize)]
struct Namespace {
    metadata: NamespaceMeta,
}

#[derive(Deserialize)]
struct NamespaceMeta {
    name: String,
    #[serde(default)]
    annotations: Annotations,
}

/// What was read so far from a list of Namespaces.
struct CollectedNamespaces {
    kind_of: Option<fn(&str) -> AnnotationKind>,
    is_default: fn(&str) -> bool,
    found: NamespaceDefaults,
    bytes: usize,
    /// Whether the list has the Namespace `default`, which always exists. A list without it is not complete.
    has_default: bool,
}

impl CollectedNamespaces {
    fn new(scope: &ServiceScope, is_default: fn(&str) -> bool) -> CollectedNamespaces {
        CollectedNamespaces {
            kind_of: scope.annotations,
            is_default,
            found: NamespaceDefaults::default(),
            bytes: 0,
            has_default: false,
        }
    }
}

impl Collect for CollectedNamespaces {
    type Item = Namespace;
    const KIND: &'static str = PARTIAL;

    /// Nothing has to be prepared when a page is read again after a failed try, because a Namespace that is read a
    /// second time replaces itself. Its bytes then count twice, which does no harm.
    fn begin_page(&mut self) {}

    fn end_page(&mut self) {}

    fn add(&mut self, namespace: Namespace) {
        let NamespaceMeta { name, mut annotations } = namespace.metadata;
        self.has_default |= name == "default";
        annotations.select(self.kind_of);
        self.bytes += annotations.bytes();
        if self.bytes > BYTES_AT_MOST {
            return self.found.all.clear();
        }
        let (defaults, others): (Vec<_>, Vec<_>) =
            annotations.iter().partition(|(key, _)| (self.is_default)(key));
        for (key, _) in others {
            let without_effect = (name.clone(), key.to_owned());
            let list = &mut self.found.without_effect;
            if list.len() < WITHOUT_EFFECT_AT_MOST && !list.contains(&without_effect) {
                list.push(without_effect);
            }
        }
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let known = match annotations.too_large() {
            Some(why) => NamespaceAnnotations::Unknown(why),
            None if defaults.is_empty() => return drop(self.found.all.remove(&name)),
            None => NamespaceAnnotations::Known(defaults.into_iter().map(owned).collect()),
        };
        self.found.all.insert(name, known);
    }
}

impl KubeClient {
    /// Returns the annotations of all Namespaces that are defaults for Services. When they can't be read, or when the
    /// list is not complete, the result says why. `None` when a setting turns these defaults off. No call is made then.
    pub fn namespace_defaults(&self) -> Option<NamespaceDefaults> {
        let is_default = self.scope.defaults?;
        let (path, from) = (NAMESPACES, ReadFrom::Latest);
        let begin = || RefCell::new(CollectedNamespaces::new(&self.scope, is_default));
        let list = ListOf { path, query: "", kind: PARTIAL, from };
        let read = self.read_pages(list, &mut Print::default(), begin, |found, path, reading| {
            self.page(path, reading, StreamedPage(found), |token| token)
        });
        let unread = |why| NamespaceDefaults { unread: Some(why), ..NamespaceDefaults::default() };
        Some(match read {
            Err(error) => unread(without_namespace_rights(&error)),
            Ok(None) => unread("the list of Namespaces is empty".to_owned()),
            Ok(Some(read)) => {
                let read = read.into_inner();
                if read.bytes > BYTES_AT_MOST {
                    unread(format!(
                        "the annotations of all Namespaces have more than {BYTES_AT_MOST} bytes together: remove some"
                    ))
                } else if read.has_default {
                    read.found
                } else {
                    unread("the list of Namespaces lacks default, which always exists".to_owned())
                }
            }
        })
    }
}

/// Returns the defaults of Namespaces that were read from manifests. The result is empty when a setting turns the
/// defaults off. The error says why one of the manifests is no Namespace.
pub fn defaults_of_manifests(
    manifests: &[Value],
    scope: &ServiceScope,
) -> Result<NamespaceDefaults, String> {
    let Some(is_default) = scope.defaults else {
        return Ok(NamespaceDefaults::default());
    };
    let mut all = CollectedNamespaces::new(scope, is_default);
    for manifest in manifests {
        let namespace = Namespace::deserialize(manifest);
        all.add(namespace.map_err(|error| format!("not a valid Namespace: {error}"))?);
    }
    Ok(all.found)
}

/// Returns the message for the user when the Namespaces can't be read. When a right is missing, the message says how to
/// get it.
pub fn without_namespace_rights(error: &KubeError) -> String {
    if !error.is_forbidden() {
        return error.to_string();
    }
    let apply = shell_command("kubectl apply -k", &[&"manifests/components/namespace-defaults"]);
    format!("{error}: run {apply}, or set namespaceDefaults: true in the values of the chart")
}
