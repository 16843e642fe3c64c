//! What a tick is about, and how old a list of servers it may rest on.

use super::observe::Need;
use super::plan::{NodePlan, is_uninitialised};
use super::{NodeController, Selection};
use crate::cache::{self, Apis, Error};
use crate::kube::Node;
use crate::provider::{Provider, ProviderId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a tick looks at the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Nothing,
    /// Only initialised nodes, only because it is time again.
    Refresh,
    /// A node or a person waits.
    Needed,
}

/// What list of servers these plans may rest on; made on an older one, they only propose.
/// `look` is when this tick began, `young` what a write may rest on.
pub(super) fn need(
    apis: &Apis,
    plans: impl Iterator<Item = NodePlan>,
    look: Instant,
    young: Duration,
) -> Need {
    let mut need = Need::in_use(Duration::MAX);
    for plan in plans {
        if !plan.changes.is_empty() {
            need.in_use_at_most = young;
        }
        if plan.misses_its_server() {
            // A server that is missing from an older list may have been made since, and a new
            // node must not be reported to have none.
            need.asked_since = need.asked_since.max(Some(look));
        }
        if plan.needs_later_list() {
            // All new nodes of a tick share the list that the last one of them needs.
            let first_seen = apis.node_first_seen(&plan.node);
            let since = first_seen.unwrap_or_else(Instant::now);
            need.asked_since = need.asked_since.max(Some(since));
        }
    }
    need
}

impl NodeController {
    pub(super) fn work(
        &self,
        apis: &Apis,
        nodes: &[Arc<Node>],
        selection: &Selection,
        now: Instant,
    ) -> Work {
        if selection.is_explicit() || nodes.iter().any(|node| self.is_due(node, apis, now)) {
            Work::Needed
        } else if self.is_refresh_due(now) {
            Work::Refresh
        } else {
            Work::Nothing
        }
    }

    pub(super) fn is_refresh_due(&self, now: Instant) -> bool {
        let frequency = self.settings.status_update_frequency;
        self.last_refresh
            .is_none_or(|last| now.duration_since(last) >= frequency)
    }

    /// Since when a whole look at the nodes counts: a refresh needs one made since it became
    /// due, or shortly before by another controller.
    pub(super) fn whole_max_age(&self, now: Instant) -> Duration {
        let frequency = self.settings.status_update_frequency;
        let overdue = self
            .last_refresh
            .and_then(|last| now.duration_since(last).checked_sub(frequency));
        overdue.map_or(frequency, |time| {
            frequency.min(time + self.settings.sync_interval)
        })
    }

    /// Those that are due, as they are now: a table shows no taint.
    pub(super) fn read_again(
        &self,
        apis: &Apis,
        nodes: &[Arc<Node>],
        now: Instant,
    ) -> Result<cache::View<Vec<Arc<Node>>>, Error> {
        let due = nodes.iter().filter(|node| self.is_due(node, apis, now));
        let names: Vec<String> = due.map(|node| node.name().to_owned()).collect();
        apis.nodes_again(&names, self.settings.sync_interval / 2)
    }

    /// Waits for its initialisation, or failed before; and its back-off is over.
    pub(super) fn is_due(&self, node: &Node, apis: &Apis, now: Instant) -> bool {
        let uid = &node.metadata.uid;
        let is_new = is_uninitialised(node) && !is_left_alone(node, &*apis.provider);
        self.backoff.is_retry_due(uid, now) || (is_new && !self.backoff.is_waiting(uid, now))
    }

    /// What an outage keeps waiting, for its log line.
    pub(super) fn waiting(&self, apis: &Apis, now: Instant) -> String {
        let Some(nodes) = apis.nodes_seen() else {
            return String::new();
        };
        match nodes
            .value
            .iter()
            .filter(|node| self.is_due(node, apis, now))
            .count()
        {
            0 => String::new(),
            1 => "1 node waits".into(),
            count => format!("{count} nodes wait"),
        }
    }
}

/// A node being deleted, or of another cloud, gets nothing: no call is made for it.
fn is_left_alone(node: &Node, provider: &dyn Provider) -> bool {
    let id = &node.spec.provider_id;
    node.metadata.deletion_timestamp.is_some()
        || !(id.is_empty() || matches!(provider.parse_provider_id(id), ProviderId::Ours(_)))
}
