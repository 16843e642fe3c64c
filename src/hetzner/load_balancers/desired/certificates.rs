//! Plans the managed certificates of ports: which certificate each `https` port uses, and which certificates must be
//! ordered or taken over first. This program never deletes a managed certificate. Let's Encrypt limits how often the
//! same domains are ordered, so a deleted certificate might not be replaceable at once.

use super::permitted::{self, PORTS_STAY};
use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::annotations as a;
use crate::hetzner::load_balancers::annotations::parser::AnnotationParser;
use crate::hetzner::load_balancers::annotations::values as v;
use crate::hetzner::load_balancers::change::{BalancerAction, BalancerChange};
use crate::hetzner::load_balancers::ownership::certificates::of_managed;
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::hetzner::load_balancers::ownership::guard::Guard;
use crate::hetzner::load_balancers::ownership::labels::WHOSE;
use crate::provider::{
    Claim, Cluster, Description, Field, Finding, KeptObject, Protocol, Reason, ServicePort, Source,
    Sourced, WriteVerb,
};
use crate::text;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The certificates that the Service's ports will use, and the changes by which missing certificates are ordered,
/// uploaded or taken over.
#[derive(Default)]
pub(crate) struct CertificatePlan {
    /// The managed certificates and the certificates from Secrets, by the number of the listen port. The map has no
    /// entry for a port that names its certificates in `http-certificates`, or that needs none.
    pub(crate) ports: BTreeMap<u16, PortCertificates>,
    /// The changes of certificates. They are made before any port is changed.
    pub(crate) changes: Vec<BalancerChange>,
    pub(crate) fields: Vec<Field>,
    /// The certificates that the plan takes over or uploads. While the plan is carried out, no other plan is allowed to
    /// take over or upload the same certificates.
    pub(crate) claims: Vec<Claim>,
    /// Whether the plan depends on which Services exist, because it takes over a certificate that may belong to a
    /// Service that was deleted. The list of Services must then be read again before the plan is applied.
    pub(crate) rests_on_services: bool,
}

/// The certificates that one port will use.
pub(crate) struct PortCertificates {
    pub(crate) ids: Sourced<Vec<u64>>,
    /// Whether the port needs a certificate that is not issued yet or not uploaded yet.
    pub(crate) waits: bool,
    /// The ID of a certificate that the port asks for although the Service is not allowed to use it. A port that
    /// already uses this certificate keeps it. `None` when no certificate was refused.
    pub(crate) refused: Option<u64>,
}

/// A managed certificate that one or several ports ask for.
struct WantedCertificate {
    ports: Vec<u16>,
    name: String,
    /// Whether an annotation gives the certificate its name. Otherwise the certificate has a default name.
    is_named: bool,
    /// The domains of the certificate in lower case, in alphabetical order.
    domains: Vec<String>,
    is_staging: bool,
    source: Source,
}

/// Plans the managed certificates for all ports. `parser` collects the mistakes in the annotations.
pub(crate) fn certificates(
    parser: &mut AnnotationParser,
    context: &PlanContext,
) -> CertificatePlan {
    let wanted = wanted(parser, context);
    let names: Vec<&str> = wanted.iter().map(|wanted| wanted.name.as_str()).collect();
    let mut all = CertificatePlan::default();
    for one in &wanted {
        let (mut id, mut refused) = (None, None);
        if let Some(found) = choose(parser, context, one, &names, &mut all) {
            match may_show(context, found) {
                Ok(()) => id = issued(parser, &shown(&one.ports), found),
                Err(why) => {
                    refuse(parser, one, &format!("certificate {}", found.shown()), &why);
                    refused = Some(found.id);
                }
            }
        }
        for port in &one.ports {
            let ids = Sourced::new(id.into_iter().collect(), one.source.clone());
            let waits = id.is_none() && refused.is_none();
            all.ports.insert(*port, PortCertificates { ids, waits, refused });
        }
    }
    all
}

/// Returns an error when the Service is not allowed to use this managed certificate for its ports.
fn may_show(context: &PlanContext, found: &Certificate) -> Result<(), String> {
    permitted::may_use(context, found)?;
    permitted::may_have(context, &found.domain_names)
}

fn refuse(parser: &mut AnnotationParser, wanted: &WantedCertificate, what: &str, why: &str) {
    let (source, ports) = (&wanted.source, shown(&wanted.ports));
    let why = format!("{source}: port {ports} can't have {what}, because {why}. {PORTS_STAY}");
    parser.warning(Reason::CertificateFailed, why);
}

