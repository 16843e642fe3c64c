//! The source of a desired value, e.g. an annotation or a flag. It is displayed together with the value.

use serde::{Serialize, Serializer};
use std::fmt;

/// A value and its source, e.g. the annotation or the flag that sets it.
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

/// The source of a value, e.g. the annotation that sets it. Tables and JSON show it as a short text such as `flag
/// --cluster-name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An annotation of the Service or node for which the value is used. The text is the key of the annotation.
    Annotation(String),
    /// An annotation of a Namespace. The value is used for the Services in it. The text is the key of the annotation and
    /// the name of the Namespace.
    Namespace(String),
    /// A label of the node for which the value is used. The text is the key of the label.
    Label(String),
    /// The value of an environment variable. The text is the name of the variable.
    Environment(String),
    /// A command-line flag. The text is its name, e.g. `--cluster-name`.
    Flag(String),
    /// The default of a setting that is unset. The text is the name of the setting.
    Default(String),
    /// A field of the server in the cloud's API, e.g. `private_net.ip`. `because` is the rule or setting that chose
    /// this field, or `None` when this field is always used.
    Server { field: &'static str, because: Option<String> },
    /// A field of the Service. The text is its path, e.g. `spec.loadBalancerIP`.
    Field(&'static str),
    /// The value comes from the object itself, which already has it and keeps it.
    Kept,
    /// The value follows from a rule of this program or of Kubernetes. The text names the rule.
    Rule(&'static str),
}

impl Source {
    pub fn server(field: &'static str) -> Source {
        Source::Server { field, because: None }
    }

    pub fn server_because(field: &'static str, because: impl fmt::Display) -> Source {
        Source::Server { field, because: Some(because.to_string()) }
    }

    /// Returns the name of the annotation, label, variable, flag or field, e.g. `--flag` or `VARIABLE`, without the
    /// kind of the source. The result for a default is `default`.
    pub fn name(&self) -> &str {
        match self {
            Source::Annotation(name)
            | Source::Namespace(name)
            | Source::Label(name)
            | Source::Environment(name)
            | Source::Flag(name) => name,
            Source::Default(_) => "default",
            Source::Server { field, .. } => field,
            Source::Kept => "kept",
            Source::Field(name) | Source::Rule(name) => name,
        }
    }

    /// Returns a copy of the source. When it is an annotation or a variable, the text `detail` follows its name in
    /// brackets.
    pub fn with_detail(&self, detail: &str) -> Source {
        match self {
            Source::Annotation(name) => Source::Annotation(format!("{name} ({detail})")),
            Source::Namespace(name) => Source::Namespace(format!("{name} ({detail})")),
            Source::Environment(name) => Source::Environment(format!("{name} ({detail})")),
            other => other.clone(),
        }
    }

    /// Whether a person has set the value, in an annotation, a label, a variable or a flag.
    pub fn is_set(&self) -> bool {
        use Source::{Annotation, Environment, Flag, Label, Namespace};
        matches!(self, Annotation(_) | Namespace(_) | Label(_) | Environment(_) | Flag(_))
    }

    pub fn is_default(&self) -> bool {
        self.setting().is_some()
    }

    /// When the value is the default of a setting, returns the name of this setting. `None` when the value has another
    /// source, e.g. an annotation.
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
            Source::Annotation(key) | Source::Namespace(key) => write!(f, "annotation {key}"),
            Source::Label(key) => write!(f, "label {key}"),
            Source::Environment(name) => write!(f, "environment {name}"),
            Source::Flag(name) => write!(f, "flag {name}"),
            Source::Default(setting) => write!(f, "default of {setting}"),
            Source::Server { field, because: None } => write!(f, "server {field}"),
            Source::Server { field, because: Some(because) } => {
                write!(f, "server {field}; {because}")
            }
            Source::Kept => f.write_str("kept from the node"),
            Source::Field(path) => write!(f, "field {path}"),
            Source::Rule(rule) => write!(f, "rule: {rule}"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
