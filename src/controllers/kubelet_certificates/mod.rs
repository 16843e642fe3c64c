//! This controller approves the serving certificates of kubelets when the cloud proves every name and address in the
//! request. It never denies a request: a kubelet whose request is denied asks again and again, and a person may still
//! approve a pending request.
//!
//! `observe` lists all requests, and reads the newest pending request of each node completely. It also reads the nodes
//! and the servers. `plan` decides. `approve` reads the request once more, decides again, and writes.

mod plan;

pub use plan::{
    APPROVALS_OF_NODE, Asked, CertificateApproval, PendingRequest, RequestFacts, RequestPlan,
    asked, plan,
};

use super::controller::{Controller, Progress, Proposal, Report, Selection};
use super::matching::MatchIndex;
use super::plan::Plan;
use super::report::{count_write, log_change, publish_now, recovered};
use crate::cache::{AllServers, Apis, CacheError, ListedNodes, ServerNeeds};
use crate::kube::{
    KubeError, ObjectReference, REQUESTS_AT_MOST, SIGNING_REQUEST, SigningRow, SigningState,
    retry_on_conflict, signing_error,
};
use crate::metrics::KUBELET_CERTIFICATES;
use crate::provider::order;
use crate::provider::{Finding, Reason, Urgency, Write, clock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

pub const NAME: &str = "node-csr-approval";

/// How often the certificate requests of kubelets are listed. The list is a table with a few columns of each request.
const INTERVAL: Duration = Duration::from_secs(10);

/// The greatest number of certificate requests that are read completely in one sync pass, and also of those that are
/// approved in one sync pass.
const AT_ONCE: usize = 20;

/// How old complete Node objects and the list of servers may be for the first check of a kubelet's certificate request.
/// If this check would approve the request, a newer node and newer servers are read, and the request is checked again.
const RECHECK: Duration = Duration::from_secs(300);

/// The shortest time between two lists of servers when dedicated servers are used, because each list then also calls
/// Robot. Robot allows 200 calls an hour, and a hostile kubelet can make a new certificate request at any time.
const PERIOD_WITH_ROBOT: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct KubeletCertificates {
    server_cache_max_age: Duration,
    /// The newest pending request of each node. The key is the UID of the request. The value is the time when this
    /// controller first saw the request in a table of requests, and what the request asks for. What it asks for is
    /// `None` until the complete request was read.
    seen: HashMap<String, (Instant, Option<Asked>)>,
    /// The time at which this controller last requested a new list of servers. This limits how often it requests one.
    /// `None` means that it may request a list at once: it has requested none yet, or a person has given a command.
    listed: Option<Instant>,
}

/// All certificate requests of kubelets, and the data that are needed to decide about the pending ones.
#[derive(Default)]
pub struct ObservedRequests {
    pub rows: Vec<SigningRow>,
    /// The newest pending request of each node. The oldest of these requests comes first, so that a node that makes new
    /// requests all the time does not delay the requests of other nodes.
    candidates: Vec<PendingRequest>,
    nodes: Option<ListedNodes>,
    servers: Option<AllServers>,
}

/// All requests, and the plans for the newest pending request of each selected node. When no request can be approved at
/// all, e.g. because ccm is not allowed to list them, there is a single plan. It says why, and belongs to no request.
pub type PlannedRequests = (ObservedRequests, Vec<RequestPlan>);

impl Controller for KubeletCertificates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        self.sync(apis, selection).0
    }

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, CacheError> {
        let (_, plans) = self.evaluate(apis, selection)?;
        Ok(plans.iter().map(Plan::proposal).collect())
    }
}

impl KubeletCertificates {
    pub fn new(server_cache_max_age: Duration) -> KubeletCertificates {
        KubeletCertificates { server_cache_max_age, seen: HashMap::new(), listed: None }
    }

