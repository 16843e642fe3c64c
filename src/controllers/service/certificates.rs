//! Certificates that were uploaded from Secrets, and that neither a load balancer uses nor a Service wants: deleted.
//!
//! They are left by a renewal, by a Service or an annotation that was removed, and by a process that was killed between
//! two writes. The provider reads each again just before its deletion.

use super::admission;
use super::observe::{self, Settings};
use super::orphans;
use super::plan::{ServicePlan, Want};
use crate::cache::{Apis, Error};
use crate::controllers::report::Report;
use crate::controllers::share::Payer;
use crate::kube::ObjectReference;
use crate::provider::{Change, LoadBalancerPlan, Outcome, TlsSecrets, Urgency, calls::counted};
use std::sync::Arc;
use std::time::Duration;

/// All of them are one object of a plan.
const KIND: &str = "certificates";

/// What Services want of certificates, and when those that nothing uses are searched.
#[derive(Default)]
pub(super) struct Certificates {
    /// What the Secrets hold that Services name, as of the last tick.
    wanted: TlsSecrets,
    /// What Services want of them, or the load balancers that use them, may have changed.
    pub(super) is_due: bool,
    /// None was uploaded since, and there was none, used or not. At first there may be some of a process before this one.
    none_exist: bool,
}

impl Certificates {
    /// Takes note of what the Secrets hold now that Services name.
    pub(super) fn saw(&mut self, wanted: &TlsSecrets) {
        self.is_due |= self.wanted != *wanted;
        self.none_exist &= wanted.is_empty();
        self.wanted.clone_from(wanted);
    }

    /// Deletes those that nothing uses, while no changes of load balancers are being made. `payers`: whose changes were made
    /// since the last search. Returns what was done.
    pub(super) fn delete_unused(
        &mut self,
        apis: &Apis,
        settings: &Settings,
        payers: &[Payer],
        report: &mut Report,
    ) -> Option<ServicePlan> {
        if !std::mem::take(&mut self.is_due) || self.none_exist {
            return None;
        }
        let find = || find(apis, settings, &self.wanted, Urgency::CanWait);
        let (found, calls) = counted(find);
        admission::charge(payers, calls);
        let unused = match found {
            Ok(unused) => unused,
            // The next comparison of all Services finds them.
            Err(error) => {
                log::debug!("unused certificates: {error}");
                return None;
            }
        };
        self.none_exist = unused.is_none();
        let mut plan = plan(unused?)?;
        let payer = payers.first().map(Payer::of_another);
        orphans::carry_out(apis, &mut plan, payer, report);
        Some(plan)
    }
}

/// The deletions of certificates that nothing uses now. `wanted`: what all Services want. `None`: there is no
/// certificate from a Secret, used or not.
fn find(
    apis: &Apis,
    settings: &Settings,
    wanted: &TlsSecrets,
    urgency: Urgency,
) -> Result<Option<Vec<Box<dyn Change>>>, Error> {
    let Some(provider) = apis.provider.load_balancers() else {
        return Ok(None);
    };
    let all = observe::all_services(apis, Duration::MAX)?;
    let mut cluster = observe::cluster(apis, &settings.cluster_name, &all.value, &[])?;
    // Without an identity nothing is deleted.
    if cluster.uid.is_empty() {
        return Ok(Some(Vec::new()));
    }
    cluster.tls_secrets = wanted.clone();
    let unused = provider.unused_certificates(&cluster, urgency);
    unused.map_err(Error::Cloud)
}

/// The deletions that a pass over all Services would make now, for a person.
pub(super) fn propose(
    apis: &Apis,
    settings: &Settings,
    wanted: &TlsSecrets,
) -> Result<Option<ServicePlan>, Error> {
    let unused = find(apis, settings, wanted, Urgency::Asked)?;
    Ok(unused.and_then(plan))
}

/// Deletions as the plan of an object that is no Service, so that they are shown in the same way. `None`: there are none.
fn plan(deletions: Vec<Box<dyn Change>>) -> Option<ServicePlan> {
    let object = ObjectReference {
        kind: KIND,
        name: String::new(),
        namespace: String::new(),
        uid: String::new(),
    };
    let cloud = LoadBalancerPlan { outcome: Outcome::of(deletions), ..LoadBalancerPlan::default() };
    let plan = ServicePlan::new(object, Arc::default(), Want::Nothing, cloud);
    plan.has_writes().then_some(plan)
}
