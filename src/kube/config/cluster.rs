//! The cluster of a context: where it is, and whom to trust there.

use super::entry::{Entry, text_of};
use super::{ConfigError, server_url};
use crate::http::{CertificateName, Proxy, Roots, parse_authorities};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const FIELDS: &[&str] = &[
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "proxy-url",
    // Without effect here: nothing is compressed, and extensions are other programs' notes.
    "disable-compression",
    "extensions",
];
/// The extension that is for credential plugins.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

pub(super) fn check(cluster: &Entry) -> Result<(), ConfigError> {
    cluster.check(FIELDS, &[])
}

pub(super) fn server(cluster: &Entry) -> Result<String, ConfigError> {
    match cluster.text("server")? {
        None => Err(cluster.error(
            "server",
            "not set; write the API server's URL, like https://10.0.0.1:6443",
        )),
        Some(url) => server_url(url).map_err(|why| cluster.error("server", why)),
    }
}

pub(super) fn is_insecure(cluster: &Entry) -> Result<bool, ConfigError> {
    cluster.flag("insecure-skip-tls-verify")
}

pub(super) fn server_name(cluster: &Entry) -> Result<Option<CertificateName>, ConfigError> {
    let field = "tls-server-name";
    let name = cluster.text(field)?.map(CertificateName::parse).transpose();
    name.map_err(|why| {
        cluster.error(
            field,
            format_args!("{why}; write a name that the server's certificate has"),
        )
    })
}

pub(super) fn proxy(cluster: &Entry) -> Result<Option<Proxy>, ConfigError> {
    let field = "proxy-url";
    let proxy = cluster.text(field)?.map(Proxy::parse).transpose();
    proxy.map_err(|why| cluster.error(field, why))
}

pub(super) fn roots(cluster: &Entry) -> Result<Roots, ConfigError> {
    let Some(pem) = cluster.pem("certificate-authority")? else {
        return Ok(Roots::BuiltIn);
    };
    if is_insecure(cluster)? {
        return Err(cluster.error(
            &pem.origin,
            "can't be given together with insecure-skip-tls-verify; remove one of them",
        ));
    }
    parse_authorities(&pem.bytes)
        .map(Roots::Only)
        .map_err(|why| cluster.error(&pem.origin, why))
}

/// `Cluster` of client.authentication.k8s.io: what a credential plugin may want to know.
pub(super) fn for_plugin(cluster: &Entry) -> Result<Value, ConfigError> {
    let mut told = json!({"server": server(cluster)?});
    for field in ["tls-server-name", "proxy-url"] {
        if let Some(text) = cluster.text(field)? {
            told[field] = text.into();
        }
    }
    for field in ["insecure-skip-tls-verify", "disable-compression"] {
        if cluster.flag(field)? {
            told[field] = true.into();
        }
    }
    if let Some(pem) = cluster.pem("certificate-authority")? {
        told["certificate-authority-data"] = STANDARD.encode(pem.bytes).into();
    }
    if let Some(config) = exec_extension(cluster)? {
        told["config"] = config;
    }
    Ok(told)
}

fn exec_extension(cluster: &Entry) -> Result<Option<Value>, ConfigError> {
    let Some(serde_yaml::Value::Sequence(extensions)) = cluster.fields.get("extensions") else {
        return Ok(None);
    };
    let ours = extensions
        .iter()
        .find(|extension| text_of(extension.get("name")) == Ok(Some(EXEC_EXTENSION)));
    let config = ours.and_then(|extension| extension.get("extension"));
    let config = config.map(serde_json::to_value).transpose();
    config.map_err(|_| {
        cluster.error(
            "extensions",
            format_args!("what {EXEC_EXTENSION} holds can't be written as JSON; correct it"),
        )
    })
}
