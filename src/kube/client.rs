//! The client of the API server, and the calls that need no module of their own.

use super::budget::ServiceBudget;
use super::config::Access;
use super::error::KubeError;
use super::labels::ServiceScope;
use super::node_table::{Detail, NodeRow, TablePage};
use super::types::{KubeNode, ListPage, PageForm};
pub(super) use crate::http::percent_encoded;
use crate::http::{self, Method, Proxies, TryStage};
use crate::metrics::{KUBERNETES_REQUESTS, UNANSWERED};
use crate::provider::{Gate, lock};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a read may take. This is enough time for 5,000 nodes of 25 kB over a slow line.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer that is read, in bytes. The limit is twice the size of the largest list that we expect. An answer
/// is parsed while it streams in, so this limit bounds time and not memory.
const BODY_LIMIT_BYTES: u64 = 256 << 20;
/// The longest list of Services that is read as one answer, in bytes. Tenants make Services, and each Service may have
/// 1.5 MB of fields that are not read. A longer list is read in smaller parts.
const SERVICES_LIMIT_BYTES: u64 = 64 << 20;
const PAGE_ITEMS: u32 = 500;
/// After an answer that was too long, the page size is divided by this number.
const SMALLER_PAGE: u32 = 5;
/// The smallest size of a page. The largest objects that etcd takes have 1.5 MB, so a
/// page of this size fits into any limit.
const SMALLEST_PAGE_ITEMS: u32 = 20;
/// The largest number of items in a list that is read. It is ten times what Kubernetes supports.
const ITEMS_AT_MOST: u32 = 50_000;
/// How often a list is read from its beginning at most, when its `continue` token expires on the way.
const LIST_TRIES: u32 = 3;

const NODES: &str = "/api/v1/nodes";
pub(super) const JSON: &str = "application/json";
pub(super) const SERVICE_LIST: &str = "ServiceList";
/// The kind of a list that has the metadata of objects alone.
pub(super) const PARTIAL: &str = "PartialObjectMetadataList";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// The method by which the gate is asked for permission before a usual write.
pub(super) const PASS: http::Pass = <dyn Gate>::pass;
/// The method by which the gate is asked before a write at the end of the process. Such a write is an event, or the
/// release of the Lease.
pub(super) const PASS_AT_END: http::Pass = <dyn Gate>::pass_at_end;

/// The call that asks whether our user has a right, in the form in which the gate gets it. The call is a
/// POST, but changes nothing.
pub const ACCESS_REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The answer of `/version`. A missing field is empty.
#[derive(Clone, Debug, Deserialize)]
pub struct Version {
    #[serde(default)]
    pub major: String,
    /// The minor version, which may end in `+`.
    #[serde(default)]
    pub minor: String,
    /// The full version, e.g. `v1.36.2`.
    #[serde(rename = "gitVersion")]
    pub name: String,
}

/// An action that a role can allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedVerb<'a> {
    pub verb: &'a str,
    /// The API group, which is empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    /// The subresource. An empty text means the resource itself.
    pub subresource: &'a str,
    /// The namespace. An empty text means all namespaces, or a resource without namespaces.
    pub namespace: &'a str,
    /// The name of the object. An empty text means any name.
    pub name: &'a str,
}

/// The source from which a list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The API server's cache, which is cheap and may be a moment old.
    Cache,
    /// etcd, which has the current state.
    Latest,
}

/// A hash of the items of a list, by which an unchanged list is recognized. `None` means that no answer was hashed, or
/// that the list had several pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Print(Option<u64>);

/// A client of one cluster. All threads share the client.
pub struct KubeClient {
    /// Computes the hashes of lists. The keys are random, so that nobody who writes objects can make two different
    /// lists with the same hash.
    hasher: RandomState,
    http: http::HttpClient,
    namespace: Option<String>,
    origin: String,
    /// Decides which of the Services that are read are ours.
    pub scope: ServiceScope,
    /// The budget of the list that was read last. It decides which Services are above a limit.
    pub(super) budget: Mutex<ServiceBudget>,
    /// The number of items to request for a page, for each kind of list that was too long to be read in one answer.
    large_lists: Mutex<BTreeMap<String, u32>>,
}

