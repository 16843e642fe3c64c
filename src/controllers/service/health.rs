//! Why the targets of a load balancer get no traffic: pure. The cloud says how a health check failed; server and traffic
//! policy say why.

use super::plan::{ServicePlan, Want};
use crate::provider::{BalancerHealth, Health};
use crate::text;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, HashSet};

/// A Service that is younger has targets that were not checked often enough to count.
const GRACE: SignedDuration = SignedDuration::from_mins(3);

const UNHEALTHY: &str = "unhealthy";

/// What is wrong with the targets of a Service.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Some are healthy, and the others have no pod: with `externalTrafficPolicy: Local` it should be so.
    ByPolicy,
    /// `is_all`: not one target is healthy.
    Unhealthy {
        is_all: bool,
        message: String,
        /// Of the most frequent cause.
        remedy: &'static str,
    },
}

/// Why a target gets no traffic, and the fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    ServerOff,
    NoPod,
    Firewall,
    NoListener,
    TimedOut,
    HttpStatus(u16),
    Content,
    Unknown,
}

/// Notes the cause with each health check that fails. `off`: names of the nodes whose server is off.
pub fn explain(plan: &mut ServicePlan, off: &HashSet<&str>) {
    let is_local = is_local(plan);
    for target in plan
        .cloud
        .found
        .iter_mut()
        .flat_map(|found| &mut found.targets)
    {
        let is_off = off.contains(target.name.as_str());
        let checks = target.health.iter_mut();
        for health in checks.filter(|health| health.status == UNHEALTHY) {
            health.cause = Some(Cause::of(health, is_local, is_off).text());
        }
    }
}

fn is_local(plan: &ServicePlan) -> bool {
    plan.service.spec.external_traffic_policy == "Local"
}

/// `off`: names of the nodes whose server is off. None: each target is healthy, or was added just now.
pub fn trouble(plan: &ServicePlan, off: &HashSet<&str>) -> Option<Trouble> {
    let found = plan
        .cloud
        .found
        .as_ref()
        .filter(|_| plan.want == Want::Ensure)?;
    let health = found.health();
    let created = plan.service.metadata.creation_timestamp;
    let is_young = created.is_some_and(|at| Timestamp::now().duration_since(at) < GRACE);
    if health == BalancerHealth::All || found.targets.is_empty() || is_young {
        return None;
    }
    let mut by_cause: BTreeMap<Cause, Vec<String>> = BTreeMap::new();
    for target in &found.targets {
        let mut checks = target.health.iter();
        if let Some(failed) = checks.find(|health| health.status == UNHEALTHY) {
            let cause = Cause::of(failed, is_local(plan), off.contains(target.name.as_str()));
            by_cause.entry(cause).or_default().push(target.name.clone());
        }
    }
    let is_all = health == BalancerHealth::None;
    if !is_all && by_cause.keys().all(|cause| *cause == Cause::NoPod) {
        return Some(Trouble::ByPolicy);
    }
    let most = by_cause.iter().max_by_key(|(_, names)| names.len());
    let remedy = most.map_or("", |(cause, _)| cause.remedy());
    let causes = by_cause.iter().map(|(cause, names)| {
        let names = text::first_of(names, NAMES_SHOWN);
        format!("{names}: {}", cause.text())
    });
    let causes: Vec<String> = causes.collect();
    let healthy = found.targets.iter().filter(|one| one.is_healthy()).count();
    let total = found.targets.len();
    Some(Trouble::Unhealthy {
        is_all,
        message: format!(
            "{healthy} of {total} targets healthy; {}",
            causes.join("; ")
        ),
        remedy,
    })
}

/// Of targets with one cause.
const NAMES_SHOWN: usize = 3;

impl Cause {
    /// By the words of Hetzner's API, `detail` and `http_status_code`.
    fn of(health: &Health, is_local: bool, is_off: bool) -> Cause {
        let detail = health.detail.as_deref().unwrap_or_default();
        match (detail, health.http_status) {
            _ if is_off => Cause::ServerOff,
            ("layer4_no_connection" | "layer4_timeout", _) | (_, Some(503)) if is_local => {
                Cause::NoPod
            }
            (_, Some(status)) => Cause::HttpStatus(status),
            ("layer4_timeout", None) => Cause::Firewall,
            ("layer4_no_connection", None) => Cause::NoListener,
            ("layer7_timeout", None) => Cause::TimedOut,
            ("unexpected_http_content" | "unexpected_http_status", None) => Cause::Content,
            _ => Cause::Unknown,
        }
    }

    fn text(self) -> String {
        match self {
            Cause::ServerOff => "its server is off",
            Cause::NoPod => "no pod on this node (externalTrafficPolicy: Local)",
            Cause::Firewall => "no answer: firewall? (layer4_timeout)",
            Cause::NoListener => "the node port is closed (layer4_no_connection)",
            Cause::TimedOut => "connects, and does not answer in time (layer7_timeout)",
            Cause::HttpStatus(status) => return format!("answers {status}"),
            Cause::Content => "answers something else than the check expects",
            Cause::Unknown => "its health check fails",
        }
        .to_owned()
    }

    fn remedy(self) -> &'static str {
        match self {
            Cause::ServerOff => {
                "switch the servers on (hcloud server poweron NAME); delete what is not needed, and the daemon deletes \
                 its node"
            }
            Cause::NoPod => {
                "let pods of the Service run on the nodes that are targets, or set externalTrafficPolicy: Cluster"
            }
            Cause::Firewall => {
                "let the load balancer reach the node ports: Hetzner firewall (hcloud firewall list), firewall of the \
                 node, network policies; ccm lb inspect NAMESPACE/NAME shows each check"
            }
            Cause::NoListener => {
                "check that the Service has ready pods (kubectl get endpointslices) and that kube-proxy or the CNI runs \
                 on the node"
            }
            Cause::TimedOut | Cause::HttpStatus(_) | Cause::Content | Cause::Unknown => {
                "the pods answer so: check them (kubectl get endpointslices, kubectl logs), and what is asked for: \
                 annotations health-check-http-path, health-check-http-status-codes, uses-proxyprotocol"
            }
        }
    }
}
