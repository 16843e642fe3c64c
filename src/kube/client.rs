//! The client of the Kubernetes API server. Calls about nodes, the version and access rights are here, and also the
//! reading of lists. Calls about other kinds of objects are in their own files.

use super::budget::ServiceBudget;
use super::config::Access;
use super::error::KubeError;
use super::labels::ServiceScope;
use super::node_table::{Detail, NodeRow, NodeTableRow, TablePage};
use super::types::{KubeNode, ListPage, PageForm};
pub(super) use crate::http::percent_encoded;
use crate::http::{self, Method, Proxies, TryStage};
use crate::metrics::{KUBERNETES_REQUESTS, REST_REQUESTS, UNANSWERED};
use crate::provider::{Gate, lock};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a read may take. Over a slow network, this is enough time for 5,000 nodes of 25 kB each.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer that is read, in bytes. The limit is twice the size of the largest list that we
/// expect. An answer is parsed while it arrives and is never in memory as a whole, so this limit bounds the
/// time of a read and not its memory.
const BODY_LIMIT_BYTES: u64 = 256 << 20;
/// The longest list of Services that is read as one answer, in bytes. Users create Services, and the fields that this
/// program does not use can have 1.5 MB in each Service. A longer list is read in several pages.
const SERVICES_LIMIT_BYTES: u64 = 64 << 20;
const PAGE_ITEMS: u32 = 500;
/// When an answer was too long, the number of items on a page is divided by this number.
const SMALLER_PAGE: u32 = 5;
/// The smallest number of items that is requested on a page. An object in etcd has at most 1.5 MB, so a page with 20
/// objects has at most 30 MB. This is less than the longest answer that this program accepts for any list.
const SMALLEST_PAGE_ITEMS: u32 = 20;
/// How many items of a list are read at most. This is ten times the number of nodes that Kubernetes supports in one
/// cluster.
const ITEMS_AT_MOST: u32 = 50_000;
/// How many pods are read at most. Kubernetes supports 150,000 pods in one cluster.
const PODS_AT_MOST: u32 = 200_000;
/// How many times one list is begun at most. A list is begun again when its `continue` token expires before the last
/// page.
const LIST_TRIES: u32 = 3;

/// The arrays in answers that are never read: who has set which field, and the images on a node. They are three quarters
/// of a list of nodes.
const UNREAD: [&str; 2] = ["\"managedFields\":", "\"images\":"];

const NODES: &str = "/api/v1/nodes";
pub(super) const JSON: &str = "application/json";
pub(super) const SERVICE_LIST: &str = "ServiceList";
/// The `kind` of a list that contains only the metadata of its objects.
pub(super) const PARTIAL: &str = "PartialObjectMetadataList";
const TABLE: &str = "Table";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
/// The name that this program uses for the table of certificate requests, to treat it differently from other lists. The
/// API server's own name for the kind of every table is only `Table`.
pub(super) const SIGNING_TABLE: &str = "CertificateSigningRequestTable";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// The method of [`Gate`] that is asked before every write, except before an event or the release of the Lease. A gate
/// allows the write only while this process may write, for example while it holds the Lease.
pub(super) const PASS: http::Pass = <dyn Gate>::pass;
/// The method of [`Gate`] that is asked before an event is written or the Lease is released. A gate allows such a write
/// even when the process is already ending.
pub(super) const PASS_AT_END: http::Pass = <dyn Gate>::pass_at_end;

/// The call that asks the API server whether our user has a right. Commands that must not write have a [`Gate`] that
/// refuses writes. This gate allows the call although it is a POST, because it changes nothing.
pub const ACCESS_REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The answer of `/version`. A field that the API server did not send is an empty text.
#[derive(Clone, Debug, Deserialize)]
pub struct Version {
    #[serde(default)]
    pub major: String,
    /// The minor version of the API server. Some providers of clusters add a `+` to it, e.g. `36+`.
    #[serde(default)]
    pub minor: String,
    /// The full version of the API server, e.g. `v1.36.2`.
    #[serde(rename = "gitVersion")]
    pub name: String,
}

/// One permission in a Kubernetes role: a verb, and the objects on which the verb is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedVerb<'a> {
    pub verb: &'a str,
    /// The API group of the objects on which the verb is allowed. It is empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    /// The subresource, e.g. `status`. An empty text means the resource itself.
    pub subresource: &'a str,
    /// The namespace of the objects on which the verb is allowed. An empty text means that the verb is allowed in all
    /// namespaces, or that the resource has no namespaces.
    pub namespace: &'a str,
    /// The name of the object to which the verb may be applied. An empty text means every object.
    pub name: &'a str,
}

