//! Answers requests for single objects and for lists of objects, with their parameters for resource versions, selectors
//! and pages.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::resource::Resource;
use super::selector::{FieldSelector, LabelSelector};
use super::status::Refusal;
use super::store::{self, Object, Store};
use super::view::{ListMeta, View};
use super::{Cluster, State};
use crate::exchange::{Request, Response};

/// Snapshots of the lists that clients read in several pages. All pages after the first are read from a snapshot, so
/// that all show the same revision.
#[derive(Default)]
pub struct Pages {
    snapshots: VecDeque<Snapshot>,
}

/// All objects of one resource at one revision, in one namespace or in all namespaces.
type Objects = Arc<Vec<Arc<Object>>>;

/// The objects of one list as they were when its first page was returned. Later pages are read from this snapshot.
struct Snapshot {
    resource: &'static str,
    namespace: String,
    revision: u64,
    objects: Objects,
}

/// The largest number of snapshots. One more snapshot removes the oldest one. `continue` tokens of the removed snapshot
/// are then answered with 410, as after a compaction of etcd.
const MOST_SNAPSHOTS: usize = 64;
const TOKEN_VERSION: &str = "meta.k8s.io/v1";
/// The value of the field `rv` in the `continue` token of an answer with 410. A client gets this token when the list
/// that it was reading has expired. With the token it can read the rest of the list, but as the objects are now, and
/// not as they were when the first page was read.
const INCONSISTENT: i64 = -1;
const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start \
    a new list without the continue parameter, or use the continue token in this response to retrieve the remainder \
    of the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
    modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The content of a `continue` token.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v", default)]
    version: String,
    #[serde(rename = "rv", default)]
    revision: i64,
    /// The place at which the next page starts: a `/`, the key of the previous page's last object, and a zero byte. The
    /// next page begins with the first object whose key is not smaller than this text.
    #[serde(default)]
    start: String,
}

/// The parameters of a LIST.
struct Query {
    limit: usize,
    token: Option<Token>,
    resource_version: Option<u64>,
    exact: bool,
    labels: LabelSelector,
    fields: FieldSelector,
}

pub fn get(
    cluster: &Cluster,
    resource: &'static Resource,
    namespace: &str,
    name: &str,
    request: &Request,
) -> Result<Response, Refusal> {
    let view = View::of_object(request)?;
    let version = resource_version(request)?;
    let object = {
        let state = cluster.state();
        let store = state.store_for(version);
        check_not_ahead(version, store)?;
        store.get(resource, &store::key(namespace, name)).cloned()
    };
    let object = object.ok_or_else(|| Refusal::not_found(resource, name))?;
    Ok(view.stored(resource, &object, request))
}

pub fn list(
    cluster: &Cluster,
    resource: &'static Resource,
    namespace: &str,
    request: &Request,
) -> Result<Response, Refusal> {
    let view = View::of_list(request)?;
    let query = Query::read(resource, request)?;
    let (objects, revision) = pick(&mut cluster.state(), resource, namespace, &query)?;
    let selects = |object: &Object| {
        query.labels.matches(&object.value) && query.fields.matches(&object.value)
    };
    let from = query.token.as_ref().map_or(0, |token| {
        let start = token.start.trim_start_matches('/');
        objects.partition_point(|object| relative_key(resource, namespace, &object.key) < start)
    });
    let mut page = Vec::new();
    let mut next = from;
    for object in &objects[from..] {
        if query.limit > 0 && page.len() == query.limit {
            break;
        }
        next += 1;
        if selects(object) {
            page.push(object.clone());
        }
    }
    let mut meta = ListMeta { revision, ..ListMeta::default() };
    if let Some(last) = objects[..next].last().filter(|_| next < objects.len()) {
        let token = Token {
            version: TOKEN_VERSION.into(),
            revision: i64::try_from(revision).unwrap_or(INCONSISTENT),
            start: format!("/{}\0", relative_key(resource, namespace, &last.key)),
        };
        meta.continue_token = Some(token.encode());
        // With selectors, the number of remaining matches is not known. A list with selectors therefore has no
        // `remainingItemCount`, as in kube-apiserver.
        let unselected = query.labels.is_empty() && query.fields.is_empty();
        meta.remaining = unselected.then_some(objects.len() - next);
        cluster.state().pages.remember(resource, namespace, revision, objects.clone());
    }
    Ok(view.list(resource, page.iter().map(Arc::as_ref), &meta, request))
}

impl Pages {
    /// Removes the snapshots of all lists that clients are reading page by page. A `continue` token that belongs to one
    /// of these lists is then answered with 410.
    pub fn expire(&mut self) {
        self.snapshots.clear();
    }

    fn remember(&mut self, resource: &Resource, namespace: &str, revision: u64, objects: Objects) {
        if self.find(resource, namespace, revision).is_some() {
            return;
        }
        if self.snapshots.len() == MOST_SNAPSHOTS {
            self.snapshots.pop_front();
        }
        let namespace = namespace.to_string();
        self.snapshots.push_back(Snapshot {
            resource: resource.plural,
            namespace,
            revision,
            objects,
        });
    }

    fn find(&self, resource: &Resource, namespace: &str, revision: u64) -> Option<Objects> {
        let found = self.snapshots.iter().find(|snapshot| {
            snapshot.resource == resource.plural
                && snapshot.namespace == namespace
                && snapshot.revision == revision
        });
        found.map(|snapshot| snapshot.objects.clone())
    }
}

