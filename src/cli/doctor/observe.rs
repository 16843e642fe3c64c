//! Every call, each of which may fail by itself. What rests on one that failed is not tried.

use super::outcome::{Gap, Seen, need};
use crate::cache::{self, Apis, ReadFrom, Refresh};
use crate::cli::lists::POLL_INTERVAL;
use crate::cli::objects::CLOUD_INTERVAL;
use crate::cli::startup::Started;
use crate::cli::{leader, wire};
use crate::controllers::Selection;
use crate::controllers::node::{self, NodePlan};
use crate::controllers::route::{self, RouteController};
use crate::controllers::service::{self, ServiceController, ServicePlan};
use crate::hetzner::Hetzner;
use crate::http::SecretSource;
use crate::kube::{
    self, Involved, LeaseKey, LeaseSpec, PastEvent, Service, Verb, Version, Workload,
};
use crate::provider::variables::{
    HCLOUD_ENDPOINT, HCLOUD_LOAD_BALANCERS_ENABLED, HCLOUD_TOKEN, HCLOUD_TOKEN_FILE,
    ROBOT_ENDPOINT, ROBOT_PASSWORD, ROBOT_USER,
};
use crate::provider::{
    self, Balancer, Checkup, ErrorKind, Instance, Kept, Orphan, Servers, TargetCounts, Urgency,
    clock,
};
use crate::settings::{self, Command, Controller, Settings};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was read for the checks, or why it was not.
pub(in crate::cli) struct View<'a> {
    pub(in crate::cli) settings: &'a Settings,
    pub(in crate::cli) cloud: Cloud,
    /// What is wrong with the settings, the token's aside.
    pub(in crate::cli) problems: Vec<String>,
    /// How many characters the token has.
    pub(in crate::cli) token: Seen<usize>,
    /// All that the login of Robot shows; none: `ROBOT_ENABLED` is false.
    pub(in crate::cli) dedicated: Option<Seen<Arc<Vec<Instance>>>>,
    pub(in crate::cli) cluster: Seen<Cluster>,
    /// Where the servers were not read, only what Kubernetes alone shows counts of each.
    pub(in crate::cli) nodes: Seen<Vec<NodePlan>>,
    pub(in crate::cli) routes: Seen<route::Plan>,
    /// Of type LoadBalancer, by Kubernetes alone.
    pub(in crate::cli) listed: Seen<Arc<Vec<Arc<Service>>>>,
    pub(in crate::cli) services: Seen<Vec<ServicePlan>>,
    /// By UID of the Service.
    pub(in crate::cli) failed_tries: Seen<HashMap<Involved, Arc<PastEvent>>>,
    pub(in crate::cli) orphans: Seen<Vec<Orphan>>,
    /// Load balancers of other owners that Services may use. Empty where Services were not planned.
    pub(in crate::cli) external: Vec<Balancer>,
    /// Load balancers that are kept without a Service.
    pub(in crate::cli) kept: Seen<Vec<Kept>>,
    /// Of the lists that were read.
    pub(in crate::cli) refreshes: Vec<Refresh>,
}

/// An API server that answers.
pub(in crate::cli) struct Cluster {
    /// Its address, and what named it.
    pub(in crate::cli) at: String,
    pub(in crate::cli) version: Version,
    /// What the user that we log in as may not do.
    pub(in crate::cli) missing: Seen<Vec<Need>>,
    /// None: there is none.
    pub(in crate::cli) lease: Seen<Option<LeaseSpec>>,
    /// Beside us, in the namespace of the Lease.
    pub(in crate::cli) workloads: Seen<Vec<Workload>>,
}

/// A verb, and the resource that the daemon uses it on, with its subresource behind a slash: a role must allow it. A
/// test compares them with `manifests/`.
pub(in crate::cli) type Need = (&'static str, &'static str);

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

/// What the APIs of the cloud answered.
#[derive(Clone)]
pub(in crate::cli) struct Cloud {
    pub(in crate::cli) asked: Instant,
    /// All of the project.
    pub(in crate::cli) servers: Seen<Arc<Vec<Instance>>>,
    /// None: no login of Robot is set.
    dedicated: Option<Result<Arc<Vec<Instance>>, provider::Error>>,
    /// What it said of itself; what it says of a call that failed counts as well.
    pub(in crate::cli) checkup: Checkup,
    /// Only where there is no cluster: load balancers of the project, of any cluster.
    pub(in crate::cli) balancers: Seen<Vec<(String, TargetCounts)>>,
}

