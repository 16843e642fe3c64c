//! What should be done for Services: a pure function of what both APIs say.

use super::observe::{self, Management, NO_IDENTITY, Observed};
use crate::controllers::controller::Proposal;
use crate::kube::{LeftAlone, ObjectReference, PastEvent, Service};
use crate::provider::{
    self, Applied, Change, ChangeKind, Cluster, Description, Field, Finding, Ingress,
    LoadBalancerPlan, Needs, Provider, Reason, Severity, Snapshot, Source, Sourced, Verb,
    heartbeat,
};
use crate::text::shell_command;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What a Service asks of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// A load balancer.
    Ensure,
    /// Its load balancer gone, then our finalizer.
    Remove,
    /// Its load balancer left as it is, and our finalizer gone: a person's wish, or it is not ours any more.
    Release,
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
    /// Our finalizer is added to the Service before anything is created for it.
    pub add_finalizer: bool,
    /// What its status is to say, where it says something else.
    pub status: Option<Vec<Ingress>>,
    /// The controller's own; the provider's are in `cloud`.
    pub findings: Vec<Finding>,
    /// Of a pass that a person reads: every write that was made, for programs.
    pub made: Vec<Value>,
    /// Read only for an inspection: the last ones, the newest first.
    pub events: Option<Vec<Arc<PastEvent>>>,
}

/// One write to a Service itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServiceWrite {
    /// Before anything is created for it.
    AddFinalizer,
    SetStatus(Vec<Ingress>),
    /// Then the Service may be deleted.
    RemoveFinalizer {
        /// Whether the same write empties the status; else a write before it did.
        empties_status: bool,
    },
    /// And its status as it is.
    EndManagement,
}

/// A write in one word, for the metrics; for people; and for programs.
type Forms = (&'static str, Description, Value);

/// `for_people`: will a person read the plans? Only then each field and target is kept in them: with twenty load
/// balancers of a hundred targets that is most of a daemon's memory.
pub(super) fn plan(observed: &Observed, for_people: bool) -> Vec<ServicePlan> {
    let services = observed.services.iter();
    let plan = |service| {
        // Thousands are work, and no hang.
        heartbeat::beat();
        plan_for(observed, &*observed.snapshot, service, for_people)
    };
    let mut plans: Vec<ServicePlan> = services.map(plan).collect();
    refuse_in_wrong_project(observed, &mut plans);
    plans
}

/// For one Service, by what this snapshot shows.
pub(super) fn plan_for(
    observed: &Observed,
    snapshot: &dyn Snapshot,
    service: &Arc<Service>,
    for_people: bool,
) -> ServicePlan {
    let cloud = LoadBalancerPlan::default();
    let is_end = observed.management == Management::Ends;
    let want = match want(service) {
        Want::Ensure if is_end => Want::Release,
        Want::Release if matches!(observed.management, Management::Begins(_)) => Want::Nothing,
        want => want,
    };
    let mut plan = ServicePlan::new(service.object(), Arc::clone(service), want, cloud);
    if observed.waiting.contains(&service.metadata.uid) {
        plan.findings.push(waiting(service));
    }
    if let Some(left) = service.left_alone.filter(|_| !is_end) {
        plan.leave_alone(snapshot, left, &observed.cluster);
    }
    if let Some(obstacle) = too_large(service, plan.want) {
        plan.cloud.obstacle = Some(obstacle);
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
            plan.cloud = match observed.management {
                Management::Begins(id) => adopted(snapshot, id, &for_cloud, observed),
                _ => snapshot.plan(&for_cloud, nodes, cluster),
            };
            let has = &service.status.load_balancer.ingress;
            // It had one, made with the daemon's settings; it is not replaced by one made with our defaults.
            if let (false, Some(new)) = (has.is_empty(), plan.cloud.unsure_new.take()) {
                plan.cloud.changes.clear();
                plan.cloud.held_back.push(new);
            } else {
                let is_held_back = plan.cloud.found.is_none() && plan.cloud.changes.is_empty();
                plan.add_finalizer = !service.has_our_finalizer()
                    && plan.cloud.obstacle.is_none()
                    && !is_held_back
                    && !plan.cloud.is_released;
            }
            let wanted = hold_back_unsure(&mut plan.cloud, has);
            plan.status = wanted.filter(|wanted| wanted != has);
            // Make before break: where the new one is held back, the old one stays.
            let is_made = plan.cloud.found.is_some() || !plan.cloud.changes.is_empty();
            if !is_made || !plan.cloud.held_back.is_empty() {
                plan.cloud.leaves.clear();
            }
            if plan.writes_before_leaving() == 0 {
                // Which Services use the new one is known only then, and its labels say so.
                plan.cloud.is_unfinished |= !plan.cloud.leaves.is_empty();
                plan.cloud.changes = std::mem::take(&mut plan.cloud.leaves);
            }
            if nodes.is_empty() {
                plan.findings.push(Finding::warning(
                    Reason::UnAvailableLoadBalancer,
                    "There are no available nodes for LoadBalancer",
                ));
            }
        }
    }
    if cluster.uid.is_empty() {
        plan.hold_without_identity();
    }
    let is_begun = matches!(observed.management, Management::Begins(_));
    let is_unknown = !cluster.servers.is_empty() && observed.has_own_servers.is_none();
    plan.cloud.needs.services |= is_begun;
    plan.cloud.needs.servers |= is_begun;
    plan.cloud.needs.project = is_unknown && plan.may_rest_on_project();
    if !for_people {
        plan.cloud.fields = Vec::new();
        if let Some(found) = &mut plan.cloud.found {
            found.targets = Vec::new();
            found.ports = Vec::new();
            found.certificates = Vec::new();
        }
    }
    plan
}

