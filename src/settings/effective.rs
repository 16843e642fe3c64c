//! The effective value of one setting, with its source. A flag wins over a variable, a variable over the daemon of a
//! cluster (`--settings-from`), and the daemon over the default.

use super::problem::Problem;
use super::setting::{Command, Flag, Setting, ValueKind, Variable};
use super::values::{Output, looks_like_a_token, without_credentials};
use crate::http::{Secret, SecretCheck, SecretSource};
use crate::provider::{Source, Sourced, process};
use crate::text::{boolean, one_of};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The text that is printed instead of a secret.
const REDACTED: &str = "<redacted>";

/// The largest file that is read when a variable contains the path of a file, in bytes. Such a file holds a token or
/// a similar value.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A source of environment variables: this process, a test, or another process.
pub trait Environment {
    fn get(&self, name: &str) -> Option<OsString>;
    /// Returns the names of all variables. An implementation may leave out names that are not UTF-8.
    fn names(&self) -> Vec<String>;
    /// Reads a file that a variable names.
    fn read_file(&self, path: &Path) -> io::Result<String>;
}

/// The environment of this process.
pub struct Process;

impl Environment for Process {
    fn get(&self, name: &str) -> Option<OsString> {
        process::variable(name)
    }

    fn names(&self) -> Vec<String> {
        let names = process::variables().into_iter().map(|(name, _)| name);
        names.filter_map(|name| name.into_string().ok()).collect()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            let message = format!("larger than {MAX_FILE_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        Ok(text)
    }
}

/// A setting with its effective value and the source of this value, as `ccm config` shows them. The value of a secret
/// is left out.
#[derive(Debug, Clone)]
pub struct Effective {
    pub setting: &'static Setting,
    /// The value as text. `None` when the setting is unset and has no default.
    pub value: Option<String>,
    pub source: Source,
}

/// The arguments and variables of the daemon of a cluster, for `--settings-from`.
#[derive(Debug)]
pub struct DaemonSettings {
    /// The workload object that runs the daemon, e.g. `deployment kube-system/ccm-from-scratch`.
    pub(super) from: String,
    /// The flags of the daemon. The name of each flag is followed by the workload, e.g. `--cluster-name
    /// of deployment kube-system/ccm`.
    pub(super) flags: Vec<Flag>,
    pub(super) variables: Vec<(String, String)>,
}

/// Reads settings one by one, and collects the problems.
pub(super) struct Resolver<'a> {
    pub(super) command: Command,
    pub(super) flags: &'a [Flag],
    pub(super) environment: &'a dyn Environment,
    pub(super) daemon: Option<&'a DaemonSettings>,
    /// The settings in the order in which they were read.
    pub(super) effective: Vec<Effective>,
    pub(super) problems: Vec<Problem>,
}

