//! What brings a Service's load balancer in order, and what removes it.

use super::balancer::{BalancerType, LoadBalancer};
use super::change::{Change, LabelEdit, Plan, Seen, Write};
use super::context::{Context, Limits, Names, Observed, Planner};
use super::create::{New, USUAL_TYPE};
use super::desired::{Desired, desired};
use super::diff::Diff;
use super::find::{Found, asked_too_late, by_label, find, other_cluster, rests_on_services};
use super::names::{ADOPT, ADOPTED, CLUSTER_UID, CREATED, OUR_PREFIX, SERVICE, SERVICE_UID, YES};
use super::observe::covers;
use super::ownership::{End, end_with_service};
use super::parser::AnnotationParser;
use super::targets::need_servers;
use super::{annotations, names, primary_ips, status};
use crate::hetzner::certificates::Certificates;
use crate::provider::{
    Cluster, Finding, InstanceId, LoadBalancerPlan, Needs, OfferedNode, Orphan, Protocol,
    ProviderId, Reason, Service, Source,
};
use std::collections::{BTreeMap, BTreeSet};

impl Planner<'_> {
    /// What must have been read before [`Planner::plan`] makes a plan that is applied, by what was read last.
    pub fn needs(
        &self,
        observed: &Observed,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> Needs {
        let context = self.context(observed, service, nodes, cluster);
        let is_planned = covers(observed, self, service);
        if !is_planned || context.limits.exceeded_by(service).is_some() {
            return Needs::default();
        }
        let mut parser = AnnotationParser::new(service);
        let desired = desired(&mut parser, &context);
        let named = desired.name.as_ref();
        let found = find(&observed.balancers, service, cluster, self.profile, named);
        let services = desired.managed.rests_on_services
            || rests_on_services(&found, &observed.balancers, service, cluster);
        // What is refused by an old view may be adopted by a new one, and get targets.
        let servers = services
            || found.is_ok_and(|found| {
                parser.problems.is_empty() && need_servers(&context, &desired, found.balancer())
            });
        Needs { servers, services }
    }

    fn context<'a>(
        &'a self,
        observed: &'a Observed,
        service: &'a Service,
        nodes: &'a [OfferedNode],
        cluster: &'a Cluster,
    ) -> Context<'a> {
        let certificates = observed.certificates.as_deref().unwrap_or_default();
        Context {
            planner: self,
            observed,
            service,
            nodes,
            cluster,
            certificates: Certificates::new(certificates),
            limits: Limits::of(observed),
        }
    }

    /// What brings this Service's load balancer in order.
    pub fn plan(
        &self,
        observed: &Observed,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> Plan {
        let mut parser = AnnotationParser::new(service);
        if !covers(observed, self, service) {
            parser
                .problem("not everything that the plan depends on was read: read again".to_owned());
            return refused(parser);
        }
        let context = self.context(observed, service, nodes, cluster);
        if let Some(why) = context.limits.exceeded_by(service) {
            parser.problem(why);
            let there = by_label(&observed.balancers, service).ok().flatten();
            let mut plan = refused(parser);
            plan.found = there.map(|balancer| status::for_people(balancer, context.names()));
            return plan;
        }
        let mut desired = desired(&mut parser, &context);
        let managed = std::mem::take(&mut desired.managed);
        let named = desired.name.as_ref();
        let found = find(&observed.balancers, service, cluster, self.profile, named);
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                parser.problem(why.message());
                let mut plan = refused(parser);
                if let Some(obstacle) = &mut plan.obstacle {
                    obstacle.reason = why.reason;
                }
                return plan;
            }
        };
        let there = found.balancer();
        if let Some(why) = there.and_then(|balancer| self.serves_other_profile(balancer, cluster)) {
            parser.problem(why);
        }
        if let Some(own) = there
            && let Some(other) = asked_too_late(&observed.balancers, service, own)
        {
            parser.finding(not_adopted_beside(other, own));
        }
        let kind = kind(&mut parser, observed, &desired, there);
        check_services(&mut parser, &desired, kind, there);
        let mut plan = Plan::from(LoadBalancerPlan {
            found: there.map(|balancer| status::for_people(balancer, context.names())),
            is_labelled: matches!(found, Found::Labelled(_)),
            is_unfinished: desired.ports.iter().any(|port| port.waits),
            takes_over: managed.takes_over,
            ..LoadBalancerPlan::default()
        });
        plan.fields.extend(managed.fields);
        plan.changes.extend(managed.changes);
        let is_compared = parser.problems.is_empty() && there.is_some();
        if let (true, Some(kind)) = (parser.problems.is_empty(), kind) {
            let mut labels = names::labels(service, cluster);
            let adopts = matches!(found, Found::Adopted(_));
            match found {
                Found::Nothing(name) => {
                    labels.insert(CREATED, YES.to_owned());
                    let new = New {
                        context: &context,
                        desired: &desired,
                        kind,
                        name,
                        labels,
                    };
                    new.plan(&mut plan, &mut parser);
                }
                Found::Labelled(balancer) | Found::Adopted(balancer) => {
                    if adopts && !balancer.labels.contains_key(CREATED) {
                        labels.insert(ADOPTED, YES.to_owned());
                    }
                    let diff = Diff {
                        plan: &mut plan,
                        parser: &mut parser,
                        context: &context,
                        balancer,
                    };
                    let adopts = adopts.then(|| adopted(balancer));
                    diff.find(&desired, kind, &labels, adopts);
                    let (status, unsure) = status::ingress(balancer, &desired, self);
                    plan.status = Some(status);
                    plan.unsure = unsure;
                }
            }
        }
        primary_ips::report(&mut parser, &context, &desired, there);
        if !parser.problems.is_empty() {
            let mut blocked = refused(parser);
            if is_compared {
                // People are shown what differs, also when it is blocked.
                blocked.fields = std::mem::take(&mut plan.fields);
            }
            blocked.found = plan.rest.found;
            return blocked;
        }
        (_, plan.findings) = parser.end();
        plan
    }

    /// Nodes that the other profile has initialised are not ours, so they would be removed from this load balancer: a
    /// start with the wrong profile must not lose the traffic.
    fn serves_other_profile(&self, balancer: &LoadBalancer, cluster: &Cluster) -> Option<String> {
        let other = self.profile.other();
        let is_target = |id: &str| match other.parse_provider_id(id) {
            ProviderId::Ours(server) => balancer
                .server_targets()
                .any(|(target, _)| target == server.0),
            ProviderId::Foreign | ProviderId::Unknown(_) => false,
        };
        let (node, id) = cluster.foreign_nodes.iter().find(|(_, id)| is_target(id))?;
        Some(format!(
            "load balancer {:?} sends traffic to node {node}, whose provider ID {id:?} is of profile {}: this runs as \
             {}, which would take the node out, so nothing is changed; run it with --cloud-provider={}",
            balancer.name,
            other.name(),
            self.profile.name(),
            other.name()
        ))
    }

    /// What deletes or releases it: found by its label, never by its name.
    pub fn plan_removal(
        &self,
        observed: &Observed,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> Plan {
        let mut plan = Plan::default();
        match by_label(&observed.balancers, service) {
            Err(why) => {
                plan.obstacle = Some(Finding::warning(Reason::DeleteLoadBalancerFailed, why));
            }
            Ok(None) => {}
            Ok(Some(balancer)) => {
                let names = Names {
                    offered: nodes,
                    cluster: Some(cluster),
                };
                plan.found = Some(status::for_people(balancer, names));
                plan.is_labelled = true;
                if let Some(uid) = other_cluster(balancer, cluster) {
                    plan.findings.push(left_to_its_cluster(balancer, uid));
                    return plan;
                }
                match end_with_service(balancer, service.created, cluster) {
                    End::Delete if balancer.protection.delete => {
                        plan.findings.push(protected(balancer));
                    }
                    End::Delete => {
                        let removal = removal(balancer, "the Service is deleted", false);
                        plan.changes.push(removal);
                    }
                    End::Release(why) => {
                        plan.changes = release(balancer, service, cluster, names, &why);
                    }
                }
            }
        }
        plan
    }

    /// Load balancers of this cluster whose Service does not exist, each with what deletes it.
    pub fn orphans(&self, observed: &Observed, cluster: &Cluster) -> Vec<(Orphan, Option<Change>)> {
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
            let is_deleted = stays.is_none();
            let change = is_deleted.then(|| removal(balancer, "its Service does not exist", true));
            let orphan = Orphan {
                balancer: status::for_people(balancer, names),
                service: uid(balancer, SERVICE).unwrap_or_else(|| "unknown".to_owned()),
                service_uid: uid(balancer, SERVICE_UID).unwrap_or_default(),
                removal: None,
                stays,
            };
            (orphan, change)
        };
        let balancers = observed.balancers.iter();
        balancers.filter(is_orphan).map(orphan).collect()
    }
}

