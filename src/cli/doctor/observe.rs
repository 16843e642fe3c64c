//! Every call, each of which may fail by itself. What rests on one that failed is not tried.

use super::outcome::{Gap, Seen, need};
use crate::cache::{self, Apis, ReadFrom};
use crate::cli::startup::Started;
use crate::cli::{leader, wire};
use crate::controllers::Selection;
use crate::controllers::node::{self, NodePlan};
use crate::controllers::route::{self, RouteController};
use crate::controllers::service::{self, FailedTry, ServiceController, ServicePlan};
use crate::hetzner::Hetzner;
use crate::kube::{self, LeaseKey, LeaseSpec, Verb, Version, Workload};
use crate::provider::{Checkup, ErrorKind, Instance, Orphan, Provider, Urgency};
use crate::settings::{Command, Controller, Settings};
use jiff::Timestamp;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What was read for the checks, or why it was not.
pub(super) struct View<'a> {
    pub(super) settings: &'a Settings,
    /// What is wrong with the settings, the token's aside.
    pub(super) problems: Vec<String>,
    /// How many characters the token has.
    pub(super) token: Seen<usize>,
    /// How many servers the project has.
    pub(super) servers: Seen<usize>,
    /// What it says of a call that failed counts as well.
    pub(super) checkup: Checkup,
    pub(super) cluster: Seen<Cluster>,
    pub(super) nodes: Seen<Vec<NodePlan>>,
    pub(super) routes: Seen<route::Plan>,
    pub(super) services: Seen<Vec<ServicePlan>>,
    /// By UID of the Service.
    pub(super) failed_tries: Seen<HashMap<String, FailedTry>>,
    pub(super) orphans: Seen<Vec<Orphan>>,
}

/// An API server that answers.
pub(super) struct Cluster {
    /// Its address, and what named it.
    pub(super) at: String,
    pub(super) version: Version,
    /// What the user that we log in as may not do.
    pub(super) missing: Seen<Vec<Need>>,
    /// None: there is none.
    pub(super) lease: Seen<Option<LeaseSpec>>,
    /// Beside us, in the namespace of the Lease.
    pub(super) workloads: Seen<Vec<Workload>>,
}

/// A verb, and the resource that the daemon uses it on, with its subresource behind a slash: a role must allow it. A
/// test
/// compares them with `manifests/`.
pub(super) type Need = (&'static str, &'static str);

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

/// Without it the work is done all the same; hcloud-cloud-controller-manager's role does not have it.
pub(super) const COUNT_EVENTS: Need = ("get", "events");

/// For leader election alone. A role names the Lease, except for its creation.
const LEASES: &str = "leases";

fn question<'a>((verb, resource): Need, lease: &'a LeaseKey) -> Verb<'a> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (group, namespace, name) = match (resource, verb) {
        (LEASES, "create") => ("coordination.k8s.io", &*lease.namespace, ""),
        (LEASES, _) => ("coordination.k8s.io", &*lease.namespace, &*lease.name),
        _ => ("", "", ""),
    };
    Verb {
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
    }
}

/// Whatever is read once is read once.
const ONE_LOOK: Duration = Duration::from_secs(3600);

/// Settings that decide the addresses of nodes: other checks report when they are unset here.
const OF_NODES: [&str; 2] = ["HCLOUD_NETWORK", "HCLOUD_INSTANCES_ADDRESS_FAMILY"];

