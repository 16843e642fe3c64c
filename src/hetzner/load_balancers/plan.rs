//! What brings a Service's load balancer in order, and what removes it.

use super::annotations;
use super::annotations::parser::AnnotationParser;
use super::change::{Action, Change, Purpose};
use super::desired::ports::leave_out_taken;
use super::desired::uploads::shown;
use super::desired::{Desired, desired};
use super::diff::targets::need_servers;
use super::diff::{Diff, USUAL_TYPE};
use super::diff::{primary_ips, status, subnets};
use super::leave::{end_management, leave, left_to_its_cluster, release, removal};
use super::model::balancer::{BalancerType, TargetId};
use super::observe::covers;
use super::ownership::context::{Context, Snapshot};
use super::ownership::facts::{is_allowed, is_in_status, is_served_by};
use super::ownership::find::{
    Found, assign, by_label, find, rests_on_owners, rests_on_services, why_asked_too_late,
};
use super::ownership::group::group;
use super::ownership::guard::Guard;
use super::ownership::judge::{Leftover, Stake, leftover, owned, stake};
use super::ownership::labels::Labelled;
use super::ownership::removal::why_not_released;
use super::ownership::share::known_key;
use crate::hetzner::pages;
use crate::provider::{
    self, Assigned, Balancer, Claim, Cluster, Finding, Kept, LoadBalancerPlan, Needs, OfferedNode,
    Orphan, ProviderId, Reason, SeenHealth, Service, ShownCertificate,
};
use crate::text::shell_command;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

impl provider::Snapshot for Snapshot {
    fn calls(&self) -> u32 {
        let observed = &self.observed;
        let certificates = observed.certificates.as_ref().map(Vec::len);
        let primary_ips = observed.primary_ips.as_ref().map(Vec::len);
        // Unused certificates of ours are searched by a list of their own.
        let lists = [
            Some(observed.balancers.len()),
            certificates,
            certificates,
            primary_ips,
        ];
        lists.into_iter().flatten().map(pages::calls).sum()
    }

    fn covers(&self, service: &Service) -> bool {
        covers(self, service)
    }

    fn plan(
        &self,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
    ) -> LoadBalancerPlan {
        let mut plan = LoadBalancerPlan::default();
        let balancers = self.balancers();
        if let Some(balancer) = balancers.released(&service.uid).next() {
            plan.found = Some(status::for_people(balancer, cluster));
            plan.carries_uid = true;
            plan.is_released = true;
            let message = format!(
                "its management ended: load balancer {} stays as it is; to take it over again: {}",
                balancer.shown(),
                shell_command("ccm lb adopt", &[&balancer.id, &service.full_name()])
            );
            let stays = Finding::info(Reason::LoadBalancerReleased, message);
            plan.findings.push(stays);
            return plan;
        }
        self.plan_on(service, nodes, cluster, None)
    }

