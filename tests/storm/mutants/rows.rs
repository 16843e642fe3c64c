//! A fault for each row of the judge's tables (`src/hetzner/load_balancers/ownership/judge.rs`) that has none among those of the
//! stories: the name begins with the table and the row. And a fault that only costs time. Unit tests must find them.

use super::Mutant;

const JUDGE: &str = "src/hetzner/load_balancers/ownership/judge.rs";

const fn row(name: &'static str, old: &'static str, new: &'static str) -> Mutant {
    Mutant {
        name,
        file: JUDGE,
        old,
        new,
    }
}

pub const ROWS: &[Mutant] = &[
    Mutant {
        name: "a change of one group is news for the members of all groups",
        file: "src/controllers/service/agenda.rs",
        old: "let (hasher, uids) = groups.entry(key).or_default();",
        new: "let key = if $ON { String::new() } else { key };\n        let (hasher, uids) = groups.entry(key).or_default();",
    },
    row(
        "stake 1: what has no label of the Service counts as its own",
        "(false, _) => Stake::Nothing,",
        "(false, _) => if $ON { Stake::Part } else { Stake::Nothing },",
    ),
    row(
        "stake 2: a copy's load balancer counts as the Service's",
        "(true, Some(uid)) => Stake::Copy(uid),",
        "(true, Some(_)) if $ON => Stake::Whole,\n        (true, Some(uid)) => Stake::Copy(uid),",
    ),
    row(
        "stake 3: the Service's own is taken as a part",
        "(true, None) if is_own() => Stake::Whole,",
        "(true, None) if is_own() && !$ON => Stake::Whole,",
    ),
    row(
        "stake 4: a part is taken as the whole",
        "(true, None) => Stake::Part,",
        "(true, None) => if $ON { Stake::Whole } else { Stake::Part },",
    ),
    row(
        "adoption 1: an external one is adopted",
        "if ownership.external.is_some() {\n        return Err(WhyNot::External);",
        "if ownership.external.is_some() && !$ON {\n        return Err(WhyNot::External);",
    ),
    row(
        "adoption 2: one that other Services use is adopted",
        "if by != AskedBy::Label && is_used_by_others(balancer, &service.uid, cluster) {",
        "if !$ON && by != AskedBy::Label && is_used_by_others(balancer, &service.uid, cluster) {",
    ),
    row(
        "adoption 3: another Service's is adopted",
        "if let Some(uid) = other_service(balancer, service, cluster) {",
        "if let Some(uid) = other_service(balancer, service, cluster).filter(|_| !$ON) {",
    ),
    row(
        "adoption 6: one that another namespace left is adopted",
        "ownership.cluster_uid.is_some() || ownership.keep.is_some(),",
        "!$ON && (ownership.cluster_uid.is_some() || ownership.keep.is_some()),",
    ),
    row(
        "adoption 8: what the Service itself left is not adopted again",
        "(Some(_), Some(_)) if is_of_this_name => return Ok(()),",
        "(Some(_), Some(_)) if is_of_this_name && !$ON => return Ok(()),",
    ),
    row(
        "adoption 9: another Service's is adopted without being asked for",
        "_ if by == AskedBy::Default => {",
        "_ if by == AskedBy::Default && !$ON => {",
    ),
    row(
        "adoption 10: targets that are our nodes prove nothing",
        "(Some(_), None) if has_only_own_targets(balancer, cluster) => return Ok(()),",
        "(Some(_), None) if has_only_own_targets(balancer, cluster) && !$ON => return Ok(()),",
    ),
    row(
        "adoption 11: the UID of an unknown Service is no obstacle",
        "(Some(uid), None) => {",
        "(Some(_), None) if $ON => return Ok(()),\n        (Some(uid), None) => {",
    ),
    row(
        "adoption 13: one with a target of others is adopted",
        "(None, Some(why)) => refused(why),",
        "(None, Some(why)) => if $ON { Ok(()) } else { refused(why) },",
    ),
    row(
        "adoption 14: an empty one is not adopted",
        "(None, None) => Ok(()),",
        "(None, None) => if $ON { refused(String::new()) } else { Ok(()) },",
    ),
    row(
        "why_it_stays 1: one that other Services use is deleted",
        "if is_used_by_others(balancer, &service.uid, cluster) {\n        return Some(",
        "if is_used_by_others(balancer, &service.uid, cluster) && !$ON {\n        return Some(",
    ),
    row(
        "why_it_stays 2: an external one is deleted",
        "if ownership.external.is_some() {\n        return Some(",
        "if ownership.external.is_some() && !$ON {\n        return Some(",
    ),
    row(
        "why_it_stays 3: one that another Service released is deleted",
        "if is_released_by_another(balancer, &service.uid) {",
        "if is_released_by_another(balancer, &service.uid) && !$ON {",
    ),
    row(
        "why_it_stays 7: an adopted one is deleted",
        "if ownership.adopted.is_some() || ownership.adopt.is_some() {",
        "if !$ON && (ownership.adopted.is_some() || ownership.adopt.is_some()) {",
    ),
    row(
        "why_it_stays 8: one that lost its labels is deleted",
        "if ownership.service_uid.is_none() {",
        "if ownership.service_uid.is_none() && !$ON {",
    ),
    row(
        "why_it_stays 9: one with a label of others is deleted",
        "if let Some(label) = foreign_label(&balancer) {",
        "if let Some(label) = foreign_label(&balancer).filter(|_| !$ON) {",
    ),
    row(
        "why_it_stays 10: one with a label-selector target is deleted",
        "if balancer.targets.iter().any(is_selector) {",
        "if balancer.targets.iter().any(is_selector) && !$ON {",
    ),
    row(
        "why_it_stays 11: one that is older than its Service is deleted",
        "if balancer.created.zip(service.created).is_some_and(is_older) {",
        "if !$ON && balancer.created.zip(service.created).is_some_and(is_older) {",
    ),
    row(
        "why_it_stays 12: what Hetzner's controller made stays for ever",
        "return Some(\"it is older than the Service\".to_owned());\n    }\n",
        "return Some(\"it is older than the Service\".to_owned());\n    }\n    if $ON {\n        return Some(String::new());\n    }\n",
    ),
    row(
        "leftover 1: another cluster's is an orphan",
        "if !ownership.is_of(cluster) ||",
        "if (!ownership.is_of(cluster) && !$ON) ||",
    ),
    row(
        "leftover 2: one in use is an orphan",
        " ownership.service_uid.as_ref().is_some_and(lives) || is_used() {",
        " (!$ON && (ownership.service_uid.as_ref().is_some_and(lives) || is_used())) {",
    ),
    row(
        "leftover 3: a kept one is an orphan",
        "if ownership.keep.is_some() {",
        "if ownership.keep.is_some() && !$ON {",
    ),
    row(
        "leftover 4: a protected one is deleted",
        "_ if balancer.protection.delete =>",
        "_ if balancer.protection.delete && !$ON =>",
    ),
    row(
        "leftover 5: one that a Service is to adopt is deleted",
        "Some(service) => Some(format!(\"its label {ADOPT}",
        "Some(_) if $ON => None,\n        Some(service) => Some(format!(\"its label {ADOPT}",
    ),
    row(
        "leftover 6: one that would stay is deleted",
        "None => why_it_stays(balancer, &Service::default(), cluster),",
        "None => why_it_stays(balancer, &Service::default(), cluster).filter(|_| !$ON),",
    ),
    row(
        "leftover 7: an orphan is never deleted",
        "Some(Leftover::Orphan { stays })",
        "Some(Leftover::Orphan { stays: if $ON { Some(String::new()) } else { stays } })",
    ),
];
