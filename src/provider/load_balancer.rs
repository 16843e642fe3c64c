//! Load balancers, in the three steps of a controller: the snapshot, the plan and the changes.
//!
//! The provider decides which fields a load balancer has and which changes it needs. The controller decides
//! about order, waits, retries and reports. Snapshots and changes are trait objects, so that only the
//! provider knows their content.

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
use std::time::Duration;

/// The load balancers of a cloud.
pub trait LoadBalancers: Actions {
    /// Returns a snapshot of all load balancers, and of everything else that plans for these Services need. When
    /// something can't be read, the result is an error.
    fn observe(
        &self,
        services: &[&Service],
        urgency: Urgency,
    ) -> Result<Arc<dyn Snapshot>, ProviderError>;

    /// Returns a key that is equal for all Services that use the same load balancer. `None` for a Service with a load
    /// balancer of its own.
    fn group(
        &self,
        namespace: &str,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
    ) -> Option<String>;

    /// Returns how long a departing node stays a target, as the Service asks for it by its own annotations or gets it by
    /// the settings. `None` when a departing node stays a target until other rules remove it. Pure.
    fn departing_delay(
        &self,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
    ) -> Option<Duration>;

    /// Returns the names of the TLS Secrets with the certificates that the ports of the Service must use. Pure.
    fn tls_secrets(&self, service: &Service) -> BTreeSet<String>;

    /// Returns the changes that delete certificates that were uploaded from Secrets, when no load balancer uses them
    /// and no Service wants them. `cluster` must contain all Secrets that Services name, including those that can't be
    /// read. `None` when the project has no certificate that was uploaded from a Secret. Calls the API.
    fn unused_certificates(
        &self,
        cluster: &Cluster,
        urgency: Urgency,
    ) -> Result<Option<Vec<Box<dyn Change>>>, ProviderError>;

    /// Returns the objects of this cluster that are kept although their Service does not exist any more. The result is
    /// for display. Calls the API.
    fn kept(&self, cluster: &Cluster) -> Result<Vec<KeptObject>, ProviderError>;

    /// Returns why this health check of a port of the Service fails while the server runs. Pure.
    fn cause(&self, health: &TargetHealth, service: &Service) -> Cause;

    /// Returns the current usage of a load balancer, for display. Calls the API.
    fn usage(&self, id: u64) -> Result<Usage, ProviderError>;
}

/// The actions of a cloud. An action is the work that the cloud does after it has accepted a change.
pub trait Actions: Send + Sync {
    /// Asks the cloud once about all of these actions, and returns the results of those that have ended.
    fn ended(
        &self,
        actions: &[ActionId],
    ) -> Result<HashMap<ActionId, Result<(), ProviderError>>, ProviderError>;

    /// Whether the caller should wait for actions to end, see [`Gate::may_wait`](super::gate::Gate::may_wait).
    fn may_wait(&self) -> bool {
        true
    }
}

/// The Service to plan for, with the nodes and the cluster that the plan depends on.
#[derive(Clone, Copy)]
pub struct ServiceInput<'a> {
    pub service: &'a Service,
    pub nodes: &'a [OfferedNode],
    pub cluster: &'a Cluster,
}

/// The state of the cloud at one moment. Plans are made from it without further calls.
pub trait Snapshot: Send + Sync {
    /// Whether the snapshot has all the data that plans for this Service need. Pure.
    fn covers(&self, service: &Service) -> bool;

    /// Returns how many calls to the API are needed to read the data of this snapshot again.
    fn calls(&self) -> u32;

    /// Plans the changes that give this Service's load balancer its desired state. Pure.
    fn plan(&self, of: ServiceInput) -> LoadBalancerPlan;

