//! The plans of Services and their load balancers, and their form for programs.

use crate::cache::ReadFrom;
use crate::cli::objects::{Context, Item, Planned, about, error_of, unknown_name, warnings};
use crate::cli::output::{Exit, Printer, usage};
use crate::cli::{startup, wire};
use crate::controllers::service::{ServiceController, ServicePlan, Want, want};
use crate::controllers::{Proposal, Report, Selection};
use crate::kube::Service;
use crate::settings::Command;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As `ccm doctor` says it.
pub(super) const TURNED_OFF: &str = "HCLOUD_LOAD_BALANCERS_ENABLED=false: no Service gets a load balancer, and none is changed or deleted";

/// What the commands on Services work with.
pub(super) struct Services {
    pub(super) context: Context,
    pub(super) controller: ServiceController,
}

impl Services {
    pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Services, Exit> {
        let started = startup::start(command, words)?;
        let namespace = started.settings.namespace.value.as_deref();
        let names = started.words.iter().map(|word| full_name(word, namespace));
        let names = names.collect::<Result<Vec<String>, String>>();
        let names = names.map_err(|why| usage(&why))?;
        let mut context = Context::new(started)?;
        context.names = names;
        // A list says it in the place of its rows.
        if command != Command::LbList && context.apis.provider.load_balancers().is_none() {
            return Err(Printer::failure(TURNED_OFF));
        }
        Ok(Services {
            controller: ServiceController::new(wire::service_settings(&context.settings)),
            context,
        })
    }

    /// What is asked for: the names, else the namespace, else everything.
    pub(super) fn selection(&self) -> Result<Selection, Exit> {
        let names = &self.context.names;
        if !names.is_empty() {
            self.check_names()?;
            return Ok(Selection::Names(names.iter().cloned().collect()));
        }
        let Some(namespace) = &self.context.settings.namespace.value else {
            return Ok(Selection::All);
        };
        let there = self.there()?.into_iter();
        let in_it = there.filter(|service| service.metadata.namespace == *namespace);
        Ok(Selection::Names(
            in_it.map(|service| service.full_name()).collect(),
        ))
    }

    pub(super) fn evaluate(&self, selection: &Selection) -> Result<Vec<ServicePlan>, Exit> {
        let evaluated = self.controller.evaluate(&self.context.apis, selection);
        evaluated.map_err(|error| self.context.failed(&error))
    }

    /// Those that no plan takes over; in the namespace that is asked for.
    pub(super) fn orphans(
        &self,
        plans: &[ServicePlan],
        begun: Instant,
    ) -> Result<Vec<ServicePlan>, Exit> {
        let orphans = self.controller.orphans(&self.context.apis, begun);
        let mut orphans = orphans.map_err(|error| self.context.failed(&error))?;
        let number = |plan: &ServicePlan| plan.cloud.found.as_ref().map(|found| found.id);
        let taken: HashSet<u64> = plans.iter().filter_map(number).collect();
        let namespace = self.context.settings.namespace.value.as_ref();
        orphans.retain(|orphan| {
            let is_taken = number(orphan).is_some_and(|id| taken.contains(&id));
            let of = &orphan.service.metadata.namespace;
            !is_taken && namespace.is_none_or(|namespace| namespace == of)
        });
        Ok(orphans)
    }

    /// Every Service that is of type LoadBalancer.
    fn there(&self) -> Result<Vec<Arc<Service>>, Exit> {
        let apis = &self.context.apis;
        let services = apis.load_balancer_services(Duration::MAX, ReadFrom::Latest);
        let services = services.map_err(|error| self.context.failed(&error))?;
        Ok(services.value.to_vec())
    }

