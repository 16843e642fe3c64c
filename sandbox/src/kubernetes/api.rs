//! Answers one request: authenticates the caller, authorizes the request, and calls the function for its verb.

use serde_json::{Value, json};

use super::access::Identity;
use super::others::{discovery, openapi};
use super::request_info::{self, RequestInfo, ResourceRequest};
use super::resource::{self, RESOURCES, Resource, VERSION};
use super::status::Refusal;
use super::view::View;
use super::{Cluster, body, delete, read, with_kind, write};
use crate::exchange::{Request, Response};

pub fn answer(cluster: &Cluster, request: &Request) -> Result<Response, Refusal> {
    let info = request_info::read(request);
    let identity = {
        let state = cluster.state();
        let identity = state.directory.authenticate(request)?;
        state.directory.authorize(&identity, &info)?;
        identity
    };
    match info {
        RequestInfo::Resource(asked) => resource_answer(cluster, request, &identity, &asked),
        RequestInfo::Path { path, .. } => path_answer(request, path.trim_end_matches('/')),
    }
}

fn path_answer(request: &Request, path: &str) -> Result<Response, Refusal> {
    let answer = match path {
        "/healthz" | "/livez" | "/readyz" => Some(text(200, "ok")),
        "/version" => Some(Response::json(200, &version())),
        _ => discovery::document(request, path).or_else(|| openapi::document(path)),
    };
    match answer {
        Some(_) if request.method != "GET" && request.method != "HEAD" => {
            Err(Refusal::method_not_allowed())
        }
        Some(answer) => Ok(answer),
        None => Ok(not_a_page()),
    }
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.2",
        "gitCommit": "unknown",
        "gitTreeState": "clean",
        "buildDate": "2026-08-01T00:00:00Z",
        "goVersion": "go1.26.8",
        "compiler": "gc",
        "platform": "linux/amd64",
    })
}

fn resource_answer(
    cluster: &Cluster,
    request: &Request,
    identity: &Identity,
    asked: &ResourceRequest,
) -> Result<Response, Refusal> {
    let served_group =
        RESOURCES.iter().any(|row| row.group == asked.group) && asked.version == VERSION;
    if !served_group {
        return Ok(not_a_page());
    }
    let row =
        resource::find(&asked.group, &asked.resource).ok_or_else(Refusal::unknown_resource)?;
    check_path(row, asked)?;
    if asked.verb == "watch" && row.verbs.contains(&"list") {
        return Err(Refusal::verb_not_supported(row, "watch"));
    }
    if !serves(row, asked) {
        return Err(Refusal::method_not_allowed());
    }
    match asked.verb.as_str() {
        "list" => read::list(cluster, row, request_namespace(row, asked), request),
        "get" => read::get(cluster, row, request_namespace(row, asked), &asked.name, request),
        "delete" => {
            delete::delete(cluster, row, request_namespace(row, asked), &asked.name, request)
        }
        _ if row.plural == "selfsubjectaccessreviews" => {
            access_review(cluster, identity, row, request)
        }
        _ => {
            let view = View::of_object(request)?;
            let target = write::Target {
                resource: row,
                namespace: request_namespace(row, asked),
                name: &asked.name,
                status: asked.subresource == "status",
                approval: asked.subresource == "approval",
            };
            if target.approval {
                check_may_approve(cluster, identity, &target)?;
            }
            let written = match asked.verb.as_str() {
                "create" => write::create(cluster, &target, identity, request)?,
                "update" => write::update(cluster, &target, identity, request)?,
                _ => write::patch(cluster, &target, request)?,
            };
            let answer = view.stored(row, &written.object, request);
            Ok(body::with_warnings(Response { status: written.code, ..answer }, &written.warnings))
        }
    }
}

/// Returns the namespace of the requested objects, or an empty text for cluster-scoped objects.
///
/// This is not always `asked.namespace`. In a request about a Namespace, which is a cluster-scoped object,
/// `asked.namespace` is the name of this Namespace, because RBAC rules are checked with that name.
fn request_namespace<'a>(row: &Resource, asked: &'a ResourceRequest) -> &'a str {
    if row.namespaced { &asked.namespace } else { "" }
}