    /// Plans the changes that delete the Service's load balancer, or take the Service off it. Labels show which load
    /// balancer belongs to the Service. An external load balancer that lost its labels is recognised by its ports and
    /// the Service's status. Pure.
    fn plan_removal(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// Returns a load balancer whose labels say that this cluster uses it, or used it, for this Service. Load balancers
    /// that another controller may have created are ignored. Pure.
    fn left_on(&self, service: &Service, cluster: &Cluster) -> Option<Balancer>;

    /// Returns the status of a Service that can't be planned now, with the IP mode `Proxy` for each address. This mode
    /// is needed when the load balancer belongs to several owners. `None` when the status stays as it is. Pure.
    fn status_by_proxy(&self, service: &Service, cluster: &Cluster) -> Option<Vec<Ingress>>;

    /// Plans the changes that end the management of the Service's load balancer. The ports, targets and addresses stay,
    /// and later plans do not change them. Pure.
    fn plan_release(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// Plans the changes that make the Service the owner of this load balancer, as an operator has asked, and give the
    /// load balancer its desired state. Pure.
    fn plan_adoption(&self, id: u64, of: ServiceInput) -> LoadBalancerPlan;

    /// Whether a server of one of the cluster's nodes is a target of any load balancer. This proves that the project
    /// contains servers of this cluster. Pure.
    fn has_server_of(&self, cluster: &Cluster) -> bool;

    /// Returns each load balancer that belongs to another owner, and has the label that allows Services
    /// to use it. Pure.
    fn external(&self) -> Vec<Balancer>;

    /// Returns the kind of use and the health of each load balancer that these Services have. Pure.
    fn health(&self, services: &HashSet<&str>) -> Vec<SeenHealth>;

    /// Returns the certificates of the HTTPS ports of these Services' load balancers. `None` when certificates
    /// were not read. Pure.
    fn certificates(&self, services: &HashSet<&str>) -> Option<Vec<ShownCertificate>>;

    /// Returns each load balancer that has a label with the UID of a Service, in this or another cluster. The text is
    /// the name of the Service or group in the labels. For a Service it is `namespace.name`, possibly shortened. It is
    /// empty when the labels have no name. Pure.
    fn all(&self) -> Vec<(Balancer, String)>;

    /// Returns the key of a group in a form that is equal for all Services of the group. `key` comes from
    /// [`LoadBalancers::group`], and may differ, because one Service names the load balancer by its ID and another
    /// by its name. Pure.
    fn known_group(&self, key: String) -> String;

    /// Returns the load balancers of this cluster whose Service does not exist any more, except those that are
    /// to be kept. Pure.
    fn orphans(&self, cluster: &Cluster) -> Vec<Orphan>;

    /// Returns the load balancers of this cluster that are to be kept although their Service does not
    /// exist any more. Pure.
    fn kept(&self, cluster: &Cluster) -> Vec<KeptObject>;
}

/// The data that must be read again before a plan is applied, see [`LoadBalancerPlan::needs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// All servers, because the plan may add targets, remove them, or change the kind of address by
    /// which they are reached.
    pub servers: bool,
    /// All Services of the cluster. Whether the plan adopts an object depends on whether another
    /// Service owns the object.
    pub services: bool,
    /// Whether the project has a server of one of the cluster's nodes. A plan needs this when no load balancer has a
    /// label with the Service's UID or the name of its group.
    pub project: bool,
}

/// A planned write in the cloud.
pub trait Change: Write + fmt::Debug + Send + Sync {
    /// Makes the change once, without a retry. After an error the caller reads the state again.
    fn apply(&self) -> Result<Applied, ProviderError>;

    /// Returns the kind of the change, which decides about events.
    fn kind(&self) -> ChangeKind {
        ChangeKind::Settings
    }

    /// Whether the change creates or deletes a load balancer or a certificate. Such a change is not made before the UID
    /// of the cluster is known.
    fn creates_or_deletes(&self) -> bool {
        false
    }

    /// Whether the change may be sent while the action of the previous change still runs. When the cloud then answers
    /// `ErrorKind::Busy`, the change is sent again later.
    fn may_follow_at_once(&self) -> bool {
        false
    }

    /// Whether the next changes are made even when this change fails. When the cloud refuses a target or a certificate,
    /// the other ones should still work.
    fn may_fail_alone(&self) -> bool {
        false
    }

    /// Returns the change that replaces this one after it has failed with `ErrorKind::InPart`.
    fn without_parts(&self) -> Option<Box<dyn Change>> {
        None
    }

    /// Whether the change removes the last existing target. It is made only after at least one new target was added.
    fn needs_another_first(&self) -> bool {
        false
    }

    /// Returns the name of the load balancer that the change creates, with the source of the name.
    fn new_name(&self) -> Option<&Sourced<String>> {
        None
    }

