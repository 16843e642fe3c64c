//! What brings a Service's load balancer in order, and what removes it.

use super::balancer::{BalancerType, LoadBalancer};
use super::change::{Change, Write};
use super::create::{New, USUAL_TYPE};
use super::desired::{Desired, desired};
use super::difference::Difference;
use super::find::{Found, by_label, find};
use super::names::{CLUSTER_UID, SERVICE, SERVICE_UID};
use super::observe::{State, covers};
use super::ports::Given;
use super::reading::Reading;
use super::{Rules, annotations, names, status};
use crate::cloud::{
    self, Cluster, Finding, LoadBalancerPlan, OfferedNode, Orphan, ProviderId, Reason, Service,
    Source,
};

impl Rules<'_> {
    /// What brings this Service's load balancer in order.
    pub fn plan(
        &self,
        state: &State,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> LoadBalancerPlan {
        let mut reading = Reading::new(service);
        if !covers(state, self, service) {
            reading.problem("not all that this rests on was read: look again".to_owned());
            return refused(reading);
        }
        let given = Given {
            service,
            rules: self,
            certificates: state.certificates.as_deref().unwrap_or_default(),
        };
        let desired = desired(&mut reading, &given, nodes);
        let named = desired.name.as_ref();
        let found = find(&state.balancers, service, cluster, self.profile, named);
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                reading.problem(why.why);
                return LoadBalancerPlan {
                    rests_on_whole_cluster: why.rests_on_whole_cluster,
                    ..refused(reading)
                };
            }
        };
        let (there, rests_on_whole_cluster) = match &found {
            Found::Labelled(balancer) => (Some(*balancer), false),
            Found::Named {
                balancer,
                rests_on_whole_cluster,
            } => (Some(*balancer), *rests_on_whole_cluster),
            Found::Nothing {
                rests_on_whole_cluster,
                ..
            } => (None, *rests_on_whole_cluster),
        };
        if let Some(why) = there.and_then(|balancer| self.serves_the_other(balancer, cluster)) {
            reading.problem(why);
        }
        let kind = kind(&mut reading, state, &desired, there);
        check_services(&mut reading, &desired, kind);
        let mut plan = LoadBalancerPlan {
            found: there.map(|balancer| status::for_people(balancer, nodes)),
            rests_on_whole_cluster,
            ..LoadBalancerPlan::default()
        };
        if let (true, Some(kind)) = (reading.problems.is_empty(), kind) {
            let labels = names::labels(service, cluster);
            match found {
                Found::Nothing { name, .. } => {
                    let new = New {
                        rules: self,
                        desired: &desired,
                        kind,
                        name,
                        labels,
                        nodes,
                    };
                    new.plan(&mut plan, &mut reading);
                }
                Found::Labelled(balancer) | Found::Named { balancer, .. } => {
                    Difference::new(&mut plan, &mut reading, self, balancer, nodes).find(
                        &desired,
                        kind,
                        &labels,
                        &state.balancers,
                    );
                    plan.status = Some(status::ingress(balancer, &desired));
                }
            }
        }
        tell_about_address(&mut reading, service, there);
        if !reading.problems.is_empty() {
            return LoadBalancerPlan {
                found: plan.found,
                rests_on_whole_cluster,
                ..refused(reading)
            };
        }
        plan.findings = reading.findings;
        plan
    }

    /// Nodes that the other profile has initialised are none of ours, so they would go from this load balancer, and its
    /// traffic with them: whoever starts the wrong profile must not lose it.
    fn serves_the_other(&self, balancer: &LoadBalancer, cluster: &Cluster) -> Option<String> {
        let other = self.profile.other();
        let is_target = |id: &str| match other.parse_provider_id(id) {
            ProviderId::Ours(server) => balancer
                .server_targets()
                .any(|(target, _)| target == server.0),
            ProviderId::Foreign | ProviderId::Unknown(_) => false,
        };
        let (node, id) = cluster.strangers.iter().find(|(_, id)| is_target(id))?;
        Some(format!(
            "load balancer {:?} sends traffic to node {node}, whose provider ID {id:?} is of profile {}: this runs as \
             {}, which would take the node out, so nothing is changed; run it with --cloud-provider={}",
            balancer.name,
            other.name(),
            self.profile.name(),
            other.name()
        ))
    }

    /// What removes it: found by its label, never by its name.
    pub fn plan_removal(&self, state: &State, service: &Service) -> LoadBalancerPlan {
        let mut plan = LoadBalancerPlan::default();
        match by_label(&state.balancers, service) {
            Err(why) => plan.obstacle = obstacle(Reason::DeleteLoadBalancerFailed, &[why]),
            Ok(None) => {}
            Ok(Some(balancer)) => {
                plan.found = Some(status::for_people(balancer, &[]));
                if balancer.protection.delete {
                    plan.findings.push(protected(balancer));
                } else {
                    plan.changes
                        .push(Box::new(removal(balancer, "the Service goes")));
                }
            }
        }
        plan
    }

    /// Load balancers of this cluster whose Service does not exist.
    pub fn orphans(&self, state: &State, cluster: &Cluster) -> Vec<Orphan> {
        let uid = |balancer: &LoadBalancer, label| balancer.labels.get(label).cloned();
        let is_orphan = |balancer: &&LoadBalancer| {
            // A cluster whose UID could not be read has none.
            let is_own = |uid: String| !uid.is_empty() && uid == cluster.uid;
            let ours = uid(balancer, CLUSTER_UID).is_some_and(is_own);
            let service = uid(balancer, SERVICE_UID);
            ours && service.is_some_and(|uid| !cluster.service_uids.contains(&uid))
        };
        let orphan = |balancer: &LoadBalancer| Orphan {
            balancer: status::for_people(balancer, &[]),
            service: uid(balancer, SERVICE).unwrap_or_else(|| "unknown".to_owned()),
            removal: (!balancer.protection.delete)
                .then(|| removal(balancer, "its Service does not exist"))
                .map(|change| Box::new(change) as Box<dyn cloud::Change>),
        };
        let balancers = state.balancers.iter();
        balancers.filter(is_orphan).map(orphan).collect()
    }
}