/// A list to read. `query` is the part of the query that selects the items of the
/// list, and each of its terms begins with `&`.
#[derive(Clone, Copy)]
pub(super) struct ListOf<'a> {
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) kind: &'a str,
    pub(super) from: ReadFrom,
}

/// The result of reading one page. It has the token of the next page, which is empty after the last page, and the
/// number of bytes of the answer.
pub(super) struct PageEnd {
    pub(super) token: String,
    pub(super) bytes: u64,
}

/// The part of a list that is requested next.
struct NextPage {
    /// How many items the page may have.
    items: u32,
    /// The part of the query that says where the page begins. The text is empty for the first page.
    place: String,
}

/// The part of the query that requests the whole list from the API server's cache. The server may then ignore the limit
/// and send everything in one answer.
const WHOLE: &str = "&resourceVersion=0";

impl NextPage {
    /// Makes the next request smaller after an answer that was too long. A list that was requested in one answer
    /// is then requested in pages, and a page is then requested with fewer items. Returns false when the page
    /// cannot become smaller.
    fn shrink(&mut self) -> bool {
        if self.place == WHOLE {
            self.place.clear();
        } else if self.items > SMALLEST_PAGE_ITEMS {
            self.items /= SMALLER_PAGE;
        } else {
            return false;
        }
        true
    }
}

impl KubeClient {
    pub fn new(
        access: Access,
        proxies: Proxies,
        timing: http::Timing,
        gate: Arc<dyn Gate>,
    ) -> KubeClient {
        let (namespace, origin) = (access.namespace, access.origin);
        let http = http::HttpClient::new(http::HttpSettings {
            base: access.server,
            tls: access.tls,
            proxies: access.proxy.map_or(proxies, Proxies::Only),
            login: access.login,
            connect_timeout: CONNECT_TIMEOUT,
            timing,
            retry: http::Retry::All,
            body_limit_bytes: BODY_LIMIT_BYTES,
            log_bodies: false,
            gate,
            watch: count,
        });
        KubeClient {
            hasher: RandomState::new(),
            http,
            namespace,
            origin,
            scope: ServiceScope::default(),
            budget: Mutex::default(),
            large_lists: Mutex::default(),
        }
    }

    /// Returns a client that has no API server, for code that needs a client but makes no call.
    pub(crate) fn of_nowhere() -> KubeClient {
        let timing = http::Timing {
            read_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            retry_wait: Duration::ZERO,
        };
        KubeClient::new(
            Access::without_credentials("https://127.0.0.1:1"),
            Proxies::Never,
            timing,
            Arc::new(crate::provider::OpenGate),
        )
    }

    /// Returns the address of the API server.
    pub fn server(&self) -> &str {
        self.http.base()
    }