    /// Reads all certificate requests of kubelets, and decides which of them can be approved. Writes nothing.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<PlannedRequests, CacheError> {
        self.clone().plan(apis, selection)
    }

    /// Makes one sync pass. Returns its report and its plans.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<RequestPlan>) {
        let (observed, plans) = match self.plan(apis, selection) {
            Ok(planned) => planned,
            Err(error) => return (Report::outage(error, String::new()), Vec::new()),
        };
        if selection.is_of_all() {
            count(&observed.rows, &plans);
        }
        let mut report = Report::default();
        for plan in &plans {
            match approve(apis, &observed, plan, self.young()) {
                Err(error) if error.is_refused() => break,
                outcome => note(apis, &mut report, plan, outcome),
            }
        }
        (report, plans)
    }

    /// Reads all requests, and decides about them. When a request would be approved, the servers and the node are read
    /// again, if the cached data are too old for an approval.
    fn plan(&mut self, apis: &Apis, selection: &Selection) -> Result<PlannedRequests, CacheError> {
        let rows = match apis.kube.signing_requests() {
            Err(error) if error.is_forbidden() => return Ok(blocked(signing_error(&error))),
            rows => rows?,
        };
        if rows.len() > REQUESTS_AT_MOST {
            return Ok(blocked(format!(
                "there are more than {REQUESTS_AT_MOST} certificate requests of kubelets, so ccm approves none. Find \
                 out which program creates so many requests (kubectl get csr), stop it, and delete the requests"
            )));
        }
        let mut observed = self.observe(apis, selection, rows)?;
        if observed.candidates.is_empty() {
            return Ok((observed, Vec::new()));
        }
        if selection.is_explicit() {
            self.listed = None;
        }
        self.list_servers(apis, &mut observed, apis.refresh_period(RECHECK))?;
        let mut plans = observed.plans(apis, Duration::MAX);
        let would = plans.iter().filter(|plan| plan.has_writes());
        let names: Vec<String> = would.take(AT_ONCE).map(|plan| plan.node.name.clone()).collect();
        if !names.is_empty() {
            self.list_servers(apis, &mut observed, self.young())?;
            observed.nodes = Some(apis.nodes.again(&names, INTERVAL / 2)?);
            plans = observed.plans(apis, self.young());
            for plan in plans.iter_mut().filter(|plan| plan.has_writes()).skip(AT_ONCE) {
                plan.changes.clear();
                plan.waits = Some(format!(
                    "ccm approves at most {AT_ONCE} requests at a time, and comes to this request later"
                ));
            }
        }
        Ok((observed, plans))
    }

    /// Reads the nodes in `selection`, and the newest pending certificate request of each of them.
    fn observe(
        &mut self,
        apis: &Apis,
        selection: &Selection,
        rows: Vec<SigningRow>,
    ) -> Result<ObservedRequests, CacheError> {
        let seen_at = clock::now();
        let known = std::mem::take(&mut self.seen);
        let mut newest = newest(&rows);
        newest.retain(|it| selection.names(it.node));
        if newest.is_empty() {
            return Ok(ObservedRequests::undecided(rows));
        }
        let nodes = selection.nodes(apis, INTERVAL / 2, RECHECK)?;
        // A certificate request for a node that does not exist is dropped here, because reading the complete request
        // would be a useless API call.
        let names: HashSet<&str> = nodes.value.iter().map(|node| node.name()).collect();
        newest.retain(|it| names.contains(it.node));
        let (mut candidates, mut reads) = (Vec::new(), 0);
        for NewestPending { node, row, approved, .. } in newest {
            let (first_seen, mut content) = known.get(&row.uid).cloned().unwrap_or((seen_at, None));
            if content.is_none() && reads < AT_ONCE {
                reads += 1;
                let request = apis.kube.signing_request(row)?;
                content = request.map(|request| asked(&request, node));
            }
            self.seen.insert(row.uid.clone(), (first_seen, content.clone()));
            let row = row.clone();
            candidates.extend(content.map(|asked| PendingRequest {
                row,
                asked,
                approved,
                first_seen,
            }));
        }
        Ok(ObservedRequests { rows, candidates, nodes: Some(nodes), servers: None })
    }

    /// Takes the cached list of servers, and reads a new list when a pending certificate request needs a newer one. A
    /// kubelet that makes many requests must not use up the rate limit. Between two new lists there is therefore a
    /// pause, which is so long that on average at most one page is read in three seconds. During this pause, the
    /// requests that need a newer list have to wait.
    fn list_servers(
        &mut self,
        apis: &Apis,
        observed: &mut ObservedRequests,
        max_age: Duration,
    ) -> Result<(), CacheError> {
        let since = observed.candidates.iter().map(|candidate| candidate.first_seen).max();
        let needs = needs(since, max_age);
        let with_robot = apis.provider.dedicated().map(|_| PERIOD_WITH_ROBOT);
        let period = apis.list_period().max(with_robot.unwrap_or_default());
        let mut servers =
            apis.servers(observed.servers.take(), &ServerNeeds::NONE, Urgency::Needed)?;
        let may = self.listed.is_none_or(|last| clock::since(last) >= period);
        if may && !servers.satisfy(&needs) {
            self.listed = Some(clock::now());
            servers = apis.servers(Some(servers), &needs, Urgency::Needed)?;
        }
        observed.servers = Some(servers);
        Ok(())
    }

    /// Returns the greatest age of a list of cloud servers from which a request is approved.
    fn young(&self) -> Duration {
        self.server_cache_max_age.max(Duration::from_secs(1))
    }
}