/// About a Service of which a change waits for calls.
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

/// The plan by which the Service gets this load balancer.
fn adopted(
    snapshot: &dyn Snapshot,
    id: u64,
    service: &provider::Service,
    observed: &Observed,
) -> LoadBalancerPlan {
    let refused = |why: String| LoadBalancerPlan {
        obstacle: Some(Finding::warning(Reason::LoadBalancerNotAdopted, why)),
        ..LoadBalancerPlan::default()
    };
    let Some((snapshot, said)) = snapshot.assigned(id, service, &observed.cluster) else {
        return refused(format!("the project has no load balancer with ID {id}"));
    };
    let mut plan = snapshot.plan(service, &observed.nodes, &observed.cluster);
    let found = plan.found.as_ref();
    match found.filter(|found| found.id != id) {
        _ if plan.obstacle.is_some() => {}
        Some(other) => {
            return refused(format!(
                "load balancer {id} can't be adopted, because the Service has {} ({}): delete that one, or remove the \
                 annotation that asks for it",
                other.name, other.id
            ));
        }
        None if found.is_none() => {
            return refused(format!(
                "load balancer {id} can't be adopted: Services share it, or it is external, and no annotation of the \
                 Service asks for it"
            ));
        }
        None => plan.changes.splice(0..0, said).for_each(drop),
    }
    plan
}

/// What is wrong with the manifest of a Service, which need not be in any cluster; none where it wants no load balancer
/// from us. `snapshot`: as if the project had no load balancer. `cluster`: the groups of Services that are known.
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
    let plan = snapshot.plan(&service.for_cloud(), &[], cluster);
    let problems = plan.problems.into_iter();
    let problems = problems.map(|why| Finding::warning(Reason::SyncLoadBalancerFailed, why));
    let warnings = plan.findings.into_iter();
    let warnings = warnings.filter(|finding| finding.severity == Severity::Warning);
    Some(problems.chain(warnings).collect())
}

/// Of a Service that is larger than is read too little is known: its load balancer stays as it is. Its end needs its
/// finalizers alone.
fn too_large(service: &Service, want: Want) -> Option<Finding> {
    let why = match want {
        Want::Nothing => None,
        Want::Remove | Want::Release => service.too_many_finalizers(),
        Want::Ensure => service
            .too_large()
            .or_else(|| service.too_many_finalizers()),
    };
    why.map(|why| Finding::warning(want.failed(), why))
}

/// What must have been read before these plans are applied.
pub(super) fn needs(plans: &[ServicePlan]) -> Needs {
    let needs = plans.iter().map(|plan| plan.cloud.needs);
    needs.fold(Needs::default(), |one, other| Needs {
        servers: one.servers || other.servers,
        services: one.services || other.services,
        project: one.project || other.project,
    })
}

