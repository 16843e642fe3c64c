//! Reads the files of a kubeconfig, each up to a limited size, and merges them. When several files set a value, the
//! first file wins.

use super::entry::{KubeconfigEntry, explained, shown, typed};
use crate::http::read_file;
use crate::provider::variables::KUBECONFIG;
use crate::text;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_yaml::Mapping;
use std::path::{Path, PathBuf};

/// The largest kubeconfig that is read, in bytes. A usual kubeconfig has a few kilobytes. With inline certificates it
/// has some tens of kilobytes.
const LIMIT_BYTES: u64 = 16 << 20;

/// The content of one file of a kubeconfig.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", expecting = "a kubeconfig with clusters, contexts and users")]
struct File {
    current_context: Option<String>,
    clusters: Option<Vec<Named>>,
    contexts: Option<Vec<Named>>,
    users: Option<Vec<Named>>,
}

/// An item of a list in a kubeconfig. Its fields are under a key that says what the item is, e.g. `cluster`.
#[derive(Deserialize)]
#[serde(
    expecting = "a YAML mapping with the fields name and cluster (in contexts: name and context; in users: name and user)"
)]
struct Named {
    name: String,
    #[serde(alias = "cluster", alias = "context", alias = "user")]
    fields: Option<Mapping>,
}

/// The content of all files of a kubeconfig, merged.
#[derive(Default)]
pub(super) struct Merged {
    /// The name of the current context, and the file in which it is set. `None` when no file sets it.
    pub(super) current_context: Option<(String, PathBuf)>,
    entries: Vec<KubeconfigEntry<Mapping>>,
}

/// Reads the files. When there are several files, some of them are allowed to be missing or empty, as in kubectl. A
/// single file must exist and have content.
pub(super) fn read(paths: &[PathBuf]) -> Result<Merged, String> {
    let mut merged = Merged::default();
    let mut empty = None;
    let mut read_any = false;
    for path in paths {
        if paths.len() > 1 && !path.exists() {
            continue;
        }
        match parse(path)? {
            Some(file) => {
                merged.add(path, file)?;
                read_any = true;
            }
            None => empty = Some(path),
        }
    }
    if read_any {
        return Ok(merged);
    }
    match empty {
        Some(path) => Err(error(path, "the file is empty")),
        None => {
            let list = list(paths);
            Err(format!("kubeconfig: none of these files exists: {list}; correct {KUBECONFIG}"))
        }
    }
}

/// Returns the paths as one text for messages, separated by commas.
pub(super) fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(", ")
}

impl Merged {
    /// Returns the entry of this kind and name, with parsed fields. `wanted_by` is the flag or field that contains the
    /// name. When the entry does not exist, the error message begins with `wanted_by`.
    pub(super) fn find<T: DeserializeOwned>(
        &self,
        kind: &str,
        name: &str,
        wanted_by: &str,
    ) -> Result<KubeconfigEntry<T>, String> {
        let Some(entry) = self.of(kind).find(|entry| entry.name == name) else {
            let (name, names) = (shown(name), self.names(kind));
            return Err(format!("{wanted_by}: there is no {kind} {name}; {names}"));
        };
        let fields = typed(&entry.fields).map_err(|(field, why)| entry.error(&field, why))?;
        Ok(entry.with(fields))
    }

    /// Returns a text for messages that lists the names of all entries of a kind.
    pub(super) fn names(&self, kind: &str) -> String {
        let names: Vec<String> = self.of(kind).map(|entry| shown(&entry.name)).collect();
        match names.as_slice() {
            [] => format!("the kubeconfig has no {kind}s"),
            names => format!("the kubeconfig has {}", text::some_of(names)),
        }
    }

    pub(super) fn contexts(&self) -> Vec<String> {
        self.of("context").map(|entry| entry.name.clone()).collect()
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &KubeconfigEntry<Mapping>> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }

    fn add(&mut self, path: &Path, file: File) -> Result<(), String> {
        if self.current_context.is_none() {
            let name = file.current_context.filter(|name| !name.is_empty());
            self.current_context = name.map(|name| (name, path.to_owned()));
        }
        let lists = [("cluster", file.clusters), ("context", file.contexts), ("user", file.users)];
        for (kind, list) in lists {
            let mut here: Vec<KubeconfigEntry<Mapping>> = Vec::new();
            for Named { name, fields } in list.unwrap_or_default() {
                if here.iter().any(|other| other.name == name) {
                    let name = shown(&name);
                    return Err(error(
                        path,
                        format_args!("{kind}s: {name} is listed twice; remove or rename one"),
                    ));
                }
                here.push(KubeconfigEntry {
                    kind,
                    name,
                    file: path.to_owned(),
                    fields: fields.unwrap_or_default(),
                });
            }
            here.retain(|entry| !self.of(kind).any(|other| other.name == entry.name));
            self.entries.append(&mut here);
        }
        Ok(())
    }
}

fn error(path: &Path, why: impl std::fmt::Display) -> String {
    format!("kubeconfig {path:?}: {why}")
}

/// Reads and parses a file. Returns `None` when the file has no content.
fn parse(path: &Path) -> Result<Option<File>, String> {
    let bytes = read_file(path, LIMIT_BYTES).map_err(|why| error(path, why))?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(error(path, "the file is not text (UTF-8)"));
    };
    // A byte order mark at the beginning is removed, because the parser would read it as a separate document.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    serde_yaml::from_str(text).map_err(|why| error(path, explained(&why)))
}
