//! Decides when a node gets the taint `out-of-service`, and when it loses this taint again.
//!
//! Because of the taint, Kubernetes deletes the pods of the node by force and detaches their volumes at once. While the
//! machine of the node still runs, this can destroy data. So a node gets the taint only when all [`rules`] are
//! fulfilled.

use crate::controllers::{NodeChange, Plan};
use crate::kube::{KubeNode, Taint};
use crate::provider::{Finding, InstanceId, Reason, clock};
use crate::text::duration::shown_duration;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The key of the taint of a node whose server is off.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The key of the taint of a node whose server stays off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The value of the taint `out-of-service` when this program has set it. A taint `out-of-service` with any other value
/// was set by a person or by another program, and is never changed.
const OWN_VALUE: &str = "ccm-from-scratch";

/// The time that two of the rules in [`RULES`] require. Every read of the server within this time must have said that
/// the server is not locked. Within this time, no other node may have got the taint `out-of-service`.
const A_MINUTE: Duration = Duration::from_secs(60);

/// The greatest age of the last read of the server when the taint `out-of-service` is planned. It is short, because
/// somebody may have switched the server on since this read. The request that sets the taint can take up to 8 seconds
/// more.
const LAST_READ_MAX_AGE: Duration = Duration::from_secs(8);

/// The texts of the rules that must be fulfilled before a node gets the taint `out-of-service`.
const RULES: [&str; 6] = [
    "the node must be on a Cloud server and have the taint shutdown",
    "the condition Ready of the node must be Unknown",
    "for the time of --node-out-of-service-after, every read of the server must have said that it is off",
    "the server must be off and not locked, now and a minute ago, and no action may run on it",
    "at least half of the nodes must be ready",
    "ccm must not have set taint out-of-service on another node within the last minute",
];

/// A rule that must be fulfilled before a node gets the taint `out-of-service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintRule {
    pub text: &'static str,
    /// Whether this condition for the taint `out-of-service` is fulfilled. `None` when it is not known yet.
    pub is_fulfilled: Option<bool>,
    /// The fact that the check of this rule has found, e.g. `3 of 4 are` for the rule `at least half of the nodes must
    /// be ready`. The text is empty when there is nothing to add to the text of the rule.
    pub found: String,
}

/// Writes a text such as `at least half of the nodes must be ready (3 of 4 are)`.
impl fmt::Display for TaintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaintRule { text, found, .. } = self;
        if found.is_empty() { f.write_str(text) } else { write!(f, "{text} ({found})") }
    }
}

/// What this process knows about servers that are off, and about the number of ready nodes. From these facts it decides
/// which nodes get the taint `out-of-service`. The facts are kept in memory only, so after a restart the time for which
/// a server has been off is measured anew.
#[derive(Clone, Debug)]
pub struct OffServers {
    /// The setting `--node-out-of-service-after`, which is how long a server must be off before its node gets the taint
    /// `out-of-service`. `None` means that no node gets it.
    pub after: Option<Duration>,
    /// The number of nodes in the cluster. The field `ready` says how many of them are ready.
    pub nodes: usize,
    pub ready: usize,
    /// The moment at which the conditions for the taint `out-of-service` are checked.
    pub now: Instant,
    /// The moment at which this process last set the taint `out-of-service` on any node. `None` when it has set none.
    pub last_taint: Option<Instant>,
    /// The reads that found a server off, by the UID of the server's node.
    pub reads: Arc<HashMap<String, OffReads>>,
}

/// The moments at which reads of one server have said that it is off.
#[derive(Clone, Debug)]
pub struct OffReads {
    pub first: Instant,
    /// The moment since which every read has said that the server is off and not locked. `None` when the server was
    /// locked at the last read.
    pub first_unlocked: Option<Instant>,
    pub last: Instant,
    /// The last read of the server before the taint `out-of-service` is set: when the read began, and why it forbids
    /// the taint, e.g. `the server is locked`. The text is empty when the read allows the taint.
    pub for_taint: Option<(Instant, String)>,
}

/// Whether this is the taint `out-of-service`, and this program has set it.
pub fn is_own(taint: &Taint) -> bool {
    taint.key == OUT_OF_SERVICE && taint.value.as_deref() == Some(OWN_VALUE)
}

/// Returns the change that removes the taint `out-of-service` from the node, or `None` when the node has no such taint
/// that this program has set.
pub(super) fn removal(node: &KubeNode) -> Option<NodeChange> {
    let (own, others) = node.spec.taints.iter().cloned().partition::<Vec<_>, _>(is_own);
    (!own.is_empty()).then_some(NodeChange::RemoveOutOfServiceTaint { taints: others })
}

