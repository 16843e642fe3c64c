//! What both APIs say, with its age: one small cache that the controllers share, and the read before a write.
//!
//! Knows: how old a view is, and that one thread fetches while the others wait. Must never
//! decide what to do about what it shows.

mod cached;
mod nodes;

pub use cached::View;
pub use nodes::{Nodes, Poll};

use crate::kube::{self, Recorder};
pub use crate::kube::{Detail, ReadFrom};
use crate::provider::{
    self, ErrorKind, Instance, InstanceId, Network, Provider, Snapshot, Urgency,
};
use cached::{Cached, Outage};
use nodes::NodeCache;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All servers, with their age.
pub type Instances = View<Vec<Instance>>;

/// Both APIs, with what they last answered.
pub struct Apis {
    pub kube: kube::Client,
    pub provider: Box<dyn Provider>,
    pub recorder: Recorder,
    nodes: NodeCache,
    instances: Cached<Vec<Instance>>,
    services: Cached<Vec<Arc<kube::Service>>>,
    any_services: Cached<Vec<Arc<kube::AnyService>>>,
    load_balancers: Cached<Arc<dyn Snapshot>>,
    network: Cached<Network>,
    outage: Outage,
}

/// Which of the two APIs did not answer, and how.
#[derive(Debug)]
pub enum Error {
    Kube(kube::Error),
    Cloud(provider::Error),
}

impl Apis {
    /// `time_scale` multiplies waits; 1 outside of tests.
    pub fn new(kube: kube::Client, provider: Box<dyn Provider>, time_scale: f64) -> Apis {
        Apis {
            kube,
            provider,
            recorder: Recorder::new(time_scale),
            nodes: NodeCache::default(),
            instances: Cached::default(),
            services: Cached::default(),
            any_services: Cached::default(),
            load_balancers: Cached::default(),
            network: Cached::default(),
            outage: Outage::new(time_scale),
        }
    }

    /// All nodes, each read whole, no older than that: what a person is shown.
    pub fn nodes(&self, max_age: Duration, from: ReadFrom) -> Result<Nodes, Error> {
        self.nodes
            .whole(&self.kube, max_age, from)
            .map_err(Error::Kube)
    }

    /// All nodes, for little: whole nodes were read at the last list, or when the table showed a
    /// change. It is answered from the API server's cache: what is
    /// planned on it is guarded by each object's resourceVersion when it is written.
    pub fn poll_nodes(&self, poll: Poll) -> Result<Nodes, Error> {
        self.nodes.poll(&self.kube, poll).map_err(Error::Kube)
    }

    /// All nodes, and those of these names no older than that.
    pub fn nodes_again(&self, names: &[String], max_age: Duration) -> Result<Nodes, Error> {
        self.nodes
            .again(&self.kube, names, max_age)
            .map_err(Error::Kube)
    }

    /// A write of ours, begun then, was answered with the node as it is since.
    pub fn node_written(&self, node: kube::Node, begun: Instant) {
        self.nodes.written(node, begun);
    }

    /// The nodes as they were last seen, however long ago; no call.
    pub fn nodes_seen(&self) -> Option<Nodes> {
        self.nodes.last()
    }

    /// When this process first read this very node (by its UID): after the answer that held it.
    /// None: the cache does not hold it.
    pub fn node_first_seen(&self, node: &kube::Node) -> Option<Instant> {
        self.nodes.first_seen(node)
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

    /// One Service as it is now; none when the API server itself says that it is not there.
    pub fn service(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<kube::Service>>, Error> {
        self.kube.service(namespace, name).map_err(Error::Kube)
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
            _ => max_age,
        };
        let observe = || {
            self.provider
                .prepare()
                .and_then(|()| provider.observe(services, urgency))
        };
        self.load_balancers
            .get(max_age, || self.outage.guard(observe))
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
            .get(max_age, || self.outage.guard(observe))
            .map_err(Error::Cloud)
    }

    /// One server as it is now.
    pub fn instance(&self, id: InstanceId) -> Result<Instance, provider::Error> {
        self.outage.guard(|| {
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
        self.instances_if(|view| view.age() <= max_age, urgency)
    }

    /// The same, requested since then.
    pub fn instances_since(
        &self,
        since: Instant,
        max_age: Duration,
        urgency: Urgency,
    ) -> Result<Instances, Error> {
        self.instances_if(|view| view.asked >= since && view.age() <= max_age, urgency)
    }

    fn instances_if(
        &self,
        is_fresh: impl Fn(&Instances) -> bool,
        urgency: Urgency,
    ) -> Result<Instances, Error> {
        let list = || {
            self.provider.prepare()?;
            let instances = self.provider.instances();
            instances.map_or(Ok(Vec::new()), |instances| instances.list(urgency))
        };
        let fetch = || self.outage.guard(list);
        self.instances.get_if(is_fresh, fetch).map_err(Error::Cloud)
    }
}

fn lacks(what: &str) -> provider::Error {
    provider::Error::new(ErrorKind::Other, format!("this cloud has no {what}"))
}

impl Error {
    /// Which API, and in which way it failed: as long as this stays the same, it is the same trouble.
    pub fn state(&self) -> &'static str {
        match self {
            Error::Kube(error) if error.is_permanent() => "kubernetes refuses",
            Error::Kube(_) => "kubernetes unavailable",
            Error::Cloud(error) => match error.kind {
                ErrorKind::RateLimited { .. } => "cloud rate limit",
                _ if error.is_permanent() => "cloud refuses",
                _ => "cloud unavailable",
            },
        }
    }

    /// The gate did not let a write pass.
    pub fn is_refused(&self) -> bool {
        match self {
            Error::Kube(error) => error.is_refused(),
            Error::Cloud(error) => error.kind == ErrorKind::Refused,
        }
    }

    /// The credentials are not accepted.
    pub fn is_unauthorized(&self) -> bool {
        match self {
            Error::Kube(error) => error.is_unauthorized(),
            Error::Cloud(error) => error.kind == ErrorKind::Unauthorized,
        }
    }

    /// Trying again does not help: a setting, a credential or a role has to be fixed.
    pub fn is_permanent(&self) -> bool {
        match self {
            Error::Kube(error) => error.is_permanent(),
            Error::Cloud(error) => error.is_permanent(),
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Error {
        Error::Kube(error)
    }
}

impl From<provider::Error> for Error {
    fn from(error: provider::Error) -> Error {
        Error::Cloud(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kube(error) => error.fmt(f),
            Error::Cloud(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
