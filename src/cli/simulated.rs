//! The daemon in a simulation, for tests. Settings, wiring and controllers are those of a real process.

use super::output::Exit;
use super::run;
use crate::daemon::lease::{LeaderElection, WaitPolicy};
use crate::daemon::{self, DaemonEnd, RunningDaemon, Stop};
use std::ffi::OsString;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often a simulated daemon checks whether it leads. Its work begins at most this long after it became the leader.
const LOOKS_WHO_LEADS: Duration = Duration::from_millis(10);

/// A daemon whose threads are run by a simulation. It has no health server. The function `stop` takes the place
/// of a signal.
pub struct SimulatedDaemon {
    stop: &'static Stop,
    lease: Option<Arc<LeaderElection>>,
    running: Arc<OnceLock<RunningDaemon>>,
}

impl SimulatedDaemon {
    /// Starts a daemon in the calling thread, which must be in a simulation. The daemon works while the
    /// simulation runs its threads. `words` are those that follow `ccm run`. The error is the exit code of
    /// a daemon that could not start.
    pub fn start(words: Vec<OsString>) -> Result<SimulatedDaemon, u8> {
        let parts = run::assemble(words).map_err(|exit| exit as u8)?;
        let (stop, apis) = (parts.stop, parts.apis);
        let daemon = SimulatedDaemon { stop, lease: parts.lease, running: Arc::default() };
        let (running, lease) = (Arc::clone(&daemon.running), daemon.lease.clone());
        let mut controllers = Some(parts.controllers);
        if let Some(lease) = &lease {
            lease.begin(WaitPolicy::Forever);
        }
        stop.repeat(true, move || {
            let leads = lease.as_ref().is_none_or(|lease| lease.leads());
            if let Some(controllers) = controllers.take_if(|_| leads) {
                let begun = daemon::begin(apis, controllers, stop, |_| Arc::default());
                let _ = running.set(begun);
            }
            controllers.as_ref().map(|_| LOOKS_WHO_LEADS)
        });
        Ok(daemon)
    }

    /// Asks the daemon to end, as a signal does.
    pub fn stop(&self) {
        self.stop.set();
    }

    /// Whether the daemon was asked to end, or ends by itself.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// Writes the last events and releases the Lease, as a daemon does at its end. Returns the exit code.
    pub fn end(&self) -> u8 {
        let ended = self.running.get().map(RunningDaemon::end_in_simulation);
        if let Some(lease) = &self.lease {
            lease.release();
        }
        let is_lost = self.lease.as_ref().is_some_and(|lease| lease.is_lost());
        let exit = Exit::Done.fail_if(is_lost || matches!(ended, Some(DaemonEnd::Blocked)));
        if exit == Exit::Done {
            log::info!("ended");
        }
        exit as u8
    }
}
