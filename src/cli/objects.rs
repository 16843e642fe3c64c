//! The parts that the commands on nodes, Services and routes have in common. The commands `list` and `inspect` show the
//! plans. `sync` does at once what the next run of the daemon's controller would do, and `sync --dry-run` only shows
//! it.

use super::output::{self, CommandFailure, Document, Exit, Printer, line, paragraph, wrapped_in};
use super::startup::{Started, not_known};
use super::table;
use super::terminal::columns;
use super::{leader, wire};
use crate::cache::{self, Apis, ReadFrom, ServerNeeds};
use crate::controllers::{Proposal, Report};
use crate::kube::{KubeNode, PastEvent};
use crate::provider::process::is_terminal;
use crate::provider::{
    Description, Field, Finding, OpenGate, ProviderId, Reason, Severity, Snapshot, Urgency,
};
use crate::settings::Settings;
use serde::Serialize;
use std::io::{IsTerminal, stdin};
use std::sync::Arc;
use std::time::Duration;

/// How often a command with `--watch` reads the cloud. The interval is long because the Cloud API allows few calls.
pub(super) const CLOUD_INTERVAL: Duration = Duration::from_secs(60);

/// The plans for all objects that a command works on, e.g. for all nodes. A plan says what a sync would change on an
/// object, and which problems there are.
pub(super) trait PlannedObjects {
    /// The kind of the objects, e.g. `Node`. The field `kind` of a JSON or YAML document begins with this word, as in
    /// `NodeList` and `NodeSync`.
    const KIND: &'static str;

    /// Returns the items of the JSON or YAML document. After a sync, `report` is set, and the items contain the changes
    /// that were made. Without a sync, `report` is `None`, and the items contain the planned changes.
    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize>;

    fn proposals(&self) -> Vec<Proposal>;

    /// Returns lines for the user about problems that do not prevent the sync.
    fn notes(&self) -> Vec<String>;

    /// Whether ccm does not know the servers of some objects, because the Cloud API or Robot did not answer. The plan
    /// of each such object says so.
    fn is_unclear(&self) -> bool {
        false
    }
}

/// One item of a JSON or YAML document: an object, its counterpart in the cloud, and what differs between them.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item<'a, Object, Cloud, Difference, Change, Found = &'a Finding> {
    pub(super) object: Object,
    pub(super) cloud: Cloud,
    pub(super) differences: Vec<Difference>,
    /// The changes that a sync has made to this object. Without a sync, these are the planned changes.
    pub(super) changes: Vec<Change>,
    /// A list that is always empty. Earlier versions filled it. It is still printed for programs that read this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held_back: Option<[(); 0]>,
    pub(super) findings: Vec<Found>,
    /// The events about the object. `None` except for the command `ccm lb inspect`, because only this command
    /// reads events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) events: Option<Vec<&'a PastEvent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Returns why the sync of the object failed, or `None` when the sync succeeded. When an API did not answer, the result
/// is the error of that API.
pub(super) fn error_of(report: Option<&Report>, object: &str) -> Option<String> {
    let report = report?;
    if let Some(outage) = &report.outage {
        return Some(outage.error.to_string());
    }
    let failure = report.failures.iter().find(|failure| failure.object == object)?;
    Some(failure.why.clone())
}

/// The APIs that answered when the plans were made: Kubernetes, the cloud, or both of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    Both,
    /// Only Kubernetes answered, so it is not known what a sync would change.
    Kubernetes,
    /// Only the cloud answered, so it is not known what a sync would change.
    Cloud,
}

impl Sides {
    /// Returns what is printed in place of an empty list. When Kubernetes and the cloud have answered, this is `text`,
    /// e.g. `none`. Otherwise it says that the values are unknown, and which API did not answer.
    pub(super) fn or_unknown(self, text: &'static str) -> &'static str {
        match self {
            Sides::Both => text,
            Sides::Kubernetes => "unknown: the Cloud API does not answer",
            Sides::Cloud => "unknown: Kubernetes does not answer",
        }
    }

    /// Returns a text that follows "there is no such object" in an error message. When only one of the two APIs has
    /// answered, the text says where the object was looked for, and which API did not answer. The text is empty when
    /// both have answered.
    pub(super) fn only(self) -> &'static str {
        match self {
            Sides::Both => "",
            Sides::Kubernetes => {
                " in Kubernetes (ccm can't search the cloud, because the Cloud API does not answer)"
            }
            Sides::Cloud => {
                " in the cloud (ccm can't search Kubernetes, because Kubernetes does not answer)"
            }
        }
    }