/// The source from which a list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The API server's cache. Such a read is cheap, and the answer can be a moment old.
    Cache,
    /// The API server reads the list from etcd. The answer has the current state.
    Latest,
}

/// The fingerprint of a list. Its hashes are `None` when none was computed, e.g. because the list had several pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Print {
    /// The hash of the items. An equal hash means that the items are unchanged.
    items: Option<u64>,
    /// The hash of the text before the items, which contains the resource version of the list. With an equal version, no
    /// object of this resource has changed, not even in fields that the list does not show.
    head: Option<u64>,
    /// The length of the answer, in bytes. The next answer probably has about the same length.
    length: usize,
}

impl Print {
    /// Whether both lists have the same resource version, so that no object has changed between them.
    pub fn has_version_of(self, other: Print) -> bool {
        self.head.is_some() && self.head == other.head
    }
}

/// A client of one cluster. All threads share the client.
pub struct KubeClient {
    /// Computes the hashes of lists. The keys are random, so that nobody who writes objects can make two different
    /// lists with the same hash.
    hasher: RandomState,
    http: http::HttpClient,
    namespace: Option<String>,
    origin: String,
    /// Decides which Services this program manages.
    pub scope: ServiceScope,
    /// Which memory limits the last list of Services has exceeded. This decides whether a Service that is read later by
    /// its name keeps its annotations and other large fields.
    pub(super) budget: Mutex<ServiceBudget>,
    /// The kinds of lists that were too long for one answer, each with the number of items that is requested on a page.
    large_lists: Mutex<BTreeMap<String, u32>>,
}

/// A list to read from the API server. `query` contains the query parameters that select the items, each with `&` at
/// its beginning.
#[derive(Clone, Copy)]
pub(super) struct ListOf<'a> {
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) kind: &'a str,
    pub(super) from: ReadFrom,
}

/// The result of reading one page: the token of the next page (empty after the last page), and the length
/// of the answer in bytes.
pub(super) struct PageEnd {
    pub(super) token: String,
    pub(super) bytes: u64,
}

/// The page of a list that is requested next.
struct NextPage {
    /// How many items the API server may put on the page at most.
    items: u32,
    /// The query parameter that says where the page begins. The text is empty for the first page.
    place: String,
}

/// The query parameter that requests the whole list from the API server's cache. The API server can then ignore the
/// limit of items and send everything in one answer.
const WHOLE: &str = "&resourceVersion=0";

impl NextPage {
    /// Makes the next request smaller after an answer that was too long. A request for the whole list becomes a request
    /// for its first page. A request for a page gets a smaller number of items. Returns `false` when the page cannot
    /// become smaller.
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
            unread: &UNREAD,
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

