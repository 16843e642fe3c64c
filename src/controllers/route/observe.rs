//! Reads what both APIs say about routes, and makes a plan from these data and the results of earlier
//! comparisons. Routes are compared when nodes or addresses of their servers changed, when the last try
//! failed, and once in each period.

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

/// After this time, routes are compared even when no node has changed.
const COMPARE_PERIOD: Duration = Duration::from_secs(300);

/// How many routes are remembered. A Network can have 100 routes. A route that is not remembered is not deleted, but
/// reported, because nothing shows that this program made it.
const REMEMBERED_AT_MOST: usize = 1000;

/// How often nodes are read, by a table that the other controllers read as well.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// After this time at the latest, it is noticed that another node with the same name has replaced a node.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// How many nodes whose pods have no addresses yet are read again in one comparison.
const UNASSIGNED_AT_MOST: usize = 10;

/// A node is treated as new up to this age. A program such as kube-controller-manager has set the pod
/// ranges of an older node.
const NEW_FOR: Duration = Duration::from_secs(600);

/// The key under which the failures of a sync are remembered.
pub(super) const NETWORK: &str = "network";

type SharedNodes = Arc<Vec<Arc<KubeNode>>>;

/// Settings of the route controller.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// The ranges for whose routes the controller is responsible. This is the setting `--cluster-cidr`.
    pub cluster_cidrs: Vec<IpNet>,
    /// The shortest time between two comparisons. This is the setting `--route-reconciliation-period`.
    pub reconciliation_period: Duration,
    /// How old a list of servers may be on which a write rests. This is the setting `HCLOUD_SERVER_CACHE_MAX_AGE`.
    pub server_cache_max_age: Duration,
}

/// The route controller, with what it knows from earlier comparisons.
pub struct RouteController {
    pub(super) settings: RouteSettings,
    pub(super) memory: RouteMemory,
    pub(super) schedule: Schedule,
    /// The fingerprint of the nodes and servers that were compared last. While it is unchanged, no
    /// comparison is needed.
    compared: Option<u64>,
    begun: Option<Instant>,
    /// Whether a route was deleted and its replacement could not be added. Then the next try waits for no period.
    pub(super) is_interrupted: bool,
}

/// Everything on which a plan rests, and the plan.
pub(super) struct ObservedRoutes {
    pub(super) plan: RoutePlan,
    pub(super) network: cache::View<Network>,
    pub(super) instances: Arc<Vec<Instance>>,
    /// The moment when all reads had been answered.
    pub(super) complete: Instant,
}

/// How old the API answers may be on which a plan rests, and how urgent the calls for them are.
pub(super) struct Ages {
    pub(super) network: Duration,
    pub(super) instances: Duration,
    pub(super) urgency: Urgency,
}

/// The results of earlier comparisons.
#[derive(Debug, Default)]
pub(super) struct RouteMemory {
    /// The routes that nodes of this cluster needed. They are remembered for the time when a node does not exist any
    /// more, because another server may have its address by then. A route is forgotten when it was deleted. It is also
    /// forgotten when the Network does not have it, because another owner may add such a route later.
    pub(super) routes: HashSet<Route>,
    /// The moment since which routes of nodes are in doubt.
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

    /// Reads everything, no older than `max_age`. Plans from a list of servers that is new enough for a write.
    pub(super) fn observe_all(
        &self,
        apis: &Apis,
        max_age: Duration,
    ) -> Result<ObservedRoutes, CacheError> {
        // Routes are deleted by this list, and a list from the API server's cache may lack a node that is there.
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
        // The servers are listed after the network was read, so that the list holds the gateway of every route that is
        // there, if the gateway is a server's.
        ages.network = Duration::MAX;
        ages.instances = observed.network.time_in_use();
        self.observe(apis, &nodes, &ages)
    }

    /// Reads the network and the servers, and plans for the given nodes.
    pub(super) fn observe(
        &self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
        ages: &Ages,
    ) -> Result<ObservedRoutes, CacheError> {
        let network = apis.network(ages.network, ages.urgency)?;
        let instances = apis.instances(ages.instances, ages.urgency)?.value;
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

    /// Returns the nodes to be compared, and how the cloud is read for that. `None` when no comparison is due.
    pub(super) fn due(&mut self, apis: &Apis) -> Result<Option<(SharedNodes, Ages)>, CacheError> {
        let now = clock::now();
        let poll = Poll {
            table_max_age: self.interval() / 2,
            // The node controller reads whole nodes more often than this when it runs.
            whole_max_age: COMPARE_PERIOD * 2,
            metadata_max_age: Some(METADATA_MAX_AGE),
        };
        let nodes = self.with_new_ranges(apis, &apis.nodes.poll(poll)?.value)?;
        let provider = &*apis.provider;
        let is_ours = |node: &KubeNode| server_of(node, provider).is_some();
        let has_pods = |node: &Arc<KubeNode>| !node.spec.pod_cidrs.is_empty() && is_ours(node);
        if !nodes.iter().any(has_pods) {
            // No node needs a route, so no route may be deleted either.
            return Ok(None);
        }
        let is_time = self.schedule.is_comparison_due(COMPARE_PERIOD, now);
        // The servers are those of the last list that any controller read, so no call is made for them.
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
        // The node controller refreshes the list of servers as often as this, so one read is enough for both
        // controllers.
        let instances = apis.refresh_period(COMPARE_PERIOD) * 3 / 2;
        Ok(Some((nodes, Ages { network: max_age, instances, urgency })))
    }

    /// Reads new nodes again whose pods have no addresses yet. Such a node gets the addresses after its registration,
    /// and no read of the table of nodes shows them. Old nodes may never get any, so they are not read again.
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

    /// Notes that these nodes were compared, together with these servers.
    pub(super) fn compared(&mut self, apis: &Apis, nodes: &[Arc<KubeNode>], servers: &[Instance]) {
        self.compared = Some(fingerprint(nodes, servers, &*apis.provider));
        self.schedule.compared = Some(clock::now());
    }
}

impl RouteMemory {
    /// Remembers the nodes' routes of a plan, and forgets the routes that the network does not have any more.
    pub(super) fn note_routes(&mut self, plan: &RoutePlan, network: &Network) {
        let there: HashSet<&Route> = network.routes.iter().collect();
        self.routes.retain(|route| there.contains(route));
        for route in plan.rows.iter().filter_map(of_node) {
            if self.routes.len() < REMEMBERED_AT_MOST {
                self.routes.insert(route);
            }
        }
    }

    /// Notes at the end of a comparison whether routes are in doubt.
    pub(super) fn note_doubt(&mut self, plan: &RoutePlan) {
        let since = self.in_doubt_since.unwrap_or_else(clock::now);
        self.in_doubt_since = plan.is_in_doubt.then_some(since);
    }
}

/// Returns the route that the node of a row needs, if that route exists or is about to be added. A route that only
/// leads to the node's server is not returned, because the list of servers may be old, and another server may have
/// that address now.
fn of_node(row: &RouteRow) -> Option<Route> {
    let is_its = row.state == State::Ok || matches!(row.step, RouteStep::Add | RouteStep::Replace);
    row.want.filter(|_| is_its)
}

/// Returns a hash of all data on which a plan depends: each node without the condition that this controller sets, the
/// private addresses of its server, and whether another node has its server.
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
