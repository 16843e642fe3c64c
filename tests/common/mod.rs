//! The binary from outside: run it, watch it, wait for what it should bring about.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod at_rest;
pub mod cluster;
pub mod help;
pub mod in_flight;
pub mod library;
pub mod machine;
pub mod memory;
pub mod objects;
pub mod proxy;
pub mod random;
pub mod routes;
pub mod secrets;
pub mod seeds;
pub mod simulated;

use ccm::provider::clock;
use cluster::text;
pub use cluster::{Cluster, is_initialised};
use sandbox::calls::Call;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule, RuleId};
use sandbox::{Builder, Half, Sandbox};
use serde::Deserialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The taint of a node whose server is off.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// How long anything may take that should take a moment.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Waits last a fiftieth: five seconds are a tenth of one.
pub const SCALE: &str = "0.02";

pub type Env = Vec<(String, String)>;

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// # Panics
    /// It ended with another exit code.
    #[track_caller]
    pub fn with_code(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// # Panics
    /// This is not a part of stdout.
    #[track_caller]
    pub fn prints(&self, part: &str) {
        assert!(self.stdout.contains(part), "{part:?} in {self:?}");
    }

    /// # Panics
    /// This is not a part of stderr.
    #[track_caller]
    pub fn warns(&self, part: &str) {
        assert!(self.stderr.contains(part), "{part:?} in {self:?}");
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// # Panics
/// This is not a part of the text.
#[track_caller]
pub fn contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} in\n{text}");
}

/// A text with one space where it has several or a line ends.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The environment of the account that the official role is bound to, or that of `manifests/base`, with short waits.
pub fn env(sandbox: &Sandbox) -> Env {
    let mut env = sandbox.env_of("ccm");
    if sandbox.is_in_memory() {
        env.push((simulated::MARK.into(), "yes".into()));
        env.push(("HCLOUD_ALLOW_INSECURE_ENDPOINT".into(), "true".into()));
        return env;
    }
    env.push(("CCM_TEST_TIME_SCALE".into(), SCALE.into()));
    // Many daemons run at once on one machine.
    env.push(("HCLOUD_METRICS_ADDRESS".into(), "127.0.0.1:0".into()));
    env
}

/// The environment of ccm, with the kubeconfig of another user.
pub fn env_as(sandbox: &Sandbox, user: &str) -> Env {
    let account = sandbox.env_of(user);
    let kubeconfig = variable(&account, "KUBECONFIG");
    with(env(sandbox), &[("KUBECONFIG", kubeconfig)])
}

/// The environment of ccm, whose waits last as long as outside of tests.
pub fn real_time(sandbox: &Sandbox) -> Env {
    at_scale(sandbox, 1.0)
}

/// The environment of ccm, whose waits last this share of their time.
pub fn at_scale(sandbox: &Sandbox, scale: f64) -> Env {
    let scale = scale.to_string();
    with(env(sandbox), &[("CCM_TEST_TIME_SCALE", &scale)])
}

/// The environment of ccm, with the token of another project.
pub fn foreign(sandbox: &Sandbox) -> Env {
    let token = &sandbox.projects().foreign_token;
    with(env(sandbox), &[("HCLOUD_TOKEN", token)])
}

/// # Panics
/// The variable is not set.
pub fn variable<'a>(env: &'a Env, name: &str) -> &'a str {
    let found = env.iter().find(|(other, _)| other == name);
    &found.unwrap_or_else(|| panic!("{name} is not set")).1
}

/// The documents of a YAML file.
pub fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(text);
    let documents = documents.map(|one| Value::deserialize(one).unwrap());
    documents.filter(|one| !one.is_null()).collect()
}

/// From now on the account is bound to the role of hcloud-cloud-controller-manager; before its [`env`] is asked for.
pub fn under_its_role(sandbox: &Sandbox) {
    let rules = sandbox::world::official_rules();
    sandbox.add_user("ccm", &[], rules).unwrap();
}

