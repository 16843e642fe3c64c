//! Parses the method and path of a request, with the rules of the `RequestInfo` of Kubernetes.

use crate::exchange::Request;

/// What a request asks for: a resource, or another path such as `/healthz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestInfo {
    Resource(ResourceRequest),
    Path { verb: String, path: String },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRequest {
    /// The verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    pub group: String,
    pub version: String,
    /// The namespace in the path. It is empty when the path contains no namespace. For a request about a Namespace it
    /// is the Namespace's own name.
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    /// The name of the object. For a request for a list it is the name in the field selector `metadata.name=NAME`, or
    /// empty when there is no such selector.
    pub name: String,
    /// Whether the URL path contains the object's name. When the path contains no name, the field `name` is empty, or
    /// contains the name in a field selector `metadata.name=NAME`.
    pub named: bool,
}

pub fn read(request: &Request) -> RequestInfo {
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let resource = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => in_group(request, "", version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => {
            in_group(request, group, version, rest)
        }
        _ => None,
    };
    match resource {
        Some(resource) => RequestInfo::Resource(resource),
        None => {
            RequestInfo::Path { verb: request.method.to_lowercase(), path: request.path.clone() }
        }
    }
}

fn in_group(
    request: &Request,
    group: &str,
    version: &str,
    rest: &[&str],
) -> Option<ResourceRequest> {
    // In `namespaces/NAME/status`, `status` is a subresource of the Namespace and not a resource inside the namespace.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, inside, ..] if !matches!(*inside, "status" | "finalize") => {
            (*namespace, &rest[2..])
        }
        _ => ("", rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", String::new()),
        [resource, name, subresource @ ..] => (*resource, *name, subresource.join("/")),
        [] => return None,
    };
    let named = !name.is_empty();
    let verb = verb(request, named)?;
    let selected = matches!(verb, "list" | "watch" | "deletecollection")
        .then(|| selected_name(request))
        .flatten();
    // For a request about a Namespace, the namespace of the request is the Namespace's own name. kube-apiserver also
    // checks RBAC rules with this name as the namespace.
    let namespace = if resource == "namespaces" && group.is_empty() { name } else { namespace };
    Some(ResourceRequest {
        verb: verb.into(),
        group: group.into(),
        version: version.into(),
        namespace: namespace.into(),
        resource: resource.into(),
        subresource,
        name: selected.unwrap_or_else(|| name.into()),
        named,
    })
}

fn verb(request: &Request, named: bool) -> Option<&'static str> {
    let watch = request.query("watch").is_some_and(|value| !matches!(value, "false" | "0"));
    Some(match (request.method.as_str(), named) {
        ("GET" | "HEAD", true) if !watch => "get",
        ("GET" | "HEAD", _) if watch => "watch",
        ("GET" | "HEAD", _) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    })
}

/// Returns the name that the field selector of a list requires, e.g. `a` for `metadata.name=a`, or `None` when the
/// selector requires no name. RBAC rules with `resourceNames` are compared with this name.
fn selected_name(request: &Request) -> Option<String> {
    let selector = request.query("fieldSelector")?;
    let name = selector.split(',').find_map(|term| term.strip_prefix("metadata.name="))?;
    Some(name.strip_prefix('=').unwrap_or(name).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_verb_resource_and_name() {
        let cases = [
            ("GET", "/api/v1/nodes", "list  nodes//"),
            ("GET", "/api/v1/nodes/a", "get  nodes//a"),
            ("PATCH", "/api/v1/nodes/a/status", "patch  nodes/status/a"),
            ("GET", "/api/v1/namespaces", "list  namespaces//"),
            ("DELETE", "/api/v1/namespaces/shop", "delete shop namespaces//shop"),
            ("PUT", "/api/v1/namespaces/shop/status", "update shop namespaces/status/shop"),
            ("POST", "/api/v1/namespaces/shop/services", "create shop services//"),
            (
                "DELETE",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases",
                "deletecollection a leases//",
            ),
        ];
        for (method, path, expected) in cases {
            let request =
                Request { method: method.into(), path: path.into(), ..Request::default() };
            let RequestInfo::Resource(info) = read(&request) else {
                panic!("{path}: not a resource")
            };
            let ResourceRequest { verb, namespace, resource, subresource, name, .. } = info;
            assert_eq!(format!("{verb} {namespace} {resource}/{subresource}/{name}"), expected);
        }
        let path =
            Request { method: "DELETE".into(), path: "/api/v1".into(), ..Request::default() };
        assert_eq!(
            read(&path),
            RequestInfo::Path { verb: "delete".into(), path: "/api/v1".into() }
        );
    }
}
