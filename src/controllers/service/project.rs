//! Is it the right project? Another project's token shows neither a Service's load balancer nor a server: a new load
//! balancer there would take the traffic away, and a Service let go would leave the real one behind.

use super::plan::{ServicePlan, Want, addresses};
use crate::cache::Apis;
use crate::provider::{Cluster, Finding, Ingress, Reason, Urgency};
use std::time::Duration;

/// Refuses plans that rest on a load balancer having gone, where the project holds no server of the cluster's nodes
/// either. Servers are listed only when there is such a plan: after what it rests on was read, for a token may be
/// replaced at any time. In a cluster without nodes of ours projects can't be distinguished.
pub(super) fn doubt(apis: &Apis, cluster: &Cluster, plans: &mut [ServicePlan]) {
    let is_doubted = plans.iter().any(lacks_its_own) && !cluster.servers.is_empty();
    if !is_doubted || apis.provider.instances().is_none() {
        return;
    }
    let why = match apis.instances(Duration::ZERO, Urgency::Needed) {
        Ok(servers) => {
            let mut servers = servers.value.iter();
            if servers.any(|server| cluster.servers.contains_key(&server.id)) {
                return;
            }
            let count = cluster.servers.len();
            format!(
                "nor a server of the cluster's nodes, of which there are {count}: is the token another project's?"
            )
        }
        Err(error) => format!("and whether it is the right project is not known: {error}"),
    };
    for plan in plans.iter_mut().filter(|plan| lacks_its_own(plan)) {
        let reason = match plan.want {
            Want::Remove => Reason::DeleteLoadBalancerFailed,
            _ => Reason::SyncLoadBalancerFailed,
        };
        let status = addresses(&plan.service.status.load_balancer.ingress);
        let message =
            format!("the status says {status}, but the project has no such load balancer, {why}");
        plan.refuse(Finding::warning(reason, message));
    }
}

/// It had a load balancer, says its status, and there is none now: none with its UID, and none with one of the
/// addresses that could be adopted.
fn lacks_its_own(plan: &ServicePlan) -> bool {
    let status = &plan.service.status.load_balancer.ingress;
    let is_shown = |entry: &Ingress| {
        let found = plan.cloud.found.iter().flat_map(|found| &found.addresses);
        let mut found = found.map(ToString::to_string);
        entry
            .ip
            .as_ref()
            .is_some_and(|ip| found.any(|one| one == *ip))
    };
    plan.want != Want::Nothing
        && plan.cloud.obstacle.is_none()
        && !plan.cloud.is_labelled
        && !status.is_empty()
        && !status.iter().any(is_shown)
}

impl ServicePlan {
    /// Its status says that it has a load balancer, and there is none to be found.
    pub fn has_lost_its_own(&self) -> bool {
        self.want == Want::Ensure && self.cloud.found.is_none() && lacks_its_own(self)
    }
}
