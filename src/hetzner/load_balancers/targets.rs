//! Targets: which servers can be targets, which of them become targets, and in which order, so that traffic always has
//! a
//! target.
//!
//! A server without an address of the wanted kind would be refused by the API. An existing target that would have to be
//! removed for it first stays, because traffic still reaches it.

use super::annotations as a;
use super::balancer::{LoadBalancer, Target};
use super::change::{Action, Purpose};
use super::context::Context;
use super::desired::Desired;
use super::diff::{Diff, server_target};
use super::status::node_on;
use crate::provider::{Description, OfferedNode, Reach, Reason, Source, Sourced, Verb};
use crate::text;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const NO_NODE: Source = Source::Rule("no node to send traffic to");

/// The server targets as they are when the Network is the wanted one, and by which of its addresses each is wanted.
struct Ways {
    /// Is it by its private IP? Empty for a new load balancer.
    there: BTreeMap<u64, bool>,
    /// New ones are.
    by_private: bool,
    /// A shell may not know by which addresses: those that are there stay as they are, and new ones become the same.
    is_held: bool,
    /// ID of the private Network.
    network: Option<u64>,
}

/// Servers and the names of their nodes.
type Servers = Vec<(u64, String)>;

impl Ways {
    fn new(context: &Context, desired: &Desired, balancer: Option<&LoadBalancer>) -> Ways {
        let private = &desired.use_private_ip;
        let attach = desired.attach.as_ref();
        let detached = attach
            .zip(balancer)
            .is_some_and(|(attach, balancer)| attach.detaches(balancer));
        let there = balancer.into_iter().flat_map(LoadBalancer::server_targets);
        let there: BTreeMap<u64, bool> = there.filter(|one| !(detached && one.1)).collect();
        let is_held = context.planner.holds_back(&private.source);
        let by_private = match is_held {
            true => there.values().any(|private| *private),
            false => private.value,
        };
        Ways {
            there,
            by_private,
            is_held,
            network: context.planner.network,
        }
    }

    fn wanted(&self, server: u64) -> bool {
        let has = self.there.get(&server).filter(|_| self.is_held);
        has.copied().unwrap_or(self.by_private)
    }

    /// None: it is no target.
    fn is_right(&self, server: u64) -> Option<bool> {
        Some(*self.there.get(&server)? == self.wanted(server))
    }

    /// Of the wanted servers, in their order, those that can be targets, and those that the cloud would refuse; without
    /// those that do not exist. One that is a target needs no other address.
    fn sort(&self, wanted: &[(u64, String)], nodes: &[OfferedNode]) -> (Servers, Servers) {
        let reach = reach_of(nodes);
        // A list without any of the servers is another project's, or broken: it takes no target away.
        let is_of_cluster = reach.values().any(|one| matches!(one, Reach::By { .. }));
        let exists = |one: &&(u64, String)| match (self.is_right(one.0), reach.get(&one.0)) {
            (Some(_), Some(Reach::Missing { .. })) => !is_of_cluster,
            (None, Some(Reach::Missing { is_certain })) => !is_certain,
            _ => true,
        };
        let can = |one: &(u64, String)| match (self.is_right(one.0), reach.get(&one.0)) {
            (Some(true), _) => true,
            // Removed in one way it could not be added in the other.
            (Some(false), Some(Reach::Missing { .. })) => false,
            (_, found) => found.is_none_or(|found| self.reaches(found)),
        };
        wanted.iter().filter(exists).cloned().partition(can)
    }

    /// What is not known is tried.
    fn reaches(&self, reach: &Reach) -> bool {
        let Reach::By {
            has_public_ipv4,
            networks,
        } = reach
        else {
            return true;
        };
        match self.by_private {
            true => self.network.is_none_or(|id| networks.contains(&id)),
            false => *has_public_ipv4,
        }
    }

    /// Of servers without an address of the wanted kind, and what to do.
    fn unreachable(&self, left: &[(u64, String)], and_so: &str) -> String {
        let names: Vec<&str> = left.iter().map(|(_, name)| name.as_str()).collect();
        let network = self.network.map(|id| format!(" {id}")).unwrap_or_default();
        let (what, step) = match self.by_private {
            true => (
                format!("address in Network{network}"),
                "attach each to the Network".to_owned(),
            ),
            false => (
                "public IPv4 address".to_owned(),
                format!(
                    "give each one, use private addresses with annotation {}",
                    a::USE_PRIVATE_IP.key()
                ),
            ),
        };
        format!(
            "no {what} on the server of {}, so {and_so}: {step}, or leave the node out with annotation {}",
            text::some_of(&names),
            a::NODE_SELECTOR.key()
        )
    }

