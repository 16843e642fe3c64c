//! Which certificates of the project a Service may use, and which managed ones it may order.
//!
//! Tenants read what is said of a refused certificate: it names no certificate but the one that was asked for, and does
//! not say whose it is. What is refused is the certificate alone: a port keeps what it shows.

use super::context::{Context, Project};
use super::names::{self, SECRET, SERVICE, SERVICE_UID};
use crate::hetzner::certificates::Certificate;
use crate::provider::{CertificateDomains, Source};
use crate::text;

/// The setting that says which other certificates Services may use.
pub(super) const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR";

/// The setting that says for which domains Services may have managed certificates.
pub(super) const DOMAINS: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS";

/// The end of each message about a refused certificate.
pub(super) const PORTS_STAY: &str = "a port that shows it keeps it, and no other port is given it";

/// Whether a Service may use a certificate.
pub(super) enum Permission {
    Given,
    /// Why not, for people.
    Refused(String),
    /// This shell does not know the setting that decides; the source is held back.
    Unknown(Source),
}

/// Whether the Service may use this certificate, which is there.
///
/// | the certificate has | then |
/// |---|---|
/// | the label `ccm-from-scratch/cluster-uid` of another cluster | nobody here may use it |
/// | the label `ccm-from-scratch/secret` | Services of the namespace that the label names may use it |
/// | the UID of the Service, or the label of a Service of its namespace in this cluster | it may use it |
/// | none of these | the setting decides |
pub(super) fn may_use(context: &Context, certificate: &Certificate) -> Permission {
    let (service, labels) = (context.service, &certificate.labels);
    let is_of_namespace =
        |value: &String| names::namespace_of(value) == Some(service.namespace.as_str());
    let belongs = || Permission::Refused("it belongs to another namespace or cluster".to_owned());
    if names::is_of_another(labels, context.cluster) {
        return belongs();
    }
    if let Some(secret) = labels.get(SECRET) {
        return match is_of_namespace(secret) {
            true => Permission::Given,
            false => belongs(),
        };
    }
    let is_made_here = names::is_of(labels, context.cluster);
    let is_own = labels.get(SERVICE_UID) == Some(&service.uid);
    if is_own || is_made_here && labels.get(SERVICE).is_some_and(is_of_namespace) {
        return Permission::Given;
    }
    let value_of = |key: &str| labels.get(key).map(String::as_str);
    match &context.project.defaults.certificate_selector {
        None => unless_unknown(context.project, SELECTOR),
        Some(selector) if selector.value.matches(value_of) => Permission::Given,
        Some(selector) => Permission::Refused(format!(
            "it is none of those that Services may use ({})",
            selector.source
        )),
    }
}

/// Whether Services may have a managed certificate for these domains.
pub(super) fn may_have(context: &Context, domains: &[String]) -> Permission {
    let Some(limit) = &context.project.defaults.certificate_domains else {
        return unless_unknown(context.project, DOMAINS);
    };
    let CertificateDomains(allowed) = &limit.value;
    if domains.iter().all(|domain| limit.value.covers(domain)) {
        return Permission::Given;
    }
    Permission::Refused(match allowed.is_empty() {
        true => format!("managed certificates are turned off ({})", limit.source),
        false => format!(
            "managed certificates are for {} and their subdomains only ({})",
            text::some_of(allowed),
            limit.source
        ),
    })
}

fn unless_unknown(project: &Project, setting: &str) -> Permission {
    match project.is_unknown(setting) {
        true => Permission::Unknown(Source::Default(setting.to_owned())),
        false => Permission::Given,
    }
}
