//! Load balancers that others made before the story begins: other clusters, operators, Terraform
//! and Hetzner's controller.

use super::events::{FINALIZER, MAX_SERVICES, NAMESPACE, cluster_uid};
use super::invariants::{has_finalizer, wants_balancer};
use crate::process::PRIMARY_IP_SELECTOR;
use crate::random::Random;
use crate::topics::cluster::{self, NODE_LABEL, server_of};
use ccm::hetzner::load_balancers::{ADOPT, CLUSTER_UID, CREATED, SERVICE, SERVICE_UID};
use sandbox::Sandbox;
use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

/// The UID of a Service that does not exist any more.
const DELETED_UID: &str = "00000000-dead-4000-8000-000000000000";

/// The names of load balancers that no Service may ever adopt, and that therefore never change.
pub const NEVER_ADOPTED: [&str; 7] = [
    "theirs",
    OF_PROGRAM,
    "kubernetes-default-s-0",
    "kubernetes-default-s-1",
    "kubernetes-default-s-2",
    "somebody",
    COPY,
];

/// The name of an empty load balancer with the label by which another program owns it.
pub const OF_PROGRAM: &str = "prod-api";

/// The name of a load balancer with the UID of a Service that exists, and with the label of another cluster.
const COPY: &str = "copy";

const OTHER_CLUSTER: &str = "another-cluster";

/// The labels that Terraform sets. It removes all others.
const OF_TERRAFORM: [&str; 2] = ["provisioner", "team"];

/// The time at which Terraform made its load balancers, long before every Service.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

const FOREIGN_LABEL: (&str, &str) = ("role", "foreign");

/// A load balancer that Terraform made. A Service may adopt it by its name, by the operator's label, or not at all.
#[derive(Debug)]
pub struct ForeignBalancer {
    name: &'static str,
    has_labels: bool,
    ports: &'static [u64],
    target: Target,
    /// The value of the operator's label [`ADOPT`].
    adopt: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    None,
    /// The server of node `n-0`, whether the node exists already or not.
    OurServer,
    /// The servers of all nodes.
    OurServers,
    /// A selector that selects no server.
    NoServers,
    ForeignServer,
    ForeignServers,
}

impl ForeignBalancer {
    pub fn generate_all(random: &mut Random) -> Vec<ForeignBalancer> {
        let of_nodes = [Target::None, Target::OurServer, Target::OurServers, Target::NoServers];
        let of_all =
            [Target::None, Target::OurServers, Target::ForeignServer, Target::ForeignServers];
        let foreign = [Target::ForeignServer, Target::ForeignServers];
        let kinds: [(_, &[u64], &[Target]); 3] =
            [("edge", &[], &of_nodes), ("busy", &[6443], &of_all), ("foreign", &[], &foreign)];
        let mut others: Vec<ForeignBalancer> = kinds
            .into_iter()
            .map(|(name, ports, targets)| ForeignBalancer {
                name,
                has_labels: random.percent(50),
                ports,
                target: *random.pick(targets),
                adopt: random.percent(20).then(|| service_of(random)),
            })
            .collect();
        // Two load balancers are offered to one Service.
        if random.percent(10) {
            let service = Some(service_of(random));
            others[0].adopt.clone_from(&service);
            others[1].adopt = service;
        }
        others
    }

    fn make(&self, sandbox: &Sandbox, foreign: u64) {
        let server = |id: u64| json!([{ "type": "server", "server": { "id": id } }]);
        let selector = |(key, value): (&str, &str)| json!([{ "type": "label_selector", "label_selector": { "selector": format!("{key}={value}") } }]);
        let targets = match self.target {
            Target::None => json!([]),
            Target::OurServer => server(cluster::server(sandbox, "n-0")),
            Target::OurServers => selector(NODE_LABEL),
            Target::NoServers => selector((NODE_LABEL.0, "none")),
            Target::ForeignServer => server(foreign),
            Target::ForeignServers => selector(FOREIGN_LABEL),
        };
        let mut labels = json!({});
        if self.has_labels {
            labels["provisioner"] = json!("terraform");
        }
        if let Some(service) = &self.adopt {
            labels[ADOPT] = json!(service);
        }
        let id = make(sandbox, self.name, &labels, &targets, self.ports, None);
        let cloud = sandbox.cloud();
        cloud.edit_load_balancer(id, |one| one["created"] = json!(LONG_AGO));
    }
}

/// Returns a Service as the label [`ADOPT`] names it, such as `default.s-2`. Sometimes the Service never exists.
pub fn service_of(random: &mut Random) -> String {
    match random.below(MAX_SERVICES + 1) {
        MAX_SERVICES => "default.elsewhere".to_owned(),
        n => format!("default.s-{n}"),
    }
}

