//! A cluster whose pods reach each other by the routes of a Hetzner Cloud Network. Tests read and change the routes as
//! an admin could.

pub use crate::common::cluster::Cluster;
use crate::common::{self, Daemon, Env, Ran, Simulate, wait_until};
use sandbox::Sandbox;
use sandbox::calls::Call;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

pub const CIDR: &str = "--cluster-cidr=10.244.0.0/16";
pub const HCLOUD: &str = "--cloud-provider=hcloud";
/// The two profiles of `ccm`, as flags. A profile decides which provider IDs and labels `ccm` writes: those of
/// ccm-from-scratch or those of hcloud-cloud-controller-manager.
pub const PROFILES: [&str; 2] = ["--cloud-provider=ccm-from-scratch", HCLOUD];

/// An address in the range of the Network. No server has this address.
pub const NOBODY: &str = "10.0.0.250";

pub struct World {
    pub sandbox: Arc<Sandbox>,
    pub env: Env,
}

impl World {
    pub fn new(nodes: usize) -> World {
        World::of(common::builder().nodes(nodes))
    }

    pub fn of(builder: sandbox::Builder) -> World {
        let builder = builder.network("10.0.0.0/8").heartbeats(false);
        World::at(builder.simulated())
    }

    /// Starts a sandbox whose APIs listen on sockets, so that `ccm` runs as a process.
    pub fn over_sockets(nodes: usize) -> World {
        let builder = common::builder().nodes(nodes).scale(0.02);
        let builder = builder.network("10.0.0.0/8").heartbeats(false);
        World::at(Arc::new(builder.start()))
    }

    fn at(sandbox: Arc<Sandbox>) -> World {
        let env = common::env(&sandbox);
        World { sandbox, env }
    }

    /// Starts a sandbox and runs `ccm` once, so that the Network has the routes that the nodes need.
    pub fn synced(nodes: usize) -> World {
        let world = World::new(nodes);
        // This run of `ccm` first initialises the nodes and then syncs their routes.
        world.once(&[CIDR]).with_code(0);
        assert_eq!(world.routes(), world.wanted());
        world
    }

    pub fn daemon(&self, flags: &[&str]) -> Daemon {
        Daemon::start(&self.env, &[&[CIDR], flags].concat())
    }

    /// Runs `ccm` with these arguments, and waits until it has ended.
    pub fn ccm(&self, words: &[&str]) -> Ran {
        common::ccm(&self.env, words)
    }

    pub fn once(&self, flags: &[&str]) -> Ran {
        self.ccm(&[&["run", "--once"], &common::LONG_LEASE[..], flags].concat())
    }

    pub fn sync(&self, flags: &[&str]) -> Ran {
        self.ccm(&[&["route", "sync", CIDR], flags].concat())
    }

    /// Computes the routes that the Network should have: one for each pod CIDR in 10.244.0.0/16 of each node whose
    /// server is in the Network. Each is the text `destination gateway`.
    pub fn wanted(&self) -> BTreeSet<String> {
        let (servers, nodes) = (self.servers(), self.nodes());
        let mut wanted = BTreeSet::new();
        for node in &nodes {
            let Some(id) = server_of(node) else { continue };
            let server = servers.iter().find(|server| server["id"] == id);
            let ip = server.and_then(|server| server.pointer("/private_net/0/ip"));
            let Some(ip) = ip.and_then(Value::as_str) else {
                continue;
            };
            let pods = node["spec"]["podCIDRs"].as_array().into_iter().flatten();
            let pods = pods.filter_map(Value::as_str);
            let ours = pods.filter(|cidr| cidr.starts_with("10.244."));
            wanted.extend(ours.map(|cidr| format!("{cidr} {ip}")));
        }
        wanted
    }

    /// Waits until the Network has exactly the routes that the nodes need, and in addition the routes in `others`.
    pub fn wait_for_routes(&self, others: &[&str]) {
        let right = || {
            let mut right = self.wanted();
            right.extend(others.iter().map(|&other| other.to_owned()));
            right
        };
        let state = || format!("{:#?}\nand not {:#?}", self.routes(), right());
        common::wait_or(common::LIMIT, state, || self.routes() == right());
    }

    /// Returns the condition `NetworkUnavailable` of a node, or `None` when there is no such condition.
    pub fn condition(&self, name: &str) -> Option<Value> {
        let mut node = self.node(name);
        let conditions = node["status"]["conditions"].as_array_mut()?;
        let mut conditions = conditions.iter_mut();
        let found = conditions.find(|one| one["type"] == "NetworkUnavailable");
        found.map(Value::take)
    }

