//! What the APIs do to `ccm`: fail in any way, answer late, refuse for a moment, fail what they had begun.

use crate::service::random::Random;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Paths of changes to what is there.
const ACTIONS: &str = "/v1/load_balancers/*/actions/*";

/// Where certificates can be issued in good weather.
const ZONE: &str = "example.com";

pub struct Weather {
    seed: u64,
    /// Of all calls.
    fault_rate: f64,
    /// Of all changes: another one is being made.
    busy_rate: f64,
    /// Reads with `resourceVersion=0` show the past.
    old_cache: bool,
    /// The answer to this write is lost.
    lost_creation: bool,
    /// The next action with this command fails.
    fails: Option<&'static str>,
    /// Actions with this command take their time.
    slow: Option<&'static str>,
    /// No certificate can be issued.
    no_zones: bool,
    /// A list lacks one load balancer, and says how many there are.
    short_list: bool,
    /// An operator adds a label to a load balancer just before `ccm` reads it for a write.
    labels_come: bool,
    /// No action on one load balancer ends.
    endless: bool,
}

const COMMANDS: [&str; 8] = [
    "create_load_balancer",
    "add_target",
    "remove_target",
    "add_service",
    "update_service",
    "delete_service",
    "change_load_balancer_type",
    "delete_load_balancer",
];

impl Weather {
    /// With two at once no label may come between the read and the write: Hetzner's API knows no condition on a write.
    pub fn of(seed: u64, two_at_once: bool) -> Weather {
        let mut random = Random::new(seed);
        Weather {
            fault_rate: *random.pick(&[0.0, 0.03, 0.08, 0.2]),
            busy_rate: *random.pick(&[0.0, 0.0, 0.2, 0.5]),
            old_cache: random.percent(25),
            lost_creation: random.percent(30),
            fails: random.percent(30).then(|| *random.pick(&COMMANDS)),
            slow: random.percent(20).then(|| *random.pick(&COMMANDS)),
            short_list: random.percent(10),
            labels_come: random.percent(25) && !two_at_once,
            endless: random.percent(15),
            seed: random.next(),
            no_zones: random.percent(25),
        }
    }

    pub fn begin(&self, sandbox: &Sandbox) {
        let faults = sandbox.faults();
        let error = Effect::hetzner_error;
        for (n, (status, code)) in [(423, "locked"), (409, "conflict")].into_iter().enumerate() {
            let rule = Rule::new(error(status, code, "another change is being made"));
            let rule = rule.half(Half::Hetzner).writes().path(ACTIONS);
            faults.add(rule.probability(self.busy_rate / 2.0, self.seed ^ n as u64));
        }
        if self.lost_creation {
            let rule = Rule::new(Effect::AnswerLost).half(Half::Hetzner);
            faults.add(rule.method("POST").path("/v1/load_balancers").times(1));
            let rule = Rule::new(Effect::AnswerLost).half(Half::Hetzner);
            faults.add(rule.method("POST").path("/v1/certificates").times(1));
        }
        if let Some(command) = self.fails {
            let why = "it did not work out";
            sandbox
                .cloud()
                .fail_next_action(command, "action_failed", why);
        }
        if let Some(command) = self.slow {
            let takes = Some(Duration::from_secs(30));
            sandbox.cloud().set_action_duration(command, takes);
        }
        if self.no_zones {
            let project = sandbox.project();
            sandbox.cloud().set_dns_zones(project, &["another.example"]);
        }
        if self.labels_come {
            let rule = Rule::new(label_comes(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers/*");
            faults.add(rule.probability(0.5, self.seed).times(5));
        }
        if self.endless {
            // One that was created lately is often a Service's.
            let all = sandbox.cloud().load_balancers(sandbox.project());
            let newest = all.last().and_then(|one| one["id"].as_u64());
            if let Some(id) = newest {
                sandbox.cloud().hold_load_balancer(id, true);
            }
        }
        if self.short_list {
            let rule = Rule::new(short_list(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers");
            faults.add(rule.probability(0.5, self.seed));
        }
        faults.random(self.seed, self.fault_rate);
        sandbox.cluster().freeze_cache(self.old_cache);
    }

    pub fn end(&self, sandbox: &Sandbox) {
        sandbox.faults().clear();
        sandbox.cluster().freeze_cache(false);
        let project = sandbox.project();
        sandbox.cloud().set_dns_zones(project, &[ZONE]);
        if let Some(command) = self.slow {
            sandbox.cloud().set_action_duration(command, None);
        }
        for one in sandbox.cloud().load_balancers(project) {
            let id = one["id"].as_u64().unwrap();
            sandbox.cloud().hold_load_balancer(id, false);
        }
    }
}

/// To the one that the request is about.
fn label_comes(sandbox: &Sandbox) -> Effect {
    let cloud = Arc::clone(sandbox.cloud());
    Effect::before(move |request| {
        let id = request.path.rsplit('/').next();
        if let Some(id) = id.and_then(|id| id.parse().ok()) {
            cloud.edit_load_balancer(id, |one| one["labels"]["noted"] = json!("yes"));
        }
    })
}

/// A page that was cut off on the way: one of those that it counts is not on it.
fn short_list(sandbox: &Sandbox) -> Effect {
    let mut all = sandbox.cloud().load_balancers(sandbox.project());
    let total = all.len();
    all.pop();
    let body = json!({ "load_balancers": all, "meta": { "pagination": {
        "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1,
        "total_entries": total,
    } } });
    Effect::Instead(sandbox::exchange::Response::json(200, &body))
}
