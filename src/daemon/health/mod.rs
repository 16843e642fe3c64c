//! The HTTP server that answers the pod's probes, and what it answers.
//!
//! | path | 200 means | else |
//! |---|---|---|
//! | `/healthz`, `/livez` | every thread of a controller has shown a sign of life lately | 500 |
//! | `/readyz` | Kubernetes and the Cloud API have answered at least once, or this process is a standby | 503 |
//! | `/metrics` | always, also on a standby | 404 when metrics are turned off |
//!
//! The body of an answer is a short text that says what is wrong. The text has nothing private, because anybody can
//! read it when the pod uses the host network. No probe checks the settings, because they were checked before the
//! server started.
//!
//! `verdict` decides the answer. `server` owns the sockets, reads requests and writes answers. A probe never waits for
//! a lock that a controller holds during its work. It only waits for the lock of a metric, which is held for a very
//! short time.

mod server;

use super::lease::LeaderElection;
use super::stop::Stop;
use crate::cache::Apis;
use crate::metrics;
use crate::provider::heartbeat::Heartbeat;
use crate::provider::lock;
use server::ProbeAnswer;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How long a controller's thread can show no sign of life before the liveness probe fails. A thread shows a sign of
/// life, for example, when a run of the controller begins and when an API call ends. The pause between two runs does
/// not count, because the thread announces the pause by `heartbeat::pause`.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// The content type of the text format of Prometheus metrics.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Settings of the health server.
pub struct HealthSettings {
    /// The address and port on which the server listens. `[::]` stands for all addresses of the machine, IPv6 and IPv4.
    /// With port 0 the system chooses a free port. `None` means that no server is started.
    pub address: Option<SocketAddr>,
    /// Whether the server answers requests for `/metrics`. Otherwise the answer is 404.
    pub has_metrics: bool,
}

/// What the health server needs to answer probes, e.g. the threads that must show signs of life.
pub struct DaemonHealth {
    settings: HealthSettings,
    apis: &'static Apis,
    threads: Mutex<Vec<Watched>>,
    /// The leader election of this process. `None` means that leader election is turned off.
    lease: Option<Arc<LeaderElection>>,
}

/// A thread that must show signs of life, and a weak reference to the heartbeat that records them. Only the thread
/// itself owns the heartbeat. When the thread ends, the heartbeat is dropped, so the weak reference shows that the
/// thread has ended.
struct Watched {
    name: &'static str,
    heartbeat: Weak<Heartbeat>,
}

impl DaemonHealth {
    /// Starts the health server if the settings have an address. Returns the object that answers the probes, which
    /// exists until the process ends.
    pub fn start(
        settings: HealthSettings,
        apis: &'static Apis,
        stop: &'static Stop,
        lease: Option<Arc<LeaderElection>>,
    ) -> &'static DaemonHealth {
        let health: &'static DaemonHealth =
            Box::leak(Box::new(DaemonHealth { settings, apis, threads: Mutex::default(), lease }));
        if let Some(address) = health.settings.address {
            let verdict = |path: &str| health.verdict(path);
            server::start(address, stop, verdict);
        }
        health
    }

    /// Watches a new thread from now on, and returns the heartbeat that records the thread's signs of life. The thread
    /// must pass the heartbeat to `heartbeat::install`, and must call `heartbeat::pause` before it pauses. The liveness
    /// probe fails when the thread shows no sign of life for too long, or ends.
    pub fn watch(&self, name: &'static str) -> Arc<Heartbeat> {
        let heartbeat = Arc::new(Heartbeat::default());
        let watched = Watched { name, heartbeat: Arc::downgrade(&heartbeat) };
        lock(&self.threads).push(watched);
        heartbeat
    }

    /// Returns the answer to a request for this path, or `None` when the server has no such path.
    fn verdict(&self, path: &str) -> Option<ProbeAnswer> {
        match path {
            "/healthz" | "/livez" => Some(live(&lock(&self.threads), SILENCE_LIMIT)),
            "/readyz" => Some(ready(
                self.lease.as_ref().is_some_and(|lease| lease.is_standby()),
                self.apis.kube.is_reached(),
                self.apis.provider.is_reached(),
            )),
            "/metrics" if self.settings.has_metrics => Some(ProbeAnswer {
                content_type: EXPOSITION,
                ..ProbeAnswer::new(200, metrics::exposition())
            }),
            _ => None,
        }
    }
}

fn live(threads: &[Watched], silence_limit: Duration) -> ProbeAnswer {
    let mut text = String::new();
    for Watched { name, heartbeat } in threads {
        match heartbeat.upgrade().map(|heartbeat| heartbeat.silent_for()) {
            None => text.push_str(&format!("{name}: has ended\n")),
            Some(silent) if silent > silence_limit => {
                let silent_s = silent.as_secs_f64();
                text.push_str(&format!("{name}: no progress for {silent_s:.1} s\n"));
            }
            Some(_) => {}
        }
    }
    ok_unless(500, text)
}

fn ready(is_standby: bool, is_kube_reached: bool, is_cloud_reached: bool) -> ProbeAnswer {
    if is_standby {
        return ProbeAnswer::new(200, "ok: standby\n");
    }
    let mut text = String::new();
    for (name, is_reached) in [("Kubernetes", is_kube_reached), ("cloud", is_cloud_reached)] {
        if !is_reached {
            text.push_str(&format!("ccm has not reached the {name} API yet\n"));
        }
    }
    ok_unless(503, text)
}

/// Returns an answer with status 200 when the text `wrong` is empty. Otherwise returns an answer with the given status
/// and this text.
fn ok_unless(status: u16, wrong: String) -> ProbeAnswer {
    if wrong.is_empty() { ProbeAnswer::new(200, "ok\n") } else { ProbeAnswer::new(status, wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_must_show_life() {
        let (first, second) = (Arc::new(Heartbeat::default()), Arc::new(Heartbeat::default()));
        let threads = [
            Watched { name: "first", heartbeat: Arc::downgrade(&first) },
            Watched { name: "second", heartbeat: Arc::downgrade(&second) },
        ];
        assert_eq!(live(&[], SILENCE_LIMIT), ProbeAnswer::new(200, "ok\n"));
        assert_eq!(live(&threads, SILENCE_LIMIT), ProbeAnswer::new(200, "ok\n"));
        drop(second);
        let ended = ProbeAnswer::new(500, "second: has ended\n");
        assert_eq!(live(&threads, SILENCE_LIMIT), ended);
        while first.silent_for() == Duration::ZERO {
            std::thread::yield_now();
        }
        let silent = live(&threads, Duration::ZERO);
        assert_eq!(silent.status, 500);
        assert!(silent.text.starts_with("first: no progress for 0.0 s\n"));
    }

    #[test]
    fn ready_is_a_standby_or_who_reached_both() {
        for (is_standby, kube, cloud, status, text) in [
            (false, true, true, 200, "ok\n"),
            (true, false, false, 200, "ok: standby\n"),
            (false, false, true, 503, "ccm has not reached the Kubernetes API yet\n"),
            (false, true, false, 503, "ccm has not reached the cloud API yet\n"),
        ] {
            let verdict = ready(is_standby, kube, cloud);
            assert_eq!(verdict, ProbeAnswer::new(status, text));
        }
        assert_eq!(ready(false, false, false).text.lines().count(), 2);
    }
}
