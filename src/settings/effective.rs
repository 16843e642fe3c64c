//! Finds the value of one setting, and its source. A flag wins over an environment variable, and a variable wins over
//! the settings of the cluster's daemon (`--settings-from`). The default is used last.

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

/// The text that is printed instead of the value of a secret.
const REDACTED: &str = "<redacted>";

/// The largest file, in bytes, that is read when an environment variable contains the path of a file. Such a file
/// contains a token, a user name or a password.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A source of environment variables and files, e.g. this process. Tests have sources of their own.
pub trait Environment {
    fn get(&self, name: &str) -> Option<OsString>;
    /// Returns the names of all variables. An implementation is allowed to leave out names that are not UTF-8.
    fn names(&self) -> Vec<String>;
    /// Reads a file whose path is the value of an environment variable.
    fn read_file(&self, path: &Path) -> io::Result<String>;
}

/// The environment variables of this process, and the files that they name.
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

/// A setting with its value and the source of the value, as `ccm config` prints them. The value of a secret is replaced
/// by a fixed text.
#[derive(Debug, Clone)]
pub struct Effective {
    pub setting: &'static Setting,
    /// The value as text. `None` when the setting is unset and has no default.
    pub value: Option<String>,
    pub source: Source,
}

/// The arguments and environment variables of the daemon that runs in a cluster. A command can use them as its
/// settings, see `--settings-from`.
#[derive(Debug)]
pub struct DaemonSettings {
    /// The workload object that runs the daemon, e.g. `deployment kube-system/ccm-from-scratch`.
    pub(super) from: String,
    /// The flags of the daemon. The name of a flag is followed by the workload that runs the daemon, e.g.
    /// `--cluster-name of deployment kube-system/ccm`.
    pub(super) flags: Vec<Flag>,
    /// The names and values of the daemon's variables. A value that is in another object, e.g. a Secret, is empty here.
    pub(super) variables: Vec<(String, String)>,
}

/// Reads the settings one by one, and collects the problems with them.
pub(super) struct Resolver<'a> {
    pub(super) command: Command,
    pub(super) flags: &'a [Flag],
    pub(super) environment: &'a dyn Environment,
    pub(super) daemon: Option<&'a DaemonSettings>,
    /// The settings in the order in which they were read.
    pub(super) effective: Vec<Effective>,
    pub(super) problems: Vec<Problem>,
}

/// A text, not parsed yet, that was given for a setting.
pub(super) struct Candidate {
    setting: &'static Setting,
    text: String,
    source: Source,
    /// Whether the field `text` was given on the command line of this process. If so, a mistake in it is a usage error.
    is_usage: bool,
    /// The file from which the text was read: the environment variable that contains the path, and the path. `None`
    /// when the text was not read from a file.
    file: Option<(&'static str, PathBuf)>,
}

impl Resolver<'_> {
    /// Reads a setting that has no default. Returns `None` when neither a flag, a variable nor the cluster's daemon
    /// sets it.
    pub(super) fn optional<T>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&Candidate) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        let Sourced { value, source } =
            self.setting(setting, |candidate| parse(candidate).map(Some));
        value.map(|value| Sourced::new(value, source))
    }

    /// Reads a setting. When several texts were given for it, the last text that can be parsed is used. Each text that
    /// can't be parsed is a problem. When no text was given, the value is the default in the table of settings, or else
    /// the default of the Rust type.
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

    /// Returns the value of an environment variable, or `None` when the variable is unset or empty. A variable such as
    /// `HCLOUD_TOKEN_FILE` names a file, so its result is the text of that file.
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

    /// Returns the text of the file to which an environment variable refers. `None` when the file is missing or empty,
    /// and the file is optional.
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
                    "the value is not the path of a file that can be read, and looks like a token; write the path of a \
                     file with the token",
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

    /// Returns the text of the setting in a form that can be printed, e.g. a URL without its password. `None` when the
    /// setting is a secret.
    fn shown(&self) -> Option<String> {
        match (self.setting.kind, boolean(&self.text)) {
            _ if self.setting.secret => None,
            (ValueKind::Url, _) => Some(without_credentials(&self.text)),
            (ValueKind::Boolean, Ok(value)) => Some(value.to_string()),
            _ => Some(self.text.clone()),
        }
    }
}

/// Turns a parser for text into a parser for a [`Candidate`], which is a text together with the flag or variable that
/// contains it. The new parser only uses the text.
pub(super) fn parsed<T>(
    parse: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&Candidate) -> Result<T, String> {
    move |candidate| parse(&candidate.text)
}

/// Parses the value of a setting that has a fixed list of allowed values, e.g. `auto`. The value can be in upper or
/// lower case.
pub(super) fn choice<T: for<'de> Deserialize<'de>>(candidate: &Candidate) -> Result<T, String> {
    let words = match candidate.setting.kind {
        ValueKind::Choice(words) => words,
        _ => &[],
    };
    let word = candidate.text.to_ascii_lowercase();
    let read: StrDeserializer<Error> = word.as_str().into_deserializer();
    // `deserialize` can also accept words that are not among `words`, the allowed values in the table of settings. Such
    // a word is refused here.
    let read = T::deserialize(read).ok();
    read.filter(|_| words.contains(&word.as_str())).ok_or_else(|| format!("use {}", one_of(words)))
}

/// Parses an output format. The word `yml` means `yaml`. For a format that only kubectl has, the error says what to use
/// instead.
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

/// Parses a token. Every text of visible ASCII characters is accepted, because an HTTP header can contain it. Only the
/// cloud's API knows whether the text is a valid token.
pub(super) fn token(candidate: &Candidate) -> Result<Option<SecretSource>, String> {
    secret(candidate, "token", Secret::check)
}

/// Parses the user name for the Robot web service.
pub(super) fn user(candidate: &Candidate) -> Result<Option<SecretSource>, String> {
    secret(candidate, "user", |user| {
        if user.expose().contains(':') {
            Err(
                "the value has a colon, but no user name of the Robot web service has one. Does the value also contain \
                 the password?",
            )
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

/// Parses the paths of kubeconfig files. The flag contains one path, and the environment variable can contain several.
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
    /// Returns the texts that the daemon has for this setting. These are the values of its flags or, without such a
    /// flag, the value of the first environment variable that is not empty. Variables with the path of a file are
    /// ignored, because this process can't read the daemon's files.
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

/// Returns the texts that these flags give for a setting, in the order of the flags. For a setting that is a list, the
/// values of several flags are joined into one list.
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
