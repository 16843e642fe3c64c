//! Methods with which a test reads and changes the cluster and the Hetzner Cloud project of its sandbox, as an admin
//! does in production. All tests use these methods, whether `ccm` runs simulated in the thread of the test or as a
//! process.

use super::{Daemon, Ran, UNINITIALIZED};
use sandbox::calls::Call;
use sandbox::exchange::{Handler, Request};
use sandbox::faults::{Rule, RuleId};
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The key of a label that `ccm` sets on a load balancer. The label's value is the UID of the Service to which the load
/// balancer belongs.
pub const SERVICE_UID: &str = "hcloud-ccm/service-uid";
/// The key of a label that `ccm` sets on a load balancer. The label's value identifies the cluster to which the load
/// balancer belongs. It is usually the UID of the cluster's Service `default/kubernetes`.
pub const CLUSTER_UID: &str = "ccm-from-scratch/cluster-uid";
/// The namespace of the Lease with which the replicas of `ccm run` choose their leader. The constant `LEASE` is the
/// name of this Lease.
pub const KUBE_SYSTEM: Option<&str> = Some("kube-system");
pub const LEASE: &str = "cloud-controller-manager";
/// The finalizer of a Service that has a load balancer.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Methods that read the simulated cluster and cloud of a sandbox, and methods that change them as a person could.
pub trait Cluster {
    fn sandbox(&self) -> &Sandbox;

    // The following methods run `ccm` commands.

    /// Runs a `ccm` command with the Hetzner Cloud token of the sandbox and the kubeconfig of its Kubernetes user
    /// `ccm`. Waits until the command has ended.
    fn ccm(&self, words: &[&str]) -> Ran {
        super::ccm(&super::env(self.sandbox()), words)
    }

    /// Starts `ccm run` with these flags.
    fn daemon(&self, flags: &[&str]) -> Daemon {
        Daemon::start(&super::env(self.sandbox()), flags)
    }

    /// Runs `ccm run --once`, so that all controllers run once. Panics when `ccm` fails.
    #[track_caller]
    fn converge(&self) {
        self.ccm(&["run", "--once"]).with_code(0);
    }

    // The following methods read and change Nodes and servers.

    /// Returns the Node of this name.
    ///
    /// # Panics
    /// Panics when there is no Node of this name.
    fn node(&self, name: &str) -> Value {
        let found = self.sandbox().cluster().get("nodes", None, name);
        found.unwrap_or_else(|| panic!("there is no node {name}"))
    }

    fn has_node(&self, name: &str) -> bool {
        self.sandbox().cluster().get("nodes", None, name).is_some()
    }

    fn nodes(&self) -> Vec<Value> {
        self.sandbox().cluster().list("nodes", None)
    }

    fn provider_id(&self, name: &str) -> String {
        text(&self.node(name)["spec"]["providerID"])
    }

    fn has_taint(&self, name: &str, key: &str) -> bool {
        let node = self.node(name);
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.any(|taint| taint["key"] == key)
    }

    fn is_ready(&self, name: &str) -> bool {
        let node = self.node(name);
        let mut conditions = node["status"]["conditions"].as_array().unwrap().iter();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    }

    /// Waits until the node exists and is initialised.
    fn wait_for_node(&self, name: &str) {
        super::wait_until(&format!("the initialised node {name}"), || {
            self.has_node(name) && is_initialised(&self.node(name))
        });
    }

    /// Waits until all nodes are initialised.
    fn wait_for_nodes(&self) {
        super::wait_until("initialised nodes", || self.nodes().iter().all(is_initialised));
    }

    /// Sets the condition `Ready` of a node to this status, and removes all other conditions.
    fn set_ready(&self, name: &str, status: &str) {
        self.edit_node(name, |node| {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
        });
    }

    /// Removes the conditions of a node, so that it is not ready.
    fn remove_conditions(&self, name: &str) {
        self.edit_node(name, |node| node["status"]["conditions"] = json!([]));
    }

