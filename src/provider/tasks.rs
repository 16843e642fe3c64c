//! Runs tasks at the same time, each on its own thread. Their results arrive in the order in which the tasks end.
//!
//! In a simulation (a test with a simulated clock) there are no threads. A task runs when its caller waits for a
//! result, and the simulation chooses which task runs next.

use super::clock;
use std::cell::{Cell, RefCell};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Tasks whose threads belong to one [`Scope`]. The scope ends only after all its tasks have ended.
pub struct Tasks<'scope, 'env, R> {
    place: TaskPlace<'scope, 'env, R>,
    /// The number of tasks whose results the caller has not received yet.
    open: Cell<usize>,
}

type BoxedTask<'env, R> = Box<dyn FnOnce() -> R + Send + 'env>;

enum TaskPlace<'scope, 'env, R> {
    Threads {
        scope: &'scope Scope<'scope, 'env>,
        results: Receiver<R>,
        /// The sender by which the tasks return their results. Each task has a clone of the sender.
        sender: Sender<R>,
    },
    Simulated {
        /// The tasks that have not run yet. In a simulation (a test with a simulated clock), a task runs only when the
        /// caller waits for a result. Each task is stored with the time at which the caller began it.
        waiting: RefCell<Vec<(Instant, BoxedTask<'env, R>)>>,
    },
}

impl<'scope, 'env, R: Send + 'env> Tasks<'scope, 'env, R> {
    pub fn new(scope: &'scope Scope<'scope, 'env>) -> Tasks<'scope, 'env, R> {
        let place = if clock::is_simulated() {
            TaskPlace::Simulated { waiting: RefCell::default() }
        } else {
            let (sender, results) = channel();
            TaskPlace::Threads { scope, results, sender }
        };
        Tasks { place, open: Cell::new(0) }
    }

    /// Returns the number of tasks whose results the caller has not received yet.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    pub fn begin(&self, task: impl FnOnce() -> R + Send + 'env) {
        self.open.update(|open| open + 1);
        match &self.place {
            TaskPlace::Threads { scope, sender, .. } => {
                let sender = sender.clone();
                // `send` returns an error when the receiver does not exist any more. Nobody needs the result then, so
                // the error is ignored.
                scope.spawn(move || drop(sender.send(task())));
            }
            TaskPlace::Simulated { waiting } => {
                waiting.borrow_mut().push((clock::now(), Box::new(task)))
            }
        }
    }

    /// Returns the result of the next task that ends. `None` when no task ends within the time `wait`.
    pub fn next(&self, wait: Duration) -> Option<R> {
        let result = match &self.place {
            TaskPlace::Threads { results, .. } => {
                results.recv_timeout(clock::to_machine(wait)).ok()
            }
            TaskPlace::Simulated { waiting } => {
                // When `wait` is zero, no simulated time passes during this call. Because a task takes some time, only
                // a task that the caller began at an earlier moment can end during the call. So only such a task is
                // chosen to run.
                let now = clock::now();
                let may_be_over =
                    |place: &usize| !wait.is_zero() || waiting.borrow()[*place].0 < now;
                let places = 0..waiting.borrow().len();
                let places: Vec<usize> = places.filter(may_be_over).collect();
                if places.is_empty() {
                    clock::sleep(wait);
                }
                let count = places.len();
                let chosen = (count > 0).then(|| places[clock::random() as usize % count]);
                // The task is taken out of the list first, so that the list is not borrowed while the task runs.
                let task = chosen.map(|chosen| waiting.borrow_mut().swap_remove(chosen));
                task.map(|(_, task)| task())
            }
        };
        self.open.update(|open| open - usize::from(result.is_some()));
        result
    }
}

/// In a simulation, runs the tasks that have not run yet. Without a simulation this is not needed, because the scope
/// waits until all its threads have ended.
impl<R> Drop for Tasks<'_, '_, R> {
    fn drop(&mut self) {
        if let TaskPlace::Simulated { waiting } = &self.place {
            for (_, task) in waiting.take() {
                drop(task());
            }
        }
    }
}
