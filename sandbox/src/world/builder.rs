//! Configures and starts a sandbox.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::access::{Folder, Tokens, admin_rules, ccm_rules, unique};
use super::{Ports, Projects, Sandbox, Tls};
use crate::Half;
use crate::credentials::{self, Authority, ServerTls, Validity};
use crate::hetzner::{Cloud, ServerSpec};
use crate::kubelet::Kubelets;
use crate::kubernetes::Cluster;
use crate::robot::{OWN_ACCOUNT, Robot, Sees};

/// The configuration of a sandbox, which simulates the APIs of Hetzner Cloud, Robot and Kubernetes. The default is one
/// node, no Service, no Network, no dedicated servers, real time, and APIs on free ports of 127.0.0.1.
#[derive(Clone, Debug)]
pub struct Builder {
    nodes: usize,
    robot: usize,
    serve_robot: bool,
    services: usize,
    scale: f64,
    network: Option<String>,
    only: Option<Half>,
    node_bytes: usize,
    heartbeats: bool,
    real_cluster: Option<PathBuf>,
    in_memory: bool,
    ports: Ports,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            nodes: 1,
            robot: 0,
            serve_robot: false,
            services: 0,
            scale: 1.0,
            network: None,
            only: None,
            node_bytes: 0,
            heartbeats: true,
            real_cluster: None,
            in_memory: false,
            ports: Ports {
                address: Ipv4Addr::LOCALHOST.into(),
                hetzner: 0,
                kubernetes: 0,
                robot: 0,
            },
        }
    }
}

impl Builder {
    /// Sets the number of cloud servers that exist at the start. They are called `worker-1`, `worker-2` and so on, and
    /// each has a Node.
    pub fn nodes(mut self, nodes: usize) -> Builder {
        self.nodes = nodes;
        self
    }

    /// Sets the number of dedicated servers that exist at the start. They are called `metal-1`, `metal-2` and so on,
    /// and each has a Node. When the number is 0, the sandbox has a Robot web service only if
    /// [`serve_robot`](Builder::serve_robot) is called.
    ///
    /// When the sandbox has a Hetzner Cloud Network, the dedicated servers are in the Network's subnet of type
    /// `vswitch`.
    pub fn robot(mut self, servers: usize) -> Builder {
        self.robot = servers;
        self
    }

    /// Makes the sandbox serve the Robot web service even when there are no dedicated servers.
    pub fn serve_robot(mut self) -> Builder {
        self.serve_robot = true;
        self
    }

    fn serves_robot(&self) -> bool {
        self.serve_robot || self.robot > 0
    }

    /// Sets the number of Services of type LoadBalancer that exist at the start. They are called `web-1`, `web-2` and
    /// so on, and are in the namespace `default`.
    pub fn services(mut self, services: usize) -> Builder {
        self.services = services;
        self
    }

    /// Sets the time scale, by which every simulated duration is multiplied. For example, the simulation is a hundred
    /// times faster with 0.01.
    pub fn scale(mut self, scale: f64) -> Builder {
        self.scale = scale;
        self
    }

    /// Makes the sandbox start with a Network that has this IP range and the name `sandbox`. Only the servers of the
    /// first 100 nodes are attached to it, because no more than 100 servers can be in a Network.
    pub fn network(mut self, ip_range: &str) -> Builder {
        self.network = Some(ip_range.to_owned());
        self
    }

    /// Makes the sandbox serve only this API. When it is the Hetzner Cloud API, the Robot web service is also served if
    /// [`robot`](Builder::robot) or [`serve_robot`](Builder::serve_robot) has asked for it.
    pub fn only(mut self, half: Half) -> Builder {
        self.only = Some(half);
        self
    }

    /// Makes the JSON of each Node at least `bytes` bytes long, by adding labels, annotations and container images to
    /// the Node. With 0 nothing is added.
    pub fn node_bytes(mut self, bytes: usize) -> Builder {
        self.node_bytes = bytes;
        self
    }

    /// Sets whether the simulated kubelets regularly report the status of their Nodes. If not, a Node's status changes
    /// only when a client writes it, or when a test calls [`Kubelets::heartbeat`] or [`Kubelets::expire`].
    pub fn heartbeats(mut self, heartbeats: bool) -> Builder {
        self.heartbeats = heartbeats;
        self
    }

