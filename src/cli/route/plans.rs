//! The plan of all routes, and its form for programs: an item for each destination, and one for each node with a
//! condition to set or with something in its way.

use crate::cli::changes::warnings;
use crate::cli::objects::{Context, Item, Planned, error_of};
use crate::cli::output::{Exit, Printer, usage};
use crate::cli::{startup, wire};
use crate::controllers::route::{NodePlan, Plan, RouteController, Row, condition_json};
use crate::controllers::{Proposal, Report};
use crate::provider::Route;
use crate::settings::Command;
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsString;

/// What the commands on routes work with.
pub(super) struct Routes {
    pub(super) context: Context,
    pub(super) controller: RouteController,
}

pub(super) struct Plans {
    pub(super) plan: Plan,
    /// Planned or made, by object.
    pub(super) changes: Vec<(String, Value)>,
}

impl Routes {
    pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Routes, Exit> {
        let started = startup::start(command, words)?;
        if !started.words.is_empty() {
            let name = command.name();
            return Err(usage(&format!(
                "{name} takes no name: it is about all routes"
            )));
        }
        let routes = wire::route_settings(&started.settings)
            .map_err(|off| Printer::failure(&format!("there are no routes: {}", off.why)))?;
        Ok(Routes {
            context: Context::new(started)?,
            controller: RouteController::new(routes),
        })
    }

    pub(super) fn evaluate(&self) -> Result<Plans, Exit> {
        let evaluated = self.controller.evaluate(&self.context.apis);
        let (_, plan) = evaluated.map_err(|error| self.context.failed(&error))?;
        let routes = plan.changes.iter();
        let routes = routes.map(|change| (change.object(), change.json()));
        let nodes = plan.nodes.iter();
        let conditions =
            nodes.filter_map(|one| Some((one.name(), condition_json(one.condition()?))));
        Ok(Plans {
            changes: routes.chain(conditions).collect(),
            plan,
        })
    }
}

impl Planned for Plans {
    const KIND: &'static str = "Route";

    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize> {
        let Plans { plan, changes } = self;
        let destination = |change: &Value| change["destination"].as_str().map(str::to_owned);
        let routes = plan.rows.iter().map(|row| {
            let own = changes.iter().map(|(_, change)| change);
            let own = own.filter(|own| destination(own) == Some(row.destination.to_string()));
            route(row, own.cloned().collect())
        });
        let nodes = plan.nodes.iter().filter_map(|one| {
            let own = changes.iter().filter(|(object, _)| *object == one.name());
            let conditions = own.map(|(_, change)| change);
            let conditions = conditions.filter(|change| destination(change).is_none());
            node(one, conditions.cloned().collect(), report)
        });
        routes.chain(nodes).chain(network(plan)).collect()
    }

    fn proposals(&self) -> Vec<Proposal> {
        self.plan.proposals()
    }

    fn notes(&self) -> Vec<String> {
        let plan = &self.plan;
        let nodes = plan.nodes.iter();
        let nodes =
            nodes.flat_map(|node| warnings(&node.name(), &node.findings).collect::<Vec<_>>());
        let network = plan.network.as_ref();
        let name = network.map_or_else(String::new, |network| network.for_people());
        nodes.chain(warnings(&name, &plan.findings)).collect()
    }
}

/// A destination, a node, or the Network.
type RouteItem<'a> = Item<'a, Value, Value, Value, Value>;

fn route(row: &Row, changes: Vec<Value>) -> RouteItem<'_> {
    let gateway = |route: &Option<Route>| route.map(|route| route.gateway);
    let cloud = row.have.map(|have| {
        json!({ "destination": have.destination, "gateway": have.gateway, "server": row.server })
    });
    let differs = row.want.is_some() && row.want != row.have;
    let difference = json!({
        "field": "gateway",
        "have": gateway(&row.have),
        "want": gateway(&row.want),
        "source": "server private_net.ip",
    });
    Item {
        object: json!({
            "kind": "Route",
            "destination": row.destination,
            "node": row.node,
            "state": row.state.word(),
        }),
        cloud: cloud.unwrap_or_default(),
        differences: differs.then_some(difference).into_iter().collect(),
        changes,
        ..Item::default()
    }
}

/// None: there is nothing to say.
fn node<'a>(
    plan: &'a NodePlan,
    changes: Vec<Value>,
    report: Option<&'a Report>,
) -> Option<RouteItem<'a>> {
    let item = Item {
        object: json!({ "kind": "Node", "name": plan.object.name, "uid": plan.object.uid }),
        changes,
        findings: plan.all_findings().collect(),
        error: error_of(report, &plan.name()),
        ..Item::default()
    };
    let is_empty = item.changes.is_empty() && item.findings.is_empty() && item.error.is_none();
    (!is_empty).then_some(item)
}

fn network(plan: &Plan) -> Option<RouteItem<'_>> {
    let network = plan.network.as_ref()?;
    let item = Item {
        object: json!({ "kind": network.kind, "name": network.name }),
        cloud: json!({ "id": network.uid }),
        findings: plan.findings.iter().collect(),
        ..Item::default()
    };
    (!plan.findings.is_empty()).then_some(item)
}
