//! Counts the calls to the Kubernetes API, by resource.

use crate::http::{Method, Stage};
use crate::metrics::{KUBERNETES_REQUESTS, UNANSWERED};

/// Called for every try.
pub(super) fn watch(method: Method, path: &str, stage: Stage) {
    match stage {
        Stage::Begun => {}
        Stage::Ended(Ok(code), _) => {
            let (method, code) = (method.lower_name(), code.to_string());
            KUBERNETES_REQUESTS.count(&[method, &resource(path), &code]);
        }
        Stage::Ended(Err(kind), _) => UNANSWERED.count(&["kubernetes", kind.word()]),
    }
}

/// `/api/v1/nodes/worker-1/status?…` → `nodes/status`. Never a name.
fn resource(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let mut segments = path.split('/').skip(1);
    let version = match segments.next() {
        Some("api") => segments.next(),
        Some("apis") => segments.nth(1),
        _ => None,
    };
    let mut rest: Vec<&str> = segments.collect();
    if rest.len() > 2 && rest[0] == "namespaces" {
        rest.drain(..2);
    }
    match (version, rest.as_slice()) {
        (Some(_), [resource] | [resource, _]) => (*resource).to_owned(),
        (Some(_), [resource, _, subresource]) => format!("{resource}/{subresource}"),
        _ => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_resource() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm";
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        for (path, expected) in [
            ("/api/v1/nodes?limit=500", "nodes"),
            ("/api/v1/nodes/worker-1", "nodes"),
            ("/api/v1/nodes/worker-1/status", "nodes/status"),
            ("/api/v1/services?limit=500", "services"),
            ("/api/v1/namespaces/default/services?x=y", "services"),
            (
                "/api/v1/namespaces/status/services/nodes/status",
                "services/status",
            ),
            ("/api/v1/namespaces/default/events", "events"),
            ("/api/v1/namespaces/default", "namespaces"),
            (lease, "leases"),
            (review, "selfsubjectaccessreviews"),
            ("/version", "other"),
            ("/api/v1", "other"),
            ("/api/v1/a/b/c/d/e/f", "other"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }
}
