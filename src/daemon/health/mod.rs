//! The answers to the probes of the pod, and the small HTTP server that sends these answers.
//!
//! | path | 200 means | else |
//! |---|---|---|
//! | `/healthz`, `/livez` | every watched thread has shown a sign of life lately | 500 |
//! | `/readyz` | both APIs were reached once, or this process is a standby | 503 |
//! | `/metrics` | always, also on a standby | 404 when metrics are turned off |
//!
//! A body is a short plain text that says what is wrong. It contains nothing private, because everybody can read it
//! when the pod uses the host network. No probe checks the settings, because they were read before the server started.
//!
//! `verdict` decides the answer. `server` owns the sockets, reads requests and writes answers. A probe never waits for
//! a lock that a controller holds during its work. The lock of a metric is held only while one number changes.

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

/// A thread that has shown no sign of life for this long counts as dead. A sign of life is a new tick, the end of an
/// API call, or the announcement of a wait.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// The content type of Prometheus' text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Settings of the health server.
pub struct HealthSettings {
    /// The address on which the server listens. `[::]` means every address of the machine, IPv6 and IPv4. Port 0 means
    /// any free port. `None` means that there is no server.
    pub address: Option<SocketAddr>,
    /// Whether the server answers `/metrics`.
    pub has_metrics: bool,
}

/// The state from which the probes are answered: whether the daemon is alive and ready.
pub struct DaemonHealth {
    settings: HealthSettings,
    apis: &'static Apis,
    threads: Mutex<Vec<Watched>>,
    /// The leader election of this process. `None` when the process works without a Lease.
    lease: Option<Arc<LeaderElection>>,
}

/// A thread that must show signs of life. The thread owns its heartbeat, so the weak reference to the heartbeat becomes
/// invalid when the thread ends.
struct Watched {
    name: &'static str,
    heartbeat: Weak<Heartbeat>,
}

impl DaemonHealth {
    /// Starts the health server if the settings contain an address. The returned value is never dropped.
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

    /// Returns a heartbeat for a new thread, which is watched from now on. The thread must call `heartbeat::install`
    /// with it, and must call `heartbeat::pause` before each wait. When the thread ends, the liveness probe fails.
    pub fn watch(&self, name: &'static str) -> Arc<Heartbeat> {
        let heartbeat = Arc::new(Heartbeat::default());
        let watched = Watched { name, heartbeat: Arc::downgrade(&heartbeat) };
        lock(&self.threads).push(watched);
        heartbeat
    }

    /// Returns the answer for a path, or `None` when there is no such path.
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
            text.push_str(&format!("the {name} API was not reached yet\n"));
        }
    }
    ok_unless(503, text)
}

/// Returns an answer with status 200 when `wrong` is empty, otherwise an answer with `status` and the text `wrong`.
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
            (false, false, true, 503, "the Kubernetes API was not reached yet\n"),
            (false, true, false, 503, "the cloud API was not reached yet\n"),
        ] {
            let verdict = ready(is_standby, kube, cloud);
            assert_eq!(verdict, ProbeAnswer::new(status, text));
        }
        assert_eq!(ready(false, false, false).text.lines().count(), 2);
    }
}