    /// Returns the ID of the load balancer and the name of the node, when the change removes a target only because the
    /// node departs.
    fn departed(&self) -> Option<(u64, &str)> {
        None
    }

    /// Returns the finding that is reported about the Service after the change was made.
    fn event(&self) -> Option<Finding> {
        None
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The change adds or removes a target, so it decides which nodes get traffic.
    Targets,
    /// The change deletes the load balancer.
    Removal,
    /// The change takes the Service off a load balancer that stays, or ends the management of the load balancer.
    Release,
    /// Any other change, for example the creation of a load balancer.
    Settings,
}

/// The plan for one Service's load balancer. It contains the present state, the desired state, and the
/// changes that are needed.
#[derive(Debug, Default)]
pub struct LoadBalancerPlan {
    pub outcome: PlanOutcome,
    /// The Service's load balancer. `None` when the Service has none now.
    pub found: Option<Balancer>,
    /// Whether the load balancer in `found`, or one that the Service leaves, has a label with the UID of the Service or
    /// the name of its group. The value is `false` when there is no load balancer, or when only the name or the label
    /// `adopt` connects the load balancer with the Service.
    pub carries_uid: bool,
    /// Every field with its present value, its desired value, and the source of the desired value.
    pub fields: Vec<Field>,
    /// The findings to report. When a part of the Service is refused, one of them reports this, and the rest of
    /// the Service is synced.
    pub findings: Vec<Finding>,
    /// The status of the Service after the changes. `None` when the status is not changed. When the Service needs no
    /// load balancer any more and still has ports on an external one, this status is empty, and is written before the
    /// first change. Otherwise the ports would seem to belong to the Service again after their labels are removed,
    /// because its status would still name the load balancer. In all other cases in which the Service needs no load
    /// balancer any more, the write that removes the finalizer empties the status.
    pub status: Option<Vec<Ingress>>,
    /// The objects that the plan changes or creates, besides `found`. During one sync no other plan may
    /// change or create them.
    pub claims: Vec<Claim>,
    /// The data that must be read from the APIs again, in the present pass, before the plan is applied. The plan itself
    /// was made from data that may be older.
    pub needs: Needs,
    /// The nodes that a rule takes or may take off the targets, although the Service wants them as targets.
    pub left_out: Vec<LeftOutNode>,
}

/// A node that is wanted as a target and is left out, or a departing node that is still a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOutNode {
    pub node: String,
    pub state: LeftOutState,
}

/// What happens to a node that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LeftOutState {
    /// The type of the load balancer allows no more targets.
    Limit,
    /// The node departs, and is no target or is removed by the plan.
    Departing,
    /// The cluster autoscaler is about to delete the node, so it does not become a target.
    ToBeDeleted,
    /// The node departs, and is removed from the targets after this many seconds.
    #[serde(rename_all = "camelCase")]
    Waits { seconds: u64 },
    /// The node departs, and stays a target for this reason.
    Kept(WhyKept),
}

named! {
    /// Why a departing node stays a target although its delay is over.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    WhyKept {
        Health = "without it, too few healthy targets would remain on nodes that do not depart",
        Half = "at most half of the targets are left out",
        Often = "it was removed six times within the last hour",
        Budget = "few calls are left in the project",
    }
}

/// The outcome of a plan: what is changed in the cloud for a Service.
#[derive(Debug)]
pub enum PlanOutcome {
    /// The Service can't be synced. `why` is the finding to report. `problems` lists each problem
    /// of this finding separately.
    Refused { why: Finding, problems: Vec<String> },
    /// Nothing is changed, because the management of the load balancer has ended. The Service gets no finalizer.
    Released,
    /// The Service has no load balancer, and the plan does not create one. A finding says why.
    Waiting,
    /// The changes in their order. Each change is made after the action of the previous change has ended, except a
    /// change that may follow at once. The list is empty when the load balancer has its desired state.
    Change { changes: Vec<Box<dyn Change>>, then: Then },
}

