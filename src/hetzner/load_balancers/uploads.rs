//! Certificates from Secrets: which ones each `https` port shows, those that have to be uploaded first, and those that
//! nothing uses any more.
//!
//! The name of an uploaded certificate has a hash of its chain, so a renewed Secret is another certificate: it is uploaded,
//! the ports are updated to it, and the old one is deleted once no load balancer uses it. Until then, and as long as a
//! Secret can't be used, what was uploaded from it before stays.

use super::annotations as a;
use super::balancer::LoadBalancer;
use super::change::{Action, Change, Guard, Purpose};
use super::context::{Context, Project};
use super::names::{self, CLUSTER_UID, SECRET};
use super::parser::{AnnotationParser, has};
use super::values as v;
use crate::hetzner::certificates::Certificate;
use crate::provider::{
    self, Cluster, Description, Field, Protocol, Reason, Service, ServicePort, ShownCertificate,
    Source, Sourced, TlsPair, Verb,
};
use crate::text;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// The API's limits, by its changelog of 2026-02-11.
const KEY_BYTES: usize = 5000;
const CHAIN_BYTES: usize = 30_000;
const CHAIN_CERTIFICATES: usize = 5;

/// What the Service's ports show from Secrets, and what is uploaded for it.
#[derive(Default)]
pub(super) struct Uploads {
    pub(super) ports: BTreeMap<u16, FromSecrets>,
    pub(super) changes: Vec<Change>,
    pub(super) fields: Vec<Field>,
    /// Names of those that are uploaded.
    pub(super) names: Vec<String>,
}

/// What one port shows.
pub(super) struct FromSecrets {
    pub(super) ids: Sourced<Vec<u64>>,
    /// From one of the Secrets nothing was uploaded yet.
    pub(super) waits: bool,
}

/// Names of the Secrets that `https` ports of the Service ask for.
pub(in crate::hetzner) fn secrets(service: &Service) -> BTreeSet<String> {
    if !has(service, &a::HTTP_TLS_SECRET) {
        return BTreeSet::new();
    }
    let asked = asked(&mut AnnotationParser::new(service), service);
    asked
        .into_iter()
        .flat_map(|(_, named)| named.value)
        .collect()
}

/// Ports, and the Secrets that they name.
fn asked(parser: &mut AnnotationParser, service: &Service) -> Vec<(u16, Sourced<Vec<String>>)> {
    let ports = service.ports.iter();
    let asked = ports.filter_map(|port| {
        let named = is_https(parser, port)
            .then(|| parser.read(&a::HTTP_TLS_SECRET, Some(port), v::secrets))?;
        Some((port.port, named?))
    });
    asked.filter(|(_, named)| !named.value.is_empty()).collect()
}

pub(super) fn is_https(parser: &mut AnnotationParser, port: &ServicePort) -> bool {
    let protocol = parser.read(&a::PROTOCOL, Some(port), v::protocol);
    port.protocol == Protocol::Tcp && protocol.is_some_and(|protocol| protocol.value == "https")
}

/// For all ports. What is wrong is in `parser` afterwards.
pub(super) fn uploads(parser: &mut AnnotationParser, context: &Context) -> Uploads {
    let mut uploads = Uploads::default();
    let asked = asked(parser, context.service);
    // Each Secret once, however many ports name it.
    let mut secrets: BTreeMap<&str, (Vec<String>, &Source)> = BTreeMap::new();
    for (port, named) in &asked {
        for secret in &named.value {
            let (ports, _) = secrets.entry(secret).or_insert((Vec::new(), &named.source));
            ports.push(port.to_string());
        }
    }
    let mut ids = BTreeMap::new();
    for (secret, (ports, source)) in &secrets {
        let (id, why) = uploads.certificate_of(context, secret, source);
        ids.insert((*secret).to_owned(), id);
        if let Some(why) = why {
            let then = match id {
                Some(_) => "the certificate that was uploaded from it before stays",
                None => {
                    "until then ports are left unchanged, and not added where they do not exist"
                }
            };
            let (ports, namespace) = (text::some_of(ports), &context.service.namespace);
            let why = format!("port {ports}: Secret {namespace}/{secret}: {why}; {then}");
            parser.warning(Reason::CertificateFailed, why);
        }
    }
    for (port, named) in asked {
        let found = named
            .value
            .iter()
            .map(|secret| ids.get(secret).copied().flatten());
        let found: Vec<Option<u64>> = found.collect();
        let mut shown: Vec<u64> = Vec::new();
        for id in found.iter().flatten() {
            // In the order of the annotation; two Secrets may hold one certificate.
            if !shown.contains(id) {
                shown.push(*id);
            }
        }
        let from = FromSecrets {
            ids: Sourced::new(shown, named.source),
            waits: found.contains(&None),
        };
        uploads.ports.insert(port, from);
    }
    if let Some(last) = uploads.changes.last_mut() {
        last.purpose = Purpose::LastUpload;
    }
    uploads
}

