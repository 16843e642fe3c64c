//! Authentication by bearer tokens and client certificates, and authorization by RBAC rules.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::request_info::{RequestInfo, ResourceRequest};
use super::status::Refusal;
use crate::exchange::Request;

/// A user that the cluster knows, with the RBAC rules that the user has in all namespaces.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// The name of the user, e.g. `system:serviceaccount:NAMESPACE:NAME` for a service account.
    pub name: String,
    /// The groups of the user. Members of `system:masters` have all rights. Every authenticated user is also in
    /// `system:authenticated`, which need not be listed here.
    pub groups: Vec<String>,
    pub tokens: Vec<String>,
    /// The certificates of the user as DER. A certificate that a client sends must be equal to one of them, byte by
    /// byte.
    pub certificates: Vec<Vec<u8>>,
    /// The rules of all ClusterRoles that ClusterRoleBindings bind to the user.
    pub rules: Vec<PolicyRule>,
}

/// A rule of a Role or ClusterRole, which can be read from YAML.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub verbs: Vec<String>,
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

/// The RBAC rules that a user has in one namespace only. In a real cluster, a RoleBinding gives the user a Role with
/// these rules.
#[derive(Clone, Debug)]
struct NamespaceGrant {
    user: String,
    namespace: String,
    rules: Vec<PolicyRule>,
}

/// All users that the cluster knows.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    users: Vec<User>,
    /// The users with a password for HTTP basic authentication: the user's name, and the base64 of `NAME:PASSWORD`. API
    /// servers no longer have basic authentication, but a proxy in front of an API server can have it.
    passwords: Vec<(String, String)>,
    grants: Vec<NamespaceGrant>,
}

/// The user who sent a request, together with the user's groups.
#[derive(Clone, Debug)]
pub struct Identity {
    pub name: String,
    groups: Vec<String>,
}

