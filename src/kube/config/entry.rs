//! The entries of a kubeconfig as types: one cluster, context or user. Errors name the file, the entry and the field.
//!
//! No message repeats the value of a field, because the value can be a secret. After a mistake in the file, e.g. a
//! forgotten line, even a field that is not meant for secrets can have a secret as its value.

use crate::http::{Pem, read_file};
use crate::text::quoted;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_yaml::{Mapping, Value};
use std::fmt;
use std::path::{Path, PathBuf};

/// The largest PEM file that is read, in bytes. A file with the certificates of many authorities has some hundred
/// kilobytes at most.
const PEM_LIMIT_BYTES: u64 = 4 << 20;

/// A text with this many letters and digits in a row looks like a secret. Names that people choose have no such part.
const SECRET_CHARACTERS: usize = 32;

/// A text with this many letters and digits in a row looks like a secret if they include capitals, small
/// letters and digits.
const MIXED_CHARACTERS: usize = 16;

/// The fields of `contexts[].context` of a kubeconfig. An empty field is read as missing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KubeconfigContext {
    pub(super) cluster: Option<String>,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<Value>,
    #[serde(rename = "extensions")]
    _extensions: Option<Value>,
}

/// The fields of `clusters[].cluster` of a kubeconfig.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KubeconfigCluster {
    pub(super) server: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    #[serde(default)]
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy_url: Option<String>,
    /// Whether compression is off. This program never compresses, so the field is only passed on to credential plugins.
    #[serde(default)]
    pub(super) disable_compression: bool,
    /// Data for other programs. One of the extensions contains data for credential plugins.
    pub(super) extensions: Option<Value>,
}

/// The fields of `users[].user` of a kubeconfig.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    pub(super) client_key_data: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) exec: Option<Mapping>,
    #[serde(rename = "extensions")]
    _extensions: Option<Value>,
}

/// The fields of `users[].user.exec` of a kubeconfig.
#[derive(PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) api_version: Option<String>,
    pub(super) command: Option<String>,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: Vec<PluginVariable>,
    pub(super) install_hint: Option<String>,
    #[serde(default)]
    pub(super) provide_cluster_info: bool,
    pub(super) interactive_mode: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a name and a value")]
pub(super) struct PluginVariable {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

/// An entry of a kubeconfig. Other entries refer to it by its name. Relative paths in the entry are relative to the
/// file that contains the entry.
#[derive(Clone)]
pub(super) struct KubeconfigEntry<T> {
    /// The kind of the entry: `cluster`, `context` or `user`.
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) fields: T,
}

/// Parses the fields of an entry. The error consists of the name of a field and what is wrong with the field. A field
/// that cannot be used is always an error. If it were ignored, a connection could be less safe than the user wants.
pub(super) fn typed<T: DeserializeOwned>(fields: &Mapping) -> Result<T, (String, String)> {
    let mut set = fields.clone();
    set.retain(|_, value| !value.is_null() && value.as_str() != Some(""));
    // Each field is parsed separately, because the parser's error does not name the field.
    for (key, value) in &set {
        let alone = Mapping::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = serde_yaml::from_value::<T>(alone.into()) {
            let field = shown(key.as_str().unwrap_or_default());
            return Err((field.trim_matches('"').to_owned(), explained(&error)));
        }
    }
    serde_yaml::from_value(set.into()).map_err(|error| (String::new(), explained(&error)))
}

impl<T> KubeconfigEntry<T> {
    pub(super) fn with<U>(&self, fields: U) -> KubeconfigEntry<U> {
        KubeconfigEntry {
            kind: self.kind,
            name: self.name.clone(),
            file: self.file.clone(),
            fields,
        }
    }

    pub(super) fn place(&self) -> String {
        let (file, kind) = (&self.file, self.kind);
        format!("kubeconfig {file:?}, {kind} {}", shown(&self.name))
    }

    pub(super) fn error(&self, field: &str, why: impl fmt::Display) -> String {
        format!("{}: {field}: {why}", self.place())
    }

