//! The difference between a load balancer and what its Service wants, as changes in their order.

use super::Planner;
use super::balancer::{BalancerType, LoadBalancer};
use super::change::{Change, LabelEdit, Plan, Seen, Write};
use super::desired::{Attach, Desired};
use super::listener::{Listener, PortField};
use super::names::{CLUSTER, SERVICE_UID, WHOSE};
use super::observe::Observed;
use super::parser::AnnotationParser;
use super::ports::Port;
use super::status::Names;
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
    pub(super) planner: &'a Planner<'a>,
    pub(super) balancer: &'a LoadBalancer,
    pub(super) names: Names<'a>,
    pub(super) observed: &'a Observed,
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
        self.name_and_labels(desired, labels, adopts, &self.observed.balancers);
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
            self.parser.finding(Finding::warning(
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
            let counts = *label == SERVICE_UID || !self.planner.preserves_unset();
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
        self.plan.changes.push(Change {
            event: adopts,
            ..Change::new(
                Some(balancer.id),
                Write::Edit { name, labels },
                line,
                sources,
            )
        });
    }

    /// The label has the cluster's name in the daemon's settings, which are not known here.
    fn keeps(&self, label: &str) -> bool {
        let is_there = || self.balancer.labels.contains_key(label);
        label == CLUSTER && self.planner.holds_back_cluster_name() && is_there()
    }

    /// A larger type comes early, a smaller one last; the field is shown once, with the first.
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
            self.parser
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

    pub(super) fn field(
        &mut self,
        name: &str,
        have: Option<String>,
        want: Option<&Sourced<String>>,
    ) {
        self.plan.fields.push(Field {
            field: name.to_owned(),
            have,
            want: want.map(|want| want.value.clone()),
            source: want.map_or(Source::Rule(UNSET), |want| want.source.clone()),
        });
    }

    pub(super) fn change(&mut self, write: Write, line: String, sources: Vec<Source>) {
        let id = Some(self.balancer.id);
        self.plan
            .changes
            .push(Change::new(id, write, line, sources));
    }
}

