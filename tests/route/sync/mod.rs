//! Routes from outside: the binary on a simulated Network and cluster.

use crate::common::library;
use crate::common::routes as world;

mod doubt;
mod life;
mod many;
mod meanwhile;
mod replaced;
mod switches;
mod trouble;
