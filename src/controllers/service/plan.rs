//! Plans what should be done for Services, as a pure function of what both APIs say.

use super::observe::{self, Management, NO_IDENTITY, Observed};
use crate::controllers::controller::Proposal;
use crate::kube::{ObjectReference, PastEvent, Service};
use crate::provider::{
    self, Applied, Change, ChangeKind, Cluster, Description, Finding, Ingress, LoadBalancerPlan,
    Needs, Outcome, Provider, Reason, Severity, Snapshot, Source, Sourced, Verb, Write, heartbeat,
};
use crate::text::shell_command;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The wish of a Service that this controller fulfils.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// The Service wants a load balancer.
    Ensure,
    /// The load balancer must be removed, and then our finalizer.
    Remove,
    /// The load balancer stays as it is, and our finalizer is removed. A person wants that, or the Service is not
    /// ours any more.
    Release,
    /// The Service wants nothing. It never had a load balancer from us, or belongs to another controller.
    Nothing,
}

/// The plan for one Service.
#[derive(Debug)]
pub struct ServicePlan {
    pub object: ObjectReference,
    pub service: Arc<Service>,
    pub want: Want,
    /// The plan in the cloud. It is empty for `Want::Nothing`.
    pub cloud: LoadBalancerPlan,
    /// Whether our finalizer is added to the Service before anything is created for it.
    pub add_finalizer: bool,
    /// The status that the Service must get. `None` when its status is right.
    pub status: Option<Vec<Ingress>>,
    /// The controller's own findings. Those of the provider are in `cloud`.
    pub findings: Vec<Finding>,
    /// Every write that was made, as JSON. The list is filled only when a person asked for the plans.
    pub made: Vec<Value>,
    /// The last events, the newest first. They are read for an inspection only.
    pub events: Option<Vec<Arc<PastEvent>>>,
}

/// One write to a Service itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServiceWrite {
    /// The finalizer is added before anything is created for the Service.
    AddFinalizer,
    SetStatus(Vec<Ingress>),
    /// The finalizer is removed, so that the Service may be deleted.
    RemoveFinalizer {
        /// Whether this write also empties the status. If not, an earlier write did.
        empties_status: bool,
    },
    /// The finalizer is removed, and the status stays as it is.
    EndManagement,
}

/// Plans for all observed Services. Each field and target is kept in the plans only `for_people`, because twenty load
/// balancers of a hundred targets would take most of a daemon's memory.
pub(super) fn plan(observed: &Observed, for_people: bool) -> Vec<ServicePlan> {
    let plan = |service| {
        // A pass over thousands of Services takes time, so a heartbeat for each plan shows that the
        // process does not hang.
        heartbeat::beat();
        plan_for(observed, &*observed.snapshot, service, for_people)
    };
    let mut plans: Vec<ServicePlan> = observed.services.iter().map(plan).collect();
    refuse_in_wrong_project(observed, &mut plans);
    plans
}

/// Plans for one Service by what this snapshot shows.
pub(super) fn plan_for(
    observed: &Observed,
    snapshot: &dyn Snapshot,
    service: &Arc<Service>,
    for_people: bool,
) -> ServicePlan {
    let is_end = observed.management == Management::Ends;
    let is_begun = matches!(observed.management, Management::Begins(_));
    let want = match want(service) {
        Want::Ensure if is_end => Want::Release,
        Want::Release if is_begun => Want::Nothing,
        want => want,
    };
    let cloud = LoadBalancerPlan::default();
    let mut plan = ServicePlan::new(service.object(), Arc::clone(service), want, cloud);
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
    let for_cloud = service.for_cloud();
    let (nodes, cluster) = (&observed.nodes, &observed.cluster);
    match plan.want {
        Want::Nothing => return plan,
        Want::Remove => plan.cloud = snapshot.plan_removal(&for_cloud, cluster),
        Want::Release if !is_end => {}
        Want::Release => plan.cloud = snapshot.plan_release(&for_cloud, cluster),
        Want::Ensure => {
            plan.ensure(match observed.management {
                Management::Begins(id) => snapshot.plan_adoption(id, &for_cloud, nodes, cluster),
                _ => snapshot.plan(&for_cloud, nodes, cluster),
            });
            if nodes.is_empty() {
                let why = "There are no available nodes for LoadBalancer";
                let without_nodes = Finding::warning(Reason::UnAvailableLoadBalancer, why);
                plan.findings.push(without_nodes);
            }
        }
    }
    if cluster.uid.is_empty() {
        plan = plan.without_identity();
    }
    let is_unknown = !cluster.servers.is_empty() && observed.has_own_servers.is_none();
    plan.cloud.needs.services |= is_begun;
    plan.cloud.needs.servers |= is_begun;
    plan.cloud.needs.project = is_unknown && plan.may_rest_on_project();
    if !for_people {
        plan.cloud = plan.cloud.without_details();
    }
    plan
}

