//! The check of the certificate requests of kubelets.

use super::outcome::{CheckOutcome, CheckResult, counted, or_ok};
use super::view::{CertificatesView, DoctorView};
use crate::cli::wire;
use crate::kube::{SigningRow, SigningState};
use crate::provider::InternalIpFrom;
use crate::provider::variables::HCLOUD_INSTANCES_INTERNAL_IP_FROM;
use crate::text::duration::shown_duration;

/// `KUBELET_WAITS` is how long a kubelet waits until its certificate request is approved or denied. `SIGNER_NEEDS` is
/// how long the signer may then need to issue the certificate. Both are in seconds.
const KUBELET_WAITS: u64 = 15 * 60;
const SIGNER_NEEDS: u64 = 60;

/// Returns the pending requests that are so old that their kubelets do not wait for them any more. Of each node, only
/// the newest request can be in the result.
pub(in crate::cli) fn waiting((observed, _): &CertificatesView) -> Vec<&SigningRow> {
    let is_late = |row: &&SigningRow| {
        let newest = row.node.as_deref().and_then(|node| observed.newest_of(node));
        let is_pending = row.state == SigningState::Pending && row.age_s() >= KUBELET_WAITS;
        is_pending && newest == Some(row)
    };
    observed.rows.iter().filter(is_late).collect()
}

pub(super) fn certificates(view: &DoctorView) -> CheckResult {
    if wire::certificates(view.settings).is_none() {
        return Ok(Vec::new());
    }
    let seen = view.certificates.as_ref()?;
    let (observed, plans) = seen;
    let why = |uid: &str| plans.iter().find(|plan| plan.object.uid == uid)?.obstacle.as_ref();
    if let Some(why) = why("") {
        return Ok(vec![CheckOutcome::fail(&*why.message, "")]);
    }
    let on = |row: &SigningRow, found: String, fix: &str| {
        CheckOutcome::warn(found, fix).on("node", row.node.as_deref().unwrap_or_default())
    };
    let late = waiting(seen).into_iter().map(|row| {
        let (name, age) = (&row.name, shown_duration(row.age_s()));
        let why = why(&row.uid).map_or("its proof is not known yet", |why| &why.message);
        let found = format!("{name} waits for {age}: {why}");
        on(row, found, "if the request is right, approve it: kubectl certificate approve NAME")
    });
    let is_unsigned =
        |row: &&SigningRow| row.state == SigningState::Approved && row.age_s() >= SIGNER_NEEDS;
    let unsigned = observed.rows.iter().filter(is_unsigned).map(|row| {
        let found = format!("{} is approved, but has no certificate", row.name);
        on(row, found, "check the signer: kube-controller-manager needs the key of its authority")
    });
    let setting = (view.settings.internal_ip_from.value == InternalIpFrom::Kubelet).then(|| {
        let found = format!(
            "{HCLOUD_INSTANCES_INTERNAL_IP_FROM}=kubelet: the cloud can't prove such addresses"
        );
        CheckOutcome::warn(
            found,
            "approve requests with such an address yourself: kubectl certificate approve NAME",
        )
    });
    let ok =
        format!("{} of kubelets, and none waits too long", counted(observed.rows.len(), "request"));
    or_ok(late.chain(unsigned).chain(setting), ok)
}
