//! Certificates that were uploaded from Secrets, and that neither a load balancer uses nor a Service wants: deleted.
//!
//! They are left by a renewal, by a Service or an annotation that was removed, and by a process that was killed between
//! two writes. The provider reads each again just before its deletion.

use super::admission;
use super::observe::{self, NAME, Settings};
use crate::cache::{Apis, Error};
use crate::controllers::executor::Executor;
use crate::controllers::report::Report;
use crate::controllers::share::Payer;
use crate::provider::{LoadBalancers, TlsSecrets, calls::counted};
use std::time::Duration;

/// In reports, where others name a Service.
const OBJECT: &str = "certificates";

/// When they are searched.
#[derive(Default)]
pub(super) struct Unused {
    /// What Services want of them, or the load balancers that use them, may have changed.
    pub(super) is_due: bool,
    /// None was uploaded since, and there was none, used or not. At first there may be some of a process before this one.
    pub(super) none_exist: bool,
}

impl Unused {
    /// Where no changes of load balancers are being made. `wanted`: of all Services. `payers`: whose changes were made since
    /// the last search.
    pub(super) fn delete(
        &mut self,
        apis: &Apis,
        provider: &dyn LoadBalancers,
        settings: &Settings,
        wanted: &TlsSecrets,
        payers: &[Payer],
        report: &mut Report,
    ) {
        if !std::mem::take(&mut self.is_due) || self.none_exist {
            return;
        }
        let find = || {
            let all = observe::all_services(apis, Duration::MAX)?;
            let name = &settings.cluster_name;
            let mut cluster = observe::known_cluster(apis, name, &all.value, &[])?;
            cluster.tls_secrets = wanted.clone();
            let unused = provider.unused_certificates(&cluster);
            unused.map_err(Error::Cloud)
        };
        let (found, calls) = counted(find);
        admission::charge(payers, calls);
        let unused = match found {
            Ok(unused) => unused,
            // The next comparison of all Services finds them.
            Err(error) => return log::debug!("unused certificates: {error}"),
        };
        self.none_exist = unused.is_none();
        let unused = unused.unwrap_or_default();
        if unused.is_empty() {
            return;
        }
        let mut executor = Executor::new(NAME, settings.time_scale);
        let execution = executor.begin(OBJECT.to_owned(), unused, (), None);
        execution.payer = payers.first().map(Payer::of_another);
        for over in executor.run(provider, 1) {
            let lines = over
                .lines
                .iter()
                .map(|line| (OBJECT.to_owned(), line.clone()));
            report.changes.extend(lines);
            if let Some(error) = over.error() {
                report.fail(OBJECT.to_owned(), error.to_string(), None);
            }
        }
    }
}