    fn edit_node(&self, name: &str, edit: impl FnMut(&mut Value)) {
        let cluster = self.sandbox().cluster();
        assert!(cluster.edit("nodes", None, name, edit), "no node {name}");
    }

    fn delete_node(&self, name: &str) {
        let cluster = self.sandbox().cluster();
        assert!(cluster.delete("nodes", None, name), "no node {name}");
    }

    fn servers(&self) -> Vec<Value> {
        self.sandbox().cloud().servers(self.sandbox().project())
    }

    /// Returns the ID of the server of this name.
    fn server_id(&self, name: &str) -> u64 {
        let servers = self.servers();
        let found = servers.iter().find(|server| server["name"] == name);
        let found = found.unwrap_or_else(|| panic!("there is no server {name}"));
        found["id"].as_u64().unwrap()
    }

    /// Creates a server of this name without a node, and returns the server's ID.
    fn create_server(&self, name: &str) -> u64 {
        self.create_server_with(name, ServerSpec::default())
    }

    /// Creates a server of this name without a node. The server's other properties come from `spec`. Returns the
    /// server's ID.
    fn create_server_with(&self, name: &str, spec: ServerSpec) -> u64 {
        let name = name.to_owned();
        let (cloud, project) = (self.sandbox().cloud(), self.sandbox().project());
        cloud.create_server(project, ServerSpec { name, ..spec })
    }

    /// Creates a server in the sandbox's Network without a node. The server's private address is `ip`, or any free
    /// address when `ip` is `None`. Returns the server's ID.
    fn attach_server(&self, name: &str, ip: Option<&str>) -> u64 {
        let ip = ip.map(|ip| ip.parse().unwrap());
        let networks = vec![(self.network_id(), ip)];
        let spec = ServerSpec::default();
        self.create_server_with(name, ServerSpec { networks, ..spec })
    }

    /// Returns the private address of this server in the first Network to which it is attached.
    fn ip(&self, name: &str) -> String {
        let servers = self.servers();
        let mut servers = servers.iter();
        let server = servers.find(|server| server["name"] == name).unwrap();
        text(&server["private_net"][0]["ip"])
    }

    /// Creates a server and a node, both of this name. Returns the server's ID.
    fn join_node(&self, name: &str) -> u64 {
        let name = name.to_owned();
        let spec = ServerSpec::default();
        self.sandbox().join(ServerSpec { name, ..spec })
    }

    fn edit_server(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let id = self.server_id(name);
        self.sandbox().cloud().edit_server(id, edit);
    }

    fn delete_server(&self, name: &str) {
        self.sandbox().cloud().delete_server(self.server_id(name));
    }

    fn set_power(&self, name: &str, is_on: bool) {
        self.sandbox().cloud().set_power(self.server_id(name), is_on);
    }

    /// Registers a node of this name with the pod CIDRs `pods`, separated by commas. When `server` is the ID of a
    /// server, the node has the provider ID of this server and no taint `uninitialized`, as if `ccm` had initialised
    /// it. When `server` is `None`, the node has the taint and no provider ID.
    fn register(&self, name: &str, server: Option<u64>, pods: &str) {
        let pods = pods.split(',').filter(|cidr| !cidr.is_empty());
        self.sandbox().register_node(NodeSpec {
            name: name.to_owned(),
            server,
            provider_id: server.map(|id| format!("ccm-from-scratch://{id}")),
            pod_cidrs: pods.map(str::to_owned).collect(),
            ..NodeSpec::default()
        });
    }

    // The following methods read and change Services and load balancers.

    /// Creates a Service with these TCP ports, and returns its UID.
    fn create(&self, name: &str, annotations: &[(&str, &str)], ports: &[u16]) -> String {
        let created = self.create_as(service(name, annotations, ports));
        text(&created["metadata"]["uid"])
    }

