//! Chooses the seeds of the random numbers in a test run.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

/// Returns the seeds in the environment variable `CCM_TEST_SEED`, or `seeds` when the variable is not set or empty. The
/// variable contains one seed (`7`) or a range of seeds (`1000-2999`).
pub fn chosen(seeds: impl Iterator<Item = u64>) -> Vec<u64> {
    let chosen = std::env::var("CCM_TEST_SEED").unwrap_or_default();
    if chosen.is_empty() {
        return seeds.collect();
    }
    let (first, last) = chosen.split_once('-').unwrap_or((&chosen, &chosen));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => (first..=last).collect(),
        _ => {
            panic!("CCM_TEST_SEED={chosen}: give a number such as 7, or a range such as 1000-2999")
        }
    }
}
