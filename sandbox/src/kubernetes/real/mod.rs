//! The Kubernetes API of a sandbox that uses a real cluster. The HTTP server, users, call log and faults are those of
//! the simulation, but a real API server answers the requests.
//!
//! Several tests use that API server at the same time, and other objects exist there too. `ccm` works on all nodes that
//! it sees, so it must see only the nodes of its own sandbox. Each sandbox therefore has a prefix of its own. Names get
//! the prefix in requests and lose it in answers, and a list leaves out objects whose names do not have the prefix. The
//! objects with the prefix are the sandbox's [`Corner`] of the cluster. Everything else comes from the real API server:
//! patches, conflicts, validation, refusals and watch caches.
//!
//! The names of users get the prefix too. The sandbox sends the request of its user `ccm` to the real API server in the
//! name of the user `PREFIXccm` (impersonation). Roles on the real API server give `PREFIXccm` its rights. When the
//! `Corner` is dropped, its objects and Roles are deleted.
//!
//! | file | what it knows |
//! |---|---|
//! | `server` | the connection to the API server: kubeconfig, TLS, one request |
//! | `names` | the names that get the prefix |
//! | `roles` | the RBAC rules of a user as Roles, and whether they are in force |

mod names;
mod roles;
mod server;

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::access::{Directory, Identity};
use super::request_info::{self, RequestInfo};
use super::resource::Resource;
use super::status::Refusal;
use super::{PolicyRule, row};
use crate::exchange::{Request, Response};
use names::Names;
use roles::Roles;
use server::Caller;
pub use server::Server;

/// The part of a real cluster that one sandbox uses: the objects whose names begin with the prefix of this sandbox.
pub struct Corner {
    server: Server,
    names: Names,
    roles: Roles,
}

/// The resources whose objects [`Corner::clear`] deletes in all namespaces. Objects of other resources, e.g. Namespaces
/// and EndpointSlices, are not deleted.
const CLEANED: [&str; 8] = [
    "nodes",
    "events",
    "leases",
    "services",
    "certificatesigningrequests",
    "persistentvolumes",
    "pods",
    "daemonsets",
];

/// The members of this group have all rights, so no Role is created for them.
const MASTERS: &str = "system:masters";

impl Corner {
    /// Connects to the API server of a kubeconfig, and chooses a new prefix for the names of this sandbox.
    ///
    /// # Errors
    /// An error means that the kubeconfig has no credentials, or that no server answers there.
    pub fn new(kubeconfig: &Path) -> io::Result<Corner> {
        let server = Server::of(kubeconfig)?;
        let (status, version) = server.json("GET", "/version", None);
        if status != 200 {
            let told = format!("{}: {status} {version}", kubeconfig.display());
            return Err(io::Error::other(told));
        }
        let names = Names::new();
        let roles = Roles::new(&server);
        Ok(Corner { server, names, roles })
    }

    /// Replaces the RBAC rules that a user has on the real API server by `rules`. The rules apply in one namespace, or
    /// in the whole cluster when `namespace` is empty. `directory` contains the users of this sandbox, and must already
    /// contain the new rules.
    ///
    /// The real API server uses new rules a moment late. The function therefore asks it by access reviews what the user
    /// is allowed to do, and waits until the answers fit the rules in `directory`.
    ///
    /// # Panics
    /// Panics when the server refuses the Role, or when the rules are not in force in time.
    pub fn bind(
        &self,
        directory: &Directory,
        user: &str,
        groups: &[String],
        namespace: &str,
        rules: &[PolicyRule],
    ) {
        if !groups.iter().any(|group| group == MASTERS) {
            let (server, names) = (&self.server, &self.names);
            self.roles.bind(server, names, directory, user, namespace, rules);
        }
    }

