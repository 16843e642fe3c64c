//! The start of each command: its settings (flags, variables, with `--settings-from` those of the cluster's daemon),
//! `--help`, `--version`, the log, and what is wrong with the settings.

use super::logging::{self, Reader};
use super::output::{Exit, Printer, usage};
use super::{commands, wire};
use crate::cache::Apis;
use crate::http;
use crate::kube::{self, Container, container};
use crate::provider::Gate;
use crate::settings::{
    self, Command, DaemonSettings, Parsed, Problem, Process, Settings, SettingsFrom, WorkloadName,
};
use crate::text::some_of;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

/// The flag that decides which nodes are ours at all.
pub(super) const CLOUD_PROVIDER: &str = "--cloud-provider";

/// A command whose settings are known.
pub(super) struct Started {
    pub(super) settings: Settings,
    /// The words that are no flags.
    pub(super) words: Vec<String>,
    /// Empty but for `doctor`, which reports them; for the others they end the command.
    pub(super) problems: Vec<settings::Problem>,
    /// Variables, and flags with their dashes, that are unset here and may be set for the daemon.
    pub(super) unknown: Vec<String>,
    /// What its writes pass.
    gate: Arc<dyn Gate>,
    /// The client that the daemon's settings needed.
    kube: Option<kube::Client>,
}

/// The daemon's workload, read.
struct Found {
    settings: DaemonSettings,
    container: Container,
}

/// Where the daemon is looked for: no tenant may write there.
const SYSTEM: &str = "kube-system";

/// How long that may take.
const LOOKED_FOR_AT_MOST: Duration = Duration::from_secs(2);

/// Reads the settings of a command. The error: the command ends here, all was printed.
pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Started, Exit> {
    let mut parsed = parse(command, words.clone(), None)?;
    check_usage(command, &parsed)?;
    start_log(command, &parsed);
    let (kube, found) = match &parsed.settings.settings_from.value {
        SettingsFrom::Named(name) => {
            let kube = kube_client(command, &parsed).map_err(|why| Printer::failure(&why))?;
            let found = read_daemon(&kube, &parsed, name)?;
            parsed = parse(command, words, Some(&found.settings))?;
            (Some(kube), Some(found))
        }
        SettingsFrom::Only if may_look_for_daemon(command, &parsed.settings) => {
            // What is wrong is reported by the command's own calls.
            let kube = kube_client(command, &parsed).ok();
            let found = kube.as_ref().and_then(only_daemon);
            let found = found.and_then(|(name, found)| {
                parsed = with_only_daemon(command, words, &parsed, &name, &found)?;
                Some(found)
            });
            (kube, found)
        }
        SettingsFrom::Only | SettingsFrom::Nothing => (None, None),
    };
    Ok(Started {
        gate: wire::gate(command, &parsed.settings),
        unknown: unknown(&parsed, found.as_ref()),
        settings: parsed.settings,
        words: parsed.words,
        problems: parsed.problems,
        kube,
    })
}

/// Wrong settings end a command, and all of them are printed. `doctor` and `config` show them themselves: only a wrong
/// command line of their own ends them.
pub(super) fn parse(
    command: Command,
    words: Vec<OsString>,
    daemon: Option<&DaemonSettings>,
) -> Result<Parsed, Exit> {
    let parsed = settings::parse_with_daemon(command, words, &Process, daemon);
    if parsed.help {
        return Err(Printer::stdout(&commands::help(command.name())));
    }
    if parsed.version {
        return Err(Printer::stdout(&commands::version()));
    }
    let is_shown = |problem: &Problem| {
        let mut shown = parsed.effective.iter();
        shown.any(|one| one.is_about(problem) && !one.setting.is_of_config())
    };
    let ends = |problem: &&Problem| match command {
        Command::Doctor => problem.usage,
        Command::Config => problem.usage && !is_shown(problem),
        _ => true,
    };
    let problems: Vec<&Problem> = parsed.problems.iter().filter(ends).collect();
    problems.iter().for_each(Printer::notice);
    match problems.iter().any(|problem| problem.usage) {
        true => Err(Exit::Usage),
        false if !problems.is_empty() => Err(Exit::Failed),
        false => Ok(parsed),
    }
}

