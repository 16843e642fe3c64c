//! Reads all settings from the command line and the environment into [`Settings`], and checks the rules that concern
//! several settings.

use super::args;
use super::effective::{DaemonSettings, Effective, Environment, Resolver};
use super::hccm_compat::{IGNORED_VARIABLES, our_name};
use super::problem::{Notice, Problem};
use super::setting::Command;
use super::table::{self, Settings, TABLE};
use super::values::{Output, WorkloadName};
use crate::http::{WRITE_TIMEOUT, without_tls};
use crate::provider::order;
use crate::provider::variables::{
    HCLOUD_LOAD_BALANCERS_LOCATION, HCLOUD_LOAD_BALANCERS_NETWORK_ZONE, HCLOUD_TOKEN,
    HCLOUD_TOKEN_FILE, ROBOT_PASSWORD, ROBOT_PASSWORD_FILE, ROBOT_USER, ROBOT_USER_FILE,
    is_about_hetzner,
};
use crate::provider::{LoadBalancerDefaults, Profile, Source};
use crate::text::{leaves_unencrypted, nearest};
use std::ffi::OsString;
use std::time::Duration;

/// The result of parsing a command line and an environment.
#[derive(Debug)]
pub struct Parsed {
    /// The settings. When a user gave a wrong value, the setting has its default here, and `problems` contains a
    /// [`Problem`] about the value.
    pub settings: Settings,
    /// Every setting that the command accepts, in the order of the table of settings.
    pub effective: Vec<Effective>,
    /// The words that are no flags, e.g. names of nodes. The list is empty for `run`, `config`, `doctor` and `status`,
    /// which accept no such words.
    pub words: Vec<String>,
    /// Whether `--help` was given. The help is then printed even when there are problems with the settings.
    pub help: bool,
    /// Whether `--version` was given.
    pub version: bool,
    /// Messages for the user about settings that are not wrong, e.g. that a variable has no effect. Each of them is
    /// logged once.
    pub notices: Vec<Notice>,
    /// The notices about variables of forks of hcloud-cloud-controller-manager, which have no effect. `doctor` and
    /// `status` show them. For other commands the list is empty, and `notices` has them.
    pub of_forks: Vec<Notice>,
    /// All problems with the settings, with those of the command line first.
    pub problems: Vec<Problem>,
}

/// Parses the settings of one command. `words` are the words after the name of the command, e.g. `-o json` in `ccm node
/// list -o json`. `daemon` contains the settings of the cluster's daemon. A value from there is used when neither the
/// command line nor the environment has a value. Settings such as credentials are never taken from the daemon.
pub fn parse(
    command: Command,
    words: Vec<OsString>,
    environment: &dyn Environment,
    daemon: Option<&DaemonSettings>,
) -> Parsed {
    let args = args::parse(command, words);
    let mut resolver = Resolver {
        command,
        flags: &args.flags,
        environment,
        daemon,
        effective: Vec::new(),
        problems: args.problems,
    };
    let mut settings = Settings::read(&mut resolver);
    let (mut effective, mut problems) = (resolver.effective, resolver.problems);
    let place =
        |effective: &Effective| TABLE.iter().position(|row| std::ptr::eq(*row, effective.setting));
    order::sort_by_key(&mut effective, place);
    let is_about_token = |problem: &Problem| problem.is_about(&table::HCLOUD_TOKEN);
    let needs_token = command != Command::Lint;
    if needs_token && settings.token.value.is_none() && !problems.iter().any(is_about_token) {
        let message = format!(
            "not set; set it to a token of the project's API (Hetzner Console → Security → API tokens), or set \
             {HCLOUD_TOKEN_FILE} to the path of a file with the token"
        );
        problems.push(Problem::environment(HCLOUD_TOKEN, message));
    }
    let mut notices = args.notices;
    notices.extend(unused_variables(command, environment));
    let mut of_forks = fork_variables(command, environment, daemon);
    if !matches!(command, Command::Doctor | Command::Status) {
        notices.append(&mut of_forks);
    }
    check_encryption(&mut settings, &mut notices, &mut problems);
    problems.extend(leader_election_problems(&settings));
    problems.extend(robot_problem(&settings, &problems, environment));
    problems.extend(load_balancer_problem(&settings.load_balancers));
    problems.extend(output_problems(command, &settings));
    Parsed {
        settings,
        effective,
        words: args.words,
        help: args.help,
        version: args.version,
        notices,
        of_forks,
        problems,
    }
}

impl DaemonSettings {
    /// Parses the arguments of the daemon's container, without the name of the program. `variables` are the container's
    /// environment variables. The error contains the problems with the arguments.
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
        for name in (args.flags.iter_mut().map(|flag| &mut flag.name))
            .chain(args.problems.iter_mut().map(|problem| &mut problem.setting))
        {
            *name = format!("{name} of {from}");
        }
        for problem in &mut args.problems {
            problem.usage = false;
        }
        if args.problems.is_empty() {
            Ok(DaemonSettings { from, flags: args.flags, variables })
        } else {
            Err(args.problems)
        }
    }
}

