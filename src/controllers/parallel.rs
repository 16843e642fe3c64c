//! Works on several nodes at the same time with threads that end after the work. These threads only write to the APIs.
//! Only the thread of the controller changes the state of the controller.

use crate::provider::order;
use crate::provider::{clock, heartbeat, lock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `work` for each item, on at most `threads` threads. Returns the results in the order of the items. After a
/// result for which `ends` returns `true`, no other item is begun. Items that were not begun have no result.
///
/// The calling thread works, too. When `threads` is 1, no other thread is started. When a thread can't be started, the
/// other threads do its work.
pub(super) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
    ends: impl Fn(&R) -> bool + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work_on = || {
        while let place = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(place)
        {
            let result = work(item);
            if ends(&result) {
                next.fetch_max(items.len(), Ordering::Relaxed);
            }
            lock(&results).push((place, result));
        }
    };
    let heartbeat = heartbeat::installed();
    let helpers = if clock::is_simulated() { 0 } else { threads.min(items.len()) };
    thread::scope(|scope| {
        for _ in 1..helpers {
            let helper = || {
                heartbeat.iter().cloned().for_each(heartbeat::install);
                work_on();
            };
            drop(thread::Builder::new().spawn_scoped(scope, helper));
        }
        work_on();
    });
    let mut results = std::mem::take(&mut *lock(&results));
    order::sort_by_key(&mut results, |(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread::ThreadId;

    #[test]
    fn results_have_the_order_of_their_items_and_so_many_are_made_at_once() {
        for threads in [1, 2, 5] {
            // The work on each item waits here until every thread has begun an item. The test therefore ends only if
            // all threads work at the same time.
            let all = Barrier::new(threads);
            let items: Vec<usize> = (0..20 * threads).collect();
            let work = |item: &usize| {
                all.wait();
                (*item, thread::current().id())
            };
            let results = in_parallel(&items, threads, work, |_| false);
            let (done, by): (Vec<usize>, HashSet<ThreadId>) = results.into_iter().unzip();
            assert_eq!(done, items, "{threads}");
            assert_eq!(by.len(), threads);
            assert!(by.contains(&thread::current().id()));
        }
        assert!(in_parallel(&[], 5, |item: &u8| *item, |_| false).is_empty());
    }

    #[test]
    fn after_a_result_that_ends_it_no_other_item_is_begun() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [1, 5] {
            let begun = AtomicUsize::new(0);
            let work = |item: &usize| {
                begun.fetch_add(1, Ordering::Relaxed);
                *item
            };
            let results = in_parallel(&items, threads, work, |item| *item == 7);
            assert_eq!(results.len(), begun.into_inner(), "{threads}");
            assert_eq!(results, items[..results.len()], "{threads}");
            assert!(threads > 1 || results.len() == 8);
        }
    }
}