/// Another project's token shows neither a Service's load balancer nor a server: a new load balancer there would get no
/// traffic or take it away, and a Service let go would leave the real one behind. So plans that don't rest on the
/// Service's own load balancer are refused where the project holds no server of the cluster's nodes either. In a cluster
/// without nodes on cloud servers projects can't be distinguished.
fn refuse_in_wrong_project(observed: &Observed, plans: &mut [ServicePlan]) {
    let count = observed.cluster.servers.len();
    if count == 0 || observed.has_own_servers != Some(false) {
        return;
    }
    for plan in plans.iter_mut().filter(|plan| plan.rests_on_project()) {
        let status = &plan.service.status.load_balancer.ingress;
        let had = match (plan.want, status.is_empty()) {
            (Want::Ensure, true) => None,
            (_, true) => Some("it has our finalizer".to_owned()),
            (_, false) => Some(format!("the status says {}", addresses(status))),
        };
        let lacks = had.map_or("the project has no server".to_owned(), |had| {
            format!("{had}, but the project has no such load balancer, nor a server")
        });
        let message = format!(
            "{lacks} of the cluster's nodes, of which there are {count}: is the token another project's?"
        );
        plan.refuse(Finding::warning(plan.want.failed(), message));
    }
}

/// Another Service of the group creates the load balancer: the ports of this one are added to it afterwards.
#[derive(Debug)]
struct AddToNew {
    name: String,
    created_for: String,
}

impl Change for AddToNew {
    fn apply(&self) -> Result<Applied, provider::Error> {
        Ok(Applied::Overtaken)
    }

    fn description(&self) -> Description {
        let Self { name, created_for } = self;
        let to = format!(" to load balancer {name}, which is created for Service {created_for}");
        Description::new(Verb::Add, "ports", to)
    }

    fn json(&self) -> Value {
        let Self { name, created_for } = self;
        json!({ "change": "add_to_new", "name": name, "createdFor": created_for })
    }
}

