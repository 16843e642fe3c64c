//! The functions that read the data for the checks, and the list of the Kubernetes rights that the daemon needs.

use super::outcome::{Credential, Gap, Seen, need};
use super::view::{CloudView, ClusterView, DoctorView, Need, ServicesView};
use crate::cache::{self, Apis, ReadFrom};
use crate::cli::startup::Started;
use crate::cli::{leader, wire};
use crate::controllers::Selection;
use crate::controllers::kubelet_certificates::{ObservedRequests, PlannedRequests};
use crate::controllers::node::{self, NodePlan};
use crate::controllers::route::{self, RouteController};
use crate::controllers::service::{self, ServiceController, ServicePlan};
use crate::kube::{
    self, AllowedVerb, Involved, KubeService, LeaseKey, LeaseSpec, PastEvent, Workload,
};
use crate::provider::variables::{
    HCLOUD_ENDPOINT, HCLOUD_LOAD_BALANCERS_ENABLED, HCLOUD_TOKEN, HCLOUD_TOKEN_FILE,
    ROBOT_ENDPOINT, ROBOT_PASSWORD, ROBOT_USER,
};
use crate::provider::{
    self, ErrorKind, Instance, KeptObject, Orphan, Permission, Servers, TargetCounts, Urgency,
    clock,
};
use crate::settings::{self, Command, Controller, Problem};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the functions in this file need to read data for the checks of `ccm doctor`: the settings, the API clients, and
/// what is already known about the user's rights.
pub(super) struct DoctorReader<'a> {
    pub(super) started: &'a Started,
    /// The command that reads the data, `ccm doctor` or `ccm status`.
    pub(super) command: Command,
    pub(super) begun: Instant,
    pub(super) apis: Seen<Apis>,
    /// Whether the client for the Kubernetes API could be created. The error says why it could not.
    pub(super) has_cluster: Seen<()>,
    /// How old a cached answer of Kubernetes is allowed to be. If it is older, Kubernetes is asked again.
    pub(super) look: Duration,
    /// Whether an earlier check has found that the user has all rights of the daemon. The rights are then not checked
    /// again.
    pub(super) has_rights: bool,
}

const NEEDS: &[Need] = &[
    ("list", "nodes"),
    ("get", "nodes"),
    ("patch", "nodes"),
    ("delete", "nodes"),
    ("patch", "nodes/status"),
    ("list", "services"),
    ("patch", "services/status"),
    ("create", "events"),
    ("patch", "events"),
    COUNT_EVENTS,
    ("create", LEASES),
    ("get", LEASES),
    ("update", LEASES),
];

/// The rights that the daemon needs to approve the certificate requests of kubelets.
pub(super) const CERTIFICATE_NEEDS: &[Need] = &[
    ("list", "certificatesigningrequests"),
    ("update", "certificatesigningrequests/approval"),
    ("approve", "signers"),
];

/// The right to read the Namespaces whose annotations are defaults for Services.
pub(super) const NAMESPACE_NEEDS: &[Need] = &[("list", "namespaces")];

/// The right to read an event, which the daemon needs to count how often the event was repeated. Without this right,
/// the daemon works, but does not count. The role of hcloud-cloud-controller-manager does not give this right.
pub(super) const COUNT_EVENTS: Need = ("get", "events");

/// The resource that leader election uses. The daemon's role allows the daemon to read and update only its own Lease.
/// The right to create a Lease is given for every name, because Kubernetes can't limit this right to one name.
const LEASES: &str = "leases";

fn question<'a>((verb, resource): Need, lease: &'a LeaseKey) -> AllowedVerb<'a> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (group, namespace, name) = match (resource, verb) {
        (LEASES, "create") => ("coordination.k8s.io", &*lease.namespace, ""),
        (LEASES, _) => ("coordination.k8s.io", &*lease.namespace, &*lease.name),
        ("signers", _) => ("certificates.k8s.io", "", kube::KUBELET_SERVING),
        ("certificatesigningrequests", _) => ("certificates.k8s.io", "", ""),
        _ => ("", "", ""),
    };
    AllowedVerb { verb, group, resource, subresource, namespace, name }
}

pub(super) fn is_of_token(problem: &Problem) -> bool {
    problem.is_about(&settings::HCLOUD_TOKEN)
}

