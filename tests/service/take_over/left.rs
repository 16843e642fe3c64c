//! A cluster as hcloud-cloud-controller-manager or one of its forks leaves it: its provider IDs, labels, finalizers, load
//! balancers and routes.

use crate::common::cluster::{Cluster, text};
pub use crate::common::cluster::{FINALIZER, SERVICE_UID};
use crate::common::{self, Env, env};
use sandbox::credentials::Validity;
use sandbox::robot::DedicatedServer;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::ops::Deref;

/// The node whose server is switched off.
pub const OFF: &str = "worker-3";

impl Deref for Left {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

/// The labels that it gives a node.
fn set_labels(node: &mut Value, kind: &str, zone: &str, provided_by: &str) {
    for (key, value) in [
        ("node.kubernetes.io/instance-type", kind),
        ("beta.kubernetes.io/instance-type", kind),
        ("topology.kubernetes.io/region", "fsn1"),
        ("failure-domain.beta.kubernetes.io/region", "fsn1"),
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/zone", zone),
        ("instance.hetzner.cloud/provided-by", provided_by),
    ] {
        node["metadata"]["labels"][key] = json!(value);
    }
}

/// The programs that leave a cluster: hcloud-cloud-controller-manager, and its forks by syself (2026-02) and by identw
/// (2025-04).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Hccm,
    Syself,
    Identw,
}

impl Program {
    /// Changes a node that hcloud-cloud-controller-manager would leave like this to what the fork leaves.
    fn change(self, node: &mut Value, number: &str, is_dedicated: bool) {
        let labels = &mut node["metadata"]["labels"];
        let fields = labels.as_object_mut().unwrap();
        match self {
            Program::Hccm => return,
            Program::Syself => {
                fields.remove("instance.hetzner.cloud/provided-by");
                if !is_dedicated {
                    return;
                }
                for domain in ["topology.kubernetes.io", "failure-domain.beta.kubernetes.io"] {
                    fields.insert(format!("{domain}/zone"), json!("fsn1"));
                    fields.insert(format!("{domain}/region"), json!("eu-central"));
                }
                node["spec"]["providerID"] = json!(format!("hcloud://bm-{number}"));
            }
            Program::Identw => {
                fields.remove("instance.hetzner.cloud/provided-by");
                let kind = if is_dedicated { "dedicated" } else { "cloud" };
                fields.insert("node.hetzner.com/type".into(), json!(kind));
                // All labels of the server are copied.
                fields.insert("role".into(), json!("worker"));
                node["spec"]["providerID"] = json!(format!("hetzner://{number}"));
            }
        }
        // The forks write no InternalIP here, and their kubelets have no --node-ip, because each kubelet refuses
        // addresses without its --node-ip.
        let addresses = node["status"]["addresses"].as_array_mut().unwrap();
        addresses.retain(|address| address["type"] != "InternalIP");
        // The order has no meaning.
        addresses.reverse();
        if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
            annotations.remove("alpha.kubernetes.io/provided-node-ip");
        }
    }
}

/// A cluster of three nodes, one of them switched off, with three Services, as it was when that one was stopped.
pub struct Left {
    pub sandbox: Sandbox,
    pub env: Env,
    pub program: Program,
    /// Whether targets are reached by their private addresses.
    pub by_private_ip: bool,
}

impl Left {
    pub fn new() -> Left {
        Left::with_dedicated(0, true)
    }

    /// Returns such a cluster with this number of nodes on dedicated servers. The second one has a provider ID of
    /// an older fork.
    pub fn with_dedicated(servers: usize, by_private_ip: bool) -> Left {
        Left::by(Program::Hccm, servers, by_private_ip)
    }

    /// Returns such a cluster with two nodes on dedicated servers, as a fork leaves it.
    pub fn of_fork(program: Program) -> Left {
        Left::by(program, 2, false)
    }

    fn by(program: Program, servers: usize, by_private_ip: bool) -> Left {
        let mut builder = Sandbox::builder().nodes(3).robot(servers);
        if program != Program::Identw {
            builder = builder.network("10.0.0.0/8");
        }
        let sandbox = builder.scale(0.02).heartbeats(false).start();
        common::under_its_role(&sandbox);
        let private = &*by_private_ip.to_string();
        let variables = [
            ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
            ("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", private),
        ];
        let env = common::with(env(&sandbox), &variables);
        let left = Left { env, sandbox, program, by_private_ip };
        left.leave_nodes();
        left.leave_dedicated_nodes();
        if program != Program::Identw {
            left.leave_routes();
        }
        left.leave_services();
        // ccm made none of these calls.
        left.sandbox.calls().clear();
        left
    }