    /// Of the wanted ones, in their order, those that have room, and those that have not: the
    /// ones that are targets already stay.
    fn share(&self, wanted: &[(u64, String)], room: usize) -> (Vec<u64>, Vec<String>) {
        let is_there = |one: &&(u64, String)| self.there.contains_key(&one.0);
        let first = wanted.iter().filter(is_there);
        let then = wanted.iter().filter(|one| !is_there(one));
        let mut all = first.chain(then);
        let fit = all.by_ref().take(room).map(|(server, _)| *server).collect();
        (fit, all.map(|(_, name)| name.clone()).collect())
    }

    /// Adds before removals, but where the limit is reached, removals first. At last those that
    /// are reached by the other of their addresses: a server can't be a target twice, so each
    /// is removed and added again. `room`: for so many at a time.
    fn steps(&self, fit: &[u64], room: usize) -> Vec<(Action, u64)> {
        let set: BTreeSet<u64> = fit.iter().copied().collect();
        let new = fit.iter().filter(|id| !self.there.contains_key(id));
        let mut old = self.there.keys().filter(|id| !set.contains(id));
        let mut count = self.there.len();
        let mut steps = Vec::new();
        for id in new {
            if count >= room
                && let Some(old) = old.next()
            {
                steps.push((Action::RemoveTarget, *old));
                count -= 1;
            }
            steps.push((Action::AddTarget, *id));
            count += 1;
        }
        steps.extend(old.map(|id| (Action::RemoveTarget, *id)));
        let mut turned: Vec<u64> = set.iter().copied().collect();
        turned.retain(|id| self.is_right(*id) == Some(false));
        let turned = turned.into_iter();
        steps.extend(turned.flat_map(|id| [(Action::RemoveTarget, id), (Action::AddTarget, id)]));
        steps
    }
}

/// See `Needs::servers`. No `balancer`: one is to be created.
pub(super) fn need_servers(
    context: &Context,
    desired: &Desired,
    balancer: Option<&LoadBalancer>,
) -> bool {
    let ways = Ways::new(context, desired, balancer);
    let reach = reach_of(context.nodes);
    desired.targets.servers.iter().any(|(server, _)| {
        let reach = reach.get(server).copied().unwrap_or(&Reach::Unknown);
        match (ways.is_right(*server), reach) {
            (Some(true), reach) => matches!(reach, Reach::Missing { .. }),
            (Some(false), _) => true,
            // Servers of the last list that were deleted since make the API refuse the call: then they are read again.
            (None, Reach::By { .. }) => balancer.is_some(),
            (None, reach) => *reach != Reach::Missing { is_certain: true },
        }
    })
}

impl Diff<'_, '_> {
    /// `limit_now`: what it takes until its type is changed. True: one that stays is reached by the public interface.
    pub(super) fn targets(&mut self, limit_now: usize) -> bool {
        let (balancer, limit) = (self.balancer, self.kind.max_targets);
        let before = balancer.into_iter().flat_map(LoadBalancer::server_targets);
        let before: BTreeMap<u64, bool> = before.collect();
        let mut ways = Ways::new(self.context, self.desired, balancer);
        let by_private = ways.by_private;
        let (wanted, stuck) = self.reached(&ways);
        let needs_public = stuck
            .iter()
            .any(|server| ways.there.get(server) == Some(&false));
        ways.there.retain(|server, _| !stuck.contains(server));
        let others = balancer.map_or(0, LoadBalancer::other_targets) + stuck.len();
        self.report_foreign_targets();
        let (fit, left) = ways.share(&wanted, limit.saturating_sub(others));
        if !left.is_empty() {
            let why = format!(
                "the load balancer takes {limit} targets, and has no room for {}: choose a larger type in annotation {}",
                text::some_of(&left),
                a::TYPE.key()
            );
            self.parser.warning(Reason::MaxTargetsReached, why);
        }
        self.target_fields(by_private, &before, &fit, &stuck);
        let stays = |server: &u64| ways.is_right(*server) == Some(true);
        if !fit.iter().all(stays) {
            self.check_way_in(by_private);
        }
        let is_last = stuck.is_empty() && !fit.iter().any(stays);
        for (action, server) in ways.steps(&fit, limit_now.saturating_sub(others)) {
            let mut body = server_target(server);
            let is_added = action == Action::AddTarget;
            if is_added {
                body["use_private_ip"] = json!(by_private);
            }
            let (verb, how) = match is_added {
                false => (Verb::Remove, ""),
                true if by_private => (Verb::Add, ", by private IP"),
                true => (Verb::Add, ""),
            };
            let target = format!("target {}", node_on(server, self.context.cluster));
            let mut change = self.new_change(action, body, Description::new(verb, target, how));
            if is_last && !is_added {
                change.purpose = Purpose::LastTarget;
            }
            self.changes.push(change);
        }
        needs_public
    }