impl Uploads {
    /// The ID of what the Secret's ports show now, and why that is not what it holds.
    fn certificate_of(
        &mut self,
        context: &Context,
        secret: &str,
        source: &Source,
    ) -> (Option<u64>, Option<String>) {
        let (namespace, cluster) = (&context.service.namespace, context.cluster);
        let before = || uploaded_before(context, secret);
        let key = (namespace.clone(), secret.to_owned());
        let pair = match cluster.tls_secrets.get(&key) {
            // As where only a manifest is checked.
            None => return (before(), None),
            Some(Err(why)) => return (before(), Some(why.clone())),
            Some(Ok(pair)) => pair,
        };
        if let Some(why) = too_large(pair) {
            return (before(), Some(why));
        }
        let name = names::upload_name(namespace, secret, &pair.digest, cluster);
        if let Some(found) = context.certificates.with_name(&name) {
            return (Some(found.id), None);
        }
        self.upload(context, secret, name, pair, source);
        (before(), None)
    }

    fn upload(
        &mut self,
        context: &Context,
        secret: &str,
        name: String,
        pair: &Arc<TlsPair>,
        source: &Source,
    ) {
        let namespace = &context.service.namespace;
        let from = format!("from Secret {namespace}/{secret}");
        let noun = format!("certificate {name}");
        self.fields.push(Field {
            field: noun.clone(),
            have: None,
            want: Some(from.clone()),
            source: source.clone(),
        });
        let labels = names::upload_labels(namespace, secret, context.cluster);
        let body = json!({ "name": name, "type": "uploaded", "labels": labels });
        let upload = Description::new(Verb::Upload, noun, format!(" {from}"));
        let action = Action::CreateCertificate;
        let change = Change::new(context.project, action, None, body, upload);
        self.changes.push(change.with_pair(Arc::clone(pair)));
        self.names.push(name);
    }
}

/// What was uploaded from the Secret of that name, whatever it holds now: what load balancers use, then the newest.
fn uploaded_before(context: &Context, secret: &str) -> Option<u64> {
    let (namespace, cluster) = (&context.service.namespace, context.cluster);
    let prefix = names::upload_prefix(namespace, secret, cluster);
    let label = names::secret_value(namespace, secret);
    let is_it = |one: &&Certificate| {
        is_ours(one, cluster)
            && one.labels.get(SECRET) == Some(&label)
            && one.name.starts_with(&prefix)
    };
    let all = context.certificates.all.iter().filter(is_it);
    let best = all.max_by_key(|one| (!one.used_by.is_empty(), one.id));
    best.map(|one| one.id)
}

fn is_ours(certificate: &Certificate, cluster: &Cluster) -> bool {
    !cluster.uid.is_empty()
        && certificate.labels.get(CLUSTER_UID) == Some(&cluster.uid)
        && certificate.labels.contains_key(SECRET)
        && !certificate.is_managed()
}

fn too_large(pair: &TlsPair) -> Option<String> {
    let (key, chain) = (pair.key.expose().len(), pair.chain.len());
    let larger = |what: &str, has: usize, most: usize| {
        (has > most).then(|| format!("{what} {has}, and Hetzner takes {most} at most"))
    };
    larger("the bytes of tls.key are", key, KEY_BYTES)
        .or_else(|| larger("the bytes of tls.crt are", chain, CHAIN_BYTES))
        .or_else(|| {
            let count = pair.certificates;
            larger("the certificates in tls.crt are", count, CHAIN_CERTIFICATES)
        })
}

/// What deletes those of this cluster that no load balancer uses, and that are not what a Secret holds which a Service
/// names. None: nothing was uploaded. Of a Secret that can't be used all stay.
pub(in crate::hetzner) fn unused(
    project: &Project,
    all: &[Certificate],
    cluster: &Cluster,
) -> Option<Vec<Box<dyn provider::Change>>> {
    let ours: Vec<_> = all.iter().filter(|one| is_ours(one, cluster)).collect();
    let (mut names, mut unreadable) = (HashSet::new(), HashSet::new());
    for ((namespace, secret), held) in &cluster.tls_secrets {
        match held.as_ref().ok().filter(|pair| too_large(pair).is_none()) {
            Some(pair) => {
                names.insert(names::upload_name(namespace, secret, &pair.digest, cluster))
            }
            None => unreadable.insert(names::secret_value(namespace, secret)),
        };
    }
    let is_unused = |one: &&&Certificate| {
        let label = one.labels.get(SECRET);
        one.used_by.is_empty()
            && !names.contains(&one.name)
            && label.is_some_and(|label| !unreadable.contains(label))
    };
    let deletion = |one: &&Certificate| {
        let noun = format!("certificate {}", one.shown());
        let delete = Description::new(Verb::Delete, noun, ", which nothing uses");
        let action = Action::DeleteCertificate;
        let change = Change::new(project, action, Some(one.id), Value::Null, delete);
        let change = change.guarded(Guard {
            seen: (*one).into(),
            ..Guard::default()
        });
        Box::new(change) as Box<dyn provider::Change>
    };
    let deletions = ours.iter().filter(is_unused).map(deletion).collect();
    (!ours.is_empty()).then_some(deletions)
}

/// What the ports of a load balancer show, as far as it was read.
pub(super) fn shown(balancer: &LoadBalancer, all: Option<&[Certificate]>) -> Vec<ShownCertificate> {
    let shown = all.unwrap_or_default().iter().map(|one| {
        let ports = balancer.services.iter();
        let ports = ports.filter(|port| port.is_https() && port.certificates().contains(&one.id));
        ShownCertificate {
            id: one.id,
            name: one.name.clone(),
            ports: ports.map(|port| port.listen_port).collect(),
            not_valid_after: one.expires(),
            secret: one.labels.get(SECRET).cloned(),
            is_managed: one.is_managed(),
        }
    });
    shown.filter(|one| !one.ports.is_empty()).collect()
}
