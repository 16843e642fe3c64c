//! Plans the replacement of a Service's load balancer by a new one. As long as both load balancers exist, the plan of
//! the Service has the changes of both. Its last change is the next step of the replacement. The table of the steps is
//! in `ownership/replacement.rs`.
//!
//! A step is made only when nothing else has to be changed for the Service. It is planned from load balancers that were
//! read just before. When the step depends on the statuses of the Services, as a deletion does, all Services are read
//! before it, too.

use super::annotations as a;
use super::annotations::parser::{AnnotationParser, value_of};
use super::change::{BalancerAction, BalancerChange, Purpose};
use super::diff::status;
use super::leave::{end_replaced, why_replaced_stays};
use super::model::balancer::LoadBalancer;
use super::ownership::context::BalancerSnapshot;
use super::ownership::facts::is_in_status;
use super::ownership::find::FoundBalancer;
use super::ownership::guard::Guard;
use super::ownership::judge::{Replacing, replacement};
use super::ownership::labels::{Labelled, Ownership};
use super::ownership::replacement::{
    Overlap, Pair, ReplacementFacts, ReplacementStep, Side, asked_seconds, lacking, next_step,
    takes_over,
};
use crate::provider::{
    self, Claim, Cluster, Description, Finding, LoadBalancerPlan, PlanOutcome, Reason,
    ReplaceOrder, ReplacementShown, ServiceInput, Then,
};
use crate::text::duration::shown_duration;
use crate::text::{shell_command, some_of};
use jiff::Timestamp;
use serde_json::Value;

/// When a replacement whose new load balancer exists waits for something, the wait becomes a warning after this time,
/// in seconds. The time counts from the creation of the new load balancer or, if this is later, from the end of the
/// overlap that its label names.
const WAITS_LONG_S: i64 = 600;

/// When a person begins a replacement in which both load balancers will serve for less than this time, in seconds, the
/// person is warned. Clients whose DNS caches keep the old addresses for longer lose the connection.
const SHORT_OVERLAP_S: u32 = 600;

/// When the two load balancers of a replacement will still both serve for longer than this time, in seconds, this is
/// reported as a warning.
const LONG_OVERLAP_S: i64 = 7 * 24 * 3600;

/// The text for an answer of the API without the time, which is in its header `Date`.
const NO_TIME: &str =
    "the answer of the Hetzner API has no Date header, from which ccm takes the time";

/// The advice when the message about a replacement that waits names what a person must correct.
const CORRECT: &str = "correct this";

/// The advice for a replacement that waits for something that usually happens without an action of a person.
const FIND_OUT: &str = "if this lasts, find out what prevents it";

/// What a replacement adds to the plan of its Service.
#[derive(Default)]
struct NextStep {
    changes: Vec<Box<dyn provider::Change>>,
    finding: Option<Finding>,
    /// Whether the plan must be made again with the statuses of all Services.
    reads_services: bool,
}

