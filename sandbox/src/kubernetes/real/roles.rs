//! Gives the users of a sandbox RBAC rules on the real API server, by Roles and bindings.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::names::Names;
use super::server::Server;
use crate::kubernetes::PolicyRule;
use crate::kubernetes::access::{Directory, Identity};
use crate::kubernetes::request_info::ResourceRequest;

/// The Roles and bindings that this sandbox has created on the real API server. They must be deleted when the sandbox
/// ends.
pub struct Roles {
    /// Whether the API server has no RBAC API, so that this process must check the RBAC rules of each request itself.
    /// This is so when a test uses a second sandbox in the place of a real cluster.
    missing: OnceLock<bool>,
    /// The paths of the created Roles and bindings, in the order in which they are deleted: a binding comes before its
    /// Role.
    made: Mutex<Vec<String>>,
    /// All access reviews that this sandbox has sent so far, each with the user whose right it asks about. The API
    /// server uses new RBAC rules a moment late. When the rules of a user change, the user's reviews are therefore sent
    /// again until each answer fits the new rules.
    asked: Mutex<Vec<(String, ResourceRequest)>>,
}

const GROUP: &str = "rbac.authorization.k8s.io";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The longest wait until new RBAC rules are in force. The API server checks rights against its caches, which usually
/// contain new rules within a few milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

impl Roles {
    pub fn new(server: &Server) -> Roles {
        let roles =
            Roles { missing: OnceLock::new(), made: Mutex::default(), asked: Mutex::default() };
        roles.are_ours(server);
        roles
    }

    /// Whether this process must check the RBAC rules itself, because the API server has no RBAC API. This is so when a
    /// test uses a second sandbox in the place of a real cluster.
    pub fn are_ours(&self, server: &Server) -> bool {
        let ask = || server.json("GET", &format!("/apis/{GROUP}/v1"), None).0 == 404;
        *self.missing.get_or_init(ask)
    }

    /// Replaces the RBAC rules of a user by `rules`, and waits until the new rules are in force. An empty `namespace`
    /// means the whole cluster.
    ///
    /// # Panics
    /// Panics when the server refuses the rules, or when the rules are not in force in time.
    pub fn bind(
        &self,
        server: &Server,
        names: &Names,
        directory: &Directory,
        user: &str,
        namespace: &str,
        rules: &[PolicyRule],
    ) {
        if self.are_ours(server) {
            return;
        }
        let (prefix, place) = match namespace {
            "" => ("Cluster", format!("/apis/{GROUP}/v1")),
            namespace => ("", format!("/apis/{GROUP}/v1/namespaces/{namespace}")),
        };
        // The characters `:` and `/` are replaced, because the name of a Role is also one segment of a URL path.
        let name = names.inside(&user.replace([':', '/'], "-"));
        let role = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": format!("{prefix}Role"),
            "metadata": {"name": name}, "rules": rules.iter().map(|rule| entry(names, rule)).collect::<Vec<_>>(),
        });
        let binding = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": format!("{prefix}RoleBinding"),
            "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": format!("{prefix}Role"), "name": name},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": names.inside(user)}],
        });
        for (plural, object) in [("roles", role), ("rolebindings", binding)] {
            let collection = format!("{place}/{}{plural}", prefix.to_lowercase());
            let path = format!("{collection}/{name}");
            server.json("DELETE", &path, None);
            let (status, answer) = server.create(&collection, namespace, &object);
            assert_eq!(status, 201, "{path}: {answer}");
            let mut made = self.made();
            if !made.contains(&path) {
                made.insert(0, path);
            }
        }
        self.await_force(server, names, directory, user, namespace, rules);
    }

    fn await_force(
        &self,
        server: &Server,
        names: &Names,
        directory: &Directory,
        user: &str,
        namespace: &str,
        rules: &[PolicyRule],
    ) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.extend(questions(namespace, rules).map(|asked| (user.to_owned(), asked)));
        for (_, asked) in asked.iter().filter(|(other, _)| other == user) {
            let expected = directory.allows(&Identity::named(user), asked);
            let mut attributes = json!({
                "verb": asked.verb, "group": asked.group, "resource": asked.resource,
                "subresource": asked.subresource, "namespace": asked.namespace,
            });
            if !asked.name.is_empty() {
                attributes["name"] = names.inside(&asked.name).into();
            }
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": names.inside(user), "groups": ["system:authenticated"], "resourceAttributes": attributes},
            });
            poll(&format!("{user} and {asked:?}: {expected}"), || {
                let (_, answer) = server.json("POST", REVIEWS, Some(&review));
                answer["status"]["allowed"] == expected
            });
        }
    }

    pub fn remove(&self, server: &Server) {
        for path in self.made().drain(..) {
            server.json("DELETE", &path, None);
        }
    }

    fn made(&self) -> MutexGuard<'_, Vec<String>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Polls until `holds` returns true. `what` says in the panic message what the caller has waited for.
///
/// # Panics
/// Panics when `holds` does not return true within 20 seconds.
pub fn poll(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "the real API server: waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the JSON of a rule, in the form in which a Role contains it. The names of objects in the rule get the prefix
/// that this sandbox uses on the real API server.
fn entry(names: &Names, rule: &PolicyRule) -> Value {
    let parts = [
        ("verbs", rule.verbs.clone()),
        ("apiGroups", rule.api_groups.clone()),
        ("resources", rule.resources.clone()),
        ("nonResourceURLs", rule.non_resource_urls.clone()),
        ("resourceNames", rule.resource_names.iter().map(|name| names.inside(name)).collect()),
    ];
    let given = parts.into_iter().filter(|(_, values)| !values.is_empty());
    given.map(|(key, values)| (key.to_owned(), json!(values))).collect()
}

/// Returns one access review for each combination of verb, group and resource in the rules. Each review asks whether a
/// user has this right in `namespace`, or in the whole cluster when `namespace` is empty.
fn questions<'a>(
    namespace: &'a str,
    rules: &'a [PolicyRule],
) -> impl Iterator<Item = ResourceRequest> + 'a {
    let of_rule = move |rule: &'a PolicyRule| {
        let name = rule.resource_names.first().cloned().unwrap_or_default();
        let all = rule.api_groups.iter().flat_map(move |group| {
            let resources = rule.resources.iter();
            resources.flat_map(move |resource| {
                rule.verbs.iter().map(move |verb| (group, resource, verb))
            })
        });
        all.map(move |(group, resource, verb)| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            ResourceRequest {
                verb: verb.clone(),
                group: group.clone(),
                version: "v1".into(),
                namespace: namespace.into(),
                resource: resource.into(),
                subresource: subresource.into(),
                named: !name.is_empty(),
                name: name.clone(),
            }
        })
    };
    rules.iter().flat_map(of_rule)
}
