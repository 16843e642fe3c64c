//! A cache for the answers of the Kubernetes API and of the cloud's APIs, which all controllers share. A controller
//! that must know the present state just before a write also reads through this module, and then gets no cached answer.
//!
//! The cache knows the age of each answer. When several threads need a new answer, one thread makes the call while the
//! other threads wait. The cache only stores answers: the controllers decide what to do about their contents.

mod cached;
mod identity;
mod nodes;
mod secrets;
mod servers;

pub use cached::{CacheError, PUT_OFF, View};
pub use identity::ClusterIdentity;
pub use nodes::{ListedNodes, NodeCache, Poll};
pub use servers::{AllServers, Covers, ListedServers, ServerNeeds};

use crate::kube::{self, Recorder};
pub use crate::kube::{Detail, ReadFrom};
use crate::provider::order;
use crate::provider::{
    self, Dedicated, ErrorKind, Instance, InstanceId, Network, Provider, Snapshot, TlsSecrets,
    Urgency, clock,
};
use cached::{Cached, CallPause};
use secrets::Secrets;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The greatest allowed age of a list of dedicated servers when the setting `ROBOT_CACHE_TIMEOUT` is not given.
const DEDICATED_MAX_AGE: Duration = Duration::from_secs(300);

/// How many objects are on one page of a list. Each page is read by one call.
const A_PAGE: usize = 50;

/// When the list of all servers has at most this many pages, the whole list is read even where a few servers would be
/// enough. For such a short list, reading only the few servers would save hardly any calls.
const FEW_PAGES: u32 = 3;

/// The list of all servers is refreshed in the background. The time between two refreshes is at least `SERVERS_CALL`
/// multiplied by the number of calls of one refresh, e.g. two minutes for four calls. So the refreshes take at most 120
/// calls an hour. Together with the periodic reads of all load balancers and of the Network, they take at most 200 of
/// the project's 3,600 calls an hour.
const SERVERS_CALL: Duration = Duration::from_secs(30);

/// All load balancers are refreshed in the background. The time between two refreshes is at least `BALANCERS_CALL`
/// multiplied by the number of calls of one refresh, e.g. two minutes for two calls. So the refreshes take at most 60
/// calls an hour, including the calls for other data that is needed to update load balancers.
const BALANCERS_CALL: Duration = Duration::from_secs(60);

/// To see whether the servers of not-ready nodes still exist, the daemon reads pages of the server list. The time
/// between two such checks is at least `LOOK_CALL` multiplied by the number of these pages, e.g. 30 seconds for ten
/// pages. So the checks take at most 1,200 calls an hour.
const LOOK_CALL: Duration = Duration::from_secs(3);

/// The longest time for which a failed read of the Namespaces is remembered. After this time, the Namespaces are read
/// again when they are needed.
const UNREAD_KEPT: Duration = Duration::from_secs(60);

/// The server IDs that the last call of [`Apis::instances_around`] requested, and the servers that this call returned.
type Around = (BTreeSet<u64>, Arc<Vec<Instance>>);

/// A list that the daemon reads periodically, with its period and the number of calls that one read takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// The name of the list, which is `servers` or `load balancers`.
    pub list: &'static str,
    pub period_seconds: u64,
    /// How many API calls one read of this list takes.
    pub calls: u32,
}

/// The clients of the Kubernetes API and of the cloud's APIs, with their last answers. All controllers share them.
pub struct Apis {
    pub kube: Arc<kube::KubeClient>,
    pub provider: Box<dyn Provider>,
    pub recorder: Recorder,
    pub nodes: NodeCache,
    /// The present and the earlier UIDs of the Service `default/kubernetes`, as far as they are known. The first UID is
    /// the identity of the cluster. The leader election uses this same object, because it stores the UIDs in its Lease.
    pub identity: Arc<ClusterIdentity>,
    /// How many nodes are written at the same time at most. This is the setting `--concurrent-node-syncs`.
    pub concurrent_nodes: usize,
    services: ServiceLists,
    secrets: Secrets,
    cloud: CloudLists,
    /// The greatest allowed age of the list of dedicated servers. This is the setting `ROBOT_CACHE_TIMEOUT`.
    pub dedicated_max_age: Duration,
    dedicated: DedicatedList,
}

