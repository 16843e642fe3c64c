//! Deliberate faults in guards of `src/`, for `make mutants`. The stories must find the faults of `table`, unit tests
//! must find those of `rows`, and tests of whole programs must find those of `programs`.
//!
//! The source that is released has none of these faults. A copy of the checkout gets all of them, each behind a switch,
//! and is built once. Then stories are run with one fault after the other.

mod programs;
mod rows;
mod table;

use crate::common::seeds::chosen;
use crate::story::OVER_SOCKETS;
use programs::PROGRAMS;
use rows::ROWS;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::MUTANTS;

/// A deliberate fault.
struct Mutant {
    /// What the program does wrong, in plain words.
    name: &'static str,
    /// The path of the file, relative to the root of the repository.
    file: &'static str,
    /// The text that is replaced. It occurs once in the file.
    old: &'static str,
    /// The replacement. It is the same text, with the fault where `$ON` is true.
    new: &'static str,
}

/// Creates a row of a table of faults: its name, its file, the text that occurs once there, and that text with the fault.
const fn fault(
    name: &'static str,
    file: &'static str,
    old: &'static str,
    new: &'static str,
) -> Mutant {
    Mutant { name, file, old, new }
}

/// The number of stories in which each fault must be found.
const STORIES: u64 = 10_000;
/// So many of these stories are run before the stories of [`RARE_TOPICS`].
const STORIES_SOON: u64 = 500;

/// The topics that only few stories have. A fault that no story finds is also looked for in this many stories of each of
/// these topics.
const RARE_TOPICS: [&str; 6] =
    ["targets", "pods", "zones", "certificates", "foreign-nodes", "replace"];
const STORIES_OF_TOPIC: u64 = 1_000;

/// The number of stories that must pass without any fault, because otherwise a failed story would prove nothing.
const STORIES_WITHOUT: u64 = 200;

/// The names of the folders that are not copied.
const NOT_COPIED: [&str; 2] = ["target", ".git"];

const SWITCH: &str = "\
//! Whether a fault is on. tests/storm/mutants.rs explains the faults.
use std::sync::LazyLock;
static MUTANT: LazyLock<usize> = LazyLock::new(|| {
    let number = std::env::var(\"CCM_MUTANT\").unwrap_or_default();
    number.parse().unwrap_or_default()
});
pub fn on(number: usize) -> bool {
    *MUTANT == number
}
";

/// Returns all faults. The number of a fault is its position in this list, and the first number is 1.
fn all() -> impl Iterator<Item = &'static Mutant> {
    let of_programs = PROGRAMS.iter().map(|one| &one.mutant);
    MUTANTS.iter().chain(ROWS).chain(of_programs)
}

/// Returns the name of each row of the tables in the judge's documentation, for example `stake 3`.
fn rows_of_the_judge() -> Vec<String> {
    let path = root().join("src/hetzner/load_balancers/ownership/judge.rs");
    let text = fs::read_to_string(path).unwrap();
    let mut table = String::new();
    let mut rows = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("//! ")) {
        if let Some(heading) = line.strip_prefix("# ") {
            let name = heading.split('`').nth(1);
            table = name.expect("the heading names a function").to_owned();
        }
        let number = line.split('|').nth(1).map(str::trim);
        if let Some(number) = number.filter(|number| number.parse::<u32>().is_ok()) {
            rows.push(format!("{table} {number}"));
        }
    }
    rows
}

#[test]
fn every_row_of_the_judge_has_a_mutant() {
    let rows = rows_of_the_judge();
    assert!(rows.len() > 30, "{rows:?}");
    let count = |row: &&String| {
        let begin = format!("{row}: ");
        all().filter(|one| one.name.starts_with(&begin)).count()
    };
    let wrong: Vec<&String> = rows.iter().filter(|row| count(row) != 1).collect();
    assert!(wrong.is_empty(), "not exactly one fault each: {wrong:?}");
}

#[test]
fn every_mutant_still_has_its_place() {
    for mutant in all() {
        let text = fs::read_to_string(root().join(mutant.file)).unwrap_or_default();
        let count = text.matches(mutant.old).count();
        assert_eq!(
            count, 1,
            "{}: its text must occur once in {}. The source changed: write the new text into tests/storm/mutants, or, where the guard does not exist any more, replace the mutant by one of the guard that came instead; then \
             run make mutants",
            mutant.name, mutant.file
        );
        assert!(mutant.new.contains("$ON"), "{} has no switch", mutant.name);
    }
}

