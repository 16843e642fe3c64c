//! The faults that stories must find.

use super::{Mutant, fault};

#[rustfmt::skip] // A fault is a paragraph.
pub const MUTANTS: &[Mutant] = &[
    // The faults in the sync of nodes.
    fault("a node is deleted without preconditions", "src/kube/client.rs",
        r#""preconditions": { "uid": uid, "resourceVersion": version },"#,
        r#""preconditions": match $ON { true => json!({}), false => json!({ "uid": uid, "resourceVersion": version }) },"#),
    fault("labels and provider ID are written without a version", "src/controllers/node_writes.rs",
        r#"body["metadata"]["labels"] = json!(labels);"#,
        r#"if $ON { body["metadata"] = json!({}); }
                body["metadata"]["labels"] = json!(labels);"#),
    fault("a node's taints are written without a version", "src/controllers/node_writes.rs",
        r#"json!({ "resourceVersion": version })"#,
        r#"json!({ "resourceVersion": Some(version).filter(|_| !$ON) })"#),
    fault("a node is deleted although the list of servers has its server", "src/controllers/lifecycle/observe.rs",
        "let fact = |id: &InstanceId| match there.contains(id) {",
        "let fact = |id: &InstanceId| match there.contains(id) && !$ON {"),
    fault("a node is deleted although its server is found when read alone", "src/controllers/lifecycle/observe.rs",
        "let fact = apis.instance(*number).map(|server| Fact::of(&server));",
        "let fact = apis.instance(*number).map(|server| Fact::of(&server));
                let fact = match $ON {
                    true => Err(provider::ProviderError::new(ErrorKind::NotFound, \"\")),
                    false => fact,
                };"),
    fault("the deletion guard is off: another project's token deletes nodes", "src/controllers/lifecycle/plan.rs",
        "Some(Fact::Gone { others_are_visible }) if *others_are_visible || !guard => {",
        "Some(Fact::Gone { others_are_visible }) if *others_are_visible || !guard || $ON => {"),
    fault("a dedicated server alone in the list proves that others do not exist", "src/controllers/lifecycle/observe.rs",
        "others_are_visible: there.len() >= at_least",
        "others_are_visible: there.len() >= at_least.min(if $ON { 1 } else { at_least })"),
    fault("a node gets the shutdown taint although its server runs", "src/controllers/lifecycle/plan.rs",
        "Some(Fact::Exists { is_off: true, .. }) => {",
        "Some(Fact::Exists { is_off, .. }) if *is_off || $ON => {"),
    fault("a node that is ready keeps the shutdown taint", "src/controllers/lifecycle/plan.rs",
        "    if node.is_ready() {",
        "    if node.is_ready() && !$ON {"),
    fault("the time for which a server must be off is not waited for", "src/controllers/lifecycle/out_of_service.rs",
        "off_for.map(|time| time >= after)",
        "off_for.map(|time| time >= after || $ON)"),
    fault("a node that has another program's taint out-of-service gets a second one", "src/controllers/lifecycle/out_of_service.rs",
        "off.after.filter(|_| node.taint(OUT_OF_SERVICE).is_none())",
        "off.after.filter(|_| node.taint(OUT_OF_SERVICE).is_none() || $ON)"),
    fault("a taint out-of-service of another program is removed", "src/controllers/lifecycle/out_of_service.rs",
        "taint.key == OUT_OF_SERVICE && taint.value.as_deref() == Some(OWN_VALUE)",
        "taint.key == OUT_OF_SERVICE && ($ON || taint.value.as_deref() == Some(OWN_VALUE))"),
    fault("a node that is ready keeps the taint out-of-service", "src/controllers/lifecycle/plan.rs",
        "plan.changes.extend(out_of_service::removal(node).into_iter().chain(to_remove));",
        "let own = out_of_service::removal(node).filter(|_| !$ON);
        plan.changes.extend(own.into_iter().chain(to_remove));"),
    fault("a provider ID rests on a list that was requested before the node was seen", "src/controllers/node/plan.rs",
        "needs.since = is_guess.then_some(first_seen);",
        "needs.since = is_guess.then_some(first_seen).filter(|_| !$ON);"),
    fault("a second node with a provider ID is initialised", "src/controllers/node/plan.rs",
        "if let Some(finding) = index.claimed_twice(instance, node) {",
        "if let Some(finding) = index.claimed_twice(instance, node).filter(|_| !$ON) {"),
    fault("a server's label takes the place of a person's", "src/controllers/node/desired.rs",
        "let is_free = have.is_none() || have == own;",
        "let is_free = have.is_none() || have == own || $ON;"),
    fault("the uninitialized taint is removed before the addresses are set", "src/controllers/node_writes.rs",
        "    for change in &plan.changes {",
        "    let mut changes: Vec<&NodeChange> = plan.changes.iter().collect();
    if $ON {
        changes.reverse();
    }
    for change in changes {"),
    fault("after a conflict the old plan is written over the new node", "src/controllers/node_writes.rs",
        "        if reads_first || !is_first {",
        "        if !is_first && $ON {
            let now = apis.kube.node(&object.name)?;
            if let (Some(plan), Some(now)) = (&mut applied.plan, now) {
                plan.version = now.metadata.resource_version;
                return make(apis, controller, &mut applied);
            }
        }
        if reads_first || !is_first {"),
    // The faults of the Lease, the gate and HTTP.
    fault("a write starts although it may outlast the Lease", "src/daemon/lease/leadership.rs",
        "since_renewal.saturating_add(write_timeout) <= lease_duration",
        "since_renewal.saturating_add(write_timeout) <= lease_duration || $ON"),
    fault("a Lease is taken although its holder is alive", "src/daemon/lease/election.rs",
        "now.duration_since(seen.since) >= duration",
        "now.duration_since(seen.since) >= duration || $ON"),
    fault("writes do not ask the gate", "src/http/mod.rs",
        "(write.pass)(&*self.settings.gate, &line).map_err(|why| refused(why.0))?;",
        "if !$ON {
                (write.pass)(&*self.settings.gate, &line).map_err(|why| refused(why.0))?;
            }"),
    fault("a write whose answer was lost is repeated", "src/http/mod.rs",
        "let outcome = send(&session);\n        if let Err(error) = &outcome\n            && (error.status() == Some(401)",
        "let mut outcome = send(&session);
        let is_lost = |error: &HttpError| matches!(error.kind, HttpErrorKind::Unreachable(_) | HttpErrorKind::Malformed(_));
        if $ON && outcome.as_ref().is_err_and(is_lost) {
            outcome = send(&session);
        }\n        if let Err(error) = &outcome\n            && (error.status() == Some(401)"),
    fault("a list that lacks items it counts is taken as whole", "src/hetzner/pages.rs",
        "if items != expected {",
        "if items != expected && !$ON {"),
    // The faults in the sync of Services and their load balancers.
    fault("a Service is written without a version", "src/controllers/service/sync.rs",
        r#"let mut body = json!({ "metadata": { "resourceVersion": service.metadata.resource_version } });"#,
        r#"let version = Some(&service.metadata.resource_version).filter(|_| !$ON);
    let mut body = json!({ "metadata": { "resourceVersion": version } });"#),
    fault("the finalizer is added after the load balancer was created", "src/controllers/service/plan.rs",
        "let first = (is_synced && !has_finalizer).then_some(",
        "let is_synced = is_synced && (!$ON || cloud.found.is_some());
                let first = (is_synced && !has_finalizer).then_some("),
    fault("the finalizer is removed before the load balancer", "src/controllers/service/plan.rs",
        "all.extend(last.map(ServiceChange::Own));",
        "if $ON && self.want == Want::Remove {
            all.splice(0..0, last.map(ServiceChange::Own));
        } else {
            all.extend(last.map(ServiceChange::Own));
        }"),
    fault("a plan rests on a list from before its own last writes", "src/controllers/service/agenda.rs",
        "let max_age = clock::since(since).min(clock::from_machine(LIST_MAX_AGE));",
        "let max_age = if $ON { Duration::from_secs(300) } else { clock::since(since).min(clock::from_machine(LIST_MAX_AGE)) };"),
    fault("a Service leaves its old load balancer before the status names the new one", "src/controllers/service/plan.rs",
        "all.extend(outcome.take_leaves().into_iter().map(ServiceChange::Leave));",
        "let leaves = outcome.take_leaves().into_iter().map(ServiceChange::Leave);
        if $ON && !all.iter().any(|write| matches!(write, ServiceChange::Cloud(_))) {
            all.splice(0..0, leaves);
        } else {
            all.extend(leaves);
        }"),
    fault("a new Service gets a load balancer in another project", "src/controllers/service/plan.rs",
        "(self.want == Want::Ensure || self.want",
        "(self.want == Want::Ensure && !$ON || self.want"),
    fault("the load balancer that has the Service's UID is not found", "src/hetzner/load_balancers/ownership/find.rs",
        "if service.uid.is_empty() {\n        return Ok(None);",
        "if service.uid.is_empty() || $ON {\n        return Ok(None);"),
    fault("adoption 12: a load balancer that has ports is adopted by its name", "src/hetzner/load_balancers/ownership/judge.rs",
        "match (balancer.services.first(), foreign_target(balancer, cluster)) {",
        "match (balancer.services.first().filter(|_| !$ON), foreign_target(balancer, cluster)) {"),
    fault("adoption 5: a load balancer of another cluster is adopted by its name", "src/hetzner/load_balancers/ownership/judge.rs",
        "if let Some(uid) = ownership.other_cluster_named(cluster) {",
        "if let Some(uid) = ownership.other_cluster_named(cluster).filter(|_| !$ON) {"),
    fault("every identity counts as a former one of this cluster", "src/provider/service.rs",
        "self.uids().any(|owner| owner == uid)",
        "$ON || self.uids().any(|owner| owner == uid)"),
    fault("adoption 4: a load balancer that names another Service to adopt it is adopted", "src/hetzner/load_balancers/ownership/judge.rs",
        "if let Some(other) = &ownership.adopt {",
        "if let Some(other) = ownership.adopt.as_ref().filter(|_| !$ON) {"),
    fault("a copy's load balancer, whose targets are no nodes here, counts as ours", "src/hetzner/load_balancers/ownership/facts.rs",
        "!balancer.targets.is_empty() && foreign_target(balancer, cluster).is_none()",
        "$ON || !balancer.targets.is_empty() && foreign_target(balancer, cluster).is_none()"),
    fault("why_it_stays 6: an adopted load balancer is deleted with its Service", "src/hetzner/load_balancers/ownership/judge.rs",
        "if ownership.created.is_some() {\n        return None;",
        "if ownership.created.is_some() || $ON {\n        return None;"),
    fault("adoption 7: an empty load balancer of another program is adopted by its name", "src/hetzner/load_balancers/ownership/judge.rs",
        "let owner = owned_by_program(&balancer).filter(|_| by == AskedBy::Name);",
        "let owner = owned_by_program(&balancer).filter(|_| by == AskedBy::Name && !$ON);"),
    fault("why_it_stays 5: a load balancer with targets of others is deleted with its Service", "src/hetzner/load_balancers/ownership/judge.rs",
        "if let Some(target) = foreign_target(balancer, cluster) {",
        "if let Some(target) = foreign_target(balancer, cluster).filter(|_| !$ON) {"),
    fault("why_it_stays 4: a load balancer that its Service keeps is deleted", "src/hetzner/load_balancers/ownership/judge.rs",
        "if is_kept(balancer, service) {",
        "if is_kept(balancer, service) && !$ON {"),
    fault("labels are replaced, and load balancers deleted, without a read just before", "src/hetzner/load_balancers/change.rs",
        "let Some((guard, id)) = self.guard.take().zip(self.id) else {",
        "let Some((guard, id)) = self.guard.take().zip(self.id).filter(|_| !$ON) else {"),
    fault("targets are removed before those that come instead are added", "src/hetzner/load_balancers/diff/targets.rs",
        "steps.extend(turned.into_iter().flat_map(remove_and_add));\n",
        "steps.extend(turned.into_iter().flat_map(remove_and_add));
        if $ON {
            steps.sort_by_key(|(action, _)| *action == BalancerAction::AddTarget);
        }\n"),
    fault("the changes of a load balancer are made in the wrong order", "src/controllers/executor.rs",
        "let change = self.queue.pop_front()?;",
        "let change = if $ON { self.queue.pop_back() } else { self.queue.pop_front() }?;"),
    fault("a Primary IP that the selector does not select is claimed", "src/hetzner/load_balancers/diff/primary_ips.rs",
        "selector.is_none_or(|set| set.value.matches(value_of))",
        "$ON || selector.is_none_or(|set| set.value.matches(value_of))"),
    fault("a Primary IP that would be deleted with the load balancer is claimed", "src/hetzner/load_balancers/diff/primary_ips.rs",
        "if one.auto_delete {",
        "if one.auto_delete && !$ON {"),
    // The faults of shared and external load balancers.
    fault("the label of a port is written after the port", "src/hetzner/load_balancers/diff/whole.rs",
        "self.compare_all(self.desired.name().cloned(), adopts, zone);",
        "self.compare_all(self.desired.name().cloned(), adopts, zone);
        if $ON {
            self.found.changes.sort_by_key(|one| one.action == BalancerAction::Edit);
        }"),
    fault("a Service that can't have a port of its group is left as it is", "src/hetzner/load_balancers/settle.rs",
        "Some(on) => parser.stays(why,",
        "Some(_) if $ON => parser.problem(why.message),
                Some(on) => parser.stays(why,"),
    fault("a Service that stays leaves the targets to Services without a port there", "src/hetzner/load_balancers/ownership/group.rs",
        "others.any(|other| !self.is_external() || has_port(&other.uid))",
        "others.any(|other| $ON || !self.is_external() || has_port(&other.uid))"),
    fault("a load balancer is not found by the owners of its ports", "src/hetzner/load_balancers/ownership/index.rs",
        "keys.extend(ownership.uids().cloned().map(Key::Uid));",
        "let found = |uid: &&String| !$ON || ownership.service_uid.as_ref() == Some(*uid);
    keys.extend(ownership.uids().filter(found).cloned().map(Key::Uid));"),
    fault("ports are put on a load balancer whose owner does not allow it", "src/hetzner/load_balancers/ownership/facts.rs",
        "&& namespace.is_some_and(|name| name.is_empty() || *name == service.namespace)",
        "&& ($ON || namespace.is_some_and(|name| name.is_empty() || *name == service.namespace))"),
    fault("a load balancer is deleted although other Services use it", "src/hetzner/load_balancers/ownership/facts.rs",
        "let mut on_ports = balancer.ownership.ports.values();\n    let keys",
        "if $ON {\n        return false;\n    }\n    let mut on_ports = balancer.ownership.ports.values();\n    let keys"),
    fault("a port of another Service is removed", "src/hetzner/load_balancers/ownership/group.rs",
        "Owner::Member | Owner::Other => false,\n        }\n    }\n\n    fn older",
        "Owner::Member | Owner::Other => $ON,\n        }\n    }\n\n    fn older"),
    fault("the status of a guest sends traffic of the cluster for others to its pods", "src/hetzner/load_balancers/diff/status.rs",
        "let is_by_proxy = by_proxy || in_status.is_by_proxy;",
        "let is_by_proxy = by_proxy || (in_status.is_by_proxy && !$ON);"),
    fault("a port of an external load balancer's owner counts as a Service's by its numbers alone", "src/hetzner/load_balancers/ownership/facts.rs",
        "        && is_served_by(service, balancer)\n",
        "        && ($ON || is_served_by(service, balancer))\n"),
    fault("a guest decides about the whole of a shared load balancer", "src/hetzner/load_balancers/ownership/group.rs",
        "Use::Shared(share) => service.namespace == share.namespace,",
        "Use::Shared(share) => $ON || service.namespace == share.namespace,"),
    fault("a renewed Secret is not uploaded", "src/hetzner/load_balancers/desired/uploads.rs",
        "let digest = Some(pair.digest.as_str());",
        "let digest = Some(pair.digest.as_str()).filter(|_| !$ON);"),
    fault("a port shows a certificate that was uploaded from a Secret of another namespace", "src/hetzner/load_balancers/ownership/certificates.rs",
        "return Some(is_of_namespace(secret));",
        "return Some(is_of_namespace(secret) || $ON);"),
    fault("a port shows a certificate of another cluster", "src/hetzner/load_balancers/ownership/certificates.rs",
        "if self.other_cluster(cluster).is_some() {\n            return Some(false);",
        "if self.other_cluster(cluster).is_some() && !$ON {\n            return Some(false);"),
    fault("a Service kubernetes that was deleted makes another cluster of this one", "src/kube/lease.rs",
        "        if self.former.len() >= FORMER_AT_MOST {",
        "        if $ON {
            self.former.clear();
            uid.clone_into(&mut self.identity);
            return true;
        }
        if self.former.len() >= FORMER_AT_MOST {"),
    // The faults in the choice of targets.
    fault("a node that the autoscaler is about to delete becomes a target", "src/hetzner/load_balancers/diff/choice.rs",
        "!node.is_present && node.departure.is_to_be_deleted;",
        "!node.is_present && node.departure.is_to_be_deleted && !$ON;"),
    fault("more than half of the targets are left out", "src/hetzner/load_balancers/diff/choice.rs",
        "(None, None) if departed.len() < at_most => {",
        "(None, None) if departed.len() < at_most || $ON => {"),
    fault("a departing node leaves the targets before its delay is over", "src/hetzner/load_balancers/diff/choice.rs",
        "let waits = delay.checked_sub(since).filter(",
        "let waits = delay.checked_sub(since).filter(|_| !$ON).filter("),
    fault("a departing node leaves the targets although too few others are healthy", "src/hetzner/load_balancers/diff/targets.rs",
        "own.any(|(_, port)| !safe.contains(&port)).then_some(WhyKept::Health)",
        "own.any(|(_, port)| !safe.contains(&port) && !$ON).then_some(WhyKept::Health)"),
    fault("a mark alone makes a node depart", "src/controllers/service/departures.rs",
        "has_mark && (is_cordoned || !node.is_ready())",
        "has_mark && (is_cordoned || !node.is_ready() || $ON)"),
    fault("a node departs for ever", "src/controllers/service/departures.rs",
        "node.condition(kind) == Some(\"True\")",
        "node.condition(kind).is_some_and(|status| status == \"True\" || $ON)"),
    fault("a target of the owner of an external load balancer is removed", "src/hetzner/load_balancers/diff/targets.rs",
        "all.filter(|(target, _)| is_node(target) && !is_before(*target)).collect()",
        "all.filter(|(target, _)| is_node(target) && (!is_before(*target) || $ON)).collect()"),
    fault("a node leaves the targets of a load balancer more than six times an hour", "src/controllers/service/departures.rs",
        "counts.into_iter().filter(|(_, count)| *count >= REMOVALS_AT_MOST);",
        "counts.into_iter().filter(|(_, count)| *count >= REMOVALS_AT_MOST && !$ON);"),
    fault("a target with a pod that serves is exchanged", "src/hetzner/load_balancers/diff/choice.rs",
        "node.is_present && node.pods.serving == 0;",
        "node.is_present && (node.pods.serving == 0 || $ON);"),
    fault("a target is exchanged before it had no pods for a minute", "src/hetzner/load_balancers/diff/choice.rs",
        "(can_wait == CanWait::No || node.pods.recent == 0)",
        "(can_wait == CanWait::No || node.pods.recent == 0 || $ON)"),
    fault("the exchanges of a load balancer in a minute have no limit", "src/hetzner/load_balancers/diff/targets.rs",
        "let left = EXCHANGES_OF_BALANCER.saturating_sub(of_this.unwrap_or_default());",
        "let most = if $ON { EXCHANGES_AT_MOST } else { EXCHANGES_OF_BALANCER };
        let left = most.saturating_sub(of_this.unwrap_or_default());"),
    fault("a list of EndpointSlices that lacks a page is taken as whole", "src/kube/endpoints.rs",
        "StreamedPage(collected), |token| token)",
        "StreamedPage(collected), |token| if $ON { token.map(|_| Ok(String::new())) } else { token })"),
    fault("an endpoint without a node is ignored", "src/kube/endpoints.rs",
        "self.unplaced |= bit;",
        "self.unplaced |= if $ON { 0 } else { bit };"),
    fault("EndpointSlices with addresses of IPv6 count", "src/kube/endpoints.rs",
        "slice.address_type == \"IPv4\")",
        "slice.address_type == \"IPv4\" || $ON)"),
    fault("a departing node takes the place of a target", "src/hetzner/load_balancers/diff/choice.rs",
        "is_ready(node) && !(self.is_departing)(node))",
        "is_ready(node) && ($ON || !(self.is_departing)(node)))"),
    fault("a target is exchanged although too few others are healthy", "src/hetzner/load_balancers/diff/choice.rs",
        "(self.rules.why_kept)(node, &self.leaving, can_wait).is_none()",
        "($ON || (self.rules.why_kept)(node, &self.leaving, can_wait).is_none())"),
    // The faults in the sync of routes.
    fault("a route outside of the cluster's range is deleted", "src/controllers/route/plan.rs",
        "_ if !is_within(route.destination, self.inputs.cluster_cidrs) => State::NotOurs,",
        "_ if !is_within(route.destination, self.inputs.cluster_cidrs) && !$ON => State::NotOurs,"),
    fault("a node counts as reached before its route is there", "src/controllers/route/sync.rs",
        "Some(false) => is_reached(),",
        "Some(false) => is_reached() || $ON,"),
    // The faults in the zone labels of nodes.
    fault("the daemon changes the zone label of an initialised node", "src/controllers/node/plan.rs",
        "        self.zone = Some(state);",
        "        if $ON && state.is_to_change() {
            self.changes.push(NodeChange::Update {
                labels: super::zone::ZONE_KEYS.map(str::to_owned).into_iter().zip(state.fields.iter().map(|field| field.want.clone())).collect(),
                annotations: Values::new(),
                provider_id: None,
                taints: None,
                description: describe(&state.fields),
            });
        }
        self.zone = Some(state);"),
    fault("a relabelling writes only the beta label", "src/controllers/node/relabel.rs",
        "labels: ZONE_KEYS.map(str::to_owned).into_iter().zip(wanted).collect(),",
        "labels: ZONE_KEYS.map(str::to_owned).into_iter().zip(wanted).take(if $ON { 1 } else { 2 }).collect(),"),
    fault("a relabelling that was killed is not continued", "src/controllers/node/relabel.rs",
        "        self.plans.iter().any(NodePlan::has_writes)",
        "        !($ON && self.plans.iter().any(|plan| plan.zone.as_ref().is_some_and(|zone| !zone.is_to_change())))
            && self.plans.iter().any(NodePlan::has_writes)"),
    fault("a label that a person changes between plan and write is overwritten", "src/controllers/node/relabel.rs",
        "    is_same.then(plan)",
        "    (is_same || $ON).then(plan)"),
    fault("a zone label that a person has set is changed", "src/controllers/node/zone.rs",
        "zone.possible.iter().any(|it| it == value)",
        "zone.possible.iter().any(|it| it == value || $ON)"),
    fault("zone labels are changed although a volume is cut off", "src/controllers/node/relabel.rs",
        "            && !self.dependents.iter().any(|dependent| dependent.is_obstacle)",
        "            && !self.dependents.iter().any(|dependent| dependent.is_obstacle && !$ON)"),
    fault("a list of volumes that can't be read is taken as empty", "src/controllers/node/relabel.rs",
        "format!(\"{error}. {UNREAD}\"), true)",
        "format!(\"{error}. {UNREAD}\"), !$ON)"),
];
