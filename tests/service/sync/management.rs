//! `ccm lb adopt` and `ccm lb release`: what they ask for, what they write, and that the daemon leaves a released
//! load balancer alone.

use crate::common::{self, Ran, wait_until};
use crate::sync::external::{allow, as_it_is, create_as_terraform};
use crate::sync::shared::{EDGE, owned, ports};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, SERVICE_UID, World, id, len, targets};
use serde_json::{Value, json};

const RELEASED: &str = "ccm-from-scratch/released";
const LABELS_LEFT: usize = 1;
const DELETE_ORPHANS: &str = "--delete-orphaned-load-balancers";

/// Runs `lb adopt` with this flag.
fn adopt(world: &World, flag: &str, id: u64, service: &str) -> Ran {
    world.ccm(&["lb", "adopt", flag, &id.to_string(), service])
}

fn release(world: &World, service: &str) {
    let words = ["lb", "release", service, "--yes"];
    world.ccm(&words).with_code(0);
}

fn numbers(balancer: &Value) -> Vec<u64> {
    ports(balancer).iter().map(|(port, _)| *port).collect()
}

/// Whatever happens to the Service and to the daemon, nothing is written to either API.
fn the_daemon_leaves_it(world: &World, name: &str) {
    let mark = world.mark();
    for number in [8081, 8082] {
        let daemon = world.daemon(&[OFTEN]);
        world.ticks(4);
        world.annotate(name, "algorithm-type", Some("least_connections"));
        world.set_port(name, number);
        world.ticks(4);
        assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    }
    let ran = world.once(&[DELETE_ORPHANS]).with_code(0);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{ran:?}");
}

#[test]
fn a_wrong_adopt_or_release_is_explained_and_nothing_is_written() {
    let world = World::over_sockets(common::builder().nodes(1));
    world.create("web", &[], &[80]);
    world.create("plain", &[], &[80]);
    world.converge(&[]);
    world.set_type("plain", "ClusterIP");
    world.converge(&[]);
    let id = id(&world.only_balancer()).to_string();
    let mark = world.mark();
    #[rustfmt::skip] // A case is a line.
    let cases: [(&[&str], i32, &str); 12] = [
        (&["release"], 2, "takes one Service"),
        (&["release", "default/web", "default/shop"], 2, "takes one Service"),
        (&["release", "default/web"], 2, "add --yes"),
        (&["release", "--yes", "default/shop"], 1, "default/shop"),
        (&["release", "--yes", "default/plain"], 1, "of type ClusterIP"),
        (&["release", "--dry-run", "default/web"], 0, "release load balancer"),
        (&["adopt", &id], 2, "takes the ID of a load balancer and a Service"),
        (&["adopt", "web", "default/web"], 2, "takes the ID of a load balancer and a Service"),
        (&["adopt", &id, "default/web"], 2, "add --yes"),
        (&["adopt", "--yes", "4711", "default/web"], 1, "the command names load balancer 4711"),
        (&["adopt", "--yes", &id, "default/shop"], 1, "default/shop"),
        (&["adopt", "--yes", &id, "default/plain"], 1, "of type ClusterIP"),
    ];
    for (words, code, part) in cases {
        let ran = world.ccm(&[&["lb"], words].concat());
        assert_eq!(ran.code, code, "{words:?}: {ran:?}");
        let said = ran.stdout.clone() + &ran.stderr;
        assert!(said.contains(part), "{words:?}: {ran:?}");
    }
    // The Service has a load balancer already.
    let other = create_as_terraform(&world, "other");
    let ran = adopt(&world, "--yes", other, "default/web").with_code(1);
    ran.prints("because the Service already uses load balancer \"kubernetes-default-web\"");
    assert_eq!(world.writes(mark), Vec::<String>::new());
}

