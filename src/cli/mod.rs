//! The commands of `ccm`: everything that a user types and reads, such as subcommands, tables and exit codes. This
//! module also creates the cloud provider that the other modules use.
//!
//! This module can use all other modules. It must not decide what is written to an API.

mod commands;
mod completions;
mod config;
mod doctor;
mod explain;
mod lb;
mod leader;
mod lint;
mod lists;
mod logging;
mod names;
mod node;
mod objects;
mod output;
mod relabel;
mod route;
mod run;
mod simulated;
mod startup;
mod status;
mod table;
mod terminal;
mod topics;
mod version;
mod wire;

use crate::settings::{Command, one_of};
use crate::text::shell_command;
use commands::{CommandEntry, CommandKind};
use output::{Exit, Printer, usage};
pub use simulated::SimulatedDaemon;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::process::ExitCode;

/// The second name of this program in `/bin` of the container image. In the image of hcloud-cloud-controller-manager,
/// its program has the same name. So a Deployment whose `command:` has this name works with either image.
const DROP_IN: &str = "hcloud-cloud-controller-manager";

/// The name by which kubectl finds this program as a plugin in `$PATH`, and runs it for `kubectl ccm`.
const PLUGIN: &str = "kubectl-ccm";

/// Runs the command that is given by the words of the command line. The first word is the name by which this program
/// was started.
pub fn main(words: Vec<OsString>) -> ExitCode {
    prepare();
    let exit = dispatch(without_program(words));
    terminal::end();
    ExitCode::from(exit as u8)
}

/// Runs a command in a test that simulates its clock and its network, and returns the exit code. The command runs in
/// the calling thread. The first word is the name by which the program is started. For the daemon, which would never
/// return, use [`SimulatedDaemon`].
pub fn in_simulation(words: Vec<OsString>) -> u8 {
    dispatch(without_program(words)) as u8
}

/// Returns the words of the command line without the program's name. When the program was started by the name
/// `hcloud-cloud-controller-manager`, the flag `--cloud-provider=hcloud` is added as the first flag. A later flag of
/// the user then has priority.
fn without_program(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.is_empty() {
        return words;
    }
    let program = words.remove(0);
    let program = Path::new(&program).file_name();
    if program == Some(PLUGIN.as_ref()) {
        let _ = commands::IS_PLUGIN.set(());
    }
    let is_drop_in = program == Some(DROP_IN.as_ref());
    if let Some(at) = flags_begin(&words).filter(|_| is_drop_in) {
        words.insert(at, "--cloud-provider=hcloud".into());
    }
    words
}

/// Returns the place in the command line at which a flag can be inserted: the index of the word after the command's
/// name, or of the first word when there are only flags. Returns `None` for a command that takes no flags.
fn flags_begin(words: &[OsString]) -> Option<usize> {
    let first = words.first().and_then(|word| word.to_str());
    match first.unwrap_or_default() {
        "-h" | "--help" | "--version" => None,
        flag if flag.is_empty() || flag.starts_with('-') => Some(0),
        _ => {
            let (entry, count) = commands::named(words)?;
            entry.settings().map(|_| count)
        }
    }
}

fn dispatch(words: Vec<OsString>) -> Exit {
    let Some(first) = words.first() else {
        Printer::stderr(&commands::overview());
        return Exit::Usage;
    };
    match first.to_string_lossy().as_ref() {
        "-h" | "--help" => return help_on(&words[1..]),
        "--version" => return Printer::stdout(&version::line()),
        _ => {}
    }
    let moved = commands::command_first(words.clone());
    match commands::named(&moved) {
        Some((entry, count)) => run_command(entry, moved[count..].to_vec()),
        None if !first.to_string_lossy().starts_with('-') => {
            let verb = words.get(1).map(|word| word.to_string_lossy());
            let verb = verb.filter(|word| !word.starts_with('-')).unwrap_or_default();
            let name = format!("{} {verb}", first.to_string_lossy());
            commands::unknown("command", name.trim_end(), &commands::top())
        }
        None => without_command(&first.to_string_lossy(), words.clone()),
    }
}

