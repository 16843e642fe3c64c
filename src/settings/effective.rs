//! The effective value of one setting, with its source: flag before environment before the daemon of a cluster
//! (`--settings-from`) before default.

use super::args::{self, Args};
use super::environment::Environment;
use super::problem::Problem;
use super::setting::{Command, Group, Kind, Setting, Variable};
use super::table::{ALLOW_INSECURE_ENDPOINT, DRY_RUN, TABLE};
use super::values::{WorkloadName, boolean, looks_like_a_token, without_credentials};
use crate::provider::{Source, Sourced};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Shown instead of a secret's value.
const REDACTED: &str = "<redacted>";

/// One setting with its effective value and source, as `ccm config` shows it. Never holds a secret.
#[derive(Debug, Clone)]
pub struct Effective {
    pub setting: &'static Setting,
    /// None: unset, without a default.
    pub value: Option<String>,
    pub source: Source,
}

/// The arguments and variables of the daemon of a cluster: `--settings-from`.
#[derive(Debug)]
pub struct DaemonSettings {
    /// E.g. `deployment kube-system/ccm-from-scratch`.
    from: String,
    args: Args,
    variables: Vec<(String, String)>,
}

/// Reads settings one by one, and collects what is wrong with them.
pub(super) struct Resolver<'a> {
    pub(super) command: Command,
    pub(super) args: &'a Args,
    pub(super) environment: &'a dyn Environment,
    pub(super) daemon: Option<&'a DaemonSettings>,
    /// In the order in which they were read.
    pub(super) effective: Vec<Effective>,
    pub(super) problems: Vec<Problem>,
}

/// Text for a setting, not yet parsed.
pub(super) struct Candidate {
    pub(super) text: String,
    /// The flag as it was written, or the variable.
    name: String,
    pub(super) place: Place,
}

/// Where a candidate was found.
pub(super) enum Place {
    Flag,
    Environment,
    /// The file that the variable names.
    File(PathBuf),
    /// The daemon's workload.
    Daemon(String),
    Default,
}

impl Resolver<'_> {
    pub(super) fn setting<T: Default>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Sourced<T> {
        self.sourced(setting, |candidate| parse(&candidate.text))
    }

    /// A setting without a default.
    pub(super) fn optional<T>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Sourced<T>> {
        let Sourced { value, source } = self.setting(setting, |text| parse(text).map(Some));
        value.map(|value| Sourced::new(value, source))
    }

    /// The last candidate that can be parsed; each that can't is a problem. Without one, the default of the table, and
    /// where that has none, of the type.
    pub(super) fn sourced<T: Default>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&Candidate) -> Result<T, String>,
    ) -> Sourced<T> {
        let default = setting
            .default
            .map(|text| Candidate::new(text, &setting.written_name(), Place::Default));
        let (mut value, mut chosen) = (T::default(), None);
        for candidate in default.into_iter().chain(self.candidates(setting)) {
            match parse(&candidate) {
                Ok(parsed) => (value, chosen) = (parsed, Some(candidate)),
                Err(message) => self.problems.push(candidate.problem(setting, message)),
            }
        }
        let source = match &chosen {
            Some(candidate) => candidate.source(),
            None => Source::Default(setting.written_name()),
        };
        if setting.is_for(self.command) {
            self.effective.push(Effective {
                setting,
                value: chosen.map(|candidate| shown(setting, &candidate.text)),
                source: source.clone(),
            });
        }
        Sourced::new(value, source)
    }

    fn candidates(&mut self, setting: &'static Setting) -> Vec<Candidate> {
        if !setting.is_for(self.command) {
            return vec![];
        }
        let flags = flags(self.args, setting, || Place::Flag);
        if !flags.is_empty() {
            return flags;
        }
        let mut variables = setting.variables.iter();
        if let Some(own) = variables.find_map(|v| self.variable(setting, *v)) {
            return vec![own];
        }
        match self.daemon.filter(|_| is_inherited(setting)) {
            Some(daemon) => daemon.candidates(setting),
            None => vec![],
        }
    }

    /// A variable that is set and not empty; the file form is read.
    fn variable(&mut self, setting: &Setting, variable: Variable) -> Option<Candidate> {
        let name = variable.name();
        let Ok(text) = self.environment.get(name)?.into_string() else {
            let problem = Problem::environment(name, "its value is not UTF-8");
            self.problems.push(problem);
            return None;
        };
        match (text.trim(), variable) {
            ("", _) => None,
            (path, Variable::File(_)) => self.file(setting, name, path),
            (text, _) => Some(Candidate::new(text, name, Place::Environment)),
        }
    }

    fn file(&mut self, setting: &Setting, variable: &str, path: &str) -> Option<Candidate> {
        let message = match self.environment.read_file(Path::new(path)) {
            Ok(text) if text.trim().is_empty() => "the file is empty".to_owned(),
            Ok(text) => {
                let place = Place::File(PathBuf::from(path));
                return Some(Candidate::new(text.trim(), variable, place));
            }
            Err(error) => error.to_string(),
        };
        self.problems
            .push(match setting.secret && looks_like_a_token(path) {
                true => Problem::environment(
                    variable,
                    "can't be read, and looks like a token itself; write the path of a file that holds the token",
                ),
                false => Problem::environment(variable, message).with_value(path),
            });
        None
    }
}

impl Candidate {
    fn new(text: &str, name: &str, place: Place) -> Candidate {
        Candidate {
            text: text.to_owned(),
            name: name.to_owned(),
            place,
        }
    }

