//! Load balancers, in the three steps of a controller: the snapshot, the plan and the changes.
//!
//! The provider decides what a field or a change is. The controller decides about order, waits, retries and reports. It
//! can't look into snapshots and changes, which are trait objects for it.

use super::description::Write;
use super::error::{ProviderError, Urgency};
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
    /// Returns a snapshot of all load balancers, and of everything else that plans for these Services need. An
    /// incomplete snapshot is an error.
    fn observe(
        &self,
        services: &[&Service],
        urgency: Urgency,
    ) -> Result<Arc<dyn Snapshot>, ProviderError>;

    /// Returns the key of the Service's group. Services with the same key use one load balancer together. `None` when
    /// the Service has a load balancer of its own.
    fn group(
        &self,
        namespace: &str,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
    ) -> Option<String>;

    /// Returns the names of the TLS Secrets whose certificates the ports of the Service must serve. Pure.
    fn tls_secrets(&self, service: &Service) -> BTreeSet<String>;

    /// Returns the changes that delete unused certificates. These are certificates that were uploaded from Secrets,
    /// that no load balancer uses and that no Service wants. `cluster` must have all Secrets that Services name,
    /// including those that can't be read. Asks the cloud. `None` when no certificate was uploaded from a Secret,
    /// used or not.
    fn unused_certificates(
        &self,
        cluster: &Cluster,
        urgency: Urgency,
    ) -> Result<Option<Vec<Box<dyn Change>>>, ProviderError>;

    /// Returns the objects that were made for Services of this cluster which do not exist any more, and that are kept.
    /// The result is for display. Makes a call to the cloud.
    fn kept(&self, cluster: &Cluster) -> Result<Vec<KeptObject>, ProviderError>;

    /// Returns why this health check of a port of the Service fails although the server runs. Pure.
    fn cause(&self, health: &TargetHealth, service: &Service) -> Cause;

    /// Returns the current usage of a load balancer, for display only. Makes a call to the cloud.
    fn usage(&self, id: u64) -> Result<Usage, ProviderError>;
}

/// Actions: changes that run in the cloud after they were requested.
pub trait Actions: Send + Sync {
    /// Asks the cloud once about all of these actions. Returns the result of each action that has ended. The other
    /// actions still run.
    fn ended(
        &self,
        actions: &[ActionId],
    ) -> Result<HashMap<ActionId, Result<(), ProviderError>>, ProviderError>;

    /// Whether it is worth waiting for actions, see [`Gate::may_wait`](super::gate::Gate::may_wait).
    fn may_wait(&self) -> bool {
        true
    }
}

/// The state of the cloud at one moment, and the plans that follow from this state.
pub trait Snapshot: Send + Sync {
    /// Whether the snapshot holds everything that plans for this Service need. Pure.
    fn covers(&self, service: &Service) -> bool;

    /// Returns how many calls to the API a new read of the data of this snapshot needs.
    fn calls(&self) -> u32;

    /// Plans the changes that bring this Service's load balancer in order. Pure.
    fn plan(&self, service: &Service, nodes: &[OfferedNode], cluster: &Cluster)
    -> LoadBalancerPlan;