/// A text that may become the value of a setting, and that is not parsed yet.
pub(super) struct Candidate {
    setting: &'static Setting,
    text: String,
    source: Source,
    /// Whether the text is from the command line of this process, so that a problem with it is a usage error.
    is_usage: bool,
    /// The variable and the path of the file from which the text was read. `None` when the text was not in a file.
    file: Option<(&'static str, PathBuf)>,
}

impl Resolver<'_> {
    /// Reads a setting that has no default.
    pub(super) fn optional<T>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&Candidate) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        let Sourced { value, source } =
            self.setting(setting, |candidate| parse(candidate).map(Some));
        value.map(|value| Sourced::new(value, source))
    }

    /// Reads a setting. The value is the last candidate that can be parsed, and each candidate that cannot be parsed is
    /// reported as a problem. Without a candidate the value is the default in the setting's row, or the default of the
    /// type when the row has no default.
    pub(super) fn setting<T: Default>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&Candidate) -> Result<T, String>,
    ) -> Sourced<T> {
        let unset = Source::Default(setting.written_name());
        let default = setting.default.map(|text| Candidate::new(setting, text, unset.clone()));
        let (mut value, mut chosen) = (T::default(), None);
        for candidate in default.into_iter().chain(self.candidates(setting)) {
            match parse(&candidate) {
                Ok(parsed) => (value, chosen) = (parsed, Some(candidate)),
                Err(message) => self.problems.push(candidate.problem(message)),
            }
        }
        let source = chosen.as_ref().map_or(unset, |candidate| candidate.source.clone());
        if setting.is_for(self.command) {
            self.effective.push(Effective {
                setting,
                value: chosen
                    .map(|candidate| candidate.shown().unwrap_or_else(|| REDACTED.to_owned())),
                source: source.clone(),
            });
        }
        Sourced::new(value, source)
    }

    fn candidates(&mut self, setting: &'static Setting) -> Vec<Candidate> {
        if !setting.is_for(self.command) {
            return vec![];
        }
        let flags = candidates(self.flags, setting, true);
        if !flags.is_empty() {
            return flags;
        }
        let mut variables = setting.variables.iter();
        if let Some(own) = variables.find_map(|variable| self.variable(setting, *variable)) {
            return vec![own];
        }
        match self.daemon.filter(|_| setting.is_inherited()) {
            Some(daemon) => daemon.candidates(setting),
            None => vec![],
        }
    }

    /// Returns the text of a variable, or `None` when the variable is not set or is empty. When the variable holds the
    /// path of a file, returns the text of the file.
    fn variable(&mut self, setting: &'static Setting, variable: Variable) -> Option<Candidate> {
        let name = variable.name();
        let Ok(text) = self.environment.get(name)?.into_string() else {
            let problem = Problem::environment(name, "its value is not UTF-8");
            self.problems.push(problem);
            return None;
        };
        let read = match (text.trim(), variable) {
            ("", _) => return None,
            (path, Variable::File(_)) => self.file(setting, name, path, false),
            (path, Variable::OptionalFile(_)) => self.file(setting, name, path, true),
            (text, _) => {
                let source = Source::Environment(name.to_owned());
                Ok(Some(Candidate::new(setting, text, source)))
            }
        };
        read.unwrap_or_else(|problem| {
            self.problems.push(problem);
            None
        })
    }

    /// Returns the text of the file that a variable names. `None` when the file is optional, and missing or empty.
    fn file(
        &self,
        setting: &'static Setting,
        variable: &'static str,
        path: &str,
        is_optional: bool,
    ) -> Result<Option<Candidate>, Problem> {
        let wrong = |why: String| {
            if setting.secret && looks_like_a_token(path) {
                Problem::environment(
                    variable,
                    "can't be read, and looks like a token itself; write the path of a file that holds the token",
                )
            } else {
                Problem::environment(variable, why).with_value(path)
            }
        };
        let may_be_missing = is_optional && !looks_like_a_token(path);
        let text = match self.environment.read_file(Path::new(path)) {
            Err(error) if may_be_missing && error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| wrong(error.to_string()))?,
        };
        if text.trim().is_empty() {
            let why = || wrong("the file is empty".to_owned());
            return is_optional.then_some(None).ok_or_else(why);
        }
        let source = Source::Environment(format!("{variable} ({path})"));
        Ok(Some(Candidate {
            file: Some((variable, path.into())),
            ..Candidate::new(setting, text.trim(), source)
        }))
    }
}

impl Candidate {
    fn new(setting: &'static Setting, text: &str, source: Source) -> Candidate {
        Candidate { setting, text: text.to_owned(), source, is_usage: false, file: None }
    }

    fn problem(&self, message: String) -> Problem {
        if let Some((variable, path)) = &self.file {
            return Problem::environment(variable, message).with_value(path.display().to_string());
        }
        Problem {
            setting: self.source.name().to_owned(),
            value: self.shown(),
            message,
            usage: self.is_usage,
        }
    }

    /// Returns the text in a form that may be printed, or `None` when the text is a secret.
    fn shown(&self) -> Option<String> {
        match (self.setting.kind, boolean(&self.text)) {
            _ if self.setting.secret => None,
            (ValueKind::Url, _) => Some(without_credentials(&self.text)),
            (ValueKind::Boolean, Ok(value)) => Some(value.to_string()),
            _ => Some(self.text.clone()),
        }
    }
}

/// Returns a parser for the possible values of a setting. It parses only their text, and ignores their source.
pub(super) fn parsed<T>(
    parse: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&Candidate) -> Result<T, String> {
    move |candidate| parse(&candidate.text)
}

/// Parses a choice: one of the words in the setting's row, in upper or lower case.
pub(super) fn choice<T: for<'de> Deserialize<'de>>(candidate: &Candidate) -> Result<T, String> {
    let words = match candidate.setting.kind {
        ValueKind::Choice(words) => words,
        _ => &[],
    };
    let word = candidate.text.to_ascii_lowercase();
    let read: StrDeserializer<Error> = word.as_str().into_deserializer();
    // The Rust type may accept words that the row of the table does not offer, so the word is also compared
    // with the row.
    let read = T::deserialize(read).ok();
    read.filter(|_| words.contains(&word.as_str())).ok_or_else(|| format!("use {}", one_of(words)))
}

