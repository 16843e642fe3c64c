//! Reads all load balancers of the project. Load balancer types, certificates and Primary IPs are also read, but only
//! when a Service needs them.

use super::annotations;
use super::annotations::parser::{has, value_of};
use super::diff::primary_ips;
use super::diff::subnets;
use super::model::balancer::{BalancerType, LoadBalancer, PrimaryIp};
use super::ownership::context::{BalancerSnapshot, ObservedBalancers, Project};
use super::ownership::defaults::ServiceDefaults;
use super::ownership::labels::Labelled;
use crate::hetzner::api::{Api, CachedList, Resource};
use crate::hetzner::networks::{ApiNetwork, Subnet};
use crate::provider::{ProviderError, Service, Urgency, Usage, clock};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long the list of load balancer types is cached. Hetzner announces months in advance when a type is added or
/// ends.
const TYPES_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The age up to which a cached list of types is used even when a type is missing from it. When a type is missing from
/// an older list, the list is read again, because the type may be new.
const TYPES_CERTAIN: Duration = Duration::from_secs(600);

/// Lists that hardly ever change, as they were read from the API earlier. They are cached, so that they are not read
/// each time when the load balancers are read.
#[derive(Default)]
pub(in crate::hetzner) struct EarlierPolls {
    types: CachedList<BalancerType>,
    subnets: CachedList<Subnet>,
}

/// Reads from the API everything from which the plans for these Services are made. `network` is the private Network in
/// the settings.
pub(in crate::hetzner) fn observe(
    project: Project,
    earlier: &EarlierPolls,
    network: Option<&ApiNetwork>,
    services: &[&Service],
    urgency: Urgency,
) -> Result<BalancerSnapshot, ProviderError> {
    let api = Arc::clone(&project.api);
    let balancers = api.list("", urgency)?;
    let is_budget_low = api.is_put_off(Urgency::CanWait);
    let observed = ObservedBalancers { balancers, is_budget_low, ..ObservedBalancers::default() };
    let mut snapshot = BalancerSnapshot::new(project, observed);
    let wanted: Vec<String> = services
        .iter()
        .filter(|service| needs_types(&snapshot, service))
        .map(|service| wanted_type(&snapshot.project, service).unwrap_or_default())
        .collect();
    if !wanted.is_empty() {
        let is_good = |age: Duration, types: &[BalancerType]| {
            // An empty name means that the Service does not ask for a particular type. Then the list need not contain
            // any particular type.
            let has =
                |name: &String| name.is_empty() || types.iter().any(|kind| kind.name == *name);
            age < if wanted.iter().all(has) { TYPES_KEPT } else { TYPES_CERTAIN }
        };
        let types = earlier.types.get(|| None, is_good, || api.list("", urgency))?;
        snapshot.observed.types = Some(types);
    }
    if let Some(network) = network {
        let subnets = subnets::read(&earlier.subnets, network, &snapshot, services, urgency)?;
        snapshot.observed.subnets = Some(subnets);
    }
    if services.iter().any(|service| needs_certificates(service)) {
        snapshot.observed.certificates = Some(api.list("", urgency)?);
    }
    let needs_primary_ips = |service: &&Service| match urgency {
        // A user asked for this plan with a command. The plan then also says when an existing load balancer does not
        // have the Primary IP that the Service asks for. So the Primary IPs are read even when the load balancer
        // exists.
        Urgency::Asked => primary_ips::asks(service),
        _ => needs_primary_ips(&snapshot, service),
    };
    if services.iter().any(needs_primary_ips) {
        snapshot.observed.primary_ips = Some(api.list("", urgency)?);
    }
    Ok(snapshot)
}

/// Whether `snapshot`, the data that were read from the API, contains all lists that are needed for a plan for this
/// Service, e.g. the list of certificates.
pub(super) fn covers(snapshot: &BalancerSnapshot, service: &Service) -> bool {
    let observed = &snapshot.observed;
    observed.is_for_manifests
        || (observed.types.is_some() || !needs_types(snapshot, service))
            && (observed.certificates.is_some() || !needs_certificates(service))
            && (observed.primary_ips.is_some() || !needs_primary_ips(snapshot, service))
}

