//! Finds the names in a text and their kinds, by their form or by the text before them.

use super::tree::Text;
use ccm::hetzner::load_balancers::annotations::{PREFIX, TABLE as ANNOTATIONS};
use ccm::settings::{Command, nearest};
use std::collections::BTreeSet;

/// The kinds of names in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The annotation of a Service, without its prefix.
    Annotation,
    /// The key of another annotation or of a label.
    Key,
    Variable,
    /// A flag with the command before it.
    Flag,
    /// Behind `ccm`.
    Command,
    /// Behind `ccm help`.
    Topic,
    /// Behind `make`.
    Target,
    /// A word in camel case, which may also be a word of the code.
    Reason,
    Metric,
    File,
    /// A link from a Markdown file to another file and its heading.
    Link,
}

pub type Name = (Kind, String);

/// Programs whose flags are not ours.
const PROGRAMS: &[&str] =
    &["buildah", "cargo", "env", "git", "hcloud", "helm", "k3s", "kubectl", "sandbox", "skopeo"];

/// Commands without settings.
const OTHER_COMMANDS: &[&str] = &["completions", "explain", "help", "version"];

/// Words behind `ccm` in a sentence. Others are verbs that end with s, and are near no command.
const IN_SENTENCES: &[&str] = &[
    "alone", "already", "can", "choose", "could", "did", "first", "from", "in", "itself", "may",
    "manage", "must", "neither", "never", "on", "or", "read", "removed", "runs", "still",
    "stopped", "then", "to", "uploaded", "was", "with", "within", "would",
];

/// Words behind `annotation` in a sentence. Others are verbs that end with s, and are near no annotation.
const BEHIND_ANNOTATION: &[&str] =
    &["ask", "for", "from", "names", "of", "on", "or", "than", "that", "whose", "with"];

/// The characters that end a part of a sentence, or a command.
const CLAUSE_ENDS: [char; 5] = [';', '(', ')', '|', '"'];

/// Endings of the files that texts name.
const ENDINGS: &[&str] = &["json", "md", "py", "rs", "sh", "toml", "tpl", "txt", "yaml"];

/// Folders whose content is named from there.
#[rustfmt::skip]
const FOLDERS: &[&str] = &["src", "tests", "sandbox", "manifests", "base", "chart", "components", "monitoring", "overlays"];

/// The beginnings of the keys of annotations and labels, beside [`PREFIX`], and those of metrics.
#[rustfmt::skip]
const KEYS: &[&str] = &["ccm-from-scratch/", "hcloud-ccm/", "instance.hetzner.cloud/"];
const METRICS: &[&str] = &["ccm_", "hcloud_api_", "robot_api_", "process_"];

/// Everything that a text names.
pub fn of(text: &Text) -> BTreeSet<Name> {
    let is_markdown = text.file.ends_with(".md");
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || "-_./*".contains(c));
    let words = text.text.split(is_end);
    let mut names: BTreeSet<Name> = words.filter_map(by_form).collect();
    for mark in ["nnotation `", "nnotations `"] {
        names.extend(after(&text.text, mark).filter_map(annotation));
    }
    if !is_markdown {
        for mark in ["nnotation ", "nnotations "] {
            names.extend(after(&text.text, mark).flat_map(listed));
        }
    }
    // A line that is to be typed ends with a comment.
    let typed = text.text.split(" # ").next().filter(|_| text.is_code);
    for (at, part) in typed.unwrap_or(&text.text).split('`').enumerate() {
        let form = match text.is_code || at % 2 == 1 {
            true => Form::Code,
            false if is_markdown => Form::Prose,
            false => Form::Unmarked,
        };
        for clause in part.split(CLAUSE_ENDS) {
            names.extend(in_command(clause, form));
        }
    }
    if is_markdown {
        names.extend(after(&text.text, "](").filter_map(|to| link(&text.file, to)));
    }
    names
}

