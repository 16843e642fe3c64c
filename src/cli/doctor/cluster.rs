//! Checks of the API server, of the user's rights there, of the leader, and of other programs that do ccm's work.

use super::outcome::{CheckOutcome, CheckResult, Gap, need, or_ok};
use super::reads::{CERTIFICATE_NEEDS, COUNT_EVENTS, NAMESPACE_NEEDS};
use super::view::{ClusterView, DoctorView, Need};
use crate::cli::leader;
use crate::kube::Workload;
use crate::provider::variables::HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS;
use crate::text::shell_command;

/// The minor version of the oldest supported version of Kubernetes, which is 1.30.
const MINOR_AT_LEAST: u32 = 30;

/// The port on which other cloud-controller-managers answer health probes. ccm does not listen on this port, so a probe
/// that uses it fails.
const SECURE_PORT: u64 = 10258;

const OTHER: &str = "cloud-controller-manager";
/// The text by which a workload of ccm is recognized. It is part of the workload's name, or of the name of its image.
const OURS: &str = "ccm-from-scratch";

pub(super) fn reached(view: &DoctorView) -> CheckResult {
    Ok(vec![CheckOutcome::ok(view.cluster.as_ref()?.at.as_str())])
}

fn cluster<'a>(view: &'a DoctorView) -> Result<&'a ClusterView, Gap> {
    need(&view.cluster, "cluster")
}

pub(super) fn version(view: &DoctorView) -> CheckResult {
    let version = &cluster(view)?.version;
    let digits = version.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    let found = format!("Kubernetes {}", version.name);
    Ok(vec![match (version.major.as_str(), digits.parse::<u32>()) {
        ("1", Ok(minor)) if minor < MINOR_AT_LEAST => CheckOutcome::fail(
            format!("{found}, but 1.{MINOR_AT_LEAST} is the oldest supported version"),
            "upgrade the cluster: an older API server drops fields, so ccm writes them again and again",
        ),
        ("1", Ok(_)) => CheckOutcome::ok(found),
        _ => CheckOutcome::warn(
            format!("{found}: ccm is not tested with this version"),
            "check the output of ccm run --dry-run before ccm writes anything",
        ),
    }])
}

pub(super) fn rights(view: &DoctorView) -> CheckResult {
    let missing = cluster(view)?.missing.as_ref()?;
    let names = Vec::from_iter(missing.iter().map(|(verb, resource)| format!("{verb} {resource}")));
    let found = format!("this user may not {}", names.join(", "));
    let may_lack = |need: &Need| NAMESPACE_NEEDS.contains(need) || *need == COUNT_EVENTS;
    if NAMESPACE_NEEDS.iter().any(|need| missing.contains(need)) && missing.iter().all(may_lack) {
        let fix = format!(
            "kubectl apply -k manifests/components/namespace-defaults, or set namespaceDefaults: true in the values of \
             the Helm chart, or unset {HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS}"
        );
        return Ok(vec![CheckOutcome::fail(found, fix)]);
    }
    if !missing.is_empty() && missing.iter().all(|need| CERTIFICATE_NEEDS.contains(need)) {
        let fix = "kubectl apply -k manifests/components/kubelet-certificates, or set kubeletCertificates.enabled: \
                   true in the values of the Helm chart, or remove node-csr-approval from --controllers";
        return Ok(vec![CheckOutcome::fail(found, fix)]);
    }
    Ok(vec![match missing.iter().all(|need| *need == COUNT_EVENTS) {
        _ if missing.is_empty() => CheckOutcome::ok("this user has all rights of the daemon"),
        true => CheckOutcome::warn(
            format!(
                "{found}. Without this right, ccm updates the time of a repeated event, but not its count"
            ),
            "update the roles (kubectl apply -k manifests/), or leave them unchanged: ccm works without this right",
        ),
        false => CheckOutcome::fail(
            found,
            "bind the roles of manifests/base/role.yaml and manifests/base/lease.yaml to this user; if the \
             daemon runs as another user, run doctor as that user",
        ),
    }])
}

pub(super) fn lease(view: &DoctorView) -> CheckResult {
    let spec = view.lease.as_ref()?.as_ref();
    let key = leader::key(view.settings);
    let found = match spec.map(|spec| (&spec.holder, leader::age_s(spec), spec)) {
        None => "there is no leader, so nothing is synced".to_owned(),
        Some((holder, Some(age_s), spec)) if age_s <= i64::from(spec.duration_seconds) => {
            return Ok(vec![CheckOutcome::ok(format!(
                "{key}: {holder} is the leader, and renewed the Lease {age_s} s ago"
            ))]);
        }
        Some((holder, Some(age_s), _)) => {
            format!(
                "the process {holder} held the Lease, but has not renewed it for {age_s} s, so there is no leader, and \
                 nothing is synced"
            )
        }
        Some((holder, None, _)) => {
            format!(
                "the process {holder} holds the Lease, but never renewed it, so it probably does not run"
            )
        }
    };
    let pods = shell_command("kubectl -n", &[&key.namespace, &"get", &"pods"]);
    Ok(vec![CheckOutcome::warn(
        format!("{key}: {found}"),
        format!(
            "start the daemon, or find out why it does not run: {pods}. If a CronJob runs ccm, it is normal that there \
             is no leader between two runs"
        ),
    )])
}

/// Whether another cloud-controller-manager is running for this cluster. That program may change routes,
/// nodes and load balancers.
pub(super) fn is_another_at_work(view: &DoctorView) -> bool {
    other_ccm(view).is_ok_and(|others| others.iter().any(CheckOutcome::is_bad))
}