/// Whether the list of load balancer types must be read. It is not needed when an existing load balancer keeps its
/// type, because the API's answer about the load balancer contains the type.
fn needs_types(snapshot: &BalancerSnapshot, service: &Service) -> bool {
    let wanted = wanted_type(&snapshot.project, service);
    own(snapshot, service).is_none_or(|balancer| {
        wanted.is_some_and(|wanted| wanted != balancer.load_balancer_type.name)
    })
}

/// Returns the load balancer of a Service that has exactly one and uses it alone. `None` for every other Service,
/// because it may need a new load balancer. This includes each Service that asks for a shared load balancer or for an
/// external one (one that somebody else made).
fn own<'a>(snapshot: &'a BalancerSnapshot, service: &Service) -> Option<Labelled<'a>> {
    let found = snapshot.balancers().may_be_of(service);
    let found: Vec<Labelled> =
        found.filter(|balancer| balancer.ownership.carries(service)).collect();
    let [balancer] = found.as_slice() else {
        return None;
    };
    let ownership = balancer.ownership;
    let mut asks = [&annotations::SHARE, &annotations::EXTERNAL].into_iter();
    let is_alone = ownership.group.is_none()
        && ownership.external.is_none()
        && !asks.any(|annotation| has(service, annotation));
    is_alone.then_some(*balancer)
}

fn wanted_type(project: &Project, service: &Service) -> Option<String> {
    let default = ServiceDefaults::of(&project.defaults, service).values;
    let default = || default.kind.as_ref().map(|kind| kind.value.clone());
    value_of(service, &annotations::TYPE).map(str::to_owned).or_else(default)
}

/// Whether the list of Primary IPs must be read. It is needed only for a new load balancer, because an existing load
/// balancer can't get another Primary IP.
fn needs_primary_ips(snapshot: &BalancerSnapshot, service: &Service) -> bool {
    primary_ips::asks(service) && own(snapshot, service).is_none()
}

fn needs_certificates(service: &Service) -> bool {
    [&annotations::HTTP_CERTIFICATES, &annotations::CERTIFICATE_TYPE, &annotations::HTTP_TLS_SECRET]
        .iter()
        .any(|annotation| has(service, annotation))
}

/// Hetzner measures the connections and requests of a load balancer at intervals. The last measured value counts as the
/// current one while it is not older than this.
const RECENT: Duration = Duration::from_secs(300);

/// Reads the current numbers of connections and requests of a load balancer.
pub(in crate::hetzner) fn usage(api: &Api, id: u64) -> Result<Usage, ProviderError> {
    let now = clock::timestamp();
    let [start, end] = [now - RECENT, now].map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ"));
    let types = "type=open_connections&type=connections_per_second&type=requests_per_second";
    let path = format!("/load_balancers/{id}/metrics?{types}&start={start}&end={end}&step=60");
    let answer: Value = api.get(&path, Urgency::Asked)?;
    // A metric is a list of samples. The API gives each sample as a pair: a time, and the value as a text with a
    // decimal number.
    let last = |name: &str| {
        let series = &answer["metrics"]["time_series"][name]["values"];
        series.as_array()?.last()?[1].as_str()?.parse().ok()
    };
    Ok(Usage {
        open_connections: last("open_connections"),
        connections_per_second: last("connections_per_second"),
        requests_per_second: last("requests_per_second"),
    })
}

impl Resource for LoadBalancer {
    const LIST: &'static str = "load_balancers";
    fn id(&self) -> u64 {
        self.id
    }
}

impl Resource for BalancerType {
    const LIST: &'static str = "load_balancer_types";
    const TAKES_SORT: bool = false;

    fn id(&self) -> u64 {
        self.id
    }
}

impl Resource for PrimaryIp {
    const LIST: &'static str = "primary_ips";
    fn id(&self) -> u64 {
        self.id
    }
}
