//! When a Service is looked at: it or the nodes changed since the last try, its last try failed
//! and the wait is over, or all are compared again.

use super::offered::candidates;
use super::plan::want;
use crate::cloud::Provider;
use crate::controllers::backoff::Backoff;
use crate::kube::{Node, Service};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was tried last, by UID.
pub(super) struct Due {
    tried: HashMap<String, u64>,
    pub(super) backoff: Backoff,
    last_resync: Option<Instant>,
}

/// Everything of Services and nodes that a plan depends on, as one number each.
pub(super) struct Fingerprints {
    nodes: u64,
}

impl Due {
    pub(super) fn new(time_scale: f64) -> Due {
        Due {
            tried: HashMap::new(),
            backoff: Backoff::new(time_scale),
            last_resync: None,
        }
    }

    pub(super) fn is_due(&self, service: &Service, prints: &Fingerprints, now: Instant) -> bool {
        let uid = &service.metadata.uid;
        let print = prints.of(service);
        self.tried.get(uid) != Some(&print) || self.backoff.is_retry_due(uid, now)
    }

    /// Its last try failed, and the wait is not over.
    pub(super) fn is_waiting(&self, service: &Service, now: Instant) -> bool {
        self.backoff.is_waiting(&service.metadata.uid, now)
    }

    pub(super) fn is_resync_due(&self, period: Duration, now: Instant) -> bool {
        self.last_resync
            .is_none_or(|last| now.duration_since(last) >= period)
    }

    pub(super) fn resynced(&mut self, at: Instant) {
        self.last_resync = Some(at);
    }

    /// It was looked at as it is here, whatever came of it.
    pub(super) fn tried(&mut self, service: &Service, prints: &Fingerprints) {
        let uid = service.metadata.uid.clone();
        self.tried.insert(uid, prints.of(service));
    }

    /// It was to be changed, and was not come to: it is due at once.
    pub(super) fn missed(&mut self, uid: &str) {
        self.tried.remove(uid);
    }

    /// Forgets Services that are gone.
    pub(super) fn keep(&mut self, uids: &HashSet<&str>) {
        self.tried.retain(|uid, _| uids.contains(uid.as_str()));
        self.backoff.keep(|uid| uids.contains(uid));
    }
}

impl Fingerprints {
    pub(super) fn new(nodes: &[Arc<Node>], provider: &dyn Provider) -> Fingerprints {
        let mut hasher = DefaultHasher::new();
        for (node, _) in candidates(nodes, provider) {
            node.name().hash(&mut hasher);
            node.spec.provider_id.hash(&mut hasher);
            for label in node.metadata.labels.iter() {
                label.hash(&mut hasher);
            }
        }
        Fingerprints {
            nodes: hasher.finish(),
        }
    }

    fn of(&self, service: &Service) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.nodes.hash(&mut hasher);
        service.for_cloud().hash(&mut hasher);
        want(service).hash(&mut hasher);
        service.has_our_finalizer().hash(&mut hasher);
        service.status.load_balancer.ingress.hash(&mut hasher);
        hasher.finish()
    }
}
