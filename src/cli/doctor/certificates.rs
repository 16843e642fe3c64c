//! The check of the certificate requests of kubelets.

use super::outcome::{CheckOutcome, CheckResult, counted, or_ok};
use super::view::DoctorView;
use crate::cli::wire;
use crate::controllers::kubelet_certificates::{
    self, NewestPending, ObservedRequests, PlannedRequests,
};
use crate::kube::{SigningRow, SigningState};
use crate::provider::InternalIpFrom;
use crate::provider::order;
use crate::provider::variables::HCLOUD_INSTANCES_INTERNAL_IP_FROM;
use crate::text::{self, duration::shown_duration};

/// How long a kubelet waits for the approval or denial of its certificate request, in seconds. After this time it makes
/// a new request.
const KUBELET_WAITS: u64 = 15 * 60;

/// How long another program may need to approve a certificate request or to issue the certificate, in seconds.
const PROGRAM_NEEDS: u64 = 60;

/// Returns the newest pending certificate request of each kubelet that has waited for a decision for 15 minutes
/// or longer. A kubelet gives up a request after 15 minutes and makes a new one, so the newest request itself can
/// be younger.
pub(in crate::cli) fn waiting((observed, _): &PlannedRequests) -> Vec<NewestPending<'_>> {
    longer_than(KUBELET_WAITS, observed)
}

fn longer_than(seconds: u64, observed: &ObservedRequests) -> Vec<NewestPending<'_>> {
    let mut newest = kubelet_certificates::newest(&observed.rows);
    newest.retain(|it| it.first.age_s() >= seconds);
    newest
}

/// Returns a warning when kubelets have waited for more than a minute for the approval of their certificate requests.
/// The caller has checked that the settings do not let the daemon approve requests. The wait then shows that no other
/// program approves them.
fn without_approver(observed: &ObservedRequests) -> Option<CheckOutcome> {
    let mut waiting = longer_than(PROGRAM_NEEDS, observed);
    order::sort_by_key(&mut waiting, |it| (it.first.created, it.node));
    let shown =
        |it: &NewestPending| format!("{} for {}", it.node, shown_duration(it.first.age_s()));
    let nodes: Vec<String> = waiting.iter().map(shown).collect();
    let found = format!(
        "certificate requests of kubelets stay pending, because no controller approves them: {}",
        text::some_of(&nodes)
    );
    let fix = "add node-csr-approval to --controllers and apply manifests/components/kubelet-certificates (chart: \
               kubeletCertificates.enabled), or run another program that approves them";
    (!nodes.is_empty()).then(|| CheckOutcome::warn(found, fix))
}

pub(super) fn certificates(view: &DoctorView) -> CheckResult {
    if wire::certificates(view.settings).is_none() {
        let observed = view.certificates.iter().map(|(observed, _)| observed);
        return Ok(observed.flat_map(without_approver).collect());
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
    let late = waiting(seen).into_iter().map(|NewestPending { row, first, .. }| {
        let (name, age) = (&row.name, shown_duration(first.age_s()));
        let found = why(&row.uid).map_or_else(
            || format!("certificate request {name} has waited for {age}, because ccm has not decided yet"),
            |why| format!("the kubelet has waited for its serving certificate for {age}, and {}", why.message),
        );
        on(row, found, "if you trust the request, approve it: kubectl certificate approve NAME")
    });
    let is_unsigned =
        |row: &&SigningRow| row.state == SigningState::Approved && row.age_s() >= PROGRAM_NEEDS;
    let unsigned = observed.rows.iter().filter(is_unsigned).map(|row| {
        let found = format!(
            "certificate request {} is approved, but its certificate was not issued",
            row.name
        );
        on(row, found, "check the signer: kube-controller-manager needs the private key of the CA")
    });
    let setting = (view.settings.internal_ip_from.value == InternalIpFrom::Kubelet).then(|| {
        let found = format!(
            "{HCLOUD_INSTANCES_INTERNAL_IP_FROM}=kubelet lets kubelets choose their InternalIP, but ccm does not approve \
             certificate requests with an address that the cloud does not list for the server"
        );
        CheckOutcome::warn(
            found,
            "approve certificate requests with such an address yourself: kubectl certificate approve NAME",
        )
    });
    let ok =
        format!("{} of kubelets, and none waits too long", counted(observed.rows.len(), "request"));
    or_ok(late.chain(unsigned).chain(setting), ok)
}
