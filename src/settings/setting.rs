//! The data of a setting, which are the fields of a row in the table of settings.

use crate::provider::variables::VariableName;
use crate::text::named;

/// A setting, with everything that parsing, `--help` and `ccm help settings` need to know.
#[derive(Debug)]
pub struct Setting {
    /// The name of the setting in `ccm help settings` and `ccm config`, when this name differs from the flag and
    /// from the variable.
    pub called: &'static str,
    /// The long flags without their dashes. The first one is preferred, the others are its aliases.
    pub flags: &'static [&'static str],
    pub short: Option<char>,
    /// The variables. The value is taken from the first one that is set and not empty.
    pub variables: &'static [Variable],
    pub kind: ValueKind,
    /// The default as text. It is written like the value of a flag, and the same function parses it.
    pub default: Option<&'static str>,
    /// What the setting does, its unit and its limits, in whole sentences.
    pub help: &'static str,
    /// The commands that accept the setting, whether it is given as a flag or as a variable.
    pub commands: &'static [Command],
    pub group: Group,
    /// Whether the value is secret. A secret value is never printed.
    pub secret: bool,
    /// Whether the setting is left out of `--help` and `ccm help settings`.
    pub hidden: bool,
    /// Whether `--settings-from` leaves the setting out, because the user who runs the command decides about it.
    pub own: bool,
}

/// A flag of a command line with its value, which is not parsed yet.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) setting: &'static Setting,
    /// The name as it was written, dashes included.
    pub(super) name: String,
    pub(super) text: String,
}

/// An environment variable that a setting is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// The variable holds the value.
    Value(VariableName),
    /// The variable holds the path of a file that holds the value.
    File(VariableName),
    /// The variable holds the path of a file that may be missing or empty, which leaves the setting unset. The file is
    /// a key of a mounted Secret that may not exist.
    OptionalFile(VariableName),
    /// The variable is a former name of the setting's variable, and is still read.
    Older(VariableName),
}

/// The form of a value. It determines how the parser reads the flag of a setting, and which placeholder help prints for
/// the value. The function in the setting's row parses the value itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A Go boolean. A flag without a value is true and never takes the next word.
    Boolean,
    /// Any text. The word in the variant says what the text names, e.g. `NAMESPACE`, and help prints this word.
    Text(&'static str),
    /// A Go duration: `300ms`, `1m30s`, `1.5h`.
    Duration,
    /// A whole number.
    Integer,
    /// A number, which may have a fraction.
    Number,
    Choice(&'static [&'static str]),
    /// A list separated by commas. The word in the variant says what an item names, e.g. `CIDR`. The flag may be
    /// given several times.
    List(&'static str),
    Path,
    Url,
}

named! {
    /// The commands that have settings.
    Command {
        /// The daemon, and `run --once`.
        Run = "run",
        /// Shows how the daemon would read all its settings.
        Config = "config",
        NodeList = "node list",
        NodeInspect = "node inspect",
        NodeSync = "node sync",
        LbList = "lb list",
        LbInspect = "lb inspect",
        LbSync = "lb sync",
        LbAdopt = "lb adopt",
        LbRelease = "lb release",
        RouteList = "route list",
        RouteSync = "route sync",
        /// Checks everything and writes nothing.
        Doctor = "doctor",
        /// Shows on one screen what `doctor` finds.
        Status = "status",
        /// Checks manifests without a cluster.
        Lint = "lint",
    }
}

named! {
    /// A heading in `--help`. The variants are in the order of the headings.
    Group {
        Hetzner = "Hetzner Cloud",
        Cluster = "Kubernetes cluster",
        Controllers = "Controllers",
        LeaderElection = "Leader election",
        Output = "Output and logging",
    }
}

/// Examples of values. The key is the word in [`ValueKind::Text`] or [`ValueKind::List`].
const EXAMPLES: [(&str, &str); 14] = [
    ("CIDR", "10.244.0.0/16"),
    ("CLASS", "hetzner"),
    ("COLUMN", "name"),
    ("CONTEXT", "production"),
    ("DOMAIN", "example.com"),
    ("FILE", "service.yaml"),
    ("ID|NAME", "cluster-network"),
    ("LOCATION", "fsn1"),
    ("NAMESPACE", "shop"),
    ("NAMESPACE/deployment/NAME", "kube-system/deployment/ccm-from-scratch"),
    ("PREFIX", "node.example.com/"),
    ("SELECTOR", "app=web"),
    ("TYPE", "lb11"),
    ("ZONE", "eu-central"),
];

/// The prefixes that the name of a variable has before the name of its setting.
const PREFIXES: [&str; 3] = ["HCLOUD_INSTANCES_", "HCLOUD_", "CCM_"];