pub(super) fn other_ccm(view: &DoctorView) -> CheckResult {
    let remedy = |stop: &str| {
        format!(
            "run only one cloud-controller-manager: stop either this one{stop} or ccm; ccm help migrate shows how to \
             move from one to the other"
        )
    };
    let mut holders = view.lease.iter().flatten().map(|spec| &spec.holder);
    let holder = holders.find(|holder| holder.starts_with("hcloud-") && holder.contains(OTHER));
    let workloads = match (&view.workloads, holder) {
        (Err(_), Some(_)) => &Vec::new(),
        (workloads, _) => workloads.as_ref()?,
    };
    let namespace = &view.settings.lease_namespace.value;
    let others = workloads.iter().filter(|workload| is_other(workload)).map(|workload| {
        let images = workload.images.join(", ");
        let found = format!("{images} runs in namespace {namespace} and does the same work as ccm");
        let stop = format!(" ({})", stop(namespace, workload));
        of_workload(CheckOutcome::fail(found, remedy(&stop)), workload)
    });
    let mut others: Vec<CheckOutcome> = others.collect();
    // The Lease holder has a name like a pod of hcloud-cloud-controller-manager, but no workload with the image of that
    // program was found. Only the image proves which program runs, because ccm can also run in a Deployment with that
    // name. So this is only a warning.
    if let (true, Some(holder)) = (others.is_empty(), holder)
        && !workloads.iter().any(runs_us)
    {
        let found = format!(
            "the process {holder} holds the Lease, and is probably hcloud-cloud-controller-manager, because it has a \
             name like a pod of that program"
        );
        others.push(CheckOutcome::warn(found, remedy("")));
    }
    or_ok(others, format!("there is no other cloud-controller-manager in namespace {namespace}"))
}

/// Returns the kubectl command that ends the workload's pods. A Deployment is scaled to 0 replicas. A DaemonSet can't
/// be scaled, so it is deleted.
fn stop(namespace: &str, workload: &Workload) -> String {
    let name = &workload.name;
    if name.starts_with("deployment/") {
        shell_command("kubectl -n", &[&namespace, &"scale", name, &"--replicas=0"])
    } else {
        shell_command("kubectl -n", &[&namespace, &"delete", name])
    }
}

/// Returns the outcome of a check, with this workload as the object that the outcome is about. The name of a workload
/// has the form `deployment/NAME` or `daemonset/NAME`.
fn of_workload(outcome: CheckOutcome, workload: &Workload) -> CheckOutcome {
    let (kind, name) = workload.name.split_once('/').unwrap_or_default();
    outcome.on(kind, name)
}

fn is_other(workload: &Workload) -> bool {
    let is_other = |image: &String| image.contains(OTHER) && !image.contains(OURS);
    workload.images.iter().any(is_other)
}

/// Whether the workload runs ccm. Usually its name or its image shows this. Somebody can also have replaced the image
/// in the Deployment of another cloud-controller-manager by an image of ccm, with any name. So a workload whose name
/// contains `cloud-controller-manager` counts as well, unless its image is that of another cloud-controller-manager.
fn runs_us(workload: &Workload) -> bool {
    let is_named = |text: &str| text.contains(OURS) || text.contains(OTHER);
    !is_other(workload)
        && (is_named(&workload.name) || workload.images.iter().any(|image| image.contains(OURS)))
}

/// Returns the workloads (Deployments and DaemonSets) that run ccm, in the namespace of the Lease for ccm's leader
/// election. Returns an error when there are none, or when the workloads were not read.
fn own<'a>(view: &'a DoctorView) -> Result<Vec<&'a Workload>, Gap> {
    let workloads = view.workloads.as_ref()?;
    let ours: Vec<&Workload> = workloads.iter().filter(|workload| runs_us(workload)).collect();
    if ours.is_empty() {
        let namespace = &view.settings.lease_namespace.value;
        let why = format!("there is no Deployment or DaemonSet of ccm in namespace {namespace}");
        return Err(Gap::NotHere(why));
    }
    Ok(ours)
}

pub(super) fn probes(view: &DoctorView) -> CheckResult {
    let is_wrong = |workload: &&Workload| workload.probed_ports.contains(&SECURE_PORT);
    let wrong = own(view)?.into_iter().filter(is_wrong).map(|workload| {
        let outcome = CheckOutcome::fail(
            format!("the probes use port {SECURE_PORT}, on which ccm does not listen, so the kubelet restarts the pods \
                     again and again"),
            "set the probes to /livez and /readyz on port 8233 (--metrics-address), over plain HTTP",
        );
        of_workload(outcome, workload)
    });
    or_ok(wrong, "no probe uses port 10258")
}

/// Reports Deployments and DaemonSets of the daemon that have fewer ready pods than they should have.
pub(super) fn daemon(view: &DoctorView) -> CheckResult {
    let namespace = &view.settings.lease_namespace.value;
    let outcomes = own(view)?.into_iter().filter_map(|workload| {
        let (ready, wanted) = workload.pods.filter(|(ready, wanted)| ready < wanted)?;
        let found = format!(
            "{ready} of {wanted} pods are ready; a pod that is not ready does not start, or exits again and again"
        );
        let logs =
            shell_command("kubectl -n", &[namespace, &"logs", &workload.name, &"--previous"]);
        let pods = shell_command("kubectl -n", &[namespace, &"get", &"pods"]);
        let remedy =
            format!("the last line of {logs} says why (settings, rights, or a lost Lease); {pods} shows the state of \
                     the pods");
        Some(of_workload(CheckOutcome::bad(ready == 0, found, &remedy), workload))
    });
    or_ok(outcomes, "all pods of the daemon are ready")
}
