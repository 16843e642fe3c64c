//! Whose load balancer it is: two clusters in one project, Services that were re-created.

use crate::common::{self, Daemon, wait_until};
use crate::world::{CLUSTER_UID, NO_RESYNC, SERVICE_UID, World, targets, text};
use serde_json::{Value, json};

/// What a test has that calls [`neighbour`].
pub const TWO_CLUSTERS: &str = "a second cluster";

/// Another cluster whose nodes and Services use the first one's project.
pub fn neighbour(world: &World) -> World {
    let mut other = World::new(0);
    let of_project = |name: &str| name == "HCLOUD_TOKEN" || name == "HCLOUD_ENDPOINT";
    let project = world.env.iter().filter(|(name, _)| of_project(name));
    let project: Vec<(&str, &str)> = project
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    other.env = common::with(other.env, &project);
    other
}

#[test]
fn two_clusters_of_one_name_in_one_project_live_side_by_side() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, TWO_CLUSTERS) {
        return;
    }
    let other = neighbour(&world);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let ours = world.create("web", &[], &[80]);
    world.up("web");
    let _neighbour = Daemon::start(&other.env, &[NO_RESYNC]);
    let theirs = other.create("web", &[], &[80]);
    wait_until("an address", || !other.addresses("web").is_empty());
    let (first, second) = (world.of_uid(&ours).unwrap(), world.of_uid(&theirs).unwrap());
    assert_eq!(first["name"], "kubernetes-default-web");
    let name = text(&second["name"]);
    assert!(name.starts_with("kubernetes-default-web-"), "{name}");
    assert_ne!(first["labels"][CLUSTER_UID], second["labels"][CLUSTER_UID]);
    assert_ne!(world.addresses("web"), other.addresses("web"));

    // By its name they do not get it either.
    other.annotate("web", "name", Some("kubernetes-default-web"));
    other.tells("web", "LoadBalancerNameTaken", &["kubernetes-default-web"]);
    other.create("thief", &[("name", "kubernetes-default-web")], &[80]);
    other.tells(
        "thief",
        "SyncLoadBalancerFailed",
        &["is taken", "says cluster", "choose another name"],
    );
    assert_eq!(other.addresses("thief"), Vec::<String>::new());
    assert_eq!(world.balancers().len(), 2);

    // What goes in one cluster stays in the other.
    other.delete("web");
    wait_until("its end", || other.service("web").is_none());
    assert_eq!(world.of_uid(&theirs), None);
    let again = world.of_uid(&ours).unwrap();
    assert_eq!(
        (&again["name"], targets(&again)),
        (&first["name"], targets(&first))
    );
    // With another name the thief gets one of its own.
    other.annotate("thief", "name", Some("honest"));
    wait_until("an address", || !other.addresses("thief").is_empty());
    assert_eq!(world.balancers().len(), 2);
}

#[test]
fn a_living_service_keeps_its_load_balancer() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let first = world.create("first", &[("name", "front")], &[80]);
    world.up("first");
    world.create("second", &[("name", "front")], &[80]);
    world.tells(
        "second",
        "SyncLoadBalancerFailed",
        &["front", &first, "choose another name"],
    );
    assert_eq!(world.balancers().len(), 1);
    // When that one goes, the name is free.
    world.delete("first");
    let balancer = world.up("second");
    assert_eq!(balancer["name"], "front");
    assert_eq!(world.balancers().len(), 1);
}

#[test]
fn two_that_ask_for_a_free_one_are_told_apart_before_and_after() {
    let world = World::new(1);
    world.settle(&[]);
    let (cloud, project) = (world.sandbox.cloud(), world.sandbox.project());
    let front = json!({"name": "front", "load_balancer_type": "lb11", "location": "fsn1"});
    cloud.create_load_balancer(project, front);
    let first = world.create("first", &[("name", "front")], &[80]);
    world.create("second", &[("name", "front")], &[80]);
    let dry = common::ccm(&world.env, &["lb", "sync", "--dry-run"]);
    assert_eq!(dry.code, 1, "{dry:?}");
    let adoptions = dry.stdout.matches("label hcloud-ccm/service-uid").count();
    assert_eq!(adoptions, 1, "{dry:?}");
    let says = "goes to Service default/first, which asks for it too";
    assert!(dry.stdout.contains(says), "{dry:?}");
    let sync = common::ccm(&world.env, &["lb", "sync"]);
    assert_eq!(sync.code, 1, "{sync:?}");
    assert!(world.of_uid(&first).is_some());
    world.tells("second", "SyncLoadBalancerFailed", &["is taken", &first]);
}

