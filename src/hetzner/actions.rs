//! Asks the Cloud API about actions, which Hetzner carries out after the API has accepted a write: whether an action
//! has ended, and with which result. Also finds out whether any action still runs on a given server or load balancer.

use super::api::{Api, Resource};
use super::error::is_busy;
use crate::provider::{ActionId, ErrorKind, ProviderError, Urgency};
use serde::Deserialize;
use std::collections::HashMap;

/// The highest number of IDs that the API takes in one call.
const IDS_AT_MOST: usize = 25;

/// An action of the Cloud API, which Hetzner carries out after the API has accepted a write.
#[derive(Debug, Deserialize)]
pub(super) struct ApiAction {
    id: u64,
    #[serde(default)]
    command: String,
    status: Status,
    error: Option<ActionError>,
    /// The objects that the action changes.
    #[serde(default)]
    resources: Vec<ActionResource>,
}

#[derive(Debug, Deserialize)]
struct ActionResource {
    id: u64,
    r#type: String,
}

impl Resource for ApiAction {
    const LIST: &'static str = "servers/actions";
    fn id(&self) -> u64 {
        self.id
    }
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
struct ActionList {
    actions: Vec<ApiAction>,
}

impl ApiAction {
    /// Returns how the action ended, or `None` while the action is running.
    fn end(&self) -> Option<Result<(), ProviderError>> {
        match self.status {
            Status::Running => None,
            Status::Success => Some(Ok(())),
            Status::Error => Some(Err(self.failure())),
        }
    }

    /// Returns the action's ID while the action is running, or `None` when the action has succeeded. The error says
    /// that the action has failed.
    pub(super) fn running(&self) -> Result<Option<ActionId>, ProviderError> {
        self.end().map_or(Ok(Some(ActionId(self.id))), |end| end.map(|()| None))
    }

    fn failure(&self) -> ProviderError {
        let ApiAction { id, command, .. } = self;
        let Some(error) = &self.error else {
            let message = format!("action {id} ({command}) failed, and the API does not say why");
            return ProviderError::new(ErrorKind::Other, message);
        };
        let kind = if is_busy(&error.code) { ErrorKind::Busy } else { ErrorKind::Other };
        let message = crate::http::shortened(&error.message);
        let why = format!("action {id} ({command}) failed: {message} ({})", error.code);
        ProviderError::new(kind, why)
    }
}

/// Returns an error while an action still runs on the load balancer with this API path. Such an action can, for
/// example, add a target that the API's answer about the load balancer does not show yet. So the answer is not complete
/// before the action has ended.
pub(super) fn check_none_runs(api: &Api, path: &str) -> Result<(), ProviderError> {
    let running = format!("{path}/actions?status=running");
    let answer: ActionList = api.get(&running, Urgency::Needed)?;
    none_runs(path, answer.actions.iter())
}

/// Returns an error while an action still runs on this server. To find this out, the running actions of all servers are
/// read.
pub(super) fn check_server_is_idle(api: &Api, server: u64) -> Result<(), ProviderError> {
    let running: Vec<ApiAction> = api.list("status=running&", Urgency::Gone)?;
    let is_its = |it: &ActionResource| it.r#type == "server" && it.id == server;
    let its = running.iter().filter(|action| action.resources.iter().any(is_its));
    none_runs(&format!("/servers/{server}"), its)
}

fn none_runs<'a>(
    path: &str,
    mut actions: impl Iterator<Item = &'a ApiAction>,
) -> Result<(), ProviderError> {
    match actions.find(|action| action.status == Status::Running) {
        None => Ok(()),
        Some(ApiAction { id, command, .. }) => {
            let message = format!("{path}: action {id} ({command}) still runs");
            Err(ProviderError::new(ErrorKind::Busy, message))
        }
    }
}

/// Asks the API about these actions. Returns only the actions that have ended, each with its result.
pub(super) fn ended(
    api: &Api,
    actions: &[ActionId],
) -> Result<HashMap<ActionId, Result<(), ProviderError>>, ProviderError> {
    let mut ended = HashMap::new();
    for some in actions.chunks(IDS_AT_MOST) {
        let ids: Vec<String> = some.iter().map(|id| format!("id={}", id.0)).collect();
        let path = format!("/actions?{}", ids.join("&"));
        let answer: ActionList = api.get(&path, Urgency::Needed)?;
        let end = |action: &ApiAction| Some((ActionId(action.id), action.end()?));
        ended.extend(answer.actions.iter().filter_map(end));
    }
    Ok(ended)
}
