//! Runs the program `ccm` in tests, reads its output, and waits until its effects are visible in a sandbox.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod cluster;
pub mod fake_provider;
pub mod help;
pub mod in_flight;
pub mod library;
pub mod machine;
pub mod objects;
pub mod proxy;
pub mod random;
pub mod routes;
pub mod secrets;
pub mod seeds;
pub mod simulated;
pub mod steady_state;

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
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The taint of a node whose server is off.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// How long a test waits at most for something that should happen almost at once.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The time scale when `ccm` runs as a process. Each wait lasts a fiftieth of its usual time. For example, a wait of
/// five seconds lasts a tenth of a second.
pub const SCALE: &str = "0.02";

pub type Env = Vec<(String, String)>;

/// The output of a command, and its exit code.
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

    /// Asserts that the command ended with this exit code, and returns its output.
    ///
    /// # Panics
    /// Panics when the command ended with another exit code.
    #[track_caller]
    pub fn with_code(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Asserts that the command has written `part` to stdout.
    ///
    /// # Panics
    /// Panics when `part` is not in stdout.
    #[track_caller]
    pub fn prints(&self, part: &str) {
        assert!(self.stdout.contains(part), "{part:?} in {self:?}");
    }

    /// Asserts that the command has written `part` to stderr.
    ///
    /// # Panics
    /// Panics when `part` is not in stderr.
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

/// Asserts that the text contains `part`.
///
/// # Panics
/// Panics when `part` is not in the text.
#[track_caller]
pub fn contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} in\n{text}");
}

/// Returns the text, in which one space replaces each sequence of spaces and line ends.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the environment variables with which `ccm` uses the APIs of a sandbox as the Kubernetes user `ccm`. When
/// `ccm` runs as a process, one of the variables also shortens its waits. The user has the RBAC rules of the official
/// ClusterRole of hcloud-cloud-controller-manager. When a developer runs the tests with `CCM_TEST_ROLE=manifests`, the
/// user has the RBAC rules of the files in `manifests/base` instead.
pub fn env(sandbox: &Sandbox) -> Env {
    let mut env = sandbox.env_of("ccm");
    if sandbox.is_in_memory() {
        env.push((simulated::MARK.into(), "yes".into()));
        env.push(("HCLOUD_ALLOW_INSECURE_ENDPOINT".into(), "true".into()));
        return env;
    }
    env.push(("CCM_TEST_TIME_SCALE".into(), SCALE.into()));
    // Many daemons of different tests run on one machine at the same time, and two of them cannot use the same port.
    // Port 0 means that each daemon serves its metrics on any free port.
    env.push(("HCLOUD_METRICS_ADDRESS".into(), "127.0.0.1:0".into()));
    env
}

/// Returns the environment variables that [`env`] returns, but with the kubeconfig of the Kubernetes user `user`.
pub fn env_as(sandbox: &Sandbox, user: &str) -> Env {
    let account = sandbox.env_of(user);
    let kubeconfig = variable(&account, "KUBECONFIG");
    with(env(sandbox), &[("KUBECONFIG", kubeconfig)])
}

/// Returns the environment variables that [`env`] returns, but changed so that no wait of `ccm` is shortened: `ccm`
/// waits as long as in production.
pub fn real_time(sandbox: &Sandbox) -> Env {
    at_scale(sandbox, 1.0)
}

/// Returns the environment variables that [`env`] returns, but each wait of `ccm` lasts `scale` times as long as in
/// production.
pub fn at_scale(sandbox: &Sandbox, scale: f64) -> Env {
    let scale = scale.to_string();
    with(env(sandbox), &[("CCM_TEST_TIME_SCALE", &scale)])
}

/// Returns the environment variables that [`env`] returns, but with the API token of another Hetzner Cloud project.
pub fn foreign(sandbox: &Sandbox) -> Env {
    let token = &sandbox.projects().foreign_token;
    with(env(sandbox), &[("HCLOUD_TOKEN", token)])
}

/// Returns the value of an environment variable.
///
/// # Panics
///
/// Panics when the environment variable is not set.
pub fn variable<'a>(env: &'a Env, name: &str) -> &'a str {
    let found = env.iter().find(|(other, _)| other == name);
    &found.unwrap_or_else(|| panic!("{name} is not set")).1
}

/// Returns the documents of a YAML file.
pub fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(text);
    let documents = documents.map(|one| Value::deserialize(one).unwrap());
    documents.filter(|one| !one.is_null()).collect()
}

