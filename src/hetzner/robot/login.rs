//! Decides whether credentials are sent to the Robot web service. After three failed logins, Robot blocks the IP of
//! this machine for ten minutes. So credentials that were refused are not sent again for ten minutes.

use crate::http::{Credentials, Issuer, Secret, SecretSource};
use crate::metrics::ROBOT_BLOCKED;
use crate::provider::variables::{ROBOT_PASSWORD_FILE, ROBOT_USER_FILE};
use crate::provider::{clock, lock};
use jiff::Timestamp;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time for which credentials that were refused are not sent again. Robot blocks an IP for the same time.
const WAIT: Duration = Duration::from_secs(600);

/// The number of failed logins that are allowed within `WAIT`, with different credentials. Robot would block the IP
/// after a third one.
const TRIES_AT_MOST: usize = 2;

/// The user and the password for Robot. Each of them is fixed, or is read from a file before every call.
pub(super) struct RobotLogin {
    user: SecretSource,
    password: SecretSource,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The value of the header `Authorization` that was sent last. `None` until a call is sent.
    shown: Option<Secret>,
    /// The failed logins of the last ten minutes, with the oldest first. They decide which credentials must not be sent
    /// now.
    refusals: Vec<Refusal>,
    /// The time of the last failed login. `None` when a login has succeeded since then, or when no login has failed
    /// yet.
    refused: Option<Timestamp>,
}

struct Refusal {
    /// The header `Authorization` with the user and password that the web service refused. It is not sent again before
    /// `until`. `None` means that no login at all is sent before `until`.
    header: Option<Secret>,
    at: Timestamp,
    until: Instant,
    /// The date and time at which these credentials can be sent again, for messages.
    ends: Timestamp,
}

impl RobotLogin {
    pub(super) fn new(user: SecretSource, password: SecretSource) -> RobotLogin {
        ROBOT_BLOCKED.set(&["login"], 0.0);
        RobotLogin { user, password, state: Mutex::default() }
    }

    /// Records that the web service accepted the credentials that were sent last. The time of the last failed login is
    /// then forgotten.
    pub(super) fn accepted(&self) {
        lock(&self.state).refused = None;
        ROBOT_BLOCKED.set(&["login"], 0.0);
    }

    /// Records that the web service refused the credentials that were sent last. They are not sent again during `WAIT`.
    /// A second refusal of the same credentials does not make the wait longer. When `is_all` is `true`, Robot may have
    /// blocked the IP, so no credentials at all are sent during `WAIT`.
    pub(super) fn refuse(&self, is_all: bool) {
        let mut state = lock(&self.state);
        let header = state.shown.clone().filter(|_| !is_all);
        state.note(header, whole_second(clock::timestamp()), WAIT);
    }

    /// Returns the time of the last failed login, or `None` when a login has succeeded since then.
    pub(super) fn refused(&self) -> Option<Timestamp> {
        lock(&self.state).refused
    }

    /// Uses the knowledge that another process of this program was refused a login at the time `at`. As after a failed
    /// login of this process, the present credentials are not sent for a while, counted from `at`. Other credentials,
    /// from a changed file, can be sent. If `at` is in the future, because the clocks of two machines differ, the
    /// present time is used.
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

    /// Returns the time until which the present user and password are not sent, because Robot has refused a login.
    /// `None` when they can be sent now.
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
                "Robot refused a login at {}. Three failed logins block the IP of this machine for ten minutes, so \
                 ccm waits with the next login until {}, or until the file in {ROBOT_USER_FILE} or \
                 {ROBOT_PASSWORD_FILE} changes",
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
    /// Returns the failed login because of which these credentials must not be sent now. `None` when they can be sent.
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

    /// Records that Robot has refused a login. `header` is the value of the header `Authorization` that was refused,
    /// and is not sent again during `wait`. When `header` is `None`, no login is sent at all during `wait`.
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

/// Returns the time without the fraction of a second. The time of a failed login has this form in messages, and in the
/// Lease of the leader election.
pub(super) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
