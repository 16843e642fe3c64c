//! The annotation `keep`: the load balancer outlasts its Services, and is adopted again by its name.

use crate::sync::external::{allow, as_it_is, create_as_terraform};
use crate::sync::killed::{Scenario, killed_at_each_write};
use crate::sync::shared::EDGE;
use crate::sync::world::{
    CLUSTER_UID, Cluster, HCLOUD, PROFILES, SERVICE_UID, World, id, len, targets, text,
};
use serde_json::{Value, json};

const KEEP: &str = "ccm-from-scratch/keep";
const YES: (&str, &str) = ("keep", "true");
const DELETE_ORPHANS: &str = "--delete-orphaned-load-balancers";

fn is_kept(balancer: &Value, of: &str) -> bool {
    let labels = balancer["labels"].as_object().unwrap();
    let has_uid = labels.contains_key(SERVICE_UID);
    len(&balancer["services"]) == 0
        && targets(balancer).is_empty()
        && !has_uid
        && labels.get(KEEP).is_some_and(|value| value == of)
        && labels.contains_key(CLUSTER_UID)
        && labels.len() == 2
}

fn list(world: &World) -> String {
    let ran = world.ccm(&["lb", "list"]).with_code(0);
    ran.stdout
}

#[test]
fn a_kept_load_balancer_stays_and_is_adopted_again_by_its_name() {
    for (profile, ends) in PROFILES.into_iter().zip([true, false]) {
        let world = World::new(1);
        let flags = &[profile, DELETE_ORPHANS];
        world.create("web", &[YES, ("name", "front")], &[80]);
        world.converge(flags);
        let front = id(&world.only_balancer());
        let addresses = world.addresses("web");
        assert_eq!(as_it_is(&world, front)["labels"][KEEP], "default.web");
        match ends {
            true => world.delete("web"),
            false => world.edit("web", |one| one["spec"]["type"] = json!("ClusterIP")),
        }
        world.converge(flags);
        let kept = as_it_is(&world, front);
        assert!(is_kept(&kept, "default.web"), "{kept:#}");
        if ends {
            assert_eq!(world.service("web"), None);
        }
        // The load balancer is no orphan, and no other Service gets it without asking.
        assert!(!list(&world).contains("orphan"));
        world.create("other", &[], &[80]);
        world.converge(flags);
        assert_eq!(as_it_is(&world, front), kept);
        let ran = world.ccm(&["lb", "list", "-o", "json"]);
        let found = &ran.json()["kept"][0];
        let expected = (&json!("LoadBalancer"), &json!(front));
        assert_eq!((&found["kind"], &found["id"]), expected);
        let line = format!("load balancer \"front\" ({front}), at {}", addresses[0]);
        assert!(list(&world).contains(&line), "{}", list(&world));
        let ran = world.ccm(&["doctor", "-o", "json"]);
        ran.prints(
            "ccm keeps these objects, because deleted Services asked for this: load balancer ",
        );

        let uid = world.create("again", &[("name", "front")], &[443]);
        world.converge(flags);
        let now = as_it_is(&world, front);
        assert_eq!(now["labels"][SERVICE_UID], json!(uid));
        assert!(now["labels"][KEEP].is_null(), "{}", now["labels"]);
        assert_eq!(world.addresses("again"), addresses);
        assert_eq!(world.balancers().len(), 2);
        world.assert_nothing_refused();
    }
}

#[test]
fn a_kept_load_balancer_is_not_adopted_from_another_namespace() {
    let world = World::new(1);
    world.create("web", &[YES, ("name", "front")], &[80]);
    world.converge(&[]);
    world.delete("web");
    world.converge(&[]);
    let kept = world.only_balancer();
    world.create_namespace("hostile");
    world.create("hostile/web", &[("name", "front")], &[80]);
    let ran = world.once(&[]).with_code(1);
    ran.warns("which is in another namespace");
    assert_eq!(world.only_balancer(), kept);
}

