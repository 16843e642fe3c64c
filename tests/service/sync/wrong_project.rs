//! A token of another project shows neither the load balancers nor the servers. That is no reason to create new ones or
//! to forget the existing ones.

use crate::common::{self, Env, with};
use crate::sync::external::{BY_NAME, EXTERNAL};
use crate::sync::world::{Cluster, NO_RESYNC, World, id, targets};
use sandbox::Half;
use serde_json::json;

/// Returns the environment of somebody who exported the token of another project.
fn with_foreign_token(world: &World) -> Env {
    let token = &world.projects().foreign_token;
    with(world.env.clone(), &[("HCLOUD_TOKEN", token)])
}

#[test]
fn a_token_of_another_project_creates_nothing_and_removes_no_status() {
    let world = World::new(2);
    world.create("stays", &[], &[80]);
    world.create("goes", &[], &[80]);
    world.converge(&[]);
    world.delete("goes");
    let services = || ["stays", "goes"].map(|name| world.service(name));
    let (before, mark) = (services(), world.mark());
    let env = with_foreign_token(&world);
    for words in [
        &["lb", "sync", "--dry-run"][..],
        &["lb", "sync"],
        &["lb", "sync", "default/stays"],
        &["run", "--once"],
    ] {
        let ran = common::ccm(&env, words);
        assert_eq!(ran.code, 1, "{words:?}: {ran:?}");
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains("Does the token belong to another project?"), "{told}");
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
        assert_eq!(services(), before, "{ran:?}");
    }
    for (name, reason) in
        [("stays", "SyncLoadBalancerFailed"), ("goes", "DeleteLoadBalancerFailed")]
    {
        world.wait_for_event(name, reason, &["to another project?"]);
    }
    // The right one sees that all is as it was.
    world.converge(&[]);
    assert_eq!(services(), [before[0].clone(), None]);
    assert_eq!(world.balancers().len(), 1);
}

/// The process that created its load balancer ended before it wrote the status. Found by storm seed 117.
#[test]
fn a_service_without_a_status_keeps_its_finalizer_with_a_token_of_another_project() {
    let world = World::new(2);
    world.create("goes", &[], &[80]);
    world.converge(&[]);
    world.edit("goes", |service| service["status"] = json!({}));
    world.delete("goes");
    let (before, mark) = (world.service("goes"), world.mark());
    let ran = common::ccm(&with_foreign_token(&world), &["run", "--once"]).with_code(1);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
    assert_eq!(world.service("goes"), before);
    let finding = ["has the finalizer of ccm", "to another project?"];
    world.wait_for_event("goes", "DeleteLoadBalancerFailed", &finding);
    world.converge(&[]);
    assert_eq!(world.service("goes"), None);
    assert_eq!(world.balancers().len(), 0);
}

#[test]
fn a_load_balancer_that_was_deleted_by_hand_is_created_again_or_its_service_is_deleted() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    for name in ["again", "goes"] {
        world.create(name, &[], &[80]);
        let id = id(&world.up(name));
        world.cloud().delete_load_balancer(id);
    }
    world.edit("again", |service| {
        service["metadata"]["annotations"] = json!({ "example.com/touched": "yes" })
    });
    world.delete("goes");
    common::wait_until("the end of it", || world.service("goes").is_none());
    drop(daemon);
    world.converge(&[]);
    assert_eq!(world.balancers().len(), 1);
    let expected = &world.only_balancer()["public_net"]["ipv4"]["ip"];
    assert_eq!(world.addresses("again")[0], *expected);
}

/// The Service has neither a finalizer nor a status, so nothing shows that it had a load balancer. Storm seed
/// 182 found this.
#[test]
fn a_new_service_gets_no_load_balancer_in_another_project() {
    let world = World::new(2);
    world.converge(&[]);
    let (cloud, foreign) = (world.cloud(), world.projects().foreign);
    let balancer = |name: &str, labels| {
        let body = json!({
            "name": name, "load_balancer_type": "lb11", "location": "fsn1", "labels": labels,
            "algorithm": { "type": "round_robin" },
        });
        cloud.create_load_balancer(foreign, body)
    };
    balancer("there", json!({}));
    balancer(BY_NAME.1, json!({ EXTERNAL: "default" }));
    let all = [
        ("new", &[][..]),
        ("shares", &[("share", "web")]),
        ("adopts", &[("name", "there")]),
        ("uses", &[BY_NAME]),
    ];
    for (name, annotations) in all {
        world.create(name, annotations, &[80]);
    }
    let now = || {
        let services = all.map(|(name, _)| world.service(name));
        (services, cloud.load_balancers(foreign))
    };
    let (before, mark) = (now(), world.mark());
    let env = with_foreign_token(&world);
    for words in [&["lb", "sync", "--dry-run"][..], &["lb", "sync"], &["run", "--once"]] {
        let ran = common::ccm(&env, words);
        assert_eq!(ran.code, 1, "{words:?}: {ran:?}");
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
        assert_eq!(now(), before, "{ran:?}");
    }
    for (name, _) in all {
        let parts = ["no server of the cluster's 2 nodes", "to another project?"];
        world.wait_for_event(name, "SyncLoadBalancerFailed", &parts);
    }
    world.delete("uses");
    world.converge(&[]);
    assert_eq!(world.balancers().len(), 3);
}

/// Projects can't be distinguished without such a node.
#[test]
fn any_project_counts_as_the_right_one_without_a_node_on_a_cloud_server() {
    for robot in [0, 2] {
        let world = World::of(common::builder().nodes(0).robot(robot));
        world.create("new", &[], &[80]);
        common::ccm(&with_foreign_token(&world), &["lb", "sync"]).with_code(0);
        let foreign = world.projects().foreign;
        assert_eq!(world.cloud().load_balancers(foreign).len(), 1);
    }
}

/// A load balancer with one of the cluster's servers as a target shows that the project is the right one. The first
/// load balancer costs a list of servers, or one server in a large project, and the others cost nothing.
#[test]
fn the_check_of_the_project_costs_at_most_one_call() {
    for others in [0, 160] {
        let world = World::new(2);
        for n in 0..others {
            world.create_server(&format!("other-{n}"));
        }
        let _daemon = world.daemon(&[NO_RESYNC, "--node-status-update-frequency=24h"]);
        for (name, most) in [("first", 1), ("second", 0), ("third", 0)] {
            let mark = world.mark();
            world.create(name, &[], &[80]);
            assert_eq!(targets(&world.up(name)).len(), 2);
            let mut calls = world.cloud_calls(mark);
            calls.retain(|call| call.half == Half::Hetzner && call.path.starts_with("/v1/servers"));
            assert!(calls.len() <= most, "{name}, {others} others: {calls:#?}");
        }
    }
}
