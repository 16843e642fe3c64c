//! The plans of Services and their load balancers for the commands `ccm lb …`, and how these plans are printed as JSON
//! and YAML. A plan compares a Service with its load balancer, and says what a sync would change.

use crate::cache::{self, ReadFrom};
use crate::cli::names::{self, KnownObject, Word};
use crate::cli::objects::{CommandContext, Item, PlannedObjects, Sides, error_of, warnings};
use crate::cli::output::{CommandFailure, Exit, Printer, usage};
use crate::cli::{startup, wire};
use crate::controllers::service::{ServiceController, ServicePlan, Want, want};
use crate::controllers::{Proposal, Report, Selection};
use crate::kube::{KubeService, SERVICE};
use crate::provider::PortOwner;
use crate::provider::variables::HCLOUD_LOAD_BALANCERS_ENABLED;
use crate::settings::Command;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns the message that load balancers are turned off in the settings.
pub(super) fn turned_off() -> String {
    format!(
        "{HCLOUD_LOAD_BALANCERS_ENABLED}=false: ccm creates, changes and deletes no load balancer"
    )
}

/// The data that all commands `ccm lb …` work with. `context` has the settings and API clients, `controller` is the
/// Service controller, and `command` says which of these commands is run.
pub(super) struct Services {
    pub(super) context: CommandContext,
    pub(super) controller: ServiceController,
    pub(super) command: Command,
}

impl Services {
    pub(super) fn start(command: Command, words: Vec<OsString>) -> Result<Services, Exit> {
        let started = startup::start(command, words)?;
        let given = started.settings.namespace.value.clone();
        for text in &started.words {
            check_form(text, given.as_deref()).map_err(|why| usage(&why))?;
        }
        let context = CommandContext::new(started)?;
        // When load balancers are turned off in the settings, `ccm lb list` prints a message instead of rows. All other
        // commands `ccm lb …` fail.
        if command != Command::LbList && context.apis.provider.load_balancers().is_none() {
            return Err(Printer::failure(turned_off()));
        }
        Ok(Services {
            controller: ServiceController::new(wire::service_settings(&context.settings)),
            context,
            command,
        })
    }

    /// Returns the plans of the Services that the user asked for. When only Kubernetes or only the cloud answers, the
    /// plans contain no changes, only the data of the API that answers.
    pub(super) fn read(&self, sides: Sides) -> Result<Vec<ServicePlan>, CommandFailure> {
        let (context, apis) = (&self.context, &self.context.apis);
        let mut plans = match sides {
            Sides::Both => return self.evaluate_shown(),
            Sides::Kubernetes => self.controller.by_kubernetes(apis, &*context.manifests()?)?,
            Sides::Cloud => self.controller.by_cloud(apis)?,
        };
        let given = context.settings.namespace.value.as_deref();
        let namespace = given.unwrap_or(apis.kube.namespace());
        plans.retain(|plan| given.is_none_or(|given| plan.service.metadata.namespace == given));
        if !context.names.is_empty() {
            let known = plans.iter().map(called).collect();
            let (kind, words) = (&names::SERVICES, &context.names);
            let none = |word: &Word| not_there(word) + sides.only();
            let in_cloud = || Ok(Vec::new());
            let named = names::resolve(kind, words, Some(namespace), known, in_cloud, none)?;
            plans.retain(|plan| named.contains(&called(plan).name));
        }
        Ok(plans)
    }

    /// Returns which Services the command works on: the named Services, or all Services of the given namespace, or else
    /// all Services.
    pub(super) fn selection(&self) -> Result<Selection, CommandFailure> {
        if !self.context.names.is_empty() {
            return Ok(Selection::Names(self.named()?));
        }
        let Some(namespace) = &self.context.settings.namespace.value else {
            return Ok(Selection::All);
        };
        let there = self.there()?;
        let in_it = there.iter().filter(|service| service.metadata.namespace == *namespace);
        Ok(Selection::Names(in_it.map(|service| service.full_name()).collect()))
    }

    pub(super) fn evaluate(
        &self,
        selection: &Selection,
    ) -> Result<Vec<ServicePlan>, CommandFailure> {
        Ok(self.controller.evaluate(&self.context.apis, selection)?)
    }

    /// Returns the plans of the Services that the user asked for. A Service that ccm does not manage and that has no
    /// load balancer has no plan. When the user named such a Service, returns an error that says why ccm does not
    /// manage it.
    fn evaluate_shown(&self) -> Result<Vec<ServicePlan>, CommandFailure> {
        let selection = self.selection()?;
        let plans = self.evaluate(&selection)?;
        let names = match &selection {
            Selection::Names(names) if !self.context.names.is_empty() => names,
            _ => return Ok(plans),
        };
        let has_plan = |name: &String| plans.iter().any(|plan| plan.service.full_name() == *name);
        let there = self.there()?;
        let mut others = there.iter().filter(|service| names.contains(&service.full_name()));
        let other = others.find(|service| !has_plan(&service.full_name()));
        other.map_or(Ok(plans), |other| Err(left_alone(other)))
    }