/// Prints a line for each fault, and fails when a fault was not found. `CCM_MUTANT=7` runs only fault 7, and
/// `CCM_TEST_SEED` chooses other stories.
#[test]
#[ignore = "make mutants"]
fn mutants() {
    let numbers = chosen_numbers();
    let stories = Stories::build();
    let without = stories.run("", 0, 1..=STORIES_WITHOUT);
    assert!(without.is_none(), "failed without any fault: {without:?}");
    let without = stories.find_by_unit_tests(0);
    assert!(without.is_none(), "failed without any fault: {without:?}");
    let mut survivors = Vec::new();
    println!("| fault | seed | what the story says |\n|---|--:|---|");
    for (place, mutant) in all().enumerate() {
        let (number, name) = (place + 1, mutant.name);
        if !numbers.contains(&number) {
            continue;
        }
        let without_seed = |why| ("–".to_owned(), why);
        let found = match place.checked_sub(MUTANTS.len()) {
            None => stories.find(number).map(|(seed, why)| (seed.to_string(), why)),
            Some(place) => match place.checked_sub(ROWS.len()) {
                None => stories.find_by_unit_tests(number).map(without_seed),
                Some(place) => {
                    stories.find_by_program(number, PROGRAMS[place].test).map(without_seed)
                }
            },
        };
        match found {
            Some((seed, why)) => println!("| {name} | {seed} | {why} |"),
            None => {
                println!("| {name} | – | – |");
                survivors.push(format!("{number}: {name}"));
            }
        }
    }
    let count = survivors.len();
    assert!(count == 0, "{count} not found: {survivors:#?}");
}

/// Returns the numbers of all faults, or the number in `CCM_MUTANT`.
fn chosen_numbers() -> RangeInclusive<usize> {
    let all = 1..=all().count();
    let text = std::env::var("CCM_MUTANT").unwrap_or_default();
    match text.parse() {
        _ if text.is_empty() => all,
        Ok(number) if all.contains(&number) => number..=number,
        _ => panic!("CCM_MUTANT={text}: give a number from 1 to {}", all.end()),
    }
}

