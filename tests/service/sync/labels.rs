//! Labels that users ask for, and protection against deletion.

use crate::common::{self, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, World, id};
use serde_json::json;

/// The labels are set with one write, which replaces the whole map. A label that an operator added just before stays.
#[test]
fn labels_are_set_beside_foreign_labels_and_stay() {
    let mut world = World::new(1);
    let default = ("HCLOUD_LOAD_BALANCERS_LABELS", "team=all,cost=1");
    world.set(&[default]);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let mark = world.mark();
    let uid = world.create("web", &[("labels", "team=web")], &[80]);
    let id = id(&world.up("web"));
    world.ticks(1);
    assert_eq!(world.cloud_writes(mark), ["POST /load_balancers"]);
    let label = |name: &str| world.of_uid(&uid).unwrap()["labels"][name].clone();
    assert_eq!((label("team"), label("cost")), (json!("web"), json!("1")));

    world.edit_balancer(id, |one| one["labels"]["operator"] = json!("me"));
    let mark = world.mark();
    world.annotate("web", "labels", Some("example.com/cost=42"));
    wait_until("the label", || label("example.com/cost") == "42");
    world.ticks(1);
    let expected = [format!("PUT /load_balancers/{id}")];
    assert_eq!(world.cloud_writes(mark), expected);
    let expected = (json!("me"), json!("all"));
    assert_eq!((label("operator"), label("team")), expected);
    let mark = world.mark();
    world.annotate("web", "labels", None);
    world.ticks(3);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());

    world.annotate("web", "labels", Some("ccm-from-scratch/created=true"));
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["are reserved"]);
    assert_eq!(label("example.com/cost"), "42");
    // Our labels show that the load balancer was made for the Service, so it is deleted with the Service.
    world.delete("web");
    wait_until("its end", || world.balancers().is_empty());
}

/// These keys tell programs what they own. The rest of the annotation is applied, and the Service is synced.
#[test]
fn labels_of_other_programs_are_neither_written_nor_changed() {
    let keys = [
        "caph-cluster-prod",
        "kubernetes.io/cluster",
        "node.kubernetes.io/role",
        "hcloud/node-group",
        "hcloud-ccm/service-uid",
    ];
    common::run_in_parallel(keys.to_vec(), |key| {
        let world = World::new(1);
        world.converge(&[]);
        let asked = format!("team=web,{key}=owned");
        let uid = world.create("web", &[("labels", &asked)], &[80]);
        world.converge(&[]);
        let made = world.of_uid(&uid).unwrap();
        assert_eq!(made["labels"]["team"], "web", "{key}");
        assert_ne!(made["labels"][key], "owned", "{key}");
        assert_eq!(made["targets"].as_array().unwrap().len(), 1, "{key}");
        world.wait_for_event("web", "AnnotationWithoutEffect", &["labels", key]);

        // The label was written by the program, or before this rule existed. It stays as it is, whatever
        // the annotation says.
        if key == "hcloud-ccm/service-uid" {
            return;
        }
        let id = made["id"].as_u64().unwrap();
        let before = |one: &mut serde_json::Value| one["labels"][key] = json!("before");
        world.edit_balancer(id, before);
        for labels in [Some(asked.as_str()), Some("team=shop"), None] {
            world.annotate("web", "labels", labels);
            world.converge(&[]);
            let labels = &world.of_uid(&uid).unwrap()["labels"];
            assert_eq!(labels[key], "before", "{key}");
        }
        assert_eq!(world.of_uid(&uid).unwrap()["labels"]["team"], "shop", "{key}");
    });
}

#[test]
fn protection_is_set_unset_and_not_lifted_when_the_service_is_deleted() {
    let world = World::new(1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[("deletion-protection", "true")], &[80]);
    let id = id(&world.up("web"));
    let is_protected = || world.of_uid(&uid).unwrap()["protection"]["delete"] == true;
    wait_until("protection", is_protected);
    for (value, protected) in [("false", false), ("true", true)] {
        let mark = world.mark();
        world.annotate("web", "deletion-protection", Some(value));
        wait_until(value, || is_protected() == protected);
        world.ticks(1);
        let call = format!("POST /load_balancers/{id}/actions/change_protection");
        assert_eq!(world.cloud_writes(mark), [call]);
    }
    let mark = world.mark();
    world.annotate("web", "deletion-protection", None);
    world.ticks(3);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    world.delete_and_wait("web");
    world.wait_for_event("web", "LoadBalancerProtected", &["does not delete it", "costs money"]);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    assert!(is_protected());
}