impl Parsed {
    /// Returns the flags (with dashes) and variables of the settings that the user has not set, and whose values can be
    /// taken from the daemon in the cluster (`--settings-from`).
    pub fn unset_names(&self) -> Vec<String> {
        let unset = self.effective.iter().filter(|setting| setting.source.is_default());
        unset
            .filter(|effective| effective.setting.is_inherited())
            .flat_map(|effective| effective.setting.names())
            .collect()
    }
}

/// Returns messages about environment variables that are set and have no effect. There are two kinds. A name that is
/// probably a misspelling of a known variable is reported by every command. A variable of
/// hcloud-cloud-controller-manager that is ignored here is reported only by commands that take the daemon's flags, e.g.
/// `run`.
fn unused_variables(command: Command, environment: &dyn Environment) -> Vec<Notice> {
    let notice = |name: String| {
        if IGNORED_VARIABLES.contains(&name.as_str()) {
            command.reads_daemon_arguments().then(|| Notice::ignored(&name, ""))
        } else {
            meant(&name).map(|nearest| Notice::misspelt(&name, nearest))
        }
    };
    set_names(environment).into_iter().filter_map(notice).collect()
}

/// Returns notices about the variables that only a fork of hcloud-cloud-controller-manager reads, and that are set for
/// this process or for the cluster's daemon. Only `run`, `config`, `doctor` and `status` report such variables. For the
/// other commands the result is empty, because other programs in the user's shell may use variables with these names.
fn fork_variables(
    command: Command,
    environment: &dyn Environment,
    daemon: Option<&DaemonSettings>,
) -> Vec<Notice> {
    let here = set_names(environment).into_iter().map(|name| (name, String::new()));
    let there = daemon.iter().flat_map(|daemon| {
        let place = format!(" of {}", daemon.from);
        daemon.variables.iter().map(move |(name, _)| (name.clone(), place.clone()))
    });
    let all = here.chain(there).filter(|(name, _)| our_name(name).is_some());
    let all = all.filter(|_| command.reads_daemon_arguments());
    all.map(|(name, place)| Notice::ignored(&name, &place)).collect()
}

/// Returns the names of the variables that are not empty, in alphabetical order.
fn set_names(environment: &dyn Environment) -> Vec<String> {
    let is_set = |name: &String| environment.get(name).is_some_and(|value| !value.is_empty());
    let mut names = environment.names();
    names.sort_unstable();
    names.retain(is_set);
    names
}

/// Returns the known variable of which `name` is probably a misspelling. `None` when `name` itself is known, does not
/// begin with `HCLOUD_` or `ROBOT_`, is a variable that only a fork of hcloud-cloud-controller-manager reads, or is
/// similar to no known variable.
fn meant(name: &str) -> Option<&'static str> {
    let ours = TABLE.iter().flat_map(|row| row.variables);
    let ours: Vec<&str> = ours.map(|variable| variable.name()).collect();
    if !is_about_hetzner(name) || ours.contains(&name) || our_name(name).is_some() {
        return None;
    }
    // `name` is not a variable of this program. The variables of hcloud-cloud-controller-manager that this program
    // ignores are included in the search for a similar name. When one of these is the most similar, `name` is not
    // reported as a misspelling.
    let known = ours.iter().chain(IGNORED_VARIABLES).copied();
    nearest(name, known).filter(|known| ours.contains(known))
}

/// Checks that the Cloud API and Robot are reached with TLS, except on this machine or when a setting allows it. An
/// address without TLS is a problem, and the default address is used instead. With `--cloud-provider=hcloud` there is
/// only a warning, and the address is used.
fn check_encryption(
    settings: &mut Settings,
    notices: &mut Vec<Notice>,
    problems: &mut Vec<Problem>,
) {
    if settings.allow_insecure_endpoint.value {
        return;
    }
    let is_refused = settings.cloud_provider.value != Profile::Hcloud;
    for (endpoint, row, secret) in [
        (&mut settings.endpoint, &table::HCLOUD_ENDPOINT, "token"),
        (&mut settings.robot_endpoint, &table::ROBOT_ENDPOINT, "password"),
    ] {
        if !leaves_unencrypted(&endpoint.value) {
            continue;
        }
        let (setting, message) = (endpoint.source.name().to_owned(), without_tls(secret));
        if is_refused {
            let default = row.default.unwrap_or_default().to_owned();
            let value = Some(std::mem::replace(&mut endpoint.value, default));
            let usage = matches!(endpoint.source, Source::Flag(_));
            problems.push(Problem { setting, value, message, usage });
        } else {
            notices.push(Notice::warning(format!("{setting}: {message}")));
        }
    }
}

