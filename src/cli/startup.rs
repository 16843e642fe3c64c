//! What each command does first: it reads its settings, handles `--help` and `--version`, starts the log, and reports
//! problems of the settings. Settings come from flags and environment variables. In addition, a command can read the
//! settings of the daemon that runs in the cluster.

use super::logging::{self, LogReader};
use super::names::{NODES, SERVICES};
use super::output::{Exit, Printer, usage};
use super::{commands, leader, terminal, version, wire};
use crate::cache::Apis;
use crate::http;
use crate::kube::{self, Container, container};
use crate::provider::{Gate, Urgency, clock, process};
use crate::settings::{
    self, Command, DaemonSettings, Parsed, Problem, Process, Settings, WorkloadName,
};
use crate::text::{shell_command, some_of};
use serde_json::Value;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

/// A command that was started, and whose settings were read.
pub(super) struct Started {
    pub(super) settings: Settings,
    /// The words of the command line that are neither the command nor flags, e.g. names of objects.
    pub(super) words: Vec<String>,
    /// The problems of the settings, which `doctor` and `status` report. For other commands this list is empty, because
    /// they end when there is a problem.
    pub(super) problems: Vec<settings::Problem>,
    /// Messages about environment variables that only forks of hcloud-cloud-controller-manager know, and that have no
    /// effect here. Only the commands `doctor` and `status` show them.
    pub(super) of_forks: Vec<settings::Notice>,
    /// A text that names the settings of the daemon that this command needs and could not read. When it is set, the
    /// command writes nothing and only shows its plan.
    pub(super) refused: Option<String>,
    gate: Arc<dyn Gate>,
    /// The Kubernetes client that has read the daemon's settings, so that the command can use it again. `None` when the
    /// daemon was not looked for. The command then creates a client.
    kube: Option<kube::KubeClient>,
}

/// The namespace in which a command looks for the daemon, to use its settings. The command trusts what it finds there,
/// so tenants must not have the right to write in this namespace.
const SYSTEM: &str = "kube-system";

/// How long a command looks for the daemon in the cluster. This is real time, even in tests in which the program's
/// clock runs faster.
const LOOKED_FOR_AT_MOST: Duration = Duration::from_secs(2);

/// Reads the settings of a command, and starts the log. When the settings are wrong, prints the error and returns the
/// exit code.
pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Started, Exit> {
    let mut parsed = parse(command, words.clone())?;
    clock::quicken(parsed.settings.test_time_scale.value);
    check_usage(command, &parsed)?;
    start_log(command, &parsed);
    let (kube, mut refused) = with_daemon(command, words, &mut parsed)?;
    let would_write = command.writes() && !parsed.settings.dry_run.value;
    if let Some(unknown) = refused.take_if(|_| !would_write) {
        Printer::notice(not_known(&unknown));
    }
    let is_refused = refused.is_some();
    parsed.settings.dry_run.value |= is_refused;
    Ok(Started {
        gate: wire::gate(command, &parsed.settings),
        refused,
        settings: parsed.settings,
        words: parsed.words,
        problems: parsed.problems,
        of_forks: parsed.of_forks,
        // This Kubernetes client allows writes, because it was created before the daemon's settings were read. When
        // needed settings of the daemon could not be read, the command must not write, so the client is dropped. The
        // command then creates another client, which refuses writes.
        kube: kube.filter(|_| !is_refused),
    })
}

