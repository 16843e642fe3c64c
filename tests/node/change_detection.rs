//! How the daemon notices that a node changed, and how little it reads for that. The binary runs against the sandbox.

use crate::common::library::SandboxAccess;
use crate::common::steady_state::{NO_REFRESH, Read, SteadyState, is_table, read};
use crate::common::{
    self, Cluster, STALE_CACHE, is_lease, needs_simulation, run_in_parallel, simulated_cluster,
    wait_until,
};
use ccm::cache::{Apis, Poll};
use ccm::kube::ReadFrom;
use ccm::provider::clock;
use sandbox::calls::Call;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_daemon_without_work_reads_only_tables() {
    let world = SteadyState::new(3, NO_REFRESH);
    world.wait_for_polls(20);
    let calls = world.calls();
    let others: Vec<&Call> = calls
        .iter()
        .filter(|call| !is_lease(&call.path) && read(call) != Some(Read::Table))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    for call in calls.iter().filter(|call| read(call) == Some(Read::Table)) {
        let expected = Some("application/json;as=Table;v=v1;g=meta.k8s.io");
        assert_eq!(call.header("accept"), expected);
        let query = [("limit", "500"), ("includeObject", "None"), ("resourceVersion", "0")];
        let expected = query.map(|(_, value)| Some(value));
        assert_eq!(query.map(|(name, _)| call.query(name)), expected);
    }
}

/// The version of a list changes with every write of such an object, and the version of the cluster with any write. The
/// list may still be the same, and then it is not parsed again.
#[test]
fn an_unchanged_list_is_the_same_list_and_each_change_makes_a_new_one() {
    let sandbox = simulated_cluster(3);
    let place = SandboxAccess::new(&sandbox);
    let apis = place.world(&place.token(), None);
    let cluster = sandbox.cluster();
    let create = |name| sandbox.create(name, &[], &[80]);
    create("one");
    let services = || {
        let listed = apis.load_balancer_services(Duration::ZERO, ReadFrom::Latest);
        listed.unwrap().value
    };
    let nodes = |apis: &Apis| {
        let poll = Poll {
            table_max_age: Duration::ZERO,
            whole_max_age: Duration::MAX,
            metadata_max_age: None,
        };
        apis.nodes.poll(poll).unwrap().value
    };
    let annotate = |name: &'static str| {
        sandbox.edit(name, |service| {
            service["metadata"]["annotations"]["team"] = json!("web");
        });
    };
    let is_ready = |status: &'static str| {
        sandbox.set_ready("worker-2", status);
    };
    let write_elsewhere = || {
        let object = json!({ "metadata": { "name": "elsewhere", "namespace": "default" } });
        cluster.create("secrets", Some("default"), object);
    };
    let mut before = (services(), nodes(&apis));
    // Each step has an action, and says whether it changes the Services and the nodes.
    let steps: [(&str, &dyn Fn(), bool, bool); 7] = [
        ("nothing", &|| (), false, false),
        ("a write elsewhere", &write_elsewhere, false, false),
        ("a Service changes", &|| annotate("one"), true, false),
        ("one more", &|| drop(create("two")), true, false),
        ("one less", &|| sandbox.delete("one"), true, false),
        ("a node is not ready", &|| is_ready("False"), false, true),
        ("and ready again", &|| is_ready("True"), false, true),
    ];
    for (what, step, other_services, other_nodes) in steps {
        step();
        let after = (services(), nodes(&apis));
        assert_eq!(!Arc::ptr_eq(&before.0, &after.0), other_services, "{what}");
        assert_eq!(!Arc::ptr_eq(&before.1, &after.1), other_nodes, "{what}");
        before = after;
        let again = (services(), nodes(&apis));
        assert!(Arc::ptr_eq(&before.0, &again.0) && Arc::ptr_eq(&before.1, &again.1), "{what}");
    }
    assert!(before.1.iter().all(|node| node.is_ready()));
    assert_eq!(before.0.len(), 1);
}

