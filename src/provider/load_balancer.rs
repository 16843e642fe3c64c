//! Load balancers, as the controller for Services and the provider (the code for one cloud) see them. The provider
//! reads a snapshot of the cloud and makes a plan from it. The controller executes the changes of the plan.
//!
//! The provider decides which fields a load balancer has, which changes it needs, and in which order these changes are
//! made. The controller decides when to send a change, when to wait or try again, and what to report. Snapshots and
//! changes are trait objects, so the controller does not depend on their content.

use super::description::Write;
use super::error::{ProviderError, Urgency};
use super::finding::Finding;
use super::interned::Interned;
use super::service::{Cluster, Ingress, NamespaceAnnotations, OfferedNode, Service, ServiceName};
use super::source::{Source, Sourced};
use crate::text::{named, slashed};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The load balancers of a cloud.
pub trait LoadBalancers: Actions {
    /// Returns a snapshot of all load balancers, and of everything else in the cloud that is needed to plan the load
    /// balancers of these Services. The result is an error when any of this can't be read.
    fn observe(
        &self,
        services: &[&Service],
        urgency: Urgency,
    ) -> Result<Arc<dyn Snapshot>, ProviderError>;

    /// Returns the key of the group to which a Service with these annotations belongs. The Services of a group use the
    /// same load balancer, and have the same key. `None` for a Service with a load balancer of its own.
    fn group(
        &self,
        namespace: &str,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
    ) -> Option<String>;

    /// Returns how long a node stays a target after this program has noticed that the node will stop soon. The
    /// annotations of the Service set this time, or those of its Namespace, or else the setting
    /// `HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY`. `None` when none of them sets it, so such a node stays a target like any
    /// other node. Makes no API call.
    fn departing_delay(
        &self,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
        of_namespace: &NamespaceAnnotations,
    ) -> Option<Duration>;

    /// Whether this annotation can name TLS Secrets. While no annotation of a Service can, [`Self::tls_secrets`] has
    /// nothing to return.
    fn can_name_tls_secrets(&self, annotation: &str) -> bool;

    /// Returns the names of the TLS Secrets whose certificates the ports of the Service must use. Makes no API call.
    fn tls_secrets(&self, service: &Service) -> BTreeSet<String>;

    /// Returns the changes that delete unused certificates. A certificate is unused when it was uploaded from a Secret
    /// of this cluster, no load balancer uses it, and no Service needs it. The caller must put every Secret that a
    /// Service names into `cluster`, even a Secret that can't be read, because the certificate of any other Secret
    /// counts as not needed. `None` when no certificate was uploaded from a Secret of this cluster. Calls the API.
    fn unused_certificates(
        &self,
        cluster: &Cluster,
        urgency: Urgency,
    ) -> Result<Option<Vec<Box<dyn Change>>>, ProviderError>;

    /// Returns the certificates of this cluster whose Service does not exist any more, and which no controller deletes.
    /// The result is for display. Calls the API.
    fn kept(&self, cluster: &Cluster) -> Result<Vec<KeptObject>, ProviderError>;

    /// Returns why this health check fails. The caller asks only about a port that belongs to the Service, and only
    /// when the server of the target is switched on. Makes no API call.
    fn cause(&self, health: &TargetHealth, service: &Service) -> Cause;

    /// Returns the present numbers of connections and requests of a load balancer, for display. Calls the API.
    fn usage(&self, id: u64) -> Result<Usage, ProviderError>;
}

/// The actions of a cloud. An action is the work that the cloud does after it has accepted a change.
pub trait Actions: Send + Sync {
    /// Asks the cloud once about these actions. Returns the results of those actions that have ended.
    fn ended(
        &self,
        actions: &[ActionId],
    ) -> Result<HashMap<ActionId, Result<(), ProviderError>>, ProviderError>;

    /// Whether a caller should wait for actions to end. The result is `false` when the process must end, see
    /// [`Gate::may_wait`](super::gate::Gate::may_wait).
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

/// The load balancers of the cloud, and other data for plans, as they were at one moment. A plan is made from the
/// snapshot without API calls.
pub trait Snapshot: Send + Sync {
    /// Whether this snapshot of the cloud contains all data that a plan for this Service needs. Makes no API call.
    fn covers(&self, service: &Service) -> bool;

    /// Returns a copy of this snapshot with an up-to-date list of load balancer types. Calls the API only if the list
    /// was not read lately. `None` when the cloud has no such list.
    fn with_new_types(&self, _urgency: Urgency) -> Option<Arc<dyn Snapshot>> {
        None
    }

    /// Returns how many API calls are needed to read the data of this snapshot of the cloud again.
    fn calls(&self) -> u32;

    /// Plans the changes that give the load balancer of this Service its desired state. Makes no API call.
    fn plan(&self, of: ServiceInput) -> LoadBalancerPlan;

