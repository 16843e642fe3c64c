//! An index by which plans find load balancers by ID, name, address or label. It is built once for each list of load
//! balancers. So the time for one plan does not grow with the number of load balancers in the project.

use super::labels::{ADOPT, GROUP, Labelled, Ownership, RELEASED, REPLACES, SERVICE, SERVICE_UID};
use crate::hetzner::load_balancers::model::balancer::LoadBalancer;
use crate::provider::Service;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// An index of a list of load balancers. It also contains, for each load balancer, what its labels say about its
/// owners. The keys of the index are, for example, IDs, names and addresses. For each key, it has the positions of the
/// matching load balancers in the list, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct BalancerIndex {
    ownerships: Vec<Ownership>,
    places: HashMap<Key, Vec<usize>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Id(u64),
    Name(String),
    /// A public or private address of the load balancer.
    Address(IpAddr),
    /// The UID of a Service that, according to a label, owns the load balancer or one of its ports.
    Uid(String),
    /// The value of a label of the load balancer. The key of the label is one of [`SEARCHED`], e.g. the label
    /// `service-uid`.
    Label(&'static str, String),
    /// The load balancer has the label `external`, with any value. The label shows that somebody else made the load
    /// balancer and allows Services to have ports on it.
    External,
}

/// The keys of the labels that the index contains, so that it finds load balancers by the values of these labels.
const SEARCHED: [&str; 6] = [SERVICE_UID, SERVICE, GROUP, ADOPT, RELEASED, REPLACES];

/// A list of load balancers, together with an index that finds them by ID, name, address or label.
#[derive(Clone, Copy)]
pub(crate) struct Balancers<'a> {
    all: &'a [LoadBalancer],
    index: &'a BalancerIndex,
}

impl BalancerIndex {
    pub(crate) fn new(balancers: &[LoadBalancer]) -> BalancerIndex {
        let mut index = BalancerIndex::default();
        for (place, balancer) in balancers.iter().enumerate() {
            let ownership = Ownership::read(&balancer.labels);
            for key in keys(balancer, &ownership) {
                let places = index.places.entry(key).or_default();
                // When several ports of a load balancer belong to one Service, the same key (the UID of this Service)
                // comes once for each port. The position of the load balancer is added under this key only once.
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
            index.ownerships.push(ownership);
        }
        index
    }

    /// Returns a list of load balancers together with this index. `all` must be the list for which the index was built.
    pub(crate) fn of<'a>(&'a self, all: &'a [LoadBalancer]) -> Balancers<'a> {
        Balancers { all, index: self }
    }
}

fn keys(balancer: &LoadBalancer, ownership: &Ownership) -> Vec<Key> {
    let mut keys = vec![Key::Id(balancer.id), Key::Name(balancer.name.clone())];
    keys.extend(balancer.all_addresses().map(Key::Address));
    keys.extend(ownership.uids().cloned().map(Key::Uid));
    let value_of = |label: &str| balancer.labels.get(label).cloned();
    keys.extend(SEARCHED.into_iter().filter_map(|label| Some(Key::Label(label, value_of(label)?))));
    keys.extend(ownership.external.as_ref().map(|_| Key::External));
    keys
}

/// Functions that find load balancers. Each of them returns load balancers in the order of the list that was read from
/// the API.
impl<'a> Balancers<'a> {
    pub(crate) fn all(self) -> impl Iterator<Item = Labelled<'a>> {
        (0..self.all.len()).filter_map(move |place| self.get(place))
    }

    fn get(self, place: usize) -> Option<Labelled<'a>> {
        let balancer = self.all.get(place)?;
        Some(Labelled { balancer, ownership: self.index.ownerships.get(place)? })
    }

    pub(crate) fn with_id(self, id: u64) -> Option<Labelled<'a>> {
        self.with(vec![Key::Id(id)]).next()
    }

    pub(crate) fn named(self, name: &str) -> impl Iterator<Item = Labelled<'a>> + use<'a> {
        self.with(vec![Key::Name(name.to_owned())])
    }

    /// Returns the load balancers that have one of these addresses.
    pub(crate) fn at(
        self,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> impl Iterator<Item = Labelled<'a>> {
        self.with(addresses.into_iter().map(Key::Address).collect())
    }

    /// Returns the load balancers whose label has this value. Only the labels in [`SEARCHED`] can be searched.
    pub(crate) fn labelled(self, label: &'static str, value: &str) -> Vec<Labelled<'a>> {
        self.with(vec![Key::Label(label, value.to_owned())]).collect()
    }

    /// Returns the load balancers whose label `service-uid` has this UID.
    pub(crate) fn with_uid(self, uid: &str) -> Vec<Labelled<'a>> {
        self.labelled(SERVICE_UID, uid)
    }

    /// Returns the load balancers whose label `released` has the UID of this Service. The label says that an operator
    /// has ended the management of the load balancer for this Service (`ccm lb release`).
    pub(crate) fn released(self, uid: &str) -> Vec<Labelled<'a>> {
        self.labelled(RELEASED, uid)
    }

    /// Returns the load balancers that can belong to the Service. Either a label has the Service's UID, or the load
    /// balancer has the label `external`, by which the person who made it allows Services to use it.
    pub(crate) fn may_be_of(self, service: &Service) -> impl Iterator<Item = Labelled<'a>> {
        self.with(vec![Key::Uid(service.uid.clone()), Key::External])
    }

    fn with(self, keys: Vec<Key>) -> impl Iterator<Item = Labelled<'a>> + use<'a> {
        let places = |key: Key| self.index.places.get(&key).into_iter().flatten();
        let places: BTreeSet<usize> = keys.into_iter().flat_map(places).copied().collect();
        places.into_iter().filter_map(move |place| self.get(place))
    }
}
