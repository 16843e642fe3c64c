//! Plans the certificates from Secrets: which certificates each `https` port uses, which certificates must be uploaded
//! first, and which uploaded certificates can be deleted.
//!
//! An uploaded certificate is recognised by its labels, its type and its name. The name contains a hash of the
//! certificate chain. When another certificate of the project already has this name, the upload gets a different name.
//!
//! When the content of a Secret changes, the new certificate is uploaded, and the ports are changed to use it. The old
//! certificate is deleted when no load balancer uses it any more. While the content of a Secret is invalid, no
//! certificate that was uploaded from it is deleted.

use super::certificates::{CertificatePlan, PortCertificates, is_https};
use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::annotations as a;
use crate::hetzner::load_balancers::annotations::parser::{AnnotationParser, has};
use crate::hetzner::load_balancers::annotations::values as v;
use crate::hetzner::load_balancers::change::{BalancerAction, BalancerChange, Purpose};
use crate::hetzner::load_balancers::model::balancer::LoadBalancer;
use crate::hetzner::load_balancers::ownership::certificates::of_upload;
use crate::hetzner::load_balancers::ownership::context::{PlanContext, Project};
use crate::hetzner::load_balancers::ownership::guard::Guard;
use crate::hetzner::load_balancers::ownership::names;
use crate::provider::{
    self, Claim, Cluster, Description, Field, Reason, SecretName, Service, ServicePort,
    ShownCertificate, Source, Sourced, TlsPair, TlsSecret, WriteVerb,
};
use crate::text;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The highest number of bytes of an uploaded private key. This limit of the Hetzner Cloud API, `CHAIN_BYTES` and
/// `CHAIN_CERTIFICATES` are from the API's changelog of 2026-02-11.
const KEY_BYTES: usize = 5000;
const CHAIN_BYTES: usize = 30_000;
const CHAIN_CERTIFICATES: usize = 5;

/// The highest number of names that are tried for one upload. A name can be taken by a managed certificate that a user
/// of the cluster ordered under this name. It can also be taken by an uploaded certificate whose labels somebody
/// removed.
const NAMES_AT_MOST: usize = 10;

/// Whether the annotation with this key can name Secrets, for all ports or for a single port.
pub(in crate::hetzner) fn can_name_secrets(key: &str) -> bool {
    a::HTTP_TLS_SECRET.has_key_with_port(key)
}

/// Returns the names of the Secrets in the annotations of the Service's `https` ports.
pub(in crate::hetzner) fn secrets(service: &Service) -> BTreeSet<String> {
    if !has(service, &a::HTTP_TLS_SECRET) {
        return BTreeSet::new();
    }
    let asked = asked(&mut AnnotationParser::new(service), service);
    asked.into_iter().flat_map(|(_, named)| named.value).collect()
}

/// Returns the `https` ports whose annotations name Secrets. Each port comes with the names of its Secrets.
fn asked<'a>(
    parser: &mut AnnotationParser,
    service: &'a Service,
) -> Vec<(&'a ServicePort, Sourced<Vec<String>>)> {
    let asked = service.ports.iter().filter_map(|port| {
        let named = is_https(parser, port)
            .then(|| parser.read(&a::HTTP_TLS_SECRET, Some(port), v::secrets))?;
        Some((port, named?))
    });
    asked.filter(|(_, named)| !named.value.is_empty()).collect()
}

