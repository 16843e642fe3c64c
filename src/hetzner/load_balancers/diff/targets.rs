//! Decides which servers become targets of a load balancer, and which targets are removed. If the limit of targets that
//! the load balancer's type has allows it, a new target is added before an old target is removed. So traffic continues
//! during the change.
//!
//! Annotations and settings say whether a load balancer reaches its targets by their private or by their public
//! addresses. The API refuses to add a server that has no address of the desired kind. If such a server is already a
//! target by its other address, it stays a target, because its traffic still works.

use super::choice::{CanWait, ChoiceRules, TargetCandidate, TargetChoice, choose};
use super::whole::Diff;
use crate::hetzner::load_balancers::annotations as a;
use crate::hetzner::load_balancers::change::{BalancerAction, BalancerChange, Purpose};
use crate::hetzner::load_balancers::desired::{Desired, NodeMachine};
use crate::hetzner::load_balancers::model::balancer::{ApiTarget, TargetId};
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::hetzner::load_balancers::ownership::defaults::STAYS;
use crate::hetzner::load_balancers::ownership::group::Owner;
use crate::hetzner::load_balancers::ownership::labels::Labelled;
use crate::provider::order;
use crate::provider::variables::{ROBOT_PASSWORD, ROBOT_USER};
use crate::provider::{
    Departure, Description, EXCHANGES_AT_MOST, EXCHANGES_OF_BALANCER, InstanceId, LeftOutState,
    NodeWithPods, OfferedNode, ProviderId, Reach, Reason, Source, Sourced, WhyKept, WriteVerb,
};
use crate::text;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

const NO_NODE: Source = Source::Rule("the target belongs to no node that gets traffic");
const DEPARTS: Source = Source::Rule("the node will stop soon");
const EXCHANGED: Source = Source::Rule(
    "the load balancer has no room for more targets, and nodes with pods of its Services come first",
);

/// Decides for each node whether the load balancer reaches it by its private or by its public address. An existing
/// target sometimes keeps its present kind of address, so the existing targets are part of the decision. When the plan
/// detaches the load balancer from its Network, existing targets with private IPs are ignored, because Hetzner removes
/// them.
struct Ways<'a> {
    context: &'a PlanContext<'a>,
    desired: &'a Desired,
    /// The existing targets that are nodes. The value is `true` when the load balancer reaches the target by its
    /// private IP. The map is empty for a new load balancer.
    there: BTreeMap<TargetId, bool>,
}

/// A list of targets, each with the name of its node.
type NamedTargets = Vec<(TargetId, String)>;

/// Returns the existing targets of the load balancer that are nodes of the cluster. The value is `true` when the load
/// balancer reaches the target by its private IP. A target by IP whose address belongs to no node is left out, because
/// a person has added it by hand.
fn targets_of_nodes(
    context: &PlanContext,
    desired: &Desired,
    balancer: Option<Labelled>,
) -> BTreeMap<TargetId, bool> {
    let is_wanted = |ip: IpAddr| {
        desired.targets.nodes.iter().any(|(machine, _)| match machine {
            NodeMachine::Server(_) => false,
            NodeMachine::Dedicated { public, private, .. } => {
                [public, private].into_iter().flatten().any(|other| ip == *other)
            }
        })
    };
    let group = &context.group;
    let is_node = |target: &TargetId| match target {
        // On a load balancer of this cluster, every server that is a target counts as a node of this cluster, even when
        // its node was deleted. So the target can be removed. On an external load balancer (one that somebody else
        // made), a server without a node of this cluster belongs to somebody else.
        TargetId::Server(_) => !group.is_external() || target.node(context.cluster).is_some(),
        TargetId::Address(ip) => context.cluster.dedicated.contains_key(ip) || is_wanted(*ip),
    };
    let is_before = |target| balancer.is_some_and(|balancer| group.is_before(balancer, target));
    let all = balancer.into_iter().flat_map(|labelled| labelled.balancer.single_targets());
    order::map(all.filter(|(target, _)| is_node(target) && !is_before(*target)))
}

/// Whether existing targets keep the kind of address (private or public) by which they are reached now. This is so on
/// an external load balancer (one that somebody else made), and on a shared load balancer when no Service is allowed to
/// decide about its settings. It is also so when the Namespace has a default for the annotation `use-private-ip` that
/// could not be read.
fn keeps_ways(context: &PlanContext, desired: &Desired) -> bool {
    context.group.keeps_ways() || desired.use_private_ip.source == STAYS
}

