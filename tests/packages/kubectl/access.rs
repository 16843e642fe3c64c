//! Rights of users, and the texts of denials.

use crate::common::{self, Cluster};
use crate::kubectl::person::{Person, simulated};
use sandbox::Sandbox;

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
