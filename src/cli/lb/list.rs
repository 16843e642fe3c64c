//! `ccm lb list` shows each Service with its load balancer, and in the column `DIFF` what differs from the desired
//! state.

use super::plans::{Services, serves_others_alone, targets_cell, turned_off};
use crate::cli::lists::{List, Table};
use crate::cli::objects::{Sides, listed};
use crate::cli::output::{Exit, Printer, or_dash, paragraph, without};
use crate::cli::table::Columns;
use crate::controllers::service::{ServiceChange, ServicePlan, ServiceWrite, Want};
use crate::provider::{Balancer, Field, KeptObject, Protocol, ServicePort, clock};
use crate::settings::{Command, Output};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;

pub(in crate::cli) fn list(words: Vec<OsString>) -> Result<Exit, Exit> {
    let services = Services::start(Command::LbList, words)?;
    let (context, settings) = (&services.context, &services.context.settings);
    let is_off = context.apis.provider.load_balancers().is_none();
    if is_off && matches!(settings.output.value, Output::Json | Output::Yaml) {
        Printer::notice(turned_off());
    }
    let begun = clock::now();
    TABLE.show(context, || {
        let empty = if is_off { turned_off() + ".\n" } else { nothing(&settings.namespace.value) };
        let mut list = List::read(context, &empty, |sides| services.read(sides))?;
        let sides = Sides::of(list.outage.as_ref());
        if sides == Sides::Both && !settings.watch.value {
            // This check prints an error when `--cloud-provider` is not set, although the provider IDs of the nodes
            // need another value than the default. The command goes on after this error, because `ccm lb list`
            // writes nothing.
            let _ = context.check_profile();
        }
        if sides == Sides::Both {
            list.plans.extend(services.orphans(&list.plans, begun)?);
        }
        // The selector is applied only when Kubernetes answers, because the labels of a Service are not stored in the
        // cloud.
        let selector = settings.selector.value.as_ref();
        if let Some(selector) = selector.filter(|_| sides != Sides::Cloud) {
            let such = context.apis.kube.services_with(selector.as_str());
            let such = such.map_err(|error| context.failed(&error.into()))?;
            let such: HashSet<&str> = such.iter().map(|service| &*service.metadata.uid).collect();
            list.plans.retain(|plan| !plan.is_orphan() && such.contains(plan.object.uid.as_str()));
        }
        // A deleted Service can have asked, by an annotation, to keep its load balancer and certificates. Such objects
        // are listed below the table, but not when the list is limited to a namespace or by a selector, because the
        // namespace and the labels of the deleted Service are not known.
        let is_part = settings.namespace.value.is_some() || selector.is_some();
        let is_left_out = is_part || settings.watch.value || sides != Sides::Both;
        let kept = (!is_left_out).then(|| services.controller.kept(&context.apis));
        if let Some(Err(error)) = &kept {
            Printer::failure(format_args!(
                "the kept load balancers and certificates of deleted Services can't be read: {error}"
            ));
        }
        list.kept = kept.map(Result::ok);
        list.below = kept_lines(list.kept.iter().flatten().flatten());
        Ok(list)
    })
}

/// Returns the lines below the table. They list the load balancers and certificates that are kept although their
/// Service was deleted.
fn kept_lines<'a>(kept: impl Iterator<Item = &'a KeptObject>) -> String {
    let lines = kept.map(|kept| {
        let addresses = kept.addresses.iter().map(ToString::to_string);
        let of = Vec::from_iter(kept.domains.iter().cloned().chain(addresses)).join(", ");
        let what = if kept.domains.is_empty() {
            format!("load balancer {:?} ({}), at", kept.name, kept.id)
        } else {
            format!("certificate {:?} ({}), for", kept.name, kept.id)
        };
        paragraph("  ", 6, &format!("{what} {of}"))
    });
    listed("Kept, because an annotation of their deleted Service asked for this:", lines)
}

fn nothing(namespace: &Option<String>) -> String {
    let place = match namespace {
        Some(namespace) => format!("Namespace {namespace}"),
        None => "The cluster".to_owned(),
    };
    format!("{place} has no Service of type LoadBalancer.\n")
}

const TABLE: Table<Vec<ServicePlan>, ServicePlan> = Table {
    columns: Columns {
        headings: &["SERVICE", "LOAD BALANCER", "ADDRESS", "TARGETS", "DIFF"],
        wide: &["ID", "TYPE", "LOCATION", "USE"],
        // When the table is too wide for the terminal, the column `DIFF` is shortened first. Next comes the name of the
        // load balancer, which repeats the Service's name, and then the name of the Service. If the table is still too
        // wide, `DIFF` is shortened further.
        yielding: &[(4, 24), (1, 13), (0, 17), (4, 10)],
    },
    rows: |plans| plans,
    cells: |plan, is_wide, known| match known {
        Sides::Both => cells(plan, is_wide),
        Sides::Kubernetes => {
            let mut row = without(&[1, 3, 4, 5, 6, 7, 8], cells(plan, is_wide));
            let mut status = plan.service.status.load_balancer.ingress.iter();
            let address = status.find_map(|entry| entry.hostname.clone().or(entry.ip.clone()));
            row[2] = or_dash(&address.unwrap_or_default());
            row
        }
        Sides::Cloud if plan.service.metadata.name.is_empty() => {
            without(&[0, 4], cells(plan, is_wide))
        }
        Sides::Cloud => without(&[4], cells(plan, is_wide)),
    },
    name: |plan| plan.name(),
};

