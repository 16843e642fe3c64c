//! More nodes than an lb11 takes: the nodes that run pods of the Service become targets.

use crate::common::{self, Daemon, pass, wait_until};
use crate::sync::external::{BY_NAME, allow};
use crate::sync::world::{Cluster, NO_RESYNC, World, id, service, targets};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use sandbox::kubernetes::Pod;
use serde_json::json;
use std::time::{Duration, Instant};

const PREFER: (&str, &str) = ("prefer-nodes-with-pods", "true");
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const NODES: usize = 40;
/// How many targets an lb11 takes.
const ROOM: usize = 25;
fn world() -> World {
    let world = World::new(NODES);
    world.cluster().grant("ccm", common::component_rules("endpointslices"));
    world
}

impl World {
    /// Creates a Service with policy `Local`, whose pods run on these nodes.
    fn create_local(&self, name: &str, annotations: &[(&str, &str)], nodes: &[usize]) {
        self.put_local(name, annotations);
        self.set_pods(name, nodes, Pod::Ready);
    }

    fn put_local(&self, name: &str, annotations: &[(&str, &str)]) {
        // The port is another one for each Service, because two of them can share a load balancer.
        let mut local = service(name, annotations, &[80 + name.len() as u16]);
        local["spec"]["externalTrafficPolicy"] = json!("Local");
        self.create_as(local);
    }

    fn set_pods(&self, service: &str, nodes: &[usize], pod: Pod) {
        let names: Vec<String> = nodes.iter().map(|number| worker(*number)).collect();
        let pods: Vec<(&str, Pod)> = names.iter().map(|name| (name.as_str(), pod)).collect();
        let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
        self.cluster().set_endpoints(namespace, name, &pods);
    }

    fn has_targets(&self, balancer: u64, nodes: &[usize]) -> bool {
        let all = self.balancers();
        let all = targets(all.iter().find(|one| id(one) == balancer).expect("the load balancer"));
        nodes.iter().all(|number| all.contains(&self.server_id(&worker(*number))))
            && all.len() == ROOM
    }

    fn slice_reads(&self, mark: u64) -> usize {
        let calls = self.sandbox.calls().calls_since(mark);
        calls.iter().filter(|call| call.path == SLICES).count()
    }
}

fn worker(number: usize) -> String {
    format!("worker-{number}")
}

/// Starts a daemon, and a Service whose pods run on the last three nodes by name. Returns the ID of its load balancer.
fn started(world: &World) -> (Daemon, u64) {
    let daemon = world.daemon(&[NO_RESYNC]);
    world.create_local("web", &[PREFER], &[7, 8, 9]);
    wait_until("an address", || world.has_address("web"));
    let id = id(&world.only_balancer());
    wait_until("all targets", || world.has_targets(id, &[7, 8, 9]));
    (daemon, id)
}

#[test]
fn a_new_load_balancer_gets_the_nodes_with_pods_and_a_rollout_moves_them() {
    let world = world();
    let (_daemon, id) = started(&world);
    pass(&world.sandbox, Duration::from_secs(90));
    let mark = world.mark();
    // The pods move to nodes that are no targets.
    let all: Vec<usize> = (1..=NODES).filter(|node| !world.has_targets(id, &[*node])).collect();
    let new = &all[..3];
    world.set_pods("web", new, Pod::Ready);
    wait_until("the new targets", || world.has_targets(id, new));
    let writes = world.cloud_writes(mark);
    assert_eq!(writes.len(), 6, "{writes:#?}");
    pass(&world.sandbox, Duration::from_secs(90));
    let mark = world.mark();
    pass(&world.sandbox, Duration::from_secs(600));
    let calls = world.cloud_calls(mark);
    let mut calls = calls.iter().filter(|call| call.path.starts_with("/v1/load_balancers"));
    assert_eq!(calls.next().map(|call| &call.path), None);
    let reads = world.slice_reads(mark);
    assert!((30..=41).contains(&reads), "{reads} reads, every 15 s");
}

