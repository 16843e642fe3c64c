//! What the APIs do to `ccm`: fail in any way, answer late or never, refuse for a moment, fail what they had begun, answer
//! from an old cache, have clocks of their own, run out of calls.

use crate::random::Random;
use ccm::hetzner::load_balancers::{CLUSTER_UID, CREATED};
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Paths of changes to what is there.
const ACTIONS: [&str; 2] = ["/v1/load_balancers/*/actions/*", "/v1/networks/*/actions/*"];

/// Where certificates can be issued in good weather.
const ZONE: &str = "example.com";

const COMMANDS: [&str; 10] = [
    "create_load_balancer",
    "add_target",
    "remove_target",
    "add_service",
    "update_service",
    "delete_service",
    "change_load_balancer_type",
    "delete_load_balancer",
    "add_route",
    "delete_route",
];

#[derive(Debug)]
pub struct Weather {
    seed: u64,
    /// Of all calls.
    fault_rate: f64,
    /// Of all changes: another one is being made.
    busy_rate: f64,
    /// Of all writes: their answers are lost.
    lost_rate: f64,
    /// Of all calls: answered after the client has given up.
    late_rate: f64,
    /// Of all writes of Kubernetes: another program was faster.
    conflict_rate: f64,
    /// Of all writes: refused for good, whatever they hold.
    refused_rate: f64,
    /// Reads with `resourceVersion=0` show the past.
    old_cache: bool,
    /// The answer to the first creation is lost.
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
    /// So many calls are left of the hour.
    calls_left: Option<u32>,
    /// The Cloud API's clock.
    clock_ahead_s: i64,
    /// One of the APIs answers nothing but errors.
    outage: Option<Half>,
    /// One of the APIs can't be reached.
    silent: Option<Half>,
}

impl Weather {
    /// For a story over sockets, which would wait for each.
    pub fn without_time_outs(self) -> Weather {
        Weather { late_rate: 0.0, ..self }
    }

    /// With two at once no label may come between the read and the write: Hetzner's API knows no condition on a write.
    pub fn of(random: &mut Random, two_at_once: bool) -> Weather {
        Weather {
            fault_rate: *random.pick(&[0.0, 0.03, 0.08, 0.2]),
            busy_rate: *random.pick(&[0.0, 0.0, 0.2, 0.5]),
            lost_rate: *random.pick(&[0.0, 0.0, 0.05, 0.2]),
            late_rate: *random.pick(&[0.0, 0.0, 0.02, 0.1]),
            conflict_rate: *random.pick(&[0.0, 0.0, 0.05, 0.3]),
            refused_rate: *random.pick(&[0.0, 0.0, 0.0, 0.1]),
            old_cache: random.percent(25),
            lost_creation: random.percent(30),
            fails: random.percent(30).then(|| *random.pick(&COMMANDS)),
            slow: random.percent(20).then(|| *random.pick(&COMMANDS)),
            short_list: random.percent(10),
            labels_come: random.percent(25) && !two_at_once,
            endless: random.percent(15),
            no_zones: random.percent(25),
            calls_left: random.percent(12).then(|| *random.pick(&[0, 3, 50, 200, 400])),
            clock_ahead_s: match random.percent(15) {
                true => *random.pick(&[-90_000, -400, -30, 30, 400, 90_000]),
                false => 0,
            },
            outage: random.percent(5).then(|| *random.pick(&[Half::Hetzner, Half::Kubernetes])),
            silent: random
                .percent(4)
                .then(|| *random.pick(&[Half::Hetzner, Half::Kubernetes, Half::Robot]))
                .filter(|_| !two_at_once),
            seed: random.next(),
        }
    }