/// The paths that everybody is allowed to read, even without authentication. In Kubernetes the role
/// `system:public-info-viewer` grants this.
const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
/// The paths that every authenticated user is allowed to read. In Kubernetes the role `system:discovery` grants this.
const DISCOVERY_PATHS: &[&str] = &["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];

impl Directory {
    /// Adds a user. An earlier user of the same name is removed, together with the RBAC rules that were granted to that
    /// user in single namespaces.
    pub fn add_user(&mut self, user: User) {
        self.users.retain(|known| known.name != user.name);
        self.grants.retain(|grant| grant.user != user.name);
        self.users.push(user);
    }

    pub fn add_token(&mut self, user: &str, token: &str) {
        if let Some(user) = self.users.iter_mut().find(|known| known.name == user) {
            user.tokens.push(token.into());
        }
    }

    pub fn add_certificate(&mut self, user: &str, der: &[u8]) {
        if let Some(user) = self.users.iter_mut().find(|known| known.name == user) {
            user.certificates.push(der.into());
        }
    }

    pub fn add_password(&mut self, user: &str, password: &str) {
        let both = STANDARD.encode(format!("{user}:{password}"));
        self.passwords.push((user.into(), both));
    }

    pub fn remove_token(&mut self, token: &str) {
        for user in &mut self.users {
            user.tokens.retain(|known| known != token);
        }
    }

    /// Gives RBAC rules to an existing user, in addition to its earlier rules. Returns all rules of the user that apply
    /// in the whole cluster.
    pub fn grant(&mut self, user: &str, rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
        let found = self.users.iter_mut().find(|found| found.name == user);
        let user = found.unwrap_or_else(|| panic!("there is no user {user}"));
        user.rules.extend(rules);
        user.rules.clone()
    }

    pub fn grant_in_namespace(&mut self, user: &str, namespace: &str, rules: Vec<PolicyRule>) {
        self.grants.push(NamespaceGrant { user: user.into(), namespace: namespace.into(), rules });
    }

    /// Takes away all RBAC rules that a user has in one namespace, and returns this namespace. When the user has rules
    /// in several namespaces, the namespace in which the user got rules first is chosen. Returns `None` when the user
    /// has rules in no namespace.
    pub fn revoke_in_a_namespace(&mut self, user: &str) -> Option<String> {
        let grant = self.grants.iter().find(|grant| grant.user == user)?;
        let namespace = grant.namespace.clone();
        self.grants.retain(|grant| grant.user != user || grant.namespace != namespace);
        Some(namespace)
    }

    /// Returns all RBAC rules that were granted to the user in this namespace.
    pub fn granted_in_namespace(&self, user: &str, namespace: &str) -> Vec<PolicyRule> {
        let grants = self.grants.iter();
        let grants = grants.filter(|grant| grant.user == user && grant.namespace == namespace);
        grants.flat_map(|grant| grant.rules.clone()).collect()
    }

    /// Returns the user of a request. The user of a known certificate is returned even if the request also has a token.
    /// A wrong token or password gets the error 401, while a request without any of these is anonymous.
    pub fn authenticate(&self, request: &Request) -> Result<Identity, Refusal> {
        let by_certificate = request.client_certificate.as_ref().and_then(|certificate| {
            self.users.iter().find(|user| user.certificates.contains(certificate))
        });
        if let Some(user) = by_certificate {
            return Ok(Identity::of(user));
        }
        let shown = request.header("authorization").and_then(|value| {
            let (scheme, secret) = value.split_once(' ')?;
            let is_bearer = scheme.eq_ignore_ascii_case("bearer");
            let is_known = is_bearer || scheme.eq_ignore_ascii_case("basic");
            is_known.then(|| (is_bearer, secret.trim()))
        });
        match shown {
            Some((is_bearer, secret)) => {
                let user = self.users.iter().find(|user| match is_bearer {
                    true => user.tokens.iter().any(|known| known == secret),
                    false => self.passwords.contains(&(user.name.clone(), secret.into())),
                });
                user.map(Identity::of).ok_or_else(Refusal::unauthorized)
            }
            // An empty `client_certificate` means that the client sent a certificate that is not accepted: the
            // sandbox's CA did not sign the certificate, or the certificate is not valid now.
            None if request.client_certificate.as_deref() == Some(&[]) => {
                Err(Refusal::unauthorized())
            }
            None => Ok(Identity::anonymous()),
        }
    }

    pub fn authorize(&self, identity: &Identity, info: &RequestInfo) -> Result<(), Refusal> {
        match info {
            RequestInfo::Resource(asked) if !self.allows(identity, asked) => {
                Err(forbidden(identity, asked))
            }
            RequestInfo::Path { verb, path } if !self.allows_path(identity, verb, path) => {
                let why = format!("User {:?} cannot {verb} path {path:?}", identity.name);
                Err(Refusal::forbidden_path(&why))
            }
            _ => Ok(()),
        }
    }

    pub fn allows(&self, identity: &Identity, asked: &ResourceRequest) -> bool {
        // In Kubernetes the role `system:basic-user` allows every authenticated user to create a
        // SelfSubjectAccessReview.
        let basic = identity.is_authenticated()
            && asked.verb == "create"
            && asked.group == "authorization.k8s.io"
            && asked.resource == "selfsubjectaccessreviews";
        basic
            || identity.is_master()
            || self.rules(identity, &asked.namespace).any(|rule| rule.allows(asked))
    }

    pub fn allows_path(&self, identity: &Identity, verb: &str, path: &str) -> bool {
        let reads = verb == "get" || verb == "head";
        let public = reads && PUBLIC_PATHS.contains(&path);
        let discovery = reads
            && identity.is_authenticated()
            && DISCOVERY_PATHS.iter().any(|pattern| matches_path(pattern, path));
        public
            || discovery
            || identity.is_master()
            || self.rules(identity, "").any(|rule| rule.allows_path(verb, path))
    }

    fn rules(&self, identity: &Identity, namespace: &str) -> impl Iterator<Item = &PolicyRule> {
        let cluster = self
            .users
            .iter()
            .filter(|user| user.name == identity.name)
            .flat_map(|user| &user.rules);
        let local = self.grants.iter().filter(move |grant| {
            !namespace.is_empty() && grant.user == identity.name && grant.namespace == namespace
        });
        cluster.chain(local.flat_map(|grant| &grant.rules))
    }
}

impl Identity {
    fn of(user: &User) -> Identity {
        let mut groups = user.groups.clone();
        groups.push("system:authenticated".into());
        Identity { name: user.name.clone(), groups }
    }

    fn anonymous() -> Identity {
        Identity { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }
    }

    /// Returns the identity of a user with this name. The user is in the group `system:authenticated` and in no other
    /// group.
    pub fn named(name: &str) -> Identity {
        Identity { name: name.into(), groups: vec!["system:authenticated".into()] }
    }

    pub fn groups(&self) -> Vec<String> {
        self.groups.clone()
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    pub fn is_authenticated(&self) -> bool {
        self.is_in("system:authenticated")
    }

    fn is_master(&self) -> bool {
        self.is_in("system:masters")
    }
}

impl PolicyRule {
    fn allows(&self, asked: &ResourceRequest) -> bool {
        contains(&self.verbs, &asked.verb)
            && contains(&self.api_groups, &asked.group)
            && self.names_resource(asked)
            && (self.resource_names.is_empty() || self.resource_names.contains(&asked.name))
    }

    /// Whether the rule's list of resources contains the requested resource, e.g. as `services`, `services/status`, `*`
    /// or `*/status`.
    fn names_resource(&self, asked: &ResourceRequest) -> bool {
        let whole = full_resource(asked);
        self.resources.iter().any(|named| {
            let any_with_subresource = !asked.subresource.is_empty()
                && named
                    .strip_prefix("*/")
                    .is_some_and(|subresource| subresource == asked.subresource);
            named == "*" || *named == whole || any_with_subresource
        })
    }

    fn allows_path(&self, verb: &str, path: &str) -> bool {
        contains(&self.verbs, verb)
            && self.non_resource_urls.iter().any(|pattern| matches_path(pattern, path))
    }
}

fn forbidden(identity: &Identity, asked: &ResourceRequest) -> Refusal {
    let place = if asked.namespace.is_empty() {
        "at the cluster scope".to_string()
    } else {
        format!("in the namespace {:?}", asked.namespace)
    };
    let why = format!(
        "User {:?} cannot {} resource {:?} in API group {:?} {place}",
        identity.name,
        asked.verb,
        full_resource(asked),
        asked.group,
    );
    Refusal::forbidden(&asked.group, &asked.resource, &asked.name, &why)
}

fn full_resource(asked: &ResourceRequest) -> String {
    if asked.subresource.is_empty() {
        asked.resource.clone()
    } else {
        format!("{}/{}", asked.resource, asked.subresource)
    }
}

fn contains(values: &[String], wanted: &str) -> bool {
    values.iter().any(|value| value == "*" || value == wanted)
}

fn matches_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => pattern == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &str, resources: &str, verbs: &str, names: &str) -> PolicyRule {
        let list =
            |text: &str| text.split(' ').filter(|one| *one != "-").map(String::from).collect();
        PolicyRule {
            api_groups: list(groups),
            resources: list(resources),
            verbs: list(verbs),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn rules_are_matched_as_rbac_does() {
        let core = |resources, verbs, names| rule("", resources, verbs, names);
        let cases = [
            (core("nodes", "get", "-"), "get nodes a", true),
            (core("nodes", "get", "-"), "list nodes ", false),
            (core("nodes", "*", "-"), "patch nodes/status a", false),
            (core("nodes/status", "patch", "-"), "patch nodes/status a", true),
            (core("*/status", "patch", "-"), "patch nodes/status a", true),
            (core("*", "*", "-"), "patch nodes/status a", true),
            (core("nodes", "get", "a b"), "get nodes b", true),
            (core("nodes", "get", "a b"), "get nodes c", false),
            (core("nodes", "create", "a"), "create nodes ", false),
            (rule("apps", "nodes", "get", "-"), "get nodes a", false),
            (rule("*", "nodes", "get", "-"), "get nodes a", true),
        ];
        for (rule, asked, allowed) in cases {
            let parts: Vec<&str> = asked.split(' ').collect();
            let (resource, subresource) = parts[1].split_once('/').unwrap_or((parts[1], ""));
            let asked = ResourceRequest {
                verb: parts[0].into(),
                resource: resource.into(),
                subresource: subresource.into(),
                name: parts[2].into(),
                ..ResourceRequest::default()
            };
            assert_eq!(rule.allows(&asked), allowed, "{rule:?} {asked:?}");
        }
    }

    #[test]
    fn a_role_grants_in_its_namespace_alone() {
        let mut directory = Directory::default();
        directory.add_user(User { name: "ccm".into(), ..User::default() });
        directory.grant_in_namespace("ccm", "kube-system", vec![rule("*", "leases", "*", "-")]);
        let identity = Identity { name: "ccm".into(), groups: Vec::new() };
        for (namespace, allowed) in [("kube-system", true), ("default", false), ("", false)] {
            let asked = ResourceRequest {
                verb: "get".into(),
                resource: "leases".into(),
                namespace: namespace.into(),
                ..ResourceRequest::default()
            };
            assert_eq!(directory.allows(&identity, &asked), allowed, "{namespace:?}");
        }
    }
}
