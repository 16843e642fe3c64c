//! What both APIs say about nodes: read only.

use crate::cache::{self, Apis, Error};
use crate::controllers::matching::Index;
use crate::kube::Node;
use crate::provider::{Instance, Provider, Urgency};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nodes, and servers where they are needed.
pub struct Observed {
    pub nodes: cache::View<Vec<Arc<Node>>>,
    pub instances: Option<cache::View<Vec<Instance>>>,
}

/// How young a list of servers plans need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Read, and then used for no longer than this.
    pub(super) in_use_at_most: Duration,
    /// Requested since then; none: at any time.
    pub(super) asked_since: Option<Instant>,
}

impl Need {
    pub(super) fn in_use(at_most: Duration) -> Need {
        Need {
            in_use_at_most: at_most,
            asked_since: None,
        }
    }
}

pub(super) fn observe(
    apis: &Apis,
    nodes: cache::View<Vec<Arc<Node>>>,
    need: Need,
    urgency: Urgency,
) -> Result<Observed, Error> {
    let max_age = need.in_use_at_most;
    let instances = match need.asked_since {
        Some(since) => apis.instances_since(since, max_age, urgency)?,
        None => apis.instances(max_age, urgency)?,
    };
    Ok(Observed {
        nodes,
        instances: Some(instances),
    })
}

impl Observed {
    pub(super) fn only(nodes: cache::View<Vec<Arc<Node>>>) -> Observed {
        Observed {
            nodes,
            instances: None,
        }
    }

    /// May plans that need a list like this rest on the one at hand?
    pub(super) fn is_good_for(&self, need: Need) -> bool {
        self.instances.as_ref().is_some_and(|view| {
            view.time_in_use() <= need.in_use_at_most
                && need.asked_since.is_none_or(|since| view.asked >= since)
        })
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
