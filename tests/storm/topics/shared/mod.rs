//! Services that share load balancers, or use one of another owner. They join, leave, change their ports, are created
//! and deleted, and Terraform removes labels. In half of the stories a hostile tenant asks for what they have.
//!
//! Every write is checked: nothing that is served may be removed, and nothing of other owners may be changed. In the
//! end each Service that still exists is served, and nothing is left of the others.

mod end_state;
mod events;
mod hostile;
mod invariants;

use super::{Topic, Verdict, cluster, nodes};
use crate::random::Random;
use ccm::hetzner::load_balancers::{PORT, SERVICE_UID};
use events::{CLOSED_BALANCER, Choice, Event, MAX_SERVICES, OPEN_BALANCER};
use invariants::{Checker, History};
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// The port that the load balancers of other owners have.
const OWNER_PORT: u64 = 6443;

/// The node port of that port. The API server gives a Service this node port only if the Service asks for it.
const OWNER_NODE_PORT: u64 = 30_043;

pub struct Shared {
    nodes: u64,
    /// The value of the label by which the owner of [`OPEN_BALANCER`] allows its use.
    allowed_to: &'static str,
    services: Vec<(String, Choice, Vec<u64>)>,
    /// See [`Topic::may_have_wrong_token`].
    wrong_tokens: bool,
    two_at_once: bool,
    /// Whether a hostile tenant takes part.
    has_tenant: bool,
    /// Whether the Service `kubernetes` is deleted now and then. Whoever may edit the namespace `default` can do that.
    replaces_kubernetes_service: bool,
    /// The events of the tenant, and those that help it, before the story begins.
    tenant_events: Vec<Event>,
    history: Mutex<History>,
    /// [`OPEN_BALANCER`] and [`CLOSED_BALANCER`] at the start.
    before: Mutex<[Value; 2]>,
}

impl Shared {
    /// Chooses the topic's objects. `is_real` means that the story runs over sockets, where no process leads.
    pub fn generate(random: &mut Random, two_at_once: bool, is_real: bool) -> Shared {
        let nodes = 1 + random.below(3);
        let allowed_to = *random.pick(&["", "default"]);
        let count = 2 + random.below(MAX_SERVICES - 1);
        let mut service = |n| {
            let (choice, ports) = (events::choice(random), events::ports(random));
            (events::name(n), choice, ports)
        };
        let services = (0..count).map(&mut service).collect();
        let has_tenant = random.percent(50);
        Shared {
            nodes,
            allowed_to,
            services,
            wrong_tokens: random.percent(50),
            two_at_once,
            has_tenant,
            replaces_kubernetes_service: random.percent(25) && !is_real,
            tenant_events: match has_tenant {
                true => hostile::initial_events(random),
                false => Vec::new(),
            },
            history: Mutex::default(),
            before: Mutex::default(),
        }
    }

    fn checker<'a>(&'a self, sandbox: &'a Sandbox) -> Checker<'a> {
        Checker { sandbox, history: &self.history, two_at_once: self.two_at_once }
    }
}

impl Topic for Shared {
    fn set_up(&self, sandbox: &Sandbox) {
        for n in 0..self.nodes {
            cluster::join(sandbox, &format!("n-{n}"));
        }
        if self.wrong_tokens {
            cluster::join(sandbox, cluster::PERMANENT_NODE);
        }
        events::make_others(sandbox, self.allowed_to);
        hostile::set_up(sandbox);
        for (name, choice, ports) in &self.services {
            Event::Add(name.clone(), *choice, ports.clone()).apply(sandbox);
        }
        for event in &self.tenant_events {
            event.apply(sandbox);
        }
        *self.before.lock().unwrap() =
            [OPEN_BALANCER, CLOSED_BALANCER].map(|name| end_state::comparable(sandbox, name));
    }

    /// In a cluster without nodes another project can't be distinguished from the right one.
    fn may_have_wrong_token(&self) -> bool {
        self.wrong_tokens
    }

