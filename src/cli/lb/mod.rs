//! `ccm lb list | inspect | sync`: what the service controller sees and would do, for people.

mod inspect;
mod json;
mod list;
mod orphans;
mod sync;

pub(super) use inspect::inspect;
pub(super) use list::list;
pub(super) use sync::sync;

use super::output::Printer;
use super::startup;
use super::wire;
use super::{Exit, or_dash, usage};
use crate::cache::{Apis, ReadFrom};
use crate::controllers::Selection;
use crate::controllers::service::{ServiceController, ServicePlan, Want, want};
use crate::kube::Service;
use crate::settings::{Command, Settings, all_nearest, one_of};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

/// Of names that are equally near to one that is no Service's, so many are named.
const NEAREST_AT_MOST: usize = 3;

/// As `ccm doctor` says it.
const TURNED_OFF: &str = "HCLOUD_LOAD_BALANCERS_ENABLED=false: no Service gets a load balancer, and none is changed or deleted";

/// Everything a command needs.
struct Context {
    settings: Settings,
    apis: Apis,
    services: ServiceController,
    /// `namespace/name`.
    names: Vec<String>,
    /// Unset here, and may be set for the daemon.
    unknown: Vec<String>,
}

fn ask(command: Command, words: Vec<OsString>) -> Result<Context, Exit> {
    let mut started = startup::start(command, words)?;
    let namespace = started.settings.namespace.value.as_deref();
    let names = started.words.iter().map(|word| full_name(word, namespace));
    let names = names
        .collect::<Result<Vec<String>, String>>()
        .map_err(|why| usage(&why))?;
    let unknown = started.unknown.clone();
    let apis = started.apis(unknown.clone())?;
    // A list says it in the place of its rows.
    if command != Command::LbList && apis.provider.load_balancers().is_none() {
        return Err(Printer::failure(TURNED_OFF));
    }
    Ok(Context {
        apis,
        services: ServiceController::new(wire::service_settings(&started.settings)),
        settings: started.settings,
        names,
        unknown,
    })
}

/// A Service as it was named, with its namespace.
fn full_name(word: &str, namespace: Option<&str>) -> Result<String, String> {
    let is_whole = |part: &str| !part.is_empty() && !part.contains('/');
    match (word.split_once('/'), namespace) {
        (Some((of, name)), None) if is_whole(of) && is_whole(name) => Ok(word.to_owned()),
        (Some((of, name)), Some(namespace)) if of == namespace && is_whole(name) => {
            Ok(word.to_owned())
        }
        (Some((of, _)), Some(namespace)) if is_whole(of) => Err(format!(
            "{word:?} names another namespace than -n {namespace}; leave one of them out"
        )),
        (None, Some(namespace)) if is_whole(word) => Ok(format!("{namespace}/{word}")),
        (None, None) if !word.is_empty() => Err(format!(
            "{word:?} has no namespace; write NAMESPACE/{word}, or -n NAMESPACE {word}"
        )),
        _ => Err(format!(
            "{word:?} is no Service; write NAMESPACE/NAME, or -n NAMESPACE NAME"
        )),
    }
}

impl Context {
    /// What is asked for: the names, else the namespace, else everything.
    fn selection(&self) -> Result<Selection, Exit> {
        if !self.names.is_empty() {
            self.check_names()?;
            return Ok(Selection::Names(self.names.iter().cloned().collect()));
        }
        let Some(namespace) = &self.settings.namespace.value else {
            return Ok(Selection::All);
        };
        let there = self.there()?;
        let in_it = there
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| name.split('/').next() == Some(namespace));
        Ok(Selection::Names(in_it.collect::<BTreeSet<String>>()))
    }

    fn evaluate(&self, selection: &Selection) -> Result<Vec<ServicePlan>, Exit> {
        let (_, plans) = self
            .services
            .evaluate(&self.apis, selection)
            .map_err(|error| startup::failed(&self.apis, &error))?;
        Ok(plans)
    }

    /// Nothing is planned with the eyes of a profile that only a default names.
    fn check_profile(&self) -> Result<(), Exit> {
        match startup::check_profile(&self.apis, &self.unknown) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(Printer::failure(&why)),
            Err(error) => Err(startup::failed(&self.apis, &error)),
        }
    }

    /// Every Service that is of type LoadBalancer, and what it asks of us.
    fn there(&self) -> Result<Vec<(String, Want)>, Exit> {
        let services = self
            .apis
            .load_balancer_services(Duration::MAX, ReadFrom::Latest)
            .map_err(|error| startup::failed(&self.apis, &error))?;
        let services = services.value.iter();
        Ok(services
            .map(|service| (service.full_name(), want(service)))
            .collect())
    }

    /// Every name must be that of a Service which we have to do with.
    fn check_names(&self) -> Result<(), Exit> {
        let there = self.there()?;
        let mut exit = Ok(());
        for name in &self.names {
            let why = match there.iter().find(|(other, _)| other == name) {
                Some((_, Want::Ensure | Want::Remove)) => continue,
                Some((_, Want::Nothing)) => format!(
                    "Service {name} has a spec.loadBalancerClass: it is another controller's, and left alone"
                ),
                None => match self.of_another_type(name)? {
                    // Its load balancer is still to be removed.
                    Some(service) if want(&service) == Want::Remove => continue,
                    Some(service) => format!(
                        "Service {name} is of type {}; only those of type LoadBalancer get a load balancer",
                        service.spec.kind
                    ),
                    None => unknown_service(name, &there),
                },
            };
            exit = Err(Printer::failure(&why));
        }
        exit
    }

    /// A Service that the list of those of type LoadBalancer does not hold.
    fn of_another_type(&self, name: &str) -> Result<Option<Arc<Service>>, Exit> {
        match name.split_once('/') {
            Some((namespace, name)) => self
                .apis
                .service(namespace, name)
                .map_err(|error| startup::failed(&self.apis, &error)),
            None => Ok(None),
        }
    }
}

fn unknown_service(name: &str, there: &[(String, Want)]) -> String {
    let names = there.iter().map(|(name, _)| name.as_str());
    let mut near = all_nearest(name, names);
    near.truncate(NEAREST_AT_MOST);
    match near.as_slice() {
        [] if there.is_empty() => {
            format!("there is no Service {name} of type LoadBalancer: the cluster has none")
        }
        [] => format!(
            "there is no Service {name} of type LoadBalancer; ccm lb list shows all {}",
            there.len()
        ),
        near => format!(
            "there is no Service {name} of type LoadBalancer; did you mean {}?",
            one_of(near)
        ),
    }
}

/// `2/3`: healthy on every port, of all.
fn targets_cell(plan: &ServicePlan) -> String {
    let Some(balancer) = &plan.cloud.found else {
        return "-".into();
    };
    let healthy = balancer.targets.iter().filter(|target| target.is_healthy());
    format!("{}/{}", healthy.count(), balancer.targets.len())
}
