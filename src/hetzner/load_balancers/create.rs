//! A load balancer that is not there yet: one call with everything.

use super::balancer::{AlgorithmOf, BalancerType};
use super::change::{Change, Create, Plan, ServerTarget, Write};
use super::context::{CLUSTER_NAME, Context, NETWORK, default_source};
use super::desired::{Desired, Place};
use super::diff::{compare, compare_port, on_or_off, shown};
use super::names::{WHOSE, owned};
use super::parser::AnnotationParser;
use super::primary_ips::{self, Chosen, SELECTOR};
use super::targets::{Ways, by, max_targets_reached};
use super::{annotations, subnets};
use crate::provider::{Field, OfferedNode, ProviderId, Source, Sourced, TopologyLabel};
use crate::text;
use std::collections::BTreeMap;

/// Of the settings that decide how a new one is made, so many are named.
const SETTINGS_NAMED: usize = 3;

/// When no type is set.
pub(super) const USUAL_TYPE: &str = "lb11";

/// What a new load balancer is made of.
pub(super) struct New<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) desired: &'a Desired,
    pub(super) kind: &'a BalancerType,
    pub(super) name: Sourced<String>,
    pub(super) labels: BTreeMap<&'static str, String>,
}

impl New<'_> {
    /// The call, and every field of it. Without a place to make it: a problem.
    pub(super) fn plan(self, plan: &mut Plan, parser: &mut AnnotationParser) {
        let desired = self.desired;
        let primary = primary_ips::chosen(parser, self.context, desired);
        let Some(place) = self.place(parser, &primary) else {
            return;
        };
        self.check_place(parser, &place);
        let private = desired.use_private_ip.value;
        let ways = Ways::new(self.context, desired, None);
        let (can, can_not) = ways.sort(&desired.targets.servers, self.context.nodes);
        if !can_not.is_empty() {
            plan.is_unfinished = true;
            parser.finding(ways.unreachable(&can_not, "they get no traffic"));
        }
        let (fit, left) = can.split_at(can.len().min(self.kind.max_targets));
        if !left.is_empty() {
            let left: Vec<String> = left.iter().map(|(_, name)| name.clone()).collect();
            parser.finding(max_targets_reached(self.kind.max_targets, &left));
        }
        let attach = desired.attach.as_ref();
        let network = attach.filter(|attach| !attach.needs_own_call());
        // By private IP they can be reached only once it is attached.
        let targets = fit.iter().filter(|_| !private || network.is_some());
        let targets = targets.map(|(server, _)| ServerTarget {
            server: *server,
            use_private_ip: private,
        });
        // The API wants another way in before it turns this one off.
        let public = desired.public.as_ref().map(|public| public.value);
        let public = public.filter(|on| *on || network.is_some());
        plan.fields.extend(primary.fields);
        self.fields(plan, &place, fit);
        let ports = desired.ports.iter();
        let ports = ports.filter_map(|port| compare_port(plan, self.context.planner, port, None));
        let at = place.location.as_ref().or(place.zone.as_ref());
        let algorithm = desired.algorithm.as_ref().map(|one| one.value);
        let create = Create {
            place: at.map_or(Source::Rule("unset"), |at| at.source.clone()),
            services: ports.map(|(listener, ..)| listener).collect(),
            name: self.name.value.clone(),
            kind: self.kind.name.clone(),
            location: place.location.map(|place| place.value),
            network_zone: place.zone.map(|zone| zone.value),
            algorithm: algorithm.map(|kind| AlgorithmOf { kind }),
            labels: owned(&self.labels),
            network: network.map(|attach| attach.network),
            public_interface: public,
            public_net: primary.ids,
            targets: targets.collect(),
        };
        if !create.public_net.is_empty()
            && self.context.planner.is_unknown(SELECTOR)
            && !self.has_selector()
        {
            // The daemon may know that Services may not claim this one.
            plan.held_back.extend(self.held_back(&[SELECTOR]));
            return;
        }
        plan.unsure_new = self.held_back(&self.unknown_settings());
        let line = create.line();
        plan.new_name = Some(self.name);
        plan.changes.push(Change::new(
            None,
            Write::Create(Box::new(create)),
            line,
            vec![Source::Rule("the Service has none")],
        ));
    }

    fn has_selector(&self) -> bool {
        self.context.planner.defaults.primary_ip_selector.is_some()
    }

    /// Settings that decide about a new one, and may be set otherwise for the daemon. The daemon corrects the others; but
    /// it can't correct the location, nor who could reach it until then.
    fn unknown_settings(&self) -> Vec<&'static str> {
        let desired = self.desired;
        let place = &desired.place;
        let unset = [
            (desired.attach.is_none(), Some(NETWORK)),
            (
                desired.public.is_none(),
                annotations::DISABLE_PUBLIC_NETWORK.variable,
            ),
            (
                desired.use_private_ip.source.is_default(),
                annotations::USE_PRIVATE_IP.variable,
            ),
            (
                place.location.is_none() && place.zone.is_none(),
                annotations::LOCATION.variable,
            ),
            (desired.kind.is_none(), annotations::TYPE.variable),
            (desired.name.is_none(), Some(CLUSTER_NAME)),
        ];
        let unset = unset.into_iter().filter(|(is_unset, _)| *is_unset);
        let unset = unset.filter_map(|(_, setting)| setting);
        unset
            .filter(|setting| self.context.planner.is_unknown(setting))
            .collect()
    }

    fn held_back(&self, settings: &[&str]) -> Option<Field> {
        (!settings.is_empty()).then(|| Field {
            field: "load balancer".to_owned(),
            have: None,
            want: Some(self.name.value.clone()),
            source: Source::Default(text::first_of(settings, SETTINGS_NAMED)),
        })
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
            (Some(location), _) => subnets::zone_of(&location.value, self.context.nodes),
            (None, zone) => zone.as_ref().map(|zone| zone.value.as_str()),
        };
        if let Some(attach) = &self.desired.attach {
            subnets::check(parser, attach, self.context, zone);
        }
    }

    /// A location wins; neither: where most nodes are.
    fn place(&self, parser: &mut AnnotationParser, primary: &Chosen) -> Option<Place> {
        let Place { location, zone } = self.desired.place.clone();
        // Upstream's zone labels are no locations.
        let ours = !self.context.planner.preserves_unset();
        let most = |label: TopologyLabel| {
            let most = ours.then(|| self.most_common(label.stable_key()))?;
            most.map(|place| Sourced::new(place, Source::Rule("where most of the nodes are")))
        };
        let set = primary.location.clone().or(location);
        let location = match zone {
            Some(_) => set,
            None => set.or_else(|| most(TopologyLabel::Zone)),
        };
        let zone = match location {
            Some(_) => None,
            None => zone.or_else(|| most(TopologyLabel::Region)),
        };
        if location.is_none() && zone.is_none() {
            parser.problem(format!(
                "the load balancer has no location: set annotation {} (e.g. \"fsn1\") or {} (e.g. \
                 \"eu-central\"), or HCLOUD_LOAD_BALANCERS_LOCATION",
                annotations::LOCATION.key(),
                annotations::NETWORK_ZONE.key()
            ));
            return None;
        }
        Some(Place { location, zone })
    }

    /// The value of a label that most of our nodes have; of several, the first by name.
    fn most_common(&self, label: &str) -> Option<String> {
        let is_ours = |node: &&OfferedNode| matches!(node.provider_id, ProviderId::Ours(_));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let nodes = self.context.nodes.iter().filter(is_ours);
        for value in nodes.filter_map(|node| node.labels.get(label)) {
            *counts.entry(value).or_default() += 1;
        }
        let most = counts.values().max().copied()?;
        let mut counts = counts.into_iter();
        let first = counts.find(|(_, count)| *count == most);
        first.map(|(value, _)| value.to_owned())
    }

    /// All but those of the ports.
    fn fields(&self, plan: &mut Plan, place: &Place, targets: &[(u64, String)]) {
        let desired = self.desired;
        let attach = desired.attach.as_ref();
        let kind = || Sourced::new(self.kind.name.clone(), default_source(&annotations::TYPE));
        let setting = Source::Environment(NETWORK.to_owned());
        let network = attach.map(|attach| Sourced::new(attach.network.to_string(), setting));
        let ip = attach.and_then(|attach| attach.ip.as_ref());
        let range = attach.and_then(|attach| attach.range.as_ref());
        let algorithm = shown(desired.algorithm.as_ref(), |one| one.name().to_owned());
        let mut add = |name: &str, want: Option<Sourced<String>>| {
            if want.is_some() {
                compare(plan, self.context.planner, name, None, want);
            }
        };
        add("name", Some(self.name.clone()));
        add("type", Some(desired.kind.clone().unwrap_or_else(kind)));
        add("location", place.location.clone());
        add("network zone", place.zone.clone());
        add("reverse DNS of IPv4", desired.ipv4_rdns.clone());
        add("reverse DNS of IPv6", desired.ipv6_rdns.clone());
        add("algorithm", algorithm);
        add(
            "public interface",
            shown(desired.public.as_ref(), on_or_off),
        );
        add("private Network", network);
        add("private IPv4", shown(ip, ToString::to_string));
        add("private subnet", shown(range, ToString::to_string));
        for (_, node) in targets {
            let want = by(desired.use_private_ip.value).to_owned();
            let want = Sourced::new(want, desired.targets.source.clone());
            add(&format!("target {node}"), Some(want));
        }
        for (label, value) in &self.labels {
            let want = Sourced::new(value.clone(), Source::Rule(WHOSE));
            add(&format!("label {label}"), Some(want));
        }
    }
}