    /// Plans the changes that delete the Service's load balancer, or take the Service off it. The load balancer is
    /// found by its labels. An external load balancer whose labels were lost is also found by its ports and the
    /// Service's status. Pure.
    fn plan_removal(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// Returns the load balancer whose labels say that this cluster uses it, or used it, for this Service. A load
    /// balancer that another controller may have made is never returned. Pure.
    fn left_on(&self, service: &Service, cluster: &Cluster) -> Option<Balancer>;

    /// Returns a new status for a Service of which too little is known for a plan, when the IP mode of its addresses
    /// must change. `None` means that the status stays as it is. Pure.
    fn status_by_proxy(&self, service: &Service, cluster: &Cluster) -> Option<Vec<Ingress>>;

    /// Plans the changes that end the management of the Service's load balancer. Its ports, targets and addresses stay,
    /// and no plan changes them from then on. Pure.
    fn plan_release(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// Plans the changes that give this load balancer to the Service, as an operator has asked, and bring
    /// it in order. Pure.
    fn plan_adoption(
        &self,
        id: u64,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> LoadBalancerPlan;

    /// Whether a node of the cluster has a server that is a target of any load balancer, which proves that the project
    /// has this server. Pure.
    fn has_server_of(&self, cluster: &Cluster) -> bool;

    /// Returns each load balancer of another owner that, by its label, allows Services to use it. Pure.
    fn external(&self) -> Vec<Balancer>;

    /// Returns how each load balancer of these Services is used, and the results of its health checks. Pure.
    fn health(&self, services: &HashSet<&str>) -> Vec<SeenHealth>;

    /// Returns the certificates that the ports of these Services' load balancers serve. `None` when certificates were
    /// not read. Pure.
    fn certificates(&self, services: &HashSet<&str>) -> Option<Vec<ShownCertificate>>;

    /// Returns each load balancer that carries the UID of a Service, of any cluster, with the Service or group that its
    /// labels name: `namespace.name` for a Service, which may be cut, or an empty text. Pure.
    fn all(&self) -> Vec<(Balancer, String)>;

    /// Returns the key of the group in a form that is equal for all its Services, because some Services may name a load
    /// balancer by its ID, and others by its name. `key` is the key of [`LoadBalancers::group`]. Pure.
    fn known_group(&self, key: String) -> String;

    /// Returns the load balancers of this cluster whose Service does not exist and did not ask to keep them. Pure.
    fn orphans(&self, cluster: &Cluster) -> Vec<Orphan>;

    /// Returns the load balancers of this cluster whose Service does not exist and asked to keep them. Pure.
    fn kept(&self, cluster: &Cluster) -> Vec<KeptObject>;
}

/// The data that a plan needs, see [`LoadBalancerPlan::needs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// All servers. The plan may add targets or change how they are reached, or remove some
    /// targets because of [`OfferedNode::reach`].
    pub servers: bool,
    /// All Services of the cluster, see [`Cluster::service_uids`]. Whether the plan adopts an object or leaves it alone
    /// depends on whether another Service owns the object.
    pub services: bool,
    /// The answer whether the project has a server of the cluster's nodes. It is needed when no load balancer with the
    /// Service's UID, or with the label of its group, was found.
    pub project: bool,
}

/// A planned write in the cloud.
pub trait Change: Write + fmt::Debug + Send + Sync {
    /// Makes the change once, without a retry. After an error the caller reads the present state again.
    fn apply(&self) -> Result<Applied, ProviderError>;

    /// Returns the kind of the change, for the events.
    fn kind(&self) -> ChangeKind {
        ChangeKind::Settings
    }

    /// Whether the change creates or deletes a load balancer or a certificate. Such a change is not made while the
    /// cluster's identity is not known.
    fn creates_or_deletes(&self) -> bool {
        false
    }

    /// Whether the change may be sent although the action of the change before it still runs. When the cloud answers
    /// `ErrorKind::Busy`, the change is sent again afterwards.
    fn may_follow_at_once(&self) -> bool {
        false
    }

    /// Whether the changes after this one are made even if this one fails: a target or a certificate that the cloud
    /// refuses must not keep the others from working.
    fn may_fail_alone(&self) -> bool {
        false
    }

    /// Returns the change to make instead when this change failed with `ErrorKind::InPart`.
    fn without_parts(&self) -> Option<Box<dyn Change>> {
        None
    }

    /// Whether the change removes the last target. It is made only after at least one new target was added.
    fn needs_another_first(&self) -> bool {
        false
    }

    /// Returns the name of the load balancer that the change creates, with the source of the name.
    fn new_name(&self) -> Option<&Sourced<String>> {
        None
    }

    /// Returns the finding that is reported on the Service when the change was made.
    fn event(&self) -> Option<Finding> {
        None
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The change decides which nodes get traffic.
    Targets,
    /// The load balancer is deleted.
    Removal,
    /// The load balancer stays, but its Service is taken off it, or its management ends.
    Release,
    /// Any other change, creation included.
    Settings,
}

/// The plan for one Service's load balancer: its present state, its desired state, and the changes between them.
#[derive(Debug, Default)]
pub struct LoadBalancerPlan {
    pub outcome: PlanOutcome,
    /// The Service's load balancer. `None` when there is no load balancer yet, or none any more.
    pub found: Option<Balancer>,
    /// Whether the Service has the load balancer that was found, or one that it leaves, by the UID of the Service or by
    /// the label of its group. The result is `false` when there is no load balancer, or when only its name or the label
    /// `adopt` connects it with the Service.
    pub carries_uid: bool,
    /// Every field with its present value, its desired value, and the source of the desired value.
    pub fields: Vec<Field>,
    /// The findings to report. When a part of the Service is refused, one of them says so, and the rest of
    /// the Service is synced.
    pub findings: Vec<Finding>,
    /// The status that the Service has after the changes. `None` when its status stays. When the Service needs no load
    /// balancer any more, and labels of an external load balancer say that it has ports there, this status is empty and
    /// is written before the first change. Otherwise the status would say, after these labels are removed, that the
    /// Service still has ports there. For other Services without a need for a load balancer, the write that removes the
    /// finalizer also empties the status.
    pub status: Option<Vec<Ingress>>,
    /// The objects that the plan changes or makes besides `found`. In one sync no other plan may change or make them.
    pub claims: Vec<Claim>,
    /// The data that must be read again from the APIs, after this pass has begun, before the plan is applied. The need
    /// follows from the nodes and the cluster as they were read last.
    pub needs: Needs,
}

/// The outcome of a plan: what is done for a Service in the cloud.
#[derive(Debug)]
pub enum PlanOutcome {
    /// Nothing of the Service can be synced. `why` is the finding to report, and `problems` lists each problem of
    /// the finding separately.
    Refused { why: Finding, problems: Vec<String> },
    /// Nothing is done, because the management of the load balancer has ended. The Service gets no finalizer.
    Released,
    /// The Service has no load balancer, and none is created now. A finding gives the reason.
    Waiting,
    /// The changes in their order. A change is made after the actions of the earlier changes have ended, unless it may
    /// follow at once. Without changes, the load balancer is as it should be.
    Change { changes: Vec<Box<dyn Change>>, then: Then },
}

/// The step that follows the changes of a plan and the write of the status.
#[derive(Debug, Default)]
pub enum Then {
    /// Nothing follows, because everything is as it should be.
    #[default]
    Done,
    /// The Service is planned again soon, although nothing failed. A part of it waits for something in the cloud that
    /// takes longer than the executor waits.
    Again,
    /// The changes that take the Service off load balancers that do not serve it.
    Leave(Vec<Box<dyn Change>>),
    /// The changes that take the Service off its present load balancers, which serve it until then. The list is empty
    /// while the new load balancer can't serve the Service yet.
    Move(Vec<Box<dyn Change>>),
}

impl Default for PlanOutcome {
    fn default() -> PlanOutcome {
        PlanOutcome::of(Vec::new())
    }
}

impl PlanOutcome {
    /// Returns an outcome with these changes and no further step.
    pub fn of(changes: Vec<Box<dyn Change>>) -> PlanOutcome {
        let then = Then::Done;
        PlanOutcome::Change { changes, then }
    }

    pub fn refused(why: Finding) -> PlanOutcome {
        let problems = vec![why.message.clone()];
        PlanOutcome::Refused { why, problems }
    }

    /// Returns the changes of [`PlanOutcome::Change`]. They are made before the changes of [`leaves`](Outcome::leaves).
    pub fn changes(&self) -> &[Box<dyn Change>] {
        match self {
            PlanOutcome::Change { changes, .. } => changes,
            _ => &[],
        }
    }

    /// Returns the changes that take the Service off load balancers. They are made after all other changes, and after
    /// the Service's status is written.
    pub fn leaves(&self) -> &[Box<dyn Change>] {
        match self {
            PlanOutcome::Change { then, .. } => then.leaves(),
            _ => &[],
        }
    }

    /// Takes the changes of [`PlanOutcome::Change`] out of the outcome, to execute them. The changes
    /// of [`leaves`](Outcome::leaves) stay.
    pub fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            PlanOutcome::Change { changes, .. } => std::mem::take(changes),
            _ => Vec::new(),
        }
    }

    /// Takes the changes of [`leaves`](Outcome::leaves) out of the outcome, so that they can be made. The outcome stays
    /// unfinished, because the Service must be planned again afterwards.
    pub fn take_leaves(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            PlanOutcome::Change { then: Then::Leave(leaves) | Then::Move(leaves), .. } => {
                std::mem::take(leaves)
            }
            _ => Vec::new(),
        }
    }

