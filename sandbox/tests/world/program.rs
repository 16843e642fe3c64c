//! Tests that start the program `sandbox`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

fn sandbox(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns a path that no other test process uses.
fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

/// A running program `sandbox` and the text of its `--env-file`. When a test fails, the program is killed.
struct Running {
    child: Option<Child>,
    exports: String,
}

impl Running {
    fn start(arguments: &[&str], env_file: &Path) -> Running {
        let mut child = sandbox(arguments).arg("--env-file").arg(env_file).spawn().unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while !env_file.exists() {
            let ended = child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < limit,
                "waited for {env_file:?}, ended: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Running { child: Some(child), exports: std::fs::read_to_string(env_file).unwrap() }
    }

    /// Sends a signal to the program and waits until the program ends.
    fn end(mut self, signal: &str) -> Output {
        let child = self.child.take().unwrap();
        let sent =
            Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        child.wait_with_output().unwrap()
    }

    fn exported(&self, name: &str) -> Option<String> {
        exported(&self.exports, name)
    }

    /// Sends a GET to the Hetzner Cloud API with the project's token, and returns the whole answer.
    fn get(&self, path: &str) -> std::io::Result<String> {
        let url = self.exported("HCLOUD_ENDPOINT").unwrap();
        let token = self.exported("HCLOUD_TOKEN").unwrap();
        get(url.trim_end_matches("/v1"), path, &format!("Bearer {token}"))
    }
}

/// Sends a GET with `credential` as its header `Authorization`, and returns the whole answer.
fn get(url: &str, path: &str, credential: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(url.trim_start_matches("http://"))?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {credential}");
    socket.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).map(|_| answer)
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the value of the line `export NAME='value'`.
fn exported(text: &str, name: &str) -> Option<String> {
    let prefix = format!("export {name}='");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix))?;
    line.strip_suffix('\'').map(str::to_owned)
}

#[test]
fn the_program_prints_the_environment_and_cleans_up_when_it_is_stopped() {
    for signal in ["TERM", "INT"] {
        let env_file = scratch(&format!("env-{signal}"));
        let running = Running::start(&["--nodes", "2"], &env_file);
        let exports = running.exports.clone();
        let kubeconfig = PathBuf::from(running.exported("KUBECONFIG").unwrap());
        assert!(kubeconfig.exists());
        assert!(running.exported("HCLOUD_ENDPOINT").unwrap().starts_with("http://127.0.0.1:"));
        let output = running.end(signal);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{signal}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            exports,
            "the same on standard output"
        );
        assert!(
            !kubeconfig.parent().unwrap().exists() && !env_file.exists(),
            "{signal}: nothing is left"
        );
    }
}