impl Diff<'_, '_> {
    /// True: it is detached, which drops the targets that are reached by their private IP.
    fn network(&mut self, wanted: Option<&Attach>) -> bool {
        // Without HCLOUD_NETWORK nothing is ever detached.
        let Some(wanted) = wanted else {
            return false;
        };
        let by_setting = Source::Environment("HCLOUD_NETWORK".to_owned());
        let attached = &self.balancer.private_net;
        let own = attached.iter().find(|net| net.network == wanted.network);
        let networks: Vec<String> = attached.iter().map(|net| net.network.to_string()).collect();
        let have = (!networks.is_empty()).then(|| networks.join(", "));
        let want = Sourced::new(wanted.network.to_string(), by_setting.clone());
        self.field("private Network", have, Some(&want));
        let ip = own.and_then(|net| net.ip);
        let shown = wanted.ip.as_ref();
        let shown = shown.map(|ip| Sourced::new(ip.value.to_string(), ip.source.clone()));
        self.field("private IPv4", ip.map(|ip| ip.to_string()), shown.as_ref());

        let other_ip = wanted
            .ip
            .as_ref()
            .filter(|w| own.is_some() && Some(w.value) != ip);
        if own.is_none() || other_ip.is_some() {
            let zone = Some(self.balancer.location.network_zone.as_str());
            subnets::check(self.parser, wanted, self.observed, self.names.offered, zone);
        }
        let stays = |network: u64| network == wanted.network && other_ip.is_none();
        let mut detached = false;
        for net in attached.iter().filter(|net| !stays(net.network)) {
            let network = net.network;
            let source = other_ip.map_or(&by_setting, |ip| &ip.source).clone();
            let line = format!("private Network {network}: detached");
            self.change(Write::Detach { network }, line, vec![source]);
            detached = true;
        }
        if own.is_some() && !detached {
            self.report_other_subnet(wanted, ip);
            return false;
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
        detached
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

    /// Off is wanted, and a target is reached by it that can't be reached otherwise.
    fn public_interface_stays(&mut self, desired: &Desired) {
        if desired.public.as_ref().is_some_and(|public| !public.value) {
            self.field("public interface", Some("on".to_owned()), None);
        }
    }

    /// On early, off late: the API refuses that while targets use public addresses.
    fn public_interface(&mut self, desired: &Desired, on: bool) {
        let has = self.balancer.public_net.enabled;
        let shown = |on: bool| if on { "on" } else { "off" }.to_owned();
        let Some(wanted) = &desired.public else {
            if on {
                self.field("public interface", Some(shown(has)), None);
            }
            return;
        };
        if wanted.value != on {
            return;
        }
        let want = Sourced::new(shown(on), wanted.source.clone());
        self.field("public interface", Some(shown(has)), Some(&want));
        if has != on {
            let write = match on {
                true => Write::EnablePublicInterface,
                false => Write::DisablePublicInterface,
            };
            let line = format!("public interface: {}", shown(on));
            self.change(write, line, vec![want.source]);
        }
    }
}

impl Diff<'_, '_> {
    fn services(&mut self, ports: &[Port]) {
        let balancer = self.balancer;
        let is_wanted = |there: &Listener| {
            let mut ports = ports.iter();
            ports.any(|port| port.listener.listen_port == there.listen_port)
        };
        for there in balancer.services.iter().filter(|there| !is_wanted(there)) {
            let listen_port = there.listen_port;
            let source = Source::Rule("the Service has no such port");
            let gone = Sourced::new("absent".to_owned(), source.clone());
            self.field(
                &format!("port {listen_port}"),
                Some("present".into()),
                Some(&gone),
            );
            let line = format!("port {listen_port}: removed");
            self.change(Write::DeleteService { listen_port }, line, vec![source]);
        }
        let mut added = Vec::new();
        for port in ports {
            let number = port.listener.listen_port;
            let there = balancer.services.iter().find(|s| s.listen_port == number);
            if port.is_put_off(there) {
                self.plan.fields.push(port.put_off_field(there));
                continue;
            }
            let merged = port.merged(there);
            let (lines, sources) = self.port_fields(port, &merged, there);
            match there {
                None => added.push(merged),
                Some(_) if lines.is_empty() => {}
                Some(_) => {
                    let line = format!("port {number}: {}", lines.join(", "));
                    self.change(Write::UpdateService(merged), line, sources);
                }
            }
        }
        for listener in added {
            let line = added_line(&listener);
            let source = Source::Rule("a port of the Service");
            self.change(Write::AddService(listener), line, vec![source]);
        }
    }

    /// What differs, for people, and what asks for it.
    fn port_fields(
        &mut self,
        port: &Port,
        merged: &Listener,
        there: Option<&Listener>,
    ) -> (Vec<String>, Vec<Source>) {
        let mut lines = Vec::new();
        let mut sources = Vec::new();
        for (field, source) in fields_of(&mut self.plan.fields, port, merged, there) {
            lines.push(field);
            sources.push(source);
        }
        (lines, sources)
    }
}

/// The fields of a port; of those that differ, a line for people, and the source.
pub(super) fn fields_of(
    fields: &mut Vec<Field>,
    port: &Port,
    merged: &Listener,
    there: Option<&Listener>,
) -> Vec<(String, Source)> {
    let mut differ = Vec::new();
    for field in PortField::ALL {
        let have = there.and_then(|there| field.of(there));
        let want = field.of(merged);
        if have.is_none() && want.is_none() {
            continue;
        }
        let source = port.sources.get(&field);
        // Not a field of its new protocol: the API drops it with the old one.
        let counts = source.is_some() && want.is_some();
        if counts && have != want {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
            let line = format!("{} {} → {}", field.name(), shown(&have), shown(&want));
            differ.push((line, source.cloned().unwrap_or(Source::Rule(UNSET))));
        }
        fields.push(Field {
            field: format!("port {} {}", port.listener.listen_port, field.name()),
            have,
            want: if counts { want } else { None },
            source: source.cloned().unwrap_or(Source::Rule(UNSET)),
        });
    }
    differ
}

fn added_line(listener: &Listener) -> String {
    format!(
        "port {}: added, {} to node port {}",
        listener.listen_port,
        listener.protocol.name(),
        listener.destination_port
    )
}
