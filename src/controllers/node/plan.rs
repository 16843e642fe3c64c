//! Plans what should be done to nodes. A plan depends only on the nodes and servers that were read. It contains the
//! writes, and for each field of the node the present and the desired value.

use super::desired::{self, FromServer};
use super::zone::ZoneState;
use crate::cache::{Covers, ServerNeeds};
use crate::controllers::matching::{
    ForeignMatch, MatchIndex, MatchOutcome, MatchedBy, UNINITIALIZED, is_uninitialized,
};
use crate::controllers::node_writes::Values;
use crate::controllers::{NodeChange, Plan};
use crate::kube::{KubeNode, ObjectReference, Taint};
use crate::provider::variables::{ROBOT_ENABLED, ROBOT_PASSWORD, ROBOT_USER};
use crate::provider::{
    self, AddressKind, Description, Field, Finding, INTERNAL_IP, Instance, InstanceId, Instances,
    Metadata, NodeAddress, Provider, ProviderError, ProviderId, Reason, SERVER_LABELS, Servers,
    Source, Sourced, WriteVerb,
};
use crate::text::shell_command;
use jiff::Timestamp;
use std::borrow::Borrow;
use std::time::{Duration, Instant};

const UNINITIALIZED_TAINT: &str = "taint uninitialized";

const DELETE_NODE: &str = "kubectl delete node";

/// The plan for one node: the writes, and the facts from which they were planned.
pub type NodePlan = Plan<NodeChange, NodeFacts>;

/// The facts from which the writes to a node were planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node for which the plan was made.
    pub node: KubeNode,
    pub server: ServerMatch,
    /// Whether the node is of another provider and would be a target with `HCLOUD_LOAD_BALANCERS_FOREIGN_NODES=match`.
    pub would_match: bool,
    /// The addresses of the node, each with its present value, its desired value, and where the desired value comes
    /// from.
    pub address_fields: Vec<Field>,
    /// The labels, the provider ID and the taints, each with its present value, its desired value, and where the
    /// desired value comes from.
    pub other_fields: Vec<Field>,
    /// The zone labels of an initialised node whose provider ID names its server. `None` for any other node.
    pub zone: Option<ZoneState>,
}

/// The result of the search for the server of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerMatch {
    Matched(Box<Instance>, MatchedBy),
    Gone(InstanceId),
    Foreign,
    /// The node is of another provider, and this program only uses it as a target of load balancers.
    TargetOnly(Box<ForeignMatch>),
    Unknown,
    #[default]
    Unmatched,
    /// It is not known which server the node has, because an API that may know the server did not answer.
    Unclear,
}

impl ServerMatch {
    pub fn is_off(&self) -> bool {
        matches!(self, ServerMatch::Matched(instance, _) if instance.is_off)
    }

    /// Returns what was found about the server of a node of another provider, when such nodes can be targets of load
    /// balancers. `None` for any other node.
    pub fn foreign(&self) -> Option<&ForeignMatch> {
        match self {
            ServerMatch::TargetOnly(found) => Some(found),
            _ => None,
        }
    }

    /// Whether the node is of another provider and can be a target.
    pub fn is_target_only(&self) -> bool {
        self.foreign().is_some_and(|found| found.obstacle.is_none())
    }
}

/// Makes the plans for all nodes. `servers` are all servers. When a new node has no matching server, and has not been
/// ready since a time before `overdue`, its plan says that its machine probably does not exist any more.
pub fn plan<'a, N: Borrow<KubeNode>>(
    nodes: &'a [N],
    servers: impl Into<Servers<'a>>,
    provider: &'a dyn Provider,
    overdue: Timestamp,
) -> Vec<NodePlan> {
    let index = MatchIndex::new(provider, nodes, servers.into());
    let nodes = nodes.iter().map(Borrow::borrow);
    let plan = |node| plan_node(node, &index, overdue);
    nodes.map(plan).collect()
}