/// Creates all load balancers that exist before the story begins, and the Primary IPs of the project.
pub fn make_all(sandbox: &Sandbox, others: &[ForeignBalancer]) {
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let (key, value) = FOREIGN_LABEL;
    let foreign = ServerSpec {
        name: "foreign".into(),
        labels: [(key.to_owned(), value.to_owned())].into(),
        ..ServerSpec::default()
    };
    let foreign = cloud.create_server(project, foreign);
    let (key, value) = PRIMARY_IP_SELECTOR.split_once('=').unwrap();
    let address = |name: &str, may_be_claimed: bool, auto_delete: bool| {
        let labels = if may_be_claimed { json!({ key: value }) } else { json!({}) };
        let spec = json!({ "name": name, "type": "ipv4", "location": "fsn1", "labels": labels,
                           "auto_delete": auto_delete });
        cloud.create_primary_ip(project, spec)
    };
    for name in ["kept", "another"] {
        address(name, true, false);
    }
    address("reserved", false, false);
    address("brief", true, true);
    let used = address("used", true, false);

    let target = json!([{ "type": "server", "server": { "id": foreign } }]);
    let ours = cluster_uid(sandbox);
    let dead = |cluster: &str| json!({ SERVICE_UID: DELETED_UID, CLUSTER_UID: cluster });
    let mut left = dead(&ours);
    left[SERVICE] = json!("default.s-3");
    left[CREATED] = json!("true");
    let none = json!([]);
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("theirs", dead(OTHER_CLUSTER), &target),
        ("kubernetes-default-s-0", dead(OTHER_CLUSTER), &target),
        // Hetzner's controller of an unknown cluster made this load balancer.
        ("kubernetes-default-s-1", json!({ SERVICE_UID: DELETED_UID }), &target),
        ("free", json!({ "team": "red" }), &none),
        (OF_PROGRAM, json!({ "caph-cluster-prod": "owned" }), &none),
        ("kubernetes-default-s-2", json!({}), &none),
        // This load balancer is the cluster's own. Its Service had the same name and does not exist any more.
        ("kubernetes-default-s-3", left, &none),
    ];
    for (name, labels, targets) in cases {
        make(sandbox, name, &labels, targets, &[], None);
    }
    let team = json!({ "team": "blue" });
    make(sandbox, "somebody", &team, &target, &[], Some(used));
    others.iter().for_each(|one| one.make(sandbox, foreign));
}

/// Does what Hetzner's controller does for a Service without a load balancer. Only the Service's UID shows that the
/// load balancer is the Service's, and only the finalizer, whose name all controllers share, shows that it must be
/// deleted. A load balancer that has the name already is taken, whoever made it, and gets the UID as a label.
pub fn make_upstream(sandbox: &Sandbox, service: &Value) {
    if !service["spec"]["loadBalancerClass"].is_null() {
        return;
    }
    let name = service["metadata"]["name"].as_str().unwrap();
    sandbox.cluster().edit("services", NAMESPACE, name, |one| {
        one["metadata"]["finalizers"] = json!([FINALIZER]);
    });
    let uid = &service["metadata"]["uid"];
    let name = format!("a{}", uid.as_str().unwrap().replace('-', ""));
    let cloud = sandbox.cloud();
    let all = cloud.load_balancers(sandbox.project());
    let taken = all.iter().find(|one| one["name"] == name);
    match taken.and_then(|one| one["id"].as_u64()) {
        Some(id) => cloud.edit_load_balancer(id, |one| one["labels"][SERVICE_UID] = uid.clone()),
        None => {
            let labels = json!({ SERVICE_UID: uid });
            make(sandbox, &name, &labels, &json!([]), &[], None);
        }
    }
}