/// For people, as the plans would be made one after the other. Two Services may ask for one load balancer without an
/// owner: the first gets it, and the second would find the first as its owner. What the Services of a group ask for
/// together is done once, for the first.
pub(super) fn in_turn(provider: &dyn Provider, plans: &mut [ServicePlan]) {
    let mut claimed: HashMap<String, String> = HashMap::new();
    let mut created: HashMap<(String, String), String> = HashMap::new();
    let mut changed: HashSet<(u64, String)> = HashSet::new();
    for plan in plans {
        let name = plan.service.full_name();
        let group = observe::group(provider, &plan.service);
        let is_shared = group.is_some();
        if let Some(found) = plan.cloud.found.as_ref().filter(|_| is_shared) {
            let id = found.id;
            let changes = &mut plan.cloud.changes;
            changes.retain(|change| changed.insert((id, change.json().to_string())));
        }
        if let Some((group, new)) = group.zip(plan.new_name()) {
            let new = new.value.clone();
            let first = created.entry((group, new.clone())).or_insert(name.clone());
            if *first != name {
                plan.cloud.changes = vec![Box::new(AddToNew {
                    name: new,
                    created_for: first.clone(),
                })];
                continue;
            }
        }
        let new = plan.new_name();
        let new = new.map(|new| (format!("{}: ", new.source), new.value.clone()));
        // Without an annotation the second gets another name by itself.
        let is_default = |new: &Sourced<String>| !matches!(new.source, Source::Annotation(_));
        let may_change = plan.new_name().is_some_and(is_default);
        let found = plan.cloud.found.as_ref();
        let found = found.map(|one| (String::new(), format!("{} ({})", one.name, one.id)));
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

/// What the status is to say, without the addresses that it does not have and that may only be
/// wanted here. They are held back; a status that is empty yet, or of none of these addresses, gets all.
fn hold_back_unsure(cloud: &mut LoadBalancerPlan, has: &[Ingress]) -> Option<Vec<Ingress>> {
    let all = cloud.status.clone()?;
    let is_unsure = |entry: &Ingress| cloud.unsure.iter().find(|(unsure, _)| unsure == entry);
    let is_ipv6 = |entry: &Ingress| entry.ip.as_ref().is_some_and(|ip| ip.contains(':'));
    let is_kept = |entry: &Ingress| has.iter().any(|one| one.ip == entry.ip);
    // Of IPv6 there is one: another one takes its place.
    let is_there = |entry: &Ingress| is_kept(entry) || (is_ipv6(entry) && has.iter().any(is_ipv6));
    let is_held = |entry: &Ingress| is_unsure(entry).filter(|_| !is_there(entry));
    let held = all.iter().filter_map(is_held);
    let settings: BTreeSet<&str> = held.filter_map(|(_, source)| source.setting()).collect();
    let settings: Vec<&str> = settings.into_iter().collect();
    if settings.is_empty() || !all.iter().any(is_kept) {
        return Some(all);
    }
    let mut wanted = all.clone();
    wanted.retain(|entry| is_held(entry).is_none());
    cloud.held_back.push(Field {
        field: "status".to_owned(),
        have: Some(addresses(has)),
        want: Some(addresses(&all)),
        source: Source::Default(settings.join(", ")),
    });
    Some(wanted)
}

/// By the Service alone. The finalizer's name is shared with other controllers: from a Service that is left alone it is
/// removed only where the load balancer says that it was ours, see `ServicePlan::leave_alone`.
pub fn want(service: &Service) -> Want {
    // Of another type it keeps the finalizer: when it is ours again its load balancer is removed.
    let may_end =
        service.is_of_type_load_balancer() || service.metadata.deletion_timestamp.is_some();
    match service.left_alone {
        None if service.wants_load_balancer() => Want::Ensure,
        None if service.has_our_finalizer() => Want::Remove,
        Some(left) if service.has_our_finalizer() && may_end && !left.is_unsure => Want::Release,
        _ => Want::Nothing,
    }
}

impl Want {
    /// The reason of a failure.
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

    /// Its load balancer stays as it is, with our labels: by them it is the Service's when that is ours again, and an
    /// orphan once the Service does not exist. Without such a load balancer nothing says that the finalizer is ours.
    fn leave_alone(&mut self, snapshot: &dyn Snapshot, left: LeftAlone, cluster: &Cluster) {
        self.cloud.found = snapshot.left_on(&self.service.for_cloud(), cluster);
        self.cloud.carries_uid = self.cloud.found.is_some();
        match (self.want, &self.cloud.found) {
            (Want::Release, Some(found)) => {
                let message = format!(
                    "Management of load balancer {} ({}) ends, because {}: its ports, targets and addresses stay as they \
                     are",
                    found.name, found.id, left.why
                );
                let finding = Finding::info(Reason::LoadBalancerReleased, message);
                self.findings.push(finding);
            }
            _ => self.want = Want::Nothing,
        }
    }

    /// E.g. `service/default/web`; `load-balancer/front` for one that no Service wants.
    pub fn name(&self) -> String {
        self.object.for_people()
    }

    /// Is there anything to write, to either API?
    pub fn has_writes(&self) -> bool {
        self.writes() > 0
    }

    /// How many writes it holds.
    pub fn writes(&self) -> usize {
        self.writes_before_leaving() + self.cloud.leaves.len()
    }

    fn writes_before_leaving(&self) -> usize {
        let own = self.first_write().into_iter().chain(self.last_write());
        self.cloud.changes.len() + own.count()
    }

    /// The write before the changes in the cloud.
    pub(super) fn first_write(&self) -> Option<ServiceWrite> {
        let has_status = !self.service.status.load_balancer.ingress.is_empty();
        let empties = self.cloud.empties_status_first && self.cloud.obstacle.is_none();
        match self.want {
            Want::Remove if empties && has_status => Some(ServiceWrite::SetStatus(Vec::new())),
            _ => self.add_finalizer.then_some(ServiceWrite::AddFinalizer),
        }
    }

    /// After the changes in the cloud.
    pub(super) fn last_write(&self) -> Option<ServiceWrite> {
        match self.want {
            Want::Remove if self.cloud.obstacle.is_none() => Some(ServiceWrite::RemoveFinalizer {
                empties_status: !self.cloud.empties_status_first,
            }),
            Want::Release if self.cloud.obstacle.is_none() => {
                let has = self.service.has_our_finalizer();
                has.then_some(ServiceWrite::EndManagement)
            }
            _ => self.status.clone().map(ServiceWrite::SetStatus),
        }
    }

    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        let own = self.findings.iter().chain(&self.cloud.findings);
        own.chain(&self.cloud.obstacle)
    }

    /// What an operator should know although nothing is blocked.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        let all = self.findings.iter().chain(&self.cloud.findings);
        all.filter(|finding| finding.severity == Severity::Warning)
    }

    /// Is its load balancer deleted, and not only released?
    pub fn is_deletion(&self) -> bool {
        let mut changes = self.cloud.changes.iter();
        changes.any(|change| change.kind() == ChangeKind::Removal)
    }

    /// Every write in words, in the order in which they would be made.
    pub fn description(&self) -> Description {
        self.forms()
            .map(|(_, description, _)| description)
            .collect()
    }

    /// The same for programs.
    pub fn json(&self) -> Vec<Value> {
        self.forms().map(|(.., json)| json).collect()
    }

    fn forms(&self) -> impl Iterator<Item = Forms> {
        let own = |write: Option<ServiceWrite>| write.map(|write| write.forms());
        let forms = |change: &dyn Change| ("", change.description(), change.json());
        let changes = self.cloud.changes.iter().map(move |one| forms(&**one));
        let leaves = self.cloud.leaves.iter().map(move |one| forms(&**one));
        let first = own(self.first_write()).into_iter();
        let last = own(self.last_write()).into_iter();
        first.chain(changes).chain(last).chain(leaves)
    }

    /// What is not done, for people, because the daemon may want otherwise.
    pub fn held_back_lines(&self) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
        let line = |field: &Field| {
            let setting = field.source.setting().map(str::to_owned);
            let setting = setting.unwrap_or_else(|| field.source.to_string());
            let (have, want) = (text(&field.have), text(&field.want));
            format!("{}: {have} → {want} (not set here: {setting})", field.field)
        };
        self.cloud.held_back.iter().map(line).collect()
    }

    pub fn proposal(&self) -> Proposal {
        Proposal::new(&self.object, self.description(), &self.cloud.obstacle)
    }

    /// Its status says that it has a load balancer, and there is none to be found.
    pub fn has_lost_its_own(&self) -> bool {
        let has_status = !self.service.status.load_balancer.ingress.is_empty();
        let lacks = self.cloud.found.is_none() && self.rests_on_project();
        self.want == Want::Ensure && has_status && lacks
    }

    /// May it, when what the plan needs was read?
    fn may_rest_on_project(&self) -> bool {
        let cloud = &self.cloud;
        !cloud.carries_uid && (cloud.obstacle.is_none() || cloud.needs.services)
    }

    /// There is no load balancer with its UID, and none with one of its addresses that could be adopted: it gets another
    /// one, or is let go. See `refuse_in_wrong_project`.
    fn rests_on_project(&self) -> bool {
        let status = &self.service.status.load_balancer.ingress;
        let mut found = self.cloud.found.iter().flat_map(|found| &found.addresses);
        let is_shown = |ip: &IpAddr| {
            let ip = Some(ip.to_string());
            status.iter().any(|entry| entry.ip == ip)
        };
        let is_let_go = self.service.has_our_finalizer() || !status.is_empty();
        (self.want == Want::Ensure || self.want != Want::Nothing && is_let_go)
            && self.cloud.obstacle.is_none()
            && !self.cloud.carries_uid
            && !found.any(is_shown)
    }

    /// The name of the load balancer that it makes.
    pub(super) fn new_name(&self) -> Option<&Sourced<String>> {
        let is_made = !self.cloud.changes.is_empty();
        self.cloud.new_name.as_ref().filter(|_| is_made)
    }

    /// While the cluster's identity is not known nothing is created or deleted, because it would be another cluster's
    /// afterwards, or may be now. A load balancer that carries the UID of its Service is synced.
    fn hold_without_identity(&mut self) {
        let held = |then: &str| {
            let message = format!("{NO_IDENTITY}; {then}");
            Finding::warning(self.want.failed(), message)
        };
        let (cloud, is_ensured) = (&mut self.cloud, self.want == Want::Ensure);
        if self.want == Want::Nothing || cloud.obstacle.is_some() {
            return;
        }
        if !is_ensured || !cloud.carries_uid {
            let obstacle = held("until then nothing is done for this Service");
            return self.refuse(obstacle);
        }
        let mut changes = cloud.changes.iter().chain(&cloud.leaves);
        if changes.any(|change| change.creates_or_deletes()) {
            let finding = held("until then nothing is created or deleted");
            cloud.findings.push(finding);
            cloud.changes.retain(|change| !change.creates_or_deletes());
            cloud.leaves.clear();
            cloud.is_unfinished = true;
        }
    }

    pub(super) fn refuse(&mut self, obstacle: Finding) {
        self.cloud.changes.clear();
        self.cloud.leaves.clear();
        self.cloud.held_back.clear();
        self.cloud.obstacle = Some(obstacle);
        self.add_finalizer = false;
        self.status = None;
    }

    /// Takes the changes out, to be made.
    pub(super) fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        std::mem::take(&mut self.cloud.changes)
    }
}

