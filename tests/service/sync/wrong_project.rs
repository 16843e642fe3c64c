//! A token of another project shows neither load balancers nor servers: that is no reason to make new ones, and none
//! to forget the ones there are.

use crate::common::{self, Env, with};
use crate::sync::world::{NO_RESYNC, World};
use serde_json::json;

/// As somebody who exported the token of another project.
fn with_foreign_token(world: &World) -> Env {
    let token = &world.sandbox.projects().foreign_token;
    with(world.env.clone(), &[("HCLOUD_TOKEN", token)])
}

#[test]
fn a_token_of_another_project_makes_nothing_and_forgets_nothing() {
    let world = World::new(2);
    world.create("stays", &[], &[80]);
    world.create("goes", &[], &[80]);
    world.settle(&[]);
    world.delete("goes");
    let services = || ["stays", "goes"].map(|name| world.service(name));
    let (before, mark) = (services(), world.mark());
    let env = with_foreign_token(&world);
    for words in [
        &["lb", "sync", "--dry-run"][..],
        &["lb", "sync", "--yes"],
        &["lb", "sync", "--yes", "default/stays"],
        &["run", "--once"],
    ] {
        let ran = common::ccm(&env, words);
        assert_eq!(ran.code, 1, "{words:?}: {ran:?}");
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains("is the token another project's?"), "{told}");
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
        assert_eq!(services(), before, "{ran:?}");
    }
    for (name, reason) in [
        ("stays", "SyncLoadBalancerFailed"),
        ("goes", "DeleteLoadBalancerFailed"),
    ] {
        world.tells(name, reason, &["another project's"]);
    }
    // The right one sees that all is as it was.
    world.settle(&[]);
    assert_eq!(services(), [before[0].clone(), None]);
    assert_eq!(world.balancers().len(), 1);
}

/// The process that created its load balancer ended before it wrote the status. Found by storm seed 117.
#[test]
fn a_service_without_a_status_is_not_let_go_by_a_token_of_another_project() {
    let world = World::new(2);
    world.create("goes", &[], &[80]);
    world.settle(&[]);
    world.edit("goes", |service| service["status"] = json!({}));
    world.delete("goes");
    let (before, mark) = (world.service("goes"), world.mark());
    let ran = common::ccm(&with_foreign_token(&world), &["run", "--once"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
    assert_eq!(world.service("goes"), before);
    let finding = ["it has our finalizer", "another project's"];
    world.tells("goes", "DeleteLoadBalancerFailed", &finding);
    world.settle(&[]);
    assert_eq!(world.service("goes"), None);
    assert_eq!(world.balancers().len(), 0);
}

#[test]
fn one_that_was_deleted_by_hand_in_the_right_project_comes_again_or_is_let_go() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    for name in ["again", "goes"] {
        world.create(name, &[], &[80]);
        let id = world.up(name)["id"].as_u64().unwrap();
        world.sandbox.cloud().delete_load_balancer(id);
    }
    world.edit("again", |service| {
        service["metadata"]["annotations"] = json!({ "example.com/touched": "yes" })
    });
    world.delete("goes");
    common::wait_until("the end of it", || world.service("goes").is_none());
    drop(daemon);
    world.settle(&[]);
    assert_eq!(world.balancers().len(), 1);
    assert_eq!(
        world.addresses("again")[0],
        world.balancers()[0]["public_net"]["ipv4"]["ip"]
    );
}
