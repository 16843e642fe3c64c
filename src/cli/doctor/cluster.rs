//! The API server, what we may do there, who leads, and who else is at work.

use super::check::{Outcome, Status, some};
use super::verbs::Need;
use super::view::View;
use crate::kube::Workload;

/// The oldest that is supported, of major version 1.
const MINOR_AT_LEAST: u32 = 30;

/// Where other cloud-controller-managers serve; nothing is there here.
const SECURE_PORT: u64 = 10258;

const OTHER: &str = "cloud-controller-manager";
/// Part of the name of our image.
const OURS: &str = "ccm-from-scratch";

pub(super) fn reached(view: &View) -> Outcome {
    match &view.cluster {
        Ok(at) => Outcome::ok(at.as_str()),
        Err(gap) => Outcome::of_gap(
            gap,
            "check --kubeconfig, KUBECONFIG and --context; kubectl version with the same \
             kubeconfig must work from here",
        ),
    }
}

pub(super) fn version(view: &View) -> Outcome {
    let version = match &view.version {
        Ok(version) => version,
        Err(gap) => return Outcome::of_gap(gap, ""),
    };
    let digits = version
        .minor
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    let minor = digits.parse::<u32>();
    match (version.major.as_str(), minor) {
        ("1", Ok(minor)) if minor < MINOR_AT_LEAST => Outcome::fail(
            format!(
                "Kubernetes {}, and 1.{MINOR_AT_LEAST} is the oldest that is supported",
                version.name
            ),
            "upgrade the cluster: an older one drops fields that are written, again and again",
        ),
        ("1", Ok(_)) => Outcome::ok(format!("Kubernetes {}", version.name)),
        _ => Outcome::warn(
            format!("Kubernetes {}: not tested", version.name),
            "watch what ccm run --dry-run would do before you let it write",
        ),
    }
}

pub(super) fn rights(view: &View) -> Outcome {
    let missing = match &view.missing {
        Ok(missing) => missing,
        Err(gap) => {
            let remedy = "bind system:basic-user to system:authenticated, as it is by default: \
                          whoever is known may ask what they may do";
            return Outcome::of_gap(gap, remedy);
        }
    };
    let name = |need: &Need| format!("{} {}", need.verb, need.resource);
    let names: Vec<String> = missing.iter().map(name).collect();
    let found = format!("this user may not: {}", names.join(", "));
    match missing.iter().all(|need| need.is_comfort) {
        _ if missing.is_empty() => Outcome::ok("this user may do all that the daemon does"),
        true => Outcome::warn(
            format!("{found}; a repeated event is then not counted, only renewed"),
            "kubectl apply -k manifests/, or leave it as it is",
        ),
        false => Outcome::fail(
            found,
            "bind the roles of manifests/base/role.yaml and manifests/base/lease.yaml to it; if the daemon \
             runs as another user, run doctor as that one",
        ),
    }
}

pub(super) fn lease(view: &View) -> Outcome {
    let lease = match &view.lease {
        Ok(lease) => lease,
        Err(gap) => return Outcome::of_gap(gap, "check the API server's own health"),
    };
    let key = &lease.key;
    let remedy = "start the daemon, or see why it does not run (kubectl get pods in the namespace of its \
                  Deployment); where a CronJob does the work, there is no leader between two runs";
    let Some(spec) = lease.spec.as_ref().filter(|spec| !spec.holder.is_empty()) else {
        return Outcome::warn(format!("{key}: no leader, so nothing is done"), remedy);
    };
    let holder = &spec.holder;
    match lease.age_s {
        Some(age_s) if age_s <= i64::from(spec.duration_seconds) => Outcome::ok(format!(
            "{key}: {holder} leads, and renewed it {} s ago",
            age_s.max(0)
        )),
        Some(age_s) => Outcome::warn(
            format!("{key}: {holder} held it and has not renewed it for {age_s} s: no leader"),
            remedy,
        ),
        None => Outcome::warn(
            format!("{key}: {holder} holds it and never renewed it"),
            remedy,
        ),
    }
}

/// Routes, nodes and load balancers may be as another one wants them.
pub(super) fn is_another_at_work(view: &View) -> bool {
    matches!(other_ccm(view).status, Status::Fail | Status::Warn)
}

pub(super) fn other_ccm(view: &View) -> Outcome {
    let remedy = "let one of them work: scale the other one to 0 (kubectl -n NAMESPACE scale \
                  deployment/NAME --replicas=0); ccm help migrate shows how to move from one to the other";
    let holder = view.lease.as_ref().ok().and_then(|lease| {
        let spec = lease.spec.as_ref()?;
        (spec.holder.starts_with("hcloud-") && spec.holder.contains(OTHER)).then_some(&spec.holder)
    });
    // Only an image is certain: ours may run in a Deployment of that name.
    let held = |holder| {
        Outcome::warn(
            format!("{holder} holds the Lease: by its name it is hcloud-cloud-controller-manager"),
            remedy,
        )
    };
    let workloads = match (&view.workloads, holder) {
        (Ok(workloads), _) => workloads,
        (Err(_), Some(holder)) => return held(holder),
        (Err(gap), None) => return Outcome::of_gap(gap, ""),
    };
    let others: Vec<String> = workloads
        .iter()
        .filter(|workload| is_other(workload))
        .map(|workload| format!("{} ({})", workload.name, workload.images.join(", ")))
        .collect();
    let is_ours = workloads.iter().any(runs_us);
    match (others.is_empty(), holder) {
        (false, _) => Outcome::fail(
            format!(
                "{} in {} does the same work as ccm",
                some(&others),
                view.namespace
            ),
            remedy,
        ),
        (true, Some(holder)) if !is_ours => held(holder),
        (true, _) => Outcome::ok(format!("none in {}", view.namespace)),
    }
}

fn is_other(workload: &Workload) -> bool {
    let is_other = |image: &String| image.contains(OTHER) && !image.contains(OURS);
    workload.images.iter().any(is_other)
}

/// Ours may carry any name where only the image of another one's Deployment was changed.
fn runs_us(workload: &Workload) -> bool {
    let is_named = |text: &str| text.contains(OURS) || text.contains(OTHER);
    !is_other(workload)
        && (is_named(&workload.name) || workload.images.iter().any(|image| image.contains(OURS)))
}

pub(super) fn probes(view: &View) -> Outcome {
    let workloads = match &view.workloads {
        Ok(workloads) => workloads,
        Err(gap) => return Outcome::of_gap(gap, ""),
    };
    let ours: Vec<&Workload> = workloads.iter().filter(|one| runs_us(one)).collect();
    let on_it = ours
        .iter()
        .filter(|one| one.probed_ports.contains(&SECURE_PORT));
    let names: Vec<String> = on_it.map(|one| one.name.clone()).collect();
    match (ours.as_slice(), names.as_slice()) {
        ([], _) => Outcome::skipped(format!("ccm has no workload in {}", view.namespace)),
        (_, []) => Outcome::ok("none asks at port 10258"),
        _ => Outcome::fail(
            format!(
                "probed on port {SECURE_PORT}, where nothing is served, so that pods are killed again \
                 and again: {}",
                some(&names)
            ),
            "let the probes ask /livez and /readyz on port 8233 (--metrics-address), over plain HTTP",
        ),
    }
}
