//! Checks, just before labels are written or an object is deleted, whether the object has changed since the plan was
//! made.

use super::labels::{Labelled, Ownership, WantedLabels, those_of_owners};
use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::model::balancer::{ApiTarget, LoadBalancer};
use std::collections::{BTreeMap, BTreeSet};

/// Checks just before a write that the write is still allowed. It is for writes that change labels, and for deletions.
/// The load balancer or certificate is read again for this check, because an operator, Terraform or another cluster may
/// have changed it since the plan was made.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    seen: SeenState,
    /// The labels to set and to remove. A request to the API always replaces all labels. So the write also sends all
    /// other labels, with the values that were read just before.
    change: WantedLabels,
    /// The targets because of which the write is made. For example, a load balancer is not deleted but only released,
    /// because it has targets that are not nodes of this cluster. When none of these targets is left just before the
    /// write, the write is refused. The set is empty when the write has other reasons than targets.
    reasons: BTreeSet<String>,
}

/// The parts of a load balancer or certificate that [`Guard`] compares. They are read once for the plan, and once more
/// just before the write.
#[derive(Clone, Default)]
pub(crate) struct SeenState {
    labels: BTreeMap<String, String>,
    ports: BTreeSet<u16>,
    targets: BTreeSet<String>,
    is_protected: bool,
    /// The IDs of the load balancers that use the object, if the object is a certificate. The set is empty for a load
    /// balancer.
    uses: BTreeSet<u64>,
}

impl Guard {
    /// Returns the check that is made just before a write which changes no labels. `seen` is the load balancer or
    /// certificate as it was read when the write was planned.
    pub(crate) fn of(seen: impl Into<SeenState>) -> Guard {
        Guard { seen: seen.into(), ..Guard::default() }
    }

    /// Returns a [`Guard`] for a write after which the labels of the load balancer name the owners in `to`. Just before
    /// the write, the guard checks that nobody has changed the labels about owners since the load balancer was read for
    /// the plan. `balancer` is the load balancer as it was read for the plan, or `None` when the write creates it.
    pub(crate) fn to(balancer: Option<Labelled>, to: &Ownership) -> Guard {
        let from = balancer.map(|balancer| balancer.ownership.clone()).unwrap_or_default();
        let seen = balancer.map(|labelled| SeenState::from(labelled.balancer));
        let seen = seen.unwrap_or_default();
        Guard { seen, change: from.change_to(to), ..Guard::default() }
    }

    /// Adds a condition to the check before the write. The write is made because of these targets, so it is refused
    /// when none of them exists any more. An empty `targets` adds no condition.
    pub(crate) fn because_of<'a>(mut self, targets: impl Iterator<Item = &'a ApiTarget>) -> Guard {
        self.reasons = targets.flat_map(stands_for).collect();
        self
    }

    /// Adds labels to those that the write sets on the load balancer or certificate.
    pub(crate) fn with(mut self, labels: BTreeMap<String, String>) -> Guard {
        self.change.extend(labels.into_iter().map(|(key, value)| (key, Some(value))));
        self
    }

    pub(crate) fn changes_labels(&self) -> bool {
        !self.change.is_empty()
    }

    /// Returns how many labels the write will set on the load balancer or certificate. Labels that it removes are not
    /// counted.
    pub(crate) fn count(&self) -> usize {
        self.change.values().flatten().count()
    }

    /// Returns all labels that the object has after the write, if nobody else changes its labels before the write.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        self.labels_now(&self.seen)
    }

    /// Returns all labels after the write. `now` has the labels that were read just before the write.
    pub(crate) fn labels_now(&self, now: &SeenState) -> BTreeMap<String, String> {
        let mut labels = now.labels.clone();
        labels.retain(|key, _| self.change.get(key) != Some(&None));
        let set = self.change.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        labels.extend(set);
        labels
    }

    /// Returns why the write is not allowed any more, or `None` when it is allowed. `now` is the state that was read
    /// just before the write. `takes_all` means that the write concerns all ports and targets of the load balancer.
    /// Such a write is also refused when a port or target was added after the plan was made.
    pub(crate) fn refused(
        &self,
        now: &SeenState,
        is_deletion: bool,
        takes_all: bool,
    ) -> Option<&'static str> {
        let seen = &self.seen;
        let has_more = !now.ports.is_subset(&seen.ports) || !now.targets.is_subset(&seen.targets);
        if is_deletion && now.is_protected {
            Some("the load balancer has delete protection now")
        } else if is_deletion && !now.uses.is_empty() {
            Some("a load balancer uses the certificate now")
        } else if is_deletion && seen.labels != now.labels {
            Some("the labels changed meanwhile")
        } else if those_of_owners(&seen.labels) != those_of_owners(&now.labels) {
            Some("the labels that name the owner of the object changed meanwhile")
        } else if !self.reasons.is_empty() && self.reasons.is_disjoint(&now.targets) {
            Some("the targets that were the reason not to delete the load balancer are gone")
        } else if takes_all && has_more {
            Some("the load balancer got new ports or targets meanwhile")
        } else {
            None
        }
    }
}

impl From<&LoadBalancer> for SeenState {
    fn from(balancer: &LoadBalancer) -> SeenState {
        let ports = balancer.services.iter().map(|port| port.listen_port);
        SeenState {
            labels: balancer.labels.clone(),
            ports: ports.collect(),
            targets: balancer.targets.iter().flat_map(stands_for).collect(),
            is_protected: balancer.protection.delete,
            uses: BTreeSet::new(),
        }
    }
}

impl From<&Certificate> for SeenState {
    fn from(certificate: &Certificate) -> SeenState {
        SeenState {
            labels: certificate.labels.clone(),
            uses: certificate.used_by.iter().map(|reference| reference.id).collect(),
            ..SeenState::default()
        }
    }
}

fn stands_for(target: &ApiTarget) -> Vec<String> {
    match target {
        ApiTarget::Server { server, .. } => vec![format!("server {}", server.id)],
        ApiTarget::Ip { ip, .. } => vec![format!("address {}", ip.ip)],
        ApiTarget::LabelSelector { label_selector, targets } => {
            let selected =
                targets.iter().flatten().map(|target| format!("server {}", target.server.id));
            let own = format!("selector {}", label_selector.selector);
            selected.chain([own]).collect()
        }
        ApiTarget::Unknown => vec!["unknown".to_owned()],
    }
}
