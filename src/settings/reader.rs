//! One setting out of all that was said of it: flag before environment before default, and who said so.

use std::fmt;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::in_force::InForce;
use super::line::Line;
use super::problem::Problem;
use super::setting::{Command, Kind, Setting, Variable};
use super::taken::{Taken, comes_along};
use super::token::looks_like_a_token;
use super::url::without_credentials;

/// A value and who said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    pub value: T,
    pub source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// As it was written, dashes included: `-o`, `--logging-format`.
    Flag(String),
    Environment(&'static str),
    /// The file that a variable names.
    File {
        variable: &'static str,
        path: PathBuf,
    },
    /// What the daemon of a cluster is started with.
    Taken {
        /// The flag as it was written, or the variable.
        what: String,
        /// E.g. `deployment kube-system/ccm-from-scratch`.
        from: String,
    },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(flag) => write!(out, "{flag}"),
            Source::Environment(variable) => write!(out, "{variable}"),
            Source::File { variable, path } => write!(out, "{variable} ({})", path.display()),
            Source::Taken { what, from } => write!(out, "{what} of {from}"),
            Source::Default => write!(out, "default"),
        }
    }
}

/// Reads settings one by one, and collects what is wrong with them.
pub(super) struct Reader<'a> {
    command: Command,
    line: &'a Line,
    environment: &'a dyn Environment,
    /// In the order in which they were read.
    pub(super) in_force: Vec<InForce>,
    taken: Option<&'a Taken>,
    pub(super) problems: Vec<Problem>,
}

/// Text for a setting, not yet read.
pub(super) struct Candidate {
    pub(super) text: String,
    pub(super) source: Source,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        command: Command,
        line: &'a Line,
        environment: &'a dyn Environment,
        taken: Option<&'a Taken>,
    ) -> Reader<'a> {
        Reader {
            command,
            line,
            environment,
            in_force: vec![],
            taken,
            problems: vec![],
        }
    }

    pub(super) fn setting<T: Default>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Sourced<T> {
        self.sourced(setting, |candidate| parse(&candidate.text))
    }

    /// The last candidate that can be read; each that can't is a problem. Without one, the default
    /// of the table, and where that has none, of the type.
    pub(super) fn sourced<T: Default>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&Candidate) -> Result<T, String>,
    ) -> Sourced<T> {
        let default = setting.default.map(|text| Candidate {
            text: text.to_owned(),
            source: Source::Default,
        });
        let mut found = None;
        for candidate in default.into_iter().chain(self.candidates(setting)) {
            match parse(&candidate) {
                Ok(value) => found = Some((value, candidate)),
                Err(message) => self.problems.push(problem(setting, &candidate, message)),
            }
        }
        self.note(setting, found.as_ref().map(|(_, candidate)| candidate));
        match found {
            Some((value, candidate)) => Sourced {
                value,
                source: candidate.source,
            },
            None => Sourced {
                value: T::default(),
                source: Source::Default,
            },
        }
    }

    fn note(&mut self, setting: &'static Setting, found: Option<&Candidate>) {
        if setting.is_for(self.command) {
            self.in_force.push(InForce::new(setting, found));
        }
    }

    fn candidates(&mut self, setting: &'static Setting) -> Vec<Candidate> {
        if !setting.is_for(self.command) {
            return vec![];
        }
        let own = given(self.line, setting, &Source::Flag);
        if !own.is_empty() {
            return own;
        }
        let mut variables = setting.variables.iter();
        if let Some(own) = variables.find_map(|v| self.variable(setting, *v)) {
            return vec![own];
        }
        match self.taken.filter(|_| comes_along(setting)) {
            Some(taken) => of_daemon(taken, setting),
            None => vec![],
        }
    }

    /// A variable that is set and not empty; the file form is read.
    fn variable(&mut self, setting: &Setting, variable: Variable) -> Option<Candidate> {
        let name = variable.name();
        let text = match self.environment.get(name)?.into_string() {
            Ok(text) => text.trim().to_owned(),
            Err(_) => {
                self.problems
                    .push(Problem::environment(name, "its value is not UTF-8"));
                return None;
            }
        };
        if text.is_empty() {
            return None;
        }
        match variable {
            Variable::Value(name) | Variable::Older(name) => Some(Candidate {
                text,
                source: Source::Environment(name),
            }),
            Variable::File(name) => self.file(setting, name, &text),
        }
    }

    fn file(&mut self, setting: &Setting, variable: &'static str, path: &str) -> Option<Candidate> {
        let message = match self.environment.read_file(Path::new(path)) {
            Ok(text) if text.trim().is_empty() => "the file is empty".to_owned(),
            Ok(text) => {
                let source = Source::File {
                    variable,
                    path: PathBuf::from(path),
                };
                return Some(Candidate {
                    text: text.trim().to_owned(),
                    source,
                });
            }
            Err(error) => error.to_string(),
        };
        self.problems
            .push(if setting.secret && looks_like_a_token(path) {
                let message = "can't be read, and looks like a token itself; write the path \
                           of a file that holds the token";
                Problem::environment(variable, message)
            } else {
                Problem::environment(variable, message).with_value(path)
            });
        None
    }
}

/// What a command line says of a setting; `source` is given each flag.
fn given(line: &Line, setting: &Setting, source: &dyn Fn(String) -> Source) -> Vec<Candidate> {
    let given: Vec<_> = line
        .flags
        .iter()
        .filter(|given| std::ptr::eq(given.setting, setting))
        .collect();
    match (given.as_slice(), setting.kind) {
        // A list flag adds to what it said before.
        ([first, ..], Kind::List(_)) => {
            let texts: Vec<&str> = given.iter().map(|given| given.text.as_str()).collect();
            vec![Candidate {
                text: texts.join(","),
                source: source(first.flag.clone()),
            }]
        }
        _ => given
            .iter()
            .map(|given| Candidate {
                text: given.text.clone(),
                source: source(given.flag.clone()),
            })
            .collect(),
    }
}

/// What the daemon of a cluster is started with. Files that its variables name are its own.
fn of_daemon(taken: &Taken, setting: &Setting) -> Vec<Candidate> {
    let source = |what: String| Source::Taken {
        what,
        from: taken.from.clone(),
    };
    let flags = given(&taken.line, setting, &source);
    if !flags.is_empty() {
        return flags;
    }
    let values = setting.variables.iter().filter_map(|variable| {
        let (Variable::Value(name) | Variable::Older(name)) = *variable else {
            return None;
        };
        Some(Candidate {
            text: taken.variable(name)?.to_owned(),
            source: source(name.to_owned()),
        })
    });
    values.take(1).collect()
}

impl Source {
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Source::File { path, .. } => Some(path),
            _ => None,
        }
    }
}

fn problem(setting: &Setting, candidate: &Candidate, message: String) -> Problem {
    let problem = match &candidate.source {
        Source::Flag(flag) => Problem::usage(flag, message),
        Source::Environment(variable) => Problem::environment(variable, message),
        Source::Taken { .. } => Problem::environment(&candidate.source.to_string(), message),
        Source::File { variable, path } => {
            return Problem::environment(variable, message).with_value(path.display().to_string());
        }
        Source::Default => Problem::environment(setting.name, message),
    };
    match setting.kind {
        _ if setting.secret => problem,
        Kind::Url => problem.with_value(without_credentials(&candidate.text)),
        _ => problem.with_value(candidate.text.as_str()),
    }
}