/// Returns the managed certificates that ports ask for. A certificate that several ports ask for is returned once.
fn wanted(parser: &mut AnnotationParser, context: &PlanContext) -> Vec<WantedCertificate> {
    let mut all: Vec<WantedCertificate> = Vec::new();
    for port in &context.service.ports {
        if !is_https(parser, port) {
            continue;
        }
        let Some(Sourced { value: true, source }) = is_managed(parser, context, port) else {
            continue;
        };
        let of = Some(port);
        let named = parser.read(&a::HTTP_MANAGED_CERTIFICATE_NAME, of, v::any);
        let domains = parser.read(&a::HTTP_MANAGED_CERTIFICATE_DOMAINS, of, v::domains);
        let staging = &a::HTTP_MANAGED_CERTIFICATE_ACME_STAGING;
        let staging = parser.read(staging, of, v::boolean);
        let usual = || format!("ccm-managed-certificate-{}", context.service.uid);
        let one = WantedCertificate {
            ports: vec![port.port],
            is_named: named.is_some(),
            name: named.map_or_else(usual, |named| named.value),
            domains: sorted(&domains.map(|list| list.value).unwrap_or_default()),
            is_staging: staging.is_some_and(|staging| staging.value),
            source,
        };
        match all.iter_mut().find(|other| other.name == one.name) {
            None => all.push(one),
            Some(same) if same.domains == one.domains && same.is_staging == one.is_staging => {
                same.ports.extend(one.ports);
            }
            Some(other) => parser.problem(format!(
                "port {} asks for another managed certificate than port {}, but with the same name, {:?}. Give the \
                 certificate of port {} another name in annotation {}.{}",
                port.port,
                shown(&other.ports),
                one.name,
                port.port,
                a::HTTP_MANAGED_CERTIFICATE_NAME.key(),
                port.port
            )),
        }
    }
    all
}

pub(crate) fn is_https(parser: &mut AnnotationParser, port: &ServicePort) -> bool {
    let protocol = parser.read(&a::PROTOCOL, Some(port), v::protocol);
    port.protocol == Protocol::Tcp && protocol.is_some_and(|protocol| protocol.value == "https")
}

/// Returns whether the annotation of the port asks for a managed certificate. `None` means that the annotation is
/// missing or invalid. Profile `hcloud`, which behaves like hcloud-cloud-controller-manager, treats an invalid value as
/// `uploaded`.
pub(crate) fn is_managed(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    port: &ServicePort,
) -> Option<Sourced<bool>> {
    if !context.project.preserves_unset() {
        return parser.read(&a::CERTIFICATE_TYPE, Some(port), v::is_managed);
    }
    let text = parser.read(&a::CERTIFICATE_TYPE, Some(port), v::any)?;
    let is_managed = v::is_managed(&text.value).unwrap_or_else(|why| {
        let (source, text) = (&text.source, &text.value);
        let message = format!(
            "{source}: {text:?} is not valid ({why}). ccm treats the value as \"uploaded\""
        );
        parser.warning(Reason::AnnotationWithoutEffect, message);
        false
    });
    Some(Sourced::new(is_managed, text.source))
}

/// Returns the existing certificate that the ports in `wanted` will use. When no Service owns this certificate yet, the
/// plan makes this Service its owner. `None` means that no existing certificate can be used. The plan then orders a new
/// certificate, or a problem is reported.
fn choose<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    wanted: &WantedCertificate,
    names: &[&str],
    all: &mut CertificatePlan,
) -> Option<&'a Certificate> {
    if let Some(found) = by_label(parser, context, wanted, names) {
        return found;
    }
    if wanted.domains.is_empty() {
        parser.problem(format!(
            "{}: port {} asks for a managed certificate, but no annotation names its domains. List them in annotation \
             {}",
            wanted.source,
            shown(&wanted.ports),
            a::HTTP_MANAGED_CERTIFICATE_DOMAINS.key()
        ));
        return None;
    }
    let named = Certificate::with_name(context.certificates, &wanted.name);
    // Whether a certificate of an earlier Service with the same name as this Service can be used. This is so when the
    // Service has no certificate yet, and no annotation sets a name for it. When a Service is deleted and created
    // again, it gets a new UID. The default name of a certificate contains the UID, so the certificate of the earlier
    // Service is not found by its name.
    let is_free = named.is_none() && !wanted.is_named;
    let left = context.certificates.iter().filter(|certificate| {
        is_free
            && certificate.was_made_for(context.service, context.cluster)
            && differs(certificate, wanted).is_none()
    });
    for one in named.into_iter().chain(left) {
        all.rests_on_services |= one.service_uid().is_some();
        let Some(why) = why_not_free(one, context, wanted) else {
            // If the Service is allowed to use the certificate, the labels of the certificate will name the Service as
            // its owner. Otherwise they stay unchanged, and the caller of this function reports why the Service is not
            // allowed to use it.
            if may_show(context, one).is_ok() {
                take_over(context, one, all);
            }
            return Some(one);
        };
        if named.is_some() {
            parser.problem(format!(
                "certificate {} can't become the managed certificate of port {}, because {why}. Choose another name in \
                 annotation {}. Or, to use this certificate as it is, set annotation {} to \"uploaded\" and annotation \
                 {} to {:?}",
                one.shown(),
                shown(&wanted.ports),
                a::HTTP_MANAGED_CERTIFICATE_NAME.key(),
                a::CERTIFICATE_TYPE.key(),
                a::HTTP_CERTIFICATES.key(),
                one.name
            ));
            return None;
        }
    }
    match permitted::may_have(context, &wanted.domains) {
        Ok(()) => order(context, wanted, all),
        Err(why) => {
            let domains = text::some_of(&wanted.domains);
            let certificate = format!("a managed certificate for {domains}");
            refuse(parser, wanted, &certificate, &why);
        }
    }
    None
}