    /// Sends this Service to the API server without changes, and returns the created Service. The namespace comes from
    /// the Service's metadata.
    fn create_as(&self, service: Value) -> Value {
        let namespace = text(&service["metadata"]["namespace"]);
        let cluster = self.sandbox().cluster();
        let annotations = service["metadata"]["annotations"].as_object();
        let mut keys = annotations.into_iter().flat_map(|all| all.keys());
        // When several Services want the same port of a shared load balancer, `ccm` gives the port to the oldest
        // Service. Creation times are stored in whole seconds. When the API server is real, the test therefore waits
        // here for the next second, so that the new Service is younger than all existing ones.
        if keys.any(|key| key.ends_with("/share") || key.ends_with("/external")) {
            cluster.await_next_second();
        }
        cluster.create("services", Some(&namespace), service)
    }

    /// Returns a Service. `name` is a name in the namespace `default`, or `NAMESPACE/NAME`.
    fn service(&self, name: &str) -> Option<Value> {
        let (namespace, name) = of_namespace(name);
        self.sandbox().cluster().get("services", Some(namespace), name)
    }

    fn uid(&self, name: &str) -> String {
        text(&self.service(name).unwrap()["metadata"]["uid"])
    }

    fn edit(&self, name: &str, edit: impl FnMut(&mut Value)) {
        let (namespace, name) = of_namespace(name);
        let cluster = self.sandbox().cluster();
        assert!(cluster.edit("services", Some(namespace), name, edit));
    }

    /// Sets the annotation `load-balancer.hetzner.cloud/ANNOTATION` of a Service, or removes the annotation when
    /// `value` is `None`.
    fn annotate(&self, name: &str, annotation: &str, value: Option<&str>) {
        let key = key(annotation);
        self.edit(name, |service| {
            if !service["metadata"]["annotations"].is_object() {
                service["metadata"]["annotations"] = json!({});
            }
            let annotations = service["metadata"]["annotations"].as_object_mut().unwrap();
            match value {
                Some(value) => drop(annotations.insert(key.clone(), json!(value))),
                None => drop(annotations.remove(&key)),
            }
        });
    }

    /// Changes the type of a Service.
    fn set_type(&self, name: &str, kind: &str) {
        self.edit(name, |service| service["spec"]["type"] = json!(kind));
    }

    /// Changes the number of the first port of a Service.
    fn set_port(&self, name: &str, port: u16) {
        self.edit(name, |service| {
            service["spec"]["ports"][0]["port"] = json!(port);
        });
    }

    fn finalizers(&self, name: &str) -> Value {
        self.service(name).unwrap()["metadata"]["finalizers"].clone()
    }