    pub fn begin(&self, sandbox: &Sandbox) {
        let faults = sandbox.faults();
        let error = Effect::hetzner_error;
        for (n, (status, code)) in [(423, "locked"), (409, "conflict")].into_iter().enumerate() {
            for path in ACTIONS {
                let rule = Rule::new(error(status, code, "another change is being made"));
                let rule = rule.half(Half::Hetzner).writes().path(path);
                faults.add(rule.probability(self.busy_rate / 2.0, self.seed ^ n as u64));
            }
        }
        if self.lost_creation {
            for path in ["/v1/load_balancers", "/v1/certificates"] {
                let rule = Rule::new(Effect::AnswerLost).half(Half::Hetzner);
                faults.add(rule.method("POST").path(path).times(1));
            }
        }
        let lost = Rule::new(Effect::AnswerLost).writes();
        faults.add(lost.probability(self.lost_rate, self.seed ^ 3));
        let late = Rule::new(Effect::SlowAnswer(Duration::from_secs(60)));
        faults.add(late.probability(self.late_rate, self.seed ^ 4));
        let message =
            "the object has been modified; please apply your changes to the latest version";
        let conflict = Rule::new(Effect::kubernetes_status(409, "Conflict", message));
        let conflict = conflict.half(Half::Kubernetes).writes();
        faults.add(conflict.probability(self.conflict_rate, self.seed ^ 5));
        if let Some(half) = self.silent {
            sandbox.stop(half);
        }
        let refused = Rule::new(error(422, "invalid_input", "invalid input in some field"));
        let refused = refused.half(Half::Hetzner).writes();
        faults.add(refused.probability(self.refused_rate, self.seed ^ 6));
        let message = "some field is invalid";
        let refused = Rule::new(Effect::kubernetes_status(422, "Invalid", message));
        let refused = refused.half(Half::Kubernetes).writes();
        faults.add(refused.probability(self.refused_rate, self.seed ^ 7));
        match self.outage {
            Some(Half::Kubernetes) => {
                let why = Effect::kubernetes_status(503, "ServiceUnavailable", "no leader");
                faults.add(Rule::new(why).half(Half::Kubernetes));
            }
            Some(half) => {
                let why = error(503, "unavailable", "maintenance");
                faults.add(Rule::new(why).half(half));
            }
            None => {}
        }
        let (cloud, project) = (sandbox.cloud(), sandbox.project());
        if let Some(command) = self.fails {
            cloud.fail_next_action(command, "action_failed", "it did not work out");
        }
        if let Some(command) = self.slow {
            cloud.set_action_duration(command, Some(Duration::from_secs(30)));
        }
        if self.no_zones {
            cloud.set_dns_zones(project, &["another.example"]);
        }
        if self.labels_come {
            let rule = Rule::new(label_comes(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers/*");
            faults.add(rule.probability(0.5, self.seed).times(5));
            let rule = Rule::new(labels_come_after_list(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers");
            faults.add(rule.probability(0.5, self.seed ^ 8).times(5));
        }
        if self.endless {
            // One that was created lately is often a Service's.
            let all = cloud.load_balancers(project);
            let newest = all.last().and_then(|one| one["id"].as_u64());
            if let Some(id) = newest {
                cloud.hold_load_balancer(id, true);
            }
        }
        if self.short_list {
            let rule = Rule::new(short_list(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers");
            faults.add(rule.probability(0.5, self.seed));
        }
        if let Some(left) = self.calls_left {
            cloud.set_rate_limit(project, 3600, left);
        }
        cloud.set_clock_ahead(self.clock_ahead_s);
        faults.random(self.seed, self.fault_rate);
        sandbox.cluster().freeze_cache(self.old_cache);
    }

    /// Also the rules of others end.
    pub fn end(&self, sandbox: &Sandbox) {
        if let Some(half) = self.silent.filter(|half| sandbox.serves(*half)) {
            sandbox.resume(half).unwrap();
        }
        sandbox.faults().clear();
        sandbox.cluster().freeze_cache(false);
        let (cloud, project) = (sandbox.cloud(), sandbox.project());
        cloud.set_dns_zones(project, &[ZONE]);
        cloud.set_clock_ahead(0);
        if let Some(command) = self.slow {
            cloud.set_action_duration(command, None);
        }
        for one in cloud.load_balancers(project) {
            cloud.hold_load_balancer(one["id"].as_u64().unwrap(), false);
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

/// To all that were created for Services of this cluster, just after they were listed: only a read just before a write
/// shows it.
fn labels_come_after_list(sandbox: &Sandbox) -> Effect {
    let (cloud, project) = (Arc::clone(sandbox.cloud()), sandbox.project());
    let cluster = Arc::clone(sandbox.cluster());
    Effect::after(move |_| {
        let identity = cluster.get("services", Some("default"), "kubernetes");
        let uid = identity.map(|identity| identity["metadata"]["uid"].clone());
        let mut all = cloud.load_balancers(project);
        all.retain(|one| {
            !one["labels"][CREATED].is_null() && Some(&one["labels"][CLUSTER_UID]) == uid.as_ref()
        });
        for id in all.iter().filter_map(|one| one["id"].as_u64()) {
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
    Effect::Instead(Response::json(200, &body))
}
