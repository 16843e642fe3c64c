//! Decides which certificates of the project a Service is allowed to use, and which managed certificates it is allowed
//! to order.
//!
//! Users of the cluster read the messages about a refused certificate. So such a message names only the certificate
//! that the Service asks for, and not its owner. A port for which a certificate is refused keeps the certificates that
//! it has.

use crate::hetzner::certificates::Certificate;
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::provider::CertificateDomains;
use crate::text;

/// The end of each message that refuses a certificate to a Service. It tells the user that no port loses a
/// certificate which it already uses.
pub(crate) const PORTS_STAY: &str = "Ports keep the certificates that they already use";

/// Checks that the Service is allowed to use this existing certificate. If the certificate's labels say who is allowed
/// to use it, the labels decide (see [`Certificate::gives`]). Otherwise the certificate must match the selector in
/// `HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR`. The error is a text for messages.
pub(crate) fn may_use(context: &PlanContext, certificate: &Certificate) -> Result<(), String> {
    let selector = context.project.defaults.permitted.certificate_selector.as_ref();
    let value_of = |key: &str| certificate.labels.get(key).map(String::as_str);
    match (certificate.gives(context.service, context.cluster), selector) {
        (Some(true), _) | (None, None) => Ok(()),
        (Some(false), _) => {
            Err("the certificate belongs to another namespace or cluster".to_owned())
        }
        (None, Some(selector)) if selector.value.matches(value_of) => Ok(()),
        (None, Some(selector)) => Err(format!(
            "the certificate does not match the selector of certificates that Services may use ({})",
            selector.source
        )),
    }
}

/// Checks that `HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS` allows managed certificates for these domains. The error is
/// a text for messages.
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
            "managed certificates are allowed only for {} and subdomains ({})",
            text::some_of(allowed),
            limit.source
        )
    })
}
