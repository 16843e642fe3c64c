//! Checks of Services and their load balancers.

use super::nodes;
use super::outcome::{CheckOutcome, CheckResult, Gap, SEE_ERROR, counted, need, or_ok, reported};
use super::view::DoctorView;
use crate::controllers::service::{ServicePlan, Want, ago, inspect, trouble, want};
use crate::hetzner::load_balancers::annotations::PRIVATE_IPV4;
use crate::kube::{Involved, KubeService};
use crate::provider::order;
use crate::provider::variables::HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES;
use crate::provider::{
    Balancer, BalancerHealth, Finding, NamespaceDefaults, PortOwner, Reason, Target, clock,
};
use crate::text::{quoted, shell_command, some_of};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::fmt::Display;

/// A certificate that expires within this time is reported. This is two weeks, so a certificate from Let's Encrypt
/// should already have been renewed: cert-manager renews it a month before it expires.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// `ccm doctor` warns when a load balancer has used more than this share of the traffic that is included in its price
/// for the month.
const MUCH_TRAFFIC: f64 = 0.8;

/// When a new Service has had no address for this time, or a deleted Service still exists after this time, `ccm doctor`
/// reports a failure and not only a warning. The time is long, because `ccm` may run as a CronJob only once an hour.
const LATE: SignedDuration = SignedDuration::from_hours(1);

pub(super) fn services(view: &DoctorView) -> CheckResult {
    let plans = match &view.services.plans {
        Err(Gap::Needs(check @ ("api" | "network" | "routes"))) => return unplanned(view, check),
        plans => plans.as_ref()?,
    };
    nodes::need_project(view)?;
    let mut outcomes = Vec::new();
    for plan in plans {
        let shows = inspect(&plan.service);
        let blocked =
            plan.obstacle.as_ref().map(|finding| reported(CheckOutcome::fail, finding, &shows));
        let warned = plan.warnings().map(|finding| reported(CheckOutcome::warn, finding, &shows));
        let all =
            blocked.into_iter().chain(lacking(view, plan)).chain(warned).chain(expiring(plan));
        outcomes.extend(all.map(|outcome| on(&plan.service, outcome)));
    }
    for without_effect in &view.services.namespaces.without_effect {
        let what = NamespaceDefaults::no_effect(without_effect);
        outcomes.push(CheckOutcome::warn(what, ""));
    }
    outcomes.extend(unlimited_addresses(view, plans));
    outcomes.extend(much_traffic(plans));
    outcomes.extend(left_over_ports(&view.services.external, plans));
    match &view.services.failed_tries {
        Err(Gap::NotHere(why)) if !outcomes.is_empty() => {
            outcomes.push(CheckOutcome::warn(why.as_str(), ""));
        }
        Err(gap @ Gap::Refused(..)) => outcomes.push(CheckOutcome::unread(gap.clone(), SEE_ERROR)),
        _ => {}
    }
    let ok = match plans.len() {
        0 => "there is no Service of type LoadBalancer".to_owned(),
        count => format!("{}, with nothing to be done", counted(count, "Service")),
    };
    or_ok(outcomes, ok)
}

/// Warns when Services of several namespaces choose the private address of their load balancer by an annotation, and no
/// setting limits these addresses. A Service of one tenant can then take an address that another tenant uses. Returns
/// `None` when there is a limit, or when all such Services are in one namespace.
fn unlimited_addresses(view: &DoctorView, plans: &[ServicePlan]) -> Option<CheckOutcome> {
    let key = PRIVATE_IPV4.key();
    let asks = |plan: &&ServicePlan| {
        let mut set = plan.service.metadata.annotations.iter();
        plan.want == Want::Ensure && set.any(|(set, _)| set.eq_ignore_ascii_case(&key))
    };
    let namespaces = plans.iter().filter(asks).map(|plan| &*plan.service.metadata.namespace);
    let namespaces = Vec::from_iter(namespaces.collect::<BTreeSet<&str>>());
    let is_limited = view.settings.load_balancers.permitted.private_ipv4_ranges.is_some();
    if is_limited || namespaces.len() < 2 {
        return None;
    }
    let what = format!(
        "Services of several namespaces ({}) choose private addresses by annotation \
         load-balancer.hetzner.cloud/private-ipv4. {HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES} is not set, so each \
         Service can take any free address of the Network, even the address of a deleted database to which programs \
         still connect",
        some_of(&namespaces)
    );
    let remedy = format!(
        "set {HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES} for the daemon to the IP ranges that are meant for load \
         balancers; existing load balancers keep their addresses"
    );
    Some(CheckOutcome::warn(what, remedy))
}

