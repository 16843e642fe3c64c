//! What both APIs say, with its age: one small cache that the controllers share, and the read before a write.
//!
//! Knows: how old a view is, and that one thread fetches while the others wait. Must never
//! decide what to do about what it shows.

mod cached;
mod identity;
mod nodes;
mod secrets;
mod servers;

pub use cached::{Error, View};
pub use identity::Identity;
pub use nodes::{NodeCache, Nodes, Poll};
pub use servers::{AllServers, Covers, Instances, ServerNeeds};

use crate::kube::{self, Recorder};
pub use crate::kube::{Detail, ReadFrom};
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

/// How old a list of dedicated servers may be, unless `ROBOT_CACHE_TIMEOUT` says otherwise.
const DEDICATED_MAX_AGE: Duration = Duration::from_secs(300);

/// On one page of a list, which is one call.
const A_PAGE: usize = 50;

/// A list of so many pages costs hardly more than single servers, and shows more.
const FEW_PAGES: u32 = 3;

/// Of the project's 3,600 calls an hour refreshes take 200 at most, those of the Network, one every five minutes, among
/// them: 120 for all servers, one in so long a time.
const SERVERS_CALL: Duration = Duration::from_secs(30);

/// And 60 for all load balancers with what their plans rest on.
const BALANCERS_CALL: Duration = Duration::from_secs(60);

/// And looks for the servers of nodes that are not ready, each time all of them, 1,200.
const LOOK_CALL: Duration = Duration::from_secs(3);

/// Numbers, and the servers on the pages on which these are or would be.
type Around = (BTreeSet<u64>, Arc<Vec<Instance>>);

/// A list that is read again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refresh {
    /// `servers` or `load balancers`.
    pub list: &'static str,
    pub period_seconds: u64,
    /// Of one read.
    pub calls: u32,
}

/// Both APIs, with what they last answered.
pub struct Apis {
    pub kube: Arc<kube::Client>,
    pub provider: Box<dyn Provider>,
    pub recorder: Recorder,
    pub nodes: NodeCache,
    /// Of the cluster, shared with the Lease that remembers it.
    pub identity: Arc<Identity>,
    /// `--concurrent-node-syncs`: how many nodes are written at the same time.
    pub concurrent_nodes: usize,
    services: Cached<kube::ServiceList>,
    any_services: Cached<Vec<Arc<kube::AnyService>>>,
    secrets: Secrets,
    cloud: CloudLists,
    dedicated: DedicatedList,
}

/// What the API of the cloud answered.
#[derive(Default)]
struct CloudLists {
    instances: Cached<Vec<Instance>>,
    around: Cached<Around>,
    load_balancers: Cached<Arc<dyn Snapshot>>,
    network: Cached<Network>,
    pause: CallPause,
    /// Nothing is asked twice within this time.
    interval: Duration,
}

/// What the API of dedicated servers answered.
struct DedicatedList {
    instances: Cached<Vec<Instance>>,
    pause: CallPause,
    /// The last call failed.
    fails: AtomicBool,
    /// `ROBOT_CACHE_TIMEOUT`: how old the list may be, whatever rests on it.
    max_age: Duration,
}

impl Apis {
    pub fn new(kube: kube::Client, provider: Box<dyn Provider>) -> Apis {
        let kube = Arc::new(kube);
        Apis {
            nodes: NodeCache::new(Arc::clone(&kube)),
            kube,
            provider,
            recorder: Recorder::default(),
            identity: Arc::default(),
            concurrent_nodes: 1,
            services: Cached::default(),
            any_services: Cached::default(),
            secrets: Secrets::default(),
            cloud: CloudLists::default(),
            dedicated: DedicatedList {
                instances: Cached::default(),
                pause: CallPause::default(),
                fails: AtomicBool::new(false),
                max_age: DEDICATED_MAX_AGE,
            },
        }
    }

    /// How old a list of dedicated servers may be from now on.
    pub fn set_dedicated_max_age(&mut self, max_age: Duration) {
        self.dedicated.max_age = max_age;
    }