impl ServiceWrite {
    /// E.g. `set status to 192.0.2.7, 2001:db8::1`.
    pub(super) fn forms(&self) -> Forms {
        let finalizer = |verb| Description::new(verb, "finalizer", "");
        let emptied = Description::new(Verb::Empty, "status", "");
        match self {
            ServiceWrite::AddFinalizer => {
                let json = json!({ "change": "AddFinalizer" });
                ("add_finalizer", finalizer(Verb::Add), json)
            }
            ServiceWrite::SetStatus(status) => {
                let set = || Description::value("status", None, Some(&addresses(status)));
                let description = if status.is_empty() { emptied } else { set() };
                let json = json!({ "change": "SetStatus", "ingress": status });
                ("set_status", description, json)
            }
            ServiceWrite::EndManagement => {
                let json = json!({ "change": "EndManagement" });
                ("end_management", finalizer(Verb::Remove), json)
            }
            ServiceWrite::RemoveFinalizer { empties_status } => {
                let emptied = Some(emptied).filter(|_| *empties_status);
                let both = emptied.into_iter().chain([finalizer(Verb::Remove)]);
                let json = json!({ "change": "RemoveFinalizer" });
                ("remove_finalizer", both.collect(), json)
            }
        }
    }
}

fn addresses(status: &[Ingress]) -> String {
    let address = |ingress: &Ingress| {
        let address = ingress.hostname.as_ref().or(ingress.ip.as_ref());
        address.cloned().unwrap_or_default()
    };
    let list: Vec<String> = status.iter().map(address).collect();
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_held_back_where_the_status_had_none_of_its_kind() {
        const V4: &str = "192.0.2.1";
        const V6: &str = "2001:db8::1";
        let ingress = |ip: &&str| Ingress {
            ip: Some((*ip).to_owned()),
            hostname: None,
            ip_mode: None,
        };
        // What the status has, what it is to get, what of that is unsure → what is held back.
        for (has, all, unsure, held) in [
            (&[V4][..], &[V4, V6][..], &[V6][..], &[V6][..]),
            (&[V4], &[V4, V6, "10.0.0.2"], &["10.0.0.2"], &["10.0.0.2"]),
            (&[V4, V6], &[V4, V6], &[V6], &[]),
            (&[V4, V6], &[V4, "2001:db8::2"], &["2001:db8::2"], &[]),
            // Another load balancer: what the status had of the old one is gone anyway.
            (
                &[V4, V6],
                &["192.0.2.2", "2001:db8::2"],
                &["2001:db8::2"],
                &[],
            ),
            (
                &[V4, "10.0.0.2"],
                &["192.0.2.2", "10.0.0.3"],
                &["10.0.0.3"],
                &[],
            ),
            (&[], &[V4, V6], &[V6], &[]),
        ] {
            let list = |ips: &[&str]| ips.iter().map(ingress).collect::<Vec<_>>();
            let source = Source::Default("SETTING".to_owned());
            let unsure = list(unsure).into_iter();
            let mut cloud = LoadBalancerPlan {
                status: Some(list(all)),
                unsure: unsure.map(|entry| (entry, source.clone())).collect(),
                ..LoadBalancerPlan::default()
            };
            let mut want = list(all);
            want.retain(|entry| !list(held).contains(entry));
            let wanted = hold_back_unsure(&mut cloud, &list(has));
            assert_eq!(wanted, Some(want), "{has:?} → {all:?}");
            assert_eq!(cloud.held_back.len(), held.len(), "{has:?} → {all:?}");
        }
    }
}
