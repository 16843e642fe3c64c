//! Decides which credentials are sent to the web service. Refused credentials are not sent again for ten minutes,
//! because three failed logins block the IP of this machine for ten minutes.

use crate::http::{Credentials, Issuer, Secret, SecretSource};
use crate::metrics::ROBOT_BLOCKED;
use crate::provider::variables::{ROBOT_PASSWORD_FILE, ROBOT_USER_FILE};
use crate::provider::{clock, lock};
use jiff::Timestamp;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time for which refused credentials are not sent again. Robot blocks an IP for the same time.
const WAIT: Duration = Duration::from_secs(600);

/// The number of different credentials that may be refused within `WAIT`. A third failed login would block the IP.
const TRIES_AT_MOST: usize = 2;

/// The user and the password. Each is fixed, or in a file that is read before every call.
pub(super) struct RobotLogin {
    user: SecretSource,
    password: SecretSource,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The `Authorization` header of the last call.
    shown: Option<Secret>,
    /// The refused logins that still prevent other logins, with the oldest first.
    refusals: Vec<Refusal>,
    /// The time of the last refused login. `None` when a login succeeded since, or when no login was tried.
    refused: Option<Timestamp>,
}

struct Refusal {
    /// The refused header, which is not sent again before `until`. `None` means that no header at
    /// all is sent before `until`.
    header: Option<Secret>,
    at: Timestamp,
    until: Instant,
    /// The end of the wait as a time of day, for messages.
    ends: Timestamp,
}

impl RobotLogin {
    pub(super) fn new(user: SecretSource, password: SecretSource) -> RobotLogin {
        ROBOT_BLOCKED.set(&["login"], 0.0);
        RobotLogin { user, password, state: Mutex::default() }
    }

    /// Records that the credentials that were sent last were accepted.
    pub(super) fn accepted(&self) {
        lock(&self.state).refused = None;
        ROBOT_BLOCKED.set(&["login"], 0.0);
    }

    /// Records that the credentials that were sent last were refused, so that they are not sent again for `WAIT`. A
    /// second call about the same credentials changes nothing. With `is_all`, the IP of this machine may be blocked, so
    /// that no other credentials are sent either.
    pub(super) fn refuse(&self, is_all: bool) {
        let mut state = lock(&self.state);
        let header = state.shown.clone().filter(|_| !is_all);
        state.note(header, whole_second(clock::timestamp()), WAIT);
    }

    /// Returns when a login was refused, if none has succeeded since.
    pub(super) fn refused(&self) -> Option<Timestamp> {
        lock(&self.state).refused
    }

    /// Continues the wait that began when a login of another process was refused at this time. No credentials
    /// are sent until the wait ends, unless a file gets other credentials. A time in the future is taken as
    /// now, because clocks differ.
    pub(super) fn wait_since(&self, at: Timestamp) {
        let now = clock::timestamp();
        let at = whole_second(at.min(now));
        let passed = Duration::try_from(now.duration_since(at)).unwrap_or_default();
        let header = self.read().ok().and_then(|credentials| credentials.header);
        let mut state = lock(&self.state);
        state.refused = state.refused.max(Some(at));
        let left = WAIT.saturating_sub(clock::from_machine(passed));
        if !left.is_zero() {
            state.note(header, at, left);
        }
    }

    /// Returns the time until which no login is tried, or `None` when a login may be tried now.
    pub(super) fn blocked_until(&self) -> Option<Timestamp> {
        let header = self.read().ok()?.header;
        let mut state = lock(&self.state);
        state.obstacle(header.as_ref()).map(|refusal| refusal.ends)
    }

    fn read(&self) -> Result<Credentials, String> {
        let missing = || Secret::new("");
        let user = self.user.current()?.unwrap_or_else(missing);
        let password = self.password.current()?.unwrap_or_else(missing);
        let mut credentials = Credentials::basic(user.expose(), &password);
        credentials.secrets.push(user);
        Ok(credentials)
    }
}

impl Issuer for RobotLogin {
    fn current(&self) -> Result<Credentials, String> {
        let credentials = self.read()?;
        let mut state = lock(&self.state);
        if let Some(refusal) = state.obstacle(credentials.header.as_ref()) {
            return Err(format!(
                "Robot refused a login at {}; ccm tries the next login at {}, or when a file of {ROBOT_USER_FILE} or \
                 {ROBOT_PASSWORD_FILE} holds other credentials, because three failed logins block the IP of this \
                 machine for ten minutes",
                refusal.at, refusal.ends
            ));
        }
        state.shown.clone_from(&credentials.header);
        Ok(credentials)
    }

    fn refused(&self, _number: u64) {
        self.refuse(false);
    }
}

impl State {
    /// Returns the earlier refusal because of which these credentials are not sent at present.
    fn obstacle(&mut self, header: Option<&Secret>) -> Option<&Refusal> {
        let now = clock::now();
        self.refusals.retain(|refusal| refusal.until > now);
        let is_full = self.refusals.len() >= TRIES_AT_MOST;
        let holds = |refusal: &&Refusal| {
            let refused = refusal.header.as_ref();
            is_full || refused.is_none() || refused == header
        };
        self.refusals.iter().find(holds)
    }

    /// Records a refusal, after which this header is not sent for the time `wait`. When `header` is
    /// `None`, no header is sent.
    fn note(&mut self, header: Option<Secret>, at: Timestamp, wait: Duration) {
        if self.refusals.iter().any(|refusal| refusal.header == header) {
            return;
        }
        let ends = clock::timestamp().checked_add(clock::to_machine(wait));
        let ends = ends.unwrap_or(at);
        self.refused = self.refused.max(Some(at));
        ROBOT_BLOCKED.set(&["login"], ends.as_second() as f64);
        self.refusals.push(Refusal {
            header,
            at,
            until: clock::now() + wait,
            ends: whole_second(ends),
        });
    }
}

/// Returns the time without its fraction of a second, for messages and for the Lease.
pub(super) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
