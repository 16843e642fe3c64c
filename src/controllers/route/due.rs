//! Which nodes there are, and whether a pass is due: they changed since the last try, that failed,
//! or it is time to compare.

use super::{COMPARE_PERIOD, Nodes, RouteController, THE_NETWORK};
use crate::cache::{Apis, Error, Poll};
use crate::controllers::Controller;
use crate::kube::Node;
use crate::provider::{Instance, InstanceId, PrivateAddress, Provider, ProviderId};
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How late a node that took another's name may be seen.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// Nodes whose pods have no addresses yet are read again, so many at a time.
const UNASSIGNED_AT_MOST: usize = 10;

/// By then kube-controller-manager has given a node the addresses of its pods, or another program has.
const NEW_FOR: Duration = Duration::from_secs(600);

/// What a pass is about.
pub(super) struct Due {
    pub(super) nodes: Arc<Nodes>,
    pub(super) print: u64,
    /// A node changed, or an address of its server, or the last try failed; else it is time to compare.
    pub(super) is_changed: bool,
    pub(super) is_compared: bool,
}

/// What a comparison was about, as fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    pub(super) nodes: u64,
    /// Where their servers are, by the list that the plan rested on.
    pub(super) addresses: u64,
}

impl RouteController {
    /// What is due. None: nothing is.
    pub(super) fn look(&mut self, apis: &Apis, now: Instant) -> Result<Option<Due>, Error> {
        let nodes = apis
            .poll_nodes(Poll {
                table_max_age: self.interval() / 2,
                // The node controller reads them whole more often, where it runs.
                whole_max_age: self.settings.scaled(COMPARE_PERIOD) * 2,
                metadata_max_age: Some(self.settings.scaled(METADATA_MAX_AGE)),
            })?
            .value;
        let nodes = self.with_addresses(apis, nodes, now)?;
        let ours = |node: &&Arc<Node>| is_ours(node, apis);
        if !nodes
            .iter()
            .filter(ours)
            .any(|node| !node.spec.pod_cidrs.is_empty())
        {
            // No route is wanted, so none may be deleted either.
            return Ok(None);
        }
        let print = fingerprint(&nodes);
        let since = |moment: Option<Instant>| moment.map_or(Duration::MAX, |at| now - at);
        let is_compared = since(self.compared) >= self.settings.scaled(COMPARE_PERIOD);
        let is_retried = self.backoff.is_retry_due(THE_NETWORK, now);
        // By the last list that any controller read: no call is made for it.
        let servers = apis.instances_last();
        let is_elsewhere = |tried: &Tried| {
            let mut servers = servers.iter();
            servers.any(|all| addresses(&nodes, all, &*apis.provider) != tried.addresses)
        };
        let is_as_tried = |tried: &Tried| tried.nodes == print && !is_elsewhere(tried);
        let is_changed = is_retried || !self.tried.as_ref().is_some_and(is_as_tried);
        let is_early = since(self.passed) < self.settings.reconciliation_period
            && !(self.is_torn && is_retried);
        let is_due = (is_changed || is_compared) && !is_early;
        Ok(is_due.then_some(Due {
            nodes,
            print,
            is_changed,
            is_compared,
        }))
    }

    /// A node gets the addresses of its pods after it registers, and no table shows it: new ones
    /// that have none yet are read again, ever less often. Old ones may never get any.
    fn with_addresses(
        &mut self,
        apis: &Apis,
        nodes: Arc<Nodes>,
        now: Instant,
    ) -> Result<Arc<Nodes>, Error> {
        let old = Timestamp::now().checked_sub(NEW_FOR).unwrap_or_default();
        let lacks = |node: &&Arc<Node>| {
            let created = node.metadata.creation_timestamp;
            let is_new = created.is_some_and(|created| created > old);
            is_new && node.spec.pod_cidrs.is_empty() && is_ours(node, apis)
        };
        let lacking: Vec<&Arc<Node>> = nodes.iter().filter(lacks).collect();
        let uids: HashSet<&str> = lacking.iter().map(|n| n.metadata.uid.as_str()).collect();
        self.unassigned.keep(|uid| uids.contains(uid));
        let waits = |node: &&&Arc<Node>| !self.unassigned.is_waiting(&node.metadata.uid, now);
        let due = lacking.iter().filter(waits).take(UNASSIGNED_AT_MOST);
        let due: Vec<(String, String)> = due
            .map(|node| (node.name().to_owned(), node.metadata.uid.clone()))
            .collect();
        if due.is_empty() {
            return Ok(nodes);
        }
        let names: Vec<String> = due.iter().map(|(name, _)| name.clone()).collect();
        let nodes = apis.nodes_again(&names, self.interval() / 2)?.value;
        due.iter()
            .for_each(|(_, uid)| self.unassigned.failed(uid, now));
        Ok(nodes)
    }
}

fn is_ours(node: &Node, apis: &Apis) -> bool {
    let id = apis.provider.parse_provider_id(&node.spec.provider_id);
    matches!(id, ProviderId::Ours(_))
}

/// The private addresses of these nodes' servers, as a fingerprint.
pub(super) fn addresses(nodes: &[Arc<Node>], servers: &[Instance], provider: &dyn Provider) -> u64 {
    let by_id: HashMap<InstanceId, &Instance> = servers.iter().map(|one| (one.id, one)).collect();
    let mut hasher = DefaultHasher::new();
    for node in nodes {
        if let ProviderId::Ours(id) = provider.parse_provider_id(&node.spec.provider_id) {
            let private = by_id.get(&id).into_iter().flat_map(|one| &one.private);
            let mut private: Vec<_> = private.map(in_order).collect();
            private.sort_unstable();
            private.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The order in which the API names other addresses means nothing.
fn in_order(private: &PrivateAddress) -> (u64, IpAddr, Vec<IpAddr>) {
    let mut aliases = private.aliases.clone();
    aliases.sort_unstable();
    (private.network, private.ip, aliases)
}

/// Everything of nodes that a plan depends on, but for the condition, which is our own.
fn fingerprint(nodes: &[Arc<Node>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for node in nodes {
        node.metadata.uid.hash(&mut hasher);
        node.name().hash(&mut hasher);
        node.spec.provider_id.hash(&mut hasher);
        node.spec.pod_cidrs.hash(&mut hasher);
        node.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    }
    hasher.finish()
}
