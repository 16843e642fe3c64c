//! Reads what both APIs say about routes, and plans by that and by what earlier comparisons showed. Decides when
//! routes are compared, which is when nodes or addresses of their servers changed, when the last try failed, or when
//! it is time.

use super::plan::{Inputs, plan};
use super::types::{Plan, Row, State, Step};
use crate::cache::{self, Apis, Error, Poll, ReadFrom};
use crate::controllers::backoff::Backoff;
use crate::controllers::matching::{Claims, server_of};
use crate::kube::Node;
use crate::provider::{Instance, InstanceId, Network, Provider, Route, Urgency, clock};
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often routes are compared although no node changed.
pub(super) const COMPARE_PERIOD: Duration = Duration::from_secs(300);

/// How many routes are remembered. A network takes 100 routes. A route beyond this number is reported
/// instead of deleted.
const REMEMBERED_AT_MOST: usize = 1000;

/// Settings of the route controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ranges for whose routes the controller is responsible. This is the setting `--cluster-cidr`.
    pub cluster_cidrs: Vec<IpNet>,
    /// The shortest time between two comparisons. This is the setting `--route-reconciliation-period`.
    pub reconciliation_period: Duration,
    /// How old a list of servers may be on which a write rests. This is the setting `HCLOUD_SERVER_CACHE_MAX_AGE`.
    pub server_cache_max_age: Duration,
}

/// Everything on which a plan rests, and the plan.
pub(super) struct Observed {
    pub(super) plan: Plan,
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
pub(super) struct Memory {
    /// The routes that nodes of this cluster wanted. They are remembered because the address of a server may be another
    /// server's by the time its node does not exist any more. A route is forgotten when it was deleted, and when the
    /// network does not have it, because a route that comes back has another owner.
    pub(super) routes: HashSet<Route>,
    /// The moment since which routes of nodes are in doubt.
    in_doubt_since: Option<Instant>,
}

impl Settings {
    /// Reads everything, no older than `max_age`, and plans by servers on which a write may rest.
    pub(super) fn observe_all(
        &self,
        apis: &Apis,
        memory: &Memory,
        max_age: Duration,
    ) -> Result<Observed, Error> {
        // Routes are deleted by this list, and a list from the API server's cache may lack a node that is there.
        let nodes = apis.nodes.whole(max_age, ReadFrom::Latest)?.value;
        let mut ages = Ages {
            network: max_age,
            instances: max_age.max(self.server_cache_max_age),
            urgency: Urgency::Needed,
        };
        let observed = self.observe(apis, memory, &nodes, &ages)?;
        if !observed.plan.needs_all_servers() {
            return Ok(observed);
        }
        // The servers are listed after the network was read, so that the list holds the gateway of every route that is
        // there, if the gateway is a server's.
        ages.network = Duration::MAX;
        ages.instances = observed.network.time_in_use();
        self.observe(apis, memory, &nodes, &ages)
    }

    /// Reads the network and the servers, and plans for the given nodes.
    pub(super) fn observe(
        &self,
        apis: &Apis,
        memory: &Memory,
        nodes: &[Arc<Node>],
        ages: &Ages,
    ) -> Result<Observed, Error> {
        let network = apis.network(ages.network, ages.urgency)?;
        let instances = apis.instances(ages.instances, ages.urgency)?.value;
        Ok(Observed {
            plan: self.plan(apis, memory, nodes, &instances, &network.value),
            instances,
            complete: clock::now(),
            network,
        })
    }

    pub(super) fn plan(
        &self,
        apis: &Apis,
        memory: &Memory,
        nodes: &[Arc<Node>],
        instances: &[Instance],
        network: &Network,
    ) -> Plan {
        let inputs = Inputs {
            nodes,
            instances,
            network,
            cluster_cidrs: &self.cluster_cidrs,
            remembered: &memory.routes,
            is_in_doubt_for_long: memory
                .in_doubt_since
                .is_some_and(|at| clock::since(at) >= COMPARE_PERIOD / 2),
        };
        plan(&inputs, &*apis.provider)
    }
}

impl Memory {
    /// Remembers the nodes' routes from a plan for this network, and forgets the routes that the network does not have.
    pub(super) fn note_routes(&mut self, plan: &Plan, network: &Network) {
        let there: HashSet<&Route> = network.routes.iter().collect();
        self.routes.retain(|route| there.contains(route));
        for route in plan.rows.iter().filter_map(of_node) {
            if self.routes.len() < REMEMBERED_AT_MOST {
                self.routes.insert(route);
            }
        }
    }