/// What keeps an orphan from being deleted: the rule for that of an existing Service, and more. A cluster that was
/// restored from another one's backup has that one's UID: what sends traffic to servers that are no nodes here may well
/// be wanted there.
fn why_it_stays(balancer: &LoadBalancer, cluster: &Cluster) -> Option<String> {
    if balancer.protection.delete {
        return Some("it is protected from being deleted".to_owned());
    }
    if let Some(service) = balancer.labels.get(ADOPT) {
        return Some(format!("its label {ADOPT} keeps it for Service {service}"));
    }
    match end_with_service(balancer, None, cluster) {
        End::Delete => None,
        End::Release(why) => Some(why),
    }
}

/// The Service's ports and targets are removed, and last, so that a restart finds it, the labels. What others added
/// stays: ports that the Service has not, servers that are no nodes, addresses and label selectors.
fn release(
    balancer: &LoadBalancer,
    service: &Service,
    cluster: &Cluster,
    names: Names,
    why: &str,
) -> Vec<Change> {
    let shown = balancer.shown();
    let stays = Source::Rule("the Service is deleted, and the load balancer stays");
    let part = |write, line| Change {
        is_release: true,
        ..Change::new(Some(balancer.id), write, line, vec![stays.clone()])
    };
    let is_of_service = |port: u16| {
        let mut ports = service.ports.iter();
        ports.any(|one| one.port == port && one.protocol == Protocol::Tcp)
    };
    let ports = balancer.services.iter().map(|one| one.listen_port);
    let ports = ports.filter(|port| is_of_service(*port));
    let ports = ports.map(|listen_port| {
        let line = format!("port {listen_port}: removed");
        part(Write::DeleteService { listen_port }, line)
    });
    let servers = balancer.server_targets().map(|(server, _)| server);
    let servers = servers.filter(|server| cluster.servers.contains_key(&InstanceId(*server)));
    let servers = servers.map(|server| {
        let write = Write::RemoveTarget {
            server,
            is_one_of_all: false,
        };
        part(write, format!("target {}: removed", names.of(server)))
    });
    let remove = balancer.labels.keys();
    let remove = remove.filter(|label| *label == SERVICE_UID || label.starts_with(OUR_PREFIX));
    let labels = LabelEdit {
        set: BTreeMap::new(),
        remove: remove.cloned().collect(),
        seen: Box::new(Seen::of(balancer)),
        adopts: false,
    };
    let released = Finding::info(
        Reason::LoadBalancerReleased,
        format!(
            "Released load balancer {shown}: the ports, targets and labels of this Service were removed, and it was not \
             deleted, because {why}; it costs money until you delete it"
        ),
    );
    let write = Write::Edit {
        name: None,
        labels: Some(labels),
    };
    let line = format!("load balancer {shown}: released, because {why}");
    let last = Change {
        event: Some(released.by_provider()),
        ..part(write, line)
    };
    ports.chain(servers).chain([last]).collect()
}

