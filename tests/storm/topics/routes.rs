//! Routes of a Network to the pods of nodes, beside routes of others. Nodes and servers are added and deleted, and
//! people change routes in the console.

use super::nodes::{self, invariants::PREFIX};
use super::{Topic, Verdict};
use crate::random::Random;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use sandbox::{Builder, Half, Sandbox};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of nodes that events change.
const NODES: u64 = 6;

/// The node that no event changes. Without a node in the Network nothing may be deleted.
const ANCHOR: &str = "anchor";

/// An address in the Network's range that no server has.
const NO_SERVER: &str = "10.0.0.250";

/// The destination and the gateway of routes that are not the cluster's.
const FOREIGN_ROUTES: [&str; 3] =
    ["0.0.0.0/0 10.0.0.250", "10.245.0.0/16 10.0.0.250", "192.168.0.0/24 10.0.0.250"];

/// How the addresses of pods begin to which routes of the cluster may lead.
const CLUSTER_RANGE_PREFIX: &str = "10.244.";

/// How old the plan of a change may be.
const PLAN_AGE: Duration = Duration::from_secs(60);

pub struct Routes {
    joins: Vec<Join>,
    known: Mutex<VecDeque<(Instant, View)>>,
}

/// How a node joins.
#[derive(Debug)]
struct Join {
    name: String,
    /// The node's `podCIDRs`, separated by commas. An empty text means that the node gets them later.
    pods: String,
    is_initialised: bool,
}

/// The state of both APIs that matters for routes. A route is written as `destination gateway`.
struct View {
    routes: BTreeSet<String>,
    wanted: BTreeSet<String>,
    /// The pods of nodes without a provider ID of ours.
    foreign_pods: BTreeSet<String>,
}

impl Routes {
    pub fn generate(random: &mut Random) -> Routes {
        let mut joins = vec![Join {
            name: ANCHOR.into(),
            pods: "10.244.250.0/24".into(),
            is_initialised: true,
        }];
        for n in 0..NODES {
            if random.percent(70) {
                joins.push(Join {
                    name: format!("n-{n}"),
                    pods: pods(random, n),
                    is_initialised: random.percent(75),
                });
            }
        }
        Routes { joins, known: Mutex::default() }
    }

    fn record_view(&self, sandbox: &Sandbox) {
        let now = sandbox::time::now();
        let mut known = self.known.lock().unwrap();
        // The first view was valid until the second view was recorded.
        while known.len() > 1 && now.saturating_duration_since(known[1].0) > PLAN_AGE {
            known.pop_front();
        }
        known.push_back((now, View::read(sandbox)));
    }

    /// Whether a condition holds now and in every view that `ccm` may have.
    fn is_certain(&self, now: &View, holds: impl Fn(&View) -> bool) -> bool {
        let known = self.known.lock().unwrap();
        holds(now) && known.iter().all(|(_, view)| holds(view))
    }

    fn violation_by_change(&self, sandbox: &Sandbox, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        let (to, route) =
            (text("destination"), format!("{} {}", text("destination"), text("gateway")));
        if !to.starts_with(CLUSTER_RANGE_PREFIX) {
            return Some(format!("{route} is not the cluster's"));
        }
        let now = View::read(sandbox);
        let is_deletion = request.path.ends_with("/delete_route");
        let is_unwanted = |view: &View| !view.wanted.contains(&route);
        let is_foreign = |view: &View| view.foreign_pods.contains(&to);
        if is_deletion && self.is_certain(&now, |view| !is_unwanted(view)) {
            Some(format!("{route} leads to the pods of a node"))
        } else if is_deletion && self.is_certain(&now, is_foreign) {
            Some(format!("a node that is not ours has its pods at {to}"))
        } else if !is_deletion && self.is_certain(&now, is_unwanted) {
            Some(format!("no node wants {route}"))
        } else {
            None
        }
    }

