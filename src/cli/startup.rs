//! The start of each command: its settings (flags, variables, with `--settings-from` those of the cluster's daemon),
//! `--help`, `--version`, the log, and what is wrong with the settings.

use super::logging::{self, Reader};
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

/// The flag that decides which nodes are ours at all.
pub(super) const CLOUD_PROVIDER: &str = "--cloud-provider";

/// A command whose settings are known.
pub(super) struct Started {
    pub(super) settings: Settings,
    /// The words that are no flags.
    pub(super) words: Vec<String>,
    /// Empty but for `doctor` and `status`, which report them; for the others they end the command.
    pub(super) problems: Vec<settings::Problem>,
    /// Variables, and flags with their dashes, that are unset here and may be set for the daemon.
    pub(super) unknown: Vec<String>,
    /// What its writes pass.
    gate: Arc<dyn Gate>,
    /// The client that the daemon's settings needed.
    kube: Option<kube::Client>,
}

/// Where the daemon is looked for: no tenant may write there.
const SYSTEM: &str = "kube-system";

/// How long that may take, by the machine's time.
const LOOKED_FOR_AT_MOST: Duration = Duration::from_secs(2);

/// Reads the settings of a command. The error: the command ends here, all was printed.
pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Started, Exit> {
    let mut parsed = parse(command, words.clone(), None)?;
    clock::quicken(parsed.settings.test_time_scale.value);
    check_usage(command, &parsed)?;
    start_log(command, &parsed);
    let (kube, container) = with_daemon(command, words, &mut parsed)?;
    Ok(Started {
        gate: wire::gate(command, &parsed.settings),
        unknown: unknown(&parsed, container.as_ref()),
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
        return Err(Printer::stdout(&version::line()));
    }
    terminal::ask_for_color(parsed.settings.color.value);
    let is_shown = |problem: &Problem| {
        let mut shown = parsed.effective.iter();
        shown.any(|one| one.is_about(problem) && !one.setting.is_of_config())
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

/// Names and flags that do not fit the command. Before any client is made.
fn check_usage(command: Command, parsed: &Parsed) -> Result<(), Exit> {
    let settings = &parsed.settings;
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
            if [NODES, SERVICES]
                .iter()
                .any(|one| one.prefixes.contains(&&**kind)) =>
        {
            &format!("{} takes one name: {kind}/{name}", command.name())
        }
        (Command::NodeInspect, [] | [_, _, ..]) => {
            "node inspect takes one name, e.g. ccm node inspect worker-1"
        }
        (Command::LbInspect | Command::LbRelease, [] | [_, _, ..]) => {
            let name = command.name();
            &format!("{name} takes one Service, e.g. ccm {name} default/web")
        }
        (Command::LbAdopt, words)
            if words.len() != 2 || words.first().is_none_or(|id| id.parse::<u64>().is_err()) =>
        {
            "lb adopt takes the ID of a load balancer and a Service, e.g. ccm lb adopt 4711 default/web"
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
            Urgency::Asked,
            None,
            self.unknown.clone(),
        );
        let apis = apis.map_err(|why| Printer::failure(&why))?;
        leader::heed_identity(&self.settings, &apis);
        if let Some(why) = leader::heed_refused_login(&self.settings, &apis) {
            Printer::notice(why);
        }
        Ok(apis)
    }
}

fn start_log(command: Command, parsed: &Parsed) {
    let reader = match command {
        Command::Run => Reader::Daemon,
        Command::LbSync | Command::LbAdopt | Command::LbRelease | Command::RouteSync
            if process::is_terminal(true) =>
        {
            Reader::Waiting
        }
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

/// Adds the settings of the daemon of the cluster, where there are any to take. The client that read them, and what of the
/// daemon's container was not read. The error: the command ends here, all was printed.
fn with_daemon(
    command: Command,
    words: Vec<OsString>,
    parsed: &mut Parsed,
) -> Result<(Option<kube::Client>, Option<Container>), Exit> {
    let settings = &parsed.settings;
    let named = settings.settings_from.value.as_ref();
    // The daemon and commands without a cluster have their own settings; in a pod the environment is the daemon's.
    let has_own = matches!(command, Command::Run | Command::Config | Command::Lint)
        || !settings.settings_from.source.is_default()
        || is_in_pod(settings);
    if named.is_none() && has_own {
        return Ok((None, None));
    }
    // What is wrong with it is reported by the command's own client.
    let Ok(kube) = wire::kube_client(settings, wire::gate(command, settings)) else {
        return Ok((None, None));
    };
    let failed = |why: String| Printer::failure(&format!("--settings-from: {why}"));
    let found = match named {
        Some(name) => Some(named_daemon(&kube, name).map_err(failed)?),
        None => only_daemon(&kube),
    };
    let Some((name, workload)) = found else {
        return Ok((Some(kube), None));
    };
    match both(command, words, parsed, &name, &workload) {
        Ok((both, container)) => {
            *parsed = both;
            Ok((Some(kube), Some(container)))
        }
        Err(why) if named.is_some() => Err(failed(why)),
        Err(why) => {
            Printer::notice(format_args!("the daemon's settings are not used: {why}"));
            Ok((Some(kube), None))
        }
    }
}

type Daemon = (WorkloadName, Value);

fn named_daemon(kube: &kube::Client, name: &WorkloadName) -> Result<Daemon, String> {
    let origin = kube.origin();
    let found = kube.workload(&format!("{}s", name.kind), &name.namespace, &name.name);
    let found = found.map_err(|error| format!("{error} ({origin})"))?;
    let workload = found.ok_or_else(|| format!("there is no {name} ({origin})"))?;
    Ok((name.clone(), workload))
}

/// The only one of the cluster; none: there are several or none, they may not be listed, or the answer is late.
fn only_daemon(kube: &kube::Client) -> Option<Daemon> {
    let found = http::within(LOOKED_FOR_AT_MOST, || kube.only_daemon(SYSTEM));
    let found = found.map_err(|error| log::debug!("{error}: the daemon's settings are unknown"));
    let (kind, workload) = found.ok()??;
    let name = WorkloadName {
        namespace: SYSTEM.to_owned(),
        kind,
        name: workload["metadata"]["name"].as_str()?.to_owned(),
    };
    Some((name, workload))
}

/// The settings with those of the daemon, and its container; a person is shown what was not read, and of a daemon that was
/// not named. The error: what is wrong with them, as in those of another version; `doctor` and `status` report it.
fn both(
    command: Command,
    words: Vec<OsString>,
    own: &Parsed,
    name: &WorkloadName,
    workload: &Value,
) -> Result<(Parsed, Container), String> {
    let joined = |problems: Vec<Problem>| {
        let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
        problems.join("; ")
    };
    let mut container = container(workload).map_err(|why| format!("{name}: {why}"))?;
    let arguments = std::mem::take(&mut container.words);
    let variables = std::mem::take(&mut container.variables);
    let daemon = DaemonSettings::new(name, arguments, variables).map_err(joined)?;
    let both = settings::parse_with_daemon(command, words, &Process, Some(&daemon));
    let mut problems = both.problems.clone();
    problems.retain(|problem| !own.problems.contains(problem));
    if !problems.is_empty() && !matches!(command, Command::Doctor | Command::Status) {
        return Err(joined(problems));
    }
    let unset = own.unset_names();
    let elsewhere = container.elsewhere.iter();
    let unread = elsewhere.filter(|(what, _)| unset.contains(what));
    let mut unread: Vec<String> = unread
        .map(|(what, place)| format!("{what} in {place}"))
        .collect();
    if container.imports {
        unread.push("variables of whole other objects".to_owned());
    }
    let what = format!("settings are those of {name}, unless set here");
    match unread.as_slice() {
        [] if own.settings.settings_from.value.is_some() => {}
        [] => Printer::notice(what),
        unread => Printer::notice(format_args!(
            "{what}; not read, so set it here: {}",
            some_of(unread)
        )),
    }
    Ok((both, container))
}

/// Names of settings that are unset here and may be set for the daemon, so that our default may be wrong. In a pod the
/// environment counts as the daemon's own.
fn unknown(parsed: &Parsed, container: Option<&Container>) -> Vec<String> {
    let settings = &parsed.settings;
    let mut names = parsed.unset_names();
    names.retain(|name| match container {
        _ if settings.yes.value => false,
        Some(container) => is_unread(name, container),
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
    process::variable(variable).is_some_and(|value| !value.is_empty())
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
