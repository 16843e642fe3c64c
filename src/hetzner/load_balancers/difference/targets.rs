//! Servers that traffic goes to.

use super::Difference;
use crate::hetzner::load_balancers::annotations;
use crate::hetzner::load_balancers::balancer::Target;
use crate::hetzner::load_balancers::change::{ServerTarget, Write};
use crate::hetzner::load_balancers::desired::Desired;
use crate::hetzner::load_balancers::reach::{By, Sorted};
use crate::hetzner::load_balancers::targets::{Room, Step};
use crate::provider::{Finding, Reason, Source, Sourced};
use crate::text;
use std::collections::{BTreeMap, BTreeSet};

/// Is a server reached by its private IP?
#[derive(Clone, Copy)]
enum ByPrivate {
    All(bool),
    /// Those that are targets already; the others so.
    AsTheyAre(bool),
}

impl ByPrivate {
    fn value(self) -> bool {
        let (ByPrivate::All(value) | ByPrivate::AsTheyAre(value)) = self;
        value
    }

    fn keeps(self) -> bool {
        matches!(self, ByPrivate::AsTheyAre(_))
    }
}

impl Difference<'_, '_> {
    /// True: one that stays is reached by the public interface.
    pub(super) fn targets(
        &mut self,
        desired: &Desired,
        limit: usize,
        limit_now: usize,
        detached: bool,
    ) -> bool {
        let balancer = self.balancer;
        let private = &desired.use_private_ip;
        let there: BTreeMap<u64, bool> = balancer
            .server_targets()
            .filter(|(_, private)| !(detached && *private))
            .collect();
        let by_private = self.by_private(desired, &there);
        let (wanted, stuck) = self.reached(desired, by_private, &there);
        let mut ours = there.clone();
        ours.retain(|server, _| !stuck.contains(server));
        let room = Room {
            there: &ours,
            others: balancer.other_targets() + stuck.len(),
            limit,
            limit_now,
        };
        self.tell_foreign_targets();
        let (fit, left) = room.share(&wanted);
        if !left.is_empty() {
            self.reading.finding(max_targets_reached(limit, &left));
        }
        self.target_fields(desired, &fit, &stuck, by_private);
        let stays = |server: &u64| {
            let private = there.get(server);
            private.is_some_and(|private| by_private.keeps() || *private == by_private.value())
        };
        if !fit.iter().all(stays) {
            self.check_way_in(desired, by_private);
        }
        let is_one_of_all = stuck.is_empty() && !fit.iter().any(stays);
        for step in room.steps(&fit, by_private.value()) {
            let (Step::Add(server) | Step::Remove(server)) = step;
            let name = self.names.of(server);
            let turns = there.contains_key(&server) && fit.contains(&server);
            if turns && by_private.keeps() {
                continue;
            }
            self.plan.rests_on_servers |= turns || matches!(step, Step::Add(_));
            let source = match (turns, step) {
                (true, _) => private.source.clone(),
                (false, Step::Add(_)) => desired.targets.source.clone(),
                (false, Step::Remove(_)) => Source::Rule("no node to send traffic to"),
            };
            let (write, what) = match step {
                Step::Add(_) => (
                    Write::AddTarget(ServerTarget {
                        server,
                        use_private_ip: by_private.value(),
                    }),
                    if by_private.value() {
                        "added, by private IP"
                    } else {
                        "added"
                    },
                ),
                Step::Remove(_) => (
                    Write::RemoveTarget {
                        server,
                        is_one_of_all,
                    },
                    "removed",
                ),
            };
            self.change(write, format!("target {name}: {what}"), vec![source]);
        }
        stuck.iter().any(|server| there.get(server) == Some(&false))
    }

    /// The wanted servers that can be targets in the wanted way, and those that are targets in the other one and would
    /// be refused in this: they stay, unless the way that they are reached by is to be closed and others are there.
    fn reached(
        &mut self,
        desired: &Desired,
        by_private: ByPrivate,
        there: &BTreeMap<u64, bool>,
    ) -> (Vec<(u64, String)>, BTreeSet<u64>) {
        let by = By::new(by_private.value(), self.rules.network);
        let is_target = |server| {
            let private = there.get(&server)?;
            Some(by_private.keeps() || *private == by_private.value())
        };
        let Sorted {
            can,
            can_not,
            missing,
        } = by.sort(&desired.targets.servers, self.names.offered, is_target);
        // Its server may only be newer than the list.
        self.plan.rests_on_servers |= missing.iter().any(|(server, _)| there.contains_key(server));
        if can_not.is_empty() {
            return (can, BTreeSet::new());
        }
        // It is planned again before long, with servers as they are then.
        self.plan.rests_on_servers = true;
        self.plan.is_unfinished = true;
        let is_closed = desired.public.as_ref().is_some_and(|public| !public.value);
        let goes = is_closed && !can.is_empty();
        let (there, not_there): (Vec<_>, Vec<_>) = can_not
            .into_iter()
            .partition(|(server, _)| there.contains_key(server) && !goes);
        if !not_there.is_empty() {
            self.reading
                .finding(by.told(&not_there, "no traffic goes there"));
        }
        if !there.is_empty() {
            let and_so = match by_private.value() {
                true => "traffic still goes there by the public address",
                false => "traffic still goes there by the private address",
            };
            self.reading.finding(by.told(&there, and_so));
        }
        (can, there.into_iter().map(|(server, _)| server).collect())
    }