    /// From now on the cloud is not asked the same twice within this time, whatever age a reader accepts, and a single
    /// server is taken from the list of all. For a display that is redrawn: no write may rest on it.
    pub fn poll_cloud_every(&mut self, interval: Duration) {
        self.cloud.interval = interval;
        self.cloud.pause.at_least = interval;
        self.dedicated.pause.at_least = interval;
    }

    /// All Services of type LoadBalancer, no older than that. Where they are as they were, it is the same list.
    pub fn load_balancer_services(
        &self,
        max_age: Duration,
        from: ReadFrom,
    ) -> Result<View<Vec<Arc<kube::Service>>>, Error> {
        let known = self.services.last().map(|view| view.value).unwrap_or_default();
        let fetch = || self.kube.load_balancer_services(from, &known);
        let view = self.services.get(max_age, fetch).map_err(Error::Kube)?;
        Ok(view.map(|services| Arc::clone(&services.items)))
    }

    /// Every Service of any type, no older than that; never from the API server's cache.
    pub fn any_services(
        &self,
        max_age: Duration,
    ) -> Result<View<Vec<Arc<kube::AnyService>>>, Error> {
        self.any_services
            .get(max_age, || {
                let all = self.kube.any_services()?;
                let uids = all.iter().map(|service| service.metadata.uid.as_str());
                self.recorder.reported().keep(kube::SERVICE, uids);
                Ok(all)
            })
            .map_err(Error::Kube)
    }

    /// The identities of the cluster, where its Service `default/kubernetes` has this UID now; none: none is known.
    pub fn identities(&self, service_uid: Option<&str>) -> Result<Option<kube::Identities>, Error> {
        let known = self.identity.of(&self.kube, service_uid);
        known.map_err(Error::Kube)
    }

