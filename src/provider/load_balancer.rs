//! Load balancers, in the three steps of a controller: what there is, what should be done, one change.
//!
//! What a field or a change is, is the provider's business; the controller orders, waits, retries
//! and reports. So both are trait objects that only their provider reads.

use super::description::Write;
use super::error::{Error, Urgency};
use super::finding::Finding;
use super::interned::Interned;
use super::service::{Cluster, Ingress, OfferedNode, Service};
use super::source::{Source, Sourced};
use crate::text::named;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// The load balancers of a cloud.
pub trait LoadBalancers: Actions {
    /// All load balancers, and whatever else plans for these Services rest on: complete, or an error.
    fn observe(&self, services: &[&Service], urgency: Urgency) -> Result<Arc<dyn Snapshot>, Error>;

    /// Services for which this is the same text use one load balancer together. None: the Service has one of its own.
    fn group(
        &self,
        namespace: &str,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
    ) -> Option<String>;

    /// Names of the Secrets whose certificates the Service's ports are to show. Pure.
    fn tls_secrets(&self, service: &Service) -> BTreeSet<String>;

    /// What deletes certificates that were uploaded from Secrets, which no load balancer uses and no Service wants.
    /// `cluster`: with all Secrets that Services name, readable or not. Asks the cloud. None: there is none that was
    /// uploaded, used or not.
    fn unused_certificates(
        &self,
        cluster: &Cluster,
        urgency: Urgency,
    ) -> Result<Option<Vec<Box<dyn Change>>>, Error>;

    /// What was made for Services of this cluster that do not exist any more, and is kept:
    /// for people. Asks the cloud.
    fn kept(&self, cluster: &Cluster) -> Result<Vec<Kept>, Error>;

    /// Why this health check of a port of the Service fails, where the server runs. Pure.
    fn cause(&self, health: &Health, service: &Service) -> Cause;

    /// What a load balancer does now: for people. Asks the cloud.
    fn usage(&self, id: u64) -> Result<Usage, Error>;
}

/// Changes that run in the cloud after they were requested.
pub trait Actions: Send + Sync {
    /// Asks once for all of these; those that have ended, each with how. Others still run.
    fn ended(&self, actions: &[ActionId]) -> Result<HashMap<ActionId, Result<(), Error>>, Error>;

    /// See [`Gate::may_wait`](super::gate::Gate::may_wait).
    fn may_wait(&self) -> bool {
        true
    }
}

/// What the cloud says, at one moment; and what should be done, by that.
pub trait Snapshot: Send + Sync {
    /// Does it hold what plans for this Service rest on? Pure.
    fn covers(&self, service: &Service) -> bool;

    /// Calls that it takes to read the same once more.
    fn calls(&self) -> u32;

    /// What brings this Service's load balancer in order. Pure.
    fn plan(&self, service: &Service, nodes: &[OfferedNode], cluster: &Cluster)
    -> LoadBalancerPlan;

