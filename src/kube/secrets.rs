//! Reads Secrets of type `kubernetes.io/tls`. The metadata of a Secret shows whether the Secret has changed. The
//! certificate and the key are only in the whole Secret.
//!
//! No error repeats the content of a Secret. An error of a typed serde parser could quote the content. The Secret is
//! therefore read as untyped JSON, from which this file takes the content.

use super::client::{KubeClient, folder, percent_encoded};
use super::error::KubeError;
use crate::http::{Chain, Pem, Secret};
use crate::provider::{TlsPair, TlsSecret};
use crate::text::shell_command;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use std::fmt::Display;
use std::sync::Arc;

const TLS: &str = "kubernetes.io/tls";

/// The longest `tls.crt` and the longest `tls.key` that are read, in bytes. No cloud accepts a longer
/// certificate or key.
const BYTES_AT_MOST: usize = 64 << 10;

/// The content of a Secret of type `kubernetes.io/tls` when it was read: its version, and its certificate with the key.
pub struct ReadSecret {
    /// The UID and the resource version of the Secret. The text changes whenever the Secret changes.
    pub version: String,
    pair: Result<ValidPair, String>,
}

/// A certificate with its key, and the period in which the certificate is valid.
struct ValidPair {
    pair: Arc<TlsPair>,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl KubeClient {
    /// Returns the UID and the resource version of a Secret as one text. Only the metadata of the Secret is read.
    pub fn secret_version(&self, namespace: &str, name: &str) -> Result<String, KubeError> {
        let object: Value = self.get_metadata(&path(namespace, name))?;
        Ok(version(&object))
    }

    pub fn tls_secret(&self, namespace: &str, name: &str) -> Result<ReadSecret, KubeError> {
        let secret: Value = self.get(&path(namespace, name))?;
        Ok(ReadSecret { version: version(&secret), pair: parse(&secret) })
    }
}

fn path(namespace: &str, name: &str) -> String {
    let secrets = folder("api/v1", namespace, "secrets");
    format!("{secrets}/{}", percent_encoded(name))
}

/// Returns the message for the user when this program is not allowed to read the Secrets of a namespace. The message
/// says how to allow it.
pub fn without_rights(error: &KubeError, namespace: &str) -> String {
    let role: &[&dyn Display] = &[&namespace, &"-k", &"manifests/tls-secrets"];
    let apply = shell_command("kubectl apply -n", role);
    format!(
        "{error}: run {apply}, or add the namespace to tlsSecretNamespaces in the values of the chart"
    )
}

fn version(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{} {}", metadata["uid"], metadata["resourceVersion"])
}

impl ReadSecret {
    /// Whether the Secret holds a certificate with its key, no matter whether the certificate is valid now.
    pub fn has_pair(&self) -> bool {
        self.pair.is_ok()
    }

    /// Returns the certificate and the key if the certificate is valid at the time `now`. The error says why the Secret
    /// can't be used.
    pub fn at(&self, now: Timestamp) -> TlsSecret {
        let valid = self.pair.as_ref().map_err(String::clone)?;
        let (begin, end) = (valid.not_before, valid.not_after);
        if now > end {
            return Err(format!(
                "its certificate expired at {end}; find out why the certificate is not renewed (with cert-manager: kubectl \
                 get certificate)"
            ));
        }
        if now < begin {
            return Err(format!("its certificate is not valid before {begin}"));
        }
        Ok(Arc::clone(&valid.pair))
    }
}

fn parse(secret: &Value) -> Result<ValidPair, String> {
    if secret["type"] != TLS {
        return Err(format!(
            "its type is not {TLS}; create the Secret with kubectl create secret tls"
        ));
    }
    let read = |field: &str| {
        let text = secret["data"][field].as_str().unwrap_or_default();
        if text.len() / 4 * 3 > BYTES_AT_MOST {
            return Err(format!("{field} has more than {BYTES_AT_MOST} bytes"));
        }
        let damaged = |_| format!("{field} is not in base64");
        let bytes = STANDARD.decode(text).map_err(damaged)?;
        let origin = field.to_owned();
        Ok(Pem { bytes, origin })
    };
    let (certificate, key) = (read("tls.crt")?, read("tls.key")?);
    let chain = Chain::from_pem(&certificate, &key).map_err(|why| why.replacen(": ", " ", 1))?;
    let key = String::from_utf8(key.bytes).map_err(|_| "tls.key is not text".to_owned())?;
    Ok(ValidPair {
        pair: Arc::new(TlsPair {
            chain: chain.pem,
            certificates: chain.certificates,
            digest: chain.digest,
            key: Secret::exactly(key),
        }),
        not_before: chain.not_before,
        not_after: chain.not_after,
    })
}
