//! What brings a Service's load balancer in order, and what removes it.

use super::balancer::{BalancerType, LoadBalancer};
use super::change::{Action, Change, Guard, Purpose};
use super::context::{Context, Observed, Snapshot};
use super::desired::{Desired, desired};
use super::diff::{Diff, USUAL_TYPE, boxed};
use super::find::{Found, asked_too_late, by_label, find, other_cluster, rests_on_services};
use super::names::{ADOPT, CLUSTER_UID, CREATED, OUR_PREFIX, SERVICE, SERVICE_UID};
use super::observe::covers;
use super::ownership::{End, end_with_service};
use super::parser::AnnotationParser;
use super::targets::need_servers;
use super::{annotations, primary_ips, status};
use crate::hetzner::certificates::Certificates;
use crate::provider::{
    self, Balancer, BalancerHealth, Cluster, Description, Finding, LoadBalancerPlan, Needs,
    OfferedNode, Orphan, Protocol, ProviderId, Reason, Service, Verb,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};

impl provider::Snapshot for Snapshot {
    fn covers(&self, service: &Service) -> bool {
        covers(&self.observed, &self.project, service)
    }

    /// By what was read last.
    fn needs(&self, service: &Service, nodes: &[OfferedNode], cluster: &Cluster) -> Needs {
        let context = self.context(service, nodes, cluster);
        if !self.covers(service) {
            return Needs::default();
        }
        let mut parser = AnnotationParser::new(service);
        let desired = desired(&mut parser, &context);
        let balancers = &self.observed.balancers;
        let found = find(&context, desired.name.as_ref());
        let services = desired.managed.rests_on_services
            || rests_on_services(&found, balancers, service, cluster);
        // What is refused by an old view may be adopted by a new one, and get targets.
        let servers = services
            || found.is_ok_and(|found| {
                parser.problems.is_empty() && need_servers(&context, &desired, found.balancer())
            });
        Needs { servers, services }
    }

    fn has_own(&self, service: &Service, cluster: &Cluster) -> bool {
        let found = by_label(&self.observed.balancers, service).ok().flatten();
        found.is_some_and(|one| other_cluster(one, cluster).is_none())
    }

