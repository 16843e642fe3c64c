//! Asks the cloud about the servers of nodes that are not ready, and once more just before a node gets the taint
//! `out-of-service`.

use super::out_of_service::OffServers;
use super::plan::{Fact, Facts, plan};
use crate::cache::{Apis, CacheError, ListedServers};
use crate::controllers::matching::server_of;
use crate::kube::KubeNode;
use crate::provider::order;
use crate::provider::variables::ROBOT_USER;
use crate::provider::{self, ErrorKind, Instance, InstanceId, Urgency, clock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When more nodes than this are not ready, their servers are read by one list, and not by a call for each server. If
/// the list takes more API calls than there are such servers, it is not used.
const READ_AT_MOST: usize = 20;

/// How many dedicated servers a list must contain before a server that is missing in it counts as deleted. A list with
/// only one server may come from a login for that server alone, which sees no other server.
const SEEN_AT_LEAST: usize = 2;

/// After this many failed reads of single servers, the API that has these servers (Cloud or Robot) counts as not
/// answering, and no more of its servers are read.
const FAILURES_AT_MOST: usize = 3;

/// Returns what the cloud says about the servers of the nodes in `due`, which are not ready and must be checked now.
/// `nodes` are all nodes of the cluster. When one of the two APIs (Cloud, Robot) does not answer, its error is returned
/// beside the facts from the other API.
pub(super) fn facts(
    apis: &Apis,
    nodes: &[Arc<KubeNode>],
    due: &[Arc<KubeNode>],
    list_max_age: Duration,
) -> (Facts, Option<CacheError>) {
    let server = |node: &KubeNode| server_of(node, &*apis.provider);
    let asked =
        due.iter().filter(|node| !node.is_ready() && node.metadata.deletion_timestamp.is_none());
    let ids: BTreeSet<InstanceId> = asked.filter_map(|node| server(node)).collect();
    let not_ready = nodes.iter().filter(|node| !node.is_ready());
    let observation = Observation {
        apis,
        begun: clock::now(),
        claimed: nodes.iter().filter_map(|node| server(node)).collect(),
        not_ready: not_ready.filter_map(|node| server(node)?.cloud()).collect(),
        list_max_age,
    };
    let cloud = observation.of_cloud(&ids.iter().filter_map(|id| id.cloud()).collect());
    let dedicated = observation.of_dedicated(ids.iter().filter_map(|id| id.dedicated()).collect());
    let (mut facts, mut error) = (Facts::new(), None);
    for found in [cloud, dedicated.map_err(CacheError::Dedicated)] {
        match found {
            Ok(found) => facts.extend(found),
            Err(why) => error = error.or(Some(why)),
        }
    }
    (facts, error)
}

/// Makes the last check before a node gets the taint `out-of-service`. For each node for which only this check is
/// missing, reads the server once more, and asks the cloud whether an action runs on the server. Ends after the first
/// server whose read allows the taint, and after the first server that can't be read.
pub(super) fn read_for_taint(
    apis: &Apis,
    due: &[Arc<KubeNode>],
    facts: &mut Facts,
    off: &mut OffServers,
) {
    for node in due {
        let plan = plan(node, facts, off, &*apis.provider, true);
        let open = plan.facts.iter().filter(|rule| rule.is_fulfilled != Some(true));
        let open: Vec<Option<bool>> = open.map(|rule| rule.is_fulfilled).collect();
        let server = server_of(node, &*apis.provider).and_then(InstanceId::cloud);
        let (&[None], Some(number)) = (&*open, server) else {
            continue;
        };
        let begun = clock::now();
        let server = apis.instance(number);
        let fact = server.as_ref().ok().map(Fact::of);
        let is_idle = || apis.provider.instances().map(|servers| servers.check_is_idle(number));
        let found = match &server {
            Err(error) => error.to_string(),
            Ok(server) if !server.is_off => format!("the server is {}", server.state),
            Ok(server) if server.is_locked => "the server is locked".to_owned(),
            Ok(_) => is_idle().and_then(Result::err).map_or(String::new(), |busy| busy.message),
        };
        let is_last = fact.is_none() || found.is_empty();
        off.note(&node.metadata.uid, fact.as_ref().and_then(Fact::is_locked), Duration::MAX);
        facts.extend(fact.map(|fact| (InstanceId::Cloud(number), fact)));
        if let Some(reads) = Arc::make_mut(&mut off.reads).get_mut(&node.metadata.uid) {
            reads.for_taint = Some((begun, found));
        }
        if is_last {
            return;
        }
    }
}

struct Observation<'a> {
    apis: &'a Apis,
    begun: Instant,
    /// The servers that are named by the provider ID of any node.
    claimed: BTreeSet<InstanceId>,
    /// The IDs of the cloud servers of all nodes that are not ready.
    not_ready: BTreeSet<u64>,
    /// The greatest age of a list of servers from which the controller learns whether a server is on, off or deleted.
    list_max_age: Duration,
}

