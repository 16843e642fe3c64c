//! When a Service is due: it or the nodes changed since it was planned, its last try failed and the wait is over, or
//! all are compared again.

use super::observe::{self, candidates};
use super::plan::want;
use crate::cache::Apis;
use crate::controllers::backoff::Backoff;
use crate::kube::{Node, Service};
use crate::provider::{Snapshot, TlsSecrets};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What was planned last, by UID.
pub(super) struct Due {
    planned: HashMap<String, Planned>,
    pub(super) backoff: Backoff,
    last_resync: Option<Instant>,
    /// As listed last: the resource version of each Service, by UID, and what plans depend on besides.
    versions: HashMap<String, String>,
    pub(super) dependencies: Dependencies,
}

/// Lists as they were read: the same lists are at the same places.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) services: Weak<Vec<Arc<Service>>>,
    pub(super) nodes: Weak<Vec<Arc<Node>>>,
}

/// What a plan was made for.
struct Planned {
    service: u64,
    dependencies: u64,
    /// The version in the list, where the Service itself was found to be a newer one: in an old
    /// list it is no news, however often it is seen there.
    superseded: Option<String>,
}

/// Everything besides the Service itself that a plan depends on and Kubernetes shows, as numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Dependencies {
    nodes: u64,
    /// Of the Services of its group, and of the Secrets that it names, where there are such; by its UID.
    others: HashMap<String, u64>,
    /// There are Services that use load balancers together.
    pub(super) has_groups: bool,
}

impl Due {
    pub(super) fn new() -> Due {
        Due {
            planned: HashMap::new(),
            backoff: Backoff::new(),
            last_resync: None,
            versions: HashMap::new(),
            dependencies: Dependencies::default(),
        }
    }

    pub(super) fn is_due(
        &self,
        service: &Service,
        dependencies: &Dependencies,
        now: Instant,
    ) -> bool {
        self.is_overtaken(service, dependencies)
            || self.is_changed(service)
            || self.backoff.is_retry_due(&service.metadata.uid, now)
    }

    /// Its plan rests on other nodes, or on other Services that share its load balancer.
    pub(super) fn is_overtaken(&self, service: &Service, dependencies: &Dependencies) -> bool {
        let planned = self.planned.get(&service.metadata.uid);
        planned.is_none_or(|planned| planned.dependencies != dependencies.of(service))
    }

    /// It is not as it was planned for, or was not planned for.
    pub(super) fn is_changed(&self, service: &Service) -> bool {
        let planned = self.planned.get(&service.metadata.uid);
        planned.is_none_or(|planned| {
            planned.service != fingerprint(service)
                && planned.superseded.as_ref() != Some(&service.metadata.resource_version)
        })
    }

    /// The list that shows it so is older than what was planned.
    pub(super) fn is_superseded(&self, service: &Service) -> bool {
        let planned = self.planned.get(&service.metadata.uid);
        let superseded = planned.and_then(|planned| planned.superseded.as_ref());
        superseded == Some(&service.metadata.resource_version)
    }

    /// It was planned, and the Service itself is another one since.
    pub(super) fn is_touched(&self, service: &Service) -> bool {
        self.planned.contains_key(&service.metadata.uid) && self.is_changed(service)
    }

    pub(super) fn is_resync_due(&self, period: Duration, now: Instant) -> bool {
        self.last_resync
            .is_none_or(|last| now.duration_since(last) >= period)
    }

    pub(super) fn resynced(&mut self, at: Instant) {
        self.last_resync = Some(at);
    }

    /// These Services were listed, beside these nodes. Others are forgotten.
    pub(super) fn listed(&mut self, services: &[Arc<Service>], dependencies: Dependencies) {
        let versions = services.iter().map(|service| {
            let metadata = &service.metadata;
            (metadata.uid.clone(), metadata.resource_version.clone())
        });
        self.versions = versions.collect();
        self.dependencies = dependencies;
        let versions = &self.versions;
        self.planned.retain(|uid, _| versions.contains_key(uid));
        self.backoff.keep(|uid| versions.contains_key(uid));
    }

