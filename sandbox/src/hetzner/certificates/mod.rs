//! Answers requests to `/certificates`, the certificates with which load balancers serve HTTPS. A certificate is either
//! uploaded by the customer, or managed, which means that Hetzner obtains and renews it.

mod content;
mod create;
mod issue;

use jiff::Timestamp;

use self::content::Content;
pub use self::create::{place, put};
use self::issue::Managed;
pub use self::issue::retry_by_hand;
use super::actions::{self, Resource};
use super::catalog::id;
use super::clock::show;
use super::error::ApiError;
use super::input::{Fields, Query};
use super::labels::Labels;
use super::listing::Page;
use super::owned;
use super::world::World;
use super::{Call, Reply};
use crate::hetzner::text::{Text, text};

const TYPES: [&str; 2] = ["uploaded", "managed"];

#[derive(Clone, Debug)]
pub struct Certificate {
    pub id: u64,
    pub project: u64,
    pub name: String,
    created: Timestamp,
    pub labels: Labels,
    domain_names: Vec<String>,
    /// The certificate chain, and facts from its first certificate, e.g. the domain names. `None` until a managed
    /// certificate has been issued.
    content: Option<Content>,
    /// The state of the issuance of a managed certificate. `None` for an uploaded certificate.
    managed: Option<Managed>,
}

owned::owned!(Certificate, "certificate", certificates);

impl Certificate {
    pub fn resource(&self) -> Resource {
        resource(self.id)
    }

    /// Whether a load balancer can serve the certificate, because it was uploaded or issued.
    pub fn is_usable(&self) -> bool {
        self.content.is_some()
    }

    fn kind(&self) -> &'static str {
        TYPES[usize::from(self.managed.is_some())]
    }

    pub fn json(&self, world: &World) -> Text {
        let content = self.content.as_ref();
        let used_by = self.users(world).into_iter();
        let used_by = used_by.map(|id| text!({"id": id, "type": "load_balancer"}));
        text!({
            "id": self.id, "name": self.name, "created": show(self.created), "labels": self.labels,
            "type": self.kind(), "domain_names": self.domain_names,
            "certificate": content.map(|content| &content.pem),
            "fingerprint": content.map(|content| &content.fingerprint),
            "not_valid_before": content.map(|content| show(content.not_before)),
            "not_valid_after": content.map(|content| show(content.not_after)),
            "status": self.managed.as_ref().map(Managed::json),
            "used_by": used_by.collect::<Vec<_>>(),
        })
    }

    /// Returns the IDs of the load balancers that use the certificate.
    fn users(&self, world: &World) -> Vec<u64> {
        world
            .load_balancers_of(self.project)
            .filter(|one| one.certificates().contains(&self.id))
            .map(|one| one.id)
            .collect()
    }
}

fn resource(id: u64) -> Resource {
    Resource { kind: "certificate", id }
}

/// Answers all requests to `/certificates` and to paths below it.
pub fn route(call: &mut Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match (rest, call.method) {
        ([], "GET") => list(call),
        ([], "POST") => create::create(call),
        (["actions", rest @ ..], _) => {
            actions::route_kind(call, "/certificates/actions", "certificate", rest)
        }
        ([segment, rest @ ..], _) => route_one(call, id(segment)?, rest),
        _ => Err(ApiError::wrong_method(call.method)),
    }
}

fn route_one(call: &mut Call, id: u64, rest: &[&str]) -> Result<Reply, ApiError> {
    let found = find(call, id)?.clone();
    match (rest, call.method) {
        ([], "GET") => {
            call.refuse_query()?;
            Ok(Reply::ok(text!({"certificate": found.json(call.world)})))
        }
        ([], "PUT") => update(call, found),
        ([], "DELETE") => delete(call, &found),
        ([], _) => Err(ApiError::wrong_method(call.method)),
        (["actions", "retry"], "POST") => issue::retry(call, &found),
        (["actions", "retry"], _) => Err(ApiError::wrong_method(call.method)),
        (["actions", rest @ ..], _) => {
            let path = format!("/certificates/{id}/actions");
            actions::route_resource(call, &path, found.resource(), rest)
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// Finds a certificate by its ID in the project of the request's API token.
fn find<'c>(call: &'c Call, id: u64) -> Result<&'c Certificate, ApiError> {
    owned::find(call, id)
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let known = ["name", "label_selector", "type", "sort", "page", "per_page"];
    let query = Query::new(call.query, &known)?;
    let page = Page::of(&query)?;
    let types: Vec<&str> = query.all("type").collect();
    if let Some(unknown) = types.iter().find(|kind| !TYPES.contains(kind)) {
        return Err(ApiError::invalid("type", format!("unknown type '{unknown}'")));
    }
    let is_asked_for =
        |certificate: &&Certificate| types.is_empty() || types.contains(&certificate.kind());
    let all = call.world.certificates_of(call.project);
    let found = owned::select(&query, all.filter(is_asked_for))?;
    Ok(page
        .reply("/certificates", "certificates", &found, |certificate| certificate.json(call.world)))
}

fn update(call: &mut Call, certificate: Certificate) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let (name, labels) = owned::read_changes(call, &mut fields, &certificate)?;
    fields.finish()?;
    let certificate = Certificate { name, labels, ..certificate };
    let reply = Reply::ok(text!({"certificate": certificate.json(call.world)}));
    call.world.certificates.insert(certificate.id, certificate);
    Ok(reply)
}

fn delete(call: &mut Call, certificate: &Certificate) -> Result<Reply, ApiError> {
    if !certificate.users(call.world).is_empty() {
        let message = "certificate is still used by a load balancer";
        return Err(ApiError::new(422, "resource_in_use", message));
    }
    if call.world.is_locked(certificate.resource()) {
        return Err(ApiError::locked("certificate"));
    }
    call.world.certificates.remove(&certificate.id);
    Ok(Reply::no_content())
}
