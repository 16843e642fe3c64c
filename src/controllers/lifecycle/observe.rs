//! What the cloud says about the servers of nodes that are not ready: read only, and nothing guessed.

use super::plan::{Fact, Facts, server_of};
use crate::cache::{Apis, Error};
use crate::kube::Node;
use crate::provider::{self, ErrorKind, Instance, InstanceId, Urgency};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Servers on one page of a list: more questions than two for each page are asked by a list.
const SERVERS_A_PAGE: usize = 50;

/// So many servers in a row that could not be asked for are an API that does not answer.
const FAILURES_AT_MOST: usize = 3;

/// Facts about the servers of those of the `due` nodes that are not ready. `nodes` are all nodes.
pub fn facts(
    apis: &Apis,
    nodes: &[Arc<Node>],
    due: &[&Node],
    list_max_age: Duration,
) -> Result<Facts, Error> {
    let not_ready = due
        .iter()
        .filter(|node| !node.is_ready() && node.metadata.deletion_timestamp.is_none());
    let ids: HashSet<InstanceId> = not_ready
        .filter_map(|node| server_of(node, &*apis.provider))
        .collect();
    facts_about(apis, nodes, &ids, list_max_age)
}

/// Facts about these servers.
fn facts_about(
    apis: &Apis,
    nodes: &[Arc<Node>],
    ids: &HashSet<InstanceId>,
    list_max_age: Duration,
) -> Result<Facts, Error> {
    let begun = Instant::now();
    if ids.is_empty() {
        return Ok(Facts::new());
    }
    let pages = apis.instances_seen().div_ceil(SERVERS_A_PAGE).max(1);
    let mut asking = Asking {
        apis,
        said: HashMap::new(),
        failures: 0,
    };
    if ids.len() > 2 * pages {
        let list = apis.instances(list_max_age, Urgency::Needed)?;
        let listed = list
            .value
            .iter()
            .filter(|instance| ids.contains(&instance.id));
        asking
            .said
            .extend(listed.map(|instance| (instance.id, Said::Exists(instance.state.clone()))));
    }
    for id in ids {
        if !asking.said.contains_key(id) {
            asking.ask(*id)?;
        }
    }
    let some_are_gone = asking.said.values().any(|said| *said == Said::NotFound);
    if !some_are_gone {
        return Ok(asking
            .said
            .into_iter()
            .map(|(id, said)| (id, said.without_list()))
            .collect());
    }
    // The second witness: a list that is complete, and younger than this look.
    let list = apis.instances(begun.elapsed(), Urgency::Needed)?;
    let there: HashMap<InstanceId, &Instance> = list.value.iter().map(|i| (i.id, i)).collect();
    let visible: HashSet<InstanceId> = nodes
        .iter()
        .filter_map(|node| server_of(node, &*apis.provider))
        .filter(|id| there.contains_key(id))
        .collect();
    let judge = |(id, said): (InstanceId, Said)| {
        let others_are_visible = visible.iter().any(|other| *other != id);
        (
            id,
            said.with_list(there.get(&id).copied(), others_are_visible),
        )
    };
    Ok(asking.said.into_iter().map(judge).collect())
}

/// What was said about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Exists(provider::InstanceState),
    /// By the API itself; nothing else counts.
    NotFound,
    Unclear(String),
}

struct Asking<'a> {
    apis: &'a Apis,
    said: HashMap<InstanceId, Said>,
    failures: usize,
}

impl Asking<'_> {
    fn ask(&mut self, id: InstanceId) -> Result<(), Error> {
        let said = match self.apis.instance(id) {
            Ok(instance) => Said::Exists(instance.state),
            Err(error) if error.kind == ErrorKind::NotFound => Said::NotFound,
            Err(error) => {
                self.failures += 1;
                let for_all =
                    matches!(error.kind, ErrorKind::RateLimited { .. }) || error.is_permanent();
                if for_all || self.failures == FAILURES_AT_MOST {
                    return Err(Error::Cloud(error));
                }
                Said::Unclear(error.to_string())
            }
        };
        self.said.insert(id, said);
        Ok(())
    }
}

impl Said {
    fn without_list(self) -> Fact {
        match self {
            Said::Exists(state) => Fact::Exists(state),
            Said::NotFound => Fact::Unclear("no list of all servers was read".into()),
            Said::Unclear(why) => Fact::Unclear(why),
        }
    }

    fn with_list(self, listed: Option<&Instance>, others_are_visible: bool) -> Fact {
        match (self, listed) {
            (Said::NotFound, None) => Fact::Gone { others_are_visible },
            (Said::NotFound, Some(_)) => Fact::Unclear(
                "the list of all servers holds it, but asked for alone it is not found".into(),
            ),
            (said, _) => said.without_list(),
        }
    }
}
