//! The fields of `exec`: which program, with what, and what it gets to know.

use super::super::access::ConfigError;
use super::super::entry::{Entry, a, check_names, flag_of, shown, text_of};
use super::super::redact::without_secrets;
use crate::http::{Secret, redact};
use serde_json::json;
use serde_yaml::Value;
use std::cmp::Reverse;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const FIELDS: &[&str] = &[
    "apiVersion",
    "command",
    "args",
    "env",
    "installHint",
    "provideClusterInfo",
    "interactiveMode",
];

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// A shorter one keeps nothing secret; without it the rest would be hard to read.
const SHORTEST_SECRET: usize = 3;

/// One as long is taken out also where it is a part of a word.
const SECRET_ANYWHERE: usize = 8;

/// Of what a program says, so much is shown.
const SAID_CHARACTERS: usize = 200;

/// What to run, and how.
#[derive(PartialEq, Eq)]
pub(super) struct Program {
    /// As it is written in the kubeconfig, for messages.
    name: String,
    pub(super) path: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    version: &'static str,
}

impl Program {
    pub(super) fn of(
        user: &Entry,
        cluster_info: impl FnOnce() -> Result<serde_json::Value, ConfigError>,
    ) -> Result<Option<Program>, ConfigError> {
        let fields = match user.fields.get("exec") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Mapping(fields)) => fields,
            Some(other) => {
                return Err(user.error(
                    "exec",
                    format_args!("must be a mapping of fields, and is {}", a(other)),
                ));
            }
        };
        let error = |field: &str, why: String| user.error(&format!("exec: {field}"), why);
        let text = |field: &str| text_of(fields.get(field)).map_err(|why| error(field, why));
        check_names(fields, FIELDS, &[]).map_err(|(field, why)| error(&field, why))?;
        let version = version(text("apiVersion")?).map_err(|why| error("apiVersion", why))?;
        check_interactive(text("interactiveMode")?, version)
            .map_err(|why| error("interactiveMode", why))?;
        let args = args(fields.get("args")).map_err(|why| error("args", why))?;
        let mut env = env(fields.get("env")).map_err(|why| error("env", why))?;
        let mut spec = json!({"interactive": false});
        let is_provided = flag_of(fields.get("provideClusterInfo"));
        if is_provided.map_err(|why| error("provideClusterInfo", why))? {
            spec["cluster"] = cluster_info()?;
        }
        let info = json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec});
        env.push(("KUBERNETES_EXEC_INFO".into(), info.to_string()));
        let Some(name) = text("command")? else {
            return Err(error("command", "not set; name the program to run".into()));
        };
        let hint = text("installHint")?;
        let path = find(user, name).map_err(|why| match hint {
            None => error("command", why),
            Some(hint) => error(
                "command",
                format!("{why}; {}", one_short_line(&without_secrets(hint))),
            ),
        })?;
        Ok(Some(Program {
            name: name.to_owned(),
            path,
            args,
            env,
            version,
        }))
    }

    /// Its name for messages, in quotes.
    pub(super) fn shown(&self) -> String {
        shown(&self.name)
    }

    /// The `apiVersion` that it has to answer with.
    pub(super) fn version(&self) -> &'static str {
        self.version
    }

    /// What it printed for people, without what it was given or made: either may be secret.
    pub(super) fn redacted(&self, stderr: &str, made: &[Secret]) -> String {
        let values = self.env.iter().map(|(_, value)| value.as_str());
        let mut given: Vec<&str> = values
            .chain(self.args.iter().filter_map(|arg| value_of(arg)))
            .map(str::trim)
            .filter(|value| value.len() >= SHORTEST_SECRET)
            .collect();
        // What holds another one is taken out first, or its rest would be left.
        given.sort_by_key(|value| Reverse(value.len()));
        let text = redact(stderr, made);
        let text = given.iter().fold(text, |text, value| without(&text, value));
        one_short_line(&without_secrets(&text))
    }
}

/// What another program says: on one line, and not longer than [`SAID_CHARACTERS`].
fn one_short_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SAID_CHARACTERS) {
        None => line,
        Some(_) => {
            let begun: String = line.chars().take(SAID_CHARACTERS - 1).collect();
            format!("{}…", begun.trim_end())
        }
    }
}

