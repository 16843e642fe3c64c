//! Reads the APIs of Kubernetes and the cloud, and makes plans from these data and from the routes that nodes needed
//! earlier. The routes of the Network are compared with the routes that the nodes need in three cases: when nodes or
//! the addresses of their servers have changed, when the last comparison or its changes have failed, and when five
//! minutes have passed since the last comparison.

use super::plan::{Inputs, plan};
use super::types::{RoutePlan, RouteRow, RouteStep, State};
use crate::cache::{self, Apis, CacheError, Poll, ReadFrom};
use crate::controllers::Controller;
use crate::controllers::matching::{Claims, server_of};
use crate::controllers::schedule::{Reads, Schedule, Why};
use crate::kube::KubeNode;
use crate::provider::{Instance, InstanceId, Network, Provider, Route, Urgency, clock};
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time after which the routes of the Network are compared with the nodes again, even when no node has changed.
const COMPARE_PERIOD: Duration = Duration::from_secs(300);

/// The greatest number of routes that are remembered, which is more than the 100 routes that a Network can have. The
/// controller remembers the routes that nodes of this cluster have needed. When such a node and its server are deleted,
/// another server can get the address to which the route leads. Only this memory then shows that the route belongs to
/// this cluster and can be deleted.
const REMEMBERED_AT_MOST: usize = 1000;

/// How often the list of nodes is checked for changes. All controllers share the reads of this list.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time that may have passed since the metadata of all nodes were last read. So within this time, this
/// controller notices that a node was deleted and created again with the same name.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// The greatest number of nodes without pod CIDRs that are read again before the routes are compared with the nodes.
/// Each of these nodes takes an API call.
const UNASSIGNED_AT_MOST: usize = 10;

/// How long after its creation a node without a pod CIDR is read again and again. In this time, kube-controller-manager
/// will probably set its pod CIDR. An older node without a pod CIDR is not expected to get one.
const NEW_FOR: Duration = Duration::from_secs(600);

/// The name under which a failed sync of the routes is stored, so that the sync is tried again after a wait.
pub(super) const NETWORK: &str = "network";

type SharedNodes = Arc<Vec<Arc<KubeNode>>>;

/// Settings of the route controller.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// The pod ranges of the cluster. The controller changes only routes to destinations within these ranges. This is
    /// the setting `--cluster-cidr`.
    pub cluster_cidrs: Vec<IpNet>,
    /// The shortest time from the beginning of one comparison of the routes with the nodes to the beginning of the
    /// next. This is the setting `--route-reconciliation-period`.
    pub reconciliation_period: Duration,
    /// How old a list of servers may be when a sync plans its writes from it. This is the setting
    /// `HCLOUD_SERVER_CACHE_MAX_AGE`.
    pub server_cache_max_age: Duration,
}

/// The route controller, and what it remembers between two comparisons of the Network's routes with the nodes.
pub struct RouteController {
    pub(super) settings: RouteSettings,
    pub(super) memory: RouteMemory,
    pub(super) schedule: Schedule,
    /// A hash of the nodes and servers from which the routes were planned at the last comparison of nodes and routes.
    /// While nodes and servers still have this hash, they are no reason for a new comparison. `None` before the first
    /// comparison.
    compared: Option<u64>,
    begun: Option<Instant>,
    /// Whether the last sync deleted a route, but failed before it added the replacement of this route. When this is
    /// so, the next sync may begin before the time `reconciliation_period` (the shortest time between two syncs) has
    /// passed.
    pub(super) is_interrupted: bool,
}

/// A plan for the routes of the private Network, and the data from which it was made.
pub(super) struct ObservedRoutes {
    pub(super) plan: RoutePlan,
    pub(super) network: cache::View<Network>,
    pub(super) instances: Arc<Vec<Instance>>,
    /// The time at which all the data for the plan had been read.
    pub(super) complete: Instant,
}

/// How old the data may be from which a plan is made. Data that are older are read again. `urgency` is the urgency of
/// the API calls for this.
pub(super) struct Ages {
    pub(super) network: Duration,
    pub(super) instances: Duration,
    pub(super) urgency: Urgency,
}

