//! `ccm completions SHELL` prints a script that completes commands, flags, and the values of flags that allow only
//! certain words.
//!
//! The scripts are in `src/help/completions`. For each completion they run `ccm completions -- WORD…`, which prints the
//! words that can come next: see [`offered`]. Names of objects are read from the cluster. When the cluster does not
//! answer within a second, no names are offered.

use super::names::{self, NODES, SERVICES};
use super::output::{Exit, Printer, usage};
use super::{commands, explain, topics, wire};
use crate::kube::{KubeClient, KubeError, ReadFrom, ServiceList};
use crate::settings::{self, Command, Process, Setting, Settings, TABLE, ValueKind};
use crate::text;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::mpsc;
use std::time::Duration;

/// How long a completion waits for an answer of the cluster. The time is short because a person waits at the keyboard.
const TIME_LIMIT: Duration = Duration::from_secs(1);

const SCRIPTS: [(&str, &str); 3] = [
    ("bash", include_str!("../help/completions/bash.sh")),
    ("zsh", include_str!("../help/completions/zsh.sh")),
    ("fish", include_str!("../help/completions/fish.fish")),
];

pub(super) fn completions(words: &[OsString]) -> Exit {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        ["-h" | "--help"] => Printer::stdout(&commands::help("completions")),
        ["--", typed @ ..] => Printer::stdout(&offered(typed)),
        [shell] => match SCRIPTS.iter().find(|(name, _)| name == shell) {
            Some((_, script)) => Printer::stdout(script),
            None => commands::unknown("shell", shell, &SCRIPTS.map(|(name, _)| name)),
        },
        _ => usage("completions takes one word: bash, zsh or fish"),
    }
}

/// Returns the words with which the shell can complete the last typed word, one on each line. For a flag, the line has
/// the flag, a space and a short description. The line `FILE` tells the shell to complete a path.
fn offered(typed: &[&str]) -> String {
    let (last, words) = typed.split_last().unwrap_or((&"", &[]));
    let (setting, begun) = match last.split_once('=') {
        Some((flag, value)) => (with_flag(flag), value),
        None => {
            let setting = words.last().and_then(|flag| with_flag(flag));
            (setting.filter(|setting| setting.takes_value()), *last)
        }
    };
    let is_file =
        |setting: &Setting| matches!(setting.kind, ValueKind::Path | ValueKind::List("FILE"));
    let takes_files = command_of(words) == Some(Command::Lint) && !begun.starts_with('-');
    let all = match setting {
        Some(setting) if is_file(setting) => return "FILE\n".to_owned(),
        Some(setting) => values(setting, words),
        None if takes_files => return "FILE\n".to_owned(),
        None => following(words, begun),
    };
    all.iter().filter(|line| line.starts_with(begun)).map(|line| format!("{line}\n")).collect()
}

/// Returns the words that can follow `words`. `begun` is the part of the next word that was typed already.
fn following(words: &[&str], begun: &str) -> Vec<String> {
    let command = command_of(words);
    let words = commands::command_first(words.iter().map(OsString::from).collect());
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let names = match (words.as_slice(), command) {
        (["explain"], _) => return explain::names(),
        ([], _) => [commands::top(), vec!["--help", "--version"]].concat(),
        (["help"], _) => commands::top().into_iter().chain(topics::names()).collect(),
        (["completions"], _) => SCRIPTS.map(|(name, _)| name).to_vec(),
        (["help", group], _) => commands::verbs(group),
        ([group, ..], None) => commands::verbs(group),
        ([flag, ..], _) if flag.starts_with('-') && !begun.starts_with('-') => commands::top(),
        (words, Some(command)) => {
            let names = match command {
                _ if begun.starts_with('-') => Vec::new(),
                Command::NodeInspect | Command::NodeSync | Command::NodeRelabel => {
                    forms(&NODES, begun, asked(words, nodes))
                }
                // `ccm lb adopt` takes the ID of a load balancer first, and then the name of a Service. IDs are not
                // offered. Until an ID was typed, no names are offered either.
                Command::LbAdopt if !words.iter().any(|word| word.parse::<u64>().is_ok()) => {
                    Vec::new()
                }
                Command::LbInspect
                | Command::LbSync
                | Command::LbAdopt
                | Command::LbRelease
                | Command::LbReplace => forms(&SERVICES, begun, asked(words, services)),
                _ => Vec::new(),
            };
            return if names.is_empty() { flags(command) } else { names };
        }
    };
    names.into_iter().map(str::to_owned).collect()
}

