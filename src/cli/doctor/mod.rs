//! `ccm doctor`: checks everything that the daemon needs; reports what is wrong and the fix.
//!
//! `observe` makes every call, and each may fail by itself; the checks are pure functions of what it read. A new check is
//! a row of [`CHECKS`] and a function.
//!
//! | file | its job |
//! |---|---|
//! | `observe` | what is read, and what a role must allow |
//! | `outcome` | what comes of a check |
//! | `cloud`, `cluster`, `nodes`, `routes`, `services` | the checks, by what they are about |

mod cloud;
mod cluster;
mod nodes;
mod observe;
mod outcome;
mod routes;
mod services;

use super::output::{self, Document, Exit, paragraph};
use super::startup;
use crate::settings::Command;
pub(super) use observe::{View, observe};
pub(super) use outcome::{Gap, Seen};
use outcome::{Outcome, Status, Verdict, Verdicts, or_ok};
use serde::Serialize;
use std::ffi::OsString;

/// One check: its name, what it looks at, the fix where that could not be read, and what decides.
type Check = (Text, Text, Text, Decide);
type Text = &'static str;

enum Decide {
    /// Says one thing of the whole.
    One(fn(&View) -> Verdict),
    /// Says something of each object that has a problem.
    Each(fn(&View) -> Verdicts),
}
use Decide::{Each, One};

const SEE_ERROR: &str = "see what the error names";
const SEE_API_SERVER: &str = "check the API server's own health";

#[rustfmt::skip] // What it is about, then what decides.
const CHECKS: &[Check] = &[
    ("settings", "the environment: each variable that ccm reads",
        "", Each(settings)),
    ("token", "HCLOUD_TOKEN, HCLOUD_TOKEN_FILE",
        "make one in the Hetzner Console (Security → API tokens, Read & Write) and set HCLOUD_TOKEN, or \
         HCLOUD_TOKEN_FILE to its file", One(cloud::token)),
    ("api", "GET /servers of the Cloud API, every page",
        SEE_ERROR, One(cloud::api)),
    ("permission", "an empty change of a load balancer that can't exist: the answer shows whether the token may write",
        "", One(cloud::permission)),
    ("project", "provider IDs, names and addresses of nodes beside the servers of the token's project",
        "", One(nodes::project)),
    ("rate-limit", "RateLimit headers of the Cloud API",
        "", One(cloud::rate_limit)),
    ("clock", "the Date header of the Cloud API beside this machine's clock",
        "", One(cloud::clock)),
    ("network", "HCLOUD_NETWORK; GET /networks",
        "", One(cloud::network)),
    ("attached", "private-networks of the metadata service",
        "", One(cloud::attached)),
    ("cluster", "kubeconfig or service account; GET /version; who the API server takes us for",
        "check --kubeconfig, KUBECONFIG and --context; kubectl version with the same kubeconfig must work from here",
        One(cluster::reached)),
    ("version", "GET /version of the API server",
        "", One(cluster::version)),
    ("rights", "a selfsubjectaccessreview for each verb that the daemon uses",
        "bind system:basic-user to system:authenticated, as it is by default: whoever is known may ask what they may do",
        One(cluster::rights)),
    ("lease", "the Lease of leader election",
        SEE_API_SERVER, One(cluster::lease)),
    ("other-ccm", "images of Deployments and DaemonSets beside the Lease; who holds it",
        "", Each(cluster::other_ccm)),
    ("probes", "ports of the probes of ccm's own Deployment or DaemonSet",
        "", Each(cluster::probes)),
    ("daemon", "pods of ccm's own Deployment or DaemonSet",
        "", Each(cluster::daemon)),
    ("provider-ids", "spec.providerID of each node",
        "", Each(nodes::provider_ids)),
    ("kubelets", "provider ID and uninitialized taint of each node",
        "", Each(nodes::kubelets)),
    ("nodes", "each node and its server",
        SEE_API_SERVER, Each(nodes::servers)),
    ("ready", "condition Ready of each node, and the taint shutdown",
        "", Each(nodes::ready)),
    ("powered", "each node's server; without the cluster all servers of the project",
        "", Each(nodes::powered)),
    ("routes", "--cluster-cidr; the Network's routes beside the pod CIDRs and servers of nodes, as in ccm route list",
        SEE_ERROR, Each(routes::routes)),
    ("pod-network", "condition NetworkUnavailable of each node",
        "", Each(routes::pod_network)),
    ("services", "each Service of type LoadBalancer, its load balancer, what the next sync would do, and events of what failed",
        SEE_ERROR, Each(services::services)),
    ("targets", "health checks of each load balancer's targets; servers and externalTrafficPolicy for the cause",
        SEE_ERROR, Each(services::targets)),
    ("orphans", "load balancers with this cluster's label, and the Services that there are",
        SEE_ERROR, Each(services::orphans)),
];