/// Of an argument, what may be secret: all of it but the name of an option.
fn value_of(arg: &str) -> Option<&str> {
    match (arg.starts_with('-'), arg.split_once('=')) {
        (true, Some((_, value))) => Some(value),
        (true, None) if arg.starts_with("--") => None,
        // `-p` and its value in one word.
        (true, None) => arg.get(2..),
        // `key=value`: the value is taken out, so the whole is too.
        (false, Some((_, value))) if !value.is_empty() => Some(value),
        (false, _) => Some(arg),
    }
}

/// A short value is taken out where it is a word: `1` and `dev` are parts of many others.
fn without(text: &str, value: &str) -> String {
    let is_free = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(value) {
        let (before, after) = (&rest[..at], &rest[at + value.len()..]);
        // What was shown already ends in what stood before.
        let is_word = is_free(before.chars().next_back().or(shown.chars().next_back()))
            && is_free(after.chars().next());
        shown += before;
        shown += match is_word || value.len() >= SECRET_ANYWHERE {
            true => "[redacted]",
            false => value,
        };
        rest = after;
    }
    shown + rest
}

fn version(text: Option<&str>) -> Result<&'static str, String> {
    match text {
        Some(V1) => Ok(V1),
        Some(V1BETA1) => Ok(V1BETA1),
        None => Err(format!(
            "not set; write {V1} or {V1BETA1}, whichever the program speaks"
        )),
        Some(other) => Err(format!(
            "{} is not supported; write {V1} or {V1BETA1}",
            shown(other)
        )),
    }
}

/// There is never a standard input.
fn check_interactive(mode: Option<&str>, version: &str) -> Result<(), String> {
    match mode {
        Some("Never" | "IfAvailable") => Ok(()),
        None if version == V1BETA1 => Ok(()),
        None => Err("not set; write Never or IfAvailable".into()),
        Some("Always") => Err(
            "is Always, but there is no terminal here; let the program work without, and write Never or IfAvailable"
                .into(),
        ),
        Some(other) => Err(format!("{} is unknown; write Never or IfAvailable", shown(other))),
    }
}

fn args(value: Option<&Value>) -> Result<Vec<String>, String> {
    let arg = |(index, value): (usize, &Value)| match value {
        Value::String(text) => plain(text).map_err(|why| format!("[{index}] {why}")),
        other => Err(format!(
            "[{index}] must be text, and is {}; put it in quotes",
            a(other)
        )),
    };
    items(value)?.iter().enumerate().map(arg).collect()
}

fn env(value: Option<&Value>) -> Result<Vec<(String, String)>, String> {
    let variable = |(index, value): (usize, &Value)| {
        let field = |field: &str| {
            let text = text_of(value.get(field)).and_then(|text| plain(text.unwrap_or_default()));
            text.map_err(|why| format!("[{index}]: {field}: {why}"))
        };
        let name = field("name")?;
        if name.is_empty() || name.contains('=') {
            return Err(format!(
                "[{index}]: name: must be the name of an environment variable"
            ));
        }
        Ok((name, field("value")?))
    };
    items(value)?.iter().enumerate().map(variable).collect()
}

fn items(value: Option<&Value>) -> Result<&[Value], String> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Sequence(items)) => Ok(items),
        Some(other) => Err(format!("must be a list, and is {}", a(other))),
    }
}

/// No program can be given a zero byte.
fn plain(text: &str) -> Result<String, String> {
    match text.contains('\0') {
        true => Err("has a zero byte in it".into()),
        false => Ok(text.to_owned()),
    }
}

/// A name alone is looked for in `$PATH`; a path is relative to the kubeconfig.
fn find(user: &Entry, command: &str) -> Result<PathBuf, String> {
    let name = shown(command);
    plain(command)?;
    if command.contains('/') {
        let path = user.path(command);
        return match path.is_file() {
            true if is_executable(&path) => Ok(path),
            true => Err(format!("{name} may not be executed; chmod +x it")),
            false => Err(format!(
                "{name}: there is no such program; correct the path"
            )),
        };
    }
    // A relative folder in $PATH is wherever we happen to be: nothing is run from there.
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(|path| is_executable(path))
        .ok_or_else(|| format!("there is no program {name} in PATH; install it or write its path"))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
