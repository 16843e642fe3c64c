//! The labels that say who owns a load balancer or certificate. No other file names the keys of the labels.
//!
//! | key | what the label says of a load balancer | who writes the label |
//! |---|---|---|
//! | `hcloud-ccm/service-uid` | the UID of the Service that is the only owner of the load balancer | this program, and Hetzner's controller |
//! | `ccm-from-scratch/service` | `namespace.name` of the Service for which the load balancer was made; a later Service of this name is allowed to adopt it | this program |
//! | `ccm-from-scratch/cluster-uid` | the cluster's UID, which distinguishes two clusters in one project | this program |
//! | `ccm-from-scratch/cluster` | `--cluster-name`, for users to read | this program |
//! | `ccm-from-scratch/created` | this program created the load balancer; only the request that creates it writes the label, so that no other load balancer can get the label by mistake | this program |
//! | `ccm-from-scratch/adopted` | this program adopted the load balancer | this program |
//! | `ccm-from-scratch/group` | `namespace.name` of the group whose Services share it | this program |
//! | `ccm-from-scratch/port-NUMBER` | the UID of the Service that owns the port | this program |
//! | `ccm-from-scratch/keep` | the load balancer stays when its Services are deleted; the value is `namespace.name` of the Service or group that asks for it | this program |
//! | `ccm-from-scratch/released` | the UID of the Service for which this program stopped managing the load balancer | this program |
//! | `ccm-from-scratch/targets-before-CLUSTER` | the targets that an external load balancer had before the cluster with the UID `CLUSTER` used it | this program |
//! | `ccm-from-scratch/replace` | a new load balancer shall replace this one; the value is how long both serve | an operator, with `ccm lb replace` |
//! | `ccm-from-scratch/replaces` | the ID of the load balancer that this new one replaces | this program |
//! | `ccm-from-scratch/overlap` | how far the replacement is; see `replacement.rs` | this program, on the new one |
//! | `ccm-from-scratch/adopt` | `namespace.name` of the Service that is allowed to adopt the load balancer | an operator |
//! | `ccm-from-scratch/external` | the load balancer is external; the value is the namespace whose Services are allowed to use it, or empty for all namespaces | its owner |
//!
//! On a certificate, `service-uid`, `service`, `cluster-uid` and `cluster` mean the same. In addition,
//! `ccm-from-scratch/secret` is `namespace.name` of the Secret from which the certificate was uploaded.

use super::names::{label_value, service_value};
use crate::hetzner::load_balancers::model::balancer::LoadBalancer;
use crate::provider::{Cluster, Service};
use std::collections::BTreeMap;
use std::ops::Deref;

pub const SERVICE_UID: &str = "hcloud-ccm/service-uid";
pub const CLUSTER_UID: &str = "ccm-from-scratch/cluster-uid";
pub const CLUSTER: &str = "ccm-from-scratch/cluster";
pub const SERVICE: &str = "ccm-from-scratch/service";
pub const CREATED: &str = "ccm-from-scratch/created";
pub const ADOPTED: &str = "ccm-from-scratch/adopted";
pub const SECRET: &str = "ccm-from-scratch/secret";
pub const ADOPT: &str = "ccm-from-scratch/adopt";
pub const GROUP: &str = "ccm-from-scratch/group";
/// The beginning of the key of a label that names the Service which owns a port of the load balancer. The port number
/// follows in the key.
pub const PORT: &str = "ccm-from-scratch/port-";
pub const EXTERNAL: &str = "ccm-from-scratch/external";
/// The beginning of the key of a label that lists the targets that an external load balancer (one that somebody else
/// made) had before a cluster used it. The UID of that cluster follows in the key.
pub const TARGETS_BEFORE: &str = "ccm-from-scratch/targets-before-";
pub const RELEASED: &str = "ccm-from-scratch/released";
pub const KEEP: &str = "ccm-from-scratch/keep";
pub const REPLACE: &str = "ccm-from-scratch/replace";
pub const REPLACES: &str = "ccm-from-scratch/replaces";
pub const OVERLAP: &str = "ccm-from-scratch/overlap";

/// The value of the labels `created` and `adopted`, which say that this program has created the load balancer or has
/// taken over an existing one.
pub(super) const YES: &str = "true";

/// The beginning of the keys of all labels that hcloud-cloud-controller-manager writes.
const UPSTREAM_PREFIX: &str = "hcloud-ccm/";
const OUR_PREFIX: &str = "ccm-from-scratch/";

