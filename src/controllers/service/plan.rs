//! Plans what should be done for Services, as a pure function of what the APIs of Kubernetes and the cloud say.

use super::observe::{self, Management, NO_IDENTITY, ObservedServices};
use crate::controllers::Plan;
use crate::kube::{KubeService, PastEvent};
use crate::provider::{
    Change, ChangeKind, Cluster, Description, Finding, Ingress, LoadBalancerPlan, Needs,
    PlanOutcome, Provider, Reason, ServiceInput, Severity, Snapshot, Source, Sourced, Write,
    WriteVerb, heartbeat,
};
use crate::text::shell_command;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What a Service wants from this controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Want {
    /// The Service wants a load balancer.
    Ensure,
    /// The Service does not need its load balancer any more, e.g. because it is being deleted. First the load balancer
    /// is removed, and then our finalizer.
    Remove,
    /// The load balancer stays as it is, and only our finalizer is removed. Either a person has asked for that, or this
    /// controller must not manage the Service any more.
    Release,
    /// Nothing is done for the Service. It never had a load balancer from this controller, or it belongs to another
    /// controller.
    #[default]
    Nothing,
}

/// The plan for one Service: the writes to the Service object and in the cloud, and the facts from which they were
/// planned.
pub type ServicePlan = Plan<ServiceChange, ServiceFacts>;

/// What the plan for one Service contains besides its writes, e.g. the Service object and the state of its load
/// balancer.
#[derive(Debug, Default)]
pub struct ServiceFacts {
    pub service: Arc<KubeService>,
    pub want: Want,
    /// The plan that the cloud provider made for the load balancer. Its findings (messages for the operator), changes
    /// and status were moved from here into the plan of the Service.
    pub cloud: LoadBalancerPlan,
    /// Every write that was made, as JSON. The list is filled only when a person asked for the plans.
    pub made: Vec<Value>,
    /// The last events of the Service, the newest first. They are read only for the command `ccm lb inspect`. `None`
    /// when they were not read.
    pub events: Option<Vec<Arc<PastEvent>>>,
}

/// One write in the plan for a Service.
#[derive(Debug)]
pub enum ServiceChange {
    /// A write to the Service object in Kubernetes.
    Own(ServiceWrite),
    /// A change in the cloud.
    Cloud(Box<dyn Change>),
    /// A change that takes the Service off a load balancer that it leaves. When the plan also has other writes, only
    /// those are made at first, and this change is only displayed. The Service is then planned again, and the new plan
    /// begins with this change.
    Leave(Box<dyn Change>),
    /// Adds the Service's ports to a load balancer that the plan of another Service creates. This write only shows the
    /// user what will happen, and is never made itself: after the load balancer was created, a new plan for the Service
    /// adds the ports.
    AddToNew(AddToNew),
}

/// One write to the Service object in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceWrite {
    /// The finalizer is added before anything is created for the Service.
    AddFinalizer,
    SetStatus(Vec<Ingress>),
    /// The finalizer is removed after the load balancer was removed, so that Kubernetes can delete the Service.
    RemoveFinalizer {
        /// Whether the write that removes the finalizer also empties the status. `false` means that the status is
        /// already empty by then, e.g. because an earlier write has emptied it.
        empties_status: bool,
    },
    /// This controller ends its management of the Service. The finalizer is removed, and the status stays as it is.
    EndManagement,
}

/// Makes the plans for all observed Services. When `for_people` is `true`, the plans keep all fields and targets of the
/// load balancers, so that a command can display them. Otherwise they are dropped, because twenty load balancers with a
/// hundred targets each would take most of the daemon's memory.
pub(super) fn plan(observed: &ObservedServices, for_people: bool) -> Vec<ServicePlan> {
    let plan = |service| {
        // It takes time to make plans for thousands of Services, so a heartbeat for each plan shows that the process
        // does not hang.
        heartbeat::beat();
        plan_for(observed, &*observed.snapshot, service, for_people)
    };
    let mut plans: Vec<ServicePlan> = observed.services.iter().map(plan).collect();
    refuse_in_wrong_project(observed, &mut plans);
    plans
}

