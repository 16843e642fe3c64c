//! Routes in the stable form: an item for each destination, and one for each node with a condition
//! to set or with something in its way.

use crate::cli::json::Document;
use crate::controllers::Failure;
use crate::controllers::route::{NodePlan, Plan, Row, Synced, condition_json};
use crate::provider::Route;
use serde::Serialize;
use serde_json::{Value, json};

/// A destination, a node, or the Network.
#[derive(Serialize)]
pub(super) struct Item {
    object: Value,
    cloud: Value,
    differences: Vec<Value>,
    changes: Vec<Value>,
    findings: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What is there and what would be done.
pub(super) fn plan(kind: &'static str, plan: &Plan) -> Document<Item> {
    let routes = plan.rows.iter().map(|row| {
        let changes = plan.changes.iter();
        let own = changes.filter(|change| change.route.destination == row.destination);
        route(row, own.map(|change| change.json()).collect())
    });
    let nodes = plan.nodes.iter().filter_map(|one| {
        let changes: Vec<Value> = one.condition().map(condition_json).into_iter().collect();
        node(one, changes, &[])
    });
    let network = network(plan);
    Document::new(kind, routes.chain(nodes).chain(network).collect())
}

/// What was done.
pub(super) fn synced(kind: &'static str, synced: &Synced) -> Document<Item> {
    let Synced {
        report, plan, made, ..
    } = synced;
    let destination = |value: &Value| value["destination"].as_str().map(str::to_owned);
    let routes = plan.rows.iter().map(|row| {
        let own = made.iter().map(|(_, made)| made);
        let own = own.filter(|made| destination(made) == Some(row.destination.to_string()));
        route(row, own.cloned().collect())
    });
    let nodes = plan.nodes.iter().filter_map(|one| {
        let own = made.iter().filter(|(object, _)| *object == one.name());
        let conditions = own.filter(|(_, made)| destination(made).is_none());
        let conditions = conditions.map(|(_, made)| made.clone()).collect();
        node(one, conditions, &report.failures)
    });
    let network = network(plan);
    Document::new(kind, routes.chain(nodes).chain(network).collect()).with_summary(report)
}

fn route(row: &Row, changes: Vec<Value>) -> Item {
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
        findings: json!([]),
        error: None,
    }
}

/// None: there is nothing to say.
fn node(plan: &NodePlan, changes: Vec<Value>, failures: &[Failure]) -> Option<Item> {
    let findings: Vec<_> = plan.all_findings().collect();
    let name = plan.name();
    let failure = failures.iter().find(|failure| failure.object == name);
    if changes.is_empty() && findings.is_empty() && failure.is_none() {
        return None;
    }
    Some(Item {
        object: json!({ "kind": "Node", "name": plan.object.name, "uid": plan.object.uid }),
        cloud: Value::Null,
        differences: Vec::new(),
        changes,
        findings: json!(findings),
        error: failure.map(|failure| failure.why.clone()),
    })
}

fn network(plan: &Plan) -> Option<Item> {
    let network = plan.network.as_ref()?;
    let item = Item {
        object: json!({ "kind": network.kind, "name": network.name }),
        cloud: json!({ "id": network.uid }),
        differences: Vec::new(),
        changes: Vec::new(),
        findings: json!(plan.findings),
        error: None,
    };
    (!plan.findings.is_empty()).then_some(item)
}
