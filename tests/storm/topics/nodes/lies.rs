//! What APIs have said about servers that were there. Of two witnesses one lies.

use crate::random::Random;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

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

pub fn begin(sandbox: &Sandbox, random: &mut Random) {
    let seed = random.next();
    if random.percent(60) {
        let lie = *random.pick(&LIES[..LIES_OF_CLOUD]);
        // Another project's token sees nothing of ours: that is no lie, and one is enough.
        let other = format!("Bearer {}", sandbox.projects().foreign_token);
        let is_own = move |request: &Request| request.header("authorization") != Some(&other);
        let rule = lie.rule(random.next()).half(Half::Hetzner).when(is_own);
        sandbox.faults().add(rule.probability(0.7, seed));
    }
    if random.percent(60) && sandbox.serves(Half::Robot) {
        let lie = *random.pick(&LIES[1..]);
        let rule = lie.rule_of_robot(random.next()).half(Half::Robot);
        sandbox.faults().add(rule.probability(0.7, seed));
    }
}

impl Lie {
    fn rule(self, choice: u64) -> Rule {
        let (list, one) = ("/v1/servers", "/v1/servers/*");
        let error = Effect::hetzner_error;
        match self {
            Lie::ListMissesOne => Rule::new(edited(move |body| {
                let Some(servers) = body["servers"].as_array_mut() else {
                    return;
                };
                if !servers.is_empty() {
                    servers.remove(choice as usize % servers.len());
                    let total = body["meta"]["pagination"]["total_entries"].as_u64();
                    body["meta"]["pagination"]["total_entries"] =
                        json!(total.unwrap_or_default().saturating_sub(1));
                }
            }))
            .path(list),
            Lie::EmptyList => Rule::new(empty()).path(list),
            Lie::NotFoundAlone => {
                Rule::new(error(404, "not_found", "server with this ID not found")).path(one)
            }
            Lie::ProxyNotFound => Rule::new(Effect::proxy_not_found()).path(one),
            Lie::Unauthorized => Rule::new(error(401, "unauthorized", "no")).path(one),
            Lie::Forbidden => Rule::new(error(403, "forbidden", "no")).path(one),
            Lie::NoLabels => Rule::new(edited(|body| {
                for server in body["servers"].as_array_mut().into_iter().flatten() {
                    server.as_object_mut().unwrap().remove("labels");
                }
            }))
            .path(list),
            Lie::RateLimit | Lie::Maintenance | Lie::OtherServer => unreachable!(),
        }
    }

    fn rule_of_robot(self, choice: u64) -> Rule {
        let (list, one) = ("/server", "/server/*");
        let error = Effect::robot_error;
        match self {
            Lie::ListMissesOne => Rule::new(edited(move |body| {
                if let Some(servers) = body.as_array_mut().filter(|all| !all.is_empty()) {
                    servers.remove(choice as usize % servers.len());
                }
            }))
            .path(list),
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
        }
    }
}

/// The answer's document, with a change.
fn edited(edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Effect {
    Effect::changed(move |mut answer: Response| {
        if answer.status == 200
            && let Ok(mut body) = serde_json::from_slice::<Value>(&answer.body)
        {
            edit(&mut body);
            answer.body = body.to_string().into_bytes();
        }
        answer
    })
}

/// The first page, and by its own words the only one.
fn empty() -> Effect {
    let body = json!({ "servers": [], "meta": { "pagination": {
        "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1,
        "total_entries": 0,
    } } });
    Effect::Instead(Response::json(200, &body))
}