/// Makes the plan for one Service. `snapshot` is the state of the load balancers as the cloud has shown it.
pub(super) fn plan_for(
    observed: &ObservedServices,
    snapshot: &dyn Snapshot,
    service: &Arc<KubeService>,
    for_people: bool,
) -> ServicePlan {
    let is_end = observed.management == Management::Ends;
    let is_begun = matches!(observed.management, Management::Begins(_));
    let want = match want(service) {
        Want::Ensure if is_end => Want::Release,
        Want::Release if is_begun => Want::Nothing,
        want => want,
    };
    let mut plan = ServicePlan::of(service, want);
    if observed.waiting.contains(&service.metadata.uid) {
        plan.findings.push(waiting(service));
    }
    if let Some(left) = service.left_alone.filter(|_| !is_end) {
        plan.leave_alone(snapshot, left, &observed.cluster);
    }
    if let Some(obstacle) = too_large(service, plan.want) {
        plan.leave_unread(observed, snapshot, obstacle, for_people);
        return plan;
    }
    let cluster = &observed.cluster;
    let for_cloud = service.in_namespace(&cluster.namespaces);
    let input = ServiceInput { service: &for_cloud, nodes: &observed.nodes, cluster };
    let cloud = match (plan.want, observed.management) {
        (Want::Nothing, _) => return plan,
        (Want::Remove, _) => snapshot.plan_removal(&for_cloud, cluster),
        (Want::Release, Management::Ends) => snapshot.plan_release(&for_cloud, cluster),
        (Want::Release, _) => std::mem::take(&mut plan.cloud),
        (Want::Ensure, Management::Begins(id)) => snapshot.plan_adoption(id, input),
        (Want::Ensure, Management::Replaced(order)) => snapshot.plan_replacement(input, order),
        (Want::Ensure, _) => snapshot.plan(input),
    };
    if plan.want == Want::Ensure && observed.nodes.is_empty() {
        let why = "There are no available nodes for LoadBalancer";
        plan.warn(Reason::UnAvailableLoadBalancer, why);
    }
    let lacks_identity = cluster.uid.is_empty();
    plan.take_over(if lacks_identity { without_identity(cloud, plan.want) } else { cloud });
    let is_unknown = cluster.project_nodes() > 0 && observed.has_own_servers.is_none();
    plan.cloud.needs.services |= is_begun;
    plan.cloud.needs.servers |= is_begun;
    plan.cloud.needs.project = is_unknown && plan.may_rest_on_project();
    if !for_people {
        plan.cloud.drop_details();
    }
    plan
}

/// Returns the finding (a message for the operator) that a change of the Service waits, because the Services of its
/// namespace have used up their share of the project's API calls.
pub(super) fn waiting(service: &KubeService) -> Finding {
    let namespace = &service.metadata.namespace;
    let message = format!(
        "this change waits, because changes of Services in namespace {namespace} have used up their share of the \
         project's API calls (900 calls; the share is refilled by 900 calls an hour). Does a program change these \
         Services all the time?"
    );
    let sync = shell_command("ccm lb sync", &[&service.full_name()]);
    let fix = format!("if so, stop that program; {sync} makes the change without waiting");
    Finding::warning(Reason::CallLimitReached, message).with_fix(fix)
}

