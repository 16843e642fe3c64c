//! Where a desired value comes from: every one of them can say it.

use serde::{Serialize, Serializer};
use std::fmt;

/// A value and what asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sourced<T> {
    pub value: T,
    pub source: Source,
}

impl<T> Sourced<T> {
    pub fn new(value: T, source: Source) -> Sourced<T> {
        Sourced { value, source }
    }
}

/// What asks for a value. Prints as one phrase, in tables and JSON alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An annotation of the object.
    Annotation(String),
    /// A label of the object.
    Label(String),
    /// An environment variable.
    Environment(String),
    /// A command-line flag.
    Flag(String),
    /// Unset; the setting whose default it is.
    Default(String),
    /// A field of the cloud's server, and the rule or setting that chose it.
    Server { field: &'static str, because: Option<String> },
    /// What is on the object already is kept.
    Kept,
    /// A rule of ours or of Kubernetes.
    Rule(&'static str),
}

impl Source {
    pub fn server(field: &'static str) -> Source {
        Source::Server { field, because: None }
    }

    pub fn server_because(field: &'static str, because: impl fmt::Display) -> Source {
        Source::Server { field, because: Some(because.to_string()) }
    }

    /// The setting or field alone, as a user writes it: `--flag`, `VARIABLE`; `default` where it is unset.
    pub fn name(&self) -> &str {
        match self {
            Source::Annotation(name)
            | Source::Label(name)
            | Source::Environment(name)
            | Source::Flag(name) => name,
            Source::Default(_) => "default",
            Source::Server { field, .. } => field,
            Source::Kept => "kept",
            Source::Rule(rule) => rule,
        }
    }

    /// An operator or the owner of the object asks for it.
    pub fn is_set(&self) -> bool {
        use Source::{Annotation, Environment, Flag, Label};
        matches!(self, Annotation(_) | Label(_) | Environment(_) | Flag(_))
    }

    pub fn is_default(&self) -> bool {
        self.setting().is_some()
    }

    /// Of a value that is unset: the setting whose default it is.
    pub fn setting(&self) -> Option<&str> {
        match self {
            Source::Default(setting) => Some(setting),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Annotation(key) => write!(f, "annotation {key}"),
            Source::Label(key) => write!(f, "label {key}"),
            Source::Environment(name) => write!(f, "environment {name}"),
            Source::Flag(name) => write!(f, "flag {name}"),
            Source::Default(setting) => write!(f, "default of {setting}"),
            Source::Server { field, because: None } => write!(f, "server {field}"),
            Source::Server { field, because: Some(because) } => {
                write!(f, "server {field}; {because}")
            }
            Source::Kept => f.write_str("kept from the node"),
            Source::Rule(rule) => write!(f, "rule: {rule}"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