    /// Whether the Service has the load balancer finalizer and no other finalizer.
    fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers(name) == json!([FINALIZER])
    }

    /// Removes all finalizers of a Service, as a person can do by force.
    fn remove_finalizers(&self, name: &str) {
        self.edit(name, |service| {
            service["metadata"]["finalizers"] = json!([]);
        });
    }

    fn delete(&self, name: &str) {
        let (namespace, name) = of_namespace(name);
        let cluster = self.sandbox().cluster();
        assert!(cluster.delete("services", Some(namespace), name));
    }

    /// Deletes a Service and waits until it is gone.
    fn delete_and_wait(&self, name: &str) {
        self.delete(name);
        super::wait_until(&format!("the end of {name}"), || self.service(name).is_none());
    }

    fn create_namespace(&self, name: &str) {
        let namespace = json!({"metadata": {"name": name}});
        let cluster = self.sandbox().cluster();
        cluster.create("namespaces", None, namespace);
    }

    /// Returns the load balancer IP addresses in the Service's status.
    fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.service(name).unwrap();
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
        let ingress = ingress.into_iter().flatten();
        ingress.map(|one| text(&one["ip"])).collect()
    }

    fn has_address(&self, name: &str) -> bool {
        !self.addresses(name).is_empty()
    }

    fn balancers(&self) -> Vec<Value> {
        self.sandbox().cloud().load_balancers(self.sandbox().project())
    }

    /// Returns the only load balancer of the project.
    fn only_balancer(&self) -> Value {
        let mut all = self.balancers();
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    /// Returns the load balancer whose label [`SERVICE_UID`] contains this UID, or `None`. Panics when several load
    /// balancers have the UID.
    fn of_uid(&self, uid: &str) -> Option<Value> {
        let mut all = self.balancers();
        all.retain(|one| one["labels"][SERVICE_UID] == uid);
        assert!(all.len() <= 1, "{all:?}");
        all.pop()
    }

    /// Returns the load balancer whose label [`SERVICE_UID`] contains the UID of this Service. Panics when there is
    /// none.
    fn balancer(&self, name: &str) -> Value {
        self.of_uid(&self.uid(name)).unwrap_or_else(|| panic!("{name} has no load balancer"))
    }

    /// Returns the ID of the load balancer of the Service with this name.
    fn balancer_id(&self, name: &str) -> u64 {
        id(&self.balancer(name))
    }

    /// Creates a load balancer of type lb11 in fsn1, as a person does without `ccm`. The fields of `more` are added to
    /// the request. Returns the load balancer's ID.
    fn create_balancer(&self, name: &str, more: &Value) -> u64 {
        let mut spec = json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1"});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let (cloud, project) = (self.sandbox().cloud(), self.sandbox().project());
        cloud.create_load_balancer(project, spec)
    }

    fn edit_balancer(&self, id: u64, edit: impl FnOnce(&mut Value)) {
        self.sandbox().cloud().edit_load_balancer(id, edit);
    }

    /// Adds a server to the targets of a load balancer without `ccm`, as a person does. Waits until the
    /// server is a target.
    fn add_target(&self, balancer: u64, server: u64) {
        let path = format!("/load_balancers/{balancer}/actions/add_target");
        self.post(&path, &json!({"type": "server", "server": {"id": server}}));
        super::wait_until("the end of that action", || {
            targets(&self.sandbox().cloud().load_balancer(balancer)).contains(&server)
        });
    }

    /// Turns on the deletion protection of a load balancer.
    fn protect(&self, balancer: u64) {
        self.edit_balancer(balancer, |one| {
            one["protection"]["delete"] = json!(true);
        });
    }

    fn certificates(&self) -> Vec<Value> {
        self.sandbox().cloud().certificates(self.sandbox().project())
    }

    /// Creates a certificate without `ccm`, as a person does, and returns the certificate's ID.
    fn create_certificate(&self, certificate: Value) -> u64 {
        let (cloud, project) = (self.sandbox().cloud(), self.sandbox().project());
        cloud.create_certificate(project, certificate)
    }

    // The following methods read and change the Network.

    /// Returns the ID of the sandbox's Network. Panics when the sandbox was built without a Network.
    fn network_id(&self) -> u64 {
        self.sandbox().network().unwrap()
    }

    /// Returns the routes of the sandbox's Network, each as the text `destination gateway`.
    fn routes(&self) -> BTreeSet<String> {
        let routes = self.sandbox().cloud().routes(self.network_id()).into_iter();
        routes.map(|(to, via)| format!("{to} {via}")).collect()
    }

    fn set_route(&self, destination: &str, gateway: &str) {
        let cloud = self.sandbox().cloud();
        cloud.set_route(self.network_id(), destination, gateway);
    }

    fn delete_route(&self, destination: &str) {
        let cloud = self.sandbox().cloud();
        cloud.delete_route(self.network_id(), destination);
    }

    // The following methods read and change the Lease with which the replicas of `ccm run` choose their leader.

    /// Returns the leader election Lease of `ccm run`, or null when there is no such Lease.
    fn lease(&self) -> Value {
        let cluster = self.sandbox().cluster();
        cluster.get("leases", KUBE_SYSTEM, LEASE).unwrap_or_default()
    }

    /// Creates the leader election Lease of `ccm run` with this `spec`, as another candidate for the leadership could
    /// do.
    fn create_lease(&self, spec: Value) {
        let cluster = self.sandbox().cluster();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}, "spec": spec,
        });
        cluster.create("leases", KUBE_SYSTEM, lease);
    }

    fn edit_lease(&self, edit: impl FnMut(&mut Value)) {
        let cluster = self.sandbox().cluster();
        assert!(cluster.edit("leases", KUBE_SYSTEM, LEASE, edit));
    }

    fn delete_lease(&self) {
        let cluster = self.sandbox().cluster();
        assert!(cluster.delete("leases", KUBE_SYSTEM, LEASE));
    }

    // The following methods read Events.

    /// Returns the messages of the Events that have this reason and are about an object of this name.
    fn event_messages(&self, name: &str, reason: &str) -> Vec<String> {
        let mut events = self.sandbox().cluster().list("events", None);
        events.retain(|event| event["involvedObject"]["name"] == name && event["reason"] == reason);
        events.iter().map(|event| text(&event["message"])).collect()
    }

    /// Whether there is an Event that has this reason and is about an object of this name.
    fn has_event(&self, name: &str, reason: &str) -> bool {
        !self.event_messages(name, reason).is_empty()
    }

    /// Waits until there is an Event about the object `name` that has this reason, and a message with every text in
    /// `parts`.
    fn wait_for_event(&self, name: &str, reason: &str, parts: &[&str]) {
        let what = format!("event {reason} about {name} with {parts:?}");
        super::wait_until(&what, || {
            let is_it = |message: &String| parts.iter().all(|part| message.contains(part));
            self.event_messages(name, reason).iter().any(is_it)
        });
    }

    // The following methods add faults to the APIs, read the log of API calls, and send API calls.

    /// Adds a fault rule to the simulated APIs. The rule's effect, e.g. an error status, is applied to later API calls
    /// that match the rule.
    fn fault(&self, rule: Rule) -> RuleId {
        self.sandbox().faults().add(rule)
    }

    fn mark(&self) -> u64 {
        self.sandbox().calls().mark()
    }

    /// Counts the API calls after `mark` that satisfy `is_such`. `mark` is a position in the sandbox's log of API
    /// calls.
    fn count_since(&self, mark: u64, is_such: impl Fn(&Call) -> bool) -> usize {
        let calls = self.sandbox().calls().calls_since(mark);
        calls.iter().filter(|call| is_such(call)).count()
    }

    /// Counts the API calls to this path after `mark`, which is a position in the sandbox's log of API calls.
    fn calls_of(&self, mark: u64, path: &str) -> usize {
        self.count_since(mark, |call| call.path == path)
    }

    /// Returns the API calls that `ccm` made to Hetzner Cloud after `mark`, which is a position in the sandbox's log of
    /// API calls.
    fn cloud_calls(&self, mark: u64) -> Vec<Call> {
        let mut calls = self.sandbox().calls().calls_since(mark);
        calls.retain(|call| call.half == Half::Hetzner && call.caller == "project");
        calls
    }

    /// Returns the writes that `ccm` made to Hetzner Cloud after `mark`, each as `METHOD path`. `mark` is a position in
    /// the sandbox's log of API calls.
    fn cloud_writes(&self, mark: u64) -> Vec<String> {
        let writes = self.cloud_calls(mark).into_iter().filter(Call::is_write);
        writes.map(|call| shown(&call)).collect()
    }

    /// Returns all writes to Services and to Hetzner Cloud after `mark` in the order in which they came, each as
    /// `METHOD path`. `mark` is a position in the sandbox's log of API calls.
    fn writes(&self, mark: u64) -> Vec<String> {
        let mut calls = self.sandbox().calls().calls_since(mark);
        calls.retain(|call| {
            call.is_write() && (call.half == Half::Hetzner || call.path.contains("/services"))
        });
        calls.iter().map(shown).collect()
    }

    /// Sends a `POST` to the Hetzner Cloud API with the token of the project, as a person could with a tool other than
    /// `ccm`. Panics when the answer's status is not 201.
    fn post(&self, path: &str, body: &Value) {
        let token = format!("Bearer {}", self.sandbox().projects().token);
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        let answer = self.sandbox().cloud().handle(&Request {
            method: "POST".into(),
            path: format!("/v1{path}"),
            headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
            body: body.to_string().into_bytes(),
            ..Request::default()
        });
        assert_eq!(answer.status, 201, "{path}: {answer:?}");
    }

    /// Asserts that no API call was refused with status 403. Refused reads of Events, of workloads such as
    /// Deployments, and of certificate requests are ignored. Some commands, e.g. `lb inspect` and `doctor`, try such
    /// reads although the Kubernetes role of `ccm` does not allow them.
    fn assert_nothing_refused(&self) {
        let mut calls = self.sandbox().calls().calls();
        calls.retain(|call| {
            let may_be_refused = call.path.contains("/events")
                || call.path.starts_with("/apis/apps/v1/")
                || call.path.ends_with("/certificatesigningrequests");
            call.status == Some(403) && (call.is_write() || !may_be_refused)
        });
        let refused: Vec<String> = calls.iter().map(ToString::to_string).collect();
        assert_eq!(refused, Vec::<String>::new());
    }
}

