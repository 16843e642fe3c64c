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
    tried: HashMap<String, Tried>,
    pub(super) backoff: Backoff,
    last_resync: Option<Instant>,
}

struct Tried {
    service: u64,
    nodes: u64,
    /// The version in the list, where the Service itself was found to be a newer one: in an old
    /// list it is no news, however often it is seen there.
    superseded: Option<String>,
}

/// Everything of the nodes that a plan depends on, as one number.
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
        let is_new = |tried: &Tried| {
            tried.nodes != prints.nodes
                || (tried.service != print(service)
                    && tried.superseded.as_ref() != Some(&service.metadata.resource_version))
        };
        self.tried.get(uid).is_none_or(is_new) || self.backoff.is_retry_due(uid, now)
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

    /// It was looked at as it is here, whatever came of it; the list showed it as `listed`.
    pub(super) fn tried(
        &mut self,
        service: &Service,
        prints: &Fingerprints,
        listed: Option<&Service>,
    ) {
        let version = |service: &Service| service.metadata.resource_version.clone();
        let tried = Tried {
            service: print(service),
            nodes: prints.nodes,
            superseded: listed
                .map(version)
                .filter(|listed| *listed != version(service)),
        };
        self.tried.insert(service.metadata.uid.clone(), tried);
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
}

/// The same of a Service.
fn print(service: &Service) -> u64 {
    let mut hasher = DefaultHasher::new();
    service.for_cloud().hash(&mut hasher);
    want(service).hash(&mut hasher);
    service.has_our_finalizer().hash(&mut hasher);
    service.status.load_balancer.ingress.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(version: &str, ip: &str) -> Service {
        let mut service = Service::default();
        service.metadata.uid = "uid".into();
        service.metadata.resource_version = version.into();
        service.spec.load_balancer_ip = ip.into();
        service
    }

    #[test]
    fn an_old_service_is_no_news_and_everything_else_is() {
        let prints = |nodes| Fingerprints { nodes };
        let mut due = Due::new(1.0);
        let now = Instant::now();
        assert!(
            due.is_due(&service("1", "a"), &prints(1), now),
            "never tried"
        );
        // The list showed version 1, and the Service was found to be at version 2.
        let listed = service("1", "a");
        due.tried(&service("2", "b"), &prints(1), Some(&listed));
        for (what, service, nodes, is_due) in [
            ("the old list", service("1", "a"), 1, false),
            ("the list as it should be", service("2", "b"), 1, false),
            ("nothing that counts changed", service("3", "b"), 1, false),
            ("changed back", service("3", "a"), 1, true),
            ("a node more", service("1", "a"), 2, true),
        ] {
            assert_eq!(due.is_due(&service, &prints(nodes), now), is_due, "{what}");
        }
        due.missed("uid");
        assert!(due.is_due(&listed, &prints(1), now), "not come to");
        // No list was old.
        due.tried(&service("2", "b"), &prints(1), Some(&service("2", "b")));
        assert!(due.is_due(&listed, &prints(1), now), "changed");
    }
}
