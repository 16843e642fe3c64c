//! Nodes come, go, and fall silent.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, World, targets};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};
use std::sync::Arc;

fn spec(name: &str) -> ServerSpec {
    ServerSpec {
        name: name.into(),
        ..ServerSpec::default()
    }
}

fn set_ready(world: &World, ready: bool) {
    let cluster = world.cluster();
    for node in cluster.list("nodes", None) {
        let name = node["metadata"]["name"].as_str().unwrap();
        cluster.edit("nodes", None, name, |node| {
            let conditions = node["status"]["conditions"].as_array_mut().unwrap();
            let is_ready = |condition: &&mut Value| condition["type"] == "Ready";
            let condition = conditions.iter_mut().find(is_ready).unwrap();
            condition["status"] = json!(if ready { "True" } else { "False" });
        });
    }
}

fn server_of(world: &World, node: &str) -> u64 {
    let servers = world.servers();
    let mut servers = servers.iter();
    servers.find(|server| server["name"] == node).unwrap()["id"]
        .as_u64()
        .unwrap()
}

#[test]
fn thirty_nodes_that_flap_are_no_write() {
    let world = World::new(30);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[("type", "lb21")], &[80]);
    assert_eq!(targets(&world.up("web")).len(), 30);
    world.ticks(2);
    let mark = world.mark();
    for ready in [false, true, false, true] {
        set_ready(&world, ready);
        world.ticks(3);
    }
    assert_eq!(world.writes(mark), Vec::<String>::new());
}

/// It went just before a plan was made, and is there again when the nodes are listed next: they are the same as before.
#[test]
fn a_node_that_goes_and_comes_between_two_looks_is_a_target_again() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80]);
    assert_eq!(targets(&world.up("web")).len(), 2);
    let cluster = world.cluster();
    let mut node = cluster.get("nodes", None, "worker-2").unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        node["metadata"].as_object_mut().unwrap().remove(field);
    }
    let faults = world.faults();
    let (goes, comes) = (Arc::clone(cluster), Arc::clone(cluster));
    let goes = Effect::before(move |_| assert!(goes.delete("nodes", None, "worker-2")));
    let goes = Rule::new(goes)
        .half(Half::Kubernetes)
        .method("GET")
        .times(1);
    faults.add(goes.path("/api/v1/namespaces/default/services"));
    let comes = Effect::before(move |_| drop(comes.create("nodes", None, node.clone())));
    let comes = Rule::new(comes).half(Half::Hetzner).method("POST").times(1);
    faults.add(comes.path("/v1/load_balancers/*/actions/remove_target"));
    world.annotate("web", "algorithm-type", Some("least_connections"));
    let is = |call: &sandbox::calls::Call, end: &str| call.path.ends_with(end);
    wait_until("the node's end as a target, and its return", || {
        let calls = world.calls().calls();
        let mut after = calls
            .iter()
            .skip_while(|call| !is(call, "/actions/remove_target"));
        after.any(|call| is(call, "/actions/add_target"))
    });
}

#[test]
fn one_node_more_is_one_target_more_for_each_of_twenty() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    for n in 0..20 {
        world.create(&format!("web-{n}"), &[], &[80]);
    }
    for n in 0..20 {
        world.up(&format!("web-{n}"));
    }
    world.ticks(2);
    let mark = world.mark();
    let server = world.join(spec("late"));
    wait_until("twenty targets", || {
        world
            .balancers()
            .iter()
            .all(|one| targets(one).contains(&server))
    });
    world.ticks(3);
    let mut writes = world.cloud_writes(mark);
    writes.sort();
    writes.dedup();
    assert_eq!(writes.len(), 20, "{writes:#?}");
    assert_eq!(world.cloud_writes(mark).len(), 20);
    assert!(
        writes
            .iter()
            .all(|write| write.ends_with("/actions/add_target")),
        "{writes:#?}"
    );
    let calls = world.cloud_calls(mark);
    assert!(calls.len() <= 45, "{} calls: {calls:#?}", calls.len());
}