impl<'a> Ways<'a> {
    fn new(
        context: &'a PlanContext<'a>,
        desired: &'a Desired,
        balancer: Option<Labelled>,
    ) -> Ways<'a> {
        let attach = desired.attach();
        let detached =
            attach.zip(balancer).is_some_and(|(attach, balancer)| attach.detaches(&balancer));
        let mut there = targets_of_nodes(context, desired, balancer);
        there.retain(|_, by_private| !(detached && *by_private));
        Ways { context, desired, there }
    }

    /// Whether new targets should be reached by their private IP, and not by their public IP.
    fn by_private(&self) -> bool {
        self.desired.use_private_ip.value
    }

    /// Whether an existing target is reached by the desired kind of address, public or private. The result is always
    /// `true` for a target by IP, and when [`keeps_ways`] says that each existing target keeps its kind of address. The
    /// result is `None` when the target does not exist yet.
    fn is_right(&self, target: TargetId) -> Option<bool> {
        let has = *self.there.get(&target)?;
        let is_address = matches!(target, TargetId::Address(_));
        Some(is_address || keeps_ways(self.context, self.desired) || has == self.by_private())
    }

    /// Returns the target for the server of a node. The second value is `true` for a dedicated server that has no
    /// address of the desired kind, public or private. The target is then its address of the other kind. The target is
    /// `None` when no address of the server can be used.
    fn target(&self, machine: NodeMachine) -> (Option<TargetId>, bool) {
        let (public, private) = match machine {
            NodeMachine::Server(id) => return (Some(TargetId::Server(id)), false),
            NodeMachine::Dedicated { public, private, .. } => (public, private),
        };
        let id = |ip: Option<Ipv4Addr>| ip.map(|ip| TargetId::Address(ip.into()));
        let (public, private) = (id(public), id(private));
        let there = [private, public].into_iter().flatten();
        let mut there = there.filter(|id| self.there.contains_key(id));
        // When the subnets were not read, it is not known whether an address of the dedicated server is in the Network.
        // So an existing target of the server stays.
        let is_unknown = self.by_private() && self.context.observed.subnets.is_none();
        let stays = keeps_ways(self.context, self.desired) || is_unknown;
        match (self.by_private(), private) {
            _ if stays && let Some(there) = there.next() => (Some(there), false),
            (true, Some(private)) => (Some(private), false),
            (true, None) => (public, true),
            (false, _) if public.is_some() => (public, false),
            // The public address of a dedicated server is not known without the credentials for Robot. So when the
            // server is already a target by its private address, this target stays.
            (false, _) => (there.next(), true),
        }
    }

    /// Splits the desired targets into those that the load balancer can have, and those that the API would refuse. Both
    /// lists keep the order. A target whose server does not exist is in neither list. A target that exists already, and
    /// that is reached by the desired kind of address (public or private), can always stay.
    fn sort(&self, wanted: &[(TargetId, String)]) -> (NamedTargets, NamedTargets) {
        let reach = reach_of(self.context.nodes);
        // A list of servers in which no server of the cluster occurs is from another project, or is broken. So it does
        // not prove that a server does not exist.
        let is_of_cluster = reach.values().any(|reach| matches!(reach, Reach::By { .. }));
        let exists =
            |target: &&(TargetId, String)| match (self.is_right(target.0), reach.get(&target.0)) {
                (Some(_), Some(Reach::Missing { .. })) => !is_of_cluster,
                (None, Some(Reach::Missing { is_certain })) => !is_certain,
                _ => true,
            };
        let can = |one: &(TargetId, String)| match (self.is_right(one.0), reach.get(&one.0)) {
            (Some(true), _) => true,
            // This existing target is reached by the wrong kind of address, e.g. a public one instead of a private one.
            // To correct this, the target would have to be removed and added again. But its server is missing in the
            // list of servers, or it is not certain that the node runs on this server. The API might then refuse to add
            // the target again, so the target stays as it is.
            (Some(false), Some(Reach::Missing { .. } | Reach::Doubtful)) => false,
            (_, found) => found.is_none_or(|found| self.reaches(found)),
        };
        wanted.iter().filter(exists).cloned().partition(can)
    }

    /// Returns the desired targets, one for each node whose address is known. Two nodes with the same address get one
    /// target. The second list has the nodes on dedicated servers that lack the desired kind of address (public or
    /// private). The value next to the name is `true` when the node is a target by its address of the other kind.
    fn wanted(&self, balancer: Option<Labelled>) -> (NamedTargets, Vec<(String, bool)>) {
        let (mut wanted, mut lacks) = (NamedTargets::new(), Vec::new());
        let doubtful = doubtful_targets(self.context.nodes);
        for (machine, name) in &self.desired.targets.nodes {
            let (target, lacks_address) = self.target(*machine);
            if lacks_address {
                lacks.push((name.clone(), target.is_some()));
            }
            let Some(target) = target else { continue };
            if doubtful.contains(&target) && !self.there.contains_key(&target) {
                continue;
            }
            // On an external load balancer (one that somebody else made), a target that was there before this cluster
            // used the load balancer is not changed.
            let is_of_another = balancer.is_some_and(|balancer| {
                let mut there = balancer.single_targets();
                self.context.group.is_before(balancer, target)
                    && there.any(|(has, _)| has == target)
            });
            if !is_of_another && wanted.iter().all(|(other, _)| *other != target) {
                wanted.push((target, name.clone()));
            }
        }
        (wanted, lacks)
    }

    /// Splits the desired targets into three lists. The first has the targets that can be reached by the desired kind
    /// of address, public or private. The second has the existing targets that can't be reached by it, and that stay
    /// with their other kind of address. The third has the rest, which are not targets after the plan. There is one
    /// exception: when the plan turns off the public interface and the first list is not empty, the targets of the
    /// second list are in the third list, and are removed.
    fn split(&self, wanted: &NamedTargets) -> (NamedTargets, NamedTargets, NamedTargets) {
        let (can, can_not) = self.sort(wanted);
        let is_closed = self.desired.public().is_some_and(|public| !public.value);
        let is_removed = is_closed && !can.is_empty();
        let (there, not_there) = can_not
            .into_iter()
            .partition(|(server, _)| self.there.contains_key(server) && !is_removed);
        (can, there, not_there)
    }

    /// Whether the server has the desired kind of address, public or private. When its addresses are not known, the
    /// result is `true`, and the API decides whether the server can be added as a target.
    fn reaches(&self, reach: &Reach) -> bool {
        let Reach::By { has_public_ipv4, networks } = reach else {
            return true;
        };
        if self.by_private() {
            self.context.project.network.is_none_or(|id| networks.contains(&id))
        } else {
            *has_public_ipv4
        }
    }

    /// Returns a warning about the servers in `left`, which lack the kind of address (public or private) by which the
    /// load balancer should reach them. `and_so` is the consequence, e.g. "these nodes get no traffic". The warning
    /// also says what the user can do.
    fn unreachable(&self, left: &[(TargetId, String)], and_so: &str) -> String {
        let names: Vec<&str> = left.iter().map(|(_, name)| name.as_str()).collect();
        let network = self.context.project.network;
        let network = network.map(|id| format!(" {id}")).unwrap_or_default();
        let (way, what, step) = if self.by_private() {
            (
                "private",
                format!("address in Network{network}"),
                "attach the servers to the Network".to_owned(),
            )
        } else {
            (
                "public",
                "public IPv4 address".to_owned(),
                format!(
                    "give the servers public IPv4 addresses, or use private addresses with annotation {}",
                    a::USE_PRIVATE_IP.key()
                ),
            )
        };
        format!(
            "the load balancer should use {way} addresses of the nodes, but the servers of these nodes have no \
             {what}: {}. So {and_so}. Either {step}, or leave these nodes out with annotation {}",
            text::some_of(&names),
            a::NODE_SELECTOR.key()
        )
    }

    /// Returns the additions and removals, in their order, that give the load balancer exactly the targets `fit`.
    /// `room` is the highest number of these targets that the load balancer can have at any time. While it has fewer,
    /// targets are added before others are removed. When it has this number, one target is removed before each
    /// addition. At the end, each target that is reached by the wrong kind of address is removed and added again,
    /// because a server can't be a target twice.
    fn steps(&self, fit: &[TargetId], room: usize) -> Vec<(BalancerAction, TargetId)> {
        let set: BTreeSet<TargetId> = fit.iter().copied().collect();
        let new = fit.iter().filter(|id| !self.there.contains_key(id));
        let mut old = self.there.keys().filter(|id| !set.contains(id));
        let mut count = self.there.len();
        let mut steps = Vec::new();
        for id in new {
            if count >= room
                && let Some(old) = old.next()
            {
                steps.push((BalancerAction::RemoveTarget, *old));
                count -= 1;
            }
            steps.push((BalancerAction::AddTarget, *id));
            count += 1;
        }
        steps.extend(old.map(|id| (BalancerAction::RemoveTarget, *id)));
        let mut turned: Vec<TargetId> = set.iter().copied().collect();
        turned.retain(|id| self.is_right(*id) == Some(false));
        let remove_and_add =
            |id| [(BalancerAction::RemoveTarget, id), (BalancerAction::AddTarget, id)];
        steps.extend(turned.into_iter().flat_map(remove_and_add));
        steps
    }
}

