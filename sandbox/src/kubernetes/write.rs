//! Creating and changing objects: POST, PUT, PATCH.
//!
//! The checks run in the order of kube-apiserver, so that a request with several errors is answered with the same error
//! as by kube-apiserver.

use std::sync::Arc;

use serde_json::Value;

use super::access::Identity;
use super::body::{self, Read};
use super::patch::{self, Format};
use super::request_info::ResourceRequest;
use super::resource::{Resource, VERSION};
use super::rules;
use super::status::{FieldError, Refusal};
use super::store::{self, Object};
use super::{Cluster, State, delete, with_kind};
use crate::exchange::Request;
use crate::time;

/// The object that a request writes.
pub struct Target<'a> {
    pub resource: &'static Resource,
    /// The namespace in the path. It is empty for objects without a namespace.
    pub namespace: &'a str,
    /// The name in the path. It is empty for a POST.
    pub name: &'a str,
    /// Whether the write is to the `status` subresource instead of the object itself.
    pub status: bool,
    /// Whether the write is to the `approval` subresource.
    pub approval: bool,
}

/// The result of a write: the status of the answer, the stored object, and warnings for the client.
pub struct Written {
    pub code: u16,
    pub object: Arc<Object>,
    pub warnings: Vec<String>,
}

pub fn create(
    cluster: &Cluster,
    target: &Target,
    identity: &Identity,
    request: &Request,
) -> Result<Written, Refusal> {
    let mut read = body::read(target.resource, request)?;
    if target.resource.approval {
        read.value["spec"]["username"] = identity.name.clone().into();
        read.value["spec"]["groups"] = identity.groups().into();
    }
    let dry_run = body::is_dry_run(request)?;
    let object =
        insert(&mut cluster.state(), target.resource, target.namespace, read.value, dry_run)?;
    Ok(Written { code: 201, object, warnings: read.warnings })
}

/// Creates an object for the simulation or a test, without an HTTP request.
pub fn create_object(
    state: &mut State,
    resource: &'static Resource,
    namespace: &str,
    object: &Value,
) -> Result<Arc<Object>, Refusal> {
    let read = body::read_value(resource, object)?;
    insert(state, resource, namespace, read.value, false)
}

pub fn update(
    cluster: &Cluster,
    target: &Target,
    identity: &Identity,
    request: &Request,
) -> Result<Written, Refusal> {
    let Read { value: mut new, warnings } = body::read(target.resource, request)?;
    let dry_run = body::is_dry_run(request)?;
    check_name(target, &mut new)?;
    let mut state = cluster.state();
    let Some(old) = state.find(target.resource, &target.key()) else {
        if !target.resource.create_on_update {
            return Err(Refusal::not_found(target.resource, target.name));
        }
        check_create_on_update(&state, target, identity)?;
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let object = insert(&mut state, target.resource, target.namespace, new, dry_run)?;
        return Ok(Written { code: 201, object, warnings });
    };
    check_uid(target, &new, &old)?;
    if new["metadata"]["resourceVersion"].is_null() && !target.resource.unconditional_update {
        let error = FieldError::invalid(
            "metadata.resourceVersion",
            &0.into(),
            "must be specified for an update",
        );
        // The message about a missing `resourceVersion` names the resource, e.g. `nodes`, as in kube-apiserver. All
        // other validation messages name the kind, e.g. `Node`.
        let resource = target.resource;
        return Err(Refusal::invalid_as(resource.group, resource.plural, target.name, &[error]));
    }
    let object = replace(&mut state, target, new, &old, dry_run)?;
    Ok(Written { code: 200, object, warnings })
}

pub fn patch(cluster: &Cluster, target: &Target, request: &Request) -> Result<Written, Refusal> {
    let content_type = request.header("content-type").unwrap_or_default();
    let format = Format::of(content_type).ok_or_else(Refusal::unsupported_media_type)?;
    let schema = target.resource.schema.ok_or_else(Refusal::method_not_allowed)?;
    let dry_run = body::is_dry_run(request)?;
    let mut state = cluster.state();
    let old = state
        .find(target.resource, &target.key())
        .ok_or_else(|| Refusal::not_found(target.resource, target.name))?;
    let current = with_kind(target.resource, old.value.clone());
    let patched = patch::apply(format, schema, current, &request.body)?;
    let Read { value: mut new, warnings } = body::read_patched(target.resource, &patched, request)?;
    check_name(target, &mut new)?;
    let object = replace(&mut state, target, new, &old, dry_run)?;
    Ok(Written { code: 200, object, warnings })
}