impl Observation<'_> {
    fn of_cloud(&self, numbers: &BTreeSet<u64>) -> Result<Facts, CacheError> {
        let apis = self.apis;
        let mut found = FoundServers::default();
        if numbers.is_empty() {
            return Ok(found.facts);
        }
        // The servers are read by a list when the list takes fewer calls than reads of single servers. This comparison
        // counts the servers of all nodes that are not ready, and not only the servers that are read now, because all
        // of them will have to be read soon.
        let pages = apis.pages_around(&self.not_ready);
        let is_listed = numbers.len() > 2 * apis.pages_around(numbers)
            || self.not_ready.len() > pages.max(READ_AT_MOST);
        let mut around = None;
        if is_listed && apis.is_large() && 2 * pages < apis.server_pages() as usize {
            let listed =
                apis.instances_around(&self.not_ready, self.list_max_age, Urgency::Gone)?;
            found.note_listed(&listed.value, numbers);
            around = Some(listed).filter(|listed| listed.asked >= self.begun);
        } else if is_listed {
            let listed =
                apis.instances(None, apis.look_period(self.list_max_age), Urgency::Gone)?;
            found.note_listed(&listed.value, numbers);
        }
        for number in numbers {
            let id = InstanceId::Cloud(*number);
            if !found.facts.contains_key(&id) {
                let fact = apis.instance(*number).map(|server| Fact::of(&server));
                found.note(id, fact)?;
            }
        }
        let (mut facts, missing) = (found.facts, found.missing);
        if !missing.is_empty() {
            facts.extend(self.cloud_witness(missing, around)?);
        }
        Ok(facts)
    }

    /// Decides whether the servers in `missing` are deleted. The API has not found them by their IDs. A server counts
    /// as deleted when a list of servers that was requested in this sync pass does not contain it either.
    ///
    /// In a project with many servers, only those pages of the list are read on which the missing servers would be.
    /// `around` contains these pages when this sync pass has already read them. These pages are enough when they
    /// contain none of the missing servers, but a server of another node, which proves that the token belongs to the
    /// right project. Otherwise the whole list is read.
    fn cloud_witness(
        &self,
        missing: Vec<InstanceId>,
        around: Option<ListedServers>,
    ) -> Result<Facts, CacheError> {
        let apis = self.apis;
        let numbers = missing.iter().filter_map(|id| id.cloud()).collect();
        let around = match around {
            None if apis.is_large() => {
                Some(apis.instances_around(&numbers, Duration::ZERO, Urgency::Gone)?)
            }
            around => around,
        };
        if let Some(around) = around {
            let facts = self.second_witness(missing.clone(), &around.value, 1);
            let is_certain = |fact: &Fact| matches!(fact, Fact::Gone { others_are_visible: true });
            if facts.values().all(is_certain) {
                return Ok(facts);
            }
        }
        let list = apis.instances(None, clock::since(self.begun), Urgency::Gone)?;
        Ok(self.second_witness(missing, &list.value, 1))
    }

    /// Returns the facts about dedicated servers. The list of all dedicated servers, which other controllers read as
    /// well, shows which servers exist. Then one more call for each server asks whether the server is off or, when the
    /// list lacks it, whether it exists. Only a few such calls are allowed in an hour. When no such call is left, the
    /// result has no fact about the server.
    fn of_dedicated(&self, numbers: BTreeSet<u64>) -> Result<Facts, provider::ProviderError> {
        let apis = self.apis;
        if numbers.is_empty() || apis.provider.dedicated().is_none() {
            return Ok(Facts::new());
        }
        let list = apis.dedicated(None, Urgency::Needed)?;
        let listed: BTreeSet<InstanceId> = list.value.iter().map(|it| it.id).collect();
        let mut found = FoundServers::default();
        for number in numbers {
            let id = InstanceId::Dedicated(number);
            let is_off = apis.ask_dedicated(|api| match listed.contains(&id) {
                // When Robot does not say whether the server is off, the server counts as on, so that nothing is done
                // to its node.
                true => api.is_off(number).map(|off| off == Some(true)),
                false => api.get(number).map(|()| false),
            });
            found.note(id, is_off.map(|is_off| Fact::Exists { is_off, is_locked: false }))?;
        }
        let (mut facts, missing) = (found.facts, found.missing);
        if !missing.is_empty() {
            let list = match apis.dedicated(Some(self.begun), Urgency::Needed) {
                Err(error) if error.is_put_off() => return Ok(facts),
                list => list?,
            };
            match list.value.is_empty() {
                // Robot answers with an error when an account has no server. An empty list is therefore unexpected, and
                // does not prove that a server was deleted.
                true => {
                    let why = format!("the account of {ROBOT_USER} has no servers");
                    let unclear = |id| (id, Fact::Unclear(why.clone()));
                    facts.extend(missing.into_iter().map(unclear));
                }
                false => facts.extend(self.second_witness(missing, &list.value, SEEN_AT_LEAST)),
            }
        }
        Ok(facts)
    }

    /// Decides whether the servers in `missing`, which the API (Cloud or Robot) did not find by their IDs, are deleted.
    /// `list` is a list of servers from the same API. A server counts as deleted when `list` does not contain it
    /// either. When `list` has fewer than `at_least` servers, or no server of another node, the credentials may not
    /// show all servers. The result then has `others_are_visible: false`.
    fn second_witness(
        &self,
        missing: Vec<InstanceId>,
        list: &[Instance],
        at_least: usize,
    ) -> Facts {
        let there: BTreeSet<InstanceId> = list.iter().map(|it| it.id).collect();
        let fact = |id: &InstanceId| match there.contains(id) {
            true => Fact::Unclear(
                "the list of servers contains the server, but a read of this server alone says \
                 that it does not exist"
                    .into(),
            ),
            false => Fact::Gone {
                others_are_visible: there.len() >= at_least
                    && self.claimed.iter().any(|other| there.contains(other)),
            },
        };
        order::map(missing.into_iter().map(|id| (id, fact(&id))))
    }
}

