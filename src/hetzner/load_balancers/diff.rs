//! The difference between a load balancer and what its Service wants, as changes in their order.

use super::balancer::{AlgorithmOf, BalancerType, LoadBalancer};
use super::change::{Change, LabelEdit, Plan, Seen, Write};
use super::context::{CLUSTER_NAME, Context, NETWORK, Planner};
use super::desired::{Attach, Desired};
use super::listener::{Listener, PortField};
use super::names::{CLUSTER, SERVICE_UID, WHOSE};
use super::parser::AnnotationParser;
use super::ports::Port;
use super::{annotations, subnets};
use crate::provider::{Field, Finding, Reason, Source, Sourced};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// The source of a field that is left unchanged.
const UNSET: &str = "unset";

/// The comparison of one load balancer; the differences are added to the plan.
pub(super) struct Diff<'a, 'b> {
    pub(super) plan: &'a mut Plan,
    pub(super) parser: &'a mut AnnotationParser<'b>,
    pub(super) context: &'a Context<'a>,
    pub(super) balancer: &'a LoadBalancer,
}

/// Adds a field to the plan. What asks for a change, where it differs and is not held back. `want`: none: it is left
/// unchanged.
pub(super) fn compare(
    plan: &mut Plan,
    planner: &Planner,
    name: &str,
    have: Option<String>,
    want: Option<Sourced<String>>,
) -> Option<Source> {
    let (want, source) = match want {
        Some(want) => (Some(want.value), want.source),
        None => (None, Source::Rule(UNSET)),
    };
    let field = Field {
        field: name.to_owned(),
        have,
        want,
        source,
    };
    plan.fields.push(field.clone());
    if !field.differs() {
        return None;
    }
    // What is not there yet is made of the defaults.
    if field.have.is_some() && planner.holds_back(&field.source) {
        plan.held_back.push(field);
        return None;
    }
    Some(field.source)
}

/// A port as it will be, what of it differs, for people, and what asks for that. None: it waits for its certificate.
pub(super) fn compare_port(
    plan: &mut Plan,
    planner: &Planner,
    port: &Port,
    there: Option<&Listener>,
) -> Option<(Listener, Vec<String>, Vec<Source>)> {
    let number = port.listener.listen_port;
    if port.is_put_off(there) {
        plan.fields.push(Field {
            field: format!("port {number}"),
            have: there.map(|found| found.protocol().to_owned()),
            want: None,
            source: Source::Rule("it waits for its certificate"),
        });
        return None;
    }
    let is_held = |source: &Source| planner.holds_back(source);
    let merged = port.merged(there, is_held);
    let whole = port.merged(there, |_| false);
    let (mut lines, mut sources) = (Vec::new(), Vec::new());
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
        let dash = || "-".to_owned();
        let line = format!(
            "{} {} → {}",
            field.name(),
            have.clone().unwrap_or_else(dash),
            want.clone().unwrap_or_else(dash)
        );
        // Not a field of its new protocol: the API drops it with the old one.
        let want = want.zip(source.cloned());
        let want = want.map(|(value, source)| Sourced::new(value, source));
        let name = format!("port {number} {}", field.name());
        if let Some(source) = compare(plan, planner, &name, have, want) {
            lines.push(line);
            sources.push(source);
        }
    }
    Some((merged, lines, sources))
}

/// The value as people read it.
pub(super) fn shown<T>(
    set: Option<&Sourced<T>>,
    text: impl Fn(&T) -> String,
) -> Option<Sourced<String>> {
    set.map(|set| Sourced::new(text(&set.value), set.source.clone()))
}

pub(super) fn on_or_off(on: &bool) -> String {
    if *on { "on" } else { "off" }.to_owned()
}

impl Diff<'_, '_> {
    /// The order is that of the changes. `adopts`: it becomes the Service's with the first, which is reported so.
    pub(super) fn find(
        mut self,
        desired: &Desired,
        kind: &BalancerType,
        labels: &BTreeMap<&'static str, String>,
        adopts: Option<Finding>,
    ) {
        self.name_and_labels(desired, labels, adopts);
        // A larger type comes early, a smaller one last.
        let has = &self.balancer.load_balancer_type;
        let grows = kind.size() >= has.size();
        let resized = self.compare("type", Some(has.name.clone()), desired.kind.clone());
        let resized = resized.map(|source| {
            let line = format!("type: {} → {}", has.name, kind.name);
            let kind = kind.name.clone();
            (Write::ChangeType { kind }, line, vec![source])
        });
        let (early, late) = match grows {
            true => (resized, None),
            false => (None, resized),
        };
        self.change_if(early);
        self.place(desired);
        self.algorithm(desired);
        let public = &self.balancer.public_net;
        let ipv4 = public.ipv4.ip.map(IpAddr::from);
        let ipv6 = public.ipv6.ip.map(IpAddr::from);
        self.reverse_dns("IPv4", ipv4, &public.ipv4.dns_ptr, &desired.ipv4_rdns);
        self.reverse_dns("IPv6", ipv6, &public.ipv6.dns_ptr, &desired.ipv6_rdns);
        self.network(desired.attach.as_ref());
        // On early, off late: the API refuses that while targets use public addresses.
        let is_off = |public: &&Sourced<bool>| !public.value;
        let off = desired.public.as_ref().filter(is_off);
        if off.is_none() {
            self.public_interface(desired.public.as_ref());
        }
        self.services(&desired.ports);
        let limit_now = if grows { kind } else { has }.max_targets;
        let needs_public = self.targets(desired, kind.max_targets, limit_now);
        if off.is_some() {
            self.public_interface(off.filter(|_| !needs_public));
        }
        self.change_if(late);
    }