impl Target<'_> {
    fn key(&self) -> String {
        store::key(self.namespace, self.name)
    }
}

/// Stores a new object that a client or a test wants to create. First sets the fields that only the server decides,
/// e.g. the UID and allocated addresses, and checks the object. With `dry_run` the object is not stored.
fn insert(
    state: &mut State,
    resource: &'static Resource,
    namespace: &str,
    mut new: Value,
    dry_run: bool,
) -> Result<Arc<Object>, Refusal> {
    own_namespace(resource, namespace, &mut new)?;
    if resource.namespaced {
        check_namespace(state, resource, namespace)?;
    }
    let metadata = &mut new["metadata"];
    if !metadata["resourceVersion"].is_null() {
        return Err(Refusal::unclassified(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    system_metadata(state, metadata);
    let name = metadata["name"].as_str().unwrap_or_default().to_string();
    let rules = resource.rules;
    rules.prepare_create(&mut new);
    refuse_if_any(resource, &name, rules.allocate(&mut new, None, &state.store))?;
    refuse_if_any(resource, &name, rules.validate(&new))?;
    refuse_if_any(resource, &name, rules::validate_meta(&new, &rules::names::path_segment))?;
    let key = store::key(namespace, &name);
    if state.store.get(resource, &key).is_some() {
        return Err(Refusal::already_exists(resource, &name));
    }
    if dry_run {
        return Ok(Arc::new(Object::new(&key, new)));
    }
    Ok(state.store.put(resource, &key, new))
}

/// Replaces the stored object `old` by `new`. Before this, copies the fields that a client is not allowed to change
/// from `old` to `new`, and checks `new`. The object is removed when it is marked for deletion and has no finalizers
/// any more. With `dry_run` nothing is stored or removed.
fn replace(
    state: &mut State,
    target: &Target,
    mut new: Value,
    old: &Arc<Object>,
    dry_run: bool,
) -> Result<Arc<Object>, Refusal> {
    let resource = target.resource;
    let metadata = &mut new["metadata"];
    let version = metadata["resourceVersion"].as_str().unwrap_or_default();
    if !matches!(version, "" | "0") && version != old.metadata("resourceVersion") {
        return Err(Refusal::modified(resource, target.name));
    }
    keep_system_metadata(metadata, &old.value["metadata"]);
    let rules = resource.rules;
    let mut errors = Vec::new();
    if target.approval {
        rules.prepare_approval_update(&mut new, &old.value);
    } else if target.status {
        rules.prepare_status_update(&mut new, &old.value);
    } else {
        rules.prepare_update(&mut new, &old.value);
        errors.extend(rules.allocate(&mut new, Some(&old.value), &state.store));
    }
    errors.extend(rules::validate_common_update(&new, &old.value));
    errors.extend(match (target.approval, target.status) {
        (true, _) => rules.validate_approval_update(&new, &old.value),
        (false, true) => rules.validate_status_update(&new, &old.value),
        (false, false) => rules.validate_update(&new, &old.value),
    });
    refuse_if_any(resource, target.name, errors)?;
    // An update without a change is not stored, so that `resourceVersion` stays the same.
    if new == old.value {
        return Ok(old.clone());
    }
    let key = target.key();
    if dry_run {
        return Ok(Arc::new(Object::new(&key, new)));
    }
    if delete::is_finished(&new) {
        delete::remove(state, resource, &key);
        return Ok(Arc::new(Object::new(&key, new)));
    }
    Ok(state.store.put(resource, &key, new))
}

fn refuse_if_any(resource: &Resource, name: &str, errors: Vec<FieldError>) -> Result<(), Refusal> {
    if errors.is_empty() { Ok(()) } else { Err(Refusal::invalid(resource, name, &errors)) }
}

/// Sets the namespace of the object to the one in the path. Fails when the object names another namespace.
fn own_namespace(resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), Refusal> {
    let metadata = &mut object["metadata"];
    let given = metadata["namespace"].as_str().unwrap_or_default();
    if !given.is_empty() && given != namespace {
        let why =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(why));
    }
    if resource.namespaced {
        metadata["namespace"] = namespace.into();
    }
    Ok(())
}

/// Checks that the namespace of a new object exists and is not being deleted, as the admission plugin
/// NamespaceLifecycle does.
fn check_namespace(state: &State, resource: &Resource, name: &str) -> Result<(), Refusal> {
    let namespaces = super::row("namespaces");
    let namespace =
        state.store.get(namespaces, name).ok_or_else(|| Refusal::not_found(namespaces, name))?;
    if namespace.value["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let why =
        format!("unable to create new content in namespace {name} because it is being terminated");
    let mut refusal = Refusal::forbidden(resource.group, resource.plural, "", &why);
    if let Some(details) = &mut refusal.details {
        let cause = serde_json::json!({
            "reason": "NamespaceTerminating", "message": format!("namespace {name} is being terminated"),
            "field": "metadata.namespace",
        });
        details["causes"] = serde_json::json!([cause]);
    }
    Err(refusal)
}

/// Sets the metadata that only the server decides: a generated name, the UID and the creation time. Removes fields that
/// clients cannot set.
fn system_metadata(state: &mut State, metadata: &mut Value) {
    let prefix = metadata["generateName"].as_str().unwrap_or_default().to_string();
    if metadata["name"].is_null() && !prefix.is_empty() {
        metadata["name"] = format!("{prefix}{}", state.random.suffix()).into();
    }
    metadata["uid"] = state.random.uid().into();
    metadata["creationTimestamp"] = now().into();
    if let Some(metadata) = metadata.as_object_mut() {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(field);
        }
    }
}

/// Copies metadata from the old object: the UID and creation time if the update left them out, and the fields that no
/// update can change.
fn keep_system_metadata(new: &mut Value, old: &Value) {
    new["resourceVersion"] = old["resourceVersion"].clone();
    for field in ["uid", "creationTimestamp"] {
        if new[field].is_null() {
            new[field] = old[field].clone();
        }
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"] {
        match (&old[field], new.as_object_mut()) {
            (Value::Null, Some(new)) => drop(new.remove(field)),
            (kept, Some(new)) => drop(new.insert(field.into(), kept.clone())),
            (_, None) => {}
        }
    }
}

/// Checks that the body contains the same name as the URL, and no other namespace than the URL.
fn check_name(target: &Target, new: &mut Value) -> Result<(), Refusal> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        let why = "was undeterminable: name must be provided";
        return Err(Refusal::bad_request(format!(
            "the name of the object ({} based on URL) {why}",
            target.name
        )));
    }
    if name != target.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let namespace = new["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Refusal::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the URL ({})",
            target.namespace
        )));
    }
    own_namespace(target.resource, target.namespace, new)
}