/// Whether the list of servers must be read again before this plan is applied, because the plan depends on whether a
/// server exists or which addresses it has. `balancer` is `None` when the plan creates the load balancer.
pub(crate) fn need_servers(
    context: &PlanContext,
    desired: &Desired,
    balancer: Option<Labelled>,
) -> bool {
    let ways = Ways::new(context, desired, balancer);
    let reach = reach_of(context.nodes);
    desired.targets.nodes.iter().any(|(machine, _)| {
        // Only cloud servers are in the list of servers from the Cloud API. A dedicated server does not depend on this
        // list, because its addresses are known from its node.
        let NodeMachine::Server(id) = machine else {
            return false;
        };
        let server = TargetId::Server(*id);
        let reach = reach.get(&server).copied().unwrap_or(&Reach::Unknown);
        match (ways.is_right(server), reach) {
            (Some(true), reach) => matches!(reach, Reach::Missing { .. }),
            (Some(false), _) => true,
            // The server is in the list of servers, but may have been deleted after the list was read. So the list is
            // read again before the server becomes a new target of an existing load balancer. When the load balancer is
            // created, this is not necessary: if the API refuses the creation because of a server, the list is read
            // then.
            (None, Reach::By { .. }) => balancer.is_some(),
            (None, reach) => *reach != Reach::Missing { is_certain: true },
        }
    })
}

