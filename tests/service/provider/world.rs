//! One Service of one cluster, the provider that serves it, and the steps that the controller makes.

use crate::LIBRARY_SCALE;
use crate::common;
use crate::common::cluster::{Cluster as _, id, text};
use crate::common::objects::{connection, settings};
use ccm::hetzner::load_balancers::{Defaults, annotations::PREFIX};
use ccm::hetzner::{AddressFamily, CloudConnection, Hetzner, HetznerSettings, NetworkSelector};
use ccm::http::{self, Secret, SecretSource, Timing};
use ccm::provider::{
    ActionId, Actions, Applied, Change, Cluster, Departure, ErrorKind, Gate, InstanceId,
    LoadBalancerPlan, OfferedNode, OpenGate, Provider, ProviderError, ProviderId, Reach, Refused,
    Service, ServiceInput, ServicePort, Urgency, clock,
};
use sandbox::calls::Call;
use sandbox::{Half, Sandbox};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub const UID: &str = "5f2c0e5e-0000-4000-8000-000000000001";

pub struct Closed;

impl Gate for Closed {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        Err(Refused("the test says no".into()))
    }
}

/// One Service of one cluster, and the provider that serves it.
pub struct World {
    pub sandbox: Sandbox,
    pub hetzner: Hetzner,
    pub service: Service,
    pub nodes: Vec<OfferedNode>,
    pub cluster: Cluster,
}

impl World {
    pub fn new() -> World {
        World::with_nodes(2)
    }

    pub fn with_nodes(count: usize) -> World {
        World::of(Sandbox::builder().nodes(count).network("10.0.0.0/16"))
    }

    pub fn without_network() -> World {
        World::of(Sandbox::builder().nodes(2))
    }

    fn of(builder: sandbox::Builder) -> World {
        let sandbox = builder.scale(LIBRARY_SCALE).heartbeats(false).start();
        let servers = sandbox.servers();
        let nodes = servers.iter().map(|server| OfferedNode {
            name: text(&server["name"]),
            provider_id: ProviderId::Ours(InstanceId::Cloud(id(server))),
            labels: [("topology.kubernetes.io/zone", "fsn1")].into_iter().collect(),
            addresses: Vec::new(),
            reach: Reach::Unknown,
            dedicated_ipv4: None,
            location: Default::default(),
            departure: Departure::default(),
        });
        let nodes: Vec<OfferedNode> = nodes.collect();
        World {
            hetzner: hetzner(&sandbox, Some(Defaults::default())),
            sandbox,
            service: Service {
                namespace: "default".into(),
                name: "web".into(),
                uid: UID.into(),
                ports: vec![port(80)],
                ..Service::default()
            },
            cluster: Cluster {
                uid: "cluster-1".into(),
                name: "kubernetes".into(),
                service_uids: [UID.to_owned()].into(),
                servers: nodes.iter().filter_map(server_of).collect(),
                ..Cluster::default()
            },
            nodes,
        }
    }

    pub fn removal(&self) -> LoadBalancerPlan {
        let provider = self.hetzner.load_balancers().unwrap();
        let seen = provider.observe(&[], Urgency::Needed).unwrap();
        seen.plan_removal(&self.service, &self.cluster)
    }

    pub fn set(&mut self, annotations: &[(&str, &str)]) {
        for (name, value) in annotations {
            let key = format!("{PREFIX}{name}");
            self.service.annotations.insert(key, (*value).to_owned());
        }
    }