/// Parses an output format. The short forms that kubectl knows are accepted. A format that only kubectl has leads to
/// a special message.
pub(super) fn output(candidate: &Candidate) -> Result<Output, String> {
    let of_kubectl = ["jsonpath", "go-template", "template", "custom-columns"];
    match candidate.text.to_ascii_lowercase() {
        word if word == "yml" => Ok(Output::Yaml),
        word if of_kubectl.iter().any(|form| word.starts_with(form)) => {
            Err("only kubectl has this format; use -o json, and select from the output with jq"
                .to_owned())
        }
        _ => choice(candidate),
    }
}

/// Accepts any visible ASCII characters, which an HTTP header can carry. Only the API knows whether the
/// text is a token.
pub(super) fn token(candidate: &Candidate) -> Result<Option<SecretSource>, String> {
    secret(candidate, "token", Secret::check)
}

/// Parses a user name, which is sent with a password.
pub(super) fn user(candidate: &Candidate) -> Result<Option<SecretSource>, String> {
    secret(candidate, "user", |user| {
        if user.expose().contains(':') {
            Err("has a colon, but no user of the web service has one; is the password in it too?")
        } else {
            user.check_line()
        }
    })
}

pub(super) fn password(candidate: &Candidate) -> Result<Option<SecretSource>, String> {
    secret(candidate, "password", Secret::check_line)
}

fn secret(
    candidate: &Candidate,
    what: &'static str,
    check: SecretCheck,
) -> Result<Option<SecretSource>, String> {
    let secret = Secret::new(&candidate.text);
    check(&secret)?;
    let source = match &candidate.file {
        Some((_, path)) => SecretSource::file(path.clone(), Some(secret)),
        None => SecretSource::fixed(secret),
    };
    Ok(Some(source.of(what, check)))
}

/// Parses the paths of kubeconfig files. The flag holds one path, and the variable may list several.
/// Empty paths are ignored.
pub(super) fn kubeconfig(candidate: &Candidate) -> Result<Vec<PathBuf>, String> {
    let mut paths = match candidate.source {
        Source::Flag(_) => vec![PathBuf::from(&candidate.text)],
        _ => std::env::split_paths(&candidate.text).collect(),
    };
    paths.retain(|path| !path.as_os_str().is_empty());
    Ok(paths)
}

impl DaemonSettings {
    /// Returns the values of the daemon's flags for a setting. When the daemon has no such flag, returns the value of
    /// the setting's first variable that is set and not empty. Variables that hold the path of a file are left out,
    /// because this process can't read the daemon's files.
    fn candidates(&self, setting: &'static Setting) -> Vec<Candidate> {
        let flags = candidates(&self.flags, setting, false);
        if !flags.is_empty() {
            return flags;
        }
        let is_value = |variable: &&Variable| {
            !matches!(variable, Variable::File(_) | Variable::OptionalFile(_))
        };
        let set = setting.variables.iter().filter(is_value).find_map(|variable| {
            let (name, text) = self.variables.iter().find(|(name, _)| name == variable.name())?;
            let source = Source::Environment(format!("{name} of {}", self.from));
            Some(Candidate::new(setting, text.trim(), source))
                .filter(|candidate| !candidate.text.is_empty())
        });
        set.into_iter().collect()
    }
}

/// Returns the values of a setting's flags, in the order in which they were given. When a list flag is given several
/// times, its values are joined into one list.
fn candidates(flags: &[Flag], setting: &'static Setting, is_usage: bool) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for flag in flags.iter().filter(|flag| std::ptr::eq(flag.setting, setting)) {
        match found.last_mut() {
            Some(list) if matches!(setting.kind, ValueKind::List(_)) => {
                list.text.push(',');
                list.text.push_str(&flag.text);
            }
            _ => found.push(Candidate {
                is_usage,
                ..Candidate::new(setting, &flag.text, Source::Flag(flag.name.clone()))
            }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let error = Process.read_file(Path::new("/dev/zero")).map_err(|error| error.kind());
        assert_eq!(error, Err(io::ErrorKind::FileTooLarge));
    }
}
