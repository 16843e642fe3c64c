//! Load balancers by what plans search them for. A list is indexed once, so that the plan of a Service costs the same,
//! however many load balancers the project has.

use super::balancer::LoadBalancer;
use super::names::{ADOPT, EXTERNAL, GROUP, RELEASED, SERVICE, SERVICE_UID, uids};
use crate::provider::Service;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// The labels by whose value a load balancer is searched for.
const LABELS: [&str; 5] = [SERVICE_UID, SERVICE, GROUP, ADOPT, RELEASED];

/// The places in a list of load balancers, in ascending order, by what is searched for.
#[derive(Debug, Default)]
pub(super) struct Index(HashMap<Key, Vec<usize>>);

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Id(u64),
    Name(String),
    /// A public or private address.
    Address(IpAddr),
    /// The UID of a Service that is on it, or on one of its ports.
    Uid(String),
    /// One of [`LABELS`] and its value.
    Label(&'static str, String),
    /// Its owner allows ports on it. Only an operator makes such a one, so there are few.
    External,
}

/// A list of load balancers with its index.
#[derive(Clone, Copy)]
pub(super) struct Balancers<'a> {
    pub(super) all: &'a [LoadBalancer],
    index: &'a Index,
}

impl Index {
    pub(super) fn new(balancers: &[LoadBalancer]) -> Index {
        let mut index = Index::default();
        for (place, balancer) in balancers.iter().enumerate() {
            for key in keys(balancer) {
                let places = index.0.entry(key).or_default();
                // Several ports may be of one Service.
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        }
        index
    }

    /// `balancers`: the list that the index was made for.
    pub(super) fn of<'a>(&'a self, all: &'a [LoadBalancer]) -> Balancers<'a> {
        Balancers { all, index: self }
    }
}

fn keys(balancer: &LoadBalancer) -> Vec<Key> {
    let mut keys = vec![Key::Id(balancer.id), Key::Name(balancer.name.clone())];
    keys.extend(balancer.all_addresses().map(Key::Address));
    keys.extend(uids(balancer).cloned().map(Key::Uid));
    let labels = LABELS.into_iter().filter_map(|label| {
        let value = balancer.labels.get(label)?;
        Some(Key::Label(label, value.clone()))
    });
    keys.extend(labels);
    keys.extend(
        balancer
            .labels
            .contains_key(EXTERNAL)
            .then_some(Key::External),
    );
    keys
}

/// What is found is in the order of the list.
impl<'a> Balancers<'a> {
    pub(super) fn with_id(self, id: u64) -> Option<&'a LoadBalancer> {
        self.with([Key::Id(id)]).next()
    }

    pub(super) fn named(self, name: &str) -> impl Iterator<Item = &'a LoadBalancer> + use<'a> {
        self.with([Key::Name(name.to_owned())])
    }

    /// Load balancers with this value of a label, which is one of [`LABELS`].
    pub(super) fn labelled(
        self,
        label: &'static str,
        value: &str,
    ) -> impl Iterator<Item = &'a LoadBalancer> + use<'a> {
        debug_assert!(LABELS.contains(&label), "{label} is not indexed");
        self.with([Key::Label(label, value.to_owned())])
    }

    /// Load balancers with one of these addresses.
    pub(super) fn at(
        self,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> impl Iterator<Item = &'a LoadBalancer> {
        self.with(addresses.into_iter().map(Key::Address))
    }

    /// Load balancers that carry the UID of this Service, and all external ones.
    pub(super) fn may_be_of(self, service: &Service) -> impl Iterator<Item = &'a LoadBalancer> {
        self.with([Key::Uid(service.uid.clone()), Key::External])
    }

    fn with<K: IntoIterator<Item = Key>>(
        self,
        keys: K,
    ) -> impl Iterator<Item = &'a LoadBalancer> + use<'a, K> {
        let places = |key: Key| self.index.0.get(&key).into_iter().flatten();
        let places: BTreeSet<usize> = keys.into_iter().flat_map(places).copied().collect();
        places
            .into_iter()
            .filter_map(move |place| self.all.get(place))
    }
}
