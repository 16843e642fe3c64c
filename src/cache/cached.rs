//! Keeps the last answer to each kind of call to an API, with its age. The code that needs the data says how old the
//! answer may be. This file also decides when an API that did not answer is called again.

use crate::kube;
pub(super) use crate::provider::heartbeat::turn;
use crate::provider::{self, ErrorKind, clock, lock};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// After the first failure of an API, the API is not called for `FIRST_WAIT`. The wait doubles with each further
/// failure, up to `LONGEST_WAIT`.
const FIRST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The text that [`CacheError::state`] returns for a postponed refresh of cached data. Refreshes are postponed when
/// only few calls remain in the API's rate limit. The API still answers, and urgent calls are still made.
pub const PUT_OFF: &str = "refreshes postponed";

/// A cached answer of an API, with the moments when it was requested and when it came.
#[derive(Debug)]
pub struct View<T> {
    pub value: Arc<T>,
    /// The moment just before the call was sent. So the answer shows the state of the API at this moment or later.
    pub asked: Instant,
    /// The moment when the answer came.
    pub answered: Instant,
}

/// The error of a failed call. The variant says which API was called.
#[derive(Debug)]
pub enum CacheError {
    Kube(kube::KubeError),
    Cloud(provider::ProviderError),
    /// The error of a failed call to the API of dedicated servers. The daemon goes on after such an error, even when
    /// the credentials are wrong, because it can still manage the cloud servers.
    Dedicated(provider::ProviderError),
}

impl CacheError {
    /// Returns a text that names the API and the kind of failure. As long as the errors of an API have the same text,
    /// they are reported as one outage.
    pub fn state(&self) -> &'static str {
        let (error, [limited, refuses, unavailable]) = match self {
            CacheError::Kube(error) if error.is_permanent() => return "kubernetes refuses",
            CacheError::Kube(_) => return "kubernetes unavailable",
            CacheError::Cloud(error) if error.is_put_off() => return PUT_OFF,
            CacheError::Cloud(it) => {
                (it, ["cloud rate limit", "cloud refuses", "cloud unavailable"])
            }
            CacheError::Dedicated(it) => {
                (it, ["robot rate limit", "robot refuses", "robot unavailable"])
            }
        };
        match error.kind {
            ErrorKind::RateLimited { .. } => limited,
            _ if error.is_permanent() => refuses,
            _ => unavailable,
        }
    }

    /// Whether the Kubernetes API or the cloud's API does not accept the credentials. A login that the API of dedicated
    /// servers does not accept is not counted, because the daemon goes on without that API.
    pub fn is_unauthorized(&self) -> bool {
        match self {
            CacheError::Kube(error) => error.is_unauthorized(),
            CacheError::Cloud(error) => error.kind == ErrorKind::Unauthorized,
            CacheError::Dedicated(_) => false,
        }
    }

    /// Whether this process itself refused to send a write, because it is not the leader, is about to end, or runs a
    /// command that must not write, e.g. with `--dry-run`. Such an error does not mean that an API fails.
    pub fn is_refused(&self) -> bool {
        match self {
            CacheError::Kube(error) => error.is_refused(),
            CacheError::Cloud(error) | CacheError::Dedicated(error) => {
                error.kind == ErrorKind::Refused
            }
        }
    }

    /// Whether a call to the Kubernetes API or the cloud's API fails again until a setting, a credential or a role is
    /// fixed. Errors of the API of dedicated servers are not counted, because the daemon goes on without that API.
    pub fn is_permanent(&self) -> bool {
        match self {
            CacheError::Kube(error) => error.is_permanent(),
            CacheError::Cloud(error) => error.is_permanent(),
            CacheError::Dedicated(_) => false,
        }
    }
}

impl From<kube::KubeError> for CacheError {
    fn from(error: kube::KubeError) -> CacheError {
        CacheError::Kube(error)
    }
}

impl From<provider::ProviderError> for CacheError {
    fn from(error: provider::ProviderError) -> CacheError {
        CacheError::Cloud(error)
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::Kube(error) => error.fmt(f),
            CacheError::Cloud(error) | CacheError::Dedicated(error) => error.fmt(f),
        }
    }
}

/// The last answer to one kind of call, for example the list of all Services. All threads share it.
#[derive(Debug)]
pub(super) struct Cached<T> {
    last: Mutex<Option<View<T>>>,
}