impl BalancerSnapshot {
    /// Adds to the plan for the load balancer that serves the Service what its replacement needs: the changes of the
    /// other load balancer, and the next step. A plan that is refused, or that moves the Service to another load
    /// balancer, gets no step.
    pub(super) fn with_replacement<'a>(
        &'a self,
        mut plan: LoadBalancerPlan,
        replacing: Replacing<'a>,
        of: ServiceInput<'a>,
    ) -> LoadBalancerPlan {
        let (serving, other, pair) = match replacing {
            Replacing::Asked(old) => (old, None, None),
            Replacing::Both(pair) => {
                let side = pair.serving(of.service);
                (pair.get(side), Some(pair.get(side.other())), Some(pair))
            }
            Replacing::No | Replacing::Last => return plan,
        };
        plan.replacement = Some(Box::new(shown(pair, other, of.cluster)));
        plan.claims.extend(other.map(|other| Claim::Id(other.id)));
        if !matches!(plan.outcome, PlanOutcome::Change { .. }) {
            return plan;
        }
        let (settled, found) = self.settle_beside(of, replacing, serving);
        let mut beside = settled.bring_in_order(found);
        plan.needs = plan.needs.and(beside.needs);
        plan.claims.append(&mut beside.claims);
        beside.findings.retain(|finding| !plan.findings.contains(finding));
        plan.findings.append(&mut beside.findings);
        // A status that has addresses stays unchanged in two cases. When the load balancer that should serve has no
        // address yet, the status would become empty. When the status shows the other load balancer, it keeps this
        // address until the load balancer that should serve can take over.
        let is_empty = |status: &Option<Vec<_>>| status.as_ref().is_none_or(Vec::is_empty);
        let is_left = |other| is_in_status(of.service, other) && !takes_over(serving, other);
        let stays = is_empty(&plan.status) || other.is_some_and(is_left);
        plan.status = plan.status.filter(|_| of.service.addresses.is_empty() || !stays);
        let mut more = beside.outcome.take_changes();
        let step = match (beside.outcome.obstacle(), pair) {
            (Some(why), _) => NextStep::waits(&why.message, of, true, CORRECT),
            (None, Some(pair)) => self.step(&pair, of, is_empty(&beside.status)),
            (None, None) => creation(serving, of, &mut more),
        };
        step.add_to(&mut plan, more);
        plan
    }

    /// Returns the next step of a replacement for which both load balancers exist. `is_empty` means that the load
    /// balancer to which the status may change has no address yet.
    fn step(&self, pair: &Pair, of: ServiceInput, is_empty: bool) -> NextStep {
        let (cluster, now) = (of.cluster, self.observed.now);
        let seconds = asked_seconds(pair.old);
        let is_shown = |balancer: &LoadBalancer| {
            let shown = cluster.shown.as_ref();
            shown.map(|shown| balancer.all_addresses().any(|ip| shown.contains(&ip)))
        };
        let step = next_step(&ReplacementFacts {
            overlap: pair.overlap,
            is_asked: pair.is_asked(),
            seconds: seconds.clone().and_then(Result::ok),
            takes_over: pair.takes_over(),
            is_shown: is_shown(&pair.old).zip(is_shown(&pair.new)),
            now,
        });
        let since = pair.new.created.map(Timestamp::as_second).max(pair.overlap.ends);
        let is_long = now.zip(since).is_none_or(|(now, since)| now - since >= WAITS_LONG_S);
        let name = |side| pair.get(side).shown();
        let why = match step {
            ReplacementStep::Mark(Overlap { ends: None, .. }) if is_empty => {
                "the load balancer that takes over has no address for the status of the Service yet"
                    .to_owned()
            }
            ReplacementStep::Mark(to) => {
                return NextStep::of(vec![self.mark(pair, to, Purpose::Replacement)]);
            }
            ReplacementStep::Remove(side) => {
                let context = self.context(&mut AnnotationParser::new(of.service), of, None);
                return NextStep::of(end_replaced(&context, pair, side));
            }
            ReplacementStep::ReadServices => {
                return NextStep { reads_services: true, ..NextStep::default() };
            }
            ReplacementStep::WaitForTime(ends) => {
                let is_long = now.is_some_and(|now| ends - now > LONG_OVERLAP_S);
                let finding = if is_long { Finding::warning } else { Finding::info };
                let finding = finding(Reason::LoadBalancerChanges, overlap_text(pair, of));
                return NextStep { finding: Some(finding), ..NextStep::default() };
            }
            ReplacementStep::WaitForHealth(side) => {
                let missing = missing(pair.get(side), pair.get(side.other()), cluster);
                format!(
                    "load balancer {} can't take over from {} yet, because it {missing}",
                    name(side),
                    name(side.other())
                )
            }
            ReplacementStep::WaitForStatus(side) => {
                format!(
                    "the status of this Service, or of another Service that uses the load balancer, still has an \
                     address of load balancer {}",
                    name(side)
                )
            }
            ReplacementStep::WaitForClock => NO_TIME.to_owned(),
            ReplacementStep::WaitForDuration => {
                let why = seconds.and_then(Result::err).unwrap_or_default();
                return NextStep::waits(&why, of, is_long, CORRECT);
            }
        };
        NextStep::waits(&why, of, is_long, FIND_OUT)
    }

    /// Returns the change that writes how far the replacement is into the label `overlap` of the new load balancer.
    fn mark(&self, pair: &Pair, to: Overlap, purpose: Purpose) -> Box<dyn provider::Change> {
        let mut labels = pair.new.ownership.clone();
        labels.replacement.overlap = Some(to.to_string());
        self.label_change(pair.new, &labels, purpose)
    }

    /// Returns the change after which the labels of the load balancer name the owners in `to`.
    fn label_change(
        &self,
        balancer: Labelled,
        to: &Ownership,
        purpose: Purpose,
    ) -> Box<dyn provider::Change> {
        let part = |(key, value): (String, Option<String>)| {
            let name = format!("label {key} of load balancer {}", balancer.shown());
            Description::value(
                name,
                balancer.labels.get(&key).map(String::as_str),
                value.as_deref(),
            )
        };
        let description = balancer.ownership.change_to(to).into_iter().map(part).collect();
        let guard = Guard::to(Some(balancer), to);
        let (edit, id) = (BalancerAction::Edit, Some(balancer.id));
        let mut change = BalancerChange::new(&self.project, edit, id, Value::Null, description);
        change.purpose = purpose;
        Box::new(change.guarded(guard))
    }

    /// Returns the reason why the load balancer can be neither adopted nor released: its replacement has not ended yet.
    /// `None` unless both load balancers of a replacement exist.
    pub(super) fn why_replaced(&self, balancer: Labelled, cluster: &Cluster) -> Option<String> {
        let Replacing::Both(pair) = replacement(balancer, self.balancers(), cluster) else {
            return None;
        };
        Some(format!(
            "load balancer {} is replacing {}. Wait until the replacement has ended, or abort it with ccm lb replace \
             --abort",
            pair.new.shown(),
            pair.old.shown()
        ))
    }

    /// Returns the plan with the one write by which a person begins, aborts or shortens a replacement.
    pub(super) fn plan_order(&self, of: ServiceInput, order: ReplaceOrder) -> LoadBalancerPlan {
        let (settled, found) = self.settle(of, None);
        let (context, needs) = (&settled.context, settled.needs);
        let mut plan = LoadBalancerPlan { needs, carries_uid: true, ..LoadBalancerPlan::default() };
        let change = match found {
            Ok(FoundBalancer::Own(there)) if !context.group.is_external() => {
                plan.found = Some(status::for_people(there, of.cluster));
                self.ordered(&mut plan, there, context.replacing, of, order)
            }
            _ => Err("ccm can replace only a load balancer that it already manages for the Service. ccm lb inspect \
                      shows what is missing"
                .to_owned()),
        };
        match change {
            Ok(change) => LoadBalancerPlan { outcome: PlanOutcome::of(vec![change]), ..plan },
            Err(why) => plan.refuse(Finding::warning(Reason::SyncLoadBalancerFailed, why)),
        }
    }

    fn ordered(
        &self,
        plan: &mut LoadBalancerPlan,
        there: Labelled,
        replacing: Replacing,
        of: ServiceInput,
        order: ReplaceOrder,
    ) -> Result<Box<dyn provider::Change>, String> {
        let old = match (order, replacing) {
            (ReplaceOrder::Now, Replacing::Both(pair)) => {
                pair.overlap
                    .serving
                    .ok_or("the old load balancer is needed, because the new one does not serve the Service yet")?;
                let now = self.observed.now.ok_or_else(|| format!("{NO_TIME}: try again"))?;
                let to = Overlap { ends: Some(now), ..pair.overlap };
                return Ok(self.mark(&pair, to, Purpose::Usual));
            }
            (_, Replacing::Last) => {
                return Err(format!(
                    "load balancer {} has just replaced another one: try again in a minute",
                    there.shown()
                ));
            }
            (_, Replacing::Both(pair)) => pair.old,
            (ReplaceOrder::Begin(_), _) | (ReplaceOrder::Abort, Replacing::Asked(_)) => there,
            _ => return Err("the load balancer is not being replaced".to_owned()),
        };
        let mut to = old.ownership.clone();
        to.replacement.replace = match order {
            ReplaceOrder::Begin(seconds) => Some(shown_duration(seconds.into())),
            _ => None,
        };
        if to == *old.ownership {
            return Err("an earlier command already asked for the same".to_owned());
        }
        if let (ReplaceOrder::Begin(seconds), Replacing::No | Replacing::Asked(_)) =
            (order, replacing)
        {
            let text = self.begin_text(plan, old, of, seconds)?;
            plan.findings.push(Finding::warning(Reason::LoadBalancerChanges, text));
        }
        Ok(self.label_change(old, &to, Purpose::Usual))
    }

    /// Returns what a person must know before a replacement begins. The error says why it can't begin.
    fn begin_text(
        &self,
        plan: &mut LoadBalancerPlan,
        old: Labelled,
        of: ServiceInput,
        seconds: u32,
    ) -> Result<String, String> {
        let (settled, found) = self.settle_beside(of, Replacing::Asked(old), old);
        let mut beside = settled.bring_in_order(found);
        plan.needs = plan.needs.and(beside.needs);
        plan.needs.types = true;
        if old.protection.delete {
            return Err(protected(old));
        }
        let create = beside.outcome.take_changes().pop();
        let why = beside
            .outcome
            .obstacle()
            .map_or("the new load balancer can't be created now", |why| &why.message);
        let create = create.ok_or(why)?;
        let short = " Both load balancers serve for less than ten minutes, so clients that cache DNS for longer lose \
                     the connection.";
        Ok(format!(
            "the daemon will {}, {}, so you pay for two load balancers until the replacement ends. When the new one \
             has as many healthy targets as the old one, the status of the Service gets the new addresses instead of \
             {}. The old addresses still work for {}, and then load balancer {} {}{}.{} To stop this, run: {}",
            create.description(),
            self.price(&create.json()),
            addresses(&old),
            shown_duration(seconds.into()),
            old.shown(),
            end_text(old, Side::Old, of),
            by_hand(of),
            if seconds < SHORT_OVERLAP_S { short } else { "" },
            shell_command("ccm lb replace --abort", &[&of.service.full_name()])
        ))
    }

    /// Returns the monthly price of a load balancer that is created by this change, as text.
    fn price(&self, create: &Value) -> String {
        let (kind, location) =
            (&create["request"]["load_balancer_type"], &create["request"]["location"]);
        let mut types = self.observed.types.iter().flat_map(|types| types.iter());
        let prices = types.find(|it| *kind == it.name.as_str()).map(|kind| kind.prices.iter());
        let mut prices = prices.into_iter().flatten();
        let price = prices.find(|it| location.is_null() || *location == *it.location);
        let price = price.and_then(|price| price.price_monthly.net.parse::<f64>().ok());
        let text = |price| format!("for {price:.2} a month without VAT");
        price.map_or_else(|| "at a price that is not known".to_owned(), text)
    }
}