/// Warns about load balancers that have already used most of the traffic that is included in their price for
/// this month.
fn much_traffic(plans: &[ServicePlan]) -> impl Iterator<Item = CheckOutcome> {
    let found = plans.iter().filter_map(|plan| plan.cloud.found.as_ref());
    let all = order::map(found.map(|found| (found.id, found)));
    all.into_values().filter_map(|balancer| {
        let used = balancer.consumption.traffic_ratio().filter(|used| *used > MUCH_TRAFFIC)?;
        let what = format!(
            "{:.0} % of this month's included traffic is used; traffic above 100 % costs money",
            used * 100.0
        );
        let remedy = "find out where the traffic comes from; ccm lb inspect shows the numbers";
        Some(CheckOutcome::warn(what, remedy).on("load-balancer", &balancer.name))
    })
}

/// Reports certain ports of external load balancers, which are load balancers that ccm did not create. No label of the
/// load balancer says which Service owns such a port, but the port is probably left over from a Service. ccm never
/// removes it, because only the owner of the load balancer knows who uses it.
fn left_over_ports(external: &[Balancer], plans: &[ServicePlan]) -> Vec<CheckOutcome> {
    let outcomes = external.iter().flat_map(|balancer| {
        balancer.ports.iter().filter(|port| port.uid.is_none()).filter_map(|port| {
            let why = why_left_over(balancer, port, plans)?;
            let number = port.port;
            let what = format!(
                "no label of the load balancer says which Service uses port {number}. {why}. Either the port is \
                 left over from a Service, or the owner of the load balancer uses it"
            );
            let words: [&dyn Display; 2] = [&number, &balancer.id];
            let command = shell_command("hcloud load-balancer delete-service --listen-port", &words);
            let remedy = format!("if the owner of the load balancer does not use the port, the owner must remove it: \
                                  {command}");
            Some(CheckOutcome::warn(what, remedy).on("load-balancer", &balancer.name))
        })
    });
    outcomes.collect()
}

/// Returns why a port is probably left over from a Service, although no label of the load balancer says that the port
/// belongs to a Service. There are two possible reasons:
///
/// 1. The port sends traffic to the node port of a Service. Either this Service uses the load balancer with another
///    port number, or it has a port with this number but does not use the load balancer.
/// 2. Services use the load balancer, but the health check of this port fails on all of its targets.
///
/// Returns `None` otherwise, e.g. when a Service still uses the port. A sync of this Service writes the label again.
fn why_left_over(balancer: &Balancer, port: &PortOwner, plans: &[ServicePlan]) -> Option<String> {
    let to = port.destination?;
    let uses =
        |plan: &ServicePlan| plan.cloud.found.as_ref().is_some_and(|found| found.id == balancer.id);
    for plan in plans {
        let mut ports = plan.service.spec.ports.iter();
        if let Some(own) = ports.find(|port| port.node_port == Some(to)) {
            let of = plan.service.full_name();
            let is_left = uses(plan) != (own.port == port.port);
            return is_left.then(|| {
                let but = match uses(plan) {
                    true => format!("asks for port {} of the load balancer instead", own.port),
                    false => "does not use the load balancer".to_owned(),
                };
                format!("The port sends traffic to node port {to} of Service {of}, but this Service {but}")
            });
        }
    }
    let fails = |target: &Target| {
        let check = target.health.iter().find(|check| check.port == port.port);
        check.is_some_and(|check| check.status == "unhealthy")
    };
    let targets = &balancer.targets;
    let is_dead = plans.iter().any(uses) && !targets.is_empty() && targets.iter().all(fails);
    is_dead.then(|| format!("No target answers at node port {to}, to which the port sends traffic"))
}

fn on(service: &KubeService, outcome: CheckOutcome) -> CheckOutcome {
    outcome.on("service", &service.full_name())
}

/// Reports the Services that wait for an address. This function is used when the cloud was not read, because other
/// problems of Services can't be found then. `check` is the name of the check that says why the cloud was not read.
fn unplanned(view: &DoctorView, check: &'static str) -> CheckResult {
    let services = view.services.listed.as_ref()?;
    let waits = |service: &&KubeService| {
        want(service) == Want::Ensure && service.status.load_balancer.ingress.is_empty()
    };
    let outcomes = services.iter().map(|service| &**service).filter(waits).map(|service| {
        let found =
            format!("the Service has no address{}", history(view, service).unwrap_or_default());
        let remedy =
            format!("first fix the problem that the check {check:?} reports, which may also be the cause of this \
                     problem. The daemon then tries again");
        on(service, CheckOutcome::warn(found, remedy))
    });
    let outcomes: Vec<CheckOutcome> = outcomes.collect();
    if outcomes.is_empty() { Err(Gap::Needs(check)) } else { Ok(outcomes) }
}

