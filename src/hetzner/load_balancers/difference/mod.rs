//! What lies between a load balancer and what its Service wants, as changes in their order.

mod network;
mod services;
mod targets;

pub(super) use services::fields_of;
pub(super) use targets::max_targets_reached;

use super::Rules;
use super::balancer::{BalancerType, LoadBalancer};
use super::change::{Change, LabelEdit, Write};
use super::desired::Desired;
use super::names::{CLUSTER, SERVICE_UID, WHOSE};
use super::observe::State;
use super::reading::Reading;
use super::seen::Seen;
use super::status::Names;
use crate::provider::{Field, Finding, LoadBalancerPlan, Reason, Source, Sourced};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The source of what stays as it is found.
const UNASKED: &str = "nobody asks for it";

/// The comparison of one load balancer; what it finds goes into the plan.
pub(super) struct Difference<'a, 'b> {
    plan: &'a mut LoadBalancerPlan,
    reading: &'a mut Reading<'b>,
    rules: &'a Rules<'a>,
    balancer: &'a LoadBalancer,
    names: Names<'a>,
    state: &'a State,
}

impl<'a, 'b> Difference<'a, 'b> {
    pub(super) fn new(
        plan: &'a mut LoadBalancerPlan,
        reading: &'a mut Reading<'b>,
        rules: &'a Rules<'a>,
        balancer: &'a LoadBalancer,
        (names, state): (Names<'a>, &'a State),
    ) -> Difference<'a, 'b> {
        Difference {
            plan,
            reading,
            rules,
            balancer,
            names,
            state,
        }
    }

    /// The order is that of the changes. `adopts`: it becomes the Service's with the first, which is reported so.
    pub(super) fn find(
        mut self,
        desired: &Desired,
        kind: &BalancerType,
        labels: &BTreeMap<&'static str, String>,
        adopts: Option<Finding>,
    ) {
        self.name_and_labels(desired, labels, adopts, &self.state.balancers);
        let has = &self.balancer.load_balancer_type;
        let grows = kind.size() >= has.size();
        self.kind(desired, kind, grows);
        self.place(desired);
        self.algorithm(desired);
        let public = &self.balancer.public_net;
        let ipv4 = public.ipv4.ip.map(IpAddr::from);
        let ipv6 = public.ipv6.ip.map(IpAddr::from);
        self.reverse_dns("IPv4", ipv4, &public.ipv4.dns_ptr, &desired.ipv4_rdns);
        self.reverse_dns("IPv6", ipv6, &public.ipv6.dns_ptr, &desired.ipv6_rdns);
        let detached = self.network(desired.attach.as_ref());
        self.public_interface(desired, true);
        self.services(&desired.ports);
        let limit_now = if grows { kind } else { has }.max_targets;
        let needs_public = self.targets(desired, kind.max_targets, limit_now, detached);
        match needs_public {
            true => self.public_interface_stays(desired),
            false => self.public_interface(desired, false),
        }
        self.kind(desired, kind, !grows);
    }

    fn name_and_labels(
        &mut self,
        desired: &Desired,
        ours: &BTreeMap<&'static str, String>,
        adopts: Option<Finding>,
        all: &[LoadBalancer],
    ) {
        let balancer = self.balancer;
        let taken = |name: &&Sourced<String>| {
            let mut others = all.iter().filter(|other| other.id != balancer.id);
            others.any(|other| other.name == name.value)
        };
        let mut sources = Vec::new();
        if let Some(name) = desired.name.as_ref().filter(taken) {
            self.reading.finding(Finding::warning(
                Reason::LoadBalancerNameTaken,
                format!(
                    "{}: another load balancer is called {:?}: this one stays {:?}",
                    name.source, name.value, balancer.name
                ),
            ));
        }
        let wanted = desired.name.as_ref().filter(|name| !taken(name));
        let renamed = wanted.filter(|name| name.value != balancer.name);
        self.field("name", Some(balancer.name.clone()), wanted);
        sources.extend(renamed.map(|name| name.source.clone()));
        let mut differ = Vec::new();
        for (label, value) in ours {
            let has = balancer.labels.get(*label);
            // Their absence is no difference to upstream, so that a take-over writes nothing.
            let counts = *label == SERVICE_UID || !self.rules.leaves_as_found();
            let counts = (counts || adopts.is_some()) && !self.keeps(label);
            let want = Sourced::new(value.clone(), Source::Rule(WHOSE));
            self.field(
                &format!("label {label}"),
                has.cloned(),
                counts.then_some(&want),
            );
            if counts && has != Some(value) {
                differ.push(format!("label {label}: {value}"));
                sources.push(want.source);
            }
        }
        if sources.is_empty() {
            return;
        }
        let set: BTreeMap<String, String> = ours
            .iter()
            .filter(|(label, value)| {
                !self.keeps(label) && balancer.labels.get(**label) != Some(*value)
            })
            .map(|(label, value)| ((*label).to_owned(), value.clone()))
            .collect();
        let name = renamed.map(|name| name.value.clone());
        let rename = name
            .as_ref()
            .map(|name| format!("name: {} → {name}", balancer.name));
        let line = rename
            .into_iter()
            .chain(differ)
            .collect::<Vec<_>>()
            .join(", ");
        let labels = (!set.is_empty()).then(|| LabelEdit {
            set,
            remove: BTreeSet::new(),
            seen: Box::new(Seen::of(balancer)),
            adopts: adopts.is_some(),
        });
        self.plan.changes.push(Box::new(Change {
            event: adopts,
            ..Change::new(
                Some(balancer.id),
                Write::Edit { name, labels },
                line,
                sources,
            )
        }));
    }

