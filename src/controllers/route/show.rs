//! A plan in words: for people, for programs, and as what a tick would do.

use super::plan::{Change, NETWORK_UNAVAILABLE, NodePlan, Plan, State};
use crate::controllers::Proposal;
use crate::provider::{Finding, RouteChange};
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl State {
    pub const ALL: [State; 8] = [
        State::Ok,
        State::Missing,
        State::WrongGateway,
        State::Blackhole,
        State::Unwanted,
        State::Stale,
        State::LeftAlone,
        State::NotOurs,
    ];

    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Missing => "missing",
            State::WrongGateway => "wrong gateway",
            State::Blackhole => "blackhole",
            State::Unwanted => "unwanted",
            State::Stale => "stale",
            State::LeftAlone => "left alone",
            State::NotOurs => "not ours",
        }
    }
}

impl Change {
    /// Whom it is about: its node, else the destination itself.
    pub fn object(&self) -> String {
        match &self.node {
            Some(node) => format!("node/{node}"),
            None => format!("route/{}", self.route.destination),
        }
    }

    /// `route 10.244.1.0/24 via 10.0.0.2: added`.
    pub fn line(&self) -> String {
        let Change { route, why, .. } = self;
        match self.change {
            RouteChange::Add => format!("route {route}: added"),
            RouteChange::Delete => format!("route {route}: deleted ({why})"),
        }
    }

    /// `route 10.244.1.0/24 via 10.0.0.2: could not be added`.
    pub(super) fn tried(&self) -> String {
        let verb = match self.change {
            RouteChange::Add => "added",
            RouteChange::Delete => "deleted",
        };
        format!("route {}: could not be {verb}", self.route)
    }

    pub fn json(&self) -> Value {
        json!({
            "change": self.change.name(),
            "destination": self.route.destination,
            "gateway": self.route.gateway,
            "because": self.why,
        })
    }
}

impl NodePlan {
    /// `node/worker-1`.
    pub fn name(&self) -> String {
        format!("node/{}", self.object.name)
    }

    /// What its condition is to say, where it says something else.
    pub fn condition(&self) -> Option<bool> {
        let now = self.node.condition(NETWORK_UNAVAILABLE);
        self.unavailable
            .filter(|unavailable| now != Some(status(*unavailable)))
    }

    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.obstacle.iter().chain(&self.findings)
    }
}

/// As a condition says it.
pub(super) fn status(unavailable: bool) -> &'static str {
    match unavailable {
        true => "True",
        false => "False",
    }
}

/// `condition NetworkUnavailable: False`.
pub(super) fn condition_line(unavailable: bool) -> String {
    format!("condition {NETWORK_UNAVAILABLE}: {}", status(unavailable))
}

pub fn condition_json(unavailable: bool) -> Value {
    json!({ "change": "SetCondition", "type": NETWORK_UNAVAILABLE, "status": status(unavailable) })
}

impl Plan {
    pub fn has_writes(&self) -> bool {
        !self.changes.is_empty() || self.nodes.iter().any(|node| node.condition().is_some())
    }

    /// By node; and by destination, where no node has to do with it.
    pub fn proposals(&self) -> Vec<Proposal> {
        let mut by_object = BTreeMap::new();
        for change in &self.changes {
            let proposal = proposal_of(&mut by_object, change.object());
            proposal.lines.push(change.line());
        }
        for node in &self.nodes {
            let proposal = proposal_of(&mut by_object, node.name());
            proposal.lines.extend(node.condition().map(condition_line));
            let why = node.obstacle.as_ref();
            proposal.obstacle = why.map(|finding| finding.message.clone());
        }
        by_object.into_values().collect()
    }
}

fn proposal_of(all: &mut BTreeMap<String, Proposal>, object: String) -> &mut Proposal {
    let empty = Proposal {
        object: object.clone(),
        lines: Vec::new(),
        obstacle: None,
    };
    all.entry(object).or_insert(empty)
}
