//! A fake cloud for tests of the executor. Each change contains the answers that the cloud gives to it.

use super::super::*;
use crate::provider::{Description, Write, WriteVerb};
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The answer of the fake cloud to a change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Done,
    /// The cloud starts an action that ends with success after this many seconds.
    Runs(u64),
    /// The cloud starts an action that fails after this many seconds.
    Fails(u64),
    /// The cloud starts an action that never ends.
    Forever,
    /// The change is made without an action. The answer comes only after this many milliseconds.
    Slow(u64),
    LookAgain,
    Error(fn() -> ErrorKind),
}

pub(super) const BUSY: Answer = Answer::Error(|| ErrorKind::Busy);
pub(super) const PUT_OFF: Answer =
    Answer::Error(|| ErrorKind::RateLimited { retry_in: Duration::from_millis(1), put_off: true });
pub(super) const NO: Answer = Answer::Error(|| ErrorKind::Other);
pub(super) const AWAY: Answer = Answer::Error(|| ErrorKind::Unavailable);

#[derive(Debug)]
pub(super) struct Step {
    name: String,
    answers: Mutex<VecDeque<Answer>>,
    follows: bool,
    alone: bool,
    needs_another: bool,
}

#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Cloud>);

#[derive(Debug, Default)]
pub(super) struct Cloud {
    log: Mutex<Vec<String>>,
    actions: Mutex<HashMap<ActionId, (Instant, bool)>>,
    last: AtomicU64,
    /// How many of the next requests for the state of actions are answered with an error.
    pub(super) deaf: AtomicI64,
    in_flight: AtomicI64,
    pub(super) most_in_flight: AtomicI64,
    /// Whether the fake cloud says that the process is about to end, when the executor asks this.
    pub(super) is_ending: AtomicBool,
    /// How often the executor has asked whether the process is about to end. It asks in each round of its loop, so a
    /// large number shows a busy loop.
    pub(super) rounds: AtomicU64,
}

/// Returns a change that is sent only after the actions of earlier changes have ended. When this change fails, the
/// changes after it are dropped.
pub(super) fn step(name: &str, answers: &[Answer]) -> Step {
    step_of(name, answers, false, false)
}

/// Returns a change that behaves like the addition of a target. It is sent without waiting for the actions of earlier
/// changes. When it fails, the changes after it are still made.
pub(super) fn target(name: &str, answers: &[Answer]) -> Step {
    step_of(name, answers, true, true)
}

/// Returns a change that removes the last target of a load balancer. The executor drops it when no other target could
/// be added before it.
pub(super) fn last(name: &str, answers: &[Answer]) -> Step {
    Step { needs_another: true, ..step(name, answers) }
}

pub(super) fn step_of(name: &str, answers: &[Answer], follows: bool, alone: bool) -> Step {
    Step {
        name: name.to_owned(),
        answers: Mutex::new(answers.iter().copied().collect()),
        follows,
        alone,
        needs_another: false,
    }
}

impl Deref for Fake {
    type Target = Cloud;

    fn deref(&self) -> &Cloud {
        &self.0
    }
}

impl Fake {
    /// Makes all changes of these lists, and returns when all have ended. Each list contains the changes of one object.
    /// Returns an [`Execution`] for each list, in the same order, which says what was made and what failed.
    pub(super) fn run(&self, lists: Vec<Vec<Step>>) -> Vec<Execution<usize>> {
        self.run_with(lists, 4)
    }

    pub(super) fn run_with(
        &self,
        lists: Vec<Vec<Step>>,
        concurrency: usize,
    ) -> Vec<Execution<usize>> {
        self.executor(lists).run(self, concurrency)
    }

    /// Returns an executor with the changes of these lists. Each list contains the changes of one object. The `subject`
    /// of each object is the index of its list, so that a test recognises the object.
    pub(super) fn executor(&self, lists: Vec<Vec<Step>>) -> Executor<usize> {
        let mut executor = Executor::new("test");
        for (place, steps) in lists.into_iter().enumerate() {
            let object = format!("service/default/{place}");
            executor.begin(object, self.changes(steps), place, None);
        }
        executor
    }