    /// Returns the namespace that is used for objects whose namespace the user does not give. As in kubectl, it is
    /// `default` when the context sets none.
    pub fn namespace(&self) -> &str {
        let named = self.namespace.as_deref().map(str::trim);
        named.filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// Returns where the configuration comes from, e.g. `kubeconfig /home/me/.kube/config, context prod`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns how many calls were made so far. Each try of a call adds one.
    pub fn calls(&self) -> u64 {
        self.http.calls()
    }

    /// Whether at least one call has succeeded since the client was created.
    pub fn is_reached(&self) -> bool {
        self.http.is_reached()
    }

    /// Returns all nodes, or an error when the list is not complete.
    pub fn nodes(&self, from: ReadFrom) -> Result<Vec<Arc<KubeNode>>, KubeError> {
        self.list::<ListPage<KubeNode>>(NODES, "", "NodeList", from)
    }

    /// Returns one row for each node from the API server's cache, or an error when the table is not complete. Returns
    /// `None` when the hash of the rows is still `print`, which means that no row has changed.
    pub fn node_table(
        &self,
        detail: Detail,
        print: &mut Print,
    ) -> Result<Option<Vec<NodeRow>>, KubeError> {
        let form = match detail {
            Detail::Cells => "&includeObject=None",
            Detail::Metadata => "&includeObject=Metadata",
        };
        self.list_new::<TablePage>(NODES, form, "Table", ReadFrom::Cache, print)
    }

    /// Returns a node as it is now, or `None` when the API server itself says that the node does not exist.
    pub fn node(&self, name: &str) -> Result<Option<KubeNode>, KubeError> {
        self.get_if_there(&node_path(name))
    }

    pub fn version(&self) -> Result<Version, KubeError> {
        self.get("/version")
    }

    /// Asks the API server whether our user has the right to do this.
    pub fn may(&self, verb: &AllowedVerb) -> Result<bool, KubeError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": verb },
        });
        let path = ACCESS_REVIEW.trim_start_matches("POST ");
        let answer: Value = self.write(PASS, Method::Post, path, JSON, &review)?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Returns a whole object that always exists, and that must have the field `field`.
    pub(super) fn document(&self, path: &str, field: &str) -> Result<Value, KubeError> {
        let document: Value = self.get(path)?;
        if document[field].is_null() {
            Err(self.unreadable(path, format!("the answer has no {field}")))
        } else {
            Ok(document)
        }
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, KubeError> {
        Ok(self.http.get(path)?.value)
    }

    /// Reads the metadata of one object.
    pub(super) fn get_metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, KubeError> {
        let reading = http::Reading {
            accept: &format!("{JSON};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
            ..http::Reading::JSON
        };
        Ok(self.http.get_parsed(path, reading, PhantomData)?.value)
    }

    /// Returns an object as it is now, or `None` when the API server itself says that the object does not exist.
    pub(super) fn get_if_there<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<T>, KubeError> {
        match self.get(path) {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Sends a merge patch of metadata and spec. The patch must carry `metadata.resourceVersion`.
    pub fn patch_node(&self, name: &str, patch: &impl Serialize) -> Result<KubeNode, KubeError> {
        self.write(PASS, Method::Patch, &node_path(name), MERGE_PATCH, patch)
    }

    /// Merge-patches the status. The patch must carry `metadata.resourceVersion`.
    pub fn patch_node_status(
        &self,
        name: &str,
        patch: &impl Serialize,
    ) -> Result<KubeNode, KubeError> {
        let path = format!("{}/status", node_path(name));
        self.write(PASS, Method::Patch, &path, MERGE_PATCH, patch)
    }

    /// Sets one condition of a node, which is chosen by its type, and leaves the kubelet's conditions unchanged. For
    /// this it uses a strategic merge patch, because a merge patch would replace the whole list of conditions. The
    /// patch must carry `metadata.resourceVersion`.
    pub fn patch_node_condition(&self, name: &str, patch: &Value) -> Result<KubeNode, KubeError> {
        let path = format!("{}/status", node_path(name));
        self.write(PASS, Method::Patch, &path, STRATEGIC_MERGE_PATCH, patch)
    }

    /// Deletes the node only if it still has this UID and this resource version. A new node with the same name is
    /// therefore not deleted.
    pub fn delete_node(&self, name: &str, uid: &str, version: &str) -> Result<(), KubeError> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid, "resourceVersion": version },
        });
        self.write::<IgnoredAny>(PASS, Method::Delete, &node_path(name), JSON, &options).map(drop)
    }

    pub(super) fn write<T: DeserializeOwned>(
        &self,
        pass: http::Pass,
        method: Method,
        path: &str,
        content_type: &str,
        body: &impl Serialize,
    ) -> Result<T, KubeError> {
        let write = http::HttpWrite { pass, method, path, content_type, secrets: &[] };
        Ok(self.http.write(write, Some(body))?.value)
    }

    /// Returns the objects at `path` that `query` selects (each term of the query begins with `&`), read as a list of
    /// that kind. Returns an error when the list is not complete.
    pub(super) fn list<P: PageForm>(
        &self,
        path: &str,
        query: &str,
        kind: &str,
        from: ReadFrom,
    ) -> Result<Vec<P::Item>, KubeError> {
        let list = self.list_new::<P>(path, query, kind, from, &mut Print::default());
        list.map(Option::unwrap_or_default)
    }

    /// Reads a list like [`list`](Client::list). Returns `None` when the hash of the items is still `print`, which
    /// means that no item has changed. Afterwards `print` is the hash of the new answer.
    pub(super) fn list_new<P: PageForm>(
        &self,
        path: &str,
        query: &str,
        kind: &str,
        from: ReadFrom,
        print: &mut Print,
    ) -> Result<Option<Vec<P::Item>>, KubeError> {
        let list = ListOf { path, query, kind, from };
        self.read_pages(list, print, Vec::new, |items, path, reading| {
            self.page(path, reading, PhantomData::<Option<P>>, |page| {
                page.map(|page| page.add_to(items, kind))
            })
        })
    }

    /// Reads a list page by page. `begin` makes an empty value, and `read_page` adds a page to the value, or returns
    /// `None` when the answer is `null`. When the `continue` token of the list expires on the way, the list is read
    /// again from its beginning, but only a few times. A list from the API server's cache is read in one answer, or in
    /// pages when that answer is too long.
    pub(super) fn read_pages<T>(
        &self,
        list: ListOf,
        print: &mut Print,
        begin: impl Fn() -> T,
        mut read_page: impl FnMut(&mut T, &str, http::Reading) -> Result<Option<PageEnd>, KubeError>,
    ) -> Result<Option<T>, KubeError> {
        let mut tries = 1;
        loop {
            match self.read_once(list, print, begin(), &mut read_page) {
                Err(error) if error.is_expired() && tries < LIST_TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    fn read_once<T>(
        &self,
        list: ListOf,
        print: &mut Print,
        mut so_far: T,
        read_page: &mut impl FnMut(&mut T, &str, http::Reading) -> Result<Option<PageEnd>, KubeError>,
    ) -> Result<Option<T>, KubeError> {
        let (folder, query, kind) = (list.path, list.query, list.kind);
        let known = std::mem::take(print);
        let answered = Cell::new(known);
        let is_same = || known.0.is_some() && answered.get() == known;
        let is_known = |body: &[u8]| {
            answered.set(self.print(body));
            is_same()
        };
        let accept = accepted(kind);
        let large = lock(&self.large_lists).get(kind).copied();
        let mut page = NextPage {
            items: large.unwrap_or(PAGE_ITEMS),
            place: match (list.from, large) {
                (ReadFrom::Cache, None) => WHOLE.to_owned(),
                _ => String::new(),
            },
        };
        let (mut listed, mut bytes, mut is_first) = (0, 0, true);
        while listed < ITEMS_AT_MOST {
            let path = format!("{folder}?limit={}{query}{}", page.items, page.place);
            let reading = http::Reading {
                accept: &accept,
                is_known: is_first.then_some(&is_known as &http::IsKnown),
                body_limit_bytes: Some(body_limit(kind)),
            };
            let end = match read_page(&mut so_far, &path, reading) {
                Err(error) if error.is_too_long() && page.shrink() => {
                    log::info!("{error}; reading it in pages of {}", page.items);
                    lock(&self.large_lists).insert(kind.to_owned(), page.items);
                    continue;
                }
                end => end?,
            };
            let Some(end) = end else {
                if is_same() {
                    *print = known;
                    return Ok(None);
                }
                return Err(self.unreadable(&path, format!("answered null instead of a {kind}")));
            };
            bytes += end.bytes;
            if end.token.is_empty() {
                if is_first {
                    *print = answered.get();
                }
                // When all pages together have less than half of the limit, the next read requests this list in
                // one answer again.
                if large.is_some() && bytes < body_limit(kind) / 2 {
                    lock(&self.large_lists).remove(kind);
                }
                return Ok(Some(so_far));
            }
            page.place = format!("&continue={}", percent_encoded(&end.token));
            listed += page.items;
            is_first = false;
        }
        let why = format!("the list does not end after {ITEMS_AT_MOST} items");
        Err(self.unreadable(folder, why))
    }

    /// Returns a hash of the items of an answer, which begin at the first `[` of the body. The version of the list is
    /// not hashed, because it changes even when the items do not change.
    fn print(&self, body: &[u8]) -> Print {
        let begin = body.iter().position(|byte| *byte == b'[');
        Print(begin.map(|begin| self.hasher.hash_one(&body[begin..])))
    }

    /// Reads one page. `token` is called with the parsed answer, and returns the token of the next page or the reason
    /// why the answer is not a page. `token` returns `None` when the answer is `null`.
    pub(super) fn page<P: http::Parse>(
        &self,
        path: &str,
        reading: http::Reading,
        parse: P,
        token: impl FnOnce(P::Value) -> Option<Result<String, String>>,
    ) -> Result<Option<PageEnd>, KubeError> {
        let page = self.http.get_parsed(path, reading, parse)?;
        let Some(token) = token(page.value) else {
            return Ok(None);
        };
        Ok(Some(PageEnd {
            token: token.map_err(|why| self.unreadable(path, why))?,
            bytes: page.length,
        }))
    }

    fn unreadable(&self, path: &str, why: String) -> KubeError {
        let call = format!("GET {}{path}", self.http.base());
        KubeError::Unreadable { call, why }
    }
}

/// Returns the value of the header `Accept`. An API server can send any list as `PartialObjectMetadataList` or as
/// `Table`, and does so when `Accept` names this form.
fn accepted(kind: &str) -> String {
    match kind {
        PARTIAL | "Table" => format!("{JSON};as={kind};v=v1;g=meta.k8s.io"),
        _ => JSON.to_owned(),
    }
}

/// Returns the longest answer that is read of a list of this kind. A list of
/// metadata alone is always a list of Services.
fn body_limit(kind: &str) -> u64 {
    match kind {
        SERVICE_LIST | PARTIAL => SERVICES_LIMIT_BYTES,
        _ => BODY_LIMIT_BYTES,
    }
}

fn node_path(name: &str) -> String {
    format!("{NODES}/{}", percent_encoded(name))
}

/// Returns the path of the objects of a namespace.
pub(super) fn folder(api: &str, namespace: &str, resource: &str) -> String {
    format!("/{api}/namespaces/{}/{resource}", percent_encoded(namespace))
}

/// Counts a try in the metrics, by the resource in its path.
fn count(method: Method, path: &str, stage: TryStage) {
    match stage {
        TryStage::Begun => {}
        TryStage::Ended(Ok(code), _) => {
            let (method, code) = (method.lower_name(), code.to_string());
            KUBERNETES_REQUESTS.count(&[&method, &resource(path), &code]);
        }
        TryStage::Ended(Err(kind), _) => UNANSWERED.count(&["kubernetes", kind.word()]),
    }
}

/// Turns a path into its resource, without any name: `/api/v1/nodes/worker-1/status?…` becomes `nodes/status`.
fn resource(path: &str) -> String {
    let mut segments = path.split('?').next().unwrap_or_default().split('/').skip(1);
    let version = match segments.next() {
        Some("api") => segments.next(),
        Some("apis") => segments.nth(1),
        _ => None,
    };
    let mut rest: Vec<&str> = segments.collect();
    if rest.len() > 2 && rest[0] == "namespaces" {
        rest.drain(..2);
    }
    match (version, rest.as_slice()) {
        (Some(_), [resource] | [resource, _]) => (*resource).to_owned(),
        (Some(_), [resource, _, subresource]) => format!("{resource}/{subresource}"),
        _ => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_resource() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm";
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        for (path, expected) in [
            ("/api/v1/nodes?limit=500", "nodes"),
            ("/api/v1/nodes/worker-1", "nodes"),
            ("/api/v1/nodes/worker-1/status", "nodes/status"),
            ("/api/v1/services?limit=500", "services"),
            ("/api/v1/namespaces/default/services?x=y", "services"),
            ("/api/v1/namespaces/status/services/nodes/status", "services/status"),
            ("/api/v1/namespaces/default/events", "events"),
            ("/api/v1/namespaces/default", "namespaces"),
            (lease, "leases"),
            (review, "selfsubjectaccessreviews"),
            ("/version", "other"),
            ("/api/v1", "other"),
            ("/api/v1/a/b/c/d/e/f", "other"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }
}