/// What follows after the changes were made and the status of the Service was written.
#[derive(Debug, Default)]
pub enum Then {
    /// Nothing follows, because the load balancer has its desired state.
    #[default]
    Done,
    /// The Service is planned again soon, although nothing failed. A part of it depends on something in the cloud that
    /// takes too long to wait for.
    Again,
    /// More changes follow. They take the Service off load balancers that do not serve it.
    Leave(Vec<Box<dyn Change>>),
    /// More changes follow. They take the Service off its previous load balancers, which have served it until now. The
    /// list is empty while the new load balancer can't serve the Service yet.
    Move(Vec<Box<dyn Change>>),
}

impl Default for PlanOutcome {
    fn default() -> PlanOutcome {
        PlanOutcome::of(Vec::new())
    }
}

impl PlanOutcome {
    /// Returns an outcome with these changes, after which nothing follows.
    pub fn of(changes: Vec<Box<dyn Change>>) -> PlanOutcome {
        let then = Then::Done;
        PlanOutcome::Change { changes, then }
    }

    pub fn refused(why: Finding) -> PlanOutcome {
        let problems = vec![why.message.clone()];
        PlanOutcome::Refused { why, problems }
    }

    /// Returns the changes of [`PlanOutcome::Change`]. They are made before the
    /// changes that [`leaves`](Outcome::leaves) returns.
    pub fn changes(&self) -> &[Box<dyn Change>] {
        match self {
            PlanOutcome::Change { changes, .. } => changes,
            _ => &[],
        }
    }

    /// Returns the changes that take the Service off load balancers. They are made after all other changes, and after
    /// the status of the Service was written.
    pub fn leaves(&self) -> &[Box<dyn Change>] {
        match self {
            PlanOutcome::Change { then, .. } => then.leaves(),
            _ => &[],
        }
    }

    /// Moves the changes of [`PlanOutcome::Change`] out of the outcome. The changes
    /// that [`leaves`](Outcome::leaves) returns stay.
    pub fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            PlanOutcome::Change { changes, .. } => std::mem::take(changes),
            _ => Vec::new(),
        }
    }

    /// Moves the changes that [`leaves`](Outcome::leaves) returns out of the outcome. The Service must be planned again
    /// after these changes, so the outcome stays unfinished.
    pub fn take_leaves(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            PlanOutcome::Change { then: Then::Leave(leaves) | Then::Move(leaves), .. } => {
                std::mem::take(leaves)
            }
            _ => Vec::new(),
        }
    }

    /// Returns why the Service can't be synced, or `None` when it can.
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

    /// Whether the load balancer has its desired state.
    pub fn is_in_order(&self) -> bool {
        self.changes().is_empty() && matches!(self, PlanOutcome::Change { then: Then::Done, .. })
    }

    /// Whether the Service moves to another load balancer. The previous load balancer serves the Service until
    /// the move is finished.
    pub fn moves(&self) -> bool {
        matches!(self, PlanOutcome::Change { then: Then::Move(_), .. })
    }

    pub fn is_released(&self) -> bool {
        matches!(self, PlanOutcome::Released)
    }
}

impl Then {
    /// Adds changes that take the Service off load balancers, and are made last.
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
    /// Turns the plan into one that changes nothing, for this reason.
    pub fn refuse(self, why: Finding) -> LoadBalancerPlan {
        LoadBalancerPlan { outcome: PlanOutcome::refused(why), status: None, ..self }
    }

    /// Removes the changes that create or delete objects, because the UID of the cluster is not known. Without this UID
    /// in its labels, a new object would later seem to belong to another cluster. An old object may belong to another
    /// cluster now. `why` is the finding that reports this.
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

    /// Whether a departing node stays a target although its delay is over.
    pub fn keeps_departing(&self) -> bool {
        self.left_out.iter().any(|node| matches!(node.state, LeftOutState::Kept(_)))
    }

    /// Removes the details that only users read. With twenty load balancers of a hundred targets each, they would take
    /// most of a daemon's memory.
    pub fn drop_details(&mut self) {
        self.fields = Vec::new();
        self.left_out.iter_mut().for_each(|node| node.node = String::new());
        if let Some(found) = &mut self.found {
            found.targets = Vec::new();
            found.ports = Vec::new();
            found.certificates = Vec::new();
        }
    }
}

/// An object that a plan changes or creates. During one sync no other plan may change or create this object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The ID of a load balancer or certificate.
    Id(u64),
    /// The name of a new load balancer.
    Name(String),
    /// The name of a certificate that is uploaded.
    Certificate(String),
}

