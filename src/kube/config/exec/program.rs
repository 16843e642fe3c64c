//! The fields of `exec`: which program, with what, and what it gets to know; and how it is run: what it prints and how
//! long it takes are bounded, and nothing of it stays behind when we end it.

use super::super::entry::{Entry, Exec, User, may_be_secret, shown, typed};
use serde_json::json;
use serde_yaml::Mapping;
use socket2::SockRef;
use std::ffi::OsStr;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// Credentials have some kilobytes.
const STDOUT_LIMIT_BYTES: usize = 1 << 20;

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
    exec: Exec,
    /// `KUBERNETES_EXEC_INFO`.
    info: String,
    /// The `apiVersion` that it has to answer with.
    pub(super) version: &'static str,
}

impl Program {
    pub(super) fn of(
        user: &Entry<User>,
        exec: &Mapping,
        cluster_info: impl FnOnce() -> Result<serde_json::Value, String>,
    ) -> Result<Program, String> {
        let error = |field: &str, why: &str| user.error(&format!("exec.{field}"), why);
        let exec: Exec = typed(exec).map_err(|(field, why)| error(&field, &why))?;
        let version = version(exec.api_version.as_deref());
        let version = version.map_err(|why| error("apiVersion", &why))?;
        check_interactive(exec.interactive_mode.as_deref(), version)
            .map_err(|why| error("interactiveMode", &why))?;
        let mut spec = json!({"interactive": false});
        if exec.provide_cluster_info {
            spec["cluster"] = cluster_info()?;
        }
        let info = json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec});
        let Some(name) = exec.command.as_deref() else {
            return Err(error("command", "not set; name the program to run"));
        };
        let path = find(user, name).map_err(|why| match &exec.install_hint {
            Some(hint) if !may_be_secret(hint) => {
                let words: Vec<&str> = hint.split_whitespace().collect();
                error("command", &format!("{why}; {}", words.join(" ")))
            }
            _ => error("command", &why),
        })?;
        Ok(Program {
            name: shown(name),
            path,
            exec,
            info: info.to_string(),
            version,
        })
    }

    /// What it printed on its standard output. The error is for people.
    pub(super) fn run(&self, time_limit: Duration) -> Result<Vec<u8>, String> {
        let name = &self.name;
        let variables = self.exec.env.iter();
        let mut child = Command::new(&self.path)
            .args(self.exec.args.iter().map(|arg| &**arg))
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| !is_of_cloud(name)))
            .envs(variables.map(|one| (&*one.name, &*one.value)))
            .env("KUBERNETES_EXEC_INFO", &self.info)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // It may hold a secret: a person at a terminal reads it, and no log keeps it.
            .stderr(match std::io::stderr().is_terminal() {
                true => Stdio::inherit(),
                false => Stdio::null(),
            })
            // A group of its own: what it has started itself is ended with it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{name} can't be started: {error}"))?;
        let begun = Instant::now();
        // A pipe that can only be waited for is none.
        let mut pipe = child.stdout.take();
        pipe = pipe.filter(|pipe| SockRef::from(pipe).set_nonblocking(true).is_ok());
        let mut printed = Vec::new();
        let mut buffer = vec![0; PIPE_BYTES];
        // It is read meanwhile, so that it does not wait for us to read. Its end counts, and not that of the pipe: a
        // child that it left behind may hold it open for ever.
        let status = loop {
            // Checked before the reading: what it printed before its end is in the pipe by then.
            let status = child.try_wait();
            let read = pipe.as_mut().map(|pipe| pipe.read(&mut buffer));
            let count = read.and_then(Result::ok).unwrap_or(0);
            let room = (STDOUT_LIMIT_BYTES + 1).saturating_sub(printed.len());
            printed.extend(&buffer[..count.min(room)]);
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
            if count == 0 {
                std::thread::sleep(POLL);
            }
        };
        match status.success() {
            false => Err(format!(
                "{name} failed ({status}); run it by hand to read why"
            )),
            true if printed.len() > STDOUT_LIMIT_BYTES => Err(format!(
                "{name} printed more than {} MiB",
                STDOUT_LIMIT_BYTES >> 20
            )),
            true => Ok(printed),
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

/// A name alone is looked for in `$PATH`; a path is relative to the kubeconfig.
fn find(user: &Entry<User>, command: &str) -> Result<PathBuf, String> {
    let name = shown(command);
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