/// Chooses one of the certificates that have the Service's UID in a label. A certificate with the desired name is
/// preferred, and then a certificate with the desired domains and issuer. When there is neither, and no annotation sets
/// a name, the only certificate with the UID is chosen.
///
/// Returns `None` when no certificate fits. Returns `Some(None)` when several certificates have the UID and none of
/// them is preferred, which is reported as a problem.
fn by_label<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    wanted: &WantedCertificate,
    names: &[&str],
) -> Option<Option<&'a Certificate>> {
    let uid = &context.service.uid;
    let is_free = |name: &str| name == wanted.name || !names.contains(&name);
    let carries = |certificate: &&Certificate| {
        certificate.service_uid() == Some(uid) && is_free(&certificate.name)
    };
    let own: Vec<&Certificate> = context.certificates.iter().filter(carries).collect();
    let named = own.iter().find(|certificate| certificate.name == wanted.name);
    let same = || own.iter().find(|certificate| differs(certificate, wanted).is_none());
    let found = match (named.or_else(same), own.as_slice()) {
        (Some(found), _) => found,
        (None, [only]) if !wanted.is_named => only,
        (None, []) => return None,
        (None, _) if wanted.is_named => return None,
        (None, several) => {
            let names: Vec<String> =
                several.iter().map(|certificate| certificate.shown()).collect();
            let names = text::some_of(&names);
            parser.problem(format!(
                "certificates {names} have the same label, {}={uid}, so it is not clear which of them port {} uses. \
                 Name the right one in annotation {}",
                Certificate::UID_LABEL,
                shown(&wanted.ports),
                a::HTTP_MANAGED_CERTIFICATE_NAME.key()
            ));
            return Some(None);
        }
    };
    if let Some(differs) = differs(found, wanted).filter(|_| !wanted.domains.is_empty()) {
        let why = format!(
            "the Service keeps certificate {}, although it is {differs}, because a certificate can't be changed. To get \
             a new certificate, choose another name in annotation {}",
            found.shown(),
            a::HTTP_MANAGED_CERTIFICATE_NAME.key()
        );
        parser.warning(Reason::AnnotationWithoutEffect, why);
    }
    Some(Some(found))
}

/// Returns the reason why the Service can't use this existing certificate as its managed certificate. The reason is a
/// text for messages. `None` means that the Service can use the certificate.
fn why_not_free(
    one: &Certificate,
    context: &PlanContext,
    wanted: &WantedCertificate,
) -> Option<String> {
    if !one.is_managed() {
        return Some("it was uploaded".to_owned());
    }
    one.why_it_is_of_others(context.cluster)
        .or_else(|| Some(format!("it is {}", differs(one, wanted)?)))
        .or_else(|| one.why_it_may_be_of_others())
}

/// Returns the managed certificates of this cluster whose Service does not exist any more.
pub(in crate::hetzner) fn left(all: &[Certificate], cluster: &Cluster) -> Vec<KeptObject> {
    let is_left = |certificate: &&Certificate| certificate.is_left(cluster);
    let kept = |certificate: &Certificate| KeptObject {
        kind: "Certificate",
        id: certificate.id,
        name: certificate.name.clone(),
        domains: certificate.domain_names.clone(),
        addresses: Vec::new(),
    };
    all.iter().filter(is_left).map(kept).collect()
}