#[test]
fn a_server_that_goes_before_its_node_is_no_trouble() {
    let world = World::new(2);
    let daemon = world.daemon(&[OFTEN]);
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    let mark = world.mark();
    let server = server_of(&world, "worker-2");
    let stays = server_of(&world, "worker-1");
    world.cloud().delete_server(server);
    // The node is still there, and has to be for a while: more than a minute, and a resync. Nothing is refused.
    world.ticks(15);
    assert!(common::node(&world.sandbox, "worker-2").is_object());
    let writes = world.cloud_writes(mark);
    assert_eq!(writes, Vec::<String>::new(), "{}", daemon.log());
    let failed = world.told("web", "UpdateLoadBalancerFailed");
    assert_eq!(failed, Vec::<String>::new());
    // One that is created meanwhile is created with the others at once.
    let other = world.create("other", &[], &[80]);
    world.up("other");
    world.tells("other", "EnsuredLoadBalancer", &[]);
    assert_eq!(world.cloud_writes(mark), ["POST /load_balancers"]);
    assert_eq!(targets(&world.of_uid(&other).unwrap()), [stays]);
    world.delete("other");
    wait_until("its end", || world.service("other").is_none());
    world.kubelets().expire();
    let cluster = world.cluster();
    wait_until("the node's end", || {
        cluster.get("nodes", None, "worker-2").is_none()
    });
    world.ticks(3);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [stays]);
    let mark = world.mark();
    world.annotate("web", "algorithm-type", Some("least_connections"));
    wait_until("a new algorithm", || {
        world.of_uid(&uid).unwrap()["algorithm"]["type"] == "least_connections"
    });
    world.ticks(3);
    assert_eq!(world.cloud_writes(mark).len(), 1);
}

/// The last list of servers is older than the deletion: the API refuses the creation, which is planned again on a new list.
#[test]
fn a_server_that_was_deleted_since_the_last_list_is_left_out_of_a_creation() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    // Servers are listed for the first load balancer.
    world.create("first", &[], &[80]);
    world.up("first");
    world.ticks(2);
    let stays = server_of(&world, "worker-1");
    let deleted = server_of(&world, "worker-2");
    world.cloud().delete_server(deleted);
    let mark = world.mark();
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    world.tells("web", "EnsuredLoadBalancer", &[]);
    world.ticks(2);
    // The first one is refused. No target is added one by one.
    assert_eq!(world.cloud_writes(mark), ["POST /load_balancers"; 2]);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [stays]);
    let failed = world.told("web", "SyncLoadBalancerFailed");
    assert_eq!(failed, Vec::<String>::new());
}

#[test]
fn an_old_target_stays_until_a_new_one_works() {
    let world = World::new(2);
    let daemon = world.daemon(&[NO_RESYNC]);
    let on = |node: &str| format!("kubernetes.io/hostname={node}");
    let uid = world.create("web", &[("node-selector", &on("worker-1"))], &[80]);
    world.up("web");
    let [old, new] = ["worker-1", "worker-2"].map(|node| server_of(&world, node));
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [old]);
    let refuses = Effect::hetzner_error(422, "missing_ipv4", "it has no address");
    let refuses = Rule::new(refuses)
        .half(Half::Hetzner)
        .path("/v1/load_balancers/*/actions/add_target")
        .times(2);
    let refuses = world.faults().add(refuses);
    let mark = world.mark();
    world.annotate("web", "node-selector", Some(&on("worker-2")));
    world.tells(
        "web",
        "UpdateLoadBalancerFailed",
        &["it has no address", "remove target worker-1: not yet"],
    );
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), [old]);
    // Then it is accepted.
    wait_until("the new target alone", || {
        targets(&world.of_uid(&uid).unwrap()) == [new]
    });
    assert_eq!(world.faults().hits(refuses), 2);
    let add = world.cloud_writes(mark);
    let removed = add.iter().position(|call| call.ends_with("remove_target"));
    assert_eq!(removed, Some(3), "{add:#?}");
    let log = daemon.log();
    let warned = log.lines().filter(|line| line.contains("WARN")).count();
    assert_eq!(warned, 1, "one line for one trouble:\n{log}");
}