/// The newest request of a node, when this request is pending. The older requests of the node do not matter, because
/// its kubelet waits only for the newest one.
pub struct NewestPending<'a> {
    pub node: &'a str,
    pub row: &'a SigningRow,
    /// The first request that the kubelet has made since the last decision about one of its requests. It shows since
    /// when the kubelet has waited, although the kubelet makes a new request every 15 minutes.
    pub first: &'a SigningRow,
    /// The number of the node's requests that are approved.
    approved: usize,
}

impl ObservedRequests {
    /// Returns an object that contains only the list of all requests. The nodes and the servers, which are needed to
    /// decide about the requests, were not read.
    pub fn undecided(rows: Vec<SigningRow>) -> ObservedRequests {
        ObservedRequests { rows, ..ObservedRequests::default() }
    }

    /// Returns the newest pending request of this node. When no request of the node is pending, returns its newest
    /// request.
    pub fn newest_of(&self, node: &str) -> Option<&SigningRow> {
        let of_node = self.rows.iter().filter(|row| row.node.as_deref() == Some(node));
        of_node.max_by_key(|row| (row.state == SigningState::Pending, row.created))
    }

    fn index<'a>(&'a self, apis: &'a Apis) -> Option<MatchIndex<'a>> {
        let (nodes, servers) = (self.nodes.as_ref()?, self.servers.as_ref()?);
        Some(MatchIndex::new(&*apis.provider, nodes.value.as_slice(), servers.servers()))
    }

    /// Makes the plan for a certificate request. In two cases the plan changes nothing, and the request waits for a new
    /// list of servers: when the present list was requested before this program first saw the request, and when the
    /// request would be approved but the list is older than `max_age`.
    fn plan_one(
        &self,
        candidate: &PendingRequest,
        index: &MatchIndex,
        max_age: Duration,
    ) -> RequestPlan {
        let mut plan = plan(candidate, index);
        let max_age = if plan.has_writes() { max_age } else { Duration::MAX };
        let needs = needs(Some(candidate.first_seen), max_age);
        let is_new = self.servers.as_ref().is_some_and(|servers| servers.satisfy(&needs));
        if !is_new && plan.waits.is_none() {
            (plan.changes, plan.obstacle) = (Vec::new(), None);
            plan.waits = Some("ccm must first read the list of servers again".into());
        }
        plan
    }

    fn plans(&self, apis: &Apis, max_age: Duration) -> Vec<RequestPlan> {
        let Some(index) = self.index(apis) else { return Vec::new() };
        self.candidates.iter().map(|it| self.plan_one(it, &index, max_age)).collect()
    }
}

fn needs(since: Option<Instant>, max_age: Duration) -> ServerNeeds {
    ServerNeeds { since, dedicated_since: since, ..ServerNeeds::max_age(max_age) }
}

/// Reads the certificate request once more, decides again, and approves it if the decision is still to approve. When
/// the request was changed at the same time by somebody else, all of this is repeated. Returns whether the request was
/// approved.
fn approve(
    apis: &Apis,
    observed: &ObservedRequests,
    plan: &RequestPlan,
    young: Duration,
) -> Result<bool, KubeError> {
    let candidate = observed.candidates.iter().find(|it| it.row.uid == plan.object.uid);
    let candidate = candidate.filter(|_| plan.has_writes());
    let Some((candidate, index)) = candidate.zip(observed.index(apis)) else {
        return Ok(false);
    };
    retry_on_conflict(|_| {
        let request = apis.kube.signing_request(&candidate.row)?;
        let Some(request) = request.filter(|request| !request.is_decided()) else {
            return Ok(false);
        };
        let asked = asked(&request, &plan.node.name);
        let candidate = PendingRequest { asked, ..candidate.clone() };
        let plan = observed.plan_one(&candidate, &index, young);
        let Some(change) = plan.changes.first() else {
            return Ok(false);
        };
        let message =
            format!("server {} has all names and addresses in this request", change.server);
        let written = apis.kube.approve(request, &message);
        count_write(NAME, change.word(), written.as_ref().map(drop));
        written.map(|()| true)
    })
}