    /// Plans the changes after which the Service uses no load balancer any more. A load balancer that must stay, e.g.
    /// because other Services use it, only loses the Service's ports and targets. Any other load balancer of the
    /// Service is deleted.
    ///
    /// Labels show which load balancers the Service uses. If somebody has removed the labels of an external load
    /// balancer (one that this program did not create), its ports and the Service's status show that the Service uses
    /// it. Makes no API call.
    fn plan_removal(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// Returns a load balancer of the Service with a label that says that this cluster uses the load balancer, or used
    /// it earlier. `None` when there is none. A load balancer without such a label is ignored, because another
    /// controller may have created it. Makes no API call.
    fn left_on(&self, service: &Service, cluster: &Cluster) -> Option<Balancer>;

    /// Returns a new status for a Service that is too large to be read completely. It has the addresses of the present
    /// status, with `ipMode: Proxy` for each IP address. Nothing else of such a Service is changed. This mode is needed
    /// when the load balancer also has ports of other owners. Without it, kube-proxy sends all traffic from inside the
    /// cluster to these addresses to the pods of this Service, even the traffic for the ports of other owners. `None`
    /// when the status stays as it is. Makes no API call.
    fn status_by_proxy(&self, service: &Service, cluster: &Cluster) -> Option<Vec<Ingress>>;

    /// Plans the changes after which this program does not manage the Service's load balancer any more. The load
    /// balancer keeps its ports, targets and addresses, and later plans do not change them. Makes no API call.
    fn plan_release(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan;

    /// Plans the changes that make the Service the owner of this load balancer, because an operator has asked for this
    /// adoption. The plan also gives the load balancer its desired state. Makes no API call.
    fn plan_adoption(&self, id: u64, of: ServiceInput) -> LoadBalancerPlan;

    /// Plans the write that begins, aborts or shortens the replacement of the Service's load balancer, because an
    /// operator has asked for this. Makes no API call.
    fn plan_replacement(&self, _of: ServiceInput, _order: ReplaceOrder) -> LoadBalancerPlan {
        LoadBalancerPlan::default()
    }

    /// Whether any load balancer has a server of one of the cluster's nodes as a target. Such a target proves that the
    /// token's Hetzner Cloud project contains servers of this cluster. Makes no API call.
    fn has_server_of(&self, cluster: &Cluster) -> bool;

    /// Returns the external load balancers. Somebody other than this program created such a load balancer, and set a
    /// label on it that allows Services to use it. Makes no API call.
    fn external(&self) -> Vec<Balancer>;

    /// Returns each load balancer that these Services use, with the health of its targets, and with the way in which it
    /// is used: by one Service, by several, or as an external load balancer (one that somebody else made). A load
    /// balancer whose label says that this program does not manage it any more is also returned. `services` contains
    /// the UIDs of the Services. Makes no API call.
    fn health(&self, services: &HashSet<&str>) -> Vec<SeenHealth>;

    /// Returns the certificates of the HTTPS ports of the load balancers that these Services use. `services` contains
    /// the UIDs of the Services. `None` when this snapshot of the cloud has no list of certificates, because none was
    /// read. Makes no API call.
    fn certificates(&self, services: &HashSet<&str>) -> Option<Vec<ShownCertificate>>;

    /// Returns each load balancer that has a label with the UID of a Service of any cluster, together with a name from
    /// its labels. This is the name of the Service (as `namespace.name`, possibly shortened), or the name that Services
    /// which share the load balancer have given it. The text is empty when the labels have no name. Makes no API call.
    fn all(&self) -> Vec<(Balancer, String)>;

    /// Converts the key of a group (the Services that share a load balancer) into a key that is the same for all
    /// Services of the group. The keys that [`LoadBalancers::group`] returns differ when one Service names the load
    /// balancer by its ID and another Service names it by its name. Makes no API call.
    fn known_group(&self, key: String) -> String;

    /// Returns the load balancers of this cluster whose Service does not exist any more. Load balancers with the label
    /// that says that they must be kept are not returned. Makes no API call.
    fn orphans(&self, cluster: &Cluster) -> Vec<Orphan>;

    /// Returns the load balancers of this cluster whose Service does not exist any more, and whose label says that they
    /// must be kept. Makes no API call.
    fn kept(&self, cluster: &Cluster) -> Vec<KeptObject>;
}

/// The data that must be read again before a plan is applied, see [`LoadBalancerPlan::needs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether all servers must be read again, because the plan adds or removes targets, or changes the kind of address
    /// by which targets are reached.
    pub servers: bool,
    /// Whether all Services of the cluster must be read again, because the plan depends on which Services exist. For
    /// example, a Service that is not in the cache yet can own the load balancer that the plan adopts.
    pub services: bool,
    /// Whether a proof is needed that the API token is for the right Hetzner Cloud project. The proof is a server of
    /// one of the cluster's nodes in the project. No proof is needed when a load balancer has a label with the UID of
    /// the Service, or with the name of the group of Services that share it.
    pub project: bool,
    /// Whether the list of load balancer types must be read again, because the plan chooses a type from it.
    pub types: bool,
    /// Whether the statuses of all Services must be read, because the plan depends on which addresses they show. They
    /// are then in `Cluster::shown`.
    pub statuses: bool,
}

impl Needs {
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            servers: self.servers || other.servers,
            services: self.services || other.services,
            project: self.project || other.project,
            types: self.types || other.types,
            statuses: self.statuses || other.statuses,
        }
    }

    /// Whether all data in `other` are also in `self`.
    pub fn includes(self, other: Needs) -> bool {
        self.and(other) == self
    }
}