    /// Makes a sandbox in memory, whose APIs listen on no port. [`Sandbox::exchange`] answers requests in the caller's
    /// thread. There are no threads, no TLS and no client certificates. Files are only written when the caller asks for
    /// them. Before each request is answered, the simulated kubelets make the reports that are due. Tokens, UIDs and
    /// names are computed from a seed, which is the last byte of the IPv4 [`address`](Builder::address). With simulated
    /// time, a test therefore always gets the same answers to the same requests.
    pub fn in_memory(mut self) -> Builder {
        self.in_memory = true;
        self
    }

    /// Makes the sandbox use a real Kubernetes cluster instead of a simulated one. Clients see and change only the
    /// objects that this sandbox has created there. `kubeconfig` is the path of a kubeconfig whose user has all rights
    /// in the cluster. [`Cluster::real`] describes the details.
    pub fn real_cluster(mut self, kubeconfig: impl Into<PathBuf>) -> Builder {
        self.real_cluster = Some(kubeconfig.into());
        self
    }

    /// Sets the IP address on which all APIs listen, e.g. `::1`. It must be an address of the loopback interface.
    pub fn address(mut self, address: IpAddr) -> Builder {
        self.ports.address = address;
        self
    }

    /// Sets the port of the Hetzner Cloud API. 0 means any free port.
    pub fn port_hetzner(mut self, port: u16) -> Builder {
        self.ports.hetzner = port;
        self
    }

    /// Sets the port of the Kubernetes API. 0 means any free port.
    pub fn port_kubernetes(mut self, port: u16) -> Builder {
        self.ports.kubernetes = port;
        self
    }

    /// Sets the port of the Robot web service. 0 means any free port.
    pub fn port_robot(mut self, port: u16) -> Builder {
        self.ports.robot = port;
        self
    }

    /// Starts the sandbox.
    ///
    /// # Panics
    /// Panics when [`try_start`](Builder::try_start) fails.
    pub fn start(self) -> Sandbox {
        self.try_start().unwrap_or_else(|error| panic!("the sandbox does not start: {error}"))
    }

