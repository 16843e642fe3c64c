//! EndpointSlices: their life, lists by labels, defaults, and what is refused.

use sandbox::exchange::Handler;
use sandbox::kubernetes::{PolicyRule, User};
use serde_json::{Value, json};

use crate::{World, names, read, request, world};

const GROUP: &str = "/apis/discovery.k8s.io/v1";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn endpoint(ip: &str) -> Value {
    json!({"addresses": [ip], "nodeName": "worker-1"})
}

/// A slice of the Service `service`, with the fields of `more`.
fn slice(name: &str, service: &str, more: Value) -> Value {
    let labels = json!({"kubernetes.io/service-name": service});
    let mut slice = json!({
        "metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
        "endpoints": [endpoint("10.244.1.2")], "ports": [{"port": 8080}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        slice[field] = value.clone();
    }
    slice
}

fn post(world: &World, name: &str, service: &str, more: Value) -> (u16, Value) {
    world.send("POST", SLICES, &slice(name, service, more))
}

fn patch(world: &World, name: &str, format: &str, body: Value) -> (u16, Value) {
    let mut request = request("PATCH", &format!("{SLICES}/{name}"));
    let content_type = format!("application/{format}-patch+json");
    request.headers = vec![
        ("authorization".into(), "Bearer admin".into()),
        ("content-type".into(), content_type),
    ];
    request.body = body.to_string().into_bytes();
    read(&world.cluster.handle(&request))
}

#[test]
fn a_new_slice_has_the_defaults_of_the_api() {
    let world = world();
    let conditions = json!({"ready": false, "serving": true, "terminating": true});
    let endpoints = json!([
        {"addresses": ["10.244.1.2"], "deprecatedTopology": {"a": "b"}},
        {"addresses": ["10.244.1.3"], "conditions": conditions, "nodeName": "worker-1", "zone": "fsn1"},
    ]);
    let ports = json!([{"port": 8080}, {"name": "metrics", "protocol": "UDP"}]);
    let (status, made) =
        post(&world, "web-1", "web", json!({"endpoints": endpoints, "ports": ports}));
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["metadata"]["generation"], 1);
    let shown = json!([
        {"addresses": ["10.244.1.2"], "conditions": {}},
        {"addresses": ["10.244.1.3"], "conditions": conditions, "nodeName": "worker-1", "zone": "fsn1"},
    ]);
    let ports = json!([
        {"name": "", "protocol": "TCP", "port": 8080}, {"name": "metrics", "protocol": "UDP"},
    ]);
    assert_eq!((&made["endpoints"], &made["ports"]), (&shown, &ports));
    assert_eq!(world.get(&format!("{SLICES}/web-1")), (200, made));
    let (_, empty) = post(&world, "web-2", "web", json!({"endpoints": [], "ports": []}));
    assert_eq!(
        (empty.get("endpoints"), empty.get("ports")),
        (Some(&Value::Null), Some(&Value::Null))
    );
    let generated =
        json!({"metadata": {"generateName": "web-"}, "addressType": "IPv6", "endpoints": []});
    let (_, made) = world.send("POST", SLICES, &generated);
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
}

#[test]
fn slices_are_listed_by_the_labels_of_their_services() {
    let world = world();
    world.cluster.create("namespaces", None, json!({"metadata": {"name": "shop"}}));
    for (name, service) in [("a-1", "a"), ("a-2", "a"), ("b-1", "b"), ("c-1", "c")] {
        assert_eq!(post(&world, name, service, json!({})).0, 201);
    }
    world.cluster.create("endpointslices", Some("shop"), slice("b-2", "b", json!({})));
    let plain = json!({"metadata": {"name": "plain"}, "addressType": "IPv4", "endpoints": []});
    world.cluster.create("endpointslices", Some("shop"), plain);
    let everywhere = format!("{GROUP}/endpointslices");
    let label = "kubernetes.io/service-name";
    let cases: [(&str, String, &[&str]); 9] = [
        (SLICES, String::new(), &["a-1", "a-2", "b-1", "c-1"]),
        (&everywhere, String::new(), &["a-1", "a-2", "b-1", "c-1", "b-2", "plain"]),
        (&everywhere, format!("labelSelector={label} in (a,b)"), &["a-1", "a-2", "b-1", "b-2"]),
        (&everywhere, format!("labelSelector={label} in (a, d)"), &["a-1", "a-2"]),
        (&everywhere, format!("labelSelector={label}=b"), &["b-1", "b-2"]),
        (&everywhere, format!("labelSelector={label}"), &["a-1", "a-2", "b-1", "c-1", "b-2"]),
        (&everywhere, format!("labelSelector=!{label}"), &["plain"]),
        (SLICES, format!("labelSelector={label} notin (a)"), &["b-1", "c-1"]),
        (SLICES, "fieldSelector=metadata.name=c-1".into(), &["c-1"]),
    ];
    for (path, query, expected) in &cases {
        for version in ["", "&resourceVersion=0"] {
            let (status, list) = world.get(&format!("{path}?{query}{version}"));
            assert_eq!((status, &list["kind"]), (200, &json!("EndpointSliceList")), "{query}");
            assert_eq!(names(&list), *expected, "{path} {query}");
        }
    }

    let in_pages = format!("{everywhere}?labelSelector={label} in (a,b)&limit=3");
    let (_, first) = world.get(&in_pages);
    assert_eq!(names(&first), ["a-1", "a-2", "b-1"]);
    let token = first["metadata"]["continue"].as_str().expect("there is more");
    world.cluster.delete("endpointslices", Some("shop"), "b-2");
    let (_, second) = world.get(&format!("{in_pages}&continue={token}"));
    assert_eq!((names(&second), &second["metadata"]["continue"]), (vec!["b-2"], &Value::Null));
    world.cluster.freeze_cache(true);
    post(&world, "d-1", "d", json!({}));
    let of_d = format!("{everywhere}?labelSelector={label}=d");
    assert_eq!(names(&world.get(&of_d).1), ["d-1"]);
    assert_eq!(names(&world.get(&format!("{of_d}&resourceVersion=0")).1), [""; 0]);
}

#[test]
fn a_slice_is_updated_patched_and_deleted() {
    let world = world();
    post(&world, "web-1", "web", json!({}));
    let two = json!([endpoint("10.244.1.2"), endpoint("10.244.2.2")]);
    let one = json!([endpoint("10.244.3.3")]);
    let replaced = slice("web-1", "web", json!({"endpoints": two}));
    let (status, shown) = world.send("PUT", &format!("{SLICES}/web-1"), &replaced);
    assert_eq!((status, &shown["metadata"]["generation"]), (200, &json!(2)));
    let lists = |body: &Value| json!({"endpoints": body});
    let add = json!([{"op": "add", "path": "/endpoints/-", "value": endpoint("10.244.4.4")}]);
    let annotate = json!({"metadata": {"annotations": {"a": "b"}}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    // The list of endpoints is atomic, so that also a strategic patch replaces the list.
    let cases = [
        ("strategic-merge", lists(&one), 1, 3),
        ("merge", lists(&two), 2, 4),
        ("json", add, 3, 5),
        ("merge", annotate, 3, 5),
        ("strategic-merge", label, 3, 6),
        ("merge", lists(&Value::Null), 0, 7),
    ];
    for (format, body, endpoints, generation) in cases {
        let (status, shown) = patch(&world, "web-1", format, body.clone());
        assert_eq!(status, 200, "{format} {body}: {shown}");
        let count = shown["endpoints"].as_array().map_or(0, Vec::len);
        let shown = &shown["metadata"]["generation"];
        assert_eq!((count, shown), (endpoints, &json!(generation)), "{format} {body}");
    }
    let mut stale = replaced;
    stale["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(world.send("PUT", &format!("{SLICES}/web-1"), &stale).0, 409);
    assert_eq!(
        world.send("PUT", &format!("{SLICES}/other"), &slice("other", "web", json!({}))).0,
        404
    );
    let (status, deleted) = world.send("DELETE", &format!("{SLICES}/web-1"), &Value::Null);
    assert_eq!((status, &deleted["status"]), (200, &json!("Success")));
    let (status, refusal) = world.get(&format!("{SLICES}/web-1"));
    let message = r#"endpointslices.discovery.k8s.io "web-1" not found"#;
    assert_eq!((status, &refusal["message"]), (404, &json!(message)));
}

#[test]
fn slices_that_no_cluster_accepts_are_refused() {
    let world = world();
    let with = |endpoint: Value| json!({"endpoints": [endpoint]});
    let addresses =
        |kind: &str, ip: &str| json!({"addressType": kind, "endpoints": [{"addresses": [ip]}]});
    let many = |count: usize| vec![endpoint("10.244.1.2"); count];
    let ips = |count: usize| json!({"addresses": vec!["10.244.1.2"; count]});
    let hints = vec![json!({"name": "fsn1"}); 9];
    let first = "endpoints[0].addresses";
    // The fields of the slice, and the field of the error. The error is empty when the slice is accepted.
    let cases = [
        (json!({"addressType": null}), "addressType"),
        (json!({"addressType": "IP"}), "addressType"),
        (addresses("IPv4", "10.244.1.2"), ""),
        (addresses("IPv6", "fd00::2"), ""),
        (addresses("FQDN", "pod.example.com"), ""),
        (addresses("IPv4", "fd00::2"), "endpoints[0].addresses[0]"),
        (addresses("IPv6", "10.244.1.2"), "endpoints[0].addresses[0]"),
        (addresses("FQDN", "pod"), "endpoints[0].addresses[0]"),
        (addresses("IPv4", "nonsense"), "endpoints[0].addresses[0]"),
        (addresses("IPv4", "127.0.0.1"), "endpoints[0].addresses[0]"),
        (addresses("IPv4", "169.254.1.1"), "endpoints[0].addresses[0]"),
        (json!({"endpoints": many(1000)}), ""),
        (json!({"endpoints": many(1001)}), "endpoints"),
        (with(ips(100)), ""),
        (with(ips(101)), first),
        (with(json!({"addresses": []})), first),
        (
            with(json!({"addresses": ["10.0.0.1"], "nodeName": "Not_A_Name"})),
            "endpoints[0].nodeName",
        ),
        (with(json!({"addresses": ["10.0.0.1"], "hostname": "a.b"})), "endpoints[0].hostname"),
        (
            with(json!({"addresses": ["10.0.0.1"], "hints": {"forZones": hints}})),
            "endpoints[0].hints.forZones",
        ),
        (json!({"ports": [{"port": 1}, {"port": 2}]}), "ports[1].name"),
        (json!({"ports": [{"name": "Not a name"}]}), "ports[0].name"),
        (json!({"ports": [{"protocol": "ICMP"}]}), "ports[0].protocol"),
        (json!({"ports": [{"appProtocol": "not one"}]}), "ports[0].appProtocol"),
    ];
    for (number, (more, field)) in cases.into_iter().enumerate() {
        let (status, answer) = post(&world, &format!("s{number}"), "web", more.clone());
        let shown = more.to_string();
        let shown = &shown[..shown.len().min(100)];
        let expected = if field.is_empty() { 201 } else { 422 };
        let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
        assert_eq!(status, expected, "{shown}: {causes:?}");
        let fields: Vec<&Value> = causes.iter().map(|cause| &cause["field"]).collect();
        let wanted: Vec<Value> =
            [field].into_iter().filter(|one| !one.is_empty()).map(Value::from).collect();
        assert_eq!(fields, wanted.iter().collect::<Vec<_>>(), "{shown}");
    }

    post(&world, "web-1", "web", json!({"endpoints": []}));
    let (status, answer) = patch(&world, "web-1", "merge", json!({"addressType": "IPv6"}));
    let cause = &answer["details"]["causes"][0];
    assert_eq!((status, &cause["field"]), (422, &json!("addressType")));
    assert_eq!(cause["message"], r#"Invalid value: "IPv6": field is immutable"#);
    let (status, _) =
        patch(&world, "web-1", "merge", json!({"endpoints": [{"conditions": {"ready": "x"}}]}));
    assert_eq!(status, 422);
}

#[test]
fn a_user_needs_a_rule_for_slices() {
    let world = world();
    post(&world, "web-1", "web", json!({}));
    world.cluster.add_user(User {
        name: "ccm".into(),
        tokens: vec!["t".into()],
        ..User::default()
    });
    let everywhere = format!("{GROUP}/endpointslices");
    let (status, refusal) = world.send_as("t", "GET", &everywhere, &Value::Null);
    let message = "endpointslices.discovery.k8s.io is forbidden: User \"ccm\" cannot list resource \
        \"endpointslices\" in API group \"discovery.k8s.io\" at the cluster scope";
    assert_eq!((status, &refusal["message"]), (403, &json!(message)));
    let rules: Vec<PolicyRule> = serde_yaml::from_str(
        "[{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list]}]",
    )
    .expect("rules as in a ClusterRole");
    world.cluster.add_user(User {
        name: "ccm".into(),
        rules,
        tokens: vec!["t".into()],
        ..User::default()
    });
    let cases = [
        ("GET", everywhere.as_str(), 200),
        ("GET", SLICES, 200),
        ("GET", &format!("{SLICES}/web-1"), 403),
        ("DELETE", &format!("{SLICES}/web-1"), 403),
        ("POST", SLICES, 403),
    ];
    for (method, path, expected) in cases {
        assert_eq!(world.send_as("t", method, path, &Value::Null).0, expected, "{method} {path}");
    }
}

#[test]
fn a_table_shows_the_first_ports_and_addresses_of_a_slice() {
    let world = world();
    let endpoints: Vec<Value> =
        (1..=5).map(|number| endpoint(&format!("10.244.1.{number}"))).collect();
    post(&world, "web-1", "web", json!({"endpoints": endpoints}));
    post(&world, "web-2", "web", json!({"endpoints": [], "ports": []}));
    let mut request = request("GET", SLICES);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    request.headers =
        vec![("authorization".into(), "Bearer admin".into()), ("accept".into(), accept.into())];
    let (_, table) = read(&world.cluster.handle(&request));
    let cells = |row: usize| table["rows"][row]["cells"].as_array().cloned().unwrap_or_default();
    let addresses = "10.244.1.1,10.244.1.2,10.244.1.3 + 2 more...";
    assert_eq!(cells(0)[..4], ["web-1", "IPv4", "8080", addresses]);
    assert_eq!(cells(1)[..4], ["web-2", "IPv4", "<unset>", "<unset>"]);
}