    pub(super) fn of(report: Option<&Report>) -> Sides {
        let outage = report.and_then(|report| report.outage.as_ref());
        match outage.map(|outage| &outage.error) {
            // When only Robot does not answer, plans are still made from Kubernetes and the Cloud API. If a node may be
            // on a dedicated server, which only Robot knows, the plan of the node says so.
            None | Some(cache::CacheError::Dedicated(_)) => Sides::Both,
            Some(cache::CacheError::Kube(_)) => Sides::Cloud,
            Some(cache::CacheError::Cloud(_)) => Sides::Kubernetes,
        }
    }
}

/// Returns the JSON or YAML document that a command prints. The document's field `kind` ends with `what`, which is
/// `List`, `Inspection` or `Sync`. `report` says what a sync has done, or which API did not answer.
pub(super) fn document<'a, P: PlannedObjects>(
    what: &str,
    plans: &'a P,
    report: Option<&'a Report>,
) -> Document<impl Serialize + use<'a, P>> {
    let mut document = Document::new(format!("{}{what}", P::KIND), plans.items(report));
    document.summary = report.filter(|report| report.outage.is_none()).map(Report::counts);
    document
}

/// What every command on nodes, Services or routes needs: the settings, the API clients, and the names of the objects
/// that the user typed.
pub(super) struct CommandContext {
    pub(super) settings: Settings,
    pub(super) apis: Apis,
    /// The words of the command line that are not flags. They name objects.
    pub(super) names: Vec<String>,
    /// A text that names the settings of the daemon that this command needs and could not read, see
    /// [`Started::refused`]. `None` when no such setting is missing.
    refused: Option<String>,
}

impl CommandContext {
    pub(super) fn new(mut started: Started) -> Result<CommandContext, Exit> {
        let mut apis = started.apis()?;
        if started.settings.watch.value {
            apis.poll_cloud_every(CLOUD_INTERVAL);
        }
        Ok(CommandContext {
            apis,
            settings: started.settings,
            names: started.words,
            refused: started.refused,
        })
    }

    /// Returns the data against which the annotations of Services are checked while the Cloud API does not answer. The
    /// data contain no load balancers. Every other object that an annotation names, e.g. a certificate, is assumed to
    /// exist. No call is made.
    pub(super) fn manifests(&self) -> Result<Arc<dyn Snapshot>, CommandFailure> {
        let gate = Arc::new(OpenGate);
        let provider = wire::provider(&self.settings, gate, Urgency::Asked, None);
        let snapshot = provider.and_then(|provider| {
            provider.for_manifests(&[], false).map_err(|error| error.to_string())
        });
        snapshot.map_err(|why| CommandFailure::Shown(Printer::failure(why)))
    }

    /// Prints which daemon is the leader. That daemon may change the same objects at the same time as this command.
    pub(super) fn show_leader(&self) {
        leader::show(&self.settings, &self.apis);
    }

    /// Returns the plans that `read` makes from the answers of Kubernetes and the cloud. When one of these APIs does
    /// not answer, its error is printed, the plans are made from the other API alone, and a report about the outage is
    /// returned with the plans. Returns an error when neither API answers, or when an object that the user named does
    /// not exist.
    pub(super) fn read<P: PlannedObjects>(
        &self,
        read: impl Fn(Sides) -> Result<P, CommandFailure>,
    ) -> Result<(P, Option<Report>), Exit> {
        let error = match read(Sides::Both) {
            Ok(plans) => {
                let outage = self.unclear(&plans);
                return Ok((plans, outage));
            }
            Err(CommandFailure::Shown(exit)) => return Err(exit),
            Err(CommandFailure::Api(error)) => error,
        };
        self.failed(&error);
        let report = Report::outage(error, String::new());
        let plans = self.or_exit(read(Sides::of(Some(&report))))?;
        Ok((plans, Some(report)))
    }

    /// Finds out whether the servers of some objects are not known because the Cloud API or Robot did not answer. If
    /// so, prints the error of this API to stderr, and returns a report about the outage. Returns `None` when the
    /// servers of all objects are known. This function makes no new call for this, but uses the error of the call that
    /// failed when the plans were made.
    fn unclear(&self, plans: &impl PlannedObjects) -> Option<Report> {
        if !plans.is_unclear() {
            return None;
        }
        let servers = self.apis.servers(None, &ServerNeeds::NONE, Urgency::Asked);
        let outage = servers.map_or_else(Some, |servers| servers.outage())?;
        let (cache::CacheError::Cloud(error) | cache::CacheError::Dedicated(error)) = outage else {
            return None;
        };
        let error = cache::CacheError::Dedicated(error);
        self.failed(&error);
        Some(Report::outage(error, String::new()))
    }

