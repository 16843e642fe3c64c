//! Checks of the cloud APIs: the token, the project and the private Network. With `ROBOT_ENABLED=true`, the login of
//! the Robot web service is checked as well, and whether each dedicated server belongs to a node.

use super::outcome::{CheckOutcome, CheckResult, Gap, counted, need, or_ok};
use super::reads;
use super::view::DoctorView;
use crate::cli::wire::TOKEN_CHARACTERS;
use crate::cli::{node, startup};
use crate::controllers::node::{NodePlan, ServerMatch, is_uninitialized};
use crate::provider::variables::{HCLOUD_NETWORK, HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK};
use crate::provider::{Attached, Instance, InstanceId, Permission};
use crate::text::{self, shell_command};
use std::collections::HashSet;

/// The rate limit divided by this number is the reserve. While fewer API calls than the reserve are left, the daemon
/// postpones its periodic reads.
const RESERVE_SHARE: u64 = 10;

/// When the clocks of this machine and of the Cloud API differ by this many seconds or more, the check `clock` warns.
/// Smaller differences are normal, because the answer takes time, and its `Date` header has whole seconds only.
const WARN_SKEW_S: u64 = 5;
/// When the clocks of this machine and of the Cloud API differ by this many seconds or more, the check `clock` fails. A
/// wrong clock makes APIs refuse tokens and certificates sooner or later.
const FAIL_SKEW_S: u64 = 60;

pub(super) fn token(view: &DoctorView) -> CheckResult {
    let characters = *view.token.as_ref()?;
    let source = view.settings.token.source.name();
    let found = format!("the token has {characters} characters, and comes from {source}");
    Ok(vec![match characters {
        TOKEN_CHARACTERS => CheckOutcome::ok(found),
        _ => CheckOutcome::warn(
            format!("{found}; a token of the Cloud API has {TOKEN_CHARACTERS} characters"),
            "copy the complete token again, without other characters",
        ),
    }])
}

pub(super) fn api(view: &DoctorView) -> CheckResult {
    let servers = view.cloud.servers.as_ref()?;
    Ok(vec![CheckOutcome::ok(format!(
        "{} accepts the token; the token's project has {}",
        view.settings.endpoint.value.as_str(),
        counted(servers.len(), "server")
    ))])
}

pub(super) fn permission(view: &DoctorView) -> CheckResult {
    need(&view.cloud.servers, "api")?;
    Ok(vec![match &view.cloud.checkup.permission {
        Permission::ReadWrite => CheckOutcome::ok(
            "the token may write: the API answered the test request with \"not found\", and did not refuse it",
        ),
        Permission::ReadOnly => CheckOutcome::fail(
            "the token may only read, so ccm can't create, change or delete load balancers and routes",
            "create a token with Read & Write in the Hetzner Console (Security → API tokens)",
        ),
        Permission::Unknown(why) | Permission::Refused(why) => {
            CheckOutcome::skipped(format!("it is unknown whether the token may write: {why}"))
        }
    }])
}

pub(super) fn rate_limit(view: &DoctorView) -> CheckResult {
    let remedy = "find out who else calls the API (all tokens of the project share the limit: autoscaler, CSI driver, \
                  Terraform), or wait a few minutes: the number of calls that are left grows each second";
    let Some((limit, remaining)) = view.cloud.checkup.rate_limit else {
        need(&view.cloud.servers, "api")?;
        let why = "the API did not say how many calls are left";
        return Ok(vec![CheckOutcome::skipped(why)]);
    };
    let found = format!("{remaining} of {limit} calls an hour are left");
    Ok(vec![match remaining {
        0 => CheckOutcome::fail(
            format!("none of {limit} calls an hour are left, so the API refuses every call"),
            remedy,
        ),
        _ if remaining < limit / RESERVE_SHARE => {
            CheckOutcome::warn(format!("{found}, so the daemon postpones periodic reads"), remedy)
        }
        _ => CheckOutcome::ok(found),
    }])
}

