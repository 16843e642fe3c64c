//! What should be done for Services: a pure function of what both APIs say.

use crate::cloud::{
    Change, Cluster, Finding, Ingress, Landscape, LoadBalancerPlan, LoadBalancers, OfferedNode,
    Reason,
};
use crate::controllers::Proposal;
use crate::kube::{ObjectReference, Service};
use serde_json::{Value, json};
use std::sync::Arc;

/// What both APIs said.
pub struct View<'a> {
    pub services: &'a [Arc<Service>],
    pub nodes: &'a [OfferedNode],
    pub cluster: &'a Cluster,
    pub landscape: &'a Landscape,
}

/// What a Service asks of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// A load balancer.
    Ensure,
    /// Its load balancer gone, then our finalizer.
    Remove,
    /// Nothing: it never had one from us, or belongs to another controller.
    Nothing,
}

/// What to do for one Service.
#[derive(Debug)]
pub struct ServicePlan {
    pub object: ObjectReference,
    pub service: Arc<Service>,
    pub want: Want,
    /// In the cloud; for `Want::Nothing` it is empty.
    pub cloud: LoadBalancerPlan,
    /// Our finalizer goes on the Service before anything is created for it.
    pub add_finalizer: bool,
    /// What its status is to say, where it says something else.
    pub status: Option<Vec<Ingress>>,
    /// The controller's own; the provider's are in `cloud`.
    pub findings: Vec<Finding>,
    /// Of a pass: every write that was made, for programs.
    pub made: Vec<Value>,
}

pub fn plan(view: &View, provider: &dyn LoadBalancers) -> Vec<ServicePlan> {
    let services = view.services.iter();
    services
        .map(|service| plan_service(view, provider, service))
        .collect()
}

pub fn plan_service(
    view: &View,
    provider: &dyn LoadBalancers,
    service: &Arc<Service>,
) -> ServicePlan {
    let mut plan = ServicePlan {
        object: service.object(),
        service: Arc::clone(service),
        want: want(service),
        cloud: LoadBalancerPlan::default(),
        add_finalizer: false,
        status: None,
        findings: Vec::new(),
        made: Vec::new(),
    };
    let for_cloud = service.for_cloud();
    match plan.want {
        Want::Nothing => return plan,
        Want::Remove => {
            plan.cloud = provider.plan_removal(view.landscape, &for_cloud);
        }
        Want::Ensure => {
            plan.cloud = provider.plan(view.landscape, &for_cloud, view.nodes, view.cluster);
            plan.add_finalizer = !service.has_our_finalizer() && plan.cloud.obstacle.is_none();
            let wanted = plan.cloud.status.as_ref();
            let differs = |wanted: &&Vec<Ingress>| **wanted != service.status.load_balancer.ingress;
            plan.status = wanted.filter(differs).cloned();
            if view.nodes.is_empty() {
                plan.findings.push(Finding::warning(
                    Reason::UnAvailableLoadBalancer,
                    "There are no available nodes for LoadBalancer",
                ));
            }
        }
    }
    plan
}

/// The finalizer's name is shared with other controllers: a Service with a class is theirs.
pub fn want(service: &Service) -> Want {
    let is_going = service.metadata.deletion_timestamp.is_some();
    if service.spec.load_balancer_class.is_some() {
        Want::Nothing
    } else if service.is_of_type_load_balancer() && !is_going {
        Want::Ensure
    } else if service.has_our_finalizer() {
        Want::Remove
    } else {
        Want::Nothing
    }
}

impl ServicePlan {
    /// E.g. `service/default/web`; `load-balancer/front` for one that no Service wants.
    pub fn name(&self) -> String {
        self.object.for_people()
    }

    /// Is there anything to write, to either API?
    pub fn has_writes(&self) -> bool {
        let is_blocked = self.cloud.obstacle.is_some();
        !self.cloud.changes.is_empty()
            || self.add_finalizer
            || self.status.is_some()
            || (self.want == Want::Remove && !is_blocked)
    }

    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        let own = self.findings.iter().chain(&self.cloud.findings);
        own.chain(&self.cloud.obstacle)
    }

    /// Every write in words, in the order in which they would be made.
    pub fn lines(&self) -> Vec<String> {
        let finalizer = self.add_finalizer.then(|| "finalizer: added".to_owned());
        let changes = self.cloud.changes.iter().map(|change| change.line());
        let status = self.status.as_ref().map(|status| status_line(status));
        let cleaned = (self.want == Want::Remove && self.cloud.obstacle.is_none())
            .then(|| "status emptied, finalizer removed".to_owned());
        let before = finalizer.into_iter().chain(changes);
        before.chain(status).chain(cleaned).collect()
    }

    /// The same for programs.
    pub fn json(&self) -> Vec<Value> {
        let finalizer = self.add_finalizer.then(finalizer_added);
        let changes = self.cloud.changes.iter().map(|change| change.json());
        let status = self.status.as_ref().map(|status| status_set(status));
        let goes = self.want == Want::Remove && self.cloud.obstacle.is_none();
        let before = finalizer.into_iter().chain(changes);
        before
            .chain(status)
            .chain(goes.then(finalizer_removed))
            .collect()
    }

    pub fn proposal(&self) -> Proposal {
        Proposal {
            object: self.name(),
            lines: self.lines(),
            obstacle: self
                .cloud
                .obstacle
                .as_ref()
                .map(|finding| finding.message.clone()),
        }
    }

    /// Takes the changes out, to be made.
    pub(super) fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        std::mem::take(&mut self.cloud.changes)
    }
}

pub(super) fn finalizer_added() -> Value {
    json!({ "change": "AddFinalizer" })
}

pub(super) fn finalizer_removed() -> Value {
    json!({ "change": "RemoveFinalizer" })
}

pub(super) fn status_set(status: &[Ingress]) -> Value {
    json!({ "change": "SetStatus", "ingress": status })
}

/// `status: 192.0.2.7, 2001:db8::1`.
pub(super) fn status_line(status: &[Ingress]) -> String {
    let address = |ingress: &Ingress| {
        let address = ingress.hostname.as_ref().or(ingress.ip.as_ref());
        address.cloned().unwrap_or_default()
    };
    match status {
        [] => "status: emptied".into(),
        status => {
            let list: Vec<String> = status.iter().map(address).collect();
            format!("status: {}", list.join(", "))
        }
    }
}