    /// Starts the sandbox.
    ///
    /// # Errors
    /// Returns an error when a port is in use, when the folder of the credentials cannot be written, or when the time
    /// scale or the range of the Network is invalid.
    pub fn try_start(self) -> io::Result<Sandbox> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        if !(self.scale.is_finite() && self.scale > 0.0) {
            return Err(invalid(format!("scale {}: it must be above 0", self.scale)));
        }
        if let Some(range) = &self.network
            && range.parse::<ipnet::Ipv4Net>().is_err()
        {
            return Err(invalid(format!(
                "network {range:?}: write an IPv4 range such as 10.0.0.0/8"
            )));
        }
        let mut sandbox = self.empty()?;
        for half in [Half::Hetzner, Half::Kubernetes, Half::Robot] {
            if sandbox.serves(half) {
                sandbox.resume(half)?;
            }
        }
        sandbox.add_user("admin", &["system:masters"], admin_rules())?;
        let (everywhere, in_kube_system) = ccm_rules()?;
        sandbox.add_user("ccm", &[], everywhere)?;
        sandbox.cluster().grant_in_namespace("ccm", "kube-system", in_kube_system);
        if !self.in_memory {
            sandbox.write_kubeconfig()?;
        }
        self.populate(&sandbox);
        if self.heartbeats {
            sandbox.kubelets.run(!self.in_memory)?;
        }
        Ok(sandbox)
    }

    /// Creates the sandbox without servers and Services, but with its Network if one is configured. No API answers
    /// requests yet.
    fn empty(&self) -> io::Result<Sandbox> {
        let tls = (!self.in_memory).then(Tls::new).transpose().map_err(io::Error::other)?;
        let seed = match (self.in_memory, self.ports.address) {
            (true, IpAddr::V4(address)) => u64::from(address.octets()[3].max(1) - 1),
            _ => unique(),
        };
        let tokens = Tokens::new(seed);
        let cloud = Cloud::new(self.scale);
        let cluster = match &self.real_cluster {
            Some(kubeconfig) => Cluster::real(kubeconfig)?,
            None => Cluster::seeded(seed),
        };
        let projects = Projects::new(&cloud, &tokens);
        let calls = projects.calls();
        let network = self.network.as_ref();
        let network = network.map(|range| cloud.create_network(projects.own, "sandbox", range));
        let robot = Robot::new(self.scale);
        robot.set_login("#ws+sandbox", &tokens.next(), Sees::Account(OWN_ACCOUNT));
        if self.serves_robot() {
            cloud.set_robot(projects.own, robot.clone());
        }
        let vswitch = network.filter(|_| self.serves_robot());
        let vswitch = vswitch.map(|network| cloud.add_vswitch(network));
        let vswitch = vswitch.transpose()?;
        let kubelets =
            Kubelets::new(cloud.clone(), projects.own, robot.clone(), cluster.clone(), self.scale);
        let mut ports = self.ports;
        if self.in_memory {
            // A sandbox with `in_memory` listens on no port. The port numbers 1, 2 and 3 only tell its three APIs
            // apart. A client that tries to connect to such a port is refused.
            (ports.hetzner, ports.kubernetes, ports.robot) = (1, 2, 3);
        }
        Ok(Sandbox {
            kubelets,
            served: Default::default(),
            kept: Default::default(),
            ports: ports.into(),
            cloud,
            cluster,
            robot,
            serves_robot: self.serves_robot(),
            projects,
            network,
            vswitch,
            node_bytes: self.node_bytes,
            only: self.only,
            tls,
            tokens,
            calls: Arc::new(calls),
            faults: Arc::default(),
            accounts: Default::default(),
            folder: match self.in_memory {
                true => OnceLock::new(),
                false => Folder::new()?.into(),
            },
        })
    }

    fn populate(&self, sandbox: &Sandbox) {
        let servers: Vec<u64> = (1..=self.nodes)
            .map(|number| {
                let networks = sandbox.networks(number <= MOST_IN_A_NETWORK);
                let server = ServerSpec {
                    name: format!("worker-{number}"),
                    networks,
                    ..ServerSpec::default()
                };
                sandbox.cloud.create_server(sandbox.projects.own, server)
            })
            .collect();
        sandbox.register_nodes_of(&servers);
        for number in 1..=self.robot {
            sandbox.join_dedicated(&format!("metal-{number}"));
        }
        sandbox.cloud.set_metadata_server(servers.first().copied());
        for number in 1..=self.services {
            sandbox.cluster.create("services", Some("default"), service(&format!("web-{number}")));
        }
    }
}

/// The largest number of servers that can be attached to one Network.
const MOST_IN_A_NETWORK: usize = 100;

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    })
}

impl Tls {
    fn new() -> Result<Tls, credentials::Error> {
        let authority = Authority::new("sandbox-ca")?;
        // The certificate of the server is valid for these names. The names `localhost`, `127.0.0.1` and `::1` mean the
        // machine itself, and clients never use a proxy for them. Tests of proxies therefore use the name
        // `kubernetes.test`, which only the proxy of the test can resolve.
        let names = ["localhost", "127.0.0.1", "::1", "kubernetes.test"];
        let identity = authority.server(&names, Validity::Now)?;
        let server = ServerTls::new(&identity, &authority)?;
        Ok(Tls { authority, server })
    }
}

impl Projects {
    fn new(cloud: &Cloud, tokens: &Tokens) -> Projects {
        let (own, foreign) = (cloud.add_project(), cloud.add_project());
        let projects = Projects {
            own,
            foreign,
            token: tokens.next(),
            read_only_token: tokens.next(),
            foreign_token: tokens.next(),
        };
        cloud.add_token(own, &projects.token, false);
        cloud.add_token(own, &projects.read_only_token, true);
        cloud.add_token(foreign, &projects.foreign_token, false);
        projects
    }

    /// Returns a new log of API calls. For a call to the Hetzner Cloud API, the log shows which of the sandbox's tokens
    /// the call has: `project`, `read-only` or `foreign`.
    fn calls(&self) -> crate::calls::CallLog {
        let calls = crate::calls::CallLog::default();
        calls.name_caller(self.token.as_str(), "project");
        calls.name_caller(self.read_only_token.as_str(), "read-only");
        calls.name_caller(self.foreign_token.as_str(), "foreign");
        calls
    }
}