    /// Returns the value of the result. When the result is an error, prints the error unless it was already printed,
    /// and returns the exit code.
    pub(super) fn or_exit<T>(
        &self,
        result: Result<T, impl Into<CommandFailure>>,
    ) -> Result<T, Exit> {
        result.map_err(|failed| match failed.into() {
            CommandFailure::Api(error) => self.failed(&error),
            CommandFailure::Shown(exit) => exit,
        })
    }

    /// Prints that an API did not answer, and returns the exit code. A message about Kubernetes names the kubeconfig
    /// that was used, because a user may have several.
    pub(super) fn failed(&self, error: &cache::CacheError) -> Exit {
        match error {
            cache::CacheError::Kube(_) => {
                Printer::failure(format_args!("{error} ({})", self.apis.kube.origin()))
            }
            cache::CacheError::Cloud(_) | cache::CacheError::Dedicated(_) => {
                Printer::failure(error)
            }
        }
    }

    /// Checks that this program reads and writes the kind of provider IDs that the cluster uses. Prints and returns an
    /// error when `--cloud-provider` is not set, and the nodes have provider IDs, but none that belongs to the default
    /// profile. The profile, `hcloud` or `ccm-from-scratch`, decides which provider IDs this program reads and writes.
    /// With the wrong profile, it would treat no node as its own and remove all targets from load balancers. A new node
    /// would get a wrong provider ID, which can't be changed.
    pub(super) fn check_profile(&self) -> Result<(), Exit> {
        if !self.settings.cloud_provider.source.is_default() {
            return Ok(());
        }
        let nodes = self.or_exit(self.apis.nodes.whole(Duration::MAX, ReadFrom::Latest))?.value;
        let has_id = |node: &&Arc<KubeNode>| !node.spec.provider_id.is_empty();
        let is_foreign = |node: &Arc<KubeNode>| {
            let id = &node.spec.provider_id;
            self.apis.provider.parse_provider_id(id) == ProviderId::Foreign
        };
        let mut with_id = nodes.iter().filter(has_id).peekable();
        if with_id.peek().is_some() && with_id.all(is_foreign) {
            Err(Printer::failure(format_args!(
                "the provider IDs of the nodes do not fit --cloud-provider={} (the default); set --cloud-provider to the \
                 daemon's value",
                self.apis.provider.name()
            )))
        } else {
            Ok(())
        }
    }

    /// Prints which daemon is the leader, and checks that the command can ask the user for confirmation. Returns a
    /// usage error when there is no terminal for the question. With `--yes` or `--dry-run` no question is asked, so
    /// there is no error.
    pub(super) fn check_answer(&self, what: &str) -> Result<(), Exit> {
        self.show_leader();
        let settings = &self.settings;
        let may_ask = stdin().is_terminal() && std::io::stderr().is_terminal();
        if settings.dry_run.value || settings.yes.value || may_ask {
            Ok(())
        } else {
            Err(output::usage(&format!(
                "{what} asks for confirmation, but there is no terminal: add --yes, or --dry-run to see the plan"
            )))
        }
    }

    /// Shows the plans, and asks the user to confirm them. Every answer except `y` or `yes` counts as no.
    pub(super) fn is_confirmed(&self, plans: &impl PlannedObjects, question: &str) -> bool {
        if self.settings.yes.value {
            return true;
        }
        Printer::stderr(&proposed(&plans.proposals(), plans.notes()));
        Printer::stderr(&format!("{question} [y/N] "));
        let mut answer = String::new();
        stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes")
    }

    /// Prints what a sync would do, for `sync --dry-run`, and returns the exit code.
    pub(super) fn would_do<P: PlannedObjects>(&self, plans: &P) -> Exit {
        let proposals = plans.proposals();
        let is_unclear = self.unclear(plans).is_some();
        let is_blocked = is_unclear || proposals.iter().any(|proposal| proposal.obstacle.is_some());
        let is_pending = proposals.iter().any(|proposal| !proposal.changes.is_empty());
        let text = proposed(&proposals, plans.notes()) + &total(&proposals);
        let exit = self.print("Sync", plans, None, |_| text).fail_if(is_blocked);
        if let Some(what) = &self.refused {
            Printer::notice(format_args!("nothing was written: {}", not_known(what)));
            return Exit::Usage;
        }
        match exit {
            Exit::Done if self.settings.detailed_exitcode.value && is_pending => Exit::Pending,
            exit => exit,
        }
    }