    fn name_and_labels(
        &mut self,
        desired: &Desired,
        ours: &BTreeMap<&'static str, String>,
        adopts: Option<Finding>,
    ) {
        let balancer = self.balancer;
        let is_taken = |name: &Sourced<String>| {
            let mut others = self.context.observed.balancers.iter();
            others.any(|other| other.id != balancer.id && other.name == name.value)
        };
        let mut wanted = desired.name.clone();
        if let Some(name) = wanted.take_if(|name| is_taken(name)) {
            self.parser.finding(Finding::warning(
                Reason::LoadBalancerNameTaken,
                format!(
                    "{}: another load balancer is called {:?}: this one stays {:?}",
                    name.source, name.value, balancer.name
                ),
            ));
        }
        let (mut lines, mut sources) = (Vec::new(), Vec::new());
        let renamed = self.compare("name", Some(balancer.name.clone()), wanted.clone());
        let name = renamed.and_then(|source| {
            sources.push(source);
            let name = wanted?.value;
            lines.push(format!("name: {} → {name}", balancer.name));
            Some(name)
        });
        let mut set = BTreeMap::new();
        for (label, value) in ours {
            let has = balancer.labels.get(*label);
            let differs = has.is_some_and(|has| has != value);
            let is_held =
                differs && *label == CLUSTER && self.context.planner.is_unknown(CLUSTER_NAME);
            let source = match is_held {
                true => Source::Default(CLUSTER_NAME.to_owned()),
                false => Source::Rule(WHOSE),
            };
            if has != Some(value) && !is_held {
                set.insert((*label).to_owned(), value.clone());
            }
            // Their absence is no difference to upstream, so that a take-over writes nothing.
            let counts = *label == SERVICE_UID || !self.context.planner.preserves_unset();
            let want = (counts || adopts.is_some()).then(|| Sourced::new(value.clone(), source));
            if let Some(source) = self.compare(&format!("label {label}"), has.cloned(), want) {
                lines.push(format!("label {label}: {value}"));
                sources.push(source);
            }
        }
        if sources.is_empty() {
            return;
        }
        let labels = (!set.is_empty()).then(|| LabelEdit {
            set,
            remove: BTreeSet::new(),
            seen: Box::new(Seen::of(balancer)),
            adopts: adopts.is_some(),
        });
        let write = Write::Edit { name, labels };
        self.plan.changes.push(Change {
            event: adopts,
            ..Change::new(Some(balancer.id), write, lines.join(", "), sources)
        });
    }

    /// It can't be moved.
    fn place(&mut self, desired: &Desired) {
        let is = &self.balancer.location;
        let wanted = match (&desired.place.location, &desired.place.zone) {
            (Some(location), _) => Some((location, &is.name)),
            (None, Some(zone)) => Some((zone, &is.network_zone)),
            (None, None) => None,
        };
        self.compare("location", Some(is.name.clone()), None);
        let differs = wanted.filter(|(wanted, is)| wanted.value != **is);
        if let Some((wanted, is)) = differs
            && let Source::Annotation(_) = wanted.source
        {
            let why = format!(
                "{}: {:?} has no effect: the load balancer is in {is} and can't be moved",
                wanted.source, wanted.value
            );
            self.parser
                .finding(Finding::warning(Reason::AnnotationWithoutEffect, why));
        }
    }