/// What an operator wants to be done about the replacement of a Service's load balancer by a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceOrder {
    /// Begins a replacement: a new load balancer replaces the present one. Before the old load balancer is removed,
    /// both serve the Service for the number of seconds in this variant.
    Begin(u32),
    /// Aborts the replacement: the old load balancer stays, and the new load balancer is deleted when no client needs
    /// it any more.
    Abort,
    /// Ends the time in which the old and the new load balancer both serve the Service. The load balancer that the
    /// status of the Service does not name is then not needed any more.
    Now,
}

/// A planned write in the cloud.
pub trait Change: Write + fmt::Debug + Send + Sync {
    /// Makes the change once, without a retry. After an error the caller reads the state of the cloud again.
    fn apply(&self) -> Result<Applied, ProviderError>;

    /// Returns the kind of the change. It decides which events are written.
    fn kind(&self) -> ChangeKind {
        ChangeKind::Settings
    }

    /// Whether the change creates or deletes a load balancer or a certificate. While the UID of the cluster is not
    /// known, such changes are not made.
    fn creates_or_deletes(&self) -> bool {
        false
    }

    /// Whether the change can be sent while the action of the previous change still runs. If the cloud refuses such a
    /// change with `ErrorKind::Busy`, the change is sent again later.
    fn may_follow_at_once(&self) -> bool {
        false
    }

    /// Whether the changes after this one are made even when this change fails. For example, when the API refuses one
    /// target, the other targets must still be added.
    fn may_fail_alone(&self) -> bool {
        false
    }

    /// Whether the change is made only when all changes before it were made, because one of them makes room for it.
    fn needs_all_before(&self) -> bool {
        false
    }

    /// Returns details for the event that announces the change before it is made. `None` when this event has
    /// no details.
    fn announcement(&self) -> Option<&str> {
        None
    }

    /// Returns the smaller change that is made when the API refuses a part of this change. For example, the smaller
    /// change creates a load balancer without ports and targets, which other changes then add one by one. `None` when
    /// there is no smaller change.
    fn without_parts(&self) -> Option<Box<dyn Change>> {
        None
    }

    /// Whether the change removes a target, while the plan replaces all existing targets by new ones. When the API has
    /// refused some of the new targets, such a change is made only if at least one new target was added. So the load
    /// balancer always has a target.
    fn needs_another_first(&self) -> bool {
        false
    }

    /// Returns the name of the load balancer that the change creates, and what sets this name, e.g. an annotation.
    /// `None` when the change creates no load balancer.
    fn new_name(&self) -> Option<&Sourced<String>> {
        None
    }

    /// Returns the target that this change removes from a load balancer, although Services still use the load balancer
    /// and still want the target's node as a target. There are two reasons for such a removal: the node will stop soon,
    /// or a node with pods becomes a target instead and the load balancer has no room for both nodes. Returns `None`
    /// for any other change.
    fn soft_removal(&self) -> Option<SoftRemoval<'_>> {
        None
    }

    /// Returns the finding (a message for the operator) that is reported about the Service after the change was made.
    /// `None` when nothing is reported.
    fn event(&self) -> Option<Finding> {
        None
    }
}

/// The greatest number of targets of one load balancer that are exchanged in a minute. In an exchange, a target whose
/// node runs no pods is removed, so that a node with pods can become a target instead. [`EXCHANGES_AT_MOST`] is the
/// limit for all load balancers together.
pub const EXCHANGES_OF_BALANCER: usize = 5;
pub const EXCHANGES_AT_MOST: usize = 10;

/// The removal of a target although Services still want its node as a target. Either the node will stop soon, or the
/// target must make room for a node that runs pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftRemoval<'a> {
    /// The ID of the load balancer.
    pub balancer: u64,
    pub node: &'a str,
    /// Whether the target is removed to make room for a node with pods, and not because its own node will stop soon.
    /// The number of such removals in a minute is limited.
    pub is_exchange: bool,
}

/// The kind of a planned change in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The change adds or removes a target, so it changes which nodes get traffic from the load balancer.
    Targets,
    /// The change deletes the load balancer.
    Removal,
    /// The change removes the Service from a load balancer that is not deleted, or has the effect that this program
    /// does not manage the load balancer any more.
    Release,
    /// The change does not add or remove a target, does not delete the load balancer, and does not remove the Service
    /// from it. It is, for example, the creation of a load balancer, or a change of a port.
    Settings,
}

