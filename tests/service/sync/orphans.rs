//! Load balancers whose Service does not exist any more are shown, counted when nothing is unclear, and deleted
//! only on request.

use crate::common::{self, Daemon, Ran, on, wait_until};
use crate::sync::SERVICES;
use crate::sync::adoption::{TWO_CLUSTERS, neighbour};
use crate::sync::world::{
    CLUSTER_UID, Cluster, NO_RESYNC, OFTEN, SERVICE_UID, World, id, key, len, service, text,
};
use sandbox::Sandbox;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};

const DELETES: &str = "--delete-orphaned-load-balancers";

/// The Service goes by force, as when somebody takes its finalizer away.
fn orphan(world: &World, name: &str) -> u64 {
    world.create(name, &[], &[80]);
    world.converge(&[]);
    let id = id(&world.balancer(name));
    world.remove_finalizers(name);
    world.delete(name);
    assert_eq!(world.service(name), None);
    id
}

fn named(world: &World) -> Vec<String> {
    let all = world.balancers();
    let mut names: Vec<String> = all.iter().map(|one| text(&one["name"])).collect();
    names.sort();
    names
}

fn asks(request: &Request, parameter: &str) -> bool {
    request.query.iter().any(|(name, _)| name == parameter)
}

/// Runs a deletion of orphans on request.
fn delete_by_hand(world: &World) -> Ran {
    world.ccm(&["lb", "sync", "--delete-orphans", "--yes"])
}

/// Runs a daemon that deletes orphans for some resyncs. Returns its log.
fn daemon_deletes(world: &World) -> String {
    let daemon = world.daemon(&[DELETES, OFTEN]);
    world.ticks(8);
    daemon.log()
}

#[test]
fn an_orphan_is_deleted_on_request_only() {
    let world = World::new(1);
    world.create("lives", &[], &[80]);
    world.converge(&[]);
    for (name, by_daemon) in [("one", false), ("two", true)] {
        let id = orphan(&world, name);
        let mark = world.mark();
        let daemon = world.daemon(&[OFTEN]);
        daemon.logs("OrphanedLoadBalancer");
        world.ticks(6);
        assert_eq!(daemon.log().matches("OrphanedLoadBalancer").count(), 1);
        drop(daemon);
        for words in [
            &["lb", "sync"][..],
            &["lb", "list"],
            &["lb", "sync", "--delete-orphans", "--dry-run"],
            &["run", "--once"],
            &["run", "--dry-run", DELETES],
        ] {
            world.ccm(words).with_code(0);
        }
        assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
        let mark = world.mark();
        match by_daemon {
            true => {
                let log = daemon_deletes(&world);
                assert!(log.contains("deleted"), "{log}");
            }
            false => {
                let ran = delete_by_hand(&world).with_code(0);
                let line = format!(
                    "load-balancer/kubernetes-default-one  load balancer \"kubernetes-default-one\" ({id}): deleted\n\
                     1 changed, 0 unchanged, 0 failed\n"
                );
                assert_eq!(ran.stdout, line);
            }
        }
        let deleted = format!("DELETE /load_balancers/{id}");
        assert_eq!(world.cloud_writes(mark), [deleted]);
        assert_eq!(named(&world), ["kubernetes-default-lives"]);
    }
    world.assert_nothing_refused();
}

/// This happens after a restore of a backup from the time before the Service had a load balancer.
#[test]
fn a_load_balancer_of_a_service_that_lost_its_finalizer_is_reported_and_stays() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.create("other", &[], &[80]);
    world.converge(&[]);
    world.edit("web", |service| {
        service["metadata"]["finalizers"] = json!([]);
        service["spec"]["type"] = json!("ClusterIP");
    });
    let before = world.balancer("web");
    let mark = world.mark();
    let is_shown = || {
        let ran = world.ccm(&["lb", "list"]);
        ran.stdout.contains("orphan, stays")
    };
    assert!(is_shown());
    let why = "costs money, but was made for Service default/web, which is not of type LoadBalancer any more. ccm \
               does not delete the load balancer, because the Service exists. Fix: if the load balancer is not needed, \
               delete it yourself: hcloud";
    let log = daemon_deletes(&world);
    assert_eq!(log.matches(why).count(), 1, "{log}");
    delete_by_hand(&world);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    // The load balancer is the Service's again.
    world.set_type("web", "LoadBalancer");
    world.converge(&[]);
    assert_eq!(world.balancer("web")["id"], before["id"]);
    assert!(!is_shown());
}

