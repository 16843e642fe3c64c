//! Credential plugins: the `exec` of a user is a program that prints a token or a client certificate
//! (client.authentication.k8s.io).
//!
//! The program runs when a call needs credentials and there are none, shortly before the current credentials expire,
//! and once after each 401. All threads wait for the same run, and all clients of a process share one plugin.

use super::entry::{Exec, KubeconfigEntry, User, may_be_secret, shown, typed};
use crate::http::{self, ClientIdentity, Issuer, Pem, Secret};
use crate::provider::variables::is_about_hetzner;
use crate::provider::{clock, lock};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use serde_yaml::Mapping;
use socket2::SockRef;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Credentials are renewed this long before they expire, or a tenth of their lifetime before, whichever is shorter.
const RENEWED_BEFORE: Duration = Duration::from_secs(60);

/// When the plugin's program has failed, it is not run again for this period, in real time. Otherwise every thread that
/// needs credentials would run the program again. The pause is short enough that the Lease can still be renewed in
/// time.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// A credential plugin: a program, and the credentials that it printed last.
pub(super) struct Plugin {
    /// The name of the plugin's program and the place where it is configured (file and user), for messages.
    place: String,
    program: Program,
    time_limit: Duration,
    /// The current credentials and the last failure. The lock is held while the program of the plugin runs, so that
    /// other threads wait for its result.
    held: Mutex<HeldCredentials>,
}

#[derive(Default)]
struct HeldCredentials {
    /// How many times the plugin's program was run so far.
    runs: u64,
    credentials: Option<PluginCredentials>,
    failure: Option<(Instant, String)>,
}

#[derive(Clone)]
struct PluginCredentials {
    issued: http::Credentials,
    /// When the credentials are renewed. `None` means that they are renewed only after the API server has refused them.
    renew_at: Option<Timestamp>,
    /// When the credentials expire. They are not sent after this time. `None` means never.
    end_at: Option<Timestamp>,
}

/// The credential plugins (field `exec` of a user in a kubeconfig) that this process uses. When several clients need
/// the same plugin, they share it, so that its program runs only once.
static PLUGINS: Mutex<Vec<Weak<Plugin>>> = Mutex::new(Vec::new());

impl Plugin {
    /// Returns a plugin that runs this program for this user of the kubeconfig. When this process already has a plugin
    /// with the same program and user, returns that plugin.
    pub(super) fn of(
        user: &KubeconfigEntry<User>,
        program: Program,
        time_limit: Duration,
    ) -> Arc<Plugin> {
        let place = format!("{}: credential plugin {}", user.place(), program.name);
        let mut plugins = lock(&PLUGINS);
        plugins.retain(|plugin| plugin.strong_count() > 0);
        let same = plugins
            .iter()
            .filter_map(Weak::upgrade)
            .find(|plugin| (&plugin.place, &plugin.program) == (&place, &program));
        same.unwrap_or_else(|| {
            let plugin = Arc::new(Plugin { place, program, time_limit, held: Mutex::default() });
            plugins.push(Arc::downgrade(&plugin));
            plugin
        })
    }

    /// Runs the plugin's program and stores the credentials that it printed, or the failure.
    fn run(&self, held: &mut HeldCredentials) {
        let printed = self.program.run(self.time_limit);
        held.runs += 1;
        match printed.and_then(|printed| parse(&printed, self.program.version, held.runs)) {
            Ok((issued, end_at)) => {
                held.failure = None;
                held.credentials = Some(PluginCredentials {
                    issued,
                    renew_at: end_at.map(|end| end - lead(end)),
                    end_at,
                });
            }
            Err(why) => {
                let why = format!("{} {why}", self.place);
                log::debug!("{why}");
                held.failure = Some((clock::now(), why));
            }
        }
    }
}

impl HeldCredentials {
    /// Returns the credentials, and whether it is time to renew them. Returns `None` when there are no credentials, or
    /// when they have expired at the time `now`.
    fn good(&self, now: Timestamp) -> Option<(http::Credentials, bool)> {
        let credentials = self.credentials.as_ref()?;
        let is_past = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
        (!is_past(credentials.end_at))
            .then(|| (credentials.issued.clone(), is_past(credentials.renew_at)))
    }