/// The label is there before the deletion, so that one which we do not see finds it.
#[test]
fn a_kept_load_balancer_of_a_service_deleted_by_force_is_no_orphan() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.converge(&[]);
    world.annotate("web", "keep", Some("true"));
    world.converge(&[]);
    world.remove_finalizers("web");
    world.delete("web");
    let before = as_it_is(&world, id(&world.only_balancer()));
    world.converge(&[DELETE_ORPHANS]);
    assert_eq!(as_it_is(&world, id(&before)), before);
    assert!(list(&world).contains("Kept"), "{}", list(&world));
}

/// The last value of the annotation decides, and without it the label. A value that can't be read keeps
/// the load balancer.
#[test]
fn the_keep_annotation_at_the_deletion_decides() {
    let cases = [
        (Some("true"), None, true),
        (Some("true"), Some("false"), false),
        (None, Some("true"), true),
        (None, Some("maybe"), true),
        (None, Some("false"), false),
        (None, None, false),
    ];
    for (before, at_end, stays) in cases {
        let world = World::new(1);
        let first = before.map(|value| ("keep", value));
        world.create("web", first.as_slice(), &[80]);
        world.converge(&[]);
        world.annotate("web", "keep", at_end);
        world.delete("web");
        world.converge(&[]);
        let all = world.balancers();
        assert_eq!(all.len(), usize::from(stays), "{before:?}, {at_end:?}");
        assert!(all.iter().all(|one| is_kept(one, "default.web")), "{all:?}");
    }
    // Without the annotation the label is removed, and the load balancer is deleted with its Service.
    let world = World::new(1);
    world.create("web", &[YES], &[80]);
    world.converge(&[HCLOUD]);
    world.annotate("web", "keep", None);
    world.converge(&[HCLOUD]);
    assert!(world.only_balancer()["labels"][KEEP].is_null());
    let mark = world.mark();
    world.converge(&[HCLOUD]);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    world.delete("web");
    world.converge(&[HCLOUD]);
    assert_eq!(world.balancers().len(), 0);
}

/// The oldest Service of a group decides, and it counts when the last one leaves. An external one has no such label.
#[test]
fn a_kept_load_balancer_of_a_group_stays_after_the_last_service() {
    let world = World::new(1);
    world.converge(&[]);
    let edge = create_as_terraform(&world, "edge-lb");
    allow(&world, edge, Some("default"));
    let before = as_it_is(&world, edge);
    world.create("old", &[EDGE, YES], &[80]);
    world.create("young", &[EDGE, ("keep", "true")], &[81]);
    world.create("external", &[("external", "edge-lb"), YES], &[82]);
    world.converge(&[]);
    let group = world.balancers().into_iter().find(|one| id(one) != edge);
    let shared = id(&group.unwrap());
    assert_eq!(as_it_is(&world, shared)["labels"][KEEP], "default.edge");
    for name in ["old", "external"] {
        world.delete(name);
    }
    world.converge(&[]);
    assert_eq!(as_it_is(&world, edge)["labels"], before["labels"]);
    assert_eq!(len(&as_it_is(&world, shared)["services"]), 1);
    world.delete("young");
    world.converge(&[]);
    let kept = as_it_is(&world, shared);
    assert!(is_kept(&kept, "default.edge"), "{kept:#}");
    let name = text(&kept["name"]);
    world.create("new", &[EDGE, ("name", &name)], &[80]);
    world.converge(&[]);
    assert_eq!(world.balancers().len(), 2);
    assert!(as_it_is(&world, shared)["labels"][KEEP].is_null());
}

#[test]
fn a_load_balancer_is_kept_when_the_daemon_is_killed_at_any_write() {
    killed_at_each_write(Scenario {
        before: |world| drop(world.create("web", &[YES], &[80, 443])),
        change: |world| world.delete("web"),
        is_done: |world| {
            world.service("web").is_none() && is_kept(&world.only_balancer(), "default.web")
        },
    });
}

#[test]
fn a_kept_load_balancer_is_adopted_when_the_daemon_is_killed_at_any_write() {
    killed_at_each_write(Scenario {
        before: |world| {
            world.create("web", &[YES, ("name", "front")], &[80]);
            world.converge(&[]);
            world.delete("web");
        },
        change: |world| drop(world.create("new", &[("name", "front")], &[443])),
        is_done: |world| {
            world.has_address("new") && world.only_balancer()["labels"][KEEP].is_null()
        },
    });
}