#[test]
fn a_load_balancer_that_anybody_wants_is_never_deleted_as_an_orphan() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, TWO_CLUSTERS) {
        return;
    }
    let other = neighbour(&world);
    for each in [&world, &other] {
        each.create("web", &[], &[80]);
        each.converge(&[]);
    }
    let ours = world.uid("kubernetes");
    let put = |name: &str, labels: Value| world.create_balancer(name, &json!({"labels": labels}));
    let gone = |more: Value| {
        let mut labels = json!({ SERVICE_UID: "gone", CLUSTER_UID: ours });
        for (label, value) in more.as_object().unwrap() {
            labels[label] = value.clone();
        }
        labels
    };
    put("upstreams", json!({ SERVICE_UID: "gone" }));
    put("by-hand", json!({}));
    put("no-service", json!({ CLUSTER_UID: ours }));
    put("empty-uid", gone(json!({ SERVICE_UID: "" })));
    put("empty-cluster", gone(json!({ CLUSTER_UID: "" })));
    let protected = put("protected", gone(json!({})));
    let busy = put("busy", gone(json!({})));
    let wanted = put("wanted", gone(json!({})));
    world.protect(protected);
    let stranger = world.create_server("stranger");
    let target = world.balancers()[0]["targets"][0].clone();
    world.edit_balancer(busy, |one| {
        one["targets"] = json!([target]);
        one["targets"][0]["server"]["id"] = json!(stranger);
    });
    // The Service names the load balancer, and cannot adopt it yet because of a wrong annotation.
    world.create("heir", &[("name", "wanted"), ("type", "lb99")], &[80]);
    // The namespace is being deleted, and a foreign finalizer holds the Service.
    world.create("going", &[], &[80]);
    world.once(&[]);
    let going = id(&world.balancer("going"));
    world.edit("going", |service| service["metadata"]["finalizers"] = json!(["example.com/hold"]));
    world.delete("going");
    assert!(world.service("going").is_some());

    let before = named(&world);
    let list = world.ccm(&["lb", "list", "-o", "json"]).json();
    let items = list["items"].as_array().unwrap().iter();
    let orphans: Vec<&Value> = items.filter(|item| item["object"].is_null()).collect();
    assert_eq!(orphans.len(), 2, "{orphans:#?}");
    for (orphan, name) in orphans.iter().zip(["protected", "busy"]) {
        assert_eq!(orphan["findings"][0]["reason"], "OrphanedLoadBalancer");
        assert_eq!(orphan["cloud"]["name"], name);
        assert_eq!(len(&orphan["changes"]), 0, "{orphan:#}");
    }
    let ran = delete_by_hand(&world).with_code(0);
    ran.prints("has delete protection");
    ran.prints("is no node of this cluster");
    ran.prints("0 changed, 2 unchanged");
    let log = daemon_deletes(&world);
    daemon_deletes(&other);
    assert_eq!(named(&world), before, "{log}");
    assert!(world.cloud().load_balancer(going).is_object());

    // The heir gets it once it may.
    world.annotate("heir", "type", None);
    let _daemon = world.daemon(&[DELETES, OFTEN]);
    assert_eq!(world.up("heir")["id"], wanted);
    world.ticks(6);
    assert_eq!(named(&world), before);
}