/// What the route controller remembers from earlier reads and plans.
#[derive(Debug, Default)]
pub(super) struct RouteMemory {
    /// The routes that nodes of this cluster have needed. When such a node and its server are deleted, a new server can
    /// get the same address. Only this memory then shows that the route belongs to this cluster. A route is forgotten
    /// when the Network does not contain it any more.
    pub(super) routes: HashSet<Route>,
    /// The time since which needed routes have been blocked by routes that may belong to another cluster. `None` when
    /// no route is blocked in this way.
    in_doubt_since: Option<Instant>,
}

impl RouteController {
    pub fn new(settings: RouteSettings) -> RouteController {
        RouteController {
            settings,
            memory: RouteMemory::default(),
            schedule: Schedule::default(),
            compared: None,
            begun: None,
            is_interrupted: false,
        }
    }

    /// Reads the APIs of Kubernetes and the cloud, and makes a plan. The nodes and the network are at most `max_age`
    /// old. The list of servers can be older, but it is read again when the plan deletes a route or when a route can't
    /// be made.
    pub(super) fn observe_all(
        &self,
        apis: &Apis,
        max_age: Duration,
    ) -> Result<ObservedRoutes, CacheError> {
        // When a node is missing in this list, its route is deleted. A list from the API server's cache can lack a node
        // that exists, so the list is read from etcd.
        let nodes = apis.nodes.whole(max_age, ReadFrom::Latest)?.value;
        let mut ages = Ages {
            network: max_age,
            instances: max_age.max(self.settings.server_cache_max_age),
            urgency: Urgency::Needed,
        };
        let observed = self.observe(apis, &nodes, &ages)?;
        if !observed.plan.needs_all_servers() {
            return Ok(observed);
        }
        // The servers are listed again, but the network is not read again. A route is deleted when no server in the
        // list has the address of its gateway. If the list of servers were older than the list of routes, it could lack
        // a new server whose route exists already, and this route could be deleted.
        ages.network = Duration::MAX;
        ages.instances = observed.network.time_in_use();
        self.observe(apis, &nodes, &ages)
    }

    /// Reads the network and the servers, unless cached answers are new enough according to `ages`. Then makes a plan
    /// for the routes of the given nodes.
    pub(super) fn observe(
        &self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
        ages: &Ages,
    ) -> Result<ObservedRoutes, CacheError> {
        let network = apis.network(ages.network, ages.urgency)?;
        let instances = apis.instances(None, ages.instances, ages.urgency)?.value;
        Ok(ObservedRoutes {
            plan: self.plan(apis, nodes, &instances, &network.value),
            instances,
            complete: clock::now(),
            network,
        })
    }

    pub(super) fn plan(
        &self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
        instances: &[Instance],
        network: &Network,
    ) -> RoutePlan {
        let memory = &self.memory;
        let inputs = Inputs {
            nodes,
            instances,
            network,
            cluster_cidrs: &self.settings.cluster_cidrs,
            remembered: &memory.routes,
            is_in_doubt_for_long: memory
                .in_doubt_since
                .is_some_and(|at| clock::since(at) >= COMPARE_PERIOD / 2),
        };
        plan(&inputs, &*apis.provider)
    }