/// Reads what the checks need: once, or with `--watch` again and again. Then the cloud is read once a minute, and rights
/// that are there are not checked again.
pub(in crate::cli) struct Observer<'a> {
    started: &'a Started,
    begun: Instant,
    /// Of the cluster only where `no_cluster` is none.
    apis: Seen<Apis>,
    no_cluster: Option<Gap>,
    /// How long an answer of the cloud is used. Zero: for one view.
    keep: Duration,
    /// The same of Kubernetes.
    look: Duration,
    cloud: Option<Cloud>,
    /// The user may do all that the daemon does.
    has_rights: bool,
}

impl<'a> Observer<'a> {
    /// No call is made.
    pub(in crate::cli) fn new(started: &'a Started) -> Observer<'a> {
        let settings = &started.settings;
        let (keep, look) = match settings.watch.value {
            false => (Duration::ZERO, ONE_LOOK),
            true => (CLOUD_INTERVAL, POLL_INTERVAL / 2),
        };
        let kube = wire::kube_client(settings, wire::gate(Command::Doctor, settings));
        let no_cluster = kube.as_ref().err().cloned().map(failed);
        let kube = kube.unwrap_or_else(|_| kube::Client::of_nowhere());
        let apis = provider(settings).map(|provider| {
            let mut apis = wire::together(settings, kube, provider);
            apis.poll_cloud_every(keep);
            leader::heed_identity(settings, &apis);
            apis
        });
        Observer {
            started,
            begun: clock::now(),
            apis,
            no_cluster,
            keep,
            look,
            cloud: None,
            has_rights: false,
        }
    }

    /// Makes every call that is due.
    pub(in crate::cli) fn observe(&mut self) -> View<'a> {
        let settings = &self.started.settings;
        let problems = self.started.problems.iter();
        let (of_token, problems): (Vec<_>, Vec<_>) =
            problems.partition(|problem| problem.is_about(&settings::HCLOUD_TOKEN));
        let token = match (&settings.token.value, of_token.last()) {
            (Some(token), _) => Ok(token.length()),
            (None, Some(problem)) => Err(failed(problem.to_string())),
            (None, None) => Err(failed("it is not set".into())),
        };
        let cluster = match (&self.apis, &self.no_cluster) {
            (_, Some(gap)) => Err(gap.clone()),
            (Ok(apis), None) => read_cluster(apis, settings, self.has_rights),
            (Err(_), None) => Err(Gap::Needs("api")),
        };
        self.has_rights =
            matches!(&cluster, Ok(Cluster { missing: Ok(none), .. }) if none.is_empty());
        let before = self.cloud.take();
        let before = before.filter(|cloud| clock::since(cloud.asked) < self.keep);
        let cloud = before.unwrap_or_else(|| self.read_cloud(&token, cluster.is_ok()));
        self.cloud = Some(cloud.clone());
        let servers = &cloud.servers;
        let apis = match (&self.apis, &cluster) {
            (Ok(apis), Ok(_)) => Ok(apis),
            _ => Err(Gap::Needs("cluster")),
        };
        let look = self.look;
        let read = apis.clone().and_then(|apis| {
            let nodes = apis.nodes.whole(look, ReadFrom::Latest).map_err(gap)?;
            Ok((apis, nodes.value))
        });
        let listed = apis.and_then(|apis| {
            let listed = apis.load_balancer_services(look, ReadFrom::Latest);
            Ok(listed.map_err(gap)?.value)
        });
        // Neither routes nor load balancers are planned without the servers and the private Network that is named.
        let planned = || match (
            need(&read, "nodes")?,
            need(servers, "api")?,
            &cloud.checkup.network,
        ) {
            (_, _, Some(Err(_))) => Err(Gap::Needs("network")),
            ((apis, _), ..) => Ok(*apis),
        };
        let routes = planned().and_then(|apis| route_plan(settings, apis, look));
        let services = planned().and_then(|apis| service_plans(settings, apis, look));
        let failed_tries = match (&listed, &read) {
            (Ok(services), Ok((apis, _))) if !services.is_empty() => failed_tries(apis),
            _ => Ok(HashMap::new()),
        };
        // The plans rest on what was read last.
        let planned_on = planned().ok().filter(|_| services.is_ok());
        let planned_on = planned_on.and_then(Apis::load_balancers_last);
        let external = planned_on.map(|snapshot| snapshot.external());
        let orphans = need(&services, "services").and_then(|_| {
            let apis = planned()?;
            service::known_orphans(apis, self.begun).map_err(|error| failed(error.to_string()))
        });
        let kept = need(&orphans, "orphans").and_then(|_| {
            let kept = service::kept(planned()?);
            Ok(kept.map_err(|error| failed(error.to_string()))?.1)
        });
        let instances = servers
            .as_ref()
            .map_or(&[][..], |servers| servers.as_slice());
        let known = Servers {
            cloud: Ok(instances),
            dedicated: cloud.dedicated.as_ref().map_or(Ok(&[]), |listed| {
                listed.as_ref().map(|listed| listed.as_slice())
            }),
        };
        let nodes =
            read.map(|(apis, nodes)| node::plan(&nodes, known, &*apis.provider, Timestamp::MIN));
        let of_daemon = (
            settings.node_status_update_frequency.value,
            settings.load_balancer_resync_period.value,
        );
        let refreshes = self
            .apis
            .as_ref()
            .map(|apis| apis.refreshes(of_daemon.0, of_daemon.1));
        let is_on = settings.robot_enabled.value;
        let dedicated = cloud.dedicated.clone();
        View {
            dedicated: is_on.then(|| dedicated.ok_or_else(without_login)?.map_err(robot_gap)),
            problems: problems.iter().map(ToString::to_string).collect(),
            settings,
            cloud,
            token,
            cluster,
            nodes,
            routes,
            listed,
            services,
            failed_tries,
            orphans,
            external: external.unwrap_or_default(),
            kept,
            refreshes: refreshes.unwrap_or_default(),
        }
    }

