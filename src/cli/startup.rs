//! The start of each command: its settings (flags, variables, with `--settings-from` those of the cluster's daemon),
//! `--help`, `--version`, the log, and what is wrong with the settings.

use super::logging::{self, Reader};
use super::output::{Exit, Printer};
use super::{commands, wire};
use crate::cache::Apis;
use crate::kube::{self, container};
use crate::provider::Gate;
use crate::settings::{self, Command, DaemonSettings, Parsed, Process, Settings, WorkloadName};
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
    /// Variables, and flags with their dashes, that the daemon may take from other objects, which are not read.
    unread: Vec<String>,
}

/// Reads the settings of a command. The error: the command ends here, all was printed.
pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Started, Exit> {
    let parsed = settings::parse(command, words.clone(), &Process);
    if parsed.help {
        return Err(Printer::stdout(&commands::help(command.name())));
    }
    if parsed.version {
        return Err(Printer::stdout(&commands::version()));
    }
    check(command, &parsed)?;
    start_log(&parsed, reader(command));
    let Some(name) = &parsed.settings.settings_from.value else {
        return Ok(Started::new(command, parsed, None));
    };
    let found = daemon_settings(command, &parsed.settings, name)?;
    let parsed = settings::parse_with_daemon(command, words, &Process, Some(&found.settings));
    check(command, &parsed)?;
    Ok(Started::new(command, parsed, Some(found)))
}

impl Started {
    fn new(command: Command, parsed: Parsed, found: Option<Found>) -> Started {
        let (kube, unread) = match found {
            Some(found) => (Some(found.kube), found.unread),
            None => (None, unset_here(command, &parsed.settings)),
        };
        Started {
            gate: wire::gate(command, &parsed.settings),
            unknown: unknown(&parsed.settings, unread),
            settings: parsed.settings,
            words: parsed.words,
            problems: parsed.problems,
            kube,
        }
    }

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

fn reader(command: Command) -> Reader {
    match command {
        Command::Run => Reader::Daemon,
        Command::LbSync | Command::RouteSync if std::io::stderr().is_terminal() => Reader::Waiting,
        _ => Reader::Person,
    }
}

fn start_log(parsed: &Parsed, reader: Reader) {
    logging::start(&parsed.settings, reader);
    // A daemon's log reports the result of each call.
    if reader != Reader::Daemon {
        logging::show_waits();
    }
    for notice in &parsed.notices {
        log::log!(notice.level, "{notice}");
    }
}

/// Wrong settings end a command, and all of them are printed. `doctor` reports wrong settings itself: only wrong usage
/// ends it.
fn check(command: Command, parsed: &Parsed) -> Result<(), Exit> {
    let is_usage = parsed.problems.iter().any(|problem| problem.usage);
    if parsed.problems.is_empty() || (command == Command::Doctor && !is_usage) {
        return Ok(());
    }
    for problem in &parsed.problems {
        Printer::notice(problem);
    }
    Err(match is_usage {
        true => Exit::Usage,
        false => Exit::Failed,
    })
}

/// `--settings-from`: reads the daemon's workload. The error: the command ends here, all was printed.
fn daemon_settings(
    command: Command,
    settings: &Settings,
    name: &WorkloadName,
) -> Result<Found, Exit> {
    let failed = |why: String| Printer::failure(&format!("--settings-from: {why}"));
    let kube = wire::kube_client(settings, wire::gate(command, settings));
    let kube = kube.map_err(|why| Printer::failure(&why))?;
    let origin = kube.origin();
    let workload = kube
        .workload(&format!("{}s", name.kind), &name.namespace, &name.name)
        .map_err(|error| failed(format!("{error} ({origin})")))?
        .ok_or_else(|| failed(format!("there is no {name} ({origin})")))?;
    let container = container(&workload).map_err(|why| failed(format!("{name}: {why}")))?;
    let inherited = settings::inherited_names(command);
    for (what, place) in &container.elsewhere {
        if inherited.contains(what) && !is_set_here(what) {
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
    let settings = DaemonSettings::new(name, container.words, container.variables);
    let settings = settings.map_err(|problems| {
        problems.iter().for_each(Printer::notice);
        Exit::Failed
    })?;
    Ok(Found {
        kube,
        settings,
        unread: unread(inherited, &container.elsewhere, container.imports),
    })
}

/// Of the names that may be taken over, those that are in other objects; `imports`: all variables of one may be.
fn unread(
    mut names: Vec<String>,
    elsewhere: &[(String, &'static str)],
    imports: bool,
) -> Vec<String> {
    let is_elsewhere = |name: &String| elsewhere.iter().any(|(what, _)| what == name);
    names.retain(|name| is_elsewhere(name) || (imports && !name.starts_with('-')));
    names
}

/// Without the daemon's workload each setting may be set for it. In a pod the environment counts as the daemon's own.
fn unset_here(command: Command, settings: &Settings) -> Vec<String> {
    let is_named = !settings.kubeconfig.value.is_empty();
    match !is_named && is_set_here("KUBERNETES_SERVICE_HOST") {
        true => Vec::new(),
        false => settings::inherited_names(command),
    }
}

/// Of names that may be set for the daemon, those that are unset here, so that our default may be wrong.
fn unknown(settings: &Settings, mut names: Vec<String>) -> Vec<String> {
    if settings.yes.value {
        return Vec::new();
    }
    // The planners treat the others as unset themselves: they have no default.
    let set = [
        (&settings.cluster_name.source, "--cluster-name"),
        (&settings.cloud_provider.source, CLOUD_PROVIDER),
        (&settings.network.source, "HCLOUD_NETWORK"),
        (
            &settings.address_family.source,
            "HCLOUD_INSTANCES_ADDRESS_FAMILY",
        ),
    ];
    for (source, flag) in set {
        if !source.is_default() {
            names.retain(|name| name != flag);
        }
    }
    names
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
            let places: Vec<_> = places
                .map(|name| ((*name).to_owned(), "a Secret"))
                .collect();
            let inherited = settings::inherited_names(Command::LbSync);
            let names = unread(inherited, &places, imports);
            let has = |name: &str| names.iter().any(|one| one == name);
            let has = (has(proxy), has("--cluster-name"));
            assert_eq!(has, (variable, flag), "{elsewhere:?}, imports: {imports}");
        }
    }
}
