//! Flag before environment before default: what each setting is, and who said so.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::choice::{AddressFamily, LogFormat, Output, Profile, choice};
use super::controllers::Controllers;
use super::duration::{duration, interval};
use super::environment::Environment;
use super::leader_election::{self, ObjectName};
use super::line::Line;
use super::listen::ListenAddress;
use super::problem::Problem;
use super::setting::{Command, Kind, Setting, Variable};
use super::table;
use super::text::{self, NetworkName};
use super::token::{Token, looks_like_a_token};
use super::url::{Url, without_credentials};

/// All settings, typed. Those that a command does not take have their default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Required: `None` only together with a [`Problem`].
    pub token: Sourced<Option<Token>>,
    pub endpoint: Sourced<Url>,
    pub network: Sourced<Option<NetworkName>>,
    pub network_disable_attached_check: Sourced<bool>,
    pub metadata_endpoint: Sourced<Option<Url>>,
    pub address_family: Sourced<AddressFamily>,
    pub zone_label_enabled: Sourced<bool>,
    /// Zero: every decision reads anew.
    pub server_cache_max_age: Sourced<Duration>,
    /// Never true: refused as not built yet.
    pub robot_enabled: Sourced<bool>,
    /// Files to merge, the first wins. Empty: in-cluster, else `~/.kube/config`.
    pub kubeconfig: Sourced<Vec<PathBuf>>,
    pub context: Sourced<Option<String>>,
    pub master: Sourced<Option<Url>>,
    pub cloud_provider: Sourced<Profile>,
    pub controllers: Sourced<Controllers>,
    /// Longer than zero, before the time scale.
    pub node_sync_interval: Sourced<Duration>,
    /// Longer than zero, before the time scale.
    pub node_status_update_frequency: Sourced<Duration>,
    /// Longer than zero, before the time scale.
    pub node_monitor_period: Sourced<Duration>,
    pub node_deletion_guard: Sourced<bool>,
    pub leader_elect: Sourced<bool>,
    /// This and the next two fit together when `leader_elect` is true; before the time scale.
    pub lease_duration: Sourced<Duration>,
    pub renew_deadline: Sourced<Duration>,
    pub retry_period: Sourced<Duration>,
    pub lease_name: Sourced<ObjectName>,
    pub lease_namespace: Sourced<ObjectName>,
    pub once: Sourced<bool>,
    pub dry_run: Sourced<bool>,
    pub detailed_exitcode: Sourced<bool>,
    pub output: Sourced<Output>,
    pub log_format: Sourced<LogFormat>,
    pub verbosity: Sourced<u32>,
    pub debug: Sourced<bool>,
    /// Of the health server. None: there is none.
    pub metrics_address: Sourced<Option<ListenAddress>>,
    /// A factor on every wait; greater than zero.
    pub test_time_scale: Sourced<f64>,
}

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
    Default,
}

pub(super) struct Resolved {
    pub(super) settings: Settings,
    pub(super) problems: Vec<Problem>,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(flag) => write!(out, "{flag}"),
            Source::Environment(variable) => write!(out, "{variable}"),
            Source::File { variable, path } => write!(out, "{variable} ({})", path.display()),
            Source::Default => write!(out, "default"),
        }
    }
}