/// Returns the finding that a change of the Service waits, because its namespace has no calls left.
pub(super) fn waiting(service: &Service) -> Finding {
    let namespace = &service.metadata.namespace;
    let message = format!(
        "the change waits, because Services of namespace {namespace} have used up their share of the project's calls, \
         which is 900 at once and 900 an hour; it is made when calls are back. Does a program change Services of this \
         namespace all the time?"
    );
    let sync = shell_command("ccm lb sync", &[&service.full_name()]);
    let fix = format!("if so, stop it; {sync} does not wait");
    Finding::warning(Reason::CallLimitReached, message).with_fix(fix)
}

/// Returns what is wrong with the manifest of a Service, which need not be in any cluster. `None` when the Service
/// wants no load balancer from us. `snapshot` shows a project without load balancers, and `cluster` has the known
/// groups of Services.
pub fn check(
    service: &Service,
    snapshot: &dyn Snapshot,
    cluster: &Cluster,
) -> Option<Vec<Finding>> {
    if want(service) != Want::Ensure {
        return None;
    }
    if let Some(obstacle) = too_large(service, Want::Ensure) {
        return Some(vec![obstacle]);
    }
    let mut plan = snapshot.plan(&service.for_cloud(), &[], cluster);
    let mut findings = Vec::new();
    if let Outcome::Refused { problems, .. } = plan.outcome {
        let problem = |why| Finding::warning(Reason::SyncLoadBalancerFailed, why);
        findings.extend(problems.into_iter().map(problem));
    }
    plan.findings.retain(|finding| finding.severity == Severity::Warning);
    findings.extend(plan.findings);
    Some(findings)
}

/// Returns a finding when the Service is larger than what the controller reads of it. Too little is known of such a
/// Service, so its load balancer stays as it is. To end a Service, only its finalizers must have been read.
fn too_large(service: &Service, want: Want) -> Option<Finding> {
    let why = match want {
        Want::Nothing => None,
        Want::Remove | Want::Release => service.too_many_finalizers(),
        Want::Ensure => service.too_large().or_else(|| service.too_many_finalizers()),
    };
    why.map(|why| Finding::warning(want.failed(), why))
}

/// Returns what must have been read before these plans are applied.
pub(super) fn needs(plans: &[ServicePlan]) -> Needs {
    plans.iter().map(|plan| plan.cloud.needs).fold(Needs::default(), |one, other| Needs {
        servers: one.servers || other.servers,
        services: one.services || other.services,
        project: one.project || other.project,
    })
}

/// Refuses plans when the token may be another project's. Such a token shows neither the Service's load balancer nor a
/// server. A new load balancer in that project would get no traffic, or would take the traffic away, and a Service that
/// is let go would leave its real load balancer behind. Plans that do not rest on the Service's own load balancer are
/// therefore refused when the project also has no server of the cluster's nodes. In a cluster without nodes on cloud
/// servers, projects can't be distinguished.
fn refuse_in_wrong_project(observed: &Observed, plans: &mut [ServicePlan]) {
    let count = observed.cluster.servers.len();
    if count == 0 || observed.has_own_servers != Some(false) {
        return;
    }
    for plan in plans.iter_mut().filter(|plan| plan.rests_on_project()) {
        let status = &plan.service.status.load_balancer.ingress;
        let nor = "but the project has no such load balancer, nor a server";
        let lacks = match (plan.want, status.is_empty()) {
            (Want::Ensure, true) => "the project has no server".to_owned(),
            (_, true) => format!("it has our finalizer, {nor}"),
            (_, false) => format!("the status says {}, {nor}", addresses(status)),
        };
        let message = format!(
            "{lacks} of the cluster's nodes, of which there are {count}: is the token another project's?"
        );
        let obstacle = Finding::warning(plan.want.failed(), message);
        plan.refuse(obstacle);
    }
}