    /// Returns why the plugin's program failed, if its last failure happened less than [`PAUSE_AFTER_FAILURE`] ago.
    fn fresh_failure(&self) -> Option<&str> {
        let (at, why) = self.failure.as_ref()?;
        (clock::took(*at) < PAUSE_AFTER_FAILURE).then_some(why)
    }
}

/// Returns how long before their expiry the credentials are renewed. `end` is the time at which they expire.
fn lead(end: Timestamp) -> Duration {
    let life = Duration::try_from(end.duration_since(clock::timestamp())).unwrap_or_default();
    RENEWED_BEFORE.min(life / 10)
}

impl Issuer for Plugin {
    /// Returns the stored credentials. If there are none or if it is time to renew them, the plugin's program is run
    /// first.
    fn current(&self) -> Result<http::Credentials, String> {
        let mut held = lock(&self.held);
        let is_due = held.good(clock::timestamp()).is_none_or(|(_, is_due)| is_due);
        if is_due && held.fresh_failure().is_none() {
            self.run(&mut held);
        }
        match (held.good(clock::timestamp()), &held.failure) {
            (Some((issued, _)), _) => Ok(issued),
            (None, Some((_, why))) => Err(why.clone()),
            (None, None) => Err(format!(
                "{} printed credentials that expired before ccm could use them",
                self.place
            )),
        }
    }

    /// Called after the API server has refused the credentials with this sequence number. If these credentials are
    /// still stored, they are dropped and the plugin's program runs again. If newer credentials are already stored,
    /// nothing is done.
    fn refused(&self, number: u64) {
        let mut held = lock(&self.held);
        let is_refused = |it: &mut PluginCredentials| it.issued.number == number;
        if held.credentials.take_if(is_refused).is_some() {
            self.run(&mut held);
            if let Some(why) = held.fresh_failure() {
                log::warn!("{why}");
            }
        }
    }
}

/// The object that a plugin prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    kind: String,
    api_version: String,
    status: Option<Status>,
}

/// The field `status` of the object that a plugin prints. It contains a token, a client certificate with its key, or
/// both. Empty fields count as missing.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Parses what the plugin's program printed. Returns the credentials, and when they expire. The error is a message for
/// the user and does not repeat fields that can be secret.
fn parse(
    printed: &[u8],
    version: &str,
    number: u64,
) -> Result<(http::Credentials, Option<Timestamp>), String> {
    let credential: ExecCredential = serde_json::from_slice(printed).map_err(|error| {
        format!(
            "must print an ExecCredential and nothing else, but ccm can't read its output at line {}, column {}",
            error.line(),
            error.column()
        )
    })?;
    if (credential.kind.as_str(), credential.api_version.as_str()) != ("ExecCredential", version) {
        return Err(format!(
            "did not print an ExecCredential with apiVersion {version}, which the kubeconfig names; in the \
             kubeconfig, set apiVersion to the version that the plugin prints"
        ));
    }
    let status = credential.status.unwrap_or_default();
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let token = filled(status.token).map(|text| Secret::new(&text));
    if token.as_ref().is_some_and(|token| token.check().is_err()) {
        return Err(
            "printed a status.token with characters that no token has, e.g. white space".into()
        );
    }
    let pem = |text, origin: &str| {
        let bytes = filled(text)?.into_bytes();
        let origin = origin.to_owned();
        Some(Pem { bytes, origin })
    };
    let certificate = pem(status.client_certificate_data, "clientCertificateData");
    let identity = match (certificate, pem(status.client_key_data, "clientKeyData")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let identity = ClientIdentity::from_pem(&certificate, &key);
            Some(identity.map_err(|why| format!("printed a wrong status.{why}"))?)
        }
        _ => {
            let both = "status.clientCertificateData and status.clientKeyData";
            return Err(format!("printed only one of {both}, but must print both or none"));
        }
    };
    if token.is_none() && identity.is_none() {
        return Err("printed neither status.token nor status.clientCertificateData".into());
    }
    let end = filled(status.expiration_timestamp).map(|text| end(&text)).transpose()?;
    let issued = http::Credentials { number, identity, ..http::Credentials::bearer(token) };
    Ok((issued, end.flatten()))
}