/// The plan for one Service's load balancer. It contains the present state, the desired state, and the
/// changes that are needed.
#[derive(Debug, Default)]
pub struct LoadBalancerPlan {
    pub outcome: PlanOutcome,
    /// The Service's load balancer. `None` when the Service has none now.
    pub found: Option<Balancer>,
    /// Whether a load balancer has a label which says that the Service owns the load balancer, or ports on it. Such a
    /// label has the UID of the Service, or the name of the group of Services that share the load balancer. A load
    /// balancer from which this plan removes the Service counts, too. `false` when the Service has no load balancer, or
    /// when it is about to take over a load balancer that has no such label yet.
    pub carries_uid: bool,
    /// Every field of the load balancer with its present value, its desired value, and what sets the desired value,
    /// e.g. an annotation.
    pub fields: Vec<Field>,
    /// The findings (messages for the operator) to report. When a part of what the Service asks for is not possible,
    /// e.g. one of its ports, a finding says so, and the other parts are still synced.
    pub findings: Vec<Finding>,
    /// The new status of the Service, or `None` when the plan does not set the status.
    ///
    /// When the Service needs no load balancer any more, its status is usually emptied by the write that removes the
    /// finalizer. When the load balancer is external (created by somebody else), the status is emptied earlier, before
    /// the plan removes the labels of the Service's ports. Otherwise ports without a label would still count as ports
    /// of the Service, because its status names their load balancer.
    pub status: Option<Vec<Ingress>>,
    /// The objects in the cloud that the plan changes or creates, except the load balancer in `found`. While this plan
    /// is executed, no other plan is allowed to change or create these objects.
    pub claims: Vec<Claim>,
    /// The data that must be read from the APIs again before the changes are made. The plan itself was made from cached
    /// data, which can be older.
    pub needs: Needs,
    /// The nodes that the Services want as targets, but that are not targets after this plan, or may not be targets
    /// much longer. For example, the type of the load balancer allows no more targets, or the node will stop soon.
    pub left_out: Vec<LeftOutNode>,
    /// The Services whose EndpointSlices must be read, because nodes that run pods of these Services become targets
    /// before other nodes. The list is empty when the Services do not ask for this, or when the load balancer can have
    /// all wanted nodes as targets.
    pub pods_of: Vec<ServiceName>,
    /// The nodes that are wanted as targets and run pods of the Services in `pods_of`, sorted by name. These Services
    /// prefer nodes with pods. The list is empty while the EndpointSlices of these Services were not read.
    pub with_pods: Vec<NodeWithPods>,
    /// The numbers of targets, ports and certificates by which the type is chosen. `None` when this program does not
    /// choose the type of the load balancer.
    pub sizing: Option<Sizing>,
    /// The replacement of the load balancer by a new one. `None` when it is not being replaced.
    pub replacement: Option<Box<ReplacementShown>>,
}

/// How far the replacement of a load balancer is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplacementShown {
    /// A word for the state: `replacing`, `overlapping` or `aborting`.
    pub state: &'static str,
    /// The old or the new load balancer of the replacement: the one whose addresses are not in the status of the
    /// Service. `None` when the new load balancer does not exist yet.
    pub other: Option<Balancer>,
    /// The time until which the old and the new load balancer both serve the Service. `None` when it is not known yet.
    #[serde(serialize_with = "as_text")]
    pub ends: Option<Timestamp>,
}

/// The numbers by which the type of a load balancer is chosen with `type: auto`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sizing {
    /// The number of targets for which the load balancer needs room: the nodes that its Services want as targets, ready
    /// or not, and the targets that this program must not remove, e.g. because somebody else has added them.
    pub targets: usize,
    pub ports: usize,
    pub certificates: usize,
    /// A load balancer type that is large enough and costs less than the present type. `None` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cheaper: Option<CheaperType>,
}

/// A type of load balancer that costs less than the present one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheaperType {
    #[serde(rename = "type")]
    pub kind: String,
    /// The monthly price without taxes, in the currency of the Hetzner account.
    pub monthly_price: f64,
}

/// A node that Services want as a target of a load balancer, and on which pods of these Services run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWithPods {
    pub node: String,
    /// Whether at least one pod on the node is ready. Only the pods of the load balancer's Services count. `false`
    /// means that these pods still serve requests, but are about to end.
    pub is_ready: bool,
    /// Whether the node is or becomes a target.
    pub is_target: bool,
}

/// A node that the Services want as a target, but that is not a target, or may soon lose its place as a target. For
/// example, the load balancer's type allows no more targets, or the node will stop soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOutNode {
    pub node: String,
    pub state: LeftOutState,
}

/// The reason why a node is not a target, or will soon not be a target any more, and what the plan does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LeftOutState {
    /// The type of the load balancer allows no more targets.
    Limit,
    /// The node will stop soon. It is not a target, or the plan removes it from the targets.
    Departing,
    /// The cluster autoscaler is about to delete the node, so it does not become a target.
    ToBeDeleted,
    /// The node will stop soon, and is still a target. After this many seconds it is removed from the targets, if
    /// enough healthy targets are left.
    #[serde(rename_all = "camelCase")]
    Waits { seconds: u64 },
    /// The node will stop soon, but stays a target for the reason in this variant.
    Kept(WhyKept),
    /// The node runs no pods of the load balancer's Services. It is removed from the targets, and a node with such pods
    /// becomes a target instead.
    Exchanged,
    /// The node runs no pods of the load balancer's Services. It should make room for a node with such pods, because
    /// the load balancer's type allows no more targets. It nevertheless stays a target, for the reason in this variant.
    Stays(WhyKept),
}