impl Query {
    fn read(resource: &Resource, request: &Request) -> Result<Query, Refusal> {
        let labels = LabelSelector::parse(request.query("labelSelector").unwrap_or_default())
            .map_err(Refusal::bad_request)?;
        let fields =
            FieldSelector::parse(request.query("fieldSelector").unwrap_or_default(), resource)
                .map_err(Refusal::bad_request)?;
        let limit = match request.query("limit").filter(|text| !text.is_empty()) {
            None => 0,
            Some(text) => text.parse::<i64>().map_err(|_| {
                Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            })?,
        };
        let resource_version = resource_version(request)?;
        let token = match request.query("continue").filter(|text| !text.is_empty()) {
            None => None,
            Some(_) if resource_version.is_some_and(|version| version > 0) => {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Refusal::bad_request(why));
            }
            Some(text) => Some(Token::decode(text).map_err(|why| {
                Refusal::bad_request(format!(
                    "invalid continue token: continue key is not valid: {why}"
                ))
            })?),
        };
        // A list with `resourceVersion=0` comes from the watch cache, for which the server ignores `limit`. Such a list
        // has only one page.
        let from_cache = resource_version == Some(0) && token.is_none();
        let limit = if from_cache { 0 } else { usize::try_from(limit).unwrap_or(0) };
        let exact = request.query("resourceVersionMatch") == Some("Exact");
        Ok(Query { limit, token, resource_version, exact, labels, fields })
    }
}

impl Token {
    fn encode(&self) -> String {
        // Serialization cannot fail, because a `continue` token consists only of strings and a number.
        let json = serde_json::to_string(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Decodes a `continue` token. The error says why the token is invalid, and becomes the last part of the message
    /// that the client gets.
    fn decode(text: &str) -> Result<Token, String> {
        let json = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| "illegal base64 data at input byte 0".to_string())?;
        let token: Token = serde_json::from_slice(&json).map_err(|why| match json.first() {
            Some(first) if first.is_ascii() && *first != b'{' => {
                format!("invalid character '{}' looking for beginning of value", char::from(*first))
            }
            _ if why.is_eof() => "unexpected end of JSON input".into(),
            _ => why.to_string(),
        })?;
        if token.version != TOKEN_VERSION {
            return Err(format!(
                "server does not recognize this encoded version {:?}",
                token.version
            ));
        }
        if token.revision == 0 {
            return Err(format!(
                "incorrect encoded start resourceVersion (version {TOKEN_VERSION})"
            ));
        }
        if token.start.is_empty() {
            return Err(format!("encoded start key empty (version {TOKEN_VERSION})"));
        }
        Ok(token)
    }
}

/// Returns the objects that a LIST reads, before its selectors choose among them. Also returns the revision that the
/// answer contains as the list's `resourceVersion`.
fn pick(
    state: &mut State,
    resource: &'static Resource,
    namespace: &str,
    query: &Query,
) -> Result<(Objects, u64), Refusal> {
    let store = state.store_for(query.resource_version);
    check_not_ahead(query.resource_version, store)?;
    let current = store.revision();
    if query.exact && query.resource_version.is_some_and(|version| version != current) {
        // The sandbox keeps no old versions of objects. A list with `resourceVersionMatch=Exact` and an older revision
        // therefore gets the error that kube-apiserver returns after a compaction of etcd.
        let why = "The resourceVersion for the provided list is too old.";
        return Err(Refusal::expired(why, None));
    }
    match &query.token {
        Some(token) if token.revision != INCONSISTENT => {
            let revision = u64::try_from(token.revision).unwrap_or_default();
            let objects = state.pages.find(resource, namespace, revision).ok_or_else(|| {
                let anew = Token {
                    version: TOKEN_VERSION.into(),
                    revision: INCONSISTENT,
                    start: token.start.clone(),
                };
                Refusal::expired(EXPIRED, Some(anew.encode()))
            })?;
            Ok((objects, revision))
        }
        _ => Ok((Arc::new(store.list(resource, namespace)), current)),
    }
}

fn check_not_ahead(version: Option<u64>, store: &Store) -> Result<(), Refusal> {
    match version {
        Some(version) if version > store.revision() => {
            Err(Refusal::too_large_resource_version(version, store.revision()))
        }
        _ => Ok(()),
    }
}

fn resource_version(request: &Request) -> Result<Option<u64>, Refusal> {
    let Some(text) = request.query("resourceVersion").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        Refusal::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: \
             invalid syntax"
        ))
    })
}

/// Returns the key of an object as a `continue` token contains it. When the list is of one namespace, the key is only
/// the object's name, without the namespace.
fn relative_key<'a>(resource: &Resource, namespace: &str, key: &'a str) -> &'a str {
    if resource.namespaced && !namespace.is_empty() {
        key.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')).unwrap_or(key)
    } else {
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_continue_token_is_refused_in_the_server_s_words() {
        let token = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let cases = [
            ("abc".into(), "invalid character 'i' looking for beginning of value"),
            ("?".into(), "illegal base64 data at input byte 0"),
            (token("{"), "unexpected end of JSON input"),
            (token("{}"), "server does not recognize this encoded version \"\""),
            (
                token(r#"{"v":"meta.k8s.io/v1","start":"/a"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                token(r#"{"v":"meta.k8s.io/v1","rv":1}"#),
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(Token::decode(&text).expect_err(expected), expected);
        }
        let whole = Token { version: TOKEN_VERSION.into(), revision: 7, start: "/a\0".into() };
        assert_eq!(Token::decode(&whole.encode()), Ok(whole));
    }
}
