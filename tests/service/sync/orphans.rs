//! Load balancers whose Service is gone: shown, counted in no doubt, and deleted on request alone.

use crate::common::{self, Daemon, wait_until};
use crate::sync::adoption::{TWO_CLUSTERS, neighbour};
use crate::sync::world::{
    CLUSTER_UID, Cluster, FINALIZER, NO_RESYNC, OFTEN, SERVICE_UID, World, key, text,
};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

const DELETES: &str = "--delete-orphaned-load-balancers";
const BY_HAND: [&str; 4] = ["lb", "sync", "--delete-orphans", "--yes"];

/// The Service goes by force, as when somebody takes its finalizer away.
fn orphan(world: &World, name: &str) -> u64 {
    let uid = world.create(name, &[], &[80]);
    world.settle(&[]);
    let id = world.of_uid(&uid).unwrap()["id"].as_u64().unwrap();
    world.edit(name, |service| {
        service["metadata"]["finalizers"] = json!([])
    });
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

fn asks(request: &sandbox::exchange::Request, parameter: &str) -> bool {
    request.query.iter().any(|(name, _)| name == parameter)
}

fn cluster_uid(world: &World) -> String {
    text(&world.service("kubernetes").unwrap()["metadata"]["uid"])
}

/// As somebody else would have made it.
fn put(world: &World, name: &str, labels: Value) -> u64 {
    let spec =
        json!({ "name": name, "load_balancer_type": "lb11", "location": "fsn1", "labels": labels });
    let cloud = world.cloud();
    cloud.create_load_balancer(world.project(), spec)
}

/// Some resyncs of a daemon that deletes them; its log.
fn daemon_deletes(world: &World) -> String {
    let daemon = world.daemon(&[DELETES, OFTEN]);
    world.ticks(8);
    daemon.log()
}

#[test]
fn a_real_one_goes_by_both_ways_and_never_unasked() {
    let world = World::new(1);
    world.create("lives", &[], &[80]);
    world.settle(&[]);
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
            let ran = common::ccm(&world.env, words);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
        let mark = world.mark();
        match by_daemon {
            true => {
                let log = daemon_deletes(&world);
                assert!(log.contains("deleted"), "{log}");
            }
            false => {
                let ran = common::ccm(&world.env, &BY_HAND);
                assert_eq!(ran.code, 0, "{ran:?}");
                let line = format!(
                    "load-balancer/kubernetes-default-one  load balancer kubernetes-default-one ({id}): deleted\n\
                     1 changed, 0 unchanged, 0 failed\n"
                );
                assert_eq!(ran.stdout, line);
            }
        }
        assert_eq!(
            world.cloud_writes(mark),
            [format!("DELETE /load_balancers/{id}")]
        );
        assert_eq!(named(&world), ["kubernetes-default-lives"]);
    }
    world.nothing_refused();
}

/// As after a backup from the time before the Service had a load balancer.
#[test]
fn one_of_a_service_that_lost_its_finalizer_is_reported_and_stays() {
    let world = World::new(1);
    let uid = world.create("web", &[], &[80]);
    world.create("other", &[], &[80]);
    world.settle(&[]);
    world.edit("web", |service| {
        service["metadata"]["finalizers"] = json!([]);
        service["spec"]["type"] = json!("ClusterIP");
    });
    let before = world.of_uid(&uid).unwrap();
    let mark = world.mark();
    let is_shown = || {
        let ran = common::ccm(&world.env, &["lb", "list"]);
        ran.stdout.contains("orphan, stays")
    };
    assert!(is_shown());
    let why = "was made for Service default/web, which is of another type and has no finalizer, and costs money; its \
               Service exists, so only you can delete it";
    let log = daemon_deletes(&world);
    assert_eq!(log.matches(why).count(), 1, "{log}");
    common::ccm(&world.env, &BY_HAND);
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    // It is the Service's again.
    world.edit("web", |service| {
        service["spec"]["type"] = json!("LoadBalancer");
    });
    world.settle(&[]);
    assert_eq!(world.of_uid(&uid).unwrap()["id"], before["id"]);
    assert!(!is_shown());
}