    fn source(&self) -> Source {
        let name = self.name.clone();
        match &self.place {
            Place::Flag => Source::Flag(name),
            Place::Environment => Source::Environment(name),
            Place::File(path) => Source::Environment(format!("{name} ({})", path.display())),
            Place::Daemon(from) if name.starts_with('-') => {
                Source::Flag(format!("{name} of {from}"))
            }
            Place::Daemon(from) => Source::Environment(format!("{name} of {from}")),
            Place::Default => Source::Default(name),
        }
    }

    fn problem(&self, setting: &Setting, message: String) -> Problem {
        let problem = match &self.place {
            Place::Flag => Problem::usage(&self.name, message),
            Place::Environment => Problem::environment(&self.name, message),
            Place::File(path) => {
                let path = path.display().to_string();
                return Problem::environment(&self.name, message).with_value(path);
            }
            Place::Daemon(_) => Problem::environment(self.source().name(), message),
            Place::Default => Problem::environment(setting.name, message),
        };
        match setting.kind {
            _ if setting.secret => problem,
            Kind::Url => problem.with_value(without_credentials(&self.text)),
            _ => problem.with_value(self.text.as_str()),
        }
    }
}

impl Effective {
    /// Is the problem about this setting?
    pub fn is_about(&self, problem: &Problem) -> bool {
        let name = problem.setting.as_str();
        let mut flags = self.setting.flags.iter();
        let mut variables = self.setting.variables.iter();
        let is_short =
            |letter: char| name.strip_prefix('-') == Some(letter.encode_utf8(&mut [0; 4]));
        flags.any(|flag| name.strip_prefix("--") == Some(flag))
            || variables.any(|variable| name == variable.name())
            || self.setting.short.is_some_and(is_short)
    }
}

impl DaemonSettings {
    /// The words after the daemon's program, and its variables. The error: what is wrong with the words.
    pub fn new(
        from: &WorkloadName,
        mut words: Vec<String>,
        variables: Vec<(String, String)>,
    ) -> Result<DaemonSettings, Vec<Problem>> {
        if words.first().map(String::as_str) == Some(Command::Run.name()) {
            words.remove(0);
        }
        let words = words.into_iter().map(OsString::from).collect();
        let mut args = args::parse(Command::Run, words);
        let from = from.to_string();
        let problems = std::mem::take(&mut args.problems);
        if !problems.is_empty() {
            let of = |problem: Problem| Problem {
                setting: format!("{} of {from}", problem.setting),
                usage: false,
                ..problem
            };
            return Err(problems.into_iter().map(of).collect());
        }
        Ok(DaemonSettings {
            from,
            args,
            variables,
        })
    }

    /// Its flags, else its first variable. Files that its variables name can't be read from here.
    fn candidates(&self, setting: &Setting) -> Vec<Candidate> {
        let place = || Place::Daemon(self.from.clone());
        let flags = flags(&self.args, setting, place);
        if !flags.is_empty() {
            return flags;
        }
        let values = setting
            .variables
            .iter()
            .filter(|one| !matches!(one, Variable::File(_)));
        let set = values.filter_map(|one| {
            let (name, text) = self.variables.iter().find(|(name, _)| name == one.name())?;
            let text = text.trim();
            (!text.is_empty()).then(|| Candidate::new(text, name, place()))
        });
        set.take(1).collect()
    }
}

/// The values of a setting's flags, in the order given. A list flag adds to the earlier ones.
fn flags(args: &Args, setting: &Setting, place: impl Fn() -> Place) -> Vec<Candidate> {
    let flags = args.flags.iter();
    let mut flags = flags.filter(|one| std::ptr::eq(one.setting, setting));
    let candidate = |one: &args::Flag| Candidate::new(&one.text, &one.name, place());
    let Kind::List(_) = setting.kind else {
        return flags.map(candidate).collect();
    };
    let Some(mut list) = flags.next().map(candidate) else {
        return Vec::new();
    };
    for more in flags {
        list.text.push(',');
        list.text.push_str(&more.text);
    }
    vec![list]
}

fn shown(setting: &Setting, text: &str) -> String {
    match (setting.kind, boolean(text)) {
        _ if setting.secret => REDACTED.to_owned(),
        (Kind::Url, _) => without_credentials(text),
        (Kind::Boolean, Ok(value)) => value.to_string(),
        _ => text.to_owned(),
    }
}

/// Does `--settings-from` take it over? How a person reaches both APIs, what is printed, and whether anything is
/// written at all is their own; and a token is sent to no address that an object of the cluster names.
fn is_inherited(setting: &Setting) -> bool {
    let is_about_the_work = matches!(setting.group, Group::Hetzner | Group::Controllers);
    let is_own = setting.secret || setting.hidden || setting.kind == Kind::Url;
    let stays = [&DRY_RUN, &ALLOW_INSECURE_ENDPOINT];
    let stays = stays.into_iter().any(|one| std::ptr::eq(setting, one));
    is_about_the_work && !is_own && !stays
}

/// What `--settings-from` takes over for this command: names of variables, and of flags with their dashes.
pub fn inherited_names(command: Command) -> Vec<String> {
    let mut names = Vec::new();
    for setting in TABLE {
        if setting.is_for(command) && is_inherited(setting) {
            let variables = setting.variables.iter().map(|one| one.name().to_owned());
            let flags = setting.flags.iter().map(|flag| format!("--{flag}"));
            names.extend(variables.chain(flags));
        }
    }
    names
}