impl Cluster for Sandbox {
    fn sandbox(&self) -> &Sandbox {
        self
    }
}

/// Splits `NAMESPACE/NAME` into namespace and name. The namespace is `default` when there is only a name.
fn of_namespace(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("default", name))
}

/// Returns the manifest of a Service of type LoadBalancer with these TCP ports. `name` is a name in the namespace
/// `default`, or `NAMESPACE/NAME`. The keys in `annotations` are given without the prefix
/// `load-balancer.hetzner.cloud/`.
pub fn service(name: &str, annotations: &[(&str, &str)], ports: &[u16]) -> Value {
    let (namespace, name) = of_namespace(name);
    let annotations: Map<String, Value> =
        annotations.iter().map(|(name, value)| (key(name), json!(value))).collect();
    let ports = ports.iter();
    let ports: Vec<Value> = ports
        .map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports},
    })
}

/// Sets these fields in the `spec` of a Service, and returns the Service.
pub fn with_spec(mut service: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        service["spec"][name] = value.clone();
    }
    service
}

/// Returns the `spec` of a Lease that `holder` acquired at the time `renewed` and has not renewed since then.
pub fn held(holder: &str, duration_s: u32, renewed: &str, transitions: u32) -> Value {
    json!({
        "holderIdentity": holder, "leaseDurationSeconds": duration_s, "acquireTime": renewed, "renewTime": renewed,
        "leaseTransitions": transitions,
    })
}

