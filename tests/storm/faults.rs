//! The faults of the APIs in a phase of a story. The APIs fail in any way, answer late or never, refuse changes for a
//! moment, fail actions that they have started, answer from a stale cache, have wrong clocks, and run out of calls.

use crate::random::Random;
use ccm::hetzner::load_balancers::{CLUSTER_UID, CREATED};
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The paths of changes to objects that exist.
const ACTIONS: [&str; 2] = ["/v1/load_balancers/*/actions/*", "/v1/networks/*/actions/*"];

/// The DNS zone for which certificates can be issued when there is no fault.
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
pub struct Faults {
    seed: u64,
    /// The share of all calls that have a fault.
    fault_rate: f64,
    /// The share of all changes that are refused because another change is being made.
    locked_rate: f64,
    /// The share of all writes whose answers are lost.
    lost_rate: f64,
    /// The share of all calls that are answered after the client has given up.
    timeout_rate: f64,
    /// The share of all writes to the Kubernetes API that are refused because another program was faster.
    conflict_rate: f64,
    /// The share of all writes that are refused as invalid, whatever they contain.
    refused_rate: f64,
    /// Whether reads with `resourceVersion=0` show an old state.
    stale_cache: bool,
    /// Whether the answer to the first creation is lost.
    lost_creation: bool,
    /// The command whose next action fails.
    failing_command: Option<&'static str>,
    /// The command whose actions take a long time.
    slow_command: Option<&'static str>,
    /// Whether no certificate can be issued.
    no_dns_zones: bool,
    /// Whether a list lacks one load balancer but still counts it.
    incomplete_list: bool,
    /// Whether an operator adds a label to a load balancer just before `ccm` reads the load balancer for a write.
    adds_labels: bool,
    /// Whether no action on one load balancer ends.
    has_stuck_action: bool,
    /// The number of calls that are left in this hour.
    calls_left: Option<u32>,
    /// By how many seconds the clock of the Cloud API is ahead.
    clock_ahead_s: i64,
    /// The API that answers every call with an error.
    outage: Option<Half>,
    /// The API that can't be reached.
    unreachable: Option<Half>,
}

impl Faults {
    /// Removes the faults for which a client waits until its timeout. A story over sockets would really wait.
    pub fn without_timeouts(self) -> Faults {
        Faults { timeout_rate: 0.0, ..self }
    }

    /// Chooses the faults of a phase. When two processes are at work, no label may be added between the read and the
    /// write, because Hetzner's API has no preconditions for writes.
    pub fn generate(random: &mut Random, two_at_once: bool) -> Faults {
        Faults {
            fault_rate: *random.pick(&[0.0, 0.03, 0.08, 0.2]),
            locked_rate: *random.pick(&[0.0, 0.0, 0.2, 0.5]),
            lost_rate: *random.pick(&[0.0, 0.0, 0.05, 0.2]),
            timeout_rate: *random.pick(&[0.0, 0.0, 0.02, 0.1]),
            conflict_rate: *random.pick(&[0.0, 0.0, 0.05, 0.3]),
            refused_rate: *random.pick(&[0.0, 0.0, 0.0, 0.1]),
            stale_cache: random.percent(25),
            lost_creation: random.percent(30),
            failing_command: random.percent(30).then(|| *random.pick(&COMMANDS)),
            slow_command: random.percent(20).then(|| *random.pick(&COMMANDS)),
            incomplete_list: random.percent(10),
            adds_labels: random.percent(25) && !two_at_once,
            has_stuck_action: random.percent(15),
            no_dns_zones: random.percent(25),
            calls_left: random.percent(12).then(|| *random.pick(&[0, 3, 50, 200, 400])),
            clock_ahead_s: match random.percent(15) {
                true => *random.pick(&[-90_000, -400, -30, 30, 400, 90_000]),
                false => 0,
            },
            outage: random.percent(5).then(|| *random.pick(&[Half::Hetzner, Half::Kubernetes])),
            unreachable: random
                .percent(4)
                .then(|| *random.pick(&[Half::Hetzner, Half::Kubernetes, Half::Robot]))
                .filter(|_| !two_at_once),
            seed: random.next(),
        }
    }