impl NextStep {
    fn of(changes: Vec<Box<dyn provider::Change>>) -> NextStep {
        NextStep { changes, ..NextStep::default() }
    }

    /// Returns a step that changes nothing, because something is missing. `why` says what is missing. When `is_long` is
    /// true, this is reported as a warning, and otherwise as information. `advice` is the first part of the fix.
    fn waits(why: &str, of: ServiceInput, is_long: bool, advice: &str) -> NextStep {
        let text = format!("the replacement of the load balancer waits: {why}");
        let abort = shell_command("ccm lb replace --abort", &[&of.service.full_name()]);
        let finding = if is_long { Finding::warning } else { Finding::info };
        let finding = finding(Reason::LoadBalancerReplacementWaits, text);
        let fix = format!("{advice}, or abort the replacement: {abort}");
        let finding = Some(finding.with_fix(fix));
        NextStep { finding, ..NextStep::default() }
    }

    /// Adds this step to the plan. Before the step, the plan gets the changes `more` of the load balancer that does not
    /// serve. They are left out when the step removes this load balancer, or when the statuses of all Services must be
    /// read before a step is possible.
    fn add_to(self, plan: &mut LoadBalancerPlan, more: Vec<Box<dyn provider::Change>>) {
        use provider::ChangeKind::{Release, Removal};
        plan.findings.extend(self.finding);
        plan.needs.statuses |= self.reads_services;
        let is_ended = self.changes.iter().any(|change| matches!(change.kind(), Release | Removal));
        let PlanOutcome::Change { changes, then } = &mut plan.outcome else {
            return;
        };
        changes.extend(more.into_iter().filter(|_| !is_ended && !self.reads_services));
        match then {
            Then::Leave(_) | Then::Move(_) => {}
            _ if !self.changes.is_empty() => *then = Then::Leave(self.changes),
            _ if self.reads_services => *then = Then::Again,
            _ => {}
        }
    }
}