    /// Returns why nothing of the Service can be synced.
    pub fn obstacle(&self) -> Option<&Finding> {
        match self {
            PlanOutcome::Refused { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Whether the Service must be planned again soon, although nothing failed.
    pub fn is_unfinished(&self) -> bool {
        matches!(self, PlanOutcome::Change { then, .. } if !matches!(then, Then::Done))
    }

    /// Whether everything is as it should be.
    pub fn is_in_order(&self) -> bool {
        self.changes().is_empty() && matches!(self, PlanOutcome::Change { then: Then::Done, .. })
    }

    /// Whether the Service moves to another load balancer. Until the plan is finished, the previous load balancer
    /// serves the Service.
    pub fn moves(&self) -> bool {
        matches!(self, PlanOutcome::Change { then: Then::Move(_), .. })
    }

    pub fn is_released(&self) -> bool {
        matches!(self, PlanOutcome::Released)
    }
}

impl Then {
    /// Adds changes that take the Service off load balancers.
    pub fn and_leave(mut self, more: Vec<Box<dyn Change>>) -> Then {
        match &mut self {
            Then::Done | Then::Again => self = Then::Leave(more),
            Then::Leave(leaves) | Then::Move(leaves) => leaves.extend(more),
        }
        self
    }

    fn leaves(&self) -> &[Box<dyn Change>] {
        match self {
            Then::Leave(leaves) | Then::Move(leaves) => leaves,
            Then::Done | Then::Again => &[],
        }
    }
}

impl LoadBalancerPlan {
    /// Refuses the plan for this reason, so that nothing is done.
    pub fn refuse(self, why: Finding) -> LoadBalancerPlan {
        LoadBalancerPlan { outcome: PlanOutcome::refused(why), status: None, ..self }
    }

    /// Removes the changes that create or delete objects, because the cluster's identity is not known. A created object
    /// would later seem to belong to another cluster, and an object to delete may belong to another cluster now. `why`
    /// is the finding that reports this.
    pub fn without_identity(mut self, why: Finding) -> LoadBalancerPlan {
        let PlanOutcome::Change { changes, then } = &mut self.outcome else {
            return self;
        };
        let all = changes.iter().chain(then.leaves());
        if all.into_iter().any(|change| change.creates_or_deletes()) {
            changes.retain(|change| !change.creates_or_deletes());
            *then = match then {
                Then::Move(_) => Then::Move(Vec::new()),
                _ => Then::Again,
            };
            self.findings.push(why);
        }
        self
    }

    /// Drops the details when no person reads the plan. With twenty load balancers of a hundred targets, they would
    /// take most of a daemon's memory.
    pub fn drop_details(&mut self) {
        self.fields = Vec::new();
        if let Some(found) = &mut self.found {
            found.targets = Vec::new();
            found.ports = Vec::new();
            found.certificates = Vec::new();
        }
    }
}

/// An object that a plan claims. No other plan may claim it at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The ID of a load balancer or certificate.
    Id(u64),
    /// The name of a new load balancer.
    Name(String),
    /// The name of a certificate that is uploaded.
    Certificate(String),
}

/// An object in the cloud that was made for a Service which does not exist any more, and that no controller deletes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptObject {
    /// `Certificate` or `LoadBalancer`.
    pub kind: &'static str,
    pub id: u64,
    pub name: String,
    /// The domain names of a certificate.
    pub domains: Vec<String>,
    /// The addresses of a load balancer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<std::net::IpAddr>,
}

/// A load balancer, as commands display it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(tag = "kind", rename = "LoadBalancer", rename_all = "camelCase")]
pub struct Balancer {
    pub id: u64,
    pub name: String,
    /// The name of the load balancer's type, e.g. `lb11`.
    #[serde(rename = "type")]
    pub kind: String,
    pub location: String,
    #[serde(rename = "use")]
    pub use_of: BalancerUse,
    /// The group of Services that shares the load balancer, as its label says: `namespace/name`, which may be cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The ports with their owners. Empty when one Service owns the load balancer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortOwner>,
    /// The addresses, the public ones first.
    pub addresses: Vec<std::net::IpAddr>,
    #[serde(flatten)]
    pub health: HealthyTargets,
    pub targets: Vec<Target>,
    #[serde(flatten)]
    pub consumption: Consumption,
    /// The certificates that the ports show, as far as they were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<ShownCertificate>,
}

/// How many of a load balancer's targets are healthy on every port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HealthyTargets {
    pub healthy: usize,
    pub total: usize,
}

