//! The table of stages. A stage is one read of data that the checks need. When a stage fails, the later stages are
//! still run, except those that need its data. When an API has refused credentials, they are not sent again.

use super::outcome::{Credential, Gap, Seen};
use super::reads::{self, DoctorReader};
use super::view::{CloudView, ClusterView, DoctorView, ServicesView};
use crate::cli::lists::POLL_INTERVAL;
use crate::cli::objects::CLOUD_INTERVAL;
use crate::cli::startup::Started;
use crate::cli::{leader, wire};
use crate::hetzner::Hetzner;
use crate::http::SecretSource;
use crate::kube;
use crate::provider::{Checkup, Urgency, clock};
use crate::settings::{Command, Settings};
use std::time::Duration;

/// A read that the checks need. `STAGES` lists all reads in the order in which they are made.
struct ReadStage {
    /// The name of the read, e.g. `the servers`. Later reads that need its data name it in their field `needs`.
    name: &'static str,
    /// The name of the check of `ccm doctor` that reports the failure of this read.
    check: &'static str,
    /// The names of the reads that must have succeeded before this read is made.
    needs: &'static [&'static str],
    /// The credentials that this read sends to an API. If an API has refused one of them in an earlier read, this read
    /// is skipped.
    sends: &'static [Credential],
    /// Whether this read gets data from the cloud, and not from Kubernetes. With `--watch`, the cloud is read only once
    /// a minute.
    is_of_cloud: bool,
    /// Reads the data, stores it in the `DoctorView`, and returns whether the read succeeded. The second argument is an
    /// error when the read must be skipped. The function then reads nothing, but stores and returns this error.
    read: fn(&mut DoctorView, Seen<&DoctorReader>) -> Seen<()>,
}

const KUBERNETES: &[Credential] = &[Credential::Kubernetes];
const CLOUD: &[Credential] = &[Credential::Cloud];
const BOTH: &[Credential] = &[Credential::Kubernetes, Credential::Cloud];

/// The reads (stages) that the checks need, in the order in which they are made. When an API has refused credentials,
/// later reads that send the same credentials are skipped. The login of Robot is not among the credentials of any read
/// here, because Robot's client itself does not send a refused login again within ten minutes.
#[rustfmt::skip] // Each row has what is read, the check that reports it, what it needs, and what it sends.
const STAGES: &[ReadStage] = &[
    stage("the token", "token", &[], &[], |view, may| {
        note(may.and_then(reads::token), &mut view.token)
    }),
    stage("the API server", "cluster", &[], KUBERNETES, |view, may| {
        note(may.and_then(reads::cluster), &mut view.cluster)
    }),
    stage("the Lease", "lease", &["the API server"], KUBERNETES, |view, may| {
        note(may.and_then(reads::lease), &mut view.lease)
    }),
    stage("the workloads", "other-ccm", &["the API server"], KUBERNETES, |view, may| {
        note(may.and_then(reads::workloads), &mut view.workloads)
    }),
    stage("the wait of a refused login", "robot", &["the API server"], KUBERNETES, |_, may| {
        may.map(reads::wait_of_login)
    }).of_cloud(),
    stage("dedicated servers", "robot", &[], &[], |view, may| {
        view.cloud.dedicated = reads::dedicated(may?);
        Ok(())
    }).of_cloud(),
    stage("the servers", "api", &["the token"], CLOUD, |view, may| {
        note(may.and_then(|reader| reads::servers(reader, &mut view.cloud)), &mut view.cloud.servers)
    }).of_cloud(),
    stage("what the token allows", "permission", &["the servers"], CLOUD, |view, may| {
        reads::checkup(may?, &mut view.cloud)
    }).of_cloud(),
    stage("the Network", "network", &["the servers"], &[], |view, may| {
        may.and_then(|_| reads::network(&view.cloud))
    }).of_cloud(),
    stage("load balancers of any cluster", "targets", &["the servers"], CLOUD, |view, may| {
        let read = may.and_then(|reader| reads::balancers(reader, view.cluster.is_ok()));
        note(read, &mut view.cloud.balancers)
    }).of_cloud(),
    stage("the nodes", "nodes", &["the API server"], KUBERNETES, |view, may| {
        note(may.and_then(|reader| reads::nodes(reader, &view.cloud)), &mut view.nodes)
    }),
    stage("certificate requests", "certificates", &["the nodes", "the servers"], BOTH, |view, may| {
        note(may.and_then(reads::certificates), &mut view.certificates)
    }),
    stage("the routes", "routes", &["the nodes", "the servers", "the Network"], BOTH, |view, may| {
        note(may.and_then(reads::routes), &mut view.routes)
    }),
    stage("the Services", "services", &["the nodes", "the servers", "the Network"], BOTH, |view, may| {
        let read = may.and_then(|reader| reads::services(reader, &mut view.services));
        note(read, &mut view.services.plans)
    }),
    stage("the list of Services", "services", &["the API server"], KUBERNETES, |view, may| {
        note(may.and_then(reads::listed), &mut view.services.listed)
    }),
    stage("events", "services", &["the nodes", "the list of Services"], KUBERNETES, |view, may| {
        let read = may.and_then(|reader| reads::failed_tries(reader, &view.services.listed));
        note(read, &mut view.services.failed_tries)
    }),
    stage("orphans", "orphans", &["the Services"], BOTH, |view, may| {
        note(may.and_then(reads::orphans), &mut view.services.orphans)
    }),
    stage("kept load balancers", "orphans", &["orphans"], BOTH, |view, may| {
        note(may.and_then(reads::kept), &mut view.services.kept)
    }),
];

