//! Rules of `CertificateSigningRequest`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::{Rules, items, text, validate_meta, validate_meta_update};
use crate::kubernetes::status::FieldError;
use crate::time;

pub struct SigningRequest;

const DECISIONS: [&str; 2] = ["Approved", "Denied"];

impl Rules for SigningRequest {
    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({});
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new["spec"] = old["spec"].clone();
        new["status"] = old["status"].clone();
    }

    fn prepare_approval_update(&self, new: &mut Value, old: &Value) {
        new["spec"] = old["spec"].clone();
        let mut status = json!({});
        if !items(&new["status"]["conditions"]).is_empty() {
            status["conditions"] = new["status"]["conditions"].clone();
        }
        if !old["status"]["certificate"].is_null() {
            status["certificate"] = old["status"]["certificate"].clone();
        }
        let now = time::timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        for condition in super::items_mut(&mut status, "conditions") {
            for field in ["lastUpdateTime", "lastTransitionTime"] {
                if condition[field].is_null() {
                    condition[field] = now.clone().into();
                }
            }
        }
        new["status"] = status;
    }

    /// Checks that the certificate request has the right form and that the required fields are not empty. Unlike a real
    /// API server, this function does not check the signature of the certificate request.
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta(object, &|name| self.validate_name(name));
        let spec = &object["spec"];
        if !is_request(text(&spec["request"])) {
            let why = "PEM block type must be CERTIFICATE REQUEST";
            errors.push(FieldError::invalid("spec.request", &spec["request"], why));
        }
        if items(&spec["usages"]).is_empty() {
            errors.push(FieldError::required("spec.usages", ""));
        }
        if text(&spec["signerName"]).is_empty() {
            errors.push(FieldError::required("spec.signerName", ""));
        }
        errors
    }

    /// Checks an update of the `approval` subresource. Nobody can remove the condition `Approved` or `Denied`, and no
    /// request can have both of them.
    fn validate_approval_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta_update(new, old);
        let has = |object: &Value, kind: &str| {
            items(&object["status"]["conditions"]).iter().any(|one| one["type"] == kind)
        };
        for kind in DECISIONS.into_iter().filter(|kind| has(old, kind) && !has(new, kind)) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", &why));
        }
        if DECISIONS.iter().all(|kind| has(new, kind)) {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid("status.conditions", &"Denied".into(), why));
        }
        errors
    }
}

/// Whether the text is the base64 of a PEM block with a certificate request.
fn is_request(base64: &str) -> bool {
    let pem = STANDARD.decode(base64).ok().and_then(|pem| String::from_utf8(pem).ok());
    let der = pem.and_then(|pem| {
        let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE REQUEST-----")?;
        let (body, _) = rest.split_once("-----END CERTIFICATE REQUEST-----")?;
        STANDARD.decode(body.split_whitespace().collect::<String>()).ok()
    });
    der.is_some_and(|der| X509CertificationRequest::from_der(&der).is_ok())
}