pub(super) fn token(reader: &DoctorReader) -> Seen<usize> {
    let started = reader.started;
    if let Some(token) = &started.settings.token.value {
        return Ok(token.length());
    }
    let problem = started.problems.iter().rev().find(|problem| is_of_token(problem));
    Err(failed(problem.map_or_else(|| "the token is not set".into(), ToString::to_string)))
}

pub(super) fn cluster(reader: &DoctorReader) -> Seen<ClusterView> {
    reader.has_cluster.as_ref()?;
    let kube = &*need(&reader.apis, "api")?.kube;
    let unreached = |error: kube::KubeError| {
        let why = format!("{error} ({})", kube.origin());
        if error.is_unauthorized() {
            Gap::Refused(Credential::Kubernetes, why, None)
        } else {
            failed(why)
        }
    };
    let version = kube.version().map_err(unreached)?;
    let missing = if reader.has_rights { Ok(Vec::new()) } else { missing(reader, kube) };
    let missing = match missing {
        // Every user is allowed to read the version of the API server, even when the API server does not accept the
        // credentials. In that case, the version was read, and the call that asks for the user's rights is the first
        // call to fail.
        Err(error) if error.is_unauthorized() || error.is_unavailable() => {
            return Err(unreached(error));
        }
        answer => answer.map_err(|error| failed(error.to_string())),
    };
    Ok(ClusterView { at: format!("{} ({})", kube.server(), kube.origin()), version, missing })
}

fn missing(reader: &DoctorReader, kube: &kube::KubeClient) -> Result<Vec<Need>, kube::KubeError> {
    let settings = &reader.started.settings;
    let key = leader::key(settings);
    let has_lease = settings.leader_elect.value;
    let mut missing = Vec::new();
    let more = wire::certificates(settings).map_or(&[][..], |_| CERTIFICATE_NEEDS);
    let needs = NEEDS.iter().filter(|need| has_lease || need.1 != LEASES);
    let is_on = settings.load_balancers_namespace_defaults.value;
    let of_namespaces = NAMESPACE_NEEDS.iter().filter(|_| is_on);
    for need in needs.chain(more).chain(of_namespaces) {
        if !kube.may(&question(*need, &key))? {
            missing.push(*need);
        }
    }
    Ok(missing)
}

/// Returns the certificate requests of kubelets, and the plans for the newest pending request of each node. There are no
/// plans when the settings do not name the controller that approves requests. The requests are then read only for `ccm
/// doctor`, if the user has the right to list them.
pub(super) fn certificates(reader: &DoctorReader) -> Seen<PlannedRequests> {
    let apis = reader.apis.as_ref()?;
    let Some(controller) = wire::certificates(&reader.started.settings) else {
        let is_read = reader.command == Command::Doctor;
        let rows = is_read.then(|| apis.kube.signing_requests().unwrap_or_default());
        return Ok((ObservedRequests::undecided(rows.unwrap_or_default()), Vec::new()));
    };
    controller.evaluate(apis, &Selection::All).map_err(gap)
}

/// Reads the Lease of the daemon, or returns `None` when nobody holds it. An annotation of the Lease stores the UID by
/// which ccm recognizes what belongs to this cluster in the cloud. Later reads need this UID.
pub(super) fn lease(reader: &DoctorReader) -> Seen<Option<LeaseSpec>> {
    let (apis, settings) = (reader.apis.as_ref()?, &reader.started.settings);
    if !settings.leader_elect.value {
        let why = "--leader-elect=false: no Lease is used";
        return Err(Gap::NotHere(why.into()));
    }
    let key = leader::key(settings);
    let lease = apis.kube.lease(&key).map_err(|error| gap(error.into()))?;
    apis.identity.heed(&key, lease.as_ref());
    Ok(lease.map(|lease| lease.spec()).filter(|spec| !spec.holder.is_empty()))
}

pub(super) fn workloads(reader: &DoctorReader) -> Seen<Vec<Workload>> {
    let namespace = leader::key(&reader.started.settings).namespace;
    reader.apis.as_ref()?.kube.workloads(&namespace).map_err(|error| {
        let what = format!(
            "Deployments and DaemonSets in {namespace}; run this check as an administrator"
        );
        unlisted(error, &what)
    })
}