    /// Makes the changes of several objects, one object after the other, with an executor that [`Executor::in_turn`]
    /// creates. Each item of `lists` has the changes of one object, and the time by which the first of them must be
    /// sent. Returns when all have ended.
    pub(super) fn run_in_turn(
        &self,
        lists: Vec<(Option<Instant>, Vec<Step>)>,
    ) -> Vec<Execution<usize>> {
        let mut executor = Executor::in_turn("test");
        for (place, (begins_by, steps)) in lists.into_iter().enumerate() {
            let changes = self.changes(steps);
            executor.begin(place.to_string(), changes, place, begins_by);
        }
        executor.run(self, 1)
    }

    pub(super) fn changes(&self, steps: Vec<Step>) -> Vec<Box<dyn Change>> {
        let change = |step| {
            let cloud = Arc::clone(&self.0);
            Box::new(Planned { step, cloud }) as Box<dyn Change>
        };
        steps.into_iter().map(change).collect()
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Returns the names of the changes in the order in which they were sent.
    pub(super) fn sent(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| !line.starts_with("ask")).collect()
    }
}

impl Cloud {
    fn start(&self, seconds: Option<u64>, well: bool) -> ActionId {
        let id = ActionId(self.last.fetch_add(1, Relaxed) + 1);
        let time = Duration::from_secs(seconds.unwrap_or(1_000_000));
        let end = (clock::now() + time, well);
        self.actions.lock().unwrap().insert(id, end);
        id
    }
}

impl Actions for Fake {
    fn may_wait(&self) -> bool {
        self.rounds.fetch_add(1, Relaxed);
        !self.is_ending.load(Relaxed)
    }

    fn ended(
        &self,
        ids: &[ActionId],
    ) -> Result<HashMap<ActionId, Result<(), ProviderError>>, ProviderError> {
        self.log.lock().unwrap().push(format!("ask {}", ids.len()));
        if self.deaf.fetch_sub(1, Relaxed) > 0 {
            return Err(ProviderError::new(ErrorKind::Unavailable, "away"));
        }
        let actions = self.actions.lock().unwrap();
        let ended = ids.iter().filter_map(|id| {
            let (at, well) = actions[id];
            let end = if well {
                Ok(())
            } else {
                Err(ProviderError::new(ErrorKind::Other, "it did not work out"))
            };
            (at <= clock::now()).then_some((*id, end))
        });
        Ok(ended.collect())
    }
}

/// A planned change, together with the fake cloud to which it is sent.
#[derive(Debug)]
struct Planned {
    step: Step,
    cloud: Arc<Cloud>,
}

impl Write for Planned {
    fn word(&self) -> &'static str {
        "step"
    }

    fn description(&self) -> Description {
        Description::new(WriteVerb::ADD, &self.step.name, "")
    }

    fn json(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

impl Change for Planned {
    fn apply(&self) -> Result<Applied, ProviderError> {
        let Planned { step, cloud } = self;
        cloud.log.lock().unwrap().push(step.name.clone());
        let now = cloud.in_flight.fetch_add(1, Relaxed) + 1;
        cloud.most_in_flight.fetch_max(now, Relaxed);
        clock::sleep(if clock::is_simulated() {
            Duration::from_secs(1)
        } else {
            Duration::from_millis(2)
        });
        let mut answers = step.answers.lock().unwrap();
        let answer = match answers.len() {
            1 => answers[0],
            _ => answers.pop_front().unwrap(),
        };
        if let Answer::Slow(ms) = answer {
            clock::sleep(Duration::from_millis(ms));
        }
        cloud.in_flight.fetch_sub(1, Relaxed);
        match answer {
            Answer::Done | Answer::Slow(_) => Ok(Applied::Done),
            Answer::Runs(ms) => Ok(Applied::Running(cloud.start(Some(ms), true))),
            Answer::Fails(ms) => Ok(Applied::Running(cloud.start(Some(ms), false))),
            Answer::Forever => Ok(Applied::Running(cloud.start(None, true))),
            Answer::LookAgain => Ok(Applied::LookAgain(Some(cloud.start(Some(2), true)))),
            Answer::Error(kind) => Err(ProviderError::new(kind(), format!("{}: no", step.name))),
        }
    }

    fn kind(&self) -> ChangeKind {
        if self.step.alone || self.step.needs_another {
            ChangeKind::Targets
        } else {
            ChangeKind::Settings
        }
    }

    fn may_follow_at_once(&self) -> bool {
        self.step.follows
    }

    fn may_fail_alone(&self) -> bool {
        self.step.alone
    }

    fn needs_another_first(&self) -> bool {
        self.step.needs_another
    }
}
