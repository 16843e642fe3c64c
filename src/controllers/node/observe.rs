//! What both APIs say about nodes: read only.

use super::plan::{NodePlan, View, plan};
use crate::cloud::{Instance, Provider, Urgency};
use crate::kube::Node;
use crate::world::{self, Error, World};
use std::time::Duration;

/// Nodes, and servers where somebody asked for them.
pub struct Observed {
    pub nodes: world::View<Vec<Node>>,
    pub instances: Option<world::View<Vec<Instance>>>,
}

pub(super) fn observe(
    world: &World,
    nodes: world::View<Vec<Node>>,
    instances_max_age: Duration,
    urgency: Urgency,
) -> Result<Observed, Error> {
    let instances = world.instances(instances_max_age, urgency)?;
    Ok(Observed {
        nodes,
        instances: Some(instances),
    })
}

impl Observed {
    pub(super) fn only(nodes: world::View<Vec<Node>>) -> Observed {
        Observed {
            nodes,
            instances: None,
        }
    }

    pub(super) fn instances_age(&self) -> Duration {
        self.instances
            .as_ref()
            .map_or(Duration::MAX, world::View::age)
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            nodes: &self.nodes.value,
            instances: self.instances(),
        }
    }

    pub fn instances(&self) -> &[Instance] {
        self.instances
            .as_ref()
            .map_or(&[], |view| view.value.as_slice())
    }

    /// The plan for one node as it is now, among the others as they were.
    pub(super) fn replan(&self, now: &Node, provider: &dyn Provider) -> Option<NodePlan> {
        let same = |node: &Node| node.name() == now.name();
        let nodes: Vec<Node> = self
            .nodes
            .value
            .iter()
            .map(|node| {
                if same(node) {
                    now.clone()
                } else {
                    node.clone()
                }
            })
            .collect();
        plan(
            &View {
                nodes: &nodes,
                instances: self.instances(),
            },
            provider,
            same,
        )
        .pop()
    }
}