    /// Returns the plans of the load balancers whose Service does not exist. When the user gave a namespace, only the
    /// load balancers of Services from this namespace are returned. `plans` are the plans of existing Services. A load
    /// balancer that one of these Services uses is left out.
    pub(super) fn orphans(
        &self,
        plans: &[ServicePlan],
        begun: Instant,
    ) -> Result<Vec<ServicePlan>, Exit> {
        let context = &self.context;
        let mut orphans = context.or_exit(self.controller.orphans(&context.apis, begun))?;
        let number = |plan: &ServicePlan| plan.cloud.found.as_ref().map(|found| found.id);
        let taken: HashSet<u64> = plans.iter().filter_map(number).collect();
        let namespace = context.settings.namespace.value.as_ref();
        orphans.retain(|orphan| {
            let is_taken = number(orphan).is_some_and(|id| taken.contains(&id));
            let of = &orphan.service.metadata.namespace;
            !is_taken && namespace.is_none_or(|namespace| namespace == of)
        });
        Ok(orphans)
    }

    /// Returns all existing Services of type LoadBalancer.
    fn there(&self) -> Result<Arc<Vec<Arc<KubeService>>>, CommandFailure> {
        let apis = &self.context.apis;
        Ok(apis.load_balancer_services(Duration::MAX, ReadFrom::Latest)?.value)
    }

    /// Returns the Services that the user has named on the command line, each as `NAMESPACE/NAME`. The user can write
    /// the name of the Service, or the ID, name or address of its load balancer. Returns an error when the command
    /// can't work on one of these Services.
    fn named(&self) -> Result<BTreeSet<String>, CommandFailure> {
        let given = self.context.settings.namespace.value.as_deref();
        let namespace = given.unwrap_or(self.context.apis.kube.namespace());
        let is_in_it = |name: &str| given.is_none_or(|given| is_in(name, given));
        let there = self.there()?;
        let mut known =
            Vec::from_iter(there.iter().map(|service| KnownObject::new(&service.full_name())));
        for text in &self.context.names {
            let word = word(text, namespace);
            for name in word.readings() {
                // The list `known` has the Services that a user can name. It lacks a Service whose type was changed
                // from LoadBalancer to another one. Such a Service is added here when its load balancer still has to
                // be removed.
                if !known.iter().any(|known| known.name == name) && self.is_ours(&name)? {
                    known.push(KnownObject::new(&name));
                }
            }
        }
        let in_cloud = || {
            let plans = self.evaluate(&Selection::All)?;
            Ok(plans.iter().map(called).filter(|known| is_in_it(&known.name)).collect())
        };
        let (words, kind) = (&self.context.names, &names::SERVICES);
        let names = names::resolve(kind, words, Some(namespace), known, in_cloud, not_there)?;
        let is_other = |service: &&Arc<KubeService>| match self.command {
            Command::LbInspect | Command::LbList => false,
            Command::LbAdopt | Command::LbReplace => service.left_alone.is_some(),
            _ => want(service) == Want::Nothing,
        };
        let mut others = there.iter().filter(is_other);
        let other = others.find(|service| names.contains(&service.full_name()));
        other.map_or(Ok(names), |other| Err(left_alone(other)))
    }

    /// Whether a Service of this name exists for which ccm still has work to do. Returns an error when the Service
    /// exists but needs nothing from ccm, because it is not of type LoadBalancer.
    fn is_ours(&self, full_name: &str) -> Result<bool, CommandFailure> {
        let (namespace, name) = full_name.split_once('/').unwrap_or_default();
        let service = self.context.apis.kube.service(namespace, name);
        match service.map_err(cache::CacheError::Kube)? {
            Some(service) if want(&service) == Want::Nothing => {
                Err(CommandFailure::Shown(Printer::failure(format_args!(
                    "Service {full_name} is of type {}; only Services of type LoadBalancer get a load balancer",
                    service.spec.kind
                ))))
            }
            service => Ok(service.is_some()),
        }
    }
}

fn left_alone(service: &KubeService) -> CommandFailure {
    let why = service.left_alone.unwrap_or("it is being deleted");
    let name = service.full_name();
    CommandFailure::Shown(Printer::failure(format_args!(
        "Service {name} is not managed by this ccm, because {why}"
    )))
}

fn word<'a>(text: &'a str, namespace: &'a str) -> Word<'a> {
    Word { kind: &names::SERVICES, text, namespace: Some(namespace) }
}

fn is_in(full_name: &str, namespace: &str) -> bool {
    full_name.split_once('/').is_some_and(|(of, _)| of == namespace)
}