    fn plan(
        &self,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> LoadBalancerPlan {
        let mut parser = AnnotationParser::new(service);
        let mut plan = LoadBalancerPlan::default();
        if !self.covers(service) {
            let why = "not everything that the plan depends on was read: read again";
            parser.problem(why.to_owned());
            return refused(plan, parser);
        }
        let context = self.context(service, nodes, cluster);
        let mut desired = desired(&mut parser, &context);
        let found = match find(&context, desired.name.as_ref()) {
            Ok(found) => found,
            Err(why) => {
                parser.problem(why.message);
                let mut plan = refused(plan, parser);
                if let Some(obstacle) = &mut plan.obstacle {
                    obstacle.reason = why.reason;
                }
                return plan;
            }
        };
        let there = found.balancer();
        if let Some(why) = there.and_then(|one| serves_other_profile(&context, one)) {
            parser.problem(why);
        }
        if let Some(own) = there
            && let Some(other) = asked_too_late(&self.observed.balancers, service, own)
        {
            parser.finding(not_adopted_beside(other, own));
        }
        plan.found = there.map(|balancer| status::for_people(balancer, cluster));
        let kind = kind(&mut parser, &self.observed, &desired, there);
        check_services(&mut parser, &desired, kind, there);
        if let (true, Some(kind)) = (parser.problems.is_empty(), kind) {
            plan.is_labelled = matches!(found, Found::Labelled(_));
            plan.is_unfinished = desired.ports.iter().any(|port| port.waits);
            let managed = std::mem::take(&mut desired.managed);
            plan.takes_over = managed.takes_over;
            plan.fields = managed.fields;
            let diff = Diff {
                plan: &mut plan,
                changes: managed.changes,
                parser: &mut parser,
                context: &context,
                desired: &desired,
                kind,
                balancer: there,
            };
            match found {
                Found::Nothing(name) => diff.create(name),
                Found::Labelled(balancer) | Found::Adopted(balancer) => {
                    let adopts = matches!(found, Found::Adopted(_));
                    diff.bring_in_order(adopts.then(|| adopted(balancer)));
                    let (status, unsure) = status::ingress(balancer, &desired, &self.project);
                    plan.status = Some(status);
                    plan.unsure = unsure;
                }
            }
        }
        primary_ips::report(&mut parser, &context, &desired, there);
        match parser.problems.is_empty() {
            true => (_, plan.findings) = parser.end(),
            false => plan = refused(plan, parser),
        }
        plan
    }

    fn plan_removal(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan {
        let mut plan = LoadBalancerPlan::default();
        let balancer = match by_label(&self.observed.balancers, service) {
            Ok(Some(balancer)) => balancer,
            Ok(None) => return plan,
            Err(why) => {
                plan.obstacle = Some(Finding::warning(Reason::DeleteLoadBalancerFailed, why));
                return plan;
            }
        };
        plan.found = Some(status::for_people(balancer, cluster));
        plan.is_labelled = true;
        if let Some(uid) = other_cluster(balancer, cluster) {
            plan.findings.push(left_to_its_cluster(balancer, uid));
            return plan;
        }
        match end_with_service(balancer, service.created, cluster) {
            End::Delete if balancer.protection.delete => plan.findings.push(protected(balancer)),
            End::Delete => plan.changes.push(self.removal(balancer, Purpose::Usual)),
            End::Release(why) => {
                plan.changes = release(&self.context(service, &[], cluster), balancer, &why)
            }
        }
        plan
    }

    fn health(&self, services: &HashSet<&str>) -> Vec<BalancerHealth> {
        // Names do not count.
        let names = &Cluster::default();
        let is_ours = |uid: &str| services.contains(uid);
        let ours = self.of_services(is_ours);
        ours.map(|one| status::for_people(one, names).health())
            .collect()
    }

    fn all(&self) -> Vec<(Balancer, String)> {
        let names = &Cluster::default();
        let shown = |one: &LoadBalancer| {
            let service = one.labels.get(SERVICE).cloned();
            (status::for_people(one, names), service.unwrap_or_default())
        };
        self.of_services(|_| true).map(shown).collect()
    }

    fn orphans(&self, cluster: &Cluster) -> Vec<Orphan> {
        let orphan = |balancer: &LoadBalancer| {
            let label = |name| balancer.labels.get(name).filter(|value| !value.is_empty());
            // A cluster whose UID could not be read has none.
            let is_ours = label(CLUSTER_UID) == Some(&cluster.uid);
            let service_uid = label(SERVICE_UID).filter(|_| is_ours)?;
            if cluster.service_uids.contains(service_uid) {
                return None;
            }
            let stays = why_it_stays(balancer, cluster);
            let is_deleted = stays.is_none();
            Some(Orphan {
                balancer: status::for_people(balancer, cluster),
                service: label(SERVICE).map_or("unknown", |name| name).to_owned(),
                service_uid: service_uid.clone(),
                removal: is_deleted.then(|| self.removal(balancer, Purpose::Orphan)),
                stays,
            })
        };
        self.observed.balancers.iter().filter_map(orphan).collect()
    }
}

impl Snapshot {
    /// Load balancers that carry such a UID.
    fn of_services(&self, is_it: impl Fn(&str) -> bool) -> impl Iterator<Item = &LoadBalancer> {
        let all = self.observed.balancers.iter();
        all.filter(move |one| {
            let uid = one.labels.get(SERVICE_UID);
            uid.is_some_and(|uid| !uid.is_empty() && is_it(uid))
        })
    }

    fn context<'a>(
        &'a self,
        service: &'a Service,
        nodes: &'a [OfferedNode],
        cluster: &'a Cluster,
    ) -> Context<'a> {
        let certificates = self.observed.certificates.as_deref().unwrap_or_default();
        Context {
            project: &self.project,
            observed: &self.observed,
            service,
            nodes,
            cluster,
            certificates: Certificates::new(certificates),
        }
    }

    /// Only while it is not protected, has these labels, and no port or target besides.
    fn removal(&self, balancer: &LoadBalancer, purpose: Purpose) -> Box<dyn provider::Change> {
        let name = format!("load balancer {}", balancer.shown());
        let deleted = Description::new(Verb::Delete, name, "");
        let id = Some(balancer.id);
        let mut change = Change::new(&self.project, Action::Delete, id, Value::Null, deleted);
        change.purpose = purpose;
        Box::new(change.guarded(Guard {
            seen: balancer.into(),
            ..Guard::default()
        }))
    }
}