    /// What deletes the Service's load balancer, or takes the Service off it. The load balancer is found by its labels; an
    /// external one whose labels were lost also by its ports and the Service's status. Pure.
    fn plan_removal(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// The load balancer that this cluster has, or had, for this Service, by our labels; one that another controller may
    /// have made is none. Pure.
    fn left_on(&self, service: &Service, cluster: &Cluster) -> Option<Balancer>;

    /// The status of a Service of which too little is known for a plan, where the mode of its addresses must be another.
    /// `None`: it stays as it is. Pure.
    fn status_by_proxy(&self, service: &Service, cluster: &Cluster) -> Option<Vec<Ingress>>;

    /// What ends its management: ports, targets and addresses stay, and no plan changes them from then on. Pure.
    fn plan_release(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// What gives this load balancer to the Service, as an operator has said, and brings it in order. Pure.
    fn plan_adoption(
        &self,
        id: u64,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> LoadBalancerPlan;

    /// Is a server of the cluster's nodes a target? Then the project has that server. Pure.
    fn has_server_of(&self, cluster: &Cluster) -> bool;

    /// Each load balancer of another owner that allows Services to use it, by its label. Pure.
    fn external(&self) -> Vec<Balancer>;

    /// How each load balancer of these Services is used, and what its health checks say. Pure.
    fn health(&self, services: &HashSet<&str>) -> Vec<SeenHealth>;

    /// What ports of these Services' load balancers show; none: certificates were not read. Pure.
    fn certificates(&self, services: &HashSet<&str>) -> Option<Vec<ShownCertificate>>;

    /// Each load balancer that carries the UID of a Service, of any cluster; and that Service, as its labels say:
    /// `namespace.name`, which may be cut, or empty. Pure.
    fn all(&self) -> Vec<(Balancer, String)>;

    /// The key of the same group that is equal for all its Services: some may name a load balancer by its ID, others by its
    /// name. `key`: see [`LoadBalancers::group`]. Pure.
    fn known_group(&self, key: String) -> String;

    /// Load balancers of this cluster whose Service does not exist, and did not ask to keep it. Pure.
    fn orphans(&self, cluster: &Cluster) -> Vec<Orphan>;

    /// Those that it asked to keep. Pure.
    fn kept(&self, cluster: &Cluster) -> Vec<Kept>;
}

/// See [`LoadBalancerPlan::needs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// All servers. The plan may add or turn targets, or remove some because of what [`OfferedNode::reach`] says.
    pub servers: bool,
    /// All Services of the cluster: [`Cluster::service_uids`]. The plan may adopt what no other Service owns, or leaves
    /// something because another one does.
    pub services: bool,
    /// Whether the project has a server of the cluster's nodes. No load balancer that was found is known to be the
    /// Service's.
    pub project: bool,
}

/// One write in the cloud that was planned.
pub trait Change: Write + fmt::Debug + Send + Sync {
    /// Makes it. Never repeated by itself: after an error the caller reads again.
    fn apply(&self) -> Result<Applied, Error>;

    /// For the events: what kind of change it is.
    fn kind(&self) -> ChangeKind {
        ChangeKind::Settings
    }

    /// Does it create or delete a load balancer or a certificate? Not where the cluster's identity is not known.
    fn creates_or_deletes(&self) -> bool {
        false
    }

    /// It may be sent although the action of the change before it still runs. The cloud may answer
    /// `ErrorKind::Busy`; then it is sent again afterwards.
    fn may_follow_at_once(&self) -> bool {
        false
    }

    /// When it fails the changes after it are made all the same: a target or a certificate that
    /// the cloud refuses must not keep the others from working.
    fn may_fail_alone(&self) -> bool {
        false
    }

    /// What to make in its place after `ErrorKind::InPart`.
    fn without_parts(&self) -> Option<Box<dyn Change>> {
        None
    }

    /// It removes a target, and no other would be left: not made when every addition before it was refused.
    fn needs_another_first(&self) -> bool {
        false
    }

    /// The name of the load balancer that the change creates, with what asks for the name.
    fn new_name(&self) -> Option<&Sourced<String>> {
        None
    }

    /// Reported on the Service once the change was made.
    fn event(&self) -> Option<Finding> {
        None
    }
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Which nodes get traffic.
    Targets,
    /// The load balancer is deleted.
    Removal,
    /// The load balancer stays: its Service is taken off it, or its management ends.
    Release,
    /// Anything else, creation included.
    Settings,
}

/// What one Service's load balancer is, should be, and what lies between.
#[derive(Debug, Default)]
pub struct LoadBalancerPlan {
    pub outcome: Outcome,
    /// The Service's load balancer. `None`: there is none yet, or none any more.
    pub found: Option<Balancer>,
    /// Whether the load balancer that was found, or one that the Service leaves, carries the UID of the Service or the label
    /// of its group. False: there is none, or only its name or the label `adopt` says that it is the Service's.
    pub carries_uid: bool,
    /// Every field, with what there is, what should be, and what asks for it.
    pub fields: Vec<Field>,
    /// What people should know. A part of the Service that is refused is here too, while the rest of the Service is synced.
    pub findings: Vec<Finding>,
    /// What the Service's status should say once the changes are made. `None`: it stays as it is. For a Service that ends on
    /// an external load balancer with labels it is empty, and emptied before the first change: once the labels are removed
    /// there, the status must not say any more that the Service has ports there. For all others that end, the write that
    /// removes the finalizer empties it.
    pub status: Option<Vec<Ingress>>,
    /// What the plan changes or makes besides `found`. In one sync no other plan may change or make it.
    pub claims: Vec<Claim>,
    /// What must have been read after the pass began, from the APIs themselves, before it is applied: by what was read
    /// last of nodes and cluster.
    pub needs: Needs,
}

/// What is done for a Service in the cloud.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing of the Service can be synced. `problems`: what `why` says, each by itself.
    Refused { why: Finding, problems: Vec<String> },
    /// Nothing: the management of its load balancer has ended. The Service gets no finalizer.
    Released,
    /// It has no load balancer, and none is made now. A finding says why.
    Waiting,
    /// The changes, in their order, each after the actions of those before have ended, unless it may follow at once.
    /// Without changes the load balancer is as it should be.
    Change { changes: Vec<Box<dyn Change>>, then: Then },
}

/// What follows the changes of a plan, and the status.
#[derive(Debug, Default)]
pub enum Then {
    /// Nothing: all is as it should be.
    #[default]
    Done,
    /// A part waits for something in the cloud that the executor does not wait for: it is planned again soon, although
    /// nothing failed.
    Again,
    /// What takes the Service off load balancers that do not serve it.
    Leave(Vec<Box<dyn Change>>),
    /// The same for load balancers that serve the Service until then. Without a change the new one can't serve it yet.
    Move(Vec<Box<dyn Change>>),
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome::of(Vec::new())
    }
}