/// The price and the traffic of a load balancer. `None` means that the cloud does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumption {
    /// The monthly price in the currency of the project's owner, without taxes.
    pub monthly_price: Option<f64>,
    /// The outgoing traffic of this month, in bytes.
    pub outgoing_traffic: Option<u64>,
    pub ingoing_traffic: Option<u64>,
    /// The outgoing traffic that the price covers.
    pub included_traffic: Option<u64>,
    /// The current usage, which is read only for an inspection.
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
    /// The time when the certificate expires. `None` when the cloud does not give this time.
    #[serde(serialize_with = "as_text")]
    pub not_valid_after: Option<Timestamp>,
    /// The Secret from which the certificate was uploaded, as `namespace.name`. The value comes from the certificate's
    /// label, and may be cut there.
    pub secret: Option<String>,
    pub is_managed: bool,
}

named! {
    /// The use of a load balancer by Services.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "lowercase")]
    BalancerUse {
        /// One Service owns the load balancer.
        #[default]
        Own = "own",
        /// Several Services share the load balancer.
        Shared = "shared",
        /// Another owner made the load balancer.
        External = "external",
        /// The management of the load balancer has ended.
        Released = "released",
    }
}

/// A port of a load balancer, and the owner of the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortOwner {
    pub port: u16,
    /// The UID of the Service, as the port's label says. `None` when the port has no label.
    pub uid: Option<String>,
    /// The Service as `namespace/name`, when the Service is one of this cluster.
    pub service: Option<String>,
    /// The port of the targets to which the traffic is sent, usually a node port.
    #[serde(rename = "destinationPort")]
    pub destination: Option<u16>,
}