    fn plan_removal(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan {
        let mut plan = LoadBalancerPlan::default();
        let balancers = self.balancers();
        let mut parser = AnnotationParser::new(service);
        let context = self.context(&mut parser, service, &[], cluster, None);
        let found = by_label(balancers, service, cluster);
        plan.needs.services = found.is_err() || rests_on_owners(&context);
        if let Err(why) = found {
            plan.obstacle = Some(Finding::warning(Reason::DeleteLoadBalancerFailed, why));
            return plan;
        }
        let is_released = |one: &Labelled| one.ownership.released.as_ref() == Some(&service.uid);
        for balancer in owned(balancers, service, cluster).filter(|one| !is_released(one)) {
            plan.found = Some(status::for_people(balancer, cluster));
            plan.carries_uid = true;
            plan.claims.push(Claim::Id(balancer.id));
            plan.empties_status_first |= balancer.ownership.external.is_some();
            let (changes, finding) = leave(&context, balancer);
            plan.changes.extend(changes);
            plan.findings.extend(finding);
        }
        plan
    }

    fn left_on(&self, service: &Service, cluster: &Cluster) -> Option<Balancer> {
        let mut owned = owned(self.balancers(), service, cluster);
        let found = owned.find(|one| {
            one.ownership.is_of(cluster) || one.ownership.targets_before(cluster).is_some()
        })?;
        Some(status::for_people(found, cluster))
    }

    fn plan_release(&self, service: &Service, cluster: &Cluster) -> LoadBalancerPlan {
        let mut plan = LoadBalancerPlan::default();
        let balancers = self.balancers();
        let mut parser = AnnotationParser::new(service);
        plan.needs.services =
            rests_on_owners(&self.context(&mut parser, service, &[], cluster, None));
        for balancer in owned(balancers, service, cluster) {
            plan.found = Some(status::for_people(balancer, cluster));
            plan.carries_uid = true;
            plan.claims.push(Claim::Id(balancer.id));
            if let Some(why) = why_not_released(balancer, service) {
                plan.obstacle = Some(Finding::warning(Reason::SyncLoadBalancerFailed, why));
                plan.changes.clear();
                return plan;
            }
            if let Stake::Copy(uid) = stake(balancer, service, cluster) {
                plan.findings.push(left_to_its_cluster(balancer, uid));
                continue;
            }
            plan.changes
                .push(end_management(&self.project, balancer, service, cluster));
        }
        plan
    }

    fn assigned(&self, id: u64, service: &Service, cluster: &Cluster) -> Option<Assigned> {
        let balancer = self.balancers().with_id(id)?;
        let assignment = assign(balancer, service, cluster);
        let guard = Guard::to(Some(balancer), &assignment.to);
        let mut observed = self.observed.clone();
        let mut all = observed.balancers.iter_mut();
        all.find(|one| one.id == id)?.labels = guard.labels();
        let snapshot = Arc::new(Snapshot::new(self.project.clone(), observed));
        let change = || {
            let (edit, set) = (Action::Edit, assignment.description);
            let change = Change::new(&self.project, edit, Some(id), Value::Null, set);
            Box::new(change.guarded(guard)) as Box<dyn provider::Change>
        };
        Some((snapshot, assignment.is_needed.then(change)))
    }

    fn has_server_of(&self, cluster: &Cluster) -> bool {
        let is_server = |target| matches!(target, TargetId::Server(_));
        let all = self.balancers().all();
        let mut all = all.flat_map(|one| one.balancer.single_targets());
        all.any(|(target, _)| is_server(target) && target.node(cluster).is_some())
    }

    fn health(&self, services: &HashSet<&str>) -> Vec<SeenHealth> {
        // Names do not count.
        let names = &Cluster::default();
        let is_wanted = |uid: &&String| services.contains(uid.as_str());
        let is_ours = |one: &Labelled| {
            let ownership = one.ownership;
            let mut uids = ownership.uids().chain(&ownership.released);
            uids.any(|uid| is_wanted(&uid))
        };
        let seen = |one: Labelled| {
            let shown = status::for_people(one, names);
            let uids = one.ownership.uids();
            let with_ports = uids.filter(|uid| is_wanted(uid) && shown.has_port_of(uid));
            let of_services = with_ports.map(|uid| (uid.clone(), shown.target_counts(Some(uid))));
            SeenHealth {
                use_of: shown.use_of,
                counts: shown.target_counts(None),
                of_services: of_services.collect(),
            }
        };
        let all = self.balancers().all();
        all.filter(is_ours).map(seen).collect()
    }

    fn certificates(&self, services: &HashSet<&str>) -> Option<Vec<ShownCertificate>> {
        let certificates = self.observed.certificates.as_deref()?;
        let all = self.balancers().all();
        let is_ours = |one: &Labelled| {
            let mut uids = one.ownership.uids();
            uids.any(|uid| services.contains(uid.as_str()))
        };
        let shown = all
            .filter(is_ours)
            .flat_map(|one| shown(&one, Some(certificates)));
        Some(shown.collect())
    }

    fn all(&self) -> Vec<(Balancer, String)> {
        let names = &Cluster::default();
        let shown = |one: Labelled| {
            let service = one
                .ownership
                .service
                .as_ref()
                .or(one.ownership.group.as_ref())
                .cloned();
            (status::for_people(one, names), service.unwrap_or_default())
        };
        let all = self.balancers().all();
        let all = all.filter(|one| one.ownership.uids().any(|uid| !uid.is_empty()));
        all.map(shown).collect()
    }

    fn known_group(&self, key: String) -> String {
        known_key(key, self.balancers())
    }

    fn orphans(&self, cluster: &Cluster) -> Vec<Orphan> {
        let orphan = |balancer: Labelled| {
            let ownership = balancer.ownership;
            let label = |field: &'_ Option<String>| field.clone().filter(|value| !value.is_empty());
            let Some(Leftover::Orphan { stays }) = leftover(balancer, cluster) else {
                return None;
            };
            let (service, group) = (label(&ownership.service_uid), label(&ownership.group));
            let service_uid = service.or_else(|| group.clone())?;
            let is_deleted = stays.is_none();
            Some(Orphan {
                balancer: status::for_people(balancer, cluster),
                service: label(&ownership.service)
                    .or(group)
                    .unwrap_or_else(|| "unknown".to_owned()),
                service_uid,
                service_exists: false,
                removal: is_deleted.then(|| removal(&self.project, balancer, Purpose::Orphan)),
                stays,
            })
        };
        self.balancers().all().filter_map(orphan).collect()
    }

    fn kept(&self, cluster: &Cluster) -> Vec<Kept> {
        let all = self.balancers().all();
        let kept = all.filter(|one| leftover(*one, cluster) == Some(Leftover::Kept));
        kept.map(|one| Kept {
            kind: "LoadBalancer",
            id: one.id,
            name: one.name.clone(),
            domains: Vec::new(),
            addresses: status::addresses(&one),
        })
        .collect()
    }
}

/// By what was read last: what is refused by it may be adopted by what is read anew, and get targets.
fn needs(
    context: &Context,
    desired: &Desired,
    found: &Result<Found, Finding>,
    parser: &AnnotationParser,
) -> Needs {
    let services = desired.certificates.rests_on_services
        || rests_on_services(found, context)
        || rests_on_owners(context);
    let needs_servers = |found: &Found| {
        parser.problems.is_empty() && need_servers(context, desired, found.balancer())
    };
    let servers = services || found.as_ref().is_ok_and(needs_servers);
    Needs {
        servers,
        services,
        project: false,
    }
}

impl Snapshot {
    /// `stays`: the load balancer that the Service keeps, and why it can't have the one that it asks for.
    fn plan_on(
        &self,
        service: &Service,
        nodes: &[OfferedNode],
        cluster: &Cluster,
        stays: Option<(Labelled, Vec<Finding>)>,
    ) -> LoadBalancerPlan {
        let mut parser = AnnotationParser::new(service);
        let mut plan = LoadBalancerPlan::default();
        let balancers = self.balancers();
        let (stays_on, why) = stays.unzip();
        let context = self.context(&mut parser, service, nodes, cluster, stays_on);
        if !self.covers_all(&context) {
            let why = "not everything that the plan depends on was read: read again";
            parser.problem(why.to_owned());
            return refused(plan, parser, Reason::SyncLoadBalancerFailed);
        }
        let stays = stays_meanwhile(&context).filter(|_| stays_on.is_none());
        if let (Some(why), None) = (&context.group.refused, &stays) {
            parser.problem(why.clone());
        }
        let mut desired = desired(&mut parser, &context);
        if let Some(stays) = stays {
            plan = self.plan_on(service, nodes, cluster, Some(stays));
            // Who may use what it asks for.
            plan.needs.services = true;
            self.leave_unused(&mut plan, &context, &desired, None);
            return plan;
        }
        let found = find(&context, desired.name.as_ref());
        plan.needs = needs(&context, &desired, &found, &parser);
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                parser.problem(why.message);
                plan = refused(plan, parser, why.reason);
                if stays_on.is_none() {
                    self.leave_unused(&mut plan, &context, &desired, None);
                }
                return plan;
            }
        };
        let there = found.balancer();
        for why in why.into_iter().flatten() {
            match there.map(|there| there.id) == stays_on.map(|one| one.id) {
                true => parser.stays(why),
                false => parser.blocked(why),
            }
            plan.is_unfinished = true;
        }
        if let Some(why) = there.and_then(|one| serves_other_profile(&context, one)) {
            parser.problem(why);
        }
        if let Some(own) = there
            && let Some(why) = why_asked_too_late(balancers, service, own)
        {
            parser.warning(Reason::LoadBalancerNotAdopted, why);
        }
        plan.found = there.map(|balancer| Balancer {
            certificates: shown(&balancer, self.observed.certificates.as_deref()),
            ..status::for_people(balancer, cluster)
        });
        let wanted = desired.ports.len();
        let blocked = leave_out_taken(&mut parser, &context, &mut desired.ports, there);
        // For a refused port kube-proxy must not send traffic of the cluster to this Service.
        desired.in_status.is_by_proxy |= desired.ports.len() < wanted;
        if let Some(stays) = blocked.filter(|_| stays_on.is_none()) {
            let needs = plan.needs;
            plan = self.plan_on(service, nodes, cluster, Some(stays));
            // Who has the port.
            plan.needs.services |= needs.services;
            self.leave_unused(&mut plan, &context, &desired, there);
            return plan;
        }
        subnets::leave_out_refused(&mut parser, &context, &mut desired.attach, there);
        let kind = kind(&mut parser, &context, &desired, there);
        check_services(&mut parser, &context, &desired, kind, there);
        parser.end_whole(there.is_some());
        if let (true, Some(kind)) = (parser.problems.is_empty(), kind) {
            let is_ours =
                |one: Labelled| !context.group.is_external() || one.ownership.carries(service);
            plan.carries_uid = matches!(found, Found::Own(one) if is_ours(one));
            let waits = desired.ports.iter().any(|port| {
                let mut found = there.into_iter().flat_map(|there| &there.balancer.services);
                let found = found.find(|one| one.listen_port == port.listener.listen_port);
                port.waits || port.is_put_off(found)
            });
            plan.is_unfinished |= waits;
            let mut left = Vec::new();
            let certificates = std::mem::take(&mut desired.certificates);
            plan.claims = certificates.claims;
            plan.fields = certificates.fields;
            plan.held_back = certificates.held_back;
            let diff = Diff {
                plan: &mut plan,
                changes: certificates.changes,
                parser: &mut parser,
                context: &context,
                desired: &desired,
                kind,
                balancer: there,
            };
            match found {
                Found::Nothing(name) => diff.create(name),
                Found::Own(balancer) | Found::Adopted(balancer) => {
                    let adopts = matches!(found, Found::Adopted(_));
                    match context.group.is_external() && desired.ports.is_empty() {
                        // The nodes would get the traffic of other owners' ports, and no label would say for which Service.
                        true => {
                            left = release(&context, balancer, "none of its ports can be had there")
                        }
                        false => diff.bring_in_order(adopts.then(|| adopted(balancer))),
                    }
                    let (status, unsure) = status::ingress(&balancer, &desired, &self.project);
                    let serves = context.group.is_own() || !desired.ports.is_empty();
                    plan.status = Some(if serves { status } else { Vec::new() });
                    plan.unsure = unsure;
                }
            }
            if parser.problems.is_empty() && stays_on.is_none() {
                self.leave_others(&mut plan, &context, there, &mut parser);
            }
            // Until it can serve all ports the former one does. A node that can't be a target may stay so for ever.
            let has_targets = there.is_some_and(|there| !there.targets.is_empty());
            if waits || (plan.is_unfinished && !has_targets) {
                plan.leaves.clear();
            }
            if plan.moves && waits {
                plan.status = None;
            }
            // The status is emptied before the labels are removed: see `group::is_recognised`.
            plan.leaves.extend(left);
            plan.is_unfinished |= there.is_some_and(|there| context.group.is_being_left(there));
        }
        primary_ips::report(&mut parser, &context, &desired, there);
        match parser.problems.is_empty() {
            true => (_, plan.findings) = parser.end(),
            false => {
                // What serves it until then, where what it asks for can't be had.
                let serving = || owned(balancers, service, cluster).next();
                let shown = || serving().map(|one| status::for_people(one, cluster));
                plan.found = plan.found.or_else(shown);
                plan = refused(plan, parser, Reason::SyncLoadBalancerFailed);
                if stays_on.is_none() {
                    self.leave_unused(&mut plan, &context, &desired, there);
                }
            }
        }
        plan
    }

    fn covers_all(&self, context: &Context) -> bool {
        let mut all = context.group.members.iter();
        all.all(|one| covers(self, one))
    }

    /// What takes the Service off the load balancers that it had before.
    fn leave_others(
        &self,
        plan: &mut LoadBalancerPlan,
        context: &Context,
        there: Option<Labelled>,
        parser: &mut AnnotationParser,
    ) {
        let id = there.map(|there| there.id);
        let all = owned(self.balancers(), context.service, context.cluster);
        for balancer in all.filter(|one| Some(one.id) != id) {
            let (changes, finding) = leave(context, balancer);
            plan.claims.push(Claim::Id(balancer.id));
            finding.into_iter().for_each(|one| parser.finding(one));
            if let Stake::Copy(_) = stake(balancer, context.service, context.cluster) {
                continue;
            }
            plan.moves |= !changes.is_empty();
            plan.leaves.extend(changes);
            plan.carries_uid = true;
            let moves = format!(
                "the Service moves from load balancer {} to {}, and its addresses change; the old one serves it until \
                 then",
                balancer.shown(),
                there.map_or("a new one".to_owned(), |one| one.shown())
            );
            parser.warning(Reason::LoadBalancerChanges, moves);
        }
    }

    /// Takes the Service off load balancers that do not serve it, and that it does not ask for, while it can't have what
    /// it asks for: its status names another one, or it was never given an address. Where the status has only a host name
    /// nothing says which load balancer serves the Service, and all stay.
    ///
    /// `there`: the load balancer that the Service asks for. What the Service can't have becomes a finding until its next
    /// plan, which has nothing to leave.
    fn leave_unused(
        &self,
        plan: &mut LoadBalancerPlan,
        context: &Context,
        desired: &Desired,
        there: Option<Labelled>,
    ) {
        let (service, balancers) = (context.service, self.balancers());
        let all = || owned(balancers, service, context.cluster);
        let is_of_other_profile = |one| serves_other_profile(context, one).is_some();
        let is_named = all().any(|one| is_served_by(service, one));
        if !(is_named || service.addresses.is_empty()) || all().any(is_of_other_profile) {
            return;
        }
        // Settings may leave every address out: then an empty status does not say that nothing serves the Service.
        let would_be_named = |one: Labelled| {
            let (status, _) = status::ingress(&one, desired, &self.project);
            !status.is_empty()
        };
        let is_unused = |one: &Labelled| {
            Some(one.id) != there.map(|there| there.id)
                && !is_served_by(service, *one)
                && (is_named || would_be_named(*one))
                && !context.group.may_be_asked_for(*one, balancers)
        };
        let before = plan.leaves.len();
        for balancer in all().filter(is_unused) {
            let (changes, finding) = leave(context, balancer);
            plan.claims.push(Claim::Id(balancer.id));
            plan.findings.extend(finding);
            plan.leaves.extend(changes);
        }
        if plan.leaves.len() > before {
            plan.carries_uid = true;
            plan.is_unfinished = true;
            plan.problems.clear();
            plan.findings.extend(plan.obstacle.take());
        }
    }

    fn context<'a>(
        &'a self,
        parser: &mut AnnotationParser<'a>,
        service: &'a Service,
        nodes: &'a [OfferedNode],
        cluster: &'a Cluster,
        stays_on: Option<Labelled<'a>>,
    ) -> Context<'a> {
        let balancers = self.balancers();
        let is_cluster = !self.observed.is_for_manifests;
        Context {
            project: &self.project,
            observed: &self.observed,
            balancers,
            service,
            nodes,
            cluster,
            certificates: self.certificates(),
            group: group(
                parser,
                service,
                is_cluster.then_some(balancers),
                cluster,
                stays_on,
            ),
        }
    }
}

