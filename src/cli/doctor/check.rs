//! What a check and its outcome are, and the table of them.

use super::view::{Gap, View};
use super::{cloud, cluster, nodes, routes, services};
use crate::text;
use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// The daemon can't do its work, or not all of it.
    Fail,
    /// The daemon works, and a person should read it.
    Warn,
    /// It could not be checked, and that alone is no fault.
    Skipped,
    Ok,
}

/// Result, message and fix of a check.
pub(super) struct Outcome {
    pub(super) status: Status,
    /// What was found, and what it means.
    pub(super) message: String,
    /// The fix; empty where nothing is wrong.
    pub(super) remedy: String,
}

/// One check, for the report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Check {
    #[serde(rename = "check")]
    pub(super) name: &'static str,
    pub(super) status: Status,
    pub(super) message: String,
    pub(super) looked_at: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
}

/// Name, what it checks, and the function.
type Row = (&'static str, &'static str, fn(&View) -> Outcome);

#[rustfmt::skip] // A row is two lines.
const CHECKS: &[Row] = &[
    ("settings", "the environment: each variable that ccm reads",
        settings),
    ("token", "HCLOUD_TOKEN, HCLOUD_TOKEN_FILE",
        cloud::token),
    ("api", "GET /servers of the Cloud API, every page",
        cloud::api),
    ("permission", "an empty change of a load balancer that can't exist: the answer shows whether the token may write",
        cloud::permission),
    ("project", "provider IDs, names and addresses of nodes beside the servers of the token's project",
        nodes::project),
    ("rate-limit", "RateLimit headers of the Cloud API",
        cloud::rate_limit),
    ("clock", "the Date header of the Cloud API beside this machine's clock",
        cloud::clock),
    ("network", "HCLOUD_NETWORK; GET /networks",
        cloud::network),
    ("attached", "private-networks of the metadata service",
        cloud::attached),
    ("cluster", "kubeconfig or service account; GET /version; who the API server takes us for",
        cluster::reached),
    ("version", "GET /version of the API server",
        cluster::version),
    ("rights", "a selfsubjectaccessreview for each verb that the daemon uses",
        cluster::rights),
    ("lease", "the Lease of leader election",
        cluster::lease),
    ("other-ccm", "images of Deployments and DaemonSets beside the Lease; who holds it",
        cluster::other_ccm),
    ("probes", "ports of the probes of ccm's own Deployment or DaemonSet",
        cluster::probes),
    ("provider-ids", "spec.providerID of each node",
        nodes::provider_ids),
    ("kubelets", "provider ID and uninitialized taint of each node",
        nodes::kubelets),
    ("nodes", "each node and its server",
        nodes::servers),
    ("routes", "--cluster-cidr; the Network's routes beside the pod CIDRs and servers of nodes, as in ccm route list",
        routes::routes),
    ("pod-network", "condition NetworkUnavailable of each node",
        routes::pod_network),
    ("services", "each Service of type LoadBalancer, its load balancer, what the next sync would do, and events of what failed",
        services::services),
    ("orphans", "load balancers with this cluster's label, and the Services that there are",
        services::orphans),
];

/// All of them, in the order of the table.
pub(super) fn all(view: &View) -> Vec<Check> {
    CHECKS
        .iter()
        .map(|(name, looked_at, check)| {
            let outcome = check(view);
            Check {
                name,
                status: outcome.status,
                message: outcome.message,
                looked_at,
                remedy: outcome.remedy,
            }
        })
        .collect()
}

/// Problems first.
pub(super) fn in_order(checks: &[Check]) -> Vec<&Check> {
    let order = [Status::Fail, Status::Warn, Status::Skipped, Status::Ok];
    let of = |status| checks.iter().filter(move |check| check.status == status);
    order.into_iter().flat_map(of).collect()
}

impl Outcome {
    pub(super) fn ok(message: impl Into<String>) -> Outcome {
        Outcome::new(Status::Ok, message.into(), String::new())
    }

    pub(super) fn warn(message: impl Into<String>, remedy: impl Into<String>) -> Outcome {
        Outcome::new(Status::Warn, message.into(), remedy.into())
    }

    pub(super) fn fail(message: impl Into<String>, remedy: impl Into<String>) -> Outcome {
        Outcome::new(Status::Fail, message.into(), remedy.into())
    }

    pub(super) fn skipped(message: impl Into<String>) -> Outcome {
        Outcome::new(Status::Skipped, message.into(), String::new())
    }

    /// What could not be read.
    pub(super) fn of_gap(gap: &Gap, remedy: &'static str) -> Outcome {
        match gap {
            Gap::Needs(check) => Outcome::skipped(format!("not checked: see {check}")),
            Gap::NotHere(why) => Outcome::skipped(why.as_str()),
            Gap::Failed(why) => Outcome::fail(why.as_str(), remedy),
        }
    }

    /// Several at once: as bad as the worst, which comes first. None: there is none.
    pub(super) fn of_all(mut all: Vec<Outcome>) -> Option<Outcome> {
        all.sort_by_key(|one| one.status != Status::Fail);
        let status = all.first()?.status;
        let mut remedies: Vec<&str> = all.iter().map(|one| one.remedy.as_str()).collect();
        remedies.dedup();
        let messages: Vec<&str> = all.iter().map(|one| one.message.as_str()).collect();
        Some(Outcome::new(
            status,
            messages.join("; "),
            remedies.join("; "),
        ))
    }

    fn new(status: Status, message: String, remedy: String) -> Outcome {
        Outcome {
            status,
            message,
            remedy,
        }
    }
}

fn settings(view: &View) -> Outcome {
    match view.problems.as_slice() {
        [] => Outcome::ok("every setting has a value that it may have"),
        problems => Outcome::fail(
            problems.join("; "),
            "correct them; until then the checks below rest on their defaults",
        ),
    }
}

/// `1 node`, `2 nodes`.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// `a, b, c and 2 more`.
pub(super) fn some(names: &[String]) -> String {
    const SHOWN: usize = 3;
    text::first_of(names, SHOWN)
}