/// Returns everything by which a user can name the Service of this plan: its name, and the ID, name and addresses of
/// its load balancer.
fn called(plan: &ServicePlan) -> KnownObject {
    let status = plan.service.status.load_balancer.ingress.iter();
    let status = status.flat_map(|ingress| ingress.ip.iter().chain(&ingress.hostname));
    let mut others: Vec<String> = status.cloned().collect();
    if let Some(found) = &plan.cloud.found {
        others.extend([found.id.to_string(), found.name.clone()]);
        others.extend(found.addresses.iter().map(ToString::to_string));
    }
    KnownObject {
        name: if plan.service.metadata.name.is_empty() {
            // Only the load balancer was found, and its labels do not contain the name of its Service. The name of the
            // plan's object is used instead of the Service's name.
            plan.object.name.clone()
        } else {
            plan.service.full_name()
        },
        others,
    }
}

/// Returns the part of an error message that says what does not exist, e.g. `Service default/web of type LoadBalancer`.
fn not_there(word: &Word) -> String {
    let bare = word.bare();
    if bare.parse::<IpAddr>().is_ok() || bare.parse::<u64>().is_ok() {
        format!("Service with load balancer {bare}")
    } else {
        format!("Service {} of type LoadBalancer", Vec::from_iter(word.readings()).join(" or "))
    }
}

/// Checks that a word which the user typed can name a Service. `given` is the namespace of the flag `-n`. A word with
/// another namespace is an error.
fn check_form(text: &str, given: Option<&str>) -> Result<(), String> {
    let readings = word(text, given.unwrap_or("default")).readings();
    match given {
        _ if readings.is_empty() => Err(format!(
            "{text:?} does not name a Service; write NAMESPACE/NAME, NAME, svc/NAME, or the ID, name or address of its \
             load balancer"
        )),
        Some(given) if !readings.iter().any(|reading| is_in(reading, given)) => Err(format!(
            "{text:?} names another namespace than -n {given}; give only one of the two namespaces"
        )),
        _ => Ok(()),
    }
}

impl PlannedObjects for Vec<ServicePlan> {
    const KIND: &'static str = "LoadBalancer";

    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize> {
        let items = self.iter().map(|plan| {
            let (fields, events) = (plan.cloud.fields.iter(), plan.events.as_ref());
            Item {
                object: (plan.object.kind == SERVICE).then_some(ServiceJson(plan)),
                cloud: plan.cloud.found.as_ref(),
                differences: fields.filter(|field| field.differs()).collect(),
                changes: report.map_or_else(|| plan.json(), |_| plan.made.clone()),
                held_back: Some([]),
                findings: plan.all_findings().collect(),
                events: events.map(|all| all.iter().map(|event| &**event).collect()),
                error: error_of(report, &plan.name()),
            }
        });
        items.collect()
    }

    fn proposals(&self) -> Vec<Proposal> {
        self.iter().map(|plan| plan.proposal()).collect()
    }

    fn notes(&self) -> Vec<String> {
        // The warnings about a load balancer without a Service are left out when a sync has changed it, because the
        // sync has then deleted this load balancer.
        let left = self.iter().filter(|plan| !plan.is_orphan() || plan.made.is_empty());
        left.flat_map(|plan| warnings(plan.name(), &plan.findings)).collect()
    }
}

struct ServiceJson<'a>(&'a ServicePlan);

impl Serialize for ServiceJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ServiceJson(plan) = self;
        let (service, metadata) = (&plan.service, &plan.service.metadata);
        let wants = match plan.want {
            Want::Ensure => "loadBalancer",
            Want::Remove => "removal",
            Want::Release => "release",
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
        if let Some(sizing) = &plan.cloud.sizing {
            map.serialize_entry("needs", sizing)?;
        }
        if let Some(replacement) = &plan.cloud.replacement {
            map.serialize_entry("replacement", replacement)?;
        }
        if !plan.cloud.left_out.is_empty() {
            map.serialize_entry("leftOut", &plan.cloud.left_out)?;
        }
        if !plan.cloud.with_pods.is_empty() {
            map.serialize_entry("withPods", &plan.cloud.with_pods)?;
        }
        map.end()
    }
}

/// Whether the load balancer that this Service will use serves only other Services so far, or the person who created
/// it. This is the case when the load balancer has ports, but none of this Service, and the status of the Service has
/// no address.
pub(super) fn serves_others_alone(plan: &ServicePlan) -> bool {
    let has_address = !plan.service.status.load_balancer.ingress.is_empty();
    let found = plan.cloud.found.as_ref();
    let ports = found.map_or(&[][..], |found| &found.ports);
    let is_own = |port: &PortOwner| port.uid.as_ref() == Some(&plan.object.uid);
    plan.want == Want::Ensure && !has_address && !ports.is_empty() && !ports.iter().any(is_own)
}

/// Returns the text of the column `TARGETS`, e.g. `2/3` when two of three targets are healthy.
pub(super) fn targets_cell(plan: &ServicePlan) -> String {
    let Some(balancer) = plan.cloud.found.as_ref().filter(|_| !serves_others_alone(plan)) else {
        return "-".into();
    };
    let counts = balancer.target_counts(Some(&plan.object.uid));
    format!("{}/{}", counts.healthy, counts.total)
}