impl Outcome {
    /// These changes, and nothing after them.
    pub fn of(changes: Vec<Box<dyn Change>>) -> Outcome {
        let then = Then::Done;
        Outcome::Change { changes, then }
    }

    pub fn refused(why: Finding) -> Outcome {
        let problems = vec![why.message.clone()];
        Outcome::Refused { why, problems }
    }

    /// The changes that are made first. See [`Outcome::Change`].
    pub fn changes(&self) -> &[Box<dyn Change>] {
        match self {
            Outcome::Change { changes, .. } => changes,
            _ => &[],
        }
    }

    /// The changes that are made when everything else is done and the status says so.
    pub fn leaves(&self) -> &[Box<dyn Change>] {
        match self {
            Outcome::Change { then, .. } => then.leaves(),
            _ => &[],
        }
    }

    /// The changes that are made first, to be executed.
    pub fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            Outcome::Change { changes, .. } => std::mem::take(changes),
            _ => Vec::new(),
        }
    }

    /// The changes of [`leaves`](Outcome::leaves), to be executed. The plan stays unfinished.
    pub fn take_leaves(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            Outcome::Change { then: Then::Leave(leaves) | Then::Move(leaves), .. } => {
                std::mem::take(leaves)
            }
            _ => Vec::new(),
        }
    }

    /// Drops the changes for which `is_kept` is false.
    pub fn retain_changes(&mut self, mut is_kept: impl FnMut(&dyn Change) -> bool) {
        if let Outcome::Change { changes, .. } = self {
            changes.retain(|change| is_kept(&**change));
        }
    }

    /// Why nothing of the Service is synced.
    pub fn obstacle(&self) -> Option<&Finding> {
        match self {
            Outcome::Refused { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Whether the Service is planned again soon, although nothing failed.
    pub fn is_unfinished(&self) -> bool {
        matches!(self, Outcome::Change { then, .. } if !matches!(then, Then::Done))
    }

    /// Whether everything is as it should be.
    pub fn is_in_order(&self) -> bool {
        self.changes().is_empty() && matches!(self, Outcome::Change { then: Then::Done, .. })
    }

    /// Whether another load balancer serves the Service until the plan is finished.
    pub fn moves(&self) -> bool {
        matches!(self, Outcome::Change { then: Then::Move(_), .. })
    }

    pub fn is_released(&self) -> bool {
        matches!(self, Outcome::Released)
    }
}

impl Then {
    /// These, too, take the Service off load balancers.
    pub fn and_leave(self, more: Vec<Box<dyn Change>>) -> Then {
        match self {
            Then::Done | Then::Again => Then::Leave(more),
            Then::Leave(mut leaves) => {
                leaves.extend(more);
                Then::Leave(leaves)
            }
            Then::Move(mut leaves) => {
                leaves.extend(more);
                Then::Move(leaves)
            }
        }
    }

    fn leaves(&self) -> &[Box<dyn Change>] {
        match self {
            Then::Leave(leaves) | Then::Move(leaves) => leaves,
            Then::Done | Then::Again => &[],
        }
    }
}

impl LoadBalancerPlan {
    /// Nothing is done, for this reason.
    pub fn refuse(self, why: Finding) -> LoadBalancerPlan {
        LoadBalancerPlan { outcome: Outcome::refused(why), status: None, ..self }
    }

    /// Without what may not be done while the cluster's identity is not known: nothing is created or deleted, because it
    /// would be another cluster's afterwards, or may be now. `why`: that this is so.
    pub fn without_identity(mut self, why: Finding) -> LoadBalancerPlan {
        let Outcome::Change { changes, then } = &mut self.outcome else {
            return self;
        };
        let all = changes.iter().chain(then.leaves());
        if all.into_iter().any(|one| one.creates_or_deletes()) {
            changes.retain(|change| !change.creates_or_deletes());
            *then = match then {
                Then::Move(_) => Then::Move(Vec::new()),
                _ => Then::Again,
            };
            self.findings.push(why);
        }
        self
    }

    /// For a reader that no person is: with twenty load balancers of a hundred targets the details are most of a daemon's
    /// memory.
    pub fn without_details(mut self) -> LoadBalancerPlan {
        self.fields = Vec::new();
        if let Some(found) = &mut self.found {
            found.targets = Vec::new();
            found.ports = Vec::new();
            found.certificates = Vec::new();
        }
        self
    }

    /// The name of the load balancer that the changes create, with what asks for the name.
    pub fn new_name(&self) -> Option<&Sourced<String>> {
        self.outcome.changes().iter().find_map(|change| change.new_name())
    }
}

/// What one plan takes, and no other one may take at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Of a load balancer or certificate.
    Id(u64),
    /// Of a new load balancer.
    Name(String),
    /// Name of one that is uploaded.
    Certificate(String),
}

/// Something in the cloud that was made for a Service which does not exist any more, and that
/// no controller deletes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// `Certificate` or `LoadBalancer`.
    pub kind: &'static str,
    pub id: u64,
    pub name: String,
    /// Names that a certificate is for.
    pub domains: Vec<String>,
    /// Of a load balancer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<std::net::IpAddr>,
}