impl<T> Cached<T> {
    /// Returns the cached answer when it is no older than `max_age`. Otherwise calls the API and returns the new
    /// answer. When several threads need a new answer, one thread makes the call, and the others wait. A thread that
    /// has waited uses the new answer when it is no older than `max_age`, and otherwise makes a call itself.
    pub(super) fn get<E>(
        &self,
        max_age: Duration,
        fetch: impl FnOnce() -> Result<T, E>,
    ) -> Result<View<T>, E> {
        self.get_if(|view| view.age() <= max_age, fetch)
    }

    /// Returns the cached answer when `is_fresh` accepts it. Otherwise calls the API and returns the new answer. When
    /// several threads need a new answer, one thread makes the call, and the others wait. A thread that has waited uses
    /// the new answer when `is_fresh` accepts it, and otherwise makes a call itself.
    pub(super) fn get_if<E>(
        &self,
        is_fresh: impl Fn(&View<T>) -> bool,
        fetch: impl FnOnce() -> Result<T, E>,
    ) -> Result<View<T>, E> {
        let mut last = turn(&self.last);
        if let Some(view) = last.as_ref().filter(|view| is_fresh(view)) {
            return Ok(view.clone());
        }
        let asked = clock::now();
        let value = Arc::new(fetch()?);
        let view = View::new(value, asked);
        *last = Some(view.clone());
        Ok(view)
    }

    /// Stores data that the caller itself has read from the API, by a call that began at `asked`.
    pub(super) fn put(&self, value: T, asked: Instant) -> View<T> {
        let view = View::new(Arc::new(value), asked);
        *turn(&self.last) = Some(view.clone());
        view
    }

    /// Changes a part of the cached value and returns the changed value. The age of the value stays the same, because
    /// the other parts of the value were not read again. Returns `None` when no value is cached.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut T)) -> Option<Arc<T>>
    where
        T: Clone,
    {
        let mut last = turn(&self.last);
        let value = &mut last.as_mut()?.value;
        edit(Arc::make_mut(value));
        Some(Arc::clone(value))
    }

    /// Returns the cached answer, however old the answer is. Returns `None` when no answer is cached.
    pub(super) fn last(&self) -> Option<View<T>> {
        turn(&self.last).clone()
    }
}

impl<T> View<T> {
    /// Creates a `View`, i.e. an answer together with its age, of an answer that has come just now. `asked` is the
    /// moment just before the call was sent.
    pub(super) fn new(value: Arc<T>, asked: Instant) -> View<T> {
        View { value, asked, answered: clock::now() }
    }

    /// Returns a part of this answer as an answer of its own. The part has the same age as the whole answer.
    pub(super) fn map<U>(&self, part: impl FnOnce(&T) -> Arc<U>) -> View<U> {
        View { value: part(&self.value), asked: self.asked, answered: self.answered }
    }

    /// Returns the age of the answer, which is the time since its call was sent. When parts of the answer were read by
    /// several calls, the first of these calls counts.
    pub fn age(&self) -> Duration {
        clock::since(self.asked)
    }

