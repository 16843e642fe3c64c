//! The outcome of a check, and the reason why something could not be read for a check.

use crate::http::without_known_secrets;
use crate::provider::Finding;
use crate::text;
use serde::Serialize;

/// The advice that `ccm doctor` gives for a problem when the error message of the problem already names the cause.
pub(super) const SEE_ERROR: &str = "correct the cause that the error names";

/// The result of a check. Outcomes are listed in the order of these variants, so problems come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum CheckStatus {
    /// The daemon can't do its work, or can't do all of it.
    Fail,
    /// The daemon works, but a person should read this message.
    Warn,
    /// The check, or a part of it, could not be made. A skipped check is no problem by itself.
    Skipped,
    Ok,
}

impl CheckStatus {
    pub(super) fn word(self) -> &'static str {
        match self {
            CheckStatus::Fail => "FAIL",
            CheckStatus::Warn => "warn",
            CheckStatus::Skipped => "skipped",
            CheckStatus::Ok => "ok",
        }
    }
}

/// One result of a check. It is about one object, or about no object in particular. In the JSON and YAML output, a
/// result has these fields.
#[derive(Serialize)]
pub(in crate::cli) struct CheckOutcome {
    pub(in crate::cli) check: &'static str,
    /// The object, e.g. `node/worker-1` or `service/default/web`. Null when the outcome is not about a single object.
    pub(in crate::cli) object: Option<String>,
    pub(super) status: CheckStatus,
    /// What the check has found, and what this means for the cluster.
    pub(super) message: String,
    /// What the user can do about the problem. The text is empty when nothing is wrong, or when the message itself says
    /// what to do.
    pub(super) remedy: String,
}

/// The outcomes of a check. Each is about an object that has a problem, or about no object in particular. The error
/// says why data that the check needs was not read.
pub(super) type CheckResult = Result<Vec<CheckOutcome>, Gap>;

/// Data that was read, or else a [`Gap`], which says why the data was not read.
pub(in crate::cli) type Seen<T> = Result<T, Gap>;

/// The reason why some data for the checks was not read.
#[derive(Clone, Debug)]
pub(in crate::cli) enum Gap {
    /// The data was not read for a reason that another check reports, e.g. because an earlier read failed. The value is
    /// the name of that check.
    Needs(&'static str),
    /// There is nothing to read, or the user has no right to read it. The value is the reason. Neither case is a fault.
    NotHere(String),
    /// The read was tried and failed. The first value is the text of the error. The second value is advice for the
    /// user, if the error shows what the user can do.
    Failed(String, Option<String>),
    /// The API refused these credentials, so later reads do not send them. The second value is the text of the error.
    /// The third value is advice for the user, if the error shows what the user can do.
    Refused(Credential, String, Option<String>),
}

/// The credentials of an API. When the API has refused them, the reads that would need them are not tried any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Credential {
    /// The token of the Cloud API.
    Cloud,
    /// The credentials for the Kubernetes API, from the kubeconfig or the service account.
    Kubernetes,
}

impl Gap {
    /// Returns the error of a check or read that is skipped, because the data that it needs could not be read. `self` is
    /// the reason why they could not be read. Usually the result only refers to `check`, the check that already shows
    /// this reason to the user. When the data do not exist, or when the user has no right to read them, the result is a
    /// copy of `self` instead.
    pub(super) fn behind(&self, check: &'static str) -> Gap {
        match self {
            Gap::NotHere(why) => Gap::NotHere(why.clone()),
            Gap::Needs(_) | Gap::Failed(..) | Gap::Refused(..) => Gap::Needs(check),
        }
    }
}

/// Returns the data that was read. When the data was not read, returns an error that refers to `check`, the check that
/// says why.
pub(super) fn need<'a, T>(seen: &'a Seen<T>, check: &'static str) -> Result<&'a T, Gap> {
    seen.as_ref().map_err(|gap| gap.behind(check))
}