    /// Runs the sync, which is the function `work`, and prints the changes that were made. Returns the exit code.
    pub(super) fn do_now<P: PlannedObjects>(&self, work: impl FnOnce() -> (Report, P)) -> Exit {
        let recorder = &self.apis.recorder;
        let (report, plans) = recorder.alongside(&self.apis.kube, work);
        if let Some(outage) = &report.outage {
            // When an API stops answering during the sync, the changes that were made before are printed, too.
            for (object, change) in &report.changes {
                Printer::stderr(&line(format_args!("{object}  {change}")));
            }
            return self.failed(&outage.error);
        }
        let text = done(&report, plans.notes());
        let exit = self.print("Sync", &plans, Some(&report), |_| text);
        exit.fail_if(!report.failures.is_empty())
    }

    /// Prints the plans as JSON or YAML (see [`document`]) when the user asked for that, and otherwise prints `text`.
    pub(super) fn print(
        &self,
        what: &str,
        plans: &impl PlannedObjects,
        report: Option<&Report>,
        text: impl FnOnce(bool) -> String,
    ) -> Exit {
        output::print(self.settings.output.value, || document(what, plans, report), text)
    }
}

/// Returns the text of a plan: a line for each change, then the warnings, and then a line for each object that can't be
/// changed because of a problem. The lines about problems are at the end, because a user at a terminal sees the end of
/// the output first.
pub(super) fn proposed(proposals: &[Proposal], notes: impl IntoIterator<Item = String>) -> String {
    let changes = proposals.iter().flat_map(|proposal| {
        proposal.changes.announced().map(|(mark, text)| about(mark, &proposal.object, &text))
    });
    let obstacles = proposals.iter().flat_map(|proposal| {
        proposal.obstacle.iter().map(|why| about('!', &proposal.object, &format!("blocked: {why}")))
    });
    changes.chain(notes).chain(obstacles).collect()
}

/// Returns a line about an object with a mark before it, e.g. `!`. On a terminal the line is wrapped to the terminal's
/// width. Otherwise the line is not wrapped, so that `grep` finds all of it.
pub(super) fn about(mark: char, object: &str, text: &str) -> String {
    of_object(&format!("{mark} "), object, text)
}

/// Returns a line with the text `first` (e.g. a mark), then the object, and then `text`, which is about the object. On
/// a terminal the line is wrapped to the terminal's width.
fn of_object(first: &str, object: &str, text: &str) -> String {
    if !is_terminal(false) {
        return line(format_args!("{first}{object}  {text}"));
    }
    // Two spaces must separate the object from its text, but wrapping leaves only one of them. Therefore the line is
    // wrapped with one space, one column narrower than the terminal, and the second space is added afterwards.
    let text = format!("{object} {text}");
    let lines = wrapped_in(columns() - 1, first, 6, &text);
    lines.replacen(&format!("{object} "), &format!("{object}  "), 1)
}

/// Returns a line with counts of objects, e.g. `Plan: 1 to change, 4 unchanged, 1 blocked`.
pub(super) fn total(proposals: &[Proposal]) -> String {
    let count =
        |such: fn(&Proposal) -> bool| proposals.iter().filter(|proposal| such(proposal)).count();
    let change = count(|proposal| !proposal.changes.is_empty() && proposal.obstacle.is_none());
    let blocked = count(|proposal| proposal.obstacle.is_some());
    let unchanged = proposals.len() - change - blocked;
    format!("Plan: {change} to change, {unchanged} unchanged, {blocked} blocked\n")
}

/// Returns a line for each warning among the findings, and for a few important notes. A finding is a fact or a problem
/// that a plan reports about an object. Warnings do not prevent the sync.
pub(super) fn warnings<'a>(
    object: String,
    findings: impl IntoIterator<Item = &'a Finding>,
) -> impl Iterator<Item = String> {
    // Findings with these reasons are shown even when they are notes and not warnings. They tell the user how far the
    // replacement of a load balancer is, and what it waits for.
    const SHOWN: [Reason; 2] = [Reason::LoadBalancerReplacementWaits, Reason::LoadBalancerChanges];
    findings.into_iter().filter_map(move |finding| {
        let (mark, word) = match finding.severity {
            Severity::Warning => ('!', "warning"),
            Severity::Info => ('·', "note"),
        };
        let is_shown = finding.severity == Severity::Warning || SHOWN.contains(&finding.reason);
        is_shown.then(|| about(mark, &object, &format!("{word}: {}", finding.text())))
    })
}