    /// Returns the nodes whose routes must be compared with the Network now, and how old the cloud's data for the
    /// comparison may be. Returns `None` when no comparison is due.
    pub(super) fn due(&mut self, apis: &Apis) -> Result<Option<(SharedNodes, Ages)>, CacheError> {
        let now = clock::now();
        let poll = Poll {
            table_max_age: self.interval() / 2,
            // The node controller reads complete Node objects at least once in this time, so the route controller can
            // use its list. The route controller reads complete Node objects by itself only when the node controller
            // does not run.
            whole_max_age: COMPARE_PERIOD * 2,
            metadata_max_age: Some(METADATA_MAX_AGE),
        };
        let nodes = self.with_new_ranges(apis, &apis.nodes.poll(poll)?.value)?;
        let provider = &*apis.provider;
        let is_ours = |node: &KubeNode| server_of(node, provider).is_some();
        let has_pods = |node: &Arc<KubeNode>| !node.spec.pod_cidrs.is_empty() && is_ours(node);
        if !nodes.iter().any(has_pods) {
            // No node on a server of this cloud has a pod CIDR, so every route would seem to be unneeded. It is more
            // probable that something is wrong in the cluster. So nothing is compared, and no route is deleted.
            return Ok(None);
        }
        let is_time = self.schedule.is_comparison_due(COMPARE_PERIOD, now);
        // The servers come from the last list that any controller has read, so no API call is needed.
        let servers = apis.instances_last().unwrap_or_default();
        let print = fingerprint(&nodes, &servers, provider);
        let is_retried = self.schedule.backoff.is_retry_due(NETWORK, now);
        let whys = [
            (Why::Changed, self.compared != Some(print)),
            (Why::Retried, is_retried),
            (Why::Compared, is_time),
        ];
        let whys = whys.into_iter().filter(|(_, is_so)| *is_so).map(|(why, _)| why);
        let pause = self.settings.reconciliation_period;
        let is_early =
            self.begun.is_some_and(|at| now - at < pause) && !(self.is_interrupted && is_retried);
        if is_early || whys.clone().next().is_none() {
            return Ok(None);
        }
        self.begun = Some(now);
        let Reads { max_age, urgency } = self.schedule.reads(whys, COMPARE_PERIOD);
        // The node controller lists the servers at regular intervals (`refresh_period`). The list for the routes is
        // allowed to be older than such an interval, so that the route controller can use the list of the node
        // controller.
        let instances = apis.refresh_period(COMPARE_PERIOD) * 3 / 2;
        Ok(Some((nodes, Ages { network: max_age, instances, urgency })))
    }

    /// Reads new nodes without a pod CIDR again, and returns all nodes. Kubernetes sets the pod CIDR some time after
    /// the registration of a node. The regular reads of all nodes do not show it, because they return only a table with
    /// a few columns. Older nodes may never get a pod CIDR, so they are not read again.
    fn with_new_ranges(
        &self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
    ) -> Result<SharedNodes, CacheError> {
        let old = clock::timestamp().checked_sub(NEW_FOR).unwrap_or_default();
        let is_lacking = |node: &&Arc<KubeNode>| {
            let created = node.metadata.creation_timestamp;
            let is_new = created.is_some_and(|created| created > old);
            let is_ours = || server_of(node, &*apis.provider).is_some();
            is_new && node.spec.pod_cidrs.is_empty() && is_ours()
        };
        let lacking = nodes.iter().filter(is_lacking).take(UNASSIGNED_AT_MOST);
        let lacking: Vec<String> = lacking.map(|node| node.name().to_owned()).collect();
        Ok(apis.nodes.again(&lacking, self.interval() * 2)?.value)
    }

    /// Records that the routes for these nodes and servers were just compared with the Network.
    pub(super) fn compared(&mut self, apis: &Apis, nodes: &[Arc<KubeNode>], servers: &[Instance]) {
        self.compared = Some(fingerprint(nodes, servers, &*apis.provider));
        self.schedule.compared = Some(clock::now());
    }
}

impl RouteMemory {
    /// Remembers the routes that the plan says are needed. Forgets the routes that the network does not contain any
    /// more.
    pub(super) fn note_routes(&mut self, plan: &RoutePlan, network: &Network) {
        let there: HashSet<&Route> = network.routes.iter().collect();
        self.routes.retain(|route| there.contains(route));
        for route in plan.rows.iter().filter_map(of_node) {
            if self.routes.len() < REMEMBERED_AT_MOST {
                self.routes.insert(route);
            }
        }
    }

    /// Records whether a needed route in the plan is blocked by a route that may belong to another cluster. When this
    /// was already so in earlier plans, the time at which it began is kept.
    pub(super) fn note_doubt(&mut self, plan: &RoutePlan) {
        let since = self.in_doubt_since.unwrap_or_else(clock::now);
        self.in_doubt_since = plan.is_in_doubt.then_some(since);
    }
}