/// A check and what it says of an object, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item {
    pub(super) check: &'static str,
    /// E.g. `node/worker-1`; null: the whole.
    object: Option<String>,
    status: Status,
    message: String,
    /// Null where nothing is wrong.
    remedy: Option<String>,
    #[serde(skip)]
    looked_at: &'static str,
}

pub(super) fn doctor(words: Vec<OsString>) -> Result<Exit, Exit> {
    let started = startup::start(Command::Doctor, words)?;
    let items = items(&observe(&started));
    let exit = output::print(
        started.settings.output.value,
        || Document::new("Doctor", items.iter().collect(), None),
        |is_wide| report(&items, is_wide) + &counts(&items),
    );
    Ok(exit.fail_if(is_failed(&items)))
}

/// What every check says, the worst first.
pub(super) fn items(view: &View) -> Vec<Item> {
    let mut items: Vec<Item> = CHECKS
        .iter()
        .flat_map(|check| items_of(check, view))
        .collect();
    items.sort_by_key(|item| item.status);
    items
}

pub(super) fn is_failed(items: &[Item]) -> bool {
    items.iter().any(|item| item.status == Status::Fail)
}

fn items_of((check, looked_at, if_unread, decide): &Check, view: &View) -> Vec<Item> {
    let outcomes = match decide {
        One(decide) => decide(view).map(|one| vec![one]),
        Each(decide) => decide(view),
    };
    let outcomes = outcomes.unwrap_or_else(|gap| vec![Outcome::unread(gap, if_unread)]);
    let item = |outcome: Outcome| Item {
        check,
        object: outcome.object,
        status: outcome.status,
        message: outcome.message,
        remedy: Some(outcome.remedy).filter(|remedy| !remedy.is_empty()),
        looked_at,
    };
    outcomes.into_iter().map(item).collect()
}

impl Item {
    pub(super) fn is_bad(&self) -> bool {
        matches!(self.status, Status::Fail | Status::Warn)
    }
}

fn settings(view: &View) -> Verdicts {
    let remedy = "correct it; until then the checks below rest on its default";
    let problems = view.problems.iter();
    let problems = problems.map(|problem| Outcome::fail(problem.as_str(), remedy));
    or_ok(problems.collect(), || {
        "every setting has a value that it may have".into()
    })
}

/// Where texts begin: after the status and the longest name of a check.
const INDENT: usize = 22;

/// So many objects of a check are shown, unless the output is wide.
const OBJECTS_AT_MOST: usize = 10;

/// For people. `is_wide`: every object, and what was checked. A fix that holds for several objects is below the last one.
pub(super) fn report(items: &[Item], is_wide: bool) -> String {
    let mut text = String::new();
    for of_check in items.chunk_by(|a, b| (a.check, a.status) == (b.check, b.status)) {
        let at_most = if is_wide { usize::MAX } else { OBJECTS_AT_MOST };
        let (shown, more) = of_check.split_at(of_check.len().min(at_most));
        let mut head = match shown {
            [first, ..] => format!("{:<8}{}", first.status.word(), first.check),
            [] => String::new(),
        };
        let mut add = |line: &str| {
            let head = format!("{:<INDENT$}", std::mem::take(&mut head));
            text += &paragraph(&head, INDENT, line);
        };
        for with_one_fix in shown.chunk_by(|a, b| a.remedy == b.remedy) {
            for item in with_one_fix {
                match &item.object {
                    Some(object) => add(&format!("{object}: {}", item.message)),
                    None => add(&item.message),
                }
            }
            if let Some(remedy) = with_one_fix.iter().find_map(|item| item.remedy.as_ref()) {
                add(&format!("Fix: {remedy}."));
            }
        }
        if !more.is_empty() {
            add(&format!(
                "and {} more: ccm doctor -o wide shows all",
                more.len()
            ));
        }
        if let (true, Some(item)) = (is_wide, shown.first()) {
            add(&format!("Checked: {}.", item.looked_at));
        }
    }
    text
}

fn counts(items: &[Item]) -> String {
    let count = |status| items.iter().filter(|item| item.status == status).count();
    format!(
        "{} failed, {} warnings, {} ok, {} skipped\n",
        count(Status::Fail),
        count(Status::Warn),
        count(Status::Ok),
        count(Status::Skipped)
    )
}
