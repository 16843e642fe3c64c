//! What should be done about routes: a pure function of nodes, servers and the network.
//!
//! It is responsible for routes within the cluster's CIDRs and for no other.

use super::desired::DesiredRoutes;
use super::planner::Planner;
use crate::kube::{Node, ObjectReference};
use crate::provider::{Finding, Instance, Network, Provider, Route, RouteChange};
use ipnet::{IpNet, Ipv4Net};
use std::collections::HashSet;
use std::sync::Arc;

/// The condition of a node whose pods can't be reached.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// What both APIs said.
pub struct View<'a> {
    pub nodes: &'a [Arc<Node>],
    pub instances: &'a [Instance],
    pub network: &'a Network,
    /// `--cluster-cidr`.
    pub cluster_cidrs: &'a [IpNet],
    /// Routes that an earlier comparison saw to be wanted by our nodes.
    pub remembered: &'a HashSet<Route>,
    /// Nodes, by UID, whose routes have waited for long.
    pub lacking: &'a HashSet<String>,
}

/// What there is, and what is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Every route that is there or wanted, by destination.
    pub rows: Vec<Row>,
    /// One after the other; a route that takes another's place follows right after it.
    pub changes: Vec<Change>,
    /// Nodes of ours with something to say about them, by name.
    pub nodes: Vec<NodePlan>,
    /// About the network.
    pub findings: Vec<Finding>,
    /// Routes in the way may be another cluster's; when what is free is added, it may be clearer.
    pub is_doubtful: bool,
    /// What `findings` are about.
    pub network: Option<ObjectReference>,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub destination: Ipv4Net,
    /// As it is; none: there is no route.
    pub have: Option<Route>,
    /// As it should be.
    pub want: Option<Route>,
    /// Whose pods it leads to, or on whose server it ends.
    pub node: Option<String>,
    /// Name of the server that it leads to.
    pub server: Option<String>,
    pub state: State,
    pub step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ok,
    /// Wanted, and not there.
    Missing,
    /// It leads to another server than its node's.
    WrongGateway,
    /// Its gateway is no server's.
    Blackhole,
    /// It leads to a node that does not have these pods.
    Unwanted,
    /// It leads to a server that no node runs on.
    Stale,
    /// The pods there are a node's whose server we don't know.
    LeftAlone,
    /// Outside the cluster's CIDRs.
    NotOurs,
}

/// What is to be done about a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    Add,
    Delete,
    Replace,
    /// Something stands in the way: see the node's obstacle.
    Cannot,
}

/// One write to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub change: RouteChange,
    pub route: Route,
    /// None: no node has to do with it.
    pub node: Option<String>,
    pub why: &'static str,
}

/// One node whose pods are within the cluster's CIDRs, or should be.
#[derive(Clone, Debug)]
pub struct NodePlan {
    pub object: ObjectReference,
    pub node: Arc<Node>,
    /// Those that it needs, each as it should be.
    pub routes: Vec<Route>,
    /// What its condition has to say when all is done; none: it is left as it is.
    pub unavailable: Option<bool>,
    /// Something in its way may be another cluster's.
    pub is_held_back: bool,
    /// Why one of its routes can't be.
    pub obstacle: Option<Finding>,
    pub findings: Vec<Finding>,
}

impl Plan {
    /// It takes a route away, or says that a node's server is not there. A list of servers from
    /// before the routes were read may lack one that was made since.
    pub(super) fn needs_all_servers(&self) -> bool {
        let is_delete = |change: &Change| change.change == RouteChange::Delete;
        let is_blocked = |node: &NodePlan| node.obstacle.is_some();
        self.changes.iter().any(is_delete) || self.nodes.iter().any(is_blocked)
    }
}

pub fn plan(view: &View, provider: &dyn Provider) -> Plan {
    let desired = DesiredRoutes::new(view, provider);
    let mut planner = Planner::new(view, &desired);
    let mut rows: Vec<Row> = view.network.routes.iter().map(|r| planner.row(r)).collect();
    planner.add_missing(&mut rows);
    rows.sort_by_key(|row| (row.destination, row.have));
    let changes = changes(&rows);
    Plan {
        nodes: planner.nodes(),
        findings: planner.findings(&rows),
        is_doubtful: planner.is_doubtful(),
        network: Some(ObjectReference {
            kind: "Network",
            name: view.network.name.clone(),
            namespace: String::new(),
            uid: view.network.id.to_string(),
        }),
        rows,
        changes,
    }
}

/// Deletions first, for they make room; then what takes another's place, each pair together, so
/// that a route is missing for no longer than that takes; then the new ones.
fn changes(rows: &[Row]) -> Vec<Change> {
    let of = |row: &Row, change, route: &Option<Route>, why| {
        route.map(|route| Change {
            change,
            route,
            node: row.node.clone(),
            why,
        })
    };
    let mut changes = Vec::new();
    for row in rows.iter().filter(|row| row.step == Step::Delete) {
        let why = match row.state {
            State::Blackhole => "its gateway is no server's",
            _ => "no node has these pods there",
        };
        changes.extend(of(row, RouteChange::Delete, &row.have, why));
    }
    for row in rows.iter().filter(|row| row.step == Step::Replace) {
        let why = "these pods are on another server";
        changes.extend(of(row, RouteChange::Delete, &row.have, why));
        changes.extend(of(
            row,
            RouteChange::Add,
            &row.want,
            "the node's pods are there",
        ));
    }
    for row in rows.iter().filter(|row| row.step == Step::Add) {
        changes.extend(of(
            row,
            RouteChange::Add,
            &row.want,
            "the node's pods are there",
        ));
    }
    changes
}