/// Checks the manifest of a Service, which need not exist in a cluster, and returns what is wrong with it. Returns
/// `None` when the Service wants no load balancer from this controller. `snapshot` stands for a Hetzner Cloud project
/// without load balancers. `cluster` contains the known groups of Services that share a load balancer.
pub fn check(
    service: &KubeService,
    snapshot: &dyn Snapshot,
    cluster: &Cluster,
) -> Option<Vec<Finding>> {
    if want(service) != Want::Ensure {
        return None;
    }
    if let Some(obstacle) = too_large(service, Want::Ensure) {
        return Some(vec![obstacle]);
    }
    let service = &service.in_namespace(&cluster.namespaces);
    let mut plan = snapshot.plan(ServiceInput { service, nodes: &[], cluster });
    let mut findings = Vec::new();
    if let PlanOutcome::Refused { problems, .. } = plan.outcome {
        let problem = |why| Finding::warning(Reason::SyncLoadBalancerFailed, why);
        findings.extend(problems.into_iter().map(problem));
    }
    plan.findings.retain(|finding| finding.severity == Severity::Warning);
    findings.extend(plan.findings);
    Some(findings)
}

/// Returns a finding (a message for the operator) when the Service is too large to be read completely. The load
/// balancer of such a Service is not changed. The finalizer of a deleted Service can still be removed, if all its
/// finalizers were read.
fn too_large(service: &KubeService, want: Want) -> Option<Finding> {
    let why = match want {
        Want::Nothing => None,
        Want::Remove | Want::Release => service.too_many_finalizers(),
        Want::Ensure => service.too_large().or_else(|| service.too_many_finalizers()),
    };
    why.map(|why| Finding::warning(want.failed(), why))
}

/// Returns which data must be read again before these plans are carried out.
pub(super) fn needs(plans: &[ServicePlan]) -> Needs {
    plans.iter().map(|plan| plan.cloud.needs).fold(Needs::default(), Needs::and)
}

/// Refuses plans when the API token may belong to the wrong project. This is assumed when the project has neither a
/// load balancer of the Service nor a server of the cluster's nodes. A load balancer that is created in a wrong project
/// would get no traffic. If a finalizer were removed because the wrong project has no load balancer of the Service, the
/// load balancer in the right project would stay behind. When no node of the cluster runs on a cloud server, the
/// project can't be checked.
fn refuse_in_wrong_project(observed: &ObservedServices, plans: &mut [ServicePlan]) {
    let count = observed.cluster.project_nodes();
    if count == 0 || observed.has_own_servers != Some(false) {
        return;
    }
    for plan in plans.iter_mut().filter(|plan| plan.rests_on_project()) {
        let status = &plan.service.status.load_balancer.ingress;
        let nor = "but the project has no load balancer of the Service, and no server";
        let lacks = match (plan.want, status.is_empty()) {
            (Want::Ensure, true) => "the project has no server".to_owned(),
            (_, true) => format!("the Service has the finalizer of ccm, {nor}"),
            (_, false) => format!("the Service's status names {}, {nor}", addresses(status)),
        };
        let message = format!(
            "{lacks} of the cluster's {count} nodes, so ccm changes nothing. Does the token belong to another project?"
        );
        let obstacle = Finding::warning(plan.want.failed(), message);
        plan.refuse(obstacle);
    }
}

/// A planned write that adds the ports of a Service to a load balancer which it shares. The plan of another Service
/// creates this load balancer first.
#[derive(Debug)]
pub struct AddToNew {
    name: String,
    created_for: String,
}

impl Write for AddToNew {
    fn word(&self) -> &'static str {
        "add_to_new"
    }

    fn description(&self) -> Description {
        let Self { name, created_for } = self;
        let to =
            format!(" to load balancer {name:?}, which the sync of Service {created_for} creates");
        Description::new(WriteVerb::ADD, "ports", to)
    }

    fn json(&self) -> Value {
        let Self { name, created_for } = self;
        json!({ "change": self.word(), "name": name, "createdFor": created_for })
    }
}

