//! Nodes, servers and a network as data.

use crate::common::objects;
use crate::route::fake_provider::FakeProvider;
use ccm::controllers::NETWORK_UNAVAILABLE;
use ccm::controllers::route::{Inputs, NodeRoutePlan, RoutePlan, RouteRow, plan};
use ccm::kube::KubeNode;
use ccm::provider::{Instance, InstanceId, Network, PrivateAddress, Route};
use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

const NETWORK: u64 = 7;

/// Nodes, servers and the network, as both APIs say.
pub struct World {
    pub nodes: Vec<Arc<KubeNode>>,
    pub instances: Vec<Instance>,
    pub network: Network,
    pub cluster_cidrs: Vec<IpNet>,
    pub remembered: HashSet<Route>,
    pub is_in_doubt_for_long: bool,
}

impl World {
    /// Returns a world with these routes, each written as `destination gateway`.
    pub fn new(cluster_cidrs: &str, routes: &[&str]) -> World {
        let cidrs = cluster_cidrs.split(',');
        World {
            nodes: Vec::new(),
            instances: Vec::new(),
            network: Network {
                id: NETWORK,
                name: "net".into(),
                range: None,
                subnets: vec!["10.0.0.0/24".parse().unwrap()],
                routes: routes.iter().map(|text| route(text)).collect(),
                other_routes: 0,
                routes_at_most: 100,
            },
            cluster_cidrs: cidrs.map(|cidr| cidr.parse().unwrap()).collect(),
            remembered: HashSet::new(),
            is_in_doubt_for_long: false,
        }
    }

    pub fn node(&mut self, name: &str, provider_id: &str, cidrs: &str) -> &mut World {
        let cidrs: Vec<&str> = cidrs.split(',').filter(|cidr| !cidr.is_empty()).collect();
        let spec = json!({ "providerID": provider_id, "podCIDRs": cidrs });
        self.node_with(name, json!({ "spec": spec }))
    }

    /// A node with these fields beside its name.
    pub fn node_with(&mut self, name: &str, extra: Value) -> &mut World {
        self.nodes.push(Arc::new(objects::node(name, extra)));
        self
    }

    /// A server in the network, and the node on it with these pods.
    pub fn machine(&mut self, id: u64, ip: &str, name: &str, cidrs: &str) -> &mut World {
        self.server(id, &[ip]);
        self.node(name, &format!("memory://{id}"), cidrs)
    }

    /// Adds a route, as `destination gateway`, that a node needed at an earlier comparison.
    pub fn remember(&mut self, text: &str) -> &mut World {
        self.remembered.insert(route(text));
        self
    }

    /// Adds a server with these addresses in the network. The first address is its own, and the others are alias IPs.
    pub fn server(&mut self, id: u64, ips: &[&str]) -> &mut World {
        let mut ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let own = (!ips.is_empty()).then(|| ips.remove(0));
        let private = own.map(|ip| PrivateAddress { network: NETWORK, ip, aliases: ips });
        self.instances.push(Instance {
            id: InstanceId::Cloud(id),
            name: format!("server-{id}"),
            private: Vec::from_iter(private),
            ..Instance::default()
        });
        self
    }

    pub fn plan(&self) -> RoutePlan {
        let inputs = Inputs {
            nodes: &self.nodes,
            instances: &self.instances,
            network: &self.network,
            cluster_cidrs: &self.cluster_cidrs,
            remembered: &self.remembered,
            is_in_doubt_for_long: self.is_in_doubt_for_long,
        };
        plan(&inputs, &FakeProvider::default())
    }

    /// Makes the changes of the plan as the API would. Returns an error for a change that the API would refuse.
    pub fn apply(&mut self, plan: &RoutePlan) -> Result<(), String> {
        for change in &plan.changes {
            let route = change.route;
            let routes = &mut self.network.routes;
            match change.is_deletion {
                true => {
                    let before = routes.len();
                    routes.retain(|other| *other != route);
                    if routes.len() == before {
                        return Err(format!("{route} is not there to be deleted"));
                    }
                }
                false => {
                    let others = routes.iter().map(|other| other.destination);
                    let others = others.filter(|net| net.prefix_len() > 0);
                    let mut taken = others.chain(self.network.subnets.iter().copied());
                    if let Some(net) = taken.find(|net| overlap(*net, route.destination)) {
                        return Err(format!("{route} overlaps {net}"));
                    }
                    if routes.len() >= self.network.routes_at_most {
                        return Err(format!("{route} is one too many"));
                    }
                    routes.push(route);
                }
            }
        }
        for node in &plan.nodes {
            let Some(unavailable) = node.changes.first().and(node.unavailable) else {
                continue;
            };
            let mut nodes = self.nodes.iter_mut();
            let there = nodes.find(|one| one.name() == node.object.name);
            Arc::make_mut(there.unwrap()).status.conditions = vec![match unavailable {
                true => condition("True", "NoRouteCreated"),
                false => condition("False", "RouteCreated"),
            }];
        }
        Ok(())
    }
}

pub fn route(text: &str) -> Route {
    let (destination, gateway) = text.split_once(' ').unwrap();
    Route { destination: destination.parse().unwrap(), gateway: gateway.parse().unwrap() }
}

pub fn condition(status: &str, reason: &str) -> ccm::kube::Condition {
    let it = json!({ "type": NETWORK_UNAVAILABLE, "status": status, "reason": reason });
    serde_json::from_value(it).unwrap()
}

pub fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Returns the row of the existing route rather than that of a missing one.
pub fn row<'a>(plan: &'a RoutePlan, destination: &str) -> Option<&'a RouteRow> {
    let destination = destination.parse().unwrap();
    let mut rows = plan.rows.iter().rev();
    rows.find(|row| row.destination == destination)
}

pub fn node<'a>(plan: &'a RoutePlan, name: &str) -> &'a NodeRoutePlan {
    let mut nodes = plan.nodes.iter();
    nodes.find(|node| node.object.name == name).unwrap()
}

pub fn changes(plan: &RoutePlan) -> Vec<String> {
    let lines = plan.changes.iter().map(|change| match change.is_deletion {
        false => format!("+ {}", change.route),
        true => format!("- {}", change.route),
    });
    lines.collect()
}

pub fn reasons(plan: &RoutePlan) -> BTreeSet<&'static str> {
    let of_nodes = plan.nodes.iter().flat_map(NodeRoutePlan::all_findings);
    let all = of_nodes.chain(&plan.findings);
    all.map(|finding| finding.reason.name()).collect()
}

/// Node `a` on server 1 at 10.0.0.11, whose route is right.
pub fn anchored(routes: &[&str]) -> World {
    let routes = [&["10.244.1.0/24 10.0.0.11"], routes].concat();
    let mut world = World::new("10.244.0.0/16", &routes);
    world.machine(1, "10.0.0.11", "a", "10.244.1.0/24");
    world
}
