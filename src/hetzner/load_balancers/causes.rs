//! Finds out why the health check of a target fails, and what a user can do about it. The fields `detail` and
//! `http_status_code` of the API's answer show the cause.

use super::annotations::{
    HEALTH_CHECK, HEALTH_CHECK_HTTP_PATH, HTTP_STATUS_CODES, USES_PROXYPROTOCOL,
};
use crate::provider::{Cause, CauseKind, Service, TargetHealth, TrafficPolicy};
use crate::text::shell_command;

/// Returns why the health check of this target fails, and what a user can do about it.
pub(crate) fn cause(health: &TargetHealth, service: &Service) -> Cause {
    let is_local = service.traffic_policy == TrafficPolicy::Local;
    let detail = health.detail.as_deref().unwrap_or_default();
    let answers =
        format!("the health check gets HTTP status {}", health.http_status.unwrap_or_default());
    let mut kind = CauseKind::Other;
    let (message, remedy) = match (detail, health.http_status) {
        ("layer4_no_connection" | "layer4_timeout" | "layer7_timeout", None)
            if health.is_of_kube_proxy =>
        {
            (
                "port 10256 of kube-proxy does not answer, perhaps because of k3s, Cilium or a firewall",
                format!(
                    "let the load balancer reach port 10256 of the nodes, which it checks because annotation {} is \
                     \"kube-proxy\". k3s opens this port only on the loopback interface, so run k3s with \
                     --kube-proxy-arg=healthz-bind-address=0.0.0.0. With Cilium, set \
                     kubeProxyReplacementHealthzBindAddr=0.0.0.0:10256. If the load balancer uses public addresses, \
                     open the port in the firewall of the nodes",
                    HEALTH_CHECK.key()
                ),
            )
        }
        (_, Some(503)) if health.is_of_kube_proxy => (
            "kube-proxy answers 503, because the node is about to be deleted or kube-proxy is not healthy",
            "do nothing while nodes are being deleted. Otherwise read the logs of kube-proxy or its replacement with \
             kubectl logs"
                .to_owned(),
        ),
        ("layer4_no_connection" | "layer4_timeout", _) | (_, Some(503)) if is_local => {
            kind = CauseKind::NoPod;
            (
                "no ready pod of the Service on this node (externalTrafficPolicy: Local)",
                format!(
                    "let pods of the Service run on the nodes that are targets ({} shows the pods), or set \
                     externalTrafficPolicy: Cluster",
                    endpoints(service)
                ),
            )
        }
        ("layer4_timeout", _) => (
            "the node port does not answer (layer4_timeout)",
            format!(
                "let the load balancer reach the node ports through the Hetzner firewall (hcloud firewall list), the \
                 firewall of the node and network policies. {} shows each health check",
                shell_command("ccm lb inspect", &[&service.full_name()])
            ),
        ),
        ("layer4_no_connection", _) => (
            "the node port is closed (layer4_no_connection)",
            format!(
                "check that the Service has ready pods ({}) and that kube-proxy or the CNI runs on the node",
                endpoints(service)
            ),
        ),
        (_, Some(_)) => (answers.as_str(), check_pods(service)),
        ("layer7_timeout", None) => (
            "the node port accepts the connection, but does not answer in time (layer7_timeout)",
            check_pods(service),
        ),
        (_, None) => ("the health check fails", check_pods(service)),
    };
    Cause { kind, message: message.into(), remedy }
}

fn check_pods(service: &Service) -> String {
    format!(
        "check the pods ({}, kubectl logs), and what the health check expects (annotations {}, {}, {})",
        endpoints(service),
        HEALTH_CHECK_HTTP_PATH.key(),
        HTTP_STATUS_CODES.key(),
        USES_PROXYPROTOCOL.key()
    )
}

/// Returns a `kubectl` command that shows which pods of the Service are ready.
fn endpoints(service: &Service) -> String {
    let label = format!("kubernetes.io/service-name={}", service.name);
    let namespace = &service.namespace;
    shell_command("kubectl -n", &[namespace, &"get", &"endpointslices", &"-l", &label])
}