    /// Notes at the end of a comparison whether routes are in doubt.
    pub(super) fn note_doubt(&mut self, plan: &Plan) {
        let since = self.in_doubt_since.unwrap_or_else(clock::now);
        self.in_doubt_since = plan.is_in_doubt.then_some(since);
    }
}

/// Returns the route that the node of a row needs, if that route exists or is about to be added. A route that only
/// leads to the node's server is not returned, because the list of servers may be old, and another server may have
/// that address now.
fn of_node(row: &Row) -> Option<Route> {
    let is_its = row.state == State::Ok || matches!(row.step, Step::Add | Step::Replace);
    row.want.filter(|_| is_its)
}

/// How often nodes are read, by a table that the other controllers read as well.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time until it is seen that a node was replaced by another node with the same name.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// How many nodes whose pods have no addresses yet are read again in one comparison.
const UNASSIGNED_AT_MOST: usize = 10;

/// The age up to which a node is treated as new. An older node has got the addresses of its pods from
/// kube-controller-manager or another program.
const NEW_FOR: Duration = Duration::from_secs(600);

/// The key under which the failures of a sync are remembered.
const NETWORK: &str = "network";

pub(super) type Nodes = Arc<Vec<Arc<Node>>>;

pub(super) struct Schedule {
    /// The fingerprint of the nodes and servers that were compared last, and the moment when that comparison ended.
    compared: Option<(u64, Instant)>,
    begun: Option<Instant>,
    /// Whether a route was deleted and its replacement could not be added. Then the next try waits for no period.
    is_interrupted: bool,
    backoff: Backoff,
}

/// The nodes to be compared, and why.
pub(super) struct Due {
    pub(super) nodes: Nodes,
    /// Whether a node or an address of its server has changed, or the last try failed.
    pub(super) is_changed: bool,
    pub(super) is_time: bool,
}

impl Schedule {
    pub(super) fn new() -> Schedule {
        Schedule { compared: None, begun: None, is_interrupted: false, backoff: Backoff::new() }
    }

    /// Returns the nodes to be compared, and why. `None` when no comparison is due.
    pub(super) fn due(&mut self, apis: &Apis, settings: &Settings) -> Result<Option<Due>, Error> {
        let now = clock::now();
        let poll = Poll {
            table_max_age: settings.interval() / 2,
            // The node controller reads whole nodes more often than this when it runs.
            whole_max_age: COMPARE_PERIOD * 2,
            metadata_max_age: Some(METADATA_MAX_AGE),
        };
        let nodes = with_new_ranges(apis, settings, apis.nodes.poll(poll)?.value)?;
        let provider = &*apis.provider;
        let is_ours = |node: &Node| server_of(node, provider).is_some();
        let has_pods = |node: &Arc<Node>| !node.spec.pod_cidrs.is_empty() && is_ours(node);
        if !nodes.iter().any(has_pods) {
            // No node needs a route, so no route may be deleted either.
            return Ok(None);
        }
        let is_time = self.compared.is_none_or(|(_, at)| now - at >= COMPARE_PERIOD);
        // The servers are those of the last list that any controller read, so no call is made for them.
        let servers = apis.instances_last().unwrap_or_default();
        let print = fingerprint(&nodes, &servers, provider);
        let is_retried = self.backoff.is_retry_due(NETWORK, now);
        let is_changed = is_retried || self.compared.is_none_or(|(last, _)| last != print);
        let pause = settings.reconciliation_period;
        let is_early =
            self.begun.is_some_and(|at| now - at < pause) && !(self.is_interrupted && is_retried);
        let is_due = (is_changed || is_time) && !is_early;
        if is_due {
            self.begun = Some(now);
        }
        Ok(is_due.then_some(Due { nodes, is_changed, is_time }))
    }

