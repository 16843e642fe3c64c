//! `ccm lb inspect` shows a Service and its load balancer: the problems first, then the Service beside the load
//! balancer, and then what the next sync would do, and why.

use super::plans::{Services, targets_cell};
use crate::cache::Apis;
use crate::cli::objects::{Sides, field, finding, listed, or_none, section, sides, would_do};
use crate::cli::output::{Exit, Printer, line, or_dash, paragraph};
use crate::cli::table;
use crate::controllers::service::{self, ServicePlan, Want};
use crate::kube::{Involved, PastEvent};
use crate::provider::order;
use crate::provider::{
    Balancer, BalancerUse, CauseKind, Field, Finding, Protocol, ServicePort, Severity,
    ShownCertificate, Target, TargetHealth,
};
use crate::settings::Command;
use crate::text;
use std::ffi::OsString;
use std::sync::Arc;

pub(in crate::cli) fn inspect(words: Vec<OsString>) -> Result<Exit, Exit> {
    let services = Services::start(Command::LbInspect, words)?;
    let context = &services.context;
    let (mut plans, outage) = context.read(|sides| services.read(sides))?;
    let known = Sides::of(outage.as_ref());
    if known == Sides::Both {
        // This check prints an error when `--cloud-provider` is not set, although the provider IDs of the nodes
        // need another value than the default. The command goes on after this error, because `ccm lb inspect`
        // writes nothing.
        let _ = context.check_profile();
    }
    plans.iter_mut().for_each(|plan| read_more(&context.apis, plan, known));
    let text = |is_wide| plans.iter().map(|plan| inspection(plan, is_wide, known)).collect();
    let exit = context.print("Inspection", &plans, outage.as_ref(), text);
    Ok(exit.fail_if(outage.is_some()))
}

const TIB: f64 = (1_u64 << 40) as f64;

/// How many events of a Service are shown.
const EVENTS_SHOWN: usize = 10;

/// How many characters of an event's message are shown. Messages of ccm's own events are never longer than this.
const EVENT_CHARACTERS_SHOWN: usize = 1000;

/// Reads the events of the Service and the current usage of its load balancer, with one call each. When one of these
/// calls fails, the output lacks this part.
fn read_more(apis: &Apis, plan: &mut ServicePlan, known: Sides) {
    if known != Sides::Cloud {
        match service::past_events(apis, Some(&plan.object)) {
            Ok(events) => plan.events = Some(events.into_iter().rev().collect()),
            // Kubernetes does not allow this user to list events. This is expected when a person runs the command
            // with the role of the daemon, which does not include this right. So it is no error, and the output has
            // no events.
            Err(error) if error.is_forbidden() => log::debug!("{error}"),
            Err(error) => Printer::notice(format_args!("events can't be read: {error}")),
        }
    }
    if let (Some(found), Some(cloud)) = (&mut plan.cloud.found, apis.provider.load_balancers()) {
        let usage = cloud.usage(found.id).inspect_err(|error| {
            Printer::notice(format_args!(
                "the numbers of connections and requests can't be read: {error}"
            ));
        });
        found.consumption.usage = usage.ok();
    }
}

/// Returns the event about the failure of the last sync of the Service. Returns `None` when the last sync has
/// succeeded. Also returns `None` when a sync has nothing to change any more, because an old failure does not
/// matter then.
fn failed_try(plan: &ServicePlan) -> Option<Arc<PastEvent>> {
    let events = plan.events.as_ref().filter(|_| plan.has_writes())?;
    let oldest_first: Vec<_> = events.iter().rev().cloned().collect();
    let mut failed = service::failed_tries(&oldest_first);
    failed.remove(&Involved::from(&plan.object))
}