fn adopted(balancer: &LoadBalancer) -> Finding {
    let how = match balancer.labels.contains_key(CREATED) {
        true => "it is deleted with the Service",
        false => "it is not deleted with the Service, only released",
    };
    let message = format!("Adopted load balancer {}: {how}", balancer.shown());
    Finding::info(Reason::LoadBalancerAdopted, message).by_provider()
}

fn not_adopted_beside(other: &LoadBalancer, own: &LoadBalancer) -> Finding {
    let message = format!(
        "load balancer {} is not adopted, although its label {ADOPT} asks for it, because the Service has load balancer \
         {}: delete that one to have the other adopted (its address is lost, and there is no traffic meanwhile), or \
         remove the label",
        other.shown(),
        own.shown()
    );
    Finding::warning(Reason::LoadBalancerNotAdopted, message)
}

/// A copy of this cluster, or the one that this is a copy of, has a Service of the same UID.
fn left_to_its_cluster(balancer: &LoadBalancer, uid: &str) -> Finding {
    let message = format!(
        "load balancer {} carries this Service's UID, but its label {CLUSTER_UID} names another cluster, {uid}, and its \
         targets do not show that it is this one's: it is left unchanged",
        balancer.shown()
    );
    Finding::warning(Reason::LoadBalancerNotAdopted, message).by_provider()
}

