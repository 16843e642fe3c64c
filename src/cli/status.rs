//! `ccm status` shows everything on one screen: the leader, Kubernetes, the Cloud API, counts of objects, and what
//! needs attention. It makes the same reads and checks as `ccm doctor`.

use super::doctor::{self, CheckOutcome, DoctorView, Gap, Observer, Seen};
use super::output::{self, Document, Exit, Printer, line, paragraph};
use super::{leader, lists, startup};
use crate::cache::Refresh;
use crate::controllers::lifecycle::OUT_OF_SERVICE;
use crate::controllers::node::NodePlan;
use crate::controllers::route::State;
use crate::controllers::service::{self, ServicePlan, Want};
use crate::provider::clock;
use crate::provider::order;
use crate::settings::{Command, Output};
use crate::text::duration::shown_duration;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;

/// The greatest number of problems that `ccm status` shows. If there are more, it shows the worst of them.
const ITEMS_AT_MOST: usize = 8;

/// The column in which the values begin. The names of the values stand before it.
const INDENT: usize = 16;

pub(super) fn status(words: Vec<OsString>) -> Result<Exit, Exit> {
    let started = startup::start(Command::Status, words)?;
    let (settings, output) = (&started.settings, started.settings.output.value);
    let mut observer = Observer::new(&started, Command::Status);
    if settings.watch.value {
        return lists::watch(|can_redraw| {
            let view = observer.observe();
            let all = doctor::outcomes(&view);
            let screen = Screen::new(&view, &all).text(&view, &all, output == Output::Wide);
            let (now, age_s) = (clock::timestamp(), clock::took(view.cloud.asked).as_secs());
            let text = format!("{now:.0}, cloud read {age_s} s ago\n\n{screen}");
            Ok(if can_redraw { Printer::redraw(&text) } else { Printer::text(&(text + "\n")) })
        });
    }
    let view = observer.observe();
    let all = doctor::outcomes(&view);
    let screen = Screen::new(&view, &all);
    let text = |is_wide| screen.text(&view, &all, is_wide);
    Ok(output::print(output, || &screen, text).fail_if(doctor::is_failed(&all)))
}

/// The content of the screen of `ccm status`, as it is printed with `-o json` and `-o yaml`. A field is null when its
/// value is not known or does not exist. The check results in `document` then say why.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Screen<'a> {
    /// The outcomes of the checks that found a problem, the worst first.
    #[serde(flatten)]
    document: Document<&'a CheckOutcome>,
    /// The name of the process that holds the Lease, i.e. of the leader. `None` when nobody holds the Lease, or when
    /// the Lease was not read.
    leader: Option<&'a str>,
    lease_age_seconds: Option<i64>,
    /// The version of the API server, or `None` when the API server did not answer.
    kubernetes: Option<&'a str>,
    /// How many calls to the Cloud API the rate limit allows at present. The field `calls_an_hour` has the rate limit
    /// itself. Both fields are `None` when they are not known, e.g. because the Cloud API did not answer.
    calls_left: Option<u64>,
    calls_an_hour: Option<u64>,
    /// The lists of servers and load balancers that the daemon reads periodically, even when nothing has changed, each
    /// with its interval. Lists that `ccm status` did not read are left out.
    refreshes: &'a [Refresh],
    nodes: Option<Count>,
    #[serde(flatten)]
    special: SpecialNodes,
    load_balancers: Option<Count>,
    /// How many load balancers of each type Services have. The map is empty unless ccm itself chooses the type of at
    /// least one load balancer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    load_balancer_types: BTreeMap<&'a str, usize>,
    routes: Option<Count>,
}

/// The numbers of nodes in unusual states, e.g. nodes that will stop soon. A number is `None` when the nodes could not
/// be read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecialNodes {
    /// How many nodes will stop soon, e.g. because the cluster autoscaler is about to delete them. A taint or a
    /// condition of the node says this. With `HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED`, each cordoned node counts as
    /// well.
    departing_nodes: Option<usize>,
    /// How many nodes of other providers this program uses as targets of load balancers, without writing to them.
    /// `None` when there are none, or when the nodes could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    target_only_nodes: Option<usize>,
    /// The number of nodes that have a taint `out-of-service`. `None` when the nodes could not be read.
    out_of_service_nodes: Option<usize>,
}

/// The number of objects of a kind, and how many of them are healthy.
#[derive(Serialize)]
struct Count {
    healthy: usize,
    total: usize,
    /// How many load balancers are being replaced. `None` when there are none, or when the objects are not
    /// load balancers.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<usize>,
}

impl Count {
    /// Counts objects. Each item of `objects` stands for one object, and is true when that object is healthy.
    fn of(objects: impl Iterator<Item = bool>) -> Count {
        let (healthy, others): (Vec<bool>, Vec<bool>) = objects.partition(|is_healthy| *is_healthy);
        Count { healthy: healthy.len(), total: healthy.len() + others.len(), replaced: None }
    }
}

