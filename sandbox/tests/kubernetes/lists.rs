//! GET and LIST: the parameter `resourceVersion`, the watch cache, and pages.

use serde_json::{Value, json};

use crate::{names, world};

#[test]
fn a_watch_is_refused() {
    let (status, answer) = world().get("/api/v1/nodes?watch=true");
    assert_eq!((status, &answer["reason"]), (405, &json!("MethodNotAllowed")));
    assert_eq!(answer["message"], r#"watch is not supported on resources of kind "nodes""#);
}

#[test]
fn reads_of_version_0_are_content_with_a_frozen_cache() {
    let world = world();
    world.nodes(1);
    world.cluster.freeze_cache(true);
    world.node("late");
    let cases: [(&str, &[&str]); 2] = [("?resourceVersion=0", &["n0"]), ("", &["late", "n0"])];
    for (query, expected) in cases {
        assert_eq!(names(&world.get(&format!("/api/v1/nodes{query}")).1), expected, "{query}");
    }
    assert_eq!(world.get("/api/v1/nodes/late?resourceVersion=0").0, 404);
    assert_eq!(world.get("/api/v1/nodes/late").0, 200);
    world.cluster.freeze_cache(false);
    assert_eq!(world.get("/api/v1/nodes/late?resourceVersion=0").0, 200);
}

#[test]
fn pages_show_the_state_of_the_first() {
    let world = world();
    world.nodes(5);
    let (_, first) = world.get("/api/v1/nodes?limit=2");
    assert_eq!(names(&first), ["n0", "n1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    world.cluster.delete("nodes", None, "n3");
    world.node("n9");
    let token = first["metadata"]["continue"].as_str().expect("there is more");
    let (_, second) = world.get(&format!("/api/v1/nodes?limit=9&continue={token}"));
    assert_eq!(names(&second), ["n2", "n3", "n4"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(second["metadata"]["continue"], Value::Null);
}

#[test]
fn an_expired_continue_token_is_answered_with_a_valid_one() {
    let world = world();
    world.nodes(4);
    let (_, first) = world.get("/api/v1/nodes?limit=2");
    world.cluster.expire_continue_tokens();
    world.cluster.delete("nodes", None, "n2");
    let token = first["metadata"]["continue"].as_str().expect("there is more");
    let (status, expired) = world.get(&format!("/api/v1/nodes?limit=2&continue={token}"));
    assert_eq!((status, &expired["reason"]), (410, &json!("Expired")));
    let token = expired["metadata"]["continue"].as_str().expect("a way on");
    assert_eq!(names(&world.get(&format!("/api/v1/nodes?limit=2&continue={token}")).1), ["n3"]);
}

#[test]
fn a_list_in_a_namespace_has_pages_too() {
    let world = world();
    for name in ["a", "b", "c"] {
        let spec = json!({"ports": [{"port": 80}]});
        world.cluster.create(
            "services",
            Some("default"),
            json!({"metadata": {"name": name}, "spec": spec}),
        );
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    // The namespace contains four Services, and each page contains one.
    for _ in 0..4 {
        let (_, page) =
            world.get(&format!("/api/v1/namespaces/default/services?limit=1&continue={token}"));
        seen.extend(names(&page).into_iter().map(String::from));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
    }
    assert_eq!((seen.join(" ").as_str(), token.as_str()), ("a b c kubernetes", ""));
}

#[test]
fn a_version_of_the_future_is_not_served() {
    let (status, answer) = world().get("/api/v1/nodes?resourceVersion=999");
    assert_eq!((status, &answer["reason"]), (504, &json!("Timeout")));
}
