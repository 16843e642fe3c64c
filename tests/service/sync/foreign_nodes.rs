//! Nodes of other providers as targets: `HCLOUD_LOAD_BALANCERS_FOREIGN_NODES=match`.

use crate::common::{self, Daemon, pass, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, World, id, targets, text};
use sandbox::faults::Effect;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

const MATCH: (&str, &str) = ("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES", "match");

/// Returns a cluster of k3s with these nodes. Each node runs on a server with its name and reports the public address of
/// this server.
fn k3s(names: &[&str], variables: &[(&str, &str)]) -> World {
    let mut world = World::new(0);
    world.set(variables);
    for name in names {
        world.create_server(name);
        world.join_k3s(name, &[&world.public_ip(name)]);
    }
    world
}

impl World {
    /// Registers a node with a provider ID of k3s that reports these addresses. A node of this name must not exist yet.
    fn join_k3s(&self, name: &str, addresses: &[&str]) {
        self.join(name, Some(format!("k3s://{name}")), addresses);
    }

    /// Registers a node with this provider ID that reports these addresses.
    fn join(&self, name: &str, provider_id: Option<String>, addresses: &[&str]) {
        self.sandbox.register_node(NodeSpec {
            name: name.to_owned(),
            provider_id,
            internal_ip: Some("192.168.7.7".to_owned()),
            ..NodeSpec::default()
        });
        self.report(name, addresses);
    }

    /// The kubelet of the node reports these addresses from now on.
    fn report(&self, name: &str, addresses: &[&str]) {
        let address = |ip: &&str| json!({ "type": "InternalIP", "address": ip });
        let addresses: Vec<_> = addresses.iter().map(address).collect();
        self.edit_node(name, |node| node["status"]["addresses"] = json!(addresses));
    }

    fn public_ip(&self, name: &str) -> String {
        let servers = self.servers();
        let server = servers.iter().find(|server| server["name"] == name).expect("a server");
        text(&server["public_net"]["ipv4"]["ip"])
    }

    /// Returns the names of the servers that are targets of the Service's load balancer.
    fn target_names(&self, service: &str) -> BTreeSet<String> {
        let ids = targets(&self.balancer(service));
        let servers = self.servers().into_iter();
        let is_target = |server: &serde_json::Value| ids.contains(&id(server));
        servers.filter(is_target).map(|server| text(&server["name"])).collect()
    }

    fn wait_for_targets(&self, service: &str, names: &[&str]) {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        wait_until("the targets", || self.target_names(service) == names);
    }

    /// Lets half an hour pass, in which all lists are read again. Then the targets must be the same.
    fn keeps_targets(&self, service: &str, names: &[&str]) {
        pass(&self.sandbox, Duration::from_secs(1800));
        self.wait_for_targets(service, names);
    }

    /// Returns the writes to Nodes since the mark.
    fn node_writes(&self, mark: u64) -> Vec<String> {
        let all = self.writes(mark).into_iter();
        all.filter(|call| call.contains("/api/v1/nodes")).collect()
    }

    fn k3s_daemon(&self) -> Daemon {
        Daemon::start(&self.env, &[OFTEN])
    }
}

#[test]
fn nodes_of_k3s_are_targets_and_nothing_is_written_to_them() {
    let world = k3s(&["one", "two"], &[MATCH]);
    // This node has neither a provider ID nor a taint.
    world.create_server("bare");
    world.join("bare", None, &[&world.public_ip("bare")]);
    world.edit_node("bare", |node| node["spec"]["taints"] = json!([]));
    let mark = world.mark();
    let daemon = world.k3s_daemon();
    world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_targets("web", &["bare", "one", "two"]);
    world.keeps_targets("web", &["bare", "one", "two"]);
    assert_eq!(world.node_writes(mark), Vec::<String>::new());
    daemon.logs("node/bare: another provider manages this node");
    // The Node is deleted, or gets the label that excludes it.
    world.delete_node("two");
    world.wait_for_targets("web", &["bare", "one"]);
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    world.edit_node("bare", |node| node["metadata"]["labels"][label] = json!("true"));
    world.wait_for_targets("web", &["one"]);
}

#[test]
fn without_the_setting_a_node_of_k3s_is_no_target() {
    let world = k3s(&["one"], &[]);
    world.create("web", &[], &[80]);
    world.once(&[]);
    assert_eq!(targets(&world.balancer("web")), Vec::<u64>::new());
    world.wait_for_event("one", "UnknownProviderIDPrefix", &["another cloud-controller-manager"]);
}

/// An address that is lost is reported, and the target stays. It is not added to another load balancer.
#[test]
fn a_target_stays_while_a_server_has_its_name() {
    let world = k3s(&["one", "two"], &[MATCH]);
    let _daemon = world.k3s_daemon();
    world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_targets("web", &["one", "two"]);
    world.report("one", &["10.9.9.9"]);
    world.wait_for_event("one", "ForeignNodeNotMatched", &["reports no address"]);
    world.keeps_targets("web", &["one", "two"]);
    world.create("later", &[], &[80]);
    world.up("later");
    world.wait_for_targets("later", &["two"]);
    // The address comes back.
    let ip = world.public_ip("one");
    world.report("one", &[&ip]);
    world.wait_for_targets("later", &["one", "two"]);
    // No server has the name any more.
    world.edit_server("one", |server| server["name"] = json!("renamed"));
    world.wait_for_targets("web", &["two"]);
}