/// Returns how the certificate differs from the desired one, as a text for messages. `None` means that both have the
/// same domains and the same issuer, which is Let's Encrypt or its test service.
fn differs(one: &Certificate, wanted: &WantedCertificate) -> Option<String> {
    let domains = sorted(&one.domain_names);
    let staging = one.is_staging();
    let other = (domains != wanted.domains).then(|| {
        let wanted = text::some_of(&wanted.domains);
        format!("for {} (the Service asks for {wanted})", text::some_of(&domains))
    });
    let test = (staging != wanted.is_staging).then(|| {
        let (from, not) = if staging { ("test", "real") } else { ("real", "test") };
        format!("from the {from} service of Let's Encrypt instead of the {not} service")
    });
    let all: Vec<String> = other.into_iter().chain(test).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

fn order(context: &PlanContext, wanted: &WantedCertificate, all: &mut CertificatePlan) {
    let labels = of_managed(context.service, context.cluster, wanted.is_staging);
    let domains = text::some_of(&wanted.domains);
    let (name, source) = (format!("certificate {}", wanted.name), wanted.source.clone());
    let want = Some(format!("managed, for {domains}"));
    all.fields.push(Field { field: name.clone(), have: None, want, source });
    let body = json!({
        "name": wanted.name,
        "type": "managed",
        "domain_names": wanted.domains,
        "labels": labels,
    });
    let order = Description::new(WriteVerb::ORDER, name, format!(" for {domains}"));
    let action = BalancerAction::CreateCertificate;
    all.changes.push(BalancerChange::new(context.project, action, None, body, order));
}

/// Plans to change the labels of a certificate that nobody owns, so that they name the Service as its owner.
fn take_over(context: &PlanContext, found: &Certificate, all: &mut CertificatePlan) {
    all.claims.push(Claim::Id(found.id));
    all.fields.push(Field {
        field: format!("certificate {} label {}", found.name, Certificate::UID_LABEL),
        have: found.service_uid().cloned(),
        want: Some(context.service.uid.clone()),
        source: Source::Rule(WHOSE),
    });
    let (id, noun) = (Some(found.id), format!("certificate {}", found.shown()));
    let take_over = Description::new(WriteVerb::TAKE_OVER, noun, "");
    let action = BalancerAction::EditCertificate;
    let change = BalancerChange::new(context.project, action, id, Value::Null, take_over);
    let labels = of_managed(context.service, context.cluster, false);
    all.changes.push(change.guarded(Guard::of(found).with(labels)));
}

/// Returns the certificate's ID when the certificate is issued. Adds a warning when the certificate is not issued yet,
/// or when its renewal has failed.
pub(crate) fn issued(
    parser: &mut AnnotationParser,
    ports: &str,
    certificate: &Certificate,
) -> Option<u64> {
    let shown_as = certificate.shown();
    let status = certificate.status.clone().unwrap_or_default();
    let error = status.error.map(|error| {
        let message = crate::http::shortened(&error.message);
        format!("{message} ({})", error.code)
    });
    let why = error.as_deref().unwrap_or("the API does not say why");
    let fix = format!(
        "the domains of the certificate must be in DNS zones of this project that are delegated to Hetzner's name \
         servers, and their CAA records must allow Let's Encrypt. Correct the DNS zones. Then start the next \
         attempt in the Hetzner Console or with {}",
        text::shell_command("hcloud certificate retry", &[&certificate.id])
    );
    let failed = |why| Finding::warning(Reason::CertificateFailed, why).with_fix(fix);
    let finding = match (certificate.is_issued(), status.issuance.as_str()) {
        (true, _) if status.renewal == "failed" => {
            failed(format!("certificate {shown_as} can't be renewed: {why}"))
        }
        (true, _) => return Some(certificate.id),
        (false, "failed") => failed(format!(
            "port {ports} waits for certificate {shown_as}, which can't be issued: {why}"
        )),
        (false, _) => Finding::warning(
            Reason::CertificatePending,
            format!(
                "port {ports} waits for certificate {shown_as}, which is being issued; the other ports work meanwhile"
            ),
        ),
    };
    parser.finding(finding);
    certificate.is_issued().then_some(certificate.id)
}

fn sorted(domains: &[String]) -> Vec<String> {
    let lower_case = domains.iter().map(|domain| domain.to_ascii_lowercase());
    lower_case.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the port numbers as text for messages, e.g. `443 and 8443`.
fn shown(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    ports.join(" and ")
}
