//! The calls we make.

use super::config::Access;
use super::error::Error;
use super::labels::ServiceScope;
use super::node_table::{Detail, NodeRow, TablePage};
use super::types::{ListPage, Node, Page};
pub(super) use crate::http::percent_encoded;
use crate::http::{self, Method, Proxies, Stage};
use crate::metrics::{KUBERNETES_REQUESTS, UNANSWERED};
use crate::provider::Gate;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A read may take this long: 5,000 nodes of 25 kB over a slow line.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Twice the largest list we expect; it streams, so this bounds time and not memory.
const BODY_LIMIT_BYTES: u64 = 256 << 20;
const PAGE_ITEMS: u32 = 500;
/// 50,000 objects: ten times what Kubernetes supports.
const PAGES_AT_MOST: u32 = 100;
/// How often a list is begun anew when its `continue` token expired on the way.
const LIST_TRIES: u32 = 3;

const NODES: &str = "/api/v1/nodes";
pub(super) const JSON: &str = "application/json";
/// The kind of a list of metadata alone.
pub(super) const PARTIAL: &str = "PartialObjectMetadataList";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// What the gate is asked before a write.
pub(super) const PASS: http::Pass = <dyn Gate>::pass;
/// The same for what belongs to the end of the process: events, and the release of the Lease.
pub(super) const PASS_AT_END: http::Pass = <dyn Gate>::pass_at_end;

/// As the gate is asked: a question in the form of a write, which changes nothing.
pub const ACCESS_REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// `/version`. What is missing is empty.
#[derive(Clone, Debug, Deserialize)]
pub struct Version {
    #[serde(default)]
    pub major: String,
    /// May end in `+`.
    #[serde(default)]
    pub minor: String,
    /// E.g. `v1.36.2`.
    #[serde(rename = "gitVersion")]
    pub name: String,
}

/// Something that a role allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verb<'a> {
    pub verb: &'a str,
    /// Empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    /// Empty: the resource itself.
    pub subresource: &'a str,
    /// Empty: in all of them, or the resource has none.
    pub namespace: &'a str,
    /// Empty: of any name.
    pub name: &'a str,
}

/// Where a list is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The API server's cache: cheap, and possibly a moment old.
    Cache,
    /// etcd: what is true now.
    Latest,
}

/// By which the items of a list are known again; none: of no answer, or of one that was not a single page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Print(Option<u64>);

/// A client of one cluster. Shared by all threads.
pub struct Client {
    /// Of prints: with keys of its own, so that no one who writes objects can make two lists that have the same.
    hasher: RandomState,
    http: http::Client,
    namespace: Option<String>,
    origin: String,
    pub(super) scope: ServiceScope,
}