/// Lets the operator `?` turn a borrowed [`Gap`] into the error of a check. The [`Gap`] is cloned.
impl From<&Gap> for Gap {
    fn from(gap: &Gap) -> Gap {
        gap.clone()
    }
}

impl CheckOutcome {
    pub(super) fn ok(message: impl Into<String>) -> CheckOutcome {
        CheckOutcome::new(CheckStatus::Ok, message, "")
    }

    pub(super) fn warn(message: impl Into<String>, remedy: impl Into<String>) -> CheckOutcome {
        CheckOutcome::new(CheckStatus::Warn, message, remedy)
    }

    pub(super) fn fail(message: impl Into<String>, remedy: impl Into<String>) -> CheckOutcome {
        CheckOutcome::new(CheckStatus::Fail, message, remedy)
    }

    pub(super) fn skipped(message: impl Into<String>) -> CheckOutcome {
        CheckOutcome::new(CheckStatus::Skipped, message, "")
    }

    /// Returns the outcome of a check whose data was not read, for the reason `gap`. When `gap` is an error that does
    /// not say what the user can do about it, the outcome shows the text `remedy` for this.
    pub(super) fn unread(gap: Gap, remedy: &str) -> CheckOutcome {
        match gap {
            Gap::Needs(check) => {
                CheckOutcome::skipped(format!("not checked: see the check {check:?}"))
            }
            Gap::NotHere(why) => CheckOutcome::skipped(why),
            Gap::Failed(why, fix) | Gap::Refused(_, why, fix) => {
                CheckOutcome::fail(why, fix.unwrap_or_else(|| remedy.to_owned()))
            }
        }
    }

    /// Returns the result of a check that has found a problem: a failure when `is_grave` is true, and otherwise a
    /// warning. For example, some callers return a failure only when all objects have the problem.
    pub(super) fn bad(
        is_grave: bool,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> CheckOutcome {
        let status = if is_grave { CheckStatus::Fail } else { CheckStatus::Warn };
        CheckOutcome::new(status, message, remedy)
    }

    pub(in crate::cli) fn is_bad(&self) -> bool {
        matches!(self.status, CheckStatus::Fail | CheckStatus::Warn)
    }

    pub(super) fn on(self, kind: &str, name: &str) -> CheckOutcome {
        CheckOutcome { object: Some(format!("{kind}/{name}")), ..self }
    }

    fn new(
        status: CheckStatus,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> CheckOutcome {
        CheckOutcome {
            check: "",
            object: None,
            status,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// The greatest length of a message in characters. A longer message is cut.
const LONGEST_MESSAGE: usize = 300;

/// Returns the result of a check for a finding, which is a fact or a problem that a plan reports about an object. A
/// message that is too long is cut. The result then also names `inspect`, the command that shows the whole message.
pub(super) fn reported(
    outcome: fn(String, String) -> CheckOutcome,
    finding: &Finding,
    inspect: &str,
) -> CheckOutcome {
    let message = without_known_secrets(&finding.message);
    let cut = text::cut(&message, LONGEST_MESSAGE);
    let whole = (*cut != *message).then(|| format!("{inspect} shows the whole message"));
    let fixes = finding.fix.iter().cloned().chain(whole);
    outcome(cut.into_owned(), fixes.collect::<Vec<_>>().join("; "))
}

/// Returns `outcomes`, the results of a check. When there are none, returns a single result instead, which says that no
/// problem was found. The message of this result is the text `ok`.
pub(super) fn or_ok(
    outcomes: impl IntoIterator<Item = CheckOutcome>,
    ok: impl Into<String>,
) -> CheckResult {
    let mut outcomes: Vec<CheckOutcome> = outcomes.into_iter().collect();
    if outcomes.is_empty() {
        outcomes.push(CheckOutcome::ok(ok));
    }
    Ok(outcomes)
}

/// Returns a count with its noun, e.g. `1 node` or `2 nodes`.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