/// Returns when the credentials expire. `None` means never.
fn end(text: &str) -> Result<Option<Timestamp>, String> {
    match text.parse::<Timestamp>() {
        Ok(end) if end > clock::timestamp() => Ok(Some(end)),
        Ok(end) => Err(format!(
            "printed credentials that expired at {end}; if this machine's clock is right, renew the plugin's own login"
        )),
        // Programs that mean "never" write a time in the last days of the year 9999. The library cannot parse these
        // days, so such a time is read as "never" here.
        Err(_) if text.starts_with("9999-12-3") => Ok(None),
        Err(_) => {
            Err("printed a status.expirationTimestamp that is not an RFC 3339 time".to_owned())
        }
    }
}

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// How many bytes of the output of a plugin's program are read at most. An output with credentials has some kilobytes.
const STDOUT_LIMIT_BYTES: usize = 1 << 20;

/// How long to wait, in real time, before the next check whether the plugin has ended or printed something.
const POLL: Duration = Duration::from_millis(5);

/// The capacity of a pipe on Linux, in bytes. A buffer of this size takes the whole content of the pipe by one read.
const PIPE_BYTES: usize = 64 << 10;

/// The program of a credential plugin, with its arguments and environment variables.
#[derive(PartialEq, Eq)]
pub(super) struct Program {
    /// The name of the plugin's program in messages. It is the field `command` of the kubeconfig.
    name: String,
    path: PathBuf,
    exec: Exec,
    /// The value that the plugin's program gets in its environment variable `KUBERNETES_EXEC_INFO`.
    info: String,
    /// The `apiVersion` that the output of the plugin's program must have.
    pub(super) version: &'static str,
}

impl Program {
    /// Reads the `exec` field of a user and returns its program. The program must exist, but it is not run.
    pub(super) fn of(
        user: &KubeconfigEntry<User>,
        exec: &Mapping,
        cluster_info: impl FnOnce() -> Result<Value, String>,
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
        Ok(Program { name: shown(name), path, exec, info: info.to_string(), version })
    }

    /// Runs the plugin's program and returns what it printed on its standard output. The error is the end of a message
    /// for the user, after the plugin's name.
    pub(super) fn run(&self, time_limit: Duration) -> Result<Vec<u8>, String> {
        let variables = self.exec.env.iter();
        let mut child = Command::new(&self.path)
            .args(self.exec.args.iter().map(|arg| &**arg))
            .env_clear()
            // The kubeconfig can name any program as the plugin. The plugin must not get the tokens of the Hetzner APIs
            // from the environment of ccm.
            .envs(std::env::vars_os().filter(|(name, _)| !is_about_hetzner(name)))
            .envs(variables.map(|variable| (&*variable.name, &*variable.value)))
            .env("KUBERNETES_EXEC_INFO", &self.info)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // The standard error of the plugin's program can contain a secret. When our standard error is a terminal,
            // the plugin's program writes to this terminal too. Otherwise its standard error is discarded, so that no
            // log contains the secret.
            .stderr(if std::io::stderr().is_terminal() { Stdio::inherit() } else { Stdio::null() })
            // The plugin's program gets a process group of its own. Ending the group then also ends the processes that
            // the program started.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("can't be started ({error})"))?;
        let begun = clock::now();
        // A pipe that cannot be made non-blocking is not read, because a read could wait for ever.
        let mut pipe = child.stdout.take();
        pipe = pipe.filter(|pipe| SockRef::from(pipe).set_nonblocking(true).is_ok());
        let mut printed = Vec::new();
        let mut buffer = vec![0; PIPE_BYTES];
        // The output of the plugin's program is read from the pipe while the program runs, because otherwise a
        // program that fills the pipe would wait for ever. The loop ends when the program has ended or has
        // exceeded the time limit. It does not wait for the end of the pipe, because a child of the program can
        // hold the pipe open much longer.
        let status = loop {
            // First it is checked whether the plugin's program has ended, and then the pipe is read. After the program
            // has ended, everything that it printed is in the pipe, so this last read gets all of it.
            let status = child.try_wait();
            let read = pipe.as_mut().map(|pipe| pipe.read(&mut buffer));
            let count = read.and_then(Result::ok).unwrap_or(0);
            let room = (STDOUT_LIMIT_BYTES + 1).saturating_sub(printed.len());
            printed.extend(&buffer[..count.min(room)]);
            match status {
                Ok(None) if clock::since(begun) < time_limit => {}
                Ok(Some(status)) => break status,
                outcome => {
                    end_group(&child);
                    let ended = outcome.and_then(|_| child.wait());
                    ended.map_err(|error| format!("can't be stopped ({error})"))?;
                    return Err(format!(
                        "did not end within {} s, so ccm stopped it; the plugin must not wait for input, which ccm can't \
                         give",
                        clock::to_machine(time_limit).as_secs_f32()
                    ));
                }
            }
            if count == 0 {
                clock::sleep(clock::from_machine(POLL));
            }
        };
        match status.success() {
            false => Err(format!("failed ({status}); run the plugin by hand to see why")),
            true if printed.len() > STDOUT_LIMIT_BYTES => {
                Err(format!("printed more than {} MiB", STDOUT_LIMIT_BYTES >> 20))
            }
            true => Ok(printed),
        }
    }
}