/// Returns the text of `ccm lb inspect` for one Service. With `is_wide` the text has all fields of the load balancer.
/// Otherwise it has only the fields that are set by the user or differ from the desired state.
fn inspection(plan: &ServicePlan, is_wide: bool, known: Sides) -> String {
    let of_found =
        |text: fn(&Balancer) -> String| plan.cloud.found.as_ref().map(text).unwrap_or_default();
    let annotations = plan.service.metadata.annotations.iter();
    let annotations = annotations.map(|(key, value)| line(format_args!("  {key}: {value:?}")));
    [
        section(
            "FINDINGS",
            &findings(plan, known),
            match known {
                Sides::Kubernetes => {
                    "none in the annotations. The rest is unknown: the Cloud API does not answer"
                }
                known => known.or_unknown("none"),
            },
        ),
        "\n".to_owned(),
        both_sides(plan, known),
        match known {
            Sides::Kubernetes => spec(plan) + &listed("ANNOTATIONS", annotations),
            _ => String::new(),
        },
        of_found(usage),
        replacement(plan),
        room(plan),
        of_found(certificates),
        health(plan),
        left_out(plan),
        with_pods(plan),
        section(
            "\nFIELDS (= as wanted, ~ differs, · left unchanged)",
            &fields(plan, is_wide),
            match plan.obstacle {
                None => known.or_unknown("none: the Service wants no load balancer"),
                Some(_) => "unknown: the desired state can't be computed, see FINDINGS",
            },
        ),
        would_do(
            &plan.description(),
            match plan.obstacle {
                None => known.or_unknown("change nothing"),
                Some(_) => "change nothing until the problem is fixed: see FINDINGS",
            },
        ),
        events(plan),
    ]
    .concat()
}

/// Returns the lines about problems of the Service, the most important first: what blocks every change of the Service,
/// then what does not work now, then warnings. Notes about harmless facts come last.
fn findings(plan: &ServicePlan, known: Sides) -> String {
    let mut texts: Vec<String> = plan.obstacle.iter().map(finding).collect();
    texts.extend(gone(plan).filter(|_| known == Sides::Both));
    texts.extend(failed_try(plan).as_deref().map(failed_lines));
    texts.extend(unhealthy(plan));
    let mut others: Vec<&Finding> = plan.findings.iter().collect();
    order::sort_by_key(&mut others, |finding| finding.severity != Severity::Warning);
    texts.extend(others.into_iter().map(finding));
    texts.concat()
}

/// Returns the lines about the fields of the load balancer. Fields that differ from the desired state come first. The
/// last line says how many fields are not shown.
fn fields(plan: &ServicePlan, is_wide: bool) -> String {
    let mut fields: Vec<&Field> = plan.cloud.fields.iter().collect();
    order::sort_by_key(&mut fields, |field| !field.differs());
    let all = fields.len();
    fields.retain(|field| is_wide || field.differs() || field.source.is_set());
    let more = match all - fields.len() {
        0 => String::new(),
        more => line(format_args!("  {more} more fields, which are not set: -o wide shows them")),
    };
    fields.into_iter().map(|value| field(value, value.want.is_none())).collect::<String>() + &more
}

/// Returns the price of the load balancer, its traffic in this month, and its current
/// connections and requests. Unknown values are left out.
fn usage(found: &Balancer) -> String {
    let found = &found.consumption;
    let usage = found.usage.unwrap_or_default();
    let price = found.monthly_price.map(|price| format!("{price:.2} a month, without VAT"));
    let tib = |bytes: u64| bytes as f64 / TIB;
    let carried = found.outgoing_traffic.zip(found.included_traffic).zip(found.ingoing_traffic);
    let carried = carried.map(|((out, included), ingoing)| {
        let (out, included, ingoing) = (tib(out), tib(included), tib(ingoing));
        format!("this month {out:.3} TiB out (of {included:.0} included), {ingoing:.3} TiB in")
    });
    let now = [
        (usage.open_connections, "open connections"),
        (usage.connections_per_second, "new connections/s"),
        (usage.requests_per_second, "requests/s"),
    ];
    let now = now.into_iter().filter_map(|(value, what)| Some(format!("{:.1} {what}", value?)));
    let now = Some(Vec::from_iter(now).join(", ")).filter(|now| !now.is_empty());
    let rows = [("price", price), ("traffic", carried), ("now", now)];
    let lines = rows.into_iter().filter_map(|(name, text)| Some(format!("  {name:<9}{}\n", text?)));
    section("\nUSAGE", &lines.collect::<String>(), "not known")
}