    fn needs_lease(&self) -> bool {
        self.replaces_kubernetes_service
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        self.checker(sandbox).record_state();
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, between_ticks: bool) -> String {
        if between_ticks && self.two_at_once {
            // Each process has its own view of what happened, and Hetzner's API has no preconditions for writes.
            return "nothing happens".to_owned();
        }
        let event = match self.replaces_kubernetes_service && random.percent(15) {
            true => Event::Tenant(hostile::TenantEvent::ReplaceKubernetesService),
            false => Event::generate(random, self.has_tenant),
        };
        if let Event::Terraform = event {
            self.checker(sandbox).before_terraform();
        }
        event.apply(sandbox);
        format!("{event:?}")
    }

    fn restored(&self, sandbox: &Sandbox) {
        self.checker(sandbox).restored();
    }

    fn inject_faults(&self, sandbox: &Sandbox, random: &mut Random) {
        // With two processes, a plan of the process that worked before may be older than the change.
        if self.has_tenant && !self.two_at_once && random.percent(25) {
            hostile::flood(sandbox);
        }
    }

    fn repair(&self, sandbox: &Sandbox) {
        cluster::ensure_existing_server(sandbox);
    }

    fn before_read(&self, sandbox: &Sandbox, request: &Request) {
        self.checker(sandbox).record_read(request);
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let checker = self.checker(sandbox);
        match half {
            Half::Hetzner => Verdict::from_violation(checker.violation_in_cloud(request)),
            Half::Kubernetes if request.path.contains("/services/") => {
                Verdict::from_violation(checker.violation_in_cluster(request))
            }
            _ => nodes::check_write(sandbox, half, request, &Vec::new()),
        }
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let history = self.history.lock().unwrap();
        end_state::check_end_state(sandbox, &history)?;
        let before = self.before.lock().unwrap();
        end_state::check_foreign_balancers(sandbox, &before, &history)?;
        nodes::check_nodes(sandbox)
    }

    fn counts(&self, sandbox: &Sandbox) -> BTreeMap<&'static str, u64> {
        let count = |method: &str, part: &str| {
            let is_it = |call: &Call| {
                let is_made = call.status.is_some_and(|status| status < 300);
                let is_balancer = call.path.starts_with("/v1/load_balancers");
                is_made && is_balancer && call.method == method && call.path.contains(part)
            };
            sandbox.calls().count(is_it) as u64
        };
        [
            ("ports added to shared ones", count("POST", "/add_service")),
            ("ports changed on shared ones", count("POST", "/update_service")),
            ("ports removed from shared ones", count("POST", "/delete_service")),
            ("shared ones labelled", count("PUT", "")),
            ("shared ones deleted", count("DELETE", "")),
            ("stories with a hostile tenant", u64::from(self.has_tenant)),
            (
                "stories in which the Service kubernetes is deleted",
                u64::from(self.replaces_kubernetes_service),
            ),
        ]
        .into()
    }
}

fn is_of_others(balancer: &Value) -> bool {
    balancer["name"] == OPEN_BALANCER || balancer["name"] == CLOSED_BALANCER
}

/// Returns the listen port and the destination port.
fn both_numbers(listener: &Value) -> (u64, u64) {
    let numbers = ["listen_port", "destination_port"].map(|field| number(&listener[field]));
    numbers.into()
}

fn number(port: &Value) -> u64 {
    port.as_u64().unwrap_or_default()
}

/// Returns the owner of a port. The label of the port decides, and without it the label of the whole load balancer.
fn owner(balancer: &Value, port: u64) -> &Value {
    match &balancer["labels"][format!("{PORT}{port}")] {
        Value::Null => &balancer["labels"][SERVICE_UID],
        uid => uid,
    }
}

/// Returns the Service's ports that this load balancer sends to the Service's node ports.
fn served(balancer: &Value, service: &Value) -> BTreeSet<u64> {
    let is_it = |listener: &Value, port: &Value| {
        listener["listen_port"] == port["port"] && listener["destination_port"] == port["nodePort"]
    };
    let ports = cluster::list(&service["spec"]["ports"]).iter();
    let served = ports.filter(|port| {
        let mut listeners = cluster::list(&balancer["services"]).iter();
        listeners.any(|one| is_it(one, port))
    });
    served.map(|port| number(&port["port"])).collect()
}

fn shows(service: &Value, balancer: &Value) -> bool {
    let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
    ip.is_string() && *ip == balancer["public_net"]["ipv4"]["ip"]
}
