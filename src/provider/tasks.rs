//! Tasks that run side by side, each on a thread of its own. Their results come in the order in which the tasks end.
//!
//! In a simulation a task runs when its result is waited for, on the waiting thread, and the simulation chooses which
//! of several tasks is next.

use super::clock;
use std::cell::{Cell, RefCell};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// The tasks of a scope. All of them end before the scope.
pub struct Tasks<'scope, 'env, R> {
    place: TaskPlace<'scope, 'env, R>,
    /// How many tasks were begun whose results were not fetched.
    open: Cell<usize>,
}

type BoxedTask<'env, R> = Box<dyn FnOnce() -> R + Send + 'env>;

enum TaskPlace<'scope, 'env, R> {
    Threads {
        scope: &'scope Scope<'scope, 'env>,
        results: Receiver<R>,
        /// The sender of results, which is cloned for each task.
        sender: Sender<R>,
    },
    Simulated {
        /// The tasks that did not run yet, with the time at which each was begun.
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

    /// Returns how many results have not been fetched yet.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    pub fn begin(&self, task: impl FnOnce() -> R + Send + 'env) {
        self.open.update(|open| open + 1);
        match &self.place {
            TaskPlace::Threads { scope, sender, .. } => {
                let sender = sender.clone();
                // When there is no receiver any more, nobody needs the result.
                scope.spawn(move || drop(sender.send(task())));
            }
            TaskPlace::Simulated { waiting } => {
                waiting.borrow_mut().push((clock::now(), Box::new(task)))
            }
        }
    }

    /// Returns the next result, or `None` when no task has ended within this time.
    pub fn next(&self, wait: Duration) -> Option<R> {
        let result = match &self.place {
            TaskPlace::Threads { results, .. } => {
                results.recv_timeout(clock::to_machine(wait)).ok()
            }
            TaskPlace::Simulated { waiting } => {
                // With a wait of zero, only tasks that began before this moment can have ended. One that began at this
                // moment is not chosen.
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
                // The list is not borrowed while the task runs.
                let task = chosen.map(|chosen| waiting.borrow_mut().swap_remove(chosen));
                task.map(|(_, task)| task())
            }
        };
        self.open.update(|open| open - usize::from(result.is_some()));
        result
    }
}

/// Runs the tasks that did not run yet, just as the end of a thread scope waits for its threads.
impl<R> Drop for Tasks<'_, '_, R> {
    fn drop(&mut self) {
        if let TaskPlace::Simulated { waiting } = &self.place {
            for (_, task) in waiting.take() {
                drop(task());
            }
        }
    }
}