/// Adds the outcome for a certificate request to the report of the sync pass. When the request was approved, or when
/// there is an error or a problem, also writes an event about it on the node that made the request.
fn note(apis: &Apis, report: &mut Report, plan: &RequestPlan, outcome: Result<bool, KubeError>) {
    let (object, node) = (plan.name(), plan.node.seen_by(NAME));
    report.planned += plan.changes.len();
    let why = match (outcome, &plan.obstacle) {
        (Ok(true), _) => {
            let made = plan.description();
            log_change(NAME, &object, &made);
            report.add_changes(&object, &made);
            let message = format!(
                "ccm has approved {object}, because the node's server has all names and addresses in this request"
            );
            let finding = Finding::info(Reason::KubeletCertificateApproved, message);
            recovered(apis, node);
            publish_now(apis, node, &finding, false);
            return report.note(object, Progress::Changed);
        }
        (Ok(false), None) => return report.note(object, Progress::Unchanged),
        (Ok(false), Some(why)) => why.clone(),
        (Err(error), _) => {
            Finding::warning(Reason::KubeletCertificatesBlocked, signing_error(&error))
        }
    };
    // A kubelet can make new requests all the time, and each can cause another message. So an empty text is passed in
    // place of the message. The problem is then reported once in ten minutes for each node, and not once for each
    // message.
    if apis.recorder.reported().is_due(node, why.reason, "", clock::now()) {
        publish_now(apis, node, &why, false);
    }
    report.fail(object, why.text().into_owned(), Some(why.reason));
}

/// Returns the newest pending request of each node, the oldest of these requests first. A pending request is left out
/// when somebody has already decided about a newer request of the same node, because the kubelet does not wait for the
/// older one any more.
pub fn newest(rows: &[SigningRow]) -> Vec<NewestPending<'_>> {
    let mut of_nodes: BTreeMap<&str, Vec<&SigningRow>> = BTreeMap::new();
    for row in rows {
        if let Some(node) = &row.node {
            of_nodes.entry(node).or_default().push(row);
        }
    }
    let newest = of_nodes.into_iter().filter_map(|(node, rows)| {
        let approved = rows.iter().filter(|row| row.is_approved()).count();
        let (mut pending, decided): (Vec<&SigningRow>, Vec<&SigningRow>) =
            rows.into_iter().partition(|row| row.state == SigningState::Pending);
        let last = decided.iter().map(|row| row.created).max();
        pending.retain(|row| Some(row.created) >= last);
        let (first, row) = pending.iter().min().zip(pending.iter().max())?;
        Some(NewestPending { node, row, first, approved })
    });
    let mut newest: Vec<NewestPending> = newest.collect();
    order::sort_by_key(&mut newest, |it| it.row);
    newest
}

/// Returns a single plan, which says with `why` that no request can be approved.
fn blocked(why: String) -> PlannedRequests {
    let all = ObjectReference::without_namespace(SIGNING_REQUEST, "", "");
    let mut plan = RequestPlan::new(all.clone(), "", RequestFacts::default());
    plan.node = all;
    plan.obstacle = Some(Finding::warning(Reason::KubeletCertificatesBlocked, why));
    (ObservedRequests::default(), vec![plan])
}

/// Counts the requests in each state for the metrics.
fn count(rows: &[SigningRow], plans: &[RequestPlan]) {
    let unproven = plans.iter().filter(|plan| plan.obstacle.is_some()).count();
    let pending = rows.iter().filter(|row| row.state == SigningState::Pending).count();
    let approved = rows.iter().filter(|row| row.is_approved()).count();
    KUBELET_CERTIFICATES.set(&["pending"], pending.saturating_sub(unproven) as f64);
    KUBELET_CERTIFICATES.set(&["unproven"], unproven as f64);
    KUBELET_CERTIFICATES.set(&["approved"], approved as f64);
}