/// Returns for how many targets the load balancer must have room. These are the nodes that its Services want as
/// targets, whether the nodes are ready or not, and even if they will stop soon. Targets that somebody else added are
/// counted, too, because this program does not remove them. A node that the cluster autoscaler is about to delete is
/// counted only while it is a target.
pub(crate) fn target_demand(
    context: &PlanContext,
    desired: &Desired,
    balancer: Option<Labelled>,
) -> usize {
    let ways = Ways::new(context, desired, balancer);
    let (can, stays, _) = ways.split(&ways.wanted(balancer).0);
    let refused: BTreeSet<&str> = context
        .nodes
        .iter()
        .filter(|node| node.departure.is_to_be_deleted)
        .map(|node| node.name.as_str())
        .collect();
    let counts = |(target, name): &(TargetId, String)| {
        ways.there.contains_key(target) || !refused.contains(name.as_str())
    };
    let own = can.into_iter().chain(stays).filter(counts).map(|(target, _)| target);
    let there = balancer.into_iter().flat_map(|labelled| labelled.balancer.single_targets());
    let is_foreign = |target: &TargetId| {
        matches!(target, TargetId::Address(_)) && !target.is_proven(context.cluster)
    };
    let foreign = there.map(|(target, _)| target).filter(is_foreign);
    let all: BTreeSet<TargetId> = own.chain(foreign).collect();
    all.len() + balancer.map_or(0, |balancer| balancer.other_targets())
}

impl Diff<'_, '_> {
    /// Plans the additions and removals of targets. `limit_now` is the highest number of targets that the load balancer
    /// can have while these changes are made. When the plan also changes to a smaller type, that change comes last, so
    /// until then more targets are possible than afterwards. Returns whether the public interface must stay on, because
    /// a target can be reached only by its public address.
    pub(crate) fn targets(&mut self, limit_now: usize) -> bool {
        let (balancer, limit) = (self.balancer, self.kind.max_targets);
        let mut before = targets_of_nodes(self.context, self.desired, balancer);
        let mut ways = Ways::new(self.context, self.desired, balancer);
        let by_private = ways.by_private();
        let (wanted, stuck) = self.reached(&ways);
        let needs_public = stuck.iter().any(|server| ways.there.get(server) == Some(&false));
        ways.there.retain(|server, _| !stuck.contains(server));
        // A target by IP that no node needs is removed only when data from Hetzner prove that it is a node's address. A
        // kubelet can report any address for its node, so the target may have been added by a person.
        let is_wanted = |target: &TargetId| wanted.iter().any(|(one, _)| one == target);
        let is_removable = |target: &TargetId| {
            matches!(target, TargetId::Server(_)) || target.is_proven(self.context.cluster)
        };
        let is_ours = |target: &TargetId| is_removable(target) || is_wanted(target);
        before.retain(|target, _| is_ours(target) || stuck.contains(target));
        ways.there.retain(|target, _| is_ours(target));
        let foreign = self.foreign_targets(&before);
        let others =
            balancer.map_or(0, |balancer| balancer.other_targets()) + foreign + stuck.len();
        let choice = self.choice(&ways, wanted, others);
        self.report_left_out(&choice, limit);
        let fit = &choice.targets;
        self.target_fields(&before, &choice, &stuck);
        let stays = |target: &TargetId| ways.is_right(*target) == Some(true);
        if !fit.iter().all(stays) {
            self.check_way_in();
        }
        let is_last = stuck.is_empty() && !fit.iter().any(stays);
        self.report_shared_targets(fit.iter().any(|target| !before.contains_key(target)));
        for (action, target) in ways.steps(fit, limit_now.saturating_sub(others)) {
            let mut change = self.change_of_target(action, target, by_private, &choice);
            if is_last && action == BalancerAction::RemoveTarget {
                change.purpose = Purpose::LastTarget;
            }
            self.found.changes.push(change);
        }
        self.found.left_out = choice.left_out;
        needs_public
    }