/// Returns a text about the failed last sync of the Service, which quotes the message of the event about it. The
/// message may be false, because a tenant may have written the event. Returns `None` when there is no such event.
fn history(view: &DoctorView, service: &KubeService) -> Option<String> {
    let about = Involved::from(&service.object());
    let event = view.services.failed_tries.as_ref().ok()?.get(&about)?;
    let (when, reason) = (ago(event.at()), &event.reason);
    Some(format!("; the last sync failed {when} (event {reason}): {}", quoted(&event.message)))
}

/// Reports a Service whose sync is not finished, e.g. because the Service has no address yet or its load balancer does
/// not exist. The report says what is missing, and what the user can do.
fn lacking(view: &DoctorView, plan: &ServicePlan) -> Option<CheckOutcome> {
    let (lack, remedy) = lacks(plan)?;
    let failed = history(view, &plan.service);
    let remedy = match failed {
        Some(_) if !remedy.is_empty() => tries_again(&plan.service),
        _ => remedy,
    };
    let message = lack + &failed.unwrap_or_default();
    Some(CheckOutcome::bad(is_late(plan), message, remedy))
}

/// Whether the daemon has something left to do for a Service that has waited longer than [`LATE`]. A new Service waits
/// for its address, and a deleted Service waits for the removal of its load balancer.
fn is_late(plan: &ServicePlan) -> bool {
    let service = &plan.service;
    let metadata = &service.metadata;
    let has_address = !service.status.load_balancer.ingress.is_empty();
    let since = match &metadata.deletion_timestamp {
        Some(deleted) => deleted.parse().ok(),
        None => metadata.creation_timestamp.filter(|_| !has_address),
    };
    let is_over = |since: Timestamp| clock::timestamp().duration_since(since) > LATE;
    plan.has_writes() && since.is_some_and(is_over)
}

/// Returns what the user can do about a Service whose sync is not finished. The text says that the daemon will finish
/// it. It also names the command that shows the remaining changes, and the command that makes them at once.
fn left_to_do(service: &KubeService) -> String {
    let name = &service.full_name();
    format!(
        "the daemon makes the changes by itself, if it runs (see the check \"lease\"). {} shows the changes, and \
         {} makes them now",
        inspect(service),
        shell_command("ccm lb sync", &[name])
    )
}

/// Returns what the user can do about a Service whose last sync failed, and whose next sync will also fail until the
/// cause is removed. The text names a command that tries the sync again and prints the error. It does not repeat the
/// message of the event about the failure, because anybody may have written this event.
fn tries_again(service: &KubeService) -> String {
    let sync = shell_command("ccm lb sync", &[&service.full_name()]);
    format!(
        "remove the cause of the failure, then run {sync}, which tries again and prints what still fails. {} shows \
         what is left to do",
        inspect(service)
    )
}

fn lacks(plan: &ServicePlan) -> Option<(String, String)> {
    let left_to_do = || left_to_do(&plan.service);
    let has_address = !plan.service.status.load_balancer.ingress.is_empty();
    let has_writes = plan.has_writes();
    let is_conflict = |finding: &Finding| finding.reason == Reason::PortConflict;
    let (lack, remedy) = match (plan.want, &plan.cloud.found) {
        _ if plan.obstacle.is_some() => return None,
        (Want::Ensure, Some(found))
            if !has_address && !has_writes && plan.warnings().any(is_conflict) =>
        {
            // The first text of the result says what is missing, and the second what the user can do about it. The
            // second text is empty here, because `ccm doctor` also shows a message about each port that can't be used,
            // and that message says what to do.
            let (name, id) = (&found.name, found.id);
            let lack = format!(
                "the Service has no address, because none of its ports can be used on load balancer {name:?} ({id})"
            );
            return Some((lack, String::new()));
        }
        (Want::Ensure, _) if plan.has_lost_its_own() => (
            "the Service's load balancer does not exist, although the Service's status has an address",
            format!(
                "the daemon, if it runs (see the check \"lease\"), creates another load balancer. The Service then \
                 gets another address, unless it asks for a Primary IP. {}, run with the daemon's settings, creates \
                 the load balancer now",
                shell_command("ccm lb sync", &[&plan.service.full_name()])
            ),
        ),
        (Want::Ensure, Some(_)) if !has_address && !has_writes => (
            "the Service has no address, because its annotations or the settings exclude every address of its load \
             balancer",
            format!(
                "correct the annotations or the settings. {} shows the addresses",
                inspect(&plan.service)
            ),
        ),
        (Want::Ensure, found) if !has_address => (
            match found {
                None => "the Service has no address, because its load balancer is not created yet",
                Some(_) => {
                    "the Service has no address, because its load balancer is not finished yet"
                }
            },
            left_to_do(),
        ),
        (Want::Remove, _) if has_writes => (
            "the Service was deleted or changed its type, but ccm has not removed its ports or load balancer yet",
            left_to_do(),
        ),
        (Want::Ensure, _) if has_writes => {
            let due = counted(plan.changes.len(), "change");
            return Some((format!("ccm must still make {due} for the Service"), left_to_do()));
        }
        _ => return None,
    };
    Some((lack.to_owned(), remedy))
}