#[test]
fn what_anybody_wants_is_never_lost() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, TWO_CLUSTERS) {
        return;
    }
    let other = neighbour(&world);
    for each in [&world, &other] {
        each.create("web", &[], &[80]);
        each.settle(&[]);
    }
    let ours = cluster_uid(&world);
    let gone = |more: Value| {
        let mut labels = json!({ SERVICE_UID: "gone", CLUSTER_UID: ours });
        for (label, value) in more.as_object().unwrap() {
            labels[label] = value.clone();
        }
        labels
    };
    put(&world, "upstreams", json!({ SERVICE_UID: "gone" }));
    put(&world, "by-hand", json!({}));
    put(&world, "no-service", json!({ CLUSTER_UID: ours }));
    put(&world, "empty-uid", gone(json!({ SERVICE_UID: "" })));
    put(&world, "empty-cluster", gone(json!({ CLUSTER_UID: "" })));
    let protected = put(&world, "protected", gone(json!({})));
    let busy = put(&world, "busy", gone(json!({})));
    let wanted = put(&world, "wanted", gone(json!({})));
    let cloud = world.cloud();
    cloud.edit_load_balancer(protected, |one| one["protection"]["delete"] = json!(true));
    let stranger = cloud.create_server(
        world.project(),
        sandbox::hetzner::ServerSpec {
            name: "stranger".into(),
            ..Default::default()
        },
    );
    let target = world.balancers()[0]["targets"][0].clone();
    cloud.edit_load_balancer(busy, |one| {
        one["targets"] = json!([target]);
        one["targets"][0]["server"]["id"] = json!(stranger);
    });
    // It names it, and what is wrong with it keeps it from taking it over yet.
    world.create("heir", &[("name", "wanted"), ("type", "lb99")], &[80]);
    // Its namespace goes, and it is held by somebody's finalizer.
    let uid = world.create("going", &[], &[80]);
    world.once(&[]);
    let going = world.of_uid(&uid).unwrap()["id"].clone();
    world.edit("going", |service| {
        service["metadata"]["finalizers"] = json!(["example.com/hold"])
    });
    world.delete("going");
    assert!(world.service("going").is_some());

    let before = named(&world);
    let list = common::ccm(&world.env, &["lb", "list", "-o", "json"]).json();
    let items = list["items"].as_array().unwrap().iter();
    let orphans: Vec<(String, usize)> = items
        .filter(|item| item["object"].is_null())
        .map(|item| {
            assert_eq!(item["findings"][0]["reason"], "OrphanedLoadBalancer");
            let changes = item["changes"].as_array().unwrap().len();
            (text(&item["cloud"]["name"]), changes)
        })
        .collect();
    assert_eq!(
        orphans,
        [("protected".to_owned(), 0), ("busy".to_owned(), 0)]
    );
    let ran = common::ccm(&world.env, &BY_HAND);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("protected from being deleted"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("is no node of this cluster"), "{ran:?}");
    assert!(ran.stdout.contains("0 changed, 2 unchanged"), "{ran:?}");
    let log = daemon_deletes(&world);
    daemon_deletes(&other);
    assert_eq!(named(&world), before, "{log}");
    assert!(cloud.load_balancer(going.as_u64().unwrap()).is_object());

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
    if common::needs_simulation(&world.sandbox, common::LAGS) {
        return;
    }
    world.settle(&[]);
    let cluster = world.cluster();
    // Cached lists do not know the Services that come now.
    cluster.freeze_cache(true);
    for name in ["a", "b"] {
        world.create(name, &[], &[80]);
    }
    assert_eq!(common::ccm(&world.env, &["lb", "sync"]).code, 0);
    let before = named(&world);
    assert_eq!(before.len(), 2);
    daemon_deletes(&world);
    let ran = common::ccm(&world.env, &BY_HAND);
    assert!(ran.stdout.contains("0 changed"), "{ran:?}");
    assert_eq!(named(&world), before);
    cluster.freeze_cache(false);

    let id = orphan(&world, "c");
    let whole = [
        "kubernetes-default-a",
        "kubernetes-default-b",
        "kubernetes-default-c",
    ];
    for n in 0..510 {
        let mut service = crate::sync::world::service(&format!("plain-{n}"), &[], &[80]);
        service["spec"]["type"] = json!("ClusterIP");
        world.create_as(service);
    }
    let of_all = |effect| {
        Rule::new(effect)
            .half(Half::Kubernetes)
            .method("GET")
            .path("/api/v1/services")
            .when(|request| !asks(request, "fieldSelector"))
    };
    let without_kubernetes = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "resourceVersion": "1" }, "items": [],
    });
    let empty = sandbox::exchange::Response::json(200, &without_kubernetes);
    for (why, rule) in [
        (
            "page 2",
            of_all(Effect::kubernetes_status(500, "InternalError", "no"))
                .when(|request| asks(request, "continue")),
        ),
        ("cut off", of_all(Effect::cut_off())),
        ("malformed", of_all(Effect::Malformed)),
        ("no Service at all", of_all(Effect::Instead(empty))),
        ("another's JSON", of_all(Effect::other_json())),
    ] {
        let rule = world.faults().add(rule);
        let ran = common::ccm(&world.env, &BY_HAND);
        assert_eq!(ran.code, 1, "{why}: {ran:?}");
        let daemon = Daemon::start(&world.env, &[DELETES, OFTEN, "--leader-elect=false"]);
        wait_until(why, || world.faults().hits(rule) > 4);
        assert_eq!(named(&world), whole, "{why}\n{}", daemon.log());
        world.faults().clear();
    }
    // And the list that is shown to a person is not the one that counts.
    let ran = common::ccm(&world.env, &BY_HAND);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(named(&world), whole[..2]);
    assert!(ran.stdout.contains(&format!("({id}): deleted")), "{ran:?}");
}

