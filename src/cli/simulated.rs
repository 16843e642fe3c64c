//! The daemon as it runs in tests that simulate its clock and its network. It reads the same settings and has the same
//! controllers as the daemon in a real process.

use super::output::Exit;
use super::run;
use crate::daemon::lease::{LeaderElection, WaitPolicy};
use crate::daemon::{self, DaemonEnd, RunningDaemon, Stop};
use std::ffi::OsString;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The simulated daemon checks again and again whether it is the leader. This is the time between two checks. Its work
/// begins at the first check at which it is the leader.
const LOOKS_WHO_LEADS: Duration = Duration::from_millis(10);

/// A daemon in a test that simulates the clock, the network and the threads of the daemon. It has no health server. A
/// test calls [`SimulatedDaemon::stop`] where a real daemon would get a signal.
pub struct SimulatedDaemon {
    stop: &'static Stop,
    lease: Option<Arc<LeaderElection>>,
    running: Arc<OnceLock<RunningDaemon>>,
}

impl SimulatedDaemon {
    /// Starts a daemon. The calling thread must be in a simulation, i.e. a test has replaced the clock and the network
    /// of this thread. The simulation then also runs the daemon's threads. `words` are the words that follow `ccm run`.
    /// When the daemon can't start, the error is its exit code.
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

    /// Asks the daemon to end, as a signal does in a real process.
    pub fn stop(&self) {
        self.stop.set();
    }

    /// Whether the daemon is ending, because a test asked it to end, or because the daemon itself decided to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// Does what a daemon does before it ends: writes the last events and releases the Lease. Returns the exit code.
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
