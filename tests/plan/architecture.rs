//! The house: who may use whom. Reads the `crate::architecture::` paths of every file.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Each room and the rooms it may use. Everybody may use `cloud` and `metrics`, which use nobody.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "cli",
        &[
            "daemon",
            "controllers",
            "cache",
            "hetzner",
            "kube",
            "http",
            "settings",
            "provider",
            "text",
            "metrics",
        ],
    ),
    (
        "daemon",
        &["controllers", "cache", "kube", "provider", "metrics"],
    ),
    (
        "controllers",
        &["cache", "kube", "provider", "text", "metrics"],
    ),
    ("cache", &["kube", "provider"]),
    ("hetzner", &["http", "provider", "text", "metrics"]),
    ("kube", &["http", "provider", "text", "metrics"]),
    ("http", &["provider"]),
    ("provider", &[]),
    ("metrics", &[]),
    ("settings", &["provider", "text"]),
    ("text", &[]),
];

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The rooms that a file names: `crate::architecture::kube::…` and `use crate::architecture::{kube, http}`.
fn rooms_named(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for (position, _) in text.match_indices("crate::architecture::") {
        let rest = &text[position + "crate::architecture::".len()..];
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap(),
            None => rest
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap(),
        };
        let first = |part: &str| part.trim().split(':').next().unwrap().to_owned();
        rooms.extend(list.split(',').map(first).filter(|room| !room.is_empty()));
    }
    rooms
}

#[test]
fn arrows_point_one_way() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for (room, may_use) in ARROWS {
        for file in rust_files(&source.join(room)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let strangers = rooms_named(&text)
                .into_iter()
                .filter(|name| name != room && !may_use.contains(&name.as_str()));
            wrong.extend(
                strangers.map(|name| format!("{}: crate::architecture::{name}", file.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_is_in_the_table() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = std::fs::read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // src/help has pages and no code.
        .filter(|path| path.is_dir() && !rust_files(path).is_empty());
    let folders: BTreeSet<String> = folders
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let table: BTreeSet<String> = ARROWS.iter().map(|(room, _)| (*room).to_owned()).collect();
    assert_eq!(folders, table);
}

#[test]
fn every_module_says_its_job() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in rust_files(&source) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("//!"),
            "{} has no doc comment",
            file.display()
        );
    }
}
