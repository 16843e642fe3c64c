//! Plans the creation of a load balancer. The changes that an empty load balancer would need are combined in the one
//! request that creates it.

use super::primary_ips;
use super::subnets;
use super::whole::{Diff, Differences};
use crate::hetzner::load_balancers::annotations::{self, values::AUTO};
use crate::hetzner::load_balancers::change::{BalancerAction, BalancerChange};
use crate::hetzner::load_balancers::desired::{CreationPlace, Desired, Whole};
use crate::hetzner::load_balancers::model::balancer::TargetInRequest;
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::provider::variables::HCLOUD_LOAD_BALANCERS_LOCATION;
use crate::provider::{OfferedNode, ProviderId, Source, Sourced, TopologyLabel};
use crate::text;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl Diff<'_, '_> {
    /// Adds the change that creates the load balancer. A problem is reported instead when there is no location to
    /// create it in: neither annotations nor defaults name one, and the nodes have no label with their location.
    pub(crate) fn create(mut self, whole: &Whole, name: Sourced<String>) -> Differences {
        let primary = primary_ips::chosen(self.parser, self.context, whole);
        let Some(CreationPlace { location, zone }) = self.choose_place(primary.location) else {
            return Differences::default();
        };
        self.found.fields.extend(primary.fields);
        self.compare("location", None, location.clone());
        self.compare("network zone", None, zone.clone());
        let zone_of = match (&location, &zone) {
            (Some(location), _) => subnets::zone_of(&location.value, self.context.nodes),
            (None, zone) => zone.as_ref().map(|zone| zone.value.as_str()),
        };
        let first = self.found.changes.len();
        self.compare_all(Some(name.clone()), None, zone_of);
        let (mut body, targets) = self.fold(whole, first);
        let value = |value: Option<Sourced<String>>| json!(value.map(|sourced| sourced.value));
        body.insert("location".to_owned(), value(location));
        body.insert("network_zone".to_owned(), value(zone));
        if !primary.ids.is_empty() {
            body.insert("public_net".to_owned(), json!(primary.ids));
        }
        let creation =
            BalancerChange::creation(self.context.project, name, Value::Object(body), targets);
        let creation = creation.announced(self.choice.reason.clone());
        self.found.changes.push(creation);
        self.found
    }

    /// Combines the planned changes of the new load balancer into the body of the request that creates it. These are
    /// the changes from index `first` of the list on, and they are removed from the list. A change that the API does
    /// not accept in this request, for example delete protection, is planned again after the creation.
    fn fold(&mut self, whole: &Whole, first: usize) -> (Map<String, Value>, Vec<TargetInRequest>) {
        let mut body = Map::new();
        let (mut services, mut targets) = (Vec::new(), Vec::new());
        let attach = whole.attach.as_ref();
        let is_attached = attach.is_some_and(|attach| !attach.needs_own_call());
        // The request that creates the load balancer can contain a target with a private IP only when it also attaches
        // the load balancer to the Network.
        let can_be_reached = is_attached || !self.desired.use_private_ip.value;
        for change in self.found.changes.drain(first..) {
            let request = change.request;
            let (key, value) = match change.action {
                BalancerAction::Edit | BalancerAction::ChangeType => {
                    body.extend(request.body);
                    continue;
                }
                BalancerAction::AddService => {
                    services.push(Value::Object(request.body));
                    continue;
                }
                BalancerAction::AddTarget if can_be_reached => {
                    targets.extend(request.target);
                    continue;
                }
                BalancerAction::ChangeAlgorithm => ("algorithm", json!(request.body)),
                BalancerAction::Attach if is_attached => {
                    ("network", json!(request.body.get("network")))
                }
                BalancerAction::EnablePublicInterface => ("public_interface", json!(true)),
                // The API refuses to turn the public interface off unless the load balancer is in a Network.
                BalancerAction::DisablePublicInterface if is_attached => {
                    ("public_interface", json!(false))
                }
                _ => continue,
            };
            body.insert(key.to_owned(), value);
        }
        body.insert("services".to_owned(), Value::Array(services));
        (body, targets)
    }

    /// Chooses the location or network zone in which the load balancer is created. The location of its Primary IPs,
    /// `of_addresses`, takes precedence. Then follow the location that the Service or a setting asks for, and the
    /// network zone that it asks for. When there is none of these, the result is the location or zone with the most
    /// nodes.
    fn choose_place(&mut self, of_addresses: Option<Sourced<String>>) -> Option<CreationPlace> {
        let mut there: Vec<&str> = self.kind.prices.iter().map(|price| &*price.location).collect();
        there.sort_unstable();
        let is_there = |location: &str| there.is_empty() || there.contains(&location);
        let CreationPlace { location, zone } =
            wanted_place(self.context, self.desired, of_addresses, &is_there);
        match &location {
            _ if self.context.observed.is_for_manifests && self.desired.is_place_auto() => {
                Some(CreationPlace::default())
            }
            Some(location) if location.value == AUTO => {
                self.parser.problem(format!(
                    "{}: the value {AUTO:?} lets ccm choose a location, but ccm knows no target server at a location \
                     where type {} is offered. Set annotation {} to a location, e.g. \"fsn1\"",
                    location.source,
                    self.kind.name,
                    annotations::LOCATION.key()
                ));
                None
            }
            None if zone.is_none() && !self.context.observed.is_for_manifests => {
                self.parser.problem(format!(
                    "no location is set for the new load balancer. Set annotation {} (e.g. \"fsn1\") or {} (e.g. \
                     \"eu-central\"), or {HCLOUD_LOAD_BALANCERS_LOCATION}",
                    annotations::LOCATION.key(),
                    annotations::NETWORK_ZONE.key()
                ));
                None
            }
            Some(location) if !is_there(&location.value) => {
                self.parser.problem(format!(
                    "{}: there is no location {:?} for load balancers of type {}; use {}",
                    location.source,
                    location.value,
                    self.kind.name,
                    text::one_of(&there)
                ));
                None
            }
            _ => Some(CreationPlace { location, zone }),
        }
    }
}

