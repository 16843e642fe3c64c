//! Sandboxes that store their objects in a part of a real cluster. The part is called a corner. These tests use another
//! sandbox in the place of a real cluster.

use std::sync::Arc;

use sandbox::calls::Call;
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use sandbox::kubernetes::Cluster;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

fn theirs() -> Sandbox {
    let builder = Sandbox::builder().only(Half::Kubernetes);
    builder.nodes(1).services(1).heartbeats(false).start()
}

fn corner(theirs: &Sandbox, nodes: usize) -> Sandbox {
    let builder = Sandbox::builder().real_cluster(theirs.folder().join("kubeconfig"));
    builder.nodes(nodes).heartbeats(false).start()
}

fn names(cluster: &Arc<Cluster>, resource: &str) -> Vec<String> {
    let objects = cluster.list(resource, None);
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    objects.iter().map(name).collect()
}

#[test]
fn corners_see_themselves_and_leave_nothing_behind() {
    let theirs = theirs();
    let before = theirs.cluster().list("nodes", None);
    let (one, other) = (corner(&theirs, 2), corner(&theirs, 1));
    assert_eq!(names(one.cluster(), "nodes"), ["worker-1", "worker-2"]);
    assert_eq!(names(other.cluster(), "nodes"), ["worker-1"]);
    assert_eq!(theirs.cluster().list("nodes", None).len(), 4);
    let lease = json!({"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 1}});
    one.cluster().create("leases", Some("kube-system"), lease);
    let held = json!({
        "metadata": {"name": "held", "finalizers": ["example.com/x"]}, "spec": {"ports": [{"port": 80}]},
    });
    one.cluster().create("services", Some("default"), held);
    assert_eq!(names(other.cluster(), "leases"), Vec::<String>::new());
    drop(one);
    drop(other);
    assert_eq!(theirs.cluster().list("nodes", None), before);
    assert_eq!(names(theirs.cluster(), "leases"), Vec::<String>::new());
    assert_eq!(names(theirs.cluster(), "services"), ["kubernetes", "web-1"]);
}

#[test]
fn objects_are_changed_under_the_real_server_s_own_rules() {
    let theirs = theirs();
    let corner = corner(&theirs, 1);
    let cluster = corner.cluster();
    let change = |node: &mut Value| {
        node["metadata"]["labels"]["a"] = json!("b");
        node["spec"]["taints"] = json!([]);
        node["status"]["addresses"] = json!([{"type": "Hostname", "address": "h"}]);
    };
    assert!(cluster.edit("nodes", None, "worker-1", change));
    assert!(!cluster.edit("nodes", None, "worker-9", change));
    let node = cluster.get("nodes", None, "worker-1").unwrap();
    assert_eq!(node["metadata"]["name"], "worker-1");
    assert_eq!(node["metadata"]["labels"]["a"], "b");
    assert_eq!(node["spec"]["taints"], Value::Null);
    assert_eq!(node["status"]["addresses"][0]["address"], "h");
    corner.kubelets().expire();
    assert!(cluster.delete("nodes", None, "worker-1"));
    assert!(!cluster.delete("nodes", None, "worker-1"));
    assert_eq!(cluster.get("nodes", None, "worker-1"), None);
}

/// The method `edit` reads a node, calls a closure that changes it, and writes it. When another client changes the node
/// between the read and the write, `edit` must do all this again.
#[test]
fn a_change_is_made_again_when_somebody_was_faster() {
    let theirs = theirs();
    let corner = corner(&theirs, 1);
    let mut tries = 0;
    let cluster = corner.cluster();
    let there = cluster.edit("nodes", None, "worker-1", |node| {
        tries += 1;
        if tries == 1 {
            let theirs_of_it = |node: &Value| {
                let name = node["metadata"]["name"].as_str().unwrap();
                (name != "worker-1").then(|| name.to_owned())
            };
            let all = theirs.cluster().list("nodes", None);
            let name = all.iter().find_map(theirs_of_it).unwrap();
            theirs.cluster().edit("nodes", None, &name, |node| {
                node["metadata"]["labels"]["theirs"] = json!("kept");
            });
        }
        node["metadata"]["labels"]["mine"] = json!("too");
    });
    let node = cluster.get("nodes", None, "worker-1").unwrap();
    let labels = &node["metadata"]["labels"];
    assert_eq!((there, tries), (true, 2));
    assert_eq!((&labels["theirs"], &labels["mine"]), (&json!("kept"), &json!("too")));
}

/// Makes the sandbox `theirs` answer requests about Roles, which a sandbox does not simulate. The answers come from
/// fault rules. The test uses `theirs` in the place of a real cluster.
fn answers_for_roles(theirs: &Sandbox) {
    let answer = |status: u16, body: Value| Effect::Instead(Response::json(status, &body));
    let roles = "/apis/rbac.authorization.k8s.io/**";
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let allowed = json!({"status": {"allowed": true}});
    for rule in [
        Rule::new(answer(201, json!({}))).path(roles).method("POST"),
        Rule::new(answer(200, json!({}))).path(roles).method("DELETE"),
        Rule::new(answer(200, json!({}))).path(roles).method("GET"),
        Rule::new(answer(201, allowed)).path(reviews),
    ] {
        theirs.faults().add(rule);
    }
}

#[test]
fn users_are_impersonated_under_names_of_the_corner_with_the_same_rules() {
    let theirs = theirs();
    answers_for_roles(&theirs);
    let corner = corner(&theirs, 0);
    let rules = vec![sandbox::kubernetes::PolicyRule {
        api_groups: vec!["coordination.k8s.io".into()],
        resources: vec!["leases".into()],
        verbs: vec!["get".into(), "update".into()],
        resource_names: vec!["the-lease".into()],
        ..Default::default()
    }];
    let cluster = corner.cluster();
    cluster.grant_in_namespace("ccm", "kube-system", rules);
    let posted = |path: &str| -> Vec<Call> {
        let mut calls = theirs.calls().calls();
        calls.retain(|call| call.method == "POST" && call.path == path);
        calls
    };
    let place = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
    let roles = posted(&format!("{place}/roles"));
    let role = roles.last().unwrap().json().unwrap();
    let name = role["metadata"]["name"].as_str().unwrap();
    let prefix = name.strip_suffix("ccm").unwrap();
    let added = json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"],
        "resourceNames": [format!("{prefix}the-lease")],
    });
    assert_eq!(role["rules"].as_array().unwrap().last(), Some(&added));
    let binding = posted(&format!("{place}/rolebindings"))[0].json().unwrap();
    assert_eq!(binding["roleRef"]["name"], name);
    assert_eq!(binding["subjects"][0]["name"], format!("{prefix}ccm"));
    let reviews = posted("/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let asked = |verb: &str| {
        reviews.iter().any(|call| {
            let spec = &call.json().unwrap()["spec"];
            let about = &spec["resourceAttributes"];
            spec["user"] == binding["subjects"][0]["name"]
                && (&about["verb"], &about["name"])
                    == (&json!(verb), &role["rules"][1]["resourceNames"][0])
        })
    };
    assert!(asked("get") && asked("update"));

    let request = sandbox::exchange::Request {
        method: "GET".into(),
        path: "/api/v1/nodes".into(),
        headers: vec![(
            "authorization".into(),
            format!("Bearer {}", corner.account("ccm").unwrap().token),
        )],
        ..Default::default()
    };
    sandbox::exchange::Handler::handle(&**cluster, &request);
    let last = theirs.calls().calls().pop().unwrap();
    assert_eq!(last.header("impersonate-user"), Some(format!("{prefix}ccm").as_str()));
    let mark = theirs.calls().mark();
    let paths = [
        format!("{place}/rolebindings/{name}"),
        format!("{place}/roles/{name}"),
        format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"),
    ];
    drop(corner);
    let after = theirs.calls().calls_since(mark);
    for path in paths {
        let is_it = |call: &Call| call.method == "DELETE" && call.path == path;
        assert!(after.iter().any(is_it), "{path} is left behind");
    }
}

#[test]
fn unknown_users_and_denials_are_answered_by_the_real_server() {
    let theirs = theirs();
    let corner = corner(&theirs, 1);
    let status = |token: &str, path: &str| {
        let mut request = sandbox::exchange::Request {
            method: "GET".into(),
            path: path.into(),
            ..Default::default()
        };
        if !token.is_empty() {
            let header = ("authorization".into(), format!("Bearer {token}"));
            request.headers.push(header);
        }
        let answer = sandbox::exchange::Handler::handle(&**corner.cluster(), &request);
        (answer.status, String::from_utf8(answer.body).unwrap())
    };
    let ccm = corner.account("ccm").unwrap().token;
    assert_eq!(status(&ccm, "/api/v1/nodes/worker-1").0, 200);
    assert_eq!(status(&ccm, "/api/v1/nodes/worker-2").0, 404);
    assert!(!status(&ccm, "/api/v1/nodes/worker-2").1.contains("ccmtest-"));
    assert_eq!(status(&ccm, "/api/v1/namespaces").0, 403);
    assert_eq!(status("wrong", "/api/v1/nodes").0, 401);
    let (code, told) = status("", "/api/v1/nodes");
    assert!(code == 403 && told.contains("system:anonymous"), "{told}");
}
