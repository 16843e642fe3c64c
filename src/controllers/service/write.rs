//! What is written to a Service: our finalizer and its status, each by a merge patch through the
//! status, which is all that the official role allows. Each names the version it was planned on.

use crate::cache::Apis;
use crate::controllers::report::count_write;
use crate::kube::{Error, LOAD_BALANCER_FINALIZER, Service};
use crate::provider::Ingress;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Before anything is created for it.
pub(super) fn finalizer(apis: &Apis, service: &Service) -> Result<Arc<Service>, Error> {
    let mut finalizers = service.metadata.finalizers.to_vec();
    finalizers.push(LOAD_BALANCER_FINALIZER.to_owned());
    patch(apis, service, Some(json!(finalizers)), None)
}

pub(super) fn status(
    apis: &Apis,
    service: &Service,
    status: &[Ingress],
) -> Result<Arc<Service>, Error> {
    patch(apis, service, None, Some(json!(status)))
}

/// Status emptied and our finalizer removed, in one patch: with it the Service may go.
pub(super) fn nothing_left(apis: &Apis, service: &Service) -> Result<(), Error> {
    let finalizers = service.metadata.finalizers.iter();
    let others: Vec<&String> = finalizers
        .filter(|finalizer| *finalizer != LOAD_BALANCER_FINALIZER)
        .collect();
    let finalizers = Some(json!(others));
    match patch(apis, service, finalizers, Some(Value::Null)) {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn patch(
    apis: &Apis,
    service: &Service,
    finalizers: Option<Value>,
    ingress: Option<Value>,
) -> Result<Arc<Service>, Error> {
    let kind = match (&finalizers, &ingress) {
        (None, _) => "set_status",
        (_, None) => "add_finalizer",
        (_, Some(_)) => "remove_finalizer",
    };
    let meta = &service.metadata;
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), json!(meta.resource_version));
    metadata.extend(finalizers.map(|list| ("finalizers".to_owned(), list)));
    let mut body = json!({ "metadata": metadata });
    if let Some(ingress) = ingress {
        body["status"] = json!({ "loadBalancer": { "ingress": ingress } });
    }
    let kube = &apis.kube;
    let written = kube.patch_service_status(&meta.namespace, &meta.name, &body);
    count_write(super::NAME, kind, written.as_ref().map(drop));
    written.map(Arc::new)
}
