//! Reads a scenario file, which describes a sandbox. The file can set the numbers of servers and Services, the Network
//! and the time scale, like the flags of the program `sandbox`. It can also describe single servers and faults.

mod faults;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

pub use faults::{EFFECTS, FaultEntry};

use crate::exchange::{Handler, Request};
use crate::world::{Builder, Sandbox};

/// The contents of a scenario file, which [`Scenario::load`] reads. An unknown field is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    pub nodes: Option<usize>,
    pub robot: Option<usize>,
    pub services: Option<usize>,
    pub network: Option<String>,
    pub scale: Option<f64>,
    pub node_bytes: Option<usize>,
    pub heartbeats: Option<bool>,
    pub servers: Vec<ServerEntry>,
    pub dedicated_servers: Vec<DedicatedEntry>,
    pub faults: Vec<FaultEntry>,
    pub random_faults: Option<RandomFaults>,
}

/// A cloud server in a scenario file. It is created in addition to the servers that the field `nodes` creates.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerEntry {
    pub name: String,
    #[serde(default = "default_server_type")]
    pub server_type: String,
    #[serde(default = "default_location")]
    pub location: String,
    #[serde(default = "yes")]
    pub ipv4: bool,
    #[serde(default = "yes")]
    pub ipv6: bool,
    /// Whether the server is attached to the sandbox's Network, if there is a Network.
    #[serde(default = "yes")]
    pub network: bool,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether the server has a Node in the cluster.
    #[serde(default = "yes")]
    pub node: bool,
    #[serde(default = "yes")]
    pub running: bool,
}

/// A dedicated server in a scenario file. It is created in addition to the servers that the field `robot` creates. A
/// missing field gets the same default as in a server that the field `robot` creates. When `ip` or `ipv6_net` is null,
/// Robot shows null.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DedicatedEntry {
    pub name: String,
    pub number: Option<u64>,
    pub product: Option<String>,
    pub dc: Option<String>,
    pub status: Option<String>,
    pub operating_status: Option<String>,
    pub cancelled: bool,
    #[serde(deserialize_with = "given")]
    pub ip: Option<Option<String>>,
    /// The server's IPv6 network without `/64` at its end. `None` means that the scenario file does not set the field,
    /// and the server then gets a network like every new server. `Some(None)` means that the file sets null, and Robot
    /// then shows null.
    #[serde(deserialize_with = "given")]
    pub ipv6_net: Option<Option<String>>,
    /// The ways in which the server can be reset, e.g. `power`. An empty list means that the server cannot be reset.
    /// With `None` the server keeps the ways that every new server has.
    pub reset_types: Option<Vec<String>>,
    /// Whether the server has no Node in the cluster.
    pub no_node: bool,
    /// Whether the server is switched off.
    pub off: bool,
}

/// Reads a field for which null and a missing field have different meanings. Null becomes `Some(None)`, and a missing
/// field becomes `None`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomFaults {
    pub seed: u64,
    pub rate: f64,
}