/// Gives the Kubernetes user `ccm` exactly the RBAC rules of the official ClusterRole of
/// hcloud-cloud-controller-manager, and a new bearer token. This function must be called before [`env`], because
/// [`env`] writes the token into a kubeconfig.
pub fn under_its_role(sandbox: &Sandbox) {
    let rules = sandbox::world::official_rules();
    sandbox.add_user("ccm", &[], rules).unwrap();
}

/// Returns the RBAC rules of a component in `manifests/components`.
pub fn component_rules(component: &str) -> Vec<sandbox::kubernetes::PolicyRule> {
    let role = format!("{}/manifests/components/{component}/role.yaml", env!("CARGO_MANIFEST_DIR"));
    let role = std::fs::read_to_string(role).unwrap();
    serde_json::from_value(documents(&role)[0]["rules"].clone()).unwrap()
}

/// Returns the environment variables `env` with the changes in `changes`, each of which is a name and a new value. With
/// an empty value, a test can remove a variable, because `ccm` treats an empty variable as one that is not set.
pub fn with(mut env: Env, changes: &[(&str, &str)]) -> Env {
    for (name, value) in changes {
        env.retain(|(other, _)| other != name);
        env.push(((*name).to_owned(), (*value).to_owned()));
    }
    env
}

/// Returns the path of the `ccm` binary that the tests run. The environment variable `CCM_BENCH_BINARY` can name this
/// path. Without the variable, the tests run the binary that was built together with them.
pub fn binary() -> std::path::PathBuf {
    let named = std::env::var_os("CCM_BENCH_BINARY").map(std::path::PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_ccm").into())
}

/// Returns a command that runs the `ccm` binary with these arguments and environment variables. The variables of the
/// test process are not passed on.
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

/// Runs `ccm` with these arguments, and waits until it has ended.
pub fn ccm(env: &Env, words: &[&str]) -> Ran {
    if is_simulated(env) {
        return simulated::command(env, words);
    }
    command(env, words).output().unwrap().into()
}

/// Whether programs with these environment variables run simulated in the test's thread, and not as processes.
fn is_simulated(env: &Env) -> bool {
    env.iter().any(|(name, _)| name == simulated::MARK)
}

/// Runs `ccm` with a terminal as its stdout and stderr, and returns the output. The terminal does not report its width.
/// Returns `None` when the program `script`, which makes the terminal, cannot be started.
pub fn at_terminal(env: &Env, words: &[&str]) -> Option<String> {
    at_terminal_of(None, None, env, words)
}

/// Runs `ccm` in `folder` with a terminal of `columns` columns as its stdout and stderr, and returns the output.
/// Returns `None` when the program `script`, which makes the terminal, cannot be started.
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

/// Asserts that `ccm` cuts a table to 80 columns when stdout is a terminal, and only then. When stdout is a pipe, the
/// table must contain the whole `name`, so that `grep` finds it.
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

/// A running `ccm run`, either as a process or simulated in the test's thread. Dropping this value ends the daemon.
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

    /// Starts the daemon with exactly these arguments. A test can leave out the word `run`, because `ccm` also starts
    /// the daemon when it gets only flags.
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

    /// Starts `ccm run` as a process, and kills it with SIGKILL when it makes a certain API call. The function `calls`
    /// chooses this API call: it gets a fault rule that matches all API calls, and returns a rule that matches only the
    /// wanted one, e.g. by a method and a path. When `is_before` is true, the process dies just before the API handles
    /// the call. Otherwise it dies just afterwards.
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

    /// Returns a function that kills the daemon's process at once. Any thread can call this function.
    pub fn killer(&self) -> impl Fn() + Send + Sync + 'static {
        let child = self.child();
        move || {
            let mut child = child.lock().unwrap();
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the process ID of the daemon.
    pub fn id(&self) -> u32 {
        self.child().lock().unwrap().id()
    }

    /// Returns how much memory the daemon's process uses (resident set size), in kilobytes: first the largest value so
    /// far, then the present one.
    pub fn memory_kb(&self) -> (u64, u64) {
        let id = self.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (field("VmHWM:"), field("VmRSS:"))
    }

    /// Returns how much processor time the daemon's process has used so far.
    pub fn cpu(&self) -> Duration {
        let id = self.id();
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        // In `/proc/PID/stat` the name of the program is in parentheses and can contain spaces, so only the text after
        // the name is split into fields. Fields 14 and 15 of the file are utime and stime, in hundredths of a second.
        // In the list `fields` they have the indexes 11 and 12.
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

    /// Waits until the daemon has ended, and returns its exit status.
    pub fn ended(&self) -> ExitStatus {
        wait_until("the daemon's end", || self.status().is_some());
        self.status().unwrap()
    }

    /// Returns the daemon's exit status, or `None` while the daemon runs.
    pub fn status(&self) -> Option<ExitStatus> {
        match &self.kind {
            Kind::Process { child, .. } => child.lock().unwrap().try_wait().unwrap(),
            Kind::Simulated(daemon) => {
                let code = daemon.ended();
                code.map(|code| ExitStatus::from_raw(i32::from(code) << 8))
            }
        }
    }

    /// Asks the daemon to end, and waits until it has ended. Panics when its exit status is not success.
    #[track_caller]
    pub fn stop(&self) {
        self.signal("-TERM");
        assert!(self.ended().success(), "{}", self.log());
    }

    /// Asserts that the daemon's log contains the text exactly `times` times.
    ///
    /// # Panics
    /// Panics when the log contains the text more or less often.
    #[track_caller]
    pub fn logged(&self, text: &str, times: usize) {
        let log = self.log();
        assert_eq!(log.matches(text).count(), times, "{text:?} in\n{log}");
    }

    /// Waits until the daemon's log contains a text.
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

/// Flags for a single pass of all controllers. It gets much time to renew its Lease, because the processors may be busy
/// with other tests. It releases the Lease at its end, so nobody waits for the Lease to expire.
pub const LONG_LEASE: [&str; 2] =
    ["--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=100s"];

/// How many cases of all tests of one test program run at the same time. Many cases start processes. With more of them on
/// two processors, a daemon can't renew its Lease in time.
const CASES_AT_ONCE: usize = 8;

/// How many cases run now.
static CASES: Mutex<usize> = Mutex::new(0);
static CASE_ENDED: Condvar = Condvar::new();

/// A place among the cases that may run at the same time. It is free again when this value is dropped.
struct RunningCase;

impl RunningCase {
    fn begin() -> RunningCase {
        let is_full = |cases: &mut usize| *cases >= CASES_AT_ONCE;
        *CASE_ENDED.wait_while(CASES.lock().unwrap(), is_full).unwrap() += 1;
        RunningCase
    }
}

impl Drop for RunningCase {
    fn drop(&mut self) {
        *CASES.lock().unwrap() -= 1;
        CASE_ENDED.notify_one();
    }
}

/// Calls `run` with each test case, in parallel threads. `run` must not call this function. Each case must have a sandbox
/// of its own.
pub fn run_in_parallel<T: Send>(cases: Vec<T>, run: impl Fn(T) + Sync) {
    let cases = Mutex::new(cases.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..CASES_AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = { cases.lock().unwrap().next() } {
                    let _running = RunningCase::begin();
                    run(case);
                }
            });
        }
    });
}

