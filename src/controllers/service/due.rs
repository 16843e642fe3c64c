//! When a Service is due: it or the nodes changed since it was planned, its last try failed and the wait is over, or
//! all are compared again.

use super::observe::candidates;
use super::plan::want;
use crate::controllers::backoff::Backoff;
use crate::kube::{Node, Service};
use crate::provider::Provider;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was planned last, by UID.
pub(super) struct Due {
    planned: HashMap<String, Planned>,
    pub(super) backoff: Backoff,
    last_resync: Option<Instant>,
    /// As listed last: the resource version of each Service, by UID, and the nodes.
    versions: HashMap<String, String>,
    nodes: Fingerprint,
}

/// What a plan was made for.
struct Planned {
    service: u64,
    nodes: Fingerprint,
    /// The version in the list, where the Service itself was found to be a newer one: in an old
    /// list it is no news, however often it is seen there.
    superseded: Option<String>,
}

/// Everything of the nodes that a plan depends on, as one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Due {
    pub(super) fn new(time_scale: f64) -> Due {
        Due {
            planned: HashMap::new(),
            backoff: Backoff::new(time_scale),
            last_resync: None,
            versions: HashMap::new(),
            nodes: Fingerprint::default(),
        }
    }

    pub(super) fn is_due(&self, service: &Service, nodes: Fingerprint, now: Instant) -> bool {
        self.has_other_nodes(service, nodes)
            || self.is_changed(service)
            || self.backoff.is_retry_due(&service.metadata.uid, now)
    }

    /// Its plan rests on other nodes.
    pub(super) fn has_other_nodes(&self, service: &Service, nodes: Fingerprint) -> bool {
        let planned = self.planned.get(&service.metadata.uid);
        planned.is_none_or(|planned| planned.nodes != nodes)
    }

    /// It is not as it was planned for, or was not planned for.
    pub(super) fn is_changed(&self, service: &Service) -> bool {
        let planned = self.planned.get(&service.metadata.uid);
        planned.is_none_or(|planned| {
            planned.service != fingerprint(service)
                && planned.superseded.as_ref() != Some(&service.metadata.resource_version)
        })
    }

    pub(super) fn is_resync_due(&self, period: Duration, now: Instant) -> bool {
        self.last_resync
            .is_none_or(|last| now.duration_since(last) >= period)
    }

    pub(super) fn resynced(&mut self, at: Instant) {
        self.last_resync = Some(at);
    }

    /// These Services were listed, beside these nodes. Others are forgotten.
    pub(super) fn listed(&mut self, services: &[Arc<Service>], nodes: Fingerprint) {
        let versions = services.iter().map(|service| {
            let metadata = &service.metadata;
            (metadata.uid.clone(), metadata.resource_version.clone())
        });
        self.versions = versions.collect();
        self.nodes = nodes;
        let versions = &self.versions;
        self.planned.retain(|uid, _| versions.contains_key(uid));
        self.backoff.keep(|uid| versions.contains_key(uid));
    }

    /// A plan was made for it as it is here, and with nodes that are no older than those listed last.
    pub(super) fn planned(&mut self, service: &Service) {
        let planned = Planned {
            service: fingerprint(service),
            nodes: self.nodes,
            superseded: self.superseded(service),
        };
        self.planned.insert(service.metadata.uid.clone(), planned);
    }

    /// A write of ours, by its plan, made it what it is here.
    pub(super) fn written(&mut self, service: &Service) {
        let superseded = self.superseded(service);
        if let Some(planned) = self.planned.get_mut(&service.metadata.uid) {
            planned.service = fingerprint(service);
            planned.superseded = superseded;
        }
    }

    fn superseded(&self, service: &Service) -> Option<String> {
        let listed = self.versions.get(&service.metadata.uid);
        let is_other = |listed: &&String| **listed != service.metadata.resource_version;
        listed.filter(is_other).cloned()
    }

    /// What was planned for it was not begun: it is due at once.
    pub(super) fn missed(&mut self, uid: &str) {
        self.planned.remove(uid);
    }
}

impl Fingerprint {
    pub(super) fn new(nodes: &[Arc<Node>], provider: &dyn Provider) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for (node, _) in candidates(nodes, provider) {
            node.name().hash(&mut hasher);
            node.spec.provider_id.hash(&mut hasher);
            for label in node.metadata.labels.iter() {
                label.hash(&mut hasher);
            }
        }
        Fingerprint(hasher.finish())
    }
}

/// The same of a Service.
pub(super) fn fingerprint(service: &Service) -> u64 {
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
        let mut due = Due::new(1.0);
        let now = Instant::now();
        let nodes = Fingerprint;
        let one = Arc::new(service("1", "a"));
        assert!(due.is_due(&one, nodes(1), now), "never planned");
        // The list showed version 1, and the Service was found to be at version 2.
        due.listed(&[Arc::clone(&one)], nodes(1));
        due.planned(&service("2", "b"));
        let cases = [
            ("the old list", service("1", "a"), 1, false, false),
            (
                "the list as it should be",
                service("2", "b"),
                1,
                false,
                false,
            ),
            (
                "nothing that counts changed",
                service("3", "b"),
                1,
                false,
                false,
            ),
            ("changed back", service("3", "a"), 1, true, true),
            ("a node more", service("1", "a"), 2, true, false),
        ];
        for (what, service, nodes, is_due, is_changed) in cases {
            let nodes = Fingerprint(nodes);
            assert_eq!(due.is_due(&service, nodes, now), is_due, "{what}");
            assert_eq!(due.is_changed(&service), is_changed, "{what}");
        }
        due.missed("uid");
        assert!(due.is_due(&one, nodes(1), now), "not begun");
        // No list was old.
        due.listed(&[Arc::new(service("2", "b"))], nodes(1));
        due.planned(&service("2", "b"));
        assert!(due.is_due(&one, nodes(1), now), "changed");
    }

    /// Its changes take longer than a tick, and a node comes meanwhile.
    #[test]
    fn a_write_of_a_plan_does_not_make_up_for_nodes_that_came_since() {
        let mut due = Due::new(1.0);
        let now = Instant::now();
        let (old, new) = (Fingerprint(1), Fingerprint(2));
        let one = service("1", "a");
        due.listed(&[Arc::new(service("1", "a"))], old);
        due.planned(&one);
        due.listed(&[Arc::new(service("1", "a"))], new);
        let written = service("2", "b");
        due.written(&written);
        assert!(due.is_due(&written, new, now), "the node is not a target");
        assert!(!due.is_due(&written, old, now), "the write is no news");
        assert!(!due.is_due(&one, old, now), "nor is the list before it");
        due.listed(&[], new);
        due.written(&written);
        assert!(due.is_due(&written, old, now), "it was away");
    }
}