#[test]
fn the_environment_is_on_standard_output_while_it_runs() {
    let mut child = sandbox(&["--only", "hcloud", "--port-kubernetes", "1"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let running = Running { child: Some(child), exports: String::new() };
    assert!(first.starts_with("export HCLOUD_TOKEN='"), "{first}");
    assert_eq!(running.end("TERM").status.code(), Some(0));
}

#[test]
fn verbose_prints_each_call_without_secrets() {
    let running = Running::start(&["-v"], &scratch("verbose.env"));
    let answer = running.get("/v1/servers").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let token = running.exported("HCLOUD_TOKEN").unwrap();
    let printed = String::from_utf8(running.end("TERM").stderr).unwrap();
    assert!(printed.contains("hetzner project GET /v1/servers → 200"), "{printed}");
    assert!(!printed.contains(&token));
}

#[test]
fn a_scenario_makes_servers_and_faults() {
    let scenario = scratch("scenario.yaml");
    let text = "nodes: 1\nscale: 0.01\n\
                servers:\n- {name: extra, location: nbg1, running: false}\n\
                faults:\n- {effect: reset, path: /v1/networks}\n";
    std::fs::write(&scenario, text).unwrap();
    let running =
        Running::start(&["--scenario", scenario.to_str().unwrap()], &scratch("scenario.env"));
    let servers = running.get("/v1/servers?name=extra").unwrap();
    assert!(servers.contains("\"status\":\"off\"") && servers.contains("\"nbg1\""), "{servers}");
    assert!(running.get("/v1/networks").is_err(), "the fault");
    assert_eq!(running.end("TERM").status.code(), Some(0));
    std::fs::remove_file(scenario).unwrap();
}

#[test]
fn dedicated_servers_are_created_by_a_flag_or_a_scenario() {
    let scenario = scratch("robot.yaml");
    let text = "scale: 0.01\ndedicated_servers:\n\
                - {name: extra, number: 321, dc: HEL1-DC2, product: EX44, ip: null, cancelled: true}\n\
                - {name: off, off: true, operating_status: not supported, no_node: true}\n";
    std::fs::write(&scenario, text).unwrap();
    let arguments = ["--scenario", scenario.to_str().unwrap(), "--robot", "1"];
    let running = Running::start(&arguments, &scratch("robot.env"));
    let exported = |name: &str| running.exported(name).unwrap();
    let login = format!("{}:{}", exported("ROBOT_USER"), exported("ROBOT_PASSWORD"));
    assert_eq!(exported("ROBOT_ENABLED"), "true");
    let get = |path: &str| {
        let credential = format!("Basic {}", BASE64_STANDARD.encode(&login));
        let answer = get(&exported("ROBOT_ENDPOINT"), path, &credential).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<serde_json::Value>(body).unwrap()
    };
    let list = get("/server");
    let names = list.as_array().unwrap().iter();
    let names = names.map(|one| one["server"]["server_name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["extra", "metal-1", "off"]);
    let extra = &list[0]["server"];
    let null = &serde_json::Value::Null;
    assert_eq!((&extra["server_ip"], &extra["ip"]), (null, &serde_json::json!([])));
    assert_eq!((&extra["dc"], &extra["product"]), (&"HEL1-DC2".into(), &"EX44".into()));
    assert_eq!(extra["cancelled"], true);
    let off = list[2]["server"]["server_number"].as_u64().unwrap();
    let reset = get(&format!("/reset/{off}"));
    assert_eq!(reset["reset"]["operating_status"], "not supported");
    let printed = String::from_utf8(running.end("TERM").stderr).unwrap();
    assert!(printed.contains("Robot at http://127.0.0.1:"), "{printed}");
    std::fs::remove_file(scenario).unwrap();
}

#[test]
fn wrong_usage_and_failures_have_different_exit_codes() {
    let bad_server = scratch("bad.yaml");
    std::fs::write(&bad_server, "servers:\n- {name: extra, server_type: none}\n").unwrap();
    let bad_server = bad_server.to_str().unwrap();
    let cases = [
        (&["--nodes", "many"][..], 2, "many"),
        (&["--colour"], 2, "--colour"),
        (&["--scale", "0"], 1, "scale 0"),
        (&["--network=ten"], 1, "ten"),
        (&["--scenario", "/nowhere.yaml"], 2, "/nowhere.yaml"),
        (&["--scenario", bad_server], 1, "server \"extra\""),
        (&["--env-file", "/nowhere/env"], 1, "No such file"),
    ];
    for (arguments, code, expected) in cases {
        let output = sandbox(arguments).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(expected), "{arguments:?}: {printed}");
    }
    std::fs::remove_file(bad_server).unwrap();
    let output = sandbox(&["--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && help.contains("--scenario FILE") && help.contains("answer-lost")
    );
    assert!(help.lines().all(|line| line.chars().count() <= 110), "fits a screen");
}

#[test]
fn sighup_creates_a_new_token_and_revokes_the_last_but_one() {
    let env_file = scratch("env-token");
    let running = Running::start(&["--only", "hcloud"], &env_file);
    let url = running.exported("HCLOUD_ENDPOINT").unwrap();
    let url = url.trim_end_matches("/v1").to_owned();
    let is_accepted = |token: &str| {
        let answer = get(&url, "/v1/servers", &format!("Bearer {token}")).unwrap();
        answer.starts_with("HTTP/1.1 200")
    };
    let mut tokens = vec![running.exported("HCLOUD_TOKEN").unwrap()];
    for _ in 0..2 {
        let id = running.child.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args(["-s", "HUP", &id]).status();
        assert!(sent.unwrap().success());
        let limit = Instant::now() + Duration::from_secs(20);
        let another = loop {
            let exports = std::fs::read_to_string(&env_file).unwrap();
            let token = exported(&exports, "HCLOUD_TOKEN").unwrap();
            if !tokens.contains(&token) {
                break token;
            }
            assert!(Instant::now() < limit, "no other token");
            std::thread::sleep(Duration::from_millis(5));
        };
        // The program writes a new API token into its `--env-file` and then revokes the oldest of its three tokens. The
        // test waits until the oldest token is refused.
        let is_ended = |token: &String| !is_accepted(token);
        while tokens.len() > 1 && !is_ended(&tokens[0]) {
            assert!(Instant::now() < limit, "the first token is still accepted");
            std::thread::sleep(Duration::from_millis(5));
        }
        tokens.push(another);
    }
    let accepted: Vec<bool> = tokens.iter().map(|token| is_accepted(token)).collect();
    assert_eq!(accepted, [false, true, true]);
    assert!(running.end("TERM").status.success());
}