#[test]
fn a_released_load_balancer_stays_as_it_is_until_it_is_adopted() {
    let world = World::with_network(2);
    let uid = world.create("web", &[], &[80, 443]);
    world.converge(&[]);
    let balancer = id(&world.only_balancer());
    let (before, addresses) = (as_it_is(&world, balancer), world.addresses("web"));
    let mark = world.mark();
    release(&world, "default/web");
    let after = as_it_is(&world, balancer);
    assert_eq!(after["labels"], json!({ RELEASED: uid }));
    let mut unlabelled = before;
    unlabelled["labels"] = after["labels"].clone();
    assert_eq!(after, unlabelled);
    assert!(!world.has_finalizer("web"));
    assert_eq!(world.addresses("web"), addresses);
    let status = "PATCH /api/v1/namespaces/default/services/web/status";
    let labels = format!("PUT /load_balancers/{balancer}");
    assert_eq!(world.writes(mark), [&labels, status]);
    let says = ["Management of load balancer", "ended"];
    world.wait_for_event("web", "LoadBalancerReleased", &says);
    // Again there is nothing to do.
    release(&world, "default/web");
    the_daemon_leaves_it(&world, "web");
    assert_eq!(as_it_is(&world, balancer), after);

    let mark = world.mark();
    let ran = adopt(&world, "--dry-run", balancer, "default/web");
    assert_eq!((ran.code, world.writes(mark)), (0, vec![]), "{ran:?}");
    // Beside the daemon, which goes on with it.
    let daemon = world.daemon(&[NO_RESYNC]);
    adopt(&world, "--yes", balancer, "default/web").with_code(0);
    let again = as_it_is(&world, balancer);
    assert_eq!(again["labels"][SERVICE_UID], json!(uid), "{}", daemon.log());
    assert!(again["labels"][RELEASED].is_null(), "{}", again["labels"]);
    assert!(world.has_finalizer("web"));
    assert_eq!(numbers(&again), [443, 8082]);
    world.set_port("web", 80);
    wait_until("the port", || numbers(&as_it_is(&world, balancer)) == [80, 443]);
    drop(daemon);
    world.assert_converged();
    // The load balancer was adopted, so it is only released with the Service.
    world.delete("web");
    world.converge(&[]);
    assert_eq!(world.service("web"), None);
    let left = as_it_is(&world, balancer);
    assert_eq!((len(&left["services"]), targets(&left)), (0, vec![]));
    world.assert_nothing_refused();
}

#[test]
fn a_service_that_is_deleted_after_its_release_leaves_everything() {
    let world = World::over_sockets(common::builder().nodes(1));
    world.create("web", &[], &[80]);
    world.converge(&[]);
    release(&world, "default/web");
    let before = as_it_is(&world, id(&world.only_balancer()));
    world.delete("web");
    assert_eq!(world.service("web"), None, "no finalizer holds it");
    let mark = world.mark();
    world.converge(&["--delete-orphaned-load-balancers"]);
    assert_eq!(world.writes(mark), Vec::<String>::new());
    assert_eq!(as_it_is(&world, id(&before)), before);
    assert_eq!(before["labels"].as_object().unwrap().len(), LABELS_LEFT);
}

#[test]
fn a_load_balancer_that_terraform_made_is_adopted_with_its_address() {
    let world = World::over_sockets(common::builder().nodes(1));
    world.converge(&[]);
    let edge = create_as_terraform(&world, "edge-lb");
    let before = as_it_is(&world, edge);
    let uid = world.create("web", &[], &[6443]);
    let mark = world.mark();
    let ran = adopt(&world, "--dry-run", edge, "default/web");
    ran.prints("adopt of load balancer \"edge-lb\"");
    assert_eq!(world.writes(mark), Vec::<String>::new());
    adopt(&world, "--yes", edge, "default/web").with_code(0);
    let now = as_it_is(&world, edge);
    assert_eq!(now["labels"][SERVICE_UID], json!(uid));
    assert_eq!(now["labels"]["provisioner"], "terraform");
    let ip = &before["public_net"]["ipv4"]["ip"];
    assert_eq!(world.addresses("web")[0], *ip);
    world.assert_converged();
    // A load balancer of another existing Service is never taken.
    world.create("shop", &[], &[80]);
    let mark = world.mark();
    let ran = adopt(&world, "--yes", edge, "default/shop").with_code(1);
    ran.prints("belongs to another Service");
    assert_eq!(world.writes(mark), Vec::<String>::new());
    release(&world, "default/web");
    let left = as_it_is(&world, edge);
    let labels = json!({ "provisioner": "terraform", RELEASED: uid });
    assert_eq!(left["labels"], labels);
    for field in ["services", "targets"] {
        assert_eq!(left[field], now[field]);
    }
}

