//! The data of one setting. They are the fields of a row in the table of settings.

use crate::provider::variables::VariableName;
use crate::text::named;

/// A setting, with all data about it that parsing, `--help` and `ccm help settings` use.
#[derive(Debug)]
pub struct Setting {
    /// The name of the setting in `ccm help settings` and `ccm config`. It is empty when the name follows from a flag
    /// or variable.
    pub called: &'static str,
    /// The long flags without dashes. The first flag is the main one, and the others are aliases.
    pub flags: &'static [&'static str],
    pub short: Option<char>,
    /// The environment variables of the setting. The first variable that is set and not empty gives the value.
    pub variables: &'static [Variable],
    pub kind: ValueKind,
    /// The default as text, which is parsed like the value of a flag. `None` when the setting has no default.
    pub default: Option<&'static str>,
    /// The commands that accept the flags of the setting and read its variables.
    pub commands: &'static [Command],
    pub group: Group,
    /// Whether the value is secret. A secret value is never printed.
    pub secret: bool,
    /// Whether the setting is left out of `--help` and `ccm help settings`.
    pub hidden: bool,
    /// Whether only the user of a command decides about the setting. `--settings-from` then does not apply to it, so
    /// the daemon's value is never used.
    pub own: bool,
}

/// A flag of a command line with the text of its value, which is not parsed yet.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) setting: &'static Setting,
    /// The name of the flag as the user wrote it, with its dashes.
    pub(super) name: String,
    pub(super) text: String,
}

/// An environment variable from which a setting is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// The environment variable contains the value of the setting itself, and not the path of a file.
    Value(VariableName),
    /// The variable contains the path of a file with the value.
    File(VariableName),
    /// The variable contains the path of a file with the value. The setting is unset when the file is missing or empty,
    /// e.g. because a mounted Secret does not exist.
    OptionalFile(VariableName),
    /// The variable contains the value itself. Its name is an older name of another variable, and still works.
    Older(VariableName),
}

/// The form of a setting's value. It decides whether a flag takes the next word as its value, and which placeholder the
/// help shows. It does not decide how the value is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `true` or `false`, in any form that Go accepts. A flag without `=` is true and never takes the next word as its
    /// value.
    Boolean,
    /// Any text. The word in this variant, e.g. `NAMESPACE`, is the placeholder in the help.
    Text(&'static str),
    /// A Go duration: `300ms`, `1m30s`, `1.5h`.
    Duration,
    /// A whole number.
    Integer,
    /// A number that can have a fraction.
    Number,
    Choice(&'static [&'static str]),
    /// A list separated by commas. The word in this variant, e.g. `CIDR`, is the placeholder for an item in the help. A
    /// user can give the flag several times.
    List(&'static str),
    Path,
    Url,
}

named! {
    /// A command that reads settings.
    Command {
        /// The daemon. With `--once` it runs its controllers only once.
        Run = "run",
        /// The command `ccm config`, which shows the settings that the daemon would have with the same flags and
        /// variables.
        Config = "config",
        NodeList = "node list",
        NodeInspect = "node inspect",
        NodeSync = "node sync",
        NodeRelabel = "node relabel",
        LbList = "lb list",
        LbInspect = "lb inspect",
        LbSync = "lb sync",
        LbAdopt = "lb adopt",
        LbRelease = "lb release",
        LbReplace = "lb replace",
        RouteList = "route list",
        RouteSync = "route sync",
        /// Checks the cluster, the cloud and the settings, and writes nothing.
        Doctor = "doctor",
        /// Shows the state of the cluster and the problems that `doctor` finds, on one screen.
        Status = "status",
        /// Checks manifest files of Services without a cluster.
        Lint = "lint",
    }
}

named! {
    /// A heading in `--help`, under which settings are listed. The headings are printed in the order of the variants.
    Group {
        Hetzner = "Hetzner Cloud",
        Cluster = "Kubernetes cluster",
        Controllers = "Controllers",
        LeaderElection = "Leader election",
        Output = "Output and logging",
    }
}

/// An example value for each placeholder of [`ValueKind::Text`] and [`ValueKind::List`]. The first text is the
/// placeholder.
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

/// When the name of a setting is derived from the name of its environment variable, the first of these prefixes with
/// which the variable's name begins is removed.
const PREFIXES: [&str; 3] = ["HCLOUD_INSTANCES_", "HCLOUD_", "CCM_"];

impl Setting {
    /// Returns an example of a value for the setting.
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

    /// Returns a setting that has only its group (the heading in `--help`) and its commands. The row of the setting in
    /// the table adds the other data.
    pub(super) const fn of(group: Group, commands: &'static [Command]) -> Setting {
        Setting {
            called: "",
            flags: &[],
            short: None,
            variables: &[],
            kind: ValueKind::Boolean,
            default: None,
            commands,
            group,
            secret: false,
            hidden: false,
            own: false,
        }
    }

    /// Returns the name of the setting. This is the field `called` or, when that is empty, the first flag. Without a
    /// flag the name comes from the first variable, e.g. `debug` from `HCLOUD_DEBUG`.
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

    /// Returns the name of the setting for messages. This is the first variable or, without a variable, the first flag.
    pub fn written_name(&self) -> String {
        let variable = self.variables.first().map(|variable| variable.name().to_owned());
        let name = variable.or_else(|| self.flag_names().next());
        name.unwrap_or_default()
    }

    /// Returns all flags of the setting with their dashes, e.g. `--output` and `-o`.
    pub fn flag_names(&self) -> impl Iterator<Item = String> {
        let long = self.flags.iter().map(|flag| format!("--{flag}"));
        long.chain(self.short.map(|letter| format!("-{letter}")))
    }

    /// Returns all flags of the setting with their dashes, and all its variables.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.flag_names().chain(self.variables.iter().map(|variable| variable.name().to_owned()))
    }

    pub fn takes_value(&self) -> bool {
        self.kind != ValueKind::Boolean
    }

    /// Whether the command reads the setting. `config`, `doctor` and `status` read their own settings and those of the
    /// daemon.
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

    /// Whether `--settings-from` applies to the setting, so that a command uses the daemon's value. For settings about
    /// the access to the APIs, about the output, and about whether anything is written, the result is `false`, because
    /// the user of the command decides about them. A URL is never taken from the daemon's settings either. Otherwise an
    /// object of the cluster could name the address to which the user's token is sent.
    pub(super) fn is_inherited(&self) -> bool {
        let is_about_the_work = matches!(self.group, Group::Hetzner | Group::Controllers);
        is_about_the_work
            && !self.own
            && !self.secret
            && !self.hidden
            && self.kind != ValueKind::Url
    }

    /// Whether the command `config` reads the setting, but the daemon does not.
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
    /// Whether this is a command by which a user changes the cluster or the cloud, e.g. `lb sync`. The result is
    /// `false` for the daemon (`run`).
    pub fn writes(self) -> bool {
        use Command::{LbAdopt, LbRelease, LbReplace, LbSync, NodeRelabel, NodeSync, RouteSync};
        let of_lb = matches!(self, LbSync | LbAdopt | LbRelease | LbReplace);
        of_lb || matches!(self, NodeSync | NodeRelabel | RouteSync)
    }

    /// Whether the command reads the arguments of the daemon, which may have been written for
    /// hcloud-cloud-controller-manager. Such a command accepts the flags of that program, and accepts no words that are
    /// not flags.
    pub(super) fn reads_daemon_arguments(self) -> bool {
        use Command::{Config, Doctor, Run, Status};
        matches!(self, Run | Config | Doctor | Status)
    }
}