/// The beginning of the keys of the labels by which Cluster API's provider for Hetzner marks its load balancers.
const CLUSTER_API_PREFIX: &str = "caph-cluster-";
/// The beginning of the keys of the labels by which tools mark the objects of a Kubernetes cluster.
const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// When a label of a load balancer has this value, the program that set the label owns the load balancer and will
/// delete it later. The key of the label names that program.
const OWNED: &str = "owned";
/// The domains in the keys of labels by which other programs find their load balancers. A subdomain of `kubernetes.io`
/// is treated like `kubernetes.io`.
const PROGRAM_DOMAINS: [&str; 3] = ["kubernetes.io", "hcloud", "hcloud-ccm"];

/// The label of a managed certificate that is ordered from the test service of Let's Encrypt. Hetzner's API knows this
/// label.
pub(super) const STAGING: (&str, &str) = ("HC-Use-Staging-CA", "true");

/// The text in a plan that explains to users why the load balancer gets the labels with its owner.
pub(crate) const WHOSE: &str = "labels name the owner";

/// What the labels of a load balancer say about its present and earlier owners. Most fields have the value of one label
/// of the table at the top of this file. Such a field is `None` when the load balancer does not have the label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) service_uid: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) cluster_uid: Option<String>,
    pub(crate) cluster: Option<String>,
    pub(crate) created: Option<String>,
    pub(crate) adopted: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) keep: Option<String>,
    pub(crate) released: Option<String>,
    pub(crate) adopt: Option<String>,
    pub(crate) external: Option<String>,
    pub(crate) replacement: ReplacementLabels,
    /// The UID of the Service that owns each port. The map's key is the port number.
    pub(crate) ports: BTreeMap<u16, String>,
    /// The targets that an external load balancer (one that somebody else made) had before a cluster used it. The key
    /// of the map is the UID of that cluster. The value is the value of the label `targets-before-UID`, which lists
    /// these targets.
    pub(crate) targets_before: BTreeMap<String, String>,
    /// Labels with the prefix of this program that this version of the program does not know. They are kept unchanged.
    unknown: BTreeMap<String, String>,
}

/// What the labels say about the replacement of a load balancer by a new one. Each field has the value of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplacementLabels {
    pub(crate) replace: Option<String>,
    pub(crate) replaces: Option<String>,
    pub(crate) overlap: Option<String>,
}

/// A load balancer, together with what its labels say about its owners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labelled<'a> {
    pub(crate) balancer: &'a LoadBalancer,
    pub(crate) ownership: &'a Ownership,
}

impl Deref for Labelled<'_> {
    type Target = LoadBalancer;

    fn deref(&self) -> &LoadBalancer {
        self.balancer
    }
}

/// The labels that a write sets or removes, by key. The value `None` means that the label is removed.
pub(crate) type WantedLabels = BTreeMap<String, Option<String>>;

impl Ownership {
    pub(crate) fn read(labels: &BTreeMap<String, String>) -> Ownership {
        let mut read = Ownership::default();
        for (key, value) in labels {
            let value = value.clone();
            let field = read.fields().into_iter().find(|(name, _)| name == key);
            match field {
                Some((_, field)) => *field = Some(value),
                None if !key.starts_with(OUR_PREFIX) => {}
                None => match (port_of(key), key.strip_prefix(TARGETS_BEFORE)) {
                    (Some(number), _) => drop(read.ports.insert(number, value)),
                    (_, Some(uid)) => drop(read.targets_before.insert(uid.to_owned(), value)),
                    _ => drop(read.unknown.insert(key.clone(), value)),
                },
            }
        }
        read
    }

