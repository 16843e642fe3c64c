//! `ccm route list | sync`: the commands that show and do the work of the route controller.
//!
//! JSON and YAML have an item for each route that exists or is missing. A node has an item when a sync would change its
//! condition `NetworkUnavailable`, or when there are findings (facts or problems) about the node. The private Network
//! has an item when there are findings about it.

use super::lists::{List, Table};
use super::objects::{CommandContext, Item, PlannedObjects, Sides, about, error_of, warnings};
use super::output::{CommandFailure, Exit, Printer, or_dash, without};
use super::table::Columns;
use super::{startup, wire};
use crate::controllers::route::{NodeRoutePlan, RouteController, RoutePlan, RouteRow, RouteStep};
use crate::controllers::{Proposal, Report};
use crate::provider::{Route, Write};
use crate::settings::Command;
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::Duration;

pub(super) fn list(words: Vec<OsString>) -> Result<Exit, Exit> {
    let routes = RouteCommands::start(Command::RouteList, words)?;
    TABLE.show(&routes.context, || {
        let empty = "The Network has no routes, and no node needs one.\n";
        let mut list = List::read(&routes.context, empty, |sides| routes.read(sides))?;
        // Warnings of the plan, and a line for each node that gets no route, are printed to stderr below the table.
        let mut notes = list.plans.notes();
        notes.extend(list.plans.plan.nodes.iter().filter_map(|node| {
            let why = node.obstacle.as_ref()?.text();
            Some(about('!', &node.object.for_people(), &format!("blocked: {why}")))
        }));
        list.notes = notes.concat();
        Ok(list)
    })
}

pub(super) fn sync(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut routes = RouteCommands::start(Command::RouteSync, words)?;
    routes.context.check_profile()?;
    routes.context.show_leader();
    if routes.context.settings.dry_run.value {
        let plans = routes.context.or_exit(routes.read(Sides::Both))?;
        return Ok(routes.context.would_do(&plans));
    }
    let apis = &routes.context.apis;
    Ok(routes.context.do_now(|| {
        let synced = routes.controller.sync(apis);
        (synced.report, RoutePlans { plan: synced.plan, changes: synced.made })
    }))
}

/// The data that all commands `ccm route …` work with: the settings and API clients in `context`, and the route
/// controller.
struct RouteCommands {
    context: CommandContext,
    controller: RouteController,
}

struct RoutePlans {
    plan: RoutePlan,
    /// The changes, each with the object that it changes. After a sync these are the changes that were made. Without a
    /// sync they are the planned changes.
    changes: Vec<(String, Value)>,
}

impl RouteCommands {
    fn start(command: Command, words: Vec<OsString>) -> Result<RouteCommands, Exit> {
        let started = startup::start(command, words)?;
        let routes = wire::route_settings(&started.settings)
            .map_err(|off| {
                Printer::failure(format_args!(
                    "ccm manages no routes with these settings, because {}. Use the daemon's value in this command, or \
                     take all settings of the daemon with --settings-from",
                    off.why
                ))
            })?;
        Ok(RouteCommands {
            context: CommandContext::new(started)?,
            controller: RouteController::new(routes),
        })
    }

    /// Returns the plan of all routes. When only Kubernetes or only the cloud answers, the plan contains no changes.
    fn read(&self, sides: Sides) -> Result<RoutePlans, CommandFailure> {
        let apis = &self.context.apis;
        let plan = match sides {
            Sides::Both => self.controller.evaluate(apis, Duration::ZERO),
            Sides::Kubernetes => self.controller.by_kubernetes(apis),
            Sides::Cloud => self.controller.by_cloud(apis),
        }?;
        let routes = plan.changes.iter().map(|change| (change.object(), change.json()));
        let conditions = plan.nodes.iter().flat_map(|node| {
            node.changes.iter().map(move |change| (node.object.for_people(), change.json()))
        });
        Ok(RoutePlans { changes: routes.chain(conditions).collect(), plan })
    }
}

impl PlannedObjects for RoutePlans {
    const KIND: &'static str = "Route";

    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize> {
        let RoutePlans { plan, changes } = self;
        let destination = |change: &Value| change["destination"].as_str().map(str::to_owned);
        let routes = plan.rows.iter().map(|row| {
            let own = changes.iter().map(|(_, change)| change);
            let own = own.filter(|own| destination(own) == Some(row.destination.to_string()));
            route(row, own.cloned().collect(), report)
        });
        let nodes = plan.nodes.iter().filter_map(|plan| {
            let own = changes.iter().filter(|(object, _)| *object == plan.object.for_people());
            let conditions = own.map(|(_, change)| change);
            let conditions = conditions.filter(|change| destination(change).is_none());
            node(plan, conditions.cloned().collect(), report)
        });
        routes.chain(nodes).chain(network(plan)).collect()
    }

