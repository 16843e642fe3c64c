//! Services that share load balancers, or use one of another owner: they join, leave, change their ports, come and are
//! deleted, and Terraform removes labels. In half of the stories a hostile tenant asks for what they have.
//!
//! At every write it is checked that nothing that is served is taken away, and that nothing of other owners is touched.
//! In the end each living Service is served, and nothing is left of the others.

mod end;
mod events;
mod harm;
mod hostile;

use super::{Topic, Verdict, cluster, nodes};
use crate::random::Random;
use ccm::hetzner::load_balancers::{PORT, SERVICE_UID};
use events::{CLOSED, Choice, Event, OPEN, SERVICES};
use harm::{Moment, Seen};
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// The port that the load balancers of other owners have.
const THEIR_PORT: u64 = 6443;

/// Where they send it. The API server gives a Service this node port only if it asks for it.
const THEIR_NODE_PORT: u64 = 30_043;

pub struct Shared {
    nodes: u64,
    /// Value of the label by which the owner of [`OPEN`] allows its use.
    allowed_to: &'static str,
    services: Vec<(String, Choice, Vec<u64>)>,
    /// See [`Topic::may_have_wrong_token`].
    wrong_tokens: bool,
    two_at_once: bool,
    /// A hostile tenant takes part.
    has_tenant: bool,
    /// The Service `kubernetes` is deleted now and then, which who may edit namespace `default` can do.
    loses_identity: bool,
    /// What was done by the tenant, and for it, before the story begins.
    of_tenant: Vec<Event>,
    seen: Mutex<Seen>,
    /// [`OPEN`] and [`CLOSED`] at the beginning.
    before: Mutex<[Value; 2]>,
}

impl Shared {
    /// `is_real`: the story runs over sockets, where no process leads.
    pub fn of(random: &mut Random, two_at_once: bool, is_real: bool) -> Shared {
        let nodes = 1 + random.below(3);
        let allowed_to = *random.pick(&["", "default"]);
        let count = 2 + random.below(SERVICES - 1);
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
            loses_identity: random.percent(25) && !is_real,
            of_tenant: match has_tenant {
                true => hostile::before(random),
                false => Vec::new(),
            },
            seen: Mutex::default(),
            before: Mutex::default(),
        }
    }

    fn moment<'a>(&'a self, sandbox: &'a Sandbox) -> Moment<'a> {
        Moment { sandbox, seen: &self.seen, two_at_once: self.two_at_once }
    }
}

impl Topic for Shared {
    fn begin(&self, sandbox: &Sandbox) {
        for n in 0..self.nodes {
            cluster::join(sandbox, &format!("n-{n}"));
        }
        if self.wrong_tokens {
            cluster::join(sandbox, cluster::STAYS);
        }
        events::make_others(sandbox, self.allowed_to);
        hostile::begin(sandbox);
        for (name, choice, ports) in &self.services {
            Event::Add(name.clone(), *choice, ports.clone()).happen(sandbox);
        }
        for event in &self.of_tenant {
            event.happen(sandbox);
        }
        *self.before.lock().unwrap() = [OPEN, CLOSED].map(|name| end::as_it_is(sandbox, name));
    }

    /// In a cluster without nodes a project can't be distinguished from the right one.
    fn may_have_wrong_token(&self) -> bool {
        self.wrong_tokens
    }

    fn needs_lease(&self) -> bool {
        self.loses_identity
    }

    fn chapter_begins(&self, sandbox: &Sandbox) {
        self.moment(sandbox).learn_all();
    }

    fn happens(&self, sandbox: &Sandbox, random: &mut Random, between_ticks: bool) -> String {
        if between_ticks && self.two_at_once {
            // Each has its own view of what happened, and Hetzner's API knows no condition on a write.
            return "nothing happens".to_owned();
        }
        let event = match self.loses_identity && random.percent(15) {
            true => Event::Hostile(hostile::Act::Identity),
            false => Event::of(random, self.has_tenant),
        };
        if let Event::Terraform = event {
            self.moment(sandbox).terraform_runs();
        }
        event.happen(sandbox);
        format!("{event:?}")
    }

    fn restored(&self, sandbox: &Sandbox) {
        self.moment(sandbox).restored();
    }

    fn weather(&self, sandbox: &Sandbox, random: &mut Random) {
        // With two at once a plan of the one that was at work before may be older than the change.
        if self.has_tenant && !self.two_at_once && random.percent(25) {
            hostile::flood(sandbox);
        }
    }

    fn clear_up(&self, sandbox: &Sandbox) {
        cluster::some_node_is_alive(sandbox);
    }

    fn read(&self, sandbox: &Sandbox, request: &Request) {
        self.moment(sandbox).learn(request);
    }

    fn judge(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let moment = self.moment(sandbox);
        match half {
            Half::Hetzner => Verdict::of(moment.harm_in_cloud(request)),
            Half::Kubernetes if request.path.contains("/services/") => {
                Verdict::of(moment.harm_in_cluster(request))
            }
            _ => nodes::judge(sandbox, half, request, &Vec::new()),
        }
    }

    fn is_right(&self, sandbox: &Sandbox) -> Result<(), String> {
        let seen = self.seen.lock().unwrap();
        end::is_right(sandbox, &seen)?;
        let before = self.before.lock().unwrap();
        end::of_others_is_as_before(sandbox, &before, &seen)?;
        nodes::are_right(sandbox)
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
            ("stories in which the Service kubernetes is deleted", u64::from(self.loses_identity)),
        ]
        .into()
    }
}

fn is_of_others(balancer: &Value) -> bool {
    balancer["name"] == OPEN || balancer["name"] == CLOSED
}

/// Listen port and destination port.
fn both_numbers(listener: &Value) -> (u64, u64) {
    let numbers = ["listen_port", "destination_port"].map(|field| number(&listener[field]));
    numbers.into()
}

fn number(port: &Value) -> u64 {
    port.as_u64().unwrap_or_default()
}

/// What the label of a port says, else that of the whole load balancer.
fn owner(balancer: &Value, port: u64) -> &Value {
    match &balancer["labels"][format!("{PORT}{port}")] {
        Value::Null => &balancer["labels"][SERVICE_UID],
        uid => uid,
    }
}

/// The Service's ports that this load balancer sends to its node ports.
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