    pub fn inject(&self, sandbox: &Sandbox) {
        let faults = sandbox.faults();
        let error = Effect::hetzner_error;
        for (n, (status, code)) in [(423, "locked"), (409, "conflict")].into_iter().enumerate() {
            for path in ACTIONS {
                let rule = Rule::new(error(status, code, "another change is being made"));
                let rule = rule.half(Half::Hetzner).writes().path(path);
                faults.add(rule.probability(self.locked_rate / 2.0, self.seed ^ n as u64));
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
        faults.add(late.probability(self.timeout_rate, self.seed ^ 4));
        let message =
            "the object has been modified; please apply your changes to the latest version";
        let conflict = Rule::new(Effect::kubernetes_status(409, "Conflict", message));
        let conflict = conflict.half(Half::Kubernetes).writes();
        faults.add(conflict.probability(self.conflict_rate, self.seed ^ 5));
        if let Some(half) = self.unreachable {
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
        if let Some(command) = self.failing_command {
            cloud.fail_next_action(command, "action_failed", "it did not work out");
        }
        if let Some(command) = self.slow_command {
            cloud.set_action_duration(command, Some(Duration::from_secs(30)));
        }
        if self.no_dns_zones {
            cloud.set_dns_zones(project, &["another.example"]);
        }
        if self.adds_labels {
            let rule = Rule::new(add_label(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers/*");
            faults.add(rule.probability(0.5, self.seed).times(5));
            let rule = Rule::new(add_labels_after_list(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers");
            faults.add(rule.probability(0.5, self.seed ^ 8).times(5));
        }
        if self.has_stuck_action {
            // A load balancer that was created lately is often owned by a Service.
            let all = cloud.load_balancers(project);
            let newest = all.last().and_then(|one| one["id"].as_u64());
            if let Some(id) = newest {
                cloud.hold_load_balancer(id, true);
            }
        }
        if self.incomplete_list {
            let rule = Rule::new(incomplete_list(sandbox)).half(Half::Hetzner);
            let rule = rule.method("GET").path("/v1/load_balancers");
            faults.add(rule.probability(0.5, self.seed));
        }
        if let Some(left) = self.calls_left {
            cloud.set_rate_limit(project, 3600, left);
        }
        cloud.set_clock_ahead(self.clock_ahead_s);
        faults.random(self.seed, self.fault_rate);
        sandbox.cluster().freeze_cache(self.stale_cache);
    }

    /// Removes all faults, those of the topic included.
    pub fn remove(&self, sandbox: &Sandbox) {
        if let Some(half) = self.unreachable.filter(|half| sandbox.serves(*half)) {
            sandbox.resume(half).unwrap();
        }
        sandbox.faults().clear();
        sandbox.cluster().freeze_cache(false);
        let (cloud, project) = (sandbox.cloud(), sandbox.project());
        cloud.set_dns_zones(project, &[ZONE]);
        cloud.set_clock_ahead(0);
        if let Some(command) = self.slow_command {
            cloud.set_action_duration(command, None);
        }
        for one in cloud.load_balancers(project) {
            cloud.hold_load_balancer(one["id"].as_u64().unwrap(), false);
        }
    }
}

/// Returns an effect that adds a label to the load balancer of the request.
fn add_label(sandbox: &Sandbox) -> Effect {
    let cloud = Arc::clone(sandbox.cloud());
    Effect::before(move |request| {
        let id = request.path.rsplit('/').next();
        if let Some(id) = id.and_then(|id| id.parse().ok()) {
            cloud.edit_load_balancer(id, |one| one["labels"]["noted"] = json!("yes"));
        }
    })
}

/// Returns an effect that adds a label to all load balancers that were created for Services of this cluster, just after
/// they were listed. Only a read just before a write shows the label.
fn add_labels_after_list(sandbox: &Sandbox) -> Effect {
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

/// Returns an effect that answers with an incomplete page. The page counts one load balancer more than it contains.
fn incomplete_list(sandbox: &Sandbox) -> Effect {
    let mut all = sandbox.cloud().load_balancers(sandbox.project());
    let total = all.len();
    all.pop();
    let body = json!({ "load_balancers": all, "meta": { "pagination": {
        "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1,
        "total_entries": total,
    } } });
    Effect::Instead(Response::json(200, &body))
}