    /// Returns why a write of the condition `NetworkUnavailable` claims something wrong.
    fn violation_by_condition(&self, sandbox: &Sandbox, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let conditions = body["status"]["conditions"].as_array()?;
        let mut written = conditions.iter().filter(|one| one["type"] == "NetworkUnavailable");
        let status = written.next()?["status"].as_str()?.to_owned();
        let name = nodes::invariants::node_written(request)?;
        let node = sandbox.cluster().get("nodes", None, name)?;
        if node["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
            // The API server refuses such a write.
            return None;
        }
        let pods = own_pods(&node);
        if pods.is_empty() {
            return Some("none of its pods is within the cluster's range".into());
        }
        let now = View::read(sandbox);
        let is_way = |route: &str, to: &str| route.split(' ').next() == Some(to);
        let is_reached = |view: &View| {
            pods.iter().all(|to| {
                let mut both = view.wanted.intersection(&view.routes);
                both.any(|route| is_way(route, to))
            })
        };
        let is_violation = match status.as_str() {
            // Servers and routes are not read at the same moment.
            "False" => !pods.iter().all(|to| {
                let may_be = |route: &String| {
                    is_way(route, to) && !self.is_certain(&now, |view| !view.routes.contains(route))
                };
                let known = self.known.lock().unwrap();
                let views = known.iter().map(|(_, view)| view).chain([&now]);
                let wanted: Vec<String> = views.flat_map(|view| view.wanted.clone()).collect();
                drop(known);
                wanted.iter().any(may_be)
            }),
            _ => self.is_certain(&now, is_reached),
        };
        is_violation.then(|| format!("NetworkUnavailable={status} is not so"))
    }
}

impl Topic for Routes {
    fn configure(&self, builder: Builder) -> Builder {
        builder.network("10.0.0.0/8")
    }

    fn set_up(&self, sandbox: &Sandbox) {
        for route in FOREIGN_ROUTES {
            let (to, via) = route.split_once(' ').unwrap();
            sandbox.cloud().set_route(network(sandbox), to, via);
        }
        self.joins.iter().for_each(|join| join.apply(sandbox));
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        // The answers to its own writes told `ccm` the present state.
        self.record_view(sandbox);
        let (cloud, cluster) = (sandbox.cloud(), sandbox.cluster());
        let network = network(sandbox);
        let n = random.below(NODES);
        let name = format!("n-{n}");
        let node = cluster.get("nodes", None, &name);
        let server = server_named(sandbox, &name);
        let to = format!("10.244.{n}.0/24");
        let set = |to: &str, via: &str| {
            cloud.set_route(network, to, via);
            format!("a person sets route {to} {via}")
        };
        match (random.below(11), node, server) {
            (0, Some(_), _) => {
                cluster.delete("nodes", None, &name);
                format!("node {name} is deleted")
            }
            (1, Some(_), Some(id)) => {
                cloud.delete_server(id);
                cluster.delete("nodes", None, &name);
                format!("{name} is deleted with its server")
            }
            (2, Some(_), Some(id)) => {
                cloud.delete_server(id);
                if random.percent(50) {
                    sandbox.kubelets().expire();
                }
                format!("the server of {name} is deleted")
            }
            (3 | 4, None, _) => {
                let join = Join {
                    name,
                    pods: match random.percent(85) {
                        true => to,
                        false => String::new(),
                    },
                    is_initialised: random.percent(70),
                };
                join.apply(sandbox);
                format!("{join:?}")
            }
            (5, ..) => set(&to, NO_SERVER),
            (6, ..) => set(&to, &ip(sandbox, ANCHOR)),
            (7, ..) => {
                cloud.delete_route(network, &to);
                format!("a person deletes the route to {to}")
            }
            (8, Some(_), Some(id)) => {
                cloud.edit_server(id, |server| server["private_net"] = json!([]));
                format!("the server of {name} is detached for good")
            }
            (9, Some(node), _) if node["spec"]["podCIDRs"].is_null() => {
                cluster.edit("nodes", None, &name, |node| {
                    node["spec"]["podCIDR"] = json!(to);
                    node["spec"]["podCIDRs"] = json!([to]);
                });
                format!("{name} gets its pods' addresses")
            }
            _ => set(&format!("10.244.10{n}.0/24"), NO_SERVER),
        }
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        self.record_view(sandbox);
    }

