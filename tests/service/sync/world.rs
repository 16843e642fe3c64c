//! A cluster with Services, as its admin and the cloud's console see it.

use crate::common::{self, Daemon, Env, Simulate, is_initialised, wait_at_most, wait_until};
use sandbox::calls::Call;
use sandbox::exchange::{Handler, Request};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
pub const SERVICE_UID: &str = "hcloud-ccm/service-uid";
pub const CLUSTER_UID: &str = "ccm-from-scratch/cluster-uid";

/// In a resync period as long as this, none happens in a test.
pub const NO_RESYNC: &str = "--load-balancer-resync-period=24h";
/// Comes once a minute: as often as refreshes may. That is 1.2 s, scaled.
pub const OFTEN: &str = "--load-balancer-resync-period=10s";

pub const HCLOUD: &str = "--cloud-provider=hcloud";
/// Flags of both profiles.
pub const PROFILES: [&str; 2] = ["--cloud-provider=ccm-from-scratch", HCLOUD];

pub struct World {
    pub sandbox: Arc<Sandbox>,
    pub env: Env,
}

impl World {
    pub fn new(nodes: usize) -> World {
        World::of(common::builder().nodes(nodes))
    }

    pub fn with_network(nodes: usize) -> World {
        World::of(common::builder().nodes(nodes).network("10.0.0.0/8"))
    }

    pub fn of(builder: sandbox::Builder) -> World {
        World::at(builder.heartbeats(false).simulated())
    }

    /// The same with processes and over sockets.
    pub fn over_sockets(builder: sandbox::Builder) -> World {
        World::at(Arc::new(builder.scale(0.02).heartbeats(false).start()))
    }

    fn at(sandbox: Arc<Sandbox>) -> World {
        let env = common::with(
            common::env(&sandbox),
            &[
                ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
                ("HCLOUD_LOAD_BALANCERS_TYPE", "lb11"),
            ],
        );
        World { sandbox, env }
    }

    /// A daemon, and its nodes initialised.
    pub fn daemon(&self, flags: &[&str]) -> Daemon {
        let daemon = Daemon::start(&self.env, flags);
        wait_until("initialised nodes", || {
            let nodes = self.sandbox.cluster().list("nodes", None);
            nodes.iter().all(is_initialised)
        });
        // Its first pass looks for orphans too: over, before a test begins to count.
        self.ticks(1);
        daemon
    }

    /// One pass of everything; the nodes first.
    pub fn once(&self, flags: &[&str]) -> common::Ran {
        common::ccm(&self.env, &[&["run", "--once"], flags].concat())
    }