/// Names and flags that do not fit the command. Before any client is made.
fn check_usage(command: Command, parsed: &Parsed) -> Result<(), Exit> {
    let settings = &parsed.settings;
    let why = match (command, parsed.words.as_slice()) {
        (Command::NodeList, [name, ..]) => {
            &format!("node list takes no name; ccm node inspect {name} shows one node")
        }
        (Command::LbList, [name, ..]) => {
            &format!("lb list takes no name; ccm lb inspect {name} shows one Service")
        }
        (Command::NodeInspect, [] | [_, _, ..]) => {
            "node inspect takes one name, e.g. ccm node inspect worker-1"
        }
        (Command::LbInspect, [] | [_, _, ..]) => {
            "lb inspect takes one Service, e.g. ccm lb inspect default/web"
        }
        (Command::RouteList | Command::RouteSync, [_, ..]) => {
            &format!("{} takes no name: it is about all routes", command.name())
        }
        (Command::LbSync, [_, ..]) if settings.delete_orphans.value => {
            "--delete-orphans takes no Service: those of orphans do not exist"
        }
        _ if settings.detailed_exitcode.value && !settings.dry_run.value => {
            "--detailed-exitcode needs --dry-run"
        }
        _ => return Ok(()),
    };
    Err(usage(why))
}

impl Started {
    /// Both APIs, for a person's command: it does not check whether this machine is attached to the Network.
    pub(super) fn apis(&mut self) -> Result<Apis, Exit> {
        let apis = wire::apis(
            self.kube.take(),
            &self.settings,
            Arc::clone(&self.gate),
            None,
            self.unknown.clone(),
        );
        apis.map_err(|why| Printer::failure(&why))
    }
}

fn start_log(command: Command, parsed: &Parsed) {
    let reader = match command {
        Command::Run => Reader::Daemon,
        Command::LbSync | Command::RouteSync if std::io::stderr().is_terminal() => Reader::Waiting,
        _ => Reader::Person,
    };
    logging::start(&parsed.settings, reader);
    // A daemon's log reports the result of each call.
    if reader != Reader::Daemon {
        logging::show_waits();
    }
    for notice in &parsed.notices {
        log::log!(notice.level, "{notice}");
    }
}

fn kube_client(command: Command, parsed: &Parsed) -> Result<kube::Client, String> {
    wire::kube_client(&parsed.settings, wire::gate(command, &parsed.settings))
}

/// The daemon and commands without a cluster have their own settings; in a pod the environment is the daemon's.
fn may_look_for_daemon(command: Command, settings: &Settings) -> bool {
    !matches!(command, Command::Run | Command::Config | Command::Lint) && !is_in_pod(settings)
}

/// The only one of the cluster; none: there are several or none, they may not be listed, or the answer is late.
fn only_daemon(kube: &kube::Client) -> Option<(WorkloadName, Found)> {
    let found = http::within(LOOKED_FOR_AT_MOST, || kube.only_daemon(SYSTEM));
    let found = found.map_err(|error| log::debug!("{error}: the daemon's settings are unknown"));
    let (kind, workload) = found.ok()??;
    let name = WorkloadName {
        namespace: SYSTEM.to_owned(),
        kind,
        name: workload["metadata"]["name"].as_str()?.to_owned(),
    };
    let container = container(&workload);
    let found = container
        .and_then(|container| Found::new(&name, container).map_err(|problems| first_of(&problems)));
    let found = found.map_err(|why| not_used(&name, &why)).ok()?;
    Some((name, found))
}

