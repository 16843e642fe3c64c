//! The architecture: which modules may use which. The tests read the `crate::` paths of every file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each module and the modules it may use.
#[rustfmt::skip] // A case is a line.
const ARROWS: &[(&str, &[&str])] = &[
    ("cli", &["daemon", "controllers", "cache", "hetzner", "kube", "http", "settings", "provider", "text", "metrics"]),
    ("daemon", &["controllers", "cache", "kube", "provider", "metrics"]),
    ("controllers", &["cache", "kube", "provider", "text", "metrics"]),
    ("cache", &["kube", "provider"]),
    ("hetzner", &["http", "provider", "text", "metrics"]),
    ("kube", &["http", "provider", "text", "metrics"]),
    ("http", &["provider", "text"]),
    ("provider", &["text"]),
    ("metrics", &[]),
    ("settings", &["http", "provider", "text"]),
    ("text", &[]),
];

/// The folder of the program's source, or one in it.
fn source(inside: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    source.join(inside)
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true => rust_files(&path),
        false => vec![path],
    });
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files.filter(is_rust).collect()
}

/// The Rust files of a folder, each with its text.
fn rust_texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let files = rust_files(folder).into_iter();
    let with_text = files.map(|file| (file.clone(), std::fs::read_to_string(file).unwrap()));
    with_text.collect()
}

/// The identifier that a text begins with.
fn first_word(text: &str) -> &str {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    text.split(is_end).next().unwrap()
}

/// Returns the top-level modules that a file names, as in `crate::kube::…` and `use crate::{kube, http}`.
fn modules_named(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for (position, _) in text.match_indices("crate::") {
        let rest = &text[position + "crate::".len()..];
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap(),
            None => first_word(rest),
        };
        let first = |part: &str| part.trim().split(':').next().unwrap().to_owned();
        rooms.extend(list.split(',').map(first).filter(|room| !room.is_empty()));
    }
    rooms
}

