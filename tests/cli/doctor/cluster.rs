//! Problems on the cluster's side: how it is reached, rights, the Lease, and other controllers.

use crate::common::{Cluster, answer};
use crate::doctor::world::{KUBE_SYSTEM, World, each, rules};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use sandbox::kubernetes::PolicyRule;
use serde_json::json;

const HCCM: &str = "docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.30.0";

#[test]
fn an_unreachable_cluster_is_reported_with_the_fix() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("no kubeconfig", |world| world.set("KUBECONFIG", "/nonexistent/config"), "cluster: fail",
            &["/nonexistent/config", "does not exist"], "--context"),
        ("a broken one", |world| {
            let path = world.sandbox.folder().join("broken");
            std::fs::write(&path, "clusters: 7").unwrap();
            world.set("KUBECONFIG", &path.display().to_string());
        }, "cluster: fail", &["broken"], "kubectl version"),
        ("nobody there", |world| world.sandbox.stop(Half::Kubernetes), "cluster: fail",
            &["/version", "connection refused", "context"], "kubectl version"),
        ("not known there", |world| {
            let token = world.sandbox.account("person").unwrap().token;
            world.sandbox.cluster().remove_token(&token);
        }, "cluster: fail", &["401 Unauthorized"], "KUBECONFIG"),
        ("another program there", |world| {
            let effect = answer(200, &json!({ "status": "ok" }));
            world.fault(Rule::new(effect).path("/version"));
        }, "cluster: fail", &["/version: the answer does not have the form of this API: missing field `gitVersion`"],
            "kubectl version"),
        ("too old", |world| {
            let version = json!({ "major": "1", "minor": "29+", "gitVersion": "v1.29.4" });
            let effect = answer(200, &version);
            world.fault(Rule::new(effect).path("/version"));
        }, "version: fail", &["v1.29.4", "1.30"], "upgrade"),
    ]);
}

/// Each verb that is taken away is named.
#[test]
fn each_missing_right_is_named() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("no patch of Services", |world| {
            let mut role = rules("role.yaml");
            role.retain(|rule| rule.resources != ["services/status"]);
            world.role(role);
        }, "rights: fail", &["may not patch services/status"], "manifests/base/role.yaml"),
        ("no leases", |world| world.user("outside", rules("role.yaml"), Vec::new()), "rights: fail",
            &["create leases, get leases, update leases"], "manifests/base/lease.yaml"),
        ("another Lease than the role names", |world| {
            let mut lease = rules("lease.yaml");
            lease[1].resource_names = vec!["another".into()];
            world.user("else", rules("role.yaml"), lease);
        }, "rights: fail", &["may not get leases, update leases"], "manifests/base/lease.yaml"),
        ("no list of nodes", |world| {
            let mut role = rules("role.yaml");
            role[0].verbs.retain(|verb| verb != "list");
            world.role(role);
        }, "rights: fail", &["may not list nodes"], "run doctor as that user"),
        ("nobody may ask", |world| {
            let refused = Effect::kubernetes_status(403, "Forbidden", "not for you");
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            world.fault(Rule::new(refused).path(path));
        }, "rights: fail", &["not for you"], "system:basic-user"),
        ("hcloud-cloud-controller-manager's role",
            |world| { world.user("hccm", sandbox::world::official_rules(), Vec::new()); }, "rights: warn",
            &["may not get events"], "leave them unchanged"),
    ]);
}

#[test]
fn a_lease_without_a_live_leader_is_reported_with_the_fix() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("no Lease", |world| { world.delete_lease(); }, "lease: warn", &["kube-system/cloud-controller-manager: there is no leader"],
            "start the daemon, or find out why it does not run: kubectl -n kube-system get pods"),
        ("handed back", |world| world.leads("", 5), "lease: warn", &["no leader"], "start the daemon"),
        ("not renewed", |world| world.leads("worker-1_4711", 4000), "lease: warn",
            &["worker-1_4711 held the Lease", "has not renewed it for 400"], "start the daemon"),
        ("held by another", |world| {
            world
                .sandbox
                .cluster()
                .delete("deployments", KUBE_SYSTEM, "ccm-from-scratch");
            world.leads("hcloud-cloud-controller-manager-7c9f6_1f", -600);
        }, "other-ccm: warn", &["hcloud-cloud-controller-manager-7c9f6_1f holds the Lease"], "stop either this one or ccm"),
    ]);
}

#[test]
fn another_controller_and_failing_probes_are_reported() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("hcloud-cloud-controller-manager beside",
            |world| { world.deployment("hcloud-cloud-controller-manager", json!({ "image": HCCM })); }, "other-ccm: fail",
            &["deployment/hcloud-cloud-controller-manager", HCCM, "in namespace kube-system"], "--replicas=0"),
        ("its Deployment with our image, and its probe", |world| {
            world.deployment("hcloud-cloud-controller-manager", json!({
            "image": "registry.example.com/ccm-from-scratch:0.1.0",
            "livenessProbe": { "httpGet": { "path": "/healthz", "port": 10258, "scheme": "HTTPS" } },
        }));
        }, "probes: fail", &["deployment/hcloud-cloud-controller-manager", "10258"], "8233"),
        ("a probe by the name of the port", |world| {
            world.deployment(
                "mine",
                json!({
                    "image": "ccm-from-scratch:0.1.0",
                    "ports": [{ "name": "secure", "containerPort": 10258 }],
                    "readinessProbe": { "tcpSocket": { "port": "secure" } },
                }),
            );
        }, "probes: fail",
            &["deployment/mine: the probes use port 10258, on which ccm does not listen, so the kubelet restarts the pods again and again"],
            "/readyz"),
    ]);
}

/// A controller that is scaled to zero does nothing, and another program's probes are not checked.
#[test]
fn a_controller_that_is_scaled_to_zero_and_foreign_probes_are_no_fault() {
    let world = World::healthy();
    world.deployment("hcloud-cloud-controller-manager", json!({ "image": HCCM }));
    world.sandbox.cluster().edit(
        "deployments",
        KUBE_SYSTEM,
        "hcloud-cloud-controller-manager",
        |deployment| deployment["spec"]["replicas"] = json!(0),
    );
    world.deployment(
        "other",
        json!({
            "image": "other:1",
            "livenessProbe": { "httpGet": { "path": "/", "port": 10258 } },
        }),
    );
    world
        .doctor(&["-o", "json"])
        .with_code(0)
        .prints("\"there is no other cloud-controller-manager in namespace kube-system\"");
}

/// Every question about the role names its subject, so that a verb that is taken away is noticed.
#[test]
fn each_verb_of_the_manifests_is_missed() {
    let mut world = World::healthy();
    for file in ["role.yaml", "lease.yaml"] {
        for (at, rule) in rules(file).iter().enumerate() {
            for verb in &rule.verbs {
                let without = |other: &str| -> Vec<PolicyRule> {
                    let mut all = rules(other);
                    if other == file {
                        all[at].verbs.retain(|kept| kept != verb);
                    }
                    all
                };
                world.user("each", without("role.yaml"), without("lease.yaml"));
                let check = world.check("rights");
                let missing = format!("may not {verb} {}", rule.resources[0]);
                assert!(check.message.contains(&missing), "{missing}: {check:?}");
                // A namespace's grants add up.
                world = World::healthy();
            }
        }
    }
}