/// Handles a command line that has only flags. It starts the daemon in a pod or when stdin is not a terminal, because
/// the Deployments of other cloud-controller-managers contain only flags. At a terminal, it starts the daemon only when
/// the flag `--cloud-provider` is given. Otherwise the missing command is a usage error.
fn without_command(flag: &str, words: Vec<OsString>) -> Exit {
    let is_in_pod = startup::is_set_here("KUBERNETES_SERVICE_HOST");
    if starts_daemon(&words, is_in_pod, std::io::stdin().is_terminal()) {
        return run::run(words).unwrap_or_else(|exit| exit);
    }
    Printer::stderr(&commands::overview());
    let example = shell_command("ccm node list", &[&flag]);
    usage(&format!("{flag} needs a command, e.g. {example} …; ccm run starts the daemon"))
}

fn starts_daemon(words: &[OsString], is_in_pod: bool, is_at_terminal: bool) -> bool {
    let mut words = words.iter().map(|word| word.to_string_lossy().replace('_', "-"));
    is_in_pod || !is_at_terminal || words.any(|word| word.starts_with("--cloud-provider"))
}

fn run_command(entry: &CommandEntry, words: Vec<OsString>) -> Exit {
    let asks_for_help = |word: &OsString| word == "-h" || word == "--help";
    let ended = match entry.kind {
        CommandKind::Flags(Command::Run) => run::run(words),
        CommandKind::Flags(Command::NodeList) => node::list(words),
        CommandKind::Flags(Command::NodeInspect) => node::inspect(words),
        CommandKind::Flags(Command::NodeSync) => node::sync(words),
        CommandKind::Flags(Command::NodeRelabel) => relabel::relabel(words),
        CommandKind::Flags(Command::LbList) => lb::list(words),
        CommandKind::Flags(Command::LbInspect) => lb::inspect(words),
        CommandKind::Flags(Command::LbSync) => lb::sync(words),
        CommandKind::Flags(Command::LbAdopt) => lb::adopt(words),
        CommandKind::Flags(Command::LbRelease) => lb::release(words),
        CommandKind::Flags(Command::LbReplace) => lb::replace(words),
        CommandKind::Flags(Command::RouteList) => route::list(words),
        CommandKind::Flags(Command::RouteSync) => route::sync(words),
        CommandKind::Flags(Command::Config) => config::config(words),
        CommandKind::Flags(Command::Doctor) => doctor::doctor(words),
        CommandKind::Flags(Command::Status) => status::status(words),
        CommandKind::Flags(Command::Lint) => lint::lint(words),
        CommandKind::Explain => Ok(explain::explain(&words)),
        CommandKind::Completions => Ok(completions::completions(&words)),
        CommandKind::Help => Ok(help_on(&words)),
        CommandKind::Version => version::version(words),
        CommandKind::Group => Ok(match words.first() {
            None => {
                Printer::stderr(&entry.help());
                Exit::Usage
            }
            Some(word) if asks_for_help(word) || word == "help" => Printer::stdout(&entry.help()),
            Some(verb) => {
                let verb = verb.to_string_lossy();
                let group = format!("{} ", entry.name);
                let mut names = commands::names();
                names.retain(|name| name.starts_with(&group));
                if verb.starts_with('-') {
                    usage(&format!("{verb} needs a complete command before it: {}", one_of(&names)))
                } else {
                    commands::unknown("command", &format!("{group}{verb}"), &names)
                }
            }
        }),
    };
    ended.unwrap_or_else(|exit| exit)
}

fn help_on(words: &[OsString]) -> Exit {
    let name = words.join(" ".as_ref()).to_string_lossy().into_owned();
    if name.is_empty() {
        return Printer::stdout(&commands::overview());
    }
    let command = commands::find(&name).map(CommandEntry::help);
    match command.or_else(|| topics::page(&name)).or_else(|| explain::text(&name)) {
        Some(text) => Printer::stdout(&text),
        None => {
            let all = commands::names().into_iter().chain(topics::names()).map(str::to_owned);
            let all = Vec::from_iter(all.chain(explain::names()));
            commands::unknown("command or topic", &explain::name(&name), &all)
        }
    }
}