impl<'a> Screen<'a> {
    fn new(view: &'a DoctorView, all: &'a [CheckOutcome]) -> Screen<'a> {
        let lease = view.lease.as_ref().ok().and_then(Option::as_ref);
        let bad = all.iter().filter(|outcome| outcome.is_bad());
        let (calls_an_hour, calls_left) = view.cloud.checkup.rate_limit.unzip();
        let nodes = view.nodes.as_ref().ok();
        let count = |is: &dyn Fn(&NodePlan) -> bool| {
            nodes.map(|nodes| nodes.iter().filter(|plan| is(plan)).count())
        };
        let is_enough = view.settings.load_balancers_departing_cordoned.value;
        Screen {
            document: Document::new("Status", bad.collect()),
            leader: lease.map(|spec| &*spec.holder),
            lease_age_seconds: lease.and_then(leader::age_s),
            kubernetes: view.cluster.as_ref().ok().map(|cluster| &*cluster.version.name),
            calls_left,
            calls_an_hour,
            refreshes: &view.refreshes,
            nodes: nodes.map(|nodes| Count::of(nodes.iter().map(|plan| plan.node.is_ready()))),
            special: SpecialNodes {
                departing_nodes: count(&|plan| service::departs(&plan.node, is_enough)),
                target_only_nodes: count(&|plan| plan.server.is_target_only()).filter(|it| *it > 0),
                out_of_service_nodes: count(&|plan| plan.node.taint(OUT_OF_SERVICE).is_some()),
            },
            load_balancers: load_balancers(view),
            load_balancer_types: load_balancer_types(view),
            routes: view.routes.as_ref().ok().map(|plan| {
                let all = plan.rows.iter().map(|row| row.state);
                let ours = all.filter(|state| !matches!(state, State::LeftAlone | State::NotOurs));
                Count::of(ours.map(|state| state == State::Ok))
            }),
        }
    }

    fn text(&self, view: &DoctorView, all: &[CheckOutcome], is_wide: bool) -> String {
        let leader = match (self.leader, self.lease_age_seconds, &view.cluster) {
            (Some(leader), Some(age_s), _) => format!("{leader}, renewed its Lease {age_s} s ago"),
            (_, _, Ok(_)) => gap(&view.lease).map_or("none".into(), unread),
            (_, _, Err(gap)) => unread(gap),
        };
        let kubernetes = match &view.cluster {
            Ok(cluster) => format!("{}, {}", cluster.version.name, cluster.at),
            Err(gap) => unread(gap),
        };
        let calls = self.calls_left.zip(self.calls_an_hour);
        let calls = calls.map(|(left, limit)| format!("{left} of {limit} calls an hour left"));
        let cloud = match (calls, gap(&view.cloud.servers)) {
            (Some(calls), Some(Gap::Failed(..) | Gap::Refused(..))) => {
                format!("fails, see below; {calls}")
            }
            (Some(calls), _) => calls,
            (None, gap) => gap.map_or("answers".into(), unread),
        };
        let count = |count: &Option<Count>, word: &str, why: Option<&Gap>| match count {
            Some(Count { healthy, total, replaced }) => {
                let replaced = replaced.map(|count| format!(", {count} being replaced"));
                format!("{healthy} of {total} {word}{}", replaced.unwrap_or_default())
            }
            None => why.map_or("?".into(), unread),
        };
        let balancers = count(&self.load_balancers, "serving", gap(&view.services.plans));
        let types =
            self.load_balancer_types.iter().map(|(kind, count)| format!(", {count} {kind}"));
        let balancers = balancers + &types.collect::<String>();
        let late = view.certificates.as_ref().ok();
        let late = late.map(|seen| doctor::waiting_certificates(seen).len());
        let schemes = view.nodes.as_ref().map(|nodes| schemes(nodes)).unwrap_or_default();
        let special = [
            (self.special.departing_nodes, "will stop soon".to_owned()),
            (self.special.out_of_service_nodes, "with the taint out-of-service".to_owned()),
            (
                self.special.target_only_nodes,
                format!("used only as load balancer targets ({schemes})"),
            ),
            (late, "waiting for a certificate for 15 min or longer".to_owned()),
        ];
        let special = special.into_iter().filter_map(|(count, what)| {
            Some(format!(", {} {what}", count.filter(|count| *count > 0)?))
        });
        let nodes = count(&self.nodes, "ready", gap(&view.nodes)) + &special.collect::<String>();
        let rows = [
            ("LEADER", leader),
            ("KUBERNETES", kubernetes),
            ("CLOUD API", cloud),
            ("REFRESHES", refreshes(self.refreshes)),
            ("NODES", nodes),
            ("LOAD BALANCERS", balancers),
            ("ROUTES", count(&self.routes, "right", gap(&view.routes))),
        ];
        let rows = rows.map(|(name, text)| paragraph(&format!("{name:<INDENT$}"), INDENT, &text));
        let bad = self.document.items.len();
        let shown = if is_wide { bad } else { bad.min(ITEMS_AT_MOST) };
        let rest = match bad - shown {
            _ if bad == 0 => line("Nothing needs attention."),
            0 => String::new(),
            more => line(format_args!("and {more} more: ccm doctor shows everything")),
        };
        let items = doctor::report(&doctor::selected(all, shown), is_wide);
        format!("{}\n{items}{rest}", rows.concat())
    }
}