/// What happens between the looks and the DELETE: it is seen.
#[test]
fn what_changes_at_the_last_moment_is_seen() {
    type Hand = fn(&World, u64);
    let cases: [(&str, &str, Hand); 4] = [
        ("protected", "/v1/load_balancers/*", |world, id| {
            let cloud = world.cloud();
            cloud.edit_load_balancer(id, |one| one["protection"]["delete"] = json!(true));
        }),
        ("another label", "/v1/load_balancers/*", |world, id| {
            let cloud = world.cloud();
            cloud.edit_load_balancer(id, |one| one["labels"][SERVICE_UID] = json!("somebody"));
        }),
        (
            "a new Service of its name",
            "/api/v1/namespaces/default/services",
            |world, _| {
                if world.service("old").is_none() {
                    world.create("old", &[], &[80]);
                }
            },
        ),
        (
            "not its Service's any more",
            "/v1/load_balancers/*",
            |world, id| {
                let cloud = world.cloud();
                cloud.edit_load_balancer(id, |one| one["labels"] = json!({}));
            },
        ),
    ];
    common::side_by_side(cases.to_vec(), |(what, path, hand)| {
        let world = Arc::new(World::new(1));
        let id = orphan(&world, "old");
        let into = Arc::downgrade(&world);
        let hook = Effect::before(move |_| {
            if let Some(world) = into.upgrade() {
                hand(&world, id);
            }
        });
        let rule = world.faults().add(Rule::new(hook).method("GET").path(path));
        let ran = common::ccm(&world.env, &BY_HAND);
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

/// Nobody else is there to tell of it: the last Service has gone, or none that is left can be helped.
#[test]
fn one_is_told_and_counted_where_no_service_is_in_order() {
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
        world.edit("last", |service| {
            service["metadata"]["finalizers"] = json!([])
        });
        world.delete("last");
        counts(1);
        drop(daemon);
        let log = daemon_deletes(&world);
        assert_eq!(named(&world), Vec::<String>::new(), "{log}");
        // And then nobody asks any more.
        let _daemon = world.daemon(&[OFTEN]);
        world.ticks(8);
        let mark = world.mark();
        world.ticks(20);
        let calls = world.cloud_calls(mark);
        let lists = calls
            .iter()
            .filter(|call| call.path == "/v1/load_balancers");
        assert_eq!(lists.count(), 0, "{calls:#?}");
    }
}

#[test]
fn killed_at_the_write_or_two_at_once_it_ends_the_same() {
    for after in [false, true] {
        let world = World::over_sockets(common::builder().nodes(1));
        world.create("lives", &[], &[80]);
        world.settle(&[]);
        for name in ["one", "two"] {
            orphan(&world, name);
        }
        let killer: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
        let kill = Arc::clone(&killer);
        let hook = move |_: &sandbox::exchange::Request| kill.wait()();
        let effect = match after {
            true => Effect::after(hook),
            false => Effect::before(hook),
        };
        let rule = Rule::new(effect)
            .method("DELETE")
            .path("/v1/load_balancers/*")
            .nth(1);
        let rule = world.faults().add(rule);
        let flags = [DELETES, OFTEN, "--leader-elect=false"];
        let first = Daemon::start(&world.env, &flags);
        assert!(killer.set(Box::new(first.killer())).is_ok());
        wait_until("the DELETE", || world.faults().hits(rule) == 1);
        let two = [(); 2].map(|()| Daemon::start(&world.env, &flags));
        wait_until("both to go", || {
            named(&world) == ["kubernetes-default-lives"]
        });
        world.ticks(6);
        assert_eq!(named(&world), ["kubernetes-default-lives"]);
        drop(two);
    }
}

#[test]
fn at_a_terminal_it_asks_and_without_one_it_wants_a_yes() {
    let world = World::over_sockets(common::builder().nodes(1));
    orphan(&world, "old");
    let ran = common::ccm(&world.env, &BY_HAND[..3]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--yes"), "{ran:?}");
    let ran = common::ccm(
        &world.env,
        &["lb", "sync", "--delete-orphans", "--yes", "default/old"],
    );
    assert_eq!(ran.code, 2, "{ran:?}");
    let exact = [
        "lb",
        "sync",
        "--delete-orphans",
        "--dry-run",
        "--detailed-exitcode",
    ];
    let ran = common::ccm(&world.env, &exact);
    assert_eq!(ran.code, 3, "{ran:?}");
    for (answer, left) in [("", 1), ("n", 1), ("perhaps", 1), ("y", 0)] {
        let Some(seen) = at_terminal(&world, answer) else {
            return;
        };
        assert!(seen.contains("[y/N]"), "{seen}");
        assert!(
            seen.contains("load-balancer/kubernetes-default-old"),
            "{seen}"
        );
        assert_eq!(world.balancers().len(), left, "{answer:?}: {seen}");
    }
    let exact = [
        "lb",
        "sync",
        "--delete-orphans",
        "--dry-run",
        "--detailed-exitcode",
    ];
    assert_eq!(common::ccm(&world.env, &exact).code, 0);
}

/// util-linux: the command sees a terminal on all three.
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
        sandbox::skipped::skip(
            "asking at a terminal",
            "script",
            "there is no `script` here",
        );
        return None;
    };
    let line = format!("{answer}\n");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(line.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_service_that_comes_again_keeps_its_load_balancer() {
    let world = World::new(1);
    let id = orphan(&world, "web");
    world.create("web", &[], &[80]);
    let mut daemon = world.daemon(&[DELETES, OFTEN]);
    assert_eq!(world.up("web")["id"], id);
    world.ticks(6);
    drop(daemon);
    assert_eq!(world.up("web")["id"], id);
    // Nobody has looked at the new one yet.
    let world = World::new(1);
    let id = orphan(&world, "web");
    world.create("web", &[], &[80]);
    let ran = common::ccm(&world.env, &BY_HAND);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(world.balancers().len(), 1);
    daemon = world.daemon(&[NO_RESYNC]);
    assert_eq!(world.up("web")["id"], id);
    let finalizers = &world.service("web").unwrap()["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!([FINALIZER]));
    assert!(world.service("web").unwrap()["metadata"]["annotations"][key("name")].is_null());
    drop(daemon);
}