#[test]
fn a_recreated_service_keeps_its_address() {
    for name in [None, Some(("name", "front"))] {
        let world = World::new(1);
        let daemon = world.daemon(&[NO_RESYNC]);
        let annotations: Vec<_> = name.into_iter().collect();
        world.create("web", &annotations, &[80]);
        let first = world.up("web");
        let addresses = world.addresses("web");
        // The controller has read which Services there are while this was one of them.
        drop(daemon);
        let _daemon = world.daemon(&[NO_RESYNC]);
        world.ticks(1);
        let id = first["id"].as_u64().unwrap();
        let protect = |one: &mut Value| one["protection"]["delete"] = json!(true);
        world.sandbox.cloud().edit_load_balancer(id, protect);
        world.delete("web");
        wait_until("its end", || world.service("web").is_none());
        let second = world.create("web", &annotations, &[80]);
        world.up("web");
        assert_eq!(world.addresses("web"), addresses, "{name:?}");
        let balancers = world.balancers();
        assert_eq!(balancers.len(), 1, "{name:?}");
        assert_eq!(balancers[0]["labels"][SERVICE_UID], json!(second));
    }
}

/// Labels of a load balancer called `front` with one target, whether that is a node of ours, and whether it is taken
/// over.
type Case = (&'static [(&'static str, &'static str)], bool, bool);

#[rustfmt::skip] // A case is a line.
const CASES: &[Case] = &[
    (&[], false, true),
    (&[(SERVICE_UID, "gone")], true, true),
    (&[(SERVICE_UID, "gone")], false, false),
    (&[(CLUSTER_UID, "another")], true, false),
    (&[("team", "a")], true, true),
];

#[test]
fn one_of_the_name_is_taken_over_where_nobody_else_lives_in_it() {
    common::side_by_side(CASES.to_vec(), |(labels, ours, taken)| {
        let world = World::new(1);
        world.settle(&[]);
        let (cloud, project) = (world.sandbox.cloud(), world.sandbox.project());
        let stranger = sandbox::hetzner::ServerSpec {
            name: "stranger".into(),
            ..Default::default()
        };
        let stranger = cloud.create_server(project, stranger);
        let node = cloud.servers(project)[0]["id"].as_u64().unwrap();
        let server = if ours { node } else { stranger };
        let map: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let id = cloud.create_load_balancer(
            project,
            json!({
                "name": "front", "load_balancer_type": "lb11", "location": "fsn1", "labels": map,
                "targets": [{"type": "server", "server": {"id": server}}],
            }),
        );
        let before = cloud.load_balancer(id);
        let uid = world.create("web", &[("name", "front")], &[80]);
        let ran = world.once(&[]);
        assert_eq!(world.balancers().len(), 1, "{labels:?}");
        if taken {
            assert_eq!(ran.code, 0, "{labels:?} {ran:?}");
            let after = world.of_uid(&uid).unwrap();
            assert_eq!(
                (after["id"].as_u64(), targets(&after)),
                (Some(id), vec![node]),
                "{labels:?}"
            );
            assert_eq!(after["labels"]["team"], before["labels"]["team"]);
        } else {
            assert_eq!(ran.code, 1, "{labels:?} {ran:?}");
            assert_eq!(cloud.load_balancer(id), before, "{labels:?}");
            world.tells(
                "web",
                "SyncLoadBalancerFailed",
                &["front", "is taken", "choose another name"],
            );
            assert_eq!(world.addresses("web"), Vec::<String>::new());
        }
    });
}
