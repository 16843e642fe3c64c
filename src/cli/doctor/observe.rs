//! Every call, each of which may fail by itself. What rests on one that failed is not tried.

use super::services::lacks;
use super::verbs::{NEEDS, Need};
use super::view::{Gap, Lease, Seen, Token, View};
use crate::cache::{self, Apis, ReadFrom};
use crate::cli::startup::Started;
use crate::cli::wire;
use crate::controllers::Selection;
use crate::controllers::node::{self, NodePlan};
use crate::controllers::route::{self, RouteController};
use crate::controllers::service::{self, FailedTry, ServiceController, ServicePlan};
use crate::hetzner::Hetzner;
use crate::kube::{self, LeaseKey, Node};
use crate::provider::{Checkup, ErrorKind, Instance, Provider, Urgency};
use crate::settings::{Command, Controller, Settings};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whatever is read once is read once.
const ONE_LOOK: Duration = Duration::from_secs(3600);

/// The provider, and all servers as they were then.
struct Cloud {
    provider: Hetzner,
    servers: Vec<Instance>,
    asked: Instant,
}

/// Settings that decide the addresses of nodes: other checks report when they are unset here.
const OF_NODES: [&str; 2] = ["HCLOUD_NETWORK", "HCLOUD_INSTANCES_ADDRESS_FAMILY"];

/// Makes every call. Changes of load balancers that follow only from a setting that may be set for the daemon are not
/// reported as missing.
pub(super) fn observe(started: &Started) -> View {
    let mut unknown = started.unknown.clone();
    unknown.retain(|name| !OF_NODES.contains(&name.as_str()));
    let settings = &started.settings;
    let key = LeaseKey {
        namespace: settings.lease_namespace.value.to_string(),
        name: settings.lease_name.value.to_string(),
    };
    let mut view = View {
        problems: Vec::new(),
        token: Err(Gap::Failed("it is not set".into())),
        is_in_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()),
        endpoint: settings.endpoint.value.as_str().to_owned(),
        servers: Err(Gap::Needs("token")),
        checkup: Checkup::default(),
        attached_check: !settings.network_disable_attached_check.value,
        cluster: Err(Gap::Needs("cluster")),
        version: Err(Gap::Needs("cluster")),
        missing: Err(Gap::Needs("cluster")),
        lease: Err(Gap::Needs("cluster")),
        workloads: Err(Gap::Needs("cluster")),
        namespace: key.namespace.clone(),
        prefix: settings.cloud_provider.value.name(),
        nodes: Err(Gap::Needs("cluster")),
        routes: Err(Gap::Needs("nodes")),
        services: Err(Gap::Needs("nodes")),
        failed_tries: Ok(HashMap::new()),
        orphans: Err(Gap::Needs("services")),
    };
    check_settings(&mut view, started);
    let kube = read_cluster(&mut view, settings, &key);
    let cloud = read_cloud(&mut view, settings, unknown);
    match (kube, cloud) {
        (Some(kube), Some(cloud)) => {
            let apis = wire::together(settings, kube, cloud.provider);
            let instances = apis.instances_listed(cloud.servers, cloud.asked).value;
            plan(&mut view, settings, &apis, &instances);
        }
        (Some(_), None) => view.nodes = Err(Gap::Needs("api")),
        (None, _) => {}
    }
    view
}

fn check_settings(view: &mut View, started: &Started) {
    for problem in &started.problems {
        match problem.setting.starts_with("HCLOUD_TOKEN") {
            true => view.token = Err(Gap::Failed(problem.to_string())),
            false => view.problems.push(problem.to_string()),
        }
    }
    if let Some(token) = &started.settings.token.value {
        view.token = Ok(Token {
            source: started.settings.token.source.name().to_owned(),
            characters: token.secret.expose().chars().count(),
        });
    }
}

/// The client, when the API server answers.
fn read_cluster(view: &mut View, settings: &Settings, key: &LeaseKey) -> Option<kube::Client> {
    let kube = match wire::kube_client(settings, wire::gate(Command::Doctor, settings)) {
        Ok(kube) => kube,
        Err(why) => {
            view.cluster = Err(Gap::Failed(why));
            return None;
        }
    };
    let at = format!("{} ({})", kube.server(), kube.origin());
    match kube.version() {
        Ok(version) => view.version = Ok(version),
        Err(error) => {
            view.cluster = Err(Gap::Failed(format!("{error} ({})", kube.origin())));
            return None;
        }
    }
    match missing(&kube, key, settings.leader_elect.value) {
        Ok(missing) => view.missing = Ok(missing),
        // Anybody may ask for the version: only now it is known that they do not know us.
        Err(error) if error.is_unauthorized() || error.is_unavailable() => {
            view.cluster = Err(Gap::Failed(format!("{error} ({})", kube.origin())));
            return None;
        }
        Err(error) => view.missing = Err(Gap::Failed(error.to_string())),
    }
    view.cluster = Ok(at);
    view.lease = match settings.leader_elect.value {
        true => lease(&kube, key),
        false => Err(Gap::NotHere(
            "--leader-elect=false: no Lease is used".into(),
        )),
    };
    view.workloads = kube.workloads(&key.namespace).map_err(|error| {
        let namespace = &key.namespace;
        Gap::NotHere(match error.is_forbidden() {
            true => format!(
                "this user may not list Deployments and DaemonSets in {namespace}; an administrator may"
            ),
            false => error.to_string(),
        })
    });
    Some(kube)
}