/// An object in the cloud that is kept although its Service does not exist any more. No controller deletes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptObject {
    /// The kind of the object, `Certificate` or `LoadBalancer`.
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
    /// The name of the group of Services that share the load balancer, as its label says. The form
    /// is `namespace/name`, possibly shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The ports with their owners. Empty when the whole load balancer belongs to one Service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortOwner>,
    /// The addresses, with the public addresses first.
    pub addresses: Vec<std::net::IpAddr>,
    #[serde(flatten)]
    pub health: HealthyTargets,
    pub targets: Vec<Target>,
    #[serde(flatten)]
    pub consumption: Consumption,
    /// The certificates of the HTTPS ports, as far as certificates were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<ShownCertificate>,
}

/// The number of targets that are healthy on every port, and the number of all targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HealthyTargets {
    pub healthy: usize,
    pub total: usize,
}

/// The price and the traffic of a load balancer. A value is `None` when the cloud does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumption {
    /// The monthly price in the currency of the project's owner, without taxes.
    pub monthly_price: Option<f64>,
    /// The outgoing traffic of this month, in bytes.
    pub outgoing_traffic: Option<u64>,
    pub ingoing_traffic: Option<u64>,
    /// The outgoing traffic in a month that the price includes, in bytes.
    pub included_traffic: Option<u64>,
    /// The current usage. It is read only for the command `lb inspect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A certificate that ports of a load balancer use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownCertificate {
    pub id: u64,
    pub name: String,
    pub ports: Vec<u16>,
    /// The time when the certificate expires. `None` when the cloud does not report it.
    #[serde(serialize_with = "as_text")]
    pub not_valid_after: Option<Timestamp>,
    /// The Secret from which the certificate was uploaded, as `namespace.name`. The text comes from a label,
    /// and may be shortened.
    pub secret: Option<String>,
    pub is_managed: bool,
}

named! {
    /// How Services use a load balancer.
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

/// A port of a load balancer, with its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortOwner {
    pub port: u16,
    /// The UID of the Service that owns the port, from a label. `None` when no label names the owner.
    pub uid: Option<String>,
    /// The Service that owns the port, as `namespace/name`. `None` when this cluster has no such Service.
    pub service: Option<String>,
    /// The port on the targets that gets the traffic, usually a node port.
    #[serde(rename = "destinationPort")]
    pub destination: Option<u16>,
}

/// The current usage of a load balancer. A value is `None` when the cloud does not report it.
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
    /// The name of the target's node. When the target is not a node, the cloud's name for it.
    pub name: String,
    pub health: Vec<TargetHealth>,
}

/// The result of the health checks of one port for one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetHealth {
    pub port: u16,
    /// The status in the cloud's own word, e.g. `healthy`.
    pub status: Interned,
    /// The reason that the cloud gives for the status, if any.
    pub detail: Option<Interned>,
    pub http_status: Option<u16>,
    /// Whether the health check asks kube-proxy on the node, and not the port itself.
    #[serde(skip)]
    pub is_of_kube_proxy: bool,
    /// The cause of a failed health check, if it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// Why a target gets no traffic, as text for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    #[serde(skip)]
    pub kind: CauseKind,
    pub message: Interned,
    /// What to do about the cause. The text contains the names of the objects that it is about.
    pub remedy: String,
}

/// The kind of a cause. It decides whether an unhealthy target is reported as a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// The target's server is off. Another finding already reports this.
    ServerOff,
    /// The node runs no pod of a Service with [`TrafficPolicy::Local`](super::TrafficPolicy::Local). The target is
    /// then unhealthy on purpose.
    NoPod,
    /// Any other cause. A person has to find and repair it.
    Other,
}

/// One field of a load balancer, with its values as text for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The name of the field, e.g. `type` or `port 443 health check interval`.
    pub field: String,
    pub have: Option<String>,
    /// The desired value. `None` when the field stays as it is.
    pub want: Option<String>,
    pub source: Source,
}