/// A second claim can't take a target away, and adds none.
#[test]
fn a_node_that_claims_the_server_of_another_node_changes_no_target() {
    let world = k3s(&["one", "two"], &[MATCH]);
    let daemon = world.k3s_daemon();
    world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_targets("web", &["one", "two"]);
    let server = world.server_id("one");
    world.register("evil", Some(server), "");
    daemon.logs("ServerClaimedTwice");
    world.keeps_targets("web", &["one", "two"]);
    world.create("later", &[], &[80]);
    world.up("later");
    world.wait_for_targets("later", &["two"]);
    world.delete_node("evil");
    world.wait_for_targets("later", &["one", "two"]);
}

#[test]
fn a_node_that_also_reports_the_address_of_another_server_is_not_added() {
    let world = k3s(&["one", "two"], &[MATCH]);
    let two = world.public_ip("two");
    let one = world.public_ip("one");
    world.report("one", &[&one, &two]);
    let _daemon = world.k3s_daemon();
    world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_targets("web", &["two"]);
    world.wait_for_event("one", "InstanceLookupFailed", &["also reports"]);
}

/// A list that fails matches nobody and removes nobody.
#[test]
fn a_failed_list_of_servers_changes_no_target() {
    let world = k3s(&["one", "two"], &[MATCH]);
    let _daemon = world.k3s_daemon();
    world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_targets("web", &["one", "two"]);
    let fault = world.fault(common::on(
        "GET /v1/servers",
        Effect::hetzner_error(503, "unavailable", "try again"),
    ));
    world.annotate("web", "algorithm-type", Some("least_connections"));
    world.keeps_targets("web", &["one", "two"]);
    world.sandbox.faults().remove(fault);
    wait_until("the algorithm", || {
        world.balancer("web")["algorithm"]["type"] == "least_connections"
    });
    world.wait_for_targets("web", &["one", "two"]);
}

/// A match proves that the token belongs to the right project.
#[test]
fn a_load_balancer_is_created_only_in_the_project_of_a_matched_server() {
    let mut world = k3s(&["one"], &[MATCH]);
    let right = world.env.clone();
    let token = world.projects().foreign_token.clone();
    world.set(&[("HCLOUD_TOKEN", &token)]);
    world.create("web", &[], &[80]);
    let ran = world.once(&[]).with_code(1);
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(told.contains("Does the token belong to another project?"), "{told}");
    world.env = right;
    world.once(&[]).with_code(0);
    world.wait_for_targets("web", &["one"]);
}

/// A load balancer that was made for a Service ends with the Service, because all its targets are nodes of the cluster.
#[test]
fn the_load_balancer_of_nodes_of_k3s_is_deleted_with_its_service() {
    let world = k3s(&["one", "two"], &[MATCH]);
    let _daemon = world.k3s_daemon();
    world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_targets("web", &["one", "two"]);
    world.delete_and_wait("web");
    assert_eq!(world.balancers(), Vec::<serde_json::Value>::new());
}

/// The private address counts in the Network of the settings, and targets are reached by it.
#[test]
fn a_node_of_k3s_is_matched_and_reached_by_its_private_address() {
    let mut world = World::with_network(0);
    world.set(&[MATCH, ("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "true")]);
    world.attach_server("one", None);
    world.join_k3s("one", &[&world.ip("one")]);
    world.create_server_with("outside", ServerSpec::default());
    world.join_k3s("outside", &[&world.public_ip("outside")]);
    let _daemon = Daemon::start(&world.env, &[NO_RESYNC]);
    world.create("web", &[], &[80]);
    world.up("web");
    world.wait_for_targets("web", &["one"]);
    assert_eq!(world.balancer("web")["targets"][0]["use_private_ip"], true);
}

#[test]
fn a_dedicated_server_of_k3s_is_a_target_by_its_public_address() {
    let mut world = World::of(common::builder().nodes(0).robot(1));
    world.set(&[MATCH, ("ROBOT_ENABLED", "true")]);
    world.delete_node("metal-1");
    let ip = world.sandbox.robot().servers()[0].server_ip.clone().expect("an address");
    world.join_k3s("metal-1", &[&ip]);
    let _daemon = Daemon::start(&world.env, &[NO_RESYNC]);
    world.create("web", &[], &[80]);
    world.up("web");
    wait_until("the target", || world.balancer("web")["targets"][0]["ip"]["ip"] == *ip);
}

#[test]
fn commands_show_how_a_node_of_k3s_is_matched() {
    let world = k3s(&["one", "two"], &[MATCH]);
    world.report("two", &["10.9.9.9"]);
    let shown = world.ccm(&["node", "list"]).with_code(0);
    shown.prints("foreign");
    shown.prints("target only");
    shown.prints("!ForeignNodeNotMatched");
    let shown = world.ccm(&["node", "inspect", "two"]);
    shown.prints("= exactly one server must have the node's name");
    shown.prints("~ the node must report an address of this server");
    let status = world.ccm(&["status"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        status.contains("1 used only as load balancer targets (provider ID k3s://…)"),
        "{status}"
    );
    let doctor = world.ccm(&["doctor"]);
    doctor.prints("reports no address of this server");
    let ignored = common::ccm(
        &common::with(world.env.clone(), &[("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES", "ignore")]),
        &["doctor"],
    );
    ignored.prints("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES=match");
}
