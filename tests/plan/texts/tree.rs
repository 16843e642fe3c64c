//! The texts of the repository, and the names that exist.

use super::names::Kind;
use ccm::hetzner::load_balancers::annotations::TABLE as ANNOTATIONS;
use ccm::metrics::TABLE as METRICS;
use ccm::provider::Reason;
use ccm::settings::{Command, IGNORED_FLAGS, TABLE as SETTINGS};
use std::collections::BTreeSet;
use std::path::Path;

/// The beginnings of lines with a text that a script prints, or with the help of a target in the Makefile.
#[rustfmt::skip]
const PRINTING: &[&str] = &["echo \"", "printf \"", "printf '", "stop \"", "fail \"", "ask \"", ": ## "];

/// A string literal of the program, a text that a script prints, or a line of a page or a manifest.
pub struct Text {
    pub file: String,
    pub line: usize,
    pub text: String,
    /// The whole line is to be typed.
    pub is_code: bool,
}

/// The texts of the repository, and the names that exist.
#[derive(Default)]
pub struct Tree {
    pub texts: Vec<Text>,
    /// Files and folders, from the root.
    paths: BTreeSet<String>,
    /// The program without literals, comments and tests.
    code: String,
    /// The literals of the program, each as a whole.
    literals: BTreeSet<String>,
    /// Tests, scripts and the Makefile.
    tools: String,
    /// `FILE#HEADING`, as links write them.
    headings: BTreeSet<String>,
}

impl Tree {
    pub fn read() -> Tree {
        let mut tree = Tree::default();
        #[rustfmt::skip]
        let paths = [
            "src", "tests", "manifests", "sandbox", "README.md", "LICENSE", "Cargo.toml", "Makefile", "rust-toolchain.toml",
        ];
        paths.iter().for_each(|path| tree.add(path));
        tree
    }

    fn add(&mut self, path: &str) {
        self.paths.insert(path.to_owned());
        let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if whole.is_dir() {
            for entry in std::fs::read_dir(whole).unwrap() {
                let name = entry.unwrap().file_name();
                self.add(&format!("{path}/{}", name.to_string_lossy()));
            }
            return;
        }
        let text = std::fs::read_to_string(whole).unwrap_or_default();
        let is_tool = path.starts_with("tests/") || path.starts_with("sandbox/");
        let is_of_tests = is_tool || path.contains("/tests");
        match path.rsplit(['.', '/']).next().unwrap() {
            "md" => self.add_markdown(path, &text),
            "rs" if !is_of_tests => self.add_rust(path, &text),
            "yaml" | "txt" | "tpl" | "toml" if !is_of_tests && path != "Cargo.toml" => {
                let lines = text.lines().enumerate();
                let texts = lines.map(|(at, line)| Text::new(path, at + 1, line, false));
                self.texts.extend(texts);
            }
            // These tests contain wrong names on purpose.
            "rs" if path.starts_with("tests/plan/texts/") => {}
            "sh" | "Makefile" if !is_of_tests => {
                self.texts.extend(printed(path, &text));
                self.tools += &text;
            }
            "rs" | "sh" | "py" => self.tools += &text,
            _ => {}
        }
    }

