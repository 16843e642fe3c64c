//! The identity of the cluster is the UID of the Service `default/kubernetes` that the Lease remembers. Whoever deletes
//! that Service stops nothing, causes no new upload, and makes no object another cluster's.

use crate::common::{self, on, wait_until};
use crate::sync::tls_secrets;
use crate::sync::world::{CLUSTER_UID, Cluster, OFTEN, PROFILES, World, id, len};
use sandbox::faults::Effect;
use serde_json::{Value, json};

const NO_LEASE: &str = "--leader-elect=false";
const IDENTITY: &str = "ccm-from-scratch/identity";

/// Returns what the Lease remembers, or `Null` when it remembers nothing.
fn noted(world: &World) -> Value {
    let lease = world.lease();
    let text = lease["metadata"]["annotations"][IDENTITY].as_str();
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

/// Creates the Service again with another UID, as the API server does.
fn make_kubernetes(world: &World) {
    world.create_as(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "kubernetes", "namespace": "default" },
        "spec": { "type": "ClusterIP", "ports": [{ "name": "https", "port": 443, "protocol": "TCP" }] },
    }));
}

/// Returns the number of ports of the load balancer of the Service `web`.
fn ports(world: &World) -> usize {
    let found = world.of_uid(&world.uid("web"));
    found.map_or(0, |one| len(&one["services"]))
}

/// Adds a port to the Service `web`, and waits until the load balancer has this many.
fn add_port(world: &World, port: u16, count: usize) {
    // A real API server chooses a node port that no other test has.
    let node_port = (!world.cluster().is_real()).then_some(24_000 + port);
    world.edit("web", |service| {
        let ports = service["spec"]["ports"].as_array_mut().unwrap();
        ports.push(json!({
            "name": format!("p{port}"), "port": port, "protocol": "TCP", "nodePort": node_port,
        }));
    });
    has_ports(world, count);
}

fn has_ports(world: &World, count: usize) {
    wait_until("ports", || ports(world) == count);
}

/// Commands of a person find nothing to do, and no orphan.
fn shells_agree(world: &World, profile: &str) {
    for words in
        [&["lb", "sync", "--dry-run"][..], &["lb", "sync", "--delete-orphans", "--dry-run"]]
    {
        let ran = world.ccm(&[words, &[profile]].concat()).with_code(0);
        assert!(!ran.stdout.contains("orphan"), "{ran:?}");
        ran.prints("Plan: 0 to change");
    }
}

#[test]
fn a_service_kubernetes_that_is_deleted_and_made_again_changes_nothing() {
    for profile in PROFILES {
        let world = tls_secrets::world();
        let daemon = world.daemon(&[profile, OFTEN]);
        world.create("web", tls_secrets::FROM_SECRET, &[80, 443]);
        has_ports(&world, 2);
        let first = world.uid("kubernetes");
        wait_until("a note", || noted(&world)["identity"] == *first);
        assert_eq!(noted(&world)["lease"], world.lease()["metadata"]["uid"]);

        // Nothing waits for the Service while it does not exist.
        world.delete("kubernetes");
        world.ticks(8);
        add_port(&world, 8080, 3);
        world.ticks(8);
        let log = daemon.log();
        assert!(!log.contains("default/kubernetes"), "{log}");

        make_kubernetes(&world);
        let second = world.uid("kubernetes");
        assert_ne!(first, second);
        let mark = world.mark();
        wait_until("a second note", || noted(&world)["former"] == json!([second]));
        world.ticks(8);
        assert_eq!(noted(&world)["identity"], *first);
        shells_agree(&world, profile);
        // The next process has it from the Lease.
        drop(daemon);
        let daemon = world.daemon(&[profile, OFTEN]);
        world.ticks(8);
        assert_eq!(world.cloud_writes(mark), [""; 0], "{profile}");
        world.delete("kubernetes");
        drop(daemon);
        let daemon = world.daemon(&[profile, OFTEN]);
        add_port(&world, 8081, 4);
        let writes = world.cloud_writes(mark);
        let makes = |call: &&String| *call == "POST /certificates" || call.starts_with("DELETE");
        assert_eq!(writes.iter().find(makes), None, "{profile}");
        assert_eq!(world.balancer("web")["labels"][CLUSTER_UID], *first);
        assert!(!daemon.log().contains("orphan"), "{}", daemon.log());
        world.assert_nothing_refused();
    }
}

