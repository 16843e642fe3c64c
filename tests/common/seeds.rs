//! Which seeds to run.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

/// These seeds, or those of `CCM_TEST_SEED`: one (`7`) or a range (`1000-2999`). An empty variable counts as unset.
pub fn chosen(seeds: impl Iterator<Item = u64>) -> Vec<u64> {
    let chosen = std::env::var("CCM_TEST_SEED").unwrap_or_default();
    match chosen.split_once('-') {
        _ if chosen.is_empty() => seeds.collect(),
        Some((first, last)) => (first.parse().unwrap()..=last.parse().unwrap()).collect(),
        None => vec![chosen.parse().unwrap()],
    }
}
