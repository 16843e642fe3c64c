//! Creates certificates. An uploaded certificate exists at once, while a managed certificate must first be issued.

use serde_json::Value;

use super::content::{self, Content};
use super::issue::{self, Managed};
use super::{Certificate, TYPES};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::labels::is_dns_label;
use crate::hetzner::owned;
use crate::hetzner::text::text;
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};
use crate::time;

/// Answers `POST /certificates`.
pub fn create(call: &mut Call) -> Result<Reply, ApiError> {
    let certificate = read(call)?;
    let (id, is_managed) = (certificate.id, certificate.managed.is_some());
    call.world.certificates.insert(id, certificate);
    let action = is_managed.then(|| issue::start(call, id, "create_certificate"));
    let shown = call.world.certificates.get(&id);
    let shown = shown.map(|certificate| certificate.json(call.world));
    let answer = text!({"certificate": shown});
    // The API's OpenAPI document does not allow the value null for the field `action`. The answer for an uploaded
    // certificate, which has no action, therefore leaves out the field.
    let action = action.map(|action| call.world.action_json(action));
    Ok(Reply::new(201, answer.and("action", action)))
}

/// Adds a certificate to the simulated cloud, as `POST /certificates` with this body would. A managed certificate is
/// issued at once.
pub fn place(world: &mut World, project: u64, body: &Value) -> Result<u64, ApiError> {
    let body = body.to_string();
    let mut call = Call::by_hand(world, project, body.as_bytes());
    let mut certificate = read(&mut call)?;
    if certificate.managed.is_some() {
        certificate.complete();
    }
    let id = certificate.id;
    world.certificates.insert(id, certificate);
    Ok(id)
}

/// Adds a certificate to the simulated cloud. `shown` is the certificate as the API returns it, in JSON. A managed
/// certificate whose issuance is not completed gets no certificate chain, so load balancers cannot use it.
pub fn put(world: &mut World, project: u64, shown: &Value) -> Result<(), ApiError> {
    let mut fields = Fields::of(shown);
    let managed = Managed::shown(&shown["status"]);
    let is_there = managed.as_ref().is_none_or(Managed::is_completed);
    let domain_names = fields.strings("domain_names")?.unwrap_or_default();
    let text = |name: &str| shown[name].as_str().unwrap_or_default();
    let content = Content {
        pem: text("certificate").to_owned(),
        fingerprint: text("fingerprint").to_owned(),
        not_before: text("not_valid_before").parse().unwrap_or_default(),
        not_after: text("not_valid_after").parse().unwrap_or_default(),
        domain_names: domain_names.clone(),
    };
    let id = world.new_id();
    let certificate = Certificate {
        id,
        project,
        name: text("name").to_owned(),
        created: time::timestamp(),
        labels: fields.labels()?.unwrap_or_default(),
        domain_names,
        content: is_there.then_some(content),
        managed,
    };
    world.certificates.insert(id, certificate);
    Ok(())
}

fn read(call: &mut Call) -> Result<Certificate, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let name = owned::read_name::<Certificate>(call, &mut fields)?;
    let labels = fields.labels()?.unwrap_or_default();
    let is_managed = fields.word("type", &TYPES)? == Some("managed");
    let (content, domain_names) = if is_managed {
        (None, read_domains(&mut fields)?)
    } else {
        let content = read_content(&mut fields)?;
        let domains = content.domain_names.clone();
        (Some(content), domains)
    };
    fields.finish()?;
    Ok(Certificate {
        id: call.world.new_id(),
        project: call.project,
        name,
        created: time::timestamp(),
        labels,
        domain_names,
        content,
        managed: is_managed.then(Managed::default),
    })
}

fn read_content(fields: &mut Fields) -> Result<Content, ApiError> {
    let pem = fields.string("certificate")?;
    let pem = fields.required("certificate", pem)?;
    let key = fields.string("private_key")?;
    let key = fields.required("private_key", key)?;
    let content = Content::parse(&pem).map_err(|problem| fields.invalid("certificate", problem))?;
    content::check_key(&pem, &key).map_err(|problem| fields.invalid("private_key", problem))?;
    Ok(content)
}

/// Reads the host names of a managed certificate. The first label of a host name is allowed to be the wildcard `*`.
fn read_domains(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let domains = fields.strings("domain_names")?.unwrap_or_default();
    if domains.is_empty() {
        return Err(fields.invalid("domain_names", "is required for managed certificates"));
    }
    let is_domain = |domain: &&String| {
        let name = domain.strip_prefix("*.").unwrap_or(domain);
        name.contains('.') && name.len() <= 253 && name.split('.').all(is_dns_label)
    };
    match domains.iter().find(|domain| !is_domain(domain)) {
        Some(wrong) => {
            let problem = format!("'{wrong}' is no domain name");
            Err(fields.invalid("domain_names", problem))
        }
        None => Ok(domains),
    }
}
