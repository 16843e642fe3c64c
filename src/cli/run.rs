//! `ccm run`: the daemon. With `--once`, it works on all objects one time and ends.

use super::output::{Exit, Printer};
use super::{leader, logging, objects, startup, version, wire};
use crate::cache::Apis;
use crate::controllers::lifecycle::LifecycleController;
use crate::controllers::node::NodeController;
use crate::controllers::route::RouteController;
use crate::controllers::service::ServiceController;
use crate::controllers::{Controller, Counts, Selection};
use crate::daemon::lease::LeaderElection;
use crate::daemon::{self, DaemonEnd, Stop};
use crate::metrics;
use crate::provider::{Gate, Urgency, clock};
use crate::settings::{Command, Controller as Enabled, Settings};
use log::Level;
use std::ffi::OsString;
use std::sync::Arc;

/// The parts of the daemon: its settings, API clients and controllers. They are created, but no thread of the daemon
/// runs yet.
pub(super) struct Parts {
    settings: Settings,
    pub(super) stop: &'static Stop,
    pub(super) lease: Option<Arc<LeaderElection>>,
    pub(super) apis: &'static Apis,
    pub(super) controllers: Vec<Box<dyn Controller>>,
}

/// Creates the settings, API clients and controllers of the daemon from the words of its command line. Nothing is
/// started yet.
pub(super) fn assemble(words: Vec<OsString>) -> Result<Parts, Exit> {
    let settings = startup::start(Command::Run, words)?.settings;
    let stop: &'static Stop = Box::leak(Box::new(Stop::default()));
    let lease = leader::lease(&settings, stop).map_err(Printer::failure)?;
    // The gate is the check before each write. In a dry run, it allows no writes. With leader election, it allows
    // writes while this process holds the Lease. Otherwise it allows writes until the process is asked to end.
    let gate: Arc<dyn Gate> = match &lease {
        _ if settings.dry_run.value => wire::gate(Command::Run, &settings),
        Some(lease) => Arc::clone(lease) as Arc<dyn Gate>,
        None => Arc::new(stop),
    };
    let metadata = wire::metadata(&settings);
    let apis =
        wire::apis(None, &settings, gate, Urgency::Changed, metadata).map_err(Printer::failure)?;
    let controllers = controllers(&settings);
    if controllers.is_empty() {
        let why = "no controller of --controllers can run with these settings, so ccm ends";
        return Err(Printer::failure(why));
    }
    log_start(&settings, &apis, &controllers);
    if let Some(lease) = &lease {
        let _ = lease.cluster.set(Arc::clone(&apis.identity));
    }
    // The API clients are leaked on purpose, because the threads of the daemon use them until the process ends.
    let apis: &'static Apis = Box::leak(Box::new(apis));
    if let (Some(lease), Some(dedicated)) = (&lease, apis.provider.dedicated()) {
        let _ = lease.dedicated.set(dedicated);
    }
    Ok(Parts { settings, stop, lease, apis, controllers })
}

pub(super) fn run(words: Vec<OsString>) -> Result<Exit, Exit> {
    let parts = assemble(words)?;
    if parts.settings.dry_run.value {
        logging::show_waits();
        leader::heed_identity(&parts.settings, parts.apis);
        if let Some(why) = leader::heed_refused_login(&parts.settings, parts.apis) {
            log::warn!("{why}");
        }
        // A dry run makes no writes that would have to be finished. A signal can therefore end the process at once, so
        // no signal handler is set.
        return Ok(dry_run(parts.apis, &parts.controllers));
    }
    daemon::stop_on_signals(parts.stop)
        .map_err(|error| Printer::failure(format_args!("ccm can't watch for signals: {error}")))?;
    if parts.settings.once.value {
        logging::show_waits();
        return Ok(once(parts));
    }
    let Parts { settings, stop, lease, apis, controllers } = parts;
    metrics::begin();
    metrics::BUILD.set(&[env!("CARGO_PKG_VERSION"), apis.provider.name()], 1.0);
    let (address, has_metrics) = (settings.metrics_address.value, settings.metrics_enabled.value);
    let served = daemon::HealthSettings { address, has_metrics };
    let health = daemon::DaemonHealth::start(served, apis, stop, lease.clone());
    let exit = leader::lead(&settings, lease.as_ref(), || {
        let running = daemon::begin(apis, controllers, stop, |name| health.watch(name));
        Exit::Done.fail_if(matches!(running.until_stopped(), DaemonEnd::Blocked))
    });
    if exit == Exit::Done {
        log::info!("ended");
    }
    Ok(exit)
}

