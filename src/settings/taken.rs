//! `--settings-from`: what the daemon of a cluster is started with, below a person's own flags and variables.

use super::line::{self, Line};
use super::problem::Problem;
use super::setting::{Command, Group, Kind, Setting};
use super::table::{ALLOW_INSECURE_ENDPOINT, DRY_RUN, TABLE};
use std::ffi::OsString;
use std::fmt;

/// A Deployment or a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadName {
    pub namespace: String,
    /// `deployment` or `daemonset`.
    pub kind: &'static str,
    pub name: String,
}

/// What it says.
#[derive(Debug)]
pub struct Taken {
    pub(super) from: String,
    pub(super) line: Line,
    variables: Vec<(String, String)>,
}

const KINDS: [&str; 2] = ["deployment", "daemonset"];

impl WorkloadName {
    pub(super) fn parse(text: &str) -> Result<Option<WorkloadName>, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let kind = |word: &str| KINDS.into_iter().find(|kind| *kind == word);
        match parts.as_slice() {
            [namespace, word, name] if !namespace.is_empty() && !name.is_empty() => {
                let Some(kind) = kind(word) else {
                    return Err("use deployment or daemonset between the slashes".to_owned());
                };
                Ok(Some(WorkloadName {
                    namespace: (*namespace).to_owned(),
                    kind,
                    name: (*name).to_owned(),
                }))
            }
            _ => Err(
                "use NAMESPACE/deployment/NAME, e.g. kube-system/deployment/ccm-from-scratch"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Taken {
    /// The words after its program, and its variables. The error: what is wrong with the words.
    pub fn new(
        from: &WorkloadName,
        mut words: Vec<String>,
        variables: Vec<(String, String)>,
    ) -> Result<Taken, Vec<Problem>> {
        if words
            .first()
            .is_some_and(|word| word == Command::Run.name())
        {
            words.remove(0);
        }
        let words = words.into_iter().map(OsString::from).collect();
        let mut line = line::read(Command::Run, words);
        let from = from.to_string();
        let problems = std::mem::take(&mut line.problems);
        if !problems.is_empty() {
            let of = |problem: Problem| Problem {
                setting: format!("{} of {from}", problem.setting),
                usage: false,
                ..problem
            };
            return Err(problems.into_iter().map(of).collect());
        }
        Ok(Taken {
            from,
            line,
            variables,
        })
    }

    /// Where somebody set it.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(other, _)| other == name);
        found
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }
}

/// Does it come along? How a person reaches both APIs, what is printed, and whether anything is
/// written at all is their own; and a token goes to no address that an object of the cluster names.
pub(super) fn comes_along(setting: &Setting) -> bool {
    let is_about_the_work = matches!(setting.group, Group::Hetzner | Group::Controllers);
    let is_own = setting.secret || setting.hidden || setting.kind == Kind::Url;
    let stays = [&DRY_RUN, &ALLOW_INSECURE_ENDPOINT];
    let stays = stays.into_iter().any(|one| std::ptr::eq(setting, one));
    is_about_the_work && !is_own && !stays
}

/// What comes along for this command: names of variables, and of flags with their dashes.
pub fn names_that_count(command: Command) -> Vec<String> {
    let mut names = Vec::new();
    for setting in TABLE {
        if setting.is_for(command) && comes_along(setting) {
            let variables = setting.variables.iter().map(|one| one.name().to_owned());
            let flags = setting.flags.iter().map(|flag| format!("--{flag}"));
            names.extend(variables.chain(flags));
        }
    }
    names
}