    /// Chooses which of the `wanted` nodes become or stay targets. `others` is the number of all other targets, e.g.
    /// those that a person has added. They always stay, and they count towards the limit of targets that the load
    /// balancer's type has.
    fn choice(&mut self, ways: &Ways, wanted: NamedTargets, others: usize) -> TargetChoice {
        let room = self.kind.max_targets.saturating_sub(others);
        let services = self.services_with_pods(wanted.len() > room);
        let names = if services == 0 { NamedTargets::new() } else { wanted.clone() };
        let candidates = self.candidates(ways, wanted, services);
        let choice = choose(
            candidates,
            &ChoiceRules {
                room,
                delay: self.desired.targets.departing_delay,
                is_alone: others == 0,
                services,
                exchanges: self.exchanges_left(),
                why_kept: &|node, leaving, can_wait| self.why_kept(node, leaving, can_wait),
            },
        );
        self.note_pods(&choice, services, &names);
        choice
    }

    /// Returns the change that adds or removes this target.
    fn change_of_target(
        &self,
        action: BalancerAction,
        target: TargetId,
        by_private: bool,
        choice: &TargetChoice,
    ) -> BalancerChange {
        let is_added = action == BalancerAction::AddTarget;
        let has_departed = choice.departed.contains(&target) && !is_added;
        let exchanged = choice.exchanged.get(&target).filter(|_| !is_added);
        let verb = if is_added { WriteVerb::ADD } else { WriteVerb::REMOVE };
        let how = if is_added && by_private && matches!(target, TargetId::Server(_)) {
            ", by private IP"
        } else if has_departed {
            ", because its node will stop soon"
        } else if exchanged.is_some() {
            ", to make room for a node with pods of the load balancer's Services"
        } else {
            ""
        };
        let shown = format!("target {}", target.shown(self.context.cluster));
        let description = Description::new(verb, shown, how);
        let mut change = self.new_change(action, Value::Null, description);
        change.request.target = Some(target.in_request(is_added.then_some(by_private)));
        if has_departed || exchanged.is_some() {
            let node = target.node(self.context.cluster).cloned();
            change.soft_removal = node.map(|node| (node, exchanged.copied().unwrap_or(false)));
        }
        change
    }

    /// Returns the nodes that should be targets, each with the data by which [`choose`] decides: whether it is a target
    /// now, whether it will stop soon, and which Services have pods on it.
    fn candidates(&self, ways: &Ways, wanted: NamedTargets, services: u64) -> Vec<TargetCandidate> {
        let nodes = self.context.nodes.iter();
        let departures: HashMap<&str, Departure> =
            nodes.map(|node| (node.name.as_str(), node.departure)).collect();
        let departure = |name: &str| departures.get(name).copied().unwrap_or_default();
        let candidate = |(target, name): (TargetId, String)| TargetCandidate {
            is_present: ways.there.contains_key(&target),
            departure: departure(&name),
            pods: self.context.cluster.history.pods.on(&name, services),
            target,
            name,
        };
        // At most half of the candidates are left out because their nodes will stop soon. A node that will stop soon is
        // not made a candidate when it is not a target now and its server does not exist any more. Otherwise this node
        // would count towards the half, and another node that will stop soon would have to stay a target.
        let reach = reach_of(self.context.nodes);
        let has_delay = self.desired.targets.departing_delay.is_some();
        let is_gone = |node: &TargetCandidate| {
            let is_missing = matches!(reach.get(&node.target), Some(Reach::Missing { .. }));
            is_missing && has_delay && !node.is_present && node.departure.departed.is_some()
        };
        wanted.into_iter().map(candidate).filter(|node| !is_gone(node)).collect()
    }

