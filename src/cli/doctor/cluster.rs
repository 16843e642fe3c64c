//! The API server, what we may do there, who leads, and who else is at work.

use super::observe::{COUNT_EVENTS, Cluster, View};
use super::outcome::{Gap, Outcome, Status, Verdict, about, need};
use crate::cli::leader;
use crate::kube::Workload;

/// The oldest that is supported, of major version 1.
const MINOR_AT_LEAST: u32 = 30;

/// Where other cloud-controller-managers serve; nothing is there here.
const SECURE_PORT: u64 = 10258;

const OTHER: &str = "cloud-controller-manager";
/// Part of the name of our image.
const OURS: &str = "ccm-from-scratch";

pub(super) fn reached(view: &View) -> Verdict {
    Ok(Outcome::ok(view.cluster.as_ref()?.at.as_str()))
}

fn cluster<'a>(view: &'a View) -> Result<&'a Cluster, Gap> {
    need(&view.cluster, "cluster")
}

pub(super) fn version(view: &View) -> Verdict {
    let version = &cluster(view)?.version;
    let digits = version
        .minor
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    let found = format!("Kubernetes {}", version.name);
    Ok(match (version.major.as_str(), digits.parse::<u32>()) {
        ("1", Ok(minor)) if minor < MINOR_AT_LEAST => Outcome::fail(
            format!("{found}, and 1.{MINOR_AT_LEAST} is the oldest that is supported"),
            "upgrade the cluster: an older one drops fields that are written, again and again",
        ),
        ("1", Ok(_)) => Outcome::ok(found),
        _ => Outcome::warn(
            format!("{found}: not tested"),
            "watch what ccm run --dry-run would do before you let it write",
        ),
    })
}

pub(super) fn rights(view: &View) -> Verdict {
    let missing = cluster(view)?.missing.as_ref()?;
    let names = missing
        .iter()
        .map(|(verb, resource)| format!("{verb} {resource}"));
    let names: Vec<String> = names.collect();
    let found = format!("this user may not: {}", names.join(", "));
    Ok(match missing.iter().all(|need| *need == COUNT_EVENTS) {
        _ if missing.is_empty() => Outcome::ok("this user may do all that the daemon does"),
        true => Outcome::warn(
            format!("{found}; a repeated event is then not counted, only renewed"),
            "kubectl apply -k manifests/, or leave it unchanged",
        ),
        false => Outcome::fail(
            found,
            "bind the roles of manifests/base/role.yaml and manifests/base/lease.yaml to it; if the daemon \
             runs as another user, run doctor as that one",
        ),
    })
}

pub(super) fn lease(view: &View) -> Verdict {
    let spec = cluster(view)?.lease.as_ref()?.as_ref();
    let key = leader::key(view.settings);
    let spec = spec.filter(|spec| !spec.holder.is_empty());
    let found = match spec.map(|spec| (&spec.holder, leader::age_s(spec), spec)) {
        None => "no leader, so nothing is done".to_owned(),
        Some((holder, Some(age_s), spec)) if age_s <= i64::from(spec.duration_seconds) => {
            let age_s = age_s.max(0);
            return Ok(Outcome::ok(format!(
                "{key}: {holder} leads, and renewed it {age_s} s ago"
            )));
        }
        Some((holder, Some(age_s), _)) => {
            format!("{holder} held it and has not renewed it for {age_s} s: no leader")
        }
        Some((holder, None, _)) => format!("{holder} holds it and never renewed it"),
    };
    Ok(Outcome::warn(
        format!("{key}: {found}"),
        "start the daemon, or see why it does not run (kubectl get pods in the namespace of its \
         Deployment); where a CronJob does the work, there is no leader between two runs",
    ))
}

/// Routes, nodes and load balancers may be as another one wants them.
pub(super) fn is_another_at_work(view: &View) -> bool {
    matches!(other_ccm(view), Ok(other) if matches!(other.status, Status::Fail | Status::Warn))
}

pub(super) fn other_ccm(view: &View) -> Verdict {
    let remedy = "let one of them work: scale the other one to 0 (kubectl -n NAMESPACE scale \
                  deployment/NAME --replicas=0); ccm help migrate shows how to move from one to the other";
    let cluster = cluster(view)?;
    let spec = cluster.lease.as_ref().ok().and_then(Option::as_ref);
    let holder = spec.map(|spec| &spec.holder);
    let holder = holder.filter(|holder| holder.starts_with("hcloud-") && holder.contains(OTHER));
    let workloads = match (&cluster.workloads, holder) {
        (Err(_), Some(_)) => &Vec::new(),
        (workloads, _) => workloads.as_ref()?,
    };
    let namespace = &view.settings.lease_namespace.value;
    let others = workloads.iter().filter(|workload| is_other(workload));
    let others =
        others.map(|workload| format!("{} ({})", workload.name, workload.images.join(", ")));
    let others = about(others, |others| {
        Outcome::fail(
            format!("{others} in {namespace} does the same work as ccm"),
            remedy,
        )
    });
    Ok(match (others, holder) {
        (Some(others), _) => others,
        // Only an image is certain: ours may run in a Deployment of that name.
        (None, Some(holder)) if !workloads.iter().any(runs_us) => Outcome::warn(
            format!("{holder} holds the Lease: by its name it is hcloud-cloud-controller-manager"),
            remedy,
        ),
        (None, _) => Outcome::ok(format!("none in {namespace}")),
    })
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

pub(super) fn probes(view: &View) -> Verdict {
    let workloads = cluster(view)?.workloads.as_ref()?;
    let ours: Vec<&Workload> = workloads.iter().filter(|one| runs_us(one)).collect();
    if ours.is_empty() {
        let namespace = &view.settings.lease_namespace.value;
        return Ok(Outcome::skipped(format!(
            "ccm has no workload in {namespace}"
        )));
    }
    let is_wrong = |one: &&Workload| one.probed_ports.contains(&SECURE_PORT);
    let wrong = ours
        .into_iter()
        .filter(is_wrong)
        .map(|one| one.name.clone());
    let wrong = about(wrong, |names| {
        Outcome::fail(
            format!(
                "probed on port {SECURE_PORT}, where nothing is served, so that pods are killed again \
                 and again: {names}"
            ),
            "let the probes ask /livez and /readyz on port 8233 (--metrics-address), over plain HTTP",
        )
    });
    Ok(wrong.unwrap_or_else(|| Outcome::ok("none asks at port 10258")))
}