/// Changes the plans of several Services for display, as if they were carried out one after the other. When two
/// Services ask for the same load balancer, and no Service owns it yet, the first Service gets it, and the plan of the
/// second is refused. When several Services share a load balancer and all their plans contain the same change of it,
/// only the plan of the first Service keeps this change.
pub(super) fn in_turn(provider: &dyn Provider, plans: &mut [ServicePlan]) {
    let mut claimed: HashMap<String, String> = HashMap::new();
    let mut created: HashMap<(String, String), String> = HashMap::new();
    let mut changed: HashSet<(u64, String)> = HashSet::new();
    for plan in plans {
        let name = plan.service.full_name();
        let group = observe::group(provider, &plan.service);
        let is_shared = group.is_some();
        if let Some(id) = plan.cloud.found.as_ref().map(|found| found.id).filter(|_| is_shared) {
            let is_replaced = plan.cloud.replacement.is_some();
            plan.changes.retain(|write| match write {
                ServiceChange::Leave(change) if is_replaced && change.new_name().is_some() => {
                    changed.insert((id, change.word().to_owned()))
                }
                ServiceChange::Cloud(_) => changed.insert((id, write.json().to_string())),
                _ => true,
            });
        }
        if let Some((group, new)) = group.zip(plan.new_name()) {
            let new = new.value.clone();
            let first = created.entry((group, new.clone())).or_insert(name.clone());
            if *first != name {
                let add = AddToNew { name: new, created_for: first.clone() };
                let place = usize::from(plan.first_write().is_some());
                plan.changes.retain(|write| matches!(write, ServiceChange::Own(_)));
                plan.changes.insert(place, ServiceChange::AddToNew(add));
                continue;
            }
        }
        let new = plan.new_name();
        // Two Services can want a new load balancer of the same name. When the second Service has not set this name by
        // an annotation, its plan is not refused, because the provider will choose another name for its load balancer.
        let is_default = |new: &Sourced<String>| !matches!(new.source, Source::Annotation(_));
        let may_change = new.is_some_and(is_default);
        let new = new.map(|new| (format!("{}: ", new.source), format!("{:?}", new.value)));
        let found = plan.cloud.found.as_ref();
        let found =
            found.map(|balancer| (String::new(), format!("{:?} ({})", balancer.name, balancer.id)));
        let found = found.filter(|_| !is_shared);
        for (source, wanted) in found.into_iter().chain(new) {
            let first = claimed.entry(wanted.clone()).or_insert(name.clone());
            if *first != name && !may_change {
                let message = format!(
                    "{source}load balancer {wanted} goes to Service {first}, which asks for it, too. Choose another \
                     name for the load balancer of this Service"
                );
                plan.refuse(Finding::warning(Reason::SyncLoadBalancerFailed, message));
            }
        }
    }
}

/// Returns what must be done for a Service. Only the fields of the Service itself decide this. The result can be
/// `Release` (only our finalizer is removed) although another controller has set the finalizer, because other
/// controllers use a finalizer with the same name. Therefore `ServicePlan::leave_alone` checks by the labels of the
/// load balancer whether the finalizer is ours.
pub fn want(service: &KubeService) -> Want {
    // The finalizer stays in one case: this controller must not manage the Service, and the Service has another type
    // now and is not being deleted. When the controller may manage the Service again later, it sees the finalizer and
    // removes the load balancer.
    let may_end =
        service.is_of_type_load_balancer() || service.metadata.deletion_timestamp.is_some();
    match service.left_alone {
        None if service.wants_load_balancer() => Want::Ensure,
        None if service.has_our_finalizer() => Want::Remove,
        Some(_) if service.has_our_finalizer() && may_end => Want::Release,
        _ => Want::Nothing,
    }
}

impl Want {
    /// Returns the event reason for a plan that could not be carried out.
    pub(super) fn failed(self) -> Reason {
        match self {
            Want::Remove => Reason::DeleteLoadBalancerFailed,
            Want::Ensure | Want::Release | Want::Nothing => Reason::SyncLoadBalancerFailed,
        }
    }
}

impl ServicePlan {
    /// Creates a plan without writes for the Service. The caller adds the writes. `want` says what the Service wants
    /// from this controller.
    pub(super) fn of(service: &Arc<KubeService>, want: Want) -> ServicePlan {
        let version = &service.metadata.resource_version;
        let facts = ServiceFacts { service: Arc::clone(service), want, ..ServiceFacts::default() };
        Plan::new(service.object(), version, facts)
    }