impl Setting {
    /// Returns a value that the setting may have.
    pub fn example(&self) -> &'static str {
        match (self.kind, self.default) {
            (ValueKind::Choice(words), _) => words.last().copied().unwrap_or_default(),
            (ValueKind::Boolean, Some("true")) => "false",
            (ValueKind::Boolean, _) => "true",
            (_, Some(default)) if !default.is_empty() => default,
            (ValueKind::Text(what) | ValueKind::List(what), _) => {
                let example = EXAMPLES.iter().find(|(name, _)| *name == what);
                example.map_or(what, |(_, example)| example)
            }
            (ValueKind::Duration, _) => "30s",
            (ValueKind::Integer | ValueKind::Number, _) => "1",
            (ValueKind::Path, _) => "/etc/ccm/file",
            (ValueKind::Url, _) => "https://example.com",
        }
    }

    /// Returns a setting with default values for the fields that rows leave out.
    pub(super) const fn of(group: Group, commands: &'static [Command]) -> Setting {
        Setting {
            called: "",
            flags: &[],
            short: None,
            variables: &[],
            kind: ValueKind::Boolean,
            default: None,
            help: "",
            commands,
            group,
            secret: false,
            hidden: false,
            own: false,
        }
    }

    /// Returns the name of the setting: `called` when this field is set, else the first flag. A setting without a flag
    /// gets its name from its first variable, e.g. `debug` from `HCLOUD_DEBUG`.
    pub fn name(&self) -> String {
        match (self.called, self.flags, self.variables) {
            ("", [flag, ..], _) => (*flag).to_owned(),
            ("", [], [variable, ..]) => {
                let (mut prefixes, name) = (PREFIXES.iter(), variable.name());
                let short = prefixes.find_map(|prefix| name.strip_prefix(prefix));
                short.unwrap_or(name).to_ascii_lowercase().replace('_', "-")
            }
            (called, ..) => called.to_owned(),
        }
    }

    /// Returns the name that messages use: the variable, or the flag when there is no variable.
    pub fn written_name(&self) -> String {
        let variable = self.variables.first().map(|variable| variable.name().to_owned());
        let name = variable.or_else(|| self.flag_names().next());
        name.unwrap_or_default()
    }

    /// Returns the flags with their dashes, e.g. `--output` and `-o`.
    pub fn flag_names(&self) -> impl Iterator<Item = String> {
        let long = self.flags.iter().map(|flag| format!("--{flag}"));
        long.chain(self.short.map(|letter| format!("-{letter}")))
    }

    /// Returns the flags with their dashes, and the variables.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.flag_names().chain(self.variables.iter().map(|variable| variable.name().to_owned()))
    }

    pub fn takes_value(&self) -> bool {
        self.kind != ValueKind::Boolean
    }

    /// Whether the command takes the setting. `config`, `doctor` and `status` take every setting that the daemon takes.
    pub fn is_for(&self, command: Command) -> bool {
        let takes = |command| self.commands.contains(&command);
        takes(command) || (command.reads_daemon_arguments() && takes(Command::Run))
    }

    /// Whether the setting is listed in the command's `--help`.
    pub fn is_in_help_of(&self, command: Command) -> bool {
        let is_its_own = match command {
            Command::Config => self.is_of_config(),
            command => self.commands.contains(&command),
        };
        !self.hidden && is_its_own
    }

    /// Whether `--settings-from` takes the setting over. The person who runs the command decides how both APIs are
    /// reached, what is printed, and whether anything is written. URLs are never taken over, because a token must not
    /// be sent to an address that an object of the cluster contains.
    pub(super) fn is_inherited(&self) -> bool {
        let is_about_the_work = matches!(self.group, Group::Hetzner | Group::Controllers);
        is_about_the_work
            && !self.own
            && !self.secret
            && !self.hidden
            && self.kind != ValueKind::Url
    }

    /// Whether only `config` takes the setting, and the daemon does not.
    pub fn is_of_config(&self) -> bool {
        self.commands.contains(&Command::Config) && !self.commands.contains(&Command::Run)
    }
}

impl Variable {
    pub fn name(self) -> &'static str {
        match self {
            Variable::Value(name)
            | Variable::File(name)
            | Variable::OptionalFile(name)
            | Variable::Older(name) => name.text(),
        }
    }
}

impl ValueKind {
    /// Returns the placeholder that help prints for the value, e.g. `DURATION`.
    pub fn value_name(self) -> String {
        match self {
            ValueKind::Boolean => "true|false".to_owned(),
            ValueKind::Text(name) => name.to_owned(),
            ValueKind::Duration => "DURATION".to_owned(),
            ValueKind::Integer => "N".to_owned(),
            ValueKind::Number => "NUMBER".to_owned(),
            ValueKind::Choice(words) => words.join("|"),
            ValueKind::List(name) => format!("{name},…"),
            ValueKind::Path => "PATH".to_owned(),
            ValueKind::Url => "URL".to_owned(),
        }
    }
}

impl Command {
    /// Whether the command writes for the user who runs it. The daemon's command `run` is not among these commands.
    pub fn writes(self) -> bool {
        use Command::{LbAdopt, LbRelease, LbSync, NodeSync, RouteSync};
        matches!(self, NodeSync | LbSync | LbAdopt | LbRelease | RouteSync)
    }

    /// Whether the command reads the daemon's arguments, which may be those of hcloud-cloud-controller-manager. Such a
    /// command accepts that program's flags, and refuses words that are no flags.
    pub(super) fn reads_daemon_arguments(self) -> bool {
        use Command::{Config, Doctor, Run, Status};
        matches!(self, Run | Config | Doctor | Status)
    }
}