    pub fn input(&self) -> ServiceInput<'_> {
        ServiceInput { service: &self.service, nodes: &self.nodes, cluster: &self.cluster }
    }

    pub fn plan(&self) -> LoadBalancerPlan {
        let provider = self.hetzner.load_balancers().unwrap();
        let seen = provider.observe(&[&self.service], Urgency::Needed).unwrap();
        assert!(seen.covers(&self.service));
        seen.plan(self.input())
    }

    /// Does what the controller does, which is to read, change and wait until nothing is left to do. Returns a line for
    /// each change. The line of a failed change has `!` and the error at its end.
    pub fn converge(&self) -> Vec<String> {
        let mut made = Vec::new();
        for _ in 0..8 {
            let plan = self.plan();
            assert_eq!(plan.outcome.obstacle(), None);
            if plan.outcome.changes().is_empty() {
                return made;
            }
            let failed_before = made.len();
            let anew = self.make(&plan, &mut made);
            let all_failed = made[failed_before..].iter().all(|line| line.contains(" ! "));
            if all_failed && !anew {
                return made;
            }
        }
        panic!("no end of changes: {made:#?}");
    }

    /// Makes a change, or what is left of it.
    pub fn apply(&self, change: &dyn Change) -> Result<Applied, ProviderError> {
        match change.apply() {
            Err(error) if error.kind == ErrorKind::InPart => {
                let rest = change.without_parts().expect("a rest");
                rest.apply()
            }
            outcome => outcome,
        }
    }

    pub fn make(&self, plan: &LoadBalancerPlan, made: &mut Vec<String>) -> bool {
        for change in plan.outcome.changes() {
            let outcome = self.apply(change.as_ref());
            let line = change.description().done().join(", ");
            match outcome {
                Ok(Applied::Done) => made.push(line),
                Ok(Applied::Running(action)) => {
                    made.push(line);
                    self.wait(action).unwrap();
                }
                Ok(Applied::LookAgain(action) | Applied::Shown(action, _)) => {
                    made.push(line);
                    if let Some(action) = action {
                        self.wait(action).unwrap();
                    }
                    return true;
                }
                Ok(Applied::Overtaken) => return true,
                Err(error) if change.may_fail_alone() => made.push(format!("{line} ! {error}")),
                Err(error) => panic!("{line}: {error}"),
            }
        }
        false
    }

    pub fn wait(&self, action: ActionId) -> Result<(), ccm::provider::ProviderError> {
        let mut end = None;
        common::wait_until(&format!("the end of {action:?}"), || {
            end = self.hetzner.ended(&[action]).unwrap().remove(&action);
            end.is_some()
        });
        end.unwrap()
    }

    /// Commands of the writes so far.
    pub fn writes(&self) -> Vec<String> {
        let mut calls = self.calls().calls();
        calls.retain(|call| call.half == Half::Hetzner && call.is_write());
        let shown =
            |call: &Call| format!("{} {}", call.method, call.path.rsplit('/').next().unwrap());
        calls.iter().map(shown).collect()
    }

    /// Every call so far, against the API's own document.
    pub fn check_document(&self) {
        let Some(spec) = common::openapi() else {
            return;
        };
        for call in self.sandbox.calls().calls() {
            if call.half == Half::Hetzner && call.path.starts_with("/v1/") {
                spec.check_request(&call.method, &call.path, &call.query, &call.body)
                    .unwrap_or_else(|problems| panic!("{call}: {problems:?}"));
            }
        }
    }
}

impl Deref for World {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

/// Makes the first change of a plan.
pub fn apply_first(plan: &LoadBalancerPlan) -> Result<Applied, ProviderError> {
    plan.outcome.changes()[0].apply()
}

fn server_of(node: &OfferedNode) -> Option<(InstanceId, String)> {
    match node.provider_id {
        ProviderId::Ours(id) => Some((id, node.name.clone())),
        _ => None,
    }
}

pub fn hetzner(sandbox: &Sandbox, load_balancers: Option<Defaults>) -> Hetzner {
    let (gate, urgency) = (Arc::new(OpenGate), Urgency::Asked);
    hetzner_at(sandbox, load_balancers, gate, urgency)
}

/// Returns the provider, whose writes pass the gate and have this urgency.
pub fn hetzner_at(
    sandbox: &Sandbox,
    load_balancers: Option<Defaults>,
    gate: Arc<dyn Gate>,
    urgency: Urgency,
) -> Hetzner {
    clock::quicken(LIBRARY_SCALE);
    Hetzner::new(HetznerSettings {
        connection: CloudConnection {
            endpoint: sandbox.hetzner_url(),
            token: SecretSource::fixed(Secret::new(&sandbox.projects().token)),
            timing: Timing {
                read_timeout: clock::from_machine(Duration::from_secs(5)),
                write_timeout: clock::from_machine(http::WRITE_TIMEOUT),
                retry_wait: clock::from_machine(Duration::from_millis(1)),
            },
            ..connection()
        },
        network: sandbox.network().map(NetworkSelector::Id),
        load_balancers: load_balancers.map(Arc::new),
        gate,
        urgency,
        ..settings(AddressFamily::Ipv4)
    })
}

pub fn port(number: u16) -> ServicePort {
    ServicePort {
        name: format!("p{number}"),
        port: number,
        node_port: Some(30_000 + number),
        ..ServicePort::default()
    }
}
