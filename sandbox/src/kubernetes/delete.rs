//! Answers DELETE: checks preconditions, keeps objects that have finalizers, and deletes the contents of a deleted
//! namespace.

use serde_json::{Value, json};

use super::resource::Resource;
use super::status::Refusal;
use super::store;
use super::view::View;
use super::{Cluster, State, body, write};
use crate::exchange::{Request, Response};

/// The object that a DELETE request shall delete, and the preconditions of the client.
pub struct DeleteRequest<'a> {
    pub resource: &'static Resource,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The UID that the client wants the object to have, as a precondition of the deletion. An object with another UID
    /// is not deleted, and the answer is a conflict (409). `None` means that every UID is accepted.
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

pub enum Deleted {
    Gone(Value),
    /// The object has a `deletionTimestamp`, but still exists, because it has finalizers. This is also the result for
    /// each deleted Namespace, even when the Namespace was empty and no longer exists.
    Terminating(Value),
}

/// The namespaces that can never be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

pub fn delete(
    cluster: &Cluster,
    resource: &'static Resource,
    namespace: &str,
    name: &str,
    request: &Request,
) -> Result<Response, Refusal> {
    let view = View::of_object(request)?;
    let options = options(request)?;
    let text = |value: &Value| value.as_str().map(String::from);
    let asked = DeleteRequest {
        resource,
        namespace,
        name,
        uid: text(&options["preconditions"]["uid"]),
        resource_version: text(&options["preconditions"]["resourceVersion"]),
        dry_run: body::is_dry_run(request)? || options["dryRun"] == json!(["All"]),
    };
    let deleted = delete_object(&mut cluster.state(), &asked)?;
    match deleted {
        Deleted::Gone(object) if !resource.returns_deleted => {
            let mut details = resource.details(name);
            details["uid"] = object["metadata"]["uid"].clone();
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": details});
            Ok(Response::json(200, &status))
        }
        Deleted::Gone(object) | Deleted::Terminating(object) => {
            Ok(view.object(resource, &object, request))
        }
    }
}

pub fn delete_object(state: &mut State, asked: &DeleteRequest) -> Result<Deleted, Refusal> {
    let DeleteRequest { resource, namespace, name, .. } = *asked;
    if resource.plural == "namespaces" && PROTECTED_NAMESPACES.contains(&name) {
        return Err(Refusal::forbidden(
            "",
            "namespaces",
            name,
            "this namespace may not be deleted",
        ));
    }
    let key = store::key(namespace, name);
    let old = state.find(resource, &key).ok_or_else(|| Refusal::not_found(resource, name))?;
    check_preconditions(asked, &old.value["metadata"])?;
    if asked.dry_run {
        return Ok(Deleted::Gone(old.value.clone()));
    }
    let mut marked = old.value.clone();
    if marked["metadata"]["deletionTimestamp"].is_null() {
        marked["metadata"]["deletionTimestamp"] = write::now().into();
        marked["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    }
    if resource.plural == "namespaces" {
        return Ok(delete_namespace(state, resource, name, marked));
    }
    if is_finished(&marked) {
        let object = remove(state, resource, &key).unwrap_or_else(|| old.value.clone());
        return Ok(Deleted::Gone(object));
    }
    if marked != old.value {
        marked = state.store.put(resource, &key, marked).value.clone();
    }
    Ok(Deleted::Terminating(marked))
}

/// Whether an object that is marked for deletion can be removed from the store now, because it has no finalizers. For a
/// namespace in the phase `Terminating` the result is false, because objects can still be in it.
pub fn is_finished(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let finalizers = metadata["finalizers"].as_array().map_or(0, Vec::len);
    !metadata["deletionTimestamp"].is_null()
        && finalizers == 0
        && object["status"]["phase"] != "Terminating"
}

/// Removes an object and returns it, or returns `None` when it does not exist. When this was the last object of a
/// namespace that is marked for deletion, the namespace is removed too.
pub fn remove(state: &mut State, resource: &Resource, key: &str) -> Option<Value> {
    let removed = state.store.remove(resource, key)?;
    if let Some(namespace) = removed["metadata"]["namespace"].as_str() {
        finish_namespace(state, namespace);
    }
    Some(removed)
}

fn options(request: &Request) -> Result<Value, Refusal> {
    if request.body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&request.body).map_err(|why| {
        Refusal::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })
}

fn check_preconditions(asked: &DeleteRequest, metadata: &Value) -> Result<(), Refusal> {
    let checks = [
        ("UID", "uid", &asked.uid, "The object might have been deleted and then recreated"),
        (
            "ResourceVersion",
            "resourceVersion",
            &asked.resource_version,
            "The object might have been modified",
        ),
    ];
    for (shown, field, wanted, guess) in checks {
        let found = metadata[field].as_str().unwrap_or_default();
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
            let why = format!(
                "the {shown} in the precondition ({wanted}) does not match the {shown} in record ({found}). {guess}"
            );
            return Err(Refusal::precondition(asked.resource, asked.name, &why));
        }
    }
    Ok(())
}

/// Deletes a namespace as the namespace controller does. The objects inside are deleted first. When finalizers keep
/// some of them, the namespace stays in the phase `Terminating` until these objects are gone too.
fn delete_namespace(
    state: &mut State,
    namespaces: &'static Resource,
    name: &str,
    mut marked: Value,
) -> Deleted {
    marked["status"]["phase"] = "Terminating".into();
    let answer = state.store.put(namespaces, name, marked).value.clone();
    for resource in super::resource::RESOURCES.iter().filter(|resource| resource.namespaced) {
        for object in state.store.list(resource, name) {
            let inside = DeleteRequest {
                resource,
                namespace: name,
                name: object.metadata("name"),
                uid: None,
                resource_version: None,
                dry_run: false,
            };
            // This deletion cannot fail. The object was found under the lock that is still held, and no precondition is
            // set.
            let _ = delete_object(state, &inside);
        }
    }
    finish_namespace(state, name);
    Deleted::Terminating(answer)
}

fn finish_namespace(state: &mut State, name: &str) {
    let namespaces = super::row("namespaces");
    let terminating = state
        .store
        .get(namespaces, name)
        .is_some_and(|namespace| namespace.value["status"]["phase"] == "Terminating");
    let mut inside = super::resource::RESOURCES.iter().filter(|resource| resource.namespaced);
    if terminating && inside.all(|resource| state.store.list(resource, name).is_empty()) {
        state.store.remove(namespaces, name);
    }
}