/// Returns the step that creates the load balancer which replaces `old`. It takes the change that creates it from
/// `more`. When `old` can't be replaced, because of its delete protection or an invalid label `replace`, the step only
/// reports this.
fn creation(
    old: Labelled,
    of: ServiceInput,
    more: &mut Vec<Box<dyn provider::Change>>,
) -> NextStep {
    let changes = std::mem::take(more);
    match asked_seconds(old) {
        Some(Err(why)) => NextStep::waits(&why, of, true, CORRECT),
        _ if old.protection.delete => NextStep::waits(&protected(old), of, true, CORRECT),
        _ => {
            let why = format!("the load balancer that replaces {} does not exist yet", old.shown());
            NextStep { changes, ..NextStep::waits(&why, of, true, FIND_OUT) }
        }
    }
}

fn protected(old: Labelled) -> String {
    format!("ccm can't replace load balancer {} as long as it has delete protection", old.shown())
}

/// Returns how far the replacement is, for display. `other` is the load balancer that does not serve.
fn shown(pair: Option<Pair>, other: Option<Labelled>, cluster: &Cluster) -> ReplacementShown {
    let state = match pair {
        Some(pair) if !pair.is_asked() => "aborting",
        Some(Pair { overlap: Overlap { serving: Some(Side::New), .. }, .. }) => "overlapping",
        _ => "replacing",
    };
    let other = other.map(|other| status::for_people(other, cluster));
    let ends = pair.and_then(|pair| pair.overlap.ends).map(time);
    ReplacementShown { state, other, ends }
}