    fn inject_faults(&self, sandbox: &Sandbox, random: &mut Random) {
        if random.percent(30) {
            let command = random.pick(&["add_route", "delete_route"]);
            let cloud = sandbox.cloud();
            cloud.fail_next_action(command, "action_failed", "it did not work out");
        }
    }

    fn repair(&self, sandbox: &Sandbox) {
        sandbox.kubelets().expire();
    }

    fn before_read(&self, sandbox: &Sandbox, request: &Request) {
        let of_cache = ("resourceVersion".to_owned(), "0".to_owned());
        let is_old = request.query.contains(&of_cache) && sandbox.cluster().is_cache_frozen();
        if request.path == "/api/v1/nodes" && !is_old {
            self.record_view(sandbox);
        }
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let actions = ["/actions/add_route", "/actions/delete_route"];
        let is_change = request.path.starts_with("/v1/networks/")
            && actions.iter().any(|end| request.path.ends_with(end));
        match half {
            Half::Hetzner if is_change => {
                Verdict::from_violation(self.violation_by_change(sandbox, request))
            }
            _ => match nodes::check_write(sandbox, half, request, &Vec::new()) {
                Verdict::Allowed => {
                    Verdict::from_violation(self.violation_by_condition(sandbox, request))
                }
                verdict => verdict,
            },
        }
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let View { routes, wanted, foreign_pods } = View::read(sandbox);
        if let Some(route) = FOREIGN_ROUTES.iter().find(|route| !routes.contains(**route)) {
            return Err(format!("{route}, which is not ours, is deleted"));
        }
        if let Some(route) = wanted.difference(&routes).next() {
            return Err(format!("no route {route}: {routes:#?}"));
        }
        // A route to the pods of a node without a provider ID of ours is left unchanged. A route to a server that no
        // node names, or whose node has no addresses for pods yet, may stay when no node needs its destination.
        let free = free_addresses(sandbox);
        let may_stay = |route: &str| {
            let (to, via) = route.split_once(' ').unwrap();
            let mut wanted = wanted.iter();
            let is_wanted = wanted.any(|one| one.split(' ').next() == Some(to));
            foreign_pods.contains(to) || free.contains(via) && !is_wanted
        };
        let mut rest = routes.difference(&wanted);
        let wrong =
            rest.find(|route| !FOREIGN_ROUTES.contains(&route.as_str()) && !may_stay(route));
        if let Some(route) = wrong {
            return Err(format!("route {route} is there: wanted {wanted:#?}"));
        }
        for node in sandbox.cluster().list("nodes", None) {
            check_condition(sandbox, &node, &routes)?;
        }
        nodes::check_nodes(sandbox)
    }

    fn counts(&self, sandbox: &Sandbox) -> BTreeMap<&'static str, u64> {
        let count = |end: &str, status: u16| {
            let is_it = |call: &Call| call.status == Some(status) && call.path.ends_with(end);
            sandbox.calls().count(is_it) as u64
        };
        [
            ("routes added", count("/add_route", 201)),
            ("routes deleted", count("/delete_route", 201)),
            ("routes refused as busy", count("_route", 409)),
        ]
        .into()
    }
}

impl Join {
    /// Adds the node. Its server is created when there is no server of this name.
    fn apply(&self, sandbox: &Sandbox) {
        let server = server_named(sandbox, &self.name).unwrap_or_else(|| {
            let spec = ServerSpec {
                name: self.name.clone(),
                networks: vec![(network(sandbox), None)],
                ..ServerSpec::default()
            };
            sandbox.cloud().create_server(sandbox.project(), spec)
        });
        let pods = self.pods.split(',').filter(|pods| !pods.is_empty());
        sandbox.register_node(NodeSpec {
            name: self.name.clone(),
            server: Some(server),
            provider_id: self.is_initialised.then(|| format!("{PREFIX}{server}")),
            pod_cidrs: pods.map(str::to_owned).collect(),
            ..NodeSpec::default()
        });
    }
}