    /// Returns the Services whose pods decide which nodes become targets, as a mask (each bit stands for a Service, see
    /// `PodNodes`). `is_over` means that more nodes should be targets than the load balancer can have. The mask is zero
    /// when `is_over` is false, when no Service asks that nodes with pods are preferred, or when it is not known where
    /// the pods run. In the last case, a warning says why.
    fn services_with_pods(&mut self, is_over: bool) -> u64 {
        let (asked, pods) = (&self.desired.targets.pods_of, &self.context.cluster.history.pods);
        if !is_over {
            return 0;
        }
        self.found.pods_of.clone_from(asked);
        let unread = asked.iter().find_map(|service| pods.unread.get(service));
        if let Some(why) = unread {
            let why = format!(
                "ccm does not know on which nodes the pods run, so it can't prefer these nodes \
                 (prefer-nodes-with-pods): {why}"
            );
            self.parser.warning(Reason::EndpointsUnreadable, why);
        }
        pods.mask(asked).unwrap_or_default()
    }

    /// Returns how many targets of the load balancer can still be exchanged within the present minute. In an exchange,
    /// a target without pods is removed, and a node with pods becomes a target instead.
    fn exchanges_left(&self) -> usize {
        let all = &self.context.cluster.history.exchanged;
        let of_this = self.balancer.and_then(|balancer| all.get(&balancer.id)).copied();
        let left = EXCHANGES_OF_BALANCER.saturating_sub(of_this.unwrap_or_default());
        left.min(EXCHANGES_AT_MOST.saturating_sub(all.values().sum()))
    }

    /// Stores in the plan which of the wanted nodes (`names`) run pods of certain Services. `services` says which
    /// Services these are: it is a mask, in which each bit stands for a Service.
    fn note_pods(&mut self, choice: &TargetChoice, services: u64, names: &NamedTargets) {
        for (target, node) in names {
            let pods = self.context.cluster.history.pods.on(node, services);
            if pods.serving != 0 {
                self.found.with_pods.push(NodeWithPods {
                    node: node.clone(),
                    is_ready: pods.ready != 0,
                    is_target: choice.targets.contains(target),
                });
            }
        }
    }

    /// Returns the ports on which enough healthy targets stay when the targets in `departing` are removed: at least
    /// one, and at least as many as are removed.
    fn safe_ports(&self, departing: &BTreeSet<TargetId>) -> BTreeSet<u16> {
        let mut counts: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
        for (target, port) in self.healthy() {
            let (staying, leaving) = counts.entry(port).or_default();
            let is_leaving = target.is_some_and(|target| departing.contains(&target));
            *if is_leaving { leaving } else { staying } += 1;
        }
        counts.retain(|_, (staying, leaving)| *staying > 0 && staying >= leaving);
        counts.into_keys().collect()
    }

