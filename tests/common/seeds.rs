//! Many stories, each chosen by a seed, side by side; a failure says how to run it alone.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;

/// Side by side: they mostly wait.
const THREADS: usize = 8;

/// These seeds, or those of `CCM_TEST_SEED`: one (`7`) or a range (`1000-2999`). An empty variable counts as unset.
pub fn chosen(seeds: impl Iterator<Item = u64>) -> Vec<u64> {
    let chosen = std::env::var("CCM_TEST_SEED").unwrap_or_default();
    match chosen.split_once('-') {
        _ if chosen.is_empty() => seeds.collect(),
        Some((first, last)) => (first.parse().unwrap()..=last.parse().unwrap()).collect(),
        None => vec![chosen.parse().unwrap()],
    }
}

/// Runs all seeds, or those of `CCM_TEST_SEED`: one (`7`) or a range (`1000-2999`), each once. Prints why each failed
/// one failed; at the end the seeds that failed, and the command that runs the first one alone. Answers how many it ran.
pub fn for_each_seed(
    test: &str,
    seeds: impl Iterator<Item = u64>,
    run: impl Fn(u64) -> Result<(), String> + Sync,
) -> usize {
    let seeds = chosen(seeds);
    let (count, begun) = (seeds.len(), Instant::now());
    let seeds = Mutex::new(seeds.into_iter());
    let failed: Mutex<BTreeSet<u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(count) {
            scope.spawn(|| {
                while let Some(seed) = { seeds.lock().unwrap().next() } {
                    let run = std::panic::AssertUnwindSafe(|| run(seed));
                    let outcome = std::panic::catch_unwind(run);
                    let outcome = outcome.unwrap_or_else(|_| Err("it panicked, see above".into()));
                    if let Err(why) = outcome {
                        eprintln!("seed {seed}: {why}");
                        failed.lock().unwrap().insert(seed);
                    }
                }
            });
        }
    });
    println!("{count} stories in {:.1} s", begun.elapsed().as_secs_f64());
    let failed = failed.into_inner().unwrap();
    let Some(seed) = failed.first() else {
        return count;
    };
    panic!(
        "{} of {count} failed, seeds {failed:?}, each with its reason above\n\
         alone: CCM_TEST_SEED={seed} cargo test --test {test}",
        failed.len()
    );
}