    /// Answers a request of a client. `directory` contains the users of this sandbox. `identity` is the user whose
    /// credentials the request contains, or the error for wrong credentials.
    pub fn answer(
        &self,
        directory: &Directory,
        request: &Request,
        identity: Result<Identity, Refusal>,
    ) -> Result<Response, Refusal> {
        let info = request_info::read(request);
        // TLS ends in the sandbox, so the real API server does not see a wrong certificate and would treat the caller
        // as anonymous. The sandbox therefore refuses the request itself.
        if let Err(refusal) = &identity
            && request.header("authorization").is_none()
        {
            return Err(refusal.clone());
        }
        let caller = match &identity {
            Ok(identity) if identity.is_in(MASTERS) => Caller::Owner,
            Ok(identity) if identity.is_authenticated() => {
                if self.roles.are_ours(&self.server) {
                    directory.authorize(identity, &info)?;
                    Caller::Owner
                } else {
                    Caller::User(self.names.inside(&identity.name))
                }
            }
            // A request without valid credentials is sent to the real API server with the client's own `Authorization`
            // header. The API server then refuses the request, or treats the client as an anonymous user.
            _ => Caller::Header(request.header("authorization").map(str::to_owned)),
        };
        if let RequestInfo::Resource(asked) = &info
            && asked.verb == "watch"
        {
            return Err(Refusal::verb_not_supported(row(&asked.resource), "watch"));
        }
        let mut sent = request.clone();
        sent.path = self.names.path(&request.path);
        sent.query = self.names.query(&request.query);
        if let Ok(mut body) = serde_json::from_slice::<Value>(&request.body) {
            self.names.object(&mut body);
            sent.body = body.to_string().into_bytes();
        }
        let mut answer = self.server.send(&caller, &sent).map_err(|why| {
            Refusal::unclassified(&format!("the real API server did not answer: {why}"))
        })?;
        let is_list = matches!(&info, RequestInfo::Resource(asked) if asked.verb == "list");
        answer.body = self.names.outside(&answer.body, is_list);
        Ok(answer)
    }

    pub fn await_next_second(&self) {
        let second =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let now = second();
        roles::poll("the next second", || second() > now);
    }

    /// Creates an object with the rights of the kubeconfig's user.
    ///
    /// # Panics
    /// Panics when the server refuses the object.
    pub fn create(&self, resource: &Resource, namespace: &str, object: &Value) -> Value {
        let mut object = super::with_kind(resource, object.clone());
        self.names.object(&mut object);
        let path = path(resource, namespace, "");
        let (status, created) = match object["spec"]["username"].as_str() {
            // A real API server writes the user who sends a certificate request into the request's `spec.username`,
            // whatever the object contains. The request is therefore sent as this user.
            Some(user) if resource.approval => self.server.create_as(user, &path, &object),
            _ => self.server.create(&path, namespace, &object),
        };
        assert_eq!(status, 201, "{path}: {created}");
        self.is_seen(resource, namespace, &created);
        self.names.value(&created)
    }

    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        let path = path(resource, namespace, &self.names.own(resource.plural, name));
        let (status, object) = self.server.json("GET", &path, None);
        match status {
            200 => Some(self.names.value(&object)),
            404 => None,
            _ => panic!("{path}: {status} {object}"),
        }
    }

    /// Returns the objects of this sandbox in a namespace. An empty `namespace` means all namespaces.
    pub fn list(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        let items = self.owned(resource, namespace).into_iter();
        let whole = |item: Value| super::with_kind(resource, self.names.value(&item));
        items.map(whole).collect()
    }

    /// Changes an object by reading it, calling `edit`, and writing it. All this is repeated when another client
    /// changed the object after the read. Returns false when there is no such object.
    ///
    /// # Panics
    /// Panics when the server refuses the object that `edit` has changed.
    pub fn edit(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        mut edit: impl FnMut(&mut Value),
    ) -> bool {
        let path = path(resource, namespace, &self.names.own(resource.plural, name));
        loop {
            let (status, before) = self.server.json("GET", &path, None);
            if status == 404 {
                return false;
            }
            let mut after = self.names.value(&before);
            edit(&mut after);
            self.names.object(&mut after);
            let version = before["metadata"]["resourceVersion"].clone();
            let mut patch = difference(&before, &after);
            let status_patch = match patch.as_object_mut() {
                Some(parts) if resource.status => parts.remove("status"),
                _ => None,
            };
            // This first patch contains the `resourceVersion`, so it fails with a conflict when another client has
            // changed the object since it was read. The second patch, which changes the status, contains no
            // `resourceVersion` and is therefore never refused with a conflict.
            patch["metadata"]["resourceVersion"] = version;
            let (code, mut written) = self.server.json("PATCH", &path, Some(&patch));
            if code == 409 {
                continue;
            }
            assert!(matches!(code, 200 | 404), "{path} {patch}: {code} {written}");
            if let (200, Some(status)) = (code, status_patch) {
                // The conditions of a CertificateSigningRequest, e.g. `Approved`, are written by its subresource
                // `approval`. All other status fields, and the status of all other kinds, are written by the
                // subresource `status`.
                let is_decision = path.contains("/certificatesigningrequests/")
                    && !status["conditions"].is_null();
                let part = if is_decision { "approval" } else { "status" };
                let (path, patch) = (format!("{path}/{part}"), json!({ "status": status }));
                let (code, answer) = self.server.json("PATCH", &path, Some(&patch));
                assert!(matches!(code, 200 | 404), "{path} {patch}: {code} {answer}");
                written = answer;
            }
            self.is_seen(resource, namespace, &written);
            return true;
        }
    }

    /// Deletes an object. Returns false when there is no such object.
    pub fn delete(&self, resource: &Resource, namespace: &str, name: &str) -> bool {
        let path = path(resource, namespace, &self.names.own(resource.plural, name));
        let was_there = self.server.json("DELETE", &path, None).0 == 200;
        let cached = format!("{path}?resourceVersion=0");
        roles::poll("the cache to know of a deletion", || {
            let (status, object) = self.server.json("GET", &cached, None);
            // The watch cache of the real API server shows the deletion in one of two ways: the object is missing, or
            // it has a `deletionTimestamp`, because finalizers keep it.
            status == 404 || !object["metadata"]["deletionTimestamp"].is_null()
        });
        was_there
    }

    /// Waits until the server's watch cache contains this version of the object. Without the wait, a later list by
    /// `ccm` from the cache could miss the object.
    fn is_seen(&self, resource: &Resource, namespace: &str, written: &Value) {
        let text = |field: &str| written["metadata"][field].as_str().unwrap_or_default();
        let path = path(resource, namespace, text("name"));
        let version = text("resourceVersion");
        self.server.json("GET", &format!("{path}?resourceVersion={version}"), None);
    }

    /// Returns the objects whose names begin with the prefix of this sandbox. The returned objects still have this
    /// prefix in their names.
    fn owned(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        let (_, list) = self.server.json("GET", &path(resource, namespace, ""), None);
        let items = list["items"].as_array().into_iter().flatten();
        items.filter(|item| self.names.owns(item)).cloned().collect()
    }
}

