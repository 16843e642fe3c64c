//! Routes that a comparison saw to be wanted by this cluster's nodes: a server's address may be
//! another server's by the time its node does not exist any more.

use super::plan::{Change, Plan, Row, State, Step};
use crate::provider::{Network, Route, RouteChange};
use std::collections::HashSet;

/// A network takes 100 routes. What is beyond this number is not remembered: such a route is
/// reported instead of deleted.
const ROUTES_AT_MOST: usize = 1000;

/// By (destination, gateway). A route is forgotten when it was deleted, and when the network does
/// not have it: one that comes back has another owner.
#[derive(Debug, Default)]
pub(super) struct Memory {
    routes: HashSet<Route>,
}

impl Memory {
    pub(super) fn routes(&self) -> &HashSet<Route> {
        &self.routes
    }

    /// A plan that was made for this network.
    pub(super) fn note(&mut self, plan: &Plan, network: &Network) {
        let there: HashSet<&Route> = network.routes.iter().collect();
        self.routes.retain(|route| there.contains(route));
        for route in plan.rows.iter().filter_map(of_node) {
            if self.routes.len() < ROUTES_AT_MOST {
                self.routes.insert(route);
            }
        }
    }

    /// Changes that were made.
    pub(super) fn made(&mut self, changes: &[Change]) {
        for change in changes {
            if change.change == RouteChange::Delete {
                self.routes.remove(&change.route);
            }
        }
    }
}

/// One that a node wants, and that is there or is about to be. What only leads to a node's server is
/// not the node's: by an older list of servers that address may be one that another server has now.
fn of_node(row: &Row) -> Option<Route> {
    let is_its = row.state == State::Ok || matches!(row.step, Step::Add | Step::Replace);
    row.want.filter(|_| is_its)
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
    fn a_route_is_forgotten_when_it_was_deleted_and_when_the_network_lacks_it() {
        let mut memory = Memory::default();
        let plan = |rows| Plan {
            rows,
            ..Plan::default()
        };
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
        memory.note(&plan(rows), &network([1, 2, 5, 6, 7, 8].into_iter()));
        let expected = [1, 2, 3, 6].map(route);
        assert_eq!(*memory.routes(), expected.into_iter().collect());
        let change = |n, change| Change {
            change,
            route: route(n),
            node: None,
            why: "",
        };
        memory.made(&[change(2, RouteChange::Delete), change(3, RouteChange::Add)]);
        memory.note(&plan(Vec::new()), &network([1, 2, 3].into_iter()));
        assert_eq!(*memory.routes(), [1, 3].map(route).into_iter().collect());
    }

    #[test]
    fn however_many_routes_there_are_no_more_than_a_thousand_are_remembered() {
        let mut memory = Memory::default();
        for of in [0..5000, 5000..9000] {
            let rows = of.clone().map(|n| row(n, State::Ok, Step::Nothing));
            let plan = Plan {
                rows: rows.collect(),
                ..Plan::default()
            };
            memory.note(&plan, &network(of));
            assert_eq!(memory.routes().len(), ROUTES_AT_MOST);
        }
    }
}