/// Nothing is done, and why.
fn refused(reading: Reading) -> LoadBalancerPlan {
    LoadBalancerPlan {
        obstacle: obstacle(Reason::SyncLoadBalancerFailed, &reading.problems),
        findings: reading.findings,
        ..LoadBalancerPlan::default()
    }
}

fn obstacle(reason: Reason, problems: &[String]) -> Option<Finding> {
    let message = problems.join("; ");
    (!problems.is_empty()).then(|| Finding::warning(reason, message))
}

fn protected(balancer: &LoadBalancer) -> Finding {
    Finding::warning(
        Reason::LoadBalancerProtected,
        format!(
            "load balancer {} is protected from being deleted and stays; it costs money until somebody deletes it",
            balancer.shown()
        ),
    )
    .by_provider()
}

fn removal(balancer: &LoadBalancer, why: &'static str) -> Change {
    Change {
        balancer: Some(balancer.id),
        write: Write::Delete,
        line: format!("load balancer {}: deleted", balancer.shown()),
        sources: vec![Source::Rule(why)],
    }
}

/// The type it should be of: the one that is wanted, else the one it has, else the smallest.
fn kind<'a>(
    reading: &mut Reading,
    state: &'a State,
    desired: &Desired,
    there: Option<&'a LoadBalancer>,
) -> Option<&'a BalancerType> {
    let has = there.map(|balancer| &balancer.load_balancer_type);
    let wanted = match (&desired.kind, has) {
        (None, Some(has)) => return tell_deprecated(reading, has),
        (None, None) => {
            reading.finding(Finding::warning(
                Reason::LoadBalancerTypeUnconfigured,
                format!(
                    "nobody says which type of load balancer to make, so it is an {}; say so in annotation {}",
                    USUAL_TYPE,
                    annotations::TYPE.key()
                ),
            ));
            USUAL_TYPE
        }
        (Some(wanted), _) => wanted.value.as_str(),
    };
    if let Some(has) = has.filter(|has| has.name == wanted) {
        return tell_deprecated(reading, has);
    }
    let types = state.types.as_deref().map_or(&[][..], Vec::as_slice);
    if let Some(kind) = types.iter().find(|kind| kind.name == wanted) {
        return tell_deprecated(reading, kind);
    }
    let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
    let source = desired.kind.as_ref().map(|kind| kind.source.to_string());
    reading.problem(format!(
        "{}: there is no type {wanted:?}; use {}",
        source.unwrap_or_else(|| "type".to_owned()),
        crate::text::one_of(&names)
    ));
    None
}

fn tell_deprecated<'a>(reading: &mut Reading, kind: &'a BalancerType) -> Option<&'a BalancerType> {
    if let Some(deprecation) = &kind.deprecation {
        reading.finding(Finding::warning(
            Reason::LoadBalancerTypeDeprecated,
            format!(
                "type {} of the load balancer is deprecated and goes after {}: choose another in annotation {}",
                kind.name,
                deprecation.unavailable_after,
                annotations::TYPE.key()
            ),
        ));
    }
    Some(kind)
}

fn check_services(reading: &mut Reading, desired: &Desired, kind: Option<&BalancerType>) {
    let ports = desired.ports.len();
    if let Some(kind) = kind.filter(|kind| kind.max_services < ports) {
        reading.problem(format!(
            "the Service has {ports} TCP ports, and a load balancer of type {} takes {}: choose a larger one in \
             annotation {}, or remove ports",
            kind.name,
            kind.max_services,
            annotations::TYPE.key()
        ));
    }
}

/// `spec.loadBalancerIP` asks for an address; a load balancer keeps the one that it was made with.
fn tell_about_address(reading: &mut Reading, service: &Service, there: Option<&LoadBalancer>) {
    let wanted = service.load_balancer_ip.as_str();
    let has = there.is_some_and(|balancer| {
        let addresses = status::addresses(balancer);
        addresses.iter().any(|ip| ip.to_string() == wanted)
    });
    if !wanted.is_empty() && !has {
        reading.finding(Finding::warning(
            Reason::FieldIgnored,
            format!("spec.loadBalancerIP: {wanted} is not honoured: the cloud chooses the address"),
        ));
    }
}
