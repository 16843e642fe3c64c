//! Rights of users, and the texts of denials.

use crate::built::rendered::read;
use crate::common::{self, Cluster};
use crate::kubectl::person::{Person, simulated};
use sandbox::Sandbox;
use sandbox::kubernetes::PolicyRule;

#[test]
fn denials_read_like_the_real_ones() {
    let sandbox = Sandbox::builder().services(1).heartbeats(false).start();
    let Some(ccm) = Person::of(&sandbox, "ccm") else {
        return;
    };
    let denied = |object: &str, verb: &str, resource: &str, group: &str, place: &str| {
        format!(
            "{object} is forbidden: User \"ccm\" cannot {verb} resource {resource:?} in API group {group:?} {place}"
        )
    };
    let default = "in the namespace \"default\"";
    for (line, why) in [
        ("get svc web-1", denied("services \"web-1\"", "get", "services", "", default)),
        ("delete svc web-1", denied("services \"web-1\"", "delete", "services", "", default)),
        ("get events", denied("events", "list", "events", "", default)),
        ("get namespaces", denied("namespaces", "list", "namespaces", "", "at the cluster scope")),
        (
            "delete lease x -n kube-system",
            denied(
                "leases.coordination.k8s.io \"x\"",
                "delete",
                "leases",
                "coordination.k8s.io",
                "in the namespace \"kube-system\"",
            ),
        ),
        ("get --raw /metrics", "forbidden: User \"ccm\" cannot get path \"/metrics\"".to_owned()),
    ] {
        let told = ccm.is_refused(line);
        assert_eq!(told, format!("Error from server (Forbidden): {why}\n"));
    }
    assert!(sandbox.service("web-1").is_some());
}

#[test]
fn kubectl_auth_can_i_tells_what_a_user_may_do() {
    let sandbox = simulated(0);
    common::under_its_role(&sandbox);
    for (user, question, may) in [
        ("admin", "* *", true),
        ("ccm", "delete nodes", true),
        ("ccm", "patch nodes --subresource=status", true),
        ("ccm", "update nodes --subresource=status", false),
        ("ccm", "list services -A", true),
        ("ccm", "get services", false),
        ("ccm", "update leases.coordination.k8s.io -n kube-system", true),
        ("ccm", "get /livez", true),
        ("ccm", "get /metrics", false),
    ] {
        let Some(person) = Person::of(&sandbox, user) else {
            return;
        };
        let words = ["auth", "can-i"].into_iter().chain(question.split(' '));
        let ran = person.run(&words.collect::<Vec<_>>());
        let told = if may { (0, "yes\n") } else { (1, "no\n") };
        assert_eq!((ran.code, ran.stdout.as_str()), told, "{user} {question}: {}", ran.stderr);
    }
}

/// The component `endpointslices` of the manifests gives a right that is neither in the base nor in the role of
/// hcloud-cloud-controller-manager.
#[test]
fn endpoint_slices_may_be_listed_with_the_component_and_not_without_it() {
    let rules = |file: &str| -> Vec<PolicyRule> {
        serde_json::from_value(read(file).remove(0)["rules"].clone()).unwrap()
    };
    let base = rules("base/role.yaml");
    let with_component = [base.clone(), rules("components/endpointslices/role.yaml")].concat();
    let of_the_other = sandbox::world::official_rules();
    let sandbox = simulated(0);
    for (user, rules, may) in [
        ("with-the-base", base, false),
        ("with-the-other-role", of_the_other, false),
        ("with-the-component", with_component, true),
    ] {
        sandbox.add_user(user, &[], rules).unwrap();
        let Some(person) = Person::of(&sandbox, user) else {
            return;
        };
        let ran = person.run(&["get", "endpointslices.discovery.k8s.io", "--all-namespaces"]);
        assert_eq!(ran.code == 0, may, "{user}: {}", ran.stderr);
        for line in ["get endpointslices a", "delete endpointslices a"] {
            let told = person.is_refused(line);
            assert!(told.contains("(Forbidden)"), "{user}: {line}: {told}");
        }
    }
}
