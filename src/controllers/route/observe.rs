//! What both APIs say about routes: read only.

use super::plan::{Plan, View, plan};
use crate::cache::{self, Apis, Error};
use crate::kube::Node;
use crate::provider::{Instance, Network, Route, Urgency};
use ipnet::IpNet;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything a plan rests on.
pub struct Observed {
    pub nodes: Arc<Vec<Arc<Node>>>,
    pub instances: cache::View<Vec<Instance>>,
    pub network: cache::View<Network>,
    /// When all of it was there.
    pub(super) complete: Instant,
}

/// How old what is read may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    pub(super) instances: Duration,
    pub(super) network: Duration,
    pub(super) urgency: Urgency,
}

/// The nodes are given.
pub(super) fn observe(
    apis: &Apis,
    nodes: Arc<Vec<Arc<Node>>>,
    ages: Ages,
) -> Result<Observed, Error> {
    let network = apis.network(ages.network, ages.urgency)?;
    let instances = apis.instances(ages.instances, ages.urgency)?;
    Ok(Observed {
        nodes,
        instances,
        network,
        complete: Instant::now(),
    })
}

impl Observed {
    /// Lists the servers after the network was read, unless that was so: then the gateway of a
    /// route that is there is in the list, if it is a server's.
    pub(super) fn with_all_servers(self, apis: &Apis) -> Result<Observed, Error> {
        let since_read = self.network.time_in_use();
        Ok(Observed {
            instances: apis.instances(since_read, Urgency::Needed)?,
            complete: Instant::now(),
            ..self
        })
    }

    pub(super) fn plan(
        &self,
        apis: &Apis,
        cluster_cidrs: &[IpNet],
        remembered: &HashSet<Route>,
        lacking: &HashSet<String>,
    ) -> Plan {
        let view = View {
            nodes: &self.nodes,
            instances: &self.instances.value,
            network: &self.network.value,
            cluster_cidrs,
            remembered,
            lacking,
        };
        plan(&view, &*apis.provider)
    }
}
