//! Checks of nodes and their servers. When only Kubernetes or only the Cloud API answers, the checks still report the
//! problems that can be found with the answers of this API.

use super::cloud;
use super::outcome::{CheckOutcome, CheckResult, Gap, counted, need, or_ok, reported};
use super::view::DoctorView;
use crate::controllers::lifecycle::{OUT_OF_SERVICE, SHUTDOWN, switch_on};
use crate::controllers::node::{NodePlan, ServerMatch, ZoneState, is_uninitialized, join_anew};
use crate::provider::variables::HCLOUD_LOAD_BALANCERS_FOREIGN_NODES;
use crate::provider::{Finding, Reason};
use crate::text::{shell_command, some_of};

/// Counts the nodes whose server should be a cloud server of this project. Returns this count, and how many of these
/// nodes have a server that was found. Nodes on dedicated servers are left out, because the check `robot` reports them.
fn own(nodes: &[NodePlan]) -> (usize, usize) {
    let server = |plan: &&NodePlan| match &plan.server {
        ServerMatch::Matched(server, _) => server.id.cloud().is_some(),
        ServerMatch::Gone(id) => id.cloud().is_some(),
        ServerMatch::TargetOnly(found) => found.obstacle.is_none(),
        ServerMatch::Unmatched => true,
        ServerMatch::Foreign | ServerMatch::Unknown | ServerMatch::Unclear => false,
    };
    let is_matched = |plan: &&NodePlan| {
        matches!(plan.server, ServerMatch::Matched(..) | ServerMatch::TargetOnly(_))
    };
    let own = nodes.iter().filter(server);
    (own.clone().count(), own.filter(is_matched).count())
}

/// Calls `decide` for each node, and returns all outcomes that `decide` has returned. If there are none, no problem was
/// found, and this function returns a single outcome with the message `ok`.
fn each(
    nodes: &[NodePlan],
    decide: impl Fn(&NodePlan) -> Option<CheckOutcome>,
    ok: impl Into<String>,
) -> CheckResult {
    let outcome = |plan: &NodePlan| Some(decide(plan)?.on("node", &plan.object.name));
    or_ok(nodes.iter().filter_map(outcome), ok)
}

fn find<'a>(plan: &'a NodePlan, reasons: &[Reason]) -> Option<&'a Finding> {
    plan.all_findings().find(|finding| reasons.contains(&finding.reason))
}

pub(super) fn project(view: &DoctorView) -> CheckResult {
    need(&view.cloud.servers, "api")?;
    let nodes = need(&view.nodes, "nodes")?;
    let (own, matched) = own(nodes);
    let count = counted(own, "node");
    Ok(vec![match (own, matched) {
        (0, _) => CheckOutcome::skipped(
            "ccm knows no node on a Cloud server, so it can't be checked whether the token belongs to the right project",
        ),
        (_, 0) => CheckOutcome::fail(
            format!(
                "the token's project has no server of this cluster ({count} checked): the token belongs to another \
                 project, or ccm is connected to another cluster"
            ),
            "use a token of the project that has the servers, or the right --context. If both are right, and the \
             servers were created again with the same names, delete the Node objects, so that each kubelet registers \
             its node again",
        ),
        _ => {
            let verb = if own == 1 { "has" } else { "have" };
            CheckOutcome::ok(format!("{matched} of {count} {verb} a server in the token's project"))
        }
    }])
}

/// Returns an error when no node has its server in the token's project. The check `project` then reports this for all
/// nodes at once, and other checks that call this function are skipped.
pub(super) fn need_project(view: &DoctorView) -> Result<(), Gap> {
    match view.nodes.as_ref().map(|nodes| own(nodes)) {
        Ok((1.., 0)) => Err(Gap::NotHere(
            "not checked, because the token may belong to another project: see the check \"project\""
                .into(),
        )),
        _ => Ok(()),
    }
}