/// Returns a text about the time in which both load balancers serve: which of them the status of the Service names, and
/// what happens to the other one at the end.
fn overlap_text(pair: &Pair, of: ServiceInput) -> String {
    let stays = pair.overlap.serving.unwrap_or(Side::Old);
    let (stays, leaves, side) = (pair.get(stays), pair.get(stays.other()), stays.other());
    format!(
        "the status of the Service has the addresses {} of load balancer {} instead of {} of {}. Both load balancers \
         serve until {}, and then load balancer {} {}{}",
        addresses(&stays),
        stays.shown(),
        addresses(&leaves),
        leaves.shown(),
        time(pair.overlap.ends.unwrap_or_default()),
        leaves.shown(),
        end_text(leaves, side, of),
        by_hand(of)
    )
}

/// Returns a text that says what happens to this load balancer when its replacement ends: it is deleted, or it stays.
fn end_text(balancer: Labelled, side: Side, of: ServiceInput) -> String {
    let stays = why_replaced_stays(balancer, side, of.service, of.cluster);
    let text = |why| {
        format!(
            "loses its ports, but is not deleted, because {why}. This load balancer costs money until you delete it"
        )
    };
    stays.map_or_else(|| "is deleted".to_owned(), text)
}

fn addresses(balancer: &LoadBalancer) -> String {
    some_of(&status::addresses(balancer).iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Returns a sentence about the DNS record of the annotation `hostname`, which nobody changes automatically.
fn by_hand(of: ServiceInput) -> String {
    let hostname = value_of(of.service, &a::HOSTNAME);
    let text = |name| {
        format!(". Change the DNS record of {name} by hand while the old addresses still work")
    };
    hostname.map(text).unwrap_or_default()
}

/// Returns what a load balancer lacks to take over from another one, as text. The text begins with a verb.
fn missing(stays: Labelled, leaves: Labelled, cluster: &Cluster) -> String {
    let shown = |port: u16| {
        let uid = leaves.ownership.ports.get(&port);
        let owner = uid.and_then(|uid| cluster.groups.of_uid(uid));
        let of = owner.map(|service| format!(" of Service {}", service.full_name()));
        format!("port {port}{}", of.unwrap_or_default())
    };
    match some_of(&lacking(stays, leaves).map(shown).collect::<Vec<_>>()) {
        none if none.is_empty() => "has no port with a healthy target".to_owned(),
        ports => format!("lacks these ports, or has fewer healthy targets for them: {ports}"),
    }
}