/// Returns a rule for a simulated fault: the effect is applied to the API calls that `calls` describes. `calls` is a
/// method and a path, e.g. `POST /v1/certificates`. A path without a method matches all methods.
pub fn on(calls: &str, effect: Effect) -> Rule {
    let rule = Rule::new(effect);
    match calls.split_once(' ') {
        Some((method, path)) => rule.method(method).path(path),
        None => rule.path(calls),
    }
}

/// Returns the effect of a simulated fault. Just before the simulated API handles a call, the effect calls
/// `manual_change`, which changes something in the sandbox as a person could.
pub fn before(
    sandbox: &Arc<Sandbox>,
    manual_change: impl Fn(&Sandbox) + Send + Sync + 'static,
) -> Effect {
    let sandbox = Arc::downgrade(sandbox);
    Effect::before(move |_| sandbox.upgrade().iter().for_each(|sandbox| manual_change(sandbox)))
}

/// Returns the effect of a simulated fault: the client gets this answer, and the simulated API does not handle the
/// call.
pub fn answer(status: u16, body: &Value) -> Effect {
    Effect::Instead(Response::json(status, body))
}

/// Whether the path is that of a Lease. Tests that check the writes of a daemon ignore writes to a Lease, because the
/// daemon renews its Lease all the time, even when its controllers change nothing.
pub fn is_lease(path: &str) -> bool {
    path.starts_with("/apis/coordination.k8s.io/")
}