/// Returns the name that a word is by its form.
fn by_form(word: &str) -> Option<Name> {
    let word = word.trim_start_matches("../");
    let word = word.trim_end_matches(['.', '/', '*']);
    let begins_with = |begins: &[&str]| begins.iter().any(|begin| word.starts_with(begin));
    if let Some(name) = word.strip_prefix(PREFIX) {
        return annotation(name);
    }
    let kind = match word {
        _ if begins_with(KEYS) => Kind::Key,
        _ if begins_with(METRICS) => Kind::Metric,
        _ if is_variable(word) => Kind::Variable,
        _ if is_camel_case(word) => Kind::Reason,
        _ if is_path(word) => Kind::File,
        _ if is_like_an_annotation(word) => Kind::Annotation,
        _ => return None,
    };
    Some((kind, word.to_owned()))
}

fn is_variable(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    word.contains('_') && !word.starts_with('_') && word.chars().all(is_part)
}

fn is_camel_case(word: &str) -> bool {
    let letters = word.as_bytes();
    let is_hump = |two: &[u8]| two[0].is_ascii_lowercase() && two[1].is_ascii_uppercase();
    letters.iter().all(u8::is_ascii_alphanumeric)
        && letters.windows(2).any(is_hump)
        && letters[0].is_ascii_uppercase()
}

/// A file by its ending, or something in one of our folders. `NAME` and `*` stand for others, and files with the version
/// in their names are those of a release.
fn is_path(word: &str) -> bool {
    let is_placeholder = |part: &str| part.chars().all(|c| c.is_ascii_uppercase());
    let is_other = word.starts_with(['/', '.'])
        || word.contains(['*', '@'])
        || word.contains(env!("CARGO_PKG_VERSION"))
        || word.split(['/', '.']).any(is_placeholder);
    let ending = word.rsplit_once('.').map(|(_, ending)| ending);
    let folder = word.split_once('/').map(|(folder, _)| folder);
    let is_file = ending.is_some_and(|ending| ENDINGS.contains(&ending));
    !is_other && (is_file || folder.is_some_and(|folder| FOLDERS.contains(&folder)))
}

/// Whether the word is spelled like the name of an annotation, or begins with the first two parts of such a name. Parts are
/// separated by dashes.
fn is_like_an_annotation(word: &str) -> bool {
    let names = ANNOTATIONS.iter().map(|row| row.name);
    let names = names.filter(|name| name.contains('-'));
    let two_parts = |name: &'static str| name.match_indices('-').nth(1).map(|(at, _)| &name[..at]);
    let begins = |begin: &str| {
        let rest = word.strip_prefix(begin);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let is_like = || names.clone().filter_map(two_parts).any(begins);
    word.contains('-') && is_name(word) && (is_like() || nearest(word, names.clone()).is_some())
}

/// Returns the annotation at the beginning of a text. A port, a value or the end of the code may follow it.
fn annotation(text: &str) -> Option<Name> {
    let whole = text.split(['`', ' ']).next()?;
    let name = whole.split(['.', ':', '=']).next()?;
    let is_annotation = is_name(name) && !whole.contains('/');
    is_annotation.then(|| (Kind::Annotation, name.to_owned()))
}

/// Returns the annotations at the beginning of a text without marks. There is one, or several with commas and
/// `and` between them.
fn listed(text: &str) -> Vec<Name> {
    let mut names = Vec::new();
    let clause = text.split(CLAUSE_ENDS).next().unwrap_or_default();
    let mut words = clause.split(' ').peekable();
    while let Some(word) = words.next() {
        let name = bare(word);
        if name == "and" && !names.is_empty() {
            continue;
        }
        if !is_name(name) || is_prose(name) {
            break;
        }
        names.push((Kind::Annotation, name.to_owned()));
        if !word.ends_with(',') && words.peek() != Some(&"and") {
            break;
        }
    }
    names
}

/// How a part of a text is marked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The part can be typed.
    Code,
    /// The part is a sentence in which code would be marked.
    Prose,
    /// The part is a sentence, and may contain commands.
    Unmarked,
}