/// The settings with those of the only daemon; none: there is something wrong with them, as in those of another version.
fn with_only_daemon(
    command: Command,
    words: Vec<OsString>,
    own: &Parsed,
    name: &WorkloadName,
    found: &Found,
) -> Option<Parsed> {
    let both = settings::parse_with_daemon(command, words, &Process, Some(&found.settings));
    let is_new = |problem: &&Problem| !own.problems.contains(problem);
    if let Some(problem) = both.problems.iter().find(is_new) {
        not_used(name, &problem.to_string());
        return None;
    }
    let unset = own.unset_names();
    let elsewhere = found.container.elsewhere.iter();
    let unread = elsewhere.filter(|(what, _)| unset.contains(what));
    let mut unread: Vec<String> = unread
        .map(|(what, place)| format!("{what} in {place}"))
        .collect();
    unread.extend(
        found
            .container
            .imports
            .then(|| "variables of whole other objects".to_owned()),
    );
    let unread = match unread.is_empty() {
        true => String::new(),
        false => format!("; not read: {}", some_of(&unread)),
    };
    Printer::notice(format_args!(
        "settings are those of {name}, unless set here (--settings-from=none: only those set here){unread}"
    ));
    Some(both)
}

fn first_of(problems: &[Problem]) -> String {
    problems
        .first()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn not_used(name: &WorkloadName, why: &str) {
    Printer::notice(format_args!("settings of {name} are not used: {why}"));
}

/// `--settings-from`: reads the daemon's workload. The error: the command ends here, all was printed.
fn read_daemon(kube: &kube::Client, parsed: &Parsed, name: &WorkloadName) -> Result<Found, Exit> {
    let failed = |why: String| Printer::failure(&format!("--settings-from: {why}"));
    let origin = kube.origin();
    let workload = kube
        .workload(&format!("{}s", name.kind), &name.namespace, &name.name)
        .map_err(|error| failed(format!("{error} ({origin})")))?
        .ok_or_else(|| failed(format!("there is no {name} ({origin})")))?;
    let container = container(&workload).map_err(|why| failed(format!("{name}: {why}")))?;
    let unset = parsed.unset_names();
    for (what, place) in &container.elsewhere {
        if unset.contains(what) {
            Printer::notice(format_args!(
                "{what} of {name} is in {place}, which is not read: set it here"
            ));
        }
    }
    if container.imports {
        Printer::notice(format_args!(
            "{name} imports all variables of other objects, which are not read: set them here"
        ));
    }
    Found::new(name, container).map_err(|problems| {
        problems.iter().for_each(Printer::notice);
        Exit::Failed
    })
}

impl Found {
    fn new(name: &WorkloadName, mut container: Container) -> Result<Found, Vec<Problem>> {
        let words = std::mem::take(&mut container.words);
        let variables = std::mem::take(&mut container.variables);
        Ok(Found {
            settings: DaemonSettings::new(name, words, variables)?,
            container,
        })
    }
}

/// Names of settings that are unset here and may be set for the daemon, so that our default may be wrong. In a pod the
/// environment counts as the daemon's own.
fn unknown(parsed: &Parsed, found: Option<&Found>) -> Vec<String> {
    let settings = &parsed.settings;
    let mut names = parsed.unset_names();
    names.retain(|name| match found {
        _ if settings.yes.value => false,
        Some(found) => is_unread(name, &found.container),
        None => !is_in_pod(settings),
    });
    names
}

fn is_in_pod(settings: &Settings) -> bool {
    settings.kubeconfig.value.is_empty() && is_set_here("KUBERNETES_SERVICE_HOST")
}

/// May it be in another object, which is not read?
fn is_unread(name: &str, container: &Container) -> bool {
    let mut elsewhere = container.elsewhere.iter();
    elsewhere.any(|(what, _)| what == name) || (container.imports && !name.starts_with('-'))
}

pub(super) fn is_set_here(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_may_be_set_for_the_daemon() {
        let proxy = "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL";
        // In other objects, whether all of one is imported → is the variable, is the flag unread?
        for (elsewhere, imports, variable, flag) in [
            (&[] as &[&str], false, false, false),
            (&[proxy], false, true, false),
            (&["--cluster-name"], false, false, true),
            (&["--of-another"], false, false, false),
            (&[], true, true, false),
        ] {
            let places = elsewhere.iter();
            let container = Container {
                words: Vec::new(),
                variables: Vec::new(),
                elsewhere: places
                    .map(|name| ((*name).to_owned(), "a Secret"))
                    .collect(),
                imports,
            };
            let has = |name: &str| is_unread(name, &container);
            let has = (has(proxy), has("--cluster-name"));
            assert_eq!(has, (variable, flag), "{elsewhere:?}, imports: {imports}");
        }
    }
}