    fn read_cloud(&self, token: &Seen<usize>, has_cluster: bool) -> Cloud {
        let dedicated = self.read_dedicated(has_cluster);
        let mut checkup = Checkup::default();
        let asked = clock::now();
        let servers = need(token, "token").and_then(|_| {
            let apis = self.apis.as_ref()?;
            let provider = &apis.provider;
            let servers = provider
                .instances()
                .map_or_else(|| Ok(Vec::new()), |all| all.list(Urgency::Needed));
            // After an outage or a refusal, e.g. of the token, nothing more is sent; what the answer said of the rate
            // limit is known.
            checkup = provider.checkup(servers.is_ok());
            let servers = servers.map_err(cloud_gap)?;
            Ok(apis.instances_listed(servers, asked).value)
        });
        let balancers = match (has_cluster, &servers) {
            (true, _) => Err(Gap::Needs("services")),
            (_, Ok(_)) => self.read_balancers(),
            (_, Err(_)) => Err(Gap::Needs("api")),
        };
        Cloud {
            asked,
            servers,
            dedicated,
            checkup,
            balancers,
        }
    }

    /// One call, and none while a refused login waits; what rests on the list takes it from the cache.
    fn read_dedicated(
        &self,
        has_cluster: bool,
    ) -> Option<Result<Arc<Vec<Instance>>, provider::Error>> {
        let apis = self.apis.as_ref().ok()?;
        apis.provider.dedicated()?;
        if has_cluster {
            leader::heed_refused_login(&self.started.settings, apis);
        }
        let listed = apis.dedicated(None, Urgency::Needed);
        Some(listed.map(|view| view.value))
    }

    /// Of the project, whatever cluster they are of.
    fn read_balancers(&self) -> Seen<Vec<(String, TargetCounts)>> {
        let provider = &self.apis.as_ref()?.provider;
        let Some(balancers) = provider.load_balancers() else {
            return Err(Gap::Needs("services"));
        };
        let snapshot = provider
            .prepare()
            .and_then(|()| balancers.observe(&[], Urgency::Needed));
        let all = snapshot.map_err(cloud_gap)?.all().into_iter();
        Ok(all
            .map(|(one, _)| (one.name.clone(), one.target_counts(None)))
            .collect())
    }
}