    fn add_markdown(&mut self, path: &str, text: &str) {
        let (mut is_fenced, mut begun) = (false, String::new());
        for (at, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_fenced = !is_fenced;
            } else if let Some(part) = line.strip_suffix('\\').filter(|_| is_fenced) {
                begun += part;
            } else {
                let line = std::mem::take(&mut begun) + line;
                if line.starts_with('#') && !is_fenced {
                    self.headings.insert(format!("{path}#{}", slug(&line)));
                }
                self.texts.push(Text::new(path, at + 1, &line, is_fenced));
            }
        }
    }

    fn add_rust(&mut self, path: &str, source: &str) {
        let source = source.split("#[cfg(test)]").next().unwrap();
        let mut rest = source;
        while let Some(c) = rest.chars().next() {
            let length = match c {
                '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                '"' => length_of_literal(rest),
                '\'' => length_of_char(rest),
                c => {
                    self.code.push(c);
                    c.len_utf8()
                }
            };
            if c == '"' {
                let line = 1 + source[..source.len() - rest.len()].matches('\n').count();
                // A text goes on behind a backslash at the end of a line.
                let parts = rest[1..length - 1].split("\\\n").map(str::trim_start);
                let text: String = parts.collect();
                let text = text.replace("\\\"", "\"").replace("\\n", " ");
                self.texts.push(Text::new(path, line, &text, false));
                self.literals.insert(text);
            }
            rest = &rest[length..];
        }
    }

    /// Returns the names of all commands, such as `lb` and `lb list`.
    fn commands(&self) -> impl Iterator<Item = String> {
        let pages = self.paths.iter();
        let pages = pages.filter_map(|path| path.strip_prefix("src/help/commands/"));
        pages.map(|page| match page.trim_end_matches(".txt") {
            "overview" => "help".to_owned(),
            name => name.replace('-', " "),
        })
    }

    /// Whether there is something of that name.
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        // `health-check-*` names several.
        let is_meant = |known: &str| match name.ends_with(['-', '_']) {
            true => known.starts_with(name),
            false => known == name,
        };
        match kind {
            Kind::Annotation => ANNOTATIONS.iter().any(|row| is_meant(row.name)),
            Kind::Key => self.literals.contains(name),
            Kind::Variable if name.starts_with("HCLOUD_") || name.starts_with("ROBOT_") => {
                let mut variables = SETTINGS.iter().flat_map(|row| row.variables);
                variables.any(|variable| is_meant(variable.name()))
            }
            Kind::Variable => self.is_in_code(name) || has_word(&self.tools, name),
            Kind::Flag => has_flag(name),
            Kind::Command => self.commands().any(|known| known == name),
            Kind::Topic => {
                let is_page = self.paths.contains(&format!("src/help/{name}.md"));
                is_page || self.commands().any(|known| known == name)
            }
            Kind::Target => self.tools.contains(&format!("\n{name}:")),
            Kind::Reason => {
                let is_reason = Reason::ALL.iter().any(|reason| reason.name() == name);
                // Our documents have kinds like `NodeList`.
                let endings = ["s", "List", "Inspection", "Sync"].iter();
                let parts = endings.filter_map(|ending| name.strip_suffix(ending));
                let mut parts = parts.chain([name]);
                let is_value = |part: &str| self.texts.iter().any(|text| text.is_value(part));
                is_reason || parts.any(|part| self.is_in_code(part) || is_value(part))
            }
            Kind::Metric => {
                let mut endings = ["_bucket", "_sum", "_count"].iter();
                let family = endings.find_map(|ending| name.strip_suffix(ending));
                let is_it = |known: &str| is_meant(known) || Some(known) == family;
                METRICS.iter().any(|row| is_it(row.name))
            }
            Kind::File => {
                let end = format!("/{name}");
                let mut paths = self.paths.iter();
                paths.any(|path| path == name || path.ends_with(&end))
            }
            Kind::Link => self.paths.contains(name) || self.headings.contains(name),
        }
    }

    /// A name of the code, or one of its literals as a whole.
    fn is_in_code(&self, word: &str) -> bool {
        self.literals.contains(word) || has_word(&self.code, word)
    }
}

impl Text {
    pub fn new(file: &str, line: usize, text: &str, is_code: bool) -> Text {
        Text { file: file.to_owned(), line, text: text.to_owned(), is_code }
    }

    /// Whether the text is a line of YAML with this value.
    fn is_value(&self, value: &str) -> bool {
        let text = self.text.trim_matches([' ', '"']);
        let before = text.strip_suffix(value);
        let before = before.filter(|_| self.file.ends_with(".yaml"));
        before.is_some_and(|before| !before.contains('#') && before.ends_with([' ', '"', ':']))
    }
}

/// The texts that a script or a Makefile prints, asks or ends with, each from its line to the line's end.
pub fn printed(path: &str, script: &str) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut begun = String::new();
    for (at, line) in script.lines().enumerate() {
        if let Some(part) = line.strip_suffix('\\') {
            begun += part;
            continue;
        }
        let line = std::mem::take(&mut begun) + line;
        for mark in PRINTING {
            let printed = line.split(mark).skip(1);
            texts.extend(printed.map(|text| Text::new(path, at + 1, text, false)));
        }
    }
    texts
}

/// Whether the command in front of the flag takes it. Without a command, whether any command takes it.
fn has_flag(name: &str) -> bool {
    let (command, flag) = name.split_once("--").unwrap();
    let mut commands = Command::ALL.iter();
    let command = commands.find(|known| known.name() == command.trim());
    let mut rows = SETTINGS.iter().filter(|row| row.flags.contains(&flag));
    ["help", "version"].contains(&flag)
        || rows.any(|row| command.is_none_or(|command| row.is_for(*command)))
        || IGNORED_FLAGS.iter().any(|(ignored, _)| *ignored == flag)
}

/// Returns a heading as a link writes it.
fn slug(heading: &str) -> String {
    let heading = heading.trim_start_matches(['#', ' ']).to_lowercase();
    let is_kept = |c: &char| c.is_alphanumeric() || "- _".contains(*c);
    let kept: String = heading.chars().filter(is_kept).collect();
    kept.replace(' ', "-")
}

/// Whether the text has it, and not only as a part of another word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = text.match_indices(word);
    found.any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

/// Returns the length of the string literal at the beginning of the code.
fn length_of_literal(code: &str) -> usize {
    let mut chars = code.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The length of the character literal at the beginning of the code, for example `'x'` or `'\n'`. At the quote of a lifetime
/// it is 1.
fn length_of_char(code: &str) -> usize {
    let mut chars = code.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => chars.find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}