/// Reads from the Lease the time at which Robot last refused a login of the daemon. If this was a short time ago, this
/// command does not try to log in, because Robot blocks an IP address after three failed logins.
pub(super) fn wait_of_login(reader: &DoctorReader) {
    if let Ok(apis) = &reader.apis {
        leader::heed_refused_login(&reader.started.settings, apis);
    }
}

/// Lists the dedicated servers with one call. Later reads of this command take the list from the cache.
pub(super) fn dedicated(
    reader: &DoctorReader,
) -> Option<Result<Arc<Vec<Instance>>, provider::ProviderError>> {
    let apis = reader.apis.as_ref().ok()?;
    apis.provider.dedicated()?;
    let listed = apis.dedicated(None, Urgency::Needed);
    Some(listed.map(|view| view.value))
}

/// Returns the dedicated servers to which the login of Robot has access, or `None` when `ROBOT_ENABLED` is false.
pub(super) fn of_login(view: &DoctorView) -> Option<Seen<Arc<Vec<Instance>>>> {
    let dedicated = view.cloud.dedicated.clone();
    let read = || dedicated.ok_or_else(without_login)?.map_err(robot_gap);
    view.settings.robot_enabled.value.then(read)
}

pub(super) fn servers(reader: &DoctorReader, cloud: &mut CloudView) -> Seen<Arc<Vec<Instance>>> {
    let apis = reader.apis.as_ref()?;
    cloud.asked = clock::now();
    let instances = apis.provider.instances();
    let servers = instances.map_or_else(|| Ok(Vec::new()), |all| all.list(Urgency::Needed));
    // The headers of the answer that listed the servers contain the rate limit, so no further call is made to learn it.
    cloud.checkup = apis.provider.checkup(false);
    let servers = servers.map_err(cloud_gap)?;
    Ok(apis.instances_listed(servers, cloud.asked).value)
}

pub(super) fn checkup(reader: &DoctorReader, cloud: &mut CloudView) -> Seen<()> {
    cloud.checkup = reader.apis.as_ref()?.provider.checkup(true);
    match &cloud.checkup.permission {
        Permission::Refused(why) => Err(Gap::Refused(Credential::Cloud, why.clone(), None)),
        _ => Ok(()),
    }
}

/// Returns an error when the private Network that the settings name was not found or could not be read. Without the
/// Network, neither routes nor load balancers can be planned.
pub(super) fn network(cloud: &CloudView) -> Seen<()> {
    match &cloud.checkup.network {
        Some(Err(error)) => Err(cloud_gap(error.clone())),
        _ => Ok(()),
    }
}

/// Returns the load balancers of the project that belong to a Service, as their labels show. They are read only when
/// Kubernetes does not answer. It is then not known which of them belong to this cluster, so the load balancers of all
/// clusters are returned.
pub(super) fn balancers(
    reader: &DoctorReader,
    has_cluster: bool,
) -> Seen<Vec<(String, TargetCounts)>> {
    let provider = &reader.apis.as_ref()?.provider;
    let balancers = provider.load_balancers().filter(|_| !has_cluster);
    let balancers = balancers.ok_or(Gap::Needs("services"))?;
    let snapshot = provider.prepare().and_then(|()| balancers.observe(&[], Urgency::Needed));
    let all = snapshot.map_err(cloud_gap)?.all().into_iter();
    Ok(all.map(|(balancer, _)| (balancer.name.clone(), balancer.target_counts(None))).collect())
}

pub(super) fn nodes(reader: &DoctorReader, cloud: &CloudView) -> Seen<Vec<NodePlan>> {
    let apis = reader.apis.as_ref()?;
    let nodes = apis.nodes.whole(reader.look, ReadFrom::Latest);
    let servers = cloud.servers.as_ref();
    let known = Servers {
        cloud: Ok(servers.map_or(&[][..], |servers| servers.as_slice())),
        dedicated: match &cloud.dedicated {
            None => Ok(&[]),
            Some(listed) => listed.as_ref().map(|listed| listed.as_slice()),
        },
    };
    let nodes = nodes.map_err(gap)?.value;
    Ok(node::plan(&nodes, known, &*apis.provider, Timestamp::MIN))
}