pub(super) fn resolve(command: Command, line: &Line, environment: &dyn Environment) -> Resolved {
    let mut read = Reader {
        command,
        line,
        environment,
        problems: vec![],
    };
    let settings = Settings {
        token: read.token(),
        endpoint: read.setting(&table::ENDPOINT, Url::parse),
        network: read.setting(&table::NETWORK, text::network),
        network_disable_attached_check: read
            .setting(&table::NETWORK_DISABLE_ATTACHED_CHECK, text::boolean),
        metadata_endpoint: read.setting(&table::METADATA_ENDPOINT, text::url),
        address_family: read.setting(&table::ADDRESS_FAMILY, choice),
        zone_label_enabled: read.setting(&table::ZONE_LABEL_ENABLED, text::boolean),
        server_cache_max_age: read.setting(&table::SERVER_CACHE_MAX_AGE, duration),
        robot_enabled: read.setting(&table::ROBOT_ENABLED, text::robot),
        kubeconfig: read.sourced(&table::KUBECONFIG, kubeconfig),
        context: read.setting(&table::CONTEXT, text::name),
        master: read.setting(&table::MASTER, text::url),
        cloud_provider: read.setting(&table::CLOUD_PROVIDER, choice),
        controllers: read.setting(&table::CONTROLLERS, Controllers::parse),
        node_sync_interval: read.setting(&table::NODE_SYNC_INTERVAL, interval),
        node_status_update_frequency: read.setting(&table::NODE_STATUS_UPDATE_FREQUENCY, interval),
        node_monitor_period: read.setting(&table::NODE_MONITOR_PERIOD, interval),
        node_deletion_guard: read.setting(&table::NODE_DELETION_GUARD, text::boolean),
        leader_elect: read.setting(&table::LEADER_ELECT, text::boolean),
        lease_duration: read.setting(&table::LEASE_DURATION, interval),
        renew_deadline: read.setting(&table::RENEW_DEADLINE, interval),
        retry_period: read.setting(&table::RETRY_PERIOD, interval),
        lease_name: read.setting(&table::LEASE_NAME, leader_election::name),
        lease_namespace: read.setting(&table::LEASE_NAMESPACE, leader_election::namespace),
        once: read.setting(&table::ONCE, text::boolean),
        dry_run: read.setting(&table::DRY_RUN, text::boolean),
        detailed_exitcode: read.setting(&table::DETAILED_EXITCODE, text::boolean),
        output: read.setting(&table::OUTPUT, choice),
        log_format: read.setting(&table::LOG_FORMAT, choice),
        verbosity: read.setting(&table::VERBOSITY, text::verbosity),
        debug: read.setting(&table::DEBUG, text::boolean),
        metrics_address: read.setting(&table::METRICS_ADDRESS, ListenAddress::parse),
        test_time_scale: read.setting(&table::TEST_TIME_SCALE, text::scale),
    };
    let mut problems = read.problems;
    problems.extend(leader_election::problems(&settings));
    Resolved { settings, problems }
}

struct Reader<'a> {
    command: Command,
    line: &'a Line,
    environment: &'a dyn Environment,
    problems: Vec<Problem>,
}

/// Text for a setting, not yet read.
struct Candidate {
    text: String,
    source: Source,
}

impl Reader<'_> {
    fn token(&mut self) -> Sourced<Option<Token>> {
        let problems_before = self.problems.len();
        let token = self.sourced(&table::TOKEN, |candidate| {
            Token::parse(&candidate.text, candidate.source.file()).map(Some)
        });
        if token.value.is_none() && self.problems.len() == problems_before {
            let message = "not set; set it or HCLOUD_TOKEN_FILE to a token of the project's API \
                           (Hetzner Console → Security → API tokens)";
            self.problems
                .push(Problem::environment("HCLOUD_TOKEN", message));
        }
        token
    }

    fn setting<T: Default>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Sourced<T> {
        self.sourced(setting, |candidate| parse(&candidate.text))
    }

    /// The last candidate that can be read; each that can't is a problem. Without one, the default
    /// of the table, and where that has none, of the type.
    fn sourced<T: Default>(
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

    fn candidates(&mut self, setting: &'static Setting) -> Vec<Candidate> {
        if !setting.is_for(self.command) {
            return vec![];
        }
        let given: Vec<_> = self
            .line
            .flags
            .iter()
            .filter(|given| std::ptr::eq(given.setting, setting))
            .collect();
        match (given.as_slice(), setting.kind) {
            ([], _) => setting
                .variables
                .iter()
                .find_map(|v| self.variable(setting, *v))
                .into_iter()
                .collect(),
            // A list flag adds to what it said before.
            ([first, ..], Kind::List(_)) => {
                let texts: Vec<&str> = given.iter().map(|given| given.text.as_str()).collect();
                vec![Candidate {
                    text: texts.join(","),
                    source: Source::Flag(first.flag.clone()),
                }]
            }
            _ => given
                .iter()
                .map(|given| Candidate {
                    text: given.text.clone(),
                    source: Source::Flag(given.flag.clone()),
                })
                .collect(),
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

impl Source {
    fn file(&self) -> Option<&Path> {
        match self {
            Source::File { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// The flag is one path; the variable may list several.
fn kubeconfig(candidate: &Candidate) -> Result<Vec<PathBuf>, String> {
    Ok(match candidate.source {
        Source::Flag(_) => text::path(&candidate.text),
        _ => text::paths(&candidate.text),
    })
}

fn problem(setting: &Setting, candidate: &Candidate, message: String) -> Problem {
    let problem = match &candidate.source {
        Source::Flag(flag) => Problem::usage(flag, message),
        Source::Environment(variable) => Problem::environment(variable, message),
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