/// Makes the plan for one node. `index` contains all nodes and servers, because another node can name the same server.
/// When a new node has no server, and has not been ready since a time before `overdue`, the plan reports that the
/// node's machine probably does not exist any more.
pub(super) fn plan_node(node: &KubeNode, index: &MatchIndex, overdue: Timestamp) -> NodePlan {
    let provider = index.provider;
    let facts = NodeFacts { node: node.clone(), ..NodeFacts::default() };
    let mut plan = NodePlan::new(node.object(), &node.metadata.resource_version, facts);
    match index.find(node) {
        MatchOutcome::Foreign => {
            plan.server = ServerMatch::Foreign;
            plan.would_match = index.foreign(node).obstacle.is_none();
            let (id, ours) = (&node.spec.provider_id, provider.name());
            let message = format!(
                "another cloud-controller-manager has set provider ID {id:?} (ccm sets only provider IDs that begin \
                 with {ours}://), so ccm does not change this node"
            );
            let fix = format!(
                "if the node runs in another cloud, nothing is wrong. If it runs on a server of this Hetzner Cloud \
                 project, {}",
                join_anew(node)
            );
            let finding = Finding::warning(Reason::UnknownProviderIDPrefix, message);
            plan.findings.push(finding.with_fix(fix));
        }
        MatchOutcome::TargetOnly(found) => plan.target_only(found),
        MatchOutcome::Unknown(why) => {
            plan.server = ServerMatch::Unknown;
            let id = &node.spec.provider_id;
            let message =
                format!("ccm does not change the node, whose provider ID is {id:?}, because {why}");
            let fix = match provider.parse_provider_id(id) {
                ProviderId::Ours(_) | ProviderId::Disabled(_) => {
                    format!("set {ROBOT_ENABLED}=true, {ROBOT_USER} and {ROBOT_PASSWORD} for ccm")
                }
                ProviderId::Foreign | ProviderId::Unknown(_) => join_anew(node),
            };
            plan.findings.push(Finding::warning(Reason::UnknownProviderID, message).with_fix(fix));
        }
        MatchOutcome::Gone(id) => plan.gone(id, index),
        MatchOutcome::Unclear(error) => plan.unclear(error),
        MatchOutcome::Unmatched(finding) => plan.unmatched(finding, overdue),
        MatchOutcome::Matched(instance, by) => {
            plan.server = ServerMatch::Matched(Box::new(instance.clone()), by);
            plan.note_match(instance, by);
            if let Some(finding) = index.claimed_twice(instance, node) {
                // Another node claims the same server, by its provider ID or by its name. This node does not get the
                // server, so nothing is changed on this node.
                plan.block_if_new(finding);
            } else if let Some(instances) = provider.instances() {
                plan.note_other_name(instance, by);
                plan.note_zone(instance, by, instances);
                plan.for_server(instance, instances, index);
            }
        }
    }
    if node.metadata.deletion_timestamp.is_some() {
        // The node is being deleted, so nothing is written to it any more.
        plan.changes.clear();
        plan.obstacle = None;
    }
    plan
}

