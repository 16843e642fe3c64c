//! Which servers become targets, and in which order: traffic always has somewhere to go.

use std::collections::{BTreeMap, BTreeSet};

/// A step towards the wanted targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Add(u64),
    Remove(u64),
}

/// What there is, and how much more the load balancer takes.
pub(super) struct Room<'a> {
    /// Servers that are targets, and whether by their private IP.
    pub(super) there: &'a BTreeMap<u64, bool>,
    /// Targets that are not ours to touch; they count.
    pub(super) others: usize,
    /// What the type takes at the end.
    pub(super) limit: usize,
    /// What it takes until then: a smaller type comes last.
    pub(super) limit_now: usize,
}

impl Room<'_> {
    /// Of the wanted ones, in their order, those that have room, and those that have not: the
    /// ones that are targets already stay.
    pub(super) fn share(&self, wanted: &[(u64, String)]) -> (Vec<u64>, Vec<String>) {
        let room = self.limit.saturating_sub(self.others);
        let is_there = |one: &&(u64, String)| self.there.contains_key(&one.0);
        let first = wanted.iter().filter(is_there);
        let then = wanted.iter().filter(|one| !is_there(one));
        let mut all = first.chain(then);
        let fit = all.by_ref().take(room).map(|(server, _)| *server).collect();
        (fit, all.map(|(_, name)| name.clone()).collect())
    }

    /// Adds before removals, but where the limit is reached, removals first. At last those that
    /// are reached by the other of their addresses: a server can't be a target twice, so each
    /// is removed and added again.
    pub(super) fn steps(&self, wanted: &[u64], use_private_ip: bool) -> Vec<Step> {
        let set: BTreeSet<u64> = wanted.iter().copied().collect();
        let new = wanted.iter().filter(|id| !self.there.contains_key(id));
        let mut old = self.there.keys().filter(|id| !set.contains(id));
        let mut count = self.others + self.there.len();
        let mut steps = Vec::new();
        for id in new {
            if count >= self.limit_now
                && let Some(old) = old.next()
            {
                steps.push(Step::Remove(*old));
                count -= 1;
            }
            steps.push(Step::Add(*id));
            count += 1;
        }
        steps.extend(old.map(|id| Step::Remove(*id)));
        let turned = self
            .there
            .iter()
            .filter(|(id, private)| set.contains(id) && **private != use_private_ip);
        steps.extend(turned.flat_map(|(id, _)| [Step::Remove(*id), Step::Add(*id)]));
        steps
    }
}
