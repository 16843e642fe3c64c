//! What brings a Service's load balancer in order, and what removes it.

use super::balancer::{BalancerType, LoadBalancer};
use super::change::{Change, Write};
use super::create::{New, USUAL_TYPE};
use super::desired::{Desired, desired};
use super::difference::Difference;
use super::find::{Found, by_label, find, has_only_our_targets};
use super::limits::Limits;
use super::listener::ListenerProtocol;
use super::names::{CLUSTER_UID, SERVICE, SERVICE_UID};
use super::observe::{State, covers};
use super::ports::Given;
use super::reading::Reading;
use super::status::Names;
use super::{Rules, annotations, names, public_net, status};
use crate::cloud::{
    self, Cluster, Finding, LoadBalancerPlan, OfferedNode, Orphan, ProviderId, Reason, Service,
    Source,
};
use crate::hetzner::certificates::Certificates;
use std::collections::BTreeSet;

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
        let limits = Limits::of(state);
        if let Some(why) = limits.exceeded_by(service) {
            reading.problem(why);
            let names = Names {
                offered: nodes,
                cluster: Some(cluster),
            };
            let there = by_label(&state.balancers, service).ok().flatten();
            return LoadBalancerPlan {
                found: there.map(|balancer| status::for_people(balancer, names)),
                ..refused(reading)
            };
        }
        let certificates = state.certificates.as_deref().unwrap_or_default();
        let given = Given {
            service,
            rules: self,
            certificates: &Certificates::new(certificates),
            limits,
            cluster,
        };
        let mut desired = desired(&mut reading, &given, nodes);
        let managed = std::mem::take(&mut desired.managed);
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
        let rests_on_whole_cluster = rests_on_whole_cluster || managed.rests_on_whole_cluster;
        if let Some(why) = there.and_then(|balancer| self.serves_the_other(balancer, cluster)) {
            reading.problem(why);
        }
        let kind = kind(&mut reading, state, &desired, there);
        check_services(&mut reading, &desired, kind, there);
        let names = Names {
            offered: nodes,
            cluster: Some(cluster),
        };
        let mut plan = LoadBalancerPlan {
            found: there.map(|balancer| status::for_people(balancer, names)),
            is_labelled: matches!(found, Found::Labelled(_)),
            rests_on_whole_cluster,
            is_unfinished: desired.ports.iter().any(|port| port.waits),
            takes: managed.takes,
            ..LoadBalancerPlan::default()
        };
        plan.fields.extend(managed.fields);
        for change in managed.changes {
            plan.changes.push(Box::new(change));
        }
        let is_compared = reading.problems.is_empty() && there.is_some();
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
                        state,
                    };
                    new.plan(&mut plan, &mut reading);
                }
                Found::Labelled(balancer) | Found::Named { balancer, .. } => {
                    let there = (names, state);
                    Difference::new(&mut plan, &mut reading, self, balancer, there)
                        .find(&desired, kind, &labels);
                    plan.status = Some(status::ingress(balancer, &desired));
                }
            }
        }
        public_net::tell(&mut reading, self, &desired, state, there);
        if !reading.problems.is_empty() {
            return LoadBalancerPlan {
                found: plan.found,
                // People are shown what differs, whatever stands in the way.
                fields: if is_compared { plan.fields } else { Vec::new() },
                rests_on_whole_cluster,
                ..refused(reading)
            };
        }
        (_, plan.findings) = reading.end();
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
    pub fn plan_removal(
        &self,
        state: &State,
        service: &Service,
        nodes: &[OfferedNode],
    ) -> LoadBalancerPlan {
        let mut plan = LoadBalancerPlan::default();
        match by_label(&state.balancers, service) {
            Err(why) => {
                plan.obstacle = Some(Finding::warning(Reason::DeleteLoadBalancerFailed, why));
            }
            Ok(None) => {}
            Ok(Some(balancer)) => {
                let names = Names {
                    offered: nodes,
                    cluster: None,
                };
                plan.found = Some(status::for_people(balancer, names));
                plan.is_labelled = true;
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
            let is_gone = |uid: String| !uid.is_empty() && !cluster.service_uids.contains(&uid);
            ours && service.is_some_and(is_gone)
        };
        let names = Names {
            offered: &[],
            cluster: None,
        };
        let orphan = |balancer: &LoadBalancer| {
            let stays = why_it_stays(balancer, cluster);
            let removal = stays.is_none().then(|| {
                Box::new(Change {
                    write: Write::DeleteUnchanged {
                        labels: balancer.labels.clone(),
                    },
                    ..removal(balancer, "its Service does not exist")
                }) as Box<dyn cloud::Change>
            });
            Orphan {
                balancer: status::for_people(balancer, names),
                service: uid(balancer, SERVICE).unwrap_or_else(|| "unknown".to_owned()),
                service_uid: uid(balancer, SERVICE_UID).unwrap_or_default(),
                removal,
                stays,
            }
        };
        let balancers = state.balancers.iter();
        balancers.filter(is_orphan).map(orphan).collect()
    }
}

/// What keeps an orphan from being removed. A cluster that was made from another one's backup has
/// that one's UID: what sends traffic to servers that are no nodes here may well be wanted there.
fn why_it_stays(balancer: &LoadBalancer, cluster: &Cluster) -> Option<String> {
    if balancer.protection.delete {
        return Some("it is protected from being deleted".to_owned());
    }
    (!has_only_our_targets(balancer, cluster))
        .then(|| "it has targets that are no nodes of this cluster".to_owned())
}

/// Nothing is done, and why.
fn refused(reading: Reading) -> LoadBalancerPlan {
    let (problems, findings) = reading.end();
    LoadBalancerPlan {
        obstacle: problems.map(|why| Finding::warning(Reason::SyncLoadBalancerFailed, why)),
        findings,
        ..LoadBalancerPlan::default()
    }
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
        "{}: there is no type {}; use {}",
        source.unwrap_or_else(|| "type".to_owned()),
        crate::text::quoted(wanted),
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

/// What the API would refuse one by one, when it came to it.
fn check_services(
    reading: &mut Reading,
    desired: &Desired,
    kind: Option<&BalancerType>,
    there: Option<&LoadBalancer>,
) {
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
    let certificates = certificates(desired, there);
    if let Some(kind) = kind.filter(|kind| kind.max_assigned_certificates < certificates) {
        reading.problem(format!(
            "the ports need {certificates} certificates, and a load balancer of type {} takes {}: choose a larger one \
             in annotation {}, or name fewer in {}",
            kind.name,
            kind.max_assigned_certificates,
            annotations::TYPE.key(),
            annotations::HTTP_CERTIFICATES.key()
        ));
    }
}

/// How many its ports have, each counted once.
fn certificates(desired: &Desired, there: Option<&LoadBalancer>) -> usize {
    let mut ids = BTreeSet::new();
    for port in &desired.ports {
        let mut found = there.into_iter().flat_map(|balancer| &balancer.services);
        let found = found.find(|one| one.listen_port == port.listener.listen_port);
        let listener = port.merged(found);
        if listener.protocol == ListenerProtocol::Https {
            let http = listener.http.unwrap_or_default();
            ids.extend(http.certificates.unwrap_or_default());
        }
    }
    ids.len()
}