/// Returns the section about the replacement of the load balancer by a new one. It has the state of the replacement,
/// and the other load balancer of the two: the one whose address is not in the status of the Service. The section is
/// empty when the load balancer is not being replaced.
fn replacement(plan: &ServicePlan) -> String {
    let Some(replacement) = &plan.cloud.replacement else {
        return String::new();
    };
    let ends = replacement.ends.map(|at| format!(", until {at}")).unwrap_or_default();
    let other = replacement.other.as_ref().map(|other| {
        let addresses =
            text::some_of(&Vec::from_iter(other.addresses.iter().map(ToString::to_string)));
        let (Balancer { id, name, kind, location, .. }, counts) =
            (other, other.target_counts(Some(&plan.object.uid)));
        let price = other.consumption.monthly_price.unwrap_or_default();
        format!(
            "load balancer {name:?} ({id}), {kind} in {location}, {addresses}, {counts}, {price:.2} a month \
             (not in the status of the Service)"
        )
    });
    let other =
        other.unwrap_or_else(|| "none: the new load balancer does not exist yet".to_owned());
    let state = line(format_args!("  state    {}{ends}", replacement.state));
    section("\nREPLACEMENT", &(state + &paragraph("  other    ", 11, &other)), "")
}

/// Returns the section about the type of the load balancer. It says how many targets, ports and certificates the load
/// balancer must have room for, and names a cheaper type that would be large enough, if there is one. The section is
/// empty when the user, and not ccm, chooses the type.
fn room(plan: &ServicePlan) -> String {
    let Some(sizing) = &plan.cloud.sizing else {
        return String::new();
    };
    let numbers = [
        (sizing.targets, "targets"),
        (sizing.ports, "ports"),
        (sizing.certificates, "certificates"),
    ];
    let numbers = numbers.map(|(count, what)| format!("{count} {what}")).join(", ");
    let cheaper = sizing.cheaper.as_ref().map(|cheaper| {
        paragraph(
            "  cheaper  ",
            11,
            &format!(
                "{} would be large enough, and costs {:.2} a month, without VAT. ccm never makes a load balancer \
                 smaller by itself; to get {0}, set annotation load-balancer.hetzner.cloud/type to {0}, and later to \
                 auto again",
                cheaper.kind, cheaper.monthly_price
            ),
        )
    });
    section("\nTYPE", &(format!("  needs    {numbers}\n") + &cheaper.unwrap_or_default()), "")
}

/// Returns a table of the certificates on the load balancer, with the ports that use each certificate, and the time at
/// which it expires.
fn certificates(found: &Balancer) -> String {
    let row = |certificate: &ShownCertificate| {
        let ports: Vec<String> = certificate.ports.iter().map(ToString::to_string).collect();
        let ends = certificate.not_valid_after.map(|at| at.to_string());
        let name = format!("{} ({})", certificate.name, certificate.id);
        vec![ports.join(", "), name, or_dash(&ends.unwrap_or_default()), certificate.origin()]
    };
    table_of(&["PORTS", "CERTIFICATE", "EXPIRES", "FROM"], found.certificates.iter().map(row))
}

/// Returns the table with these headings and rows, or an empty text when there is no row.
fn table_of(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows = Vec::from_iter(rows);
    if rows.is_empty() { String::new() } else { format!("\n{}", table::render(headings, &rows)) }
}

/// Returns the events of the Service, the newest first. Their messages are quoted, because a tenant may have written
/// them. The events are the last part of the output, because the output should begin with what the user has to do.
fn events(plan: &ServicePlan) -> String {
    let Some(events) = &plan.events else {
        return String::new();
    };
    let lines = events.iter().take(EVENTS_SHOWN).map(|event| {
        let often = match event.count {
            0 | 1 => String::new(),
            count => format!(", {count} times"),
        };
        let when = service::ago(event.at());
        let first = line(format_args!("  {} {}, {when}{often}", event.kind, event.reason));
        first + &paragraph("    ", 4, &said(event))
    });
    section("\nEVENTS", &lines.collect::<String>(), "none")
}

fn said(event: &PastEvent) -> String {
    format!("{:?}", text::cut(&event.message, EVENT_CHARACTERS_SHOWN))
}