/// A load balancer, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(tag = "kind", rename = "LoadBalancer", rename_all = "camelCase")]
pub struct Balancer {
    pub id: u64,
    pub name: String,
    /// Name of its type, e.g. `lb11`.
    #[serde(rename = "type")]
    pub kind: String,
    pub location: String,
    #[serde(rename = "use")]
    pub use_of: BalancerUse,
    /// The group of Services that shares it, as its label says: `namespace/name`, which may be cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Empty where it is one Service's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortOwner>,
    /// Public ones first.
    pub addresses: Vec<std::net::IpAddr>,
    #[serde(flatten)]
    pub health: HealthyTargets,
    pub targets: Vec<Target>,
    #[serde(flatten)]
    pub consumption: Consumption,
    /// Those that its ports show, as far as they were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<ShownCertificate>,
}

/// How many of a load balancer's targets are healthy on every port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HealthyTargets {
    pub healthy: usize,
    pub total: usize,
}

/// What a load balancer costs, and carries. `None` means that the cloud does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumption {
    /// In the currency of the project's owner, without taxes.
    pub monthly_price: Option<f64>,
    /// Of this month, in bytes.
    pub outgoing_traffic: Option<u64>,
    pub ingoing_traffic: Option<u64>,
    /// Outgoing traffic that the price covers.
    pub included_traffic: Option<u64>,
    /// Read only for an inspection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A certificate that ports of a load balancer show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownCertificate {
    pub id: u64,
    pub name: String,
    pub ports: Vec<u16>,
    /// None: the cloud does not say.
    #[serde(serialize_with = "as_text")]
    pub not_valid_after: Option<Timestamp>,
    /// `namespace.name` of the Secret that it was uploaded from, as its label says, which may be cut.
    pub secret: Option<String>,
    pub is_managed: bool,
}

named! {
    /// Whose a load balancer is.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "lowercase")]
    BalancerUse {
        /// One Service's.
        #[default]
        Own = "own",
        /// Several Services'.
        Shared = "shared",
        /// Another owner's.
        External = "external",
        /// Its management has ended.
        Released = "released",
    }
}

