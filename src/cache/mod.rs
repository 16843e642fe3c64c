//! What both APIs say, with its age: one small cache that the controllers share, and the read before a write.
//!
//! Knows: how old a view is, and that one thread fetches while the others wait. Must never
//! decide what to do about what it shows.

mod cached;
mod nodes;

pub use cached::{Error, View};
pub use nodes::{NodeCache, Nodes, Poll};

use crate::kube::{self, Recorder};
pub use crate::kube::{Detail, ReadFrom};
use crate::provider::{
    self, ErrorKind, Instance, InstanceId, Network, Provider, Snapshot, Urgency,
};
use cached::{Cached, CallPause};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All servers, with their age.
pub type Instances = View<Vec<Instance>>;

/// Both APIs, with what they last answered.
pub struct Apis {
    pub kube: Arc<kube::Client>,
    pub provider: Box<dyn Provider>,
    pub recorder: Recorder,
    pub nodes: NodeCache,
    instances: Cached<Vec<Instance>>,
    services: Cached<Vec<Arc<kube::Service>>>,
    any_services: Cached<Vec<Arc<kube::AnyService>>>,
    load_balancers: Cached<Arc<dyn Snapshot>>,
    network: Cached<Network>,
    pause: CallPause,
    cloud_interval: Duration,
}

impl Apis {
    /// `time_scale` multiplies waits; 1 outside of tests.
    pub fn new(kube: kube::Client, provider: Box<dyn Provider>, time_scale: f64) -> Apis {
        let kube = Arc::new(kube);
        Apis {
            nodes: NodeCache::new(Arc::clone(&kube)),
            kube,
            provider,
            recorder: Recorder::new(time_scale),
            instances: Cached::default(),
            services: Cached::default(),
            any_services: Cached::default(),
            load_balancers: Cached::default(),
            network: Cached::default(),
            pause: CallPause::new(time_scale),
            cloud_interval: Duration::ZERO,
        }
    }

    /// From now on the cloud is not asked the same twice within this time, whatever age a reader accepts, and a single
    /// server is taken from the list of all. For a display that is redrawn: no write may rest on it.
    pub fn poll_cloud_every(&mut self, interval: Duration) {
        self.cloud_interval = interval;
        self.pause.at_least = interval;
    }

    /// All Services of type LoadBalancer, no older than that.
    pub fn load_balancer_services(
        &self,
        max_age: Duration,
        from: ReadFrom,
    ) -> Result<View<Vec<Arc<kube::Service>>>, Error> {
        self.services
            .get(max_age, || self.kube.load_balancer_services(from))
            .map_err(Error::Kube)
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
                self.recorder.keep(kube::SERVICE, uids);
                Ok(all)
            })
            .map_err(Error::Kube)
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
        let covers = |snapshot: &dyn Snapshot| {
            let mut services = services.iter();
            services.all(|service| snapshot.covers(service))
        };
        let max_age = match self.load_balancers.last() {
            Some(view) if !covers(&**view.value) => Duration::ZERO,
            _ => max_age.max(self.cloud_interval),
        };
        let observe = || {
            self.provider
                .prepare()
                .and_then(|()| provider.observe(services, urgency))
        };
        self.load_balancers
            .get(max_age, || self.pause.guard(observe))
            .map_err(Error::Cloud)
    }

    /// The private network with its routes, no older than that: complete, or an error.
    pub fn network(&self, max_age: Duration, urgency: Urgency) -> Result<View<Network>, Error> {
        let observe = || {
            let routes = self.provider.routes();
            routes
                .ok_or_else(|| lacks("private network"))?
                .observe(urgency)
        };
        self.network
            .get(max_age.max(self.cloud_interval), || {
                self.pause.guard(observe)
            })
            .map_err(Error::Cloud)
    }

    /// One server as it is now.
    pub fn instance(&self, id: InstanceId) -> Result<Instance, provider::Error> {
        if let Some(listed) = self
            .instances_last()
            .filter(|_| !self.cloud_interval.is_zero())
        {
            let found = listed.iter().find(|one| one.id == id).cloned();
            let gone =
                || provider::Error::new(ErrorKind::NotFound, format!("server {id} is not listed"));
            return found.ok_or_else(gone);
        }
        self.pause.guard(|| {
            let instances = self.provider.instances();
            instances.ok_or_else(|| lacks("servers"))?.get(id)
        })
    }

    /// All servers as they were last listed, however long ago; no call.
    pub fn instances_last(&self) -> Option<Arc<Vec<Instance>>> {
        self.instances.last().map(|view| view.value)
    }

    /// All servers as they were listed before there was an `Apis`, requested then.
    pub fn instances_listed(&self, instances: Vec<Instance>, asked: Instant) -> Instances {
        self.instances.put(instances, asked)
    }

    /// All servers, no older than that: complete, or an error.
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
            view.age() <= self.cloud_interval
                || view.age() <= max_age && since.is_none_or(|since| view.asked >= since)
        };
        let list = || {
            self.provider.prepare()?;
            let instances = self.provider.instances();
            instances.map_or(Ok(Vec::new()), |instances| instances.list(urgency))
        };
        let fetch = || self.pause.guard(list);
        self.instances.get_if(is_fresh, fetch).map_err(Error::Cloud)
    }
}

fn lacks(what: &str) -> provider::Error {
    provider::Error::new(ErrorKind::Other, format!("this cloud has no {what}"))
}