/// The environment variable that makes tests use a real API server instead of the simulated one. Its value is the path
/// of a kubeconfig that has all rights on the real API server.
pub const REAL_CLUSTER: &str = "CCM_TEST_KUBECONFIG";

/// The environment variable that makes all tests run `ccm` as a process, even tests that usually run `ccm` simulated in
/// their own thread.
const PROCESSES: &str = "CCM_TEST_PROCESSES";

/// Returns the builder of a sandbox. When [`REAL_CLUSTER`] is set, the sandbox uses a real Kubernetes API server
/// instead of a simulated one.
pub fn builder() -> Builder {
    match std::env::var_os(REAL_CLUSTER) {
        Some(kubeconfig) => Sandbox::builder().real_cluster(kubeconfig),
        None => Sandbox::builder(),
    }
}

/// The argument of [`needs_simulation`] in tests that need a watch cache that lags behind. A real API server cannot be
/// made to lag, so these tests are skipped when the API server is real.
pub const STALE_CACHE: &str = "a cache that lags";

/// The argument of [`needs_simulation`] in tests in which hours pass, or in which something must happen at an exact time.
pub const EXACT_TIME: &str = "time that passes only when a test lets it pass";

/// Whether a test must be skipped because the sandbox uses a real API server, and only a simulated one can do `what`.
/// If the result is true, this function also reports that the test is skipped.
pub fn needs_simulation(sandbox: &Sandbox, what: &str) -> bool {
    let is_real = sandbox.cluster().is_real();
    if is_real {
        sandbox::skipped::skip(what, "", "a real API server cannot be made to do it");
    }
    is_real
}

/// Returns the builder of a sandbox with nodes whose servers are in a Network. The sandbox simulates no heartbeats of
/// kubelets, so Nodes change only when a client writes them.
pub fn networked(nodes: usize) -> Builder {
    let builder = builder().nodes(nodes).heartbeats(false);
    builder.network("10.0.0.0/8")
}

/// Starts a sandbox whose APIs listen on sockets. The sandbox simulates no heartbeats of kubelets, so Nodes change only
/// when a client writes them.
pub fn socket_cluster(nodes: usize) -> Sandbox {
    builder().nodes(nodes).heartbeats(false).start()
}

/// Starts a sandbox. The programs that use its APIs run simulated in the test's thread. The sandbox simulates no
/// heartbeats of kubelets, so Nodes change only when a client writes them.
pub fn simulated_cluster(nodes: usize) -> Arc<Sandbox> {
    builder().nodes(nodes).heartbeats(false).simulated()
}

/// Chooses how a test runs programs such as `ccm`: either simulated, as a part of the test's own thread, or as
/// processes of their own.
pub trait Simulate {
    /// Starts the sandbox in memory. `ccm` then runs in the thread of the test, with simulated time and without
    /// sockets. When [`REAL_CLUSTER`] or `CCM_TEST_PROCESSES` is set, the APIs of the sandbox listen on sockets
    /// instead, and `ccm` runs as a process.
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

/// Returns how many calls the Hetzner Cloud API of a sandbox has received so far.
pub fn hetzner_calls(sandbox: &Sandbox) -> usize {
    sandbox.calls().count(|call| call.half == Half::Hetzner)
}

/// Returns the method and the path of each write that `ccm` has sent to the APIs of a sandbox so far. Writes to a Lease
/// are left out.
pub fn writes(sandbox: &Sandbox) -> Vec<String> {
    let calls = sandbox.calls().calls();
    let is_such = |call: &&Call| call.is_write() && call.caller != "admin" && !is_lease(&call.path);
    let shown = |call: &Call| format!("{} {}", call.method, call.path);
    calls.iter().filter(is_such).map(shown).collect()
}

/// Returns how long the test must wait until `time` has passed on the clock of the tested programs. This is less than
/// `time` when the programs are processes, because their clock runs faster than real time.
pub fn lasting(sandbox: &Sandbox, time: Duration) -> Duration {
    match sandbox.is_in_memory() {
        true => time,
        false => time.mul_f64(SCALE.parse().unwrap()),
    }
}

/// Returns how many seconds have passed on the clock of the tested programs since `begun`, which is a result of
/// [`clock::now`]. When the programs are processes, their clock runs faster than real time.
pub fn seconds_since(sandbox: &Sandbox, begun: Instant) -> f64 {
    let second = lasting(sandbox, Duration::from_secs(1));
    // `took` returns real time, which does not depend on the clock of the `ccm` library. Another test of this process
    // may have made that clock run faster.
    clock::took(begun).div_duration_f64(second)
}

/// Waits until this duration has passed on the clock of the tested programs. When the programs are processes, their
/// clock runs faster than real time.
pub fn pass(sandbox: &Sandbox, time: Duration) {
    match simulated::machine() {
        Some(machine) => drop(simulated::holds_within(&machine, time, || false)),
        None => std::thread::sleep(lasting(sandbox, time)),
    }
}

/// Calls `holds` again and again until it returns true. Panics when this takes longer than [`LIMIT`]. The panic message
/// contains `what`.
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_at_most(LIMIT, what, holds);
}

