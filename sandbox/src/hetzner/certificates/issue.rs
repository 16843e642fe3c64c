//! Simulates the issuance of managed certificates. An issuance takes a while, and fails when a domain of the
//! certificate is in no DNS zone of the project.

use std::time::Duration;

use serde_json::Value;

use super::content::Content;
use super::{Certificate, resource};
use crate::credentials::{Authority, Validity};
use crate::hetzner::actions::Outcome;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::text::{Text, text};
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};
use crate::time;

/// How long an issuance takes. A real issuance sometimes takes minutes, but 30 seconds are enough for a client to see
/// that the certificate is not issued at once.
const TAKES: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub struct Managed {
    issuance: Issuance,
}

#[derive(Clone, Debug, Default)]
enum Issuance {
    #[default]
    Pending,
    Completed,
    Failed {
        code: String,
        message: String,
    },
}

impl Managed {
    /// Reads the state of an issuance from the field `status` of a certificate's JSON. Returns `None` for an uploaded
    /// certificate, which has no status.
    pub fn shown(status: &Value) -> Option<Managed> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let issuance = match status["issuance"].as_str()? {
            "completed" => Issuance::Completed,
            "failed" => Issuance::Failed {
                code: text(&status["error"]["code"]),
                message: text(&status["error"]["message"]),
            },
            _ => Issuance::Pending,
        };
        Some(Managed { issuance })
    }

    pub fn is_completed(&self) -> bool {
        matches!(self.issuance, Issuance::Completed)
    }

    pub fn json(&self) -> Text {
        match &self.issuance {
            Issuance::Pending => text!({"issuance": "pending", "renewal": "unavailable"}),
            Issuance::Completed => text!({"issuance": "completed", "renewal": "scheduled"}),
            Issuance::Failed { code, message } => text!({
                "issuance": "failed", "renewal": "unavailable",
                "error": {"code": code, "message": message},
            }),
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self.issuance, Issuance::Failed { .. })
    }
}

impl Certificate {
    /// Ends the issuance: makes the certificate, or marks the issuance as failed when the certificate cannot be made.
    pub fn complete(&mut self) {
        let issuance = match make(self.id, &self.domain_names) {
            Ok(content) => {
                self.content = Some(content);
                Issuance::Completed
            }
            Err(message) => Issuance::Failed { code: "ca_dns_validation_failed".into(), message },
        };
        self.managed = Some(Managed { issuance });
    }

    fn fail(&mut self, code: String, message: String) {
        let issuance = Issuance::Failed { code, message };
        self.managed = Some(Managed { issuance });
    }
}

/// Starts the issuance of a managed certificate as an action with this `command`, and returns the ID of the action.
pub fn start(call: &mut Call, id: u64, command: &'static str) -> u64 {
    if let Some(certificate) = call.world.certificates.get_mut(&id) {
        certificate.managed = Some(Managed::default());
    }
    let effect = move |world: &mut World, outcome| end(world, id, outcome);
    let action = call.run(command, TAKES, &[resource(id)], effect);
    if let Some(domain) = unmanaged_domain(call.world, id) {
        let message = format!("DNS zone of {domain} not found");
        call.world.actions.doom(action, "dns_zone_not_found", &message);
    }
    action
}

/// Answers `POST /certificates/{id}/actions/retry`. The request is refused unless the certificate's last issuance has
/// failed.
pub fn retry(call: &mut Call, certificate: &Certificate) -> Result<Reply, ApiError> {
    Fields::parse(call.body)?.finish()?;
    let Some(managed) = &certificate.managed else {
        let message = "only managed certificates can be issued again";
        return Err(ApiError::new(422, "invalid_input", message));
    };
    if call.world.is_locked(certificate.resource()) {
        return Err(ApiError::locked("certificate"));
    }
    if !managed.has_failed() {
        let message = "neither issuance nor renewal has failed";
        return Err(ApiError::new(422, "invalid_input", message));
    }
    let action = start(call, certificate.id, "issue_certificate");
    Ok(call.world.action_reply(201, action))
}

/// Issues a certificate again for a test. Unlike the API's action `retry`, this is possible even when the last issuance
/// did not fail.
pub fn retry_by_hand(world: &mut World, id: u64) {
    if let Some(project) = world.certificates.get(&id).map(|found| found.project) {
        start(&mut Call::by_hand(world, project, b""), id, "issue_certificate");
    }
}

fn end(world: &mut World, id: u64, outcome: Outcome) {
    // This is the error of the certificate's newest action, which is the action that ends now. When the action has
    // failed, its error becomes the reason of the failed issuance.
    let failure = world.actions.last_error(resource(id)).cloned();
    let Some(certificate) = world.certificates.get_mut(&id) else {
        return;
    };
    match (outcome, failure) {
        (Outcome::Failure, Some((code, message))) => certificate.fail(code, message),
        _ => certificate.complete(),
    }
}

/// Returns the certificate's first domain that is in no DNS zone of the project. Returns `None` when all domains are in
/// a zone, or when no test has set the zones of the project.
fn unmanaged_domain(world: &World, id: u64) -> Option<String> {
    let certificate = world.certificates.get(&id)?;
    let zones = world.circumstances.zones.get(&certificate.project)?;
    let is_managed = |domain: &&String| {
        zones.iter().any(|zone| {
            let rest = domain.strip_suffix(zone.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    };
    let mut domains = certificate.domain_names.iter();
    domains.find(|domain| !is_managed(domain)).cloned()
}

/// Makes a valid certificate chain for these domains. It is signed by the sandbox's own certificate authority, which no
/// client trusts.
fn make(id: u64, domain_names: &[String]) -> Result<Content, String> {
    let names: Vec<&str> = domain_names.iter().map(String::as_str).collect();
    let name = "sandbox issuer";
    let authority = match time::is_simulated() {
        // The seed of the certificate authority contains the time, so that a repeated issuance makes a different
        // certificate.
        true => Authority::seeded(name, id ^ time::timestamp().as_nanosecond() as u64),
        false => Authority::new(name),
    };
    let authority = authority.map_err(|error| error.to_string())?;
    let identity = authority.server(&names, Validity::Now).map_err(|error| error.to_string())?;
    let chain = [identity.certificate_pem.as_str(), authority.certificate_pem()].concat();
    Content::parse(&chain)
}