/// Formats a time as Kubernetes writes it in a Lease, with microseconds.
pub fn lease_time(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Adds the prefix `load-balancer.hetzner.cloud/` to the name of a Service annotation.
pub fn key(annotation: &str) -> String {
    format!("load-balancer.hetzner.cloud/{annotation}")
}

/// Returns the `id` field of a resource of the Hetzner Cloud API.
pub fn id(value: &Value) -> u64 {
    value["id"].as_u64().unwrap()
}

/// Returns the text of a value, or an empty text when the value is not a string.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns how many elements a list has, or 0 when the value is not a list.
pub fn len(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

/// Returns the IDs of the servers that are targets of a load balancer.
pub fn targets(balancer: &Value) -> Vec<u64> {
    let targets = balancer["targets"].as_array().unwrap().iter();
    let ids = targets.map(|target| target["server"]["id"].as_u64());
    ids.flatten().collect()
}

/// Returns the listen ports of a load balancer, sorted.
pub fn listen_ports(balancer: &Value) -> Vec<u64> {
    let ports = balancer["services"].as_array().unwrap().iter();
    let mut ports: Vec<u64> = ports.map(|port| port["listen_port"].as_u64().unwrap()).collect();
    ports.sort_unstable();
    ports
}

/// Whether the node has no taint `uninitialized`. Every new node has this taint until `ccm` has initialised the node.
pub fn is_initialised(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    !taints.into_iter().flatten().any(|one| one["key"] == UNINITIALIZED)
}

/// Returns the HTTP method and the path of an API call without `/v1`, e.g. `POST /load_balancers/1/actions/add_target`.
pub fn shown(call: &Call) -> String {
    let path = call.path.strip_prefix("/v1").unwrap_or(&call.path);
    format!("{} {path}", call.method)
}
