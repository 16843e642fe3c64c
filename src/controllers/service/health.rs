//! Finds the Services that get no traffic, and the causes of failed health checks. The provider (the code for one
//! cloud) finds these causes, with one exception: the list of servers says whether a server is off.
//!
//! Which targets count as healthy is decided only in
//! [`Balancer::target_counts`](crate::provider::Balancer::target_counts).

use super::plan::{ServicePlan, Want, want};
use crate::cache::Apis;
use crate::controllers::lifecycle::switch_on;
use crate::controllers::matching::server_of;
use crate::kube::{KubeNode, KubeService};
use crate::provider::{
    BalancerHealth, Cause, CauseKind, Finding, InstanceId, Reason, SeenHealth, TargetCounts,
    Urgency, clock,
};
use crate::text::duration::shown_duration;
use crate::text::{self, shell_command};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long the targets of a new Service may take to become healthy. During this time, it is not reported that the
/// Service has no healthy target.
const GRACE: Duration = Duration::from_secs(3 * 60);

/// How many names of unhealthy targets with the same cause are listed in a message.
const NAMES_SHOWN: usize = 3;

/// Adds the cause to each failed health check of the Services' ports. A server counts as off when the last list of
/// servers says so. When that list can't be read, no server counts as off. When no target is unhealthy, nothing is
/// read.
pub(super) fn explain(apis: &Apis, nodes: &[Arc<KubeNode>], plans: &mut [ServicePlan]) {
    let mut found = plans.iter().filter_map(|plan| plan.cloud.found.as_ref());
    if found.all(|balancer| balancer.target_counts(None).unhealthy == 0) {
        return;
    }
    let Some(cloud) = apis.provider.load_balancers() else {
        return;
    };
    let servers = apis.instances(None, Duration::MAX, Urgency::Asked);
    let servers = servers.map(|view| view.value).unwrap_or_default();
    let off = servers.iter().filter(|server| server.is_off);
    let off: HashSet<InstanceId> = off.map(|server| server.id).collect();
    let servers = nodes.iter().filter_map(|node| {
        let server = server_of(node, &*apis.provider);
        Some((node.name(), server.filter(|id| off.contains(id))?))
    });
    let off: HashMap<&str, InstanceId> = servers.collect();
    for plan in plans {
        let service = plan.service.for_cloud();
        let Some(found) = &mut plan.cloud.found else {
            continue;
        };
        let mut targets = std::mem::take(&mut found.targets);
        for target in &mut targets {
            let server_off = off.get(target.name.as_str()).copied();
            for health in &mut target.health {
                let is_own = found.is_port_of(health.port, Some(&service.uid));
                if is_own && health.is_unhealthy() {
                    health.cause = Some(match server_off {
                        Some(server) => Cause {
                            kind: CauseKind::ServerOff,
                            message: "the server is off".into(),
                            remedy: switch_on(server),
                        },
                        None => cloud.cause(health, &service),
                    });
                }
            }
        }
        found.targets = targets;
    }
}

/// Returns the command that shows a Service and its load balancer, e.g. `ccm lb inspect default/web`.
pub fn inspect(service: &KubeService) -> String {
    shell_command("ccm lb inspect", &[&service.full_name()])
}

/// What is wrong with the targets of a Service.
pub struct Trouble {
    /// Whether no target is healthy although the Service is not new.
    pub is_outage: bool,
    /// Says how many targets are healthy, and why the other targets are not.
    pub message: String,
    /// What the user can do about the most frequent cause of unhealthy targets. Servers that are off do not count as a
    /// cause here, because another check of the command `ccm doctor` says what to do about them. The text is empty when
    /// there is no other cause.
    pub fix: String,
}