impl LeftOutState {
    /// Returns a text for users that says whether the node is a target of the load balancer, and why.
    pub fn text(self) -> String {
        match self {
            LeftOutState::Limit => {
                "no target, because the load balancer's type takes no more targets".to_owned()
            }
            LeftOutState::Departing => "no target, because the node will stop soon".to_owned(),
            LeftOutState::ToBeDeleted => {
                "no target, because the cluster autoscaler will delete the node".to_owned()
            }
            LeftOutState::Waits { seconds } => {
                format!(
                    "still a target. The node will stop soon, so ccm removes the target in at most {seconds} s, if \
                     enough other targets are healthy"
                )
            }
            LeftOutState::Kept(why) => {
                format!("stays a target, although the node will stop soon, because {}", why.name())
            }
            LeftOutState::Exchanged => {
                "no target, because the load balancer's type takes no more targets, and ccm prefers nodes that run pods \
                 of the load balancer's Services. This node runs none"
                    .to_owned()
            }
            LeftOutState::Stays(why) => {
                format!(
                    "stays a target for now. The node runs no pods of the load balancer's Services, and should make \
                     room for a node with such pods, but {}",
                    why.name()
                )
            }
        }
    }
}

named! {
    /// Why a target that should be removed stays for now. It should be removed because its node will stop soon and the
    /// time of the annotation `departing-delay` is over, or because it should make room for a node with pods.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    WhyKept {
        Health = "too few healthy targets would be left on other nodes",
        Half = "ccm removes at most half of all targets for this reason",
        Often = "ccm removes the same target at most six times an hour",
        Budget = "few API calls are left under the rate limit of the project",
        Unknown = "the Namespace's default of annotation departing-delay is not known (another warning of the Service says why)",
        Recent = "ccm waits until the node has run no such pods for a minute",
        Pace = "ccm exchanges at most 5 targets of one load balancer in a minute, and at most 10 targets of all load balancers together",
    }
}

/// The outcome of a plan. It says what is done in the cloud for a Service.
#[derive(Debug)]
pub enum PlanOutcome {
    /// Nothing is changed, because the Service can't be synced. `why` is the finding (a message for the operator) to
    /// report. When this message is about several problems, `problems` has a text for each of them.
    Refused { why: Finding, problems: Vec<String> },
    /// Nothing is changed, because a label of the load balancer says that this program does not manage it any more for
    /// this Service. The Service gets no finalizer.
    Released,
    /// Nothing is changed. The Service has no load balancer, and none can be created now. A finding (a message for the
    /// operator) says why.
    Waiting,
    /// `changes` are made in their order. Before each change the action of the previous change must have ended, except
    /// when [`Change::may_follow_at_once`] returns `true`. The list is empty when the load balancer has its desired
    /// state. `then` says what is done after the changes.
    Change { changes: Vec<Box<dyn Change>>, then: Then },
}

/// What is done after the changes were made and the status of the Service was written.
#[derive(Debug, Default)]
pub enum Then {
    /// After the changes and the write of the status nothing more has to be done, because the load balancer then has
    /// its desired state.
    #[default]
    Done,
    /// The Service is planned again soon, although nothing failed. A part of the desired state is not possible yet,
    /// e.g. because a managed certificate is not issued yet. The present plan ends without waiting for that.
    Again,
    /// The Service does not move to another load balancer. The changes in this variant are made last. They remove the
    /// Service from load balancers that send no traffic to it, or are the next step in the replacement of its load
    /// balancer by a new one.
    Leave(Vec<Box<dyn Change>>),
    /// The Service moves to a new load balancer. These changes are made last, and remove the Service from its previous
    /// load balancers, which have served it until now. The list is empty while the new load balancer can't serve the
    /// Service yet.
    Move(Vec<Box<dyn Change>>),
}

impl Default for PlanOutcome {
    fn default() -> PlanOutcome {
        PlanOutcome::of(Vec::new())
    }
}

impl PlanOutcome {
    /// Returns the result of a plan that consists of these changes. They give the load balancer its desired state, so
    /// that the Service need not be planned again.
    pub fn of(changes: Vec<Box<dyn Change>>) -> PlanOutcome {
        let then = Then::Done;
        PlanOutcome::Change { changes, then }
    }

    pub fn refused(why: Finding) -> PlanOutcome {
        let problems = vec![why.message.clone()];
        PlanOutcome::Refused { why, problems }
    }

    /// Returns the changes that are made before the status of the Service is written. The changes that take the Service
    /// off its old load balancers are made later. They are not included here, but in [`leaves`](PlanOutcome::leaves).
    pub fn changes(&self) -> &[Box<dyn Change>] {
        match self {
            PlanOutcome::Change { changes, .. } => changes,
            _ => &[],
        }
    }

    /// Returns the changes that remove the Service from load balancers that it does not need any more. These changes
    /// are made last, after the status of the Service was written.
    pub fn leaves(&self) -> &[Box<dyn Change>] {
        match self {
            PlanOutcome::Change { then, .. } => then.leaves(),
            _ => &[],
        }
    }

