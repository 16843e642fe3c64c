//! Lists: pages, sorting, filters, label selectors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sandbox::exchange::Handler;
use sandbox::hetzner::{Cloud, ServerSpec};
use serde_json::{Value, json};

use crate::api::{Api, request};

#[test]
fn lists_come_in_pages_of_at_most_50() {
    let api = Api::new();
    for number in 0..101 {
        add(&api, &format!("s{number:03}"), &[]);
    }
    // Each case: the query, the expected status, the expected number of entries, and the pagination as `[page,
    // per_page, previous_page, next_page, last_page]`.
    let cases = [
        ("", 200, 25, json!([1, 25, null, 2, 5])),
        ("?per_page=50", 200, 50, json!([1, 50, null, 2, 3])),
        ("?per_page=50&page=2", 200, 50, json!([2, 50, 1, 3, 3])),
        ("?per_page=50&page=3", 200, 1, json!([3, 50, 2, null, 3])),
        ("?per_page=50&page=4", 200, 0, json!([4, 50, 3, null, 3])),
        ("?per_page=51", 422, 0, Value::Null),
        ("?per_page=0", 422, 0, Value::Null),
        ("?page=0", 422, 0, Value::Null),
        ("?page=x", 422, 0, Value::Null),
    ];
    for (query, status, entries, expected) in cases {
        let answer = api.get(&format!("/servers{query}"));
        assert_eq!(answer.status, status, "{query}");
        assert_eq!(answer.names("servers").len(), entries, "{query}");
        let Some(expected) = expected.as_array() else {
            continue;
        };
        let shown = answer.at("/meta/pagination");
        let names = ["page", "per_page", "previous_page", "next_page", "last_page"];
        for (name, expected) in names.iter().zip(expected) {
            assert_eq!(&shown[name], expected, "{query} {name}");
        }
        assert_eq!(shown["total_entries"], 101);
    }
    let answer = api.get("/servers?page=2&sort=name&label_selector=!env");
    let link = answer.header("Link").unwrap_or_default();
    let next = r#"</v1/servers?page=3&per_page=25&sort=name&label_selector=%21env>; rel="next""#;
    assert!(link.contains(next), "{link}");
    let empty = api.get("/networks");
    assert_eq!(
        (empty.at("/meta/pagination/last_page"), empty.at("/meta/pagination/total_entries")),
        (&json!(1), &json!(0))
    );
}

#[test]
fn lists_are_filtered_and_sorted() {
    let api = Api::new();
    for name in ["bob", "alice", "carol"] {
        add(&api, name, &[]);
    }
    let alice = api.get("/servers?name=alice").at("/servers/0/id").as_u64().unwrap_or_default();
    api.cloud.set_power(alice, false);
    let cases: [(&str, u16, &[&str]); 14] = [
        ("", 200, &["bob", "alice", "carol"]),
        ("?name=alice", 200, &["alice"]),
        ("?name=ali", 200, &[]),
        ("?sort=name", 200, &["alice", "bob", "carol"]),
        ("?sort=name:asc", 200, &["alice", "bob", "carol"]),
        ("?sort=name:desc", 200, &["carol", "bob", "alice"]),
        ("?sort=id:desc", 200, &["carol", "alice", "bob"]),
        ("?sort=name&sort=id:desc", 200, &["alice", "bob", "carol"]),
        ("?sort=color", 422, &[]),
        ("?sort=name:up", 422, &[]),
        ("?status=off", 200, &["alice"]),
        ("?status=running", 200, &["bob", "carol"]),
        ("?status=running&status=off", 200, &["bob", "alice", "carol"]),
        ("?status=tired", 422, &[]),
    ];
    for (query, status, names) in cases {
        let answer = api.get(&format!("/servers{query}"));
        assert_eq!((answer.status, answer.names("servers")), (status, owned(names)), "{query}");
    }
}

#[test]
fn label_selectors_select_as_documented() {
    let api = Api::new();
    add(&api, "a", &[("env", "prod"), ("tier", "web")]);
    add(&api, "b", &[("env", "prod"), ("tier", "db")]);
    add(&api, "c", &[("env", "dev"), ("example.com/my", "label")]);
    add(&api, "d", &[("just-a-key", "")]);
    let cases: [(&str, u16, &[&str]); 26] = [
        ("", 200, &["a", "b", "c", "d"]),
        ("env=prod", 200, &["a", "b"]),
        ("env==prod", 200, &["a", "b"]),
        ("env!=prod", 200, &["c", "d"]),
        ("env", 200, &["a", "b", "c"]),
        ("!env", 200, &["d"]),
        ("env+in+(prod,dev)", 200, &["a", "b", "c"]),
        ("env+in+(+dev+)", 200, &["c"]),
        ("env+in(dev)", 200, &["c"]),
        ("env+notin+(prod)", 200, &["c", "d"]),
        ("env=prod,tier!=db", 200, &["a"]),
        ("env+in+(prod,dev),!tier", 200, &["c"]),
        ("env=prod,+tier=db", 200, &["b"]),
        ("example.com/my=label", 200, &["c"]),
        ("just-a-key=", 200, &["d"]),
        ("env=prod,env=dev", 200, &[]),
        ("env=", 200, &[]),
        ("env=prod,", 422, &[]),
        ("=prod", 422, &[]),
        ("env+in+prod", 422, &[]),
        ("env+in+(prod", 422, &[]),
        ("env+within+(prod)", 422, &[]),
        ("env=pr+od", 422, &[]),
        ("-env=prod", 422, &[]),
        ("env=prod)", 422, &[]),
        ("env+in+(prod))", 422, &[]),
    ];
    for (selector, status, names) in cases {
        let answer = api.get(&format!("/servers?label_selector={selector}"));
        assert_eq!(
            (answer.status, answer.names("servers")),
            (status, owned(names)),
            "{selector}: {}",
            answer.body
        );
    }
}