/// Returns the section with the fields that are set in the Service's spec, except the ports. Another part of the output
/// shows the ports.
fn spec(plan: &ServicePlan) -> String {
    let spec = &plan.service.spec;
    let fields = [
        ("externalTrafficPolicy", &spec.external_traffic_policy),
        ("loadBalancerIP", &spec.load_balancer_ip),
        ("loadBalancerSourceRanges", &spec.load_balancer_source_ranges.join(",")),
        ("sessionAffinity", &spec.session_affinity),
        ("ipFamilies", &spec.ip_families.join(",")),
    ];
    let set = fields.iter().filter(|(_, value)| !value.is_empty());
    let lines = set.map(|(name, value)| line(format_args!("  {name}: {value}")));
    listed("SPEC", lines)
}

fn both_sides(plan: &ServicePlan, known: Sides) -> String {
    let service = &plan.service;
    let of_cloud = |text: &dyn Fn(&Balancer) -> String| {
        vec![plan.cloud.found.as_ref().map_or("-".to_owned(), text)]
    };
    let not_managed = service.left_alone.map(|why| format!("not managed: {why}"));
    let state = match plan.want {
        Want::Ensure if plan.cloud.outcome.is_released() => "ccm lb release ended the management",
        Want::Ensure => "wants a load balancer",
        Want::Remove if plan.is_deletion() || plan.changes_now().next().is_none() => {
            "its load balancer is to be removed"
        }
        Want::Remove => "its ports are to be removed",
        Want::Release => "the management of its load balancer is to end",
        Want::Nothing => not_managed.as_deref().unwrap_or("nothing"),
    };
    let status = service.status.load_balancer.ingress.iter().map(|ingress| {
        let address = ingress.hostname.as_ref().or(ingress.ip.as_ref());
        let address = address.cloned().unwrap_or_default();
        match ingress.ip_mode.as_deref() {
            Some(mode) if mode != "VIP" => format!("{address} ({mode})"),
            _ => address,
        }
    });
    let found = plan.cloud.found.iter().flat_map(|found| &found.addresses);
    let name = of_cloud(&|balancer| balancer.name.clone());
    let identity = of_cloud(&|balancer| format!("load balancer {}", balancer.id));
    let kind = of_cloud(&|balancer| {
        let use_of = match (&balancer.group, balancer.use_of) {
            (_, BalancerUse::Own) => String::new(),
            (Some(group), _) => format!(", shared under the name {group}"),
            (None, BalancerUse::Released) => ", not managed by ccm".to_owned(),
            (None, use_of) => format!(", {}", use_of.name()),
        };
        format!("{}, {}{use_of}", balancer.kind, balancer.location)
    });
    let ports = service.spec.ports.iter().map(port).collect();
    let owners = plan.cloud.found.iter().flat_map(|found| &found.ports);
    let owners = owners.map(|owner| match (&owner.service, &owner.uid) {
        (_, Some(uid)) if *uid == plan.object.uid => {
            format!("{} of {}", owner.port, service.full_name())
        }
        (Some(service), _) => format!("{} of {service}", owner.port),
        (None, Some(uid)) => format!("{} of Service {uid}", owner.port),
        (None, None) => format!("{} of another owner", owner.port),
    });
    let status = or_none(status.collect());
    let found = or_none(found.map(ToString::to_string).collect());
    let rows = [
        ("name", vec![service.full_name()], name),
        ("identity", vec![service.metadata.uid.clone()], identity),
        ("state", vec![state.to_owned()], kind),
        ("ports", ports, owners.collect()),
        ("targets", Vec::new(), vec![targets_cell(plan)]),
        ("addresses", status, found),
    ];
    sides(&rows, known)
}

fn port(port: &ServicePort) -> String {
    let protocol = match port.protocol {
        Protocol::Tcp => String::new(),
        other => format!("/{}", other.name()),
    };
    match port.node_port {
        None => format!("{}{protocol} → no node port", port.port),
        Some(node_port) => format!("{}{protocol} → node port {node_port}", port.port),
    }
}

/// Returns the results of the health checks of the load balancer. Each result is about one port of one target.
fn checks(plan: &ServicePlan) -> impl Iterator<Item = (&Target, &TargetHealth)> {
    let targets = plan.cloud.found.iter().flat_map(|found| &found.targets);
    targets.flat_map(|target| target.health.iter().map(move |health| (target, health)))
}

