//! What both APIs say about nodes: read only.

use crate::cloud::{Instance, Provider, Urgency};
use crate::controllers::matching::Index;
use crate::kube::Node;
use crate::world::{self, Error, World};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nodes, and servers where somebody asked for them.
pub struct Observed {
    pub nodes: world::View<Vec<Arc<Node>>>,
    pub instances: Option<world::View<Vec<Instance>>>,
}

/// How young a list of servers plans need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Any,
    /// Read, and then used for no longer than this.
    InUse(Duration),
    /// Asked for since then.
    AskedSince(Instant),
}

impl Need {
    /// The age to ask the cache for.
    pub(super) fn max_age(self) -> Duration {
        match self {
            Need::Any => Duration::MAX,
            Need::InUse(at_most) => at_most,
            Need::AskedSince(begun) => begun.elapsed(),
        }
    }
}

pub(super) fn observe(
    world: &World,
    nodes: world::View<Vec<Arc<Node>>>,
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
    pub(super) fn only(nodes: world::View<Vec<Arc<Node>>>) -> Observed {
        Observed {
            nodes,
            instances: None,
        }
    }

    /// May plans that need a list like this rest on the one at hand?
    pub(super) fn is_good_for(&self, need: Need) -> bool {
        match (&self.instances, need) {
            (_, Need::Any) => true,
            (None, _) => false,
            (Some(view), Need::InUse(at_most)) => view.time_in_use() <= at_most,
            (Some(view), Need::AskedSince(begun)) => view.asked >= begun,
        }
    }

    pub(super) fn index<'a>(&'a self, provider: &'a dyn Provider) -> Index<'a> {
        Index::new(provider, self.nodes.value.as_slice(), self.instances())
    }

    pub fn instances(&self) -> &[Instance] {
        self.instances
            .as_ref()
            .map_or(&[], |view| view.value.as_slice())
    }
}