/// A change that adds the ports of a Service to a load balancer after another Service of the group has created it.
#[derive(Debug)]
struct AddToNew {
    name: String,
    created_for: String,
}

impl Change for AddToNew {
    fn apply(&self) -> Result<Applied, provider::Error> {
        Ok(Applied::Overtaken)
    }
}

impl Write for AddToNew {
    fn word(&self) -> &'static str {
        "add_to_new"
    }

    fn description(&self) -> Description {
        let Self { name, created_for } = self;
        let to = format!(" to load balancer {name}, which is created for Service {created_for}");
        Description::new(Verb::ADD, "ports", to)
    }

    fn json(&self) -> Value {
        let Self { name, created_for } = self;
        json!({ "change": self.word(), "name": name, "createdFor": created_for })
    }
}

/// Changes the plans for people as if they were carried out one after the other. When two Services ask for a load
/// balancer without an owner, the first Service gets it, and the second is refused, because the first would be the
/// owner by then. A change that the Services of a group need together is kept only in the plan of the first Service.
pub(super) fn in_turn(provider: &dyn Provider, plans: &mut [ServicePlan]) {
    let mut claimed: HashMap<String, String> = HashMap::new();
    let mut created: HashMap<(String, String), String> = HashMap::new();
    let mut changed: HashSet<(u64, String)> = HashSet::new();
    for plan in plans {
        let name = plan.service.full_name();
        let group = observe::group(provider, &plan.service);
        let is_shared = group.is_some();
        if let Some(id) = plan.cloud.found.as_ref().map(|found| found.id).filter(|_| is_shared) {
            let outcome = &mut plan.cloud.outcome;
            outcome.retain_changes(|change| changed.insert((id, change.json().to_string())));
        }
        if let Some((group, new)) = group.zip(plan.cloud.new_name()) {
            let new = new.value.clone();
            let first = created.entry((group, new.clone())).or_insert(name.clone());
            if *first != name {
                let add = AddToNew { name: new, created_for: first.clone() };
                plan.cloud.outcome = Outcome::of(vec![Box::new(add)]);
                continue;
            }
        }
        let new = plan.cloud.new_name();
        let new = new.map(|new| (format!("{}: ", new.source), new.value.clone()));
        // A second Service without an annotation gets another name by itself.
        let is_default = |new: &Sourced<String>| !matches!(new.source, Source::Annotation(_));
        let may_change = plan.cloud.new_name().is_some_and(is_default);
        let found = plan.cloud.found.as_ref();
        let found =
            found.map(|balancer| (String::new(), format!("{} ({})", balancer.name, balancer.id)));
        let found = found.filter(|_| !is_shared);
        for (source, wanted) in found.into_iter().chain(new) {
            let first = claimed.entry(wanted.clone()).or_insert(name.clone());
            if *first != name && !may_change {
                let message = format!(
                    "{source}load balancer {wanted} becomes that of Service {first}, which asks for it too; choose another name"
                );
                plan.refuse(Finding::warning(Reason::SyncLoadBalancerFailed, message));
            }
        }
    }
}

/// Returns what a Service wants, judging by the Service alone. Other controllers use a finalizer with the same name.
/// The finalizer of a Service that is left alone is therefore removed only when the load balancer says that the
/// finalizer was ours, see `ServicePlan::leave_alone`.
pub fn want(service: &Service) -> Want {
    // A Service of another type keeps the finalizer, so that its load balancer is removed when the Service
    // is ours again.
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
    /// Returns the reason of a failure.
    pub(super) fn failed(self) -> Reason {
        match self {
            Want::Remove => Reason::DeleteLoadBalancerFailed,
            Want::Ensure | Want::Release | Want::Nothing => Reason::SyncLoadBalancerFailed,
        }
    }
}

impl ServicePlan {
    pub(super) fn new(
        object: ObjectReference,
        service: Arc<Service>,
        want: Want,
        cloud: LoadBalancerPlan,
    ) -> ServicePlan {
        ServicePlan {
            object,
            service,
            want,
            cloud,
            add_finalizer: false,
            status: None,
            findings: Vec::new(),
            made: Vec::new(),
            events: None,
        }
    }

