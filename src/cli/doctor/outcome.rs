//! What comes of a check, and why something could not be read for it.

use crate::cli::topics;
use crate::provider::{Finding, Reason};
use crate::text;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a check. Problems are listed first, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// The daemon can't do its work, or not all of it.
    Fail,
    /// The daemon works, and a person should read it.
    Warn,
    /// It could not be checked, and that alone is no fault.
    Skipped,
    Ok,
}

/// Result, message and fix of a check.
pub(super) struct Outcome {
    pub(super) status: Status,
    /// What was found, and what it means.
    pub(super) message: String,
    /// The fix; empty where nothing is wrong.
    pub(super) remedy: String,
}

/// What a check returns. The error: what it rests on was not read.
pub(super) type Verdict = Result<Outcome, Gap>;

/// Something that was read.
pub(super) type Seen<T> = Result<T, Gap>;

/// Why it was not read.
#[derive(Clone, Debug)]
pub(super) enum Gap {
    /// It rests on another check, which did not pass: the name of that one.
    Needs(&'static str),
    /// It does not exist here, or may not be read, and that is no fault.
    NotHere(String),
    /// It was tried; the error.
    Failed(String),
}

/// For a check that rests on what another one reports.
pub(super) fn need<'a, T>(seen: &'a Seen<T>, check: &'static str) -> Result<&'a T, Gap> {
    seen.as_ref().map_err(|gap| match gap {
        Gap::NotHere(why) => Gap::NotHere(why.clone()),
        Gap::Needs(_) | Gap::Failed(_) => Gap::Needs(check),
    })
}

/// For the check that reports it.
impl From<&Gap> for Gap {
    fn from(gap: &Gap) -> Gap {
        gap.clone()
    }
}

impl Outcome {
    pub(super) fn ok(message: impl Into<String>) -> Outcome {
        Outcome::new(Status::Ok, message, "")
    }

    pub(super) fn warn(message: impl Into<String>, remedy: impl Into<String>) -> Outcome {
        Outcome::new(Status::Warn, message, remedy)
    }

    pub(super) fn fail(message: impl Into<String>, remedy: impl Into<String>) -> Outcome {
        Outcome::new(Status::Fail, message, remedy)
    }

    pub(super) fn skipped(message: impl Into<String>) -> Outcome {
        Outcome::new(Status::Skipped, message, "")
    }

    /// Of a verdict; `remedy` is the fix for what was tried and could not be read.
    pub(super) fn of(verdict: Verdict, remedy: &str) -> Outcome {
        verdict.unwrap_or_else(|gap| match gap {
            Gap::Needs(check) => Outcome::skipped(format!("not checked: see {check}")),
            Gap::NotHere(why) => Outcome::skipped(why),
            Gap::Failed(why) => Outcome::fail(why, remedy),
        })
    }

    /// Several at once: as bad as the worst, which comes first. None: there is none.
    pub(super) fn of_all(mut all: Vec<Outcome>) -> Option<Outcome> {
        all.sort_by_key(|one| one.status != Status::Fail);
        let status = all.first()?.status;
        let mut remedies: Vec<&str> = all.iter().map(|one| one.remedy.as_str()).collect();
        remedies.dedup();
        let messages: Vec<&str> = all.iter().map(|one| one.message.as_str()).collect();
        Some(Outcome::new(
            status,
            messages.join("; "),
            remedies.join("; "),
        ))
    }

    fn new(status: Status, message: impl Into<String>, remedy: impl Into<String>) -> Outcome {
        Outcome {
            status,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// Of one message, in characters: several may stand in one check.
const LONGEST_MESSAGE: usize = 300;

/// What plans report of objects, an outcome for each reason. The fix is what the help page says of it, and `more`.
pub(super) fn reported<'a>(
    outcome: fn(String, String) -> Outcome,
    findings: impl IntoIterator<Item = (String, &'a Finding)>,
    more: &str,
) -> Vec<Outcome> {
    let mut by_reason: BTreeMap<Reason, Vec<String>> = BTreeMap::new();
    for (object, finding) in findings {
        let message = text::cut(&finding.message, LONGEST_MESSAGE);
        let messages = by_reason.entry(finding.reason).or_default();
        messages.push(format!("{object}: {message}"));
    }
    let outcomes = by_reason.into_iter().map(|(reason, messages)| {
        let fix = topics::meaning(reason.name());
        outcome(some(&messages), format!("{fix}; {more}"))
    });
    outcomes.collect()
}

/// The outcome for these names, the first of which it gets; none without any.
pub(super) fn about(
    names: impl IntoIterator<Item = String>,
    outcome: impl FnOnce(String) -> Outcome,
) -> Option<Outcome> {
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| outcome(some(&names)))
}

/// `1 node`, `2 nodes`.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// `a, b, c and 2 more`.
pub(super) fn some(names: &[String]) -> String {
    const SHOWN: usize = 3;
    text::first_of(names, SHOWN)
}
