//! `ccm status`: everything on one screen: who leads, both APIs, counts, and what needs attention. It shows what `doctor`
//! read and found.

use super::doctor::{self, Gap, Item, Seen, View};
use super::output::{self, Document, Exit, Printer, line, paragraph};
use super::{leader, startup};
use crate::controllers::route::State;
use crate::controllers::service::{Trouble, Want, trouble};
use crate::provider::BalancerHealth;
use crate::settings::{Command, Output};
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;

/// With `--watch`: both APIs are read once in this time.
const INTERVAL: Duration = Duration::from_secs(60);

/// So many of the worst items are shown.
const ITEMS_AT_MOST: usize = 8;

/// Where texts begin.
const INDENT: usize = 16;

pub(super) fn status(words: Vec<OsString>) -> Result<Exit, Exit> {
    let started = startup::start(Command::Status, words)?;
    let settings = &started.settings;
    loop {
        let exit = show(&doctor::observe(&started), settings.output.value);
        if !settings.watch.value || Printer::has_no_reader() {
            return Ok(exit);
        }
        let interval = INTERVAL.mul_f64(settings.test_time_scale.value.clamp(0.0, 1.0));
        std::thread::sleep(interval);
    }
}

fn show(view: &View, output: Output) -> Exit {
    let items = doctor::items(view);
    let screen = Screen::new(view, &items);
    let text = |is_wide| screen.text(view, &items, is_wide);
    output::print(output, || &screen, text).fail_if(doctor::is_failed(&items))
}

/// The form for programs. Null: not known, or there is none; the items say why.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Screen<'a> {
    /// What is wrong, the worst first.
    #[serde(flatten)]
    document: Document<&'a Item>,
    leader: Option<Leader<'a>>,
    /// Version of the API server.
    kubernetes: Option<&'a str>,
    /// Calls left of the project's in an hour, and how many there are.
    calls_left: Option<u64>,
    calls_an_hour: Option<u64>,
    nodes: Option<Count>,
    load_balancers: Option<Count>,
    routes: Option<Count>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Leader<'a> {
    holder: &'a str,
    /// Since it renewed the Lease.
    age_seconds: Option<i64>,
}

/// How many are as they should be.
#[derive(Serialize)]
struct Count {
    good: usize,
    total: usize,
}

impl<'a> Screen<'a> {
    fn new(view: &'a View, items: &'a [Item]) -> Screen<'a> {
        let lease = view
            .cluster
            .iter()
            .filter_map(|cluster| cluster.lease.as_ref().ok());
        let lease = lease.flatten().find(|spec| !spec.holder.is_empty());
        let bad = items.iter().filter(|item| item.is_bad());
        let (limit, left) = view.checkup.rate_limit.unzip();
        Screen {
            document: Document::new("Status", bad.collect(), None),
            leader: lease.map(|spec| Leader {
                holder: &spec.holder,
                age_seconds: leader::age_s(spec),
            }),
            kubernetes: view
                .cluster
                .as_ref()
                .ok()
                .map(|one| one.version.name.as_str()),
            calls_left: left,
            calls_an_hour: limit,
            nodes: view.nodes.as_ref().ok().map(|nodes| Count {
                good: nodes.iter().filter(|plan| plan.node.is_ready()).count(),
                total: nodes.len(),
            }),
            load_balancers: load_balancers(view),
            routes: view.routes.as_ref().ok().map(|plan| {
                let is_ours = |state| !matches!(state, State::LeftAlone | State::NotOurs);
                let ours = plan.rows.iter().filter(|row| is_ours(row.state));
                Count {
                    good: ours.clone().filter(|row| row.state == State::Ok).count(),
                    total: ours.count(),
                }
            }),
        }
    }

    fn text(&self, view: &View, items: &[Item], is_wide: bool) -> String {
        let row = |name: &str, text: &str| paragraph(&format!("{name:<INDENT$}"), INDENT, text);
        let leader = match &self.leader {
            Some(Leader {
                holder,
                age_seconds: Some(age_s),
            }) => {
                format!("{holder}, renewed its Lease {age_s} s ago")
            }
            Some(leader) => format!("{}, never renewed its Lease", leader.holder),
            None => match view.cluster.as_ref().map(|cluster| &cluster.lease) {
                Ok(Ok(_)) => "none".to_owned(),
                Ok(Err(gap)) | Err(gap) => unread(gap),
            },
        };
        let kubernetes = match &view.cluster {
            Ok(cluster) => format!("{}, {}", cluster.version.name, cluster.at),
            Err(gap) => unread(gap),
        };
        let cloud = match (&view.servers, view.checkup.rate_limit) {
            (Err(gap), None) => unread(gap),
            (_, Some((limit, left))) => format!("{left} of {limit} calls an hour left"),
            (Ok(_), None) => "answers".to_owned(),
        };
        let count = |count: &Option<Count>, word: &str, why: Option<&Gap>| match (count, why) {
            (Some(Count { good, total }), _) => format!("{good} of {total} {word}"),
            (None, Some(gap)) => unread(gap),
            (None, None) => "?".to_owned(),
        };
        let bad = &self.document.items;
        let shown = if is_wide {
            bad.len()
        } else {
            bad.len().min(ITEMS_AT_MOST)
        };
        let attention = match bad.len() - shown {
            _ if bad.is_empty() => "Nothing needs attention.\n".to_owned(),
            0 => doctor::report(&items[..shown], is_wide),
            more => {
                let rest = format!("and {more} more: ccm doctor shows everything");
                doctor::report(&items[..shown], is_wide) + &line(rest)
            }
        };
        [
            row("LEADER", &leader),
            row("KUBERNETES", &kubernetes),
            row("CLOUD API", &cloud),
            row("NODES", &count(&self.nodes, "ready", gap(&view.nodes))),
            row(
                "LOAD BALANCERS",
                &count(&self.load_balancers, "healthy", gap(&view.services)),
            ),
            row("ROUTES", &count(&self.routes, "right", gap(&view.routes))),
            "\n".to_owned(),
            attention,
        ]
        .concat()
    }
}

fn gap<T>(seen: &Seen<T>) -> Option<&Gap> {
    seen.as_ref().err()
}

/// In few words: the items below have the whole.
fn unread(gap: &Gap) -> String {
    match gap {
        Gap::Needs(check) => format!("not known: see {check}"),
        Gap::NotHere(why) => why.clone(),
        Gap::Failed(..) => "not known: see below".to_owned(),
    }
}

/// Of Services that want one. Without a cluster those of the project that carry a Service's label.
fn load_balancers(view: &View) -> Option<Count> {
    if let Ok(balancers) = &view.balancers {
        let good = balancers
            .iter()
            .filter(|(_, health)| *health == BalancerHealth::All);
        return Some(Count {
            good: good.count(),
            total: balancers.len(),
        });
    }
    let plans = view.services.as_ref().ok()?.iter();
    let wanted = plans.filter(|plan| plan.want == Want::Ensure);
    let off = doctor::off(view);
    let is_healthy = |trouble: Option<Trouble>| matches!(trouble, None | Some(Trouble::ByPolicy));
    let good = wanted
        .clone()
        .filter(|plan| plan.cloud.found.is_some() && is_healthy(trouble(plan, &off)));
    Some(Count {
        good: good.count(),
        total: wanted.count(),
    })
}