    /// Moves the provider's plan for the cloud into this plan, and adds the writes to the Service object.
    fn take_over(&mut self, mut cloud: LoadBalancerPlan) {
        let has_finalizer = self.service.has_our_finalizer();
        let has = &self.service.status.load_balancer.ingress;
        let status = cloud.status.take();
        let outcome = &mut cloud.outcome;
        let (first, last) = match self.want {
            Want::Ensure => {
                let is_synced = matches!(outcome, PlanOutcome::Change { .. });
                let first = (is_synced && !has_finalizer).then_some(ServiceWrite::AddFinalizer);
                (first, status.filter(|status| status != has).map(ServiceWrite::SetStatus))
            }
            // While the load balancer can't be deleted or released, the Service keeps its finalizer and its status.
            _ if outcome.obstacle().is_some() => (None, None),
            Want::Remove => {
                let empties_status = status.is_none();
                let first = status.filter(|_| !has.is_empty()).map(ServiceWrite::SetStatus);
                (first, Some(ServiceWrite::RemoveFinalizer { empties_status }))
            }
            Want::Release => (None, has_finalizer.then_some(ServiceWrite::EndManagement)),
            Want::Nothing => (None, None),
        };
        let mut all: Vec<ServiceChange> = first.into_iter().map(ServiceChange::Own).collect();
        all.extend(outcome.take_changes().into_iter().map(ServiceChange::Cloud));
        all.extend(last.map(ServiceChange::Own));
        all.extend(outcome.take_leaves().into_iter().map(ServiceChange::Leave));
        self.obstacle = outcome.obstacle().cloned();
        self.findings.append(&mut cloud.findings);
        self.changes = all;
        self.cloud = cloud;
    }

    /// Refuses the sync of a Service whose data could not be read completely. Nothing is changed in the cloud. Only the
    /// field `ipMode` of the addresses in the Service's status is corrected if necessary. When `for_people` is true,
    /// the plan also contains the load balancer, so that a command can display it.
    fn leave_unread(
        &mut self,
        observed: &ObservedServices,
        snapshot: &dyn Snapshot,
        obstacle: Finding,
        for_people: bool,
    ) {
        let mut cloud = std::mem::take(&mut self.cloud).refuse(obstacle);
        if self.want == Want::Ensure {
            let (for_cloud, cluster) = (self.service.for_cloud(), &observed.cluster);
            let found = for_people.then(|| snapshot.left_on(&for_cloud, cluster));
            cloud.found = found.flatten();
            cloud.status = snapshot.status_by_proxy(&for_cloud, cluster);
        }
        self.take_over(cloud);
    }

    /// Makes the plan for a Service that this controller must not manage. Our finalizer is removed when a load balancer
    /// has labels which show that it belongs to the Service. Without such a load balancer, the finalizer may belong to
    /// another controller, so it stays. The load balancer and our labels on it stay unchanged. So this controller can
    /// manage the load balancer again later, and can recognise it as an orphan when its Service was deleted.
    fn leave_alone(&mut self, snapshot: &dyn Snapshot, why: &str, cluster: &Cluster) {
        self.cloud.found = snapshot.left_on(&self.service.for_cloud(), cluster);
        self.cloud.carries_uid = self.cloud.found.is_some();
        match (self.want, &self.cloud.found) {
            (Want::Release, Some(found)) => {
                let message = format!(
                    "Management of the Service by ccm ends, because {}. Load balancer {:?} ({}) stays, and its ports, \
                     targets and addresses stay unchanged",
                    why, found.name, found.id
                );
                let finding = Finding::info(Reason::LoadBalancerReleased, message);
                self.findings.push(finding);
            }
            _ => self.want = Want::Nothing,
        }
    }