/// A load balancer of this cluster whose Service does not exist any more, or does not need a load balancer any more.
#[derive(Debug)]
pub struct Orphan {
    pub balancer: Balancer,
    /// The Service for which the load balancer was created, as its labels say. The form is `namespace.name`, possibly
    /// shortened. For a shared load balancer, the name of the group.
    pub service: String,
    /// The UID of the Service for which the load balancer was created. For a shared load balancer, the group.
    pub service_uid: String,
    /// Whether the Service still exists. It then has another type and no finalizer.
    pub service_exists: bool,
    /// The change that deletes the load balancer, or the reason why this program never deletes it. Just before the
    /// change the load balancer is read again. It is not deleted when it has changed.
    pub removal: Result<Box<dyn Change>, String>,
}

/// The result of one attempt to make a change, when no error occurred.
#[derive(Clone, Debug)]
pub enum Applied {
    Done,
    /// The action of the change still runs in the cloud. The next change must wait until the action has ended.
    Running(ActionId),
    /// The change may have altered data on which the next changes are based. The caller must read
    /// everything and plan again.
    LookAgain(Option<ActionId>),
    /// The change may have altered data on which the next changes are based. The snapshot shows the whole load
    /// balancer as it will be after the action has ended. When a new plan from this snapshot has no changes, nothing
    /// must be read again.
    Shown(Option<ActionId>, Arc<dyn Snapshot>),
    /// The change was not made, because the state on which it is based has changed meanwhile. This is not an error. The
    /// caller must read everything and plan again.
    Overtaken,
}

/// The ID of an action in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionId(pub u64);

impl ShownCertificate {
    /// Returns text for display that says where the certificate comes from.
    pub fn origin(&self) -> String {
        match &self.secret {
            Some(secret) => format!("from Secret {}", secret.replacen('.', "/", 1)),
            None if self.is_managed => "managed by the cloud".to_owned(),
            None => "uploaded by its owner".to_owned(),
        }
    }
}

impl Orphan {
    /// Returns text for display about the Service or group for which the load balancer was created, e.g. `Service
    /// default/web, which does not exist`.
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
    /// The health of a load balancer as a whole. A target is healthy when it is healthy on every counted port, and
    /// unhealthy when it is unhealthy on at least one counted port.
    BalancerHealth {
        /// At least one target is healthy, and no target is unhealthy.
        All = "all",
        /// Some targets are healthy, and some are unhealthy.
        Some = "some",
        /// No target is healthy. Some targets are unhealthy, or there are no targets.
        None = "none",
        /// There are targets, but the checks have not yet found any target healthy or unhealthy.
        Unknown = "unknown",
    }
}

/// The number of healthy and unhealthy targets of a load balancer. The commands `lb list`, `lb inspect`, `status` and
/// `doctor`, the metric and the events all use these numbers. An unhealthy target is included whatever the cause is,
/// even when another check reports the cause. [`Balancer::target_counts`] decides which ports are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounts {
    /// The number of targets that are healthy on each of the counted ports.
    pub healthy: usize,
    /// The number of targets that are healthy on at least one of the counted ports, and so get traffic.
    pub serving: usize,
    /// The number of targets that are unhealthy on at least one of the counted ports. When a target is unhealthy on no
    /// port, but was not checked on every port yet, it is included neither here nor in `healthy`.
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

/// The health of one load balancer for all Services together, and for each Service.
pub struct SeenHealth {
    pub use_of: BalancerUse,
    /// The counts for the ports of all Services.
    pub counts: TargetCounts,
    /// The counts for the ports of each Service, by the UID of the Service.
    pub of_services: Vec<(String, TargetCounts)>,
}

impl Balancer {
    /// Counts the healthy and the unhealthy targets. With the `uid` of a Service, only the ports of this Service are
    /// counted. Without `uid`, or when the Service has no port here, the ports of all Services are counted. The ports
    /// of other owners on an external load balancer are never counted.
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

    /// Whether the Service with this UID has a port on the load balancer. When the ports have no owners, the load
    /// balancer belongs to one Service, and every port is a port of this Service.
    pub fn has_port_of(&self, uid: &str) -> bool {
        let mut owners = self.ports.iter().filter_map(|owner| owner.uid.as_deref()).peekable();
        owners.peek().is_none() || owners.any(|owner| owner == uid)
    }

    /// Whether the port belongs to the Service with this UID, or to any Service when `uid` is `None`. When the ports
    /// have no owners, the load balancer belongs to one Service, and the result is always `true`.
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
