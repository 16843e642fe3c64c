//! Reports findings (messages for the operator) to the log, to events and to metrics, and reports changes to the log
//! and to metrics. No other module reports them.

use super::controller::MESSAGE_CHARACTERS_AT_MOST;
pub(super) use super::controller::{Outage, Report};
use crate::cache::Apis;
use crate::kube::{self, Event, Subject};
use crate::metrics::{CHANGES, FINDINGS as FINDINGS_REPORTED};
use crate::provider::order;
use crate::provider::{
    self, Description, ErrorKind, Finding, Reason, Severity, clock, without_correlations,
};
use crate::text;

/// The log target of findings (messages for the operator). Commands that print findings themselves turn off this log
/// target.
pub const FINDINGS: &str = "ccm::findings";

/// The log target of lines about changes that were made, one line for each change.
pub const CHANGES_MADE: &str = "ccm::changes";

/// Logs one line that says what was changed.
pub(super) fn log_change(controller: &str, object: &str, made: &Description) {
    let line = made.done().join(", ");
    log::info!(target: CHANGES_MADE, controller, object; "{object}: {line}");
}

/// Counts one write to Kubernetes in the metrics. A write that this program itself refused, e.g. because it does not
/// hold the Lease, was never sent and is not counted.
pub(super) fn count_write(controller: &str, kind: &str, outcome: Result<(), &kube::KubeError>) {
    let result = match outcome {
        Ok(()) => "ok",
        Err(error) if error.is_refused() => return,
        Err(error) if error.is_conflict() || error.is_not_found() => "conflict",
        Err(_) => "failed",
    };
    CHANGES.count(&[controller, kind, result]);
}

/// Counts one change in the cloud in the metrics. A change that this program itself refused, e.g. because it does not
/// hold the Lease, was never sent and is not counted.
pub(super) fn count_change(
    controller: &str,
    kind: &str,
    outcome: Result<(), &provider::ProviderError>,
) {
    let result = match outcome.map_err(|error| &error.kind) {
        Ok(()) => "ok",
        Err(ErrorKind::Refused) => return,
        Err(ErrorKind::Busy | ErrorKind::NotFound) => "conflict",
        Err(_) => "failed",
    };
    CHANGES.count(&[controller, kind, result]);
}

/// How many findings (messages for the operator) about one object are reported at once. If there are more, only the
/// number of the rest is reported.
const FINDINGS_AT_MOST: usize = 10;

/// Reports findings (messages for the operator) about an object as log lines, and as events if their reasons are meant
/// for events. A finding that was reported less than ten minutes ago is skipped. When there are more than
/// `FINDINGS_AT_MOST` findings, failures come first, and only the number of the rest is reported.
pub fn publish<'a>(apis: &Apis, of: Subject, findings: impl IntoIterator<Item = &'a Finding>) {
    publish_all(apis, of, findings.into_iter().collect());
}

fn publish_all(apis: &Apis, of: Subject, mut findings: Vec<&Finding>) {
    let rest = findings.len().saturating_sub(FINDINGS_AT_MOST);
    if rest > 0 {
        order::sort_by_key(&mut findings, |finding| !finding.reason.is_failure());
        findings.truncate(FINDINGS_AT_MOST);
    }
    for finding in findings {
        publish_if_due(apis, of, finding, false);
    }
    if rest > 0 {
        let message = format!(
            "ccm has found {rest} more problems. Solve the reported problems first; ccm then reports the others"
        );
        let more = Finding::warning(Reason::MoreFindings, message);
        publish_if_due(apis, of, &more, false);
    }
}

/// Records that the object is as it should be now, so that its next failure is reported again at once. When the object
/// had failed before, the recovery is logged, and `true` is returned.
pub fn recovered(apis: &Apis, of: Subject) -> bool {
    let has_failed = apis.recorder.reported().recovered(of);
    if has_failed {
        let (controller, name) = (of.controller, of.object.for_people());
        log::info!(target: FINDINGS, controller, object = name.as_str(); "{name}: all reported failures have ended");
    }
    has_failed
}

/// Returns the component that the events of a controller name as their source. This is `own`, except when the provider
/// (the code for one cloud) imitates the events of another cloud-controller-manager, as with `--cloud-provider=hcloud`.
/// Then it is `upstream`, the name of the same controller in Kubernetes.
pub(super) fn component(apis: &Apis, upstream: &'static str, own: &'static str) -> &'static str {
    if apis.provider.event_component().is_some() { upstream } else { own }
}

/// Reports that one part of an object was synced while another part still fails. The record of that failure is kept,
/// i.e. the object does not count as recovered. Otherwise the same failure would be reported once more.
pub(super) fn publish_beside_failures(apis: &Apis, of: Subject, finding: &Finding) {
    publish_if_due(apis, of, finding, true);
}

fn publish_if_due(apis: &Apis, of: Subject, finding: &Finding, another_part_fails: bool) {
    let (message, reason) = (event_message(finding), finding.reason);
    let mut reported = apis.recorder.reported();
    if !another_part_fails {
        reported.turn(of, reason);
    }
    let is_due = reported.is_due(of, reason, &message, clock::now());
    drop(reported);
    if is_due {
        publish_now(apis, of, finding, false);
    }
}

/// Returns the text of the event. The ID of the failed API call is left out, so that repeated failures have the same
/// text and become one event.
fn event_message(finding: &Finding) -> String {
    let text = finding.text();
    let message = without_correlations(&text);
    text::cut(&message, MESSAGE_CHARACTERS_AT_MOST).into_owned()
}

/// Reports the finding (a message for the operator) even if it was reported a moment ago. Callers use this function
/// when the state of the object has changed. When an equal event exists already, its count is raised, unless `only_new`
/// is `true`.
pub(super) fn publish_now(apis: &Apis, of: Subject, finding: &Finding, only_new: bool) {
    let reason = finding.reason;
    FINDINGS_REPORTED.count(&[of.controller, reason.name()]);
    log_finding(of, finding);
    if reason.event().is_none() {
        return;
    }
    let own = finding.is_of_provider.then(|| apis.provider.event_component()).flatten();
    let component = own.unwrap_or(of.controller);
    apis.recorder.queue(Event {
        component,
        object: of.object.clone(),
        reason,
        message: event_message(finding),
        at: clock::timestamp(),
        only_new,
    });
}

fn log_finding(of: Subject, finding: &Finding) {
    let (controller, name) = (of.controller, of.object.for_people());
    let reason = finding.reason.name();
    let text = finding.text();
    let message = text::cut(&text, MESSAGE_CHARACTERS_AT_MOST);
    match finding.severity {
        Severity::Info if finding.reason.is_logged_by_its_write() => {}
        Severity::Info => {
            log::info!(target: FINDINGS, controller, object = name.as_str(), reason; "{name}: {message}");
        }
        Severity::Warning => {
            log::warn!(target: FINDINGS, controller, object = name.as_str(), reason; "{name}: {message} ({reason})");
        }
    }
}