/// What the reads of servers have found so far: facts about servers, servers that do not exist, and the number of
/// failed reads.
#[derive(Default)]
struct FoundServers {
    facts: Facts,
    /// The servers for which the API (Cloud or Robot) answered "not found". Only this answer is a sign that a server
    /// was deleted.
    missing: Vec<InstanceId>,
    failures: usize,
}

impl FoundServers {
    fn note_listed(&mut self, list: &[Instance], numbers: &BTreeSet<u64>) {
        let is_asked = |id: InstanceId| id.cloud().is_some_and(|id| numbers.contains(&id));
        let listed = list.iter().filter(|it| is_asked(it.id));
        self.facts.extend(listed.map(|it| (it.id, Fact::of(it))));
    }

    /// Stores the result of a call about one server: what the API said about it, that it does not exist, or that
    /// nothing is known because the call failed. Stores nothing when the call was only put off, because few calls of
    /// the API's rate limit are left. Returns an error when calls for further servers would fail, too, e.g. because the
    /// rate limit is used up.
    fn note(
        &mut self,
        id: InstanceId,
        fact: Result<Fact, provider::ProviderError>,
    ) -> Result<(), provider::ProviderError> {
        match fact {
            Ok(fact) => drop(self.facts.insert(id, fact)),
            Err(error) if error.kind == ErrorKind::NotFound => self.missing.push(id),
            Err(error) if error.is_put_off() => {}
            Err(error) => {
                self.failures += 1;
                let is_limit = matches!(error.kind, ErrorKind::RateLimited { .. });
                if is_limit || error.is_permanent() || self.failures == FAILURES_AT_MOST {
                    return Err(error);
                }
                self.facts.insert(id, Fact::Unclear(error.to_string()));
            }
        }
        Ok(())
    }
}