    fn leave_nodes(&self) {
        for server in self.servers() {
            let name = server["name"].as_str().unwrap();
            let is_off = name == OFF;
            let mut taints = Vec::new();
            if is_off {
                self.set_power(name, false);
                let key = "node.cloudprovider.kubernetes.io/shutdown";
                taints.push(json!({"key": key, "effect": "NoSchedule"}));
            }
            let initialise = |node: &mut Value| {
                node["spec"]["providerID"] = json!(format!("hcloud://{}", server["id"]));
                node["spec"]["taints"] = json!(taints);
                set_labels(node, "cx22", "fsn1-dc14", "cloud");
                node["status"]["addresses"] = json!([
                    {"type": "Hostname", "address": name},
                    {"type": "ExternalIP", "address": server["public_net"]["ipv4"]["ip"]},
                    {"type": "InternalIP", "address": server["private_net"][0]["ip"]},
                ]);
                let conditions = node["status"]["conditions"].as_array_mut().unwrap();
                if is_off {
                    let ready = conditions.iter_mut().find(|one| one["type"] == "Ready");
                    ready.unwrap()["status"] = json!("Unknown");
                }
                conditions.push(json!({
                    "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
                    "message": "RouteController created a route",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }));
                self.program.change(node, &server["id"].to_string(), false);
            };
            self.edit_node(name, initialise);
        }
    }

    fn leave_dedicated_nodes(&self) {
        for (index, server) in self.sandbox.robot().servers().iter().enumerate() {
            let scheme = if index == 1 { "hcloud://bm-" } else { "hrobot://" };
            let initialise = |node: &mut Value| {
                node["spec"]["providerID"] = json!(format!("{scheme}{}", server.number));
                node["spec"]["taints"] = json!([]);
                set_labels(node, "AX41-NVMe", "fsn1-dc16", "robot");
                node["status"]["addresses"] = json!([
                    {"type": "Hostname", "address": server.name},
                    {"type": "ExternalIP", "address": server.server_ip},
                    {"type": "InternalIP", "address": server.private_ip},
                ]);
                self.program.change(node, &server.number.to_string(), true);
            };
            self.edit_node(&server.name, initialise);
        }
    }

    /// Adds a route in the Network to the Pods of each node.
    fn leave_routes(&self) {
        for server in self.servers() {
            let node = self.node(&text(&server["name"]));
            let pods = text(&node["spec"]["podCIDR"]);
            self.set_route(&pods, &text(&server["private_net"][0]["ip"]));
        }
    }

    fn leave_services(&self) {
        let authority = self.sandbox.authority();
        let certificate = authority.server(&["shop.example.com"], Validity::Now);
        let certificate = certificate.unwrap();
        let certificate = json!({
            "name": "cert", "type": "uploaded",
            "certificate": certificate.certificate_pem, "private_key": certificate.key_pem,
        });
        let certificate = self.create_certificate(certificate);
        self.leave_service("web", &[], &[80, 443], None, |_| {});
        // A setting that no annotation names was made by hand, and hcloud-cloud-controller-manager leaves it.
        let shop = [
            ("name", "shop"),
            ("type", "lb21"),
            ("protocol", "https"),
            ("http-certificates", "cert"),
            ("http-redirect-http", "true"),
        ];
        self.leave_service("shop", &shop, &[443], None, |balancer| {
            balancer["name"] = json!("shop");
            balancer["load_balancer_type"] = json!("lb21");
            balancer["algorithm"] = json!({"type": "least_connections"});
            let service = &mut balancer["services"][0];
            service["protocol"] = json!("https");
            service["http"] = json!({
                "certificates": [certificate], "redirect_http": true, "sticky_sessions": true,
                "cookie_name": "MINE", "cookie_lifetime": 600,
            });
            service["health_check"]["interval"] = json!(30);
            service["health_check"]["retries"] = json!(5);
        });
        let mail = [
            ("hostname", "mail.example.com"),
            ("uses-proxyprotocol", "true"),
            ("health-check-interval", "20s"),
        ];
        self.leave_service("mail", &mail, &[25], Some("mail.example.com"), |balancer| {
            let port = &mut balancer["services"][0];
            port["proxyprotocol"] = json!(true);
            port["health_check"]["interval"] = json!(20);
        });
    }