#[test]
fn an_old_or_partial_list_of_services_deletes_nothing() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::STALE_CACHE) {
        return;
    }
    world.converge(&[]);
    let cluster = world.cluster();
    // Cached lists do not know the Services that come now.
    cluster.freeze_cache(true);
    for name in ["a", "b"] {
        world.create(name, &[], &[80]);
    }
    world.ccm(&["lb", "sync"]).with_code(0);
    let before = named(&world);
    assert_eq!(before.len(), 2);
    daemon_deletes(&world);
    delete_by_hand(&world).prints("0 changed");
    assert_eq!(named(&world), before);
    cluster.freeze_cache(false);

    let id = orphan(&world, "c");
    let whole = ["a", "b", "c"].map(|name| format!("kubernetes-default-{name}"));
    for n in 0..510 {
        let mut service = service(&format!("plain-{n}"), &[], &[80]);
        service["spec"]["type"] = json!("ClusterIP");
        world.create_as(service);
    }
    let of_all =
        |effect| on("GET /api/v1/services", effect).when(|request| !asks(request, "fieldSelector"));
    let without_kubernetes = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "resourceVersion": "1" }, "items": [],
    });
    let empty = Response::json(200, &without_kubernetes);
    let error = Effect::kubernetes_status(500, "InternalError", "no");
    let second_page = of_all(error).when(|request| asks(request, "continue"));
    for (why, rule) in [
        ("page 2", second_page),
        ("cut off", of_all(Effect::cut_off())),
        ("malformed", of_all(Effect::Malformed)),
        ("no Service at all", of_all(Effect::Instead(empty))),
        ("another's JSON", of_all(Effect::other_json())),
    ] {
        let rule = world.faults().add(rule);
        let ran = delete_by_hand(&world);
        assert_eq!(ran.code, 1, "{why}: {ran:?}");
        let daemon = Daemon::start(&world.env, &[DELETES, OFTEN, "--leader-elect=false"]);
        wait_until(why, || world.faults().hits(rule) > 4);
        assert_eq!(named(&world), whole, "{why}\n{}", daemon.log());
        world.faults().clear();
    }
    // The list that is shown to a person is not the list on which the deletion rests.
    let ran = delete_by_hand(&world).with_code(0);
    assert_eq!(named(&world), whole[..2]);
    assert!(ran.stdout.contains(&format!("({id}): deleted")), "{ran:?}");
}

/// Something changes between the reads and the DELETE. The change is seen.
#[test]
fn a_change_just_before_the_deletion_of_an_orphan_is_seen() {
    const ONE: &str = "GET /v1/load_balancers/*";
    type ManualChange = fn(&Sandbox, u64);
    #[rustfmt::skip] // A case is a line or two.
    let cases: [(&str, &str, ManualChange); 4] = [
        ("protected", ONE, |world, id| world.protect(id)),
        ("another label", ONE,
            |world, id| { world.edit_balancer(id, |one| one["labels"][SERVICE_UID] = json!("somebody")); }),
        ("a new Service of its name", SERVICES,
            |world, _| { if world.service("old").is_none() { world.create("old", &[], &[80]); } }),
        ("not its Service's any more", ONE, |world, id| { world.edit_balancer(id, |one| one["labels"] = json!({})); }),
    ];
    common::run_in_parallel(cases.to_vec(), |(what, path, manual_change)| {
        let world = World::new(1);
        let id = orphan(&world, "old");
        let hook = common::before(&world.sandbox, move |world| manual_change(world, id));
        let rule = world.faults().add(on(path, hook));
        let ran = delete_by_hand(&world);
        assert!(world.faults().hits(rule) > 0, "{what}: {ran:?}");
        assert_eq!(named(&world), ["kubernetes-default-old"], "{what}: {ran:?}");
        world.faults().clear();
    });
}

fn metrics(daemon: &Daemon) -> String {
    use std::io::{Read, Write};
    daemon.logs("listening on ");
    let log = daemon.log();
    let (_, rest) = log.split_once("listening on ").unwrap();
    let address = rest.split_whitespace().next().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::LIMIT)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// No other object could report the orphan, because the last Service was deleted, or no remaining Service
