//! A daemon that has done all its work: all nodes are initialised, and nothing changes until the test changes
//! something. Tests count how often this daemon reads nodes.
#![allow(dead_code, clippy::unwrap_used)]

use crate::common::{Cluster, Daemon, SHUTDOWN, simulated_cluster, wait_until};
use sandbox::Sandbox;
use sandbox::calls::Call;
use std::sync::Arc;

/// The flag that makes the daemon compare all nodes with their servers only every 100 hours, so that this does not
/// happen during a test. The daemon then lists nodes only in the table format of `kubectl get`. It reads whole Node
/// objects only after the table has shown a change of a node.
pub const NO_REFRESH: &str = "--node-status-update-frequency=100h";

/// The flag that starts all controllers except the Service controller. The tests count how often the other controllers
/// read nodes, and the Service controller would add its own reads to this count.
const NODES_ALONE: &str = "--controllers=*,-service";

/// How an API call reads nodes. `Table` is the list of all nodes as a table, the format for `kubectl get`. `Whole` is
/// the list of all nodes as complete Node objects. `ByName` is a single Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Table,
    Whole,
    ByName(String),
}

/// A daemon that has done all its work and only looks for changes. The value also contains a position in the log of API
/// calls, and only API calls after this position are counted.
pub struct SteadyState {
    pub sandbox: Arc<Sandbox>,
    pub daemon: Daemon,
    mark: u64,
}

impl SteadyState {
    pub fn new(nodes: usize, frequency: &str) -> SteadyState {
        let sandbox = simulated_cluster(nodes);
        sandbox.converge();
        let daemon = sandbox.daemon(&[frequency, NODES_ALONE]);
        let mut world = SteadyState { sandbox, daemon, mark: 0 };
        world.reset_count();
        world.wait_for_polls(3);
        world.reset_count();
        world
    }

    /// Starts the count of API calls anew. API calls that were made earlier are no longer counted.
    pub fn reset_count(&mut self) {
        self.mark = self.mark();
    }

    pub fn calls(&self) -> Vec<Call> {
        self.sandbox.calls().calls_since(self.mark)
    }

    pub fn reads(&self) -> Vec<Read> {
        self.calls().iter().filter_map(read).collect()
    }

    pub fn by_name(&self, name: &str) -> usize {
        let wanted = Read::ByName(name.into());
        self.reads().iter().filter(|read| **read == wanted).count()
    }

    pub fn whole(&self) -> usize {
        let reads = self.reads();
        reads.iter().filter(|read| **read == Read::Whole).count()
    }

    /// Waits until the daemon has listed the nodes `count` more times in the table format of `kubectl get`. The daemon
    /// uses this format when it looks for changes of nodes.
    pub fn wait_for_polls(&self, count: usize) {
        let tables = || {
            let reads = self.reads();
            reads.iter().filter(|read| **read == Read::Table).count()
        };
        let before = tables();
        wait_until("polls of the table", || tables() >= before + count);
    }

    /// Whether the node is tainted because its server is off.
    pub fn is_tainted(&self, name: &str) -> bool {
        self.has_taint(name, SHUTDOWN)
    }
}

impl Cluster for SteadyState {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }
}

pub fn is_table(call: &Call) -> bool {
    call.header("accept").is_some_and(|accept| accept.contains("as=Table"))
}

pub fn read(call: &Call) -> Option<Read> {
    if call.method != "GET" || call.caller == "admin" {
        return None;
    }
    match call.path.strip_prefix("/api/v1/nodes")? {
        "" if is_table(call) => Some(Read::Table),
        "" => Some(Read::Whole),
        name => Some(Read::ByName(name.trim_start_matches('/').into())),
    }
}
