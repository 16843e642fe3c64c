//! Tests of routes from outside: the binary runs on a simulated Network and cluster.

use crate::common::library;
use crate::common::routes as world;

mod concurrent_changes;
mod disabled;
mod failures;
mod lifecycle;
mod replaced;
mod scale;
mod unclear_state;
