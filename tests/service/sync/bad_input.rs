//! Bad input of a person: an event says what to do, nothing changes, and the correction is synced.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, PROFILES, World, key};
use serde_json::{Value, json};

/// The wrong part of a Service. It is its annotations, or a field of the Service itself.
#[derive(Clone, Copy)]
enum Wrong {
    Annotations(&'static [(&'static str, &'static str)]),
    Service(fn(&mut Value)),
}
use Wrong::{Annotations, Service};

/// A real API server chooses the node ports, because another test may have them.
fn six_ports(service: &mut Value) {
    let node_port = |n: u16| (!common::has_real_cluster()).then_some(30100 + n);
    let port = |n| {
        json!({
            "name": format!("p{n}"), "port": n, "targetPort": n, "protocol": "TCP", "nodePort": node_port(n),
        })
    };
    service["spec"]["ports"] = (1..=6).map(port).collect();
}

fn no_node_port(service: &mut Value) {
    let port = service["spec"]["ports"][0].as_object_mut().unwrap();
    port.remove("nodePort");
    service["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
}

#[rustfmt::skip] // A case is a line.
const CASES: &[(Wrong, &[&str])] = &[
    (Annotations(&[("type", "lb99")]), &["type", "lb99", "lb11"]),
    (Annotations(&[("protocol", "https"), ("http-certificates", "nobody")]), &["nobody"]),
    (Annotations(&[("use-private-ip", "true")]), &["use-private-ip", "HCLOUD_NETWORK"]),
    (Annotations(&[("protocol", "http"), ("http-timeout-idle", "10s")]), &["http-timeout-idle", "10s", "30s to 300s"]),
    (Annotations(&[("node-selector", "a in b")]), &["node-selector", "a in b"]),
    (Annotations(&[("algorithm-type", "fastest")]), &["algorithm-type", "fastest", "round_robin"]),
    (Service(six_ports), &["6 TCP ports", "lb11", "takes at most 5"]),
    (Service(no_node_port), &["port 80", "allocateLoadBalancerNodePorts"]),
];

#[test]
fn bad_input_is_explained_and_changes_nothing_until_it_is_corrected() {
    let in_both = |profile| CASES.iter().map(move |(wrong, says)| (*wrong, *says, profile));
    let cases = PROFILES.into_iter().flat_map(in_both);
    common::run_in_parallel(cases.collect(), |(wrong, says, profile)| {
        let world = World::new(1);
        let daemon = world.daemon(&[profile, NO_RESYNC]);
        world.create("web", &[], &[80]);
        let before = world.up("web");
        let good = world.service("web").unwrap();
        world.ticks(1);
        let mark = world.mark();
        world.edit("web", |service| match wrong {
            Annotations(list) => {
                let map: serde_json::Map<String, Value> =
                    list.iter().map(|(name, value)| (key(name), json!(value))).collect();
                service["metadata"]["annotations"] = Value::Object(map);
            }
            Service(edit) => edit(service),
        });
        world.wait_for_event("web", "SyncLoadBalancerFailed", says);
        daemon.logs("SyncLoadBalancerFailed");
        world.ticks(3);
        let about = format!("{profile} {says:?}\n{}", daemon.log());
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{about}");
        assert_eq!(world.balancers()[0]["services"], before["services"]);
        let inspection = world.inspect("web", &[profile]).to_string();
        for part in says {
            let part = part.replace('"', "\\\"");
            assert!(inspection.contains(&part), "{part}: {inspection}");
        }
        // Mended, with one more wish that shows that it is worked on again.
        world.edit("web", |service| {
            service["spec"] = good["spec"].clone();
            service["metadata"]["annotations"] =
                json!({ key("algorithm-type"): "least_connections" });
        });
        wait_until("a new algorithm", || {
            world.balancers()[0]["algorithm"]["type"] == "least_connections"
        });
        let told = world.event_messages("web", "SyncLoadBalancerFailed");
        assert_eq!(told.len(), 1, "{says:?}");
    });
}

#[test]
fn a_certificate_that_is_created_later_is_found_by_itself() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let https = [("protocol", "https"), ("http-certificates", "site")];
    world.create("web", &https, &[443]);
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["site"]);
    let certificate = json!({"name": "site", "type": "managed", "domain_names": ["a.example"]});
    let cloud = world.cloud();
    let certificate = cloud.create_certificate(world.project(), certificate);
    let balancer = world.up("web");
    let expected = json!([certificate]);
    assert_eq!(balancer["services"][0]["http"]["certificates"], expected);
}
