//! Deletes certificates that were uploaded from Secrets when no load balancer uses them and no Service wants them.
//!
//! Such certificates are left by a renewal, by a Service or an annotation that was removed, and by a process that was
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

/// The kind of the object in a plan. All certificates are one object.
const KIND: &str = "certificates";

/// The certificates that Services want, and the state of the search for certificates that nothing uses.
#[derive(Default)]
pub(super) struct CertificateSearch {
    /// The contents of the Secrets that Services named in the last tick.
    wanted: TlsSecrets,
    /// Whether the certificates that Services want, or the load balancers that use them, may have changed.
    pub(super) is_due: bool,
    /// Whether the last search found no uploaded certificate at all, and none was uploaded since. The first value is
    /// `false`, because an earlier process may have uploaded certificates.
    none_exist: bool,
}

impl CertificateSearch {
    /// Takes note of the current contents of the Secrets that Services name.
    pub(super) fn saw(&mut self, wanted: &TlsSecrets) {
        self.is_due |= self.wanted != *wanted;
        self.none_exist &= wanted.is_empty();
        self.wanted.clone_from(wanted);
    }

    /// Deletes the certificates that nothing uses, while no changes of load balancers are being made. `payers` are
    /// those whose changes were made since the last search. Returns the plan with what was done.
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
        // After an error, the next comparison of all Services finds these certificates.
        let unused = found.inspect_err(|error| log::debug!("unused certificates: {error}")).ok()?;
        self.none_exist = unused.is_none();
        let mut plan = plan(unused?)?;
        let payer = payers.first().map(Payer::of_another);
        orphans::carry_out(apis, &mut plan, payer, report);
        Some(plan)
    }
}

/// Returns the deletions of certificates that nothing uses now. `wanted` are the contents of the Secrets that all
/// Services name. `None` when there is no certificate that was uploaded from a Secret, used or not.
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
    // Nothing is deleted without an identity of the cluster.
    if cluster.uid.is_empty() {
        return Ok(Some(Vec::new()));
    }
    cluster.tls_secrets = wanted.clone();
    let unused = provider.unused_certificates(&cluster, urgency);
    unused.map_err(CacheError::Cloud)
}

/// Returns the plan of these deletions. Its object is not a Service, but commands display it like the plan of a
/// Service. `None` when there are no deletions.
pub(super) fn plan(deletions: Vec<Box<dyn Change>>) -> Option<ServicePlan> {
    let object = ObjectReference { kind: KIND, ..ObjectReference::default() };
    let mut plan = ServicePlan::new(object, "", ServiceFacts::default());
    plan.changes = deletions.into_iter().map(ServiceChange::Cloud).collect();
    plan.has_writes().then_some(plan)
}
