//! A cluster with Services, as its admin and the cloud's console see it.

pub use crate::common::cluster::{
    CLUSTER_UID, Cluster, FINALIZER, SERVICE_UID, id, key, len, listen_ports, service, targets,
    text,
};
use crate::common::{
    self, Daemon, Env, Ran, Simulate, all_initialised, is_initialised, wait_at_most, wait_until,
};
use sandbox::Sandbox;
use sandbox::calls::Call;
use serde_json::Value;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// The resync period is so long that no resync happens in a test.
pub const NO_RESYNC: &str = "--load-balancer-resync-period=24h";
/// The resync comes once a minute, which is as often as refreshes may come. That is 1.2 s in scaled time.
pub const OFTEN: &str = "--load-balancer-resync-period=10s";

pub const HCLOUD: &str = "--cloud-provider=hcloud";
/// Flags of both profiles.
pub const PROFILES: [&str; 2] = ["--cloud-provider=ccm-from-scratch", HCLOUD];

pub struct World {
    pub sandbox: Arc<Sandbox>,
    pub env: Env,
}

impl World {
    pub fn new(nodes: usize) -> World {
        World::of(common::builder().nodes(nodes))
    }

    pub fn with_network(nodes: usize) -> World {
        World::of(common::builder().nodes(nodes).network("10.0.0.0/8"))
    }

    pub fn of(builder: sandbox::Builder) -> World {
        World::at(builder.heartbeats(false).simulated())
    }

    /// Starts a world over sockets, with programs as processes.
    pub fn over_sockets(builder: sandbox::Builder) -> World {
        World::at(Arc::new(builder.scale(0.02).heartbeats(false).start()))
    }

    fn at(sandbox: Arc<Sandbox>) -> World {
        let env = common::with(
            common::env(&sandbox),
            &[("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"), ("HCLOUD_LOAD_BALANCERS_TYPE", "lb11")],
        );
        World { sandbox, env }
    }

    /// Sets variables of the programs that start from now on.
    pub fn set(&mut self, variables: &[(&str, &str)]) {
        self.env = common::with(self.env.clone(), variables);
    }

    /// Runs a command to its end.
    pub fn ccm(&self, words: &[&str]) -> Ran {
        common::ccm(&self.env, words)
    }

    /// A daemon, and its nodes initialised.
    pub fn daemon(&self, flags: &[&str]) -> Daemon {
        let daemon = Daemon::start(&self.env, flags);
        wait_until("initialised nodes", || all_initialised(&self.sandbox));
        // The first pass also searches for orphans. It must be over before a test begins to count.
        self.ticks(1);
        daemon
    }

    /// Runs one pass of all controllers, nodes first.
    pub fn once(&self, flags: &[&str]) -> Ran {
        self.ccm(&[&["run", "--once"], &common::LONG_LEASE[..], flags].concat())
    }

    /// Runs passes until there is nothing left to do.
    pub fn converge(&self, flags: &[&str]) {
        // The first pass of a new cluster looks at Services while nodes are being initialised.
        for _ in 0..2 {
            self.once(flags).with_code(0);
        }
    }

    /// Waits until the Service has an address. Returns its load balancer.
    pub fn up(&self, name: &str) -> Value {
        wait_until("an address", || self.has_address(name));
        self.balancer(name)
    }

    /// Changes the algorithm of a Service, and waits until its load balancer has it.
    pub fn change_algorithm(&self, name: &str) {
        let algorithm = "least_connections";
        self.annotate(name, "algorithm-type", Some(algorithm));
        wait_until("the algorithm", || self.balancer(name)["algorithm"]["type"] == algorithm);
    }

    /// Returns the IDs of the certificates that port 443 of the Service shows, or `None` when there is no such port.
    pub fn shown(&self, name: &str) -> Option<Vec<u64>> {
        let balancer = self.of_uid(&self.uid(name))?;
        let mut ports = balancer["services"].as_array().unwrap().iter();
        let port = ports.find(|port| port["listen_port"] == 443)?;
        let ids = port["http"]["certificates"].as_array();
        let ids = ids.into_iter().flatten().filter_map(Value::as_u64);
        Some(ids.collect())
    }

    /// Waits until the Service has port 443.
    pub fn has_https(&self, name: &str) {
        wait_until("port 443", || self.shown(name).is_some());
    }

    /// A new node with its server joins, and is initialised.
    pub fn join_and_wait(&self, name: &str) {
        self.join_node(name);
        wait_until("a new node", || is_initialised(&self.node(name)));
    }

    /// Waits until ccm has looked at all Services so often more.
    pub fn ticks(&self, times: usize) {
        self.ticks_within(common::LIMIT, times);
    }

    /// Waits for ticks in a world where one poll takes long.
    pub fn ticks_within(&self, limit: Duration, times: usize) {
        let polls = || {
            let is_look = |call: &Call| {
                call.duration.is_some()
                    && call.path == "/api/v1/services"
                    && call.query("fieldSelector") == Some("spec.type=LoadBalancer")
            };
            self.sandbox.calls().count(is_look)
        };
        // A poll may be in progress that began before the last action of the test.
        let enough = polls() + times + 1;
        wait_at_most(limit, "polls of Services", || polls() >= enough);
    }

    /// Returns what `lb inspect` prints.
    pub fn inspect(&self, name: &str, flags: &[&str]) -> Value {
        let name = format!("default/{name}");
        let words = [&["lb", "inspect", name.as_str(), "-o", "json"], flags].concat();
        self.ccm(&words).with_code(0).json()["items"][0].clone()
    }
}

impl Deref for World {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}