    /// Takes over the plan in the cloud, and adds what the Service itself gets.
    fn ensure(&mut self, cloud: LoadBalancerPlan) {
        let is_synced = matches!(cloud.outcome, Outcome::Change { .. });
        self.add_finalizer = is_synced && !self.service.has_our_finalizer();
        let has = &self.service.status.load_balancer.ingress;
        self.status = cloud.status.clone().filter(|wanted| wanted != has);
        self.cloud = cloud;
    }

    /// Syncs nothing of a Service of which too little is known. Only the mode of the addresses in its status may
    /// change. The plan has the load balancer when a person reads the plan.
    fn leave_unread(
        &mut self,
        observed: &Observed,
        snapshot: &dyn Snapshot,
        obstacle: Finding,
        for_people: bool,
    ) {
        self.cloud = std::mem::take(&mut self.cloud).refuse(obstacle);
        if self.want == Want::Ensure {
            let (for_cloud, cluster) = (self.service.for_cloud(), &observed.cluster);
            let found = for_people.then(|| snapshot.left_on(&for_cloud, cluster));
            self.cloud.found = found.flatten();
            let status = snapshot.status_by_proxy(&for_cloud, cluster);
            let has = &self.service.status.load_balancer.ingress;
            self.status = status.filter(|wanted| wanted != has);
        }
    }

    /// Leaves the load balancer as it is, with our labels. By these labels, the Service gets the load balancer back
    /// when this controller is responsible for the Service again. When the Service does not exist any more, these
    /// labels make the load balancer an orphan. When no load balancer has these labels, nothing proves that the
    /// finalizer of the Service is ours.
    fn leave_alone(&mut self, snapshot: &dyn Snapshot, why: &str, cluster: &Cluster) {
        self.cloud.found = snapshot.left_on(&self.service.for_cloud(), cluster);
        self.cloud.carries_uid = self.cloud.found.is_some();
        match (self.want, &self.cloud.found) {
            (Want::Release, Some(found)) => {
                let message = format!(
                    "Management of load balancer {} ({}) ends, because {}: its ports, targets and addresses stay as they \
                     are",
                    found.name, found.id, why
                );
                let finding = Finding::info(Reason::LoadBalancerReleased, message);
                self.findings.push(finding);
            }
            _ => self.want = Want::Nothing,
        }
    }

    /// Returns a name such as `service/default/web`, or `load-balancer/front` for a load balancer that
    /// no Service wants.
    pub fn name(&self) -> String {
        self.object.for_people()
    }

    /// Whether the Service is planned on fresh data now. Fresh data are used for every Service with something to write.
    /// They are also used for a blocked Service, because the obstacle may be gone, for an unfinished Service, because
    /// what was missing in the cloud may exist by now, and for a released Service, because it may have been adopted.
    pub(super) fn is_taken_up(&self) -> bool {
        let outcome = &self.cloud.outcome;
        self.has_writes()
            || self.obstacle().is_some()
            || outcome.is_unfinished()
            || outcome.is_released()
    }

    /// Whether there is anything to write to either API.
    pub fn has_writes(&self) -> bool {
        self.each_write(|_| ()).next().is_some()
    }

    /// Returns how many writes the plan holds.
    pub fn writes(&self) -> usize {
        self.each_write(|_| ()).count()
    }

    /// Whether the changes that take the Service off load balancers are made now, because no other change and no write
    /// has to be made before. Only then do the labels of the new load balancer say which Services use it.
    fn leaves_now(&self) -> bool {
        self.cloud.outcome.changes().is_empty()
            && self.first_write().is_none()
            && self.last_write().is_none()
    }

    /// Returns the changes in the cloud that are made now.
    pub fn changes(&self) -> &[Box<dyn Change>] {
        if self.leaves_now() {
            return self.cloud.outcome.leaves();
        }
        self.cloud.outcome.changes()
    }

    /// Returns the changes that take the Service off load balancers and must be made later, after all other changes
    /// were made and a new plan was made. The list is empty when these changes are made now.
    pub(super) fn leaves(&self) -> &[Box<dyn Change>] {
        if self.leaves_now() {
            return &[];
        }
        self.cloud.outcome.leaves()
    }

    /// Returns the write to the Service that is made before the changes in the cloud.
    pub(super) fn first_write(&self) -> Option<ServiceWrite> {
        let has_status = !self.service.status.load_balancer.ingress.is_empty();
        match self.want {
            Want::Remove if self.empties_status_first() && has_status => {
                Some(ServiceWrite::SetStatus(Vec::new()))
            }
            _ => self.add_finalizer.then_some(ServiceWrite::AddFinalizer),
        }
    }