/// The metadata of all nodes is most of what is read at rest. It is read again only after the list of nodes got another
/// version.
#[test]
fn metadata_of_nodes_are_read_again_only_after_a_node_changed() {
    let sandbox = simulated_cluster(3);
    if needs_simulation(&sandbox, "nodes that only this test changes") {
        return;
    }
    let place = SandboxAccess::new(&sandbox);
    let apis = place.world(&place.token(), None);
    let poll = |metadata_max_age| {
        let max = Duration::MAX;
        let poll = Poll { table_max_age: Duration::ZERO, whole_max_age: max, metadata_max_age };
        apis.nodes.poll(poll).unwrap().value
    };
    let tables =
        |include: &str| sandbox.calls().count(|call| call.query("includeObject") == Some(include));
    let label = |value: &str| {
        sandbox.edit_node("worker-2", |node| node["metadata"]["labels"]["team"] = json!(value));
    };
    let team = |nodes: &[Arc<ccm::kube::KubeNode>]| {
        let label = nodes[1].metadata.labels.get("team");
        label.map(str::to_owned)
    };
    let now = Some(Duration::ZERO);
    poll(None);
    poll(now);
    assert_eq!(tables("Metadata"), 1);
    // The poll between shows the version of the list for the first time.
    poll(None);
    for _ in 0..3 {
        poll(now);
    }
    assert_eq!(tables("Metadata"), 1, "nothing has changed");
    label("a");
    assert_eq!(team(&poll(now)).as_deref(), Some("a"));
    assert_eq!(tables("Metadata"), 2);
    // Once more: the change comes after a poll that has seen none.
    poll(now);
    poll(None);
    label("b");
    let before = tables("None");
    assert_eq!(team(&poll(now)).as_deref(), Some("b"));
    assert_eq!(tables("None"), before + 1, "the small table has shown another version");
}

/// Three pages of servers are three calls, and 120 calls an hour may be used. So a refresh is made every 90 s instead
/// of every 10 s.
#[test]
fn refreshes_are_less_frequent_in_a_large_project() {
    let world = SteadyState::new(1, "--node-status-update-frequency=10s");
    for n in 0..110 {
        let name = format!("other-{n}");
        world.sandbox.create_server(&name);
    }
    let lists = || {
        let calls = world.calls();
        calls.iter().filter(|call| call.path == "/v1/servers").count() / 3
    };
    wait_until("a list of all", || lists() >= 1);
    let (before, begun) = (lists(), clock::now());
    world.wait_for_polls(60);
    let seconds = common::seconds_since(&world.sandbox, begun);
    let at_most = (seconds / 90.0).ceil() as usize + 1;
    let count = lists() - before;
    assert!((1..=at_most).contains(&count), "{count} in {seconds:.0} s");
}

/// Each case makes one change. It says what is read by name for the change, and how often at most.
#[test]
fn each_changed_node_is_read_by_name_at_the_next_poll() {
    type Change = fn(&SteadyState);
    #[rustfmt::skip] // A case is a paragraph.
    let cases: Vec<(&str, Change, &str)> = vec![
        ("not ready", |world| world.set_ready("worker-2", "Unknown"), "worker-2"),
        ("no condition", |world| {
            world.remove_conditions("worker-2");
        }, "worker-2"),
        ("deleted", |world| { world.delete_node("worker-2"); }, "worker-2"),
        ("joined", |world| { world.join_node("late"); }, "late"),
    ];
    run_in_parallel(cases, |(name, change, node)| {
        let mut world = SteadyState::new(3, NO_REFRESH);
        world.reset_count();
        change(&world);
        wait_until(name, || world.by_name(node) > 0);
        // The look that was under way may have missed it.
        let reads = world.reads();
        let tables = reads.iter().take_while(|read| **read == Read::Table).count();
        assert!(tables <= 2, "{name}: {reads:?}");
        assert_eq!(reads[tables], Read::ByName(node.into()), "{name}");
        world.wait_for_polls(5);
        let others = world.reads().into_iter().filter(|read| !matches!(read, Read::Table));
        let others: Vec<Read> = others.filter(|read| *read != Read::ByName(node.into())).collect();
        assert_eq!(others, [], "{name}: {}", world.daemon.log());
        // The node is read once for the change. A node that is not ready is also read periodically. The look for a node
        // that joined may come between its registration and its first report, and then there is another one.
        let at_most = match name {
            "joined" => 2,
            _ if name.starts_with("no") => 3,
            _ => 1,
        };
        assert!(world.by_name(node) <= at_most, "{name}: {} times", world.by_name(node));
    });
}

