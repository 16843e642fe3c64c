//! `ccm doctor` checks everything that the daemon needs, and reports what is wrong and how to fix it.
//!
//! `observe` makes all calls to the APIs. When one call fails, the calls that do not need its answer are still made.
//! The checks are pure functions of what was read. A new check needs a row of [`CHECKS`] and a function.
//!
//! | file | its job |
//! |---|---|
//! | `observe` | the table of reads: their order, and which earlier reads each of them needs |
//! | `reads` | the reads, and the rights in Kubernetes that the daemon needs |
//! | `view` | everything that was read |
//! | `outcome` | the outcome of a check, and why something was not read |
//! | `certificates`, `cloud`, `cluster`, `nodes`, `routes`, `services` | the checks, by what they are about |

mod certificates;
mod cloud;
mod cluster;
mod nodes;
mod observe;
mod outcome;
mod reads;
mod routes;
mod services;
mod view;

use super::output::{self, Document, Exit, paragraph};
use super::startup;
use crate::provider::order;
use crate::settings::Command;
pub(super) use certificates::waiting as waiting_certificates;
pub(super) use observe::Observer;
pub(super) use outcome::{CheckOutcome, Gap, Seen};
use outcome::{CheckResult, CheckStatus, SEE_ERROR, or_ok};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
pub(super) use view::DoctorView;

/// A row of the table of checks: the name of the check, what the check looks at, the text that tells the user what to
/// do when the check's data could not be read, and the function that makes the check and returns its results.
type Check = (Text, Text, Text, fn(&DoctorView) -> CheckResult);
type Text = &'static str;

const SEE_API_SERVER: &str = "check the API server's own health";

#[rustfmt::skip] // Each row has the name and what the check looks at, then the fix and the function. A short row is one line.
const CHECKS: &[Check] = &[
    ("settings", "the environment: each variable that ccm reads", "", settings),
    ("token", "HCLOUD_TOKEN, HCLOUD_TOKEN_FILE",
        "create a token in the Hetzner Console (Security → API tokens, Read & Write) and set HCLOUD_TOKEN to this \
         token, or HCLOUD_TOKEN_FILE to the path of a file with this token", cloud::token),
    ("api", "GET /servers of the Cloud API, every page", SEE_ERROR, cloud::api),
    ("permission", "an empty change of a load balancer that can't exist: the answer shows whether the token may write",
        "", cloud::permission),
    ("project", "provider IDs, names and addresses of nodes, compared with the servers of the token's project",
        "", nodes::project),
    ("rate-limit", "RateLimit headers of the Cloud API", "", cloud::rate_limit),
    ("clock", "the Date header of the Cloud API, compared with this machine's clock", "", cloud::clock),
    ("network", "HCLOUD_NETWORK; GET /networks; with Robot, whether the Network exposes its routes to its vSwitch",
        "", cloud::network),
    ("attached", "the list private-networks of the metadata service", "", cloud::attached),
    ("robot", "ROBOT_USER, ROBOT_PASSWORD; GET /server of the Robot web service, once", "", cloud::robot_login),
    ("cluster", "kubeconfig or service account, and whether the API server answers and accepts these credentials",
        "check --kubeconfig, KUBECONFIG and --context; kubectl version with the same kubeconfig must work on this machine",
        cluster::reached),
    ("version", "GET /version of the API server", "", cluster::version),
    ("rights", "a selfsubjectaccessreview for each verb that the daemon uses",
        "bind system:basic-user to group system:authenticated, as Kubernetes does by default, so that every user may \
         ask for its own rights",
        cluster::rights),
    ("lease", "the Lease of leader election", SEE_API_SERVER, cluster::lease),
    ("other-ccm", "images of Deployments and DaemonSets in the Lease's namespace; the Lease's holder",
        "", cluster::other_ccm),
    ("probes", "ports of the probes of ccm's own Deployment or DaemonSet", "", cluster::probes),
    ("daemon", "pods of ccm's own Deployment or DaemonSet", "", cluster::daemon),
    ("provider-ids", "spec.providerID of each node", "", nodes::provider_ids),
    ("kubelets", "provider ID and uninitialized taint of each node", "", nodes::kubelets),
    ("nodes", "each node and its server", SEE_API_SERVER, nodes::servers),
    ("zone-labels", "zone labels of initialised nodes, compared with those that new nodes would get", "", nodes::zone_labels),
    ("dedicated", "servers of the Robot web service, compared with the nodes", "", cloud::dedicated),
    ("ready", "condition Ready of each node, and the taints shutdown and out-of-service", "", nodes::ready),
    ("servers", "each node's server; if the cluster does not answer, all servers of the project", "", nodes::off),
    ("certificates", "CertificateSigningRequests of kubelets, as in ccm node inspect; without node-csr-approval in \
                      --controllers, how long these requests wait",
        SEE_ERROR, certificates::certificates),
    ("routes", "--cluster-cidr; the Network's routes, compared with the pod CIDRs and servers of nodes, as in ccm route list",
        SEE_ERROR, routes::routes),
    ("pod-network", "condition NetworkUnavailable of each node", "", routes::pod_network),
    ("services", "each Service of type LoadBalancer, its load balancer, what the next sync would do, and events of failed syncs",
        SEE_ERROR, services::services),
    ("targets", "whether the targets of each load balancer are healthy, and why not (servers, externalTrafficPolicy)",
        SEE_ERROR, services::targets),
    ("orphans", "load balancers with this cluster's label, and the existing Services", SEE_ERROR, services::orphans),
];