/// Nothing is done, and why.
fn refused(parser: AnnotationParser) -> Plan {
    let (problems, findings) = parser.end();
    Plan::from(LoadBalancerPlan {
        obstacle: problems.map(|why| Finding::warning(Reason::SyncLoadBalancerFailed, why)),
        findings,
        ..LoadBalancerPlan::default()
    })
}

fn protected(balancer: &LoadBalancer) -> Finding {
    Finding::warning(
        Reason::LoadBalancerProtected,
        format!(
            "load balancer {} is protected from being deleted and stays; it costs money until you delete it",
            balancer.shown()
        ),
    )
    .by_provider()
}

fn removal(balancer: &LoadBalancer, why: &'static str, is_orphan: bool) -> Change {
    Change::new(
        Some(balancer.id),
        Write::Delete {
            seen: Box::new(Seen::of(balancer)),
            is_orphan,
        },
        format!("load balancer {}: deleted", balancer.shown()),
        vec![Source::Rule(why)],
    )
}

/// The type it should be of: the one that is wanted, else the one it has, else the smallest.
fn kind<'a>(
    parser: &mut AnnotationParser,
    observed: &'a Observed,
    desired: &Desired,
    there: Option<&'a LoadBalancer>,
) -> Option<&'a BalancerType> {
    let has = there.map(|balancer| &balancer.load_balancer_type);
    let wanted = match (&desired.kind, has) {
        (None, Some(has)) => return report_deprecated(parser, has),
        (None, None) => {
            parser.finding(Finding::warning(
                Reason::LoadBalancerTypeUnconfigured,
                format!(
                    "no type of load balancer is set, so it is an {}; set annotation {}",
                    USUAL_TYPE,
                    annotations::TYPE.key()
                ),
            ));
            USUAL_TYPE
        }
        (Some(wanted), _) => wanted.value.as_str(),
    };
    if let Some(has) = has.filter(|has| has.name == wanted) {
        return report_deprecated(parser, has);
    }
    let types = observed.types.as_deref().map_or(&[][..], Vec::as_slice);
    if let Some(kind) = types.iter().find(|kind| kind.name == wanted) {
        return report_deprecated(parser, kind);
    }
    let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
    let source = desired.kind.as_ref().map(|kind| kind.source.to_string());
    parser.problem(format!(
        "{}: there is no type {}; use {}",
        source.unwrap_or_else(|| "type".to_owned()),
        crate::text::quoted(wanted),
        crate::text::one_of(&names)
    ));
    None
}

fn report_deprecated<'a>(
    parser: &mut AnnotationParser,
    kind: &'a BalancerType,
) -> Option<&'a BalancerType> {
    if let Some(deprecation) = &kind.deprecation {
        parser.finding(Finding::warning(
            Reason::LoadBalancerTypeDeprecated,
            format!(
                "type {} of the load balancer is deprecated and ends after {}: choose another in annotation {}",
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
    parser: &mut AnnotationParser,
    desired: &Desired,
    kind: Option<&BalancerType>,
    there: Option<&LoadBalancer>,
) {
    let Some(kind) = kind else { return };
    let name = &kind.name;
    let larger = format!(
        "choose a larger one in annotation {}",
        annotations::TYPE.key()
    );
    let (ports, most) = (desired.ports.len(), kind.max_services);
    if ports > most {
        parser.problem(format!(
            "the Service has {ports} TCP ports, and a load balancer of type {name} takes {most}: {larger}, or remove ports"
        ));
    }
    let (certificates, most) = (certificates(desired, there), kind.max_assigned_certificates);
    if certificates > most {
        parser.problem(format!(
            "the ports need {certificates} certificates, and a load balancer of type {name} takes {most}: {larger}, or \
             name fewer in {}",
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
        let listener = port.merged(found, |_| false);
        if listener.is_https() {
            ids.extend(listener.certificates());
        }
    }
    ids.len()
}
