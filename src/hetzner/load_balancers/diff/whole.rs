//! Compares a load balancer with what its Service asks for. The result is the list of changes, in the order in which
//! they are made.

use super::subnets;
use crate::hetzner::load_balancers::annotations;
use crate::hetzner::load_balancers::annotations::parser::AnnotationParser;
use crate::hetzner::load_balancers::change::{BalancerAction, BalancerChange, Purpose};
use crate::hetzner::load_balancers::desired::ports::Port;
use crate::hetzner::load_balancers::desired::{Attach, CreationPlace, Desired, Whole};
use crate::hetzner::load_balancers::model::balancer::{BalancerPublicIp, BalancerType};
use crate::hetzner::load_balancers::model::listener::{Listener, PortField};
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::hetzner::load_balancers::ownership::guard::Guard;
use crate::hetzner::load_balancers::ownership::labels::{
    Labelled, Ownership, WHOSE, counts_upstream,
};
use crate::hetzner::load_balancers::sizes::TypeChoice;
use crate::provider::variables::HCLOUD_NETWORK;
use crate::provider::{
    Description, Field, Finding, LeftOutNode, NodeWithPods, Reason, ServiceName, Source, Sourced,
    WriteVerb,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The text that users see as the source of a field's value when neither an annotation nor a setting sets the field.
/// Such a field is left unchanged.
const UNSET: Source = Source::Rule("unset");

/// When a load balancer has this number of labels, no more labels from the annotation `labels` or the settings are
/// added to it. A label stays on the load balancer when a user removes its key from the annotation. So without this
/// limit the number of labels could grow without end.
const LABELS_AT_MOST: usize = 100;

/// One comparison of a load balancer with what its Service asks for.
pub(crate) struct Diff<'a, 'b> {
    pub(crate) parser: &'a mut AnnotationParser<'b>,
    pub(crate) context: &'a PlanContext<'a>,
    pub(crate) desired: &'a Desired,
    /// The type that the load balancer should have.
    pub(crate) kind: &'a BalancerType,
    pub(crate) choice: &'a TypeChoice<'a>,
    /// The load balancer that is compared. `None` when it does not exist yet, and the plan creates it.
    pub(crate) balancer: Option<Labelled<'a>>,
    /// The differences that were found so far.
    pub(crate) found: Differences,
}

/// The differences between a load balancer and its desired state.
#[derive(Default)]
pub(crate) struct Differences {
    /// The changes that the differences require, in the order in which they are made.
    pub(crate) changes: Vec<BalancerChange>,
    /// All fields that were compared, for display. Fields without a difference are among them.
    pub(crate) fields: Vec<Field>,
    /// Whether a wanted node is not a target, or is reached by the wrong kind of address (public or private), because
    /// its server lacks the desired kind. The server may get such an address soon, so the Service is planned again.
    pub(crate) is_unfinished: bool,
    /// The nodes that should be targets but are not. Also the targets whose nodes will stop soon, or whose nodes run no
    /// pods while nodes with pods need a place. The state of each node says why it is in this list, and whether the
    /// plan removes it from the targets, will remove it later, or keeps it as a target.
    pub(crate) left_out: Vec<LeftOutNode>,
    /// The Services whose EndpointSlices must be read, because their pods decide which nodes become targets.
    pub(crate) pods_of: Vec<ServiceName>,
    /// The nodes that should be targets and that run pods of the Services in the field `pods_of`.
    pub(crate) with_pods: Vec<NodeWithPods>,
}

/// Returns the value as text, together with its source, e.g. an annotation.
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
    /// Returns the changes that give an existing load balancer its desired state. When the Service becomes the owner of
    /// the load balancer by this plan (an adoption), `adopts` is the event that says so. The event is reported after
    /// the labels were written.
    pub(crate) fn bring_in_order(mut self, adopts: Option<Finding>) -> Differences {
        let zone = self.balancer.map(|labelled| labelled.balancer.location.network_zone.as_str());
        self.compare_all(self.desired.name().cloned(), adopts, zone);
        self.found
    }

    /// Compares all fields of the load balancer with their desired values, and adds the necessary changes in the order
    /// in which they are made. `zone` is the network zone of the load balancer, or `None` when it is not known.
    pub(crate) fn compare_all(
        &mut self,
        name: Option<Sourced<String>>,
        adopts: Option<Finding>,
        zone: Option<&str>,
    ) {
        // On a load balancer that is shared or external (made by somebody else), a label names the owner of each port.
        // The plan removes unwanted ports before it changes the labels. Otherwise, after a failure in between, a port
        // of this Service could be without its label. It would then look like a port of somebody else, and would stay.
        let is_own = self.context.group.is_own();
        if !is_own {
            self.remove_ports();
        }
        self.name_and_labels(name, adopts);
        match &self.desired.whole {
            Some(whole) if self.parser.whole_problems.is_empty() => self.compare_whole(whole, zone),
            _ => self.services(),
        }
        // The settings of an external load balancer (one that somebody else made) are never changed, so `desired.whole`
        // is `None` and `compare_whole`, which also compares the targets, was not called. The targets are therefore
        // compared here.
        if self.desired.whole.is_none() && self.parser.whole_problems.is_empty() {
            self.targets(self.kind.max_targets);
        }
    }

    fn compare_whole(&mut self, whole: &Whole, zone: Option<&str>) {
        // When the load balancer gets a larger type, it can take more ports and targets, so this change comes first. A
        // change to a smaller type comes last, because it is sometimes possible only after ports and targets are
        // removed.
        let has = self.balancer.map(|labelled| &labelled.balancer.load_balancer_type);
        let grows = has.is_none_or(|has| self.kind.size() >= has.size());
        let resized = self.resized();
        let (early, late) = if grows { (resized, None) } else { (None, resized) };
        self.found.changes.extend(early);
        self.check_place(&whole.place);
        self.algorithm(whole);
        let public = self.balancer.map(|labelled| &labelled.balancer.public_net);
        self.reverse_dns("IPv4", public.map(|net| &net.ipv4), &whole.ipv4_rdns);
        self.reverse_dns("IPv6", public.map(|net| &net.ipv6), &whole.ipv6_rdns);
        self.protection(whole);
        self.network(whole, zone);
        // The public interface is turned on before targets are added, and turned off after the targets with public
        // addresses are removed. The API refuses to turn it off while such targets exist.
        let is_off = |public: &&Sourced<bool>| !public.value;
        let off = whole.public.as_ref().filter(is_off);
        if off.is_none() {
            self.public_interface(whole.public.as_ref());
        }
        if self.context.group.is_own() {
            self.remove_ports();
        }
        self.services();
        let kind_now = has.filter(|_| !grows).unwrap_or(self.kind);
        let needs_public = self.targets(kind_now.max_targets);
        if off.is_some() {
            self.public_interface(off.filter(|_| !needs_public));
        }
        self.found.changes.extend(late);
        self.mark_beyond_present_type();
    }

    /// Compares the present value `have` of one field of the load balancer with the desired value `want`, and adds both
    /// to the list of compared fields. Returns the description of the change when they differ. When `want` is `None`,
    /// the field is left unchanged.
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
        let field = Field { field: name.to_owned(), have, want, source };
        let value = || Description::value(name, field.have.as_deref(), field.want.as_deref());
        let change = field.differs().then(value);
        self.found.fields.push(field);
        change
    }

    pub(crate) fn new_change(
        &self,
        action: BalancerAction,
        body: Value,
        description: Description,
    ) -> BalancerChange {
        let id = self.balancer.map(|balancer| balancer.id);
        BalancerChange::new(self.context.project, action, id, body, description)
    }

    pub(crate) fn change(&mut self, action: BalancerAction, body: Value, description: Description) {
        let change = self.new_change(action, body, description);
        self.found.changes.push(change);
    }

    /// Compares the name and the labels of the load balancer with the desired ones, and adds one change for both when
    /// they differ. The API can change both with one request.
    fn name_and_labels(&mut self, wanted: Option<Sourced<String>>, adopts: Option<Finding>) {
        let (mut parts, mut body) = (Vec::new(), json!({}));
        let name = self.free_name(wanted);
        let value = name.as_ref().map(|name| name.value.clone());
        let has = self.balancer.map(|balancer| balancer.name.clone());
        if let Some(renamed) = self.compare("name", has, name) {
            parts.push(renamed);
            body = json!({ "name": value });
        }
        let to = self.ownership(adopts.is_some(), &mut parts);
        let guard = Guard::to(self.balancer, &to);
        let asked = self.asked_labels(guard.count(), &mut parts);
        if parts.is_empty() {
            return;
        }
        let mut change = self.new_change(BalancerAction::Edit, body, parts.into_iter().collect());
        if adopts.is_some() {
            change.purpose = Purpose::Adoption;
        }
        change.event = adopts;
        let guard = guard.with(asked);
        if guard.changes_labels() {
            change = change.guarded(guard);
        }
        self.found.changes.push(change);
    }

    /// Returns the desired name if it is free. When another load balancer has the name, adds a warning and returns
    /// `None`.
    fn free_name(&mut self, wanted: Option<Sourced<String>>) -> Option<Sourced<String>> {
        let own = self.balancer.map(|balancer| balancer.id);
        let wanted = wanted?;
        let mut named = self.context.balancers.named(&wanted.value);
        if !named.any(|other| Some(other.id) != own) {
            return Some(wanted);
        }
        let taken = format!("another load balancer of the project has the name {:?}", wanted.value);
        let why = match self.balancer {
            Some(own) => format!(
                "{}: {taken}, so the Service's load balancer keeps the name {:?}",
                wanted.source, own.balancer.name
            ),
            None => format!("{taken}, so the Service's new load balancer can't get this name"),
        };
        let finding = Finding::warning(Reason::LoadBalancerNameTaken, why);
        let fix = format!("choose another name in annotation {}", annotations::NAME.key());
        self.parser.finding(finding.with_fix(fix));
        None
    }

    /// Returns the owners of the load balancer and of its ports that its labels should name after the change. `adopts`
    /// says whether the Service takes over a load balancer that it did not own before. Adds a description to `parts`
    /// for each label that changes.
    fn ownership(&mut self, adopts: bool, parts: &mut Vec<Description>) -> Ownership {
        let (balancer, context) = (self.balancer, self.context);
        let own_ports = self.desired.ports.iter();
        let own_ports: Vec<u16> = own_ports.map(|port| port.listener.listen_port).collect();
        let is_kept = self.desired.whole.as_ref().is_some_and(|whole| whole.is_kept);
        let (mut to, mut shown) = context.group.wanted(balancer, adopts, &own_ports, is_kept);
        let before = to.clone();
        context.replacing.set_labels(&mut to, balancer.is_none());
        shown.extend(before.change_to(&to));
        for (key, value) in shown {
            let (field, has) = (format!("label {key}"), self.label(&key));
            let Some(value) = value else {
                let absent = Sourced::new("absent".to_owned(), Source::Rule(WHOSE));
                self.compare(&field, has, Some(absent));
                parts.push(Description::new(WriteVerb::REMOVE, field, ""));
                continue;
            };
            // Whether this label is written. A load balancer that hcloud-cloud-controller-manager created gets only the
            // labels `service-uid` and `keep`, because this program does not need its other labels there. With
            // `--cloud-provider=hcloud`, an existing load balancer counts as created by that controller when one
            // Service uses it alone, and does not become its owner by this plan.
            let counts = counts_upstream(&key)
                || !context.project.preserves_unset()
                || !context.group.is_own()
                || adopts
                || balancer.is_none();
            let want = counts.then(|| Sourced::new(value, Source::Rule(WHOSE)));
            parts.extend(self.compare(&field, has, want));
        }
        to
    }

    fn label(&self, key: &str) -> Option<String> {
        self.balancer?.labels.get(key).cloned()
    }

    /// Returns the desired labels, from the annotation `labels` and the settings, that must be added to the load
    /// balancer or get another value. Adds a description of each of them to `parts`, which tells the user what the
    /// request changes. `others` is the number of labels that the same request sets because they say who owns the
    /// load balancer.
    fn asked_labels(
        &mut self,
        others: usize,
        parts: &mut Vec<Description>,
    ) -> BTreeMap<String, String> {
        let desired = self.desired;
        let there = self.balancer.map_or(0, |balancer| balancer.labels.len());
        let mut asked = BTreeMap::new();
        for (label, wanted) in desired.whole.iter().flat_map(|whole| &whole.labels) {
            let has = self.label(label);
            let count = there + others + asked.len();
            if has.is_none() && count >= LABELS_AT_MOST {
                let why = format!(
                    "{}: ccm does not add label {label}, because the load balancer has {count} labels, and ccm adds \
                     labels only up to {LABELS_AT_MOST}. Remove labels that are not needed",
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
        asked
    }

    fn resized(&mut self) -> Option<BalancerChange> {
        let kind = &self.kind.name;
        let have = self.balancer.map(|balancer| balancer.load_balancer_type.name.clone());
        let source = self.choice.source.clone();
        let want = source.map(|source| Sourced::new(kind.clone(), source));
        let body = json!({ "load_balancer_type": kind });
        let resize = self.compare("type", have, want)?;
        let change = self.new_change(BalancerAction::ChangeType, body, resize);
        Some(change.announced(self.choice.reason.clone()))
    }

    /// Marks the additions of ports and targets for which the present type of the load balancer has no room. They are
    /// made only when all changes before them were made, above all the change to a larger type.
    fn mark_beyond_present_type(&mut self) {
        let Some(balancer) = self.balancer.filter(|_| self.choice.reason.is_some()) else {
            return;
        };
        let kind = &balancer.load_balancer_type;
        let mut ports = (balancer.services.len(), kind.max_services);
        let targets = balancer.single_targets().count() + balancer.other_targets();
        let mut targets = (targets, kind.max_targets);
        for change in &mut self.found.changes {
            use BalancerAction::{AddService, AddTarget, DeleteService, RemoveTarget};
            let (count, most) = match change.action {
                AddService | DeleteService => &mut ports,
                AddTarget | RemoveTarget => &mut targets,
                _ => continue,
            };
            match change.action {
                AddService | AddTarget if count >= most => change.purpose = Purpose::NeedsGrowth,
                AddService | AddTarget => *count += 1,
                _ => *count = count.saturating_sub(1),
            }
        }
    }

    /// Adds a warning when an annotation asks for another location or network zone than that of the existing load
    /// balancer. A load balancer can't be moved.
    fn check_place(&mut self, place: &CreationPlace) {
        let Some(is) = self.balancer.map(|labelled| &labelled.balancer.location) else {
            return;
        };
        let (field, is, wanted) = match (&place.location, &place.zone) {
            (None, Some(zone)) => ("network zone", &is.network_zone, Some(zone)),
            (location, _) => ("location", &is.name, location.as_ref()),
        };
        // With the value `auto`, this program chooses the location of a new load balancer. An existing load balancer
        // with this value is never at the wrong location.
        let differs = wanted
            .filter(|wanted| wanted.value != **is && wanted.value != annotations::values::AUTO);
        self.found.fields.push(Field {
            field: field.to_owned(),
            have: Some(is.to_string()),
            want: wanted.filter(|_| differs.is_none()).map(|_| is.to_string()),
            source: wanted.map_or(UNSET, |wanted| wanted.source.clone()),
        });
        if let Some(wanted) = differs
            && let Source::Annotation(_) = wanted.source
        {
            let why = format!(
                "{}: {:?} has no effect, because the load balancer is in {is}, and can't be moved. Change the value to \
                 {is:?}, or remove the annotation",
                wanted.source, wanted.value
            );
            self.parser.warning(Reason::AnnotationWithoutEffect, why);
        }
    }

    fn algorithm(&mut self, whole: &Whole) {
        let has = self.balancer.map(|balancer| balancer.algorithm.kind.name().to_owned());
        let want = shown(whole.algorithm.as_ref(), |algorithm| algorithm.name().to_owned());
        let kind = want.as_ref().map(|want| want.value.clone());
        if let Some(change) = self.compare("algorithm", has, want) {
            self.change(BalancerAction::ChangeAlgorithm, json!({ "type": kind }), change);
        }
    }

    /// Compares the deletion protection of the load balancer with the desired one. A separate request changes it,
    /// because the request that creates a load balancer can't set it.
    fn protection(&mut self, whole: &Whole) {
        let has = self.balancer.map(|balancer| on_or_off(&balancer.protection.delete));
        let wanted = whole.protection.as_ref();
        if let Some(change) = self.compare("deletion protection", has, shown(wanted, on_or_off)) {
            let body = json!({ "delete": wanted.is_some_and(|wanted| wanted.value) });
            self.change(BalancerAction::ChangeProtection, body, change);
        }
    }

    /// Compares the reverse DNS entry of one address with the desired one. `has` is the present public address of the
    /// load balancer, or `None` when the plan creates the load balancer.
    fn reverse_dns(
        &mut self,
        family: &str,
        has: Option<&BalancerPublicIp>,
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
            self.change(BalancerAction::ChangeDnsPtr, body, description);
        }
    }

    /// Compares the Networks to which the load balancer is attached with the desired one, and plans to detach or attach
    /// it. Detaching removes the targets that are reached by private IPs.
    fn network(&mut self, whole: &Whole, zone: Option<&str>) {
        // When `HCLOUD_NETWORK` is not set, a load balancer stays attached to its Networks.
        let Some(wanted) = &whole.attach else {
            return;
        };
        let by_setting = Source::Environment(HCLOUD_NETWORK.to_string());
        let attached = self.balancer.map(|labelled| labelled.balancer.private_net.as_slice());
        let attached = attached.unwrap_or_default();
        let own = self.balancer.and_then(|labelled| labelled.balancer.attached(wanted.network));
        let networks: Vec<String> = attached.iter().map(|net| net.network.to_string()).collect();
        let have = (!networks.is_empty()).then(|| networks.join(", "));
        let want = Sourced::new(wanted.network.to_string(), by_setting);
        self.compare("private Network", have, Some(want));
        let ip = own.and_then(|net| net.ip);
        let asked = wanted.ip.as_ref();
        let want = shown(asked, Ipv4Addr::to_string);
        self.compare("private IPv4", ip.map(|ip| ip.to_string()), want);

        if own.is_none() || asked.is_some_and(|asked| Some(asked.value) != ip) {
            subnets::check(self.parser, wanted, self.context, zone);
        }
        for net in attached.iter().filter(|net| !wanted.keeps(net)) {
            let network = net.network;
            let name = format!("private Network {network}");
            let description = Description::new(WriteVerb::DETACH, name, "");
            self.change(BalancerAction::Detach, json!({ "network": network }), description);
        }
        let is_detached = self.balancer.is_some_and(|balancer| wanted.detaches(&balancer));
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
        let description = Description::new(WriteVerb::ATTACH, name, at);
        let range = range.map(|range| range.value);
        let body = json!({ "network": wanted.network, "ip": wanted_ip, "ip_range": range });
        self.change(BalancerAction::Attach, body, description);
    }

    fn report_other_subnet(&mut self, wanted: &Attach, ip: Option<Ipv4Addr>) {
        if let (Some(range), Some(ip)) = (&wanted.range, ip)
            && !range.value.contains(&ip)
        {
            let why = format!(
                "{}: {} has no effect, because the load balancer is already attached to the Network, at {ip}. To move \
                 it to this range, set annotation {} to a free address of the range",
                range.source,
                range.value,
                annotations::PRIVATE_IPV4.key()
            );
            self.parser.warning(Reason::AnnotationWithoutEffect, why);
        }
    }

    fn public_interface(&mut self, wanted: Option<&Sourced<bool>>) {
        let has = self.balancer.map(|balancer| on_or_off(&balancer.public_net.enabled));
        if let Some(change) = self.compare("public interface", has, shown(wanted, on_or_off)) {
            let action = if wanted.is_some_and(|wanted| wanted.value) {
                BalancerAction::EnablePublicInterface
            } else {
                BalancerAction::DisablePublicInterface
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
                let removed = Description::new(WriteVerb::REMOVE, field, "");
                self.change(BalancerAction::DeleteService, body, removed);
            }
        }
    }

    fn services(&mut self) {
        let mut added = Vec::new();
        for port in &self.desired.ports {
            let number = port.listener.listen_port;
            let there = self.balancer.and_then(|labelled| labelled.balancer.listener(number));
            let Some((listener, parts)) = self.compare_port(port, there) else {
                continue;
            };
            if there.is_none() {
                added.push(listener);
            } else if !parts.is_empty() {
                let description = parts.into_iter().collect();
                self.change(BalancerAction::UpdateService, listener.body(false), description);
            }
        }
        for listener in added {
            let node_port = PortField::DestinationPort.of(&listener).unwrap_or_default();
            let name = format!("port {}", listener.listen_port);
            let way = format!(", {} to node port {node_port}", listener.protocol());
            let added = Description::new(WriteVerb::ADD, name, way);
            self.change(BalancerAction::AddService, listener.body(true), added);
        }
    }

    /// Returns the port in its desired state, and a description of each field that changes. The result is `None` while
    /// no certificate can be used for the port.
    fn compare_port(
        &mut self,
        port: &Port,
        there: Option<&Listener>,
    ) -> Option<(Listener, Vec<Description>)> {
        let number = port.listener.listen_port;
        if port.is_put_off(there) {
            let have = there.map(|found| found.protocol().to_owned());
            let (field, source) =
                (format!("port {number}"), Source::Rule("the port waits for its certificate"));
            self.found.fields.push(Field { field, have, want: None, source });
            return None;
        }
        let merged = port.merged(there);
        let mut parts = Vec::new();
        for field in PortField::ALL.iter().copied() {
            let source = port.sources.get(&field);
            let have = there.and_then(|there| field.of(there));
            let want = field.of(&merged);
            if have.is_none() && want.is_none() {
                continue;
            }
            let name = format!("port {number} {}", field.name());
            // `want` is `None` for a field that the port's new protocol does not have. Such a field is not compared,
            // because the API removes it together with the old protocol.
            let want = want.zip(source.cloned()).map(|(value, source)| Sourced::new(value, source));
            parts.extend(self.compare(&name, have, want));
        }
        Some((merged, parts))
    }
}
