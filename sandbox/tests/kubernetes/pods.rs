//! The EndpointSlices that a test writes by saying where the pods of a Service are.

use sandbox::kubernetes::Pod;
use serde_json::{Value, json};

use crate::{World, names, world};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A cluster with the Service `web` and the node `n0`, which has a pod range and a zone.
fn with_service(spec: Value) -> World {
    let world = world();
    let labels = json!({"topology.kubernetes.io/zone": "fsn1"});
    let node =
        json!({"metadata": {"name": "n0", "labels": labels}, "spec": {"podCIDR": "10.244.7.0/24"}});
    world.cluster.create("nodes", None, node);
    let ports = json!([
        {"name": "http", "port": 80, "targetPort": 8080, "appProtocol": "http"},
        {"name": "metrics", "port": 81, "targetPort": "metrics"},
    ]);
    let mut service =
        json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"ports": ports}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    world.cluster.create("services", Some("default"), service);
    world
}

fn slices(world: &World) -> Value {
    world.get(SLICES).1
}

/// Returns the number of endpoints in each slice.
fn sizes(world: &World) -> Vec<usize> {
    let list = slices(world);
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).collect()
}

#[test]
fn the_pods_of_a_service_become_slices_as_the_controller_writes_them() {
    let world = with_service(json!({}));
    let pods = [
        ("n0", Pod::Ready),
        ("n0", Pod::Terminating),
        ("n9", Pod::NotReady),
        ("", Pod::TerminatingNotReady),
    ];
    world.cluster.set_endpoints("default", "web", &pods);
    let list = slices(&world);
    let slice = &list["items"][0];
    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    let labels = json!({
        "app": "web", "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    assert_eq!(slice["metadata"]["labels"], labels);
    let (_, service) = world.get("/api/v1/namespaces/default/services/web");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], service["metadata"]["uid"]);
    let ports = json!([
        {"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "http"},
        {"name": "metrics", "protocol": "TCP", "port": 81},
    ]);
    assert_eq!((&slice["addressType"], &slice["ports"]), (&json!("IPv4"), &ports));
    // The address, the node, the zone, and the conditions ready, serving and terminating.
    let expected = [
        ("10.244.7.2", Some("n0"), Some("fsn1"), [true, true, false]),
        ("10.244.7.3", Some("n0"), Some("fsn1"), [false, true, true]),
        ("10.64.0.3", Some("n9"), None, [false, false, false]),
        ("10.64.0.4", None, None, [false, false, true]),
    ];
    for (index, (address, node, zone, conditions)) in expected.into_iter().enumerate() {
        let endpoint = &slice["endpoints"][index];
        assert_eq!(endpoint["addresses"], json!([address]));
        assert_eq!((endpoint["nodeName"].as_str(), endpoint["zone"].as_str()), (node, zone));
        let shown =
            ["ready", "serving", "terminating"].map(|name| endpoint["conditions"][name].clone());
        assert_eq!(shown, conditions.map(Value::from), "{address}");
        assert_eq!(endpoint["targetRef"]["kind"], "Pod");
    }
}

#[test]
fn slices_have_at_most_100_endpoints_and_keep_their_names() {
    let world = with_service(json!({}));
    let set = |count: usize| {
        world.cluster.set_endpoints("default", "web", &vec![("n0", Pod::Ready); count])
    };
    // The number of pods, and the number of slices whose names were there before.
    let cases = [(0, 0), (250, 1), (250, 3), (101, 2), (0, 1), (1000, 1)];
    let mut known: Vec<String> = Vec::new();
    for (count, kept) in cases {
        let before = slices(&world);
        set(count);
        let after = slices(&world);
        if count == 250 && kept == 3 {
            assert!(before == after, "nothing is written when nothing changes");
        }
        let mut sizes = sizes(&world);
        assert_eq!(sizes.iter().sum::<usize>(), count);
        assert_eq!(sizes.len(), count.div_ceil(100).max(1));
        sizes.sort_unstable();
        assert!(sizes.last().is_some_and(|most| *most <= 100), "{sizes:?}");
        let names: Vec<String> = names(&after).into_iter().map(String::from).collect();
        assert_eq!(names.iter().filter(|name| known.contains(name)).count(), kept, "{count}");
        known = names;
    }
    set(0);
    let empty = &slices(&world)["items"][0];
    assert_eq!((&empty["endpoints"], &empty["ports"]), (&Value::Null, &Value::Null));
    world.cluster.remove_endpoints("default", "web");
    assert_eq!(sizes(&world), [0; 0]);
}

/// A change of the pods of a Service.
type Step = fn(&mut Vec<(&str, Pod)>);

#[test]
fn the_endpoint_of_a_pod_stays_in_its_slice() {
    let world = with_service(json!({}));
    let mut pods = vec![("n0", Pod::Ready); 150];
    pods.extend([("n1", Pod::Ready); 10]);
    let set = |pods: &[(&str, Pod)]| world.cluster.set_endpoints("default", "web", pods);
    // The number of slices that were written in between.
    let changed = |before: &Value, after: &Value| {
        let of = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
        of(after).iter().filter(|slice| !of(before).contains(slice)).count()
    };
    set(&pods);
    let steps: [(&str, Step, usize); 4] = [
        ("a pod of the first slice is not ready", |pods| pods[0].1 = Pod::NotReady, 1),
        ("a pod of the first slice ends", |pods| pods[0].1 = Pod::Terminating, 1),
        ("the last pod of a node is gone", |pods| pods.truncate(159), 1),
        ("a pod on another node is new", |pods| pods.insert(0, ("n2", Pod::Ready)), 1),
    ];
    for (rule, step, expected) in steps {
        let before = slices(&world);
        step(&mut pods);
        set(&pods);
        let after = slices(&world);
        assert_eq!(changed(&before, &after), expected, "{rule}");
        assert_eq!(sizes(&world).iter().sum::<usize>(), pods.len(), "{rule}");
    }
}

#[test]
fn each_family_and_each_writer_has_slices_of_its_own() {
    let world = with_service(json!({}));
    let other = json!({
        "metadata": {"name": "by-hand", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}],
    });
    world.cluster.create("endpointslices", Some("default"), other);
    world.cluster.set_endpoints("default", "web", &[("n0", Pod::Ready)]);
    world.cluster.set_ipv6_endpoints("default", "web", &[("n0", Pod::Ready), ("n1", Pod::Ready)]);
    world.cluster.set_endpoints("default", "web", &[("n1", Pod::Ready)]);
    let list = slices(&world);
    let mut shown: Vec<String> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|slice| {
            let count = slice["endpoints"].as_array().map_or(0, Vec::len);
            let first = &slice["endpoints"][0]["addresses"][0];
            format!("{} {count} {first}", slice["addressType"])
        })
        .collect();
    shown.sort();
    let expected =
        [r#""IPv4" 1 "10.64.0.1""#, r#""IPv4" 1 "192.0.2.1""#, r#""IPv6" 2 "fd00:10:244::2""#];
    assert_eq!(shown, expected);
    world.cluster.remove_endpoints("default", "web");
    assert_eq!(names(&slices(&world)), ["by-hand"]);
}

#[test]
fn a_service_can_publish_pods_that_are_not_ready() {
    let world = with_service(json!({"publishNotReadyAddresses": true}));
    world.cluster.set_endpoints("default", "web", &[("n0", Pod::NotReady)]);
    let conditions = &slices(&world)["items"][0]["endpoints"][0]["conditions"];
    assert_eq!(conditions, &json!({"ready": true, "serving": false, "terminating": false}));
}

#[test]
#[should_panic(expected = "there is no Service default/other")]
fn pods_need_their_service() {
    with_service(json!({})).cluster.set_endpoints("default", "other", &[]);
}