/// A port of a load balancer, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortOwner {
    pub port: u16,
    /// UID of the Service, as the port's label says; none: it has no label.
    pub uid: Option<String>,
    /// `namespace/name`, where it is a Service of this cluster.
    pub service: Option<String>,
    /// The port of the targets to which it sends traffic, as a rule a node port.
    #[serde(rename = "destinationPort")]
    pub destination: Option<u16>,
}

/// None: the cloud does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub open_connections: Option<f64>,
    pub connections_per_second: Option<f64>,
    pub requests_per_second: Option<f64>,
}

/// Where a load balancer sends traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Name of its node; else what the cloud calls it.
    pub name: String,
    pub health: Vec<Health>,
}

/// What the health checks of one port say about one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    pub port: u16,
    /// In the cloud's word, e.g. `healthy`.
    pub status: Interned,
    /// Why it is not, in the cloud's word, where it says so.
    pub detail: Option<Interned>,
    pub http_status: Option<u16>,
    /// It asks kube-proxy about the node, not the port.
    #[serde(skip)]
    pub is_of_kube_proxy: bool,
    /// Why it fails, where that was found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// Why a target gets no traffic, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    #[serde(skip)]
    pub kind: CauseKind,
    pub message: Interned,
    /// What to do about it, with the names of the objects that it is about.
    pub remedy: String,
}

/// What follows from the cause of an unhealthy target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// The target's server is off, which is a finding of its own.
    ServerOff,
    /// The node runs no pod of a Service with [`TrafficPolicy::Local`](super::TrafficPolicy::Local): the target should be unhealthy.
    NoPod,
    /// Something that has to be found and repaired.
    Other,
}

/// One field of a load balancer. Values as people read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// E.g. `type`, `port 443 health check interval`.
    pub field: String,
    pub have: Option<String>,
    /// None: it is left unchanged.
    pub want: Option<String>,
    pub source: Source,
}

/// A load balancer of this cluster that no Service wants.
#[derive(Debug)]
pub struct Orphan {
    pub balancer: Balancer,
    /// The Service it was made for, as its labels say: `namespace.name`, which may be cut. Of one that Services shared,
    /// their group.
    pub service: String,
    /// UID of that Service.
    pub service_uid: String,
    /// The Service exists, is of another type, and has no finalizer.
    pub service_exists: bool,
    /// None: it stays, see `stays`. The load balancer is read again before it is made, and must
    /// be as it was.
    pub removal: Option<Box<dyn Change>>,
    /// Why it is not removed, on whatever request.
    pub stays: Option<String>,
}

/// What came of a change.
#[derive(Clone, Debug)]
pub enum Applied {
    Done,
    /// Its action runs in the cloud; the next change waits for its end.
    Running(ActionId),
    /// What there is may differ from what the changes after it rest on: read again, plan again.
    LookAgain(Option<ActionId>),
    /// The same; but the answer shows the load balancer whole, as it will be when the action has ended.
    /// Where a plan for its Service on that has no changes, nothing is read again.
    Shown(Option<ActionId>, Arc<dyn Snapshot>),
    /// Not made, and nothing failed: what it rests on has changed. Read again.
    Overtaken,
}

/// Number of an action that runs in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionId(pub u64);

impl ShownCertificate {
    /// Where it comes from, for people.
    pub fn origin(&self) -> String {
        match &self.secret {
            Some(secret) => format!("from Secret {}", secret.replacen('.', "/", 1)),
            None if self.is_managed => "managed by the cloud".to_owned(),
            None => "uploaded by its owner".to_owned(),
        }
    }
}

impl Orphan {
    /// E.g. `Service default/web, which does not exist`.
    pub fn made_for(&self) -> String {
        let name = self.service.replacen('.', "/", 1);
        match (self.balancer.use_of, self.service_exists) {
            (BalancerUse::Shared, false) => {
                format!("the Services that share {name}, of which none exists")
            }
            (BalancerUse::Shared, true) => {
                format!(
                    "the Services that share {name}, which are of other types and have no finalizer"
                )
            }
            (_, false) => format!("Service {name}, which does not exist"),
            (_, true) => format!("Service {name}, which is of another type and has no finalizer"),
        }
    }
}

impl Field {
    pub fn differs(&self) -> bool {
        self.want.is_some() && self.want != self.have
    }
}

