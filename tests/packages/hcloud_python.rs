//! Hetzner's own Python client against the sandbox. What it accepts of servers and networks, ccm may rely on, too.

use crate::common;
use sandbox::{Half, Sandbox};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hcloud");

/// The interpreter of a virtual environment with the client, made once and kept under `target/`.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PYTHON.get_or_init(virtual_environment) {
        Ok(python) => Some(python),
        Err(why) => {
            sandbox::skipped::skip("Hetzner's Python client", "python", why);
            None
        }
    }
}

fn virtual_environment() -> Result<PathBuf, String> {
    let wanted = format!("{FOLDER}/requirements.txt");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hcloud-python");
    let python = folder.join("bin/python");
    // This file is written last. Without it the installation was interrupted, and other requirements
    // need another folder.
    let complete = folder.join("requirements.txt");
    let text = std::fs::read_to_string(&wanted).unwrap();
    if std::fs::read_to_string(&complete).is_ok_and(|there| there == text) {
        return Ok(python);
    }
    let _ = std::fs::remove_dir_all(&folder);
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        .map_err(|why| format!("there is no python3 with venv: {why}"))?;
    let pip = ["-m", "pip", "install", "--quiet", "--retries=1", "--requirement"];
    run(Command::new(&python).args(pip).arg(&wanted))
        .map_err(|why| format!("the client cannot be installed: {why}"))?;
    std::fs::write(&complete, text).unwrap();
    Ok(python)
}

/// Runs a command to its end. The error is the last line of its output.
fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(output);
    }
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    let told = String::from_utf8_lossy(&told);
    let last = told.lines().rfind(|line| !line.trim().is_empty());
    Err(last.unwrap_or("it failed in silence").to_owned())
}

/// Runs a function of `tour.py`. Every request must fit the API's own document, if that is available.
fn tour(name: &str, sandbox: &Sandbox) {
    let Some(python) = python() else { return };
    let output = Command::new(python)
        .args([&format!("{FOLDER}/tour.py"), name])
        .env_clear()
        .envs(sandbox.env())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {told}");
    let calls = sandbox.calls().calls();
    assert!(!calls.is_empty(), "{name} called nobody");
    let Some(spec) = common::openapi() else {
        return;
    };
    for call in calls.iter().filter(|call| call.status != Some(422)) {
        spec.check_request(&call.method, &call.path, &call.query, &call.body)
            .unwrap_or_else(|problem| panic!("{call}: {problem:?}"));
    }
}

fn hetzner(servers: usize) -> Sandbox {
    let builder = Sandbox::builder().only(Half::Hetzner).scale(0.02);
    builder.nodes(servers).heartbeats(false).start()
}

#[test]
fn servers_are_created_powered_and_deleted() {
    tour("servers", &hetzner(2));
}

#[test]
fn networks_are_created_attached_and_deleted() {
    tour("networks", &hetzner(1));
}

#[test]
fn the_python_client_reads_long_lists_in_pages() {
    tour("pages", &hetzner(60));
}

#[test]
fn refusals_are_the_library_s_exceptions() {
    tour("refusals", &hetzner(1));
}

#[test]
fn an_action_that_runs_locks_its_server() {
    let sandbox = hetzner(1);
    sandbox.cloud().hold_actions(true);
    tour("locked", &sandbox);
}

#[test]
fn the_python_client_reports_a_failed_action() {
    let sandbox = hetzner(1);
    let cloud = sandbox.cloud();
    cloud.fail_next_action("stop_server", "timeout", "the host did not answer");
    tour("failing", &sandbox);
}