/// Returns the text about the intervals at which the daemon reads the lists again, and about the calls that each read
/// takes, e.g. `servers every 50m (101 calls), load balancers every 5m (1 call)`.
fn refreshes(all: &[Refresh]) -> String {
    let words = |refresh: &Refresh| {
        let period = shown_duration(refresh.period_seconds);
        let calls = if refresh.calls == 1 { "call" } else { "calls" };
        format!("{} every {period} ({} {calls})", refresh.list, refresh.calls)
    };
    match all {
        [] => "not known".to_owned(),
        all => all.iter().map(words).collect::<Vec<_>>().join(", "),
    }
}

fn gap<T>(seen: &Seen<T>) -> Option<&Gap> {
    seen.as_ref().err()
}

/// Returns a short text that says why a value is not known. The full reason is in the list of problems at the end of
/// the screen.
fn unread(gap: &Gap) -> String {
    match gap {
        Gap::Needs(check) => format!("not known: see the check {check:?} below"),
        Gap::NotHere(why) => why.clone(),
        Gap::Failed(..) | Gap::Refused(..) => "not known: see below".to_owned(),
    }
}

/// Counts the load balancers that Services want, and how many of them serve traffic. A load balancer counts as serving
/// when each of its Services has a healthy target. A load balancer that several Services share is counted once. When
/// Kubernetes does not answer, the load balancers in the project that were made for a Service are counted.
fn load_balancers(view: &DoctorView) -> Option<Count> {
    let Ok(plans) = &view.services.plans else {
        let balancers = view.cloud.balancers.as_ref().ok()?;
        return Some(Count::of(balancers.iter().map(|(_, counts)| counts.healthy > 0)));
    };
    let mut serves: HashMap<String, bool> = HashMap::new();
    for plan in plans.iter().filter(|plan| plan.want == Want::Ensure) {
        let found = plan.cloud.found.as_ref();
        let counts = found.map(|found| found.target_counts(Some(&plan.object.uid)));
        let key = found.map_or(plan.name(), |found| found.id.to_string());
        *serves.entry(key).or_insert(true) &= counts.is_some_and(|counts| counts.healthy > 0);
    }
    let replaced = plans.iter().filter(|plan| plan.cloud.replacement.is_some());
    let replaced: BTreeSet<u64> =
        replaced.filter_map(|plan| Some(plan.cloud.found.as_ref()?.id)).collect();
    let replaced = Some(replaced.len()).filter(|count| *count > 0);
    Some(Count { replaced, ..Count::of(serves.into_values()) })
}

/// Counts the load balancers of Services by their types, for `ccm status`. The result is empty unless ccm itself
/// chooses the type of at least one load balancer.
fn load_balancer_types<'a>(view: &'a DoctorView) -> BTreeMap<&'a str, usize> {
    let plans = view.services.plans.iter().flatten();
    let plans: Vec<&ServicePlan> = plans.filter(|plan| plan.want == Want::Ensure).collect();
    let mut types = BTreeMap::new();
    if plans.iter().any(|plan| plan.cloud.sizing.is_some()) {
        let found = plans.iter().filter_map(|plan| plan.cloud.found.as_ref());
        let all = order::map(found.map(|found| (found.id, &*found.kind)));
        all.into_values().for_each(|kind| *types.entry(kind).or_default() += 1);
    }
    types
}

/// Returns a text about the provider IDs of the nodes that ccm uses only as targets of load balancers, because they
/// belong to another provider. The text has the scheme of each provider ID, e.g. `k3s://, rke2://`, and `no provider
/// ID` for a node without one.
fn schemes(nodes: &[NodePlan]) -> String {
    let scheme = |plan: &NodePlan| match plan.node.spec.provider_id.split_once("://") {
        Some((scheme, _)) => format!("provider ID {scheme}://…"),
        None => "no provider ID".to_owned(),
    };
    let nodes = nodes.iter().filter(|plan| plan.server.is_target_only());
    Vec::from_iter(nodes.map(scheme).collect::<BTreeSet<_>>()).join(", ")
}
