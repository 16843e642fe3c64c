//! The route controller's plan: every state of a route with every state of a node and its server, and what holds
//! for any network.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::memory;
use crate::common::random;

mod property;
mod rules;
mod table;
mod world;