pub(super) fn clock(view: &DoctorView) -> CheckResult {
    let Some(ahead_s) = view.cloud.checkup.clock_ahead_s else {
        need(&view.cloud.servers, "api")?;
        return Ok(vec![CheckOutcome::skipped("the answer of the API has no Date header")]);
    };
    let skew_s = ahead_s.unsigned_abs();
    let is = if ahead_s > 0 { "behind" } else { "ahead of" };
    let found = format!(
        "this machine's clock is {skew_s} s {is} the clock of the Cloud API; ccm uses this machine's clock to check \
         tokens, certificates and the ages of Leases"
    );
    let remedy = "synchronize the clock with a time server: timedatectl set-ntp true";
    Ok(vec![match skew_s {
        FAIL_SKEW_S.. => CheckOutcome::fail(found, remedy),
        WARN_SKEW_S.. => CheckOutcome::warn(found, remedy),
        _ => CheckOutcome::ok("this machine's clock agrees with the Cloud API's clock"),
    }])
}

pub(super) fn network(view: &DoctorView) -> CheckResult {
    need(&view.cloud.servers, "api")?;
    Ok(vec![match (&view.cloud.checkup.network, hides_routes(view)) {
        (None, _) => CheckOutcome::skipped(format!(
            "{HCLOUD_NETWORK} is not set: no private Network is used"
        )),
        (Some(Ok(network)), Some(id)) => CheckOutcome::warn(
            format!(
                "Network {network} does not expose its routes to its vSwitch, so dedicated servers can't use these \
                 routes to reach pods on cloud servers"
            ),
            format!(
                "{}; this is not needed if the network plugin uses tunnels",
                shell_command("hcloud network expose-routes-to-vswitch", &[id])
            ),
        ),
        (Some(Ok(network)), None) => CheckOutcome::ok(format!("{network} exists")),
        (Some(Err(error)), _) => CheckOutcome::fail(
            error.message.as_str(),
            format!(
                "set {HCLOUD_NETWORK} to the ID or the name of one of the project's Networks; a number is always an ID"
            ),
        ),
    }])
}

/// Returns the ID of the private Network when dedicated servers can't use the routes that ccm manages in this Network,
/// because the Network does not expose its routes to its vSwitch. Returns `None` otherwise, e.g. when dedicated servers
/// are turned off.
fn hides_routes<'a>(view: &'a DoctorView) -> Option<&'a String> {
    let is_closed =
        reads::of_login(view).is_some() && view.cloud.checkup.exposes_routes == Some(false);
    let routes = view.routes.as_ref().ok().filter(|_| is_closed)?;
    Some(&routes.object.uid)
}

pub(super) fn attached(view: &DoctorView) -> CheckResult {
    need(&view.cloud.servers, "api")?;
    let network = match &view.cloud.checkup.network {
        Some(Ok(network)) => network,
        Some(Err(_)) => {
            return Ok(vec![CheckOutcome::skipped("not checked: see the check \"network\"")]);
        }
        None => return Ok(vec![CheckOutcome::skipped(format!("{HCLOUD_NETWORK} is not set"))]),
    };
    if view.settings.network_disable_attached_check.value {
        let why = format!("{HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK}=true turns this check off");
        return Ok(vec![CheckOutcome::skipped(why)]);
    }
    Ok(vec![match &view.cloud.checkup.attached {
        Attached::Yes => CheckOutcome::ok(format!("this machine is attached to {network}")),
        Attached::Unknown(why) => CheckOutcome::skipped(format!(
            "the metadata service gives no usable answer ({why}). This is normal outside of Hetzner Cloud"
        )),
        Attached::No(there) => {
            let found = format!(
                "this machine is attached to {there}, but {HCLOUD_NETWORK} names {network}, so ccm run would fail on this \
                 machine"
            );
            let remedy = format!(
                "attach the machine to the Network, correct {HCLOUD_NETWORK}, or set \
                 {HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK}=true if the machine need not be attached"
            );
            // When this command runs in a pod, this machine is a node of the cluster, and a node that is not
            // attached to the Network is a failure. Elsewhere it is only a warning, because the daemon may run on
            // another machine.
            CheckOutcome::bad(startup::is_set_here("KUBERNETES_SERVICE_HOST"), found, remedy)
        }
    }])
}

