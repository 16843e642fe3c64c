//! Deployments, DaemonSets, Pods and PersistentVolumes, which a test creates and clients can only read.

use sandbox::exchange::Handler;
use serde_json::{Value, json};

use crate::{names, read, request, world};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kube-system/deployments";

fn workload(name: &str) -> Value {
    let container = json!({
        "name": "ccm", "image": "ccm:1", "args": ["run", "--v=4"],
        "env": [{"name": "HCLOUD_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hcloud", "key": "token"}}}],
    });
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"spec": {"containers": [container]}},
        },
        "status": {"readyReplicas": 1, "numberReady": 3},
    })
}

#[test]
fn clients_can_read_a_workload_that_a_test_created_but_not_write_it() {
    let world = world();
    for (resource, kind) in [("deployments", "Deployment"), ("daemonsets", "DaemonSet")] {
        let made = world.cluster.create(resource, Some("kube-system"), workload("ccm"));
        let path = format!("/apis/apps/v1/namespaces/kube-system/{resource}/ccm");
        let (status, shown) = world.get(&path);
        assert_eq!((status, &shown), (200, &made));
        assert_eq!((&shown["kind"], &shown["apiVersion"]), (&json!(kind), &json!("apps/v1")));
        assert_eq!(shown["spec"], workload("ccm")["spec"]);
        let (_, list) = world.get(&format!("/apis/apps/v1/{resource}?labelSelector=app=ccm"));
        assert_eq!(list["kind"], format!("{kind}List"));
        assert_eq!(names(&list), ["ccm"]);
        for method in ["PUT", "PATCH", "DELETE"] {
            assert_eq!(world.send(method, &path, &workload("ccm")).0, 405, "{method}");
        }
    }
    assert_eq!(world.send("POST", DEPLOYMENTS, &workload("other")).0, 405);
    let (status, refusal) = world.get(&format!("{DEPLOYMENTS}/other"));
    assert_eq!(
        (status, &refusal["message"]),
        (404, &json!("deployments.apps \"other\" not found"))
    );
}

#[test]
fn workloads_are_in_discovery_and_in_tables() {
    let world = world();
    let (_, group) = world.get("/apis/apps/v1");
    let kinds: Vec<&Value> =
        group["resources"].as_array().into_iter().flatten().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["DaemonSet", "Deployment"]);
    world.cluster.create("deployments", Some("kube-system"), workload("ccm"));
    world.cluster.create("daemonsets", Some("kube-system"), workload("ccm"));
    let table = |path: &str| {
        let mut request = request("GET", path);
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        request.headers =
            vec![("authorization".into(), "Bearer admin".into()), ("accept".into(), accept.into())];
        read(&world.cluster.handle(&request)).1
    };
    let shown = table(DEPLOYMENTS);
    assert_eq!(shown["columnDefinitions"][1]["name"], "Ready");
    assert_eq!(shown["rows"][0]["cells"][1], "1/2");
    let shown = table("/apis/apps/v1/daemonsets");
    let cells = shown["rows"][0]["cells"].as_array().map(Vec::len);
    assert_eq!(cells, shown["columnDefinitions"].as_array().map(Vec::len));
    assert_eq!(shown["rows"][0]["cells"][3], 3);
}

#[test]
fn pods_volumes_and_daemon_sets_are_listed_in_pages() {
    let world = world();
    let spec = json!({"nodeSelector": {"disk": "ssd"}});
    for number in 0..7 {
        let phase = if number == 3 { "Succeeded" } else { "Running" };
        let object = json!({
            "metadata": {"name": format!("a-{number}")}, "spec": spec, "status": {"phase": phase},
        });
        world.cluster.create("pods", Some(["default", "kube-system"][number % 2]), object.clone());
        world.cluster.create("persistentvolumes", None, object.clone());
        world.cluster.create("daemonsets", Some("kube-system"), object);
    }
    for (path, kind, count) in [
        ("/api/v1/pods?", "PodList", 7),
        ("/api/v1/pods?fieldSelector=status.phase!=Succeeded,status.phase!=Failed&", "PodList", 6),
        ("/api/v1/namespaces/default/pods?", "PodList", 4),
        ("/api/v1/persistentvolumes?", "PersistentVolumeList", 7),
        ("/apis/apps/v1/daemonsets?", "DaemonSetList", 7),
    ] {
        let (mut listed, mut token) = (Vec::new(), String::new());
        loop {
            let (status, page) = world.get(&format!("{path}limit=3{token}"));
            assert_eq!((status, &page["kind"]), (200, &json!(kind)), "{path}");
            let items = page["items"].as_array().cloned().unwrap_or_default();
            assert!(items.len() <= 3 && items.iter().all(|item| item["spec"] == spec), "{page}");
            listed.extend(items);
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = format!("&continue={next}"),
                None => break,
            }
        }
        assert_eq!(listed.len(), count, "{path}");
    }
    let (_, volume) = world.get("/api/v1/persistentvolumes/a-1");
    assert_eq!((&volume["kind"], &volume["spec"]), (&json!("PersistentVolume"), &spec));
    assert_eq!(world.send("DELETE", "/api/v1/persistentvolumes/a-1", &json!({})).0, 405);
}
