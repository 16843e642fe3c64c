//! The program `sandbox`. It starts the simulated APIs, prints shell commands that export the variables for their
//! clients, and runs until it is stopped.

mod flags;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use flags::{Flags, Parsed};
use sandbox::{Half, Sandbox};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    match flags::parse(lexopt::Parser::from_env()) {
        Ok(Parsed::Help(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Parsed::Run(flags)) => match run(&flags) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("sandbox: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("sandbox: {error}; see sandbox --help");
            ExitCode::from(2)
        }
    }
}

fn run(flags: &Flags) -> io::Result<()> {
    // The signal handler is installed before any file is written. When a signal comes later, the program therefore ends
    // normally and removes its files.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let env_file = flags.env_file.as_deref();
    if let Some(path) = env_file {
        // If an earlier run has left its `--env-file`, that file is removed first. Otherwise, another program that
        // waits for the file could read the values of the earlier run.
        remove(path)?;
    }
    let sandbox = flags.builder().try_start()?;
    if flags.verbose {
        sandbox.calls().watch(|call| eprintln!("{call}"));
    }
    if let Some(scenario) = &flags.scenario {
        scenario.apply(&sandbox)?;
    }
    let exports = exports(&sandbox.env());
    let mut stdout = io::stdout().lock();
    stdout.write_all(exports.as_bytes())?;
    stdout.flush()?;
    eprintln!("{}", summary(&sandbox));
    if let Some(path) = env_file {
        write_whole(path, &exports)?;
    }
    let mut before = sandbox.projects().token.clone();
    let mut last = before.clone();
    while signals.forever().next() == Some(SIGHUP) {
        let token = sandbox.add_token();
        let mut variables = sandbox.env();
        for (_, value) in variables.iter_mut().filter(|(name, _)| name == "HCLOUD_TOKEN") {
            value.clone_from(&token);
        }
        if let Some(path) = env_file {
            write_whole(path, &self::exports(&variables))?;
        }
        if before != last {
            sandbox.cloud().remove_token(&before);
        }
        (before, last) = (last, token);
    }
    env_file.map_or(Ok(()), remove)
}

/// Returns a shell script that exports these environment variables.
fn exports(variables: &[(String, String)]) -> String {
    let quote = |value: &str| format!("'{}'", value.replace('\'', r"'\''"));
    variables.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect()
}

fn summary(sandbox: &Sandbox) -> String {
    let mut parts = Vec::new();
    if sandbox.serves(Half::Hetzner) {
        parts.push(format!("Hetzner Cloud at {}", sandbox.hetzner_url()));
    }
    if sandbox.serves(Half::Robot) {
        parts.push(format!("Robot at {}", sandbox.robot_url()));
    }
    if sandbox.serves(Half::Kubernetes) {
        parts
            .push(format!("Kubernetes at {} (contexts sandbox and ccm)", sandbox.kubernetes_url()));
    }
    format!("sandbox: {}; Ctrl-C ends it", parts.join(", "))
}

/// Writes a file under a temporary name and then renames it, so that nobody reads a half-written file. Only the owner
/// can read the file, because it contains a Hetzner Cloud token.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&unfinished, path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