    /// Returns the write to the Service that is made after the changes in the cloud.
    pub(super) fn last_write(&self) -> Option<ServiceWrite> {
        match self.want {
            Want::Remove if self.obstacle().is_none() => {
                Some(ServiceWrite::RemoveFinalizer { empties_status: !self.empties_status_first() })
            }
            Want::Release if self.obstacle().is_none() => {
                let has = self.service.has_our_finalizer();
                has.then_some(ServiceWrite::EndManagement)
            }
            _ => self.status.clone().map(ServiceWrite::SetStatus),
        }
    }

    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(&self.cloud.findings).chain(self.obstacle())
    }

    /// Returns the finding because of which nothing of the Service is synced, if there is such a finding.
    pub fn obstacle(&self) -> Option<&Finding> {
        self.cloud.outcome.obstacle()
    }

    /// Whether the status of a Service that ends is emptied before the first change in the cloud.
    fn empties_status_first(&self) -> bool {
        self.want == Want::Remove && self.cloud.status.is_some()
    }

    /// Returns the findings of severity `Warning`, which an operator should know although they block nothing.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        let all = self.findings.iter().chain(&self.cloud.findings);
        all.filter(|finding| finding.severity == Severity::Warning)
    }

    /// Whether the load balancer is deleted, and not only released.
    pub fn is_deletion(&self) -> bool {
        self.changes().iter().any(|change| change.kind() == ChangeKind::Removal)
    }

    /// Describes every write in words, in the order in which they would be made.
    pub fn description(&self) -> Description {
        self.each_write(|write| write.description()).collect()
    }

    /// Returns all writes as JSON, in the order in which they would be made.
    pub fn json(&self) -> Vec<Value> {
        self.each_write(|write| write.json()).collect()
    }

    fn each_write<T>(&self, form: fn(&dyn Write) -> T) -> impl Iterator<Item = T> {
        let own = move |write: Option<ServiceWrite>| write.map(|write| form(&write)).into_iter();
        let cloud = move |changes: &[Box<dyn Change>]| -> Vec<T> {
            changes.iter().map(|change| form(&**change)).collect()
        };
        own(self.first_write())
            .chain(cloud(self.changes()))
            .chain(own(self.last_write()))
            .chain(cloud(self.leaves()))
    }

    pub fn proposal(&self) -> Proposal {
        Proposal::new(&self.object, self.description(), self.obstacle())
    }

    /// Whether the status of the Service says that there is a load balancer, and none can be found.
    pub fn has_lost_its_own(&self) -> bool {
        let has_status = !self.service.status.load_balancer.ingress.is_empty();
        let lacks = self.cloud.found.is_none() && self.rests_on_project();
        self.want == Want::Ensure && has_status && lacks
    }

    /// Whether `rests_on_project` may become true after everything that the plan needs was read.
    fn may_rest_on_project(&self) -> bool {
        let cloud = &self.cloud;
        !cloud.carries_uid && (self.obstacle().is_none() || cloud.needs.services)
    }

    /// Whether there is no load balancer with the UID of the Service, and none with one of its addresses that could be
    /// adopted. The Service gets another load balancer, or is let go. See `refuse_in_wrong_project`.
    fn rests_on_project(&self) -> bool {
        let status = &self.service.status.load_balancer.ingress;
        let mut found = self.cloud.found.iter().flat_map(|found| &found.addresses);
        let is_shown = |ip: &IpAddr| {
            let ip = Some(ip.to_string());
            status.iter().any(|entry| entry.ip == ip)
        };
        let is_let_go = self.service.has_our_finalizer() || !status.is_empty();
        (self.want == Want::Ensure || self.want != Want::Nothing && is_let_go)
            && self.obstacle().is_none()
            && !self.cloud.carries_uid
            && !found.any(is_shown)
    }

    /// Removes the changes that must not be made while the cluster's identity is not known. Nothing is created, because
    /// a created object would later seem to belong to another cluster. Nothing is deleted, because the object may
    /// belong to another cluster. A load balancer that carries the UID of its Service is still synced.
    fn without_identity(mut self) -> ServicePlan {
        if self.want == Want::Nothing || self.obstacle().is_some() {
            return self;
        }
        let held = |then: &str| {
            let message = format!("{NO_IDENTITY}; {then}");
            Finding::warning(self.want.failed(), message)
        };
        if self.want == Want::Ensure && self.cloud.carries_uid {
            let why = held("until then nothing is created or deleted");
            self.cloud = self.cloud.without_identity(why);
        } else {
            self.refuse(held("until then nothing is done for this Service"));
        }
        self
    }

    pub(super) fn refuse(&mut self, obstacle: Finding) {
        self.cloud = std::mem::take(&mut self.cloud).refuse(obstacle);
        self.add_finalizer = false;
        self.status = None;
    }

    /// Removes the changes that are made now from the plan, and returns them.
    pub(super) fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        if self.leaves_now() {
            return self.cloud.outcome.take_leaves();
        }
        self.cloud.outcome.take_changes()
    }
}