pub(super) fn provider_ids(view: &DoctorView) -> CheckResult {
    let nodes = need(&view.nodes, "nodes")?;
    let is_hcloud = |plan: &NodePlan| plan.node.spec.provider_id.starts_with("hcloud://");
    let is_ours_hcloud = view.settings.cloud_provider.value.name() == "hcloud";
    let is_hccm = !is_ours_hcloud && nodes.iter().any(is_hcloud);
    let is_all = is_hccm || nodes.iter().all(|plan| plan.server == ServerMatch::Foreign);
    let outcome = if is_all { CheckOutcome::fail } else { CheckOutcome::warn };
    let would_match = nodes.iter().filter(|plan| plan.would_match);
    let would_match = some_of(&Vec::from_iter(would_match.map(|plan| &*plan.object.name)));
    let decide = |plan: &NodePlan| {
        if let Some(found) = plan.server.foreign() {
            let why = found.obstacle.as_ref()?;
            return Some(reported(CheckOutcome::warn, why, &inspect(plan)));
        }
        let finding = find(plan, &[Reason::UnknownProviderIDPrefix])?;
        let fix = if is_hccm {
            "provider IDs with hcloud:// come from hcloud-cloud-controller-manager: run ccm with \
             --cloud-provider=hcloud"
                .to_owned()
        } else if plan.would_match {
            format!(
                "to make this node a target of load balancers, set {HCLOUD_LOAD_BALANCERS_FOREIGN_NODES}=match (all \
                 nodes whose server ccm can find become targets: {would_match}). Or, to let ccm manage this node completely, {}",
                join_anew(&plan.node)
            )
        } else {
            return Some(reported(outcome, finding, &inspect(plan)));
        };
        let finding = finding.clone().with_fix(fix);
        Some(reported(outcome, &finding, &inspect(plan)))
    };
    let targets = nodes.iter().filter(|plan| plan.server.foreign().is_some()).count();
    let ok = match (targets, counted(targets, "node")) {
        (0, _) => "no node has a provider ID of another provider".to_owned(),
        (_, nodes) => format!("{nodes} of other providers, used only as load balancer targets"),
    };
    each(nodes, decide, ok)
}

pub(super) fn kubelets(view: &DoctorView) -> CheckResult {
    let decide = |plan: &NodePlan| {
        let finding = find(plan, &[Reason::NotExternal])?;
        Some(reported(CheckOutcome::fail, finding, &inspect(plan)))
    };
    let ok = "each kubelet runs with --cloud-provider=external";
    each(need(&view.nodes, "nodes")?, decide, ok)
}

/// Reports for each node the worst problem with its server.
pub(super) fn servers(view: &DoctorView) -> CheckResult {
    let nodes = view.nodes.as_ref()?;
    need(&view.cloud.servers, "api")?;
    if matches!(own(nodes), (1.., 0)) {
        return Err(Gap::Needs("project"));
    }
    let in_doubt = [
        Reason::ServerNotFound,
        Reason::ServerImpaired,
        Reason::InvalidServerLabel,
        Reason::ServerClaimedTwice,
        Reason::UnknownProviderID,
        // This reason for a warning means that the node's dedicated server has another name than the node.
        // hcloud-cloud-controller-manager would delete such a node.
        Reason::PossibleNodeDeletion,
    ];
    let decide = |plan: &NodePlan| {
        if cloud::is_not_looked_up(view, plan) {
            return None;
        }
        let is_new =
            matches!(plan.server, ServerMatch::Matched(..)) && is_uninitialized(&plan.node);
        // A finding is a fact or a problem that the plan reports about the node. A finding that prevents the node from
        // being initialised or updated makes this check fail. All other findings are warnings.
        let blocked = find(plan, &[Reason::ServerReplaced]).or(plan.obstacle.as_ref());
        match (blocked, find(plan, &in_doubt)) {
            (Some(finding), _) => Some(reported(CheckOutcome::fail, finding, &inspect(plan))),
            (None, Some(finding)) => Some(reported(CheckOutcome::warn, finding, &inspect(plan))),
            (None, None) if is_new => {
                Some(CheckOutcome::warn("the node waits until ccm initialises it", soon(plan)))
            }
            (None, None) => None,
        }
    };
    let is_ours =
        |plan: &&NodePlan| !matches!(plan.server, ServerMatch::Foreign | ServerMatch::Unknown);
    let count = counted(nodes.iter().filter(is_ours).count(), "node");
    each(nodes, decide, format!("{count}, each with its server"))
}

/// Reports how many initialised nodes have another zone label than a new node would get on the same server. Only labels
/// that `ccm node relabel` would change are counted, so a label that a person has set is not counted.
pub(super) fn zone_labels(view: &DoctorView) -> CheckResult {
    let nodes = view.nodes.as_ref()?;
    need(&view.cloud.servers, "api")?;
    let zones: Vec<&ZoneState> = nodes.iter().filter_map(|plan| plan.zone.as_ref()).collect();
    let to_change = zones.iter().filter(|zone| zone.is_to_change()).count();
    let others = counted(zones.len() - to_change, "node");
    if to_change == 0 {
        let ok = format!("none of {others} has a zone label that ccm node relabel would change");
        return Ok(vec![CheckOutcome::ok(ok)]);
    }
    let message = format!(
        "the zone label of {} is not the label that a new node on the same server would get. The zone label of {others} \
         is right, or was set by a person, so ccm node relabel leaves it unchanged. The daemon never changes the zone \
         label of an initialised node",
        counted(to_change, "node")
    );
    let fix = "ccm node relabel --dry-run shows the change, and ccm node relabel makes it";
    Ok(vec![CheckOutcome::warn(message, fix)])
}