pub(super) fn robot_login(view: &DoctorView) -> CheckResult {
    let Some(servers) = reads::of_login(view).transpose()? else {
        return Ok(Vec::new());
    };
    let shown = counted(servers.len(), "dedicated server");
    let found = format!(
        "{} accepts the login, which has access to {shown}",
        view.settings.robot_endpoint.value.as_str()
    );
    let nodes = view.nodes.iter().flatten();
    let unseen =
        nodes.filter(|plan| matches!(plan.server, ServerMatch::Gone(InstanceId::Dedicated(_))));
    let remedy = "use the web service user of the account that owns the servers: the Admin login of one server sees \
                  only that server, and a user of another account sees none of them";
    Ok(vec![match unseen.count() {
        0 if servers.is_empty() => CheckOutcome::warn(found, remedy),
        0 => CheckOutcome::ok(found),
        unseen => {
            let servers = if unseen == 1 { "server" } else { "servers" };
            let unseen = counted(unseen, "node");
            CheckOutcome::warn(format!("{found}, but not to the {servers} of {unseen}"), remedy)
        }
    }])
}

/// Reports each dedicated server that belongs to a node and whose contract was cancelled. When a node can't be
/// initialised because no server was found for it, the dedicated servers without a node are reported as well. One of
/// them can be the server of that node.
pub(super) fn dedicated(view: &DoctorView) -> CheckResult {
    let servers = match reads::of_login(view) {
        None | Some(Err(Gap::NotHere(_))) => return Ok(Vec::new()),
        Some(servers) => servers.map_err(|gap| gap.behind("robot"))?,
    };
    let nodes = need(&view.nodes, "nodes")?;
    let (mut outcomes, mut matched) = (Vec::new(), HashSet::new());
    for plan in nodes {
        if let ServerMatch::Matched(server, _) = &plan.server {
            matched.insert(server.id);
            outcomes.extend(cancelled(server, &plan.object.name));
        }
    }
    let (with_node, others): (Vec<&Instance>, Vec<&Instance>) =
        servers.iter().partition(|instance| matched.contains(&instance.id));
    let waits =
        |plan: &NodePlan| plan.server == ServerMatch::Unmatched && is_uninitialized(&plan.node);
    let waiting: Vec<&str> =
        nodes.iter().filter(|plan| waits(plan)).map(|plan| plan.object.name.as_str()).collect();
    if !waiting.is_empty() {
        outcomes.extend(others.iter().map(|server| unmatched(server, &waiting)));
    }
    let with_node = counted(with_node.len(), "dedicated server");
    let others = others.iter().map(|server| format!("{} ({})", server.name, server.id));
    let ok = match Vec::from_iter(others).as_slice() {
        [] => format!("{with_node}, each with its node"),
        others => format!("{with_node} with a node; without a node: {}", text::some_of(others)),
    };
    or_ok(outcomes, ok)
}

fn unmatched(server: &Instance, waiting: &[&str]) -> CheckOutcome {
    let (id, waiting) = (server.id, text::some_of(waiting));
    let found =
        format!("ccm knows no node on server {id}, and no server for these new nodes: {waiting}");
    let remedy = "if one of these nodes runs on this server, give the server the node's name in Robot; otherwise do \
                  nothing";
    CheckOutcome::warn(found, remedy).on("server", &server.name)
}

fn cancelled(server: &Instance, node: &str) -> Option<CheckOutcome> {
    let (id, paid) = (server.id, node::paid_until(server));
    let found = format!("the contract of the node's dedicated server {id} is cancelled{paid}");
    let remedy = format!(
        "move the node's pods to other nodes before the contract ends ({}), or revoke the cancellation in Robot",
        shell_command("kubectl drain", &[&node])
    );
    server.is_cancelled.then(|| CheckOutcome::warn(found, remedy).on("node", node))
}

/// Whether the node is on a dedicated server, but ccm has no login of the Robot web service to look this server up. The
/// check `robot` reports the missing login for all nodes at once.
pub(super) fn is_not_looked_up(view: &DoctorView, plan: &NodePlan) -> bool {
    let is_dedicated = |id: &str| id.starts_with("hrobot://") || id.starts_with("hcloud://bm-");
    matches!(reads::of_login(view), Some(Err(Gap::NotHere(_))))
        && is_dedicated(&plan.node.spec.provider_id)
}
