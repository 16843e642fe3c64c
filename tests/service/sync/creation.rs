//! A creation is reported when it was made: once, and as it was made.

use crate::common::on;
use crate::sync::world::{Cluster, World, len};
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};

fn created(changes: &Value) -> usize {
    let changes = changes.as_array().unwrap().iter();
    changes.filter(|change| change["change"] == "create").count()
}

fn refused(code: &str, field: Option<&str>) -> Rule {
    let fields = field.map(|field| json!({"fields": [{"name": field, "messages": ["is wrong"]}]}));
    let body = json!({"error": {"code": code, "message": "no", "details": fields}});
    on("POST /v1/load_balancers", Effect::Instead(Response::json(422, &body))).times(1)
}

#[test]
fn the_first_of_two_services_that_want_a_new_name_gets_it() {
    let world = World::new(1);
    world.converge(&[]);
    for name in ["first", "second"] {
        world.create(name, &[("name", "shared")], &[80]);
    }
    let dry = world.ccm(&["lb", "sync", "--dry-run"]);
    assert_eq!(dry.stdout.matches("create load balancer \"shared\"").count(), 1, "{dry:?}");
    for part in [
        "default/second",
        "annotation load-balancer.hetzner.cloud/name",
        "Service default/first",
        "Choose another name",
    ] {
        assert!(dry.stdout.contains(part), "{part}: {dry:?}");
    }
    let mark = world.mark();
    let ran = world.ccm(&["lb", "sync", "-o", "json"]).with_code(1);
    let document = ran.json();
    let items = document["items"].as_array().unwrap();
    assert_eq!(
        items.iter().map(|item| created(&item["changes"])).sum::<usize>(),
        1,
        "{document:#}"
    );
    let posts = world.cloud_writes(mark);
    let posts = posts.iter().filter(|write| *write == "POST /load_balancers");
    assert_eq!(posts.count(), 1);
    assert_eq!(world.balancers().len(), 1);
    assert_eq!(ran.stderr.matches("created").count(), 0, "{ran:?}");
}

/// Somebody else created the load balancer a moment earlier, so this is reported as no creation.
#[test]
fn a_name_that_is_taken_meanwhile_is_no_creation() {
    let world = World::new(1);
    world.converge(&[]);
    world.create("web", &[], &[80]);
    world.faults().add(refused("uniqueness_error", None));
    let ran = world.ccm(&["lb", "sync", "-o", "json"]).with_code(0);
    let changes = &ran.json()["items"][0]["changes"];
    assert_eq!(created(changes), 1, "{changes:#}");
    assert_eq!(world.balancers().len(), 1);
}

#[test]
fn a_load_balancer_that_is_created_without_its_refused_parts_is_reported() {
    let world = World::new(2);
    world.converge(&[]);
    world.create("web", &[], &[80, 81]);
    world.faults().add(refused("invalid_input", Some("services")).times(2));
    let ran = world.ccm(&["lb", "sync"]).with_code(0);
    let lines = [
        "created, lb11 in fsn1, without ports and targets",
        "port 80: added",
        "port 81: added",
        "target worker-1: added",
    ];
    for line in lines {
        assert_eq!(ran.stdout.matches(line).count(), 1, "{line}: {ran:?}");
    }
    assert_eq!(ran.stdout.matches("created").count(), 1, "{ran:?}");
    assert_eq!(len(&world.balancers()[0]["services"]), 2);
}
