//! The files of a kubeconfig: read with limits, then merged, the first that says something wins.

use super::access::{ConfigError, EMPTY, read_perhaps_empty};
use super::entry::{Entry, Kind, a, shown, text_of};
use crate::text;
use serde_yaml::{Mapping, Value};
use std::path::{Path, PathBuf};

/// A kubeconfig is a few kilobytes; one with inline certificates some tens.
const LIMIT_BYTES: u64 = 16 << 20;

/// All files together.
#[derive(Default)]
pub(super) struct Merged {
    /// Its name, and the file that says so.
    pub(super) current_context: Option<(String, PathBuf)>,
    entries: Vec<Entry>,
}

/// Reads the files. Of several some may be missing or empty, as kubectl has it; a single one must
/// say something.
pub(super) fn read(paths: &[PathBuf]) -> Result<Merged, ConfigError> {
    let mut merged = Merged::default();
    let mut empty = None;
    let mut read_any = false;
    for path in paths {
        if paths.len() > 1 && !path.exists() {
            continue;
        }
        match parse(path)? {
            Some(file) => {
                merged.add(path, &file)?;
                read_any = true;
            }
            None => empty = Some(path),
        }
    }
    if let (false, Some(path)) = (read_any, empty) {
        return Err(error(path, EMPTY));
    }
    if !read_any {
        let list: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(ConfigError(format!(
            "kubeconfig: none of these files exists: {}; correct KUBECONFIG",
            list.join(", ")
        )));
    }
    Ok(merged)
}

impl Merged {
    /// The entry of that name; `wanted_by` says who asked for it.
    pub(super) fn find(
        &self,
        kind: Kind,
        name: &str,
        wanted_by: &str,
    ) -> Result<&Entry, ConfigError> {
        self.of(kind)
            .find(|entry| entry.name == name)
            .ok_or_else(|| {
                ConfigError(format!(
                    "{wanted_by}: there is no {} {}; {}",
                    kind.name(),
                    shown(name),
                    self.names(kind)
                ))
            })
    }

    /// Which ones there are, for people.
    pub(super) fn names(&self, kind: Kind) -> String {
        let names: Vec<String> = self.of(kind).map(|entry| shown(&entry.name)).collect();
        match names.as_slice() {
            [] => format!("the kubeconfig has no {}s", kind.name()),
            names => format!("there is {}", text::some_of(names)),
        }
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }

    fn add(&mut self, path: &Path, file: &Mapping) -> Result<(), ConfigError> {
        let current = text_of(file.get("current-context"))
            .map_err(|why| error(path, format_args!("current-context: {why}")))?;
        if let (None, Some(name)) = (&self.current_context, current) {
            self.current_context = Some((name.to_owned(), path.to_owned()));
        }
        let lists = [
            ("clusters", Kind::Cluster),
            ("contexts", Kind::Context),
            ("users", Kind::User),
        ];
        for (field, kind) in lists {
            let mut here: Vec<Entry> = Vec::new();
            for entry in named(path, field, kind, file.get(field))? {
                if here.iter().any(|other| other.name == entry.name) {
                    let name = shown(&entry.name);
                    return Err(error(
                        path,
                        format_args!("{field}: {name} is there twice; remove or rename one"),
                    ));
                }
                here.push(entry);
            }
            here.retain(|entry| !self.of(kind).any(|other| other.name == entry.name));
            self.entries.append(&mut here);
        }
        Ok(())
    }
}

fn error(path: &Path, why: impl std::fmt::Display) -> ConfigError {
    ConfigError(format!("kubeconfig {}: {why}", path.display()))
}

/// None: it says nothing.
fn parse(path: &Path) -> Result<Option<Mapping>, ConfigError> {
    let bytes = read_perhaps_empty(path, LIMIT_BYTES).map_err(|why| error(path, why))?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(error(path, "the file is not text (UTF-8)"));
    };
    // The parser takes a byte order mark for a document of its own.
    match serde_yaml::from_str(text.strip_prefix('\u{feff}').unwrap_or(&text)) {
        Ok(Value::Mapping(file)) => Ok(Some(file)),
        Ok(Value::Null) => Ok(None),
        Ok(other) => Err(error(
            path,
            format_args!(
                "the file is {}, not a kubeconfig; it has clusters, contexts and users",
                a(&other)
            ),
        )),
        Err(why) => Err(error(
            path,
            format_args!(
                "can't be read as YAML: {}",
                without_values(&why.to_string())
            ),
        )),
    }
}

/// The entries of one list: `- name: …` with its fields under the name of its kind.
fn named(
    path: &Path,
    list: &str,
    kind: Kind,
    value: Option<&Value>,
) -> Result<Vec<Entry>, ConfigError> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Sequence(items)) => items,
        Some(other) => {
            return Err(error(
                path,
                format_args!("{list}: must be a list, and is {}", a(other)),
            ));
        }
    };
    let entry = |(index, item): (usize, &Value)| {
        let at = format!("{list}[{index}]");
        let Value::Mapping(item) = item else {
            let why = format_args!(
                "{at}: must have name and {}, and is {}",
                kind.name(),
                a(item)
            );
            return Err(error(path, why));
        };
        let name = text_of(item.get("name"))
            .and_then(|name| name.ok_or_else(|| "not set; contexts refer to it by name".into()))
            .map_err(|why| error(path, format_args!("{at}: name: {why}")))?;
        let fields = match item.get(kind.name()) {
            None | Some(Value::Null) => Mapping::new(),
            Some(Value::Mapping(fields)) => fields.clone(),
            Some(other) => {
                return Err(error(
                    path,
                    format_args!(
                        "{} {}: {}: must be a mapping of fields, and is {}",
                        kind.name(),
                        shown(name),
                        kind.name(),
                        a(other)
                    ),
                ));
            }
        };
        Ok(Entry {
            kind,
            name: name.to_owned(),
            file: path.to_owned(),
            fields,
        })
    };
    items.iter().enumerate().map(entry).collect()
}

/// Before a key in a message of the parser.
const KEY: &str = "duplicate entry with key ";

/// The parser quotes the text that it did not expect; here that may be a secret.
fn without_values(message: &str) -> String {
    let mut message = message.to_owned();
    for quote in ['"', '`'] {
        if let (Some(first), Some(last)) = (message.find(quote), message.rfind(quote))
            && first < last
        {
            message.replace_range(first..=last, "[not shown]");
        }
    }
    // A key that is no text stands there without quotes, and may be a password in digits.
    if let Some((_, rest)) = message.split_once(KEY)
        && let key = rest.split(" at line ").next().unwrap_or(rest)
        && !key.is_empty()
    {
        message = message.replace(&format!("{KEY}{key}"), &format!("{KEY}[not shown]"));
    }
    message
}