impl NodePlan {
    /// Returns a plan without changes, which is about this server and not about a node. Commands show such plans when
    /// Kubernetes does not answer, so that the nodes are not known.
    pub fn of_server(instance: &Instance) -> NodePlan {
        let object = ObjectReference::without_namespace("Server", &instance.name, instance.id);
        let external = instance.public_ipv4.iter();
        let external = external.map(|ip| NodeAddress::new(AddressKind::ExternalIP, ip));
        let internal = instance.private.iter();
        let internal =
            internal.map(|address| NodeAddress::new(AddressKind::InternalIP, address.ip));
        let mut plan = NodePlan::new(object, "", NodeFacts::default());
        plan.node.status.addresses = external.chain(internal).collect();
        plan.server = ServerMatch::Matched(Box::new(instance.clone()), MatchedBy::Name);
        plan
    }

    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.address_fields.iter().chain(&self.other_fields)
    }

    pub fn differences(&self) -> impl Iterator<Item = &Field> {
        self.fields().filter(|field| field.have != field.want)
    }

    /// Returns the conditions that the lists of servers must fulfil before this plan is carried out. If the plan has
    /// writes, the list of cloud servers may be at most `young` old. `begun` is the start of the sync pass, and
    /// `first_seen` is the time when this program first saw the node.
    pub(super) fn needs(
        &self,
        young: Duration,
        begun: Instant,
        first_seen: Instant,
    ) -> ServerNeeds {
        let mut needs = ServerNeeds::NONE;
        let has_changes = !self.changes.is_empty();
        if has_changes {
            needs.max_age = young;
        }
        match &self.server {
            ServerMatch::Matched(instance, by) if has_changes => match instance.id {
                InstanceId::Cloud(_) => {
                    // A server that was found by its name or address can be the wrong one. If the list of servers was
                    // read before the node was first seen, it can still contain an earlier server with the same name or
                    // address, which was replaced by the node's server. A newer list is therefore needed.
                    let is_guess = !matches!(by, MatchedBy::ProviderId);
                    needs.since = is_guess.then_some(first_seen);
                    needs.covers = Covers::One(instance.id);
                }
                InstanceId::Dedicated(_) => {
                    needs.max_age = Duration::MAX;
                    needs.dedicated_since = Some(first_seen);
                }
            },
            // The list of servers may have been read before the node's server was created. If the server exists, it is
            // in every list that is read after the node was seen for the first time.
            ServerMatch::Gone(_) => needs.since = Some(first_seen),
            ServerMatch::TargetOnly(found) if found.named.is_empty() => {
                needs.since = Some(first_seen);
            }
            ServerMatch::Unmatched => needs.dedicated_since = Some(first_seen),
            ServerMatch::Matched(..)
            | ServerMatch::Foreign
            | ServerMatch::TargetOnly(_)
            | ServerMatch::Unknown
            | ServerMatch::Unclear => {}
        }
        let misses_its_server =
            matches!(self.server, ServerMatch::Unmatched | ServerMatch::Gone(InstanceId::Cloud(_)));
        if misses_its_server && self.obstacle.is_some() {
            // The node waits for its initialisation, and the list of servers does not contain its server. The server
            // may have been created after that list was read. So the list of servers must be read again in this sync
            // pass.
            needs.since = Some(begun);
            needs.covers = Covers::All;
        }
        needs
    }

    /// Makes the plan for a node of another provider, when the settings allow such nodes as targets of load balancers.
    /// `found` says which server has the name and an address of the node, or why the node can't be a target. Nothing is
    /// written to the node.
    fn target_only(&mut self, found: ForeignMatch) {
        let finding = found.obstacle.clone().unwrap_or_else(|| {
            let server = found.named.first().map(|it| format!("{} ({})", it.name, it.id));
            let message = format!(
                "another provider manages this node. Server {} has the node's name and one of its addresses, so the \
                 node can be a target of load balancers. ccm writes nothing to the node",
                server.unwrap_or_default()
            );
            Finding::info(Reason::ForeignNodeMatched, message)
        });
        self.findings.push(finding);
        self.server = ServerMatch::TargetOnly(Box::new(found));
    }

    fn gone(&mut self, id: InstanceId, index: &MatchIndex) {
        self.server = ServerMatch::Gone(id);
        let is_being_deleted = self.node.metadata.deletion_timestamp.is_some();
        let replacement = index.named_as(&self.node).filter(|_| !is_being_deleted);
        let provider_id = &self.node.spec.provider_id;
        let finding = match replacement {
            Some(new) => self.replaced(id, new, index.any_claim_exists()),
            None => {
                let (message, credentials) = match id {
                    InstanceId::Cloud(_) => (
                        format!(
                            "the node's provider ID {provider_id:?} names server {id}, but this token's project has no \
                             server {id}. Was the server deleted, or does the token belong to another project?"
                        ),
                        "a token of the project that has the server",
                    ),
                    InstanceId::Dedicated(_) => (
                        format!(
                            "the node's provider ID {provider_id:?} names a dedicated server that the account of \
                             {ROBOT_USER} does not list. Was the server cancelled, do the credentials belong to \
                             another account, or are they limited to one server?"
                        ),
                        "the login of the account that has the server",
                    ),
                };
                let fix = format!(
                    "set {credentials}. If the server is gone forever, delete the node ({})",
                    shell_command(DELETE_NODE, &[&self.node.name()])
                );
                Finding::warning(Reason::ServerNotFound, message).with_fix(fix)
            }
        };
        self.block_if_new(finding);
        self.follow_labels(FromServer::default());
    }

    /// Makes the plan for a node whose server is not known, because an API does not answer. The outage itself is
    /// reported once for all nodes. A new node also gets a finding (a message for the operator) of its own, because it
    /// has to wait.
    fn unclear(&mut self, error: &ProviderError) {
        self.server = ServerMatch::Unclear;
        if is_uninitialized(&self.node) {
            let message = format!(
                "the node is not initialised yet, because ccm can't read the servers (ccm tries again): {error}"
            );
            self.obstacle = Some(Finding::warning(Reason::InstanceLookupFailed, message));
        }
        self.follow_labels(FromServer::default());
    }

    /// Returns the finding (a message for the operator) about a node whose server was replaced by a server of the same
    /// name. When the project has no server of any other node, the finding adds that the token may belong to another
    /// project.
    fn replaced(&self, old: InstanceId, new: &Instance, is_right_project: bool) -> Finding {
        let (name, id, new) = (self.node.name(), &self.node.spec.provider_id, new.id);
        let condition = if is_right_project {
            ""
        } else {
            "First check that the token belongs to the right project, because the token's project has no server of any \
             other node. "
        };
        let delete = shell_command(DELETE_NODE, &[&name]);
        let message = format!(
            "provider ID {id:?} names server {old}, which does not exist, but server {new} has the node's name. \
             {condition}A provider ID can't be changed, so delete the node ({delete}). Its kubelet then registers the \
             node again (restart the kubelet if it does not)"
        );
        Finding::warning(Reason::ServerReplaced, message)
    }

    fn unmatched(&mut self, finding: Finding, overdue: Timestamp) {
        self.warn_if_not_external();
        let since = self.node.not_ready_since();
        self.block_if_new(match since.filter(|since| *since < overdue) {
            Some(since) if is_uninitialized(&self.node) => self.left_over(&finding, since),
            _ => finding,
        });
    }

    /// Returns a finding (a message for the operator) which says that the machine of this node, which has no provider
    /// ID, probably does not exist any more. k8s.io/cloud-provider would delete the node, because no server has the
    /// node's name. This program only reports it, because a name is not a certain proof.
    ///
    /// The new finding contains the text of `finding` and replaces it, so that the problem is reported only once. The
    /// text names the time since which the node is not ready, and no duration. A duration would change the text each
    /// time, and each new text would become a new event.
    fn left_over(&self, finding: &Finding, since: Timestamp) -> Finding {
        let (name, why) = (self.node.name(), &finding.message);
        let delete = shell_command(DELETE_NODE, &[&name]);
        let message = format!(
            "the node has not been ready since {since}, and {why}. ccm never deletes a node without a provider ID. If \
             the machine of the node is gone forever, delete the node ({delete})"
        );
        Finding::warning(Reason::PossibleNodeDeletion, message)
    }

    /// Adds a finding (a message for the operator) to the plan of an initialised node. In the plan of a node that is
    /// not initialised yet, the finding becomes the `obstacle`, i.e. the reason why nothing is written to the node.
    fn block_if_new(&mut self, finding: Finding) {
        if is_uninitialized(&self.node) {
            self.obstacle = Some(finding);
        } else {
            self.findings.push(finding);
        }
    }

    fn note_match(&mut self, instance: &Instance, by: MatchedBy) {
        if let MatchedBy::Address(ip) = by {
            let (name, id) = (&instance.name, instance.id);
            let message = format!(
                "no server has the node's name, but server {name:?} ({id}) has an address of the node, {ip}, so ccm \
                 assumes that the node runs on this server"
            );
            self.findings.push(Finding::info(Reason::MatchedByAddress, message));
        }
        self.warn_if_not_external();
    }

    /// Adds a finding (a message for the operator) when the provider ID of a new node names a cloud server that has
    /// another name than the node. The operator should know this, because whoever registers a node can write the
    /// provider ID of any server. When a dedicated server has another name than its node, the provider (the code for
    /// one cloud) reports it.
    fn note_other_name(&mut self, instance: &Instance, by: MatchedBy) {
        let (name, id) = (&instance.name, instance.id);
        let is_other = by == MatchedBy::ProviderId && name != self.node.name();
        if is_other && id.cloud().is_some() && is_uninitialized(&self.node) {
            let message = format!(
                "the provider ID of this new node names server {name:?} ({id}), which has another name than the node. \
                 ccm initialises the node. If you did not expect this, find out who registered the node"
            );
            self.findings.push(Finding::info(Reason::ServerNameDiffers, message));
        }
    }

    /// Compares the zone labels of an initialised node with those that a new node would get, and reports a difference.
    /// Plans no change of these labels, because only the command `ccm node relabel` changes them.
    fn note_zone(&mut self, instance: &Instance, by: MatchedBy, instances: &dyn Instances) {
        let is_being_deleted = self.node.metadata.deletion_timestamp.is_some();
        if by != MatchedBy::ProviderId || is_uninitialized(&self.node) || is_being_deleted {
            return;
        }
        let values = instances.zone(instance);
        let state = ZoneState::new(&self.node, &values);
        if values.is_chosen && state.is_to_change() {
            let message = format!(
                "a new node on this server would get other zone labels ({}). The daemon never changes the zone label \
                 of an initialised node",
                describe(&state.fields)
            );
            let fix = shell_command("ccm node relabel", &[&self.node.name()]);
            self.findings.push(Finding::info(Reason::ZoneLabelDiffers, message).with_fix(fix));
        }
        self.zone = Some(state);
    }

    fn warn_if_not_external(&mut self) {
        if self.node.spec.provider_id.is_empty() && !is_uninitialized(&self.node) {
            let message = "the node has neither a provider ID nor the uninitialized taint, because its kubelet runs \
                           without --cloud-provider=external. So the node gets no provider ID and no labels";
            let fix = format!(
                "set --cloud-provider=external for the node's kubelet. Then {}",
                join_anew(&self.node)
            );
            let finding = Finding::warning(Reason::NotExternal, message).with_fix(fix);
            self.findings.push(finding);
        }
    }

    fn for_server(&mut self, instance: &Instance, instances: &dyn Instances, index: &MatchIndex) {
        self.findings.extend(impairment(instance));
        let annotations = self.node.metadata.annotations.iter();
        let about = provider::Node {
            name: self.node.name().to_owned(),
            addresses: self.node.status.addresses.clone(),
            annotations: annotations
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            is_new: is_uninitialized(&self.node),
        };
        let from_server =
            desired::from_server(&self.node, instance, |key| instances.allows_label(key));
        let metadata = match instances.metadata(instance, &about) {
            Ok(metadata) => metadata,
            Err(finding) => return self.blocked(*finding, from_server),
        };
        self.findings.extend(metadata.findings.iter().cloned());
        let wanted = match self.address_of_another(&metadata, index) {
            None => desired::addresses(&self.node, instance, instances, &metadata),
            Some(finding) => Err(finding),
        };
        match wanted {
            Ok(wanted) => self.set_addresses(wanted),
            Err(finding) => return self.blocked(finding, from_server),
        }
        if is_uninitialized(&self.node) {
            self.initialise(&metadata, from_server);
        } else {
            self.follow_labels(from_server);
        }
    }

    /// Returns a finding (a message for the operator) when the node must not get an address that its kubelet asks for,
    /// because another node has that address or asks for it. Addresses that the cloud names for the node are not
    /// checked.
    fn address_of_another(&mut self, metadata: &Metadata, index: &MatchIndex) -> Option<Finding> {
        let is_asked = |address: &&Sourced<NodeAddress>| match address.source {
            Source::Annotation(_) | Source::Kept => address.value.kind != AddressKind::Hostname,
            _ => false,
        };
        let ips =
            metadata.addresses.iter().filter(is_asked).filter_map(|address| address.value.ip());
        let shared = index.shared_address(&self.node, ips)?;
        let (ip, other) = (shared.ip, shared.other);
        let and_so = if shared.is_kept {
            format!("this node keeps {ip}")
        } else {
            "the addresses of this node stay unchanged".to_owned()
        };
        let message = format!(
            "this node asks for the address {ip}, by annotation {INTERNAL_IP} or by the flag --node-ip of its kubelet, \
             but node {other:?} has this address or asks for it, too. Correct the address on one of the two nodes. \
             Until then {and_so}"
        );
        let finding = Finding::warning(Reason::InvalidInternalIP, message);
        if shared.is_kept {
            self.findings.push(finding);
            None
        } else {
            Some(finding)
        }
    }

    /// Makes `finding`, a message for the operator, the reason why the plan can't be carried out completely. The
    /// addresses stay unchanged, and a new node keeps its taint `uninitialized`. The labels of an initialised node are
    /// still corrected.
    fn blocked(&mut self, finding: Finding, from_server: FromServer) {
        self.obstacle = Some(finding);
        self.follow_labels(from_server);
    }

    /// Plans the labels of an initialised node, whose provider ID and taints do not change any more. `from_server`
    /// contains the changes of labels that the labels of the server request. When it is empty, the labels that were
    /// copied from the server earlier stay as they are.
    fn follow_labels(&mut self, from_server: FromServer) {
        if is_uninitialized(&self.node) || self.node.spec.provider_id.is_empty() {
            return;
        }
        let wanted = desired::labels_afterwards(&self.node);
        self.update(wanted, from_server, None, None);
    }

    fn set_addresses(&mut self, wanted: Vec<Sourced<NodeAddress>>) {
        self.address_fields = address_fields(&self.node.status.addresses, &wanted);
        let description = describe(&self.address_fields);
        // The description is empty when the present and the desired addresses are the same, or differ only in their
        // order. Then nothing is written.
        if !description.is_empty() {
            let addresses = wanted.into_iter().map(|address| address.value).collect();
            self.changes.push(NodeChange::SetAddresses { addresses, description });
        }
    }

    fn initialise(&mut self, metadata: &Metadata, from_server: FromServer) {
        let NodeFacts { node, other_fields, .. } = &mut self.facts;
        let have = &node.spec.provider_id;
        let present = (!have.is_empty()).then(|| have.clone());
        let wanted = match &present {
            // A provider ID can't be changed once it is set, so the node keeps it.
            Some(id) => Sourced::new(id.clone(), Source::Kept),
            None => metadata.provider_id.clone(),
        };
        let provider_id = present.is_none().then(|| wanted.value.clone());
        let want = Some(wanted.value);
        other_fields.push(Field::new("spec.providerID", present, want, wanted.source));
        let taints = node.spec.taints.iter().filter(|taint| taint.key != UNINITIALIZED);
        let mut taints: Vec<Taint> = taints.cloned().collect();
        for taint in &from_server.taints {
            let is_there =
                |other: &Taint| (&other.key, &other.effect) == (&taint.key, &taint.effect);
            if !taints.iter().any(is_there) {
                let value = taint.value.as_ref();
                let value = value.map_or_else(String::new, |value| format!("{value}:"));
                let name = format!("taint {}", taint.key);
                let want = Some(format!("{value}{}", taint.effect));
                let source = Source::server_because(
                    "labels",
                    "ccm sets this taint only when it initialises the node",
                );
                other_fields.push(Field::new(name, None, want, source));
                taints.push(taint.clone());
            }
        }
        let wanted = desired::labels_at_initialisation(node, metadata);
        self.update(wanted, from_server, provider_id, Some(taints));
    }

    /// Plans one write that sets all labels and annotations of the node which differ from the desired ones. The write
    /// also sets `provider_id` and `taints`, if they are given. The list `taints` lacks the taint `uninitialized`, so a
    /// write with this list removes the taint. Each label, each annotation and this taint are also added to
    /// `other_fields`, the list of fields that commands show to users.
    fn update(
        &mut self,
        wanted: Vec<desired::WantedLabel>,
        from_server: FromServer,
        provider_id: Option<String>,
        taints: Option<Vec<Taint>>,
    ) {
        let (mut labels, mut annotations) = (Values::new(), Values::new());
        self.findings.extend(from_server.findings);
        let NodeFacts { node, other_fields, .. } = &mut self.facts;
        let metadata = &node.metadata;
        for (key, wanted) in wanted.into_iter().chain(from_server.values) {
            let (kind, have, values) = if key == SERVER_LABELS {
                ("annotation", &metadata.annotations, &mut annotations)
            } else {
                ("label", &metadata.labels, &mut labels)
            };
            let have = have.get(&key).map(str::to_owned);
            let (name, want) = (format!("{kind} {key}"), wanted.value.clone());
            other_fields.push(Field::new(name, have.clone(), want, wanted.source));
            if have != wanted.value {
                values.insert(key, wanted.value);
            }
        }
        if taints.is_some() {
            // The commands show this text as the reason why the taint `uninitialized` is removed: its removal is part
            // of the last write to the node.
            let source = Source::Rule("removed when everything else is set");
            other_fields.push(Field::new(UNINITIALIZED_TAINT, Some("set".into()), None, source));
        }
        let description = describe(other_fields);
        if !description.is_empty() {
            let update =
                NodeChange::Update { labels, annotations, provider_id, taints, description };
            self.changes.push(update);
        }
    }
}