/// Returns a table of the results of the health checks, with a row for each port of each target.
fn health(plan: &ServicePlan) -> String {
    let rows = checks(plan).map(|(target, health)| {
        let (port, status) = (health.port.to_string(), health.status.to_string());
        vec![target.name.clone(), port, status, or_dash(&why(health))]
    });
    table_of(&["TARGET", "PORT", "HEALTH", "DETAIL"], rows)
}

/// Returns a table of the nodes that should be targets of the load balancer, but are not or will not be for long. For
/// example, the type of the load balancer allows no more targets, or the node will stop soon.
fn left_out(plan: &ServicePlan) -> String {
    let rows = plan.cloud.left_out.iter().map(|left| vec![left.node.clone(), left.state.text()]);
    table_of(&["NODE", "AS A TARGET"], rows)
}

/// Returns a table of the nodes that run pods of the Services on this load balancer, and says which of these nodes are
/// targets. The table is empty unless a Service or a setting asks for `prefer-nodes-with-pods`, i.e. for targets that
/// run such pods, and there are more nodes than the load balancer can have as targets.
fn with_pods(plan: &ServicePlan) -> String {
    let rows = plan.cloud.with_pods.iter().map(|node| {
        let pods = if node.is_ready { "ready" } else { "about to end" };
        let target = if node.is_target { "yes" } else { "no" };
        vec![node.node.clone(), pods.to_owned(), target.to_owned()]
    });
    table_of(&["NODE WITH PODS", "PODS", "TARGET"], rows)
}

fn why(health: &TargetHealth) -> String {
    if let Some(cause) = &health.cause {
        return cause.message.to_string();
    }
    let code = health.http_status.map(|code| format!("HTTP {code}"));
    health.detail.iter().map(ToString::to_string).chain(code).collect::<Vec<_>>().join(", ")
}

/// Returns a line which says that the load balancer does not exist any more, although the Service's status still has an
/// address. Returns `None` when there is no such problem.
fn gone(plan: &ServicePlan) -> Option<String> {
    let why = "the load balancer of the Service is gone, although the status of the Service has an address. The next \
               sync creates a new load balancer, with another address unless the Service asks for a Primary IP";
    plan.has_lost_its_own().then(|| paragraph("  ! ", 4, why))
}

fn failed_lines(failed: &PastEvent) -> String {
    let when = service::ago(failed.at());
    let text = format!("according to this event, the last sync failed {when}: {}", said(failed));
    line(format_args!("  ! {}", failed.reason)) + &paragraph("    ", 4, &text)
}

/// Returns a line for each port and each cause for which the port has unhealthy targets. The line names these targets.
/// The lines are shown among the problems at the beginning, because most users look for unhealthy targets. With
/// `externalTrafficPolicy: Local`, a node without a pod of the Service is unhealthy on purpose. No line names such a
/// target as long as another target of the port is healthy.
fn unhealthy(plan: &ServicePlan) -> Vec<String> {
    let is_served = |port: u16| {
        let mut others = checks(plan).filter(|(_, health)| health.port == port);
        others.any(|(_, health)| health.status == "healthy")
    };
    let mut lines: Vec<(u16, String, Vec<&str>)> = Vec::new();
    for (target, health) in checks(plan) {
        let Some(cause) = &health.cause else { continue };
        if cause.kind == CauseKind::NoPod && is_served(health.port) {
            continue;
        }
        let (port, why) = (health.port, why(health));
        match lines.iter_mut().find(|(other, cause, _)| *other == port && *cause == why) {
            Some((_, _, names)) => names.push(&target.name),
            None => lines.push((port, why, vec![&target.name])),
        }
    }
    let line = |(port, why, names): (u16, String, Vec<&str>)| {
        let who = match names.as_slice() {
            [name] => format!("target {name} is"),
            names => format!("targets {} are", text::some_of(names)),
        };
        paragraph("  ! ", 4, &format!("{who} unhealthy on port {port}: {why}"))
    };
    lines.into_iter().map(line).collect()
}