impl ServiceWrite {
    /// Whether the Service is not ours any more after the write.
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

    /// Returns a text such as `set status to 192.0.2.7, 2001:db8::1`.
    fn description(&self) -> Description {
        let finalizer = |verb| Description::new(verb, "finalizer", "");
        let emptied = Description::new(Verb::EMPTY, "status", "");
        match self {
            ServiceWrite::AddFinalizer => finalizer(Verb::ADD),
            ServiceWrite::SetStatus(status) if status.is_empty() => emptied,
            ServiceWrite::SetStatus(status) => {
                Description::value("status", None, Some(&addresses(status)))
            }
            ServiceWrite::EndManagement => finalizer(Verb::REMOVE),
            ServiceWrite::RemoveFinalizer { empties_status } => {
                let emptied = Some(emptied).filter(|_| *empties_status);
                emptied.into_iter().chain([finalizer(Verb::REMOVE)]).collect()
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
    use crate::provider::{Balancer, Kept, OfferedNode, Orphan, SeenHealth, ShownCertificate};
    use std::cell::Cell;
    use std::io;
    use std::rc::Rc;
    use std::time::{Duration, Instant, SystemTime};

    /// A clock that counts how often it is asked for the time, which each beat does.
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

    /// A project without load balancers.
    struct Empty;

    #[rustfmt::skip] // A method is a line.
    impl Snapshot for Empty {
        fn covers(&self, _: &provider::Service) -> bool { true }
        fn calls(&self) -> u32 { 0 }
        fn plan(&self, _: &provider::Service, _: &[OfferedNode], _: &Cluster) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn plan_removal(&self, _: &provider::Service, _: &Cluster) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn left_on(&self, _: &provider::Service, _: &Cluster) -> Option<Balancer> { None }
        fn status_by_proxy(&self, _: &provider::Service, _: &Cluster) -> Option<Vec<Ingress>> { None }
        fn plan_release(&self, _: &provider::Service, _: &Cluster) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn plan_adoption(&self, _: u64, _: &provider::Service, _: &[OfferedNode], _: &Cluster) -> LoadBalancerPlan { LoadBalancerPlan::default() }
        fn has_server_of(&self, _: &Cluster) -> bool { false }
        fn external(&self) -> Vec<Balancer> { Vec::new() }
        fn health(&self, _: &HashSet<&str>) -> Vec<SeenHealth> { Vec::new() }
        fn certificates(&self, _: &HashSet<&str>) -> Option<Vec<ShownCertificate>> { None }
        fn all(&self) -> Vec<(Balancer, String)> { Vec::new() }
        fn known_group(&self, key: String) -> String { key }
        fn orphans(&self, _: &Cluster) -> Vec<Orphan> { Vec::new() }
        fn kept(&self, _: &Cluster) -> Vec<Kept> { Vec::new() }
    }

    #[test]
    fn each_plan_is_a_sign_of_life() {
        const SERVICES: usize = 50;
        let machine = Rc::new(Counting(Instant::now(), Cell::default()));
        let _simulated = clock::simulate(machine.clone());
        heartbeat::install(Arc::default());
        let observed = Observed {
            services: vec![Arc::default(); SERVICES],
            nodes: Vec::new(),
            cluster: Cluster::default(),
            snapshot: Arc::new(Empty),
            answered: machine.0,
            urgency: provider::Urgency::CanWait,
            has_own_servers: None,
            management: Management::Usual,
            waiting: HashSet::new(),
        };
        let before = machine.1.get();
        assert_eq!(plan(&observed, false).len(), SERVICES);
        assert!(machine.1.get() - before >= SERVICES);
    }
}