    /// Returns the changes that are made before the status of the Service is written, and removes these changes from
    /// `self`. The changes that are made after that stay in `self`.
    pub fn take_changes(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            PlanOutcome::Change { changes, .. } => std::mem::take(changes),
            _ => Vec::new(),
        }
    }

    /// Removes from this outcome the changes that take the Service off load balancers that it does not need any more,
    /// and returns these changes. [`is_unfinished`](PlanOutcome::is_unfinished) still returns `true`, because the
    /// Service must be planned again after these changes.
    pub fn take_leaves(&mut self) -> Vec<Box<dyn Change>> {
        match self {
            PlanOutcome::Change { then: Then::Leave(leaves) | Then::Move(leaves), .. } => {
                std::mem::take(leaves)
            }
            _ => Vec::new(),
        }
    }

    /// Returns the reason why the Service can't be synced, or `None` when it can be synced.
    pub fn obstacle(&self) -> Option<&Finding> {
        match self {
            PlanOutcome::Refused { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Whether something is left to do after the changes of this plan, e.g. because a certificate is not issued yet, so
    /// that the Service must be planned again soon.
    pub fn is_unfinished(&self) -> bool {
        matches!(self, PlanOutcome::Change { then, .. } if !matches!(then, Then::Done))
    }

    /// Whether the load balancer already has its desired state.
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
    /// Adds `more` to the changes that are made last. They remove the Service from load balancers that it does not need
    /// any more.
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
    /// Turns the plan into a plan that changes nothing. `why` is the reason, which is reported.
    pub fn refuse(self, why: Finding) -> LoadBalancerPlan {
        LoadBalancerPlan { outcome: PlanOutcome::refused(why), status: None, ..self }
    }

    /// Removes the changes that create or delete objects, because the UID of the cluster is not known. The labels of a
    /// new object would lack this UID, so the object would later seem to belong to another cluster. An existing object
    /// must not be deleted, because it may belong to another cluster. `why` is added to the findings of the plan, which
    /// are messages for the operator.
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

    /// Whether the plan keeps a target that should be removed, because its node will stop soon or because a node with
    /// pods should take its place. The Service is then planned again soon. `false` when the target is only kept until a
    /// fixed time is over: the Service's `departing-delay`, or the minute after the target's node last ran pods.
    pub fn keeps_targets(&self) -> bool {
        let is_kept = |state| match state {
            LeftOutState::Kept(_) => true,
            LeftOutState::Stays(why) => why != WhyKept::Recent,
            _ => false,
        };
        self.left_out.iter().any(|node| is_kept(node.state))
    }

    /// Whether this node will stop soon, and therefore is no target after this plan or will be removed from the targets
    /// later.
    pub fn departs(&self, node: &str) -> bool {
        let departs = |state| {
            matches!(
                state,
                LeftOutState::Departing | LeftOutState::Waits { .. } | LeftOutState::Kept(_)
            )
        };
        self.left_out.iter().any(|left| left.node == node && departs(left.state))
    }

    /// Removes the data of the load balancer that only people read: its fields, targets, ports and certificates. For
    /// twenty load balancers with a hundred targets each, these lists would take most of the daemon's memory.
    pub fn drop_details(&mut self) {
        self.fields = Vec::new();
        self.replacement = None;
        self.left_out.iter_mut().for_each(|node| node.node = String::new());
        self.with_pods = Vec::new();
        if let Some(found) = &mut self.found {
            found.targets = Vec::new();
            found.ports = Vec::new();
            found.certificates = Vec::new();
        }
    }
}

/// An object that a plan changes or creates. While this plan is executed, no other plan is allowed to change or create
/// the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The existing load balancer or certificate with this ID.
    Id(u64),
    /// The name of a load balancer that the plan creates.
    Name(String),
    /// The name of a certificate that the plan uploads.
    Certificate(String),
}

/// A certificate or load balancer whose Service does not exist any more, and which stays because that Service asked to
/// keep it. No controller deletes such an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptObject {
    /// The kind of the object, `Certificate` or `LoadBalancer`.
    pub kind: &'static str,
    pub id: u64,
    pub name: String,
    /// The domain names of the certificate. The list is empty when this object is a load balancer.
    pub domains: Vec<String>,
    /// The addresses of the object, if it is a load balancer. The list is empty if it is a certificate, which has no
    /// addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<std::net::IpAddr>,
}

/// A load balancer, with the data that commands display.
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
    /// The name of the group of Services that share the load balancer, from a label of the load balancer. The form is
    /// `namespace/name`, possibly shortened. `None` when no label names a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The ports with their owners. The list is empty when one Service owns the whole load balancer, and when this
    /// program does not manage the load balancer any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortOwner>,
    /// The addresses of the load balancer, with the public addresses first.
    pub addresses: Vec<std::net::IpAddr>,
    #[serde(flatten)]
    pub health: HealthyTargets,
    pub targets: Vec<Target>,
    #[serde(flatten)]
    pub consumption: Consumption,
    /// The certificates of the HTTPS ports. A certificate that was not read from the API is not in this list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<ShownCertificate>,
}

/// The number of targets that are healthy on every port of the load balancer, and the number of all targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HealthyTargets {
    pub healthy: usize,
    pub total: usize,
}