impl Scenario {
    /// Reads a scenario file in YAML.
    ///
    /// # Errors
    /// Returns an error when the file cannot be read, is not YAML, has an unknown field, or describes an impossible
    /// fault.
    pub fn load(path: &Path) -> io::Result<Scenario> {
        let named = |error: String| invalid(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let scenario: Scenario =
            serde_yaml::from_str(&text).map_err(|error| named(error.to_string()))?;
        for (index, fault) in scenario.faults.iter().enumerate() {
            fault.rule().map_err(|error| named(format!("faults[{index}]: {error}")))?;
        }
        Ok(scenario)
    }

    /// Sets those parts of the scenario in the builder that a sandbox must know before its start, e.g. the number of
    /// nodes, the Network and the time scale.
    pub fn configure(&self, mut builder: Builder) -> Builder {
        if let Some(nodes) = self.nodes {
            builder = builder.nodes(nodes);
        }
        if let Some(servers) = self.robot {
            builder = builder.robot(servers);
        }
        if !self.dedicated_servers.is_empty() {
            builder = builder.serve_robot();
        }
        if let Some(services) = self.services {
            builder = builder.services(services);
        }
        if let Some(range) = &self.network {
            builder = builder.network(range);
        }
        if let Some(scale) = self.scale {
            builder = builder.scale(scale);
        }
        if let Some(bytes) = self.node_bytes {
            builder = builder.node_bytes(bytes);
        }
        if let Some(heartbeats) = self.heartbeats {
            builder = builder.heartbeats(heartbeats);
        }
        builder
    }

    /// Adds the servers and faults of the scenario to a running sandbox.
    ///
    /// # Errors
    /// Returns an error when the simulated cloud refuses a server, or when a server does not start in time. Also
    /// returns an error when a dedicated server has no name, or has the number of another dedicated server.
    pub fn apply(&self, sandbox: &Sandbox) -> io::Result<()> {
        for entry in &self.servers {
            let id = entry.create(sandbox)?;
            if entry.node {
                sandbox.register_nodes_of(&[id]);
            }
            sandbox.cloud().set_power(id, entry.running);
        }
        for entry in &self.dedicated_servers {
            entry.create(sandbox)?;
        }
        for fault in &self.faults {
            sandbox.faults().add(fault.rule().map_err(invalid)?);
        }
        if let Some(random) = self.random_faults {
            sandbox.faults().random(random.seed, random.rate);
        }
        Ok(())
    }
}

/// How long a new server can take to start. A longer start is an error. A server usually starts within seconds.
const SERVER_LIMIT: Duration = Duration::from_secs(60);

impl ServerEntry {
    /// Creates the server of this entry of a scenario file. The server is created by a request to the simulated Hetzner
    /// Cloud API, which checks the fields.
    fn create(&self, sandbox: &Sandbox) -> io::Result<u64> {
        let networks: Vec<u64> = sandbox.network().filter(|_| self.network).into_iter().collect();
        let body = json!({
            "name": self.name, "server_type": self.server_type, "location": self.location, "image": "ubuntu-24.04",
            "public_net": {"enable_ipv4": self.ipv4, "enable_ipv6": self.ipv6},
            "networks": networks, "labels": self.labels,
        });
        let response = sandbox.cloud().handle(&Request {
            method: "POST".into(),
            path: "/v1/servers".into(),
            headers: vec![
                ("authorization".into(), format!("Bearer {}", sandbox.projects().token)),
                ("content-type".into(), "application/json".into()),
            ],
            body: body.to_string().into_bytes(),
            ..Request::default()
        });
        let answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let refused = || invalid(format!("server {:?}: {}", self.name, answer["error"]));
        let id = answer["server"]["id"].as_u64().ok_or_else(refused)?;
        self.wait_until_running(sandbox, id)?;
        Ok(id)
    }

    fn wait_until_running(&self, sandbox: &Sandbox, id: u64) -> io::Result<()> {
        let deadline = Instant::now() + SERVER_LIMIT;
        let running = |server: &Value| server["id"] == id && server["status"] == "running";
        while !sandbox.cloud().servers(sandbox.project()).iter().any(running) {
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("server {:?} does not start", self.name),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl DedicatedEntry {
    fn create(&self, sandbox: &Sandbox) -> io::Result<()> {
        let robot = sandbox.robot();
        if self.name.is_empty() {
            return Err(invalid("a dedicated server has no name".into()));
        }
        if self.number.is_some_and(|number| robot.server(number).is_some()) {
            let text =
                format!("dedicated server {:?}: another server already has this number", self.name);
            return Err(invalid(text));
        }
        let number = robot.create(&self.name);
        let entry = self.clone();
        robot.edit(number, |server| {
            fn set<T>(field: &mut T, value: Option<T>) {
                if let Some(value) = value {
                    *field = value;
                }
            }
            set(&mut server.number, entry.number);
            set(&mut server.product, entry.product);
            set(&mut server.dc, entry.dc);
            set(&mut server.status, entry.status);
            set(&mut server.reset_types, entry.reset_types);
            server.operating_status = entry.operating_status;
            server.cancelled = entry.cancelled;
            if let Some(ip) = entry.ip {
                server.ips = ip.iter().filter(|ip| !ip.is_empty()).cloned().collect();
                server.server_ip = ip;
            }
            if let Some(net) = entry.ipv6_net {
                let given = net.iter().filter(|net| !net.is_empty());
                let subnets: Vec<_> = given.map(|net| (net.clone(), "64".into())).collect();
                server.subnets = (!subnets.is_empty()).then_some(subnets);
                server.server_ipv6_net = net;
            }
        });
        let number = self.number.unwrap_or(number);
        if !self.no_node {
            sandbox.register_dedicated_node(number);
        }
        robot.set_power(number, !self.off);
        Ok(())
    }
}

fn default_server_type() -> String {
    "cx23".into()
}

fn default_location() -> String {
    "fsn1".into()
}

fn yes() -> bool {
    true
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
