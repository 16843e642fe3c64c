//! Fault stories: random faults by seed, and what must hold at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod node;
mod route;
mod service;

use common::seeds::for_each_seed;
use std::fmt::Debug;
use std::sync::Mutex;

/// What the stories of one kind were made of, over all of them.
trait Tally: Debug + Default + Send {
    /// A storm that became a breeze, because the way stories are made was changed, shows nothing.
    fn assert_storm(&self);
}

/// One story for each seed, which adds to the tally.
fn run_stories<T: Tally>(
    name: &str,
    count: u64,
    story: impl Fn(u64, &Mutex<T>) -> Result<(), String> + Sync,
) {
    let tally = Mutex::default();
    let run = for_each_seed(name, 1..=count, |seed| story(seed, &tally));
    let tally: T = tally.into_inner().unwrap();
    println!("{tally:?}");
    if run == count as usize {
        tally.assert_storm();
    }
}