/// The commands of a part of a text, with their flags.
fn in_command(part: &str, form: Form) -> Vec<Name> {
    let mut names = Vec::new();
    let words: Vec<&str> = part.split_whitespace().collect();
    // The name behind this word, unless a comma or a full stop is between.
    let next = |at: usize| {
        let is_joined = words.get(at)?.ends_with(|c: char| c.is_alphanumeric());
        let word = words.get(at + 1).map(|word| bare(word))?;
        Some(word).filter(|word| is_joined && is_name(word))
    };
    // The flags belong to this program. It is a command of ours, as far as it is known, or another program.
    let mut program = String::new();
    for (at, word) in words.iter().enumerate() {
        let word = bare(word);
        let is_plugin = at > 0 && words[at - 1] == "kubectl";
        let is_ours = is_plugin || !PROGRAMS.contains(&program.as_str());
        if let Some(flag) = word.strip_prefix("--").filter(|_| is_ours) {
            let flag = flag.split(['=', ',', '…']).next();
            let flag = flag.filter(|flag| is_name(flag));
            let with_command = |flag| format!("{program} --{flag}").trim_start().to_owned();
            names.extend(flag.map(|flag| (Kind::Flag, with_command(flag))));
            continue;
        }
        let name = word.rsplit('/').next().unwrap_or_default();
        match (name, next(at), next(at + 1)) {
            ("ccm", Some("help"), Some(topic)) if is_ours && form != Form::Prose => {
                names.push((Kind::Topic, topic.to_owned()));
            }
            ("ccm", Some(word), second) if is_ours && form != Form::Prose => {
                let is_verb = form == Form::Unmarked && is_verb(word);
                program = match second.filter(|_| is_group(word)) {
                    _ if is_verb => String::new(),
                    Some(second) => format!("{word} {second}"),
                    None => word.to_owned(),
                };
                names.extend((!is_verb).then(|| (Kind::Command, program.clone())));
            }
            ("make", Some(target), _) if form == Form::Code && at == 0 || target.contains('-') => {
                names.push((Kind::Target, target.to_owned()));
            }
            (other, ..) if PROGRAMS.contains(&other) => program = other.to_owned(),
            _ => {}
        }
    }
    names
}

/// A word without what stands around it in a sentence, or in the usage of a command.
fn bare(word: &str) -> &str {
    let word = word.trim_start_matches(['[', '\'']);
    word.trim_end_matches(['.', ',', ':', ']', '\''])
}

fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(is_part)
}

fn is_group(word: &str) -> bool {
    let names = Command::ALL.iter().map(|command| command.name());
    let mut groups = names.filter_map(|name| name.split_once(' '));
    groups.any(|(group, _)| group == word)
}

/// Behind `ccm` as the subject of a sentence.
fn is_verb(word: &str) -> bool {
    let names = Command::ALL.iter().map(|command| command.name());
    let commands = names.filter_map(|name| name.split(' ').next());
    let commands = commands.chain(OTHER_COMMANDS.iter().copied());
    IN_SENTENCES.contains(&word) || (word.ends_with('s') && nearest(word, commands).is_none())
}

/// Behind `annotation` as a word of the sentence.
fn is_prose(word: &str) -> bool {
    let names = ANNOTATIONS.iter().map(|row| row.name);
    let is_verb = word.ends_with('s') && !word.contains('-') && nearest(word, names).is_none();
    BEHIND_ANNOTATION.contains(&word) || is_verb
}

/// A link to a file of ours, from the root.
fn link(from: &str, to: &str) -> Option<Name> {
    let to = to.split(')').next().filter(|to| !to.contains("://"))?;
    let (path, heading) = to.split_at(to.find('#').unwrap_or(to.len()));
    let mut parts: Vec<&str> = from.split('/').collect();
    if !path.is_empty() {
        parts.pop();
    }
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some((Kind::Link, parts.join("/") + heading))
}

/// Returns the text behind each of these marks.
fn after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    let found = text.match_indices(mark);
    found.map(|(at, mark)| &text[at + mark.len()..])
}