/// The same with some variables set otherwise; an empty value counts as unset.
pub fn with(mut env: Env, changes: &[(&str, &str)]) -> Env {
    for (name, value) in changes {
        env.retain(|(other, _)| other != name);
        env.push(((*name).to_owned(), (*value).to_owned()));
    }
    env
}

/// The binary under test: this build's, or the one that a benchmark names.
pub fn binary() -> std::path::PathBuf {
    let named = std::env::var_os("CCM_BENCH_BINARY").map(std::path::PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_ccm").into())
}

/// The binary with this environment and no other.
pub fn command(env: &Env, words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(words)
        .env_clear()
        .env("HOME", "/nonexistent")
        .envs(env.iter().cloned())
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn ccm(env: &Env, words: &[&str]) -> Ran {
    if is_simulated(env) {
        return simulated::command(env, words);
    }
    command(env, words).output().unwrap().into()
}

/// Whether it is the environment of programs on the simulated machine.
fn is_simulated(env: &Env) -> bool {
    env.iter().any(|(name, _)| name == simulated::MARK)
}

/// What a command shows a person whose terminal has its stdout and stderr; none: no terminal can be had here. The terminal
/// does not know how wide it is.
pub fn at_terminal(env: &Env, words: &[&str]) -> Option<String> {
    at_terminal_of(None, None, env, words)
}

/// The same at one of so many columns, in a folder.
pub fn at_terminal_of(
    columns: Option<usize>,
    folder: Option<&Path>,
    env: &Env,
    words: &[&str],
) -> Option<String> {
    let line: Vec<String> = std::iter::once(binary().display().to_string())
        .chain(words.iter().map(|word| (*word).to_owned()))
        .map(|word| format!("'{word}'"))
        .collect();
    let first = columns.map_or(String::new(), |columns| format!("stty cols {columns}; "));
    let shown = Command::new("script")
        .args(["-qec", &(first + &line.join(" ")), "/dev/null"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("SHELL", "/bin/sh")
        .env("HOME", "/nonexistent")
        .envs(env.iter().cloned())
        .stdin(Stdio::null())
        .current_dir(folder.unwrap_or(Path::new(".")))
        .output();
    match shown {
        Ok(shown) => Some(String::from_utf8(shown.stdout).unwrap().replace('\r', "")),
        Err(why) => {
            sandbox::skipped::skip("tables at a terminal", "script", &why.to_string());
            None
        }
    }
}

/// A table is cut to 80 columns at a terminal, and only there: whoever searches a pipe for a name finds it.
pub fn is_cut_at_a_terminal_alone(env: &Env, words: &[&str], name: &str) {
    let piped = ccm(env, words).stdout;
    assert!(piped.contains(name) && !piped.contains('…'), "{piped}");
    let Some(shown) = at_terminal(env, words) else {
        return;
    };
    assert!(shown.contains('…') && !shown.contains(name), "{shown}");
    let is_table = |line: &&str| !line.contains(": ");
    for line in shown.lines().filter(is_table) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// `ccm run`, until it is dropped: a process, or on the simulated machine.
pub struct Daemon {
    kind: Kind,
}

enum Kind {
    Process { child: Arc<Mutex<Child>>, log: Arc<Mutex<String>> },
    Simulated(simulated::Daemon),
}

impl Daemon {
    pub fn start(env: &Env, flags: &[&str]) -> Daemon {
        Daemon::start_with(env, &[&["run"], flags].concat())
    }

    /// With exactly these words: flags alone are the daemon too.
    pub fn start_with(env: &Env, words: &[&str]) -> Daemon {
        if is_simulated(env) {
            let kind = Kind::Simulated(simulated::Daemon::start(env, words));
            return Daemon { kind };
        }
        let mut child =
            command(env, words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                into.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let child = Arc::new(Mutex::new(child));
        Daemon { kind: Kind::Process { child, log } }
    }

    /// Starts a process that is killed by SIGKILL at the calls of a rule: just before they are handled, or just after.
    pub fn killed_at(
        sandbox: &Sandbox,
        env: &Env,
        flags: &[&str],
        is_before: bool,
        calls: impl FnOnce(Rule) -> Rule,
    ) -> (Daemon, RuleId) {
        let killer: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
        let kill = Arc::clone(&killer);
        let hook = move |_: &Request| kill.wait()();
        let effect = match is_before {
            true => Effect::before(hook),
            false => Effect::after(hook),
        };
        let rule = sandbox.faults().add(calls(Rule::new(effect)));
        let daemon = Daemon::start(env, flags);
        assert!(killer.set(Box::new(daemon.killer())).is_ok());
        (daemon, rule)
    }

    pub fn log(&self) -> String {
        match &self.kind {
            Kind::Process { log, .. } => log.lock().unwrap().clone(),
            Kind::Simulated(daemon) => daemon.log(),
        }
    }

    fn child(&self) -> Arc<Mutex<Child>> {
        match &self.kind {
            Kind::Process { child, .. } => Arc::clone(child),
            Kind::Simulated(_) => panic!("it has no process"),
        }
    }

    /// Kills it, at once and from any thread.
    pub fn killer(&self) -> impl Fn() + Send + Sync + 'static {
        let child = self.child();
        move || {
            let mut child = child.lock().unwrap();
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child().lock().unwrap().id()
    }

    /// Highest and present resident memory, in kilobytes.
    pub fn memory_kb(&self) -> (u64, u64) {
        let id = self.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (field("VmHWM:"), field("VmRSS:"))
    }

    /// Processor time that it has used so far.
    pub fn cpu(&self) -> Duration {
        let id = self.id();
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        // After the name in parentheses: fields 14 and 15, utime and stime, in hundredths of a second.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks: u64 = [11, 12].map(|n| fields[n].parse::<u64>().unwrap()).iter().sum();
        Duration::from_millis(ticks * 10)
    }

    pub fn signal(&self, signal: &str) {
        if let Kind::Simulated(daemon) = &self.kind {
            return daemon.terminate();
        }
        send(signal, self.id());
    }

    /// Waits for its end.
    pub fn ended(&self) -> ExitStatus {
        wait_until("the daemon's end", || self.status().is_some());
        self.status().unwrap()
    }

    /// How it ended; none while it runs.
    pub fn status(&self) -> Option<ExitStatus> {
        match &self.kind {
            Kind::Process { child, .. } => child.lock().unwrap().try_wait().unwrap(),
            Kind::Simulated(daemon) => {
                let code = daemon.ended();
                code.map(|code| ExitStatus::from_raw(i32::from(code) << 8))
            }
        }
    }

    /// Asks it to end, and waits until it has ended well.
    #[track_caller]
    pub fn stop(&self) {
        self.signal("-TERM");
        assert!(self.ended().success(), "{}", self.log());
    }

    /// # Panics
    /// The log holds the text more often, or less often.
    #[track_caller]
    pub fn logged(&self, text: &str, times: usize) {
        let log = self.log();
        assert_eq!(log.matches(text).count(), times, "{text:?} in\n{log}");
    }

    /// Waits until the log holds a text.
    pub fn logs(&self, text: &str) {
        let state = || format!("not logged: {text:?} in\n{}", self.log());
        wait_or(LIMIT, state, || self.log().contains(text));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Kind::Process { .. } = &self.kind {
            self.killer()();
        }
    }
}

/// Sends a signal to a process.
pub fn send(signal: &str, process: u32) {
    let kill = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(kill.unwrap().success());
}

/// Runs cases side by side, a few at a time: each has a world of its own on the same two cores.
pub fn side_by_side<T: Send>(cases: Vec<T>, run: impl Fn(T) + Sync) {
    let cases = Mutex::new(cases.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(case) = { cases.lock().unwrap().next() } {
                    run(case);
                }
            });
        }
    });
}

/// A rule for calls such as `POST /v1/certificates`. A path alone is that of any method.
pub fn on(calls: &str, effect: Effect) -> Rule {
    let rule = Rule::new(effect);
    match calls.split_once(' ') {
        Some((method, path)) => rule.method(method).path(path),
        None => rule.path(calls),
    }
}

/// What a person does just before the APIs handle a call, as the effect of a rule.
pub fn before(sandbox: &Arc<Sandbox>, hand: impl Fn(&Sandbox) + Send + Sync + 'static) -> Effect {
    let sandbox = Arc::downgrade(sandbox);
    Effect::before(move |_| sandbox.upgrade().iter().for_each(|sandbox| hand(sandbox)))
}

/// An answer in the place of the API's own.
pub fn answer(status: u16, body: &Value) -> Effect {
    Effect::Instead(Response::json(status, body))
}

/// Is it about the Lease? That is written all the time, whatever the controllers do.
pub fn is_lease(path: &str) -> bool {
    path.starts_with("/apis/coordination.k8s.io/")
}

/// Names a kubeconfig: a real API server, with all rights there, takes the place of the simulated one.
pub const REAL_CLUSTER: &str = "CCM_TEST_KUBECONFIG";

/// Where it is set, programs are processes also in tests that would run on the simulated machine.
const PROCESSES: &str = "CCM_TEST_PROCESSES";

/// A sandbox to be, whose Kubernetes half may be a real one.
pub fn builder() -> Builder {
    match std::env::var_os(REAL_CLUSTER) {
        Some(kubeconfig) => Sandbox::builder().real_cluster(kubeconfig),
        None => Sandbox::builder(),
    }
}

/// What a test has that freezes the API server's cache.
pub const LAGS: &str = "a cache that lags";

/// Skips what only the simulated API server can do.
pub fn needs_simulation(sandbox: &Sandbox, what: &str) -> bool {
    let is_real = sandbox.cluster().is_real();
    if is_real {
        sandbox::skipped::skip(what, "", "a real API server cannot be made to do it");
    }
    is_real
}

/// Nodes on servers in a Network; they change only when somebody changes them.
pub fn networked(nodes: usize) -> Builder {
    let builder = builder().nodes(nodes).heartbeats(false);
    builder.network("10.0.0.0/8")
}

/// Nodes that change only when somebody changes them; over sockets.
pub fn quiet(nodes: usize) -> Sandbox {
    builder().nodes(nodes).heartbeats(false).start()
}

/// Nodes that change only when somebody changes them; on the simulated machine.
pub fn calm(nodes: usize) -> Arc<Sandbox> {
    builder().nodes(nodes).heartbeats(false).simulated()
}

/// Where a test runs.
pub trait Simulate {
    /// Starts the sandbox on the simulated machine, with programs in the thread of the test. Beside a real API server it is
    /// started over sockets, and programs are processes.
    fn simulated(self) -> Arc<Sandbox>;
}

impl Simulate for Builder {
    fn simulated(self) -> Arc<Sandbox> {
        let is_set = |name: &&str| std::env::var_os(name).is_some();
        match [REAL_CLUSTER, PROCESSES].iter().any(is_set) {
            true => Arc::new(self.scale(SCALE.parse().unwrap()).start()),
            false => simulated::start(self),
        }
    }
}

/// Calls to the Hetzner half so far.
pub fn hetzner_calls(sandbox: &Sandbox) -> usize {
    sandbox.calls().count(|call| call.half == Half::Hetzner)
}

/// Writes of `ccm`, the Lease's aside: method and path.
pub fn writes(sandbox: &Sandbox) -> Vec<String> {
    let calls = sandbox.calls().calls();
    let is_such = |call: &&Call| call.is_write() && call.caller != "admin" && !is_lease(&call.path);
    let shown = |call: &Call| format!("{} {}", call.method, call.path);
    calls.iter().filter(is_such).map(shown).collect()
}

/// So much of a program's time, as the sandbox's APIs and a test have it.
pub fn lasting(sandbox: &Sandbox, time: Duration) -> Duration {
    match sandbox.is_in_memory() {
        true => time,
        false => time.mul_f64(SCALE.parse().unwrap()),
    }
}

/// So many seconds of a program's time passed since this moment of [`clock::now`].
pub fn seconds_since(sandbox: &Sandbox, begun: Instant) -> f64 {
    let second = lasting(sandbox, Duration::from_secs(1));
    clock::since(begun).div_duration_f64(second)
}

/// Waits until so much of a program's time has passed.
pub fn pass(sandbox: &Sandbox, time: Duration) {
    match simulated::machine() {
        Some(machine) => drop(simulated::holds_within(&machine, time, || false)),
        None => std::thread::sleep(lasting(sandbox, time)),
    }
}

/// Polls until it holds.
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_at_most(LIMIT, what, holds);
}

/// The same for what may take longer.
pub fn wait_at_most(limit: Duration, what: &str, holds: impl FnMut() -> bool) {
    wait_or(limit, || format!("waited in vain for {what}"), holds);
}

/// The same; says how things are when it does not hold in time.
pub fn wait_or(limit: Duration, state: impl Fn() -> String, holds: impl FnMut() -> bool) {
    assert!(holds_within(limit, holds), "{}", state());
}

/// Polls; false when it does not hold in time.
pub fn holds_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    if let Some(machine) = simulated::machine() {
        let limit = limit.div_f64(SCALE.parse().unwrap());
        return simulated::holds_within(&machine, limit, holds);
    }
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Servers without nodes, so that a list of servers has two pages; then one more node, whose
/// server is on the second.
pub fn second_page(sandbox: &Sandbox) {
    for n in 0..50 {
        sandbox.create_server(&format!("other-{n}"));
    }
    sandbox.join_node("page-2");
}

pub fn all_initialised(sandbox: &Sandbox) -> bool {
    sandbox.nodes().iter().all(is_initialised)
}

/// `type address`, in order.
pub fn addresses(node: &Value) -> Vec<String> {
    let list = node["status"]["addresses"].as_array().into_iter().flatten();
    let shown = |one: &Value| format!("{} {}", text(&one["type"]), text(&one["address"]));
    list.map(shown).collect()
}

/// A failed login to Robot of another program behind the same address.
pub fn fail_to_log_in(sandbox: &Sandbox) {
    // x:x
    let request = "GET /server HTTP/1.1\r\nHost: robot\r\nAuthorization: Basic eDp4\r\nConnection: close\r\n\r\n";
    sandbox.exchange(Half::Robot, request.as_bytes(), &|_| ());
}

/// Events about a node: reason, count.
pub fn events(sandbox: &Sandbox, node: &str) -> Vec<(String, u64)> {
    let mut events = sandbox.cluster().list("events", None);
    events.retain(|event| event["involvedObject"]["name"] == node);
    let count = |event: &Value| event["count"].as_u64().unwrap_or_default();
    let fields = |event: &Value| (text(&event["reason"]), count(event));
    events.iter().map(fields).collect()
}

/// Compares with a file in `tests/snapshots`; `CCM_UPDATE_SNAPSHOTS=1` writes it instead.
pub fn snapshot(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var("CCM_UPDATE_SNAPSHOTS").is_ok_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == text,
        "{name} reads differently now; CCM_UPDATE_SNAPSHOTS=1 writes it anew\n--- expected\n{expected}\n--- now\n{text}"
    );
}

/// The API's own document, where it is there.
pub fn openapi() -> Option<sandbox::openapi::Spec> {
    let usual =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/hcloud-openapi.json");
    let path = std::env::var_os("HCLOUD_OPENAPI_SPEC").map(std::path::PathBuf::from);
    if path.is_none() && !usual.exists() {
        let why = "HCLOUD_OPENAPI_SPEC names no document";
        sandbox::skipped::skip("requests of ccm", "openapi", why);
        return None;
    }
    let spec = sandbox::openapi::Spec::hetzner(path.unwrap_or(usual));
    Some(spec.unwrap_or_else(|error| panic!("{error}")))
}