    /// All load balancers, and what plans for these Services rest on, no older than that.
    pub fn load_balancers(
        &self,
        services: &[&provider::Service],
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<View<Arc<dyn Snapshot>>, Error> {
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
            .map_err(Error::Cloud)
    }

    /// All load balancers as they were read last, however long ago; no call.
    pub fn load_balancers_last(&self) -> Option<Arc<dyn Snapshot>> {
        self.cloud.load_balancers.last().map(|view| Arc::clone(&*view.value))
    }

    /// What these Secrets of type `kubernetes.io/tls` hold, by namespace and name, as it was a minute ago or later. One
    /// that can't be had keeps nothing else from being read; an error: the API server does not answer.
    pub fn tls_secrets(&self, names: &BTreeSet<(String, String)>) -> Result<TlsSecrets, Error> {
        self.secrets.get(&self.kube, names).map_err(Error::Kube)
    }

    /// All others are forgotten.
    pub fn keep_tls_secrets(&self, names: &BTreeSet<(String, String)>) {
        self.secrets.keep(names);
    }

    /// The private network with its routes, no older than that: complete, or an error.
    pub fn network(&self, max_age: Duration, urgency: Urgency) -> Result<View<Network>, Error> {
        let observe = || {
            let routes = self.provider.routes();
            routes.ok_or_else(|| lacks("private network"))?.observe(urgency)
        };
        self.cloud
            .network
            .get(max_age.max(self.cloud.interval), || self.cloud.pause.guard(observe))
            .map_err(Error::Cloud)
    }

    /// The cloud server of this number as it is now.
    pub fn instance(&self, number: u64) -> Result<Instance, provider::Error> {
        if let Some(listed) = self.instances_last().filter(|_| !self.cloud.interval.is_zero()) {
            let id = InstanceId::Cloud(number);
            let found = listed.iter().find(|one| one.id == id).cloned();
            let gone =
                || provider::Error::new(ErrorKind::NotFound, format!("server {id} is not listed"));
            return found.ok_or_else(gone);
        }
        self.cloud.pause.guard(|| {
            let instances = self.provider.instances();
            instances.ok_or_else(|| lacks("servers"))?.get(number)
        })
    }

    /// All cloud servers as they were listed last, those of these names read anew; and which those are. None: there is no
    /// such list, or no answer, or a name has no server.
    pub fn instances_named(&self, names: &[&str]) -> Option<(Instances, HashSet<InstanceId>)> {
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
        let ids = found.iter().map(|one| one.id).collect();
        let list = self.cloud.instances.edit(|servers| {
            let is_newer =
                |one: &Instance| found.iter().any(|new| new.id == one.id || new.name == one.name);
            servers.retain(|one| !is_newer(one));
            servers.append(&mut found);
            servers.sort_unstable_by_key(|one| one.id);
        });
        Some((View::new(list?, asked), ids))
    }

    /// All servers on those pages of the list of all on which these are or would be, no older than that, or than as many
    /// calls may be made again: one of these numbers that is not among them does not exist.
    pub fn instances_around(
        &self,
        numbers: &BTreeSet<u64>,
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<Instances, Error> {
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

    /// So many pages of the list of all servers hold those of these numbers, as far as is known.
    pub fn pages_around(&self, numbers: &BTreeSet<u64>) -> usize {
        let known = self.instances_last().unwrap_or_default();
        pages_of(&known, numbers) as usize
    }

    /// A list of all servers is many calls: where some servers are enough, only those are read.
    pub fn is_large(&self) -> bool {
        self.server_pages() > FEW_PAGES
    }

    /// Calls for one list of all servers, as far as is known.
    pub fn server_pages(&self) -> u32 {
        pages(self.instances_last().map_or(0, |servers| servers.len()))
    }

    /// How often the lists that were read here are read again by a daemon with these periods, where nothing waits for it.
    pub fn refreshes(&self, servers: Duration, load_balancers: Duration) -> Vec<Refresh> {
        let (listed, observed) = (self.instances_last(), self.cloud.load_balancers.last());
        let of_servers = listed.map(|_| {
            let pages = self.server_pages();
            let calls = pages + u32::from(pages > 1);
            ("servers", servers.max(servers_period(pages)), calls)
        });
        let of_balancers = observed.map(|view| {
            let calls = view.value.calls();
            let period = load_balancers.max(balancers_period(calls));
            ("load balancers", period, calls)
        });
        let all = of_servers.into_iter().chain(of_balancers);
        all.map(|(list, period, calls)| Refresh { list, period_seconds: period.as_secs(), calls })
            .collect()
    }

    /// How often all servers are listed where nothing waits for it: each `period`, or less often where that were more
    /// calls than refreshes may take.
    pub fn refresh_period(&self, period: Duration) -> Duration {
        period.max(servers_period(self.server_pages()))
    }

    /// The same for all load balancers.
    pub fn resync_period(&self, period: Duration) -> Duration {
        let calls = self.cloud.load_balancers.last().map_or(1, |view| view.value.calls());
        period.max(balancers_period(calls))
    }

    /// The same for looks at the servers of nodes that are not ready.
    pub fn look_period(&self, period: Duration) -> Duration {
        period.max(LOOK_CALL * self.server_pages())
    }

    /// All cloud servers as they were last listed, however long ago; no call.
    pub fn instances_last(&self) -> Option<Arc<Vec<Instance>>> {
        self.cloud.instances.last().map(|view| view.value)
    }

    /// All cloud servers as they were listed before there was an `Apis`, requested then.
    pub fn instances_listed(&self, instances: Vec<Instance>, asked: Instant) -> Instances {
        self.cloud.instances.put(instances, asked)
    }

    /// All cloud servers, no older than that: complete, or an error.
    pub fn instances(&self, max_age: Duration, urgency: Urgency) -> Result<Instances, Error> {
        self.instances_since(None, max_age, urgency)
    }

    /// The same, requested since then.
    pub fn instances_since(
        &self,
        since: Option<Instant>,
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<Instances, Error> {
        let is_fresh = |view: &Instances| {
            view.age() <= self.cloud.interval
                || view.age() <= max_age && since.is_none_or(|since| view.asked >= since)
        };
        let list = || {
            self.provider.prepare()?;
            let instances = self.provider.instances();
            instances.map_or(Ok(Vec::new()), |instances| instances.list(urgency))
        };
        let fetch = || self.cloud.pause.guard(list);
        self.cloud.instances.get_if(is_fresh, fetch).map_err(Error::Cloud)
    }

    /// All dedicated servers, requested since then: complete, or an error. None where there is no such API.
    pub fn dedicated(
        &self,
        since: Option<Instant>,
        urgency: Urgency,
    ) -> Result<Instances, provider::Error> {
        if self.provider.dedicated().is_none() {
            return Ok(View::new(Arc::default(), clock::now()));
        }
        let max_age = self.dedicated.max_age.max(self.cloud.interval);
        let is_fresh = |view: &Instances| {
            view.age() <= max_age && since.is_none_or(|since| view.asked >= since)
        };
        let list = || self.ask_dedicated(|dedicated| dedicated.list(urgency));
        self.dedicated.instances.get_if(is_fresh, list)
    }

    /// All dedicated servers as they were last listed, however long ago; no call.
    pub fn dedicated_last(&self) -> Option<Instances> {
        self.dedicated.instances.last()
    }

    /// One question about a dedicated server.
    pub fn ask_dedicated<T>(
        &self,
        question: impl FnOnce(&dyn Dedicated) -> Result<T, provider::Error>,
    ) -> Result<T, provider::Error> {
        let dedicated = self.provider.dedicated();
        let dedicated = dedicated.ok_or_else(|| lacks("dedicated servers"))?;
        let answer = self.dedicated.pause.guard(|| question(dedicated));
        let fails =
            |error: &provider::Error| error.kind != ErrorKind::NotFound && !error.is_put_off();
        let is_failed = answer.as_ref().err().is_some_and(fails);
        self.dedicated.fails.store(is_failed, Ordering::Relaxed);
        answer
    }

    /// The last call about dedicated servers failed: a tick that made none proves nothing else.
    pub fn dedicated_fails(&self) -> bool {
        self.dedicated.fails.load(Ordering::Relaxed)
    }

    /// The servers of both APIs: those that are known, where they satisfy these needs, else read again. The list of an
    /// API that did not answer is not asked for once more. The error: neither API answers, or the only one does not.
    pub fn servers(
        &self,
        known: Option<AllServers>,
        needs: &ServerNeeds,
        urgency: Urgency,
    ) -> Result<AllServers, Error> {
        let kept = known.as_ref().filter(|one| one.satisfy_of_cloud(needs));
        let cloud = if let Some(kept) = kept {
            kept.cloud.clone().map_err(Error::Cloud)
        } else {
            // A list in which single servers were read is no whole one.
            let partial = known.as_ref().filter(|one| one.named.is_some());
            let partial = partial.and_then(|one| Some(one.cloud.as_ref().ok()?.asked));
            self.instances_since(needs.since.max(partial), needs.max_age, urgency)
        };
        let dedicated = match &known {
            Some(known) if known.satisfy_of_dedicated(needs) => known.dedicated.clone(),
            _ => self.dedicated(needs.dedicated_since, urgency),
        };
        let goes_on = self.provider.dedicated().is_some() && dedicated.is_ok();
        Ok(AllServers {
            cloud: match cloud {
                Err(Error::Cloud(error)) if goes_on => Err(error),
                cloud => Ok(cloud?),
            },
            dedicated,
            named: kept.and_then(|kept| kept.named.clone()),
        })
    }
}

/// How many of these servers have a lower number.
fn place(known: &[Instance], number: u64) -> usize {
    known.partition_point(|one| one.id < InstanceId::Cloud(number))
}

fn pages_of(known: &[Instance], numbers: &BTreeSet<u64>) -> u32 {
    let pages: BTreeSet<usize> = numbers.iter().map(|one| place(known, *one) / A_PAGE).collect();
    u32::try_from(pages.len()).unwrap_or(u32::MAX)
}

/// Pages of a list of so many.
fn pages(count: usize) -> u32 {
    u32::try_from(count.div_ceil(A_PAGE).max(1)).unwrap_or(u32::MAX)
}

/// Between two refreshes of all servers at least.
fn servers_period(pages: u32) -> Duration {
    SERVERS_CALL.saturating_mul(pages)
}

/// Between two refreshes of all load balancers at least, where one takes so many calls.
fn balancers_period(calls: u32) -> Duration {
    BALANCERS_CALL.saturating_mul(calls)
}

fn lacks(what: &str) -> provider::Error {
    provider::Error::new(ErrorKind::Other, format!("this cloud has no {what}"))
}