    /// Returns the fields of this struct that store the value of one label, each with the key of this label. A field
    /// that stores several labels, e.g. `ports`, is not returned.
    fn fields(&mut self) -> [(&'static str, &mut Option<String>); 14] {
        [
            (SERVICE_UID, &mut self.service_uid),
            (SERVICE, &mut self.service),
            (CLUSTER_UID, &mut self.cluster_uid),
            (CLUSTER, &mut self.cluster),
            (CREATED, &mut self.created),
            (ADOPTED, &mut self.adopted),
            (GROUP, &mut self.group),
            (KEEP, &mut self.keep),
            (RELEASED, &mut self.released),
            (ADOPT, &mut self.adopt),
            (EXTERNAL, &mut self.external),
            (REPLACE, &mut self.replacement.replace),
            (REPLACES, &mut self.replacement.replaces),
            (OVERLAP, &mut self.replacement.overlap),
        ]
    }

    /// Returns the labels that say who owns the object, with their values. They can be written on a load balancer or
    /// certificate.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let mut own = self.clone();
        let mut labels = own.unknown.clone();
        labels
            .extend(own.ports.iter().map(|(number, uid)| (format!("{PORT}{number}"), uid.clone())));
        let targets = own.targets_before.iter();
        labels.extend(targets.map(|(uid, all)| (format!("{TARGETS_BEFORE}{uid}"), all.clone())));
        let fields = own.fields().into_iter();
        labels.extend(fields.filter_map(|(key, value)| Some((key.to_owned(), value.take()?))));
        labels
    }

    /// Returns the labels to set or remove, so that afterwards the labels name the owners that `to` contains.
    pub(crate) fn change_to(&self, to: &Ownership) -> WantedLabels {
        let from = self.labels();
        let absent = from.keys().map(|key| (key.clone(), None));
        let mut wanted: WantedLabels = absent.chain(to.wanted()).collect();
        wanted.retain(|key, value| from.get(key) != value.as_ref());
        wanted
    }

    /// Returns the labels that mark an object as belonging to the owners in `self`. Each value is `Some`, because
    /// `None` would mean that a label is removed.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (String, Option<String>)> + use<> {
        self.labels().into_iter().map(|(key, value)| (key, Some(value)))
    }

    /// Adds the labels of `said` to those of `self`. Both are sets of labels that say who owns an object. When both
    /// have a label with the same key, the value from `said` is used.
    pub(crate) fn say(&mut self, said: &Ownership) {
        let mut labels = self.labels();
        labels.extend(said.labels());
        *self = Ownership::read(&labels);
    }

    /// Returns the values of this program's labels for a load balancer or certificate of this cluster. Only the labels
    /// with the UID and the name of the cluster have a value, and only when the UID or name is known.
    pub(crate) fn of_cluster(cluster: &Cluster) -> Ownership {
        Ownership {
            cluster_uid: Some(cluster.uid.clone()).filter(|uid| !uid.is_empty()),
            cluster: Some(label_value(&cluster.name)).filter(|_| !cluster.name.is_empty()),
            ..Ownership::default()
        }
    }

    /// Returns the values of our labels for an object that belongs to this Service alone. They name the Service and the
    /// cluster.
    pub(crate) fn of_service(service: &Service, cluster: &Cluster) -> Ownership {
        Ownership {
            service_uid: Some(service.uid.clone()),
            service: Some(service_value(service)),
            ..Ownership::of_cluster(cluster)
        }
    }

    /// Returns the UIDs of all Services that, according to the labels, own the load balancer or one of its ports.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &String> {
        self.service_uid.iter().chain(self.ports.values())
    }

    /// Whether a label says that the Service owns the load balancer or one of its ports.
    pub(crate) fn carries(&self, service: &Service) -> bool {
        !service.uid.is_empty() && self.uids().any(|uid| *uid == service.uid)
    }

    /// Whether a label says that the load balancer belongs to this cluster. While the UID of this cluster is not known,
    /// no load balancer belongs to it.
    pub(crate) fn is_of(&self, cluster: &Cluster) -> bool {
        self.cluster_uid.as_ref().is_some_and(|uid| cluster.is_known_by(uid))
    }

    /// Returns the UID in the label `cluster-uid`, when it is the UID of another cluster.
    pub(crate) fn other_cluster_named(&self, cluster: &Cluster) -> Option<&String> {
        self.cluster_uid.as_ref().filter(|uid| !cluster.is_known_by(uid))
    }

    /// Returns the targets that an external load balancer (one that somebody else made) had before this cluster used
    /// it. This cluster has written them into a label of the load balancer. `None` when the load balancer has no such
    /// label.
    pub(crate) fn targets_before(&self, cluster: &Cluster) -> Option<&String> {
        let of = self.targets_before.iter().find(|(uid, _)| cluster.is_known_by(uid));
        of.map(|(_, targets)| targets)
    }

    /// Whether the label `adopt`, which an operator sets, names this Service.
    pub(crate) fn asks_for(&self, service: &Service) -> bool {
        self.adopt.as_ref() == Some(&service_value(service))
    }

    /// Returns the key of a label which says that a controller manages the load balancer for Services. Services can't
    /// use such a load balancer as an external one, i.e. as one that somebody else made. `None` when there is no such
    /// label.
    pub(crate) fn managed_by(&self) -> Option<&'static str> {
        self.service_uid.as_ref().map(|_| SERVICE_UID).or(self.group.as_ref().map(|_| GROUP))
    }

    /// Returns the name of the Service for which the load balancer was made, as `namespace.name`, if that Service is in
    /// another namespace than `service`. The name is the value of the label `service` or, without this label, of the
    /// label `keep`.
    pub(crate) fn of_another_namespace(&self, service: &Service) -> Option<&String> {
        let made_for = self.service.as_ref().or(self.keep.as_ref())?;
        // When the text `namespace.name` is too long for a label's value, it is cut, perhaps even before the dot. So
        // the value is also compared with the cut text of this Service.
        let is_same = namespace_of(made_for) == Some(service.namespace.as_str())
            || *made_for == service_value(service);
        (!is_same).then_some(made_for)
    }

    /// Whether a group of Services shares the load balancer, and the group belongs to another namespace than this
    /// Service. The label `group` has the form `namespace.name`. When the namespace was too long for the label and was
    /// cut, it is not known, and the result is `true`.
    pub(crate) fn has_as_guest(&self, service: &Service) -> bool {
        let group = self.group.as_ref();
        group.is_some_and(|label| namespace_of(label) != Some(service.namespace.as_str()))
    }
}