pub(super) fn routes(reader: &DoctorReader) -> Seen<route::RoutePlan> {
    let (apis, settings) = (reader.apis.as_ref()?, &reader.started.settings);
    if !settings.controllers.value.contains(&Controller::Route) {
        return Err(Gap::NotHere("--controllers does not include the route controller".into()));
    }
    let routes = wire::route_settings(settings).map_err(|off| {
        let is_all_that_lacks = off.is_wanted && settings.cluster_cidrs.value.is_empty();
        let how = if is_all_that_lacks && settings.network.value.is_some() {
            "; to check routes, give this command the daemon's --cluster-cidr, or use --settings-from"
        } else {
            ""
        };
        Gap::NotHere(format!(
            "with the settings of this command, ccm manages no routes, because {}{how}",
            off.why
        ))
    })?;
    RouteController::new(routes).evaluate(apis, reader.look).map_err(gap)
}

pub(super) fn services(reader: &DoctorReader, view: &mut ServicesView) -> Seen<Vec<ServicePlan>> {
    let (apis, settings) = (reader.apis.as_ref()?, &reader.started.settings);
    if apis.provider.load_balancers().is_none() {
        let why = format!("{HCLOUD_LOAD_BALANCERS_ENABLED}=false: no Service gets a load balancer");
        return Err(Gap::NotHere(why));
    }
    let services = ServiceController::new(service::ServiceSettings {
        // The Service controller reads a list again when its cached copy is older than half of `sync_interval`. `ccm
        // doctor` allows a copy to be as old as the duration `look`, so `sync_interval` is twice `look`.
        sync_interval: reader.look * 2,
        resync_period: reader.look * 2,
        ..wire::service_settings(settings)
    });
    let plans = services.evaluate(apis, &Selection::All).map_err(gap)?;
    // The load balancers that were read for the plans of the Services are still in the cache. They are taken from there
    // without a call.
    let snapshot = apis.load_balancers_last();
    view.external = snapshot.map_or_else(Vec::new, |snapshot| snapshot.external());
    view.namespaces = apis.namespaces(reader.look);
    Ok(plans)
}

/// Returns the Services of type LoadBalancer. When an earlier read of this command has listed the Services already,
/// they come from the cache.
pub(super) fn listed(reader: &DoctorReader) -> Seen<Arc<Vec<Arc<KubeService>>>> {
    let apis = reader.apis.as_ref()?;
    let listed = apis.load_balancer_services(reader.look, ReadFrom::Latest);
    Ok(listed.map_err(gap)?.value)
}

pub(super) fn failed_tries(
    reader: &DoctorReader,
    services: &Seen<Arc<Vec<Arc<KubeService>>>>,
) -> Seen<HashMap<Involved, Arc<PastEvent>>> {
    if services.as_ref()?.is_empty() {
        return Ok(HashMap::new());
    }
    let events = service::past_events(reader.apis.as_ref()?, None);
    let tries = events.map(|events| service::failed_tries(&events));
    tries.map_err(|error| {
        unlisted(
            error,
            "events, so ccm doctor can't tell whether the last sync of a Service failed, and why",
        )
    })
}

pub(super) fn orphans(reader: &DoctorReader) -> Seen<Vec<Orphan>> {
    service::known_orphans(reader.apis.as_ref()?, reader.begun).map_err(gap)
}

pub(super) fn kept(reader: &DoctorReader) -> Seen<Vec<KeptObject>> {
    service::kept(reader.apis.as_ref()?).map(|(_, kept)| kept).map_err(gap)
}

fn without_login() -> Gap {
    Gap::NotHere(format!(
        "{ROBOT_USER} and {ROBOT_PASSWORD} are not set, so ccm does not look up dedicated servers, leaves the \
         nodes on such servers unchanged, and uses these nodes as targets only by their InternalIP"
    ))
}

fn cloud_gap(error: provider::ProviderError) -> Gap {
    let fix = match error.kind {
        ErrorKind::Unauthorized | ErrorKind::Forbidden => {
            let fix = format!(
                "copy the token again, or create a new token in the Hetzner Console (Security → API tokens, Read & \
                 Write), and set {HCLOUD_TOKEN} or {HCLOUD_TOKEN_FILE}"
            );
            return Gap::Refused(Credential::Cloud, error.message, Some(fix));
        }
        ErrorKind::RateLimited { .. } => {
            "wait: the rate limit allows one more call each second; find out who else calls the API for this project \
             (autoscaler, CSI driver, Terraform)"
                .to_owned()
        }
        _ => format!(
            "check {HCLOUD_ENDPOINT}, proxies, firewall and DNS on the machine where ccm runs, and \
             https://status.hetzner.com"
        ),
    };
    Gap::Failed(error.message, Some(fix))
}