/// Nodes that the other profile has initialised are not ours, so they would be removed from this load balancer: a
/// start with the wrong profile must not lose the traffic.
fn serves_other_profile(context: &Context, balancer: &LoadBalancer) -> Option<String> {
    let own = context.project.profile;
    let other = own.other();
    let is_target = |id: &str| match other.parse_provider_id(id) {
        ProviderId::Ours(server) => balancer
            .server_targets()
            .any(|(target, _)| Some(target) == server.cloud()),
        ProviderId::Foreign | ProviderId::Unknown(_) => false,
    };
    let mut nodes = context.cluster.foreign_nodes.iter();
    let (node, id) = nodes.find(|(_, id)| is_target(id))?;
    Some(format!(
        "load balancer {:?} sends traffic to node {node}, whose provider ID {id:?} is of profile {}: this runs as {}, \
         which would take the node out, so nothing is changed; run it with --cloud-provider={}",
        balancer.name,
        other.name(),
        own.name(),
        other.name()
    ))
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
    context: &Context,
    balancer: &LoadBalancer,
    why: &str,
) -> Vec<Box<dyn provider::Change>> {
    let shown = balancer.shown();
    let part = |action, body, description| {
        let mut part = Change::new(
            context.project,
            action,
            Some(balancer.id),
            body,
            description,
        );
        part.purpose = Purpose::Release;
        part
    };
    let mut parts = Vec::new();
    for port in balancer.services.iter().map(|one| one.listen_port) {
        let mut own = context.service.ports.iter();
        if own.any(|one| one.port == port && one.protocol == Protocol::Tcp) {
            let body = json!({ "listen_port": port });
            parts.push(part(
                Action::DeleteService,
                body,
                Description::new(Verb::Remove, format!("port {port}"), ""),
            ));
        }
    }
    for (target, _) in balancer.single_targets() {
        if status::node_name(target, context.cluster).is_some() {
            let name = format!("target {}", status::node_on(target, context.cluster));
            let removed = Description::new(Verb::Remove, name, "");
            let mut removal = part(Action::RemoveTarget, Value::Null, removed);
            removal.request.target = Some(target.in_request(None));
            parts.push(removal);
        }
    }
    let remove = balancer.labels.keys();
    let remove = remove.filter(|label| *label == SERVICE_UID || label.starts_with(OUR_PREFIX));
    let guard = Guard {
        seen: balancer.into(),
        set: BTreeMap::new(),
        remove: remove.cloned().collect(),
    };
    let release = Description::new(
        Verb::Release,
        format!("load balancer {shown}"),
        format!(", because {why}"),
    );
    let mut last = part(Action::Edit, Value::Null, release).guarded(guard);
    let released = format!(
        "Released load balancer {shown}: the ports, targets and labels of this Service were removed, and it was not deleted, \
         because {why}; it costs money until you delete it"
    );
    last.event = Some(Finding::info(Reason::LoadBalancerReleased, released).by_provider());
    parts.push(last);
    boxed(parts)
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

/// Nothing is done, and why. People are shown what differs from what is there all the same.
fn refused(plan: LoadBalancerPlan, parser: AnnotationParser) -> LoadBalancerPlan {
    let (problems, findings) = parser.end();
    let is_compared = plan.status.is_some();
    let why = problems.join("; ");
    LoadBalancerPlan {
        obstacle: (!problems.is_empty())
            .then(|| Finding::warning(Reason::SyncLoadBalancerFailed, why)),
        problems,
        findings,
        fields: plan.fields.into_iter().filter(|_| is_compared).collect(),
        found: plan.found,
        ..LoadBalancerPlan::default()
    }
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
            parser.finding(Finding::info(
                Reason::LoadBalancerTypeUnconfigured,
                format!(
                    "no type of load balancer is set, so it is an {}; annotation {} sets another",
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
    // None: only a manifest is checked; see `covers`.
    let types = observed.types.as_deref()?;
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
        let why = format!(
            "type {} of the load balancer is deprecated and ends after {}: choose another in annotation {}",
            kind.name,
            deprecation.unavailable_after,
            annotations::TYPE.key()
        );
        parser.warning(Reason::LoadBalancerTypeDeprecated, why);
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
