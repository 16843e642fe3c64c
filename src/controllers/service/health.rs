//! Why the targets of a load balancer get no traffic. The cloud says how a health check failed; server and traffic policy
//! say why.

use super::plan::{ServicePlan, Want};
use crate::cache::Apis;
use crate::controllers::matching::server_of;
use crate::kube::Node;
use crate::provider::{BalancerHealth, Cause, Health, InstanceId, Urgency, clock};
use crate::text;
use jiff::SignedDuration;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Targets of a Service that is younger were not checked often enough to count.
const GRACE: SignedDuration = SignedDuration::from_mins(3);

/// Of targets with one cause.
const NAMES_SHOWN: usize = 3;

const UNHEALTHY: &str = "unhealthy";

const NO_POD: &str = "no pod on this node (externalTrafficPolicy: Local)";

const CHECK_PODS: &str = "check the pods (kubectl get endpointslices, kubectl logs), and what they are asked: annotations \
                          health-check-http-path, http-status-codes, uses-proxyprotocol";

/// Notes the cause with each health check of the Service's own ports that fails. Servers were mostly read for the
/// plans; where nothing is wrong no call is made, and where they can't be read no server counts as off.
pub(super) fn explain(apis: &Apis, nodes: &[Arc<Node>], plans: &mut [ServicePlan]) {
    let mut found = plans.iter().filter_map(|plan| plan.cloud.found.as_ref());
    if found.all(|balancer| balancer.health(None) == BalancerHealth::All) {
        return;
    }
    let servers = apis.instances(Duration::MAX, Urgency::Asked);
    let servers = servers.map(|view| view.value).unwrap_or_default();
    let off = servers.iter().filter(|server| server.is_off);
    let off: HashSet<InstanceId> = off.map(|server| server.id).collect();
    let is_off = |node: &&Arc<Node>| {
        let server = server_of(node, &*apis.provider);
        server.is_some_and(|id| off.contains(&id))
    };
    let off = nodes.iter().filter(is_off);
    let off: HashSet<&str> = off.map(|node| node.name()).collect();
    for plan in plans {
        let is_local = plan.service.spec.external_traffic_policy == "Local";
        let Some(found) = &mut plan.cloud.found else {
            continue;
        };
        let mut targets = std::mem::take(&mut found.targets);
        for target in &mut targets {
            let is_off = off.contains(target.name.as_str());
            for health in &mut target.health {
                let is_own = found.is_port_of(health.port, Some(&plan.object.uid));
                if is_own && health.status == UNHEALTHY {
                    health.cause = Some(cause(health, is_local, is_off));
                }
            }
        }
        found.targets = targets;
    }
}

/// Of a health check that fails, by the words of Hetzner's API: `detail` and `http_status_code`.
fn cause(health: &Health, is_local: bool, is_off: bool) -> Cause {
    let detail = health.detail.as_deref().unwrap_or_default();
    let answers = format!("answers {}", health.http_status.unwrap_or_default());
    let (message, remedy) = match (detail, health.http_status) {
        _ if is_off => (
            "its server is off",
            "switch the server on (hcloud server poweron ID); when it is not needed, delete it, and the daemon deletes \
             its node",
        ),
        ("layer4_no_connection" | "layer4_timeout" | "layer7_timeout", None)
            if health.is_of_kube_proxy =>
        {
            (
                "port 10256 of kube-proxy does not answer: k3s, Cilium, firewall?",
                "health-check: kube-proxy asks that port of the node. k3s binds it to the loopback: run it with \
                 --kube-proxy-arg=healthz-bind-address=0.0.0.0; Cilium needs \
                 kubeProxyReplacementHealthzBindAddr=0.0.0.0:10256; for public targets the firewall must let the load \
                 balancer reach the port",
            )
        }
        (_, Some(503)) if health.is_of_kube_proxy => (
            "kube-proxy answers 503: the node is about to be deleted, or kube-proxy is not healthy",
            "nothing, while nodes are being deleted; else kubectl logs of kube-proxy, or of what replaces it",
        ),
        ("layer4_no_connection" | "layer4_timeout", _) | (_, Some(503)) if is_local => (
            NO_POD,
            "let pods of the Service run on the nodes that are targets, or set externalTrafficPolicy: Cluster",
        ),
        ("layer4_timeout", _) => (
            "no answer: firewall? (layer4_timeout)",
            "let the load balancer reach the node ports: Hetzner firewall (hcloud firewall list), firewall of the node, \
             network policies; ccm lb inspect NAMESPACE/NAME shows each check",
        ),
        ("layer4_no_connection", _) => (
            "the node port is closed (layer4_no_connection)",
            "check that the Service has ready pods (kubectl get endpointslices) and that kube-proxy or the CNI runs on \
             the node",
        ),
        (_, Some(_)) => (answers.as_str(), CHECK_PODS),
        ("layer7_timeout", None) => (
            "connects, and does not answer in time (layer7_timeout)",
            CHECK_PODS,
        ),
        (_, None) => ("its health check fails", CHECK_PODS),
    };
    let message = message.into();
    Cause { message, remedy }
}

/// What is wrong with the targets of a Service: is it so of all, what, and the fix of the most frequent cause. None: each
/// target is healthy, or was added just now; or the others have no pod, and should not be.
pub fn trouble(plan: &ServicePlan) -> Option<(bool, String, &'static str)> {
    let found = plan.cloud.found.as_ref()?;
    let created = plan.service.metadata.creation_timestamp;
    let is_young = created.is_some_and(|at| clock::timestamp().duration_since(at) < GRACE);
    if plan.want != Want::Ensure || is_young {
        return None;
    }
    let mut by_cause: BTreeMap<&Cause, Vec<&str>> = BTreeMap::new();
    for target in &found.targets {
        let mut causes = target.health.iter().filter_map(|one| one.cause.as_ref());
        if let Some(cause) = causes.next() {
            by_cause.entry(cause).or_default().push(&target.name);
        }
    }
    let uid = Some(plan.object.uid.as_str());
    let is_all = found.health(uid) == BalancerHealth::None;
    let is_by_policy = !is_all && by_cause.keys().all(|cause| cause.message == NO_POD);
    let (most, _) = by_cause.iter().max_by_key(|(_, names)| names.len())?;
    let causes = by_cause
        .iter()
        .map(|(cause, names)| format!("{}: {}", text::first_of(names, NAMES_SHOWN), cause.message));
    let causes = causes.collect::<Vec<_>>().join("; ");
    let (healthy, total) = (found.healthy_targets(uid), found.total);
    let message = format!("{healthy} of {total} targets healthy; {causes}");
    (!is_by_policy).then_some((is_all, message, most.remedy))
}
