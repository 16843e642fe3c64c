//! A load balancer that is not there yet: one call with everything.

use super::Planner;
use super::balancer::BalancerType;
use super::change::{Change, Create, Plan, ServerTarget, Write};
use super::desired::{Desired, Place};
use super::diff::fields_of;
use super::observe::Observed;
use super::parser::AnnotationParser;
use super::targets::{By, Sorted, max_targets_reached};
use super::{annotations, default_source, names, primary_ips, subnets};
use crate::provider::{Field, OfferedNode, ProviderId, Reach, Source, Sourced, TopologyLabel};
use std::collections::BTreeMap;

/// When no type is set.
pub(super) const USUAL_TYPE: &str = "lb11";

/// What a new load balancer is made of.
pub(super) struct New<'a> {
    pub(super) planner: &'a Planner<'a>,
    pub(super) desired: &'a Desired,
    pub(super) kind: &'a BalancerType,
    pub(super) name: Sourced<String>,
    pub(super) labels: BTreeMap<&'static str, String>,
    pub(super) nodes: &'a [OfferedNode],
    pub(super) observed: &'a Observed,
}

impl New<'_> {
    /// The call, and every field of it. Without a place to make it: a problem.
    pub(super) fn plan(self, plan: &mut Plan, parser: &mut AnnotationParser) {
        let desired = self.desired;
        let primary = primary_ips::chosen(parser, self.planner, desired, self.observed);
        let place = match &primary.location {
            Some(location) => Place {
                location: Some(location.clone()),
                zone: None,
            },
            None => match self.place(parser) {
                Some(place) => place,
                None => return,
            },
        };
        self.check_place(parser, &place);
        let by = By::new(desired.use_private_ip.value, self.planner.network);
        let Sorted { can, can_not, .. } = by.sort(&desired.targets.servers, self.nodes, |_| None);
        // Servers of the last list that were deleted since make the API refuse the call: then they are read again.
        let is_known = |node: &OfferedNode| {
            matches!(
                node.reach,
                Reach::By { .. } | Reach::Missing { is_certain: true }
            )
        };
        let has_targets = !desired.targets.servers.is_empty();
        plan.rests_on_servers |= has_targets && !self.nodes.iter().all(is_known);
        if !can_not.is_empty() {
            plan.is_unfinished = true;
            parser.finding(by.unreachable(&can_not, "they get no traffic"));
        }
        let wanted = &can;
        let fit = wanted.len().min(self.kind.max_targets);
        if fit < wanted.len() {
            let left: Vec<String> = wanted[fit..].iter().map(|(_, name)| name.clone()).collect();
            parser.finding(max_targets_reached(self.kind.max_targets, &left));
        }
        let attach = desired.attach.as_ref();
        let network = attach.filter(|attach| !attach.needs_own_call());
        let private = desired.use_private_ip.value;
        let mut servers = wanted[..fit].iter();
        let targets: Vec<ServerTarget> = servers
            .by_ref()
            .map(|(server, _)| ServerTarget {
                server: *server,
                use_private_ip: private,
            })
            // Those can be reached only once it is attached.
            .filter(|target| !target.use_private_ip || network.is_some())
            .collect();
        // The API wants another way in before it turns this one off.
        let public = desired.public.as_ref().map(|public| public.value);
        let public = public.filter(|on| *on || network.is_some());
        let services = desired.ports.iter().filter(|port| !port.is_put_off(None));
        let at = place.location.as_ref().or(place.zone.as_ref());
        let create = Create {
            place: at.map_or(Source::Rule("unset"), |at| at.source.clone()),
            name: self.name.value.clone(),
            kind: self.kind.name.clone(),
            location: place.location.as_ref().map(|place| place.value.clone()),
            network_zone: place.zone.as_ref().map(|zone| zone.value.clone()),
            algorithm: desired.algorithm.as_ref().map(|one| one.value),
            labels: self.labels(),
            network: network.map(|attach| attach.network),
            public_interface: public,
            ipv4: primary.ipv4,
            ipv6: primary.ipv6,
            services: services.map(|port| port.merged(None)).collect(),
            targets,
        };
        plan.fields.extend(primary.fields);
        self.fields(plan, &place, &wanted[..fit]);
        let line = create.line();
        plan.new_name = Some(self.name.clone());
        plan.changes.push(Change::new(
            None,
            Write::Create(Box::new(create)),
            line,
            vec![Source::Rule("the Service has none")],
        ));
    }

    /// What the API would refuse, as far as it was read.
    fn check_place(&self, parser: &mut AnnotationParser, place: &Place) {
        let locations = &self.kind.locations;
        let location = place.location.as_ref();
        let is_there = |location: &&Sourced<String>| locations.contains(&location.value);
        if let Some(location) = location.filter(|one| !locations.is_empty() && !is_there(one)) {
            let mut there = locations.clone();
            there.sort_unstable();
            return parser.problem(format!(
                "{}: there is no location {:?} for load balancers of type {}; use {}",
                location.source,
                location.value,
                self.kind.name,
                crate::text::one_of(&there)
            ));
        }
        let zone = match (location, &place.zone) {
            (Some(location), _) => subnets::zone_of(&location.value, self.nodes),
            (None, zone) => zone.as_ref().map(|zone| zone.value.as_str()),
        };
        if let Some(attach) = &self.desired.attach {
            subnets::check(parser, attach, self.observed, self.nodes, zone);
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.labels.iter();
        labels
            .map(|(label, value)| ((*label).to_owned(), value.clone()))
            .collect()
    }

    /// A location wins; neither: where most nodes are.
    fn place(&self, parser: &mut AnnotationParser) -> Option<Place> {
        let place = &self.desired.place;
        if let Some(location) = &place.location {
            return Some(Place {
                location: Some(location.clone()),
                zone: None,
            });
        }
        if let Some(zone) = &place.zone {
            return Some(Place {
                location: None,
                zone: Some(zone.clone()),
            });
        }
        let source = || Source::Rule("where most of the nodes are");
        // Upstream's zone labels are no locations.
        let ours = !self.planner.preserves_unset();
        let most = |label: TopologyLabel| {
            let most = ours.then(|| self.most_common(label.stable_key()))?;
            most.map(|place| Sourced::new(place, source()))
        };
        let place = Place {
            location: most(TopologyLabel::Zone),
            zone: None,
        };
        let place = match place.location {
            Some(_) => place,
            None => Place {
                location: None,
                zone: most(TopologyLabel::Region),
            },
        };
        if place.location.is_none() && place.zone.is_none() {
            parser.problem(format!(
                "the load balancer has no location: set annotation {} (e.g. \"fsn1\") or {} (e.g. \
                 \"eu-central\"), or HCLOUD_LOAD_BALANCERS_LOCATION",
                annotations::LOCATION.key(),
                annotations::NETWORK_ZONE.key()
            ));
            return None;
        }
        Some(place)
    }

    /// The value of a label that most of our nodes have; of several, the first by name.
    fn most_common(&self, label: &str) -> Option<String> {
        let is_ours = |node: &&OfferedNode| matches!(node.provider_id, ProviderId::Ours(_));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let nodes = self.nodes.iter().filter(is_ours);
        for value in nodes.filter_map(|node| node.labels.get(label)) {
            *counts.entry(value).or_default() += 1;
        }
        let most = counts.values().max().copied()?;
        let mut counts = counts.into_iter();
        let first = counts.find(|(_, count)| *count == most);
        first.map(|(value, _)| value.to_owned())
    }

    fn fields(&self, plan: &mut Plan, place: &Place, targets: &[(u64, String)]) {
        let desired = self.desired;
        let mut add = |field: &str, want: Option<(String, &Source)>| {
            plan.fields.extend(want.map(|(want, source)| Field {
                field: field.to_owned(),
                have: None,
                want: Some(want),
                source: source.clone(),
            }));
        };
        let usual = Sourced::new(self.kind.name.clone(), default_source(&annotations::TYPE));
        for (field, value) in [
            ("name", Some(&self.name)),
            ("type", Some(desired.kind.as_ref().unwrap_or(&usual))),
            ("location", place.location.as_ref()),
            ("network zone", place.zone.as_ref()),
            ("reverse DNS of IPv4", desired.ipv4_rdns.as_ref()),
            ("reverse DNS of IPv6", desired.ipv6_rdns.as_ref()),
        ] {
            add(field, value.map(|set| (set.value.clone(), &set.source)));
        }
        let algorithm = desired.algorithm.as_ref();
        add(
            "algorithm",
            algorithm.map(|a| (a.value.name().to_owned(), &a.source)),
        );
        let public = desired.public.as_ref();
        let shown = |on: bool| if on { "on" } else { "off" }.to_owned();
        add(
            "public interface",
            public.map(|p| (shown(p.value), &p.source)),
        );
        let setting = Source::Environment("HCLOUD_NETWORK".to_owned());
        let attach = desired.attach.as_ref();
        add(
            "private Network",
            attach.map(|a| (a.network.to_string(), &setting)),
        );
        let ip = attach.and_then(|attach| attach.ip.as_ref());
        add(
            "private IPv4",
            ip.map(|ip| (ip.value.to_string(), &ip.source)),
        );
        let range = attach.and_then(|attach| attach.range.as_ref());
        add(
            "private subnet",
            range.map(|r| (r.value.to_string(), &r.source)),
        );
        let by = if desired.use_private_ip.value {
            "by private IP"
        } else {
            "by public IP"
        };
        for (_, node) in targets {
            let name = format!("target {node}");
            add(&name, Some((by.to_owned(), &desired.targets.source)));
        }
        for (label, value) in &self.labels {
            let source = Source::Rule(names::WHOSE);
            add(&format!("label {label}"), Some((value.clone(), &source)));
        }
        for port in &desired.ports {
            match port.is_put_off(None) {
                true => plan.fields.push(port.put_off_field(None)),
                false => drop(fields_of(&mut plan.fields, port, &port.merged(None), None)),
            }
        }
    }
}