/// Returns what is wrong with the targets of the plan's Service. Returns `None` when the Service has no load balancer,
/// or when all checked targets are healthy. Also returns `None` when some targets are healthy, and the other targets
/// are expected to be unhealthy: their nodes will stop soon, or run no pod of a Service with traffic policy `Local`.
pub fn trouble(plan: &ServicePlan) -> Option<Trouble> {
    let found = plan.cloud.found.as_ref()?;
    let uid = plan.object.uid.as_str();
    if plan.want != Want::Ensure || !found.has_port_of(uid) {
        return None;
    }
    let counts = found.target_counts(Some(uid));
    let mut by_cause: BTreeMap<&str, (Vec<&str>, &Cause)> = BTreeMap::new();
    for target in &found.targets {
        let mut causes = target.health.iter().filter_map(|health| health.cause.as_ref());
        // While another target is healthy, an unhealthy target on a node that will stop soon is expected, and is not
        // reported.
        if counts.healthy > 0 && plan.cloud.departs(&target.name) {
            continue;
        }
        if let Some(cause) = causes.next() {
            let entry = by_cause.entry(&cause.message);
            entry.or_insert((Vec::new(), cause)).0.push(&target.name);
        }
    }
    let mut causes = by_cause.values().map(|(_, cause)| cause.kind);
    let is_by_policy = causes.all(|kind| kind == CauseKind::NoPod);
    match counts.health() {
        BalancerHealth::All => return None,
        BalancerHealth::Some if is_by_policy => return None,
        BalancerHealth::Some | BalancerHealth::None | BalancerHealth::Unknown => {}
    }
    let mut parts = vec![counts.to_string()];
    parts.extend(by_cause.values().map(|(names, cause)| {
        let names = text::first_of(names, NAMES_SHOWN);
        let is_off = cause.kind == CauseKind::ServerOff;
        let see = if is_off { " (the check \"servers\" says how to switch it on)" } else { "" };
        format!("{names}: {}{see}", cause.message)
    }));
    if counts.health() == BalancerHealth::Unknown {
        parts.push("no health check of the targets has ended yet".to_owned());
    }
    let is_young = is_young(&plan.service, clock::timestamp());
    if is_young {
        let minutes = GRACE.as_secs() / 60;
        parts.push(format!(
            "the Service is younger than {minutes} minutes, and its targets may need that time to \
             become healthy"
        ));
    }
    // Servers that are off are left out of the causes from which the advice is chosen. Another check of the command
    // `ccm doctor`, named `servers`, says what to do about them.
    let fixed_here = by_cause.values().filter(|(_, cause)| cause.kind != CauseKind::ServerOff);
    let most = fixed_here.max_by_key(|(names, _)| names.len());
    Some(Trouble {
        is_outage: counts.health() == BalancerHealth::None && !is_young,
        message: parts.join("; "),
        fix: most.map_or(String::new(), |(_, cause)| cause.remedy.clone()),
    })
}

fn is_young(service: &KubeService, at: Timestamp) -> bool {
    let created = service.metadata.creation_timestamp;
    let grace = clock::to_machine(GRACE);
    created.and_then(|created| created.checked_add(grace).ok()).is_some_and(|end| at < end)
}

/// The Services without a healthy target. An event is written when a Service has lost its last healthy target, and
/// another event when it has one again. Here, a target counts as healthy only when it is healthy on every port of
/// the Service.
///
/// The process forgets these Services when it ends. The next process reports all outages that it finds at its first
/// check. When the earlier process has already written the same event about an outage, that event stays as it is, and
/// no second event is written. When an outage ends while no process is running, its end is not reported.
#[derive(Default)]
pub(super) struct ServiceOutages {
    /// The UIDs of the Services that had no healthy target when this was last checked.
    without_target: HashSet<String>,
    /// Whether this process has already checked at least once which Services get no traffic.
    has_looked: bool,
}

/// The health of the targets of all load balancers, as it was read at the last regular comparison of all Services with
/// their load balancers. `services` are all Services that this controller may have to sync.
pub(super) struct Look<'a> {
    pub(super) services: &'a [Arc<KubeService>],
    pub(super) health: &'a [SeenHealth],
    /// How much time has passed since the cloud answered with the health of the targets. It is shown to people, so it
    /// is real time even when a test simulates the clock.
    pub(super) age: Duration,
    /// The time between two regular comparisons of all Services with their load balancers.
    pub(super) period: Duration,
}

