//! Decides which certificates of the project a Service may use, and which managed certificates it may order.
//!
//! Tenants read the messages about a refused certificate. Therefore a message names only the certificate that was asked
//! for, and does not say whose it is. Only the certificate is refused: a port keeps the certificates that it uses.

use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::provider::CertificateDomains;
use crate::text;

/// The end of each message about a refused certificate.
pub(crate) const PORTS_STAY: &str =
    "a port that uses this certificate keeps it, and no other port gets it";

/// Checks that the Service may use this existing certificate. The certificate's labels decide (see
/// [`Certificate::gives`]). When these labels do not decide, the certificate selector from the settings does. The
/// error says why the Service may not use the certificate, as text for messages.
pub(crate) fn may_use(context: &PlanContext, certificate: &Certificate) -> Result<(), String> {
    let selector = context.project.defaults.permitted.certificate_selector.as_ref();
    let value_of = |key: &str| certificate.labels.get(key).map(String::as_str);
    match (certificate.gives(context.service, context.cluster), selector) {
        (Some(true), _) | (None, None) => Ok(()),
        (Some(false), _) => Err("it belongs to another namespace or cluster".to_owned()),
        (None, Some(selector)) if selector.value.matches(value_of) => Ok(()),
        (None, Some(selector)) => Err(format!(
            "it does not match the selector of certificates that Services may use ({})",
            selector.source
        )),
    }
}

/// Checks that Services may have a managed certificate for these domains. The error says why not, as text for messages.
pub(crate) fn may_have(context: &PlanContext, domains: &[String]) -> Result<(), String> {
    let Some(limit) = &context.project.defaults.permitted.certificate_domains else {
        return Ok(());
    };
    let CertificateDomains(allowed) = &limit.value;
    if domains.iter().all(|domain| limit.value.covers(domain)) {
        return Ok(());
    }
    Err(if allowed.is_empty() {
        format!("managed certificates are turned off ({})", limit.source)
    } else {
        format!(
            "managed certificates are allowed only for {} and their subdomains ({})",
            text::some_of(allowed),
            limit.source
        )
    })
}