#[test]
fn modules_use_only_modules_below_them() {
    let mut wrong = Vec::new();
    for (room, may_use) in ARROWS {
        for (file, text) in rust_texts(&source(room)) {
            let mut strangers = modules_named(&text);
            strangers.retain(|name| name != room && !may_use.contains(&name.as_str()));
            let strangers = strangers.into_iter();
            wrong.extend(strangers.map(|name| format!("{}: crate::{name}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rooms of `hetzner/load_balancers`. Each may use those below it.
#[rustfmt::skip]
const STAGES: &[&str] = &[
    "snapshot", "plan", "replace", "settle", "leave", "type_choice", "checks", "causes", "observe", "diff", "desired", "change",
    "ownership", "sizes", "annotations", "model",
];

#[test]
fn stages_of_load_balancers_use_only_those_below() {
    let folder = source("hetzner/load_balancers");
    let mut wrong = Vec::new();
    for (file, text) in rust_texts(&folder) {
        let inside = file.strip_prefix(&folder).unwrap();
        let own = inside.iter().next().unwrap().to_str().unwrap();
        let own = own.trim_end_matches(".rs");
        let Some(own) = STAGES.iter().position(|stage| *stage == own) else {
            assert_eq!(own, "mod", "a room that is not in the table");
            continue;
        };
        let is_at_the_top = inside.components().count() == 1;
        for above in &STAGES[..own] {
            let mut paths = vec![format!("load_balancers::{above}")];
            paths.extend(is_at_the_top.then(|| format!("super::{above}::")));
            let used = paths.into_iter().filter(|path| text.contains(path));
            wrong.extend(used.map(|path| format!("{}: {path}", inside.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The ownership of a load balancer is read in one module. No other file of the program contains the key of an
/// ownership label or its constant.
#[test]
fn labels_of_ownership_are_named_in_one_module() {
    let room = source("hetzner/load_balancers/ownership");
    let table = std::fs::read_to_string(room.join("labels.rs")).unwrap();
    let constants = table.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("pub const ")?.split_once(": &str = \"")?;
        Some((name.to_owned(), value.trim_end_matches("\";").to_owned()))
    });
    let constants: Vec<(String, String)> = constants.collect();
    assert!(constants.len() > 10, "{constants:?}");
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut wrong = Vec::new();
    let mut others = rust_texts(&source(""));
    others.retain(|(file, _)| !file.starts_with(&room));
    for (file, text) in others {
        let text = text.split("#[cfg(test)]").next().unwrap();
        // `load_balancers` gives them to the tests.
        let text = text.replace("pub use ownership::labels::{", "tests {");
        for (name, key) in &constants {
            let imported = text.split("labels::").skip(1).any(|after| {
                let list = after.split(';').next().unwrap_or_default();
                let mut words = list.split(|letter| !is_word(letter));
                words.any(|word| word == name)
            });
            let is_written = text.contains(&format!("\"{key}"));
            if imported || is_written {
                wrong.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_top_level_module_is_in_the_table() {
    let entries = std::fs::read_dir(source("")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    // src/help has pages and no code.
    let folders = paths.filter(|path| path.is_dir() && !rust_files(path).is_empty());
    let names = folders.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    let table = ARROWS.iter().map(|(room, _)| (*room).to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), table.collect());
}

#[test]
fn every_module_has_a_comment_about_its_job() {
    for (file, text) in rust_texts(&source("")) {
        let says_it = text.starts_with("//!");
        assert!(says_it, "{} has no doc comment", file.display());
    }
}

/// The programs whose commands people copy from what ccm prints, and for ccm the first words.
#[rustfmt::skip]
const COPIED: &[&str] = &[
    "hcloud ", "kubectl ", "ccm run ", "ccm node ", "ccm lb ", "ccm route ", "ccm status ", "ccm doctor ", "ccm lint ",
    "ccm config ", "ccm explain ", "ccm completions ", "ccm help ",
];

/// Commands in a file's texts into which a value is put without `text::shell_command`.
fn commands_with_values(source: &str) -> Vec<String> {
    // A text goes on behind a backslash at the end of a line.
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    let joined = parts.fold(first, |text, part| text + part.trim_start());
    let code = joined.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
    let commands = lines.flat_map(|line| {
        let begins = COPIED.iter().flat_map(|begin| line.match_indices(begin));
        begins.map(|(at, _)| {
            let end = line[at..].find([':', ';', ',', '(', ')', '"', '`']);
            &line[at..end.map_or(line.len(), |end| at + end)]
        })
    });
    let with_value = commands.filter(|command| command.contains('{'));
    with_value.map(str::to_owned).collect()
}

/// Names that tenants chose would be run by who copies the command.
#[test]
fn a_value_in_a_command_that_people_copy_is_quoted() {
    for (file, text) in rust_texts(&source("")) {
        let wrong = commands_with_values(&text);
        let file = file.display();
        let says = "use text::shell_command";
        assert!(wrong.is_empty(), "{file}: {says}: {wrong:?}");
    }
    let old = "format!(\"in the console or with \\\n        hcloud certificate retry {}\", name)";
    assert_eq!(commands_with_values(old), ["hcloud certificate retry {}"]);
}

/// The names after each `super::` of a text, with the number of `super::`s before them.
fn parents_named(text: &str) -> Vec<(usize, String)> {
    let code = text.split("#[cfg(test)]\nmod").next().unwrap();
    let code = code.split("#[cfg(test)]\n#[allow").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut named = Vec::new();
    let mut rest = code.as_str();
    while let Some((before, after)) = rest.split_once("super::") {
        rest = after;
        let is_path = before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
        if is_path || before.ends_with("in ") {
            continue;
        }
        let path = after.trim_start_matches("super::");
        let levels = 1 + (after.len() - path.len()) / "super::".len();
        rest = path;
        let list = match path.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap(),
            None => first_word(path),
        };
        let names = list.split(',').map(|part| {
            let part = part.trim().split([':', ' ']).next().unwrap();
            (levels, part.to_owned())
        });
        named.extend(names.filter(|(_, name)| !name.is_empty()));
    }
    named
}

/// A file imports files beside it or above it, by their names, and nothing that a `mod.rs` above it defines.
#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut wrong = Vec::new();
    // A file or folder, and one beside it that it imports.
    let mut imports: BTreeSet<(PathBuf, PathBuf)> = BTreeSet::new();
    let files = ARROWS.iter().flat_map(|(room, _)| rust_texts(&source(room)));
    // The tests of a file are parts of it.
    let is_test = |file: &PathBuf| {
        let inside = file.strip_prefix(source("")).unwrap().with_extension("");
        inside.components().any(|part| part.as_os_str() == "tests")
    };
    for (file, text) in files.filter(|(file, _)| !is_test(file)) {
        let is_folder = file.file_name().unwrap() == "mod.rs";
        let own = match is_folder {
            true => file.parent().unwrap().to_owned(),
            false => file.with_extension(""),
        };
        for (levels, name) in parents_named(&text) {
            let from = own.ancestors().nth(levels - 1).unwrap();
            let to = from.parent().unwrap().join(&name);
            match to.is_dir() || to.with_extension("rs").is_file() {
                true => drop(imports.insert((from.to_owned(), to))),
                false => wrong.push(format!("{}: super::{name}", file.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A file that imports none of the remaining files is in no circle.
    loop {
        let importing: BTreeSet<PathBuf> = imports.iter().map(|(from, _)| from.clone()).collect();
        let count = imports.len();
        imports.retain(|(_, to)| importing.contains(to));
        if imports.len() == count {
            break;
        }
    }
    assert_eq!(imports, BTreeSet::new());
}

/// Time, waits and randomness come only from `provider::clock`, and variables and outputs only from
/// `provider::process`. Otherwise a story would not be the same each time, and programs on the simulated machine would
/// share what each must have for itself.
#[test]
fn only_the_provider_reads_clocks_variables_and_random_numbers() {
    #[rustfmt::skip]
    let of_machine = [
        "Instant::now", "SystemTime::now", "Timestamp::now", ".elapsed()", "thread::sleep", "RandomState::new().build",
        "env::var", "home_dir()", "stdout()", "stderr().lock", "println!",
    ];
    let mut wrong = Vec::new();
    for (file, text) in rust_texts(&source("")) {
        let is_test = file.components().any(|part| part.as_os_str() == "tests");
        // When a metric was set decides nothing.
        let of_process = ["provider/clock.rs", "provider/process.rs"];
        // A plugin is a program of its own.
        let may = ["tests.rs", "metrics/mod.rs", "kube/config/exec.rs"];
        let may = [&of_process[..], &may].concat();
        if is_test || may.iter().any(|name| file.ends_with(name)) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap();
        let used = of_machine.iter().filter(|name| code.contains(**name));
        wrong.extend(used.map(|name| format!("{}: {name}", file.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A test waits for what it needs. `common` polls, and only code that plays a slow program sleeps.
#[test]
fn no_test_sleeps() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let may = [
        "common/mod.rs",
        // These are servers and clients that are slow with each byte, a holder that renews, and a recording
        // with a pace.
        "process/deadline.rs",
        "process/leader.rs",
        "process/metrics/recording.rs",
        "service/sync/shared.rs",
        // Time is what they measure, or what they play.
        "bench/hour.rs",
        "bench/nodes.rs",
        "bench/scale.rs",
        "bench/tenants.rs",
        "common/machine.rs",
        "plan/architecture.rs",
    ];
    let mut sleeping = Vec::new();
    for (file, text) in rust_texts(&tests) {
        let name = file.strip_prefix(&tests).unwrap().to_owned();
        if text.contains("sleep(") && !may.iter().any(|may| name.ends_with(may)) {
            sleeping.push(name);
        }
    }
    assert!(sleeping.is_empty(), "{sleeping:#?}");
}

/// The crates of a list in `manifests/deny.toml`, which `make release` checks with cargo deny.
fn crates_of(list: &str) -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/deny.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once(&format!("\n{list} = [\n")).unwrap();
    let rows = rest.lines().take_while(|line| *line != "]");
    let names = rows.filter_map(|row| row.trim().strip_prefix("{ crate = \"")?.split('"').next());
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(!names.is_empty(), "{list} is empty");
    names
}

/// The binary stays small and synchronous, and has one TLS library. Names of `Cargo.lock`, tests' crates included.
#[test]
fn no_async_runtime_no_openssl_and_each_crate_once() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap();
    let names = lock.lines().filter_map(|line| line.strip_prefix("name = "));
    let names = names.map(|name| name.trim_matches('"').to_owned());
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<String> = names.filter(|name| !seen.insert(name.clone())).collect();
    let banned = crates_of("deny");
    for name in ["tokio", "openssl"] {
        assert!(banned.contains(name), "manifests/deny.toml allows {name}");
    }
    let empty = BTreeSet::new();
    assert_eq!(seen.intersection(&banned).collect::<BTreeSet<_>>(), empty);
    let allowed = crates_of("skip");
    assert_eq!(twice.difference(&allowed).collect::<BTreeSet<_>>(), empty);
}

/// Names that private types of several files may share, because each of these types is used in its own file alone.
const SHARED_BY_PRIVATE_TYPES: &[&str] = &["Row", "Entry", "State", "Status"];

/// Returns the name of the type that a line of code declares, and whether the type is private to its file.
fn type_declared(line: &str) -> Option<(&str, bool)> {
    // An indented `type` is an associated type of a trait.
    let can_be_alias = !line.starts_with(' ');
    let line = line.trim_start();
    let without_pub = line.strip_prefix("pub").map(|rest| match rest.strip_prefix('(') {
        Some(place) => place.split_once(')').map_or(place, |(_, rest)| rest),
        None => rest,
    });
    let declaration = without_pub.unwrap_or(line).trim_start();
    let mut keywords = ["struct ", "enum ", "trait ", "union "].iter();
    let declared = keywords.find_map(|keyword| declaration.strip_prefix(keyword));
    let alias = declaration.strip_prefix("type ").filter(|_| can_be_alias);
    let name = first_word(declared.or(alias)?);
    let is_named = name.starts_with(char::is_uppercase);
    is_named.then_some((name, without_pub.is_none()))
}

#[test]
fn a_type_name_is_declared_once() {
    let mut places: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    for (file, text) in rust_texts(&source("")) {
        if file.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests")) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (name, is_private) in code.lines().filter_map(type_declared) {
            places
                .entry(name.to_owned())
                .or_default()
                .push((file.display().to_string(), is_private));
        }
    }
    assert!(places.len() > 300, "only {} types were found", places.len());
    let mut wrong = Vec::new();
    for (name, places) in places.iter().filter(|(_, places)| places.len() > 1) {
        let are_private = places.iter().all(|(_, is_private)| *is_private);
        if !(are_private && SHARED_BY_PRIVATE_TYPES.contains(&name.as_str())) {
            let files: Vec<&str> = places.iter().map(|(file, _)| file.as_str()).collect();
            wrong.push(format!("{name}: {}", files.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "types with the same name:\n{}", wrong.join("\n"));
}
