//! Old lists, an API that fails at the wrong moment, and changes that take long.

use crate::common::{self, Simulate, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, World, targets};
use sandbox::Half;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

#[test]
fn an_old_list_of_services_does_no_harm() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::LAGS) {
        return;
    }
    let daemon = world.daemon(&[OFTEN]);
    world.create("gone", &[], &[80]);
    world.create("changed", &[("algorithm-type", "least_connections")], &[80]);
    let uid = world.create("retyped", &[], &[80]);
    for name in ["gone", "changed", "retyped"] {
        world.up(name);
    }
    world.cluster().freeze_cache(true);
    world.delete("gone");
    let sync = common::ccm(&world.env, &["lb", "sync"]);
    assert_eq!(sync.code, 0, "{sync:?}");
    wait_until("its end", || world.service("gone").is_none());
    world.edit("retyped", |service| {
        service["spec"]["type"] = json!("ClusterIP")
    });
    world.annotate("changed", "algorithm-type", None);
    let sync = common::ccm(&world.env, &["lb", "sync", "--yes"]);
    assert_eq!(sync.code, 0, "{sync:?}");
    wait_until("both", || world.of_uid(&uid).is_none());
    world.ticks(1);
    // The daemon still sees three that want what they wanted.
    let mark = world.mark();
    world.ticks(10);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    let left = world.balancers();
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["algorithm"]["type"], "round_robin");
    world.cluster().freeze_cache(false);
    world.create("new", &[], &[80]);
    world.up("new");
}

/// It comes up when the list is long out of date: what the list shows is read again before anything is written for it.
#[test]
fn nothing_is_made_for_what_only_an_old_list_shows() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::LAGS) {
        return;
    }
    world.settle(&[]);
    world.create("gone", &[], &[80]);
    world.create("changed", &[("algorithm-type", "least_connections")], &[80]);
    world.settle(&[]);
    world.cluster().freeze_cache(true);
    world.delete("gone");
    world.annotate("changed", "algorithm-type", None);
    let sync = common::ccm(&world.env, &["lb", "sync", "--yes"]);
    assert_eq!(sync.code, 0, "{sync:?}");
    assert_eq!(world.service("gone"), None);
    let mark = world.mark();
    let daemon = world.daemon(&[OFTEN]);
    world.ticks(4);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    assert!(!world.cloud_calls(mark).is_empty());
    assert_eq!(world.balancers().len(), 1);
}

/// Each look at what an old list shows would cost a list of load balancers, at every tick.
#[test]
fn an_old_service_in_the_cache_is_looked_at_once() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::LAGS) {
        return;
    }
    world.settle(&[]);
    for name in ["stays", "gone", "retyped"] {
        world.create(name, &[], &[80]);
    }
    // It shows them as they are now, whatever is written to them.
    world.cluster().freeze_cache(true);
    let daemon = world.daemon(&[NO_RESYNC]);
    for name in ["stays", "gone", "retyped"] {
        world.up(name);
    }
    world.delete("gone");
    world.edit("retyped", |service| {
        service["spec"]["type"] = json!("ClusterIP")
    });
    let sync = common::ccm(&world.env, &["lb", "sync"]);
    assert_eq!(sync.code, 0, "{sync:?}");
    wait_until("their ends", || world.balancers().len() == 1);
    world.ticks(3);
    let mark = world.mark();
    world.ticks(10);
    let calls = world.cloud_calls(mark);
    assert!(calls.is_empty(), "{calls:#?}\n{}", daemon.log());
    // What somebody changes is seen as soon as the list shows it.
    world.annotate("stays", "algorithm-type", Some("least_connections"));
    world.cluster().freeze_cache(false);
    wait_until("its algorithm", || {
        world.balancers()[0]["algorithm"]["type"] == "least_connections"
    });
}

#[test]
fn an_old_list_of_nodes_takes_no_target_away() {
    const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    let world = World::new(2);
    if common::needs_simulation(&world.sandbox, common::LAGS) {
        return;
    }
    world.settle(&[]);
    let cluster = world.cluster();
    let set = |on: bool| {
        cluster.edit("nodes", None, "worker-2", |node| {
            let labels = node["metadata"]["labels"].as_object_mut().unwrap();
            match on {
                true => drop(labels.insert(EXCLUDED.into(), json!("true"))),
                false => drop(labels.remove(EXCLUDED)),
            }
        })
    };
    set(true);
    let uid = world.create("web", &[], &[80]);
    world.settle(&[]);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 1);
    cluster.freeze_cache(true);
    set(false);
    assert_eq!(common::ccm(&world.env, &["lb", "sync"]).code, 0);
    assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 2);
    // While a pass reads the Service again, the others look at nodes, in the cache.
    let slow = Rule::new(Effect::Slow(Duration::from_millis(200)))
        .half(Half::Kubernetes)
        .path("/api/v1/namespaces/default/services");
    world.faults().add(slow);
    let mark = world.mark();
    let flags = [
        OFTEN,
        "--node-status-update-frequency=1s",
        "--node-sync-interval=1s",
    ];
    let daemon = world.daemon(&flags);
    world.ticks(12);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 2);
}