/// can be synced.
#[test]
fn an_orphan_is_reported_and_counted_where_no_service_is_in_order() {
    for bad in [false, true] {
        let world = World::over_sockets(common::builder().nodes(1));
        let id = orphan(&world, "old");
        if bad {
            world.create("bad", &[("type", "lb99")], &[80]);
        }
        let daemon = world.daemon(&[OFTEN]);
        let counts = |count: usize| {
            let line = format!("ccm_load_balancers{{state=\"orphaned\"}} {count}\n");
            wait_until(&line, || metrics(&daemon).contains(&line));
        };
        daemon.logs("OrphanedLoadBalancer");
        counts(1);
        world.cloud().delete_load_balancer(id);
        counts(0);
        if bad {
            continue;
        }
        // The last Service of a daemon that runs.
        world.create("last", &[], &[80]);
        world.up("last");
        world.remove_finalizers("last");
        world.delete("last");
        counts(1);
        drop(daemon);
        let log = daemon_deletes(&world);
        assert_eq!(named(&world), Vec::<String>::new(), "{log}");
        // After that no more calls are made.
        let _daemon = world.daemon(&[OFTEN]);
        world.ticks(8);
        let mark = world.mark();
        world.ticks(20);
        let calls = world.cloud_calls(mark);
        let mut paths = calls.iter().map(|call| call.path.as_str());
        assert!(paths.all(|path| path != "/v1/load_balancers"), "{calls:#?}");
    }
}

#[test]
fn an_orphan_is_deleted_when_the_daemon_is_killed_or_two_are_at_work() {
    for is_before in [true, false] {
        let world = World::over_sockets(common::builder().nodes(1));
        world.create("lives", &[], &[80]);
        world.converge(&[]);
        for name in ["one", "two"] {
            orphan(&world, name);
        }
        let flags = [DELETES, OFTEN, "--leader-elect=false"];
        let calls = |rule: Rule| {
            let rule = rule.method("DELETE").path("/v1/load_balancers/*");
            rule.nth(1)
        };
        let (_first, rule) = Daemon::killed_at(&world, &world.env, &flags, is_before, calls);
        wait_until("the DELETE", || world.faults().hits(rule) == 1);
        let _two = [(); 2].map(|()| Daemon::start(&world.env, &flags));
        let left = ["kubernetes-default-lives"];
        wait_until("both to go", || named(&world) == left);
        world.ticks(6);
        assert_eq!(named(&world), left);
    }
}

#[test]
fn the_deletion_of_orphans_asks_at_a_terminal_and_needs_yes_without_one() {
    let world = World::over_sockets(common::builder().nodes(1));
    orphan(&world, "old");
    let delete = |more: &[&str]| world.ccm(&[&["lb", "sync", "--delete-orphans"], more].concat());
    delete(&[]).with_code(2).warns("--yes");
    delete(&["--yes", "default/old"]).with_code(2);
    delete(&["--dry-run", "--detailed-exitcode"]).with_code(3);
    for (answer, left) in [("", 1), ("n", 1), ("perhaps", 1), ("y", 0)] {
        let Some(seen) = at_terminal(&world, answer) else {
            return;
        };
        for part in ["[y/N]", "load-balancer/kubernetes-default-old"] {
            assert!(seen.contains(part), "{seen}");
        }
        assert_eq!(world.balancers().len(), left, "{answer:?}: {seen}");
    }
    delete(&["--dry-run", "--detailed-exitcode"]).with_code(0);
}

/// Runs a command with util-linux's `script`, so that it sees a terminal on all three streams.
fn at_terminal(world: &World, answer: &str) -> Option<String> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let words = format!("{} lb sync --delete-orphans", common::binary().display());
    let child = Command::new("script")
        .args(["--quiet", "--return", "--command", &words, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(world.env.iter().cloned())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        sandbox::skipped::skip("asking at a terminal", "script", "there is no `script` here");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{answer}").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_recreated_service_keeps_its_load_balancer() {
    let world = World::new(1);
    let id = orphan(&world, "web");
    world.create("web", &[], &[80]);
    let daemon = world.daemon(&[DELETES, OFTEN]);
    assert_eq!(world.up("web")["id"], id);
    world.ticks(6);
    drop(daemon);
    assert_eq!(world.up("web")["id"], id);
    // No list shows the new Service yet.
    let world = World::new(1);
    let id = orphan(&world, "web");
    world.create("web", &[], &[80]);
    delete_by_hand(&world).with_code(0);
    assert_eq!(world.balancers().len(), 1);
    let _daemon = world.daemon(&[NO_RESYNC]);
    assert_eq!(world.up("web")["id"], id);
    assert!(world.has_finalizer("web"));
    assert!(world.service("web").unwrap()["metadata"]["annotations"][key("name")].is_null());
}