#[test]
fn a_joined_node_is_initialised_and_a_cordoned_one_is_ready() {
    let world = SteadyState::new(2, NO_REFRESH);
    world.edit_node("worker-1", |node| {
        node["spec"]["unschedulable"] = json!(true);
    });
    world.join_node("late");
    world.wait_for_node("late");
    world.wait_for_polls(5);
    // A look may come between its registration and its first report.
    assert!((1..=2).contains(&world.by_name("late")));
    assert_eq!((world.whole(), world.by_name("worker-1")), (0, 0));
}

#[test]
fn more_than_ten_changed_nodes_are_read_with_one_list() {
    let mut world = SteadyState::new(12, NO_REFRESH);
    if needs_simulation(&world.sandbox, STALE_CACHE) {
        return;
    }
    let cluster = std::sync::Arc::clone(world.sandbox.cluster());
    cluster.freeze_cache(true);
    for n in 1..=12 {
        world.remove_conditions(&format!("worker-{n}"));
    }
    world.reset_count();
    cluster.freeze_cache(false);
    wait_until("a list", || world.whole() > 0);
    world.wait_for_polls(2);
    let reads = world.reads();
    let named = reads.iter().filter(|read| matches!(read, Read::ByName(_))).count();
    assert_eq!(named, 0, "{reads:?}");
    let tables = reads.iter().take_while(|read| **read == Read::Table).count();
    assert!(tables <= 2, "{reads:?}");
}

/// A table shows no label, but the slow refresh does.
#[test]
fn a_change_that_a_table_does_not_show_is_seen_at_the_refresh() {
    let world = SteadyState::new(2, "--node-status-update-frequency=20s");
    world.edit_node("worker-1", |node| {
        node["metadata"]["labels"]["beta.kubernetes.io/instance-type"] = json!("cx99");
    });
    wait_until("the stable label to follow", || {
        world.node("worker-1")["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "cx99"
    });
    wait_until("more refreshes", || world.whole() >= 4);
    let reads = world.reads();
    // Four looks to a refresh, and not more than two refreshes running late.
    assert!(world.whole() * 2 <= reads.len(), "{reads:?}");
    assert_eq!(world.by_name("worker-1"), 0, "{reads:?}");
}

/// A table shows no taint either, so a node that is not ready is read again periodically.
#[test]
fn a_node_that_is_not_ready_is_read_at_its_own_pace() {
    let world = SteadyState::new(2, NO_REFRESH);
    let servers = world.servers();
    world.sandbox.cloud().set_power(servers[0]["id"].as_u64().unwrap(), false);
    world.set_ready("worker-1", "Unknown");
    for _ in 0..2 {
        wait_until("the taint", || world.is_tainted("worker-1"));
        world.edit_node("worker-1", |node| {
            node["spec"]["taints"] = json!([]);
        });
    }
    wait_until("the taint again", || world.is_tainted("worker-1"));
    world.set_ready("worker-1", "True");
    wait_until("the taint to go", || !world.is_tainted("worker-1"));
    assert_eq!(world.whole(), 0);
}

/// Commands of a person read whole objects from etcd.
#[test]
fn one_shot_commands_read_no_table() {
    let sandbox = simulated_cluster(2);
    for words in [
        &["run", "--once"][..],
        &["run", "--dry-run"],
        &["node", "list"],
        &["node", "inspect", "worker-1"],
        &["node", "sync"],
        &["node", "sync", "--dry-run"],
    ] {
        let mark = sandbox.mark();
        assert_eq!(sandbox.ccm(words).code, 0, "{words:?}");
        let calls = sandbox.calls().calls_since(mark);
        let lists = calls.iter().filter(|call| call.path == "/api/v1/nodes");
        let lists: Vec<&Call> = lists.collect();
        assert!(!lists.is_empty(), "{words:?}");
        for list in lists {
            let is_latest = list.query("resourceVersion").is_none();
            assert!(!is_table(list) && is_latest, "{words:?}: {list}");
        }
    }
}