/// There is no Lease, and the API server has not created the Service again yet.
#[test]
fn a_cluster_without_an_identity_syncs_and_neither_creates_nor_deletes() {
    let world = tls_secrets::world();
    let flags = [NO_LEASE, OFTEN];
    let first = world.daemon(&flags);
    world.create("web", tls_secrets::FROM_SECRET, &[80, 443]);
    world.create("old", &[], &[80]);
    world.up("old");
    has_ports(&world, 2);
    assert_eq!(world.lease(), Value::Null);
    world.delete("kubernetes");
    drop(first);

    let daemon = world.daemon(&flags);
    let mark = world.mark();
    add_port(&world, 8080, 3);
    let added = world.cloud_writes(mark);
    world.create("new", &[], &[80]);
    world.delete("old");
    tls_secrets::renew(&world, "web-tls", &tls_secrets::fresh());
    let unknown = "the Service default/kubernetes does not exist, and no Lease";
    world.wait_for_event("new", "SyncLoadBalancerFailed", &[unknown]);
    world.wait_for_event("old", "DeleteLoadBalancerFailed", &[unknown]);
    world.wait_for_event("web", "SyncLoadBalancerFailed", &[unknown]);
    world.ticks(8);
    assert_eq!(world.cloud_writes(mark), added, "{}", daemon.log());
    assert!(world.has_finalizer("old"));
    let ran = world.ccm(&["lb", "inspect", "default/web"]);
    ran.prints(unknown);

    make_kubernetes(&world);
    world.up("new");
    wait_until("the end of the old one", || world.service("old").is_none());
    wait_until("the renewed certificate", || {
        let own = world.uid("kubernetes");
        let is_new = |one: &Value| one["labels"][CLUSTER_UID] == *own;
        world.certificates().iter().any(is_new)
    });
    assert_eq!(world.balancers().len(), 2);
    assert_eq!(ports(&world), 3);
}

/// Made by a shell that could not read the Lease, for example. A Lease that was restored in another cluster does not bring
/// the identity of the first one.
#[test]
fn an_object_of_a_former_identity_is_ours_while_the_lease_remembers_it() {
    for is_same_lease in [true, false] {
        let world = tls_secrets::world();
        world.converge(&[NO_LEASE]);
        world.create("web", tls_secrets::FROM_SECRET, &[80, 443]);
        world.converge(&[NO_LEASE]);
        let before = world.certificates();
        assert_eq!((before.len(), ports(&world)), (1, 2));
        // The targets do not show the owner of the load balancer.
        let stranger = world.create_server("stranger");
        let id = id(&world.only_balancer());
        world.add_target(id, stranger);
        world.create_lease(json!({}));
        let lease_uid = world.lease()["metadata"]["uid"].clone();
        let note = json!({
            "lease": if is_same_lease { lease_uid } else { json!("of-another-cluster") },
            "identity": "the-first",
            "former": [world.uid("kubernetes")],
        });
        world.edit_lease(|lease| {
            lease["metadata"]["annotations"] = json!({ IDENTITY: note.to_string() });
        });
        if !is_same_lease {
            // From now on the cluster looks like another one.
            world.delete("kubernetes");
            make_kubernetes(&world);
        }
        let daemon = world.daemon(&[OFTEN]);
        if !is_same_lease {
            add_port(&world, 8080, 2);
            world.wait_for_event("web", "LoadBalancerNotAdopted", &["names another cluster"]);
            let own = world.uid("kubernetes");
            wait_until("the UID of its own", || noted(&world)["identity"] == *own);
            assert_eq!(ports(&world), 2);
            continue;
        }
        add_port(&world, 8080, 3);
        world.ticks(8);
        assert_eq!(world.certificates(), before, "{}", daemon.log());
        let shell = world.ccm(&["lb", "sync", "--dry-run"]);
        assert!(shell.stdout.contains("0 to change"), "{shell:?}");
        // A certificate of a former identity is deleted once nothing uses it, like a new one.
        world.annotate("web", "http-tls-secret.p443", None);
        world.annotate("web", "protocol.p443", None);
        wait_until("its deletion", || world.certificates().is_empty());
    }
}

/// The refusal is no error of the command, which then uses the Service's UID.
#[test]
fn a_shell_without_the_right_to_read_the_lease_uses_the_service_s_uid_and_does_nothing_after_an_error()
 {
    let world = World::new(1);
    world.converge(&[]);
    world.create("web", &[], &[80]);
    world.converge(&[]);
    assert!(noted(&world)["identity"].is_string());
    let words = ["lb", "sync", "--dry-run"];
    let faults = world.faults();
    let fail = |status: u16, reason: &str| {
        let effect = Effect::kubernetes_status(status, reason, "no");
        faults.add(on("GET /apis/coordination.k8s.io/**", effect));
    };
    fail(403, "Forbidden");
    let ran = world.ccm(&words).with_code(0);
    ran.prints("0 to change");
    faults.clear();
    fail(500, "InternalError");
    let ran = world.ccm(&words).with_code(1);
    ran.warns("leases/cloud-controller-manager");
    faults.clear();
    // The Lease is read once, and only when something depends on it.
    for (words, reads) in [(&["lb", "inspect", "default/web"][..], 1), (&["node", "list"], 0)] {
        let mark = world.mark();
        world.ccm(words).with_code(0);
        let calls = world.calls().calls_since(mark);
        let leases = calls.iter().filter(|call| common::is_lease(&call.path));
        assert_eq!(leases.count(), reads, "{words:?}");
    }
}