    /// Returns a PEM text that a kubeconfig contains in base64 or reads from a file. `data` is the base64 text, which
    /// is the value of the field with the suffix `-data`, e.g. `client-key-data`. `path` is the path of the file, which
    /// is the value of the field without the suffix. When both are set, `data` is used. Returns `None` when neither is
    /// set.
    pub(super) fn pem(
        &self,
        field: &str,
        path: &Option<String>,
        data: &Option<String>,
    ) -> Result<Option<Pem>, String> {
        let data_field = format!("{field}-data");
        if let Some(data) = data {
            let bytes = decoded(data).map_err(|why| self.error(&data_field, why))?;
            return Ok(Some(Pem { bytes, origin: data_field }));
        }
        let Some(path) = path else {
            return Ok(None);
        };
        if path.contains("-----BEGIN") {
            return Err(self.error(
                field,
                format_args!(
                    "must be the path of a file; write the PEM itself base64-encoded into {data_field}"
                ),
            ));
        }
        let file = self.path(path);
        let origin = format!("{field} {}", file.display());
        match read_file(&file, PEM_LIMIT_BYTES) {
            Ok(bytes) => Ok(Some(Pem { bytes, origin })),
            Err(_) if !file.exists() => Err(self.no_file(field, &data_field)),
            Err(why) => Err(self.error(&origin, why)),
        }
    }

    /// Returns the error for a field whose value is not the path of an existing file. The message does not repeat the
    /// value, because the value can be the secret itself.
    pub(super) fn no_file(&self, field: &str, instead: &str) -> String {
        self.error(
            field,
            format_args!(
                "must be the path of a file, but there is no such file; correct the path, which is relative to the \
                 kubeconfig, or write the content itself into {instead}"
            ),
        )
    }

    /// Returns the path of the file that the value of a field names. A relative path begins at the folder of the
    /// kubeconfig that contains the field.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(text)
    }
}

/// Whether the text contains so many letters and digits in a row that it can be a token, a password or base64. Names
/// that people choose have no such part.
pub(super) fn may_be_secret(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let has = |is: fn(&char) -> bool| run.chars().any(|c| is(&c));
        let is_mixed = has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_digit);
        run.len() >= SECRET_CHARACTERS || (is_mixed && run.len() >= MIXED_CHARACTERS)
    })
}

/// Returns a name in quotes for messages. A name that looks like a secret is replaced by a text that says so.
pub(super) fn shown(name: &str) -> String {
    if may_be_secret(name) { "[not shown: looks like a secret]".into() } else { quoted(name) }
}

fn decoded(data: &str) -> Result<Vec<u8>, &'static str> {
    if data.contains("-----BEGIN") {
        return Err("is plain PEM, but must be base64-encoded (base64 -w0 FILE)");
    }
    let compact: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD
        .decode(compact)
        .map_err(|_| "is not base64; copy all of it, or create it again with base64 -w0 FILE")
}

/// Returns the message of a parser's error without the values that the parser quotes, because they can be secrets.
pub(super) fn explained(error: &serde_yaml::Error) -> String {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").unwrap_or((&message, "")).0;
    if let Some((place, field)) = message.split_once("missing field `") {
        return format!("{place}{}: not set", field.trim_end_matches('`'));
    }
    let (found, expected) = message.rsplit_once(", expected ").unwrap_or_default();
    if found.contains("unknown field `") {
        let known = expected.trim_start_matches("one of ").replace('`', "");
        return format!("unknown field; use one of {known}");
    }
    match (found.split_once("invalid type: "), error.location()) {
        (Some((place, _)), _) => {
            // Where a text is expected, a number or a boolean is an error, and the message tells the user to put it in
            // quotes. The value cannot be used as a text, because YAML has already changed it: `0123` becomes `83`.
            let text = expected.replace("a string", "text; put it in quotes");
            format!("{place}must be {}", text.replace("a sequence", "a list"))
        }
        (None, Some(at)) => {
            format!("can't be read as YAML at line {} column {}", at.line(), at.column())
        }
        (None, None) => "can't be read as YAML".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_letters_and_digits_may_be_a_secret() {
        for (text, expected) in [
            ("", false),
            ("production-cluster", false),
            ("kubelet-client-2026-11-20-10-00-00.pem", false),
            ("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t", true),
            ("eyJhbGciOiJSUzI1NiJ9.e30.c2ln", true),
            ("/tmp/0123456789abcdef0123456789abcdef", true),
            ("/tmp/jEheVytlAoFl7F8M", true),
        ] {
            assert_eq!(may_be_secret(text), expected, "{text}");
        }
    }
}
