//! `ccm node list | inspect | sync`: what both node controllers see and would do, for people.

mod inspect;
mod json;
mod list;
mod sync;

pub(super) use inspect::inspect;
pub(super) use list::list;
pub(super) use sync::sync;

use super::output::Printer;
use super::startup;
use super::wire;
use super::{Exit, or_dash, usage};
use crate::cache::Apis;
use crate::controllers::lifecycle::{LifecycleController, LifecyclePlan};
use crate::controllers::node::{NodeController, NodePlan, Server};
use crate::controllers::{Proposal, Selection};
use crate::provider::Finding;
use crate::settings::{Command, Settings, all_nearest, one_of};
use std::collections::HashMap;
use std::ffi::OsString;

/// Of names that are equally near to one that is no node's, so many are named.
const NEAREST_AT_MOST: usize = 3;

/// Everything a command needs.
struct Context {
    settings: Settings,
    apis: Apis,
    nodes: NodeController,
    lifecycle: LifecycleController,
    names: Vec<String>,
    /// Unset here, and may be set for the daemon.
    unknown: Vec<String>,
}

/// What the controllers would do to one node.
pub(super) struct Plans {
    pub(super) node: NodePlan,
    /// None when the lifecycle controller does not check it.
    pub(super) lifecycle: Option<LifecyclePlan>,
}

fn ask(command: Command, words: Vec<OsString>) -> Result<Context, Exit> {
    let mut started = startup::start(command, words)?;
    let unknown = started.unknown.clone();
    let apis = started.apis(unknown.clone())?;
    Ok(Context {
        apis,
        nodes: NodeController::new(wire::node_settings(&started.settings)),
        lifecycle: LifecycleController::new(wire::lifecycle_settings(&started.settings)),
        settings: started.settings,
        names: started.words,
        unknown,
    })
}

impl Context {
    fn evaluate(&self, selection: &Selection) -> Result<Vec<Plans>, Exit> {
        self.check_names()?;
        let nodes = self
            .nodes
            .evaluate(&self.apis, selection)
            .map_err(|error| startup::failed(&self.apis, &error))?;
        let lifecycle = self
            .lifecycle
            .evaluate(&self.apis, selection)
            .map_err(|error| startup::failed(&self.apis, &error))?;
        Ok(together(nodes, lifecycle))
    }

    /// Every name must be a node's; the nodes read here are those that are planned on.
    fn check_names(&self) -> Result<(), Exit> {
        if self.names.is_empty() {
            return Ok(());
        }
        let nodes = self
            .nodes
            .nodes(&self.apis, &Selection::All)
            .map_err(|error| startup::failed(&self.apis, &error))?;
        let there: Vec<&str> = nodes.value.iter().map(|node| node.name()).collect();
        let mut exit = Ok(());
        for name in self
            .names
            .iter()
            .filter(|name| !there.contains(&name.as_str()))
        {
            exit = Err(Printer::failure(&unknown_node(name, &there)));
        }
        exit
    }
}

/// The plans of both controllers, by node.
fn together(nodes: Vec<NodePlan>, lifecycle: Vec<LifecyclePlan>) -> Vec<Plans> {
    let mut by_uid: HashMap<String, LifecyclePlan> = lifecycle
        .into_iter()
        .map(|plan| (plan.object.uid.clone(), plan))
        .collect();
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
    fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        let lifecycle = self.lifecycle.iter().flat_map(|plan| &plan.obstacle);
        self.node.obstacle.iter().chain(lifecycle)
    }

    fn proposal(&self) -> Proposal {
        let mut proposal = self.node.proposal();
        for lifecycle in self.lifecycle.iter().map(LifecyclePlan::proposal) {
            proposal.lines.extend(lifecycle.lines);
            proposal.obstacle = proposal.obstacle.or(lifecycle.obstacle);
        }
        proposal
    }

    fn has_changes(&self) -> bool {
        let lifecycle = self
            .lifecycle
            .as_ref()
            .is_some_and(|plan| plan.change.is_some());
        lifecycle || !self.node.changes.is_empty()
    }
}

fn unknown_node(name: &str, there: &[&str]) -> String {
    let mut near = all_nearest(name, there.iter().copied());
    near.truncate(NEAREST_AT_MOST);
    match near.as_slice() {
        [] if there.is_empty() => format!("there is no node {name:?}: the cluster has none"),
        [] => format!(
            "there is no node {name:?}; ccm node list shows all {}",
            there.len()
        ),
        near => format!("there is no node {name:?}; did you mean {}?", one_of(near)),
    }
}

fn state_cell(server: &Server) -> String {
    match server {
        Server::Matched(instance, _) => instance.state.to_string(),
        Server::Gone(_) => "missing".into(),
        Server::Foreign => "foreign".into(),
        Server::Unknown => "unknown".into(),
        Server::Unmatched => "-".into(),
    }
}