/// Refuses an update whose body has another UID than the stored object. The error is a conflict (409), as for a failed
/// precondition.
fn check_uid(target: &Target, new: &Value, old: &Object) -> Result<(), Refusal> {
    let given = new["metadata"]["uid"].as_str().unwrap_or_default();
    if given.is_empty() || given == old.metadata("uid") {
        return Ok(());
    }
    let resource = target.resource;
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
         failed: UID in precondition: {given}, UID in object meta: {}",
        resource.storage_prefix,
        old.key,
        old.metadata("uid")
    );
    Err(Refusal::conflict(&resource.qualified(), resource.details(target.name), target.name, &why))
}

/// Checks that the caller is allowed to create the object. A PUT of an object that does not exist creates it, and a
/// right to update is not enough for that.
fn check_create_on_update(
    state: &State,
    target: &Target,
    identity: &Identity,
) -> Result<(), Refusal> {
    let asked = ResourceRequest {
        verb: "create".into(),
        group: target.resource.group.into(),
        version: VERSION.into(),
        namespace: target.namespace.into(),
        resource: target.resource.plural.into(),
        name: target.name.into(),
        ..ResourceRequest::default()
    };
    state.directory.authorize(identity, &super::request_info::RequestInfo::Resource(asked))
}

/// Returns the current time in the form in which objects contain it: UTC with whole seconds.
pub fn now() -> String {
    time::timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
