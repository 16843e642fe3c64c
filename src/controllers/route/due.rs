//! When routes are compared: nodes or addresses of their servers changed, the last try failed, or it is time.

use super::observe::{COMPARE_PERIOD, Settings};
use crate::cache::{Apis, Error, Poll};
use crate::controllers::backoff::Backoff;
use crate::controllers::matching::server_of;
use crate::kube::Node;
use crate::provider::{Instance, InstanceId, Provider};
use jiff::Timestamp;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often nodes are read, by a table that the other controllers read as well.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// How late a node that took another's name may be seen.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// Nodes whose pods have no addresses yet are read again, so many at a time.
const UNASSIGNED_AT_MOST: usize = 10;

/// By then kube-controller-manager has given a node the addresses of its pods, or another program has.
const NEW_FOR: Duration = Duration::from_secs(600);

/// What the failures of a sync are remembered by.
const NETWORK: &str = "network";

pub(super) type Nodes = Arc<Vec<Arc<Node>>>;

pub(super) struct Schedule {
    /// Fingerprint of what the last comparison was about, and its end.
    compared: Option<(u64, Instant)>,
    begun: Option<Instant>,
    /// A route was deleted and its replacement could not be added: this waits for no period.
    is_interrupted: bool,
    backoff: Backoff,
}

/// What a comparison is about.
pub(super) struct Due {
    pub(super) nodes: Nodes,
    /// A node changed, or an address of its server, or the last try failed; else it is time to compare.
    pub(super) is_changed: bool,
    pub(super) is_time: bool,
}

impl Schedule {
    pub(super) fn new(time_scale: f64) -> Schedule {
        Schedule {
            compared: None,
            begun: None,
            is_interrupted: false,
            backoff: Backoff::new(time_scale),
        }
    }

    /// None: nothing is due.
    pub(super) fn due(&mut self, apis: &Apis, settings: &Settings) -> Result<Option<Due>, Error> {
        let now = Instant::now();
        let poll = Poll {
            table_max_age: settings.interval() / 2,
            // The node controller reads them whole more often, where it runs.
            whole_max_age: settings.scaled(COMPARE_PERIOD) * 2,
            metadata_max_age: Some(settings.scaled(METADATA_MAX_AGE)),
        };
        let nodes = with_new_ranges(apis, settings, apis.nodes.poll(poll)?.value)?;
        let provider = &*apis.provider;
        let is_ours = |node: &Node| server_of(node, provider).is_some();
        let has_pods = |node: &Arc<Node>| !node.spec.pod_cidrs.is_empty() && is_ours(node);
        if !nodes.iter().any(has_pods) {
            // No route is wanted, so none may be deleted either.
            return Ok(None);
        }
        let period = settings.scaled(COMPARE_PERIOD);
        let is_time = self.compared.is_none_or(|(_, at)| now - at >= period);
        // By the last list that any controller read: no call is made for it.
        let servers = apis.instances_last().unwrap_or_default();
        let print = fingerprint(&nodes, &servers, provider);
        let is_retried = self.backoff.is_retry_due(NETWORK, now);
        let is_changed = is_retried || self.compared.is_none_or(|(last, _)| last != print);
        let pause = settings.reconciliation_period;
        let is_early =
            self.begun.is_some_and(|at| now - at < pause) && !(self.is_interrupted && is_retried);
        let is_due = (is_changed || is_time) && !is_early;
        if is_due {
            self.begun = Some(now);
        }
        Ok(is_due.then_some(Due {
            nodes,
            is_changed,
            is_time,
        }))
    }

    /// The nodes of `due` were compared, by these servers.
    pub(super) fn compared(&mut self, apis: &Apis, due: &Due, servers: &[Instance]) {
        let print = fingerprint(&due.nodes, servers, &*apis.provider);
        self.compared = Some((print, Instant::now()));
    }

    /// What was due was done.
    pub(super) fn ended(&mut self, has_failed: bool, is_interrupted: bool) {
        self.is_interrupted = is_interrupted;
        match has_failed {
            true => self.backoff.failed(NETWORK, Instant::now()),
            false => self.backoff.succeeded(NETWORK),
        }
    }
}

/// A node gets the addresses of its pods after it registers, and no table shows it: new ones that have none yet are read
/// again. Old ones may never get any.
fn with_new_ranges(apis: &Apis, settings: &Settings, nodes: Nodes) -> Result<Nodes, Error> {
    let old = Timestamp::now().checked_sub(NEW_FOR).unwrap_or_default();
    let is_lacking = |node: &&Arc<Node>| {
        let created = node.metadata.creation_timestamp;
        let is_new = created.is_some_and(|created| created > old);
        let is_ours = || server_of(node, &*apis.provider).is_some();
        is_new && node.spec.pod_cidrs.is_empty() && is_ours()
    };
    let lacking = nodes.iter().filter(is_lacking).take(UNASSIGNED_AT_MOST);
    let lacking: Vec<String> = lacking.map(|node| node.name().to_owned()).collect();
    match lacking.is_empty() {
        true => Ok(nodes),
        false => Ok(apis.nodes.again(&lacking, settings.interval() * 2)?.value),
    }
}

impl Settings {
    /// Between the ends of two ticks.
    pub(super) fn interval(&self) -> Duration {
        self.scaled(POLL_INTERVAL).min(self.reconciliation_period)
    }
}

/// Everything that a plan depends on: of nodes all but the condition, which is our own, and the private addresses of
/// their servers.
fn fingerprint(nodes: &[Arc<Node>], servers: &[Instance], provider: &dyn Provider) -> u64 {
    let by_id: HashMap<InstanceId, &Instance> = servers.iter().map(|one| (one.id, one)).collect();
    let mut hasher = DefaultHasher::new();
    for node in nodes {
        node.metadata.uid.hash(&mut hasher);
        node.name().hash(&mut hasher);
        node.spec.provider_id.hash(&mut hasher);
        node.spec.pod_cidrs.hash(&mut hasher);
        node.metadata.deletion_timestamp.is_some().hash(&mut hasher);
        let server = server_of(node, provider).and_then(|id| by_id.get(&id));
        server.map(|server| &server.private).hash(&mut hasher);
    }
    hasher.finish()
}