const fn stage(
    name: &'static str,
    check: &'static str,
    needs: &'static [&'static str],
    sends: &'static [Credential],
    read: fn(&mut DoctorView, Seen<&DoctorReader>) -> Seen<()>,
) -> ReadStage {
    ReadStage { name, check, needs, sends, is_of_cloud: false, read }
}

impl ReadStage {
    const fn of_cloud(mut self) -> ReadStage {
        self.is_of_cloud = true;
        self
    }
}

fn note<T>(read: Seen<T>, slot: &mut Seen<T>) -> Seen<()> {
    *slot = read;
    slot.as_ref().map(drop).map_err(Gap::clone)
}

fn unread<T>() -> Seen<T> {
    Err(Gap::Needs(""))
}

/// The reads (stages) that were made or skipped so far, with their results.
type EndedStages = Vec<(&'static ReadStage, Seen<()>)>;

/// Returns an error when `stage`, one of the reads of `ccm doctor`, must be skipped. It is skipped when it needs
/// another read that did not succeed, or when it sends credentials that an API has refused in an earlier read.
fn may_read(stage: &ReadStage, ended: &EndedStages) -> Seen<()> {
    for needed in stage.needs {
        let ended = ended.iter().find(|(stage, _)| stage.name == *needed);
        if let Some((needed, Err(gap))) = ended {
            return Err(gap.behind(needed.check));
        }
    }
    for (earlier, came) in ended {
        if let Err(Gap::Refused(login, ..)) = came
            && stage.sends.contains(login)
        {
            return Err(Gap::Needs(earlier.check));
        }
    }
    Ok(())
}

/// How old cached answers of Kubernetes are allowed to be without `--watch`, when each check runs only once. The time
/// is so long that no list is read twice.
const ONE_LOOK: Duration = Duration::from_secs(3600);

/// Reads the data for the checks, once, or again and again with `--watch`. With `--watch` the cloud is read only once a
/// minute. The user's rights are not checked again after a check found that no right is missing.
pub(in crate::cli) struct Observer<'a> {
    reader: DoctorReader<'a>,
    /// How long the data of one read of the cloud is used before the cloud is read again. Zero means that each call of
    /// [`Observer::observe`] reads the cloud.
    keep: Duration,
    /// The data that was last read from the cloud, and for each read whether it succeeded. `None` when the cloud was
    /// not read yet.
    cloud: Option<(CloudView, EndedStages)>,
}