/// The current usage of a load balancer. `None` means that the cloud does not say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub open_connections: Option<f64>,
    pub connections_per_second: Option<f64>,
    pub requests_per_second: Option<f64>,
}

/// A target of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The name of the target's node, or the cloud's name for the target when no node is known.
    pub name: String,
    pub health: Vec<TargetHealth>,
}

/// The result of the health checks of one port for one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetHealth {
    pub port: u16,
    /// The status in the cloud's words, e.g. `healthy`.
    pub status: Interned,
    /// The reason why the target is not healthy, in the cloud's words, when the cloud gives one.
    pub detail: Option<Interned>,
    pub http_status: Option<u16>,
    /// Whether the health check asks kube-proxy about the node, and not the port.
    #[serde(skip)]
    pub is_of_kube_proxy: bool,
    /// The cause of the failure, when it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// The cause why a target gets no traffic, as commands display it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    #[serde(skip)]
    pub kind: CauseKind,
    pub message: Interned,
    /// What to do about the cause, with the names of the objects that are concerned.
    pub remedy: String,
}

/// The kind of a cause. It decides what follows from an unhealthy target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// The target's server is off, which another finding reports.
    ServerOff,
    /// The node runs no pod of a Service with [`TrafficPolicy::Local`](super::TrafficPolicy::Local), so that the target
    /// should be unhealthy.
    NoPod,
    /// Another cause, which a person has to find and repair.
    Other,
}

/// One field of a load balancer, with values as people read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The name of the field, e.g. `type` or `port 443 health check interval`.
    pub field: String,
    pub have: Option<String>,
    /// The desired value. `None` when the field is left unchanged.
    pub want: Option<String>,
    pub source: Source,
}

/// A load balancer of this cluster that no Service wants.
#[derive(Debug)]
pub struct Orphan {
    pub balancer: Balancer,
    /// The Service for which the load balancer was made, as its labels say: `namespace.name`, which may be cut. For a
    /// load balancer that Services shared, the group of these Services.
    pub service: String,
    /// The UID of the Service for which the load balancer was made, or the group when several Services shared
    /// the load balancer.
    pub service_uid: String,
    /// Whether the Service still exists. It is then of another type and has no finalizer.
    pub service_exists: bool,
    /// The change that deletes the load balancer, or the reason why this program does not delete it, whoever asks for
    /// it. The load balancer is read again before the change is made, and must not have changed.
    pub removal: Result<Box<dyn Change>, String>,
}

/// The result of one attempt to make a change.
#[derive(Clone, Debug)]
pub enum Applied {
    Done,
    /// The action of the change runs in the cloud. The next change waits until the action has ended.
    Running(ActionId),
    /// The present state may differ from the state that the following changes are based on. The caller must read again
    /// and plan again.
    LookAgain(Option<ActionId>),
    /// The present state may differ from the state for which the next changes were planned. The snapshot shows the
    /// whole load balancer as it will be when the action has ended. If a new plan on this snapshot has no changes,
    /// nothing is read again.
    Shown(Option<ActionId>, Arc<dyn Snapshot>),
    /// The change was not made, although nothing failed, because the state that it is based on has changed. The caller
    /// must read again.
    Overtaken,
}

