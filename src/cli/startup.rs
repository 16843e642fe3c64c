//! The start of each command: its settings (flags, variables, with `--settings-from` those of the cluster's daemon),
//! `--help`, `--version`, the log, and what is wrong with the settings.

use super::logging::{self, Reader};
use super::output::{Exit, Printer, usage};
use super::{commands, terminal, wire};
use crate::cache::Apis;
use crate::kube::{self, Container, container};
use crate::provider::Gate;
use crate::settings::{
    self, Command, DaemonSettings, Parsed, Problem, Process, Settings, WorkloadName,
};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;

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
    /// The client that `--settings-from` needed.
    kube: Option<kube::Client>,
}

/// The daemon's workload, read.
struct Found {
    kube: kube::Client,
    settings: DaemonSettings,
    container: Container,
}

/// Reads the settings of a command. The error: the command ends here, all was printed.
pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Started, Exit> {
    let mut parsed = parse(command, words.clone(), None)?;
    check_usage(command, &parsed)?;
    start_log(command, &parsed);
    let mut found = None;
    if let Some(name) = &parsed.settings.settings_from.value {
        let daemon = read_daemon(command, &parsed, name)?;
        parsed = parse(command, words, Some(&daemon.settings))?;
        found = Some(daemon);
    }
    Ok(Started {
        gate: wire::gate(command, &parsed.settings),
        unknown: unknown(&parsed, found.as_ref()),
        settings: parsed.settings,
        words: parsed.words,
        problems: parsed.problems,
        kube: found.map(|found| found.kube),
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
    terminal::ask_for_color(parsed.settings.color.value);
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

/// `--settings-from`: reads the daemon's workload. The error: the command ends here, all was printed.
fn read_daemon(command: Command, parsed: &Parsed, name: &WorkloadName) -> Result<Found, Exit> {
    let failed = |why: String| Printer::failure(&format!("--settings-from: {why}"));
    let gate = wire::gate(command, &parsed.settings);
    let kube = wire::kube_client(&parsed.settings, gate).map_err(|why| Printer::failure(&why))?;
    let origin = kube.origin();
    let workload = kube
        .workload(&format!("{}s", name.kind), &name.namespace, &name.name)
        .map_err(|error| failed(format!("{error} ({origin})")))?
        .ok_or_else(|| failed(format!("there is no {name} ({origin})")))?;
    let mut container = container(&workload).map_err(|why| failed(format!("{name}: {why}")))?;
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
    let words = std::mem::take(&mut container.words);
    let variables = std::mem::take(&mut container.variables);
    let settings = DaemonSettings::new(name, words, variables).map_err(|problems| {
        problems.iter().for_each(Printer::notice);
        Exit::Failed
    })?;
    Ok(Found {
        kube,
        settings,
        container,
    })
}

/// Names of settings that are unset here and may be set for the daemon, so that our default may be wrong. In a pod the
/// environment counts as the daemon's own.
fn unknown(parsed: &Parsed, found: Option<&Found>) -> Vec<String> {
    let settings = &parsed.settings;
    let is_in_pod = settings.kubeconfig.value.is_empty() && is_set_here("KUBERNETES_SERVICE_HOST");
    let mut names = parsed.unset_names();
    names.retain(|name| match found {
        _ if settings.yes.value => false,
        Some(found) => is_unread(name, &found.container),
        None => !is_in_pod,
    });
    names
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