fn robot_gap(error: provider::ProviderError) -> Gap {
    let fix = match error.kind {
        ErrorKind::Unauthorized | ErrorKind::Forbidden => format!(
            "set {ROBOT_USER} and {ROBOT_PASSWORD}, or their _FILE forms, to a user of the web service (Robot → \
             Settings → Web service and app settings); ccm tries refused credentials again only after ten minutes, \
             because three refused logins block the IP of this machine for ten minutes"
        ),
        ErrorKind::RateLimited { .. } => {
            "wait: the web service allows only 200 calls to /server an hour; find out who else makes calls (other clusters, \
             installers, scripts)"
                .to_owned()
        }
        _ => format!(
            "check {ROBOT_ENDPOINT}, proxies, firewall and DNS on the machine where ccm runs, and \
             https://status.hetzner.com; until Robot answers, ccm leaves nodes on dedicated servers unchanged"
        ),
    };
    Gap::Failed(error.message, Some(fix))
}

/// Returns the reason why objects could not be listed. The variant of [`Gap`] decides whether `ccm doctor` reports a
/// problem. Refused credentials are a problem. A missing right to list the objects is no problem, because not every
/// user has this right. Any other error is no problem either.
fn unlisted(error: kube::KubeError, what: &str) -> Gap {
    if error.is_unauthorized() {
        Gap::Refused(Credential::Kubernetes, error.to_string(), None)
    } else if error.is_forbidden() {
        Gap::NotHere(format!("this user may not list {what}"))
    } else {
        Gap::NotHere(error.to_string())
    }
}

/// Returns the reason why a call to Kubernetes or to the cloud has failed.
fn gap(error: cache::CacheError) -> Gap {
    match error {
        cache::CacheError::Kube(error) if error.is_forbidden() => Gap::Needs("rights"),
        cache::CacheError::Kube(error) if error.is_unauthorized() => {
            Gap::Refused(Credential::Kubernetes, error.to_string(), None)
        }
        cache::CacheError::Cloud(error) => cloud_gap(error),
        cache::CacheError::Dedicated(error) => robot_gap(error),
        error => failed(error.to_string()),
    }
}

pub(super) fn failed(why: String) -> Gap {
    Gap::Failed(why, None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;
    use std::collections::BTreeSet;

    const ROLES: [&str; 4] = [
        include_str!("../../../manifests/base/role.yaml"),
        include_str!("../../../manifests/base/lease.yaml"),
        include_str!("../../../manifests/components/kubelet-certificates/role.yaml"),
        include_str!("../../../manifests/components/namespace-defaults/role.yaml"),
    ];

    fn texts(value: &Value) -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// Returns every right that the manifests give, each as API group, resource, verb and object name.
    fn allowed() -> BTreeSet<[String; 4]> {
        let mut all = BTreeSet::new();
        for document in ROLES.iter().flat_map(|text| serde_yaml::Deserializer::from_str(text)) {
            let role = Value::deserialize(document).unwrap();
            for rule in role["rules"].as_array().into_iter().flatten() {
                let names = match texts(&rule["resourceNames"]) {
                    none if none.is_empty() => vec![String::new()],
                    some => some,
                };
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        for verb in texts(&rule["verbs"]) {
                            all.extend(names.iter().map(|name| {
                                [group.clone(), resource.clone(), verb.clone(), name.clone()]
                            }));
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn the_table_says_what_the_manifests_allow() {
        let key =
            LeaseKey { namespace: "kube-system".into(), name: "cloud-controller-manager".into() };
        let asked = NEEDS.iter().chain(CERTIFICATE_NEEDS).chain(NAMESPACE_NEEDS).map(|need| {
            let asked = question(*need, &key);
            [asked.group, need.1, need.0, asked.name].map(str::to_owned)
        });
        assert_eq!(asked.collect::<BTreeSet<_>>(), allowed());
    }
}