    /// Every name must be that of a Service which we have to do with.
    fn check_names(&self) -> Result<(), Exit> {
        let there = self.there()?;
        let full_names: Vec<String> = there.iter().map(|one| one.full_name()).collect();
        let full_names: Vec<&str> = full_names.iter().map(String::as_str).collect();
        let mut exit = Ok(());
        for name in &self.context.names {
            let listed = there.iter().find(|service| service.full_name() == *name);
            let service = match (listed, name.split_once('/')) {
                (Some(service), _) => Some(Arc::clone(service)),
                // It may have been one of type LoadBalancer: its load balancer is still to be removed.
                (None, Some((namespace, name))) => {
                    let service = self.context.apis.kube.service(namespace, name);
                    service.map_err(|error| self.context.failed(&error.into()))?
                }
                (None, None) => None,
            };
            exit = Err(match &service {
                Some(service) if want(service) != Want::Nothing => continue,
                Some(service) if listed.is_none() => Printer::failure(&format!(
                    "Service {name} is of type {}; only those of type LoadBalancer get a load balancer",
                    service.spec.kind
                )),
                Some(_) => Printer::failure(&format!(
                    "Service {name} has a spec.loadBalancerClass: it is another controller's, and left alone"
                )),
                None => {
                    let what = format!("Service {name} of type LoadBalancer");
                    unknown_name(&what, name, &full_names, "ccm lb list")
                }
            });
        }
        exit
    }
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

impl Planned for Vec<ServicePlan> {
    const KIND: &'static str = "LoadBalancer";

    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize> {
        let items = self.iter().map(|plan| {
            let (fields, events) = (plan.cloud.fields.iter(), plan.events.as_ref());
            Item {
                object: (!plan.is_orphan()).then_some(Object(plan)),
                cloud: plan.cloud.found.as_ref(),
                differences: fields.filter(|one| one.differs()).collect(),
                changes: report.map_or_else(|| plan.json(), |_| plan.made.clone()),
                held_back: Some(&plan.cloud.held_back),
                findings: plan.all_findings().collect(),
                events: events.map(|all| all.iter().map(|one| &**one).collect()),
                error: error_of(report, &plan.name()),
            }
        });
        items.collect()
    }

    fn proposals(&self) -> Vec<Proposal> {
        self.iter().map(ServicePlan::proposal).collect()
    }

    fn notes(&self) -> Vec<String> {
        // Of a load balancer that was deleted, because no Service wants it, there is nothing left to warn of.
        let left = self.iter();
        let left = left.filter(|plan| !plan.is_orphan() || plan.made.is_empty());
        let warned = left.flat_map(|plan| warnings(plan.name(), plan.warnings()));
        let held_back = self.iter().flat_map(|plan| {
            let lines = plan.held_back_lines().into_iter();
            lines.map(|one| about('·', &plan.name(), &format!("held back: {one}")))
        });
        warned.chain(held_back).collect()
    }

    fn held_back(&self) -> usize {
        let plans = self.iter();
        plans
            .filter(|plan| !plan.cloud.held_back.is_empty())
            .count()
    }
}

struct Object<'a>(&'a ServicePlan);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Object(plan) = self;
        let (service, metadata) = (&plan.service, &plan.service.metadata);
        let wants = match plan.want {
            Want::Ensure => "loadBalancer",
            Want::Remove => "removal",
            Want::Nothing => "nothing",
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "Service")?;
        map.serialize_entry("namespace", &metadata.namespace)?;
        map.serialize_entry("name", &metadata.name)?;
        map.serialize_entry("uid", &metadata.uid)?;
        map.serialize_entry("wants", wants)?;
        map.serialize_entry("finalizer", &service.has_our_finalizer())?;
        map.serialize_entry("ingress", &service.status.load_balancer.ingress)?;
        map.end()
    }
}

/// `2/3`: healthy on every port, of all.
pub(super) fn targets_cell(plan: &ServicePlan) -> String {
    let Some(balancer) = &plan.cloud.found else {
        return "-".into();
    };
    let healthy = balancer.targets.iter().filter(|target| target.is_healthy());
    format!("{}/{}", healthy.count(), balancer.targets.len())
}