/// Calls `holds` again and again until it returns true. Panics when this takes longer than `limit`. The panic message
/// contains `what`.
pub fn wait_at_most(limit: Duration, what: &str, holds: impl FnMut() -> bool) {
    wait_or(limit, || format!("waited in vain for {what}"), holds);
}

/// Calls `holds` again and again until it returns true. Panics with the text of `state` when this takes longer than
/// `limit`.
pub fn wait_or(limit: Duration, state: impl Fn() -> String, holds: impl FnMut() -> bool) {
    // A real API server shares the processors of the computer with all tests, so everything that a test waits for takes
    // longer. The limit is therefore raised.
    let limit = if has_real_cluster() { limit * 4 } else { limit };
    assert!(holds_within(limit, holds), "{}", state());
}

/// Calls `holds` again and again until it returns true. Returns false when this takes longer than `limit` in real time.
/// When the time is simulated, it returns false after fifty times this limit in simulated time.
pub fn holds_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    if let Some(machine) = simulated::machine() {
        let limit = limit.div_f64(SCALE.parse().unwrap());
        return simulated::holds_within(&machine, limit, holds);
    }
    // The closure `holds` often calls the API server. A real API server also needs time for the calls of the tested
    // programs, so the pause between two calls of `holds` is then longer.
    let pause = Duration::from_millis(if has_real_cluster() { 50 } else { 5 });
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(pause);
    }
    true
}

/// Whether the tests use a real API server, because [`REAL_CLUSTER`] is set.
pub fn has_real_cluster() -> bool {
    std::env::var_os(REAL_CLUSTER).is_some()
}

/// Creates 50 servers without nodes, so that the API needs two pages for the list of all servers. Then adds a node
/// whose server is on the second page.
pub fn second_page(sandbox: &Sandbox) {
    for n in 0..50 {
        sandbox.create_server(&format!("other-{n}"));
    }
    sandbox.join_node("page-2");
}

pub fn all_initialised(sandbox: &Sandbox) -> bool {
    sandbox.nodes().iter().all(is_initialised)
}

/// Returns the addresses of a node in their order, each as `type address`.
pub fn addresses(node: &Value) -> Vec<String> {
    let list = node["status"]["addresses"].as_array().into_iter().flatten();
    let shown = |one: &Value| format!("{} {}", text(&one["type"]), text(&one["address"]));
    list.map(shown).collect()
}

/// Sends a wrong login to the simulated Robot, as another program with the same IP address as `ccm` could do. After
/// several wrong logins, Robot blocks this IP address.
pub fn fail_to_log_in(sandbox: &Sandbox) {
    // The login in this request has the user `x` and the password `x`.
    let request = "GET /server HTTP/1.1\r\nHost: robot\r\nAuthorization: Basic eDp4\r\nConnection: close\r\n\r\n";
    sandbox.exchange(Half::Robot, request.as_bytes(), &|_| ());
}

/// Returns the events about a node, each with reason and count.
pub fn events(sandbox: &Sandbox, node: &str) -> Vec<(String, u64)> {
    let mut events = sandbox.cluster().list("events", None);
    events.retain(|event| event["involvedObject"]["name"] == node);
    let count = |event: &Value| event["count"].as_u64().unwrap_or_default();
    let fields = |event: &Value| (text(&event["reason"]), count(event));
    events.iter().map(fields).collect()
}

/// Asserts that the text is equal to the file `name` in `tests/snapshots`. With `CCM_UPDATE_SNAPSHOTS=1` the text is
/// written to the file instead.
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

/// Loads the OpenAPI document of the Hetzner Cloud API. Its path is in `HCLOUD_OPENAPI_SPEC`, or else it is
/// `../shared/data/hcloud-openapi.json` beside the repository. When the variable is not set and this file is missing,
/// the function reports a skipped test and returns `None`.
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
