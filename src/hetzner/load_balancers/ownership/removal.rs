//! The labels that a load balancer has after a Service has left it.

use super::facts::is_used_by_others;
use super::labels::{Labelled, Ownership, RELEASED};
use crate::provider::{Cluster, Service};

/// Returns what the labels of the load balancer should say about its owners when the Service has left it. `is_last`
/// means that no other Service uses the load balancer. Then all labels of this program are removed or, from an external
/// load balancer (one that somebody else made), only the labels of this cluster. Otherwise only the labels about this
/// Service are removed.
pub(crate) fn without_service(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
    is_last: bool,
) -> Ownership {
    let mut to = balancer.ownership.clone();
    if is_last && to.external.is_none() {
        return Ownership::default();
    }
    to.ports.retain(|_, uid| *uid != service.uid);
    to.adopt = to.adopt.filter(|_| !balancer.ownership.asks_for(service));
    if is_last {
        // The label `targets-before` of a cluster lists the targets that an external load balancer (one that somebody
        // else made) had before the cluster used it. Only the label of this cluster is removed, because Services of
        // other clusters can still use the load balancer.
        to.targets_before.retain(|uid, _| !cluster.is_known_by(uid));
    } else if to.service_uid.as_ref() == Some(&service.uid) {
        (to.service_uid, to.service) = (None, None);
    }
    to
}

/// Returns the labels that say who owns the load balancer and its ports, as they should be after this program has
/// stopped managing it for the Service. On an external load balancer (one that somebody else made), the labels of the
/// Service's ports stay, so that the Service gets the same ports when it is managed again.
pub(crate) fn after_management(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
) -> Ownership {
    let is_last = !is_used_by_others(balancer, &service.uid, cluster);
    let mut to = if balancer.ownership.external.is_some() {
        balancer.ownership.clone()
    } else {
        without_service(balancer, service, cluster, is_last)
    };
    to.released = Some(service.uid.clone());
    to
}

/// Returns the reason why this program can't stop managing the load balancer for the Service. `None` when it can.
pub(crate) fn why_not_released(balancer: Labelled, service: &Service) -> Option<String> {
    let uid = balancer.ownership.released.as_ref().filter(|uid| **uid != service.uid)?;
    Some(format!(
        "load balancer {} can't be released, because its label {RELEASED}={uid} names another Service, and a load \
         balancer can have only one such label. Adopt the load balancer for that Service (ccm lb adopt), or \
         remove the label",
        balancer.shown()
    ))
}