    /// Returns the time since this answer came. A caller can use this time as the greatest age (`max_age`) of other
    /// data. These data were then requested after this answer had come.
    pub fn time_in_use(&self) -> Duration {
        clock::since(self.answered)
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> View<T> {
        View { value: Arc::clone(&self.value), asked: self.asked, answered: self.answered }
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Cached<T> {
        Cached { last: Mutex::new(None) }
    }
}

/// The pause after a failed call to an API. During the pause, the API is not called. In an outage, useless calls would
/// otherwise use up the API's hourly rate limit.
#[derive(Default)]
pub(super) struct CallPause {
    last: Mutex<Option<FailedRead>>,
    /// After a call to the API has failed, no call is made for at least this long.
    pub(super) at_least: Duration,
}

struct FailedRead {
    error: provider::ProviderError,
    wait: Duration,
    again: Instant,
}

impl CallPause {
    /// Makes the call `ask` to the API. For some time after a failed call, makes no call, and returns the error of the
    /// failed call again.
    pub(super) fn guard<T>(
        &self,
        ask: impl FnOnce() -> Result<T, provider::ProviderError>,
    ) -> Result<T, provider::ProviderError> {
        if let Some(error) = self.too_early(clock::now()) {
            return Err(error);
        }
        let outcome = ask();
        self.note(outcome.as_ref().err(), clock::now());
        outcome
    }

    fn too_early(&self, now: Instant) -> Option<provider::ProviderError> {
        let last = lock(&self.last);
        last.as_ref().filter(|failed| now < failed.again).map(|failed| failed.error.clone())
    }

    fn note(&self, error: Option<&provider::ProviderError>, now: Instant) {
        let mut last = lock(&self.last);
        let longer = |failed: FailedRead| (failed.wait * 2).min(LONGEST_WAIT);
        let wait = last.take().map_or(FIRST_WAIT, longer);
        // Only the error `Unavailable` means that the API does not answer. The next call is then delayed by a wait that
        // grows with each failure. After any other error there is no wait here, because the API has answered. After a
        // rate limit error, the client of the API itself decides how long to wait.
        let error = error.filter(|error| error.kind == ErrorKind::Unavailable);
        *last = error.map(|error| FailedRead {
            error: error.clone(),
            wait,
            again: now + wait.max(self.at_least),
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::provider::ProviderError;
    use crate::provider::heartbeat::{self, Heartbeat};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    #[test]
    fn many_readers_share_one_fetch_and_an_error_is_not_kept() {
        let cache = Cached::default();
        let fetches = AtomicU32::new(0);
        assert_eq!(cache.get(Duration::MAX, || Err("down")).err(), Some("down"));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let fetch = || Ok::<_, ()>(fetches.fetch_add(1, Ordering::Relaxed));
                    assert_eq!(*cache.get(Duration::from_secs(60), fetch).unwrap().value, 0);
                });
            }
        });
        assert_eq!(fetches.load(Ordering::Relaxed), 1);
        assert_eq!(
            *cache.get(Duration::ZERO, || Ok::<_, ()>(7)).unwrap().value,
            7,
            "no older than now"
        );
    }

    #[test]
    fn a_thread_that_waits_for_a_fetch_reports_heartbeats() {
        let cache = Cached::default();
        let (fetching, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let waiting = Arc::new(Heartbeat::default());
        let cache = &cache;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let fetch = || {
                    fetching.send(()).unwrap();
                    ended.recv().unwrap();
                    Ok::<_, ()>(1)
                };
                cache.get(Duration::MAX, fetch).unwrap();
            });
            begun.recv().unwrap();
            let heartbeat = Arc::clone(&waiting);
            scope.spawn(move || {
                heartbeat::install(heartbeat);
                assert_eq!(*cache.get(Duration::MAX, || Err(())).unwrap().value, 1);
            });
            // A thread that waits for the lock must show that it does not hang. It therefore updates its heartbeat each
            // time it tries to take the lock. The test waits until the thread has updated its heartbeat twice.
            let mut beats = 0;
            let mut silent = Duration::ZERO;
            let begun = Instant::now();
            while beats < 2 && begun.elapsed() < Duration::from_secs(30) {
                let now = waiting.silent_for();
                beats += u32::from(now < silent);
                silent = now;
            }
            end.send(()).unwrap();
            assert_eq!(beats, 2, "no sign of life while it waits");
        });
    }

    fn away() -> ProviderError {
        ProviderError::new(ErrorKind::Unavailable, "away")
    }

    #[test]
    fn it_is_asked_ever_less_often_and_at_once_when_it_is_back() {
        let pause = CallPause::default();
        let mut now = Instant::now();
        for wait_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(pause.too_early(now), None);
            pause.note(Some(&away()), now);
            now += Duration::from_secs(wait_s);
            assert_eq!(pause.too_early(now - Duration::from_millis(1)), Some(away()));
        }
        pause.note(None, now);
        assert_eq!(pause.too_early(now), None);
        pause.note(Some(&away()), now);
        assert_eq!(pause.too_early(now + FIRST_WAIT), None, "from the first wait on again");
    }

    #[test]
    fn an_answer_is_no_outage() {
        let pause = CallPause::default();
        for kind in [ErrorKind::NotFound, ErrorKind::Unauthorized, ErrorKind::Other] {
            pause.note(Some(&ProviderError::new(kind, "no")), Instant::now());
            assert_eq!(pause.too_early(Instant::now()), None);
        }
    }
}