/// Answers 404 for a namespaced object whose path has no namespace, for a cluster-scoped object whose path has a
/// namespace, and for an unknown subresource.
fn check_path(row: &Resource, asked: &ResourceRequest) -> Result<(), Refusal> {
    let in_namespace = !asked.namespace.is_empty();
    let misplaced = match row.namespaced {
        // The path `/api/v1/services`, which has no namespace, lists the Services of all namespaces. A single Service
        // has no path without a namespace.
        true => !in_namespace && asked.named,
        false => in_namespace && row.plural != "namespaces",
    };
    let subresource = asked.subresource.as_str();
    let is_served = match subresource {
        "" => true,
        "status" => row.status,
        "approval" => row.approval,
        _ => false,
    };
    if misplaced || !is_served {
        return Err(Refusal::unknown_resource());
    }
    Ok(())
}

fn serves(row: &Resource, asked: &ResourceRequest) -> bool {
    let verb = asked.verb.as_str();
    let needs_namespace = row.namespaced && asked.namespace.is_empty();
    match verb {
        _ if !asked.subresource.is_empty() => ["get", "patch", "update"].contains(&verb),
        "create" => !asked.named && !needs_namespace && row.verbs.contains(&verb),
        "update" | "patch" | "delete" | "get" => asked.named && row.verbs.contains(&verb),
        _ => row.verbs.contains(&verb),
    }
}

/// Checks that the caller has the right to approve a CertificateSigningRequest for its signer. If not, returns the
/// error of kube-apiserver's admission plugin CertificateApproval.
fn check_may_approve(
    cluster: &Cluster,
    identity: &Identity,
    target: &write::Target,
) -> Result<(), Refusal> {
    let state = cluster.state();
    let Some(object) = state.find(target.resource, target.name) else {
        return Ok(());
    };
    let signer = object.value["spec"]["signerName"].as_str().unwrap_or_default();
    let asked = ResourceRequest {
        verb: "approve".into(),
        group: target.resource.group.into(),
        resource: "signers".into(),
        name: signer.into(),
        ..ResourceRequest::default()
    };
    if state.directory.allows(identity, &asked) {
        return Ok(());
    }
    let why = format!("user not permitted to approve requests with signerName {signer:?}");
    let row = target.resource;
    Err(Refusal::forbidden(row.group, row.plural, target.name, &why))
}

/// Answers a SelfSubjectAccessReview, an object that a client creates to ask whether it has a certain right.
fn access_review(
    cluster: &Cluster,
    identity: &Identity,
    row: &'static Resource,
    request: &Request,
) -> Result<Response, Refusal> {
    let read = body::read(row, request)?;
    let spec = &read.value["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let directory = &cluster.state().directory;
    let allowed = if resource.is_object() {
        let asked = ResourceRequest {
            verb: text(&resource["verb"]),
            group: text(&resource["group"]),
            version: text(&resource["version"]),
            namespace: text(&resource["namespace"]),
            resource: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            name: text(&resource["name"]),
            named: !text(&resource["name"]).is_empty(),
        };
        directory.allows(identity, &asked)
    } else if path.is_object() {
        directory.allows_path(identity, &text(&path["verb"]), &text(&path["path"]))
    } else {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let error =
            super::status::FieldError::invalid("spec.resourceAttributes", &Value::Null, why);
        return Err(Refusal::invalid(row, "", &[error]));
    };
    let mut review = with_kind(row, read.value.clone());
    review["metadata"] = json!({});
    review["status"] = json!({"allowed": allowed});
    Ok(body::with_warnings(Response::json(201, &review), &read.warnings))
}

fn not_a_page() -> Response {
    text(404, "404 page not found\n")
}

fn text(status: u16, body: &str) -> Response {
    let content_type = ("Content-Type".to_string(), "text/plain; charset=utf-8".to_string());
    Response { status, headers: vec![content_type], body: body.as_bytes().to_vec() }
}