impl ServiceOutages {
    /// Returns a finding (a message for the operator) for each Service that has lost its last healthy target, or has a
    /// healthy target again, since the last call. The second value is `true` at the first call after the start of the
    /// process. The earlier process may then have written the same events already.
    pub(super) fn changed<'a>(
        &mut self,
        look: &Look<'a>,
    ) -> (Vec<(&'a Arc<KubeService>, Finding)>, bool) {
        let mut counts: HashMap<&str, TargetCounts> = HashMap::new();
        for (uid, seen) in look.health.iter().flat_map(|health| &health.of_services) {
            // While a Service moves to another load balancer, both load balancers report the health of its targets. The
            // report with more healthy targets of the Service is used.
            let most = counts.entry(uid).or_insert(*seen);
            if (seen.healthy, seen.serving) > (most.healthy, most.serving) {
                *most = *seen;
            }
        }
        let wanted = look.services.iter().filter(|service| want(service) == Want::Ensure);
        let uids: HashSet<&str> = wanted.clone().map(|service| &*service.metadata.uid).collect();
        self.without_target.retain(|uid| uids.contains(uid.as_str()));
        let now = clock::timestamp();
        let seen_at = now.checked_sub(look.age).unwrap_or(now);
        let mut changed = Vec::new();
        for service in wanted {
            let uid = &service.metadata.uid;
            let Some(counts) = counts.get(uid.as_str()) else {
                continue;
            };
            let finding = match counts.health() {
                BalancerHealth::None if !is_young(service, seen_at) => {
                    let is_new = self.without_target.insert(uid.clone());
                    is_new.then(|| look.begins(service, *counts))
                }
                BalancerHealth::All | BalancerHealth::Some => {
                    let is_over = self.without_target.remove(uid);
                    is_over.then(|| look.ends(*counts))
                }
                BalancerHealth::None | BalancerHealth::Unknown => None,
            };
            changed.extend(finding.map(|finding| (service, finding)));
        }
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        (changed, is_first)
    }
}

impl Look<'_> {
    fn begins(&self, service: &KubeService, counts: TargetCounts) -> Finding {
        let what = match counts.serving {
            0 => "no traffic reaches the Service",
            _ => "no target is healthy on all ports of the Service",
        };
        let (seen, inspect) = (self.seen(), inspect(service));
        let message = format!("{what}: {counts}, {seen}; {inspect} shows the cause");
        Finding::warning(Reason::NoHealthyTarget, message)
    }

    fn ends(&self, counts: TargetCounts) -> Finding {
        let is_healthy = "at least one target is healthy on all ports of the Service again";
        let message = format!("{is_healthy}: {counts}, {}", self.seen());
        Finding::info(Reason::HealthyTarget, message)
    }

    /// Returns a text for messages that says how long ago the health was read. The text has whole minutes, because each
    /// new text would create a new event.
    fn seen(&self) -> String {
        let age = match self.age.as_secs() / 60 {
            0 => "less than a minute ago".to_owned(),
            minutes => format!("{minutes} min ago"),
        };
        let period = shown_duration(self.period.as_secs());
        format!("checked {age} (ccm checks all load balancers every {period})")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::provider::BalancerUse;
    use serde_json::json;

    /// Returns the message about a Service whose only target is unhealthy. `age_s` is the age of the cloud's answer in
    /// seconds.
    fn said(age_s: u64) -> String {
        let service = json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1" },
            "spec": { "type": "LoadBalancer" },
        });
        let services = [Arc::new(serde_json::from_value(service).unwrap())];
        let counts = TargetCounts { unhealthy: 1, total: 1, ..TargetCounts::default() };
        let health = [SeenHealth {
            use_of: BalancerUse::Own,
            is_replacing: false,
            counts,
            traffic_ratio: None,
            of_services: vec![("u".to_owned(), counts)],
        }];
        let look = Look {
            services: &services,
            health: &health,
            age: Duration::from_secs(age_s),
            period: Duration::from_secs(300),
        };
        let (changed, _) = ServiceOutages::default().changed(&look);
        changed[0].1.message.clone()
    }

    #[test]
    fn an_outage_says_how_old_the_health_is() {
        for (age_s, says) in [
            (0, "checked less than a minute ago"),
            (59, "checked less than a minute ago"),
            (60, "checked 1 min ago"),
            (299, "checked 4 min ago"),
        ] {
            let message = said(age_s);
            assert!(message.contains(says), "{age_s} s: {message}");
        }
    }
}