    /// The wanted servers that can be targets in the wanted way, and those that are targets in the other one and would
    /// be refused in this: they stay, unless the way that they are reached by is to be closed and others are there.
    fn reached(&mut self, ways: &Ways) -> (Servers, BTreeSet<u64>) {
        let desired = self.desired;
        let (can, can_not) = ways.sort(&desired.targets.servers, self.context.nodes);
        if can_not.is_empty() {
            return (can, BTreeSet::new());
        }
        // It is planned again before long, with servers as they are then.
        self.plan.is_unfinished = true;
        let is_closed = desired.public.as_ref().is_some_and(|public| !public.value);
        let is_removed = is_closed && !can.is_empty();
        let (there, not_there): (Vec<_>, Vec<_>) = can_not
            .into_iter()
            .partition(|(server, _)| ways.there.contains_key(server) && !is_removed);
        let and_so = match ways.by_private {
            true => "they still get traffic by the public address",
            false => "they still get traffic by the private address",
        };
        for (servers, and_so) in [(&not_there, "they get no traffic"), (&there, and_so)] {
            if !servers.is_empty() {
                let why = ways.unreachable(servers, and_so);
                self.parser.warning(Reason::TargetIgnored, why);
            }
        }
        (can, there.into_iter().map(|(server, _)| server).collect())
    }

    /// Targets are to be added: one that is removed for it could not come back, and a new one not come. Nothing is
    /// begun.
    fn check_way_in(&mut self, by_private: bool) {
        let Some(balancer) = self.balancer else {
            return;
        };
        let public = self.desired.public.as_ref().map(|public| public.value);
        if by_private || public.unwrap_or(balancer.public_net.enabled) {
            return;
        }
        self.parser.problem(format!(
            "the public interface of load balancer {} is off and unset, and the nodes are to be \
             reached by their public addresses: set annotation {} to \"false\" to turn it on, or {} to \"true\"",
            balancer.shown(),
            a::DISABLE_PUBLIC_NETWORK.key(),
            a::USE_PRIVATE_IP.key()
        ));
    }

    fn target_fields(
        &mut self,
        by_private: bool,
        there: &BTreeMap<u64, bool>,
        fit: &[u64],
        stuck: &BTreeSet<u64>,
    ) {
        let desired = self.desired;
        let private = &desired.use_private_ip;
        let old = there.keys().filter(|server| !fit.contains(server));
        for server in fit.iter().chain(old) {
            let have = there.get(server);
            let want = match have {
                _ if stuck.contains(server) => None,
                _ if !fit.contains(server) => Some(("absent", NO_NODE)),
                Some(_) => Some((by(private.value), private.source.clone())),
                None => Some((by(by_private), desired.targets.source.clone())),
            };
            let want = want.map(|(want, source)| Sourced::new(want.to_owned(), source));
            let field = format!("target {}", node_on(*server, self.context.cluster));
            self.compare(&field, have.map(|private| by(*private).to_owned()), want);
        }
    }

    /// Dedicated servers are nothing we know of yet, so their addresses stay.
    fn report_foreign_targets(&mut self) {
        for target in self.balancer.iter().flat_map(|one| &one.targets) {
            if let Target::Ip { ip, .. } = target {
                let why = format!(
                    "target {} is an address: dedicated servers are not supported yet, so it is left alone",
                    ip.ip
                );
                self.parser.warning(Reason::TargetIgnored, why);
            }
        }
    }
}

/// For people: how a server is reached.
fn by(private: bool) -> &'static str {
    if private {
        "by private IP"
    } else {
        "by public IP"
    }
}

/// What is known of the servers of these nodes, by ID.
fn reach_of(nodes: &[OfferedNode]) -> HashMap<u64, &Reach> {
    let known = nodes.iter();
    let known = known.filter_map(|node| Some((server_of(node)?, &node.reach)));
    known.collect()
}

fn server_of(node: &OfferedNode) -> Option<u64> {
    node.provider_id.clone().ours()?.cloud()
}
