//! Abnormal ends of the daemon: a second signal while the first one is handled, and a bug in a controller.

use crate::common::{
    self, Cluster, Daemon, LIMIT, env, hetzner_calls, on, socket_cluster, wait_until,
};
use ccm::cache::{self, Apis};
use ccm::controllers::{Controller, Proposal, Report, Selection};
use ccm::daemon::{self, DaemonHealth, HealthSettings, Stop};
use ccm::http::{Proxies, Timing};
use ccm::kube::{self, config};
use ccm::provider::{self, Instances, OpenGate, Provider, ProviderId};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The variable with the child's kubeconfig. Without it the test that plays the child does nothing.
const KUBECONFIG_OF_CHILD: &str = "CCM_TEST_ENDING_KUBECONFIG";

const BUG: &str = "the last straw";

/// After the first signal the current call may end, for some seconds. A second signal does not wait.
#[test]
fn a_second_signal_ends_the_daemon_at_once() {
    std::thread::scope(|scope| {
        for [first, second] in [["-TERM", "-TERM"], ["-INT", "-INT"], ["-TERM", "-INT"]] {
            scope.spawn(move || {
                // The sandbox has no other daemon, so that the first call is this daemon's, which listens to
                // signals by then.
                let sandbox = socket_cluster(1);
                let hangs = Effect::Slow(Duration::from_secs(60));
                sandbox.fault(Rule::new(hangs).half(Half::Hetzner));
                // The test runs in real time, in which an end takes up to 10 s.
                let env = common::real_time(&sandbox);
                let daemon = Daemon::start(&env, &["--leader-elect=false"]);
                wait_until("a call", || hetzner_calls(&sandbox) > 0);
                daemon.logs("running cloud-node-controller");
                daemon.signal(first);
                daemon.logs("a second signal makes it exit at once");
                let begun = Instant::now();
                // Within half a second it is taken for the same wish.
                common::wait_or(
                    Duration::from_secs(5),
                    || daemon.log(),
                    || {
                        daemon.signal(second);
                        daemon.log().contains("second signal received: ccm exits at once")
                    },
                );
                assert_eq!(daemon.ended().code(), Some(1), "{first} {second}");
                let waited = begun.elapsed();
                assert!(
                    (Duration::from_millis(400)..Duration::from_secs(5)).contains(&waited),
                    "{first} {second}: {waited:?}"
                );
            });
        }
    });
}

/// Reported events are written before the Lease is released, although no other write starts any more.
#[test]
fn events_that_wait_are_written_at_the_end() {
    const UNKNOWN: usize = 5;
    let sandbox = socket_cluster(1);
    let slow =
        on("POST /api/v1/namespaces/default/events", Effect::Slow(Duration::from_millis(60)));
    sandbox.fault(slow);
    let names: Vec<String> = (0..UNKNOWN).map(|n| format!("none-{n}")).collect();
    let mut annotations = vec![("location", "fsn1")];
    annotations.extend(names.iter().map(|name| (name.as_str(), "x")));
    sandbox.create("web", &annotations, &[80]);
    let env = common::real_time(&sandbox);
    let daemon = Daemon::start(&env, &[]);
    let events = || {
        let mut events = sandbox.cluster().list("events", None);
        events.retain(|event| event["reason"] == "UnknownAnnotation");
        events.len()
    };
    wait_until("the first of them", || events() > 0);
    daemon.signal("-TERM");
    let begun = Instant::now();
    assert!(daemon.ended().success(), "{}", daemon.log());
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(events(), UNKNOWN, "{}", daemon.log());
    let calls = sandbox.calls().calls();
    let last = calls.iter().rfind(|call| call.is_write());
    assert!(last.is_some_and(|call| common::is_lease(&call.path)), "{last:?}");
}

/// Panics unwind here and abort in the release. The hook ends the process before either.
#[test]
fn a_bug_in_one_controller_ends_the_whole_process_with_one_line() {
    let sandbox = socket_cluster(1);
    let env = env(&sandbox);
    let kubeconfig = common::variable(&env, "KUBECONFIG");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "abnormal_end::child", "--ignored", "--nocapture"])
        .env(KUBECONFIG_OF_CHILD, kubeconfig)
        .env("RUST_BACKTRACE", "full");
    let begun = Instant::now();
    let output = child.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.starts_with("ccm: internal error at tests/process/abnormal_end.rs:")
            && stderr.contains(BUG),
        "{stderr}"
    );
    assert!(stderr.contains("please report it"), "{stderr}");
    assert!(begun.elapsed() < LIMIT);
}

/// This is not a test. It is the process that the test above starts.
#[test]
#[ignore = "it is started by another test"]
fn child() {
    let Some(kubeconfig) = std::env::var_os(KUBECONFIG_OF_CHILD) else {
        return;
    };
    // The command itself makes the process what every run of it is.
    ccm::cli::main(vec!["ccm".into(), "version".into()]);
    let options =
        config::Options { kubeconfig: vec![kubeconfig.into()], ..config::Options::default() };
    let timing =
        Timing { read_timeout: LIMIT, write_timeout: LIMIT, retry_wait: Duration::from_millis(10) };
    let client = kube::KubeClient::new(
        config::load(&options).unwrap(),
        Proxies::Never,
        timing,
        Arc::new(OpenGate),
    );
    let world: &'static Apis = Box::leak(Box::new(Apis::new(client, Box::new(NoCloud))));
    let stop: &'static Stop = Box::leak(Box::default());
    let health =
        DaemonHealth::start(HealthSettings { has_metrics: true, address: None }, world, stop, None);
    let controllers: Vec<Box<dyn Controller>> =
        vec![Box::new(Works), Box::new(Panics { ticks_left: 3 })];
    let running = daemon::begin(world, controllers, stop, |name| health.watch(name));
    let ended = running.until_stopped();
    panic!("the daemon outlived a thread of its own: {ended:?}");
}

/// Would go on for ever.
struct Works;

struct Panics {
    ticks_left: u32,
}

struct NoCloud;

impl Controller for Works {
    fn name(&self) -> &'static str {
        "works"
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn tick(&mut self, _: &Apis, _: &Selection) -> Report {
        Report::default()
    }

    fn propose(&self, _: &Apis, _: &Selection) -> Result<Vec<Proposal>, cache::CacheError> {
        Ok(Vec::new())
    }
}

impl Controller for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn tick(&mut self, _: &Apis, _: &Selection) -> Report {
        self.ticks_left = self.ticks_left.checked_sub(1).unwrap_or_else(|| panic!("{BUG}"));
        Report::default()
    }

    fn propose(&self, _: &Apis, _: &Selection) -> Result<Vec<Proposal>, cache::CacheError> {
        Ok(Vec::new())
    }
}

impl Provider for NoCloud {
    fn name(&self) -> &'static str {
        "none"
    }

    fn parse_provider_id(&self, _: &str) -> ProviderId {
        ProviderId::Foreign
    }

    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    fn prepare(&self) -> Result<(), provider::ProviderError> {
        Ok(())
    }
}
