//! Which certificates of the project a Service may use, and which managed ones it may order.
//!
//! Tenants read what is said of a refused certificate: it names no certificate but the one that was asked for, and does
//! not say whose it is. What is refused is the certificate alone: a port keeps what it shows.

use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::ownership::certificates::CertificateOwner;
use crate::hetzner::load_balancers::ownership::context::{Context, Project};
use crate::provider::{CertificateDomains, Source};
use crate::text;

/// The setting that says which other certificates Services may use.
pub(crate) const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR";

/// The setting that says for which domains Services may have managed certificates.
pub(crate) const DOMAINS: &str = "HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS";

/// The end of each message about a refused certificate.
pub(crate) const PORTS_STAY: &str = "a port that shows it keeps it, and no other port is given it";

/// Whether a Service may use a certificate.
pub(crate) enum Permission {
    Given,
    /// Why not, for people.
    Refused(String),
    /// This shell does not know the setting that decides; the source is held back.
    Unknown(Source),
}

/// Whether the Service may use this certificate, which is there: the labels decide, see [`CertificateOwner::gives`], else
/// the setting.
pub(crate) fn may_use(context: &Context, certificate: &Certificate) -> Permission {
    let owner = CertificateOwner::of(certificate);
    match owner.gives(context.service, context.cluster) {
        Some(true) => return Permission::Given,
        Some(false) => {
            let why = "it belongs to another namespace or cluster";
            return Permission::Refused(why.to_owned());
        }
        None => {}
    }
    let value_of = |key: &str| certificate.labels.get(key).map(String::as_str);
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
pub(crate) fn may_have(context: &Context, domains: &[String]) -> Permission {
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