/// Plans the uploads of certificates from Secrets for all ports, and adds them to `all`. Mistakes in annotations are
/// reported to `parser`.
pub(crate) fn upload(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    all: &mut CertificatePlan,
) {
    let asked = asked(parser, context.service);
    // The ports are grouped by Secret, so that a Secret that several ports name is uploaded only once.
    let mut secrets: BTreeMap<&str, (Vec<String>, &Source)> = BTreeMap::new();
    for (port, named) in &asked {
        for secret in &named.value {
            let (ports, _) = secrets.entry(secret).or_insert((Vec::new(), &named.source));
            ports.push(port.port.to_string());
        }
    }
    let before = all.changes.len();
    let mut ids = BTreeMap::new();
    for (secret, (ports, source)) in secrets {
        let name = (context.service.namespace.clone(), secret.to_owned());
        let found = upload_one(context, &name, source, all);
        let id = found.as_ref().ok().copied().flatten();
        let id = id.or_else(|| uploaded_before(context, &name));
        ids.insert(secret, id);
        if let Err(why) = found {
            let then = if id.is_some() {
                "Until this is corrected, the certificate that ccm uploaded earlier from this Secret stays in use"
            } else {
                "Until this is corrected, existing ports keep their certificates, and new ports are not added"
            };
            let (ports, namespace) = (text::some_of(&ports), name.0);
            let why = format!("port {ports} can't use Secret {namespace}/{secret}: {why}. {then}");
            parser.warning(Reason::CertificateFailed, why);
        }
    }
    if let Some(last) = all.changes[before..].last_mut() {
        last.purpose = Purpose::LastUpload;
    }
    for (port, named) in &asked {
        let found = named.value.iter().filter_map(|secret| ids.get(secret.as_str()));
        let waits = found.clone().any(Option::is_none);
        let mut shown: Vec<u64> = Vec::new();
        for id in found.flatten() {
            // The certificates have the order in which the annotation names the Secrets. When two Secrets contain the
            // same certificate, it is added once.
            if !shown.contains(id) {
                shown.push(*id);
            }
        }
        let ids = Sourced::new(shown, named.source.clone());
        let by_name = parser.read(&a::HTTP_CERTIFICATES, Some(port), v::certificates);
        let other = by_name.map(|named| named.source);
        let shows = PortCertificates { ids, waits, refused: None };
        let managed = all.ports.insert(port.port, shows);
        // Reports a problem when a port has certificates from Secrets and also from another annotation. Only one of the
        // two is allowed.
        if let Some(other) = other.or(managed.map(|managed| managed.ids.source)) {
            parser.problem(format!(
                "port {}: {} and {other} both ask for certificates of this port, but only one of the two can be \
                 used. Remove one of the two, or set one to an empty value for this port",
                port.port, named.source
            ));
        }
    }
}

/// Returns the ID of the certificate that was uploaded to Hetzner from the present content of the Secret. `None` means
/// that the present content was not uploaded yet. The upload is then added to the plan, except when the Secret was not
/// read. The error says why the Secret can't be used.
fn upload_one(
    context: &PlanContext,
    secret: &SecretName,
    source: &Source,
    all: &mut CertificatePlan,
) -> Result<Option<u64>, String> {
    let cluster = context.cluster;
    // The Secret was not read, for example because `ccm lint` checks manifest files without a cluster. So no upload is
    // planned.
    let Some(held) = cluster.tls_secrets.get(secret) else {
        return Ok(None);
    };
    let pair = held.as_ref().map_err(String::clone)?;
    if let Some(why) = too_large(pair) {
        return Err(why);
    }
    let digest = Some(pair.digest.as_str());
    let is_it = |certificate: &&Certificate| is_upload(certificate, cluster, secret, digest);
    if let Some(found) = context.certificates.iter().find(is_it) {
        return Ok(Some(found.id));
    }
    let name = free_name(context, secret, pair)?;
    let labels = of_upload(secret, cluster);
    let (namespace, secret) = secret;
    let from = format!("from Secret {namespace}/{secret}");
    let noun = format!("certificate {name}");
    let want = Some(from.clone());
    all.fields.push(Field { field: noun.clone(), have: None, want, source: source.clone() });
    let body = json!({ "name": name, "type": "uploaded", "labels": labels });
    let upload = Description::new(WriteVerb::UPLOAD, noun, format!(" {from}"));
    let mut change =
        BalancerChange::new(context.project, BalancerAction::CreateCertificate, None, body, upload);
    change.pair = Some(Arc::clone(pair));
    all.changes.push(change);
    all.claims.push(Claim::Certificate(name));
    Ok(None)
}

/// Returns a name for the certificate that will be uploaded from this Secret. No other certificate in the Hetzner
/// project has this name. When a name that was tried is taken by a certificate, the hash of that certificate's ID
/// becomes part of the next name.
fn free_name(context: &PlanContext, secret: &SecretName, pair: &TlsPair) -> Result<String, String> {
    let mut taken_by = None;
    for _ in 0..NAMES_AT_MOST {
        let name = names::upload_name(secret, &pair.digest, context.cluster, taken_by);
        match Certificate::with_name(context.certificates, &name) {
            None => return Ok(name),
            Some(other) => taken_by = Some(other.id),
        }
    }
    Err(format!(
        "other certificates of the project already have all {NAMES_AT_MOST} names that ccm tries for the certificate \
         of this Secret. Delete certificates that are not needed"
    ))
}

