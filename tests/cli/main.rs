//! Tests of what a user types and reads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod completions;
mod config;
mod doctor;
mod drop_in;
mod errors;
mod groups;
mod help;
mod kubectl_usage;
mod lb;
mod leader;
mod lint;
mod node;
mod outages;
mod printed;
mod route;
mod screens;
mod scripting;
mod settings;
mod terminal;
