//! Deletes certificates that were uploaded from Secrets when no load balancer uses them and no Service wants them.
//!
//! A certificate becomes unused when it is renewed, when a Service or its annotation is removed, or when the process is
//! killed between two writes. The provider reads each certificate again just before its deletion.

use super::admission;
use super::observe;
use super::orphans;
use super::plan::{ServiceChange, ServiceFacts, ServicePlan};
use crate::cache::{Apis, CacheError};
use crate::controllers::report::Report;
use crate::controllers::share::Payer;
use crate::kube::ObjectReference;
use crate::provider::{Change, TlsSecrets, Urgency, calls::counted};
use std::time::Duration;

/// Each plan names the object that it is about by a kind and a name. The plan that deletes unused certificates has this
/// kind and no name, because it is about all of them together.
const KIND: &str = "certificates";

/// The TLS Secrets that Services want as certificates, and the state of the search for uploaded certificates that
/// nothing uses.
#[derive(Default)]
pub(super) struct CertificateSearch {
    /// The content of each TLS Secret that a Service names for its ports, as it was read in the last sync pass.
    wanted: TlsSecrets,
    /// Whether a search for unused certificates is due. It is due when the TLS Secrets that Services name, or the load
    /// balancers, may have changed since the last search.
    pub(super) is_due: bool,
    /// Whether the cloud has no certificate that was uploaded from a Secret, as far as is known: the last search found
    /// none, and no Service has named a Secret since. This begins with `false`, because an earlier process may have
    /// uploaded certificates.
    none_exist: bool,
}

impl CertificateSearch {
    /// Stores the contents of the Secrets that Services name now. When they have changed, a search for unused
    /// certificates is due.
    pub(super) fn saw(&mut self, wanted: &TlsSecrets) {
        self.is_due |= self.wanted != *wanted;
        self.none_exist &= wanted.is_empty();
        self.wanted.clone_from(wanted);
    }

    /// Searches for certificates that nothing uses, if such a search is due, and deletes them. The caller must make
    /// sure that no load balancer is being changed at the same time. ccm limits the API calls of each namespace. The
    /// API calls of the search are charged to `payers`, the namespaces whose changes ended in this sync pass. Returns a
    /// plan that says what was deleted, or `None` when nothing was deleted.
    pub(super) fn delete_unused(
        &mut self,
        apis: &Apis,
        payers: &[Payer],
        report: &mut Report,
    ) -> Option<ServicePlan> {
        if !std::mem::take(&mut self.is_due) || self.none_exist {
            return None;
        }
        let (found, calls) = counted(|| find(apis, &self.wanted, Urgency::CanWait));
        admission::charge(payers, calls);
        // When the search fails, the error is only logged, because the next regular comparison of all Services with
        // their load balancers makes another search due.
        let unused = found.inspect_err(|error| log::debug!("unused certificates: {error}")).ok()?;
        self.none_exist = unused.is_none();
        let mut plan = plan(unused?)?;
        let payer = payers.first().map(Payer::of_another);
        orphans::carry_out(apis, &mut plan, payer, report);
        Some(plan)
    }
}

/// Returns the deletions of certificates that nothing uses now. `wanted` are the contents of the Secrets that all
/// Services name. Returns `None` when the cloud has no certificate that was uploaded from a Secret.
pub(super) fn find(
    apis: &Apis,
    wanted: &TlsSecrets,
    urgency: Urgency,
) -> Result<Option<Vec<Box<dyn Change>>>, CacheError> {
    let Some(provider) = apis.provider.load_balancers() else {
        return Ok(None);
    };
    let all = observe::all_services(apis, Duration::MAX)?;
    let mut cluster = observe::cluster(apis, &all.value, &[])?;
    // When the cluster's identity (a UID) is not known, nothing is deleted, because a certificate may belong to another
    // cluster.
    if cluster.uid.is_empty() {
        return Ok(Some(Vec::new()));
    }
    cluster.tls_secrets = wanted.clone();
    let unused = provider.unused_certificates(&cluster, urgency);
    unused.map_err(CacheError::Cloud)
}

/// Returns a plan that deletes these certificates, or `None` when there are none. It has the type of a Service's plan,
/// so that commands can display it in the same way, but it does not belong to any Service.
pub(super) fn plan(deletions: Vec<Box<dyn Change>>) -> Option<ServicePlan> {
    let object = ObjectReference { kind: KIND, ..ObjectReference::default() };
    let mut plan = ServicePlan::new(object, "", ServiceFacts::default());
    plan.changes = deletions.into_iter().map(ServiceChange::Cloud).collect();
    plan.has_writes().then_some(plan)
}
