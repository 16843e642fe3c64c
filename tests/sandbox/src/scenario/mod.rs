//! A world described in a file: what the flags of the program say, and more servers and faults.

mod faults;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

pub use faults::{EFFECTS, FaultEntry};

use crate::exchange::{Handler, Request};
use crate::world::{Builder, Sandbox};

/// The file, read with [`Scenario::load`]. Unknown fields are errors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    pub nodes: Option<usize>,
    pub services: Option<usize>,
    pub network: Option<String>,
    pub scale: Option<f64>,
    pub node_bytes: Option<usize>,
    pub heartbeats: Option<bool>,
    pub servers: Vec<ServerEntry>,
    pub faults: Vec<FaultEntry>,
    pub random_faults: Option<RandomFaults>,
}

/// A server beside the ones of `nodes`.
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
    /// In the Network, when there is one.
    #[serde(default = "yes")]
    pub network: bool,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// It joins the cluster.
    #[serde(default = "yes")]
    pub node: bool,
    #[serde(default = "yes")]
    pub running: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomFaults {
    pub seed: u64,
    pub rate: f64,
}

impl Scenario {
    /// Reads a YAML file.
    ///
    /// # Errors
    /// It cannot be read, is not YAML, has an unknown field, or a fault that makes no sense.
    pub fn load(path: &Path) -> io::Result<Scenario> {
        let named = |error: String| invalid(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let scenario: Scenario =
            serde_yaml::from_str(&text).map_err(|error| named(error.to_string()))?;
        for (index, fault) in scenario.faults.iter().enumerate() {
            fault
                .rule()
                .map_err(|error| named(format!("faults[{index}]: {error}")))?;
        }
        Ok(scenario)
    }

    /// What the builder can be told of it.
    pub fn configure(&self, mut builder: Builder) -> Builder {
        if let Some(nodes) = self.nodes {
            builder = builder.nodes(nodes);
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

    /// The rest, in a world that runs.
    ///
    /// # Errors
    /// The cloud refuses a server.
    pub fn apply(&self, sandbox: &Sandbox) -> io::Result<()> {
        for entry in &self.servers {
            let id = entry.create(sandbox)?;
            if entry.node {
                sandbox.register_nodes_of(&[id]);
            }
            sandbox.cloud().set_power(id, entry.running);
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

/// A server is ready in seconds of the simulated time; this is real time.
const SERVER_LIMIT: Duration = Duration::from_secs(60);

impl ServerEntry {
    /// Through the API, which says what is wrong with an entry.
    fn create(&self, sandbox: &Sandbox) -> io::Result<u64> {
        let networks: Vec<u64> = sandbox
            .network()
            .filter(|_| self.network)
            .into_iter()
            .collect();
        let body = json!({
            "name": self.name, "server_type": self.server_type, "location": self.location, "image": "ubuntu-24.04",
            "public_net": {"enable_ipv4": self.ipv4, "enable_ipv6": self.ipv6},
            "networks": networks, "labels": self.labels,
        });
        let response = sandbox.cloud().handle(&Request {
            method: "POST".into(),
            path: "/v1/servers".into(),
            headers: vec![
                (
                    "authorization".into(),
                    format!("Bearer {}", sandbox.projects().token),
                ),
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
        while !sandbox
            .cloud()
            .servers(sandbox.project())
            .iter()
            .any(running)
        {
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