/// The last lists of Services, and the last list of Namespaces. Annotations of a Namespace can be defaults for the
/// Services in it.
#[derive(Default)]
struct ServiceLists {
    managed: Cached<kube::ServiceList>,
    any: Cached<Vec<Arc<kube::AnyService>>>,
    namespaces: Cached<provider::NamespaceDefaults>,
}

/// The last answers of the cloud's API, one for each kind of call.
#[derive(Default)]
struct CloudLists {
    instances: Cached<Vec<Instance>>,
    around: Cached<Around>,
    load_balancers: Cached<Arc<dyn Snapshot>>,
    network: Cached<Network>,
    pause: CallPause,
    /// The shortest time between two calls for the same data. It is zero, i.e. there is no limit, until
    /// [`Apis::poll_cloud_every`] sets it.
    interval: Duration,
}

/// The last list of all dedicated servers that their API returned.
#[derive(Default)]
struct DedicatedList {
    instances: Cached<Vec<Instance>>,
    pause: CallPause,
    /// Whether the last call to the API of dedicated servers has failed. The answer "not found" is no failure, and
    /// neither is a call that was not sent in order to save the rate limit.
    fails: AtomicBool,
}

impl Apis {
    pub fn new(kube: kube::KubeClient, provider: Box<dyn Provider>) -> Apis {
        let kube = Arc::new(kube);
        Apis {
            nodes: NodeCache::new(Arc::clone(&kube)),
            kube,
            provider,
            recorder: Recorder::default(),
            identity: Arc::default(),
            concurrent_nodes: 1,
            services: ServiceLists::default(),
            secrets: Secrets::default(),
            cloud: CloudLists::default(),
            dedicated_max_age: DEDICATED_MAX_AGE,
            dedicated: DedicatedList::default(),
        }
    }

    /// Limits how often the cloud's APIs are called, for commands with `--watch`, which redraw their output again and
    /// again. The same data is requested at most once in each `interval`, even when a caller asks for younger data. A
    /// single server is taken from the cached list of all servers. Because the data can be this old, it may be
    /// displayed, but no write may be based on it.
    pub fn poll_cloud_every(&mut self, interval: Duration) {
        self.cloud.interval = interval;
        self.cloud.pause.at_least = interval;
        self.dedicated.pause.at_least = interval;
    }

    /// Returns all Services of type LoadBalancer, no older than `max_age`. Services that have not changed since the
    /// previous list are not stored a second time in memory.
    pub fn load_balancer_services(
        &self,
        max_age: Duration,
        from: ReadFrom,
    ) -> Result<View<Vec<Arc<kube::KubeService>>>, CacheError> {
        let known = self.services.managed.last().map(|view| view.value).unwrap_or_default();
        let fetch = || self.kube.load_balancer_services(from, &known);
        let view = self.services.managed.get(max_age, fetch).map_err(CacheError::Kube)?;
        Ok(view.map(|services| Arc::clone(&services.items)))
    }

    /// Returns every Service of any type, no older than `max_age`, and never from the API server's cache.
    pub fn any_services(
        &self,
        max_age: Duration,
    ) -> Result<View<Vec<Arc<kube::AnyService>>>, CacheError> {
        self.services
            .any
            .get(max_age, || {
                let all = self.kube.any_services()?;
                let uids = all.iter().map(|service| service.metadata.uid.as_str());
                self.recorder.reported().keep(kube::SERVICE, uids);
                Ok(all)
            })
            .map_err(CacheError::Kube)
    }