/// Returns a finding (a message for the operator) when the state of the server explains why the node does not work,
/// e.g. because the server is being rebuilt. Such a state is only reported. It changes nothing on the node.
fn impairment(server: &Instance) -> Option<Finding> {
    let why = [
        (server.state == "migrating", "is being migrated"),
        (server.state == "rebuilding", "is being rebuilt"),
        (server.is_in_rescue, "has its rescue system enabled"),
        (server.is_locked, "is locked"),
    ];
    let why = why.into_iter().filter(|(is_so, _)| *is_so);
    let why: Vec<&str> = why.map(|(_, why)| why).collect();
    let message = format!("server {} ({}) {}", server.name, server.id, why.join(" and "));
    let finding = Finding::warning(Reason::ServerImpaired, message);
    let fix = if server.is_in_rescue {
        format!(
            "when the rescue system is not needed any more, turn it off and restart the server: {}, then {}",
            shell_command("hcloud server disable-rescue", &[&server.id]),
            shell_command("hcloud server reboot", &[&server.id])
        )
    } else {
        "wait until this state of the server has ended".to_owned()
    };
    (!why.is_empty()).then(|| finding.with_fix(fix))
}

/// Returns the steps by which a node gets another provider ID, as text for the operator. The provider ID of an existing
/// node can't be changed, so the node must be deleted and must join again.
pub fn join_anew(node: &KubeNode) -> String {
    let name = node.name();
    format!(
        "drain the node ({}), delete it ({}), and let it join again, so that it gets a new providerID",
        shell_command("kubectl drain", &[&name]),
        shell_command(DELETE_NODE, &[&name])
    )
}