#[test]
fn an_excluded_node_leaves_and_comes_back() {
    const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    // The label's value, and whether the node stays a target.
    for (value, stays) in [("", false), ("true", false), ("false", true)] {
        let world = World::new(2);
        let _daemon = world.daemon(&[NO_RESYNC]);
        let uid = world.create("web", &[], &[80]);
        world.up("web");
        let both = targets(&world.of_uid(&uid).unwrap());
        let cluster = world.cluster();
        let label = |value: Value| {
            cluster.edit("nodes", None, "worker-2", |node| {
                let labels = node["metadata"]["labels"].as_object_mut().unwrap();
                match &value {
                    Value::Null => drop(labels.remove(EXCLUDED)),
                    value => drop(labels.insert(EXCLUDED.into(), value.clone())),
                }
            })
        };
        label(json!(value));
        if stays {
            // Labels are looked at less often than Services.
            cluster.edit("nodes", None, "worker-1", |node| {
                node["metadata"]["labels"][EXCLUDED] = json!("true")
            });
        }
        wait_until("one target", || {
            targets(&world.of_uid(&uid).unwrap()).len() == 1
        });
        let left = targets(&world.of_uid(&uid).unwrap())[0];
        let expected = if stays { "worker-2" } else { "worker-1" };
        assert_eq!(left, server_of(&world, expected), "{value:?}");
        if !stays {
            label(Value::Null);
            wait_until("both targets", || {
                targets(&world.of_uid(&uid).unwrap()).len() == both.len()
            });
        }
    }
}

/// Its health check ends its traffic (KEP-3836); removed from the targets it would lose its connections.
#[test]
fn a_node_that_the_autoscaler_will_remove_is_a_target_until_it_is_deleted() {
    let world = World::new(2);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    world.ticks(1);
    let both = targets(&world.of_uid(&uid).unwrap());
    let mark = world.mark();
    let cluster = world.cluster();
    cluster.edit("nodes", None, "worker-2", |node| {
        node["spec"]["taints"] =
            json!([{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]);
    });
    world.ticks(4);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    world.annotate("web", "algorithm-type", Some("least_connections"));
    wait_until("the new algorithm", || {
        world.of_uid(&uid).unwrap()["algorithm"]["type"] == "least_connections"
    });
    world.ticks(2);
    assert_eq!(world.cloud_writes(mark).len(), 1);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()), both);
    let other = world.create("other", &[], &[80]);
    world.up("other");
    assert_eq!(targets(&world.of_uid(&other).unwrap()), both);
    assert!(cluster.delete("nodes", None, "worker-2"));
    wait_until("one target", || {
        targets(&world.of_uid(&uid).unwrap()) == [server_of(&world, "worker-1")]
    });
}

/// By the annotation, then by the setting, which asks for the same: no write. What describes another check stays.
#[test]
fn kube_proxy_is_asked_where_annotation_or_setting_says_so() {
    let mut world = World::new(2);
    let uid = world.create("web", &[("health-check", "kube-proxy")], &[80, 443]);
    let own = world.create("own", &[("health-check-port", "8080")], &[80]);
    world.settle(&[]);
    let check = |world: &World, uid: &str| {
        let check = &world.of_uid(uid).unwrap()["services"][0]["health_check"];
        let http = &check["http"];
        (
            check["port"].clone(),
            json!([check["protocol"], http["path"], http["status_codes"]]),
        )
    };
    let asked = (json!(10256), json!(["http", "/healthz", ["200"]]));
    assert_eq!(check(&world, &uid), asked);
    world.annotate("web", "health-check", None);
    let setting = ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK", "kube-proxy");
    world.env = common::with(world.env.clone(), &[setting]);
    let mark = world.mark();
    world.settle(&[]);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    assert_eq!(check(&world, &uid), asked);
    assert_eq!(
        check(&world, &own),
        (json!(8080), json!(["tcp", null, null]))
    );
    let inspect = common::ccm(&world.env, &["lb", "inspect", "web"]).stdout;
    assert!(inspect.contains(setting.0), "{inspect}");
}

#[test]
fn without_any_node_there_is_an_address_and_a_warning() {
    let world = World::new(0);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[], &[80]);
    world.up("web");
    world.tells("web", "UnAvailableLoadBalancer", &["no available nodes"]);
    let server = world.join(spec("first"));
    wait_until("its target", || {
        targets(&world.of_uid(&uid).unwrap()) == [server]
    });
}