    /// Returns the defaults that annotations of Namespaces set for their Services. The result is no older than
    /// `max_age`. After a failed read, the Namespaces are not read again for [`UNREAD_KEPT`], or for `max_age` if that
    /// is shorter. When a setting turns these defaults off, the result is empty, and no call is made.
    pub fn namespaces(&self, max_age: Duration) -> Arc<provider::NamespaceDefaults> {
        if self.kube.scope.defaults.is_none() {
            return Arc::default();
        }
        let is_fresh = |view: &View<provider::NamespaceDefaults>| {
            let most = view.value.unread.as_ref().map_or(max_age, |_| max_age.min(UNREAD_KEPT));
            view.age() <= most
        };
        let before = self.services.namespaces.last().map(|view| view.value).unwrap_or_default();
        let read = || Ok::<_, std::convert::Infallible>(self.kube.namespace_defaults());
        let Ok(view) = self.services.namespaces.get_if(is_fresh, read);
        let without_effect = view.value.without_effect.iter();
        for new in without_effect.filter(|new| !before.without_effect.contains(new)) {
            log::warn!("{}", provider::NamespaceDefaults::no_effect(new));
        }
        view.value
    }

    /// Returns all known UIDs that the Service `default/kubernetes` has had over time. It gets a new UID when it is
    /// deleted and created again. The first UID in the result identifies the cluster. `service_uid` is the present UID
    /// of this Service. Returns `None` when there is no present UID and no Lease with a UID.
    pub fn identities(
        &self,
        service_uid: Option<&str>,
    ) -> Result<Option<kube::Identities>, CacheError> {
        let known = self.identity.of(&self.kube, service_uid);
        known.map_err(CacheError::Kube)
    }

