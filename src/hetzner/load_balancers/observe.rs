//! Reads all load balancers of the project. Load balancer types, certificates and Primary IPs are also read, but only
//! when a Service needs them.

use super::annotations;
use super::annotations::parser::{has, value_of};
use super::annotations::values::AUTO;
use super::diff::primary_ips;
use super::diff::subnets;
use super::model::balancer::{BalancerType, LoadBalancer, PrimaryIp};
use super::ownership::context::{BalancerSnapshot, ObservedBalancers, Project};
use super::ownership::defaults::ServiceDefaults;
use super::ownership::labels::Labelled;
use crate::hetzner::api::{Api, CachedList, Resource};
use crate::hetzner::networks::{ApiNetwork, Subnet};
use crate::provider::{ErrorKind, ProviderError, Service, Urgency, Usage, clock};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long the list of load balancer types is cached. Hetzner announces months in advance when a type is added or
/// ends.
const TYPES_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The age up to which a cached list of types is used even when a type is missing from it. When a type is missing from
/// an older list, the list is read again, because the type may be new.
const TYPES_CERTAIN: Duration = Duration::from_secs(600);

/// The list of load balancer types and the list of subnets, as they were read from the API earlier. They hardly ever
/// change, so they are cached and not read again each time when the load balancers are read.
#[derive(Default)]
pub(in crate::hetzner) struct EarlierPolls {
    pub(in crate::hetzner) types: Arc<CachedList<BalancerType>>,
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
    let now = api.budget.api_time();
    let observed =
        ObservedBalancers { balancers, is_budget_low, now, ..ObservedBalancers::default() };
    let mut snapshot = BalancerSnapshot::new(project, observed);
    let wanted: Vec<String> = services
        .iter()
        .filter(|service| {
            needs_types(&snapshot, service) || chooses_type(&snapshot.project, service)
        })
        .flat_map(|service| wanted_types(&snapshot.project, service))
        .collect();
    if !wanted.is_empty() {
        let is_good = |age: Duration, types: &[BalancerType]| {
            // An empty name means that the Service does not ask for a particular type of load balancer. Any list of
            // types is then good enough for this Service.
            let has = |name: &String| name.is_empty() || types.iter().any(|it| it.name == *name);
            age < if wanted.iter().all(has) { TYPES_KEPT } else { TYPES_CERTAIN }
        };
        let are_named = wanted.iter().any(|name| !name.is_empty());
        let read = read_types(&snapshot.project, is_good, urgency);
        snapshot.observed.note_types(read, are_named)?;
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

/// Returns the list of load balancer types. The second value says whether the list is so old that it must be read again
/// before a type that was chosen from it is written to the API. An old list is good enough for a type that is only
/// displayed to users.
fn read_types(
    project: &Project,
    is_good: impl FnOnce(Duration, &[BalancerType]) -> bool,
    urgency: Urgency,
) -> Result<(Arc<Vec<BalancerType>>, bool), ProviderError> {
    let types = project.types.get(|| None, is_good, || project.api.list("", urgency))?;
    Ok((types, project.types.is_older(TYPES_CERTAIN)))
}

impl ObservedBalancers {
    /// Stores the list of types. When the API gave no answer, the list is missing, and the error text is stored
    /// instead. Other errors are returned. `are_named` means that Services name certain types. Such Services can't be
    /// planned without the list, so every error is then returned.
    fn note_types(
        &mut self,
        read: Result<(Arc<Vec<BalancerType>>, bool), ProviderError>,
        are_named: bool,
    ) -> Result<(), ProviderError> {
        (self.types, self.are_types_old, self.types_error) = match read {
            Ok((types, are_old)) => (Some(types), are_old, None),
            Err(error) if are_named || !matches!(error.kind, ErrorKind::Unavailable) => {
                return Err(error);
            }
            Err(error) => (None, false, Some(error.message)),
        };
        Ok(())
    }
}

/// Returns `snapshot`, the data that were read from Hetzner's API, with a list of types that is at most
/// [`TYPES_CERTAIN`] old. When the list can't be read, the result has no list, so that no type is chosen from an old
/// one.
pub(super) fn with_new_types(snapshot: &BalancerSnapshot, urgency: Urgency) -> BalancerSnapshot {
    let (project, mut observed) = (snapshot.project.clone(), snapshot.observed.clone());
    let read = read_types(&project, |age, _| age < TYPES_CERTAIN, urgency);
    if let Err(error) = observed.note_types(read, false) {
        (observed.types, observed.types_error) = (None, Some(error.message));
    }
    BalancerSnapshot::new(project, observed)
}

/// Whether `snapshot`, the data that were read from Hetzner's API, contains everything that a plan for this Service
/// needs. For example, the list of certificates is needed when the Service names a certificate.
pub(super) fn covers(snapshot: &BalancerSnapshot, service: &Service) -> bool {
    let observed = &snapshot.observed;
    observed.is_for_manifests
        || (observed.types.is_some()
            || observed.types_error.is_some()
            || !needs_types(snapshot, service))
            && (observed.certificates.is_some() || !needs_certificates(service))
            && (observed.primary_ips.is_some() || !needs_primary_ips(snapshot, service))
}

/// Whether the list of load balancer types must be read. It is not needed when an existing load balancer keeps its
/// type, because the API's answer about the load balancer contains the type.
fn needs_types(snapshot: &BalancerSnapshot, service: &Service) -> bool {
    let wanted = wanted_type(&snapshot.project, service);
    own(snapshot, service).is_none_or(|balancer| {
        wanted.is_some_and(|wanted| wanted != AUTO && wanted != balancer.load_balancer_type.name)
    })
}

/// Whether an annotation or a default sets the type of the Service's load balancer, to a name or to `auto`. For such a
/// Service, the list of types is read once a day, even when the load balancer exists. Without the list, an existing
/// load balancer can still be planned.
fn chooses_type(project: &Project, service: &Service) -> bool {
    let wanted = wanted_type(project, service);
    wanted.as_deref() == Some(AUTO)
        || wanted.is_some() && wanted_types(project, service).any(|name| !name.is_empty())
}

/// Returns the load balancer of a Service that has exactly one, and that does not share it. `None` for a Service
/// without a load balancer or with several, and for each Service that asks for a shared load balancer or for an
/// external one (one that somebody else made).
fn own<'a>(snapshot: &'a BalancerSnapshot, service: &Service) -> Option<Labelled<'a>> {
    let found = snapshot.balancers().may_be_of(service);
    let mut found: Vec<Labelled> =
        found.filter(|balancer| balancer.ownership.carries(service)).collect();
    // While a load balancer shall be replaced and the new one does not exist yet, the result is `None`. The plan then
    // needs the same data as for a Service without a load balancer, because it creates the new one.
    let is_replaced = |balancer: &Labelled| balancer.ownership.replacement.replace.is_some();
    if found.len() == 2 || found.iter().any(is_replaced) {
        found.retain(|balancer| balancer.ownership.replacement.replaces.is_some());
    }
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

/// Returns the names of the types that the list of types must contain before this Service is planned. The first name is
/// the type that the annotation `type` or its default asks for. It is empty when the Service asks for no particular
/// type. The other names are the largest types that the annotation `type-max`, the Namespace and the settings allow.
fn wanted_types(project: &Project, service: &Service) -> impl Iterator<Item = String> {
    let wanted = wanted_type(project, service).filter(|wanted| *wanted != AUTO).unwrap_or_default();
    let defaults = ServiceDefaults::of(&project.defaults, service);
    let limits = [defaults.values.permitted.largest_type.clone(), defaults.largest_type];
    let limits = limits.into_iter().flatten().map(|limit| limit.value);
    let own = value_of(service, &annotations::TYPE_MAX).map(str::to_owned);
    [wanted].into_iter().chain(own).chain(limits)
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
    // Returns the newest value of a metric, or `None` when the API reports no value. The API gives a metric as a list
    // of pairs: a time, and the value as a text with a decimal number.
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