#[test]
fn a_resync_that_failed_is_not_left_to_the_next() {
    let world = World::new(1);
    world.settle(&[]);
    let uid = world.create("web", &[], &[80]);
    world.settle(&[]);
    let right = world.of_uid(&uid).unwrap();
    let id = right["id"].as_u64().unwrap();
    let cloud = world.cloud();
    // Every four seconds, scaled.
    let daemon = world.daemon(&["--load-balancer-resync-period=200s"]);
    world.ticks(3);
    cloud.edit_load_balancer(id, |one| {
        one["algorithm"]["type"] = json!("least_connections")
    });
    // What is proposed is read; what it is made on is not, with an answer that is not asked for again at once.
    let fails = Rule::new(Effect::kubernetes_status(422, "Invalid", "not now"))
        .half(Half::Kubernetes)
        .method("GET")
        .path("/api/v1/namespaces/default/services")
        .times(1);
    let fails = world.faults().add(fails);
    wait_until("the resync that fails", || world.faults().hits(fails) == 1);
    common::wait_at_most(Duration::from_secs(2), "the algorithm as it was", || {
        cloud.load_balancer(id)["algorithm"] == right["algorithm"]
    });
    drop(daemon);
}

#[test]
fn many_short_changes_are_no_action_that_runs_too_long() {
    let world = World::with_network(24);
    world.settle(&[]);
    // A server is removed and added again, each of which is waited for.
    world.create("web", &[], &[80]);
    world.settle(&[]);
    world.annotate("web", "use-private-ip", Some("true"));
    let cloud = world.cloud();
    for command in ["add_target", "remove_target"] {
        // A tenth of a second each; 2.4 s are the limit for one.
        cloud.set_action_duration(command, Some(Duration::from_secs(5)));
    }
    let ran = world.once(&[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let private = world.balancers()[0]["targets"].as_array().unwrap().clone();
    assert_eq!(private.len(), 24);
    assert!(
        private
            .iter()
            .all(|target| target["use_private_ip"] == true)
    );
    assert_eq!(
        world.told("web", "UpdateLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

/// Eight servers are refused for one cause: that is one trouble, and one line can be read.
#[test]
fn what_is_refused_of_several_targets_is_told_once() {
    let world = World::new(8);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[("node-selector", "role=edge")], &[80]);
    world.up("web");
    let refuses = Effect::hetzner_error(422, "missing_ipv4", "it has no address");
    let refuses = Rule::new(refuses)
        .half(Half::Hetzner)
        .path("/v1/load_balancers/*/actions/add_target");
    world.faults().add(refuses);
    world.annotate("web", "node-selector", None);
    let all = "(and 7 more like this)";
    world.tells("web", "UpdateLoadBalancerFailed", &[all]);
    for message in world.told("web", "UpdateLoadBalancerFailed") {
        assert_eq!(message.matches("it has no address").count(), 1, "{message}");
    }
}

#[test]
fn an_action_that_never_ends_holds_up_only_its_own() {
    let world = World::new(1);
    world.settle(&[]);
    world.create("web", &[], &[80]);
    world.create("other", &[], &[80]);
    world.settle(&[]);
    world.annotate("web", "algorithm-type", Some("least_connections"));
    world
        .cloud()
        .set_action_duration("change_algorithm", Some(Duration::from_secs(100_000)));
    let ran = world.once(&[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    world.tells(
        "web",
        "SyncLoadBalancerFailed",
        &["algorithm", "still runs after 120 s"],
    );
    assert_eq!(
        world.told("other", "SyncLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

/// Each try is overtaken, as when a name is in use that no list shows. It must not be tried for ever without a report, nor
/// keep the comparison of all Services from its end.
#[test]
fn a_service_that_is_overtaken_again_and_again_has_failed() {
    let world = World::new(1);
    let daemon = world.daemon(&[OFTEN]);
    let in_use = Effect::hetzner_error(409, "uniqueness_error", "name is already used");
    let in_use = Rule::new(in_use)
        .half(Half::Hetzner)
        .method("POST")
        .path("/v1/load_balancers");
    world.faults().add(in_use);
    world.create("clash", &[], &[80]);
    world.tells("clash", "SyncLoadBalancerFailed", &["5 plans"]);
    // As each one that failed it waits longer and longer.
    world.ticks(20);
    let mark = world.mark();
    world.ticks(20);
    let tries = world.cloud_writes(mark).len();
    assert!(tries <= 20, "{tries} in 20 ticks\n{}", daemon.log());
}

/// What little is left of an hour's calls is for nodes.
#[test]
fn with_few_calls_left_a_changed_service_waits_and_a_new_node_does_not() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    wait_until("a node", || common::all_initialised(&world.sandbox));
    let (cloud, project) = (world.cloud(), world.project());
    cloud.set_rate_limit(project, 3600, 20);
    world.join(ServerSpec {
        name: "late".into(),
        ..ServerSpec::default()
    });
    let is_initialised = |name| common::is_initialised(&common::node(&world.sandbox, name));
    wait_until("the late node", || is_initialised("late"));
    let mark = world.mark();
    world.create("web", &[], &[80]);
    daemon.logs("calls an hour remain in the project: Services and routes wait");
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    cloud.set_rate_limit(project, 3600, 3600);
    world.up("web");
}

/// New nodes, deletions, changed Services, refreshes: what comes later waits until more calls of the hour are left.
#[test]
fn the_fewer_calls_are_left_the_more_waits() {
    const SCALE: f64 = 0.2;
    let sandbox = common::builder()
        .nodes(2)
        .heartbeats(false)
        .scale(SCALE)
        .simulated();
    let env = common::with(
        common::env(&sandbox),
        &[
            ("CCM_TEST_TIME_SCALE", &SCALE.to_string()),
            ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
            ("HCLOUD_LOAD_BALANCERS_TYPE", "lb11"),
        ],
    );
    let world = World { sandbox, env };
    let daemon = world.daemon(&[NO_RESYNC, "--node-status-update-frequency=30s"]);
    // Set anew before each call: it is refilled fast here.
    let left = Arc::new(AtomicU32::new(0));
    let (cloud, project) = (world.cloud().clone(), world.project());
    let held = Arc::clone(&left);
    let hold = move |_: &Request| cloud.set_rate_limit(project, 3600, held.load(Ordering::Relaxed));
    let rule = Rule::new(Effect::before(hold)).half(Half::Hetzner);
    world.faults().add(rule);
    // Only by a call it is seen how many are left.
    let joins = |calls: u32, name: &str| {
        left.store(calls, Ordering::Relaxed);
        world.join(ServerSpec {
            name: name.into(),
            ..ServerSpec::default()
        });
        wait_until("a new node", || {
            common::is_initialised(&common::node(&world.sandbox, name))
        });
    };
    let mark = world.mark();
    let is_there = || world.cluster().get("nodes", None, "worker-2").is_some();
    let nothing_is_written = || {
        assert_eq!(
            world.cloud_writes(mark),
            Vec::<String>::new(),
            "{}",
            daemon.log()
        );
    };

    joins(40, "first");
    let lost = world.server_id("worker-2");
    world.cloud().delete_server(lost);
    world.kubelets().expire();
    world.create("web", &[], &[80]);
    joins(40, "second");
    assert!(is_there(), "a deletion waits\n{}", daemon.log());
    nothing_is_written();

    joins(100, "third");
    wait_until("a deletion", || !is_there());
    nothing_is_written();

    joins(250, "fourth");
    world.up("web");
    daemon.logs("this refresh can wait");
    joins(3600, "fifth");
    daemon.logs("refreshes go on");
}

/// A Service may want hundreds of writes.
#[test]
fn with_few_calls_left_the_rest_of_a_change_waits_and_a_new_node_does_not() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80, 443, 8080]);
    world.up("web");
    let (cloud, project) = (world.cloud().clone(), world.project());
    let is_begun = AtomicBool::new(false);
    let spend = move |request: &Request| {
        if request.method != "GET" || is_begun.load(Ordering::Relaxed) {
            is_begun.store(true, Ordering::Relaxed);
            cloud.set_rate_limit(project, 3600, 10);
        }
    };
    let rule = Rule::new(Effect::before(spend)).half(Half::Hetzner);
    let rule = world.faults().add(rule);
    let mark = world.mark();
    world.annotate("web", "health-check-interval", Some("20s"));
    wait_until("the first write", || !world.cloud_writes(mark).is_empty());
    world.join(ServerSpec {
        name: "late".into(),
        ..ServerSpec::default()
    });
    wait_until("the late node", || {
        common::is_initialised(&common::node(&world.sandbox, "late"))
    });
    assert_eq!(world.cloud_writes(mark).len(), 1, "{}", daemon.log());
    world.faults().remove(rule);
    let has_interval = |port: &Value| port["health_check"]["interval"] == 20;
    wait_until("the rest", || {
        let all = world.balancers();
        let ports = all
            .iter()
            .flat_map(|one| one["services"].as_array().into_iter().flatten());
        ports.filter(|port| has_interval(port)).count() == 3
    });
}