    /// Notes that the nodes of `due` were compared, together with these servers.
    pub(super) fn compared(&mut self, apis: &Apis, due: &Due, servers: &[Instance]) {
        let print = fingerprint(&due.nodes, servers, &*apis.provider);
        self.compared = Some((print, clock::now()));
    }

    /// Notes whether the comparison has failed, and whether a deleted route was not replaced.
    pub(super) fn ended(&mut self, has_failed: bool, is_interrupted: bool) {
        self.is_interrupted = is_interrupted;
        if has_failed {
            self.backoff.failed(NETWORK, clock::now());
        } else {
            self.backoff.succeeded(NETWORK);
        }
    }
}

/// Reads new nodes again whose pods have no addresses yet. Such a node gets the addresses after its registration, and
/// no read of the table of nodes shows them. Old nodes may never get any, so they are not read again.
fn with_new_ranges(apis: &Apis, settings: &Settings, nodes: Nodes) -> Result<Nodes, Error> {
    let old = clock::timestamp().checked_sub(NEW_FOR).unwrap_or_default();
    let is_lacking = |node: &&Arc<Node>| {
        let created = node.metadata.creation_timestamp;
        let is_new = created.is_some_and(|created| created > old);
        let is_ours = || server_of(node, &*apis.provider).is_some();
        is_new && node.spec.pod_cidrs.is_empty() && is_ours()
    };
    let lacking = nodes.iter().filter(is_lacking).take(UNASSIGNED_AT_MOST);
    let lacking: Vec<String> = lacking.map(|node| node.name().to_owned()).collect();
    if lacking.is_empty() {
        Ok(nodes)
    } else {
        Ok(apis.nodes.again(&lacking, settings.interval() * 2)?.value)
    }
}

impl Settings {
    /// Returns the time between the ends of two ticks.
    pub(super) fn interval(&self) -> Duration {
        POLL_INTERVAL.min(self.reconciliation_period)
    }
}

/// Returns a hash of everything on which a plan depends. That is each node without its condition, which this controller
/// sets, whether another node has its server, and the private addresses of its server.
fn fingerprint(nodes: &[Arc<Node>], servers: &[Instance], provider: &dyn Provider) -> u64 {
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

    fn route(n: usize) -> Route {
        Route {
            destination: format!("10.{}.{}.0/24", n / 256, n % 256).parse().unwrap(),
            gateway: "10.0.0.2".parse().unwrap(),
        }
    }

    fn row(n: usize, state: State, step: Step) -> Row {
        let is_there = state != State::Missing;
        Row {
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
        let mut memory = Memory::default();
        let plan = |rows| Plan { rows, ..Plan::default() };
        let rows = vec![
            row(1, State::Ok, Step::Nothing),
            row(2, State::Ok, Step::Nothing),
            row(3, State::Missing, Step::Add),
            row(4, State::Missing, Step::Cannot),
            row(5, State::NotOurs, Step::Nothing),
            row(6, State::Ok, Step::Nothing),
            row(7, State::Unwanted, Step::Nothing),
            row(8, State::LeftAlone, Step::Nothing),
        ];
        memory.note_routes(&plan(rows), &network([1, 2, 5, 6, 7, 8].into_iter()));
        assert_eq!(memory.routes, [1, 2, 3, 6].map(route).into_iter().collect());
        memory.note_routes(&plan(Vec::new()), &network([1, 3].into_iter()));
        assert_eq!(memory.routes, [1, 3].map(route).into_iter().collect());
    }

    #[test]
    fn however_many_routes_there_are_no_more_than_a_thousand_are_remembered() {
        let mut memory = Memory::default();
        for of in [0..5000, 5000..9000] {
            let rows = of.clone().map(|n| row(n, State::Ok, Step::Nothing));
            let plan = Plan { rows: rows.collect(), ..Plan::default() };
            memory.note_routes(&plan, &network(of));
            assert_eq!(memory.routes.len(), REMEMBERED_AT_MOST);
        }
    }
}