/// Lets an operator go back to Hetzner's controller for a while. It finds load balancers by the Service's UID, sets the
/// fields that it knows, creates missing load balancers, and deletes those that are not wanted. Other labels stay.
pub fn run_upstream(sandbox: &Sandbox) {
    let (cloud, cluster) = (sandbox.cloud(), sandbox.cluster());
    let alive = cluster::ids(&cloud.servers(sandbox.project()));
    let nodes = cluster.list("nodes", None);
    let servers = nodes.iter().filter_map(server_of);
    let target =
        |id: u64| json!({ "type": "server", "server": { "id": id }, "use_private_ip": false });
    let targets: Vec<Value> = servers.filter(|id| alive.contains(id)).map(target).collect();
    for service in cluster.list("services", NAMESPACE) {
        let (name, uid) = (&service["metadata"]["name"], &service["metadata"]["uid"]);
        let all = cloud.load_balancers(sandbox.project());
        let mut with_uid = all.iter().filter(|one| one["labels"][SERVICE_UID] == *uid);
        if with_uid.clone().any(is_copy) {
            // Hetzner's controller would take the copy's load balancer for its own.
            continue;
        }
        let id = with_uid.next().and_then(|one| one["id"].as_u64());
        match id {
            Some(id) if wants_balancer(&service) => cloud.edit_load_balancer(id, |one| {
                one["algorithm"]["type"] = json!("round_robin");
                one["targets"] = json!(targets);
                for port in one["services"].as_array_mut().into_iter().flatten() {
                    port["proxyprotocol"] = json!(false);
                    port["health_check"]["interval"] = json!(10);
                }
            }),
            Some(id) if has_finalizer(&service) => {
                cloud.hold_load_balancer(id, false);
                cloud.delete_load_balancer(id);
                let name = name.as_str().unwrap();
                cluster.edit("services", NAMESPACE, name, |one| {
                    one["metadata"]["finalizers"] = json!([]);
                });
                if !service["metadata"]["deletionTimestamp"].is_null() {
                    cluster.delete("services", NAMESPACE, name);
                }
            }
            None if wants_balancer(&service) => make_upstream(sandbox, &service),
            _ => {}
        }
    }
}

/// Creates a load balancer of another cluster of which this one is a copy, so that their Services have the same UIDs.
/// The targets do not show that the load balancer is this cluster's.
pub fn make_copy(sandbox: &Sandbox, service: &Value, has_target: bool) {
    let project = sandbox.project();
    let servers = sandbox.cloud().servers(project);
    let foreign = servers.iter().find(|one| one["name"] == "foreign").unwrap();
    let targets = match has_target {
        true => json!([{ "type": "server", "server": { "id": foreign["id"] } }]),
        false => json!([]),
    };
    let uid = &service["metadata"]["uid"];
    let labels = json!({ SERVICE_UID: uid, CLUSTER_UID: OTHER_CLUSTER, CREATED: "true" });
    make(sandbox, COPY, &labels, &targets, &[], None);
}

/// Whether a load balancer is that of the cluster of which this one is a copy.
pub fn is_copy(balancer: &Value) -> bool {
    balancer["labels"][CLUSTER_UID] == OTHER_CLUSTER
}

/// Runs Terraform. It removes all labels of its load balancers that it did not set, except the Service's UID when it
/// was configured to ignore that label.
pub fn run_terraform(sandbox: &Sandbox, keeps_uid: bool) {
    let cloud = sandbox.cloud();
    let mut all = cloud.load_balancers(sandbox.project());
    all.retain(|one| one["created"] == LONG_AGO);
    for one in all {
        cloud.edit_load_balancer(one["id"].as_u64().unwrap(), |one| {
            let labels = one["labels"].as_object_mut().unwrap();
            labels.retain(|label, _| {
                OF_TERRAFORM.contains(&label.as_str()) || (keeps_uid && label == SERVICE_UID)
            });
        });
    }
}

/// Lets an operator set or remove the label [`ADOPT`].
pub fn set_adopt_label(sandbox: &Sandbox, balancer: &str, service: Option<&str>) {
    let cloud = sandbox.cloud();
    let all = cloud.load_balancers(sandbox.project());
    let Some(one) = all.iter().find(|one| one["name"] == balancer) else {
        return;
    };
    cloud.edit_load_balancer(one["id"].as_u64().unwrap(), |one| match service {
        Some(service) => one["labels"][ADOPT] = json!(service),
        None => drop(one["labels"].as_object_mut().unwrap().remove(ADOPT)),
    });
}

fn make(
    sandbox: &Sandbox,
    name: &str,
    labels: &Value,
    targets: &Value,
    ports: &[u64],
    ipv4: Option<u64>,
) -> u64 {
    let port =
        |port: &u64| json!({ "protocol": "tcp", "listen_port": port, "destination_port": port });
    let services: Vec<Value> = ports.iter().map(port).collect();
    let mut spec = json!({
        "name": name, "load_balancer_type": "lb11", "location": "fsn1", "labels": labels,
        "targets": targets, "services": services, "algorithm": { "type": "round_robin" },
    });
    if let Some(id) = ipv4 {
        spec["public_net"] = json!({ "ipv4": id });
    }
    let cloud = sandbox.cloud();
    cloud.create_load_balancer(sandbox.project(), spec)
}