    /// It says how the daemon calls the cluster, which we were not told.
    fn keeps(&self, label: &str) -> bool {
        let is_there = || self.balancer.labels.contains_key(label);
        label == CLUSTER && self.rules.holds_back_cluster_name() && is_there()
    }

    /// A larger type comes early, a smaller one last; the field is told once, with the first.
    fn kind(&mut self, desired: &Desired, kind: &BalancerType, now: bool) {
        let has = &self.balancer.load_balancer_type;
        let Some(wanted) = &desired.kind else {
            if now {
                self.field("type", Some(has.name.clone()), None);
            }
            return;
        };
        if !now {
            return;
        }
        self.field("type", Some(has.name.clone()), Some(wanted));
        if has.name != kind.name {
            let line = format!("type: {} → {}", has.name, kind.name);
            let kind = kind.name.clone();
            self.change(
                Write::ChangeType { kind },
                line,
                vec![wanted.source.clone()],
            );
        }
    }

    /// It can't be moved.
    fn place(&mut self, desired: &Desired) {
        let is = &self.balancer.location;
        let wanted = match (&desired.place.location, &desired.place.zone) {
            (Some(location), _) => Some((location, &is.name)),
            (None, Some(zone)) => Some((zone, &is.network_zone)),
            (None, None) => None,
        };
        self.field("location", Some(is.name.clone()), None);
        let differs = wanted.filter(|(wanted, is)| wanted.value != **is);
        if let Some((wanted, is)) = differs
            && let Source::Annotation(_) = wanted.source
        {
            let why = format!(
                "{}: {:?} has no effect: the load balancer is in {is} and can't be moved",
                wanted.source, wanted.value
            );
            self.reading
                .finding(Finding::warning(Reason::AnnotationWithoutEffect, why));
        }
    }

    fn algorithm(&mut self, desired: &Desired) {
        let has = self.balancer.algorithm.kind;
        let wanted = desired.algorithm.as_ref();
        let shown = wanted.map(|w| Sourced::new(w.value.name().to_owned(), w.source.clone()));
        self.field("algorithm", Some(has.name().to_owned()), shown.as_ref());
        if let Some(wanted) = wanted.filter(|wanted| wanted.value != has) {
            let algorithm = wanted.value;
            let line = format!("algorithm: {} → {}", has.name(), algorithm.name());
            let sources = vec![wanted.source.clone()];
            self.change(Write::ChangeAlgorithm { algorithm }, line, sources);
        }
    }

    fn reverse_dns(
        &mut self,
        family: &str,
        ip: Option<IpAddr>,
        has: &Option<String>,
        wanted: &Option<Sourced<String>>,
    ) {
        let Some(ip) = ip else {
            return;
        };
        let field = format!("reverse DNS of {family}");
        self.field(&field, has.clone(), wanted.as_ref());
        if let Some(wanted) = wanted.as_ref().filter(|w| Some(&w.value) != has.as_ref()) {
            let dns_ptr = wanted.value.clone();
            let line = format!("reverse DNS of {ip}: {dns_ptr}");
            let sources = vec![wanted.source.clone()];
            self.change(Write::ChangeDnsPtr { ip, dns_ptr }, line, sources);
        }
    }

    fn field(&mut self, name: &str, have: Option<String>, want: Option<&Sourced<String>>) {
        self.plan.fields.push(Field {
            field: name.to_owned(),
            have,
            want: want.map(|want| want.value.clone()),
            source: want.map_or(Source::Rule(UNASKED), |want| want.source.clone()),
        });
    }

    fn change(&mut self, write: Write, line: String, sources: Vec<Source>) {
        let id = Some(self.balancer.id);
        self.plan
            .changes
            .push(Box::new(Change::new(id, write, line, sources)));
    }
}
