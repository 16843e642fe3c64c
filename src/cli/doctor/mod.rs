//! `ccm doctor`: checks everything that the daemon needs; reports what is wrong and the fix.
//!
//! `observe` makes every call, and each may fail by itself; the checks are pure functions of what it read. A new check
//! is
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
use observe::View;
use outcome::{Outcome, Status, Verdict};
use serde::Serialize;
use std::ffi::OsString;

/// One check: its name, what it looks at, the fix where that could not be read, and what decides.
type Check = (Text, Text, Text, fn(&View) -> Verdict);
type Text = &'static str;

const SEE_ERROR: &str = "see what the error names";
const SEE_API_SERVER: &str = "check the API server's own health";

#[rustfmt::skip] // What it is about, then what decides.
const CHECKS: &[Check] = &[
    ("settings", "the environment: each variable that ccm reads",
        "", settings),
    ("token", "HCLOUD_TOKEN, HCLOUD_TOKEN_FILE",
        "make one in the Hetzner Console (Security → API tokens, Read & Write) and set HCLOUD_TOKEN, or \
         HCLOUD_TOKEN_FILE to its file", cloud::token),
    ("api", "GET /servers of the Cloud API, every page",
        "a refused token: copy it anew or make another one; no answer: check HCLOUD_ENDPOINT, proxies, firewall and \
         DNS from where ccm runs", cloud::api),
    ("permission", "an empty change of a load balancer that can't exist: the answer shows whether the token may write",
        "", cloud::permission),
    ("project", "provider IDs, names and addresses of nodes beside the servers of the token's project",
        "", nodes::project),
    ("rate-limit", "RateLimit headers of the Cloud API",
        "", cloud::rate_limit),
    ("clock", "the Date header of the Cloud API beside this machine's clock",
        "", cloud::clock),
    ("network", "HCLOUD_NETWORK; GET /networks",
        "", cloud::network),
    ("attached", "private-networks of the metadata service",
        "", cloud::attached),
    ("cluster", "kubeconfig or service account; GET /version; who the API server takes us for",
        "check --kubeconfig, KUBECONFIG and --context; kubectl version with the same kubeconfig must work from here",
        cluster::reached),
    ("version", "GET /version of the API server",
        "", cluster::version),
    ("rights", "a selfsubjectaccessreview for each verb that the daemon uses",
        "bind system:basic-user to system:authenticated, as it is by default: whoever is known may ask what they may do",
        cluster::rights),
    ("lease", "the Lease of leader election",
        SEE_API_SERVER, cluster::lease),
    ("other-ccm", "images of Deployments and DaemonSets beside the Lease; who holds it",
        "", cluster::other_ccm),
    ("probes", "ports of the probes of ccm's own Deployment or DaemonSet",
        "", cluster::probes),
    ("provider-ids", "spec.providerID of each node",
        "", nodes::provider_ids),
    ("kubelets", "provider ID and uninitialized taint of each node",
        "", nodes::kubelets),
    ("nodes", "each node and its server",
        SEE_API_SERVER, nodes::servers),
    ("routes", "--cluster-cidr; the Network's routes beside the pod CIDRs and servers of nodes, as in ccm route list",
        SEE_ERROR, routes::routes),
    ("pod-network", "condition NetworkUnavailable of each node",
        "", routes::pod_network),
    ("services", "each Service of type LoadBalancer, its load balancer, what the next sync would do, and events of what failed",
        SEE_ERROR, services::services),
    ("orphans", "load balancers with this cluster's label, and the Services that there are",
        SEE_ERROR, services::orphans),
];

/// A check and what came of it, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    check: &'static str,
    status: Status,
    message: String,
    looked_at: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
}

pub(super) fn doctor(words: Vec<OsString>) -> Result<Exit, Exit> {
    let started = startup::start(Command::Doctor, words)?;
    let view = observe::observe(&started);
    let mut items: Vec<Item> = CHECKS.iter().map(|check| item(check, &view)).collect();
    items.sort_by_key(|item| item.status);
    let is_failed = items.iter().any(|item| item.status == Status::Fail);
    let exit = output::print(
        started.settings.output.value,
        || Document::new("Doctor", items.iter().collect(), None),
        |is_wide| report(&items, is_wide),
    );
    Ok(exit.fail_if(is_failed))
}

fn item((check, looked_at, if_unread, verdict): &Check, view: &View) -> Item {
    let outcome = Outcome::of(verdict(view), if_unread);
    Item {
        check,
        status: outcome.status,
        message: outcome.message,
        looked_at,
        remedy: outcome.remedy,
    }
}

fn settings(view: &View) -> Verdict {
    Ok(match view.problems.as_slice() {
        [] => Outcome::ok("every setting has a value that it may have"),
        problems => Outcome::fail(
            problems.join("; "),
            "correct them; until then the checks below rest on their defaults",
        ),
    })
}

/// Where texts begin: after the status and the longest name of a check.
const INDENT: usize = 22;

/// For people, in 80 columns. `is_wide`: what was checked also where all is well.
fn report(items: &[Item], is_wide: bool) -> String {
    let mut text = String::new();
    for item in items {
        let (word, is_bad) = match item.status {
            Status::Fail => ("FAIL", true),
            Status::Warn => ("warn", true),
            Status::Skipped => ("skipped", false),
            Status::Ok => ("ok", false),
        };
        let mut below = vec![item.message.clone()];
        if is_wide || is_bad {
            below.push(format!("Checked: {}.", item.looked_at));
        }
        if !item.remedy.is_empty() {
            below.push(format!("Fix: {}.", item.remedy));
        }
        let mut head = format!("{word:<8}{}", item.check);
        for one in below {
            let first = format!("{:<INDENT$}", std::mem::take(&mut head));
            text += &paragraph(&first, INDENT, &one);
        }
    }
    let count = |status| items.iter().filter(|item| item.status == status).count();
    text + &format!(
        "{} failed, {} warnings, {} ok, {} skipped\n",
        count(Status::Fail),
        count(Status::Warn),
        count(Status::Ok),
        count(Status::Skipped)
    )
}
