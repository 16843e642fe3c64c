//! Discovery: the groups, versions and resources of the server.
//!
//! Only the older, unaggregated documents are served. A client that asks for aggregated discovery also gets an
//! unaggregated document. It then reads the documents of all groups one by one, as it does with an old API server.

use serde_json::{Value, json};

use crate::exchange::{Request, Response};
use crate::kubernetes::resource::{RESOURCES, Resource, VERSION};

/// Answers `/api`, `/api/v1`, `/apis`, `/apis/GROUP` and `/apis/GROUP/VERSION`, which list the groups and resources of
/// the API. Returns `None` for other paths.
pub fn document(request: &Request, path: &str) -> Option<Response> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let document = match parts.as_slice() {
        ["api"] => api_versions(request.header("host").unwrap_or("kubernetes.default.svc")),
        ["api", VERSION] => resources(""),
        ["apis"] => {
            let groups: Vec<Value> = groups().into_iter().map(group).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] if groups().contains(name) => {
            let mut document = group(name);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            document
        }
        ["apis", name, VERSION] if groups().contains(name) => resources(name),
        _ => return None,
    };
    Some(Response::json(200, &document))
}

/// Returns the names of all API groups except the core group, in the order of [`RESOURCES`].
pub fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = Vec::new();
    for row in RESOURCES.iter().filter(|row| !row.group.is_empty()) {
        if !groups.contains(&row.group) {
            groups.push(row.group);
        }
    }
    groups
}

fn api_versions(address: &str) -> Value {
    let addresses = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]);
    json!({"kind": "APIVersions", "versions": [VERSION], "serverAddressByClientCIDRs": addresses})
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/{VERSION}"), "version": VERSION});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str) -> Value {
    let rows: Vec<&Resource> = RESOURCES.iter().filter(|row| row.group == group).collect();
    let version = rows.first().map(|row| row.api_version()).unwrap_or_default();
    let resources: Vec<Value> = rows.into_iter().flat_map(entries).collect();
    let mut list =
        json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources});
    // In kube-apiserver, the document with the resources of the core group has no field `apiVersion`, so it has none
    // here.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

/// Returns the entries of a discovery document for a resource: one for the resource itself, and one for each of its
/// subresources `approval` and `status`.
fn entries(row: &Resource) -> Vec<Value> {
    let mut entry = json!({"name": row.plural, "singularName": row.singular, "namespaced": row.namespaced,
        "kind": row.kind, "verbs": row.verbs});
    if !row.short_names.is_empty() {
        entry["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        entry["categories"] = json!(row.categories);
    }
    let part = |name: &str| {
        json!({"name": format!("{}/{name}", row.plural), "singularName": "", "namespaced": row.namespaced,
            "kind": row.kind, "verbs": ["get", "patch", "update"]})
    };
    let approval = row.approval.then(|| part("approval"));
    let status = row.status.then(|| part("status"));
    [entry].into_iter().chain(approval).chain(status).collect()
}
