//! What the cloud says about the servers of nodes that are not ready: read only, and nothing guessed.

use super::plan::{Fact, Facts};
use crate::cache::{Apis, Error};
use crate::controllers::matching::server_of;
use crate::kube::Node;
use crate::provider::{ErrorKind, Instance, InstanceId, Urgency};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Servers on one page of a list: more than two servers for each page are read by a list.
const SERVERS_A_PAGE: usize = 50;

/// So many servers in a row that could not be read are an API that does not answer.
const FAILURES_AT_MOST: usize = 3;

/// Facts about the servers of those of the `due` nodes that are not ready. `nodes` are all nodes.
pub(super) fn facts(
    apis: &Apis,
    nodes: &[Arc<Node>],
    due: &[&Node],
    list_max_age: Duration,
) -> Result<Facts, Error> {
    let begun = Instant::now();
    let not_ready = due
        .iter()
        .filter(|node| !node.is_ready() && node.metadata.deletion_timestamp.is_none());
    let ids: HashSet<InstanceId> = not_ready
        .filter_map(|node| server_of(node, &*apis.provider))
        .collect();
    let mut facts = Facts::new();
    let count = apis.instances_last().map_or(0, |servers| servers.len());
    let pages = count.div_ceil(SERVERS_A_PAGE).max(1);
    if ids.len() > 2 * pages {
        let list = apis.instances(list_max_age, Urgency::Needed)?;
        let listed = list.value.iter().filter(|it| ids.contains(&it.id));
        facts.extend(listed.map(|it| (it.id, Fact::Exists { is_off: it.is_off })));
    }
    let mut missing = Vec::new();
    let mut failures = 0;
    for id in ids {
        if facts.contains_key(&id) {
            continue;
        }
        match apis.instance(id) {
            Ok(Instance { is_off, .. }) => drop(facts.insert(id, Fact::Exists { is_off })),
            // By the API itself; nothing else counts.
            Err(error) if error.kind == ErrorKind::NotFound => missing.push(id),
            Err(error) => {
                failures += 1;
                let for_all =
                    matches!(error.kind, ErrorKind::RateLimited { .. }) || error.is_permanent();
                if for_all || failures == FAILURES_AT_MOST {
                    return Err(Error::Cloud(error));
                }
                facts.insert(id, Fact::Unclear(error.to_string()));
            }
        }
    }
    if missing.is_empty() {
        return Ok(facts);
    }
    // The second witness: a list that is complete, and younger than this tick.
    let list = apis.instances(begun.elapsed(), Urgency::Needed)?;
    let there: HashSet<InstanceId> = list.value.iter().map(|it| it.id).collect();
    let claimed = nodes
        .iter()
        .filter_map(|node| server_of(node, &*apis.provider));
    let visible: HashSet<InstanceId> = claimed.filter(|id| there.contains(id)).collect();
    for id in missing {
        let fact = match there.contains(&id) {
            true => Fact::Unclear(
                "the list of all servers holds it, but read alone it is not found".into(),
            ),
            false => Fact::Gone {
                others_are_visible: visible.iter().any(|other| *other != id),
            },
        };
        facts.insert(id, fact);
    }
    Ok(facts)
}
