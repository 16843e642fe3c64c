//! A cloud that answers to each change what the change says.

use super::super::*;
use crate::provider::{Cluster, LoadBalancerPlan, OfferedNode, Orphan, Service, Source, Urgency};
use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// A second of the waits; the longest action is 240 ms.
pub(super) const SCALE: f64 = 0.002;

/// What the fake cloud answers to a change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Done,
    /// An action, for so many milliseconds.
    Runs(u64),
    /// An action that fails then.
    Fails(u64),
    /// It never ends.
    Forever,
    /// Done, and the answer takes so many milliseconds.
    Slow(u64),
    LookAgain,
    Error(fn() -> ErrorKind),
}

pub(super) const BUSY: Answer = Answer::Error(|| ErrorKind::Busy);
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

#[derive(Default)]
pub(super) struct Fake {
    log: Mutex<Vec<String>>,
    actions: Mutex<HashMap<ActionId, (Instant, bool)>>,
    last: AtomicU64,
    /// Questions that get no answer.
    pub(super) deaf: AtomicI64,
    in_flight: AtomicI64,
    pub(super) most_in_flight: AtomicI64,
    /// The process is to end.
    pub(super) is_ending: AtomicBool,
}

/// A step that is made in its turn.
pub(super) fn step(name: &str, answers: &[Answer]) -> Box<dyn Change> {
    boxed(name, answers, false, false)
}

/// One that may follow at once, and may fail alone: a target.
pub(super) fn target(name: &str, answers: &[Answer]) -> Box<dyn Change> {
    boxed(name, answers, true, true)
}

/// One that takes the last target away.
pub(super) fn last(name: &str, answers: &[Answer]) -> Box<dyn Change> {
    Box::new(Step {
        needs_another: true,
        ..unboxed(name, answers)
    })
}

/// All of these begun; the subject of each is its place.
pub(super) fn executor(lists: Vec<Vec<Box<dyn Change>>>) -> Executor<usize> {
    let mut executor = Executor::new("test", SCALE);
    for (place, changes) in lists.into_iter().enumerate() {
        executor.begin(format!("service/default/{place}"), changes, place, false);
    }
    executor
}

pub(super) fn boxed(name: &str, answers: &[Answer], follows: bool, alone: bool) -> Box<dyn Change> {
    Box::new(Step {
        follows,
        alone,
        ..unboxed(name, answers)
    })
}

fn unboxed(name: &str, answers: &[Answer]) -> Step {
    Step {
        name: name.to_owned(),
        answers: Mutex::new(answers.iter().copied().collect()),
        follows: false,
        alone: false,
        needs_another: false,
    }
}

impl Fake {
    /// Executes each of these lists until its end; the executions, in the order of the lists.
    pub(super) fn run(&self, lists: Vec<Vec<Box<dyn Change>>>) -> Vec<Execution<usize>> {
        self.run_with(lists, 4)
    }

    pub(super) fn run_with(
        &self,
        lists: Vec<Vec<Box<dyn Change>>>,
        concurrency: usize,
    ) -> Vec<Execution<usize>> {
        executor(lists).run(self, concurrency)
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// What was sent, in its order.
    pub(super) fn sent(&self) -> Vec<String> {
        let log = self.log().into_iter();
        log.filter(|line| !line.starts_with("ask")).collect()
    }

    fn start(&self, ms: Option<u64>, well: bool) -> ActionId {
        let id = ActionId(self.last.fetch_add(1, Relaxed) + 1);
        let time = Duration::from_millis(ms.unwrap_or(3_600_000));
        let end = (Instant::now() + time, well);
        self.actions.lock().unwrap().insert(id, end);
        id
    }
}

impl LoadBalancers for Fake {
    fn may_wait(&self) -> bool {
        !self.is_ending.load(Relaxed)
    }

    fn apply(&self, change: &dyn Change) -> Result<Applied, Error> {
        let step = change.as_any().downcast_ref::<Step>().unwrap();
        self.log.lock().unwrap().push(step.name.clone());
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Relaxed);
        std::thread::sleep(Duration::from_millis(2));
        let mut answers = step.answers.lock().unwrap();
        let answer = match answers.len() {
            1 => answers[0],
            _ => answers.pop_front().unwrap(),
        };
        if let Answer::Slow(ms) = answer {
            std::thread::sleep(Duration::from_millis(ms));
        }
        self.in_flight.fetch_sub(1, Relaxed);
        match answer {
            Answer::Done | Answer::Slow(_) => Ok(Applied::Done),
            Answer::Runs(ms) => Ok(Applied::Running(self.start(Some(ms), true))),
            Answer::Fails(ms) => Ok(Applied::Running(self.start(Some(ms), false))),
            Answer::Forever => Ok(Applied::Running(self.start(None, true))),
            Answer::LookAgain => Ok(Applied::LookAgain(Some(self.start(Some(5), true)))),
            Answer::Error(kind) => Err(Error::new(kind(), format!("{}: no", step.name))),
        }
    }

    fn ended(&self, ids: &[ActionId]) -> Result<HashMap<ActionId, Result<(), Error>>, Error> {
        self.log.lock().unwrap().push(format!("ask {}", ids.len()));
        if self.deaf.fetch_sub(1, Relaxed) > 0 {
            return Err(Error::new(ErrorKind::Unavailable, "away"));
        }
        let actions = self.actions.lock().unwrap();
        let ended = ids.iter().filter_map(|id| {
            let (at, well) = actions[id];
            let end = match well {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::Other, "it did not work out")),
            };
            (at <= Instant::now()).then_some((*id, end))
        });
        Ok(ended.collect())
    }

    fn observe(&self, _: &[&Service], _: Urgency) -> Result<Snapshot, Error> {
        unreachable!()
    }

    fn covers(&self, _: &Snapshot, _: &Service) -> bool {
        unreachable!()
    }

    fn plan(&self, _: &Snapshot, _: &Service, _: &[OfferedNode], _: &Cluster) -> LoadBalancerPlan {
        unreachable!()
    }

    fn plan_removal(
        &self,
        _: &Snapshot,
        _: &Service,
        _: &[OfferedNode],
        _: &Cluster,
    ) -> LoadBalancerPlan {
        unreachable!()
    }

    fn orphans(&self, _: &Snapshot, _: &Cluster) -> Vec<Orphan> {
        unreachable!()
    }
}

impl Change for Step {
    fn line(&self) -> String {
        self.name.clone()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn sources(&self) -> Vec<Source> {
        Vec::new()
    }

    fn kind(&self) -> ChangeKind {
        match self.alone || self.needs_another {
            true => ChangeKind::Targets,
            false => ChangeKind::Settings,
        }
    }

    fn may_follow_at_once(&self) -> bool {
        self.follows
    }

    fn may_fail_alone(&self) -> bool {
        self.alone
    }

    fn needs_another_first(&self) -> bool {
        self.needs_another
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
