//! A target that works is not taken away for one that can't come.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, OFTEN, World, targets};
use serde_json::{Value, json};

const PRIVATE: &str = "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP";
const CLOSED: &str = "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK";

/// The interface stays off when nobody asks for it any more, and then no public address is a way in.
#[test]
fn what_only_the_private_way_reaches_stays_when_nobody_asks_for_it_any_more() {
    let mut world = World::with_network(1);
    world.settle(&[]);
    let by_annotation = world.create(
        "annotated",
        &[
            ("use-private-ip", "true"),
            ("disable-public-network", "true"),
        ],
        &[80],
    );
    let plain = world.env.clone();
    world.env = common::with(plain.clone(), &[(PRIVATE, "true"), (CLOSED, "true")]);
    let by_variable = world.create("plain", &[], &[80]);
    world.settle(&[]);
    world.env = plain;
    world.annotate("annotated", "use-private-ip", None);
    world.annotate("annotated", "disable-public-network", None);
    let mark = world.mark();
    let ran = world.once(&[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for name in ["annotated", "plain"] {
        let says = ["public interface", "is off", "disable-public-network"];
        world.tells(name, "SyncLoadBalancerFailed", &says);
    }
    let daemon = world.daemon(&[OFTEN]);
    world.ticks(4);
    assert_eq!(
        world.cloud_writes(mark),
        Vec::<String>::new(),
        "{}",
        daemon.log()
    );
    for uid in [by_annotation, by_variable] {
        assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 1);
    }
    // As it is told.
    world.annotate("annotated", "disable-public-network", Some("false"));
    world.annotate("plain", "use-private-ip", Some("true"));
    let ran = common::ccm(&world.env, &["lb", "sync", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Its server is not in the Network: the others turn, and it stays reached as it was, and is told.
#[test]
fn one_node_outside_the_network_does_not_keep_the_others_from_it() {
    let world = World::with_network(3);
    world.settle(&[]);
    let uid = world.create("web", &[], &[80]);
    world.settle(&[]);
    let cloud = world.cloud();
    let servers = cloud.servers(world.project());
    let second = servers
        .iter()
        .find(|one| one["name"] == "worker-2")
        .unwrap();
    let second = second["id"].as_u64().unwrap();
    let network = world.network().unwrap();
    let detach = |path: &str| {
        world.act(
            &format!("/servers/{second}/actions/{path}"),
            &json!({"network": network}),
        );
        let servers = || cloud.servers(world.project());
        let of_it = |one: &&Value| one["id"] == second;
        let is_in = || {
            !servers().iter().find(of_it).unwrap()["private_net"]
                .as_array()
                .unwrap()
                .is_empty()
        };
        wait_until(path, || is_in() == (path == "attach_to_network"));
    };
    detach("detach_from_network");
    world.annotate("web", "use-private-ip", Some("true"));
    let ways = || {
        let balancer = world.of_uid(&uid).unwrap();
        let targets = balancer["targets"].as_array().unwrap().iter();
        let mut ways: Vec<(bool, bool)> = targets
            .map(|target| {
                (
                    target["server"]["id"] == second,
                    target["use_private_ip"] == true,
                )
            })
            .collect();
        ways.sort_unstable();
        ways
    };
    let says = [
        "worker-2",
        "no address in Network",
        "still get traffic by the public address",
    ];
    let sync = common::ccm(&world.env, &["lb", "sync", "default/web", "--dry-run"]);
    assert!(!sync.stdout.contains("remove target worker-2"), "{sync:?}");
    assert!(
        says.iter().all(|part| sync.stdout.contains(part)),
        "{sync:?}"
    );
    let daemon = world.daemon(&[OFTEN]);
    wait_until("the others", || {
        ways() == [(false, true), (false, true), (true, false)]
    });
    says.iter().for_each(|part| daemon.logs(part));
    let mark = world.mark();
    world.ticks(4);
    assert_eq!(
        world.cloud_writes(mark),
        Vec::<String>::new(),
        "{}",
        daemon.log()
    );
    let finding = world.inspect("web", &[])["findings"].to_string();
    assert!(says.iter().all(|part| finding.contains(part)), "{finding}");
    // As soon as it is there, it turns too.
    detach("attach_to_network");
    wait_until("the last", || {
        ways() == [(false, true), (false, true), (true, true)]
    });
    assert_eq!(targets(&world.of_uid(&uid).unwrap()).len(), 3);
}