    /// Returns for what the replacement of the load balancer waits, as text. `None` when it waits for nothing.
    pub(super) fn waits_for(&self) -> Option<&str> {
        let is_it = |finding: &&Finding| finding.reason == Reason::LoadBalancerReplacementWaits;
        self.findings.iter().find(is_it).map(|finding| finding.message.as_str())
    }

    /// Whether a new plan for the Service is made from fresh data in this sync pass. This is so in two cases:
    ///
    /// - The plan has a write, because fresh data are needed for each write.
    /// - Fresh data may show that a write is possible now. This is the case when the plan has an obstacle (a reason why
    ///   something can't be done), when the plan is unfinished, e.g. because an object does not exist yet, or when a
    ///   label of the load balancer says that this controller does not manage it any more.
    pub(super) fn is_taken_up(&self) -> bool {
        let outcome = &self.cloud.outcome;
        self.has_writes()
            || self.obstacle.is_some()
            || outcome.is_unfinished()
            || outcome.is_released()
    }

    /// Returns the write to the Service that is made before the changes in the cloud. `None` when no write has to be
    /// made before them.
    pub(super) fn first_write(&self) -> Option<&ServiceWrite> {
        match self.changes.first()? {
            ServiceChange::Own(write @ ServiceWrite::AddFinalizer) => Some(write),
            ServiceChange::Own(write) if self.want == Want::Remove && !write.ends_management() => {
                Some(write)
            }
            _ => None,
        }
    }

    /// Returns the changes in the cloud that can be made now. When the Service leaves a load balancer, the change that
    /// removes it from there is returned only after all other changes were made and the status was written. By then,
    /// the labels of the new load balancer name the Service.
    pub fn changes_now(&self) -> impl Iterator<Item = &dyn Change> {
        let now = &self.changes[usize::from(self.first_write().is_some())..];
        let leaves = matches!(now, [ServiceChange::Leave(_), ..]);
        now.iter().map_while(move |write| match write {
            ServiceChange::Cloud(change) if !leaves => Some(&**change),
            ServiceChange::Leave(change) if leaves => Some(&**change),
            _ => None,
        })
    }

    /// Whether the plan deletes the load balancer. A plan that only ends the management of the load balancer deletes
    /// nothing.
    pub fn is_deletion(&self) -> bool {
        self.changes_now().any(|change| change.kind() == ChangeKind::Removal)
    }

    /// Returns the name of the load balancer that the plan creates, and where the name comes from, e.g. an annotation.
    /// Returns `None` when the plan creates no load balancer.
    pub(super) fn new_name(&self) -> Option<&Sourced<String>> {
        self.changes.iter().find_map(|write| match write {
            ServiceChange::Cloud(change) => change.new_name(),
            _ => None,
        })
    }

    /// Whether the status of the Service has the addresses of a load balancer, but the load balancer of the Service was
    /// not found in the cloud.
    pub fn has_lost_its_own(&self) -> bool {
        let has_status = !self.service.status.load_balancer.ingress.is_empty();
        let lacks = self.cloud.found.is_none() && self.rests_on_project();
        self.want == Want::Ensure && has_status && lacks
    }

    /// Whether the plan could be harmful if the API token belonged to a wrong Hetzner Cloud project. For example, a
    /// second load balancer would be created when the first one is missing in that project. This is only an estimate.
    /// If it is `true`, servers are read to check the project, and `rests_on_project` then gives the exact answer for
    /// the new plan.
    fn may_rest_on_project(&self) -> bool {
        let cloud = &self.cloud;
        !cloud.carries_uid && (self.obstacle.is_none() || cloud.needs.services)
    }

