//! What the APIs do to `ccm`: fail in any way, answer late, answer from an old cache, or lie.

use crate::node::random::Random;
use crate::node::story::Renewal;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

pub struct Weather {
    seed: u64,
    /// Of all calls.
    fault_rate: f64,
    /// Reads with `resourceVersion=0` show the past.
    old_cache: bool,
    lie: Option<Lie>,
    /// The same of Robot, where there is one.
    lie_of_robot: Option<Lie>,
}

/// Cloud APIs have said these about servers that were there. Of two witnesses one lies.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A list that is whole to all appearances, without one of the servers.
    ListMissesOne,
    EmptyList,
    /// A server asked for alone is not found.
    NotFoundAlone,
    /// The same, by a proxy on the way.
    ProxyNotFound,
    Unauthorized,
    Forbidden,
    RateLimit,
    Maintenance,
    OtherServer,
    /// A list whose servers have no field for their labels.
    NoLabels,
}

const LIES: [Lie; 10] = [
    Lie::NoLabels,
    Lie::ListMissesOne,
    Lie::EmptyList,
    Lie::NotFoundAlone,
    Lie::ProxyNotFound,
    Lie::Unauthorized,
    Lie::Forbidden,
    Lie::RateLimit,
    Lie::Maintenance,
    Lie::OtherServer,
];

/// The Cloud API has so many of them, the first.
const LIES_OF_CLOUD: usize = 7;

impl Weather {
    pub fn of(seed: u64) -> Weather {
        let mut random = Random::new(seed);
        Weather {
            fault_rate: *random.pick(&[0.0, 0.05, 0.15, 0.3]),
            old_cache: random.percent(25),
            lie: random
                .percent(60)
                .then(|| *random.pick(&LIES[..LIES_OF_CLOUD])),
            seed: random.next(),
            lie_of_robot: random.percent(60).then(|| *random.pick(&LIES[1..])),
        }
    }

    /// A lie was thought of before the renewal: an API that shows a server after it was deleted is none of these.
    pub fn begin(&self, sandbox: &Sandbox, renewal: &Renewal) {
        if let Some(lie) = self.lie {
            // Another project's token sees nothing of ours: that is no lie, and one is enough.
            let own = format!("Bearer {}", sandbox.projects().token);
            let rule = lie.rule(sandbox, self.seed).half(Half::Hetzner);
            let renewal = renewal.clone();
            let is_told = move |request: &Request| {
                request.header("authorization") == Some(&own) && !renewal.has_replaced_a_server()
            };
            sandbox.faults().add(rule.when(is_told));
        }
        if let Some(lie) = self.lie_of_robot.filter(|_| sandbox.serves(Half::Robot)) {
            sandbox
                .faults()
                .add(lie.rule_of_robot(sandbox, self.seed).half(Half::Robot));
        }
        sandbox.faults().random(self.seed, self.fault_rate);
        sandbox.cluster().freeze_cache(self.old_cache);
    }
}

impl Lie {
    fn rule(self, sandbox: &Sandbox, seed: u64) -> Rule {
        let (list, one) = ("/v1/servers", "/v1/servers/*");
        let error = Effect::hetzner_error;
        let rule = match self {
            Lie::ListMissesOne => {
                let mut servers = sandbox.cloud().servers(sandbox.project());
                let missing = Random::new(seed).below(servers.len() as u64) as usize;
                servers.remove(missing);
                Rule::new(list_of(&servers)).path(list)
            }
            Lie::EmptyList => Rule::new(list_of(&[])).path(list),
            Lie::NotFoundAlone => {
                Rule::new(error(404, "not_found", "server with this ID not found")).path(one)
            }
            Lie::ProxyNotFound => Rule::new(Effect::proxy_not_found()).path(one),
            Lie::Unauthorized => Rule::new(error(401, "unauthorized", "no")).path(one),
            Lie::Forbidden => Rule::new(error(403, "forbidden", "no")).path(one),
            Lie::NoLabels => {
                let without = |mut server: Value| {
                    server.as_object_mut().unwrap().remove("labels");
                    server
                };
                let servers = sandbox.cloud().servers(sandbox.project());
                let servers = servers.into_iter().map(without);
                Rule::new(list_of(&servers.collect::<Vec<_>>())).path(list)
            }
            Lie::RateLimit | Lie::Maintenance | Lie::OtherServer => unreachable!(),
        };
        rule.probability(0.7, seed)
    }

    fn rule_of_robot(self, sandbox: &Sandbox, seed: u64) -> Rule {
        let (list, one) = ("/server", "/server/*");
        let error = Effect::robot_error;
        let numbers: Vec<u64> = sandbox
            .robot()
            .servers()
            .iter()
            .map(|one| one.number)
            .collect();
        let missing = numbers[Random::new(seed).below(numbers.len() as u64) as usize];
        let rule = match self {
            Lie::ListMissesOne => {
                let without = move |mut answer: Response| {
                    let body = serde_json::from_slice(&answer.body);
                    if let Ok(Value::Array(mut servers)) = body {
                        servers.retain(|server| server["server"]["server_number"] != missing);
                        answer.body = json!(servers).to_string().into_bytes();
                    }
                    answer
                };
                Rule::new(Effect::changed(without)).path(list)
            }
            Lie::EmptyList => {
                Rule::new(error(404, "SERVER_NOT_FOUND", "No server found")).path(list)
            }
            Lie::NotFoundAlone => {
                Rule::new(error(404, "SERVER_NOT_FOUND", "Server not found")).path(one)
            }
            Lie::ProxyNotFound => Rule::new(Effect::proxy_not_found()),
            Lie::Unauthorized => Rule::new(error(401, "UNAUTHORIZED", "Unauthorized")),
            Lie::Forbidden => Rule::new(Effect::robot_forbidden()),
            Lie::RateLimit => Rule::new(Effect::robot_rate_limit(200, 1)),
            Lie::Maintenance => Rule::new(Effect::robot_maintenance()),
            Lie::OtherServer => Rule::new(Effect::other_json()),
            Lie::NoLabels => unreachable!(),
        };
        rule.probability(0.7, seed)
    }
}

/// The first page, and by its own words the only one.
fn list_of(servers: &[Value]) -> Effect {
    let servers = &servers[..servers.len().min(50)];
    let body = json!({ "servers": servers, "meta": { "pagination": {
        "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1,
        "total_entries": servers.len(),
    } } });
    Effect::Instead(Response::json(200, &body))
}