    /// Returns the namespace for objects for which the user gives no namespace. It is the namespace of the context, or
    /// `default` when the context sets none, as in kubectl.
    pub fn namespace(&self) -> &str {
        let named = self.namespace.as_deref().map(str::trim);
        named.filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// Returns the source of the configuration for messages, e.g. `kubeconfig /home/me/.kube/config, context prod`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns how many requests were made so far. Each try of a call counts as a request.
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

    /// Returns one row for each node, read from the API server's cache. Returns an error when the table is not
    /// complete. `print` is the hash of the rows of an earlier table. Returns `None` when the rows have the same hash
    /// now, because then no row has changed. Otherwise `print` becomes the new hash.
    pub fn node_table(
        &self,
        detail: Detail,
        print: &mut Print,
    ) -> Result<Option<Vec<NodeRow>>, KubeError> {
        let form = match detail {
            Detail::Cells => "&includeObject=None",
            Detail::Metadata => "&includeObject=Metadata",
        };
        self.list_new::<TablePage<NodeTableRow>>(NODES, form, TABLE, ReadFrom::Cache, print)
    }

    /// Returns a node as it is now. Returns `None` when the API server answers that the node does not exist. A 404 that
    /// a proxy has sent is an error.
    pub fn node(&self, name: &str) -> Result<Option<KubeNode>, KubeError> {
        self.get_if_there(&node_path(name))
    }

    pub fn version(&self) -> Result<Version, KubeError> {
        self.get("/version")
    }

    /// Asks the API server whether our user has the right to do the action `verb`.
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

    /// Returns an object with all its fields. Returns an error when the object does not exist or has no field `field`.
    pub(super) fn document(&self, path: &str, field: &str) -> Result<Value, KubeError> {
        let document: Value = self.get(path)?;
        if document[field].is_null() {
            Err(self.unreadable(path, format!("the answer has no field {field:?}")))
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

    /// Returns an object as it is now. Returns `None` when the API server answers that the object does not exist. A 404
    /// that a proxy has sent is an error.
    pub(super) fn get_if_there<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<T>, KubeError> {
        match self.get(path) {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Changes the metadata and the spec of a node by a merge patch. The patch must contain `metadata.resourceVersion`.
    pub fn patch_node(&self, name: &str, patch: &impl Serialize) -> Result<KubeNode, KubeError> {
        self.write(PASS, Method::Patch, &node_path(name), MERGE_PATCH, patch)
    }

    /// Changes the status of a node by a merge patch. The patch must contain `metadata.resourceVersion`.
    pub fn patch_node_status(
        &self,
        name: &str,
        patch: &impl Serialize,
    ) -> Result<KubeNode, KubeError> {
        let path = format!("{}/status", node_path(name));
        self.write(PASS, Method::Patch, &path, MERGE_PATCH, patch)
    }

    /// Sets the condition of a node that has the type in the patch, and leaves the other conditions unchanged. The
    /// patch is a strategic merge patch, because a merge patch would replace the whole list of conditions. The patch
    /// must contain `metadata.resourceVersion`.
    pub fn patch_node_condition(&self, name: &str, patch: &Value) -> Result<KubeNode, KubeError> {
        let path = format!("{}/status", node_path(name));
        self.write(PASS, Method::Patch, &path, STRATEGIC_MERGE_PATCH, patch)
    }

    /// Deletes the node only if it still has this UID and this resource version. A new node with the same
    /// name is not deleted.
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

    /// Returns the objects of the list at `path`. `query` contains further query parameters that select the objects,
    /// each with `&` at its beginning. Returns an error when the list is not complete, or is not of the kind `kind`.
    pub(super) fn list<P: PageForm>(
        &self,
        path: &str,
        query: &str,
        kind: &str,
        from: ReadFrom,
    ) -> Result<Vec<P::Item>, KubeError> {
        let list = ListOf { path, query, kind, from };
        self.read_items::<P>(list, None).map(Option::unwrap_or_default)
    }

    /// Reads a list from the API server, if the list has changed. `print` is the hash of the items of an earlier list.
    /// When the items have the same hash now, no item has changed, and the result is `None`. Otherwise the items are
    /// returned, and `print` becomes their hash.
    pub(super) fn list_new<P: PageForm>(
        &self,
        path: &str,
        query: &str,
        kind: &str,
        from: ReadFrom,
        print: &mut Print,
    ) -> Result<Option<Vec<P::Item>>, KubeError> {
        self.read_items::<P>(ListOf { path, query, kind, from }, Some(print))
    }

    fn read_items<P: PageForm>(
        &self,
        list: ListOf,
        print: Option<&mut Print>,
    ) -> Result<Option<Vec<P::Item>>, KubeError> {
        let kind = list.kind;
        self.read_pages(list, print, Vec::new, |items, path, reading| {
            self.page(path, reading, PhantomData::<Option<P>>, |page| {
                page.map(|page| page.add_to(items, kind))
            })
        })
    }

    /// Reads a list page by page. `begin` returns an empty list, and `read_page` reads one page and adds its items to
    /// the list. `print` is the hash of an earlier answer. When the new answer has the same hash, it is not parsed, and
    /// both `read_page` and this function return `None`. Without `print`, every answer is parsed while it arrives, which
    /// takes less memory.
    ///
    /// A list from the API server's cache is first requested in one answer. When that answer is too long, the list is
    /// read in pages instead. When the `continue` token expires before the last page, the list is read again from its
    /// beginning, but only a few times.
    pub(super) fn read_pages<T>(
        &self,
        list: ListOf,
        mut print: Option<&mut Print>,
        begin: impl Fn() -> T,
        mut read_page: impl FnMut(&mut T, &str, http::Reading) -> Result<Option<PageEnd>, KubeError>,
    ) -> Result<Option<T>, KubeError> {
        let mut tries = 1;
        loop {
            match self.read_once(list, print.as_deref_mut(), begin(), &mut read_page) {
                Err(error) if error.is_expired() && tries < LIST_TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    fn read_once<T>(
        &self,
        list: ListOf,
        print: Option<&mut Print>,
        mut so_far: T,
        read_page: &mut impl FnMut(&mut T, &str, http::Reading) -> Result<Option<PageEnd>, KubeError>,
    ) -> Result<Option<T>, KubeError> {
        let (folder, query, kind) = (list.path, list.query, list.kind);
        let mut unused = Print::default();
        let is_compared = print.is_some();
        let print = print.unwrap_or(&mut unused);
        let known = std::mem::take(print);
        let answered = Cell::new(known);
        let is_same = || known.items.is_some() && answered.get().items == known.items;
        let is_known = |body: &[u8]| {
            answered.set(self.print(body, kind));
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
        let at_most = items_at_most(kind);
        while listed < at_most {
            let path = format!("{folder}?limit={}{query}{}", page.items, page.place);
            let reading = http::Reading {
                accept: &accept,
                is_known: (is_first && is_compared).then_some(&is_known as &http::IsKnown),
                length: known.length,
                body_limit_bytes: Some(body_limit(kind)),
            };
            let end = match read_page(&mut so_far, &path, reading) {
                Err(error) if error.is_too_long() && page.shrink() => {
                    log::info!(
                        "{error}; ccm reads the list again, in pages of {} items",
                        page.items
                    );
                    lock(&self.large_lists).insert(kind.to_owned(), page.items);
                    continue;
                }
                end => end?,
            };
            let Some(end) = end else {
                if is_same() {
                    *print = answered.get();
                    return Ok(None);
                }
                return Err(self.unreadable(&path, format!("answered null instead of a {kind}")));
            };
            bytes += end.bytes;
            if end.token.is_empty() {
                if is_first {
                    *print = answered.get();
                }
                // All pages together are shorter than half of the limit for one answer. The next read therefore
                // requests the whole list in one answer again.
                if large.is_some() && bytes < body_limit(kind) / 2 {
                    lock(&self.large_lists).remove(kind);
                }
                return Ok(Some(so_far));
            }
            page.place = format!("&continue={}", percent_encoded(&end.token));
            listed += page.items;
            is_first = false;
        }
        let why = format!("the list does not end after {at_most} items, the most that ccm reads");
        Err(self.unreadable(folder, why))
    }

    /// Returns the fingerprint of the body of a list. The items begin at the first `[`, and the resource version of the
    /// list stands before them. In a table, the resource versions of the rows are left out of the hash. They change
    /// whenever a kubelet reports, and no write is based on a table.
    fn print(&self, body: &[u8], kind: &str) -> Print {
        let Some(begin) = memchr::memchr(b'[', body) else {
            return Print::default();
        };
        // A text without a version would be equal although objects have changed.
        let head = begin_of_version(&body[..begin]).filter(|at| body[*at] != b'"');
        let head = head.map(|_| self.hasher.hash_one(&body[..begin]));
        let mut hasher = self.hasher.build_hasher();
        let mut rest = &body[begin..];
        while kind == TABLE
            && let Some(version) = begin_of_version(rest)
        {
            let (before, after) = rest.split_at(version);
            hasher.write(before);
            rest = &after[memchr::memchr(b'"', after).unwrap_or_default()..];
        }
        hasher.write(rest);
        Print { items: Some(hasher.finish()), head, length: body.len() }
    }

    /// Reads one page of a list. `token` is a function that gets the parsed answer. It returns the token of the next
    /// page, or an error that says why the answer is not a page. An answer that equals an earlier answer is parsed as
    /// `null`. For such an answer, `token` returns `None`, and so does this function.
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

/// Returns the index at which the next value of a field `resourceVersion` begins.
fn begin_of_version(text: &[u8]) -> Option<usize> {
    const FIELD: &[u8] = b"\"resourceVersion\":\"";
    // The letter is rare, so few places are compared.
    const BEFORE_THE_LETTER: usize = b"\"resource".len();
    let mut letters = memchr::memchr_iter(b'V', text);
    letters.find_map(|letter| {
        let begin = letter.checked_sub(BEFORE_THE_LETTER)?;
        text[begin..].starts_with(FIELD).then_some(begin + FIELD.len())
    })
}

/// Returns the value of the header `Accept` for a list of this kind. The API server sends any list as
/// `PartialObjectMetadataList` or as `Table` when the header requests this.
fn accepted(kind: &str) -> String {
    match kind {
        PARTIAL | TABLE => format!("{JSON};as={kind};v=v1;g=meta.k8s.io"),
        SIGNING_TABLE => accepted(TABLE),
        _ => JSON.to_owned(),
    }
}

/// Returns how many bytes of a list of this kind are read at most. A list that contains only the metadata of its
/// objects has the same limit as a list of complete Services.
fn body_limit(kind: &str) -> u64 {
    match kind {
        SERVICE_LIST | PARTIAL | SIGNING_TABLE => SERVICES_LIMIT_BYTES,
        _ => BODY_LIMIT_BYTES,
    }
}

fn items_at_most(kind: &str) -> u32 {
    if kind == "PodList" { PODS_AT_MOST } else { ITEMS_AT_MOST }
}

fn node_path(name: &str) -> String {
    format!("{NODES}/{}", percent_encoded(name))
}

/// Returns the path of all objects of a resource in a namespace.
pub(super) fn folder(api: &str, namespace: &str, resource: &str) -> String {
    format!("/{api}/namespaces/{}/{resource}", percent_encoded(namespace))
}

/// Counts a finished try of a call in the metrics. One metric has the resource in the path as a label. Another one is
/// the metric of client-go, whose label is the API server's host.
fn count(base: &str, method: Method, path: &str, stage: TryStage) {
    let TryStage::Ended(outcome, _) = stage else {
        return;
    };
    let code = outcome.map_or("<error>".to_owned(), |code| code.to_string());
    REST_REQUESTS.count(&[&code, method.name(), host(base)]);
    match outcome {
        Ok(_) => KUBERNETES_REQUESTS.count(&[&method.lower_name(), &resource(path), &code]),
        Err(kind) => UNANSWERED.count(&["kubernetes", kind.word()]),
    }
}

/// Returns the host and port of a base URL, e.g. `10.0.0.1:6443`.
fn host(base: &str) -> &str {
    let authority = base.split('/').nth(2).unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Returns the resource of a path, without any name: `/api/v1/nodes/worker-1/status?…` becomes `nodes/status`.
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
    fn a_table_is_the_same_when_only_its_resource_versions_differ() {
        let client = KubeClient::of_nowhere();
        let print = |kind, text: &str| client.print(text.as_bytes(), kind).items;
        let rows = |version: &str, label: &str| {
            format!(
                r#"{{"metadata":{{"resourceVersion":"{version}"}},"rows":[{{"uid":"u","resourceVersion":"{version}","labels":{{"k":"{label}"}}}},{{"resourceVersion":"{version}"}}]}}"#
            )
        };
        let (first, newer, labelled) = (rows("7", "V"), rows("1234", "V"), rows("7", "w"));
        assert_eq!(print(TABLE, &first), print(TABLE, &newer));
        assert_ne!(print(TABLE, &first), print(TABLE, &labelled));
        assert_ne!(print(SERVICE_LIST, &first), print(SERVICE_LIST, &newer));
        // The first text ends inside of a version, and the second one contains no list.
        assert_ne!(print(TABLE, r#"[{"resourceVersion":"1"#), print(TABLE, &first));
        assert_eq!(print(TABLE, "{}"), None);
    }

    #[test]
    fn a_list_has_the_version_before_its_items() {
        let client = KubeClient::of_nowhere();
        let print = |version: &str, item: &str| {
            let text =
                format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":["{item}"]}}"#);
            client.print(text.as_bytes(), TABLE)
        };
        assert!(print("7", "a").has_version_of(print("7", "b")));
        assert!(!print("7", "a").has_version_of(print("8", "a")));
        assert!(!Print::default().has_version_of(Print::default()));
        // The API server, or a proxy, does not state the version before the items.
        assert!(!print("", "a").has_version_of(print("", "a")));
        let late = client.print(br#"{"items":[],"metadata":{"resourceVersion":"7"}}"#, TABLE);
        assert!(!late.has_version_of(late));
    }

    #[test]
    fn the_host_of_a_url_has_no_path_and_no_password() {
        for (url, expected) in [
            ("https://10.0.0.1:6443", "10.0.0.1:6443"),
            ("https://[fd00::1]:443/k8s/clusters/c-1", "[fd00::1]:443"),
            ("https://user:secret@cluster.example", "cluster.example"),
            ("cluster.example", ""),
        ] {
            assert_eq!(host(url), expected, "{url}");
        }
    }

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