impl Health {
    pub fn is_unhealthy(&self) -> bool {
        self.status == "unhealthy"
    }
}

impl Target {
    pub fn is_healthy(&self) -> bool {
        !self.health.is_empty() && self.health.iter().all(|health| health.status == "healthy")
    }
}

named! {
    /// What the health checks say of a load balancer's targets. Targets that were not checked yet do not count beside
    /// others.
    BalancerHealth {
        /// No target that was checked is unhealthy.
        All = "all",
        /// Some targets are healthy, and some are not.
        Some = "some",
        /// No target is healthy on every port that counts: some are unhealthy, or there is no target.
        None = "none",
        /// There are targets, and no health check of them has ended.
        Unknown = "unknown",
    }
}

/// How many targets of a load balancer are healthy. Everything that is said of the health of targets rests on these
/// numbers: `lb list`, `lb inspect`, `status`, `doctor`, the metric and the events. A target is unhealthy whatever the
/// cause is, and whether or not another check reports the cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounts {
    /// Targets that are healthy on each port that counts.
    pub healthy: usize,
    /// Targets that are healthy on some port that counts, so that this port gets traffic.
    pub serving: usize,
    /// Targets that are unhealthy on a port that counts. The others were not checked yet.
    pub unhealthy: usize,
    pub total: usize,
}

impl TargetCounts {
    pub fn health(self) -> BalancerHealth {
        let TargetCounts { healthy, unhealthy, total, .. } = self;
        match healthy {
            0 if unhealthy == 0 && total > 0 => BalancerHealth::Unknown,
            0 => BalancerHealth::None,
            _ if unhealthy > 0 => BalancerHealth::Some,
            _ => BalancerHealth::All,
        }
    }
}

impl fmt::Display for TargetCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.total {
            0 => f.write_str("it has no target"),
            total => write!(f, "{} of {total} targets healthy", self.healthy),
        }
    }
}

/// What the health checks say of one load balancer.
pub struct SeenHealth {
    pub use_of: BalancerUse,
    /// The targets on the ports of all Services.
    pub counts: TargetCounts,
    /// The targets on the ports of each Service, by the UID of the Service.
    pub of_services: Vec<(String, TargetCounts)>,
}

impl Balancer {
    /// `uid`: by the ports of this Service alone, where it has any; else by the ports of all Services. Ports of others on
    /// an external load balancer never count.
    pub fn target_counts(&self, uid: Option<&str>) -> TargetCounts {
        let uid = uid.filter(|uid| self.has_port_of(uid));
        let mut counts = TargetCounts { total: self.targets.len(), ..TargetCounts::default() };
        for target in &self.targets {
            let (mut checked, mut healthy, mut unhealthy) = (0, 0, 0);
            for check in self.checks(target, uid) {
                checked += 1;
                healthy += usize::from(check.status == "healthy");
                unhealthy += usize::from(check.is_unhealthy());
            }
            counts.healthy += usize::from(checked > 0 && checked == healthy);
            counts.serving += usize::from(healthy > 0);
            counts.unhealthy += usize::from(unhealthy > 0);
        }
        counts
    }

    /// Whether the Service has a port on the load balancer. On a load balancer of one Service each port is the Service's.
    pub fn has_port_of(&self, uid: &str) -> bool {
        let mut owners = self.ports.iter().filter_map(|one| one.uid.as_deref()).peekable();
        owners.peek().is_none() || owners.any(|owner| owner == uid)
    }

    fn checks<'a>(
        &'a self,
        target: &'a Target,
        uid: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Health> {
        let counts = move |one: &&Health| self.is_port_of(one.port, uid);
        target.health.iter().filter(counts)
    }

    /// Is it a port of this Service; none: of any? Where no port has an owner, as on one Service's own, each is.
    pub fn is_port_of(&self, port: u16, uid: Option<&str>) -> bool {
        let has_owner = |one: &PortOwner| one.uid.is_some();
        if !self.ports.iter().any(has_owner) {
            return true;
        }
        let is_it = |one: &PortOwner| match uid {
            None => has_owner(one),
            uid => one.uid.as_deref() == uid,
        };
        self.ports.iter().any(|one| one.port == port && is_it(one))
    }
}

fn as_text<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(|at| at.to_string()).serialize(serializer)
}

impl fmt::Debug for dyn Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}