#[test]
fn labels_follow_the_rules() {
    let api = Api::new();
    let id = add(&api, "labelled", &[]);
    let long = "x".repeat(64);
    let cases = [
        (json!({"env": "prod"}), 200),
        (json!({"example.com/my": "label"}), 200),
        (json!({"a": ""}), 200),
        (json!({}), 200),
        (json!({"env": "a b"}), 422),
        (json!({"env": "-a"}), 422),
        (json!({"env": long}), 422),
        (json!({"env": 1}), 422),
        (json!({long: ""}), 422),
        (json!({"": "x"}), 422),
        (json!({"exam_ple/my": "x"}), 422),
        (json!({"/my": "x"}), 422),
        (json!({"a/b/c": "x"}), 422),
        (json!({"hetzner.cloud/my": "x"}), 422),
    ];
    for (labels, status) in cases {
        let answer = api.call("PUT", &format!("/servers/{id}"), json!({"labels": labels}));
        assert_eq!(answer.status, status, "{labels}");
        if status == 200 {
            assert_eq!(answer.at("/server/labels"), &labels);
        }
    }
}

#[test]
fn the_catalogs_are_listed_and_found() {
    let api = Api::new();
    assert_eq!(
        api.get("/locations").names("locations"),
        owned(&["fsn1", "nbg1", "hel1", "ash", "hil", "sin"])
    );
    assert_eq!(api.get("/locations?name=hil").at("/locations/0/network_zone"), "us-west");
    assert_eq!(api.get("/locations/1").at("/location/name"), "fsn1");
    assert_eq!(api.get("/locations/99").code(), "not_found");
    // Each case: a list that the CLI `hcloud` requests with a sort order, and the name that comes first when the list
    // is sorted by name in descending order.
    for (list, last) in [
        ("locations", "sin"),
        ("server_types", "cx43"),
        ("load_balancer_types", "lb31"),
        ("images", "ubuntu-24.04"),
    ] {
        let sorted = api.get(&format!("/{list}?sort=name:desc")).names(list);
        assert_eq!(sorted[0], last);
    }
    assert_eq!(api.get("/server_types?name=cax11").at("/server_types/0/architecture"), "arm");
    // The type `cx22` is no longer sold, so the list leaves it out. The type can still be read by its ID, because
    // servers of this type still exist.
    assert_eq!(api.get("/server_types?name=cx22").names("server_types"), owned(&[]));
    let old = api.get("/server_types/104");
    assert_eq!(
        (old.at("/server_type/name"), old.at("/server_type/deprecated")),
        (&json!("cx22"), &json!(true))
    );
    assert!(old.at("/server_type/locations/0/deprecation").is_object());
}

#[test]
fn summaries_and_documents_agree_after_every_change() {
    let cloud = Cloud::new(0.0);
    let project = cloud.add_project();
    let server = |name: &str| ServerSpec { name: name.into(), ..ServerSpec::default() };
    let id = cloud.create_server(project, server("one"));
    cloud.create_server(project, server("two"));
    let agree = |name: &str, label: Value, is_running: bool| {
        for _ in 0..2 {
            let documents = cloud.servers(project);
            let summaries = cloud.server_summaries(project);
            let (document, summary) = (&documents[0], &summaries[0]);
            assert_eq!(documents.len(), summaries.len());
            let shown =
                (&document["name"], &document["labels"]["a"], document["status"] == "running");
            assert_eq!(shown, (&json!(name), &label, is_running));
            assert_eq!((&*summary.name, summary.is_running), (name, is_running));
            assert_eq!(json!(summary.labels.get("a")), label);
        }
    };
    agree("one", Value::Null, true);
    cloud.edit_server(id, |server| server["labels"] = json!({"a": "b"}));
    agree("one", json!("b"), true);
    cloud.edit_server(id, |server| server["name"] = json!("other"));
    agree("other", json!("b"), true);
    cloud.set_power(id, false);
    agree("other", json!("b"), false);
}

#[test]
fn five_thousand_servers_are_listed_quickly() {
    let api = Api::new();
    for number in 0..5000 {
        add(&api, &format!("s{number}"), &[]);
    }
    let servers = api.cloud.servers(api.project);
    let addresses = servers.iter().map(|server| server["public_net"]["ipv4"]["ip"].to_string());
    assert_eq!(addresses.collect::<BTreeSet<_>>().len(), 5000, "public addresses are unique");

    let start = Instant::now();
    for page in 1..=100 {
        let request = request("GET", &format!("/servers?per_page=50&page={page}"), &Value::Null);
        assert_eq!(api.cloud.handle(&request).status, 200);
    }
    // The limit of ten seconds is generous, because this is an unoptimised build that runs beside other tests.
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

fn add(api: &Api, name: &str, labels: &[(&str, &str)]) -> u64 {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    api.cloud.create_server(
        api.project,
        ServerSpec { name: name.into(), labels, ..ServerSpec::default() },
    )
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}