    /// Targets are to be added: one that is removed for it could not come back, and a new one not come. Nothing is begun.
    fn check_way_in(&mut self, desired: &Desired, by_private: ByPrivate) {
        let public = desired.public.as_ref().map(|public| public.value);
        let is_on = public.unwrap_or(self.balancer.public_net.enabled);
        if is_on || by_private.value() {
            return;
        }
        self.reading.problem(format!(
            "the public interface of load balancer {} is off, nobody asks for it to be on, and the nodes are to be \
             reached by their public addresses: set annotation {} to \"false\" to turn it on, or {} to \"true\"",
            self.balancer.shown(),
            annotations::DISABLE_PUBLIC_NETWORK.key(),
            annotations::USE_PRIVATE_IP.key()
        ));
    }

    /// By which address servers are reached. Where we can't know it, each as it is, and new ones
    /// as those that are there.
    fn by_private(&self, desired: &Desired, there: &BTreeMap<u64, bool>) -> ByPrivate {
        let wanted = &desired.use_private_ip;
        let is_default = matches!(wanted.source, Source::Default(_));
        match is_default
            && self
                .rules
                .holds_back_default_of(&annotations::USE_PRIVATE_IP)
        {
            true => ByPrivate::AsTheyAre(there.values().any(|private| *private)),
            false => ByPrivate::All(wanted.value),
        }
    }

    fn target_fields(
        &mut self,
        desired: &Desired,
        fit: &[u64],
        stuck: &BTreeSet<u64>,
        by_private: ByPrivate,
    ) {
        let by = |private: bool| {
            if private {
                "by private IP"
            } else {
                "by public IP"
            }
            .to_owned()
        };
        let there: BTreeMap<u64, bool> = self.balancer.server_targets().collect();
        let private = &desired.use_private_ip;
        for server in fit {
            let have = there.get(server).map(|private| by(*private));
            let source = match have {
                Some(_) => private.source.clone(),
                None => desired.targets.source.clone(),
            };
            let want = match (by_private, there.get(server)) {
                (ByPrivate::AsTheyAre(_), Some(private)) => by(*private),
                (by_private, _) => by(by_private.value()),
            };
            let want = Sourced::new(want, source);
            let name = self.names.of(*server);
            self.field(&format!("target {name}"), have, Some(&want));
        }
        for (server, private) in there.iter().filter(|(server, _)| stuck.contains(server)) {
            let name = self.names.of(*server);
            self.field(&format!("target {name}"), Some(by(*private)), None);
        }
        let goes = |server: &u64| !fit.contains(server) && !stuck.contains(server);
        for (server, private) in there.iter().filter(|(server, _)| goes(server)) {
            let gone = Sourced::new("absent".into(), Source::Rule("no node to send traffic to"));
            let name = self.names.of(*server);
            self.field(&format!("target {name}"), Some(by(*private)), Some(&gone));
        }
    }

    /// Dedicated servers are nothing we know of yet, so their addresses stay.
    fn tell_foreign_targets(&mut self) {
        for target in &self.balancer.targets {
            if let Target::Ip { ip, .. } = target {
                let why = format!(
                    "target {} is an address: dedicated servers are not supported yet, so it is left alone",
                    ip.ip
                );
                self.reading
                    .finding(Finding::warning(Reason::TargetIgnored, why));
            }
        }
    }
}

pub(in crate::hetzner::load_balancers) fn max_targets_reached(
    limit: usize,
    left: &[String],
) -> Finding {
    Finding::warning(
        Reason::MaxTargetsReached,
        format!(
            "the load balancer takes {limit} targets, and has no room for {}: choose a larger type in annotation {}",
            text::some_of(left),
            annotations::TYPE.key()
        ),
    )
}