impl<'a> Observer<'a> {
    /// Creates the object that reads the data for the checks of `ccm doctor`. `command` is `ccm doctor` or `ccm
    /// status`, which both use these checks. No call is made yet.
    pub(in crate::cli) fn new(started: &'a Started, command: Command) -> Observer<'a> {
        let settings = &started.settings;
        let (keep, look) = if settings.watch.value {
            (CLOUD_INTERVAL, POLL_INTERVAL / 2)
        } else {
            (Duration::ZERO, ONE_LOOK)
        };
        let kube = wire::kube_client(settings, wire::gate(Command::Doctor, settings));
        let has_cluster = kube.as_ref().map(drop).map_err(|why| reads::failed(why.clone()));
        let kube = kube.unwrap_or_else(|_| kube::KubeClient::of_nowhere());
        let apis = provider(settings).map(|provider| {
            let mut apis = wire::together(settings, kube, provider);
            apis.poll_cloud_every(keep);
            leader::heed_identity(settings, &apis);
            apis
        });
        let reader = DoctorReader {
            started,
            command,
            begun: clock::now(),
            apis,
            has_cluster,
            look,
            has_rights: false,
        };
        Observer { reader, keep, cloud: None }
    }

    /// Makes all reads that the checks need, and returns what was read. While the last data from the cloud are younger
    /// than the field `keep`, the cloud is not read again, and the result contains these data.
    pub(in crate::cli) fn observe(&mut self) -> DoctorView<'a> {
        let kept = self.cloud.take().filter(|(cloud, _)| clock::since(cloud.asked) < self.keep);
        let mut view = self.blank(kept.as_ref().map(|(cloud, _)| cloud.clone()));
        let mut ended = EndedStages::new();
        for stage in STAGES {
            let kept = kept.iter().flat_map(|(_, ended)| ended);
            let came = match kept.clone().find(|(kept, _)| kept.name == stage.name) {
                Some((_, came)) => came.clone(),
                None => (stage.read)(&mut view, may_read(stage, &ended).map(|()| &self.reader)),
            };
            ended.push((stage, came));
        }
        self.reader.has_rights =
            matches!(&view.cluster, Ok(ClusterView { missing: Ok(none), .. }) if none.is_empty());
        ended.retain(|(stage, _)| stage.is_of_cloud);
        self.cloud = Some((view.cloud.clone(), ended));
        let settings = &self.reader.started.settings;
        if let Ok(apis) = &self.reader.apis {
            view.refreshes = apis.refreshes(
                settings.node_status_update_frequency.value,
                settings.load_balancer_resync_period.value,
            );
        }
        view
    }

    /// Returns a [`DoctorView`] in which only the settings are known. Each read then stores its result in this view.
    /// `cloud` has the data of an earlier read of the cloud, if these data are young enough to be used again. The view
    /// then contains them, too.
    fn blank(&self, cloud: Option<CloudView>) -> DoctorView<'a> {
        let problems = self.reader.started.problems.iter();
        let problems = problems.filter(|problem| !reads::is_of_token(problem));
        DoctorView {
            settings: &self.reader.started.settings,
            problems: problems.map(ToString::to_string).collect(),
            of_forks: &self.reader.started.of_forks,
            token: unread(),
            cluster: unread(),
            lease: unread(),
            workloads: unread(),
            cloud: cloud.unwrap_or_else(|| CloudView {
                asked: clock::now(),
                servers: unread(),
                dedicated: None,
                checkup: Checkup::default(),
                balancers: unread(),
            }),
            nodes: unread(),
            certificates: unread(),
            routes: unread(),
            services: ServicesView {
                plans: unread(),
                external: Vec::new(),
                namespaces: std::sync::Arc::default(),
                listed: unread(),
                failed_tries: unread(),
                orphans: unread(),
                kept: unread(),
            },
            refreshes: Vec::new(),
        }
    }
}

/// Creates the provider for Hetzner Cloud. This succeeds even when there is no API token. The provider can then make no
/// calls, but it can still tell whether a node's provider ID belongs to Hetzner Cloud.
fn provider(settings: &Settings) -> Seen<Hetzner> {
    let mut settings = settings.clone();
    settings.token.value.get_or_insert_with(SecretSource::none);
    let gate = wire::gate(Command::Doctor, &settings);
    let metadata = wire::metadata(&settings);
    wire::provider(&settings, gate, Urgency::Asked, metadata).map_err(reads::failed)
}

#[cfg(test)]
mod tests {
    use super::super::CHECKS;
    use super::STAGES;

    #[test]
    fn a_stage_needs_earlier_ones_and_is_reported_by_a_check() {
        for (place, stage) in STAGES.iter().enumerate() {
            let is_earlier = |needed: &&str| STAGES[..place].iter().any(|it| it.name == *needed);
            assert!(stage.needs.iter().all(is_earlier), "{}", stage.name);
            assert!(CHECKS.iter().any(|(check, ..)| *check == stage.check), "{}", stage.name);
        }
    }
}