/// Returns the port number in the key of a label that names the owner of a port. `None` for other keys.
fn port_of(key: &str) -> Option<u16> {
    let text = key.strip_prefix(PORT)?;
    let number: u16 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Returns the namespace in a label's value of the form `namespace.name`. `None` when the value was cut within the
/// namespace, so that it has no dot.
pub(crate) fn namespace_of(value: &str) -> Option<&str> {
    value.split_once('.').map(|(namespace, _)| namespace)
}

/// Returns those labels that name the owner of a load balancer or certificate. A planned write is refused when one of
/// these labels has changed since the plan was made.
pub(crate) fn those_of_owners(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = labels.clone();
    labels.retain(|key, value| {
        key == SERVICE_UID || key.starts_with(OUR_PREFIX) || says_owner(key, value)
    });
    labels
}

/// Returns a label by which another program marks the load balancer as its own, as `KEY=VALUE`. Other labels, for
/// example those that people set with Terraform, do not count.
pub(crate) fn owned_by_program(balancer: &LoadBalancer) -> Option<String> {
    let found = balancer.labels.iter().find(|(key, value)| says_owner(key, value));
    found.map(|(key, value)| format!("{key}={value}"))
}

/// Returns the key of a label that neither this program nor hcloud-cloud-controller-manager writes. `None` when the
/// load balancer has no such label.
pub(crate) fn foreign_label(balancer: &LoadBalancer) -> Option<&String> {
    let is_known = |key: &&String| key.starts_with(UPSTREAM_PREFIX) || key.starts_with(OUR_PREFIX);
    balancer.labels.keys().find(|key| !is_known(key))
}

/// Whether a label with this key and value marks an object as the property of another program.
fn says_owner(key: &str, value: &str) -> bool {
    let starts = |prefix: &&str| key.starts_with(*prefix);
    let is_ours = [UPSTREAM_PREFIX, OUR_PREFIX].iter().any(starts);
    let is_owner = [CLUSTER_API_PREFIX, CLUSTER_PREFIX].iter().any(starts);
    is_owner || (value == OWNED && !is_ours)
}

/// Whether this program writes a label with this key on a load balancer that was taken over from
/// hcloud-cloud-controller-manager. The result is `true` only for the labels `service-uid` and `keep`. The other labels
/// of this program are not written on such a load balancer.
pub(crate) fn counts_upstream(key: &str) -> bool {
    [SERVICE_UID, KEEP].contains(&key)
}

/// Whether other programs find their load balancers by labels with this key. A Service is not allowed to set such a
/// label.
pub(crate) fn is_of_program(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    key.starts_with(CLUSTER_API_PREFIX)
        || PROGRAM_DOMAINS.contains(&domain)
        || domain.ends_with(".kubernetes.io")
}