    /// Creates a Service with its load balancer, as hcloud-cloud-controller-manager makes it without annotations,
    /// except for one change. The status has addresses or a name.
    fn leave_service(
        &self,
        name: &str,
        annotations: &[(&str, &str)],
        ports: &[u16],
        hostname: Option<&str>,
        change: impl Fn(&mut Value),
    ) {
        let uid = self.create(name, annotations, ports);
        let created = self.service(name).unwrap();
        let listeners = created["spec"]["ports"].as_array().unwrap().iter();
        let listeners: Vec<Value> = listeners
            .map(|port| {
                json!({
                    "protocol": "tcp", "proxyprotocol": false,
                    "listen_port": port["port"], "destination_port": port["nodePort"],
                    "health_check": {
                        "protocol": "tcp", "port": port["nodePort"], "interval": 15, "timeout": 10, "retries": 3,
                    },
                })
            })
            .collect();
        let servers = self.servers();
        let private = self.by_private_ip;
        let target = |server: &Value| json!({"type": "server", "server": {"id": server["id"]}, "use_private_ip": private});
        let dedicated = self.sandbox.robot().servers();
        let by_ip = |server: &DedicatedServer| match self.by_private_ip {
            true => json!({"type": "ip", "ip": {"ip": server.private_ip}}),
            false => json!({"type": "ip", "ip": {"ip": server.server_ip}}),
        };
        let mut balancer = json!({
            "network": self.sandbox.network(),
            "labels": {SERVICE_UID: uid},
            "services": listeners,
            "targets": servers.iter().map(target).chain(dedicated.iter().map(by_ip)).collect::<Vec<_>>(),
        });
        change(&mut balancer);
        let name_of = &format!("a{}", uid.replace('-', ""))[..32];
        let id = self.create_balancer(name_of, &balancer);
        let made = self.sandbox.cloud().load_balancer(id);
        let ip = |pointer: &str| json!({"ip": made.pointer(pointer), "ipMode": "VIP"});
        let mut addresses = vec![ip("/public_net/ipv4/ip"), ip("/public_net/ipv6/ip")];
        addresses.extend(self.sandbox.network().map(|_| ip("/private_net/0/ip")));
        let ingress = match hostname {
            Some(name) => json!([{"hostname": name}]),
            None => json!(addresses),
        };
        self.edit(name, |service| {
            service["metadata"]["finalizers"] = json!([FINALIZER]);
            service["status"]["loadBalancer"]["ingress"] = ingress.clone();
        });
    }

    /// Everything that was left, the Lease aside, and what changes by itself.
    pub fn world(&self) -> Vec<Value> {
        let (cloud, project) = (self.sandbox.cloud(), self.sandbox.project());
        let cluster = self.sandbox.cluster();
        let mut world = [
            cluster.list("nodes", None),
            cluster.list("services", None),
            cloud.load_balancers(project),
            cloud.networks(project),
            cloud.certificates(project),
            cloud.servers(project),
        ]
        .concat();
        for target in world.iter_mut().filter_map(|one| one["targets"].as_array_mut()).flatten() {
            target["health_status"] = Value::Null;
        }
        world
    }

    /// Asserts that everything is as it was.
    pub fn is_as(&self, before: &[Value], why: &str) {
        for (now, before) in self.world().iter().zip(before) {
            assert_eq!(now, before, "{why}");
        }
        assert_eq!(self.world().len(), before.len(), "{why}");
    }

    /// Looks at Services that were answered, and reads of load balancers.
    pub fn polls(&self) -> usize {
        let calls = self.sandbox.calls();
        let count = |half: Half, path: &str| {
            calls.count(|call| call.half == half && call.path == path && call.duration.is_some())
        };
        let cloud = count(Half::Hetzner, "/v1/load_balancers");
        cloud.min(count(Half::Kubernetes, "/api/v1/services"))
    }
}