    /// Returns each healthy target with the port of the load balancer on which it is healthy. A target that is healthy
    /// on several ports is returned for each of them. When a label selector is a target, each server that it selects is
    /// returned as a target. No returned target is `None`, because the API reports no health for a target whose servers
    /// are not known.
    fn healthy(&self) -> impl Iterator<Item = (Option<TargetId>, u16)> + '_ {
        let targets = self.balancer.into_iter().flat_map(|labelled| &labelled.balancer.targets);
        targets.flat_map(ApiTarget::machines).flat_map(|(target, health)| {
            let healthy = health.iter().filter(|health| health.status == "healthy");
            healthy.map(move |health| (target, health.listen_port))
        })
    }

    /// Returns why the target must stay, although its node will stop soon or a node with pods needs its place. The
    /// result is `None` when the target can be removed. `leaving` are the other targets that are removed. With
    /// [`CanWait::Yes`], the target also stays while few API calls are left under the rate limit. With [`CanWait::No`],
    /// it does not matter how many calls are left.
    fn why_kept(
        &self,
        node: &TargetCandidate,
        leaving: &BTreeSet<TargetId>,
        can_wait: CanWait,
    ) -> Option<WhyKept> {
        let (id, target) = (self.balancer?.id, node.target);
        if self.context.cluster.history.removed_often.contains(&(id, node.name.clone())) {
            return Some(WhyKept::Often);
        }
        if can_wait == CanWait::Yes && self.context.observed.is_budget_low {
            return Some(WhyKept::Budget);
        }
        let mut own = self.healthy().filter(|(healthy, _)| *healthy == Some(target)).peekable();
        own.peek()?;
        let leaving: BTreeSet<TargetId> = leaving.iter().copied().chain([target]).collect();
        let safe = self.safe_ports(&leaving);
        own.any(|(_, port)| !safe.contains(&port)).then_some(WhyKept::Health)
    }

    /// Adds a warning about the wanted nodes that can't be targets, because the load balancer can have only `limit`
    /// targets. Also adds a warning about nodes that will stop soon, but stay targets.
    fn report_left_out(&mut self, choice: &TargetChoice, limit: usize) {
        let left = choice.names(LeftOutState::Limit);
        if !left.is_empty() {
            let is_left = |node: &&NodeWithPods| node.is_ready && !node.is_target;
            let with_pods = self.found.with_pods.iter().filter(is_left).count();
            let with_pods = match with_pods {
                0 => String::new(),
                count => format!(" (ready pods of the Services run on {count} of these nodes)"),
            };
            let why = format!(
                "the load balancer takes at most {limit} targets, and has no room for node {}{with_pods}. Choose a \
                 larger type in annotation {}",
                text::some_of(&left),
                a::TYPE.key()
            );
            self.parser.warning(Reason::MaxTargetsReached, why);
        }
        for why in WhyKept::ALL {
            let kept = choice.names(LeftOutState::Kept(*why));
            if !kept.is_empty() {
                let names = text::some_of(&kept);
                let who = match kept.len() {
                    1 => format!("node {names} will stop soon, but stays a target"),
                    _ => format!("nodes {names} will stop soon, but stay targets"),
                };
                let why = format!(
                    "{who}, because {}. ccm tries again. To remove such a target now, set label \
                     node.kubernetes.io/exclude-from-external-load-balancers on its node",
                    why.name()
                );
                self.parser.warning(Reason::DepartingNodeKept, why);
            }
        }
    }

    /// Splits the desired targets by whether they can be reached by the desired kind of address, public or private. The
    /// first value has the targets for which this is possible, whether they exist already or are new. The second value
    /// has the existing targets for which it is not possible. They stay and are reached by their other kind of address.
    /// A new target for which it is not possible is left out, and a warning is added.
    ///
    /// There is one exception. When the public interface will be turned off, and the first value is not empty, the
    /// second value is empty. The existing targets are then removed.
    fn reached(&mut self, ways: &Ways) -> (NamedTargets, BTreeSet<TargetId>) {
        let (wanted, lacks) = ways.wanted(self.balancer);
        for (name, is_target) in lacks {
            self.report_lack(&name, is_target);
        }
        let (can, there, not_there) = ways.split(&wanted);
        // The Service is planned again soon, because the servers that lack the desired kind of address (public or
        // private) may get such an address.
        self.found.is_unfinished |= !(there.is_empty() && not_there.is_empty());
        let and_so = if ways.by_private() {
            "ccm leaves these targets at their public addresses"
        } else {
            "ccm leaves these targets at their private addresses"
        };
        for (servers, and_so) in [(&not_there, "these nodes get no traffic"), (&there, and_so)] {
            if !servers.is_empty() {
                let why = ways.unreachable(servers, and_so);
                self.parser.warning(Reason::TargetIgnored, why);
            }
        }
        (can, there.into_iter().map(|(target, _)| target).collect())
    }

    /// Adds a warning about a dedicated server that lacks the desired kind of address, public or private. `is_target`
    /// says whether the server is a target by its other address.
    fn report_lack(&mut self, name: &str, is_target: bool) {
        if self.desired.use_private_ip.value {
            let why = format!(
                "the dedicated server of node {name} has no InternalIP in a vSwitch subnet of the private Network, so \
                 {}. Set --node-ip of its kubelet to the address that the server has in the vSwitch subnet",
                if is_target { "ccm uses its public address" } else { "it is no target" }
            );
            self.parser.warning(Reason::InternalIPNotConfigured, why);
        } else {
            let why = format!(
                "the public IPv4 address of the dedicated server of node {name} is not known, so {}. If the server has \
                 such an address, set {ROBOT_USER} and {ROBOT_PASSWORD} for ccm. Otherwise set annotation {} to \
                 \"true\"",
                if is_target {
                    "the target of the server stays unchanged"
                } else {
                    "the node is no target"
                },
                a::USE_PRIVATE_IP.key()
            );
            self.parser.warning(Reason::ServerNotFound, why);
        }
    }

    /// Reports a problem when the targets should be reached by their public addresses while the public interface is
    /// off. The API would refuse such targets. Because of the problem, the load balancer is not changed.
    fn check_way_in(&mut self) {
        let Some(balancer) = self.balancer else {
            return;
        };
        let public = self.desired.public().map(|public| public.value);
        if self.desired.use_private_ip.value || public.unwrap_or(balancer.public_net.enabled) {
            return;
        }
        self.parser.problem(format!(
            "load balancer {} should reach the nodes by their public addresses, but its public interface is off. Set \
             annotation {} to \"false\" to turn the interface on, or annotation {} to \"true\" to reach the nodes by \
             their private addresses",
            balancer.shown(),
            a::DISABLE_PUBLIC_NETWORK.key(),
            a::USE_PRIVATE_IP.key()
        ));
    }

    fn target_fields(
        &mut self,
        there: &BTreeMap<TargetId, bool>,
        choice: &TargetChoice,
        stuck: &BTreeSet<TargetId>,
    ) {
        let (desired, fit) = (self.desired, &choice.targets);
        let private = &desired.use_private_ip;
        let old = there.keys().filter(|target| !fit.contains(target));
        for target in fit.iter().chain(old) {
            let have = there.get(target);
            let want = match have {
                _ if stuck.contains(target) => None,
                _ if choice.departed.contains(target) => Some(("absent", DEPARTS)),
                _ if choice.exchanged.contains_key(target) => Some(("absent", EXCHANGED)),
                _ if !fit.contains(target) => Some(("absent", NO_NODE)),
                _ if matches!(target, TargetId::Address(_)) => {
                    let way = by(target.is_private_address());
                    Some((way, desired.targets.source.clone()))
                }
                Some(_) if keeps_ways(self.context, desired) => None,
                Some(_) => Some((by(private.value), private.source.clone())),
                None => Some((by(private.value), desired.targets.source.clone())),
            };
            let want = want.map(|(want, source)| Sourced::new(want.to_owned(), source));
            let field = format!("target {}", target.shown(self.context.cluster));
            self.compare(&field, have.map(|private| by(*private).to_owned()), want);
        }
    }

    /// Warns that the nodes become targets of an external load balancer (one that somebody else made). They then get
    /// the traffic of all its ports, including the ports of others.
    fn report_shared_targets(&mut self, adds: bool) {
        let group = &self.context.group;
        let Some(balancer) = self.balancer.filter(|_| adds && group.is_external()) else {
            return;
        };
        let mut ports = balancer.services.iter();
        if let Some(other) = ports.find(|port| group.owner(balancer, port) == Owner::Other) {
            let why = format!(
                "the nodes become targets of load balancer {}, so they also get the traffic of its ports that belong \
                 to other owners, e.g. port {}. To leave the targets to the owner of the load balancer, set annotation {} \
                 to \"false\"",
                balancer.shown(),
                other.listen_port,
                a::EXTERNAL_TARGETS.key()
            );
            self.parser.warning(Reason::TargetsShared, why);
        }
    }

    /// Returns the number of servers and IPs that are targets, but were not added by this program. On a load balancer
    /// that belongs to this cluster, also reports a warning to the user for each IP that is a target and not the
    /// address of a node.
    fn foreign_targets(&mut self, own: &BTreeMap<TargetId, bool>) -> usize {
        if let Some(balancer) = self.balancer
            && self.context.group.is_external()
        {
            return balancer.single_targets().count() - own.len();
        }
        let mut foreign = 0;
        for target in self.balancer.iter().flat_map(|balancer| &balancer.targets) {
            if let ApiTarget::Ip { ip, .. } = target
                && !own.contains_key(&TargetId::Address(ip.ip))
            {
                foreign += 1;
                let why = format!(
                    "target {} is not the address of a node that ccm knows, so ccm leaves the target unchanged. If the \
                     target is not needed, remove it by hand",
                    ip.ip
                );
                self.parser.warning(Reason::TargetIgnored, why);
            }
        }
        foreign
    }
}

/// Returns the words `by private IP` or `by public IP`, which say in messages how a target is reached.
fn by(private: bool) -> &'static str {
    if private { "by private IP" } else { "by public IP" }
}

/// Returns the targets (cloud servers or addresses) for which it is not certain that a node of this cluster runs there.
fn doubtful_targets(nodes: &[OfferedNode]) -> BTreeSet<TargetId> {
    let doubtful = nodes.iter().filter(|node| node.reach == Reach::Doubtful);
    let target = |node: &OfferedNode| match node.provider_id {
        ProviderId::Ours(InstanceId::Cloud(id)) => Some(TargetId::Server(id)),
        _ => node.dedicated_ipv4.map(|ip| TargetId::Address(ip.into())),
    };
    doubtful.filter_map(target).collect()
}

/// Returns, for each node on a cloud server, what the list of servers says about the server: whether it exists, and by
/// which addresses a load balancer can reach it.
fn reach_of<'a>(nodes: &'a [OfferedNode]) -> HashMap<TargetId, &'a Reach> {
    let reach = |node: &'a OfferedNode| {
        let server = node.provider_id.clone().ours()?.cloud()?;
        Some((TargetId::Server(server), &node.reach))
    };
    nodes.iter().filter_map(reach).collect()
}
