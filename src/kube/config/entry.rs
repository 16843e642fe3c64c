//! One cluster, context or user of a kubeconfig: each field read as what it has to be, with errors that name it.
//!
//! No message repeats a value: it may be a secret, or become one when a line is missing.

use super::access::{ConfigError, read_file};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_yaml::{Mapping, Value};
use std::fmt;
use std::path::{Path, PathBuf};

/// An authority's bundle has some hundred kilobytes at most.
const PEM_LIMIT_BYTES: u64 = 4 << 20;

/// Longest name that a message repeats, in characters.
const NAME_CHARACTERS: usize = 100;

/// As many letters and digits in a row are no name that people give.
const SECRET_CHARACTERS: usize = 32;

/// So many are enough when capitals, small letters and digits are mixed.
const MIXED_CHARACTERS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cluster,
    Context,
    User,
}

/// Others point to it by name. Relative paths in it are relative to its file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) fields: Mapping,
}

/// What a pair of fields like `client-key` and `client-key-data` holds.
pub(super) struct Pem {
    pub(super) bytes: Vec<u8>,
    /// For messages: the field, and the file that it names.
    pub(super) origin: String,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Cluster => "cluster",
            Kind::Context => "context",
            Kind::User => "user",
        }
    }
}

impl Entry {
    pub(super) fn error(&self, field: &str, why: impl fmt::Display) -> ConfigError {
        ConfigError(format!(
            "kubeconfig {}: {} {}: {field}: {why}",
            self.file.display(),
            self.kind.name(),
            shown(&self.name)
        ))
    }

    /// A text; none when it is missing or empty.
    pub(super) fn text(&self, field: &str) -> Result<Option<&str>, ConfigError> {
        text_of(self.fields.get(field)).map_err(|why| self.error(field, why))
    }

    /// A boolean; false when it is missing.
    pub(super) fn flag(&self, field: &str) -> Result<bool, ConfigError> {
        flag_of(self.fields.get(field)).map_err(|why| self.error(field, why))
    }

    /// Every field is one of these. What we can't honour is an error, never silently left out: it was set to make a
    /// connection safe, or is a slip in the name of one that was.
    pub(super) fn check(
        &self,
        known: &[&str],
        unsupported: &[(&str, &str)],
    ) -> Result<(), ConfigError> {
        check_names(&self.fields, known, unsupported)
            .map_err(|(field, why)| self.error(&field, why))
    }

    /// The field `…-data`, else the file that the field itself names; none when neither is set.
    pub(super) fn pem(&self, field: &str) -> Result<Option<Pem>, ConfigError> {
        let data_field = format!("{field}-data");
        if let Some(data) = self.text(&data_field)? {
            let bytes = decoded(data).map_err(|why| self.error(&data_field, why))?;
            return Ok(Some(Pem {
                bytes,
                origin: data_field,
            }));
        }
        let Some(path) = self.text(field)? else {
            return Ok(None);
        };
        if path.contains("-----BEGIN") {
            return Err(self.error(
                field,
                format_args!(
                    "wants the path of a file; write the PEM itself base64-encoded into {data_field}"
                ),
            ));
        }
        let file = self.path(path);
        let origin = format!("{field}: {}", file.display());
        match read_file(&file, PEM_LIMIT_BYTES) {
            Ok(bytes) => Ok(Some(Pem { bytes, origin })),
            Err(_) if !file.exists() => Err(self.no_file(field, &data_field)),
            Err(why) => Err(self.error(&origin, why)),
        }
    }

    /// The file that the field names, if that is where its PEM comes from.
    pub(super) fn pem_file(&self, field: &str) -> Option<PathBuf> {
        let text = |field: &str| self.text(field).ok().flatten();
        match text(&format!("{field}-data")) {
            Some(_) => None,
            None => text(field).map(|path| self.path(path)),
        }
    }

    /// A field names a file that does not exist. It is not repeated: it may be the secret itself.
    pub(super) fn no_file(&self, field: &str, instead: &str) -> ConfigError {
        self.error(
            field,
            format_args!(
                "wants the path of a file, and there is no such file; correct the path, which is relative to the \
                 kubeconfig, or write the content itself into {instead}"
            ),
        )
    }

    /// A path relative to the file that names it.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(text)
    }
}

/// See [`Entry::check`]. The error: a field, and what is wrong with it.
pub(super) fn check_names(
    fields: &Mapping,
    known: &[&str],
    unsupported: &[(&str, &str)],
) -> Result<(), (String, String)> {
    for (key, value) in fields {
        let Value::String(key) = key else {
            return Err(("a field's name".into(), "must be text".into()));
        };
        if value.is_null() || known.contains(&key.as_str()) {
            continue;
        }
        let instead = unsupported.iter().find(|(field, _)| field == key);
        return Err(match instead {
            Some((_, instead)) => (key.clone(), format!("not supported; {instead}")),
            None => (
                shown(key).trim_matches('"').to_owned(),
                format!("unknown field; known are {}", known.join(", ")),
            ),
        });
    }
    Ok(())
}

/// A text; none when it is missing or empty.
pub(super) fn text_of(value: Option<&Value>) -> Result<Option<&str>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok((!text.is_empty()).then_some(text)),
        Some(other @ (Value::Number(_) | Value::Bool(_))) => Err(format!(
            "must be text, and is {}; put it in quotes",
            a(other)
        )),
        Some(other) => Err(format!("must be text, and is {}", a(other))),
    }
}

/// A boolean; false when it is missing.
pub(super) fn flag_of(value: Option<&Value>) -> Result<bool, String> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(format!("write true or false, not {}", a(other))),
    }
}

/// What it is instead of what it should be.
pub(super) fn a(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "a mapping",
        Value::Tagged(_) => "a tagged value",
    }
}

/// Is a row of letters and digits in it that people do not write? Then it may be a token, a password or base64.
pub(super) fn may_be_secret(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let has = |is: fn(&char) -> bool| run.chars().any(|c| is(&c));
        let is_mixed = has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_digit);
        run.len() >= SECRET_CHARACTERS || (is_mixed && run.len() >= MIXED_CHARACTERS)
    })
}

/// A name in quotes; what can't be one is not repeated.
pub(super) fn shown(name: &str) -> String {
    if may_be_secret(name) {
        return "[not shown: looks like a secret]".into();
    }
    match name.char_indices().nth(NAME_CHARACTERS) {
        Some((end, _)) => format!("{:?}…", &name[..end]),
        None => format!("{name:?}"),
    }
}

fn decoded(data: &str) -> Result<Vec<u8>, &'static str> {
    if data.contains("-----BEGIN") {
        return Err("is PEM as it is; it must be base64-encoded once more (base64 -w0 FILE)");
    }
    let compact: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD
        .decode(compact)
        .map_err(|_| "is not base64; copy it whole, or make it anew with base64 -w0 FILE")
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
