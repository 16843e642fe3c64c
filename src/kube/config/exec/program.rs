//! The fields of `exec`: which program, with what, and what it gets to know; and how it is run: what it prints and how
//! long it takes are bounded, and nothing of it stays behind when we end it.

use super::super::access::ConfigError;
use super::super::entry::{Entry, a, check_names, flag_of, may_be_secret, shown, text_of};
use crate::text;
use serde_json::json;
use serde_yaml::Value;
use socket2::SockRef;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// Credentials have some kilobytes.
const STDOUT_LIMIT_BYTES: usize = 1 << 20;

/// Of its standard error so much is read, and so much is shown.
const STDERR_LIMIT_BYTES: usize = 64 << 10;
const COMPLAINT_CHARACTERS: usize = 200;

/// What a word has in it that comes before a secret.
const SECRET_NAMES: [&str; 7] = [
    "authorization",
    "passw",
    "passphrase",
    "token",
    "secret",
    "key",
    "credential",
];

/// A shorter argument, or value of a variable, is no secret.
const GIVEN_CHARACTERS: usize = 4;

/// How often it is checked whether it has ended or printed something.
const POLL: Duration = Duration::from_millis(5);

/// What a pipe holds on Linux.
const PIPE_BYTES: usize = 64 << 10;

/// What to run, and how.
#[derive(PartialEq, Eq)]
pub(super) struct Program {
    /// As it is written in the kubeconfig, for messages.
    name: String,
    path: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// The `apiVersion` that it has to answer with.
    pub(super) version: &'static str,
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
        let path = find(user, name).map_err(|why| match text("installHint") {
            Ok(Some(hint)) if !may_be_secret(hint) => {
                let words: Vec<&str> = hint.split_whitespace().collect();
                error("command", format!("{why}; {}", words.join(" ")))
            }
            _ => error("command", why),
        })?;
        Ok(Some(Program {
            name: name.to_owned(),
            path,
            args,
            env,
            version,
        }))
    }

    /// What it printed on its standard output. The error is for people, with what it said on its standard error.
    pub(super) fn run(&self, time_limit: Duration) -> Result<Vec<u8>, String> {
        let name = shown(&self.name);
        let mut child = Command::new(&self.path)
            .args(&self.args)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| !is_of_cloud(name)))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: what it has started itself is ended with it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{name} can't be started: {error}"))?;
        let begun = Instant::now();
        // A pipe that can only be waited for is none.
        let mut stdout = child.stdout.take();
        stdout = stdout.filter(|pipe| SockRef::from(pipe).set_nonblocking(true).is_ok());
        let mut stderr = child.stderr.take();
        stderr = stderr.filter(|pipe| SockRef::from(pipe).set_nonblocking(true).is_ok());
        let (mut printed, mut said) = (Vec::new(), Vec::new());
        // It is read meanwhile, so that it does not wait for us to read. Its end counts, and not that of the pipe: a
        // child that it left behind may hold it open for ever.
        let status = loop {
            // Checked before the reading: what it printed before its end is in the pipe by then.
            let status = child.try_wait();
            let has_read = read_available(&mut stdout, &mut printed, STDOUT_LIMIT_BYTES)
                | read_available(&mut stderr, &mut said, STDERR_LIMIT_BYTES);
            match status {
                Ok(None) if begun.elapsed() < time_limit => {}
                Ok(Some(status)) => break status,
                outcome => {
                    end_group(&child);
                    let ended = outcome.and_then(|_| child.wait());
                    ended.map_err(|error| format!("{name}: {error}"))?;
                    return Err(format!(
                        "{name} was not done within {} s and was stopped; does it wait for input? run it by hand, \
                         without a standard input",
                        time_limit.as_secs_f32()
                    ));
                }
            }
            if !has_read {
                std::thread::sleep(POLL);
            }
        };
        match status.success() {
            false => Err(format!(
                "{name} failed ({status}){}; run it by hand",
                match printed.is_empty() {
                    true => self.complaint(&said),
                    // It may say there what it printed.
                    false => String::new(),
                }
            )),
            true if printed.len() > STDOUT_LIMIT_BYTES => Err(format!(
                "{name} printed more than {} MiB",
                STDOUT_LIMIT_BYTES >> 20
            )),
            true => Ok(printed),
        }
    }
}

impl Program {
    /// What it said, in one line, e.g. ` and said: no such profile`. Not shown is what may be a secret: what the program
    /// was given, the login of a URL, words that look like tokens, and all that follows a word that names a secret.
    fn complaint(&self, said: &[u8]) -> String {
        // The last word may be half a secret.
        let whole = match said.len() > STDERR_LIMIT_BYTES {
            true => said.iter().rposition(u8::is_ascii_whitespace).unwrap_or(0),
            false => said.len(),
        };
        let text = String::from_utf8_lossy(&said[..whole]);
        let args = self.args.iter().flat_map(|arg| arg.split('='));
        let given = args.chain(self.env.iter().map(|(_, value)| value.as_str()));
        let given: Vec<&str> = given.filter(|one| one.len() >= GIVEN_CHARACTERS).collect();
        let mut shown = String::new();
        for word in text.split_whitespace() {
            let lower = word.to_ascii_lowercase();
            let names_secret = SECRET_NAMES.iter().any(|name| lower.contains(name));
            let is_value_next = lower == "bearer"
                || lower.starts_with("-----begin")
                || (names_secret && lower.contains([':', '=']));
            let is_secret = is_value_next
                || may_be_secret(word)
                || word.contains('@')
                || given.iter().any(|given| word.contains(given));
            shown.push_str(if is_secret { " [not shown]" } else { " " });
            if is_value_next {
                break;
            }
            shown.push_str(if is_secret { "" } else { word });
        }
        match shown.trim() {
            "" => " and said nothing about it".to_owned(),
            shown => format!(
                " and said: {}",
                text::cut(&text::one_line(shown), COMPLAINT_CHARACTERS)
            ),
        }
    }
}

/// The token of the project, or of the Robot API, is not for a program of the kubeconfig.
fn is_of_cloud(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"HCLOUD_") || name.starts_with(b"ROBOT_")
}

/// The program, and whatever it has started and did not make a group of its own.
#[allow(unsafe_code)]
fn end_group(child: &Child) {
    let Ok(group) = libc::pid_t::try_from(child.id()) else {
        return;
    };
    // Safety: kill has no preconditions. The program was not waited for yet, so the number is
    // its own and its group's.
    unsafe {
        libc::kill(-group, libc::SIGKILL);
    }
}

/// Reads what is there, and keeps the limit and a byte more at most; was there anything?
fn read_available(pipe: &mut Option<impl Read>, kept: &mut Vec<u8>, limit_bytes: usize) -> bool {
    let Some(open) = pipe else {
        return false;
    };
    let mut buffer = vec![0; PIPE_BYTES];
    match open.read(&mut buffer) {
        Ok(count) if count > 0 => {
            let wanted = (limit_bytes + 1).saturating_sub(kept.len());
            kept.extend(&buffer[..count.min(wanted)]);
            true
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            false
        }
        Ok(_) | Err(_) => {
            *pipe = None;
            false
        }
    }
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
