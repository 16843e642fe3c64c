//! The labels of a load balancer after a Service left it.

use super::facts::is_used_by_others;
use super::labels::{Labelled, Ownership, RELEASED};
use crate::provider::{Cluster, Service};

/// The labels after the Service has left the load balancer. When the last Service leaves, all labels of this controller
/// are removed. An external load balancer keeps the labels of its owner and of other clusters.
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
        // Another cluster may use the external load balancer, too.
        to.targets_before.retain(|uid, _| !cluster.is_known_by(uid));
    } else if to.service_uid.as_ref() == Some(&service.uid) {
        (to.service_uid, to.service) = (None, None);
    }
    to
}

/// The labels after the management of the Service on the load balancer has ended. An external load balancer keeps the
/// labels of ports. When the Service comes back, these labels say which ports it takes back.
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

/// Returns why the management of the Service's load balancer can't be ended.
pub(crate) fn why_not_released(balancer: Labelled, service: &Service) -> Option<String> {
    let uid = balancer.ownership.released.as_ref().filter(|uid| **uid != service.uid)?;
    Some(format!(
        "load balancer {} has label {RELEASED}={uid}, which names another Service, and can have only one such label: \
         adopt it for that Service, or remove the label",
        balancer.shown()
    ))
}