/// Runs stories in the copy with one fault, until the first story fails.
#[test]
#[ignore = "mutants runs it"]
fn stories() {
    // Stories over sockets are left out, because they are not the same each time.
    let mut seeds = chosen(1..=STORIES);
    seeds.retain(|seed| !seed.is_multiple_of(OVER_SOCKETS));
    let report = crate::run_stories(seeds, 1);
    println!("{report}");
    assert!(report.failed.is_empty(), "a story failed");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The test programs that were built in the copy.
struct Stories {
    tree: PathBuf,
    program: PathBuf,
    /// The program with the unit tests.
    unit_tests: PathBuf,
    /// The programs with the tests of whole programs, by the name of their crate.
    programs: BTreeMap<&'static str, PathBuf>,
}

/// The crates with the tests that `programs` names.
const CRATES: [&str; 4] = ["node", "plan", "route", "service"];

impl Stories {
    fn build() -> Stories {
        let folder = root().join("target/mutants");
        let tree = folder.join("tree");
        copy(&tree);
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["test", "--locked", "--profile", "storm"]);
        build.args(["--test", "storm", "--lib"]);
        build.args(CRATES.iter().flat_map(|name| ["--test", name]));
        build.args(["--no-run", "--message-format", "json-render-diagnostics"]);
        build.current_dir(&tree);
        build.env("CARGO_TARGET_DIR", folder.join("target"));
        build.stderr(std::process::Stdio::inherit());
        let built = build.output().unwrap();
        assert!(built.status.success(), "the copy is not built");
        let built = String::from_utf8(built.stdout).unwrap();
        let executable = |name: &str| {
            let messages = built.lines().map(serde_json::from_str::<Value>);
            let mut programs = messages.filter_map(|message| {
                let message = message.ok()?;
                // The program `ccm` has the name of the library, and is no test.
                let is_test = message["profile"]["test"] == true;
                let is_it = message["target"]["name"] == name && is_test;
                let program = message["executable"].as_str().filter(|_| is_it)?;
                Some(PathBuf::from(program))
            });
            programs.next().unwrap()
        };
        Stories {
            tree,
            program: executable("storm"),
            unit_tests: executable("ccm"),
            programs: CRATES.map(|name| (name, executable(name))).into(),
        }
    }

    /// Returns what the unit tests report when this fault is on, or `None` when they pass.
    fn find_by_unit_tests(&self, mutant: usize) -> Option<String> {
        let mut tests = Command::new(&self.unit_tests);
        tests.args(["judge::tests", "agenda::tests", "--nocapture"]);
        tests.current_dir(&self.tree);
        tests.env("CCM_MUTANT", mutant.to_string());
        tests.env("RUST_BACKTRACE", "0");
        let ran = tests.output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(!text.contains("running 0 tests"), "{text}");
        let said = String::from_utf8_lossy(&ran.stderr);
        let mut rows = said.lines().filter_map(|line| Some(&line[line.find("row ")?..]));
        let row = rows.next().unwrap_or("a test fails");
        let why = row.replace('|', "/").chars().take(110).collect();
        (!ran.status.success()).then_some(why)
    }

    /// Returns what the test reports when this fault is on, or `None` when the test passes. Without a fault the
    /// test must pass.
    fn find_by_program(&self, mutant: usize, (name, test): (&str, &str)) -> Option<String> {
        let passes = |mutant: usize| {
            let mut program = Command::new(&self.programs[name]);
            program.args([test, "--exact"]).current_dir(&self.tree);
            program.env("CCM_MUTANT", mutant.to_string());
            program.env("RUST_BACKTRACE", "0");
            let ran = program.output().unwrap();
            let text = String::from_utf8_lossy(&ran.stdout);
            assert!(!text.contains("running 0 tests"), "there is no test {test}");
            ran.status.success()
        };
        assert!(passes(0), "{test} fails without any fault");
        (!passes(mutant)).then(|| format!("{name} {test} fails"))
    }

    /// Returns the first story that fails with this fault and passes without it. The reason begins with the topic, if
    /// all stories had to have one topic.
    fn find(&self, mutant: usize) -> Option<(u64, String)> {
        let chosen = chosen(1..=STORIES);
        let (first, last) = (chosen[0], chosen[chosen.len() - 1]);
        // Most faults are found soon. The stories of one topic are searched before most of the other stories, because
        // those take minutes.
        let soon = last.min(first + STORIES_SOON - 1);
        let of_topic = |topic: &&str| {
            let (seed, why) = self.find_in(topic, mutant, 1..=STORIES_OF_TOPIC)?;
            Some((seed, format!("{topic}: {why}")))
        };
        self.find_in("", mutant, first..=soon)
            .or_else(|| RARE_TOPICS.iter().find_map(of_topic))
            .or_else(|| self.find_in("", mutant, soon + 1..=last))
    }

    /// Returns the first story of this topic that fails with this fault and passes without it. An empty topic means all
    /// topics.
    fn find_in(
        &self,
        topic: &str,
        mutant: usize,
        seeds: RangeInclusive<u64>,
    ) -> Option<(u64, String)> {
        let mut first = *seeds.start();
        loop {
            let (seed, why) = self.run(topic, mutant, first..=*seeds.end())?;
            if self.run(topic, 0, seed..=seed).is_none() {
                return Some((seed, why));
            }
            first = seed + 1;
        }
    }

    /// Returns the first of these stories that fails, and the reason. An empty topic means all topics.
    fn run(&self, topic: &str, mutant: usize, seeds: RangeInclusive<u64>) -> Option<(u64, String)> {
        if seeds.is_empty() {
            return None;
        }
        let (first, last) = seeds.into_inner();
        let mut stories = Command::new(&self.program);
        stories.args(["mutants::stories", "--exact", "--ignored", "--nocapture"]);
        stories.current_dir(&self.tree);
        stories.env("CCM_TEST_SEED", format!("{first}-{last}"));
        stories.env("CCM_MUTANT", mutant.to_string());
        stories.env("CCM_TEST_TOPIC", topic);
        let ran = stories.output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout);
        let failed = text.lines().find_map(|line| {
            let (seed, why) = line.strip_prefix("CCM_TEST_SEED=")?.split_once(": ")?;
            let why: String = why.replace('|', "/").chars().take(110).collect();
            Some((seed.parse().ok()?, why))
        });
        assert!(
            failed.is_some() != ran.status.success(),
            "mutant {mutant}, from seed {first}: {text}{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        failed
    }
}

/// Copies the checkout, with all faults. A file whose copy is equal already is not written, so that it is
/// not built again.
fn copy(tree: &Path) {
    let mut files = BTreeMap::new();
    read(root(), &mut files);
    for (place, mutant) in all().enumerate() {
        let text = files.get_mut(Path::new(mutant.file)).unwrap();
        let before = std::str::from_utf8(text).unwrap();
        assert_eq!(before.matches(mutant.old).count(), 1, "{}", mutant.name);
        let switch = format!("crate::mutants::on({})", place + 1);
        let new = mutant.new.replace("$ON", &switch);
        *text = before.replace(mutant.old, &new).into_bytes();
    }
    let library = files.get_mut(Path::new("src/lib.rs")).unwrap();
    library.extend(b"\npub mod mutants;\n");
    files.insert("src/mutants.rs".into(), SWITCH.into());
    let mut there = BTreeMap::new();
    if tree.exists() {
        read(tree, &mut there);
    }
    for path in there.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(tree.join(path)).unwrap();
    }
    for (path, text) in files.iter().filter(|(path, text)| there.get(*path) != Some(text)) {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Reads all files below a folder, by their path relative to that folder.
fn read(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().unwrap();
            if NOT_COPIED.iter().any(|one| name == *one) {
                continue;
            } else if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let text = fs::read(&path).unwrap();
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), text);
            }
        }
    }
}
