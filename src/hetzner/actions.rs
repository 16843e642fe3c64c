//! Actions that run in the cloud after a write: whether they have ended, and how.

use super::api::Api;
use super::error::is_busy;
use crate::provider::{ActionId, Error, ErrorKind, Urgency};
use serde::Deserialize;
use std::collections::HashMap;

/// The API takes no more IDs in one call.
const IDS_AT_MOST: usize = 25;

/// An action of the API.
#[derive(Debug, Deserialize)]
pub(super) struct Action {
    id: u64,
    #[serde(default)]
    command: String,
    status: Status,
    error: Option<ActionError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Running,
    Success,
    Error,
}

#[derive(Debug, Deserialize)]
struct ActionError {
    code: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Actions {
    actions: Vec<Action>,
}

impl Action {
    /// None: it still runs; its number.
    pub(super) fn end(&self) -> Option<Result<(), Error>> {
        match self.status {
            Status::Running => None,
            Status::Success => Some(Ok(())),
            Status::Error => Some(Err(self.failure())),
        }
    }

    pub(super) fn id(&self) -> ActionId {
        ActionId(self.id)
    }

    fn failure(&self) -> Error {
        let Action { id, command, .. } = self;
        let Some(error) = &self.error else {
            let message = format!("action {id} ({command}): failed, and the API does not say why");
            return Error::new(ErrorKind::Other, message);
        };
        let kind = if is_busy(&error.code) { ErrorKind::Busy } else { ErrorKind::Other };
        let message = crate::http::shortened(&error.message);
        Error::new(kind, format!("action {id} ({command}): failed: {message} ({})", error.code))
    }
}

/// An error where an action still runs on the load balancer of this path: what it adds shows when it has ended.
pub(super) fn check_none_runs(api: &Api, path: &str) -> Result<(), Error> {
    let running = format!("{path}/actions?status=running");
    let answer: Actions = api.get(&running, Urgency::Needed)?;
    match answer.actions.iter().find(|action| action.end().is_none()) {
        None => Ok(()),
        Some(Action { id, command, .. }) => {
            let message = format!("{path}: action {id} ({command}) still runs");
            Err(Error::new(ErrorKind::Busy, message))
        }
    }
}

/// Asks once for all of these; those that have ended, each with how.
pub(super) fn ended(
    api: &Api,
    actions: &[ActionId],
) -> Result<HashMap<ActionId, Result<(), Error>>, Error> {
    let mut ended = HashMap::new();
    for some in actions.chunks(IDS_AT_MOST) {
        let ids: Vec<String> = some.iter().map(|id| format!("id={}", id.0)).collect();
        let path = format!("/actions?{}", ids.join("&"));
        let answer: Actions = api.get(&path, Urgency::Needed)?;
        ended.extend(answer.actions.iter().filter_map(|action| Some((action.id(), action.end()?))));
    }
    Ok(ended)
}