/// Returns the location or network zone in which a new load balancer should be created. It is not checked that this
/// location or zone exists. The comment at [`Diff::choose_place`] says which setting takes precedence. With `location:
/// auto`, the result is the location of most targets, among the locations for which `is_offered` returns `true`. The
/// location is still `auto` when no target is known to be in such a location.
pub(crate) fn wanted_place(
    context: &PlanContext,
    desired: &Desired,
    of_addresses: Option<Sourced<String>>,
    is_offered: &dyn Fn(&str) -> bool,
) -> CreationPlace {
    let place = desired.whole.as_ref().map(|whole| whole.place.clone());
    let CreationPlace { location, zone } = place.unwrap_or_default();
    // The zone and region labels of the nodes show in which location or network zone most nodes are. Profile `hcloud`,
    // which behaves like hcloud-cloud-controller-manager, does not use these labels: in a cluster that was moved from
    // that program, the label of the zone may contain the name of a data center.
    let ours = !context.project.preserves_unset();
    let most = |label: TopologyLabel| {
        let is_ours = |node: &&OfferedNode| ours && matches!(node.provider_id, ProviderId::Ours(_));
        let nodes = context.nodes.iter().filter(is_ours);
        let most = most_common(nodes.filter_map(|node| node.labels.get(label.stable_key())));
        Some(Sourced::new(most?, Source::Rule("the location of most nodes")))
    };
    let targets = || {
        let nodes = context.nodes.iter().filter(|node| desired.targets.has(&node.name));
        let locations = nodes.map(|node| &*node.location);
        most_common(locations.filter(|location| !location.is_empty() && is_offered(location)))
    };
    let set = of_addresses.or(location).map(|set| match set.value.as_str() {
        AUTO => Sourced { value: targets().unwrap_or(set.value), source: set.source },
        _ => set,
    });
    let location = if zone.is_some() { set } else { set.or_else(|| most(TopologyLabel::Zone)) };
    let zone = if location.is_some() { None } else { zone.or_else(|| most(TopologyLabel::Region)) };
    CreationPlace { location, zone }
}

/// Returns the most frequent place. When several places are equally frequent, the first of them in alphabetical order is
/// returned.
fn most_common<'a>(places: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for value in places {
        *counts.entry(value).or_default() += 1;
    }
    let (most, _) = counts.into_iter().rev().max_by_key(|(_, count)| *count)?;
    Some(most.to_owned())
}