/// Plans the taint `out-of-service` for a node whose server is off. When the server has been off for long enough, but a
/// rule is not fulfilled, adds a finding (a message for the operator) that names this rule. Does nothing when the node
/// already has a taint with this key.
pub(super) fn plan_taint(
    plan: &mut Plan<NodeChange, Vec<TaintRule>>,
    node: &KubeNode,
    server: InstanceId,
    off: &OffServers,
) {
    let Some(after) = off.after.filter(|_| node.taint(OUT_OF_SERVICE).is_none()) else {
        return;
    };
    plan.facts = rules(node, server, after, off);
    let is_due = [0, 2].iter().all(|place| plan.facts[*place].is_fulfilled == Some(true));
    if plan.facts.iter().all(|rule| rule.is_fulfilled == Some(true)) {
        let own = Taint {
            key: OUT_OF_SERVICE.into(),
            value: Some(OWN_VALUE.into()),
            effect: "NoExecute".into(),
            ..Taint::default()
        };
        let taints = node.spec.taints.iter().cloned().chain([own]).collect();
        plan.changes.push(NodeChange::AddOutOfServiceTaint { server, taints });
    } else if let Some((number, rule)) =
        (1..).zip(&plan.facts).find(|(_, rule)| is_due && rule.is_fulfilled == Some(false))
    {
        let message = format!(
            "server {server} stays off, but the node does not get the taint out-of-service yet, because rule {number} \
             is not fulfilled: {rule}. ccm checks this again; ccm help nodes explains the rules"
        );
        plan.findings.push(Finding::info(Reason::OutOfServiceHeld, message));
    }
}

/// Returns the finding (a message for the operator) that a node has got the taint `out-of-service`.
pub(super) fn was_set(server: InstanceId) -> Finding {
    let message = format!(
        "server {server} stays off (longer than --node-out-of-service-after), so ccm has set the taint \
         {OUT_OF_SERVICE} on the node. Kubernetes moves the pods of the node and their volumes to other nodes. ccm \
         removes the taint when the server is on again"
    );
    Finding::warning(Reason::NodeOutOfService, message)
}

/// Returns the six rules for the taint `out-of-service`, in their order, each with whether it is fulfilled for this
/// node.
fn rules(node: &KubeNode, server: InstanceId, after: Duration, off: &OffServers) -> Vec<TaintRule> {
    let time = |moment: Instant| off.now.saturating_duration_since(moment);
    let reads = off.reads.get(&node.metadata.uid);
    let status = node.condition("Ready").unwrap_or("missing");
    let since = node.not_ready_since().map(|since| format!(" since {since:.0}"));
    let unlocked = reads.and_then(|reads| reads.first_unlocked).map(time);
    let last_read = reads.and_then(|reads| reads.for_taint.as_ref());
    let idle = match last_read.filter(|(at, _)| time(*at) <= LAST_READ_MAX_AGE) {
        _ if reads.is_some() && unlocked < Some(A_MINUTE) => {
            (Some(false), "the server was locked less than a minute ago".into())
        }
        Some((_, found)) => (Some(found.is_empty()), found.clone()),
        None => (None, String::new()),
    };
    let (off_for, last_taint) = (reads.map(|reads| time(reads.first)), off.last_taint.map(time));
    let shown = off_for.map(|time| format!("off for {} so far", shown_duration(time.as_secs())));
    let states = [
        (Some(server.cloud().is_some() && node.taint(SHUTDOWN).is_some()), String::new()),
        (Some(status == "Unknown"), format!("it is {status}{}", since.unwrap_or_default())),
        (off_for.map(|time| time >= after), shown.unwrap_or_default()),
        idle,
        (Some(2 * off.ready >= off.nodes), format!("{} of {} are", off.ready, off.nodes)),
        (reads.map(|_| last_taint.is_none_or(|time| time >= A_MINUTE)), String::new()),
    ];
    let rule = |(text, (is_fulfilled, found))| TaintRule { text, is_fulfilled, found };
    RULES.into_iter().zip(states).map(rule).collect()
}

impl OffServers {
    pub(super) fn new(after: Option<Duration>) -> OffServers {
        let now = clock::now();
        OffServers { after, nodes: 0, ready: 0, now, last_taint: None, reads: Arc::default() }
    }

    /// Stores the result of the last read of a server. `uid` is the UID of the server's node. When the server is off,
    /// `is_locked` says whether it is locked. `None` means that the server is not off, or that the read has failed or
    /// was not sent because of the rate limit.
    ///
    /// The time for which the server has been off begins anew after a read with `None`, and after a gap of more than
    /// `longest_gap` between two reads.
    pub(super) fn note(&mut self, uid: &str, is_locked: Option<bool>, longest_gap: Duration) {
        let all = Arc::make_mut(&mut self.reads);
        let known = all.remove(uid).filter(|reads| clock::since(reads.last) <= longest_gap);
        if let (Some(is_locked), Some(_)) = (is_locked, self.after) {
            let last = clock::now();
            let first_unlocked = known.as_ref().and_then(|reads| reads.first_unlocked);
            let reads = OffReads {
                first: known.map_or(last, |reads| reads.first),
                first_unlocked: (!is_locked).then_some(first_unlocked.unwrap_or(last)),
                last,
                for_taint: None,
            };
            all.insert(uid.to_owned(), reads);
        }
    }
}