/// Reports nodes that are not ready. Nodes whose server is off or was deleted are left out, because the checks
/// `servers` and `nodes` report them. Also reports ready nodes that still have the taint `shutdown` or
/// `out-of-service`, which is only for nodes whose server is off.
pub(super) fn ready(view: &DoctorView) -> CheckResult {
    let nodes = need(&view.nodes, "nodes")?;
    let is_down = |plan: &&NodePlan| !plan.node.is_ready() && !is_uninitialized(&plan.node);
    let down = nodes.iter().filter(is_down).count();
    let is_read = view.cloud.servers.is_ok();
    let decide = |plan: &NodePlan| {
        if plan.node.is_ready() && plan.node.taint(OUT_OF_SERVICE).is_some() {
            let found = "the node is ready, but has the taint out-of-service, so Kubernetes deletes its pods by force, \
                         and detaches volumes that are in use";
            let key = format!("{OUT_OF_SERVICE}-");
            let remedy = shell_command("kubectl taint node", &[&plan.object.name, &key]);
            return Some(CheckOutcome::warn(found, format!("remove the taint: {remedy}")));
        }
        let is_tainted = plan.node.taint(SHUTDOWN).is_some();
        let (found, remedy) = match &plan.server {
            server if is_read && (server.is_off() || matches!(server, ServerMatch::Gone(_))) => {
                return None;
            }
            _ if !is_down(&plan) => {
                let found = "the node is ready, but still has the taint shutdown, so Kubernetes starts no new pods on it";
                return is_tainted.then(|| CheckOutcome::warn(found, soon(plan)));
            }
            _ if !is_read && is_tainted => (
                "the node is not ready; its taint shutdown says that its server was off when the daemon last looked",
                "if the server is still off, switch it on, in the console or with hcloud server poweron"
                    .to_owned(),
            ),
            // It is known that a cloud server runs, because its status was read. The power state of a dedicated server
            // is not read, because one call for each server would use up the rate limit of the Robot web service.
            ServerMatch::Matched(server, _) if server.id.cloud().is_some() => {
                ("the node is not ready, although its server is running", see_kubelet(plan))
            }
            _ => {
                ("the node is not ready; it is unknown whether its server runs", see_kubelet(plan))
            }
        };
        Some(CheckOutcome::bad(down == nodes.len(), found, remedy))
    };
    let ok = match down {
        0 => "each node is ready, or waits to be initialised".to_owned(),
        down => format!(
            "{} not ready, because the server is off or was deleted: see the checks \"servers\" and \"nodes\"",
            counted(down, "node")
        ),
    };
    each(nodes, decide, ok)
}

/// Returns the command that shows the node beside its server.
fn inspect(plan: &NodePlan) -> String {
    shell_command("ccm node inspect", &[&plan.object.name])
}

fn soon(plan: &NodePlan) -> String {
    format!(
        "the daemon corrects this within seconds, if it runs (see the check \"lease\"). {} corrects it now",
        shell_command("ccm node sync", &[&plan.object.name])
    )
}

fn see_kubelet(plan: &NodePlan) -> String {
    format!(
        "{} shows what the kubelet reported last; on the server, run systemctl status kubelet and journalctl -u \
         kubelet",
        shell_command("kubectl describe node", &[&plan.object.name])
    )
}

/// Reports servers that are off: the servers of nodes, or all servers of the project when the nodes were not read.
pub(super) fn off(view: &DoctorView) -> CheckResult {
    let servers = need(&view.cloud.servers, "api")?;
    let ok = "no server of a node is off";
    let is_all = servers.iter().all(|instance| instance.is_off);
    let Ok(nodes) = &view.nodes else {
        let off = servers.iter().filter(|instance| instance.is_off).map(|instance| {
            let found = format!(
                "the server (id {}) is off; its node is unknown, because no nodes were read",
                instance.id
            );
            CheckOutcome::bad(is_all, found, switch_on(instance.id)).on("server", &instance.name)
        });
        return or_ok(off, ok);
    };
    let is_all = nodes.iter().all(|plan| plan.server.is_off());
    let decide = |plan: &NodePlan| match &plan.server {
        ServerMatch::Matched(server, _) if server.is_off => {
            let effect = if plan.node.is_ready() {
                "the node still says that it is ready"
            } else {
                "the node is not ready"
            };
            let found = format!("its server {} is off; {effect}", server.id);
            Some(CheckOutcome::bad(is_all, found, switch_on(server.id)))
        }
        _ => None,
    };
    each(nodes, decide, ok)
}