/// Returns the text that a command prints after a sync: a line for each change, each warning and each failure, and at
/// the end how many objects were changed, failed and so on.
pub(super) fn done(report: &Report, notes: impl IntoIterator<Item = String>) -> String {
    let changes = report.changes.iter().map(|(object, change)| of_object("", object, change));
    let failures = report.failures.iter();
    let failures =
        failures.map(|failure| about('!', &failure.object, &format!("failed: {}", failure.why)));
    let text: String = changes.chain(notes).chain(failures).collect();
    format!("{text}{}\n", report.counts())
}

/// Returns a heading with the content below it. When the content is empty, the text `empty` is printed in its place.
pub(super) fn section(heading: &str, content: &str, empty: &str) -> String {
    match content {
        "" => format!("{heading}\n  {empty}\n"),
        content => format!("{heading}\n{content}"),
    }
}

/// Returns a heading and the lines below it, or an empty text when there are no lines.
pub(super) fn listed(heading: &str, lines: impl Iterator<Item = String>) -> String {
    match lines.collect::<String>() {
        none if none.is_empty() => none,
        lines => format!("\n{heading}\n{lines}"),
    }
}

pub(super) fn finding(finding: &Finding) -> String {
    let mark = match finding.severity {
        Severity::Info => "·",
        Severity::Warning => "!",
    };
    let reason = finding.reason.name();
    let fix = finding.fix.as_ref().map(|fix| paragraph("    ", 4, &format!("Fix: {fix}.")));
    format!(
        "  {mark} {reason}\n{}{}",
        paragraph("    ", 4, &finding.message),
        fix.unwrap_or_default()
    )
}

/// Returns the lines about a value and its source. A mark before the value says what a sync does: `=` when the value is
/// already right, `~` when a sync would change it, and `·` when `is_left` says that ccm leaves it unchanged.
pub(super) fn field(Field { field: name, have, want, source }: &Field, is_left: bool) -> String {
    let (have_text, want_text) = (have.as_deref().unwrap_or("-"), want.as_deref().unwrap_or("-"));
    let value = match have == want {
        _ if is_left => format!("· {name}: {have_text}"),
        true => format!("= {name}: {want_text}"),
        false => format!("~ {name}: {have_text} → {want_text}"),
    };
    line(value) + &line(format_args!("      {source}"))
}

/// Returns a table that shows an object in Kubernetes beside its counterpart in the cloud. When one of the APIs did not
/// answer, its column shows `?` in place of the values.
pub(super) fn sides(rows: &[(&str, Vec<String>, Vec<String>)], known: Sides) -> String {
    let unknown = vec!["?".to_owned()];
    let mut table = Vec::new();
    for (heading, ours, cloud) in rows {
        let (ours, cloud) = match known {
            Sides::Kubernetes if !cloud.is_empty() => (ours, &unknown),
            Sides::Cloud if !ours.is_empty() => (&unknown, cloud),
            _ => (ours, cloud),
        };
        for row in 0..ours.len().max(cloud.len()) {
            let cell = |side: &[String]| side.get(row).cloned().unwrap_or_default();
            let heading = if row == 0 { *heading } else { "" };
            table.push(vec![heading.to_owned(), cell(ours), cell(cloud)]);
        }
    }
    table::render(&["", "KUBERNETES", "CLOUD"], &table)
}

/// Returns the given values, or `-` when there are none. The values are those that one side, i.e. Kubernetes or the
/// cloud, has for an object.
pub(super) fn or_none(side: Vec<String>) -> Vec<String> {
    if side.is_empty() { vec!["-".to_owned()] } else { side }
}

/// Returns the section of `inspect` that says what the next sync would do. The text `empty` is shown when the sync
/// would do nothing.
pub(super) fn would_do(changes: &Description, empty: &str) -> String {
    let lines = changes.announced().map(|(mark, text)| paragraph(&format!("  {mark} "), 8, &text));
    section("\nSYNC WOULD", &lines.collect::<String>(), empty)
}