impl Corner {
    /// Deletes all objects that this sandbox has created on the real API server, and the Roles of its users. The names
    /// of these objects begin with a prefix that only this sandbox uses. It is no error when an object no longer
    /// exists.
    pub fn clear(&self) {
        for resource in CLEANED.map(row) {
            for object in self.owned(resource, "") {
                let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
                let path = path(resource, text("namespace"), text("name"));
                let released = json!({ "metadata": { "finalizers": null } });
                self.server.json("PATCH", &path, Some(&released));
                self.server.json("DELETE", &path, None);
            }
        }
        self.roles.remove(&self.server);
    }
}

impl Drop for Corner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the URL path of an object, or of the whole collection when `name` is empty.
fn path(resource: &Resource, namespace: &str, name: &str) -> String {
    let group = match resource.group {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    let place = match namespace {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let name = match name {
        "" => String::new(),
        name => format!("/{name}"),
    };
    format!("{group}{place}/{}{name}", resource.plural)
}

/// Returns the merge patch (RFC 7386) that turns `before` into `after`.
fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return after.clone();
    };
    let mut patch = json!({});
    for (key, value) in new {
        match old.get(key) {
            Some(there) if there == value => {}
            Some(there) => patch[key] = difference(there, value),
            None => patch[key] = value.clone(),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch[key] = Value::Null;
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_the_patch_from_one_to_the_other() {
        let before = json!({"a": {"b": 1, "c": [1]}, "d": 2, "e": {"f": 3}});
        for (after, expected) in [
            (before.clone(), json!({})),
            (
                json!({"a": {"b": 1, "c": [1, 2]}, "d": 2, "e": {}}),
                json!({"a": {"c": [1, 2]}, "e": {"f": null}}),
            ),
            (
                json!({"a": {"b": 1, "c": [1]}, "e": 4, "g": {"h": 5}}),
                json!({"d": null, "e": 4, "g": {"h": 5}}),
            ),
        ] {
            assert_eq!(difference(&before, &after), expected);
        }
    }

    #[test]
    fn a_path_names_group_version_namespace_and_name() {
        for (plural, namespace, name, expected) in [
            ("nodes", "", "", "/api/v1/nodes"),
            ("nodes", "", "a", "/api/v1/nodes/a"),
            (
                "leases",
                "kube-system",
                "a",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a",
            ),
        ] {
            assert_eq!(path(row(plural), namespace, name), expected);
        }
    }
}
