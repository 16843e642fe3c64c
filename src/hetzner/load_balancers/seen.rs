//! What a write rests on. It is read again just before the write, which is not made when that changed.

use super::balancer::{LoadBalancer, Target};
use super::names::{ADOPT, ADOPTED, CLUSTER_UID, CREATED, SERVICE_UID};
use std::collections::{BTreeMap, BTreeSet};

/// A load balancer's labels, ports and targets when the write was planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub labels: BTreeMap<String, String>,
    ports: BTreeSet<u16>,
    targets: BTreeSet<String>,
}

impl Seen {
    pub fn of(balancer: &LoadBalancer) -> Seen {
        let ports = balancer.services.iter().map(|port| port.listen_port);
        Seen {
            labels: balancer.labels.clone(),
            ports: ports.collect(),
            targets: balancer.targets.iter().flat_map(keys).collect(),
        }
    }

    /// The labels that say whose it is are the same.
    pub(super) fn has_same_owner(&self, now: &Seen) -> bool {
        [SERVICE_UID, CLUSTER_UID, CREATED, ADOPTED, ADOPT]
            .iter()
            .all(|label| self.labels.get(*label) == now.labels.get(*label))
    }

    /// Since then it has got no port and no target.
    pub(super) fn has_all_of(&self, now: &Seen) -> bool {
        now.ports.is_subset(&self.ports) && now.targets.is_subset(&self.targets)
    }
}

/// What one target stands for.
fn keys(target: &Target) -> Vec<String> {
    match target {
        Target::Server { server, .. } => vec![format!("server {}", server.id)],
        Target::Ip { ip, .. } => vec![format!("address {}", ip.ip)],
        Target::LabelSelector {
            label_selector,
            targets,
        } => {
            let selected = targets.iter().flatten();
            let selected = selected.map(|one| format!("server {}", one.server.id));
            let own = format!("selector {}", label_selector.selector);
            selected.chain([own]).collect()
        }
        Target::Unknown => vec!["unknown".to_owned()],
    }
}
