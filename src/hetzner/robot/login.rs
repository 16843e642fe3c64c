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

/// The user and the password, each either fixed or in a file. A file is read before every call.
pub(super) struct RobotLogin {
    user: SecretSource,
    password: SecretSource,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The `Authorization` header that was sent last.
    shown: Option<Secret>,
    /// The refused logins because of which some or all credentials must not be sent yet, with the oldest first.
    refusals: Vec<Refusal>,
    /// The time of the last refused login. `None` when a later login succeeded, or when there was no login yet.
    refused: Option<Timestamp>,
}

struct Refusal {
    /// The header that was refused, and must not be sent before `until`. `None` means that no login at all
    /// is tried before `until`.
    header: Option<Secret>,
    at: Timestamp,
    until: Instant,
    /// The wall-clock time at which the wait ends, for messages.
    ends: Timestamp,
}

impl RobotLogin {
    pub(super) fn new(user: SecretSource, password: SecretSource) -> RobotLogin {
        ROBOT_BLOCKED.set(&["login"], 0.0);
        RobotLogin { user, password, state: Mutex::default() }
    }

    /// Records that the web service accepted the credentials that were sent last.
    pub(super) fn accepted(&self) {
        lock(&self.state).refused = None;
        ROBOT_BLOCKED.set(&["login"], 0.0);
    }

    /// Records that the web service refused the credentials that were sent last. They are then not sent again during
    /// `WAIT`. A second refusal of the same credentials changes nothing. When `is_all` is `true`, the IP of this
    /// machine may be blocked, so no credentials are sent during `WAIT`.
    pub(super) fn refuse(&self, is_all: bool) {
        let mut state = lock(&self.state);
        let header = state.shown.clone().filter(|_| !is_all);
        state.note(header, whole_second(clock::timestamp()), WAIT);
    }

    /// Returns the time of the last refused login, or `None` when a login succeeded after it.
    pub(super) fn refused(&self) -> Option<Timestamp> {
        lock(&self.state).refused
    }

    /// Continues the wait of another process whose login was refused at this time. No credentials are sent until the
    /// wait ends, except new credentials from a file. A time in the future is replaced by the present time, because the
    /// clocks of two machines differ.
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

    /// Returns the time until which the present credentials are not sent. `None` when they may be sent now.
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
                "Robot refused a login at {}; because three failed logins block the IP of this machine for ten \
                 minutes, ccm tries the next login at {}, or earlier when a file of {ROBOT_USER_FILE} or \
                 {ROBOT_PASSWORD_FILE} holds other credentials",
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
    /// Returns the earlier refusal because of which these credentials must not be sent now.
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

    /// Records a refusal, after which this header is not sent during `wait`. When `header` is `None`, no header
    /// is sent during `wait`.
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

/// Returns the time without its fraction of a second, as messages and the Lease contain it.
pub(super) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
