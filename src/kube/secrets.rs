//! Secrets of type `kubernetes.io/tls`: whether one changed, by its metadata; and what it holds.
//!
//! Nothing of what a Secret holds is in an error: it is parsed here, and not while the answer is read.

use super::client::{Client, folder, percent_encoded};
use super::error::Error;
use crate::http::{Chain, Pem};
use crate::provider::{PrivateKey, TlsPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

const TLS: &str = "kubernetes.io/tls";

/// Of `tls.crt` and of `tls.key`; no cloud takes more.
const BYTES_AT_MOST: usize = 64 << 10;

/// A Secret as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretVersion {
    uid: String,
    resource_version: String,
}

/// What it holds; the error: why that can't be used, for people.
#[derive(Clone)]
pub struct ReadSecret {
    pub version: SecretVersion,
    held: Result<Held, String>,
}

#[derive(Clone)]
struct Held {
    pair: Arc<TlsPair>,
    not_before: u64,
    not_after: u64,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    metadata: SecretVersion,
}

impl Client {
    /// By its metadata alone.
    pub fn secret_version(&self, namespace: &str, name: &str) -> Result<SecretVersion, Error> {
        let answer: Metadata = self.get_metadata(&path(namespace, name))?;
        Ok(answer.metadata)
    }

    pub fn tls_secret(&self, namespace: &str, name: &str) -> Result<ReadSecret, Error> {
        let secret: Value = self.get(&path(namespace, name))?;
        let text = |field: &str| secret["metadata"][field].as_str().unwrap_or_default();
        Ok(ReadSecret {
            version: SecretVersion {
                uid: text("uid").to_owned(),
                resource_version: text("resourceVersion").to_owned(),
            },
            held: parse(&secret),
        })
    }
}

fn path(namespace: &str, name: &str) -> String {
    let secrets = folder("api/v1", namespace, "secrets");
    format!("{secrets}/{}", percent_encoded(name))
}

impl ReadSecret {
    /// Its pair, where the certificate is valid at this time.
    pub fn at(&self, now: Timestamp) -> Result<Arc<TlsPair>, String> {
        let held = self.held.as_ref().map_err(Clone::clone)?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let shown = |seconds: u64| {
            let seconds = i64::try_from(seconds).ok();
            let at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            at.map_or("an unknown time".to_owned(), |at| at.to_string())
        };
        if seconds > held.not_after {
            return Err(format!(
                "its certificate expired at {}: see why it is not renewed (kubectl get certificate, where cert-manager \
                 makes it)",
                shown(held.not_after)
            ));
        }
        if seconds < held.not_before {
            let from = shown(held.not_before);
            return Err(format!("its certificate is not valid before {from}"));
        }
        Ok(Arc::clone(&held.pair))
    }
}

fn parse(secret: &Value) -> Result<Held, String> {
    let kind = secret["type"].as_str().unwrap_or_default();
    if kind != TLS {
        return Err(format!(
            "its type is not {TLS}: create it with kubectl create secret tls"
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
    let chain = Chain::from_pem(&certificate, &key)?;
    let key = String::from_utf8(key.bytes).map_err(|_| "tls.key is not a text".to_owned())?;
    let pair = TlsPair {
        chain: chain.pem,
        certificates: chain.certificates,
        digest: chain.digest,
        key: PrivateKey::new(key),
    };
    Ok(Held {
        pair: Arc::new(pair),
        not_before: chain.not_before,
        not_after: chain.not_after,
    })
}
