//! The plans of both node controllers, by node, and their form for programs.

use crate::cache;
use crate::cli::changes::warnings;
use crate::cli::objects::{Context, Item, Planned, error_of, unknown_name};
use crate::cli::output::{Exit, Printer};
use crate::cli::{startup, wire};
use crate::controllers::lifecycle::{self, LifecycleController, LifecyclePlan};
use crate::controllers::node::{self, NodeController, NodePlan, Server, is_uninitialised};
use crate::controllers::{Proposal, Report, Selection};
use crate::provider::{Finding, NodeAddress};
use crate::settings::Command;
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsString;

/// What the commands on nodes work with.
pub(super) struct Nodes {
    pub(super) context: Context,
    pub(super) nodes: NodeController,
    pub(super) lifecycle: LifecycleController,
}

/// What the controllers would do to one node.
pub(super) struct Plans {
    pub(super) node: NodePlan,
    /// None when the lifecycle controller does not check it.
    pub(super) lifecycle: Option<LifecyclePlan>,
}

impl Nodes {
    pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Nodes, Exit> {
        let context = Context::new(startup::start(command, words)?)?;
        Ok(Nodes {
            nodes: NodeController::new(wire::node_settings(&context.settings)),
            lifecycle: LifecycleController::new(wire::lifecycle_settings(&context.settings)),
            context,
        })
    }

    /// Those that are named, else all. The error: a name is no node's.
    pub(super) fn selection(&self) -> Result<Selection, Exit> {
        let names = &self.context.names;
        if names.is_empty() {
            return Ok(Selection::All);
        }
        // The nodes read here are those that are planned on.
        let nodes = self.nodes.nodes(&self.context.apis, &Selection::All);
        let nodes = nodes.map_err(|error| self.context.failed(&error))?;
        let there: Vec<&str> = nodes.value.iter().map(|node| node.name()).collect();
        let mut exit = Ok(Selection::Names(names.iter().cloned().collect()));
        for name in names.iter().filter(|name| !there.contains(&name.as_str())) {
            let what = format!("node {name:?}");
            let why = unknown_name(&what, name, &there, "ccm node list");
            exit = Err(Printer::failure(&why));
        }
        exit
    }

    pub(super) fn evaluate(&self, selection: &Selection) -> Result<Vec<Plans>, Exit> {
        let apis = &self.context.apis;
        let plans = || {
            let (_, nodes) = self.nodes.evaluate(apis, selection)?;
            let (lifecycle, _) = self.lifecycle.evaluate(apis, selection)?;
            Ok(together(nodes, lifecycle))
        };
        plans().map_err(|error: cache::Error| self.context.failed(&error))
    }
}

pub(super) fn together(nodes: Vec<NodePlan>, lifecycle: Vec<LifecyclePlan>) -> Vec<Plans> {
    let by_uid = lifecycle.into_iter();
    let mut by_uid: HashMap<String, LifecyclePlan> =
        by_uid.map(|plan| (plan.object.uid.clone(), plan)).collect();
    let plans = nodes.into_iter().map(|node| Plans {
        lifecycle: by_uid.remove(&node.object.uid),
        node,
    });
    plans.collect()
}

impl Plans {
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        let lifecycle = self.lifecycle.iter().flat_map(|plan| &plan.obstacle);
        self.node.all_findings().chain(lifecycle)
    }

    /// What blocks it, of either controller.
    pub(super) fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        let lifecycle = self.lifecycle.iter().flat_map(|plan| &plan.obstacle);
        self.node.obstacle.iter().chain(lifecycle)
    }

    /// Of the lifecycle controller.
    pub(super) fn lifecycle_change(&self) -> Option<&lifecycle::Change> {
        self.lifecycle.as_ref()?.change.as_ref()
    }

    pub(super) fn proposal(&self) -> Proposal {
        let mut proposal = self.node.proposal();
        for lifecycle in self.lifecycle.iter().map(LifecyclePlan::proposal) {
            proposal.lines.extend(lifecycle.lines);
            proposal.obstacle = proposal.obstacle.or(lifecycle.obstacle);
        }
        proposal
    }
}

impl Planned for Vec<Plans> {
    const KIND: &'static str = "Node";

    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize> {
        let items = self.iter().map(|plans| {
            let changes = plans.node.changes.iter().map(Change::Node);
            let lifecycle = plans.lifecycle_change().map(Change::Lifecycle);
            Item {
                object: Object::new(&plans.node),
                cloud: Cloud::new(&plans.node.server),
                differences: plans.node.differences().collect(),
                changes: changes.chain(lifecycle).collect(),
                held_back: None,
                findings: plans.findings().collect(),
                error: error_of(report, &format!("node/{}", plans.node.object.name)),
            }
        });
        items.collect()
    }

    fn proposals(&self) -> Vec<Proposal> {
        self.iter().map(Plans::proposal).collect()
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.iter().flat_map(|plans| {
            let is_obstacle = |finding: &&Finding| plans.obstacles().any(|one| one == *finding);
            let findings = plans.findings().filter(move |one| !is_obstacle(one));
            warnings(&format!("node/{}", plans.node.object.name), findings).collect::<Vec<_>>()
        });
        notes.collect()
    }
}

/// A change of one of the controllers that nodes have.
#[derive(Serialize)]
#[serde(untagged)]
enum Change<'a> {
    Node(&'a node::Change),
    Lifecycle(&'a lifecycle::Change),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    kind: &'static str,
    name: &'a str,
    uid: &'a str,
    #[serde(rename = "providerID")]
    provider_id: &'a str,
    ready: bool,
    uninitialized: bool,
    addresses: Vec<NodeAddress>,
}

impl Object<'_> {
    fn new(plan: &NodePlan) -> Object<'_> {
        Object {
            kind: "Node",
            name: &plan.object.name,
            uid: &plan.object.uid,
            provider_id: &plan.node.spec.provider_id,
            ready: plan.node.is_ready(),
            uninitialized: is_uninitialised(&plan.node),
            addresses: plan.reported_addresses(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cloud<'a> {
    kind: &'static str,
    id: u64,
    name: &'a str,
    state: String,
    #[serde(rename = "type")]
    instance_type: &'a str,
    location: &'a str,
    network_zone: &'a str,
    public_ipv4: Option<String>,
    public_ipv6: Option<String>,
    private_ips: Vec<String>,
    matched_by: String,
}

impl Cloud<'_> {
    fn new(server: &Server) -> Option<Cloud<'_>> {
        let Server::Matched(instance, by) = server else {
            return None;
        };
        let private = instance.private.iter();
        Some(Cloud {
            kind: "Server",
            id: instance.id.0,
            name: &instance.name,
            state: instance.state.to_string(),
            instance_type: &instance.instance_type,
            location: &instance.location,
            network_zone: &instance.network_zone,
            public_ipv4: instance.public_ipv4.map(|ip| ip.to_string()),
            public_ipv6: instance.public_ipv6.map(|net| net.to_string()),
            private_ips: private.map(|private| private.ip.to_string()).collect(),
            matched_by: by.to_string(),
        })
    }
}

/// The server's state in a word.
pub(super) fn state(server: &Server) -> String {
    match server {
        Server::Matched(instance, _) => instance.state.to_string(),
        Server::Gone(_) => "missing".into(),
        Server::Foreign => "foreign".into(),
        Server::Unknown => "unknown".into(),
        Server::Unmatched => "-".into(),
    }
}
