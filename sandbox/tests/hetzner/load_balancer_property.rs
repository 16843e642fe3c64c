//! Sends random requests about load balancers. The API must never answer with a server error, and after each request
//! the resources of the project must be consistent.

use std::collections::BTreeSet;

use sandbox::faults::SplitMix64;
use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

use crate::api::Api;
use crate::load_balancers::{order, path};

const SEEDS: std::ops::Range<u64> = 0..6;
const STEPS: usize = 150;

struct World {
    api: Api,
    random: SplitMix64,
    networks: Vec<u64>,
    servers: Vec<u64>,
    certificate: u64,
}

#[test]
fn any_order_of_changes_leaves_a_consistent_project() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        let mut accepted = 0;
        for step in 0..STEPS {
            let (method, path, body) = world.request();
            let answer = world.api.call(method, &path, body.clone());
            let what = format!("seed {seed}, step {step}: {method} {path} {body}");
            assert!(answer.status < 500, "{what}: {}", answer.body);
            assert_ne!(answer.code(), "json_error", "{what}");
            accepted += usize::from(answer.status < 300);
            world.check(&what);
        }
        assert!(accepted > STEPS / 5, "seed {seed}: only {accepted} requests did anything");
    }
}

impl World {
    fn new(seed: u64) -> World {
        let api = Api::new();
        api.cloud.set_rate_limit(api.project, u32::MAX, u32::MAX);
        let network = |number: u8| {
            let range = format!("10.{number}.0.0/16");
            api.cloud.create_network(api.project, &format!("net-{number}"), &range)
        };
        let networks = vec![network(0), network(1)];
        let server = |number: usize| {
            let server = ServerSpec {
                name: format!("server-{number}"),
                ipv4: !number.is_multiple_of(4),
                networks: vec![(networks[number % 2], None)],
                labels: [("half".to_owned(), (number % 2).to_string())].into(),
                ..ServerSpec::default()
            };
            api.cloud.create_server(api.project, server)
        };
        let servers = (0..30).map(server).collect();
        let body = json!({"name": "c", "type": "managed", "domain_names": ["example.com"]});
        let certificate = api.cloud.create_certificate(api.project, body);
        let random = SplitMix64::new(seed);
        World { api, random, networks, servers, certificate }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn request(&mut self) -> (&'static str, String, Value) {
        let existing = self.api.cloud.load_balancers(self.api.project);
        if existing.is_empty() || (existing.len() < 4 && self.below(12) == 0) {
            let body = self.order();
            return ("POST", "/load_balancers".into(), body);
        }
        let one = &existing[self.below(existing.len())];
        let path = path(one["id"].as_u64().unwrap_or_default());
        let hold = self.below(6) == 0;
        self.api.cloud.hold_actions(hold);
        match self.below(40) {
            0 => ("DELETE", path, Value::Null),
            1 => ("DELETE", format!("/networks/{}", self.networks[0]), Value::Null),
            2 => {
                let server = pick(&mut self.random, &self.servers);
                ("DELETE", format!("/servers/{server}"), Value::Null)
            }
            3 => ("PUT", path, json!({"name": format!("n{}", self.below(3))})),
            _ => {
                let (command, body) = self.change();
                ("POST", format!("{path}/actions/{command}"), body)
            }
        }
    }

    fn order(&mut self) -> Value {
        let mut more = json!({"services": [self.service()], "targets": [self.target()]});
        if self.below(2) == 0 {
            more["network"] = pick(&mut self.random, &self.networks).into();
        }
        order(&format!("n{}", self.below(3)), more)
    }

    fn service(&mut self) -> Value {
        let port = [80, 81, 443, 8080, 8443, 9000, 9001][self.below(7)];
        let mut service = json!({"protocol": "tcp", "listen_port": port, "destination_port": 1});
        if self.below(2) == 0 {
            service["protocol"] = "https".into();
            let redirect = self.below(2) == 0;
            service["http"] =
                json!({"certificates": [self.certificate], "redirect_http": redirect});
        }
        service
    }

    fn target(&mut self) -> Value {
        let private = self.below(2) == 0;
        if self.below(5) == 0 {
            let selector = json!({"selector": format!("half={}", self.below(2))});
            return json!({"type": "label_selector", "label_selector": selector, "use_private_ip": private});
        }
        let server = pick(&mut self.random, &self.servers);
        json!({"type": "server", "server": {"id": server}, "use_private_ip": private})
    }

    fn change(&mut self) -> (&'static str, Value) {
        let network = json!({"network": pick(&mut self.random, &self.networks)});
        match self.below(14) {
            0..3 => ("add_service", self.service()),
            3 => ("update_service", self.service()),
            4 => ("delete_service", json!({"listen_port": self.service()["listen_port"]})),
            5..9 => ("add_target", self.target()),
            9 => {
                let mut target = self.target();
                target.as_object_mut().map(|target| target.remove("use_private_ip"));
                ("remove_target", target)
            }
            10 => ("attach_to_network", network),
            11 => ("detach_from_network", network),
            12 => {
                let size = ["lb11", "lb21", "lb31"][self.below(3)];
                ("change_type", json!({"load_balancer_type": size}))
            }
            _ => (
                ["enable_public_interface", "disable_public_interface"][self.below(2)],
                Value::Null,
            ),
        }
    }

    fn check(&self, what: &str) {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let all = self.api.cloud.load_balancers(self.api.project);
        let mut addresses = 0;
        for one in &all {
            let size = &one["load_balancer_type"];
            let at_most = |count: usize, limit: &str| {
                assert!(count as u64 <= size[limit].as_u64().unwrap_or_default(), "{what}: {one}");
            };
            let (services, targets) = (list(&one["services"]), list(&one["targets"]));
            at_most(services.len(), "max_services");
            let redirects = services.iter().filter(|one| one["http"]["redirect_http"] == true);
            let ports: Vec<u64> = services
                .iter()
                .filter_map(|service| service["listen_port"].as_u64())
                .chain(redirects.map(|_| 80))
                .collect();
            let different: BTreeSet<&u64> = ports.iter().collect();
            assert_eq!(different.len(), ports.len(), "{what}: {one}");

            let mut servers = BTreeSet::new();
            let mut count = 0;
            for target in &targets {
                count +=
                    if target["type"] == "server" { 1 } else { list(&target["targets"]).len() };
                let id = target["server"]["id"].as_u64();
                assert!(id.is_none_or(|id| servers.insert(id)), "{what}: {one}");
                let usable = one["private_net"][0].is_object() || target["use_private_ip"] == false;
                // A target with a private address needs a network. The only exception is a load balancer that is still
                // being created: it can show the target before the network.
                assert!(usable || self.is_creating(one), "{what}: {one}");
                let public =
                    one["public_net"]["enabled"] == true || target["use_private_ip"] == true;
                assert!(public, "{what}: {one}");
            }
            at_most(count, "max_targets");
            addresses += 2;
            for net in list(&one["private_net"]) {
                let network = self.api.get(&format!("/networks/{}", net["network"]));
                let attached = list(network.at("/network/load_balancers"));
                assert!(attached.contains(&one["id"]), "{what}: {one}");
            }
        }
        let primary = self.api.cloud.primary_ips(self.api.project);
        let held = primary.iter().filter(|ip| ip["assignee_type"] == "load_balancer");
        assert_eq!(held.count(), addresses, "{what}");
    }

    fn is_creating(&self, one: &Value) -> bool {
        let path = format!("/load_balancers/{}/actions?status=running", one["id"]);
        self.api.get(&path).at("/actions/0/command") == "create_load_balancer"
    }
}

fn pick(random: &mut SplitMix64, ids: &[u64]) -> u64 {
    ids[random.below(ids.len() as u64) as usize]
}