    /// Whether the plan would be harmful if the API token belonged to a wrong project, and nothing shows that it
    /// belongs to the right one. The harm would be a new load balancer, or the removal of the finalizer. The project is
    /// shown to be right by a load balancer with the UID of the Service, or with an address from its status. See
    /// `refuse_in_wrong_project`.
    fn rests_on_project(&self) -> bool {
        let status = &self.service.status.load_balancer.ingress;
        let mut found = self.cloud.found.iter().flat_map(|found| &found.addresses);
        let is_shown = |ip: &IpAddr| {
            let ip = Some(ip.to_string());
            status.iter().any(|entry| entry.ip == ip)
        };
        let is_let_go = self.service.has_our_finalizer() || !status.is_empty();
        (self.want == Want::Ensure || self.want != Want::Nothing && is_let_go)
            && self.obstacle.is_none()
            && !self.cloud.carries_uid
            && !found.any(is_shown)
    }

    pub(super) fn refuse(&mut self, obstacle: Finding) {
        self.changes.clear();
        self.obstacle = Some(obstacle);
        self.cloud.outcome = PlanOutcome::default();
    }

    /// Removes the next changes in the cloud from the plan, up to the next write to the Service object, and returns
    /// them. A write to the Service object that comes before these changes must already have been made by the caller.
    pub(super) fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        let count = self.changes_now().count();
        let now = self.changes.drain(..count);
        now.filter_map(|write| match write {
            ServiceChange::Cloud(change) | ServiceChange::Leave(change) => Some(change),
            ServiceChange::Own(_) | ServiceChange::AddToNew(_) => None,
        })
        .collect()
    }
}

/// Removes the changes that must not be made while the cluster's identity (a UID) is not known. Nothing is created,
/// because a created object would later seem to belong to another cluster. Nothing is deleted, because the object may
/// belong to another cluster. A load balancer that carries the UID of its Service is still synced.
fn without_identity(cloud: LoadBalancerPlan, want: Want) -> LoadBalancerPlan {
    let held = |then: &str| Finding::warning(want.failed(), format!("{NO_IDENTITY}; {then}"));
    if cloud.outcome.obstacle().is_some() {
        cloud
    } else if want == Want::Ensure && cloud.carries_uid {
        cloud.without_identity(held(
            "until default/kubernetes exists, ccm creates and deletes nothing",
        ))
    } else {
        cloud.refuse(held(
            "until default/kubernetes exists, ccm neither creates, changes nor deletes the load balancer",
        ))
    }
}

impl ServiceChange {
    fn write(&self) -> &dyn Write {
        match self {
            ServiceChange::Own(write) => write,
            ServiceChange::Cloud(change) | ServiceChange::Leave(change) => &**change,
            ServiceChange::AddToNew(add) => add,
        }
    }
}

impl Write for ServiceChange {
    fn word(&self) -> &'static str {
        self.write().word()
    }

    fn description(&self) -> Description {
        self.write().description()
    }

    fn json(&self) -> Value {
        self.write().json()
    }
}

impl ServiceWrite {
    /// Whether this write ends the management of the Service by this controller.
    pub(super) fn ends_management(&self) -> bool {
        matches!(self, ServiceWrite::RemoveFinalizer { .. } | ServiceWrite::EndManagement)
    }
}

impl Write for ServiceWrite {
    fn word(&self) -> &'static str {
        match self {
            ServiceWrite::AddFinalizer => "add_finalizer",
            ServiceWrite::SetStatus(_) => "set_status",
            ServiceWrite::EndManagement => "end_management",
            ServiceWrite::RemoveFinalizer { .. } => "remove_finalizer",
        }
    }

    /// Returns a text that describes this write, such as `set status to 192.0.2.7, 2001:db8::1`.
    fn description(&self) -> Description {
        let finalizer = |verb| Description::new(verb, "finalizer", "");
        let emptied = Description::new(WriteVerb::EMPTY, "status", "");
        match self {
            ServiceWrite::AddFinalizer => finalizer(WriteVerb::ADD),
            ServiceWrite::SetStatus(status) if status.is_empty() => emptied,
            ServiceWrite::SetStatus(status) => {
                Description::value("status", None, Some(&addresses(status)))
            }
            ServiceWrite::EndManagement => finalizer(WriteVerb::REMOVE),
            ServiceWrite::RemoveFinalizer { empties_status } => {
                let emptied = Some(emptied).filter(|_| *empties_status);
                emptied.into_iter().chain([finalizer(WriteVerb::REMOVE)]).collect()
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            ServiceWrite::AddFinalizer => json!({ "change": "AddFinalizer" }),
            ServiceWrite::SetStatus(status) => json!({ "change": "SetStatus", "ingress": status }),
            ServiceWrite::EndManagement => json!({ "change": "EndManagement" }),
            ServiceWrite::RemoveFinalizer { .. } => json!({ "change": "RemoveFinalizer" }),
        }
    }
}