/// Returns the changes of the addresses for display. Each desired address is paired with the present address of the
/// same type that it replaces. The addresses that are only removed follow.
fn address_fields(have: &[NodeAddress], wanted: &[Sourced<NodeAddress>]) -> Vec<Field> {
    let mut left: Vec<&NodeAddress> =
        have.iter().filter(|h| !wanted.iter().any(|w| w.value == **h)).collect();
    let mut fields = Vec::new();
    for address in wanted {
        let want = &address.value;
        let have = if have.contains(want) {
            Some(want.address.clone())
        } else {
            let replaced = left.iter().position(|h| h.kind == want.kind);
            replaced.map(|position| left.remove(position).address.clone())
        };
        let (name, text) = (format!("address {}", want.kind.name()), want.address.clone());
        fields.push(Field::new(name, have, Some(text), address.source.clone()));
    }
    fields.extend(left.into_iter().map(|address| {
        let name = format!("address {}", address.kind.name());
        let source = Source::Rule("with ccm's settings, this is not a server address of this type");
        Field::new(name, Some(address.address.clone()), None, source)
    }));
    fields
}

/// Returns a description of the write that changes the fields of a node, e.g. its labels and addresses. Fields whose
/// present value is the desired value are not described.
pub(super) fn describe(fields: &[Field]) -> Description {
    let described = |field: &Field| {
        let name = &field.field;
        if name == UNINITIALIZED_TAINT {
            return Some(Description::new(WriteVerb::REMOVE, name, ""));
        }
        let (have, want) = (field.have.as_deref(), field.want.as_deref());
        (have != want).then(|| Description::value(name, have, want))
    };
    fields.iter().filter_map(described).collect()
}