impl View {
    fn read(sandbox: &Sandbox) -> View {
        let routes = sandbox.cloud().routes(network(sandbox)).into_iter();
        let servers = sandbox.cloud().servers(sandbox.project());
        let mut wanted = BTreeSet::new();
        let mut foreign_pods = BTreeSet::new();
        for node in sandbox.cluster().list("nodes", None) {
            let Some(id) = server_of(&node) else {
                foreign_pods.extend(own_pods(&node));
                continue;
            };
            let server = servers.iter().find(|server| server["id"] == id);
            let ip = server.and_then(|server| server["private_net"][0]["ip"].as_str());
            if let Some(ip) = ip {
                wanted.extend(own_pods(&node).iter().map(|to| format!("{to} {ip}")));
            }
        }
        View {
            routes: routes.map(|(to, via)| format!("{to} {via}")).collect(),
            wanted,
            foreign_pods,
        }
    }
}

fn pods(random: &mut Random, n: u64) -> String {
    match random.below(7) {
        0 => format!("10.244.{n}.0/24,fd00:10:244:{n}::/64"),
        // This range belongs to another cluster, or is a mistake.
        1 => format!("10.246.{n}.0/24"),
        2 => String::new(),
        _ => format!("10.244.{}.0/24", n + 10 * random.below(3)),
    }
}

fn check_condition(
    sandbox: &Sandbox,
    node: &Value,
    routes: &BTreeSet<String>,
) -> Result<(), String> {
    let name = &node["metadata"]["name"];
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|one| one["type"] == "NetworkUnavailable");
    let status = condition.and_then(|one| one["status"].as_str());
    let pods = own_pods(node);
    let servers = sandbox.cloud().servers(sandbox.project());
    let id = server_of(node);
    let server = servers.iter().find(|server| Some(&server["id"]) == id.map(Value::from).as_ref());
    let wanted = match server {
        _ if pods.is_empty() || id.is_none() => None,
        // The lifecycle controller decides whether the node is deleted.
        None => return Ok(()),
        Some(server) => {
            let via = server["private_net"][0]["ip"].as_str().unwrap_or_default();
            let mut pods = pods.iter();
            let is_there = pods.all(|pods| routes.contains(&format!("{pods} {via}")));
            Some(if is_there { "False" } else { "True" })
        }
    };
    match status == wanted {
        true => Ok(()),
        false => Err(format!(
            "node {name}: NetworkUnavailable is {status:?}, and not {wanted:?}: {routes:#?}"
        )),
    }
}

/// Returns the ranges of a node's pods that are within the cluster's range.
fn own_pods(node: &Value) -> Vec<String> {
    let pods = node["spec"]["podCIDRs"].as_array().into_iter().flatten();
    let pods = pods.filter_map(Value::as_str);
    let ours = pods.filter(|pods| pods.starts_with(CLUSTER_RANGE_PREFIX));
    ours.map(str::to_owned).collect()
}

/// Returns the addresses in the Network of servers that no node with pods names.
fn free_addresses(sandbox: &Sandbox) -> BTreeSet<String> {
    let nodes = sandbox.cluster().list("nodes", None);
    let with_pods = nodes.iter().filter(|node| !node["spec"]["podCIDRs"].is_null());
    let named: Vec<u64> = with_pods.filter_map(server_of).collect();
    let mut servers = sandbox.cloud().servers(sandbox.project());
    servers.retain(|one| !named.iter().any(|id| one["id"] == *id));
    let addresses = servers.iter().filter_map(|one| one["private_net"][0]["ip"].as_str());
    addresses.map(str::to_owned).collect()
}

fn server_of(node: &Value) -> Option<u64> {
    node["spec"]["providerID"].as_str()?.strip_prefix(PREFIX)?.parse().ok()
}

fn server_named(sandbox: &Sandbox, name: &str) -> Option<u64> {
    let servers = sandbox.cloud().servers(sandbox.project());
    let server = servers.iter().find(|server| server["name"] == name)?;
    server["id"].as_u64()
}

/// Returns the only address of a server in the Network.
fn ip(sandbox: &Sandbox, name: &str) -> String {
    let servers = sandbox.cloud().servers(sandbox.project());
    let server = servers.iter().find(|server| server["name"] == name);
    let ip = server.and_then(|server| server["private_net"][0]["ip"].as_str());
    ip.unwrap().to_owned()
}

fn network(sandbox: &Sandbox) -> u64 {
    sandbox.network().unwrap()
}