/// Returns the names of objects in the form in which they complete the typed word `begun`. When `begun` starts with a
/// kind, e.g. with `node/`, each name gets this prefix.
fn forms(kind: &names::ObjectKind, begun: &str, names: Vec<String>) -> Vec<String> {
    let prefix = begun.split_once('/').map(|(prefix, _)| prefix);
    match prefix.filter(|prefix| kind.prefixes.contains(prefix)) {
        Some(prefix) => names.iter().map(|name| format!("{prefix}/{name}")).collect(),
        None => names,
    }
}

fn with_flag(flag: &str) -> Option<&'static Setting> {
    TABLE.iter().copied().find(|setting| setting.flag_names().any(|name| name == flag))
}

/// Returns the command that the typed words name. When they name no command and the first word is a flag, the command
/// is `ccm run`, whose name can be left out.
fn command_of(words: &[&str]) -> Option<Command> {
    let words = commands::command_first(words.iter().map(OsString::from).collect());
    match commands::named(&words) {
        Some((entry, _)) => entry.settings(),
        None => words.first()?.to_string_lossy().starts_with('-').then_some(Command::Run),
    }
}

fn typed(words: &[&str]) -> Settings {
    let command = command_of(words).unwrap_or(Command::Doctor);
    let words = words.iter().map(OsString::from).collect();
    settings::parse(command, words, &Process, None).settings
}

/// Asks the cluster that the typed flags select, e.g. for the names of its nodes. `question` makes the calls and
/// returns the names. The result is empty when the cluster does not answer within the time limit.
fn asked(
    words: &[&str],
    question: fn(&KubeClient, &Settings) -> Result<Vec<String>, KubeError>,
) -> Vec<String> {
    let settings = typed(words);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let client = wire::kube_client(&settings, wire::gate(Command::Doctor, &settings));
        let answer = client.ok().and_then(|client| question(&client, &settings).ok());
        let _ = sender.send(answer.unwrap_or_default());
    });
    plain(receiver.recv_timeout(TIME_LIMIT).unwrap_or_default())
}

/// Returns only the names that every shell takes literally. In other names, a shell could expand some characters, or
/// put the name on the command line without quotes. This would be dangerous, because other people choose the names of
/// contexts and objects.
fn plain(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| text::is_plain(name));
    names
}

fn nodes(client: &KubeClient, _: &Settings) -> Result<Vec<String>, KubeError> {
    let nodes = client.nodes(ReadFrom::Cache)?;
    Ok(nodes.iter().map(|node| node.name().to_owned()).collect())
}

/// Returns the Services of type LoadBalancer as `NAMESPACE/NAME`, and the Services of the current namespace also as
/// `NAME`. With `-n` only the Services of the given namespace are returned.
fn services(client: &KubeClient, settings: &Settings) -> Result<Vec<String>, KubeError> {
    let given = settings.namespace.value.as_deref();
    let namespace = given.unwrap_or(client.namespace());
    let services = client.load_balancer_services(ReadFrom::Cache, &ServiceList::default())?.items;
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        services.iter().partition(|service| service.metadata.namespace == namespace);
    let full = elsewhere.iter().filter(|_| given.is_none()).chain(&here);
    let full = full.map(|service| service.full_name());
    let names = here.iter().map(|service| service.metadata.name.clone());
    Ok(full.chain(names).collect())
}

fn values(setting: &Setting, words: &[&str]) -> Vec<String> {
    let words: &[&str] = match (setting.flags, &setting.kind) {
        (["context"], _) => return plain(wire::contexts(&typed(words))),
        (["namespace"], _) => {
            let services = asked(words, services);
            let namespaces = services.iter().filter_map(|service| service.split_once('/'));
            let namespaces: BTreeSet<_> = namespaces.map(|(namespace, _)| namespace).collect();
            return namespaces.into_iter().map(str::to_owned).collect();
        }
        (_, ValueKind::Boolean) => &["true", "false"],
        (_, ValueKind::Choice(words)) => words,
        _ => &[],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn flags(command: Command) -> Vec<String> {
    let settings = TABLE.iter().filter(|setting| !setting.hidden && setting.is_for(command));
    let flags = settings.flat_map(|setting| {
        let meaning = settings::meaning(setting);
        let about = meaning.split(['.', ':', ';']).next().unwrap_or_default().to_owned();
        setting.flag_names().map(move |name| format!("{name} {about}"))
    });
    flags.chain(["--help".to_owned()]).collect()
}
