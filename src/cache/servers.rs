//! The lists of servers of the cloud's API and of the API of dedicated servers. Before a controller decides from such
//! lists what to change, it checks here whether the lists are new enough.

use super::cached::{CacheError, View};
use crate::provider::{self, Instance, InstanceId, Servers};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A list of all servers of one API (the cloud's API or the API of dedicated servers), with the moments when it was
/// requested and when it came.
pub type ListedServers = View<Vec<Instance>>;

/// The servers of the cloud's API and of the API of dedicated servers. When an API did not answer, its list is replaced
/// by the error.
#[derive(Clone)]
pub struct AllServers {
    pub cloud: Result<ListedServers, provider::ProviderError>,
    pub dedicated: Result<ListedServers, provider::ProviderError>,
    /// The cloud servers that were read again by name after the whole list was read. `None` means that no server was
    /// read again by name.
    pub(super) named: Option<HashSet<InstanceId>>,
}

/// The conditions that the lists of servers must fulfil before a controller may compute changes from them.
#[derive(Clone, Debug)]
pub struct ServerNeeds {
    /// The longest time that may have passed since the list of cloud servers was received.
    pub max_age: Duration,
    /// The list of cloud servers must have been requested at this moment or later. `None` means at any time.
    pub since: Option<Instant>,
    /// The list of dedicated servers must have been requested at this moment or later. `None` means at any time. The
    /// greatest age of that list is not set here, but by `ROBOT_CACHE_TIMEOUT`.
    pub dedicated_since: Option<Instant>,
    pub covers: Covers,
}

/// For which cloud servers a list must have new data: for all servers, for one server, or for none. This matters after
/// only some servers of the list were read again, by their names. The data of the other servers in the list are then
/// older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    Nothing,
    One(InstanceId),
    All,
}

impl ServerNeeds {
    /// Conditions that every list of servers fulfils, however old the list is.
    pub const NONE: ServerNeeds = ServerNeeds::max_age(Duration::MAX);

    pub const fn max_age(max_age: Duration) -> ServerNeeds {
        ServerNeeds { max_age, since: None, dedicated_since: None, covers: Covers::Nothing }
    }

    /// Returns conditions for lists of servers that are as strict as `self` and `other` together. A list that fulfils
    /// them also fulfils `self` and `other`.
    pub fn and(self, other: ServerNeeds) -> ServerNeeds {
        let is_same = self.covers == other.covers;
        ServerNeeds {
            max_age: self.max_age.min(other.max_age),
            since: self.since.max(other.since),
            dedicated_since: self.dedicated_since.max(other.dedicated_since),
            covers: if is_same { self.covers } else { Covers::All },
        }
    }
}

impl AllServers {
    /// Creates an `AllServers` from a list of cloud servers of which only some were read again, by name. `named`
    /// contains the IDs of these servers. The other servers of the list can be out of date.
    pub fn named(
        (cloud, named): (ListedServers, HashSet<InstanceId>),
        dedicated: Result<ListedServers, provider::ProviderError>,
    ) -> AllServers {
        AllServers { cloud: Ok(cloud), dedicated, named: Some(named) }
    }

    /// Whether these servers fulfil the conditions in `needs`. When an API did not answer, the conditions about its
    /// servers count as fulfilled. This is safe, because a controller changes nothing for a server whose API did not
    /// answer.
    pub fn satisfy(&self, needs: &ServerNeeds) -> bool {
        self.satisfy_of_cloud(needs) && self.satisfy_of_dedicated(needs)
    }

    pub(super) fn satisfy_of_cloud(&self, needs: &ServerNeeds) -> bool {
        let is_covered = match (&self.named, needs.covers) {
            (None, _) | (_, Covers::Nothing) => true,
            (Some(named), Covers::One(id)) => named.contains(&id),
            (Some(_), Covers::All) => false,
        };
        let is_young = |view: &ListedServers| view.time_in_use() <= needs.max_age;
        let cloud = self.cloud.as_ref().ok();
        cloud.is_none_or(|view| is_covered && is_young(view) && is_from(view, needs.since))
    }

    pub(super) fn satisfy_of_dedicated(&self, needs: &ServerNeeds) -> bool {
        self.dedicated.as_ref().ok().is_none_or(|view| is_from(view, needs.dedicated_since))
    }

    pub fn servers(&self) -> Servers<'_> {
        fn slice(
            list: &Result<ListedServers, provider::ProviderError>,
        ) -> Result<&[Instance], &provider::ProviderError> {
            list.as_ref().map(|view| view.value.as_slice())
        }
        Servers { cloud: slice(&self.cloud), dedicated: slice(&self.dedicated) }
    }

    /// Returns the error of the cloud's API or of the API of dedicated servers. When both have failed, returns the
    /// error of the cloud's API. Returns `None` when both have answered.
    pub fn outage(&self) -> Option<CacheError> {
        let cloud = self.cloud.as_ref().err().cloned().map(CacheError::Cloud);
        cloud.or(self.dedicated.as_ref().err().cloned().map(CacheError::Dedicated))
    }
}

fn is_from(view: &ListedServers, since: Option<Instant>) -> bool {
    since.is_none_or(|since| view.asked >= since)
}