impl Client {
    pub fn new(
        access: Access,
        proxies: Proxies,
        timing: http::Timing,
        gate: Arc<dyn Gate>,
    ) -> Client {
        let (namespace, origin) = (access.namespace, access.origin);
        let http = http::Client::new(http::Settings {
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
        Client {
            hasher: RandomState::new(),
            http,
            namespace,
            origin,
            scope: ServiceScope::default(),
        }
    }

    /// Which Services are ours, of those that are read from then on.
    pub fn set_scope(&mut self, scope: ServiceScope) {
        self.scope = scope;
    }

    /// One that reaches no API server, where no call is made.
    pub(crate) fn of_nowhere() -> Client {
        let timing = http::Timing {
            read_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            retry_wait: Duration::ZERO,
        };
        Client::new(
            Access::without_credentials("https://127.0.0.1:1"),
            Proxies::Never,
            timing,
            Arc::new(crate::provider::OpenGate),
        )
    }

    /// Address of the API server.
    pub fn server(&self) -> &str {
        self.http.base()
    }

    /// Of objects that are named without one, as in kubectl.
    pub fn namespace(&self) -> &str {
        let named = self.namespace.as_deref().map(str::trim);
        named.filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// Where the configuration comes from, e.g. `kubeconfig /home/me/.kube/config, context prod`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Calls made so far, every try counted.
    pub fn calls(&self) -> u64 {
        self.http.calls()
    }

    /// A call has succeeded since the start.
    pub fn is_reached(&self) -> bool {
        self.http.is_reached()
    }

    /// All nodes: complete, or an error.
    pub fn nodes(&self, from: ReadFrom) -> Result<Vec<Arc<Node>>, Error> {
        self.list::<ListPage<Node>>(NODES, "", "NodeList", from)
    }

    /// A row for each node, from the API server's cache: complete, or an error. None: as in the answer with this print.
    pub fn node_table(
        &self,
        detail: Detail,
        print: &mut Print,
    ) -> Result<Option<Vec<NodeRow>>, Error> {
        let form = match detail {
            Detail::Cells => "&includeObject=None",
            Detail::Metadata => "&includeObject=Metadata",
        };
        self.list_new::<TablePage>(NODES, form, "Table", ReadFrom::Cache, print)
    }

    /// One node as it is now; none when the API server itself says that it is not there.
    pub fn node(&self, name: &str) -> Result<Option<Node>, Error> {
        self.get_if_there(&node_path(name))
    }

    pub fn version(&self) -> Result<Version, Error> {
        self.get("/version")
    }

    /// May the user that we log in as do this?
    pub fn may(&self, verb: &Verb) -> Result<bool, Error> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": verb },
        });
        let path = ACCESS_REVIEW.trim_start_matches("POST ");
        let answer: Value = self.write(PASS, Method::Post, path, JSON, &review)?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Something that is always there, whole, with a field that it must have.
    pub(super) fn document(&self, path: &str, field: &str) -> Result<Value, Error> {
        let document: Value = self.get(path)?;
        match document[field].is_null() {
            true => Err(self.unreadable(path, format!("the answer has no {field}"))),
            false => Ok(document),
        }
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        Ok(self.http.get(path)?.value)
    }

    /// Metadata of one object; the same error when it is not there.
    pub(super) fn get_metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let accept = format!("{JSON};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
        Ok(self.http.get_as(path, &accept)?.value)
    }

    /// One object as it is now; none when the API server itself says that it is not there.
    pub(super) fn get_if_there<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Error> {
        match self.get(path) {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Merge-patches metadata and spec. The patch must carry `metadata.resourceVersion`.
    pub fn patch_node(&self, name: &str, patch: &impl Serialize) -> Result<Node, Error> {
        self.write(PASS, Method::Patch, &node_path(name), MERGE_PATCH, patch)
    }

    /// Merge-patches the status. The patch must carry `metadata.resourceVersion`.
    pub fn patch_node_status(&self, name: &str, patch: &impl Serialize) -> Result<Node, Error> {
        let path = format!("{}/status", node_path(name));
        self.write(PASS, Method::Patch, &path, MERGE_PATCH, patch)
    }

    /// Sets one condition, by its type, and leaves the kubelet's as they are: a merge patch would
    /// replace the list. The patch must carry `metadata.resourceVersion`.
    pub fn patch_node_condition(&self, name: &str, patch: &Value) -> Result<Node, Error> {
        let path = format!("{}/status", node_path(name));
        self.write(PASS, Method::Patch, &path, STRATEGIC_MERGE_PATCH, patch)
    }

    /// Deletes this node, at this version, and no other that came to carry its name.
    pub fn delete_node(&self, name: &str, uid: &str, version: &str) -> Result<(), Error> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid, "resourceVersion": version },
        });
        self.write::<IgnoredAny>(PASS, Method::Delete, &node_path(name), JSON, &options)
            .map(drop)
    }

    pub(super) fn write<T: DeserializeOwned>(
        &self,
        pass: http::Pass,
        method: Method,
        path: &str,
        content_type: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let reply = self
            .http
            .write(pass, method, path, content_type, Some(body))?;
        Ok(reply.value)
    }

    /// All objects at `path`, of those that `query` selects (each part of it begins with `&`), as a list of that kind:
    /// complete, or an error. Begun anew a few times when the `continue` token expires on the way.
    pub(super) fn list<P: Page>(
        &self,
        path: &str,
        query: &str,
        kind: &str,
        from: ReadFrom,
    ) -> Result<Vec<P::Item>, Error> {
        let list = self.list_new::<P>(path, query, kind, from, &mut Print::default());
        list.map(Option::unwrap_or_default)
    }

    /// The same; none: its items are those of the answer with this print, which becomes that of the new answer.
    pub(super) fn list_new<P: Page>(
        &self,
        path: &str,
        query: &str,
        kind: &str,
        from: ReadFrom,
        print: &mut Print,
    ) -> Result<Option<Vec<P::Item>>, Error> {
        let mut tries = 1;
        loop {
            match self.list_once::<P>(path, query, kind, from, print) {
                Err(error) if error.is_expired() && tries < LIST_TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    fn list_once<P: Page>(
        &self,
        path: &str,
        query: &str,
        kind: &str,
        from: ReadFrom,
        print: &mut Print,
    ) -> Result<Option<Vec<P::Item>>, Error> {
        let known = std::mem::take(print);
        let answered = Cell::new(known);
        let is_known = |body: &[u8]| {
            answered.set(self.print(body));
            known.0.is_some() && answered.get() == known
        };
        // Forms that every object has if they are asked for.
        let accept = match kind {
            PARTIAL | "Table" => &format!("{JSON};as={kind};v=v1;g=meta.k8s.io"),
            _ => JSON,
        };
        let mut items = Vec::new();
        // With resourceVersion=0 the server may ignore the limit: everything comes in one answer.
        let mut place = match from {
            ReadFrom::Cache => "&resourceVersion=0".to_owned(),
            ReadFrom::Latest => String::new(),
        };
        for number in 1..=PAGES_AT_MOST {
            let path = format!("{path}?limit={PAGE_ITEMS}{query}{place}");
            let is_known: Option<&http::IsKnown> = (number == 1).then_some(&is_known);
            let page: Option<P> = self.http.get_new(&path, accept, is_known)?.value;
            let Some(page) = page else {
                if known.0.is_some() && answered.get() == known {
                    *print = known;
                    return Ok(None);
                }
                return Err(self.unreadable(&path, format!("answered null instead of a {kind}")));
            };
            let token = page.add_to(&mut items, kind);
            let token = token.map_err(|why| self.unreadable(&path, why))?;
            if token.is_empty() {
                if number == 1 {
                    *print = answered.get();
                }
                return Ok(Some(items));
            }
            place = format!("&continue={}", percent_encoded(&token));
        }
        let why = format!("the list does not end after {PAGES_AT_MOST} pages");
        Err(self.unreadable(path, why))
    }

    /// Of an answer's items, which begin with its first bracket: the version of a list changes more often than they.
    fn print(&self, body: &[u8]) -> Print {
        let begin = body.iter().position(|byte| *byte == b'[');
        Print(begin.map(|begin| self.hasher.hash_one(&body[begin..])))
    }

    fn unreadable(&self, path: &str, why: String) -> Error {
        let call = format!("GET {}{path}", self.http.base());
        Error::Unreadable { call, why }
    }
}

fn node_path(name: &str) -> String {
    format!("{NODES}/{}", percent_encoded(name))
}

/// Where objects of a namespace are.
pub(super) fn folder(api: &str, namespace: &str, resource: &str) -> String {
    format!(
        "/{api}/namespaces/{}/{resource}",
        percent_encoded(namespace)
    )
}

/// Counts a try by its resource.
fn count(method: Method, path: &str, stage: Stage) {
    match stage {
        Stage::Begun => {}
        Stage::Ended(Ok(code), _) => {
            let (method, code) = (method.lower_name(), code.to_string());
            KUBERNETES_REQUESTS.count(&[&method, &resource(path), &code]);
        }
        Stage::Ended(Err(kind), _) => UNANSWERED.count(&["kubernetes", kind.word()]),
    }
}

/// `/api/v1/nodes/worker-1/status?…` → `nodes/status`. Never a name.
fn resource(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let mut segments = path.split('/').skip(1);
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
            (
                "/api/v1/namespaces/status/services/nodes/status",
                "services/status",
            ),
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