    /// A plan was made for it as it is here, and with nodes that are no older than those listed last.
    pub(super) fn planned(&mut self, service: &Service) {
        let planned = Planned {
            service: fingerprint(service),
            dependencies: self.dependencies.of(service),
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

    /// Nothing is known of its last plan, of which nothing was made: the Service may be planned as it was before.
    pub(super) fn forget(&mut self, uid: &str) {
        self.planned.remove(uid);
    }

    /// What was planned for it was not begun: it is due at once, although the Service itself did not change.
    pub(super) fn missed(&mut self, uid: &str) {
        if let Some(planned) = self.planned.get_mut(uid) {
            planned.dependencies = !planned.dependencies;
        }
    }
}

impl Dependencies {
    pub(super) fn new(
        apis: &Apis,
        nodes: &[Arc<Node>],
        services: &[Arc<Service>],
        tls_secrets: &TlsSecrets,
    ) -> Dependencies {
        let provider = &*apis.provider;
        let mut of_nodes = DefaultHasher::new();
        for (node, _) in candidates(nodes, provider) {
            node.name().hash(&mut of_nodes);
            // One that went and came is another one, although it looks the same.
            node.metadata.uid.hash(&mut of_nodes);
            node.spec.provider_id.hash(&mut of_nodes);
            for label in node.metadata.labels.iter() {
                label.hash(&mut of_nodes);
            }
        }
        let snapshot = apis.load_balancers_last();
        let snapshot = snapshot.as_deref();
        let mut others = of_groups(services, |service| group(apis, snapshot, service));
        let has_groups = !others.is_empty();
        for service in services.iter().filter(|_| !tls_secrets.is_empty()) {
            let names = observe::tls_secret_names(provider, [service]);
            if names.is_empty() {
                continue;
            }
            let mut of_secrets = DefaultHasher::new();
            for held in names.iter().map(|name| tls_secrets.get(name)) {
                let held = held.map(|held| held.as_ref().map(|pair| &pair.digest));
                held.hash(&mut of_secrets);
            }
            *others.entry(service.metadata.uid.clone()).or_default() ^= of_secrets.finish();
        }
        Dependencies {
            nodes: of_nodes.finish(),
            others,
            has_groups,
        }
    }

    fn of(&self, service: &Service) -> u64 {
        let others = self.others.get(&service.metadata.uid);
        self.nodes ^ others.copied().unwrap_or_default()
    }
}

/// What names the group of the Service: the load balancer, where it is known.
pub(super) fn group(
    apis: &Apis,
    snapshot: Option<&dyn Snapshot>,
    service: &Service,
) -> Option<String> {
    let key = observe::group(&*apis.provider, service)?;
    Some(match snapshot {
        Some(snapshot) => snapshot.known_group(key),
        None => key,
    })
}

/// What the Services of a group are, as a number, by the UID of each of them. `key`: of a Service's group.
fn of_groups(
    services: &[Arc<Service>],
    key: impl Fn(&Service) -> Option<String>,
) -> HashMap<String, u64> {
    let mut groups: HashMap<String, (DefaultHasher, Vec<String>)> = HashMap::new();
    for service in services.iter().filter(|one| one.wants_load_balancer()) {
        let Some(key) = key(service) else {
            continue;
        };
        let (hasher, uids) = groups.entry(key).or_default();
        let mut service = service.for_cloud();
        service.addresses.clear();
        service.hash(hasher);
        uids.push(service.uid);
    }
    let groups = groups.into_values();
    let numbers = groups.flat_map(|(hasher, uids)| {
        let number = hasher.finish();
        uids.into_iter().map(move |uid| (uid, number))
    });
    numbers.collect()
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

    fn with_nodes(nodes: u64) -> Dependencies {
        Dependencies {
            nodes,
            ..Dependencies::default()
        }
    }

    #[test]
    fn an_old_service_is_no_news_and_everything_else_is() {
        let mut due = Due::new();
        let now = Instant::now();

        let one = Arc::new(service("1", "a"));
        assert!(due.is_due(&one, &with_nodes(1), now), "never planned");
        // The list showed version 1, and the Service was found to be at version 2.
        due.listed(&[Arc::clone(&one)], with_nodes(1));
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
            let nodes = with_nodes(nodes);
            assert_eq!(due.is_due(&service, &nodes, now), is_due, "{what}");
            assert_eq!(due.is_changed(&service), is_changed, "{what}");
        }
        due.missed("uid");
        assert!(due.is_due(&one, &with_nodes(1), now), "not begun");
        // No list was old.
        due.listed(&[Arc::new(service("2", "b"))], with_nodes(1));
        due.planned(&service("2", "b"));
        assert!(due.is_due(&one, &with_nodes(1), now), "changed");
    }

    type Edit = fn(&mut Vec<Service>);

    /// Here the namespace is the group.
    #[test]
    fn a_change_of_a_group_is_news_for_its_members_alone() {
        let service = |(uid, group): (&str, &str)| {
            let mut service = service("1", "");
            service.metadata.uid = uid.into();
            service.metadata.namespace = group.into();
            service.spec.kind = "LoadBalancer".into();
            service
        };
        let all = [("a", "one"), ("b", "one"), ("c", "two"), ("d", "")].map(service);
        let numbers = |all: &[Service]| {
            let all: Vec<Arc<Service>> = all.iter().cloned().map(Arc::new).collect();
            of_groups(&all, |one| {
                Some(one.metadata.namespace.clone()).filter(|group| !group.is_empty())
            })
        };
        let before = numbers(&all);
        // What changes → for whom that is news.
        let cases: [(&str, Edit, &[&str]); 5] = [
            ("nothing", |_| {}, &[]),
            (
                "a member",
                |all| all[0].spec.load_balancer_ip = "1".into(),
                &["a", "b"],
            ),
            ("a member goes", |all| drop(all.remove(0)), &["b"]),
            (
                "a member moves",
                |all| all[0].metadata.namespace = "two".into(),
                &["a", "b", "c"],
            ),
            (
                "one without a group",
                |all| all[3].spec.load_balancer_ip = "1".into(),
                &[],
            ),
        ];
        for (what, change, news) in cases {
            let mut all = all.to_vec();
            change(&mut all);
            let after = numbers(&all);
            let uids = all.iter().map(|one| one.metadata.uid.as_str());
            let is_new = |uid: &&str| before.get(*uid) != after.get(*uid);
            let new: Vec<&str> = uids.filter(is_new).collect();
            assert_eq!(new, news, "{what}");
        }
    }

    /// Its changes take longer than a tick, and a node comes meanwhile.
    #[test]
    fn a_write_of_a_plan_does_not_make_up_for_nodes_that_came_since() {
        let mut due = Due::new();
        let now = Instant::now();
        let (old, new) = (with_nodes(1), with_nodes(2));
        let one = service("1", "a");
        due.listed(&[Arc::new(service("1", "a"))], old.clone());
        due.planned(&one);
        due.listed(&[Arc::new(service("1", "a"))], new.clone());
        let written = service("2", "b");
        due.written(&written);
        assert!(due.is_due(&written, &new, now), "the node is not a target");
        assert!(!due.is_due(&written, &old, now), "the write is no news");
        assert!(!due.is_due(&one, &old, now), "nor is the list before it");
        due.listed(&[], new.clone());
        due.written(&written);
        assert!(due.is_due(&written, &old, now), "it was away");
    }
}
