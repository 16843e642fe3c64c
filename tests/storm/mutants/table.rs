//! The faults. `new` is `old` with the fault where `$ON` holds.

use super::Mutant;

pub const MUTANTS: &[Mutant] = &[
    // Nodes.
    Mutant {
        name: "a node is deleted without preconditions",
        file: "src/kube/client.rs",
        old: r#""preconditions": { "uid": uid, "resourceVersion": version },"#,
        new: r#""preconditions": match $ON { true => json!({}), false => json!({ "uid": uid, "resourceVersion": version }) },"#,
    },
    Mutant {
        name: "labels and provider ID are written without a version",
        file: "src/controllers/node/mod.rs",
        old: r#""metadata": { "resourceVersion": version, "labels": labels },"#,
        new: r#""metadata": { "resourceVersion": Some(version).filter(|_| !$ON), "labels": labels },"#,
    },
    Mutant {
        name: "a node's taints are written without a version",
        file: "src/controllers/lifecycle/mod.rs",
        old: r#""metadata": { "resourceVersion": version },"#,
        new: r#""metadata": { "resourceVersion": Some(version).filter(|_| !$ON) },"#,
    },
    Mutant {
        name: "a node is deleted although the list of servers has its server",
        file: "src/controllers/lifecycle/observe.rs",
        old: "let fact = |id: &InstanceId| match there.contains(id) {",
        new: "let fact = |id: &InstanceId| match there.contains(id) && !$ON {",
    },
    Mutant {
        name: "a node is deleted although its server is found when read alone",
        file: "src/controllers/lifecycle/observe.rs",
        old: "let is_off = apis.instance(*number).map(|server| server.is_off);",
        new: "let is_off = apis.instance(*number).map(|server| server.is_off);
                let is_off = match $ON {
                    true => Err(provider::Error::new(ErrorKind::NotFound, \"\")),
                    false => is_off,
                };",
    },
    Mutant {
        name: "the deletion guard is off: another project's token deletes nodes",
        file: "src/controllers/lifecycle/plan.rs",
        old: "Some(Fact::Gone { others_are_visible }) if *others_are_visible || !guard => {",
        new: "Some(Fact::Gone { others_are_visible }) if *others_are_visible || !guard || $ON => {",
    },
    Mutant {
        name: "a dedicated server alone in the list proves that others do not exist",
        file: "src/controllers/lifecycle/observe.rs",
        old: "others_are_visible: there.len() >= at_least",
        new: "others_are_visible: there.len() >= at_least.min(if $ON { 1 } else { at_least })",
    },
    Mutant {
        name: "a node gets the shutdown taint although its server runs",
        file: "src/controllers/lifecycle/plan.rs",
        old: "Some(Fact::Exists { is_off: true }) if node.taint(SHUTDOWN).is_none() => {",
        new: "Some(Fact::Exists { is_off }) if (*is_off || $ON) && node.taint(SHUTDOWN).is_none() => {",
    },
    Mutant {
        name: "a node that is ready keeps the shutdown taint",
        file: "src/controllers/lifecycle/plan.rs",
        old: "plan.change = node.taint(SHUTDOWN).map(|_| Change::RemoveShutdownTaint {",
        new: "plan.change = node.taint(SHUTDOWN).filter(|_| !$ON).map(|_| Change::RemoveShutdownTaint {",
    },
    Mutant {
        name: "a provider ID rests on a list that was requested before the node was seen",
        file: "src/controllers/node/mod.rs",
        old: "if plan.needs_later_list() && plan.is_of_cloud() {",
        new: "if plan.needs_later_list() && plan.is_of_cloud() && !$ON {",
    },
    Mutant {
        name: "a second node with a provider ID is initialised",
        file: "src/controllers/node/plan.rs",
        old: "if let Some(finding) = index.claimed_twice(instance, node) {",
        new: "if let Some(finding) = index.claimed_twice(instance, node).filter(|_| !$ON) {",
    },
    Mutant {
        name: "a server's label takes the place of a person's",
        file: "src/controllers/node/desired.rs",
        old: "let is_free = have.is_none() || have == own;",
        new: "let is_free = have.is_none() || have == own || $ON;",
    },
    Mutant {
        name: "the uninitialized taint is removed before the addresses are set",
        file: "src/controllers/node/mod.rs",
        old: "    for change in &plan.changes {\n        let body = patch(change, &version);",
        new: "    let mut changes: Vec<&Change> = plan.changes.iter().collect();
    if $ON {
        changes.reverse();
    }
    for change in changes {\n        let body = patch(change, &version);",
    },
    Mutant {
        name: "after a conflict the old plan is written over the new node",
        file: "src/controllers/node/mod.rs",
        old: "    let written = retry_on_conflict(|is_first| {\n        if !is_first {\n            let node = apis.kube.node(&object.name)?;\n            applied.plan",
        new: "    let written = retry_on_conflict(|is_first| {\n        if !is_first && $ON {
            if let (Some(plan), Some(now)) = (&mut applied.plan, apis.kube.node(&object.name)?) {
                plan.node.metadata.resource_version = now.metadata.resource_version.clone();
            }
        } else if !is_first {\n            let node = apis.kube.node(&object.name)?;\n            applied.plan",
    },
    // The Lease, the gate, HTTP.
    Mutant {
        name: "a write starts although it may outlast the Lease",
        file: "src/daemon/lease/leadership.rs",
        old: "since_renewal.saturating_add(write_timeout) <= lease_duration",
        new: "since_renewal.saturating_add(write_timeout) <= lease_duration || $ON",
    },
    Mutant {
        name: "a Lease is taken although its holder is alive",
        file: "src/daemon/lease/election.rs",
        old: "now.duration_since(seen.since) >= duration",
        new: "now.duration_since(seen.since) >= duration || $ON",
    },
    Mutant {
        name: "writes do not ask the gate",
        file: "src/http/mod.rs",
        old: "pass(&*self.settings.gate, &line).map_err(|why| refused(why.0))?;",
        new: "if !$ON {
                pass(&*self.settings.gate, &line).map_err(|why| refused(why.0))?;
            }",
    },
    Mutant {
        name: "a write whose answer was lost is repeated",
        file: "src/http/mod.rs",
        old: "let outcome = send(&session);\n        if let Err(error) = &outcome\n            && (error.status() == Some(401)",
        new: "let mut outcome = send(&session);
        let is_lost = |error: &Error| matches!(error.kind, Kind::Unreachable(_) | Kind::Malformed(_));
        if $ON && outcome.as_ref().is_err_and(is_lost) {
            outcome = send(&session);
        }\n        if let Err(error) = &outcome\n            && (error.status() == Some(401)",
    },
    Mutant {
        name: "a list that lacks items it counts is taken as whole",
        file: "src/hetzner/pages.rs",
        old: "if items != expected {",
        new: "if items != expected && !$ON {",
    },
    // Services and their load balancers.
    Mutant {
        name: "a Service is written without a version",
        file: "src/controllers/service/sync.rs",
        old: r#"let mut body = json!({ "metadata": { "resourceVersion": service.metadata.resource_version } });"#,
        new: r#"let version = Some(&service.metadata.resource_version).filter(|_| !$ON);
    let mut body = json!({ "metadata": { "resourceVersion": version } });"#,
    },
    Mutant {
        name: "the finalizer is added after the load balancer was created",
        file: "src/controllers/service/sync.rs",
        old: "match self.write(task, plan, ServicePlan::first_write) {",
        new: "match if $ON { Ok(true) } else { self.write(task, plan, ServicePlan::first_write) } {",
    },
    Mutant {
        name: "the finalizer is removed before the load balancer",
        file: "src/controllers/service/sync.rs",
        old: "if plan.changes().is_empty() {\n            return self.finish(work.task, work.plan);",
        new: "if plan.changes().is_empty() || ($ON && plan.want == Want::Remove) {\n            return self.finish(work.task, work.plan);",
    },
    Mutant {
        name: "a plan rests on a list from before its own last writes",
        file: "src/controllers/service/sync.rs",
        old: "let max_age = clock::since(listed_since).min(clock::from_machine(LIST_MAX_AGE));",
        new: "let max_age = if $ON { Duration::from_secs(300) } else { clock::since(listed_since).min(clock::from_machine(LIST_MAX_AGE)) };",
    },
    Mutant {
        name: "a Service leaves its old load balancer before the status names the new one",
        file: "src/controllers/service/plan.rs",
        old: "            && self.first_write().is_none()\n            && self.last_write().is_none()",
        new: "            && ($ON || self.first_write().is_none())\n            && ($ON || self.last_write().is_none())",
    },
    Mutant {
        name: "a new Service gets a load balancer in another project",
        file: "src/controllers/service/plan.rs",
        old: "(self.want == Want::Ensure || self.want",
        new: "(self.want == Want::Ensure && !$ON || self.want",
    },
    Mutant {
        name: "the load balancer that has the Service's UID is not found",
        file: "src/hetzner/load_balancers/ownership/find.rs",
        old: "if service.uid.is_empty() {\n        return Ok(None);",
        new: "if service.uid.is_empty() || $ON {\n        return Ok(None);",
    },
    Mutant {
        name: "adoption 12: a load balancer that has ports is adopted by its name",
        file: "src/hetzner/load_balancers/ownership/judge.rs",
        old: "match (balancer.services.first(), foreign_target(balancer, cluster)) {",
        new: "match (balancer.services.first().filter(|_| !$ON), foreign_target(balancer, cluster)) {",
    },
    Mutant {
        name: "adoption 5: a load balancer of another cluster is adopted by its name",
        file: "src/hetzner/load_balancers/ownership/judge.rs",
        old: "if let Some(uid) = ownership.other_cluster_named(cluster) {",
        new: "if let Some(uid) = ownership.other_cluster_named(cluster).filter(|_| !$ON) {",
    },
    Mutant {
        name: "every identity counts as a former one of this cluster",
        file: "src/provider/service.rs",
        old: "self.uids().any(|one| one == uid)",
        new: "$ON || self.uids().any(|one| one == uid)",
    },
    Mutant {
        name: "adoption 4: a load balancer that names another Service to adopt it is adopted",
        file: "src/hetzner/load_balancers/ownership/judge.rs",
        old: "if let Some(other) = &ownership.adopt {",
        new: "if let Some(other) = ownership.adopt.as_ref().filter(|_| !$ON) {",
    },
    Mutant {
        name: "a copy's load balancer, whose targets are no nodes here, counts as ours",
        file: "src/hetzner/load_balancers/ownership/facts.rs",
        old: "!balancer.targets.is_empty() && foreign_target(balancer, cluster).is_none()",
        new: "$ON || !balancer.targets.is_empty() && foreign_target(balancer, cluster).is_none()",
    },
    Mutant {
        name: "why_it_stays 6: an adopted load balancer is deleted with its Service",
        file: "src/hetzner/load_balancers/ownership/judge.rs",
        old: "if ownership.created.is_some() {\n        return None;",
        new: "if ownership.created.is_some() || $ON {\n        return None;",
    },
    Mutant {
        name: "adoption 7: an empty load balancer of another program is adopted by its name",
        file: "src/hetzner/load_balancers/ownership/judge.rs",
        old: "let owner = owned_by_program(&balancer).filter(|_| by == AskedBy::Name);",
        new: "let owner = owned_by_program(&balancer).filter(|_| by == AskedBy::Name && !$ON);",
    },
    Mutant {
        name: "why_it_stays 5: a load balancer with targets of others is deleted with its Service",
        file: "src/hetzner/load_balancers/ownership/judge.rs",
        old: "if let Some(target) = foreign_target(balancer, cluster) {",
        new: "if let Some(target) = foreign_target(balancer, cluster).filter(|_| !$ON) {",
    },
    Mutant {
        name: "why_it_stays 4: a load balancer that its Service keeps is deleted",
        file: "src/hetzner/load_balancers/ownership/judge.rs",
        old: "if is_kept(balancer, service) {",
        new: "if is_kept(balancer, service) && !$ON {",
    },
    Mutant {
        name: "labels are replaced, and load balancers deleted, without a read just before",
        file: "src/hetzner/load_balancers/change.rs",
        old: "let Some((guard, id)) = self.guard.take().zip(self.id) else {",
        new: "let Some((guard, id)) = self.guard.take().zip(self.id).filter(|_| !$ON) else {",
    },
    Mutant {
        name: "targets are removed before those that come instead are added",
        file: "src/hetzner/load_balancers/diff/targets.rs",
        old: "steps.extend(turned.flat_map(|id| [(Action::RemoveTarget, id), (Action::AddTarget, id)]));\n",
        new: "steps.extend(turned.flat_map(|id| [(Action::RemoveTarget, id), (Action::AddTarget, id)]));
        if $ON {
            steps.sort_by_key(|(action, _)| *action == Action::AddTarget);
        }\n",
    },
    Mutant {
        name: "the changes of a load balancer are made in the wrong order",
        file: "src/controllers/executor.rs",
        old: "let change = self.queue.pop_front()?;",
        new: "let change = if $ON { self.queue.pop_back() } else { self.queue.pop_front() }?;",
    },
    Mutant {
        name: "a Primary IP that the selector does not select is claimed",
        file: "src/hetzner/load_balancers/diff/primary_ips.rs",
        old: "selector.is_none_or(|set| set.value.matches(value_of))",
        new: "$ON || selector.is_none_or(|set| set.value.matches(value_of))",
    },
    Mutant {
        name: "a Primary IP that would be deleted with the load balancer is claimed",
        file: "src/hetzner/load_balancers/diff/primary_ips.rs",
        old: "if one.auto_delete {",
        new: "if one.auto_delete && !$ON {",
    },
    // Shared and external load balancers.
    Mutant {
        name: "the label of a port is written after the port",
        file: "src/hetzner/load_balancers/diff/whole.rs",
        old: "self.compare_all(self.desired.name().cloned(), adopts, zone);",
        new: "self.compare_all(self.desired.name().cloned(), adopts, zone);
        if $ON {
            self.found.changes.sort_by_key(|one| one.action == Action::Edit);
        }",
    },
    Mutant {
        name: "a Service that can't have a port of its group is left as it is",
        file: "src/hetzner/load_balancers/settle.rs",
        old: "parser.stays(why)",
        new: "if $ON { parser.problem(why.message) } else { parser.stays(why) }",
    },
    Mutant {
        name: "a load balancer is not found by the owners of its ports",
        file: "src/hetzner/load_balancers/ownership/index.rs",
        old: "keys.extend(ownership.uids().cloned().map(Key::Uid));",
        new: "let found = |uid: &&String| !$ON || ownership.service_uid.as_ref() == Some(*uid);
    keys.extend(ownership.uids().filter(found).cloned().map(Key::Uid));",
    },
    Mutant {
        name: "ports are put on a load balancer whose owner does not allow it",
        file: "src/hetzner/load_balancers/ownership/facts.rs",
        old: "&& namespace.is_some_and(|one| one.is_empty() || *one == service.namespace)",
        new: "&& ($ON || namespace.is_some_and(|one| one.is_empty() || *one == service.namespace))",
    },
    Mutant {
        name: "a load balancer is deleted although other Services use it",
        file: "src/hetzner/load_balancers/ownership/facts.rs",
        old: "let mut on_ports = balancer.ownership.ports.values();\n    let keys",
        new: "if $ON {\n        return false;\n    }\n    let mut on_ports = balancer.ownership.ports.values();\n    let keys",
    },
    Mutant {
        name: "a port of another Service is removed",
        file: "src/hetzner/load_balancers/ownership/group.rs",
        old: "Owner::Member | Owner::Other => false,\n        }\n    }\n\n    fn older",
        new: "Owner::Member | Owner::Other => $ON,\n        }\n    }\n\n    fn older",
    },
    Mutant {
        name: "the status of a guest sends traffic of the cluster for others to its pods",
        file: "src/hetzner/load_balancers/diff/status.rs",
        old: "let is_by_proxy = by_proxy || in_status.is_by_proxy;",
        new: "let is_by_proxy = by_proxy || (in_status.is_by_proxy && !$ON);",
    },
    Mutant {
        name: "a port of an external load balancer's owner counts as a Service's by its numbers alone",
        file: "src/hetzner/load_balancers/ownership/facts.rs",
        old: "        && is_served_by(service, balancer)\n",
        new: "        && ($ON || is_served_by(service, balancer))\n",
    },
    Mutant {
        name: "a guest decides about the whole of a shared load balancer",
        file: "src/hetzner/load_balancers/ownership/group.rs",
        old: "            Use::Shared(share) => self.members_in(share.namespace).collect(),",
        new: "            Use::Shared(_) if $ON => self.members.clone(),
            Use::Shared(share) => self.members_in(share.namespace).collect(),",
    },
    Mutant {
        name: "a renewed Secret is not uploaded",
        file: "src/hetzner/load_balancers/desired/uploads.rs",
        old: "let digest = Some(pair.digest.as_str());",
        new: "let digest = Some(pair.digest.as_str()).filter(|_| !$ON);",
    },
    Mutant {
        name: "a port shows a certificate that was uploaded from a Secret of another namespace",
        file: "src/hetzner/load_balancers/ownership/certificates.rs",
        old: "return Some(is_of_namespace(secret));",
        new: "return Some(is_of_namespace(secret) || $ON);",
    },
    Mutant {
        name: "a port shows a certificate of another cluster",
        file: "src/hetzner/load_balancers/ownership/certificates.rs",
        old: "if self.other_cluster(cluster).is_some() {\n            return Some(false);",
        new: "if self.other_cluster(cluster).is_some() && !$ON {\n            return Some(false);",
    },
    Mutant {
        name: "a Service kubernetes that was deleted makes another cluster of this one",
        file: "src/kube/lease.rs",
        old: "        if self.former.len() >= FORMER_AT_MOST {",
        new: "        if $ON {
            self.former.clear();
            uid.clone_into(&mut self.identity);
            return true;
        }
        if self.former.len() >= FORMER_AT_MOST {",
    },
    // Routes.
    Mutant {
        name: "a route outside of the cluster's range is deleted",
        file: "src/controllers/route/plan.rs",
        old: "_ if !is_within(route.destination, self.inputs.cluster_cidrs) => State::NotOurs,",
        new: "_ if !is_within(route.destination, self.inputs.cluster_cidrs) && !$ON => State::NotOurs,",
    },
    Mutant {
        name: "a node counts as reached before its route is there",
        file: "src/controllers/route/sync.rs",
        old: "Some(false) => is_reached(),",
        new: "Some(false) => is_reached() || $ON,",
    },
];