fn cells(plan: &ServicePlan, is_wide: bool) -> Vec<String> {
    let found = plan.cloud.found.as_ref();
    let addresses = found.filter(|_| !serves_others_alone(plan)).map(|found| &found.addresses);
    let addresses = addresses.into_iter().flatten().take(if is_wide { usize::MAX } else { 1 });
    let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
    let of_it = |text: fn(&Balancer) -> String| or_dash(&found.map(text).unwrap_or_default());
    let service = if plan.service.metadata.namespace.is_empty() {
        // Only a load balancer was found, and its labels do not contain the name of its Service. So this name is
        // not known.
        "-".to_owned()
    } else {
        plan.service.full_name()
    };
    vec![
        service,
        of_it(|balancer| balancer.name.clone()),
        or_dash(&addresses.join(",")),
        targets_cell(plan),
        diff(plan),
        of_it(|balancer| balancer.id.to_string()),
        of_it(|balancer| balancer.kind.clone()),
        of_it(|balancer| balancer.location.clone()),
        of_it(|balancer| match &balancer.group {
            Some(group) => format!("shared: {group}"),
            None => balancer.use_of.name().to_owned(),
        }),
    ]
}

/// How many warnings are named in a cell of the column `DIFF`. When a Service has more warnings, the cell ends with the
/// number of those that are not named.
const WARNINGS_SHOWN: usize = 2;

/// Returns the text of the column `DIFF`: a short word for each thing that a sync would change, and for each warning.
fn diff(plan: &ServicePlan) -> String {
    if plan.is_orphan() {
        let stays = if plan.has_writes() { "" } else { ", stays" };
        return format!("orphan{stays}");
    }
    if let Some(obstacle) = &plan.obstacle {
        return format!("!{}", obstacle.reason.name());
    }
    if plan.service.left_alone.is_some() {
        return "not managed".into();
    }
    let mut words = match (plan.want, &plan.cloud.found) {
        // The load balancer was deleted already, or is protected from deletion. So a sync only has to remove the
        // Service's finalizer.
        (Want::Remove, _) if plan.changes_now().next().is_none() => vec!["finalizer".into()],
        (Want::Remove, _) if plan.is_deletion() => vec!["delete".into()],
        // A sync does not delete this load balancer. It only removes from the load balancer what belongs to this
        // Service, e.g. its ports.
        (Want::Remove, _) => vec!["release".into()],
        (Want::Ensure, None) => vec!["create".into()],
        _ if plan.cloud.outcome.is_released() => vec!["released".into()],
        _ => written(plan),
    };
    let is_tcp = |port: &ServicePort| port.protocol == Protocol::Tcp;
    if plan.want == Want::Ensure && !plan.service.spec.ports.iter().any(is_tcp) {
        words.push("no TCP port".into());
    }
    words.extend(plan.cloud.replacement.as_ref().map(|replacement| replacement.state.to_owned()));
    words.extend(warnings(plan));
    or_dash(&words.join(","))
}

/// Returns one word for each kind of thing that a sync would write to Kubernetes or to the cloud. For example, `port`
/// occurs once, even when several ports would change.
fn written(plan: &ServicePlan) -> Vec<String> {
    let differing = plan.cloud.fields.iter().filter(|field| field.differs());
    let mut words = Vec::from_iter(differing.map(word).collect::<BTreeSet<_>>());
    words.extend(plan.changes.iter().filter_map(|write| match write {
        ServiceChange::Own(ServiceWrite::AddFinalizer) => Some("finalizer".into()),
        ServiceChange::Own(ServiceWrite::SetStatus(_)) => Some("status".into()),
        _ => None,
    }));
    words
}

/// Returns the names of the warnings, without duplicates. When there are more than [`WARNINGS_SHOWN`], the last text is
/// the number of names that are left out, e.g. `+3`.
fn warnings(plan: &ServicePlan) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for name in plan.warnings().map(|warning| warning.reason.name()) {
        if !reasons.iter().any(|reason| reason == name) {
            reasons.push(name.to_owned());
        }
    }
    let more = reasons.len().saturating_sub(WARNINGS_SHOWN);
    reasons.truncate(WARNINGS_SHOWN);
    reasons.extend((more > 0).then(|| format!("+{more}")));
    reasons
}

fn word(field: &Field) -> String {
    match field.field.split_whitespace().next() {
        Some(word @ ("port" | "target" | "label")) => word.to_owned(),
        _ => field.field.clone(),
    }
}