    fn proposals(&self) -> Vec<Proposal> {
        self.plan.proposals()
    }

    fn notes(&self) -> Vec<String> {
        let plan = &self.plan;
        let nodes = plan.nodes.iter();
        let nodes = nodes.flat_map(|node| warnings(node.object.for_people(), &node.findings));
        nodes.chain(warnings(plan.object.for_people(), &plan.findings)).collect()
    }
}

/// An item of the JSON or YAML document of a command on routes. It is about the destination of a route, about a node,
/// or about the private Network.
type RouteItem<'a> = Item<'a, Value, Value, Value, Value, Value>;

fn route<'a>(row: &RouteRow, changes: Vec<Value>, report: Option<&Report>) -> RouteItem<'a> {
    let known = Sides::of(report);
    let gateway = |route: &Option<Route>| route.map(|route| route.gateway);
    let cloud = row.have.map(|have| {
        json!({
            "kind": "Route",
            "destination": have.destination,
            "gateway": have.gateway,
            "server": row.server,
        })
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
            "state": (known == Sides::Both).then_some(row.state),
        }),
        cloud: cloud.unwrap_or_default(),
        differences: differs.then_some(difference).into_iter().collect(),
        changes,
        error: match known {
            Sides::Both => None,
            _ => error_of(report, ""),
        },
        ..Item::default()
    }
}

/// Returns the item of a node in the JSON or YAML document. Returns `None` when the item would have no change, no fact
/// or problem, and no error.
fn node<'a>(
    plan: &'a NodeRoutePlan,
    changes: Vec<Value>,
    report: Option<&'a Report>,
) -> Option<RouteItem<'a>> {
    let item = Item {
        object: json!({ "kind": "Node", "name": plan.object.name, "uid": plan.object.uid }),
        changes,
        findings: plan.all_findings().map(|finding| json!(finding)).collect(),
        error: error_of(report, &plan.object.for_people()),
        ..Item::default()
    };
    let is_empty = item.changes.is_empty() && item.findings.is_empty() && item.error.is_none();
    (!is_empty).then_some(item)
}

fn network(plan: &RoutePlan) -> Option<RouteItem<'_>> {
    let network = &plan.object;
    let item = Item {
        object: json!({ "kind": network.kind, "name": network.name }),
        cloud: json!({ "kind": network.kind, "id": network.uid }),
        findings: plan.findings.iter().map(|finding| json!(finding)).collect(),
        ..Item::default()
    };
    (!plan.findings.is_empty()).then_some(item)
}

const TABLE: Table<RoutePlans, RouteRow> = Table {
    columns: Columns {
        headings: &["DESTINATION", "GATEWAY", "NODE", "STATE"],
        wide: &["SERVER", "WANTED GATEWAY"],
        yielding: &[(2, 15)],
    },
    rows: |plans| &mut plans.plan.rows,
    cells: |row, _, known| match known {
        Sides::Both => cells(row),
        Sides::Kubernetes => without(&[1, 3, 4, 5], cells(row)),
        Sides::Cloud => without(&[2, 3, 5], cells(row)),
    },
    name: |row| format!("route/{}", row.destination),
};

fn cells(row: &RouteRow) -> Vec<String> {
    let gateway = |route: Option<Route>| {
        let gateway = route.map(|route| route.gateway.to_string());
        or_dash(&gateway.unwrap_or_default())
    };
    vec![
        row.destination.to_string(),
        gateway(row.have),
        or_dash(row.node.as_deref().unwrap_or_default()),
        state(row),
        or_dash(row.server.as_deref().unwrap_or_default()),
        gateway(row.want),
    ]
}

/// Returns the text of the column `STATE`: the state of the route, and what a sync would do about it, e.g. `missing →
/// add`.
fn state(row: &RouteRow) -> String {
    let word = row.state.name();
    match row.step {
        RouteStep::Nothing => word.to_owned(),
        RouteStep::Cannot => format!("{word} !"),
        RouteStep::Add => format!("{word} → add"),
        RouteStep::Delete => format!("{word} → delete"),
        RouteStep::Replace => format!("{word} → replace"),
    }
}