/// Forbids core dumps, and sets the panic hook. This function is called first in
/// every run, before any other thread is started.
#[allow(unsafe_code)]
fn prepare() {
    // Forbids core dumps of this process. It also keeps processes without CAP_SYS_PTRACE from reading the memory and
    // the environment of this process, which contain tokens and private keys. RLIMIT_CORE would not be enough, because
    // it is not applied when the kernel pipes core dumps to a program. The files `stat` and `status` of `/proc/self`,
    // which the metrics need, stay readable. Safety: this call of prctl takes only numbers.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    std::panic::set_hook(Box::new(end_with_one_line));
}

/// Prints a panic as one line without a backtrace, and ends the whole process. Without this hook, a panic would end
/// only its thread.
fn end_with_one_line(info: &PanicHookInfo) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Printer::failure(format_args!(
        "internal error at {place}: {message}; this is a bug in ccm, please report it"
    ));
    terminal::end();
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn flags_may_stand_before_the_command() {
        for (typed, meant) in [
            ("node list", "node list"),
            ("--context x node list", "node list --context x"),
            ("--context=x node list -w", "node list --context=x -w"),
            ("node --context x list", "node list --context x"),
            ("-n shop lb inspect web", "lb inspect -n shop web"),
            ("-Aw lb list", "lb list -Aw"),
            ("-wn shop lb list", "lb list -wn shop"),
            ("-nshop lb list", "lb list -nshop"),
            ("-v=4 doctor", "doctor -v=4"),
            ("--once run", "run --once"),
            (
                "--no-headers --sort-by name lb --watch list",
                "lb list --no-headers --sort-by name --watch",
            ),
            ("--kubeconfig node list", "list --kubeconfig node"),
            (
                "--leader-elect=false --allow-untagged-cloud doctor",
                "doctor --leader-elect=false --allow-untagged-cloud",
            ),
            ("--once", "--once"),
            ("--once -- run", "--once -- run"),
            ("completions -- --context x node", "completions -- --context x node"),
            ("help lb list", "help lb list"),
            ("lb sync --yes default/list", "lb sync --yes default/list"),
        ] {
            assert_eq!(commands::command_first(words(typed)), words(meant), "{typed}");
        }
    }

    #[test]
    fn flags_alone_start_the_daemon_only_where_it_is_meant() {
        for (typed, is_in_pod, is_at_terminal, starts) in [
            ("--context x", false, true, false),
            ("--leader-elect=false", false, true, false),
            ("--context x", false, false, true),
            ("--leader-elect=false", true, true, true),
            ("--leader-elect=false --cloud-provider=hcloud", false, true, true),
            ("--cloud_provider hcloud", false, true, true),
        ] {
            let started = starts_daemon(&words(typed), is_in_pod, is_at_terminal);
            assert_eq!(started, starts, "{typed}");
        }
    }

    #[test]
    fn the_name_chooses_the_profile() {
        for (typed, meant) in [
            ("/ccm run", "run"),
            ("ccm", ""),
            ("/bin/hcloud-cloud-controller-manager", "+"),
            (
                "/bin/hcloud-cloud-controller-manager --leader-elect=false -v 4",
                "+ --leader-elect=false -v 4",
            ),
            // Case: the user has typed `--cloud-provider=hcloud`, and the program was started by the name of
            // hcloud-cloud-controller-manager, so it adds the same flag. The flag then stands twice in the resulting
            // command line. The last value counts, as with pflag, the flag library of Kubernetes.
            (
                "hcloud-cloud-controller-manager --cloud-provider=hcloud",
                "+ --cloud-provider=hcloud",
            ),
            ("hcloud-cloud-controller-manager run --once", "run + --once"),
            ("hcloud-cloud-controller-manager node sync a --dry-run", "node sync + a --dry-run"),
            ("hcloud-cloud-controller-manager node", "node"),
            ("hcloud-cloud-controller-manager doctor", "doctor +"),
            ("hcloud-cloud-controller-manager --help", "--help"),
            ("hcloud-cloud-controller-manager --version", "--version"),
            ("hcloud-cloud-controller-manager help node list", "help node list"),
            ("/opt/hcloud-cloud-controller-manager/ccm run", "run"),
        ] {
            let all = typed.split(' ').map(OsString::from).collect();
            let meant = meant.replace('+', "--cloud-provider=hcloud");
            let words = without_program(all).join(" ".as_ref());
            assert_eq!(words.to_str(), Some(meant.as_str()), "{typed}");
        }
    }
}