pub(super) fn doctor(words: Vec<OsString>) -> Result<Exit, Exit> {
    let started = startup::start(Command::Doctor, words)?;
    let all = outcomes(&Observer::new(&started, Command::Doctor).observe());
    let shown = || all.iter().collect::<Vec<_>>();
    let exit = output::print(
        started.settings.output.value,
        || Document::new("Doctor", shown()),
        |is_wide| report(&shown(), is_wide) + &counts(&all),
    );
    Ok(exit.fail_if(is_failed(&all)))
}

/// Runs all checks on the data that was read, and returns their outcomes, the worst first.
pub(super) fn outcomes(view: &DoctorView) -> Vec<CheckOutcome> {
    let mut all = Vec::new();
    for (check, _, if_unread, decide) in CHECKS {
        let outcomes =
            decide(view).unwrap_or_else(|gap| vec![CheckOutcome::unread(gap, if_unread)]);
        all.extend(outcomes.into_iter().map(|outcome| CheckOutcome { check, ..outcome }));
    }
    order::sort_by_key(&mut all, |outcome| outcome.status);
    all
}

/// Chooses the results of checks for a screen that has no space for all of them, and keeps their order. The worst
/// results are chosen first. When results are equally bad, the first result of each check is chosen before the second
/// result of any check. A check with many objects can therefore not push other checks from the screen.
pub(super) fn selected(outcomes: &[CheckOutcome], at_most: usize) -> Vec<&CheckOutcome> {
    let mut of_check: BTreeMap<(&str, CheckStatus), usize> = BTreeMap::new();
    let ranked = outcomes.iter().enumerate().map(|(place, one)| {
        let before = of_check.entry((one.check, one.status)).or_default();
        *before += 1;
        (one.status, *before, place)
    });
    let mut ranked: Vec<(CheckStatus, usize, usize)> = ranked.collect();
    order::sort_by(&mut ranked, Ord::cmp);
    let chosen = BTreeSet::from_iter(ranked.into_iter().take(at_most).map(|(.., place)| place));
    chosen.into_iter().map(|place| &outcomes[place]).collect()
}

pub(super) fn is_failed(outcomes: &[CheckOutcome]) -> bool {
    outcomes.iter().any(|outcome| outcome.status == CheckStatus::Fail)
}

fn settings(view: &DoctorView) -> CheckResult {
    let remedy = "correct this setting; until then the checks below use its default";
    let problems = view.problems.iter().map(|problem| CheckOutcome::fail(problem.as_str(), remedy));
    let of_forks = view.of_forks.iter().map(|notice| CheckOutcome::warn(&*notice.message, ""));
    or_ok(problems.chain(of_forks), "every setting has a valid value")
}

/// The column where messages begin. The status and the longest name of a check fit before it.
const INDENT: usize = 22;

/// The greatest number of objects that `ccm doctor` lists for one check without `-o wide`.
const OBJECTS_AT_MOST: usize = 10;

/// Returns the output of `ccm doctor` as text for a person. Neighbouring objects with the same advice are listed
/// together, and the advice follows once, below the last of them. With `is_wide` the text lists every object, and says
/// for each check what was looked at.
pub(super) fn report(outcomes: &[&CheckOutcome], is_wide: bool) -> String {
    let mut text = String::new();
    for of_check in outcomes.chunk_by(|a, b| (a.check, a.status) == (b.check, b.status)) {
        let at_most = if is_wide { usize::MAX } else { OBJECTS_AT_MOST };
        let (shown, more) = of_check.split_at(of_check.len().min(at_most));
        let (check, status) = (of_check[0].check, of_check[0].status.word());
        let mut head = format!("{status:<8}{check}");
        let mut add = |line: &str| {
            let head = format!("{:<INDENT$}", std::mem::take(&mut head));
            text += &paragraph(&head, INDENT, line);
        };
        for with_one_fix in shown.chunk_by(|a, b| a.remedy == b.remedy) {
            for one in with_one_fix {
                let object = one.object.as_ref().map(|object| format!("{object}: "));
                add(&(object.unwrap_or_default() + &one.message));
            }
            let remedy = &with_one_fix[0].remedy;
            if !remedy.is_empty() {
                add(&format!("Fix: {remedy}."));
            }
        }
        if !more.is_empty() {
            add(&format!("and {} more: ccm doctor -o wide shows all", more.len()));
        }
        let looked_at = CHECKS.iter().find(|(name, ..)| is_wide && *name == check);
        if let Some((_, looked_at, ..)) = looked_at {
            add(&format!("Checked: {looked_at}."));
        }
    }
    text
}

fn counts(outcomes: &[CheckOutcome]) -> String {
    let count = |status| outcomes.iter().filter(|outcome| outcome.status == status).count();
    format!(
        "{} failed, {} warnings, {} ok, {} skipped\n",
        count(CheckStatus::Fail),
        count(CheckStatus::Warn),
        count(CheckStatus::Ok),
        count(CheckStatus::Skipped)
    )
}
