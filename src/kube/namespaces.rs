//! Reads which Namespaces have annotations that are defaults for their Services.

use super::client::{KubeClient, ListOf, PARTIAL, ReadFrom};
use super::labels::{Annotations, ServiceScope};
use super::streamed::{Collect, StreamedPage};
use crate::provider::{NamespaceAnnotations, NamespaceDefaults};
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;
use std::sync::Arc;

const NAMESPACES: &str = "/api/v1/namespaces";

/// The largest size of the annotations of all Namespaces together that is read, in bytes. Only annotations for load
/// balancers count. Of an annotation with an unknown name, only the name counts.
const BYTES_AT_MOST: usize = 1 << 20;

/// The greatest number of Namespace annotations without effect that are remembered. They are remembered so that they
/// can be reported to the user.
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
struct CollectedNamespaces<'a> {
    scope: &'a ServiceScope,
    found: NamespaceDefaults,
    /// The bytes of the annotations that were read so far, which [`BYTES_AT_MOST`] limits.
    bytes: usize,
    /// The value of `bytes` at the end of the last complete page.
    bytes_before_page: usize,
    /// Whether the list has the Namespace `default`, which always exists. A list without it is not complete.
    has_default: bool,
}

impl CollectedNamespaces<'_> {
    fn new(scope: &ServiceScope) -> CollectedNamespaces<'_> {
        let found = NamespaceDefaults::default();
        CollectedNamespaces { scope, found, bytes: 0, bytes_before_page: 0, has_default: false }
    }
}

impl Collect for CollectedNamespaces<'_> {
    type Item = Namespace;
    const KIND: &'static str = PARTIAL;

    /// When a page is read again after a failed try, the bytes of the failed try no longer count. Each Namespace replaces
    /// its copy from the failed try. When there were too many bytes, the Namespaces stay unread.
    fn begin_page(&mut self) {
        if self.bytes <= BYTES_AT_MOST {
            self.bytes = self.bytes_before_page;
        }
    }

    fn end_page(&mut self) {
        self.bytes_before_page = self.bytes;
    }

    fn add(&mut self, namespace: Namespace) {
        let NamespaceMeta { name, mut annotations } = namespace.metadata;
        self.has_default |= name == "default";
        annotations.select(self.scope.annotations);
        self.bytes += annotations.bytes();
        if self.bytes > BYTES_AT_MOST {
            return self.found.all.clear();
        }
        let (defaults, others): (Vec<_>, Vec<_>) =
            annotations.iter().partition(|(key, _)| self.scope.defaults.is_some_and(|is| is(key)));
        for (key, _) in others {
            let without_effect = (name.clone(), key.to_owned());
            let list = &mut self.found.without_effect;
            if list.len() < WITHOUT_EFFECT_AT_MOST && !list.contains(&without_effect) {
                list.push(without_effect);
            }
        }
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let known = match annotations.too_large() {
            Some(why) => NamespaceAnnotations::Unknown(why.into()),
            None if defaults.is_empty() => return drop(self.found.all.remove(&name)),
            None => NamespaceAnnotations::Known(defaults.into_iter().map(owned).collect()),
        };
        self.found.all.insert(name, Arc::new(known));
    }
}

impl KubeClient {
    /// Returns the annotations of all Namespaces that are defaults for Services. When they can't be read, or when the
    /// list is not complete, the result says why.
    pub fn namespace_defaults(&self) -> NamespaceDefaults {
        let list = ListOf { path: NAMESPACES, query: "", kind: PARTIAL, from: ReadFrom::Latest };
        let begin = || RefCell::new(CollectedNamespaces::new(&self.scope));
        let read = self.read_pages(list, None, begin, |found, path, reading| {
            self.page(path, reading, StreamedPage(found), |token| token)
        });
        let why = match read.map(|read| read.map(RefCell::into_inner)) {
            Ok(Some(read)) if read.bytes > BYTES_AT_MOST => format!(
                "the annotations of all Namespaces have more than {BYTES_AT_MOST} bytes together; remove some of them"
            ),
            Ok(Some(read)) if read.has_default => return read.found,
            Ok(_) => {
                "the API server's list of Namespaces is incomplete (no Namespace is named \"default\")".to_owned()
            }
            Err(error) if error.is_forbidden() => {
                let apply = "kubectl apply -k manifests/components/namespace-defaults";
                format!(
                    "{error}: run {apply}, or set namespaceDefaults: true in the values of the chart"
                )
            }
            Err(error) => error.to_string(),
        };
        NamespaceDefaults { unread: Some(why.into()), ..NamespaceDefaults::default() }
    }
}

/// Returns the defaults of Namespaces that were read from manifests. The result is empty when a setting turns the
/// defaults off. The error says why one of the manifests is not a Namespace.
pub fn defaults_of_manifests(
    manifests: &[Value],
    scope: &ServiceScope,
) -> Result<NamespaceDefaults, String> {
    let mut all = CollectedNamespaces::new(scope);
    for manifest in manifests.iter().filter(|_| scope.defaults.is_some()) {
        let namespace = Namespace::deserialize(manifest);
        all.add(namespace.map_err(|error| format!("not a valid Namespace: {error}"))?);
    }
    Ok(all.found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::kube::labels::ServiceScope;
    use serde_json::json;

    /// The first try of a page fails after most of the page was read. Together, both tries have more bytes than the
    /// limit, but the Namespaces do not.
    #[test]
    fn a_page_that_is_read_again_counts_once() {
        let scope = ServiceScope::default();
        let mut all = CollectedNamespaces::new(&scope);
        for _ in 0..2 {
            all.begin_page();
            all.bytes += BYTES_AT_MOST * 2 / 3;
        }
        all.end_page();
        let namespace = json!({ "metadata": { "name": "default" } });
        all.add(Namespace::deserialize(&namespace).unwrap());
        assert!(all.bytes <= BYTES_AT_MOST, "{}", all.bytes);
    }
}