/// Returns the ID of a certificate that was uploaded earlier from this Secret, perhaps from older content. A
/// certificate that load balancers use is preferred, and then the newest certificate.
fn uploaded_before(context: &PlanContext, secret: &SecretName) -> Option<u64> {
    let is_it = |certificate: &&Certificate| is_upload(certificate, context.cluster, secret, None);
    let all = context.certificates.iter().filter(is_it);
    let best = all.max_by_key(|certificate| (!certificate.used_by.is_empty(), certificate.id));
    best.map(|certificate| certificate.id)
}

fn is_ours(certificate: &Certificate, cluster: &Cluster) -> bool {
    certificate.is_of_cluster(cluster)
        && certificate.secret().is_some()
        && !certificate.is_managed()
}

/// Whether the certificate was uploaded from this Secret. Its labels, its type and its name must fit. The label with
/// the name of the Secret is not enough: a long name is shortened there and gets a short hash, so two Secrets can have
/// the same label. When `digest` is given, the certificate must have been uploaded from the content with this hash.
fn is_upload(
    certificate: &Certificate,
    cluster: &Cluster,
    secret: &SecretName,
    digest: Option<&str>,
) -> bool {
    let is_name = |uid: &String| names::is_upload_name(&certificate.name, uid, secret, digest);
    is_ours(certificate, cluster)
        && certificate.is_of_secret(secret)
        && certificate.cluster_uid().is_some_and(is_name)
}

fn too_large(pair: &TlsPair) -> Option<String> {
    let limits = [
        ("the size of tls.key in bytes is", pair.key.expose().len(), KEY_BYTES),
        ("the size of tls.crt in bytes is", pair.chain.len(), CHAIN_BYTES),
        ("the number of certificates in tls.crt is", pair.certificates, CHAIN_CERTIFICATES),
    ];
    let (what, has, most) = limits.into_iter().find(|(_, has, most)| has > most)?;
    Some(format!("{what} {has}, but Hetzner allows at most {most}"))
}

/// Returns the changes that delete the unused uploaded certificates of this cluster. A certificate is deleted when no
/// load balancer uses it, and no Secret that a Service names contains it. When the content of a Secret is invalid, all
/// certificates from this Secret stay. `None` means that this cluster has no uploaded certificates.
pub(in crate::hetzner) fn unused(
    project: &Project,
    all: &[Certificate],
    cluster: &Cluster,
) -> Option<Vec<Box<dyn provider::Change>>> {
    let ours: Vec<_> = all.iter().filter(|certificate| is_ours(certificate, cluster)).collect();
    let usable =
        |held: &TlsSecret| held.as_ref().ok().filter(|pair| too_large(pair).is_none()).cloned();
    let is_wanted = |certificate: &Certificate| {
        cluster.tls_secrets.iter().any(|(secret, held)| match usable(held) {
            Some(pair) => is_upload(certificate, cluster, secret, Some(&pair.digest)),
            None => certificate.is_of_secret(secret),
        })
    };
    let is_unused =
        |certificate: &&&Certificate| certificate.used_by.is_empty() && !is_wanted(certificate);
    let deletion = |other: &&Certificate| {
        let noun = format!("certificate {}", other.shown());
        let delete = Description::new(WriteVerb::DELETE, noun, ", which nothing uses");
        let action = BalancerAction::DeleteCertificate;
        let change = BalancerChange::new(project, action, Some(other.id), Value::Null, delete);
        Box::new(change.guarded(Guard::of(*other))) as Box<dyn provider::Change>
    };
    let deletions = ours.iter().filter(is_unused).map(deletion).collect();
    (!ours.is_empty()).then_some(deletions)
}

/// Returns the certificates that the ports of a load balancer use, with the data that users see. `all` contains the
/// certificates of the project. A certificate that is not in `all` is left out, because only its ID is known.
pub(crate) fn shown(balancer: &LoadBalancer, all: Option<&[Certificate]>) -> Vec<ShownCertificate> {
    let shown = all.unwrap_or_default().iter().map(|certificate| {
        let ports = balancer.services.iter();
        let ports =
            ports.filter(|port| port.is_https() && port.certificates().contains(&certificate.id));
        ShownCertificate {
            id: certificate.id,
            name: certificate.name.clone(),
            ports: ports.map(|port| port.listen_port).collect(),
            not_valid_after: certificate.expires(),
            secret: certificate.secret().cloned(),
            is_managed: certificate.is_managed(),
        }
    });
    shown.filter(|certificate| !certificate.ports.is_empty()).collect()
}