fn addresses(status: &[Ingress]) -> String {
    let address =
        |ingress: &Ingress| ingress.hostname.clone().or(ingress.ip.clone()).unwrap_or_default();
    status.iter().map(address).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::clock::{self, Simulation};
    use crate::provider::{self, Balancer, KeptObject, Orphan, SeenHealth, ShownCertificate};
    use std::cell::Cell;
    use std::io;
    use std::rc::Rc;
    use std::time::{Duration, Instant, SystemTime};

    /// A simulated clock that counts how often its time is read. Each heartbeat reads the time, so the test can count
    /// the heartbeats.
    #[derive(Debug)]
    struct Counting(Instant, Cell<usize>);

    impl Simulation for Counting {
        fn now(&self) -> Instant {
            self.1.set(self.1.get() + 1);
            self.0
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }

        fn sleep(&self, _: Duration) {}

        fn others(&self) {}

        fn random(&self) -> u64 {
            0
        }

        fn exchange(&self, _: &str, _: &[u8], _: Instant) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// A snapshot of a Hetzner Cloud project without load balancers. The tests use it where the state of the cloud is
    /// not important.
    struct Empty;

    #[rustfmt::skip] // A method is a line.
    impl Snapshot for Empty {
        fn covers(&self, _: &provider::Service) -> bool { true }
        fn calls(&self) -> u32 { 0 }
        fn plan(&self, _: ServiceInput) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn plan_removal(&self, _: &provider::Service, _: &Cluster) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn left_on(&self, _: &provider::Service, _: &Cluster) -> Option<Balancer> { None }
        fn status_by_proxy(&self, _: &provider::Service, _: &Cluster) -> Option<Vec<Ingress>> { None }
        fn plan_release(&self, _: &provider::Service, _: &Cluster) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn plan_adoption(&self, _: u64, _: ServiceInput) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn has_server_of(&self, _: &Cluster) -> bool { false }
        fn external(&self) -> Vec<Balancer> { Vec::new() }
        fn health(&self, _: &HashSet<&str>) -> Vec<SeenHealth> { Vec::new() }
        fn certificates(&self, _: &HashSet<&str>) -> Option<Vec<ShownCertificate>> { None }
        fn all(&self) -> Vec<(Balancer, String)> { Vec::new() }
        fn known_group(&self, key: String) -> String { key }
        fn orphans(&self, _: &Cluster) -> Vec<Orphan> { Vec::new() }
        fn kept(&self, _: &Cluster) -> Vec<KeptObject> { Vec::new() }
    }

    #[test]
    fn each_plan_is_a_sign_of_life() {
        const SERVICES: usize = 50;
        let machine = Rc::new(Counting(Instant::now(), Cell::default()));
        let _simulated = clock::simulate(machine.clone());
        heartbeat::install(Arc::default());
        let observed = ObservedServices {
            services: vec![Arc::default(); SERVICES],
            nodes: Vec::new(),
            cluster: Cluster::default(),
            snapshot: Arc::new(Empty),
            answered: machine.0,
            urgency: provider::Urgency::CanWait,
            has_own_servers: None,
            management: Management::Usual,
            waiting: HashSet::new(),
            read_again: Needs::default(),
        };
        let before = machine.1.get();
        assert_eq!(plan(&observed, false).len(), SERVICES);
        assert!(machine.1.get() - before >= SERVICES);
    }
}