/// The price and the traffic of a load balancer. A value is `None` when the cloud does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Consumption {
    /// The monthly price without taxes, in the currency of the Hetzner account.
    pub monthly_price: Option<f64>,
    /// The outgoing traffic of the present month, in bytes. `None` when the cloud does not report it.
    pub outgoing_traffic: Option<u64>,
    pub ingoing_traffic: Option<u64>,
    /// The outgoing traffic, in bytes, that is included in the price of a month.
    pub included_traffic: Option<u64>,
    /// The present usage, e.g. open connections. Only the command `lb inspect` reads it. For other commands and for the
    /// daemon this is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Consumption {
    /// Returns which share of the included traffic of the present month was used. `None` when it is not known.
    pub fn traffic_ratio(&self) -> Option<f64> {
        let (used, included) = self.outgoing_traffic.zip(self.included_traffic)?;
        (included > 0).then(|| used as f64 / included as f64)
    }
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
    /// The Secret from which the certificate was uploaded, as `namespace.name`. The text comes from a label, and is
    /// sometimes shortened. `None` when the certificate was not uploaded from a Secret.
    pub secret: Option<String>,
    pub is_managed: bool,
}

named! {
    /// The way in which Services use a load balancer.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "lowercase")]
    BalancerUse {
        /// One Service owns the load balancer.
        #[default]
        Own = "own",
        /// Several Services share the load balancer.
        Shared = "shared",
        /// Somebody other than this program created the load balancer, and allows Services to use it.
        External = "external",
        /// This program managed the load balancer earlier. A label says that this management was ended, so this program
        /// does not change the load balancer any more.
        Released = "released",
    }
}

/// A port of a load balancer, with the Service that owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortOwner {
    pub port: u16,
    /// The UID of the Service that owns the port, from a label of the load balancer. `None` when no label names the
    /// owner.
    pub uid: Option<String>,
    /// The Service that owns the port, as `namespace/name`. `None` when this cluster has no such Service.
    pub service: Option<String>,
    /// The port on the targets to which the load balancer sends the traffic. It is usually a node port. `None` when the
    /// cloud does not report it.
    #[serde(rename = "destinationPort")]
    pub destination: Option<u16>,
}

/// The present numbers of connections and requests of a load balancer. A value is `None` when the cloud does not report
/// it.
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
    /// The target as text for users. This is the name of its node or, when the target is no node of the cluster, its
    /// ID, address or label selector.
    pub name: String,
    pub health: Vec<TargetHealth>,
}

/// The result of the health checks of one target on one port of the load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetHealth {
    pub port: u16,
    /// The status that the API reports, e.g. `healthy`.
    pub status: Interned,
    /// The reason that the API gives for the target's `status`. `None` when it gives no reason.
    pub detail: Option<Interned>,
    pub http_status: Option<u16>,
    /// Whether the load balancer checks the target by a request to kube-proxy on the node. Otherwise it checks another
    /// port of the node, usually the node port of the Service.
    #[serde(skip)]
    pub is_of_kube_proxy: bool,
    /// Why the health check fails, if the cause was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// Why a target gets no traffic, as text for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    #[serde(skip)]
    pub kind: CauseKind,
    pub message: Interned,
    /// What to do so that the target gets traffic again, as text for users. The text contains the names of the objects
    /// concerned.
    pub remedy: String,
}

/// The kind of the cause of an unhealthy target. It decides whether users get a message about the target, and whether
/// this message also says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// The server of the target is off. A message about the load balancer does not say what to do about this, because
    /// the check `servers` of `ccm doctor` says it.
    ServerOff,
    /// The Service has [`TrafficPolicy::Local`](super::TrafficPolicy::Local), and the node runs no pod of the Service.
    /// The target is then unhealthy on purpose.
    NoPod,
    /// The target is unhealthy for a cause that is not one of the other variants here. A person has to find and repair
    /// it.
    Other,
}

/// One field of a load balancer, with its values as text for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The name of the field, e.g. `type` or `port 443 health check interval`.
    pub field: String,
    pub have: Option<String>,
    /// The value that the field should have. `None` when any value is right, so that the plan does not change the
    /// field.
    pub want: Option<String>,
    pub source: Source,
}

/// A load balancer of this cluster whose Service does not exist any more, or has another type than LoadBalancer.
#[derive(Debug)]
pub struct Orphan {
    pub balancer: Balancer,
    /// The name of the Service for which the load balancer was created, from its labels. The form is `namespace.name`,
    /// possibly shortened. For a load balancer that several Services share, this is the name of their group.
    pub service: String,
    /// The UID of the Service for which the load balancer was created. A load balancer that several Services share has
    /// no such UID, and this field then has the name of their group.
    pub service_uid: String,
    /// Whether the Service still exists. It then has another type than LoadBalancer and no finalizer, so it needs no
    /// load balancer any more. `false` means that the Service was deleted.
    pub service_exists: bool,
    /// The change that deletes the load balancer, or the reason why this program never deletes it. Just before the
    /// deletion, the change reads the load balancer again. When the load balancer has changed in the meantime, it is
    /// not deleted.
    pub removal: Result<Box<dyn Change>, String>,
}

/// The result of an attempt to make a change, when there was no error.
#[derive(Clone, Debug)]
pub enum Applied {
    Done,
    /// The cloud accepted the change, and its action still runs. The next change must wait until the action has ended.
    Running(ActionId),
    /// The change was made. The next changes of the plan may be wrong now, because they depend on its result, e.g. on
    /// new addresses of the load balancer. The caller must read everything again and make a new plan. The ID is that of
    /// the change's action, if it still runs.
    LookAgain(Option<ActionId>),
    /// The change was made. The next changes of the plan may be wrong now, because they depend on its result, e.g. on
    /// the new load balancer. The caller makes a new plan from the snapshot in this variant. The snapshot shows the
    /// load balancer as it will be after the action has ended, so the API need not be read again when the new plan has
    /// no changes. The ID is that of the change's action, if it still runs.
    Shown(Option<ActionId>, Arc<dyn Snapshot>),
    /// The change was not made, because the object in the cloud has changed since the plan was made. This is not an
    /// error. The caller must read everything again and make a new plan.
    Overtaken,
}

