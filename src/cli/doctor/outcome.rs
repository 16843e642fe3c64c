//! What comes of a check, and why something could not be read for it.

use crate::http::without_known_secrets;
use crate::provider::Finding;
use crate::text;
use serde::Serialize;

/// The fix where the error itself names what to do.
pub(super) const SEE_ERROR: &str = "see what the error names";

/// The result of a check. Problems are listed first, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Status {
    /// The daemon can't do its work, or not all of it.
    Fail,
    /// The daemon works, and a person should read it.
    Warn,
    /// It could not be checked, and that alone is no fault.
    Skipped,
    Ok,
}

impl Status {
    pub(super) fn word(self) -> &'static str {
        match self {
            Status::Fail => "FAIL",
            Status::Warn => "warn",
            Status::Skipped => "skipped",
            Status::Ok => "ok",
        }
    }
}

/// What a check says of one object, or of the whole; the form for programs.
#[derive(Serialize)]
pub(in crate::cli) struct Outcome {
    pub(in crate::cli) check: &'static str,
    /// E.g. `node/worker-1`, `service/default/web`; null: the whole.
    pub(in crate::cli) object: Option<String>,
    pub(super) status: Status,
    /// What was found, and what it means.
    pub(super) message: String,
    /// The fix; empty where nothing is wrong, or where the message says it.
    pub(super) remedy: String,
}

/// What a check returns. The error: what it rests on was not read.
pub(super) type Verdict = Result<Outcome, Gap>;

/// The same of a check that says something of each object.
pub(super) type Verdicts = Result<Vec<Outcome>, Gap>;

/// Something that was read.
pub(in crate::cli) type Seen<T> = Result<T, Gap>;

/// Why it was not read.
#[derive(Clone, Debug)]
pub(in crate::cli) enum Gap {
    /// It rests on another check, which did not pass: the name of that one.
    Needs(&'static str),
    /// It does not exist here, or may not be read, and that is no fault.
    NotHere(String),
    /// It was tried; the error, and the fix where the error shows it.
    Failed(String, Option<String>),
    /// The same, where the API does not accept the credentials: no later read sends them.
    Refused(Credential, String, Option<String>),
}

/// Credentials that several reads send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Credential {
    /// The token of the Cloud API.
    Cloud,
    /// What the kubeconfig or the service account has.
    Kubernetes,
}

impl Gap {
    /// The gap of what rests on `self`, which `check` reports.
    pub(super) fn behind(&self, check: &'static str) -> Gap {
        match self {
            Gap::NotHere(why) => Gap::NotHere(why.clone()),
            Gap::Needs(_) | Gap::Failed(..) | Gap::Refused(..) => Gap::Needs(check),
        }
    }
}

/// For a check that rests on what another one reports.
pub(super) fn need<'a, T>(seen: &'a Seen<T>, check: &'static str) -> Result<&'a T, Gap> {
    seen.as_ref().map_err(|gap| gap.behind(check))
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

    /// `remedy` is the fix for what was tried and could not be read.
    pub(super) fn unread(gap: Gap, remedy: &str) -> Outcome {
        match gap {
            Gap::Needs(check) => Outcome::skipped(format!("not checked: see {check}")),
            Gap::NotHere(why) => Outcome::skipped(why),
            Gap::Failed(why, fix) | Gap::Refused(_, why, fix) => {
                Outcome::fail(why, fix.unwrap_or_else(|| remedy.to_owned()))
            }
        }
    }

    /// `is_all`: it is so of every object of its kind, and that is a failure.
    pub(super) fn bad(
        is_all: bool,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Outcome {
        let status = if is_all { Status::Fail } else { Status::Warn };
        Outcome::new(status, message, remedy)
    }

    pub(in crate::cli) fn is_bad(&self) -> bool {
        matches!(self.status, Status::Fail | Status::Warn)
    }

    pub(super) fn on(self, kind: &str, name: &str) -> Outcome {
        Outcome { object: Some(format!("{kind}/{name}")), ..self }
    }

    fn new(status: Status, message: impl Into<String>, remedy: impl Into<String>) -> Outcome {
        Outcome { check: "", object: None, status, message: message.into(), remedy: remedy.into() }
    }
}

/// Of one message, in characters.
const LONGEST_MESSAGE: usize = 300;

/// What a plan reports of an object, with the fix that the finding has. `inspect`: the command that shows the object, and
/// so the whole message where it is cut here.
pub(super) fn reported(
    outcome: fn(String, String) -> Outcome,
    finding: &Finding,
    inspect: &str,
) -> Outcome {
    let message = without_known_secrets(&finding.message);
    let cut = text::cut(&message, LONGEST_MESSAGE);
    let whole = (*cut != *message).then(|| format!("{inspect} shows the whole message"));
    let fixes = finding.fix.iter().cloned().chain(whole);
    outcome(cut.into_owned(), fixes.collect::<Vec<_>>().join("; "))
}

/// Those, or where there are none, that all is well.
pub(super) fn or_ok(
    outcomes: impl IntoIterator<Item = Outcome>,
    ok: impl Into<String>,
) -> Verdicts {
    let mut outcomes: Vec<Outcome> = outcomes.into_iter().collect();
    if outcomes.is_empty() {
        outcomes.push(Outcome::ok(ok));
    }
    Ok(outcomes)
}

/// `1 node`, `2 nodes`.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
