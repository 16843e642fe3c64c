//! The route controller's plan: every state of a route with every state of a node and its server, and the properties of
//! a plan for any network.

use crate::common::{fake_provider, random};

mod property;
mod rules;
mod table;
mod world;