/// Returns the route that a node needs, if the route exists or is about to be added. Any other route gives `None`, so
/// it is not remembered as a route of this cluster. This is so even if the route leads to the node's server, because
/// the list of servers can be old, and the gateway may already be the address of another server.
fn of_node(row: &RouteRow) -> Option<Route> {
    let is_its = row.state == State::Ok || matches!(row.step, RouteStep::Add | RouteStep::Replace);
    row.want.filter(|_| is_its)
}

/// Returns a hash of the data that decide about routes: each node's UID, name, provider ID and pod CIDRs, whether it is
/// being deleted, whether its server belongs to another node, and the private addresses of the server.
fn fingerprint(nodes: &[Arc<KubeNode>], servers: &[Instance], provider: &dyn Provider) -> u64 {
    let by_id: HashMap<InstanceId, &Instance> =
        servers.iter().map(|instance| (instance.id, instance)).collect();
    let claims = Claims::new(provider, nodes);
    let mut hasher = DefaultHasher::new();
    for node in nodes {
        claims.is_second(node).hash(&mut hasher);
        node.metadata.uid.hash(&mut hasher);
        node.name().hash(&mut hasher);
        node.spec.provider_id.hash(&mut hasher);
        node.spec.pod_cidrs.hash(&mut hasher);
        node.metadata.deletion_timestamp.is_some().hash(&mut hasher);
        let server = server_of(node, provider).and_then(|id| by_id.get(&id));
        server.map(|server| &server.private).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::controllers::route::types::RouteFacts;

    fn route(n: usize) -> Route {
        Route {
            destination: format!("10.{}.{}.0/24", n / 256, n % 256).parse().unwrap(),
            gateway: "10.0.0.2".parse().unwrap(),
        }
    }

    fn row(n: usize, state: State, step: RouteStep) -> RouteRow {
        let is_there = state != State::Missing;
        RouteRow {
            destination: route(n).destination,
            have: is_there.then(|| route(n)),
            want: (state == State::Ok || !is_there).then(|| route(n)),
            node: Some("a".into()),
            server: None,
            state,
            step,
        }
    }

    fn network(routes: impl Iterator<Item = usize>) -> Network {
        Network {
            id: 1,
            name: "net".into(),
            range: None,
            subnets: Vec::new(),
            routes: routes.map(route).collect(),
            other_routes: 0,
            routes_at_most: 100,
        }
    }

    #[test]
    fn a_route_is_forgotten_when_the_network_lacks_it() {
        let mut memory = RouteMemory::default();
        let plan = |rows| {
            let facts = RouteFacts { rows, ..RouteFacts::default() };
            RoutePlan { facts, ..RoutePlan::default() }
        };
        let rows = vec![
            row(1, State::Ok, RouteStep::Nothing),
            row(2, State::Ok, RouteStep::Nothing),
            row(3, State::Missing, RouteStep::Add),
            row(4, State::Missing, RouteStep::Cannot),
            row(5, State::NotOurs, RouteStep::Nothing),
            row(6, State::Ok, RouteStep::Nothing),
            row(7, State::Unwanted, RouteStep::Nothing),
            row(8, State::LeftAlone, RouteStep::Nothing),
        ];
        memory.note_routes(&plan(rows), &network([1, 2, 5, 6, 7, 8].into_iter()));
        assert_eq!(memory.routes, [1, 2, 3, 6].map(route).into_iter().collect());
        memory.note_routes(&plan(Vec::new()), &network([1, 3].into_iter()));
        assert_eq!(memory.routes, [1, 3].map(route).into_iter().collect());
    }

    #[test]
    fn however_many_routes_there_are_no_more_than_a_thousand_are_remembered() {
        let mut memory = RouteMemory::default();
        for of in [0..5000, 5000..9000] {
            let rows = of.clone().map(|n| row(n, State::Ok, RouteStep::Nothing));
            let facts = RouteFacts { rows: rows.collect(), ..RouteFacts::default() };
            let plan = RoutePlan { facts, ..RoutePlan::default() };
            memory.note_routes(&plan, &network(of));
            assert_eq!(memory.routes.len(), REMEMBERED_AT_MOST);
        }
    }
}