#[test]
fn no_target_with_a_pod_is_removed_and_the_rest_follows_in_its_pace() {
    let world = world();
    let (_daemon, id) = started(&world);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    // Twelve more pods come on nodes that are no targets.
    let new: Vec<usize> =
        (1..=NODES).filter(|node| !world.has_targets(id, &[*node])).take(12).collect();
    let mark = world.mark();
    world.set_pods("web", &[&[7, 8, 9], &new[..]].concat(), Pod::Ready);
    // A target is exchanged when this process has seen for a minute that it runs no pods.
    pass(&world.sandbox, Duration::from_secs(30));
    assert_eq!(world.cloud_writes(mark), [""; 0]);
    let mut exchanged = Vec::new();
    for _ in 0..40 {
        pass(&world.sandbox, Duration::from_secs(10));
        exchanged.push(world.cloud_writes(mark).len() / 2);
        assert!(world.has_targets(id, &[7, 8, 9]));
    }
    assert_eq!(exchanged.last(), Some(&12), "{exchanged:?}");
    let calls = world.sandbox.calls().calls_since(mark);
    let removals = calls.iter().filter(|call| call.path.ends_with("/remove_target"));
    let times: Vec<Instant> = removals.map(|call| call.started).collect();
    let six = times.windows(6).map(|six| six[5] - six[0]).min();
    assert!(six >= Some(Duration::from_secs(60)), "{six:?} for six exchanges");
    assert!(world.has_targets(id, &new));
}

#[test]
fn a_target_stays_while_its_last_pod_ends() {
    let world = world();
    let (_daemon, id) = started(&world);
    pass(&world.sandbox, Duration::from_secs(90));
    let all: Vec<usize> = (1..=NODES).filter(|node| !world.has_targets(id, &[*node])).collect();
    world.cluster().set_endpoints(
        "default",
        "web",
        &[("worker-7", Pod::Terminating), ("worker-8", Pod::Ready), (&worker(all[0]), Pod::Ready)],
    );
    wait_until("the new target", || world.has_targets(id, &[7, 8, all[0]]));
}

/// While an endpoint names no node, its pod may run on any target. So the minute begins anew.
#[test]
fn a_target_stays_for_a_minute_after_an_endpoint_that_named_no_node() {
    let world = world();
    let (_daemon, id) = started(&world);
    if common::needs_simulation(&world.sandbox, common::EXACT_TIME) {
        return;
    }
    let (all, outside): (Vec<usize>, Vec<usize>) =
        (1..=NODES).partition(|node| world.has_targets(id, &[*node]));
    world.set_pods("web", &all, Pod::Ready);
    pass(&world.sandbox, Duration::from_secs(90));
    let moved = [&all[1..], &outside[..1]].concat();
    let names: Vec<String> =
        moved.iter().map(|number| worker(*number)).chain([String::new()]).collect();
    let pods: Vec<(&str, Pod)> = names.iter().map(|name| (name.as_str(), Pod::Ready)).collect();
    let mark = world.mark();
    world.cluster().set_endpoints("default", "web", &pods);
    world.wait_for_event("web", "EndpointsUnreadable", &["without nodeName"]);
    world.set_pods("web", &moved, Pod::Ready);
    pass(&world.sandbox, Duration::from_secs(55));
    assert_eq!(world.cloud_writes(mark), [""; 0]);
    wait_until("the new target", || world.has_targets(id, &moved));
}

/// The first answer of the API server is a refusal, so the targets are those of today.
#[test]
fn without_the_right_targets_are_those_of_today_and_the_event_has_the_command() {
    let world = World::new(NODES);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create_local("web", &[PREFER], &[7, 8, 9]);
    let command = "kubectl apply -k manifests/components/endpointslices";
    world.wait_for_event("web", "EndpointsUnreadable", &[command]);
    wait_until("an address", || world.has_address("web"));
    let id = id(&world.only_balancer());
    let mark = world.mark();
    pass(&world.sandbox, Duration::from_secs(500));
    assert_eq!(world.slice_reads(mark), 0);
    assert!(!world.has_targets(id, &[7, 8, 9]));
    world.cluster().grant("ccm", common::component_rules("endpointslices"));
    wait_until("the targets", || world.has_targets(id, &[7, 8, 9]));
}

