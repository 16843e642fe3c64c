//! `ccm run`: the daemon, and one pass of it.

use super::logging::Reader;
use super::output::Printer;
use super::wire::{self, Read};
use super::{Exit, help, leader};
use crate::cloud::Gate;
use crate::controllers::node::NodeController;
use crate::controllers::{Controller, Selection};
use crate::daemon::{self, Ended, Stop};
use crate::settings::{self, Command, Settings};
use crate::world::World;
use std::ffi::OsString;

pub(super) fn run(words: Vec<OsString>) -> Exit {
    let parsed = match wire::read(Command::Run, words, Reader::Daemon, || {
        help::command(Command::Run)
    }) {
        Read::GoOn(parsed) => parsed,
        Read::End(exit) => return exit,
    };
    let settings = parsed.settings;
    let world = match wire::world(&settings) {
        Ok(world) => world,
        Err(why) => return Printer::failure(&why),
    };
    let controllers = controllers(&settings);
    if controllers.is_empty() {
        return Printer::failure(
            "--controllers: none of those that run in this version is left; nothing to do",
        );
    }
    tell_start(&settings, &world, &controllers);
    // The process's own for as long as it lives.
    let world: &'static World = Box::leak(Box::new(world));
    let stop: &'static Stop = Box::leak(Box::new(Stop::default()));
    if let Err(error) = daemon::stop_on_signals(stop) {
        return Printer::failure(&format!("signals can't be watched: {error}"));
    }
    if settings.dry_run.value {
        return dry_run(world, &controllers);
    }
    let exit = leader::lead(&settings, stop, |gate| match settings.once.value {
        true => once(world, gate, controllers),
        false => match daemon::run(world, gate, controllers, stop) {
            Ended::Stopped => Exit::Done,
            Ended::NeedsAPerson => Exit::Failed,
        },
    });
    if exit == Exit::Done && !settings.once.value {
        log::info!("ended");
    }
    exit
}

/// Those that `--controllers` leaves; the others of a cloud-controller-manager are not built yet.
fn controllers(settings: &Settings) -> Vec<Box<dyn Controller>> {
    let mut controllers: Vec<Box<dyn Controller>> = Vec::new();
    if settings
        .controllers
        .value
        .contains(settings::Controller::Node)
    {
        controllers.push(Box::new(NodeController::new(wire::node_settings(settings))));
    }
    controllers
}

fn tell_start(settings: &Settings, world: &World, controllers: &[Box<dyn Controller>]) {
    let names: Vec<&str> = controllers
        .iter()
        .map(|controller| controller.name())
        .collect();
    log::info!(
        "ccm {}: profile {}, cluster {} ({}), Hetzner {}, running {}",
        env!("CARGO_PKG_VERSION"),
        world.provider.name(),
        world.kube.server(),
        world.kube.origin(),
        settings.endpoint.value.as_str(),
        names.join(", ")
    );
}

/// One pass over everything: what a CronJob does.
fn once(world: &World, gate: &dyn Gate, controllers: Vec<Box<dyn Controller>>) -> Exit {
    let mut exit = Exit::Done;
    for mut controller in controllers {
        let report = controller.tick(world, gate, &Selection::All);
        if let Some(outage) = &report.outage {
            log::error!("{}: {outage}", controller.name());
            exit = Exit::Failed;
            continue;
        }
        daemon::log_report(&report);
        log::info!("{}: {}", controller.name(), super::node::summary(&report));
        if !report.failures.is_empty() {
            exit = Exit::Failed;
        }
    }
    let (cloud, cluster) = (world.provider.calls(), world.kube.calls());
    log::info!("{cloud} calls to the cloud, {cluster} to the cluster");
    exit
}

/// What one pass would do, as `sync --dry-run` prints it.
fn dry_run(world: &World, controllers: &[Box<dyn Controller>]) -> Exit {
    let mut text = String::new();
    let mut exit = Exit::Done;
    for controller in controllers {
        match controller.propose(world, &Selection::All) {
            Ok(proposals) => text.push_str(&super::node::proposed(&proposals)),
            Err(error) => {
                log::error!("{}: {error}", controller.name());
                exit = Exit::Failed;
            }
        }
    }
    match Printer::stdout(&text) {
        Exit::Done => exit,
        failed => failed,
    }
}