/// Makes every call. Changes of load balancers that follow only from a setting that may be set for the daemon are not
/// reported as missing.
pub(super) fn observe(started: &Started) -> View<'_> {
    let begun = Instant::now();
    let settings = &started.settings;
    let (of_token, problems): (Vec<_>, Vec<_>) = started
        .problems
        .iter()
        .partition(|problem| problem.setting.starts_with("HCLOUD_TOKEN"));
    let token = match (&settings.token.value, of_token.last()) {
        (Some(token), _) => Ok(token.length()),
        (None, Some(problem)) => Err(Gap::Failed(problem.to_string())),
        (None, None) => Err(Gap::Failed("it is not set".into())),
    };
    let (kube, cluster) = split(read_cluster(settings));
    let mut checkup = Checkup::default();
    let cloud = need(&token, "token").and_then(|_| {
        let mut unknown = started.unknown.clone();
        unknown.retain(|name| !OF_NODES.contains(&name.as_str()));
        read_cloud(settings, unknown, &mut checkup)
    });
    let (cloud, servers) = split(cloud.map(|cloud| {
        let count = cloud.servers.len();
        (cloud, count)
    }));
    let read_both = || -> Seen<_> {
        let kube = kube.ok_or(Gap::Needs("cluster"))?;
        let cloud = cloud.ok_or(Gap::Needs("api"))?;
        let apis = wire::together(settings, kube, cloud.provider);
        let instances = apis.instances_listed(cloud.servers, cloud.asked).value;
        let nodes = apis
            .nodes
            .whole(ONE_LOOK, ReadFrom::Latest)
            .map_err(gap)?
            .value;
        Ok((apis, instances, nodes))
    };
    let read = read_both();
    // Neither routes nor load balancers are planned without the private Network that is named.
    let planned = || match (need(&read, "nodes")?, &checkup.network) {
        (_, Some(Err(_))) => Err(Gap::Needs("network")),
        ((apis, ..), _) => Ok(apis),
    };
    let routes = planned().and_then(|apis| route_plan(settings, apis));
    let services = planned().and_then(|apis| service_plans(settings, apis));
    let failed_tries = match (&services, planned()) {
        (Ok(plans), Ok(apis)) if !plans.is_empty() => failed_tries(apis),
        _ => Ok(HashMap::new()),
    };
    let orphans = need(&services, "services").and_then(|_| {
        let apis = planned()?;
        service::known_orphans(apis, begun).map_err(|error| Gap::Failed(error.to_string()))
    });
    let nodes = read.map(|(apis, instances, nodes)| {
        node::plan(&nodes, &instances, &*apis.provider, Timestamp::MIN)
    });
    View {
        problems: problems.iter().map(ToString::to_string).collect(),
        settings,
        token,
        servers,
        cluster,
        nodes,
        routes,
        services,
        failed_tries,
        orphans,
        checkup,
    }
}

fn split<A, B>(seen: Seen<(A, B)>) -> (Option<A>, Seen<B>) {
    match seen {
        Ok((one, other)) => (Some(one), Ok(other)),
        Err(gap) => (None, Err(gap)),
    }
}

fn read_cluster(settings: &Settings) -> Seen<(kube::Client, Cluster)> {
    let key = leader::key(settings);
    let has_lease = settings.leader_elect.value;
    let kube =
        wire::kube_client(settings, wire::gate(Command::Doctor, settings)).map_err(Gap::Failed)?;
    let unreached = |error: kube::Error| Gap::Failed(format!("{error} ({})", kube.origin()));
    let version = kube.version().map_err(unreached)?;
    let missing = match missing(&kube, &key, has_lease) {
        // Anybody may ask for the version: only now it is known that they do not know us.
        Err(error) if error.is_unauthorized() || error.is_unavailable() => {
            return Err(unreached(error));
        }
        answer => answer.map_err(|error| Gap::Failed(error.to_string())),
    };
    let lease = match has_lease {
        true => lease(&kube, &key),
        false => Err(Gap::NotHere(
            "--leader-elect=false: no Lease is used".into(),
        )),
    };
    let namespace = &key.namespace;
    let workloads = kube.workloads(namespace).map_err(|error| {
        let what = format!("Deployments and DaemonSets in {namespace}; an administrator may");
        unlisted(error, &what)
    });
    let cluster = Cluster {
        at: format!("{} ({})", kube.server(), kube.origin()),
        version,
        missing,
        lease,
        workloads,
    };
    Ok((kube, cluster))
}

fn missing(kube: &kube::Client, key: &LeaseKey, has_lease: bool) -> Result<Vec<Need>, kube::Error> {
    let mut missing = Vec::new();
    for need in NEEDS.iter().filter(|need| has_lease || need.1 != LEASES) {
        if !kube.may(&question(*need, key))? {
            missing.push(*need);
        }
    }
    Ok(missing)
}