#[test]
fn a_read_that_fails_leaves_the_targets_as_they_are() {
    let world = world();
    let (_daemon, id) = started(&world);
    pass(&world.sandbox, Duration::from_secs(90));
    world.sandbox.faults().add(
        Rule::new(Effect::kubernetes_status(500, "InternalError", "down"))
            .half(Half::Kubernetes)
            .when(|call| call.path == SLICES),
    );
    let mark = world.mark();
    world.set_pods("web", &[], Pod::Ready);
    pass(&world.sandbox, Duration::from_secs(300));
    assert_eq!(world.cloud_writes(mark), [""; 0]);
    assert!(world.has_targets(id, &[7, 8, 9]));
}

#[test]
fn nothing_is_read_while_all_nodes_fit_or_no_service_asks() {
    let world = World::new(3);
    world.cluster().grant("ccm", common::component_rules("endpointslices"));
    let _daemon = world.daemon(&[NO_RESYNC]);
    let mark = world.mark();
    world.create_local("web", &[PREFER], &[1]);
    world.create_local("plain", &[], &[1]);
    wait_until("addresses", || world.has_address("web") && world.has_address("plain"));
    pass(&world.sandbox, Duration::from_secs(60));
    assert_eq!(world.slice_reads(mark), 0);
}

/// A guest can't turn the rule on. When the group's own namespace asks for it, the pods of the guest count, too.
#[test]
fn in_a_group_the_namespace_of_the_group_asks_and_the_pods_of_all_count() {
    let world = world();
    world.create_namespace("shop");
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create_local("web", &[("share", "edge"), ("share-namespaces", "shop")], &[7]);
    world.create_local("shop/guest", &[("share", "default/edge"), PREFER], &[8]);
    wait_until("addresses", || world.has_address("web") && world.has_address("shop/guest"));
    let id = id(&world.only_balancer());
    let mark = world.mark();
    pass(&world.sandbox, Duration::from_secs(120));
    assert!(!world.has_targets(id, &[7]) && !world.has_targets(id, &[8]));
    assert_eq!(world.slice_reads(mark), 0);
    let shown = world.ccm(&["lb", "inspect", "shop/guest"]).with_code(0);
    shown.prints("the load balancer is shared under the name default/edge");
    world.annotate("web", PREFER.0, Some("true"));
    wait_until("both targets", || world.has_targets(id, &[7, 8]));
}

#[test]
fn on_an_external_load_balancer_each_service_must_ask() {
    let world = world();
    let id = world.create_balancer("edge-lb", &json!({ "load_balancer_type": "lb11" }));
    allow(&world, id, Some("default"));
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create_local("plain", &[BY_NAME], &[8]);
    world.create_local("web", &[BY_NAME, PREFER], &[7]);
    wait_until("all targets", || world.has_targets(id, &[]));
    let why = "another Service with a port on the load balancer does not set it to \"true\"";
    world.wait_for_event("web", "AnnotationWithoutEffect", &[why]);
    assert!(!world.has_targets(id, &[7]));
    world.annotate("plain", PREFER.0, Some("true"));
    wait_until("both targets", || world.has_targets(id, &[7, 8]));
}

#[test]
fn commands_show_which_nodes_have_pods() {
    let world = world();
    let (_daemon, _) = started(&world);
    pass(&world.sandbox, Duration::from_secs(60));
    let shown = world.ccm(&["lb", "inspect", "default/web"]).with_code(0);
    if !common::needs_simulation(&world.sandbox, "health of targets by pods") {
        shown.prints("no ready pod of the Service on this node");
    }
    shown.prints("NODE WITH PODS  PODS   TARGET");
    let findings = shown.stdout.split("\n\n").next().unwrap_or_default();
    assert!(!findings.contains("unhealthy"), "{findings}");
    let with_pods = &world.inspect("web", &[])["object"]["withPods"];
    assert_eq!(with_pods[0], json!({ "node": "worker-7", "isReady": true, "isTarget": true }));
    world.ccm(&["lb", "sync", "default/web", "--dry-run"]).prints("0 to change");
    world.set_pods("web", &[], Pod::Ready);
    world.set_pods("web", &[39, 40, 9], Pod::Ready);
    world.ccm(&["lb", "sync", "default/web"]).with_code(0);
}
