//! Routes from outside: the binary on a simulated Network and cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/library.rs"]
mod library;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/seeds.rs"]
mod seeds;

mod doubt;
mod life;
mod many;
mod meanwhile;
mod replaced;
mod storm;
mod switches;
mod trouble;
mod world;
