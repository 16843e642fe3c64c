//! The difference between a load balancer and what its Service wants, as changes in their order.

use super::subnets;
use crate::hetzner::load_balancers::annotations;
use crate::hetzner::load_balancers::annotations::parser::AnnotationParser;
use crate::hetzner::load_balancers::change::{Action, Change, Purpose, boxed};
use crate::hetzner::load_balancers::desired::ports::Port;
use crate::hetzner::load_balancers::desired::{Attach, Desired};
use crate::hetzner::load_balancers::model::balancer::{BalancerType, PublicIp};
use crate::hetzner::load_balancers::model::listener::{Listener, PortField};
use crate::hetzner::load_balancers::ownership::context::{
    CLUSTER_NAME, Context, NETWORK, default_source,
};
use crate::hetzner::load_balancers::ownership::guard::Guard;
use crate::hetzner::load_balancers::ownership::labels::{Labelled, WHOSE};
use crate::provider::{
    Description, Field, Finding, LoadBalancerPlan, Reason, Source, Sourced, Verb,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Of a field that is left unchanged.
const UNSET: Source = Source::Rule("unset");

/// When no type is set.
pub(crate) const USUAL_TYPE: &str = "lb11";

/// Those whose key is taken out of an annotation stay: without a limit they would grow without end.
const LABELS_AT_MOST: usize = 100;

/// The comparison of one load balancer; the differences are added to the plan.
pub(crate) struct Diff<'a, 'b> {
    pub(crate) plan: &'a mut LoadBalancerPlan,
    pub(crate) changes: Vec<Change>,
    pub(crate) parser: &'a mut AnnotationParser<'b>,
    pub(crate) context: &'a Context<'a>,
    pub(crate) desired: &'a Desired,
    /// The type it should be of.
    pub(crate) kind: &'a BalancerType,
    /// None: it is to be created, and differs in everything.
    pub(crate) balancer: Option<Labelled<'a>>,
}

/// The value as people read it.
pub(crate) fn shown<T>(
    set: Option<&Sourced<T>>,
    text: impl Fn(&T) -> String,
) -> Option<Sourced<String>> {
    set.map(|set| Sourced::new(text(&set.value), set.source.clone()))
}

fn on_or_off(on: &bool) -> String {
    if *on { "on" } else { "off" }.to_owned()
}

impl Diff<'_, '_> {
    /// `adopts`: it becomes the Service's with the first change, which is reported so.
    pub(crate) fn bring_in_order(mut self, adopts: Option<Finding>) {
        let zone = self
            .balancer
            .map(|one| one.balancer.location.network_zone.as_str());
        self.compare_all(self.desired.name.clone(), adopts, zone);
        self.plan.changes = boxed(self.changes);
    }

    /// The order is that of the changes. `zone`: the network zone it is in, as far as that is known.
    pub(crate) fn compare_all(
        &mut self,
        name: Option<Sourced<String>>,
        adopts: Option<Finding>,
        zone: Option<&str>,
    ) {
        let desired = self.desired;
        if self.context.group.is_external() {
            // Nothing else of it is ours to change.
            self.remove_ports();
            self.name_and_labels(None, None);
            self.services();
            if self.parser.whole_problems.is_empty() {
                self.targets(self.kind.max_targets);
            }
            return;
        }
        // A label of a port outlasts the port.
        let is_own = self.context.group.is_own();
        if !is_own {
            self.remove_ports();
        }
        self.name_and_labels(name, adopts);
        if !self.parser.whole_problems.is_empty() {
            return self.services();
        }
        // A larger type comes early, a smaller one last.
        let has = self.balancer.map(|one| &one.balancer.load_balancer_type);
        let grows = has.is_none_or(|has| self.kind.size() >= has.size());
        let has_kind = has.map_or(self.kind, |has| has);
        let resized = self.resized();
        let (early, late) = if grows {
            (resized, None)
        } else {
            (None, resized)
        };
        self.changes.extend(early);
        self.check_place();
        self.algorithm();
        let public = self.balancer.map(|one| &one.balancer.public_net);
        let ipv4 = public.map(|net| &net.ipv4);
        let ipv6 = public.map(|net| &net.ipv6);
        self.reverse_dns("IPv4", ipv4, &desired.ipv4_rdns);
        self.reverse_dns("IPv6", ipv6, &desired.ipv6_rdns);
        self.protection();
        self.network(zone);
        // On early, off late: the API refuses that while targets use public addresses.
        let is_off = |public: &&Sourced<bool>| !public.value;
        let off = desired.public.as_ref().filter(is_off);
        if off.is_none() {
            self.public_interface(desired.public.as_ref());
        }
        if is_own {
            self.remove_ports();
        }
        self.services();
        let limit_now = if grows { self.kind } else { has_kind }.max_targets;
        let needs_public = self.targets(limit_now);
        if off.is_some() {
            self.public_interface(off.filter(|_| !needs_public));
        }
        self.changes.extend(late);
    }

    /// Adds a field to the plan. What changes it, where it differs and is not held back. `want`: none: it is left
    /// unchanged.
    pub(crate) fn compare(
        &mut self,
        name: &str,
        have: Option<String>,
        want: Option<Sourced<String>>,
    ) -> Option<Description> {
        let (want, source) = match want {
            Some(want) => (Some(want.value), want.source),
            None if self.balancer.is_none() => return None,
            None => (None, UNSET),
        };
        let field = Field {
            field: name.to_owned(),
            have,
            want,
            source,
        };
        // What is not there yet is made of the defaults.
        let is_held = field.have.is_some() && self.context.project.holds_back(&field.source);
        let differs = field.differs();
        if differs && is_held {
            self.plan.held_back.push(field.clone());
        }
        let value = || Description::value(name, field.have.as_deref(), field.want.as_deref());
        let change = (differs && !is_held).then(value);
        self.plan.fields.push(field);
        change
    }

    pub(crate) fn new_change(
        &self,
        action: Action,
        body: Value,
        description: Description,
    ) -> Change {
        let id = self.balancer.map(|one| one.id);
        Change::new(self.context.project, action, id, body, description)
    }

    pub(crate) fn change(&mut self, action: Action, body: Value, description: Description) {
        let change = self.new_change(action, body, description);
        self.changes.push(change);
    }

    fn name_and_labels(&mut self, mut wanted: Option<Sourced<String>>, adopts: Option<Finding>) {
        let (balancer, context) = (self.balancer, self.context);
        let own = balancer.map(|one| one.id);
        let is_taken = |name: &Sourced<String>| {
            let mut named = context.balancers.named(&name.value);
            named.any(|other| Some(other.id) != own)
        };
        let has_name = balancer.map(|one| one.name.clone());
        if let Some(name) = wanted.take_if(|name| is_taken(name)) {
            let why = format!(
                "{}: another load balancer is called {:?}: this one stays {:?}",
                name.source,
                name.value,
                has_name.as_deref().unwrap_or_default()
            );
            let finding = Finding::warning(Reason::LoadBalancerNameTaken, why);
            self.parser.finding(finding.with_fix("choose another name"));
        }
        let mut parts = Vec::new();
        let mut body = json!({});
        let name = wanted.as_ref().map(|name| name.value.clone());
        if let Some(renamed) = self.compare("name", has_name, wanted) {
            parts.push(renamed);
            body = json!({ "name": name });
        }
        let own_ports = self.desired.ports.iter();
        let own_ports: Vec<u16> = own_ports.map(|port| port.listener.listen_port).collect();
        let is_kept = self.desired.is_kept;
        let has = |label: &String| balancer.and_then(|one| one.labels.get(label).cloned());
        let wanted = context.labels(balancer, adopts.is_some(), &own_ports, is_kept);
        let mut to = wanted.to;
        for label in wanted.shown {
            let (field, has) = (format!("label {}", label.key), has(&label.key));
            let Some(value) = label.value else {
                let absent = Sourced::new("absent".to_owned(), Source::Rule(WHOSE));
                self.compare(&field, has, Some(absent));
                parts.push(Description::new(Verb::Remove, field, ""));
                continue;
            };
            let differs = has.as_ref().is_some_and(|has| *has != value);
            let is_unsure = label.is_cluster_name && context.project.is_unknown(CLUSTER_NAME);
            let source = match differs && is_unsure {
                true => {
                    to.cluster.clone_from(&has);
                    Source::Default(CLUSTER_NAME.to_owned())
                }
                false => Source::Rule(WHOSE),
            };
            // Their absence is no difference to upstream, so that a take-over writes nothing.
            let counts = label.counts_upstream
                || !context.project.preserves_unset()
                || !context.group.is_own()
                || adopts.is_some()
                || balancer.is_none();
            let want = counts.then(|| Sourced::new(value, source));
            parts.extend(self.compare(&field, has, want));
        }
        let guard = Guard::to(balancer, &to);
        let mut asked = BTreeMap::new();
        for (label, wanted) in &self.desired.labels {
            let has = has(label);
            let there = balancer.map_or(0, |one| one.labels.len());
            let count = there + guard.count() + asked.len();
            if has.is_none() && count >= LABELS_AT_MOST {
                let why = format!(
                    "{}: label {label} is not added: the load balancer has {count}, and gets no more than \
                     {LABELS_AT_MOST}; remove those that are not needed",
                    wanted.source
                );
                self.parser.warning(Reason::AnnotationWithoutEffect, why);
                continue;
            }
            if let Some(part) = self.compare(&format!("label {label}"), has, Some(wanted.clone())) {
                parts.push(part);
                asked.insert(label.clone(), wanted.value.clone());
            }
        }
        if parts.is_empty() {
            return;
        }
        let mut change = self.new_change(Action::Edit, body, parts.into_iter().collect());
        if adopts.is_some() {
            change.purpose = Purpose::Adoption;
        }
        change.event = adopts;
        let guard = guard.with(asked);
        if guard.changes_labels() {
            change = change.guarded(guard);
        }
        self.changes.push(change);
    }

    fn resized(&mut self) -> Option<Change> {
        let kind = &self.kind.name;
        let have = self.balancer.map(|one| one.load_balancer_type.name.clone());
        let usual = || Sourced::new(kind.clone(), default_source(&annotations::TYPE));
        let want = self.desired.kind.clone();
        let want = want.or_else(|| have.is_none().then(usual));
        let body = json!({ "load_balancer_type": kind });
        let resize = self.compare("type", have, want)?;
        Some(self.new_change(Action::ChangeType, body, resize))
    }

    /// It can't be moved.
    fn check_place(&mut self) {
        let Some(is) = self.balancer.map(|one| &one.balancer.location) else {
            return;
        };
        let place = &self.desired.place;
        let (field, is, wanted) = match (&place.location, &place.zone) {
            (None, Some(zone)) => ("network zone", &is.network_zone, Some(zone)),
            (location, _) => ("location", &is.name, location.as_ref()),
        };
        let differs = wanted.filter(|wanted| wanted.value != *is);
        self.plan.fields.push(Field {
            field: field.to_owned(),
            have: Some(is.clone()),
            want: wanted
                .filter(|_| differs.is_none())
                .map(|wanted| wanted.value.clone()),
            source: wanted.map_or(UNSET, |wanted| wanted.source.clone()),
        });
        if let Some(wanted) = differs
            && let Source::Annotation(_) = wanted.source
        {
            let why = format!(
                "{}: {:?} has no effect: the load balancer is in {is} and can't be moved",
                wanted.source, wanted.value
            );
            self.parser.warning(Reason::AnnotationWithoutEffect, why);
        }
    }

    fn algorithm(&mut self) {
        let has = self
            .balancer
            .map(|one| one.algorithm.kind.name().to_owned());
        let want = shown(self.desired.algorithm.as_ref(), |one| one.name().to_owned());
        let kind = want.as_ref().map(|want| want.value.clone());
        if let Some(change) = self.compare("algorithm", has, want) {
            self.change(Action::ChangeAlgorithm, json!({ "type": kind }), change);
        }
    }

    /// The call that creates one can't carry it.
    fn protection(&mut self) {
        let has = self.balancer.map(|one| on_or_off(&one.protection.delete));
        let wanted = self.desired.protection.as_ref();
        if let Some(change) = self.compare("deletion protection", has, shown(wanted, on_or_off)) {
            let body = json!({ "delete": wanted.is_some_and(|wanted| wanted.value) });
            self.change(Action::ChangeProtection, body, change);
        }
    }

    /// `has`: none while there is no load balancer.
    fn reverse_dns(
        &mut self,
        family: &str,
        has: Option<&PublicIp>,
        wanted: &Option<Sourced<String>>,
    ) {
        let ip = has.and_then(|has| has.ip);
        if has.is_some() && ip.is_none() {
            return;
        }
        let name = has.and_then(|has| has.dns_ptr.clone());
        let field = format!("reverse DNS of {family}");
        let differs = self.compare(&field, name.clone(), wanted.clone());
        if let (Some(_), Some(ip), Some(wanted)) = (differs, ip, wanted) {
            let field = format!("reverse DNS of {ip}");
            let description = Description::value(field, name.as_deref(), Some(&wanted.value));
            let body = json!({ "ip": ip, "dns_ptr": wanted.value });
            self.change(Action::ChangeDnsPtr, body, description);
        }
    }

    /// Detaching drops the targets that are reached by their private IP.
    fn network(&mut self, zone: Option<&str>) {
        // Without HCLOUD_NETWORK nothing is ever detached.
        let Some(wanted) = &self.desired.attach else {
            return;
        };
        let by_setting = Source::Environment(NETWORK.to_owned());
        let attached = self.balancer.map(|one| one.balancer.private_net.as_slice());
        let attached = attached.unwrap_or_default();
        let own = attached.iter().find(|net| net.network == wanted.network);
        let networks: Vec<String> = attached.iter().map(|net| net.network.to_string()).collect();
        let have = (!networks.is_empty()).then(|| networks.join(", "));
        let want = Sourced::new(wanted.network.to_string(), by_setting);
        self.compare("private Network", have, Some(want));
        let ip = own.and_then(|net| net.ip);
        let asked = wanted.asked_ip();
        let mut want = shown(asked, Ipv4Addr::to_string);
        if let (Some(want), Some(_)) = (&mut want, &wanted.unsure_ip) {
            want.source = Source::Default(subnets::RANGES.to_owned());
        }
        self.compare("private IPv4", ip.map(|ip| ip.to_string()), want);

        if own.is_none() || asked.is_some_and(|asked| Some(asked.value) != ip) {
            subnets::check(self.parser, wanted, self.context, zone);
        }
        for net in attached.iter().filter(|net| !wanted.keeps(net)) {
            let network = net.network;
            let name = format!("private Network {network}");
            let description = Description::new(Verb::Detach, name, "");
            self.change(Action::Detach, json!({ "network": network }), description);
        }
        let is_detached = self.balancer.is_some_and(|one| wanted.detaches(&one));
        if own.is_some() && !is_detached {
            return self.report_other_subnet(wanted, ip);
        }
        let range = wanted.range.as_ref();
        if self.balancer.is_none() {
            let want = shown(range, ToString::to_string);
            self.compare("private subnet", None, want);
        }
        let wanted_ip = wanted.ip.as_ref().map(|ip| ip.value);
        let at = wanted_ip.map(|ip| format!(" at {ip}")).unwrap_or_default();
        let name = format!("private Network {}", wanted.network);
        let description = Description::new(Verb::Attach, name, at);
        let range = range.map(|range| range.value);
        let body = json!({ "network": wanted.network, "ip": wanted_ip, "ip_range": range });
        self.change(Action::Attach, body, description);
    }

    fn report_other_subnet(&mut self, wanted: &Attach, ip: Option<Ipv4Addr>) {
        let range = wanted.range.as_ref();
        let (Some(range), Some(ip)) = (range, ip) else {
            return;
        };
        if !range.value.contains(&ip) {
            let why = format!(
                "{}: {} counts only when the load balancer is attached; it is at {ip}: set {} to move it",
                range.source,
                range.value,
                annotations::PRIVATE_IPV4.key()
            );
            self.parser.warning(Reason::AnnotationWithoutEffect, why);
        }
    }

    fn public_interface(&mut self, wanted: Option<&Sourced<bool>>) {
        let has = self.balancer.map(|one| on_or_off(&one.public_net.enabled));
        if let Some(change) = self.compare("public interface", has, shown(wanted, on_or_off)) {
            let action = match wanted.is_some_and(|wanted| wanted.value) {
                true => Action::EnablePublicInterface,
                false => Action::DisablePublicInterface,
            };
            self.change(action, Value::Null, change);
        }
    }

    fn remove_ports(&mut self) {
        let Some(balancer) = self.balancer else {
            return;
        };
        for port in &balancer.services {
            if self.context.group.is_unwanted(balancer, port) {
                let number = port.listen_port;
                let source = Source::Rule("the Service has no such port");
                let absent = Sourced::new("absent".to_owned(), source);
                let field = format!("port {number}");
                self.compare(&field, Some("present".to_owned()), Some(absent));
                let body = json!({ "listen_port": number });
                self.change(
                    Action::DeleteService,
                    body,
                    Description::new(Verb::Remove, field, ""),
                );
            }
        }
    }

    fn services(&mut self) {
        let there = self.balancer.map(|one| one.balancer.services.as_slice());
        let there = there.unwrap_or_default();
        let mut added = Vec::new();
        for port in &self.desired.ports {
            let number = port.listener.listen_port;
            let there = there.iter().find(|one| one.listen_port == number);
            let Some((listener, parts)) = self.compare_port(port, there) else {
                continue;
            };
            if there.is_none() {
                added.push(listener);
            } else if !parts.is_empty() {
                let description = parts.into_iter().collect();
                self.change(Action::UpdateService, listener.body(false), description);
            }
        }
        for listener in added {
            let node_port = PortField::DestinationPort.of(&listener).unwrap_or_default();
            let description = Description::new(
                Verb::Add,
                format!("port {}", listener.listen_port),
                format!(", {} to node port {node_port}", listener.protocol()),
            );
            self.change(Action::AddService, listener.body(true), description);
        }
    }

    /// A port as it will be, and what of it is changed. None: it waits for its certificate.
    fn compare_port(
        &mut self,
        port: &Port,
        there: Option<&Listener>,
    ) -> Option<(Listener, Vec<Description>)> {
        let number = port.listener.listen_port;
        if port.is_put_off(there) {
            self.plan.fields.push(Field {
                field: format!("port {number}"),
                have: there.map(|found| found.protocol().to_owned()),
                want: None,
                source: Source::Rule("it waits for its certificate"),
            });
            return None;
        }
        let project = self.context.project;
        let is_held = |source: &Source| project.holds_back(source);
        let certificates = port.sources.get(&PortField::Certificates);
        let is_shown = there.is_some_and(Listener::is_https);
        if let Some(source) = certificates.filter(|source| is_held(source) && !is_shown) {
            // The daemon may know that Services may not use them, and would leave them where they are.
            let held_back = Field {
                field: format!("port {number}"),
                have: there.map(|found| found.protocol().to_owned()),
                want: Some(port.listener.protocol().to_owned()),
                source: source.clone(),
            };
            self.plan.held_back.push(held_back.clone());
            self.plan.fields.push(held_back);
            return None;
        }
        let merged = port.merged(there, is_held);
        let whole = port.merged(there, |_| false);
        let mut parts = Vec::new();
        for field in PortField::ALL.iter().copied() {
            let source = port.sources.get(&field);
            let have = there.and_then(|there| field.of(there));
            let want = match source.is_some_and(is_held) {
                true => field.of(&whole),
                false => field.of(&merged),
            };
            if have.is_none() && want.is_none() {
                continue;
            }
            let name = format!("port {number} {}", field.name());
            // Not a field of its new protocol: the API drops it with the old one.
            let want = want.zip(source.cloned());
            let want = want.map(|(value, source)| Sourced::new(value, source));
            parts.extend(self.compare(&name, have, want));
        }
        Some((merged, parts))
    }
}