    /// Returns all load balancers, together with the other data of the cloud that is needed to update the load
    /// balancers of `services`. The result is no older than `max_age`.
    pub fn load_balancers(
        &self,
        services: &[&provider::Service],
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<View<Arc<dyn Snapshot>>, CacheError> {
        let balancers = self.provider.load_balancers();
        let provider = balancers.ok_or_else(|| lacks("load balancers"))?;
        let covers =
            |snapshot: &dyn Snapshot| services.iter().all(|service| snapshot.covers(service));
        let max_age = match self.cloud.load_balancers.last() {
            Some(view) if !covers(&**view.value) => Duration::ZERO,
            _ => max_age.max(self.cloud.interval),
        };
        let observe = || self.provider.prepare().and_then(|()| provider.observe(services, urgency));
        self.cloud
            .load_balancers
            .get(max_age, || self.cloud.pause.guard(observe))
            .map_err(CacheError::Cloud)
    }

    /// Returns all load balancers of the last read, however old that read is. Returns `None` when they were not read
    /// yet. No call is made.
    pub fn load_balancers_last(&self) -> Option<Arc<dyn Snapshot>> {
        self.cloud.load_balancers.last().map(|view| Arc::clone(&*view.value))
    }

    /// Returns the contents of the named Secrets of type `kubernetes.io/tls`. `names` contains pairs of namespace and
    /// name. Each Secret was checked for changes within the last minute. For a Secret that can't be used, the result
    /// contains an error text. The function returns an error when the API server does not answer.
    pub fn tls_secrets(
        &self,
        names: &BTreeSet<(String, String)>,
    ) -> Result<TlsSecrets, CacheError> {
        self.secrets.get(&self.kube, names).map_err(CacheError::Kube)
    }

    /// Drops all cached Secrets of type `kubernetes.io/tls`, except those with these names.
    pub fn keep_tls_secrets(&self, names: &BTreeSet<(String, String)>) {
        self.secrets.keep(names);
    }

    /// Returns the private network with its routes, no older than `max_age`. When the routes can't be read completely,
    /// the function returns an error.
    pub fn network(
        &self,
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<View<Network>, CacheError> {
        let observe = || {
            let routes = self.provider.routes();
            routes.ok_or_else(|| lacks("private network"))?.observe(urgency)
        };
        self.cloud
            .network
            .get(max_age.max(self.cloud.interval), || self.cloud.pause.guard(observe))
            .map_err(CacheError::Cloud)
    }

    /// Returns the present state of the cloud server with the ID `number`, by a call. If [`Apis::poll_cloud_every`] has
    /// limited how often the cloud is called, and a list of all servers is cached, returns the server from that list
    /// instead.
    pub fn instance(&self, number: u64) -> Result<Instance, provider::ProviderError> {
        if let Some(listed) = self.instances_last().filter(|_| !self.cloud.interval.is_zero()) {
            let id = InstanceId::Cloud(number);
            let found = listed.iter().find(|instance| instance.id == id).cloned();
            let gone = || {
                provider::ProviderError::new(
                    ErrorKind::NotFound,
                    format!("the list of servers does not contain server {id}"),
                )
            };
            return found.ok_or_else(gone);
        }
        self.cloud.pause.guard(|| {
            let instances = self.provider.instances();
            instances.ok_or_else(|| lacks("servers"))?.get(number)
        })
    }

    /// Reads the servers with these names, and replaces them in the cached list of all cloud servers. Returns the whole
    /// list, and the IDs of the servers that were read. Returns `None` when no list is cached, when a call fails, or
    /// when one of the names belongs to no server.
    pub fn instances_named(&self, names: &[&str]) -> Option<(ListedServers, HashSet<InstanceId>)> {
        let (instances, asked) = (self.provider.instances()?, clock::now());
        self.cloud.instances.last()?;
        let mut found: Vec<Instance> = Vec::new();
        for name in names {
            let named = self.cloud.pause.guard(|| instances.named(name)).ok()?;
            if named.is_empty() {
                return None;
            }
            found.extend(named);
        }
        let ids = found.iter().map(|instance| instance.id).collect();
        let list = self.cloud.instances.edit(|servers| {
            let is_newer = |instance: &Instance| {
                found.iter().any(|new| new.id == instance.id || new.name == instance.name)
            };
            servers.retain(|instance| !is_newer(instance));
            servers.append(&mut found);
            order::sort_by_key(servers, |instance| instance.id);
        });
        Some((View::new(list?, asked), ids))
    }

    /// Returns the servers with the IDs in `numbers`, and all other servers on the same pages of the list of all
    /// servers. A server whose ID is in `numbers` but not in the result does not exist.
    ///
    /// When `max_age` is zero, the API is always called. Otherwise a cached answer can be returned. Its greatest age is
    /// the longer of two times: `max_age`, and three seconds multiplied by the number of pages to read.
    pub fn instances_around(
        &self,
        numbers: &BTreeSet<u64>,
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<ListedServers, CacheError> {
        let known = self.instances_last().unwrap_or_default();
        let place = |number| place(&known, number);
        let max_age = if max_age.is_zero() {
            max_age
        } else {
            max_age.max(LOOK_CALL * pages_of(&known, numbers))
        };
        let read = || {
            let instances = self.provider.instances();
            let instances = instances.ok_or_else(|| lacks("servers"))?;
            let servers = instances.around(numbers, &place, urgency)?;
            Ok((numbers.clone(), Arc::new(servers)))
        };
        let is_fresh =
            |view: &View<Around>| view.age() <= max_age && view.value.0.is_superset(numbers);
        let view = self.cloud.around.get_if(is_fresh, || self.cloud.pause.guard(read));
        Ok(view?.map(|(_, servers)| Arc::clone(servers)))
    }

    /// Returns how many pages of the list of all servers must be read to find the servers with these IDs. The number is
    /// an estimate from the list that was read last.
    pub fn pages_around(&self, numbers: &BTreeSet<u64>) -> usize {
        let known = self.instances_last().unwrap_or_default();
        pages_of(&known, numbers) as usize
    }

    /// Whether a list of all servers takes many calls. If so, callers that need only a few servers read these servers
    /// instead of the list.
    pub fn is_large(&self) -> bool {
        self.server_pages() > FEW_PAGES
    }

    /// Returns how many pages the list of all servers has, estimated from the number of servers in the last list. Each
    /// page takes one call.
    pub fn server_pages(&self) -> u32 {
        let servers = self.instances_last().map_or(0, |servers| servers.len());
        u32::try_from(servers.div_ceil(A_PAGE).max(1)).unwrap_or(u32::MAX)
    }

    /// Returns the lists that a daemon reads periodically in the background. `servers` and `load_balancers` are the
    /// periods in its settings. Each list is returned with the number of calls of one read, and with its actual period,
    /// which can be longer than the setting in order to save calls. A list that this process has not read is left out,
    /// because its number of calls is not known.
    pub fn refreshes(&self, servers: Duration, load_balancers: Duration) -> Vec<Refresh> {
        let (listed, observed) = (self.instances_last(), self.cloud.load_balancers.last());
        let of_servers =
            listed.map(|_| ("servers", self.refresh_period(servers), self.list_calls()));
        let of_balancers = observed
            .map(|view| ("load balancers", self.resync_period(load_balancers), view.value.calls()));
        let all = of_servers.into_iter().chain(of_balancers);
        all.map(|(list, period, calls)| Refresh { list, period_seconds: period.as_secs(), calls })
            .collect()
    }

    /// Returns how many calls a list of all servers takes. Each page takes one call. When there are several pages, the
    /// first page is read twice: at the beginning to learn the number of pages, and again after the other pages. When
    /// servers are deleted while the pages are read, servers of the second page move to the first page, and would be
    /// missed without the second read.
    fn list_calls(&self) -> u32 {
        let pages = self.server_pages();
        pages + u32::from(pages > 1)
    }

    /// Returns the period of the background refresh of the list of all servers. This is `period`, or a longer time when
    /// the list takes so many calls that the refreshes would use up too much of the API's rate limit.
    pub fn refresh_period(&self, period: Duration) -> Duration {
        period.max(SERVERS_CALL.saturating_mul(self.list_calls()))
    }

    /// Returns the period of the background refresh of all load balancers. This is `period`, or a longer time when a
    /// refresh takes so many calls that the refreshes would use up too much of the API's rate limit.
    pub fn resync_period(&self, period: Duration) -> Duration {
        let calls = self.cloud.load_balancers.last().map_or(1, |view| view.value.calls());
        period.max(BALANCERS_CALL.saturating_mul(calls))
    }

    /// Returns the period at which the servers of not-ready nodes are read. This is `period`, or a longer time when the
    /// list of all servers has so many pages that these reads would use up too much of the API's rate limit.
    pub fn look_period(&self, period: Duration) -> Duration {
        period.max(LOOK_CALL * self.server_pages())
    }

    /// Returns how long the controller that approves kubelet certificates must wait between two lists of all servers.
    /// Each new certificate request of a kubelet can make such a list necessary. The time is long enough that the lists
    /// take at most one call in three seconds.
    pub fn list_period(&self) -> Duration {
        LOOK_CALL * self.list_calls()
    }

    /// Returns all cloud servers of the last list, however old that list is. Returns `None` when no list was read yet.
    /// No call is made.
    pub fn instances_last(&self) -> Option<Arc<Vec<Instance>>> {
        self.cloud.instances.last().map(|view| view.value)
    }

    /// Stores a list of all cloud servers that the caller has read itself. `asked` is the moment just before the call
    /// for the list was sent.
    pub fn instances_listed(&self, instances: Vec<Instance>, asked: Instant) -> ListedServers {
        self.cloud.instances.put(instances, asked)
    }

    /// Returns all cloud servers. The list is no older than `max_age`, and was requested at `since` or later. When the
    /// API answers only a part of the list, the function returns an error.
    pub fn instances(
        &self,
        since: Option<Instant>,
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<ListedServers, CacheError> {
        let is_fresh = |view: &ListedServers| {
            view.age() <= self.cloud.interval
                || view.age() <= max_age && since.is_none_or(|since| view.asked >= since)
        };
        let list = || {
            self.provider.prepare()?;
            let instances = self.provider.instances();
            instances.map_or(Ok(Vec::new()), |instances| instances.list(urgency))
        };
        let fetch = || self.cloud.pause.guard(list);
        self.cloud.instances.get_if(is_fresh, fetch).map_err(CacheError::Cloud)
    }

    /// Returns all dedicated servers. The list is no older than [`Apis::dedicated_max_age`], and was requested at
    /// `since` or later. When the API answers only a part of the list, the function returns an error. The list is empty
    /// when this program has no credentials for the API of dedicated servers.
    pub fn dedicated(
        &self,
        since: Option<Instant>,
        urgency: Urgency,
    ) -> Result<ListedServers, provider::ProviderError> {
        if self.provider.dedicated().is_none() {
            return Ok(View::new(Arc::default(), clock::now()));
        }
        let max_age = self.dedicated_max_age.max(self.cloud.interval);
        let is_fresh = |view: &ListedServers| {
            view.age() <= max_age && since.is_none_or(|since| view.asked >= since)
        };
        let list = || self.ask_dedicated(|dedicated| dedicated.list(urgency));
        self.dedicated.instances.get_if(is_fresh, list)
    }

    /// Returns all dedicated servers of the last list, however old that list is. Returns `None` when no list was read
    /// yet. No call is made.
    pub fn dedicated_last(&self) -> Option<ListedServers> {
        self.dedicated.instances.last()
    }

    /// Makes one call to the API of dedicated servers, and stores whether the call failed. The answer "not found" is no
    /// failure, and neither is a call that was not sent in order to save the rate limit.
    pub fn ask_dedicated<T>(
        &self,
        question: impl FnOnce(&dyn Dedicated) -> Result<T, provider::ProviderError>,
    ) -> Result<T, provider::ProviderError> {
        let dedicated = self.provider.dedicated();
        let dedicated = dedicated.ok_or_else(|| lacks("dedicated servers"))?;
        let answer = self.dedicated.pause.guard(|| question(dedicated));
        let fails = |error: &provider::ProviderError| {
            error.kind != ErrorKind::NotFound && !error.is_put_off()
        };
        let is_failed = answer.as_ref().err().is_some_and(fails);
        self.dedicated.fails.store(is_failed, Ordering::Relaxed);
        answer
    }

    /// Whether the last call to the API of dedicated servers failed. The value does not change until the next call.
    pub fn dedicated_fails(&self) -> bool {
        self.dedicated.fails.load(Ordering::Relaxed)
    }

    /// Returns the servers of two APIs, which are the cloud's API and the API of dedicated servers. `known` is an
    /// earlier result of this function, or `None`. An API is not called again when `known` contains its error, or a
    /// list of its servers that is new enough for `needs`. The function returns an error when no API answers.
    pub fn servers(
        &self,
        known: Option<AllServers>,
        needs: &ServerNeeds,
        urgency: Urgency,
    ) -> Result<AllServers, CacheError> {
        let kept = known.as_ref().filter(|servers| servers.satisfy_of_cloud(needs));
        let cloud = if let Some(kept) = kept {
            kept.cloud.clone().map_err(CacheError::Cloud)
        } else {
            // In the list of `known`, some servers may be newer than the others, because they were read again by their
            // names. A list that is older than these reads can show an earlier state of these servers. So only a list
            // is accepted that was requested later.
            let partial = known.as_ref().filter(|servers| servers.named.is_some());
            let partial = partial.and_then(|servers| Some(servers.cloud.as_ref().ok()?.asked));
            self.instances(needs.since.max(partial), needs.max_age, urgency)
        };
        let dedicated = match &known {
            Some(known) if known.satisfy_of_dedicated(needs) => known.dedicated.clone(),
            _ => self.dedicated(needs.dedicated_since, urgency),
        };
        let goes_on = self.provider.dedicated().is_some() && dedicated.is_ok();
        Ok(AllServers {
            cloud: match cloud {
                Err(CacheError::Cloud(error)) if goes_on => Err(error),
                cloud => Ok(cloud?),
            },
            dedicated,
            named: kept.and_then(|kept| kept.named.clone()),
        })
    }
}

/// Returns how many of the servers in `known` have a lower ID than `number`. `known` is sorted by ID.
fn place(known: &[Instance], number: u64) -> usize {
    known.partition_point(|instance| instance.id < InstanceId::Cloud(number))
}

fn pages_of(known: &[Instance], numbers: &BTreeSet<u64>) -> u32 {
    let pages: BTreeSet<usize> =
        numbers.iter().map(|number| place(known, *number) / A_PAGE).collect();
    u32::try_from(pages.len()).unwrap_or(u32::MAX)
}

fn lacks(what: &str) -> provider::ProviderError {
    provider::ProviderError::new(ErrorKind::Other, format!("this cloud has no {what}"))
}