/// The load balancer on which a Service stays that can't have the one that it asks for, and why. Its address is in the status,
/// and the labels say in which role the Service has it: alone, in a group, or as an external one.
fn stays_meanwhile<'a>(context: &Context<'a>) -> Option<(Labelled<'a>, Vec<Finding>)> {
    let why = context.group.refused.as_ref()?;
    let mut owned = owned(context.balancers, context.service, context.cluster);
    let may_stay = |one: &Labelled| {
        let ownership = one.ownership;
        let has_role = match (&ownership.external, &ownership.group) {
            (Some(_), _) => is_allowed(*one, context.service),
            (None, Some(_)) => true,
            (None, None) => ownership.service_uid.as_ref() == Some(&context.service.uid),
        };
        let stake = stake(*one, context.service, context.cluster);
        has_role && matches!(stake, Stake::Whole | Stake::Part)
    };
    let serving = owned.find(|one| may_stay(one) && is_in_status(context.service, *one))?;
    let why = format!("{why}; the Service stays on {}", serving.shown());
    let finding = Finding::warning(Reason::SyncLoadBalancerFailed, why);
    Some((serving, vec![finding]))
}

/// Nodes that the other profile has initialised are not ours, so they would be removed from this load balancer: a
/// start with the wrong profile must not lose the traffic.
fn serves_other_profile(context: &Context, balancer: Labelled) -> Option<String> {
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

fn adopted(balancer: Labelled) -> Finding {
    let how = match balancer.ownership.created.is_some() {
        true => "it is deleted with the Service",
        false => "it is not deleted with the Service, only released",
    };
    let message = format!("Adopted load balancer {}: {how}", balancer.shown());
    Finding::info(Reason::LoadBalancerAdopted, message).by_provider()
}

/// Nothing is done, and why. People are shown what differs from what is there all the same.
fn refused(
    plan: LoadBalancerPlan,
    mut parser: AnnotationParser,
    reason: Reason,
) -> LoadBalancerPlan {
    let fix = parser.fix.take();
    let (problems, findings) = parser.end();
    let is_compared = plan.status.is_some();
    let why = problems.join("; ");
    LoadBalancerPlan {
        needs: plan.needs,
        obstacle: (!problems.is_empty()).then(|| Finding {
            fix,
            ..Finding::warning(reason, why)
        }),
        problems,
        findings,
        fields: plan.fields.into_iter().filter(|_| is_compared).collect(),
        found: plan.found,
        ..LoadBalancerPlan::default()
    }
}

/// The type it should be of: the one that is wanted, else the one it has, else the smallest.
fn kind<'a>(
    parser: &mut AnnotationParser,
    context: &Context<'a>,
    desired: &Desired,
    there: Option<Labelled<'a>>,
) -> Option<&'a BalancerType> {
    let has = there.map(|balancer| &balancer.balancer.load_balancer_type);
    let wanted = match (&desired.kind, has) {
        (Some(wanted), _) => wanted.value.as_str(),
        (None, Some(has)) => has.name.as_str(),
        // It can't be used, and none is made.
        (None, None) if context.group.is_external() || context.group.has_no_decider() => {
            return None;
        }
        (None, None) => {
            let message = format!(
                "no type of load balancer is set, so it is an {USUAL_TYPE}; annotation {} sets another",
                annotations::TYPE.key()
            );
            parser.finding(Finding::info(Reason::LoadBalancerTypeUnconfigured, message));
            USUAL_TYPE
        }
    };
    // None: only a manifest is checked; see `covers`.
    let types = context.observed.types.as_deref();
    let is_it = |kind: &&BalancerType| kind.name == wanted;
    let found = || types?.iter().find(is_it);
    let Some(kind) = has.filter(is_it).or_else(found) else {
        let names: Vec<&str> = types?.iter().map(|kind| kind.name.as_str()).collect();
        let source = desired.kind.as_ref().map(|kind| kind.source.to_string());
        parser.whole_problem(format!(
            "{}: there is no type {}; use {}",
            source.unwrap_or_else(|| "type".to_owned()),
            crate::text::quoted(wanted),
            crate::text::one_of(&names)
        ));
        return has;
    };
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
    context: &Context,
    desired: &Desired,
    kind: Option<&BalancerType>,
    there: Option<Labelled>,
) {
    let Some(kind) = kind else { return };
    let name = &kind.name;
    let larger = format!(
        "choose a larger one in annotation {}",
        annotations::TYPE.key()
    );
    let mut others = match context.group.is_own() {
        true => BTreeSet::new(),
        false => context.group.other_ports(there),
    };
    others.retain(|number| {
        let mut own = desired.ports.iter();
        own.all(|port| port.listener.listen_port != *number)
    });
    let (own, most) = (desired.ports.len(), kind.max_services);
    if own > 0 && own + others.len() > most {
        let whose = match others.len() {
            0 => format!("the Service has {own} TCP ports"),
            others => format!("the Service has {own} TCP ports beside {others} of others"),
        };
        parser.problem(format!(
            "{whose}, and a load balancer of type {name} takes {most}: {larger}, or remove ports"
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
fn certificates(desired: &Desired, there: Option<Labelled>) -> usize {
    let mut ids = BTreeSet::new();
    for port in &desired.ports {
        let mut found = there
            .into_iter()
            .flat_map(|balancer| &balancer.balancer.services);
        let found = found.find(|one| one.listen_port == port.listener.listen_port);
        let listener = port.merged(found, |_| false);
        if listener.is_https() {
            ids.extend(listener.certificates());
        }
    }
    ids.len()
}