    pub fn status(&self, name: &str) -> Option<String> {
        let condition = self.condition(name)?;
        Some(condition["status"].as_str().unwrap().to_owned())
    }

    /// Waits until the condition `NetworkUnavailable` of this node has this status.
    pub fn wait_for_status(&self, name: &str, status: &str) {
        let what = format!("NetworkUnavailable of {name}: {status}");
        wait_until(&what, || self.status(name).as_deref() == Some(status));
    }

    /// Sets the condition `NetworkUnavailable` of a node to true, which means that pods cannot reach the node.
    pub fn mark_unavailable(&self, name: &str) {
        self.edit_node(name, |node| {
            for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                if condition["type"] == "NetworkUnavailable" {
                    condition["status"] = json!("True");
                }
            }
        });
    }

    pub fn all_are_reached(&self) -> bool {
        let nodes = self.nodes();
        let mut names = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str());
        names.all(|name| self.status(name).as_deref() == Some("False"))
    }

    /// Waits until the condition `NetworkUnavailable` of every node is False. Then waits until the Network has exactly
    /// the routes that the nodes need, and in addition the routes in `others`.
    pub fn wait_for_routes_and_nodes(&self, others: &[&str]) {
        wait_until("nodes that can be reached", || self.all_are_reached());
        self.wait_for_routes(others);
    }

    /// Creates a server in the Network and an initialised node with the pod CIDRs `pods`. Returns the server's ID.
    pub fn join(&self, name: &str, pods: &str) -> u64 {
        let id = self.attach_server(name, None);
        self.register(name, Some(id), pods);
        id
    }

    /// Returns the action and the route of each write that `ccm` sent to Hetzner Cloud after `mark`, e.g. `add_route
    /// 10.244.1.0/24 10.0.0.2`. `mark` is a position in the sandbox's log of API calls.
    pub fn changes(&self, mark: u64) -> Vec<String> {
        let calls = self.cloud_calls(mark).into_iter().filter(Call::is_write);
        calls.map(|call| change(&call)).collect()
    }

    /// Returns the paths of the writes after `mark` that change conditions of nodes. `mark` is a position in the
    /// sandbox's log of API calls.
    pub fn patches(&self, mark: u64) -> Vec<String> {
        let calls = self.sandbox.calls().calls_since(mark);
        let patches = calls.iter().filter(|call| {
            let body = call.json();
            call.is_write() && body.is_some_and(|body| !body["status"]["conditions"].is_null())
        });
        patches.map(|call| call.path.clone()).collect()
    }

    /// Waits until `ccm` has listed the nodes at least `times` more times.
    pub fn wait_for_polls(&self, times: usize) {
        let polls = || {
            let is_look = |call: &Call| call.duration.is_some() && call.path == "/api/v1/nodes";
            self.sandbox.calls().count(is_look)
        };
        let enough = polls() + times + 1;
        wait_until("polls of nodes", || polls() >= enough);
    }

    /// Waits until `ccm` has compared the routes of the Network `times` more times with the routes that the nodes need.
    /// `ccm` reads the Network for each comparison, so this function counts these reads.
    pub fn comparisons(&self, times: usize) {
        let reads = || self.sandbox.calls().count(is_read);
        let enough = reads() + times;
        wait_until("polls of the Network", || reads() >= enough);
    }
}

impl Deref for World {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

/// Whether the API call has read a single Network, by its ID in the path. For a list of Networks, the result is false.
pub fn is_read(call: &Call) -> bool {
    call.method == "GET" && call.path.starts_with("/v1/networks/") && call.duration.is_some()
}

/// Returns the action and the route of a write to a Network, e.g. `add_route 10.244.1.0/24 10.0.0.2`.
pub fn change(call: &Call) -> String {
    let command = call.path.rsplit('/').next().unwrap();
    let body = call.json().unwrap_or_default();
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    format!("{command} {} {}", text("destination"), text("gateway"))
}

fn server_of(node: &Value) -> Option<u64> {
    let id = node["spec"]["providerID"].as_str()?;
    let (scheme, id) = id.split_once("://")?;
    let is_ours = scheme == "ccm-from-scratch" || scheme == "hcloud";
    id.parse().ok().filter(|_| is_ours)
}