/// Checks that the user and the password for Robot are either both set or both unset, when dedicated servers are
/// enabled.
fn robot_problem(
    settings: &Settings,
    problems: &[Problem],
    environment: &dyn Environment,
) -> Option<Problem> {
    let (user, password) = (&settings.robot_user.value, &settings.robot_password.value);
    let (missing, [name, file], there) = match (user, password) {
        (Some(_), None) => {
            (&table::ROBOT_PASSWORD, [ROBOT_PASSWORD, ROBOT_PASSWORD_FILE], ROBOT_USER)
        }
        (None, Some(_)) => (&table::ROBOT_USER, [ROBOT_USER, ROBOT_USER_FILE], ROBOT_PASSWORD),
        _ => return None,
    };
    let is_wrong = problems.iter().any(|problem| problem.is_about(missing));
    if !settings.robot_enabled.value || is_wrong {
        return None;
    }
    let path = environment.get(file.text()).filter(|path| !path.is_empty());
    Some(match path {
        Some(path) => {
            let message = format!(
                "the file is missing or empty, but {there} is set; set both user and password, or neither"
            );
            Problem::environment(file, message).with_value(path.to_string_lossy())
        }
        None => {
            let message = format!(
                "not set, but {there} is set; set this variable (or {file}) too, or unset {there}"
            );
            Problem::environment(name, message)
        }
    })
}

/// Checks that at most one of location and network zone is set for load balancers.
fn load_balancer_problem(settings: &LoadBalancerDefaults) -> Option<Problem> {
    let (location, zone) = (settings.location.as_ref()?, settings.network_zone.as_ref()?);
    let message = format!(
        "set either this or {HCLOUD_LOAD_BALANCERS_NETWORK_ZONE} (which is {:?}), not both",
        zone.value
    );
    let problem = Problem::environment(HCLOUD_LOAD_BALANCERS_LOCATION, message);
    Some(problem.with_value(location.value.as_str()))
}

/// Checks that the settings about output can be used together. For example, `--watch` can't be combined with `-o json`.
fn output_problems(command: Command, settings: &Settings) -> Vec<Problem> {
    let output = settings.output.value;
    let is_list = table::SORT_BY.is_for(command);
    let is_document = matches!(output, Output::Json | Output::Yaml);
    let mut problems = Vec::new();
    if settings.all_namespaces.value && settings.namespace.value.is_some() {
        let why = "can't be combined with -n: leave one of them out";
        problems.push(Problem::usage("-A", why));
    }
    if output == Output::Name && !is_list {
        problems.push(Problem::usage("-o name", "only for lists"));
    }
    if settings.watch.value && is_document {
        let why = "repeats a table, so it can't be combined with -o json or yaml";
        problems.push(Problem::usage("--watch", why));
    }
    problems
}

/// The constant `JitterFactor` of client-go. As in client-go, the renew deadline must be longer than this many
/// retry periods.
const JITTER_FACTOR: f64 = 1.2;

/// The longest allowed lease duration. `leaseDurationSeconds` of a Lease is an int32, so it can't contain more seconds.
const LONGEST_LEASE: Duration = Duration::from_secs(i32::MAX as u64);

/// Checks that the durations for leader election fit together. As in client-go, the lease duration must be longer than
/// the renew deadline, and the renew deadline longer than 1.2 retry periods. Further rules ensure that a write ends
/// before the Lease expires, and that the API server accepts the lease duration.
fn leader_election_problems(settings: &Settings) -> Vec<Problem> {
    if !settings.leader_elect.value {
        return Vec::new();
    }
    let (lease, deadline) = (settings.lease_duration.value, settings.renew_deadline.value);
    let retry = settings.retry_period.value;
    let shortest = WRITE_TIMEOUT.saturating_add(retry);
    let [retry_s, deadline_s, shortest_s, write_s] =
        [retry, deadline, shortest, WRITE_TIMEOUT].map(in_seconds);
    let problem =
        |flag, value, why: String| Problem::usage(flag, why).with_value(in_seconds(value));
    let mut problems = Vec::new();
    if deadline.as_secs_f64() <= JITTER_FACTOR * retry.as_secs_f64() {
        let why = format!(
            "must be longer than {JITTER_FACTOR} × {retry_s} (--leader-elect-retry-period)"
        );
        problems.push(problem("--leader-elect-renew-deadline", deadline, why));
    }
    let why = if lease <= deadline {
        format!("must be longer than --leader-elect-renew-deadline ({deadline_s})")
    } else if lease < shortest {
        format!(
            "must be {shortest_s} or longer, because a write may take {write_s} and must end before the Lease expires, \
             even if the write begins at the end of a --leader-elect-retry-period ({retry_s})"
        )
    } else if lease > LONGEST_LEASE {
        "must not be longer than 68 years".to_owned()
    } else {
        return problems;
    };
    problems.push(problem("--leader-elect-lease-duration", lease, why));
    problems
}

fn in_seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}