/// The ID of an action in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionId(pub u64);

impl ShownCertificate {
    /// Returns where the certificate comes from, as text for display: from a Secret, from the cloud, which manages it,
    /// or from its owner, who uploaded it.
    pub fn origin(&self) -> String {
        match &self.secret {
            Some(secret) => format!("from Secret {}", slashed(secret)),
            None if self.is_managed => "managed by the cloud".to_owned(),
            None => "uploaded by its owner".to_owned(),
        }
    }
}

impl Orphan {
    /// Returns the Service for which the load balancer was created, or the group of Services that share it, as text for
    /// display, e.g. `Service default/web, which does not exist`.
    pub fn made_for(&self) -> String {
        let name = slashed(&self.service);
        match (self.balancer.use_of, self.service_exists) {
            (BalancerUse::Shared, false) => {
                format!("the Services that share it under the name {name}, none of which exists")
            }
            (BalancerUse::Shared, true) => {
                format!(
                    "the Services that share it under the name {name}, of which at least one exists, but \
                     none is of type LoadBalancer any more"
                )
            }
            (_, false) => format!("Service {name}, which does not exist"),
            (_, true) => format!("Service {name}, which is not of type LoadBalancer any more"),
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
    /// A summary of the health of all targets of a load balancer, on the ports of one Service or on the ports of all
    /// Services, see [`Balancer::target_counts`]. A target is healthy when it is healthy on all these ports, and
    /// unhealthy when it is unhealthy on at least one of these ports.
    BalancerHealth {
        /// At least one target is healthy, and no target is unhealthy.
        All = "all",
        /// Some targets are healthy, and some are unhealthy.
        Some = "some",
        /// No target is healthy. Some targets are unhealthy, or there are no targets.
        None = "none",
        /// There are targets, but for each of them the cloud has no result of some health check yet. So no target is
        /// known to be healthy, and none is known to be unhealthy.
        Unknown = "unknown",
    }
}

/// The numbers of healthy and unhealthy targets of a load balancer. They are counted on the ports of one Service or on
/// the ports of all Services, see [`Balancer::target_counts`]. All commands, metrics and events about the health of
/// load balancers use these numbers. An unhealthy target is counted even when another message reports the cause, e.g.
/// that its server is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounts {
    /// The number of healthy targets. A target is healthy when its health checks succeed on all ports that are
    /// considered. These are either the ports of one Service, or the ports of all Services on the load balancer.
    pub healthy: usize,
    /// The number of targets that get traffic, because they are healthy on at least one port of the Service or, when
    /// all Services are considered, on at least one port of any Service.
    pub serving: usize,
    /// The number of targets that are unhealthy on at least one of the considered ports. These are either the ports of
    /// one Service, or the ports of all Services on the load balancer. A target is not counted on a port for which the
    /// cloud has no result of its health check yet.
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
            0 => f.write_str("the load balancer has no target"),
            total => write!(f, "{} of {total} targets healthy", self.healthy),
        }
    }
}

/// The health of one load balancer, once for all Services together and once for each Service.
pub struct SeenHealth {
    pub use_of: BalancerUse,
    /// The numbers of healthy and unhealthy targets, judged by the health checks of the ports of all Services.
    pub counts: TargetCounts,
    /// The share of the included traffic of the month that was used, see [`Consumption::traffic_ratio`].
    pub traffic_ratio: Option<f64>,
    /// Whether this load balancer is the new one in a replacement that has not ended. The old load balancer still
    /// exists, or has just been removed.
    pub is_replacing: bool,
    /// The UID of each Service, and the numbers of healthy and unhealthy targets, counted on the ports of this Service
    /// only.
    pub of_services: Vec<(String, TargetCounts)>,
}

impl Balancer {
    /// Counts the healthy and the unhealthy targets. When the Service with the UID `uid` has ports on this load
    /// balancer, only the health checks of these ports are considered. When it has none, or when `uid` is `None`, the
    /// health checks of the ports of all Services are considered. Ports that do not belong to a Service are never
    /// considered.
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

    /// Whether the Service with this UID has a port on this load balancer. Labels name the owners of the ports. When no
    /// label names an owner, the result is `true`, because only one Service uses such a load balancer. The caller asks
    /// only about a Service that uses the load balancer.
    pub fn has_port_of(&self, uid: &str) -> bool {
        let mut owners = self.ports.iter().filter_map(|owner| owner.uid.as_deref()).peekable();
        owners.peek().is_none() || owners.any(|owner| owner == uid)
    }

    /// Whether the port belongs to the Service with this UID, or to any Service when `uid` is `None`. When no label
    /// names the owner of any port, only one Service uses the load balancer, and the result is `true` for every port.
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