/// The ID of an action that runs in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionId(pub u64);

impl ShownCertificate {
    /// Returns where the certificate comes from, as a text for display.
    pub fn origin(&self) -> String {
        match &self.secret {
            Some(secret) => format!("from Secret {}", secret.replacen('.', "/", 1)),
            None if self.is_managed => "managed by the cloud".to_owned(),
            None => "uploaded by its owner".to_owned(),
        }
    }
}

impl Orphan {
    /// Returns the Service or the group for which the load balancer was made, e.g. `Service default/web,
    /// which does not exist`.
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
    pub fn new(
        field: impl Into<String>,
        have: Option<String>,
        want: Option<String>,
        source: Source,
    ) -> Field {
        Field { field: field.into(), have, want, source }
    }

    pub fn differs(&self) -> bool {
        self.want.is_some() && self.want != self.have
    }
}

impl TargetHealth {
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
    /// The health of a load balancer's targets. Once some targets were checked, targets that were not checked
    /// yet are ignored.
    BalancerHealth {
        /// No target that was checked is unhealthy.
        All = "all",
        /// Some targets are healthy, and some are not.
        Some = "some",
        /// No target is healthy on all counted ports. Either some targets are unhealthy, or the load balancer
        /// has no targets.
        None = "none",
        /// There are targets, and no health check of them has ended.
        Unknown = "unknown",
    }
}

/// How many targets of a load balancer are healthy. Every text about the health of targets is based on these numbers:
/// `lb list`, `lb inspect`, `status`, `doctor`, the metric and the events. A target is unhealthy whatever the cause is,
/// and whether or not another check reports the cause. [`Balancer::target_counts`] decides which ports are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounts {
    /// The number of targets that are healthy on each of the counted ports.
    pub healthy: usize,
    /// The number of targets that are healthy on at least one of the counted ports, so that this port gets traffic.
    pub serving: usize,
    /// The number of targets that are unhealthy on at least one of the counted ports. A target that is neither healthy
    /// nor unhealthy has a counted port that was not checked yet.
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

/// The results of the health checks of one load balancer.
pub struct SeenHealth {
    pub use_of: BalancerUse,
    /// The counts for the ports of all Services.
    pub counts: TargetCounts,
    /// The counts for the ports of each Service, by the UID of the Service.
    pub of_services: Vec<(String, TargetCounts)>,
}

impl Balancer {
    /// Counts the targets by their health. With the `uid` of a Service, only the ports of that Service are counted, and
    /// otherwise the ports of all Services. The ports of other owners on an external load balancer are never counted.
    pub fn target_counts(&self, uid: Option<&str>) -> TargetCounts {
        let uid = uid.filter(|uid| self.has_port_of(uid));
        let mut counts = TargetCounts { total: self.targets.len(), ..TargetCounts::default() };
        for target in &self.targets {
            let (mut checked, mut healthy, mut unhealthy) = (0, 0, 0);
            for check in target.health.iter().filter(|check| self.is_port_of(check.port, uid)) {
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

    /// Whether the Service has a port on the load balancer. When no port has an owner, as on a load balancer of one
    /// Service, every port belongs to the Service.
    pub fn has_port_of(&self, uid: &str) -> bool {
        let mut owners = self.ports.iter().filter_map(|owner| owner.uid.as_deref()).peekable();
        owners.peek().is_none() || owners.any(|owner| owner == uid)
    }

    /// Whether the port belongs to the Service with this UID, or to any Service when `uid` is `None`. When no port of
    /// the load balancer has an owner, as on the load balancer of one Service, every port belongs to the Service.
    pub fn is_port_of(&self, port: u16, uid: Option<&str>) -> bool {
        let has_owner = |owner: &PortOwner| owner.uid.is_some();
        if !self.ports.iter().any(has_owner) {
            return true;
        }
        let is_it = |owner: &PortOwner| match uid {
            None => has_owner(owner),
            uid => owner.uid.as_deref() == uid,
        };
        self.ports.iter().any(|owner| owner.port == port && is_it(owner))
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