/// Reports certificates on the load balancer that expire soon or have expired.
fn expiring(plan: &ServicePlan) -> impl Iterator<Item = CheckOutcome> {
    plan.cloud.found.iter().flat_map(|found| &found.certificates).filter_map(|other| {
        let at = other.not_valid_after?;
        let left = at.duration_since(clock::timestamp());
        let is_over = left.is_negative();
        let namespace = &plan.service.metadata.namespace;
        let remedy = match (&other.secret, other.is_managed) {
            (Some(_), _) => format!(
                "find out why the Secret is not renewed (with cert-manager: {}). {} shows whether ccm can use the \
                 Secret",
                shell_command("kubectl -n", &[namespace, &"get", &"certificate"]),
                inspect(&plan.service)
            ),
            (None, true) => format!(
                "find out why Hetzner does not renew this certificate, with {}",
                shell_command("hcloud certificate describe", &[&other.id])
            ),
            (None, false) => {
                "upload a new certificate, and name it in annotation \
                 load-balancer.hetzner.cloud/http-certificates"
                    .to_owned()
            }
        };
        let ports: Vec<String> = other.ports.iter().map(ToString::to_string).collect();
        let (name, id) = (&other.name, other.id);
        let (ports, from) = (ports.join(", "), other.origin());
        let verb = if is_over { "expired" } else { "expires" };
        let message = format!("certificate {name:?} ({id}) of port {ports} ({from}) {verb} at {at}");
        (left <= EXPIRES_SOON).then(|| CheckOutcome::bad(is_over, message, remedy))
    })
}

/// Reports load balancers with unhealthy targets. When the API server does not answer, it is not known which load
/// balancers belong to this cluster, so the load balancers of all clusters in the project are checked.
pub(super) fn targets(view: &DoctorView) -> CheckResult {
    if let Ok(balancers) = &view.cloud.balancers {
        let outcomes = balancers.iter().filter_map(|(name, counts)| {
            let health = counts.health();
            let outcome = CheckOutcome::bad(
                health == BalancerHealth::None,
                counts.to_string(),
                "once the API server answers, ccm doctor names the cause",
            );
            (health != BalancerHealth::All).then(|| outcome.on("load-balancer", name))
        });
        return or_ok(outcomes, "each target is healthy");
    }
    let plans = need(&view.services.plans, "services")?;
    let outcomes = plans.iter().filter_map(|plan| {
        let trouble = trouble(plan)?;
        let outcome = CheckOutcome::bad(trouble.is_outage, trouble.message, trouble.fix);
        Some(on(&plan.service, outcome))
    });
    let ok =
        "each target is healthy, was added just now, or has no pod (externalTrafficPolicy: Local)";
    or_ok(outcomes, ok)
}

pub(super) fn orphans(view: &DoctorView) -> CheckResult {
    let outcomes = view.services.orphans.as_ref()?.iter().map(|orphan| {
        let balancer = &orphan.balancer;
        let what = format!(
            "the load balancer (id {}) costs money, but was created for {}",
            balancer.id,
            orphan.made_for()
        );
        let outcome = match &orphan.removal {
            Ok(_) => CheckOutcome::warn(
                what,
                "ccm lb sync --delete-orphans lists all load balancers without a Service, asks, and deletes them",
            ),
            Err(why) => CheckOutcome::warn(
                format!("{what}; ccm does not delete it, because {why}"),
                format!(
                    "if nobody needs the load balancer, delete it yourself: {} (if it is protected, first run {})",
                    shell_command("hcloud load-balancer delete", &[&balancer.id]),
                    shell_command(
                        "hcloud load-balancer disable-protection",
                        &[&balancer.id, &"delete"]
                    )
                ),
            ),
        };
        outcome.on("load-balancer", &balancer.name)
    });
    let kept = view.services.kept.iter().flatten();
    let kept = kept.map(|kept| {
        if kept.domains.is_empty() {
            format!("load balancer {:?} ({}, costs money)", kept.name, kept.id)
        } else {
            format!("certificate {:?} ({})", kept.name, kept.id)
        }
    });
    let kept = Vec::from_iter(kept);
    let ok = match kept.as_slice() {
        [] => "each load balancer of this cluster has its Service".to_owned(),
        kept => format!(
            "ccm keeps these objects, because deleted Services asked for this: {}. Each other load balancer of this \
             cluster has its Service",
            some_of(kept)
        ),
    };
    or_ok(outcomes, ok)
}
