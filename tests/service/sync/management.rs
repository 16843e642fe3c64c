//! `ccm lb adopt` and `ccm lb release`: what they ask for, what they write, and that the daemon leaves alone what was
//! released.

use crate::common::{self, Ran, wait_until};
use crate::sync::external::{allow, as_it_is, terraforms};
use crate::sync::shared::{EDGE, id, owned, ports};
use crate::sync::world::{Cluster, FINALIZER, NO_RESYNC, OFTEN, SERVICE_UID, World, len, targets};
use serde_json::{Value, json};

const RELEASED: &str = "ccm-from-scratch/released";
const LABELS_LEFT: usize = 1;

fn run(world: &World, words: &[&str]) -> Ran {
    common::ccm(&world.env, words)
}

fn adopt(world: &World, id: u64, service: &str) -> Ran {
    let ran = run(world, &["lb", "adopt", &id.to_string(), service, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

fn release(world: &World, service: &str) -> Ran {
    let ran = run(world, &["lb", "release", service, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

fn finalizers(world: &World, name: &str) -> Value {
    world.service(name).unwrap()["metadata"]["finalizers"].clone()
}

/// Whatever happens to the Service and to the daemon, nothing is written to either API.
fn the_daemon_leaves_it(world: &World, name: &str) {
    let mark = world.mark();
    for number in [8081, 8082] {
        let daemon = world.daemon(&[OFTEN]);
        world.ticks(4);
        world.annotate(name, "algorithm-type", Some("least_connections"));
        world.edit(name, |service| {
            service["spec"]["ports"][0]["port"] = json!(number);
        });
        world.ticks(4);
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    }
    let ran = world.once(&["--delete-orphaned-load-balancers"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.create("plain", &[], &[80]);
    world.settle(&[]);
    world.edit("plain", |one| one["spec"]["type"] = json!("ClusterIP"));
    world.settle(&[]);
    let id = id(&world.only()).to_string();
    let mark = world.mark();
    let cases: [(&[&str], i32, &str); 12] = [
        (&["release"], 2, "takes one Service"),
        (
            &["release", "default/web", "default/shop"],
            2,
            "takes one Service",
        ),
        (&["release", "default/web"], 2, "add --yes"),
        (&["release", "--yes", "default/shop"], 1, "default/shop"),
        (
            &["release", "--yes", "default/plain"],
            1,
            "of type ClusterIP",
        ),
        (
            &["release", "--dry-run", "default/web"],
            0,
            "release load balancer",
        ),
        (
            &["adopt", &id],
            2,
            "takes the ID of a load balancer and a Service",
        ),
        (
            &["adopt", "web", "default/web"],
            2,
            "takes the ID of a load balancer and a Service",
        ),
        (&["adopt", &id, "default/web"], 2, "add --yes"),
        (
            &["adopt", "--yes", "4711", "default/web"],
            1,
            "no load balancer with ID 4711",
        ),
        (&["adopt", "--yes", &id, "default/shop"], 1, "default/shop"),
        (
            &["adopt", "--yes", &id, "default/plain"],
            1,
            "of type ClusterIP",
        ),
    ];
    for (words, code, part) in cases {
        let ran = run(&world, &[&["lb"], words].concat());
        assert_eq!(ran.code, code, "{words:?}: {ran:?}");
        let said = ran.stdout.clone() + &ran.stderr;
        assert!(said.contains(part), "{words:?}: {ran:?}");
    }
    // It has one.
    let other = terraforms(&world, "other");
    let ran = run(
        &world,
        &["lb", "adopt", "--yes", &other.to_string(), "default/web"],
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout
            .contains("because the Service has kubernetes-default-web"),
        "{ran:?}"
    );
    assert_eq!(world.writes(mark), Vec::<String>::new());
}

#[test]
fn what_is_released_stays_as_it_is_until_it_is_adopted() {
    let world = World::with_network(2);
    let uid = world.create("web", &[], &[80, 443]);
    world.settle(&[]);
    let balancer = id(&world.only());
    let (before, addresses) = (as_it_is(&world, balancer), world.addresses("web"));
    let mark = world.mark();
    release(&world, "default/web");
    let after = as_it_is(&world, balancer);
    assert_eq!(after["labels"], json!({ RELEASED: uid }));
    for part in [
        "name",
        "services",
        "targets",
        "public_net",
        "private_net",
        "algorithm",
    ] {
        assert_eq!(after[part], before[part], "{part}");
    }
    assert_ne!(finalizers(&world, "web"), json!([FINALIZER]));
    assert_eq!(world.addresses("web"), addresses);
    let status = "PATCH /api/v1/namespaces/default/services/web/status";
    assert_eq!(
        world.writes(mark),
        [&format!("PUT /load_balancers/{balancer}"), status]
    );
    world.tells(
        "web",
        "LoadBalancerReleased",
        &["Management of load balancer", "ended"],
    );
    // Again there is nothing to do.
    release(&world, "default/web");
    the_daemon_leaves_it(&world, "web");
    assert_eq!(as_it_is(&world, balancer), after);

    let words = [
        "lb",
        "adopt",
        "--dry-run",
        &balancer.to_string(),
        "default/web",
    ];
    let mark = world.mark();
    let ran = run(&world, &words);
    assert_eq!((ran.code, world.writes(mark)), (0, vec![]), "{ran:?}");
    // Beside the daemon, which goes on with it.
    let daemon = world.daemon(&[NO_RESYNC]);
    adopt(&world, balancer, "default/web");
    let again = as_it_is(&world, balancer);
    assert_eq!(again["labels"][SERVICE_UID], json!(uid), "{}", daemon.log());
    assert!(again["labels"][RELEASED].is_null(), "{}", again["labels"]);
    assert_eq!(finalizers(&world, "web"), json!([FINALIZER]));
    let numbers = |one: &Value| ports(one).iter().map(|(port, _)| *port).collect::<Vec<_>>();
    assert_eq!(numbers(&again), [443, 8082]);
    world.edit("web", |service| {
        service["spec"]["ports"][0]["port"] = json!(80)
    });
    wait_until("the port", || {
        numbers(&as_it_is(&world, balancer)) == [80, 443]
    });
    drop(daemon);
    world.is_at_rest();
    // It was adopted, so it is only released with the Service.
    world.delete("web");
    world.settle(&[]);
    assert_eq!(world.service("web"), None);
    let left = as_it_is(&world, balancer);
    assert_eq!((len(&left["services"]), targets(&left)), (0, vec![]));
    world.nothing_refused();
}

#[test]
fn deleted_while_it_is_released_it_leaves_everything() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    world.settle(&[]);
    release(&world, "default/web");
    let before = as_it_is(&world, id(&world.only()));
    world.delete("web");
    assert_eq!(world.service("web"), None, "no finalizer holds it");
    let mark = world.mark();
    world.settle(&["--delete-orphaned-load-balancers"]);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    assert_eq!(as_it_is(&world, id(&before)), before);
    assert_eq!(before["labels"].as_object().unwrap().len(), LABELS_LEFT);
}

#[test]
fn one_that_terraform_made_is_adopted_with_its_address() {
    let world = World::new(1);
    world.settle(&[]);
    let edge = terraforms(&world, "edge-lb");
    let before = as_it_is(&world, edge);
    let uid = world.create("web", &[], &[6443]);
    let mark = world.mark();
    let ran = run(
        &world,
        &["lb", "adopt", "--dry-run", &edge.to_string(), "default/web"],
    );
    // The defaults of the algorithm are not known to be the daemon's.
    assert!(
        ran.stdout.contains("adopt of load balancer edge-lb"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("held back: algorithm"), "{ran:?}");
    assert_eq!(world.writes(mark), Vec::<String>::new());
    adopt(&world, edge, "default/web");
    let now = as_it_is(&world, edge);
    assert_eq!(now["labels"][SERVICE_UID], json!(uid));
    assert_eq!(now["labels"]["provisioner"], "terraform");
    assert_eq!(
        world.addresses("web")[0],
        before["public_net"]["ipv4"]["ip"]
    );
    world.is_at_rest();
    // One of another living Service is never taken.
    world.create("shop", &[], &[80]);
    let mark = world.mark();
    let ran = run(
        &world,
        &["lb", "adopt", "--yes", &edge.to_string(), "default/shop"],
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("owned by another Service"), "{ran:?}");
    assert_eq!(world.writes(mark), Vec::<String>::new());
    release(&world, "default/web");
    let left = as_it_is(&world, edge);
    assert_eq!(
        left["labels"],
        json!({ "provisioner": "terraform", RELEASED: uid })
    );
    assert_eq!(
        (&left["services"], &left["targets"]),
        (&now["services"], &now["targets"])
    );
}

/// Its port stays beside those of the others, whatever becomes of them.
#[test]
fn of_a_group_one_is_released_and_the_others_go_on_and_leave_it() {
    let world = World::new(1);
    world.settle(&[]);
    let [a, b, c] = [("a", 80), ("b", 443), ("c", 8080)]
        .map(|(name, port)| world.create(name, &[EDGE], &[port]));
    world.settle(&[]);
    let shared = id(&world.only());
    let addresses = world.addresses("a");
    release(&world, "default/a");
    world.settle(&[]);
    let left = as_it_is(&world, shared);
    assert_eq!(ports(&left), owned(&[(80, ""), (443, &b), (8080, &c)]));
    assert_eq!(left["labels"][RELEASED], json!(a));
    assert_eq!(world.addresses("a"), addresses);
    let ran = run(&world, &["lb", "release", "default/b", "--yes"]);
    assert_eq!(ran.code, 1, "there can be one label: {ran:?}");
    assert!(
        !(ran.stdout + &ran.stderr).contains("   that one"),
        "a message in one piece"
    );

    // The others go on, and go. It asks for the group no more, which changes nothing.
    world.annotate("a", "share", None);
    let daemon = world.daemon(&[OFTEN]);
    world.edit("b", |service| {
        service["spec"]["ports"][0]["port"] = json!(444)
    });
    wait_until("the other port", || {
        ports(&as_it_is(&world, shared)) == owned(&[(80, ""), (444, &b), (8080, &c)])
    });
    world.delete("c");
    wait_until("its end", || world.service("c").is_none());
    world.ticks(6);
    let now = as_it_is(&world, shared);
    assert_eq!(
        ports(&now),
        owned(&[(80, ""), (444, &b)]),
        "{}",
        daemon.log()
    );
    world.delete("b");
    wait_until("its end", || world.service("b").is_none());
    world.ticks(6);
    drop(daemon);
    world.settle(&["--delete-orphaned-load-balancers"]);
    let now = as_it_is(&world, shared);
    assert_eq!(ports(&now), owned(&[(80, "")]));
    assert_eq!(targets(&now).len(), 1, "the released port needs it");
    assert_eq!(world.addresses("a"), addresses);
    // And it is taken back, where it asks for the group again.
    world.annotate("a", "share", Some("edge"));
    adopt(&world, shared, "default/a");
    let now = as_it_is(&world, shared);
    assert_eq!(now["labels"][SERVICE_UID], json!(a), "{}", now["labels"]);
    world.is_at_rest();
}

#[test]
fn one_of_others_is_released_with_our_ports_on_it() {
    let world = World::new(1);
    world.settle(&[]);
    let edge = terraforms(&world, "edge-lb");
    allow(&world, edge, Some("default"));
    let uid = world.create("web", &[("external", "edge-lb")], &[80]);
    world.settle(&[]);
    let before = as_it_is(&world, edge);
    release(&world, "default/web");
    let after = as_it_is(&world, edge);
    assert_eq!(
        (&after["services"], &after["targets"]),
        (&before["services"], &before["targets"])
    );
    assert_eq!(after["labels"][RELEASED], json!(uid));
    // By its label the port is known when the Service is adopted again.
    assert_eq!(ports(&after), owned(&[(80, &uid), (6443, "")]));
    the_daemon_leaves_it(&world, "web");
}
