//! Wrong answers that APIs have really given about servers that existed. At any time an API gives only one
//! kind of them.

use crate::random::Random;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug)]
enum WrongAnswer {
    /// A list that looks complete lacks one of the servers.
    ListMissesOne,
    EmptyList,
    /// A single server is reported as not found.
    NotFoundAlone,
    /// A proxy reports a single server as not found.
    ProxyNotFound,
    Unauthorized,
    Forbidden,
    RateLimit,
    Maintenance,
    OtherServer,
    /// A list contains servers without a field for their labels.
    NoLabels,
}

const WRONG_ANSWERS: [WrongAnswer; 10] = [
    WrongAnswer::NoLabels,
    WrongAnswer::ListMissesOne,
    WrongAnswer::EmptyList,
    WrongAnswer::NotFoundAlone,
    WrongAnswer::ProxyNotFound,
    WrongAnswer::Unauthorized,
    WrongAnswer::Forbidden,
    WrongAnswer::RateLimit,
    WrongAnswer::Maintenance,
    WrongAnswer::OtherServer,
];

/// How many of [`WRONG_ANSWERS`], counted from the first, the Cloud API can give.
const WRONG_ANSWERS_OF_CLOUD: usize = 7;

pub fn inject(sandbox: &Sandbox, random: &mut Random) {
    let seed = random.next();
    if random.percent(60) {
        let wrong = *random.pick(&WRONG_ANSWERS[..WRONG_ANSWERS_OF_CLOUD]);
        // The token of another project rightly sees no server of ours, and one wrong answer at a time is enough.
        let other = format!("Bearer {}", sandbox.projects().foreign_token);
        let is_own = move |request: &Request| request.header("authorization") != Some(&other);
        let rule = wrong.rule(random.next()).half(Half::Hetzner).when(is_own);
        sandbox.faults().add(rule.probability(0.7, seed));
    }
    if random.percent(60) && sandbox.serves(Half::Robot) {
        let wrong = *random.pick(&WRONG_ANSWERS[1..]);
        let rule = wrong.rule_of_robot(random.next()).half(Half::Robot);
        sandbox.faults().add(rule.probability(0.7, seed));
    }
}

impl WrongAnswer {
    fn rule(self, choice: u64) -> Rule {
        let (list, one) = ("/v1/servers", "/v1/servers/*");
        let error = Effect::hetzner_error;
        match self {
            WrongAnswer::ListMissesOne => Rule::new(edited(move |body| {
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
            WrongAnswer::EmptyList => Rule::new(empty()).path(list),
            WrongAnswer::NotFoundAlone => {
                Rule::new(error(404, "not_found", "server with this ID not found")).path(one)
            }
            WrongAnswer::ProxyNotFound => Rule::new(Effect::proxy_not_found()).path(one),
            WrongAnswer::Unauthorized => Rule::new(error(401, "unauthorized", "no")).path(one),
            WrongAnswer::Forbidden => Rule::new(error(403, "forbidden", "no")).path(one),
            WrongAnswer::NoLabels => Rule::new(edited(|body| {
                for server in body["servers"].as_array_mut().into_iter().flatten() {
                    server.as_object_mut().unwrap().remove("labels");
                }
            }))
            .path(list),
            WrongAnswer::RateLimit | WrongAnswer::Maintenance | WrongAnswer::OtherServer => {
                unreachable!()
            }
        }
    }

    fn rule_of_robot(self, choice: u64) -> Rule {
        let (list, one) = ("/server", "/server/*");
        let error = Effect::robot_error;
        match self {
            WrongAnswer::ListMissesOne => Rule::new(edited(move |body| {
                if let Some(servers) = body.as_array_mut().filter(|all| !all.is_empty()) {
                    servers.remove(choice as usize % servers.len());
                }
            }))
            .path(list),
            WrongAnswer::EmptyList => {
                Rule::new(error(404, "SERVER_NOT_FOUND", "No server found")).path(list)
            }
            WrongAnswer::NotFoundAlone => {
                Rule::new(error(404, "SERVER_NOT_FOUND", "Server not found")).path(one)
            }
            WrongAnswer::ProxyNotFound => Rule::new(Effect::proxy_not_found()),
            WrongAnswer::Unauthorized => Rule::new(error(401, "UNAUTHORIZED", "Unauthorized")),
            WrongAnswer::Forbidden => Rule::new(Effect::robot_forbidden()),
            WrongAnswer::RateLimit => Rule::new(Effect::robot_rate_limit(200, 1)),
            WrongAnswer::Maintenance => Rule::new(Effect::robot_maintenance()),
            WrongAnswer::OtherServer => Rule::new(Effect::other_json()),
            WrongAnswer::NoLabels => unreachable!(),
        }
    }
}

/// Returns an effect that changes the answer's document.
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

/// Returns an effect that answers with an empty page, which claims to be the only one.
fn empty() -> Effect {
    let body = json!({ "servers": [], "meta": { "pagination": {
        "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1,
        "total_entries": 0,
    } } });
    Effect::Instead(Response::json(200, &body))
}
