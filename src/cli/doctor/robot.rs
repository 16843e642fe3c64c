//! Dedicated servers: the login of the Robot web service, and which of its servers are nodes. Silent without
//! `ROBOT_ENABLED=true`.

use super::observe::View;
use super::outcome::{Gap, Outcome, Verdicts, counted, need, or_ok};
use crate::cli::node;
use crate::controllers::node::{NodePlan, Server, is_uninitialized};
use crate::provider::{Instance, InstanceId};
use crate::text;
use std::collections::HashSet;

pub(super) fn login(view: &View) -> Verdicts {
    let Some(servers) = &view.dedicated else {
        return Ok(Vec::new());
    };
    let shown = counted(servers.as_ref()?.len(), "dedicated server");
    let found = format!(
        "{} accepts the login, which sees {shown}",
        view.settings.robot_endpoint.value.as_str()
    );
    let nodes = view.nodes.iter().flatten();
    let unseen = nodes.filter(|plan| matches!(plan.server, Server::Gone(InstanceId::Dedicated(_))));
    let remedy = "use the web service user of the account that has the servers: the Admin login of one server sees that \
                  one alone, and another account's none of them";
    Ok(vec![match (unseen.count(), servers) {
        (0, Ok(servers)) if servers.is_empty() => Outcome::warn(found, remedy),
        (0, _) => Outcome::ok(found),
        (unseen, _) => {
            let unseen = counted(unseen, "node");
            Outcome::warn(format!("{found}, and not those of {unseen}"), remedy)
        }
    }])
}

/// What the list of dedicated servers says beyond each node's own: those that may be the missing server of a node, and
/// those whose contract ends.
pub(super) fn servers(view: &View) -> Verdicts {
    let servers = match &view.dedicated {
        None | Some(Err(Gap::NotHere(_))) => return Ok(Vec::new()),
        Some(servers) => need(servers, "robot")?,
    };
    let nodes = need(&view.nodes, "nodes")?;
    let matched = nodes.iter().filter_map(|plan| match &plan.server {
        Server::Matched(server, _) => Some((server.id, plan)),
        _ => None,
    });
    let cancelled = matched.clone().filter_map(|(_, plan)| match &plan.server {
        Server::Matched(server, _) if server.is_cancelled => {
            Some(cancelled(server).on("node", &plan.object.name))
        }
        _ => None,
    });
    let mut outcomes: Vec<Outcome> = cancelled.collect();
    let matched: HashSet<InstanceId> = matched.map(|(id, _)| id).collect();
    let (with_node, others): (Vec<&Instance>, Vec<&Instance>) =
        servers.iter().partition(|one| matched.contains(&one.id));
    let waits = |plan: &NodePlan| plan.server == Server::Unmatched && is_uninitialized(&plan.node);
    let shown = |server: &&Instance| format!("{} ({})", server.name, server.id);
    if nodes.iter().any(waits) {
        outcomes.extend(others.iter().map(unmatched));
    }
    or_ok(outcomes, || {
        let with_node = counted(with_node.len(), "dedicated server");
        let others: Vec<String> = others.iter().map(shown).collect();
        match others.as_slice() {
            [] => format!("{with_node}, each with its node"),
            others => format!(
                "{with_node} with a node; without one: {}",
                text::some_of(others)
            ),
        }
    })
}

fn unmatched(server: &&Instance) -> Outcome {
    let found = format!(
        "{} is no node's server, and a node waits for its own",
        server.id
    );
    let remedy = "where a waiting node runs on it, give it the node's name in Robot; leave it when it is not this \
                  cluster's";
    Outcome::warn(found, remedy).on("server", &server.name)
}

fn cancelled(server: &Instance) -> Outcome {
    let (id, paid) = (server.id, node::paid_until(server));
    let found = format!("its dedicated server {id} is cancelled{paid}");
    let remedy = "move its pods in time (kubectl drain NAME), or revoke the cancellation in Robot";
    Outcome::warn(found, remedy)
}

/// A node on a dedicated server, without a login to look it up: the check `robot` says so of all.
pub(super) fn is_not_looked_up(view: &View, plan: &NodePlan) -> bool {
    let is_dedicated = |id: &str| id.starts_with("hrobot://") || id.starts_with("hcloud://bm-");
    matches!(view.dedicated, Some(Err(Gap::NotHere(_))))
        && is_dedicated(&plan.node.spec.provider_id)
}