/// Returns the controllers that the flag `--controllers` names. The route controller is left out when the settings turn
/// routes off.
fn controllers(settings: &Settings) -> Vec<Box<dyn Controller>> {
    let enabled = settings.controllers.value.iter();
    let built = enabled.filter_map(|controller| -> Option<Box<dyn Controller>> {
        Some(match controller {
            Enabled::Node => Box::new(NodeController::new(wire::node_settings(settings))),
            Enabled::NodeLifecycle => {
                Box::new(LifecycleController::new(wire::lifecycle_settings(settings)))
            }
            Enabled::Service => Box::new(ServiceController::new(wire::service_settings(settings))),
            Enabled::NodeCsrApproval => Box::new(wire::certificates(settings)?),
            Enabled::Route => match wire::route_settings(settings) {
                Ok(settings) => Box::new(RouteController::new(settings)),
                Err(off) => {
                    let level = if off.is_wanted { Level::Warn } else { Level::Debug };
                    log::log!(level, "the route controller does not run, because {}", off.why);
                    return None;
                }
            },
        })
    });
    built.collect()
}

fn log_start(settings: &Settings, apis: &Apis, controllers: &[Box<dyn Controller>]) {
    let names: Vec<&str> = controllers.iter().map(|controller| controller.name()).collect();
    log::info!(
        "{}: --cloud-provider={}, cluster {} ({}), Hetzner {}, running {}",
        version::line().trim_end(),
        apis.provider.name(),
        apis.kube.server(),
        apis.kube.origin(),
        settings.endpoint.value.as_str(),
        names.join(", ")
    );
}

/// Runs each controller one time and ends. A CronJob can run ccm in this way. If this process became the leader, the
/// last log line says how the work ended.
fn once(Parts { settings, stop, lease, apis, controllers }: Parts) -> Exit {
    let begun = clock::now();
    let mut done = None;
    let exit = leader::lead(&settings, lease.as_ref(), || {
        let mut total = Counts::default();
        let exit = daemon::with_events(apis, stop, || pass(apis, controllers, stop, &mut total));
        // `stop` is set when a signal has asked the process to end. It must be read before the Lease is released,
        // because the release sets `stop` as well.
        done = Some((total, stop.is_set()));
        exit
    });
    if let Some((total, is_stopped)) = done {
        let end = match exit {
            Exit::Done => "done",
            _ if is_stopped => "ended early",
            _ => "failed",
        };
        log::info!(
            "pass {end} after {:.1} s: {}; calls made: {} to the cloud, {} to the cluster",
            clock::took(begun).as_secs_f64(),
            total,
            apis.provider.calls(),
            apis.kube.calls()
        );
    }
    exit
}

fn pass(
    apis: &'static Apis,
    controllers: Vec<Box<dyn Controller>>,
    stop: &Stop,
    total: &mut Counts,
) -> Exit {
    let mut exit = Exit::Done;
    for mut controller in controllers {
        let name = controller.name();
        if stop.is_set() {
            log::warn!("{name}: not started, because ccm was asked to stop");
            exit = Exit::Failed;
            continue;
        }
        let tick = move || controller.tick(apis, &Selection::All);
        let Some(report) = daemon::unless_stopped(stop, tick) else {
            log::warn!(
                "{name}: ccm was stopped before an API answered. Each object without a log line above was not processed"
            );
            exit = Exit::Failed;
            continue;
        };
        *total += report.counts();
        if let Some(outage) = &report.outage {
            // An API does not answer. The other controllers are not run, because they would call the same API.
            log::error!("{name}: {outage}");
            return Exit::Failed;
        }
        daemon::log_report(&report);
        log::info!("{name}: {}", report.counts());
        exit = exit.fail_if(!report.failures.is_empty());
    }
    // A wrong API token must be an error even when no controller had to call the cloud. Therefore the cloud is called
    // here, unless the process was asked to end.
    if !stop.is_set() {
        match daemon::unless_stopped(stop, || daemon::reach_cloud(apis)) {
            Some(Ok(())) => return exit,
            Some(Err(error)) => log::error!("{error}"),
            None => log::warn!("ccm was stopped before the Cloud API answered"),
        }
        exit = Exit::Failed;
    }
    exit
}

/// Prints what each controller would do, in the same form as `sync --dry-run`. The last line has the total of all
/// controllers. An object that two controllers would change is counted twice there.
fn dry_run(apis: &Apis, controllers: &[Box<dyn Controller>]) -> Exit {
    let mut text = String::new();
    let mut all = Vec::new();
    for controller in controllers {
        match controller.propose(apis, &Selection::All) {
            Ok(proposals) => {
                let heading = format!("{}:", controller.name());
                let warnings = proposals.iter().filter_map(|proposal| {
                    let warning = format!("warning: {}", proposal.warning.as_ref()?);
                    Some(objects::about('!', &proposal.object, &warning))
                });
                let lines = objects::proposed(&proposals, warnings);
                text += &objects::section(&heading, &lines, "change nothing");
                text += "\n";
                all.extend(proposals);
            }
            Err(error) => {
                log::error!("{}: {error}", controller.name());
                return Exit::Failed;
            }
        }
    }
    let mut is_failed = all.iter().any(|proposal| proposal.obstacle.is_some());
    let cloud = daemon::reach_cloud(apis).err().map(|error| error.to_string());
    let dedicated = apis.dedicated(None, Urgency::Asked).err().map(|error| error.to_string());
    for why in cloud.into_iter().chain(dedicated) {
        log::error!("{why}");
        is_failed = true;
    }
    Printer::text(&(text + &objects::total(&all))).fail_if(is_failed)
}