/// The port of the released Service stays beside those of the others, whatever happens to them.
#[test]
fn a_released_service_of_a_group_is_left_alone_and_the_others_are_synced() {
    let world = World::over_sockets(common::builder().nodes(1));
    world.converge(&[]);
    let [a, b, c] = [("a", 80), ("b", 443), ("c", 8080)]
        .map(|(name, port)| world.create(name, &[EDGE], &[port]));
    world.converge(&[]);
    let shared = id(&world.only_balancer());
    let addresses = world.addresses("a");
    release(&world, "default/a");
    world.converge(&[]);
    let left = as_it_is(&world, shared);
    assert_eq!(ports(&left), owned(&[(80, ""), (443, &b), (8080, &c)]));
    assert_eq!(left["labels"][RELEASED], json!(a));
    assert_eq!(world.addresses("a"), addresses);
    // There can be only one such label.
    let ran = world.ccm(&["lb", "release", "default/b", "--yes"]);
    let said = ran.with_code(1);
    assert!(!format!("{said:?}").contains("   that one"), "{said:?}");

    // The others go on, and go. It asks for the group no more, which changes nothing.
    world.annotate("a", "share", None);
    let daemon = world.daemon(&[OFTEN]);
    world.set_port("b", 444);
    wait_until("the other port", || {
        ports(&as_it_is(&world, shared)) == owned(&[(80, ""), (444, &b), (8080, &c)])
    });
    world.delete_and_wait("c");
    world.ticks(6);
    let now = as_it_is(&world, shared);
    let both = owned(&[(80, ""), (444, &b)]);
    assert_eq!(ports(&now), both, "{}", daemon.log());
    world.delete_and_wait("b");
    world.ticks(6);
    drop(daemon);
    world.converge(&["--delete-orphaned-load-balancers"]);
    let now = as_it_is(&world, shared);
    assert_eq!(ports(&now), owned(&[(80, "")]));
    assert_eq!(targets(&now).len(), 1, "the released port needs it");
    assert_eq!(world.addresses("a"), addresses);
    // The Service is adopted again when it asks for the group again.
    world.annotate("a", "share", Some("edge"));
    adopt(&world, "--yes", shared, "default/a").with_code(0);
    let now = as_it_is(&world, shared);
    assert_eq!(now["labels"][SERVICE_UID], json!(a), "{}", now["labels"]);
    world.assert_converged();
}

#[test]
fn an_external_load_balancer_is_released_with_our_ports_on_it() {
    let world = World::over_sockets(common::builder().nodes(1));
    world.converge(&[]);
    let edge = create_as_terraform(&world, "edge-lb");
    allow(&world, edge, Some("default"));
    let uid = world.create("web", &[("external", "edge-lb")], &[80]);
    world.converge(&[]);
    let before = as_it_is(&world, edge);
    release(&world, "default/web");
    let after = as_it_is(&world, edge);
    for field in ["services", "targets"] {
        assert_eq!(after[field], before[field]);
    }
    assert_eq!(after["labels"][RELEASED], json!(uid));
    // The label shows that the port is the Service's when the Service is adopted again.
    assert_eq!(ports(&after), owned(&[(80, &uid), (6443, "")]));
    the_daemon_leaves_it(&world, "web");
}