    /// As `once`, until there is nothing to do.
    pub fn settle(&self, flags: &[&str]) {
        // The first pass of a new cluster looks at Services while nodes are being initialised.
        for _ in 0..2 {
            let ran = self.once(flags);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
    }

    /// A Service with these TCP ports; its UID.
    pub fn create(&self, name: &str, annotations: &[(&str, &str)], ports: &[u16]) -> String {
        let created = self.create_as(service(name, annotations, ports));
        text(&created["metadata"]["uid"])
    }

    pub fn create_as(&self, service: Value) -> Value {
        let cluster = self.sandbox.cluster();
        cluster.create("services", Some("default"), service)
    }

    pub fn service(&self, name: &str) -> Option<Value> {
        self.sandbox
            .cluster()
            .get("services", Some("default"), name)
    }

    pub fn edit(&self, name: &str, edit: impl FnMut(&mut Value)) {
        let cluster = self.sandbox.cluster();
        assert!(cluster.edit("services", Some("default"), name, edit));
    }

    pub fn annotate(&self, name: &str, annotation: &str, value: Option<&str>) {
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

    pub fn delete(&self, name: &str) {
        let cluster = self.sandbox.cluster();
        assert!(cluster.delete("services", Some("default"), name));
    }

    /// ID of the server of this name.
    pub fn server_of(&self, name: &str) -> u64 {
        let servers = self.sandbox.cloud().servers(self.sandbox.project());
        let mut servers = servers.iter();
        let found = servers.find(|server| server["name"] == name).unwrap();
        found["id"].as_u64().unwrap()
    }

    pub fn balancers(&self) -> Vec<Value> {
        self.sandbox.cloud().load_balancers(self.sandbox.project())
    }

    /// The one that carries the UID.
    pub fn of_uid(&self, uid: &str) -> Option<Value> {
        let mut all = self.balancers();
        all.retain(|one| one["labels"][SERVICE_UID] == uid);
        assert!(all.len() <= 1, "{all:?}");
        all.pop()
    }

    pub fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.service(name).unwrap();
        let ingress = service.pointer("/status/loadBalancer/ingress");
        let ingress = ingress
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        ingress.iter().map(|one| text(&one["ip"])).collect()
    }

    /// Waits until the Service has an address; its load balancer.
    pub fn up(&self, name: &str) -> Value {
        wait_until("an address", || !self.addresses(name).is_empty());
        self.of_uid(&text(&self.service(name).unwrap()["metadata"]["uid"]))
            .expect("an address, and no load balancer")
    }

    /// Messages of the events of one reason.
    pub fn told(&self, name: &str, reason: &str) -> Vec<String> {
        let mut events = self.sandbox.cluster().list("events", None);
        events.retain(|event| event["involvedObject"]["name"] == name && event["reason"] == reason);
        events.iter().map(|event| text(&event["message"])).collect()
    }

    /// Waits until an event says all of these.
    pub fn tells(&self, name: &str, reason: &str, parts: &[&str]) {
        wait_until(
            &format!("event {reason} about {name} with {parts:?}"),
            || {
                let told = self.told(name, reason);
                told.iter()
                    .any(|message| parts.iter().all(|part| message.contains(part)))
            },
        );
    }

    /// Waits until ccm has looked at all Services so often more.
    pub fn ticks(&self, times: usize) {
        self.ticks_within(common::LIMIT, times);
    }

    /// The same where one look takes long.
    pub fn ticks_within(&self, limit: Duration, times: usize) {
        let looks = || {
            let is_look = |call: &Call| {
                call.duration.is_some()
                    && call.path == "/api/v1/services"
                    && call.query("fieldSelector") == Some("spec.type=LoadBalancer")
            };
            self.sandbox.calls().count(is_look)
        };
        // One may be under way that began before what the test did last.
        let enough = looks() + times + 1;
        wait_at_most(limit, "looks at Services", || looks() >= enough);
    }

    /// Calls of ccm to the cloud since a mark.
    pub fn cloud_calls(&self, mark: u64) -> Vec<Call> {
        let mut calls = self.sandbox.calls().calls_since(mark);
        calls.retain(|call| call.half == Half::Hetzner && call.caller == "project");
        calls
    }

    /// Writes of ccm to the cloud since a mark: method and path.
    pub fn cloud_writes(&self, mark: u64) -> Vec<String> {
        let mut calls = self.cloud_calls(mark);
        calls.retain(Call::is_write);
        calls.iter().map(shown).collect()
    }

    /// Writes of ccm to Services and to the cloud since a mark, in their order.
    pub fn writes(&self, mark: u64) -> Vec<String> {
        let mut calls = self.sandbox.calls().calls_since(mark);
        calls.retain(|call| {
            call.is_write() && (call.half == Half::Hetzner || call.path.contains("/services"))
        });
        calls.iter().map(shown).collect()
    }

    /// What somebody asks the cloud's API for, as the project.
    pub fn act(&self, path: &str, body: &Value) {
        let token = format!("Bearer {}", self.sandbox.projects().token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let answer = self.sandbox.cloud().handle(&Request {
            method: "POST".into(),
            path: format!("/v1{path}"),
            headers: headers
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            body: body.to_string().into_bytes(),
            ..Request::default()
        });
        assert_eq!(answer.status, 201, "{path}: {answer:?}");
    }

    pub fn mark(&self) -> u64 {
        self.sandbox.calls().mark()
    }

    /// Nothing that ccm may not do was tried. `lb inspect`, and a process that reports what another one has, read events where they may,
    /// and a person's command the daemon's workload: the daemon's role does not let them.
    pub fn nothing_refused(&self) {
        let calls = self.sandbox.calls().calls();
        let refused = calls.iter().filter(|call| {
            let is_read_where_it_may_be =
                call.path.contains("/events") || call.path.starts_with("/apis/apps/v1/");
            call.status == Some(403) && (call.is_write() || !is_read_where_it_may_be)
        });
        let refused: Vec<String> = refused.map(ToString::to_string).collect();
        assert_eq!(refused, Vec::<String>::new());
    }

    /// What `lb inspect` says.
    pub fn inspect(&self, name: &str, flags: &[&str]) -> Value {
        let name = format!("default/{name}");
        let words = [&["lb", "inspect", name.as_str(), "-o", "json"], flags].concat();
        let ran = common::ccm(&self.env, &words);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()["items"][0].clone()
    }
}

pub fn service(name: &str, annotations: &[(&str, &str)], ports: &[u16]) -> Value {
    let annotations: serde_json::Map<String, Value> = annotations
        .iter()
        .map(|(name, value)| (key(name), json!(value)))
        .collect();
    let ports: Vec<Value> = ports
        .iter()
        .map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports},
    })
}

pub fn key(annotation: &str) -> String {
    format!("load-balancer.hetzner.cloud/{annotation}")
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn len(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

/// Servers that are targets.
pub fn targets(balancer: &Value) -> Vec<u64> {
    let targets = balancer["targets"].as_array().unwrap().iter();
    targets
        .filter_map(|target| target["server"]["id"].as_u64())
        .collect()
}

/// `POST /load_balancers/1/actions/add_target`.
fn shown(call: &Call) -> String {
    let path = call.path.strip_prefix("/v1").unwrap_or(&call.path);
    format!("{} {path}", call.method)
}