/// Kills the plugin's program and every process that the program has started, except processes that have made a group
/// of their own.
#[allow(unsafe_code)]
fn end_group(child: &Child) {
    let Ok(group) = libc::pid_t::try_from(child.id()) else {
        return;
    };
    // Safety: `kill` has no preconditions. The program has not been reaped yet (by the system call `wait`). So the
    // kernel cannot have given its process ID, which is also the ID of its group, to another process.
    unsafe {
        libc::kill(-group, libc::SIGKILL);
    }
}

fn version(text: Option<&str>) -> Result<&'static str, String> {
    match text {
        Some(V1) => Ok(V1),
        Some(V1BETA1) => Ok(V1BETA1),
        None => Err(format!("not set; write {V1} or {V1BETA1}, whichever the program prints")),
        Some(other) => Err(format!("{} is not supported; write {V1} or {V1BETA1}", shown(other))),
    }
}

/// Returns an error when the field `interactiveMode` says that the plugin's program always needs a standard input,
/// because plugins get no standard input here. A missing or unknown value is an error too, but with `v1beta1` the field
/// may be missing.
fn check_interactive(mode: Option<&str>, version: &str) -> Result<(), String> {
    match mode {
        Some("Never" | "IfAvailable") => Ok(()),
        None if version == V1BETA1 => Ok(()),
        None => Err("not set; write Never or IfAvailable".into()),
        Some("Always") => Err(
            "is Always, but ccm gives the program no terminal; if the program works without a terminal, write Never or \
             IfAvailable"
                .into(),
        ),
        Some(other) => Err(format!("{} is unknown; write Never or IfAvailable", shown(other))),
    }
}

/// Returns the path of a program. A name without a slash is searched for in `$PATH`. Any other text is a path. If it is
/// relative, it begins at the folder of the kubeconfig.
fn find(user: &KubeconfigEntry<User>, command: &str) -> Result<PathBuf, String> {
    let name = shown(command);
    if command.contains('/') {
        let path = user.path(command);
        return match path.is_file() {
            true if is_executable(&path) => Ok(path),
            true => Err(format!("{name} is not executable; run chmod +x on the file")),
            false => Err(format!("there is no program {name}; correct the path")),
        };
    }
    // Relative folders in `$PATH` are skipped, because they depend on the current folder.
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(|path| is_executable(path))
        .ok_or_else(|| format!("there is no program {name} in PATH; install it or write its path"))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_renewed_shortly_before_their_end() {
        let now = Timestamp::now();
        for (life_s, lead_s) in [(3600, 60), (600, 60), (100, 10), (0, 0), (-5, 0)] {
            let lead = lead(now + jiff::SignedDuration::from_secs(life_s));
            let late = Duration::from_secs(lead_s).saturating_sub(lead);
            assert!(late < Duration::from_secs(1), "{life_s}: {lead:?}");
        }
        let held = HeldCredentials {
            credentials: Some(PluginCredentials {
                issued: http::Credentials::default(),
                renew_at: Some("2030-01-01T00:00:10Z".parse().unwrap()),
                end_at: Some("2030-01-01T00:00:20Z".parse().unwrap()),
            }),
            ..HeldCredentials::default()
        };
        for (second, expected) in [("09", Some(false)), ("10", Some(true)), ("20", None)] {
            let now = format!("2030-01-01T00:00:{second}Z").parse().unwrap();
            let is_due = held.good(now).map(|(_, is_due)| is_due);
            assert_eq!(is_due, expected, "{second}");
        }
    }
}
