//! A daemon at rest, and what it reads of nodes from then on.
#![allow(dead_code, clippy::unwrap_used)]

use crate::common::{Daemon, ccm, env, node, quiet, wait_until};
use sandbox::Sandbox;
use sandbox::calls::Call;
use serde_json::json;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Whole nodes are read again only where something rings.
pub const NO_REFRESH: &str = "--node-status-update-frequency=100h";

/// Services follow nodes too, and look at their labels.
const NODES_ALONE: &str = "--controllers=*,-service";

/// A read of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Table,
    Whole,
    ByName(String),
}

/// A daemon at rest, and what it does from then on.
pub struct AtRest {
    pub sandbox: Sandbox,
    pub daemon: Daemon,
    mark: u64,
}

impl AtRest {
    pub fn new(nodes: usize, frequency: &str) -> AtRest {
        let sandbox = quiet(nodes);
        assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
        let daemon = Daemon::start(&env(&sandbox), &[frequency, NODES_ALONE]);
        let mut world = AtRest {
            sandbox,
            daemon,
            mark: 0,
        };
        world.mark();
        world.looks(3);
        world.mark();
        world
    }

    /// What follows is counted from here.
    pub fn mark(&mut self) {
        self.mark = self.sandbox.calls().mark();
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

    /// Waits for so many more tables.
    pub fn looks(&self, count: usize) {
        let tables = || {
            let reads = self.reads();
            reads.iter().filter(|read| **read == Read::Table).count()
        };
        let before = tables();
        wait_until("looks at the table", || tables() >= before + count);
    }

    /// Edits what a node's kubelet reports.
    pub fn set_ready(&self, name: &str, status: &str) {
        self.sandbox.cluster().edit("nodes", None, name, |node| {
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": status }]);
        });
    }
}

pub fn is_table(call: &Call) -> bool {
    call.header("accept")
        .is_some_and(|accept| accept.contains("as=Table"))
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

pub fn is_ready(sandbox: &Sandbox, name: &str) -> bool {
    node(sandbox, name)["status"]["conditions"][0]["status"] == "True"
}

pub fn is_tainted(sandbox: &Sandbox, name: &str) -> bool {
    let taints = node(sandbox, name)["spec"]["taints"].clone();
    taints
        .as_array()
        .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == SHUTDOWN))
}