/// Parses the settings of a command. A wrong setting is printed and ends the command. `doctor`, `status` and `config`
/// show wrong settings in their own output, so these commands end only when their command line is wrong.
pub(super) fn parse(command: Command, words: Vec<OsString>) -> Result<Parsed, Exit> {
    let parsed = settings::parse(command, words, &Process, None);
    if parsed.help {
        return Err(Printer::stdout(&commands::help(command.name())));
    }
    if parsed.version {
        return Err(Printer::stdout(&version::line()));
    }
    // An error means that the value of `--color` was set before. This happens only when several commands run in one
    // process, as in tests, so the error is ignored.
    let _ = terminal::COLOR.set(parsed.settings.color.value);
    let is_shown = |problem: &Problem| {
        let mut shown = parsed.effective.iter();
        shown.any(|row| problem.is_about(row.setting) && !row.setting.is_of_config())
    };
    let ends = |problem: &&Problem| match command {
        Command::Doctor | Command::Status => problem.usage,
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

/// Returns an error when the names or flags on the command line do not fit the command. This is checked before the
/// first call to an API.
fn check_usage(command: Command, parsed: &Parsed) -> Result<(), Exit> {
    let settings = &parsed.settings;
    let orders = [settings.overlap.value.is_some(), settings.abort.value, settings.now.value];
    let orders = orders.into_iter().filter(|is_given| *is_given).count();
    let why = match (command, parsed.words.as_slice()) {
        (Command::NodeList, [name, ..]) => {
            let inspect = shell_command("ccm node inspect", &[name]);
            &format!("node list takes no name; {inspect} shows one node")
        }
        (Command::LbList, [name, ..]) => {
            let inspect = shell_command("ccm lb inspect", &[name]);
            &format!("lb list takes no name; {inspect} shows one Service")
        }
        (Command::NodeInspect | Command::LbInspect, [kind, name])
            if [NODES, SERVICES].iter().any(|other| other.prefixes.contains(&&**kind)) =>
        {
            &format!("{} takes one name: {kind}/{name}", command.name())
        }
        (Command::NodeInspect, [] | [_, _, ..]) => {
            "node inspect takes one name, e.g. ccm node inspect worker-1"
        }
        (Command::LbInspect | Command::LbRelease | Command::LbReplace, [] | [_, _, ..]) => {
            let name = command.name();
            &format!("{name} takes one Service, e.g. ccm {name} default/web")
        }
        (Command::LbAdopt, words)
            if words.len() != 2 || words.first().is_none_or(|id| id.parse::<u64>().is_err()) =>
        {
            "lb adopt takes the ID of a load balancer and a Service, e.g. ccm lb adopt 4711 default/web"
        }
        (Command::LbReplace, _) if orders != 1 => {
            "lb replace takes one of --overlap, --abort and --now, e.g. ccm lb replace --overlap=24h default/web"
        }
        (Command::RouteList | Command::RouteSync, [_, ..]) => {
            &format!("{} takes no name: it is about all routes", command.name())
        }
        (Command::LbSync, [_, ..]) if settings.delete_orphans.value => {
            "--delete-orphans takes no Service, because the Services of orphans do not exist"
        }
        _ if settings.detailed_exitcode.value && !settings.dry_run.value => {
            "--detailed-exitcode needs --dry-run"
        }
        _ => return Ok(()),
    };
    Err(usage(why))
}

impl Started {
    /// Returns the clients of Kubernetes and the cloud for a command that a user runs. The command does not check
    /// whether this machine is attached to the private Network, because a user can run it on any machine.
    pub(super) fn apis(&mut self) -> Result<Apis, Exit> {
        let (kube, gate) = (self.kube.take(), Arc::clone(&self.gate));
        let apis = wire::apis(kube, &self.settings, gate, Urgency::Asked, None)
            .map_err(Printer::failure)?;
        leader::heed_identity(&self.settings, &apis);
        if let Some(why) = leader::heed_refused_login(&self.settings, &apis) {
            Printer::notice(why);
        }
        Ok(apis)
    }
}

/// Returns the message that some settings of the daemon could not be read. It lists these settings, and says how to
/// work without them.
pub(super) fn not_known(what: &str) -> String {
    format!("this command does not know {what}; --own-settings uses only this shell's settings")
}

fn start_log(command: Command, parsed: &Parsed) {
    let reader = match command {
        Command::Run => LogReader::Daemon,
        Command::LbSync
        | Command::LbAdopt
        | Command::LbRelease
        | Command::LbReplace
        | Command::RouteSync
            if process::is_terminal(true) =>
        {
            LogReader::Waiting
        }
        _ => LogReader::Person,
    };
    logging::start(&parsed.settings, reader);
    // For a command that a person runs, a line on the terminal says which call it waits for. The daemon shows no such
    // line, because its log shows the results.
    if reader != LogReader::Daemon {
        logging::show_waits();
    }
    for notice in &parsed.notices {
        log::log!(notice.level, "{notice}");
    }
}

/// Finds the daemon that runs in the cluster, and adds its settings to those of the command. Does nothing for a command
/// that uses only its own settings, e.g. `ccm lint`.
///
/// Returns the Kubernetes client that has read the daemon's settings, or `None` when no daemon was looked for. Also
/// returns a text about those settings of the daemon that could not be read, or `None` when none is missing. On an
/// error, prints the error and returns the exit code.
fn with_daemon(
    command: Command,
    words: Vec<OsString>,
    parsed: &mut Parsed,
) -> Result<(Option<kube::KubeClient>, Option<String>), Exit> {
    let settings = &parsed.settings;
    let named = settings.settings_from.value.as_ref();
    // The daemon itself, and commands that need no cluster, use only their own settings. A command in a pod without a
    // kubeconfig also uses only its own settings. Such a pod is taken for the daemon's pod, whose environment variables
    // already contain the daemon's settings.
    let has_own = matches!(command, Command::Run | Command::Config | Command::Lint)
        || settings.own_settings.value
        || !settings.settings_from.source.is_default()
        || is_in_pod(settings);
    if named.is_none() && has_own {
        return Ok((None, None));
    }
    // When the Kubernetes client can't be created, the command does not look for the daemon in the cluster, and goes on
    // with its own settings. The error is not lost: the command creates a client for its own work later, and reports
    // the error then.
    let Ok(kube) = wire::kube_client(settings, wire::gate(command, settings)) else {
        return Ok((None, None));
    };
    let found = match named {
        Some(name) => named_daemon(&kube, name).map(Some),
        None => only_daemon(command, &kube),
    };
    let read = |daemon: Daemon| both(command, words, parsed, &daemon);
    let unknown = match found.and_then(|found| found.map(read).transpose()) {
        Ok(None) => None,
        Ok(Some((both, unread))) => {
            *parsed = both;
            unread
        }
        Err(why) if named.is_some() => {
            return Err(Printer::failure(format_args!("--settings-from: {why}")));
        }
        Err(why) => Some(format!("the daemon's settings, because {why}")),
    };
    let unknown = unknown.filter(|_| !parsed.settings.own_settings.value);
    Ok((Some(kube), unknown))
}

type Daemon = (WorkloadName, Value);

fn named_daemon(kube: &kube::KubeClient, name: &WorkloadName) -> Result<Daemon, String> {
    let origin = kube.origin();
    let found = kube.workload(&format!("{}s", name.kind), &name.namespace, &name.name);
    let found = found.map_err(|error| format!("{error} ({origin})"))?;
    let workload = found.ok_or_else(|| format!("there is no {name} ({origin})"))?;
    Ok((name.clone(), workload))
}

/// Returns the daemon that runs in the cluster, or `None` when there is none. Returns an error when there are several
/// daemons, or when they could not be read.
fn only_daemon(command: Command, kube: &kube::KubeClient) -> Result<Option<Daemon>, String> {
    let found = match http::within(LOOKED_FOR_AT_MOST, || kube.daemons(SYSTEM)) {
        // A command that only reads goes on without the daemon's settings when the search for the daemon has failed. It
        // calls the API server again later, and then reports why the API server does not answer.
        Err(error) if !command.writes() && !error.is_forbidden() => return Ok(None),
        found => found.map_err(|error| error.to_string())?,
    };
    let named = found.into_iter().map(|(kind, workload)| {
        let name = workload["metadata"]["name"].as_str().unwrap_or_default();
        let name = WorkloadName { namespace: SYSTEM.to_owned(), kind, name: name.to_owned() };
        (name, workload)
    });
    let mut all: Vec<Daemon> = named.collect();
    match all.len() {
        0 | 1 => Ok(all.pop()),
        _ => {
            let names: Vec<String> = all.iter().map(|(name, _)| name.to_string()).collect();
            let names = some_of(&names);
            Err(format!("there are several daemons ({names}); choose one with --settings-from"))
        }
    }
}

/// Joins the settings that the user gave to the command (`own`) with the settings of the daemon. The daemon's value is
/// used for each setting that the user did not set. Also returns a text that names the daemon's settings whose values
/// could not be read, e.g. because they are in a file of the daemon.
///
/// Returns an error when a value of the daemon is invalid for this command, e.g. because the daemon has another
/// version. `doctor` and `status` get no error, because they report such values in their output.
fn both(
    command: Command,
    words: Vec<OsString>,
    own: &Parsed,
    (name, workload): &Daemon,
) -> Result<(Parsed, Option<String>), String> {
    let joined = |problems: Vec<Problem>| {
        let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
        problems.join("; ")
    };
    let mut container = container(workload).map_err(|why| format!("{name} {why}"))?;
    let arguments = std::mem::take(&mut container.words);
    let mut variables = std::mem::take(&mut container.variables);
    variables.extend(container.elsewhere.iter().map(|(name, _)| (name.clone(), String::new())));
    let daemon = DaemonSettings::new(name, arguments, variables).map_err(joined)?;
    let both = settings::parse(command, words, &Process, Some(&daemon));
    let mut problems = both.problems.clone();
    problems.retain(|problem| !own.problems.contains(problem));
    if !problems.is_empty() && !matches!(command, Command::Doctor | Command::Status) {
        return Err(joined(problems));
    }
    if own.settings.settings_from.value.is_none() {
        Printer::notice(format_args!(
            "the settings of {name} are used, except those that you set for this command"
        ));
    }
    let unread = unread(&container, &own.unset_names());
    let unread = (!unread.is_empty()).then(|| {
        let unread = some_of(&unread);
        format!(
            "the value of {unread} of {name}; set in this shell the values that the command needs"
        )
    });
    Ok((both, unread))
}

/// Returns those settings in `unset` whose values are not in the daemon's container itself, but in another object such
/// as a Secret. `unset` has the settings that the command uses and that the user has not set.
fn unread(container: &Container, unset: &[String]) -> Vec<String> {
    let unread = container.elsewhere.iter().filter(|(what, _)| unset.contains(what));
    let mut unread = Vec::from_iter(unread.map(|(what, place)| format!("{what} (in {place})")));
    if container.imports && unset.iter().any(|name| !name.starts_with('-')) {
        unread.push("the variables from envFrom".to_owned());
    }
    unread
}

fn is_in_pod(settings: &Settings) -> bool {
    settings.kubeconfig.value.is_empty() && is_set_here("KUBERNETES_SERVICE_HOST")
}

pub(super) fn is_set_here(variable: &str) -> bool {
    process::variable(variable).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::variables::HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL;

    #[test]
    fn settings_that_stand_in_other_objects() {
        let proxy = HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL.text();
        let (whole, in_secret) = ("the variables from envFrom", format!("{proxy} (in a Secret)"));
        // Each case has four parts: the settings whose values are in a Secret, whether the container has `envFrom`, the
        // settings that the user has not set, and the expected result.
        for (elsewhere, imports, unset, expected) in [
            (&[][..], false, &[proxy][..], &[][..]),
            (&[proxy], false, &[proxy], &[&*in_secret]),
            (&[proxy], false, &["--cluster-name"], &[]),
            (&["--cluster-name"], false, &["--cluster-name"], &["--cluster-name (in a Secret)"]),
            (&["--of-another"], false, &[proxy], &[]),
            (&[], true, &[proxy], &[whole]),
            (&[], true, &["--cluster-name"], &[]),
            (&[proxy], true, &[proxy], &[&*in_secret, whole]),
        ] {
            let places = elsewhere.iter();
            let container = Container {
                elsewhere: places.map(|name| ((*name).to_owned(), "a Secret")).collect(),
                imports,
                ..Container::default()
            };
            let names: Vec<String> = unset.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(unread(&container, &names), expected, "{elsewhere:?} {imports} {unset:?}");
        }
    }
}