fn missing(
    kube: &kube::Client,
    key: &LeaseKey,
    leader_elect: bool,
) -> Result<Vec<Need>, kube::Error> {
    let mut missing = Vec::new();
    let needs = NEEDS.iter();
    for need in needs.filter(|need| leader_elect || !need.is_of_lease()) {
        if !kube.may(&need.question(key))? {
            missing.push(*need);
        }
    }
    Ok(missing)
}

fn lease(kube: &kube::Client, key: &LeaseKey) -> Seen<Lease> {
    let lease = match kube.lease(key) {
        Ok(lease) => lease,
        Err(error) if error.is_forbidden() => return Err(Gap::Needs("rights")),
        Err(error) => return Err(Gap::Failed(error.to_string())),
    };
    let spec = lease.map(|lease| lease.spec());
    let renewed = spec.as_ref().and_then(|spec| spec.renew_time.parse().ok());
    let age_s = |renewed: Timestamp| Timestamp::now().as_second() - renewed.as_second();
    Ok(Lease {
        key: key.to_string(),
        age_s: renewed.map(age_s),
        spec,
    })
}

/// None: the servers could not be read.
fn read_cloud(view: &mut View, settings: &Settings, unknown: Vec<String>) -> Option<Cloud> {
    if view.token.is_err() {
        return None;
    }
    let gate = wire::gate(Command::Doctor, settings);
    let provider = match wire::provider_with(settings, gate, wire::metadata(settings), unknown) {
        Ok(provider) => provider,
        Err(why) => {
            view.servers = Err(Gap::Failed(why));
            return None;
        }
    };
    let asked = Instant::now();
    let servers = provider
        .instances()
        .map_or_else(|| Ok(Vec::new()), |all| all.list(Urgency::Needed));
    // Whoever does not answer is not asked again; after a refusal nothing is sent, but what it
    // said of the rate limit is known.
    if !matches!(&servers, Err(error) if error.kind == ErrorKind::Unavailable) {
        view.checkup = provider.checkup();
    }
    match servers {
        Ok(servers) => {
            view.servers = Ok(servers.len());
            Some(Cloud {
                provider,
                servers,
                asked,
            })
        }
        Err(error) => {
            view.servers = Err(Gap::Failed(error.message));
            None
        }
    }
}

fn plan(view: &mut View, settings: &Settings, apis: &Apis, instances: &[Instance]) {
    let nodes = match apis.nodes(ONE_LOOK, ReadFrom::Latest) {
        Ok(nodes) => nodes.value,
        Err(error) => {
            view.nodes = Err(gap(error));
            return;
        }
    };
    view.nodes = Ok(node_plans(apis, &nodes, instances));
    if matches!(view.checkup.network, Some(Err(_))) {
        view.services = Err(Gap::Needs("network"));
        view.routes = Err(Gap::Needs("network"));
        return;
    }
    view.routes = route_plan(settings, apis);
    if apis.provider.load_balancers().is_none() {
        let why = "HCLOUD_LOAD_BALANCERS_ENABLED=false: no Service gets a load balancer";
        view.services = Err(Gap::NotHere(why.into()));
        view.orphans = Err(Gap::NotHere(why.into()));
        return;
    }
    view.services = service_plans(settings, apis);
    if let Ok(plans) = &view.services {
        if plans.iter().any(|plan| lacks(plan).is_some()) {
            view.failed_tries = failed_tries(apis);
        }
        let orphans = service::known_orphans(apis, &nodes);
        view.orphans = orphans.map_err(|error| Gap::Failed(error.to_string()));
    }
}

fn node_plans(apis: &Apis, nodes: &[Arc<Node>], instances: &[Instance]) -> Vec<NodePlan> {
    let view = node::View {
        nodes,
        instances,
        overdue: Timestamp::MIN,
    };
    node::plan(&view, &*apis.provider, |_| true)
}

fn service_plans(settings: &Settings, apis: &Apis) -> Seen<Vec<ServicePlan>> {
    let services = ServiceController::new(service::Settings {
        sync_interval: ONE_LOOK,
        resync_period: ONE_LOOK,
        ..wire::service_settings(settings)
    });
    match services.evaluate(apis, &Selection::All) {
        Ok((_, plans)) => Ok(plans),
        Err(error) => Err(gap(error)),
    }
}

fn failed_tries(apis: &Apis) -> Seen<HashMap<String, FailedTry>> {
    let events = apis.kube.service_events(None);
    let tries = events.map(|events| service::failed_tries(&events));
    tries.map_err(|error| {
        Gap::NotHere(match error.is_forbidden() {
            true => "this user may not list events, which say what came of the last try".to_owned(),
            false => format!("what came of the last try is not known: {error}"),
        })
    })
}

fn route_plan(settings: &Settings, apis: &Apis) -> Seen<route::Plan> {
    if !settings.controllers.value.contains(Controller::Route) {
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

/// Of a call to either API.
fn gap(error: cache::Error) -> Gap {
    match error {
        cache::Error::Kube(error) if error.is_forbidden() => Gap::Needs("rights"),
        error => Gap::Failed(error.to_string()),
    }
}