fn read_cluster(apis: &Apis, settings: &Settings, has_rights: bool) -> Seen<Cluster> {
    let (kube, key) = (&*apis.kube, leader::key(settings));
    let has_lease = settings.leader_elect.value;
    let unreached = |error: kube::Error| failed(format!("{error} ({})", kube.origin()));
    let version = kube.version().map_err(unreached)?;
    let read = || missing(kube, &key, has_lease);
    let missing = match has_rights.then(Vec::new).map_or_else(read, Ok) {
        // Anybody may ask for the version: only now it is known that they do not know us.
        Err(error) if error.is_unauthorized() || error.is_unavailable() => {
            return Err(unreached(error));
        }
        answer => answer.map_err(|error| failed(error.to_string())),
    };
    let lease = match has_lease {
        true => lease(apis, &key),
        false => Err(Gap::NotHere(
            "--leader-elect=false: no Lease is used".into(),
        )),
    };
    let namespace = &key.namespace;
    let workloads = kube.workloads(namespace).map_err(|error| {
        let what = format!("Deployments and DaemonSets in {namespace}; an administrator may");
        unlisted(error, &what)
    });
    Ok(Cluster {
        at: format!("{} ({})", kube.server(), kube.origin()),
        version,
        missing,
        lease,
        workloads,
    })
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

/// The cluster's identity is taken from the Lease, too.
fn lease(apis: &Apis, key: &LeaseKey) -> Seen<Option<LeaseSpec>> {
    let lease = apis.kube.lease(key).map_err(cache::Error::Kube);
    let lease = lease.map_err(gap)?;
    apis.identity.heed(key, lease.as_ref());
    Ok(lease.map(|lease| lease.spec()))
}

/// Without a token it plans nothing, and still knows whose a provider ID is: it is asked for nothing else then.
fn provider(settings: &Settings) -> Seen<Hetzner> {
    let mut settings = settings.clone();
    settings.token.value.get_or_insert_with(SecretSource::none);
    let gate = wire::gate(Command::Doctor, &settings);
    let metadata = wire::metadata(&settings);
    let provider = wire::provider(&settings, gate, Urgency::Asked, metadata);
    provider.map_err(failed)
}

fn without_login() -> Gap {
    Gap::NotHere(format!(
        "{ROBOT_USER} and {ROBOT_PASSWORD} are not set: no dedicated server is looked up, their nodes keep what they have, \
         and are targets by their InternalIP alone"
    ))
}

fn cloud_gap(error: provider::Error) -> Gap {
    let fixes = [
        format!(
            "copy the token anew, or make another one in the Hetzner Console (Security → API tokens, Read & Write), and \
             set {HCLOUD_TOKEN} or {HCLOUD_TOKEN_FILE}"
        ),
        "wait: calls come back one each second; see who else uses the project's API up (autoscaler, CSI driver, \
         Terraform)"
            .to_owned(),
        format!(
            "check {HCLOUD_ENDPOINT}, proxies, firewall and DNS from where ccm runs; https://status.hetzner.com"
        ),
    ];
    fixable(error, fixes)
}

fn robot_gap(error: provider::Error) -> Gap {
    let fixes = [
        format!(
            "set {ROBOT_USER} and {ROBOT_PASSWORD}, or their _FILE forms, to a user of the web service (Robot → Settings → \
             Web service and app settings); ccm shows refused credentials once in ten minutes, because three refused \
             logins block the IP of this machine for as long"
        ),
        "wait: 200 calls an hour is all that the web service takes; see who else uses it up (other clusters, installers, \
         scripts)"
            .to_owned(),
        format!(
            "check {ROBOT_ENDPOINT}, proxies, firewall and DNS from where ccm runs; https://status.hetzner.com; until then \
             nodes on dedicated servers keep what they have"
        ),
    ];
    fixable(error, fixes)
}

/// The fix of a refused login, of a rate limit, and of everything else.
fn fixable(error: provider::Error, [login, limit, other]: [String; 3]) -> Gap {
    let fix = match error.kind {
        ErrorKind::Unauthorized | ErrorKind::Forbidden => login,
        ErrorKind::RateLimited { .. } => limit,
        _ => other,
    };
    Gap::Failed(error.message, Some(fix))
}

fn service_plans(settings: &Settings, apis: &Apis, look: Duration) -> Seen<Vec<ServicePlan>> {
    if apis.provider.load_balancers().is_none() {
        let why = format!("{HCLOUD_LOAD_BALANCERS_ENABLED}=false: no Service gets a load balancer");
        return Err(Gap::NotHere(why));
    }
    let services = ServiceController::new(service::Settings {
        // Half of each is how old a list may be.
        sync_interval: look * 2,
        resync_period: look * 2,
        ..wire::service_settings(settings)
    });
    services.evaluate(apis, &Selection::All).map_err(gap)
}

fn failed_tries(apis: &Apis) -> Seen<HashMap<Involved, Arc<PastEvent>>> {
    let events = service::past_events(apis, None);
    let tries = events.map(|events| service::failed_tries(&events));
    tries.map_err(|error| unlisted(error, "events, which say what came of the last try"))
}

fn route_plan(settings: &Settings, apis: &Apis, look: Duration) -> Seen<route::Plan> {
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
    routes.evaluate(apis, look).map_err(gap)
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
        cache::Error::Cloud(error) => cloud_gap(error),
        cache::Error::Dedicated(error) => robot_gap(error),
        error => failed(error.to_string()),
    }
}

fn failed(why: String) -> Gap {
    Gap::Failed(why, None)
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