fn lease(kube: &kube::Client, key: &LeaseKey) -> Seen<Option<LeaseSpec>> {
    let lease = kube.lease(key).map_err(cache::Error::Kube);
    Ok(lease.map_err(gap)?.map(|lease| lease.spec()))
}

/// The provider, and all servers as they were then.
struct Cloud {
    provider: Hetzner,
    servers: Vec<Instance>,
    asked: Instant,
}

fn read_cloud(settings: &Settings, unknown: Vec<String>, checkup: &mut Checkup) -> Seen<Cloud> {
    let gate = wire::gate(Command::Doctor, settings);
    let provider = wire::provider(settings, gate, wire::metadata(settings), unknown);
    let provider = provider.map_err(Gap::Failed)?;
    let asked = Instant::now();
    let servers = provider
        .instances()
        .map_or_else(|| Ok(Vec::new()), |all| all.list(Urgency::Needed));
    // An API that does not answer is not asked again; after a refusal nothing is sent, but what it
    // said of the rate limit is known.
    if !matches!(&servers, Err(error) if error.kind == ErrorKind::Unavailable) {
        *checkup = provider.checkup();
    }
    Ok(Cloud {
        servers: servers.map_err(|error| Gap::Failed(error.message))?,
        provider,
        asked,
    })
}

fn service_plans(settings: &Settings, apis: &Apis) -> Seen<Vec<ServicePlan>> {
    if apis.provider.load_balancers().is_none() {
        let why = "HCLOUD_LOAD_BALANCERS_ENABLED=false: no Service gets a load balancer";
        return Err(Gap::NotHere(why.into()));
    }
    let services = ServiceController::new(service::Settings {
        sync_interval: ONE_LOOK,
        resync_period: ONE_LOOK,
        ..wire::service_settings(settings)
    });
    services.evaluate(apis, &Selection::All).map_err(gap)
}

fn failed_tries(apis: &Apis) -> Seen<HashMap<String, FailedTry>> {
    let events = apis.kube.service_events(None);
    let tries = events.map(|events| service::failed_tries(&events));
    tries.map_err(|error| unlisted(error, "events, which say what came of the last try"))
}

fn route_plan(settings: &Settings, apis: &Apis) -> Seen<route::Plan> {
    if !settings.controllers.value.contains(&Controller::Route) {
        return Err(Gap::NotHere("--controllers leaves routes out".into()));
    }
    let routes = wire::route_settings(settings).map_err(|off| {
        let is_all_that_lacks = off.is_wanted && settings.cluster_cidrs.value.is_empty();
        let how = match is_all_that_lacks && settings.network.value.is_some() {
            true => "; to check them, add the daemon's, or its settings by --settings-from",
            false => "",
        };
        Gap::NotHere(format!("no routes with these settings: {}{how}", off.why))
    })?;
    let routes = RouteController::new(routes);
    routes.evaluate(apis, ONE_LOOK).map_err(gap)
}

/// Something that not everybody may list, and that is no fault.
fn unlisted(error: kube::Error, what: &str) -> Gap {
    Gap::NotHere(match error.is_forbidden() {
        true => format!("this user may not list {what}"),
        false => error.to_string(),
    })
}

/// Of a call to either API.
fn gap(error: cache::Error) -> Gap {
    match error {
        cache::Error::Kube(error) if error.is_forbidden() => Gap::Needs("rights"),
        error => Gap::Failed(error.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;
    use std::collections::BTreeSet;

    const ROLES: [&str; 2] = [
        include_str!("../../../manifests/base/role.yaml"),
        include_str!("../../../manifests/base/lease.yaml"),
    ];

    fn texts(value: &Value) -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// Group, resource, verb, name of every rule.
    fn allowed() -> BTreeSet<[String; 4]> {
        let mut all = BTreeSet::new();
        for document in ROLES
            .iter()
            .flat_map(|text| serde_yaml::Deserializer::from_str(text))
        {
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
        let key = LeaseKey {
            namespace: "kube-system".into(),
            name: "cloud-controller-manager".into(),
        };
        let asked = NEEDS.iter().map(|need| {
            let asked = question(*need, &key);
            [asked.group, need.1, need.0, asked.name].map(str::to_owned)
        });
        assert_eq!(asked.collect::<BTreeSet<_>>(), allowed());
    }
}