    fn algorithm(&mut self, desired: &Desired) {
        let has = self.balancer.algorithm.kind.name();
        let wanted = desired.algorithm.as_ref();
        let want = shown(wanted, |algorithm| algorithm.name().to_owned());
        let source = self.compare("algorithm", Some(has.to_owned()), want);
        if let Some((source, wanted)) = source.zip(wanted) {
            let kind = wanted.value;
            let line = format!("algorithm: {has} → {}", kind.name());
            self.change(
                Write::ChangeAlgorithm(AlgorithmOf { kind }),
                line,
                vec![source],
            );
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
        let source = self.compare(&field, has.clone(), wanted.clone());
        if let Some((source, wanted)) = source.zip(wanted.as_ref()) {
            let dns_ptr = wanted.value.clone();
            let line = format!("reverse DNS of {ip}: {dns_ptr}");
            self.change(Write::ChangeDnsPtr { ip, dns_ptr }, line, vec![source]);
        }
    }

    pub(super) fn compare(
        &mut self,
        name: &str,
        have: Option<String>,
        want: Option<Sourced<String>>,
    ) -> Option<Source> {
        compare(self.plan, self.context.planner, name, have, want)
    }

    pub(super) fn change(&mut self, write: Write, line: String, sources: Vec<Source>) {
        let change = Change::new(Some(self.balancer.id), write, line, sources);
        self.plan.changes.push(change);
    }

    fn change_if(&mut self, change: Option<(Write, String, Vec<Source>)>) {
        if let Some((write, line, sources)) = change {
            self.change(write, line, sources);
        }
    }

    /// Detaching drops the targets that are reached by their private IP.
    fn network(&mut self, wanted: Option<&Attach>) {
        // Without HCLOUD_NETWORK nothing is ever detached.
        let Some(wanted) = wanted else { return };
        let by_setting = Source::Environment(NETWORK.to_owned());
        let attached = &self.balancer.private_net;
        let own = attached.iter().find(|net| net.network == wanted.network);
        let networks: Vec<String> = attached.iter().map(|net| net.network.to_string()).collect();
        let have = (!networks.is_empty()).then(|| networks.join(", "));
        let want = Sourced::new(wanted.network.to_string(), by_setting.clone());
        self.compare("private Network", have, Some(want));
        let ip = own.and_then(|net| net.ip);
        let want = shown(wanted.ip.as_ref(), Ipv4Addr::to_string);
        self.compare("private IPv4", ip.map(|ip| ip.to_string()), want);

        let other_ip = wanted
            .ip
            .as_ref()
            .filter(|w| own.is_some() && Some(w.value) != ip);
        if own.is_none() || other_ip.is_some() {
            let zone = Some(self.balancer.location.network_zone.as_str());
            subnets::check(self.parser, wanted, self.context, zone);
        }
        for net in attached.iter().filter(|net| !wanted.keeps(net)) {
            let network = net.network;
            let source = other_ip.map_or(&by_setting, |ip| &ip.source).clone();
            let line = format!("private Network {network}: detached");
            self.change(Write::Detach { network }, line, vec![source]);
        }
        if own.is_some() && !wanted.detaches(self.balancer) {
            return self.report_other_subnet(wanted, ip);
        }
        let ip = wanted.ip.as_ref();
        let ip_range = wanted.range.as_ref();
        let sources = [
            Some(by_setting),
            ip.map(|ip| ip.source.clone()),
            ip_range.map(|range| range.source.clone()),
        ];
        let write = Write::Attach {
            network: wanted.network,
            ip: ip.map(|ip| ip.value),
            ip_range: ip_range.map(|range| range.value),
        };
        let at = ip.map(|ip| format!(" at {}", ip.value)).unwrap_or_default();
        let line = format!("private Network {}: attached{at}", wanted.network);
        self.change(write, line, sources.into_iter().flatten().collect());
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
            self.parser
                .finding(Finding::warning(Reason::AnnotationWithoutEffect, why));
        }
    }

    fn public_interface(&mut self, wanted: Option<&Sourced<bool>>) {
        let has = self.balancer.public_net.enabled;
        let want = shown(wanted, on_or_off);
        if let Some(source) = self.compare("public interface", Some(on_or_off(&has)), want) {
            let write = match has {
                false => Write::EnablePublicInterface,
                true => Write::DisablePublicInterface,
            };
            let line = format!("public interface: {}", on_or_off(&!has));
            self.change(write, line, vec![source]);
        }
    }

    fn services(&mut self, ports: &[Port]) {
        let balancer = self.balancer;
        let is_wanted = |there: &Listener| {
            let mut ports = ports.iter();
            ports.any(|port| port.listener.listen_port == there.listen_port)
        };
        for there in balancer.services.iter().filter(|there| !is_wanted(there)) {
            let listen_port = there.listen_port;
            let source = Source::Rule("the Service has no such port");
            let absent = Sourced::new("absent".to_owned(), source.clone());
            let field = format!("port {listen_port}");
            self.compare(&field, Some("present".to_owned()), Some(absent));
            let line = format!("port {listen_port}: removed");
            self.change(Write::DeleteService { listen_port }, line, vec![source]);
        }
        let mut added = Vec::new();
        for port in ports {
            let number = port.listener.listen_port;
            let there = balancer.services.iter().find(|s| s.listen_port == number);
            let compared = compare_port(self.plan, self.context.planner, port, there);
            match (compared, there) {
                (Some((listener, ..)), None) => added.push(listener),
                (Some((listener, lines, sources)), Some(_)) if !lines.is_empty() => {
                    let line = format!("port {number}: {}", lines.join(", "));
                    self.change(Write::UpdateService(listener), line, sources);
                }
                _ => {}
            }
        }
        for listener in added {
            let line = format!(
                "port {}: added, {} to node port {}",
                listener.listen_port,
                listener.protocol(),
                PortField::DestinationPort.of(&listener).unwrap_or_default()
            );
            let source = Source::Rule("a port of the Service");
            self.change(Write::AddService(listener), line, vec![source]);
        }
    }
}
